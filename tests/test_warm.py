"""Compiling ahead: which jobs a chapter needs, what was done before, what is said. Nothing compiles here."""

import os
import subprocess
import sys

import pytest

from crfbook import _jit, warm
from crfbook.models.parameters import ALGORITHMS
from tools import chapters as book


@pytest.fixture
def jobs_done(tmp_path, monkeypatch):
    """The jobs that `main` does, in place of doing them."""
    jobs = []
    monkeypatch.setattr(_jit, "CACHE_FOLDER", str(tmp_path))
    monkeypatch.setattr(_jit.config, "DISABLE_JIT", 0)

    def do(some):
        jobs.append(some)
        for job in some:
            warm.done(job).touch()
        return dict.fromkeys(some, 3)

    monkeypatch.setattr(warm, "warm", do)
    return jobs


def test_every_chapter_and_every_algorithm_has_its_jobs():
    chapters = [path.stem for path in book.chapters()]
    assert all(warm.jobs_of([name]) == warm.jobs_of([name[:2]]) != [] for name in chapters)
    assert set(ALGORITHMS) - {"lbfgs"} <= set(warm.JOBS)  # which is the job "crf"
    assert {number for _, users in warm.JOBS.values() for number in users.split()} == {
        n[:2] for n in chapters
    }


def test_what_is_there_is_left_out(jobs_done, capsys):
    assert warm.main(["01"]) == 0 and jobs_done == [["crf", "directed"]]
    assert "6 kernels compiled" in capsys.readouterr().out
    assert warm.main(["01"]) == 0 and len(jobs_done) == 1
    assert "nothing to compile" in capsys.readouterr().out
    assert warm.main([]) == 0 and len(jobs_done) == 1
    assert warm.main(["--all"]) == 0 and not {"crf", "directed"} & set(jobs_done[1])


def test_a_job_that_fails_is_named(jobs_done, monkeypatch, capsys):
    monkeypatch.setattr(warm, "warm", lambda jobs: {job: ValueError("no luck") for job in jobs})
    assert warm.main(["00"]) == 1
    assert "crf failed: ValueError: no luck" in capsys.readouterr().err


def test_an_unknown_chapter_is_named(capsys):
    with pytest.raises(SystemExit):
        warm.main(["77"])
    assert "got 77" in capsys.readouterr().err


def test_every_job_can_be_done():
    """As plain Python, on three sentences."""
    code = "from crfbook import warm\nwarm.N_SENTENCES = 3\nfor job in warm.JOBS:\n    warm.run(job)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=book.ROOT, env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
