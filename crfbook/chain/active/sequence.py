"""Forward-backward with active sets: at each token only the stored pairs of some labels count.

Most labels have hardly any mass. A label yp is *active* at token t if its share of the forward mass is large
enough, or if it is the gold label. All pairs of other labels get the default, potential 1:

    a[t,y] = psi[t,y] ( sum_yp alpha[t-1,yp] + sum_{yp active, stored} alpha[t-1,yp] gain(yp,y) )

So no mass is lost, only which next label it prefers. `outside` = 0 leaves out labels that are not active: the
beam of Pal, Sutton and McCallum (2006), Method 1 of Jeong, Lin and Lee (2009). Both are exact inference in
another model, whose transitions depend on the token. While the sets stay the same, that model does: its log Z
is convex in the weights, and the gradient is exact.

A sequence is computed by itself, as it has sets of its own. `rows` int64 (T,): rows of its tokens in psi,
p_node, labels; `edges`: a `DefaultEdges` of sparse/potentials.py; `rule`, `work`, `pairs`: see below. A
*cell* is a previous label in the list of a group, as in sparse/default.py. The active cells of token t are
cell[ptr[t]:ptr[t+1]], rising: cell int32 (>= T C,), ptr int64 (T+1,). theta (F,): the present weights, where
`pairs` is not None.

`bound_log_z` says how wrong log Z of active sets can be, from what was dropped. All numbers are positive, so
a vector above alpha stays above it in every later step, and one below stays below. Each step is as in
`active_step`, with more or less for the pairs that were dropped. A next label y that is active takes all its
pairs. To another one the dropped labels add at most

    high(y) = min( lost max_yp gain(yp,y),  largest sum_yp gain(yp,y) ),  gain > 0 alone,

where lost is the mass of the dropped labels, and largest the largest single one. So log Z lies between

    low <= log Z <= high

whatever the rule of the sets was. Next labels that are not active have little mass, which is why the bound
is close. Source: ours; chapter 10 derives it.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS
from crfbook.chain.sparse.lanes import LEAST_SHARE, column_factors, row_factors
from crfbook.chain.vector_math import exp_inplace

EPS = 1e-3  # the paper's, and the default
ALL = -2  # in place of a token: the stored pairs of all labels count
ABOVE, BELOW = 0, 1  # sides of `bound_log_z`


class ActiveRule(NamedTuple):
    """Which labels are active."""

    least_share: float  # eps: those with alpha >= eps; 0: all
    lost_mass: float  # >= 0: the smallest set that loses at most this; -1: eps alone counts
    outside: int  # 1: the default potential for all pairs of other labels; 0: no potential


class ActiveWork(NamedTuple):
    """What one thread writes; T steps of the longest sequence."""

    alpha: np.ndarray  # (T, L)
    scale: np.ndarray  # (T,)
    v: np.ndarray  # (L,)
    beta: np.ndarray  # (L,)
    factor: np.ndarray  # (L,)
    aside: np.ndarray  # (L,)
    mark: np.ndarray  # int64 (L,): the last token that a label was active at


class PairWeights(NamedTuple):
    """Where the scores of stored pairs come from while the weights change all the time: scale w[weight]."""

    weight: np.ndarray  # int64 (P,): weight of each stored pair
    scale: np.ndarray  # (1,)
    step: np.ndarray  # int64 (1,): number of the present weights
    known: np.ndarray  # int64 (C,): of the weights that the pairs of a cell have been taken from


class Extremes(NamedTuple):
    """Of the stored pairs into each label, those that raise it (first row) and those that lower it."""

    largest: np.ndarray  # (2, L): of |gain|
    total: np.ndarray  # (2, L): sum of |gain|
    last: np.ndarray  # int32: labels that nothing may follow; no set has them


def check_eps(eps):
    """`eps` as a number in [0, 1); ValueError."""
    flag = isinstance(eps, bool | np.bool_)
    if flag or not isinstance(eps, Real) or not 0.0 <= eps < 1.0:
        raise ValueError(f"eps: expected a number from 0 to below 1, got {shown(eps)}")
    return float(eps)


def check_transitions(corpus, features):
    """ValueError where transitions depend on attributes."""
    if (corpus.n_classes, features.n_edge_attrs) != (1, 1):
        raise ValueError(
            "active sets: expected the same transitions at all tokens, got those of "
            f"{corpus.n_classes:,} classes and {features.n_edge_attrs:,} attributes: use exact inference"
        )


def active_work(n_steps, n_labels):
    """`ActiveWork` for sequences of up to n_steps tokens."""
    vectors = np.empty((4, n_labels))
    table, marks = np.empty((n_steps, n_labels)), np.empty(n_labels, np.int64)
    return ActiveWork(table, np.empty(n_steps), *vectors, marks)


def extremes(edges):
    """`Extremes` of a `DefaultEdges`."""
    n_labels, into = len(edges.scores.group), edges.scores.next_label
    largest, total = np.zeros((2, 2, n_labels))
    for side, gain in enumerate((edges.gain, -edges.gain)):
        gain = np.maximum(gain, 0.0)
        np.maximum.at(largest[side], into, gain)
        total[side] = np.bincount(into, gain, minlength=n_labels)
    last = np.setdiff1d(np.arange(n_labels), edges.scores.member).astype(np.int32)
    return Extremes(largest, total, last)


@kernel
def row_sum(x):
    """sum_i x[i], in eight partial sums side by side.

    Arguments:
        x : (n,)
    Cost: n.
    Source: docs/SPEC.md, F.2.
    """
    n = x.size - x.size % 8
    a = b = c = d = e = f = g = h = 0.0
    for i in range(0, n, 8):
        a += x[i]
        b += x[i + 1]
        c += x[i + 2]
        d += x[i + 3]
        e += x[i + 4]
        f += x[i + 5]
        g += x[i + 6]
        h += x[i + 7]
    for i in range(n, x.size):
        a += x[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@kernel
def _least_kept(alpha, lost_mass):
    """The smallest alpha of the smallest set whose mass is at least 1 - lost_mass."""
    order, kept = np.argsort(-alpha), 0.0
    for i in range(order.size):
        kept += alpha[order[i]]
        if kept >= 1.0 - lost_mass:
            return alpha[order[i]]
    return 0.0


@kernel
def choose_cells(alpha, gold, rule, scores, cell, n):
    """Append the active cells of a token to cell[:n]; returns the new n.

    Arguments:
        alpha : (L,), of sum 1
        gold : label, -1: unknown
        rule : an `ActiveRule`
        scores : a `DefaultScores`
    Out:
        cell : int32 (>= n + C,), C cells
        n : the new end of cell
    Cost: C; sorting L numbers if rule.lost_mass is given.
    Source: Pal, Sutton and McCallum (2006); Jeong, Lin and Lee (2009), section 3.2.
    """
    least = _least_kept(alpha, rule.lost_mass) if rule.lost_mass >= 0.0 else rule.least_share
    member, some = scores.member, 0
    every = scores.member_ptr.size == 2 and member.size == alpha.size  # then cells are labels
    for lo in range(0, member.size, 64):
        hi = min(lo + 64, member.size)
        if every:
            some = 1 if lo <= gold < hi else 0
            for c in range(lo, hi):
                some += alpha[c] >= least
        else:
            some = 0
            for c in range(lo, hi):
                yp = np.uint32(member[c])
                some += (alpha[yp] >= least) | (member[c] == gold)
        if some > 0:
            for c in range(lo, hi):
                if alpha[member[c]] >= least or member[c] == gold:
                    cell[n] = c
                    n += 1
    return n


@kernel
def refresh_cells(cells, theta, pairs, edges):
    """Scores and gains of the stored pairs of some cells, from the present weights.

    Arguments:
        cells : int32 (n,)
        theta : (F,)
        pairs : a `PairWeights`, its known updated
    Out:
        edges : score and gain
    Cost: an exp for each pair of cells that were not refreshed since the weights changed.
    Source: chapter 10.
    """
    row_ptr, step = edges.scores.row_ptr, pairs.step[0]
    for c in cells:
        if pairs.known[c] != step:
            pairs.known[c] = step
            score, gain = edges.scores.score, edges.gain[row_ptr[c] : row_ptr[c + 1]]
            for k in range(row_ptr[c], row_ptr[c + 1]):
                score[k] = gain[k - row_ptr[c]] = pairs.scale[0] * theta[pairs.weight[k]]
            exp_inplace(gain)
            for i in range(gain.size):
                gain[i] -= 1.0


@kernel
def _group_total(g, x, t, scores, outside, mark):
    """Sum of x over the previous labels of group g, or those of them that are active at token t."""
    first, stop = scores.member_ptr[g], scores.member_ptr[g + 1]
    if outside and stop - first == x.size:
        return row_sum(x)
    total = 0.0
    for c in range(first, stop):
        if outside or mark[scores.member[c]] == t:
            total += x[scores.member[c]]
    return total


@kernel
def _product(x, y):
    """sum_i x[i] y[i]."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@kernel
