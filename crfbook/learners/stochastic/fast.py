"""Algorithm "auto", the fastest way to the optimum: a few epochs of a learner that goes sequence by sequence,
then a quasi-Newton method, which has the certificate.

With an L2 penalty alone: dual coordinate ascent, then L-BFGS.
Coordinate ascent (dual.py) gains in a few passes what takes L-BFGS a hundred. It slows down where the
doubtful labels of many sequences depend on the same weights. L-BFGS does not, if it starts close and is
diagonally preconditioned:

    w = d v,  d = h^(-1/4),  h the diagonal of the Hessian (chain/likelihood.py) where it takes over

With d = h^(-1/2), the usual preconditioner, the first iterations are quicker still, and the last ones slower
than without: the curvature that two weights share, as they always come together, is then scaled twice. The
power is a compromise, found by trial.

Where labels are many, and what ascent remembers exceeds the memory: EPOCHS epochs of stochastic
gradient on active sets (lists.py), then L-BFGS, with active sets or without.

With an L1 penalty: EPOCHS epochs of coordinate ascent for c1 + c2 as an L2 penalty (the two weigh the same
where |w| = 1), then proximal steps on a support (quasi_newton/support.py). The epochs take the
place of their first iterations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import whole
from crfbook.chain.active.form import ActiveObjective
from crfbook.chain.active.sequence import EPS
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.choice import is_tiny
from crfbook.chain.token_layout import worth_lists
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.learners.quasi_newton import LBFGS, ActiveLBFGS, Shrinking, both_sizes, quasi_newton
from crfbook.learners.stochastic.dual import DualAscent, check_memory, sdca_memory
from crfbook.learners.stochastic.gradient_descent import Sgd
from crfbook.training.certificate import TINY
from crfbook.training.loop import Callback, OptResult, State, stages

HANDOVER = 0.15  # gap / objective below which L-BFGS may take over ...
SLOW = 0.17  # ... once ascent gains fewer decades than this a pass, over the last LOOK_BACK epochs
LOOK_BACK = 4
POWER = -0.25
MEMORY = 30  # curvature pairs
HANDED_OVER = "handed over"  # the status of ascent where L-BFGS goes on
# gap / objective below which ascent is not tried: its steps are too small for the sums that judge them
FEW = 3e-7
EPOCHS = 4  # of ascent where c1 > 0, of stochastic gradient where labels are many
CALIBRATION = 0.1, 2.0, 100, 10, 20  # as `sgd` has them, on fewer sequences


def fast_fit(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    tol: float = 1e-6,
    memory_limit: float = 2e9,
    constraints: Limits = None,
    n_threads: int | None = 1,
    max_iterations: int | None = None,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise -log-likelihood + c2 |w|^2, by SDCA and L-BFGS, to a certificate.

    The objective is then within tol (relative) of its minimum.

    Parameters are those of `sdca` (c2 > 0; w0 a start worth its dual value; MemoryError above memory_limit)
    and of `minimize`; n_threads is for L-BFGS alone. max_iterations counts epochs and iterations together.
    Returns an `OptResult`; `violation` is a duality gap first and |gradient|^2 / (4 c2) later.
    `state` continues either part, bit for bit.
    """
    check_memory(corpus, features, memory_limit)
    objective = Objective(corpus, features, c2=c2, constraints=constraints, n_threads=n_threads)

    def script(training):
        if state is not None and "stretch" in state:
            return (yield Preconditioned.resumed(objective, tol, max_iterations, state))
        ascent = _Ascent(corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations)
        ascent.objective_of = objective
        first = yield ascent
        if first.status != HANDED_OVER:
            return first
        if training.stopped:
            return first._replace(status="stopped by callback")
        learner = Preconditioned.begun(
            objective, tol, max_iterations, first.w, (first.n_iter, ascent.seconds)
        )
        learner.n_evaluations = first.n_evaluations + 1
        found = yield learner
        # Ctrl-C before L-BFGS has a point of its own
        return found if found.state else first._replace(status="interrupted")

    return stages(script, callback)


class _Ascent(DualAscent):
    """Coordinate ascent that stops where L-BFGS would be faster."""

    def __init__(self, corpus, features, w0, constraints, state, *rest):
        super().__init__(corpus, features, w0, constraints, state, *rest)
        # (passes, relative gap) of the last epochs
        self.trail = [] if state is None else state["trail"].tolist()

    def state(self):
        return super().state() | {"trail": np.array(self.trail)}

    def judge(self):
        super().judge()
        share = self.violation / max(1.0, abs(self.objective))
        self.trail = [*self.trail, (self.passes, share)][-LOOK_BACK - 1 :]
        if self.ended or share > HANDOVER or len(self.trail) <= LOOK_BACK:
            return
        passes, before = self.trail[0]
        gained = math.log10(max(before, TINY) / max(share, TINY))
        if share < FEW or gained < SLOW * (self.passes - passes):
            self.ended = HANDED_OVER


