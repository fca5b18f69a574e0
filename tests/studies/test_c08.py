"""Tables 2 and 3 of the sparse-CRF paper: c1 is chosen where nothing is scored,
and rows say what they claim.
"""

import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from crfbook.chain.inference import decode
from crfbook.chain.objective import Objective
from studies import c08 as study
from studies import read_record, run
from studies.work import dataset, model_error

RESULTS = Path(__file__).parents[2] / "notebooks" / "results"


@pytest.fixture(autouse=True)
def short(monkeypatch, on_twins):
    """Short runs on the built-in twin."""
    for name, value in {
        "LETTERS": (2.0, 1.0),
        "PATH": (4.0, 2.0, 1.0),
        "SWEEPS": 6,
        "BUDGET": 1.0,
        "ITERATIONS": {"L-BFGS": 5, "OWL-QN": 5, "SGD": 2},
        "AT_REST": 60,
        "EPOCHS": (1, 3),
        "SWEEPS_FROM_ZERO": 2,
        "CHOICES": {"letter_tests": ((2.0, 1.0), 2), "ngrams_5": ((4.0, 2.0), 2)},
    }.items():
        monkeypatch.setattr(study, name, value)


def test_chosen_is_the_largest_within_one_standard_error():
    rows = [
        {"template": "a", "c1": str(c1), "error": str(error), "standard error": "0.3"}
        for c1, error in ((4, 9.0), (2, 8.2), (1, 8.0), (0.5, 7.95), (0.2, 8.1))
    ]
    rows.append({"template": "b", "c1": "8", "error": "1", "standard error": "9"})
    assert study.chosen(rows, "a") == 2.0 and study.chosen(rows, "b") == 8.0


def test_the_held_out_tenth_is_not_trained_on():
    whole, part = study.set_up("letter_tests", 60), study.set_up("letter_tests", 60, held_out=True)
    assert (whole.corpus.n_sequences, part.corpus.n_sequences, part.held.n_sequences) == (60, 54, 6)
    assert part.words.by_sequence("letter") == dataset("nettalk").train[54:60].by_sequence("letter")


def test_error_counts_letters_and_its_deviation_words():
    at = study.Letters(1.0, 60)
    model = at.path()[1][1.0]
    found, deviation = model_error(at.setup.held, model)[:2]
    gold, path = (
        at.setup.words.labels_by_sequence(),
        at.setup.encoder.decode(decode(at.setup.held, *model), at.setup.held.seq_ptr),
    )
    wrong = [sum(a != b for a, b in zip(*word, strict=True)) for word in zip(gold, path, strict=True)]
    n = sum(len(word) for word in gold)
    assert found == pytest.approx(100 * sum(wrong) / n)
    assert deviation == pytest.approx(100 * np.std(wrong) * len(wrong) ** 0.5 / n)


def test_path_of_letters_and_figure_1():
    at = study.Letters(1.0, 60)
    rows, models = at.path()
    assert list(models) == [2.0, 1.0, 0.0]
    rows = at.path_rows()
    assert [row["c1"] for row in rows] == ["2", "1", "0"]
    assert [row["start"] for row in rows] == ["zero", "the c1 before", "the c1 before"]
    sparse, n_features = models[1.0], at.everything.n_features
    n_labels = at.setup.encoder.n_labels
    assert (
        n_features == at.setup.encoder.n_attrs * n_labels + (at.setup.encoder.n_edge_attrs - 1) * n_labels**2
    )
    assert int(rows[1]["mu"]) + int(rows[1]["lambda"]) == np.count_nonzero(sparse.w) < n_features
    fun = Objective(at.setup.corpus, sparse.features, c2=study.C2)
    assert float(rows[1]["objective"]) == pytest.approx(fun(sparse.w)[0] + np.abs(sparse.w).sum(), abs=0.1)
    shown, size = at.weights(), np.abs(sparse.w)
    assert sum(float(row["L1 mu"]) for row in shown) == pytest.approx(
        size[: sparse.features.n_node].sum(), rel=1e-3
    )
    assert sum(float(row["L1 lambda"]) for row in shown) == pytest.approx(
        size[sparse.features.n_node :].sum(), rel=1e-3
    )
    node, edge = (
        names.index("*00:e")
        for names in (at.setup.encoder.attribute_names(), at.setup.encoder.edge_attribute_names())
    )
    wanted, f = np.zeros((2, n_labels)), sparse.features
    wanted[0, f.node_label[f.node_ptr[node] : f.node_ptr[node + 1]]] = size[
        f.node_ptr[node] : f.node_ptr[node + 1]
    ]
    for k in range(f.edge_ptr[edge], f.edge_ptr[edge + 1]):
        wanted[1, f.edge_next[k]] += size[f.n_node + k]
    row = [(float(row["L1 mu"]), float(row["L1 lambda"])) for row in shown if row["letter"] == "e"]
    np.testing.assert_allclose(np.array(row).T, wanted, rtol=1e-3)
    assert wanted.any(axis=1).all()


