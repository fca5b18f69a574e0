"""Staggered decoding for perceptron, PA and AROW, with tables that are kept up to date.

Tables of all pairs of labels cost L^2 each time they are made, and a step moves few transitions. Of each that
moves, two cells change, and the best scores into the rest of its row and of its column. `staggered` is
(tables, rank): `StaggeredTables` (crfbook/decoding/staggered.py) for one edge class, and the place int64 (L,)
of each label in tables.order. `lists`, a `ListLayout`, says which weight is the score of which pair.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.decoding.staggered import staggered_many

LARGEST = 1e308


@kernel
def refresh_rest(d, a, b, tables):
    """tables.to_z[d, c, a] = max_{y >= 2^c} log_edge[d, 0, a, y], for the levels c with 2^c <= b.

    The rest of a higher level does not hold b and starts the scan. Arguments: d: direction; a, b: places of
    labels, the transition between them has moved; out: tables: to_z. Cost: 2 b at most. Source: Kaji et al.
    (2010), eq. (2) and (3); docs/SPEC.md, C.8.
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

    Arguments: out: tables: z_to_z. Cost: L log L. Source: Kaji et al. (2010), eq. (4).
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

    Arguments: p; score; lists; out: staggered (tables, rank): log_edge, and reach, which only grows.
    Cost O(1). Source: docs/SPEC.md, C.8.
    """
    tables, rank = staggered
    a, b = rank[lists.scores.member[lists.row[p]]], rank[lists.scores.next_label[p]]
    tables.log_edge[0, 0, a, b] = tables.log_edge[1, 0, b, a] = score
    tables.reach[0] = max(tables.reach[0], abs(score))
    return a, b


@kernel
def refresh_transitions(n, theta, lists, cell, staggered):
    """Take the weights of the transitions among cell[:n] from theta into the tables.

    Arguments: n; theta (F,); lists; cell int64 (>= n,): weights that have changed; out: staggered (tables,
    rank). Cost: a row and a column at most for each, and L log L. Source: docs/SPEC.md, C.8.
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

    Arguments: theta (F,); lists; out: staggered (tables, rank). Cost: 2 L^2. Source: Kaji et al. (2010), eq.
    (2) to (4).
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

    Arguments: log_node (T, L), may be -inf; edge_class int32 (T,); staggered (tables, rank); out: path
    int32 (T,). Cost: that of ``staggered_many``, and T L. Source: Kaji et al. (2010), section 3.
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