class Preconditioned(LBFGS):
    """Diagonally preconditioned L-BFGS: over v = w / d, certified by the gradient of w. more : of `LBFGS`."""

    def __init__(self, objective, tol, max_iterations, d, before, w=None, state=None, **more):
        self.of_w, self.d, self.before, self.squares = objective, d, before, math.inf
        if state is not None:
            grad = state["grad"] / d
            self.squares = float(grad @ grad)
        left = None if max_iterations is None else max(0, whole("max_iterations", max_iterations) - before[0])
        super().__init__(
            self.of_v, None if w is None else w / d, c2=objective.c2, tol=tol, tol_gradient=0.0,
            memory=MEMORY, max_iterations=left, state=state, **more,
        )  # fmt: skip

    @classmethod
    def begun(cls, objective, tol, max_iterations, w, before):
        """From w (F,), with the d of its curvature."""
        return cls(objective, tol, max_iterations, objective.curvature(w) ** POWER, before, w=w)

    @classmethod
    def resumed(cls, objective, tol, max_iterations, state, **more):
        before = state["epochs"].item(), state["spent"].item()
        learner = cls(objective, tol, max_iterations, state["stretch"], before, state=state, **more)
        learner.n_evaluations = state["passes"].item()
        return learner

    def of_v(self, v):
        value, grad = self.of_w(v * self.d)
        self.squares = float(grad @ grad)
        grad *= self.d
        return value, grad

    def _violation(self, squares, largest):
        return self.rules.violation(self.squares, 0.0)  # the point accepted is the one evaluated last

    def weights(self):
        return self.point.w * self.d

    def state(self):
        """Its "w" is v."""
        past = {"epochs": self.before[0], "spent": self.before[1], "passes": self.n_evaluations}
        state = super().state()
        return state and state | {"stretch": self.d} | {name: np.array(past[name]) for name in past}


def fast_l1_fit(
    corpus: Corpus,
    features: FeatureSet,
    *,
    c1: float,
    c2: float = 0.0,
    constraints: Limits = None,
    memory_limit: float = 2e9,
    n_threads: int | None = 1,
    max_iterations: int | None = None,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
    **rules: Any,
) -> OptResult:
    """Minimise -log-likelihood + c1 |w|_1 + c2 |w|^2, c1 > 0, from zero weights: an `OptResult`,
    as `minimize_on_support` would end.

    n_threads is for the second part alone. max_iterations counts epochs and iterations together. rules : of
    `minimize`. MemoryError above memory_limit. Of an epoch `Step.objective` has the losses as the sequences
    had them when it was their turn, and `Step.violation` is nan. `state` continues either part, bit for bit.
    """
    check_memory(corpus, features, memory_limit)
    problem = {"c2": c2, "constraints": constraints, "n_threads": n_threads}
    rules |= {"c1": c1, "c2": c2, "max_iterations": max_iterations}
    most = EPOCHS if max_iterations is None else min(EPOCHS, whole("max_iterations", max_iterations))
    # the objective of zero weights, or with constraints at least that
    at_zero = float(corpus.weights @ np.diff(corpus.seq_ptr)) * math.log(features.n_labels)

    def script(training):
        w, later, before = None, state, (0, 0.0)
        if state is None or "nu" in state:
            epochs = _Epochs(corpus, features, constraints, state, random_state, c1, problem, most)
            epochs.is_last = most == max_iterations
            first = yield epochs
            if training.stopped or epochs.is_last or first.status == "interrupted":
                return first
            w, later, before = first.w, None, (first.n_iter, epochs.seconds)
            # a penalty of 1e-12 or 1e200, or values of 1e8: ascent ends too far off for a start
            if not 0.0 <= first.objective <= at_zero:
                w = None
        elif "epochs" in state:
            before = int(state["epochs"]), float(state["spent"])
        sizes = both_sizes(corpus, features, problem)
        return (yield from Shrinking(*sizes, rules, before).script(training, w, later))

    return stages(script, callback)


