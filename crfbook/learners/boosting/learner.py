"""Boosting for label sequences: the sequential exp loss, one weight a round, each step in closed form.

    minimise  log sum_i weight_i (1 / p(y_i | x_i) - 1)   in nats

Each round takes the feature whose bound promises the largest decrease, so a model has at most as many weights
as rounds. Rounds visit only what they change (rounds.py). Source: Altun, Johnson and Hofmann
(2003), section 5.2, Algorithm 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from crfbook._checks import number, one_of, whole
from crfbook.chain.objective import check_labels, check_weights
from crfbook.chain.token_layout import sequence_work
from crfbook.data.features import log_edge
from crfbook.learners.boosting.layout import lay_out_boosting, make_state, state_bytes
from crfbook.learners.boosting.rounds import (
    AT_FLOOR,
    CONVERGED,
    DRIFTED,
    NOT_FINITE,
    SLACK,
    boost_rounds,
    settle,
    sleep_limit,
    visit,
)
from crfbook.learners.boosting.selection import (
    DRIFT,
    FLOOR,
    GIVEN,
    GLOBAL,
    INSTANCE,
    LOG_REF,
    ROUNDS,
    SHARE,
    SPLIT,
    VISITS,
)
from crfbook.training.interrupts import heard_chunks, listen
from crfbook.training.loop import Learner, run

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, OptResult, State

FLOORS = 1e-10  # loss per token (nats) below which the rounding of log Z rules
BUDGET = 2_000_000  # tokens visited between two chances to hear Ctrl-C: below a second
FINISHED = {CONVERGED: "converged", AT_FLOOR: "rounding floor", NOT_FINITE: "non-finite objective"}
BOUNDS = {"global": GLOBAL, "instance": INSTANCE, "split": SPLIT}


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
        feature gains and what it loses apart (selection.py) chooses, and the same bound with every
        sequence's own extremes gives the step; on a corpus it needs several times fewer rounds than the
        others. "global": the paper's, with the extremes of a count over the whole corpus. "instance": chosen
        as by "global", but the step minimises the tighter bound in which every sequence has its own extremes.
    cap : largest |step|; math.inf for none. Features that occur with their label in the gold labelling
        wherever they can (high = 0) or nowhere (low = 0) have no finite best step:
        they take steps of size `cap`, and none if it is infinite.
    tol : stop when the best bound promises a decrease of the loss by less than this share.
    report_every : rounds per Step and callback (the last round is always reported).
    constraints : see `data.constraints`. memory_limit : bytes, see `state_bytes`.
    callback : called with (Step, w); True stops. state : `OptResult.state` of an earlier call with the same
        data and options; continues bit for bit, and is not changed.

    Returns an OptResult. objective: log of the loss, known to 2e-3 of the decrease that the rounds still
    promise. Step.violation: share of the loss that the bound of that round promised to take away.
    n_evaluations: sequences visited, one forward-backward each (a full pass would be S). state has arrays
    feature, step, gain (-log of the bound, nats) and log_loss, an entry a round; none of them where Ctrl-C
    came before the first pass had ended. status: "converged" (tol),
    "max_iterations", "stopped by callback", "interrupted", "rounding floor" (the loss per token fell below
    1e-10: separable data) or "non-finite objective". Nothing is random; ties go as `select_feature` says.

    Raises ValueError for bad arguments or labels, MemoryError beyond memory_limit.
    """
    rounds = None if max_iterations is None else whole("max_iterations", max_iterations)
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
    rules = cap, tol, BOUNDS[bound], rounds, report_every
    return run(_Boosting(corpus, features, w0, constraints, state, *rules), callback)


