"""Passive-aggressive updates: the smallest step after which the gold path wins by a margin."""

import math

from crfbook._jit import kernel
from crfbook.learners.online.mistakes import find_mistakes, merge_cells


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
