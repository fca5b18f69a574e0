"""The losses beside the log loss: their names and settings, and the form that has their gradients.

    sum_i weight_i phi(u_i),   u_i = -log p(y_i | x_i)              "log", "exp"
    sum_i weight_i sum_t phi(u_it),   u_it = -log p(y_it | x_i)     "pointwise-log", "pointwise-exp"

phi(u) = u or e^u - 1, the latter linear beyond a clamp M if one is given. Source: Altun,
Johnson and Hofmann (2003), section 3.3.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook._checks import number, one_of, shown
from crfbook.chain.batch import loss_work
from crfbook.chain.forms import Tables, shard_counts
from crfbook.chain.losses.gradients import losses_of_batches, redo_flagged_losses

LOSSES = ("log", "exp", "pointwise-log", "pointwise-exp")


class Loss(NamedTuple):
    """Settings as the kernels read them."""

    pointwise: bool
    exponential: bool
    clamp: float  # inf: none
    log_scale: float  # losses and gradients are multiplied by exp(-log_scale)

    @property
    def is_other(self):
        """Is it another one than the log loss?"""
        return self.pointwise or self.exponential


def make_loss(loss, clamp=None, log_scale=0.0):
    """`Loss` of its name; ValueError for a name or number that means nothing."""
    one_of("loss", loss, LOSSES)
    exponential = loss.endswith("exp")
    for name, value, usual in (("clamp", clamp, None), ("log_scale", log_scale, 0.0)):
        if value != usual and not exponential:
            raise ValueError(
                f"{name}: belongs to the losses exp and pointwise-exp, "
                f"got {shown(value)} with loss={shown(loss)}"
            )
    clamp = math.inf if clamp is None else number("clamp", clamp, above=0.0, note=" (in nats) or None")
    return Loss(loss.startswith("pointwise"), exponential, clamp, number("log_scale", log_scale, -math.inf))


class LossTables(Tables):
    """Gradients of a loss that is not the log loss; after each evaluation u = -log p and the loss of each."""

    offers = ("counts",)

    def __init__(self, problem, loss):
        super().__init__(problem)
        self.loss, packing = loss, problem.packing
        self.value = np.zeros(len(packing.sequence))  # weight_i * loss_i * exp(-log_scale)
        self.u = np.zeros(len(packing.labels) if loss.pointwise else len(packing.sequence))
        self._slot = self._slot_of_row(packing) if loss.pointwise else slice(None)
        self.sums = {"counts": partial(shard_counts, batches=self._batches, redo=self._redo)}

    def _batches(self, *given):
        return losses_of_batches(*given, (self.loss, self.u, self.value))

    def _redo(self, batch, edges, log_z, edge_sum):
        rows = batch.place[1].rows(batch.place[0]) if self.loss.pointwise else batch.slots
        out = log_z[batch.slots], self.u[rows], self.value[batch.slots], batch.p_node, edge_sum
        redo_flagged_losses(*batch.place, edges.log_edge, self.loss, batch.log_node, *out, batch.flags)

    def work(self, work):
        return loss_work(work, self.loss)

    @staticmethod
    def _slot_of_row(packing):
        """int64 (N,): packed number of the sequence each row belongs to."""
        slot = np.zeros(len(packing.row_token), np.int64)
        for b in range(packing.n_batches):
            step = packing.steps(b)
            within = np.arange(step[-1]) - np.repeat(step[:-1], np.diff(step))
            slot[packing.rows(b)] = packing.slot_ptr[b] + within
        return slot

    def log_total(self, weight):
        """log sum_i weight_i loss_i of the last evaluation, without log_scale;
        exact where the sum itself exceeds float64.
        """
        u = np.maximum(self.u, 0.0)
        m = np.minimum(u, self.loss.clamp) if self.loss.exponential else np.zeros(len(u))
        with np.errstate(divide="ignore"):
            log_loss = np.log(weight[self._slot]) + m + np.log((u - m) - np.expm1(-m))
        top = log_loss.max(initial=-np.inf)
        return float(top + np.log(np.exp(log_loss - top).sum())) if top > -np.inf else -np.inf
