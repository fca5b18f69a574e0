"""The chain with weights on tuples of three and four labels: its objective, its decoding, and its training
with an L1 penalty, which decides the contexts that exist.

    value(w, nu) = -log-likelihood of the corpus under transitions w and tuples nu + c2 (|w|^2 + |nu|^2),
                   plus  c1 (|w|_1 + |nu|_1)

Only tuples that the training labels show are candidates: any other has a gold count of zero, could only get a
negative weight, and is left out. Of the candidates, those at work are those whose weight is not zero, or
whose gradient at zero exceeds c1 (grafting: Perkins, Lacker and Theiler, 2003). The gradient at zero of a
candidate is its expected count less its gold count. One evaluation with the automaton of ALL candidates, in
which the others have weight 0, gives it exactly. There are no hard constraints on labels here.

    found = train_tuples(corpus, features, order=2, c1=1.0)
    labels = decode_tuples(other, features, found.w, found.tuples, found.nu)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import function_or_none, number, shown, whole
from crfbook.chain.forms import Tables, table_edges
from crfbook.chain.forward_backward import exp_nodes
from crfbook.chain.inference import node_scores
from crfbook.chain.likelihood import Batch, WorkPool, add_tree, batch_gradient, batch_scores
from crfbook.chain.objective import Objective, check_paths, check_weights, l2_penalty
from crfbook.chain.packing import padded
from crfbook.data.constraints import check_label_set
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.learners.quasi_newton import minimize
from crfbook.learners.tuples.automaton import (
    Automaton,
    TupleCounts,
    Tuples,
    check_tuples,
    lane_arrays,
    tuple_occurrences,
)
from crfbook.learners.tuples.forward_backward import (
    TUPLE_SPREAD,
    fill_lanes,
    lanes_log_z,
    tuple_backward,
    tuple_forward,
)
from crfbook.learners.tuples.log_form import tuple_chain_log, tuple_viterbi_many
from crfbook.training.certificate import Rules
from crfbook.training.loop import Learner, run


def lanes_for(n_patterns):
    """Sequences side by side: they share what is read of an arc,
    but lanes with other patterns of arcs wait.
    """
    return 16 if n_patterns == 1 else 8


class _TupleBatch(Batch):
    """A batch whose potentials of nodes and their maxima take the places of alpha and gain,
    which the lanes have for themselves.
    """

    def __init__(self, b, packing, work):
        super().__init__(b, packing, work)
        self.psi, self.node_max, self.alive = self.alpha, self.gain, np.diff(self.step_ptr)

    def exponentiate(self, spread):
        """psi and node_max; returns bool (B,): the sequences with a step whose scores spread too far with
        this spread of transitions.
        """
        refused = np.zeros(self.alive[0], bool)
        if not spread + exp_nodes(self.log_node, self.psi, self.node_max) <= TUPLE_SPREAD:
            finite = np.isfinite(self.log_node)
            node_spread = np.where(finite, self.log_node, -np.inf).max(axis=1) - np.where(
                finite, self.log_node, np.inf
            ).min(axis=1)
            far = ~(finite.any(axis=1) & (spread + node_spread <= TUPLE_SPREAD))
            refused[(np.arange(len(far)) - np.repeat(self.step_ptr[:-1], self.alive))[far]] = True
        return refused


class TupleArcs(Tables):
    """Transitions as tables with label tuples beside them, whose weights are `nu` (G,)."""

    offers = ("counts",)

    def __init__(self, problem, tuples, longest, n_workers):
        super().__init__(problem)
        n_shards = problem.packing.n_shards
        self.automaton = Automaton(tuples, problem.features.n_labels, *problem.classes)
        self.arc_parts = np.empty((n_shards, len(self.automaton.arcs.arc_label)))
        self.n_products = np.zeros((n_shards, 3), np.int64)
        self.nu, self.tuple_counts = np.zeros((2, len(tuples.attr)))  # their values where there is no token
        arcs, width = self.automaton.arcs, self.parts.shape[2]
        n_lanes = lanes_for(len(arcs.leaf_ptr))
        self.pool = WorkPool(lane_arrays(arcs, longest, width, n_lanes) for _ in range(n_workers))

    def prepare(self, w, what):
        super().prepare(w, what)
        self.pool.fill()
        self.scores = self.automaton.scores(self.edges, self.nu)

    def run(self, what, shard, w, dense, work, counts):
        log_z, grad, dense_grad = counts
        packing, layout, edge_sum = self.problem.packing, self.problem.layout, self.parts[shard]
        for part in (grad, dense_grad, edge_sum, self.arc_parts[shard], self.n_products[shard]):
            part[...] = 0
        arrays = self.pool.get()
        try:
            for b in packing.batches(shard):
                batch = _TupleBatch(b, packing, work)
                batch_scores(b, w, dense, self.edges.bounds, packing, layout, batch.log_node)
                self._run_batch(shard, batch, batch.weight, *arrays, log_z[batch.slots])
                batch_gradient(b, batch.p_node, packing, layout, dense_grad, grad)
        finally:
            self.pool.put(arrays)
        slots = packing.slot_ptr[packing.shard_ptr[shard]], packing.slot_ptr[packing.shard_ptr[shard + 1]]
        bad = np.flatnonzero(~np.isfinite(log_z[slice(*slots)]))
        return int(slots[0] + bad[0]) if len(bad) else -1

    def _run_batch(self, shard, batch, weight, lanes, masses, work, log_z):
        """Counts and log Z of the sequences of a batch, a few at a time:
        kernels called one by one compile faster than one that calls all.
        """
        arcs, edges, scores, n_products = self.automaton.arcs, self.edges, self.scores, self.n_products[shard]
        counts = TupleCounts(batch.p_node, self.parts[shard], self.arc_parts[shard])
        refused = batch.exponentiate(scores.spread)
        for slot in range(0, len(log_z), len(lanes.length)):
            longest = fill_lanes(slot, batch.psi, batch.row_class, batch.step_ptr, refused, weight, lanes)
            n_products[0] += tuple_forward(longest, lanes, arcs, scores.potentials, masses, work)
            n_products[1] += tuple_backward(longest, lanes, arcs, scores.potentials, masses, work, counts)
            lanes_log_z(slot, lanes, masses.scale, batch.node_max, edges.edge_max, log_z)
            for r in np.flatnonzero(lanes.length[: len(log_z) - slot] == 0) + slot:
                rows = batch.rows(r)
                tables = batch.log_node[rows], edges.log_edge, batch.row_class[rows]
                log_z[r] = tuple_chain_log(*tables, weight[r], rows, arcs, scores.log_factor, counts)
                n_products[2] += 1

    def collect(self, total):
        """Add the transitions' counts to total (F,); those of the tuples go to tuple_counts (G,)."""
        super().collect(total)
        self.tuple_counts = self.automaton.counts(add_tree(self.arc_parts))


