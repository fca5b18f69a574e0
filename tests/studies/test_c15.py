"""Chapter 15: its studies on a few sentences of the twins. Clusters of processes: tests/sharded."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from crfbook.distributed import fit
from studies import c15, c15_plans, work

pytestmark = [pytest.mark.usefixtures("on_twins"), pytest.mark.kernels]


def test_copies_are_noisy_and_the_first_is_the_text():
    text = work.dataset("chunking").train[:50]
    first, second = c15.copies(2, n_sentences=50)
    assert first.columns == text.columns and first.labels == second.labels == text.labels
    changed = np.mean([a != b for a, b in zip(first.columns["word"], second.columns["word"], strict=True)])
    assert 0.05 < changed < 0.15
    assert [c.columns for c in c15.copies(2, n_sentences=50)] == [first.columns, second.columns]
    assert [c.columns for c in c15.copies(2, 0.0, 50)] == [text.columns] * 2


@pytest.mark.parametrize("n", [1, 3])
def test_two_processes_without_an_engine_do_every_shard_once(n, monkeypatch, tmp_path):
    done, evaluate = [], c15.evaluate
    monkeypatch.setattr(
        c15, "evaluate", lambda w, shard, *more: done.append(shard) or evaluate(w, shard, *more)
    )
    monkeypatch.setattr(c15, "ProcessPoolExecutor", lambda size, context: ThreadPoolExecutor(size))
    shards = c15.shards_of(tmp_path, n, 60)
    with c15.without_engine(shards, np.zeros(shards.features.n_features)) as alone:
        assert list(alone) == ["in turn", "at once"]
        for run in alone.values():
            assert run() >= 0 and sorted(done) == sorted(shards.files) and len(done) == n
            done.clear()


def test_cocoa_comes_down_to_the_minimum_of_lbfgs(tmp_path):
    shards = c15.shards_of(tmp_path, 3, 60)
    best = fit(c15.model(tol=1e-8), shards).objective_
    objective, values = c15.ShardedObjective(shards, c15.Local(), c15.C2), []
    c15.cocoa(shards, c15.C2, 60, lambda w: values.append(objective(w)[0]))
    assert len(values) == 60 and min(values) >= best - 1e-6
    assert values[-1] < values[5] < values[0] and values[-1] < 1.01 * best


def test_moves_that_are_added_without_the_factor_overshoot(tmp_path):
    """What sigma is for: three parts that each take all of the step."""
    shards = c15.shards_of(tmp_path, 3, 60)
    objective, values = c15.ShardedObjective(shards, c15.Local(), c15.C2), []
    careful = []
    c15.cocoa(shards, c15.C2, 3, lambda w: careful.append(objective(w)[0]))
    c15.cocoa(shards, c15.C2, 3, lambda w: values.append(objective(w)[0]), sigma=1)
    assert max(values) > max(careful)


def test_rounds_are_exchanges(monkeypatch):
    monkeypatch.setattr(c15, "SENTENCES", 40)
    monkeypatch.setattr(c15, "MOST", 400)
    monkeypatch.setattr(c15.shards_of, "__defaults__", (40,))
    best = 1e9  # every point is near enough
    assert set(c15.rounds_row("lbfgs", 2, best).values()) <= {2, 3}  # a line search may need two
    assert set(c15.rounds_row("CoCoA+", 2, best).values()) == {1}


def test_a_mean_of_perceptrons(monkeypatch):
    monkeypatch.setattr(c15, "TRAINING", 60)
    c15.perceptron_of_one_shard.cache_clear()
    rows = {m: c15.mixing_row(m, n, 6) for m, n in (("iterative", 1), ("once", 3))}
    assert float(rows["iterative"]["less than one shard"]) == 0.0 and rows["iterative"]["p"] == "1.0000"
    assert 0 < float(rows["once"]["F1"]) < 100


def test_growth(monkeypatch):
    few = list(c15.copies(3, n_sentences=40))
    monkeypatch.setattr(c15, "copies", lambda n: few[:n])
    one, three = (c15.growth_row(n, n) for n in (1, 3))
    assert one["weights"] < three["weights"] < 3 * one["weights"]
    assert float(one["share in a shard"]) == 1.0 > float(three["share in a shard"]) > 1 / 3


def test_an_evaluation_on_paper():
    """One worker: shards, weights there, the sum back. Two: a half each, and what the plan moves between."""
    assert c15_plans.simulated(8, 1, 2.0, 1.0)["all"] == 1 + 8 * 2 + 1
    assert c15_plans.simulated(8, 2, 2.0, 1.0)["all"] == 1 + 1 + 4 * 2 + 1 + 1
    slow, fast = (c15_plans.simulated(400, 16, 1.0, vector) for vector in (1.0, 0.1))
    assert slow["compute"] == fast["compute"] == 25 < fast["all"] < slow["all"]
    assert c15_plans.simulated(32, 32, 0.0, 1.0)["weights"] == 10  # exercise 15.6


def test_rows_of_the_driver_and_of_workers_that_pass_vectors_on():
    row = c15_plans.step_row("float32", 2000, 3, 1)
    assert (row["pairs"], row["bytes a weight"]) == (3, 32)
    row = c15_plans.passing_row(3, 9, 500)
    assert row["same bits"] and row["copies of the weights"] == 2 >= row["most by one worker"]
