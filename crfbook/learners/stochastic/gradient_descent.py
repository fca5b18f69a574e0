"""Stochastic gradient descent: `sgd` with an L2 penalty (CRFsuite's "l2sgd"), `sgd_l1` with an L1 penalty.

One update for each sequence, in a new random order every epoch. Neither carries a certificate: they stop when
the objective, as the sequences saw it, has hardly moved for some epochs. Both minimise the mean over the n
sequences of f_i(w) + penalty / n,  f_i = -weight_i log p(y_i | x_i).
Sources: Bottou (2010); Tsuruoka, Tsujii and Ananiadou (2009).

First the kernels. An update costs as much as the sequence is long, however many weights there are: the L2
penalty shrinks all of them in O(1), the L1 penalty is lazy. `theta` and `layout` are explained in
chain/sequence.py. Sequences are visited on `tables`, a SequenceWork, or by `lists` and `work`, see lists.py;
the others are None, and numba compiles nothing for them.

Common arguments
----------------
corpus, features : S sequences, every token labelled; F weights.
    Sequences of length 0 or weight 0 are left out: n remain.
w0 : (F,) start, default 0.
period, delta : stop ("small change") when the mean objective of `period` epochs lies less than the share
    delta of itself below that of the `period` epochs before. Where steps are long beside the penalty (small
    c2, few sequences) noise can stop it early.
constraints : Constraints or None.
eps : in [0, 1). A label brings its weights of transitions along where it has at least this share of the
    forward mass, or is the gold label; all other pairs have the potential 1 (chain/active/sequence.py).
    Faster where labels are many and few pairs have a weight; the losses are those of this approximation. 0:
    exact. Needs one edge class and one edge attribute.
max_iterations : epochs in all, those of `state` included. 0: w0 comes back with its objective.
random_state : int, the seed of all orders.
callback : called with (Step, w) after each epoch, w read-only; True stops.
state : `OptResult.state` of an earlier call with the same feature set; w0 and random_state are not used then.
    On the same corpus training goes on bit for bit.
new_data : the sequences are not those that `state` comes from,
    so that their losses are compared with what they lose at the start.

Both return an `OptResult`. `Step.objective`: losses in nats as the sequences had them when it was their turn
(w moves meanwhile), plus the penalty at the end of the epoch; `Step.violation`: the share by which its mean
fell, NaN during the first 2 `period` epochs. `OptResult.objective` is that of the weights returned, from one
more pass; `n_evaluations` counts passes over the corpus. A step size under which the loss of an epoch is not
finite, or 1.5 times what zero weights have (twice in the first epoch), is halved and the epoch done again,
from zero if the weights were spoilt before it (`divergence` puts it in words). status: "small change",
"max_iterations", "stopped by callback", "interrupted" (Ctrl-C: the last complete epoch comes back),
"diverged" (MAX_HALVINGS halvings did not help). ValueError for labels that are unknown or forbidden, weights
that are not finite, and parameters out of range.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, shown, whole
from crfbook._jit import kernel
from crfbook.chain.active.sequence import check_eps, check_transitions
from crfbook.chain.objective import check_labels, check_state, check_weights
from crfbook.chain.sequence import add_gradient, plain_gradient, score_gradient, score_sequence
from crfbook.chain.token_layout import (
    cells_of,
    epoch_order,
    lay_out_lists,
    lay_out_online,
    sequence_work,
    weights_of,
    worth_lists,
)
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.learners.stochastic.lists import add_gradient_by_lists, edge_extremes, list_work, loss_by_lists
from crfbook.training.certificate import TINY
from crfbook.training.interrupts import interruptible_stretches
from crfbook.training.loop import Callback, Learner, OptResult, State, run

DECAY = 0.85  # of the learning rate of sgd_l1 in an epoch: Wapiti's
MAX_HALVINGS = 30


@kernel
def visit_loss(s, theta, scale, spread, layout, tables, lists, work):
    """Loss of sequence s at the weights scale theta; `tables` or `work` keeps what `visit_step` needs.

    Arguments:
        s : sequence, not empty
        theta : (C,)
        scale : factor of all weights
        spread : as in `loss_by_lists`
        layout : an `OnlineLayout`
        lists : a `ListLayout`, or None
    Out:
        tables : a `SequenceWork`, or None
        work : a `ListWork`, or None
    Cost: that of `score_gradient` or `loss_by_lists`.
    Source: Sokolovska et al. (2010), eq. (4).
    """
    loss = 0.0
    if tables is not None:
        score_sequence(s, theta, scale, layout, tables)
        loss = score_gradient(s, layout, tables)
    if lists is not None:
        loss = loss_by_lists(s, theta, scale, spread, layout, lists, work)
    return loss


@kernel
def visit_step(s, step, layout, tables, lists, work, theta):
    """theta <- theta + step * (gradient of the loss of sequence s); returns what `add_gradient_by_lists`
    does, on tables (0, 0).

    Arguments:
        s, layout, tables, lists, work : as `visit_loss` left them
        step : factor of the gradient
    Out:
        theta : (C,)
    Cost: that of `add_gradient` or `add_gradient_by_lists`.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    low, high = 0.0, 0.0
    if tables is not None:
        add_gradient(s, step, layout, tables, theta)
    if lists is not None:
        low, high = add_gradient_by_lists(s, step, layout, lists, work, theta)
    return low, high


