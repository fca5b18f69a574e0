"""Who does the work: this process, or the workers of a Dask cluster. Both run the same tasks.

    run(task, jobs)                results of task(*job), in order
    total(task, jobs, payload)     a sum of task(payload, *job) over all jobs, in one fixed tree

The tree pairs neighbours: ((p0 + p1) + (p2 + p3)) + p4. Its shape depends on the number of jobs alone, so a
sum has the same bits whoever computes which part. Tasks keep no state but caches: a worker may die at any
moment, and whoever is left computes its part again.
"""

import asyncio
import math
import os
import time
from collections import Counter, deque
from concurrent.futures import CancelledError
from threading import Event

import numpy as np

from crfbook._checks import shown, whole
from crfbook.distributed.handshake import check_workers
from crfbook.training.interrupts import listen

RETRIES = 20  # evaluations begun anew after a loss, in a row
PATIENCE = 60.0  # seconds without any worker before the cluster is given up
UNEVEN = 1.1  # shards of the busiest worker / of all workers in the mean, that a larger group may cost
POLL = 0.1  # seconds between two looks at Ctrl-C and at the cluster


class ClusterLost(RuntimeError):
    """The cluster cannot go on: its scheduler is gone, its client is closed, or no worker is left."""


def engine_of(client):
    """`Local` for None, else a `Cluster`. TypeError for anything but a client of Dask."""
    return Local() if client is None else Cluster(client)


def tree(parts, add):
    """The sum of parts, neighbours first; `add` may put it into its first argument."""
    parts, stride = list(parts), 1
    while stride < len(parts):
        for i in range(0, len(parts) - stride, 2 * stride):
            parts[i] = add(parts[i], parts[i + stride])
            parts[i + stride] = None
        stride *= 2
    return parts[0]


