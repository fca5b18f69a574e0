"""Directed rivals of the CRF on the same corpora:
the hidden Markov model and the maximum-entropy Markov model.

    HMM     p(x, y) = p(y_0) prod_t p(y_t | y_{t-1}) prod_t p(x_t | y_t)   counted
    MEMM    p(y | x) = p(y_0 | x) prod_t p(y_t | y_{t-1}, x)               trained, a small classifier a token
    CRF     p(y | x) = exp(score(y)) / Z(x)                                trained, normalised once a sequence

All three end as tables log_node and log_edge, so decoding and marginals are the same kernels. Sources:
Rabiner (1989); McCallum, Freitag, Pereira (2000); Lafferty, McCallum, Pereira (2001), on label bias.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import number
from crfbook.chain import inference
from crfbook.data.constraints import bounds_of, constraints_from
from crfbook.data.features import empirical_counts, log_edge, observed
from crfbook.data.vocabulary import row_of
from crfbook.learners.quasi_newton import minimize
from crfbook.models.directed.factors import emission_scores, move_normalisers
from crfbook.models.directed.objective import LocalObjective
from crfbook.models.directed.predictions import ChainPredictions
from crfbook.models.inputs import obey, require_labels, training_corpus
from crfbook.models.parameters import given, thread_count
from crfbook.models.weights import WeightNames
from crfbook.training.monitor import Monitor

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Data, Frame, Labels, Pattern, Rules


class HMM(ChainPredictions, BaseEstimator):
    """Hidden Markov model, estimated by counting labelled data.

    A token emits its attributes independently, given its label: with one attribute a token (its word) this is
    the classical HMM, with several a chain of naive Bayes classifiers. Values are counts ("seen 2.0 times").

        p(y | yp) = (n(yp, y) + s) / (n(yp) + s L)             and so for first labels
        p(a | y)  = (n(a, y) + s) / (n(y) + h(y) + s (A + 1))
        p(unknown | y) = (h(y) + s) / (n(y) + h(y) + s (A + 1))

    h(y) counts the attributes that occur once in training, with label y: such words stand for all those never
    seen. A token none of whose attributes the model knows emits `unknown` (so h also counts the tokens of
    label y without any attribute); beside known attributes unknown ones are ignored. The chain has no
    probability of ending, and transitions do not depend on the text (edge attributes of a template are
    ignored).

    Parameters
    ----------
    smoothing : float >= 0, the s above. With 0, what training never shows has probability 0, and a sequence
        all of whose labellings have probability 0 is an error;
        a label that nothing follows is then followed by all labels alike.
    template : as in `CRF`.

    Attributes: classes_; start_ (L,), transition_ (L, L) [previous, next], emission_ (n_node,) and absent_
    (L,), unknown_ (L,): log-probabilities; emission_ is laid out by features_,
    absent_ is that of a known attribute never seen with a label.
    """

    def __init__(self, smoothing: float = 0.1, *, template: Pattern = None) -> None:
        self.smoothing = smoothing
        self.template = template

    def fit(self, X: Data, y: Labels | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Count. X, y, sample_weight and errors as in `CRF.fit`; attribute values must not be negative."""
        s = number("smoothing", self.smoothing)
        encoder, corpus = training_corpus(X, y, sample_weight, self.template)
        corpus = _plain(corpus)
        features = observed(corpus, encoder.n_labels, encoder.n_attrs, all_transitions=True)
        n_labels, n_node = features.n_labels, features.n_node
        counts = empirical_counts(corpus, features)
        first, weight = corpus.first, corpus.token_weights
        once = np.bincount(corpus.attr_idx, minlength=features.n_attrs) == 1
        token = corpus.attr_token[once[corpus.attr_idx]]
        token = np.concatenate([token, np.flatnonzero(np.diff(corpus.attr_ptr) == 0)])
        unknown = np.bincount(corpus.labels[token], weight[token], minlength=n_labels)
        total = np.bincount(features.node_label, counts[:n_node], minlength=n_labels) + unknown
        total = total + s * (features.n_attrs + 1)
        start = np.bincount(corpus.labels[first], weight[first], minlength=n_labels) + s
        pairs = counts[n_node:].reshape(n_labels, n_labels) + s
        pairs[~pairs.any(axis=1)] = 1.0
        self.start_ = _log_share(start, start.sum())
        self.transition_ = _log_share(pairs, pairs.sum(axis=1, keepdims=True))
        self.emission_ = _log_share(counts[:n_node] + s, total[features.node_label])
        self.absent_, self.unknown_ = _log_share(s, total), _log_share(unknown + s, total)
        self.encoder_, self.features_ = encoder, features
        return self

    def _tables(self, corpus):
        log_node = np.empty((corpus.n_tokens, self.features_.n_labels))
        emission_scores(
            self.emission_,
            self.absent_,
            self.unknown_,
            self.features_.node_ptr,
            self.features_.node_label,
            corpus.attr_ptr,
            corpus.attr_idx,
            corpus.attr_val,
            log_node,
            np.empty(log_node.shape[1]),
        )
        log_node[corpus.first] += self.start_
        return log_node, self.transition_[None]

    def log_joint(self, X: Data, y: Labels | None = None) -> np.ndarray:
        """log p(x, y) of given labellings in nats, (S,);
        the observation is the bag of attributes of each token.
        """
        return self._path_scores(require_labels(self._known(X, y, "raise")))

    def _known(self, X, y=None, unknown="mark"):
        return _plain(super()._known(X, y, unknown))


