"""Threshold rows: most transitions score 0, and a stored one is looked at only while it can win.

The best previous label q carries every label y by default, with the score delta[t-1,q] + 0. A stored pair
above 0 counts only if it beats that. Rows are sorted by falling score, so that the rest of a row is left once
one pair does not. Stored pairs below 0, forbidden ones (-inf) included, matter in the row of q alone: their
columns are searched for the best of all other previous labels. Exact, whatever is stored. All sums add up as
in ``viterbi_many`` and rounding never turns an order round: scores and paths are the same bit for bit.

`tables` is a `ThresholdTables`. The default form beats it wherever chapter 11 measures: so it stands here, as
a rival, and not in the package.
"""

from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.viterbi import _largest
from crfbook.data.corpus import offsets
from crfbook.decoding.decoders import Decoder


@kernel
def _sift_down(delta, t, heap, root, size):
    """Put heap[root] where it belongs in heap[:size]: the label with the largest delta[t,y] on top."""
    y = heap[root]
    child = 2 * root + 1
    while child < size:
        if child + 1 < size and delta[t, heap[child + 1]] > delta[t, heap[child]]:
            child += 1
        if not delta[t, heap[child]] > delta[t, y]:
            break
        heap[root] = heap[child]
        root, child = child, 2 * child + 1
    heap[root] = y


