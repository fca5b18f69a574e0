"""L-BFGS and what an L1 penalty makes of it, one implementation: minimise  f(w) + c1*|w|_1  for a smooth f.

Without an L1 penalty this is L-BFGS with a Wolfe line search (Nocedal and Wright, algorithms 7.4 and 3.5;
trial steps as More and Thuente choose them, so that its path is that of liblbfgs and of SciPy's L-BFGS-B).
With one there are two ways to step: OWL-QN (Andrew and Gao 2007), which cuts the step of the smooth model
(orthants.py), and the proximal quasi-Newton step (proximal_newton.py), which minimises the model with
its penalty and needs fewer evaluations. All read the same curvature memory,
kept from the gradients of the smooth part alone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crfbook._checks import function_or_none, number, one_of, whole
from crfbook.learners.quasi_newton.line_search import backtracking_search, wolfe_search
from crfbook.learners.quasi_newton.memory import CurvatureMemory, Pairs
from crfbook.learners.quasi_newton.orthants import align_direction, orthant_step, pseudo_gradient
from crfbook.learners.quasi_newton.proximal_newton import LocalModel
from crfbook.training.certificate import Rules, checked_start, evaluated
from crfbook.training.loop import OptResult, Step
from crfbook.training.threads import one_blas_thread

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Function, State

FLOOR = 1e-15  # a relative decrease below this is rounding, not progress
FLOOR_STEPS = 3


def minimize(
    fun: Function,
    w0: ArrayLike | None = None,
    *,
    c1: float = 0.0,
    c2: float = 0.0,
    l1_method: str = "proximal",
    memory: int | None = None,
    max_iterations: int | None = None,
    tol: float = 1e-6,
    tol_gradient: float = 1e-3,
    relative_change: tuple[int, float] | None = None,
    max_linesearch: int = 40,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
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
    memory : curvature pairs kept; the cost is 2*memory*F doubles of storage. None: 10,
        with a proximal step 30.
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

    Returns an OptResult; raises ValueError for a bad argument. A KeyboardInterrupt is caught and ends with
    "interrupted". NaN or infinity from `fun` shortens the step; when that does not help, the last good
    weights come back with "non-finite objective".
    """
    one_of("l1_method", l1_method, ("proximal", "owlqn"))
    max_linesearch = whole("max_linesearch", max_linesearch, 1)
    function_or_none("callback", callback)
    rules = Rules(c1, c2, tol, tol_gradient, max_iterations)
    proximal = rules.c1 > 0 and l1_method == "proximal"
    memory = (30 if proximal else 10) if memory is None else whole("memory", memory, 1)
    window = 1
    if relative_change is not None:
        window = 1 + whole("period in relative_change", relative_change[0], 1)
        number("delta in relative_change", relative_change[1], finite=False)
    model = LocalModel(rules.c1, getattr(fun, "curvature", None)) if proximal else None
    run = _Run(fun, rules, memory, max_linesearch, window, model)
    with one_blas_thread():  # a product split over threads depends on their number in its last bits
        status, history = _iterate(run, w0, state, callback, relative_change)
    point = run.point
    return OptResult(
        point.w,
        point.objective,
        rules.outcome(status, point.w),
        point.iteration,
        history,
        run.state(),
        run.n_evaluations,
    )


def _iterate(run, w0, state, callback, relative_change):
    """Step after step until there is a reason to stop: (reason, list of Step)."""
    history = []
    try:
        run.resume(state) if state is not None else run.start(w0)
        status = _finished(run.point, run.rules, relative_change)
        while status is None:
            status = run.advance()
            if status is not None:
                break
            step = run.report()
            history.append(step)
            status = _finished(run.point, run.rules, relative_change)
            if callback is not None and run.pause(callback, step) and status != "converged":
                status = "stopped by callback"
    except KeyboardInterrupt:
        if run.point is None:
            raise  # there is nothing to return yet
        status = "interrupted"
    return status, history


def _finished(point, rules, relative_change):
    """The reason to stop at this point, or None."""
    reason = rules.verdict(point.objective, point.violation, point.iteration)
    if reason in (None, "max_iterations"):
        if point.n_floor >= FLOOR_STEPS:
            return "rounding floor"
        if relative_change is not None and point.iteration >= relative_change[0]:
            fall = point.window[0] - point.objective
            if fall <= relative_change[1] * abs(point.objective):
                return "small change"
    return reason


class _Point(NamedTuple):
    """Where the search stands. Replaced as a whole after each step,
    so that Ctrl-C never finds half of one.
    """

    w: np.ndarray
    grad: np.ndarray  # of the smooth part
    pairs: Pairs
    objective: float
    squares: float  # |pseudo-gradient|^2
    violation: float
    iteration: int
    n_floor: int  # steps in a row that brought nothing
    window: tuple  # the last objectives, this one included


