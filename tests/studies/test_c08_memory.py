"""Longer memory: each model has its c1, its certificate is one, and rows say what they claim."""

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from crfbook.studies import c08_memory as study
from crfbook.studies import read_record, run


@pytest.fixture(autouse=True)
def short(monkeypatch, on_twins):
    """Short runs on the built-in twin."""
    monkeypatch.setattr(study, "STRENGTHS", (0.3, 0.1))
    monkeypatch.setattr(study, "LIMITS", {"max_rounds": 2, "max_iterations": 20})


def test_the_certificate_is_that_of_the_pairs_alone():
    setup, memory = study.set_up("letter_tests", 60), study.MODELS["letters, pairs"]
    found = study.train(setup, memory, 0.3)
    n, gap = study.certified(setup, memory, found, 0.3)
    value, grad = Objective(setup.corpus, setup.everything)(found.w)
    share = min(1.0, 0.3 / np.abs(grad).max())
    wanted = value + 0.3 * np.abs(found.w).sum() - share * (value - grad @ found.w)
    assert n == 0 and gap == pytest.approx(100 * wanted / found.objective)
    assert certified_of_zero(setup, memory) > gap >= 0


def certified_of_zero(setup, memory):
    zero = np.zeros(setup.everything.n_features)
    value = Objective(setup.corpus, setup.everything)(zero)[0]
    return study.certified(setup, memory, study.Found(zero, *study.NOTHING, value, 0, 0.0), 0.3)[1]


def test_the_records(tmp_path):
    choice, table = run("longer-memory", folder=tmp_path, n_words=60)
    rows = read_record(choice)[1]
    assert [row["c1"] for row in rows] == ["0.3", "0.1"] * len(study.MODELS)
    rows = {row["model"]: row for row in read_record(table)[1]}
    assert list(rows) == list(study.MODELS)
    for name, row in rows.items():
        before = study.MODELS[name].before
        assert float(row["certified gap %"]) >= 0 and (row["p"] == "") == (before is None)
        assert float(row["c1"]) == study.chosen(read_record(choice)[1], name)
        if before is None:
            assert row["tuples"] == row["pairs as states"] == row["candidates"] == "0"
        elif row["c1"] == rows[before]["c1"]:
            assert float(row["objective"]) <= float(rows[before]["objective"])
    assert int(rows["letters, triples"]["tuples"]) > 0 == int(rows["letters, triples"]["triples as states"])