def column_anew(y, t, before, edges, outside, mark, factor):
    """sum_yp before[yp] psi_t(yp,y), each pair by itself, where a difference has lost its digits.

    Arguments:
        y : next label
        t : the stored pairs of labels marked t count; ALL: those of all labels
        before : (L,)
        edges : a `DefaultEdges`
        outside : as in `ActiveRule`
        mark : (L,)
    Work:
        factor : (L,)
    Cost: L, an exp a stored pair.
    Source: chapter 10.
    """
    scores, g = edges.scores, edges.scores.group[y]
    column_factors(y, edges, factor)
    for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
        yp = scores.member[c]
        if t != ALL and mark[yp] != t:
            factor[yp] = 1.0 if outside else 0.0
    return _product(before, factor)


@kernel
def active_step(t, edges, outside, cell, ptr, before, mark, factor, a):
    """a[y] = sum_yp before[yp] psi_t(yp,y): into token t, from the cells active at t - 1.

    Arguments:
        t : >= 1
        edges : a `DefaultEdges`
        outside : as in `ActiveRule`
        cell : (>= T C,)
        ptr : (T+1,)
        before : (L,)
        mark : (L,), t - 1 where active
    Out:
        a : (L,)
    Work:
        factor : (L,)
    Cost: that of `active_forward`.
    Source: Jeong, Lin and Lee (2009), (8).
    """
    scores = edges.scores
    i, end = ptr[t - 1], ptr[t]
    for g in range(scores.member_ptr.size - 1):
        total = _group_total(g, before, t - 1, scores, outside, mark)
        labels = scores.label[scores.label_ptr[g] : scores.label_ptr[g + 1]]
        if labels.size == a.size:
            a[:] = total
        else:
            for y in labels:
                a[y] = total
        while i < end and cell[i] < scores.member_ptr[g + 1]:
            c = cell[i]
            x = before[scores.member[c]]
            for k in range(scores.row_ptr[c], scores.row_ptr[c + 1]):
                a[np.uint32(scores.next_label[k])] += x * edges.gain[k]
            i += 1
        n_lost, least = 0, LEAST_SHARE * total
        for j in range(labels.size):
            n_lost += a[np.uint32(labels[j])] < least
        if n_lost > 0:
            for y in labels:
                if a[y] < least:
                    a[y] = column_anew(y, t - 1, before, edges, outside, mark, factor)


