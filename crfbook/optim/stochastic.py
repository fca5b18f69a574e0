"""Stochastic gradient descent: `sgd` with an L2 penalty (CRFsuite's "l2sgd"), `sgd_l1` with an L1 penalty.

One update for each sequence, in a new random order every epoch. Neither carries a certificate: they stop when the objective,
as the sequences saw it, has hardly moved for some epochs. Sources: Bottou (2010); Tsuruoka, Tsujii and Ananiadou (2009).

Common arguments
----------------
corpus, features : S sequences, every token labelled; F weights. Sequences of length 0 or weight 0 are left out: n remain.
w0 : (F,) start, default 0.
period, delta : stop ("small change") when the objective fell by less than the share delta of itself during `period` epochs.
constraints : Constraints or None.
max_iterations : epochs in all, those of `state` included. 0: w0 comes back with its objective.
random_state : int, the seed of all orders.
callback : called with (Step, w) after each epoch, w read-only; True stops.
state : `OptResult.state` of an earlier call with the same feature set; w0 and random_state are not used then. On the same
    corpus training goes on bit for bit.

Both return an `OptResult`. `Step.objective`: losses in nats as the sequences had them when it was their turn (w moves meanwhile),
plus the penalty at the end of the epoch; `Step.violation`: the share by which it fell during `period` epochs, NaN before.
`OptResult.objective` is that of the weights returned, from one more pass; `n_evaluations` counts passes over the corpus.
A step size under which the loss of an epoch is not finite, or more than zero weights have (twice that in the first epoch), is
halved and the epoch done again, from zero if the weights were spoilt before it (`divergence` puts it in words). status: "small change", "max_iterations", "stopped by callback", "interrupted" (Ctrl-C: the last
complete epoch comes back), "diverged" (MAX_HALVINGS halvings did not help).
ValueError for labels that are unknown or forbidden, weights that are not finite, and parameters out of range.
"""

import math

import numpy as np

from crfbook.kernels.sgd import clip_cells, sgd_l1_steps, sgd_steps
from crfbook.optim.epochs import run_epochs
from crfbook.optim.objective import _check_labels, check_weights
from crfbook.optim.online_layout import cells_of, lay_out_online, weights_of
from crfbook.optim.result import OptResult
from crfbook.optim.sequences import epoch_order, sequence_work

CHUNK = 512  # sequences per compiled call: Ctrl-C is heard between calls
MAX_HALVINGS = 30


def sgd(corpus, features, w0=None, *, c2, calibration_eta=0.1, calibration_rate=2.0, calibration_samples=1000,
        calibration_candidates=10, calibration_max_trials=20, period=10, delta=1e-6, constraints=None,
        max_iterations=1000, random_state=0, callback=None, state=None):
    """Minimise losses + c2 |w|^2 with steps eta_t = 1 / (lambda (t0 + t)), lambda = 2 c2 / n. Common arguments: see the module.

    t0 = 1 / (lambda eta0), and eta0 is the best of a series: calibration_eta times powers of calibration_rate, upwards and then
    downwards, each tried for one pass over calibration_samples sequences from w0 and judged by their objective afterwards, until
    calibration_candidates of them made it fall or one did worse than the best; calibration_max_trials in all. eta0 lambda <= 1/2.
    With c2 = 0 the step stays eta0: weights of separable data grow without end, slowly.
    """
    _penalty("c2", c2)
    for name, value, least in (("calibration_eta", calibration_eta, 0.0), ("calibration_rate", calibration_rate, 1.0)):
        if not (math.isfinite(value) and value > least):
            raise ValueError(f"{name} must be a finite number > {least:g}, got {value!r}")
    for name, value in (("calibration_samples", calibration_samples), ("calibration_candidates", calibration_candidates),
                        ("calibration_max_trials", calibration_max_trials)):
        _whole(name, value)
    run = _Sgd(corpus, features, w0, constraints, state, random_state, period, delta, c2)
    if not run.eta0 and max_iterations > 0:
        run.calibrate(calibration_eta, calibration_rate, calibration_samples, calibration_candidates, calibration_max_trials)
    return run.result(max_iterations, callback)


