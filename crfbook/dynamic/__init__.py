"""Several label chains with potentials between them: dynamic CRFs (chapters 12 and 13).

    Clique, factorial, linear, second_order, memory, hierarchical    what a template is made of (templates.py)
    lay_out_template, dynamic_features                               its labels and weights (layout.py)
    DynamicObjective                                                 what training minimises (objective.py)
    DynamicModel, decode, decode_dual, marginals, kbest              what a trained model says (inference.py)

Two engines, both exact: elimination by matrix products (elimination.py, viterbi.py) for chains with
potentials between neighbours, junction trees (junction.py, messages.py) for everything else that is small
enough. Best labels of two chains also by dual decomposition (dual.py). Source: Sutton, Rohanimanesh and
McCallum (2004); docs/SPEC.md, B.1 to B.3.
"""

from crfbook.dynamic.inference import DualBest, DynamicModel, decode, decode_dual, kbest, marginals
from crfbook.dynamic.junction import LIMIT
from crfbook.dynamic.layout import check_pair, dynamic_features, lay_out_template, with_tables
from crfbook.dynamic.objective import DynamicObjective, check_engine, engine_cost
from crfbook.dynamic.templates import (
    Clique,
    add_memories,
    check_cliques,
    factorial,
    hierarchical,
    linear,
    memories_of,
    memory,
    second_order,
)

__all__ = [
    "LIMIT",
    "Clique",
    "DualBest",
    "DynamicModel",
    "DynamicObjective",
    "add_memories",
    "check_cliques",
    "check_engine",
    "check_pair",
    "decode",
    "decode_dual",
    "dynamic_features",
    "engine_cost",
    "factorial",
    "hierarchical",
    "kbest",
    "lay_out_template",
    "linear",
    "marginals",
    "memory",
    "memories_of",
    "second_order",
    "with_tables",
]
