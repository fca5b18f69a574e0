"""What is handed out: nothing of the solution to students, all of it to teachers, a course to nbgrader."""

import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from contextlib import redirect_stdout
from csv import DictReader
from pathlib import Path

import nbformat
import numpy as np
import pytest
from helpers.assignments import NAME, RIGHT, named

from tools import chapters
from tools import grade as tool
from tools.grading import assignment as source
from tools.grading.pile import files
from tools.grading.release import CHECK

SECRETS = ["the secret of", "BEGIN SOLUTION", "HIDDEN", "case(", "123456", "model answer", "hidden ="]


def cells(path):
    return nbformat.read(path, 4).cells


def code(cell_list):
    return [cell.source for cell in cell_list if cell.cell_type == "code"]


@pytest.fixture
def out(folder, tmp_path):
    nb = nbformat.read(folder, 4)
    nb.metadata["kernelspec"] = {"name": "mine", "display_name": "Mine"}
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="the secret of an output")]
            cell.execution_count = 7
    nbformat.write(nb, folder)
    assert tool.main(["release", "--seed", "8", "--folder", str(tmp_path / "out")]) == 0
    return tmp_path / "out"


def test_students_get_no_solution_no_hidden_test_no_output(out):
    release = out / "release" / NAME / f"{NAME}.ipynb"
    everything = release.read_text()
    assert not [secret for secret in SECRETS if secret in everything]
    assert sum(path.is_file() for path in (out / "release").rglob("*")) == 2
    with zipfile.ZipFile(out / "release" / f"{NAME}.zip") as archive:
        assert archive.namelist() == [f"{NAME}/{NAME}.ipynb"]
        assert archive.read(archive.namelist()[0]) == release.read_bytes()
    nb = nbformat.read(release, 4)
    nbformat.validate(nb)
    assert nb.metadata.kernelspec.name == "python3"
    assert nb.metadata.crfbook == {"assignment": NAME, "seed": 8}
    assert all(cell.outputs == [] and cell.execution_count is None for cell in nb.cells if "outputs" in cell)
    assert "seed = 8" in everything and everything.count("raise NotImplementedError") == len(RIGHT)


def run(sources):
    """Run cells one after the other; what each says, or its error."""
    scope, said = {}, []
    for text in sources:
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                exec(text, scope)
            said.append(printed.getvalue())
        except Exception as error:
            said.append(error)
    return said


def test_the_solved_notebook_passes_the_checks_that_students_see(out):
    texts = code(cells(out / "solutions" / f"{NAME}.ipynb"))
    assert "".join(texts).count("the secret of") == 3 and "HIDDEN" not in "".join(texts)
    said = run(texts)
    assert said.count("right\n") == 3 and not [s for s in said if isinstance(s, Exception)]
    assert "model answer" in (out / "solutions" / f"{NAME}.ipynb").read_text()


def test_the_blank_release_fails_each_check(out):
    said = run(code(cells(out / "release" / NAME / f"{NAME}.ipynb")))
    assert [type(s).__name__ for s in said if isinstance(s, Exception)] == ["NotImplementedError"] * 3


def test_nbgraders_tests_pass_the_solution_and_fail_one_wrong_function(out, capsys):
    texts = code(cells(out / "nbgrader" / "source" / NAME / f"{NAME}.ipynb"))
    assert not [s for s in run(texts) if isinstance(s, Exception)]
    for n, text in enumerate(texts):
        if text.startswith("def log_z"):
            texts[n] = text.replace("return", "import sys; print('!', file=sys.stderr); return 1 + ")
        if text.startswith("def score"):
            texts[n] = text.replace("return", "import sys; print('!', file=sys.stderr); return")
    said = run(texts)
    assert [type(s).__name__ for s in said if isinstance(s, Exception)] == ["AssertionError"]
    assert "!" not in capsys.readouterr().err, "nbgrader gives no points where anything is on stderr"


def test_hidden_tests_cut_out_leave_what_students_get(out):
    """nbgrader cuts them out of its source; both ways lead to the same cells."""
    cut = [
        source.HIDDEN.sub("", text).rstrip()
        for text in code(cells(out / "nbgrader/source" / NAME / f"{NAME}.ipynb"))
    ]
    cut = [source.without_solution(text) for text in cut]
    assert cut == [text.rstrip() for text in code(cells(out / "release" / NAME / f"{NAME}.ipynb"))]


