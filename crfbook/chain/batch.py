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
        rows = slice(packing.row_ptr[b], packing.row_ptr[b + 1])
        self.slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])  # its sequences, in packed order
        n, n_slots = rows.stop - rows.start, self.slots.stop - self.slots.start
        self.step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        self.row_class, self.by_step = packing.row_class[rows], packing.by_step[rows]
        self.by = packing.class_start[b], packing.by_class[rows], packing.prev_row[rows]
        self.log_node, self.p_node, self.alpha = work.log_node[:n], work.p_node[:n], work.alpha[:n]
        self.buf, self.gain, self.pair = work.prev[:n], work.gain[:n], work.pair
        self.flags = work.flags[:n_slots]

    def forward_backward(self, edges, weight, log_z, edge_sum):
        """How many sequences are flagged; see `forward_backward_batched`: log_node (scores) becomes v,
        p_node weight (B,) * marginals.
        """
        class_start, by_class, prev_row = self.by
        return forward_backward_batched(
            self.log_node,
            edges.psi_edge,
            edges.psi_edge_t,
            edges.edge_max,
            edges.edge_spread[0],
            self.row_class,
            self.step_ptr,
            class_start,
            by_class,
            self.by_step,
            prev_row,
            weight,
            log_z[self.slots],
            self.p_node,
            edge_sum,
            self.flags,
            self.alpha,
            self.buf,
            self.gain,
            self.pair,
        )


def shard_curvature(shard, w, dense, edges, packing, layout, weight, work, log_z, grad, dense_grad, edge_sum):
    """Sums of variances of the sequences of one shard,
    in the places where shard_likelihood leaves expected counts; returns -1.

    grad[a, y] = sum_{t: a in x_t} weight x[a]^2 p_node (1 - p_node);  edge_sum[k, yp,
    y] = sum_t weight p_edge (1 - p_edge)

    Arguments as in shard_likelihood: shard; w (F,); dense (H, M or L); edges, packing, layout, weight (S',),
    work; out: log_z (S',), NaN for sequences that need the log form: those are left out; grad (F,),
    dense_grad (H, M or L), edge_sum (K, M, M): overwritten. Called once in tens of evaluations, and made of
    the kernels that those have compiled. Source: docs/SPEC.md, A.8 without covariances.
    """
    for out in (grad, dense_grad, edge_sum):
        out[:] = 0.0
    dense_val, pair_val = layout.dense_val * layout.dense_val, layout.pair_val * layout.pair_val
    psi_squared, squares = edges.psi_edge * edges.psi_edge, np.zeros_like(edge_sum)
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        batch = Batch(b, packing, work)
        batch_scores(b, w, dense, edges, packing, layout, batch.log_node)
        batch.forward_backward(edges, weight[batch.slots], log_z, edge_sum)
        spread_rows(batch.step_ptr, weight[batch.slots], batch.p_node, batch.alpha, batch.log_node)
        add_edge_sum(
            batch.alpha,
            batch.log_node,
            psi_squared,
            batch.step_ptr,
            *batch.by,
            squares,
            batch.buf,
            batch.pair,
        )
        batch_gradient(b, batch.p_node, dense_val, pair_val, layout, dense_grad, grad)
    # false where a square left float64
    np.subtract(edge_sum, np.minimum(squares, edge_sum), out=edge_sum, where=squares < np.inf)
    return -1
