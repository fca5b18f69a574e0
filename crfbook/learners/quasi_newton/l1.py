"""L1: what the penalty does to a step, coordinate by coordinate; the model of the proximal quasi-Newton step;
and two baselines.

The penalty c1*|w|_1 has a kink where a weight is zero. Inside one orthant, where every weight keeps its sign,
it is linear, so that L-BFGS may be used there. OWL-QN (Andrew and Gao 2007) chooses the orthant and cuts the
step where it would leave it: `owlqn_plain` is all of it, to read; `pseudo_gradient`, `align_direction` and
`orthant_step` are what `LBFGS` (lbfgs.py) takes from it.

The proximal quasi-Newton step, for `LBFGS` too, keeps the penalty in the model (`LocalModel`):

    d = argmin_d  g.d + d'B d/2 + c1 |w + d|_1,    B from the pairs of L-BFGS, d = 0 outside the free weights

This model knows the kink: a weight may go to zero, stay there or change sign inside one step. Free weights
are those that are not zero or whose pseudo-gradient is not. Sources: Scheinberg and Tang (2016), "Practical
inexact proximal quasi-Newton method"; Lee, Sun and Saunders (2014). The compact form of B is Byrd, Nocedal
and Schnabel (1994), eq. 2.17, with a diagonal in place of a multiple of the identity.

`proximal_gradient` is FISTA, a baseline without orthants and without memory of curvature:

    w' = soft threshold of  v - step grad f(v)  at  step c1
    v' = w' + (t - 1)/t' (w' - w),   t' = (1 + sqrt(1 + 4 t^2 step/step'))/2

`step` is found by backtracking; where the momentum points uphill it is dropped (t = 1). Sources: Beck and
Teboulle (2009), FISTA; Scheinberg, Goldfarb and Bai (2014), section 3, for steps that may grow again;
O'Donoghue and Candes (2015), section 3.2, for the restart by gradients.

`dual_variables` is a baseline, too: every weight split in two that are not negative, and SciPy's bounded
L-BFGS:

    w = p - n,  p, n >= 0:    f(p - n) + c1 sum (p + n)    is smooth; at its minimum one of p[k], n[k] is zero

It doubles the weights, and is the baseline of Sokolovska et al. (2010) and of Andrew and Gao (2007). Source:
Kazama and Tsujii (2003), "Evaluation and extension of maximum entropy models with inequality constraints",
section 3.1: p and n are the multipliers of the constraints |expected - observed count| <= c1.
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import ddot
from scipy.optimize import minimize as scipy_minimize

from crfbook._checks import whole
from crfbook._jit import kernel
from crfbook.training.certificate import Function, Rules, checked_start, evaluated
from crfbook.training.interrupts import deliver_signals
from crfbook.training.loop import Callback, Learner, OptResult, State, Training, run

BLOCK = 1024  # weights at a time, in the model of the proximal quasi-Newton step
TRIALS = 4  # of Newton's method on this model, mostly two
FLAT = 0.01  # relative: residuals of its equations below that end it
FIRST_DIAGONAL = 5  # measured before the first step and after 5, 15, 45, ... iterations
LEAST_CURVATURE = 0.5  # times c1: no smaller one counts, so that rare features make no long steps
GROWTH = 1.1  # FISTA tries a step so much longer than the last that was accepted
MAX_TRIALS = 60  # of FISTA, each half as long as the one before


@kernel
def pseudo_gradient(w, grad, c1, pg):
    """Steepest-ascent direction of f(w) + c1*|w|_1, written into `pg`; returns (sum of squares,
    largest magnitude).

        pg[k] = grad[k] + c1*sign(w[k])           w[k] != 0
              = grad[k] + c1                      w[k] == 0 and grad[k] < -c1
              = grad[k] - c1                      w[k] == 0 and grad[k] > +c1
              = 0                                 otherwise (the kink holds the weight at zero)

    pg is the shortest subgradient: it is zero exactly at the minimum.

    Arrays: w (F,), grad (F,) gradient of the smooth part, pg (F,) out. Cost: F. Source:
    Andrew and Gao (2007), eq. 4.
    """
    sum_squares = 0.0
    largest = 0.0
    for k in range(w.shape[0]):
        slope = grad[k]
        if w[k] > 0.0 or (w[k] == 0.0 and slope < -c1):
            slope += c1
        elif w[k] == 0.0 and -c1 <= slope <= c1:
            slope = 0.0
        else:  # also where the gradient is nan, so that the sum tells
            slope -= c1
        pg[k] = slope
        sum_squares += slope * slope
        largest = max(largest, abs(slope))
    return sum_squares, largest


@kernel
def align_direction(pg, direction):
    """Drop the components of `direction` that do not descend;
    returns the slope  sum_k pg[k]*direction[k]  of what is left.

        direction[k] = 0   where  direction[k]*pg[k] >= 0

    Arrays: pg (F,), direction (F,) changed in place. Cost: F. Source: Andrew and Gao (2007), section 3.2.
    """
    slope = 0.0
    for k in range(pg.shape[0]):
        product = direction[k] * pg[k]
        if product >= 0.0:
            direction[k] = 0.0
        else:
            slope += product
    return slope


@kernel
def orthant_step(w, direction, pg, step, w_new):
    """Move along `direction` and stop every weight that would cross zero; returns (decrease predicted,
    |w_new|_1).

        xi[k]    = sign(w[k]), or -sign(pg[k]) where w[k] == 0             the orthant of this iteration
        w_new[k] = w[k] + step*direction[k], or 0 if its sign is not xi[k]
        predicted = sum_k pg[k]*(w_new[k] - w[k])        negative: first-order change of the objective

    Arrays: w (F,), direction (F,), pg (F,), w_new (F,) out. Cost: F. Source: Andrew and Gao (2007), eq. 5.
    """
    predicted = 0.0
    norm1 = 0.0
    for k in range(w.shape[0]):
        xi = w[k] if w[k] != 0.0 else -pg[k]
        moved = w[k] + step * direction[k]
        if moved * xi <= 0.0:
            moved = 0.0
        w_new[k] = moved
        predicted += pg[k] * (moved - w[k])
        norm1 += abs(moved)
    return predicted, norm1


def owlqn_plain(fun, w, c1, iterations, memory=10):
    """Minimise fun(w) + c1 |w|_1 by so many steps of OWL-QN; returns the weights (F,).

    The readable sister of `minimize(..., c1=c1, l1_method="owlqn")`. With c1 = 0 there are no orthants: then
    it is L-BFGS, with a line search that halves.

        pg[k] = grad[k] + c1 sign(w[k]), or where w[k] = 0  sign(grad[k]) max(|grad[k]| - c1, 0)
        d = -H pg   by the two loops over the pairs s = w' - w, y = grad' - grad of the smooth part
        d[k] = 0    where it does not descend:  d[k] pg[k] >= 0
        w' = w + step d, or 0 where its sign is not that of the orthant, xi = sign(w), or -sign(pg) at 0

    Arguments:
        fun : w -> (value, grad (F,)) of the smooth part
        w : (F,), the start
        c1 : >= 0, weight of |w|_1
        iterations : number of steps
        memory : pairs that are kept
    Source: Andrew and Gao (2007), sections 3.1 and 3.2.
    """
    pairs = []
    value, grad = fun(w)
    objective = value + c1 * np.abs(w).sum()
    for _ in range(iterations):
        at_zero = np.sign(grad) * np.maximum(np.abs(grad) - c1, 0.0)
        pg = np.where(w != 0, grad + c1 * np.sign(w), at_zero)
        d = -pg
        shares = []
        for s, y in reversed(pairs):
            shares.append(s @ d / (s @ y))
            d -= shares[-1] * y
        if pairs:
            s, y = pairs[-1]
            d *= (s @ y) / (y @ y)
        for (s, y), share in zip(pairs, reversed(shares), strict=True):
            d += (share - y @ d / (s @ y)) * s
        xi = np.where(w != 0, np.sign(w), -np.sign(pg))
        if c1 > 0:
            d[d * pg >= 0] = 0.0
        step = 1.0 if pairs else 1.0 / max(1.0, np.linalg.norm(pg))
        while True:
            moved = w + step * d
            if c1 > 0:
                moved[moved * xi <= 0] = 0.0
            value, grad_moved = fun(moved)
            lower = value + c1 * np.abs(moved).sum()
            if lower <= objective + 1e-4 * pg @ (moved - w):
                break
            step /= 2.0
        s, y = moved - w, grad_moved - grad
        if s @ y > 1e-12 * np.linalg.norm(s) * np.linalg.norm(y):
            pairs = [*pairs, (s, y)][-memory:]
        w, grad, objective = moved, grad_moved, lower
    return w


@kernel
def proximal_step(v, grad, step, c1, w_new):
    """One proximal-gradient step from v, written into `w_new`; returns (grad . d, |d|^2,
    |w_new|_1) with d = w_new - v.

        u        = v[k] - step*grad[k]
        w_new[k] = sign(u) max(|u| - step*c1, 0)
                 = argmin_w  grad[k] (w - v[k]) + (w - v[k])^2 / (2 step) + c1 |w|

    Arrays: v (F,), grad (F,) gradient of the smooth part at v, w_new (F,) out. Cost: F.
    Source: Beck and Teboulle (2009), eq. 2.6 with the shrinkage operator of section 1.
    """
    slope = 0.0
    squares = 0.0
    norm1 = 0.0
    threshold = step * c1
    for k in range(v.shape[0]):
        u = v[k] - step * grad[k]
        moved = 0.0
        if u > threshold:
            moved = u - threshold
        elif u < -threshold:
            moved = u + threshold
        elif u != u:  # nan: not hidden behind a zero
            moved = u
        w_new[k] = moved
        d = moved - v[k]
        slope += grad[k] * d
        squares += d * d
        norm1 += abs(moved)
    return slope, squares, norm1


@kernel
def model_point(t, w, grad, pg, c1, scale, diagonal, s, y, rows, direction, product):
    """The step d(t) of `LocalModel` (l1.py) and the products that say how good it is; returns (g.d, d'Dd,
    |w + d|_1 - |w|_1).

        D = scale * diagonal,   u = w - (g - A t)/D,   w + d = sign(u) max(|u| - c1/D, 0),   product = A^T d

    d = 0 where w and the pseudo-gradient are 0. A block of weights at a time: its part of all pairs is read
    twice while it lies in the cache.
    Arrays: t (2m,), w, grad, pg (F,), diagonal (F,) or (0,) for 1; s, y (>= m, F), rows int64 (m,) of them;
    out: direction (F,) = d, product (2m,). Cost: 8 m F. Source: Becker, Fadili and Ochs (2019), section 3.
    """
    m, n = rows.size, w.size
    by_s, by_y = np.empty(BLOCK), np.empty(BLOCK)
    for j in range(2 * m):
        product[j] = 0.0
    slope, squares, norm1 = 0.0, 0.0, 0.0
    for low in range(0, n, BLOCK):
        high = min(n, low + BLOCK)
        for k in range(high - low):
            by_s[k], by_y[k] = 0.0, 0.0
        for j in range(m):
            t_s, t_y, row_s, row_y = t[j], t[m + j], s[rows[j]][low:high], y[rows[j]][low:high]
            for k in range(high - low):
                by_s[k] += t_s * row_s[k]
                by_y[k] += t_y * row_y[k]
        for k in range(low, high):
            d, width = 0.0, scale * diagonal[k] if diagonal.size else scale
            if w[k] != 0.0 or pg[k] != 0.0:
                u = w[k] - (grad[k] - by_y[k - low]) / width + by_s[k - low]
                moved = max(abs(u) - c1 / width, 0.0)
                moved = moved if u > 0.0 else -moved
                d = moved - w[k]
                slope += grad[k] * d
                squares += width * d * d
                norm1 += abs(moved) - abs(w[k])
            direction[k] = d
            by_s[k - low] = width * d
        for j in range(m):
            product[j] += np.dot(s[rows[j]][low:high], by_s[: high - low])
            product[m + j] += np.dot(y[rows[j]][low:high], direction[low:high])
    return slope, squares, norm1


@kernel
def model_gram(w, scale, diagonal, s, y, rows, direction):
    """What d(t) of `model_point` adds to the Jacobian of its equations: A^T D^-1 A (2m, 2m) over the weights
    that are not zero after the step, as others do not move with t.

    Arguments as there:
        w : (F,)
        scale : factor of all weights
        diagonal : (F,) or (0,) of D
        s, y : (>= m, F)
        rows : int64 (m,) of them
        direction : (F,) = d(t)
    Cost: 4 m^2 for each such weight.
    Source: Becker, Fadili and Ochs (2019), section 3.
    """
    m, n = rows.size, w.size
    total, product, cells = np.zeros((2 * m, 2 * m)), np.empty((2 * m, 2 * m)), np.empty(2 * m * BLOCK)
    moved, root = np.empty(BLOCK, np.int64), np.empty(BLOCK)
    for low in range(0, n, BLOCK):
        size = 0
        for k in range(low, min(n, low + BLOCK)):
            if w[k] + direction[k] != 0.0:
                moved[size] = k
                root[size] = np.sqrt(scale * diagonal[k] if diagonal.size else scale)
                size += 1
        part = cells[: 2 * m * size].reshape(2 * m, size)
        for j in range(m):
            row_s, row_y = s[rows[j]], y[rows[j]]
            for k in range(size):
                part[j, k] = row_s[moved[k]] * root[k]
                part[m + j, k] = row_y[moved[k]] / root[k]
        np.dot(part, part.T, product)
        total += product
    return total


class _L1Learner(Learner):
    """What both baselines have: weights in `w`, and `Rules` that say when to stop."""

    def __init__(self, fun, rules):
        self.fun, self.rules, self.max_iterations = fun, rules, rules.max_iterations

    def weights(self):
        return self.w

    def finished(self):
        return self.rules.verdict(self.objective, self.violation)

    def outcome(self, status):
        return self.rules.outcome(status, self.w)


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


class _Fista(_L1Learner):
    """Where the search stands: w, the point v with its momentum, the step. They are replaced together,
    after a whole iteration.
    """

    def __init__(self, fun, w0, rules, state):
        super().__init__(fun, rules)
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
        objective = value + self.rules.c1 * float(np.abs(w).sum())
        return objective, self.rules.violation(squares, largest), squares, grad

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


def dual_variables(
    fun: Function, w0: ArrayLike | None = None, *, c1: float, c2: float = 0.0, memory: int = 10,
    max_iterations: int | None = None, tol: float = 1e-6, tol_gradient: float = 1e-3,
    callback: Callback = None, state: State = None,
) -> OptResult:  # fmt: skip
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
        deliver_signals()
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
        deliver_signals()
        if self.status is not None:
            raise StopIteration

    def _reason(self, learner):
        reason = learner.finished() or ("stopped by callback" if self.stopped else None)
        most = learner.max_iterations
        return reason or (None if most is None or learner.iteration < most else "max_iterations")


class _Halves(_L1Learner):
    """w = p - n, and SciPy's search for both halves."""

    def __init__(self, fun, w0, rules, memory, state):
        super().__init__(fun, rules)
        self.memory = memory
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

    def state(self):
        return {"w": self.w, "iteration": np.array(self.iteration), "seconds": np.array(self.seconds)}


