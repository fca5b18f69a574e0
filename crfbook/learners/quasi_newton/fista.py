"""Proximal gradient with momentum (FISTA): the referee for what an L1 penalty does.
It shares no step with OWL-QN.

    w' = soft threshold of  v - step grad f(v)  at  step c1   exact zeros, no orthants, no memory of curvature
    v' = w' + (t - 1)/t' (w' - w),   t' = (1 + sqrt(1 + 4 t^2 step/step'))/2

`step` is found by backtracking; where the momentum points uphill it is dropped (t = 1). Sources: Beck and
Teboulle (2009), FISTA; Scheinberg, Goldfarb and Bai (2014), section 3, for steps that may grow again;
O'Donoghue and Candes (2015), section 3.2, for the restart by gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from crfbook.learners.quasi_newton.steps import proximal_step, pseudo_gradient
from crfbook.training.certificate import Rules, checked_start, evaluated
from crfbook.training.loop import Learner, run

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Function, OptResult, State

GROWTH = 1.1  # an accepted step is tried so much longer next time
MAX_TRIALS = 60


def proximal_gradient(
    fun: Function, w0: ArrayLike | None = None, *, c1: float, c2: float = 0.0,
    max_iterations: int | None = None, tol: float = 1e-6, tol_gradient: float = 1e-3,
    callback: Callback = None, state: State = None,
) -> OptResult:  # fmt: skip
    """Minimise fun(w) + c1*|w|_1, one iteration two evaluations (value and gradient at v and at w').

    Arguments, stopping rules, Ctrl-C and bad values as `minimize` of lbfgs.py; `state` continues bit
    for bit. The objective may rise for some iterations: that is what momentum does. Returns an OptResult;
    `w` is the last point.
    """
    return run(_Fista(fun, w0, Rules(c1, c2, tol, tol_gradient, max_iterations), state), callback)


class _Fista(Learner):
    """Where the search stands: w, the point v with its momentum, the step. They are replaced together,
    after a whole iteration.
    """

    def __init__(self, fun, w0, rules, state):
        self.fun, self.rules, self.max_iterations = fun, rules, rules.max_iterations
        self.t, self.step = 1.0, None  # None: nothing has been evaluated
        if not state:
            self.w = self.v = checked_start(w0)
            return
        self.v, self.t, self.step = np.array(state["v"]), float(state["t"]), float(state["step"])
        self.iteration, self.seconds = int(state["iteration"]), float(state["seconds"])
        self.objective, self.violation = float(state["objective"]), float(state["violation"])
        self.w = np.array(state["w"])

    def begin(self):
        if self.step is None:
            self.objective, self.violation, squares, _ = self.measure(self.w)
            self.step = 1.0 / max(1.0, math.sqrt(squares))

    def weights(self):
        return self.w

    def finished(self):
        return self.rules.verdict(self.objective, self.violation)

    def outcome(self, status):
        return self.rules.outcome(status, self.w)

    def state(self):
        names = ("w", "v", "t", "step", "iteration", "seconds", "objective", "violation")
        return {} if self.step is None else {name: np.array(getattr(self, name)) for name in names}

    def evaluate(self, w):
        value, grad = evaluated(self.fun, w)
        self.n_evaluations += 1
        return value, np.array(grad, dtype=np.float64)

    def measure(self, w):
        """(objective, violation, |pseudo-gradient|^2, gradient) at w (F,)."""
        value, grad = self.evaluate(w)
        squares, largest = pseudo_gradient(w, grad, self.rules.c1, np.empty_like(w))
        return (
            value + self.rules.c1 * float(np.abs(w).sum()),
            self.rules.violation(squares, largest),
            squares,
            grad,
        )

    def advance(self):
        value, grad = self.evaluate(self.v)
        if not math.isfinite(value):  # momentum led out of where f is finite
            self.v, self.t = self.w, 1.0
            value, grad = self.evaluate(self.v)
        step, moved = GROWTH * self.step, np.empty_like(self.w)
        for _ in range(MAX_TRIALS):
            slope, squares, norm1 = proximal_step(self.v, grad, step, self.rules.c1, moved)
            found = self.measure(moved)
            smooth, bound = found[0] - self.rules.c1 * norm1, squares / (2.0 * step)
            if math.isfinite(found[0]) and math.isfinite(found[2]):
                # The second test implies the first for convex f, and sees what rounding hides in values.
                if smooth <= value + slope + bound or (found[3] - grad) @ (moved - self.v) <= 2.0 * bound:
                    break
            step *= 0.5
        else:
            return "line search failed" if math.isfinite(found[0]) else "non-finite objective"
        t = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t * self.t * self.step / step))
        momentum = (self.t - 1.0) / t
        if (self.v - moved) @ (moved - self.w) > 0.0:
            t, momentum = 1.0, 0.0
        self.v, self.t, self.step = moved + momentum * (moved - self.w), t, step
        self.w, self.objective, self.violation = moved, found[0], found[1]
        self.iteration += 1
        return None
