"""The best labelling under weights of label tuples: Viterbi over label contexts.

States, arcs and back-offs are those of arcs.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.tuples.arcs import expand_arcs
from crfbook.learners.tuples.log_form import step_scores


@kernel
def tuple_viterbi(log_node, log_edge, edge_class, arcs, log_factor, path):
    """Best path of one sequence; returns its score, -inf if every path is forbidden (path is then all 0).

    delta[0,y] = log_node[0,y] at single labels;  delta[t,d] = max over (q, y) that lead to d of delta[t-1,q]
    + step[q,y], step as in step_scores; back[t,d] = the q that reaches it:
    among several the one with the smallest newest label.

    Arguments: log_node (T, M), log_edge (K, M, M), edge_class (T,); arcs: `Arcs` of automaton.py;
    log_factor (E,); out: path int32 (T,). Allocates T Q + 3 Q M numbers.
    Cost: T Q M additions and comparisons. Source: Viterbi (1967), over label contexts.
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

    Arguments: as tuple_viterbi, of all sequences one after another: log_node (n, M), log_edge (K, M, M),
    edge_class (n,), arcs, log_factor (E,); seq_ptr (S+1,); out: path int32 (n,), score (S,): 0 for an empty
    sequence, -inf (and a path of zeros) if all is forbidden. Cost: n Q M additions and comparisons. Source:
    Viterbi (1967).
    """
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            score[s] = tuple_viterbi(
                log_node[lo:hi], log_edge, edge_class[lo:hi], arcs, log_factor, path[lo:hi]
            )
