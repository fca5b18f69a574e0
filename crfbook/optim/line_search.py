"""How far to go along a direction: a strong Wolfe search (smooth objectives) and backtracking (OWL-QN).

Both start at step 1, which a quasi-Newton direction nearly always deserves: one evaluation per iteration is the rule.
"""

import math
from typing import NamedTuple

DECREASE = 1e-4  # Armijo: a step must bring this share of the decrease that the slope promises
CURVATURE = 0.9  # Wolfe: and flatten the slope to this share
FLAT = 1e-12  # where the slope promises less than this (relative), a failed search means that float64 ends here
LOST = 1e-17  # a step that promises less than this cannot change the objective: no use in trying smaller ones


class Outcome(NamedTuple):
    """`accepted`: objective at the point of the last trial, or None with the `reason`."""

    accepted: float | None
    reason: str = ""


def _failure(objective, promised, last_was_finite):
    if not (last_was_finite and math.isfinite(promised)):
        return Outcome(None, "non-finite objective")
    return Outcome(None, "rounding floor" if abs(promised) <= FLAT * abs(objective) else "line search failed")


def wolfe_search(try_step, objective, slope, step, max_trials):
    """Find a step with  f(step) <= f(0) + DECREASE*step*slope  and  |f'(step)| <= CURVATURE*|slope|.

    `try_step(step) -> (f, f')`. A bracket [low, high] is kept: low satisfies the first condition and still descends; high violates
    it or ascends. Until high is known the step grows by the secant rule on f', then the minimiser of the cubic through both ends is
    tried. Where f no longer falls visibly but has not risen either, the first condition is read off f' instead (Hager and Zhang
    2005, eq. 4.1), which rounding spares. Source: Nocedal and Wright, algorithms 3.5 and 3.6.
    """
    if not slope < 0.0:
        return _failure(objective, slope, True)
    promised, low, high = slope * step, (0.0, objective, slope), None
    finite = True
    for _ in range(max_trials):
        f, df = try_step(step)
        finite = math.isfinite(f) and math.isfinite(df)
        if not finite:
            high = (step, math.inf, math.inf)
        else:
            decreased = f <= objective + DECREASE * step * slope
            decreased = decreased or (f <= objective and df <= (2.0 * DECREASE - 1.0) * slope)
            if decreased and abs(df) <= -CURVATURE * slope:
                return Outcome(f)
            if decreased and df < 0.0:
                low, before = (step, f, df), low
            else:
                high = (step, f, df)
        step = _extend(before, low) if high is None else _inside(low, high)
        if -slope * step <= LOST * abs(objective):
            break
    if low[1] < objective:  # not flat enough, but lower
        f, _ = try_step(low[0])
        return Outcome(f)
    return _failure(objective, promised, finite)


def _extend(before, low):
    """Secant step on the slope, between 2 and 10 times what was tried last."""
    rise = low[2] - before[2]
    secant = low[0] - low[2] * (low[0] - before[0]) / rise if rise > 0.0 else math.inf
    return min(max(secant, 2.0 * low[0]), 10.0 * low[0])


def _inside(low, high):
    """Minimiser of the cubic with the values and slopes of both ends, kept off the ends."""
    (a, fa, da), (b, fb, db) = low, high
    width = b - a
    if not math.isfinite(fb):
        return a + 0.1 * width
    theta = da + db - 3.0 * (fb - fa) / width
    root = theta * theta - da * db
    if root <= 0.0:
        return a + 0.5 * width
    root = math.sqrt(root)
    share = (theta - da + root) / (db - da + 2.0 * root)
    return a + min(max(share, 0.1), 0.9) * width if math.isfinite(share) else a + 0.5 * width


def backtracking_search(try_step, objective, slope, step, max_trials):
    """Halve the step until  C(step) <= C(0) + DECREASE*predicted,  predicted = first-order change of the projected step.

    `try_step(step) -> (C, predicted, squared norm of the gradient)`. Source: Andrew and Gao (2007), section 3.2; SPEC A.11.
    """
    if not slope < 0.0:
        return _failure(objective, slope, True)
    promised, finite = slope * step, True
    for _ in range(max_trials):
        value, predicted, squares = try_step(step)
        finite = math.isfinite(value) and math.isfinite(squares)
        if finite and value <= objective + DECREASE * predicted and predicted < 0.0:
            return Outcome(value)
        step *= 0.5 if finite else 0.1
        if -slope * step <= LOST * abs(objective):
            break
    return _failure(objective, promised, finite)
