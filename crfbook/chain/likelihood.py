"""Log-likelihood and expected feature counts of a shard: scores, forward-backward, gradient, batch by batch.

A batch goes through all three stages while it lies in the processor's cache. The gold labels appear nowhere:
sum_i score(y_i) = w . (gold counts). Those counts are constants, which the objective subtracts once.
The NamedTuples `packing`, `layout` (packing.py), `edges` (forms.py), `work` and `counts` (below) list their
arrays with shapes. L labels are padded to M, whole vector registers: padding labels score -inf.

This file also has the work arrays of a thread, and `Batch`: one batch of a packing. Forms that call one stage
after the other from Python use it (sparse/form.py). n rows and B sequences are those of the largest batch.
"""

from collections import namedtuple
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import sequence_sums_log
from crfbook.chain.forward_backward_batched import forward_backward_batched, steps_of
from crfbook.chain.scores import (
    dense_gradient,
    dense_scores,
    list_gradient,
    list_scores,
    pair_gradient,
    pair_scores,
)


@kernel
def open_rows(step_ptr, row_set, bounds, log_node):
    """Scores before any attribute is added: hard constraints alone.

    log_node[t] = middle, or start at first tokens, + end at last ones, + the row of the token's label set

    Arguments:
        step_ptr : int64 (T+1,) of a packed batch
        row_set : int32 (n,), row of bounds.label_sets for each row, or (0,)
        bounds : `Bounds` of data/constraints.py
    Out:
        log_node : (n, M)
    Cost: O(n M).
    Source: hard constraints as potentials of value 0, Sokolovska et al. (2010), eq. (1) with scores of -inf;
    Ratnaparkhi (1996), section 4, tag dictionary.
    """
    T = step_ptr.size - 1
    for t in range(T):
        alive = step_ptr[t + 1] - step_ptr[t]
        following = step_ptr[t + 2] - step_ptr[t + 1] if t + 1 < T else 0
        opening = bounds.start if t == 0 else bounds.middle
        for r in range(alive):
            u = log_node[step_ptr[t] + r]
            for y in range(u.size):
                u[y] = opening[y]
            if r >= following:
                for y in range(u.size):
                    u[y] += bounds.end[y]
    for i in range(row_set.size):
        bound, u = bounds.label_sets[row_set[i]], log_node[i]
        for y in range(u.size):
            u[y] += bound[y]


@kernel
def entries_of_batch(b, ptr, val, val_ptr):
    """(lo, mid, hi, values) of batch b: entries lo..mid-1 have the value 1, entries mid..hi-1 these values.

    Arguments:
        b : number of the batch
        ptr, val_ptr : int64 (B+1,), of the entries and of the values of a `Layout`
        val : float64 (V,), its values
    Cost: none.
    Source: `Layout` of packing.py.
    """
    lo, hi, values = ptr[b], ptr[b + 1], val[val_ptr[b] : val_ptr[b + 1]]
    return lo, hi - values.size, hi, values