def added(a, b):
    """Sum of two tuples of numbers and arrays, in new arrays: what a task returned may be wanted again."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def summed(results):
    """The sum of a stretch of results in the order of `tree`, as they come: few of them exist at a time."""
    stack = []  # (leaves, sum), leaves falling powers of two
    for result in results:
        leaves = 1
        while stack and stack[-1][0] == leaves:
            before = stack.pop()[1]
            result = tuple(_into(a, b) for a, b in zip(before, result, strict=True))
            leaves *= 2
        stack.append((leaves, result))
    total = stack.pop()[1]
    while stack:
        total = tuple(_into(a, b) for a, b in zip(stack.pop()[1], total, strict=True))
    return total


def _into(a, b):
    """a + b, in the place of a where it is an array (never one that somebody else holds)."""
    return np.add(a, b, out=a) if isinstance(a, np.ndarray) and a.ndim else a + b


class Local:
    """This process: the reference for the bits of every result."""

    n_workers, client = 1, None

    def run(self, task, jobs):
        for job in jobs:
            listen()
            yield task(*job)

    def total(self, task, jobs, payload):
        def results():
            for job in jobs:
                listen()
                yield task(payload, *job)

        return summed(results())


class Cluster:
    """The workers of a client. The handshake is made at once: see handshake.py.

    n_workers : threads of all workers at the beginning.
    """

    def __init__(self, client):
        if not (hasattr(client, "submit") and hasattr(client, "scheduler_info")):
            raise TypeError(f"client: expected None or a dask.distributed.Client, got {shown(client)}")
        if client.asynchronous:
            raise TypeError("client: expected one that waits for its results, got one with asynchronous=True")
        self.client = client
        self._alive()
        check_workers(client, self._workers())
        threads = [info["nthreads"] for info in self._info().values()]
        self.n_workers = max(1, sum(threads))
        self._homes = {}  # number of a job -> worker

    # ---- jobs one by one

    def run(self, task, jobs):
        """At most two jobs a worker are under way at a time."""
        jobs, waiting = iter(jobs), deque()
        try:
            while True:
                while len(waiting) < 2 * self.n_workers and (job := next(jobs, None)) is not None:
                    waiting.append((job, self._submit(task, job)))
                if not waiting:
                    return
                job, future = waiting[0]
                result = self._kept_at(
                    lambda retry, f=future, j=job: self._result(self._submit(task, j) if retry else f)
                )
                waiting.popleft()
                yield result
        finally:
            for _, future in waiting:
                future.cancel()

    def _submit(self, task, job):
        return self.client.submit(task, *job, pure=False)

    # ---- sums

    def total(self, task, jobs, payload):
        return self._kept_at(lambda retry: self._total(task, jobs, payload))

    def _total(self, task, jobs, payload):
        """The payload goes to one worker, the others have it from there and from each other. Dask would wait
        for ever for one that was sent to a dying worker: after any loss all is begun anew.
        """
        workers = {*self._workers()}
        homes = self._assign(len(jobs))
        sending = self.client.scatter(payload, direct=True, hash=False, asynchronous=True)
        sent = self._outcome(sending, workers)

        def submit(home, *job):
            return self.client.submit(*job, pure=False, workers=[home], allow_other_workers=True), home

        def add(a, b):  # where the last of its parts is: with neighbours together few sums travel
            return submit(b[1], added, a[0], b[0])

        parts = [submit(home, task, sent, *job) for job, home in zip(jobs, homes, strict=True)]
        return self._result(tree(parts, add)[0], workers)

    def _assign(self, n_jobs):
        """The worker of each job. It keeps the one that it had: what that has built lies in its cache."""
        workers = self._workers()
        load = Counter({worker: 0 for worker in workers})
        for i in range(n_jobs):
            if self._homes.get(i) in load:
                load[self._homes[i]] += 1
            else:
                self._homes.pop(i, None)
        if not self._homes:  # neighbours together: their sum need not travel
            self._homes = {i: workers[i * len(workers) // n_jobs] for i in range(n_jobs)}
            return [self._homes[i] for i in range(n_jobs)]
        for i in range(n_jobs):
            if i not in self._homes:
                self._homes[i] = min(workers, key=load.__getitem__)
                load[self._homes[i]] += 1
        while max(load.values()) - min(load.values()) > 1:
            most, least = max(workers, key=load.__getitem__), min(workers, key=load.__getitem__)
            moved = max(i for i in range(n_jobs) if self._homes[i] == most)
            self._homes[moved] = least
            load[most] -= 1
            load[least] += 1
        return [self._homes[i] for i in range(n_jobs)]

    # ---- losses

    def _kept_at(self, attempt):
        """attempt(retry), again after a worker was lost with something that only it had."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError, FuturesCancelledError
        from distributed.comm import CommClosedError

        lost = CommClosedError, FutureCancelledError, FuturesCancelledError, KilledWorker, TimeoutError
        lost += (CancelledError,)
        for n in range(RETRIES):
            try:
                return attempt(n > 0)
            except lost as error:
                last = error
                self._alive()
                self._workers()
        raise ClusterLost(f"workers were lost {RETRIES} times in a row, the last time: {last}") from last

    def _result(self, future, workers=frozenset()):
        """What it holds, once it is there. TimeoutError as of `_outcome`."""
        try:
            return self._outcome(self.client.gather(future, direct=True, asynchronous=True), workers)
        except BaseException:
            future.cancel()
            raise

    def _outcome(self, coroutine, workers=frozenset()):
        """What a coroutine of the client returns; hears Ctrl-C, and a scheduler that is gone. TimeoutError
        once one of these workers is, whatever Dask says of it.
        """
        doing = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
        there, began = Event(), time.monotonic()
        doing.add_done_callback(lambda _: there.set())
        try:
            while not there.wait(POLL):
                listen()
                self._alive()
                self._all_here(workers)
                if time.monotonic() - began > PATIENCE:
                    self._workers()
                    began = time.monotonic()
            listen()
            if doing.exception():
                self._all_here(workers)
            return doing.result()
        except BaseException:
            doing.cancel()
            raise

    def _all_here(self, workers):
        if workers and not workers <= {*self._workers()}:
            raise TimeoutError("a worker left the cluster")

    def _alive(self):
        if self.client.status not in ("running", "newly-created"):
            raise ClusterLost(f"client: expected one with a scheduler, got one that is {self.client.status}")

    def _info(self):
        return self.client.scheduler_info(n_workers=-1)["workers"]

    def _workers(self):
        """Addresses of the workers, once there is one; ClusterLost after PATIENCE seconds without."""
        until = time.monotonic() + PATIENCE
        while True:
            self._alive()
            try:
                workers = sorted(self._info())
            except (OSError, TimeoutError) as error:
                raise ClusterLost(f"client: its scheduler does not answer ({error})") from None
            if workers:
                return workers
            if time.monotonic() > until:
                raise ClusterLost(f"client: expected at least one worker, got none for {PATIENCE:g} s")
            listen()
            time.sleep(POLL)


def group_size(n_shards, n_workers, group=None):
    """`group`, which must be a power of two. Of None the largest 2^k for which groups of 2^k neighbours can
    be dealt out evenly: the worker with the most shards has at most a tenth more than its share.
    """
    if group is not None:
        if whole("group", group, 1) & (int(group) - 1):
            raise ValueError(f"group: expected a power of two, got {shown(group)}")
        return int(group)

    def most(size):
        return min(n_shards, math.ceil(math.ceil(n_shards / size) / n_workers) * size)

    sizes = [1]
    while 2 * sizes[-1] <= n_shards:
        sizes.append(2 * sizes[-1])
    fair = max(most(1), UNEVEN * n_shards / n_workers)
    return max(size for size in sizes if most(size) <= fair)


def memory_share():
    """Bytes that a process may keep: half of what Dask gives this worker, or of the machine's memory."""
    try:
        from distributed import get_worker

        limit = get_worker().memory_manager.memory_limit
    except (ImportError, ValueError):
        limit = None
    if not limit:
        try:
            limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError):
            limit = 8 << 30
    return limit // 2
