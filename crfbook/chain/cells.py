"""Loss and gradient of one sequence, read from and added to a vector of cells:
what SGD and SAG do between two steps.

The cells `theta (C,)` are a dense table (H, M) with a row for each frequent attribute, then the flat weights
w (F,) of the FeatureSet, in which the places of those attributes stay 0; M >= L is the number of labels
padded to whole vector registers. The NamedTuples `layout` (OnlineLayout of token_layout.py) and `work`
(SequenceWork of sequence_work.py, for M labels) list their arrays with shapes.
Everything costs time in proportion to the sequence.
"""

from crfbook._jit import kernel
from crfbook.chain.scores import dense_scores, pair_scores
from crfbook.chain.sequence import add_edges, bound_nodes, score_edges, sequence_marginals, subtract_gold


@kernel
def score_sequence(s, visit, theta, scale, layout, work):
    """work.log_node[t, y] = scale sum_{a in x_t} x[a] theta[a, y] and work.log_edge of the classes used,
    forbidden labels -inf.

    Arguments: s: a sequence that is not empty; visit: a number that changes whenever theta or scale does;
    theta (C,); scale; layout, work, see above. Cost: one addition per stored (occurrence, weight) pair, L^2
    an edge class. Source: Sokolovska et al. (2010), eq. (3).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    w = theta[H * M :]
    log_node = work.log_node[: last - first]
    log_node[:] = 0.0
    dense_scores(
        theta[: H * M].reshape(H, M), layout.dense_id, layout.dense_row, layout.dense_val,
        layout.dense_ptr[first], layout.dense_ptr[last], log_node,
    )  # fmt: skip
    pair_scores(
        w, layout.pair_weight, layout.pair_cell, layout.pair_val,
        layout.pair_ptr[first], layout.pair_ptr[last], log_node.reshape(-1),
    )  # fmt: skip
    log_node *= scale
    bound_nodes(first, last, layout.bounds, layout.label_set, log_node)
    score_edges(
        first, last, w, scale, w.size - layout.edge_prev.size, layout.edge_class,
        layout.class_ptr, layout.class_attr, layout.edge_ptr, layout.edge_prev, layout.edge_next,
        layout.bounds.edge, visit, work.stamp, work.log_edge,
    )  # fmt: skip


@kernel
def score_gradient(s, visit, layout, work):
    """Loss of sequence s from its scores in `work`, and the gradient with respect to them;
    returns log Z - score(gold).

    work.p_node[t, y] = p(y_t = y) - 1{gold},  work.edge_sum[k, yp, y] = sum over the tokens of class k of
    p_edge - 1{gold}. Arguments: s, visit, layout, work as in `score_sequence`, which comes first. A loss that
    is not finite: scores exceed float64, or every path is forbidden. Cost: 3 T L^2 multiply-adds, T L + L^2
    exps. Source: Sokolovska et al. (2010), eq. (4), (5).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    log_node, p_node = work.log_node[: last - first], work.p_node[: last - first]
    log_z = sequence_marginals(
        log_node, work.log_edge, layout.edge_class[first:last], visit, work.stamp, work, p_node, work.edge_sum
    )
    return log_z - subtract_gold(
        first, last, layout.labels, layout.edge_class, log_node, work.log_edge, p_node, work.edge_sum
    )


@kernel
def add_gradient(s, visit, step, layout, work, theta):
    """theta <- theta + step * (gradient with respect to the weights), from the one in `work`:
    `score_sequence` transposed.

    Arguments: s, visit, layout, work as in `score_sequence`; step; out: theta (C,), added to; cells that are
    no weights keep their 0. Cost: one addition per stored (occurrence, weight) pair. Source:
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
    add_edges(
        step, w.size - layout.edge_prev.size, visit, work.stamp, work.edge_sum,
        layout.class_ptr, layout.class_attr, layout.edge_ptr, layout.edge_prev, layout.edge_next, w,
    )  # fmt: skip
