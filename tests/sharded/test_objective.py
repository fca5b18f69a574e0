"""The sum over shards: what `Objective` gives, and always the same bits."""

import math
import shutil
import threading
import time

import numpy as np
import pytest
from helpers.memory import peak_bytes
from helpers.sharded import names, sentences, some_shards

import crfbook.distributed.objective as module
from crfbook import CRF
from crfbook.chain.objective import Objective
from crfbook.distributed import ShardedObjective, ShardError, fit, write_shards
from crfbook.distributed.engine import Branch, Local, SparseVector, cut, joined
from crfbook.distributed.objective import CACHE, Cache


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return some_shards(tmp_path_factory.mktemp("objective"))


@pytest.fixture
def w(shards):
    return np.random.default_rng(4).normal(size=shards.features.n_features)


@pytest.fixture(autouse=True)
def nothing_kept():
    CACHE.clear()
    yield
    CACHE.clear()


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


def in_words(a, b):
    return f"({a}+{b})"


def named(n, pieces=None):
    """The tree of n leaves as text; pieces: (start, stop) of stretches that are joined first."""
    leaves = [Branch(i, 1, f"p{i}") for i in range(n)]
    stretches = [joined(leaves[a:b], n, in_words) for a, b in pieces or [(0, n)]]
    (whole,) = joined([branch for part in stretches for branch in part], n, in_words)
    return whole.sums


def test_the_tree():
    assert named(1) == "p0" and named(5) == "(((p0+p1)+(p2+p3))+p4)"
    assert named(7) == "(((p0+p1)+(p2+p3))+((p4+p5)+p6))"


def test_any_stretches_make_the_same_tree():
    for n in range(1, 11):
        for places in range(2 ** (n - 1)):  # every way to cut n shards
            ends = [0, *(i for i in range(1, n) if places >> (i - 1) & 1), n]
            assert named(n, zip(ends, ends[1:], strict=False)) == named(n)


def test_a_stretch_has_few_branches():
    for start, stop in ((0, 1000), (1, 999), (333, 777), (511, 513)):
        found = joined([Branch(i, 1, None) for i in range(start, stop)], 1000, lambda a, b: None)
        assert len(found) <= 2 * math.log2(stop - start) + 1


def test_stretches_of_one_home():
    found = [(start, "".join(part), home) for (start, part), home in cut("abcdefg", [0, 0, 1, 1, 1, 1, 0], 3)]
    assert found == [(0, "ab", 0), (2, "cde", 1), (5, "f", 1), (6, "g", 0)]
    assert [part for part, _ in cut("abc", "xxx", None)] == [(0, "abc")]


@pytest.mark.parametrize("seed", range(10))
def test_parts_are_summed_to_the_bits_of_whole_arrays(seed):
    """Also those that are -0.0, which + 0.0 changes."""
    rng = np.random.default_rng(seed)
    n, size, sparse = 9, 6, []
    for _ in range(n):
        place = np.flatnonzero(rng.random(size) < rng.choice([0.3, 1.0]))
        sparse.append((place, rng.choice([-0.0, 0.0, 0.1, -0.1, 1e16], len(place))))

    def part(_, i):
        place, values = sparse[i]
        return i, SparseVector(values.copy(), place, size)

    def whole(_, i):
        place, values = sparse[i]
        array = np.zeros(size)
        array[place] += values
        return i, array

    wanted = Local().total(whole, range(n), None)
    for group in (None, 1, 2, 3, 4):
        found = Local().total(part, range(n), None, group=group)
        assert found[0] == wanted[0] and found[1].tobytes() == wanted[1].tobytes()


def test_a_part_has_no_negative_zero_left():
    for size in (2, 3):
        total = SparseVector(np.array([-0.0, -0.0]), np.arange(2), size).whole()
        assert total.tobytes() == np.zeros(size).tobytes()


@pytest.mark.parametrize("wrong", [0, -2, "a", 1.5])
def test_a_group_has_a_shard_or_more(shards, wrong):
    said = "^group: expected an integer >= 1, got "
    with pytest.raises(ValueError, match=said):
        ShardedObjective(shards, Local(), group=wrong)
    with pytest.raises(ValueError, match=said):
        fit(CRF(), shards, group=wrong)


