"""Junction trees: exact inference for any template, planned before a table is allocated.

Variables are eliminated one by one, and the neighbours of each become a clique. The maximal cliques make a
tree in which a variable's cliques are connected; a clique and its parent share their *separator*. Messages
along the tree give log Z and marginals, or the best assignment. The cost is the number of cells of all
cliques' tables. A plan depends on the template and on the length of a sequence, not on its potentials.

Kernels take any model of factors. `log_tables` holds the factors' tables one after the other. -inf forbids;
+inf and NaN are not allowed. `JunctionTrees` is the form of them, sequence by sequence, in logarithms.
Source: Lauritzen and Spiegelhalter (1988); Koller and Friedman (2009), chapter 10; docs/SPEC.md, B.3.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forms import Form
from crfbook.chain.likelihood import Batch, Work, add_tree, batch_gradient, batch_scores
from crfbook.chain.vector_math import exp_inplace
from crfbook.data.corpus import offsets
from crfbook.dynamic.layout import log_tables, row_bounds

LIMIT = 1 << 20  # cells of one clique's table

At = Sequence[Sequence[tuple[int, int]]]


class Plan(NamedTuple):
    """A junction tree of C cliques and F factors, as int64 arrays. Children stand before their parents.

    The variables of a clique's table stand in the order of its axes, the last one changing fastest, and those
    of the separator from its parent stand last, in the order of the parent. So a table is a matrix [others,
    separator], and a cell of the separator is a column. The last clique is the root; its separator is empty
    and has one cell.
    A few axes map the cells of a clique to those of a smaller table, a factor's or a child's separator. An
    axis is a number of cells, and the step in the smaller table: 0 for a variable that this table does not
    have.
    """

    card: np.ndarray  # (V,): labels of each variable
    var: np.ndarray  # variables of all cliques, var_ptr (C+1,) delimits them
    var_ptr: np.ndarray
    parent: np.ndarray  # (C,), -1 for the root
    cell_ptr: np.ndarray  # (C+1,): cells of the tables
    message_ptr: np.ndarray  # (C+1,): cells of the separators
    home: np.ndarray  # (F,): the clique that holds a factor
    factor_ptr: np.ndarray  # (F+1,): cells of the factors' tables
    axis_card: np.ndarray  # axes of F factors in their cliques, then of C separators in the parents
    axis_step: np.ndarray
    axis_ptr: np.ndarray  # (F+C+1,)
    largest: int  # cells of the largest clique
    cells: int  # cells of all cliques


@kernel
def _next_row(at, lo, last, plan, digit):
    """Where in the smaller table the next row of a walk begins, after a row at `at`; -1 after the last row.

    A row is the last axis; digit counts the axes lo..last-1.
    """
    for a in range(last - 1, lo - 1, -1):
        digit[a - lo] += 1
        at += plan.axis_step[a]
        if digit[a - lo] < plan.axis_card[a]:
            return at
        digit[a - lo] = 0
        at -= plan.axis_card[a] * plan.axis_step[a]
    return -1


@kernel
def _walk_clique(walk, plan, upwards, table, cell, small, first):
    """table[cell:] += the smaller table small[first:], each of its cells wherever its labels stand. Upwards:
    small[first:], which has zeros, <- sums of the cells table[cell:] that have the same labels there.
    """
    lo, last = plan.axis_ptr[walk], plan.axis_ptr[walk + 1] - 1
    n, step = plan.axis_card[last], plan.axis_step[last]
    digit, at = np.zeros(last - lo, np.int64), 0
    while at >= 0:
        k = first + at
        if step == 0 and upwards:
            total = 0.0
            for i in range(n):
                total += table[cell + i]
            small[k] += total
        elif step == 0:
            v = small[k]
            for i in range(n):
                table[cell + i] += v
        elif upwards:
            for i in range(n):
                small[k + i * step] += table[cell + i]
        else:
            for i in range(n):
                table[cell + i] += small[k + i * step]
        cell += n
        at = _next_row(at, lo, last, plan, digit)


@kernel
def _begin(plan, log_tables, tables):
    """tables <- the sum of the factors that each clique holds."""
    for i in range(plan.cells):
        tables[i] = 0.0
    for f in range(plan.home.size):
        _walk_clique(f, plan, 0, tables, plan.cell_ptr[plan.home[f]], log_tables, plan.factor_ptr[f])


@kernel
def _column_maxima(lo, hi, tables, first, n, message):
    """message[first+s] <- max_r tables[lo + r n + s], for the columns s < n of tables[lo:hi]."""
    for s in range(n):
        message[first + s] = -np.inf
    for k in range(lo, hi, n):
        for s in range(n):
            v, top = tables[k + s], message[first + s]
            message[first + s] = v if v > top else top


@kernel
def _normalise_columns(lo, hi, tables, first, n, message, total):
    """message[first+s] <- log sum_r exp(tables[r,s]);  tables[r,s] <- exp(tables[r,s] - message[s]), or 0
    for a column that is forbidden; total (n,) is work.
    """
    _column_maxima(lo, hi, tables, first, n, message)
    for s in range(n):
        total[s] = message[first + s] if message[first + s] > -np.inf else 0.0
    for k in range(lo, hi, n):
        for s in range(n):
            tables[k + s] -= total[s]
    exp_inplace(tables[lo:hi])
    for s in range(n):
        total[s] = 0.0
    for k in range(lo, hi, n):
        for s in range(n):
            total[s] += tables[k + s]
    for s in range(n):
        if total[s] > 0.0:
            message[first + s] += np.log(total[s])
            total[s] = 1.0 / total[s]
    for k in range(lo, hi, n):
        for s in range(n):
            tables[k + s] *= total[s]


@kernel
def junction_log_z(plan, log_tables, p_tables, tables_buf, message_buf):
    """log Z of a model, -inf if every assignment is forbidden, and the marginals of all factors.

    Collect, children before parents: psi_c = sum of the factors that c holds and of its children's messages,
        m_c(s) = log sum_r exp psi_c(r, s),  p_c(r | s) = exp(psi_c(r, s) - m_c(s));  log Z = m_root.
    Distribute, parents first: p_c(s) = the sum of p_parent over what s lacks,  p_c(r, s) = p_c(r | s) p_c(s).
    s are the labels of the separator from the parent, r the others. A conditional probability below exp(-708)
    becomes 0.

    Arguments:
        plan : a `Plan`
        log_tables : (cells of all factors,)
    Out:
        p_tables : (cells of all factors,), zeros if all is forbidden
    Work:
        tables_buf : (plan.cells,)
        message_buf : (2, plan.message_ptr[-1])
    Cost: one exp and some ten additions or multiplications for each cell of a clique, and two additions for
    each of its factors and children; a logarithm for each cell of a separator.
    Source: Lauritzen and Spiegelhalter (1988); docs/SPEC.md, B.3.
    """
    n_factors, n_cliques = plan.home.size, plan.parent.size
    message, total = message_buf[0], message_buf[1]
    _begin(plan, log_tables, tables_buf)
    for c in range(n_cliques):
        lo, hi, first = plan.cell_ptr[c], plan.cell_ptr[c + 1], plan.message_ptr[c]
        _normalise_columns(lo, hi, tables_buf, first, plan.message_ptr[c + 1] - first, message, total)
        if plan.parent[c] >= 0:
            above = plan.cell_ptr[plan.parent[c]]
            _walk_clique(n_factors + c, plan, 0, tables_buf, above, message, first)
    log_z = message[plan.message_ptr[n_cliques - 1]]
    for c in range(n_cliques - 2, -1, -1):
        first, n = plan.message_ptr[c], plan.message_ptr[c + 1] - plan.message_ptr[c]
        for s in range(n):
            message[first + s] = 0.0
        above = plan.cell_ptr[plan.parent[c]]
        _walk_clique(n_factors + c, plan, 1, tables_buf, above, message, first)
        for k in range(plan.cell_ptr[c], plan.cell_ptr[c + 1], n):
            for s in range(n):
                tables_buf[k + s] *= message[first + s]
    for i in range(p_tables.size):
        p_tables[i] = 0.0
    for f in range(n_factors):
        _walk_clique(f, plan, 1, tables_buf, plan.cell_ptr[plan.home[f]], p_tables, plan.factor_ptr[f])
    return log_z


@kernel
def junction_max(plan, log_tables, path, tables_buf, message_buf):
    """The best assignment; returns its score, -inf if all are forbidden (path is then all 0).

    Collect, children before parents: psi_c as ``junction_log_z``,  m_c(s) = max_r psi_c(r, s).
    Then, parents first: r_c = the smallest r with the largest psi_c(r, s), s the labels of the parent.
    Of assignments that tie at a clique, the one that comes first in the order of its table wins: with the
    smaller label of the smaller variable. Over several cliques that is no fixed order of assignments.

    Arguments:
        plan : a `Plan`
        log_tables : (cells of all factors,)
    Out:
        path : int32 (V,)
    Work:
        tables_buf : (plan.cells,)
        message_buf : (2, plan.message_ptr[-1])
    Cost: two comparisons for each cell of a clique, and an addition for each of its factors and children.
    Source: Koller and Friedman (2009), section 13.3; docs/SPEC.md, B.3.
    """
    n_factors, n_cliques = plan.home.size, plan.parent.size
    message = message_buf[0]
    path[:] = 0
    _begin(plan, log_tables, tables_buf)
    for c in range(n_cliques):
        lo, hi, first = plan.cell_ptr[c], plan.cell_ptr[c + 1], plan.message_ptr[c]
        _column_maxima(lo, hi, tables_buf, first, plan.message_ptr[c + 1] - first, message)
        if plan.parent[c] >= 0:
            above = plan.cell_ptr[plan.parent[c]]
            _walk_clique(n_factors + c, plan, 0, tables_buf, above, message, first)
    score = message[plan.message_ptr[n_cliques - 1]]
    for c in range(n_cliques - 1 if score > -np.inf else -1, -1, -1):
        n = plan.message_ptr[c + 1] - plan.message_ptr[c]
        s, size, i = 0, 1, plan.var_ptr[c + 1] - 1
        while size < n:
            s += path[plan.var[i]] * size
            size *= plan.card[plan.var[i]]
            i -= 1
        best, r, row = -np.inf, 0, 0
        for k in range(plan.cell_ptr[c] + s, plan.cell_ptr[c + 1], n):
            if tables_buf[k] > best:
                best, r = tables_buf[k], row
            row += 1
        while r > 0:
            path[plan.var[i]] = r % plan.card[plan.var[i]]
            r //= plan.card[plan.var[i]]
            i -= 1
    return score


def unroll(at: At, n_steps: int) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Factors of a sequence of n_steps tokens: (their variables, (clique, its first token) of each).

    at : cliques as [(dt, number of the chain), ...]. Chain j of m has at token t the variable t * m + j.
    Clique by clique, and in each from left to right: the tables of a clique follow each other. Instances that
    reach beyond the sequence do not exist.
    """
    n_chains = 1 + max(j for clique in at for _, j in clique)
    scopes, where = [], []
    for number, clique in enumerate(at):
        first = min(dt for dt, _ in clique)
        for t in range(n_steps - max(dt for dt, _ in clique) + first):
            scopes.append(tuple((t + dt - first) * n_chains + j for dt, j in clique))
            where.append((number, t))
    return scopes, where


