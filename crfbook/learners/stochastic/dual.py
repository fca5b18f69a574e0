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

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, whole
from crfbook.chain.objective import check_weights
from crfbook.chain.token_layout import cells_of, epoch_order, sequence_work, weights_of
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.learners.stochastic.averaged import Rememberer, edge_places, memory_bytes
from crfbook.learners.stochastic.sdca_steps import sdca_epoch, start_at_gold, start_at_scores
from crfbook.training.certificate import Rules
from crfbook.training.interrupts import heard_chunks
from crfbook.training.loop import Callback, OptResult, State, run

WHOLE_EPOCHS = 3  # at the start: every sequence
SKIP_BELOW = 0.3  # times the mean gap: skipped later, ...
SKIP_AT_MOST = 3  # ... but not in more epochs in a row


class DualMemory(NamedTuple):
    """The dual distributions of S sequences (N tokens, K edge classes):
    log potentials nu and marginals mu of chains.
    """

    nu: np.ndarray  # (N, L), 0 where a label is forbidden
    mu: np.ndarray  # (N, L)
    edge_nu: np.ndarray  # (n_edge_memory,): for the label pairs that have a weight, see averaged.py
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
    max_iterations = whole("max_iterations", max_iterations)
    arguments = corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations
    return run(DualAscent(*arguments), callback)


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


class DualAscent(Rememberer):
    """The dual distributions, and the weights that follow from them.

    Until an epoch has ended the weights returned are w0, if it was given. A state holds those of the dual
    point, `w`: to go on from others would certify a wrong gap.
    """

    name, first = "sdca", "nu"
    kept = ("nu", "mu", "edge_nu", "edge_mu", "entropy", "gap", "rate")
    numbers = Rememberer.numbers | {"passes": 0.0}
    least, trust = 0.5, 0.9
    warm = None  # (F,): the weights of which `begin` takes the distributions
    evaluated = False  # those

    def __init__(
        self, corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations=None
    ):  # fmt: skip
        number("c2", c2, above=0.0, note=" (the dual divides by it; for c2 = 0 use lbfgs or sag)")
        rules = Rules(0.0, c2, tol)
        super().__init__(corpus, features, w0, constraints, state, random_state, rules, max_iterations)
        if w0 is not None:
            self.start = check_weights(w0, features.n_features).copy()
        width = self.layout.exists.shape[1]
        self.work, self.trial = sequence_work(corpus, width), sequence_work(corpus, width)
        self.last = np.array(self.given.get("last", np.zeros(corpus.n_sequences, np.int64)))
        if state is None:
            self.warm = self.w if self.w.any() else None
            self._start_at_gold()
        else:
            self.memory, self.theta = self._empty_memory(), cells_of(self.cells, self.w)
            for name in self.kept:
                getattr(self.memory, name)[:] = state[name]

    @np.errstate(over="ignore")
    def _empty_memory(self):
        corpus, n = self.corpus, self.corpus.n_sequences
        places = edge_places(corpus, self.features, self.layout.exists.shape[1])
        nu, mu = np.zeros((2, corpus.n_tokens, self.features.n_labels))
        square = np.bincount(corpus.attr_token, corpus.values**2, minlength=corpus.n_tokens)
        square = square + np.diff(corpus.class_ptr)[corpus.edge_class].astype(np.float64)
        return DualMemory(nu, mu, *np.zeros((2, places[0][-1])), *places, square, *np.zeros((3, n)))

    def _start_at_gold(self):
        self.memory, self.w = self._empty_memory(), np.zeros_like(self.w)
        start_at_gold(self.sequences, self.layout, self.memory, self.trial)
        self.theta = cells_of(self.cells, self.w)

    def begin(self):
        """Dual distributions of w0 if they are worth more than the gold labels, else those."""
        if self.warm is not None:
            arrays = self.layout, self.memory, self.work, self.trial
            scores = cells_of(self.cells, self.warm)
            for part in heard_chunks(self.sequences):
                if start_at_scores(part, self.c2, *arrays, scores, self.theta) >= 0:
                    break
            self.passes += 1
            self.settle()
            if not self.dual() > 0.0:
                self._start_at_gold()
        self.evaluated = True

    def state(self):
        return super().state() | {"last": self.last}

    def visit(self, order):
        """One visit to each sequence of `order`: -1, or a sequence whose log Z is not finite."""
        arrays = self.layout, self.memory, self.work, self.trial
        return sdca_epoch(order, self.c2, *arrays, self.theta)

    def advance(self):
        """A visit to each sequence in random order; later only to those whose gap was not tiny,
        or that have waited long enough.
        """
        chosen, gap = self.sequences, self.memory.gap
        if self.iteration >= WHOLE_EPOCHS:
            large = gap[chosen] >= SKIP_BELOW * gap[chosen].sum() / max(1, len(chosen))
            chosen = chosen[large | (self.iteration - self.last[chosen] > SKIP_AT_MOST)]
        order = chosen[epoch_order(self.seed, self.iteration + 1, len(chosen))]
        for part in heard_chunks(order):
            if self.visit(part) >= 0:
                return "non-finite objective"
        self.last[chosen] = self.iteration
        self.iteration += 1
        self.passes += len(chosen) / max(1, len(self.sequences))
        self.settle()
        self.judge()
        return None

    def settle(self):
        """The weights of the present dual point. Every visit leaves it good,
        so that nothing is thrown away.
        """
        self.w, self.exact = weights_of(self.cells, self.theta), None

    def last_look(self):
        return super().last_look() if self.evaluated else float("nan")

    def dual(self):
        """The dual value, in nats: a lower bound of the objective's minimum."""
        return float(self.layout.weight @ self.memory.entropy) - self.c2 * float(self.w @ self.w)

    def estimate(self):
        gap = float(self.memory.gap.sum())
        return self.dual() + gap, gap

    def certified(self, value, grad):
        return value, value - self.dual()
