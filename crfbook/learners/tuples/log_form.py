"""Forward-backward over label contexts in logarithms, every context with every next label: the reference,
and for extreme weights.

States, arcs and back-offs are those of forward_backward.py; arc -1 stands for a transition without one.
"""

import numpy as np

from crfbook._jit import kernel


@kernel
def expand_arcs(p, backoff, arc_lo, arc_hi, arc_label, arc_of):
    """arc_of[q,y] = the arc that a path in context q uses when it reads y: its own, or its back-off's; -1:
    none.

    Arguments: pattern p; backoff int32 (Q,), -1 at single labels; arc_lo, arc_hi int64 (P, Q): arcs of
    pattern p at q; arc_label uint32 (E,); out: arc_of
    int64 (Q, M). Cost: Q M. Source: Aho and Corasick (1975).
    """
    for q in range(backoff.size):
        for y in range(arc_of.shape[1]):
            arc_of[q, y] = arc_of[backoff[q], y] if backoff[q] >= 0 else -1
        for e in range(arc_lo[p, q], arc_hi[p, q]):
            arc_of[q, arc_label[e]] = e


@kernel
def step_scores(t, k, log_node, log_edge, last, arc_of, arc_dest, log_factor, step, dest):
    """step[q,y] = score of reading y at token t in context q: node, transition, tuples;
    dest[q,y] = the context it leads to.

    Arguments: t, k; log_node (T, M), log_edge (K, M, M), last uint32 (Q,), arc_of int64 (Q, M) of
    expand_arcs, arc_dest uint32 (E,), log_factor (E,); out: step (Q, M), dest int64 (Q, M). Cost: Q M.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    for q in range(last.size):
        for y in range(log_node.shape[1]):
            e = arc_of[q, y]
            step[q, y] = log_node[t, y] + log_edge[k, last[q], y] + (log_factor[e] if e >= 0 else 0.0)
            dest[q, y] = arc_dest[e] if e >= 0 and arc_dest[e] < last.size else y


@kernel
def _log_sum(high, total):
    """high + log(total), -inf where nothing was summed."""
    return high + np.log(total) if total > 0.0 else -np.inf


@kernel
def _forward_log(t, step, dest, log_alpha, high, total):
    """log_alpha[t,d] = LSE of log_alpha[t-1,q] + step[q,y] over all (q, y) that lead to d. All (., Q); step,
    dest (Q, M).
    """
    high[:] = -np.inf
    total[:] = 0.0
    for q in range(high.size):
        for y in range(step.shape[1]):
            high[dest[q, y]] = max(high[dest[q, y]], log_alpha[t - 1, q] + step[q, y])
    for q in range(high.size):
        for y in range(step.shape[1]):
            d = dest[q, y]
            if high[d] > -np.inf:
                total[d] += np.exp(log_alpha[t - 1, q] + step[q, y] - high[d])
    for d in range(high.size):
        log_alpha[t, d] = _log_sum(high[d], total[d])


@kernel
def _add_counts_log(t, weight, step, dest, arc_of, last, log_alpha, log_beta, log_z, edge_sum, arc_sum):
    """Add weight * p(context q, then y) of token t to edge_sum (M, M) and to arc_sum of its arc;
    probabilities sum to one.
    """
    high, total = -np.inf, 0.0
    for q in range(last.size):
        for y in range(step.shape[1]):
            step[q, y] += log_alpha[t - 1, q] + log_beta[dest[q, y]] - log_z
            high = max(high, step[q, y])
    for q in range(last.size):
        for y in range(step.shape[1]):
            step[q, y] = np.exp(step[q, y] - high)
            total += step[q, y]
    for q in range(last.size):
        for y in range(step.shape[1]):
            p = weight * step[q, y] / total
            edge_sum[last[q], y] += p
            if arc_of[q, y] >= 0:
                arc_sum[arc_of[q, y]] += p


@kernel
def tuple_chain_log(
    log_node, log_edge, edge_class, weight, arcs, log_factor, rows, p_node, edge_sum, arc_sum
):
    """log Z of one sequence over label contexts, and its expected counts; -inf, and no counts,
    if every path is forbidden.

    log_alpha[0,y] = log_node[0,y],  log_alpha[t,d] = LSE over (q,y) -> d of log_alpha[t-1,q] + step[q,y]
    log_beta[T-1] = 0,  log_beta[t-1,q] = LSE_y(step[q,y] + log_beta[t,dest[q,y]])
    edge_sum[k,last q,y] and arc_sum[arc_of[q,y]]  += weight exp(log_alpha[t-1,q] + step[q,y] +
    log_beta[t,dest[q,y]] - log_z)

    Arguments: log_node (T, M), log_edge (K, M, M), edge_class (>= T,), weight; arcs: `Arcs` of
    automaton.py; log_factor (E,); rows int64 (>= T,); out: p_node (n, M), rows overwritten;
    edge_sum (K, M, M), arc_sum (E,), added to. Allocates (T + 5) Q + 3 Q M numbers.
    Cost: 5 T Q M exps. Source: Lafferty, McCallum and Pereira (2001), section 3, over label contexts.
    """
    (T, M), Q, last = log_node.shape, arcs.last.size, arcs.last
    log_alpha, log_beta, before = np.full((T, Q), -np.inf), np.zeros(Q), np.empty(Q)
    high, total = np.empty(Q), np.empty(Q)
    arc_of, dest, step = np.empty((Q, M), np.int64), np.empty((Q, M), np.int64), np.empty((Q, M))
    log_alpha[0, :M] = log_node[0]
    for t in range(1, T):
        expand_arcs(
            arcs.pattern[edge_class[t]], arcs.backoff, arcs.arc_lo, arcs.arc_hi, arcs.arc_label, arc_of
        )
        step_scores(t, edge_class[t], log_node, log_edge, last, arc_of, arcs.arc_dest, log_factor, step, dest)
        _forward_log(t, step, dest, log_alpha, high, total)
    top = np.max(log_alpha[T - 1])
    if not np.isfinite(top):
        return top
    log_z = top + np.log(np.sum(np.exp(log_alpha[T - 1] - top)))
    for t in range(T - 1, -1, -1):
        p, p_sum = p_node[rows[t]], 0.0
        p[:] = 0.0
        for q in range(Q):
            if log_alpha[t, q] > -np.inf:
                p[last[q]] += np.exp(log_alpha[t, q] + log_beta[q] - log_z)
        p_sum = np.sum(p)
        for y in range(M):
            p[y] *= weight / p_sum
        if t == 0:
            break
        k = edge_class[t]
        expand_arcs(arcs.pattern[k], arcs.backoff, arcs.arc_lo, arcs.arc_hi, arcs.arc_label, arc_of)
        step_scores(t, k, log_node, log_edge, last, arc_of, arcs.arc_dest, log_factor, step, dest)
        for q in range(Q):
            top, some = -np.inf, 0.0
            for y in range(M):
                top = max(top, step[q, y] + log_beta[dest[q, y]])
            for y in range(M):
                if top > -np.inf:
                    some += np.exp(step[q, y] + log_beta[dest[q, y]] - top)
            before[q] = _log_sum(top, some)
        _add_counts_log(t, weight, step, dest, arc_of, last, log_alpha, log_beta, log_z, edge_sum[k], arc_sum)
        log_beta[:] = before
    return log_z
