"""Labels hidden in four ways, what each arm learns from them, and rows of the record."""

import numpy as np
import pytest

from studies import c16 as study
from studies import read_record, run

pytestmark = pytest.mark.usefixtures("on_twins")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"N_TRAIN": 60, "N_HELD": 20, "SAMPLES": 20, "C2": (0.3, 1.0), "MOST": 40}.items():
        monkeypatch.setattr(study, name, value)
    study.bench_of.cache_clear()
    yield
    study.bench_of.cache_clear()


@pytest.fixture
def bench():
    return study.Bench("CoNLL-2000 chunks")


@pytest.fixture
def seen(bench, monkeypatch):
    """What a fit is given."""
    given = []
    monkeypatch.setattr(bench, "fit", lambda c2, *corpora, **limits: given.append((*corpora, limits)))
    return given


def test_what_is_hidden(bench):
    y, names = bench.train.labels, np.array(bench.names)
    assert bench.kept("all labels", 1.0, 0).all()
    kept = {way: bench.kept(way, 0.6, 0) for way in study.WAYS}
    begins = np.append(np.flatnonzero(~bench.inside[y]), len(y))
    for first, stop in zip(begins[:-1], begins[1:], strict=True):  # an entity is known as a whole
        for way in ("entities", "no O"):
            assert len(set(kept[way][first:stop])) == 1
    assert not kept["no O"][names[y] == "O"].any() and kept["entities"][names[y] == "O"].any()
    half = bench.sentence % 2 == 0
    assert kept["half complete"][half].all() and not kept["half complete"][~half & (y == bench.o)].any()
    assert abs(kept["tokens"].mean() - 0.6) < 0.06
    assert not np.array_equal(kept["tokens"], bench.kept("tokens", 0.6, 1))


def test_complete_sentences_and_stretches(bench, seen):
    kept = np.ones(bench.train.n_tokens, bool)
    first, last = bench.train.seq_ptr[:2]
    kept[first + 1] = False  # the second token of the first sentence
    bench.complete(kept, 1.0)
    bench.stretches(kept, 1.0)
    (whole, _), (runs, limits) = seen
    assert whole.n_sequences == bench.train.n_sequences - 1
    assert runs.lengths[:2].tolist() == [1, last - first - 2] and runs.n_tokens == kept.sum()
    assert limits["start"].all() and (runs.labels >= 0).all()
    assert bench.complete(np.zeros_like(kept), 1.0) is None


def test_unknown_is_o_begins_what_is_left_of_an_entity(bench, seen):
    y = bench.train.labels
    inner = np.flatnonzero(bench.inside[y])[0]
    kept = np.zeros(len(y), bool)
    kept[inner] = True
    bench.unknown_is_o(kept, 1.0)
    found = [bench.names[label] for label in seen[0][0].labels]
    assert found[inner] == "B-" + bench.names[y[inner]][2:] and set(np.delete(found, inner)) == {"O"}


def test_self_training_keeps_what_is_known(bench, monkeypatch):
    kept, fits, fit = bench.kept("entities", 0.6, 0), [], bench.fit
    monkeypatch.setattr(
        bench, "fit", lambda c2, corpus, **more: fits.append(corpus) or fit(c2, corpus, **more)
    )
    bench.self_training(kept, 1.0)
    assert len(fits) == 1 + study.ROUNDS
    for corpus in fits[1:]:
        assert np.array_equal(corpus.labels[kept], bench.train.labels[kept]) and (corpus.labels >= 0).all()


def test_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "WAYS", {"all labels": (1.0,), "tokens": (0.3,), "no O": (1.0,)})
    rows = read_record(*run("partial-labels", folder=tmp_path, corpora=("Spanish names",), seeds=1))[1]
    assert [row["arm"] for row in rows] == 3 * list(study.ARMS)
    same = [row for row in rows[:5] if row["arm"] != "known stretches"]  # these may begin with I-
    assert len({row["F1"] for row in same}) == 1 and {row["p"] for row in same} == {"1"}
    f1 = {(row["way"], row["arm"]): float(row["F1"]) for row in rows}
    assert f1["no O", "unknown is O"] == f1["all labels", "unknown is O"]  # right by construction
    for row in rows:
        gain = float(row["F1"]) - f1[row["way"], "marginal likelihood"]
        assert float(row["gain"]) == pytest.approx(gain, abs=0.02) and 0 < float(row["p"]) <= 1
        assert row["end"] in ("converged", "max_iterations", "no sentence")


def test_the_grid_goes_on_until_the_best_is_inside(bench, monkeypatch):
    monkeypatch.setattr(study, "C2", (4.0, 2.0, 1.0, 0.5, 0.25, 0.125))

    def labels(part, fit):  # the smaller the distance to `best`, the more sentences are right
        gold = bench.parts[part].gold
        n = len(gold) - int(round(4 * abs(np.log2(fit[0] / best)))) if fit else 0
        return gold[:n] + [["O"] * len(one) for one in gold[n:]]

    monkeypatch.setattr(bench, "labels", labels)
    for best, tried in ((1.0, 3), (2.0, 4), (0.5, 4), (0.25, 5), (0.125, 5)):
        about, _ = bench.best(lambda *given: (given[-1], None, "converged", 1), None)
        assert (about["c2"], about["tried"]) == (best, tried)
    about, _ = bench.best(lambda *given: None, None)
    assert (about["c2"], about["tried"], about["end"]) == (4.0, 4, "no sentence")  # of equals the largest
