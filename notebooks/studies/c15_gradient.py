"""Chapter 15: what a gradient costs on two workers, on one process, and on two that exchange nothing."""

import contextlib
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

from crfbook.distributed import ShardedObjective, write_shards
from crfbook.distributed.engine import engine_of, stretch
from crfbook.distributed.objective import KEPT, evaluate

from .c15 import (
    C2,
    NOISE,
    cluster,
    copies,
    cpu_seconds,
    loopback_bytes,
    model,
    support_row,
    tagging_row,
)
from .harness import Row, study
from .work import dataset

IDLE = 5.0  # seconds of a cluster that is watched doing nothing


def _half(w, start, files, n, n_features):
    """CPU seconds of the value and gradient of some shards, in this process."""
    began = time.process_time()
    stretch(evaluate, (w, None), start, files, n, (n_features, "counts", 1, None, None))
    return time.process_time() - began


@contextlib.contextmanager
def without_engine(shards, w):
    """{"in turn" or "at once": () -> CPU seconds} of two processes with half of the shards each, which send
    nothing to each other: at once they also share the caches and the memory of the machine.
    """
    n, middle = len(shards), max(len(shards) // 2, 1)
    halves = (0, shards.files[:middle]), (middle, shards.files[middle:])
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for _ in halves]

        def ask(pool, half):
            return pool.submit(_half, w, *half, n, len(w))

        def in_turn():
            return sum(ask(*pair).result() for pair in zip(pools, halves, strict=True))

        def at_once():
            return sum(answer.result() for answer in list(map(ask, pools, halves)))

        yield {"in turn": in_turn, "at once": at_once}


def gradient_row(n_copies, noise, profiler=False, repeats=15):
    """A value and gradient by two workers, by this process over the same shards, and by two processes without
    an engine: medians, in turn.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(cluster(profiler=profiler))
        shards = write_shards(copies(n_copies, noise), folder, model())
        w = 0.01 * np.random.default_rng(0).standard_normal(shards.features.n_features)
        alone = stack.enter_context(without_engine(shards, w))
        for run in alone.values():  # reads the shards
            run()
        here, there = (ShardedObjective(shards, engine_of(c), C2) for c in (None, client))
        same = all(np.array_equal(a, b) for a, b in zip(here(w), there(w), strict=True))
        there(w)
        spent, sent, apart = {"here": [], "there": []}, [], {name: [] for name in alone}
        for _ in range(repeats):
            for name, run in (("here", here), ("there", there)):
                cpu, wall, lo = cpu_seconds(), time.perf_counter(), loopback_bytes()
                run(w)
                spent[name].append((cpu_seconds() - cpu, time.perf_counter() - wall))
                if name == "there":
                    sent.append(loopback_bytes() - lo)
            for name, run in alone.items():
                apart[name].append(run() / spent["here"][-1][0])
        cpu = {name: np.median([c for c, _ in pairs]) for name, pairs in spent.items()}
        idle = cpu_seconds()
        time.sleep(IDLE)
        idle = (cpu_seconds() - idle) / IDLE
        KEPT.clear()
        return {
            "tokens": shards.n_tokens, "shards": len(shards), "weights": shards.features.n_features,
            "same bits": same, "CPU s here": f"{cpu['here']:.3f}",
            "CPU s, two workers": f"{cpu['there']:.3f}",
            "ratio": f"{np.median([b[0] / a[0] for a, b in zip(*spent.values(), strict=True)]):.3f}",
            **{f"ratio, no engine, {name}": f"{np.median(found):.3f}" for name, found in apart.items()},
            "wall s, two workers": f"{np.median([w for _, w in spent['there']]):.3f}",
            "CPU s a second, idle": f"{idle:.3f}",
            "bytes / (2 F 8 W)": f"{np.median(sent) / (2 * 8 * len(w) * 2):.3f}",
        }  # fmt: skip


@study("15_gradient.csv", frozen=("lbfgs",))
def sharded_gradient():
    """CPU seconds and bytes of a gradient by two workers, beside the same shards in one process; minutes."""
    cases = (1, 0.0, False), (10, 0.0, False), (10, 0.0, True), (10, NOISE, False)
    cells = [{"copies": n, "noise": noise, "profiler": profiler} for n, noise, profiler in cases]
    jobs = [(cell, partial(gradient_row, *cell.values())) for cell in cells]
    yield "15_gradient.csv", jobs, [dataset("chunking")]


@study("15_targets.csv")
def sharded_targets(repeats=15):
    """What sharded training must reach, in one run; some minutes. Memory and losses: see their tables."""
    row = gradient_row(10, 0.0, repeats=repeats)
    cpu = float(row["CPU s, two workers"]), float(row["CPU s here"])
    note = f"{row['tokens']:,} tokens, {row['weights']:,} weights; Dask's profiler is off"
    alone = f"{note}; two processes without an engine, at once: {row['ratio, no engine, at once']}"
    yield Row("gradient by two workers / the same shards here", *cpu, "CPU s", 1.20, 1.10, alone)
    sent = float(row["bytes / (2 F 8 W)"])
    yield Row("bytes an evaluation / (2 F x 8 x workers)", sent, 1.0, "", 1.5, None, note)
    row = support_row(1.0)
    sent = float(row["bytes an evaluation / (2 F 8 W)"])
    note = f"c1 = 1, {row['evaluations']} evaluations to the end, those of all weights included"
    yield Row("the same with L1, mean over a training", sent, 1.0, "", 1.5, 0.6, note)
    for kind in ("conll", "parquet"):
        row = tagging_row(kind, repeats)
        rates = float(row["tokens a CPU s here"]), float(row["tokens a CPU s, two workers"])
        yield Row(f"tagging {kind}: one process / two workers, tokens a CPU s", *rates, "", 1 / 0.8, 1 / 0.95)
