"""Stochastic average gradient (SAG), sampled non-uniformly: it converges linearly, one sequence a step.

It stores every sequence's last gradient, as marginals. A step renews one of them, and goes along the mean of
all. Sequences whose gradient changes fast are visited more often. Source: Schmidt, Babanezhad, Ahmed,
Defazio, Clifton and Sarkar (2015), "Non-uniform stochastic average gradient method for training conditional
random fields".

    objective / n = 1/n sum_i f_i(w) + shrinkage / 2 |w|^2,  f_i = -weight_i log p(y_i | x_i),
    shrinkage = 2 c2 / n
    d = sum_i (gradient of f_i at i's last visit),
    w <- (1 - alpha shrinkage) w - (alpha / m) d,  m sequences seen so far

That step moves every weight, but d only changes where the sequence has features. So w is kept as scale (u -
lag d): the step is scale <- (1 - alpha shrinkage) scale, lag <- lag + alpha / (m scale), and when d changes
by D, u changes by lag D. scale, lag, u and d stand in `lazy`, a LazyWeights, and what is remembered in
`memory`, a SagMemory. `u`, `d` and `grad` (C,) are cells as `theta` in chain/sequence.py, which explains
`layout` and `work` (also `direction` and `trial`).

First stands what SAG and SDCA (dual.py) share: they remember each sequence, estimate from that how far they
have come, and stop after an exact pass. Of transitions they remember numbers for the label pairs that have a
weight, never L x L tables. The pairs of a sequence stand together in a flat array, edge class by edge class
that it uses, rising.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import whole
from crfbook._jit import kernel
from crfbook.chain.objective import Objective, check_labels, check_weights
from crfbook.chain.sequence import add_gradient, feature_matrix, plain_loss, score_gradient, score_sequence
from crfbook.chain.token_layout import (
    cells_of,
    dense_attributes,
    epoch_order,
    lay_out_online,
    row_width,
    sequence_work,
    used_classes,
    weights_of,
)
from crfbook.chain.vector_math import add_row
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus, offsets
from crfbook.data.features import FeatureSet
from crfbook.training.certificate import TINY, Rules
from crfbook.training.interrupts import deliver_signals
from crfbook.training.loop import Callback, Learner, OptResult, State, run

EDGE_ORDER = 2  # in a state: its classes rise; without this entry: as the sequence used them first


class Rememberer(Learner):
    """What both share. A subclass has `memory` (a NamedTuple), and says how far the weights have come, as
    (objective, violation): `estimate()` from what is remembered, `certified(value, grad)` from the objective
    and its gradient (F,).

    given : `state`, or {}.
    start : (F,) or None, returned until an epoch has ended.
    w : (F,), the present weights.
    exact : what `certified` said of w, if a pass over the corpus was made for it.
    optimism : factor of the violation, of which the estimate has to promise an end before such a pass; at
        least `least`.
    """

    name = first = ""  # of the learner; of the array (N, L) by which its state is known
    vectors = ("w",)  # (F,), in a state
    kept = ()  # arrays of the memory, in a state
    numbers = {"seed": 0, "passes": 0, "optimism": 1.0}  # in a state, and their values without one
    least, trust = 1.0, 0.5  # of the estimate
    start = exact = objective_of = ended = None

    def __init__(self, corpus, features, w0, constraints, state, random_state, rules, max_iterations=None):
        check_labels(corpus, features, constraints)
        self.corpus, self.features, self.constraints = corpus, features, constraints
        self.rules, self.c2, self.given = rules, rules.c2, {} if state is None else state
        self.max_iterations = None if max_iterations is None else whole("max_iterations", max_iterations)
        if state is not None:
            self._check(state)
        given = {"seed": random_state, "w": np.zeros(features.n_features) if w0 is None else w0} | self.given
        self.w = check_weights(given["w"], features.n_features).copy()
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.sequences = corpus.visited
        self.iteration, self.seconds = int(given.get("epoch", 0)), float(given.get("seconds", 0.0))
        for name, value in self.numbers.items():
            setattr(self, name, type(value)(given.get(name, value)))

    def _check(self, state):
        sizes = [(name, (self.features.n_features,)) for name in self.vectors]
        sizes.append((self.first, (self.corpus.n_tokens, self.features.n_labels)))
        if any(np.shape(state.get(name)) != size for name, size in sizes):
            raise ValueError(
                f"state: expected that of {self.name} with {self.features.n_features} weights and "
                f"{self.corpus.n_tokens} tokens, got the arrays {sorted(state)}"
            )
        order = int(state.get("edge_order", 1))
        if order != EDGE_ORDER and self.corpus.n_classes > 1:  # of one class there is one order
            raise ValueError(
                f"state: expected one of {self.name} with edge_order {EDGE_ORDER}, got {order}: a version "
                "that kept transitions in another order wrote it; its weights are a start: w0=state['w']"
            )

    def recall(self):
        """Fill the memory from the state that was given, if one was."""
        for name in self.kept if self.given else ():
            getattr(self.memory, name)[:] = self.given[name]

    def state(self):
        """Arrays only; the big ones are the run's own, not copies."""
        numbers = {name: getattr(self, name) for name in self.numbers}
        numbers |= {"epoch": self.iteration, "seconds": self.seconds, "edge_order": EDGE_ORDER}
        arrays = {name: getattr(self.memory, name) for name in self.kept}
        return {name: np.asarray(value) for name, value in numbers.items()} | arrays | {"w": self.w}

    def weights(self):
        return self.w if self.iteration or self.start is None else self.start

    def finished(self):
        return self.ended

    def final_objective(self):
        return self.evaluate()[0]

    @property
    def n_evaluations(self):
        return math.ceil(self.passes)

    def judge(self):
        """Objective and violation as remembered, or exact ones if those are good enough to end."""
        objective, violation = self.estimate()
        if self.optimism * violation <= self.rules.enough(objective):
            promised, (objective, violation) = violation, self.evaluate()
            # what the memory will have to promise next time
            self.optimism = max(self.least, self.trust * violation / max(promised, TINY))
            if violation <= self.rules.enough(objective):
                self.ended = "converged"
        if not math.isfinite(objective):
            self.ended = "non-finite objective"
        self.objective, self.violation = objective, violation

    def evaluate(self):
        """Exact (objective, violation) at the weights: one pass over the corpus."""
        if self.exact is None:
            if self.objective_of is None:
                self.objective_of = Objective(
                    self.corpus, self.features, c2=self.c2, constraints=self.constraints
                )
            value, grad = self.objective_of(self.weights())
            self.passes += 1
            self.exact = self.certified(value, grad)
        return self.exact