def sgd_l1(corpus, features, w0=None, *, c1, c2=0.0, eta0=0.8, decay=0.85, period=10, delta=1e-6, constraints=None,
           max_iterations=60, random_state=0, callback=None, state=None):
    """Minimise losses + c1 |w|_1 with steps eta0 decay^(k / n) after k updates. Common arguments: see the module.

    eta0, decay : defaults of Wapiti. The penalty is cumulative: a weight is pulled to zero by all that was due since it was last
    used, and stays there until gradients outweigh that. c2 > 0 is refused: a shrink by a factor is not part of that bookkeeping.
    """
    _penalty("c1", c1)
    if c2:
        raise ValueError(f"sgd_l1 has no L2 penalty: expected c2=0, got {c2!r}; use OWL-QN for both, or sgd with c1=0")
    if not (math.isfinite(eta0) and eta0 > 0):
        raise ValueError(f"eta0 must be a finite number > 0, got {eta0!r}")
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be a number in (0, 1], got {decay!r}")
    run = _SgdL1(corpus, features, w0, constraints, state, random_state, period, delta, c1, decay)
    run.eta0 = run.eta0 or float(eta0)
    run.saved = run.state()  # what a first epoch that diverges goes back to
    return run.result(max_iterations, callback)


def divergence(result):
    """What to tell a user whose step size was too large: a sentence, or None."""
    n, eta0 = int(result.state.get("n_halvings", 0)), float(result.state.get("eta0", 0.0))
    if not n:
        return None
    end = "and still does, so the last good weights are kept" if result.status == "diverged" else "and training went on from there"
    return f"the learning rate made the loss grow: it was halved {n} times, to {eta0:.3g}, {end}; smaller attribute values help"


def _penalty(name, value):
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")


def _whole(name, value):
    if value != int(value) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")


class _Learner:
    """What both share: cells, the order of an epoch, divergence, stopping, state."""

    vectors = ("w",)  # what a state holds besides numbers, each (F,)
    numbers = ("epoch", "seed", "n_done", "n_halvings", "passes", "seconds", "eta0", "most")

    def __init__(self, corpus, features, w0, constraints, state, random_state, period, delta, penalty):
        if not delta >= 0:
            raise ValueError(f"delta must be a number >= 0, got {delta!r}")
        _whole("period", period)
        _check_labels(corpus, features, constraints)
        n_weights = features.n_features
        if state is None:
            w = check_weights(np.zeros(n_weights) if w0 is None else w0, n_weights)
            state = {name: np.zeros(n_weights) for name in self.vectors} | {"w": w, "seed": random_state}
        for name in self.vectors:
            if np.shape(state.get(name)) != (n_weights,):
                raise ValueError(f"state: expected an array {name!r} of shape ({n_weights},), got {np.shape(state.get(name))}")
        self.penalty, self.period, self.delta, self.reason = float(penalty), int(period), float(delta), None
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.work, self.visit = sequence_work(corpus, self.layout.exists.shape[1]), 0
        self.sequences = np.flatnonzero((np.diff(corpus.seq_ptr) > 0) & (self.layout.weight > 0))
        self.n = max(1, len(self.sequences))
        # What zero weights lose, log L nats a token (less where labels are forbidden), or the start.
        self.most = 1.0 + math.log(features.n_labels) * float(np.diff(corpus.seq_ptr) @ self.layout.weight)
        self.load({name: np.asarray(value) for name, value in state.items()})
        if self.theta.any() and not self.epoch:
            most, self.most = self.most, math.inf
            self.most = max(most, self.losses(0.0, self.sequences))
        self.saved = self.state()

    def load(self, state):
        self.theta = cells_of(self.cells, state["w"])
        for name in self.numbers:
            setattr(self, name, state[name].item() if name in state else getattr(self, name, 0))
        self.window = state["window"].tolist() if "window" in state else []

    def state(self):
        """Copies, so that they stay what they were."""
        numbers = {name: np.asarray(getattr(self, name)) for name in self.numbers}
        return numbers | {"w": weights_of(self.cells, self.theta), "window": np.array(self.window)}

    def roll_back(self):
        passes = self.passes
        self.load(self.saved)
        self.passes = passes

    def weights(self):
        return self.saved["w"].copy()

    def losses(self, eta0, order):
        """Sum of the losses of the sequences of `order`, the weights moving with steps from eta0; inf: given up."""
        total = 0.0
        for first in range(0, len(order), CHUNK):
            part = order[first:first + CHUNK]
            total += self.steps(part, eta0)
            self.visit += len(part)
            self.passes += len(part) / self.n
            self.n_done += len(part) if eta0 else 0
            if not total <= (self.most if self.epoch else 2.0 * self.most):
                return math.inf
        self.settle()
        return total if np.isfinite(self.theta).all() else math.inf

    def advance(self):
        order = self.sequences[epoch_order(self.seed, self.epoch + 1, len(self.sequences))]
        objective = self.losses(self.eta0, order)
        while not objective < math.inf:
            self.roll_back()
            if self.n_halvings == MAX_HALVINGS:
                self.reason = "diverged"
                return None
            self.eta0, self.n_halvings = self.eta0 / 2, self.n_halvings + 1
            if not self.losses(0.0, order) < math.inf:  # the damage was done before this epoch
                self.forget()
            self.saved = self.state()
            objective = self.losses(self.eta0, order)
        self.epoch += 1
        objective += self.penalty_value()
        self.window = [*self.window, objective][-self.period - 1:]
        fall = (self.window[0] - objective) / max(abs(objective), 1e-300) if len(self.window) > self.period else math.nan
        self.saved = self.state()
        return objective, fall

    def forget(self):
        self.theta[:] = 0.0

    def finished(self, objective, violation):
        return "small change" if violation < self.delta else None

    def result(self, max_iterations, callback):
        status, history = run_epochs(self, max_iterations, callback)
        self.saved["seconds"], self.most = np.asarray(self.seconds), math.inf
        objective = self.losses(0.0, self.sequences) + self.penalty_value()
        return OptResult(self.saved["w"], float(objective), status, self.epoch, history, self.saved,
                         math.ceil(self.passes - 1e-9))


