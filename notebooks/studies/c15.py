"""Chapter 15: training and tagging on a Dask cluster: what it costs, what a loss costs, how models grow.

Chunking, CoNLL-2000. Larger texts are copies of it, in each of which every tenth word (`NOISE`) ends in
another letter, so that weights grow as they do with new text. Two workers share the two cores of a machine:
CPU seconds and bytes count here, wall seconds say nothing of a real cluster.

Exchanges of L-BFGS and of CoCoA+, the perceptron by parameter mixing, and weights of longer texts run in one
process over the shards: what counts is how often parts must talk. Gradients are timed on two workers, in one
process, and in two that exchange nothing.
"""

import contextlib
import hashlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from crfbook import CRF, TokenColumns, write_conll
from crfbook.chain.token_layout import cells_of, weights_of
from crfbook.distributed import ClusterLost, ShardedObjective, Shards, fit, predict_files, write_shards
from crfbook.distributed.engine import Local, engine_of, stretch
from crfbook.distributed.fitting import train
from crfbook.distributed.objective import CACHE, evaluate
from crfbook.distributed.shards import read_shard
from crfbook.evaluation import chunk_report, paired_test
from crfbook.learners.online import perceptron
from crfbook.learners.stochastic.dual import DualAscent, sdca_epoch
from crfbook.models.parameters import check_settings

from .harness import Row, in_own_process, own_peak_mb, study
from .records import cells, each
from .work import dataset

NOISE = 0.1  # share of words that a copy changes
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
C2 = 1.0
TEMPLATE = "chunking"


# ---- texts and clusters


def copies(n, noise=NOISE, n_sentences=None):
    """Yield n copies of the training text, each with other words changed; the first is the text itself."""
    train = dataset("chunking").train[:n_sentences]
    words = train.columns["word"]
    for k in range(n):
        rng = np.random.default_rng(k)
        changed = (rng.random(len(words)) < noise) & (k > 0)
        letters = LETTERS[rng.integers(0, len(LETTERS), len(words))].tolist()
        new = [w[:-1] + c if hit else w for w, c, hit in zip(words, letters, changed.tolist(), strict=True)]
        yield TokenColumns({**train.columns, "word": new}, train.seq_ptr, train.labels, train.label_name)


def model(**more):
    """The CRF of this chapter."""
    return CRF(**{"template": TEMPLATE, "c2": C2, **more})


