"""Log-likelihood and expected counts of a shard under label tuples: `shard_likelihood` over label contexts.

The containers are those of kernels/likelihood.py, and `Arcs`, `ArcScores` and `TupleWork` of optim/tuple_automaton.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.forward_backward import exp_nodes, log_z_scaled
from crfbook.kernels.likelihood import batch_gradient, batch_scores, gather_sequence
from crfbook.kernels.tuple_chain import MAX_SPREAD, tuple_backward, tuple_forward
from crfbook.kernels.tuple_chain_log import tuple_chain_log


@kernel
def run_lanes(slot, n_lanes, log_node, row_class, step_ptr, edges, arcs, scores, weight, work, log_z, p_node, edge_sum, arc_sum,
              n_products):
    """Counts of n_lanes <= W neighbouring sequences of a batch, from number `slot` on; returns the first without a finite log Z, or -1.

    log Z = sum_t log scale[t] + maxima taken out; a sequence that the scaled form refuses goes through `tuple_chain_log`.

    Arguments: slot, n_lanes; log_node (n, M), row_class (n,), step_ptr (T+1,) of the batch; edges, arcs, scores; weight (n_lanes,); work:
    `TupleWork`; out: log_z (n_lanes,), p_node (n, M), rows overwritten; edge_sum (K, M, M), arc_sum (E,), n_products (3,), added to.
    Cost: that of tuple_forward and tuple_backward. Source: chapter 08.
    """
    length, bad, T = work.length, -1, 0
    length[:] = 0
    for r in range(n_lanes):
        n = gather_sequence(slot + r, log_node, row_class, step_ptr, work.row, work.edge_class, work.log_node)
        spread = scores.spread[0] + exp_nodes(work.log_node[:n], work.psi[:n], work.node_max[:n])
        length[r], work.weight[r], T = n if spread <= MAX_SPREAD else 0, weight[r], max(T, n)
        work.rows[:n, r], work.classes[:n, r], work.maxima[:n, r] = work.row[:n], work.edge_class[:n], work.node_max[:n]
        work.psi_node[:n, :, r] = work.psi[:n]
        work.psi_node[n:, :, r] = 0.0
    n_products[0] += tuple_forward(
        work.psi_node[:T], work.classes, length, arcs, scores.factor, edges.psi_edge, scores.psi_plain, work.alpha, work.up, work.scale,
        work.rest, work.pair_mass, work.mask, work.label, work.slot,
    )  # fmt: skip
    n_products[1] += tuple_backward(
        work.psi_node[:T], work.classes, length, work.weight, arcs, scores.factor, edges.psi_edge, scores.psi_plain, work.alpha, work.up,
        work.scale, work.rest, work.pair_mass, work.rows, p_node, edge_sum, arc_sum, work.beta, work.v, work.p_label, work.mask, work.slot, work.more,
        work.gain, work.stamp,
    )  # fmt: skip
    for r in range(n_lanes):
        n = length[r]
        if n == 0:
            n_products[2] += 1
            n = gather_sequence(slot + r, log_node, row_class, step_ptr, work.row, work.edge_class, work.log_node)
            log_z[r] = tuple_chain_log(work.log_node[:n], edges.log_edge, work.edge_class, weight[r], arcs, scores.log_factor, work.row, p_node,
                                       edge_sum, arc_sum)
            bad = r if bad < 0 and not np.isfinite(log_z[r]) else bad
            continue
        log_z[r] = log_z_scaled(work.scale[:n, r], work.maxima[:n, r], edges.edge_max, work.classes[:n, r])
    return bad


@kernel
def shard_tuples(shard, w, dense, edges, arcs, scores, packing, layout, weight, work, tuple_work, log_z, grad, dense_grad, edge_sum, arc_sum,
                 n_products):
    """Expected counts of the sequences of one shard, and their log Z.

    grad[a, y] = sum_{t: a in x_t} weight x[a] p_node[t, y];  edge_sum, arc_sum: see tuple_backward, times the weights.

    Arguments: as `shard_likelihood`: shard, w (F,), dense (H, M or L), edges, packing, layout, weight (S',), work, out log_z (S',),
    grad (F,), dense_grad (H, M or L), edge_sum (K, M, M), overwritten; arcs, scores, tuple_work: see above; arc_sum (E,), overwritten; n_products
    int64 (3,): products with arcs, forward and backward, and sequences in the log form.
    Returns the packed number of the first sequence without a finite log Z, or -1. Cost: that of tuple_forward and tuple_backward.
    Source: Sokolovska et al. (2010), eq. (4), (5).
    """
    bad = -1
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    arc_sum[:] = 0.0
    n_products[:] = 0
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        log_node, p_node = work.log_node[: hi - lo], work.p_node[: hi - lo]
        batch_scores(b, w, dense, edges, packing, layout, log_node)
        for s in range(packing.slot_ptr[b], packing.slot_ptr[b + 1], tuple_work.length.size):
            n = min(tuple_work.length.size, packing.slot_ptr[b + 1] - s)
            n_bad = run_lanes(s - packing.slot_ptr[b], n, log_node, packing.row_class[lo:hi], step_ptr, edges, arcs, scores, weight[s : s + n],
                              tuple_work, log_z[s : s + n], p_node, edge_sum, arc_sum, n_products)
            bad = s + n_bad if bad < 0 and n_bad >= 0 else bad
        batch_gradient(b, p_node, layout.dense_val, layout.pair_val, layout, dense_grad, grad)
    return bad
