"""One training run of a CRF: the algorithm of the table, what watches it, what its end means for the user;
and training that goes on with new sequences, `partial_fit` of the online learners.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Hashable, Iterable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import COUNTS, Stored, shown
from crfbook.chain import inference
from crfbook.chain.objective import Objective
from crfbook.chain.packing import forecast
from crfbook.chain.sparse.choice import FormChooser
from crfbook.data.columns import Data
from crfbook.data.constraints import describe_violations, violations
from crfbook.data.corpus import Corpus
from crfbook.data.features import find, from_keys
from crfbook.data.partial import Partial
from crfbook.data.vocabulary import Labels, UnknownLabelError, flat_labels
from crfbook.encoding.tag_dictionary import free_blocked, hold_freed
from crfbook.models.inputs import known_corpus, listed, require_labels, restricted, training_set, weighted
from crfbook.models.parameters import ALGORITHMS, NONE, PARAMETERS, check_settings, thread_count
from crfbook.models.prediction import Fitted
from crfbook.training.loop import GAVE_UP
from crfbook.training.monitor import Monitor

# to reach their default number of epochs is to stop before the goal
RUNAWAY = 30.0  # nats: a weight that large says "always" or "never"
EXTREME = 1e50  # products of a few numbers beyond it, or below its inverse, leave float64
SCALES = ("c1", "c2", "clamp", "calibration_eta", "calibration_rate", "c", "variance", "gamma")
_WHOLE, _REAL = Stored("iu", (), 0, COUNTS), Stored("iuf", (), 0)
_DESCENT = dict.fromkeys(("seed", "n_done", "n_halvings", "epoch"), _WHOLE) | dict.fromkeys(
    ("passes", "eta0", "most", "seconds"), _REAL
)
_ONLINE = {"count": Stored(np.int64, (1,), 1, COUNTS), "epoch": _WHOLE, "seconds": _REAL}
# what a state has in a model file: {algorithm: (vectors, one number for each weight; table of the others)}
STATES = {
    "sgd": (("w", "mean"), _DESCENT | {"n_mean": _WHOLE, "window": Stored("iuf")}),
    "sgd-l1": (("w", "received"), _DESCENT | {"due": _REAL, "window": Stored("iuf")}),
    "perceptron": (("w", "w_sum"), _ONLINE),
    "pa": (("w", "w_sum"), _ONLINE),
    "arow": (("w", "w_sum", "variance"), _ONLINE),
}
VECTORS = {name for vectors, _ in STATES.values() for name in vectors}


def state_table(algorithm, n_features):
    """{name: Stored} of the arrays that `partial_fit` with this algorithm goes on from, or KeyError."""
    vectors, others = STATES[algorithm]
    least = {"variance": 0.0}  # a negative one makes a step that never ends
    return others | {name: Stored(np.float64, (n_features,), least.get(name)) for name in vectors}


def dev_accuracy(ready, settings, X_dev, y_dev):
    """Score for a `Monitor`: token accuracy (weights -> float) on held-out sequences; None without X_dev.

    ready : `TrainingSet`. Labels that it does not know count as errors, None not at all. Raises ValueError
    without any token that counts, for a set of labels, and for X_dev, y_dev or a patience that lack
    what they need.
    """
    if X_dev is None:
        if y_dev is not None or settings.patience is not None:
            what = "patience" if y_dev is None else "y_dev"
            raise ValueError(f"fit: {what} was given without X_dev, the held-out sequences it is for")
        return None
    if y_dev is None and getattr(X_dev, "labels", None) is None:
        hint = "sample_weight goes by keyword"
        raise ValueError(f"fit: X_dev was given without its labels y_dev ({hint}), {shown(X_dev)}")
    X_dev, y_dev = listed(X_dev, "X_dev"), listed(y_dev, "y_dev")
    corpus = known_corpus(ready.encoder, X_dev, y_dev, "mark", ready.label_sets)
    corpus = free_blocked(corpus, ready.constraints)
    flat = X_dev.labels if y_dev is None else flat_labels(y_dev, corpus.seq_ptr, may_be_flat=True)
    # of a Corpus -1 is none
    known = np.array([y is not None and not (isinstance(X_dev, Corpus) and y == -1) for y in flat], bool)
    if not known.any():
        raise ValueError("X_dev: expected at least one token with a label, got none")

    def accuracy(w):
        at = (w.features, w.w) if hasattr(w, "features") else (ready.features, w)
        path = inference.decode(corpus, *at, ready.constraints, settings.n_threads)
        return float(np.mean((path == corpus.labels)[known]))

    return accuracy


def train(ready, settings, w0, *, dev=None, callback=None, verbose=False, state=None, **more):
    """Run the algorithm of `settings` from w0 (F,), or on from `state`: (OptResult, {column: array}).

    ready : `TrainingSet`.
    dev : score on held-out data, see `dev_accuracy`; with a patience, `w` and `objective` are those of its
        best iteration.
    more : arguments in place of those of the settings.

    Of virtual weights (`Settings.virtual`) w0 and the result are about some: `ready.features` then belong to
    w0, and the result has its own. Warns when the optimiser had to give up or was interrupted; to reach the
    number of iterations that was asked for is no reason to warn.
    """
    corpus, constraints, features = ready.corpus, ready.constraints, ready.features
    if verbose:
        print(forecast_line(corpus, features, settings), flush=True)
    watched = dict(verbose=verbose, score=dev, score_name="dev_accuracy", patience=settings.patience)
    with Monitor(**watched, callback=callback, total=settings.max_iterations) as monitor:
        common = dict(constraints=constraints, callback=monitor, state=state)
        if ready.held is not None:
            common["held"] = ready.held
        learner = ALGORITHMS[settings.algorithm].load()
        result = learner(corpus, features, w0, **common, **{**settings.arguments(), **more})
        kept = monitor.finish(result)
    if settings.eps and math.isfinite(kept.objective):  # of active sets: what they left out can only be more
        with contextlib.suppress(KeyboardInterrupt, ValueError):
            given = {"c2": settings.c2, "constraints": constraints, "n_threads": settings.n_threads}
            value, _ = Objective(corpus, features, **given)(kept.w)
            kept = kept._replace(objective=value + settings.c1 * float(np.abs(kept.w).sum()))
    if hasattr(kept.w, "features"):  # of the best iteration, where all weights exist virtually
        kept = kept._replace(features=kept.w.features, w=kept.w.w)
    by_default = settings.max_iterations is None and "max_iterations" not in more
    warn_of_end(kept, corpus, settings, by_default, features.n_labels)
    return kept, monitor.columns()


def fit_by_lbfgs(model, corpus, objective, w0, callback, **rules):
    """Minimise an objective from w0 (F,) for an estimator, which takes the weights and what is said of them.

    rules : of `minimize`: tol, max_iterations and others. Warns where training was interrupted or gave up.
    """
    from crfbook.learners.quasi_newton import minimize

    with Monitor(verbose=model.verbose, callback=callback, total=rules["max_iterations"]) as monitor:
        most = 1000 * min(rules["tol"], 1e300)
        result = minimize(objective, w0, tol_gradient=most, callback=monitor, **rules)
    if result.status == "interrupted" or result.status in GAVE_UP:
        warnings.warn(early_end(result, corpus, model), ConvergenceWarning, stacklevel=3)
    model.weights_, model.objective_ = result.w, result.objective
    model.n_iter_, model.status_, model._history = result.n_iter, result.status, monitor.columns()


def early_end(result, corpus, settings):
    """What to tell a user whose training was interrupted or gave up: then with the numbers beyond float64.

    settings : anything that has the parameters among SCALES that training has read.
    """
    sentence = f"training ended early, after {result.n_iter} iterations: {result.status}"
    if result.status not in GAVE_UP:
        return sentence
    finite = math.isfinite(result.objective)
    end = "last good weights are kept" if finite else "weights have no finite objective"
    arrays = {"attribute values": corpus.attr_val, "sample weights": corpus.seq_weight}
    largest = {name: np.abs(array).max(initial=0.0) for name, array in arrays.items()}
    found = [f"{name} up to {most:.3g}" for name, most in largest.items() if most > EXTREME]
    numbers = {name: getattr(settings, name, None) for name in SCALES}
    found += [f"{k}={v:.3g}" for k, v in numbers.items() if v and not 1 / EXTREME <= v <= EXTREME]
    cause = f"; {' and '.join(found)}: sums leave float64, scale them" if found else ""
    return f"{sentence}; the {end}{cause}"


def warn_unconverged(n, of, engine, stacklevel):
    """One `ConvergenceWarning` for sequences whose messages did not converge."""
    sentence = (
        f"belief propagation ({engine}) found no fixed point in {n} of {of} sequences within max_sweeps: "
        "their beliefs are used as they are; take more sweeps, or exact inference"
    )
    warnings.warn(sentence, ConvergenceWarning, stacklevel=stacklevel + 1)


def warn_of_end(result, corpus, settings, by_default, n_labels):
    """Warn where training gave up, was interrupted, or left an empty model.

    corpus : or anything with its attr_val and seq_weight. by_default : max_iterations was not given.
    """
    status, n, key, sentence, kind = result.status, result.n_iter, settings.algorithm, "", ConvergenceWarning
    if status == "interrupted":
        sentence = f"training was interrupted after {n} iterations; the model keeps the last good weights"
        kind = UserWarning
    elif status in GAVE_UP:
        sentence = early_end(result, corpus, settings)
    elif n and result.objective > (start := float(result.state.get("most", np.inf))):
        sentence = (
            f"the objective, {result.objective:.4g} nats, is above that of the start, {start:.4g}: the "
            "learning rates are too large for these data; smaller attribute values help, or more epochs"
        )
    elif status == "max_iterations" and by_default and ALGORITHMS[key].has_goal:
        sentence = (
            f"algorithm={key!r} stopped at its default of {n} epochs, "
            "before its goal was met; a larger max_iterations goes on, 'lbfgs' reaches its certificate"
        )
    elif status == "empty model" or (settings.c1 > 0 and n_labels > 1 and n and not np.any(result.w)):
        sentence = (
            f"the model is empty: c1={settings.c1:g} leaves no weight, "
            "every labelling is as probable as any other; a smaller c1 lets weights in"
        )
        kind = UserWarning
    if sentence:
        warnings.warn(sentence, kind, stacklevel=4)
    if "n_halvings" in (result.state or {}):  # of a step that was too large
        from crfbook.learners.stochastic.gradient_descent import divergence

        if sentence := divergence(result):
            warnings.warn(sentence, ConvergenceWarning, stacklevel=4)


def warn_of_runaway(model, settings, corpus, held=None):
    """Warn where the weights of a fitted CRF would grow without end.

    Without a penalty there may be no minimum: weights that separate the data only get better by growing. If
    of each sequence one labelling that agrees with what is known is more probable than all together that do
    not, it beats them, so that s * w with s -> infinity takes the loss to 0: proven. (Where all is known, the
    gold labelling has p > 1/2.) That takes passes over the data, of scores that may be too large for them.

    held : `Held`, what is known of the labels; None: all of them.
    """
    row = ALGORITHMS[settings.algorithm]
    if settings.c1 or settings.c2 or not row.losses or model.status_ == "interrupted":
        return
    largest = float(np.abs(model.weights_).max(initial=0.0))
    try:
        won = largest > 0 and _separated(corpus, held, *model._model())
    except (KeyboardInterrupt, ValueError):  # the model is there without it
        return
    if won or largest > RUNAWAY:
        able = [f"{name}=0.01" for name in ("c2", "c1") if getattr(row, name) != NONE]
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
            stacklevel=3,
        )


def _separated(corpus, held, features, w, constraints, n_threads):
    """Whether in each sequence the best labelling that `held` allows is more probable than all others are."""
    inside = 0.0  # log p of the best labelling among those that agree with what is known
    if held is not None:
        text, limits = corpus._replace(label_set=held.row), held.limits(constraints)
        path = inference.decode(text, features, w, limits, n_threads)
        corpus, text = corpus._replace(labels=path), text._replace(labels=path)
        inside = inference.log_proba(text, features, w, limits, n_threads)
    log_p = inference.log_proba(corpus, features, w, constraints, n_threads)
    won = np.exp(log_p) > -np.expm1(np.minimum(log_p - inside, 0.0))
    return bool((won | (log_p == inside)).all())  # equal: nothing is known


def forecast_line(corpus, features, settings):
    """What training will take, in one line, from counts alone: printed before anything is allocated."""
    size, seconds = forecast(corpus, features)
    n_labels, n_attrs, n_edge_attrs = features.sizes
    counts = features.n_node, features.n_edge
    if settings.virtual:
        counts = n_attrs * n_labels, n_edge_attrs * n_labels**2
    key, vectors, unit, form = settings.algorithm, 8, "pass of forward-backward", ""
    if key in PARAMETERS["num_memories"].readers:  # curvature pairs; points, gradients, direction
        vectors, unit = 2 * settings.num_memories + 6, "iteration"
        if settings.loss == "log" and not settings.virtual:
            form = "; " + FormChooser(features, corpus, "auto").reason(np.ones(features.n_features))
    if key == "auto":
        from crfbook.learners.stochastic.fast import uses_sdca

        problem = corpus, features, settings.c1, settings.c2, settings.loss, settings.memory_limit
        key = "sdca" if uses_sdca(*problem) else key
    tables = ALGORITHMS[key].bytes(corpus, features)
    total = (size + tables + sum(array.nbytes for array in corpus) + 8 * vectors * features.n_features) / 1e6
    return (
        f"{corpus.n_sequences:,} sequences, {corpus.n_tokens:,} tokens, {features.n_labels:,} labels, "
        f"{counts[0]:,} + {counts[1]:,} {'virtual ' if settings.virtual else ''}weights: "
        f"about {total:,.0f} MB and {seconds:.2g} s per {unit} on one thread"
        + (f"; {tables / 1e6:,.0f} MB of that for what {key} remembers of each sequence" if tables else "")
        + form
    )


def carried_over(old, encoder, features):
    """Start weights (F,) from a fitted model: what has the same names keeps its weight, the rest is 0."""
    before, w_old, w, n_node = old.features_, old.weights_, np.zeros(features.n_features), features.n_node
    nodes, edges = _carried_keys(old, encoder)
    for keys, wanted, new, weights in (
        (features.node_keys, nodes, w[:n_node], w_old[: before.n_node]),
        (features.edge_keys, edges, w[n_node:], w_old[before.n_node :]),
    ):
        where, hit = find(keys, wanted)
        new[where[hit]] = weights[hit]
    return w


def carried_features(old, encoder):
    """FeatureSet of those weights of a fitted model whose names the new alphabets have too."""
    nodes, edges = (np.sort(keys[keys >= 0]) for keys in _carried_keys(old, encoder))
    return from_keys(len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs, nodes, edges)


def _carried_keys(old, encoder):
    """Keys of the node and the edge weights of a fitted model in new alphabets; -1: a name is not there."""
    label = _positions(old.encoder_.labels_, encoder.labels_)
    attribute = _positions(old.encoder_.attribute_names(), encoder.attribute_names())
    edge_attribute = _positions(old.encoder_.edge_attribute_names(), encoder.edge_attribute_names())
    before, n = old.features_, len(encoder.labels_)
    edges = edge_attribute[before.edge_attr], label[before.edge_prev], label[before.edge_next]
    return _joined(n, attribute[before.node_attr], label[before.node_label]), _joined(n, *edges)


def _joined(n_labels, owner, *labels):
    """Keys (owner * L + label) * L + ..., -1 where a part is."""
    key = owner
    for label in labels:
        key = np.where((key < 0) | (label < 0), -1, key * n_labels + label)
    return key


def merged(old, new):
    """A FeatureSet that has the weights of both (of the same alphabets),
    and the places (F,) of the old one's in it.
    """
    nodes, edges = np.union1d(old.node_keys, new.node_keys), np.union1d(old.edge_keys, new.edge_keys)
    place = [np.searchsorted(nodes, old.node_keys), len(nodes) + np.searchsorted(edges, old.edge_keys)]
    return from_keys(*old.sizes, nodes, edges), np.concatenate(place)


def _positions(old_names, new_names):
    """Where each old name stands among the new ones, -1 if it does not."""
    where = {name: i for i, name in enumerate(new_names)}
    return np.array([where.get(name, -1) for name in old_names], dtype=np.int64)


SLACK = 1e-12  # of the largest score: scores that close are one score to `calibrate`


class Calibrated(Fitted):
    """The part of `CRF` that makes its probabilities fit held-out labels."""

    n_jobs: int | None

    def calibrate(self, X: Data, y: Labels | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Divide all weights by the temperature that makes held-out labels most probable: `temperature_`.

        Above 1 the model was too sure. Probabilities change, the best labelling does not; `save` keeps the
        new weights, not temperature_. That is the product of all temperatures since the last training.
        One number is fitted: some hundred labelled sentences that `fit` has not seen will do. The
        log-likelihood is concave in 1 / temperature: there is one best. Changes the model; returns self.
        `model.calibrate(X_dev, y_dev).predict_spans(X)`; `evaluation.reliability` shows the difference.

        Raises ValueError for a label that the model does not know or that the constraints forbid, naming it
        and its place (a tag dictionary gives way), and where there is no temperature: no held-out token,
        every held-out labelling has the best score, or the scores say nothing of them.
        Source: Guo, Pleiss, Sun and Weinberger (2017), section 4.2.
        """
        check_is_fitted(self, "weights_")
        corpus = require_labels(known_corpus(self.encoder_, X, y, "raise", self.label_sets_))
        corpus, w, constraints = weighted(corpus, sample_weight), self.weights_, self.constraints_
        known = Partial(corpus.labels, np.eye(self.features_.n_labels, dtype=bool))
        corpus, _ = hold_freed(corpus, constraints, known, self.label_sets_)
        if found := violations(corpus, constraints, self.encoder_.labels_):
            raise ValueError(f"calibrate: {describe_violations(found)}")
        model, n_threads = (self.features_, w, constraints), thread_count(self.n_jobs)
        paths = corpus.labels, inference.decode(corpus, *model, n_threads)
        scores = [inference.sequence_scores(corpus._replace(labels=path), *model) for path in paths]
        gold, best = (score[corpus.visited] for score in scores)
        unit = float(np.abs([gold, best]).max(initial=0.0))
        objective = Objective(corpus, self.features_, constraints=constraints, n_threads=n_threads)

        def slope(scale):
            return float(objective(scale * w)[1] @ w)

        why = "" if len(best) else "there is no token"
        # labellings of the best score: a larger scale is better for ever
        if not why and (best - gold).max() <= SLACK * unit:
            why = "every labelling is the best one"
        if not why and slope(0.0) >= -SLACK * unit * corpus.weights.sum():
            why = "the scores do not tell them apart"
        if why:
            raise ValueError(f"calibrate: expected held-out labels that set a temperature, but {why}")
        low = high = 1.0 / unit
        while slope(low) > 0:
            low, high = low / 2.0, low
        while slope(high) < 0:
            low, high = high, high * 2.0
        scale = brentq(slope, low, high, xtol=SLACK * low) if low < high else low
        self.weights_, self.temperature_ = scale * w, getattr(self, "temperature_", 1.0) / scale
        self._learner = self._learner[0], None
        return self


