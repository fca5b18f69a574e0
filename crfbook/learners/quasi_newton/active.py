"""L-BFGS and OWL-QN with active sets: frozen for some iterations, then made anew (chapter 10).

Between two renewals the objective is one smooth function (chain/active/form.py). A renewal changes it a
little, at the point where the search stands; the curvature that is known stays a good guess. They come after
FIRST iterations, then ever more rarely, and wherever training would end: it ends on fresh sets.
"""

from __future__ import annotations

import math

import numpy as np

from crfbook._checks import whole
from crfbook.learners.quasi_newton.lbfgs import LBFGS

FIRST = 5  # iterations before the first renewal; twice as many before the next, and so on ...
MOST = 40  # ... but never more
TRIES = 10  # ends that fresh sets may put off


class ActiveLBFGS(LBFGS):
    """`LBFGS` of an `ActiveObjective`. `error_bound`: nats, when the sets in use were made.

    before : (iterations, seconds) of another learner in the same training; max_iterations counts those, too.
    """

    error_bound = math.nan

    def __init__(self, objective, w0=None, *, before=(0, 0.0), max_iterations=None, state=None, **rules):
        self.of_sets, self.fresh, self.left, self.w_sets, self.before = objective, 0, TRIES, None, before
        if state:
            self.fresh, self.left, self.w_sets = int(state["renewed"]), int(state["left"]), state["w_sets"]
            self.before = int(state["epochs"]), float(state["spent"])
        if max_iterations is not None:
            max_iterations = max(0, whole("max_iterations", max_iterations) - self.before[0])
        super().__init__(objective, w0, max_iterations=max_iterations, state=state, **rules)

    def begin(self):
        if self.w_sets is None:
            super().begin()
            self.w_sets = self.point.w.copy()
        else:  # the sets of the state, from the weights that they were made of
            self.of_sets(self.w_sets)
            super().begin()
        self.error_bound = self.of_sets.error_bound

    def renew(self):
        """Sets of the present weights; value and gradient there."""
        self.of_sets.renew()
        old = self.point
        self.w_new[:] = old.w
        objective = self.evaluate() + self.c1 * float(np.abs(old.w).sum())
        self.point = self._point(objective, old.pairs, old.iteration, 0, (objective,))
        self.w_new, self.grad_new = old.w, old.grad
        self.fresh, self.w_sets = old.iteration, self.point.w.copy()
        self.error_bound = self.of_sets.error_bound

    def advance(self):
        if self.iteration >= self.fresh + min(MOST, max(FIRST, self.fresh)):
            self.renew()
        return super().advance()

    def finished(self):
        reason = super().finished()
        if reason is not None and self.iteration > self.fresh and self.left:
            self.left -= 1
            self.renew()
            reason = super().finished()
        return reason

    def state(self):
        state = super().state()
        if not state or self.w_sets is None:
            return state
        (epochs, spent), numbers = self.before, {"renewed": self.fresh, "left": self.left}
        numbers |= {"epochs": epochs, "spent": spent}
        return state | {name: np.array(value) for name, value in numbers.items()} | {"w_sets": self.w_sets}
