"""Log-likelihood and expected feature counts of a shard with sparse transitions; beside likelihood.py, stage by stage the same.

No table of all classes exists: a sequence that needs the log domain gets one table at a time, made from the weights.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.curvature import spread_rows
from crfbook.kernels.forward_backward import add_edge_marginals_log, forward_backward_log, node_marginals_log
from crfbook.kernels.likelihood import batch_scores, gather_sequence
from crfbook.kernels.scores import dense_gradient, pair_gradient
from crfbook.kernels.sparse_counts import add_table, edge_counts
from crfbook.kernels.sparse_edges import class_scores
from crfbook.kernels.sparse_forward_backward import sparse_backward, sparse_forward


@kernel
def sparse_log_forward(u, classes, edges, log_alpha, table):
    """log_alpha[t,y] = u[t,y] + LSE_yp(log_alpha[t-1,yp] + score[yp,y]), tables made one at a time; returns log_z.

    Each step is `forward_backward_log` of two tokens. Arguments: u (T, M); classes int32 (T,); edges; out: log_alpha (T, M);
    work: table (1, M, M). Cost: 2 T M^2 exps. Source: Lafferty, McCallum and Pereira (2001), section 3.
    """
    T, M = u.shape
    two, out, ahead, zero = np.zeros((2, M)), np.zeros((2, M)), np.zeros((2, M)), np.zeros(2, np.int32)
    log_alpha[0] = u[0]
    log_z = forward_backward_log(u[:1], table, zero, out, ahead)
    for t in range(1, T):
        class_scores(classes[t], edges.class_ptr, edges.class_attr, edges.attr_ptr, edges.attr_code, edges.attr_log,
                     edges.log_base, edges.n_labels[0], table[0])  # fmt: skip
        two[0], two[1] = log_alpha[t - 1], u[t]
        log_z = forward_backward_log(two, table, zero, out, ahead)
        log_alpha[t] = out[1]
    return log_z


@kernel
def sparse_log_backward(u, classes, edges, log_alpha, log_z, weight, edge_ptr, edge_prev, edge_next, log_beta, grad, base_sum, table):
    """log_beta[t-1,yp] = LSE_y(score[yp,y] + u[t,y] + log_beta[t,y]), and expected counts of the edge weights on the way.

    Arguments: u, log_alpha (T, M), classes (T,), edges, log_z, table (1, M, M) as in `sparse_log_forward`; weight: of the
    sequence; edge_ptr (B+1,), edge_prev, edge_next (n_edge,): FeatureSet, (1,), (0,), (0,) if nothing is asked; out: log_beta
    (T, M); grad (n_edge,), base_sum (M, M), added to. Cost: 3 T M^2 exps. Source: Lafferty, McCallum and Pereira (2001), section 3.
    """
    T, M = u.shape
    L = edges.n_labels[0]
    two, out, ahead, zero = np.zeros((2, M)), np.zeros((2, M)), np.zeros((2, M)), np.zeros(2, np.int32)
    pair = np.zeros((1, M, M))
    log_beta[T - 1] = 0.0
    for t in range(T - 1, 0, -1):
        k = classes[t]
        class_scores(k, edges.class_ptr, edges.class_attr, edges.attr_ptr, edges.attr_code, edges.attr_log,
                     edges.log_base, L, table[0])  # fmt: skip
        two[0], two[1] = log_alpha[t - 1], u[t] + log_beta[t]
        total = forward_backward_log(two, table, zero, out, ahead)
        log_beta[t - 1] = ahead[0]
        if grad.size + edge_prev.size > 0:
            pair[:] = 0.0
            add_edge_marginals_log(two, table, zero, out, ahead, total, weight, pair)
            base_sum += pair[0]
            for j in range(edges.class_ptr[k], edges.class_ptr[k + 1]):
                b = edges.class_attr[j]
                if b > 0 and b < edge_ptr.size - 1:
                    add_table(pair[0], edge_ptr[b], edge_ptr[b + 1], edge_prev, edge_next, L, grad)


@kernel
def redo_sparse(log_node, edges, row_class, step_ptr, weight, flags, edge_ptr, edge_prev, edge_next, log_z, p_node, grad, base_sum):
    """Log-domain forward-backward for the flagged sequences of a batch, in place of the scaled form: see `redo_flagged`.

    Arguments: log_node (n, M), scores as before `sparse_forward` overwrote them; edges; row_class (n,), step_ptr (T+1,);
    weight, flags (B,); edge_ptr (B'+1,), edge_prev, edge_next (n_edge,); out: log_z (B,), p_node (n, M), grad (n_edge,),
    base_sum (M, M). A sequence without any path gets log_z = -inf and adds nothing. Cost: 5 T M^2 exps a sequence. Source: chapter 06.
    """
    T, M = step_ptr.size - 1, log_node.shape[1]
    rows, classes = np.empty(T, np.int64), np.empty(T, np.int32)
    u, log_alpha, log_beta, p = np.empty((T, M)), np.empty((T, M)), np.empty((T, M)), np.empty((T, M))
    table = np.empty((1, M, M))
    for r in range(flags.size):
        if not flags[r]:
            continue
        n = gather_sequence(r, log_node, row_class, step_ptr, rows, classes, u)
        log_z[r] = sparse_log_forward(u[:n], classes, edges, log_alpha[:n], table)
        if not np.isfinite(log_z[r]):
            continue
        sparse_log_backward(u[:n], classes, edges, log_alpha, log_z[r], weight[r], edge_ptr, edge_prev, edge_next,
                            log_beta[:n], grad, base_sum, table)  # fmt: skip
        node_marginals_log(log_alpha[:n], log_beta[:n], log_z[r], p[:n])
        for t in range(n):
            for y in range(M):
                p_node[rows[t], y] = weight[r] * p[t, y]


@kernel
def sparse_batch(b, w, dense, edges, packing, layout, weight, work, part, log_z, n_products):
    """Scores, forward and backward vectors of batch b, left in `work`; returns how many sequences are flagged.

    Arguments: b, its number; w (F,); dense (H, M or L); edges: a SparseEdges; packing, layout, weight (S',), work as in
    `shard_likelihood`; part (>= n, M): work; out: log_z (S',); n_products int64 (2,), added to: products with entries, forward
    and backward. work.alpha, work.gain, work.p_node, work.flags: see `sparse_backward`; work.log_node holds v.
    Cost: see `sparse_forward`. Source: Sokolovska et al. (2010), eq. (9).
    """
    lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
    slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
    n = hi - lo
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    row_class, by_step = packing.row_class[lo:hi], packing.by_step[lo:hi]
    log_node, alpha, gain, buf = work.log_node[:n], work.alpha[:n], work.gain[:n], work.prev[:n]
    batch_scores(b, w, dense, edges, packing, layout, log_node)
    n_flagged = sparse_forward(
        log_node, edges, row_class, step_ptr, by_step, log_z[slots], work.flags[: slots.stop - slots.start], alpha, gain,
        part[:n], buf, work.pair, n_products,
    )  # fmt: skip
    sparse_backward(
        log_node, edges, row_class, step_ptr, by_step, weight[slots], alpha, gain, work.p_node[:n], part[:n], buf, work.pair,
        n_products,
    )  # fmt: skip
    return n_flagged


@kernel
def sparse_shard_likelihood(
    shard, w, dense, edges, packing, layout, weight, work, part, table, edge_ptr, edge_prev, edge_next, whole, log_z, grad,
    dense_grad, edge_grad, base_sum, n_products,
):  # fmt: skip
    """Expected counts of the sequences of one shard, and their log Z: `shard_likelihood` with sparse transitions.

    Arguments: shard, its number; w (F,); dense (H, M or L); edges: a SparseEdges; packing, layout, weight (S',), work as in
    `shard_likelihood`; part (n, M), table (M, M): work; edge_ptr (B+1,), edge_prev, edge_next (n_edge,), whole: see
    `edge_counts`; out: log_z (S',); grad (n_node,), dense_grad (H, M or L), edge_grad (n_edge,), base_sum (M, M), n_products
    int64 (2,): overwritten. Returns the packed number of the first sequence without a finite log Z, or -1.
    Cost: see `sparse_forward`, `edge_counts`. Source: Sokolovska et al. (2010), eq. (4), (5), (9).
    """
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_grad[:] = 0.0
    base_sum[:] = 0.0
    n_products[:] = 0
    bad = -1
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
        n = hi - lo
        log_node, p_node = work.log_node[:n], work.p_node[:n]
        n_flagged = sparse_batch(b, w, dense, edges, packing, layout, weight, work, part, log_z, n_products)
        edge_counts(
            work.alpha[:n], log_node, edges, packing.class_start[b], packing.by_class[lo:hi], packing.prev_row[lo:hi], edge_ptr,
            edge_prev, edge_next, whole, edge_grad, base_sum, work.prev[:n], work.pair, table,
        )  # fmt: skip
        if n_flagged:
            step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
            batch_scores(b, w, dense, edges, packing, layout, log_node)
            redo_sparse(
                log_node, edges, packing.row_class[lo:hi], step_ptr, weight[slots], work.flags, edge_ptr, edge_prev, edge_next,
                log_z[slots], p_node, edge_grad, base_sum,
            )  # fmt: skip
            for s in range(slots.start, slots.stop):
                if bad < 0 and not np.isfinite(log_z[s]):
                    bad = s
        dense_gradient(
            p_node, layout.dense_id, layout.dense_row, layout.dense_val, layout.dense_ptr[b], layout.dense_ptr[b + 1],
            dense_grad,
        )  # fmt: skip
        pair_gradient(
            p_node.reshape(-1), layout.pair_weight, layout.pair_cell, layout.pair_val, layout.pair_ptr[b],
            layout.pair_ptr[b + 1], grad,
        )  # fmt: skip
    return bad


@kernel
def sparse_shard_curvature(
    shard, w, dense, edges, squared, packing, layout, weight, work, part, table, edge_ptr, edge_prev, edge_next, whole, log_z,
    grad, dense_grad, edge_grad, base_sum, squares_buf, base_squares_buf, n_products,
):  # fmt: skip
    """Sums of variances in the places where `sparse_shard_likelihood` leaves expected counts: `shard_curvature`, sparse.

    The sum of p_edge^2 has the form of an expected count, with alpha^2, v^2 and exp(2 weights): `squared` is the SparseEdges of
    2 w. Arguments as in `sparse_shard_likelihood`: w (F,), dense (H, M or L), weight (S',), part (n, M), table (M, M), edge_ptr
    (B+1,), edge_prev, edge_next (n_edge,), log_z (S',), grad (n_node,), dense_grad (H, M or L), edge_grad (n_edge,), base_sum
    (M, M), n_products (2,); work: squares_buf (n_edge,), base_squares_buf (M, M). Sequences that need the log form are left out.
    Returns -1. Cost: twice `edge_counts` more than that. Source: spec A.8 without covariances.
    """
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_grad[:] = 0.0
    base_sum[:] = 0.0
    squares_buf[:] = 0.0
    base_squares_buf[:] = 0.0
    dense_val, pair_val = layout.dense_val * layout.dense_val, layout.pair_val * layout.pair_val
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
        n = hi - lo
        v, p_node, alpha = work.log_node[:n], work.p_node[:n], work.alpha[:n]
        sparse_batch(b, w, dense, edges, packing, layout, weight, work, part, log_z, n_products)
        by_class, prev_row = packing.by_class[lo:hi], packing.prev_row[lo:hi]
        edge_counts(alpha, v, edges, packing.class_start[b], by_class, prev_row, edge_ptr, edge_prev, edge_next, whole,
                    edge_grad, base_sum, work.prev[:n], work.pair, table)  # fmt: skip
        step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        spread_rows(step_ptr, weight[slots], p_node, alpha, v)
        edge_counts(alpha, v, squared, packing.class_start[b], by_class, prev_row, edge_ptr, edge_prev, edge_next, whole,
                    squares_buf, base_squares_buf, work.prev[:n], work.pair, table)  # fmt: skip
        dense_gradient(
            p_node, layout.dense_id, layout.dense_row, dense_val, layout.dense_ptr[b], layout.dense_ptr[b + 1], dense_grad
        )
        pair_gradient(
            p_node.reshape(-1), layout.pair_weight, layout.pair_cell, pair_val, layout.pair_ptr[b], layout.pair_ptr[b + 1],
            grad,
        )  # fmt: skip
    edge_grad -= np.minimum(edge_grad, squares_buf)
    base_sum -= np.minimum(base_sum, base_squares_buf)
    return -1