def many_labels_fit(
    corpus, features, *, c2, eps, memory_limit, random_state, tol=1e-6, constraints=None, n_threads=1,
    max_iterations=None, callback=None, state=None,
):  # fmt: skip
    """Minimise -log-likelihood + c2 |w|^2 from zero weights by EPOCHS epochs of `sgd`, then L-BFGS:
    an `OptResult` as of `fast_fit`.

    eps : of active sets (`ActiveObjective`, which may take memory_limit bytes), None: L-BFGS is exact. The
        epochs are not. Other arguments as in `fast_fit`; `state` continues either part, bit for bit.
    """
    problem = {"c2": c2, "constraints": constraints, "n_threads": n_threads}
    most = EPOCHS if max_iterations is None else min(EPOCHS, whole("max_iterations", max_iterations))

    def script(training):
        w, later, before = None, state, (0, 0.0)
        if state is None or "mean" in state:
            common = corpus, features, None, constraints, eps or EPS, state, random_state, 10, 0.0
            epochs = Sgd(*common, most, False, c2, True, CALIBRATION)
            first = yield epochs
            if training.stopped or most == max_iterations or first.status != "max_iterations":
                return first
            w, later, before = first.w, None, (first.n_iter, epochs.seconds)
        if eps:
            objective = ActiveObjective(corpus, features, eps=eps, memory_limit=memory_limit, **problem)
            rules = {"c2": c2, "tol": tol, "memory": MEMORY, "max_iterations": max_iterations}
            found = yield ActiveLBFGS(objective, w, before=before, state=later, **rules)
        else:
            objective = Objective(corpus, features, **problem)
            if later is None:
                found = yield Preconditioned.begun(objective, tol, max_iterations, w, before)
            else:
                found = yield Preconditioned.resumed(objective, tol, max_iterations, later)
        return found if w is None or found.state else first._replace(status="interrupted")

    return stages(script, callback)


class _Epochs(DualAscent):
    """Ascent with an L2 penalty in place of c1 |w|_1 + c2 |w|^2, which it reports."""

    is_last = False

    def __init__(self, corpus, features, constraints, state, random_state, c1, problem, max_iterations):
        self.c1, self.problem, penalty = c1, problem, c1 + problem["c2"]
        super().__init__(
            corpus, features, None, constraints, state, random_state, penalty, 0.0, max_iterations
        )

    def _more(self, c2):
        """What the penalties add to losses + c2 |w|^2."""
        return self.c1 * float(np.abs(self.w).sum()) + (self.problem["c2"] - c2) * float(self.w @ self.w)

    def judge(self):
        self.objective = self.estimate()[0] + self._more(self.c2)

    def final_objective(self):
        if not self.is_last:
            if self.iteration:  # those of `state`, too
                self.judge()
            return self.objective
        return Objective(self.corpus, self.features, **self.problem)(self.w)[0] + self._more(
            self.problem["c2"]
        )


COMMON = "constraints", "n_threads", "max_iterations", "callback", "state", "tol"  # what all three read
ENDS = "epsilon", "relative_change"


def auto(corpus, features, w0, *, c1, c2, loss, random_state, memory_limit, eps=None, **settings):
    """The log loss from zero weights: `fast_l1_fit` for c1 > 0, else `fast_fit`. A start, another loss, and
    without c1 CRFsuite's rules for an end: `quasi_newton`. Many labels, and memory for no dual variables, or
    active sets: `many_labels_fit`.

    settings : the other arguments of `quasi_newton`.
    """
    common = {name: settings[name] for name in COMMON if name in settings}
    common |= {"c2": c2, "random_state": random_state, "memory_limit": memory_limit}
    ends = {name: settings.get(name) for name in ENDS}
    dual = not eps and uses_sdca(corpus, features, c1, c2, loss, memory_limit)
    plain = loss == "log" and not w0.any() and (c1 > 0 or all(rule is None for rule in ends.values()))
    if plain and not dual and c1 == 0 < c2 and worth_lists(corpus, features):
        return many_labels_fit(corpus, features, eps=eps, **common)
    if not (plain and dual):
        problem = {"c1": c1, "c2": c2, "loss": loss, "eps": eps, "memory_limit": memory_limit}
        return quasi_newton(corpus, features, w0, **problem, **settings)
    if c1 == 0:
        return fast_fit(corpus, features, w0, **common)
    rules = {"memory": settings["num_memories"], "max_linesearch": settings["max_linesearch"]}
    rules["tol_gradient"] = 1000 * min(common.get("tol", 1e-6), 1e300)
    return fast_l1_fit(corpus, features, c1=c1, **common, **ends, **rules)


def uses_sdca(corpus, features, c1, c2, loss, memory_limit):
    """Does `auto` begin with dual coordinate ascent? It needs a penalty, the log loss,
    memory for its dual variables, and a problem that is worth compiling its kernels.
    """
    able = loss == "log" and c1 + c2 > 0 and not is_tiny(corpus, features)
    return able and sdca_memory(corpus, features) <= memory_limit
