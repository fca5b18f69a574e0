"""Coordinate descent and blockwise coordinate descent for sparse CRFs, also over virtual feature sets.

Sokolovska, Lavergne, Cappe and Yvon (2010), Algorithms 1 and 2. A block is all weights of one symbol (a test
of the input): one forward-backward over the sequences that hold it, cut at its first and last occurrence,
moves them all. Where no FeatureSet is given every (attribute, label) and (edge attribute, label, label) is a
candidate, and only the active ones take memory.

A falling path of c1: every solution starts from the one before it,
so that the first sweeps are cheap and memory stays small.

    encoder = Encoder("ngrams_5")
    corpus = encoder.fit_transform(train)
    points = solve_path(corpus, c1=falling(largest_c1(corpus), 0.5, 10), sweeps=2)  # all weights, virtually
    features, w = points[-1].result.features, points[-1].result.w
    labels = inference.decode(encoder.transform(test), features, w)  # chain/inference.py

`CRF(algorithm="sbcd", all_possible_states=True, all_possible_transitions=True)` is the same for one c1,
as an estimator.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import function_or_none, is_number, number, one_of, shown, whole
from crfbook.chain.objective import Objective, check_weights
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet, select
from crfbook.learners.coordinate.arrays import TABLE_BYTES, ModelSizes, Sparse
from crfbook.learners.coordinate.sweeps import Sweeper
from crfbook.learners.coordinate.visit import ADAPTIVE, LARGEST, SQUARES, STEPS
from crfbook.learners.quasi_newton import minimize
from crfbook.training.certificate import Rules
from crfbook.training.loop import Callback, Learner, State, run, stages
from crfbook.training.threads import one_blas_thread, resolve_threads

MAX_FROZEN = 20  # sweeps over active weights between two over all candidates
SLOW = 0.01  # a sweep that lowers the objective by less than this share is slow
ITERATIONS, MOST = 30, 1 << 30  # at first, twice as many each time; in the end
PATIENCE = 2  # sweeps between two such steps


class SparseResult(NamedTuple):
    """An `OptResult` (training/loop.py) and the features that w is about."""

    w: np.ndarray  # (F,)
    objective: float
    status: str
    n_iter: int
    history: list  # of Step
    state: dict  # arrays only; coordinate_descent(..., state=state) goes on as if it had never stopped
    n_evaluations: int  # gradient passes: visits of a sequence for a gradient / sequences, rounded up
    features: FeatureSet  # the given ones; where none were: the active ones
    # visits of sequences for gradients and for step rules, products of the recursions, blocks screened
    counts: dict


def coordinate_descent(
    corpus: Corpus, features: FeatureSet | None = None, w0: ArrayLike | Sparse | None = None, *, c1: float,
    c2: float = 0.0, blocks: bool = True, curvature: str = "approximate", step: str = "adaptive",
    factor: float = 2.0, joint: bool | str = True, freeze_after: int | None = None, accelerate: bool = False,
    screening: bool = True, n_threads: int | None = 1, tol: float = 1e-4, tol_gradient: float = 1e-3,
    constraints: Limits = None, sizes: tuple[int, int, int] | None = None,
    edge_attrs: ArrayLike | None = None, max_iterations: int | None = 100, callback: Callback = None,
    state: State = None,
) -> SparseResult:  # fmt: skip
    """Minimise -log-likelihood + c1 |w|_1 + c2 |w|^2, one block (or one weight) after the other.

    Parameters
    ----------
    corpus : Corpus, every token labelled.
    features : FeatureSet with F weights; None: all of them exist virtually.
    w0 : their weights (F,), or a `Sparse` of some of them; default 0. Read only where state is None.
    c1, c2 : >= 0, not both 0.
    blocks : True: Algorithm 2, all weights of a symbol at once; False: Algorithm 1, one weight at a time (up
        to some 2,000 weights on 500 tokens, see `cd`).
    curvature : "approximate", sum p (1 - p), eq. (16), or "exact", eq. (15),
        by a recursion of moments (for small problems).
    step : "adaptive" (the objective never rises), or the rules "fixed" (curvature times `factor`; may
        diverge), "wapiti" (may oscillate), "safe" (monotone, slow), "cs".
        The default for blocks=False is as for blocks=True.
    joint : node and edge weights of a symbol are one block; False: two. "alternate": two, and each sweep
        moves the node weights of all symbols, then the edge weights of all (a variant of section 4.4).
    freeze_after : sweep after which only active weights move, until they rest;
        then a sweep over all candidates, and so on; None: never.
    accelerate : where sweeps have become slow, OWL-QN on the active weights now and then
        (`Accelerator`), unless the edge classes are too many for its tables.
    screening : leave out blocks that certainly stay without active weights.
    n_threads : for large blocks; the result has the same bits for any value.
    tol, tol_gradient : stop when the violation of the conditions of optimality promises at most tol *
        objective (c2 > 0), or is at most tol_gradient (c2 = 0); see `Rules`. It is that of the sweep,
        confirmed by a pass over all candidates.
    constraints : Constraints or None.
    sizes : (L, A, B), default: what the corpus holds; edge_attrs : edge attributes that have weights,
        default: all. Both are read only where features is None.
    max_iterations : sweeps, those of `state` included. callback : called with (Step, w) after each sweep;
        True stops. Where features is None, w is a `Sparse`.
    state : `SparseResult.state` of an earlier call on the same problem (c1 and c2 may differ: a warm start).

    Returns a `SparseResult`. Ctrl-C keeps the weights as they are: every visit leaves them good. Before the
    first evaluation has ended they are those of the start, and the objective is nan.

    Raises ValueError for c1 = c2 = 0, arguments out of range, weights of features that do not exist,
    labels that are unknown or forbidden.
    """
    given = {name: value for name, value in locals().items() if name != "callback"}
    learner = prepare(**given)
    return learner.result(run(learner, callback))


def prepare(corpus, features=None, w0=None, *, state=None, **options):
    """The `CoordinateDescent` of these arguments of `coordinate_descent`, checked."""
    o = SimpleNamespace(**coordinate_descent.__kwdefaults__ | options)
    rules = Rules(o.c1, o.c2, o.tol, o.tol_gradient, o.max_iterations)
    if o.c1 == 0 and o.c2 == 0:
        raise ValueError(
            "coordinate descent needs a penalty, got c1 = c2 = 0: "
            "node and edge weights of a symbol are redundant, and weights of what never occurs would run to "
            "minus infinity; give c1 or c2, or use lbfgs"
        )
    one_of("step", o.step, STEPS)
    one_of("curvature", o.curvature, ("approximate", "exact"))
    one_of("joint", o.joint, (True, False, "alternate"))
    number("factor", o.factor, above=0.0)
    freeze_after = None if o.freeze_after is None else whole("freeze_after", o.freeze_after)
    sizes = sizes_of(corpus, features, o.sizes)
    edge_attrs = checked_edge_attrs(o.edge_attrs, sizes.n_edge_attrs)
    kept = {"joint": o.joint, "edge_attrs": edge_attrs, "n_threads": resolve_threads(o.n_threads)}
    sweeper = Sweeper(corpus, features, sizes, o.constraints, **kept)
    rule = {"step": o.step, "factor": o.factor, "exact": o.curvature == "exact", "screening": o.screening}
    sweeper.set_rule(o.c1, o.c2, **rule)
    accelerator = Accelerator(sweeper, o.constraints) if o.accelerate else None
    return CoordinateDescent(sweeper, rules, o.blocks, freeze_after, accelerator, w0, state)


def sizes_of(corpus, features, sizes):
    held = ModelSizes(
        *(int(ids.max(initial=0)) + 1 for ids in (corpus.labels, corpus.attr_idx, corpus.class_attr))
    )
    name = "sizes" if features is None else "features"
    if features is not None:
        sizes = features.sizes
    elif sizes is None:
        return held
    if np.shape(sizes) == (3,) and sizes[1] == 0 == len(corpus.attr_idx):
        raise ValueError("the training sequences have no attributes: coordinate descent needs one at least")
    if np.shape(sizes) != (3,):
        raise ValueError(f"{name}: expected three integers (L, A, B), got {shown(sizes)}")
    sizes = ModelSizes(
        *(whole(f"{field} in {name}", size, 1) for field, size in zip(ModelSizes._fields, sizes, strict=True))
    )
    if any(size < needed for size, needed in zip(sizes, held, strict=True)):
        raise ValueError(
            f"{name}: expected at least (L, A, B) = {tuple(held)}, which the corpus holds, got {tuple(sizes)}"
        )
    return sizes


def checked_edge_attrs(edge_attrs, n_edge_attrs):
    if edge_attrs is None:
        return None
    found = np.asarray(edge_attrs)
    if found.ndim != 1 or (
        found.size and (found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= n_edge_attrs)
    ):
        raise ValueError(
            f"edge_attrs: expected integers from 0 to {n_edge_attrs - 1}, got {shown(edge_attrs)}"
        )
    return found


class CoordinateDescent(Learner):
    """Sweep after sweep of a `Sweeper`: where it begins, what is frozen, when it stops."""

    def __init__(self, sweeper, rules, blocks, freeze_after, accelerator, w0, state):
        self.sweeper, self.rules, self.blocks, self.freeze_after = sweeper, rules, blocks, freeze_after
        self.accelerator, self.max_iterations = accelerator, rules.max_iterations
        self.thawed, self.reason, self.settled = 0, None, False
        if state is not None:
            sweeper.resume(state)
            self.iteration, self.seconds = int(state["iteration"]), float(state["seconds"])
        elif w0 is not None:
            if not isinstance(w0, Sparse):
                if sweeper.features is None:
                    raise ValueError("w0: where no features are given, expected a Sparse (features, w)")
                w0 = Sparse(sweeper.features, check_weights(w0, sweeper.features.n_features))
            sweeper.load(sweeper.admit("w0", w0))

    def go_to(self, c1, sweeps):
        """Another c1, and so many sweeps at most: what the loop runs next goes on from here."""
        self.sweeper.rule = self.sweeper.rule._replace(c1=c1)
        self.rules.c1, self.max_iterations = c1, self.iteration + sweeps
        self.thawed, self.reason, self.settled = 0, None, False
        return self

    def begin(self):
        self.objective = math.nan
        self.objective = self.sweeper.renew()
        self.settled = True

    def advance(self):
        """One sweep, and where it promises convergence a pass over all candidates that confirms it."""
        sweeper, rules = self.sweeper, self.rules
        violation = self._sweep()
        if not math.isfinite(self.objective):
            self.reason = "non-finite objective"
        elif violation is not None and rules.verdict(self.objective, violation) == "converged":
            self.objective = sweeper.renew()
            largest, squares = sweeper.violation()
            self.violation = rules.violation(squares, largest)
            if rules.verdict(self.objective, self.violation) == "converged":
                self.reason = "converged"
        self.iteration += 1

    def _sweep(self):
        """One sweep; the violation that it saw, or None if it did not look at all candidates."""
        sweeper, frozen = self.sweeper, False
        if self.freeze_after is not None and self.iteration >= self.freeze_after:
            frozen = 0 < self.thawed <= MAX_FROZEN
            self.thawed = self.thawed + 1 if self.thawed <= MAX_FROZEN else 1
        sweeper.freeze(frozen)
        before = self.objective
        if self.blocks:
            self.objective += sweeper.sweep()
        else:
            sweeper.sweep_weights()
        if not self.blocks or sweeper.rule.step != ADAPTIVE or self.iteration % 10 == 9:
            # what was tracked has gathered rounding errors; single weights and other rules track nothing
            self.objective = sweeper.renew()
        if self.accelerator is not None:
            self.objective = self.accelerator.improve(self.objective)
        seen = sweeper.arrays.seen
        self.violation = self.rules.violation(float(seen[SQUARES]), float(seen[LARGEST]))
        if frozen:
            if before - self.objective <= 1e-6 * abs(self.objective):
                self.thawed = 0
            return None
        return self.violation

    def finished(self):
        return self.reason

    def weights(self):
        return self.sweeper.weights()

    def settle(self):
        self.settled = False  # the weights are good, what follows from them is not

    def final_objective(self):
        if not (self.settled or math.isnan(self.objective)):
            self.objective = self.sweeper.renew()
            self.settled = True
        return self.objective

    def outcome(self, status):
        return self.rules.outcome(status, self.sweeper.export().w)

    def state(self):
        numbers = {"iteration": np.array(self.iteration), "seconds": np.array(self.seconds)}
        return self.sweeper.keep(self.settled) | numbers

    @property
    def n_evaluations(self):
        return -(-int(self.sweeper.arrays.count[0]) // max(1, self.sweeper.corpus.n_sequences))

    def result(self, found):
        """The `SparseResult` of what the loop has found."""
        features, w = found.w if isinstance(found.w, Sparse) else (self.sweeper.features, found.w)
        passes, trials, screened = (int(n) for n in self.sweeper.arrays.count)
        names = "gradient_visits", "step_visits", "products", "screened"
        counts = dict(zip(names, (passes, trials, self.sweeper.products, screened), strict=True))
        return SparseResult(w, *found[1:], features, counts)


class Accelerator:
    """OWL-QN steps on the active weights, between sweeps that have become slow.

    Node and edge weights of a symbol are nearly redundant. So sweeps, which move one block at a time, close
    the last per cents slowly. By then they have found the support, or nearly. On it a quasi-Newton method
    moves all weights at once. The sweeps that follow visit all candidates, so that missing ones come in, and
    these sweeps give the certificate. Neither raises the objective. The quasi-Newton method has a table of
    L^2 numbers for each edge class; where these are too many, there are sweeps alone.
    """

    def __init__(self, sweeper, constraints=None):
        self.sweeper, self.constraints = sweeper, constraints
        self.before, self.waiting, self.iterations, self.evaluations = None, PATIENCE, ITERATIONS, 0
        self.able = 8 * sweeper.corpus.n_classes * sweeper.arrays.tables.base.size <= TABLE_BYTES

    def improve(self, objective):
        """After a sweep: the objective, lower where a step was taken."""
        slow = self.before is not None and self.before - objective <= SLOW * abs(objective)
        self.before, self.waiting = objective, self.waiting - slow
        if self.waiting > 0 or not self.able:
            return objective
        sweeper, here = self.sweeper, self.sweeper.export()
        if not len(here.w):
            return objective
        rule, how = sweeper.rule, {"constraints": self.constraints, "n_threads": sweeper.n_threads}
        fun = Objective(sweeper.corpus, here.features, c2=rule.c2, **how)
        found = minimize(fun, here.w, c1=rule.c1, c2=rule.c2, max_iterations=self.iterations, tol=1e-7)
        self.evaluations += found.n_evaluations
        kept = found.w != 0.0
        sweeper.load(Sparse(select(here.features, kept), np.ascontiguousarray(found.w[kept])))
        after = sweeper.renew()
        if not after <= objective:
            sweeper.load(here)
            after = sweeper.renew()
        self.before, self.waiting, self.iterations = after, PATIENCE, min(2 * self.iterations, MOST)
        if found.status == "interrupted":  # the optimiser caught it; the weights are good
            raise KeyboardInterrupt
        return after


def sbcd(corpus, features, w0, *, c1, c2, n_threads, virtual=False, **options):
    """A row of the table of algorithms: all weights of a symbol at once (Algorithm 2), accelerated.

    virtual : all weights exist; features are those that w0 is about, and give the sizes. All other arguments
        as for `coordinate_descent`.
    """
    if virtual:
        options["sizes"], features, w0 = features.sizes, None, Sparse(features, w0)
    options |= {"n_threads": n_threads, "accelerate": True}
    return coordinate_descent(corpus, features, w0, c1=c1, c2=c2, **options)


def cd(corpus, features, w0, *, c1, c2, **options):
    """A row of the table of algorithms: one weight at a time (Algorithm 1), each with forward-backward passes
    of its own, to see what blocks save.

    Arguments as for `coordinate_descent`.

    Measured at c1 = 1, c2 = 0.1, tol = 1e-4, with words of messages as attributes, in CPU seconds against
    those of `sbcd`:
        1.1 against 0.05 for 437 weights on 72 tokens, 10 against 0.13 for 1, 878 on 388, 67 against 0.4 for
            5, 723 on 1, 383
    So it is fit for about 2,000 weights on 500 tokens; its cost grows with the product of weights and sweeps.
    """
    return coordinate_descent(corpus, features, w0, c1=c1, c2=c2, blocks=False, **options)


class PathPoint(NamedTuple):
    """The solution for one c1."""

    c1: float
    n_active: int
    result: SparseResult


def largest_c1(
    corpus: Corpus, features: FeatureSet | None = None, *, sizes: Sequence[int] | None = None,
    edge_attrs: ArrayLike | None = None, constraints: Limits = None, joint: bool | str = True,
) -> float:  # fmt: skip
    """The smallest c1 for which no weight survives: the largest |derivative| of the loss at w = 0.

    Arguments as in `coordinate_descent`. One pass over all candidates.
    """
    sizes = sizes_of(corpus, features, sizes)
    edge_attrs = checked_edge_attrs(edge_attrs, sizes.n_edge_attrs)
    sweeper = Sweeper(corpus, features, sizes, constraints, joint=joint, edge_attrs=edge_attrs)
    sweeper.set_rule(np.finfo(float).tiny, 0.0, screening=False)
    with one_blas_thread():
        sweeper.renew()
        return sweeper.violation()[0]


def falling(highest: float, lowest: float, n: int) -> np.ndarray:
    """n values of c1 from highest to lowest, evenly spaced in logarithms."""
    if not (is_number(highest) and is_number(lowest) and math.inf > highest >= lowest > 0):
        raise ValueError(
            f"a path falls: expected finite numbers highest >= lowest > 0, "
            f"got {shown(highest)}, {shown(lowest)}"
        )
    n = whole("n", n, 1)
    return np.geomspace(highest, lowest, n) if n > 1 else np.array([float(lowest)])


def _falling_values(c1):
    try:
        values = np.atleast_1d(np.asarray(c1, dtype=float))
    except (TypeError, ValueError):
        raise ValueError(f"c1: expected numbers >= 0 that fall, got {shown(c1)}") from None
    falls = values.ndim == 1 and len(values) and np.isfinite(values).all() and (np.diff(values) <= 0).all()
    if not falls or values[-1] < 0:
        raise ValueError(
            f"c1: expected finite values >= 0 that fall, got {np.array2string(values, threshold=6)}"
        )
    return values


def _check_options(options):
    begins = "a path begins without weights and goes on from each solution"
    for name, why in (
        ("max_iterations", "a path counts the sweeps of each value, give sweeps"),
        ("w0", f"{begins}; coordinate_descent begins where it is told"),
        ("state", f"{begins}; coordinate_descent goes on from a state"),
    ):
        if name in options:
            raise ValueError(f"{name}: {why}")
    unknown = sorted(set(options) - set(inspect.signature(coordinate_descent).parameters))
    if unknown:
        raise TypeError(
            f"solve_path: there is no option {shown(unknown[0])}; options are those of coordinate_descent"
        )


def solve_path(
    corpus: Corpus, features: FeatureSet | None = None, *, c1: ArrayLike,
    sweeps: int | Sequence[int] | None = None, callback: Callable[..., object] | None = None,
    keep: bool = True, **options: Any,
) -> list[PathPoint]:  # fmt: skip
    """`coordinate_descent` for each value of c1, from the largest to the smallest,
    each from the weights of the one before.

    Parameters
    ----------
    corpus, features, options : as in `coordinate_descent` (options: c2, step, tol, ...; not w0,
        max_iterations and state).
    c1 : values >= 0, falling (`falling` makes them); > 0 where c2 = 0.
    sweeps : sweeps at most for each value: an integer >= 1, or one for each; None: 100.
    callback : called with (c1, Step, w) after each sweep; True ends the path.
    keep : False: only the last result keeps its state, so that memory does not grow with the path.

    Returns a list of `PathPoint`. Ctrl-C, or a callback that stops, ends the path: it keeps what it has.

    Raises ValueError for values that do not fall, sweeps that are none, and as `coordinate_descent`.
    """
    _check_options(options)
    function_or_none("callback", callback)
    values = _falling_values(c1)
    if values[-1] == 0 and options.get("c2", 0.0) == 0:
        raise ValueError("c1: expected values > 0, where c2 = 0, got 0: coordinate descent needs a penalty")
    sweeps = 100 if sweeps is None else sweeps
    most = [sweeps] * len(values) if is_number(sweeps) else list(sweeps)
    if len(most) != len(values):
        raise ValueError(
            f"sweeps: expected an integer, or one for each of the {len(values)} values of c1, got {len(most)}"
        )
    most = [whole("sweeps", n, 1) for n in most]
    learner, points = prepare(corpus, features, c1=values[0], **options), []

    def script(training):
        for value, n in zip(values.tolist(), most, strict=True):
            found = yield learner.go_to(value, n)
            if points and not keep:
                points[-1] = points[-1]._replace(result=points[-1].result._replace(state={}))
            result = learner.result(found)
            points.append(PathPoint(value, int(np.count_nonzero(result.w)), result))
            if found.status in ("interrupted", "stopped by callback", "non-finite objective"):
                break
        return found

    watch = None if callback is None else lambda step, w: callback(learner.rules.c1, step, w)
    stages(script, watch)
    return points
