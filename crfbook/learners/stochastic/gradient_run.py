"""The epochs of stochastic gradient descent: steps in chunks, divergence, averaging, state. What it is for:
stochastic.py.
"""

import math

import numpy as np

from crfbook._checks import number, whole
from crfbook.chain.objective import check_labels, check_weights
from crfbook.chain.token_layout import cells_of, epoch_order, lay_out_online, sequence_work, weights_of
from crfbook.learners.stochastic.sgd_steps import clip_cells, sgd_l1_steps, sgd_steps
from crfbook.training.certificate import TINY
from crfbook.training.epochs import chunks, last_look, run_epochs
from crfbook.training.loop import OptResult

MAX_HALVINGS = 30


class Learner:
    """What both share: cells, the order of an epoch, divergence, stopping, state."""

    vectors = ("w",)  # what a state holds besides numbers, each (F,)
    numbers = ("epoch", "seed", "n_done", "n_halvings", "passes", "seconds", "eta0", "most")

    def __init__(
        self, corpus, features, w0, constraints, state, random_state, period, delta, penalty, new_data
    ):
        self.period, self.delta = whole("period", period, 1), number("delta", delta, finite=False)
        check_labels(corpus, features, constraints)
        n_weights = features.n_features
        if state is None:
            w = check_weights(np.zeros(n_weights) if w0 is None else w0, n_weights)
            state = {name: np.zeros(n_weights) for name in self.vectors} | {"w": w, "seed": random_state}
        for name in self.vectors:
            if np.shape(state.get(name)) != (n_weights,):
                raise ValueError(
                    f"state: expected an array {name!r} of shape ({n_weights},), "
                    f"got {np.shape(state.get(name))}"
                )
        self.penalty, self.reason = penalty, None
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.work = sequence_work(corpus, self.layout.exists.shape[1])
        self.sequences = corpus.visited
        self.n = max(1, len(self.sequences))
        # What zero weights lose, log L nats a token (less where labels are forbidden), or the start.
        self.most = 1.0 + math.log(features.n_labels) * float(corpus.lengths @ corpus.weights)
        most = self.most
        self.load({name: np.asarray(value) for name, value in state.items()})
        if new_data:  # the bound of a state is that of the sequences it came from
            self.most = most
        self.first_epoch = self.epoch if new_data else 0
        if self.theta.any() and self.epoch == self.first_epoch:
            most, self.most = self.most, math.inf
            start = self.losses(0.0, self.sequences)
            self.most = max(most, start) if start < math.inf else most
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
        """The weights to keep, a copy."""
        return self.saved["w"].copy()

    def end_epoch(self):
        pass

    def losses(self, eta0, order):
        """Sum of the losses of the sequences of `order`, the weights moving with steps from eta0; inf:
        given up.
        """
        total = 0.0
        for part in chunks(order):
            total += self.steps(part, eta0)
            self.passes += len(part) / self.n
            self.n_done += len(part) if eta0 else 0
            if not total <= (1.5 if self.epoch > self.first_epoch else 2.0) * self.most:
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
        self.end_epoch()
        objective += self.penalty_value()
        self.window = [*self.window, objective][-2 * self.period :]
        before, now = sum(self.window[: self.period]), sum(self.window[self.period :])
        fall = (before - now) / max(abs(now), TINY) if len(self.window) == 2 * self.period else math.nan
        self.saved = self.state()
        return objective, fall

    def forget(self):
        self.theta[:] = 0.0

    def finished(self, objective, violation):
        return "small change" if violation < self.delta else None

    def result(self, max_iterations, callback):
        status, history = run_epochs(self, max_iterations, callback)
        self.saved["seconds"], self.most = np.asarray(self.seconds), math.inf
        w = self.weights()
        self.theta = cells_of(self.cells, w)
        objective, status = last_look(
            lambda: self.losses(0.0, self.sequences) + self.penalty_value(), status, history
        )
        return OptResult(w, objective, status, self.epoch, history, self.saved, math.ceil(self.passes - 1e-9))


class Sgd(Learner):
    """The weights are scale * theta during an epoch, theta between epochs."""

    vectors = ("w", "mean")
    numbers = (*Learner.numbers, "n_mean")
    scale = 1.0
    average = True
    calibration = ()  # arguments of `calibrate`

    @property
    def shrinkage(self):
        return 2.0 * self.penalty / self.n

    def load(self, state):
        super().load(state)
        self.scale, self.mean = 1.0, state["mean"].copy()

    def state(self):
        return super().state() | {"mean": self.mean.copy()}

    def weights(self):
        return self.saved["mean" if self.average and self.n_mean else "w"].copy()

    def end_epoch(self):
        self.n_mean += 1
        self.mean += 4.0 / (self.n_mean + 3) * (weights_of(self.cells, self.theta) - self.mean)

    def forget(self):
        super().forget()
        self.mean[:], self.n_mean = 0.0, 0

    def advance(self):
        if not self.eta0:  # here, so that Ctrl-C is heard during the search as well
            self.calibrate(*self.calibration)
        return super().advance()

    def steps(self, part, eta0):
        total, self.scale = sgd_steps(
            part, eta0, self.shrinkage, self.n_done, self.scale, self.layout, self.work, self.theta
        )
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


class SgdL1(Learner):
    """`received` is what each cell has had of the penalties that were `due` so far."""

    vectors = ("w", "received")
    numbers = (*Learner.numbers, "due")

    def __init__(self, *arguments, decay):
        self.decay = decay
        super().__init__(*arguments)

    def load(self, state):
        super().load(state)
        self.received = cells_of(self.cells, state["received"])

    def state(self):
        return super().state() | {"received": weights_of(self.cells, self.received)}

    def steps(self, part, eta0):
        decay, penalty = self.decay ** (1.0 / self.n), self.penalty / self.n
        cells = self.layout, self.work, self.theta, self.received
        total, self.due = sgd_l1_steps(part, eta0, decay, penalty, self.n_done, float(self.due), *cells)
        return total

    def settle(self):
        clip_cells(0, len(self.theta), float(self.due), self.theta, self.received)

    def forget(self):
        super().forget()
        self.received[:], self.due = 0.0, 0.0

    def penalty_value(self):
        return self.penalty * float(np.abs(self.theta).sum())
