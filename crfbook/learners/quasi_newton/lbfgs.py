"""L-BFGS and what an L1 penalty makes of it, one implementation: minimise  f(w) + c1*|w|_1  for a smooth f.

Without an L1 penalty this is L-BFGS with a Wolfe line search (Nocedal and Wright, algorithms 7.4 and 3.5;
trial steps as More and Thuente choose them, so that its path is that of liblbfgs and of SciPy's L-BFGS-B).
With one there are two ways to step (l1.py): OWL-QN (Andrew and Gao 2007), which cuts the step of the smooth
model, and the proximal quasi-Newton step, which minimises the model with its penalty and needs fewer
evaluations. All read the same curvature memory, kept from the gradients of the smooth part alone.

`ActiveLBFGS` is the same with active sets, which are frozen for some iterations, then made anew (chapter 10).
Between two renewals the objective is one smooth function (chain/active/form.py). A renewal changes it a
little, at the point where the search stands; the curvature that is known stays a good guess. Renewals come
after FIRST iterations, then ever more rarely, and wherever training would end. The objective that is returned
is on fresh sets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import daxpy, ddot

from crfbook._checks import number, one_of, whole
from crfbook.learners.quasi_newton.l1 import LocalModel, align_direction, orthant_step, pseudo_gradient
from crfbook.training.certificate import Function, Rules, checked_start, evaluated
from crfbook.training.loop import Callback, Learner, OptResult, State, run

FLOOR = 1e-15  # a relative decrease below this is rounding, not progress
FLOOR_STEPS = 3
DECREASE = 1e-4  # Armijo: a step must bring this share of the decrease that the slope promises
CURVATURE = 0.9  # Wolfe: and flatten the slope to this share
GROWTH = 4.0  # too short a step is extended by so many times its last advance (the secant rule: further)
NARROW = 0.1  # a trial inside a bracket stays this share of the width off its ends
WIDE = 0.66  # and no farther from low than this share where f has risen
FLAT = 1e-12  # a failed search where the slope promises less (relative): float64 ends here
LOST = 1e-17  # a step that promises less than this cannot change the objective: smaller ones are not tried
FIRST = 5  # iterations before the first renewal of active sets; twice as many before the next, and so on ...
MOST = 40  # ... but never more
TRIES = 10  # ends that fresh sets may put off
BLOCK = 1 << 15  # numbers of a row of float32 that become float64 at a time


def minimize(
    fun: Function, w0: ArrayLike | None = None, *, c1: float = 0.0, c2: float = 0.0,
    l1_method: str = "proximal", memory: int | None = None, max_iterations: int | None = None,
    tol: float = 1e-6, tol_gradient: float = 1e-3, relative_change: tuple[int, float] | None = None,
    max_linesearch: int = 40, callback: Callback = None, state: State = None,
) -> OptResult:  # fmt: skip
    """Minimise fun(w) + c1*|w|_1.

    Parameters
    ----------
    fun : callable
        w (F,) -> (value, grad (F,)) of the smooth part, `c2*|w|^2` included.
        `grad` may be a buffer that is used again.
    w0 : (F,) start; copied. Not needed with `state`.
    c1 : weight of |w|_1.
    c2 : what `fun` contains of `c2*|w|^2`; it is not added again but gives the certificate: a function that
        is 2*c2 strongly convex lies at most |pg|^2/(4*c2) above its minimum,
        where pg is the gradient (for c1 > 0 the pseudo-gradient).
    l1_method : with c1 > 0, "proximal" or "owlqn". The first uses `fun.curvature(w) -> (F,)`, roughly the
        diagonal of the Hessian, if `fun` has such a method.
    memory : curvature pairs kept, None: 10; the cost is 2*memory*F doubles of storage.
    max_iterations : iterations in all, those of `state` included; None: no limit; 0:
        evaluate w0 and return it.
    tol : for c2 > 0, stop when that gap is below tol*max(1, |objective|).
    tol_gradient : for c2 = 0, stop when no entry of the pseudo-gradient exceeds this (for a CRF: no feature's
        expected count differs from its observed count by more).
    relative_change : None or (period, delta): stop also when the objective fell by less than delta (relative)
        during the last `period` iterations, which is CRFsuite's rule with (10, 1e-5). It certifies nothing.
    max_linesearch : evaluations tried per iteration.
    callback : called with (Step, w) after each iteration, w read-only and valid only during the call;
        True stops.
    state : `OptResult.state` of an earlier call on the same problem; continues bit for bit,
        and is not changed.

    Returns an OptResult; raises ValueError for a bad argument. Ctrl-C ends with "interrupted". NaN or
    infinity from `fun` shortens the step; when that does not help, the last good weights come back with
    "non-finite objective".
    """
    given = {name: value for name, value in locals().items() if name != "callback"}
    return run(LBFGS(**given), callback)


class Pairs(NamedTuple):
    """Which rows of the memory count. Immutable: a new pair enters, whole, when this is replaced."""

    rows: tuple = ()  # oldest first
    rho: tuple = ()  # 1 / s.y of each
    scale: float = 1.0  # H0 = s.y / y.y of the newest


class CurvatureMemory:
    """Storage of at most `size` pairs  s = w' - w,  y = grad' - grad  with s.y > 0.

    One row more than `size` is kept, so that the next pair never overwrites one that counts: an interrupt at
    any moment leaves a whole memory. 2*(size + 1)*n numbers, which the system hands out only as pairs arrive.

    dtype : np.float32 halves the storage. Pairs are rounded after the subtraction; sums stay in float64.
    """

    def __init__(self, size, n, dtype=np.float64):
        self.size = size
        self.s, self.y = np.zeros((size + 1, n), dtype), np.zeros((size + 1, n), dtype)

    def add(self, pairs, w_new, w, grad_new, grad):
        """`pairs` and the pair of two points, all (n,); unchanged without curvature, s.y <= 1e-12*|s|*|y|."""
        free = next(row for row in range(self.size + 1) if row not in pairs.rows)
        np.subtract(w_new, w, out=self.s[free])
        np.subtract(grad_new, grad, out=self.y[free])
        return self._admit(pairs, free)

    def _admit(self, pairs, row):
        s, y = self.s[row], self.y[row]
        s_y, s_s, y_y = _dot(s, y), _dot(s, s), _dot(y, y)
        if not (s_y > 1e-12 * math.sqrt(s_s) * math.sqrt(y_y) and s_y * s_y > 0.0 and y_y > 0.0):
            return pairs
        return Pairs((*pairs.rows, row)[-self.size :], (*pairs.rho, 1.0 / s_y)[-self.size :], s_y / y_y)

    def load(self, s, y, rows):
        """Copy the pairs of another memory, given its arrays and the rows that count."""
        pairs = Pairs()
        for row, source in enumerate(rows[-self.size :]):
            self.s[row], self.y[row] = s[source], y[source]
            pairs = self._admit(pairs, row)
        return pairs

    def descent(self, pairs, grad, direction):
        """direction = -H*grad, where H is the inverse Hessian that the pairs describe. Both (n,);
        `direction` is overwritten.

            q = -grad
            for i newest to oldest:  a[i] = s[i].q / s[i].y[i];   q -= a[i]*y[i]
            q *= s.y/y.y (newest)
            for i oldest to newest:  b = y[i].q / s[i].y[i];      q += (a[i] - b)*s[i]

        Cost: 4*size products of length n. Source: Nocedal and Wright, algorithm 7.4.
        """
        np.negative(grad, out=direction)
        shares = []
        for row, rho in zip(reversed(pairs.rows), reversed(pairs.rho), strict=True):
            a = rho * _dot(self.s[row], direction)
            _add(self.y[row], direction, -a)
            shares.append(a)
        direction *= pairs.scale
        for row, rho, a in zip(pairs.rows, pairs.rho, reversed(shares), strict=True):
            b = rho * _dot(self.y[row], direction)
            _add(self.s[row], direction, a - b)


def _blocks(x):
    """Slices of a row: one of float64, short ones of float32, since BLAS gets a copy of each in float64."""
    step = max(1, len(x)) if x.dtype == np.float64 else BLOCK
    return [slice(k, k + step) for k in range(0, len(x), step)]


def _dot(x, y):
    first, *more = (ddot(x[part], y[part]) for part in _blocks(x) or [slice(0)])
    return sum(more, first)


def _add(x, y, a):
    """y += a*x, in place."""
    for part in _blocks(x):
        daxpy(x[part], y[part], a=a)


class _Point(NamedTuple):
    """Where the search stands. Replaced as a whole after each step: Ctrl-C never finds half of one."""

    w: np.ndarray
    grad: np.ndarray | None = None  # of the smooth part
    pairs: Pairs = Pairs()
    objective: float = math.nan
    squares: float = math.nan  # |pseudo-gradient|^2
    violation: float = math.nan
    iteration: int = 0
    n_floor: int = 0  # steps in a row that brought nothing
    window: tuple = ()  # the last objectives, this one included


class LBFGS(Learner):
    """`minimize` as a learner of the loop: the present point and the work arrays, allocated once.

    Arguments as there. epsilon: None, or CRFsuite's rule for an end, |pg| <= epsilon max(1, |w|);
    for c2 = 0 the largest entry of pg stands for |pg|. precision: dtype of the curvature pairs.
    """

    def __init__(
        self, fun, w0=None, *, c1=0.0, c2=0.0, l1_method="proximal", memory=None, max_iterations=None,
        tol=1e-6, tol_gradient=1e-3, relative_change=None, max_linesearch=40, epsilon=None, state=None,
        precision=np.float64,
    ):  # fmt: skip
        one_of("l1_method", l1_method, ("proximal", "owlqn"))
        self.max_linesearch = whole("max_linesearch", max_linesearch, 1)
        self.rules = Rules(c1, c2, tol, tol_gradient, max_iterations)
        self.fun, self.c1, self.max_iterations = fun, self.rules.c1, self.rules.max_iterations
        proximal = self.c1 > 0 and l1_method == "proximal"
        memory = 10 if memory is None else whole("memory", memory, 1)
        self.relative_change, self.epsilon, self.n_window = relative_change, epsilon, 1
        if relative_change is not None:
            self.n_window = 1 + whole("period in relative_change", relative_change[0], 1)
            number("delta in relative_change", relative_change[1], finite=False)
        self.model = LocalModel(self.c1, getattr(fun, "curvature", None)) if proximal else None  # or OWL-QN
        self.given = state or None  # to go on from, until `begin` has done so
        self.point = _Point(checked_start(w0)) if self.given is None else self._resume(state)
        n = len(self.point.w)
        self.w_new, self.grad_new, self.direction = np.empty(n), np.empty(n), np.empty(n)
        self.pg = np.empty(n) if self.c1 > 0 else None
        self.memory = CurvatureMemory(memory, n, precision)

    # ---- where to begin

    def _resume(self, state):
        n = state["w"].shape[0]
        for name in ("grad", "s", "y"):
            if state[name].shape[-1:] != (n,):
                raise ValueError(f"state: {name!r} should have {n} columns, got shape {state[name].shape}")
        self.seconds = float(state["seconds"])
        if self.model is not None:
            self.model.diagonal = np.array(state["diagonal"])
        window, nan = tuple(float(value) for value in state["window"]), math.nan
        w, grad = np.array(state["w"], np.float64), np.array(state["grad"], np.float64)
        counts = int(state["iteration"]), int(state["n_floor"])
        return _Point(w, grad, Pairs(), window[-1], nan, nan, *counts, window)

    def begin(self):
        old, given = self.point, self.given
        if given is None:
            self.w_new[:] = old.w
            objective = self.evaluate() + self.c1 * float(np.abs(old.w).sum())
            self.point = self._point(objective, Pairs(), 0, 0, (objective,))
            self.w_new, self.grad_new = old.w, np.empty_like(old.w)
            return
        spare = self.w_new, self.grad_new
        pairs = self.memory.load(given["s"], given["y"], given["rows"])
        self.w_new, self.grad_new = old.w, old.grad
        self.point = self._point(old.objective, pairs, old.iteration, old.n_floor, old.window)
        (self.w_new, self.grad_new), self.given = spare, None

    def state(self):
        """Arrays only, so that np.savez can keep it; the big ones are the optimiser's own, not copies."""
        point = self.point
        if self.given is not None or point.grad is None:
            return dict(self.given or {})
        large = {"w": point.w, "grad": point.grad, "s": self.memory.s, "y": self.memory.y}
        numbers = {name: np.array(getattr(point, name)) for name in ("window", "iteration", "n_floor")}
        rows, diagonal = np.array(point.pairs.rows, dtype=np.int64), np.zeros(0)
        if self.model is not None:
            diagonal = self.model.diagonal
        return large | numbers | {"rows": rows, "seconds": np.array(self.seconds), "diagonal": diagonal}

    # ---- what the loop sees

    iteration = property(lambda self: self.point.iteration)
    objective = property(lambda self: self.point.objective)
    violation = property(lambda self: self.point.violation)

    def weights(self):
        return self.point.w

    def finished(self):
        point = self.point
        reason = self.rules.verdict(point.objective, point.violation)
        if reason is not None:
            return reason
        size = math.sqrt(point.squares) if self.rules.c2 > 0 else point.violation  # of the pseudo-gradient
        if self.epsilon is not None and size <= self.epsilon * max(1.0, np.linalg.norm(point.w)):
            return "small gradient (epsilon)"
        if point.n_floor >= FLOOR_STEPS:
            return "rounding floor"
        if self.relative_change is not None and point.iteration >= self.relative_change[0]:
            fall = point.window[0] - point.objective
            if fall <= self.relative_change[1] * abs(point.objective):
                return "small change"
        return None

    def outcome(self, status):
        return self.rules.outcome(status, self.point.w)

    # ---- one iteration

    def evaluate(self):
        """Value of the smooth part at w_new; its gradient goes to grad_new."""
        value, grad = evaluated(self.fun, self.w_new)
        self.n_evaluations += 1
        np.copyto(self.grad_new, grad)
        return value

    def _point(self, objective, pairs, iteration, n_floor, window):
        """(w_new, grad_new) as a point; the pseudo-gradient goes to pg."""
        if self.c1 > 0:
            squares, largest = pseudo_gradient(self.w_new, self.grad_new, self.c1, self.pg)
        else:
            self.pg = self.grad_new
            squares = float(self.pg @ self.pg)
            largest = max(self.pg.max(initial=0.0), -self.pg.min(initial=0.0))
        size = squares, self._violation(squares, largest)
        return _Point(self.w_new, self.grad_new, pairs, objective, *size, iteration, n_floor, window)

    def _violation(self, squares, largest):
        return self.rules.violation(squares, largest)

    def advance(self):
        if self.model is not None and self.model.is_due(self.point.iteration):
            self.model.measure(self.point.w)
            self.n_evaluations += 1
        outcome = self._search()
        if outcome.accepted is None and self.point.pairs.rows and outcome.reason != "rounding floor":
            # the pairs may be bad: try steepest descent once
            self.point = self.point._replace(pairs=Pairs())
            outcome = self._search()
        if outcome.accepted is None:
            return outcome.reason
        old = self.point
        pairs = self.memory.add(old.pairs, self.w_new, old.w, self.grad_new, old.grad)
        n_floor = old.n_floor + 1 if old.objective - outcome.accepted <= FLOOR * abs(old.objective) else 0
        window = (*old.window, outcome.accepted)[-self.n_window :]
        self.point = self._point(outcome.accepted, pairs, old.iteration + 1, n_floor, window)
        self.w_new, self.grad_new = old.w, old.grad
        return None

    def _search(self):
        """Direction and line search; on success w_new and grad_new hold the new point."""
        point, direction = self.point, self.direction

        def move(step):
            np.multiply(direction, step, out=self.w_new)
            self.w_new += point.w

        if self.model is not None:
            known = self.memory.s, self.memory.y, point.pairs.rows
            promised = self.model.descend(point.w, point.grad, self.pg, known, direction)

            def try_step(step):
                move(step)
                penalty = self.c1 * float(np.abs(self.w_new).sum())
                return self.evaluate() + penalty, step * promised, float(self.grad_new @ self.grad_new)

            return backtracking_search(try_step, point.objective, promised, 1.0, self.max_linesearch)
        self.memory.descent(point.pairs, self.pg, direction)
        first = 1.0 if point.pairs.rows else 1.0 / max(1.0, math.sqrt(point.squares))
        if self.c1 > 0:
            slope = align_direction(self.pg, direction)

            def try_step(step):
                predicted, norm1 = orthant_step(point.w, direction, self.pg, step, self.w_new)
                return self.evaluate() + self.c1 * norm1, predicted, float(self.grad_new @ self.grad_new)

            return backtracking_search(try_step, point.objective, slope, first, self.max_linesearch)

        def try_step(step):
            move(step)
            return self.evaluate(), float(self.grad_new @ direction)

        return wolfe_search(try_step, point.objective, float(self.pg @ direction), first, self.max_linesearch)