def _eliminate(cards: Sequence[int], scopes: Sequence[Sequence[int]], limit: int) -> dict[int, set[int]]:
    """{variable: it and its neighbours when it goes}, in min-fill order.

    The fill is how many pairs of neighbours of a variable are no neighbours of each other. Ties: the clique
    with fewer cells, then the smaller variable. The fill is counted again only where an edge
    came or went. Cost: for V variables with d neighbours, V d^2 differences of sets.
    """
    near = [{v} for v in range(len(cards))]
    for scope in scopes:
        for v in scope:
            near[v].update(scope)

    def entry(v: int) -> tuple[int, int, int]:
        fill = sum(len(near[v] - near[u]) for u in near[v]) // 2
        return fill, prod(cards[u] for u in near[v]), v

    now = [entry(v) for v in range(len(cards))]
    heap = list(now)
    heapify(heap)
    cliques: dict[int, set[int]] = {}
    while heap:
        fill, cells, v = found = heappop(heap)
        if v in cliques or found != now[v]:
            continue
        if cells > limit:
            raise ValueError(
                f"template: expected cliques of at most {limit:,} cells for exact inference, got one of at "
                f"least {cells:,}: take a template with fewer labels in a clique, or approximate inference"
            )
        clique = cliques[v] = near[v]
        changed = clique - {v}
        rest = set(changed)
        new = [(a, b) for a in rest for b in rest - near[a] if a < b] if fill else []
        for u in rest:
            near[u] |= rest
            near[u].discard(v)
        for a, b in new:
            changed |= near[a] & near[b]
        for u in changed:
            now[u] = entry(u)
            heappush(heap, now[u])
    return cliques


