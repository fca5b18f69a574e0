"""The one outer loop of training: iteration after iteration of a learner, what is reported, why it ends.

    run(learner, ...)     one learner until it has a reason to stop
    stages(script, ...)   several learners, one after the other, as one training

A learner knows its algorithm, and nothing of clocks, histories, callbacks and Ctrl-C; `Learner` says what it
has. An iteration is whatever it says: a step of L-BFGS, an epoch, a sweep, a hundred rounds of boosting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

import numpy as np

from crfbook._checks import function_or_none
from crfbook.training.interrupts import deliver_signals, signals_at_once
from crfbook.training.threads import one_blas_thread

GAVE_UP = ("line search failed", "non-finite objective", "non-finite weights", "diverged")  # statuses


class Step(NamedTuple):
    """One iteration as the callback sees it."""

    iteration: int  # 1 after the first step
    objective: float  # smooth part + c1*|w|_1, in nats
    violation: float  # c2 > 0: bound on objective minus minimum, in nats; c2 = 0: largest |pseudo-gradient|
    n_active: int  # weights that are not zero
    seconds: float  # since the start of training, without the time spent in callbacks
    # of active sets: nats between the objective and that of the whole model, at most, where it is known
    error_bound: float = math.nan


class OptResult(NamedTuple):
    """What every learner returns.

    `status` says why it ended. Words they share: "converged" (the certificate is met), "empty model" (so it
    is, and c1 leaves no weight), "small change" (the objective hardly moved), "rounding floor" (float64 shows
    no further decrease), "max_iterations", "stopped by callback", "interrupted" (Ctrl-C), "line search
    failed", "non-finite objective". Whatever it says, `w` is the last good point: after Ctrl-C before the
    first evaluation has ended the start, with nan as its objective.
    """

    w: np.ndarray  # (F,)
    objective: float
    status: str
    n_iter: int
    history: list  # of Step: the iterations of this call
    state: dict  # arrays only; the same learner, given it, goes on as if it had never stopped
    n_evaluations: int = 0


Callback = Callable[[Step, Any], object] | None
State = Mapping[str, Any] | None


class Learner:
    """What the loop asks of a learner. Its constructor checks and allocates, and evaluates nothing.

    iteration, seconds : done so far, those of earlier calls (`state`) included; the loop adds to seconds
    before : (iterations, seconds) of other learners in the same training; `Step` counts them, too
    max_iterations : in all; None: no limit
    objective, violation, error_bound : where it stands, as `Step` has them; nan before the first evaluation
    """

    iteration, seconds, before = 0, 0.0, (0, 0.0)
    max_iterations: int | None = None
    n_evaluations = 0
    objective = violation = error_bound = float("nan")

    def begin(self) -> None:
        """What comes before the first iteration, as a rule the first evaluation."""

    def advance(self) -> str | None:
        """One more iteration; None, or the reason why there is none."""
        raise NotImplementedError

    def report(self) -> tuple[float, float]:
        """(objective, violation) for the `Step` of the iteration that has ended."""
        return self.objective, self.violation

    def weights(self) -> Any:
        """(F,): what would be returned now; before `begin` the start. A callback reads it while it runs."""
        raise NotImplementedError

    def finished(self) -> str | None:
        """The reason to stop here, or None."""

    def settle(self) -> None:
        """After Ctrl-C: be where an iteration ended, or wherever the weights are good."""

    def final_objective(self) -> float:
        """The objective of `weights()` at the end. A learner that estimates it passes over the data here."""
        return self.objective

    def outcome(self, status: str) -> str:
        """`status` as it is returned."""
        return status

    def state(self) -> dict[str, np.ndarray]:
        """Arrays only, from which a learner of the same problem goes on."""
        return {}


class Training:
    """One training as the user sees it, of one learner or several: its history, its callback, its end."""

    def __init__(self, callback: Callback = None) -> None:
        self.callback = function_or_none("callback", callback)
        self.numpy_errors = np.geterr()  # as the callback finds them
        self.history: list[Step] = []
        self.stopped = False

    def run(self, learner: Learner) -> OptResult:
        """Iterations of a `Learner` until there is a reason to stop; see the function `run`."""
        return _kept(lambda: self._result(learner))

    def _result(self, learner):
        began = len(self.history)
        try:
            status = self._iterate(learner)
        except KeyboardInterrupt:
            status = "interrupted"
            learner.settle()
        try:
            objective = float(learner.final_objective())
        except KeyboardInterrupt:
            status = "interrupted"
            objective = self.history[-1].objective if len(self.history) > began else float("nan")
        if len(self.history) > began and learner.error_bound >= 0.0:  # `final_objective` may have found it
            found = {"objective": objective, "error_bound": learner.error_bound}
            self.history[-1] = self.history[-1]._replace(**found)
        n_iter, status = learner.before[0] + learner.iteration, learner.outcome(status)
        history, state = self.history[began:], learner.state()
        return OptResult(learner.weights(), objective, status, n_iter, history, state, learner.n_evaluations)

    def _iterate(self, learner):
        """The reason why it ended."""
        clock = time.perf_counter()
        deliver_signals()
        learner.begin()
        status = learner.finished()
        while status is None:
            deliver_signals()
            if learner.max_iterations is not None and learner.iteration >= learner.max_iterations:
                return "max_iterations"
            status = learner.advance()
            if status is not None:
                break
            learner.seconds += time.perf_counter() - clock
            self._note(learner)
            clock = time.perf_counter()
            status = learner.finished() or ("stopped by callback" if self.stopped else None)
        return status

    def _note(self, learner):
        """Add the iteration that has ended to the history, and show it."""
        w = learner.weights()
        values = w.w if hasattr(w, "features") else w  # of virtual weights a `Sparse` has the active ones
        iteration, seconds = learner.before[0] + learner.iteration, learner.before[1] + learner.seconds
        objective, violation = map(float, learner.report())
        self.history.append(
            Step(iteration, objective, violation, int(np.count_nonzero(values)), seconds, learner.error_bound)
        )
        if self.callback is not None:
            shown = values.view()
            shown.flags.writeable = False
            with signals_at_once(), np.errstate(**self.numpy_errors):
                seen = shown if values is w else w._replace(w=shown)
                more = (learner.state,) if getattr(self.callback, "wants_state", False) else ()
                self.stopped = bool(self.callback(self.history[-1], seen, *more))


def run(learner: Learner, callback: Callback = None) -> OptResult:
    """Iterations of a `Learner` until there is a reason to stop: an `OptResult`.

    callback : called with (Step, weights) after each iteration, the weights read-only; True stops. Its time
        is not counted. One that has an attribute wants_state that is true is called with a third argument, a
        function without arguments that returns the learner's state: what `OptResult.state` would be here.

    Ctrl-C ends with the status "interrupted", whenever it comes.
    """
    return Training(callback).run(learner)


def stages(
    script: Callable[[Training], Generator[Learner, OptResult, OptResult]], callback: Callback = None
) -> OptResult:
    """Several learners, one after the other, as one training: an `OptResult` with the history of all.

    script : called with the `Training`, whose `stopped` says whether the callback has had enough. A
        generator: it yields learners, is sent the `OptResult` of each, also of one that was stopped or
        interrupted, and returns that of the whole. Where Ctrl-C comes between two of them, the result is
        that of the first, with the status "interrupted".
    """
    training = Training(callback)
    return _kept(lambda: _run_script(training, script))._replace(history=training.history)


def _run_script(training, script):
    learners, result = script(training), None
    try:
        learner = next(learners)
        while True:
            result = training.run(learner)
            learner = learners.send(result)
    except StopIteration as end:
        return end.value
    except KeyboardInterrupt:
        if result is None:
            raise  # there is no learner yet, and so no weights
        return result._replace(status="interrupted")


def _kept(work):
    """The `OptResult` of work(), also where Ctrl-C has waited for its end."""
    result = None
    try:
        # A product split over threads depends on their number in its last bits. What leaves float64 is seen
        # in the objective: `status` says so, and not a warning of NumPy for each place that it passes.
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            result = work()
    except KeyboardInterrupt:
        if result is None:
            raise
        result = result._replace(status="interrupted")
    if not math.isfinite(result.objective) and result.status not in (*GAVE_UP, "interrupted"):
        result = result._replace(status="non-finite objective")
    return result
