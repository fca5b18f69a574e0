"""One sequence at a time: its scores, marginals and loss, and the gradient added back to the weights.

The kernels come first. Each costs time in proportion to the sequence. `log_node (T, L)` and `edge_class (T,)`
are those of its T tokens, `log_edge (K, L, L)` the tables of all classes. Only the classes in `used (n,)` are
read: those of the transitions of the sequence. `work`, a SequenceWork of token_layout.py, is as long as the
longest sequence. Results stand in the first T rows of its arrays.

Weights come as cells `theta (C,)`: a dense table (H, M) with a row for each frequent attribute, then the flat
weights w (F,) of the FeatureSet, in which the places of those attributes stay 0; M >= L is the number of
labels padded to whole vector registers. `layout` is an OnlineLayout of token_layout.py, and `lists` a
ListLayout, where weights are read from there, or None.

At the end stands the same in plain NumPy, for the readable sisters of learners. There the scores of a
sequence are one vector u = X w, a gradient is X' p, and `feature_matrix` makes the matrix X.
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
from crfbook.chain.scores import dense_scores, list_scores, pair_scores, value_of
from crfbook.chain.vector_math import clear_table


@kernel
def bound_nodes(first, last, bounds, label_set, log_node):
    """log_node[t] += 0 where a label may stand at token t, -inf where not.

    Arguments:
        first, last : tokens of the sequence
        bounds : `Bounds` of data/constraints.py
        label_set : int32 (N,) or (0,) for none: row of bounds.label_sets that holds at each token
    Out:
        log_node : (>= T, L), added to
    Cost: O(L), or O(T L) with label sets.
    Source: hard constraints as potentials of value 0, chapter 02.
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
    once.

    Arguments:
        psi_node : (T, L)
        edge_class : int32 (T,)
        used : int32 (n,)
        work : psi_edge, and alpha, beta, scale of forward_backward_scaled, of which beta is overwritten
    Out:
        its edge_sum, 0 before
    Cost: T L^2 multiply-adds.
    Source: Rabiner (1989), section III.
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

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : int32 (T,)
        used : int32 (n,)
    Out:
        work : its other arrays as the last stage left them, edge_sum of other classes untouched
    Cost: 3 T L^2 multiply-adds, T L + L^2 exps.
    Source: Rabiner (1989), section V.A.
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
    scale[0] = np.nan  # nan: alpha and beta are logarithms
    node_marginals_log(alpha, beta, log_z, p_node)
    add_edge_marginals_log(log_node, log_edge, edge_class, alpha, beta, log_z, 1.0, work.edge_sum)
    return log_z


@kernel
def subtract_gold(labels, log_node, log_edge, edge_class, work):
    """work.p_node[t, y_t] -= 1 and work.edge_sum[k, y_{t-1}, y_t] -= 1; returns the score of the gold labels.

    After it p_node and edge_sum hold the gradient of -log p(y | x) with respect to the scores.

    Arguments:
        labels : int32 (T,), gold
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : int32 (T,)
    Out:
        work : a `SequenceWork`
    Cost: O(T).
    Source: Sokolovska et al. (2010), eq. (5).
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
def score_nodes(s, theta, scale, layout, lists, log_node):
    """log_node[t, y] = scale sum_{a in x_t} x[a] theta[a, y], forbidden labels -inf.

    Arguments:
        s : a sequence that is not empty
        theta : (C,)
        scale : a factor common to all weights
        layout, lists : see the top
    Out:
        log_node : (>= T, M), rows 0..T-1 overwritten
    Cost: one addition per stored (occurrence, weight) pair.
    Source: Sokolovska et al. (2010), section 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    u = log_node[: last - first]
    flat = u.reshape(-1)
    for i in range(flat.size):
        flat[i] = 0.0
    if lists is not None:
        list_scores(
            theta, lists.node_ptr, lists.node_label, lists.dense, lists.dense_of, lists.number[first:last],
            lists.attr_ptr, lists.attr_idx, lists.attr_val, u
        )  # fmt: skip
    else:
        dense_scores(
            theta[: H * M].reshape(H, M), layout.dense_id, layout.dense_row, layout.dense_val,
            layout.dense_ptr[first], layout.dense_ptr[last], u
        )  # fmt: skip
        pair_scores(
            theta[H * M :], layout.pair_weight, layout.pair_cell, layout.pair_val,
            layout.pair_ptr[first], layout.pair_ptr[last], flat
        )  # fmt: skip
    if scale != 1.0:
        for i in range(flat.size):
            flat[i] *= scale
    bound_nodes(first, last, layout.bounds, layout.label_set, u)


