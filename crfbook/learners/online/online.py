"""Learners that decode a sequence and correct themselves at once: perceptron, passive-aggressive, AROW.

    best = argmax_y w . S(x, y);   if best != gold:   w += (a step along)  dS = S(x, gold) - S(x, best)

No marginals and no gradient are needed, only Viterbi, and an update touches the weights of the wrong tokens
alone. First the kernels: the best path, how it differs from the gold one, then the updates. Perceptron:
towards the gold path where the best path leaves it. Passive-aggressive: the smallest step after which the
gold path wins by a margin. AROW (adaptive regularisation of weights): each weight has a variance, and certain
weights move less. Then the learners.

All weights lie in one vector of cells `theta (C,)`. chain/token_layout.py explains them, and lists the arrays
of `layout`, an OnlineLayout, and `work`, an OnlineWork. Everything costs time in proportion to the sequence.
Tables of transitions are kept until a weight changes: `work.known` marks those that are of the present
weights. Where labels are many, there are no tables and no dense rows, but `work.lists` (staggered.py).
`work.staggered` is None unless staggered decoding is asked for.

Names and defaults of the parameters are those of CRFsuite's "ap", "pa" and "arow". Sources: Collins
(2002); Altun, Johnson and Hofmann (2003), Algorithm 1; Crammer et al. (2006); Crammer,
Kulesza and Dredze (2009); Mejer and Crammer (2010).

Common arguments of all three
-----------------------------
corpus, features : S sequences, every token labelled; F weights. Sequences of length 0 or weight 0 are left
    out. `seq_weight` multiplies the step that a sequence causes, and its share of the objective.
w0 : (F,) start, default 0.
shuffle : visit the sequences in the order of `epoch_order(random_state, epoch, n)`; False: as they stand.
epsilon : stop when the mean loss of an epoch (`Step.violation`) is at most this; 0:
    when an epoch saw no wrong token.
constraints : Constraints or None; what they forbid is never decoded.
form : how the best path is found; all forms are exact. "plain": tables of all pairs of labels, nothing is
    left out. "staggered", "staggered-columns": staggered decoding, which scores rare labels only where they
    may win; one edge class and edge attribute. Its tables, 16 bytes a pair of labels, are kept up to date:
    a step costs a row and a column for each transition that moves. "auto": stored pairs alone where they are
    few of many, otherwise "plain". A tie, as all paths are at w = 0, may be decided otherwise by another
    form: then steps and weights differ, too. `CRF` takes "auto"; with an encoded corpus of its encoder_ any
    form can give its weights_.
max_iterations : epochs in all, those of `state` included. 0: w0 comes back, with its objective.
random_state : int, the seed of all orders.
callback : called with (Step, w) after each epoch, w read-only and what would be returned now; True stops.
state : `OptResult.state` of an earlier call with the same feature set; w0 is not used then. On the same
    corpus training goes on bit for bit; on another one it takes in new sequences (one pass:
    max_iterations = state["epoch"] + 1).

All return an `OptResult` with one `Step` an epoch in its history. `Step.objective` is the sum of the losses,
in nats, that the sequences had when it was their turn (w moves meanwhile), `Step.violation` the mean loss
that `epsilon` is compared with. status: "converged", "max_iterations", "stopped by callback", "interrupted"
(Ctrl-C) or "non-finite weights"; after the last two, w and state are those of the last complete epoch.
ValueError for labels that are unknown or forbidden, weights that are not finite, and parameters out of range.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, one_of, whole
from crfbook._jit import kernel
from crfbook.chain.objective import check_labels, check_state, check_weights
from crfbook.chain.scores import value_of
from crfbook.chain.sequence import feature_matrix, path_indicator, plain_viterbi, score_class, score_nodes
from crfbook.chain.sparse.default import find_next
from crfbook.chain.token_layout import (
    cells_of,
    epoch_order,
    lay_out_lists,
    lay_out_online,
    online_work,
    weights_of,
    worth_lists,
)
from crfbook.chain.viterbi import decode_sequence
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.decoding.staggered import staggered_tables
from crfbook.learners.online.staggered import decode_by_lists, refresh_all, refresh_pairs
from crfbook.training.interrupts import interruptible_stretches
from crfbook.training.loop import Callback, Learner, OptResult, State, run

LOSS, SHARE, WRONG_SEQUENCES, WRONG_TOKENS, WRONG_ROOTS, N_TOTALS = 0, 1, 2, 3, 4, 5  # places of `totals`
FORMS = "auto", "plain", "staggered", "staggered-columns"


@kernel
def node_difference(t, row, z, n, layout, work, lists):
    """Append (cell of (a, y), +x[a]) and (cell of (a, z), -x[a]) for each attribute a of token t,
    gold label y; returns the new n.

    Weights that do not exist are left out.

    Arguments:
        t : token
        row : t's position in its sequence
        z : its label on the best path
        n : entries of cell and amount in use
        layout : an `OnlineLayout`
        lists : work.lists
    Out:
        work : cell, amount, from position n on
    Cost: the attributes of the token, of lists a bisection each.
    Source: Collins (2002), figure 1.
    """
    y, M, cell, amount = layout.labels[t], layout.exists.shape[1], work.cell, work.amount
    if lists is not None:
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
        x = value_of(layout.dense_val, i)
        if layout.exists[h, y]:
            cell[n], amount[n] = h * M + y, x
            n += 1
        if layout.exists[h, z]:
            cell[n], amount[n] = h * M + z, -x
            n += 1
    for i in range(layout.pair_ptr[t], layout.pair_ptr[t + 1]):
        label = layout.pair_cell[i] - row * M
        if label == y or label == z:
            x = value_of(layout.pair_val, i)
            cell[n], amount[n] = layout.exists.size + layout.pair_weight[i], x if label == y else -x
            n += 1
    return n


@kernel
def edge_difference(t, zp, z, n, layout, work):
    """Append (cell of (b, y_{t-1}, y_t), +1) and (cell of (b, zp, z), -1) for each edge attribute b of token
    t; returns the new n.

    Arguments:
        t : token
        zp, z : the labels of t-1 and t on the best path
        n : entries of cell and amount in use
        layout : an `OnlineLayout`
    Out:
        work : cell, amount, from position n on
    Cost: two bisections an edge attribute.
    Source: Collins (2002), figure 1.
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
def decode_with(s, theta, layout, work, lists):
    """Best path of sequence s, not empty, under the cells theta: into work.path; returns its score.

    Arguments:
        s : sequence
        theta : (C,)
        layout : an `OnlineLayout`
        lists : work.lists
    Out:
        work : an `OnlineWork`
    Cost: one addition per stored (occurrence, weight) pair, T M^2 additions and maxima.
    Source: Collins (2002), section 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    score_nodes(s, theta, 1.0, layout, lists, work.log_node)
    if lists is not None:
        if not work.known[0]:
            refresh_all(theta, lists, work.staggered)
            work.known[0] = 1
        return decode_by_lists(first, last, layout, lists, work.log_node, work.path, work.staggered)
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        if not work.known[k]:
            score_class(k, theta, 1.0, layout, work.log_edge)
            work.known[k] = 1
    # dominance would change with every update, and costs L^3
    nothing_is_dominated = np.empty((0, 0, 0))
    return decode_sequence(
        work.log_node, work.log_edge, work.log_edge_t, nothing_is_dominated, 0.0,
        layout.edge_class[first:last], 0, last - first, work.path, work.delta, work.best, work.rows
    )  # fmt: skip


@kernel
def after_step(n, theta, work, lists):
    """Update what is computed from the weights, or mark it as stale, after the cells work.cell[:n] have
    moved.

    Arguments:
        n : entries of cell and amount in use
        theta : (C,)
        lists : work.lists
    Out:
        work : known, lists, staggered
    Cost: the classes, or a row of stored pairs for each transition that moved.
    Source: chapter 11.
    """
    if lists is not None:
        refresh_pairs(n, theta, lists, work.cell, work.staggered)
    else:
        work.known[:] = 0


@kernel
def find_mistakes(s, theta, layout, work, totals):
    """dS = S(x, gold) - S(x, best) of sequence s as work.cell[:n], work.amount[:n], cells may repeat;
    returns (n, wrong, loss).

    loss = score(best) - score(gold) = -theta . dS >= 0 in nats; wrong = tokens where the paths differ (n = 0
    if none). totals += seq_weight * (loss, wrong / T, 1 if wrong, wrong, sqrt(wrong)): what an epoch reports.

    Arguments:
        s : sequence
        theta : (C,)
        layout, work : as in `decode_with`
    Out:
        totals : (5,), added to
    Cost: that of `decode_with`, and the attributes of the wrong tokens.
    Source: Collins (2002), figure 1.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    score = decode_with(s, theta, layout, work, work.lists)
    # n is no literal 0: for it `node_difference` would compile anew
    path, n, wrong, loss = work.path, np.int64(0), 0, 0.0
    for t in range(first, last):
        row = t - first
        here = path[row] != layout.labels[t]
        wrong += here
        if here:
            n = node_difference(t, row, path[row], n, layout, work, work.lists)
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

    Arguments:
        n : entries of cell and amount in use
    Out:
        work : cell, amount, of which n are used; its slot is all 0 before and after
    Cost: O(n).
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
def move_along(n, step, theta, theta_sum, count, work):
    """theta += d, theta_sum += count d, where d = step dS, dS as `find_mistakes` left it in `work`.

    Averaging costs no more than the step itself: `count` c is 1 at the start, and grows by 1 after every
    sequence. Then theta - theta_sum / c is the mean of all c vectors so far, the start included: d enters
    every vector but the first c_d, so c theta exceeds the sum by c_d d.

    Arguments:
        n : terms of dS
        step : factor of dS
        count : int64 (1,)
    Out:
        theta, theta_sum : (C,)
        work : cell, amount, and what is kept of the weights
    Cost: O(n), and that of `after_step`.
    Source: Collins (2002), figure 1 and section 2.5; the counter: Daume (2006), figure 2.3.
    """
    for i in range(n):
        change = step * work.amount[i]
        theta[work.cell[i]] += change
        theta_sum[work.cell[i]] += count[0] * change
    after_step(n, theta, work, work.lists)


