"""What an `Objective` does with sparse transitions: the stages of chain/likelihood.py, batch by batch.

Here the stages are separate kernels. A batch of thousands of rows takes milliseconds, the calls from Python
some 0.1 ms, and the rare ones (digits lost, the log domain) are compiled only where they are needed.
"""

import numpy as np

from crfbook.chain.batch import Batch, shard_curvature
from crfbook.chain.curvature import spread_rows
from crfbook.chain.forward_backward import node_marginals_log
from crfbook.chain.likelihood import add_tree, batch_gradient, batch_scores, gather_sequence
from crfbook.chain.potentials import padded
from crfbook.chain.sparse.choice import class_pairs, counts_as_tables
from crfbook.chain.sparse.counts import base_counts, edge_counts, recount
from crfbook.chain.sparse.forward_backward import sparse_backward, sparse_forward
from crfbook.chain.sparse.log_form import sparse_log_backward, sparse_log_forward
from crfbook.chain.sparse.potentials import sparse_edges
from crfbook.chain.work import Spare


class SparseBatch(Batch):
    """A batch whose transitions are a `SparseEdges`."""

    def forward_backward(self, edges, weight, part, log_z, n_products):
        """How many sequences are flagged. log_node (scores) becomes v, p_node weight (B,) times marginals;
        see `sparse_backward`.
        """
        step = edges, self.row_class, self.step_ptr, self.by_step
        scratch = part[: len(self.gain)], self.buf, self.pair, n_products
        n_flagged = sparse_forward(
            self.log_node, *step, log_z[self.slots], self.flags, self.alpha, self.gain, *scratch
        )
        sparse_backward(self.log_node, *step, weight, self.alpha, self.gain, self.p_node, *scratch)
        return n_flagged

    def redo(self, edges, weight, counts, log_z):
        """Log-domain forward-backward of the flagged sequences; log_node holds the scores again.
        False if one of them has no path.

        counts: (edge_ptr, edge_prev, edge_next, grad, base_sum), see `sparse_log_backward`. A sequence
        without a path has log Z = -inf and adds nothing.
        """
        n_steps, width = len(self.step_ptr) - 1, self.log_node.shape[1]
        rows, classes = np.empty(n_steps, np.int64), np.empty(n_steps, np.int32)
        table = np.empty((1, width, width))
        u, log_alpha, log_beta, p = (np.empty((n_steps, width)) for _ in range(4))
        for r in np.flatnonzero(self.flags):
            n = gather_sequence(r, self.log_node, self.row_class, self.step_ptr, rows, classes, u)
            found = log_z[self.slots.start + r] = sparse_log_forward(
                u[:n], classes, edges, log_alpha[:n], table
            )
            if np.isfinite(found):
                sparse_log_backward(
                    u[:n],
                    classes,
                    edges,
                    log_alpha[:n],
                    weight[r],
                    *counts[:3],
                    log_beta[:n],
                    *counts[3:],
                    table,
                )
                node_marginals_log(log_alpha[:n], log_beta[:n], found, p[:n])
                self.p_node[rows[:n]] = weight[r] * p[:n]
        return np.isfinite(log_z[self.slots]).all()