class MEMM(ChainPredictions, WeightNames, BaseEstimator):
    """Maximum-entropy Markov model: p(y_t | y_{t-1}, x) is a softmax with the features of a CRF,
    trained locally.

        p(y_t = y | y_{t-1} = yp, x) = exp(log_node[t, y] + log_edge[yp, y]) / Z[t, yp]

    Every label passes on exactly the probability it received, whatever the text says: a label with one
    successor ignores it (label bias; say which successors there are with `constraints`, for unseen
    transitions are not forbidden). Decoding is exact (Viterbi). Minimises the same sum as `CRF` does,
    with the local log p.

    Parameters (as in `CRF`): c1, c2, max_iterations, num_memories, tol, all_possible_states,
    all_possible_transitions, verbose, template, constraints, n_jobs. What the constraints forbid is left out
    of each Z; should a label have no successor, the paths that run into it have probability 0, and the others
    are divided by what remains. Attributes: classes_, weights_ (F,) laid out by features_, objective_,
    n_iter_, status_, history_, state_features_, transition_features_, weights_to_frame().
    """

    def __init__(
        self,
        c1: float | None = 0.0,
        c2: float | None = 1.0,
        max_iterations: int | None = None,
        num_memories: int | None = 6,
        tol: float | None = 1e-6,
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        verbose: bool | int = False,
        *,
        template: Pattern = None,
        constraints: Rules = None,
        n_jobs: int | None = None,
    ) -> None:
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.tol = tol
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.verbose = verbose
        self.template = template
        self.constraints = constraints
        self.n_jobs = n_jobs

    def fit(
        self, X: Data, y: Labels | None = None, sample_weight: ArrayLike | None = None,
        callback: Callback = None,
    ) -> Self:  # fmt: skip
        """Train. X, y, sample_weight, callback and errors as in `CRF.fit`. Returns self."""
        c1, c2, tol = (given(self, *pair) for pair in (("c1",), ("c2", 1.0), ("tol", 1e-6)))
        memory, most = given(self, "num_memories", 6), given(self, "max_iterations")
        encoder, corpus = training_corpus(X, y, sample_weight, self.template)
        features = observed(
            corpus,
            encoder.n_labels,
            encoder.n_attrs,
            encoder.n_edge_attrs,
            all_states=bool(self.all_possible_states),
            all_transitions=bool(self.all_possible_transitions),
        )
        constraints = constraints_from(self.constraints, encoder.labels_)
        obey(corpus, constraints, encoder.labels_, drop=None)
        objective = LocalObjective(
            corpus, features, c2=c2, constraints=constraints, n_threads=thread_count(self.n_jobs)
        )
        with Monitor(verbose=self.verbose, callback=callback, total=most) as monitor:
            result = minimize(
                objective,
                np.zeros(features.n_features),
                c1=c1,
                c2=c2,
                memory=memory,
                max_iterations=most,
                tol=tol,
                tol_gradient=1000 * tol,
                callback=monitor,
            )
        if result.status in ("interrupted", "line search failed", "non-finite objective"):
            warnings.warn(
                f"training ended early, after {result.n_iter} iterations: {result.status}",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.encoder_, self.features_, self.constraints_ = encoder, features, constraints
        self.weights_ = result.w
        self.objective_, self.n_iter_, self.status_ = result.objective, result.n_iter, result.status
        self._history = monitor.columns()
        return self

    @property
    def history_(self) -> Frame:
        """The iterations as a pandas DataFrame."""
        import pandas

        check_is_fitted(self, "weights_")
        return pandas.DataFrame(self._history)

    def _tables(self, corpus):
        log_node = inference.node_scores(corpus, self.features_, self.weights_)
        edges = log_edge(self.features_, self.weights_, corpus.class_ptr, corpus.class_attr)
        bounds = bounds_of(self.constraints_, self.features_.n_labels)
        edges[:, bounds.edge < 0.0] = -np.inf
        log_node[corpus.first] += bounds.start
        log_node[corpus.last] += bounds.end
        move_normalisers(log_node, edges, corpus.edge_class, corpus.seq_ptr)
        return log_node, edges


def _log_share(part, whole):
    """log(part / whole), -inf where there is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.where(whole > 0, part / whole, 0.0))


def _plain(corpus):
    """The corpus without what an HMM cannot use: edge classes. ValueError for a negative value,
    which is no count.
    """
    negative = np.flatnonzero(corpus.attr_val < 0)
    if len(negative):
        raise ValueError(
            f"{corpus.place(row_of(corpus.attr_ptr, negative[0]))}: expected attribute values >= 0 (an HMM "
            f"counts them), got {corpus.attr_val[negative[0]]}"
        )
    return corpus._replace(
        edge_class=np.zeros_like(corpus.edge_class),
        class_ptr=np.array([0, 1]),
        class_attr=np.zeros(1, np.int32),
    )
