"""L-BFGS and OWL-QN as rows of the table of algorithms, and "auto": the fastest way to their certificate.

Both minimise   sum_i weight_i loss_i + c1 |w|_1 + c2 |w|^2   over the whole corpus; arguments as `models.settings.Settings`
describes them, all others as in `optim.quasi_newton.minimize`.
"""

import math

import numpy as np

from crfbook.optim.loss_path import minimize_loss
from crfbook.optim.objective import Objective
from crfbook.optim.quasi_newton import minimize

WINDOW = 5  # epochs over which the fall of the duality gap is measured
PATIENCE = 50  # epochs that dual coordinate ascent may be expected to need: L-BFGS needs some 100 to 200 evaluations in all


def quasi_newton(corpus, features, w0, *, c1, c2, loss, clamp, n_threads, tol=1e-6, epsilon=None, relative_change=None,
                 num_memories=6, max_linesearch=20, constraints=None, max_iterations=None, callback=None, state=None):
    """L-BFGS, or OWL-QN for c1 > 0: an `OptResult`. epsilon: CRFsuite's rule, see `CRF`; the log loss alone has it."""
    rules = dict(c1=c1, max_iterations=max_iterations, tol=tol, tol_gradient=1000 * tol, relative_change=relative_change,
                 memory=num_memories, max_linesearch=max_linesearch, state=state)
    if loss != "log":
        return minimize_loss(corpus, features, w0 if w0.any() or max_iterations == 0 else None, loss=loss, clamp=clamp, c2=c2,
                             constraints=constraints, n_threads=n_threads, callback=callback, **rules)
    objective = Objective(corpus, features, c2=c2, constraints=constraints, n_threads=n_threads)
    watch = callback if epsilon is None else _SmallGradient(epsilon, c2, callback)
    result = minimize(objective, w0, c2=c2, callback=watch, **rules)
    if getattr(watch, "met", False) and result.status == "stopped by callback":
        return result._replace(status="small gradient (epsilon)")
    return result


class _SmallGradient:
    """Callback that stops by CRFsuite's rule |g| <= epsilon * max(1, |w|); for c2 = 0 the largest entry of g stands for |g|."""

    def __init__(self, epsilon, c2, callback):
        self.epsilon, self.c2, self.callback, self.met = epsilon, c2, callback, False

    def __call__(self, step, w):
        size = math.sqrt(4.0 * self.c2 * step.violation) if self.c2 > 0 else step.violation
        self.met = size <= self.epsilon * max(1.0, float(np.linalg.norm(w)))
        return (self.callback is not None and self.callback(step, w)) or self.met


def auto(corpus, features, w0, *, c1, c2, loss, random_state, memory_limit, callback=None, max_iterations=None, tol=1e-6,
         constraints=None, state=None, **settings):
    """The log loss with an L2 penalty alone: dual coordinate ascent while it is fast, then L-BFGS. Else `quasi_newton`."""
    rest = dict(settings, c1=c1, c2=c2, loss=loss, tol=tol, constraints=constraints, state=state)
    if not uses_sdca(corpus, features, c1, c2, loss, memory_limit) or w0.any() or max_iterations == 0:
        return quasi_newton(corpus, features, w0, callback=callback, max_iterations=max_iterations, **rest)
    from crfbook.optim.sdca import sdca

    watch = _WhileFast(tol, callback)
    epochs = {} if max_iterations is None else {"max_iterations": max_iterations}
    first = sdca(corpus, features, w0, c2=c2, memory_limit=memory_limit, tol=tol, constraints=constraints,
                 random_state=random_state, callback=watch, **epochs)
    if first.status not in ("max_iterations", "stopped by callback") or watch.stopped or first.n_iter == max_iterations:
        return first
    seconds = first.history[-1].seconds
    later = []

    def go_on(step, w):
        later.append(step._replace(iteration=step.iteration + first.n_iter, seconds=step.seconds + seconds))
        return callback is not None and callback(later[-1], w)

    left = None if max_iterations is None else max_iterations - first.n_iter
    second = quasi_newton(corpus, features, first.w, callback=go_on, max_iterations=left, **rest)
    return second._replace(n_iter=first.n_iter + second.n_iter, history=[*first.history, *later],
                           n_evaluations=first.n_evaluations + second.n_evaluations)


class _WhileFast:
    """Callback that ends dual coordinate ascent where its gap, falling as in the last epochs, would take too long to reach tol."""

    def __init__(self, tol, callback):
        self.tol, self.callback, self.gaps, self.stopped = tol, callback, [], False

    def __call__(self, step, w):
        self.stopped = self.callback is not None and bool(self.callback(step, w))
        self.gaps = [*self.gaps, step.violation][-WINDOW - 1:]
        if len(self.gaps) <= WINDOW or step.violation <= 0 or step.iteration <= 2 * WINDOW:
            return self.stopped
        fall = math.log(self.gaps[0] / step.violation) / WINDOW if self.gaps[0] > 0 else 0.0
        left = math.log(step.violation / max(1e-300, self.tol * max(1.0, abs(step.objective))))
        return self.stopped or left > PATIENCE * fall


def uses_sdca(corpus, features, c1, c2, loss, memory_limit):
    """Does `auto` begin with dual coordinate ascent? It needs an L2 penalty, the log loss, and memory for its dual variables."""
    from crfbook.optim.sdca import sdca_memory

    return loss == "log" and c1 == 0 and c2 > 0 and sdca_memory(corpus, features) <= memory_limit
