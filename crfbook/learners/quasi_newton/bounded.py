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
from crfbook.learners.quasi_newton.orthants import pseudo_gradient
from crfbook.training.certificate import Rules, checked_start, evaluated
from crfbook.training.loop import OptResult, Step
from crfbook.training.threads import one_blas_thread

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Function, State


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
    memory = whole("memory", memory, 1)
    rules = Rules(c1, c2, tol, tol_gradient, max_iterations)
    run = _Run(fun, rules, callback)
    with one_blas_thread():
        try:
            status = run.start(w0 if state is None else state["w"], state)
            if status is None:
                status = run.search(memory)
        except KeyboardInterrupt:
            if run.w is None:
                raise
            status = "interrupted"
    state = {"w": run.w, "iteration": np.array(run.iteration), "seconds": np.array(run.seconds)}
    return OptResult(
        run.w,
        run.objective,
        rules.outcome(status, run.w),
        run.iteration,
        run.history,
        state,
        run.n_evaluations,
    )


class _Run:
    def __init__(self, fun, rules, callback):
        self.fun, self.rules, self.callback = fun, rules, callback
        self.w, self.reason, self.history, self.n_evaluations = None, None, [], 0
        self.last = (np.zeros(0), 0.0, np.zeros(0))  # the last evaluation: both halves, value, gradient
        self.seconds, self.clock = 0.0, time.perf_counter()

    def start(self, w0, state):
        w = checked_start(w0)
        self.iteration = 0 if state is None else int(state["iteration"])
        self.seconds = 0.0 if state is None else float(state["seconds"])
        self.halves = np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)])
        self.evaluate(self.halves)
        self.accept(self.halves)
        return self.rules.verdict(self.objective, self.violation, self.iteration)

    def search(self, memory):
        limits = {"maxcor": memory, "maxiter": 10**9, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0}
        found = scipy_minimize(
            self.evaluate,
            self.halves,
            jac=True,
            method="L-BFGS-B",
            options=limits,
            bounds=[(0.0, None)] * len(self.halves),
            callback=self.watch,
        )
        if self.reason is None and not np.isfinite(found.fun):
            return "non-finite objective"
        return self.reason or "line search failed"

    def evaluate(self, halves):
        """Value and gradient (2F,) of the smooth problem with bounds."""
        w = halves[: len(halves) // 2] - halves[len(halves) // 2 :]
        value, grad = evaluated(self.fun, w)
        self.n_evaluations += 1
        self.last = halves.copy(), value, np.array(grad, dtype=np.float64)
        return self.last[1] + self.rules.c1 * float(halves.sum()), np.concatenate(
            [self.last[2], -self.last[2]]
        ) + self.rules.c1

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

    def watch(self, intermediate_result):
        self.accept(intermediate_result.x)
        self.iteration += 1
        self.seconds += time.perf_counter() - self.clock
        step = Step(
            self.iteration, self.objective, self.violation, int(np.count_nonzero(self.w)), self.seconds
        )
        self.history.append(step)
        self.reason = self.rules.verdict(self.objective, self.violation, self.iteration)
        shown = self.w.view()
        shown.flags.writeable = False
        if self.callback is not None and self.callback(step, shown) and self.reason != "converged":
            self.reason = "stopped by callback"
        self.clock = time.perf_counter()
        if self.reason is not None:
            raise StopIteration