def _tree(cliques: dict[int, set[int]]) -> tuple[list[int], dict[int, int], dict[int, int]]:
    """The maximal cliques, each named by its first variable to go: (their names, children before parents,
    {name: its parent's name, -1 for the root}, {variable: the clique that holds it and its neighbours}).

    What remains of a clique when its variable goes lies in that of the next of its variables to go, which is
    its parent. A clique that is no more than what remained of a child is that child. Such a tree has the
    largest separators of all spanning trees (Jensen and Jensen, 1994). The root is the parent of unconnected
    parts.
    """
    position = {v: i for i, v in enumerate(cliques)}
    after = {v: min(clique - {v}, key=position.__getitem__, default=-1) for v, clique in cliques.items()}
    holder: dict[int, int] = {}
    for v, clique in cliques.items():
        name = holder.setdefault(v, v)
        if after[v] >= 0 and len(cliques[after[v]]) == len(clique) - 1:
            holder.setdefault(after[v], name)
    parent: dict[int, int] = {}
    children: dict[int, list[int]] = {-1: []}
    for name in (v for v in cliques if holder[v] == v):
        above = after[name]
        while above >= 0 and holder[above] == name:
            above = after[above]
        parent[name] = holder.get(above, -1)
        children.setdefault(parent[name], []).append(name)
    root, *others = children[-1]
    parent |= dict.fromkeys(others, root)
    order = [root, *others]
    for name in order:
        order += children.get(name, [])
    return order[::-1], parent, holder


