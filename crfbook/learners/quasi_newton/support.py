"""L1 training on a support: all weights at first, later those that are not zero or may leave zero.

Once the objective falls slowly, few weights still change between zero and not zero. From then on `minimize`
works on these and on the weights whose gradient is close to the penalty: their sums are cheaper. Now and
then, and before the end, one gradient of all weights shows which others would leave zero, and these are
added. So training ends where `minimize` on all weights would. Source: Friedman, Hastie and Tibshirani (2010),
section 2.6 ("active set convergence"); for CRFs the freezing of Sokolovska et al. (2010), section 7, with a
check of all weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crfbook.chain.objective import Objective
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet, select
from crfbook.learners.quasi_newton.lbfgs import LBFGS
from crfbook.training.loop import Callback, Learner, OptResult, State, stages

# in so many iterations the objective fell by less than this share: work on the support from now on
SETTLED = (10, 1e-4)
LOOK_AROUND = 40  # iterations between two gradients of all weights
MARGIN = 0.05  # weights at zero whose gradient exceeds (1 - MARGIN) c1 stay free
# the smaller problem is solved: the gradient of all weights is next
ENDED = ("converged", "empty model", "rounding floor")
COLUMNS = ("w", "grad", "s", "y")  # arrays of `OptResult.state` whose last axis is the weights
GO_ON = "go on"  # the status of a run that ends so that the next one may begin


def minimize_on_support(
    corpus: Corpus, features: FeatureSet, w0: ArrayLike | None = None, *, c1: float, c2: float = 0.0,
    constraints: Limits = None, n_threads: int | None = 1, callback: Callback = None, state: State = None,
    **rules: Any,
) -> OptResult:  # fmt: skip
    """Minimise  -log-likelihood + c1 |w|_1 + c2 |w|^2,  c1 > 0, over F weights: an `OptResult`,
    as `minimize` would end.

    w0 : (F,) or None, zeros.
    rules : of `minimize` (tol, tol_gradient, relative_change, max_iterations, memory, max_linesearch).
    callback : called with (Step, w (F,)). `Step.violation` is that of the weights at work. No other weight
        violates more where the status is "converged" or "empty model".
    state : `OptResult.state` of an earlier call, or of `minimize`; continues bit for bit.

    Raises ValueError as `Objective` and `minimize` do.
    """
    settings = {"c2": c2, "constraints": constraints, "n_threads": n_threads}
    run = Shrinking(*both_sizes(corpus, features, settings), {"c1": c1, "c2": c2, **rules})
    return stages(lambda training: run.script(training, w0, state or None), callback)


def both_sizes(corpus, features, settings):
    """(`Objective` of all weights, function from a bool (F,) to that of the weights where it is true)."""

    def objective(some):
        return Objective(corpus, some, **settings)

    return objective(features), lambda keep: objective(select(features, keep))


class Shrinking:
    """The problem in both sizes.

    whole : objective of all weights. smaller : from a bool (F,) to the objective of the weights where it is
        true. See `both_sizes`.
    before : (iterations, seconds) of other learners in the same training. States keep both; max_iterations
        counts their iterations, too.
    """

    def __init__(self, whole, smaller, rules, before=(0, 0.0)):
        self.whole, self.smaller, self.rules = whole, smaller, dict(rules, before=before)
        self.n_features = whole.features.n_features
        if before[0] and rules.get("max_iterations") is not None:
            self.rules["max_iterations"] = max(0, rules["max_iterations"] - before[0])

    def script(self, training, w0, state):
        """Steps of all weights until the objective falls slowly, then those of the support."""
        n = self.n_features
        if state is None or ("free" not in state and not _settled(state.get("recent", ()))):
            found = yield _AllWeights(self.whole, np.zeros(n) if w0 is None else w0, state, self.rules)
        else:
            w = _spread(state["w"], state["free"], n) if "free" in state else state["w"]
            found = yield Start(w, state, self.rules["before"])
        return (yield from self._on_support(training, found)) if found.status == GO_ON else found

    def _on_support(self, training, found):
        """Solve the problem of the free weights, and let in those that want to leave zero,
        until there are none.
        """
        state, small, c1 = found.state, None, self.rules["c1"]
        if "free" not in state:
            near = np.abs(state["grad"]) > (1.0 - MARGIN) * c1
            state = _columns(state, np.flatnonzero((state["w"] != 0.0) | near))
        while not training.stopped and found.status in (GO_ON, *ENDED):
            n_evaluations, ended = found.n_evaluations, found.status in ENDED
            if ended or state["iteration"] % LOOK_AROUND == 0:
                grad = self.whole(_spread(state["w"], state["free"], self.n_features))[1]
                n_evaluations += 1
                excess = np.abs(grad) - c1
                excess[state["free"]] = 0.0
                if ended and excess.max(initial=0.0) <= self._negligible():
                    return found._replace(n_evaluations=n_evaluations)
                if (excess > 0.0).any():
                    free = np.union1d(state["free"], np.flatnonzero(excess > 0.0))
                    state, small = _columns(_all_columns(state, grad), free), None
            small = small or self._small(state["free"])
            learner = _FreeWeights(small, state, self.n_features, self.rules)
            learner.n_evaluations = n_evaluations
            found = yield learner
            state = found.state
        return found._replace(status="stopped by callback") if found.status == GO_ON else found

    def _small(self, free):
        keep = np.zeros(self.n_features, bool)
        keep[free] = True
        return self.smaller(keep)

    def _negligible(self):
        """Gradients may exceed c1 by this at the end:
        `minimize` would not have taken another step because of them.
        """
        return 0.0 if self.rules["c2"] else self.rules.get("tol_gradient", 1e-3)


class Start(Learner):
    """Takes no step: the result where Ctrl-C comes before the first of several runs."""

    def __init__(self, w, state=None, before=(0, 0.0)):
        self.w, self.given, self.before = w, state or {}, before
        if self.given:
            self.iteration, self.objective = int(state["iteration"]), float(state["window"][-1])

    def weights(self):
        return self.w

    def state(self):
        return dict(self.given)

    def finished(self):
        return GO_ON


class _InARow(LBFGS):
    """A run that ends with GO_ON where the next one is to begin, unless it has met a certificate."""

    def __init__(self, fun, w0=None, *, before=(0, 0.0), **rules):
        super().__init__(fun, w0, **rules)
        self.before = before

    def state(self):
        state, (epochs, spent) = super().state(), self.before
        return state and state | ({"epochs": np.array(epochs), "spent": np.array(spent)} if epochs else {})

    def finished(self):
        reason = super().finished()
        return GO_ON if reason in (None, "rounding floor", "small change") and self.enough() else reason


class _AllWeights(_InARow):
    def __init__(self, fun, w0, state, rules):
        super().__init__(fun, w0, state=state, **rules)
        self.recent = [] if state is None else list(state.get("recent", []))  # the last objectives

    def advance(self):
        reason = super().advance()
        if reason is None:
            self.recent = [*self.recent, self.objective][-SETTLED[0] - 1 :]
        return reason

    def enough(self):
        return _settled(self.recent)

    def state(self):
        state = super().state()
        return state and state | {"recent": np.array(self.recent)}


class _FreeWeights(_InARow):
    """The problem of some weights, as one of all (F,)."""

    def __init__(self, fun, state, n_features, rules):
        super().__init__(fun, state=state, **rules)
        self.free, self.n_features = state["free"], n_features
        self.end = (self.iteration // LOOK_AROUND + 1) * LOOK_AROUND

    def begin(self):
        super().begin()
        if self.model is not None and not self.model.diagonal.size:
            self.model.measure(self.point.w)
            self.n_evaluations += 1

    def enough(self):
        return self.iteration >= self.end

    def weights(self):
        return _spread(self.point.w, self.free, self.n_features)

    def state(self):
        return super().state() | {"free": self.free}


def _settled(recent):
    """Does the objective fall slowly?"""
    return len(recent) > SETTLED[0] and recent[0] - recent[-1] <= SETTLED[1] * abs(recent[-1])


def _spread(v, free, n_features):
    w = np.zeros(n_features)
    w[free] = v
    return w


def _columns(state, free):
    """The state of a run on the weights `free` alone; their diagonal is to be measured."""
    narrow = {name: np.ascontiguousarray(state[name][..., free]) for name in COLUMNS}
    return state | narrow | {"free": free, "diagonal": np.zeros(0)}


def _all_columns(state, grad):
    """The state of a run on all weights, whose gradient is `grad` (F,);
    nothing is known of the past of those that were not free.
    """
    wide = {}
    for name in COLUMNS:
        wide[name] = np.zeros((*state[name].shape[:-1], len(grad)))
        wide[name][..., state["free"]] = state[name]
    return state | wide | {"grad": grad, "n_floor": np.array(0)}
