"""The recorded tables of chapters 04 and 05: what is held out, what a row says,
and a record that goes on where it was cut.
"""

import time

import numpy as np
import pytest

from crfbook.benchmarking import learner_tables, records, tables
from crfbook.benchmarking.records import read_record

pytestmark = pytest.mark.usefixtures("on_twins")


def test_the_last_tenth_is_held_out_and_nothing_else_is_scored():
    setup, whole = tables.set_up("ner", "s1", 50, held_out=True), tables.set_up("ner", "s1", 50)
    held, gold = setup.parts["tenth"]
    assert list(setup.parts) == ["tenth"] and list(whole.parts) == ["testa", "testb"]
    assert (setup.corpus.n_sequences, held.n_sequences, len(gold)) == (45, 5, 5)
    assert gold == whole.encoder.decode(whole.corpus.labels, whole.corpus.seq_ptr)[45:]


def test_frequent_words_of_the_treebank_have_their_labels_only():
    setup = tables.set_up("pos", "s1", 200)
    names, sets = setup.encoder.labels_, setup.constraints.label_sets
    allowed = sets[setup.corpus.label_set].sum(1)
    assert allowed.min() == 1 and allowed.max() == len(names) and np.mean(allowed < 4) > 0.4
    assert sets[setup.corpus.label_set, setup.corpus.labels].all()
    result, _ = tables.fit_loss(setup, "pointwise-log", variance=1.0)
    assert tables.scores(setup, result.w)["test"] > 60


def test_a_row_has_scores_seconds_and_active_weights():
    row = tables.loss_row("ner", "s2", "exp", 30, variance=1.0)
    assert list(row)[:3] == ["testa", "testb", "active"] and list(row)[-1] == "seconds"
    assert 0 < float(row["testb"]) <= 100 and row["active"] > 100 and row["iterations"] > 5


def test_seconds_hold_no_compilation(monkeypatch):
    """The first call, on few sentences, compiles; what the clock sees is the second."""
    setup, sizes = tables.set_up("ner", "s1", 50), []

    def fit(corpus, features, w0, **options):
        sizes.append(corpus.n_sequences)
        end = time.process_time() + (0.2 if len(sizes) == 1 else 0.0)
        while time.process_time() < end:
            pass

    monkeypatch.setattr(tables, "minimize_loss", fit)
    assert tables.fit_loss(setup, "log", variance=1.0)[1] < 0.1 and sizes == [tables.WARM_UP, 50]


def test_all_losses_find_the_phrases_of_a_training_set():
    setup = tables.set_up("ner", "s2", 60)
    setup = setup._replace(
        parts={"train": (setup.corpus, setup.encoder.decode(setup.corpus.labels, setup.corpus.seq_ptr))}
    )
    for loss in tables.LOSSES:
        result, _ = tables.fit_loss(setup, loss, variance=100.0)
        assert tables.scores(setup, result.w)["train"] > 95, loss


def test_a_cut_record_goes_on_and_a_finished_one_begins_anew(tmp_path):
    path, calls = tmp_path / "04_x.csv", []

    def job(name, fails=False):
        def make():
            calls.append(name)
            if fails:
                raise KeyboardInterrupt
            return {"score": len(calls)}

        return {"name": name, "n": 3}, make

    with pytest.raises(KeyboardInterrupt):
        tables.fill(path, [job("a"), job("b", fails=True), job("c")])
    assert not path.exists() and [row["name"] for row in read_record(tmp_path / "04_x.part.csv")[1]] == ["a"]
    assert tables.fill(path, [job("a"), job("b"), job("c")]) == path
    assert calls == ["a", "b", "b", "c"]
    about, rows = read_record(path)
    assert [(row["name"], row["n"], row["score"]) for row in rows] == [
        ("a", "3", "1"),
        ("b", "3", "3"),
        ("c", "3", "4"),
    ]
    assert float(about["seconds"]) >= 0 and [p.name for p in tmp_path.glob("04*")] == ["04_x.csv"]
    tables.fill(path, [job("a")])
    assert calls[-1] == "a" and len(read_record(path)[1]) == 1


