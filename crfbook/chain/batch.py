"""One batch of a packing, and what Python does with it where a stage at a time is fast enough (see
sparse_shards.py).
"""

import numpy as np

from crfbook.chain.curvature import spread_rows
from crfbook.chain.edge_products import add_edge_sum
from crfbook.chain.forward_backward_batched import forward_backward_batched
from crfbook.chain.likelihood import batch_gradient, batch_scores


class Batch:
    """Batch b of a packing: its n rows and B sequences, and their part of the arrays of a `Work`."""

    def __init__(self, b, packing, work):
        self.place, self.work, self.slots = (b, packing), work, packing.slots(b)
        n = packing.row_ptr[b + 1] - packing.row_ptr[b]
        self.step_ptr, self.row_class = packing.steps(b), packing.row_class[packing.rows(b)]
        self.log_node, self.p_node, self.alpha = work.log_node[:n], work.p_node[:n], work.alpha[:n]
        self.weight, self.gain = packing.weight[self.slots], work.gain[:n]
        self.flags = work.flags[: len(self.weight)]

    def forward_backward(self, edges, log_z, edge_sum):
        """How many sequences are flagged; see `forward_backward_batched`: log_node (scores) becomes v,
        p_node weight (B,) * marginals.
        """
        return forward_backward_batched(
            *self.place, edges, self.log_node, log_z[self.slots], self.p_node, edge_sum, self.work
        )


def squared(layout):
    """The layout with the squares of its values: what sums of variances are collected by."""
    return layout._replace(dense_val=layout.dense_val**2, pair_val=layout.pair_val**2)


def shard_curvature(shard, w, dense, edges, packing, layout, work, counts, edge_sum):
    """Sums of variances of the sequences of one shard,
    in the places where shard_likelihood leaves expected counts; returns -1.

    grad[a, y] = sum_{t: a in x_t} weight x[a]^2 p_node (1 - p_node);  edge_sum[k, yp,
    y] = sum_t weight p_edge (1 - p_edge)

    Arguments as in shard_likelihood: shard; w (F,); dense (H, M or L); edges, packing, layout, work; out:
    counts, edge_sum (K, M, M), overwritten; log Z is NaN for sequences that need the log form: those are left
    out. Called once in tens of evaluations, and made of the kernels that those have compiled.
    Source: docs/SPEC.md, A.8 without covariances.
    """
    for out in (counts.grad, counts.dense_grad, edge_sum):
        out[:] = 0.0
    squares, psi_squared, square_sum = squared(layout), edges.psi_edge**2, np.zeros_like(edge_sum)
    for b in packing.batches(shard):
        batch = Batch(b, packing, work)
        batch_scores(b, w, dense, edges.bounds, packing, layout, batch.log_node)
        batch.forward_backward(edges, counts.log_z, edge_sum)
        spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
        add_edge_sum(b, packing, psi_squared, work.alpha, batch.log_node, square_sum, work)
        batch_gradient(b, batch.p_node, squares, counts.dense_grad, counts.grad)
    # false where a square left float64
    np.subtract(edge_sum, np.minimum(square_sum, edge_sum), out=edge_sum, where=square_sum < np.inf)
    return -1
