"""The updates of perceptron, passive-aggressive and AROW: decode a sequence, and move where it is wrong.

perceptron: towards the gold path where the best path leaves it. Passive-aggressive: the smallest step after
which the gold path wins by a margin. AROW (adaptive regularisation of weights): each weight has a variance,
and certain weights move less.
"""

import math

from crfbook._jit import kernel
from crfbook.learners.online.mistakes import find_mistakes, merge_cells


@kernel
def perceptron_epoch(order, theta, theta_sum, count, layout, work, totals):
    """Some steps of the online perceptron, sequence after sequence in the given order.

    best = argmax_y theta . S(x, y);  if best != gold:  theta += d,  d = seq_weight (S(x, gold) - S(x, best))
    Averaging costs no more than the step itself: with c = 1 at the start, each step also does theta_sum += c
    d, and c += 1 after every sequence. Then theta - theta_sum / c is the mean of all c vectors so far, the
    start included: d enters every vector but the first c_d, so c theta exceeds the sum by c_d d.

    Arguments: order int64 (n,): sequences, none of them empty; layout, work: see mistakes.py; out:
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
            work.known[:] = 0
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
            work.known[:] = 0
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
        work.known[:] = 0
