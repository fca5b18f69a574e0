"""The fastest way to the optimum with an L2 penalty: dual coordinate ascent, and L-BFGS for what is left.

Coordinate ascent (dual.py) needs a few passes for what takes L-BFGS a hundred, but it slows down where many
sequences share what they are unsure of. L-BFGS does not mind,
if it starts close and knows how steep each weight's own valley is:

    w = d v,  d = h^(-1/4),  h the diagonal of the Hessian (chain/likelihood.py) at the point where it takes
    over

With d = h^(-1/2), the usual scaling, the first iterations are quicker still and the last ones slower than
without: weights that always come together have one valley between them, which is then scaled twice over.
The power is a compromise, found by trial.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.learners.quasi_newton import minimize
from crfbook.learners.stochastic.dual import DualAscent, check_memory
from crfbook.training.certificate import TINY, Rules
from crfbook.training.loop import OptResult, run

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, State

HANDOVER = 0.15  # gap / objective below which L-BFGS may take over ...
SLOW = 0.17  # ... once ascent gains fewer decades than this a pass, over the last LOOK_BACK epochs
LOOK_BACK = 4
POWER = -0.25
MEMORY = 30  # curvature pairs
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
    if state is not None and "stretch" in state:
        return _descend(objective, None, tol, max_iterations, callback, state)
    ascent = _Ascent(corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations)
    ascent.objective_of = objective

    def watch(step, w):
        ascent.told_to_stop = callback is not None and bool(callback(step, w))
        return ascent.told_to_stop

    first = run(ascent, watch)
    if first.status != "handed over":
        return first
    if ascent.told_to_stop:
        return first._replace(status="stopped by callback")
    try:
        return _descend(objective, first, tol, max_iterations, callback, None)
    except KeyboardInterrupt:  # L-BFGS has no point of its own yet
        return first._replace(status="interrupted")


class _Ascent(DualAscent):
    """Coordinate ascent that stops where L-BFGS would be faster."""

    told_to_stop = False  # by the callback, also where ascent ends for another reason

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
            self.ended = "handed over"


class _Stretched:
    """The objective as a function of v = w / d, and what its callback needs to certify w."""

    def __init__(self, objective, d):
        self.objective, self.d, self.squares = objective, d, math.inf

    def __call__(self, v):
        value, grad = self.objective(v * self.d)
        self.squares = float(grad @ grad)
        grad *= self.d
        return value, grad


def _descend(objective, first, tol, max_iterations, callback, state):
    """L-BFGS in stretched weights from the point that `first` reached, or from a state of its own."""
    if state is None:
        d, w, before = objective.curvature(first.w) ** POWER, first.w, first.history
        past = {"epochs": first.n_iter, "passes": first.n_evaluations + 1, "spent": before[-1].seconds}
    else:
        d, w, before = state["stretch"], None, []
        past = {name: state[name].item() for name in ("epochs", "passes", "spent")}
    fun, rules, history, met = _Stretched(objective, d), Rules(0.0, objective.c2, tol), [], []

    def watch(step, v):
        violation = rules.violation(fun.squares, 0.0)  # the point accepted is the one evaluated last
        history.append(
            step._replace(
                iteration=step.iteration + past["epochs"],
                violation=violation,
                seconds=step.seconds + past["spent"],
            )
        )
        met.append(violation <= rules.enough(step.objective))
        shown = v * d
        shown.flags.writeable = False
        return (callback is not None and callback(history[-1], shown)) or met[-1]

    left = None if max_iterations is None else max(0, max_iterations - past["epochs"])
    found = minimize(
        fun,
        None if w is None else w / d,
        memory=MEMORY,
        tol_gradient=0.0,
        max_iterations=left,
        callback=watch,
        state=state,
    )
    status = "converged" if met and met[-1] else found.status
    past["passes"] += found.n_evaluations
    # its "w" is v
    kept = found.state | {"stretch": d} | {name: np.array(value) for name, value in past.items()}
    return OptResult(
        found.w * d,
        found.objective,
        status,
        past["epochs"] + found.n_iter,
        [*before, *history],
        kept,
        past["passes"],
    )
