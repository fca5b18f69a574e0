"""The sum over shards: what `Objective` gives, and always the same bits."""

import gc
import math
import threading
import tracemalloc

import numpy as np
import pytest
from helpers.sharded import names, sentences, some_shards

import crfbook.distributed.objective as module
from crfbook import CRF
from crfbook.chain.objective import Objective
from crfbook.distributed import ShardedObjective, write_shards
from crfbook.distributed.engine import Cluster, Local, group_size, summed, tree
from crfbook.distributed.objective import KEPT, Kept


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return some_shards(tmp_path_factory.mktemp("objective"))


@pytest.fixture
def w(shards):
    return np.random.default_rng(4).normal(size=shards.features.n_features)


@pytest.fixture(autouse=True)
def nothing_kept():
    KEPT.clear()
    yield
    KEPT.clear()


def test_value_gradient_and_curvature_are_those_of_one_objective(shards, w):
    crf = CRF(max_iterations=0).fit(*names(sentences()))
    whole = Objective(crf.encoder_.transform(*names(sentences())), crf.features_, c2=0.7)
    mine = ShardedObjective(shards, Local(), 0.7)
    value, grad = mine(w)
    np.testing.assert_allclose(value, whole(w)[0], rtol=1e-12)
    np.testing.assert_allclose(grad, whole(w)[1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mine.curvature(w), whole.curvature(w), rtol=1e-9, atol=1e-9)
    assert mine.n_evaluations == 1


def test_the_weights_at_work_alone(shards, w):
    keep = np.arange(len(w)) % 3 == 0
    small = ShardedObjective(shards, Local(), 0.7).smaller(keep)
    value, grad = small(w[keep])
    wanted, of_all = ShardedObjective(shards, Local(), 0.7)(np.where(keep, w, 0.0))
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    np.testing.assert_allclose(grad, of_all[keep], rtol=1e-9, atol=1e-12)
    none = ShardedObjective(shards, Local(), 0.7).smaller(np.zeros(len(w), bool))
    assert none(np.zeros(0))[1].shape == (0,)


@pytest.mark.parametrize("options", [{"group": 2**k} for k in range(6)] + [{"budget": 0}, {"n_threads": 3}])
def test_the_same_bits_for_any_group_budget_and_number_of_threads(shards, w, options):
    value, grad = ShardedObjective(shards, Local(), 0.1)(w)
    objective = ShardedObjective(shards, Local(), 0.1, **options)
    for _ in range(2):
        again, other = objective(w)
        assert again == value and other.tobytes() == grad.tobytes()
    keep = w > 0
    one = ShardedObjective(shards, Local(), 0.1).smaller(keep)(w[keep])
    two = objective.smaller(keep)(w[keep])
    assert one[0] == two[0] and one[1].tobytes() == two[1].tobytes()


@pytest.mark.parametrize("options", [{}, {"group": 1}, {"group": 4}, {"budget": 0}])
def test_the_same_bits_on_a_cluster(shards, w, options, client):
    value, grad = ShardedObjective(shards, Local(), 0.1)(w)
    objective = ShardedObjective(shards, Cluster(client), 0.1, **options)
    again, other = objective(w)
    assert again == value and other.tobytes() == grad.tobytes()
    curved = ShardedObjective(shards, Local(), 0.1).curvature(w)
    assert objective.curvature(w).tobytes() == curved.tobytes()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 13])
def test_a_stream_is_summed_as_the_tree(n):
    rng = np.random.default_rng(n)
    parts = [(float(x), rng.normal(size=3)) for x in rng.normal(size=n)]
    wanted = tree(
        [(a, b.copy()) for a, b in parts], lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True))
    )
    for k in (1, 2, 4):
        groups = [summed((a, b.copy()) for a, b in parts[i : i + k]) for i in range(0, n, k)]
        found = summed(groups)
        assert found[0] == wanted[0] and found[1].tobytes() == wanted[1].tobytes()


def test_groups_are_fair_and_powers_of_two():
    assert group_size(8, 2) == 4 and group_size(1, 5) == 1 and group_size(64, 2) == 32
    for n_shards in range(1, 40):
        for n_workers in range(1, 9):
            size = group_size(n_shards, n_workers)
            assert size & (size - 1) == 0 and size <= n_shards
            most = min(n_shards, math.ceil(math.ceil(n_shards / size) / n_workers) * size)
            assert most <= max(math.ceil(n_shards / n_workers), 1.1 * n_shards / n_workers)
    assert group_size(5, 2, 2**40) == 2**40
    with pytest.raises(ValueError, match="^group: expected a power of two, got 3$"):
        group_size(8, 2, 3)
    for wrong in (0, -2, "a", 1.5):
        with pytest.raises(ValueError, match="^group: expected an integer >= 1, got "):
            group_size(8, 2, wrong)


def test_what_is_built_is_kept_within_the_budget(shards, w, monkeypatch):
    built, real = [], module._build
    monkeypatch.setattr(module, "_build", lambda *args: built.append(args[0]) or real(*args))
    for budget, wanted in ((None, 1), (0, 3), (1 << 40, 1)):
        KEPT.clear()
        built.clear()
        objective = ShardedObjective(shards, Local(), budget=budget)
        for _ in range(3):
            objective(w)
        assert len(built) == wanted * len(shards), budget
    KEPT.clear()
    ShardedObjective(shards, Local(), budget=0)(w)
    assert len(KEPT.things) == 1


def test_the_least_recently_used_goes_first():
    kept = Kept()
    for name in "abca":
        kept.get(name, lambda name=name: (name, 10), 30)
    kept.get("d", lambda: ("d", 10), 30)
    assert set(kept.things) == {"c", "a", "d"} and set(kept.building) == {"c", "a", "d"}


def test_threads_build_a_shard_once():
    kept, built, gate = Kept(), [], threading.Barrier(4)

    def ask():
        gate.wait()
        kept.get("a", lambda: (built.append(1), 1), 10)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_numbers_that_leave_float64_name_the_shard(tmp_path):
    X, y = [[["a"]], [["b"]]], [["x"], ["y"]]
    found = write_shards([(X, y)], tmp_path, CRF())
    with pytest.raises(ValueError, match="finite|weights"):
        ShardedObjective(found, Local())(np.full(found.features.n_features, np.nan))


def test_the_driver_holds_few_vectors_whatever_the_number_of_shards(tmp_path):
    """Two for each level of the tree at most, with groups of one shard."""
    rows = [[(f"v{i}-{j}", "p", "x" if (i + j) % 2 else "y") for j in range(80)] for i in range(64)]
    peaks = []
    for n in (8, 32):
        found = write_shards([names(rows)], tmp_path / str(n), CRF(), shard_tokens=64 * 80 // n)
        objective, size = ShardedObjective(found, Local(), group=1, budget=0), found.features.n_features
        w = np.zeros(size)
        objective(w)
        gc.collect()
        tracemalloc.start()
        objective(w)
        peaks.append(tracemalloc.get_traced_memory()[1] / (8 * size))
        tracemalloc.stop()
        assert len(found) == n
    assert max(peaks) < 30 and peaks[1] < peaks[0] + 6
