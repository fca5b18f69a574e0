"""What lies in a folder of submissions: it costs a row, whatever it is, and nothing waits or fills memory."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import grade as tool
from tools.grading import pile, run, score

ROOT = Path(__file__).resolve().parents[2]
COMMAND = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from tools import grade
from tools.grading import assignment
assignment.SOURCE = Path(sys.argv[1])
grade.MARKS = assignment.SOURCE.parent / "marks.sqlite"
sys.exit(grade.main(sys.argv[2:]))
"""


def rows(folder, *command):
    """The rows of the table, each with what is said below it; the command runs in a process of its own."""
    command = [sys.executable, "-c", COMMAND, str(folder.parents[1]), *map(str, command)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    found, name = {}, None
    for line in done.stdout.splitlines()[1:]:
        if line.endswith(": written"):
            continue
        if line[:1] == " ":
            found[name].append(line.strip())
        else:
            name = line[:28].strip()
            assert name not in found
            found[name] = [line[28:].strip()]
    return found


FULL = "99_trial                       6 of 6 + 2 by hand"


def notebook_of(number, source, **more):
    code = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [code] * number} | more)


def no_notebooks(folder):
    """Write what is none, and name for each what the grader says of it."""
    no_file = "not a regular file of at most 20 MB"
    os.mkfifo(folder / "pipe.ipynb")
    here = os.getcwd()
    os.chdir(folder)  # an address has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("server.ipynb")
    os.chdir(here)
    links = {"zero": "/dev/zero", "terminal": "/dev/tty", "neighbour": "ann.ipynb", "nowhere": "nothing"}
    links["loop"] = "loop.ipynb"
    for name, place in links.items():
        (folder / f"{name}.ipynb").symlink_to(place)
    (folder / "huge.ipynb").touch()
    os.truncate(folder / "huge.ipynb", 1 << 40)
    place = folder.joinpath("deep", *["x"] * (pile.LEVELS + 5))
    place.mkdir(parents=True)
    (place / "x.ipynb").write_text("{}")
    (folder / "many.ipynb").write_text(notebook_of(2001, "x = 1"))
    (folder / "long.ipynb").write_text(notebook_of(1, "x = 1\n" * 400_000))
    (folder / "other.ipynb").write_text(notebook_of(1, "x = 1", worksheets=[3]))
    return dict.fromkeys(("pipe", "server", "huge", *links), no_file) | {
        "x": "a folder that cannot be read: 20 levels and 100,000 files are the most",
        "many": "more than 2,000,000 characters or 2,000 cells",
        "long": "more than 2,000,000 characters or 2,000 cells",
        "other": "is not a notebook (no cells)",
    }


def test_what_is_no_notebook_is_one_row_of_one_sentence(folder, submitted, tmp_path):
    """A grader that opens the pipe waits for ever; one that reads the device meets its limit of memory."""
    (tmp_path / "pile").mkdir()
    for name in ("ann", "zoe"):
        nbformat.write(submitted(), tmp_path / "pile" / f"{name}.ipynb")
    wanted = no_notebooks(tmp_path / "pile")
    found = rows(folder, tmp_path / "pile")
    assert found.pop("ann") == found.pop("zoe") == [FULL]
    assert found == {name: ["-", f"cannot be graded: {said}"] for name, said in wanted.items()}


def test_links_to_folders_are_not_followed(folder, submitted, tmp_path):
    (tmp_path / "pile" / "ann").mkdir(parents=True)
    nbformat.write(submitted(), tmp_path / "pile" / "ann" / "99_trial.ipynb")
    for name in ("bo", "cy"):
        (tmp_path / "pile" / name).symlink_to(tmp_path / "pile")
    (tmp_path / "pile" / "ann" / "loop").symlink_to("..")
    assert rows(folder, tmp_path / "pile") == {"ann": [FULL]}


def test_a_folder_that_is_too_full_does_not_hide_the_others(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pile, "ENTRIES", 10)
    for name, number in (("ann", 2), ("bo", 20), ("cy", 4)):
        for n in range(number):
            (tmp_path / "pile" / name / f"{n // 4}").mkdir(parents=True, exist_ok=True)
            (tmp_path / "pile" / name / f"{n // 4}" / f"{n}.ipynb").touch()
    found = [
        path.relative_to(tmp_path / "pile").as_posix() for path, _ in pile.files([tmp_path / "pile"], "file")
    ]
    assert [name for name in found if name[:2] != "bo"] == [
        "ann/0/0.ipynb", "ann/0/1.ipynb", "cy/0/0.ipynb", "cy/0/1.ipynb", "cy/0/2.ipynb", "cy/0/3.ipynb",
    ]  # fmt: skip
    assert "bo/1" in found and len(found) < 20


def test_a_folder_that_may_not_be_read_is_one_row(folder, submitted, tmp_path, monkeypatch):
    """Root may read all, so the system's refusal is put there."""
    for name in ("ann", "bo"):
        (tmp_path / "pile" / name).mkdir(parents=True)
        nbformat.write(submitted(), tmp_path / "pile" / name / "99_trial.ipynb")

    def refused(place, scan=os.scandir):
        if str(place).endswith("/bo"):
            raise PermissionError(13, "no")
        return scan(place)

    monkeypatch.setattr(os, "scandir", refused)
    ann, bo = tool.grade_files([tmp_path / "pile"])
    assert (ann.student, ann.points) == ("ann", 6) and bo.student == "bo"
    assert bo.remarks == [f"cannot be graded: a folder that cannot be read: {pile.LEVELS} levels and "
                          f"{pile.ENTRIES:,} files are the most"]  # fmt: skip