class _Chain(Objective):
    """The likelihood part: an `Objective` whose form knows `nu` (G,) as well."""

    _forms: ClassVar = {"batched": TupleArcs}

    def __init__(self, corpus, features, tuples, n_threads):
        super().__init__(corpus, features, n_threads=n_threads, form="batched")
        longest, n_workers = max(1, corpus.longest), len(self._buffers)
        self._options = {"tuples": tuples, "longest": longest, "n_workers": n_workers}
        self.transitions = self._make("batched")

    @property
    def gold(self):
        """Gold counts of the first-order features (F,)."""
        return self._gold


class TupleObjective:
    """Penalised negative log-likelihood with label tuples;
    call it with (F + G,) weights to get (value, gradient).

    Parameters
    ----------
    corpus : Corpus, every token labelled. features : FeatureSet with F weights, the first-order model.
    tuples : Tuples, G of them: their weights stand after the F. count : (G,) gold counts,
        of `tuple_occurrences`.
    c2, n_threads : as in `Objective`.

    Raises ValueError as `Objective` does, and for tuples or counts that do not fit.
    """

    def __init__(
        self, corpus: Corpus, features: FeatureSet, tuples: Tuples, count: np.ndarray, *, c2: float = 0.0,
        n_threads: int | None = 1,
    ) -> None:  # fmt: skip
        c2 = number("c2", c2)
        if np.shape(count) != np.shape(tuples.attr) or not np.isfinite(count).all():
            raise ValueError(
                f"count: expected a finite number for each of {len(tuples.attr)} tuples, "
                f"got shape {np.shape(count)}"
            )
        self.chain = _Chain(corpus, features, tuples, n_threads)
        self.tuples, self.count, self.c2, self.n_evaluations = tuples, count, c2, 0
        self.n_first, self.n_features = features.n_features, features.n_features + len(tuples.attr)

    def __call__(self, w: ArrayLike) -> tuple[float, np.ndarray]:
        """(value, grad (F + G,)) at the weights w (F + G,); value in nats."""
        w = check_weights(w, self.n_features)
        self.n_evaluations += 1
        first, nu = w[: self.n_first], w[self.n_first :]
        self.chain.transitions.nu = nu
        value, grad = self.chain(first)
        grad = np.concatenate([grad, self.chain.transitions.tuple_counts - self.count]) + 2.0 * self.c2 * w
        return value - float(nu @ self.count) + l2_penalty(self.c2, w), grad

    def curvature(self, w: ArrayLike) -> np.ndarray:
        """Roughly the second derivatives (F + G,) at w: expected counts,
        from which they differ by squares and covariances.
        """
        gold = np.concatenate([self.chain.gold, self.count])
        return np.maximum(self(w)[1] - 2.0 * self.c2 * w + gold, 0.0) + 2.0 * self.c2

    @property
    def automaton(self) -> Automaton:
        return self.chain.transitions.automaton

    @property
    def n_products(self) -> tuple[int, ...]:
        """(forward, backward) products with arcs in the last evaluation,
        and sequences that took the log form.
        """
        return tuple(self.chain.transitions.n_products.sum(axis=0).tolist())


