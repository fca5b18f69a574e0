"""A feature set with its weights, ready to score the tokens of a corpus, stretch by stretch."""

from typing import NamedTuple

import numpy as np

from crfbook.chain.forms import Edges
from crfbook.chain.numpy_form import add_attribute_scores
from crfbook.chain.objective import check_weights
from crfbook.chain.packing import many_weights, n_stretches, padded_bounds
from crfbook.chain.scores import fill_dense, list_scores
from crfbook.chain.sparse.choice import is_tiny
from crfbook.chain.sparse.potentials import SparseEdges, SparseScores
from crfbook.data.constraints import Bounds, bounds_of, check_label_set
from crfbook.data.features import FeatureSet
from crfbook.training.threads import one_blas_thread

DENSE_BYTES = 1 << 21  # dense copies of frequent rows of weights take at most this


class _Model(NamedTuple):
    """A feature set with its weights, ready to score: potentials,
    and dense copies of frequent rows of weights.
    """

    features: FeatureSet
    w: np.ndarray  # (F,)
    bounds: Bounds  # of M labels
    edges: Edges | SparseEdges | SparseScores | np.ndarray | None
    dense: np.ndarray  # (H, M or L); H may be 0
    dense_of: np.ndarray  # int32 (A',): dense row of attribute a < A', or -1
    tiny: bool  # no kernels
    may_overflow: bool  # weights or values so large that sums must be looked at


def ready_model(corpus, features, w, constraints, transitions=None, tiny=None, padding=True):
    """`_Model` for a corpus, its edges made by `transitions`, if they are needed;
    dense copies only if the corpus is large enough to repay them. tiny: no kernels; None: if it is.
    padding: labels are padded to vector registers.
    """
    tiny = is_tiny(corpus, features) if tiny is None else tiny
    w = check_weights(w, features.n_features)
    check_label_set(corpus, constraints)
    make_bounds = padded_bounds if padding else bounds_of
    edges, bounds = None, make_bounds(constraints, features.n_labels)
    if transitions is not None:
        with one_blas_thread():
            edges = transitions(features, w, corpus.class_ptr, corpus.class_attr, bounds)
    n_labels = features.n_labels
    # Ids fall in frequency, so the rows worth copying are among the first ones.
    head = 0 if tiny else min(features.n_attrs, corpus.n_tokens // 4, DENSE_BYTES // (8 * n_labels))
    rows = np.flatnonzero(many_weights(features)[:head])
    dense_of = np.full(head, -1, np.int32)
    dense_of[rows] = np.arange(len(rows))
    dense = np.zeros((len(rows), n_labels))
    if not tiny:
        fill_dense(w, np.arange(len(rows) + 1), rows, features.node_ptr, features.node_label, dense)
    reach = float(np.abs(w).max(initial=0.0)) * max(1.0, float(np.abs(corpus.attr_val).max(initial=0.0)))
    may_overflow = not reach * (len(corpus.attr_idx) + 1.0) < 1e300
    return _Model(features, w, bounds, edges, dense, dense_of, tiny, may_overflow)


def stretches(seq_ptr, n_labels):
    """[(slice of sequences, slice of tokens)]: neighbouring whole sequences, about as many tokens in each as
    `n_stretches` says.
    """
    n = n_stretches(seq_ptr[-1], n_labels)
    cuts = np.searchsorted(seq_ptr, seq_ptr[-1] * np.arange(1, n) / n)
    cuts = np.unique(np.concatenate([[0], cuts, [len(seq_ptr) - 1]]))
    return [
        (slice(int(a), int(b)), slice(int(seq_ptr[a]), int(seq_ptr[b])))
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]


def add_scores(corpus, model, tokens, log_node):
    """log_node (n, >= L) += scores of the attributes of `tokens` int64 (n,).

    A sum that overflows to +inf, or that is inf - inf, would make a decoder pass over the label in silence.
    """
    features = model.features
    if model.tiny:
        with np.errstate(over="ignore", invalid="ignore"):
            add_attribute_scores(corpus, features, model.w, tokens, log_node)
    else:
        lists = features.node_ptr, features.node_label, model.dense, model.dense_of
        list_scores(model.w, *lists, tokens, corpus.attr_ptr, corpus.attr_idx, corpus.attr_val, log_node)
    if model.may_overflow:
        bad = tokens[~(log_node < np.inf).all(axis=1)]
        if len(bad):
            raise ValueError(
                f"{corpus.place(bad.min())}: expected scores within float64, "
                "got a sum of weights that exceeds it"
            )


def stretch_scores(corpus, model, sequences, tokens):
    """log_node (n, M) of neighbouring sequences with start and end constraints, padding labels at -inf."""
    bounds = model.bounds
    seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
    filled = seq_ptr[:-1] < seq_ptr[1:]
    log_node = np.empty((tokens.stop - tokens.start, len(bounds.middle)))
    log_node[:] = bounds.middle
    log_node[seq_ptr[:-1][filled]] = bounds.start
    log_node[seq_ptr[1:][filled] - 1] += bounds.end
    if len(corpus.label_set):
        log_node += bounds.label_sets[corpus.label_set[tokens]]
    add_scores(corpus, model, np.arange(tokens.start, tokens.stop), log_node)
    return log_node
