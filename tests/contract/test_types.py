"""The public face is annotated, and a type checker sees it: names, parameters, what comes back."""

import ast
import inspect
from importlib import import_module
from typing import get_type_hints

import pytest
from helpers.sources import is_for_types

import crfbook
from tools.chapters import ROOT

PACKAGES = ("crfbook", "crfbook.evaluation", "crfbook.metrics", "crfbook.plotting", "data_fetch")
OTHERS = {
    "chain.objective": ["Objective"],
    "data.offsets": [
        "Document",
        "columns_from_spans",
        "read_brat",
        "read_doccano",
        "read_spacy",
        "spans_from_labels",
        "token_places",
        "write_brat",
        "write_doccano",
        "write_spacy",
    ],
    "data.readers": ["iter_conll", "read_conllu"],
    "learners.boosting": ["boost"],
    "learners.coordinate": ["coordinate_descent", "solve_path"],
    "learners.coordinate.descent": ["PathPoint", "SparseResult", "largest_c1"],
    "learners.online": ["arow", "passive_aggressive", "perceptron"],
    "learners.quasi_newton": ["minimize", "minimize_on_support"],
    "learners.quasi_newton.l1": ["proximal_gradient"],
    "learners.quasi_newton.loss_path": ["minimize_loss"],
    "learners.stochastic": ["sag", "sdca", "sgd", "sgd_l1"],
    "learners.stochastic.fast": ["fast_fit"],
    "learners.tuples": ["train_tuples"],
    "learners.tuples.tuple_chain": ["TupleObjective", "TupleResult"],
    "training.loop": ["OptResult", "Step"],
}
SPECIAL = ("__init__", "__call__", "__len__", "__iter__", "__getitem__")


def public_objects():
    for package in PACKAGES:
        module = import_module(package)
        yield from (getattr(module, name) for name in module.__all__)
    for name, wanted in OTHERS.items():
        yield from (getattr(import_module(f"crfbook.{name}"), thing) for thing in wanted)


def functions(thing):
    """The functions that a public name offers: itself, or a class's own and inherited public methods."""
    members = [thing]
    if inspect.isclass(thing):
        members = [
            member
            for base in thing.__mro__
            for name, member in vars(base).items()
            if not name.startswith("_") or name in SPECIAL
        ]
    for member in members:
        member = inspect.unwrap(getattr(member, "fget", getattr(member, "__func__", member)))
        if inspect.isfunction(member) and member.__module__.startswith(("crfbook", "data_fetch")):
            yield member


def names_in(module):
    """What an annotation of this module may name, imports for type checkers included."""
    names = dict(vars(import_module(module)))
    for node in ast.parse(inspect.getsource(import_module(module))).body:
        if is_for_types(node):
            exec(compile(ast.Module(node.body, []), module, "exec"), names)
    return names


FACE = {f"{f.__module__}.{f.__qualname__}": f for thing in public_objects() for f in functions(thing)}


@pytest.mark.parametrize("name", sorted(FACE))
def test_every_parameter_and_result_has_a_type_that_exists(name):
    function = FACE[name]
    wanted = {*inspect.signature(function).parameters, "return"} - {"self", "cls"}
    if name.endswith(".__init__"):
        wanted -= {"return"}
    bare = wanted - set(function.__annotations__)
    assert not bare, f"{name}: expected an annotation for {sorted(bare)}"
    get_type_hints(function, names_in(function.__module__))


def test_type_checkers_see_the_names_that_load_lazily():
    tree = ast.parse((ROOT / "crfbook/__init__.py").read_text())
    (block,) = [node for node in tree.body if is_for_types(node)]
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    modules = {name: home for name, home in crfbook._HOME.items() if home == f"crfbook.{name}"}
    assert seen == crfbook._HOME | dict.fromkeys(modules, "crfbook")


@pytest.mark.parametrize("package", ["crfbook", "data_fetch"])
def test_the_package_says_that_it_is_typed(package):
    assert (ROOT / package / "py.typed").is_file()
