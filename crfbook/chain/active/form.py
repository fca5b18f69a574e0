"""Active sets behind the port: `ActivePairs`, and `ActiveObjective`, which freezes and renews them.

L-BFGS compares values and gradients of one function. Sets that change with the weights make another function
at every step, and its line search fails. So the sets are frozen: the objective is smooth, convex, and exact
for its sets. When it has been minimised, or sooner, `renew` makes the sets anew from the weights, and with
them the bound on what they leave out.

The sequences of a packed batch go one after another, as each has sets of its own (`active_batch`).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from crfbook._checks import number, one_of
from crfbook._jit import kernel
from crfbook.chain.active.sequence import (
    ABOVE,
    BELOW,
    EPS,
    ActiveRule,
    active_backward,
    active_forward,
    active_work,
    bound_log_z,
    check_eps,
    check_transitions,
    extremes,
)
from crfbook.chain.forward_backward_batched import exp_rows
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.form import DefaultBatch, DefaultPairs
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet

RULES, OUTSIDE = ("share", "mass"), ("zero", "default")


class Found(NamedTuple):
    """What a batch finds (B sequences, n rows, P stored pairs)."""

    log_z: np.ndarray  # (B,): NaN where the log form is needed
    p_node: np.ndarray  # (n, M): weight * marginals
    product: np.ndarray  # (P,): expected counts divided by the potentials, added to
    bound: np.ndarray  # (2, B): log Z of the whole model is at most and at least this


class Chosen(NamedTuple):
    """The active cells of a batch: those of sequence r begin at start[r], with its own pointers."""

    cell: np.ndarray  # int32
    ptr: np.ndarray  # int64 (n+B,): T+1 of each sequence, relative to its start
    start: np.ndarray  # int64 (B+1,)


@kernel
def active_batch(b, packing, edges, rule, choose, log_node, found, chosen, limits, work, flags):
    """log Z, node marginals and sums of a batch, each sequence by itself; returns the cells of `Chosen`.

    Arguments:
        b, packing : a batch, n rows of B sequences
        edges : a `DefaultEdges`
        rule : an `ActiveRule`
        choose : 1: the sets are made, and the bounds with them
        limits : an `Extremes`
        log_node : (n, M), scores, overwritten
    Out:
        found : a `Found`
        chosen : a `Chosen`; its cells may be another, longer array, which is returned
        flags : uint8 (>= B,), 1: needs the log form, and has added nothing
    Work:
        work : an `ActiveWork`
    Cost: that of `active_forward`, `active_backward`, `bound_log_z`.
    Source: chapter 10.
    """
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
    labels, cell, C = packing.labels[lo:hi], chosen.cell, edges.scores.member.size
    first, n_steps = 0, step_ptr.size - 1
    found.log_z[:] = 0.0
    flags[: found.log_z.size] = 0
    exp_rows(log_node, edges.edge_spread[0], step_ptr, found.log_z, flags)
    every = np.empty(n_steps, np.int64)
    for r in range(found.log_z.size):
        T = 0
        while T < n_steps and step_ptr[T] + r < step_ptr[T + 1]:
            every[T] = step_ptr[T] + r
            T += 1
        rows, begin = every[:T], chosen.start[r]
        if choose and cell.size < begin + T * C:
            more = np.empty(2 * cell.size + T * C, np.int32)
            more[:begin] = cell[:begin]
            cell = more
        own, ptr = cell[begin:], chosen.ptr[first : first + T + 1]
        first += T + 1
        if choose:
            ptr[:] = 0
        log_z = np.nan
        if not flags[r]:
            log_z = active_forward(rows, log_node, labels, edges, rule, choose, own, ptr, work, None, own)
        for i in rows:
            found.p_node[i] = 0.0
        if np.isnan(log_z):
            flags[r], found.log_z[r], found.bound[:, r] = 1, np.nan, np.nan
            if choose:  # all cells: where later weights allow the scaled form, it is exact as well
                for t in range(T):
                    ptr[t + 1] = (t + 1) * C
                    for c in range(C):
                        own[t * C + c] = c
        else:
            weight = packing.weight[packing.slot_ptr[b] + r]
            active_backward(rows, log_node, weight, edges, rule, own, ptr, found.p_node, found.product, work)
            if choose:
                for side in (ABOVE, BELOW):
                    found.bound[side, r] = found.log_z[r] + bound_log_z(
                        side, rows, log_node, edges, limits, own, ptr, work
                    )
            found.log_z[r] += log_z
        if choose:
            chosen.start[r + 1] = begin + ptr[T]
    return cell


class ActiveBatch(DefaultBatch):
    """A batch of sequences that go one by one."""

    def __init__(self, b, packing, work):
        super().__init__(b, packing, work._replace(alpha=work.prev))
        self.active = work.alpha

    @staticmethod
    def needs(work, packing, n_labels):
        longest = max((len(packing.steps(b)) - 1 for b in range(packing.n_batches)), default=0)
        return work._replace(alpha=active_work(longest, n_labels))


class ActivePairs(DefaultPairs):
    """`DefaultPairs` in which labels that have little mass at a token lose their stored pairs there."""

    offers = ("counts",)
    batch = ActiveBatch
    stale = True  # sets are made at the next evaluation

    def __init__(self, problem, rule, memory_limit):
        super().__init__(problem)
        self.rule, self.memory_limit = rule, memory_limit
        packing = problem.packing
        self.chosen = [None] * packing.n_batches
        self.bound = np.zeros((2, len(packing.sequence)))
        self.limits = extremes(self.edges)

    def prepare(self, w, what):
        super().prepare(w, what)
        if self.stale:
            self.limits = extremes(self.edges)
            self.chosen = [None] * len(self.chosen)

    def batch_sums(self, what, batch, log_z, sums):
        """As in `Stages`; where the sets are stale, they are made and kept."""
        (b, packing), n_rows, n_slots = batch.place, len(batch.log_node), len(batch.weight)
        chosen = self.chosen[b]
        if chosen is None:
            ptr, start = np.zeros(n_rows + n_slots, np.int64), np.zeros(n_slots + 1, np.int64)
            chosen = Chosen(np.empty(0, np.int32), ptr, start)
        found = Found(log_z[batch.slots], batch.p_node, sums.product, self.bound[:, batch.slots])
        common = b, packing, self.edges, self.rule, int(self.stale), batch.log_node, found
        cell = active_batch(*common, chosen, self.limits, batch.active, batch.flags)
        if self.stale:
            self.chosen[b] = chosen._replace(cell=cell[: chosen.start[-1]].copy())
            size = sum(each.cell.nbytes for each in self.chosen if each is not None)
            if size > self.memory_limit:
                eps = max(self.rule.least_share, self.rule.lost_mass)
                raise MemoryError(
                    f"active sets: expected at most {self.memory_limit / 1e6:.3g} MB of labels, "
                    f"got {size / 1e6:.3g} MB before all tokens were seen; a larger eps (now {eps:g}) keeps "
                    "fewer, exact inference keeps none"
                )
        return batch.flags.any()

    def redo(self, batch, log_z, sums):
        super().redo(batch, log_z, sums)
        redone = batch.slots.start + np.flatnonzero(batch.flags)
        self.bound[:, redone] = log_z[redone]

    def collect(self, total):
        super().collect(total)
        self.stale = False


class ActiveObjective(Objective):
    """`Objective` of the log loss with active sets: exact for its sets, near the whole model.

    Parameters beside those of `Objective` (form, loss, clamp and log_scale are not among them)
    ----------
    eps : in [0, 1). A label is active at a token if its share of the forward mass there is at least eps
        (rule "share"), or if it belongs to the smallest set that loses at most the mass eps (rule "mass",
        Pal, Sutton and McCallum 2006). The gold label always is. 0: all are.
    outside : "default": the pairs of other labels have potential 1; "zero": they have none (Method 1).
    memory_limit : bytes that all sets may take.

    The sets are made at the first evaluation, and at the first one after `renew`. Sequences whose scores
    exceed what scaled vectors can hold are taken exactly. Raises ValueError as `Objective` does, and for
    transitions that depend on attributes; MemoryError when called.
    """

    _forms: ClassVar = {"batched": ActivePairs}
    bounds = np.zeros(0)  # (S',): as `error_bound`, of each sequence, in packed order

    def __init__(
        self,
        corpus: Corpus,
        features: FeatureSet,
        *,
        eps: float = EPS,
        rule: str = "share",
        outside: str = "default",
        memory_limit: float = 2e9,
        **options: Any,
    ) -> None:
        eps, rule = check_eps(eps), one_of("rule", rule, RULES)
        outside = OUTSIDE.index(one_of("outside", outside, OUTSIDE))
        check_transitions(corpus, features)
        shares = (0.0, eps) if eps and rule == "mass" else (eps, -1.0)
        self._options = {
            "rule": ActiveRule(*shares, outside),
            "memory_limit": number("memory_limit", memory_limit, finite=False),
        }
        super().__init__(corpus, features, **options)

    def renew(self) -> None:
        """Make the sets anew at the next evaluation, from its weights."""
        for form, _ in self._made.values():
            form.stale = True

    @property
    def error_bound(self) -> float:
        """Nats: how far the value was from that of the whole model, at most, when the sets were made.

        Rounding is left out; NaN before the first evaluation.
        """
        return float(self._packing.weight @ self.bounds) if self._made else math.nan

    @property
    def n_kept(self) -> float:
        """Active labels a token; NaN before the first evaluation."""
        if not self._made:
            return math.nan
        form = self._made["batched"][0]
        return sum(len(each.cell) for each in form.chosen) / max(1, len(self._packing.row_token))

    def _sums(self, w, what):
        renewed = not self._made or self._made["batched"][0].stale
        found = super()._sums(w, what)
        if renewed:
            above, below = self._made["batched"][0].bound
            self.bounds = np.maximum(np.maximum(above - self._log_z, self._log_z - below), 0.0)
        return found