@kernel
def perceptron_epoch(order, theta, theta_sum, count, layout, work, totals):
    """Some steps of the online perceptron, sequence after sequence in the given order.

    best = argmax_y theta . S(x, y);  if best != gold:  theta += d,  d = seq_weight (S(x, gold) - S(x, best))

    Arguments:
        order : int64 (n,), sequences, none of them empty
        layout : an `OnlineLayout`
        work : an `OnlineWork`
    Out:
        theta : (C,)
        theta_sum : (C,)
        count : int64 (1,) as in `move_along`
        totals : (5,) as in `find_mistakes`, added to
    Cost: one Viterbi a sequence; an update touches the attributes of the wrong tokens.
    Source: Collins (2002), figure 1; Altun et al. (2003), Algorithm 1.
    """
    work.known[:] = 0
    for s in order:
        n, wrong, _ = find_mistakes(s, theta, layout, work, totals)
        if wrong:
            move_along(n, layout.weight[s], theta, theta_sum, count, work)
        count[0] += 1


def difference_plain(s, w, corpus, features):
    """(dS (F,), wrong tokens): S(x, gold) - S(x, best) of sequence s under weights w (F,).

    The readable sister of `find_mistakes`, without hard constraints. Source: Collins (2002), figure 1.
    """
    X, gold = feature_matrix(s, corpus, features)
    best = plain_viterbi(X @ w, features.n_labels)
    wrong = np.sum(corpus.labels[corpus.seq_ptr[s] : corpus.seq_ptr[s + 1]] != best)
    return X.T @ (gold - path_indicator(best, features.n_labels)), wrong


