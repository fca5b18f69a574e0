"""Several label chains with potentials between them: dynamic CRFs (chapters 12 and 13).

    Clique, factorial, linear, second_order, memory, hierarchical, skip
                                                                     what a template is made of (templates.py)
    lay_out_template, dynamic_features                               its labels and weights (layout.py)
    DynamicObjective                                                 what training minimises (objective.py)
    DynamicModel, decode, marginals, kbest, max_product              predictions (inference.py)
    factor_graph, propagate, max_marginals, check_options            belief propagation (graphs.py, loopy.py)
    decode_dual                                                      exact by dual decomposition (dual.py)

Two engines are exact. Elimination by matrix products (elimination.py, viterbi.py) takes chains with
potentials between neighbours, junction trees (junction.py) everything else that is small enough. Belief
propagation (loopy.py, sum_product.py) is approximate, and takes any template. Chain blocks (blocks.py,
block_batch.py, block_sweeps.py) update a whole chain at once. `check_engine` (objective.py) chooses.
Source: Sutton, Rohanimanesh and McCallum (2004); docs/SPEC.md, B.1 to B.5.
"""

from crfbook.dynamic.blocks import ChainBlocks
from crfbook.dynamic.graphs import factor_graph, join_tables, split_tables
from crfbook.dynamic.inference import DynamicModel, decode, decode_dual, kbest, marginals, max_product
from crfbook.dynamic.junction import LIMIT
from crfbook.dynamic.layout import check_pair, dynamic_features, lay_out_template, with_tables
from crfbook.dynamic.loopy import OPTIONS, SCHEDULES, check_options, max_marginals, propagate
from crfbook.dynamic.objective import (
    EXACT,
    FORMS,
    DynamicObjective,
    Propagation,
    check_engine,
    check_stored,
    engine_cost,
    is_exact,
)
from crfbook.dynamic.templates import (
    Clique,
    add_memories,
    check_cliques,
    factorial,
    hierarchical,
    linear,
    memories_of,
    memory,
    reads_links,
    second_order,
    skip,
)

__all__ = [
    "EXACT",
    "FORMS",
    "LIMIT",
    "OPTIONS",
    "SCHEDULES",
    "ChainBlocks",
    "Clique",
    "DynamicModel",
    "DynamicObjective",
    "Propagation",
    "add_memories",
    "check_cliques",
    "check_engine",
    "check_options",
    "check_pair",
    "check_stored",
    "decode",
    "decode_dual",
    "dynamic_features",
    "engine_cost",
    "factor_graph",
    "factorial",
    "hierarchical",
    "is_exact",
    "join_tables",
    "kbest",
    "lay_out_template",
    "linear",
    "marginals",
    "max_marginals",
    "max_product",
    "memories_of",
    "memory",
    "propagate",
    "reads_links",
    "second_order",
    "skip",
    "split_tables",
    "with_tables",
]
