"""The forms with sparse transitions: the stages of chain/likelihood.py, batch by batch.

`SparsePairs` knows any number of edge classes. `DefaultPairs` knows one, and is made for hundreds of labels.

Python calls each stage, a kernel of its own. For a batch of thousands of rows the calls take 0.1 ms of some
milliseconds. A kernel that only some data need (lost digits, the log domain) is compiled when it is first
called.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.forms import Form, squared
from crfbook.chain.likelihood import (
    Batch,
    add_tree,
    batch_gradient,
    batch_scores,
    lane_work,
    sparse_work,
    spread_rows,
)
from crfbook.chain.numpy_form import shares
from crfbook.chain.packing import padded
from crfbook.chain.sparse.choice import class_pairs, counts_as_tables
from crfbook.chain.sparse.forward_backward import (
    base_counts,
    edge_counts,
    recount,
    sparse_backward,
    sparse_forward,
)
from crfbook.chain.sparse.lanes import LANES, default_log_sums, lanes_forward_backward
from crfbook.chain.sparse.potentials import (
    DefaultSums,
    class_scores,
    default_edges,
    default_scores,
    sparse_edges,
    with_scores,
)


class Stages(Form):
    """A form whose stages are separate kernels. `batch` is its class of batches, `edges` its potentials."""

    offers = ("counts", "variances")

    def run(self, what, shard, w, dense, work, counts):
        packing, layout = self.problem.packing, self.problem.layout
        sums, bad = self.begin(what, shard), -1
        counts.grad[:], counts.dense_grad[:] = 0.0, 0.0
        given = w, dense, self.edges.bounds, packing, layout
        values = squared(layout) if what == "variances" else layout
        for b in packing.batches(shard):
            batch = self.batch(b, packing, work)
            batch_scores(b, *given, batch.log_node)
            n_flagged = self.batch_sums(what, batch, counts.log_z, sums)
            if n_flagged and what == "counts":  # variances leave out sequences that need the log form
                batch_scores(b, *given, batch.log_node)
                self.redo(batch, counts.log_z, sums)
                bad = batch.first_lost(counts.log_z, bad)
            batch_gradient(b, batch.p_node, packing, values, counts.dense_grad, counts.grad)
        self.end(what, sums)
        return bad

    def begin(self, what, shard):
        """What the sums for transitions of one shard are added to."""
        raise NotImplementedError

    def batch_sums(self, what, batch, log_z, sums):
        """Fill p_node and log_z of a batch from its scores, and add to sums; returns how many sequences are
        flagged.
        """
        raise NotImplementedError

    def redo(self, batch, log_z, sums):
        """The flagged sequences of a batch in logarithms; its log_node holds the scores again."""
        batch.redo(self.edges, log_z, sums)

    def end(self, what, sums):
        """Called when all batches of a shard are done."""


class PairSums(NamedTuple):
    """What one shard finds for the transitions."""

    grad: np.ndarray  # (n_edge,): of the weights, plain transitions left out
    base_sum: np.ndarray  # (M, M): of plain transitions
    n_products: np.ndarray  # int64 (2,): products with stored pairs, forward and backward
    pairs: tuple | None = None  # (edge_ptr, edge_prev, edge_next) of the weights; None: no counts are wanted


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

    @staticmethod
    @np.errstate(invalid="ignore")
    def log_sums(edges, log_node, edge_class, weight, sums):
        """As in `Batch`. One class at a time has a table."""
        log_alpha, log_beta = log_node.copy(), np.zeros_like(log_node)
        for t in range(1, len(log_node)):
            table = log_alpha[t - 1, :, None] + class_scores(edges, edge_class[t])
            log_alpha[t] += np.logaddexp.reduce(table, axis=0)
        log_z = np.logaddexp.reduce(log_alpha[-1])
        if not np.isfinite(log_z):
            return log_z, log_beta
        for t in range(len(log_node) - 1, 0, -1):
            after = class_scores(edges, edge_class[t]) + log_node[t] + log_beta[t]
            log_beta[t - 1] = np.logaddexp.reduce(after, axis=1)
            if sums.pairs:
                p_edge = weight * shares(log_alpha[t - 1, :, None] + after, (0, 1))
                _add_class(edges.active, edge_class[t], p_edge, sums)
        return log_z, weight * shares(log_alpha + log_beta, 1)


def _add_class(active, k, p_edge, sums):
    """Add pair marginals (M, M) of class k to the counts of its weights."""
    edge_ptr, edge_prev, edge_next = sums.pairs
    np.add(sums.base_sum, p_edge, out=sums.base_sum)
    for b in active.class_attr[active.class_ptr[k] : active.class_ptr[k + 1]]:
        if 0 < b < len(edge_ptr) - 1:
            some = slice(edge_ptr[b], edge_ptr[b + 1])
            sums.grad[some] += p_edge[edge_prev[some], edge_next[some]]


class SparsePairs(Stages):
    """Transitions as the pairs of labels that have a weight; all others have potential 1."""

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
            # exp(2 WIDE) is finite: what it adds is subtracted again
            self.squared = twice._replace(wide=self.edges.wide)

    def begin(self, what, shard):
        """(`PairSums`, `PairSums` of squares)."""
        sums = PairSums(*(part[shard] for part in self.parts[:3]), self.pairs)
        for part in sums[:3]:
            part[:] = 0
        return sums, PairSums(*map(np.zeros_like, sums[:3])) if what == "variances" else None

    def batch_sums(self, what, batch, log_z, sums):
        """The sum of p_edge^2 has the form of an expected count, with alpha^2, v^2 and exp(2 weights)."""
        sums, squares = sums
        n_flagged = batch.forward_backward(self.edges, log_z, sums)
        self.add_counts(batch, self.edges, sums)
        if squares:
            spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
            self.add_counts(batch, self.squared, squares)
        return n_flagged

    def redo(self, batch, log_z, sums):
        batch.redo(self.edges, log_z, sums[0])

    def end(self, what, sums):
        if what == "variances":
            for count, square in zip(*(each[:2] for each in sums), strict=True):
                count -= np.minimum(count, square)

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
        features, n_base = self.problem.features, int(self.problem.features.edge_ptr[1])
        edge_grad, base_sum = add_tree(self.parts.grad), add_tree(self.parts.base_sum)
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

    @staticmethod
    def log_sums(edges, log_node, edge_class, weight, sums):
        """As in `Batch`, see `default_log_sums`."""
        p_node = np.empty_like(log_node)
        return default_log_sums(log_node, edges, weight, p_node, sums.count), p_node


def default_sums(n_pairs, squares=False):
    """`DefaultSums` of zeros."""
    return DefaultSums(np.zeros(n_pairs), np.zeros(n_pairs if squares else 0), np.zeros(n_pairs))


def _default_potentials(features, w, class_ptr, class_attr, bounds):
    return default_edges(default_scores(features, w, class_ptr, class_attr, bounds), bounds)


class DefaultPairs(Stages):
    """Transitions of one edge class as a default, potential 1, and the pairs of labels that have a weight."""

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

    def begin(self, what, shard):
        return self.parts[shard]

    def batch_sums(self, what, batch, log_z, sums):
        n_flagged = batch.forward_backward(self.edges, log_z, sums)
        if what == "variances":
            spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
        return n_flagged

    def collect(self, total):
        # neighbours first: the sum does not depend on which thread computed which part
        product, square, count = (add_tree(np.stack(part)) for part in zip(*self.parts, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):  # 0 inf where nothing was added
            psi = np.exp(self.edges.scores.score)
            expected = count + np.where(product == 0.0, 0.0, product * psi)
            if len(square):
                expected -= np.minimum(expected, np.where(square == 0.0, 0.0, square * psi**2))
        total[self.problem.features.n_node + self.weight_of] += expected
