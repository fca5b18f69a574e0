"""Sparse Viterbi: the best labelling where few label pairs of a class differ from a base of all classes.

The base alone is decoded as in viterbi_many, where `dominance` leaves out rows. Then each stored pair of the
token's class is compared once. Scores add up in the order of the dense form, so that scores and paths
are the same bit for bit. `scores` is a SparseScores (potentials.py), which lists its arrays with shapes.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.viterbi import _largest, _max_plus, _surviving, dominance


@kernel
def best_base(t, delta, log_base, bound, reach, n_labels, rows_buf, base_best):
    """base_best[t,y] = max_yp(delta[t-1,yp] + log_base[yp,y]), or max_yp delta[t-1,yp] where the base is 0.

    Arguments:
        t : token
        delta : (T, M)
        log_base : (1, M, M) or (0, 0, 0)
        bound : (1, M, M), from `dominance`, or (0, 0, 0): no label is left out
        reach : from `dominance`
        n_labels : L
    Out:
        base_best : (T, M)
    Work:
        rows_buf : int64 (M,)
    Cost: M^2 additions and maxima, less what is skipped; M without a base.
    Source: Sokolovska et al. (2010), eq. (10).
    """
    q = _largest(delta, t - 1)
    if log_base.size == 0:
        for y in range(delta.shape[1]):
            base_best[t, y] = delta[t - 1, q] if y < n_labels else -np.inf
        return
    # of the type that a class has: for the literal 0 the kernels called would compile again
    n_rows, k = delta.shape[1], np.int32(0)
    if bound.size > 0:
        n_rows = _surviving(delta, t - 1, q, bound, k, reach, rows_buf)
    else:
        for y in range(n_rows):
            rows_buf[y] = y
    _max_plus(delta, log_base, k, rows_buf, n_rows, base_best, t)


@kernel
def apply_entries(t, mark, k, scores, delta, base_best, best, stamp_buf, dirty_buf):
    """best[t,y] = the largest delta[t-1,yp] + score[yp,y]: entries in column y's support, the base elsewhere.

    The base's own best counts unless the label that reaches it is in the support with a lower score: only
    such a column is searched again without its support.

    Arguments:
        t : token
        mark : a number not in stamp_buf
        k : the class
        scores : a `SparseScores`
        delta : (T, M)
        base_best : (T, M) of `best_base`
    Out:
        best : (T, M)
    Work:
        dirty_buf : uint8 (M,)
        stamp_buf : int64 (M, M)
    Returns the number of columns searched again.
    Cost: one comparison an entry, M for each such column.
    Source: Sokolovska et al. (2010), eq. (10).
    """
    start, stop, log_base = scores.entry_ptr[k], scores.entry_ptr[k + 1], scores.log_base
    M = best.shape[1]
    best[t, :] = -np.inf
    dirty_buf[:] = 0
    for e in range(start, stop):
        yp, y = scores.prev[e], scores.next_label[e]
        d = delta[t - 1, yp]
        v = d + scores.entry_score[e]
        v0 = d + log_base[0, yp, y] if log_base.size else d
        best[t, y] = v if v > best[t, y] else best[t, y]
        dirty_buf[y] |= (v < v0) & (v0 == base_best[t, y])
    n_dirty = 0
    for y in range(M):
        dirty_buf[y] &= best[t, y] < base_best[t, y]
        n_dirty += dirty_buf[y]
        if not dirty_buf[y]:
            best[t, y] = base_best[t, y] if base_best[t, y] > best[t, y] else best[t, y]
    if n_dirty == 0:
        return 0
    for e in range(start, stop):
        stamp_buf[scores.next_label[e], scores.prev[e]] = mark
    for y in range(M):
        if dirty_buf[y]:
            for yp in range(M):
                if stamp_buf[y, yp] != mark:
                    v = delta[t - 1, yp] + (log_base[0, yp, y] if log_base.size else 0.0)
                    best[t, y] = v if v > best[t, y] else best[t, y]
    return n_dirty


@kernel
def sparse_trace_back(scores, edge_class, lo, hi, delta, best, path, column_buf):
    """path[i-1] = the smallest yp with delta[yp] + score[yp,path[i]] = best[path[i]]; path[hi-1] is given.

    Arguments:
        scores : a `SparseScores`
        edge_class : (n,)
        lo, hi : tokens of the sequence
        delta, best : (>= hi - lo, M)
    Out:
        path : int32 (n,)
    Work:
        column_buf : (M,)
    Cost: the entries of the class and M, a token.
    Source: Viterbi (1967).
    """
    for i in range(hi - 1, lo, -1):
        y, k, t = path[i], edge_class[i], i - lo
        for yp in range(column_buf.size):
            column_buf[yp] = scores.log_base[0, yp, y] if scores.log_base.size else 0.0
        for e in range(scores.entry_ptr[k], scores.entry_ptr[k + 1]):
            if scores.next_label[e] == y:
                column_buf[scores.prev[e]] = scores.entry_score[e]
        yp = 0
        while delta[t - 1, yp] + column_buf[yp] != best[t, y]:
            yp += 1
        path[i - 1] = yp


@kernel
def sparse_viterbi_many(log_node, scores, n_labels, edge_class, seq_ptr, path, score):
    """Best path and score of every sequence: those of ``viterbi_many``, in time that grows with the entries.

    delta[t,y] = log_node[t,y] + max(max_{yp in support of y} (delta[t-1,yp] + entry_score[yp,y]),
                                     max_{yp not in it} (delta[t-1,yp] + log_base[yp,y]))

    Arguments:
        log_node : (n, M)
        scores : a `SparseScores`
        n_labels : L
        edge_class : (n,)
        seq_ptr : (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
    Returns how many columns were searched again.
    Cost: the entries of each token's class, M, and the base's M^2 less what is skipped.
    Source: Sokolovska et al. (2010), eq. (10).
    """
    M, log_base = log_node.shape[1], scores.log_base
    bound, reach = np.empty((0, 0, 0)), 0.0
    if log_base.size and log_node.shape[0] > 4 * M:
        bound = np.empty((1, M, M))
        log_base_t = np.empty((1, M, M))
        log_base_t[0] = log_base[0].T
        reach = dominance(log_base, log_base_t, bound)
    longest = 1
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    delta, best, base_best = np.empty((longest, M)), np.empty((longest, M)), np.empty((longest, M))
    rows, dirty, column = np.empty(M, np.int64), np.empty(M, np.uint8), np.empty(M)
    stamp = np.zeros((M, M), np.int64)
    path[:] = 0
    n_again = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo == hi:
            continue
        delta[0] = log_node[lo]
        for t in range(1, hi - lo):
            k = edge_class[lo + t]
            best_base(t, delta, log_base, bound, reach, n_labels, rows, base_best)
            n_again += apply_entries(t, lo + t, k, scores, delta, base_best, best, stamp, dirty)
            for y in range(M):
                delta[t, y] = log_node[lo + t, y] + best[t, y]
        y = _largest(delta, hi - lo - 1)
        score[s] = delta[hi - lo - 1, y]
        if score[s] > -np.inf:
            path[hi - 1] = y
            sparse_trace_back(scores, edge_class, lo, hi, delta, best, path, column)
    return n_again
