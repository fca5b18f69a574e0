"""How far to go along a direction: a strong Wolfe search (smooth objectives) and backtracking (OWL-QN).

Both start at step 1, which a quasi-Newton direction nearly always deserves:
one evaluation per iteration is the rule.
"""

import math
from typing import NamedTuple

DECREASE = 1e-4  # Armijo: a step must bring this share of the decrease that the slope promises
CURVATURE = 0.9  # Wolfe: and flatten the slope to this share
# a step that is too short is extended by so many times its last advance; the secant rule would go even
# further
GROWTH = 4.0
NARROW = 0.1  # a trial inside a bracket stays this share of the width off its ends
WIDE = 0.66  # and no farther from low than this share where f has risen
FLAT = (
    1e-12  # where the slope promises less than this (relative), a failed search means that float64 ends here
)
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

    `try_step(step) -> (f, f')`. A bracket [low, high] is kept: low satisfies the first condition and still
    descends; high violates it or ascends. Until high is known the step grows by GROWTH times its last
    advance, then `_inside` interpolates. Both rules are More and Thuente's (1994, section 4). The growth
    matters beyond its own iteration: the first step of all, 1/|g|, is mostly too short, and the one that is
    taken instead gives the memory its first curvature, hence the path of all that follow. Where f no longer
    falls visibly but has not risen either, the first condition is read off f' instead (Hager and Zhang 2005,
    eq. 4.1), which rounding spares. Source: Nocedal and Wright, algorithms 3.5 and 3.6, with these two rules.
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
        step = low[0] + GROWTH * (low[0] - before[0]) if high is None else _inside(low, high)
        if -slope * step <= LOST * abs(objective):
            break
    if low[1] < objective:  # not flat enough, but lower
        f, _ = try_step(low[0])
        return Outcome(f)
    return _failure(objective, promised, finite)


def _inside(low, high):
    """Between the ends: the minimiser of a cubic or of a parabola,
    whichever is nearer to low (or their mean), off the ends.
    """
    (a, fa, da), (b, fb, db) = low, high
    width = b - a
    if not math.isfinite(fb):
        return a + NARROW * width
    theta = da + db - 3.0 * (fb - fa) / width
    root = math.sqrt(max(theta * theta - da * db, 0.0))
    bottom = db - da + 2.0 * root
    # the cubic with the values and slopes of both ends
    share = (theta - da + root) / bottom if bottom > 0.0 else 0.5
    if fb > fa:
        parabola = 0.5 * da / (da - (fb - fa) / width)  # through both values, with the slope at low
        share = min(share, 0.5 * (share + parabola), WIDE)
    elif db > 0.0:
        share = min(share, da / (da - db))  # the parabola with both slopes
    return a + min(max(share, NARROW), 1.0 - NARROW) * width if math.isfinite(share) else a + 0.5 * width


def backtracking_search(try_step, objective, slope, step, max_trials):
    """Halve the step until  C(step) <= C(0) + DECREASE*predicted,
    predicted = first-order change of the projected step.

    `try_step(step) -> (C, predicted, squared norm of the gradient)`. Source: Andrew and Gao (2007),
    section 3.2.
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
