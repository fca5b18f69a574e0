"""Stochastic dual coordinate ascent for CRFs: the fastest way to a good solution,
with a duality gap as certificate.

Each sequence has a dual distribution over its labellings; the weights are a sum over all of them, and a visit
moves one of them to (nearly) its best place. There is no learning rate.
Sequences whose gap was tiny at their last visit are skipped in most epochs.

Sources: Le Priol, Piche and Lacoste-Julien (2018), "Adaptive stochastic dual coordinate ascent for
conditional random fields"; the step along potentials, which keeps a chain a chain,
is the exponentiated gradient of Collins et al. (2008).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crfbook._checks import number
from crfbook.chain.objective import Objective, check_labels, check_weights
from crfbook.chain.token_layout import cells_of, epoch_order, lay_out_online, sequence_work, weights_of
from crfbook.learners.stochastic.edge_memory import edge_start, memory_bytes, pairs_of_classes
from crfbook.learners.stochastic.sdca_steps import sdca_epoch, start_at_gold, start_at_scores
from crfbook.training.certificate import TINY, Rules
from crfbook.training.epochs import chunks, last_look, run_epochs
from crfbook.training.loop import OptResult

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, State

WHOLE_EPOCHS = 3  # at the start: every sequence
SKIP_BELOW = 0.3  # times the mean gap: skipped later, ...
SKIP_AT_MOST = 3  # ... but not in more epochs in a row


class DualMemory(NamedTuple):
    """The dual distributions of S sequences (N tokens, K edge classes):
    log potentials nu and marginals mu of chains.
    """

    nu: np.ndarray  # (N, L), 0 where a label is forbidden
    mu: np.ndarray  # (N, L)
    edge_nu: np.ndarray  # (n_edge_memory,): for the label pairs that have a weight, see edge_memory.py
    edge_mu: np.ndarray  # (n_edge_memory,): sums of pair marginals over the tokens of a class
    edge_start: np.ndarray  # int64 (S+1,): those of sequence s
    pair_ptr: np.ndarray  # int64 (K+1,)
    pair: np.ndarray  # int64: label pairs previous * M + next of each class that have a weight
    square: np.ndarray  # (N,): |x_t|^2, edge attributes included
    entropy: np.ndarray  # (S,): nats
    gap: np.ndarray  # (S,): weight * KL(dual distribution || model) in nats, estimated at the last visit
    rate: np.ndarray  # (S,): step size of the next visit, 0 before the first


def sdca(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    tol: float = 1e-4,
    memory_limit: float = 2e9,
    constraints: Limits = None,
    max_iterations: int = 200,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise -log-likelihood + c2 |w|^2 by stochastic dual coordinate ascent.

    Parameters
    ----------
    corpus, features : S sequences, every token labelled; F weights.
        Sequences of length 0 or weight 0 are left out.
    w0 : (F,) weights whose distributions are the start,
        if their dual value is above that of the gold labels (0); default: those.
    c2 : > 0; the dual needs it.
    tol : stop when the duality gap is at most tol * max(1, objective):
        the objective is at most that far above its minimum.
    memory_limit : bytes that `sdca_memory` may reach.
    constraints : Constraints or None. max_iterations : epochs in all, those of `state` included.
    random_state : int, the seed. callback : called with (Step, w) after each epoch, w read-only; True stops.
    state : `OptResult.state` of an earlier call on the same problem; continues bit for bit and is not
        changed. After Ctrl-C the epoch that was cut short begins again, with what it had reached.

    Returns an `OptResult`. `Step.violation` is the gap and `Step.objective` the dual value plus the gap, both
    in nats: estimates from the last visits. Where they promise an end, one pass over the corpus gives the
    exact ones, which alone end it ("converged"). `n_evaluations` counts passes: visits / S, and such
    evaluations. Other statuses: "max_iterations", "stopped by callback", "interrupted",
    "non-finite objective".

    Raises MemoryError before anything is allocated, and ValueError for labels that are unknown or forbidden,
    weights that are not finite, parameters out of range.
    """
    check_memory(corpus, features, memory_limit)
    run = DualAscent(corpus, features, w0, constraints, state, random_state, c2, tol)
    return run.result(*run_epochs(run, max_iterations, callback), w0)


