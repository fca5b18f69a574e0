"""Transitions as default 0 plus stored pairs, for `threshold_many`."""

from typing import NamedTuple

import numpy as np

from crfbook.data.corpus import offsets


class ThresholdTables(NamedTuple):
    """Pairs of labels by row (class k, previous label yp: row k L + yp) and by column (k, next label y)."""

    row_ptr: np.ndarray  # int64 (K L + 1,): pairs with a score above 0, rows sorted by falling score
    row_next: np.ndarray  # int32
    row_score: np.ndarray
    row_max: np.ndarray  # (K L,): the largest score of a row, at least 0
    low_ptr: np.ndarray  # int64 (K L + 1,): pairs with a score below 0, -inf included, by row
    low_next: np.ndarray  # int32
    low_score: np.ndarray
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
    return ThresholdTables(*high, *low[1:], low_min, *_pairs(columns, listed)[1:], complete)


def _pairs(table, chosen):
    """(row, ptr, column, score) of the chosen cells of a table, row by row."""
    row, column = np.nonzero(chosen)
    return row, offsets(chosen.sum(axis=1)), column.astype(np.int32), table[chosen]