@kernel
def score_class(k, theta, scale, layout, log_edge):
    """log_edge[k, yp, y] = scale sum_{b in class k} theta[b, yp, y], forbidden transitions -inf.

    Arguments:
        k : an edge class
        theta : (C,)
        scale : factor of all weights
        layout : see the top
    Out:
        log_edge : (K, M, M), other classes untouched
    Cost: M^2, and the weights of the attributes of the class.
    Source: Sokolovska et al. (2010), eq. (3).
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

    Arguments:
        s : a sequence that is not empty
        theta : (C,)
        scale : factor of all weights
        layout, work : see the top
    Cost: that of these two.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    score_nodes(s, theta, scale, layout, None, work.log_node)
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        score_class(k, theta, scale, layout, work.log_edge)


@kernel
def marginals_of(s, layout, work):
    """log Z of the scores in `work`, marginals into its p_node and edge_sum (`sequence_marginals`).

    Arguments:
        s, layout : see the top
        work : holds the scores of s
    Cost: 3 T L^2 multiply-adds, T L + L^2 exps.
    Source: Rabiner (1989), section V.A.
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
    p_edge - 1{gold}.

    Arguments:
        s, layout, work : as in `score_sequence`, which comes first
    A loss that is not finite: scores exceed float64, or every path is forbidden.
    Cost: 3 T L^2 multiply-adds, T L + L^2 exps.
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

    Arguments:
        s, layout, work : as in `score_sequence`
        step : factor of the gradient
    Out:
        theta : (C,), added to; cells that are no weights keep their 0
    Cost: one addition per stored (occurrence, weight) pair.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    dense, w, cell = theta[: H * M].reshape(H, M), theta[H * M :], work.p_node.reshape(-1)
    for i in range(layout.dense_ptr[first], layout.dense_ptr[last]):
        h = layout.dense_id[i]
        row, exists, p = dense[h], layout.exists[h], work.p_node[layout.dense_row[i]]
        x = step * value_of(layout.dense_val, i)
        for y in range(M):
            row[y] += x * p[y] * exists[y]
    for i in range(layout.pair_ptr[first], layout.pair_ptr[last]):
        x = step * value_of(layout.pair_val, i)
        w[layout.pair_weight[i]] += x * cell[layout.pair_cell[i]]
    w_edge = theta[theta.size - layout.edge_cell.size :]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        table = work.edge_sum[k].reshape(-1)
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            for e in range(layout.edge_ptr[b], layout.edge_ptr[b + 1]):
                w_edge[e] += step * table[layout.edge_cell[e]]


# ---- the same in plain NumPy


def feature_matrix(s, corpus, features):
    """(X (T L + T L^2, F), gold) of sequence s: u = X w are its scores, X' p the expected features under p.

    The first T L entries of u are log_node (T, L), the others log_edge (T, L, L) into each token.
    gold : `path_indicator` of its labels. Hard constraints have no part in it. Source: docs/SPEC.md, A.1.
    """
    first, last, L = corpus.seq_ptr[s], corpus.seq_ptr[s + 1], features.n_labels
    X = np.zeros(((last - first) * (L + L * L), features.n_features))
    node, edge = X[: (last - first) * L].reshape(-1, L, X.shape[1]), X[(last - first) * L :]
    edge = edge.reshape(-1, L, L, X.shape[1])
    for t in range(first, last):
        for i in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
            a = corpus.attr_idx[i]
            for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
                node[t - first, features.node_label[k], k] += corpus.values[i]
        c = corpus.edge_class[t]
        for b in corpus.class_attr[corpus.class_ptr[c] : corpus.class_ptr[c + 1]] if t > first else ():
            for e in range(features.edge_ptr[b], features.edge_ptr[b + 1]):
                edge[t - first, features.edge_prev[e], features.edge_next[e], features.n_node + e] += 1.0
    return X, path_indicator(corpus.labels[first:last], L)


def path_indicator(path, L):
    """(T L + T L^2,): 1 for the labels and label pairs of a path (T,), so that its score is u @ this."""
    node, edge = np.zeros((len(path), L)), np.zeros((len(path), L, L))
    for t, y in enumerate(path):
        node[t, y] = 1.0
        if t > 0:
            edge[t, path[t - 1], y] = 1.0
    return np.concatenate([node.ravel(), edge.ravel()])


def plain_tables(u, L):
    """(log_node (T, L), log_edge (T, L, L)) of scores u (T L + T L^2,)."""
    T = u.size // (L + L * L)
    return u[: T * L].reshape(T, L), u[T * L :].reshape(T, L, L)


def plain_viterbi(u, L):
    """The best path (T,) under scores u (T L + T L^2,); ties go to the smallest label. Source: chapter 02."""
    log_node, log_edge = plain_tables(u, L)
    delta, back = log_node[0], []
    for t in range(1, len(log_node)):
        into = delta[:, None] + log_edge[t]  # [previous, next]
        delta, back = into.max(axis=0) + log_node[t], [*back, into.argmax(axis=0)]
    path = [int(delta.argmax())]
    for best in reversed(back):
        path.insert(0, int(best[path[0]]))
    return path


def plain_marginals(u, L):
    """(log Z, p (T L + T L^2,)) of scores u: marginals of labels, then of pairs, which are 0 at t = 0.

    Forward-backward in logarithms. Source: Rabiner (1989), section III.
    """
    log_node, log_edge = plain_tables(u, L)
    T, alpha, beta = len(log_node), log_node.copy(), np.zeros_like(log_node)
    for t in range(1, T):
        alpha[t] += np.logaddexp.reduce(alpha[t - 1][:, None] + log_edge[t], axis=0)
    for t in range(T - 1, 0, -1):
        beta[t - 1] = np.logaddexp.reduce(log_edge[t] + log_node[t] + beta[t], axis=1)
    log_z = np.logaddexp.reduce(alpha[-1])
    p_edge = np.zeros_like(log_edge)
    p_edge[1:] = np.exp(alpha[:-1, :, None] + log_edge[1:] + (log_node + beta)[1:, None] - log_z)
    return log_z, np.concatenate([np.exp(alpha + beta - log_z).ravel(), p_edge.ravel()])


def plain_loss(u, gold, L):
    """(log Z - score(gold), its gradient (T L + T L^2,) with respect to the scores u); gold : indicator."""
    log_z, p = plain_marginals(u, L)
    return log_z - u @ gold, p - gold


def plain_gradient(s, w, corpus, features):
    """(loss of sequence s, its gradient (F,)) at weights w (F,), both times the weight of the sequence."""
    X, gold = feature_matrix(s, corpus, features)
    loss, slope = plain_loss(X @ w, gold, features.n_labels)
    return corpus.weights[s] * loss, corpus.weights[s] * (X.T @ slope)
