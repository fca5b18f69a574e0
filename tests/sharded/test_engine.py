"""Clusters that lose workers, schedulers and clients."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.sharded import assert_same_bits, names, sentences, some_shards, trained

import crfbook.distributed.engine as engine
import crfbook.distributed.writing as writing
from crfbook import CRF
from crfbook.distributed import ClusterLost, ShardedObjective, fit, write_shards
from crfbook.distributed.engine import Cluster, Local, engine_of, versions

RULES = {"algorithm": "lbfgs", "c1": 0.3, "c2": 0.1}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return some_shards(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def reference(shards):
    return trained(shards, rules=RULES)


def test_engines(client):
    assert isinstance(engine_of(None), Local) and isinstance(engine_of(client), Cluster)
    for wrong in ("tcp://127.0.0.1:8786", 5, object()):
        with pytest.raises(TypeError, match="^client: expected None or a dask.distributed.Client, got "):
            engine_of(wrong)


@pytest.mark.parametrize("options", [{}, {"group": 1}, {"group": 4}, {"budget": 0}])
def test_the_same_bits_on_a_cluster(shards, options, client):
    w = np.random.default_rng(4).normal(size=shards.features.n_features)
    value, grad = ShardedObjective(shards, Local(), 0.1)(w)
    objective = ShardedObjective(shards, Cluster(client), 0.1, **options)
    again, other = objective(w)
    assert again == value and other.tobytes() == grad.tobytes()
    curved = ShardedObjective(shards, Local(), 0.1).curvature(w)
    assert objective.curvature(w).tobytes() == curved.tobytes()


def test_clients_that_do_not_wait_are_refused(client, monkeypatch):
    monkeypatch.setattr(type(client), "asynchronous", True)
    with pytest.raises(
        TypeError, match="^client: expected one that waits for its results, got one with asynch"
    ):
        engine_of(client)


def test_results_come_in_order_and_few_jobs_are_under_way(client):
    taken = []

    def jobs():
        for i in range(20):
            taken.append(i)
            yield i, 2

    for i, found in enumerate(Cluster(client).run(pow, jobs())):
        assert found == i**2 and len(taken) <= i + 5


def test_an_error_leaves_no_job_behind(client, monkeypatch):
    submitted, submit = [], client.submit
    monkeypatch.setattr(client, "submit", lambda *a, **o: submitted.append(submit(*a, **o)) or submitted[-1])
    with pytest.raises(ZeroDivisionError):
        list(Cluster(client).run(_quotient, [(0, 0), (0.5, 1), (0.6, 1)]))
    assert len(submitted) == 3 and all(future.cancelled() for future in submitted[1:])


def _quotient(seconds, divisor):
    if divisor:
        time.sleep(seconds)
    return 1 // divisor


def test_jobs_stay_where_they_are_and_neighbours_together(client):
    cluster = Cluster(client)
    first = cluster._assign(8)
    a, b = sorted(cluster._info())
    assert first == [a] * 4 + [b] * 4 == cluster._assign(8)


@pytest.mark.parametrize("n_shards", [1, 5, 8])
def test_jobs_of_a_lost_worker_go_to_the_others(n_shards, client, monkeypatch):
    cluster, workers = Cluster(client), ["a", "b", "c"]
    monkeypatch.setattr(cluster, "_workers", lambda: workers)
    before = cluster._assign(n_shards)
    workers.remove("b")
    after = cluster._assign(n_shards)
    assert "b" not in after and abs(after.count("a") - after.count("c")) <= 1
    kept = sum(x == y for x, y in zip(before, after, strict=True))
    assert kept >= n_shards - before.count("b") - 1
    workers.append("d")
    assert max(map(cluster._assign(n_shards).count, workers)) <= -(-n_shards // 3)


def test_a_worker_that_joins_gets_its_share_and_nothing_else_moves(client, monkeypatch):
    cluster, workers = Cluster(client), ["a", "b"]
    monkeypatch.setattr(cluster, "_workers", lambda: workers)
    before = cluster._assign(12)
    workers.append("c")
    moved = [new for old, new in zip(before, cluster._assign(12), strict=True) if old != new]
    assert before == ["a"] * 6 + ["b"] * 6 and moved == ["c"] * 4


@pytest.mark.parametrize("group, tasks, crossed", [(None, 2 + 2 + 4, 2), (2, 6 + 7, 2), (1, 10 + 9, 2)])
def test_few_sums_travel(group, tasks, crossed, client, monkeypatch):
    """Ten shards, five a worker: a task a stretch, one a branch that leaves its stretch, one an addition."""
    cluster, homes, crossings = Cluster(client), {}, []
    submit = client.submit

    def noted(task, *arguments, workers, **options):
        assert options.get("allow_other_workers", arguments[1] is engine.same)
        future = submit(task, *arguments, workers=workers, **options)
        homes[future.key] = workers[0]
        crossings.extend(a for a in arguments if homes.get(getattr(a, "key", None), workers[0]) != workers[0])
        return future

    monkeypatch.setattr(client, "submit", noted)
    total, ones = cluster.total(_number, list(range(10)), np.ones(3), group=group)
    assert total == 45 and ones.tolist() == [10.0, 10.0]
    assert len(homes) == tasks + 1 and len(crossings) == crossed  # and one that copies the weights


def _number(payload, number):
    return float(payload[0]) * number, np.ones(2)


@pytest.mark.parametrize("error", [KeyError("tcp://gone"), None])
def test_a_worker_that_leaves_ends_the_wait_for_what_it_had(error, client, monkeypatch):
    """Also where Dask raises something else for it, or nothing at all."""
    cluster = Cluster(client)
    here = {*cluster._workers()}
    monkeypatch.setattr(cluster, "_workers", lambda: sorted(here)[1:])

    async def answer():
        if error is None:
            await asyncio.sleep(60)
        raise error

    with pytest.raises(TimeoutError, match="^a worker left the cluster$"):
        cluster._outcome(answer(), here)


def test_a_worker_killed_at_any_moment_costs_no_bit(shards, reference, client, kill):
    timers = []

    def callback(step, _):
        if step.iteration in (2, 9):
            timers.append(threading.Timer(0.02 * step.iteration, kill, (len(timers),)))
            timers[-1].start()

    found = trained(shards, client, rules=RULES, callback=callback, group=2)
    for timer in timers:
        timer.join()
    assert_same_bits(found, reference)
    assert len(timers) == 2
    client.wait_for_workers(2, timeout=60)


def test_all_workers_killed_at_once(shards, reference, client, kill):
    """What was scattered is gone, too: it is scattered again."""

    def callback(step, _):
        if step.iteration == 4:
            kill(0)
            kill(1)

    assert_same_bits(trained(shards, client, rules=RULES, callback=callback), reference)
    client.wait_for_workers(2, timeout=60)


def test_shards_are_written_in_spite_of_a_killed_worker(client, kill, monkeypatch, tmp_path):
    X, y = names(sentences())
    texts = [(X[i : i + 5], y[i : i + 5]) for i in range(0, 60, 5)]
    wanted = write_shards(texts, tmp_path / "here", CRF())
    killed = kill.on_the_way(monkeypatch, writing)
    found = write_shards(texts, tmp_path / "there", CRF(), client=client)
    assert killed
    assert found.digest == wanted.digest
    client.wait_for_workers(2, timeout=60)


def test_ctrl_c_is_heard_while_workers_work(shards, client):
    timer = []

    def callback(step, _):
        if step.iteration == 1:
            timer.append(threading.Timer(0.01, signal.raise_signal, (signal.SIGINT,)))
            timer[0].start()

    with pytest.warns(UserWarning, match="training was interrupted after"):
        try:
            crf = trained(shards, client, rules={"c2": 1e-6, "tol": 1e-12}, callback=callback)
            timer[0].join()
        except KeyboardInterrupt:
            pytest.fail("it came after training, or went through")
    assert crf.status_ == "interrupted" and np.isfinite(crf.objective_)


def test_a_closed_client(shards, cluster):
    from distributed import Client

    with Client(cluster) as client:
        pass
    for attempt in (
        lambda: fit(CRF(), shards, client),
        lambda: write_shards([names(sentences())], shards.folder, CRF(), client=client),
    ):
        with pytest.raises(
            ClusterLost, match="^client: expected one with a scheduler, got one that is closed$"
        ):
            attempt()


def test_a_client_that_is_closed_on_the_way(shards, reference, cluster, tmp_path):
    from distributed import Client

    client = Client(cluster)

    def callback(step, _):
        if step.iteration == 3:
            client.close()

    with pytest.raises(ClusterLost, match="^client: expected one with a scheduler, got one that is clos"):
        trained(shards, client, rules=RULES, callback=callback, checkpoint=tmp_path / "c", every=1)
    assert_same_bits(trained(shards, rules=RULES, checkpoint=tmp_path / "c"), reference)


def test_a_cluster_without_workers(shards, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(engine, "PATIENCE", 0.3)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        distributed.Client(empty) as client,
        pytest.raises(ClusterLost, match=r"^client: expected at least one worker, got none for 0\.3 s$"),
    ):
        fit(CRF(), shards, client)


def test_a_scheduler_that_does_not_answer(client, monkeypatch):
    """Its question is given up as soon as the client knows."""
    one, waited = Cluster(client), []

    async def identity(n_workers):
        client.status = "connecting"
        await asyncio.sleep(60)
        waited.append(60)

    monkeypatch.setattr(client, "status", client.status)
    monkeypatch.setattr(client, "scheduler", SimpleNamespace(identity=identity))
    with pytest.raises(ClusterLost, match="^client: expected one with a scheduler"):
        one._workers()
    assert not waited


def started(*command):
    """A process, once it has said where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + command[0], *command[1:]],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process