@kernel
def active_forward(rows, psi, labels, edges, rule, choose, cell, ptr, work, pairs, theta):
    """alpha and scale of one sequence, into work; returns log Z, or NaN: it needs the log form.

    a[0,y] = psi[0,y];  alpha[t] = a[t] / c[t], sum_y alpha[t,y] = 1
    a[t,y] = psi[t,y] (sum_yp alpha[t-1,yp] + sum_{yp active, stored} alpha[t-1,yp] gain(yp,y))
    log Z = sum_t log c[t];  outside = 0: alpha of what is not active becomes 0, and c[t] loses its share
    The pairs of active cells are refreshed first, if `pairs`, a `PairWeights`, is not None.

    Arguments:
        rows : (T,)
        psi : (n, >= L), exp of scores
        labels : int32 (n,), gold, -1: unknown
        edges : a `DefaultEdges`
        rule : an `ActiveRule`
        choose : 1: the sets are made; 0: they are read
        cell : (>= T C,)
        ptr : (T+1,)
        work : overwritten
        pairs : a `PairWeights`, or None
        theta : (F,)
    Cost a token: a few times L, and the stored pairs of the active cells.
    Source: Jeong, Lin and Lee (2009), eq. (8).
    """
    T, L = rows.size, work.alpha.shape[1]
    mark, log_z, n = work.mark, 0.0, 0
    mark[:] = -1
    ptr[0] = 0
    for t in range(T):
        a, u = work.alpha[t], psi[rows[t]]
        if t == 0:
            a[:] = 1.0
        else:
            active_step(t, edges, rule.outside, cell, ptr, work.alpha[t - 1], mark, work.factor, a)
        for y in range(L):
            a[y] *= u[y]
        mass, n_lost = row_sum(a), 0
        for y in range(L):
            n_lost += (a[y] > 0.0) & (a[y] < SMALLEST_MASS)
        if n_lost > 0 or not (mass > 0.0 and mass < np.inf):
            return np.nan
        f = 1.0 / mass
        for y in range(L):
            a[y] *= f
        log_z += np.log(mass)
        work.scale[t] = f
        if choose:
            n = ptr[t + 1] = choose_cells(a, labels[rows[t]], rule, edges.scores, cell, n)
        for i in range(ptr[t], ptr[t + 1]):
            mark[edges.scores.member[cell[i]]] = t
        if pairs is not None and t < T - 1:
            refresh_cells(cell[ptr[t] : ptr[t + 1]], theta, pairs, edges)
        if rule.outside == 0 and t < T - 1:
            for y in range(L):
                a[y] = a[y] if mark[y] == t else 0.0
            kept = row_sum(a)
            if not kept > 0.0:
                return np.nan
            for y in range(L):
                a[y] /= kept
            log_z += np.log(kept)
            work.scale[t] /= kept
    return log_z