class _Run:
    """The present point and the work arrays, allocated once."""

    def __init__(self, fun, rules, memory, max_linesearch, window, model):
        self.fun, self.rules, self.c1 = fun, rules, rules.c1
        self.n_pairs, self.max_linesearch, self.n_window = memory, max_linesearch, window
        self.model = model  # None: no penalty, or OWL-QN
        self.point = None
        self.n_evaluations = 0
        self.seconds, self.clock = 0.0, time.perf_counter()

    # ---- where to begin

    def start(self, w0):
        w = checked_start(w0)
        self._allocate(w.shape[0])
        self.w_new[:] = w
        objective = self.evaluate() + self.c1 * float(np.abs(w).sum())
        self.point = self._point(objective, Pairs(), 0, 0, (objective,))
        self.w_new, self.grad_new = w, np.empty_like(w)

    def resume(self, state):
        self._allocate(state["w"].shape[0])
        for name in ("grad", "s", "y"):
            if state[name].shape[-1:] != self.w_new.shape:
                raise ValueError(
                    f"state: {name!r} should have {self.w_new.shape[0]} columns, "
                    f"got shape {state[name].shape}"
                )
        self.w_new[:], self.grad_new[:] = state["w"], state["grad"]
        self.seconds = float(state["seconds"])
        if self.model is not None:
            self.model.diagonal = np.array(state["diagonal"])
        pairs = self.memory.load(state["s"], state["y"], state["rows"])
        window = tuple(float(value) for value in state["window"])
        self.point = self._point(window[-1], pairs, int(state["iteration"]), int(state["n_floor"]), window)
        self.w_new, self.grad_new = np.empty_like(self.w_new), np.empty_like(self.grad_new)

    def _allocate(self, n):
        self.w_new, self.grad_new, self.direction = np.empty(n), np.empty(n), np.empty(n)
        self.pg = np.empty(n) if self.c1 > 0 else None
        self.memory = CurvatureMemory(self.n_pairs, n)

    def state(self):
        """Arrays only, so that np.savez can keep it; the big ones are the optimiser's own, not copies."""
        point = self.point
        return {
            "w": point.w,
            "grad": point.grad,
            "s": self.memory.s,
            "y": self.memory.y,
            "rows": np.array(point.pairs.rows, dtype=np.int64),
            "window": np.array(point.window),
            "iteration": np.array(point.iteration),
            "n_floor": np.array(point.n_floor),
            "seconds": np.array(self.seconds),
            "diagonal": np.zeros(0) if self.model is None else self.model.diagonal,
        }

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
        violation = self.rules.violation(squares, largest)
        return _Point(
            self.w_new, self.grad_new, pairs, objective, squares, violation, iteration, n_floor, window
        )

    def advance(self):
        """Take one step; None if it was taken, else the reason why there is none."""
        if self.model is not None and self.model.is_due(self.point.iteration):
            self.model.measure(self.point.w)
            self.n_evaluations += 1
        outcome = self._search()
        if outcome.accepted is None and self.point.pairs.rows and outcome.reason != "rounding floor":
            # forgive a bad memory once: plain steepest descent
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
        if self.model is not None:
            return self._proximal_search(point, direction)
        self.memory.descent(point.pairs, self.pg, direction)
        first = 1.0 if point.pairs.rows else 1.0 / max(1.0, math.sqrt(point.squares))
        if self.c1 > 0:
            slope = align_direction(self.pg, direction)

            def try_step(step):
                predicted, norm1 = orthant_step(point.w, direction, self.pg, step, self.w_new)
                return self.evaluate() + self.c1 * norm1, predicted, float(self.grad_new @ self.grad_new)

            return backtracking_search(try_step, point.objective, slope, first, self.max_linesearch)

        def try_step(step):
            np.multiply(direction, step, out=self.w_new)
            self.w_new += point.w
            return self.evaluate(), float(self.grad_new @ direction)

        return wolfe_search(try_step, point.objective, float(self.pg @ direction), first, self.max_linesearch)

    def _proximal_search(self, point, direction):
        promised = self.model.descend(point.w, point.grad, self.pg, self.memory, point.pairs, direction)

        def try_step(step):
            np.multiply(direction, step, out=self.w_new)
            self.w_new += point.w
            norm1 = float(np.abs(self.w_new).sum())
            return self.evaluate() + self.c1 * norm1, step * promised, float(self.grad_new @ self.grad_new)

        return backtracking_search(try_step, point.objective, promised, 1.0, self.max_linesearch)

    # ---- what the caller sees

    def report(self):
        self._tick()
        point = self.point
        return Step(
            point.iteration, point.objective, point.violation, int(np.count_nonzero(point.w)), self.seconds
        )

    def pause(self, callback, step):
        """Run the callback with the clock stopped."""
        shown = self.point.w.view()
        shown.flags.writeable = False
        self._tick()
        stop = callback(step, shown)
        self.clock = time.perf_counter()
        return bool(stop)

    def _tick(self):
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + (now - self.clock), now
