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

from crfbook._checks import whole
from crfbook.chain.token_layout import cells_of, epoch_order, sequence_work, weights_of
from crfbook.learners.stochastic.gradient_steps import sag_steps, write_out
from crfbook.learners.stochastic.remembered import Rememberer, edge_places, memory_bytes
from crfbook.training.certificate import Rules
from crfbook.training.interrupts import listen
from crfbook.training.loop import run

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, OptResult, State

BOLDNESS = 0.5  # of the steps, see gradient_steps.py; halved after an epoch ...
RISE = 1e-3  # ... in which the objective rose by more than this share


class SagMemory(NamedTuple):
    """What is known of S sequences, N tokens, K edge classes;
    "gradient" is that with respect to the scores (marginals - gold).
    """

    node: np.ndarray  # (N, L): gradient of each token at its sequence's last visit, 0 before the first
    edge: np.ndarray  # (n_edge_memory,): sums over tokens, for the label pairs that have a weight
    edge_start: np.ndarray  # int64 (S+1,): those of sequence s, see remembered.py
    pair_ptr: np.ndarray  # int64 (K+1,)
    pair: np.ndarray  # int64: label pairs previous * M + next of each class that have a weight
    # (S,): estimates of the Lipschitz constants of the gradients, 0 before the first visit
    lipschitz: np.ndarray
    calm: np.ndarray  # int64 (S,): searches in a row that changed nothing
    skip: np.ndarray  # int64 (S,): visits that will do without a search
    loss: np.ndarray  # (S,): nats, at the last visit


class LazyWeights(NamedTuple):
    """The weights, as scale (u - lag d): see gradient_steps.py."""

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
    rules, max_iterations = Rules(0.0, c2, tol, tol_gradient), whole("max_iterations", max_iterations)
    need = sag_memory(corpus, features)
    if need > memory_limit:
        raise MemoryError(
            f"sag remembers the marginals of every token, {need / 1e9:.3g} GB here, more than memory_limit = "
            f"{memory_limit / 1e9:.3g} GB: raise it, or use L-BFGS or sgd, which do not"
        )
    learner = AverageGradient(corpus, features, w0, constraints, state, random_state, rules, max_iterations)
    return run(learner, callback)


def sag_memory(corpus, features):
    """Bytes that `sag` will hold: memory of N L + (label pairs of the sequences), layout of the corpus,
    vectors of weights.
    """
    return memory_bytes(corpus, features, remembered=1, vectors=3, works=3, per_token=40)


class AverageGradient(Rememberer):
    """The weights as scale (u - lag d), and the memory."""

    name, first = "sag", "node"
    vectors = ("w", "d")
    kept = ("node", "edge", "lipschitz", "calm", "skip", "loss")
    numbers = Rememberer.numbers | {"warm": False, "boldness": BOLDNESS, "objective_before": math.inf}

    def __init__(self, corpus, features, w0, *rest):
        super().__init__(corpus, features, w0, *rest)
        self.warm = bool(self.given.get("warm", self.w.any()))
        self.works = [sequence_work(corpus, self.layout.exists.shape[1]) for _ in range(3)]
        self.memory = self._memory()
        d = self.given.get("d", np.zeros(features.n_features))
        u, d = (cells_of(self.cells, vector) for vector in (self.w, d))
        self.lazy, self.grad = LazyWeights(np.array([1.0, 0.0]), u, d), np.zeros_like(u)

    def _memory(self):
        corpus, n = self.corpus, self.corpus.n_sequences
        places = edge_places(corpus, self.features, self.layout.exists.shape[1])
        node, edge = np.zeros((corpus.n_tokens, self.features.n_labels)), np.zeros(places[0][-1])
        lipschitz, loss, (calm, skip) = np.zeros(n), np.zeros(n), np.zeros((2, n), np.int64)
        memory = SagMemory(node, edge, *places, lipschitz, calm, skip, loss)
        return memory._replace(**{name: np.array(self.given[name]) for name in self.kept if self.given})

    def state(self):
        return super().state() | {"d": weights_of(self.cells, self.lazy.d)}

    def advance(self):
        """n visits, all sequences in turn in the first epoch;
        later half of them drawn in proportion to the constants.
        """
        n, first_pass = len(self.sequences), 0 if self.iteration else 2 if self.warm else 1
        order = self.sequences[epoch_order(self.seed, self.iteration + 1, n)]
        rng = np.random.default_rng([self.seed, self.iteration + 1, 1])
        stretch = max(256, n // 32)
        # not a float of Python, which cannot be divided by when it is 0
        steps = first_pass, self.boldness, np.float64(2.0 * self.c2 / max(1, n))
        for first in range(0, n, stretch):
            listen()
            part = order[first : first + stretch]
            if not first_pass:
                rising = np.cumsum(self.memory.lipschitz[self.sequences])
                drawn = np.searchsorted(rising, rng.random(len(part)) * rising[-1], side="right")
                part = np.where(rng.random(len(part)) < 0.5, self.sequences[np.minimum(drawn, n - 1)], part)
            if sag_steps(part, *steps, self.layout, self.memory, self.lazy, *self.works, self.grad) >= 0:
                return "non-finite objective"
        self.settle()
        self.iteration, self.passes = self.iteration + 1, self.passes + 1
        self.judge()
        return None

    def settle(self):
        """Write the weights out. Every step leaves them good, so that nothing is thrown away."""
        write_out(self.lazy)
        if np.isfinite(self.lazy.u).all():
            self.w = weights_of(self.cells, self.lazy.u)
        self.exact = None

    def estimate(self):
        objective = float(self.memory.loss.sum()) + self.c2 * float(self.w @ self.w)
        if objective > self.objective_before + RISE * abs(self.objective_before):
            self.boldness *= 0.5
        self.objective_before = objective
        return objective, self.rules.violation_of(
            weights_of(self.cells, self.lazy.d) + 2.0 * self.c2 * self.w
        )

    def certified(self, value, grad):
        return value, self.rules.violation_of(grad)
