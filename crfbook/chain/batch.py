"""One batch of a packing: the work arrays of a thread, and what Python does with them where a stage at a time
is fast enough (sparse/form.py). n rows and B sequences of the largest batch, M padded labels.
"""

from collections import namedtuple
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from crfbook.chain.forward_backward_batched import forward_backward_batched
from crfbook.chain.likelihood import redo_flagged


class Work(NamedTuple):
    """What one thread writes on its way (likelihood.py)."""

    log_node: np.ndarray  # (n, M)
    p_node: np.ndarray  # (n, M)
    alpha: np.ndarray  # (n, M)
    prev: np.ndarray  # (n, M)
    gain: np.ndarray  # (n,)
    pair: np.ndarray  # (M, M)
    flags: np.ndarray  # uint8 (B,)


# The arrays of `Work`, and those of losses other than the log loss (losses/gradients.py); the last four are
# empty unless the loss is pointwise.
LossWork = namedtuple(
    "LossWork",
    (
        *Work._fields,
        "score",  # (B,): of the gold paths
        "slope",  # (B,): weight * phi'(u), summed over the tokens if pointwise
        "event",  # (n,): weight * phi'(u) / p of each gold label
        "ahead",  # (n, M): events at later rows
        "behind",  # (n, M): events at this and later rows
        "step",  # (2, B, M): operands of one time step
    ),
)

# The arrays of `Work`, and those of sparse transitions (chain/sparse).
SparseWork = namedtuple(
    "SparseWork",
    (
        *Work._fields,
        "part",  # (n, M): what the base contributes to a product, see chain/sparse/forward_backward.py
        "table",  # (M, M): potentials of a class
        "base_sum",  # (M, M): expected counts of all transitions, see `base_counts`
        "whole",  # (M, M): the positive part of their differences
    ),
)


# The arrays of `Work`, and those of LANES sequences side by side (chain/sparse/lanes.py); T steps at most.
LaneWork = namedtuple(
    "LaneWork",
    (
        *Work._fields,
        "psi",  # (T, L, LANES): exp of the node scores
        "lane_alpha",  # (T, L, LANES)
        "scale",  # (T, LANES): what alpha was multiplied by
        "v",  # (L, LANES)
        "beta",  # (L, LANES)
        "factor",  # (L,)
    ),
)


class Counts(NamedTuple):
    """What the node weights of one shard get from an evaluation: expected counts, or what stands in their
    place (variances, slopes of another loss); and log Z. S' sequences, H dense rows.
    """

    log_z: np.ndarray  # (S',), of all shards
    grad: np.ndarray  # (n_node,): what is listed as pairs
    dense_grad: np.ndarray  # (H, M or L)


def make_work(packing, width):
    """`Work` for the batches of a packing and the log loss."""
    n, n_slots = (int(np.diff(ptr).max(initial=0)) for ptr in (packing.row_ptr, packing.slot_ptr))
    rows = (np.empty((n, width)) for _ in range(4))
    return Work(*rows, np.empty(n), np.empty((width, width)), np.empty(n_slots, np.uint8))


def loss_work(work, loss):
    """A `LossWork` for a `Loss`, sharing the arrays of a `Work` for the log loss."""
    (n, width), n_slots = work.log_node.shape, len(work.flags)
    score, slope = np.empty((2, n_slots))
    n, n_slots = (n, n_slots) if loss.pointwise else (0, 0)
    ahead, behind = np.empty((2, n, width))
    return LossWork(*work, score, slope, np.empty(n), ahead, behind, np.empty((2, n_slots, width)))


def sparse_work(work):
    """A `SparseWork`, sharing the arrays of a `Work`."""
    return SparseWork(*work, np.empty_like(work.log_node), *np.empty((3, *work.pair.shape)))


def lane_work(work, n_steps, n_labels, n_lanes):
    """A `LaneWork`, sharing the arrays of a `Work`."""
    cells = (n_labels, n_lanes)
    psi, alpha = np.empty((2, n_steps, *cells))
    v, beta = np.empty((2, *cells))
    return LaneWork(*work, psi, alpha, np.empty((n_steps, n_lanes)), v, beta, np.empty(n_labels))


class Spare:
    """Work arrays, one for each thread: who needs some gets them, and puts them back."""

    def __init__(self, items):
        self.items = list(items)
        self.fill()

    def fill(self):
        """All of them again, before an evaluation: where Ctrl-C came between `get` and `put`,
        whoever is next would wait for ever.
        """
        queue = SimpleQueue()
        for item in self.items:
            queue.put(item)
        self.get, self.put = queue.get, queue.put


def spare_or_new(queue, make):
    """What waits in a queue, or make(): work arrays that are made as threads come to need them."""
    try:
        return queue.get_nowait()
    except Empty:
        return make()


class Batch:
    """Batch b of a packing: its n rows and B sequences, and their part of the arrays of a `Work`."""

    def __init__(self, b, packing, work):
        self.place, self.work, self.slots = (b, packing), work, packing.slots(b)
        n = packing.row_ptr[b + 1] - packing.row_ptr[b]
        self.step_ptr, self.row_class = packing.steps(b), packing.row_class[packing.rows(b)]
        self.log_node, self.p_node, self.alpha = work.log_node[:n], work.p_node[:n], work.alpha[:n]
        self.weight, self.gain = packing.weight[self.slots], work.gain[:n]
        self.flags = work.flags[: len(self.weight)]

    def marginals(self, fill, edges, log_z):
        """p_node (n, M), its weights included; its part of log_z (S',) is filled.

        `fill` puts the scores into log_node, which the first pass overwrites.
        """
        sums = self.no_sums(edges)
        fill()
        if self.forward_backward(edges, log_z, sums):
            fill()
            self.redo(edges, log_z, sums)
        return self.p_node

    @staticmethod
    def needs(work, packing, n_labels):
        """A `Work` that has what such batches of a packing need, sharing the arrays of `work`."""
        return work

    @staticmethod
    def no_sums(edges):
        """What the sums of transitions are added to, where nobody wants them."""
        return np.zeros(edges.log_edge.shape)

    def forward_backward(self, edges, log_z, edge_sum):
        """How many sequences are flagged; see `forward_backward_batched`: log_node (scores) becomes v,
        p_node weight (B,) * marginals, and edge_sum (K, M, M) gets the expected counts.
        """
        return forward_backward_batched(
            *self.place, edges, self.log_node, log_z[self.slots], self.p_node, edge_sum, self.work
        )

    def redo(self, edges, log_z, edge_sum):
        """Log-domain forward-backward of the flagged sequences; log_node holds the scores again."""
        out = log_z[self.slots], self.p_node, edge_sum
        redo_flagged(*self.place, edges.log_edge, self.log_node, *out, self.work.flags)
