"""Layout of a corpus for learners that visit one sequence at a time, and their work arrays.

The weights become one vector of cells (C,). First come dense rows of M cells for frequent attributes, then
the flat vector w (F,), in which the places of those attributes stay 0. Every weight stands in exactly one
cell, so an update writes to one place. `cells_of` and `weights_of` translate. Entries, rows and cells, stand
in the order of the tokens. Where labels are many and few pairs of them have a weight, cells are the weights
themselves, and a `ListLayout` says where they are.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.packing import entries_of, worth_a_row
from crfbook.chain.sparse.potentials import DefaultScores, DefaultWork, default_scores, default_work
from crfbook.data.constraints import Bounds, bounds_of
from crfbook.data.corpus import offsets, owners, place_of, stretches
from crfbook.data.features import distinct_keys, row_offsets


class OnlineLayout(NamedTuple):
    """What the kernels read (S sequences, N tokens, K edge classes, H dense rows, M padded labels)."""

    seq_ptr: np.ndarray  # int64 (S+1,)
    labels: np.ndarray  # int32 (N,)
    weight: np.ndarray  # (S,)
    edge_class: np.ndarray  # int32 (N,)
    used_ptr: np.ndarray  # int64 (S+1,)
    used: np.ndarray  # int32: the edge classes that sequence s uses are used[used_ptr[s]:used_ptr[s+1]]
    class_ptr: np.ndarray  # int64 (K+1,)
    class_attr: np.ndarray  # int32: edge attributes of class k, those that have weights
    edge_ptr: np.ndarray  # int64 (B+1,)
    edge_cell: np.ndarray  # int32 (n_edge,): previous * M + next of each edge weight, the last ones of theta
    exists: np.ndarray  # uint8 (H, M): 1 where a dense cell is a weight
    dense_ptr: np.ndarray  # int64 (N+1,): entries of token t
    dense_id: np.ndarray  # int32 (R,): dense row
    dense_row: np.ndarray  # int32 (R,): position of the token in its sequence
    dense_val: np.ndarray  # float64 (R,), or (0,): all ones
    pair_ptr: np.ndarray  # int64 (N+1,)
    pair_weight: np.ndarray  # int32 (P,): index into w
    pair_cell: np.ndarray  # int32 (P,): position in the sequence * M + label
    pair_val: np.ndarray  # float64 (P,), or (0,)
    bounds: Bounds  # of M labels
    label_set: np.ndarray  # int32 (N,), or (0,): every token may have every label


class OnlineWork(NamedTuple):
    """Work arrays of online learners (T = the longest sequence, n_max = the longest list of differences)."""

    log_node: np.ndarray  # (T, M)
    log_edge: np.ndarray  # (K, M, M) [class, previous, next]
    log_edge_t: np.ndarray  # (K, M, M) [class, next, previous]: a view of it
    known: np.ndarray  # uint8 (K,): 1 where log_edge is that of the present weights
    path: np.ndarray  # int32 (T,)
    delta: np.ndarray  # (T, M)
    best: np.ndarray  # (T, M)
    rows: np.ndarray  # int64 (M,)
    cell: np.ndarray  # int64 (n_max,)
    amount: np.ndarray  # (n_max,)
    slot: np.ndarray  # int32 (C,): zeros
    # None where there are none: another type, so that kernels compile no code for them
    lists: "ListLayout | None"
    staggered: tuple | None  # see learners/online/staggered.py


class ListLayout(NamedTuple):
    """Weights and transitions where they stand in the FeatureSet, for many labels (P stored pairs)."""

    number: np.ndarray  # int64 (N,): 0, 1, 2, ...
    attr_ptr: np.ndarray  # this and the next two as in a Corpus
    attr_idx: np.ndarray
    attr_val: np.ndarray
    node_ptr: np.ndarray  # this and the next as in a FeatureSet
    node_label: np.ndarray
    dense: np.ndarray  # (0, L): no copies of rows, weights change
    dense_of: np.ndarray  # int32 (0,)
    place: np.ndarray  # int64 (n_edge,): stored pair of each transition weight, -1: forbidden
    row: np.ndarray  # int64 (P,): row of each stored pair
    scores: DefaultScores
    work: DefaultWork


class Cells(NamedTuple):
    """Cells of weights: w[weight[i]] of frequent attributes is cell[i], any other w[k] is n_dense + k."""

    n_dense: int  # H M
    weight: np.ndarray  # int64 (n,)
    cell: np.ndarray  # int64 (n,)


def row_width(n_labels):
    """M: labels padded to 4. Padding to 8, as in batches, takes a quarter longer at 9 labels, as sequences
    come one by one.
    """
    return -(-n_labels // 4) * 4


def cells_of(cells, w):
    """The vector of cells (C,) that holds w (F,)."""
    out = np.concatenate([np.zeros(cells.n_dense), w])
    out[cells.cell] = w[cells.weight]
    out[cells.n_dense + cells.weight] = 0.0
    return out


def weights_of(cells, vector):
    """The weights (F,) that a vector of cells (C,) holds, as a new array."""
    w = vector[cells.n_dense :].copy()
    w[cells.weight] = vector[cells.cell]
    return w


def dense_attributes(corpus, features):
    """(worth, count), both (A,): which attributes get a dense row of weights, how often each occurs."""
    count = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[: features.n_attrs]
    if features.n_node == features.n_attrs * features.n_labels:
        return np.ones(features.n_attrs, bool), count  # all weights exist: lists would be longer than rows
    return worth_a_row(features, count), count


def lay_out_online(corpus, features, constraints):
    """(OnlineLayout, Cells) of a corpus. Cost O(R + P); memory 8 bytes an entry, and 9 H M."""
    width = row_width(features.n_labels)
    worth, count = dense_attributes(corpus, features)
    attr = np.flatnonzero(worth)
    cells, exists = _cells(features, attr, width)
    members = place_of(attr, features.n_attrs), np.arange(len(attr) + 1), attr
    rows = entries_of(corpus, features, np.arange(corpus.n_tokens), corpus.position, members, width)
    entries = rows.dense_ptr, *rows[3:6], rows.pair_ptr, *rows[8:11]
    return _layout(corpus, features, constraints, exists, entries), cells


def _layout(corpus, features, constraints, exists, entries):
    """`OnlineLayout` of these cells and entries of tokens."""
    width = exists.shape[1]
    tokens = corpus.seq_ptr, corpus.labels, corpus.weights, corpus.edge_class
    known = corpus.class_attr < features.n_edge_attrs
    classes = *used_classes(corpus), offsets(known)[corpus.class_ptr], corpus.class_attr[known]
    edges = features.edge_ptr, (features.edge_prev * width + features.edge_next).astype(np.int32)
    bounds = bounds_of(constraints, features.n_labels, width), corpus.label_set
    return OnlineLayout(*tokens, *classes, *edges, exists, *entries, *bounds)


def _cells(features, attr, width):
    """`Cells` of the dense rows of attributes `attr`, and the table of those that are weights."""
    sizes = np.diff(features.node_ptr)[attr]
    weight = stretches(features.node_ptr[attr], sizes)
    cell = np.repeat(np.arange(len(attr)), sizes) * width + features.node_label[weight]
    exists = np.zeros((len(attr), width), np.uint8)
    exists.reshape(-1)[cell] = 1
    return Cells(exists.size, weight, cell), exists


MANY_LABELS = 100  # from so many on lists are worth it, if few pairs have a weight
FEW_PAIRS = 0.25  # of all


def worth_lists(corpus, features):
    """Are lists faster for online learners than dense rows and tables of transitions?"""
    few = features.n_edge <= FEW_PAIRS * features.n_labels**2
    return features.n_labels >= MANY_LABELS and few and corpus.n_classes == 1 and features.n_edge_attrs == 1


def lay_out_lists(corpus, features, constraints):
    """(OnlineLayout, Cells, ListLayout) of a corpus that is read as it stands: cells are weights. Memory
    grows with neither occurrences times weights nor pairs of labels. One edge class.
    """
    none, nothing = np.zeros(corpus.n_tokens + 1, np.int64), np.zeros(0, np.int32)
    entries = none, nothing, nothing, np.zeros(0), none, nothing, nothing, np.zeros(0)
    exists = np.zeros((0, features.n_labels), np.uint8)
    layout = _layout(corpus, features, constraints, exists, entries)
    numbers = np.concatenate([np.zeros(features.n_node), np.arange(1, features.n_edge + 1)])
    scores = default_scores(features, numbers, corpus.class_ptr, corpus.class_attr, layout.bounds)
    place = np.full(features.n_edge, -1)
    place[scores.score.astype(np.int64) - 1] = np.arange(len(scores.score))
    own = corpus.attr_ptr, corpus.attr_idx, corpus.attr_val, features.node_ptr, features.node_label
    pairs = place, owners(scores.row_ptr), scores, default_work(scores, bounds=False)
    lists = ListLayout(np.arange(corpus.n_tokens), *own, np.zeros((0, features.n_labels)), nothing, *pairs)
    return layout, Cells(0, np.zeros(0, np.int64), np.zeros(0, np.int64)), lists


def online_work(layout, n_cells, lists=None, staggered=None):
    """`OnlineWork` for the sequences of a layout and C = n_cells.

    lists : of `lay_out_lists`, or None.
    staggered : as in `OnlineWork`.
    """
    width, n_classes = layout.exists.shape[1], len(layout.class_ptr) - 1
    longest = max(1, int(np.diff(layout.seq_ptr).max(initial=0)))
    starts = layout.dense_ptr, layout.pair_ptr
    if lists is not None:
        starts = lists.attr_ptr, layout.pair_ptr
    dense, pairs = (int(np.diff(ptr[layout.seq_ptr]).max(initial=0)) for ptr in starts)
    n_max = 2 * dense + pairs + 2 * longest * int(np.diff(layout.class_ptr).max())
    log_node = np.zeros((longest, width))
    delta, best = np.zeros((2, longest if lists is None else 0, width))
    # at least two: the transposes of a single table have another type, and each kernel would compile twice
    log_edge = np.zeros((max(2, n_classes), width, width) if lists is None else (2, 0, 0))
    tables = log_edge, log_edge.transpose(0, 2, 1), np.zeros(n_classes, np.uint8)
    path, rows = np.zeros(longest, np.int32), np.zeros(width, np.int64)
    differences = np.zeros(n_max, np.int64), np.zeros(n_max), np.zeros(n_cells, np.int32)
    arrays = log_node, *tables, path, delta, best, rows, *differences
    return OnlineWork(*arrays, lists, staggered)


class SequenceWork(NamedTuple):
    """Work arrays of the kernels of sequence.py: T = longest sequence, K edge classes."""

    log_node: np.ndarray  # (T, L)
    log_edge: np.ndarray  # (K, L, L)
    p_node: np.ndarray  # (T, L)
    edge_sum: np.ndarray  # (K, L, L)
    psi_node: np.ndarray  # (T, L)
    psi_edge: np.ndarray  # (K, L, L)
    psi_edge_t: np.ndarray  # (K, L, L)
    alpha: np.ndarray  # (T, L)
    beta: np.ndarray  # (T, L)
    scale: np.ndarray  # (T,)
    node_max: np.ndarray  # (T,)
    edge_max: np.ndarray  # (K,)


def sequence_work(corpus, n_labels):
    """`SequenceWork` for the sequences of a corpus."""
    longest, n_classes = max(1, corpus.longest), corpus.n_classes
    # this order of allocation matters: with another one SDCA's passes took a tenth longer
    log_node, p_node, psi_node, alpha, beta = (np.zeros((longest, n_labels)) for _ in range(5))
    tables = (np.zeros((n_classes, n_labels, n_labels)) for _ in range(4))
    log_edge, edge_sum, psi_edge, psi_edge_t = tables
    vectors = np.zeros(longest), np.zeros(longest), np.zeros(n_classes)
    return SequenceWork(
        log_node, log_edge, p_node, edge_sum, psi_node, psi_edge, psi_edge_t, alpha, beta, *vectors
    )


def used_classes(corpus):
    """(used_ptr int64 (S+1,), used int32): the edge classes of the transitions of each sequence, rising."""
    inner, width = corpus.inner, corpus.n_classes
    row = distinct_keys(corpus.sequence[inner] * width + corpus.edge_class[inner])
    return row_offsets(row, corpus.n_sequences, width), (row % width).astype(np.int32)


def epoch_order(seed, epoch, n):
    """The n sequences in the random order of one epoch (int64): a run resumes from (seed, epoch) alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)
