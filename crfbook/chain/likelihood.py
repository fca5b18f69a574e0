"""Log-likelihood and expected feature counts of a shard: scores, forward-backward, gradient, batch by batch.

A batch goes through all three stages while it lies in the processor's cache. The gold labels appear nowhere:
sum_i score(y_i) = w . (gold counts), and those counts are constants that the objective subtracts once.
The NamedTuples `packing`, `layout` (packing.py), `edges` and `work` (objective.py) list their
arrays with shapes. M >= L is the number of labels padded to whole vector registers:
padding labels score -inf.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import add_edge_marginals_log, forward_backward_log, node_marginals_log
from crfbook.chain.forward_backward_batched import forward_backward_batched
from crfbook.chain.scores import dense_gradient, dense_scores, pair_gradient, pair_scores
from crfbook.chain.vector_math import copy_row


@kernel
def open_rows(step_ptr, row_set, bounds, log_node):
    """Scores before any attribute is added: hard constraints alone.

    log_node[t] = middle, or start at first tokens, + end at last ones, + the row of the token's label set

    Arguments: step_ptr int64 (T+1,) of a packed batch; row_set int32 (n,): row of bounds.label_sets for each
    row, or (0,); bounds: `Bounds` of data/constraints.py; out: log_node (n, M). Cost O(n M). Source: hard
    constraints as potentials of value 0, Sokolovska et al. (2010), eq. (1) with scores of -inf; Ratnaparkhi
    (1996), section 4, tag dictionary.
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
def gather_sequence(r, log_node, row_class, step_ptr, rows, classes, u):
    """Collect the rows of sequence r of a packed batch; returns their number n.

    Arguments: r; log_node (n', M), row_class (n',), step_ptr (T+1,); out, filled up to n <= T: rows int64
    (T,): row of the batch at each step; classes int32 (T,); u (T, M): scores. Cost O(n M). Source:
    chapter 02.
    """
    n = 0
    while n < step_ptr.size - 1 and step_ptr[n] + r < step_ptr[n + 1]:
        rows[n] = step_ptr[n] + r
        classes[n] = row_class[rows[n]]
        copy_row(log_node, rows[n], u, n)
        n += 1
    return n


@kernel
def redo_flagged(log_node, log_edge, row_class, step_ptr, weight, flags, log_z, p_node, edge_sum):
    """Log-domain forward-backward for the flagged sequences of a batch, in place of the scaled form.

    la[t,y] = u[t,y] + LSE_yp(la[t-1,yp] + log_edge[yp,y]); p_node = exp(la + lb - log_z);
    see forward_backward.

    Arguments: log_node (n, M), scores as they were before forward_backward_batched overwrote them;
    log_edge (K, M, M); row_class (n,); step_ptr (T+1,); weight, flags (B,); out: log_z (B,), p_node (n, M)
    = weight * marginals, edge_sum (K, M, M) +=, all as in forward_backward_batched, for flagged sequences
    only; a sequence without any path gets log_z = -inf and adds nothing. Cost: 3 T M^2 exps a sequence.
    Source: chapter 02.
    """
    T, M = step_ptr.size - 1, log_node.shape[1]
    rows = np.empty(T, np.int64)
    classes = np.empty(T, np.int32)
    u, log_alpha, log_beta, p = np.empty((T, M)), np.empty((T, M)), np.empty((T, M)), np.empty((T, M))
    for r in range(flags.size):
        if not flags[r]:
            continue
        n = gather_sequence(r, log_node, row_class, step_ptr, rows, classes, u)
        log_z[r] = forward_backward_log(u[:n], log_edge, classes[:n], log_alpha[:n], log_beta[:n])
        if not np.isfinite(log_z[r]):
            continue
        node_marginals_log(log_alpha[:n], log_beta[:n], log_z[r], p[:n])
        add_edge_marginals_log(
            u[:n], log_edge, classes[:n], log_alpha[:n], log_beta[:n], log_z[r], weight[r], edge_sum
        )
        for t in range(n):
            for y in range(M):
                p_node[rows[t], y] = weight[r] * p[t, y]


