"""The forms with sparse transitions: the stages of chain/likelihood.py, batch by batch.

`SparsePairs` knows any number of edge classes. `DefaultPairs` knows one, and is made for hundreds of labels.

Here the stages are separate kernels. A batch of thousands of rows takes milliseconds, the calls from Python
some 0.1 ms, and the rare ones (digits lost, the log domain) are compiled only where they are needed.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.forms import Form, squared
from crfbook.chain.forward_backward import node_marginals_log
from crfbook.chain.likelihood import (
    Batch,
    add_tree,
    batch_gradient,
    batch_scores,
    gather_sequence,
    lane_work,
    sparse_work,
    spread_rows,
)
from crfbook.chain.packing import padded
from crfbook.chain.sparse.choice import class_pairs, counts_as_tables
from crfbook.chain.sparse.counts import (
    base_counts,
    edge_counts,
    recount,
    sparse_log_backward,
    sparse_log_forward,
)
from crfbook.chain.sparse.forward_backward import sparse_backward, sparse_forward
from crfbook.chain.sparse.lanes import (
    LANES,
    default_log_backward,
    default_log_forward,
    lanes_forward_backward,
)
from crfbook.chain.sparse.potentials import (
    DefaultSums,
    default_edges,
    default_scores,
    sparse_edges,
    with_scores,
)

_NO_PAIRS = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)


class PairSums(NamedTuple):
    """What one shard finds for the transitions."""

    grad: np.ndarray  # (n_edge,): of the weights, plain transitions left out
    base_sum: np.ndarray  # (M, M): of plain transitions
    n_products: np.ndarray  # int64 (2,): products with stored pairs, forward and backward


class SparseBatch(Batch):
    """A batch whose transitions are a `SparseEdges`."""

    @staticmethod
    def needs(work, packing, n_labels):
        return sparse_work(work)

    @staticmethod
    def no_sums(edges):
        return PairSums(np.zeros(0), np.zeros_like(edges.base), np.zeros(2, np.int64))

    def forward_backward(self, edges, log_z, sums):
        """How many sequences are flagged. log_node (scores) becomes v, p_node weight (B,) times marginals;
        see `sparse_backward`. Of the sums products are counted; `SparsePairs.add_counts` does the others.
        """
        chain, spare = (*self.place, edges, self.log_node), (self.work, sums.n_products)
        n_flagged = sparse_forward(*chain, log_z[self.slots], *spare)
        sparse_backward(*chain, self.p_node, *spare)
        return n_flagged

    def redo(self, edges, log_z, sums, pairs=_NO_PAIRS):
        """Log-domain forward-backward of the flagged sequences; log_node holds the scores again.

        pairs : (edge_ptr, edge_prev, edge_next) of the weights whose counts sums.grad gets
        A sequence without a path has log Z = -inf and adds nothing.
        """
        n_steps, width = len(self.step_ptr) - 1, self.log_node.shape[1]
        rows, classes = np.empty(n_steps, np.int64), np.empty(n_steps, np.int32)
        table = np.empty((1, width, width))
        u, log_alpha, log_beta, p = (np.empty((n_steps, width)) for _ in range(4))
        for r in np.flatnonzero(self.flags):
            n = gather_sequence(r, self.log_node, self.row_class, self.step_ptr, rows, classes, u)
            chain, weight = (u[:n], classes[:n], edges, log_alpha[:n]), self.weight[r]
            found = log_z[self.slots.start + r] = sparse_log_forward(*chain, table)
            if np.isfinite(found):
                sparse_log_backward(*chain, weight, *pairs, log_beta[:n], *sums[:2], table)
                node_marginals_log(log_alpha[:n], log_beta[:n], found, p[:n])
                self.p_node[rows[:n]] = weight * p[:n]


class SparsePairs(Form):
    """Transitions as the pairs of labels that have a weight; all others have potential 1."""

    offers = ("counts", "variances")
    batch = SparseBatch
    potentials = staticmethod(sparse_edges)

    def __init__(self, problem):
        super().__init__(problem.grouped())
        features, packing = problem.features, self.problem.packing
        n_shards, width = packing.n_shards, padded(features.n_labels)
        self.parts = PairSums(
            np.empty((n_shards, features.n_edge)),
            np.empty((n_shards, width, width)),
            np.zeros((n_shards, 2), np.int64),
        )
        rows, pairs = np.diff(packing.groups.class_start, axis=1), class_pairs(features, *problem.classes)
        self.whole = int(counts_as_tables(features, rows.sum(axis=0), np.count_nonzero(rows), pairs))
        self.pairs = features.edge_ptr, features.edge_prev, features.edge_next

    def prepare(self, w, what):
        features, classes, bounds = self.problem.features, self.problem.classes, self.problem.bounds
        self.edges = sparse_edges(features, w, *classes, bounds)
        if what == "variances":  # the squares of potentials are the potentials of twice the weights
            twice = sparse_edges(features, 2.0 * w, *classes, bounds)
            # exp(2 WIDE) is a number: what counted is taken off again
            self.squared = twice._replace(wide=self.edges.wide)

    def run(self, what, shard, w, dense, work, counts):
        sums = PairSums(*(part[shard] for part in self.parts))
        for out in (counts.grad, counts.dense_grad, *sums):
            out[:] = 0
        packing, layout = self.problem.packing, self.problem.layout
        given = w, dense, self.edges.bounds, packing, layout
        if what == "variances":
            return self._variances(shard, given, work, counts, sums)
        bad = -1
        for b in packing.batches(shard):
            batch = SparseBatch(b, packing, work)
            batch_scores(b, *given, batch.log_node)
            n_flagged = batch.forward_backward(self.edges, counts.log_z, sums)
            self.add_counts(batch, self.edges, sums)
            if n_flagged:
                batch_scores(b, *given, batch.log_node)
                batch.redo(self.edges, counts.log_z, sums, self.pairs)
                lost = np.flatnonzero(~np.isfinite(counts.log_z[batch.slots]))
                bad = int(batch.slots.start + lost[0]) if bad < 0 and len(lost) else bad
            batch_gradient(b, batch.p_node, packing, layout, counts.dense_grad, counts.grad)
        return bad

    def _variances(self, shard, given, work, counts, sums):
        """Sums of variances where `run` leaves expected counts; -1. Sequences that need the log form are left
        out. The sum of p_edge^2 has the form of an expected count, with alpha^2, v^2 and exp(2 weights).
        """
        squares, (*_, packing, layout) = PairSums(*map(np.zeros_like, sums)), given
        layout = squared(layout)
        for b in packing.batches(shard):
            batch = SparseBatch(b, packing, work)
            batch_scores(b, *given, batch.log_node)
            batch.forward_backward(self.edges, counts.log_z, sums)
            self.add_counts(batch, self.edges, sums)
            spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
            self.add_counts(batch, self.squared, squares)
            batch_gradient(b, batch.p_node, packing, layout, counts.dense_grad, counts.grad)
        for count, square in zip(sums[:2], squares[:2], strict=True):
            count -= np.minimum(count, square)
        return -1

    def add_counts(self, batch, edges, sums):
        """Add the expected counts of a batch to grad and base_sum of sums.
        Source: Sokolovska et al. (2010), eq. (4), (5), (9).
        """
        chain = *batch.place, edges, batch.log_node
        if self.problem.features.edge_ptr[1] > 0 and not self.whole:
            if base_counts(*chain, batch.work):
                recount(*chain, batch.work)
            np.add(sums.base_sum, batch.work.base_sum, out=sums.base_sum)
        edge_counts(*chain, *self.pairs, self.whole, *sums[:2], batch.work)

    def collect(self, total):
        features, parts = self.problem.features, self.parts
        n_base, edge_grad = int(features.edge_ptr[1]), np.empty(features.n_edge)
        base_sum = np.empty(parts.base_sum.shape[1:])
        add_tree(parts.grad, edge_grad)
        add_tree(parts.base_sum.reshape(len(parts.base_sum), -1), base_sum.reshape(-1))
        edge_grad[:n_base] += base_sum[features.edge_prev[:n_base], features.edge_next[:n_base]]
        total[features.n_node :] += edge_grad


class DefaultBatch(Batch):
    """A batch whose transitions are a `DefaultEdges`."""

    @staticmethod
    def needs(work, packing, n_labels):
        longest = max((len(packing.steps(b)) - 1 for b in range(packing.n_batches)), default=0)
        return lane_work(work, longest, n_labels, LANES)

    @staticmethod
    def no_sums(edges):
        return default_sums(len(edges.gain))

    def forward_backward(self, edges, log_z, sums):
        """How many sequences are flagged; see `lanes_forward_backward`."""
        chain = edges, self.log_node, log_z[self.slots], self.p_node
        return lanes_forward_backward(*self.place, *chain, sums, self.work)

    def redo(self, edges, log_z, sums):
        """Log-domain forward-backward of the flagged sequences; log_node holds the scores again."""
        n_steps, width = len(self.step_ptr) - 1, self.log_node.shape[1]
        rows, classes = np.empty(n_steps, np.int64), np.empty(n_steps, np.int32)
        u, log_alpha = np.empty((n_steps, width)), np.empty((n_steps, len(edges.scores.group)))
        p = np.empty_like(log_alpha)
        for r in np.flatnonzero(self.flags):
            n = gather_sequence(r, self.log_node, self.row_class, self.step_ptr, rows, classes, u)
            found = log_z[self.slots.start + r] = default_log_forward(u[:n], edges, log_alpha[:n])
            if np.isfinite(found):
                weight = self.weight[r]
                default_log_backward(u[:n], edges, log_alpha[:n], weight, p[:n], sums.count)
                self.p_node[rows[:n], : p.shape[1]] = p[:n]


def default_sums(n_pairs, squares=False):
    """`DefaultSums` of zeros."""
    return DefaultSums(np.zeros(n_pairs), np.zeros(n_pairs if squares else 0), np.zeros(n_pairs))


def _default_potentials(features, w, class_ptr, class_attr, bounds):
    return default_edges(default_scores(features, w, class_ptr, class_attr, bounds), bounds)


class DefaultPairs(Form):
    """Transitions of one edge class as a default, potential 1, and the pairs of labels that have a weight."""

    offers = ("counts", "variances")
    batch = DefaultBatch
    potentials = staticmethod(_default_potentials)

    def __init__(self, problem):
        super().__init__(problem)
        # which pairs are stored, whatever their weights are, and where: a weight of 0 has a place, too
        features, n_edge = problem.features, problem.features.n_edge
        numbers = np.concatenate([np.zeros(features.n_node), np.arange(1.0, n_edge + 1)])
        scores = default_scores(features, numbers, *problem.classes, problem.bounds)
        self.weight_of = scores.score.astype(np.int64) - 1
        self.edges = default_edges(scores, problem.bounds)
        self.parts = [default_sums(len(self.weight_of)) for _ in range(problem.packing.n_shards)]

    def prepare(self, w, what):
        self.edges = with_scores(self.edges, w[self.problem.features.n_node + self.weight_of])
        squares = what == "variances"
        self.parts = [default_sums(len(self.weight_of), squares) for _ in self.parts]

    def run(self, what, shard, w, dense, work, counts):
        sums, (packing, layout) = self.parts[shard], (self.problem.packing, self.problem.layout)
        counts.grad[:], counts.dense_grad[:], bad = 0.0, 0.0, -1
        given = w, dense, self.edges.bounds, packing, layout
        squares = squared(layout) if what == "variances" else layout
        for b in packing.batches(shard):
            batch = DefaultBatch(b, packing, work)
            batch_scores(b, *given, batch.log_node)
            n_flagged = batch.forward_backward(self.edges, counts.log_z, sums)
            if what == "variances":  # sequences that need the log form are left out
                spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
            elif n_flagged:
                batch_scores(b, *given, batch.log_node)
                batch.redo(self.edges, counts.log_z, sums)
                lost = np.flatnonzero(~np.isfinite(counts.log_z[batch.slots]))
                bad = int(batch.slots.start + lost[0]) if bad < 0 and len(lost) else bad
            batch_gradient(b, batch.p_node, packing, squares, counts.dense_grad, counts.grad)
        return bad

    def collect(self, total):
        # neighbours first, so that the sum does not depend on who computed which part
        product, square, count = (np.stack(part) for part in zip(*self.parts, strict=True))
        sums = [np.zeros(part.shape[1]) for part in (product, square, count)]
        for part, out in zip((product, square, count), sums, strict=True):
            add_tree(part, out)
        with np.errstate(over="ignore", invalid="ignore"):  # 0 inf where nothing was added
            psi = np.exp(self.edges.scores.score)
            expected = sums[2] + np.where(sums[0] > 0.0, sums[0] * psi, 0.0)
            if len(sums[1]):
                expected -= np.minimum(expected, np.where(sums[1] > 0.0, sums[1] * psi**2, 0.0))
        total[self.problem.features.n_node + self.weight_of] += expected
