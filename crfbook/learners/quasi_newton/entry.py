"""L-BFGS and OWL-QN as rows of the table of algorithms.

They minimise   sum_i weight_i loss_i + c1 |w|_1 + c2 |w|^2   over the whole corpus; arguments as
`models.parameters.Settings` describes them, all others as in `learners.quasi_newton.lbfgs.minimize`.
"""

import math

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.quasi_newton.loss_path import minimize_loss
from crfbook.learners.quasi_newton.support import minimize_on_support


def quasi_newton(
    corpus,
    features,
    w0,
    *,
    c1,
    c2,
    loss,
    n_threads,
    clamp=None,
    tol=1e-6,
    epsilon=None,
    relative_change=None,
    num_memories=6,
    max_linesearch=20,
    constraints=None,
    max_iterations=None,
    callback=None,
    state=None,
):
    """L-BFGS, or OWL-QN for c1 > 0: an `OptResult`. epsilon: CRFsuite's rule, see `CRF`;
    the log loss alone has it.
    """
    rules = dict(
        c1=c1,
        max_iterations=max_iterations,
        tol=tol,
        tol_gradient=1000 * tol,
        relative_change=relative_change,
        memory=num_memories,
        max_linesearch=max_linesearch,
        state=state,
    )
    if loss != "log":
        return minimize_loss(
            corpus,
            features,
            w0 if w0.any() or max_iterations == 0 else None,
            loss=loss,
            clamp=clamp,
            c2=c2,
            constraints=constraints,
            n_threads=n_threads,
            callback=callback,
            **rules,
        )
    watch = callback if epsilon is None else _SmallGradient(epsilon, c2, callback)
    if c1:
        result = minimize_on_support(
            corpus, features, w0, c2=c2, constraints=constraints, n_threads=n_threads, callback=watch, **rules
        )
    else:
        objective = Objective(corpus, features, c2=c2, constraints=constraints, n_threads=n_threads)
        result = minimize(objective, w0, c2=c2, callback=watch, **rules)
    if getattr(watch, "met", False) and result.status == "stopped by callback":
        return result._replace(status="small gradient (epsilon)")
    return result


class _SmallGradient:
    """Callback that stops by CRFsuite's rule |g| <= epsilon * max(1, |w|);
    for c2 = 0 the largest entry of g stands for |g|.
    """

    def __init__(self, epsilon, c2, callback):
        self.epsilon, self.c2, self.callback, self.met = epsilon, c2, callback, False

    def __call__(self, step, w):
        size = math.sqrt(4.0 * self.c2 * step.violation) if self.c2 > 0 else step.violation
        self.met = size <= self.epsilon * max(1.0, float(np.linalg.norm(w)))
        return (self.callback is not None and self.callback(step, w)) or self.met