def perceptron_epoch_plain(order, w, w_sum, count, corpus, features):
    """The readable sister of `perceptron_epoch`, on weights w (F,) without hard constraints: returns count.

    order : sequences.
    w, w_sum : (F,), moved; w - w_sum / count is the mean of all weight vectors so far.
    count : 1 at the start.
    Source: Collins (2002), figure 1 and section 2.5; Altun et al. (2003), Algorithm 1.
    """
    for s in order:
        step = corpus.weights[s] * difference_plain(s, w, corpus, features)[0]
        w += step
        w_sum += count * step
        count += 1
    return count


@kernel
def perceptron_direction(order, theta, direction, layout, work, totals):
    """direction += sum over sequences of seq_weight (S(x, gold) - S(x, best)),
    all decoded with the same theta.

    Minus a subgradient of the perceptron's criterion sum_i seq_weight_i (max_y theta . S(x_i, y) - theta .
    S(x_i, y_i)); the gradient of the log loss at s theta tends to it as s -> infinity.

    Arguments:
        order : int64 (n,)
        theta : (C,)
        layout : an `OnlineLayout`
        work : an `OnlineWork`
        totals : (5,) as in `perceptron_epoch`
    Out:
        direction : (C,)
    Cost: one Viterbi a sequence.
    Source: Altun et al. (2003), section 5.1.
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
    as in `move_along`.

    Arguments:
        order : int64 (n,)
        layout : an `OnlineLayout`
        work : an `OnlineWork`
        theta : (C,)
        theta_sum : (C,)
        count : (1,)
        totals : (5,) as in `perceptron_epoch`
        pa_type : 0, 1 or 2
        aggressiveness : C > 0
        by_errors : 0 or 1
    Cost: that of the perceptron.
    Source: Crammer et al. (2006), sections 3 and 9; the margins are CRFsuite's.
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
            move_along(n, layout.weight[s] * tau, theta, theta_sum, count, work)
        count[0] += 1


def passive_aggressive_epoch_plain(
    order, pa_type, aggressiveness, by_errors, w, w_sum, count, corpus, features
):  # fmt: skip
    """The readable sister of `passive_aggressive_epoch`, on weights w (F,) without hard constraints: returns
    count.

    order : sequences.
    pa_type : 0 without slack, 1 or 2 with slack at price C a unit or squared unit.
    aggressiveness : C.
    by_errors : the margin is sqrt(wrong tokens); else 1.
    w, w_sum, count : as in `perceptron_epoch_plain`.
    Source: Crammer et al. (2006), sections 3 and 9.
    """
    for s in order:
        dS, wrong = difference_plain(s, w, corpus, features)
        square = dS @ dS
        margin = math.sqrt(wrong) if by_errors else 1.0
        cost = margin - w @ dS
        if square > 0.0:
            tau = cost / (square + 0.5 / aggressiveness) if pa_type == 2 else cost / square
            if pa_type == 1:
                tau = min(aggressiveness, tau)
            step = corpus.weights[s] * tau * dS
            w += step
            w_sum += count * step
        count += 1
    return count


@kernel
def arow_epoch(order, gamma, theta, variance, layout, work, totals):
    """Some steps of AROW, sequence after sequence in the given order.

    With dS = S(x, gold) - S(x, best) of a sequence that has wrong tokens, and a diagonal covariance v:
    alpha = (wrong tokens - theta . dS) / (gamma + sum_k v_k dS_k^2)
    theta_k += seq_weight alpha v_k dS_k,   then   1 / v_k += dS_k^2 / gamma

    Arguments:
        order : int64 (n,)
        layout : an `OnlineLayout`
        work : an `OnlineWork`
        totals : (5,) as in `perceptron_epoch`
        gamma : > 0: large means small steps
    Out:
        theta : (C,), the means
        variance : (C,), > 0
    Cost: that of the perceptron.
    Source: Crammer, Kulesza and Dredze (2009), figure 1; Mejer and Crammer (2010), section 3.
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
        after_step(n, theta, work, work.lists)