def test_outputs_and_pictures_do_not_count(submitted, folder, tmp_path):
    nb = submitted()
    nb.cells[1].outputs = [nbformat.v4.new_output("stream", text="x" * 5_000_000)]
    nb.cells[0].attachments = {"x.png": {"image/png": "x" * 5_000_000}}
    nbformat.write(nb, tmp_path / "ann.ipynb")
    (result,) = tool.grade_files([tmp_path / "ann.ipynb"])
    assert result.points == 6 and not result.remarks


def test_names_and_texts_that_cannot_be_written(folder, submitted, tmp_path):
    """A name of no text, an order to the terminal, half of a character: each is spelt out."""
    (tmp_path / "pile").mkdir()
    says = "def score(*given):\n    raise ValueError('\\ud800 \\x1b[2J')"
    nb = submitted(score=says, sums="raise_ = 1\nx = 1 / 0")
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "sums":
            cell.metadata["nbgrader"]["grade_id"] = "sums\x1b"
    nbformat.write(nb, tmp_path / "pile" / "ann.ipynb")
    os.rename(tmp_path / "pile" / "ann.ipynb", os.fsencode(tmp_path / "pile") + b"/a\xff\x1b\n.ipynb")
    found = rows(folder, tmp_path / "pile", "--csv", tmp_path / "x.csv", "--feedback", tmp_path / "back")
    ((name, (row, *said)),) = found.items()
    assert name == r"a\udcff\x1b\n" and row.startswith("99_trial") and r"\ud800 \x1b[2J" in said[0]
    pages = [path.read_text() for path in (tmp_path / "back").rglob("*.html")]
    assert len(pages) == 1 and "ZeroDivisionError" in pages[0] and "\x1b" not in pages[0]


def test_ipython_reads_no_cell_many_times(about, submitted, monkeypatch):
    """It reads a cell anew for each of its magics: a notebook of them would hold the grader for hours."""
    from IPython.core.inputtransformer2 import TransformerManager

    read = []
    assert "run_line_magic" in str(score.cells_of(about, submitted(score="%time x = 1"))), "a few are read"
    monkeypatch.setattr(TransformerManager, "transform_cell", lambda _, code: read.append(code) or code)
    for line in ("%ls", "!ls", "x?", "x = !ls", "x = %ls", "  %ls", "/ls", ",ls", ";ls", "?x"):
        read.clear()
        many = submitted(score=f"{line}\n" * 450)
        many.cells += many.cells * 50
        score.cells_of(about, many)
        assert sum(len(code) * (1 + code.count(f"{line}\n")) for code in read) <= score.EFFORT


def test_regular_files(tmp_path):
    (tmp_path / "x").write_bytes(b"123")
    with run.regular(tmp_path / "x", 3) as file:
        assert file.read() == b"123"
    for path, most in ((tmp_path / "x", 2), (tmp_path, 9), ("/dev/null", 9)):
        with pytest.raises(ValueError, match="not a regular file of at most"):
            run.regular(path, most)


@pytest.mark.parametrize(
    "written, by_file, by_folder",
    [
        ("ann bob", "ann bob", "pile pile"),
        ("ann/homework bob/homework", None, "ann bob"),
        ("ann/homework 99_trial/bob", "homework bob", "bob ann"),
        ("ann/part1 ann/part2 bob/part1", None, "ann ann bob"),
        ("ann/homework ann/homework-Copy1 bob/homework", None, "ann ann bob"),
        ("ann/sub/hw bob/sub/hw", None, "ann bob"),
        ("monday/ann tuesday/bob tuesday/cy", "ann bob cy", "monday tuesday tuesday"),
        ("ann/final ann/._final", "final", "ann"),
        ("ann/99_trial ann/backup/99_trial", "ann backup", "ann ann"),
        ("ann-1/99_trial ann-2/99_trial", "ann ann", "ann-1 ann-2"),
        ("ann/99_trial/99_trial bob/99_trial/99_trial", "ann bob", "ann bob"),
        ("Lee_12_assignsubmission_file_/hw Bo_13_assignsubmission_file_/hw", "Bo Lee", "Bo Lee"),
    ],
)
def test_files_or_folders_name_students(folder, tmp_path, written, by_file, by_folder):
    given = tmp_path / "pile"
    for name in written.split():
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / f"{name}.ipynb").write_text("{}")
    if by_file is None:
        with pytest.raises(ValueError, match="lies in .* and in .*: say --by folder if"):
            pile.files([given])
        assert len({name for _, name in pile.files([given], "file")}) <= 2
    else:
        assert sorted(name for _, name in pile.files([given])) == sorted(by_file.split())
    assert sorted(name for _, name in pile.files([given], "folder")) == sorted(by_folder.split())


def test_given_folders_name_students_and_one_without_a_notebook_is_told(folder, tmp_path, monkeypatch):
    for name in ("ann/hw.ipynb", "bob/hw.ipynb", "txt/answer.txt", "none/x", ".git/x"):
        (tmp_path / "pile" / name).parent.mkdir(parents=True)
        (tmp_path / "pile" / name).write_text("{}")
    (tmp_path / "pile" / "link").symlink_to("x" * 300)
    monkeypatch.chdir(tmp_path / "pile" / "ann")
    pair = [Path("."), Path("../bob")]
    assert [name for _, name in pile.files(pair, "folder")] == ["ann", "bob"]
    assert [name for _, name in pile.files([Path("hw.ipynb")], "folder")] == ["ann"]
    with pytest.raises(ValueError, match="hw.ipynb lies in ann and in bob"):
        pile.files(pair)
    found = {result.student: result.remarks for result in tool.grade_files([tmp_path / "pile"], by="folder")}
    assert found.keys() == {"ann", "bob", "txt", "none"}
    assert found["txt"] == found["none"] == ["cannot be graded: no notebook in this folder"]
