"""Stochastic average gradient for CRFs with non-uniform sampling:
a linear rate at the price of one sequence a step.

Every sequence's last gradient is remembered, as marginals; a step follows the mean of all of them after
renewing one. Sequences whose gradient changes fast are visited more often. Source: Schmidt, Babanezhad,
Ahmed, Defazio, Clifton and Sarkar (2015), "Non-uniform stochastic average gradient method for training
conditional random fields".

What SAG and SDCA share: they remember each sequence, estimate from that how far they have come, and stop
after an exact look.

Of transitions they remember numbers for the label pairs that have a weight, never L x L tables. The pairs of
sequence s stand in one stretch of a flat array, edge class by edge class that it uses, rising.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import whole
from crfbook.chain.objective import Objective, check_labels, check_weights
from crfbook.chain.token_layout import (
    cells_of,
    dense_attributes,
    epoch_order,
    lay_out_online,
    row_width,
    sequence_work,
    used_classes,
    weights_of,
)
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus, offsets
from crfbook.data.features import FeatureSet
from crfbook.learners.stochastic.gradient_steps import sag_steps, write_out
from crfbook.training.certificate import TINY, Rules
from crfbook.training.interrupts import listen
from crfbook.training.loop import Callback, Learner, OptResult, State, run

EDGE_ORDER = 2  # in a state: its classes rise; without this entry: as the sequence used them first


class Rememberer(Learner):
    """What both share. A subclass has `memory` (a NamedTuple), and says how far the weights have come, as
    (objective, violation): `estimate()` from what is remembered, `certified(value, grad)` from the objective
    and its gradient (F,).

    given : `state`, or {}; start : (F,) or None, returned until an epoch has ended; w : (F,), the present
    exact : what `certified` said of w, if the corpus was passed over for it
    optimism : how much the estimate has to promise before such a pass; at least `least`
    """

    name = first = ""  # of the learner; of the array (N, L) by which its state is known
    vectors = ("w",)  # (F,), in a state
    kept = ()  # arrays of the memory, in a state
    numbers = {"seed": 0, "passes": 0, "optimism": 1.0}  # in a state, and their values without one
    least, trust = 1.0, 0.5  # of the estimate
    start = exact = objective_of = ended = None

    def __init__(self, corpus, features, w0, constraints, state, random_state, rules, max_iterations=None):
        check_labels(corpus, features, constraints)
        self.corpus, self.features, self.constraints = corpus, features, constraints
        self.rules, self.c2, self.given = rules, rules.c2, {} if state is None else state
        self.max_iterations = None if max_iterations is None else whole("max_iterations", max_iterations)
        if state is not None:
            self._check(state)
        given = {"seed": random_state, "w": np.zeros(features.n_features) if w0 is None else w0} | self.given
        self.w = check_weights(given["w"], features.n_features).copy()
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.sequences = corpus.visited
        self.iteration, self.seconds = int(given.get("epoch", 0)), float(given.get("seconds", 0.0))
        for name, value in self.numbers.items():
            setattr(self, name, type(value)(given.get(name, value)))

    def _check(self, state):
        sizes = [(name, (self.features.n_features,)) for name in self.vectors]
        sizes.append((self.first, (self.corpus.n_tokens, self.features.n_labels)))
        if any(np.shape(state.get(name)) != size for name, size in sizes):
            raise ValueError(
                f"state: expected that of {self.name} with {self.features.n_features} weights and "
                f"{self.corpus.n_tokens} tokens, got the arrays {sorted(state)}"
            )
        order = int(state.get("edge_order", 1))
        if order != EDGE_ORDER and self.corpus.n_classes > 1:  # of one class there is one order
            raise ValueError(
                f"state: expected one of {self.name} with edge_order {EDGE_ORDER}, got {order}: a version "
                "that kept transitions in another order wrote it; its weights are a start: w0=state['w']"
            )

    def state(self):
        """Arrays only; the big ones are the run's own, not copies."""
        numbers = {name: getattr(self, name) for name in self.numbers}
        numbers |= {"epoch": self.iteration, "seconds": self.seconds, "edge_order": EDGE_ORDER}
        arrays = {name: getattr(self.memory, name) for name in self.kept}
        return {name: np.asarray(value) for name, value in numbers.items()} | arrays | {"w": self.w}

    def weights(self):
        return self.w if self.iteration or self.start is None else self.start

    def finished(self):
        return self.ended

    def last_look(self):
        return self.evaluate()[0]

    @property
    def n_evaluations(self):
        return math.ceil(self.passes)

    def judge(self):
        """Objective and violation as remembered, or exact ones if those are good enough to end."""
        objective, violation = self.estimate()
        if self.optimism * violation <= self.rules.enough(objective):
            promised, (objective, violation) = violation, self.evaluate()
            # what the memory will have to promise next time
            self.optimism = max(self.least, self.trust * violation / max(promised, TINY))
            if violation <= self.rules.enough(objective):
                self.ended = "converged"
        if not math.isfinite(objective):
            self.ended = "non-finite objective"
        self.objective, self.violation = objective, violation

    def evaluate(self):
        """Exact (objective, violation) at the weights: one pass over the corpus."""
        if self.exact is None:
            if self.objective_of is None:
                self.objective_of = Objective(
                    self.corpus, self.features, c2=self.c2, constraints=self.constraints
                )
            value, grad = self.objective_of(self.weights())
            self.passes += 1
            self.exact = self.certified(value, grad)
        return self.exact