class TupleResult(NamedTuple):
    """What `train_tuples` returns. status: "converged" over all candidates, "empty model" (converged without
    any weight), "max_rounds" (the violation says how far), "stopped by callback", "interrupted".
    """

    w: np.ndarray  # (F,): first-order weights
    tuples: Tuples  # those whose weight is not zero
    nu: np.ndarray  # (G,)
    objective: float
    status: str
    # the largest KKT residual over all weights and all candidates; nan: interrupted before it was known
    violation: float
    n_states: int  # single labels and longer contexts
    rounds: list  # of dicts: what each round worked on


def take(tuples, which):
    """The tuples at `which`, an index or a mask."""
    return Tuples(tuples.attr[which], tuples.labels[which])


def kkt_residual(w, grad, c1):
    """(F,): how far each weight is from its optimality condition under c1 |w|_1."""
    return np.where(w != 0.0, np.abs(grad + c1 * np.sign(w)), np.maximum(np.abs(grad) - c1, 0.0))


def train_tuples(
    corpus: Corpus, features: FeatureSet, *, order: int = 2, c1: float, c2: float = 0.0,
    edge_attrs: ArrayLike = (0,), start: tuple[Any, Any, Any] | None = None, n_threads: int | None = 1,
    max_rounds: int = 10, callback: Callable[[dict[str, Any]], object] | None = None, **rules: Any,
) -> TupleResult:  # fmt: skip
    """Minimise the penalised negative log-likelihood over F first-order weights and all label tuples seen in
    training.

    order : 2 (triples of labels) or 3 (triples and quadruples).
    edge_attrs : edge attributes that tuples are joined with; 0 is the constant one.
    start : None, or (w (F,), Tuples, nu (G,)) to begin from.
    rules : of `minimize` (tol, tol_gradient, relative_change, max_iterations in a round, ...).
        tol (c2 > 0) and tol_gradient (c2 = 0) also end the rounds.
    callback : called with a dict after each round; True stops.

    Returns a TupleResult; Ctrl-C ends with "interrupted" and the last good weights, before the first round
    has ended those of the start. Raises ValueError for c1 <= 0 (without it every tuple seen would stay) and
    for other arguments that do not fit.
    """
    number("c1", c1, above=0.0, note=" (it is what keeps the contexts few)")
    whole("max_rounds", max_rounds)
    function_or_none("callback", callback)
    ends = Rules(c1, c2, rules.get("tol", 1e-6), rules.get("tol_gradient", 1e-3))
    seen = tuple_occurrences(corpus, order, edge_attrs)
    if np.max(edge_attrs, initial=0) >= features.n_edge_attrs:
        raise ValueError(f"edge_attrs: expected 0..{features.n_edge_attrs - 1}, got {shown(edge_attrs)}")
    learner = _Grafting(corpus, features, seen, ends, start, n_threads, max_rounds, rules)
    found = run(learner, None if callback is None else lambda step, w: callback(learner.rounds[-1]))
    first, nu = np.split(found.w, [features.n_features])
    tuples = take(seen[0], nu != 0.0)
    n_states = Automaton(tuples, features.n_labels, corpus.class_ptr, corpus.class_attr).n_states
    end = found.objective, found.status, learner.violation, n_states, learner.rounds
    return TupleResult(first.copy(), tuples, nu[nu != 0.0], *end)


