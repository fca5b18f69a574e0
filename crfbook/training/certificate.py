"""When an optimiser of  f(w) + c1*|w|_1  may stop, and what that proves."""

import math
import sys
from collections.abc import Callable

import numpy as np

from crfbook._checks import number, whole

TINY = 1e-300  # a divisor that is never 0

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]  # w -> (objective, gradient)


class Rules:
    """Arguments that such optimisers share, checked, and their stopping rule: see `quasi_newton.minimize`."""

    def __init__(self, c1, c2, tol, tol_gradient=0.0, max_iterations=None):
        self.c1, self.c2 = number("c1", c1), number("c2", c2)
        self.tol, self.tol_gradient = number("tol", tol), number("tol_gradient", tol_gradient)
        self.max_iterations = None if max_iterations is None else whole("max_iterations", max_iterations)

    def violation(self, squares, largest):
        """`Step.violation` of a pseudo-gradient pg.

        c2 > 0: |pg|^2 / (4 c2), a bound on objective minus minimum. c2 = 0: the largest entry.
        """
        if not math.isfinite(squares):
            return squares  # nan or inf, which a maximum may hide
        bound = squares / self.c2 / 4.0 if self.c2 > 0 else float(largest)  # 4 c2 exceeds float64 before c2
        return min(bound, sys.float_info.max)  # inf, with a tiny c2, must not end training

    def violation_of(self, grad):
        """The violation of a gradient (F,)."""
        return self.violation(float(grad @ grad), np.abs(grad).max(initial=0.0))

    def enough(self, objective):
        """The violation at which the certificate is met."""
        return self.tol * max(1.0, abs(objective)) if self.c2 > 0 else self.tol_gradient

    def verdict(self, objective, violation):
        """The reason to stop here, or None."""
        if not (math.isfinite(objective) and math.isfinite(violation)):
            return "non-finite objective"
        if violation <= self.enough(objective):
            return "converged"
        return None

    def outcome(self, status, w):
        """`status`, or "empty model" where it is the proof that no weight of w (F,) survives c1."""
        return "empty model" if status == "converged" and self.c1 > 0 and not np.any(w) else status


def checked_start(w0):
    """w0 as a new float64 vector (F,); ValueError if it is not a vector of finite numbers."""
    w = np.array(w0, dtype=np.float64)
    if w.ndim != 1:
        raise ValueError(
            f"w0: expected one vector of weights, got {'None' if w0 is None else f'shape {w.shape}'}"
        )
    if not np.isfinite(w).all():
        k = int(np.argmin(np.isfinite(w)))
        raise ValueError(f"w0: expected finite weights, got {w[k]} at position {k}")
    return w


def evaluated(fun, w):
    """(value, grad (F,)) of fun at w (F,); ValueError if the gradient has another shape."""
    value, grad = fun(w)
    if np.shape(grad) != w.shape:
        raise ValueError(f"fun: expected a gradient of shape {w.shape}, got {np.shape(grad)}")
    return float(value), grad


def duality_gap(value, grad, w, c1):
    """A bound, in nats, on  f(w) + c1 |w|_1  minus its minimum, for a convex f that is nowhere negative.

        f(u) >= s (f(w) + g.(u - w))  for every u and 0 <= s <= 1,
        s g.u + c1 |u|_1 >= 0  if  s |g|_inf <= c1,
        so the minimum is at least  s (f(w) - g.w)  with  s = min(1, c1/|g|_inf)

    value, grad (F,): f and its gradient g at w (F,). Source: convexity twice; for the lasso it is the usual
    scaled dual point (Kim, Koh, Lustig, Boyd and Gorinevsky 2007, section III).
    """
    largest = float(np.abs(grad).max(initial=0.0))
    share = min(1.0, c1 / largest) if largest > 0 else 1.0
    bound = max(0.0, share * (value - float(grad @ w)))
    return value + c1 * float(np.abs(w).sum()) - bound
