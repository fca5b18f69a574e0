"""Who does the work: this process, or the workers of a Dask cluster. Both run the same tasks.

    run(task, jobs)                         results of task(*job), in order
    total(task, shards, payload, *more)     the sum of task(payload, shard, *more) over all shards

A result is a tuple of numbers and arrays. Sums are made in one fixed tree, which pairs neighbours:
((p0 + p1) + (p2 + p3)) + p4. Its shape depends on the number of shards alone. A worker that has a stretch of
neighbouring shards sums the branches inside it, so a sum has the same bits on any cluster and on none.
Tasks keep no state but caches: when a worker is lost, another one computes its branches again.

`spread` says who has which shards, `routed` where branches of different workers are added. Both plan on
paper. The payload goes from worker to worker, along a tree in which each one sends at most FAN copies.

A handshake asks all workers for their versions, the hash of their kernels, and the gradient of a small
problem. Where versions or kernels differ, an error is raised. Gradients may differ in their last bits on
other processors or BLAS libraries. Then results depend on which worker computes what, and a warning says so.
"""

import asyncio
import contextlib
import ctypes
import hashlib
import math
import os
import platform
import secrets
import sys
import time
import warnings
from collections import Counter, deque
from concurrent.futures import CancelledError
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from threading import Event
from typing import NamedTuple

import numpy as np

from crfbook import __version__
from crfbook._checks import shown
from crfbook._jit import _fingerprint as fingerprint
from crfbook.chain.objective import Objective
from crfbook.data.corpus import make_corpus, offsets
from crfbook.data.features import observed
from crfbook.training.interrupts import deliver_signals

PACKAGES = "numpy", "numba", "scipy", "dask", "distributed"
CLOSE = 1e-9  # relative: gradients that differ by more are wrong, not rounded


