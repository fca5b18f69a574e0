"""Chapter 15: what a gradient costs on two workers; other ways to train on shards; how models grow.

Exchanges of L-BFGS and of CoCoA+, the perceptron by parameter mixing, and weights of longer texts run in one
process over the shards: what counts is how often parts must talk. Gradients are timed on two workers, in one
process, and in two that exchange nothing.
"""

import contextlib
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

from crfbook.chain.token_layout import cells_of, weights_of
from crfbook.distributed import ShardedObjective, fit, write_shards
from crfbook.distributed.engine import Local, engine_of, stretch
from crfbook.distributed.fitting import train
from crfbook.distributed.objective import KEPT, evaluate
from crfbook.distributed.shards import read_shard
from crfbook.evaluation import chunk_report, paired_test
from crfbook.learners.online import perceptron
from crfbook.learners.stochastic.dual import DualAscent, sdca_epoch
from crfbook.models.parameters import check_settings

from . import c15
from .c15 import C2, copies, cpu_seconds, loopback_bytes, model
from .harness import Row, study
from .records import each
from .work import dataset

GAPS = (1e-2, 1e-3, 1e-4)  # relative, above the minimum
SENTENCES = 2240  # of the study of rounds
MOST = 150  # exchanges
EPOCHS = 6  # of the perceptron of one shard, with which all others are compared
TRAINING = None  # sentences of the study of mixing; None: all


# ---- rounds of other methods


def parts_of(shards):
    """(corpus, features, place) of each shard."""
    return [read_shard(shard.path, shard.digest)[:3] for shard in shards.shards]


def cocoa(shards, c2, n_rounds, look, sigma=None):
    """CoCoA+ with sums of the parts' updates (gamma = 1, sigma = number of parts).

    Each part runs an epoch of dual coordinate ascent in which its own moves count sigma times, as if all
    parts made the same; then w += sum of moves / sigma. Source: Ma et al. (2015), Algorithm 1. look(w) is
    called after each round, and returns True to stop. sigma : another factor, to see what it is for.
    """
    parts, sigma = parts_of(shards), len(shards) if sigma is None else sigma
    w = np.zeros(shards.features.n_features)
    ascents = [DualAscent(corpus, features, None, None, None, 0, c2, 1e-4) for corpus, features, _ in parts]
    for r in range(n_rounds):
        moves = np.zeros_like(w)
        for ascent, (_, _, place) in zip(ascents, parts, strict=True):
            ascent.theta[:] = before = cells_of(ascent.cells, w[place])
            rng = np.random.default_rng([r, len(place)])
            order = ascent.sequences[rng.permutation(len(ascent.sequences))]
            arrays = ascent.layout, ascent.memory, ascent.work, ascent.trial
            sdca_epoch(order, c2 / sigma, *arrays, ascent.theta)
            moves[place] += weights_of(ascent.cells, ascent.theta - before) / sigma
        w = w + moves
        if look(w):
            return


FROM_ZEROS = "auto, from zeros"


def rounds_row(method, parts, best):
    """Exchanges (weights to all shards, a sum back) until the objective is within GAPS."""
    with tempfile.TemporaryDirectory() as folder:
        shards, there = shards_of(folder, parts), c15.counting(Local())
        objective, reached, count = ShardedObjective(shards, Local(), C2), {}, [0]

        def look(w):
            gap = (objective(w)[0] - best) / best
            for wanted in GAPS:
                if gap <= wanted:
                    reached.setdefault(wanted, count[0])
            return len(reached) == len(GAPS) or count[0] >= MOST

        if method == "CoCoA+":

            def after(w):
                count[0] += 1
                return look(w)

            cocoa(shards, C2, MOST, after)
        else:

            def callback(step, w):
                count[0] = there.n_totals
                return look(w)

            rules = {"memory_limit": 1} if method == FROM_ZEROS else {}  # too little for a shard alone
            name = method.removesuffix(", from zeros")
            settings = check_settings(model(algorithm=name, tol=1e-7, max_iterations=200, **rules))
            w0 = np.zeros(shards.features.n_features)
            train(shards, there, settings, w0, callback, None, {"group": None})
        KEPT.clear()
        return {f"to {gap:g}": reached.get(gap, f"over {MOST}") for gap in GAPS}


