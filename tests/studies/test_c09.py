"""Figure 6 of the sparse-CRF paper: what each selection trains, and rows that say what they claim."""

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from crfbook.data.features import empirical_counts, select
from crfbook.studies import c09 as study
from crfbook.studies import read_record, run

pytestmark = pytest.mark.usefixtures("on_twins")


def test_what_is_trained_is_the_optimum_of_what_is_kept():
    at = study.Selections("wnut17", 0.5, 60)
    features = at.setup.features
    keep = empirical_counts(at.setup.corpus, features) >= 3
    w, result, _ = study.train_kept(at.setup, keep, 0.5, at.whole()[0])
    assert not w[~keep].any() and w[keep].all() and result.status == "converged"
    grad = Objective(at.setup.corpus, select(features, keep), c2=0.5)(w[keep])[1]
    assert np.abs(grad).max() < 0.1
    assert int(at.cutoff(3)["features"]) == keep.sum()


def test_thresholding_trains_no_more():
    at = study.Selections("wnut17", 0.5, 60)
    whole = at.whole()
    row = at.threshold(150)
    assert row["features"] == row["active"] == 150 and at.whole() is whole
    assert row["seconds"] == f"{whole[2]:.1f}" and row["iterations"] == whole[1].n_iter
    everything = at.threshold(10**9)
    assert {k: everything[k] for k in everything if k.split()[0] in at.setup.parts} == study.measured(
        at.setup, whole[0]
    )


def test_rows_of_all_selections(monkeypatch, tmp_path):
    settings = {
        "SIZES": (100, 400, 10**7),
        "CUTOFFS": (1, 5),
        "STRENGTHS": (4.0, 1.0),
        "BLOCKWISE": (4.0,),
        "FEWER": {},
    }
    for name, values in settings.items():
        monkeypatch.setattr(study, name, values)
    monkeypatch.setattr(study, "variance_row", lambda task, template: {"chosen": "1"})
    _, path = run("selection-ner", folder=tmp_path, n_sentences=60)
    rows = read_record(path)[1]
    assert [(row["selection"], row["setting"]) for row in rows] == [
        ("cut-off", "1"),
        ("cut-off", "5"),
        ("mutual information", "100"),
        ("mutual information", "400"),
        ("threshold", "100"),
        ("threshold", "400"),
        ("OWL-QN", "4"),
        ("OWL-QN", "1"),
        ("SBCD", "4"),
    ]
    for row in rows:
        assert (
            0 < int(row["active"]) <= int(row["features"])
            and 0 <= float(row["testb error"]) < 50
            and 0 <= float(row["testa F1"]) <= 100
        )
    size = {(row["selection"], row["setting"]): int(row["features"]) for row in rows}
    assert size["cut-off", "1"] > size["cut-off", "5"] and size["mutual information", "400"] == 400
    assert size["OWL-QN", "1"] > size["OWL-QN", "4"]
    objective = {(row["selection"], row["setting"]): float(row["objective"]) for row in rows}
    assert objective["SBCD", "4"] == pytest.approx(
        objective["OWL-QN", "4"], rel=1e-3
    )  # one optimum, two ways
    assert size["SBCD", "4"] == pytest.approx(size["OWL-QN", "4"], rel=0.1)
    kept = [row for row in rows if row["selection"] == "mutual information"]
    assert len({row["edges"] for row in kept}) == 1  # plain transitions stay


def test_the_larger_corpus_has_fewer_points():
    settings = {}
    for key, _ in study.selection_jobs("ner", 0.5, 60):
        settings.setdefault(key["selection"], []).append(key["setting"])
    assert settings["OWL-QN"] == [f"{c1:g}" for c1 in study.STRENGTHS] and settings["SBCD"] == [
        "64",
        "32",
        "16",
        "8",
        "4",
    ]
    assert settings["cut-off"] == [str(count) for count in study.CUTOFFS]


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
    for name, values in {"SIZES": (), "CUTOFFS": (1,), "STRENGTHS": (0.5,), "BLOCKWISE": ()}.items():
        monkeypatch.setattr(study, name, values)
    about, rows = read_record(run("selection-conll2003", folder=tmp_path / "out")[1])
    assert [row["testb error"] for row in rows] == ["0.000", "0.000"] and any(
        "eng.train" in key for key in about
    )