@contextlib.contextmanager
def cluster(n_workers=2, profiler=False, **more):
    """A client of `n_workers` processes with one thread each, with Dask's profiler or without.

    more : of `LocalCluster`. A worker that is killed twice starts again twice (see the chapter's section 9).
    """
    import dask
    from distributed import Client, LocalCluster

    rules = {"distributed.worker.profile.enabled": profiler, "distributed.deploy.lost-worker-timeout": "1h"}
    more |= {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": None}
    with dask.config.set(rules), LocalCluster(**more, silence_logs=50) as local, Client(local) as client:
        yield client


def cpu_seconds():
    """User and system seconds of this process and all below it, so far."""
    import psutil

    me, total = psutil.Process(), 0.0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def loopback_bytes():
    """Bytes that this machine has sent to itself, so far; nan where the system does not tell."""
    import psutil

    found = [n for name, n in psutil.net_io_counters(pernic=True).items() if name.startswith("lo")]
    return found[0].bytes_sent if found else float("nan")


def spent(run, *args, **options):
    """(what the call returns, CPU seconds of this process and all below it, bytes to itself)."""
    cpu, sent = cpu_seconds(), loopback_bytes()
    found = run(*args, **options)
    return found, cpu_seconds() - cpu, loopback_bytes() - sent


def hash_of(w):
    return hashlib.sha256(w.tobytes()).hexdigest()[:16]


# ---- bytes with a penalty


def counting(one):
    """The engine, which counts in n_totals how often all shards are asked."""
    total, one.n_totals = one.total, 0

    def counted(*arguments, **settings):
        one.n_totals += 1
        return total(*arguments, **settings)

    one.total = counted
    return one


def support_row(c1):
    """Bytes an evaluation of a whole training with an L1 penalty, and of one on the support at its end."""
    with tempfile.TemporaryDirectory() as folder, cluster() as client:
        shards, there = write_shards(copies(2), folder, model()), counting(engine_of(client))
        settings = check_settings(model(c1=c1, c2=0.0, algorithm="auto"))
        w0 = np.zeros(shards.features.n_features)
        result, _, sent = spent(train, shards, there, settings, w0, None, None, {"group": None})
        asked, active, all_bytes = there.n_totals, result.w != 0, 2 * 8 * len(w0) * 2
        small = ShardedObjective(shards, there, 0.0).smaller(active)
        _, (*_, sent_small) = (spent(small, result.w[active]) for _ in range(2))
        return {
            "weights": len(w0), "active": int(active.sum()), "status": result.status,
            "iterations": result.n_iter, "evaluations": asked,
            "bytes an evaluation / (2 F 8 W)": f"{sent / asked / all_bytes:.3f}",
            "bytes of one on the support / (2 F 8 W)": f"{sent_small / all_bytes:.4f}",
        }  # fmt: skip


@study("15_support.csv", frozen=("owlqn",))
def sharded_support():
    """Bytes that travel with an L1 penalty; minutes."""
    yield "15_support.csv", each(support_row, [{"c1": 1.0}]), [dataset("chunking")]


# ---- losses


@contextlib.contextmanager
def separate_cluster(n_workers=2):
    """(client, process of the scheduler, processes of the workers), each a process of its own."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "scheduler.json")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        run = [sys.executable, "-m", "dask"]
        options = ["--scheduler-file", file, "--no-dashboard"]
        scheduler = subprocess.Popen([*run, "scheduler", *options, "--port", "0"], **quiet)
        one = [*run, "worker", *options, "--nthreads", "1", "--no-nanny"]
        workers = [subprocess.Popen(one, **quiet) for _ in range(n_workers)]
        try:
            with Client(scheduler_file=file, timeout=60) as client:
                client.wait_for_workers(n_workers, timeout=60)
                yield client, scheduler, workers
        finally:
            for process in (*workers, scheduler):
                process.kill()
                process.wait()


def later(seconds, act):
    """Call act() after some seconds, in a thread."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


def loss_row(victim, run, shards, wanted, seconds, build):
    """One training in which somebody is killed at a random moment."""
    rng = np.random.default_rng([run, len(victim)])
    seconds = seconds[victim == "scheduler"]
    moment = float(rng.uniform(0.05, 0.95)) * seconds
    crf, began = model(max_iterations=ITERATIONS), time.perf_counter()
    if victim == "scheduler":
        file = os.path.join(shards.folder, f"run-{run}.crfbook")
        with separate_cluster() as (client, scheduler, _):
            engine_of(client)
            later(moment, scheduler.kill)
            began = time.perf_counter()
            with contextlib.suppress(ClusterLost):
                fit(crf, shards, client, checkpoint=file, every=EVERY)
        begun = os.path.exists(file)
        with separate_cluster() as (client, _, _):
            fit(crf, shards, client, checkpoint=file, every=EVERY)
    else:
        with cluster(1 if victim == "only worker" else 2) as client:
            engine_of(client)
            pids = list(client.run(os.getpid).values())
            began = time.perf_counter()
            later(moment, partial(os.kill, pids[int(rng.integers(len(pids)))], signal.SIGKILL))
            fit(crf, shards, client)
            begun = True
    return {
        "at s": f"{moment:.2f}", "hash": hash_of(crf.weights_), "same bits": hash_of(crf.weights_) == wanted,
        "history whole": crf.history_["iteration"].tolist() == list(range(1, ITERATIONS + 1)),
        "s more than undisturbed": f"{time.perf_counter() - began - seconds:.2f}",
        "s to build a group": f"{build:.2f}", "checkpoint there": begun,
    }  # fmt: skip


ITERATIONS, EVERY = 40, 5
VICTIMS = ("one of two workers", "only worker", "scheduler")


def undisturbed(kind, shards):
    """Seconds of a training in a cluster of that kind, in which nobody is killed."""
    with kind() as found:
        client = found[0] if kind is separate_cluster else found
        engine_of(client)
        began = time.perf_counter()
        fit(model(max_iterations=ITERATIONS), shards, client)
        return time.perf_counter() - began


@study("15_losses.csv", frozen=("lbfgs",))
def sharded_losses(runs=10):
    """SIGKILL of a worker, of the only worker, of the scheduler, at 30 random moments; ten minutes."""
    with tempfile.TemporaryDirectory() as folder:
        shards = shards_of(folder, 4, 4000)
        crf = model(max_iterations=ITERATIONS)
        wanted = hash_of(fit(crf, shards).weights_)
        began = time.perf_counter()
        CACHE.clear()
        ShardedObjective(shards, engine_of(None), C2)(np.zeros(shards.features.n_features))
        build = (time.perf_counter() - began) / 2  # two groups
        seconds = [min(undisturbed(kind, shards) for _ in range(2)) for kind in (cluster, separate_cluster)]
        options = {"shards": shards, "wanted": wanted, "seconds": seconds, "build": build}
        keys = cells(victim=VICTIMS, run=range(runs))
        yield "15_losses.csv", each(loss_row, keys, **options), [dataset("chunking")]


# ---- tagging


def tagging_row(kind, repeats=5):
    """Tokens tagged a CPU second and worker, by one process and by two workers: medians, in turn."""
    data = dataset("chunking")
    crf = model(max_iterations=30).fit(data.train[:2000])
    with tempfile.TemporaryDirectory() as folder, cluster() as client:
        files = [os.path.join(folder, f"text-{i}.{kind}") for i in range(8)]
        for path in files:
            write_text(path, data.test, kind)
        columns, n_tokens = ("word", "pos"), 8 * data.test.n_tokens
        options = {"columns": columns, "label": "found", "existing": "replace"}
        took, same = {"here": [], "there": []}, True
        for _ in range(repeats + 1):  # the first one warms up
            found = {}
            for name, who in (("here", None), ("there", client)):
                out = os.path.join(folder, name)
                rows, cpu, _ = spent(predict_files, crf, files, out, who, **options)
                took[name].append(cpu)
                found[name] = [Path(row.path).read_bytes() for row in rows]
            same = same and found["here"] == found["there"]
        here, there = (np.array(seconds[1:]) for seconds in took.values())
        peak = max(client.run(own_peak_mb).values())
        return {
            "tokens": n_tokens, "same files": same,
            "tokens a CPU s here": f"{n_tokens / np.median(here):.0f}",
            "tokens a CPU s, two workers": f"{n_tokens / np.median(there):.0f}",
            "ratio": f"{np.median(here / there):.3f}", "peak MB a worker": f"{peak:.0f}",
        }  # fmt: skip


def write_text(path, text, kind):
    """Words and tags of a text as a file of columns or of Parquet."""
    bare = TokenColumns({name: text.columns[name] for name in ("word", "pos")}, text.seq_ptr)
    if kind != "parquet":
        write_conll(path, bare)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: bare.by_sequence(name) for name in bare.columns}), path)