def sdca_memory(corpus, features):
    """Bytes that `sdca` will hold: 2 N L + 2 (label pairs of the sequences) doubles, layout of the corpus,
    vectors of weights.
    """
    return memory_bytes(corpus, features, remembered=2, vectors=1, works=2, per_token=48)


def check_memory(corpus, features, memory_limit):
    """MemoryError if `sdca_memory` is more than memory_limit bytes."""
    need = sdca_memory(corpus, features)
    if need > memory_limit:
        raise MemoryError(
            f"sdca remembers a distribution for every token, {need / 1e9:.3g} GB here, more "
            f"than memory_limit = {memory_limit / 1e9:.3g} GB: raise it, or use lbfgs or sgd, which do not"
        )


class DualAscent:
    """The dual distributions, the weights that follow from them, and the loop's callbacks (epochs.py)."""

    # what a state holds: arrays of the memory, and of the run itself
    kept = ("nu", "mu", "edge_nu", "edge_mu", "entropy", "gap", "rate")
    numbers = ("epoch", "seconds", "seed", "passes", "optimism", "last", "w")

    def __init__(self, corpus, features, w0, constraints, state, random_state, c2, tol):
        number("c2", c2, above=0.0, note=" (the dual divides by it; for c2 = 0 use lbfgs or sag)")
        self.rules = Rules(0.0, c2, tol)
        check_labels(corpus, features, constraints)
        self.corpus, self.features, self.constraints = corpus, features, constraints
        self.c2, self.reason = self.rules.c2, None
        if state is not None and (
            np.shape(state.get("nu")) != (corpus.n_tokens, features.n_labels)
            or np.shape(state["w"]) != (features.n_features,)
        ):
            raise ValueError(
                f"state: expected that of sdca with {features.n_features} weights and {corpus.n_tokens} "
                f"tokens, got the arrays {sorted(state)}"
            )
        w = state["w"] if state is not None else np.zeros(features.n_features) if w0 is None else w0
        self.w = check_weights(w, features.n_features)
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        width = self.layout.exists.shape[1]
        self.work, self.trial = sequence_work(corpus, width), sequence_work(corpus, width)
        self.sequences = corpus.visited
        self.memory = self._empty_memory()
        self.objective_of = self.exact = None
        given = {} if state is None else state
        self.epoch, self.seconds = int(given.get("epoch", 0)), float(given.get("seconds", 0.0))
        self.seed, self.passes = int(given.get("seed", random_state)), float(given.get("passes", 0.0))
        self.optimism = float(given.get("optimism", 1.0))
        self.last = np.array(given.get("last", np.zeros(corpus.n_sequences, np.int64)))
        if state is not None:
            for name in self.kept:
                getattr(self.memory, name)[:] = state[name]
            self.theta = cells_of(self.cells, self.w)
        else:
            self._start(self.w)

    def _empty_memory(self):
        corpus, n = self.corpus, self.corpus.n_sequences
        pair_ptr, pair = pairs_of_classes(corpus, self.features, self.layout.exists.shape[1])
        start = edge_start(corpus, pair_ptr)
        nu, mu = np.zeros((2, corpus.n_tokens, self.features.n_labels))
        square = np.diff(np.concatenate([[0.0], np.cumsum(corpus.values**2)])[corpus.attr_ptr])
        square += np.diff(corpus.class_ptr)[corpus.edge_class]
        return DualMemory(nu, mu, *np.zeros((2, start[-1])), start, pair_ptr, pair, square, *np.zeros((3, n)))

    def _start(self, w0):
        """Dual distributions of w0 if they are worth more than the gold labels, else those."""
        start_at_gold(self.sequences, self.layout, self.memory, self.trial)
        self.theta = cells_of(self.cells, np.zeros_like(w0))
        if not w0.any():
            return
        arrays = self.layout, self.memory, self.work, self.trial
        start_at_scores(self.sequences, self.c2, *arrays, cells_of(self.cells, w0), self.theta)
        self.passes += 1
        self.w = weights_of(self.cells, self.theta)
        if not self.dual() > 0.0:
            self.memory, self.w = self._empty_memory(), np.zeros_like(w0)
            self._start(self.w)

    def visit(self, order):
        """One visit to each sequence of `order`: -1, or a sequence whose log Z is not finite."""
        arrays = self.layout, self.memory, self.work, self.trial
        return sdca_epoch(order, self.c2, *arrays, self.theta)

    def state(self):
        """Arrays only; the big ones are the run's own, not copies."""
        numbers = {name: np.asarray(getattr(self, name)) for name in self.numbers}
        return numbers | {name: getattr(self.memory, name) for name in self.kept}

    def result(self, status, history, w0):
        """`OptResult` of what has been reached; before the first epoch that is w0 itself, if it was given."""
        reached = self.w
        if self.epoch == 0 and w0 is not None:
            self.w, self.exact = check_weights(w0, self.features.n_features).copy(), None
        objective, status = last_look(lambda: self.evaluate()[0], status, history)
        state = self.state() | {
            "w": reached
        }  # the weights of the dual point: to go on from others would certify a wrong gap
        return OptResult(self.w, objective, status, self.epoch, history, state, math.ceil(self.passes))

    # ---- for run_epochs

    def advance(self):
        """A visit to each sequence in random order; later only to those whose gap was not tiny,
        or that have waited long enough.
        """
        chosen, gap = self.sequences, self.memory.gap
        if self.epoch >= WHOLE_EPOCHS:
            large = gap[chosen] >= SKIP_BELOW * gap[chosen].mean()
            chosen = chosen[large | (self.epoch - self.last[chosen] > SKIP_AT_MOST)]
        order = chosen[epoch_order(self.seed, self.epoch + 1, len(chosen))]
        for part in chunks(order):
            if self.visit(part) >= 0:
                self.reason = "non-finite objective"
                return None
        self.last[chosen] = self.epoch
        self.epoch, self.passes = self.epoch + 1, self.passes + len(chosen) / max(1, len(self.sequences))
        self.roll_back()
        return self._judge()

    def roll_back(self):
        """The weights of the present dual point. Every visit leaves it good,
        so that nothing is thrown away.
        """
        self.w, self.exact = weights_of(self.cells, self.theta), None

    def weights(self):
        return self.w.copy()

    def finished(self, objective, violation):
        return "converged" if self.exact is not None and violation <= self.rules.enough(objective) else None

    # ---- how far it has come

    def dual(self):
        """The dual value, in nats: a lower bound of the objective's minimum."""
        return float(self.layout.weight @ self.memory.entropy) - self.c2 * float(self.w @ self.w)

    def _judge(self):
        """(objective, violation) from the last visits, or exact ones if those are good enough to end."""
        dual, gap = self.dual(), float(self.memory.gap.sum())
        if self.optimism * gap > self.rules.enough(dual + gap):
            return dual + gap, gap
        exact = self.evaluate()
        # what the visits will have to promise next time
        self.optimism = max(0.5, 0.9 * exact[1] / max(gap, TINY))
        return exact

    def evaluate(self):
        """Exact (objective, gap) at the present weights: one pass over the corpus."""
        if self.exact is None:
            if self.objective_of is None:
                self.objective_of = Objective(
                    self.corpus, self.features, c2=self.c2, constraints=self.constraints
                )
            value, _ = self.objective_of(self.w)
            self.passes += 1
            self.exact = value, value - self.dual()
        return self.exact
