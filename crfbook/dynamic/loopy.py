"""Belief propagation on a `Graph`: schedules, sweeps until all components have converged, beliefs, log Z.

    propagate        beliefs and log Z as Bethe has it
    max_marginals    the labels that max-product finds

Schedules: "sync" sends all messages from the old ones, "random" along shuffled factors (Sutton et al., 2004),
"sweep" from left to right and back, "tree" along random spanning trees (TRP), "residual" always the one that
would change most, and then, as small changes add up, a sweep: it goes on if that finds a change of tol.
NumPy makes the orders from a given generator. Kernels send messages (sum_product.py), build spanning trees,
and keep the queue of the largest changes. `graph` is a `Graph` (graphs.py). A spanning tree joins variables
and factors: a factor of two variables is in it with both slots or not at all, one of more variables may be
in it with some of them. Source: docs/SPEC.md, B.4 and B.5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfbook._checks import number, one_of, whole
from crfbook._jit import kernel
from crfbook.dynamic.graphs import Graph
from crfbook.dynamic.sum_product import (
    LEAST,
    LOG_MAX,
    LOG_SUM,
    SUM,
    message_beliefs,
    message_counts,
    message_sweep,
    plain_message,
)

SCHEDULES = ("sync", "random", "residual", "sweep", "tree")
BLOCKS = ("block", "mean-field")  # of blocks.py


@kernel
def _root(x, above):
    """The representative of x; paths are halved."""
    while above[x] != x:
        above[x] = above[above[x]]
        x = above[x]
    return x


@kernel
def spanning_forest(factors, graph, used, picked, above):
    """picked <- 1 for the slots of a spanning forest, 0 for others; used is set to 1 for them.

    Kruskal's algorithm: a slot is added if it closes no loop. Factors with a slot that was never used come
    first, and so do slots that were never used. A factor that would keep one slot keeps none.

    Arguments:
        factors : (n,), shuffled
        graph : a `Graph`
        used : uint8 (S,)
    Out:
        picked : uint8 (S,)
    Work:
        above : (V + F,)
    Cost: nearly linear.
    Source: Wainwright, Jaakkola and Willsky (2003); docs/SPEC.md, B.4.
    """
    n_vars = graph.n_labels.size
    picked[:] = 0
    for x in range(above.size):
        above[x] = x
    for turn in range(2):
        for i in range(factors.size):
            f = factors[i]
            first, last, n_used, n_picked = graph.factor_ptr[f], graph.factor_ptr[f + 1], 0, 0
            for s in range(first, last):
                n_used += used[s]
            if (n_used == last - first) != (turn == 1):
                continue
            for again in range(2):
                for s in range(first, last):
                    x, y = _root(graph.slot_var[s], above), _root(n_vars + f, above)
                    if used[s] == again and x != y:
                        above[x] = y
                        picked[s] = 1
                        n_picked += 1
            if n_picked == 1:
                picked[first:last] = 0
    for s in range(used.size):
        used[s] |= picked[s]


@kernel
def forest_order(variables, graph, picked, order, came_by, queue, entry):
    """order <- the slots of a forest as messages are sent: in each tree from the leaves to its first variable
    and back; how many. Each slot that is picked has one message.

    Arguments:
        variables : (n,), of whole components
        graph : a `Graph`
        picked : uint8 (S,)
    Out:
        order : (S,)
    Work:
        came_by : (V,)
        queue : (V,)
        entry : (F,)
    Cost: linear.
    Source: docs/SPEC.md, B.4.
    """
    n = 0
    came_by[:] = -2
    for root in variables:
        if came_by[root] != -2:
            continue
        came_by[root], queue[0] = -1, root
        head, size, n_factors = 0, 1, 0
        while head < size:
            v = queue[head]
            head += 1
            for i in range(graph.var_ptr[v], graph.var_ptr[v + 1]):
                s = graph.var_slot[i]
                if picked[s] and s != came_by[v]:
                    entry[n_factors] = s
                    n_factors += 1
                    f = graph.slot_factor[s]
                    for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
                        if picked[e] and e != s:
                            came_by[graph.slot_var[e]] = e
                            queue[size] = graph.slot_var[e]
                            size += 1
        for i in range(n_factors - 1, -1, -1):
            order[n] = entry[i]
            n += 1
        for i in range(n_factors):
            f = graph.slot_factor[entry[i]]
            for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
                if picked[e] and e != entry[i]:
                    order[n] = e
                    n += 1
    return n


@kernel
def _sift(i, size, queue):
    """Move entry i of a heap of `size` slots up or down to where its priority belongs."""
    heap, place, priority = queue.heap, queue.place, queue.priority
    s = heap[i]
    while i > 0 and priority[heap[(i - 1) // 2]] < priority[s]:
        heap[i] = heap[(i - 1) // 2]
        place[heap[i]] = i
        i = (i - 1) // 2
    while 2 * i + 1 < size:
        below = 2 * i + 1
        if below + 1 < size and priority[heap[below + 1]] > priority[heap[below]]:
            below += 1
        if priority[heap[below]] <= priority[s]:
            break
        heap[i] = heap[below]
        place[heap[i]] = i
        i = below
    heap[i], place[s] = s, i


@kernel
def _propose(s, c, graph, potentials, domain, msg, queue, state, work):
    """queue.new[s] <- the message along slot s of component c, its priority <- the change."""
    queue.one[0], state.change[c] = s, 0.0
    message_sweep(queue.one, graph, potentials, msg, domain, queue.new, 0.0, state.change, state.lost, work)
    queue.priority[s] = state.change[c]


@kernel
def residual_messages(components, graph, potentials, domain, msg, tol, most, queue, state, work):
    """Send the message that would change most, until none would change by tol, or most * slots are sent.

    Messages of earlier calls count. The new messages of all slots are in a heap. When one is sent, those that
    depend on it are computed again.

    Arguments:
        components : (n,)
        graph : a `Graph`
        potentials : a `Potentials`
        domain : see sum_product.py
        tol : least change that counts
        most : messages a slot
    Out:
        msg : (S, W)
        state : a `State`
    Work:
        queue : a `Queue`
        work : a `Buffers`
    Returns how many messages were computed.
    Cost: a message and the depth of the heap for each neighbour of what is sent.
    Source: Elidan, McGraw and Koller (2006), Residual belief propagation.
    """
    n_computed = 0
    for c in components:
        lo = graph.factor_ptr[graph.first_factor[c]]
        size = graph.factor_ptr[graph.first_factor[c + 1]] - lo
        for i in range(size):
            _propose(lo + i, c, graph, potentials, domain, msg, queue, state, work)
            queue.heap[i] = lo + i
            _sift(i, i + 1, queue)
        n_computed += size
        sent, left = 0, (most - state.sweeps[c]) * size
        while sent < left and queue.priority[queue.heap[0]] >= tol and not state.lost[c]:
            best = queue.heap[0]
            v = graph.slot_var[best]
            for y in range(msg.shape[1]):
                msg[best, y] = queue.new[best, y]
            queue.priority[best] = 0.0
            _sift(0, size, queue)
            sent += 1
            for i in range(graph.var_ptr[v], graph.var_ptr[v + 1]):
                f = graph.slot_factor[graph.var_slot[i]]
                for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
                    if graph.var_slot[i] != best and e != graph.var_slot[i]:
                        _propose(e, c, graph, potentials, domain, msg, queue, state, work)
                        _sift(queue.place[e], size, queue)
                        n_computed += 1
        state.change[c] = queue.priority[queue.heap[0]] if size else 0.0
        state.sweeps[c] += -(-sent // size) if size else 0
    return n_computed


def residual_plain(graph, potentials, msg, tol, most):
    """The readable sister of `residual_messages`, on a graph of one component: how many messages were sent.

    msg : (S, W), moved. The message that would change most is sent, until none would change by tol, or `most`
        have been sent. The kernel computes again only what depends on the message that was sent.
    Source: Elidan, McGraw and Koller (2006).
    """
    new = np.zeros_like(msg)
    for n_sent in range(most):
        for s in range(len(msg)):
            plain_message(s, graph, potentials, msg, new[s])
        change = np.abs(new - msg).max(axis=1)
        best = change.argmax()
        if change[best] < tol:
            return n_sent
        msg[best] = new[best]
    return most


@kernel
def copy_tables(log_tables, graph, copies):
    """copies <- each table once for each of its axes, that axis last; what pads it is left as it is.

    Arguments:
        log_tables : (cells,)
        graph : a `Graph`
    Out:
        copies : (graph.copy_ptr[-1],)
    Cost: arity a cell.
    Source: docs/SPEC.md, B.4.
    """
    for k in range(graph.table_arity.size):
        size = graph.cell_ptr[k + 1] - graph.cell_ptr[k]
        behind = size
        for axis in range(graph.table_arity[k]):
            n = graph.table_shape[k, axis]
            behind //= n
            for before in range(size // (n * behind)):
                for y in range(n):
                    cell = graph.cell_ptr[k] + (before * n + y) * behind
                    copy = graph.copy_ptr[4 * k + axis] + before * behind * (n + 3 & -4) + y
                    for r in range(behind):
                        copies[copy + r * (n + 3 & -4)] = log_tables[cell + r]


class Options(NamedTuple):
    """How messages are sent. See `check_options`."""

    schedule: str = "tree"
    tol: float = 1e-3  # converged: no message changes by so much; a message sums to 1
    max_sweeps: int = 1000
    damping: float = 0.0  # share of the old message, for "sync" and "block"
    seed: int = 0
    early_stop: bool = False  # "tree" stops as GRMM does: too early


OPTIONS = Options()


class Potentials(NamedTuple):
    """exp of the scores, or the scores, less the maximum of each variable and table."""

    phi: np.ndarray  # (V, W)
    table: np.ndarray  # (graph.copy_ptr[-1],): of `copy_tables`


class Buffers(NamedTuple):
    """What kernels write on their way."""

    w: np.ndarray  # (rows,): labels of a factor's other variables
    q: np.ndarray  # (W,)
    out: np.ndarray  # (W,)


class State(NamedTuple):
    """How far the components are."""

    change: np.ndarray  # (C,): largest change of a message in the last sweep
    lost: np.ndarray  # uint8 (C,): 1: precision is lost, or every labelling is forbidden
    sweeps: np.ndarray  # int64 (C,)


class Queue(NamedTuple):
    """The heap of "residual"."""

    new: np.ndarray  # (S, W): messages not yet sent
    priority: np.ndarray  # (S,)
    heap: np.ndarray  # int64 (S,): slots
    place: np.ndarray  # int64 (S,): where in the heap each is
    one: np.ndarray  # int64 (1,): the slot that is computed


class Beliefs(NamedTuple):
    """What belief propagation finds for C components."""

    log_z: np.ndarray  # (C,): as Bethe has it; -inf where messages find every labelling forbidden
    p_var: np.ndarray  # (V, W): of single variables; zeros where log_z is -inf
    p_table: np.ndarray  # (cells,): of factors, times weights, summed over those that share a table
    converged: np.ndarray  # bool (C,)
    sweeps: np.ndarray  # int64 (C,)
    n_messages: int


class MaxMarginals(NamedTuple):
    """What max-product decodes."""

    labels: np.ndarray  # int32 (V,)
    score: np.ndarray  # (C,): of these labels
    converged: np.ndarray  # bool (C,)
    sweeps: np.ndarray  # int64 (C,)
    n_messages: int


def check_options(
    schedule="tree", tol=1e-3, max_sweeps=1000, damping=0.0, seed=0, early_stop=False
) -> Options:
    """`Options`, or ValueError.

    schedule : of SCHEDULES or BLOCKS. tol : see `Options`; 0 with max_sweeps=3: exactly three sweeps.
    max_sweeps : at most; for "residual", as many messages as that times the slots, and the sweep that ends.
    damping : share of the old message in a new one, below 1; "sync" and "block" have it.
    seed : of random orders.
    """
    one_of("schedule", schedule, (*SCHEDULES, *BLOCKS))
    tol, max_sweeps = number("tol", tol), whole("max_sweeps", max_sweeps)
    damping, seed = number("damping", damping), whole("seed", seed)
    if damping >= 1.0 or damping and schedule not in ("sync", "block"):
        raise ValueError(
            "damping: expected a number below 1, and 0 unless schedule is 'sync' or 'block', got "
            f"{damping:g} with schedule={schedule!r}"
        )
    return Options(schedule, tol, max_sweeps, damping, seed, bool(early_stop))


def propagate(
    graph: Graph, log_phi: np.ndarray, log_tables: np.ndarray, options: Options = OPTIONS,
    weight: np.ndarray | None = None, stream: int = 0,
) -> Beliefs:  # fmt: skip
    """`Beliefs` of a graph.

    log_phi (V, W), log_tables (cells,): scores, see graphs.py; -inf forbids, any size; what stands behind a
    variable's labels is not read. weight (C,): of each component in p_table; None: ones.
    stream : random orders are those of (options.seed, stream).
    Messages start uniform. Components that probabilities cannot hold are computed again in logarithms.
    """
    scores, base = _scores(graph, log_phi, log_tables)
    weight = np.ones(graph.n_components) if weight is None else np.asarray(weight, float)
    if weight.shape != base.shape:
        raise ValueError(f"weight: expected one for each of {len(base)} components, got {weight.shape}")
    p_var, p_table, n = np.zeros(scores.phi.shape), np.zeros(graph.cell_ptr[-1]), len(base)
    found = Beliefs(base, p_var, p_table, np.zeros(n, bool), np.zeros(n, np.int64), 0)
    rng = np.random.default_rng([options.seed, stream])
    wanted = ~_too_wide(graph, scores)
    found, lost = _domain(SUM, graph, _exp(scores), wanted, options, weight, found, rng)
    again = lost | ~wanted
    if again.any():
        found.p_var[again[graph.component]] = 0.0
        found, impossible = _domain(LOG_SUM, graph, scores, again, options, weight, found, rng)
        found.log_z[impossible], found.p_var[impossible[graph.component]] = -np.inf, 0.0
    return found


def _domain(domain, graph, potentials, wanted, options, weight, found, rng):
    """Beliefs of the components `wanted` (C,) added to those found; (all of them, bool (C,): lost)."""
    if not wanted.any():
        return found, wanted
    base, work, z_factor = found.log_z.copy(), _buffers(graph), np.zeros(len(graph.factor_table))
    msg, state, converged, n_messages = _iterate(graph, potentials, domain, wanted, options, rng)
    what = graph, potentials, msg, domain
    message_beliefs(wanted, *what, found.log_z, found.p_var, z_factor, state.lost, work)
    lost = wanted & (state.lost > 0)
    found.log_z[lost] = base[lost]
    message_counts(np.where(wanted & ~lost, weight, 0.0), *what, z_factor, found.p_table, work)
    found.converged[wanted], found.sweeps[wanted] = converged[wanted], state.sweeps[wanted]
    return found._replace(n_messages=found.n_messages + n_messages), lost


def max_marginals(
    graph: Graph, log_phi: np.ndarray, log_tables: np.ndarray, options: Options = OPTIONS, stream: int = 0
) -> MaxMarginals:
    """`MaxMarginals`: of each variable the label with the largest max-marginal, the smaller one of a tie.

    Arguments as `propagate`. Exact on trees with one best labelling. The score is that of the labels.
    """
    scores, base = _scores(graph, log_phi, log_tables)
    wanted, p_var = np.ones(len(base), bool), np.full(scores.phi.shape, -np.inf)
    rng = np.random.default_rng([options.seed, stream])
    msg, state, converged, n_messages = _iterate(graph, scores, LOG_MAX, wanted, options, rng)
    message_beliefs(wanted, graph, scores, msg, LOG_MAX, base, p_var, None, state.lost, _buffers(graph))
    labels = p_var.argmax(axis=1).astype(np.int32)
    labels[state.lost[graph.component] > 0] = 0
    score = score_of(graph, log_phi, log_tables, labels)
    return MaxMarginals(labels, score, converged, state.sweeps, n_messages)


def score_of(graph, log_phi, log_tables, labels):
    """(C,): the scores of labels (V,)."""
    cell = np.zeros(len(graph.factor_table), np.int64)
    for axis in range(graph.table_shape.shape[1]):
        some = np.flatnonzero(graph.table_arity[graph.factor_table] > axis)
        variable = graph.slot_var[graph.factor_ptr[some] + axis]
        cell[some] = cell[some] * graph.table_shape[graph.factor_table[some], axis] + labels[variable]
    each = np.asarray(log_tables, float)[graph.cell_ptr[graph.factor_table] + cell]
    own = np.asarray(log_phi, float)[np.arange(len(labels)), labels]
    n = graph.n_components
    return np.bincount(graph.component, own, n) + np.bincount(graph.factor_component, each, n)


def _buffers(graph):
    return Buffers(np.empty(graph.most_rows), np.empty(graph.width), np.zeros(graph.width))


def _scores(graph, log_phi, log_tables):
    """(`Potentials` in logarithms, what was taken off each component (C,)); ValueError for wrong shapes, NaN
    and +inf.
    """
    shapes = (len(graph.n_labels), graph.width), (int(graph.cell_ptr[-1]),)
    if (np.shape(log_phi), np.shape(log_tables)) != shapes:
        raise ValueError(
            f"scores: expected log_phi {shapes[0]} and log_tables {shapes[1]}, got {np.shape(log_phi)} and "
            f"{np.shape(log_tables)}"
        )
    inside = np.arange(graph.width) < graph.n_labels[:, None]
    log_phi, log_tables = np.where(inside, log_phi, -np.inf).astype(float), np.asarray(log_tables, float)
    for name, scores in (("log_phi", log_phi), ("log_tables", log_tables)):
        if len(wrong := np.argwhere(~(scores < np.inf))):
            place, came = tuple(wrong[0].tolist()), scores[tuple(wrong[0])]
            raise ValueError(f"{name}{list(place)}: expected a finite score, or -inf, got {came}")
    top = log_phi.max(axis=1, initial=-np.inf)
    top[top == -np.inf] = 0.0
    n = graph.n_components
    base = np.bincount(graph.component, top, n)
    copies = np.full(int(graph.copy_ptr[-1]), -np.inf)
    if len(log_tables):
        high = np.maximum.reduceat(log_tables, graph.cell_ptr[:-1])
        high[high == -np.inf] = 0.0
        copy_tables(log_tables - np.repeat(high, np.diff(graph.cell_ptr)), graph, copies)
        base += np.bincount(graph.factor_component, high[graph.factor_table], n)
    return Potentials(log_phi - top[:, None], copies), base


def _exp(scores):
    return Potentials(np.exp(scores.phi), np.exp(scores.table))


def _too_wide(graph, scores):
    """bool (C,): components with a score that probabilities do not hold."""
    few = np.log(LEAST)
    out = np.zeros(graph.n_components, bool)
    out[graph.component[((scores.phi < few) & (scores.phi > -np.inf)).any(axis=1)]] = True
    cells = np.flatnonzero((scores.table < few) & (scores.table > -np.inf))
    if len(cells):
        tables = np.searchsorted(graph.copy_ptr, cells, side="right") - 1
        bad = np.zeros(len(graph.table_arity), bool)
        bad[tables // graph.table_shape.shape[1]] = True
        out[graph.factor_component[bad[graph.factor_table]]] = True
    return out


def _uniform(graph, domain):
    """Messages (S, W) to begin with."""
    inside = np.arange(graph.width) < graph.n_labels[graph.slot_var][:, None]
    share = inside / graph.n_labels[graph.slot_var][:, None]
    if domain == SUM:
        return share
    return np.log(share, out=np.full(share.shape, -np.inf), where=inside)


def _iterate(graph, potentials, domain, wanted, options, rng):
    """Sweeps over the components `wanted` until they have converged: (messages (S, W), `State`, bool (C,):
    converged, how many messages were sent).
    """
    one_of("schedule", options.schedule, SCHEDULES)
    n, work, msg = graph.n_components, _buffers(graph), _uniform(graph, domain)
    state = State(np.full(n, np.inf), np.zeros(n, np.uint8), np.zeros(n, np.int64))
    alone = np.diff(graph.first_factor) == 0
    active, converged, n_messages = wanted & ~alone, alone.copy(), 0
    new = msg.copy() if options.schedule == "sync" else msg
    orders, order = ORDERS[options.schedule](graph, options, rng), None
    queue = _queue(msg, domain) if options.schedule == "residual" else None
    for _ in range(options.max_sweeps):
        if not active.any():
            break
        if queue is not None:
            n_messages += residual_messages(
                np.flatnonzero(active), graph, potentials, domain, msg, options.tol, options.max_sweeps,
                queue, state, work,
            )  # fmt: skip
            active &= state.change < options.tol
        order = orders.next(active, order)
        state.change[active] = 0.0
        how = domain, new, options.damping
        message_sweep(order, graph, potentials, msg, *how, state.change, state.lost, work)
        msg, new = new, msg
        n_messages += len(order)
        state.sweeps[active] += 1
        lost = state.lost > 0
        done = active & ~lost & orders.done(active, state.change < options.tol)
        converged |= done
        over = done | active & (lost | (state.sweeps >= options.max_sweeps))
        if over.any():
            if new is not msg:
                ended = over[graph.slot_component]
                new[ended] = msg[ended]
            active, order = active & ~over, None
    return msg, state, converged, n_messages


def _queue(msg, domain):
    """`Queue` for all slots."""
    n_slots = len(msg)
    new = np.full_like(msg, 0.0 if domain == SUM else -np.inf)
    return Queue(new, np.zeros(n_slots), *np.zeros((2, n_slots), np.int64), np.zeros(1, np.int64))


class _Fixed:
    """The same order in each sweep, of the slots of components that are active."""

    def __init__(self, graph, options, rng):
        self.graph, self.order = graph, self.slots(graph)

    @staticmethod
    def slots(graph):
        return np.arange(len(graph.slot_var))

    def next(self, active, before):
        return before if before is not None else self.order[active[self.graph.slot_component[self.order]]]

    def done(self, active, still):
        """Which components have converged, where `still` have no message that changed in the last sweep."""
        return still


class _Sweep(_Fixed):
    """From left to right: messages to all ends of a factor but the leftmost; and back.

    Where all ends stand at one step, both passes have messages to all of them, after those from elsewhere.
    """

    @staticmethod
    def slots(graph):
        step, factor = graph.step[graph.slot_var], graph.slot_factor
        low, high = (np.zeros(len(graph.factor_table), np.int64) for _ in range(2))
        if len(step):
            low = np.minimum.reduceat(step, graph.factor_ptr[:-1])
            high = np.maximum.reduceat(step, graph.factor_ptr[:-1])
        level, component = (low == high)[factor], graph.slot_component
        right, left = (np.flatnonzero(level | (step != end[factor])) for end in (low, high))
        passes = np.repeat([0, 1], [len(right), len(left)])
        slots = np.concatenate([right, left])
        along = np.concatenate([step[right], -step[left]])
        return slots[np.lexsort((level[slots], along, passes, component[slots]))]


class _Random(_Fixed):
    """Factors shuffled; messages to the last variable of each, then to the last but one, and so on."""

    def __init__(self, graph, options, rng):
        self.graph, self.rng, self.component = graph, rng, graph.factor_component

    def shuffled(self, active):
        """Factors of active components in a random order, component by component."""
        factors = self.rng.permutation(np.flatnonzero(active[self.component]))
        return factors[self.by_component(factors)]

    def by_component(self, factors):
        """The stable order that sorts factors by component."""
        few = self.graph.n_components <= 1 << 15  # NumPy sorts int16 by counting
        return np.argsort(self.component[factors].astype(np.int16 if few else np.int64), kind="stable")

    def next(self, active, before):
        factors, graph = self.shuffled(active), self.graph
        last, arity = graph.factor_ptr[factors + 1] - 1, np.diff(graph.factor_ptr)[factors]
        passes = [np.flatnonzero(arity > i) for i in range(int(arity.max()))]
        slots = np.concatenate([last[some] - i for i, some in enumerate(passes)])
        return slots[self.by_component(np.concatenate([factors[some] for some in passes]))]


class _Tree(_Random):
    """A random spanning forest in each sweep; converged when slots that changed nothing have all been in one
    since the last change. Where one tree holds all slots, after one sweep.
    """

    def __init__(self, graph, options, rng):
        super().__init__(graph, options, rng)
        self.early_stop, n, n_vars = options.early_stop, len(graph.slot_var), len(graph.n_labels)
        self.n_slots, self.slot_component = np.diff(graph.first_slot), graph.slot_component
        self.used, self.quiet, self.picked = np.zeros((3, n), np.uint8)
        self.order, n_factors = np.zeros(n, np.int64), len(graph.factor_table)
        self.work = np.zeros(n_vars + n_factors, np.int64), *np.zeros((2, n_vars), np.int64)
        self.entry = np.zeros(n_factors, np.int64)

    def next(self, active, before):
        above, came_by, queue = self.work
        spanning_forest(self.shuffled(active), self.graph, self.used, self.picked, above)
        variables = np.flatnonzero(active[self.graph.component])
        n = forest_order(variables, self.graph, self.picked, self.order, came_by, queue, self.entry)
        return self.order[:n].copy()

    def done(self, active, still):
        component = self.slot_component

        def hold(flags):
            return np.bincount(component, flags, len(active)) == self.n_slots

        if self.early_stop:
            return still & hold(self.used)
        self.quiet = np.where(still[component], self.quiet | self.picked, 0).astype(np.uint8)
        return hold(self.picked) | still & hold(self.quiet)


ORDERS = {"residual": _Sweep, "sync": _Fixed, "random": _Random, "sweep": _Sweep, "tree": _Tree}
