"""Every algorithm that a chapter names can be read whole: one entry, few lines, few files.

The entry is a kernel, or a readable sister of one that a test holds equal to it. ENTRIES goes chapter by
chapter; NAMED says what a user's name for an algorithm, a decoder or a schedule comes to. An entry's *reach*
is its own code and that of all functions of the package that it calls, and that these call.
"""

import ast
from functools import cache

import pytest

from crfbook.decoding.decoders import FORMS
from crfbook.dynamic.objective import FORMS as DYNAMIC_FORMS
from crfbook.models.parameters import ALGORITHMS
from tools.chapters import ROOT
from tools.over_commits import code_lines

MOST_LINES, MOST_FILES = 150, 2
ENTRIES = {
    "HMM": "models.directed:emission_scores",  # chapter 01
    "MEMM": "models.directed:local_loss_plain",
    "MEMM as a chain": "models.directed:move_normalisers",
    "forward-backward": "chain.forward_backward:forward_backward_log",  # 02
    "forward-backward, scaled": "chain.forward_backward:forward_backward_scaled",
    "forward pass of a batch": "chain.forward_backward_batched:forward_rows",
    "backward pass of a batch": "chain.forward_backward_batched:backward_batched",
    "Viterbi": "chain.viterbi:viterbi",
    "Viterbi with dominance": "chain.viterbi:viterbi_many",
    "L-BFGS and OWL-QN": "learners.quasi_newton.l1:owlqn_plain",  # 03, 06
    "losses": "chain.losses:sequence_loss_log",  # 04
    "a path of losses": "learners.quasi_newton.loss_path:stages_of",
    "perceptron": "learners.online.online:perceptron_epoch_plain",  # 05
    "passive-aggressive": "learners.online.online:passive_aggressive_epoch_plain",
    "AROW": "learners.online.online:arow_epoch_plain",
    "boosting": "learners.boosting.rounds:boost_rounds_plain",
    "SGD": "learners.stochastic.gradient_descent:sgd_steps_plain",
    "SAG": "learners.stochastic.averaged:sag_steps_plain",
    "SDCA": "learners.stochastic.dual:sdca_epoch_plain",
    "proximal gradient": "learners.quasi_newton.l1:proximal_step",  # 06
    "proximal quasi-Newton": "learners.quasi_newton.l1:model_point",
    "SGD with a cumulative penalty": "learners.stochastic.gradient_descent:sgd_l1_steps_plain",
    "products with stored pairs": "chain.sparse.forward_backward:times_entries",
    "sparse Viterbi": "chain.sparse.viterbi:sparse_viterbi_many",
    "SBCD": "learners.coordinate.visit:sweep_plain",  # 07
    "exact second derivatives": "learners.coordinate.derivatives:feature_variance",
    "adaptive steps": "learners.coordinate.visit:judge",
    "screening": "learners.coordinate.derivatives:gold_doubt",  # 08
    "label tuples": "learners.tuples.forward_backward:tuple_forward",
    "Viterbi over label tuples": "learners.tuples.log_form:tuple_viterbi",
    "mutual information": "data.features:mutual_information",  # 09
    "a-posteriori thresholds": "data.features:above_threshold",
    "a falling path of penalties": "learners.coordinate.descent:falling",
    "forward-backward with a default, active sets": "chain.active.sequence:active_marginals_plain",  # 10
    "the bound of active sets": "chain.active.sequence:bound_log_z",
    "tied potentials": "chain.active.tied:after_another",
    "pseudo-likelihood": "chain.active.tied:alone",
    "Viterbi with a default": "chain.sparse.default:default_viterbi_plain",  # 11
    "k best labellings": "decoding.kbest:kbest_by_lists",
    "beam": "decoding.beam:beam_many",
    "CarpeDiem": "decoding.carpediem:carpediem_many",
    "staggered decoding": "decoding.staggered:staggered_decode",
    "elimination": "dynamic.elimination:chains_forward",  # 12
    "Viterbi of several chains": "dynamic.viterbi:chains_viterbi",
    "elimination in min-fill order": "dynamic.junction:_eliminate",
    "junction tree": "dynamic.junction:junction_log_z",
    "the best labelling by a junction tree": "dynamic.junction:junction_max",
    "k best labellings of a DCRF": "dynamic.inference:_ranked",
    "belief propagation": "dynamic.sum_product:plain_message",  # 13
    "a sweep of messages": "dynamic.sum_product:sweep_messages_plain",
    "spanning trees": "dynamic.loopy:spanning_forest",
    "the order of messages in a tree": "dynamic.loopy:forest_order",
    "residual belief propagation": "dynamic.loopy:residual_plain",
    "chains as blocks, mean field": "dynamic.block_sweeps:block_sweeps_plain",
    "dual decomposition": "dynamic.dual:sweep",
    "dual decomposition, what is left": "dynamic.dual:finish",
    "sums over shards": "distributed.engine:stretch",  # 15
}
# What users may ask for by name, and the entries that it comes to.
NAMED = {
    "lbfgs": ["L-BFGS and OWL-QN"],
    "owlqn": ["L-BFGS and OWL-QN"],
    "auto": ["SGD", "SDCA", "L-BFGS and OWL-QN", "Viterbi", "elimination", "junction tree"],
    "sbcd": ["SBCD"],
    "cd": ["SBCD"],  # a block of one weight at a time
    "sgd": ["SGD"],
    "sgd-l1": ["SGD with a cumulative penalty"],
    "sag": ["SAG"],
    "sdca": ["SDCA"],
    "perceptron": ["perceptron"],
    "pa": ["passive-aggressive"],
    "arow": ["AROW"],
    "boosting": ["boosting"],
    "dense": ["Viterbi", "Viterbi with dominance"],
    "plain": ["Viterbi"],
    "numpy": ["Viterbi"],
    "sparse": ["sparse Viterbi"],
    "default": ["Viterbi with a default"],
    "carpediem": ["CarpeDiem"],
    "carpediem-tight": ["CarpeDiem"],
    "staggered": ["staggered decoding"],
    "staggered-columns": ["staggered decoding"],
    "beam": ["beam"],
    "elimination": ["elimination", "Viterbi of several chains"],
    "junction": ["junction tree", "the best labelling by a junction tree"],
    "block": ["chains as blocks, mean field"],
    "mean-field": ["chains as blocks, mean field"],
    "sync": ["a sweep of messages"],
    "random": ["a sweep of messages"],
    "sweep": ["a sweep of messages"],
    "tree": ["spanning trees", "the order of messages in a tree", "a sweep of messages"],
    "residual": ["residual belief propagation"],
}


