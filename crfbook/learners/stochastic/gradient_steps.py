"""Stochastic gradient descent, one sequence an update: with an L2 penalty in O(1),
and with a lazy L1 penalty.

Both minimise sum_i f_i(w) + penalty, f_i = -weight_i log p(y_i | x_i), as the mean over the n sequences of
f_i + penalty / n. An update costs as much as the sequence is long, however many weights there are.
`theta`, `layout` and `work`: see chain/sequence.py.

Stochastic average gradient with non-uniform sampling: the mean of the last known gradients,
one of them renewed a step.

    objective / n = 1/n sum_i f_i(w) + shrinkage / 2 |w|^2,  f_i = -weight_i log p(y_i | x_i),
    shrinkage = 2 c2 / n
    d = sum_i (gradient of f_i at i's last visit),
    w <- (1 - alpha shrinkage) w - (alpha / m) d,  m sequences seen so far

That step moves every weight, but d only changes where the sequence has features. So w is kept as scale (u -
lag d): the step is scale <- (1 - alpha shrinkage) scale, lag <- lag + alpha / (m scale), and when d changes
by D, u changes by lag D. Of the gradient of a sequence only its marginals are remembered. scale, lag, u and d
stand in `lazy`, a LazyWeights of averaged.py, and what is remembered in `memory`, a SagMemory. `u`, `d` and
`grad` (C,) are cells as `theta` in chain/sequence.py, which explains `layout` and `work` (also `direction`
and `trial`).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import add_gradient, score_gradient, score_sequence
from crfbook.chain.vector_math import add_row


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


SMALL_NORM = 1e-8  # |gradient|^2 below which rounding decides the search for a Lipschitz constant
SMALL_SCALE = 1e-3  # below it the weights are written out


@kernel
def write_out(lazy):
    """u <- scale (u - lag d), the weights themselves; scale <- 1, lag <- 0.

    Arguments: out: lazy, of which d is only read. Cost: C. Source: Schmidt et al. (2015), section 3.
    """
    scale, lag = lazy.factors
    for k in range(lazy.u.size):
        lazy.u[k] = scale * (lazy.u[k] - lag * lazy.d[k])
    lazy.factors[0], lazy.factors[1] = 1.0, 0.0


@kernel
def score_average(s, lazy, layout, work, trial):
    """Scores of sequence s at the weights scale (u - lag d), into work.log_node and work.log_edge.

    Arguments: s, layout, work as in `score_sequence`; lazy; work: trial, overwritten. Cost: two additions per
    stored (occurrence, weight) pair. Source: Schmidt et al. (2015), section 3.
    """
    scale, lag = lazy.factors
    score_sequence(s, lazy.u, scale, layout, work)
    if lag == 0.0:
        return
    score_sequence(s, lazy.d, -scale * lag, layout, trial)
    n = layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    add_row(trial.log_node[:n].reshape(-1), work.log_node[:n].reshape(-1))
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        add_row(trial.log_edge[k].reshape(-1), work.log_edge[k].reshape(-1))


@kernel
def take_squares(start, stop, grad):
    """Sum of grad[start:stop]^2; the cells become 0. Arguments: start, stop; out: grad (C,). Cost:
    stop - start. Source: chapter 05.
    """
    total = 0.0
    for k in range(start, stop):
        total += grad[k] * grad[k]
        grad[k] = 0.0
    return total


@kernel
def clear_gradient(s, layout, grad):
    """|grad|^2 of a gradient that only sequence s has added to; its cells become 0 again.

    Arguments: s, layout; out: grad (C,). Cost: the cells of its attributes, as often as they occur, and of
    its edge classes. Source: Schmidt et al. (2015), Algorithm 1.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    total = 0.0
    for h in layout.dense_id[layout.dense_ptr[first] : layout.dense_ptr[last]]:
        total += take_squares(h * M, (h + 1) * M, grad)
    for k in layout.pair_weight[layout.pair_ptr[first] : layout.pair_ptr[last]]:
        total += take_squares(H * M + k, H * M + k + 1, grad)
    n_before = grad.size - layout.edge_cell.size
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            total += take_squares(n_before + layout.edge_ptr[b], n_before + layout.edge_ptr[b + 1], grad)
    return total


