"""Directed rivals of the CRF on the same corpora: the hidden and the maximum-entropy Markov model.

    HMM     p(x, y) = p(y_0) prod_t p(y_t | y_{t-1}) prod_t p(x_t | y_t)   counted
    MEMM    p(y | x) = p(y_0 | x) prod_t p(y_t | y_{t-1}, x)               trained, a small classifier a token
    CRF     p(y | x) = exp(score(y)) / Z(x)                                trained, normalised once a sequence

All three end as tables log_node and log_edge. An HMM sums emissions, and a MEMM is written as a chain of
potentials (`move_normalisers`). So decoding and marginals are those of the CRF (chain/inference.py); sums are
in logarithms. The MEMM's likelihood is a form of the objective (`LocalTables`). Its containers of arrays are
those of `likelihood_of_batches`. Sources: Rabiner (1989); McCallum, Freitag and Pereira (2000); Lafferty,
McCallum and Pereira (2001), on label bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import number, one_of, whole
from crfbook._jit import kernel
from crfbook.chain import inference
from crfbook.chain.forms import Tables
from crfbook.chain.forward_backward_batched import steps_of
from crfbook.chain.likelihood import batch_gradient, batch_scores
from crfbook.chain.numpy_form import edge_scores
from crfbook.chain.objective import Objective
from crfbook.chain.scores import path_scores
from crfbook.chain.sequence import plain_tables
from crfbook.chain.vector_math import exp_inplace
from crfbook.data.columns import Data
from crfbook.data.constraints import ConstraintsLike, constraints_from
from crfbook.data.corpus import plain_transitions, slice_sequences, without_zeros
from crfbook.data.features import empirical_counts, observed
from crfbook.data.vocabulary import Labels, row_of
from crfbook.decoding import (
    DECODERS,
    KBest,
    decode_given,
    dense_search,
    label_order,
    rank_limit,
    ranked_paths,
)
from crfbook.encoding.templates import TemplateLike
from crfbook.models.fitting import fit_by_lbfgs
from crfbook.models.inputs import known_corpus, obey, refuse_given, require_labels, training_corpus
from crfbook.models.parameters import given, thread_count
from crfbook.models.prediction import Predictions, WeightNames
from crfbook.training.loop import Callback


@kernel
def emission_scores(
    log_emit, absent, unknown, node_ptr, node_label, attr_ptr, attr_idx, attr_val, log_node, seen_buf
):
    """log_node[t, y] = sum over attributes a of token t of x[a] log p(a | y);
    log p(unknown | y) if t has no attribute.

    log p(a | y) = log_emit[k] where weight k joins a and y, else absent[y], which may be -inf:
    it is added only where needed.

    Arguments:
        log_emit : (n_node,)
        absent, unknown : (L,)
        node_ptr : (A+1,)
        node_label : (n_node,), rows of the FeatureSet
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        attr_val : (nnz,) or (0,) for all ones
    Out:
        log_node : (N, L)
    Work:
        seen_buf : (L,)
    Cost: one multiply-add per stored (occurrence, weight) pair and N L additions.
    Source: Rabiner (1989), eq. (8), with a bag of symbols for an observation.
    """
    for t in range(attr_ptr.size - 1):
        u = log_node[t]
        if attr_ptr[t] == attr_ptr[t + 1]:
            u[:] = unknown
            continue
        u[:] = 0.0
        seen_buf[:] = 0.0
        total = 0.0
        for i in range(attr_ptr[t], attr_ptr[t + 1]):
            x = attr_val[i] if attr_val.size else 1.0
            total += x
            if x > 0.0:
                for k in range(node_ptr[attr_idx[i]], node_ptr[attr_idx[i] + 1]):
                    u[node_label[k]] += x * log_emit[k]
                    seen_buf[node_label[k]] += x
        for y in range(u.size):
            if seen_buf[y] < total:
                u[y] += (total - seen_buf[y]) * absent[y]


@kernel
def _softmax_row(log_node, log_edge, weight, p_row):
    """p_row[y] = weight * exp(log_node[y] + log_edge[y]) / Z; returns log Z. All (M,);
    log_edge (M,) or (0,) for a first token.
    """
    high = -np.inf
    for y in range(p_row.size):
        p_row[y] = log_node[y] + log_edge[y] if log_edge.size else log_node[y]
        high = max(high, p_row[y])
    for y in range(p_row.size):
        p_row[y] -= high
    exp_inplace(p_row)
    z = p_row.sum()
    for y in range(p_row.size):
        p_row[y] *= weight / z
    return high + np.log(z)


@kernel
def shard_local_likelihood(shard, w, dense, edges, packing, layout, work, counts, edge_sum):
    """Expected counts of one shard under p(y_t | y_{t-1}, x), the gold previous label given:
    `likelihood_of_batches` of a MEMM.

    p[t, y] = exp(log_node[t, y] + log_edge[k, yp, y]) / Z[t, yp],   yp = gold label of t-1
    log_z = sum_t log Z[t, yp]
    grad[a, y] = sum_{t: a in x_t} weight x[a] p[t, y];   edge_sum[k, yp, y] = sum_t weight p[t, y]

    Arguments as there:
        shard : number of the shard
        w : (F,)
        dense : (H, M or L)
        edges, packing, layout, work : as there
    Out:
        counts : as there
        edge_sum : (K, M, M)
    Returns the first sequence whose log Z is not finite, or -1.
    Cost: n M exps: no recursion, each token is a small classifier.
    Source: McCallum, Freitag and Pereira (2000), section 2.
    """
    counts.grad[:] = 0.0
    counts.dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    bad = -1
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, n, slot = packing.row_ptr[b], packing.row_ptr[b + 1] - packing.row_ptr[b], packing.slot_ptr[b]
        step_ptr, log_node, p_node = steps_of(b, packing)[0], work.log_node[:n], work.p_node[:n]
        batch_scores(b, w, dense, edges.bounds, packing, layout, log_node)
        for t in range(step_ptr.size - 1):
            for i in range(step_ptr[t], step_ptr[t + 1]):
                s = slot + i - step_ptr[t]
                weight = packing.weight[s]
                if t == 0:
                    counts.log_z[s] = _softmax_row(log_node[i], edges.bounds.middle[:0], weight, p_node[i])
                else:
                    k, yp = packing.row_class[lo + i], packing.labels[lo + step_ptr[t - 1] + i - step_ptr[t]]
                    counts.log_z[s] += _softmax_row(log_node[i], edges.log_edge[k, yp], weight, p_node[i])
                    for y in range(p_node.shape[1]):
                        edge_sum[k, yp, y] += p_node[i, y]
                if bad < 0 and not np.isfinite(counts.log_z[s]):
                    bad = s
        batch_gradient(b, p_node, packing, layout, counts.dense_grad, counts.grad)
    return bad


def local_loss_plain(u, path, L):
    """(-log p(path) of a MEMM, its gradient (T L + T L^2,) by the scores u): the readable sister of
    `shard_local_likelihood`.

    u : (T L + T L^2,), log_node (T, L) and a table log_edge[t] (L, L) into each token, as `plain_tables` cuts
        them.
    path : (T,), gold.
    Source: McCallum, Freitag and Pereira (2000), section 2.
    """
    log_node, log_edge = plain_tables(u, L)
    loss = 0.0
    node, edge = np.zeros_like(log_node), np.zeros_like(log_edge)
    for t, y in enumerate(path):
        score = log_node[t] + log_edge[t, path[t - 1]] if t > 0 else log_node[t]
        log_p = score - np.logaddexp.reduce(score)
        loss -= log_p[y]
        node[t] = np.exp(log_p) - np.eye(L)[y]
        if t > 0:
            edge[t, path[t - 1]] = node[t]
    return loss, np.concatenate([node.ravel(), edge.ravel()])


@kernel
def move_normalisers(log_node, log_edge, edge_class, seq_ptr):
    """Write a MEMM as a chain of potentials: each local normaliser moves to the label it depends on.

    log p(y | x) = sum_t log_node[t, y_t] + log_edge[y_{t-1}, y_t] - log Z[t, y_{t-1}],
    log Z[t, yp] = LSE_y(log_node[t, y] + log_edge[yp, y])
    so  log_node[t-1, yp] -= log Z[t, yp]  and  log_node[first] -= LSE_y log_node[first, y]  leave the same
    log p, without a Z: the forward-backward of these potentials has log_z = 0. A label yp without successor,
    Z[t, yp] = 0, gets log_node -inf.

    Arguments:
        log_node : (N, L), changed in place
        log_edge : (K, L, L) [class, previous, next]
        edge_class : (N,)
        seq_ptr : (S+1,)
    Cost: N L^2 exps.
    Source: McCallum, Freitag and Pereira (2000), section 2; the rewriting is ours.
    """
    L = log_node.shape[1]
    for s in range(seq_ptr.size - 1):
        for t in range(seq_ptr[s], seq_ptr[s + 1]):
            high = log_node[t].max()
            if t == seq_ptr[s]:
                if high > -np.inf:
                    log_node[t] -= high + np.log(np.exp(log_node[t] - high).sum())
                continue
            edge = log_edge[edge_class[t]]
            for yp in range(L):
                high = -np.inf
                for y in range(L):
                    high = max(high, log_node[t, y] + edge[yp, y])
                if high == -np.inf:
                    log_node[t - 1, yp] = -np.inf
                    continue
                z = 0.0
                for y in range(L):
                    z += np.exp(log_node[t, y] + edge[yp, y] - high)
                log_node[t - 1, yp] -= high + np.log(z)


FORMS = ("auto", "dense", *DECODERS)  # of decoding; "auto" is "dense"


class ChainPredictions(Predictions):
    """`Predictions` over tables. A subclass has encoder_, features_, `_weights`, those of nodes first, and
    `_tables(corpus)`: log_edge (K, L, L), and the scores that `inference.in_stretches` asks for.

    Forms of decoding: "auto", which is "dense", and those of `CRF.predict` below "numpy".
    """

    # one way to compute them, so there is no form to choose
    def predict_marginals(self, X: Data, *, given: None = None) -> list[list[dict[Any, float]]]:  # type: ignore[override]
        """p(y_t = label | x): for each sequence a list with a dict {label: probability} for each token.

        given : None; ValueError for anything else, which `CRF` alone takes.
        """
        return self._named(self.predict_marginals_array(X, given=given))

    def predict_marginals_array(self, X: Data, *, given: None = None) -> list[np.ndarray]:  # type: ignore[override]
        """`predict_marginals` as a list of arrays (T, L), columns in the order of classes_."""
        corpus = self._known(X) if given is None else self._held(X, given)
        return [p_node for _, p_node, _ in self._marginals(corpus, edges=False)]

    def predict_edge_marginals(self, X: Data) -> Iterator[np.ndarray]:
        return (p_edge[1:] for *_, p_edge in self._marginals(self._known(X)))

    def log_proba(self, X: Data, y: Labels | None = None) -> np.ndarray:
        """log p(y | x) of given labellings in nats, (S,); 0 for an empty sequence,
        -inf for an impossible labelling.
        """
        corpus = require_labels(self._known(X, y, "raise"))
        return np.minimum(self._path_scores(corpus) - self._log_z(corpus), 0.0)  # above 0 is rounding

    predict_edge_marginals.__doc__ = Predictions.predict_edge_marginals.__doc__

    def _known(self, X, y=None, unknown="mark"):
        check_is_fitted(self, "encoder_")
        return known_corpus(self.encoder_, X, y, unknown)

    def _held(self, X, given):
        refuse_given(given)

    def _decode(self, corpus, form, beam_width):
        one_of("form", form, FORMS)
        beam_width = whole("beam_width", beam_width, 1)
        form, (log_edge, scores) = "dense" if form == "auto" else form, self._tables(corpus)
        order = label_order(self.features_, self._weights) if form in DECODERS else None
        path, score, _ = decode_given(corpus, log_edge, scores, form, order, beam_width)
        _check_possible(score)
        return path

    def _kbest(self, corpus, k, form):
        one_of("form", form, ("auto", "dense"))
        n_labels, (log_edge, scores) = self.features_.n_labels, self._tables(corpus)
        k, search = rank_limit(k, corpus, n_labels), dense_search(log_edge, corpus.n_tokens)
        path, score, found = ranked_paths(corpus, n_labels, scores, search, k)
        return KBest(path, score, score - self._log_z(corpus)[:, None], found)

    def _path_scores(self, corpus):
        score, (log_edge, scores) = np.zeros(corpus.n_sequences), self._tables(corpus)

        def call(log_node, edge_class, seq_ptr, sequences, tokens):
            path_scores(log_node, log_edge, edge_class, corpus.labels[tokens], seq_ptr, score[sequences])

        inference.in_stretches(corpus, self.features_.n_labels, scores, call)
        return score

    def _log_z(self, corpus):
        return np.array([log_z for log_z, *_ in self._marginals(corpus, edges=False)])

    def _marginals(self, corpus, edges=True):
        """`inference.log_form` of each sequence; of an empty one log Z = 0."""
        log_edge, scores = self._tables(corpus)
        none = np.empty((1, *log_edge.shape[1:]))
        for sequences, tokens in inference.stretches(corpus.seq_ptr, self.features_.n_labels):
            log_node = scores(sequences, tokens)
            for i in range(sequences.start, sequences.stop):
                start, stop = corpus.seq_ptr[i : i + 2]
                node, found = log_node[start - tokens.start : stop - tokens.start], (0.0, log_node[:0], none)
                if start < stop:
                    found = inference.log_form(node, log_edge, corpus.edge_class[start:stop], edges)
                _check_possible(found[:1], i)
                yield found


def _check_possible(scores, first=0):
    """ValueError naming the first sequence whose score is not finite; `first` is the number of scores[0]."""
    for i in np.flatnonzero(~np.isfinite(scores))[:1]:
        raise ValueError(
            f"sequence {first + i}: every labelling has probability 0 in float64 (in an HMM, smoothing > 0 "
            "prevents that)"
        )


class LocalTables(Tables):
    """One classifier a token, given the gold label before it: no recursion."""

    offers = ("counts",)
    sums: ClassVar = {"counts": shard_local_likelihood}


class LocalObjective(Objective):
    """Penalised negative log-likelihood of local classifiers; arguments, value and gradient as `Objective`.

        value(w) = sum_t weight_t (log Z[t, y_{t-1}] - log_node[t, y_t] - log_edge[y_{t-1}, y_t]) + c2 |w|^2

    Forbidden labels are left out of the sum of each Z[t, yp].

    Source: McCallum, Freitag and Pereira (2000), with a Gaussian prior and L-BFGS in place of GIS.
    """

    _forms: ClassVar = {"batched": LocalTables}


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

    def __init__(self, smoothing: float = 0.1, *, template: TemplateLike = None) -> None:
        self.smoothing = smoothing
        self.template = template

    @np.errstate(over="ignore")
    def fit(self, X: Data, y: Labels | None = None, *, sample_weight: ArrayLike | None = None) -> Self:
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
        if not np.isfinite(total.sum() + start.sum() + pairs.sum()):
            raise ValueError(
                f"attribute values, sample weights, smoothing={s:g}: expected sums within float64; scale them"
            )
        self.start_ = _log_share(start, start.sum())
        self.transition_ = _log_share(pairs, pairs.sum(axis=1, keepdims=True))
        self.emission_ = _log_share(counts[:n_node] + s, total[features.node_label])
        self.absent_, self.unknown_ = _log_share(s, total), _log_share(unknown + s, total)
        self.encoder_, self.features_ = encoder, features
        return self

    def _tables(self, corpus):
        logs = self.emission_, self.absent_, self.unknown_

        def scores(sequences, tokens):
            part = slice_sequences(corpus, sequences.start, sequences.stop)
            lists = part.attr_ptr, part.attr_idx, part.attr_val
            log_node, seen_buf = np.empty((part.n_tokens, len(self.start_))), np.empty(len(self.start_))
            emission_scores(
                *logs, self.features_.node_ptr, self.features_.node_label, *lists, log_node, seen_buf
            )
            log_node[part.first] += self.start_
            return log_node

        return self.transition_[None], scores

    @property
    def _weights(self):
        return self.emission_

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
        self, c1: float | None = 0.0, c2: float | None = 1.0, max_iterations: int | None = None,
        num_memories: int | None = 6, tol: float | None = 1e-6, all_possible_states: bool = False,
        all_possible_transitions: bool = False, verbose: bool | int = False, *, template: TemplateLike = None,
        constraints: ConstraintsLike = None, n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        self.c1, self.c2, self.max_iterations, self.num_memories = c1, c2, max_iterations, num_memories
        self.tol, self.verbose, self.template, self.constraints = tol, verbose, template, constraints
        self.all_possible_states, self.n_jobs = all_possible_states, n_jobs
        self.all_possible_transitions = all_possible_transitions

    def fit(
        self, X: Data, y: Labels | None = None, *, sample_weight: ArrayLike | None = None,
        callback: Callback = None,
    ) -> Self:  # fmt: skip
        """Train. X, y, sample_weight, callback and errors as in `CRF.fit`. Returns self."""
        c1, c2, tol = (given(self, *pair) for pair in (("c1",), ("c2", 1.0), ("tol", 1e-6)))
        memory, most = given(self, "num_memories", 6), given(self, "max_iterations")
        encoder, corpus = training_corpus(X, y, sample_weight, self.template)
        every = {"all_states": bool(self.all_possible_states)}
        every["all_transitions"] = bool(self.all_possible_transitions)
        features = observed(corpus, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, **every)
        constraints = constraints_from(self.constraints, encoder.labels_)
        obey(corpus, constraints, encoder.labels_, drop=None)
        objective = LocalObjective(
            corpus, features, c2=c2, constraints=constraints, n_threads=thread_count(self.n_jobs)
        )
        rules = {"c1": c1, "c2": c2, "tol": tol, "memory": memory, "max_iterations": most}
        fit_by_lbfgs(self, corpus, objective, np.zeros(features.n_features), callback, **rules)
        self.encoder_, self.features_, self.constraints_ = encoder, features, constraints
        return self

    @property
    def _weights(self):
        return self.weights_

    def _tables(self, corpus):
        given = self.features_, self.weights_, self.constraints_
        model = inference.ready_model(corpus, *given, edge_scores, padding=False)

        def scores(sequences, tokens):
            log_node = inference.stretch_scores(corpus, model, sequences, tokens)
            seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
            move_normalisers(log_node, model.edges, corpus.edge_class[tokens], seq_ptr)
            return log_node

        return model.edges, scores


def _log_share(part, whole):
    """log(part / whole), -inf where there is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.where(whole > 0, part / whole, 0.0))


def _plain(corpus):
    """The corpus without what an HMM cannot use: edge classes, and attributes seen 0 times. ValueError for a
    negative value, which is no count.
    """
    negative = np.flatnonzero(corpus.attr_val < 0)
    if len(negative):
        raise ValueError(
            f"{corpus.place(row_of(corpus.attr_ptr, negative[0]))}: expected attribute values >= 0 (an HMM "
            f"counts them), got {corpus.attr_val[negative[0]]}"
        )
    return plain_transitions(without_zeros(corpus))
