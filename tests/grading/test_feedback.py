"""What students are told; and one mistake costs what it should: kinds of calls, functions built on others."""

import nbformat
import pytest
from helpers.assignments import NAME, RIGHT

from tools import grade as tool
from tools.grading import assignment as source
from tools.grading.complaints import Failed, holds_no_value, raised
from tools.grading.pile import answers, files
from tools.grading.release import notebook, student
from tools.grading.score import grade

# ---- an error ----


@pytest.mark.parametrize(
    "code, teacher, student",
    [
        ("raise NotImplementedError", "not done", "not done"),
        ("assert len(path) == 0", "AssertionError L2, at `assert len(path) == 0`", None),
        ("assert 0, 'no empty path'",
         "AssertionError L2: no empty path, at `assert 0, 'no empty path'`", None),
        ("return path[99]", "IndexError L2: index 99 is out of bounds for axis 0 with size 3, "
                            "at `return path[99]`", None),
        ("return pathh", "NameError L2: name 'pathh' is not defined, at `return pathh`", None),
        ("raise ValueError(str(path))", "ValueError L2: [0 1 1], at `raise ValueError(str(path))`",
         "ValueError L2, at `raise ValueError(str(path))`"),
        ("{}[str(path)]", "KeyError L2: '[0 1 1]', at `{}[str(path)]`",
         "KeyError L2, at `{}[str(path)]`"),
        ("exec(f'x{path[1]}y')", "NameError L2: name 'x1y' is not defined, at `exec(f'x{path[1]}y')`",
         "NameError L2, at `exec(f'x{path[1]}y')`"),
        ("return np.ones(3) @ np.ones(2)", "matmul: Input operand 1 has a mismatch in its core", None),
        ("return np.ones(3) + np.ones(2)", "could not be broadcast together with shapes (3,) (2,)", None),
        ("return log_node[0](1)", "'numpy.ndarray' object is not callable", None),
        ("return score(path)", "missing 2 required positional arguments: 'log_node' and 'log_edge'", None),
        ("if log_node > 0: pass", "truth value of an array with more than one element is ambiguous.", None),
        ("return score(path, log_node, log_edge)", "maximum recursion depth exceeded", None),
    ],
)  # fmt: skip
def test_an_error_is_told_with_its_line(about, submitted, code, teacher, student):
    teacher, student = ((said or "").replace("L2", "(line 2 of its cell)") for said in (teacher, student))
    nb = submitted(score=f"def score(path, log_node, log_edge):\n    {code}")
    mark = grade(about, nb)[0]["score-test"]
    assert mark.note.startswith("0 of 3 calls right; ") and teacher in mark.note
    assert (student or teacher) in mark.brief
    assert student in ("", teacher) or teacher not in mark.brief


def test_a_blank_release_is_not_done_and_says_so_once(about):
    marks, wrong = grade(about, notebook(about, student(about)))
    assert {mark.brief for mark in marks.values()} == {
        "0 of 3 calls right; score: not done", "0 of 3 calls right; log_z: not done",
        "0 of 3 calls right; sums: not done",
    }  # fmt: skip
    assert wrong == {}


def test_all_complaints_of_a_cell(about, submitted):
    _, wrong = grade(about, submitted(sums="x = 1 / 0\ny = {}['z']\nz = len(3)\n" + RIGHT["sums"]))
    ((cell, said),) = wrong.items()
    assert cell.startswith("sums [") and said == [
        "ZeroDivisionError (line 1 of its cell): division by zero, at `x = 1 / 0`",
        "KeyError (line 2 of its cell): 'z', at `y = {}['z']`",
        "TypeError (line 3 of its cell): object of type 'int' has no len(), at `z = len(3)`",
    ]


def test_what_a_worker_says_of_an_error_may_be_anything():
    cells = [("a", "first\nsecond = 'words'")]
    for found in ({}, {"kind": 3, "text": [], "cell": [], "line": "x"}, {"kind": "os.system", "line": 10**9}):
        assert isinstance(raised(found, cells), Failed) and raised(found, cells).brief() == "an error"
    forged = raised({"kind": "KeyError", "text": "3.25", "cell": "a", "line": 2}, cells)
    assert forged.brief() == "KeyError (line 2 of its cell), at `second = 'words'`"
    assert holds_no_value("words", cells[0][1]) and not holds_no_value("word", cells[0][1])
    assert not holds_no_value("name 'secret' is not defined", "x") and not holds_no_value("index 3", "x")


