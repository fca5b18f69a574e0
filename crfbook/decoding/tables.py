"""What the decoders derive from the transitions, once for a model; and staggered decoding to read.

log_edge is (K, L, L) as [class, previous, next] throughout; forbidden = -inf.
"""

import itertools
from typing import NamedTuple

import numpy as np

from crfbook._checks import shown, whole


class BeamTables(NamedTuple):
    """What `beam_many` reads."""

    log_edge: np.ndarray  # (K, L, L)
    width: int


def beam_tables(log_edge, width):
    """`BeamTables`; ValueError unless width is an integer >= 1."""
    return BeamTables(np.ascontiguousarray(log_edge, float), whole("width", width, 1))


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


class StaggeredTables(NamedTuple):
    """What `staggered_many` reads. Labels are numbered by their place in `order`; direction 0 is forward.

    At level c the labels below 2^c are active, and z stands for the others. M = ceil(log2 L) levels.
    """

    order: np.ndarray  # int64 (L,): original labels, the frequent ones first
    log_edge: np.ndarray  # (2, K, L, L) as [direction, class, from, to]
    to_z: np.ndarray  # (2, M, L): best transition of any class from a label to z of a level, or 1 - d: back
    z_to_z: np.ndarray  # (2, M, M) as [direction, from level, to level]
    reach: np.ndarray  # (1,): no finite |log_edge| is larger
    by_column: int  # 1: only columns expand where the best path uses z


def _of_rest(scores, starts):
    """(..., M): the largest scores (..., L) from each start on."""
    blocks = np.maximum.reduceat(scores, starts, axis=-1)
    return np.maximum.accumulate(blocks[..., ::-1], axis=-1)[..., ::-1]


def staggered_tables(log_edge, order, by_column=False):
    """`StaggeredTables`; ValueError unless `order` is a permutation of the labels.

    order : int (L,), labels by falling frequency in training. Any order is exact.
    by_column : expand only the columns where the best path is not settled.
    Source: Kaji et al. (2010), eq. (2) to (4); docs/SPEC.md, C.3 and C.7.
    """
    L, order = np.shape(log_edge)[1], np.asarray(order)
    if order.shape != (L,) or not np.array_equal(np.sort(order), np.arange(L)):
        raise ValueError(f"order: expected a permutation of the {L} labels, got {shown(order)}")
    order = order.astype(np.int64)
    forward = np.ascontiguousarray(np.asarray(log_edge, float)[:, order][:, :, order])
    rest = forward.max(axis=0)  # bounds all classes
    starts = 2 ** np.arange((L - 1).bit_length())
    to_z, from_z = _of_rest(rest, starts).T, _of_rest(rest.T, starts).T
    z_to_z = _of_rest(to_z, starts).T
    finite = np.abs(forward[np.isfinite(forward)])
    pairs = (forward, np.swapaxes(forward, 1, 2)), (to_z, from_z), (z_to_z, z_to_z.T)
    tables = (np.ascontiguousarray(np.stack(pair)) for pair in pairs)  # one layout: compiled once
    return StaggeredTables(order, *tables, np.array([finite.max(initial=0.0)]), int(by_column))


def _degenerate(scores, size, axis):
    """The first `size` scores along an axis, and the score of z: the largest of the others, or -inf."""
    active, rest = np.split(scores, [size], axis)
    return np.concatenate([active, rest.max(axis, keepdims=True, initial=-np.inf)], axis)


def staggered_decode(log_node, log_edge, order):
    """(score, path, sweeps) of one sequence, not empty, by the steps of `staggered_many`.

    log_node : (T, L). log_edge : (L, L), one class. order : int (L,), labels by falling frequency.
    delta[0] is over all nodes, delta[1] over those that are not z. Source: docs/SPEC.md, C.4 and C.5.
    """
    node, edge = log_node[:, order], log_edge[order][:, order]
    (T, L), size = node.shape, 1
    path = np.zeros(T, int)  # greedy: the first lower bound
    path[0], low = node[0].argmax(), node[0].max()
    for t in range(1, T):
        v = low + edge[path[t - 1]] + node[t]
        path[t], low = v.argmax(), v.max()
    bound, alive = np.full((2, T, 2), np.inf), np.full((T, 2), True)
    for sweep in itertools.count(1):
        z_node, z_edge = _degenerate(node, size, 1), _degenerate(_degenerate(edge, size, 0), size, 1)
        d = (sweep - 1) % 2
        columns = range(T) if d == 0 else range(T - 1, -1, -1)
        v, back = np.zeros((2, size + 1, size + 1)), np.zeros((T, 2, size + 1), int)
        for t in columns:
            back[t], bound[d, t] = v.argmax(1), v[0].max(0)
            with np.errstate(invalid="ignore"):  # -inf + inf is NaN, which is below everything: pruned
                alive[t] &= bound[:, t].sum(0) + z_node[t] >= low - 1e-9 * max(1.0, abs(low))
            delta = np.where(alive[t], v.max(1) + z_node[t], -np.inf)
            delta[1, size] = -np.inf
            v = delta[:, :, None] + (z_edge if d == 0 else z_edge.T)
        if delta[1].max() > low:
            low, y = delta[1].max(), delta[1].argmax()
            for t in reversed(columns):
                path[t], y = y, back[t, 1, y]
        if delta[0].max() <= low:
            return low, order[path] if low > -np.inf else 0 * path, sweep
        new = min(2 * size, L)
        counts = np.append(np.ones(size, int), new - size + 1)  # new labels take over the bounds of z
        bound, alive, size = bound.repeat(counts, 2), alive.repeat(counts, 1), new
