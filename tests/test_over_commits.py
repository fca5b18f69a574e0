"""What is measured over commits: of a toy repository, whose package grows and whose studies move."""

import subprocess

import pandas as pd
import pytest

from tools import over_commits

FIRST = {"crfbook/__init__.py": '"""Doc."""\n\nX = 1  # one\n', "crfbook/studies/a.py": "X = 1\n\nY = 2\n"}
SECOND = {"crfbook/__init__.py": "X = 2\nSPEED = 0.25\n", "notebooks/studies/a.py": "X = 1\n"}
CASES = {"there": "import crfbook; print(crfbook.X)", "new": "import crfbook; print(crfbook.SPEED)"}


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """The names of two commits; the tool measures their repository, and writes beside it."""

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    root, found = tmp_path / "toy", []
    root.mkdir()
    git("init", "--quiet")
    for files in (FIRST, SECOND):
        if found:
            git("rm", "-r", "--quiet", ".")
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", "A toy")
        found.append(git("rev-parse", "HEAD"))
    monkeypatch.setattr(over_commits, "ROOT", root)
    monkeypatch.setattr(over_commits, "TABLE", tmp_path / "build" / "table.csv")
    monkeypatch.setitem(over_commits.CASES, "speed", CASES)
    yield found
    assert len(git("worktree", "list").splitlines()) == 1  # what was checked out is gone


def test_sizes_and_numbers_of_a_toy_repository(commits, tmp_path, capsys):
    over_commits.main([*commits, "--what", "sizes,speed", "--repeats", "2"])
    table = pd.read_csv(tmp_path / "build" / "table.csv").set_index(["case", "commit"])
    first, second = commits
    wanted = {
        "crfbook, code lines": (3, 2), "crfbook, files": (2, 1),
        "studies, code lines": (2, 1), "studies, files": (1, 1), "there": (1, 2), "new": ("not there", 0.25),
    }  # fmt: skip
    for case, (before, after) in wanted.items():
        assert str(table["median"][case, first]).removesuffix(".0") == str(before), case
        assert str(table["median"][case, second]).removesuffix(".0") == str(after), case
    assert table["n"]["there", first] == 2 and "SPEED" in capsys.readouterr().err
    assert (tmp_path / "build" / "table.png").stat().st_size > 0


def test_compiling_is_counted_with_a_cache_that_is_empty(tmp_path):
    """Seconds of the processes that a process starts count, too."""
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    code = "import os, subprocess, sys\nassert not os.listdir(os.environ['CRFBOOK_KERNEL_CACHE'])\n"
    code += f"subprocess.run([sys.executable, '-c', {busy!r}])"
    assert over_commits.seconds(tmp_path, "compile", code) > 0.3
    assert over_commits.seconds(tmp_path, "compile", "raise ImportError('no such name')") is None