def test_a_record_names_all_commits_that_made_it(monkeypatch, tmp_path):
    path, commits = tmp_path / "04_x.csv", iter(["first", "first", "second", "third"])
    monkeypatch.setattr(records, "commit", lambda: next(commits))

    def fails():
        raise KeyboardInterrupt

    good = [({"name": name}, lambda: {"score": 1}) for name in "abcd"]
    for jobs in ([*good[:2], ({"name": "c"}, fails)], [*good[:3], ({"name": "d"}, fails)]):
        with pytest.raises(KeyboardInterrupt):
            tables.fill(path, jobs)
    assert read_record(tables.fill(path, good))[0]["commit"] == "first, second, third"


def test_crfsuite_has_our_objective_and_scores(monkeypatch, tmp_path):
    pytest.importorskip("pycrfsuite")
    whole = tables.set_up
    with monkeypatch.context() as patch:
        patch.setattr(tables, "set_up", lambda task, template: whole(task, template, 60))
        rows = read_record(tables.fill_peer(tmp_path))[1]
    assert [row["tool"] for row in rows] == ["crfbook", "python-crfsuite"] * 2
    for ours, theirs in (rows[:2], rows[2:]):
        assert float(ours["objective"]) == pytest.approx(float(theirs["objective"]), rel=1e-3)
        assert float(ours["testb"]) == pytest.approx(float(theirs["testb"]), abs=1.0)


def test_learners_fill_a_small_table(monkeypatch, tmp_path):
    """Epochs are chosen on the tenth, the chosen number is used, boosting takes its rounds."""
    monkeypatch.setattr(learner_tables, "EPOCHS", (1, 2))
    monkeypatch.setattr(
        learner_tables, "ROUNDS", dict.fromkeys(learner_tables.ROUNDS, 1000)
    )  # of 2,000 sentences
    monkeypatch.setitem(learner_tables.SIZES, "ner", (40, 60))
    monkeypatch.setitem(learner_tables.TEMPLATES, "ner", ("s2",))
    whole = tables.set_up
    monkeypatch.setattr(
        learner_tables,
        "set_up",  # the tenth of a small corpus
        lambda task, template, n=60, **options: whole(task, template, n, **options),
    )
    chosen, filled = learner_tables.fill_learners("ner", tmp_path)
    epochs, rows = read_record(chosen)[1], read_record(filled)[1]
    assert [row["learner"] for row in epochs] == [
        name for name in learner_tables.LEARNERS if name not in learner_tables.ROUNDS
    ]
    for row in epochs:
        best = max(("1", "2"), key=lambda n: (float(row[n] or 0), -int(n)))
        assert row["chosen"] == best
    assert len(rows) == 2 * len(learner_tables.LEARNERS)
    for row in rows:
        chosen_epochs = next((int(e["chosen"]) for e in epochs if e["learner"] == row["learner"]), None)
        assert (
            int(row["iterations"]) <= (chosen_epochs or int(row["sentences"]) // 2)
            and 0 <= float(row["testb"]) <= 100
        )
    boosted = [row for row in rows if row["learner"].startswith("boosting")]
    assert all(0 < int(row["active"]) <= int(row["iterations"]) for row in boosted)


def test_boosting_is_followed_round_by_round(monkeypatch, tmp_path):
    """Rows of one run; the loss falls; without long sentences it starts lower,
    and only their own features are used.
    """
    monkeypatch.setattr(learner_tables, "LOOKS", (100, 200))
    monkeypatch.setattr(learner_tables, "FOLLOWED", (("s2", "global", None, 300), ("s2", "split", 12, 300)))
    whole = tables.set_up
    monkeypatch.setattr(learner_tables, "set_up", lambda task, template: whole(task, template, 60))
    rows = read_record(learner_tables.fill_rounds("ner", tmp_path))[1]
    assert [(row["bound"], row["longest"]) for row in rows] == [("global", "all")] * 3 + [("split", "12")] * 3
    for run in (rows[:3], rows[3:]):
        assert [int(row["rounds"]) for row in run] == [100, 200, 300]
        losses = [float(row["log_loss"]) for row in run]
        assert losses == sorted(losses, reverse=True) and float(run[-1]["testb"]) > 0
        assert all(int(row["active"]) <= int(row["rounds"]) and float(row["seconds"]) >= 0 for row in run)
    assert int(rows[3]["sentences"]) < int(rows[0]["sentences"]) == 60
    short = learner_tables.without_long(whole("ner", "s2", 60), 12)
    assert (
        np.diff(short.corpus.seq_ptr).max() == 12
        and short.features.n_features < whole("ner", "s2", 60).features.n_features
    )
