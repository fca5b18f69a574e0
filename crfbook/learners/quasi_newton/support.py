"""L1 training on the weights that matter: all of them at first, later those that are not zero,
or might leave it.

Once the objective falls slowly, few weights still change between zero and not zero. From then on `minimize`
works on these and on the weights whose gradient is close to the penalty, whose sums are cheaper. Every so
often, and before it ends, one gradient of all weights shows which others want to leave zero, and these are
let in: so it ends where `minimize` on all weights would. Source: Friedman, Hastie and Tibshirani (2010),
section 2.6 ("active set convergence"); for CRFs the freezing of Sokolovska et al. (2010), section 7,
with a check of all weights.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.data.features import select
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.quasi_newton.proximal_newton import LocalModel

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, OptResult, State

# in so many iterations the objective fell by less than this share: work on the support from now on
SETTLED = (10, 1e-4)
LOOK_AROUND = 40  # iterations between two looks at the gradient of all weights
MARGIN = 0.05  # weights at zero whose gradient exceeds (1 - MARGIN) c1 stay free
COLUMNS = ("w", "grad", "s", "y")  # arrays of `OptResult.state` whose last axis is the weights


def minimize_on_support(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c1: float,
    c2: float = 0.0,
    constraints: Limits = None,
    n_threads: int | None = 1,
    callback: Callback = None,
    state: State = None,
    **rules: Any,
) -> OptResult:
    """Minimise  -log-likelihood + c1 |w|_1 + c2 |w|^2,  c1 > 0, over F weights: an `OptResult`,
    as `minimize` would end.

    w0 : (F,) or None, zeros. rules : of `minimize` (tol, tol_gradient, relative_change, max_iterations,
        memory, max_linesearch).
    callback : called with (Step, w (F,)); `Step.violation` is that of the weights at work;
        no other violates more where the
        status is "converged" or "empty model". state : `OptResult.state` of an earlier call,
            or of `minimize`; continues bit for bit.

    Raises ValueError as `Objective` and `minimize` do.
    """
    run = _Shrinking(corpus, features, c1, c2, constraints, n_threads, callback, rules)
    try:
        run.all_weights(np.zeros(features.n_features) if w0 is None else w0, state)
    except KeyboardInterrupt:
        if run.found is None:
            raise  # there is nothing to return yet
        run.found = run.found._replace(status="interrupted")
    return run.found._replace(history=run.history, n_evaluations=run.n_evaluations)


class _Shrinking:
    """The problem in both sizes, and the last result in terms of all weights."""

    def __init__(self, corpus, features, c1, c2, constraints, n_threads, callback, rules):
        self.corpus, self.features, self.callback, self.rules = corpus, features, callback, rules
        self.penalty = {"c1": c1, "c2": c2}
        self.settings = {"c2": c2, "constraints": constraints, "n_threads": n_threads}
        self.whole = Objective(corpus, features, **self.settings)
        self.found, self.history, self.n_evaluations = None, [], 0
        self.recent, self.stopped = [], False  # the last objectives; has the callback said so?

    def all_weights(self, w0, state):
        """Steps of all weights until the objective falls slowly, then those of the support."""
        if state is not None and "free" in state:
            return self.some_weights(state)
        self.recent = [] if state is None else list(state.get("recent", []))
        if not self._settled():
            found = self._minimize(self.whole, w0, state, self._watch_all)
            state = found.state | {"recent": np.array(self.recent)}
            self.found = found._replace(state=state)
            if found.status != "stopped by callback" or self.stopped:
                return None
        near = np.abs(state["grad"]) > (1.0 - MARGIN) * self.penalty["c1"]
        return self.some_weights(_columns(state, np.flatnonzero((state["w"] != 0.0) | near)))

    def some_weights(self, state):
        """Solve the problem of the free weights, and let in those that want to leave zero,
        until there are none.
        """
        small, ended = None, False
        while True:
            if ended or state["iteration"] % LOOK_AROUND == 0:
                grad = self.whole(_spread(state["w"], state["free"], self.features.n_features))[1]
                self.n_evaluations += 1
                excess = np.abs(grad) - self.penalty["c1"]
                excess[state["free"]] = 0.0
                if ended and excess.max(initial=0.0) <= self._negligible():
                    return
                if (excess > 0.0).any():
                    free = np.union1d(state["free"], np.flatnonzero(excess > 0.0))
                    state, small = _columns(_all_columns(state, grad), free), None
            small = small or self._small(state["free"])
            if not state["diagonal"].size:
                model = LocalModel(self.penalty["c1"], small.curvature)
                model.measure(state["w"])
                self.n_evaluations += 1
                state = state | {"diagonal": model.diagonal}
            end = (int(state["iteration"]) // LOOK_AROUND + 1) * LOOK_AROUND
            found = self._minimize(small, None, state, partial(self._watch_some, state["free"], end))
            state = found.state | {"free": state["free"]}
            self.found = found._replace(
                w=_spread(found.w, state["free"], self.features.n_features), state=state
            )
            ended = found.status in ("converged", "empty model", "rounding floor")
            if self.stopped or not (ended or found.status == "stopped by callback"):
                return

    def _small(self, free):
        keep = np.zeros(self.features.n_features, bool)
        keep[free] = True
        return Objective(self.corpus, select(self.features, keep), **self.settings)

    def _negligible(self):
        """Gradients may exceed c1 by this at the end:
        `minimize` would not have taken another step because of them.
        """
        return 0.0 if self.penalty["c2"] else self.rules.get("tol_gradient", 1e-3)

    def _minimize(self, objective, w0, state, watch):
        found = minimize(objective, w0, callback=watch, state=state, **self.penalty, **self.rules)
        self.n_evaluations += found.n_evaluations
        return found

    def _settled(self):
        fell = self.recent[0] - self.recent[-1] if len(self.recent) > SETTLED[0] else np.inf
        return fell <= SETTLED[1] * abs(self.recent[-1]) if self.recent else False

    def _watch(self, step, w):
        self.history.append(step)
        w.flags.writeable = False
        self.stopped = self.callback is not None and bool(self.callback(step, w))
        return self.stopped

    def _watch_all(self, step, w):
        self.recent = [*self.recent, step.objective][-SETTLED[0] - 1 :]
        return self._watch(step, w) or self._settled()

    def _watch_some(self, free, end, step, v):
        return self._watch(step, _spread(v, free, self.features.n_features)) or step.iteration >= end


def _spread(v, free, n_features):
    w = np.zeros(n_features)
    w[free] = v
    return w


def _columns(state, free):
    """The state of a run on the weights `free` alone; their diagonal is to be measured."""
    return (
        state
        | {name: np.ascontiguousarray(state[name][..., free]) for name in COLUMNS}
        | {"free": free, "diagonal": np.zeros(0)}
    )


def _all_columns(state, grad):
    """The state of a run on all weights, whose gradient is `grad` (F,);
    nothing is known of the past of those that were not free.
    """
    wide = {}
    for name in COLUMNS:
        wide[name] = np.zeros((*state[name].shape[:-1], len(grad)))
        wide[name][..., state["free"]] = state[name]
    return state | wide | {"grad": grad, "n_floor": np.array(0)}
