"""L-BFGS and OWL-QN as rows of the table of algorithms.

They minimise   sum_i weight_i loss_i + c1 |w|_1 + c2 |w|^2   over the whole corpus; arguments as
`models.parameters.Settings` describes them, all others as in `learners.quasi_newton.lbfgs.minimize`.
"""

from crfbook.chain.objective import Objective
from crfbook.learners.quasi_newton.lbfgs import LBFGS
from crfbook.learners.quasi_newton.loss_path import minimize_loss
from crfbook.learners.quasi_newton.support import minimize_on_support
from crfbook.training.loop import run


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
    rules["epsilon"] = epsilon
    problem = dict(c2=c2, constraints=constraints, n_threads=n_threads)
    if c1:
        return minimize_on_support(corpus, features, w0, callback=callback, **problem, **rules)
    return run(LBFGS(Objective(corpus, features, **problem), w0, c2=c2, **rules), callback)