def test_all_records(tmp_path):
    paths = {
        path.name[3:-4]: read_record(path)[1] for path in run("phonetization", folder=tmp_path, n_words=60)
    }
    assert set(paths) == set(study.TABLES)
    for row in paths["candidates"]:
        n_labels = study.set_up(row["template"], 60).encoder.n_labels
        assert float(row["million"]) * 1e6 == pytest.approx(
            int(row["tests"]) * n_labels + int(row["edge tests"]) * n_labels**2, abs=1e3
        )
    c1 = study.chosen(paths["choice"], "ngrams_5")
    for name in study.TESTS:
        rows = [row for row in paths["ngrams"] if row["template"] == name]
        assert [int(row["sweeps"]) for row in rows] == [2, 4, 6] and float(rows[-1]["c1"]) == c1
        assert float(rows[0]["seconds"]) <= float(rows[-1]["seconds"])
    test = dataset("nettalk").test
    assert sum(int(row["count"]) for row in paths["errors"]) == len(test.labels)
    wrong = sum(int(row["count"]) for row in paths["errors"] if row["phoneme"] != row["found"])
    assert 100 * wrong / len(test.labels) == pytest.approx(float(rows[-1]["test"]), abs=0.006)
    assert all(row["same path"] == "True" for row in paths["tagging"])
    rows = paths["letters"]
    assert [row["method"] for row in rows].count("SBCD") == 3 and len(rows) == 8
    for row in rows:  # nothing is below the least objective by more than its certificate
        assert float(row["% above the least"]) > -0.1 and 0 < float(row["p"]) <= 1
    rest = next(row for row in rows if row["method"] == "L-BFGS, at rest")
    assert rest["p"] == "1.0000" and rest["% above the least"] == "0.00"
    assert [row["epochs"] for row in paths["epochs"]] == ["1", "3"]
    for row in paths["epochs"]:
        n = len(test.labels) * (float(rest["test"]) - float(row["test"])) / 100
        assert float(row["fewer errors"]) == pytest.approx(n, abs=1)
        assert int(row["in five swaps"]) <= int(row["other readings"])
    ends = {name: [r for r in paths["ngrams"] if r["template"] == name][-1] for name in study.TESTS}
    for row in paths["paired"]:
        fewer = float(ends[row["before"]]["test"]) - float(ends[row["after"]]["test"])
        assert float(row["difference"]) == pytest.approx(fewer, abs=0.011) and 0 < float(row["p"]) <= 1


def test_the_peak_of_memory_never_falls(monkeypatch):
    """The system's counter may be reset while a study runs; its column says what was held so far."""
    shown, unit = iter([700, 900, 300, 950, 400]), 1e6 if sys.platform == "darwin" else 1e3
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=next(shown) * unit))
    at = study.Ngrams(1.0, 60)
    assert [at.peak_mb() for _ in range(5)] == [700, 900, 900, 950, 950]
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=500 * unit))
    assert {row["MB so far"] for row in at.path("ngrams_3")[1]} == {"950"}


def test_contexts_from_zero_are_rows_of_each_sweep_tested_at_equal_penalties(tmp_path):
    rows = read_record(run("contexts-from-zero", folder=tmp_path, n_words=60)[0])[1]
    assert len(rows) == 2 * len(study.FROM_ZERO) * 2 * 2
    for row in rows:
        n_labels, n_attrs, n_edge_attrs = study.set_up(row["template"], 60).sizes
        assert int(row["candidates"]) == n_attrs * n_labels + n_edge_attrs * n_labels**2
        assert row["template"].endswith(row["letters"]) and int(row["active"]) < int(row["candidates"])
        key = {name: row[name] for name in ("letters", "c1", "sweeps")}
        pseudo = next(other for other in rows if key.items() <= other.items())
        assert (row["p"] == "") == (row is pseudo)
        if row["p"]:
            gain = float(pseudo["test"]) - float(row["test"])
            assert float(row["gain"]) == pytest.approx(gain, abs=0.011) and 0 < float(row["p"]) <= 1


def test_learners_of_table_2_are_paired_where_their_rows_end(tmp_path):
    """Errors are those of the rows of Table 2, and p is that of their labels."""
    (row,) = read_record(*run("letters-paired", folder=tmp_path, n_words=60, c1=1.0))[1]
    at = study.Letters(1.0, 60)
    rows = [at.method(row[when]) for when in ("before", "after")]
    assert [row["error before"], row["error after"]] == [one["test"] for one in rows]
    assert row["before"] == "OWL-QN" and row["after"].startswith("SBCD") and row["c1"] == "1"
    fewer = float(row["error before"]) - float(row["error after"])
    assert float(row["difference"]) == pytest.approx(fewer, abs=0.011)
    models = [study.trained(at, row[when]) for when in ("before", "after")]
    assert [str(np.count_nonzero(m.w[: m.features.n_node])) for m in models] == [str(r["mu"]) for r in rows]
    assert row["p"] == f"{study.compared(at.setup, *models)[1]:.4f}" and 0 < float(row["p"]) <= 1


def test_the_penalty_of_the_pair_is_the_one_that_held_out_words_chose():
    rows = read_record(RESULTS / "08_choice.csv")[1]
    assert study.chosen(rows, "letter_tests") == study.C1
    table = read_record(RESULTS / "08_letters.csv")[1]
    assert {row["c1"] for row in table if row["method"] in ("OWL-QN", "SBCD, from zero")} == {f"{study.C1:g}"}
