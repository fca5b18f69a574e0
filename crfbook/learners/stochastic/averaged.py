"""Stochastic average gradient for CRFs with non-uniform sampling:
a linear rate at the price of one sequence a step.

Every sequence's last gradient is remembered, as marginals; a step follows the mean of all of them after
renewing one. Sequences whose gradient changes fast are visited more often. Source: Schmidt, Babanezhad,
Ahmed, Defazio, Clifton and Sarkar (2015), "Non-uniform stochastic average gradient method for training
conditional random fields".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crfbook.chain.objective import Objective, check_labels, check_weights
from crfbook.chain.token_layout import cells_of, epoch_order, lay_out_online, sequence_work, weights_of
from crfbook.learners.stochastic.edge_memory import edge_start, memory_bytes, pairs_of_classes
from crfbook.learners.stochastic.sag_steps import sag_steps, write_out
from crfbook.training.certificate import TINY, Rules
from crfbook.training.epochs import last_look, run_epochs
from crfbook.training.loop import OptResult

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, State

BOLDNESS = 0.5  # of the steps, see sag_steps.py; halved after an epoch ...
RISE = 1e-3  # ... in which the objective rose by more than this share


class SagMemory(NamedTuple):
    """What is known of S sequences, N tokens, K edge classes;
    "gradient" is that with respect to the scores (marginals - gold).
    """

    node: np.ndarray  # (N, L): gradient of each token at its sequence's last visit, 0 before the first
    edge: np.ndarray  # (n_edge_memory,): sums over tokens, for the label pairs that have a weight
    edge_start: np.ndarray  # int64 (S+1,): those of sequence s, see edge_memory.py
    pair_ptr: np.ndarray  # int64 (K+1,)
    pair: np.ndarray  # int64: label pairs previous * M + next of each class that have a weight
    # (S,): estimates of the Lipschitz constants of the gradients, 0 before the first visit
    lipschitz: np.ndarray
    calm: np.ndarray  # int64 (S,): searches in a row that changed nothing
    skip: np.ndarray  # int64 (S,): visits that will do without a search
    loss: np.ndarray  # (S,): nats, at the last visit


class LazyWeights(NamedTuple):
    """The weights, as scale (u - lag d): see sag_steps.py."""

    factors: np.ndarray  # (2,): scale, lag
    u: np.ndarray  # (C,)
    d: np.ndarray  # (C,): sum of the remembered gradients


def sag(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    tol: float = 1e-6,
    tol_gradient: float = 1e-3,
    memory_limit: float = 2e9,
    constraints: Limits = None,
    max_iterations: int = 200,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise losses + c2 |w|^2 by stochastic average gradient; reaches the optimum, with a certificate.

    Parameters
    ----------
    corpus, features : S sequences, every token labelled; F weights.
        Sequences of length 0 or weight 0 are left out.
    w0 : (F,) start, default 0. The first pass takes plain stochastic gradient steps from 0;
        from any other start it only looks.
    c2 : >= 0. tol, tol_gradient : when to stop, as in `minimize`: the bound |gradient|^2 / (4 c2) on what is
        left is at most tol * max(1, objective), or for c2 = 0 no entry of the gradient exceeds tol_gradient.
    memory_limit : bytes that `sag_memory` may reach.
    constraints : Constraints or None. max_iterations : epochs (n visits) in all, those of `state` included.
    random_state : int, the seed. callback : called with (Step, w) after each epoch, w read-only; True stops.
    state : `OptResult.state` of an earlier call on the same problem; continues bit for bit and is not
        changed. After Ctrl-C the epoch that was cut short begins again, with what it had learnt.

    Steps follow the paper, between the mean of the Lipschitz constants and the largest; where the objective
    rises they are drawn to the largest, as few or very unlike sequences need.

    Returns an `OptResult`. `Step.objective` and `Step.violation` come from the remembered losses and
    gradients, each a little out of date; where these promise an end, one pass over the corpus gives the exact
    ones, which alone end it ("converged"). `n_evaluations` counts passes: epochs, and such evaluations. Other
    statuses: "max_iterations", "stopped by callback", "interrupted", "non-finite objective".

    Raises MemoryError before anything is allocated, and ValueError for labels that are unknown or forbidden,
    weights that are not finite, parameters out of range.
    """
    rules = Rules(0.0, c2, tol, tol_gradient)
    need = sag_memory(corpus, features)
    if need > memory_limit:
        raise MemoryError(
            f"sag remembers the marginals of every token, {need / 1e9:.3g} GB here, more than memory_limit = "
            f"{memory_limit / 1e9:.3g} GB: raise it, or use L-BFGS or sgd, which do not"
        )
    run = _Run(corpus, features, w0, constraints, state, random_state, rules)
    return run.result(max_iterations, callback)


def sag_memory(corpus, features):
    """Bytes that `sag` will hold: memory of N L + (label pairs of the sequences), layout of the corpus,
    vectors of weights.
    """
    return memory_bytes(corpus, features, remembered=1, vectors=3, works=3, per_token=40)


