"""Scores of one sequence from a vector of cells, its loss, and the gradient added back to such a vector:
what learners do between two steps.

The cells `theta (C,)` are a dense table (H, M) with a row for each frequent attribute, then the flat weights
w (F,) of the FeatureSet, in which the places of those attributes stay 0; M >= L is the number of labels
padded to whole vector registers. The NamedTuples `layout` (OnlineLayout of token_layout.py) and `work`
(SequenceWork of sequence_work.py, for M labels) list their arrays with shapes.
Everything costs time in proportion to the sequence: nothing here walks over all weights or all classes.
"""

from crfbook._jit import kernel
from crfbook.chain.scores import dense_scores, pair_scores
from crfbook.chain.sequence import bound_nodes, sequence_marginals, subtract_gold


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
    u[:] = 0.0
    dense_scores(
        theta[: H * M].reshape(H, M), layout.dense_id, layout.dense_row, layout.dense_val,
        layout.dense_ptr[first], layout.dense_ptr[last], u
    )  # fmt: skip
    pair_scores(
        theta[H * M :], layout.pair_weight, layout.pair_cell, layout.pair_val,
        layout.pair_ptr[first], layout.pair_ptr[last], u.reshape(-1)
    )  # fmt: skip
    u *= scale
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
