"""Boosting for label sequences: the sequential exp loss, one weight a round, each step in closed form.

    minimise  log sum_i weight_i (1 / p(y_i | x_i) - 1)   in nats

Each round takes the feature whose bound promises the largest decrease, so a model has at most as many weights
as rounds. Rounds visit only what they change (rounds.py). Source: Altun, Johnson and Hofmann
(2003), section 5.2, Algorithm 2.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from crfbook._checks import number, one_of, whole
from crfbook.chain.objective import check_labels, check_weights
from crfbook.chain.token_layout import sequence_work
from crfbook.data.features import log_edge
from crfbook.learners.boosting.features import (
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
from crfbook.learners.boosting.layout import lay_out, make_state, state_bytes
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
from crfbook.training.loop import OptResult, Step
from crfbook.training.threads import one_blas_thread

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, State

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
    bound: str = "global",
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
    bound : which bound chooses feature and step. "global": the paper's, with the extremes of a count over the
        whole corpus. "instance": chosen so too, but the step minimises the tighter bound in which every
        sequence has its own extremes. "split": not the paper's, a closed form that bounds what a feature
        gains and what it loses apart (split.py) chooses, and the same bound with every
        sequence's own extremes gives the step; on a corpus it needs several times fewer rounds.
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
    feature, step, gain (-log of the bound, nats) and log_loss, an entry a round. status: "converged" (tol),
    "max_iterations", "stopped by callback", "interrupted", "rounding floor" (the loss per token fell below
    1e-10: separable data) or "non-finite objective". Nothing is random; ties go as `select_feature` says.

    Raises ValueError for bad arguments or labels, MemoryError beyond memory_limit.
    """
    max_iterations = (
        np.iinfo(np.int64).max if max_iterations is None else whole("max_iterations", max_iterations)
    )
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
    run = _Run(corpus, features, constraints, cap, tol, BOUNDS[bound])
    with one_blas_thread():
        status, history = _iterate(run, w0, state, max_iterations, report_every, callback)
    return OptResult(
        run.state.w, run.objective(), status, run.done, history, run.export(), int(run.state.count[VISITS])
    )


