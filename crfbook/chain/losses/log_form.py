"""Four losses of a labelled sequence, one token or one path at a time, and their gradients in the log domain.

u = -log p, where p is the probability of the gold path (sequential) or of one gold label (pointwise):

    log: phi(u) = u
    exponential: phi(u) = e^u - 1 = 1/p - 1, linear beyond a clamp M:  e^M (1 + u - M) - 1

All gradients have one rule, a = phi'(u):  a (E[S] - S(gold))  and  sum_t a_t (E[S] - E[S | y_t = gold]).
Losses and gradients are multiplied by exp(-log_scale), so that 1/p may exceed float64. `loss` is the
NamedTuple of form.py: (pointwise, exponential, clamp, log_scale).
The fast form is in batched.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import add_edge_marginals_log, forward_backward_log, node_marginals_log
from crfbook.chain.scores import path_scores

# A slope above exp(500) counts as infinite: times all that multiplies it on the way to a gradient, it is
# still a float64.
LARGEST_SLOPE = 500.0


@kernel
def value_and_slope(u, loss):
    """(phi(u), phi'(u)) exp(-log_scale) for u >= 0; u below 0 is rounding and counts as 0.

    With m = min(u, M):  phi(u) = e^m ((u - m) + 1 - e^-m),  phi'(u) = e^m.  Where m - log_scale > 500 the
    value is inf and the slope stays e^500: finite, of the right direction,
    for a line search that is told to go back.

    Arguments: u, a number in nats; loss, see above. Cost: two exps. Source: Altun, Johnson and Hofmann
    (2003), eq. (1), (2); the clamp is ours.
    """
    u = max(u, 0.0)
    if not loss.exponential:
        return u, 1.0
    m = min(u, loss.clamp)
    if m - loss.log_scale > LARGEST_SLOPE:
        return np.inf, np.exp(LARGEST_SLOPE)
    slope = np.exp(m - loss.log_scale)
    return slope * ((u - m) - np.expm1(-m)), slope


@kernel
def _log_sum(x):
    """LSE x = m + log sum exp(x - m), m = max x; -inf if m is -inf."""
    m = -np.inf
    for v in x:
        m = max(m, v)
    if m == -np.inf:
        return m
    total = 0.0
    for v in x:
        total += np.exp(v - m)
    return m + np.log(total)


@kernel
def _add_events(log_node, log_edge, edge_class, labels, log_d, log_alpha, log_beta, log_ah, log_bh):
    """log_ah, log_bh (T, L): the events y_t = gold, each weighted exp(log_d[t]),
    carried forward and backward.

    Ah[t] = d[t] alpha[t] at the gold label + Ah[t-1] @ P_t;   Bh[t-1] = d[t-1] beta[t-1] there + P_t @ Bh[t],
    all in logarithms.
    """
    T, L = log_node.shape
    work = np.empty(L)
    log_ah[:, :] = -np.inf
    log_bh[:, :] = -np.inf
    for t in range(T):
        if t > 0:
            for y in range(L):
                for yp in range(L):
                    work[yp] = log_ah[t - 1, yp] + log_edge[edge_class[t], yp, y]
                log_ah[t, y] = log_node[t, y] + _log_sum(work)
        y = labels[t]
        log_ah[t, y] = np.logaddexp(log_ah[t, y], log_d[t] + log_alpha[t, y])
    for t in range(T - 1, -1, -1):
        if t < T - 1:
            for yp in range(L):
                for y in range(L):
                    work[y] = log_edge[edge_class[t + 1], yp, y] + log_node[t + 1, y] + log_bh[t + 1, y]
                log_bh[t, yp] = _log_sum(work)
        y = labels[t]
        log_bh[t, y] = np.logaddexp(log_bh[t, y], log_d[t] + log_beta[t, y])


@kernel
def _pointwise_gradient(log_node, log_edge, edge_class, total, weight, chain, log_z, grad_node, grad_edge):
    """weight (total E[S] - events): see `sequence_loss_log`. `chain` = (log_alpha, log_beta, log_ah,
    log_bh).
    """
    T, L = log_node.shape
    log_alpha, log_beta, log_ah, log_bh = chain
    for t in range(T):
        for y in range(L):
            alpha, beta = log_alpha[t, y], log_beta[t, y] - log_z
            ahead, behind = np.exp(log_ah[t, y] + beta), np.exp(alpha + log_bh[t, y] - log_z)
            grad_node[t, y] += weight * (total * np.exp(alpha + beta) - ahead - behind)
        if t == 0:
            continue
        k = edge_class[t]
        for yp in range(L):
            for y in range(L):
                step = log_edge[k, yp, y] + log_node[t, y] - log_z
                alpha, beta = log_alpha[t - 1, yp] + step, log_beta[t, y]
                ahead, behind = np.exp(log_ah[t - 1, yp] + step + beta), np.exp(alpha + log_bh[t, y])
                grad_edge[k, yp, y] += weight * (total * np.exp(alpha + beta) - ahead - behind)


@kernel
def sequence_loss_log(log_node, log_edge, edge_class, labels, weight, loss, u, grad_node, grad_edge):
    """(weight * loss, log_z) of one sequence and the gradient by its scores;
    (0, log_z) if log_z is not finite.

    sequential: u[0] = log_z - score(y),  a = phi'(u),  grad_node[t] = a (p_node[t] - onehot(y_t)), edges so
    pointwise:  u[t] = -log p_node[t, y_t],  a_t = phi'(u_t),  d_t = a_t / p_node[t, y_t],  total = sum_t a_t
        Ah[t] = d_t alpha[t] at y_t + Ah[t-1] @ P_t,     Bh[t-1] = d_{t-1} beta[t-1] at y_{t-1} + P_t @ Bh[t]
        grad_node[t] = total p_node[t] - (Ah[t] beta[t] + alpha[t] Bh[t] - d_t p_node[t] at y_t)
        grad_edge[k, yp, y] = sum_t total p_edge
                              - (Ah[t-1,yp] P_t[yp,y] beta[t,y] + alpha[t-1,yp] P_t[yp,y] Bh[t,y])

    Arguments: log_node (T, L), log_edge (K, L, L) [class, previous, next], edge_class (T,), labels (T,),
    weight, loss (see above); out: u (T,), only its first entry if sequential; grad_node (T, L), overwritten;
    grad_edge (K, L, L), added to. Cost: 3 T L^2 exps, pointwise 7 T L^2. Source: Altun, Johnson and Hofmann
    (2003), eq. (1)-(4) and section 4.1; the sweep in O(T L^2): Kakade, Teh and Roweis (2002).
    """
    T, L = log_node.shape
    u[:], grad_node[:, :] = 0.0, 0.0
    log_alpha, log_beta = np.empty((T, L)), np.empty((T, L))
    log_ah, log_bh = np.empty((T, L)), np.empty((T, L))
    log_z = forward_backward_log(log_node, log_edge, edge_class, log_alpha, log_beta)
    if not np.isfinite(log_z) or weight == 0.0:
        return 0.0, log_z
    value, total = 0.0, 0.0
    if not loss.pointwise:
        score = np.empty(1)
        path_scores(log_node, log_edge, edge_class, labels, np.array([0, T]), score)
        u[0] = log_z - score[0]
        value, slope = value_and_slope(u[0], loss)
        node_marginals_log(log_alpha, log_beta, log_z, grad_node)
        grad_node *= weight * slope
        add_edge_marginals_log(
            log_node, log_edge, edge_class, log_alpha, log_beta, log_z, weight * slope, grad_edge
        )
        for t in range(T):
            grad_node[t, labels[t]] -= weight * slope
            if t > 0:
                grad_edge[edge_class[t], labels[t - 1], labels[t]] -= weight * slope
        return weight * value, log_z
    log_d = np.empty(T)
    for t in range(T):
        y = labels[t]
        u[t] = log_z - log_alpha[t, y] - log_beta[t, y]
        v, slope = value_and_slope(u[t], loss)
        value += v
        total += slope
        log_d[t] = np.log(slope) + u[t]
        grad_node[t, y] = weight * slope
    _add_events(log_node, log_edge, edge_class, labels, log_d, log_alpha, log_beta, log_ah, log_bh)
    chain = log_alpha, log_beta, log_ah, log_bh
    _pointwise_gradient(log_node, log_edge, edge_class, total, weight, chain, log_z, grad_node, grad_edge)
    return weight * value, log_z