@study("15_tagging.csv", frozen=("lbfgs",))
def sharded_tagging():
    """Tokens tagged a CPU second, by one process and by two workers; a minute."""
    yield "15_tagging.csv", each(tagging_row, [{"kind": "conll"}, {"kind": "parquet"}]), [dataset("chunking")]


# ---- ten million tokens, and the driver's memory


def large_row(n_copies, algorithm):
    """Training on many copies by two workers to 1e-4: iterations, seconds, memory."""
    with tempfile.TemporaryDirectory() as folder, cluster() as client:
        shards, writing, _ = spent(write_shards, copies(n_copies), folder, model())
        crf, clock = model(algorithm=algorithm, tol=1e-4), time.perf_counter()
        training, wall = spent(fit, crf, shards, client)[1], time.perf_counter() - clock
        peak = max(client.run(own_peak_mb).values())
        test = dataset("chunking").test
        f1 = chunk_report(test.labels_by_sequence(), crf.predict(test)).f1
        return {
            "tokens": shards.n_tokens, "shards": len(shards), "weights": shards.features.n_features,
            "CPU s to write": f"{writing:.0f}", "status": crf.status_, "iterations": crf.n_iter_,
            "certified gap / objective": f"{crf.history_['violation'].iloc[-1] / crf.objective_:.2e}",
            "CPU s to train": f"{training:.0f}", "wall s": f"{wall:.0f}",
            "peak MB a worker": f"{peak:.0f}",
            "peak MB of the driver": f"{own_peak_mb():.0f}", "F1": f"{100 * f1:.2f}",
        }  # fmt: skip


