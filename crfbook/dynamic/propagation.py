"""Dynamic CRFs by belief propagation, behind the port of chain/forms.py: sums are approximate, and cheap.

`Propagation` sends messages along any template, and along links between tokens that are far apart (skip
chains). A batch of sentences is one graph; sentences that have converged are left alone.
"""

from __future__ import annotations

import numpy as np

from crfbook.dynamic.forms import JunctionTrees
from crfbook.dynamic.graphs import by_sentence, layout_graph, rows_counts, rows_scores
from crfbook.dynamic.loopy import propagate


class Propagation(JunctionTrees):
    """Beliefs in the place of marginals, the Bethe approximation in that of log Z.

    options : of `check_options`. Random orders are those of (seed, batch).
    links : {number of a table in layout.tables: int64 (E, 2), tokens of the corpus}. Such a table joins the
        label of chain at[0] of the first token with that of chain at[1] of the second one. What its scores
        owe to the text is that of the second token.
    stats : int64 (shards, 4), of the last evaluation: sequences, those that did not converge, sweeps summed
        over sequences, messages.
    """

    def __init__(self, problem, layout, label_sets, limit, options, links=None):
        super().__init__(problem, layout, label_sets, limit)
        self.options = options
        self.stats = np.zeros((max(1, problem.packing.n_shards), 4), np.int64)
        self.links = links_of_batches(problem.packing, links)

    def prepare(self, w, what):
        super().prepare(w, what)
        self.stats[:] = 0

    def begin(self):
        return np.zeros(self.layout.n_tables)

    def batch_sums(self, batch, work, log_z, sums):
        b, packing = batch.place
        rows = layout_graph(self.layout, by_sentence(batch.step_ptr), len(log_z), self.links[b])
        scores = rows_scores(self.layout, rows, self.tables, batch.log_node)
        found = propagate(rows.graph, *scores, self.options, batch.weight, stream=b)
        log_z[:] = found.log_z
        rows_counts(self.layout, rows, batch.weight, found.p_var, found.p_table, batch.p_node, sums)
        shard = np.searchsorted(packing.shard_ptr, b, side="right") - 1
        failed = len(log_z) - np.count_nonzero(found.converged)
        self.stats[shard] += len(log_z), failed, found.sweeps.sum(), found.n_messages
        return False

    def finish(self, sums, part):
        part += sums


def links_of_batches(packing, links):
    """For each batch {number of a table: int64 (E, 2)}, tokens as `Rows` counts them."""
    out = [{} for _ in range(packing.n_batches)]
    if not links:
        return out
    n = len(packing.row_token)
    batch, place = np.zeros((2, n), np.int64)
    for b in range(packing.n_batches):
        row, _, _ = by_sentence(packing.steps(b))
        token = packing.row_token[packing.rows(b)][row]
        batch[token], place[token] = b, np.arange(len(row))
    for number, pairs in links.items():
        order = np.argsort(batch[pairs[:, 0]], kind="stable")
        pairs, cuts = pairs[order], np.arange(packing.n_batches + 1)
        cuts = np.searchsorted(batch[pairs[:, 0]], cuts)
        for b in range(packing.n_batches):
            out[b][number] = place[pairs[cuts[b] : cuts[b + 1]]]
    return out
