"""The machinery that runs the chapters: does it notice what is wrong? Each test runs a small notebook of its
own.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import crfbook
from tools import book, chapters, execute, outputs, paper, site, site_pages, teaching

ROOT = Path(__file__).resolve().parents[2]


def notebook(folder, *sources, name="04_small.ipynb"):
    first = nbformat.v4.new_markdown_cell(f"# 04. Small\n\n{chapters.PROMISE} see a page.")
    nb = nbformat.v4.new_notebook(cells=[first, *(nbformat.v4.new_code_cell(s) for s in sources)])
    path = folder / name
    chapters.write(chapters.normalise(nb), path)
    return path


def nbval(folder, *options):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "--nbval-lax",
        "--nbval-current-env",
        *options,
    ]
    done = subprocess.run([*command, str(folder)], cwd=folder, capture_output=True, text=True, timeout=120)
    counts = {
        kind: int(n)
        for n, kind in re.findall(
            r"(\d+) (passed|failed|xfailed|xpassed|error)", done.stdout.splitlines()[-1]
        )
    }
    return done.returncode, counts


@pytest.mark.parametrize("with_hook", [True, False])
def test_a_chapter_that_hangs_fails_in_every_later_cell(tmp_path, with_hook):
    notebook(tmp_path, "x = 1", "import time\ntime.sleep(60)", "y", "assert False")
    if with_hook:
        shutil.copy(ROOT / "conftest.py", tmp_path)
    code, counts = nbval(tmp_path, "--nbval-cell-timeout", "5")
    assert code == 1
    if with_hook:
        assert counts == {"passed": 1, "failed": 3}
    else:  # what nbval does by itself: this is why the hook exists
        assert counts["failed"] == 1 and counts["xfailed"] == 2


@pytest.mark.parametrize("claim, counts", [("x < 2", {"passed": 2}), ("x > 1", {"passed": 1, "failed": 1})])
def test_a_marked_sentence_is_asserted_where_it_stands(tmp_path, claim, counts):
    path = notebook(tmp_path, "x = 1\nx", "x = 3")
    nb = chapters.read(path)
    nb.cells.insert(2, nbformat.v4.new_markdown_cell(f"It is small <!-- holds: {claim} -->."))
    chapters.write(chapters.normalise(nb), path)
    shutil.copy(ROOT / "conftest.py", tmp_path)
    assert nbval(tmp_path) == (int("failed" in counts), counts)


def test_a_compared_output_that_differs_fails(tmp_path):
    path = notebook(tmp_path, "# NBVAL_CHECK_OUTPUT\nprint(1)", "print(2)")
    run = execute.execute(path, timeout=60)
    nb = chapters.normalise(run.nb)
    chapters.write(nb, path)
    assert nbval(tmp_path) == (0, {"passed": 2})
    for cell in nb.cells[1:]:
        cell.outputs[0].text = "7\n"
    chapters.write(nb, path)
    assert nbval(tmp_path) == (1, {"passed": 1, "failed": 1})


def test_a_run_reports_seconds_data_and_errors(tmp_path, capsys):
    lines = (
        "conll2000 (chunk): real data, 10 sentences\natis (slots): built-in twin (9 train)\nnote (a): other"
    )
    good = notebook(tmp_path, f"print({lines!r})", name="01_good.ipynb")
    bad = notebook(tmp_path, "x = 1\nx / 0", "print(1)", name="02_bad.ipynb")
    before = good.read_bytes()
    runs = execute.run_all([good, bad], timeout=60)
    assert execute.report(runs) == 1
    text, err = capsys.readouterr()
    assert re.search(r"^01_good +\d+\.\d s  ok$", text, re.M) and re.search(
        r"^02_bad +\d+\.\d s  failed$", text, re.M
    )
    assert "atis (slots): built-in twin, conll2000 (chunk): real data\n" in text
    assert "ZeroDivisionError" in err and "x / 0" in err
    assert good.read_bytes() == before, "a run changed its notebook"
    assert execute.report(runs[:1]) == 0
    text = site_pages.builds({run.path.stem: run.nb for run in runs}, runs[:1], execute.data_used)
    assert (
        "atis (slots): built-in twin" in text and "<td>ok</td>" in text and "<td>stored outputs</td>" in text
    )
    assert "data_fetch atis`" in text, "how to get the corpus whose twin was used"


def test_tools_say_what_they_do(capsys):
    for tool in (book, chapters, outputs, paper, site, teaching):
        for arguments in (["--help"], ["04", "-h"]):
            assert tool.main(arguments) == 0 and capsys.readouterr().out == tool.__doc__.strip() + "\n"


def test_a_figure_is_described_by_the_comment_that_opens_its_cell():
    source = "# Figure: a line that falls,\n# then rises.\nplt.plot(y)"
    assert chapters.alt_text(source) == "a line that falls, then rises."
    assert chapters.alt_text("x = 1\n# Figure: late") == ""


def test_the_line_of_load_dataset_is_understood(capsys):
    for name in ("conll2000", "atis"):
        crfbook.load_dataset(name, source="builtin")
    found = execute.SOURCE.findall(capsys.readouterr().out)
    assert [(what.split()[0], source) for what, source in found] == [
        ("conll2000", "built-in twin"),
        ("atis", "built-in twin"),
    ]


def test_a_run_that_hangs_or_dies_is_one_clear_failure(tmp_path):
    slow = execute.execute(notebook(tmp_path, "import time", "time.sleep(60)"), timeout=5)
    assert "more than 5 s" in slow.error and "time.sleep(60)" in slow.error
    dead = execute.execute(notebook(tmp_path, "import os\nos._exit(1)"), timeout=60)
    assert "kernel died" in dead.error


def test_outputs_are_stored_clean_or_not_at_all(tmp_path):
    path = notebook(tmp_path, "print('a')\nprint('b')", "1 + 1")
    run = execute.execute(path, timeout=60)
    assert outputs.store(run) == ""
    stored = chapters.read(path)
    code = [c for c in stored.cells if c.cell_type == "code"]
    assert [c.execution_count for c in code] == [1, 2]
    assert code[0].outputs[0].text == "a\nb\n" and len(code[0].outputs) == 1
    assert chapters.normalise(chapters.read(path)) == stored
    noisy = notebook(tmp_path, "import warnings\nwarnings.warn('mind the gap')")
    before = noisy.read_bytes()
    assert "mind the gap" in outputs.store(execute.execute(noisy, timeout=60))
    assert noisy.read_bytes() == before


def test_the_skeleton_has_the_anatomy():
    nb = chapters.skeleton("04", "Which loss?")
    nbformat.validate(nb)
    assert chapters.title(nb) == "Which loss?" and chapters.is_draft(nb)
    assert chapters.normalise(nb) == nb


def test_the_install_cell_is_inert_here(capsys):
    code = chapters.install_cell()
    assert code.count("    %pip") == code.count("    %cd crfbook/notebooks") == 1
    exec(re.sub("[%!]", "raise RuntimeError #", code), {})
    assert capsys.readouterr() == ("", "")


def test_chapters_can_be_named_by_number_and_stem():
    every = chapters.chapters()
    assert chapters.chapters([every[0].stem[:2]]) == every[:1] == chapters.chapters([every[0].stem])
    with pytest.raises(SystemExit, match="no chapter 77"):
        chapters.chapters(["77"])


@pytest.mark.parametrize("name", ["build", "build/book"])
def test_a_file_where_the_pages_should_go_is_told(tmp_path, monkeypatch, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "BUILD", tmp_path / "build" / "book")
    monkeypatch.setattr(book, "run_all", lambda *arguments: pytest.fail("nothing is to be run"))
    with pytest.raises(SystemExit, match="^expected a folder build/book, found a file of that name$"):
        book.main(["00"])
