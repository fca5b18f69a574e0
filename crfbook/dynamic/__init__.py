"""Several label chains with potentials between them: dynamic CRFs (chapters 12 and 13).

    Clique, factorial, linear, second_order, memory, hierarchical, skip    what a template is made of (templates.py)
    lay_out_template, dynamic_features                               its labels and weights (layout.py)
    DynamicObjective                                                 what training minimises (objective.py)
    DynamicModel, decode, marginals, kbest                           what a trained model says (inference.py)

Two engines, both exact: elimination by matrix products (elimination.py, viterbi.py) for chains with
potentials between neighbours, junction trees (junction.py, messages.py) for everything else that is small
enough. Source: Sutton, Rohanimanesh and McCallum (2004); docs/SPEC.md, B.1 to B.3.
"""

from crfbook.dynamic.dual import decode_dual
from crfbook.dynamic.engines import EXACT, FORMS, Sweeps, check_engine, engine_cost
from crfbook.dynamic.inference import DynamicModel, decode, kbest, marginals
from crfbook.dynamic.junction import LIMIT
from crfbook.dynamic.layout import check_pair, dynamic_features, lay_out_template, with_tables
from crfbook.dynamic.objective import DynamicObjective
from crfbook.dynamic.propagation import decode_max_product
from crfbook.dynamic.templates import (
    LINKED,
    Clique,
    add_memories,
    check_cliques,
    factorial,
    hierarchical,
    linear,
    memories_of,
    memory,
    second_order,
    skip,
)

__all__ = [
    "EXACT",
    "FORMS",
    "LIMIT",
    "LINKED",
    "Clique",
    "DynamicModel",
    "DynamicObjective",
    "Sweeps",
    "add_memories",
    "check_cliques",
    "check_engine",
    "check_pair",
    "decode",
    "decode_dual",
    "decode_max_product",
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
    "skip",
    "with_tables",
]
