"""L-BFGS and OWL-QN with active sets: frozen for some iterations, then made anew (chapter 10).

Between two renewals the objective is one smooth function (chain/active/form.py). A renewal changes it a
little, at the point where the search stands; the curvature that is known stays a good guess. They come after
FIRST iterations, then ever more rarely, and wherever training would end: it ends on fresh sets.
"""

from __future__ import annotations

import math

import numpy as np

from crfbook.chain.active.form import ActiveObjective
from crfbook.learners.quasi_newton.lbfgs import LBFGS

FIRST = 5  # iterations before the first renewal; twice as many before the next, and so on ...
MOST = 40  # ... but never more
TRIES = 10  # ends that fresh sets may put off


class ActiveLBFGS(LBFGS):
    """`LBFGS` of an `ActiveObjective`. `error_bound`: nats, when the sets in use were made."""

    error_bound = math.nan

    def __init__(self, objective, w0=None, *, state=None, **rules):
        self.of_sets, self.fresh, self.left = objective, 0, TRIES
        if not isinstance(objective, ActiveObjective):
            raise TypeError(f"expected an ActiveObjective, got {type(objective).__name__}")
        if state:
            self.fresh, self.left = int(state["renewed"]), int(state["left"])
        self.w_sets = None if not state else np.array(state["w_sets"])
        super().__init__(objective, w0, state=state, **rules)

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
        numbers = {"renewed": np.array(self.fresh), "left": np.array(self.left)}
        return state | numbers | {"w_sets": self.w_sets}
