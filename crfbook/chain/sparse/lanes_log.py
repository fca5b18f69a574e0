"""Forward-backward with a default in logarithms: nothing underflows, whatever is forbidden.

What lanes.py flags comes here, one sequence at a time, and what only wants log Z of a few of them. `edges` is
a `DefaultEdges` of potentials.py. One edge class.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sparse.lanes import LEAST_SHARE
from crfbook.chain.vector_math import exp_inplace


@kernel
def _log_sum_exp(x, x_buf):
    """log sum_i exp(x[i]); -inf if all are."""
    high, total = -np.inf, 0.0
    for i in range(x.size):
        high = x[i] if x[i] > high else high
    if high == -np.inf:
        return high
    for i in range(x.size):
        x_buf[i] = x[i] - high
    exp_inplace(x_buf)
    for i in range(x.size):
        total += x_buf[i]
    return high + np.log(total)


@kernel
def _shares(x, share):
    """share = exp(x - high); returns high, the largest x."""
    high = -np.inf
    for y in range(x.size):
        high = x[y] if x[y] > high else high
    for y in range(x.size):
        share[y] = x[y] - high if x[y] > -np.inf else -np.inf
    exp_inplace(share)
    return high


@kernel
def _least_total(edges):
    """Sums of shares above this count all that matters: a share below exp(-708) is 0, whatever its gain."""
    return np.exp(min(edges.edge_spread[0], 700.0) - 660.0)


@kernel
def _log_of(total, some, high, least):
    """high + log(some), or NaN where `some`, what stored pairs left of total, has lost digits."""
    safe = total > least and some > LEAST_SHARE * total and some < 1e300
    return high + np.log(some) if safe else np.nan


@kernel
def _before(edges, log_alpha, share, x_buf, term, out):
    """out[y] = log sum_yp exp(log_alpha[yp] + s(yp,y))."""
    scores, high, least = edges.scores, _shares(log_alpha, share), _least_total(edges)
    for g in range(scores.member_ptr.size - 1):
        first, stop, total = scores.member_ptr[g], scores.member_ptr[g + 1], 0.0
        for c in range(first, stop):
            total += share[scores.member[c]]
        for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
            y, some = scores.label[i], total
            columns = range(edges.column_ptr[y], edges.column_ptr[y + 1])
            for k in columns:
                some += share[edges.column_prev[k]] * edges.column_gain[k]
            out[y] = _log_of(total, some, high, least)
            if np.isnan(out[y]):
                term[:] = -np.inf
                for c in range(first, stop):
                    term[scores.member[c]] = log_alpha[scores.member[c]]
                for k in columns:
                    yp = edges.column_prev[k]
                    term[yp] = log_alpha[yp] + scores.score[edges.column_place[k]]
                out[y] = _log_sum_exp(term, x_buf)


@kernel
def _behind(edges, log_v, share, x_buf, term, out):
    """out[yp] = log sum_y exp(s(yp,y) + log_v[y])."""
    scores, high, least = edges.scores, _shares(log_v, share), _least_total(edges)
    out[:] = -np.inf
    for g in range(scores.member_ptr.size - 1):
        labels, total = scores.label[scores.label_ptr[g] : scores.label_ptr[g + 1]], 0.0
        for y in labels:
            total += share[y]
        for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
            row, some = range(scores.row_ptr[c], scores.row_ptr[c + 1]), total
            for k in row:
                some += share[scores.next_label[k]] * edges.gain[k]
            found = _log_of(total, some, high, least)
            if np.isnan(found):
                term[:] = -np.inf
                for y in labels:
                    term[y] = log_v[y]
                for k in row:
                    term[scores.next_label[k]] = log_v[scores.next_label[k]] + scores.score[k]
                found = _log_sum_exp(term, x_buf)
            yp = scores.member[c]
            out[yp] = np.logaddexp(out[yp], found)


@kernel
def _normalised(x):
    """x[y] -= max x; returns that, and 0 where all are -inf."""
    high = -np.inf
    for y in range(x.size):
        high = x[y] if x[y] > high else high
    for y in range(x.size if high > -np.inf else 0):
        x[y] -= high
    return high if high > -np.inf else 0.0


@kernel
def default_log_forward(log_node, edges, log_alpha):
    """Forward vectors of one sequence in logarithms, the largest of each 0; returns log Z, -inf if every path
    is forbidden.

    la[0] = log_node[0] - gain[0],  a = exp la[t-1]
    la[t,y] = log_node[t,y] + log(sum_yp a[yp] + sum_stored a[yp] gain(yp,y)) - gain[t]
    log_z = sum_t gain[t] + log sum_y exp la[T-1,y]
    Arguments: log_node (T, >= L), T >= 1; edges; out: log_alpha (T, L). Cost a token: L exps and logarithms,
    the stored pairs, and L exps more for each sum that lost digits. Source: docs/SPEC.md, A.3, D.2.
    """
    T, L = log_alpha.shape
    share, x_buf, term = np.empty(L), np.empty(L), np.empty(L)
    for y in range(L):
        log_alpha[0, y] = log_node[0, y]
    log_z = _normalised(log_alpha[0])
    for t in range(1, T):
        _before(edges, log_alpha[t - 1], share, x_buf, term, log_alpha[t])
        for y in range(L):
            log_alpha[t, y] += log_node[t, y]
        log_z += _normalised(log_alpha[t])
    return log_z + _log_sum_exp(log_alpha[T - 1], x_buf)


@kernel
def default_log_backward(log_node, edges, log_alpha, weight, p_node, count):
    """Node marginals of one sequence, and expected counts of the stored pairs, from `default_log_forward`.

    lb[T-1] = 0;  lb[t-1,yp] = log(sum_y e^lv[y] + sum_stored gain(yp,y) e^lv[y]),  lv = log_node[t] + lb[t]
    z[t] = log sum_y exp(la[t,y] + lb[t,y]);  p_node = exp(la + lb - z)
    p(yp,y) = exp(la[t-1,yp] + s(yp,y) + lv[y] - z[t-1]);  then lb[t-1] -= its largest
    So each row sums to one, however large the scores are.
    Arguments: log_node (T, >= L); edges; log_alpha (T, L), of a sequence that has a path; weight; out: p_node
    (T, L) = weight * marginals; count (P,): += weight * p of each stored pair. Cost a token: that of the
    forward pass, L exps and an exp a stored pair. Source: docs/SPEC.md, D.2.
    """
    T, L = log_alpha.shape
    scores, share, x_buf, term = edges.scores, np.empty(L), np.empty(L), np.empty(L)
    log_beta, log_v = np.zeros(L), np.empty(L)
    for t in range(T - 1, -1, -1):
        for y in range(L):
            p_node[t, y] = log_alpha[t, y] + log_beta[y]
        z = _log_sum_exp(p_node[t], x_buf)
        for y in range(L):
            p_node[t, y] = weight * np.exp(p_node[t, y] - z)
        for c in range(scores.member.size if t < T - 1 else 0):
            before = log_alpha[t, scores.member[c]] - z
            for k in range(scores.row_ptr[c], scores.row_ptr[c + 1]):
                log_p = before + scores.score[k] + log_v[scores.next_label[k]]
                count[k] += weight * np.exp(min(log_p, 0.0))  # above 0 is rounding
        _normalised(log_beta)
        for y in range(L if t > 0 else 0):
            log_v[y] = log_node[t, y] + log_beta[y]
        if t > 0:
            _behind(edges, log_v, share, x_buf, term, log_beta)
