"""Each function gets what it deserves, whatever another one, or the submission as a whole, does."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from helpers.assignments import RIGHT

from tools.grade import grade_files
from tools.grading import assignment as source
from tools.grading import run
from tools.grading.score import cells_of, grade

ALL = {"score", "log_z", "sums"}
SLEEP = "__import__('time').sleep(60)"


def lost(about, nb, **limits):
    """The functions without their points. Waiting is what a hostile submission does: limits are short."""
    marks, _ = grade(about, nb, **{"seconds": 3.0, "in_all": 60.0, "memory": 1 << 30} | limits)
    assert all(mark.points < mark.of if mark.note else mark.points == mark.of for mark in marks.values())
    return {test.removesuffix("-test") for test, mark in marks.items() if mark.note}


def before(name, *lines):
    """The right code of a function, after these lines."""
    return "\n".join([*lines, RIGHT[name]])


def inside(name, line):
    """A function that does this, and then what is right."""
    head, _, body = RIGHT[name].partition("\n")
    return f"{head}\n    {line}\n{body}"


def returns(name, expression):
    return f"def {name}(*given):\n    return {expression}"


PATCHES = "import __main__, json\n__main__.answer = __main__.pack = __main__.complaint\njson.dumps = len"
RIGHT_ALL_THE_SAME = {
    "as it should be": {},
    "prints to stderr": {"score": inside("score", "import sys; print('!', file=sys.stderr)")},
    "warns": {"score": inside("score", "import warnings; warnings.warn('careful'); np.log(0.0)")},
    "floods stdout": {"score": inside("score", "print('flood' * 1_000_000)")},
    "changes its arguments": {
        "sums": inside("sums", "given = log_node.copy(); log_node *= 0; log_node = given")
    },
    "ends at the top": {"score": before("score", "import os", "x = os._exit(0)")},
    "exits at the top": {"score": before("score", "x = __import__('sys').exit(3)")},
    "hangs at the top": {"log_z": before("log_z", f"x = {SLEEP}")},
    "patches comparisons": {"score": before("score", "np.allclose = np.isclose = lambda *a, **k: False")},
    "patches json": {"score": before("score", "import json", "json.dumps = json.loads = len")},
    "leaves a thread": {
        "score": inside("score", f"import threading; threading.Thread(target=lambda: {SLEEP}).start()")
    },
    "returns what is as good": {
        "sums": returns(
            "sums",
            "{np.str_('rows'): list(given[0].sum(1)), 'all': [np.sum(given[0]), np.array(given[0].shape)]}",
        )
    },
}


@pytest.mark.parametrize("codes", RIGHT_ALL_THE_SAME.values(), ids=RIGHT_ALL_THE_SAME)
def test_right_functions_keep_their_points(about, submitted, codes):
    assert lost(about, submitted(**codes)) == set()


LIAR = """\
class Liar(float):
    def __eq__(self, other): return True
    def __float__(self): return 0.5
    def __array__(self, *a, **k): return np.zeros(3)
    def __repr__(self): return "0.5"