@kernel
def _falling(delta, t, limit):
    """The labels with delta[t,y] > limit by falling delta: heapsort. Its order of equals decides counters."""
    heap = np.flatnonzero(delta[t] > limit)
    for root in range(heap.size // 2 - 1, -1, -1):
        _sift_down(delta, t, heap, root, heap.size)
    for last in range(heap.size - 1, 0, -1):
        heap[0], heap[last] = heap[last], heap[0]
        _sift_down(delta, t, heap, 0, last)
    return heap[::-1]


@kernel
def _is_listed(tables, column, yp):
    """Does the list of a column hold the previous label yp?"""
    listed = tables.column_prev[tables.column_ptr[column] : tables.column_ptr[column + 1]]
    place = np.searchsorted(listed, yp)
    return place < listed.size and listed[place] == yp


@kernel
def _repair_columns(t, first, row, tables, delta, counters):
    """delta[t,y] = max_yp(delta[t-1,yp] + score of (yp, y)) for the y whose pair with q scores below 0.

    A column that is not complete: the listed pairs, and the first label not listed in the order of falling
    delta. Labels at or below delta[t-1,q] + low_min[row] lose against q itself and are left out.
    first: the class times L; row: that of q.
    """
    if tables.low_ptr[row] == tables.low_ptr[row + 1]:
        return
    order = _falling(delta, t - 1, delta[t - 1, row - first] + tables.low_min[row])
    for y in tables.low_next[tables.low_ptr[row] : tables.low_ptr[row + 1]]:
        best, column = -np.inf, first + y
        for i in range(tables.column_ptr[column], tables.column_ptr[column + 1]):
            counters[1] += 1
            v = delta[t - 1, tables.column_prev[i]] + tables.column_score[i]
            best = v if v > best else best
        for yp in order[: 0 if tables.complete[column] else order.size]:
            if not delta[t - 1, yp] > best:
                break
            counters[1] += 1
            if not _is_listed(tables, column, yp):
                best = delta[t - 1, yp]
        delta[t, y] = best


@kernel
def _raise_columns(t, first, high, tables, delta, counters):
    """delta[t,y] = max(delta[t,y], delta[t-1,yp] + score) over all pairs that exceed high = delta[t-1,q]."""
    for yp in range(delta.shape[1]):
        d = delta[t - 1, yp]
        if d + tables.row_max[first + yp] > high:
            for i in range(tables.row_ptr[first + yp], tables.row_ptr[first + yp + 1]):
                counters[1] += 1
                v = d + tables.row_score[i]
                if not v > high:
                    break
                y = tables.row_next[i]
                delta[t, y] = v if v > delta[t, y] else delta[t, y]


@kernel
def _best_previous(t, column, tables, delta):
    """The smallest yp with the largest delta[t-1,yp] + score in a column; there is one above -inf."""
    best, best_yp = -np.inf, 0
    i, stop = tables.column_ptr[column], tables.column_ptr[column + 1]
    if tables.complete[column]:
        for j in range(i, stop):
            v = delta[t - 1, tables.column_prev[j]] + tables.column_score[j]
            if v > best:
                best, best_yp = v, tables.column_prev[j]
        return best_yp
    for yp in range(delta.shape[1]):
        v = delta[t - 1, yp]
        if i < stop and tables.column_prev[i] == yp:
            v += tables.column_score[i]
            i += 1
        if v > best:
            best, best_yp = v, yp
    return best_yp


@kernel
def threshold_many(log_node, tables, edge_class, seq_ptr, path, score, counters):
    """Best path and score of every sequence: those of ``viterbi_many``, looking at few pairs a token.

    q = argmax delta[t-1];  best[y] = delta[t-1,q], for all y
    best[y] = max_yp(delta[t-1,yp] + s[yp,y]) for the y with s[q,y] < 0
    best[y] = max(best[y], delta[t-1,yp] + s[yp,y]) for the pairs with delta[t-1,yp] + s[yp,y] > delta[t-1,q]
    delta[t,y] = log_node[t,y] + best[y]
    path[t-1] = the smallest yp with the largest delta[t-1,yp] + s[yp,path[t]]

    Arguments:
        log_node : (n, L)
        tables : a ThresholdTables
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
        counters : int64 (3,), added to: labels, label pairs that delta took, 0
    Allocates (longest T) L numbers, and some L for a token.
    Cost: 4 L a token, the pairs above q, a sort of the labels near q, and the columns of what q scores below
    0.
    Source: Kaji, Fujiwara, Yoshinaga and Kitsuregawa (2010) for the problem; chapter 11.
    """
    L, longest = log_node.shape[1], 1
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    delta = np.empty((longest, L))
    path[:] = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo == hi:
            continue
        for y in range(L):
            delta[0, y] = log_node[lo, y]
        for t in range(1, hi - lo):
            first, q = edge_class[lo + t] * L, _largest(delta, t - 1)
            high = delta[t - 1, q]
            for y in range(L):
                delta[t, y] = high
            _repair_columns(t, first, first + q, tables, delta, counters)
            _raise_columns(t, first, high, tables, delta, counters)
            for y in range(L):
                delta[t, y] += log_node[lo + t, y]
        counters[0] += (hi - lo) * L
        y = _largest(delta, hi - lo - 1)
        score[s] = delta[hi - lo - 1, y]
        if score[s] > -np.inf:
            path[hi - 1] = y
            for t in range(hi - lo - 1, 0, -1):
                path[lo + t - 1] = _best_previous(t, edge_class[lo + t] * L + path[lo + t], tables, delta)


class ThresholdTables(NamedTuple):
    """Pairs of labels by row (class k, previous label yp: row k L + yp) and by column (k, next label y)."""

    row_ptr: np.ndarray  # int64 (K L + 1,): pairs with a score above 0, rows sorted by falling score
    row_next: np.ndarray  # int32
    row_score: np.ndarray
    row_max: np.ndarray  # (K L,): the largest score of a row, at least 0
    low_ptr: np.ndarray  # int64 (K L + 1,): pairs with a score below 0, -inf included, by row
    low_next: np.ndarray  # int32
    low_min: np.ndarray  # (K L,): the smallest score of a row in columns that are not complete, at most 0
    column_ptr: np.ndarray  # int64 (K L + 1,): pairs by column and rising previous label
    column_prev: np.ndarray  # int32
    column_score: np.ndarray
    complete: np.ndarray  # bool (K L,): the column lists all pairs that are not forbidden; else all stored


def threshold_tables(log_edge):
    """`ThresholdTables` of log_edge (K, L, L) as [class, previous, next].

    Stored are all pairs but those of score 0, forbidden ones (-inf) included. A column lists what is fewer:
    its stored pairs, or all that are not forbidden. So labels that few others may precede (I-x in BIO) have
    short lists, too. Where few scores are exactly 0, nearly all pairs are stored: right, but slow.
    """
    n_labels = log_edge.shape[1]
    rows, columns = (a.reshape(-1, n_labels) for a in (log_edge, log_edge.transpose(0, 2, 1)))
    complete = (columns > -np.inf).sum(axis=1) <= (columns != 0.0).sum(axis=1)
    listed = np.where(complete[:, None], columns > -np.inf, columns != 0.0)
    (row, row_ptr, row_next, row_score), low = _pairs(rows, rows > 0.0), _pairs(rows, rows < 0.0)
    falling = np.lexsort((-row_score, row))
    row_max, low_min = np.zeros(len(rows)), np.zeros(len(rows))
    np.maximum.at(row_max, row, row_score)
    walked = ~complete[low[0] // n_labels * n_labels + low[2]]
    np.minimum.at(low_min, low[0][walked], low[3][walked])
    high = row_ptr, row_next[falling], row_score[falling], row_max
    return ThresholdTables(*high, *low[1:3], low_min, *_pairs(columns, listed)[1:], complete)


def _pairs(table, chosen):
    """(row, ptr, column, score) of the chosen cells of a table, row by row."""
    row, column = np.nonzero(chosen)
    return row, offsets(chosen.sum(axis=1)), column.astype(np.int32), table[chosen]


THRESHOLD = Decoder(lambda log_edge, order, width: threshold_tables(log_edge), threshold_many)
