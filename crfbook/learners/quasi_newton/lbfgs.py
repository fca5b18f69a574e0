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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crfbook._checks import number, one_of, whole
from crfbook.learners.quasi_newton.line_search import backtracking_search, wolfe_search
from crfbook.learners.quasi_newton.memory import CurvatureMemory, Pairs
from crfbook.learners.quasi_newton.orthants import align_direction, orthant_step, pseudo_gradient
from crfbook.learners.quasi_newton.proximal_newton import LocalModel
from crfbook.training.certificate import Rules, checked_start, evaluated
from crfbook.training.loop import Learner, run

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Function, OptResult, State

FLOOR = 1e-15  # a relative decrease below this is rounding, not progress
FLOOR_STEPS = 3
GO_ON = "go on"  # the status of a run that ends so that the next one may begin


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

    Returns an OptResult; raises ValueError for a bad argument. Ctrl-C ends with "interrupted". NaN or
    infinity from `fun` shortens the step; when that does not help, the last good weights come back with
    "non-finite objective".
    """
    learner = LBFGS(
        fun, w0, c1=c1, c2=c2, l1_method=l1_method, memory=memory, max_iterations=max_iterations, tol=tol,
        tol_gradient=tol_gradient, relative_change=relative_change, max_linesearch=max_linesearch,
        state=state,
    )  # fmt: skip
    return run(learner, callback)


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


class LBFGS(Learner):
    """`minimize` as a learner of the loop: the present point and the work arrays, allocated once.

    Arguments as there. epsilon: None, or CRFsuite's rule for an end, |pg| <= epsilon max(1, |w|);
    for c2 = 0 the largest entry of pg stands for |pg|.
    """

    def __init__(
        self, fun, w0=None, *, c1=0.0, c2=0.0, l1_method="proximal", memory=None, max_iterations=None,
        tol=1e-6, tol_gradient=1e-3, relative_change=None, max_linesearch=40, epsilon=None, state=None,
    ):  # fmt: skip
        one_of("l1_method", l1_method, ("proximal", "owlqn"))
        self.max_linesearch = whole("max_linesearch", max_linesearch, 1)
        self.rules = Rules(c1, c2, tol, tol_gradient, max_iterations)
        self.fun, self.c1, self.max_iterations = fun, self.rules.c1, self.rules.max_iterations
        proximal = self.c1 > 0 and l1_method == "proximal"
        memory = (30 if proximal else 10) if memory is None else whole("memory", memory, 1)
        self.relative_change, self.epsilon, self.n_window = relative_change, epsilon, 1
        if relative_change is not None:
            self.n_window = 1 + whole("period in relative_change", relative_change[0], 1)
            number("delta in relative_change", relative_change[1], finite=False)
        # None: no penalty, or OWL-QN
        self.model = LocalModel(self.c1, getattr(fun, "curvature", None)) if proximal else None
        self.given = state or None  # to go on from, until `begin` has done so
        self.point = self._start(w0) if self.given is None else self._resume(state)
        n = len(self.point.w)
        self.w_new, self.grad_new, self.direction = np.empty(n), np.empty(n), np.empty(n)
        self.pg = np.empty(n) if self.c1 > 0 else None
        self.memory = CurvatureMemory(memory, n)

    # ---- where to begin

    def _start(self, w0):
        nan = math.nan
        return _Point(checked_start(w0), None, Pairs(), nan, nan, nan, 0, 0, ())

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
        if self.epsilon is not None and self._size() <= self.epsilon * max(1.0, np.linalg.norm(point.w)):
            return "small gradient (epsilon)"
        if point.n_floor >= FLOOR_STEPS:
            return "rounding floor"
        if self.relative_change is not None and point.iteration >= self.relative_change[0]:
            fall = point.window[0] - point.objective
            if fall <= self.relative_change[1] * abs(point.objective):
                return "small change"
        return None

    def _size(self):
        """Of the pseudo-gradient, for `epsilon`."""
        c2, violation = self.rules.c2, self.point.violation
        return math.sqrt(4.0 * c2 * violation) if c2 > 0 else violation

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
        violation = self._violation(squares, largest)
        return _Point(
            self.w_new, self.grad_new, pairs, objective, squares, violation, iteration, n_floor, window
        )

    def _violation(self, squares, largest):
        return self.rules.violation(squares, largest)

    def advance(self):
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


class Start(Learner):
    """Takes no step: what Ctrl-C finds of several runs before there is a first."""

    def __init__(self, w, state=None):
        self.w, self.given = w, state or {}
        if self.given:
            self.iteration, self.objective = int(state["iteration"]), float(state["window"][-1])

    def weights(self):
        return self.w

    def state(self):
        return dict(self.given)

    def finished(self):
        return GO_ON
