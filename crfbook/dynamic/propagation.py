"""Dynamic CRFs by belief propagation, behind the port of chain/forms.py: sums are approximate, and cheap.

`Propagation` sends messages along any template, and along links between tokens that are far apart (skip
chains). A batch of sentences is one graph; sentences that have converged are left alone.
"""

from __future__ import annotations

import numpy as np

from crfbook.dynamic.forms import JunctionTrees
from crfbook.dynamic.graphs import by_sentence, layout_graph, rows_counts, rows_scores
from crfbook.dynamic.loopy import check_options, propagate


class Propagation(JunctionTrees):
    """Beliefs in the place of marginals, the Bethe approximation in that of log Z.

    schedule, tol, max_sweeps, damping, seed : see `check_options`. Random orders are those of (seed, batch).
    links : {number of a table in layout.tables: int64 (E, 2), tokens of the corpus}. Such a table joins the
        label of chain at[0] of the first token with that of chain at[1] of the second one. What its scores
        owe to the text is that of the second token.
    stats : int64 (shards, 4), of the last evaluation: sequences, those that did not converge, sweeps summed
        over sequences, messages.
    """

    def __init__(
        self, problem, layout, label_sets, limit, *, schedule="tree", tol=1e-3, max_sweeps=1000, damping=0.0,
        seed=0, links=None,
    ):  # fmt: skip
        super().__init__(problem, layout, label_sets, limit)
        self.options = check_options(schedule, tol, max_sweeps, damping, seed)
        self.stats = np.zeros((max(1, problem.packing.n_shards), 4), np.int64)
        self.links = links_of_batches(layout, problem.packing, links)

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


def links_of_batches(layout, packing, links):
    """For each batch {number of a table: int64 (E, 2)}, tokens as `Rows` counts them; ValueError where links
    cannot be.
    """
    out = [{} for _ in range(packing.n_batches)]
    if not links:
        return out
    n = len(packing.row_token)
    batch, sentence, place = np.zeros((3, n), np.int64)
    for b in range(packing.n_batches):
        row, r, _ = by_sentence(packing.steps(b))
        token = packing.row_token[packing.rows(b)][row]
        batch[token], sentence[token], place[token] = b, packing.slot_ptr[b] + r, np.arange(len(row))
    for number, pairs in links.items():
        pairs = check_links(layout, number, pairs, sentence)
        order = np.argsort(batch[pairs[:, 0]], kind="stable")
        pairs, cuts = pairs[order], np.arange(packing.n_batches + 1)
        cuts = np.searchsorted(batch[pairs[:, 0]], cuts)
        for b in range(packing.n_batches):
            out[b][number] = place[pairs[cuts[b] : cuts[b + 1]]]
    return out


def check_links(layout, number, pairs, sentence):
    """Links as an array; ValueError naming the first one that cannot be. sentence (N,): of each token."""
    if not 0 <= number < len(layout.tables) or len(layout.tables[number].at) != 2:
        raise ValueError(f"links: expected the number of a table of two labels, got {number}")
    table, pairs = layout.tables[number], np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind != "i":
        raise ValueError(
            f"links of {table.name}: expected pairs of tokens, int (E, 2), got {pairs.dtype} {pairs.shape}"
        )
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(sentence)):
        bad = pairs[((pairs < 0) | (pairs >= len(sentence))).any(axis=1)][0]
        raise ValueError(f"links of {table.name}: expected tokens below {len(sentence)}, got {bad.tolist()}")
    same = table.at[0][1] == table.at[1][1]
    bad = sentence[pairs[:, 0]] != sentence[pairs[:, 1]]
    bad |= same & (pairs[:, 0] == pairs[:, 1])
    if bad.any():
        raise ValueError(
            f"links of {table.name}: expected two tokens of one sequence, "
            f"got {pairs[np.argmax(bad)].tolist()}"
        )
    key = np.sort(pairs, axis=1) if same else pairs
    _, first, count = np.unique(key, axis=0, return_index=True, return_counts=True)
    if (count > 1).any():
        raise ValueError(
            f"links of {table.name}: expected each pair of tokens once, "
            f"got {pairs[first[count > 1][0]].tolist()} twice"
        )
    return pairs