# ---- kinds of calls ----

LABELLED = """\
example(log_z, log_node, log_edge)
### BEGIN HIDDEN TESTS
hidden = np.random.default_rng([seed, 2])
case(log_z, *chain(hidden, 5, 3))
case(log_z, *chain(hidden, 1, 3), kind="a sentence of one word")
for n in range(2):
    case(log_z, 1e3 * chain(hidden, 4, 3)[0], np.zeros((3, 3)), kind="scores of 1000")
### END HIDDEN TESTS"""
UNSAFE = """\
def log_z(log_node, log_edge):
    a = np.exp(log_node[0])
    for u in log_node[1:]:
        a = np.exp(u) * (a @ np.exp(log_edge))
    return np.log(a.sum())"""


def rewritten(folder, **cells):
    """The trial with other sources of some cells."""
    nb = nbformat.read(folder, 4)
    for cell in nb.cells:
        cell.source = cells.get(source.role(cell)[1].get("grade_id", "").replace("-", "_"), cell.source)
    nbformat.write(nb, folder)
    return source.load(folder, seed=3)


def test_a_forgotten_guard_costs_its_kind_and_is_named(folder, submitted):
    about = rewritten(folder, log_z_test=LABELLED)
    mark = grade(about, submitted(log_z=UNSAFE))[0]["log_z-test"]
    assert mark.points == 3 * 0.75 and mark.brief == mark.note
    assert mark.note.startswith(
        "3 of 5 calls right; scores of 1000 (0 of 2 right): log_z: 1 of 1 values differ"
    )
    wrong = RIGHT["log_z"].replace("log_edge", "log_edge.T", 2).replace("log_edge.T)", "log_edge)", 1)
    mark = grade(about, submitted(log_z=wrong))[0]["log_z-test"]
    assert mark.points == 0 and "a sentence of one word" not in mark.note
    release = notebook(about, student(about))
    assert "one word" not in str(release) and "kind" not in "".join(c.source for c in release.cells[2:])


def test_arguments_that_a_function_should_keep(folder, submitted):
    tests = (
        "example(sums, log_node, keeps=0)\n### BEGIN HIDDEN TESTS\ncase(sums, np.ones((2, 2)), keeps=(0,))\n"
    )
    about = rewritten(folder, sums_test=tests + "### END HIDDEN TESTS")
    assert grade(about, submitted())[0]["sums-test"].points == 1
    mark = grade(about, submitted(sums=RIGHT["sums"] + "\n".join(["", "_ = sums", "def sums(log_node):",
        "    found = _(log_node)", "    log_node *= 2", "    return found"])))[0]["sums-test"]  # fmt: skip
    assert mark.points == 0 and mark.brief == "0 of 2 calls right; sums: argument 1 is changed by the call"


# ---- what builds on something else ----

BUILT = """\
def score(path, log_node, log_edge):
    return sums(log_node)['rows'][0] * 0 + part(path, log_node, log_edge)"""
PART = RIGHT["score"].replace("def score", "def part")


def test_a_wrong_function_does_not_sink_the_one_that_builds_on_it(about, submitted):
    nb = submitted(score=f"{PART}\n{BUILT}", sums="def sums(log_node):\n    return 'nothing'")
    marks, _ = grade(about, nb)
    assert (marks["score-test"].points, marks["score-test"].note) == (2, "")
    assert marks["score-test"].brief == "with our `sums` in place of yours"
    assert marks["sums-test"].points == 0
    wrong = BUILT.replace("return", "return 1 +")
    marks, _ = grade(
        about, submitted(score=f"{PART}\n{wrong}", sums="def sums(log_node):\n    return 'nothing'")
    )
    assert marks["score-test"].points == 0 and "ours" not in marks["score-test"].brief