class SparseTransitions:
    """The transitions of an `Objective` in sparse form; what TableTransitions is for tables.

    n_products : int64 (n_shards, 2), products with entries of the last evaluation, forward and backward.
    """

    def __init__(self, features, classes, bounds, packing, n_workers):
        self.features, self.classes, self.bounds = features, classes, bounds
        n_shards, width = packing.n_shards, padded(features.n_labels)
        self.edge_parts = np.empty((n_shards, features.n_edge))
        self.base_parts = np.empty((n_shards, width, width))
        self.n_products = np.zeros((n_shards, 2), np.int64)
        rows = np.diff(packing.class_start, axis=1)
        pairs = class_pairs(features, *classes)
        self.whole = int(counts_as_tables(features, rows.sum(axis=0), np.count_nonzero(rows), pairs))
        self.layout = features.edge_ptr, features.edge_prev, features.edge_next
        longest = int(np.diff(packing.row_ptr).max(initial=0))
        self.spare = Spare(
            (np.empty((longest, width)), *np.empty((3, width, width))) for _ in range(n_workers)
        )

    def prepare(self, w, kernel):
        """Take the weights w (F,) for `kernel`."""
        self.spare.fill()
        self.edges = sparse_edges(self.features, w, *self.classes, self.bounds)
        if kernel is shard_curvature:  # whose squares of potentials are the potentials of twice the weights
            squared = sparse_edges(self.features, 2.0 * w, *self.classes, self.bounds)
            # exp(2 WIDE) is a number: what counted is taken off again
            self.squared = squared._replace(wide=self.edges.wide)

    def run(self, kernel, shard, w, dense, packing, layout, weight, work, log_z, grad, dense_grad):
        """One shard; `kernel` is shard_likelihood or shard_curvature: what is found is what that finds,
        with sparse transitions.
        """
        counts = self.edge_parts[shard], self.base_parts[shard]
        for out in (grad, dense_grad, *counts, self.n_products[shard]):
            out[:] = 0
        spare = self.spare.get()
        run = self._curvature if kernel is shard_curvature else self._likelihood
        try:
            return run(
                shard, (w, dense), packing, layout, weight, work, spare, log_z, (dense_grad, grad), counts
            )
        finally:
            self.spare.put(spare)

    def _likelihood(self, shard, w, packing, layout, weight, work, spare, log_z, node_counts, counts):
        """Expected counts of one shard; the packed number of the first sequence without a finite log Z,
        or -1.

        Source: Sokolovska et al. (2010), eq. (4), (5), (9).
        """
        bad = -1
        for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
            batch = SparseBatch(b, packing, work)
            batch_scores(b, *w, self.edges, packing, layout, batch.log_node)
            n_flagged = batch.forward_backward(
                self.edges, weight[batch.slots], spare[0], log_z, self.n_products[shard]
            )
            self.add_edge_counts(batch, self.edges, spare, counts)
            if n_flagged:
                batch_scores(b, *w, self.edges, packing, layout, batch.log_node)
                whole = batch.redo(self.edges, weight[batch.slots], (*self.layout, *counts), log_z)
                if bad < 0 and not whole:
                    bad = int(batch.slots.start + np.argmin(np.isfinite(log_z[batch.slots])))
            batch_gradient(b, batch.p_node, layout.dense_val, layout.pair_val, layout, *node_counts)
        return bad

    def _curvature(self, shard, w, packing, layout, weight, work, spare, log_z, node_counts, counts):
        """Sums of variances where `_likelihood` leaves expected counts; -1.
        Sequences that need the log form are left out.

        The sum of p_edge^2 has the form of an expected count, with alpha^2, v^2 and exp(2 weights).
        """
        squares = np.zeros_like(counts[0]), np.zeros_like(counts[1])
        dense_val, pair_val = layout.dense_val * layout.dense_val, layout.pair_val * layout.pair_val
        for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
            batch = SparseBatch(b, packing, work)
            batch_scores(b, *w, self.edges, packing, layout, batch.log_node)
            batch.forward_backward(self.edges, weight[batch.slots], spare[0], log_z, self.n_products[shard])
            self.add_edge_counts(batch, self.edges, spare, counts)
            spread_rows(batch.step_ptr, weight[batch.slots], batch.p_node, batch.alpha, batch.log_node)
            self.add_edge_counts(batch, self.squared, spare, squares)
            batch_gradient(b, batch.p_node, dense_val, pair_val, layout, *node_counts)
        for count, square in zip(counts, squares, strict=True):
            count -= np.minimum(count, square)
        return -1

    def add_edge_counts(self, batch, edges, spare, out):
        """Add the expected counts of a batch to out = (grad (n_edge,), base_sum (M, M)); spare: part (n,
        M) and three (M, M), work.
        """
        chain, (_, counts, whole, table) = (batch.alpha, batch.log_node, edges, *batch.by), spare
        if self.features.edge_ptr[1] > 0 and not self.whole:
            if base_counts(*chain, counts, whole, batch.buf, batch.pair, table):
                recount(*chain, whole, counts, table)
            np.add(out[1], counts, out=out[1])
        edge_counts(*chain, *self.layout, self.whole, *out, batch.buf, batch.pair, table)

    def collect(self, total):
        """Add what all shards found into the edge part of total (F,)."""
        features, n_base = self.features, int(self.features.edge_ptr[1])
        edge_grad, base_sum = np.empty(features.n_edge), np.empty(self.base_parts.shape[1:])
        add_tree(self.edge_parts, edge_grad)
        add_tree(self.base_parts.reshape(len(self.base_parts), -1), base_sum.reshape(-1))
        edge_grad[:n_base] += base_sum[features.edge_prev[:n_base], features.edge_next[:n_base]]
        total[features.n_node :] += edge_grad
