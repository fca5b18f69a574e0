"""Tables 1 and 2 of chapter 04: what is held out, what a row says, and the peer on the same sentences."""

import time
from dataclasses import replace

import numpy as np
import pytest

from crfbook.studies import c04, read_record, run, work

pytestmark = pytest.mark.usefixtures("on_twins")


def test_the_last_tenth_is_held_out_and_nothing_else_is_scored():
    setup, whole = c04.set_up("ner", "s1", 50, held_out=True), c04.set_up("ner", "s1", 50)
    held, gold = setup.parts["tenth"]
    assert list(setup.parts) == ["tenth"] and list(whole.parts) == ["testa", "testb"]
    assert (setup.corpus.n_sequences, held.n_sequences, len(gold)) == (45, 5, 5)
    assert gold == whole.encoder.decode(whole.corpus.labels, whole.corpus.seq_ptr)[45:]


def test_frequent_words_of_the_treebank_have_their_labels_only():
    setup = c04.set_up("pos", "s1", 200)
    names, sets = setup.encoder.labels_, setup.constraints.label_sets
    allowed = sets[setup.corpus.label_set].sum(1)
    assert allowed.min() == 1 and allowed.max() == len(names) and np.mean(allowed < 4) > 0.4
    assert sets[setup.corpus.label_set, setup.corpus.labels].all()
    result, _ = c04.fit_loss(setup, "pointwise-log", variance=1.0)
    assert setup.scores(result.w)["test"] > 60


def test_a_row_has_scores_seconds_and_active_weights():
    row = c04.loss_row("ner", "s2", "exp", 30, variance=1.0)
    assert list(row)[:3] == ["testa", "testb", "active"] and list(row)[-1] == "seconds"
    assert 0 < float(row["testb"]) <= 100 and row["active"] > 100 and row["iterations"] > 5


def test_seconds_hold_no_compilation(monkeypatch):
    """The first call, on few sentences, compiles; what the clock sees is the second."""
    setup, sizes = c04.set_up("ner", "s1", 50), []

    def fit(corpus, features, w0, **options):
        sizes.append(corpus.n_sequences)
        end = time.process_time() + (0.2 if len(sizes) == 1 else 0.0)
        while time.process_time() < end:
            pass

    monkeypatch.setattr(c04, "minimize_loss", fit)
    assert c04.fit_loss(setup, "log", variance=1.0)[1] < 0.1 and sizes == [c04.WARM_UP, 50]


def test_all_losses_find_the_phrases_of_a_training_set():
    setup = c04.set_up("ner", "s2", 60)
    gold = setup.encoder.decode(setup.corpus.labels, setup.corpus.seq_ptr)
    setup = replace(setup, parts={"train": work.Held(setup.corpus, gold)})
    for loss in c04.LOSSES:
        result, _ = c04.fit_loss(setup, loss, variance=100.0)
        assert setup.scores(result.w)["train"] > 95, loss


def test_crfsuite_has_our_objective_and_scores(monkeypatch, tmp_path):
    pytest.importorskip("pycrfsuite")
    whole = c04.set_up
    with monkeypatch.context() as patch:
        patch.setattr(c04, "set_up", lambda task, template: whole(task, template, 60))
        rows = read_record(*run("loss-table-peer", folder=tmp_path))[1]
    assert [row["tool"] for row in rows] == ["crfbook", "python-crfsuite"] * 2
    for ours, theirs in (rows[:2], rows[2:]):
        assert float(ours["objective"]) == pytest.approx(float(theirs["objective"]), rel=1e-3)
        assert float(ours["testb"]) == pytest.approx(float(theirs["testb"]), abs=1.0)
