"""Random taggers are what they say, and the fit of the default form's costs is a fit."""

import json

import numpy as np
import pytest

from crfbook.chain.sparse.choice import DECODING, SECONDS, FormChooser, terms
from studies import c11
from studies.c06 import Case, fit_form, print_fit
from studies.c11 import TRAINING, time_taggers
from studies.work import random_tagger


def test_random_taggers_store_few_pairs():
    rng = np.random.default_rng(0)
    for _ in range(5):
        corpus, features, w = random_tagger(rng, largest=300)
        assert features.n_edge <= 40 * features.n_labels and len(w) == features.n_features
        assert 600 <= corpus.n_tokens <= 20_000 and corpus.longest < 50


def test_all_forms_are_timed():
    ((_, sizes, took),) = time_taggers(DECODING, 1, 0, repeats=1, largest=40)
    assert sorted(took) == sorted(DECODING) and sizes.plain > 0 and sizes.cells == sizes.labels


def test_all_forms_of_training_are_timed():
    ((sizes, _, took),) = time_taggers(TRAINING, 1, 0, repeats=1, largest=40)
    assert sorted(took) == ["batched", "default", "sparse"] and sizes.stored > 0 and min(took.values()) > 0.0


def test_the_fit_finds_the_costs():
    rng, cases = np.random.default_rng(1), []
    true = np.array(list(SECONDS[DECODING[2]].values())) + 1e-9
    for _ in range(30):
        corpus, features, w = random_tagger(rng, largest=200)
        sizes = FormChooser(features, corpus, "auto", 1, kernels=True).sizes(w)
        cases.append(Case(None, sizes, {DECODING[2]: float(true @ terms(DECODING[2], sizes))}))
    found = fit_form(cases, DECODING[2])
    for _, sizes, took in cases:
        np.testing.assert_allclose(found @ terms(DECODING[2], sizes), took[DECODING[2]], rtol=1e-3)


def test_a_fit_is_printed_as_the_file_has_it(capsys):
    """All coefficients of the file, printed, are the file again: the same names in the same order."""
    print_fit({form: list(counts.values()) for form, counts in SECONDS.items()})
    printed = json.loads(capsys.readouterr().out)
    assert printed == SECONDS
    assert [list(counts) for counts in printed.values()] == [list(counts) for counts in SECONDS.values()]


def test_the_told_tagger_reads_tags_and_no_more():
    columns = c11.TokenColumns({"word": ["a", "b"]}, [0, 2], ["NN|root|R|ROOT", "VB|obj|L|NN"])
    assert c11.with_tags(columns).columns["tag"] == ["NN", "VB"]
    told = c11.Encoder(c11.TOLD).fit(c11.with_tags(columns))
    names = {told.attribute_name(a) for a in range(told.n_attrs)}
    assert "U22:NN" in names and not any("root" in name or "obj" in name for name in names)


def test_rows_of_the_papers_tables(monkeypatch):
    corpus, features, w = c11.growing_tagger(40, 700)
    monkeypatch.setattr(c11, "tagger", lambda *name: c11.Tagger(features, corpus, corpus, w))
    monkeypatch.setattr(c11, "in_own_process", lambda run, *arguments: run(*arguments))
    rows = {row["decoder"]: row for row in c11.decoder_rows("pos", "perceptron", 1)}
    assert list(rows) == [*c11.COMPARED, "beam"]
    plain, others = rows["plain"], [rows["default"], rows["staggered"]]
    assert all(0 < row["fastest"] <= row["us a token"] <= row["slowest"] for row in rows.values())
    assert plain["sweeps"] == "" and 1 <= others[1]["sweeps"] <= 7 and plain["pairs a token"] <= 40**2
    assert {row["accuracy"] for row in others} == {plain["accuracy"]}
    beam, rows = rows["beam"], c11.beams_of(c11.tagger("pos"))
    assert [row["width"] for row in rows] == [2**i for i in range(len(rows))]
    assert (beam["width"], beam["accuracy"]) == (rows[-1]["width"], rows[-1]["accuracy"])
    assert [row["accuracy"] >= row["exact"] - 0.1 for row in rows] == [False] * (len(rows) - 1) + [True]
    for how in (*c11.TRAINING_FORMS, "staggered", "staggered-columns"):
        assert c11.training_row("pos", how, 1)["tokens"] == corpus.n_tokens
    pytest.importorskip("pycrfsuite")
    row = c11.peer_row("pos")
    assert row["labels"] == 40 and row["CRFsuite"] > 0
    assert row["CRFsuite's epoch"] >= 0  # its log has milliseconds, and this corpus takes less than one