class _Run:
    """The weights as scale (u - lag d), the memory, and the loop's callbacks (epochs.py)."""

    # what a state holds: arrays of the memory, and numbers of the run
    kept = ("node", "edge", "lipschitz", "calm", "skip", "loss")
    numbers = ("epoch", "seconds", "seed", "warm", "passes", "optimism", "boldness", "objective_before")

    def __init__(self, corpus, features, w0, constraints, state, random_state, rules):
        check_labels(corpus, features, constraints)
        self.corpus, self.features, self.constraints = corpus, features, constraints
        self.rules, self.c2, self.reason = rules, rules.c2, None
        n_weights = features.n_features
        w = np.zeros(n_weights) if w0 is None else w0
        if state is not None:
            if np.shape(state.get("d")) != (n_weights,) or np.shape(state.get("node")) != (
                corpus.n_tokens,
                features.n_labels,
            ):
                raise ValueError(
                    f"state: expected that of sag with {n_weights} weights and {corpus.n_tokens} tokens, "
                    f"got the arrays {sorted(state)}"
                )
            w = state["w"]
        w = check_weights(w, n_weights)
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.works = [sequence_work(corpus, self.layout.exists.shape[1]) for _ in range(3)]
        self.sequences = corpus.visited
        self.memory = self._memory(state)
        given = {} if state is None else state
        self.epoch, self.seconds = int(given.get("epoch", 0)), float(given.get("seconds", 0.0))
        self.seed, self.warm = int(given.get("seed", random_state)), bool(given.get("warm", w.any()))
        self.passes, self.optimism = int(given.get("passes", 0)), float(given.get("optimism", 1.0))
        self.boldness = float(given.get("boldness", BOLDNESS))
        self.objective_before = float(given.get("objective_before", math.inf))
        u, d = (cells_of(self.cells, vector) for vector in (w, given.get("d", np.zeros(n_weights))))
        self.lazy, self.grad = LazyWeights(np.array([1.0, 0.0]), u, d), np.zeros_like(u)
        self.w, self.exact, self.objective_of = w, None, None

    def _memory(self, state):
        corpus, n = self.corpus, self.corpus.n_sequences
        pair_ptr, pair = pairs_of_classes(corpus, self.features, self.layout.exists.shape[1])
        start = edge_start(corpus, pair_ptr)
        node, edge = np.zeros((corpus.n_tokens, self.features.n_labels)), np.zeros(start[-1])
        lipschitz, loss, (calm, skip) = np.zeros(n), np.zeros(n), np.zeros((2, n), np.int64)
        memory = SagMemory(node, edge, start, pair_ptr, pair, lipschitz, calm, skip, loss)
        kept = {} if state is None else {name: np.array(state[name]) for name in self.kept}
        return memory._replace(**kept)

    def state(self):
        """Arrays only; the big ones are the run's own, not copies."""
        return (
            {name: np.asarray(getattr(self, name)) for name in self.numbers}
            | {name: getattr(self.memory, name) for name in self.kept}
            | {"w": self.w, "d": weights_of(self.cells, self.lazy.d)}
        )

    # ---- for run_epochs

    def advance(self):
        """n visits, all sequences in turn in the first epoch;
        later half of them drawn in proportion to the constants.
        """
        n, first_pass = len(self.sequences), 0 if self.epoch else 2 if self.warm else 1
        order = self.sequences[epoch_order(self.seed, self.epoch + 1, n)]
        rng = np.random.default_rng([self.seed, self.epoch + 1, 1])
        stretch = max(256, n // 32)
        # not a float of Python, which cannot be divided by when it is 0
        steps = first_pass, self.boldness, np.float64(2.0 * self.c2 / max(1, n))
        for first in range(0, n, stretch):
            part = order[first : first + stretch]
            if not first_pass:
                rising = np.cumsum(self.memory.lipschitz[self.sequences])
                drawn = np.searchsorted(rising, rng.random(len(part)) * rising[-1], side="right")
                part = np.where(rng.random(len(part)) < 0.5, self.sequences[np.minimum(drawn, n - 1)], part)
            if sag_steps(part, *steps, self.layout, self.memory, self.lazy, *self.works, self.grad) >= 0:
                self.reason = "non-finite objective"
                return None
        self.roll_back()
        self.epoch, self.passes = self.epoch + 1, self.passes + 1
        return self._judge()

    def roll_back(self):
        """Write the weights out. Every step leaves them good, so that nothing is thrown away."""
        write_out(self.lazy)
        if np.isfinite(self.lazy.u).all():
            self.w = weights_of(self.cells, self.lazy.u)
        self.exact = None

    def weights(self):
        return self.w.copy()

    def finished(self, objective, violation):
        if not math.isfinite(objective):
            return "non-finite objective"
        return "converged" if self.exact is not None and violation <= self.rules.enough(objective) else None

    def result(self, max_iterations, callback):
        status, history = run_epochs(self, max_iterations, callback)
        objective, status = last_look(lambda: (self.exact or self.evaluate())[0], status, history)
        return OptResult(self.w, objective, status, self.epoch, history, self.state(), self.passes)

    # ---- how far it has come

    def _judge(self):
        """(objective, violation) from the memory,
        or exact ones if those of the memory are good enough to end.
        """
        objective = float(self.memory.loss.sum()) + self.c2 * float(self.w @ self.w)
        if objective > self.objective_before + RISE * abs(self.objective_before):
            self.boldness *= 0.5
        self.objective_before = objective
        violation = self.rules.violation_of(weights_of(self.cells, self.lazy.d) + 2.0 * self.c2 * self.w)
        if self.optimism * violation > self.rules.enough(objective):
            return objective, violation
        exact = self.evaluate()
        # what the memory will have to promise next time
        self.optimism = max(1.0, 0.5 * exact[1] / max(violation, TINY))
        return exact

    def evaluate(self):
        """Exact (objective, violation) at the present weights: one pass over the corpus."""
        if self.objective_of is None:
            self.objective_of = Objective(
                self.corpus, self.features, c2=self.c2, constraints=self.constraints
            )
        value, grad = self.objective_of(self.w)
        self.passes += 1
        self.exact = value, self.rules.violation_of(grad)
        return self.exact