@cache
def functions():
    """{(module, name): (lines of code, names that it calls or reads)} of all functions of the package."""
    found = {}
    for path in sorted((ROOT / "crfbook").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found |= functions_of(module, path.read_text())
    del found["crfbook._jit", "kernel"]  # which all kernels name
    return found


def functions_of(module, text):
    tree, places = ast.parse(text), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            places |= {a.asname or a.name: (node.module, a.name) for a in node.names}
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            named = set()
            given = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id not in given:
                    named.add((module, part.id) if part.id in own else places.get(part.id))
                elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    above = places.get(part.value.id)  # from crfbook.chain import scores; scores.f(...)
                    named.add((".".join(above), part.attr) if above else None)
            found[module, node.name] = code_lines(ast.unparse(node)), named
    return found


def reach(entry, known):
    """(lines of code, files) of an entry (module, name) and of all that it calls."""
    seen, ahead = set(), [entry]
    while ahead:
        at = ahead.pop()
        if at in known and at not in seen:
            seen.add(at)
            ahead += known[at][1]
    return sum(known[at][0] for at in seen), len({module for module, _ in seen})


@pytest.mark.parametrize("algorithm", ENTRIES)
def test_an_algorithm_can_be_read_whole(algorithm):
    module, _, name = ENTRIES[algorithm].partition(":")
    lines, files = reach((f"crfbook.{module}", name), functions())
    assert 0 < lines <= MOST_LINES and files <= MOST_FILES, f"{lines} lines in {files} files"


def test_every_name_has_an_entry():
    """Algorithms, decoders, engines and schedules of inference; and no other names."""
    assert NAMED.keys() == {*ALGORITHMS, *FORMS, *DYNAMIC_FORMS}
    assert {entry for entries in NAMED.values() for entry in entries} <= ENTRIES.keys()


ONE = """
from b import g, unused
from c import d


def f(x, unused):
    '''Not counted.'''
    return g(x) + d.h(x) + unused
"""
TWO = """
def g(x):
    # not counted
    return _k(x)


def _k(x):
    return x


def unused(x):
    pass
"""


def test_reach_counts_what_is_called():
    three = functions_of("c.d", "def h(x):\n    y = x\n    return y\n")
    known = functions_of("a", ONE) | functions_of("b", TWO) | three
    assert reach(("a", "f"), known) == (2 + 2 + 2 + 3, 3)
