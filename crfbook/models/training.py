"""One training run of a CRF: the algorithm of the table, what watches it,
and what its end means for the user.
"""

import math
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from crfbook._jit import announce_compilation
from crfbook.chain import inference
from crfbook.chain.packing import forecast
from crfbook.models.algorithms import ALGORITHMS, NONE
from crfbook.training.monitor import Monitor

GAVE_UP = ("line search failed", "non-finite objective", "non-finite weights", "diverged")
# to reach their default number of epochs is to stop before the goal
CERTIFIED = ("sgd", "sag", "sdca", "sbcd", "cd")
RUNAWAY = 30.0  # nats: a weight that large says "always" or "never"


def dev_accuracy(corpus, features, constraints, n_threads):
    """Score for a `Monitor`: token accuracy (weights -> float) on held-out sequences.

    corpus : labels that the model does not know are -1 and count as errors.
        Raises ValueError without any token.
    """
    if corpus.n_tokens == 0:
        raise ValueError("X_dev: expected at least one token, got none")

    def accuracy(w):
        at = (w.features, w.w) if hasattr(w, "features") else (features, w)
        path = inference.decode(corpus, *at, constraints, n_threads)
        return float(np.mean(path == corpus.labels))

    return accuracy


def train(
    corpus, features, constraints, settings, w0, *, dev=None, callback=None, verbose=False, state=None, **more
):
    """Run the algorithm of `settings` from w0 (F,), or on from `state`. Returns (OptResult,
    history as {column: array}).

    dev : score on held-out data, see `dev_accuracy`; with a patience,
        `w` and `objective` are those of its best
    iteration. Of virtual weights (`Settings.virtual`) w0 and the result are about some:
    `features` then belong to w0, and the
    result has its own. more : arguments in place of those of the settings.
        Warns when the optimiser had to give up or was interrupted,
    and when weights grow without end; to reach the number of iterations that was asked for is no reason to
    warn.
    """
    row = ALGORITHMS[settings.algorithm]
    if verbose:
        print(forecast_line(corpus, features, settings), flush=True)
    announce_compilation(row.kernel)
    with Monitor(
        verbose=verbose,
        score=dev,
        score_name="dev_accuracy",
        patience=settings.patience,
        callback=callback,
        total=settings.max_iterations,
    ) as monitor:
        result = row.load()(
            corpus,
            features,
            w0,
            constraints=constraints,
            callback=monitor,
            state=state,
            **{**settings.arguments(), **more},
        )
        kept = monitor.finish(result)
    if hasattr(kept.w, "features"):  # of the best iteration, where all weights exist virtually
        kept = kept._replace(features=kept.w.features, w=kept.w.w)
    _warn(kept, settings, settings.max_iterations is None and "max_iterations" not in more, features.n_labels)
    if row.losses and not (settings.c1 or settings.c2 or state is not None):
        _warn_of_runaway(corpus, features, kept.w, constraints, settings)
    return kept, monitor.columns()


def _warn(result, settings, by_default, n_labels):
    if result.status == "interrupted":
        warnings.warn(
            f"training was interrupted after {result.n_iter} iterations; "
            "the model keeps the last good weights",
            UserWarning,
            stacklevel=4,
        )
    elif result.status in GAVE_UP:
        warnings.warn(
            f"training ended early, after {result.n_iter} iterations: {result.status}; "
            "the last good weights are kept",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif result.status == "max_iterations" and by_default and settings.algorithm in CERTIFIED:
        warnings.warn(
            f"algorithm={settings.algorithm!r} stopped at its default of {result.n_iter} epochs, "
            "before its goal was met; a larger max_iterations goes on, 'lbfgs' reaches its certificate",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif result.status == "empty model" or (
        settings.algorithm == "sgd-l1" and n_labels > 1 and result.n_iter and not np.any(result.w)
    ):
        warnings.warn(
            f"the model is empty: c1={settings.c1:g} leaves no weight, "
            "every labelling is as probable as any other; a smaller c1 lets weights in",
            UserWarning,
            stacklevel=4,
        )
    if settings.algorithm in ("sgd", "sgd-l1"):
        from crfbook.learners.stochastic.gradient import divergence

        sentence = divergence(result)
        if sentence:
            warnings.warn(sentence, ConvergenceWarning, stacklevel=4)


def _warn_of_runaway(corpus, features, w, constraints, settings):
    """Without a penalty there may be no minimum: weights that separate the data only get better by growing.

    If every gold labelling has p > 1/2 it beats all others,
    so that s * w with s -> infinity takes the loss to 0: proven.
    """
    largest = float(np.abs(w).max(initial=0.0))
    log_p = (
        inference.log_proba(corpus, features, w, constraints, settings.n_threads)
        if largest > 0
        else np.full(1, -np.inf)
    )
    if log_p.min(initial=0.0) > -math.log(2) or largest > RUNAWAY:
        able = [
            f"{name}=0.01" for name in ("c2", "c1") if getattr(ALGORITHMS[settings.algorithm], name) != NONE
        ]
        remedy = f"{' or '.join(able)} gives a minimum" if able else "fewer iterations keep them small"
        why = (
            "these weights separate the training data, so the loss falls for ever as they grow"
            if largest <= RUNAWAY
            else f"the largest is {largest:.3g} nats"
        )
        warnings.warn(
            "weights keep growing: without a penalty (c1 = c2 = 0) there is no minimum here, "
            f"{why}; the model can be used, its probabilities are near 0 and 1; {remedy}",
            ConvergenceWarning,
            stacklevel=4,
        )


def forecast_line(corpus, features, settings):
    """What training will take, in one line, from counts alone: printed before anything is allocated."""
    size, seconds = forecast(corpus, features)
    n_labels, n_attrs, n_edge_attrs = features.sizes
    counts = (
        (n_attrs * n_labels, n_edge_attrs * n_labels**2)
        if settings.virtual
        else (features.n_node, features.n_edge)
    )
    row, key = ALGORITHMS[settings.algorithm], settings.algorithm
    # curvature pairs; points, gradients, direction
    vectors, unit = 2 * settings.num_memories + 6, "iteration"
    if "num_memories" not in row.settings:
        vectors, unit = 8, "pass of forward-backward"
    if key == "auto":
        from crfbook.learners.stochastic.automatic import uses_sdca

        key = (
            "sdca"
            if uses_sdca(corpus, features, settings.c1, settings.c2, settings.loss, settings.memory_limit)
            else key
        )
    tables = ALGORITHMS[key].bytes(corpus, features)
    total = (size + tables + sum(array.nbytes for array in corpus) + 8 * vectors * features.n_features) / 1e6
    return (
        f"{corpus.n_sequences:,} sequences, {corpus.n_tokens:,} tokens, {features.n_labels:,} labels, "
        f"{counts[0]:,} + {counts[1]:,} {'virtual ' if settings.virtual else ''}weights: "
        f"about {total:,.0f} MB and {seconds:.2g} s per {unit} on one thread"
        + (f"; {tables / 1e6:,.0f} MB of that for what {key} remembers of each sequence" if tables else "")
    )
