"""When an optimiser of  f(w) + c1*|w|_1  may stop, and what that proves."""

import math

import numpy as np


class Rules:
    """The common arguments of such optimisers, checked, and their stopping rule;
    see `minimize` of quasi_newton.py.
    """

    def __init__(self, c1, c2, tol, tol_gradient, max_iterations):
        for name, value in (("c1", c1), ("c2", c2), ("tol", tol), ("tol_gradient", tol_gradient)):
            if not (is_number(value) and math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
        self.max_iterations = None if max_iterations is None else whole("max_iterations", max_iterations, 0)
        self.c1, self.c2, self.tol, self.tol_gradient = float(c1), float(c2), tol, tol_gradient

    def checked_start(self, w0):
        """w0 as a float64 vector (F,) of its own; ValueError if it is none, or not finite."""
        w = np.array(w0, dtype=np.float64)
        if w.ndim != 1:
            raise ValueError(
                f"w0 must be one vector of weights, got {'None' if w0 is None else f'shape {w.shape}'}"
            )
        if not np.isfinite(w).all():
            raise ValueError(f"w0 must be finite, weight {int(np.flatnonzero(~np.isfinite(w))[0])} is not")
        return w

    def violation(self, squares, largest):
        """`Step.violation` of a pseudo-gradient: c2 > 0: bound |pg|^2/(4 c2) on what is left; c2 = 0:
        its largest entry.
        """
        if not math.isfinite(squares):
            return squares  # a maximum may pass over nan
        return squares / (4.0 * self.c2) if self.c2 > 0 else float(largest)

    def verdict(self, objective, violation, iteration):
        """The reason to stop here, or None."""
        if not (math.isfinite(objective) and math.isfinite(violation)):
            return "non-finite objective"
        if violation <= (self.tol * max(1.0, abs(objective)) if self.c2 > 0 else self.tol_gradient):
            return "converged"
        if self.max_iterations is not None and iteration >= self.max_iterations:
            return "max_iterations"
        return None

    def outcome(self, status, w):
        """`status`, or "empty model" where it is the proof that no weight of w (F,) survives c1."""
        return "empty model" if status == "converged" and self.c1 > 0 and not np.any(w) else status


def is_number(value):
    """Whether it can be compared with one: no text, no None, no array of several."""
    return hasattr(value, "__float__") and not getattr(value, "ndim", 0)


def check_callback(callback):
    """ValueError if it is neither None nor a function."""
    if callback is not None and not callable(callback):
        raise ValueError(f"callback: expected a function or None, got {callback!r:.80}")


def whole(name, value, least):
    """`value` as an int; ValueError if it is none or below `least`."""
    if not (is_number(value) and math.isfinite(value) and value == int(value) and value >= least):
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)


def duality_gap(value, grad, w, c1):
    """At most this far, in nats, is  f(w) + c1 |w|_1  from its minimum,
    for any convex f that is nowhere negative.

        f(u) >= s (f(w) + g.(u - w))  for every u and 0 <= s <= 1,  and  s g.u + c1 |u|_1 >= 0  if  s |g|_inf
        <= c1 so the minimum is at least  s (f(w) - g.w)  with  s = min(1, c1/|g|_inf)

    value, grad (F,): f and its gradient g at w (F,). Source: convexity twice; for the lasso it is the usual
    scaled dual point (Kim, Koh, Lustig, Boyd and Gorinevsky 2007, section III).
    """
    largest = float(np.abs(grad).max(initial=0.0))
    share = min(1.0, c1 / largest) if largest > 0 else 1.0
    bound = max(0.0, share * (value - float(grad @ w)))
    return value + c1 * float(np.abs(w).sum()) - bound
