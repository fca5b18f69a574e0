"""One training run of a CRF: objective, optimiser, and what watches them (held-out data, CRFsuite's epsilon)."""

import math
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from crfbook._jit import announce_compilation
from crfbook.models import inference
from crfbook.optim.monitor import Monitor
from crfbook.optim.objective import Objective, forecast
from crfbook.optim.quasi_newton import minimize


def dev_accuracy(corpus, features, constraints, n_threads):
    """Score for a `Monitor`: token accuracy (weights -> float) on held-out sequences.

    corpus : labels that the model does not know are -1 and count as errors. Raises ValueError without any token.
    """
    if corpus.n_tokens == 0:
        raise ValueError("X_dev: expected at least one token, got none")

    def accuracy(w):
        path = inference.decode(corpus, features, w, constraints, n_threads)
        return float(np.mean(path == corpus.labels))

    return accuracy


def train(corpus, features, constraints, settings, w0, *, dev=None, callback=None, verbose=False):
    """Minimise the objective from w0 (F,). Returns (OptResult, history as {column: array}).

    dev : score on held-out data, see `dev_accuracy`; with a patience, `w` and `objective` are those of its best
    iteration. Warns when the optimiser had to give up or was interrupted; to reach the number of iterations that was asked
    for is no reason to warn.
    """
    if verbose:
        print(forecast_line(corpus, features, settings), flush=True)
    announce_compilation("shard_likelihood")
    objective = Objective(corpus, features, c2=settings.c2, constraints=constraints, n_threads=settings.n_threads)
    small = []

    def watch(step, w):
        if _small_gradient(step, w, settings):
            small.append(step.iteration)
        return (callback is not None and callback(step, w)) or bool(small)

    with Monitor(verbose=verbose, score=dev, score_name="dev_accuracy", patience=settings.patience, callback=watch,
                 total=settings.max_iterations) as monitor:
        result = minimize(objective, w0, c1=settings.c1, c2=settings.c2, memory=settings.memory,
                          max_iterations=settings.max_iterations, tol=settings.tol, tol_gradient=1000 * settings.tol,
                          relative_change=settings.relative_change, max_linesearch=settings.max_linesearch,
                          callback=monitor)
        if small and result.status == "stopped by callback":
            result = result._replace(status="small gradient (epsilon)")
        kept = monitor.finish(result)
    _warn(kept)
    return kept, monitor.columns()


def _small_gradient(step, w, settings):
    """CRFsuite's rule |g| <= epsilon * max(1, |w|), if asked for; for c2 = 0 the largest entry of g stands for |g|."""
    if settings.epsilon is None:
        return False
    size = math.sqrt(4.0 * settings.c2 * step.violation) if settings.c2 > 0 else step.violation
    return size <= settings.epsilon * max(1.0, float(np.linalg.norm(w)))


def _warn(result):
    if result.status == "interrupted":
        warnings.warn(f"training was interrupted after {result.n_iter} iterations; the model keeps the last good weights",
                      UserWarning, stacklevel=4)
    elif result.status in ("line search failed", "non-finite objective"):
        warnings.warn(f"training ended early, after {result.n_iter} iterations: {result.status}",
                      ConvergenceWarning, stacklevel=4)


def forecast_line(corpus, features, settings):
    """What training will take, in one line, from counts alone: printed before anything is allocated."""
    size, seconds = forecast(corpus, features)
    vectors = 2 * settings.memory + 6                   # curvature pairs; points, gradients, direction
    total = (size + sum(array.nbytes for array in corpus) + 8 * vectors * features.n_features) / 1e6
    return (f"{corpus.n_sequences:,} sequences, {corpus.n_tokens:,} tokens, {features.n_labels:,} labels, "
            f"{features.n_node:,} + {features.n_edge:,} weights: about {total:,.0f} MB and {seconds:.2g} s per iteration "
            f"on one thread")
