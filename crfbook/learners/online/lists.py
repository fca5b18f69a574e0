"""Decoding and differences for many labels, most pairs of which have no weight: perceptron, PA and AROW.

Tables of transitions cost L^2 a sequence, and a layout of the corpus an entry for each (occurrence, weight)
pair. Of 2,322 labels neither fits. Here scores are summed from the weights where they stand in the
FeatureSet, and transitions are a default of 0 and stored pairs (chain/sparse/default.py). A step changes few
of these pairs: their values, and the extremes of their rows, are kept up to date. `lists` is a `ListLayout`
of chain/token_layout.py; cells are the weights w (F,) themselves. One edge class.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.scores import list_scores
from crfbook.chain.sequence import bound_nodes
from crfbook.chain.sparse.default import default_forward, default_trace_back
from crfbook.learners.online.staggered import decode_staggered, refresh_tables, refresh_transitions


@kernel
def refresh_row(row, scores):
    """scores.max_row[row], min_row[row] = the largest and smallest of 0 and the scores of its stored pairs.

    Arguments: row; out: scores, a DefaultScores. Cost: the pairs of the row. Source: chapter 11.
    """
    high, low = 0.0, 0.0
    for e in range(scores.row_ptr[row], scores.row_ptr[row + 1]):
        high, low = max(high, scores.score[e]), min(low, scores.score[e])
    scores.max_row[row], scores.min_row[row] = high, low
    scores.reach[0] = max(scores.reach[0], high, -low)


@kernel
def refresh_pairs(n, theta, lists, cell, staggered):
    """Take the weights of the transitions among cell[:n] from theta into the stored pairs, or into tables.

    Arguments: n; theta (F,); cell int64 (>= n,): weights that have changed; out: lists: scores; or
    staggered (tables, rank), if not None. Cost: a row of pairs for each. Source: chapter 11.
    """
    if staggered is not None:
        refresh_transitions(n, theta, lists, cell, staggered)
        return
    n_node = theta.size - lists.place.size
    for i in range(n):
        if cell[i] >= n_node:
            p = lists.place[cell[i] - n_node]
            if p >= 0:
                lists.scores.score[p] = theta[cell[i]]
                refresh_row(lists.row[p], lists.scores)


@kernel
def refresh_all(theta, lists, staggered):
    """Take all weights of transitions from theta into the stored pairs, or into tables.

    Arguments: theta (F,); out: lists: scores; or staggered (tables, rank), if not None. Cost: the stored
    pairs and rows, or that of `refresh_tables`. Source: chapter 11.
    """
    if staggered is not None:
        refresh_tables(theta, lists, staggered)
        return
    n_node = theta.size - lists.place.size
    for e in range(lists.place.size):
        if lists.place[e] >= 0:
            lists.scores.score[lists.place[e]] = theta[n_node + e]
    lists.scores.reach[0] = 0.0
    for row in range(lists.scores.max_row.size):
        refresh_row(row, lists.scores)


@kernel
def decode_by_lists(first, last, theta, layout, lists, log_node, path, staggered):
    """Best path of tokens first..last-1, one sequence, under theta: into path; returns its score.

    Arguments: first, last; theta (F,); layout: an OnlineLayout, of which bounds and classes are read; lists,
    whose pairs are those of theta; work: log_node (>= T, L); out: path int32 (>= T,); staggered: None, or
    (tables, rank) of theta. Cost: one addition for each (occurrence, weight) pair, and that of
    `default_forward` or `decode_staggered`. Source: Collins (2002), section 2.
    """
    scores, L = lists.scores, lists.scores.group.size
    for r in range(last - first):
        for y in range(L):
            log_node[r, y] = 0.0
    list_scores(
        theta, lists.node_ptr, lists.node_label, lists.dense, lists.dense_of, lists.number[first:last],
        lists.attr_ptr, lists.attr_idx, lists.attr_val, log_node
    )  # fmt: skip
    bound_nodes(first, last, layout.bounds, layout.label_set, log_node)
    if staggered is not None:
        T = last - first
        return decode_staggered(log_node[:T], layout.edge_class[first:last], staggered, path[:T])
    pools = (np.empty(2 * scores.member.size, np.int32), np.empty(2 * scores.member.size))
    pool_ptr = np.zeros(last - first, np.int64)
    seen = np.zeros(4, np.int64)
    part = first, first, last, log_node, layout.edge_class
    pools, _ = default_forward(*part, scores, lists.work, pools, 0, pool_ptr, seen)
    return default_trace_back(first, last, layout.edge_class, scores, lists.work, pools, pool_ptr, path)
