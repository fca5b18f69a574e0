"""Forward-backward for one sequence, in two forms: in logarithms (the reference) and scaled (the fast one).

Everywhere: log_node (T, L), log_edge (K, L, L) as [class, previous, next], edge_class (T,) = class of the
transition INTO token t (its first entry is not read). T >= 1. Forbidden = -inf. Scores are never NaN or +inf.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import copy_row, exp_inplace

# When the scaled forms may be trusted, see forward_backward_scaled.
MAX_SPREAD = 300.0
SMALLEST_MASS = 1e-150


@kernel
def forward_backward_log(log_node, log_edge, edge_class, log_alpha, log_beta):
    """Forward and backward vectors in the log domain; returns log_z, -inf if every path is forbidden.

    log_alpha[0] = log_node[0],  log_alpha[t,y] = log_node[t,y] + LSE_yp(log_alpha[t-1,yp] + log_edge[yp,y])
    log_beta[T-1] = 0,  log_beta[t-1,yp] = LSE_y(log_edge[yp,y] + log_node[t,y] + log_beta[t,y])
    log_z = LSE_y log_alpha[T-1,y];   LSE v = m + log sum exp(v - m) with m = max v, and -inf if m is -inf.

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : (T,)
    Out:
        log_alpha : (T, L)
        log_beta : (T, L)
    Cost: 2 T L^2 exps.
    Source: Lafferty, McCallum and Pereira (2001), section 3.
    """
    T, L = log_node.shape
    copy_row(log_node, 0, log_alpha, 0)
    for t in range(1, T):
        k = edge_class[t]
        for y in range(L):
            m = -np.inf
            for yp in range(L):
                m = max(m, log_alpha[t - 1, yp] + log_edge[k, yp, y])
            total = 0.0
            if m > -np.inf:
                for yp in range(L):
                    total += np.exp(log_alpha[t - 1, yp] + log_edge[k, yp, y] - m)
            log_alpha[t, y] = log_node[t, y] + m + np.log(total) if total > 0.0 else -np.inf
    for y in range(L):
        log_beta[T - 1, y] = 0.0
    for t in range(T - 1, 0, -1):
        k = edge_class[t]
        for yp in range(L):
            m = -np.inf
            for y in range(L):
                m = max(m, log_edge[k, yp, y] + log_node[t, y] + log_beta[t, y])
            total = 0.0
            if m > -np.inf:
                for y in range(L):
                    total += np.exp(log_edge[k, yp, y] + log_node[t, y] + log_beta[t, y] - m)
            log_beta[t - 1, yp] = m + np.log(total) if total > 0.0 else -np.inf
    m, total = np.max(log_alpha[T - 1]), 0.0
    if m == -np.inf:
        return -np.inf
    for y in range(L):
        total += np.exp(log_alpha[T - 1, y] - m)
    return m + np.log(total)


@kernel
def node_marginals_log(log_alpha, log_beta, log_z, p_node):
    """p_node[t,y] = exp(log_alpha[t,y] + log_beta[t,y] - log_z); zeros if log_z = -inf.

    For every t, LSE_y(log_alpha[t,y] + log_beta[t,y]) = log_z but for rounding, which at scores of 1e12 is
    1e-4 nats. So each row is divided by its own sum: probabilities sum to one however large the scores are.

    Arguments:
        log_alpha, log_beta : (T, L) and log_z of forward_backward_log
    Out:
        p_node : (T, L)
    Cost: T L exps.
    Source: Rabiner (1989), section III, in logarithms.
    """
    T, L = log_alpha.shape
    for t in range(T):
        high, total = -np.inf, 0.0
        for y in range(L):
            p_node[t, y] = log_alpha[t, y] + log_beta[t, y] if log_z > -np.inf else -np.inf
            high = max(high, p_node[t, y])
        for y in range(L):
            p_node[t, y] = np.exp(p_node[t, y] - high) if p_node[t, y] > -np.inf else 0.0
            total += p_node[t, y]
        for y in range(L):
            p_node[t, y] = p_node[t, y] / total if total > 0.0 else 0.0


@kernel
def edge_marginal_log(t, log_node, log_edge, edge_class, log_alpha, log_beta, log_z, p_edge):
    """p_edge[yp,y] = p(y_{t-1} = yp, y_t = y), t >= 1; zeros if log_z = -inf.

    p_edge[yp,y] = exp(log_alpha[t-1,yp] + log_edge[yp,y] + log_node[t,y] + log_beta[t,y] - log_z)
    As in node_marginals_log, the sum of the table itself stands for log_z.

    Arguments:
        t : >= 1
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : (T,)
        log_alpha, log_beta : (T, L)
        log_z : of forward_backward_log
    Out:
        p_edge : (L, L) as [previous, next]
    Cost: L^2 exps.
    Source: Rabiner (1989), section III, in logarithms.
    """
    L, k = log_node.shape[1], edge_class[t]
    high, total = -np.inf, 0.0
    for yp in range(L):
        for y in range(L):
            v = log_alpha[t - 1, yp] + log_edge[k, yp, y] + log_node[t, y] + log_beta[t, y]
            p_edge[yp, y] = v if log_z > -np.inf else -np.inf
            high = max(high, p_edge[yp, y])
    for yp in range(L):
        for y in range(L):
            p_edge[yp, y] = np.exp(p_edge[yp, y] - high) if p_edge[yp, y] > -np.inf else 0.0
            total += p_edge[yp, y]
    for yp in range(L):
        for y in range(L):
            p_edge[yp, y] = p_edge[yp, y] / total if total > 0.0 else 0.0


@kernel
def add_edge_marginals_log(log_node, log_edge, edge_class, log_alpha, log_beta, log_z, weight, p_edge_sum):
    """p_edge_sum[edge_class[t]] += weight * (edge marginal of t), for t = 1..T-1; nothing if log_z = -inf.

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : (T,)
        log_alpha, log_beta : (T, L)
        log_z, weight : of the sequence
    Out:
        p_edge_sum : (K, L, L) as [class, previous, next]
    Cost: T L^2 exps.
    Source: Rabiner (1989), section III, in logarithms.
    """
    T, L = log_node.shape
    p_edge = np.empty((L, L))
    for t in range(1, T):
        edge_marginal_log(t, log_node, log_edge, edge_class, log_alpha, log_beta, log_z, p_edge)
        for yp in range(L):
            for y in range(L):
                p_edge_sum[edge_class[t], yp, y] += weight * p_edge[yp, y]


@kernel
def sequence_sums_log(log_node, log_edge, edge_class, weight, p_node, edge_sum):
    """log_z, node marginals and summed edge marginals of one sequence in the log domain.

    log_z of forward_backward_log;  p_node = weight * that of node_marginals_log;  edge_sum as in
    add_edge_marginals_log. All forms hand it the sequences that scaled vectors cannot hold.

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : (T,)
        weight : of the sequence
    Out:
        p_node : (T, L), zeros if the weight is 0 or log_z is not finite
        edge_sum : (K, L, L) as [class, previous, next], added to
    Cost: 3 T L^2 exps.
    Source: Lafferty, McCallum and Pereira (2001), section 3.
    """
    log_alpha, log_beta = np.empty(log_node.shape), np.empty(log_node.shape)
    log_z = forward_backward_log(log_node, log_edge, edge_class, log_alpha, log_beta)
    counts = np.isfinite(log_z) and weight != 0.0
    if counts:
        node_marginals_log(log_alpha, log_beta, log_z, p_node)
        add_edge_marginals_log(log_node, log_edge, edge_class, log_alpha, log_beta, log_z, weight, edge_sum)
    for t in range(p_node.shape[0]):
        for y in range(p_node.shape[1]):
            p_node[t, y] = weight * p_node[t, y] if counts else 0.0
    return log_z


@kernel
def exp_nodes(log_node, psi_node, node_max):
    """psi_node[t] = exp(log_node[t] - node_max[t]), node_max[t] = max_y log_node[t]; returns node_spread.

    node_spread = max_t (largest - smallest finite log_node[t]), or inf where a row has no finite value.

    Arguments:
        log_node : (T, L)
    Out:
        psi_node : (T, L)
        node_max : (T,) (0 in a row without finite value)
    Cost: T L exps.
    Source: Rabiner (1989), section V.A.
    """
    T, L = log_node.shape
    node_spread = 0.0
    for t in range(T):
        high, low = -np.inf, np.inf
        for y in range(L):
            v = log_node[t, y]
            high = v if v > high else high
            low = v if v < low and v > -np.inf else low
        node_spread = max(node_spread, high - low) if high > -np.inf else np.inf
        node_max[t] = high if high > -np.inf else 0.0
        for y in range(L):
            psi_node[t, y] = log_node[t, y] - node_max[t]
    exp_inplace(psi_node.reshape(-1))
    return node_spread


@kernel
def exp_class(k, log_edge, psi_edge, psi_edge_t, edge_max):
    """`exp_edges` for class k alone; returns the largest difference of two finite values inside it.

    Arguments:
        k : edge class
        log_edge : (K, L, L)
    Out, row k of each:
        psi_edge, psi_edge_t : (K, L, L)
        edge_max : (K,)
    Cost: L^2 exps.
    Source: Rabiner (1989), section V.A.
    """
    L = log_edge.shape[1]
    high, low = -np.inf, np.inf
    for yp in range(L):
        for y in range(L):
            v = log_edge[k, yp, y]
            high = v if v > high else high
            low = v if v < low and v > -np.inf else low
    edge_max[k] = high if high > -np.inf else 0.0
    for yp in range(L):
        for y in range(L):
            psi_edge[k, yp, y] = log_edge[k, yp, y] - edge_max[k]
    exp_inplace(psi_edge[k].reshape(-1))
    for yp in range(L):
        for y in range(L):
            psi_edge_t[k, y, yp] = psi_edge[k, yp, y]
    return high - low


def exp_edges(log_edge, psi_edge, psi_edge_t, edge_max):
    """psi_edge[k] = exp(log_edge[k] - edge_max[k]), edge_max[k] = max log_edge[k]; returns edge_spread.

    edge_spread = the largest difference of two finite values inside one class.

    Arguments:
        log_edge : (K, L, L) as [class, previous, next]
    Out:
        psi_edge : (K, L, L)
        psi_edge_t : (K, L, L) = its transposes [class, next, previous]
        edge_max : (K,) (0 where a class has no finite value)
    Cost: K L^2 exps.
    Source: Rabiner (1989), section V.A.
    """
    high = log_edge.max(axis=(1, 2))
    low = log_edge.min(axis=(1, 2), initial=np.inf, where=log_edge > -np.inf)
    edge_max[:] = np.where(high > -np.inf, high, 0.0)
    np.subtract(log_edge, edge_max[:, None, None], out=psi_edge)
    exp_inplace(psi_edge.reshape(-1))
    psi_edge_t[:] = psi_edge.transpose(0, 2, 1)
    return max(0.0, float((high - low).max()))


@kernel
def forward_backward_scaled(psi_node, psi_edge, psi_edge_t, edge_class, spread, alpha, beta, scale):
    """Scaled forward-backward; returns 0 (results are good) or 1 (use the log form, outputs are unfinished).

    m[0] = psi_node[0],  m[t,y] = psi_node[t,y] sum_yp alpha[t-1,yp] psi_edge[yp,y],  scale[t] = sum_y m[t,y],
    alpha[t] = m[t] / scale[t]
    beta[T-1] = 1,  beta[t-1,yp] = sum_y psi_edge[yp,y] psi_node[t,y] beta[t,y] / scale[t]
    log_z = sum_t log scale[t] + maxima taken out (``log_z_scaled``);  p_node = alpha beta, rows sum to one

    Status 1 if (a) spread > 300 nats, (b) some 0 < m[t,y] < 1e-150, or (c) scale[t] is 0 or not finite. Why
    that is enough: nothing that passes (b) is below 1e-150, and no factor is below exp(-300) = 5e-131. So a
    product is at least 5e-281 and does not underflow: m[t,y] is 0 only where no allowed path leads. A prefix
    that is improbable now, but the only possible one later, is never lost silently. (A beta that underflows
    does not matter: the paths through it hold less than 1e-308 of the probability.) Where alpha = 0, beta is
    set to 0: it may be infinite there, and it is never needed.

    Arguments:
        psi_node : (T, L), from exp_nodes
        psi_edge, psi_edge_t : (K, L, L), from exp_edges
        edge_class : (T,)
        spread : node_spread + edge_spread, nats
    Out:
        alpha, beta : (T, L)
        scale : (T,)
    Cost: 2 T L^2 multiply-adds.
    Source: Rabiner (1989), section V.A.
    """
    T, L = psi_node.shape
    if not spread <= MAX_SPREAD:
        return 1
    for t in range(T):
        # rows are taken out of the loops over labels, which then become vector code
        m, k = alpha[t], edge_class[t]
        if t == 0:
            copy_row(psi_node, 0, alpha, 0)
        else:
            for y in range(L):
                m[y] = 0.0
            for yp in range(L):
                a, row = alpha[t - 1, yp], psi_edge[k, yp]
                for y in range(L):
                    m[y] += a * row[y]
            for y in range(L):
                m[y] *= psi_node[t, y]
        total = 0.0
        for y in range(L):
            total += m[y]
        scale[t] = total
        if not (scale[t] > 0.0 and scale[t] < np.inf):
            return 1
        for y in range(L):
            if m[y] > 0.0 and m[y] < SMALLEST_MASS:
                return 1
            m[y] /= scale[t]
    for y in range(L):
        beta[T - 1, y] = 1.0 if alpha[T - 1, y] > 0.0 else 0.0
    for t in range(T - 1, 0, -1):
        before, k = beta[t - 1], edge_class[t]
        for yp in range(L):
            before[yp] = 0.0
        for y in range(L):
            v, column = psi_node[t, y] * beta[t, y] / scale[t], psi_edge_t[k, y]
            for yp in range(L):
                before[yp] += column[yp] * v
        for yp in range(L):
            if alpha[t - 1, yp] == 0.0:
                before[yp] = 0.0
    return 0


@kernel
def log_z_scaled(scale, node_max, edge_max, edge_class):
    """log_z = sum_t log scale[t] + sum_t node_max[t] + sum_{t>=1} edge_max[edge_class[t]].

    Arguments:
        scale, node_max : (T,)
        edge_max : (K,)
        edge_class : (T,)
    Cost: T logs.
    Source: Rabiner (1989), section V.A.
    """
    log_z = np.log(scale[0]) + node_max[0]
    for t in range(1, scale.size):
        log_z += np.log(scale[t]) + node_max[t] + edge_max[edge_class[t]]
    return log_z


@kernel
def edge_marginal_scaled(t, psi_node, psi_edge, edge_class, alpha, beta, scale, p_edge):
    """p_edge[yp,y] = alpha[t-1,yp] psi_edge[yp,y] psi_node[t,y] beta[t,y] / scale[t], t >= 1.

    Arguments:
        t : >= 1
        psi_node : (T, L)
        psi_edge : (K, L, L)
        edge_class : (T,)
        alpha, beta : (T, L)
        scale : (T,) of forward_backward_scaled with status 0
    Out:
        p_edge : (L, L) as [previous, next]
    Cost: 3 L^2 multiplications.
    Source: Rabiner (1989), section V.A.
    """
    L, k = psi_node.shape[1], edge_class[t]
    for yp in range(L):
        for y in range(L):
            p_edge[yp, y] = alpha[t - 1, yp] * psi_edge[k, yp, y] * (psi_node[t, y] * beta[t, y] / scale[t])
