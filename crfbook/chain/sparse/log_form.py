"""Forward-backward with sparse transitions in the log domain, for the sequences that the scaled form refuses.

No table of all classes exists: each step gets its table from the weights. Called sequence by sequence, and
seldom (transitions.py), so that nobody compiles it who does not need it.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import add_edge_marginals_log, forward_backward_log
from crfbook.chain.sparse.counts import add_table
from crfbook.chain.sparse.entries import class_scores


@kernel
def sparse_log_forward(u, classes, edges, log_alpha, table):
    """log_alpha[t,y] = u[t,y] + LSE_yp(log_alpha[t-1,yp] + score[yp,y]), tables made one at a time;
    returns log_z.

    Each step is `forward_backward_log` of two tokens. Arguments: u (T, M); classes int32 (T,); edges; out:
    log_alpha (T, M); work: table (1, M, M). Cost: 2 T M^2 exps. Source: Lafferty,
    McCallum and Pereira (2001), section 3.
    """
    T, M = u.shape
    two, out, ahead, zero = np.zeros((2, M)), np.zeros((2, M)), np.zeros((2, M)), np.zeros(2, np.int32)
    log_alpha[0] = u[0]
    log_z = forward_backward_log(u[:1], table, zero, out, ahead)
    for t in range(1, T):
        class_scores(classes[t], edges, table[0])
        two[0], two[1] = log_alpha[t - 1], u[t]
        log_z = forward_backward_log(two, table, zero, out, ahead)
        log_alpha[t] = out[1]
    return log_z


@kernel
def sparse_log_backward(
    u, classes, edges, log_alpha, weight, edge_ptr, edge_prev, edge_next, log_beta, grad, base_sum, table
):
    """log_beta[t-1,yp] = LSE_y(score[yp,y] + u[t,y] + log_beta[t,y]),
    and expected counts of the edge weights on the way.

    Arguments: u, log_alpha (T, M), classes (T,), edges, table (1, M, M) as in `sparse_log_forward`;
    weight: of the sequence; edge_ptr (B+1,), edge_prev, edge_next (n_edge,): FeatureSet, (1,), (0,), (0,) if
    nothing is asked; out: log_beta (T, M); grad (n_edge,), base_sum (M, M), added to. Cost: 3 T M^2 exps.
    Source: Lafferty, McCallum and Pereira (2001), section 3.
    """
    T, M = u.shape
    active, L = edges.active, edges.active.n_labels
    two, out, ahead, zero = np.zeros((2, M)), np.zeros((2, M)), np.zeros((2, M)), np.zeros(2, np.int32)
    pair = np.zeros((1, M, M))
    log_beta[T - 1] = 0.0
    for t in range(T - 1, 0, -1):
        k = classes[t]
        class_scores(k, edges, table[0])
        two[0], two[1] = log_alpha[t - 1], u[t] + log_beta[t]
        total = forward_backward_log(two, table, zero, out, ahead)
        log_beta[t - 1] = ahead[0]
        if grad.size + edge_prev.size > 0:
            pair[:] = 0.0
            add_edge_marginals_log(two, table, zero, out, ahead, total, weight, pair)
            base_sum += pair[0]
            for j in range(active.class_ptr[k], active.class_ptr[k + 1]):
                b = active.class_attr[j]
                if b > 0 and b < edge_ptr.size - 1:
                    add_table(pair[0], edge_ptr[b], edge_ptr[b + 1], edge_prev, edge_next, L, grad)
