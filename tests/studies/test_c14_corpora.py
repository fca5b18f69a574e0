"""Six corpora by two tools on the same strings; growth and its exponents."""

import json

import numpy as np
import pytest

from crfbook.data.features import observed
from studies import c14_corpora, run
from studies.c14_corpora import CORPORA, exponent_rows, grown, work_of
from studies.records import read_record

pytestmark = pytest.mark.usefixtures("on_twins")


def in_this_one(run, *arguments, **options):
    return json.loads(json.dumps(run(*arguments, **options)))


@pytest.mark.parametrize("name", CORPORA)
def test_of_many_labels_a_beginning_is_learnt_from(name):
    few = work_of(name, 1e5)
    labels = len(few.encoder.labels_)
    assert 1e5 < few.corpus.n_tokens * labels**2 and len(few.columns) > 1
    less = few.corpus.seq_ptr[-2] * len(set(few.corpus.labels[: few.corpus.seq_ptr[-2]])) ** 2
    assert less <= 1e5 and list(few.parts) == ["test"]


def test_both_tools_end_at_one_objective(monkeypatch, tmp_path):
    pytest.importorskip("pycrfsuite")
    monkeypatch.setattr("studies.harness.in_own_process", in_this_one)
    monkeypatch.setattr("studies.harness.settled", lambda: 0.0)
    (path,) = run("other-corpora", folder=tmp_path, corpora=("WNUT-17",), processes=1, most=1e5)
    rows = read_record(path)[1]
    assert [row["tool"] for row in rows] == ["crfbook", "crfbook, auto", "CRFsuite"]
    gaps = [float(row["gap there"]) for row in rows]
    assert min(gaps) == 0.0 and max(gaps) < 1e-3
    assert all(float(row["s to 0.01"]) <= float(row["s to its stop"]) for row in rows)
    assert len({row["sentences"] for row in rows}) == 1 and rows[0]["measure"] == "F1"


def test_the_grown_corpus_keeps_all_but_one_size():
    for n_labels, n_attrs in ((10, 4), (80, 4), (10, 16)):
        corpus = grown(n_labels, n_attrs, 0, 2000)
        features = observed(corpus, n_labels, int(corpus.attr_idx.max()) + 1, 1)
        assert corpus.n_tokens == 2000 and len(corpus.attr_idx) == 2000 * n_attrs
        assert features.n_labels == n_labels and features.n_edge <= 7 * n_labels + 100
        assert np.diff(features.node_ptr).max() <= 3
    assert not np.array_equal(grown(10, 4, 0).labels, grown(10, 4, 1).labels)


def test_growth_is_measured_and_fitted(monkeypatch, tmp_path):
    pytest.importorskip("pycrfsuite")
    monkeypatch.setattr(c14_corpora, "in_own_process", in_this_one)
    paths = run(
        "evaluation-growth", folder=tmp_path, sizes={"N": (300, 600, 900), "A": (2, 4, 8)}, processes=1
    )
    rows, fits = (read_record(path)[1] for path in paths)
    assert [row["axis"] for row in rows] == ["N"] * 3 + ["A"] * 3
    own = [fit for fit in fits if fit["record"] == "14_growth"]
    assert [(fit["axis"], fit["what"]) for fit in own[::2]] == [
        (axis, f"evaluation, {tool}") for axis in "NA" for tool in ("crfbook", "CRFsuite")
    ]
    assert {fit["record"] for fit in fits} == {"14_growth", "10_growth", "11_growth"}


def test_exponents_are_powers():
    rows = []
    for axis, power in (("N", 0), ("L", 1.5)):
        for size in (10, 20, 40, 80):
            both = {"tokens": 10 * size, "CRFsuite": 2.0 * size**2}
            rows += [
                {"axis": axis, "size": size, "crfbook": size**power * noise, **both}
                for noise in (1, 1.01, 0.99)
            ]
    found = {(row["axis"], row["what"], row["from"]): row for row in exponent_rows(rows)}
    linear = found["N", "evaluation, crfbook", 10.0]
    assert (
        linear["exponent"] == pytest.approx(1.0) and 0.0 < linear["error"] < 0.05 and linear["points"] == 12
    )
    assert found["L", "evaluation, crfbook", 10.0]["exponent"] == pytest.approx(1.5)
    assert found["L", "evaluation, CRFsuite", 40.0]["exponent"] == pytest.approx(2.0)
