"""Longer memory: each model has its c1, its certificate is one, and rows say what they claim."""

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from studies import c08_memory as study
from studies import read_record, run


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
    return study.certified(setup, memory, study.Found(zero, *study.NOTHING, value, 0.0, 0, 0.0), 0.3)[1]


@pytest.mark.parametrize("name", ["letters, pairs", "letters, triples"])
def test_training_ends_at_the_share_of_c1_that_was_asked_for(monkeypatch, name):
    """And says so: the share is that of a gradient taken anew, of all candidates; too few rounds show."""
    setup, memory = study.set_up("letter_tests", 60), study.MODELS[name]
    monkeypatch.setattr(study, "LIMITS", {"max_rounds": 10, "max_iterations": 600})
    rough = study.train(setup, memory, 0.3, near=0.5)
    fine = study.train(setup, memory, 0.3, rough, near=0.05)
    assert 0.015 >= fine.violation >= 0 and 0.15 >= rough.violation > 0.015
    again = study.train(setup, memory, 0.3, fine, near=0.05)  # nothing is left to do
    assert again.violation == pytest.approx(fine.violation, rel=1e-6)
    assert study.training_cost(fine, 0.3)["violation / c1"] == f"{fine.violation / 0.3:.4f}"
    monkeypatch.setattr(study, "LIMITS", {"max_rounds": 1, "max_iterations": 2})
    assert study.train(setup, memory, 0.3, near=0.05).violation > 0.015


def test_what_was_cut_goes_on_with_the_next_model(monkeypatch, tmp_path):
    """A job a model: what is in the part is not trained again."""
    seen, names = [], list(study.MODELS)

    def rows(template, n_words):
        seen.append(template)
        if template == names[2] and seen.count(template) == 1:
            raise KeyboardInterrupt
        return [{"c1": f"{c1:g}", "error": "9", "standard error": "1"} for c1 in study.STRENGTHS]

    monkeypatch.setattr(study, "choice_rows", rows)
    monkeypatch.setattr(study.Longer, "row", lambda self, model: {"c1": self.c1[model]})
    with pytest.raises(KeyboardInterrupt):
        run("longer-memory", folder=tmp_path, n_words=60)
    assert [path.name for path in tmp_path.iterdir()] == ["08_memory_choice.part.csv"]
    choice, table = run("longer-memory", folder=tmp_path, n_words=60)
    assert seen == [*names[:3], *names[2:]]
    assert [row["template"] for row in read_record(choice)[1]] == [name for name in names for _ in range(2)]
    assert [row["c1"] for row in read_record(table)[1]] == ["0.3"] * len(names)


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
        assert float(row["violation / c1"]) >= 0 and int(row["evaluations"]) > 0
        if before is None:
            assert row["tuples"] == row["pairs as states"] == row["candidates"] == "0"
        elif row["c1"] == rows[before]["c1"]:
            assert float(row["objective"]) <= float(rows[before]["objective"])
    assert int(rows["letters, triples"]["tuples"]) > 0 == int(rows["letters, triples"]["triples as states"])
