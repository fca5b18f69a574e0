"""Predictions of a model that fills tables log_node and log_edge by itself, without weights of a CRF:
HMM and MEMM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from crfbook.chain.forward_backward import edge_marginal_log, forward_backward_log, node_marginals_log
from crfbook.chain.scores import path_scores
from crfbook.chain.viterbi import viterbi_many
from crfbook.data.corpus import slice_sequences
from crfbook.models.inputs import known_corpus, require_labels
from crfbook.models.prediction import Predictions, Sequences

if TYPE_CHECKING:
    from crfbook._types import Data, Labels

CELLS = 1 << 21  # of log_node at a time: 16 MB


class ChainPredictions(Predictions):
    """`Predictions` over tables. A subclass has encoder_, features_ and `_tables(corpus) -> log_node (N, L),
    log_edge (K, L, L)`.
    """

    @property
    def classes_(self) -> list[Any]:
        """The labels; index = label id in every array."""
        check_is_fitted(self, "encoder_")
        return list(self.encoder_.labels_)

    def predict(self, X: Data) -> list[list[Any]]:
        """The most probable labelling of each sequence (Viterbi), as a list of lists of labels;
        [] for an empty one.

        Of equally good labellings the one whose labels come first in classes_ is taken.
        """
        corpus = self._known(X)
        return Sequences(self.encoder_.decode(self._decode(corpus), corpus.seq_ptr))

    def predict_array(self, X: Data) -> list[np.ndarray]:
        """`predict` as a list of int32 arrays (T,) of label ids, positions in classes_."""
        corpus = self._known(X)
        return _split(self._decode(corpus), corpus)

    def predict_marginals(self, X: Data) -> list[list[dict[Any, float]]]:
        """p(y_t = label | x): for each sequence a list with a dict {label: probability} for each token."""
        return self._named(self.predict_marginals_array(X))

    def predict_marginals_array(self, X: Data) -> list[np.ndarray]:
        """`predict_marginals` as a list of arrays (T, L), columns in the order of classes_."""
        return [p_node for p_node, _ in self._marginals(self._known(X), edges=False)]

    def predict_edge_marginals(self, X: Data) -> Iterator[np.ndarray]:
        return (p_edge for _, p_edge in self._marginals(self._known(X), edges=True))

    def log_proba(self, X: Data, y: Labels | None = None) -> np.ndarray:
        """log p(y | x) of given labellings in nats, (S,); 0 for an empty sequence,
        -inf for an impossible labelling.
        """
        corpus = require_labels(self._known(X, y, "raise"))
        log_z = np.array([log_z for *_, log_z in self._forward_backward(corpus)])
        return np.minimum(self._path_scores(corpus) - log_z, 0.0)  # above 0 is rounding

    predict_edge_marginals.__doc__ = Predictions.predict_edge_marginals.__doc__

    def _known(self, X, y=None, unknown="mark"):
        check_is_fitted(self, "encoder_")
        return known_corpus(self.encoder_, X, y, unknown)

    def _parts(self, corpus):
        """(number of the first sequence, part of the corpus, log_node, log_edge): whole sequences,
        a few megabytes at a time.
        """
        budget = max(1, CELLS // self.features_.n_labels)
        start = 0
        while start < corpus.n_sequences:
            stop = int(np.searchsorted(corpus.seq_ptr, corpus.seq_ptr[start] + budget, side="right")) - 1
            stop = min(max(stop, start + 1), corpus.n_sequences)
            part = slice_sequences(corpus, start, stop)
            yield start, part, *self._tables(part)
            start = stop

    def _decode(self, corpus):
        path = np.empty(corpus.n_tokens, np.int32)
        for start, part, log_node, log_edge in self._parts(corpus):
            first = corpus.seq_ptr[start]
            score = np.empty(part.n_sequences)
            viterbi_many(
                log_node, log_edge, part.edge_class, part.seq_ptr, path[first : first + part.n_tokens], score
            )
            for i in np.flatnonzero(~np.isfinite(score))[:1]:
                raise _impossible(start + i)
        return path

    def _path_scores(self, corpus):
        score = np.zeros(corpus.n_sequences)
        for start, part, log_node, log_edge in self._parts(corpus):
            path_scores(
                log_node,
                log_edge,
                part.edge_class,
                part.labels,
                part.seq_ptr,
                score[start : start + part.n_sequences],
            )
        return score

    def _forward_backward(self, corpus):
        """((log_node, log_edge, classes), log alpha, log beta, log Z) of each sequence, in the log domain."""
        for start, part, log_node, log_edge in self._parts(corpus):
            for i in range(part.n_sequences):
                tokens = slice(int(part.seq_ptr[i]), int(part.seq_ptr[i + 1]))
                node, classes = log_node[tokens], part.edge_class[tokens]
                log_alpha, log_beta, log_z = np.empty_like(node), np.empty_like(node), 0.0
                if len(node):
                    log_z = forward_backward_log(node, log_edge, classes, log_alpha, log_beta)
                if not np.isfinite(log_z):
                    raise _impossible(start + i)
                yield (node, log_edge, classes), log_alpha, log_beta, log_z

    def _marginals(self, corpus, edges):
        for (node, log_edge, classes), log_alpha, log_beta, log_z in self._forward_backward(corpus):
            p_node, p_edge = np.empty_like(node), np.empty((max(len(node) - 1, 0), *log_edge.shape[1:]))
            node_marginals_log(log_alpha, log_beta, log_z, p_node)
            for t in range(1, len(node) if edges else 0):
                edge_marginal_log(t, node, log_edge, classes, log_alpha, log_beta, log_z, p_edge[t - 1])
            yield p_node, p_edge


def _impossible(i):
    return ValueError(
        f"sequence {i}: every labelling has probability 0 in float64 (in an HMM, smoothing > 0 prevents that)"
    )


def _split(rows, corpus):
    return np.split(rows, corpus.seq_ptr[1:-1]) if corpus.n_sequences else []