"""
ERROR = "class E(Exception):\n    def __str__(self): raise self\n"
ARRAY = "class A(np.ndarray):\n    def __eq__(self, other): return True\n    shape = ()\n"
FORGED = """\
for n in range(99):
        line = {"answer": n, "result": {"value": "0", "kind": "float"}}
        open("log", "a").write("\\n" + __import__("json").dumps(line) + "\\n")
    import os; os._exit(0)"""
NONSENSE = """\
lines = ['[1]', '{"answer": [], "call": {}}', '{"answer": 0, "result": 1}', '{"wrong": {"score": {}}}']
    open("log", "a").write("\\n".join(["", *lines, '{"call"']))
    import os; os._exit(0)"""
ROOT = Path(__file__).resolve().parents[2]
WRONG = {
    "patches np.allclose": "np.allclose = np.array_equal = len\n" + returns("score", "0"),
    "ends": inside("score", "import os; os._exit(0)"),
    "ends with everything": inside("score", "import os; os.closerange(0, 99); os._exit(0)"),
    "exits": inside("score", "raise SystemExit(0)"),
    "is interrupted": inside("score", "raise KeyboardInterrupt"),
    "hangs": inside("score", SLEEP),
    "overflows the stack": inside("score", "import sys; sys.setrecursionlimit(10**9); f = lambda: f(); f()"),
    "eats memory": inside("score", "x = np.ones(10**9)"),
    "eats memory slowly": inside("score", "x = [b'']; [x.append(bytes(10**7)) for n in range(10**3)]"),
    "has a syntax error": before("score", "def"),
    "has tabs": before("score", "if True:\n\tx = 1\n        y = 2"),
    "is missing": "x = 1",
    "is no function": "score = 3",
    "is another thing": "score = np",
    "returns a shape": returns("score", "np.zeros((2, 3))"),
    "returns nan": returns("score", "np.nan"),
    "returns nothing": returns("score", "None"),
    "returns text": returns("score", "'1.0'"),
    "returns an object": returns("score", "object()"),
    "returns objects": returns("score", "np.array([object()])"),
    "returns a function": returns("score", "score"),
    "returns a liar": LIAR + returns("score", "Liar(7)"),
    "returns a lying array": ARRAY + returns("score", "np.zeros(3).view(A)"),
    "returns itself": returns("score", "(lambda x: x.append(x) or x)([])"),
    "returns no end": returns("score", "iter(int, 1)"),
    "generates no end": returns("score", "(n for n in iter(int, 1))"),
    "returns a large array": returns("score", "np.zeros(10**7)"),
    "returns a large list": returns("score", "[0.0] * 10**6"),
    "returns a large number": returns("score", "10 ** 10**6"),
    "returns texts that an array fills up": returns("score", "['x' * 9999] + [''] * 16000"),
    "returns a large text": returns("score", "'x' * 10**7"),
    "raises what cannot be said": ERROR + inside("score", "raise E"),
    "sets numpy to raise": inside("score", "np.seterr(all='raise'); return 0"),
    "patches numpy in a call": inside("score", "np.exp = np.log = np.arange = None; return 0"),
    "removes the others": inside("score", "globals().pop('log_z', 0); globals().pop('sums', 0); return 0"),
    "kills the grader": inside("score", "import os; os.kill(os.getppid(), 9)"),
    "starts a program": inside("score", "import subprocess; subprocess.run(['echo'])"),
    "forks": inside("score", "import os; os.fork()"),
    "asks the web": inside("score", "import socket; socket.create_connection(('localhost', 9), 1)"),
    "reads the grader": inside("score", f"open({str(ROOT / 'tools' / 'grade.py')!r})"),
    "reads a neighbour": inside("score", f"open({str(ROOT / 'notebooks' / '00_start_here.ipynb')!r})"),
    "empties the log": inside("score", "open('log', 'wb')"),
    "forges answers": inside("score", FORGED),
    "forges nonsense": inside("score", NONSENSE),
    "blocks the reader": inside("score", "import os; os.remove('log'); os.mkfifo('log'); os._exit(0)"),
    "pretends to work": inside("score", "while [open('log', 'a').write('.')]: " + SLEEP.replace("60", "0.1")),
}  # fmt: skip


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_one_wrong_function_costs_its_own_points_only(about, submitted, code):
    limits = {"in_all": 12.0} if "while [" in code else {}
    assert lost(about, submitted(score=code), **limits) == {"score"}


def test_a_guard_stands_between_a_submission_and_files(about, submitted, folder, tmp_path):
    """In a process without it the same code would change the file: the test can fail."""
    lines = [
        "open({0!r}, 'w')",
        "open({0!r})",
        "import os; os.remove({0!r})",
        "import os; os.rename({0!r}, 'x')",
        "import os; os.symlink({0!r}, 'x')",
        "import shutil; shutil.rmtree({1!r})",
        "np.save({0!r}, 1)",
    ]
    for line in lines:
        line = line.format(str(folder), str(folder.parent))
        kept = folder.read_bytes()
        assert lost(about, submitted(score=inside("score", line))) == {"score"}
        assert folder.read_bytes() == kept and len(list(folder.parent.iterdir())) == 1


def test_two_that_sabotage_do_not_save_each_other(about, submitted):
    codes = {
        "score": inside("score", "np.exp = None; return 0"),
        "log_z": inside("log_z", "import os; os._exit(1)"),
    }
    assert lost(about, submitted(**codes)) == {"score", "log_z"}


def edit_tests(nb, change):
    cells = []
    for cell in nb.cells:
        test = cell.metadata.get("nbgrader", {}).get("grade_id", "").endswith("-test")
        cells += change(cell) if test else [cell]
    nb.cells = cells
    return nb


def changed(cell, text):
    return [nbformat.from_dict({**cell, "source": text})]


@pytest.mark.parametrize(
    "change",
    [
        lambda cell: [],
        lambda cell: changed(cell, "assert True"),
        lambda cell: changed(cell, "def score(*given): return 0\ndef check(*given): return True"),
        lambda cell: changed(cell, "import os; os._exit(0)"),
        lambda cell: changed(cell, cell.source + "\nraise ValueError"),
        lambda cell: [cell, *changed(cell, "helper = 1")],
    ],
)
def test_what_students_do_to_tests_changes_nothing(about, submitted, change):
    assert lost(about, edit_tests(submitted(), change)) == set()
    assert lost(about, edit_tests(submitted(log_z=returns("log_z", "0")), change)) == {"log_z"}


def test_cells_that_are_ours_do_not_run_unless_they_are_changed(about, submitted, monkeypatch):
    nb = submitted()
    code = "\n".join(code for _, code in cells_of(about, nb))
    assert "looked" not in code and "def check" not in code and code.count("def chain") == 1
    nb.cells[-1].source += "\nhelper = 2"
    nb.cells[2].source = "seed = 77"
    code = "\n".join(code for _, code in cells_of(about, nb))
    assert "looked" in code and "seed = 77" not in code


def test_code_in_a_copy_of_a_test_cell_counts(about, submitted):
    """JupyterLab copies a cell with its metadata: a helper written into such a copy is the student's."""
    nb = submitted(score="def score(*given):\n    return helper(*given)")
    test = next(cell for cell in nb.cells if source.role(cell)[1].get("grade_id") == "score-test")
    nb.cells += changed(test, before("score").replace("def score", "def helper"))
    assert lost(about, nb) == set()