def _iterate(run, w0, state, rounds, report_every, callback):
    """Chunks of rounds until there is a reason to stop: (reason, list of Step)."""
    history = []
    try:
        run.resume(state) if state is not None else run.start(w0)
        while run.done < rounds:
            code = run.advance(min(rounds, (run.done // report_every + 1) * report_every))
            reached = run.done == rounds or run.done % report_every == 0
            if (code in FINISHED or reached) and run.done > (history[-1].iteration if history else run.begun):
                history.append(run.report())
                if callback is not None and run.pause(callback, history[-1]):
                    return FINISHED.get(code, "stopped by callback"), history
            if code in FINISHED:
                return FINISHED[code], history
        return "max_iterations", history
    except KeyboardInterrupt:
        if run.state is None:
            raise
        return "interrupted", history


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


class _Run:
    """Data, state and journal of one run."""

    def __init__(self, corpus, features, constraints, cap, tol, kind):
        self.features, self.cap, self.tol, self.kind = features, cap, tol, kind
        self.data, self.index = lay_out(corpus, features, cap == math.inf, constraints)
        self.n_classes = corpus.n_classes
        self.work = sequence_work(corpus, features.n_labels)
        self.state = self.anchor = None
        self.journal = Journal(np.zeros(0, np.int64), *(np.zeros(0) for _ in range(3)))
        self.seconds, self.clock, self.begun = 0.0, time.perf_counter(), 0

    @property
    def done(self):
        return int(self.state.count[ROUNDS])

    def start(self, w0):
        """First pass: every sequence once, to see which have to be awake."""
        n_weights = self.features.n_features
        w = np.zeros(n_weights) if w0 is None else check_weights(w0, n_weights).copy()
        state = self._allocate(w)
        filled = np.flatnonzero(np.diff(self.data.seq_ptr))
        visit(filled, True, np.inf, self.data, state, self.work)
        bad = filled[~(state.ceiling[filled] < np.inf)]
        if len(bad):
            raise ValueError(
                f"sequence {bad[0]}: expected gold labels of finite score, but the constraints forbid them "
                f"(or scores exceed float64)"
            )
        log_loss = float(logsumexp(state.log_mass)) if len(filled) else -math.inf
        state.asleep[:] = ~(state.ceiling > sleep_limit(log_loss, SLACK, len(state.asleep)))
        self.state = state
        self._rescore(log_loss)

    def resume(self, saved):
        """From the anchor of a saved state, repeat the rounds since then."""
        for name, length in (("w", self.features.n_features), ("ceiling", len(self.data.seq_ptr) - 1)):
            if np.shape(saved.get(f"anchor_{name}")) != (length,):
                raise ValueError(
                    f"state: expected an array 'anchor_{name}' of shape ({length},), got "
                    f"{np.shape(saved.get(f'anchor_{name}'))}"
                )
        anchor = Anchor(*(saved[f"anchor_{name}"] for name in Anchor._fields))
        state = self._allocate(anchor.w.copy())
        state.ceiling[:], state.asleep[:], state.count[:] = anchor.ceiling, anchor.asleep, anchor.count
        self.journal = Journal(*(saved[name].copy() for name in Journal._fields))
        self.seconds, self.begun = float(saved["seconds"]), len(self.journal.feature)
        state.number[SHARE] = anchor.share
        self.state = state
        self._rescore(float(anchor.log_loss))
        state.count[GIVEN] = self.begun
        while self.done < self.begun:
            self.advance(self.begun)
        self.clock = time.perf_counter()

    def _allocate(self, w):
        state = make_state(self.data, self.index, w, self.features.n_labels, self.n_classes)
        state.number[SHARE], state.number[FLOOR] = SLACK, FLOORS * max(1, len(self.data.labels))
        self._fill_tables(state)
        return state

    def _fill_tables(self, state):
        """Scores of transitions from the weights, not by steps."""
        scores = log_edge(self.features, state.w, self.data.class_ptr, self.data.class_attr)
        state.log_edge[:] = scores + self.data.bounds.edge

    def _rescore(self, log_loss):
        """Everything but w and who is awake from scratch; this place becomes the anchor."""
        state = self.state
        arrays = (array.copy() for array in (state.w, state.ceiling, state.asleep, state.count))
        self.anchor = Anchor(*arrays, log_loss, float(state.number[SHARE]))
        self._fill_tables(state)
        for array in (state.sums, state.edge_sum, state.cell, state.edge_cell):
            array[:] = 0.0
        state.stale[:] = 1
        state.number[LOG_REF], state.number[DRIFT] = (log_loss, 0.0) if log_loss > -math.inf else (0.0, 0.0)
        awake = np.flatnonzero(state.asleep == 0)
        visit(awake, True, log_loss, self.data, state, self.work)
        settle(self.data, state)

    def advance(self, target):
        """Rounds until there are `target`, or until `boost_rounds` has a reason to return;
        returns its status.
        """
        # before its rounds are run, so that an interrupt finds it whole
        if len(self.journal.feature) < target:
            longer = max(target, 2 * len(self.journal.feature))
            self.journal = Journal(*(np.resize(old, longer) for old in self.journal))
        rule = self.cap, self.tol, self.kind
        arrays = self.data, self.index, self.state, self.work, self.journal
        status = boost_rounds(target, BUDGET, *rule, *arrays)
        if status == DRIFTED:
            self._rescore(self.objective())
        return status

    # ---- what the caller sees

    def objective(self):
        return float(self.journal.log_loss[self.done - 1]) if self.done else self.anchor.log_loss

    def report(self):
        self._tick()
        promised = float(-np.expm1(-self.journal.gain[self.done - 1]))
        return Step(self.done, self.objective(), promised, int(np.count_nonzero(self.state.w)), self.seconds)

    def pause(self, callback, step):
        """Run the callback with the clock stopped."""
        shown = self.state.w.view()
        shown.flags.writeable = False
        stop = callback(step, shown)
        self.clock = time.perf_counter()
        return bool(stop)

    def export(self):
        """Arrays only, so that np.savez can keep them."""
        self._tick()
        state = {f"anchor_{name}": np.array(value) for name, value in self.anchor._asdict().items()}
        state |= {name: array[: self.done].copy() for name, array in self.journal._asdict().items()}
        return state | {"seconds": np.array(self.seconds)}

    def _tick(self):
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + (now - self.clock), now