class _Sgd(_Learner):
    """The weights are scale * theta during an epoch, theta between epochs."""

    scale = 1.0

    @property
    def shrinkage(self):
        return 2.0 * self.penalty / self.n

    def load(self, state):
        super().load(state)
        self.scale = 1.0

    def steps(self, part, eta0):
        total, self.scale = sgd_steps(part, eta0, self.shrinkage, self.n_done, self.visit, self.scale, self.layout, self.work,
                                      self.theta)
        return total

    def settle(self):
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
                self.roll_back()
                trials += 1
                fallen += value < at_start
                if value < min(best, at_start):
                    best, best_eta = value, candidate
                elif best < math.inf or factor > 1.0:
                    break
                candidate *= factor
        self.eta0 = best_eta if best < math.inf else candidate
        self.saved = self.state()


class _SgdL1(_Learner):
    """`received` is what each cell has had of the penalties that were `due` so far."""

    vectors = ("w", "received")
    numbers = (*_Learner.numbers, "due")

    def __init__(self, corpus, features, w0, constraints, state, random_state, period, delta, penalty, decay):
        self.decay, self.clipped = float(decay), None
        super().__init__(corpus, features, w0, constraints, state, random_state, period, delta, penalty)

    def load(self, state):
        super().load(state)
        self.received = cells_of(self.cells, state["received"])

    def state(self):
        return super().state() | {"received": weights_of(self.cells, self.received)}

    def steps(self, part, eta0):
        if self.clipped is None:
            self.clipped = np.full(len(self.layout.exists) + len(self.layout.class_ptr) - 1, -1, np.int64)
        total, self.due = sgd_l1_steps(part, eta0, self.decay ** (1.0 / self.n), self.penalty / self.n, self.n_done, self.visit,
                                       self.due, self.layout, self.clipped, self.work, self.theta, self.received)
        return total

    def settle(self):
        clip_cells(0, len(self.theta), self.due, self.theta, self.received)

    def forget(self):
        super().forget()
        self.received[:], self.due = 0.0, 0.0

    def penalty_value(self):
        return self.penalty * float(np.abs(self.theta).sum())
