"""Sparse transitions: a base that all classes share, and the label pairs in which each class differs from it.

They are merged from the weights of edge attributes, without a table (K, L, L): memory grows with the weights
that are not zero. The weights of edge attribute b > 0 that are not zero are attr_code,
attr_log[attr_ptr[b] : attr_ptr[b + 1]], code = previous * L + next, rising. Attribute 0, plain transitions,
and hard constraints are the base (M, M). With neither of them the base is 1 everywhere, and has shape (0, 0).
The NamedTuples `active` (ActiveEdges), `edges` (SparseEdges) and `scores` (SparseScores) list their arrays
with shapes. Source: Sokolovska et al. (2010), section 3.2.
"""

from typing import NamedTuple

import numpy as np

from crfbook._checks import number
from crfbook._jit import kernel
from crfbook.chain.packing import padded_bounds
from crfbook.chain.sparse.default import BLOCK_CELLS
from crfbook.chain.vector_math import exp_table
from crfbook.data.constraints import Bounds
from crfbook.data.corpus import offsets, owners, ragged_index
from crfbook.data.features import row_offsets, select


@kernel
def count_entries(active, stamp_buf, count):
    """count[k] = how many label pairs have a weight in some attribute b > 0 of class k.

    This is the size of the union of their supports.

    Arguments:
        active : an `ActiveEdges`
    Work:
        stamp_buf : int64 (L*L,), all -1
    Out:
        count : int64 (K,)
    Cost: one step for each weight of each class.
    Source: Sokolovska et al. (2010), section 3.2.
    """
    for k in range(count.size):
        count[k] = 0
        for i in range(active.class_ptr[k], active.class_ptr[k + 1]):
            b = active.class_attr[i]
            if b == 0 or b >= active.attr_ptr.size - 1:
                continue
            for j in range(active.attr_ptr[b], active.attr_ptr[b + 1]):
                count[k] += stamp_buf[active.attr_code[j]] != k
                stamp_buf[active.attr_code[j]] = k


@kernel
def sort_touched(touched, n, stamp, mark):
    """Put touched[:n], the positions of stamp that hold mark, into rising order.

    A few are sorted; for many, `stamp` is searched again.

    Arguments:
        touched : uint32 (m,), changed
        n : how many positions
        stamp : int64 (m,)
        mark : number that says: touched
    Cost: n log n, or m.
    Source: chapter 06.
    """
    if n * 32 < stamp.size:
        touched[:n].sort()
        return
    i = 0
    for code in range(stamp.size):
        if stamp[code] == mark:
            touched[i] = code
            i += 1


@kernel
def open_table(base, n_labels, table):
    """table = base, or 1 for the L labels and 0 for padding if there is no base.

    Arguments:
        base : (M, M) or (0, 0)
        n_labels : L
    Out:
        table : (M, M)
    Cost: M^2.
    Source: Sokolovska et al. (2010), eq. (9).
    """
    for yp in range(table.shape[0]):
        for y in range(table.shape[1]):
            if base.size:
                table[yp, y] = base[yp, y]
            else:
                table[yp, y] = 1.0 if yp < n_labels and y < n_labels else 0.0


