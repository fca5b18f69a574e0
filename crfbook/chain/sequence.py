"""One sequence at a time: its scores, marginals and loss, and the gradient added back to the weights, as
learners need them that visit sequences singly.

Everything costs time in proportion to the sequence. `log_node (T, L)` and `edge_class (T,)` are those of its
T tokens, `log_edge (K, L, L)` the tables of all classes, of which only those in `used (n,)` are read: the
classes of transitions that the sequence uses. `work`, a SequenceWork of token_layout.py, is as long as the
longest sequence; what is computed stands in the first T rows of its arrays.

Weights come as cells `theta (C,)`: a dense table (H, M) with a row for each frequent attribute, then the flat
weights w (F,) of the FeatureSet, in which the places of those attributes stay 0; M >= L is the number of
labels padded to whole vector registers. `layout` is an OnlineLayout of token_layout.py.
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
from crfbook.chain.scores import dense_scores, pair_scores
from crfbook.chain.vector_math import clear_table


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
def expected_edges(psi_node, edge_class, used, work):
    """work.edge_sum[k, yp, y] = sum_{t of class k} p(y_{t-1} = yp, y_t = y) for the classes k in `used`.

    edge_sum[k] = psi_edge[k] * sum_t alpha[t-1]' (psi_node[t] beta[t] / scale[t]): the table is multiplied
    once. Arguments: psi_node (T, L); edge_class int32 (T,); used int32 (n,); work: psi_edge, and alpha, beta,
    scale of forward_backward_scaled, of which beta is overwritten; out: its edge_sum, 0 before.
    Cost: T L^2 multiply-adds. Source: Rabiner (1989), section III.
    """
    T, L = psi_node.shape
    for t in range(1, T):
        v, table = work.beta[t], work.edge_sum[edge_class[t]]
        for y in range(L):
            v[y] *= psi_node[t, y] / work.scale[t]
        for yp in range(L):
            a, row = work.alpha[t - 1, yp], table[yp]
            for y in range(L):
                row[y] += a * v[y]
    for k in used:
        for yp in range(L):
            for y in range(L):
                work.edge_sum[k, yp, y] *= work.psi_edge[k, yp, y]


@kernel
def sequence_marginals(log_node, log_edge, edge_class, used, work):
    """work.p_node[t, y], work.edge_sum[k] (sums of pair marginals of the classes used) and the return value
    log_z of one sequence.

    Scaled, and in logarithms where that is not safe (see forward_backward_scaled). log_z = -inf: every path
    is forbidden, p_node and edge_sum are 0 then; it is not finite either if scores are not.
    Arguments: log_node (T, L); log_edge (K, L, L); edge_class int32 (T,); used int32 (n,); out: work, its
    other arrays as the last stage left them, edge_sum of other classes untouched. Cost: 3 T L^2
    multiply-adds, T L + L^2 exps. Source: Rabiner (1989), section V.A.
    """
    T = log_node.shape[0]
    psi_node, alpha, beta, p_node = work.psi_node[:T], work.alpha[:T], work.beta[:T], work.p_node[:T]
    scale, node_max = work.scale[:T], work.node_max[:T]
    spread = 0.0
    for k in used:
        spread = max(spread, exp_class(k, log_edge, work.psi_edge, work.psi_edge_t, work.edge_max))
        clear_table(k, work.edge_sum)
    spread += exp_nodes(log_node, psi_node, node_max)
    status = forward_backward_scaled(
        psi_node, work.psi_edge, work.psi_edge_t, edge_class, spread, alpha, beta, scale
    )
    if status == 0:
        for t in range(T):
            p, a, b = p_node[t], alpha[t], beta[t]
            for y in range(p.size):
                p[y] = a[y] * b[y]
        expected_edges(psi_node, edge_class, used, work)
        return log_z_scaled(scale, node_max, work.edge_max, edge_class)
    log_z = forward_backward_log(log_node, log_edge, edge_class, alpha, beta)
    scale[0] = np.nan  # tells who reads alpha and beta that they are logarithms
    node_marginals_log(alpha, beta, log_z, p_node)
    add_edge_marginals_log(log_node, log_edge, edge_class, alpha, beta, log_z, 1.0, work.edge_sum)
    return log_z


@kernel
def subtract_gold(labels, log_node, log_edge, edge_class, work):
    """work.p_node[t, y_t] -= 1 and work.edge_sum[k, y_{t-1}, y_t] -= 1; returns the score of the gold labels.

    After it p_node and edge_sum hold the gradient of -log p(y | x) with respect to the scores.
    Arguments: labels int32 (T,): gold; log_node (T, L); log_edge (K, L, L); edge_class int32 (T,); out: work.
    Cost O(T). Source: Sokolovska et al. (2010), eq. (5).
    """
    score = 0.0
    for t in range(labels.size):
        y = labels[t]
        score += log_node[t, y]
        work.p_node[t, y] -= 1.0
        if t > 0:
            k, yp = edge_class[t], labels[t - 1]
            score += log_edge[k, yp, y]
            work.edge_sum[k, yp, y] -= 1.0
    return score


@kernel
def score_nodes(s, theta, scale, layout, log_node):
    """log_node[t, y] = scale sum_{a in x_t} x[a] theta[a, y], forbidden labels -inf.

    Arguments: s: a sequence that is not empty; theta (C,); scale: a factor common to all weights; layout, see
    above; out: log_node (>= T, M), rows 0..T-1 overwritten. Cost: one addition per stored (occurrence,
    weight) pair. Source: Sokolovska et al. (2010), section 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    u = log_node[: last - first]
    flat = u.reshape(-1)
    for i in range(flat.size):
        flat[i] = 0.0
    dense_scores(
        theta[: H * M].reshape(H, M), layout.dense_id, layout.dense_row, layout.dense_val,
        layout.dense_ptr[first], layout.dense_ptr[last], u
    )  # fmt: skip
    pair_scores(
        theta[H * M :], layout.pair_weight, layout.pair_cell, layout.pair_val,
        layout.pair_ptr[first], layout.pair_ptr[last], flat
    )  # fmt: skip
    for i in range(flat.size):
        flat[i] *= scale
    bound_nodes(first, last, layout.bounds, layout.label_set, u)