def shards_of(folder, n, n_sentences=SENTENCES):
    train = dataset("chunking").train[:n_sentences]
    size = len(train)
    return write_shards([train[i * size // n : (i + 1) * size // n] for i in range(n)], folder, model())


@study("15_rounds.csv", frozen=("lbfgs", "sdca"))
def sharded_rounds():
    """Exchanges until the optimum, L-BFGS, its start from shards alone, CoCoA+; minutes."""
    with tempfile.TemporaryDirectory() as folder:
        best = fit(model(algorithm="lbfgs", tol=1e-8), shards_of(folder, 1)).objective_
    KEPT.clear()
    cells = [{"method": "lbfgs", "parts": 2}]
    cells += [{"method": method, "parts": n} for method in (FROM_ZEROS, "auto", "CoCoA+") for n in (2, 8)]
    yield "15_rounds.csv", each(rounds_row, cells, best=best), [dataset("chunking")]


# ---- the perceptron by parameter mixing


def mixing_row(method, parts, epochs):
    """F1 on the test sentences; method: "once" (each shard for itself, then one mean) or "iterative";
    beside the perceptron of one shard, EPOCHS epochs.
    """
    data = dataset("chunking")
    with tempfile.TemporaryDirectory() as folder:
        shards = shards_of(folder, parts, TRAINING)
        crf = model(algorithm="perceptron", c2=None, max_iterations=epochs)
        if method == "once":
            total = np.zeros(shards.features.n_features)
            for corpus, features, place in parts_of(shards):
                total[place] += perceptron(corpus, features, max_iterations=epochs).w
            fit(crf.set_params(max_iterations=0), shards)
            crf.weights_ = total / parts
        elif method == "log loss":
            fit(crf.set_params(algorithm="lbfgs", c2=C2, max_iterations=None, tol=1e-4), shards)
        else:
            fit(crf, shards)
    KEPT.clear()
    found, gold = crf.predict(data.test), data.test.labels_by_sequence()
    with tempfile.TemporaryDirectory() as folder:
        alone = model(algorithm="perceptron", c2=None, max_iterations=EPOCHS)
        reference = fit(alone, shards_of(folder, 1, TRAINING)).predict(data.test)
    KEPT.clear()
    test = paired_test(gold, reference, found)
    f1, alone = (100 * chunk_report(gold, labels).f1 for labels in (found, reference))
    return {"F1": f"{f1:.2f}", "less than one shard": f"{alone - f1:.2f}", "p": f"{test.p_value:.4f}"}


@study("15_mixing.csv", frozen=("perceptron",))
def sharded_mixing():
    """The perceptron by parameter mixing: what the number of shards costs in F1; minutes."""
    runs = [("log loss", 1, 0), *(("iterative", n, 6) for n in (1, 2, 8, 32))]
    runs += [*(("once", n, 6) for n in (2, 8, 32)), *(("iterative", n, 20) for n in (1, 8, 32))]
    cells = [dict(zip(("method", "parts", "epochs"), run, strict=True)) for run in runs]
    yield "15_mixing.csv", each(mixing_row, cells), [dataset("chunking")]


# ---- growth


def growth_row(n_copies, parts):
    """Weights of a text of n_copies copies, and the share of them that a shard holds."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = max(1, int(n_copies * dataset("chunking").train.n_tokens // parts))
        shards = write_shards(copies(n_copies), folder, model(), shard_tokens=tokens)
        sizes = [shard.n_features for shard in shards.shards]
        files = sum(os.path.getsize(shard.path) for shard in shards.shards)
        return {
            "tokens": shards.n_tokens, "shards": len(shards), "weights": shards.features.n_features,
            "share in a shard": f"{np.mean(sizes) / shards.features.n_features:.3f}",
            "bytes a token on disk": f"{files / shards.n_tokens:.0f}",
        }  # fmt: skip


@study("15_growth.csv")
def sharded_growth():
    """How weights grow with text, and what a shard holds of them; minutes."""
    cells = [{"n_copies": n, "parts": n} for n in (1, 2, 4, 8, 16)]
    yield "15_growth.csv", each(growth_row, cells), [dataset("chunking")]


# ---- what a gradient costs on two workers, on one process, and on two that exchange nothing ----

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
        client = stack.enter_context(c15.cluster(profiler=profiler))
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
    cases = (1, 0.0, False), (10, 0.0, False), (10, 0.0, True), (10, c15.NOISE, False)
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
    row = c15.support_row(1.0)
    sent = float(row["bytes an evaluation / (2 F 8 W)"])
    note = f"c1 = 1, {row['evaluations']} evaluations to the end, those of all weights included"
    yield Row("the same with L1, mean over a training", sent, 1.0, "", 1.5, 0.6, note)
    for kind in ("conll", "parquet"):
        row = c15.tagging_row(kind, repeats)
        rates = float(row["tokens a CPU s here"]), float(row["tokens a CPU s, two workers"])
        yield Row(f"tagging {kind}: one process / two workers, tokens a CPU s", *rates, "", 1 / 0.8, 1 / 0.95)