class _Grafting(Learner):
    """Round after round: a look at all candidates, after the first of which those at work are minimised over.

    seen : (Tuples, counts): the candidates. minimizing : options of `minimize`.
    """

    def __init__(self, corpus, features, seen, ends, start, n_threads, max_rounds, minimizing):
        self.problem, self.minimizing = (corpus, features), minimizing
        self.penalty, self.more = ends, {"c2": ends.c2, "n_threads": n_threads}
        self.candidates, self.count = seen
        self.full = TupleObjective(corpus, features, *seen, **self.more)
        self.w, self.rounds, self.max_iterations = _begin(self.full, start, seen[0]), [], max_rounds + 1

    def advance(self):
        if self.rounds:
            self._minimize()
        (value, grad), c1, n_first = self.full(self.w), self.penalty.c1, self.full.n_first
        self.residual = kkt_residual(self.w, grad, c1)
        self.wants = (self.w != 0.0) | (self.residual > 0.0)
        self.wants[:n_first] = True
        self.objective = value + c1 * float(np.abs(self.w).sum())
        self.violation = float(self.residual.max(initial=0.0))
        entering = int((self.wants & (self.w == 0.0))[n_first:].sum())
        at_work = {"tuples": int(np.count_nonzero(self.w[n_first:])), "entering": entering}
        self.rounds.append({"objective": self.objective, "violation": self.violation, **at_work})
        self.iteration += 1

    def _minimize(self):
        """Over the weights at work alone: all first-order ones, and the tuples that want to be."""
        at_work = self.wants[self.full.n_first :]
        tuples, count = take(self.candidates, at_work), self.count[at_work]
        small, ends = TupleObjective(*self.problem, tuples, count, **self.more), self.penalty
        found = minimize(small, self.w[self.wants], c1=ends.c1, c2=ends.c2, **self.minimizing)
        if np.isnan(found.objective) and found.status == "interrupted":
            raise KeyboardInterrupt  # before its first evaluation: what was known here still holds
        states, evaluations = small.automaton.n_states, found.n_evaluations
        self.rounds[-1] |= {"states": states, "evaluations": evaluations, "status": found.status}
        w = np.zeros(len(self.w))
        w[self.wants] = found.w
        self.w, self.objective, self.violation = w, found.objective, np.nan
        if found.status == "interrupted":
            raise KeyboardInterrupt

    def weights(self):
        return self.w

    def finished(self):
        if not self.rounds:
            return None
        violation = self.penalty.violation_of(self.residual)
        return "converged" if self.penalty.verdict(self.objective, violation) == "converged" else None

    def outcome(self, status):
        return "max_rounds" if status == "max_iterations" else self.penalty.outcome(status, self.w)


def decode_tuples(corpus, features, w, tuples, nu):
    """The most probable labels, int32 (N,), under first-order weights w (F,) and weights nu (G,) of `Tuples`:
    Viterbi.

    There are no hard constraints here. Raises ValueError for a corpus with label sets, weights that are not
    finite or of another length, tuples that do not fit, and a sequence whose scores exceed float64.
    """
    check_label_set(corpus, None)
    w, nu = check_weights(w, features.n_features), check_weights(nu, len(tuples.attr))
    edges = table_edges(features, w, corpus.class_ptr, corpus.class_attr)
    automaton = Automaton(tuples, features.n_labels, corpus.class_ptr, corpus.class_attr)
    log_node = np.full((corpus.n_tokens, padded(features.n_labels)), -np.inf)
    log_node[:, : features.n_labels] = node_scores(corpus, features, w)
    path, score = np.empty(corpus.n_tokens, np.int32), np.empty(corpus.n_sequences)
    tables = edges.log_edge, corpus.edge_class, automaton.arcs, automaton.scores(edges, nu).log_factor
    tuple_viterbi_many(log_node, *tables, corpus.seq_ptr, path, score)
    check_paths(score, np.arange(len(score)))
    return path


def _spelt(tuples):
    """(edge attribute, labels without the -1 before them) of each tuple, whatever the width of its rows."""
    return [
        (b, tuple(y for y in z if y >= 0))
        for b, z in zip(tuples.attr.tolist(), tuples.labels.tolist(), strict=True)
    ]


def _begin(full, start, candidates):
    """`start` as one vector of all weights; the tuples it names that are no candidates are left out."""
    w = np.zeros(full.n_features)
    if start is not None:
        if not (isinstance(start, tuple) and len(start) == 3):
            raise ValueError(
                f"start: expected (w, Tuples, nu), got {type(start).__name__}; "
                "of a TupleResult these are the first three"
            )
        first, tuples, nu = start
        tuples = check_tuples(tuples, full.chain.features.n_labels)
        w[: full.n_first], nu = check_weights(first, full.n_first), check_weights(nu, len(tuples.attr))
        at = {z: i for i, z in enumerate(_spelt(candidates))}
        for z, value in zip(_spelt(tuples), nu, strict=True):
            if z in at:
                w[full.n_first + at[z]] += value
    return w
