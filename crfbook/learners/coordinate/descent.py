"""Coordinate descent and blockwise coordinate descent for sparse CRFs, also over virtual feature sets.

Sokolovska, Lavergne, Cappe and Yvon (2010), Algorithms 1 and 2. A block is all weights of one symbol (a test
of the input): one forward-backward over the sequences that hold it, cut at its first and last occurrence,
moves them all. Where no FeatureSet is given every (attribute, label) and (edge attribute, label, label) is a
candidate, and only the active ones take memory.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crfbook._checks import function_or_none, number, one_of, whole
from crfbook.chain.objective import check_weights
from crfbook.data.features import FeatureSet
from crfbook.learners.coordinate.acceleration import Accelerator
from crfbook.learners.coordinate.run import STEPS, Run, Sizes, Sparse
from crfbook.learners.coordinate.step import ADAPTIVE, LARGEST, SQUARES
from crfbook.training.certificate import Rules
from crfbook.training.loop import Step
from crfbook.training.threads import one_blas_thread, resolve_threads

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, Limits, State

MAX_FROZEN = 20  # sweeps over active weights between two over all candidates


class SparseResult(NamedTuple):
    """An `OptResult` (result.py) and the features that w is about."""

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
    corpus: Corpus,
    features: FeatureSet | None = None,
    w0: ArrayLike | Sparse | None = None,
    *,
    c1: float,
    c2: float = 0.0,
    blocks: bool = True,
    curvature: str = "approximate",
    step: str = "adaptive",
    factor: float = 2.0,
    joint: bool = True,
    freeze_after: int | None = None,
    accelerate: bool = False,
    screening: bool = True,
    n_threads: int | None = 1,
    tol: float = 1e-4,
    tol_gradient: float = 1e-3,
    constraints: Limits = None,
    sizes: tuple[int, int, int] | None = None,
    edge_attrs: ArrayLike | None = None,
    max_iterations: int | None = 100,
    callback: Callback = None,
    state: State = None,
) -> SparseResult:
    """Minimise -log-likelihood + c1 |w|_1 + c2 |w|^2, one block (or one weight) after the other.

    Parameters
    ----------
    corpus : Corpus, every token labelled.
    features : FeatureSet with F weights; None: all of them exist virtually.
    w0 : their weights (F,), or a `Sparse` of some of them; default 0. Read only where state is None.
    c1, c2 : >= 0, not both 0.
    blocks : True: Algorithm 2, all weights of a symbol at once; False: Algorithm 1, one weight at a time (up
        to some 2,000 weights on 500 tokens, see `crfbook.learners.coordinate.entry.cd`).
    curvature : "approximate", sum p (1 - p), eq. (16), or "exact", eq. (15),
        by a recursion of moments (for small problems).
    step : "adaptive" (the objective never rises), or the rules "fixed" (curvature times `factor`; may
        diverge), "wapiti" (may oscillate), "safe" (monotone, slow), "cs".
        The default for blocks=False is as for blocks=True.
    joint : node and edge weights of a symbol are one block; False: two.
    freeze_after : sweep after which only active weights move, until they rest;
        then a sweep over all candidates, and so on; None: never.
    accelerate : where sweeps have become slow, OWL-QN on the active weights now and then
        (acceleration.py), unless the edge classes are too many for its tables.
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

    Returns a `SparseResult`. Ctrl-C keeps the weights as they are: every visit leaves them good.

    Raises ValueError for c1 = c2 = 0, arguments out of range, weights of features that do not exist,
    labels that are unknown or forbidden.
    """
    search = prepare(
        corpus,
        features,
        c1=c1,
        c2=c2,
        blocks=blocks,
        curvature=curvature,
        step=step,
        factor=factor,
        joint=joint,
        freeze_after=freeze_after,
        accelerate=accelerate,
        screening=screening,
        n_threads=n_threads,
        tol=tol,
        tol_gradient=tol_gradient,
        constraints=constraints,
        sizes=sizes,
        edge_attrs=edge_attrs,
        max_iterations=max_iterations,
        callback=callback,
    )
    with one_blas_thread():
        search.start(w0, state)
        return search.result(search.go())


def prepare(
    corpus,
    features=None,
    *,
    c1,
    c2=0.0,
    blocks=True,
    curvature="approximate",
    step="adaptive",
    factor=2.0,
    joint=True,
    freeze_after=None,
    accelerate=False,
    screening=True,
    n_threads=1,
    tol=1e-4,
    tol_gradient=1e-3,
    constraints=None,
    sizes=None,
    edge_attrs=None,
    max_iterations=100,
    callback=None,
):
    """The `Search` of these arguments of `coordinate_descent`, checked."""
    rules = Rules(c1, c2, tol, tol_gradient, max_iterations)
    function_or_none("callback", callback)
    if c1 == 0 and c2 == 0:
        raise ValueError(
            "coordinate descent needs a penalty, got c1 = c2 = 0: "
            "node and edge weights of a symbol are redundant, and weights of what never occurs would run to "
            "minus infinity; give c1 or c2, or use lbfgs"
        )
    one_of("step", step, STEPS)
    one_of("curvature", curvature, ("approximate", "exact"))
    number("factor", factor, above=0.0)
    if freeze_after is not None:
        freeze_after = whole("freeze_after", freeze_after)
    sizes = _sizes(corpus, features, sizes)
    run = Run(
        corpus,
        features,
        sizes,
        constraints,
        joint=joint,
        edge_attrs=_edge_attrs(edge_attrs, sizes.n_edge_attrs),
        n_threads=resolve_threads(n_threads),
    )
    run.set_rule(c1, c2, step=step, factor=factor, exact=curvature == "exact", screening=screening)
    return Search(
        run, rules, blocks, freeze_after, Accelerator(run, constraints) if accelerate else None, callback
    )


def _sizes(corpus, features, sizes):
    held = Sizes(
        *(int(ids.max(initial=0)) + 1 for ids in (corpus.labels, corpus.attr_idx, corpus.class_attr))
    )
    name = "sizes" if features is None else "features"
    if features is not None:
        sizes = features.sizes
    elif sizes is None:
        return held
    if np.shape(sizes) != (3,):
        raise ValueError(f"{name}: expected three integers (L, A, B), got {sizes!r:.80}")
    sizes = Sizes(
        *(whole(f"{field} in {name}", size, 1) for field, size in zip(Sizes._fields, sizes, strict=True))
    )
    if any(size < needed for size, needed in zip(sizes, held, strict=True)):
        raise ValueError(
            f"{name}: expected at least (L, A, B) = {tuple(held)}, which the corpus holds, got {tuple(sizes)}"
        )
    return sizes


def _edge_attrs(edge_attrs, n_edge_attrs):
    if edge_attrs is None:
        return None
    found = np.asarray(edge_attrs)
    if found.ndim != 1 or (
        found.size and (found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= n_edge_attrs)
    ):
        raise ValueError(
            f"edge_attrs: expected integers from 0 to {n_edge_attrs - 1}, got {edge_attrs!r:.80}"
        )
    return found


class Search:
    """Sweep after sweep: history, stopping, what is frozen."""

    def __init__(self, run, rules, blocks, freeze_after, accelerator, callback):
        self.run, self.rules, self.blocks, self.freeze_after = run, rules, blocks, freeze_after
        self.accelerator, self.callback = accelerator, callback
        self.history, self.iteration, self.seconds, self.thawed = [], 0, 0.0, 0
        self.objective = math.inf

    def start(self, w0, state):
        run = self.run
        self.clock = time.perf_counter()
        if state is not None:
            self.objective = run.resume(state)
            self.iteration, self.seconds = int(state["iteration"]), float(state["seconds"])
            return
        if w0 is not None:
            if not isinstance(w0, Sparse):
                if run.features is None:
                    raise ValueError("w0: where no features are given, expected a Sparse (features, w)")
                w0 = Sparse(run.features, check_weights(w0, run.features.n_features))
            run.load(run.admit("w0", w0))
        self.objective = run.renew()

    def go_to(self, c1, sweeps, callback):
        """Go on with another c1, for so many more sweeps; returns the reason why it ended."""
        self.run.rule = self.run.rule._replace(c1=float(c1))
        self.rules.c1, self.rules.max_iterations = float(c1), self.iteration + int(sweeps)
        self.callback, self.history, self.thawed = callback, [], 0
        self.clock = time.perf_counter()
        self.objective = self.run.renew()
        return self.go()

    def go(self):
        """The reason why it ended."""
        status = None
        try:
            while status is None:
                if self.rules.max_iterations is not None and self.iteration >= self.rules.max_iterations:
                    return "max_iterations"
                violation = self._sweep()
                self.iteration += 1
                self.seconds += time.perf_counter() - self.clock
                self.clock = time.perf_counter()
                status = self._verdict(violation)
                if self.callback is not None and self._pause() and status is None:
                    status = "stopped by callback"
        except KeyboardInterrupt:
            status = "interrupted"
        return status

    def _sweep(self):
        """One sweep; the violation that it saw, or None if it did not look at all candidates."""
        run, frozen = self.run, False
        if self.freeze_after is not None and self.iteration >= self.freeze_after:
            frozen = 0 < self.thawed <= MAX_FROZEN
            self.thawed = self.thawed + 1 if self.thawed <= MAX_FROZEN else 1
        run.freeze(frozen)
        before = self.objective
        if self.blocks:
            self.objective += run.sweep()
        else:
            run.sweep_weights()
        if not self.blocks or run.rule.step != ADAPTIVE or self.iteration % 10 == 9:
            # what was tracked has gathered rounding errors; single weights and other rules track nothing
            self.objective = run.renew()
        if self.accelerator is not None:
            self.objective = self.accelerator.improve(self.objective)
        seen = run.state.seen
        self.shown = self.rules.violation(float(seen[SQUARES]), float(seen[LARGEST]))
        if frozen:
            if before - self.objective <= 1e-6 * abs(self.objective):
                self.thawed = 0
            return None
        return self.shown

    def _verdict(self, violation):
        rules, run = self.rules, self.run
        status = None
        if not math.isfinite(self.objective):
            status = "non-finite objective"
        elif violation is not None and rules.verdict(self.objective, violation, 0) == "converged":
            self.objective = run.renew()
            largest, squares = run.violation()
            self.shown = rules.violation(squares, largest)
            if rules.verdict(self.objective, self.shown, 0) == "converged":
                status = "converged"
        self.history.append(Step(self.iteration, self.objective, self.shown, run.n_active, self.seconds))
        return status

    def _pause(self):
        w = self.run.weights()
        (w.w if isinstance(w, Sparse) else w).flags.writeable = False
        stop = bool(self.callback(self.history[-1], w))
        self.clock = time.perf_counter()
        return stop

    def result(self, status):
        run = self.run
        found = run.weights()
        features, w = (run.features, found) if run.features is not None else found
        if status == "interrupted":
            self.objective = run.renew()
        state = run.keep() | {"iteration": np.array(self.iteration), "seconds": np.array(self.seconds)}
        passes, trials, screened = (int(n) for n in run.state.count)
        counts = {
            "gradient_visits": passes,
            "step_visits": trials,
            "products": run.products,
            "screened": screened,
        }
        n_evaluations = -(-passes // max(1, run.corpus.n_sequences))
        return SparseResult(
            w,
            self.objective,
            self.rules.outcome(status, w),
            self.iteration,
            self.history,
            state,
            n_evaluations,
            features,
            counts,
        )