@study("15_large.csv", frozen=("lbfgs", "sdca"))
def sharded_large(n_copies=48):
    """Ten million tokens trained to 1e-4 by two workers; half an hour."""
    keys = cells(n_copies=[n_copies], algorithm=["auto"])
    yield "15_large.csv", each(large_row, keys), [dataset("chunking")]


def driver_row(shard_tokens):
    """A few iterations on shards of so many tokens: how many shards, the peak memory of this process."""
    with tempfile.TemporaryDirectory() as folder, cluster() as client:
        shards = write_shards(copies(10), folder, model(), client=client, shard_tokens=shard_tokens)
        fit(model(max_iterations=5), Shards(folder), client)
        return {"shards": len(shards), "peak MB of the driver": f"{own_peak_mb():.0f}"}


@study("15_driver.csv")
def sharded_driver():
    """Peak memory of the driver, with few shards and with many; minutes."""
    keys = cells(shard_tokens=(250_000, 20_000))
    yield "15_driver.csv", each(partial(in_own_process, driver_row), keys), [dataset("chunking")]


# ---- rounds of other methods

GAPS = (1e-2, 1e-3, 1e-4)  # relative, above the minimum
SENTENCES = 2240  # of the study of rounds
MOST = 150  # exchanges
EPOCHS = 6  # of the perceptron of one shard, with which all others are compared
TRAINING = None  # sentences of the study of mixing; None: all


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
        shards, there = shards_of(folder, parts), counting(Local())
        objective, reached = ShardedObjective(shards, Local(), C2), {}

        def look(w, n):
            gap = (objective(w)[0] - best) / best
            for wanted in GAPS:
                if gap <= wanted:
                    reached.setdefault(wanted, n)
            return len(reached) == len(GAPS) or n >= MOST

        if method == "CoCoA+":
            rounds = itertools.count(1)
            cocoa(shards, C2, MOST, lambda w: look(w, next(rounds)))
        else:
            rules = {"memory_limit": 1} if method == FROM_ZEROS else {}  # too little for a shard alone
            name = method.removesuffix(", from zeros")
            settings = check_settings(model(algorithm=name, tol=1e-7, max_iterations=200, **rules))
            w0 = np.zeros(shards.features.n_features)
            train(shards, there, settings, w0, lambda _, w: look(w, there.n_totals), None, {"group": None})
        CACHE.clear()
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
    CACHE.clear()
    keys = cells(method=["lbfgs"], parts=[2]) + cells(method=(FROM_ZEROS, "auto", "CoCoA+"), parts=(2, 8))
    yield "15_rounds.csv", each(rounds_row, keys, best=best), [dataset("chunking")]


# ---- the perceptron by parameter mixing