@kernel
def active_backward(rows, psi, weight, edges, rule, cell, ptr, p_node, product, work):
    """p_node = weight * marginals of the rows of one sequence, and sums for the stored pairs of active cells.

    product(yp,y) += weight * sum_t alpha[t-1,yp] v[t,y]:  psi(yp,y) times that are expected counts
    beta[T-1] = weight,  v[t,y] = psi[t,y] beta[t,y] / c[t]
    beta[t-1,yp] = sum_y v[t,y] + sum_stored gain(yp,y) v[t,y] if yp is active, else sum_y v[t,y]
    p_node[t,y] = alpha[t,y] beta[t,y]

    Arguments:
        rows, psi, edges, rule, cell, ptr, work : as `active_forward` left them
        weight : of the sequence
    Out:
        p_node : (n, >= L)
        product : (P,), added to
    Cost: that of `active_forward`.
    Source: Jeong, Lin and Lee (2009), eq. (9); chapter 10.
    """
    T, L = rows.size, work.alpha.shape[1]
    scores, v, beta = edges.scores, work.v, work.beta
    beta[:] = weight
    for t in range(T - 1, -1, -1):
        a, p, u, f = work.alpha[t], p_node[rows[t]], psi[rows[t]], work.scale[t]
        for y in range(L):
            # an unreachable label can have any beta, even an infinite one
            p[y] = a[y] * beta[y] if a[y] > 0.0 else 0.0
            v[y] = u[y] * beta[y] * f if a[y] > 0.0 else 0.0
        if t == 0:
            return
        beta[:] = 0.0
        i, end = ptr[t - 1], ptr[t]
        for g in range(scores.member_ptr.size - 1):
            first, stop, total = scores.member_ptr[g], scores.member_ptr[g + 1], 0.0
            every = scores.label_ptr[g + 1] - scores.label_ptr[g] == L
            if every:
                total = row_sum(v)
            else:
                for j in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
                    total += v[scores.label[j]]
            # not added to beta yet: the total is added next, and the sum would lose digits
            begin = i
            while i < end and cell[i] < stop:
                c, some = cell[i], total
                yp = scores.member[c]
                x = work.alpha[t - 1, yp]
                for k in range(scores.row_ptr[c], scores.row_ptr[c + 1]):
                    g_v = v[np.uint32(scores.next_label[k])]
                    some += edges.gain[k] * g_v
                    product[k] += x * g_v
                if some < LEAST_SHARE * total:
                    row_factors(c, g, edges, work.factor)
                    some = _product(v, work.factor)
                work.aside[i - begin] = beta[yp] + some
                i += 1
            # of what is not active under outside = 0, alpha is 0 and beta is not used
            if stop - first == L:
                for yp in range(L):
                    beta[yp] += total
            else:
                for c in range(first, stop):
                    beta[scores.member[c]] += total
            for j in range(begin, i):
                beta[scores.member[cell[j]]] = work.aside[j - begin]


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
    # not a kernel of its own for one label: it would count references to forty arrays at each call
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

    Arguments:
        side : ABOVE or BELOW
        rows, edges, cell, ptr : as `active_forward` left them
        psi : (n, >= L)
        limits : an `Extremes`
        work : an `ActiveWork`, its first two rows of alpha, mark and factor overwritten
    Returns inf, or -inf, where the bound exceeds float64.
    Cost: that of `active_forward`, and the pairs into active labels.
    Source: ours; chapter 10.
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