@kernel
def search_lipschitz(s, loss, lipschitz, layout, work, direction, trial, grad):
    """The least L = lipschitz 2^j with f(w - g / L) <= f(w) - |g|^2 / (2 L),
    f = weight * loss of sequence s and g its gradient at w.

    Scores are linear in the weights: those of g are computed once, and a trial is one forward-backward.
    Arguments: s, layout, work after `score_gradient`, which returned loss; lipschitz > 0; work:
    direction, trial, overwritten; grad (C,), 0 before and after. Cost: three passes over the (occurrence,
    weight) pairs, 3 T L^2 a trial. Source: Schmidt et al. (2015), Algorithm 1.
    """
    weight, n = layout.weight[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    add_gradient(s, weight, layout, work, grad)
    score_sequence(s, grad, -1.0, layout, direction)
    squares = clear_gradient(s, layout, grad)
    if not squares > SMALL_NORM:
        return lipschitz
    while lipschitz < 1e100:
        for t in range(n):
            u, v, moved = work.log_node[t], direction.log_node[t], trial.log_node[t]
            for y in range(u.size):
                moved[y] = u[y] + v[y] / lipschitz
        for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
            u_edge, v_edge = work.log_edge[k].reshape(-1), direction.log_edge[k].reshape(-1)
            moved = trial.log_edge[k].reshape(-1)
            for c in range(moved.size):
                moved[c] = u_edge[c] + v_edge[c] / lipschitz
        value = score_gradient(s, layout, trial)
        if weight * value <= weight * loss - 0.5 * squares / lipschitz + 1e-12 * weight * abs(loss):
            break
        lipschitz *= 2.0
    return lipschitz


@kernel
def renew_lipschitz(s, loss, mean, layout, memory, work, direction, trial, grad):
    """memory.lipschitz[s] by a search; later ones start from 0.9 of what held,
    and are left out ever longer while nothing changes.

    A first search starts at half the mean of the others. If the j-th search in a row finds its start good
    enough, the next 2^(j-1) visits have none. Arguments: s, loss, layout, work, direction, trial, grad (C,)
    as in `search_lipschitz`; mean: of the constants so far, 0 if none; out: memory. Cost: that of
    `search_lipschitz`, rarely. Source: Schmidt et al. (2015), section 5.2.
    """
    if memory.skip[s] > 0:
        memory.skip[s] -= 1
        return
    first = memory.lipschitz[s] == 0.0
    start = memory.lipschitz[s] if not first else 0.5 * mean if mean > 0.0 else 1.0
    found = search_lipschitz(s, loss, start, layout, work, direction, trial, grad)
    if found > start or first:
        memory.lipschitz[s], memory.calm[s] = found, 0
    else:
        memory.lipschitz[s] = 0.9 * found
        memory.skip[s] = 2 ** min(memory.calm[s], 10)
        memory.calm[s] += 1


@kernel
def remember(s, layout, memory, work):
    """The gradient with respect to the scores of sequence s is stored;
    `work` keeps its change since the last visit.

    Arguments: s, layout; out: memory: node, edge; work: p_node, edge_sum <- new - old. Cost: T L, and the
    label pairs with a weight of the classes used. Source: Schmidt et al. (2015), section 3.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    for t in range(first, last):
        p, old = work.p_node[t - first], memory.node[t]
        for y in range(old.size):
            new = p[y]
            p[y] -= old[y]
            old[y] = new
    m = memory.edge_start[s]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        table = work.edge_sum[k].reshape(-1)
        for c in memory.pair[memory.pair_ptr[k] : memory.pair_ptr[k + 1]]:
            new = table[c]
            table[c] -= memory.edge[m]
            memory.edge[m] = new
            m += 1


@kernel
def sag_steps(order, first_pass, boldness, shrinkage, layout, memory, lazy, work, direction, trial, grad):
    """One step for each sequence of `order`; the weights are scale (u - lag d). Returns -1,
    or a sequence whose loss is not finite.

    alpha = (1 - boldness) / (L_max + shrinkage) + boldness / (L_mean + shrinkage), over the constants L_i of
    the sequences seen so far; the paper's boldness is 1/2, and 0 is the step that is safe however few and
    unlike the sequences are. A first pass visits every sequence once and fills the memory: with first_pass =
    1 it takes steps of plain stochastic gradient, alpha = 1 / (L_mean + shrinkage), with 2 none; 0:
    the steps above.

    Arguments: order int64 (n,), sequences that are not empty; boldness in [0, 1/2]; layout; out: memory,
    lazy; work: work, direction, trial, overwritten; grad (C,), 0 before and after. Cost: 3 T L^2
    multiply-adds and four additions per stored (occurrence, weight) pair of the sequences, and their
    searches. Source: Schmidt et al. (2015), Algorithm 1 and section 5.2.
    """
    lip_sum, lip_max, n_seen, factors = 0.0, 0.0, 0, lazy.factors
    for lip in memory.lipschitz:
        lip_sum, lip_max, n_seen = lip_sum + lip, max(lip_max, lip), n_seen + (lip > 0.0)
    for s in order:
        weight = layout.weight[s]
        score_average(s, lazy, layout, work, trial)
        loss = score_gradient(s, layout, work)
        if not np.isfinite(loss):
            return s
        memory.loss[s] = weight * loss
        before = memory.lipschitz[s]
        renew_lipschitz(s, loss, lip_sum / max(1, n_seen), layout, memory, work, direction, trial, grad)
        n_seen += before == 0.0
        lip_sum += memory.lipschitz[s] - before
        lip_max = max(lip_max, memory.lipschitz[s])
        remember(s, layout, memory, work)
        add_gradient(s, weight, layout, work, lazy.d)
        if factors[1] > 0.0:
            add_gradient(s, weight * factors[1], layout, work, lazy.u)
        if first_pass == 2:
            continue
        alpha = 1.0 / (lip_sum / n_seen + shrinkage)
        if first_pass == 0:
            alpha = boldness * alpha + (1.0 - boldness) / (lip_max + shrinkage)
        alpha = min(alpha, (1.0 - SMALL_SCALE) / shrinkage)
        if factors[0] * (1.0 - alpha * shrinkage) < SMALL_SCALE:
            write_out(lazy)
        factors[0] *= 1.0 - alpha * shrinkage
        if first_pass:
            add_gradient(s, -weight * alpha / factors[0], layout, work, lazy.u)
        else:
            factors[1] += alpha / (n_seen * factors[0])
    return -1
