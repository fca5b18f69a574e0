"""The epochs of an online learner: order, stopping, history, resuming. Which step is taken,
the learner says (online.py).
"""

import time

import numpy as np

from crfbook._checks import number, whole
from crfbook.chain.objective import check_labels, check_weights
from crfbook.chain.token_layout import cells_of, epoch_order, lay_out_online, online_work, weights_of
from crfbook.learners.online.mistakes import N_TOTALS
from crfbook.learners.online.perceptron_steps import perceptron_direction
from crfbook.training.loop import OptResult, Step


class OnlineRun:
    """Weights as cells, their sum for averaging, and the loop over epochs.

    A learner moves `theta` (C,) and keeps `theta_sum` (C,), `count` (1,) so that theta - theta_sum / count is
    the mean of all weight vectors so far (perceptron_steps.py); `variance` (C,) is AROW's.
    """

    def __init__(self, corpus, features, w0, constraints, state, average, variance=None):
        check_labels(corpus, features, constraints)
        n_weights = features.n_features
        if state is None:
            w = check_weights(np.zeros(n_weights) if w0 is None else w0, n_weights)
            state = {"w": w, "w_sum": np.zeros(n_weights), "count": 1, "epoch": 0, "seconds": 0.0}
            if variance is not None:
                state["variance"] = np.full(n_weights, variance)
        for name in ("w", "w_sum", "variance")[: 2 if variance is None else 3]:
            if name not in state or np.shape(state[name]) != (n_weights,):
                raise ValueError(
                    f"state: expected an array {name!r} of shape ({n_weights},), got "
                    f"{np.shape(state[name]) if name in state else sorted(state)}"
                )
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.theta, self.theta_sum = cells_of(self.cells, state["w"]), cells_of(self.cells, state["w_sum"])
        self.variance = None if variance is None else cells_of(self.cells, state["variance"])
        self.count = np.array([state["count"]], np.int64).reshape(1)
        self.average, self.epoch = bool(average), int(state["epoch"])
        self.seconds, self.clock = float(state["seconds"]), time.perf_counter()
        self.work, self.totals = online_work(self.layout, len(self.theta)), np.zeros(N_TOTALS)
        self.sequences = corpus.visited

    def train(self, learn, losses, shuffle, epsilon, max_iterations, random_state, callback):
        """OptResult of epochs of learn(order), for stretches of sequences; losses(totals) -> (objective,
        loss to be averaged).
        """
        epsilon, max_iterations = number("epsilon", epsilon), whole("max_iterations", max_iterations)
        history, status, good = [], None, self._state()
        try:
            while status is None:
                if self.epoch >= max_iterations:
                    status = "max_iterations"
                    break
                order = self.sequences
                if shuffle:
                    order = order[epoch_order(random_state, self.epoch, len(order))]
                self.totals[:] = 0.0
                learn(order)
                if not (np.isfinite(self.totals).all() and np.isfinite(self.theta.sum())):
                    status = "non-finite weights"
                    break
                self.epoch += 1
                good = self._state()
                w = self._kept(good)
                objective, loss = map(float, losses(self.totals))
                n_active = int(np.count_nonzero(w))
                step = Step(self.epoch, objective, loss / max(1, len(order)), n_active, self.seconds)
                history.append(step)
                if step.violation <= epsilon:
                    status = "converged"
                if callback is not None and self._pause(callback, step, w):
                    status = status or "stopped by callback"
        except KeyboardInterrupt:
            status = "interrupted"
        w = self._kept(good)
        objective = history[-1].objective if history else float(losses(self._losses_at(w))[0])
        return OptResult(w, objective, status, int(good["epoch"]), history, good, len(history))

    def _state(self):
        """Where the last complete epoch ended: arrays of our own, in the order of the features."""
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + (now - self.clock), now
        state = {
            "w": weights_of(self.cells, self.theta),
            "w_sum": weights_of(self.cells, self.theta_sum),
            "count": self.count.copy(),
            "epoch": np.array(self.epoch),
            "seconds": np.array(self.seconds),
        }
        if self.variance is not None:
            state["variance"] = weights_of(self.cells, self.variance)
        return state

    def _kept(self, state):
        """The weights that a user would keep: averaged or as they are."""
        return state["w"] - state["w_sum"] / state["count"][0] if self.average else state["w"].copy()

    def _losses_at(self, w):
        """`totals` of decoding every sequence with w."""
        totals, theta = np.zeros(N_TOTALS), cells_of(self.cells, w)
        perceptron_direction(self.sequences, theta, np.zeros_like(theta), self.layout, self.work, totals)
        return totals

    def _pause(self, callback, step, w):
        """Run the callback with the clock stopped."""
        w.flags.writeable = False
        stop = callback(step, w)
        self.clock = time.perf_counter()
        return bool(stop)