def active_marginals_plain(log_node, log_edge, labels, eps):
    """(log Z, p_node (T, L), counts (L, L) of pairs that start active, active bool (T, L)): to be read.

    The readable sister of `active_forward` and `active_backward`, with the default outside. With eps = 0 all
    labels are active: forward-backward with a default, the sister of `lanes_forward_backward`.

    log_node : (T, L).
    log_edge : (L, L) [previous, next], 0 where no pair is stored.
    labels : int (T,), gold, which are active; -1: unknown.
    eps : a label is active where it has at least this share of the forward mass.
    Source: Jeong, Lin and Lee (2009), eq. (8), (9); chapter 10.
    """
    T, L = log_node.shape
    psi, gain = np.exp(log_node), np.expm1(log_edge)
    alpha, p_node = np.empty((2, T, L))
    scale, counts, active = np.empty(T), np.zeros((L, L)), [None] * T
    for t in range(T):
        alpha[t] = psi[t]
        if t > 0:
            alpha[t] *= alpha[t - 1].sum() + (active[t - 1] * alpha[t - 1]) @ gain
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]
        active[t] = (alpha[t] >= eps) | (np.arange(L) == labels[t])
    beta = np.ones(L)
    for t in range(T - 1, -1, -1):
        p_node[t] = alpha[t] * beta
        v = psi[t] * beta / scale[t]
        if t > 0:
            counts += np.exp(log_edge) * np.outer(active[t - 1] * alpha[t - 1], v)
            beta = v.sum() + active[t - 1] * (gain @ v)
    return np.log(scale).sum(), p_node, counts, np.array(active)
