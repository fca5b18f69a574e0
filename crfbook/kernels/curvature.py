"""Roughly the diagonal of the Hessian of the log loss: how steep each weight's own valley is.

A weight acts on the scores of many cells (token, label); the second derivative with respect to the score of one cell is the
variance p (1 - p) of its indicator. Summed over a weight's cells this is the diagonal of the Hessian but for the covariances
of different cells of one sequence. It is used to scale steps (optim/proximal_newton.py), where rough is enough.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.edge_products import add_edge_sum
from crfbook.kernels.forward_backward_batched import forward_backward_batched
from crfbook.kernels.likelihood import batch_gradient, batch_scores


@kernel
def spread_rows(step_ptr, weight, p_node, alpha, v):
    """p_node becomes weight p (1 - p); alpha and v their squares, so that alpha^T v sums weight p_edge^2 / psi_edge^2.

    Arguments: step_ptr (T+1,) of a packed batch; weight (B,) of its sequences; p_node (n, M) = weight * p, alpha (n, M), v (n,
    M) as forward_backward_batched leaves them, v with the weight in it; all three overwritten. Cost: 3 n M. Source: the
    variance of an indicator.
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
def shard_curvature(shard, w, dense, edges, packing, layout, weight, work, log_z, grad, dense_grad, edge_sum):
    """Sums of variances of the sequences of one shard, in the places where shard_likelihood leaves expected counts.

    grad[a, y] = sum_{t: a in x_t} weight x[a]^2 p_node (1 - p_node);  edge_sum[k, yp, y] = sum_t weight p_edge (1 - p_edge)

    Arguments: shard; w (F,); dense (H, M or L); edges, packing, layout, weight (S',), work as in shard_likelihood; out: log_z
    (S',), NaN for sequences that need the log form: those are left out; grad (F,), dense_grad (H, M or L), edge_sum (K, M, M):
    overwritten. Returns -1. Cost: that of shard_likelihood and n M^2 multiply-adds. Source: spec A.8 without covariances.
    """
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    dense_val, pair_val = layout.dense_val * layout.dense_val, layout.pair_val * layout.pair_val
    psi_squared, squares = edges.psi_edge * edges.psi_edge, np.zeros(edge_sum.shape)
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
        n = hi - lo
        step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        group = slice(lo, hi) if packing.prev_row.size else slice(0, 0)
        v, p_node, alpha = work.log_node[:n], work.p_node[:n], work.alpha[:n]
        batch_scores(b, w, dense, edges, packing, layout, v)
        forward_backward_batched(
            v, edges.psi_edge, edges.psi_edge_t, edges.edge_max, edges.edge_spread[0],
            packing.row_class[lo:hi], step_ptr, packing.class_start[b], packing.by_class[group],
            packing.by_step[group], packing.prev_row[group], weight[slots], log_z[slots], p_node, edge_sum,
            work.flags[: slots.stop - slots.start], alpha, work.prev[:n], work.gain[:n], work.pair,
        )  # fmt: skip
        spread_rows(step_ptr, weight[slots], p_node, alpha, v)
        add_edge_sum(
            alpha, v, psi_squared, step_ptr, packing.class_start[b], packing.by_class[group], packing.prev_row[group],
            squares, work.prev[:n], work.pair,
        )  # fmt: skip
        batch_gradient(b, p_node, dense_val, pair_val, layout, dense_grad, grad)
    for k in range(squares.shape[0]):
        for yp in range(squares.shape[1]):
            for y in range(squares.shape[2]):
                if squares[k, yp, y] < edge_sum[k, yp, y]:  # false also where a square left float64
                    edge_sum[k, yp, y] -= squares[k, yp, y]
    return -1