class Stream(Fitted):
    """The part of `CRF` that learns from sequences as they come."""

    def partial_fit(
        self, X: Data, y: Labels | None = None, classes: Iterable[Hashable] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """One pass over more sequences: algorithm "perceptron", "pa", "arow", "sgd" or "sgd-l1".

        The first call (or a `fit` before it) settles the alphabets: attributes it has not seen are ignored
        later, as scikit-learn's vectorizers do; `fit` with max_iterations=0 on a larger text settles them
        without training. Weights for pairs of known attributes and labels that come later are added.
        Sequences are visited as they stand ("sgd" shuffles those of one call). weights_ is what `fit` would
        keep (averaged, where it averages); the state behind it survives `save` and `load`. For "sgd" and
        "sgd-l1" the penalty counts once for all sequences seen so far. A tag dictionary stays that of the
        first call: sequences that contradict it are refused, or left out (on_violation="drop").

        Parameters
        ----------
        X, y, sample_weight : as in `fit`.
        classes : all labels that will ever come; needed in the first call only, if it does not show them all.

        Returns self. Raises ValueError as `fit` does, for a label that the model does not know (naming it and
        its place), and for an algorithm that needs the whole corpus at once.
        """
        settings = check_settings(self)
        row = ALGORITHMS[settings.algorithm]
        if row.one_pass is None:
            able = ", ".join(repr(key) for key, other in ALGORITHMS.items() if other.one_pass is not None)
            raise ValueError(
                f"partial_fit: algorithm={settings.algorithm!r} needs all sequences at once; "
                f"these learn from them as they come: {able}"
            )
        if "weights_" in vars(self):  # not what model_filename holds
            ready = self._more(settings, X, y, classes, sample_weight)
            if ready is None:
                return self
            ready, w, state = ready
            seen, history = self._n_seen, self._history
        else:
            ready = training_set(self, settings, X, y, sample_weight, classes)
            w, state, seen, history = np.zeros(ready.features.n_features), None, 0, None
        seen += ready.corpus.n_sequences
        epoch = self._one_pass(row, settings, state, ready.corpus, seen)
        result, steps = train(ready, settings, w, state=state, **epoch)
        if history is not None:
            steps = {
                name: np.concatenate([history[name], column]) if name in history else column
                for name, column in steps.items()
            }
        self._keep(ready, result, steps, settings.algorithm, seen)
        if state is None:
            warn_of_runaway(self, settings, ready.corpus)
        return self

    def _more(self, settings, X, y, classes, sample_weight):
        """(`TrainingSet`, weights, state of the learner or None) to go on from with more sequences; None if
        they have no token.
        """
        if classes is not None and set(classes) != set(self.encoder_.labels_):
            raise ValueError(
                f"partial_fit: expected the classes of the first call, {shown(self.encoder_.labels_)}, "
                f"got {shown(classes)}"
            )
        X = listed(X)
        try:
            corpus = known_corpus(self.encoder_, X, y, "raise", self.label_sets_)
        except UnknownLabelError as error:
            remedy = "the first partial_fit has to name all labels: classes=[...]"
            raise ValueError(f"{error}; {remedy}") from None
        corpus = weighted(require_labels(corpus), sample_weight)
        if corpus.n_tokens == 0:
            return None
        ready = restricted(self, settings, X, self.encoder_, corpus, self.label_sets_)
        features, place = merged(self.features_, ready.features)
        trained_by, state = self._learner
        goes_on = state is not None and trained_by == settings.algorithm
        state = _grown(state, place, features, settings) if goes_on else None
        return ready._replace(features=features), _spread(self.weights_, place, features), state

    def _one_pass(self, row, settings, state, corpus, seen):
        """Arguments of one more epoch over `corpus`, after which `seen` sequences have come in all."""
        more = {**row.one_pass, "max_iterations": (0 if state is None else int(state["epoch"])) + 1}
        share = corpus.n_sequences / seen  # functions spread a penalty over the sequences they are given
        more |= {name: getattr(settings, name) * share for name in ("c1", "c2") if getattr(row, name) != NONE}
        if settings.algorithm == "sgd-l1":
            from crfbook.learners.stochastic.gradient_descent import DECAY

            more["decay"] = DECAY**share
        return more


def _spread(vector, place, features, rest=0.0):
    out = np.full(features.n_features, rest)
    out[place] = vector
    return out


def _grown(state, place, features, settings):
    """A learner's state with entries for new weights, as they are at the beginning: 0, or the variance."""
    first = {"variance": 1.0 if settings.variance is None else settings.variance}
    return {
        name: _spread(array, place, features, first.get(name, 0.0)) if name in VECTORS else array
        for name, array in state.items()
    }