def edge_places(corpus, features, width):
    """(start (S+1,), pair_ptr (K+1,), pair): where the pairs of each sequence are remembered; the label pairs
    previous * width + next that have a weight, class by class.
    """
    found = []
    for k in range(corpus.n_classes):
        attrs = corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]]
        rows = [
            slice(features.edge_ptr[b], features.edge_ptr[b + 1]) for b in attrs if b < features.n_edge_attrs
        ]
        keys = [features.edge_prev[row].astype(np.int64) * width + features.edge_next[row] for row in rows]
        found.append(np.unique(np.concatenate([np.zeros(0, np.int64), *keys])))
    sizes, (used_ptr, used) = np.array(list(map(len, found))), used_classes(corpus)
    return offsets(sizes[used])[used_ptr], offsets(sizes), np.concatenate([np.zeros(0, np.int64), *found])


def memory_bytes(corpus, features, *, remembered, vectors, works, per_token):
    """Bytes that a learner will hold, the layout of the corpus included (chain/token_layout.py).

    remembered : numbers that it remembers for every (token, label) and label pair of a sequence.
    vectors : vectors of cells, besides two of weights.
    works : sets of work arrays.
    per_token : bytes of a token beyond that.
    """
    width = row_width(features.n_labels)
    worth, count = dense_attributes(corpus, features)
    n_rows, n_pairs = int(count[worth].sum()), int((count * np.diff(features.node_ptr))[~worth].sum())
    n_dense, entry = int(worth.sum()) * width, 16 if len(corpus.attr_val) else 8
    n_edges = int(edge_places(corpus, features, width)[0][-1])
    return int(
        8 * remembered * (corpus.n_tokens * features.n_labels + n_edges)
        + entry * (n_rows + n_pairs)
        + per_token * corpus.n_tokens
        + 8 * (vectors * (features.n_features + n_dense) + 2 * features.n_features)
        + n_dense
        + 8 * works * (5 * corpus.longest * width + 4 * corpus.n_classes * width**2)
    )