class LocalModel:
    """The model of the proximal quasi-Newton step, with n weights and m pairs:

        B = D - A M^-1 A^T,  A = [D S^T, Y^T],  M = [[S D S^T, L], [L^T, -diag(s.y)]],  L = tril(S Y^T, -1)

    Its minimum is found in 2m unknowns: with t = M^-1 A^T d every weight stands alone,

        d(t) = soft threshold of  w - (g - A t)/D  at  c1/D  minus w,    and t solves  M t = A^T d(t)

    by Newton's method, as d(t) is piecewise linear. D (n,) is 1 until `curvature(w) -> (n,)`, if there is
    one, has been asked, times what fits the newest pair. Products of pairs are kept: a step adds one pair's.
    Source: Becker, Fadili and Ochs (2019), "On quasi-Newton forward-backward splitting", section 3.
    """

    def __init__(self, c1, curvature):
        self.c1, self.curvature = c1, curvature
        self.diagonal, self.rows = np.zeros(0), ()
        self.s_d_s = self.s_y = np.zeros((0, 0))  # by rows of the memory; s_y: with older y and their own

    def is_due(self, iteration):
        """Is the diagonal to be measured before this iteration's step?"""
        due = FIRST_DIAGONAL
        while due < iteration:
            due *= 3
        return self.curvature is not None and iteration in (0, due)

    def measure(self, w):
        h = np.asarray(self.curvature(w), dtype=np.float64)
        if h.shape != w.shape:
            raise ValueError(f"fun.curvature must return shape {w.shape}, got {h.shape}")
        self.diagonal = np.where(np.isfinite(h), np.maximum(h, LEAST_CURVATURE * self.c1), 1.0)
        self.rows = ()

    def descend(self, w, grad, pg, known, direction):
        """Write the step (F,) into `direction`; returns  g.d + c1 (|w + d|_1 - |w|_1),
        the change it promises (negative). known: s, y of the memory and the rows that count, oldest first.
        """
        try:
            return self._lowest(w, grad, pg, known, direction)
        except np.linalg.LinAlgError:  # pairs whose products rounding has made singular: without them
            return self._lowest(w, grad, pg, (*known[:2], ()), direction)

    def _lowest(self, w, grad, pg, known, direction):
        s, y, rows = known
        if rows:
            scale, middle, unit = self._compact(s, y, rows, (w != 0.0) | (pg != 0.0))
            diagonal = self.diagonal
        else:
            scale, middle, unit = max(1.0, math.sqrt(pg @ pg)), np.zeros((0, 0)), np.zeros(0)
            diagonal, self.rows = self.diagonal[:0], ()  # the memory begins anew, in the same rows
        pairs = scale, diagonal, s, y, np.array(rows, np.int64)
        t, best, product = np.zeros(len(unit)), (math.inf, None, 0.0), np.empty(len(unit))
        for trial in range(TRIALS):
            slope, squares, norm1 = model_point(unit * t, w, grad, pg, self.c1, *pairs, direction, product)
            product *= unit
            bent = product @ np.linalg.solve(middle, product) if rows else 0.0
            value, promised = slope + 0.5 * (squares - bent) + self.c1 * norm1, slope + self.c1 * norm1
            if value < best[0]:
                best = value, t, promised
            off = middle @ t - product
            if np.abs(off).max(initial=0.0) <= FLAT * np.abs(product).max(initial=0.0) or trial + 1 == TRIALS:
                break
            bends = model_gram(w, *pairs, direction) * np.outer(unit, unit)
            try:
                t = t - np.linalg.solve(middle - bends, off)
            except np.linalg.LinAlgError:
                break
        if best[1] is not t and best[1] is not None:
            model_point(unit * best[1], w, grad, pg, self.c1, *pairs, direction, product)
        return best[2]

    def _compact(self, s, y, rows, free):
        """(factor of D, M of pairs scaled to s.y = 1 (2m, 2m), their scales twice (2m,))."""
        if len(self.s_y) != len(s):
            self.s_d_s, self.s_y = np.zeros((2, len(s), len(s)))
        for place, new in enumerate(rows):
            if new in self.rows:
                continue
            bent = s[new] * self.diagonal if self.diagonal.size else s[new]
            for old in rows[: place + 1]:
                self.s_d_s[new, old] = self.s_d_s[old, new] = ddot(s[old], bent)
                self.s_y[new, old] = ddot(s[new], y[old])
        self.rows, at, newest = rows, np.ix_(rows, rows), y[rows[-1]]
        s_y = self.s_y[at]
        unit = 1.0 / np.sqrt(np.diag(s_y))
        bent = newest * newest / (self.diagonal if self.diagonal.size else 1.0)
        scale = float(np.sum(bent, where=free)) * unit[-1] ** 2  # 0 makes M singular
        both, lower = np.outer(unit, unit), np.tril(s_y, -1)
        middle = np.block(
            [[scale * self.s_d_s[at] * both, lower * both], [lower.T * both, -np.eye(len(unit))]]
        )
        return scale, middle, np.concatenate([unit, unit])
