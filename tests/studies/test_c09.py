"""Figure 6 of the sparse-CRF paper: what each selection trains, and rows that say what they claim."""

from pathlib import Path

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from crfbook.data.features import select
from studies import c09 as study
from studies import read_record, run

RESULTS = Path(__file__).parents[2] / "notebooks" / "results"
pytestmark = pytest.mark.usefixtures("on_twins")
SMALL = {
    "STRENGTHS": (4.0, 1.0),
    "EQUAL": (1.0,),
    "SWEPT": {},
    "LAST": 1.0,
    "SIZES": (300, 10**7),
    "C2": (0.5, 0.1),
    "SAMPLES": 20,
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, values in SMALL.items():
        monkeypatch.setattr(study, name, values)


@pytest.fixture
def at():
    return study.Selections("wnut17", 60)


def test_an_l2_model_is_the_optimum_of_what_is_kept_and_the_best_penalty_on_dev(at):
    keep = at.most_seen(300)
    models = at._l2(keep)
    for model in models:
        assert not model.w[~keep].any() and model.w[keep].all() and model.gap <= study.TOL
        grad = Objective(at.corpus, select(at.features, keep), c2=model.penalty)(model.w[keep])[1]
        assert grad @ grad / (4 * model.penalty) <= study.TOL * model.objective * 1.01
    best = at.model("cut-off", 300)
    assert at._dev_f1(best) == max(at._dev_f1(model) for model in models)


def test_a_model_whose_start_is_close_enough_has_its_gap_too(at, monkeypatch):
    monkeypatch.setattr(study, "TOL", 1e6)
    models = at._l2(at.most_seen(17))
    assert all(model.iterations == 0 and 0 < model.gap < study.TOL for model in models)


def test_thresholding_trains_no_more(at):
    row, whole = at.row("threshold", 150), at.whole()
    assert row["features"] == 150 and row["seconds"] in [f"{model.seconds:.1f}" for model in whole]
    everything = at.model("threshold", 10**9)
    assert any(np.array_equal(everything.w, model.w) for model in whole)


def test_the_gap_bounds_what_is_left(at):
    coarse, fine = (at.model("OWL-QN", c1) for c1 in (4.0, 1.0))
    finer = at._batch(fine.w, 1.0)[0]
    lowest = study.l1_gap(at.corpus, at.features, finer, 1.0)[0]
    assert 0 <= fine.objective - lowest <= fine.gap * fine.objective < 0.05 * fine.objective
    started = study.l1_gap(at.corpus, at.features, coarse.w, 1.0)
    assert started[0] - lowest <= started[1] * started[0] and started[1] > fine.gap
    same = study.l1_gap(at.corpus, select(at.features, fine.w != 0), fine.w[fine.w != 0], 1.0, 0.01)
    assert same[0] == pytest.approx(fine.objective) and same[1] >= 0.9 * fine.gap


def test_rows_of_all_selections(tmp_path):
    paths = run("selection-ner", folder=tmp_path, n_sentences=60)
    path, rest, swept, best = (read_record(file)[1] for file in paths)
    for name, rows in (("OWL-QN", path), ("SBCD", swept)):
        assert [(row["selection"], row["setting"]) for row in rows] == [(name, "4"), (name, "1")]
    size = int(path[1]["features"])
    rivals = ["threshold", "mutual information", "cut-off"]
    assert [row["selection"] for row in rest] == [*np.repeat(rivals, 2), "threshold"]
    assert all(int(row["features"]) == int(row["setting"]) for row in rest)
    assert [int(row["setting"]) for row in rest[:2]] == [size, 300]
    for owlqn, sbcd in zip(path, swept, strict=True):  # one optimum, two ways
        assert float(sbcd["objective"]) == pytest.approx(float(owlqn["objective"]), rel=0.02)
        assert sbcd["p L1"] and not owlqn["p L1"] and float(sbcd["gap"]) < 0.05
    for row in (*path, *swept, *rest):
        assert float(row["F1 low"]) <= float(row["testb F1"]) <= float(row["F1 high"])
        assert float(row["error low"]) <= float(row["testb error"]) <= float(row["error high"])
        same = int(row["features"]) == size and row in rest
        assert (row["p L1"] != "") == (same or row["selection"] == "SBCD")
        assert (row["p MI"] != "") == (row["selection"] != "mutual information" and row in rest[:-1])
        if row["p MI"]:
            mi = next(other for other in rest[2:] if other["features"] == row["features"])
            gain = float(row["testb F1"]) - float(mi["testb F1"])
            assert float(row["gain MI"]) == pytest.approx(gain, abs=0.02) and 0 < float(row["p MI"]) <= 1
    assert {row["selection"] for row in best} == {row["selection"] for row in (*path, *swept, *rest)}
    for row in best:
        rivals = [
            float(other["testa F1"])
            for other in (*path, *swept, *rest)
            if other["selection"] == row["selection"]
        ]
        assert float(row["testa F1"]) == max(rivals)


def test_the_largest_rivals_are_true_cut_offs(tmp_path, at, monkeypatch):
    for task, c1 in study.BEST.items():
        best = read_record(RESULTS / f"09_best_{task}.csv")[1]
        assert [float(row["setting"]) for row in best if row["selection"] == "OWL-QN"] == [c1]
    monkeypatch.setattr(study, "BEST", {"wnut17": 1.0})
    rows = read_record(run("selection-ends-wnut17", folder=tmp_path, n_sentences=60)[0])[1]
    counts = study.sets.empirical_counts(at.corpus, at.features)
    assert [int(row["setting"]) for row in rows] == [np.sum(counts >= m) for m in (2, 2, 1, 1)]
    assert np.array_equal(at.most_seen(int(rows[1]["setting"])), counts >= 2)
    assert rows[2]["objective"] == rows[3]["objective"] and float(rows[3]["gain MI"]) == 0.0
    assert all(float(row["L1 at"]) == 1.0 and row["p L1"] for row in rows)


def test_a_path_goes_on_until_its_best_is_not_its_last(at, monkeypatch):
    monkeypatch.setattr(study, "LAST", 1 / 8)
    f1 = {4.0: 0.1, 1.0: 0.2, 0.5: 0.3, 0.25: 0.3}
    monkeypatch.setattr(at, "model", lambda name, c1: c1)
    monkeypatch.setattr(at, "_dev_f1", f1.get)
    assert [key["setting"] for key, _ in at.path("OWL-QN")] == ["4", "1", "0.5", "0.25"]
    f1 |= {0.25: 0.4, 0.125: 0.5}
    assert [key["setting"] for key, _ in at.path("SBCD")] == ["4", "1", "0.5", "0.25", "0.125"]


def test_what_enters_at_the_dip_is_counted(tmp_path):
    row, seen = (study.dip_row("", 300, least, 60) for least in (1, 2))
    assert row["features"] == seen["features"] == 300
    assert row["seen once"] >= row["seen once, with O"] and seen["seen once"] <= row["seen once"]
    assert row["seen once, with O, of all"] == seen["seen once, with O, of all"]


def test_tests_on_pairs_are_virtual_and_compared_with_plain_transitions(monkeypatch, tmp_path):
    monkeypatch.setattr(study, "PAIR_STRENGTHS", (2.0, 0.5))
    rows = read_record(run("pairs", folder=tmp_path, n_sentences=60)[0])[1]
    assert [row["transitions"] for row in rows] == ["plain", "tests"] * 2
    for plain, tests in zip(rows[::2], rows[1::2], strict=True):
        assert int(tests["candidates"]) > 2 * int(plain["candidates"]) and not plain["p"] and tests["p"]
        assert int(tests["pairs"]) >= 0 and float(tests["gap"]) < 0.05
        assert float(tests["objective"]) <= float(plain["objective"]) * 1.02  # it has all that plain has
        gain = float(tests["testb F1"]) - float(plain["testb F1"])
        assert float(tests["gain"]) == pytest.approx(gain, abs=0.02)


def test_conll2003_takes_the_files_of_the_reader_or_says_where_they_belong(monkeypatch, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"put your own eng.train, .* into the folder conll2003 of CRFBOOK_DATA"
    ):
        run("selection-conll2003", folder=tmp_path)
    with pytest.raises(
        ValueError, match="there is no selection task 'pos'; there are ner, wnut17, conll2003"
    ):
        next(study.selection("pos"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "conll2003").mkdir()
    sentence = "EU NNP I-NP I-ORG\nrejects VBZ I-VP O\nGerman JJ I-NP I-MISC\ncall NN I-NP O\n. . O O\n\n"
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (tmp_path / "conll2003" / name).write_text("-DOCSTART- -X- O O\n\n" + 12 * sentence)
    for name, values in {"SIZES": (), "STRENGTHS": (0.5,), "EQUAL": (0.5,)}.items():
        monkeypatch.setattr(study, name, values)
    about, rows = read_record(run("selection-conll2003", folder=tmp_path / "out")[3])
    assert rows[0]["testb error"] == "0.000" and any("eng.train" in key for key in about)
