"""What is handed out: releases for students, solutions, a course for nbgrader, the teacher's archive."""

import zipfile
from pathlib import Path

import nbformat

from tools.grading import assignment as source
from tools.grading.nbgrader import CONFIG, hidden_tests

ROOT = Path(__file__).resolve().parents[2]
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
LOCKED = {"grade": False, "grade_id": "check", "locked": True, "schema_version": 3, "solution": False}

CHECK = '''\
import numpy as np

def check(found, expected, tol=1e-5, where=""):
    """Say whether `found` is `expected`, to five digits: arrays as a whole, other containers item by item."""
    try:
        b = np.asarray(expected)
        whole = b.dtype.kind in "biufcU" and not isinstance(expected, (tuple, dict))
    except ValueError:  # lists of unequal lengths
        whole = False
    if isinstance(expected, dict):
        assert isinstance(found, dict), f"{where or 'this'} is a {type(found).__name__}, expected a dict"
        assert set(found) == set(expected), f"{where} keys {set(found)}, expected {set(expected)}"
        for key in expected:
            check(found[key], expected[key], tol, f"{where}[{key!r}]")
    elif whole or isinstance(expected, str) or expected is None:
        a, b = np.asarray(found), np.asarray(expected)
        assert a.shape == b.shape, f"{where} shape {a.shape}, expected {b.shape}"
        number = b.dtype.kind in "fc" and a.dtype.kind in "biufc"
        same = np.isclose(a, b, rtol=tol, atol=tol, equal_nan=True) if number else a == b
        assert np.all(same), f"{where} found\\n{a}\\nexpected\\n{b}"
    else:
        assert hasattr(found, "__len__"), f"{where} is {found}, expected {len(expected)} items"
        assert len(found) == len(expected), f"{where} {len(found)} items, expected {len(expected)}"
        for n, (one, other) in enumerate(zip(found, expected)):
            check(one, other, tol, f"{where}[{n}]")
    if not where:
        print("right")\
'''


def student(about):
    """The student's notebook: no solution, no hidden test, no answer to a question, no output."""
    tests = {test.name: test for test in about.tests}

    def rewrite(cell, kind, named):
        if kind == "solution" or kind == "manual" and cell.cell_type == "code":
            return source.without_solution(cell.source)
        if kind == "test":
            return source.shown(cell.source, tests[named["grade_id"]])
        return "*Your answer here.*" if kind == "manual" else cell.source

    return rewrite


def solved(about):
    """The same with its solutions and model answers: what a class is shown when all have handed in."""
    tests = {test.name: test for test in about.tests}

    def rewrite(cell, kind, named):
        if kind == "test":
            return source.shown(cell.source, tests[named["grade_id"]])
        return source.unmarked(cell.source)

    return rewrite


def for_nbgrader(about):
    """nbgrader's source: solutions between its marks, hidden tests that carry what they compare with."""
    hidden = hidden_tests(about)
    return lambda cell, kind, named: hidden[named["grade_id"]] if kind == "test" else cell.source


def notebook(about, rewrite):
    """A copy of the source with its cells rewritten, `check` before them, and nothing but code and text."""
    cells = []
    for cell in about.nb.cells:
        kind, named = source.role(cell)
        new = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
        metadata = {"nbgrader": dict(named)} if named else {}
        cells.append(new(rewrite(cell, kind, named), metadata=metadata))
    check = nbformat.v4.new_code_cell(CHECK, metadata={"nbgrader": {**LOCKED, "task": False}})
    cells.insert(1, check)
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    about_it = {"assignment": about.name, "seed": about.nb.metadata["crfbook"]["seed"]}
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}, "crfbook": about_it}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def archive(target, files):
    """A zip of (path, name in it), the same bytes whenever it is made."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for path, name in files:
            out.writestr(zipfile.ZipInfo(str(name)), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def release(path, seed, folder):
    """Write an assignment at one seed below `folder`; returns the notebook that students get.

    release/NAME/NAME.ipynb and release/NAME.zip for students; solutions/NAME.ipynb to show afterwards;
    nbgrader/ a course for nbgrader, solutions and hidden tests in its source/NAME/NAME.ipynb.
    """
    about, folder = source.load(path, seed), Path(folder)
    name = f"{about.name}/{about.name}.ipynb"
    made = {
        "release/" + name: student,
        f"solutions/{about.name}.ipynb": solved,
        f"nbgrader/source/{name}": for_nbgrader,
    }
    for place, form in made.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook(about, form(about)), folder / place)
    (folder / "nbgrader" / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    target = folder / "release" / name
    archive(folder / "release" / f"{about.name}.zip", [(target, name)])
    return target


def keys(about):
    """The questions that a person reads, with model answers and how points are given, in Markdown."""
    lines = [f"# {about.name}"]
    for name, (points, asked, model) in about.questions().items():
        lines += [f"\n**{name}, {points:g} points**\n", asked, "\n---\n", model]
    return "\n".join(lines) + "\n"


def summaries():
    """Answers to what the one-page summaries ask: their last line, which the printed page leaves out."""
    lines = ["# Answers to the questions of the summaries"]
    for path in sorted((ROOT / "notebooks" / "teaching" / "summaries").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        lines.append(f"**{path.stem}.** {text.rpartition('<!-- answers: ')[2].strip().removesuffix(' -->')}")
    return "\n\n".join(lines) + "\n"


def pack(folder, seed=0):
    """teacher.zip in `folder`: sources, wrong solutions, solved notebooks, keys, exercises solved."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "teacher.zip"
    wrong = source.SOURCE.parent / "wrong"
    files = [*source.sources(), *wrong.glob("*.py")]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("README.md", ABOUT.format(seed=seed))
        for path in sorted(files):
            out.write(path, path.relative_to(source.SOURCE.parent))
        for path in sorted((ROOT / "notebooks" / "teaching").glob("exam*.md")):
            out.write(path, f"exam/{path.name}")
        out.writestr("keys/summaries.md", summaries())
        for path in sorted((ROOT / "tests" / "exercises").glob("test_*.py")):
            out.write(path, f"exercises/{path.name}")
        for path in source.sources():
            about = source.load(path, seed)
            out.writestr(f"solutions/{about.name}.ipynb", nbformat.writes(notebook(about, solved(about))))
            if about.by_hand:
                out.writestr(f"keys/{about.name}.md", keys(about))
    return target


ABOUT = """\
# For teachers

| folder | |
|---|---|
| solutions/ | solved notebooks at seed {seed}: what a right submission looks like |
| keys/ | questions that a person reads: model answers and how points are given; answers to the summaries |
| source/ | the sources: solutions and hidden tests |
| wrong/ | named wrong solutions, and the tests that each must fail |
| exam/ | examination questions and their key |
| exercises/ | solutions to the chapters' exercises, as tests that run (`python -m pytest tests/exercises`) |

Nothing of this is in the site or in what students get. All of it is in the public repository: read
notebooks/assignments/README.md on what that means for marks.
"""