def check_need(what, need, memory_limit, other):
    """MemoryError if a learner needs more than memory_limit bytes.

    what : learner, and what it remembers of a token.
    other : learner that needs less.
    """
    if need > memory_limit:
        raise MemoryError(
            f"{what} every token, {need / 1e9:.3g} GB here, more than memory_limit = "
            f"{memory_limit / 1e9:.3g} GB: raise it, or use {other} or sgd, which do not"
        )


BOLDNESS = 0.5  # of the steps, see `sag_steps`; halved after an epoch ...
RISE = 1e-3  # ... in which the objective rose by more than this share
SMALL_NORM = 1e-8  # |gradient|^2 below which rounding decides the search for a Lipschitz constant
SMALL_SCALE = 1e-3  # below it the weights are written out
LARGEST = 1e100  # of the constants that a search tries


class SagMemory(NamedTuple):
    """What is known of S sequences, N tokens, K edge classes;
    "gradient" is that with respect to the scores (marginals - gold).
    """

    node: np.ndarray  # (N, L): gradient of each token at its sequence's last visit, 0 before the first
    edge: np.ndarray  # (n_edge_memory,): sums over tokens, for the label pairs that have a weight
    edge_start: np.ndarray  # int64 (S+1,): those of sequence s
    pair_ptr: np.ndarray  # int64 (K+1,)
    pair: np.ndarray  # int64: label pairs previous * M + next of each class that have a weight
    # (S,): estimates of the Lipschitz constants of the gradients, 0 before the first visit
    lipschitz: np.ndarray
    calm: np.ndarray  # int64 (S,): searches in a row that changed nothing
    skip: np.ndarray  # int64 (S,): visits that will do without a search
    loss: np.ndarray  # (S,): nats, at the last visit


class LazyWeights(NamedTuple):
    """The weights, as scale (u - lag d)."""

    factors: np.ndarray  # (2,): scale, lag
    u: np.ndarray  # (C,)
    d: np.ndarray  # (C,): sum of the remembered gradients


@kernel
def write_out(lazy):
    """u <- scale (u - lag d), the weights themselves; scale <- 1, lag <- 0.

    Arguments:
    Out:
        lazy : of which d is only read
    Cost: C.
    Source: Schmidt et al. (2015), section 3.
    """
    scale, lag = lazy.factors
    for k in range(lazy.u.size):
        lazy.u[k] = scale * (lazy.u[k] - lag * lazy.d[k])
    lazy.factors[0], lazy.factors[1] = 1.0, 0.0


@kernel
def score_average(s, lazy, layout, work, trial):
    """Scores of sequence s at the weights scale (u - lag d), into work.log_node and work.log_edge.

    Arguments:
        s, layout, work : as in `score_sequence`
        lazy : a `LazyWeights`
        work : trial, overwritten
    Cost: two additions per stored (occurrence, weight) pair.
    Source: Schmidt et al. (2015), section 3.
    """
    scale, lag = lazy.factors
    score_sequence(s, lazy.u, scale, layout, work)
    if lag == 0.0:
        return
    score_sequence(s, lazy.d, -scale * lag, layout, trial)
    n = layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    add_row(trial.log_node[:n].reshape(-1), work.log_node[:n].reshape(-1))
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        add_row(trial.log_edge[k].reshape(-1), work.log_edge[k].reshape(-1))


@kernel
def take_squares(start, stop, grad):
    """Sum of grad[start:stop]^2; the cells become 0.

    Arguments:
        start, stop : cells start..stop-1
    Out:
        grad : (C,)
    Cost: stop - start.
    Source: chapter 05.
    """
    total = 0.0
    for k in range(start, stop):
        total += grad[k] * grad[k]
        grad[k] = 0.0
    return total


