"""The port between an objective and the chain: what every form of inference offers, and the form with tables.

A form keeps transitions in one representation. It sums over all labellings of a packed corpus, shard by
shard. Its callers do not know how:

    prepare(w, what)                take the weights
    run(what, shard, w, ...)        the sums of one shard
    collect(total)                  those of all shards, into the edge part of the total

`what` is "counts", the expected count of each feature (its part of the gradient, for another loss), or
"variances", the sum of the variances of its cells. `offers` says which of them a form has.

    Tables            a table of potentials for each edge class: here
    SparsePairs       the pairs of labels that have a weight: sparse/form.py
    DefaultPairs      the same for one edge class and many labels: sparse/form.py
    StepTables        tables without kernels, for tiny problems: numpy_form.py
    LossTables        gradients of the other losses: losses.py
    LocalTables       one classifier a token, MEMM: models/directed.py
    TupleArcs         weights on label tuples: learners/tuples
"""

import copy
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import numpy as np

from crfbook.chain.forward_backward import exp_edges
from crfbook.chain.forward_backward_batched import add_edge_sum
from crfbook.chain.likelihood import (
    Batch,
    add_tree,
    batch_gradient,
    batch_scores,
    likelihood_of_batches,
    spread_rows,
)
from crfbook.chain.packing import padded, padded_bounds, with_groups
from crfbook.data.constraints import Bounds
from crfbook.data.features import edge_gradient, log_edge


class Edges(NamedTuple):
    """Transition potentials of all classes and the hard constraints, padded to M labels with -inf."""

    log_edge: np.ndarray  # (K, M, M) [class, previous, next]
    psi_edge: np.ndarray  # (K, M, M): exp(log_edge - edge_max)
    psi_edge_t: np.ndarray  # (K, M, M): its transposes
    edge_max: np.ndarray  # (K,)
    edge_spread: np.ndarray  # (1,): largest difference of finite values inside a class
    bounds: Bounds  # of M labels


def table_edges(features, w, class_ptr, class_attr, bounds=None):
    """`Edges` of the weights w (F,) for the classes of a corpus. bounds: of M labels; None: all allowed."""
    return make_edges(log_edge(features, w, class_ptr, class_attr), bounds)


def padded_edges(table, bounds):
    """(K, M, M): a table of transition scores (K, L, L), forbidden ones and those of padding at -inf."""
    n_classes, n_labels, _ = table.shape
    width = len(bounds.middle)
    scores = np.full((n_classes, width, width), -np.inf)
    scores[:, :n_labels, :n_labels] = table
    scores[:, :n_labels, :n_labels][:, bounds.edge[:n_labels, :n_labels] < 0.0] = -np.inf
    return scores


def make_edges(table, bounds=None):
    """`Edges` of a table of transition scores (K, L, L), forbidden ones set to -inf, padded to M labels."""
    n_classes, n_labels, _ = table.shape
    bounds = padded_bounds(None, n_labels) if bounds is None else bounds
    scores = padded_edges(table, bounds)
    psi_edge, psi_edge_t, edge_max = np.empty_like(scores), np.empty_like(scores), np.empty(n_classes)
    spread = exp_edges(scores, psi_edge, psi_edge_t, edge_max)
    return Edges(scores, psi_edge, psi_edge_t, edge_max, np.array([spread]), bounds)


class Problem:
    """What all forms of an objective read.

    features : FeatureSet.
    classes : (class_ptr, class_attr) of a corpus.
    bounds : `Bounds` of M labels.
    packing, layout : `Packing`, `Layout`.
    """

    def __init__(self, features, classes, bounds, packing, layout):
        self.features, self.classes, self.bounds = features, classes, bounds
        self.packing, self.layout = packing, layout

    def grouped(self):
        """The same problem, its packing with `Groups`."""
        other = copy.copy(self)
        other.packing = with_groups(self.packing, len(self.classes[0]) - 1)
        return other

    @cached_property
    def edge_parts(self):
        """(n_shards, K, M, M): sums of each shard for the tables of all classes. All forms share it."""
        width, n_classes = padded(self.features.n_labels), len(self.classes[0]) - 1
        return np.empty((self.packing.n_shards, n_classes, width, width))


class Form:
    """One way of inference on a chain; see above."""

    offers: tuple[str, ...] = ("counts",)
    batch = Batch

    def __init__(self, problem):
        self.problem = problem

    def work(self, work):
        """The `Work` of one thread that this form needs, sharing the arrays of `work`."""
        return self.batch.needs(work, self.problem.packing, self.problem.features.n_labels)

    def prepare(self, w, what):
        """Take the weights w (F,) for sums of `what`."""
        raise NotImplementedError

    def run(self, what, shard, w, dense, work, counts):
        """Sums of one shard: those of nodes into counts (a `Counts`), those of transitions are kept.

        w, dense : the weights (F,), and those of frequent attributes as rows (H, M or L)
        Returns the packed number of the first sequence without a finite log Z, or -1.
        """
        raise NotImplementedError

    def collect(self, total):
        """Add what all shards found into the edge part of total (F,)."""
        raise NotImplementedError


