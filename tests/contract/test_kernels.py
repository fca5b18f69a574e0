"""The rules of all files that hold a kernel, read from the sources. Each rule refuses a broken kernel."""

import ast
import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(p for p in (ROOT / "crfbook").rglob("*.py") if "\n@kernel" in p.read_text())
KEYED = {"crfbook._jit", *(".".join(p.relative_to(ROOT).with_suffix("").parts) for p in FILES)}
MAX_LINES = 80  # of formatted code, in one kernel
MAX_ARGUMENTS = 12  # arrays that belong together travel as one NamedTuple

ARRAY_ATTRIBUTES = {"shape", "size", "T", "ndim", "reshape", "copy", "fill", "sum", "max", "min"}
MINUS_INFINITY = 1e5  # a literal this far below zero is minus infinity misspelt


def functions(tree):
    """The kernels of a file."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [f for f in found if any(re.search("kernel|jit", ast.unparse(d)) for d in f.decorator_list)]


def arguments(function):
    return [a.arg for a in function.args.posonlyargs + function.args.args + function.args.kwonlyargs]


def calls(function):
    """(name of what is called, its positional arguments)"""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.args


def handed(parameters, given):
    """(parameter, value) of a call, from both ends: a starred tuple takes an unknown number between them."""
    star = next((i for i, value in enumerate(given) if isinstance(value, ast.Starred)), len(given))
    yield from zip(parameters, given[:star], strict=False)
    yield from zip(parameters[::-1], given[:star:-1], strict=False)


class Kernels(NamedTuple):
    of: dict  # kernel -> its arguments that are arrays
    docs: dict  # kernel -> its docstring


def array_arguments(trees):
    """{kernel: its arguments that are arrays}: indexed, asked for a shape, called *_buf,
    or handed on as an array.
    """
    kernels = {f.name: f for tree in trees for f in functions(tree)}
    arrays = {}
    for name, function in kernels.items():
        used = {a for a in arguments(function) if a.endswith("_buf")}
        for node in ast.walk(function):
            indexed = isinstance(node, ast.Subscript)
            asked = (
                isinstance(node, ast.Attribute) and node.attr in ARRAY_ATTRIBUTES
            )  # other fields: a named tuple
            if (indexed or asked) and isinstance(node.value, ast.Name):
                used.add(node.value.id)
        arrays[name] = used & set(arguments(function))
    changed = True
    while changed:
        changed = False
        for name, function in kernels.items():
            for callee, given in calls(function):
                if callee not in arrays:
                    continue
                for parameter, value in handed(arguments(kernels[callee]), given):
                    handed_on = isinstance(value, ast.Name) and value.id in arguments(function)
                    if handed_on and parameter in arrays[callee] and value.id not in arrays[name]:
                        arrays[name].add(value.id)
                        changed = True
    return Kernels(arrays, {name: ast.get_docstring(f) or "" for name, f in kernels.items()})


def has_shape(name, text):
    """Does the docstring give it a shape in the same breath: "name (T, L)", "a, name int64 (n,)",
    "name like a, or (0,)"?
    """
    return re.search(rf"\b{name}\b[^;.()]{{0,60}}\([^()]*,[^()]*\)", text) is not None


def without_docstring(function):
    has_one = ast.get_docstring(function, clean=False) is not None
    return function.body[1:] if has_one else function.body


def rule_decorated(tree, arrays):
    """Every function is a kernel: the decorator by name, without options."""
    for f in functions(tree):
        decorators = [ast.unparse(d) for d in f.decorator_list]
        assert decorators == ["kernel"], f"{f.name} is decorated with {decorators}, not with @kernel"


def rule_globals(tree, arrays):
    """A kernel reads what the key of the cache counts: constants that are written out, kernels, tuples.

    Of a file without kernels the key has the tuples alone (`crfbook._jit`), and of no file plain functions.
    """
    read = set()
    for f in functions(tree):
        names = [n for n in ast.walk(f) if isinstance(n, ast.Name)]
        read |= (
            {n.id for n in names} - {n.id for n in names if isinstance(n.ctx, ast.Store)} - {*arguments(f)}
        )
    plain = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} - {f.name for f in functions(tree)}
    assert not read & plain, f"a kernel calls {read & plain}, which are no kernels"
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module not in ("numpy", "math", *KEYED):
            for name in [alias.name for alias in node.names if (alias.asname or alias.name) in read]:
                found = getattr(importlib.import_module(node.module), name)
                is_tuple = isinstance(found, type) and issubclass(found, tuple)
                assert is_tuple, f"a kernel reads {name} of {node.module}"
        if isinstance(node, ast.Assign) and {n.id for n in node.targets if isinstance(n, ast.Name)} & read:
            made = {
                n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            }
            assert not made & plain, f"line {node.lineno}: a constant of kernels that {made & plain} makes"


def rule_body(tree, arrays):
    """No exceptions, prints, strings, random numbers, lambdas or inner functions;
    minus infinity is -np.inf.
    """
    for f in functions(tree):
        for statement in without_docstring(f):
            for node in ast.walk(statement):
                at = f"{f.name}, line {getattr(node, 'lineno', '?')}"
                banned = (
                    ast.Raise,
                    ast.Try,
                    ast.JoinedStr,
                    ast.Lambda,
                    ast.FunctionDef,
                    ast.ClassDef,
                    ast.Assert,
                    ast.With,
                )
                assert not isinstance(node, banned), f"{at}: {type(node).__name__}"
                constant = node.value if isinstance(node, ast.Constant) else None
                assert not isinstance(constant, str), f"{at}: a string"
                assert not (isinstance(node, ast.Name) and node.id in ("print", "prange")), (
                    f"{at}: {getattr(node, 'id', '')}"
                )
                assert not (isinstance(node, ast.Attribute) and node.attr == "random"), (
                    f"{at}: random numbers"
                )
                if (
                    isinstance(node, ast.UnaryOp)
                    and isinstance(node.op, ast.USub)
                    and isinstance(node.operand, ast.Constant)
                ):
                    spelt = isinstance(node.operand.value, float) and node.operand.value >= MINUS_INFINITY
                    assert not spelt, f"{at}: -{node.operand.value} is minus infinity misspelt"


def rule_no_function_arguments(tree, arrays):
    """A function passed in defeats the cache on disk."""
    for f in functions(tree):
        called = {name for name, _ in calls(f)}
        assert not called & set(arguments(f)), f"{f.name} calls its argument {called & set(arguments(f))}"
        assert not f.args.defaults and not f.args.vararg and not f.args.kwarg, f"{f.name}: defaults or *args"


def rule_docstrings(tree, arrays):
    """Every kernel says what it computes; a public one gives each array its shape,
    and names cost and source.
    """
    assert ast.get_docstring(tree), "the file has no docstring"
    for f in functions(tree):
        text = ast.get_docstring(f) or ""
        assert text, f"{f.name} has no docstring"
        if f.name.startswith("_"):
            continue
        assert re.search(r"\bCost\b", text), f"{f.name}: no cost"
        assert re.search(r"\bSources?\b", text), f"{f.name}: no source"
        for other, said in arrays.docs.items():  # "Arguments as `other`": what that one says counts here
            if re.search(rf"\b(?:as|see) (?:in |for )?`?{other}\b", text):
                text += "\n" + said
        unshaped = [a for a in arguments(f) if a in arrays.of[f.name] and not has_shape(a, text)]
        assert not unshaped, f"{f.name}: no shape for {', '.join(unshaped)}"
        unnamed = [a for a in arguments(f) if not re.search(rf"\b{a}\b", text)]
        assert not unnamed, f"{f.name}: nothing on {', '.join(unnamed)}"


def rule_length(tree, arrays):
    for f in functions(tree):
        body = without_docstring(f)
        lines = {n.lineno for statement in body for n in ast.walk(statement) if hasattr(n, "lineno")}
        lines |= {n.end_lineno for statement in body for n in ast.walk(statement) if hasattr(n, "lineno")}
        assert len(lines) <= MAX_LINES, f"{f.name} has {len(lines)} lines of code: it holds two ideas"


def rule_few_arguments(tree, arrays):
    for f in functions(tree):
        n = len(arguments(f))
        assert n <= MAX_ARGUMENTS, f"{f.name} has {n} arguments: which arrays belong together?"


RULES = [
    rule_decorated, rule_globals, rule_body,
    rule_no_function_arguments, rule_docstrings, rule_length, rule_few_arguments,
]  # fmt: skip


@pytest.fixture(scope="module")
def arrays():
    return array_arguments([ast.parse(p.read_text()) for p in FILES])


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__.removeprefix("rule_"))
@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT / "crfbook")))
def test_kernel_file(path, rule, arrays):
    rule(ast.parse(path.read_text(), filename=str(path)), arrays)


SOUND = '''
"""One recursion."""

import numpy as np

from crfbook._jit import kernel


@kernel
def total(x, out, scale):
    """out[0] <- scale * sum_t x[t], scale a number.

    Arguments: x float64 (T,); out (1,). Cost: T. Source: Rabiner (1989)."""
    s = 0.0
    for t in range(x.shape[0]):
        s += x[t]
    out[0] = scale * s


@kernel
def twice(x, out):
    """out[0] <- 2 sum_t x[t]. Arguments: x, out (T,). Cost: T. Source: Rabiner (1989)."""
    total(x, out, 2.0)
'''

HANDED_ON = SOUND[SOUND.index('    """out[0] <- 2') :]
BROKEN = [
    (rule_decorated, "@kernel\ndef twice", "@njit(parallel=True)\ndef twice"),
    (rule_globals, "@kernel\ndef total", "def total"),
    (rule_globals, "import numpy as np\n", "from crfbook.training.certificate import TINY as range\n"),
    (rule_globals, "as np\n", "as np\n\n\ndef half():\n    return 0.5\n\n\nrange = half()\n"),
    (rule_body, "s = 0.0", "s = -1e9"),
    (rule_body, "s = 0.0", "s = np.random.rand()"),
    (rule_body, "s = 0.0", "s = 0.0\n    print(s)"),
    (rule_body, "s = 0.0", "s = 0.0\n    if x.size == 0:\n        raise ValueError"),
    (rule_body, "range(x", "prange(x"),
    (rule_body, "s = 0.0", "s = 'a'"),
    (rule_no_function_arguments, "s += x[t]", "s += scale(x[t])"),
    (rule_no_function_arguments, "out, scale)", "out, scale=1.0)"),
    (rule_docstrings, "x float64 (T,)", "x"),
    (rule_docstrings, "x, out (T,)", "out (T,)"),  # an array that is only handed on
    (rule_docstrings, HANDED_ON, HANDED_ON.replace("x, out (T,)", "x (T,); out").replace("x, o", "*(x,), o")),
    (rule_docstrings, "(1,). Cost: T. Source: Rabiner (1989).", "(1,). Source: Rabiner (1989)."),
    (rule_docstrings, "(1,). Cost: T. Source: Rabiner (1989).", "(1,). Cost: T."),
    (rule_docstrings, "scale * sum_t x[t], scale a number", "sum_t x[t]"),
    (rule_docstrings, '"""One recursion."""', ""),
    (rule_length, "    s = 0.0\n", "    s = 0.0\n" + "    s += 1.0\n" * MAX_LINES),
    (rule_few_arguments, "out, scale)", "out, scale, " + ", ".join("abcdefghij") + ")"),
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__.removeprefix("rule_"))
def test_a_sound_kernel_passes(rule):
    tree = ast.parse(SOUND)
    rule(tree, array_arguments([tree]))


@pytest.mark.parametrize(
    "rule, old, new", BROKEN, ids=[f"{i}-{r.__name__[5:]}" for i, (r, _, _) in enumerate(BROKEN)]
)
def test_a_broken_kernel_fails(rule, old, new):
    assert old in SOUND
    tree = ast.parse(SOUND.replace(old, new))
    with pytest.raises(AssertionError):
        rule(tree, array_arguments([tree]))


def test_every_rule_has_a_broken_kernel():
    assert {r for r, _, _ in BROKEN} == set(RULES)