@kernel
def clear_gradient(s, layout, grad):
    """|grad|^2 of a gradient that only sequence s has added to; its cells become 0 again.

    Arguments:
        s, layout : a sequence, an `OnlineLayout`
    Out:
        grad : (C,)
    Cost: the cells of its attributes, as often as they occur, and of its edge classes.
    Source: Schmidt et al. (2015), Algorithm 1.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    total = 0.0
    for h in layout.dense_id[layout.dense_ptr[first] : layout.dense_ptr[last]]:
        total += take_squares(h * M, (h + 1) * M, grad)
    for k in layout.pair_weight[layout.pair_ptr[first] : layout.pair_ptr[last]]:
        total += take_squares(H * M + k, H * M + k + 1, grad)
    n_before = grad.size - layout.edge_cell.size
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            total += take_squares(n_before + layout.edge_ptr[b], n_before + layout.edge_ptr[b + 1], grad)
    return total


@kernel
def search_lipschitz(s, loss, lipschitz, layout, work, direction, trial, grad):
    """The least L = lipschitz 2^j with f(w - g / L) <= f(w) - |g|^2 / (2 L),
    f = weight * loss of sequence s and g its gradient at w.

    Scores are linear in the weights: those of g are computed once, and a trial is one forward-backward.

    Arguments:
        s, layout, work : after `score_gradient`, which returned loss
        lipschitz : > 0
        grad : (C,), 0 before and after
    Work:
        direction, trial : work arrays, overwritten
    Cost: three passes over the (occurrence, weight) pairs, 3 T L^2 a trial.
    Source: Schmidt et al. (2015), Algorithm 1.
    """
    weight, n = layout.weight[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    add_gradient(s, weight, layout, work, grad)
    score_sequence(s, grad, -1.0, layout, direction)
    squares = clear_gradient(s, layout, grad)
    if not squares > SMALL_NORM:
        return lipschitz
    while lipschitz < LARGEST:
        for t in range(n):
            u, v, moved = work.log_node[t], direction.log_node[t], trial.log_node[t]
            for y in range(u.size):
                moved[y] = u[y] + v[y] / lipschitz
        for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
            u_edge, v_edge = work.log_edge[k].reshape(-1), direction.log_edge[k].reshape(-1)
            moved = trial.log_edge[k].reshape(-1)
            for c in range(moved.size):
                moved[c] = u_edge[c] + v_edge[c] / lipschitz
        value = score_gradient(s, layout, trial)
        if weight * value <= weight * loss - 0.5 * squares / lipschitz + 1e-12 * weight * abs(loss):
            break
        lipschitz *= 2.0
    return lipschitz


@kernel
def renew_lipschitz(s, loss, mean, layout, memory, work, direction, trial, grad):
    """memory.lipschitz[s] by a search; later ones start from 0.9 of what held,
    and are left out ever longer while nothing changes.

    A first search starts at half the mean of the others. If the j-th search in a row finds its start good
    enough, the next 2^(j-1) visits have none.

    Arguments:
        s : sequence, not empty
        loss : what `score_gradient` returned
        layout : an `OnlineLayout`
        work, direction, trial : work arrays, see the top
        grad : (C,), as in `search_lipschitz`
        mean : of the constants so far, 0 if none
    Out:
        memory : what is remembered, see the top
    Cost: that of `search_lipschitz`, rarely.
    Source: Schmidt et al. (2015), section 5.2.
    """
    if memory.skip[s] > 0:
        memory.skip[s] -= 1
        return
    first = memory.lipschitz[s] == 0.0
    start = memory.lipschitz[s] if not first else 0.5 * mean if mean > 0.0 else 1.0
    found = search_lipschitz(s, loss, start, layout, work, direction, trial, grad)
    if found > start or first:
        memory.lipschitz[s], memory.calm[s] = found, 0
    else:
        memory.lipschitz[s] = 0.9 * found
        memory.skip[s] = 2 ** min(memory.calm[s], 10)
        memory.calm[s] += 1


@kernel
def remember(s, layout, memory, work):
    """The gradient with respect to the scores of sequence s is stored;
    `work` keeps its change since the last visit.

    Arguments:
        s, layout : a sequence, an `OnlineLayout`
    Out:
        memory : node, edge
        work : p_node, edge_sum <- new - old
    Cost: T L, and the label pairs with a weight of the classes used.
    Source: Schmidt et al. (2015), section 3.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    for t in range(first, last):
        p, old = work.p_node[t - first], memory.node[t]
        for y in range(old.size):
            new = p[y]
            p[y] -= old[y]
            old[y] = new
    m = memory.edge_start[s]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        table = work.edge_sum[k].reshape(-1)
        for c in memory.pair[memory.pair_ptr[k] : memory.pair_ptr[k + 1]]:
            new = table[c]
            table[c] -= memory.edge[m]
            memory.edge[m] = new
            m += 1


