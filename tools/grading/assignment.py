"""A source notebook: what is given, what is asked, and tests that are data.

Cells carry nbgrader's metadata. A test cell calls two names, nothing else counts:

    example(forward, log_node, log_edge)            # shown to the student, with the number that it prints
    ### BEGIN HIDDEN TESTS
    case(forward, *random_chain(rng, 5, 3))         # not shown
    case(viterbi, *chain, by=lambda path: score(path, *chain))      # many paths may be right: compare these
    case(forward, *tiny, kind="a sentence of one word")             # students read which kinds went wrong
    case(sweep, text, W, keeps=1)                                   # W is compared after the call, too
    ### END HIDDEN TESTS

Here they run beside the solution: each notes the function's name, its arguments, and what the solution
returns. So a student's function is called with arguments that no other answer has touched.
"""

import ast
import contextlib
import copy
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import numpy as np

SOURCE = Path(__file__).parents[2] / "notebooks" / "assignments" / "source"
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION[ \t]*$", re.M | re.S)
HIDDEN = re.compile(r"^### BEGIN HIDDEN TESTS\n.*?^### END HIDDEN TESTS[ \t]*\n?", re.M | re.S)
SEED = re.compile(r"^seed = \d+", re.M)
BLANK = "# your code here\n{indent}raise NotImplementedError"
TOLERANCE = 1e-7  # relative, and absolute: of arrays that take other steps to the same number


@dataclass
class Call:
    """One call of a student's function, and what the solution returns."""

    function: str
    arguments: tuple
    expected: object
    by: object = None  # maps what is returned to what is compared
    tol: float = TOLERANCE
    kind: str = ""  # "a sentence of one word"; an ordinary call has none
    keeps: tuple = ()  # places of arguments that are compared after the call, too
    left: list = field(default_factory=list)  # these, as the solution leaves them
    text: str = ""  # of an example: the call as it is written


@dataclass
class Test:
    """A test cell: all of its calls must be right for all of its points."""

    name: str
    points: float
    calls: list = field(default_factory=list)


@dataclass
class Assignment:
    """What one source notebook says at one seed."""

    name: str
    nb: object  # the source with its seed
    given: list  # (grade_id, code) of cells that a student does not write
    tests: list
    by_hand: dict  # {grade_id: points} of cells that a person reads

    @property
    def code(self):
        """What is given and the solutions, without the tests."""
        solved = [unmarked(cell.source) for cell in self.nb.cells if role(cell)[0] == "solution"]
        return "\n".join([*(code for _, code in self.given), *solved])

    def questions(self):
        """{grade_id: (points, what is asked, the model answer and how points are given)}."""
        found = {}
        for before, cell in zip([None, *self.nb.cells], self.nb.cells, strict=False):
            kind, named = role(cell)
            if kind == "manual":
                asked = before.source if before is not None and role(before)[0] == "text" else ""
                found[named["grade_id"]] = (float(named["points"]), asked, cell.source)
        return found


def role(cell):
    """("text" | "given" | "solution" | "test" | "manual", its nbgrader metadata)."""
    about = cell.metadata.get("nbgrader", {})
    about = about if isinstance(about, dict) and isinstance(about.get("grade_id"), str) else {}
    graded, solved = about.get("grade", False), about.get("solution", False)
    if not about:
        return "text", about
    kinds = {(True, True): "manual", (True, False): "test", (False, True): "solution"}
    return kinds.get((graded, solved), "given" if cell.cell_type == "code" else "text"), about


def sources(only=()):
    """Paths of the source notebooks, in order; only: numbers or names. ValueError for an unknown one."""
    found = {path.stem: path for path in sorted(SOURCE.glob("*/*.ipynb")) if path.stem == path.parent.name}
    unknown = [o for o in only if not any(o in (name, name[:2]) for name in found)]
    if unknown:
        raise ValueError(f"assignments: expected {', '.join(found)}; got {', '.join(unknown)}")
    return [path for name, path in found.items() if not only or name in only or name[:2] in only]