@kernel
def score_class(k, theta, scale, layout, log_edge):
    """log_edge[k, yp, y] = scale sum_{b in class k} theta[b, yp, y], forbidden transitions -inf.

    Arguments: k: an edge class; theta (C,); scale; layout, see above; out: log_edge (K, M, M), other classes
    untouched. Cost: M^2, and the weights of the attributes of the class. Source: Sokolovska et al. (2010),
    eq. (3).
    """
    table, bound = log_edge[k].reshape(-1), layout.bounds.edge.reshape(-1)
    w_edge = theta[theta.size - layout.edge_cell.size :]
    for c in range(table.size):
        table[c] = bound[c]
    for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
        for e in range(layout.edge_ptr[b], layout.edge_ptr[b + 1]):
            table[layout.edge_cell[e]] += scale * w_edge[e]


@kernel
def score_sequence(s, theta, scale, layout, work):
    """`score_nodes` into work.log_node, `score_class` of the classes that s uses into work.log_edge.

    Arguments: s: a sequence that is not empty; theta (C,); scale; layout, work, see above. Cost: that of
    these two. Source: Sokolovska et al. (2010), eq. (3).
    """
    score_nodes(s, theta, scale, layout, work.log_node)
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        score_class(k, theta, scale, layout, work.log_edge)


@kernel
def marginals_of(s, layout, work):
    """log Z of the scores in `work`, marginals into its p_node and edge_sum (`sequence_marginals`).

    Arguments: s, layout, work, which holds scores of s. Cost: 3 T L^2 multiply-adds, T L + L^2 exps. Source:
    Rabiner (1989), section V.A.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    used = layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]
    return sequence_marginals(
        work.log_node[: last - first], work.log_edge, layout.edge_class[first:last], used, work
    )


@kernel
def score_gradient(s, layout, work):
    """Loss of sequence s from its scores in `work`, and the gradient with respect to them;
    returns log Z - score(gold).

    work.p_node[t, y] = p(y_t = y) - 1{gold},  work.edge_sum[k, yp, y] = sum over the tokens of class k of
    p_edge - 1{gold}. Arguments: s, layout, work as in `score_sequence`, which comes first. A loss that is not
    finite: scores exceed float64, or every path is forbidden. Cost: 3 T L^2 multiply-adds, T L + L^2 exps.
    Source: Sokolovska et al. (2010), eq. (4), (5).
    """
    log_z = marginals_of(s, layout, work)
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    labels, edge_class = layout.labels[first:last], layout.edge_class[first:last]
    return log_z - subtract_gold(labels, work.log_node, work.log_edge, edge_class, work)


@kernel
def add_gradient(s, step, layout, work, theta):
    """theta <- theta + step * (gradient with respect to the weights), from the one in `work`:
    `score_sequence` transposed.

    Arguments: s, layout, work as in `score_sequence`; step; out: theta (C,), added to; cells that are no
    weights keep their 0. Cost: one addition per stored (occurrence, weight) pair. Source:
    Sokolovska et al. (2010), eq. (5).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    dense, w, cell = theta[: H * M].reshape(H, M), theta[H * M :], work.p_node.reshape(-1)
    for i in range(layout.dense_ptr[first], layout.dense_ptr[last]):
        h = layout.dense_id[i]
        row, exists, p = dense[h], layout.exists[h], work.p_node[layout.dense_row[i]]
        x = step * layout.dense_val[i] if layout.dense_val.size else step
        for y in range(M):
            row[y] += x * p[y] * exists[y]
    for i in range(layout.pair_ptr[first], layout.pair_ptr[last]):
        x = step * layout.pair_val[i] if layout.pair_val.size else step
        w[layout.pair_weight[i]] += x * cell[layout.pair_cell[i]]
    w_edge = theta[theta.size - layout.edge_cell.size :]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        table = work.edge_sum[k].reshape(-1)
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            for e in range(layout.edge_ptr[b], layout.edge_ptr[b + 1]):
                w_edge[e] += step * table[layout.edge_cell[e]]
