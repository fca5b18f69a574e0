"""Chapter 15, more workers than two: who sends what, what many shards cost to write, the driver's step.

Workers are threads of one process, which send over TCP. An evaluation of a thousand million words is made on
paper, by the plan of crfbook/distributed/engine.py itself.
"""

import itertools
import tempfile
import time
from collections import Counter

import numpy as np

from crfbook.distributed import write_shards
from crfbook.distributed.engine import FAN, Cluster, Local, branches, routed, spread, travelling
from crfbook.learners.quasi_newton.lbfgs import CurvatureMemory, Pairs

from .c15 import cluster, model, spent
from .harness import study
from .records import cells, each
from .work import dataset

# ---- writing: what many shards cost ----


def writing_row(parts):
    """CPU seconds of writing one text as so many shards, the second time in this process."""
    train = dataset("chunking").train
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            size = {"shard_tokens": train.n_tokens // parts + 1}
            shards, cpu, _ = spent(write_shards, [train], folder, model(), **size)
    return {"shards": len(shards), "weights": shards.features.n_features, "CPU s": f"{cpu:.2f}"}


@study("15_writing.csv")
def sharded_writing():
    """CPU seconds to write the text as few and as many shards; a minute."""
    yield "15_writing.csv", each(writing_row, cells(parts=(8, 32, 128))), [dataset("chunking")]


# ---- plans: who sends what, on paper and by workers of this process ----


def stretches_of(n, workers):
    """[(start, stop, worker)] of a new cluster."""
    sizes = [(home, len(list(run))) for home, run in itertools.groupby(spread(n, workers))]
    stops = np.cumsum([size for _, size in sizes]).tolist()
    return [(stop - size, stop, home) for stop, (home, size) in zip(stops, sizes, strict=True)]


def some_vector(payload, number):
    return float(number), payload[0] * np.random.default_rng(number).standard_normal(len(payload))


def passing_row(workers, shards, size=100_000):
    """Vectors that workers of this process send over TCP in a sum, and what the plan says."""
    job = some_vector, list(range(shards)), np.ones(size)
    with cluster(workers, processes=False, protocol="tcp") as client:
        there = Cluster(client)
        there.total(*job)
        logs = [worker.transfer_outgoing_log for worker in client.cluster.workers.values()]
        before = [len(log) for log in logs]
        found = there.total(*job)
        new = [list(log)[k:] for log, k in zip(logs, before, strict=True)]
        sent = [[key for one in some for key in one["keys"]] for some in new]
    copies = [sum(key.startswith(("same", "ndarray")) for key in keys) for keys in sent]
    stretches, even = stretches_of(shards, range(workers)), np.linspace(0, shards, workers + 1).astype(int)
    evenly = list(zip(even.tolist(), even[1:].tolist(), range(workers), strict=False))
    return {
        "same bits": np.array_equal(found[1], Local().total(*job)[1]),
        "copies of the weights": sum(copies), "most by one worker": max(copies),
        "vectors between workers": sum(map(len, sent)),
        "bytes / (2 F 8 W), plan": f"{travelling(stretches, shards) / (2 * workers):.3f}",
        "the same, cut evenly": f"{travelling(evenly, shards) / (2 * workers):.3f}",
        "most shards / mean": f"{max(b - a for a, b, _ in stretches) * workers / shards:.3f}",
    }  # fmt: skip


@study("15_passing.csv")
def sharded_passing():
    """Who sends how many vectors, 2 to 16 workers in one process over TCP; a minute."""
    sizes = (2, 10), (3, 40), (5, 40), (8, 100), (16, 500)
    yield "15_passing.csv", each(passing_row, [{"workers": w, "shards": n} for w, n in sizes]), []


def simulated(n, n_workers, shard, vector):
    """{part: seconds} of one evaluation as engine.py plans it, not measured.

    shard : seconds of the gradient of one of n shards. vector : seconds in which a link carries a vector.
    A link carries one vector at a time each way. A worker sends its copies of the weights all at once.
    """
    stretches = stretches_of(n, range(n_workers))
    there = [vector]  # when the weights are at each worker
    for i in range(1, len(stretches)):
        parent = (i - 1) // FAN
        children = min(FAN, len(stretches) - 1 - FAN * parent)
        there.append(there[parent] + children * vector)
    ready = dict(enumerate(there[w] + (b - a) * shard for a, b, w in stretches for _ in branches(a, b, n)))
    worked, (homes, pairs), out, into = max(ready.values()), routed(stretches, n), Counter(), Counter()
    first, arrived = len(ready), [[] for _ in homes]
    waiting = [(child, value) for value, pair in enumerate(pairs, first) for child in pair]

    def start(move):
        source, target = (homes[value] for value in move)
        return max(ready[move[0]], out[source], into[target]) if source != target else ready[move[0]]

    while waiting:  # what can begin first goes first
        child, value = move = min((move for move in waiting if move[0] in ready), key=start)
        at, moved = start(move), homes[child] != homes[value]
        if moved:
            at += vector
            out[homes[child]] = into[homes[value]] = at
        arrived[value].append(at)
        if len(arrived[value]) == 2:
            ready[value] = max(arrived[value])
        waiting.remove(move)
    end = ready[len(homes) - 1] + vector
    seconds = {"compute": n * shard / n_workers, "weights": max(there), "sums": end - worked, "all": end}
    return seconds | {"vectors held": 1 + max(len(branches(a, b, n)) for a, b, _ in stretches)}


def step_row(precision, n_features=2_000_000, pairs=30, repeats=3):
    """Seconds and bytes a weight of a step of L-BFGS in the driver."""
    rng, memory = np.random.default_rng(0), CurvatureMemory(pairs, n_features, np.dtype(precision))
    grad, direction, known, took = rng.standard_normal(n_features), np.empty(n_features), Pairs(), []
    zero = np.zeros(n_features)
    for _ in range(pairs):
        s = rng.standard_normal(n_features)
        known = memory.add(known, s, zero, s, zero)
    for _ in range(repeats):
        began = time.process_time()
        memory.descent(known, grad, direction)
        took.append(time.process_time() - began)
    row = {"weights": n_features, "pairs": len(known.rows)}
    row["bytes a weight"] = 2 * (pairs + 1) * memory.s.itemsize
    return row | {"CPU s a million weights": f"{min(took) / n_features * 1e6:.4f}"}


@study("15_step.csv")
def sharded_step():
    """What a step of L-BFGS with 30 pairs costs the driver, pairs in float64 and in float32; a minute."""
    yield "15_step.csv", each(step_row, cells(precision=("float64", "float32"))), []
