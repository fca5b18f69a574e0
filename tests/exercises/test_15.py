"""Chapter 15: what its exercises say that one should find."""

import numpy as np

from crfbook import CRF, load_dataset
from crfbook.distributed import ShardedObjective, write_shards
from crfbook.distributed.engine import FAN, Branch, Local, joined


def sums(x):
    """The function of section 2."""
    if len(x) == 1:
        return [x[0]]
    return [a + b for i in range(1, len(x)) for a in sums(x[:i]) for b in sums(x[i:])]


def kahan(parts):
    total, lost = np.zeros_like(parts[0]), np.zeros_like(parts[0])
    for part in parts:
        y = part - lost
        new = total + y
        total, lost = new, (new - total) - y
    return total


def branches(x, start, stop, n, add):
    return joined([Branch(i, 1, x[i]) for i in range(start, stop)], n, add)


def added(a, b):
    return (a[0] + b[0],)


def named(parts):
    (whole,) = branches(parts, 0, len(parts), len(parts), lambda a, b: f"({a}+{b})")
    return whole.sums


def test_1_the_tree_of_five():
    assert named([f"p{i}" for i in range(5)]) == "(((p0+p1)+(p2+p3))+p4)"
    assert "(p1+p2)" not in named([f"p{i}" for i in range(5)])


def test_2_three_shards_and_five():
    """Two numbers for three and five shards cost bits; the branches of both do not."""
    x = np.random.default_rng(0).standard_normal((8, 50)) * 10.0 ** np.arange(8)[:, None]
    rows = [(row,) for row in x]
    (whole,) = branches(rows, 0, 8, 8, added)
    left, right = (branches(rows, *part, 8, added) for part in ((0, 3), (3, 8)))
    assert [(b.start, b.size) for b in left + right] == [(0, 2), (2, 1), (3, 1), (4, 4)]
    (both,) = joined(left + right, 8, added)
    assert np.array_equal(both.sums[0], whole.sums[0])
    sums = [branches(part, 0, len(part), len(part), added)[0].sums[0] for part in (rows[:3], rows[3:])]
    assert not np.array_equal(sums[0] + sums[1], whole.sums[0])


def test_3_what_breaks_the_promise(tmp_path):
    data = load_dataset("conll2000", source="builtin").train[:120]
    rng = np.random.default_rng(0)

    def bits(name, parts, n_threads=1):
        shards = write_shards(parts, tmp_path / name, CRF(template="chunking"))
        w = 0.1 * np.random.default_rng(1).standard_normal(shards.features.n_features)
        return ShardedObjective(shards, Local(), 1.0, n_threads=n_threads)(w)[1].tobytes()

    wanted = bits("a", [data[:60], data[60:]])
    assert bits("b", [data[:60], data[60:]], 2) == wanted
    assert bits("c", [data[:60].take(rng.permutation(60)), data[60:]]) != wanted
    assert bits("d", [data[:30], data[30:60], data[60:]]) != wanted


def test_4_the_largest_numbers_decide():
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal(10)
        assert np.ptp(sums([*(1e8 * x), 1.0])) > 1e-8
        assert np.ptp(sums(x.tolist())) < 1e-14


def test_5_kahan():
    parts = np.random.default_rng(0).standard_normal((8, 20_000))
    plain = np.mean(parts.sum(axis=0) != parts[::-1].sum(axis=0))
    assert 0 < np.mean(kahan(parts) != kahan(parts[::-1])) < plain


def test_6_copies_that_a_worker_sends():
    """Worker i has the weights from worker (i - 1) // most, as the engine has it."""

    def times(most, n=32):
        there = [1]
        for i in range(1, n):
            parent = (i - 1) // most
            there.append(there[parent] + min(most, n - 1 - most * parent))
        return max(there)

    assert [times(most) for most in (1, 2, 3, 4)] == [32, 10, 10, 13]
    assert FAN == 3