@kernel
def sgd_steps(order, eta0, shrinkage, n_done, scale, layout, tables, lists, work, theta):
    """One update for each sequence of `order`; the weights are scale * theta. Returns (sum of losses, scale).

    eta_t = eta0 / (1 + shrinkage eta0 t),  weights <- (1 - shrinkage eta_t) weights - eta_t g_i,  shrinkage =
    2 c2 / n: scale <- (1 - shrinkage eta_t) scale,  theta <- theta - (eta_t / scale) g_i, so that the shrink
    costs O(1). eta_t is Bottou's 1 / (shrinkage (t0 + t)) with t0 = 1 / (shrinkage eta0), and eta0 throughout
    if there is no penalty. A loss is taken at the weights before its own update. Stops at a sequence whose
    loss is not finite; the sum is not finite then.
    With eta0 = 0 nothing moves and the sum is the loss of the weights.

    Arguments:
        order : int64 (n,), sequences that are not empty
        eta0 : first learning rate
        shrinkage : < 1 / eta0
        n_done : updates before
        scale : > 0, factor of all weights
        layout, tables, lists, work : see the top
    Out:
        theta : (C,), updated
    Cost: 3 T L^2 multiply-adds and two additions per stored (occurrence, weight) pair of the sequences; on
    lists that of `visit_loss` and `visit_step`.
    Source: Bottou (2010), "Large-scale machine learning with stochastic gradient descent".
    """
    total, (low, high) = 0.0, edge_extremes(theta, lists)
    for j in range(order.size):
        s = order[j]
        spread = scale * (high - low)
        total += layout.weight[s] * visit_loss(s, theta, scale, spread, layout, tables, lists, work)
        if not np.isfinite(total):
            break
        if eta0 > 0.0:
            eta = eta0 / (1.0 + shrinkage * eta0 * (n_done + j))
            scale *= 1.0 - shrinkage * eta
            a, b = visit_step(s, -layout.weight[s] * eta / scale, layout, tables, lists, work, theta)
            low, high = min(low, a), max(high, b)
    return total, scale


def sgd_steps_plain(order, eta0, shrinkage, n_done, w, corpus, features):
    """The readable sister of `sgd_steps`, on weights w (F,), moved, without hard constraints: sum of losses.

    order : sequences.
    eta0 : first learning rate.
    shrinkage : 2 c2 / n.
    n_done : updates before.
    Source: Bottou (2010); docs/SPEC.md, A.12.
    """
    total = 0.0
    for j, s in enumerate(order):
        loss, grad = plain_gradient(s, w, corpus, features)
        total += loss
        eta = eta0 / (1.0 + shrinkage * eta0 * (n_done + j))
        w *= 1.0 - shrinkage * eta
        w -= eta * grad
    return total


@kernel
def clip_cells(start, stop, due, theta, received):
    """The L1 penalty that cells start:stop have not received yet.

    z = w_k;  w_k <- max(0, z - (due + q_k)) if z > 0, min(0, z + (due - q_k)) if z < 0;  q_k <- q_k + w_k -
    z. due = sum of all penalties so far; q_k, `received`, is what w_k has had of it, with its sign: |q_k| <=
    due. A second time changes nothing, so an attribute may occur several times in a sequence.

    Arguments:
        start, stop, due : cells start..stop-1; sum of all penalties so far
    Out:
        theta, received : (C,), updated
    Cost: stop - start.
    Source: Tsuruoka, Tsujii and Ananiadou (2009), figure 2.
    """
    for k in range(start, stop):
        z = theta[k]
        if z > 0.0:
            theta[k] = max(0.0, z - (due + received[k]))
        elif z < 0.0:
            theta[k] = min(0.0, z + (due - received[k]))
        received[k] += theta[k] - z


