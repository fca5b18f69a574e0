"""How the four losses are trained: L-BFGS or OWL-QN in stages, each from where the one before it ended.

    log             one stage
    exp             log loss (rough) -> clamps 10, 20, 40 (rough) -> the clamp that was asked for
    pointwise-log   from zero; and again from the solution of the log loss
    pointwise-exp   clamps 10, 20, 40 and the one asked for, from zero; and again from that of the log loss

The exp losses start as large as L^T, and a sequence with p = 1e-100 outweighs all others. Rising clamps limit
its loss at first. A clamped stage is skipped where no u = -log p exceeds its clamp. The sequential losses are
convex: one minimum, whatever the path. The pointwise ones are not: of two starts the better training value is
kept. Source: Altun, Johnson and Hofmann (2003), section 3.3; the stages are ours.

`quasi_newton` is what `CRF(algorithm="lbfgs")` and "owlqn" run: these stages, or for the log loss L-BFGS
alone, with c1 on a support that grows (support.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import shown
from crfbook.chain.active.form import ActiveObjective
from crfbook.chain.losses import make_loss
from crfbook.chain.objective import Objective
from crfbook.chain.partial import partial_objective
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.learners.quasi_newton.lbfgs import LBFGS, ActiveLBFGS
from crfbook.learners.quasi_newton.support import Start, minimize_on_support
from crfbook.training.loop import Callback, OptResult, State, run, stages

CLAMPS = (10.0, 20.0, 40.0)
# relative gap, and relative fall in ten iterations, at which a stage that only prepares the next one ends
ROUGH = 1e-3
# objectives beyond exp(200) are divided by their start: squares of gradients must stay in float64
LARGEST_LOG = 200.0
STATIONARY = "stationary point"
ENDED = ("stopped by callback", "interrupted")


class Stage(NamedTuple):
    """One run of L-BFGS."""

    loss: str
    clamp: float | None
    start: str  # "before": where the stage before ended, or w0; "zero"
    final: bool  # minimises what was asked for


def stages_of(loss, clamp=None, start="log"):
    """The `Stage`s of a loss from one start: "log" (solve the log loss first), "zero" or "w0"."""
    clamps = [c for c in CLAMPS if loss.endswith("exp") and (clamp is None or c < clamp)]
    path = [Stage(loss, c, "before", False) for c in clamps]
    path.append(Stage(loss, clamp, "before", True))
    if start == "log" and loss != "log":
        path.insert(0, Stage("log", None, "before", False))
    path[0] = path[0]._replace(start="before" if start == "w0" else "zero")
    return path


def minimize_loss(
    corpus: Corpus, features: FeatureSet, w0: ArrayLike | None = None, *, loss: str = "log",
    clamp: float | None = None, c1: float = 0.0, c2: float = 0.0, constraints: Limits = None,
    n_threads: int | None = 1, starts: tuple[str, ...] | None = None, max_iterations: int | None = None,
    tol: float = 1e-6, relative_change: tuple[int, float] | None = None, callback: Callback = None,
    state: State = None, **options: Any,
) -> OptResult:  # fmt: skip
    """Minimise  sum of losses + c1 |w|_1 + c2 |w|^2  on a labelled corpus (S sequences) with F features.

    Parameters
    ----------
    w0 : (F,) or None. Given, it is the only start. The clamped stages stay.
    loss, clamp, constraints, n_threads : see `Objective`.
    starts : where to begin without w0, some of "log" and "zero"; None: ("zero",
        "log") for the pointwise losses, ("log",) for exp.
    max_iterations : of each stage (0: w0, or zeros, come back with their objective).
    tol, relative_change and `options` (tol_gradient, memory, max_linesearch) : see `minimize`; stages that
        only prepare the next one end at ROUGH.
    callback : called with (Step, w) after each iteration of each stage; True ends the training.
        `Step.iteration` and `.seconds` run on; `.objective` and `.violation` are those of the stage's own
        loss, so they jump where a stage begins, and read inf beyond float64. The pointwise losses are not
        convex: there the violation is no bound on the gap.
    state : `OptResult.state` of an earlier call with the same arguments (w0 is not read again);
        goes on bit for bit.

    Returns an OptResult. Its objective is that of the loss asked for, wherever training ended; `status` is
    that of the last stage run; n_iter and n_evaluations count all stages. Ctrl-C before the first evaluation
    has ended gives the start, with nan as its objective; between two stages that of the stage before.
    Raises ValueError as `Objective` and `minimize` do.
    """
    state = state or None
    usual = ("zero", "log") if loss.startswith("pointwise") else ("log",)
    starts = ("w0",) if w0 is not None or (state is not None and state["from_w0"]) else starts or usual
    if not set(starts) <= {"log", "zero", "w0"}:
        raise ValueError(f'starts: expected some of "zero" and "log", got {shown(starts)}')
    make_loss(loss, clamp)
    plan = [stage for start in starts for stage in stages_of(loss, clamp, start)]
    objective = Objective(corpus, features, c2=c2, constraints=constraints, n_threads=n_threads)
    rules = dict(options, max_iterations=max_iterations, tol=tol, relative_change=relative_change)
    run = _Path(objective, loss, clamp, float(c1), rules, starts == ("w0",))
    w = np.zeros(features.n_features) if w0 is None else np.array(w0, dtype=np.float64)
    return stages(lambda training: run.script(training, plan, w, state), callback)


class _Path:
    """State that the stages share."""

    def __init__(self, objective, loss, clamp, c1, rules, from_w0):
        self.objective, self.target, self.c1 = objective, objective.with_loss(loss, clamp), c1
        self.rules, self.from_w0 = rules, from_w0
        self.found = None  # the last result of a learner that has evaluated something
        self.before, self.n_evaluations = (0, 0.0), 0  # iterations and seconds of earlier learners
        self.kept = None  # (objective, its log), w: of the best final stage so far

    def script(self, training, plan, w, state):
        """One stage after the other; `state`: where to go on, or None."""
        self.found = yield Start(w if state is None else state["w"], state)
        status, zero, first = "max_iterations", np.zeros_like(self.found.w), 0
        if self.found.status == "interrupted":
            return self.found
        if state is not None:
            first = int(state["stage"])
            iterations = int(state["iterations_before"] + state["iteration"])
            self.before = iterations, float(state["seconds_before"] + state["seconds"])
            if len(state["kept_w"]):
                self.kept = tuple(state["kept_objective"].tolist()), state["kept_w"]
        for number in range(first, len(plan) if self.rules["max_iterations"] != 0 else 0):
            stage = plan[number]
            start = zero if stage.start == "zero" else w
            status = yield from self._stage(training, number, stage, start, state)
            w, state = self.w, None
            if training.stopped and number + 1 < len(plan):
                status = "stopped by callback"  # also where the stage had converged at that very step
            if status in ENDED:
                break
        return self._result(w, status)

    def _stage(self, training, number, stage, w, state):
        """The status at the end of one stage from w (F,), or of what is left of it; its weights in `w`."""
        fun = self.objective.with_loss(stage.loss, stage.clamp)
        rules = dict(self.rules)
        if not stage.final:
            rules.update(tol=max(rules["tol"], ROUGH), relative_change=(10, ROUGH))
            if state is None and stage.clamp is not None:
                fun(w)
                self.n_evaluations += 1
                self.w = w
                if fun.largest_u <= stage.clamp:  # no loss is clamped: the next stage's objective is the same
                    return "converged"
        while True:
            log_scale = self._scale(fun, stage, w) if state is None else float(state["log_scale"])
            learner = _Stage(self, number, stage, w, log_scale, state, rules)
            status, w, state = (yield from self._run(learner)), self.w, None
            if training.stopped or status in (*ENDED, "max_iterations") or log_scale == 0.0:
                break
            if log_scale - self._log(fun, w) < 1.0:  # else: start again with a better scale
                break
        if stage.final and status not in ENDED:
            self._keep(w)
        return status

    def _run(self, learner):
        found = yield learner
        self.n_evaluations = found.n_evaluations
        if found.state:  # else Ctrl-C before the first evaluation has ended
            self.found, self.before = found, (found.n_iter, learner.before[1] + learner.seconds)
        self.w = self.found.w
        return found.status

    def _scale(self, fun, stage, w):
        if not stage.loss.endswith("exp") or (stage.clamp is not None and stage.clamp < LARGEST_LOG / 2):
            return 0.0
        log_value = self._log(fun, w)
        return log_value if log_value > LARGEST_LOG else 0.0

    def _log(self, fun, w):
        self.n_evaluations += 1
        return fun.log_value(w)

    def _value(self, w):
        """(objective, log of it) of what was asked for: two numbers, because the first may be inf."""
        self.n_evaluations += 1
        value, norm = self.target(w)[0], self.c1 * float(np.abs(w).sum())
        if math.isfinite(value):
            return value + norm, 0.0
        return math.inf, self._log(self.target, w)

    def _keep(self, w):
        value = self._value(w)
        if self.kept is None or value < self.kept[0]:
            self.kept = value, w

    def _result(self, w, status):
        """The `OptResult`: the better of w and what an earlier start has led to."""
        if status == "interrupted" and not self.found.state:
            return self.found._replace(status=status)  # nothing has been evaluated
        self._keep(w)
        (objective, _), best = self.kept
        return OptResult(best, objective, status, self.before[0], [], self.found.state, self.n_evaluations)


class _Stage(LBFGS):
    """A stage whose objective is divided by exp(log_scale); what it reports is not."""

    def __init__(self, path, number, stage, w, log_scale, state, rules):
        fun, scale = path.objective.with_loss(stage.loss, stage.clamp, log_scale), math.exp(-log_scale)
        super().__init__(fun, w, c1=path.c1 * scale, c2=path.objective.c2 * scale, state=state, **rules)
        self.path, self.number, self.log_scale = path, number, log_scale
        self.n_evaluations, self.before = path.n_evaluations, path.before
        if state is not None:
            self.before = int(state["iterations_before"]), float(state["seconds_before"])

    def report(self):
        factor = math.exp(self.log_scale) if self.log_scale < 700.0 else math.inf
        return self.objective * factor, self.violation * factor

    def final_objective(self):
        return self.report()[0]

    def state(self):
        value, w = self.path.kept or ((0.0, 0.0), np.zeros(0))
        more = dict(
            stage=self.number, log_scale=self.log_scale, from_w0=self.path.from_w0, kept_objective=value,
            iterations_before=self.before[0], seconds_before=self.before[1], kept_w=w,
        )  # fmt: skip
        state = super().state()
        return state and state | {name: np.array(value) for name, value in more.items()}


def quasi_newton(
    corpus, features, w0, *, c1, c2, loss, n_threads, clamp=None, tol=1e-6, epsilon=None,
    relative_change=None, num_memories=6, max_linesearch=20, constraints=None, max_iterations=None,
    eps=None, memory_limit=2e9, callback=None, state=None, held=None,
):  # fmt: skip
    """L-BFGS, or OWL-QN for c1 > 0, as rows of the table of algorithms: an `OptResult`.

    Arguments as `models.parameters.Settings` describes them, all others as in `minimize` of lbfgs.py.
    epsilon : CRFsuite's rule, see `CRF`; the log loss alone has it
    eps : None or 0: exact inference; else active sets, see `ActiveObjective`, which may take memory_limit
        bytes; the log loss alone has them
    held : `Held` where labels are known in part: the log loss alone, exact inference. The objective is not
        convex: training ends where no entry of the (pseudo-)gradient exceeds 1000 tol nats, and the status is
        then "stationary point".
    """
    ends = {"max_iterations": max_iterations, "tol": tol, "tol_gradient": 1000 * min(tol, 1e300)}  # finite
    search = {"relative_change": relative_change, "memory": num_memories, "max_linesearch": max_linesearch}
    problem = {"c2": c2, "constraints": constraints, "n_threads": n_threads}
    rules = {"c1": c1, "state": state, **ends, **search}
    if loss != "log":
        start = w0 if w0.any() or max_iterations == 0 else None
        of_loss = {"loss": loss, "clamp": clamp, "callback": callback}
        return minimize_loss(corpus, features, start, **of_loss, **problem, **rules)
    rules["epsilon"] = epsilon
    if held is not None:
        objective = partial_objective(corpus, held, features, **problem)
        found = run(LBFGS(objective, w0, c2=0.0, **rules), callback)
        return found._replace(status=STATIONARY) if found.status == "converged" else found
    if eps:
        objective = ActiveObjective(corpus, features, eps=eps, memory_limit=memory_limit, **problem)
        return run(ActiveLBFGS(objective, w0, c2=c2, **rules), callback)
    if c1:
        return minimize_on_support(corpus, features, w0, callback=callback, **problem, **rules)
    return run(LBFGS(Objective(corpus, features, **problem), w0, c2=c2, **rules), callback)
