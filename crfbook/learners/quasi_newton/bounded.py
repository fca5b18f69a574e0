"""L1 by dual variables: every weight split in two that are not negative, and SciPy's bounded L-BFGS.

    w = p - n,  p, n >= 0:    f(p - n) + c1 sum (p + n)    is smooth; at its minimum one of p[k], n[k] is zero

The formulation of Kazama and Tsujii (2003), "Evaluation and extension of maximum entropy models with
inequality constraints", section 3.1: p and n are the multipliers of the constraints |expected - observed
count| <= c1. It doubles the weights and is the baseline of Sokolovska et al.
(2010) and of Andrew and Gao (2007).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize as scipy_minimize

from crfbook._checks import whole
from crfbook.learners.quasi_newton.steps import pseudo_gradient
from crfbook.training.certificate import Rules, checked_start, evaluated
from crfbook.training.interrupts import listen
from crfbook.training.loop import Learner, Training

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Function, OptResult, State


def dual_variables(
    fun: Function,
    w0: ArrayLike | None = None,
    *,
    c1: float,
    c2: float = 0.0,
    memory: int = 10,
    max_iterations: int | None = None,
    tol: float = 1e-6,
    tol_gradient: float = 1e-3,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise fun(w) + c1*|w|_1 over twice as many bounded variables.

    Arguments, stopping rules and Ctrl-C as `minimize` of lbfgs.py. SciPy does not hand out its memory
    of curvature: `state` continues from the same weights with an empty one, not bit for bit. Returns an
    OptResult; "line search failed" is what SciPy says of it, at the rounding floor too.
    """
    rules = Rules(c1, c2, tol, tol_gradient, max_iterations)
    return _SciPyDrives(callback).run(_Halves(fun, w0, rules, whole("memory", memory, 1), state))


class _SciPyDrives(Training):
    """The outer loop inside out: SciPy has its own, calls us after each iteration, and is told to stop."""

    def _iterate(self, learner):
        listen()
        learner.begin()
        self.clock, self.status = time.perf_counter(), self._reason(learner)
        if self.status is None:
            value = learner.search(lambda halves: self._watch(learner, halves))
            failure = "line search failed" if np.isfinite(value) else "non-finite objective"
        return self.status or failure

    def _watch(self, learner, halves):
        learner.accept(halves)
        learner.iteration += 1
        learner.seconds += time.perf_counter() - self.clock
        self._note(learner)
        self.clock, self.status = time.perf_counter(), self._reason(learner)
        listen()
        if self.status is not None:
            raise StopIteration

    def _reason(self, learner):
        reason = learner.finished() or ("stopped by callback" if self.stopped else None)
        most = learner.max_iterations
        return reason or (None if most is None or learner.iteration < most else "max_iterations")


class _Halves(Learner):
    """w = p - n, and SciPy's search for both halves."""

    def __init__(self, fun, w0, rules, memory, state):
        self.fun, self.rules, self.memory, self.max_iterations = fun, rules, memory, rules.max_iterations
        self.w = checked_start(state["w"] if state else w0)
        if state:
            self.iteration, self.seconds = int(state["iteration"]), float(state["seconds"])
        self.last = (np.zeros(0), 0.0, np.zeros(0))  # the last evaluation: both halves, value, gradient

    def begin(self):
        self.halves = np.concatenate([np.maximum(self.w, 0.0), np.maximum(-self.w, 0.0)])
        self.accept(self.halves)

    def search(self, watch):
        """The last value that SciPy has seen."""

        def callback(intermediate_result):  # SciPy looks for this very name
            watch(intermediate_result.x)

        limits = {"maxcor": self.memory, "maxiter": 10**9, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0}
        bounds = [(0.0, None)] * len(self.halves)
        return scipy_minimize(
            self.evaluate, self.halves, jac=True, method="L-BFGS-B", options=limits, bounds=bounds,
            callback=callback,
        ).fun  # fmt: skip

    def evaluate(self, halves):
        """Value and gradient (2F,) of the smooth problem with bounds."""
        w, c1 = halves[: len(halves) // 2] - halves[len(halves) // 2 :], self.rules.c1
        value, grad = evaluated(self.fun, w)
        self.n_evaluations += 1
        self.last = halves.copy(), value, np.array(grad, dtype=np.float64)
        return value + c1 * float(halves.sum()), np.concatenate([self.last[2], -self.last[2]]) + c1

    def accept(self, halves):
        """The point of an iteration: w, its objective (where both halves are positive,
        w = p - n costs less) and violation.
        """
        if not np.array_equal(halves, self.last[0]):
            self.evaluate(halves)
        _, value, grad = self.last
        w = halves[: len(halves) // 2] - halves[len(halves) // 2 :]
        squares, largest = pseudo_gradient(w, grad, self.rules.c1, np.empty_like(w))
        self.objective = value + self.rules.c1 * float(np.abs(w).sum())
        self.violation = self.rules.violation(squares, largest)
        self.w = w

    def weights(self):
        return self.w

    def finished(self):
        return self.rules.verdict(self.objective, self.violation)

    def outcome(self, status):
        return self.rules.outcome(status, self.w)

    def state(self):
        return {"w": self.w, "iteration": np.array(self.iteration), "seconds": np.array(self.seconds)}