@kernel
def merge_weights(k, active, opening, stamp_buf, touched_buf, pair_buf):
    """pair_buf[code] = opening + sum_b lam[b, code] for every pair of the support of class k.

    Returns how many pairs there are; their codes, rising, are in touched_buf.

    Arguments:
        k : edge class
        active : an `ActiveEdges`
        opening : (M, M) or (0, 0): zeros
    Out:
        touched_buf : uint32 (L*L,)
        pair_buf : (L*L,)
    Work:
        stamp_buf : int64 (L*L,), no k in it
    Cost: one step a weight, and sorting.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    n, L = 0, active.n_labels
    for i in range(active.class_ptr[k], active.class_ptr[k + 1]):
        b = active.class_attr[i]
        if b == 0 or b >= active.attr_ptr.size - 1:
            continue
        for j in range(active.attr_ptr[b], active.attr_ptr[b + 1]):
            code = active.attr_code[j]
            if stamp_buf[code] != k:
                stamp_buf[code] = k
                pair_buf[code] = opening[code // L, code % L] if opening.size else 0.0
                touched_buf[n] = code
                n += 1
            pair_buf[code] += active.attr_log[j]
    sort_touched(touched_buf, n, stamp_buf, k)
    return n


@kernel
def fill_entries(edges, spread, stamp_buf, touched_buf, pair_buf):
    """psi[e] = base[yp,y] exp(sum_b lam[b,yp,y]), gain[e] = psi[e] - base[yp,y] of every pair of a support.

    There is one exponential, of the sum, for any number of attributes: gain = base expm1(sum). A class with
    table_of[k] >= 0 is written as a whole table instead.

    Arguments:
        edges : of which active, base, table_of and entry_ptr are read
    Out:
        its prev, next_label, gain, psi (E,) and table (D, M, M)
        spread : (K,), largest minus smallest of 0 and the sums
    Work:
        stamp_buf : int64 (L*L,), all -1
        touched_buf : uint32 (L*L,)
        pair_buf : (L*L,)
    Cost: one step a weight, an exp an entry.
    Source: Sokolovska et al. (2010), eq. (9).
    """
    zero, L, base = np.empty((0, 0)), edges.active.n_labels, edges.base
    for k in range(edges.table_of.size):
        n = merge_weights(k, edges.active, zero, stamp_buf, touched_buf, pair_buf)
        low, high, e, d = 0.0, 0.0, edges.entry_ptr[k], edges.table_of[k]
        if d >= 0:
            open_table(base, L, edges.table[d])
        for i in range(n):
            code = touched_buf[i]
            v = pair_buf[code]
            low, high = min(low, v), max(high, v)
            yp, y = code // L, code % L
            b, m = base[yp, y] if base.size else 1.0, np.expm1(v)
            p = 1.0 + m if m > -0.5 else np.exp(v)
            if d >= 0:
                edges.table[d, yp, y] = b * p
            else:
                edges.prev[e], edges.next_label[e] = yp, y
                edges.gain[e], edges.psi[e] = b * m, b * p
                e += 1
        spread[k] = high - low


@kernel
def fill_scores(active, log_base, scores, stamp_buf, touched_buf, pair_buf):
    """entry_score[e] = log_base[yp,y] + sum_b lam[b,yp,y] of every pair of the support of a class.

    Terms are added in that order.

    Arguments as in `fill_entries`:
        active : an `ActiveEdges`
        log_base : (M, M) or (0, 0)
        scores : of which entry_ptr is read
    Out:
        its prev, next_label and entry_score (E,)
    Work:
        stamp_buf : (L*L,), all -1
        touched_buf : (L*L,)
        pair_buf : (L*L,)
    Cost: one step a weight.
    Source: Sokolovska et al. (2010), eq. (10).
    """
    L = active.n_labels
    for k in range(scores.entry_ptr.size - 1):
        n = merge_weights(k, active, log_base, stamp_buf, touched_buf, pair_buf)
        for i in range(n):
            e, code = scores.entry_ptr[k] + i, touched_buf[i]
            scores.prev[e], scores.next_label[e], scores.entry_score[e] = code // L, code % L, pair_buf[code]


# nats between potentials of a class; beyond, its sequences are computed in the log domain (MAX_SPREAD / 2)
WIDE = 150.0
# a class with entries in more than this share of all label pairs is kept as a table: a list would be larger
TABLE_SHARE = 0.25
MOST_BOUNDS = 1 << 26  # bounds of dominated labels that a thread keeps, 4 bytes each


class ActiveEdges(NamedTuple):
    """The edge weights that are not zero, without edge attribute 0, and where K classes find them."""

    n_labels: int  # L
    class_ptr: np.ndarray  # int64 (K+1,): edge attributes of class k, as in a Corpus
    class_attr: np.ndarray  # int32
    attr_ptr: np.ndarray  # int64 (B+1,): weights of edge attribute b > 0
    attr_code: np.ndarray  # uint32: previous * L + next, rising
    attr_log: np.ndarray  # the weights


class SparseEdges(NamedTuple):
    """Transition potentials of K classes: base + gain on the support of each; M padded labels, E entries."""

    base: np.ndarray  # (M, M) [previous, next]: exp(log_base - base_max), or (0, 0): 1 everywhere
    base_t: np.ndarray  # its transpose
    log_base: np.ndarray  # (M, M): plain transitions, -inf where forbidden and for padding, or (0, 0)
    base_max: np.ndarray  # (1,)
    edge_spread: np.ndarray  # (1,): largest difference of finite values inside a class that is not wide
    wide: np.ndarray  # uint8 (K,): 1 where differences exceed WIDE
    entry_ptr: np.ndarray  # int64 (K+1,): entries of class k, sorted by (previous, next)
    prev: np.ndarray  # uint32 (E,)
    next_label: np.ndarray  # uint32 (E,)
    gain: np.ndarray  # (E,): psi - base
    psi: np.ndarray  # (E,): base exp(sum of the weights)
    table_of: np.ndarray  # int64 (K,): row of `table` for a class with many entries, or -1
    table: np.ndarray  # (D, M, M) [previous, next]
    table_t: np.ndarray  # (D, M, M): its transposes
    active: ActiveEdges  # what it is made of
    bounds: Bounds  # of M labels


class SparseScores(NamedTuple):
    """Transition scores of K classes for decoding: a base, and the pairs that differ from it (E entries)."""

    # (1, M, M): plain transitions, -inf where forbidden and for padding, or (0, 0, 0): 0 everywhere
    log_base: np.ndarray
    entry_ptr: np.ndarray  # int64 (K+1,)
    prev: np.ndarray  # uint32 (E,)
    next_label: np.ndarray  # uint32 (E,)
    entry_score: np.ndarray  # (E,): the base included


class DefaultScores(NamedTuple):
    """Transition scores of K classes for default.py: 0 but for stored pairs.

    Next labels form G groups, each with the previous labels that may precede it: C of these *cells* in all.
    """

    group: np.ndarray  # int32 (L,): of each next label
    label_ptr: np.ndarray  # int64 (G+1,): next labels of each group
    label: np.ndarray  # int32 (L,)
    member_ptr: np.ndarray  # int64 (G+1,): cells of each group
    member: np.ndarray  # int32 (C,): the previous label of each cell, rising in a group
    row_ptr: np.ndarray  # int64 (K*C+1,): stored pairs of class k and cell c are row k C + c
    next_label: np.ndarray  # int32 (P,): rising in a row
    score: np.ndarray  # (P,)
    max_row: np.ndarray  # (K*C,): the largest of 0 and the scores of a row
    min_row: np.ndarray  # (K*C,): the smallest
    reach: np.ndarray  # (1,): the largest |score|
    bound_ptr: np.ndarray  # int64 (G+1,): the bounds of a class and group are a table of cells times cells


class DefaultEdges(NamedTuple):
    """Transition potentials for lanes.py: 1 but for stored pairs, by previous and by next label."""

    scores: DefaultScores
    gain: np.ndarray  # (P,): exp(score) - 1, in the order of the scores
    column_ptr: np.ndarray  # int64 (L+1,): stored pairs of each next label
    column_place: np.ndarray  # int64 (P,): where they stand in the scores
    column_prev: np.ndarray  # int32 (P,)
    column_gain: np.ndarray  # (P,)
    edge_spread: np.ndarray  # (1,): largest difference of finite scores, 0 among them
    bounds: Bounds  # of M labels


class DefaultSums(NamedTuple):
    """What lanes.py finds for the stored pairs."""

    product: np.ndarray  # (P,): expected counts divided by the potentials
    square: np.ndarray  # (P,): sums of squared marginals, divided by the squares of potentials; or (0,)
    count: np.ndarray  # (P,): expected counts of sequences in the log form


class Tokens(NamedTuple):
    """What default.py reads of a `Corpus`."""

    number: np.ndarray  # int64 (N,): 0, 1, 2, ...
    seq_ptr: np.ndarray
    attr_ptr: np.ndarray
    attr_idx: np.ndarray
    attr_val: np.ndarray
    edge_class: np.ndarray
    label_set: np.ndarray


class NodeLists(NamedTuple):
    """What default.py reads of the weights of attributes, and of hard constraints on single labels."""

    w: np.ndarray  # (F,)
    node_ptr: np.ndarray  # as in a FeatureSet
    node_label: np.ndarray
    dense: np.ndarray  # (H, L): copies of some rows of weights
    dense_of: np.ndarray  # int32 (A',): the copy of attribute a < A', or -1
    start: np.ndarray  # (L,): this and the next three as in `Bounds`
    middle: np.ndarray  # (L,)
    end: np.ndarray  # (L,)
    label_sets: np.ndarray  # (D, L)
    may_overflow: np.ndarray  # bool (1,): sums must be looked at


class DefaultWork(NamedTuple):
    """What one thread writes in default.py."""

    log_node: np.ndarray  # (B, L): of a few tokens
    delta: np.ndarray  # (L,)
    best: np.ndarray  # (L,)
    gathered: np.ndarray  # (L,): delta of the cells of a group
    bound: np.ndarray  # float32 (K * bound_ptr[-1],), or (0,): row extremes in place of bounds
    known: np.ndarray  # uint8 (K*C,): 1 where the bounds of a cell have been made


def default_work(scores, bounds=True):
    """`DefaultWork` of one thread for `DefaultScores`. bounds: False where the scores change all the time."""
    n_labels = len(scores.group)
    n_bounds = len(scores.max_row) // max(1, len(scores.member)) * int(scores.bound_ptr[-1])
    rows = max(1, BLOCK_CELLS // n_labels), n_labels
    bound = np.empty(n_bounds if bounds and n_bounds <= MOST_BOUNDS else 0, np.float32)
    known = np.zeros(len(scores.max_row), np.uint8)
    return DefaultWork(np.empty(rows), *np.empty((3, n_labels)), bound, known)


def active_edges(features, w, class_ptr, class_attr):
    """`ActiveEdges` of the weights w (F,) for the classes of a corpus."""
    first = int(features.edge_ptr[1])
    weights = w[features.n_node :]
    active = first + np.flatnonzero(weights[first:])
    code = features.edge_prev[active].astype(np.uint32) * np.uint32(features.n_labels)
    code += features.edge_next[active].astype(np.uint32)
    attr_ptr = np.searchsorted(active, features.edge_ptr).astype(np.int64)
    return ActiveEdges(features.n_labels, class_ptr, class_attr, attr_ptr, code, weights[active])


def count_supports(active):
    """int64 (K,): number of label pairs with a weight in some attribute of each class but attribute 0."""
    count = np.empty(len(active.class_ptr) - 1, np.int64)
    count_entries(active, np.full(active.n_labels**2, -1), count)
    return count


def _entries(n_entries):
    """(prev, next_label, a value of each), to be filled."""
    return np.empty(n_entries, np.uint32), np.empty(n_entries, np.uint32), np.empty(n_entries)


def _scratch(n_labels):
    """Work arrays of `merge_weights`."""
    return np.full(n_labels**2, -1), np.empty(n_labels**2, np.uint32), np.empty(n_labels**2)


def base_scores(features, w, bounds):
    """log_base (M, M): plain transitions, -inf where forbidden and for padding; (0, 0) if all are 0."""
    n_labels, n_base = features.n_labels, int(features.edge_ptr[1])
    weights = w[features.n_node : features.n_node + n_base]
    if not weights.any() and not bounds.edge[:n_labels, :n_labels].any():
        return np.zeros((0, 0))
    out = bounds.edge.copy()
    out[features.edge_prev[:n_base], features.edge_next[:n_base]] += weights
    return out


def sparse_edges(features, w, class_ptr, class_attr, bounds=None, table_share=TABLE_SHARE):
    """`SparseEdges` of the weights w (F,) for the classes of a corpus. bounds: as in `table_edges`."""
    n_labels, n_classes = features.n_labels, len(class_ptr) - 1
    bounds = padded_bounds(None, n_labels) if bounds is None else bounds
    width = len(bounds.middle)
    log_base = base_scores(features, w, bounds)
    base, base_max, base_spread = exp_table(log_base)
    active = active_edges(features, w, class_ptr, class_attr)
    count = count_supports(active)
    as_table = count > table_share * n_labels**2
    table_of = np.where(as_table, np.cumsum(as_table) - 1, -1)
    entry_ptr = offsets(np.where(as_table, 0, count))
    entries, psi = _entries(int(entry_ptr[-1])), np.empty(int(entry_ptr[-1]))
    table, spread = np.empty((int(as_table.sum()), width, width)), np.empty(n_classes)
    parts = base, np.ascontiguousarray(base.T), log_base, np.array([base_max]), np.empty(1)
    tables = psi, table_of, table, np.empty_like(table)
    wide = np.empty(n_classes, np.uint8)
    edges = SparseEdges(*parts, wide, entry_ptr, *entries, *tables, active, bounds)
    fill_entries(edges, spread, *_scratch(n_labels))
    edges.table_t[:] = table.transpose(0, 2, 1)
    edges.wide[:] = ~(spread + base_spread <= WIDE)
    edges.edge_spread[0] = min(base_spread + spread[edges.wide == 0].max(initial=0.0), WIDE)
    return edges


def class_scores(edges, k):
    """(M, M): scores of the transitions of class k of a `SparseEdges`, -inf for padding labels."""
    active, width = edges.active, len(edges.bounds.middle)
    if edges.log_base.size:
        table = edges.log_base.copy()
    else:
        table = np.full((width, width), -np.inf)
        table[: active.n_labels, : active.n_labels] = 0.0
    for b in active.class_attr[active.class_ptr[k] : active.class_ptr[k + 1]]:
        if 0 < b < len(active.attr_ptr) - 1:
            some = slice(active.attr_ptr[b], active.attr_ptr[b + 1])
            table[np.divmod(active.attr_code[some], active.n_labels)] += active.attr_log[some]
    return table


def sparse_scores(features, w, class_ptr, class_attr, bounds):
    """`SparseScores` of the weights w (F,) for the classes of a corpus."""
    log_base, active = base_scores(features, w, bounds), active_edges(features, w, class_ptr, class_attr)
    entry_ptr = offsets(count_supports(active))
    base = log_base.reshape(1 if log_base.size else 0, *log_base.shape)
    scores = SparseScores(base, entry_ptr, *_entries(int(entry_ptr[-1])))
    fill_scores(active, log_base, scores, *_scratch(features.n_labels))
    return scores


def default_scores(features, w, class_ptr, class_attr, bounds):
    """`DefaultScores` of the weights w (F,) for the classes of a corpus."""
    n_labels, n_classes = features.n_labels, len(class_ptr) - 1
    allowed = bounds.edge[:n_labels, :n_labels] == 0.0
    every = np.zeros(n_labels, np.int64), allowed[:, :1]
    columns = every if allowed.all() else distinct_columns(allowed)
    group, member_of = columns[0], columns[1].T  # (L,), (G, L)
    cell_of = np.where(member_of, np.cumsum(member_of).reshape(member_of.shape) - 1, -1)
    member_ptr = offsets(member_of.sum(axis=1))
    cell, pair_score, class_of = [], [], []
    for k in range(n_classes):
        attrs = class_attr[class_ptr[k] : class_ptr[k + 1]]
        items, _ = ragged_index(features.edge_ptr, attrs[attrs < features.n_edge_attrs])
        code, place = np.unique(features.edge_pair[items], return_inverse=True)
        total = np.bincount(place, w[features.n_node + items], minlength=len(code))
        prev, following = np.divmod(code[total != 0.0], n_labels)
        where = cell_of[group[following], prev]
        order = np.argsort(where, kind="stable")[np.count_nonzero(where < 0) :]  # forbidden ones drop out
        cell.append(where[order] + k * member_ptr[-1])
        class_of.append(following[order])
        pair_score.append(total[total != 0.0][order])
    # where there is no weight bincount makes integers, for which kernels would be compiled again
    rows, score = np.concatenate(cell), np.concatenate(pair_score).astype(np.float64)
    row_ptr = np.searchsorted(rows, np.arange(n_classes * member_ptr[-1] + 1)).astype(np.int64)
    high, low = np.zeros((2, len(row_ptr) - 1))
    np.maximum.at(high, rows, score)
    np.minimum.at(low, rows, score)
    by_group = np.argsort(group, kind="stable").astype(np.int32)
    labels = group.astype(np.int32), row_offsets(group[by_group], len(member_of)), by_group
    cells = member_ptr, np.nonzero(member_of)[1].astype(np.int32)
    pairs = row_ptr, np.concatenate(class_of).astype(np.int32), score, high, low
    reach = np.array([np.abs(score).max(initial=0.0)])
    return DefaultScores(*labels, *cells, *pairs, reach, offsets(np.diff(member_ptr) ** 2))


def default_edges(scores, bounds):
    """`DefaultEdges` of `DefaultScores` of one class. bounds: of M labels."""
    n_labels, place = len(scores.group), np.argsort(scores.next_label, kind="stable")
    column_ptr = row_offsets(scores.next_label[place], n_labels)
    prev = scores.member[owners(scores.row_ptr)[place]]
    columns = column_ptr, place, prev, np.empty(len(place))
    return with_scores(DefaultEdges(scores, columns[-1], *columns, np.empty(1), bounds), scores.score)


def with_scores(edges, score):
    """`DefaultEdges` with other scores (P,) of the same stored pairs.

    max_row and min_row, which only decoding reads, stay as they were.
    """
    with np.errstate(over="ignore"):
        gain = np.expm1(score)
    high, low = score.max(initial=0.0), score.min(initial=0.0)
    return edges._replace(
        scores=edges.scores._replace(score=score), gain=gain, column_gain=gain[edges.column_place],
        edge_spread=np.array([high - low]),
    )  # fmt: skip


def distinct_columns(table):
    """(which int64 (n,), columns (m, G)) of a bool table (m, n): equal columns once."""
    packed = np.ascontiguousarray(np.packbits(table, axis=0).T)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return which.astype(np.int64), table[:, first]


def sparsify(features, w, threshold=0.0):
    """(FeatureSet, weights) of the weights with |w| > threshold alone.

    Scores stay the same if the threshold is 0. With a larger one this is the a-posteriori selection of
    Sokolovska et al. (2010), section 6.3: no weight is trained again.
    """
    w = np.asarray(w, dtype=np.float64)
    if w.shape != (features.n_features,):
        raise ValueError(f"weights: expected shape ({features.n_features},), got {w.shape}")
    keep = np.abs(w) > number("threshold", threshold)
    return select(features, keep), w[keep]