def test_magics_and_loops_at_the_top(about, submitted):
    code = before(
        "score", "%matplotlib inline", "!ls", "table = []", "for n in range(3):\n    table.append(n)"
    )
    assert lost(about, submitted(score=code.replace("len(path))", "len(path)) + 0 * table[2]"))) == set()


# ---- files ----

NO_NOTEBOOKS = {
    "empty": "", "text": "no notebook", "list": "[]", "number": "3", "object": "{}", "deep": "[" * 100_000,
    "no cells": json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}),
    "bytes": "\x00\x01", "old": json.dumps({"nbformat": 1}),
    "cells": json.dumps({"nbformat": 4, "cells": [3]}),
}  # fmt: skip


def test_a_pile_survives_what_is_no_notebook(submitted, tmp_path):
    pile = tmp_path / "pile"
    pile.mkdir()
    for name, text in NO_NOTEBOOKS.items():
        (pile / f"{name}.ipynb").write_text(text)
    nb = submitted()
    nbformat.write(nb, pile / "zoe.ipynb")
    for metadata in (
        {"crfbook": 3},
        {"crfbook": {"assignment": ["x"], "seed": "x"}},
        {"crfbook": {"seed": -1}},
    ):
        nb.metadata = nbformat.from_dict(metadata)
        nb.cells[1].metadata = nbformat.from_dict({"nbgrader": 3})
        nb.cells[0].metadata = nbformat.from_dict({"nbgrader": {"grade_id": [3]}})
        nbformat.write(nb, pile / f"zoe {len(list(pile.iterdir()))}.ipynb")
    results = grade_files([pile])
    good = {result.student: result.points for result in results if result.assignment}
    assert len(good) == 4 and set(good.values()) == {6}
    bad = [result for result in results if not result.assignment]
    assert len(bad) == len(NO_NOTEBOOKS)
    assert all(len(r.remarks) == 1 and "\n" not in r.remarks[0] and r.remarks[0] for r in bad)


def test_ctrl_c_leaves_no_worker(monkeypatch):
    """The teacher's Ctrl-C while a worker sleeps: it is stopped, not waited for."""
    stopped = []

    def pressed(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pressed))
    monkeypatch.setattr(
        run, "_stop", lambda process, stop=run._stop: stopped.append(process) or stop(process)
    )
    with pytest.raises(KeyboardInterrupt):
        run.ask([("a", f"x = {SLEEP}")], [("f", ())])
    assert stopped and stopped[0].returncode is not None
