"""One training run of a CRF: objective, optimiser, and what watches them (held-out data, CRFsuite's epsilon)."""

import math
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from crfbook.models import inference
from crfbook.optim.objective import Objective
from crfbook.optim.quasi_newton import Step, minimize


class DevSet:
    """Token accuracy on held-out sequences after each iteration; remembers the best weights.

    corpus : labels that the model does not know are -1 and count as errors.
    patience : iterations without a better accuracy after which `watch` asks to stop, or None.
    """

    def __init__(self, corpus, features, constraints, n_threads, patience):
        self.corpus, self.patience = corpus, patience
        self.features, self.constraints, self.n_threads = features, constraints, n_threads
        self.accuracy = []
        self.best, self.best_w, self.best_objective = -1, None, math.nan

    def watch(self, step, w):
        path = inference.decode(self.corpus, self.features, w, self.constraints, self.n_threads)
        self.accuracy.append(float(np.mean(path == self.corpus.labels)))
        if self.best_w is None or self.accuracy[-1] > self.accuracy[self.best]:
            self.best, self.best_w, self.best_objective = len(self.accuracy) - 1, w.copy(), step.objective
        if self.patience is not None and len(self.accuracy) - 1 - self.best >= self.patience:
            return "no better on the dev set"
        return None


def train(corpus, features, constraints, settings, w0, *, dev=None, callback=None, verbose=False):
    """Minimise the objective from w0 (F,). Returns an OptResult.

    With a dev set that has a patience, `w` and `objective` are those of its best iteration. Warns when the optimiser had to
    give up or was interrupted; a number of iterations that was asked for is no reason to warn.
    """
    objective = Objective(corpus, features, c2=settings.c2, constraints=constraints, n_threads=settings.n_threads)
    bar = None
    if verbose:
        print(forecast_line(corpus, features, objective, settings), flush=True)
        bar = None
    reasons = []

    def watch(step, w):
        if bar is not None:
            bar(step)
        found = [_small_gradient(step, w, settings), dev and dev.watch(step, w),
                 "stopped by callback" if callback is not None and callback(step, w) else None]
        reasons.extend(filter(None, found))
        return bool(reasons)

    result = minimize(objective, w0, c1=settings.c1, c2=settings.c2, memory=settings.memory,
                      max_iterations=settings.max_iterations, tol=settings.tol, tol_gradient=1000 * settings.tol,
                      relative_change=settings.relative_change, max_linesearch=settings.max_linesearch, callback=watch)
    if bar is not None:
        bar.close()
    if reasons and result.status == "stopped by callback":
        result = result._replace(status=reasons[0])
    if dev is not None and settings.patience is not None and dev.best_w is not None:
        result = result._replace(w=dev.best_w, objective=dev.best_objective)
    _warn(result)
    return result


def _small_gradient(step, w, settings):
    """CRFsuite's rule |g| <= epsilon * max(1, |w|), if asked for; for c2 = 0 the largest entry of g stands for |g|."""
    if settings.epsilon is None:
        return None
    size = math.sqrt(4.0 * settings.c2 * step.violation) if settings.c2 > 0 else step.violation
    return "small gradient (epsilon)" if size <= settings.epsilon * max(1.0, float(np.linalg.norm(w))) else None


def _warn(result):
    if result.status == "interrupted":
        warnings.warn(f"training was interrupted after {result.n_iter} iterations; the model keeps the last good weights",
                      UserWarning, stacklevel=4)
    elif result.status in ("line search failed", "non-finite objective"):
        warnings.warn(f"training ended early, after {result.n_iter} iterations: {result.status}",
                      ConvergenceWarning, stacklevel=4)


def history_columns(history, dev=None):
    """The iterations as {column: array}: the fields of Step, and the accuracy on a dev set."""
    columns = {name: np.array([getattr(step, name) for step in history]) for name in Step._fields}
    if dev is not None:
        columns["dev_accuracy"] = np.array(dev.accuracy[:len(history)])
    return columns


def forecast_line(corpus, features, objective, settings):
    """What training will take, in one line, before it begins."""
    size, seconds = objective.forecast()
    vectors = 2 * settings.memory + 6                   # curvature pairs, point, gradient, direction
    total = (size + sum(array.nbytes for array in corpus) + 8 * vectors * features.n_features) / 1e6
    return (f"{corpus.n_sequences:,} sequences, {corpus.n_tokens:,} tokens, {features.n_labels:,} labels, "
            f"{features.n_node:,} + {features.n_edge:,} weights: about {total:,.0f} MB and {seconds:.2g} s per iteration "
            f"on one thread")