@kernel
def sag_steps(order, first_pass, boldness, shrinkage, layout, memory, lazy, work, direction, trial, grad):
    """One step for each sequence of `order`; the weights are scale (u - lag d). Returns -1,
    or a sequence whose loss is not finite.

    alpha = (1 - boldness) / (L_max + shrinkage) + boldness / (L_mean + shrinkage), over the constants L_i of
    the sequences seen so far; the paper's boldness is 1/2, and 0 is the step that is safe however few and
    unlike the sequences are. A first pass visits every sequence once and fills the memory: with first_pass =
    1 it takes steps of plain stochastic gradient, alpha = 1 / (L_mean + shrinkage), with 2 none; 0:
    the steps above.

    Arguments:
        order : int64 (n,), sequences that are not empty
        boldness : in [0, 1/2]
        layout : an `OnlineLayout`
    Out:
        memory : a `SagMemory`
        lazy : a `LazyWeights`
    Work:
        work, direction, trial : work arrays, overwritten
        grad : (C,), 0 before and after
    Cost: 3 T L^2 multiply-adds and four additions per stored (occurrence, weight) pair of the sequences, and
    their searches.
    Source: Schmidt et al. (2015), Algorithm 1 and section 5.2.
    """
    lip_sum, lip_max, n_seen, factors = 0.0, 0.0, 0, lazy.factors
    for lip in memory.lipschitz:
        lip_sum, lip_max, n_seen = lip_sum + lip, max(lip_max, lip), n_seen + (lip > 0.0)
    for s in order:
        weight = layout.weight[s]
        score_average(s, lazy, layout, work, trial)
        loss = score_gradient(s, layout, work)
        if not np.isfinite(loss):
            return s
        memory.loss[s] = weight * loss
        before = memory.lipschitz[s]
        renew_lipschitz(s, loss, lip_sum / max(1, n_seen), layout, memory, work, direction, trial, grad)
        n_seen += before == 0.0
        lip_sum += memory.lipschitz[s] - before
        lip_max = max(lip_max, memory.lipschitz[s])
        remember(s, layout, memory, work)
        add_gradient(s, weight, layout, work, lazy.d)
        if factors[1] > 0.0:
            add_gradient(s, weight * factors[1], layout, work, lazy.u)
        if first_pass == 2:
            continue
        alpha = 1.0 / (lip_sum / n_seen + shrinkage)
        if first_pass == 0:
            alpha = boldness * alpha + (1.0 - boldness) / (lip_max + shrinkage)
        alpha = min(alpha, (1.0 - SMALL_SCALE) / shrinkage)
        if factors[0] * (1.0 - alpha * shrinkage) < SMALL_SCALE:
            write_out(lazy)
        factors[0] *= 1.0 - alpha * shrinkage
        if first_pass:
            add_gradient(s, -weight * alpha / factors[0], layout, work, lazy.u)
        else:
            factors[1] += alpha / (n_seen * factors[0])
    return -1