def load(path, seed=0):
    """`Assignment` of a source notebook. ValueError where the notebook is not one."""
    nb, name = nbformat.read(path, 4), Path(path).stem
    given, tests, by_hand, seen = [], [], {}, set()
    namespace = {"__name__": name}
    for cell in nb.cells:
        kind, about = role(cell)
        if kind == "text":
            continue
        grade_id = about.get("grade_id")
        if grade_id in seen:
            raise ValueError(f"{name}: two cells have the grade_id {grade_id}")
        seen.add(grade_id)
        if kind == "manual":
            by_hand[grade_id] = float(about["points"])
        elif kind == "test":
            tests.append(collect(cell.source, Test(grade_id, float(about["points"])), namespace))
            if not tests[-1].calls:
                raise ValueError(f"{name}, {grade_id}: a test without a call")
        else:
            cell.source = SEED.sub(f"seed = {seed}", cell.source)
            if kind == "given":
                given.append((grade_id, cell.source))
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, f"{name}: {grade_id}", "exec"), namespace)
    nb.metadata["crfbook"] = {"assignment": name, "seed": seed}
    return Assignment(name, nb, given, tests, by_hand)


def collect(source, test, namespace):
    """Run a test cell beside the solution; its calls go into `test`."""

    def case(function, *arguments, by=None, tol=TOLERANCE, kind="", keeps=()):
        keeps = (keeps,) if isinstance(keeps, int) else keeps
        given = copy.deepcopy(arguments)  # a function that changes its arguments changes the copy's
        expected = function(*arguments)
        left = copy.deepcopy([arguments[place] for place in keeps])
        test.calls.append(Call(function.__name__, given, expected, by, tol, kind, keeps, left))

    scope = {**namespace, "case": case, "example": case}
    for node in ast.parse(source).body:
        before = len(test.calls)
        exec(compile(ast.Module([node], []), test.name, "exec"), scope)
        for call in test.calls[before:]:
            call.text = ast.get_source_segment(source, node)
    return test


# ---- what students get ----


def without_solution(source):
    """The cell with its solutions taken out."""
    return SOLUTION.sub(lambda found: found[1] + BLANK.format(indent=found[1]), source)


def unmarked(source):
    """The cell with its solutions, but without the marks around them."""
    return re.sub(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", "", source, flags=re.M).rstrip()


def literal(value):
    """The number, text or list that an example shows, to six digits; ValueError for what has no such form."""
    if isinstance(value, np.ndarray) or np.isscalar(value) and not isinstance(value, (str, bool)):
        rounded = np.asarray(value)
        shown = rounded.tolist() if rounded.dtype.kind in "biuU" else _digits(rounded.tolist())
        return repr(shown).replace("nan", "np.nan").replace("inf", "np.inf")
    if isinstance(value, (list, tuple)):
        inside = ", ".join(literal(item) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (str, bool)) or value is None:
        return repr(value)
    raise ValueError(f"an example shows numbers, text or lists of them, not a {type(value).__name__}")


def _digits(value):
    return [_digits(item) for item in value] if isinstance(value, list) else float(f"{value:.6g}")


CHECK = "check({call}, {expected})"


def shown(source, test):
    """A test cell as students see it: examples as checks against their number, nothing that is hidden."""
    visible = HIDDEN.sub("", source)
    lines, calls = [], [call for call in test.calls if call.text.startswith("example(")]
    tree, text = ast.parse(visible), visible.splitlines()
    at = 0
    for node in tree.body:
        lines += text[at : node.lineno - 1]
        at = node.end_lineno
        written = ast.get_source_segment(visible, node)
        if not written.startswith("example("):
            lines += text[node.lineno - 1 : node.end_lineno]
            continue
        call, arguments = calls.pop(0), node.value.args
        parts = [ast.get_source_segment(visible, a) for a in arguments]
        by = [ast.get_source_segment(visible, k.value) for k in node.value.keywords if k.arg == "by"]
        called = f"{parts[0]}({', '.join(parts[1:])})"
        expected = call.expected if call.by is None else call.by(call.expected)
        lines.append(CHECK.format(call=f"({by[0]})({called})" if by else called, expected=literal(expected)))
    return "\n".join([*lines, *text[at:]]).rstrip()
