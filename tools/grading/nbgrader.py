"""The same assignment as nbgrader reads it: hidden tests that carry the solution, since nbgrader's tests run
in the student's own process. What that costs is listed in notebooks/assignments/README.md.
"""

import inspect
import re

from tools.grading import compare
from tools.grading.assignment import HIDDEN, TOLERANCE, role, shown

NAMED = re.compile(r"\bcase\((\w+)\s*,")
FIRST = """\
### BEGIN HIDDEN TESTS
import io as _io, sys as _sys  # nbgrader gives no points where anything is on stderr: warnings are no errors
_stderr, _sys.stderr = _sys.stderr, _io.StringIO()
### END HIDDEN TESTS
"""
LAST = """\
### BEGIN HIDDEN TESTS
import contextlib, copy, io
{difference}
_solution = {{"__name__": "solution"}}
exec({solution!r}, _solution)
def case(name, function, *arguments, by=None, tol={tol!r}, kind="", keeps=()):
    ours, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    expected = _solution[name](*ours)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        found = function(*theirs)
    said = difference(*map(by, (expected, found)), tol) if by else difference(expected, found, tol)
    assert not said, f"{{kind}}: {{said}}" if kind else said
    for place in (keeps,) if isinstance(keeps, int) else keeps:
        said = difference(ours[place], theirs[place], tol)
        assert not said, f"argument {{place + 1}}, after the call: {{said}}"
{cases}
_sys.stderr = _stderr
### END HIDDEN TESTS"""
CONFIG = """\
# A course for nbgrader, written by `python -m tools.grade release`. Here, in an activated environment:
#     nbgrader generate_assignment NN_name --force    then hand out release/NN_name
#     nbgrader autograde NN_name                      of submitted/STUDENT/NN_name/NN_name.ipynb
#     nbgrader generate_feedback NN_name              feedback/STUDENT/NN_name, without hidden tests
from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import ClearHiddenTests, GetGrades


class OneLine(ClearHiddenTests):
    \"""Cells without hidden tests; of an error in a test only what it is: its lines would show them.\"""

    def preprocess_cell(self, cell, resources, cell_index):
        test = cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code"
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        for output in cell.get("outputs", []) if test else []:
            if output.output_type == "error":
                said = output.evalue if output.ename == "AssertionError" else ""
                output.traceback, output.evalue = [f"{output.ename}: {said}"], said
            if output.output_type == "stream":
                output.text = ""
        return cell, resources


c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "crfbook"
c.CourseDirectory.root = __import__("os").path.dirname(__import__("os").path.abspath(__file__))
c.ClearSolutions.code_stub = {"python": "# your code here\\nraise NotImplementedError"}
c.ClearSolutions.text_stub = "*Your answer here.*"
c.ExecutePreprocessor.timeout = 60
c.GenerateFeedback.preprocessors = [GetGrades, OneLine, CSSHTMLHeaderPreprocessor]
"""


def hidden_tests(about):
    """{grade_id: source} of the test cells: examples with numbers, and hidden tests that run anywhere."""
    tests = {test.name: test for test in about.tests}
    common = {"difference": inspect.getsource(compare), "solution": about.code}
    found = {}
    for cell in about.nb.cells:
        kind, named = role(cell)
        if kind == "test":
            hidden = "".join(HIDDEN.findall(cell.source))
            lines = "\n".join(line for line in hidden.splitlines() if not line.startswith("### "))
            cases = NAMED.sub(r'case("\1", \1,', lines)
            visible = shown(cell.source, tests[named["grade_id"]])
            found[named["grade_id"]] = (
                f"{FIRST}{visible}\n{LAST.format(tol=TOLERANCE, cases=cases, **common)}"
            )
    return found
