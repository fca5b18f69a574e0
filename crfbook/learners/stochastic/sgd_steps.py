"""Stochastic gradient descent, one sequence an update: with an L2 penalty in O(1),
and with a lazy L1 penalty.

Both minimise sum_i f_i(w) + penalty, f_i = -weight_i log p(y_i | x_i), as the mean over the n sequences of
f_i + penalty / n. An update costs as much as the sequence is long, however many weights there are.
`theta`, `layout` and `work`: see chain/sequence.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import add_gradient, score_gradient, score_sequence


@kernel
def sgd_steps(order, eta0, shrinkage, n_done, scale, layout, work, theta):
    """One update for each sequence of `order`; the weights are scale * theta. Returns (sum of losses, scale).

    eta_t = eta0 / (1 + shrinkage eta0 t),  weights <- (1 - shrinkage eta_t) weights - eta_t g_i,  shrinkage =
    2 c2 / n: scale <- (1 - shrinkage eta_t) scale,  theta <- theta - (eta_t / scale) g_i, so that the shrink
    costs O(1). eta_t is Bottou's 1 / (shrinkage (t0 + t)) with t0 = 1 / (shrinkage eta0), and eta0 throughout
    if there is no penalty. A loss is taken at the weights before its own update. Stops at a sequence whose
    loss is not finite; the sum is not finite then.
    With eta0 = 0 nothing moves and the sum is the loss of the weights.

    Arguments: order int64 (n,), sequences that are not empty; eta0; shrinkage < 1 / eta0; n_done: updates
    before; scale > 0; layout, work; out: theta (C,), updated. Cost: 3 T L^2 multiply-adds and two additions
    per stored (occurrence, weight) pair of the sequences. Source: Bottou (2010), "Large-scale machine
    learning with stochastic gradient descent".
    """
    total = 0.0
    for j in range(order.size):
        s = order[j]
        score_sequence(s, theta, scale, layout, work)
        total += layout.weight[s] * score_gradient(s, layout, work)
        if not np.isfinite(total):
            break
        if eta0 > 0.0:
            eta = eta0 / (1.0 + shrinkage * eta0 * (n_done + j))
            scale *= 1.0 - shrinkage * eta
            add_gradient(s, -layout.weight[s] * eta / scale, layout, work, theta)
    return total, scale


@kernel
def clip_cells(start, stop, due, theta, received):
    """The L1 penalty that cells start:stop have not received yet.

    z = w_k;  w_k <- max(0, z - (due + q_k)) if z > 0, min(0, z + (due - q_k)) if z < 0;  q_k <- q_k + w_k -
    z. due = sum of all penalties so far; q_k, `received`, is what w_k has had of it, with its sign: |q_k| <=
    due. A second time changes nothing, so an attribute may occur several times in a sequence.
    Arguments: start, stop, due; out: theta, received (C,), updated. Cost: stop - start. Source: Tsuruoka,
    Tsujii and Ananiadou (2009), figure 2.
    """
    for k in range(start, stop):
        z = theta[k]
        if z > 0.0:
            theta[k] = max(0.0, z - (due + received[k]))
        elif z < 0.0:
            theta[k] = min(0.0, z + (due - received[k]))
        received[k] += theta[k] - z


@kernel
def clip_sequence(s, due, j, layout, clipped_buf, theta, received):
    """`clip_cells` for all cells that the scores of sequence s read.

    Arguments: s; due, see `clip_cells`; j: number of the update; layout; work: clipped_buf int64 (H,): the
    last update before which a dense row was clipped; out: theta, received (C,). Cost: one clip per stored
    (occurrence, weight) pair at most. Source: Tsuruoka, Tsujii and Ananiadou (2009), figure 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    for h in layout.dense_id[layout.dense_ptr[first] : layout.dense_ptr[last]]:
        if clipped_buf[h] != j:
            clipped_buf[h] = j
            clip_cells(h * M, (h + 1) * M, due, theta, received)
    for k in layout.pair_weight[layout.pair_ptr[first] : layout.pair_ptr[last]]:
        clip_cells(H * M + k, H * M + k + 1, due, theta, received)
    n_before = theta.size - layout.edge_cell.size
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            clip_cells(n_before + layout.edge_ptr[b], n_before + layout.edge_ptr[b + 1], due, theta, received)


@kernel
def sgd_l1_steps(order, eta0, decay, penalty, n_done, due, layout, work, theta, received):
    """One update for each sequence of `order` with a cumulative L1 penalty. Returns (sum of losses, due).

    eta_k = eta0 decay^k,  w <- w - eta_k g_i,  due <- due + eta_k penalty,  penalty = c1 / n, and every
    weight is clipped to what is due (`clip_cells`): here those that a sequence reads, before they are read,
    which gives the same numbers as clipping all of them after each update.

    Arguments: order (n,), n_done, layout, work and the sum as in `sgd_steps`; eta0; decay: factor of one
    update; penalty; due: the sum of penalties so far; out: theta, received (C,), updated; `clip_cells` of all
    of them gives the weights to use elsewhere. Cost: as `sgd_steps`, `clip_sequence`, and H once. Source:
    Tsuruoka, Tsujii and Ananiadou (2009), figure 2.
    """
    total, clipped_buf = 0.0, np.full(layout.exists.shape[0], -1)
    for j in range(order.size):
        s = order[j]
        clip_sequence(s, due, j, layout, clipped_buf, theta, received)
        score_sequence(s, theta, 1.0, layout, work)
        total += layout.weight[s] * score_gradient(s, layout, work)
        if not np.isfinite(total):
            break
        eta = eta0 * decay ** (n_done + j)
        due += eta * penalty
        add_gradient(s, -layout.weight[s] * eta, layout, work, theta)
    return total, due
