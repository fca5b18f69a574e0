"""Compiling ahead: which jobs a chapter needs, what was done before, what is said. Nothing compiles here."""

import os
import signal
import subprocess
import sys
import warnings

import pytest

from crfbook import _jit, load_dataset, warm
from crfbook.chain.sparse import choice
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


def test_no_job_goes_round_the_kernels(monkeypatch):
    """Prediction of 50 sentences did: nothing was compiled for it."""
    asked = []
    monkeypatch.setattr(choice, "TINY_SECONDS", Asked(asked, choice.TINY_SECONDS))
    train = load_dataset("conll2000", source="builtin", verbose=False).train[: warm.N_SENTENCES]
    for job in ("crf", "directed"):
        with warnings.catch_warnings(action="ignore"):
            warm.JOBS[job][0](train)
    assert len(asked) > 5 and not any(asked)


class Asked(float):
    """A limit that keeps what fell below it."""

    def __new__(cls, asked, limit):
        made = super().__new__(cls, limit)
        made.asked = asked
        return made

    def __gt__(self, seconds):
        self.asked.append(float(self) > seconds)
        return self.asked[-1]


def test_a_job_is_done_with_one_numba_and_only_if_its_kernels_were_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", str(tmp_path))
    monkeypatch.setitem(warm.JOBS, "nothing", (lambda train: None, ""))
    monkeypatch.setattr(_jit, "_SAID", {"full"})
    warm.run("nothing")
    assert not warm.done("nothing").exists()
    monkeypatch.setattr(_jit, "_SAID", {"damaged"})
    warm.run("nothing")
    assert warm.done("nothing").exists()
    monkeypatch.setattr(warm, "version", lambda name: "77.0")
    assert not warm.done("nothing").exists()


def test_every_job_can_be_done():
    """As plain Python, on three sentences."""
    code = "from crfbook import warm\nwarm.N_SENTENCES = 3\nfor job in warm.JOBS:\n    warm.run(job)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=book.ROOT, env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_ctrl_c_gives_up_what_is_under_way(tmp_path):
    """In a process of its own, with an empty cache: it ends long before its job would."""
    slow = "import time; from crfbook import warm; warm.run = time.sleep;"
    slow += "warm.JOBS = {60: (0, ''), 61: (0, '')};"
    slow += "warm.done = lambda job: None; wait = warm.wait;"
    slow += "warm.wait = lambda *a, **k: (print('begun', flush=True), wait(*a, **k))[1];"
    slow += "raise SystemExit(warm.main(['--all']))"
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {slow}"
    process = subprocess.Popen(
        [sys.executable, "-c", f"if __name__ == '__main__': exec({code!r})"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=50)  # its jobs take a minute
    assert process.returncode == 130 and "interrupted: what was compiled is kept" in said
    assert "Traceback" not in said
