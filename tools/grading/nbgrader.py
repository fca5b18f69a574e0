"""The same assignment as nbgrader reads it: hidden tests that carry the solution, since nbgrader's tests run in
the student's own process. What that costs is listed in notebooks/assignments/README.md.
"""

import inspect
import re

from tools.grading import run
from tools.grading.assignment import HIDDEN, role, shown

NAMED = re.compile(r"\bcase\((\w+)\s*,")
PREAMBLE = """\
import contextlib, copy, io
import numpy as np
{difference}
_solution = {{"__name__": "solution"}}
exec({solution!r}, _solution)
def case(name, function, *arguments, by=None, tol={tol!r}):
    expected = _solution[name](*copy.deepcopy(arguments))
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        found = function(*copy.deepcopy(arguments))
    said = difference(*map(by, (expected, found)), tol) if by else difference(expected, found, tol)
    assert not said, said
"""


def hidden_tests(about):
    """{grade_id: source} of the test cells: examples with their numbers, and hidden tests that run anywhere."""
    codes, tests = [code for _, code in about.given], {test.name: test for test in about.tests}
    codes += [cell.source for cell in about.nb.cells if role(cell)[0] == "solution"]
    parts = (run.difference, run._of_numbers, run._kind)
    preamble = PREAMBLE.format(
        difference="\n".join(inspect.getsource(part) for part in parts),
        solution="\n".join(codes),
        tol=1e-7,
    )
    found = {}
    for cell in about.nb.cells:
        kind, named = role(cell)
        if kind == "test":
            hidden = "".join(HIDDEN.findall(cell.source))
            lines = [line for line in hidden.splitlines() if not line.startswith("### ")]
            body = NAMED.sub(r'case("\1", \1,', "\n".join(lines))
            name = named["grade_id"]
            found[name] = "\n".join(
                [
                    shown(cell.source, tests[name]),
                    "### BEGIN HIDDEN TESTS",
                    preamble + body,
                    "### END HIDDEN TESTS",
                ]
            )
    return found
