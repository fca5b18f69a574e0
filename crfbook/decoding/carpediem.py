"""CarpeDiem: a label is opened only if its node score is so high that it could be on the best path.

A bound is added up in the order of the score that it bounds, and rounding keeps their order. So scores are
those of ``viterbi_many`` bit for bit. Forbidden = -inf, and no bound is +inf.

`tables` is CarpeDiemTables. `search` is a tuple of work arrays, T tokens of the longest
sequence: order int32 (T, L), a heap of the labels not yet opened, and behind it the opened ones, the first
one last; n_opened int64 (T,); limit (T,); delta (T, L); back int32 (T, L); frame int64 (T, 2).
"""

from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel


@kernel
def _is_after(log_node, i, y, z):
    """Does label y of token i come after z: by falling score, ties by rising label?"""
    return log_node[i, y] < log_node[i, z] or (log_node[i, y] == log_node[i, z] and y > z)


@kernel
def _sift_down(log_node, i, order, t, root, size):
    """order[t,root] goes down to its place in the heap order[t,:size]."""
    y = order[t, root]
    child = 2 * root + 1
    while child < size:
        if child + 1 < size and _is_after(log_node, i, order[t, child], order[t, child + 1]):
            child += 1
        if not _is_after(log_node, i, y, order[t, child]):
            break
        order[t, root] = order[t, child]
        root, child = child, 2 * child + 1
    order[t, root] = y


@kernel
def _take_next(log_node, i, t, order, n_opened):
    """The next label of order[t] counts as opened from here on; returns it."""
    last = order.shape[1] - 1 - n_opened[t]
    y = order[t, 0]
    order[t, 0], order[t, last] = order[t, last], y
    n_opened[t] += 1
    _sift_down(log_node, i, order, t, 0, last)
    return y


@kernel
def _open(t, y, lo, log_node, tables, edge_class, search):
    """delta[t,y] and back[t,y], exactly; opens whatever label of an earlier token that may matter for them.

    v = max over opened yp of delta[t-1,yp] + log_edge[yp,y]
    while the next label yp of t-1 exists and v < limit[t-1] + log_node[t-1,yp] + into[y]:
        open(t-1, yp);  v = max(v, delta[t-1,yp] + log_edge[yp,y])
    No recursion: frame[i] = (label that is being opened at token i, opened labels of i-1 it has looked at).
    Returns how many transitions it looked at.
    """
    order, n_opened, limit, delta, back, frame = search
    L, n_edges, i = delta.shape[1], 0, t
    frame[t, 0], frame[t, 1], delta[t, y] = y, 0, -np.inf
    while i <= t:
        y, k = frame[i, 0], edge_class[lo + i]
        v = delta[i, y]
        for rank in range(frame[i, 1], n_opened[i - 1]):
            yp = order[i - 1, L - 1 - rank]
            u = delta[i - 1, yp] + tables.log_edge_t[k, y, yp]
            if u > v:
                v, back[i, y] = u, yp
        n_edges += n_opened[i - 1] - frame[i, 1]
        frame[i, 1] = n_opened[i - 1]
        delta[i, y] = v
        if n_opened[i - 1] < L:
            yp = order[i - 1, 0]
            if v < limit[i - 1] + log_node[lo + i - 1, yp] + tables.into[k, y]:
                i -= 1
                frame[i, 0], frame[i, 1] = _take_next(log_node, lo + i, i, order, n_opened), 0
                delta[i, yp] = -np.inf
                continue
        delta[i, y] = v + log_node[lo + i, y]
        i += 1
    return n_edges


@kernel
def _decode(log_node, tables, edge_class, lo, hi, path, counters, search):
    """``carpediem_many`` for the tokens lo..hi-1 of one sequence, not empty; returns its score."""
    order, n_opened, limit, delta, back, frame = search
    L, T = delta.shape[1], hi - lo
    best = 0
    for y in range(L):
        order[0, y], delta[0, y] = y, log_node[lo, y]
        best = y if delta[0, y] > delta[0, best] else best
    n_opened[0] = L
    for t in range(1, T):
        for y in range(L):
            order[t, y] = y
        for root in range(L // 2 - 1, -1, -1):
            _sift_down(log_node, lo + t, order, t, root, L)
        n_opened[t] = 0
        limit[t] = delta[t - 1, best] + tables.reach[edge_class[lo + t]]
        best = _take_next(log_node, lo + t, t, order, n_opened)
        counters[1] += _open(t, best, lo, log_node, tables, edge_class, search)
        while n_opened[t] < L and delta[t, best] < limit[t] + log_node[lo + t, order[t, 0]]:
            y = _take_next(log_node, lo + t, t, order, n_opened)
            counters[1] += _open(t, y, lo, log_node, tables, edge_class, search)
            best = y if delta[t, y] > delta[t, best] else best
    for t in range(T):
        counters[0] += n_opened[t]
    counters[2] += 1
    if delta[T - 1, best] > -np.inf:
        path[hi - 1] = best
        for t in range(T - 1, 0, -1):
            path[lo + t - 1] = back[t, path[lo + t]]
    return delta[T - 1, best]


@kernel
def carpediem_many(log_node, tables, edge_class, seq_ptr, path, score, counters):
    """Best path and score of every sequence, exactly; a path with the same score may stand for another.

    delta[t,y] = log_node[t,y] + max_yp(delta[t-1,yp] + log_edge[yp,y]), for opened labels only
    limit[t] = max_y delta[t-1,y] + reach: no path into t is better, a transition into t included
    Labels of t are opened by falling node score while the best delta[t] < limit[t] + log_node[t,y].

    Arguments:
        log_node : (n, L), may be -inf
        tables : a `CarpeDiemTables`
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
        counters : int64 (3,), added to: labels opened, transitions looked at, sequences
    Allocates 2 (longest T) (L + 2) numbers.
    Cost: n L where node scores decide, n L^2 transitions and n L log L where they do not.
    Source: Esposito and Radicioni (2009); docs/SPEC.md, C.2 and C.7; chapter 11.
    """
    L, longest = log_node.shape[1], 1
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    search = (
        np.empty((longest, L), np.int32),
        np.empty(longest, np.int64),
        np.empty(longest),
        np.empty((longest, L)),
        np.zeros((longest, L), np.int32),
        np.empty((longest, 2), np.int64),
    )
    path[:] = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            score[s] = _decode(log_node, tables, edge_class, lo, hi, path, counters, search)


class CarpeDiemTables(NamedTuple):
    """What `carpediem_many` reads."""

    log_edge_t: np.ndarray  # (K, L, L) as [class, next, previous]
    into: np.ndarray  # (K, L): no transition into a label scores more
    reach: np.ndarray  # (K,): no transition scores more


def carpediem_tables(log_edge, tight=True):
    """`CarpeDiemTables`. tight : a bound for each next label; otherwise one for all, as in the paper.
    Source: docs/SPEC.md, C.2.
    """
    log_edge_t = np.ascontiguousarray(np.swapaxes(log_edge, 1, 2), float)
    into = log_edge_t.max(axis=2)
    reach = into.max(axis=1)
    return CarpeDiemTables(log_edge_t, into if tight else np.repeat(reach[:, None], into.shape[1], 1), reach)
