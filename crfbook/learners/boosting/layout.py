"""Arrays of boosting: who holds which feature, the extremes of every feature,
and the state that rounds change.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from crfbook.chain.token_layout import used_classes
from crfbook.data.constraints import Bounds, bounds_of
from crfbook.data.corpus import offsets, owners, ragged_index
from crfbook.data.features import row_offsets
from crfbook.learners.boosting.selection import BLOCK, edge_extremes, node_extremes


class BoostData(NamedTuple):
    """Corpus and features as the kernels read them (S sequences, N tokens, K classes, F features,
    Q label pairs, R rows).
    """

    seq_ptr: np.ndarray  # int64 (S+1,)
    labels: np.ndarray  # int32 (N,)
    log_weight: np.ndarray  # (S,)
    attr_ptr: np.ndarray  # int64 (N+1,): attributes of a token, each at most once
    attr_idx: np.ndarray  # int32 (nnz,)
    attr_val: np.ndarray  # float64 (nnz,), or (0,): all ones
    bounds: Bounds
    label_set: np.ndarray  # int32 (N,), or (0,): every token may have every label
    edge_class: np.ndarray  # int32 (N,)
    class_ptr: np.ndarray  # int64 (K+1,)
    class_attr: np.ndarray  # int32
    node_ptr: np.ndarray  # int64 (A+1,)
    node_label: np.ndarray  # int32 (n_node,)
    edge_ptr: np.ndarray  # int64 (B+1,)
    edge_pair: np.ndarray  # int32 (n_edge,): number of its label pair, among those that have a weight
    pair_prev: np.ndarray  # int32 (Q,): these pairs
    pair_next: np.ndarray  # int32 (Q,)
    row_ptr: np.ndarray  # int64 (S+1,): rows of a sequence, one for each edge class that it uses
    row_class: np.ndarray  # int32 (R,)
    slot: np.ndarray  # int32 (F,): where the sum of a feature stands


class BoostIndex(NamedTuple):
    """From features to sequences, and the groups of features with equal extremes (G groups,
    E and E' pairs).
    """

    entry_ptr: np.ndarray  # int64 (A+1,): pairs (attribute, sequence)
    entry_seq: np.ndarray  # int32 (E,)
    item_ptr: np.ndarray  # int64 (E+1,): occurrences of a pair
    item_token: np.ndarray  # int32 (nnz,)
    item_val: np.ndarray  # float64 (nnz,), or (0,): all ones
    edge_entry_ptr: np.ndarray  # int64 (B+1,): pairs (edge attribute, sequence)
    edge_entry_seq: np.ndarray  # int32 (E',)
    entry_same: np.ndarray  # int32 (E',): largest count of (y, y)
    entry_other: np.ndarray  # int32 (E',): largest count of (yp, y), yp != y
    low: np.ndarray  # (F,): smallest count minus gold count, over sequences and labellings
    high: np.ndarray  # (F,): largest
    most: np.ndarray  # (F,): largest gain, see selection.py
    group_ptr: np.ndarray  # int64 (G+1,): blocks of slots of a group
    group_low: np.ndarray  # (G,)
    group_high: np.ndarray  # (G,)
    slot_feature: np.ndarray  # int64 (n,): feature of a slot, -1: padding


class BoostState(NamedTuple):
    """What rounds change. Units: sums and cells are multiples of e^{log_ref}."""

    w: np.ndarray  # (F,)
    log_node: np.ndarray  # (N, L): node scores; of the sequences that are awake
    log_edge: np.ndarray  # (K, L, L)
    cell: np.ndarray  # (N, L): what a token added to the sums of its attributes, g |p_node - gold|
    edge_cell: np.ndarray  # (R, Q, 2): what a row added to edge_sum
    edge_sum: np.ndarray  # (K, Q, 2)
    sums: np.ndarray  # (n, 2): P and Q of selection.py, by slot; dL/dw_k is their difference
    stale: np.ndarray  # uint8 (n / BLOCK,): the extremes of the block are to be found again
    block_high: np.ndarray  # (n / BLOCK,): largest dL/dw_k; or the largest decrease
    block_low: np.ndarray  # (n / BLOCK,): smallest
    block_slot: np.ndarray  # int64 (n / BLOCK,): where the largest decrease is
    log_mass: np.ndarray  # (S,): log of the loss of a sequence, as of its last visit
    mass: np.ndarray  # (S,): that loss, in units of e^{log_ref}; 0 for those asleep
    asleep: np.ndarray  # uint8 (S,): left out, as its loss is negligible
    ceiling: np.ndarray  # (S,): asleep: bound on log(weight / p) now; awake: -inf
    touched: np.ndarray  # int64 (S,): sequences to be visited
    parts: np.ndarray  # (6, S): work
    # (5,): log_ref, total loss, drift, share (rounds.py), loss at which rounding rules
    number: np.ndarray
    # int64 (4,): visits and tokens so far (they only grow), rounds done, rounds that are given
    count: np.ndarray


def lay_out_boosting(corpus, features, enclosed, constraints=None):
    """(BoostData, BoostIndex) of a corpus. Features with low < high may take steps; if `enclosed`, only those
    with low < 0 < high, whose best step is finite.

    Raises ValueError for edge attributes or attributes beyond the feature set. Cost: O(nnz log nnz).
    """
    L, limited = features.n_labels, constraints is not None and constraints.label_sets is not None
    by_token, by_attr = _occurrences(corpus, features.n_attrs)
    with np.errstate(divide="ignore"):
        tokens = corpus.seq_ptr, corpus.labels, np.log(corpus.weights)
    items = by_token.indptr.astype(np.int64), by_token.indices.astype(np.int32), _values(by_token)
    bounds = bounds_of(constraints, L), corpus.label_set if limited else corpus.label_set[:0]
    classes = corpus.edge_class, corpus.class_ptr, corpus.class_attr
    pair, edge_pair = np.unique(features.edge_pair, return_inverse=True)
    weights = features.node_ptr, features.node_label, features.edge_ptr, edge_pair.astype(np.int32)
    pairs = (pair // L).astype(np.int32), (pair % L).astype(np.int32)
    slot = np.zeros(features.n_features, np.int32)
    data = BoostData(*tokens, *items, *bounds, *classes, *weights, *pairs, *used_classes(corpus), slot)
    seq_of = corpus.sequence
    holders = *_entries(by_attr.indptr, seq_of[by_attr.indices]), by_attr.indices.astype(np.int32)
    extremes, nowhere = np.zeros((3, features.n_features)), np.zeros(0, np.int64)
    groups = nowhere, np.zeros(0), np.zeros(0), nowhere
    edges = _edge_entries(corpus, seq_of, features.n_edge_attrs)
    index = BoostIndex(*holders, _values(by_attr), *edges, *extremes, *groups)
    node_extremes(data, index, np.zeros(L))
    edge_extremes(data, index, np.zeros((L, L)))
    index.most[: features.n_node] = index.high[: features.n_node]
    usable = (index.low < 0.0) & (index.high > 0.0) if enclosed else index.low < index.high
    slot[:], groups = _groups(index.low, index.high, usable)
    return data, index._replace(**groups)


def _occurrences(corpus, n_attrs):
    """Attributes as a sparse matrix, by token and by attribute; what occurs twice at a token is added up."""
    if corpus.attr_idx.size and corpus.attr_idx.max() >= n_attrs:
        raise ValueError(f"attribute ids: expected 0..{n_attrs - 1}, got {corpus.attr_idx.max()}")
    items = corpus.values, corpus.attr_idx, corpus.attr_ptr
    by_token = csr_matrix(items, shape=(corpus.n_tokens, n_attrs), copy=True)
    by_token.sum_duplicates()
    return by_token, by_token.tocsc()


def _values(matrix):
    """Its entries, or (0,) if all are one."""
    return matrix.data if (matrix.data != 1.0).any() else np.zeros(0)


def _entries(ptr, item_seq):
    """Runs of equal sequence inside each row of a ragged array: pointers (rows+1,), sequence of a run,
    pointers of runs.
    """
    begins = np.ones(len(item_seq), bool)
    begins[1:] = item_seq[1:] != item_seq[:-1]
    starts = ptr[:-1]
    begins[starts[starts < len(item_seq)]] = True
    first = np.flatnonzero(begins)
    entry_ptr = np.searchsorted(first, ptr).astype(np.int64)
    return entry_ptr, item_seq[first].astype(np.int32), np.append(first, len(item_seq)).astype(np.int64)


def _edge_entries(corpus, seq_of, n_edge_attrs):
    """(edge_entry_ptr, edge_entry_seq, entry_same, entry_other);
    tokens without a predecessor do not count.
    """
    inner = corpus.inner
    place, ptr = ragged_index(corpus.class_ptr, corpus.edge_class[inner])
    attr, token = corpus.class_attr[place].astype(np.int64), inner[owners(ptr)]
    if attr.size and attr.max() >= n_edge_attrs:
        raise ValueError(f"edge attribute ids: expected 0..{n_edge_attrs - 1}, got {attr.max()}")
    order = np.argsort(attr, kind="stable")
    attr, token = attr[order], token[order]
    entry_ptr, entry_seq, item_ptr = _entries(row_offsets(attr, n_edge_attrs), seq_of[token])
    same = np.diff(item_ptr)
    # Of a run of n neighbouring tokens, (n + 1) // 2 can carry one pair of different labels.
    begins = np.ones(len(token), bool)
    begins[1:] = token[1:] != token[:-1] + 1
    begins[item_ptr[:-1]] = True
    run = np.flatnonzero(begins)
    halves = (np.diff(np.append(run, len(token))) + 1) // 2
    other = np.add.reduceat(halves, np.searchsorted(run, item_ptr[:-1])) if len(run) else halves
    return entry_ptr, entry_seq, same.astype(np.int32), other.astype(np.int32)


def _groups(low, high, usable):
    """slot (F,) and the fields of a `BoostIndex` on groups: usable features sorted by (low, high, number).

    Every group begins a new block; features that may not be used share the slots of a block that is in no
    group.
    """
    order = np.lexsort((high, low))
    order = order[usable[order]]
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(low[order]) != 0.0) | (np.diff(high[order]) != 0.0)
    first = np.flatnonzero(begins)
    size = np.diff(np.append(first, len(order)))
    group_ptr = offsets(-(-size // BLOCK))
    place = np.repeat(group_ptr[:-1] * BLOCK - first, size) + np.arange(len(order))
    slot = np.full(len(low), group_ptr[-1] * BLOCK, np.int32)
    slot[order] = place
    slot_feature = np.full((group_ptr[-1] + 1) * BLOCK, -1, np.int64)
    slot_feature[place] = order
    ends = {"group_low": low[order[first]], "group_high": high[order[first]]}
    return slot, {"group_ptr": group_ptr, "slot_feature": slot_feature} | ends


def state_bytes(corpus, features):
    """Bytes of the arrays that grow: two tables of marginals per token,
    two rows of label pairs per sequence and edge class.
    """
    pairs = len(np.unique(features.edge_pair))
    n_rows = min(corpus.n_tokens, corpus.n_sequences * corpus.n_classes)
    return (
        16 * corpus.n_tokens * features.n_labels
        + 16 * n_rows * pairs
        + 20 * len(corpus.attr_idx)
        + 40 * features.n_features
    )


def make_state(data, index, w, n_labels, n_classes):
    """`BoostState` with everything asleep and no sum yet."""
    S, N = len(data.seq_ptr) - 1, len(data.labels)
    n_pairs, n_slots = len(data.pair_prev), len(index.slot_feature)
    n_blocks, n_rows, zeros = n_slots // BLOCK, len(data.row_class), np.zeros
    tables = zeros((N, n_labels)), zeros((n_classes, n_labels, n_labels)), zeros((N, n_labels))
    sums = zeros((n_rows, n_pairs, 2)), zeros((n_classes, n_pairs, 2)), zeros((n_slots, 2))
    blocks = np.ones(n_blocks, np.uint8), *zeros((2, n_blocks)), zeros(n_blocks, np.int64)
    losses = np.full(S, -np.inf), zeros(S), np.ones(S, np.uint8), np.full(S, -np.inf)
    work, counters = (zeros(S, np.int64), zeros((6, S))), (zeros(5), zeros(4, np.int64))
    return BoostState(w, *tables, *sums, *blocks, *losses, *work, *counters)