# ---- how far to go along a direction: at first 1, which a quasi-Newton direction nearly always deserves


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
    """Off both ends: the minimiser of a cubic or a parabola, whichever is nearer to low, or their mean."""
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
    """Halve the step until  C(step) <= C(0) + DECREASE*predicted, the first-order change of that step.

    `try_step(step) -> (C, predicted, squared norm of the gradient)`. Source: Andrew and Gao (2007), sec. 3.2.
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


class ActiveLBFGS(LBFGS):
    """`LBFGS` of an `ActiveObjective`.

    error_bound : nats between the objective and that of the whole model, at most; NaN where the sets are
        older than the weights
    before : (iterations, seconds) of another learner in the same training; max_iterations counts those, too.
    """

    def __init__(self, objective, w0=None, *, before=(0, 0.0), max_iterations=None, state=None, **rules):
        self.of_sets, self.fresh, self.left, self.w_sets, self.before = objective, 0, TRIES, None, before
        self.looked = False  # whether the end was checked on fresh sets
        if state:
            self.fresh, self.left, self.w_sets = int(state["renewed"]), int(state["left"]), state["w_sets"]
            self.before = int(state["epochs"]), float(state["spent"])
        if max_iterations is not None:
            max_iterations = max(0, whole("max_iterations", max_iterations) - self.before[0])
        super().__init__(objective, w0, max_iterations=max_iterations, state=state, **rules)

    @property
    def error_bound(self):
        known = self.looked or (self.w_sets is not None and self.iteration == self.fresh)
        return self.of_sets.error_bound if known else math.nan

    def begin(self):
        if self.w_sets is None:
            super().begin()
            self.w_sets = self.point.w.copy()
        else:  # the sets of the state, from the weights that they were made of
            self.of_sets(self.w_sets)
            super().begin()

    def renew(self):
        """Sets of the present weights; value and gradient there."""
        self.of_sets.renew()
        old = self.point
        self.w_new[:] = old.w
        objective = self.evaluate() + self.c1 * float(np.abs(old.w).sum())
        self.point = self._point(objective, old.pairs, old.iteration, 0, (objective,))
        self.w_new, self.grad_new = old.w, old.grad
        self.fresh, self.w_sets = old.iteration, self.point.w.copy()

    def advance(self):
        reason = super().advance()
        if reason is not None and self.iteration > self.fresh and self.left:
            self.left -= 1
            self.renew()
            reason = super().advance()
        if reason is None and self.iteration >= self.fresh + min(MOST, max(FIRST, self.fresh)):
            self.renew()
        return reason

    def _reason(self):
        """To stop, on the sets in use. Falls of the objective count from a renewal on."""
        reason, period = super().finished(), self.n_window - 1
        return None if reason == "small change" and self.iteration < self.fresh + period else reason

    def finished(self):
        reason = self._reason()
        if reason is None or self.iteration == self.fresh:
            return reason
        if not self.left:
            return "small change"  # sets and weights repeat in a cycle
        self.left -= 1
        self.renew()
        return self._reason()

    def final_objective(self):
        """The objective on fresh sets. What training would go on from stays as it is."""
        if self.w_sets is None or self.iteration == self.fresh:
            return self.objective
        self.of_sets.renew()
        value, _ = self.of_sets(self.point.w)
        self.n_evaluations, self.looked = self.n_evaluations + 1, True
        return value + self.c1 * float(np.abs(self.point.w).sum())

    def state(self):
        state = super().state()
        if not state or self.w_sets is None:
            return state
        (epochs, spent), numbers = self.before, {"renewed": self.fresh, "left": self.left}
        numbers |= {"epochs": epochs, "spent": spent}
        return state | {name: np.array(value) for name, value in numbers.items()} | {"w_sets": self.w_sets}
