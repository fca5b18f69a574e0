"""Perceptron, passive-aggressive and AROW: decode a sequence, and move where it is wrong.

First what they share: the best path, and how it differs from the gold one. Then their updates. Perceptron:
towards the gold path where the best path leaves it. Passive-aggressive: the smallest step after which the
gold path wins by a margin. AROW (adaptive regularisation of weights): each weight has a variance, and certain
weights move less.

All weights lie in one vector of cells `theta (C,)`: first a dense table (H, M) with a row for each frequent
attribute, then the flat weights w (F,) of the FeatureSet (the places of the frequent attributes in it stay
0). M >= L is the number of labels padded to whole vector registers. The NamedTuples `layout` (OnlineLayout)
and `work` (OnlineWork) of chain/token_layout.py list their arrays with shapes.
Everything costs time in proportion to the sequence. Tables of transitions are kept until a weight changes:
`work.known` marks those that are of the present weights. Where labels are many, there are no tables and no
dense rows, but `work.lists` (staggered.py); otherwise its arrays are empty. `work.staggered` (staggered.py)
is None unless staggered decoding is asked for.
"""

import math

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import score_class, score_nodes
from crfbook.chain.sparse.default import find_next
from crfbook.chain.viterbi import decode_sequence
from crfbook.learners.online.staggered import decode_by_lists, refresh_all, refresh_pairs

LOSS, SHARE, WRONG_SEQUENCES, WRONG_TOKENS, WRONG_ROOTS, N_TOTALS = 0, 1, 2, 3, 4, 5  # places of `totals`


@kernel
def node_difference(t, row, z, n, layout, work):
    """Append (cell of (a, y), +x[a]) and (cell of (a, z), -x[a]) for each attribute a of token t,
    gold label y; returns the new n.

    Weights that do not exist are left out. Arguments: row: t's position in its sequence; z: its label on the
    best path; layout, see above; out: work: cell, amount, from position n on. Cost: the attributes of the
    token, of lists a bisection each. Source: Collins (2002), figure 1.
    """
    y, M, cell, amount, lists = layout.labels[t], layout.exists.shape[1], work.cell, work.amount, work.lists
    if lists.node_ptr.size > 0:
        for i in range(lists.attr_ptr[t], lists.attr_ptr[t + 1]):
            a = lists.attr_idx[i]
            x = lists.attr_val[i] if lists.attr_val.size else 1.0
            if a < lists.node_ptr.size - 1:
                for label, sign in ((y, x), (np.int32(z), -x)):
                    k = find_next(lists.node_label, lists.node_ptr[a], lists.node_ptr[a + 1], label)
                    if k >= 0:
                        cell[n], amount[n] = k, sign
                        n += 1
        return n
    for i in range(layout.dense_ptr[t], layout.dense_ptr[t + 1]):
        h = layout.dense_id[i]
        x = layout.dense_val[i] if layout.dense_val.size else 1.0
        if layout.exists[h, y]:
            cell[n], amount[n] = h * M + y, x
            n += 1
        if layout.exists[h, z]:
            cell[n], amount[n] = h * M + z, -x
            n += 1
    for i in range(layout.pair_ptr[t], layout.pair_ptr[t + 1]):
        label = layout.pair_cell[i] - row * M
        if label == y or label == z:
            x = layout.pair_val[i] if layout.pair_val.size else 1.0
            cell[n], amount[n] = layout.exists.size + layout.pair_weight[i], x if label == y else -x
            n += 1
    return n


@kernel
def edge_difference(t, zp, z, n, layout, work):
    """Append (cell of (b, y_{t-1}, y_t), +1) and (cell of (b, zp, z), -1) for each edge attribute b of token
    t; returns the new n.

    Arguments: zp, z: the labels of t-1 and t on the best path; layout, see above; out: work: cell, amount,
    from position n on. Cost: two bisections an edge attribute. Source: Collins (2002), figure 1.
    """
    k, M, n_before = layout.edge_class[t], layout.exists.shape[1], work.slot.size - layout.edge_cell.size
    gold, best = layout.labels[t - 1] * M + layout.labels[t], zp * M + z
    for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
        for pair, sign in ((gold, 1.0), (best, -1.0)):
            e = find_next(layout.edge_cell, layout.edge_ptr[b], layout.edge_ptr[b + 1], pair)
            if e >= 0:
                work.cell[n], work.amount[n] = n_before + e, sign
                n += 1
    return n


