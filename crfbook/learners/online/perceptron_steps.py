"""The structured perceptron: decode, and move towards the gold path where the best path leaves it."""

from crfbook._jit import kernel
from crfbook.learners.online.mistakes import find_mistakes


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