def arow_epoch_plain(order, gamma, w, variance, corpus, features):
    """The readable sister of `arow_epoch`, on weights w (F,) without hard constraints.

    order : sequences.
    gamma : > 0, large means small steps.
    w, variance : (F,), moved.
    Source: Crammer, Kulesza and Dredze (2009), figure 1.
    """
    for s in order:
        dS, wrong = difference_plain(s, w, corpus, features)
        tau = (wrong - w @ dS) / (gamma + variance @ dS**2)
        w += corpus.weights[s] * tau * variance * dS
        variance[:] = 1.0 / (1.0 / variance + dS**2 / gamma)


def perceptron(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    average: bool = True,
    batch: bool = False,
    shuffle: bool = True,
    epsilon: float = 0.0,
    constraints: Limits = None,
    form: str = "auto",
    max_iterations: int = 10,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Structured perceptron. Common arguments: see the module.

    average : return the mean of all weight vectors so far, not the last one (Collins 2002, section 2.5).
    batch : decode everything with fixed weights, then add the mean over the sequences of dS (Altun et al.
        2003, section 5.1). The mean and not the sum, so that a start w0 counts for something; from w0 = 0 the
        length of the step makes no difference, as the best path does not depend on the scale of w.
        `average` is then the mean over epochs.

    Loss of a sequence: max_y score(y) - score(gold), to which its log loss tends when all weights grow.
    `Step.violation` is the mean share of wrong tokens (what CRFsuite's "ap" prints and stops by).
    """
    common = corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state, form
    return run((_Batch if batch else _Online)(*common, perceptron_epoch, average), callback)


def passive_aggressive(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    pa_type: int = 1,
    c: float = 1.0,
    error_sensitive: bool = True,
    averaging: bool = True,
    shuffle: bool = True,
    epsilon: float = 0.0,
    constraints: Limits = None,
    form: str = "auto",
    max_iterations: int = 10,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Passive-aggressive: the smallest step after which gold beats the best path by a margin.
    Common arguments: see the module.

    pa_type : 0, the margin must be met; 1 and 2, slack is allowed and paid for,
        linearly (PA-I) or squared (PA-II).
    c : > 0, aggressiveness: the price of slack. Without meaning for pa_type 0.
    error_sensitive : the margin is the square root of the number of wrong tokens; False: it is 1.
    averaging : return the mean of all weight vectors so far, not the last one.

    Loss of a sequence: max_y score(y) - score(gold) + margin if its best path is wrong, else 0;
    `Step.violation` is its mean.
    """
    one_of("pa_type", pa_type, (0, 1, 2))
    c = number("c", c, above=0.0)
    common = corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state, form
    rule = int(pa_type), c, int(error_sensitive)
    margin = WRONG_ROOTS if error_sensitive else WRONG_SEQUENCES
    return run(_Online(*common, passive_aggressive_epoch, averaging, rule, margin), callback)


def arow(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    variance: float = 1.0,
    gamma: float = 1.0,
    shuffle: bool = True,
    epsilon: float = 0.0,
    constraints: Limits = None,
    form: str = "auto",
    max_iterations: int = 10,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """AROW: a weight that has often been updated moves little. Common arguments: see the module.

    variance : > 0, of every weight at the start. `state["variance"]` (F,) are the present ones.
    gamma : > 0; large: small steps, and variances that fall slowly.

    Loss of a sequence: max_y score(y) - score(gold) + wrong tokens; `Step.violation` is its mean.
    """
    variance, gamma = number("variance", variance, above=0.0), number("gamma", gamma, above=0.0)
    common = corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state, form
    return run(_Online(*common, arow_epoch, False, (gamma,), WRONG_TOKENS, variance), callback)


class _Online(Learner):
    """Weights as cells, and their sum for averaging; order, stopping, resuming.

    theta, theta_sum, count : (C,), (C,), (1,) as in `move_along`.
    variance : (C,) of AROW, or None.
    epoch(order, *rule, *moved, layout, work, totals) : the kernel of an epoch, which moves these.
    margin : place in `totals` of the margins that a loss counts, or None.
    """

    def __init__(
        self, corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state,
        form, epoch, average=True, rule=(), margin=None, variance=None,
    ):  # fmt: skip
        one_of("form", form, FORMS)
        if form in FORMS[2:] and (corpus.n_classes, features.n_edge_attrs) != (1, 1):
            raise ValueError(
                f"form={form!r}: expected one edge class and one edge attribute, got {corpus.n_classes:,} "
                f"and {features.n_edge_attrs:,}; 'plain' and 'auto' take any number"
            )
        check_labels(corpus, features, constraints)
        n_weights = features.n_features
        if state is None:
            w = check_weights(np.zeros(n_weights) if w0 is None else w0, n_weights)
            state = {"w": w, "w_sum": np.zeros(n_weights), "count": 1, "epoch": 0, "seconds": 0.0}
            if variance is not None:
                state["variance"] = np.full(n_weights, variance)
        for name in ("w", "w_sum", "variance")[: 2 if variance is None else 3]:
            check_state(state, name, n_weights)
        self.epsilon = number("epsilon", epsilon)
        self.max_iterations = whole("max_iterations", max_iterations)
        self.shuffle, self.seed, self.average = shuffle, random_state, bool(average)
        self.epoch, self.rule, self.margin = epoch, rule, margin
        lists = staggered = None
        if form == "auto" and worth_lists(corpus, features) or form in FORMS[2:]:
            self.layout, self.cells, lists = lay_out_lists(corpus, features, constraints)
        else:
            self.layout, self.cells = lay_out_online(corpus, features, constraints)
        if form in FORMS[2:]:
            staggered = _staggered(corpus, self.layout.bounds, form == FORMS[3])
        self.theta, self.theta_sum = cells_of(self.cells, state["w"]), cells_of(self.cells, state["w_sum"])
        self.variance = None if variance is None else cells_of(self.cells, state["variance"])
        self.count = np.array([state["count"]], np.int64).reshape(1)
        self.iteration, self.seconds = int(state["epoch"]), float(state["seconds"])
        self.work = online_work(self.layout, len(self.theta), lists, staggered)
        self.totals = np.zeros(N_TOTALS)
        self.sequences = corpus.visited
        self.good = self._snapshot()

    def learn(self, order):
        """One epoch; `totals` are added to."""
        averaged = self.theta_sum, self.count
        moved = self.theta, *(averaged if self.variance is None else [self.variance])
        for part in interruptible_stretches(order):
            self.epoch(part, *self.rule, *moved, self.layout, self.work, self.totals)

    def advance(self):
        order = self.sequences
        if self.shuffle:
            order = order[epoch_order(self.seed, self.iteration, len(order))]
        self.totals[:] = 0.0
        self.learn(order)
        mean = self.theta - self.theta_sum / self.count[0]
        if not np.isfinite([*self.totals, self.theta.sum(), mean.sum()]).all():
            return "non-finite weights"
        self.iteration, self.n_evaluations = self.iteration + 1, self.n_evaluations + 1
        self.good = self._snapshot()
        self.objective, loss = map(float, self.losses(self.totals))
        self.violation = loss / max(1, len(order))
        return None

    def losses(self, totals):
        """(objective, loss to be averaged)."""
        if self.margin is None:
            return totals[LOSS], totals[SHARE]
        return (totals[LOSS] + totals[self.margin],) * 2

    def finished(self):
        return "converged" if self.violation <= self.epsilon else None

    def _snapshot(self):
        """Where the last complete epoch ended: arrays of our own, in the order of the features."""
        vectors = {"w": self.theta, "w_sum": self.theta_sum, "variance": self.variance}
        state = {name: weights_of(self.cells, v) for name, v in vectors.items() if v is not None}
        return state | {"count": self.count.copy(), "epoch": np.array(self.iteration)}

    def state(self):
        return self.good | {"seconds": np.array(self.seconds)}

    def weights(self):
        """Averaged or as they are, a new array."""
        w, w_sum, count = self.good["w"], self.good["w_sum"], self.good["count"][0]
        return w - w_sum / count if self.average else w.copy()

    def final_objective(self):
        """The objective of the last epoch; before the first, that of the start. At w = 0 every path is a best
        one, the gold one too: its loss is 0 without a pass over the corpus.
        """
        if self.n_evaluations or not self.good["w"].any():
            return self.objective if self.n_evaluations else 0.0
        totals = np.zeros(N_TOTALS)
        self.direction(self.sequences, cells_of(self.cells, self.weights()), totals)
        return self.losses(totals)[0]

    def direction(self, order, theta, totals):
        """(C,): weighted sum of S(x, gold) - S(x, best) over the sequences of `order`."""
        direction = np.zeros_like(theta)
        for part in interruptible_stretches(order):
            perceptron_direction(part, theta, direction, self.layout, self.work, totals)
        return direction


class _Batch(_Online):
    """One step an epoch, along the mean of dS; the counter counts epochs."""

    def learn(self, order):
        direction = self.direction(order, self.theta, self.totals) / max(1, len(order))
        self.theta += direction
        self.theta_sum += self.count * direction
        self.count += 1


def _staggered(corpus, bounds, by_column):
    """(`StaggeredTables` of weights 0, place of each label in their order), by frequency in the corpus."""
    order = np.argsort(-np.bincount(corpus.labels, minlength=len(bounds.edge)), kind="stable")
    return staggered_tables(bounds.edge[None], order, by_column), np.argsort(order)
