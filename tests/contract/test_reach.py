"""Every algorithm that a chapter names can be read whole: one entry, few lines, few files.

The entry is a kernel, or a readable sister of one that a test holds equal to it. Its *reach* is its own code
and that of all functions of the package that it calls, and that these call.
"""

import ast
from functools import cache

import pytest

from tools.chapters import ROOT
from tools.over_commits import code_lines

MOST_LINES, MOST_FILES = 150, 2
ENTRIES = {
    "forward-backward": "chain.forward_backward:forward_backward_log",
    "forward-backward, scaled": "chain.forward_backward:forward_backward_scaled",
    "Viterbi": "chain.viterbi:viterbi",
    "perceptron": "learners.online.online:perceptron_epoch_plain",
    "boosting": "learners.boosting.rounds:boost_rounds_plain",
    "SGD": "learners.stochastic.gradient_descent:sgd_steps_plain",
    "SAG": "learners.stochastic.averaged:sag_steps_plain",
    "SDCA": "learners.stochastic.dual:sdca_epoch_plain",
    "L-BFGS and OWL-QN": "learners.quasi_newton.l1:owlqn_plain",
    "SBCD": "learners.coordinate.visit:sweep_plain",
    "products with stored pairs": "chain.sparse.forward_backward:times_entries",
    "k best labellings": "decoding.kbest:kbest_by_lists",
    "beam": "decoding.beam:beam_many",
    "CarpeDiem": "decoding.carpediem:carpediem_many",
    "staggered decoding": "decoding.staggered:staggered_decode",
    "label tuples": "learners.tuples.forward_backward:tuple_forward",
    "elimination": "dynamic.elimination:chains_forward",
    "belief propagation": "dynamic.sum_product:plain_message",
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
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
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


ONE = """
from b import g
from c import d


def f(x):
    '''Not counted.'''
    return g(x) + d.h(x)
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
