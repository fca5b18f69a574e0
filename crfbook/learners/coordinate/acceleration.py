"""The slow tail of coordinate descent, taken by another road: OWL-QN on the weights that are active.

Node and edge weights of a symbol are nearly redundant, so that sweeps, which see one block at a time, close
the last per cents slowly. They have found the support by then, or nearly; on it a quasi-Newton method sees
all weights at once. The sweeps that follow look at all candidates, so that what is still missing comes in,
and the certificate is theirs. Both steps only ever lower the objective. The quasi-Newton method has a table
of L^2 numbers for each edge class; where these are too many, there are sweeps alone.
"""

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.data.features import select
from crfbook.learners.coordinate.active_weights import Sparse
from crfbook.learners.coordinate.state import TABLE_BYTES
from crfbook.learners.quasi_newton import minimize

SLOW = 0.01  # a sweep that lowers the objective by less than this share is slow
ITERATIONS = 30  # at first; twice as many each time
PATIENCE = 2  # sweeps between two such steps


class Accelerator:
    """Watches the sweeps of a `Run`, and steps in where they have become slow."""

    def __init__(self, run, constraints=None):
        self.run, self.constraints = run, constraints
        self.before, self.waiting, self.iterations, self.evaluations = None, PATIENCE, ITERATIONS, 0
        self.able = 8 * run.corpus.n_classes * run.state.tables.base.size <= TABLE_BYTES

    def improve(self, objective):
        """After a sweep: the objective, lower where a step was taken."""
        slow = self.before is not None and self.before - objective <= SLOW * abs(objective)
        self.before, self.waiting = objective, self.waiting - slow
        if self.waiting > 0 or not self.able:
            return objective
        run, here = self.run, self.run.export()
        if not len(here.w):
            return objective
        rule = run.rule
        fun = Objective(
            run.corpus, here.features, c2=run.rule.c2, constraints=self.constraints, n_threads=run.n_threads
        )
        found = minimize(fun, here.w, c1=rule.c1, c2=rule.c2, max_iterations=self.iterations, tol=1e-7)
        self.evaluations += found.n_evaluations
        kept = found.w != 0.0
        run.load(Sparse(select(here.features, kept), np.ascontiguousarray(found.w[kept])))
        after = run.renew()
        if not after <= objective:
            run.load(here)
            after = run.renew()
        self.before, self.waiting, self.iterations = after, PATIENCE, 2 * self.iterations
        if found.status == "interrupted":  # the optimiser caught it; the weights are good
            raise KeyboardInterrupt
        return after
