"""What perceptron, passive-aggressive and AROW share: decode one sequence,
and say how its best path differs from the gold one.

All weights lie in one vector of cells `theta (C,)`: first a dense table (H, M) with a row for each frequent
attribute, then the flat weights w (F,) of the FeatureSet (the places of the frequent attributes in it stay
0). M >= L is the number of labels padded to whole vector registers. The NamedTuples `layout` (OnlineLayout)
and `work` (OnlineWork) of chain/token_layout.py list their arrays with shapes.
Everything costs time in proportion to the sequence.
"""

import math

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.cells import score_sequence
from crfbook.chain.viterbi import decode_sequence

LOSS, SHARE, WRONG_SEQUENCES, WRONG_TOKENS, WRONG_ROOTS, N_TOTALS = 0, 1, 2, 3, 4, 5  # places of `totals`


@kernel
def find_pair(edge_prev, edge_next, start, stop, yp, y):
    """Position of (yp, y) among the rising pairs (edge_prev, edge_next)[start:stop], or -1: bisection.

    Arguments: edge_prev, edge_next int32 (n_edge,). Cost: log2(stop - start). Source: Knuth, The Art of
    Computer Programming 3, section 6.2.1.
    """
    while start < stop:
        middle = (start + stop) // 2
        if edge_prev[middle] == yp and edge_next[middle] == y:
            return middle
        if edge_prev[middle] < yp or (edge_prev[middle] == yp and edge_next[middle] < y):
            start = middle + 1
        else:
            stop = middle
    return -1


@kernel
def node_difference(t, row, z, layout, cell, amount, n):
    """Append (cell of (a, y), +x[a]) and (cell of (a, z), -x[a]) for each attribute a of token t,
    gold label y; returns the new n.

    Weights that do not exist are left out. Arguments: row: t's position in its sequence; z: its label on the
    best path; layout, see above; out: cell int64 (n_max,), amount (n_max,), from position n on. Cost: the
    attributes of the token. Source: Collins (2002), figure 1.
    """
    y, width = layout.labels[t], layout.exists.shape[1]
    for i in range(layout.dense_ptr[t], layout.dense_ptr[t + 1]):
        h = layout.dense_id[i]
        x = layout.dense_val[i] if layout.dense_val.size else 1.0
        if layout.exists[h, y]:
            cell[n], amount[n] = h * width + y, x
            n += 1
        if layout.exists[h, z]:
            cell[n], amount[n] = h * width + z, -x
            n += 1
    for i in range(layout.pair_ptr[t], layout.pair_ptr[t + 1]):
        label = layout.pair_cell[i] - row * width
        if label == y or label == z:
            x = layout.pair_val[i] if layout.pair_val.size else 1.0
            cell[n], amount[n] = layout.exists.size + layout.pair_weight[i], x if label == y else -x
            n += 1
    return n


@kernel
def edge_difference(t, zp, z, first_edge, layout, cell, amount, n):
    """Append (cell of (b, y_{t-1}, y_t), +1) and (cell of (b, zp, z),
    -1) for each edge attribute b of token t; returns the new n.

    Arguments: zp, z: the labels of t-1 and t on the best path; first_edge: cell of the first edge weight;
    layout, see above; out: cell int64
    (n_max,), amount (n_max,), from position n on. Cost: two bisections an edge attribute. Source:
    Collins (2002), figure 1.
    """
    k = layout.edge_class[t]
    for i in range(layout.class_ptr[k], layout.class_ptr[k + 1]):
        b = layout.class_attr[i]
        if b >= layout.edge_ptr.size - 1:
            continue
        start, stop = layout.edge_ptr[b], layout.edge_ptr[b + 1]
        e = find_pair(layout.edge_prev, layout.edge_next, start, stop, layout.labels[t - 1], layout.labels[t])
        if e >= 0:
            cell[n], amount[n] = first_edge + e, 1.0
            n += 1
        e = find_pair(layout.edge_prev, layout.edge_next, start, stop, zp, z)
        if e >= 0:
            cell[n], amount[n] = first_edge + e, -1.0
            n += 1
    return n


@kernel
def decode_with(s, theta, visit, layout, work):
    """Best path of sequence s, not empty, under the cells theta: into work.path; returns its score.

    Arguments: theta (C,); visit: a number that changes whenever theta does, as `score_sequence` keeps tables
    of transitions while it stays; layout, work, see above.
    Cost: one addition per stored (occurrence, weight) pair, T M^2 additions and maxima. Source:
    Collins (2002), section 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    score_sequence(s, visit, theta, 1.0, layout, work)
    # who dominates whom changes with every update: not worth its L^3
    nothing_is_dominated = np.empty((0, 0, 0))
    return decode_sequence(
        work.log_node, work.log_edge, work.log_edge_t, nothing_is_dominated, 0.0,
        layout.edge_class[first:last], 0, last - first, work.path, work.delta, work.best, work.rows,
    )  # fmt: skip


@kernel
def find_mistakes(s, theta, visit, layout, work, totals):
    """dS = S(x, gold) - S(x, best) of sequence s as work.cell[:n], work.amount[:n], cells may repeat;
    returns (n, wrong, loss).

    loss = score(best) - score(gold) = -theta . dS >= 0 in nats; wrong = tokens where the paths differ (n = 0
    if none). totals += seq_weight * (loss, wrong / T, 1 if wrong, wrong, sqrt(wrong)): what an epoch reports.

    Arguments: theta (C,), visit, layout, work as in `decode_with`; out: totals (5,), added to. Cost: that of
    `decode_with`, and the attributes of the wrong tokens. Source: Collins (2002), figure 1.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    score = decode_with(s, theta, visit, layout, work)
    path, n, wrong, loss = work.path, 0, 0, 0.0
    first_edge = theta.size - layout.edge_prev.size
    for t in range(first, last):
        here = path[t - first] != layout.labels[t]
        wrong += here
        if here:
            n = node_difference(t, t - first, path[t - first], layout, work.cell, work.amount, n)
        if t > first and (here or path[t - 1 - first] != layout.labels[t - 1]):
            n = edge_difference(
                t, path[t - 1 - first], path[t - first], first_edge, layout, work.cell, work.amount, n
            )
    for i in range(n):
        loss -= theta[work.cell[i]] * work.amount[i]
    weight = layout.weight[s]
    totals[LOSS] += weight * loss + (0.0 if np.isfinite(score) else np.nan)
    totals[SHARE] += weight * wrong / (last - first)
    totals[WRONG_SEQUENCES] += weight * (wrong > 0)
    totals[WRONG_TOKENS] += weight * wrong
    totals[WRONG_ROOTS] += weight * math.sqrt(wrong)
    return n, wrong, loss


@kernel
def merge_cells(n, cell, amount, slot):
    """Sum the amounts of repeated cells; returns how many different cells are left, in front and in order.

    Arguments: cell int64 (n_max,), amount (n_max,), of which n are used, overwritten; work: slot int32 (C,),
    all 0 before and after. Cost O(n). Source: a sparse vector from its terms; Gustavson (1978),
    "Two fast algorithms for sparse matrices".
    """
    kept = 0
    for i in range(n):
        j = slot[cell[i]]
        if j:
            amount[j - 1] += amount[i]
        else:
            cell[kept], amount[kept] = cell[i], amount[i]
            kept += 1
            slot[cell[i]] = kept
    for i in range(kept):
        slot[cell[i]] = 0
    return kept