@pytest.mark.skipif(
    shutil.which("nbgrader") is None, reason="nbgrader is not installed, or its environment not active"
)
def test_nbgrader_itself(out, submitted):
    course = out / "nbgrader"
    nb = submitted(log_z="def log_z(*given):\n    raise ValueError(repr(given))", sums=RIGHT["sums"])
    for cell in nb.cells:
        cell.source = source.unmarked(cell.source)
    path = course / "submitted" / "ann" / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(nb, path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in ("generate_assignment", "autograde", "generate_feedback"):
        done = subprocess.run(
            ["nbgrader", command, NAME], cwd=course, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    subprocess.run(["nbgrader", "export"], cwd=course, env=environment, check=True, capture_output=True)
    (row,) = (course / "grades.csv").read_text().splitlines()[1:]
    assert row.split(",")[-4] == "3.0"
    page = (course / "feedback" / "ann" / NAME / f"{NAME}.html").read_text()
    assert "log_z-test" in page and not [s for s in ("HIDDEN", "_solution", "123456", "case(") if s in page]


# ---- what students run: check ----


def checker():
    scope = {}
    exec(CHECK, scope)
    return scope["check"]


SHOWN = [
    np.eye(2), 3.0, 3, "ab", None, (np.eye(2), np.arange(3)), [np.arange(2), np.arange(3)], {"x": {}},
    {"a": np.eye(2), (1, 2): 3.5}, {"low": -np.inf}, [("a", 1), ("b", 2)], np.array(["a", "b"]), True, [],
    np.nan, (1, 2), ["a", None],
]  # fmt: skip


@pytest.mark.parametrize("value", SHOWN, ids=repr)
def test_an_example_can_show_it_and_check_takes_it(value, capsys):
    checker()(value, eval(source.literal(value), {"np": np}))
    assert capsys.readouterr().out == "right\n"


@pytest.mark.parametrize(
    "found, expected",
    [((1, 2), (1, 3)), ({"a": 1}, {"a": 2}), ({"a": 1}, {}), ([1], [1, 2]), ((np.eye(2),), ([[1.0]],)),
     ("a", "b"), (None, 3.0), ("a", 3.0), (3.0, "a"), (None, [[1], [2, 3]]), (5, (1, 2)), ({"a": 1}, [1.0]),
     ([[1], [2, 4]], [[1], [2, 3]]), (np.zeros((1, 2)), [0.0, 0.0]), (np.nan, 0.0)],
)  # fmt: skip
def test_check_refuses(found, expected):
    with pytest.raises(AssertionError):
        checker()(found, expected)


# ---- seeds ----


def test_a_seed_changes_what_is_given_and_no_test(folder):
    one, other = source.load(folder, 1), source.load(folder, 2)
    assert [(t.name, t.points, len(t.calls)) for t in one.tests] == [
        (t.name, t.points, len(t.calls)) for t in other.tests
    ]
    assert any(
        a.expected != b.expected for a, b in zip(one.tests[0].calls, other.tests[0].calls, strict=True)
    )


@pytest.mark.parametrize(
    "given, says, used, remark",
    [(None, {"seed": 3}, 3, ""), (5, {"seed": 3}, 5, "graded by seed 5, but it says seed 3"),
     (3, {"seed": 3}, 3, ""),
     (None, {}, 3, ""), (None, {"seed": "x"}, 0, "names no seed"), (4, {"seed": -1}, 4, "")],
)  # fmt: skip
def test_the_seed_of_a_submission(submitted, tmp_path, given, says, used, remark):
    nb = submitted()
    nb.metadata.crfbook = {"assignment": NAME, **says}
    nbformat.write(nb, tmp_path / "ann.ipynb")
    (result,) = tool.grade_files([tmp_path / "ann.ipynb"], given)
    assert (result.seed, result.points) == (used, 6)
    assert bool(result.remarks) == bool(remark) and remark in "".join(result.remarks)


# ---- wrong solutions, names, reports ----


def test_wrong_solutions_are_compared_test_by_test(folder, capsys):
    assert tool.main(["check", "99", "--seed", "3"]) == 0
    wrong = folder.parents[2] / "wrong" / "99.py"
    wrong.write_text(wrong.read_text().replace("| score-test", "| log_z-test"))
    assert tool.main(["check"]) == 1
    assert "swapped axes: fails ['score-test'], should fail ['log_z-test']" in capsys.readouterr().out
    nb = nbformat.read(folder, 4)
    nb.cells[3].source = nb.cells[3].source.replace("return", "return np.nan +")
    nb.cells[3].source += "\n    ### BEGIN SOLUTION\n    raise_ = None\n    ### END SOLUTION"
    nb.cells.append(nbformat.v4.new_code_cell("score = None", metadata=named("late", solution=True)))
    nbformat.write(nb, folder)
    assert any("its solution fails score-test" in line for line in tool.check(folder))


@pytest.mark.parametrize(
    "place, student",
    [("ann.ipynb", "ann"), (f"{NAME}_ann.ipynb", "ann"), (f"ann/{NAME}.ipynb", "ann"),
     (f"ann/{NAME}/{NAME}.ipynb", "ann"),
     (f"Ann Lee_12_assignsubmission_file_/{NAME} (2).ipynb", "Ann Lee"), (f"bo/{NAME}-Copy1.ipynb", "bo")],
)  # fmt: skip
def test_students_are_named_by_file_or_folder(folder, tmp_path, place, student):
    path = tmp_path / "pile" / place
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert files([tmp_path / "pile"]) == [(path, student)]


def test_table_csv_and_feedback(submitted, tmp_path, capsys):
    pile, csv, back = tmp_path / "pile", tmp_path / "new" / "grades.csv", tmp_path / "feedback"
    pile.mkdir()
    raising = """made = lambda number: type(f"E{number:.0f}", (Exception,), {})
def sums(log_node):
    if log_node.size > 2: return {"rows": log_node.sum(1), "all": (log_node.sum(), log_node.shape)}
    raise (made(log_node[0, 0]) if 0 else ValueError)(str(log_node.tolist()))"""
    nbformat.write(submitted(), pile / "=ann.ipynb")
    nbformat.write(submitted(sums=raising), pile / "bo <b>.ipynb")
    nbformat.write(submitted(sums=raising.replace("if 0", "if 1"), score="def score("), pile / "cy.ipynb")
    (pile / "di.ipynb").write_text("nothing")
    assert tool.main([str(pile), "--csv", str(csv), "--feedback", str(back)]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^=ann +99_trial +6 of 6 \+ 2 by hand$", table, re.M)
    assert re.search(r"^ +sums-test +0 of 1 .*ValueError.*123456", table, re.M), "a teacher sees all"
    assert "di " in table and "cannot be graded" in table
    rows = csv.read_text(encoding="utf-8-sig").splitlines()
    (ann,) = [row for row in DictReader(rows) if row["student"] == "'=ann"]
    whole = [ann[name] for name in ("assignment", "seed", "total", "of", "of by hand")]
    assert whole == [NAME, "3", "6", "6", "2"]
    assert [ann[f"99 {test}-test"] for test in ("score", "log_z", "sums")] == ["2", "3", "1"]
    assert sorted(path.name for path in back.iterdir()) == ["_ann", "bo _b_", "cy", "di"]
    pages = {path.parent.name: path.read_text() for path in back.rglob("*") if path.is_file()}
    for path in back.rglob("*"):
        if path.is_file():
            assert not [secret for secret in SECRETS if secret in path.read_text()], "of a hidden test"
    html = next(path for path in back.rglob("*.html") if path.parent.name.startswith("bo")).read_text()
    assert "<b>.ipynb" not in html and "bo &lt;b&gt;" in html and "ValueError (line 4 of its cell)" in html
    html = next(path for path in back.rglob("*.html") if path.parent.name == "cy").read_text()
    assert "an error" in html and "SyntaxError" in html and len(pages) == 4
    assert "is not a notebook (no JSON)" in pages["di"]


@pytest.mark.parametrize(
    "command, says",
    [(["nowhere.ipynb"], "nowhere.ipynb: no such file or folder"), (["release", "77"], "99_trial; got 77"),
     (["pack"], "--teacher"), (["x.ipynb", "--assignment", "77"], "got 77"),
     (["."], "no notebook in this folder"),
     (["export", "--csv", "x.csv"], "no marks there yet"), (["hand"], "no marks there yet")],
)  # fmt: skip
def test_bad_input_is_one_sentence(folder, tmp_path, monkeypatch, capsys, command, says):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(SystemExit) as end:
        tool.main(command)
    said = capsys.readouterr().err
    assert end.value.code == 2 and says in said and said.count("\n") == 1
    assert not list(tmp_path.rglob("marks.sqlite"))


# ---- teachers and the site ----


def test_the_teachers_archive(folder, tmp_path, capsys):
    assert tool.main(["pack", "--teacher", "--folder", str(tmp_path / "out")]) == 0
    with zipfile.ZipFile(tmp_path / "out" / "teacher.zip") as archive:
        names = archive.namelist()
        key = archive.read(f"keys/{NAME}.md").decode()
        assert "the secret of score" in archive.read(f"solutions/{NAME}.ipynb").decode()
        answers = archive.read("keys/summaries.md").decode()
    assert answers.count(".** 1. ") == len(chapters.chapters()) and "-->" not in answers
    wanted = {"README.md", f"source/{NAME}/{NAME}.ipynb", "wrong/99.py", f"solutions/{NAME}.ipynb"}
    assert wanted | {"exam/exam.md", "exam/exam_key.md"} <= set(names)
    exercises = {
        f"exercises/{path.name}" for path in (chapters.ROOT / "tests" / "exercises").glob("test_*.py")
    }
    assert exercises and exercises <= set(names)
    assert "Why the largest?" in key and "model answer" in key and "2 points" in key


def test_the_site_takes_no_assignment():
    """Pages are made of chapters alone, and chapters are no assignments."""
    assert chapters.chapters() and not [path for path in chapters.chapters() if "assignments" in path.parts]
    sources = [path for path in source.SOURCE.rglob("*.ipynb")]
    assert sources, "the book has assignments"
    secret = re.compile(r"### (BEGIN|END) (SOLUTION|HIDDEN TESTS)")
    for path in chapters.chapters():
        assert not secret.search(path.read_text(encoding="utf-8")), path.name


def test_sources_of_the_book_are_clean():
    for path in source.sources():
        nb = json.loads(Path(path).read_text(encoding="utf-8"))
        assert nb["metadata"]["kernelspec"]["name"] == "python3", path.name
        for cell in nb["cells"]:
            assert not cell.get("outputs") and not cell.get("execution_count"), f"{path.name}: stored outputs"
        assert (path.parents[2] / "wrong" / f"{path.stem[:2]}.py").exists(), (
            f"{path.name}: no wrong solutions"
        )
