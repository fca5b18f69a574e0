"""Perceptron, PA and AROW for many labels: scores from lists of weights, and two ways to decode.

Tables of transitions cost L^2 a sequence, and a layout of the corpus an entry for each (occurrence, weight)
pair. Of 2,322 labels neither fits. Here scores are summed from the weights where they stand in the
FeatureSet: `lists` is a `ListLayout` of chain/token_layout.py, and cells are the weights w (F,) themselves.
There is one edge class.

By stored pairs: transitions are a default of 0 and pairs with a weight (chain/sparse/default.py). A step
changes few of these pairs: their values, and the extremes of their rows, are kept up to date.

Staggered: tables of all pairs of labels (crfbook/decoding/staggered.py) are kept up to date. Of each
transition that moves, two cells change, and the best scores into the rest of its row and of its column.
`staggered` is (tables, rank): `StaggeredTables` for one edge class, and the place int64 (L,) of each label in
tables.order. It is None where stored pairs alone decode.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sparse.default import default_forward, default_trace_back
from crfbook.decoding.staggered import staggered_many

LARGEST = 1e308


@kernel
def refresh_rest(d, a, b, tables):
    """tables.to_z[d, c, a] = max_{y >= 2^c} log_edge[d, 0, a, y], for the levels c with 2^c <= b.

    The rest of a higher level does not hold b and starts the scan.

    Arguments:
        d : direction
        a, b : places of labels, the transition between them has moved
    Out:
        tables : to_z
    Cost: 2 b at most.
    Source: Kaji et al. (2010), eq. (2) and (3); docs/SPEC.md, C.8.
    """
    n_levels, L = tables.to_z.shape[1:]
    level, row = 0, tables.log_edge[d, 0, a]
    while level < n_levels and 1 << level <= b:
        level += 1
    high = tables.to_z[d, level, a] if level < n_levels else -np.inf
    for y in range(min(1 << level, L) - 1, 0, -1):
        high = row[y] if row[y] > high else high
        if y == 1 << (level - 1):
            level -= 1
            tables.to_z[d, level, a] = high


@kernel
def refresh_both(tables):
    """tables.z_to_z from to_z: the best transition between the rests of two levels.

    Arguments:
    Out:
        tables : z_to_z
    Cost: L log L.
    Source: Kaji et al. (2010), eq. (4).
    """
    n_levels, L = tables.to_z.shape[1:]
    for c in range(n_levels):
        high, level = -np.inf, n_levels - 1
        for y in range(L - 1, 0, -1):
            high = max(high, tables.to_z[0, c, y])
            if y == 1 << level:
                tables.z_to_z[0, level, c] = tables.z_to_z[1, c, level] = high
                level -= 1


@kernel
def set_transition(p, score, lists, staggered):
    """Write the score of stored pair p into both tables of transitions; returns the places of its labels.

    Arguments:
        p : number of the pair
        score : its score
        lists : a `ListLayout`
    Out:
        staggered : (tables, rank), log_edge, and reach, which only grows
    Cost: O(1).
    Source: docs/SPEC.md, C.8.
    """
    tables, rank = staggered
    a, b = rank[lists.scores.member[lists.row[p]]], rank[lists.scores.next_label[p]]
    tables.log_edge[0, 0, a, b] = tables.log_edge[1, 0, b, a] = score
    tables.reach[0] = max(tables.reach[0], abs(score))
    return a, b


@kernel
def refresh_transitions(n, theta, lists, cell, staggered):
    """Take the weights of the transitions among cell[:n] from theta into the tables.

    Arguments:
        n : entries of cell
        theta : (F,)
        lists : a `ListLayout`
        cell : int64 (>= n,), weights that have changed
    Out:
        staggered : (tables, rank)
    Cost: a row and a column at most for each, and L log L.
    Source: docs/SPEC.md, C.8.
    """
    n_node, moved = theta.size - lists.place.size, False
    for i in range(n):
        p = lists.place[cell[i] - n_node] if cell[i] >= n_node else -1
        if p >= 0:
            a, b = set_transition(p, theta[cell[i]], lists, staggered)
            refresh_rest(0, a, b, staggered[0])
            refresh_rest(1, b, a, staggered[0])
            moved = True
    if moved:
        refresh_both(staggered[0])


@kernel
def refresh_tables(theta, lists, staggered):
    """Take all weights of transitions from theta into the tables.

    Arguments:
        theta : (F,)
        lists : a `ListLayout`
    Out:
        staggered : (tables, rank)
    Cost: 2 L^2.
    Source: Kaji et al. (2010), eq. (2) to (4).
    """
    tables, rank = staggered
    n_node = theta.size - lists.place.size
    tables.reach[0] = 0.0
    for e in range(lists.place.size):
        if lists.place[e] >= 0:
            set_transition(lists.place[e], theta[n_node + e], lists, staggered)
    for a in range(rank.size):
        for d in range(2):
            refresh_rest(d, a, rank.size - 1, tables)
    refresh_both(tables)


@kernel
def decode_staggered(log_node, edge_class, staggered, path):
    """Best path of one sequence of T > 0 tokens: into path; returns its score, NaN if a sum of scores might
    leave float64: then path is left alone.

    Arguments:
        log_node : (T, L), may be -inf
        edge_class : int32 (T,)
        staggered : (tables, rank)
    Out:
        path : int32 (T,)
    Cost: that of ``staggered_many``, and T L.
    Source: Kaji et al. (2010), section 3.
    """
    T, L = log_node.shape
    most = LARGEST / (2 * T)
    if not staggered[0].reach[0] < most:
        return np.nan
    for t in range(T):
        for y in range(L):
            if log_node[t, y] != -np.inf and not abs(log_node[t, y]) < most:
                return np.nan
    score, counters = np.empty(1), np.zeros(3, np.int64)
    staggered_many(log_node, staggered[0], edge_class, np.array([0, T]), path, score, counters)
    return score[0]


@kernel
def refresh_row(row, scores):
    """scores.max_row[row], min_row[row] = the largest and smallest of 0 and the scores of its stored pairs.

    Arguments:
        row : number of the row
    Out:
        scores : a `DefaultScores`
    Cost: the pairs of the row.
    Source: chapter 11.
    """
    high, low = 0.0, 0.0
    for e in range(scores.row_ptr[row], scores.row_ptr[row + 1]):
        high, low = max(high, scores.score[e]), min(low, scores.score[e])
    scores.max_row[row], scores.min_row[row] = high, low
    scores.reach[0] = max(scores.reach[0], high, -low)


@kernel
def refresh_pairs(n, theta, lists, cell, staggered):
    """Take the weights of the transitions among cell[:n] from theta into the stored pairs, or into tables.

    Arguments:
        n : entries of cell
        theta : (F,)
        cell : int64 (>= n,), weights that have changed
    Out:
        lists : scores; or staggered (tables, rank), if not None
    Cost: a row of pairs for each.
    Source: chapter 11.
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

    Arguments:
        theta : (F,)
    Out:
        lists : scores; or staggered (tables, rank), if not None
    Cost: the stored pairs and rows, or that of `refresh_tables`.
    Source: chapter 11.
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
def decode_by_lists(first, last, layout, lists, log_node, path, staggered):
    """Best path of tokens first..last-1, one sequence, from its node scores: into path; returns its score.

    Arguments:
        first, last : tokens first..last-1
        layout : an `OnlineLayout`, of which classes are read
        lists : their pairs are those of the weights
        log_node : (>= T, L)
    Out:
        path : int32 (>= T,)
        staggered : None, or (tables, rank) of the weights
    Cost: that of `default_forward` or `decode_staggered`.
    Source: Collins (2002), section 2.
    """
    if staggered is not None:
        T = last - first
        return decode_staggered(log_node[:T], layout.edge_class[first:last], staggered, path[:T])
    scores = lists.scores
    pools = (np.empty(2 * scores.member.size, np.int32), np.empty(2 * scores.member.size))
    pool_ptr = np.zeros(last - first, np.int64)
    seen = np.zeros(4, np.int64)
    part = first, first, last, log_node, layout.edge_class
    pools, _ = default_forward(*part, scores, lists.work, pools, 0, pool_ptr, seen)
    return default_trace_back(first, last, layout.edge_class, scores, lists.work, pools, pool_ptr, path)
