"""What a trained CRF says about new sequences: labels, probabilities of tokens,
of pairs and of whole labellings.

A Viterbi score is not a confidence; `predict_marginals` are probabilities,
and `log_proba` is the one of a whole labelling.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import shown
from crfbook.chain import inference
from crfbook.data.columns import Data
from crfbook.data.corpus import without_zeros
from crfbook.data.vocabulary import Labels
from crfbook.decoding import BEAM_WIDTH, decode, kbest
from crfbook.encoding.tag_dictionary import free_blocked
from crfbook.models.inputs import below_one, known_corpus, listed, require_labels, sequence_weights
from crfbook.models.parameters import thread_count


class Sequences(list):
    """A list of lists that NumPy turns into a one-dimensional array of lists, whatever their lengths.

    A plain list of lists would be refused, or become a table where all happen to be equally long;
    scikit-learn's `cross_val_predict` joins its folds in this way.
    """

    def __array__(self, dtype=None, copy=None):
        array = np.empty(len(self), dtype=object)
        for i, sequence in enumerate(self):
            array[i] = sequence
        return array


class Predictions:
    """The part of `CRF` that predicts. Needs encoder_, features_, weights_, constraints_ and n_jobs.

    X is what `fit` takes, or a Corpus encoded with this model's encoder_. Attributes that training did not
    know have no weight and are ignored. Nothing here changes the model: several threads may share it. Every
    method raises NotFittedError before `fit`, and ValueError naming the sequence where the constraints forbid
    all its paths.
    """

    def predict(self, X: Data, form: str = "auto", *, beam_width: int = BEAM_WIDTH) -> list[list[Any]]:
        """The most probable labelling of each sequence (Viterbi), as a list of lists of labels;
        [] for an empty one.

        Of equally good labellings the one whose labels come first in classes_ is taken. form : how it is
        found. All forms but "beam" are exact, and all hold to the constraints. CarpeDiem and staggered
        decoding may take another labelling that is equally good.

            "auto"               "dense", "sparse", "default" or "numpy": what should take least time
            "dense"              all label pairs, less those that cannot win: up to some hundred labels
            "sparse"             plain transitions, and pairs with a weight: many different edge attributes
            "default"            pairs with a weight alone, others score 0: hundreds of labels and more
            "numpy"              all label pairs, and no compiled code: a few sentences
            "plain"              all label pairs, none left out: what speed is measured against
            "carpediem"          labels from the best score down: where attributes settle most labels
            "carpediem-tight"    the same, with a bound for each label
            "staggered"          frequent labels first, and one stand-in for the rest, until it loses
            "staggered-columns"  the same, with more labels only where the best path needs them
            "beam"               the beam_width best labels of each token: an approximation

        beam_width : read by "beam" alone. "plain" and what follows make tables of all label pairs, of at most
        1 GiB, "dense", "numpy" and "sparse" of at most 8: ValueError beyond. Chapter 11 compares them.
        """
        corpus = self._known(X)
        path = self._decode(corpus, form, beam_width)
        return Sequences(self.encoder_.decode(path, corpus.seq_ptr))

    def predict_kbest(self, X: Data, k: int = 10, form: str = "auto") -> list[list[tuple[list[Any], float]]]:
        """The k most probable labellings of each sequence, best first: for each sequence a list of pairs
        (labels, log probability); shorter where fewer labellings are allowed.

        The first one is that of `predict`; [([], 0.0)] for an empty sequence. Exact; constraints hold. Log
        probabilities are in nats; a perceptron's scores are not trained to be any.
        form : "dense", "default" (time grows with the label pairs that are stored), or "auto". Both give the
        same. Other forms of `predict` keep the best labelling alone.
        """
        corpus = self._known(X)
        best = self._kbest(corpus, k, form)
        names, ptr = self.encoder_.decode, corpus.seq_ptr
        labels = [names(np.ascontiguousarray(path), ptr) for path in best.path.T]
        log_proba = np.minimum(best.log_proba, 0.0).tolist()  # above 0 is rounding
        return [
            [(labels[j][i], log_proba[i][j]) for j in range(n)] for i, n in enumerate(best.found.tolist())
        ]

    def predict_single(self, xseq: Any, form: str = "auto", *, beam_width: int = BEAM_WIDTH) -> list[Any]:
        """`predict` for one sequence: a list of labels."""
        return self.predict([xseq], form, beam_width=beam_width)[0]

    def predict_array(self, X: Data, form: str = "auto", *, beam_width: int = BEAM_WIDTH) -> list[np.ndarray]:
        """`predict` as a list of int32 arrays (T,) of label ids, positions in classes_."""
        corpus = self._known(X)
        return _by_sequence(self._decode(corpus, form, beam_width), corpus)

    def predict_marginals(self, X: Data, form: str = "auto") -> list[list[dict[Any, float]]]:
        """p(y_t = label | x): for each sequence a list with a dict {label: probability} for each token.

        form : "batched", "sparse", "default" (plain transitions, many labels), "numpy", or "auto": what takes
        less time. They agree but for rounding.
        """
        return self._named(self.predict_marginals_array(X, form))

    def predict_marginals_single(self, xseq: Any) -> list[dict[Any, float]]:
        """`predict_marginals` for one sequence: a list of dicts."""
        return self.predict_marginals([xseq])[0]

    def predict_marginals_array(self, X: Data, form: str = "auto") -> list[np.ndarray]:
        """`predict_marginals` as a list of arrays (T, L), columns in the order of classes_."""
        corpus = self._known(X)
        return _by_sequence(inference.node_marginals(corpus, *self._model(), form=form), corpus)

    def predict_edge_marginals(self, X: Data) -> Iterator[np.ndarray]:
        """p(y_{t-1} = a, y_t = b | x) as an iterator: for each sequence one array (max(T-1, 0), L, L), [t-1,
        a, b].

        Labels in the order of classes_. One sequence at a time,
        since all of them would rarely fit into memory.
        """
        corpus = self._known(X)
        features, w, constraints, _ = self._model()
        return inference.iter_edge_marginals(corpus, features, w, constraints)

    def span_log_proba(self, X: Data, spans: Iterable[tuple[int, int, Iterable[Hashable]]]) -> np.ndarray:
        """log p(these labels at these tokens | x) of spans, (n,) in nats: how sure the model is of an entity.

        spans : (sequence, first token in it, labels) each: (3, 5, ["B-PER", "I-PER"]). Raises ValueError for
        a span outside its sequence, and for a label that the model does not know.
        """
        corpus, (features, w, constraints, n_threads) = self._known(X), self._model()
        number = {label: i for i, label in enumerate(self.encoder_.labels_)}
        found = []
        for i, (sequence, first, labels) in enumerate(spans):
            unknown = [label for label in labels if label not in number]
            if unknown:
                raise ValueError(f"span {i}: expected labels of the model, got {shown(unknown[0])}")
            found.append((sequence, first, [number[label] for label in labels]))
        return inference.span_log_proba(corpus, features, w, found, constraints, n_threads)

    def log_proba(self, X: Data, y: Labels | None = None) -> np.ndarray:
        """log p(y | x) of given labellings in nats, (S,); 0 for an empty sequence,
        -inf for a forbidden labelling.

        Raises ValueError for a label that the model does not know, naming it and its place.
        """
        corpus = require_labels(self._known(X, y, "raise"))
        return np.minimum(inference.log_proba(corpus, *self._model()), 0.0)  # above 0 is rounding

    def score(self, X: Data, y: Labels | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Token accuracy. A label that the model does not know counts as an error.

        sample_weight : (S,) weights of the sequences, default 1. Raises ValueError without any token.
        """
        found = self.predict(X)
        gold = gold_labels(X, y)
        if len(gold) != len(found):
            raise ValueError(
                f"X and y: expected as many sequences in both, got {len(found)} in X and {len(gold)} in y"
            )
        right = np.zeros(len(found))
        length = np.zeros(len(found))
        for i, (a, b) in enumerate(zip(gold, found, strict=True)):
            if len(a) != len(b):
                raise ValueError(
                    f"sequence {i}: expected {len(b)} labels, one for each token of X, got {len(a)}"
                )
            right[i], length[i] = sum(bool(x == z) for x, z in zip(a, b, strict=True)), len(b)
        weight = np.ones(len(found))
        if sample_weight is not None:
            weight = below_one(sequence_weights(sample_weight, len(found)))
        total = float(weight @ length)
        if not total > 0:
            raise ValueError(
                f"score: expected at least one token that counts, got {len(found)} sequences without any"
            )
        return float(weight @ right) / total

    def _decode(self, corpus, form, beam_width):
        """Label ids int32 (N,)."""
        return decode(corpus, *self._model(), form=form, beam_width=beam_width)

    def _kbest(self, corpus, k, form):
        """`KBest`."""
        features, w, constraints, n_threads = self._model()
        return kbest(corpus, features, w, constraints, k, n_threads, form)

    def _named(self, tables):
        """Arrays (T, L) of probabilities as lists of {label: probability}."""
        return Sequences(
            [dict(zip(self.encoder_.labels_, row, strict=True)) for row in table.tolist()] for table in tables
        )

    def _known(self, X, y=None, unknown="mark"):
        check_is_fitted(self, "weights_")
        corpus = without_zeros(known_corpus(self.encoder_, X, y, unknown, self.label_sets_))
        return corpus if self.label_sets_ is None else free_blocked(corpus, self.constraints_)

    def _model(self):
        return self.features_, self.weights_, self.constraints_, thread_count(self.n_jobs)


def gold_labels(X, y):
    """Labels as a list of lists, from y or from what X carries."""
    if y is not None:
        return listed(y, "y")
    if hasattr(X, "labels_by_sequence"):
        return X.labels_by_sequence()
    if hasattr(X, "attr_ptr"):
        return [part.tolist() for part in _by_sequence(X.labels, X)]
    raise ValueError("expected labels y, one sequence of labels for each sequence of X, got none")


def _by_sequence(rows, corpus):
    return np.split(rows, corpus.seq_ptr[1:-1]) if corpus.n_sequences else []
