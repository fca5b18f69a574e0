"""Training that goes on with new sequences: `partial_fit` of the online learners."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Self

import numpy as np

from crfbook.data.vocabulary import UnknownLabelError, number_labels
from crfbook.models.algorithms import ALGORITHMS
from crfbook.models.inputs import (
    IntegerAlphabet,
    known_corpus,
    listed,
    require_labels,
    training_corpus,
    weighted,
)
from crfbook.models.settings import check_settings
from crfbook.models.training import train
from crfbook.models.weights import choose_features, merged

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Data, Labels

VECTORS = ("w", "w_sum", "mean", "variance", "received")  # what a state has for each weight


class Stream:
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
        X = listed(X)
        if hasattr(self, "weights_"):
            if classes is not None and set(classes) != set(self.encoder_.labels_):
                raise ValueError(
                    f"partial_fit: expected the classes of the first call, {self.encoder_.labels_!r:.60}, "
                    f"got {classes!r:.60}"
                )
            try:
                corpus = weighted(
                    require_labels(known_corpus(self.encoder_, X, y, "raise", self.label_sets_)),
                    sample_weight,
                )
            except UnknownLabelError as error:
                raise ValueError(
                    f"{error}; the first partial_fit has to name all labels: classes=[...]"
                ) from None
            if corpus.n_tokens == 0:
                return self
            encoder, features, w, state = self.encoder_, self.features_, self.weights_, None
            seen, history = self._n_seen, self._history
            if self._learner[0] == settings.algorithm:
                state = self._learner[1]
            corpus, constraints, sets, n_dropped = self._restrict(
                X, corpus, encoder, settings, self.label_sets_
            )
            more = choose_features(corpus, encoder, settings, constraints)
            features, place = merged(features, more)
            w = _spread(w, place, features.n_features)
            state = _grown(state, place, features.n_features, settings)
        else:
            encoder, corpus = training_corpus(X, y, sample_weight, self.template)
            corpus = with_classes(encoder, corpus, classes)
            corpus, constraints, sets, n_dropped = self._restrict(X, corpus, encoder, settings)
            features = choose_features(corpus, encoder, settings, constraints)
            w, state, seen, history = np.zeros(features.n_features), None, 0, None
        seen += corpus.n_sequences
        result, steps = train(
            corpus,
            features,
            constraints,
            settings,
            w,
            state=state,
            **self._one_pass(row, settings, state, corpus, seen),
        )
        if history is not None:
            steps = {
                name: np.concatenate([history[name], column]) if name in history else column
                for name, column in steps.items()
            }
        self._keep(encoder, features, constraints, sets, result, steps, n_dropped, settings.algorithm, seen)
        return self

    def _one_pass(self, row, settings, state, corpus, seen):
        """Arguments of one more epoch over `corpus`, after which `seen` sequences have come in all."""
        more = {**row.one_pass, "max_iterations": (0 if state is None else int(state["epoch"])) + 1}
        share = corpus.n_sequences / seen  # functions spread a penalty over the sequences they are given
        more |= {name: getattr(settings, name) * share for name in ("c1", "c2") if name in row.settings}
        if settings.algorithm == "sgd-l1":
            from crfbook.learners.stochastic.gradient import DECAY

            more["decay"] = DECAY**share
        return more


def with_classes(encoder, corpus, classes):
    """The corpus with label ids of an alphabet that has `classes` too; the encoder is changed."""
    if classes is None:
        return corpus
    classes = list(classes)
    if isinstance(encoder, IntegerAlphabet):
        encoder.n_labels = max(encoder.n_labels, 1 + max(classes, default=0))
        encoder.labels_ = list(range(encoder.n_labels))
        return corpus
    both = [*classes, *encoder.labels_]
    ids, alphabet = number_labels(both, len(both), np.array([0, len(both)]))
    old = ids[len(classes) :]
    encoder.labels_ = alphabet
    return corpus._replace(labels=old[corpus.labels].astype(np.int32))


def _spread(vector, place, n_features, rest=0.0):
    out = np.full(n_features, rest)
    out[place] = vector
    return out


def _grown(state, place, n_features, settings):
    """A learner's state with room for new weights, as if they had been there from the beginning: 0,
    or the first variance.
    """
    if state is None:
        return None
    first = {"variance": settings.options.get("variance", 1.0)}
    return {
        name: _spread(array, place, n_features, first.get(name, 0.0)) if name in VECTORS else array
        for name, array in state.items()
    }
