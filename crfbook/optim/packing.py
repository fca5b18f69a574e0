"""Sequences packed by length, so that each time step of many sequences is one matrix product.

A batch holds sequences sorted by falling length. Its rows are "step-major": first the first tokens of all its
sequences, then all second tokens, and so on; the sequences that have ended are simply missing at the end of
a step. Nothing is padded, and the predecessor of row step_ptr[t] + r is row step_ptr[t-1] + r.
"""

from typing import NamedTuple

import numpy as np

from crfbook.kernels.forward_backward_batched import group_rows
from crfbook.kernels.scores import count_layout, fill_layout
from crfbook.optim.bundles import find_bundles


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
    shard_ptr: np.ndarray  # int64 (n_shards+1,): batches of each shard
    # int64 (B, K+1); this and the next three: see kernels group_rows, empty if not grouped
    class_start: np.ndarray
    by_class: np.ndarray  # int64 (N,) or (0,)
    by_step: np.ndarray  # int64 (N,) or (0,)
    prev_row: np.ndarray  # int64 (N,) or (0,)

    @property
    def n_shards(self):
        return len(self.shard_ptr) - 1


def pack(corpus, batch_rows=1024, n_shards=4, grouped=False):
    """Pack a corpus (S sequences, N tokens) into batches of about `batch_rows` rows, and those into shards.

    Smaller corpora get smaller batches, one a shard. A sequence is never cut: one longer than that is a
    batch. Shards hold neighbouring batches with about equal numbers of rows; there may be fewer than asked
    for. Orders by class are made if there are several, or if `grouped`. Cost O(N + S log S).
    """
    lengths = np.diff(corpus.seq_ptr)
    sequence = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    lengths = lengths[sequence]
    slot_ptr = _cuts(lengths, min(batch_rows, -(-corpus.n_tokens // n_shards)))
    row_ptr = np.concatenate([[0], np.cumsum(lengths)])[slot_ptr]
    row_token = np.empty(row_ptr[-1], np.int64)
    steps, step_start = [np.zeros(0, np.int64)], np.zeros(len(slot_ptr), np.int64)
    for b in range(len(slot_ptr) - 1):
        slots = slice(slot_ptr[b], slot_ptr[b + 1])
        alive = np.searchsorted(-lengths[slots], -np.arange(lengths[slots][0]))  # sequences longer than t
        step = np.concatenate([[0], np.cumsum(alive)])
        t = np.repeat(np.arange(len(alive)), alive)
        slot = np.arange(step[-1]) - step[t]
        row_token[row_ptr[b] : row_ptr[b + 1]] = corpus.seq_ptr[sequence[slots]][slot] + t
        steps.append(step)
        step_start[b + 1] = step_start[b] + len(step)
    row_class = corpus.edge_class[row_token]
    groups = _groups(row_class, row_ptr, steps[1:], corpus.n_classes, grouped or corpus.n_classes > 1)
    row_set = corpus.label_set[row_token] if len(corpus.label_set) else corpus.label_set
    return Packing(
        sequence,
        slot_ptr,
        row_ptr,
        step_start,
        np.concatenate(steps),
        row_token,
        row_class,
        row_set,
        _shards(row_ptr, n_shards),
        *groups,
    )


def _groups(row_class, row_ptr, steps, n_classes, grouped):
    """Orders that bring equal edge classes of a batch together (`group_rows`); empty if not wanted."""
    n_rows = len(row_class) if grouped else 0
    class_start = np.zeros((len(steps), n_classes + 1), np.int64)
    by_class, by_step, prev_row = (np.zeros(n_rows, np.int64) for _ in range(3))
    if n_rows:
        for b, step in enumerate(steps):
            rows = slice(row_ptr[b], row_ptr[b + 1])
            group_rows(row_class[rows], step, class_start[b], by_class[rows], by_step[rows], prev_row[rows])
    return class_start, by_class, by_step, prev_row


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


class Layout(NamedTuple):
    """Where the attributes of the packed rows find their weights (H dense rows, R and P entries)."""

    # int64 (H+1,): attributes that share dense row h: member[member_ptr[h]:member_ptr[h+1]]
    member_ptr: np.ndarray
    member: np.ndarray  # int64
    dense_ptr: np.ndarray  # int64 (B+1,): entries of batch b, sorted by dense_id
    dense_id: np.ndarray  # int32 (R,): dense row of weights
    dense_row: np.ndarray  # int32 (R,): row of the batch it is added to
    dense_val: np.ndarray  # float64 (R,), or (0,): all ones
    pair_ptr: np.ndarray  # int64 (B+1,): entries of batch b, sorted by pair_weight
    pair_weight: np.ndarray  # int32 (P,): index into w
    pair_cell: np.ndarray  # int32 (P,): row of the batch * M + label
    pair_val: np.ndarray  # float64 (P,), or (0,): all ones

    @property
    def n_dense(self):
        return len(self.member_ptr) - 1


def worth_a_row(features, count):
    """Which attributes (bool (A,)) with these numbers of occurrences are worth a dense row.

    A dense row costs M additions per occurrence over contiguous memory, a list one scattered addition per
    weight; measured, the two break even near L / 6 weights.
    """
    return (np.diff(features.node_ptr) >= max(2, features.n_labels / 6)) & (count >= 8)


def dense_rows(corpus, features):
    """(dense_of int32 (A,), member_ptr, member): attributes worth a dense row, and who shares it; data only.

    Attributes that carry others (bundles.py) are dense anyway, and all of them are if all weights exist: then
    the weight vector is the table, and nobody shares a row.
    """
    dense_of = np.full(features.n_attrs, -1, np.int32)
    if features.n_node == features.n_attrs * features.n_labels:
        every = np.arange(features.n_attrs + 1)
        return every[:-1].astype(np.int32), every, every[:-1].copy()
    carrier, ptr, carried = find_bundles(corpus, features.n_attrs)
    count = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[: features.n_attrs]
    alone = count - np.bincount(carried, np.repeat(count[carrier], np.diff(ptr)), minlength=features.n_attrs)
    worth = worth_a_row(features, alone)
    worth[carrier] = True
    attr = np.flatnonzero(worth)
    dense_of[attr] = np.arange(len(attr))
    # Sort (row, carried or not, attribute): the owner of a row comes first in it.
    row = np.concatenate([np.arange(len(attr)), np.repeat(dense_of[carrier], np.diff(ptr))])
    order = np.argsort(row, kind="stable")
    member_ptr = np.searchsorted(row[order], np.arange(len(attr) + 1)).astype(np.int64)
    return dense_of, member_ptr, np.concatenate([attr, carried])[order]


def lay_out(corpus, features, packing, width):
    """The `Layout` of a packed corpus for rows of `width` cells. Cost O(R + P), temporaries of 16 N bytes."""
    dense_of, member_ptr, member = dense_rows(corpus, features)
    n_rows = len(packing.row_token)
    dense_ptr, pair_ptr = np.empty(n_rows + 1, np.int64), np.empty(n_rows + 1, np.int64)
    nobody = np.full(features.n_attrs, -1, np.int64)
    count_layout(
        packing.row_token,
        corpus.attr_ptr,
        corpus.attr_idx,
        dense_of,
        member_ptr,
        member,
        features.node_ptr,
        dense_ptr,
        pair_ptr,
        nobody.copy(),
    )
    row_base = np.arange(n_rows) - np.repeat(packing.row_ptr[:-1], np.diff(packing.row_ptr))
    n_dense, n_pairs, valued = dense_ptr[-1], pair_ptr[-1], len(corpus.attr_val) > 0
    dense_id, dense_row = np.empty(n_dense, np.int32), np.empty(n_dense, np.int32)
    dense_val = np.empty(n_dense * valued)
    pair_weight, pair_cell = np.empty(n_pairs, np.int32), np.empty(n_pairs, np.int32)
    pair_val = np.empty(n_pairs * valued)
    fill_layout(
        packing.row_token,
        row_base,
        corpus.attr_ptr,
        corpus.attr_idx,
        corpus.attr_val,
        dense_of,
        member_ptr,
        member,
        features.node_ptr,
        features.node_label,
        width,
        dense_ptr,
        pair_ptr,
        dense_id,
        dense_row,
        dense_val,
        pair_weight,
        pair_cell,
        pair_val,
        nobody,
    )
    dense_ptr, pair_ptr = dense_ptr[packing.row_ptr], pair_ptr[packing.row_ptr]
    _sort_entries(dense_ptr, dense_id, dense_row, dense_val)
    _sort_entries(pair_ptr, pair_weight, pair_cell, pair_val)
    return Layout(
        member_ptr,
        member,
        dense_ptr,
        dense_id,
        dense_row,
        dense_val,
        pair_ptr,
        pair_weight,
        pair_cell,
        pair_val,
    )


def _sort_entries(ptr, source, target, value):
    """Order the entries of each batch by source: a table larger than the caches is then walked,
    not jumped through.
    """
    for lo, hi in zip(ptr[:-1], ptr[1:], strict=True):
        key = source[lo:hi].astype(np.int64) << 32 | target[lo:hi]
        if len(value):
            order = np.argsort(key, kind="stable")
            key, value[lo:hi] = key[order], value[lo:hi][order]
        else:
            key.sort()
        source[lo:hi], target[lo:hi] = key >> 32, key & 0xFFFFFFFF
