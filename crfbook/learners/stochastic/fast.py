"""Algorithm "auto", the fastest way to the optimum with an L2 penalty: dual coordinate ascent, then L-BFGS.

Coordinate ascent (dual.py) needs a few passes for what takes L-BFGS a hundred, but it slows down where many
sequences share what they are unsure of. L-BFGS does not mind, if it starts close and knows how steep each
weight's own valley is:

    w = d v,  d = h^(-1/4),  h the diagonal of the Hessian (chain/likelihood.py) where it takes over

With d = h^(-1/2), the usual scaling, the first iterations are quicker still and the last ones slower than
without: weights that always come together have one valley between them, which is then scaled twice over.
The power is a compromise, found by trial.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from crfbook._checks import whole
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.choice import is_tiny
from crfbook.learners.quasi_newton import LBFGS, quasi_newton
from crfbook.learners.stochastic.dual import DualAscent, check_memory, sdca_memory
from crfbook.training.certificate import TINY
from crfbook.training.loop import stages

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, OptResult, State

HANDOVER = 0.15  # gap / objective below which L-BFGS may take over ...
SLOW = 0.17  # ... once ascent gains fewer decades than this a pass, over the last LOOK_BACK epochs
LOOK_BACK = 4
POWER = -0.25
MEMORY = 30  # curvature pairs
HANDED_OVER = "handed over"  # the status of ascent where L-BFGS goes on
# gap / objective below which ascent is not tried: its steps are too small for the sums that judge them
FEW = 3e-7


def fast_fit(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    tol: float = 1e-6,
    memory_limit: float = 2e9,
    constraints: Limits = None,
    n_threads: int | None = 1,
    max_iterations: int | None = None,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise -log-likelihood + c2 |w|^2 as fast as we can, to a certificate:
    the objective is within tol (relative) of its minimum.

    Parameters are those of `sdca` (c2 > 0; w0 a start worth its dual value; MemoryError above memory_limit)
    and of `minimize`; n_threads is for L-BFGS alone. max_iterations counts epochs and iterations together.
    Returns an `OptResult`; `violation` is a duality gap first and |gradient|^2 / (4 c2) later.
    `state` continues either part, bit for bit.
    """
    check_memory(corpus, features, memory_limit)
    objective = Objective(corpus, features, c2=c2, constraints=constraints, n_threads=n_threads)

    def script(training):
        if state is not None and "stretch" in state:
            return (yield _Stretched.resumed(objective, tol, max_iterations, state))
        ascent = _Ascent(corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations)
        ascent.objective_of = objective
        first = yield ascent
        if first.status != HANDED_OVER:
            return first
        if training.stopped:
            return first._replace(status="stopped by callback")
        d = objective.curvature(first.w) ** POWER
        learner = _Stretched(objective, tol, max_iterations, d, (first.n_iter, ascent.seconds), w=first.w)
        learner.n_evaluations = first.n_evaluations + 1
        found = yield learner
        # Ctrl-C before L-BFGS has a point of its own
        return found if found.state else first._replace(status="interrupted")

    return stages(script, callback)


class _Ascent(DualAscent):
    """Coordinate ascent that stops where L-BFGS would be faster."""

    def __init__(self, corpus, features, w0, constraints, state, *rest):
        super().__init__(corpus, features, w0, constraints, state, *rest)
        # (passes, relative gap) of the last epochs
        self.trail = [] if state is None else state["trail"].tolist()

    def state(self):
        return super().state() | {"trail": np.array(self.trail)}

    def judge(self):
        super().judge()
        share = self.violation / max(1.0, abs(self.objective))
        self.trail = [*self.trail, (self.passes, share)][-LOOK_BACK - 1 :]
        if self.ended or share > HANDOVER or len(self.trail) <= LOOK_BACK:
            return
        passes, before = self.trail[0]
        gained = math.log10(max(before, TINY) / max(share, TINY))
        if share < FEW or gained < SLOW * (self.passes - passes):
            self.ended = HANDED_OVER


class _Stretched(LBFGS):
    """L-BFGS over v = w / d, certified by the gradient of w."""

    def __init__(self, objective, tol, max_iterations, d, before, w=None, state=None):
        self.of_w, self.d, self.before, self.squares = objective, d, before, math.inf
        if state is not None:
            grad = state["grad"] / d
            self.squares = float(grad @ grad)
        left = None if max_iterations is None else max(0, whole("max_iterations", max_iterations) - before[0])
        super().__init__(
            self.of_v, None if w is None else w / d, c2=objective.c2, tol=tol, tol_gradient=0.0,
            memory=MEMORY, max_iterations=left, state=state,
        )  # fmt: skip

    @classmethod
    def resumed(cls, objective, tol, max_iterations, state):
        before = state["epochs"].item(), state["spent"].item()
        learner = cls(objective, tol, max_iterations, state["stretch"], before, state=state)
        learner.n_evaluations = state["passes"].item()
        return learner

    def of_v(self, v):
        value, grad = self.of_w(v * self.d)
        self.squares = float(grad @ grad)
        grad *= self.d
        return value, grad

    def _violation(self, squares, largest):
        return self.rules.violation(self.squares, 0.0)  # the point accepted is the one evaluated last

    def weights(self):
        return self.point.w * self.d

    def state(self):
        """Its "w" is v."""
        past = {"epochs": self.before[0], "spent": self.before[1], "passes": self.n_evaluations}
        state = super().state()
        return state and state | {"stretch": self.d} | {name: np.array(past[name]) for name in past}


def auto(
    corpus,
    features,
    w0,
    *,
    c1,
    c2,
    loss,
    n_threads,
    random_state,
    memory_limit,
    callback=None,
    max_iterations=None,
    tol=1e-6,
    epsilon=None,
    relative_change=None,
    constraints=None,
    state=None,
    **settings,
):
    """The log loss with an L2 penalty alone: `fast_fit`. Anything else, a start,
    or CRFsuite's rules for an end: `quasi_newton`.
    """
    ruled = epsilon is not None or relative_change is not None
    if ruled or w0.any() or not uses_sdca(corpus, features, c1, c2, loss, memory_limit):
        return quasi_newton(
            corpus,
            features,
            w0,
            c1=c1,
            c2=c2,
            loss=loss,
            n_threads=n_threads,
            callback=callback,
            max_iterations=max_iterations,
            tol=tol,
            epsilon=epsilon,
            relative_change=relative_change,
            constraints=constraints,
            state=state,
            **settings,
        )
    return fast_fit(
        corpus,
        features,
        w0,
        c2=c2,
        tol=tol,
        memory_limit=memory_limit,
        constraints=constraints,
        n_threads=n_threads,
        max_iterations=max_iterations,
        random_state=random_state,
        callback=callback,
        state=state,
    )


def uses_sdca(corpus, features, c1, c2, loss, memory_limit):
    """Does `auto` begin with dual coordinate ascent? It needs an L2 penalty, the log loss,
    memory for its dual variables, and a problem that is worth compiling its kernels.
    """
    able = loss == "log" and c1 == 0 and c2 > 0 and not is_tiny(corpus, features)
    return able and sdca_memory(corpus, features) <= memory_limit