@pytest.mark.parametrize("when", ["handshake", "iteration 5"])
def test_a_killed_scheduler_then_another_cluster(when, shards, reference, client, monkeypatch, tmp_path):
    from distributed import Client

    path = tmp_path / "scheduler.json"
    scheduler = started("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                        "--scheduler-file", str(path))  # fmt: skip
    for _ in range(1200):
        if path.exists() and path.stat().st_size:
            break
        time.sleep(0.1)
    assert path.exists()
    worker = started("dask_worker", "--scheduler-file", str(path), "--nthreads", "1", "--no-dashboard",
                     "--no-nanny", "--death-timeout", "60")  # fmt: skip
    other = Client(scheduler_file=str(path), timeout=30)

    def callback(step, _):
        if step.iteration == 5:
            scheduler.kill()

    try:
        other.wait_for_workers(1, timeout=60)
        if when == "handshake":
            later = threading.Timer(0.5, scheduler.kill)
            monkeypatch.setattr(engine, "check_workers", lambda *_: [later.start(), other.run(time.sleep, 5)])
        with pytest.raises(ClusterLost, match="^client: "):
            trained(shards, other, rules=RULES, callback=callback, checkpoint=tmp_path / "c", every=1)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
            process.stderr.close()
        other.close(timeout=30)
    monkeypatch.undo()
    assert_same_bits(trained(shards, client, rules=RULES, checkpoint=tmp_path / "c"), reference)


def test_an_error_in_a_task_is_raised_as_it_is(client):
    with pytest.raises(ZeroDivisionError):
        list(Cluster(client).run(divmod, [(1, 1), (1, 0), (2, 1)]))
    assert list(Cluster(client).run(divmod, [(7, 2)])) == [(3, 1)]


def test_memory_is_kept_by_workers_alone(monkeypatch):
    """What the caller's process does with its memory is not ours to change."""
    calls = []
    library = SimpleNamespace(mallopt=lambda *pair: calls.append(pair))
    monkeypatch.setattr(engine.ctypes, "CDLL", lambda _: library)
    engine.keep_freed.__wrapped__()
    assert calls == []
    monkeypatch.setattr(engine, "_worker", object)
    engine.keep_freed.__wrapped__()
    assert calls == [(-1, 256 << 20), (-3, 32 << 20)]
    del library.mallopt  # another C library
    engine.keep_freed.__wrapped__()


def test_a_task_that_is_too_slow_is_no_lost_worker(client):
    """A file that does not answer ends the call with its own sentence, at once."""

    def slow():
        raise TimeoutError("the disk does not answer")

    with pytest.raises(OSError, match="^the disk does not answer$") as caught:
        list(Cluster(client).run(slow, [()]))
    assert not isinstance(caught.value, ClusterLost | TimeoutError)


def test_every_task_meets_its_worker(client, monkeypatch):
    """Not those of training alone: a worker may have joined after the handshake."""
    here = Cluster(client)
    monkeypatch.setattr(engine, "versions", lambda: {**versions(), "numba": "0.1"})
    with pytest.raises(RuntimeError, match="^a worker that joined later is unlike the others: numba "):
        list(here.run(abs, [(-1,)]))


def test_a_client_that_is_closed_hides_no_error():
    """`cancel` of its futures fails; what is raised is what happened before."""

    class Closed:
        def cancel(self):
            raise RuntimeError("Client is closed. Can't send cancel-keys message.")

    def failing():
        try:
            raise ValueError("what happened")
        finally:
            engine._cancel(Closed())

    with pytest.raises(ValueError, match="^what happened$"):
        failing()
