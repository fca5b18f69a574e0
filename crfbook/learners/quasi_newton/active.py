"""L-BFGS and OWL-QN with active sets: frozen for some iterations, then made anew (chapter 10).

Between two renewals the objective is one smooth function (chain/active/form.py). A renewal changes it a
little, at the point where the search stands; the curvature that is known stays a good guess. They come after
FIRST iterations, then ever more rarely, and wherever training would end. The objective that is returned is on
fresh sets, whatever the end was.
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
    """`LBFGS` of an `ActiveObjective`.

    error_bound : nats between the objective and that of the whole model, at most; NaN where the sets are
        older than the weights
    before : (iterations, seconds) of another learner in the same training; max_iterations counts those, too.
    """

    def __init__(self, objective, w0=None, *, before=(0, 0.0), max_iterations=None, state=None, **rules):
        self.of_sets, self.fresh, self.left, self.w_sets, self.before = objective, 0, TRIES, None, before
        self.looked = False  # at the end, on fresh sets
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
            return "small change"  # sets and weights go round in a circle
        self.left -= 1
        self.renew()
        return self._reason()

    def last_look(self):
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
