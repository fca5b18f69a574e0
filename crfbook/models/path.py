"""The regularisation path: one CRF for each of many L1 penalties, from the largest down,
each from the solution before.

    path = regularization_path(CRF(template="ner", c2=0.0), train, cv=5, scoring="f1")
    path.frame                                   # a row for each c1: objective, active weights, scores
    path.best                                    # the model of the c1 that cross-validation chooses
    plotting.regularization_path(path)           # from crfbook import plotting

From c1_max, the largest |gradient| at w = 0, on no weight survives; below it they come in a few at a time, so
that a falling path keeps every problem small. c1 is in the unit of the counts: a feature whose observed and
expected counts differ by at most c1 stays out. So the path begins at 100 occurrences and ends at a tenth of
one, however large the corpus. c1_max grows with it: mostly it is the surplus of one frequent label after
itself (O, O), and on the way down from there little is learned for long. Source: Sokolovska, Lavergne, Cappe
and Yvon (2010), section 7; Friedman, Hastie and Tibshirani (2010) for the grid.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from crfbook._checks import function_or_none, is_number, number, shown, whole
from crfbook.chain.objective import Objective
from crfbook.chain.partial import partial_objective
from crfbook.data.columns import Data
from crfbook.data.corpus import Corpus, take_sequences
from crfbook.data.features import select
from crfbook.data.partial import split_sets
from crfbook.data.vocabulary import Labels
from crfbook.evaluation import chunk_score, token_accuracy
from crfbook.evaluation.schemes import reading_of, refuse_sets
from crfbook.learners.coordinate.descent import largest_c1
from crfbook.models.crf import CRF
from crfbook.models.fitting import forecast_line, train
from crfbook.models.inputs import listed, training_set
from crfbook.models.parameters import check_settings
from crfbook.models.prediction import gold_labels
from crfbook.training.monitor import JobMonitor

if TYPE_CHECKING:
    from pandas import DataFrame

HIGHEST = 100.0  # occurrences
ROW = ("c1", "objective", "n_active", "n_node", "n_edge", "iterations", "status", "seconds")


class Path(NamedTuple):
    """What `regularization_path` returns."""

    frame: DataFrame  # one row for each c1, falling; columns see there
    models: list[CRF]  # the fitted CRFs, row by row; each holds its active weights alone
    chosen: int | None  # row of the best score, None without scores
    status: str  # "complete" or "interrupted"

    @property
    def best(self) -> CRF:
        """The model chosen by the scores. Raises ValueError where there are none."""
        if self.chosen is None:
            why = "it was interrupted before the first fold ended, or " * (self.status == "interrupted")
            raise ValueError(f"the path has no scores to choose by: {why}give cv, or X_dev with y_dev")
        return self.models[self.chosen]

    def within_one_error(self) -> int:
        """Row of the largest c1 whose score is at most one standard error (of the folds) below the best:
        the sparsest good model.
        """
        if self.chosen is None or "score_error" not in self.frame:
            raise ValueError("standard errors need cross-validation: give cv")
        score, error = self.frame["score"].to_numpy(), self.frame["score_error"].to_numpy()
        good = score >= score[self.chosen] - np.nan_to_num(error[self.chosen])
        if not self.frame["n_active"].iloc[self.chosen]:
            return self.chosen
        return int(np.argmax(good & (self.frame["n_active"] > 0)))


def regularization_path(
    model: CRF, X: Data, y: Labels | None = None, *,
    strengths: ArrayLike | None = None, n_strengths: int = 10, ratio: float = 1e-3,
    cv: Any = None, X_dev: Data | None = None, y_dev: Labels | None = None,
    scoring: str | Callable[[Any, Any], float] = "accuracy",
    callback: Callable[[dict[str, Any], CRF], object] | None = None,
    scheme: str = "auto", strict: bool = False,
) -> Path:  # fmt: skip
    """Fit `model` (a CRF; it is not changed, its c1 not read) for every c1 of a path.

    Parameters
    ----------
    X, y : as in `CRF.fit`.
    strengths : the values of c1, > 0, in any order; None: `n_strengths` of them, falling in equal ratios from
        the smaller of c1_max and 100 times the mean weight of a sequence (1,
        unless a Corpus has others) to `ratio` times that.
    cv : None, or how to cross-validate, as in scikit-learn: a number k of folds (blocks of neighbouring
        sequences in the order of the data, nothing is shuffled), a splitter, or pairs (numbers of training
        sequences, numbers of held-out ones). Each fold learns its own alphabets and its own path with the
        same values of c1.
    X_dev, y_dev : held-out sequences that are scored in place of cross-validation.
    scoring : "accuracy" of tokens, "f1" of chunks, or a function (gold, found: lists of sequences of labels)
        -> number, larger is better; it is tried on (gold, gold) before anything is trained.
    scheme, strict : of "f1": how chunks are read, as in `evaluation.chunk_report`. "auto": the scheme that
        the labels have; labels of none are refused.
    callback : called with (row: dict, model) after each c1 of the path itself; True ends the path.

    Returns a `Path`. Columns of its frame: c1, objective (of the model, its penalty included), n_active, of
    which n_node and n_edge, iterations, status, seconds (wall clock); and with scores: score (mean over
    folds), with cv also score_error (its standard error) and n_folds. Among equal scores the largest c1 is
    chosen: the smaller model, but one without weights only if all are; a warning says where the smallest of
    several values is the best. Where the model is verbose one bar on stderr (2: a line for each) counts all
    fits, those of the folds included, and says what is under way.

    Ctrl-C keeps the models that are finished and the folds that are; the status is then "interrupted". Warns
    if no weight survives any c1. Raises ValueError for bad arguments, and what `fit` raises.
    """
    X, y = listed(X), listed(y, "y")
    if cv is not None and X_dev is not None:
        raise ValueError("cv and X_dev: expected one of them, got both")
    if y_dev is not None and X_dev is None:
        raise ValueError("y_dev: expected X_dev with it, got labels alone")
    function_or_none("callback", callback)
    problem = _Problem(model, X, y)
    X_dev, y_dev = listed(X_dev, "X_dev"), listed(y_dev, "y_dev")
    score = _scorer(scoring, scheme, strict, [(X, y), (X_dev, y_dev)], model.verbose)
    dev = None if X_dev is None else _held_out("X_dev", X_dev, y_dev, score)
    splits = [] if cv is None else _splits(cv, X, y, score)
    strengths = _grid(problem, n_strengths, ratio) if strengths is None else _checked(strengths)
    if model.verbose:
        print(forecast_line(problem.ready.corpus, problem.ready.features, problem.settings), flush=True)
    rows, models, scores, status = [], [], [], "complete"
    with JobMonitor(problem.model.verbose, len(strengths) * (1 + len(splits))) as jobs:
        try:
            for row, fitted in problem.solve(strengths, jobs, "all data"):
                rows.append(row)
                models.append(fitted)
                if dev is not None:
                    row["score"] = score(dev[1], fitted.predict(dev[0]))
                if callback is not None and callback(dict(row), fitted):
                    status = "stopped by callback"
                    break
            if len(rows) < len(strengths) and status == "complete":
                raise KeyboardInterrupt  # the optimiser caught it
            jobs.expect(len(rows) * (1 + len(splits)))
            for k, (inside, held) in enumerate(splits):
                fold = f"fold {k + 1} of {len(splits)}"
                done = strengths[: len(rows)]
                scores.append(_fold_scores(model, X, y, inside, held, done, score, jobs, fold))
        except KeyboardInterrupt:
            if not models:
                raise
            status = "interrupted"
    if not any(row["n_active"] for row in rows):
        warnings.warn(
            f"the path is empty: c1 >= {strengths[len(rows) - 1]:g} leaves no weight, "
            f"since no entry of the gradient at 0 exceeds {problem.largest_gradient():g}; "
            "smaller values of c1 let weights in",
            UserWarning,
            stacklevel=2,
        )
    return _path(rows, models, np.array(scores), status)


def _scorer(scoring, scheme, strict, data, say):
    """The function that `scoring` stands for; data : all (X, y) that are scored."""
    if callable(scoring) or scoring == "accuracy":
        return scoring if callable(scoring) else token_accuracy
    if scoring != "f1":
        mean = "say functools.partial(crfbook.metrics.flat_f1_score, average='macro')"
        names = f"'accuracy', 'f1' or a function, got {shown(scoring)}"
        raise ValueError(f"scoring: expected {names}; of scikit-learn's scores of tokens {mean}")
    rows, _ = split_sets([row for X, y in data if X is not None for row in gold_labels(X, y)])
    try:
        read = reading_of(rows, scheme, strict, say=bool(say), level=4)
    except ValueError as error:
        raise ValueError(f"scoring='f1': {error}; scoring='accuracy' counts tokens") from None
    return partial(chunk_score, scheme=read, strict=strict)


class _Problem:
    """One training set, encoded once for all values of c1."""

    def __init__(self, model, X, y):
        self.model = clone(model)
        self.settings = check_settings(self.model.set_params(c1=1.0))
        self.ready = training_set(self.model, self.settings, X, y, None)

    def largest_gradient(self):
        """c1_max: from here on w = 0 is the solution."""
        corpus, features, constraints = self.ready.corpus, self.ready.features, self.ready.constraints
        if self.settings.virtual:
            return largest_c1(corpus, sizes=features.sizes, constraints=constraints)
        held = () if self.ready.held is None else (self.ready.held,)
        make = partial_objective if held else Objective
        objective = make(corpus, *held, features, constraints=constraints)
        return float(np.abs(objective(np.zeros(features.n_features))[1]).max(initial=0.0))

    def solve(self, strengths, jobs, part):
        """Yield (row, fitted model) for each c1, from the solution of the one before.
        Ends early after Ctrl-C.

        jobs : the `JobMonitor` that shows them, as those of `part`, what the data are called.
        """
        ready, w = self.ready, np.zeros(self.ready.features.n_features)
        watch = {"callback": jobs} if self.model.verbose else {}
        for c1 in strengths:
            fitted = clone(self.model).set_params(c1=float(c1))
            settings, clock = check_settings(fitted), time.perf_counter()
            jobs.begin(f"{part}, c1 = {c1:.3g}")
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "training was interrupted|the model is empty", UserWarning)
                result, history = train(ready, settings, w, **watch)
            if result.status == "interrupted":
                return
            ready = ready._replace(features=getattr(result, "features", ready.features))
            w, keep = result.w, result.w != 0
            n_node = int(np.count_nonzero(keep[: ready.features.n_node]))
            small = ready._replace(features=select(ready.features, keep))
            active = result._replace(w=w[keep], state={})
            fitted._keep(small, active, history, settings.algorithm, ready.corpus.n_sequences)
            n_active = int(np.count_nonzero(keep))
            jobs.done(
                f"{result.status} after {result.n_iter} iterations, objective {result.objective:.2f}, "
                f"active {n_active:,}"
            )
            sizes, seconds = (n_active, n_node, n_active - n_node), time.perf_counter() - clock
            found = float(c1), result.objective, *sizes, result.n_iter, result.status, seconds
            yield dict(zip(ROW, found, strict=True)), fitted


def _grid(problem, n_strengths, ratio) -> np.ndarray:
    n_strengths, ratio = whole("n_strengths", n_strengths, 1), number("ratio", ratio, above=0.0, most=1.0)
    largest = problem.largest_gradient()
    if largest == 0:
        raise ValueError("the gradient at w = 0 is 0: no weight would ever leave it, and there is no path")
    weight = problem.ready.corpus.seq_weight
    top = min(largest, HIGHEST * (weight.mean() if weight.size else 1.0))
    return top * np.geomspace(1.0, ratio, n_strengths)


def _checked(strengths) -> np.ndarray:
    values = np.asarray(strengths).reshape(-1)
    if not (len(values) and values.dtype.kind in "iuf" and np.isfinite(values).all() and values.min() > 0):
        raise ValueError(f"strengths: expected finite numbers > 0, got {shown(strengths)}")
    return np.unique(values.astype(np.float64))[::-1]


def _held_out(name, X, y, score):
    """(X, gold labels) of sequences to be scored; ValueError where there is nothing to score,
    or `score` gives no number.
    """
    gold, n = gold_labels(X, y), _n_sequences(X)
    if len(gold) != n:
        raise ValueError(f"{name}: expected labels of its {n} sequences, got those of {len(gold)}")
    refuse_sets(gold, f"{name}: ")
    if not any(len(labels) for labels in gold):
        raise ValueError(f"{name}: expected sequences with tokens to score, got none")
    value = score(gold, gold)
    if not (is_number(value) and np.isfinite(value)):
        wanted = "a function that returns a finite number"
        raise ValueError(f"scoring: expected {wanted}, got {shown(value)} of it")
    return X, gold


def _n_sequences(X):
    return X.n_sequences if isinstance(X, Corpus) else len(X)


def _splits(cv, X, y, score):
    """List of (training numbers, held-out numbers)."""
    from sklearn.model_selection import check_cv

    n = _n_sequences(X)
    if isinstance(cv, (int, np.integer)) and not 2 <= cv <= n:
        raise ValueError(f"cv: expected 2 to {n} folds of {n} sequences, got {cv}")
    try:
        splits = [tuple(np.asarray(part) for part in pair) for pair in check_cv(cv).split(np.zeros(n))]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "cv: expected pairs (training numbers, held-out numbers), "
            f"or what makes them of {n} sequences, got {shown(cv)} ({error}); "
            "of a splitter that needs groups or classes give list(splitter.split(X, classes, groups))"
        ) from None
    if not splits:
        raise ValueError("cv: expected at least one pair (training numbers, held-out numbers), got none")
    for i, pair in enumerate(splits):
        for part in pair:
            numbers = part.ndim == 1 and len(part) and part.dtype.kind in "iu"
            if not (numbers and 0 <= part.min() and part.max() < n):
                wanted = f"numbers of sequences in 0..{n - 1}"
                raise ValueError(f"cv, fold {i}: expected {wanted}, got {shown(part)}")
        if not any(map(len, gold_labels(_take(X, pair[0]), _take(y, pair[0])))):
            raise ValueError(f"cv, fold {i}: expected sequences with tokens to train on, got none")
        _held_out(f"cv, fold {i}", _take(X, pair[1]), _take(y, pair[1]), score)
    return splits


def _take(sequences, index):
    if sequences is None or isinstance(sequences, Corpus):
        return None if sequences is None else take_sequences(sequences, index)
    return sequences.take(index) if hasattr(sequences, "take") else [sequences[i] for i in index]


def _fold_scores(model, X, y, inside, held, strengths, score, jobs, fold):
    """Scores (n_strengths,) on the held-out sequences. KeyboardInterrupt if the fold was not finished."""
    held_X, held_y = _take(X, held), _take(y, held)
    gold = gold_labels(held_X, held_y)
    problem = _Problem(model, _take(X, inside), _take(y, inside))
    found = [score(gold, fitted.predict(held_X)) for _, fitted in problem.solve(strengths, jobs, fold)]
    if len(found) < len(strengths):
        raise KeyboardInterrupt
    return found


def _path(rows, models, scores, status):
    import pandas

    frame = pandas.DataFrame(rows, columns=list(rows[0]))
    if len(scores):
        frame["score"] = scores.mean(axis=0)
        error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
        frame["score_error"] = error
        frame["n_folds"] = len(scores)
    chosen = None
    if "score" in frame and frame["score"].notna().any():
        score, some = frame["score"].to_numpy(float), frame["n_active"].to_numpy() > 0
        chosen = int(np.nanargmax(np.where(some, score, np.nan) if some.any() else score))
        if some.any() and 0 < chosen == len(frame) - 1:
            warnings.warn(
                f"the best score is that of the smallest c1, {frame['c1'].iloc[-1]:g}: "
                "the path may end too early; go on to smaller ones, by strengths or a smaller ratio",
                UserWarning,
                stacklevel=3,
            )
    return Path(frame, models, chosen, status)
