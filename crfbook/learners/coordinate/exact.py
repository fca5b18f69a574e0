"""The exact second derivative of the loss by one weight: the variance of how often its feature fires,
by a recursion of moments.

`chains`, `blocks`, `tables`, `weights` and `move` as in step.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.coordinate.lattice import node_scores
from crfbook.learners.coordinate.step import CURVE
from crfbook.learners.coordinate.tables import LABEL, SHIFT, SIZE, START


@kernel
def sequence_scores(i, chains, tables, weights, log_node, log_edge):
    """log_node[t], log_edge[t] of sequence i from the weights, for what is not done in scaled form.

    Arguments: i; chains; tables; weights; out: log_node (T, M), log_edge (T, M, M), its first
    entry untouched. Cost: T M^2. Source: Sokolovska et al. (2010), eq. (3).
    """
    begin, M, lists = chains.seq_ptr[i], weights.mu.shape[1], weights.lists
    for p in range(log_node.shape[0]):
        t = begin + p
        node_scores(
            t,
            weights.mu,
            chains.attr_ptr,
            chains.attr_idx,
            chains.attr_val,
            chains.bound[chains.bound_row[t]],
            log_node[p],
        )
        if p == 0:
            continue
        k, table = chains.edge_class[t], log_edge[p]
        for yp in range(M):
            for y in range(M):
                table[yp, y] = weights.base_log[yp, y]
        for j in range(tables.class_ptr[k], tables.class_ptr[k + 1]):
            start = lists.row[START, tables.class_attr[j]]
            for e in range(start, start + lists.row[SIZE, tables.class_attr[j]]):
                table[lists.cell[e] >> SHIFT, lists.cell[e] & LABEL] += lists.value[e]


@kernel
def feature_variance(cell, tokens, values, log_node, log_edge):
    """Variance of F = sum_t x[t] 1{the labels at t are those of the cell} over the positions t of `tokens`,
    in one sequence.

    Forward, beside log_alpha, the moments of F so far given the label y at t; f is the value that a move from
    yp into y adds:
        q[yp] = exp(log_alpha[t-1,yp] + log_edge[t,yp,y] - LSE),  log_alpha[t,y] = log_node[t,y] + LSE
        first[t,y] = sum_yp q[yp] (first[t-1,yp] + f)
        second[t,y] = sum_yp q[yp] (second[t-1,yp] + 2 f first[t-1,yp] + f f)
    These are the moments of docs/SPEC.md, A.8, divided by alpha: no score is too large for them. At the last
    token they are averaged over y. Arguments: cell: yp << SHIFT | y, or -1 - y; tokens int32 (n,): positions,
    rising; values (n,) or (0,); log_node (T, M); log_edge (T, M, M). Cost: 3 T M^2, and as many exps. Source:
    Sokolovska et al. (2010), eq. (15); docs/SPEC.md, A.8.
    """
    T, M = log_node.shape
    now, before, o = np.zeros((3, M)), np.zeros((3, M)), 0
    for t in range(T):
        x = 0.0
        if o < tokens.size and tokens[o] == t:
            x = values[o] if values.size else 1.0
            o += 1
        for y in range(M):
            for m in range(3):
                before[m, y], now[m, y] = now[m, y], 0.0
        for y in range(M):
            high, total, first, second = -np.inf, 0.0, 0.0, 0.0
            for yp in range(M if t > 0 else 0):
                high = max(high, before[0, yp] + log_edge[t, yp, y])
            for yp in range(M if t > 0 and high > -np.inf else 0):
                q = np.exp(before[0, yp] + log_edge[t, yp, y] - high)
                f = x if cell == -1 - y or cell == (yp << SHIFT | y) else 0.0
                total += q
                first += q * (before[1, yp] + f)
                second += q * (before[2, yp] + 2.0 * f * before[1, yp] + f * f)
            if t == 0:
                f = x if cell == -1 - y else 0.0
                now[0, y], now[1, y], now[2, y] = log_node[0, y], f, f * f
            elif total > 0.0:
                now[0, y], now[1, y] = log_node[t, y] + high + np.log(total), first / total
                now[2, y] = second / total
            else:
                now[0, y] = -np.inf
    high, total, mean, square = np.max(now[0]), 0.0, 0.0, 0.0
    for y in range(M if high > -np.inf else 0):
        p = np.exp(now[0, y] - high)
        total, mean, square = total + p, mean + p * now[1, y], square + p * now[2, y]
    return square / total - (mean / total) ** 2 if total > 0.0 else 0.0


@kernel
def exact_curvature(g, blocks, chains, tables, weights, move):
    """curvature of each candidate of block g: sum_i weight_i Var_i(F), the second derivative of the loss.

    Arguments: g; blocks; chains; tables; weights; move. Cost: `feature_variance` for each candidate and
    visit. Source: Sokolovska et al. (2010), eq. (15).
    """
    curve, M = move.number[CURVE], weights.mu.shape[1]
    for j in range(move.n[0]):
        curve[j] = 0.0 if curve[j] < np.inf else np.inf
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i, low, high = blocks.visit_seq[v], blocks.occ_ptr[v], blocks.occ_ptr[v + 1]
        begin, T = chains.seq_ptr[i], chains.seq_ptr[i + 1] - chains.seq_ptr[i]
        log_node, log_edge, tokens = np.empty((T, M)), np.empty((T, M, M)), np.empty(high - low, np.int32)
        sequence_scores(i, chains, tables, weights, log_node, log_edge)
        for o in range(low, high):
            tokens[o - low] = blocks.occ_token[o] - begin
        values = blocks.occ_val[low:high] if blocks.occ_val.size else blocks.occ_val
        for j in range(move.n[0]):
            if curve[j] < np.inf:
                variance = feature_variance(move.cell[j], tokens, values, log_node, log_edge)
                curve[j] += chains.weight[i] * variance