@kernel
def batch_scores(b, w, dense, edges, packing, layout, log_node):
    """log_node (n, M) of batch b: hard constraints, then dense rows, then the (weight, cell) pairs.

    Arguments: b, number of the batch; w (F,); dense (H, M or L); edges, packing, layout as in
    `shard_likelihood`; out: log_node (n, M), C order. Cost: see `dense_scores`, `pair_scores`.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    row_set = packing.row_set[packing.row_ptr[b] : packing.row_ptr[b + 1]]
    open_rows(step_ptr, row_set, edges.bounds, log_node)
    dense_scores(
        dense,
        layout.dense_id,
        layout.dense_row,
        layout.dense_val,
        layout.dense_ptr[b],
        layout.dense_ptr[b + 1],
        log_node,
    )
    pair_scores(
        w, layout.pair_weight, layout.pair_cell, layout.pair_val, layout.pair_ptr[b], layout.pair_ptr[b + 1],
        log_node.reshape(-1),
    )  # fmt: skip


@kernel
def batch_gradient(b, p_node, dense_val, pair_val, layout, dense_grad, grad):
    """Add the marginals of batch b to the sums of its attributes: the way back of `batch_scores`.

    Arguments: b, number of the batch; p_node (n, M), C order; dense_val, pair_val (occurrences,), or (0,) for
    all ones: values of the attributes as in `layout`, or their squares; layout; out: dense_grad (H, M or L),
    grad (F,), added to. Cost: see `dense_gradient`, `pair_gradient`. Source: Sokolovska et al. (2010), eq.
    (5).
    """
    dense_gradient(
        p_node,
        layout.dense_id,
        layout.dense_row,
        dense_val,
        layout.dense_ptr[b],
        layout.dense_ptr[b + 1],
        dense_grad,
    )
    pair_gradient(
        p_node.reshape(-1),
        layout.pair_weight,
        layout.pair_cell,
        pair_val,
        layout.pair_ptr[b],
        layout.pair_ptr[b + 1],
        grad,
    )


@kernel
def shard_likelihood(
    shard, w, dense, edges, packing, layout, weight, work, log_z, grad, dense_grad, edge_sum
):
    """Expected counts of the sequences of one shard, and their log Z.

    grad[a, y] = sum_{t: a in x_t} weight x[a] p_node[t, y]
    edge_sum[k, yp, y] = sum_{t of class k} weight p_edge

    Arguments: shard, its number; w (F,); dense (H, M or L), filled from w; edges, packing, layout (see
    above); weight (S',): weights of the sequences in packed order; work: arrays as long as the largest batch;
    out: log_z (S',); grad (F,), dense_grad (H, M or L), edge_sum (K, M, M): overwritten, the dense rows' part
    of grad stays 0. Returns the packed number of the first sequence without a finite log Z, or -1.
    Cost: 3 n M^2 multiply-adds, n M exps, two additions per stored (occurrence, weight) pair.
    Source: Sokolovska et al. (2010), eq. (4), (5).
    """
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    bad = -1
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
        n = hi - lo
        step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        group = slice(lo, hi) if packing.prev_row.size else slice(0, 0)
        log_node, p_node = work.log_node[:n], work.p_node[:n]
        flags = work.flags[: slots.stop - slots.start]
        batch_scores(b, w, dense, edges, packing, layout, log_node)
        n_flagged = forward_backward_batched(
            log_node, edges.psi_edge, edges.psi_edge_t, edges.edge_max, edges.edge_spread[0],
            packing.row_class[lo:hi], step_ptr, packing.class_start[b], packing.by_class[group],
            packing.by_step[group], packing.prev_row[group], weight[slots], log_z[slots], p_node, edge_sum,
            flags, work.alpha[:n], work.prev[:n], work.gain[:n], work.pair,
        )  # fmt: skip
        if n_flagged:
            batch_scores(b, w, dense, edges, packing, layout, log_node)
            redo_flagged(
                log_node, edges.log_edge, packing.row_class[lo:hi], step_ptr, weight[slots], flags,
                log_z[slots], p_node, edge_sum,
            )  # fmt: skip
            for s in range(slots.start, slots.stop):
                if bad < 0 and not np.isfinite(log_z[s]):
                    bad = s
        batch_gradient(b, p_node, layout.dense_val, layout.pair_val, layout, dense_grad, grad)
    return bad


@kernel
def add_tree(parts, out):
    """out[k] = parts[0, k] + parts[1, k] + ... as a binary tree whose shape depends on len(parts) only.

    ((p0 + p1) + (p2 + p3)) + ...: neighbours first, so the sum does not depend on who computed which part.
    Arguments: parts (P, F), overwritten; out: (F,), overwritten. Cost P F additions, in blocks that fit the
    first-level cache. Source: Blelloch (1990), "Prefix sums", section 1.
    """
    n_parts, block = parts.shape[0], 512
    for lo in range(0, out.size, block):
        hi = min(lo + block, out.size)
        stride = 1
        while stride < n_parts:
            for i in range(0, n_parts - stride, 2 * stride):
                for k in range(lo, hi):
                    parts[i, k] += parts[i + stride, k]
            stride *= 2
        for k in range(lo, hi):
            out[k] = parts[0, k]
