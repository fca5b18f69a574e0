"""What a class runs and saves changes nothing in the checkout; and nothing that somebody wrote is lost."""

import subprocess

import nbformat
import pytest

from tools import lab


def notebook(source, *said):
    cell = nbformat.v4.new_code_cell(source, outputs=[nbformat.v4.new_output("stream", text=t) for t in said])
    cell.id = "a"
    return nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))


@pytest.fixture
def book(tmp_path):
    folder = tmp_path / "notebooks"
    for name in (
        "00_start.ipynb",
        "studies/x.py",
        "assignments/source/01.ipynb",
        "teaching/exam_key.md",
        "teaching/syllabus.md",
        "README.md",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(notebook("x = 1", "stored"), encoding="utf-8")
    return folder


def test_the_copy_holds_no_solution_and_keeps_what_was_changed(book, tmp_path):
    here = tmp_path / "lab"
    assert lab.fill(here, book) == []
    assert sorted(p.relative_to(here).as_posix() for p in here.rglob("*") if p.is_file()) == [
        lab.COPIED, "00_start.ipynb", "studies/x.py",
    ]  # fmt: skip
    (here / "00_start.ipynb").write_text("mine")
    (here / "studies" / "x.py").unlink()
    assert lab.fill(here, book) == [] and (here / "studies" / "x.py").exists()
    for name in ("00_start.ipynb", "studies/x.py"):
        (book / name).write_text("new")
    assert lab.fill(here, book) == ["00_start.ipynb"]
    assert (here / "00_start.ipynb").read_text() == "mine" and (here / "studies/x.py").read_text() == "new"


def test_tidy_takes_back_what_running_added_and_nothing_else(book, tmp_path):
    def git(*command):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=tmp_path, check=True
        )

    git("init", "-q")
    run, written, new = book / "00_start.ipynb", book / "01_more.ipynb", book / "02_new.ipynb"
    written.write_text(notebook("x = 1", "stored"))
    git("add", ".")
    git("commit", "-qm", "x")
    before = run.read_bytes()
    run.write_text(notebook("x = 1", "another"))
    written.write_text(notebook("x = 2", "another"))
    new.write_text("{")
    found = lab.tidy(tmp_path, [run, written, new])
    assert found == [
        "notebooks/00_start.ipynb: as stored again",
        "notebooks/01_more.ipynb: has other cells: left as it is",
    ]
    assert run.read_bytes() == before and "x = 2" in written.read_text() and new.read_text() == "{"


def test_a_copy_can_be_made_without_starting_anything(book, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lab, "fill", lambda: [])
    monkeypatch.setattr(lab.subprocess, "call", None)
    assert lab.main(["copy"]) == 0 and "without solutions" in capsys.readouterr().out
