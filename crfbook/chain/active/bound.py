"""How wrong log Z of active sets can be, from what was dropped.

All numbers are positive, so a vector above alpha stays above it in every later step, and one below stays
below. Each step is as in sequence.py, with more or less for the pairs that were dropped. Of the next labels
y that are active themselves all pairs are taken in. Of the others the dropped labels bring at most

    high(y) = min( lost max_yp gain(yp,y),  largest sum_yp gain(yp,y) ),  gain > 0 alone,

where lost is the mass of the dropped labels, and largest the largest single one. So log Z lies between

    low <= log Z <= high

whatever the rule of the sets was. Next labels that are not active have little mass, which is why the bound
is close. Source: ours; chapter 10 derives it.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.active.sequence import ALL, active_step, column_anew, row_sum
from crfbook.chain.sparse.lanes import LEAST_SHARE

ABOVE, BELOW = 0, 1


@kernel
def _add_dropped(side, t, before, scores, limits, mark, a):
    """a[y] plus or minus the most that labels not active at t - 1 can add or take."""
    most, every = limits.largest[side], limits.total[side]
    for g in range(scores.member_ptr.size - 1):
        lost, largest = 0.0, 0.0
        for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
            yp = np.uint32(scores.member[c])
            x = before[yp] if mark[yp] != t - 1 else 0.0
            lost += x
            largest = x if x > largest else largest
        for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
            y = np.uint32(scores.label[i])
            x = min(lost * most[y], largest * every[y])
            a[y] = a[y] + x if side == ABOVE else max(0.0, a[y] - x)


@kernel
def _whole_columns(t, before, edges, limits, cell, ptr, work, total_buf, a):
    """a[y] = sum over all yp of before[yp] psi(yp,y) for the labels y that are active at token t."""
    scores, prev, gain, column_ptr = edges.scores, edges.column_prev, edges.column_gain, edges.column_ptr
    member, group = scores.member, scores.group
    for g in range(total_buf.size):
        total_buf[g] = 0.0
        for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
            total_buf[g] += before[member[c]]
    first, n = ptr[t], ptr[t + 1] - ptr[t]
    # a function of its own for one label would count references to forty arrays each time
    for i in range(n + limits.last.size):
        y = member[cell[first + i]] if i < n else limits.last[i - n]
        some = total_buf[group[y]]
        least = LEAST_SHARE * some
        for k in range(column_ptr[y], column_ptr[y + 1]):
            some += before[prev[k]] * gain[k]
        if some < least:
            some = column_anew(y, ALL, before, edges, 1, work.mark, work.factor)
        a[y] = some


@kernel
def bound_log_z(side, rows, psi, edges, limits, cell, ptr, work):
    """A number above (side = ABOVE) or below (BELOW) log Z of the whole model, for one sequence.

    A[t,y] = psi[t,y] sum_yp A[t-1,yp] psi_t(yp,y),  psi_t as in `active_forward` with the default outside;
    plus high(y), or minus low(y), where y is not active at t; all stored pairs where it is
    Arguments: side; rows, psi (n, >= L), edges, cell, ptr as `active_forward` left them; limits: an
    `Extremes`; work: its first two rows of alpha, mark and factor overwritten. inf, or -inf, where float64
    ends. Cost: that of `active_forward`, and the pairs into active labels. Source: ours; chapter 10.
    """
    before, a, mark, log_z = work.alpha[0], work.alpha[min(1, work.alpha.shape[0] - 1)], work.mark, 0.0
    total_buf = np.empty(edges.scores.member_ptr.size - 1)
    mark[:] = -1
    for t in range(rows.size):
        u = psi[rows[t]]
        if t == 0:
            a[:] = 1.0
        else:
            active_step(t, edges, 1, cell, ptr, before, mark, work.factor, a)
            _add_dropped(side, t, before, edges.scores, limits, mark, a)
            _whole_columns(t, before, edges, limits, cell, ptr, work, total_buf, a)
        for y in range(a.size):
            a[y] *= u[y]
        mass = row_sum(a)
        if not (mass > 0.0 and mass < np.inf):
            return np.inf if side == ABOVE else -np.inf
        log_z += np.log(mass)
        for y in range(a.size):
            a[y] /= mass
        for i in range(ptr[t], ptr[t + 1]):
            mark[edges.scores.member[cell[i]]] = t
        before, a = a, before
    return log_z