def squared(layout):
    """The layout with the squares of its values, which sums of variances need."""
    lists = layout.lists and layout.lists._replace(attr_val=layout.lists.attr_val**2)
    return layout._replace(dense_val=layout.dense_val**2, pair_val=layout.pair_val**2, lists=lists)


def shard_counts(shard, w, dense, edges, packing, layout, work, counts, edge_sum, *, batches, redo):
    """Expected counts of the sequences of one shard; the packed number of the first one without a finite
    log Z, or -1.

    Arguments as in `likelihood_of_batches`.
    batches : that kernel, or the one of another loss. It stops where scaled vectors do not suffice: rarely.
    redo : (batch, edges, log_z (S',), edge_sum) -> None; computes the sums of these sequences in logarithms.
        It is not called by the kernel: what is never called is never compiled.
    """
    b, end = packing.shard_ptr[shard : shard + 2].tolist()
    bad = -1
    while (b := batches(b, shard, w, dense, edges, packing, layout, work, counts, edge_sum)) >= 0:
        batch = Batch(b, packing, work)
        batch_scores(b, w, dense, edges.bounds, packing, layout, batch.log_node)
        redo(batch, edges, counts.log_z, edge_sum)
        bad = batch.first_lost(counts.log_z, bad)
        batch_gradient(b, batch.p_node, packing, layout, counts.dense_grad, counts.grad)
        if (b := b + 1) == end:
            break
    return bad


def shard_variances(shard, w, dense, edges, packing, layout, work, counts, edge_sum):
    """Sums of variances of the sequences of one shard,
    in the places where likelihood_of_batches leaves expected counts; returns -1.

    grad[a, y] = sum_{t: a in x_t} weight x[a]^2 p_node (1 - p_node)
    edge_sum[k, yp, y] = sum_t weight p_edge (1 - p_edge)

    Arguments as there:
        shard : number of the shard
        w : (F,)
        dense : (H, M or L)
        edges, packing, layout, work : as there
    Out:
        counts, edge_sum : (K, M, M), overwritten; log Z is NaN for sequences that need the log form: those
            are left out
    Called once in tens of evaluations, and made of the kernels that those have compiled.
    Source: docs/SPEC.md, A.8 without covariances.
    """
    for out in (counts.grad, counts.dense_grad, edge_sum):
        out[:] = 0.0
    squares, psi_squared, square_sum = squared(layout), edges.psi_edge**2, np.zeros_like(edge_sum)
    for b in packing.batches(shard):
        batch = Batch(b, packing, work)
        batch_scores(b, w, dense, edges.bounds, packing, layout, batch.log_node)
        batch.forward_backward(edges, counts.log_z, edge_sum)
        spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
        each = psi_squared, batch.alpha, batch.log_node, square_sum, work.prev[: len(batch.alpha)], work.pair
        add_edge_sum(b, packing, *each)
        batch_gradient(b, batch.p_node, packing, squares, counts.dense_grad, counts.grad)
    # not where a square exceeds float64
    np.subtract(edge_sum, np.minimum(square_sum, edge_sum), out=edge_sum, where=square_sum < np.inf)
    return -1


class Tables(Form):
    """Transitions as tables (K, M, M), filled from the weights at each evaluation."""

    offers: tuple[str, ...] = ("counts", "variances")
    sums: ClassVar = {
        "counts": partial(shard_counts, batches=likelihood_of_batches, redo=Batch.redo),
        "variances": shard_variances,
    }
    potentials = staticmethod(table_edges)

    def __init__(self, problem):
        super().__init__(problem)
        # allocated before threads ask for it: from Python 3.12 on, a cached property has no lock
        self.parts = problem.edge_parts

    def prepare(self, w, what):
        self.edges = table_edges(self.problem.features, w, *self.problem.classes, self.problem.bounds)

    def run(self, what, shard, w, dense, work, counts):
        problem = self.problem
        given = shard, w, dense, self.edges, problem.packing, problem.layout
        return self.sums[what](*given, work, counts, self.parts[shard])

    def collect(self, total):
        problem = self.problem
        n_labels, edge_sum = problem.features.n_labels, add_tree(self.parts)
        edge_gradient(problem.features, edge_sum[:, :n_labels, :n_labels], *problem.classes, total)