def _axes(order: Sequence[int], small: Sequence[int], cards: Sequence[int]) -> list[tuple[int, int]]:
    """[(cells, step)]: the walk through a table of the variables `order` and a smaller one of `small`.

    Neighbouring axes that can be walked as one are one.
    """
    steps = accumulate((cards[v] for v in reversed(small)), initial=1, func=int.__mul__)
    step_of = dict(zip(reversed(small), steps, strict=False))
    axes = [(1, 0)]
    for v in order:
        if cards[v] > 1:
            step = step_of.get(v, 0)
            cells, before = axes[-1]
            if cells == 1 or before == step * cards[v]:
                axes[-1] = cells * cards[v], step
            else:
                axes.append((cards[v], step))
    return axes


def junction_plan(cards: Sequence[int], scopes: Sequence[Sequence[int]], limit: int = LIMIT) -> Plan:
    """The junction tree of a model: min-fill elimination, a tree of the maximal cliques.

    cards : (V,), labels of each variable.
    scopes : the variables of each factor, each once. Tables are row-major, the first one changing slowest.
    limit : the most cells that a clique's table may have; ValueError where one has more, before any table is
        allocated.
    """
    cards = [int(n) for n in cards]
    cliques = _eliminate(cards, scopes, int(limit)) or {0: set()}
    names, parent, holder = _tree(cliques)
    order: dict[int, list[int]] = {-1: []}
    separators: dict[int, list[int]] = {}
    for name in reversed(names):
        separators[name] = [v for v in order[parent[name]] if v in cliques[name]]
        order[name] = sorted(cliques[name].difference(separators[name])) + separators[name]
    number = {name: c for c, name in enumerate(names)} | {-1: -1}
    position = {v: i for i, v in enumerate(cliques)}
    homes = [holder[min(scope, key=position.__getitem__)] for scope in scopes]
    walks = [_axes(order[home], scope, cards) for home, scope in zip(homes, scopes, strict=True)]
    walks += [_axes(order[parent[name]], separators[name], cards) for name in names]
    cells = [prod(cards[v] for v in order[name]) for name in names]
    axes = np.array([axis for walk in walks for axis in walk], np.int64).reshape(-1, 2)
    integers = partial(np.array, dtype=np.int64)
    return Plan(
        integers(cards), integers([v for name in names for v in order[name]]),
        offsets([len(order[name]) for name in names]), integers([number[parent[name]] for name in names]),
        offsets(cells), offsets([prod(cards[v] for v in separators[name]) for name in names]),
        integers([number[home] for home in homes]),
        offsets([prod(cards[v] for v in scope) for scope in scopes]),
        axes[:, 0].copy(), axes[:, 1].copy(), offsets([len(walk) for walk in walks]), max(cells), sum(cells),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def plan_of(
    at: tuple[tuple[tuple[int, int], ...], ...], cards: tuple[int, ...], n_steps: int, limit: int = LIMIT
) -> Plan:
    """The plan of a template for sequences of n_steps tokens, made once. at, n_steps : as `unroll`.

    cards : labels of each chain. Factors stand in the order of `unroll`. Its arrays are shared: read only.
    """
    return junction_plan(cards * n_steps, unroll(at, n_steps)[0], limit)


def tree_plan(layout, n_steps, limit=LIMIT):
    """The `Plan` for sequences of n_steps tokens; ValueError where a clique has more cells than the limit."""
    linked = next((table.name for table in layout.tables if table.linked), None)
    if linked is not None:
        raise ValueError(
            f"template: expected cliques of neighbouring tokens for exact inference, got {linked}: take "
            "approximate inference"
        )
    alone = (((0, chain),) for chain in range(len(layout.chains)))
    at = (*alone, *(table.at for table in layout.tables if len(table.at) > 1))
    return plan_of(at, layout.sizes, n_steps, limit)


def _factors(layout, tables, rows):
    """All log tables of a sequence, one after the other."""
    first, n_steps = layout.first, len(rows)
    parts = [rows[:, a:b].reshape(-1) for a, b in zip(first[:-1], first[1:], strict=True)]
    for table, scores in zip(layout.tables, tables, strict=True):
        if len(table.at) > 1:
            if table.row >= 0:
                parts.append(rows[table.span :, table.cells].reshape(-1))
            else:
                parts.append(np.tile(scores.reshape(-1), max(0, n_steps - table.span)))
    return np.concatenate(parts)


def sequence_sums(layout, tables, rows, limit=LIMIT):
    """(log Z, p (T, M), counts (n_tables,)) of a sequence: marginals of the cells of rows; those of weights
    that do not depend on the text, summed. log Z is -inf, and everything 0, where every labelling is
    forbidden.

    tables : of `log_tables`. rows (T, M), T >= 1. Cost: 2 exps a cell of the junction tree.
    """
    plan, n_steps = tree_plan(layout, len(rows), limit), len(rows)
    scores = _factors(layout, tables, rows)
    p_tables, message = np.empty_like(scores), np.empty((2, int(plan.message_ptr[-1])))
    log_z = junction_log_z(plan, scores, p_tables, np.empty(int(plan.cells)), message)
    p_row, counts, start = np.zeros(rows.shape), np.zeros(layout.n_tables), 0
    for chain, size in enumerate(layout.sizes):
        part, start = p_tables[start : start + n_steps * size], start + n_steps * size
        p_row[:, layout.first[chain] : layout.first[chain + 1]] = part.reshape(n_steps, size)
    for table in layout.tables:
        n, p = max(0, n_steps - table.span), p_row[:, table.cells]
        if len(table.at) > 1:
            part, start = p_tables[start : start + n * table.size], start + n * table.size
            if table.row >= 0:
                p[table.span :] = part.reshape(n, table.size)
            p = part.reshape(n, table.size)
        if table.start >= 0:
            counts[table.weights] += p.sum(axis=0)
    return float(log_z), p_row, counts


def sequence_best(layout, tables, rows, limit=LIMIT):
    """(labels int32 (T, m), score): the best labelling of a sequence, -inf where all are forbidden."""
    plan = tree_plan(layout, len(rows), limit)
    labels = np.zeros(len(rows) * len(layout.sizes), np.int32)
    buffers = np.empty(int(plan.cells)), np.empty((2, int(plan.message_ptr[-1])))
    score = junction_max(plan, _factors(layout, tables, rows), labels, *buffers)
    return labels.reshape(len(rows), -1), float(score)


# The arrays of `Work`, and those that the form's own kernels write.
FormWork = namedtuple("FormWork", (*Work._fields, "own"))


class JunctionTrees(Form):
    """Any template, each sequence in logarithms.

    stats : int64 (shards, 4), of an approximation's last evaluation: sequences, those that did not converge,
        sweeps summed over sequences, messages.
    """

    def __init__(self, problem, layout, label_sets, limit):
        super().__init__(problem)
        self.layout, self.label_sets, self.limit = layout, label_sets, limit
        n_shards = max(1, problem.packing.n_shards)
        self.parts = np.zeros((n_shards, problem.features.n_edge))
        self.stats = np.zeros((n_shards, 4), np.int64)
        self.shard_of = np.repeat(np.arange(problem.packing.n_shards), np.diff(problem.packing.shard_ptr))

    def prepare(self, w, what):
        self.tables = log_tables(self.layout, self.problem.features, w)
        self.bounds = row_bounds(self.layout, self.tables, self.label_sets)
        self.stats[:] = 0

    def run(self, what, shard, w, dense, work, counts):
        packing, places, part, bad = self.problem.packing, self.problem.layout, self.parts[shard], -1
        counts.grad[:], counts.dense_grad[:], part[:] = 0.0, 0.0, 0.0
        sums = self.begin()
        for b in packing.batches(shard):
            batch = Batch(b, packing, work)
            log_z = counts.log_z[batch.slots]
            fill = partial(batch_scores, b, w, dense, self.bounds, packing, places, batch.log_node)
            self.infer(batch, work, fill, log_z, sums, part)
            bad = batch.first_lost(counts.log_z, bad)
            batch_gradient(b, batch.p_node, packing, places, counts.dense_grad, counts.grad)
        self.finish(sums, part)
        return bad

    def begin(self):
        """Sums of a shard."""
        return None

    def infer(self, batch, work, fill, log_z, sums, part):
        """log_z (B,) and batch.p_node of a batch, as `batch_sums` and `redo`; fill() puts its scores into
        batch.log_node.
        """
        fill()
        if self.batch_sums(batch, work, log_z, sums):
            fill()
        for r in np.flatnonzero(np.isnan(log_z)):
            self.redo(batch, r, log_z, part)

    def batch_sums(self, batch, work, log_z, sums):
        """From batch.log_node, which may be overwritten, log_z (B,) and batch.p_node: weight times marginals
        of all cells of a row. NaN in log_z, and no marginals: sequences for `redo`. Returns whether there are
        some, and the scores are gone. sums: of `begin`; None where log Z alone is wanted.
        """
        batch.p_node[:], log_z[:] = 0.0, np.nan
        return False

    def redo(self, batch, r, log_z, part):
        """Sequence r of a batch in logarithms, from its rows of batch.log_node."""
        rows = batch.rows(r)
        log_z[r], p, counts = sequence_sums(self.layout, self.tables, batch.log_node[rows], self.limit)
        batch.p_node[rows] = batch.weight[r] * p
        part += batch.weight[r] * counts

    def finish(self, sums, part):
        """Add the sums of a shard to part (n_tables,)."""

    def collect(self, total):
        total[self.problem.features.n_node :] = add_tree(self.parts)