@kernel
def batch_scores(b, w, dense, bounds, packing, layout, log_node):
    """log_node (n, M) of batch b: hard constraints, then dense rows, then the (weight, cell) pairs.

    Arguments:
        b : number of the batch
        w : (F,)
        dense : (H, M or L)
        bounds : `Bounds` of data/constraints.py
        packing, layout : as in `likelihood_of_batches`
    Out:
        log_node : (n, M), C order
    Cost: see `dense_scores`, `pair_scores`.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    row_set = packing.row_set[packing.row_ptr[b] : packing.row_ptr[b + 1]]
    open_rows(steps_of(b, packing)[0], row_set, bounds, log_node)
    source, target, flat = layout.dense_id, layout.dense_row, log_node.reshape(-1)
    lo, mid, hi, x = entries_of_batch(b, layout.dense_ptr, layout.dense_val, layout.dense_val_ptr)
    dense_scores(dense, source, target, x[:0], lo, mid, log_node)
    dense_scores(dense, source[mid:hi], target[mid:hi], x, 0, hi - mid, log_node)
    source, target = layout.pair_weight, layout.pair_cell
    lo, mid, hi, x = entries_of_batch(b, layout.pair_ptr, layout.pair_val, layout.pair_val_ptr)
    pair_scores(w, source, target, x[:0], lo, mid, flat)
    pair_scores(w, source[mid:hi], target[mid:hi], x, 0, hi - mid, flat)
    _scores_of_lists(w, dense, layout.lists, packing.row_ptr[b], packing.row_ptr[b + 1], log_node)


@kernel
def _scores_of_lists(w, dense, lists, lo, hi, log_node):
    """`list_scores` of the rows lo..hi-1 of all batches; without lists nothing, and nothing is compiled."""
    if lists is None:
        return
    list_scores(
        w, lists.node_ptr, lists.node_label, dense, lists.dense_of, lists.row_token[lo:hi], lists.attr_ptr,
        lists.attr_idx, lists.attr_val, log_node,
    )  # fmt: skip


@kernel
def batch_gradient(b, p_node, packing, layout, dense_grad, grad):
    """Add the marginals of batch b to the sums of its attributes: the way back of `batch_scores`.

    Arguments:
        b : number of the batch
        p_node : (n, M), C order
        packing, layout : as in `likelihood_of_batches`
    Out:
        dense_grad : (H, M or L)
        grad : (F,), added to
    Cost: see `dense_gradient`, `pair_gradient`, `list_gradient`.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    source, target, flat = layout.dense_id, layout.dense_row, p_node.reshape(-1)
    lo, mid, hi, x = entries_of_batch(b, layout.dense_ptr, layout.dense_val, layout.dense_val_ptr)
    dense_gradient(p_node, source, target, x[:0], lo, mid, dense_grad)
    dense_gradient(p_node, source[mid:hi], target[mid:hi], x, 0, hi - mid, dense_grad)
    source, target = layout.pair_weight, layout.pair_cell
    lo, mid, hi, x = entries_of_batch(b, layout.pair_ptr, layout.pair_val, layout.pair_val_ptr)
    pair_gradient(flat, source, target, x[:0], lo, mid, grad)
    pair_gradient(flat, source[mid:hi], target[mid:hi], x, 0, hi - mid, grad)
    _gradient_of_lists(p_node, layout.lists, packing.row_ptr[b], packing.row_ptr[b + 1], dense_grad, grad)


@kernel
def _gradient_of_lists(p_node, lists, lo, hi, dense_grad, grad):
    """`list_gradient` of the rows lo..hi-1 of all batches; see `_scores_of_lists`."""
    if lists is None:
        return
    list_gradient(
        p_node, lists.node_ptr, lists.node_label, lists.dense_of, lists.row_token[lo:hi], lists.attr_ptr,
        lists.attr_idx, lists.attr_val, dense_grad, grad,
    )  # fmt: skip


@kernel
def spread_rows(step_ptr, weight, p_node, alpha, v):
    """p_node becomes weight p (1 - p); alpha and v their squares,
    so that alpha^T v sums weight p_edge^2 / psi_edge^2.

    The second derivative with respect to the score of one cell (token, label) is the variance p (1 - p) of
    its indicator. Summed over the cells of a weight this is the diagonal of the Hessian, but for covariances
    of different cells of one sequence: rough, and enough to scale steps (learners/quasi_newton).

    Arguments:
        step_ptr : (T+1,) of a packed batch
        weight : (B,) of its sequences
        p_node : (n, M) = weight * p
        alpha, v : (n, M), as forward_backward_batched leaves them, the weight in v
    p_node, alpha and v are overwritten.
    Cost: 3 n M.
    Source: the variance of an indicator.
    """
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            each = weight[i - step_ptr[t]]
            share = 1.0 / each if each > 0.0 else 0.0
            for y in range(p_node.shape[1]):
                p_node[i, y] -= p_node[i, y] * p_node[i, y] * share
                alpha[i, y] *= alpha[i, y]
                v[i, y] *= v[i, y] * share


@kernel
def likelihood_of_batches(b, shard, w, dense, edges, packing, layout, work, counts, edge_sum):
    """Expected counts of the sequences of one shard, and their log Z, from its batch b on.

    Returns -1 after the last batch, or the number of the first batch with a flagged sequence. The sequences
    of that batch that are not flagged are in edge_sum, and none is in counts. The caller computes the flagged
    ones, adds the batch to counts, and goes on with the next batch.

    grad[a, y] = sum_{t: a in x_t} weight x[a] p_node[t, y]
    edge_sum[k, yp, y] = sum_{t of class k} weight p_edge

    Arguments:
        b : first batch to compute
        shard : its number
        w : (F,)
        dense : (H, M or L), filled from w
        edges, packing, layout, work : see the top
    Out:
        counts.log_z : (S',)
        counts.grad : (F,)
        counts.dense_grad : (H, M or L)
        edge_sum : (K, M, M), overwritten by the shard's first batch, the dense rows' part of grad stays 0
    Cost: 3 n M^2 multiply-adds, n M exps, two additions per stored (occurrence, weight) pair.
    Source: Sokolovska et al. (2010), eq. (4), (5).
    """
    if b == packing.shard_ptr[shard]:
        counts.grad[:] = 0.0
        counts.dense_grad[:] = 0.0
        edge_sum[:] = 0.0
    while b < packing.shard_ptr[shard + 1]:
        n, slot = packing.row_ptr[b + 1] - packing.row_ptr[b], packing.slot_ptr[b]
        log_node, p_node = work.log_node[:n], work.p_node[:n]
        log_z = counts.log_z[slot : packing.slot_ptr[b + 1]]
        batch_scores(b, w, dense, edges.bounds, packing, layout, log_node)
        if forward_backward_batched(b, packing, edges, log_node, log_z, p_node, edge_sum, work):
            return b
        batch_gradient(b, p_node, packing, layout, counts.dense_grad, counts.grad)
        b += 1
    return -1