def sag_steps_plain(order, first_pass, boldness, shrinkage, w, memory, corpus, features):
    """The readable sister of `sag_steps`, on weights w (F,), moved, without hard constraints.

    order : sequences.
    first_pass : 1 in the first pass over the sequences, with steps against their own gradients; 2: a first
        pass without steps; 0 in all later ones, with steps against the mean gradient.
    boldness : in [0, 1/2], the share of the longer of the two steps.
    shrinkage : 2 c2 / n.
    memory : {sequence: (gradient (F,), Lipschitz constant, searches in a row that changed nothing, visits
        that will do without a search)} of the sequences seen so far, filled.
    Source: Schmidt et al. (2015), Algorithm 1 and section 5.2.
    """
    largest = max((constant for _, constant, _, _ in memory.values()), default=0.0)
    for s in order:
        X, gold = feature_matrix(s, corpus, features)
        weight, L = corpus.weights[s], features.n_labels
        loss, slope = plain_loss(X @ w, gold, L)
        g = weight * (X.T @ slope)
        mean = np.mean([m[1] for m in memory.values()]) if memory else 2.0
        _, start, calm, skip = memory.get(s, (None, 0.5 * mean, 0, 0))
        # found: the least start 2^j with f(w - g / found) <= f(w) - |g|^2 / (2 found)
        found = start
        if skip == 0 and g @ g > SMALL_NORM:
            while weight * (plain_loss(X @ (w - g / found), gold, L)[0] - loss) > -0.5 * (g @ g) / found:
                found *= 2.0
        if skip > 0:
            memory[s] = g, start, calm, skip - 1
        elif found > start or s not in memory:
            memory[s] = g, found, 0, 0
        # the constant held: the next search begins lower, after ever more visits
        else:
            memory[s] = g, 0.9 * found, calm + 1, 2 ** min(calm, 10)
        gradients = np.array([known[0] for known in memory.values()])
        constants = np.array([known[1] for known in memory.values()])
        largest = max(largest, memory[s][1])
        direction = g
        alpha = 1.0 / (constants.mean() + shrinkage)
        if first_pass == 0:
            alpha = boldness * alpha + (1.0 - boldness) / (largest + shrinkage)
            direction = gradients.mean(axis=0)
        if first_pass != 2:
            w *= 1.0 - alpha * shrinkage
            w -= alpha * direction