def test_ours_stands_in_for_others_only(about, submitted):
    """A function that hands on what ours returns gets nothing for itself."""
    nb = submitted(
        score="def score(*given):\n    return log_z(*given[1:])", log_z="def log_z(*given):\n    return 0"
    )
    assert {name: mark.points for name, mark in grade(about, nb)[0].items()} == {
        "score-test": 0, "log_z-test": 0, "sums-test": 1,
    }  # fmt: skip


def test_a_call_at_the_top_that_a_function_needs(about, submitted):
    code = RIGHT["score"].replace("path, log_node, log_edge", "path, log_node, log_edge", 1)
    code = "def setup():\n    global one\n    one = 1\nsetup()\n" + code.replace("return", "return one *")
    marks, _ = grade(about, submitted(score=code))
    assert (marks["score-test"].points, marks["score-test"].note) == (2, "")
    assert marks["score-test"].brief == "right with the calls at the top of cells"


# ---- files ----


@pytest.mark.parametrize(
    "place, student",
    [(f"Ann Lee_12_assignsubmission_file_{NAME}.ipynb", "Ann Lee"),
     (f"Ann Lee_12_assignsubmission_file_{NAME} (1).ipynb", "Ann Lee"),
     ("Ann Lee_12_assignsubmission_file_my work.ipynb", "Ann Lee"),
     ("Ann Lee_12_assignsubmission_file_/homework (2).ipynb", "Ann Lee"),
     (f"leeann_LATE_123_456_{NAME}-1.ipynb", "leeann"), (f"leeann_123_456_{NAME}.ipynb", "leeann"),
     (f"ann/{NAME} (1) (2).ipynb", "ann"), (f"{NAME}_ann (1).ipynb", "ann"), (f"{NAME}/ann.ipynb", "ann")],
)  # fmt: skip
def test_names_as_platforms_and_browsers_write_them(folder, tmp_path, place, student):
    path = tmp_path / "pile" / place
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert files([tmp_path / "pile"]) == [(path, student)]


def bare(nb, seed=3):
    """The notebook without any metadata, as an editor may save it."""
    nb.metadata = nbformat.from_dict({})
    for cell in nb.cells:
        cell.metadata = nbformat.from_dict({})
    return nb


def test_a_file_without_metadata_is_known_by_its_name_and_its_question_by_its_text(
    about, submitted, tmp_path
):
    nb = bare(submitted())
    nb.cells[-2].source = "Since it is large."
    for name in ("trial ann.ipynb", f"{NAME}_bo.ipynb"):
        nbformat.write(nb, tmp_path / name)
    ann, bo = tool.grade_files([tmp_path / "trial ann.ipynb", tmp_path / f"{NAME}_bo.ipynb"])
    assert (ann.points, bo.points, bo.student) == (6, 6, "bo")
    assert ann.answers == bo.answers == {"why": (2, "Since it is large.")}
    assert answers(about, notebook(about, student(about)))["why"] == (2, "")


def test_a_changed_seed_is_remarked_on(submitted, tmp_path):
    pile = tmp_path / "pile"
    pile.mkdir()
    for name in "abc":
        nbformat.write(submitted(), pile / f"{name}.ipynb")
    nb = submitted()
    nb.metadata.crfbook["seed"] = 4
    nbformat.write(nb, pile / "d.ipynb")
    nb.metadata.crfbook["seed"] = 3
    for cell in nb.cells:
        cell.source = cell.source.replace("seed = 3", "seed = 5")
    nbformat.write(nb, pile / "e.ipynb")
    remarks = {result.student: result.remarks for result in tool.grade_files([pile])}
    assert remarks == {
        "a": [], "b": [], "c": [], "d": ["its cell says seed 3, its metadata seed 4"],
        "e": ["its cell says seed 5, its metadata seed 3"],
    }  # fmt: skip
    for cell in nb.cells:
        cell.source = cell.source.replace("seed = 5", "seed = 4")
    nb.metadata.crfbook["seed"] = 4
    nbformat.write(nb, pile / "d.ipynb")
    remarks = {result.student: result.remarks for result in tool.grade_files([pile])}
    assert remarks["d"] == ["names seed 4, most others seed 3: give the seed as --seed"]
