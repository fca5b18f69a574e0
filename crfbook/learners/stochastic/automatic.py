"""Algorithm "auto": the fastest way to the certificate of L-BFGS."""

from crfbook.learners.quasi_newton import quasi_newton
from crfbook.learners.stochastic.dual import sdca_memory
from crfbook.learners.stochastic.fast import fast_fit


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
    and memory for its dual variables.
    """
    return loss == "log" and c1 == 0 and c2 > 0 and sdca_memory(corpus, features) <= memory_limit
