"""CRF++, MALLET, pgmpy beside ours: files that they read, logs, what is said where they are not."""

import numpy as np
import pytest
from helpers.factors import enumerate_factors

from crfbook.data.corpus import make_corpus
from studies import c10, c10_large, c13, run

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

Done!0.01 s
"""


@pytest.fixture
def corpus():
    """Two sequences; a token of three attributes, of one, of none."""
    return make_corpus(seq_ptr=[0, 2, 3], attr_ptr=[0, 3, 4, 4], attr_idx=[0, 2, 5, 1], labels=[1, 0, 1])


def test_the_files_hold_the_corpus(corpus, tmp_path):
    rows, text = c10_large.rows_of(corpus), tmp_path / "text"
    c10_large.write_text(text, rows)
    assert text.read_text() == "0 2 5 1\n1 0\n\n1\n\n"  # attributes, label
    c10_large.write_text(text, rows, width=4)
    assert text.read_text() == "0 2 5 1\n1 _ _ 0\n\n_ _ _ 1\n\n"
    c10_large.write_template(text, width=4)
    assert text.read_text() == "U:%x[0,0]\nU:%x[0,1]\nU:%x[0,2]\n\nB\n"


def test_the_penalties_are_the_same():
    w = np.array([0.5, -2.0])
    assert c10.C2 * w @ w == pytest.approx(w @ w / (2 * c10_large.VARIANCE))


def test_logs_are_read():
    assert c10_large.read_crfpp(CRFPP_LOG) == (1234, 3)
    clock = [1.0, 5.0, 8.0, 9.0, 9.5, 11.5, 12.1]  # Java compiles at first
    log = "weights 77\n" + "".join(f"evaluation {t} -12.5\n" for t in clock)
    assert c10_large.read_mallet(log) == (77, 3, pytest.approx(0.6))
    with pytest.raises(RuntimeError, match="MALLET: expected at least 5 evaluations, got 1"):
        c10_large.read_mallet("weights 77\nevaluation 1.0 -12.5\n")


def script(folder, name, lines):
    """A program that stands in for another."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def test_a_program_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MALLET_CLASSPATH", raising=False)
    with pytest.raises(RuntimeError, match=r"CRF\+\+: expected the program crf_learn on PATH; build"):
        run("active-peers-built", folder=tmp_path)
    script(tmp_path, "java", [])
    with pytest.raises(RuntimeError, match="in MALLET_CLASSPATH the class path of MALLET"):
        run("active-peers-built", folder=tmp_path, programs=("MALLET, pairs seen",))
    with pytest.raises(ValueError, match=r"expected names among CRF\+\+; .*; got Wapiti"):
        run("active-peers-built", folder=tmp_path, programs=("Wapiti",))
    assert not list(tmp_path.glob("*.csv"))


def test_a_program_that_fails_says_why(corpus, monkeypatch, tmp_path):
    script(tmp_path, "crf_learn", ["echo cannot open >&2", "exit 1"])
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(RuntimeError, match="crf_learn failed: .*cannot open"):
        c10_large.crfpp(corpus, tmp_path, 2)


def test_a_row_counts_the_evaluations_between_two_runs(monkeypatch, tmp_path):
    """The stand-in prints an evaluation for each iteration that it is asked for."""
    script(tmp_path, "crf_learn", [
        'while [ "$1" != -m ]; do shift; done', "echo Number of features: 5000",
        'i=0; while [ $i -lt $2 ]; do echo iter=$i; i=$((i + 1)); done',
    ])  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    row = c10_large.built_row("conll2000", "CRF++", 20, {"conll2000": 5})
    assert (row["sequences"], row["evaluations"], row["weights"]) == (5, 4, 5000)
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