def sag(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    tol: float = 1e-6,
    tol_gradient: float = 1e-3,
    memory_limit: float = 2e9,
    constraints: Limits = None,
    max_iterations: int = 200,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise losses + c2 |w|^2 by stochastic average gradient; reaches the optimum, with a certificate.

    Parameters
    ----------
    corpus, features : S sequences, every token labelled; F weights.
        Sequences of length 0 or weight 0 are left out.
    w0 : (F,) start, default 0. The first pass takes plain stochastic gradient steps from 0;
        from any other start it takes no steps.
    c2 : >= 0.
    tol, tol_gradient : when to stop, as in `minimize`: the bound |gradient|^2 / (4 c2) on what is left is at
        most tol * max(1, objective), or for c2 = 0 no entry of the gradient exceeds tol_gradient.
    memory_limit : bytes that `sag_memory` may reach.
    constraints : Constraints or None.
    max_iterations : epochs (n visits) in all, those of `state` included.
    random_state : int, the seed.
    callback : called with (Step, w) after each epoch, w read-only; True stops.
    state : `OptResult.state` of an earlier call on the same problem; continues bit for bit and is not
        changed. After Ctrl-C the epoch that was cut short begins again, with what it had learnt.

    Steps follow the paper, between the mean of the Lipschitz constants and the largest; where the objective
    rises they are drawn to the largest, as few or very unlike sequences need.

    Returns an `OptResult`. `Step.objective` and `Step.violation` come from the remembered losses and
    gradients, each a little out of date; where these promise an end, one pass over the corpus gives the exact
    ones, which alone end it ("converged"). `n_evaluations` counts passes: epochs, and such evaluations. Other
    statuses: "max_iterations", "stopped by callback", "interrupted", "non-finite objective".

    Raises MemoryError before anything is allocated, and ValueError for labels that are unknown or forbidden,
    weights that are not finite, parameters out of range.
    """
    rules, max_iterations = Rules(0.0, c2, tol, tol_gradient), whole("max_iterations", max_iterations)
    need = sag_memory(corpus, features)
    check_need("sag remembers the marginals of", need, memory_limit, "L-BFGS")
    learner = AverageGradient(corpus, features, w0, constraints, state, random_state, rules, max_iterations)
    return run(learner, callback)


def sag_memory(corpus, features):
    """Bytes that `sag` will hold: memory of N L + (label pairs of the sequences), layout of the corpus,
    vectors of weights.
    """
    return memory_bytes(corpus, features, remembered=1, vectors=3, works=3, per_token=40)


class AverageGradient(Rememberer):
    """SAG: the weights as scale (u - lag d), and the memory."""

    name, first = "sag", "node"
    vectors = ("w", "d")
    kept = ("node", "edge", "lipschitz", "calm", "skip", "loss")
    numbers = Rememberer.numbers | {"warm": False, "boldness": BOLDNESS, "objective_before": math.inf}

    def __init__(self, corpus, features, w0, *rest):
        super().__init__(corpus, features, w0, *rest)
        self.warm = bool(self.given.get("warm", self.w.any()))
        self.works = [sequence_work(corpus, self.layout.exists.shape[1]) for _ in range(3)]
        self.memory = self._empty_memory()
        self.recall()
        d = self.given.get("d", np.zeros(features.n_features))
        u, d = (cells_of(self.cells, vector) for vector in (self.w, d))
        self.lazy, self.grad = LazyWeights(np.array([1.0, 0.0]), u, d), np.zeros_like(u)

    def _empty_memory(self):
        corpus, n = self.corpus, self.corpus.n_sequences
        places = edge_places(corpus, self.features, self.layout.exists.shape[1])
        node, edge = np.zeros((corpus.n_tokens, self.features.n_labels)), np.zeros(places[0][-1])
        lipschitz, loss, (calm, skip) = np.zeros(n), np.zeros(n), np.zeros((2, n), np.int64)
        return SagMemory(node, edge, *places, lipschitz, calm, skip, loss)

    def state(self):
        return super().state() | {"d": weights_of(self.cells, self.lazy.d)}

    def advance(self):
        """n visits, all sequences in turn in the first epoch;
        later half of them drawn in proportion to the constants.
        """
        n, first_pass = len(self.sequences), 0 if self.iteration else 2 if self.warm else 1
        order = self.sequences[epoch_order(self.seed, self.iteration + 1, n)]
        rng = np.random.default_rng([self.seed, self.iteration + 1, 1])
        size = max(256, n // 32)
        # a float of NumPy: a division by 0 gives infinity, no error
        steps = first_pass, self.boldness, np.float64(2.0 * self.c2 / max(1, n))
        for first in range(0, n, size):
            deliver_signals()
            part = order[first : first + size]
            if not first_pass:
                rising = np.cumsum(self.memory.lipschitz[self.sequences])
                drawn = np.searchsorted(rising, rng.random(len(part)) * rising[-1], side="right")
                part = np.where(rng.random(len(part)) < 0.5, self.sequences[np.minimum(drawn, n - 1)], part)
            if sag_steps(part, *steps, self.layout, self.memory, self.lazy, *self.works, self.grad) >= 0:
                return "non-finite objective"
        self.settle()
        self.iteration, self.passes = self.iteration + 1, self.passes + 1
        self.judge()
        return None

    def settle(self):
        """Write the weights out. Every step leaves them good, so nothing is undone."""
        write_out(self.lazy)
        if np.isfinite(self.lazy.u).all():
            self.w = weights_of(self.cells, self.lazy.u)
        self.exact = None

    def estimate(self):
        objective = float(self.memory.loss.sum()) + self.c2 * float(self.w @ self.w)
        if objective > self.objective_before + RISE * abs(self.objective_before):
            self.boldness *= 0.5
        self.objective_before = objective
        return objective, self.rules.violation_of(
            weights_of(self.cells, self.lazy.d) + 2.0 * self.c2 * self.w
        )

    def certified(self, value, grad):
        return value, self.rules.violation_of(grad)
