"""Boosting for label sequences: the sequential exp loss, one weight a round, each step in closed form.

    minimise  log sum_i weight_i (1 / p(y_i | x_i) - 1)   in nats

Each round takes the feature whose bound promises the largest decrease, so a model has at most as many weights
as rounds. Rounds visit only what they change (rounds.py). First stand the arrays: which sequences hold which
feature, the extremes of every feature, and the state that rounds change. Then the learner. Source: Altun,
Johnson and Hofmann (2003), section 5.2, Algorithm 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

import crfbook.learners.boosting.rounds as rounds
from crfbook._checks import number, one_of, whole
from crfbook.chain.objective import check_labels, check_state, check_weights
from crfbook.chain.token_layout import sequence_work, used_classes
from crfbook.data.constraints import Bounds, Limits, bounds_of
from crfbook.data.corpus import Corpus, offsets, owners, ragged_index
from crfbook.data.features import FeatureSet, log_edge, row_offsets
from crfbook.training.interrupts import deliver_signals, interruptible_stretches
from crfbook.training.loop import Callback, Learner, OptResult, State, run


class BoostData(NamedTuple):
    """Corpus and features as the kernels read them.

    S sequences, N tokens, K classes, F features, Q label pairs, R rows.
    """

    seq_ptr: np.ndarray  # int64 (S+1,)
    labels: np.ndarray  # int32 (N,)
    log_weight: np.ndarray  # (S,)
    attr_ptr: np.ndarray  # int64 (N+1,): attributes of a token, each at most once
    attr_idx: np.ndarray  # int32 (nnz,)
    attr_val: np.ndarray  # float64 (nnz,), or (0,): all ones
    bounds: Bounds
    label_set: np.ndarray  # int32 (N,), or (0,): every token may have every label
    edge_class: np.ndarray  # int32 (N,)
    class_ptr: np.ndarray  # int64 (K+1,)
    class_attr: np.ndarray  # int32
    node_ptr: np.ndarray  # int64 (A+1,)
    node_label: np.ndarray  # int32 (n_node,)
    edge_ptr: np.ndarray  # int64 (B+1,)
    edge_pair: np.ndarray  # int32 (n_edge,): number of its label pair, among those that have a weight
    pair_prev: np.ndarray  # int32 (Q,): these pairs
    pair_next: np.ndarray  # int32 (Q,)
    row_ptr: np.ndarray  # int64 (S+1,): rows of a sequence, one for each edge class that it uses
    row_class: np.ndarray  # int32 (R,)
    slot: np.ndarray  # int32 (F,): where the sum of a feature stands


class BoostIndex(NamedTuple):
    """From features to sequences, and the groups of features with equal extremes (G groups,
    E and E' pairs).
    """

    entry_ptr: np.ndarray  # int64 (A+1,): pairs (attribute, sequence)
    entry_seq: np.ndarray  # int32 (E,)
    item_ptr: np.ndarray  # int64 (E+1,): occurrences of a pair
    item_token: np.ndarray  # int32 (nnz,)
    item_val: np.ndarray  # float64 (nnz,), or (0,): all ones
    edge_entry_ptr: np.ndarray  # int64 (B+1,): pairs (edge attribute, sequence)
    edge_entry_seq: np.ndarray  # int32 (E',)
    entry_same: np.ndarray  # int32 (E',): largest count of (y, y)
    entry_other: np.ndarray  # int32 (E',): largest count of (yp, y), yp != y
    low: np.ndarray  # (F,): smallest count minus gold count, over sequences and labellings
    high: np.ndarray  # (F,): largest
    most: np.ndarray  # (F,): largest gain, see rounds.py
    group_ptr: np.ndarray  # int64 (G+1,): blocks of slots of a group
    group_low: np.ndarray  # (G,)
    group_high: np.ndarray  # (G,)
    slot_feature: np.ndarray  # int64 (n,): feature of a slot, -1: padding


class BoostState(NamedTuple):
    """What rounds change. Units: sums and cells are multiples of e^{log_ref}."""

    w: np.ndarray  # (F,)
    log_node: np.ndarray  # (N, L): node scores; of the active sequences
    log_edge: np.ndarray  # (K, L, L)
    cell: np.ndarray  # (N, L): what a token added to the sums of its attributes, g |p_node - gold|
    edge_cell: np.ndarray  # (R, Q, 2): what a row added to edge_sum
    edge_sum: np.ndarray  # (K, Q, 2)
    sums: np.ndarray  # (n, 2): P and Q of rounds.py, by slot; dL/dw_k is their difference
    stale: np.ndarray  # uint8 (n / BLOCK,): the extremes of the block are to be found again
    block_high: np.ndarray  # (n / BLOCK,): largest dL/dw_k; or the largest decrease
    block_low: np.ndarray  # (n / BLOCK,): smallest
    block_slot: np.ndarray  # int64 (n / BLOCK,): where the largest decrease is
    log_mass: np.ndarray  # (S,): log of the loss of a sequence, as of its last visit
    mass: np.ndarray  # (S,): that loss, in units of e^{log_ref}; 0 for inactive ones
    inactive: np.ndarray  # uint8 (S,): left out, as its loss is negligible
    ceiling: np.ndarray  # (S,): inactive: bound on log(weight / p) now; active: -inf
    touched: np.ndarray  # int64 (S,): sequences to be visited
    parts: np.ndarray  # (6, S): work
    # (5,): log_ref, total loss, drift, share (rounds.py), loss at which rounding rules
    number: np.ndarray
    # int64 (4,): visits and tokens so far (they only grow), rounds done, rounds that are given
    count: np.ndarray


def lay_out_boosting(corpus, features, enclosed, constraints=None):
    """(BoostData, BoostIndex) of a corpus. Features with low < high may take steps; if `enclosed`, only those
    with low < 0 < high, whose best step is finite.

    Raises ValueError for edge attributes or attributes beyond the feature set. Cost: O(nnz log nnz).
    """
    L, limited = features.n_labels, constraints is not None and constraints.label_sets is not None
    by_token, by_attr = _occurrences(corpus, features.n_attrs)
    with np.errstate(divide="ignore"):
        tokens = corpus.seq_ptr, corpus.labels, np.log(corpus.weights)
    items = by_token.indptr.astype(np.int64), by_token.indices.astype(np.int32), _values(by_token)
    bounds = bounds_of(constraints, L), corpus.label_set if limited else corpus.label_set[:0]
    classes = corpus.edge_class, corpus.class_ptr, corpus.class_attr
    pair, edge_pair = np.unique(features.edge_pair, return_inverse=True)
    weights = features.node_ptr, features.node_label, features.edge_ptr, edge_pair.astype(np.int32)
    pairs = (pair // L).astype(np.int32), (pair % L).astype(np.int32)
    slot = np.zeros(features.n_features, np.int32)
    data = BoostData(*tokens, *items, *bounds, *classes, *weights, *pairs, *used_classes(corpus), slot)
    seq_of = corpus.sequence
    holders = *_entries(by_attr.indptr, seq_of[by_attr.indices]), by_attr.indices.astype(np.int32)
    extremes, nowhere = np.zeros((3, features.n_features)), np.zeros(0, np.int64)
    groups = nowhere, np.zeros(0), np.zeros(0), nowhere
    edges = _edge_entries(corpus, seq_of, features.n_edge_attrs)
    index = BoostIndex(*holders, _values(by_attr), *edges, *extremes, *groups)
    rounds.node_extremes(data, index, np.zeros(L))
    rounds.edge_extremes(data, index, np.zeros((L, L)))
    index.most[: features.n_node] = index.high[: features.n_node]
    usable = (index.low < 0.0) & (index.high > 0.0) if enclosed else index.low < index.high
    slot[:], groups = _groups(index.low, index.high, usable)
    return data, index._replace(**groups)


def _occurrences(corpus, n_attrs):
    """Attributes as a sparse matrix, by token and by attribute; what occurs twice at a token is added up."""
    if corpus.attr_idx.size and corpus.attr_idx.max() >= n_attrs:
        raise ValueError(f"attribute ids: expected 0..{n_attrs - 1}, got {corpus.attr_idx.max()}")
    items = corpus.values, corpus.attr_idx, corpus.attr_ptr
    by_token = csr_matrix(items, shape=(corpus.n_tokens, n_attrs), copy=True)
    by_token.sum_duplicates()
    return by_token, by_token.tocsc()


def _values(matrix):
    """Its entries, or (0,) if all are one."""
    return matrix.data if (matrix.data != 1.0).any() else np.zeros(0)


def _entries(ptr, item_seq):
    """Runs of equal sequence inside each row of a ragged array: pointers (rows+1,), sequence of a run,
    pointers of runs.
    """
    begins = np.ones(len(item_seq), bool)
    begins[1:] = item_seq[1:] != item_seq[:-1]
    starts = ptr[:-1]
    begins[starts[starts < len(item_seq)]] = True
    first = np.flatnonzero(begins)
    entry_ptr = np.searchsorted(first, ptr).astype(np.int64)
    return entry_ptr, item_seq[first].astype(np.int32), np.append(first, len(item_seq)).astype(np.int64)


def _edge_entries(corpus, seq_of, n_edge_attrs):
    """(edge_entry_ptr, edge_entry_seq, entry_same, entry_other);
    tokens without a predecessor do not count.
    """
    inner = corpus.inner
    place, ptr = ragged_index(corpus.class_ptr, corpus.edge_class[inner])
    attr, token = corpus.class_attr[place].astype(np.int64), inner[owners(ptr)]
    if attr.size and attr.max() >= n_edge_attrs:
        raise ValueError(f"edge attribute ids: expected 0..{n_edge_attrs - 1}, got {attr.max()}")
    order = np.argsort(attr, kind="stable")
    attr, token = attr[order], token[order]
    entry_ptr, entry_seq, item_ptr = _entries(row_offsets(attr, n_edge_attrs), seq_of[token])
    same = np.diff(item_ptr)
    # Of a run of n neighbouring tokens, (n + 1) // 2 can carry one pair of different labels.
    begins = np.ones(len(token), bool)
    begins[1:] = token[1:] != token[:-1] + 1
    begins[item_ptr[:-1]] = True
    run = np.flatnonzero(begins)
    halves = (np.diff(np.append(run, len(token))) + 1) // 2
    other = np.add.reduceat(halves, np.searchsorted(run, item_ptr[:-1])) if len(run) else halves
    return entry_ptr, entry_seq, same.astype(np.int32), other.astype(np.int32)


def _groups(low, high, usable):
    """slot (F,) and the fields of a `BoostIndex` on groups: usable features sorted by (low, high, number).

    Every group begins a new block; features that may not be used share the slots of a block that is in no
    group.
    """
    order = np.lexsort((high, low))
    order = order[usable[order]]
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(low[order]) != 0.0) | (np.diff(high[order]) != 0.0)
    first = np.flatnonzero(begins)
    size = np.diff(np.append(first, len(order)))
    group_ptr = offsets(-(-size // rounds.BLOCK))
    place = np.repeat(group_ptr[:-1] * rounds.BLOCK - first, size) + np.arange(len(order))
    slot = np.full(len(low), group_ptr[-1] * rounds.BLOCK, np.int32)
    slot[order] = place
    slot_feature = np.full((group_ptr[-1] + 1) * rounds.BLOCK, -1, np.int64)
    slot_feature[place] = order
    ends = {"group_low": low[order[first]], "group_high": high[order[first]]}
    return slot, {"group_ptr": group_ptr, "slot_feature": slot_feature} | ends


def state_bytes(corpus, features):
    """Bytes of the arrays that grow: two tables of marginals per token,
    two rows of label pairs per sequence and edge class.
    """
    pairs = len(np.unique(features.edge_pair))
    n_rows = min(corpus.n_tokens, corpus.n_sequences * corpus.n_classes)
    return (
        16 * corpus.n_tokens * features.n_labels
        + 16 * n_rows * pairs
        + 20 * len(corpus.attr_idx)
        + 40 * features.n_features
    )


def make_state(data, index, w, n_labels, n_classes):
    """`BoostState` with every sequence inactive and no sum yet."""
    S, N = len(data.seq_ptr) - 1, len(data.labels)
    n_pairs, n_slots = len(data.pair_prev), len(index.slot_feature)
    n_blocks, n_rows, zeros = n_slots // rounds.BLOCK, len(data.row_class), np.zeros
    tables = zeros((N, n_labels)), zeros((n_classes, n_labels, n_labels)), zeros((N, n_labels))
    sums = zeros((n_rows, n_pairs, 2)), zeros((n_classes, n_pairs, 2)), zeros((n_slots, 2))
    blocks = np.ones(n_blocks, np.uint8), *zeros((2, n_blocks)), zeros(n_blocks, np.int64)
    losses = np.full(S, -np.inf), zeros(S), np.ones(S, np.uint8), np.full(S, -np.inf)
    work, counters = (zeros(S, np.int64), zeros((6, S))), (zeros(5), zeros(4, np.int64))
    return BoostState(w, *tables, *sums, *blocks, *losses, *work, *counters)


FLOORS = 1e-10  # loss per token (nats) below which the rounding of log Z rules
BUDGET = 2_000_000  # tokens visited in one compiled call, after which Ctrl-C may stop: below a second
FINISHED = {
    rounds.CONVERGED: "converged",
    rounds.AT_FLOOR: "rounding floor",
    rounds.NOT_FINITE: "non-finite objective",
}
# fields of the state that an anchor keeps, beside log L and share. An anchor is where the sums were last
# computed from scratch. With the rounds since then it gives every bit of the state again.
ANCHORED = "w", "ceiling", "inactive", "count"
BOUNDS = {"global": rounds.GLOBAL, "instance": rounds.INSTANCE, "split": rounds.SPLIT}


def boost(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    max_iterations: int | None = 10_000,
    bound: str = "split",
    cap: float = 1.0,
    tol: float = 1e-6,
    report_every: int = 100,
    constraints: Limits = None,
    memory_limit: float = 2e9,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Boost from w0 (F,) (default: zeros), a weight a round.

    Parameters
    ----------
    corpus, features : training data, every token labelled; `seq_weight` multiplies the loss of a sequence.
    max_iterations : rounds in all, those of `state` included; None: no limit; 0: evaluate w0 and return it.
    bound : which bound chooses feature and step. "split": not the paper's; a closed form that bounds what a
        feature gains and what it loses apart (rounds.py) chooses, and the same bound with every
        sequence's own extremes gives the step; on a corpus it needs several times fewer rounds than the
        others. "global": the paper's, with the extremes of a count over the whole corpus. "instance": chosen
        as by "global", but the step minimises the tighter bound in which every sequence has its own extremes.
    cap : largest |step|; math.inf for none. Features that occur with their label in the gold labelling
        wherever they can (high = 0) or nowhere (low = 0) have no finite best step:
        they take steps of size `cap`, and none if it is infinite.
    tol : stop when the best bound promises a decrease of the loss by less than this share.
    report_every : rounds per Step and callback (the last round is always reported).
    constraints : see `data.constraints`.
    memory_limit : bytes, see `state_bytes`.
    callback : called with (Step, w); True stops.
    state : `OptResult.state` of an earlier call with the same data and options; continues bit for bit, and is
        not changed.

    Returns an OptResult. objective: log of the loss, known to 2e-3 of the decrease that the rounds still
    promise. Step.violation: share of the loss that the bound of that round promised to take away.
    n_evaluations: sequences visited, one forward-backward each (a full pass would be S). state has arrays
    feature, step, gain (-log of the bound, nats) and log_loss, an entry a round; none of them where Ctrl-C
    came before the first pass had ended. status: "converged" (tol),
    "max_iterations", "stopped by callback", "interrupted", "rounding floor" (the loss per token fell below
    1e-10: separable data) or "non-finite objective". Nothing is random; ties go as `select_feature` says.

    Raises ValueError for bad arguments or labels, MemoryError beyond memory_limit.
    """
    n_rounds = None if max_iterations is None else whole("max_iterations", max_iterations)
    one_of("bound", bound, BOUNDS)
    cap = number("cap", cap, above=0.0, finite=False, note=" (math.inf for none)")
    tol, report_every = number("tol", tol), whole("report_every", report_every, 1)
    check_labels(corpus, features, constraints)
    size = state_bytes(corpus, features)
    if size > memory_limit:
        raise MemoryError(
            f"boosting: expected at most {memory_limit / 1e9:.2g} GB, but tables for {corpus.n_tokens:,} "
            f"tokens, {features.n_labels} labels and {features.n_edge:,} transitions take "
            f"{size / 1e9:.2g} GB; observed transitions only, a larger memory_limit or another algorithm work"
        )
    rules = cap, tol, BOUNDS[bound], n_rounds, report_every
    return run(_Boosting(corpus, features, w0, constraints, state, *rules), callback)


class Journal(NamedTuple):
    """The rounds, one entry each; longer than needed."""

    feature: np.ndarray  # int64 (>= rounds,)
    step: np.ndarray
    gain: np.ndarray  # -log of the bound, in nats
    log_loss: np.ndarray  # after the round


class _Boosting(Learner):
    """Data, tables and journal. An iteration of the loop is all rounds up to the next report."""

    tables = anchor = ended = None

    def __init__(
        self, corpus, features, w0, constraints, saved, cap, tol, kind, max_iterations=None, report_every=100
    ):
        n_weights = features.n_features
        self.saved, self.given = saved, 0
        if saved is None:
            self.w0 = np.zeros(n_weights) if w0 is None else check_weights(w0, n_weights).copy()
        else:
            check_state(saved, "anchor_w", n_weights)
            check_state(saved, "anchor_ceiling", corpus.n_sequences)
            self.seconds, self.given = float(saved["seconds"]), len(saved["feature"])
            self.w0, since = saved["anchor_w"].copy(), int(saved["anchor_count"][rounds.ROUNDS])
            np.add.at(self.w0, saved["feature"][since:], saved["step"][since:])
        self.features, self.cap, self.tol, self.kind = features, cap, tol, kind
        self.max_iterations, self.report_every = max_iterations, report_every
        self.data, self.index = lay_out_boosting(corpus, features, cap == math.inf, constraints)
        self.n_classes = corpus.n_classes
        self.work = sequence_work(corpus, features.n_labels)
        self.journal = Journal(np.zeros(0, np.int64), *(np.zeros(0) for _ in range(3)))

    def begin(self):
        self._start() if self.saved is None else self._resume()

    def _start(self):
        """First pass: every sequence once, to see which have to be active."""
        tables = self._allocate(self.w0.copy())
        filled = np.flatnonzero(np.diff(self.data.seq_ptr))
        self._visit(filled, np.inf, tables)
        bad = filled[~(tables.ceiling[filled] < np.inf)]
        if len(bad):
            raise ValueError(
                f"sequence {bad[0]}: expected gold labels of finite score, but the constraints forbid them "
                f"(or scores exceed float64)"
            )
        log_loss = float(logsumexp(tables.log_mass)) if len(filled) else -math.inf
        tables.inactive[:] = ~(
            tables.ceiling > rounds.activity_limit(log_loss, rounds.SLACK, len(tables.inactive))
        )
        self.tables = tables
        self._rescore(log_loss)

    def _resume(self):
        """From the anchor of a saved state, repeat the rounds since then."""
        anchor = {name: self.saved[f"anchor_{name}"] for name in (*ANCHORED, "log_loss", "share")}
        tables = self._allocate(anchor["w"].copy())
        for name in ANCHORED:
            getattr(tables, name)[:] = anchor[name]
        self.journal = Journal(*(self.saved[name].copy() for name in Journal._fields))
        tables.number[rounds.SHARE] = anchor["share"]
        self.tables = tables
        self._rescore(float(anchor["log_loss"]))
        tables.count[rounds.GIVEN] = self.given
        while self.iteration < self.given:
            deliver_signals()
            self.go_on(self.given)

    def _visit(self, sequences, log_loss, tables):
        for part in interruptible_stretches(sequences):
            rounds.visit(part, 1, log_loss, self.data, tables, self.work)

    def _allocate(self, w):
        tables = make_state(self.data, self.index, w, self.features.n_labels, self.n_classes)
        tables.number[rounds.SHARE] = rounds.SLACK
        tables.number[rounds.FLOOR] = FLOORS * max(1, len(self.data.labels))
        self._score_transitions(tables)
        return tables

    def _score_transitions(self, tables):
        """Scores of transitions from the weights, not by steps."""
        scores = log_edge(self.features, tables.w, self.data.class_ptr, self.data.class_attr)
        tables.log_edge[:] = scores + self.data.bounds.edge

    def _rescore(self, log_loss):
        """Compute everything from scratch but w and which sequences are active; this state becomes the
        anchor.
        """
        tables = self.tables
        self.anchor = {name: getattr(tables, name).copy() for name in ANCHORED}
        self.anchor |= {"log_loss": log_loss, "share": float(tables.number[rounds.SHARE])}
        self._score_transitions(tables)
        for array in (tables.sums, tables.edge_sum, tables.cell, tables.edge_cell):
            array[:] = 0.0
        tables.stale[:] = 1
        tables.number[rounds.LOG_REF] = log_loss if log_loss > -math.inf else 0.0
        tables.number[rounds.DRIFT] = 0.0
        self._visit(np.flatnonzero(tables.inactive == 0), log_loss, tables)
        rounds.settle(self.data, tables)

    def go_on(self, target):
        """Rounds until there are `target`, or until `boost_rounds` has a reason to return;
        returns its status.
        """
        # before its rounds are run, so that an interrupt finds it whole
        if len(self.journal.feature) < target:
            longer = max(target, 2 * len(self.journal.feature))
            self.journal = Journal(*(np.resize(old, longer) for old in self.journal))
        rule = self.cap, self.tol, self.kind
        arrays = self.data, self.index, self.tables, self.work, self.journal
        status = rounds.boost_rounds(target, BUDGET, *rule, *arrays)
        if status == rounds.DRIFTED:
            self._rescore(self.objective)
        return status

    # ---- what the loop asks

    def advance(self):
        before = self.iteration
        target = (before // self.report_every + 1) * self.report_every
        if self.max_iterations is not None:
            target = min(target, self.max_iterations)
        while self.iteration < target and self.ended is None:
            deliver_signals()
            self.ended = FINISHED.get(self.go_on(target))
        return self.ended if self.iteration == before else None

    def finished(self):
        return self.ended

    def settle(self):
        """After Ctrl-C while the rounds of a state were repeated: go back to that state."""
        if self.iteration < self.given:
            self.tables = self.anchor = None

    @property
    def iteration(self):
        return self.given if self.tables is None else int(self.tables.count[rounds.ROUNDS])

    @property
    def n_evaluations(self):
        return 0 if self.tables is None else int(self.tables.count[rounds.VISITS])

    @property
    def objective(self):
        """Log of the loss after the last round, or of its rounding error where the loss is below that."""
        if self.anchor is None:
            return math.nan
        found = self.journal.log_loss[self.iteration - 1] if self.iteration else self.anchor["log_loss"]
        return float(found) if found > -math.inf else math.log(self.tables.number[rounds.FLOOR])

    @property
    def violation(self):
        return float(-np.expm1(-self.journal.gain[self.iteration - 1])) if self.iteration else math.nan

    def weights(self):
        return self.w0 if self.tables is None else self.tables.w

    def state(self):
        """Arrays only, so that np.savez can keep them; none before the first pass has ended."""
        if self.anchor is None:
            return {} if self.saved is None else self.saved
        state = {f"anchor_{name}": np.array(value) for name, value in self.anchor.items()}
        state |= {name: array[: self.iteration].copy() for name, array in self.journal._asdict().items()}
        return state | {"seconds": np.array(self.seconds)}
