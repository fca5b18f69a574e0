"""The trial assignment in a folder of its own, and submissions of it."""

import nbformat
import pytest
from helpers.assignments import NAME, RIGHT, WRONG, trial

from tools import grade as tool
from tools.grading import assignment as source
from tools.grading.release import notebook, student


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of assignments with the trial alone; its source's path."""
    path = tmp_path / "assignments" / "source" / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(trial(), path)
    (tmp_path / "assignments" / "wrong").mkdir()
    (tmp_path / "assignments" / "wrong" / "99.py").write_text(WRONG)
    monkeypatch.setattr(source, "SOURCE", tmp_path / "assignments" / "source")
    monkeypatch.setattr(tool, "MARKS", tmp_path / "marks" / "marks.sqlite")
    return path


@pytest.fixture
def about(folder):
    return source.load(folder, seed=3)


@pytest.fixture
def submitted(about):
    """submitted(score="code", ...): a student's notebook with these cells, and right ones elsewhere."""

    def fill(**codes):
        nb = notebook(about, student(about))
        for cell in nb.cells:
            name = cell.metadata.get("nbgrader", {}).get("grade_id")
            if name in RIGHT:
                cell.source = codes.get(name, RIGHT[name])
        return nb

    return fill
