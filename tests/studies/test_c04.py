"""Tables 1 and 2 of chapter 04: what is held out, what a row says, and the peer on the same sentences."""

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

from crfbook.chain import inference
from crfbook.evaluation import paired_test
from studies import c04, read_record, run, work

pytestmark = pytest.mark.usefixtures("on_twins")


def test_the_last_tenth_is_held_out_and_the_first_sentences_are_learnt_from(monkeypatch):
    whole, learnt = work.dataset("ner").train, []
    encode = c04.encode

    def spy(task, template, train, parts):
        learnt.append(train.labels_by_sequence())
        held = parts["tenth"].labels_by_sequence()
        assert list(parts) == ["tenth"] and held == whole.labels_by_sequence()[-(len(whole) // 10) :]
        return encode(task, template, train, parts)

    monkeypatch.setattr(c04, "encode", spy)
    monkeypatch.setattr(c04, "fit_loss", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    for n in (40, None):
        with pytest.raises(KeyboardInterrupt):
            c04.variance_rows("ner", "s1", n)
    nine = len(whole) - len(whole) // 10
    assert learnt == [whole.labels_by_sequence()[:40], whole.labels_by_sequence()[:nine]]


def test_the_best_variance_is_chosen_and_is_not_the_last(monkeypatch):
    monkeypatch.setattr(c04, "LOSSES", ("log", "exp"))
    for row in c04.variance_rows("ner", "s2", 60):
        scores = {float(v): float(row[f"{v:g}"]) for v in c04.VARIANCES if row[f"{v:g}"]}
        best = float(row["chosen"])
        assert scores[best] == max(scores.values()) and all(
            scores[v] < scores[best] for v in scores if v < best
        )
        assert max(scores) >= c04.ENOUGH and max(scores) > best and row["inside"]
        assert row["ended"] == f"{len(scores)} of {len(scores)}"
    np.testing.assert_allclose(np.diff(np.log10(c04.HALF_DECADES)), 0.5, atol=0.03)


def test_frequent_words_of_the_treebank_have_their_labels_only():
    setup = c04.set_up("pos", "s1", 200)
    names, sets = setup.encoder.labels_, setup.constraints.label_sets
    allowed = sets[setup.corpus.label_set].sum(1)
    assert allowed.min() == 1 and allowed.max() == len(names) and np.mean(allowed < 4) > 0.4
    assert sets[setup.corpus.label_set, setup.corpus.labels].all()
    result, _ = c04.fit_loss(setup, "pointwise-log", variance=1.0)
    assert setup.scores(result.w)["test"] > 60


def test_rows_hold_both_decoders_and_tests_against_the_log_loss():
    variances = dict.fromkeys(c04.LOSSES, 1.0)
    rows = c04.loss_rows("ner", "s2", 40, variances)
    assert [row["loss"] for row in rows] == list(c04.LOSSES)
    setup = c04.set_up("ner", "s2", 40)
    w = c04.fit_loss(setup, "exp", 1.0)[0].w
    assert float(rows[1]["testb"]) == pytest.approx(setup.scores(w)["testb"], abs=0.006)
    corpus, gold = setup.parts["testb"]
    p_node = inference.node_marginals(corpus, setup.features, w)
    right = p_node.argmax(1) == corpus.labels
    assert float(rows[1]["words posterior"]) == pytest.approx(100 * right.mean(), abs=0.006)
    whole = np.mean([right[i:j].all() for i, j in itertools.pairwise(corpus.seq_ptr)])
    assert float(rows[1]["whole posterior"]) == pytest.approx(100 * whole, abs=0.006)
    assert len(gold) == corpus.n_sequences
    tests = [name for name in rows[0] if name.startswith("p ") and "decoders" not in name]
    assert len(tests) == 8 and all(rows[0][name] == "" for name in tests)
    for row in rows[1:]:
        assert all(0 < float(row[name]) <= 1 for name in tests)
    logs = {part: (setup.guess(c04.fit_loss(setup, "log", 1.0)[0].w, part),) for part in setup.parts}
    found = paired_test(gold, logs["testb"][0], setup.guess(w, "testb"))
    assert float(rows[1]["p testb"]) == pytest.approx(found.p_value, abs=1e-4)


@pytest.mark.parametrize("loss", ["log", "exp"])
def test_the_gap_bounds_what_is_left_of_a_convex_loss(loss):
    setup = c04.set_up("ner", "s2", 40)
    end = c04.fit_loss(setup, loss, 1.0, stop={"tol": 1e-9})[0]
    early = c04.fit_loss(setup, loss, 1.0, stop={"max_iterations": 8, "tol": 1e-9})[0]
    assert early.objective > 1.001 * end.objective
    row = c04.distance(setup, loss, 1.0, early.w)
    assert float(row["objective"]) == pytest.approx(early.objective, abs=1e-3)
    assert 1 - end.objective / early.objective < 1.05 * float(row["gap"])
    assert float(c04.distance(setup, loss, 1.0, end.w)["gap"]) <= 1e-9
    assert c04.distance(setup, f"pointwise-{loss}", 1.0, end.w)["gap"] == ""


def test_seconds_hold_no_compilation(monkeypatch):
    """The first call, on few sentences, compiles; what the clock sees is the second."""
    setup, sizes = c04.set_up("ner", "s1", 50), []

    def fit(corpus, features, w0, **options):
        sizes.append(corpus.n_sequences)
        end = time.process_time() + (1.0 if len(sizes) == 1 else 0.0)
        while time.process_time() < end:
            pass

    monkeypatch.setattr(c04, "minimize_loss", fit)
    assert c04.fit_loss(setup, "log", variance=1.0)[1] < 0.8 and sizes == [c04.WARM_UP, 50]


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
        assert float(theirs["objective"]) == pytest.approx(float(theirs["reported"]), rel=1e-5)
        least = float(ours["objective"]) * (1 - float(ours["gap"]))
        assert least <= float(theirs["objective"]) < 1.001 * float(ours["objective"])
        assert float(ours["testb"]) == pytest.approx(float(theirs["testb"]), abs=1.0)


def test_wrong_labels_are_other_labels_and_as_many_as_asked():
    columns = work.dataset("pos").train
    draws = [c04.with_wrong_labels(columns, 0.1, draw) for draw in (0, 1)]
    for noisy, wrong in draws:
        changed = np.array(noisy.labels) != np.array(columns.labels)
        np.testing.assert_array_equal(changed, wrong)
        assert abs(wrong.mean() - 0.1) < 4 * np.sqrt(0.09 / len(wrong))
        assert noisy.columns == columns.columns and set(noisy.labels) <= set(columns.labels)
    assert (draws[0][1] != draws[1][1]).any()
    assert c04.with_wrong_labels(columns, 0.0)[0].labels == list(columns.labels)


def test_each_loss_has_the_variance_that_is_best_on_dev_and_a_test_against_log(monkeypatch):
    monkeypatch.setattr(c04, "NOISY_VARIANCES", (0.01, 1.0, 10.0, 100.0, 1000.0))
    monkeypatch.setattr(c04, "LOSSES", ("log", "exp"))
    learnt, encode = [], c04.encode
    monkeypatch.setattr(c04, "encode", lambda *given: learnt.append(given[2]) or encode(*given))
    rows = c04.noise_rows(0.1, 3, 60)
    right = work.dataset("pos").train.head(60)
    assert learnt[0].labels == c04.with_wrong_labels(right, 0.1, 3)[0].labels != list(right.labels)
    held = {part: work.dataset("pos").splits[part] for part in ("dev", "test")}
    setup, guesses = encode("pos", "s2", learnt[0], held), []
    for row in rows:
        tried = {v: float(row[f"{v:g}"]) for v in c04.NOISY_VARIANCES if row[f"{v:g}"]}
        best = float(row["variance"])
        assert tried[best] == max(tried.values()) and max(tried) >= c04.ENOUGH
        on_dev, *_ = c04.along_variances(setup, row["loss"], c04.NOISY_VARIANCES, "dev", c04.ROUGH)
        assert list(tried.values()) == pytest.approx(list(on_dev.values()), abs=0.006)
        assert best < max(tried) < max(c04.NOISY_VARIANCES)  # it ended after the first that is no better
        assert row["inside"] == (min(tried) < best < max(tried))
        w = c04.fit_loss(setup, row["loss"], best)[0].w
        assert float(row["test"]) == pytest.approx(setup.scores(w)["test"], abs=0.006)
        guesses.append(setup.guess(w, "test"))
    found = paired_test(setup.parts["test"].gold, *guesses, "accuracy")
    assert rows[0]["p"] == "" and float(rows[1]["p"]) == pytest.approx(found.p_value, abs=1e-4)


def test_one_label_leaves_none_that_could_be_wrong():
    columns = work.dataset("pos").train.head(3)
    one = work.TokenColumns(columns.columns, columns.seq_ptr, ["NN"] * columns.n_tokens)
    with pytest.raises(ValueError, match=r"^columns: expected two labels or more, .* got 1$"):
        c04.with_wrong_labels(one, 0.1)
