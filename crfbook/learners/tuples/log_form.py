"""Label contexts in logarithms, every context with every next label.

Forward-backward is the reference, and for extreme weights; Viterbi finds the best labelling. Neither goes by
the tables of chain/forward_backward.py: of the Q^2 pairs of contexts only Q M can follow each other, and a
table of all would be as large as the square of their number.

States, arcs and back-offs are those of forward_backward.py; arc -1 stands for a transition without one.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.numpy_form import shares
from crfbook.learners.tuples.forward_backward import expand_arcs


@kernel
def step_scores(t, k, log_node, log_edge, log_factor, last, arc_of, step):
    """step[q,y] = score of reading y at token t in context q: node, transition, tuples.

    Arguments:
        t : token
        k : its class
        log_node : (T, M)
        log_edge : (K, M, M)
        log_factor : (E,)
        last : uint32 (Q,)
        arc_of : int64 (Q, M) of expand_arcs
    Out:
        step : (Q, M)
    Cost: Q M.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    for q in range(last.size):
        for y in range(step.shape[1]):
            e = arc_of[q, y]
            step[q, y] = log_node[t, y] + log_edge[k, last[q], y] + (log_factor[e] if e >= 0 else 0.0)


@np.errstate(invalid="ignore")
def tuple_chain_log(log_node, log_edge, edge_class, weight, rows, arcs, log_factor, counts):
    """log Z of one sequence over label contexts, and its counts; -inf, and none, if all paths are forbidden.

    log_alpha[0,y] = log_node[0,y],  log_alpha[t,d] = LSE over (q,y) -> d of log_alpha[t-1,q] + step[q,y]
    log_beta[T-1] = 0,  log_beta[t-1,q] = LSE_y(step[q,y] + log_beta[t,dest[q,y]])
    edge_sum[k,last q,y] and arc_sum[arc_of[q,y]]  += weight exp(log_alpha[t-1,q] + step[q,y] +
    log_beta[t,dest[q,y]] - log_z)

    Arguments:
        log_node : (T, M)
        log_edge : (K, M, M)
        edge_class : (T,)
        weight : of the sequence
        rows : int64 (T,), of p_node
        arcs : an `Arcs` of automaton.py
        log_factor : (E,)
    Out:
        counts : a `TupleCounts`, rows of p_node overwritten, edge_sum and arc_sum added to
    Allocates (T + 4) Q + 5 Q M numbers.
    Cost: 5 T Q M exps.
    Source: Lafferty, McCallum and Pereira (2001), section 3, over label contexts.
    """
    (T, M), Q, last = log_node.shape, arcs.last.size, arcs.last
    log_alpha, log_beta = np.full((T, Q), -np.inf), np.zeros(Q)
    arc_of, dest, step = np.empty((Q, M), np.int64), np.empty((Q, M), np.int64), np.empty((Q, M))

    def read(t):
        expand_arcs(arcs.pattern[edge_class[t]], arcs, arc_of, dest)
        step_scores(t, edge_class[t], log_node, log_edge, log_factor, last, arc_of, step)

    log_alpha[0, :M] = log_node[0]
    for t in range(1, T):
        read(t)
        np.logaddexp.at(log_alpha[t], dest, log_alpha[t - 1, :, None] + step)
    log_z = np.logaddexp.reduce(log_alpha[-1])
    for t in range(T - 1 if np.isfinite(log_z) else -1, -1, -1):
        counts.p_node[rows[t]] = np.bincount(last, weight * shares(log_alpha[t] + log_beta, 0), M)
        if t > 0:
            read(t)
            after = step + log_beta[dest]
            log_beta = np.logaddexp.reduce(after, axis=1)
            p = weight * shares(log_alpha[t - 1, :, None] + after, (0, 1))
            np.add.at(counts.edge_sum[edge_class[t]], last, p)
            np.add.at(counts.arc_sum, arc_of[arc_of >= 0], p[arc_of >= 0])
    return log_z


@kernel
def tuple_viterbi(log_node, log_edge, edge_class, arcs, log_factor, path):
    """Best path of one sequence; returns its score, -inf if every path is forbidden (path is then all 0).

    delta[0,y] = log_node[0,y] at single labels;  delta[t,d] = max over (q, y) that lead to d of delta[t-1,q]
    + step[q,y], step as in step_scores; back[t,d] = the q that reaches it:
    among several the one with the smallest newest label.

    Arguments:
        log_node : (T, M)
        log_edge : (K, M, M)
        edge_class : (T,)
        arcs : an `Arcs` of automaton.py
        log_factor : (E,)
    Out:
        path : int32 (T,)
    Allocates T Q + 3 Q M numbers.
    Cost: T Q M additions and comparisons.
    Source: Viterbi (1967), over label contexts.
    """
    (T, M), Q, last = log_node.shape, arcs.last.size, arcs.last
    delta, back = np.empty((2, Q)), np.zeros((T, Q), np.int64)
    arc_of, dest, step = np.empty((Q, M), np.int64), np.empty((Q, M), np.int64), np.empty((Q, M))
    for t in range(T):
        k, before, now = edge_class[t], delta[(t - 1) % 2], delta[t % 2]
        for d in range(Q):
            now[d] = log_node[0, d] if t == 0 and d < M else -np.inf
        if t == 0:
            continue
        if t == 1 or arcs.pattern[k] != arcs.pattern[edge_class[t - 1]]:
            expand_arcs(arcs.pattern[k], arcs, arc_of, dest)
        step_scores(t, k, log_node, log_edge, log_factor, last, arc_of, step)
        for q in range(Q):
            for y in range(M):
                d, value = dest[q, y], before[q] + step[q, y]
                if value > now[d] or (value == now[d] and value > -np.inf and last[q] < last[back[t, d]]):
                    now[d] = value
                    back[t, d] = q
    final, q = delta[(T - 1) % 2], 0
    for d in range(1, Q):
        if final[d] > final[q] or (final[d] == final[q] and last[d] < last[q]):
            q = d
    best = final[q]
    for t in range(T - 1, -1, -1):
        path[t] = last[q] if best > -np.inf else 0
        q = back[t, q]
    return best


@kernel
def tuple_viterbi_many(log_node, log_edge, edge_class, arcs, log_factor, seq_ptr, path, score):
    """`tuple_viterbi` of every sequence.

    Arguments as tuple_viterbi:
        log_node : (n, M), of all sequences one after another
        log_edge : (K, M, M)
        edge_class : (n,)
        arcs : an `Arcs`
        log_factor : (E,)
        seq_ptr : (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
    Cost: n Q M additions and comparisons.
    Source: Viterbi (1967).
    """
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            score[s] = tuple_viterbi(
                log_node[lo:hi], log_edge, edge_class[lo:hi], arcs, log_factor, path[lo:hi]
            )