@lru_cache(maxsize=1)
def versions():
    """{name: version} of the libraries and kernels of this process."""
    found = {"python": platform.python_version(), "crfbook": __version__, "kernels": fingerprint()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


@lru_cache(maxsize=1)
def probe():
    """(hash of its bits, value) of the gradient of a small fixed problem."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, 200)
    n_tokens, n_attrs, n_labels = int(lengths.sum()), 300, 9
    attr_ptr = offsets(rng.integers(1, 6, n_tokens))
    attrs, labels = rng.integers(0, n_attrs, attr_ptr[-1]), rng.integers(0, n_labels, n_tokens)
    corpus = make_corpus(offsets(lengths), attr_ptr, attrs, labels=labels)
    objective = Objective(corpus, observed(corpus, n_labels, n_attrs), form="batched")
    value, grad = objective(0.1 * rng.standard_normal(objective.features.n_features))
    return hashlib.sha256(grad.tobytes()).hexdigest(), value


def introduce():
    """What a worker sends at the handshake: (versions, probe)."""
    return versions(), probe()


def check_workers(client, workers):
    """RuntimeError that lists the workers unlike this process; a warning where only rounding differs."""
    mine, (bits, value) = introduce()
    unlike, other_bits = [], []
    for worker, said in sorted(client.run(introduce, workers=workers, on_error="return").items()):
        if isinstance(said, OSError):  # it is lost; `checked` looks at a worker that replaces it
            continue
        if isinstance(said, BaseException):
            unlike.append(f"{worker} answers {type(said).__name__}: {said}")
            continue
        theirs, (their_bits, their_value) = said
        differs = _differences(theirs, mine, "here")
        if not abs(their_value - value) <= CLOSE * abs(value):
            differs.append(f"probe {their_value:.17g} (here {value:.17g})")
        if differs:
            unlike.append(f"{worker} has {', '.join(differs)}")
        elif their_bits != bits:
            other_bits.append(worker)
    if unlike:
        raise RuntimeError(f"client: expected workers like this process, got others: {'; '.join(unlike)}")
    if other_bits:
        warnings.warn(
            f"these workers round otherwise than this process, so the last bits of results depend on who "
            f"computes what: {', '.join(other_bits)}",
            UserWarning,
            stacklevel=4,
        )


def checked(wanted, task, *job):
    """task(*job); RuntimeError in a worker that joined after the handshake, and is unlike the others.

    wanted : `versions` of the others.
    """
    if differs := _differences(versions(), wanted, "expected"):
        raise RuntimeError(f"a worker that joined later is unlike the others: {', '.join(differs)}")
    return task(*job)


def _differences(found, wanted, why):
    """Texts of the versions that differ; `why` says what the wanted ones are."""
    return [f"{n} {found.get(n)} ({why} {v})" for n, v in wanted.items() if found.get(n) != v]


RETRIES = 20  # attempts in a row after lost workers
PATIENCE = 60.0  # seconds without any worker before the cluster is given up
POLL = 0.1  # seconds between two checks of Ctrl-C and of the client
LOOK = 1.0  # seconds between two requests for the list of workers
FAN = 3  # copies of the payload that a worker sends
SLACK = 0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8  # of a mean stretch: how far from even its ends may be
MOST = 1.6  # vectors that travel, at most, over two a worker


class ClusterLost(RuntimeError):
    """The cluster cannot go on: its scheduler is gone, its client is closed, or no worker is left."""


def engine_of(client):
    """`Local` for None, else a `Cluster`. TypeError for anything but a client of Dask."""
    return Local() if client is None else Cluster(client)


class Branch(NamedTuple):
    """A sum of the tree: of the shards from `start` on, `size` of them, or as many as there are."""

    start: int  # a multiple of size
    size: int  # a power of two
    sums: object


def joined(branches, n, add):
    """The fewest branches of a tree of n leaves for these, which lie side by side.

    Two branches that have a common parent become one. At the right end of the tree a parent may have one
    child only, and equals it.
    """
    stack = []
    for start, size, sums in branches:
        stack.append(_parent(start, size, sums, n))
        while len(stack) > 1 and stack[-2].size == stack[-1].size and stack[-1].start % (2 * stack[-1].size):
            right, left = stack.pop(), stack.pop()
            stack.append(_parent(left.start, 2 * left.size, add(left.sums, right.sums), n))
    return stack


def _parent(start, size, sums, n):
    while size < n <= start + size and start % (2 * size) == 0:
        size *= 2
    return Branch(start, size, sums)


class SparseVector(NamedTuple):
    """A sparse vector of length `size`: values (F',) at the places `place` (F',), rising."""

    values: np.ndarray
    place: np.ndarray
    size: int

    @property
    def where(self):
        return slice(None) if len(self.place) == self.size else self.place

    def whole(self):
        """The array (size,). Its zeros are +0.0: a sum has the same bits with zeros added and without."""
        if len(self.place) == self.size:
            self.values[:] += 0.0
            return self.values
        total = np.zeros(self.size)
        total[self.place] += self.values
        return total


def stretch(task, payload, start, shards, n, more):
    """The branches of neighbouring `shards` among n, the first of which is number `start`."""

    keep_freed()

    def leaves():
        for i, shard in enumerate(shards, start):
            deliver_signals()
            yield Branch(i, 1, task(payload, shard, *more))

    return [branch._replace(sums=_whole(branch.sums)) for branch in joined(leaves(), n, _into)]


def picked(branches, i):
    """One of several branches, to be sent alone. A task."""
    return [branches[i]]


def added(left, i, right, j):
    """The parent of two branches, in new arrays: results of tasks may be needed again. A task."""
    a, b = left[i], right[j]
    return [Branch(a.start, 2 * a.size, tuple(x + y for x, y in zip(a.sums, b.sums, strict=True)))]


def same(payload):
    """A copy of the payload on another worker. A task."""
    return payload


def _whole(sums):
    return tuple(x.whole() if isinstance(x, SparseVector) else x for x in sums)


def _into(left, right):
    """left + right, in the arrays of left, so that few arrays exist at a time."""
    return tuple(map(_one_into, _whole(left), right))


def _one_into(a, b):
    if isinstance(b, SparseVector):
        a[b.where] += b.values
        return a
    return np.add(a, b, out=a) if isinstance(a, np.ndarray) and a.ndim else a + b


# ---- plans


def branches(start, stop, n):
    """What `stretch` returns for the shards start..stop-1 of n: branches without sums."""
    found = []
    while start < stop:
        size = start & -start or 1 << (n - 1).bit_length()
        while start + size > stop < n:
            size //= 2
        found.append(Branch(start, size, None))
        start += size
    return found


def spread(n, workers):
    """The worker of each of n shards. Each has a stretch of neighbours.

    Even stretches end where many branches meet, which then travel one by one. So a stretch may end SLACK
    mean stretches earlier or later, at the number that the highest power of two divides. The least slack is
    taken with which at most MOST vectors of 2 a worker travel, copies of the weights included.
    """
    workers = workers[:n]
    for slack in SLACK:
        cuts = [*(_round(n * i / len(workers), slack * n / len(workers)) for i in range(len(workers))), n]
        stretches = list(zip(cuts, cuts[1:], workers, strict=False))
        if travelling(stretches, n) <= 2 * MOST * len(workers):
            break
    return [worker for start, stop, worker in stretches for _ in range(start, stop)]


def _round(x, slack):
    """The whole number within x -+ slack that the highest power of two divides; without any the next to x."""
    low, high = math.ceil(x - slack) - 1, math.floor(x + slack)
    if low < 0 or low >= high:
        return round(x)
    shift = (low ^ high).bit_length() - 1
    return high >> shift << shift


def routed(stretches, n):
    """(homes, pairs) of the sum above stretches (start, stop, worker), by which the fewest vectors travel.

    Values are numbered: first all branches of the stretches, then the sum of each pair (a, b) of values; the
    last one is the whole. homes : worker of each value. Source: Fitch (1971), Systematic Zoology 20(4).
    """
    leaves = [(branch, home) for *ends, home in stretches for branch in branches(*ends, n)]
    best, pairs = [{home} for _, home in leaves], []  # workers at which a value costs the fewest transfers

    def add(a, b):
        pairs.append((a, b))
        best.append(best[a] & best[b] or best[a] | best[b])
        return len(best) - 1

    joined((branch._replace(sums=i) for i, (branch, _) in enumerate(leaves)), n, add)
    homes, used = [None] * len(best), Counter()
    homes[-1] = min(best[-1])
    for value, pair in zip(reversed(range(len(best))), reversed(pairs), strict=False):
        used[homes[value]] += 1
        for child in pair:
            here = homes[value] in best[child]
            homes[child] = homes[value] if here else min(best[child], key=lambda w: (used[w], w))
    return homes, pairs


def travelling(stretches, n):
    """Vectors that travel in an evaluation: weights to each worker, sums between them, the whole back."""
    homes, pairs = routed(stretches, n)
    first = len(homes) - len(pairs)
    moved = sum(homes[child] != homes[value] for value, pair in enumerate(pairs, first) for child in pair)
    return len({home for *_, home in stretches}) + moved + 1


class Local:
    """This process (client=None). A cluster returns the same bits."""

    n_workers, client = 1, None

    def run(self, task, jobs):
        for job in jobs:
            deliver_signals()
            yield task(*job)

    def total(self, task, shards, payload, *more, group=None):
        n = len(shards)
        parts = (stretch(task, payload, *part, n, more) for part, _ in cut(shards, [None] * n, group))
        (whole,) = joined((branch for part in parts for branch in part), n, _into)
        return whole.sums


class Cluster:
    """The workers of a client. The handshake is made at once: see engine.py.

    n_workers : threads of all workers at the beginning.
    """

    def __init__(self, client):
        if not (hasattr(client, "submit") and hasattr(client, "scheduler_info")):
            raise TypeError(f"client: expected None or a dask.distributed.Client, got {shown(client)}")
        if client.asynchronous:
            raise TypeError("client: expected one that waits for its results, got one with asynchronous=True")
        self.client = client
        self._alive()
        try:
            check_workers(client, self._workers())
        except (OSError, TimeoutError) as error:
            raise ClusterLost(f"client: its scheduler went during the handshake ({error})") from None
        self.n_workers = max(1, sum(info["nthreads"] for info in self._info().values()))
        self._homes = {}  # number of a shard -> worker

    # ---- jobs one by one

    def run(self, task, jobs):
        """At most two jobs a worker are under way at a time."""
        jobs, waiting = iter(jobs), deque()
        try:
            while True:
                while len(waiting) < 2 * self.n_workers and (job := next(jobs, None)) is not None:
                    waiting.append((job, self._submit(task, *job)))
                if not waiting:
                    return
                job, future = waiting[0]
                result = self._kept_at(
                    lambda retry, f=future, j=job: self._result(self._submit(task, *j) if retry else f)
                )
                waiting.popleft()
                yield result
        finally:
            for _, future in waiting:
                _cancel(future)

    def _submit(self, task, *job, **where):
        key = f"{task.__name__}-{secrets.token_hex(16)}"
        return self.client.submit(checked, versions(), task, *job, key=key, pure=False, **where)

    # ---- sums

    def total(self, task, shards, payload, *more, group=None):
        """group : the most shards of one task; None: so many that each thread has one task."""
        return self._kept_at(lambda retry: self._total(task, shards, payload, more, group))

    def _total(self, task, shards, payload, more, group):
        """One attempt at the sum of `total`.

        After the loss of a worker everything begins anew: Dask would wait for ever for a payload that was
        sent to it.
        """
        workers = {*self._workers()}
        homes = self._assign(len(shards))
        parts = list(cut(shards, homes, group, max(1, self.n_workers // len(workers))))
        sent = self._broadcast(payload, list(dict.fromkeys(homes)), workers)
        (whole,) = self._result(self._whole(task, parts, sent, len(shards), more), workers)
        return whole.sums

    def _broadcast(self, payload, homes, workers):
        """{worker: future of the payload there}: the first has it from here, others from their parents."""
        first = {"workers": homes[:1], "direct": True, "hash": False, "asynchronous": True}
        sent = {homes[0]: self._outcome(self.client.scatter(payload, **first), workers)}
        for i, home in enumerate(homes[1:]):
            sent[home] = self._submit(same, sent[homes[i // FAN]], workers=[home])
        return sent

    def _whole(self, task, parts, sent, n, more):
        """The future of the whole, as the only one of a list of branches."""

        def submit(home, *job):
            return self._submit(*job, workers=[home], allow_other_workers=True)

        stretches = [(start, start + len(some), home) for (start, some), home in parts]
        homes, pairs = routed(stretches, n)
        values = []  # (future of a list of branches, number in it, length of the list)
        for (part, home), (*ends, _) in zip(parts, stretches, strict=True):
            future, size = submit(home, stretch, task, sent[home], *part, n, more), len(branches(*ends, n))
            values += [(future, i, size) for i in range(size)]
        for value, pair in enumerate(pairs, len(values)):
            job = []
            for child in pair:
                future, i, size = values[child]
                if size > 1 and homes[child] != homes[value]:
                    future, i = submit(homes[child], picked, future, i), 0
                job += future, i
            values.append((submit(homes[value], added, *job), 0, 1))
        return values[-1][0]

    def _assign(self, n_shards):
        """The worker of each shard. A shard stays with its worker, which has it in its cache."""
        workers = self._workers()
        homes = {i: home for i, home in self._homes.items() if i < n_shards and home in workers}
        even = spread(n_shards, workers)
        homes = homes or dict(enumerate(even))
        load, shares = (Counter(dict.fromkeys(workers, 0)) for _ in range(2))
        load.update(homes.values())
        shares.update(even)
        most, taker = max(shares.values()), None
        for i in range(n_shards):  # those of a lost worker, neighbours together
            if i not in homes:
                if taker is None or load[taker] >= most:
                    taker = min(workers, key=load.__getitem__)
                homes[i] = taker
                load[taker] += 1
        while max(load.values()) - min(load.values()) > max(1, most - min(shares.values())):
            longest, least = max(workers, key=load.__getitem__), min(workers, key=load.__getitem__)
            homes[max(i for i in range(n_shards) if homes[i] == longest)] = least
            load[longest] -= 1
            load[least] += 1
        self._homes = homes
        return [homes[i] for i in range(n_shards)]

    # ---- losses

    def _kept_at(self, attempt):
        """attempt(retry), repeated after the loss of a worker that had data of the attempt."""
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
        """The result of a future, once it is there. TimeoutError as of `_outcome`."""
        try:
            return self._outcome(self.client.gather(future, direct=True, asynchronous=True), workers)
        except BaseException as error:
            own = isinstance(error, TimeoutError) and future.status == "error"
            _cancel(future)
            if own:  # of the task, for instance a slow file: no worker was lost
                raise OSError(*error.args) from error
            raise

    def _outcome(self, coroutine, workers=frozenset()):
        """What a coroutine of the client returns.

        It is interrupted by Ctrl-C, and by the loss of the scheduler. TimeoutError once one of `workers` is
        gone, whatever Dask says of it.
        """
        doing = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
        there, began = Event(), time.monotonic()
        doing.add_done_callback(lambda _: there.set())
        try:
            while not there.wait(POLL):
                deliver_signals()
                self._alive()
                if time.monotonic() - began > LOOK:
                    self._all_here(workers)
                    began = time.monotonic()
            deliver_signals()
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
        async def ask():  # `client.scheduler_info` would wait a minute for a scheduler that is gone
            return await self.client.scheduler.identity(n_workers=-1)

        return self._outcome(ask())["workers"]

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
            deliver_signals()
            time.sleep(POLL)


def cut(shards, homes, group, n_threads=1):
    """((number of the first, shards), worker) of each stretch on one worker, of at most `group` shards; None:
    one for each of its threads.
    """
    for home, run in groupby(range(len(shards)), homes.__getitem__):
        run = list(run)
        size = group or -(-len(run) // n_threads)
        for start in run[::size]:
            yield (start, shards[start : min(start + size, run[-1] + 1)]), home


def _cancel(future):
    """Cancel a future; one of a closed client is already cancelled."""
    with contextlib.suppress(Exception):
        future.cancel()


def _worker():
    """The worker of Dask that runs this task, or None."""
    get_worker = getattr(sys.modules.get("distributed"), "get_worker", None)
    if get_worker is None:
        return None
    try:
        return get_worker()
    except ValueError:
        return None


def memory_share():
    """Bytes that a process may keep: half of what Dask gives this worker, or of the machine's memory."""
    worker = _worker()
    limit = worker and worker.memory_manager.memory_limit
    if not limit:
        try:
            limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError):
            limit = 8 << 30
    return limit // 2


@cache
def keep_freed():
    """Let a worker keep up to 256 MB that it has freed, for its next arrays, if its C library is glibc.

    Dask makes a worker return freed memory at once (MALLOC_TRIM_THRESHOLD_). Each evaluation needs arrays of
    the same sizes, so the system would clear the same pages again and again.
    """
    if _worker() is None:
        return
    mallopt = None if os.name == "nt" else getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD
        mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD: the most that it takes