def edge_places(corpus, features, width):
    """(start (S+1,), pair_ptr (K+1,), pair): where the pairs of each sequence are remembered; the label pairs
    previous * width + next that have a weight, class by class.
    """
    found = []
    for k in range(corpus.n_classes):
        attrs = corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]]
        rows = [
            slice(features.edge_ptr[b], features.edge_ptr[b + 1]) for b in attrs if b < features.n_edge_attrs
        ]
        keys = [features.edge_prev[row].astype(np.int64) * width + features.edge_next[row] for row in rows]
        found.append(np.unique(np.concatenate([np.zeros(0, np.int64), *keys])))
    sizes, (used_ptr, used) = np.array(list(map(len, found))), used_classes(corpus)
    return offsets(sizes[used])[used_ptr], offsets(sizes), np.concatenate([np.zeros(0, np.int64), *found])


def memory_bytes(corpus, features, *, remembered, vectors, works, per_token):
    """Bytes that a learner will hold which remembers `remembered` numbers for every (token,
    label) and label pair of a sequence.

    vectors : vectors of cells, besides two of weights. works : sets of work arrays. per_token :
        bytes of a token beyond that.
    The layout of the corpus is included (chain/token_layout.py).
    """
    width = row_width(features.n_labels)
    worth, count = dense_attributes(corpus, features)
    n_rows, n_pairs = int(count[worth].sum()), int((count * np.diff(features.node_ptr))[~worth].sum())
    n_dense, entry = int(worth.sum()) * width, 16 if len(corpus.attr_val) else 8
    n_edges = int(edge_places(corpus, features, width)[0][-1])
    return int(
        8 * remembered * (corpus.n_tokens * features.n_labels + n_edges)
        + entry * (n_rows + n_pairs)
        + per_token * corpus.n_tokens
        + 8 * (vectors * (features.n_features + n_dense) + 2 * features.n_features)
        + n_dense
        + 8 * works * (5 * corpus.longest * width + 4 * corpus.n_classes * width**2)
    )


BOLDNESS = 0.5  # of the steps, see gradient_steps.py; halved after an epoch ...
RISE = 1e-3  # ... in which the objective rose by more than this share


class SagMemory(NamedTuple):
    """What is known of S sequences, N tokens, K edge classes;
    "gradient" is that with respect to the scores (marginals - gold).
    """

    node: np.ndarray  # (N, L): gradient of each token at its sequence's last visit, 0 before the first
    edge: np.ndarray  # (n_edge_memory,): sums over tokens, for the label pairs that have a weight
    edge_start: np.ndarray  # int64 (S+1,): those of sequence s, see averaged.py
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
