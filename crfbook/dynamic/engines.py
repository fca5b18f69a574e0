"""How a dynamic CRF is computed with: exact engines, approximate ones, and the choice between them.

elimination    chains with potentials between neighbouring labels, by matrix products        exact
junction       junction trees: any template whose largest clique is small enough             exact
block          belief propagation, each chain at once                                        approximate
sweep, random, tree, residual, sync    belief propagation message by message                 approximate
mean-field     chains that know each other's marginals: a lower bound of log Z               approximate
"""

from __future__ import annotations

import numpy as np

from crfbook.dynamic.blocks import ChainBlocks, block_chains
from crfbook.dynamic.forms import Elimination, JunctionTrees, elimination_rows
from crfbook.dynamic.junction import LIMIT, tree_plan
from crfbook.dynamic.loopy import BLOCKS, SCHEDULES
from crfbook.dynamic.propagation import Propagation

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
