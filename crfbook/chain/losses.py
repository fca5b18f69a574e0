"""The losses beside the log loss: their gradients, their names and settings, and the form that has them.

    sum_i weight_i phi(u_i),   u_i = -log p(y_i | x_i)              "log", "exp"
    sum_i weight_i sum_t phi(u_it),   u_it = -log p(y_it | x_i)     "pointwise-log", "pointwise-exp"

u = -log p, where p is the probability of the gold path (sequential) or of one gold label (pointwise):

    log: phi(u) = u
    exponential: phi(u) = e^u - 1 = 1/p - 1, linear beyond a clamp M:  e^M (1 + u - M) - 1

All gradients have one rule, a = phi'(u):  a (E[S] - S(gold))  and  sum_t a_t (E[S] - E[S | y_t = gold]).
Losses and gradients are multiplied by exp(-log_scale), so that 1/p may exceed float64. `loss` is the
NamedTuple `Loss`.

`sequence_loss_log` takes one sequence, in logarithms and NumPy, to be read. The kernels take the packed
batches of a shard, with matrix products as in forward_backward_batched.py. Sequential losses need no more
than the log loss: once the forward pass knows log Z, the slope a = phi'(u) becomes the weight that the
backward pass starts from. Pointwise ones cost twice the matrix products. A sequence goes through the log form
where the scaled form cannot hold it, or where a gold label has less than 1e-100 of the probability.
`packing`, `edges`, `work` and `counts` are those of likelihood.py. Source: Altun, Johnson and Hofmann (2003),
section 3.3.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook._checks import number, one_of, shown
from crfbook._jit import kernel
from crfbook.chain.forms import Tables, shard_counts
from crfbook.chain.forward_backward_batched import (
    add_edge_sum,
    backward_batched,
    erase_flagged,
    forward_batched,
    steps_of,
    times_edges,
)
from crfbook.chain.likelihood import batch_gradient, batch_scores, loss_work
from crfbook.data.corpus import positions

# A slope above exp(500) counts as infinite: below it, every entry of a gradient fits float64.
LARGEST_SLOPE = 500.0


@kernel
def value_and_slope(u, loss):
    """(phi(u), phi'(u)) exp(-log_scale) for u >= 0; u below 0 is rounding and counts as 0.

    With m = min(u, M):  phi(u) = e^m ((u - m) + 1 - e^-m),  phi'(u) = e^m.  Where m - log_scale > 500 the
    value is inf and the slope stays e^500: finite and of the right direction for a line search, which goes
    back.

    Arguments:
        u : a number in nats
        loss : a `Loss`
    Cost: two exps.
    Source: Altun, Johnson and Hofmann (2003), eq. (1), (2); the clamp is ours.
    """
    u = max(u, 0.0)
    if not loss.exponential:
        return u, 1.0
    m = min(u, loss.clamp)
    if m - loss.log_scale > LARGEST_SLOPE:
        return np.inf, np.exp(LARGEST_SLOPE)
    slope = np.exp(m - loss.log_scale)
    return slope * ((u - m) - np.expm1(-m)), slope


def _carry(log_node, log_edge, edge_class, log_ahead, log_behind):
    """log_ahead[t] += log_ahead[t-1] @ P_t,   log_behind[t-1] += P_t @ log_behind[t], in logarithms.

    P_t = exp(log_edge[k] + log_node[t]), k the class of token t; log_ahead, log_behind (T, L): changed.
    """
    for t in range(1, len(log_node)):
        step = log_ahead[t - 1, :, None] + log_edge[edge_class[t]] + log_node[t]
        log_ahead[t] = np.logaddexp(log_ahead[t], np.logaddexp.reduce(step, axis=0))
    for t in range(len(log_node) - 1, 0, -1):
        step = log_edge[edge_class[t]] + log_node[t] + log_behind[t]
        log_behind[t - 1] = np.logaddexp(log_behind[t - 1], np.logaddexp.reduce(step, axis=1))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def sequence_loss_log(log_node, log_edge, edge_class, labels, weight, loss, u, grad_node, grad_edge):
    """(weight * loss, log_z) of one sequence and the gradient by its scores; loss 0 if log_z is not finite.

    sequential: u[0] = log_z - score(y),  a = phi'(u),  grad_node[t] = a (p_node[t] - onehot(y_t)), edges so
    pointwise:  u[t] = -log p_node[t, y_t],  a_t = phi'(u_t),  d_t = a_t / p_node[t, y_t],  a_tot = sum_t a_t
        Ah[t] = d_t alpha[t] at y_t + Ah[t-1] @ P_t,     Bh[t-1] = d_{t-1} beta[t-1] at y_{t-1} + P_t @ Bh[t]
        grad_node[t] = a_tot p_node[t] - (Ah[t] beta[t] + alpha[t] Bh[t] - d_t p_node[t] at y_t)
        grad_edge[k, yp, y] = sum_t a_tot p_edge
                              - (Ah[t-1,yp] P_t[yp,y] beta[t,y] + alpha[t-1,yp] P_t[yp,y] Bh[t,y])

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L) [class, previous, next]
        edge_class : (T,)
        labels : (T,)
        weight : of the sequence
        loss : a `Loss`
    Out:
        u : (T,), only its first entry if sequential
        grad_node : (T, L), overwritten
        grad_edge : (K, L, L), added to
    Cost: 3 T L^2 exps, pointwise 7 T L^2.
    Source: Altun, Johnson and Hofmann (2003), eq. (1)-(4) and section 4.1; the sweep in O(T L^2): Kakade, Teh
    and Roweis (2002).
    """
    T, chain = len(labels), (log_node, log_edge, edge_class)
    gold, into = (np.arange(T), labels), (edge_class[1:], labels[:-1], labels[1:])
    u[:], grad_node[:] = 0.0, 0.0
    log_alpha, log_beta, log_ah, log_bh = np.full((4, *log_node.shape), -np.inf)
    log_alpha[0], log_beta[-1] = log_node[0], 0.0
    _carry(*chain, log_alpha, log_beta)
    log_z = np.logaddexp.reduce(log_alpha[-1])
    if not np.isfinite(log_z) or weight == 0.0:
        return 0.0, log_z
    log_p = log_alpha + log_beta - log_z
    gold_u = -log_p[gold] if loss.pointwise else [log_z - log_node[gold].sum() - log_edge[into].sum()]
    u[: len(gold_u)] = gold_u
    value, a = np.array([value_and_slope(each, loss) for each in gold_u]).T
    a_tot = a.sum()
    if loss.pointwise:
        log_ah[gold], log_bh[gold] = (np.log(a) + u + x[gold] for x in (log_alpha, log_beta))
        _carry(*chain, log_ah, log_bh)
    else:  # the gold path has all of it
        np.subtract.at(grad_edge, into, weight * a_tot)
    grad_node[:] = (
        a_tot * np.exp(log_p) - np.exp(log_ah + log_beta - log_z) - np.exp(log_alpha + log_bh - log_z)
    )
    grad_node[gold] += a if loss.pointwise else -a
    grad_node *= weight
    for t in range(1, T):
        k = edge_class[t]
        alpha, ah = (x[t - 1, :, None] + log_edge[k] + log_node[t] - log_z for x in (log_alpha, log_ah))
        told = np.exp(ah + log_beta[t]) + np.exp(alpha + log_bh[t])
        grad_edge[k] += weight * (a_tot * np.exp(alpha + log_beta[t]) - told)
    return weight * value.sum(), log_z


# d = a / p is then at most 1e200 even for the exponential loss: d alpha and d beta stay far from overflow.
SMALLEST_PROBABILITY = 1e-100


@kernel
def gold_scores(log_node, log_edge, row_class, step_ptr, labels, score):
    """score[r] = sum_t log_node[t, y_t] + sum_{t>=1} log_edge[c_t, y_{t-1}, y_t], r: a sequence of a batch.

    Arguments:
        log_node : (n, M)
        log_edge : (K, M, M) [class, previous, next]
        row_class : (n,)
        step_ptr : (T+1,)
        labels : (n,)
    Out:
        score : (B,), overwritten
    Cost: O(n).
    Source: Sokolovska et al. (2010), eq. (1).
    """
    score[:] = 0.0
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            r = i - step_ptr[t]
            score[r] += log_node[i, labels[i]]
            if t > 0:
                score[r] += log_edge[row_class[i], labels[step_ptr[t - 1] + r], labels[i]]


@kernel
def _subtract_gold(row_class, step_ptr, labels, slope, p_node, edge_sum):
    """p_node[i, y_i] -= slope[r] and edge_sum[c, yp, y] -= slope[r] along the gold paths of a batch."""
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            r = i - step_ptr[t]
            p_node[i, labels[i]] -= slope[r]
            if t > 0:
                edge_sum[row_class[i], labels[step_ptr[t - 1] + r], labels[i]] -= slope[r]


@kernel
def sequential_batched(b, packing, edges, loss, log_node, log_z, u, value, p_node, edge_sum, work):
    """Sequential losses of a batch and their gradients by the scores; returns how many are flagged.

    u = log_z - score(y),  value = weight phi(u),  a = weight phi'(u)
    p_node[t] = a (marginals - onehot(y_t)),   edge_sum += a (expected - gold transitions)

    Arguments as `forward_backward_batched`:
        b : batch
        packing : with its labels and weights
        edges : an `Edges`
        loss : a `Loss`
        log_node : (n, M), overwritten
    Out:
        log_z, u, value : (B,)
        p_node : (n, M)
        edge_sum : (K, M, M), added to
    Work:
        work : a `LossWork`
    Flagged sequences (work.flags) add nothing anywhere.
    Cost: forward_backward_batched and O(n).
    Source: Altun, Johnson and Hofmann (2003), eq. (3), (4).
    """
    n, steps = log_node.shape[0], steps_of(b, packing)
    step_ptr, row_class, _ = steps
    alpha, gain, prev, pair = work.alpha[:n], work.gain[:n], work.prev[:n], work.pair
    labels = packing.labels[packing.row_ptr[b] : packing.row_ptr[b + 1]]
    score, slope = work.score[: log_z.size], work.slope[: log_z.size]
    gold_scores(log_node, edges.log_edge, row_class, step_ptr, labels, score)
    n_flagged = forward_batched(
        steps, edges.psi_edge, edges.edge_max, edges.edge_spread, log_node, log_z, alpha, gain,
        work.flags[: log_z.size], pair[0], prev,
    )  # fmt: skip
    for r in range(log_z.size):
        weight = packing.weight[packing.slot_ptr[b] + r]
        value[r], slope[r] = 0.0, 0.0
        if work.flags[r] == 0 and weight > 0.0:
            u[r] = log_z[r] - score[r]
            v, a = value_and_slope(u[r], loss)
            value[r], slope[r] = weight * v, weight * a
    backward_batched(steps, edges.psi_edge_t, slope, alpha, gain, log_node, p_node, prev)
    add_edge_sum(b, packing, edges.psi_edge, alpha, log_node, edge_sum, prev, pair)
    _subtract_gold(row_class, step_ptr, labels, slope, p_node, edge_sum)
    return n_flagged


@kernel
def _events(lo, hi, labels, weight, loss, beta, u, value, work):
    """work.event[i] = d[i] = weight a / p for the rows lo..hi of a step, p = alpha beta at the gold label.

    Adds d beta there to work.behind, weight a to work.slope[r] and weight phi(u) to value[r]. Where p is too
    small for the scaled form, r is flagged and d is 0.
    """
    flags, event = work.flags, work.event
    for i in range(lo, hi):
        r, y = i - lo, labels[i]
        event[i] = 0.0
        if flags[r] == 1 or weight[r] == 0.0:
            continue
        p = work.alpha[i, y] * beta[i, y]
        if not p > SMALLEST_PROBABILITY:
            flags[r] = 1
            continue
        u[i] = -np.log(p)
        v, a = value_and_slope(u[i], loss)
        value[r] += weight[r] * v
        work.slope[r] += weight[r] * a
        event[i] = weight[r] * a / p
        work.behind[i, y] += event[i] * beta[i, y]


@kernel
def _backward_events(b, packing, edges, loss, psi_node, u, value, beta, work):
    """beta[t-1] = P_t beta[t],  Bh[t-1] = d[t-1] beta[t-1] + P_t Bh[t].

    P_t = gain[t-1] psi_edge diag(psi_node[t]). beta starts from gain and not from 1 (see
    forward_backward_batched), so that alpha beta sums to one. Bh is work.behind.
    """
    step_ptr, row_class, by_step = steps_of(b, packing)
    labels = packing.labels[packing.row_ptr[b] : packing.row_ptr[b + 1]]
    weight = packing.weight[packing.slot_ptr[b] : packing.slot_ptr[b + 1]]
    alpha, gain, behind, step, prev = work.alpha, work.gain, work.behind, work.step, work.prev
    M, T = psi_node.shape[1], step_ptr.size - 1
    following = 0  # rows of step t that have a successor
    for t in range(T - 1, -1, -1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        for r in range(following, hi - lo):
            beta[lo + r, :] = gain[lo + r]
            behind[lo + r, :] = 0.0
        _events(lo, hi, labels, weight, loss, beta, u, value, work)
        for i in range(lo, hi):
            f = gain[step_ptr[t - 1] + i - lo] if t > 0 else 0.0
            for y in range(M):
                # An unreachable state can have any beta, even an infinite one; nothing may use it.
                reached = alpha[i, y] > 0.0
                g = beta[i, y] if reached else 0.0
                h = behind[i, y] if reached else 0.0
                beta[i, y] = g
                behind[i, y] = h
                step[0, i - lo, y] = psi_node[i, y] * g * f
                step[1, i - lo, y] = psi_node[i, y] * h * f
        if t > 0:
            before, following = step_ptr[t - 1], hi - lo
            times_edges(step[0], edges.psi_edge_t, following, row_class, by_step, lo, beta[before:lo], prev)
            times_edges(step[1], edges.psi_edge_t, following, row_class, by_step, lo, behind[before:lo], prev)


@kernel
def _forward_events(b, packing, edges, psi_node, p_node, work):
    """X[t] = total alpha[t] - Ah[t] = X[t-1] @ P_t - d[t] alpha[t], as Ah[t] = d[t] alpha[t] + Ah[t-1] @ P_t.

    p_node comes in as beta and leaves as the gradient  (X[t] + d[t] alpha[t]) beta[t] - alpha[t] Bh[t].  X is
    work.ahead. For the sums over edges, psi_node leaves as P_t's part v = psi_node beta gain,
    and work.behind as -psi_node Bh gain.
    """
    step_ptr, row_class, by_step = steps_of(b, packing)
    labels = packing.labels[packing.row_ptr[b] : packing.row_ptr[b + 1]]
    alpha, gain, ahead, behind = work.alpha, work.gain, work.ahead, work.behind
    M = psi_node.shape[1]
    for t in range(step_ptr.size - 1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        if t > 0:
            before, out = ahead[step_ptr[t - 1] : lo], ahead[lo:hi]
            times_edges(before, edges.psi_edge, hi - lo, row_class, by_step, lo, out, work.prev)
        for i in range(lo, hi):
            r = i - lo
            f = gain[step_ptr[t - 1] + r] if t > 0 else 0.0
            x, bh, p, a, psi = ahead[i], behind[i], p_node[i], alpha[i], psi_node[i]
            if t == 0:
                for y in range(M):
                    x[y] = work.slope[r] * a[y]
            else:
                for y in range(M):
                    x[y] *= psi[y] * f
            for y in range(M):
                beta = p[y]
                p[y] = x[y] * beta - a[y] * bh[y]
                bh[y] *= -psi[y] * f
                psi[y] *= beta * f
            x[labels[i]] -= work.event[i] * a[labels[i]]


@kernel
def pointwise_batched(b, packing, edges, loss, log_node, log_z, u, value, p_node, edge_sum, work):
    """Pointwise losses of a batch and their gradients by the scores; returns how many are flagged.

    u[t] = -log p_node[t, y_t],  value = weight sum_t phi(u[t]),  a[t] = weight phi'(u[t]),
    d[t] = a[t] / p_node[t, y_t]
    p_node[t] = sum of a * marginals - the same given y_t;   edge_sum += likewise (see `sequence_loss_log`)

    Arguments as `sequential_batched`:
        b, packing, edges, loss : as there
        log_node : (n, M), overwritten
    Out:
        log_z, value : (B,)
        u : (n,)
        p_node : (n, M)
        edge_sum : (K, M, M), added to
    Work:
        work : a `LossWork`
    Cost: 6 n M^2 multiply-adds in matrix products, n M exps.
    Source: Altun, Johnson and Hofmann (2003), section 4.1; the sweep: Kakade, Teh and Roweis (2002).
    """
    n, psi_edge, flags = log_node.shape[0], edges.psi_edge, work.flags[: log_z.size]
    alpha, gain, prev, pair = work.alpha[:n], work.gain[:n], work.prev[:n], work.pair
    steps = steps_of(b, packing)
    n_flagged = forward_batched(
        steps, psi_edge, edges.edge_max, edges.edge_spread, log_node, log_z, alpha, gain, flags, pair[0], prev
    )
    value[:], work.slope[: log_z.size] = 0.0, 0.0
    _backward_events(b, packing, edges, loss, log_node, u, value, p_node, work)
    if flags.sum() > n_flagged:
        n_flagged = erase_flagged(steps[0], flags, log_z, log_node, alpha, gain)
    _forward_events(b, packing, edges, log_node, p_node, work)
    add_edge_sum(b, packing, psi_edge, work.ahead[:n], log_node, edge_sum, prev, pair)
    add_edge_sum(b, packing, psi_edge, alpha, work.behind[:n], edge_sum, prev, pair)
    return n_flagged


@kernel
def losses_of_batches(b, shard, w, dense, edges, packing, layout, work, counts, edge_sum, of_loss):
    """`likelihood_of_batches` for the other losses: of each sequence, and the gradient of their weighted sum.

    grad[a, y] = sum_{t: a in x_t} x[a] d loss / d log_node[t, y]
    edge_sum[k, yp, y] = d loss / d log_edge[k, yp, y]

    Arguments and what is returned as there:
        b : first batch to compute
        shard : number of the shard
        w : (F,)
        dense : (H, M or L)
        edges, packing, layout, work : as there
    Out:
        counts : as there
        edge_sum : (K, M, M)
        of_loss : (loss, u, value), a `Loss`; -log p, (S',), or (N,) if pointwise; the weighted loss times
            exp(-log_scale), (S',)
    Cost: see the batched kernels.
    Source: Altun, Johnson and Hofmann (2003), section 3.3.
    """
    loss, u, value = of_loss
    if b == packing.shard_ptr[shard]:
        counts.grad[:] = 0.0
        counts.dense_grad[:] = 0.0
        edge_sum[:] = 0.0
    while b < packing.shard_ptr[shard + 1]:
        rows = slice(packing.row_ptr[b], packing.row_ptr[b + 1])
        slots = slice(packing.slot_ptr[b], packing.slot_ptr[b + 1])
        log_node, p_node = work.log_node[: rows.stop - rows.start], work.p_node[: rows.stop - rows.start]
        log_z, some, each = counts.log_z[slots], value[slots], u[rows] if loss.pointwise else u[slots]
        batch_scores(b, w, dense, edges.bounds, packing, layout, log_node)
        out = log_z, each, some, p_node, edge_sum
        if loss.pointwise:
            n_flagged = pointwise_batched(b, packing, edges, loss, log_node, *out, work)
        else:
            n_flagged = sequential_batched(b, packing, edges, loss, log_node, *out, work)
        if n_flagged:
            return b
        batch_gradient(b, p_node, packing, layout, counts.dense_grad, counts.grad)
        b += 1
    return -1


LOSSES = ("log", "exp", "pointwise-log", "pointwise-exp")


class Loss(NamedTuple):
    """Settings as the kernels read them."""

    pointwise: bool
    exponential: bool
    clamp: float  # inf: none
    log_scale: float  # losses and gradients are multiplied by exp(-log_scale)

    @property
    def is_other(self):
        """Is it a loss other than the log loss?"""
        return self.pointwise or self.exponential


def make_loss(loss, clamp=None, log_scale=0.0):
    """`Loss` of its name; ValueError for a name or number that means nothing."""
    one_of("loss", loss, LOSSES)
    exponential = loss.endswith("exp")
    for name, value, usual in (("clamp", clamp, None), ("log_scale", log_scale, 0.0)):
        if value != usual and not exponential:
            raise ValueError(
                f"{name}: belongs to the losses exp and pointwise-exp, "
                f"got {shown(value)} with loss={shown(loss)}"
            )
    clamp = math.inf if clamp is None else number("clamp", clamp, above=0.0, note=" (in nats) or None")
    return Loss(loss.startswith("pointwise"), exponential, clamp, number("log_scale", log_scale, -math.inf))


class LossTables(Tables):
    """Gradients of a loss that is not the log loss; after each evaluation u = -log p and the loss of each."""

    offers = ("counts",)

    def __init__(self, problem, loss):
        super().__init__(problem)
        self.loss, packing = loss, problem.packing
        self.value = np.zeros(len(packing.sequence))  # weight_i * loss_i * exp(-log_scale)
        self.u = np.zeros(len(packing.labels) if loss.pointwise else len(packing.sequence))
        self._slot = slice(None)
        if loss.pointwise:  # int64 (N,): packed number of the sequence each row belongs to
            slots = [first + positions(packing.steps(b)) for b, first in enumerate(packing.slot_ptr[:-1])]
            self._slot = np.concatenate([np.zeros(0, np.int64), *slots])
        self.sums = {"counts": partial(shard_counts, batches=self._batches, redo=self._redo)}

    def _batches(self, *given):
        return losses_of_batches(*given, (self.loss, self.u, self.value))

    def _redo(self, batch, edges, log_z, edge_sum):
        """`sequence_loss_log` of the flagged sequences of a batch; log_node holds the scores again."""
        b, packing = batch.place
        for r in np.flatnonzero(batch.flags):
            rows, slot = batch.rows(r), batch.slots.start + r
            labels = packing.labels[packing.row_ptr[b] + rows]
            chain = batch.log_node[rows], edges.log_edge, batch.row_class[rows], labels
            u, p_node = np.zeros(len(rows)), np.empty((len(rows), batch.log_node.shape[1]))
            found = sequence_loss_log(*chain, batch.weight[r], self.loss, u, p_node, edge_sum)
            self.value[slot], log_z[slot] = found
            batch.p_node[rows] = p_node
            place = packing.row_ptr[b] + rows if self.loss.pointwise else [slot]
            self.u[place] = u[: len(place)]

    def work(self, work):
        return loss_work(work, self.loss)

    def log_total(self, weight):
        """log sum_i weight_i loss_i of the last evaluation, without log_scale.

        It is exact where the sum itself exceeds float64.
        """
        u = np.maximum(self.u, 0.0)
        m = np.minimum(u, self.loss.clamp) if self.loss.exponential else np.zeros(len(u))
        with np.errstate(divide="ignore"):
            log_loss = np.log(weight[self._slot]) + m + np.log((u - m) - np.expm1(-m))
        top = log_loss.max(initial=-np.inf)
        return float(top + np.log(np.exp(log_loss - top).sum())) if top > -np.inf else -np.inf