def test_what_is_built_is_kept_within_the_budget(shards, w, monkeypatch):
    built, real = [], module._build
    monkeypatch.setattr(module, "_build", lambda *args: built.append(args[0]) or real(*args))
    for budget, wanted in ((None, 1), (0, 3), (1 << 40, 1)):
        CACHE.clear()
        built.clear()
        objective = ShardedObjective(shards, Local(), budget=budget)
        for _ in range(3):
            objective(w)
        assert len(built) == wanted * len(shards), budget
    CACHE.clear()
    ShardedObjective(shards, Local(), budget=0)(w)
    assert len(CACHE.things) == 1


def test_the_least_recently_used_goes_first():
    kept = Cache()
    for name in "abca":
        kept.get(name, lambda name=name: (name, 10), 30)
    kept.get("d", lambda: ("d", 10), 30)
    assert set(kept.things) == {"c", "a", "d"} and set(kept.building) == {"c", "a", "d"}


def test_threads_build_a_shard_once():
    kept, built, gate = Cache(), [], threading.Barrier(4)

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
    X, y = [[["a"]], [["b", "c"]]], [["x"], ["y"]]
    found = write_shards([(X, y)], tmp_path, CRF(), shard_tokens=1)
    objective, w = ShardedObjective(found, Local()), np.full(found.features.n_features, 1e308)
    with pytest.raises(ShardError, match=r"^shard shard-00001.crfbook: sequence 0: expected a path"):
        objective(w)
    w[0] = np.nan
    with pytest.raises(ValueError, match="^weights: expected finite numbers, got nan at position 0"):
        objective(w)


def test_weights_whose_square_overflows_have_a_value_without_a_penalty(shards, w):
    huge, large = (ShardedObjective(shards, Local())(size * w)[0] for size in (1e200, 1e100))
    np.testing.assert_allclose(huge, 1e100 * large, rtol=1e-9)


def test_shards_that_took_the_place_of_others(tmp_path):
    """What was built of the old ones is not used."""
    found = []
    for seed in (0, 1):
        rows = [[(f"w{i}", "p", "x" if (i + seed) % 3 else "y") for i in range(6)]]
        mine = write_shards([names(rows)], tmp_path / "shards", CRF())
        w = np.linspace(-1.0, 1.0, mine.features.n_features)
        whole = CRF(max_iterations=0).fit(*names(rows))
        wanted = Objective(whole.encoder_.transform(*names(rows)), whole.features_)(w)[0]
        np.testing.assert_allclose(ShardedObjective(mine, Local())(w)[0], wanted, rtol=1e-12)
        found.append((mine.files[0][0], wanted))
        shutil.rmtree(tmp_path / "shards")
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1]


def test_the_driver_holds_few_vectors_whatever_the_number_of_shards(tmp_path):
    """Two for each level of the tree at most, with groups of one shard."""
    rows = [[(f"v{i}-{j}", "p", "x" if (i + j) % 2 else "y") for j in range(80)] for i in range(64)]
    peaks = []
    for n in (8, 32):
        found = write_shards([names(rows)], tmp_path / str(n), CRF(), shard_tokens=64 * 80 // n)
        objective, size = ShardedObjective(found, Local(), group=1, budget=0), found.features.n_features
        w = np.zeros(size)
        objective(w)
        peaks.append(peak_bytes(lambda objective=objective, w=w: objective(w))[1] / (8 * size))
        assert len(found) == n
    assert max(peaks) < 30 and peaks[1] < peaks[0] + 6


def test_threads_of_a_worker_take_turns_at_an_objective(shards, w, monkeypatch):
    """Its work arrays are one evaluation's at a time."""
    call, inside, most = Objective.__call__, [], []

    def watched(self, own):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return call(self, own)

    monkeypatch.setattr(Objective, "__call__", watched)
    arguments = (w, None), shards.files[0], len(w), "counts", 1, None
    threads = [threading.Thread(target=module.evaluate, args=arguments) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4
