"""Log-likelihood and expected counts of a shard under label tuples: `shard_likelihood` over label contexts.

The containers are those of kernels/likelihood.py, and `Arcs` and `ArcScores` of optim/tuple_automaton.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.forward_backward import exp_nodes, log_z_scaled
from crfbook.kernels.likelihood import batch_gradient, batch_scores, gather_sequence
from crfbook.kernels.tuple_chain import tuple_backward, tuple_forward
from crfbook.kernels.tuple_chain_log import tuple_chain_log


@kernel
def shard_tuples(shard, w, dense, edges, arcs, scores, packing, layout, weight, work, log_z, grad, dense_grad, edge_sum, arc_sum,
                 n_products):
    """Expected counts of the sequences of one shard, and their log Z.

    grad[a, y] = sum_{t: a in x_t} weight x[a] p_node[t, y];  edge_sum, arc_sum: see tuple_backward, times the weights.

    Arguments: as `shard_likelihood`: shard, w (F,), dense (H, M or L), edges, packing, layout, weight (S',), work, out log_z (S',), grad
    (F,), dense_grad (H, M or L), edge_sum (K, M, M), overwritten; arcs, scores: see above; arc_sum (E,), overwritten; n_products
    int64 (3,): products with arcs, forward and backward, and sequences in the log form.
    Returns the packed number of the first sequence without a finite log Z, or -1. Cost: that of tuple_forward and tuple_backward.
    Source: Sokolovska et al. (2010), eq. (4), (5).
    """
    Q, M, longest = arcs.last.size, edge_sum.shape[1], 1
    I, D = np.max(arcs.leaf_ptr - arcs.pattern_ptr[:-1]), np.max(np.diff(arcs.pair_ptr))
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    arc_sum[:] = 0.0
    n_products[:] = 0
    bad = -1
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        longest = max(longest, packing.step_start[b + 1] - packing.step_start[b])
    rows, classes, scale, node_max = np.empty(longest, np.int64), np.empty(longest, np.int32), np.empty(longest), np.empty(longest)
    u, psi_node, alpha, up = np.empty((longest, M)), np.empty((longest, M)), np.empty((longest, Q)), np.empty((longest, Q))
    rest, pair_mass, slot = np.empty((longest, I + 1)), np.empty((longest, D)), np.empty(Q + D)
    beta, v, more, gain, stamp = np.empty(Q), np.empty(M), np.empty(Q), np.empty(I + 1), np.empty(M + 1, np.int64)
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        log_node, p_node = work.log_node[: hi - lo], work.p_node[: hi - lo]
        batch_scores(b, w, dense, edges, packing, layout, log_node)
        for s in range(packing.slot_ptr[b], packing.slot_ptr[b + 1]):
            n = gather_sequence(s - packing.slot_ptr[b], log_node, packing.row_class[lo:hi], step_ptr, rows, classes, u)
            spread = scores.spread[0] + exp_nodes(u[:n], psi_node[:n], node_max[:n])
            found = tuple_forward(psi_node[:n], classes, spread, arcs, scores.factor, edges.psi_edge, scores.psi_plain, alpha, up, scale,
                                  rest, pair_mass, slot)
            if found < 0:
                n_products[2] += 1
                log_z[s] = tuple_chain_log(u[:n], edges.log_edge, classes, weight[s], arcs, scores.log_factor, rows, p_node, edge_sum, arc_sum)
                bad = s if bad < 0 and not np.isfinite(log_z[s]) else bad
                continue
            log_z[s] = log_z_scaled(scale[:n], node_max[:n], edges.edge_max, classes)
            n_products[0] += found
            n_products[1] += tuple_backward(
                psi_node[:n], classes, weight[s], arcs, scores.factor, edges.psi_edge, scores.psi_plain, alpha, up, scale, rest, pair_mass, rows,
                p_node, edge_sum, arc_sum, beta, v, slot, more, gain, stamp,
            )  # fmt: skip
        batch_gradient(b, p_node, layout.dense_val, layout.pair_val, layout, dense_grad, grad)
    return bad
