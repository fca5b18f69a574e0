"""The losses of losses.py over the packed batches of a shard: matrix products as in forward_backward_batched.

Sequential losses need no more than the log loss: once the forward pass knows log Z, the slope a = phi'(u)
becomes the weight that the backward pass starts from. Pointwise ones cost twice the matrix products.
Sequences that the scaled form cannot handle, or whose gold labels have less than 1e-100 of the probability,
go through the log form.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.edge_products import add_edge_sum, times_edges
from crfbook.chain.forward_backward_batched import backward_batched, erase_flagged, forward_batched
from crfbook.chain.likelihood import batch_gradient, batch_scores, gather_sequence
from crfbook.chain.losses.log_form import sequence_loss_log, value_and_slope
from crfbook.chain.vector_math import copy_row

# d = a / p is then at most 1e200 even for the exponential loss, and d alpha and d beta stay far from
# overflow.
SMALLEST_PROBABILITY = 1e-100


@kernel
def gold_scores(log_node, log_edge, row_class, step_ptr, labels, score):
    """score[r] = sum_t log_node[t, y_t] + sum_{t>=1} log_edge[c_t, y_{t-1},
    y_t] for each sequence of a packed batch.

    Arguments: log_node (n, M); log_edge (K, M, M) [class, previous, next]; row_class (n,); step_ptr (T+1,);
    labels (n,); out: score (B,), overwritten. Cost O(n). Source: Sokolovska et al. (2010), eq. (1).
    """
    score[:] = 0.0
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            r = i - step_ptr[t]
            score[r] += log_node[i, labels[i]]
            if t > 0:
                score[r] += log_edge[row_class[i], labels[step_ptr[t - 1] + r], labels[i]]


@kernel
def _subtract_gold(row_class, step_ptr, labels, slope, p_node, edge_sum):
    """p_node[i, y_i] -= slope[r] and edge_sum[c, yp, y] -= slope[r] along the gold paths of a batch."""
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            r = i - step_ptr[t]
            p_node[i, labels[i]] -= slope[r]
            if t > 0:
                edge_sum[row_class[i], labels[step_ptr[t - 1] + r], labels[i]] -= slope[r]


@kernel
def sequential_batched(
    log_node, edges, work, loss, row_class, step_ptr, class_start, by_class, by_step, prev_row, labels,
    weight, log_z, u, value, p_node, edge_sum,
):  # fmt: skip
    """Sequential losses of a packed batch and their gradients by the scores;
    returns how many sequences are flagged.

    u = log_z - score(y),  value = weight phi(u),  a = weight phi'(u)
    p_node[t] = a (marginals - onehot(y_t)),   edge_sum += a (expected - gold transitions)

    Arguments: log_node (n, M), overwritten; edges, work: the NamedTuples `Edges` and `LossWork` of
    chain/packing.py; loss; row_class, labels (n,); step_ptr (T+1,); class_start (K+1,), by_class, by_step,
    prev_row (n,) or (0,); weight (B,); out: log_z, u, value (B,), p_node (n, M), edge_sum (K, M, M) +=.
    Flagged sequences (work.flags) add nothing anywhere. Cost: forward_backward_batched and O(n). Source:
    Altun, Johnson and Hofmann (2003), eq. (3), (4).
    """
    n, B = labels.size, weight.size
    alpha, gain, prev, flags = work.alpha[:n], work.gain[:n], work.prev[:n], work.flags[:B]
    score, slope = work.score[:B], work.slope[:B]
    gold_scores(log_node, edges.log_edge, row_class, step_ptr, labels, score)
    n_flagged = forward_batched(
        log_node, edges.psi_edge, edges.edge_max, edges.edge_spread[0], row_class, step_ptr, by_step,
        log_z, flags, alpha, gain, prev, work.pair,
    )  # fmt: skip
    for r in range(B):
        value[r], slope[r] = 0.0, 0.0
        if flags[r] == 0 and weight[r] > 0.0:
            u[r] = log_z[r] - score[r]
            v, a = value_and_slope(u[r], loss)
            value[r], slope[r] = weight[r] * v, weight[r] * a
    backward_batched(
        log_node, edges.psi_edge_t, row_class, step_ptr, by_step, slope, alpha, gain, p_node, prev
    )
    add_edge_sum(
        alpha, log_node, edges.psi_edge, step_ptr, class_start, by_class, prev_row, edge_sum, prev, work.pair
    )
    _subtract_gold(row_class, step_ptr, labels, slope, p_node, edge_sum)
    return n_flagged


@kernel
def _events(lo, hi, alpha, beta, labels, weight, loss, u, value, slope, event, behind, flags):
    """For the rows lo..hi of a step: d[i] = weight a / p with p = alpha beta at the gold label, into event;
    behind += d beta there.

    Adds weight a to slope[r] and weight phi(u) to value[r]. Where p is too small for the scaled form,
    r is flagged and d is 0.
    """
    for i in range(lo, hi):
        r, y = i - lo, labels[i]
        event[i] = 0.0
        if flags[r] == 1 or weight[r] == 0.0:
            continue
        p = alpha[i, y] * beta[i, y]
        if not p > SMALLEST_PROBABILITY:
            flags[r] = 1
            continue
        u[i] = -np.log(p)
        v, a = value_and_slope(u[i], loss)
        value[r] += weight[r] * v
        slope[r] += weight[r] * a
        event[i] = weight[r] * a / p
        behind[i, y] += event[i] * beta[i, y]


@kernel
def _backward_events(
    psi_node, edges, row_class, step_ptr, by_step, labels, weight, loss, u, value, beta, work
):
    """beta[t-1] = P_t beta[t],  Bh[t-1] = d[t-1] beta[t-1] + P_t Bh[t],
    P_t = gain[t-1] psi_edge diag(psi_node[t]).

    beta starts from gain and not from 1 (see forward_backward_batched), so that alpha beta sums to one.
    Bh is work.behind.
    """
    alpha, gain, behind, step, prev = work.alpha, work.gain, work.behind, work.step, work.prev
    M, T = psi_node.shape[1], step_ptr.size - 1
    following = 0  # rows of step t that have a successor
    for t in range(T - 1, -1, -1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        for r in range(following, hi - lo):
            beta[lo + r, :] = gain[lo + r]
            behind[lo + r, :] = 0.0
        _events(
            lo, hi, alpha, beta, labels, weight, loss, u, value, work.slope, work.event, behind, work.flags
        )
        for i in range(lo, hi):
            f = gain[step_ptr[t - 1] + i - lo] if t > 0 else 0.0
            for y in range(M):
                # An unreachable state can have any beta, even an infinite one; nothing may use it.
                reached = alpha[i, y] > 0.0
                b = beta[i, y] if reached else 0.0
                bh = behind[i, y] if reached else 0.0
                beta[i, y] = b
                behind[i, y] = bh
                step[0, i - lo, y] = psi_node[i, y] * b * f
                step[1, i - lo, y] = psi_node[i, y] * bh * f
        if t > 0:
            before, following = step_ptr[t - 1], hi - lo
            times_edges(step[0], edges.psi_edge_t, following, row_class, by_step, lo, beta[before:lo], prev)
            times_edges(step[1], edges.psi_edge_t, following, row_class, by_step, lo, behind[before:lo], prev)


@kernel
def _forward_events(psi_node, edges, row_class, step_ptr, by_step, labels, p_node, work):
    """X[t] = total alpha[t] - Ah[t], Ah[t] = d[t] alpha[t] + Ah[t-1] @ P_t:
    so X[t] = X[t-1] @ P_t - d[t] alpha[t].

    p_node comes in as beta and leaves as the gradient  (X[t] + d[t] alpha[t]) beta[t] - alpha[t] Bh[t].  X is
    work.ahead. For the sums over edges, psi_node leaves as P_t's part v = psi_node beta gain,
    and work.behind as -psi_node Bh gain.
    """
    alpha, gain, ahead, behind = work.alpha, work.gain, work.ahead, work.behind
    M = psi_node.shape[1]
    for t in range(step_ptr.size - 1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        if t > 0:
            before = step_ptr[t - 1]
            times_edges(
                ahead[before:lo], edges.psi_edge, hi - lo, row_class, by_step, lo, ahead[lo:hi], work.prev
            )
        for i in range(lo, hi):
            r = i - lo
            f = gain[step_ptr[t - 1] + r] if t > 0 else 0.0
            x, bh, p, a, psi = ahead[i], behind[i], p_node[i], alpha[i], psi_node[i]
            if t == 0:
                for y in range(M):
                    x[y] = work.slope[r] * a[y]
            else:
                for y in range(M):
                    x[y] *= psi[y] * f
            for y in range(M):
                b = p[y]
                p[y] = x[y] * b - a[y] * bh[y]
                bh[y] *= -psi[y] * f
                psi[y] *= b * f
            x[labels[i]] -= work.event[i] * a[labels[i]]


@kernel
def pointwise_batched(
    log_node, edges, work, loss, row_class, step_ptr, class_start, by_class, by_step, prev_row, labels,
    weight, log_z, u, value, p_node, edge_sum,
):  # fmt: skip
    """Pointwise losses of a packed batch and their gradients by the scores;
    returns how many sequences are flagged.

    u[t] = -log p_node[t, y_t],  value = weight sum_t phi(u[t]),  a[t] = weight phi'(u[t]),
    d[t] = a[t] / p_node[t, y_t]
    p_node[t] = sum of a * marginals - the same given the event y_t;   edge_sum += likewise
    (see `sequence_loss_log`)

    Arguments: as `sequential_batched`: log_node (n, M), edges, row_class, labels (n,), step_ptr (T+1,),
    class_start (K+1,), by_class, by_step, prev_row (n,) or (0,), weight (B,), loss; out: log_z, value (B,), u
    (n,), p_node (n, M), edge_sum (K, M, M) +=; work as there. Cost: 6 n M^2 multiply-adds in matrix products,
    n M exps. Source: Altun, Johnson and Hofmann (2003), section 4.1; the sweep: Kakade,
    Teh and Roweis (2002).
    """
    n, B = labels.size, weight.size
    alpha, gain, prev, flags = work.alpha[:n], work.gain[:n], work.prev[:n], work.flags[:B]
    ahead, behind = work.ahead[:n], work.behind[:n]
    n_flagged = forward_batched(
        log_node, edges.psi_edge, edges.edge_max, edges.edge_spread[0], row_class, step_ptr, by_step,
        log_z, flags, alpha, gain, prev, work.pair,
    )  # fmt: skip
    value[:] = 0.0
    work.slope[:B] = 0.0
    _backward_events(
        log_node, edges, row_class, step_ptr, by_step, labels, weight, loss, u, value, p_node, work
    )
    if flags.sum() > n_flagged:
        n_flagged = erase_flagged(step_ptr, flags, log_z, log_node, alpha, gain)
    _forward_events(log_node, edges, row_class, step_ptr, by_step, labels, p_node, work)
    add_edge_sum(
        ahead, log_node, edges.psi_edge, step_ptr, class_start, by_class, prev_row, edge_sum, prev, work.pair
    )
    add_edge_sum(
        alpha, behind, edges.psi_edge, step_ptr, class_start, by_class, prev_row, edge_sum, prev, work.pair
    )
    return n_flagged


@kernel
def redo_flagged_losses(
    log_node, log_edge, row_class, step_ptr, labels, weight, loss, flags, log_z, u, value, p_node, edge_sum
):
    """`sequence_loss_log` for the flagged sequences of a batch, in place of the batched form.

    Arguments: log_node (n, M), scores as they were before exponentiation; log_edge (K, M, M); row_class,
    labels (n,); step_ptr (T+1,); weight, flags (B,); loss; out: log_z, value (B,), u (B,) or, if pointwise,
    (n,); p_node (n, M), edge_sum (K, M, M) +=, all for flagged sequences only; one without any path gets
    log_z = -inf and adds nothing. Cost: see `sequence_loss_log`. Source: chapter 04.
    """
    T, M = step_ptr.size - 1, log_node.shape[1]
    rows, classes, gold = np.empty(T, np.int64), np.empty(T, np.int32), np.empty(T, np.int32)
    scores, p, u_buf = np.empty((T, M)), np.empty((T, M)), np.zeros(T)
    for r in range(flags.size):
        if not flags[r]:
            continue
        n = gather_sequence(r, log_node, row_class, step_ptr, rows, classes, scores)
        for t in range(n):
            gold[t] = labels[rows[t]]
        value[r], log_z[r] = sequence_loss_log(
            scores[:n], log_edge, classes[:n], gold[:n], weight[r], loss, u_buf[:n], p[:n], edge_sum
        )
        if not loss.pointwise:
            u[r] = u_buf[0]
        for t in range(n):
            copy_row(p, t, p_node, rows[t])
            if loss.pointwise:
                u[rows[t]] = u_buf[t]


@kernel
def shard_losses(
    shard,
    w,
    dense,
    edges,
    packing,
    layout,
    weight,
    work,
    log_z,
    grad,
    dense_grad,
    edge_sum,
    loss,
    labels,
    u,
    value,
):
    """Loss of each sequence of one shard, and the gradient of their weighted sum:
    `shard_likelihood` for the other losses.

    grad[a, y] = sum_{t: a in x_t} x[a] d loss / d log_node[t, y]
    edge_sum[k, yp, y] = d loss / d log_edge[k, yp, y]

    Arguments: as `shard_likelihood`: w (F,), dense (H, M or L), weight (S',), out log_z (S',), grad (F,),
    dense_grad (H, M or L), edge_sum (K, M, M); and loss (see losses.py), labels int32 (N,) of the packed
    rows; out: u (S',), or (N,) if pointwise: -log p; value (S',): weight * loss * exp(-log_scale). Returns
    the first sequence whose log Z is not finite, or -1. Cost: see the batched kernels. Source: Altun,
    Johnson and Hofmann (2003), section 3.3.
    """
    grad[:] = 0.0
    dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    bad = -1
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
        rows, slots = slice(lo, hi), slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
        step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        group = rows if packing.prev_row.size else slice(0, 0)
        log_node, p_node = work.log_node[: hi - lo], work.p_node[: hi - lo]
        batch_scores(b, w, dense, edges, packing, layout, log_node)
        shared = (
            packing.row_class[rows], step_ptr, packing.class_start[b], packing.by_class[group],
            packing.by_step[group], packing.prev_row[group], labels[rows], weight[slots], log_z[slots],
        )  # fmt: skip
        if loss.pointwise:
            n_flagged = pointwise_batched(
                log_node, edges, work, loss, *shared, u[rows], value[slots], p_node, edge_sum
            )
        else:
            n_flagged = sequential_batched(
                log_node, edges, work, loss, *shared, u[slots], value[slots], p_node, edge_sum
            )
        if n_flagged:
            batch_scores(b, w, dense, edges, packing, layout, log_node)
            redo_flagged_losses(
                log_node, edges.log_edge, packing.row_class[rows], step_ptr, labels[rows], weight[slots],
                loss, work.flags[: slots.stop - slots.start], log_z[slots],
                u[rows] if loss.pointwise else u[slots], value[slots], p_node, edge_sum,
            )  # fmt: skip
            for s in range(slots.start, slots.stop):
                if bad < 0 and not np.isfinite(log_z[s]):
                    bad = s
        batch_gradient(b, p_node, layout.dense_val, layout.pair_val, layout, dense_grad, grad)
    return bad