@kernel
def decode_with(s, theta, layout, work):
    """Best path of sequence s, not empty, under the cells theta: into work.path; returns its score.

    Arguments: theta (C,); layout, work, see above. Cost: one addition per stored (occurrence, weight) pair,
    T M^2 additions and maxima. Source: Collins (2002), section 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    if work.lists.node_ptr.size > 0:
        if not work.known[0]:
            refresh_all(theta, work.lists, work.staggered)
            work.known[0] = 1
        spaces = work.lists, work.log_node, work.path, work.staggered
        return decode_by_lists(first, last, theta, layout, *spaces)
    score_nodes(s, theta, 1.0, layout, work.log_node)
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        if not work.known[k]:
            score_class(k, theta, 1.0, layout, work.log_edge)
            work.known[k] = 1
    # who dominates whom changes with every update: not worth its L^3
    nothing_is_dominated = np.empty((0, 0, 0))
    return decode_sequence(
        work.log_node, work.log_edge, work.log_edge_t, nothing_is_dominated, 0.0,
        layout.edge_class[first:last], 0, last - first, work.path, work.delta, work.best, work.rows
    )  # fmt: skip


@kernel
def after_step(n, theta, layout, work):
    """What is kept of the weights is kept up to date, or marked as stale, after work.cell[:n] have moved.

    Arguments: n; theta (C,); layout; out: work: known, lists. Cost: the classes, or a row of stored pairs for
    each transition that moved. Source: chapter 11.
    """
    if work.lists.node_ptr.size > 0:
        refresh_pairs(n, theta, work.lists, work.cell, work.staggered)
    else:
        work.known[:] = 0


@kernel
def find_mistakes(s, theta, layout, work, totals):
    """dS = S(x, gold) - S(x, best) of sequence s as work.cell[:n], work.amount[:n], cells may repeat;
    returns (n, wrong, loss).

    loss = score(best) - score(gold) = -theta . dS >= 0 in nats; wrong = tokens where the paths differ (n = 0
    if none). totals += seq_weight * (loss, wrong / T, 1 if wrong, wrong, sqrt(wrong)): what an epoch reports.

    Arguments: s, theta (C,), layout, work as in `decode_with`; out: totals (5,), added to. Cost: that of
    `decode_with`, and the attributes of the wrong tokens. Source: Collins (2002), figure 1.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    score = decode_with(s, theta, layout, work)
    path, n, wrong, loss = work.path, 0, 0, 0.0
    for t in range(first, last):
        row = t - first
        here = path[row] != layout.labels[t]
        wrong += here
        if here:
            n = node_difference(t, row, path[row], n, layout, work)
        if row > 0 and (here or path[row - 1] != layout.labels[t - 1]):
            n = edge_difference(t, path[row - 1], path[row], n, layout, work)
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
def merge_cells(n, work):
    """Sum the amounts of repeated cells; returns how many different cells are left, in front and in order.

    Arguments: out: work: cell, amount, of which n are used; its slot is all 0 before and after. Cost O(n).
    Source: a sparse vector from its terms; Gustavson (1978), "Two fast algorithms for sparse matrices".
    """
    cell, amount, slot, kept = work.cell, work.amount, work.slot, 0
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


@kernel
def perceptron_epoch(order, theta, theta_sum, count, layout, work, totals):
    """Some steps of the online perceptron, sequence after sequence in the given order.

    best = argmax_y theta . S(x, y);  if best != gold:  theta += d,  d = seq_weight (S(x, gold) - S(x, best))
    Averaging costs no more than the step itself: with c = 1 at the start, each step also does theta_sum += c
    d, and c += 1 after every sequence. Then theta - theta_sum / c is the mean of all c vectors so far, the
    start included: d enters every vector but the first c_d, so c theta exceeds the sum by c_d d.

    Arguments: order int64 (n,): sequences, none of them empty; layout, work: see above; out:
    theta (C,), theta_sum (C,): moved; count int64 (1,): c; totals (5,) as in `find_mistakes`, added to. Cost:
    one Viterbi a sequence; an update touches the attributes of the wrong tokens. Source: Collins (2002),
    figure 1 and section 2.5; Altun et al. (2003), Algorithm 1; the counter: Daume (2006), figure 2.3.
    """
    work.known[:] = 0
    for s in order:
        n, wrong, _ = find_mistakes(s, theta, layout, work, totals)
        step = layout.weight[s]
        for i in range(n):
            change = step * work.amount[i]
            theta[work.cell[i]] += change
            theta_sum[work.cell[i]] += count[0] * change
        if wrong:
            after_step(n, theta, layout, work)
        count[0] += 1


