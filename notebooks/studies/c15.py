"""Chapter 15: training and tagging on a Dask cluster: what it costs, what a loss costs, how models grow.

Chunking, CoNLL-2000. Larger texts are copies of it, in each of which every tenth word (`NOISE`) ends in
another letter, so that weights grow as they do with new text. Two workers share the two cores of a machine:
CPU seconds and bytes count here, wall seconds say nothing of a real cluster.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np

from crfbook import CRF, TokenColumns, write_conll
from crfbook.distributed import ClusterLost, ShardedObjective, Shards, fit, predict_files, write_shards
from crfbook.distributed.engine import engine_of
from crfbook.distributed.fitting import train
from crfbook.distributed.objective import KEPT
from crfbook.evaluation import chunk_report
from crfbook.models.parameters import check_settings

from .harness import in_own_process, own_peak_mb, print_json, study
from .records import each
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
def cluster(n_workers=2, profiler=False):
    """A client of `n_workers` processes with one thread each, with Dask's profiler or without.
    A worker that is killed twice starts again twice (see the chapter's section 9).
    """
    import dask
    from distributed import Client, LocalCluster

    rules = {"distributed.worker.profile.enabled": profiler, "distributed.deploy.lost-worker-timeout": "1h"}
    size = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": None}
    with dask.config.set(rules), LocalCluster(**size, silence_logs=50) as local, Client(local) as client:
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
        w0, began = np.zeros(shards.features.n_features), loopback_bytes()
        result = train(shards, there, settings, w0, None, None, {"group": None})
        sent, asked = loopback_bytes() - began, there.n_totals
        active, all_bytes = result.w != 0, 2 * 8 * len(w0) * 2
        small = ShardedObjective(shards, there, 0.0).smaller(active)
        small(result.w[active])
        before = loopback_bytes()
        small(result.w[active])
        return {
            "weights": len(w0), "active": int(active.sum()), "status": result.status,
            "iterations": result.n_iter, "evaluations": asked,
            "bytes an evaluation / (2 F 8 W)": f"{sent / asked / all_bytes:.3f}",
            "bytes of one on the support / (2 F 8 W)": f"{(loopback_bytes() - before) / all_bytes:.4f}",
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
        train = dataset("chunking").train
        n = min(4000, len(train))
        shards = write_shards([train[i * n // 4 : (i + 1) * n // 4] for i in range(4)], folder, model())
        crf = model(max_iterations=ITERATIONS)
        wanted = hash_of(fit(crf, shards).weights_)
        began = time.perf_counter()
        KEPT.clear()
        ShardedObjective(shards, engine_of(None), C2)(np.zeros(shards.features.n_features))
        build = (time.perf_counter() - began) / 2  # two groups
        seconds = [min(undisturbed(kind, shards) for _ in range(2)) for kind in (cluster, separate_cluster)]
        options = {"shards": shards, "wanted": wanted, "seconds": seconds, "build": build}
        cells = [{"victim": victim, "run": run} for victim in VICTIMS for run in range(runs)]
        yield "15_losses.csv", each(loss_row, cells, **options), [dataset("chunking")]


# ---- tagging


def tagging_row(kind, repeats=5):
    """Tokens tagged a CPU second and worker, by one process and by two workers: medians, in turn."""
    data = dataset("chunking")
    crf = model(max_iterations=30).fit(data.train[:2000])
    with tempfile.TemporaryDirectory() as folder, cluster() as client:
        files = []
        for i in range(8):
            path = os.path.join(folder, f"text-{i}.{kind}")
            write_text(path, data.test, kind)
            files.append(path)
        columns, n_tokens = ("word", "pos"), 8 * data.test.n_tokens
        spent, same = {"here": [], "there": []}, True
        for r in range(repeats + 1):
            found = {}
            for name, who in (("here", None), ("there", client)):
                cpu, wall = cpu_seconds(), time.perf_counter()
                options = {"columns": columns, "label": "found", "existing": "replace"}
                rows = predict_files(crf, files, os.path.join(folder, name), who, **options)
                if r:
                    spent[name].append((cpu_seconds() - cpu, time.perf_counter() - wall))
                found[name] = [Path(row.path).read_bytes() for row in rows]
            same = same and found["here"] == found["there"]
        rate = {name: n_tokens / np.median([c for c, _ in pairs]) for name, pairs in spent.items()}
        ratios = [a[0] / b[0] for a, b in zip(spent["here"], spent["there"], strict=True)]
        peak = max(client.run(own_peak_mb).values())
        return {
            "tokens": n_tokens, "same files": same, "tokens a CPU s here": f"{rate['here']:.0f}",
            "tokens a CPU s, two workers": f"{rate['there']:.0f}", "ratio": f"{np.median(ratios):.3f}",
            "peak MB a worker": f"{peak:.0f}",
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
        clock, cpu = time.perf_counter(), cpu_seconds()
        shards = write_shards(copies(n_copies), folder, model())
        written = time.perf_counter() - clock, cpu_seconds() - cpu
        crf = model(algorithm=algorithm, tol=1e-4)
        clock, cpu = time.perf_counter(), cpu_seconds()
        fit(crf, shards, client)
        spent = time.perf_counter() - clock, cpu_seconds() - cpu
        peak = max(client.run(own_peak_mb).values())
        test = dataset("chunking").test
        f1 = chunk_report(test.labels_by_sequence(), crf.predict(test)).f1
        return {
            "tokens": shards.n_tokens, "shards": len(shards), "weights": shards.features.n_features,
            "CPU s to write": f"{written[1]:.0f}", "status": crf.status_, "iterations": crf.n_iter_,
            "certified gap / objective": f"{crf.history_['violation'].iloc[-1] / crf.objective_:.2e}",
            "CPU s to train": f"{spent[1]:.0f}", "wall s": f"{spent[0]:.0f}",
            "peak MB a worker": f"{peak:.0f}",
            "peak MB of the driver": f"{own_peak_mb():.0f}", "F1": f"{100 * f1:.2f}",
        }  # fmt: skip


@study("15_large.csv", frozen=("lbfgs", "sdca"))
def sharded_large(n_copies=48):
    """Ten million tokens trained to 1e-4 by two workers; half an hour."""
    cells = [{"n_copies": n_copies, "algorithm": "auto"}]
    yield "15_large.csv", each(large_row, cells), [dataset("chunking")]


def driver_row(shard_tokens):
    """Peak memory of the process that calls `fit`, in a process of its own."""
    found = in_own_process("studies.c15", str(shard_tokens))
    return {"shards": found["shards"], "peak MB of the driver": f"{found['peak_mb']:.0f}"}


def train_alone(shard_tokens):
    """A few iterations on shards of so many tokens; prints the peak memory of this process."""
    with tempfile.TemporaryDirectory() as folder:
        with cluster() as client:
            shards = write_shards(copies(10), folder, model(), client=client, shard_tokens=shard_tokens)
            fit(model(max_iterations=5), Shards(folder), client)
        print_json({"shards": len(shards), "peak_mb": own_peak_mb()})


@study("15_driver.csv")
def sharded_driver():
    """Peak memory of the driver, with few shards and with many; minutes."""
    cells = [{"shard_tokens": n} for n in (250_000, 20_000)]
    yield "15_driver.csv", each(driver_row, cells), [dataset("chunking")]


if __name__ == "__main__":
    train_alone(int(sys.argv[1]))
