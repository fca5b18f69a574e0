"""One sequence at a time: its scores from the weights, its marginals, and the way back into the weights.

What stochastic learners do between two updates. Everything costs time in proportion to the sequence: nothing
here ever walks over all weights. Tokens first:last of the corpus are positions 0..T-1 of the work arrays,
which are as long as the longest sequence. `stamp[k] == visit` marks the edge classes that the present
sequence uses.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import (
    add_edge_marginals_log,
    exp_class,
    exp_nodes,
    forward_backward_log,
    forward_backward_scaled,
    log_z_scaled,
    node_marginals_log,
)


@kernel
def score_nodes(first, last, w, scale, node_ptr, node_label, attr_ptr, attr_idx, attr_val, log_node):
    """log_node[t, y] = scale sum_{a in x_t} x[a] w[a, y]; weights that do not exist count as 0.

    Arguments: first, last: tokens of the sequence; w (F,); scale: a factor common to all weights; node_ptr
    (A+1,), node_label (n_node,); attr_ptr (N+1,), attr_idx (nnz,), attr_val (nnz,) or (0,); out: log_node (>=
    T, >= L), rows 0..T-1 overwritten. Cost: one multiply-add per stored (occurrence, weight) pair. Source:
    Sokolovska et al. (2010), section 2.
    """
    n_attrs = node_ptr.size - 1
    for t in range(first, last):
        u = log_node[t - first]
        u[:] = 0.0
        for i in range(attr_ptr[t], attr_ptr[t + 1]):
            a = attr_idx[i]
            x = scale * attr_val[i] if attr_val.size else scale
            if a < n_attrs:
                for k in range(node_ptr[a], node_ptr[a + 1]):
                    u[node_label[k]] += x * w[k]


@kernel
def bound_nodes(first, last, bounds, label_set, log_node):
    """log_node[t] += 0 where a label may stand at token t, -inf where not.

    Arguments: first, last: tokens of the sequence; bounds: `Bounds` of data/constraints.py; label_set int32
    (N,) or (0,) for none: row of bounds.label_sets that holds at each token; out: log_node (>= T, L), added
    to. Cost: O(L), or O(T L) with label sets. Source: hard constraints as potentials of value 0, chapter 02.
    """
    L = bounds.start.size
    for y in range(L):
        log_node[0, y] += bounds.start[y]
        log_node[last - first - 1, y] += bounds.end[y]
    if label_set.size:
        for t in range(first, last):
            d = label_set[t]
            for y in range(L):
                log_node[t - first, y] += bounds.label_sets[d, y]


@kernel
def score_edges(
    first,
    last,
    w,
    scale,
    n_node,
    edge_class,
    class_ptr,
    class_attr,
    edge_ptr,
    edge_prev,
    edge_next,
    edge_bound,
    visit,
    stamp,
    log_edge,
):
    """log_edge[k, yp, y] = scale sum_{b in class k} w[b, yp, y] + edge_bound[yp, y],
    for the classes k of this sequence.

    Arguments: first, last: tokens of the sequence; w (F,), its edge part starts at n_node; edge_class int32
    (N,); class_ptr (K+1,), class_attr (n,): edge attributes of a class; edge_ptr (B+1,), edge_prev, edge_next
    (n_edge,); edge_bound (L, L): 0, or -inf where forbidden; visit: a number not used before; out: stamp
    int64 (K,) = visit for the classes used; log_edge (K, L, L) [class, previous, next], the other classes
    untouched. Cost: (classes used) * (L^2 + weights of their attributes). Source: Sokolovska et al. (2010),
    eq. (3).
    """
    for t in range(first + 1, last):
        k = edge_class[t]
        if stamp[k] == visit:
            continue
        stamp[k] = visit
        table = log_edge[k]
        for yp in range(edge_bound.shape[0]):  # not table[:] = edge_bound, which takes 5 seconds to compile
            for y in range(edge_bound.shape[1]):
                table[yp, y] = edge_bound[yp, y]
        for j in range(class_ptr[k], class_ptr[k + 1]):
            b = class_attr[j]
            if b < edge_ptr.size - 1:
                for e in range(edge_ptr[b], edge_ptr[b + 1]):
                    table[edge_prev[e], edge_next[e]] += scale * w[n_node + e]


@kernel
def exp_used_edges(visit, stamp, log_edge, psi_edge, psi_edge_t, edge_max):
    """`exp_edges` for the classes with stamp[k] == visit;
    returns the largest difference of finite values in a class.

    Arguments: stamp (K,), visit as in `score_edges`; log_edge (K, L, L); out: psi_edge (K, L, L), psi_edge_t
    (K, L, L), edge_max (K,). Cost: L^2 exps a class. Source: Rabiner (1989), section V.A.
    """
    spread = 0.0
    for k in range(stamp.size):
        if stamp[k] == visit:
            spread = max(spread, exp_class(k, log_edge, psi_edge, psi_edge_t, edge_max))
    return spread


@kernel
def expected_edges(visit, stamp, psi_node, psi_edge, edge_class, alpha, beta, scale, edge_sum):
    """edge_sum[k, yp, y] = sum_{t of class k} p(y_{t-1} = yp, y_t = y),
    for the classes with stamp[k] == visit.

    edge_sum[k] = psi_edge[k] * sum_t alpha[t-1]' (psi_node[t] beta[t] / scale[t]): the table is multiplied
    once. Arguments: stamp (K,), visit as in `score_edges`; psi_node (T, L); psi_edge (K, L, L); edge_class
    (T,); alpha, beta (T, L), scale (T,) of forward_backward_scaled; beta is overwritten; out: edge_sum (K, L,
    L). Cost: T L^2 multiply-adds. Source: Rabiner (1989), section III.
    """
    T, L = psi_node.shape
    for k in range(stamp.size):
        if stamp[k] == visit:
            edge_sum[k] = 0.0
    for t in range(1, T):
        v, table = beta[t], edge_sum[edge_class[t]]
        for y in range(L):
            v[y] *= psi_node[t, y] / scale[t]
        for yp in range(L):
            a, row = alpha[t - 1, yp], table[yp]
            for y in range(L):
                row[y] += a * v[y]
    for k in range(stamp.size):
        if stamp[k] == visit:
            for yp in range(L):
                for y in range(L):
                    edge_sum[k, yp, y] *= psi_edge[k, yp, y]


@kernel
def sequence_marginals(log_node, log_edge, edge_class, visit, stamp, work, p_node, edge_sum):
    """p_node[t, y], edge_sum[k] (sums of pair marginals of the classes used) and the return value log_z of
    one sequence.

    Scaled, and in logarithms where that is not safe (see forward_backward_scaled). log_z = -inf: every path
    is forbidden, p_node and edge_sum are 0 then; it is not finite either if scores are not.
    Arguments: log_node (T, L); log_edge (K, L, L); edge_class int32 (T,); stamp (K,), visit as in
    `score_edges`; work: the arrays of a SequenceWork (sequence_work.py), left as the last stage left them;
    out: p_node (T, L); edge_sum (K, L, L), other classes untouched. Cost: 3 T L^2 multiply-adds, T L + L^2
    exps. Source: Rabiner (1989), section V.A.
    """
    T = log_node.shape[0]
    psi_node, alpha, beta = work.psi_node[:T], work.alpha[:T], work.beta[:T]
    scale, node_max = work.scale[:T], work.node_max[:T]
    spread = exp_used_edges(visit, stamp, log_edge, work.psi_edge, work.psi_edge_t, work.edge_max)
    spread += exp_nodes(log_node, psi_node, node_max)
    status = forward_backward_scaled(
        psi_node, work.psi_edge, work.psi_edge_t, edge_class, spread, alpha, beta, scale
    )
    if status == 0:
        for t in range(T):
            p, a, b = p_node[t], alpha[t], beta[t]
            for y in range(p.size):
                p[y] = a[y] * b[y]
        expected_edges(visit, stamp, psi_node, work.psi_edge, edge_class, alpha, beta, scale, edge_sum)
        return log_z_scaled(scale, node_max, work.edge_max, edge_class)
    log_z = forward_backward_log(log_node, log_edge, edge_class, alpha, beta)
    scale[0] = np.nan  # tells who reads alpha and beta that they are logarithms
    node_marginals_log(alpha, beta, log_z, p_node)
    for k in range(stamp.size):
        if stamp[k] == visit:
            edge_sum[k] = 0.0
    add_edge_marginals_log(log_node, log_edge, edge_class, alpha, beta, log_z, 1.0, edge_sum)
    return log_z


@kernel
def subtract_gold(first, last, labels, edge_class, log_node, log_edge, p_node, edge_sum):
    """p_node[t, y_t] -= 1 and edge_sum[k, y_{t-1}, y_t] -= 1; returns the score of the gold labels.

    After it p_node and edge_sum hold the gradient of -log p(y | x) with respect to the scores.
    Arguments: first, last: tokens of the sequence; labels, edge_class int32 (N,); log_node (>= T, L);
    log_edge (K, L, L); out: p_node (>= T, L), edge_sum (K, L, L). Cost O(T). Source: Sokolovska et al.
    (2010), eq. (5).
    """
    score = 0.0
    for t in range(first, last):
        y = labels[t]
        score += log_node[t - first, y]
        p_node[t - first, y] -= 1.0
        if t > first:
            score += log_edge[edge_class[t], labels[t - 1], y]
            edge_sum[edge_class[t], labels[t - 1], y] -= 1.0
    return score


@kernel
def add_edges(step, n_node, visit, stamp, edge_sum, class_ptr, class_attr, edge_ptr, edge_prev, edge_next, w):
    """w[b, yp, y] += step edge_sum[k, yp, y] for the edge attributes b of the classes k with stamp[k] ==
    visit.

    Arguments: step: a factor; n_node: where the edge weights start in w; stamp (K,), visit as in
    `score_edges`; edge_sum (K, L, L); class_ptr (K+1,), class_attr (n,); edge_ptr (B+1,), edge_prev,
    edge_next (n_edge,); out: w (F,), added to. Cost: K, and the weights of these attributes. Source:
    Sokolovska et al. (2010), eq. (5).
    """
    for k in range(stamp.size):
        if stamp[k] != visit:
            continue
        for j in range(class_ptr[k], class_ptr[k + 1]):
            b = class_attr[j]
            if b < edge_ptr.size - 1:
                for e in range(edge_ptr[b], edge_ptr[b + 1]):
                    w[n_node + e] += step * edge_sum[k, edge_prev[e], edge_next[e]]