@kernel
def perceptron_direction(order, theta, direction, layout, work, totals):
    """direction += sum over sequences of seq_weight (S(x, gold) - S(x, best)),
    all decoded with the same theta.

    Minus a subgradient of the perceptron's criterion sum_i seq_weight_i (max_y theta . S(x_i, y) - theta .
    S(x_i, y_i)); the gradient of the log loss at s theta tends to it as s -> infinity.
    Arguments: order int64 (n,), theta (C,), layout, work, totals (5,) as in `perceptron_epoch`; out:
    direction (C,). Cost: one Viterbi a sequence. Source: Altun et al. (2003), section 5.1.
    """
    work.known[:] = 0
    for s in order:
        n, _, _ = find_mistakes(s, theta, layout, work, totals)
        for i in range(n):
            direction[work.cell[i]] += layout.weight[s] * work.amount[i]


@kernel
def passive_aggressive_epoch(
    order, pa_type, aggressiveness, by_errors, theta, theta_sum, count, layout, work, totals
):
    """Some steps of PA, sequence after sequence in the given order.

    theta' = argmin |theta' - theta|^2 / 2  subject to  theta' . dS >= margin,  dS = S(x, gold) - S(x, best)
    with margin = sqrt(wrong tokens) (by_errors) or 1, has the solution theta + tau dS:
    cost = margin - theta . dS;   tau = cost / |dS|^2                        (type 0)
    tau = min(C, cost / |dS|^2)  (1, slack costs C)   or   cost / (|dS|^2 + 1 / (2 C))  (2, slack^2 costs C)
    A sequence without a wrong token is left alone, whatever its margin. seq_weight scales the step. Averaging
    as in `perceptron_epoch`.

    Arguments: order int64 (n,); layout, work, theta (C,), theta_sum (C,), count (1,), totals (5,) as in
    `perceptron_epoch`; pa_type 0, 1 or 2; aggressiveness: C > 0; by_errors: 0 or 1.
    Cost: that of the perceptron. Source: Crammer et al. (2006), sections 3 and 9; the margins are CRFsuite's.
    """
    work.known[:] = 0
    for s in order:
        n, wrong, loss = find_mistakes(s, theta, layout, work, totals)
        n = merge_cells(n, work)
        square = 0.0
        for i in range(n):
            square += work.amount[i] ** 2
        if square > 0.0:
            cost = loss + (math.sqrt(wrong) if by_errors else 1.0)
            tau = cost / (square + 0.5 / aggressiveness) if pa_type == 2 else cost / square
            if pa_type == 1:
                tau = min(aggressiveness, tau)
            for i in range(n):
                change = layout.weight[s] * tau * work.amount[i]
                theta[work.cell[i]] += change
                theta_sum[work.cell[i]] += count[0] * change
            after_step(n, theta, layout, work)
        count[0] += 1


@kernel
def arow_epoch(order, gamma, theta, variance, layout, work, totals):
    """Some steps of AROW, sequence after sequence in the given order.

    With dS = S(x, gold) - S(x, best) of a sequence that has wrong tokens, and a diagonal covariance v:
    alpha = (wrong tokens - theta . dS) / (gamma + sum_k v_k dS_k^2)
    theta_k += seq_weight alpha v_k dS_k,   then   1 / v_k += dS_k^2 / gamma

    Arguments: order int64 (n,); layout, work, totals (5,) as in `perceptron_epoch`; gamma > 0: large
    means small steps; out: theta (C,): the means; variance (C,), > 0.
    Cost: that of the perceptron. Source: Crammer, Kulesza and Dredze (2009), figure 1;
    Mejer and Crammer (2010), section 3.
    """
    work.known[:] = 0
    for s in order:
        n, wrong, loss = find_mistakes(s, theta, layout, work, totals)
        n = merge_cells(n, work)
        if n == 0:
            continue
        confidence = gamma
        for i in range(n):
            confidence += variance[work.cell[i]] * work.amount[i] ** 2
        alpha = layout.weight[s] * (loss + wrong) / confidence
        for i in range(n):
            k = work.cell[i]
            theta[k] += alpha * variance[k] * work.amount[i]
            variance[k] = 1.0 / (1.0 / variance[k] + work.amount[i] ** 2 / gamma)
        after_step(n, theta, layout, work)
