"""Rules for every test of the project, the notebooks included.

After a cell of a notebook has run out of time, nbval marks the following cells as "expected to fail": a
chapter that hangs would end in one failure and a row of yellow x. Here an expected failure of a cell is a
failure. tests/contract/test_runner.py runs this hook on a chapter that hangs.
"""

import re

import pytest

HOLDS = re.compile(r"<!-- holds: (.+?) -->", re.S)

collect_ignore = ["notebooks/assignments"]  # their grader runs them


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if type(item).__name__ == "IPyNbCell" and hasattr(report, "wasxfail"):
        reason = report.wasxfail or "no reason given"
        del report.wasxfail
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: a cell of a chapter may not be expected to fail ({reason})"
    return report


def pytest_collection_modifyitems(items):
    """`<!-- holds: EXPRESSION -->` in the text of a chapter is asserted at the end of the cell above it."""
    for file in {item.parent for item in items if type(item).__name__ == "IPyNbCell"}:
        for cell in file.nb.cells:
            if cell.cell_type == "code":
                above = cell
            else:
                for claim in HOLDS.findall(cell.source):
                    above.source += f"\nassert {claim}, {'the text says: ' + claim!r}"