@kernel
def clip_sequence(s, due, j, layout, lists, clipped_buf, theta, received):
    """`clip_cells` for all cells that the scores of sequence s read.

    Arguments:
        s : sequence, not empty
        due : see `clip_cells`
        j : number of the update
        layout, lists : an `OnlineLayout`; a `ListLayout` or None
    Work:
        clipped_buf : int64 (n,), the last update before which a dense row (n = H) or an attribute of lists
            (n = A) was clipped
    Out:
        theta, received : (C,)
    Cost: one clip per stored (occurrence, weight) pair at most.
    Source: Tsuruoka, Tsujii and Ananiadou (2009), figure 2.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    if lists is not None:
        for a in lists.attr_idx[lists.attr_ptr[first] : lists.attr_ptr[last]]:
            if a < clipped_buf.size and clipped_buf[a] != j:
                clipped_buf[a] = j
                clip_cells(lists.node_ptr[a], lists.node_ptr[a + 1], due, theta, received)
    for h in layout.dense_id[layout.dense_ptr[first] : layout.dense_ptr[last]]:
        if clipped_buf[h] != j:
            clipped_buf[h] = j
            clip_cells(h * M, (h + 1) * M, due, theta, received)
    for k in layout.pair_weight[layout.pair_ptr[first] : layout.pair_ptr[last]]:
        clip_cells(H * M + k, H * M + k + 1, due, theta, received)
    n_before = theta.size - layout.edge_cell.size
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            clip_cells(n_before + layout.edge_ptr[b], n_before + layout.edge_ptr[b + 1], due, theta, received)


@kernel
def sgd_l1_steps(order, eta0, decay, penalty, n_done, due, layout, tables, lists, work, theta, received):
    """One update for each sequence of `order` with a cumulative L1 penalty. Returns (sum of losses, due).

    eta_k = eta0 decay^k,  w <- w - eta_k g_i,  due <- due + eta_k penalty,  penalty = c1 / n, and every
    weight is clipped to what is due (`clip_cells`): here those that a sequence reads, before they are read,
    which gives the same numbers as clipping all of them after each update.

    Arguments:
        order, n_done, layout, tables, lists, work : as in `sgd_steps`, and so is the sum
        eta0 : first learning rate
        decay : factor of one update
        penalty : c1 / n
        due : the sum of penalties so far
    Out:
        theta, received : (C,), updated; `clip_cells` of all of them gives the weights to use elsewhere
    Cost: as `sgd_steps`, `clip_sequence`, and H once.
    Source: Tsuruoka, Tsujii and Ananiadou (2009), figure 2.
    """
    total, (low, high) = 0.0, edge_extremes(theta, lists)
    clipped_buf = np.full(layout.exists.shape[0] if lists is None else lists.node_ptr.size - 1, -1)
    for j in range(order.size):
        s = order[j]
        clip_sequence(s, due, j, layout, lists, clipped_buf, theta, received)
        total += layout.weight[s] * visit_loss(s, theta, 1.0, high - low, layout, tables, lists, work)
        if not np.isfinite(total):
            break
        eta = eta0 * decay ** (n_done + j)
        due += eta * penalty
        a, b = visit_step(s, -layout.weight[s] * eta, layout, tables, lists, work, theta)
        low, high = min(low, a), max(high, b)
    return total, due


def sgd_l1_steps_plain(order, eta0, decay, penalty, n_done, due, w, received, corpus, features):
    """The readable sister of `sgd_l1_steps`, on weights w (F,) without hard constraints: (losses, due).

    order : sequences.
    eta0, decay : first learning rate, and its factor of one update.
    penalty : c1 / n.
    n_done : updates before.
    due : the sum of penalties so far.
    w, received : (F,), moved. All weights are clipped after each update; they come clipped to what is due.
    Source: Tsuruoka, Tsujii and Ananiadou (2009), figure 2.
    """
    total = 0.0
    for j, s in enumerate(order):
        loss, grad = plain_gradient(s, w, corpus, features)
        total += loss
        eta = eta0 * decay ** (n_done + j)
        due += eta * penalty
        z = w - eta * grad
        above = np.maximum(0.0, z - (due + received))
        below = np.minimum(0.0, z + (due - received))
        w[:] = np.where(z > 0.0, above, np.where(z < 0.0, below, z))
        received += w - z
    return total, due


def sgd(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    calibration_eta: float = 0.1,
    calibration_rate: float = 2.0,
    calibration_samples: int = 1000,
    calibration_candidates: int = 10,
    calibration_max_trials: int = 20,
    period: int = 10,
    delta: float = 1e-6,
    average: bool = True,
    constraints: Limits = None,
    eps: float = 0.0,
    max_iterations: int = 1000,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
    new_data: bool = False,
) -> OptResult:
    """Minimise losses + c2 |w|^2 with steps eta_t = 1 / (lambda (t0 + t)), lambda = 2 c2 / n.
    Common arguments: see the module.

    t0 = 1 / (lambda eta0), and eta0 is the best of a series: calibration_eta times powers of
    calibration_rate, upwards and then downwards, each tried for one pass over calibration_samples sequences
    from w0 and judged by their objective afterwards, until calibration_candidates of them made it fall or one
    did worse than the best; calibration_max_trials in all. eta0 lambda <= 1/2. With c2 = 0 the step stays
    eta0: weights of separable data grow without end, slowly.

    average : return the mean of the weights at the ends of epochs, the k-th one with a weight that grows as
        k^3 (Shamir and Zhang 2013, section 4): it costs nothing and lies much nearer to the optimum. False:
        the last weights, as CRFsuite has them.
    """
    calibration = (
        number("calibration_eta", calibration_eta, above=0.0),
        number("calibration_rate", calibration_rate, above=1.0),
        whole("calibration_samples", calibration_samples, 1),
        whole("calibration_candidates", calibration_candidates, 1),
        whole("calibration_max_trials", calibration_max_trials, 1),
    )
    c2 = number("c2", c2)
    common = corpus, features, w0, constraints, eps, state, random_state, period, delta
    more = max_iterations, new_data
    return run(Sgd(*common, *more, c2, average, calibration), callback)


def sgd_l1(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c1: float,
    c2: float = 0.0,
    eta0: float = 0.8,
    decay: float = DECAY,
    period: int = 10,
    delta: float = 1e-6,
    constraints: Limits = None,
    eps: float = 0.0,
    max_iterations: int = 60,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
    new_data: bool = False,
) -> OptResult:
    """Minimise losses + c1 |w|_1 with steps eta0 decay^(k / n) after k updates. Common arguments:
    see the module.

    eta0, decay : defaults of Wapiti. The penalty is cumulative:
        a weight is pulled to zero by all that was due since it was last
    used, and stays there until gradients outweigh that. c2 > 0 is refused:
    a shrink by a factor is not part of that bookkeeping.
    """
    c1, eta0 = number("c1", c1), number("eta0", eta0, above=0.0)
    if c2:
        raise ValueError(
            f"sgd_l1 has no L2 penalty: expected c2=0, got {shown(c2)}; use OWL-QN for both, or sgd with c1=0"
        )
    decay = number("decay", decay, above=0.0, most=1.0)
    common = corpus, features, w0, constraints, eps, state, random_state, period, delta
    more = max_iterations, new_data
    return run(SgdL1(*common, *more, c1, eta0, decay), callback)


def divergence(result):
    """What to tell a user whose step size was too large: a sentence, or None."""
    n, eta0 = int(result.state.get("n_halvings", 0)), float(result.state.get("eta0", 0.0))
    if not n:
        return None
    end = (
        "and still does, so the last good weights are kept"
        if result.status == "diverged"
        else "and training went on from there"
    )
    return (
        f"the learning rate made the loss grow: it was halved {n} times, to {eta0:.3g}, {end}; "
        "smaller attribute values help"
    )


class _Descent(Learner):
    """What both share: cells, the order of an epoch, divergence, stopping, state."""

    vectors = ("w",)  # what a state holds besides numbers, each (F,)
    numbers = ("seed", "n_done", "n_halvings", "passes", "eta0", "most")
    evaluated = False  # the start
    last_good, spoilt = None, False  # the state before the last epoch; was that epoch undone?

    def __init__(
        self, corpus, features, w0, constraints, eps, state, random_state, period, delta, max_iterations,
        new_data, penalty,
    ):  # fmt: skip
        self.period, self.delta = whole("period", period, 1), number("delta", delta, finite=False)
        self.max_iterations, self.penalty = whole("max_iterations", max_iterations), penalty
        if check_eps(eps):
            check_transitions(corpus, features)
        check_labels(corpus, features, constraints)
        n_weights = features.n_features
        if state is None:
            w = check_weights(np.zeros(n_weights) if w0 is None else w0, n_weights)
            state = {name: np.zeros(n_weights) for name in self.vectors} | {"w": w, "seed": random_state}
        for name in self.vectors:
            check_state(state, name, n_weights)
        if eps or worth_lists(corpus, features):
            self.layout, self.cells, lists = lay_out_lists(corpus, features, constraints)
            self.places = self.layout, None, lists, list_work(corpus, self.layout, lists, eps)
        else:
            self.layout, self.cells = lay_out_online(corpus, features, constraints)
            self.places = self.layout, sequence_work(corpus, self.layout.exists.shape[1]), None, None
        self.sequences = corpus.visited
        self.n = max(1, len(self.sequences))
        # What zero weights lose, log L nats a token (less where labels are forbidden), or the start.
        with np.errstate(over="ignore"):
            self.most = most = 1.0 + math.log(features.n_labels) * float(corpus.lengths @ corpus.weights)
        self.seconds = float(state.get("seconds", 0.0))
        self.load({name: np.asarray(value) for name, value in state.items()})
        if new_data:  # the bound of a state is that of the sequences it came from
            self.most = most
        self.first_epoch = self.iteration if new_data else 0
        self.saved = self.snapshot()

    def load(self, state):
        self.theta = cells_of(self.cells, state["w"])
        for name in self.numbers:
            setattr(self, name, state[name].item() if name in state else getattr(self, name, 0))
        self.iteration = int(state.get("epoch", 0))
        self.window = state["window"].tolist() if "window" in state else []

    def snapshot(self):
        """Copies, so that they stay what they were."""
        numbers = {name: np.asarray(getattr(self, name)) for name in self.numbers}
        vectors = {"w": weights_of(self.cells, self.theta), "window": np.array(self.window)}
        return numbers | vectors | {"epoch": np.asarray(self.iteration)}

    def begin(self):
        if self.theta.any() and self.iteration == self.first_epoch:
            most, self.most = self.most, math.inf
            start = self.losses(0.0, self.sequences)
            self.most = max(most, start) if start < math.inf else most
            self.saved = self.snapshot()
        self.evaluated = True

    def state(self):
        return self.saved | {"seconds": np.asarray(self.seconds)}

    def settle(self):
        """To where the last epoch ended; the passes stay counted."""
        passes = self.passes
        self.load(self.saved)
        self.passes = passes

    def weights(self):
        return self.saved["w"].copy()

    def end_epoch(self):
        pass

    def losses(self, eta0, order):
        """Sum of the losses of the sequences of `order`, the weights moving with steps from eta0; inf:
        given up.
        """
        total = 0.0
        for part in interruptible_stretches(order):
            total += self.steps(part, eta0)
            self.passes += len(part) / self.n
            self.n_done += len(part) if eta0 else 0
            if not -math.inf < total <= (1.5 if self.iteration > self.first_epoch else 2.0) * self.most:
                return math.inf
        self.write_out()
        return total if math.isfinite(self.penalty_value()) else math.inf  # nan also where a weight is

    def advance(self):
        order = self.sequences[epoch_order(self.seed, self.iteration + 1, len(self.sequences))]
        objective = self.losses(self.eta0, order)
        while not objective < math.inf:
            self.settle()
            if self.n_halvings == MAX_HALVINGS:
                return "diverged"
            self.eta0, self.n_halvings = self.eta0 / 2, self.n_halvings + 1
            if not self.losses(0.0, order) < math.inf:  # the damage was done before this epoch
                self.forget()
            self.saved = self.snapshot()
            objective = self.losses(self.eta0, order)
        self.iteration += 1
        self.end_epoch()
        objective += self.penalty_value()
        self.window = [*self.window, objective][-2 * self.period :]
        before, now = sum(self.window[: self.period]), sum(self.window[self.period :])
        fall = (before - now) / max(abs(now), TINY) if len(self.window) == 2 * self.period else math.nan
        self.objective, self.violation = objective, fall
        self.last_good, self.saved = self.saved, self.snapshot()
        return None

    def forget(self):
        self.theta[:] = 0.0

    def finished(self):
        return "small change" if self.violation < self.delta else None

    def final_objective(self):
        if not self.evaluated:
            return math.nan
        found = self.of_weights()
        if not found < math.inf and self.last_good is not None:  # its last step spoilt them
            self.saved, self.spoilt = self.last_good, True
            self.settle()
            found = self.of_weights()
        return found

    def of_weights(self):
        """The objective of `weights()`. Cost: a pass over the corpus."""
        self.theta, self.most = cells_of(self.cells, self.weights()), math.inf
        return self.losses(0.0, self.sequences) + self.penalty_value()

    def outcome(self, status):
        return "diverged" if self.spoilt else status

    @property
    def n_evaluations(self):
        return math.ceil(self.passes - 1e-9)


class Sgd(_Descent):
    """The weights are scale * theta during an epoch, theta between epochs."""

    vectors = ("w", "mean")
    numbers = (*_Descent.numbers, "n_mean")
    scale = 1.0

    def __init__(self, *arguments):
        *common, average, self.calibration = arguments  # `calibration`: arguments of `calibrate`
        self.average = bool(average)
        super().__init__(*common)
        self.shrinkage = 2.0 * self.penalty / self.n

    def load(self, state):
        super().load(state)
        self.scale, self.mean = 1.0, state["mean"].copy()

    def snapshot(self):
        return super().snapshot() | {"mean": self.mean.copy()}

    def weights(self):
        return self.saved["mean" if self.average and self.n_mean else "w"].copy()

    def end_epoch(self):
        self.n_mean += 1
        self.mean += 4.0 / (self.n_mean + 3) * (weights_of(self.cells, self.theta) - self.mean)

    def forget(self):
        super().forget()
        self.mean[:], self.n_mean = 0.0, 0

    def advance(self):
        if not self.eta0:  # here, so that Ctrl-C ends the search, too
            self.calibrate(*self.calibration)
        return super().advance()

    def steps(self, part, eta0):
        rates = eta0, self.shrinkage, self.n_done, self.scale
        total, self.scale = sgd_steps(part, *rates, *self.places, self.theta)
        return total

    def write_out(self):
        self.theta *= self.scale
        self.scale = 1.0

    def penalty_value(self):
        return self.penalty * float(self.theta @ self.theta)

    def calibrate(self, eta, rate, samples, candidates, max_trials):
        """Set eta0 to the best of the tried ones, see `sgd`. Leaves the weights where they are."""
        order = self.sequences[epoch_order(self.seed, 0, len(self.sequences))][:samples]
        share, largest = len(order) / self.n, 0.5 / self.shrinkage if self.penalty else math.inf
        at_start = self.losses(0.0, order) + share * self.penalty_value()
        eta = min(eta, largest)
        best, self.eta0, trials = math.inf, eta, 0
        for candidate, factor in ((eta, rate), (eta / rate, 1.0 / rate)):
            fallen = 0
            while fallen < candidates and trials < max_trials and candidate <= largest:
                value = self.losses(candidate, order)
                if value < math.inf:
                    value = self.losses(0.0, order) + share * self.penalty_value()
                self.settle()
                trials += 1
                fallen += value < at_start
                if value < min(best, at_start):
                    best, best_eta = value, candidate
                elif best < math.inf or factor > 1.0:
                    break
                candidate *= factor
        self.eta0 = best_eta if best < math.inf else candidate
        self.saved = self.snapshot()


class SgdL1(_Descent):
    """`received` is what each cell has had of the penalties that were `due` so far."""

    vectors = ("w", "received")
    numbers = (*_Descent.numbers, "due")

    def __init__(self, *arguments):
        *common, eta0, self.decay = arguments
        super().__init__(*common)
        self.eta0 = self.eta0 or eta0
        self.saved = self.snapshot()  # what a first epoch that diverges goes back to

    def load(self, state):
        super().load(state)
        self.received = cells_of(self.cells, state["received"])

    def snapshot(self):
        return super().snapshot() | {"received": weights_of(self.cells, self.received)}

    def steps(self, part, eta0):
        decay, penalty = self.decay ** (1.0 / self.n), self.penalty / self.n
        rates = eta0, decay, penalty, self.n_done, float(self.due)
        total, self.due = sgd_l1_steps(part, *rates, *self.places, self.theta, self.received)
        return total

    def write_out(self):
        clip_cells(0, len(self.theta), float(self.due), self.theta, self.received)

    def forget(self):
        super().forget()
        self.received[:], self.due = 0.0, 0.0

    def penalty_value(self):
        return self.penalty * float(np.abs(self.theta).sum())
