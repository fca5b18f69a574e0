"""What an `Objective` does with sparse transitions: the stages of chain/likelihood.py, batch by batch.

Here the stages are separate kernels. A batch of thousands of rows takes milliseconds, the calls from Python
some 0.1 ms, and the rare ones (digits lost, the log domain) are compiled only where they are needed.
"""

import numpy as np

from crfbook.chain.batch import Batch, shard_curvature, squared
from crfbook.chain.curvature import spread_rows
from crfbook.chain.forward_backward import node_marginals_log
from crfbook.chain.likelihood import add_tree, batch_gradient, batch_scores, gather_sequence
from crfbook.chain.potentials import padded
from crfbook.chain.sparse.choice import class_pairs, counts_as_tables
from crfbook.chain.sparse.counts import base_counts, edge_counts, recount
from crfbook.chain.sparse.forward_backward import sparse_backward, sparse_forward
from crfbook.chain.sparse.log_form import sparse_log_backward, sparse_log_forward
from crfbook.chain.sparse.potentials import sparse_edges


class SparseBatch(Batch):
    """A batch whose transitions are a `SparseEdges`; its work is that of `sparse_work`."""

    def forward_backward(self, edges, log_z, n_products):
        """How many sequences are flagged. log_node (scores) becomes v, p_node weight (B,) times marginals;
        see `sparse_backward`.
        """
        chain, spare = (*self.place, edges, self.log_node), (self.work, n_products)
        n_flagged = sparse_forward(*chain, log_z[self.slots], *spare)
        sparse_backward(*chain, self.p_node, *spare)
        return n_flagged

    def redo(self, edges, pairs, counts, log_z):
        """Log-domain forward-backward of the flagged sequences; log_node holds the scores again.
        False if one of them has no path.

        pairs: (edge_ptr, edge_prev, edge_next), counts: (grad, base_sum), see `sparse_log_backward`. A
        sequence without a path has log Z = -inf and adds nothing.
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
                sparse_log_backward(*chain, weight, *pairs, log_beta[:n], *counts, table)
                node_marginals_log(log_alpha[:n], log_beta[:n], found, p[:n])
                self.p_node[rows[:n]] = weight * p[:n]
        return np.isfinite(log_z[self.slots]).all()


class SparseTransitions:
    """The transitions of an `Objective` in sparse form; what TableTransitions is for tables.

    n_products : int64 (n_shards, 2), products with entries of the last evaluation, forward and backward.
    """

    def __init__(self, features, classes, bounds, packing):
        self.features, self.classes, self.bounds = features, classes, bounds
        n_shards, width = packing.n_shards, padded(features.n_labels)
        self.edge_parts = np.empty((n_shards, features.n_edge))
        self.base_parts = np.empty((n_shards, width, width))
        self.n_products = np.zeros((n_shards, 2), np.int64)
        rows = np.diff(packing.class_start, axis=1)
        pairs = class_pairs(features, *classes)
        self.whole = int(counts_as_tables(features, rows.sum(axis=0), np.count_nonzero(rows), pairs))
        self.pairs = features.edge_ptr, features.edge_prev, features.edge_next

    def prepare(self, w, kernel):
        """Take the weights w (F,) for `kernel`."""
        self.edges = sparse_edges(self.features, w, *self.classes, self.bounds)
        if kernel is shard_curvature:  # whose squares of potentials are the potentials of twice the weights
            twice = sparse_edges(self.features, 2.0 * w, *self.classes, self.bounds)
            # exp(2 WIDE) is a number: what counted is taken off again
            self.squared = twice._replace(wide=self.edges.wide)

    def run(self, kernel, shard, w, dense, packing, layout, work, counts):
        """One shard; `kernel` is shard_likelihood or shard_curvature: what is found is what that finds,
        with sparse transitions.
        """
        edge_sums = self.edge_parts[shard], self.base_parts[shard]
        for out in (counts.grad, counts.dense_grad, *edge_sums, self.n_products[shard]):
            out[:] = 0
        run = self._curvature if kernel is shard_curvature else self._likelihood
        return run(shard, (w, dense, self.edges.bounds, packing, layout), work, counts, edge_sums)

    def _likelihood(self, shard, given, work, counts, edge_sums):
        """Expected counts of one shard; the packed number of the first sequence without a finite log Z,
        or -1. given: (w, dense, bounds, packing, layout).

        Source: Sokolovska et al. (2010), eq. (4), (5), (9).
        """
        bad, (*_, packing, layout) = -1, given
        for b in packing.batches(shard):
            batch = SparseBatch(b, packing, work)
            batch_scores(b, *given, batch.log_node)
            n_flagged = batch.forward_backward(self.edges, counts.log_z, self.n_products[shard])
            self.add_edge_counts(batch, self.edges, edge_sums)
            if n_flagged:
                batch_scores(b, *given, batch.log_node)
                whole = batch.redo(self.edges, self.pairs, edge_sums, counts.log_z)
                if bad < 0 and not whole:
                    bad = int(batch.slots.start + np.argmin(np.isfinite(counts.log_z[batch.slots])))
            batch_gradient(b, batch.p_node, layout, counts.dense_grad, counts.grad)
        return bad

    def _curvature(self, shard, given, work, counts, edge_sums):
        """Sums of variances where `_likelihood` leaves expected counts; -1.
        Sequences that need the log form are left out.

        The sum of p_edge^2 has the form of an expected count, with alpha^2, v^2 and exp(2 weights).
        """
        squares, (*_, packing, layout) = tuple(np.zeros_like(part) for part in edge_sums), given
        layout = squared(layout)
        for b in packing.batches(shard):
            batch = SparseBatch(b, packing, work)
            batch_scores(b, *given, batch.log_node)
            batch.forward_backward(self.edges, counts.log_z, self.n_products[shard])
            self.add_edge_counts(batch, self.edges, edge_sums)
            spread_rows(batch.step_ptr, batch.weight, batch.p_node, batch.alpha, batch.log_node)
            self.add_edge_counts(batch, self.squared, squares)
            batch_gradient(b, batch.p_node, layout, counts.dense_grad, counts.grad)
        for count, square in zip(edge_sums, squares, strict=True):
            count -= np.minimum(count, square)
        return -1

    def add_edge_counts(self, batch, edges, out):
        """Add the expected counts of a batch to out = (grad (n_edge,), base_sum (M, M))."""
        chain = *batch.place, edges, batch.log_node
        if self.features.edge_ptr[1] > 0 and not self.whole:
            if base_counts(*chain, batch.work):
                recount(*chain, batch.work)
            np.add(out[1], batch.work.base_sum, out=out[1])
        edge_counts(*chain, *self.pairs, self.whole, *out, batch.work)

    def collect(self, total):
        """Add what all shards found into the edge part of total (F,)."""
        features, n_base = self.features, int(self.features.edge_ptr[1])
        edge_grad, base_sum = np.empty(features.n_edge), np.empty(self.base_parts.shape[1:])
        add_tree(self.edge_parts, edge_grad)
        add_tree(self.base_parts.reshape(len(self.base_parts), -1), base_sum.reshape(-1))
        edge_grad[:n_base] += base_sum[features.edge_prev[:n_base], features.edge_next[:n_base]]
        total[features.n_node :] += edge_grad
