"""Sequences packed by length, so that each time step of many sequences is one matrix product.

A batch holds sequences sorted by falling length. Its rows are "step-major": first the first tokens of all its
sequences, then all second tokens, and so on. Sequences that have ended are missing at the end of a step.
Nothing is padded. The predecessor of row step_ptr[t] + r is row step_ptr[t-1] + r.

This file also has the layout of the rows' weights (`lay_out`), attributes that share one dense row
(`find_bundles`), and a forecast of what an evaluation takes (`forecast`).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from crfbook.chain.forward_backward_batched import group_rows
from crfbook.chain.scores import count_claims, count_layout, fill_layout, find_companions
from crfbook.data.constraints import bounds_of
from crfbook.data.corpus import offsets, owners, place_of, positions
from crfbook.data.features import row_offsets

MAX_SHARDS = 4
BATCH_ROWS = 4096  # time steps wide enough for BLAS, few passes over the weights; more only costs memory
BATCH_BYTES = 1 << 20  # their node scores take about this, several times, or the rows are the fewest
LEAST_ROWS = 1024
# with more of them, batches are MANY_ROWS long: the rows of a step that share a class are computed together
FEW_CLASSES = 32
MANY_ROWS = 32768
STRETCH_ROWS = 8192  # tokens decoded at a time: their rows stay in the processor's cache
STRETCH_BYTES = 1 << 25  # their node scores take about so much at most, unless a single sequence takes more
ENTRY_BYTES = 1 << 29  # entries of a layout, 8 bytes each, take at most this: else lists are read
GRADIENT_BYTES = 1 << 29  # partial gradients, one per shard, take at most this
MIN_COUNT = 16  # tokens of a carrier: its row is filled and collected at every evaluation, and must save more
MAX_COMPANIONS = 32
PASSES = 3  # of `count_claims`: in the first one, pairs that are dropped later block others


def padded(n_labels):
    """Labels padded to whole vector registers (4 doubles): to 8, 9 labels cost a fifth more time."""
    return -(-n_labels // 4) * 4


def padded_bounds(constraints, n_labels):
    """`Bounds` of M labels."""
    return bounds_of(constraints, n_labels, padded(n_labels))


def n_stretches(n_tokens, n_labels):
    """Number of stretches of neighbouring sequences in which a corpus is decoded."""
    rows = max(1, min(STRETCH_ROWS, STRETCH_BYTES // (8 * n_labels)))
    return max(1, int(n_tokens) // rows)


class Groups(NamedTuple):
    """Orders of the rows of each batch that bring equal edge classes together, see `group_rows`."""

    class_start: np.ndarray  # int64 (B, K+1)
    by_class: np.ndarray  # int64 (N,)
    by_step: np.ndarray  # int64 (N,)
    prev_row: np.ndarray  # int64 (N,)


class Packing(NamedTuple):
    """Order of the rows (B batches, S' sequences that are not empty, N tokens); depends on the data only."""

    sequence: np.ndarray  # int64 (S',): sequences in packed order
    slot_ptr: np.ndarray  # int64 (B+1,): sequences of batch b are sequence[slot_ptr[b]:slot_ptr[b+1]]
    row_ptr: np.ndarray  # int64 (B+1,): rows of batch b
    step_start: np.ndarray  # int64 (B+1,): its pointers are step_ptr[step_start[b]:step_start[b+1]]
    step_ptr: np.ndarray  # int64: per batch T+1 pointers, relative to the batch's first row
    row_token: np.ndarray  # int64 (N,): corpus token of each row
    row_class: np.ndarray  # int32 (N,): its edge class
    row_set: np.ndarray  # int32 (N,): its label set; (0,) if every token may have every label
    labels: np.ndarray  # int32 (N,): its gold label
    weight: np.ndarray  # (S',): of the sequences in packed order
    shard_ptr: np.ndarray  # int64 (n_shards+1,): batches of each shard
    groups: Groups | None  # None: there is one edge class, and no form with pairs

    @property
    def n_shards(self):
        return len(self.shard_ptr) - 1

    @property
    def n_batches(self):
        return len(self.slot_ptr) - 1

    def rows(self, b):
        """Slice of the rows of batch b."""
        return slice(self.row_ptr[b], self.row_ptr[b + 1])

    def slots(self, b):
        """Slice of its sequences, in packed order."""
        return slice(self.slot_ptr[b], self.slot_ptr[b + 1])

    def steps(self, b):
        """step_ptr (T+1,) of its time steps, relative to its first row."""
        return self.step_ptr[self.step_start[b] : self.step_start[b + 1]]

    def batches(self, shard):
        """Numbers of the batches of a shard."""
        return range(self.shard_ptr[shard], self.shard_ptr[shard + 1])


def pack(corpus, batch_rows=1024, n_shards=4, grouped=None):
    """Pack a corpus (S sequences, N tokens) into batches of about `batch_rows` rows, and those into shards.

    Smaller corpora get smaller batches, one a shard. A sequence is never cut: one longer than that is a
    batch. Shards hold neighbouring batches with about equal numbers of rows; there may be fewer than asked
    for. Orders by class are made if `grouped`; None: if there are several classes.
    Cost O(N + S log S).
    """
    lengths = corpus.lengths
    sequence = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    lengths = lengths[sequence]
    slot_ptr = _cuts(lengths, min(batch_rows, -(-corpus.n_tokens // n_shards)))
    row_ptr = offsets(lengths)[slot_ptr]
    row_token = np.empty(row_ptr[-1], np.int64)
    steps, step_start = [np.zeros(0, np.int64)], np.zeros(len(slot_ptr), np.int64)
    for b in range(len(slot_ptr) - 1):
        slots = slice(slot_ptr[b], slot_ptr[b + 1])
        step, tokens = step_major(corpus.seq_ptr[sequence[slots]], lengths[slots])
        row_token[row_ptr[b] : row_ptr[b + 1]] = tokens
        steps.append(step)
        step_start[b + 1] = step_start[b] + len(step)
    row_class = corpus.edge_class[row_token]
    grouped = corpus.n_classes > 1 if grouped is None else grouped
    groups = _groups(row_class, row_ptr, steps[1:], corpus.n_classes) if grouped else None
    row_set = corpus.label_set[row_token] if len(corpus.label_set) else corpus.label_set
    order = sequence, slot_ptr, row_ptr, step_start, np.concatenate(steps), row_token
    gold = corpus.labels[row_token], corpus.weights[sequence]
    return Packing(*order, row_class, row_set, *gold, _shards(row_ptr, n_shards), groups)


def step_major(start, lengths):
    """(step_ptr (T+1,), token of each row) of sequences with these first tokens; lengths fall from T."""
    alive = np.searchsorted(-lengths, -np.arange(lengths[0]))  # sequences longer than t
    step = offsets(alive)
    t = owners(step)
    return step, start[np.arange(step[-1]) - step[t]] + t


def with_groups(packing, n_classes):
    """The packing with orders by class, which forms with pairs need also where there is one class."""
    if packing.groups:
        return packing
    steps = [packing.steps(b) for b in range(packing.n_batches)]
    return packing._replace(groups=_groups(packing.row_class, packing.row_ptr, steps, n_classes))


def _groups(row_class, row_ptr, steps, n_classes):
    """The `Groups` of these batches."""
    class_start = np.zeros((len(steps), n_classes + 1), np.int64)
    orders = np.zeros((3, len(row_class)), np.int64)
    for b, step in enumerate(steps):
        rows = slice(row_ptr[b], row_ptr[b + 1])
        group_rows(row_class[rows], step, class_start[b], *orders[:, rows])
    return Groups(class_start, *orders)


def _cuts(lengths, batch_rows):
    """Cut a list of falling lengths into neighbouring groups of about `batch_rows` tokens; pointers."""
    cuts, rows = [0], 0
    for i, length in enumerate(lengths):
        if rows and rows + length > batch_rows:
            cuts.append(i)
            rows = 0
        rows += length
    return np.array(cuts + [len(lengths)] * (len(lengths) > 0), np.int64)


def _shards(row_ptr, n_shards):
    """Cut batches into at most `n_shards` neighbouring groups with about equal numbers of rows."""
    wanted = row_ptr[-1] * np.arange(1, n_shards) / n_shards
    inner = np.searchsorted(row_ptr, wanted)
    return np.unique(np.concatenate([[0], inner, [len(row_ptr) - 1]])).astype(np.int64)


class TokenLists(NamedTuple):
    """Attributes of tokens as the corpus has them, where the entries of a `Layout` would exceed memory."""

    row_token: np.ndarray  # int64 (N,): corpus token of each packed row
    attr_ptr: np.ndarray  # this and the next four as in a Corpus and a FeatureSet
    attr_idx: np.ndarray
    attr_val: np.ndarray
    node_ptr: np.ndarray
    node_label: np.ndarray
    dense_of: np.ndarray  # int32 (A,): dense row of an attribute, or -1


class Layout(NamedTuple):
    """Where the attributes of the packed rows find their weights (H dense rows, R and P entries)."""

    # int64 (H+1,): attributes that share dense row h: member[member_ptr[h]:member_ptr[h+1]]
    member_ptr: np.ndarray
    member: np.ndarray  # int64
    # int64 (B+1,): entries of batch b, first those of value 1, both parts sorted by dense_id
    dense_ptr: np.ndarray
    dense_id: np.ndarray  # int32 (R,): dense row of weights
    dense_row: np.ndarray  # int32 (R,): row of the batch it is added to
    dense_val: np.ndarray  # float64: other values than 1
    dense_val_ptr: np.ndarray | None  # int64 (B+1,): those of the last entries of batch b; None: (R,), of all
    pair_ptr: np.ndarray  # these five as above, sorted by pair_weight
    pair_weight: np.ndarray  # int32 (P,): index into w
    pair_cell: np.ndarray  # int32 (P,): row of the batch * M + label
    pair_val: np.ndarray
    pair_val_ptr: np.ndarray | None
    lists: TokenLists | None  # None: all is in the entries

    @property
    def n_dense(self):
        return len(self.member_ptr) - 1


def worth_a_row(features, count):
    """Which attributes (bool (A,)) with these numbers of occurrences are worth a dense row.

    A dense row costs M additions per occurrence over contiguous memory, a list one scattered addition per
    weight; measured, the two break even near L / 6 weights.
    """
    return many_weights(features) & (count >= 8)


def many_weights(features):
    """Which attributes (bool (A,)) have so many weights that a dense row is faster, if they are frequent."""
    return np.diff(features.node_ptr) >= max(2, features.n_labels / 6)


def dense_rows(corpus, features):
    """(dense_of int32 (A,), member_ptr, member): attributes worth a dense row, and those that share one.

    Attributes that carry others (`find_bundles`) are always dense. If all weights exist, all attributes are:
    then the weight vector is the table, and no row is shared.
    """
    if features.n_node == features.n_attrs * features.n_labels:
        every = np.arange(features.n_attrs + 1)
        return every[:-1].astype(np.int32), every, every[:-1].copy()
    carrier, ptr, carried = find_bundles(corpus, features.n_attrs)
    count = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[: features.n_attrs]
    alone = count - np.bincount(carried, count[carrier][owners(ptr)], minlength=features.n_attrs)
    worth = worth_a_row(features, alone)
    worth[carrier] = True
    attr = np.flatnonzero(worth)
    dense_of = place_of(attr, features.n_attrs)
    # Sort (row, carried or not, attribute): the owner of a row comes first in it.
    row = np.concatenate([np.arange(len(attr)), dense_of[carrier][owners(ptr)]])
    order = np.argsort(row, kind="stable")
    return dense_of, row_offsets(row[order], len(attr)), np.concatenate([attr, carried])[order]


def entries_of(corpus, features, row_token, row_base, members, width):
    """`Layout` of some tokens, row by row: its dense_ptr and pair_ptr int64 (n+1,) are those of n rows.

    row_token int64 (n,): the token of a row; row_base (n,): what an entry calls that row; members: as
    `dense_rows` returns them; width: cells of a row. Values are those of all entries, (0,) where all are
    ones, without pointers.
    """
    dense_of, member_ptr, member = members
    unseen, valued = np.full(features.n_attrs, -1, np.int64), len(corpus.attr_val) > 0
    dense_ptr, pair_ptr = np.empty((2, len(row_token) + 1), np.int64)
    lists = corpus.attr_ptr, corpus.attr_idx
    count_layout(row_token, *lists, *members, features.node_ptr, dense_ptr, pair_ptr, unseen.copy())
    dense, pairs = _entries(int(dense_ptr[-1]), valued), _entries(int(pair_ptr[-1]), valued)
    layout = Layout(member_ptr, member, dense_ptr, *dense, None, pair_ptr, *pairs, None, None)
    weights = dense_of, features.node_ptr, features.node_label
    fill_layout(row_token, row_base, *lists, corpus.attr_val, *weights, width, layout, unseen)
    return layout


def _entries(n, valued):
    """(source, target, value) of n entries, to be filled."""
    return np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n * valued)


def lay_out(corpus, features, packing, width):
    """The `Layout` of a packed corpus for rows of `width` cells. Cost O(R + P), temporaries of 16 N bytes."""
    count = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[: features.n_attrs]
    worth, size = worth_a_row(features, count), np.diff(features.node_ptr)
    if 8 * float(count[~worth] @ size[~worth]) > ENTRY_BYTES:
        return _lay_out_lists(corpus, features, packing, np.flatnonzero(worth))
    members, row_base = dense_rows(corpus, features), positions(packing.row_ptr)
    rows = entries_of(corpus, features, packing.row_token, row_base, members, width)
    dense_ptr, pair_ptr = rows.dense_ptr[packing.row_ptr], rows.pair_ptr[packing.row_ptr]
    dense = dense_ptr, *_sorted_entries(dense_ptr, rows.dense_id, rows.dense_row, rows.dense_val)
    pairs = pair_ptr, *_sorted_entries(pair_ptr, rows.pair_weight, rows.pair_cell, rows.pair_val)
    return Layout(*rows[:2], *dense, *pairs, None)


def _lay_out_lists(corpus, features, packing, attr):
    """`Layout` without entries: dense rows of the attributes `attr`, and `TokenLists`."""
    dense_of = place_of(attr, features.n_attrs)
    none, nothing = np.zeros(packing.n_batches + 1, np.int64), np.zeros(0, np.int32)
    entries = none, nothing, nothing, np.zeros(0), none
    rows = packing.row_token, corpus.attr_ptr, corpus.attr_idx, corpus.attr_val
    lists = TokenLists(*rows, features.node_ptr, features.node_label, dense_of)
    return Layout(np.arange(len(attr) + 1), attr, *entries, *entries, lists)


def _sorted_entries(ptr, source, target, value):
    """(source, target, value, value pointers) of batches, see `Layout`; source and target are reordered.

    Sorted by source, a table larger than the caches is read in order.
    """
    kept, val_ptr = [value[:0]], np.zeros(len(ptr), np.int64)
    for b, (lo, hi) in enumerate(pairwise(ptr)):
        key = source[lo:hi].astype(np.int64) << 32 | target[lo:hi]
        if len(value):
            own = value[lo:hi]
            order = np.lexsort((key, own != 1))
            key, own = key[order], own[order]
            kept.append(own[np.count_nonzero(own == 1) :].copy())
        else:
            key.sort()
        val_ptr[b + 1] = val_ptr[b] + (len(kept[-1]) if len(value) else 0)
        source[lo:hi], target[lo:hi] = key >> 32, key & 0xFFFFFFFF
    return source, target, np.concatenate(kept), val_ptr


def find_bundles(corpus, n_attrs):
    """(carrier (C,), ptr (C+1,), member): attribute carrier[c] carries member[ptr[c]:ptr[c+1]], all int64.

    Those occur in every token in which carrier[c] does. In no token is an attribute carried twice, and no
    carrier is carried. Attributes with values, or repeated within a token, stay out. Cost O(nnz) a few times.
    """
    none = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
    if len(corpus.attr_val) or n_attrs == 0:
        return none
    count = np.bincount(corpus.attr_idx, minlength=n_attrs)
    carrier = np.flatnonzero(count >= MIN_COUNT)
    candidate = place_of(carrier, n_attrs)
    longest = int(np.diff(corpus.attr_ptr).max(initial=0))
    companion = np.zeros((len(carrier), min(longest, MAX_COMPANIONS)), np.int32)
    n_companions, repeated = np.full(len(carrier), -1, np.int32), np.zeros(n_attrs, np.uint8)
    lists, unseen = (corpus.attr_ptr, corpus.attr_idx, candidate), np.full(n_attrs, -1, np.int64)
    find_companions(*lists, companion, n_companions, repeated, unseen.copy())
    column = np.arange(companion.shape[1])
    keep = (column < n_companions[:, None]) & (repeated[companion] == 0) & (repeated[carrier] == 0)[:, None]
    for _ in range(PASSES):
        n_companions, companion = _keep(companion, keep)
        claims = np.zeros(companion.shape, np.int32)
        count_claims(*lists, companion, n_companions, claims, unseen.copy())
        keep = (column < n_companions[:, None]) & (claims == count[carrier][:, None])
    n_members = keep.sum(axis=1)
    some = n_members > 0
    return carrier[some], offsets(n_members[some]), companion[keep].astype(np.int64)


def _keep(companion, keep):
    """Move what is kept to the front of each row: (how many (C,), rows)."""
    order = np.argsort(~keep, axis=1, kind="stable")
    moved = np.ascontiguousarray(np.take_along_axis(companion, order, axis=1))
    return keep.sum(axis=1).astype(np.int32), moved


def batch_rows(n_classes, n_labels=1):
    """Rows of a batch for a corpus with that many edge classes and labels."""
    if n_classes > FEW_CLASSES:
        return MANY_ROWS
    return max(LEAST_ROWS, min(BATCH_ROWS, BATCH_BYTES // (8 * n_labels)))


class Forecast(NamedTuple):
    """What training will take: an estimate made before anything is allocated."""

    bytes: int  # arrays of the objective, without the corpus and the optimiser's memory
    seconds: float  # one value and gradient, one thread


def n_shards(n_tokens, n_node):
    """Shards of a corpus: up to MAX_SHARDS, fewer if it is small or if their gradients would not fit."""
    by_memory = GRADIENT_BYTES // max(1, 8 * n_node)
    return int(max(1, min(MAX_SHARDS, by_memory, n_tokens // 500)))


def forecast(corpus, features):
    """`Forecast` of memory and time of one evaluation on one thread, from counts alone.

    Seconds were fitted on one machine (a 2.5 GHz server core); expect a factor of two on others. Shared rows
    of weights (`find_bundles`) are not known yet: on template corpora the truth is up to 40 per cent lower.
    """
    count = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[: features.n_attrs]
    dense, pairs = worth_a_row(features, count), count * np.diff(features.node_ptr)
    n_dense, n_rows, n_pairs = int(dense.sum()), int(count[dense].sum()), int(pairs[~dense].sum())
    width, n_tokens = padded(features.n_labels), corpus.n_tokens
    valued = 8 if len(corpus.attr_val) else 0
    shards = n_shards(n_tokens, features.n_node)
    size = (
        (8 + valued) * n_rows
        + (8 + valued) * n_pairs
        + 24 * n_tokens
        + 8 * features.n_features * (shards + 1)
        + 16 * n_dense * width
        + 32 * width * max(batch_rows(corpus.n_classes, width), corpus.longest)
        + 8 * width**2 * corpus.n_classes * (shards + 3)
    )
    seconds = (
        n_rows * (10e-9 + width * 1.2e-9)
        + n_pairs * 15e-9
        + n_tokens * width * 6e-9
        + 6.0 * n_tokens * width**2 / 4e10
        + features.n_features * (shards + 4) * 1e-9
    )
    return Forecast(size, seconds)
