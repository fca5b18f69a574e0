"""Dynamic CRFs behind the port of chain/forms.py.

`Elimination` is for chains with potentials between neighbours (`axes` of a `Layout`), batch by batch. Where
it would lose digits, and for every other template, there is `JunctionTrees`: sequence by sequence, in
logarithms.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from crfbook.chain.forms import Form
from crfbook.chain.likelihood import Batch, Work, add_tree, batch_gradient, batch_scores
from crfbook.dynamic.elimination import chains_backward, chains_forward
from crfbook.dynamic.junction import sequence_sums
from crfbook.dynamic.layout import log_tables, row_bounds
from crfbook.dynamic.potentials import chain_potentials, chain_sums, chain_work, table_counts

# The arrays of `Work`, and a `ChainWork`.
DynamicWork = namedtuple("DynamicWork", (*Work._fields, "chains"))
BYTES = 8 << 20  # of alpha and what stands between, aimed at


def elimination_rows(layout):
    """Rows of a batch. One sequence where transitions depend on the text: products have no common factor."""
    if any(table.row >= 0 and table.span for table in layout.tables):
        return 1
    cells = float(np.prod(layout.sizes)) * len(layout.sizes)
    return int(np.clip(BYTES / (8 * cells), 64, 4096))


class JunctionTrees(Form):
    """Any template, each sequence in logarithms."""

    def __init__(self, problem, layout, label_sets, limit):
        super().__init__(problem)
        self.layout, self.label_sets, self.limit = layout, label_sets, limit
        self.parts = np.zeros((max(1, problem.packing.n_shards), problem.features.n_edge))

    def prepare(self, w, what):
        self.tables = log_tables(self.layout, self.problem.features, w)
        self.bounds = row_bounds(self.layout, self.tables, self.label_sets)

    def run(self, what, shard, w, dense, work, counts):
        packing, places, part, bad = self.problem.packing, self.problem.layout, self.parts[shard], -1
        counts.grad[:], counts.dense_grad[:], part[:] = 0.0, 0.0, 0.0
        sums = self.begin()
        for b in packing.batches(shard):
            batch = Batch(b, packing, work)
            scores = b, w, dense, self.bounds, packing, places, batch.log_node
            batch_scores(*scores)
            log_z = counts.log_z[batch.slots]
            if self.batch_sums(batch, work, log_z, sums):
                batch_scores(*scores)
            for r in np.flatnonzero(np.isnan(log_z)):
                self.redo(batch, r, log_z, part)
            bad = batch.first_lost(counts.log_z, bad)
            batch_gradient(b, batch.p_node, packing, places, counts.dense_grad, counts.grad)
        self.finish(sums, part)
        return bad

    def begin(self):
        """Sums of a shard."""
        return None

    def batch_sums(self, batch, work, log_z, sums):
        """From batch.log_node, which may be overwritten, log_z (B,) and batch.p_node: weight times marginals
        of all cells of a row. NaN in log_z, and no marginals: sequences for `redo`. Returns whether there are
        some, and the scores are gone. sums: of `begin`; None where log Z alone is wanted.
        """
        batch.p_node[:], log_z[:] = 0.0, np.nan
        return False

    def redo(self, batch, r, log_z, part):
        """Sequence r of a batch in logarithms, from its rows of batch.log_node."""
        rows = batch.rows(r)
        found = sequence_sums(self.layout, self.tables, batch.log_node[rows], self.limit)
        log_z[r] = found.log_z
        batch.p_node[rows] = batch.weight[r] * found.p_row
        part += batch.weight[r] * found.counts

    def finish(self, sums, part):
        """Add the sums of a shard to part (n_tables,)."""

    def collect(self, total):
        add_tree(self.parts, total[self.problem.features.n_node :])


class Elimination(JunctionTrees):
    """Chains with potentials between neighbours: each batch by matrix products."""

    def work(self, work):
        packing = self.problem.packing
        wide = max((int(packing.steps(b)[1]) for b in range(packing.n_batches)), default=0)
        sizes = [self.layout.sizes[chain] for chain in self.layout.axes]
        return DynamicWork(*work, chain_work(sizes, len(work.gain), wide))

    def redo(self, batch, r, log_z, part):
        try:
            super().redo(batch, r, log_z, part)
        except ValueError as error:
            raise ValueError(
                f"scores too far apart for elimination need junction trees, but {error} (max_cells)"
            ) from None

    def prepare(self, w, what):
        super().prepare(w, what)
        self.chains = chain_potentials(self.layout, self.tables)

    def begin(self):
        return chain_sums(self.chains), np.zeros(len(self.bounds.middle))

    def batch_sums(self, batch, work, log_z, sums):
        step_ptr, chains = batch.step_ptr, self.chains
        lost = chains_forward(step_ptr, chains, batch.log_node, log_z, batch.flags, work.chains)
        if lost:
            erase(step_ptr, chains, np.flatnonzero(batch.flags), batch.log_node, work.chains)
            log_z[batch.flags > 0] = np.nan
        if sums is None:
            return lost > 0
        chains_backward(step_ptr, batch.weight, chains, batch.log_node, batch.p_node, sums[0], work.chains)
        sums[1][:] += batch.p_node.sum(axis=0)
        return lost > 0

    def finish(self, sums, part):
        table_counts(self.layout, self.chains, *sums, part)


def erase(step_ptr, chains, flagged, psi, work):
    """Sequences that need the log form are emptied, so that they add nothing anywhere."""
    last, n_cells = chains.size[-1], len(chains.psi_beside)
    for lo, hi in zip(step_ptr[:-1].tolist(), step_ptr[1:].tolist(), strict=True):
        here = flagged[flagged < hi - lo]
        work.gain[lo + here], psi[lo + here] = 0.0, 0.0
        for array in (work.alpha, *work.between):
            array[lo * n_cells : hi * n_cells].reshape(-1, hi - lo, last)[:, here] = 0.0
