"""CRF++, MALLET, pgmpy beside ours: files that they read, logs, what is said where they are not."""

import numpy as np
import pytest
from helpers.factors import enumerate_factors

from crfbook.data.corpus import make_corpus
from studies import c10, c10_large, c13, c14_tools, run

pytestmark = pytest.mark.usefixtures("on_twins")

CRFPP_LOG = """CRF++: Yet Another CRF Tool Kit
reading training data:
Done!0.00 s

Number of sentences: 2
Number of features:  1234
Number of thread(s): 1
iter=0 terr=0.80000 serr=1.00000 act=1234 obj=9.70406 diff=1.00000
iter=1 terr=0.20000 serr=0.50000 act=1234 obj=7.50000 diff=0.22713
iter=2 terr=0.00000 serr=0.00000 act=1234 obj=7.00000 diff=0.06667
"""


@pytest.fixture
def corpus():
    """Two sequences; a token of three attributes, of one, of none."""
    return make_corpus(seq_ptr=[0, 2, 3], attr_ptr=[0, 3, 4, 4], attr_idx=[0, 2, 5, 1], labels=[1, 0, 1])


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    forget = c14_tools.program.cache_clear
    forget()
    yield
    forget()


def test_the_files_hold_the_corpus(corpus, tmp_path):
    text, names = tmp_path / "text", (list("012345"), list("01"))
    c14_tools.write(text, corpus, *names)
    assert text.read_text() == "b 0 2 5 1\nb 1 0\n\nb 1\n\n"  # attributes, label
    c14_tools.write(text, corpus, *names, width=3)
    assert text.read_text() == "b 0 2 5 1\nb 1 _ _ 0\n\nb _ _ _ 1\n\n"
    assert c14_tools.write_template(text, corpus) == 3
    assert text.read_text() == "U:%x[0,1]\nU:%x[0,2]\nU:%x[0,3]\n\nB\n"


def shown(monkeypatch, trace):
    """What the watch is asked for: (command, options) of each call. It has seen `trace`."""
    asked = []

    def seen(command, **options):
        asked.append((command, options))
        return {"trace": trace}

    monkeypatch.setattr(c14_tools, "program", lambda tool: tool)
    monkeypatch.setattr(c14_tools, "seen", seen)
    return asked


@pytest.mark.parametrize("name", c10_large.PROGRAMS)
def test_the_penalties_are_the_same(name, monkeypatch):
    w, trace = np.array([0.5, -2.0]), [[1.0, 1.0]] * 9
    asked, setup = shown(monkeypatch, trace), c10.encoded("conll2000", 5)
    c10_large.evaluations(c10_large.PROGRAMS[name], setup)
    command = list(map(str, asked[0][0]))
    before = "-c" if name == "CRF++" else next(word for word in command if word.endswith("model"))
    assert c10.C2 * w @ w == pytest.approx(w @ w / (2 * float(command[command.index(before) + 1])))
    assert (command[-1] == "seen") == name.endswith("seen") and (command[-1] == "all") == (name == "MALLET")


def test_the_first_evaluations_do_not_count(monkeypatch):
    clock = [0.5, 1.0, 5.0, 8.0, 9.0, 9.5, 11.5, 12.1]  # Java compiles at first
    trace = [[seconds, 77.0 if seconds < 1 else -12.5] for seconds in clock]
    asked, setup = shown(monkeypatch, trace), c10.encoded("conll2000", 5)
    peer = c10_large.PROGRAMS["MALLET"]
    assert c10_large.evaluations(peer, setup) == (77, 3, pytest.approx(0.6))
    assert asked[0][-1]["most"] == len(clock)
    del trace[2:]
    with pytest.raises(RuntimeError, match="MALLET: expected at least 5 evaluations, got 1"):
        c10_large.evaluations(peer, setup)


def script(folder, name, lines):
    """A program that stands in for another."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def test_a_program_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CRFBOOK_CRFPP", raising=False)
    monkeypatch.delenv("MALLET_CLASSPATH", raising=False)
    with pytest.raises(RuntimeError, match=r"CRF\+\+: expected in CRFBOOK_CRFPP the folder of crf_learn"):
        run("active-peers-built", folder=tmp_path)
    script(tmp_path, "java", [])
    with pytest.raises(RuntimeError, match="MALLET: expected in MALLET_CLASSPATH classes and lib"):
        run("active-peers-built", folder=tmp_path, programs=("MALLET, pairs seen",))
    with pytest.raises(ValueError, match=r"expected names among CRF\+\+; .*; got Wapiti"):
        run("active-peers-built", folder=tmp_path, programs=("Wapiti",))
    assert not list(tmp_path.glob("*.csv"))


def test_a_program_that_fails_says_why(monkeypatch, tmp_path):
    script(tmp_path, "crf_learn", ["echo cannot open >&2", "exit 1"])
    monkeypatch.setenv("CRFBOOK_CRFPP", str(tmp_path))
    with pytest.raises(RuntimeError, match="crf_learn failed: .*cannot open"):
        c10_large.evaluations(c10_large.PROGRAMS["CRF++"], c10.encoded("conll2000", 5))


def test_a_row_is_made_of_what_a_program_prints(monkeypatch, tmp_path):
    """The stand-in would print evaluations for ever."""
    log = tmp_path / "log"
    log.write_text(CRFPP_LOG)
    again = "sed -n '$p' " + str(log)
    script(tmp_path, "crf_learn", [f"cat {log}", f"while true; do {again}; sleep 0.01; done"])
    monkeypatch.setenv("CRFBOOK_CRFPP", str(tmp_path))
    row = c10_large.built_row("conll2000", "CRF++", 20, {"conll2000": 5})
    assert row["sequences"] == 5 and row["weights"] == 1234 and row["evaluations"] >= 4
    assert row["our weights"] > row["our weights, seen"] and row["ratio"] == row["CPU s"] / row["ours"]


# ---- ours beside pgmpy: the same models on both sides ----


@pytest.mark.kernels
def test_both_ways_of_ours_have_the_log_z_of_the_listing():
    case = c13.models((3, 2), 3)[1]
    want = enumerate_factors(case["cards"], case["scopes"], np.concatenate(case["tables"])).log_z
    assert c13.by_tree(case) == pytest.approx(want, rel=1e-12)
    assert c13.by_messages(case) == pytest.approx(want, rel=0.05)
    assert c13.by_messages(case) != want


def test_without_pgmpy_it_says_what_it_needs(monkeypatch):
    monkeypatch.setenv("PGMPY_PYTHON", "")
    with pytest.raises(ValueError, match="expected PGMPY_PYTHON"):
        c13.pgmpy_rows((3, 2), 3)
