"""Sparse models: the weights that are zero taken out,
and inference in time that grows with the weights that are left.
"""

import numpy as np

from crfbook._checks import number
from crfbook.chain.sparse.transitions import SparseBatch
from crfbook.data.corpus import owners, ragged_index
from crfbook.data.features import find, select


def sparsify(features, w, threshold=0.0):
    """(FeatureSet, weights) of the weights with |w| > threshold alone: same scores if the threshold is 0,
    less to look at.

    With a threshold this is the a-posteriori selection of Sokolovska et al. (2010), section 6.3:
    no weight is trained again.
    """
    w = np.asarray(w, dtype=np.float64)
    if w.shape != (features.n_features,):
        raise ValueError(f"weights: expected shape ({features.n_features},), got {w.shape}")
    keep = np.abs(w) > number("threshold", threshold)
    return select(features, keep), w[keep]


def sparse_marginals(b, fill, edges, packing, work, log_z):
    """p_node (n, M) of batch b; its part of log_z is filled. `fill` puts the scores into work.log_node;
    edges: SparseEdges.
    """
    batch = SparseBatch(b, packing, work)
    fill()
    if batch.forward_backward(edges, log_z, np.zeros(2, np.int64)):
        fill()
        no_pairs = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
        batch.redo(edges, no_pairs, (np.zeros(0), np.empty_like(work.pair)), log_z)
    return batch.p_node


def edge_path_scores(corpus, features, w, constraints=None):
    """Score of the transition into each token between the labels of the corpus (N,), 0 at first tokens,
    -inf if forbidden.
    """
    n_labels, out = features.n_labels, np.zeros(corpus.n_tokens)
    token = corpus.inner
    before, here = corpus.labels[token - 1].astype(np.int64), corpus.labels[token].astype(np.int64)
    items, ptr = ragged_index(corpus.class_ptr, corpus.edge_class[token])
    owner = owners(ptr)
    key = (corpus.class_attr[items].astype(np.int64) * n_labels + before[owner]) * n_labels + here[owner]
    where, hit = find(features.edge_keys, key)
    np.add.at(out, token[owner[hit]], w[features.n_node + where[hit]])
    if constraints is not None:
        out[token[~constraints.allowed[before, here]]] = -np.inf
    return out