def add_tree(parts):
    """parts[0] + parts[1] + ... as a binary tree whose shape depends on len(parts) only: the array parts[0].

    ((p0 + p1) + (p2 + p3)) + ...: neighbours first, so the sum does not depend on who computed which part.

    Arguments:
        parts : (P, ...), overwritten
    Cost: P F additions.
    Source: Blelloch (1990), "Prefix sums", section 1.
    """
    stride = 1
    while stride < len(parts):
        for i in range(0, len(parts) - stride, 2 * stride):
            parts[i] += parts[i + stride]
        stride *= 2
    return parts[0]


class Work(NamedTuple):
    """Work arrays of one thread (likelihood.py)."""

    log_node: np.ndarray  # (n, M)
    p_node: np.ndarray  # (n, M)
    alpha: np.ndarray  # (n, M)
    prev: np.ndarray  # (n, M)
    gain: np.ndarray  # (n,)
    pair: np.ndarray  # (M, M)
    flags: np.ndarray  # uint8 (B,)


# The arrays of `Work`, and those of losses other than the log loss (losses.py); the last four are
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
    """Sums of one shard for the node weights, and log Z of S' sequences; H dense rows.

    The sums are expected counts, or variances, or the slopes of another loss.
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


class WorkPool:
    """Work arrays, one set for each thread; a thread gets a set and puts it back."""

    def __init__(self, items):
        self.items = list(items)
        self.fill()

    def fill(self):
        """Put all sets back, before an evaluation: after Ctrl-C between `get` and `put` one may be missing,
        and a thread would wait for ever.
        """
        queue = SimpleQueue()
        for item in self.items:
            queue.put(item)
        self.get, self.put = queue.get, queue.put


def queued_or_new(queue, make):
    """Work arrays from a queue, or make() where it is empty."""
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
        """Arrays for sums of transitions that are not needed."""
        return np.zeros(edges.log_edge.shape)

    def forward_backward(self, edges, log_z, edge_sum):
        """How many sequences are flagged; see `forward_backward_batched`: log_node (scores) becomes v,
        p_node weight (B,) * marginals, and edge_sum (K, M, M) gets the expected counts.
        """
        return forward_backward_batched(
            *self.place, edges, self.log_node, log_z[self.slots], self.p_node, edge_sum, self.work
        )

    def rows(self, r):
        """int64: the rows of sequence r of the batch."""
        return self.step_ptr[:-1][np.diff(self.step_ptr) > r] + r

    def redo(self, edges, log_z, sums):
        """Log-domain forward-backward of the flagged sequences; log_node holds the scores again.

        A sequence without a path has log Z = -inf and adds nothing.
        """
        for r in np.flatnonzero(self.flags):
            rows = self.rows(r)
            found = self.log_sums(edges, self.log_node[rows], self.row_class[rows], self.weight[r], sums)
            log_z[self.slots.start + r], self.p_node[rows] = found

    @staticmethod
    def log_sums(edges, log_node, edge_class, weight, edge_sum):
        """(log Z, p_node (T, M)) of one sequence, by `sequence_sums_log`; edge_sum gets its counts."""
        p_node = np.empty_like(log_node)
        return sequence_sums_log(log_node, edges.log_edge, edge_class, weight, p_node, edge_sum), p_node

    def first_lost(self, log_z, bad):
        """`bad`, or in place of -1 the packed number of the first sequence here without a finite log Z."""
        lost = np.flatnonzero(~np.isfinite(log_z[self.slots]))
        return int(self.slots.start + lost[0]) if bad < 0 and len(lost) else bad
