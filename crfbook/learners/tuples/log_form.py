"""Forward-backward over label contexts in logarithms, every context with every next label: the reference,
and for extreme weights.

States, arcs and back-offs are those of arcs.py; arc -1 stands for a transition without one.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.tuples.arcs import expand_arcs


@kernel
def step_scores(t, k, log_node, log_edge, log_factor, last, arc_of, step):
    """step[q,y] = score of reading y at token t in context q: node, transition, tuples.

    Arguments: t and its class k; log_node (T, M), log_edge (K, M, M), log_factor (E,), last uint32 (Q,),
    arc_of int64 (Q, M) of expand_arcs; out: step (Q, M). Cost: Q M.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    for q in range(last.size):
        for y in range(step.shape[1]):
            e = arc_of[q, y]
            step[q, y] = log_node[t, y] + log_edge[k, last[q], y] + (log_factor[e] if e >= 0 else 0.0)


@kernel
def _log_sum_exp(row):
    """LSE of a row: its largest value m + log sum exp(row - m); m itself if it is not finite."""
    high, total = -np.inf, 0.0
    for i in range(row.size):
        high = max(high, row[i])
    if not np.isfinite(high):
        return high
    for i in range(row.size):
        total += np.exp(row[i] - high)
    return high + np.log(total)


@kernel
def _forward_log(t, step, dest, log_alpha, high, total):
    """log_alpha[t,d] = LSE of log_alpha[t-1,q] + step[q,y] over all (q, y) that lead to d. All (., Q); step,
    dest (Q, M).
    """
    Q, M = step.shape
    for d in range(Q):
        high[d], total[d] = -np.inf, 0.0
    for q in range(Q):
        for y in range(M):
            high[dest[q, y]] = max(high[dest[q, y]], log_alpha[t - 1, q] + step[q, y])
    for q in range(Q):
        for y in range(M):
            d = dest[q, y]
            if high[d] > -np.inf:
                total[d] += np.exp(log_alpha[t - 1, q] + step[q, y] - high[d])
    for d in range(Q):
        log_alpha[t, d] = high[d] + np.log(total[d]) if total[d] > 0.0 else -np.inf


@kernel
def _add_counts_log(weight, step, arc_of, last, edge_sum, arc_sum):
    """Add weight * p(context q, then y) to edge_sum (M, M) and to arc_sum of its arc;
    step (Q, M) is log p but for a constant: probabilities sum to one.
    """
    (Q, M), high, total = step.shape, -np.inf, 0.0
    for q in range(Q):
        for y in range(M):
            high = max(high, step[q, y])
    for q in range(Q):
        for y in range(M):
            step[q, y] = np.exp(step[q, y] - high)
            total += step[q, y]
    for q in range(Q):
        for y in range(M):
            p = weight * step[q, y] / total
            edge_sum[last[q], y] += p
            if arc_of[q, y] >= 0:
                arc_sum[arc_of[q, y]] += p


@kernel
def tuple_chain_log(log_node, log_edge, edge_class, weight, rows, arcs, log_factor, counts):
    """log Z of one sequence over label contexts, and its expected counts; -inf, and no counts,
    if every path is forbidden.

    log_alpha[0,y] = log_node[0,y],  log_alpha[t,d] = LSE over (q,y) -> d of log_alpha[t-1,q] + step[q,y]
    log_beta[T-1] = 0,  log_beta[t-1,q] = LSE_y(step[q,y] + log_beta[t,dest[q,y]])
    edge_sum[k,last q,y] and arc_sum[arc_of[q,y]]  += weight exp(log_alpha[t-1,q] + step[q,y] +
    log_beta[t,dest[q,y]] - log_z)

    Arguments: log_node (T, M), log_edge (K, M, M), edge_class (T,), weight; rows int64 (T,): of p_node;
    arcs: `Arcs` of automaton.py; log_factor (E,); out: counts: `TupleCounts`, rows of p_node
    overwritten, edge_sum and arc_sum added to. Allocates (T + 4) Q + 3 Q M numbers.
    Cost: 5 T Q M exps. Source: Lafferty, McCallum and Pereira (2001), section 3, over label contexts.
    """
    (T, M), Q, last = log_node.shape, arcs.last.size, arcs.last
    log_alpha, log_beta, high, total = np.empty((T, Q)), np.zeros(Q), np.empty(Q), np.empty(Q)
    arc_of, dest, step = np.empty((Q, M), np.int64), np.empty((Q, M), np.int64), np.empty((Q, M))
    for q in range(Q):
        log_alpha[0, q] = log_node[0, q] if q < M else -np.inf
    for t in range(1, T):
        expand_arcs(arcs.pattern[edge_class[t]], arcs, arc_of, dest)
        step_scores(t, edge_class[t], log_node, log_edge, log_factor, last, arc_of, step)
        _forward_log(t, step, dest, log_alpha, high, total)
    log_z = _log_sum_exp(log_alpha[T - 1])
    for t in range(T - 1 if np.isfinite(log_z) else -1, -1, -1):
        p, p_sum, k = counts.p_node[rows[t]], 0.0, edge_class[t]
        for y in range(M):
            p[y] = 0.0
        for q in range(Q):
            both = np.exp(log_alpha[t, q] + log_beta[q] - log_z) if log_alpha[t, q] > -np.inf else 0.0
            p[last[q]] += both
            p_sum += both
        for y in range(M):
            p[y] *= weight / p_sum
        if t == 0:
            break
        expand_arcs(arcs.pattern[k], arcs, arc_of, dest)
        step_scores(t, k, log_node, log_edge, log_factor, last, arc_of, step)
        for q in range(Q):
            for y in range(M):
                step[q, y] += log_beta[dest[q, y]]
            total[q] = _log_sum_exp(step[q])
            for y in range(M):
                step[q, y] += log_alpha[t - 1, q] - log_z
        _add_counts_log(weight, step, arc_of, last, counts.edge_sum[k], counts.arc_sum)
        log_beta, total = total, log_beta
    return log_z
