"""Beam search: each token keeps the `width` labels with the best scores so far.

Width 1 is the greedy path, width L or more is Viterbi. In between a path may be missed. Forbidden = -inf.

`tables` is BeamTables. `beam` is a tuple of work arrays, T tokens of the longest sequence, W =
min(width, L): kept int32 (T, W), labels by falling delta; n_kept int64 (T,); delta and best (T, W), with and
without the node score of the label; ahead (L,).
"""

from typing import NamedTuple

import numpy as np

from crfbook._checks import whole
from crfbook._jit import kernel


@kernel
def _keep(t, i, log_node, beam):
    """The labels of token i with the best ahead + log_node[i], by falling score; ties: smaller label first.
    Forbidden ones are never kept.
    """
    kept, n_kept, delta, best, ahead = beam
    W, n = kept.shape[1], 0
    for y in range(ahead.size):
        v = ahead[y] + log_node[i, y]
        if v == -np.inf or (n == W and v <= delta[t, W - 1]):
            continue
        j = n if n < W else W - 1
        n = n + 1 if n < W else n
        while j > 0 and v > delta[t, j - 1]:
            kept[t, j], delta[t, j], best[t, j] = kept[t, j - 1], delta[t, j - 1], best[t, j - 1]
            j -= 1
        kept[t, j], delta[t, j], best[t, j] = y, v, ahead[y]
    n_kept[t] = n


@kernel
def _trace_back(log_edge, edge_class, lo, hi, beam, path):
    """path[lo:hi] from the kept labels; ties go to the smallest label."""
    kept, n_kept, delta, best, ahead = beam
    j = 0
    path[hi - 1] = kept[hi - lo - 1, 0]
    for t in range(hi - lo - 1, 0, -1):
        y, k, came = path[lo + t], edge_class[lo + t], -1
        for i in range(n_kept[t - 1]):
            if delta[t - 1, i] + log_edge[k, kept[t - 1, i], y] == best[t, j]:
                came = i if came < 0 or kept[t - 1, i] < kept[t - 1, came] else came
        j = came
        path[lo + t - 1] = kept[t - 1, j]


@kernel
def _decode(log_node, log_edge, edge_class, lo, hi, path, counters, beam):
    """``beam_many`` for the tokens lo..hi-1 of one sequence, not empty; returns its score."""
    kept, n_kept, delta, best, ahead = beam
    L = ahead.size
    for y in range(L):
        ahead[y] = 0.0
    _keep(0, lo, log_node, beam)
    for t in range(1, hi - lo):
        k = edge_class[lo + t]
        for y in range(L):
            ahead[y] = -np.inf
        for j in range(n_kept[t - 1]):
            yp, v = kept[t - 1, j], delta[t - 1, j]
            for y in range(L):
                u = v + log_edge[k, yp, y]
                ahead[y] = u if u > ahead[y] else ahead[y]
        counters[1] += n_kept[t - 1] * L
        _keep(t, lo + t, log_node, beam)
    counters[0] += (hi - lo) * L
    counters[2] += 1
    if n_kept[hi - lo - 1] == 0:
        return -np.inf
    _trace_back(log_edge, edge_class, lo, hi, beam, path)
    return delta[hi - lo - 1, 0]


@kernel
def beam_many(log_node, tables, edge_class, seq_ptr, path, score, counters):
    """A good path of every sequence and its score; exact for width >= L, otherwise an approximation.

    ahead[y] = max over kept yp of delta[t-1,yp] + log_edge[yp,y];  delta[t,y] = log_node[t,y] + ahead[y]
    kept at t: the `width` labels with the largest delta[t,y] > -inf

    Arguments:
        log_node : (n, L), may be -inf
        tables : a `BeamTables`
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if no path was found: all is
            forbidden, or the kept labels lead to a dead end
        counters : int64 (3,), added to: nodes and transitions looked at, sequences
    Allocates 3 (longest T) width numbers.
    Cost: n L width.
    Source: Kaji et al. (2010), section 5.3, where it is compared; docs/SPEC.md, C.1; chapter 11.
    """
    L, longest = log_node.shape[1], 1
    W = min(L, tables.width)
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    beam = (
        np.empty((longest, W), np.int32),
        np.empty(longest, np.int64),
        np.empty((longest, W)),
        np.empty((longest, W)),
        np.empty(L),
    )
    path[:] = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            score[s] = _decode(log_node, tables.log_edge, edge_class, lo, hi, path, counters, beam)


class BeamTables(NamedTuple):
    """What `beam_many` reads."""

    log_edge: np.ndarray  # (K, L, L)
    width: int


def beam_tables(log_edge, width):
    """`BeamTables`; ValueError unless width is an integer >= 1."""
    return BeamTables(np.ascontiguousarray(log_edge, float), whole("width", width, 1))
