"""The best labelling of a sequence: ``viterbi`` to read, ``viterbi_many`` to decode a corpus.

Both add the same numbers in the same order, so scores and paths agree bit for bit. Ties go to the smallest
label at every step. Forbidden = -inf.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import copy_row

# Relative safety margin of the comparison in _surviving: some 90 rounding errors, where 10 can occur.
SLACK = 1e-14


@kernel
def viterbi(log_node, log_edge, edge_class, delta_buf, back, path):
    """Best path of one sequence; returns its score, -inf if every path is forbidden (path is then all 0).

    delta[0] = log_node[0]
    delta[t,y] = log_node[t,y] + max_yp(delta[t-1,yp] + log_edge[yp,y])
    back[t,y] = the smallest maximising yp
    path[T-1] = argmax delta[T-1],  path[t-1] = back[t, path[t]]

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L) as [class, previous, next]
        edge_class : (T,)
    Work:
        delta_buf : (2, L)
    Out:
        back : int (T, L) (row 0 is not written)
        path : int32 (T,)
    Cost: T L^2 additions and comparisons.
    Source: Viterbi (1967).
    """
    T, L = log_node.shape
    copy_row(log_node, 0, delta_buf, 0)
    for t in range(1, T):
        before, delta, k = delta_buf[(t - 1) % 2], delta_buf[t % 2], edge_class[t]
        for y in range(L):
            best, best_yp = before[0] + log_edge[k, 0, y], 0
            for yp in range(1, L):
                v = before[yp] + log_edge[k, yp, y]
                if v > best:
                    best, best_yp = v, yp
            delta[y] = log_node[t, y] + best
            back[t, y] = best_yp
    y = np.argmax(delta_buf[(T - 1) % 2])
    score = delta_buf[(T - 1) % 2, y]
    if score == -np.inf:
        path[:] = 0
        return score
    path[T - 1] = y
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return score


@kernel
def dominance(log_edge, log_edge_t, bound):
    """bound[k,q,yp] = max_y(log_edge[yp,y] - log_edge[q,y]): by how much yp can beat q as previous label.

    If delta[yp] + bound[q,yp] < delta[q], then delta[yp] + log_edge[yp,y] < delta[q] + log_edge[q,y] for all
    y. A column y that only q forbids gives +inf. One that yp forbids does not count, as yp cannot win there:
    -inf - -inf is NaN, which no comparison finds larger. Returns reach, the largest finite |log_edge|.

    Arguments:
        log_edge : (K, L, L) as [class, previous, next]
        log_edge_t : (K, L, L), its transposes
    Out:
        bound : (K, L, L) as [class, q, yp]
    Cost: K L^3, once per model.
    Source: the idea of dominated states, Esposito and Radicioni (2009).
    """
    K, L = log_edge.shape[0], log_edge.shape[1]
    reach = 0.0
    for k in range(K):
        for q in range(L):
            for yp in range(L):
                bound[k, q, yp] = -np.inf
            for y in range(L):
                rival = log_edge[k, q, y]
                reach = max(reach, abs(rival)) if rival > -np.inf else reach
                for yp in range(L):
                    v = log_edge_t[k, y, yp] - rival
                    bound[k, q, yp] = v if v > bound[k, q, yp] else bound[k, q, yp]
    return reach


# The helpers below take whole tables and the number of a row: handing over a row costs an atomic reference
# count, which is more than the work on 20 labels.


@kernel
def _largest(delta, t):
    """The smallest y with the largest delta[t,y]."""
    q, high = 0, delta[t, 0]
    for y in range(1, delta.shape[1]):
        if delta[t, y] > high:
            q, high = y, delta[t, y]
    return q


@kernel
def _surviving(delta, t, q, bound, k, reach, rows):
    """The labels yp that may still win against q = argmax delta[t], rising, into rows; returns how many.

    Rounding: a delta far below delta[t,q] loses by more than its rounding error. For the others every number
    is at most |delta[t,q]| + 6 reach, which bounds a rounding error.
    """
    limit = delta[t, q] - SLACK * (abs(delta[t, q]) + 8.0 * reach)
    n_rows = 0
    for yp in range(delta.shape[1]):
        rows[n_rows] = yp
        n_rows += not delta[t, yp] + bound[k, q, yp] < limit
    return n_rows


@kernel
def _max_plus(delta, log_edge, k, rows, n_rows, best, t):
    """best[t,y] = max over yp in rows[:n_rows] of delta[t-1,yp] + log_edge[k,yp,y]; n_rows >= 1.

    Four rows per pass over y: the loop over y is contiguous and becomes vector additions and maxima.
    """
    L = delta.shape[1]
    i0, d0 = rows[0], delta[t - 1, rows[0]]
    for y in range(L):
        best[t, y] = d0 + log_edge[k, i0, y]
    j = 1
    while j + 4 <= n_rows:
        i0, i1, i2, i3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        d0, d1, d2, d3 = delta[t - 1, i0], delta[t - 1, i1], delta[t - 1, i2], delta[t - 1, i3]
        for y in range(L):
            v0, v1 = d0 + log_edge[k, i0, y], d1 + log_edge[k, i1, y]
            v2, v3 = d2 + log_edge[k, i2, y], d3 + log_edge[k, i3, y]
            v0 = v1 if v1 > v0 else v0
            v2 = v3 if v3 > v2 else v2
            v0 = v2 if v2 > v0 else v0
            best[t, y] = v0 if v0 > best[t, y] else best[t, y]
        j += 4
    while j < n_rows:
        i0, d0 = rows[j], delta[t - 1, rows[j]]
        for y in range(L):
            v0 = d0 + log_edge[k, i0, y]
            best[t, y] = v0 if v0 > best[t, y] else best[t, y]
        j += 1


@kernel
def _trace_back(log_edge_t, edge_class, lo, hi, delta, best, path):
    """path[i-1] = the smallest yp with delta[yp] + log_edge[yp,path[i]] = best[path[i]], from path[hi-1]."""
    for i in range(hi - 1, lo, -1):
        y, k, t = path[i], edge_class[i], i - lo
        yp = 0
        while delta[t - 1, yp] + log_edge_t[k, y, yp] != best[t, y]:
            yp += 1
        path[i - 1] = yp


@kernel
def decode_sequence(
    log_node, log_edge, log_edge_t, bound, reach, edge_class, lo, hi, path, delta, best, rows
):
    """``viterbi_many`` for the tokens lo..hi-1 of one sequence, not empty; returns its score.
    path is left alone if that is -inf.

    Arguments:
        log_node : (n, L)
        log_edge : (K, L, L)
        log_edge_t : (K, L, L), its transposes (a view will do)
        bound : (K, L, L)
        reach : from ``dominance``, or bound (0, 0, 0): no label is left out
        edge_class : (n,)
    Out:
        path : int32 (n,)
    Work:
        delta, best : (longest T, L)
        rows : int64 (L,)
    Cost: T L^2 additions and maxima.
    Source: Viterbi (1967); chapter 02.
    """
    L = log_node.shape[1]
    n_rows = L
    for y in range(L):
        rows[y] = y
        delta[0, y] = log_node[lo, y]
    for t in range(1, hi - lo):
        k = edge_class[lo + t]
        if bound.size > 0:
            n_rows = _surviving(delta, t - 1, _largest(delta, t - 1), bound, k, reach, rows)
        _max_plus(delta, log_edge, k, rows, n_rows, best, t)
        for y in range(L):
            delta[t, y] = log_node[lo + t, y] + best[t, y]
    y = _largest(delta, hi - lo - 1)
    if delta[hi - lo - 1, y] > -np.inf:
        path[hi - 1] = y
        _trace_back(log_edge_t, edge_class, lo, hi, delta, best, path)
    return delta[hi - lo - 1, y]


@kernel
def decode_sequences(log_node, log_edge, log_edge_t, bound, reach, edge_class, seq_ptr, path, score):
    """``decode_sequence`` for every sequence: ``viterbi_many`` on tables that are given.

    Arguments:
        log_node : (n, L)
        log_edge, log_edge_t, bound : (K, L, L), as there
        reach : as there
        edge_class : (n,)
        seq_ptr : (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
    Allocates 2 (longest T) L numbers.
    Cost: n L^2 additions and maxima, less what is skipped.
    Source: Viterbi (1967); chapter 02.
    """
    L, longest = log_node.shape[1], 1
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    delta, best, rows = np.empty((longest, L)), np.empty((longest, L)), np.empty(L, np.int64)
    path[:] = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            work = path, delta, best, rows
            score[s] = decode_sequence(
                log_node, log_edge, log_edge_t, bound, reach, edge_class, lo, hi, *work
            )


def viterbi_many(log_node, log_edge, edge_class, seq_ptr, path, score):
    """Best path and score of every sequence: the scores and paths of ``viterbi``, several times faster.

    best[t,y] = max_yp(delta[t-1,yp] + log_edge[yp,y]),  delta[t,y] = log_node[t,y] + best[t,y]
    path[t-1] = the smallest yp with delta[t-1,yp] + log_edge[yp,path[t]] = best[t,path[t]]
    Two savings change no result. Back pointers are found afterwards, along the best path only (T L
    comparisons). Previous labels that lose against q = argmax delta[t-1] for every next label are left out:
    yp is skipped if delta[t-1,yp] + bound[q,yp] < delta[t-1,q] - slack. ``dominance`` gives bound, and slack
    exceeds all rounding errors.

    Arguments:
        log_node : (n, L)
        log_edge : (K, L, L) as [class, previous, next]
        edge_class : (n,)
        seq_ptr : (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
    Allocates 2 (longest T) L + 2 K L^2 numbers.
    Cost: n L^2 additions and maxima, less what is skipped, and K L^3 for bound where n is large enough to
    gain by it.
    Source: Viterbi (1967); chapter 02.
    """
    tables = viterbi_tables(log_edge, len(log_node))
    decode_sequences(log_node, *tables, edge_class, seq_ptr, path, score)


def viterbi_tables(log_edge, n_tokens):
    """(log_edge, its transposes, bound (K, L, L), reach): what ``decode_sequences`` reads."""
    log_edge_t = np.ascontiguousarray(log_edge.transpose(0, 2, 1))
    return log_edge, log_edge_t, *bounds_of_losers(log_edge, log_edge_t, n_tokens)


def bounds_of_losers(log_edge, log_edge_t, n_tokens):
    """(bound (K, L, L), reach) of ``dominance`` where n_tokens repay it; else bound is (0, 0, 0)."""
    n_classes, n_labels, _ = log_edge.shape
    if n_tokens <= 4 * n_classes * n_labels:
        return np.empty((0, 0, 0)), 0.0
    bound = np.empty(log_edge.shape)
    return bound, dominance(log_edge, log_edge_t, bound)
