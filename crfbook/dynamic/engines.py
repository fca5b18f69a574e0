"""How a dynamic CRF is computed with: exact engines, approximate ones, and the choice between them.

elimination    chains with potentials between neighbouring labels, by matrix products        exact
junction       junction trees: any template whose largest clique is small enough             exact
block          belief propagation, each chain at once                                        approximate
sweep, random, tree, residual, sync    belief propagation message by message                 approximate
mean-field     chains that know each other's marginals: a lower bound of log Z               approximate

Dynamic CRFs by belief propagation, behind the port of chain/forms.py: sums are approximate, and cheap.

`Propagation` sends messages along any template, and along links between tokens that are far apart (skip
chains). A batch of sentences is one graph; sentences that have converged are left alone.
"""

from __future__ import annotations

import numpy as np

from crfbook.dynamic.blocks import ChainBlocks, block_chains
from crfbook.dynamic.forms import Elimination, JunctionTrees, elimination_rows
from crfbook.dynamic.graphs import by_sentence, layout_graph, rows_counts, rows_scores
from crfbook.dynamic.junction import LIMIT, tree_plan
from crfbook.dynamic.loopy import BLOCKS, SCHEDULES, propagate


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
    """For each batch {number of a table: int64 (E, 2)}, tokens as `GraphRows` counts them."""
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


EXACT = {"elimination": Elimination, "junction": JunctionTrees}
FORMS = {**EXACT, **dict.fromkeys(BLOCKS, ChainBlocks), **dict.fromkeys(SCHEDULES, Propagation)}
ROWS = {"junction": 512, "block": 1024, "mean-field": 1024}  # of a batch
GRAPH_ROWS = 4096


def check_engine(layout, corpus, engine, limit=LIMIT):
    """The name of an engine; ValueError where it cannot do this template, before a table is made.

    engine : a name of `FORMS`; "exact" is the faster exact one that can, "auto" an approximate one where none
    can. Of junction trees, those of all lengths in the corpus are planned: that of a long sequence can have a
    wider clique.
    """
    if engine == "auto":
        try:
            return check_engine(layout, corpus, "exact", limit)
        except ValueError:
            return "tree" if block_chains(layout) else "block"
    cells = int(np.prod(layout.sizes, dtype=np.float64)) if layout.axes else 0
    if engine == "exact":
        engine = "elimination" if 0 < cells <= limit else "junction"
    if engine == "elimination" and cells > limit:
        raise ValueError(
            f"engine='elimination': expected at most {limit:,} joint labels of all chains, got {cells:,}"
        )
    if engine == "elimination" and not layout.axes:
        raise ValueError(
            "engine='elimination': expected potentials between neighbouring labels of chains, got a template "
            "with others; 'junction' takes any"
        )
    if engine == "junction":
        for n_steps in np.unique(corpus.lengths[corpus.lengths > 0])[::-1].tolist():
            tree_plan(layout, n_steps, limit)
    if engine in BLOCKS and (why := block_chains(layout, engine)):
        raise ValueError(f"inference={engine!r}: {why}; 'tree' takes any template")
    return engine


def engines_of(layout):
    """Names of the engines that can do a template, if it is small enough."""
    refused = {"elimination": not layout.axes, "junction": any(table.linked for table in layout.tables)}
    refused |= {name: block_chains(layout, name) for name in BLOCKS}
    return [name for name in FORMS if not refused.get(name)]


def engine_cost(layout, corpus, engine, limit=LIMIT):
    """What inference costs, in one line, from sizes alone."""
    sizes = layout.sizes
    joint = f"{' x '.join(map(str, sizes))} labels"
    if engine == "elimination":
        steps = int(np.prod(sizes, dtype=np.int64)) * sum(sizes)
        return f"{joint}: elimination, {steps:,} products a token forward"
    if engine == "junction":
        plan = tree_plan(layout, max(1, corpus.longest), limit)
        cells = f"cliques of up to {int(plan.largest):,} cells, {int(plan.cells):,} for the longest sequence"
        return f"{joint}: junction trees, {cells}"
    pairs = sum(2 * table.size for table in layout.tables if len(table.at) > 1)
    return f"{joint}: {engine}, an approximation, about {pairs:,} products a token and sweep"


def make_form(problem, layout, label_sets, limit, engine, options, links):
    """The form of an engine. options : of `check_options`; links : of `linked_tables`; for approximations."""
    form = FORMS[engine]
    if engine in EXACT:
        return form(problem, layout, label_sets, limit)
    return form(problem, layout, label_sets, limit, options._replace(schedule=engine), links)


def batch_rows(layout, engine):
    """Rows of a batch."""
    return elimination_rows(layout) if engine == "elimination" else ROWS.get(engine, GRAPH_ROWS)


def linked_tables(layout, corpus):
    """{number of a table: int64 (E, 2), tokens}: pairs of linked tokens, for cliques that join them."""
    return {i: corpus.linked for i, table in enumerate(layout.tables) if table.linked}