class Anchor(NamedTuple):
    """Where the sums were last taken from scratch.
    With the rounds since then it gives every bit of the state again.
    """

    w: np.ndarray  # (F,)
    ceiling: np.ndarray  # (S,)
    asleep: np.ndarray  # uint8 (S,)
    count: np.ndarray  # (4,), see BoostState
    log_loss: float
    share: float


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
            for name, length in (("w", n_weights), ("ceiling", corpus.n_sequences)):
                if np.shape(saved.get(f"anchor_{name}")) != (length,):
                    raise ValueError(
                        f"state: expected an array 'anchor_{name}' of shape ({length},), got "
                        f"{np.shape(saved.get(f'anchor_{name}'))}"
                    )
            self.seconds, self.given = float(saved["seconds"]), len(saved["feature"])
            self.w0, since = saved["anchor_w"].copy(), int(saved["anchor_count"][ROUNDS])
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
        """First pass: every sequence once, to see which have to be awake."""
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
        tables.asleep[:] = ~(tables.ceiling > sleep_limit(log_loss, SLACK, len(tables.asleep)))
        self.tables = tables
        self._rescore(log_loss)

    def _resume(self):
        """From the anchor of a saved state, repeat the rounds since then."""
        anchor = Anchor(*(self.saved[f"anchor_{name}"] for name in Anchor._fields))
        tables = self._allocate(anchor.w.copy())
        tables.ceiling[:], tables.asleep[:], tables.count[:] = anchor.ceiling, anchor.asleep, anchor.count
        self.journal = Journal(*(self.saved[name].copy() for name in Journal._fields))
        tables.number[SHARE] = anchor.share
        self.tables = tables
        self._rescore(float(anchor.log_loss))
        tables.count[GIVEN] = self.given
        while self.iteration < self.given:
            listen()
            self.go_on(self.given)

    def _visit(self, sequences, log_loss, tables):
        for part in heard_chunks(sequences):
            visit(part, 1, log_loss, self.data, tables, self.work)

    def _allocate(self, w):
        tables = make_state(self.data, self.index, w, self.features.n_labels, self.n_classes)
        tables.number[SHARE], tables.number[FLOOR] = SLACK, FLOORS * max(1, len(self.data.labels))
        self._score_transitions(tables)
        return tables

    def _score_transitions(self, tables):
        """Scores of transitions from the weights, not by steps."""
        scores = log_edge(self.features, tables.w, self.data.class_ptr, self.data.class_attr)
        tables.log_edge[:] = scores + self.data.bounds.edge

    def _rescore(self, log_loss):
        """Everything but w and who is awake from scratch; this place becomes the anchor."""
        tables = self.tables
        arrays = (array.copy() for array in (tables.w, tables.ceiling, tables.asleep, tables.count))
        self.anchor = Anchor(*arrays, log_loss, float(tables.number[SHARE]))
        self._score_transitions(tables)
        for array in (tables.sums, tables.edge_sum, tables.cell, tables.edge_cell):
            array[:] = 0.0
        tables.stale[:] = 1
        tables.number[LOG_REF], tables.number[DRIFT] = (log_loss, 0.0) if log_loss > -math.inf else (0.0, 0.0)
        self._visit(np.flatnonzero(tables.asleep == 0), log_loss, tables)
        settle(self.data, tables)

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
        status = boost_rounds(target, BUDGET, *rule, *arrays)
        if status == DRIFTED:
            self._rescore(self.objective)
        return status

    # ---- what the loop asks

    def advance(self):
        before = self.iteration
        target = (before // self.report_every + 1) * self.report_every
        if self.max_iterations is not None:
            target = min(target, self.max_iterations)
        while self.iteration < target and self.ended is None:
            listen()
            self.ended = FINISHED.get(self.go_on(target))
        return self.ended if self.iteration == before else None

    def finished(self):
        return self.ended

    def settle(self):
        """After Ctrl-C while the rounds of a state were repeated: that state is what there is."""
        if self.iteration < self.given:
            self.tables = self.anchor = None

    @property
    def iteration(self):
        return self.given if self.tables is None else int(self.tables.count[ROUNDS])

    @property
    def n_evaluations(self):
        return 0 if self.tables is None else int(self.tables.count[VISITS])

    @property
    def objective(self):
        """Log of the loss after the last round; where nothing is lost, of the floor that its rounding has."""
        if self.anchor is None:
            return math.nan
        found = self.journal.log_loss[self.iteration - 1] if self.iteration else self.anchor.log_loss
        return float(found) if found > -math.inf else math.log(self.tables.number[FLOOR])

    @property
    def violation(self):
        return float(-np.expm1(-self.journal.gain[self.iteration - 1])) if self.iteration else math.nan

    def weights(self):
        return self.w0 if self.tables is None else self.tables.w

    def state(self):
        """Arrays only, so that np.savez can keep them; none before the first pass has ended."""
        if self.anchor is None:
            return {} if self.saved is None else self.saved
        state = {f"anchor_{name}": np.array(value) for name, value in self.anchor._asdict().items()}
        state |= {name: array[: self.iteration].copy() for name, array in self.journal._asdict().items()}
        return state | {"seconds": np.array(self.seconds)}
