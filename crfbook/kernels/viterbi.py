"""The best labelling of a sequence: ``viterbi`` to read, ``viterbi_many`` to decode a corpus.

Both add the same numbers in the same order, so scores and paths agree bit for bit. Ties go to the smallest
label at every step. Forbidden = -inf.
"""

import numpy as np

from crfbook._jit import kernel

# Relative safety margin of the comparison in _surviving: some 90 rounding errors, where 10 can occur.
SLACK = 1e-14


@kernel
def viterbi(log_node, log_edge, edge_class, delta_buf, back, path):
    """Best path of one sequence; returns its score, -inf if every path is forbidden (path is then all 0).

    delta[0] = log_node[0]
    delta[t,y] = log_node[t,y] + max_yp(delta[t-1,yp] + log_edge[yp,y]),  back[t,y] = the smallest maximising yp
    path[T-1] = argmax delta[T-1],  path[t-1] = back[t, path[t]]

    Arguments: log_node (T, L), log_edge (K, L, L) as [class, previous, next], edge_class (T,);
    work: delta_buf (2, L); out: back int (T, L) (row 0 is not written), path int32 (T,).
    Cost: T L^2 additions and comparisons. Source: SPEC 0.3 (K3); Viterbi (1967).
    """
    T, L = log_node.shape
    delta_buf[0, :] = log_node[0]
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
def dominance(log_edge, bound):
    """bound[k,q,yp] = max_y(log_edge[yp,y] - log_edge[q,y]): how much better than q a previous label yp can be.

    If delta[yp] + bound[q,yp] < delta[q], then delta[yp] + log_edge[yp,y] < delta[q] + log_edge[q,y] for all y.
    A column y that yp forbids does not count (yp cannot win there); one that only q forbids gives +inf.
    Returns reach, the largest finite |log_edge|, which viterbi_many needs to allow for rounding.
    Arguments: log_edge (K, L, L) as [class, previous, next]; out: bound (K, L, L) as [class, q, yp].
    Cost: K L^3, once per model. Source: the idea of dominated states, Esposito and Radicioni (2009).
    """
    K, L = log_edge.shape[0], log_edge.shape[1]
    reach = 0.0
    for k in range(K):
        for q in range(L):
            for yp in range(L):
                high = -np.inf
                for y in range(L):
                    if log_edge[k, yp, y] > -np.inf:
                        high = max(high, log_edge[k, yp, y] - log_edge[k, q, y])
                        reach = max(reach, abs(log_edge[k, yp, y]))
                bound[k, q, yp] = high
    return reach


@kernel
def _max_plus(before, edge, rows, n_rows, best):
    """best[y] = max over yp in rows[:n_rows] of before[yp] + edge[yp, y]; edge (L, L), before and best (L,).

    Four rows per pass over y: the loop over y is contiguous and becomes vector additions and maxima.
    """
    L = best.size
    row, d = edge[rows[0]], before[rows[0]]
    for y in range(L):
        best[y] = d + row[y]
    j = 1
    while j + 4 <= n_rows:
        i0, i1, i2, i3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        row0, row1, row2, row3 = edge[i0], edge[i1], edge[i2], edge[i3]
        d0, d1, d2, d3 = before[i0], before[i1], before[i2], before[i3]
        for y in range(L):
            v0, v1, v2, v3 = d0 + row0[y], d1 + row1[y], d2 + row2[y], d3 + row3[y]
            v0 = v1 if v1 > v0 else v0
            v2 = v3 if v3 > v2 else v2
            v0 = v2 if v2 > v0 else v0
            best[y] = v0 if v0 > best[y] else best[y]
        j += 4
    while j < n_rows:
        row, d = edge[rows[j]], before[rows[j]]
        for y in range(L):
            v = d + row[y]
            best[y] = v if v > best[y] else best[y]
        j += 1


@kernel
def _trace_back(log_edge_t, edge_class, delta, best, path):
    """path[t-1] = the smallest yp with delta[t-1,yp] + log_edge[yp,path[t]] = best[t,path[t]]; path[T-1] is given."""
    for t in range(path.size - 1, 0, -1):
        y = path[t]
        column, before, target = log_edge_t[edge_class[t], y], delta[t - 1], best[t, y]
        yp = 0
        while before[yp] + column[yp] != target:
            yp += 1
        path[t - 1] = yp


@kernel
def _surviving(before, bound, reach, rows):
    """The labels yp that may still win against q = argmax before, rising, into rows; returns how many.

    Rounding: a delta far below delta[q] loses by more than it can be wrong; for the others every number is at most
    |delta[q]| + 6 reach, and so is what one rounding error is measured by.
    """
    q = 0
    for y in range(1, before.size):
        if before[y] > before[q]:
            q = y
    limit = before[q] - SLACK * (abs(before[q]) + 8.0 * reach)
    n_rows = 0
    for yp in range(before.size):
        rows[n_rows] = yp
        n_rows += not before[yp] + bound[q, yp] < limit
    return n_rows


@kernel
def viterbi_many(
    log_node, log_edge, log_edge_t, bound, reach, edge_class, seq_ptr, path, score, delta_buf, best_buf, rows_buf
):
    """Best path and score of every sequence; the scores and paths of ``viterbi``, faster.

    best[t,y] = max_yp(delta[t-1,yp] + log_edge[yp,y]) without back pointers: they are looked for afterwards,
    along the best path only (T L comparisons). With ``bound`` (from ``dominance``), previous labels that lose
    against q = argmax delta[t-1] for every next label are left out: yp is skipped if
    delta[yp] + bound[q,yp] < delta[q] - slack, where slack exceeds all rounding errors. So nothing changes.

    Arguments: log_node (n, L); log_edge (K, L, L), log_edge_t (K, L, L) its transposes; bound (K, L, L), or
    (0, 0, 0) to skip nothing; reach: what dominance returned; edge_class (n,), seq_ptr (S+1,);
    out: path int32 (n,), score (S,) (0 for an empty sequence; -inf and a path of zeros if all is forbidden);
    work: delta_buf, best_buf (longest T, L), rows_buf int64 (L,).
    Cost: n L^2 additions and maxima, less what is skipped. Source: SPEC 0.3 (K3).
    """
    L = log_node.shape[1]
    for y in range(L):
        rows_buf[y] = y
    for s in range(seq_ptr.size - 1):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        T, n_rows = hi - lo, L
        score[s] = 0.0
        if T == 0:
            continue
        delta_buf[0, :] = log_node[lo]
        for t in range(1, T):
            k, before, best, delta = edge_class[lo + t], delta_buf[t - 1], best_buf[t], delta_buf[t]
            if bound.size > 0:
                n_rows = _surviving(before, bound[k], reach, rows_buf)
            _max_plus(before, log_edge[k], rows_buf, n_rows, best)
            node = log_node[lo + t]
            for y in range(L):
                delta[y] = node[y] + best[y]
        y = np.argmax(delta_buf[T - 1])
        score[s] = delta_buf[T - 1, y]
        path[lo:hi] = 0
        if score[s] > -np.inf:
            path[hi - 1] = y
            _trace_back(log_edge_t, edge_class[lo:hi], delta_buf, best_buf, path[lo:hi])
