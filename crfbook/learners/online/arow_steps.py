"""AROW, adaptive regularisation of weights: each weight has a variance, and certain weights move less."""

from crfbook._jit import kernel
from crfbook.learners.online.mistakes import find_mistakes, merge_cells


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
