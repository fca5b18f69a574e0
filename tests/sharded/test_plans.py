"""Who has which shards, where sums are added, how weights spread: on paper, and by workers of one process."""

from collections import Counter
from itertools import groupby, pairwise

import numpy as np
import pytest

from crfbook.distributed import engine
from crfbook.distributed.engine import Branch, Cluster, Local, branches, joined, routed, spread, travelling


def stretches_of(homes):
    found, start = [], 0
    for home, run in groupby(homes):
        found.append((start, start := start + len(list(run)), home))
    return found


def assert_cheap(n, n_workers):
    """A worker each, little travels, loads are close to even."""
    homes = spread(n, range(n_workers))
    stretches = stretches_of(homes)
    assert [home for *_, home in stretches] == list(range(min(n, n_workers)))
    assert travelling(stretches, n) / (2 * n_workers) <= 1.6
    assert max(Counter(homes).values()) <= 1.26 * -(-n // n_workers)


@pytest.mark.parametrize("n_workers", range(2, 65))
def test_few_vectors_travel(n_workers):
    """Bytes of an evaluation over 2 F 8 W."""
    numbers = {n_workers, n_workers + 1, 2 * n_workers, 4000, 3999, *range(n_workers, 200, 7)}
    numbers |= {*range(200 + n_workers, 4000, 293), 2 * n_workers - 1, min(4000, 96 * n_workers)}
    for n in numbers:
        assert_cheap(n, n_workers)


def test_the_case_that_was_found():
    """Cut evenly, more vectors travel, and a worker returns up to 11 of them."""
    even = [(4000 * i // 32, 4000 * (i + 1) // 32, i) for i in range(32)]
    found = stretches_of(spread(4000, range(32)))
    assert max(len(branches(a, b, 4000)) for a, b, _ in even) > 6
    assert max(len(branches(a, b, 4000)) for a, b, _ in found) <= 4
    assert travelling(found, 4000) < 0.75 * travelling(even, 4000)
    assert max(b - a for a, b, _ in found) <= 1.03 * 125


def test_branches_are_those_of_a_stretch():
    for n in range(1, 20):
        for start in range(n):
            for stop in range(start + 1, n + 1):
                wanted = joined((Branch(i, 1, ()) for i in range(start, stop)), n, lambda a, b: ())
                found = joined(branches(start, stop, n), n, lambda a, b: pytest.fail("two of one parent"))
                assert [b._replace(sums=None) for b in wanted] == found


def fewest(stretches, n):
    """The fewest transfers between workers by which the whole gets anywhere, by trying all homes."""
    leaves = [(b, home) for a, z, home in stretches for b in branches(a, z, n)]
    everyone = {home for *_, home in stretches}
    costs = [{w: int(w != home) for w in everyone} for _, home in leaves]

    def add(a, b):
        total = {w: costs[a][w] + costs[b][w] for w in everyone}
        costs.append({w: min(total[w], min(total.values()) + 1) for w in everyone})
        return len(costs) - 1

    joined((b._replace(sums=i) for i, (b, _) in enumerate(leaves)), n, add)
    return min(costs[-1].values())


def test_no_route_is_cheaper():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 60))
        cuts = [0, *np.unique(rng.integers(1, n, 6)).tolist(), n]
        stretches = [(a, b, i % 5) for i, (a, b) in enumerate(pairwise(cuts))]
        homes, pairs = routed(stretches, n)
        first = len(homes) - len(pairs)
        used = {child for pair in pairs for child in pair}
        assert used == set(range(len(homes) - 1)) and all(max(p) < v for v, p in enumerate(pairs, first))
        assert travelling(stretches, n) - len({s[2] for s in stretches}) - 1 == fewest(stretches, n)


# ---- workers of this process


@pytest.fixture
def clients():
    """(n, protocol) -> client of n workers, all in this process, a thread each."""
    distributed = pytest.importorskip("distributed")
    open_ones = []

    def started(n, protocol):
        size = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": None}
        cluster = distributed.LocalCluster(**size, processes=False, protocol=protocol, silence_logs=50)
        open_ones.append(cluster)
        open_ones.append(distributed.Client(cluster))
        return open_ones[-1]

    yield started
    for one in reversed(open_ones):
        one.close()


def vector(payload, number, size):
    return float(number), payload[0] * np.random.default_rng(number).standard_normal(size)


@pytest.mark.parametrize("n_workers", [2, 3, 5, 8])
def test_the_same_bits_for_any_number_of_workers(n_workers, clients):
    cluster = Cluster(clients(n_workers, "inproc"))
    for n in (1, 3, 20, 37):
        job = vector, list(range(n)), np.full(1, 0.3), 50
        for group in (None, 3):
            (count, found), (_, wanted) = cluster.total(*job, group=group), Local().total(*job)
            assert count == n * (n - 1) / 2 and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("n_workers", [8, 16])
def test_workers_pass_weights_on(n_workers, clients):
    """Over TCP: at most three ask for one worker's copy; what travels in all is what the plan says.

    Which of those that have a copy sends it is Dask's choice, and depends on who is busy.
    """
    client = clients(n_workers, "tcp")
    workers, size, n = client.cluster.workers.values(), 40_000, 5 * n_workers
    cluster = Cluster(client)
    payload = np.ones(size)
    for _ in range(2):
        before = [len(worker.transfer_outgoing_log) for worker in workers]
        cluster.total(vector, list(range(n)), payload, size)
        sent = [
            [entry for entry in list(worker.transfer_outgoing_log)[k:] if "client" not in str(entry["who"])]
            for worker, k in zip(workers, before, strict=True)
        ]
    names = [Counter(key.partition("-")[0] for entry in one for key in entry["keys"]) for one in sent]
    keys = [key for one in sent for entry in one for key in entry["keys"]]
    copies = Counter(key for key in keys if key.startswith(("ndarray-", "same-")))
    assert copies.total() == n_workers - 1 and max(copies.values()) <= engine.FAN == 3
    stretches = stretches_of(cluster._assign(n))
    assert sum(one.total() for one in names) <= travelling(stretches, n) - 1
