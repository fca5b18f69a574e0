"""Sequences packed by length, so that each time step of many sequences is one matrix product.

A batch holds sequences sorted by falling length. Its rows are "step-major": first the first tokens of all its
sequences, then all second tokens, and so on; the sequences that have ended are simply missing at the end of
a step. Nothing is padded, and the predecessor of row step_ptr[t] + r is row step_ptr[t-1] + r.
"""

from typing import NamedTuple

import numpy as np


class Packing(NamedTuple):
    """Order of the rows (B batches, S' sequences that are not empty, N tokens); depends on the data only."""

    sequence: np.ndarray  # int64 (S',): sequences in packed order
    slot_ptr: np.ndarray  # int64 (B+1,): sequences of batch b are sequence[slot_ptr[b]:slot_ptr[b+1]]
    row_ptr: np.ndarray  # int64 (B+1,): rows of batch b
    step_start: np.ndarray  # int64 (B+1,): its pointers are step_ptr[step_start[b]:step_start[b+1]]
    step_ptr: np.ndarray  # int64: per batch T+1 pointers, relative to the batch's first row
    row_token: np.ndarray  # int64 (N,): corpus token of each row
    row_class: np.ndarray  # int32 (N,): its edge class
    shard_ptr: np.ndarray  # int64 (n_shards+1,): batches of each shard

    @property
    def n_shards(self):
        return len(self.shard_ptr) - 1


def pack(corpus, batch_rows=1024, n_shards=4):
    """Pack a corpus (S sequences, N tokens) into batches of about `batch_rows` rows, and those into shards.

    A sequence is never cut: one longer than `batch_rows` is a batch by itself. Shards hold neighbouring
    batches with about equal numbers of rows; there may be fewer than asked for. Cost O(N + S log S).
    """
    lengths = np.diff(corpus.seq_ptr)
    sequence = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    lengths = lengths[sequence]
    slot_ptr = _cuts(lengths, batch_rows)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)])[slot_ptr]
    row_token = np.empty(row_ptr[-1], np.int64)
    steps, step_start = [np.zeros(0, np.int64)], np.zeros(len(slot_ptr), np.int64)
    for b in range(len(slot_ptr) - 1):
        slots = slice(slot_ptr[b], slot_ptr[b + 1])
        alive = np.searchsorted(-lengths[slots], -np.arange(lengths[slots][0]))  # sequences longer than t
        step = np.concatenate([[0], np.cumsum(alive)])
        t = np.repeat(np.arange(len(alive)), alive)
        slot = np.arange(step[-1]) - step[t]
        row_token[row_ptr[b]:row_ptr[b + 1]] = corpus.seq_ptr[sequence[slots]][slot] + t
        steps.append(step)
        step_start[b + 1] = step_start[b] + len(step)
    return Packing(sequence, slot_ptr, row_ptr, step_start, np.concatenate(steps), row_token,
                   corpus.edge_class[row_token], _shards(row_ptr, n_shards))


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