@cache
def perceptron_of_one_shard():
    """What the others are compared with."""
    with tempfile.TemporaryDirectory() as folder:
        alone = model(algorithm="perceptron", c2=None, max_iterations=EPOCHS)
        found = fit(alone, shards_of(folder, 1, TRAINING))
    CACHE.clear()
    return found


def mixing_row(method, parts, epochs):
    """F1 on the test sentences; method: "once" (each shard for itself, then one mean) or "iterative";
    beside the perceptron of one shard, EPOCHS epochs.
    """
    data, crf = dataset("chunking"), model(algorithm="perceptron", c2=None, max_iterations=epochs)
    with tempfile.TemporaryDirectory() as folder:
        shards = shards_of(folder, parts, TRAINING)
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
    CACHE.clear()
    found, gold = crf.predict(data.test), data.test.labels_by_sequence()
    reference = perceptron_of_one_shard().predict(data.test)
    test = paired_test(gold, reference, found)
    f1, alone = (100 * chunk_report(gold, labels).f1 for labels in (found, reference))
    return {"F1": f"{f1:.2f}", "less than one shard": f"{alone - f1:.2f}", "p": f"{test.p_value:.4f}"}


@study("15_mixing.csv", frozen=("perceptron",))
def sharded_mixing():
    """The perceptron by parameter mixing: what the number of shards costs in F1; minutes."""
    keys = cells(method=["log loss"], parts=[1], epochs=[0])
    keys += cells(method=["iterative"], parts=(1, 2, 8, 32), epochs=[6])
    keys += cells(method=["once"], parts=(2, 8, 32), epochs=[6])
    keys += cells(method=["iterative"], parts=(1, 8, 32), epochs=[20])
    yield "15_mixing.csv", each(mixing_row, keys), [dataset("chunking")]


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
    keys = [{"n_copies": n, "parts": n} for n in (1, 2, 4, 8, 16)]
    yield "15_growth.csv", each(growth_row, keys), [dataset("chunking")]


# ---- what a gradient costs on two workers, on one process, and on two that exchange nothing ----

IDLE = 5.0  # seconds of a cluster that is watched doing nothing


def _half(w, start, files, n, n_features):
    """CPU seconds of the value and gradient of some shards, in this process."""
    began = time.process_time()
    stretch(evaluate, (w, None), start, files, n, (n_features, "counts", 1, None))
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
        took, apart = [], {name: [] for name in alone}
        for _ in range(repeats):
            _, cpu_here, _ = spent(here, w)
            clock = time.perf_counter()
            _, cpu_there, sent = spent(there, w)
            took.append((cpu_here, cpu_there, cpu_there / cpu_here, sent, time.perf_counter() - clock))
            for name, run in alone.items():
                apart[name].append(run() / cpu_here)
        cpu_here, cpu_there, ratio, sent, wall = np.median(took, axis=0)
        _, idle, _ = spent(time.sleep, IDLE)
        CACHE.clear()
        return {
            "tokens": shards.n_tokens, "shards": len(shards), "weights": shards.features.n_features,
            "same bits": same, "CPU s here": f"{cpu_here:.3f}", "CPU s, two workers": f"{cpu_there:.3f}",
            "ratio": f"{ratio:.3f}",
            **{f"ratio, no engine, {name}": f"{np.median(found):.3f}" for name, found in apart.items()},
            "wall s, two workers": f"{wall:.3f}", "CPU s a second, idle": f"{idle / IDLE:.3f}",
            "bytes / (2 F 8 W)": f"{sent / (2 * 8 * len(w) * 2):.3f}",
        }  # fmt: skip


@study("15_gradient.csv", frozen=("lbfgs",))
def sharded_gradient():
    """CPU seconds and bytes of a gradient by two workers, beside the same shards in one process; minutes."""
    cases = (1, 0.0, False), (10, 0.0, False), (10, 0.0, True), (10, NOISE, False)
    keys = [dict(zip(("copies", "noise", "profiler"), case, strict=True)) for case in cases]
    jobs = [(key, partial(gradient_row, *key.values())) for key in keys]
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
