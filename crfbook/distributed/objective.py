"""The objective of `Objective`, as a sum over shards that any worker may compute.

    value(w) = sum over shards of -log p + c2 |w|^2,    the same for the gradient

A task has the paths and hashes of some neighbouring shards. A worker reads them and builds their objectives.
It keeps these in a cache, from which the least recently used one is dropped first. There is no other state,
so any worker can do any task.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from crfbook._checks import number, whole
from crfbook.chain.objective import Objective, check_weights, l2_penalty
from crfbook.chain.packing import forecast
from crfbook.data.features import select
from crfbook.distributed.engine import SparseVector, memory_share
from crfbook.distributed.shards import ShardError, read_shard
from crfbook.training.threads import one_blas_thread


class Subset(NamedTuple):
    """The free ones of the F weights; the others are 0. It is sent with the weights."""

    bits: np.ndarray  # uint8: np.packbits of a bool (F,)
    n_features: int  # F
    digest: str


class Cache:
    """Objects that this process has built from shards: {key: (thing, lock, bytes)}, of a limited size."""

    def __init__(self):
        self.things, self.building, self.lock = OrderedDict(), {}, threading.Lock()

    def get(self, key, build, budget):
        """The thing under `key`; build() -> (thing, bytes) makes it once, in the thread that asks first.

        budget : bytes, or None: `memory_share`.
        """
        budget = memory_share() if budget is None else budget
        with self.lock:
            own = self.building.setdefault(key, threading.Lock())
        with own:
            with self.lock:
                if key in self.things:
                    self.things.move_to_end(key)
                    return self.things[key][0]
            thing, size = build()
            with self.lock:
                self.things[key] = thing, size
                while len(self.things) > 1 and sum(s for _, s in self.things.values()) > budget:
                    gone, _ = self.things.popitem(last=False)
                    self.building.pop(gone, None)
            return thing

    def clear(self):
        with self.lock:
            self.things.clear()
            self.building.clear()


CACHE = Cache()


class _Built(NamedTuple):
    objective: Objective | None  # None: the shard has no token, or none of its weights is free
    place: np.ndarray  # int64: where its weights stand among the free ones
    lock: threading.Lock  # one evaluation at a time uses its work arrays


def _build(shard, subset, n_threads):
    corpus, features, place, constraints = read_shard(*shard)
    size = 8 * len(place)
    if subset is not None:
        at_work = np.unpackbits(subset.bits, count=subset.n_features).astype(bool)
        keep = at_work[place]
        features, place = select(features, keep), (np.cumsum(at_work) - 1)[place[keep]]
    if corpus.n_tokens == 0:
        return _Built(None, place, threading.Lock()), size
    objective = Objective(corpus, features, constraints=constraints, n_threads=n_threads)
    size += forecast(corpus, features).bytes
    return _Built(objective, place, threading.Lock()), size


def evaluate(payload, shard, n_features, what, n_threads, budget):
    """(value, `SparseVector` of F) of a shard, without penalty.

    payload : (w (F,), `Subset` or None).
    shard : what `read_shard` takes.
    what : "counts" (value and gradient) or "variances" (0 and second derivatives).
    budget : bytes that may be kept; None: `memory_share`.
    """
    w, subset = payload
    key = shard, subset and subset.digest, n_threads
    built = CACHE.get(key, lambda: _build(shard, subset, n_threads), budget)
    place = built.place
    if built.objective is None:
        return 0.0, SparseVector(np.zeros(len(place)), place, n_features)
    with built.lock:
        own = w[place]
        try:
            value, part = built.objective(own) if what == "counts" else (0.0, built.objective.curvature(own))
        except ValueError as error:
            raise ShardError(f"shard {os.path.basename(shard[0])}: {error}") from None
    return value, SparseVector(part, place, n_features)


class ShardedObjective:
    """Penalised negative log-likelihood of shards; call it with weights to get (value, gradient).

    Parameters
    ----------
    shards : `Shards`.
    engine : `Local` or `Cluster`.
    c2 : float >= 0.
    n_threads : threads of one task, without a cluster.
    group : the most shards of one task; None: so many that each thread of a worker has a task.
    budget : bytes that a process may keep of what it has built; None: half of its memory.

    Value and gradient have the same bits for any engine and group (those of `Objective` over the whole text
    differ by rounding). Errors as `Objective` and `read_shard`.
    """

    def __init__(self, shards, engine, c2=0.0, *, n_threads=1, group=None, budget=None, subset=None):
        self.shards, self.engine, self.c2 = shards, engine, number("c2", c2)
        self.features = shards.features
        self.n_features = self.features.n_features
        self.settings = {"n_threads": n_threads, "group": group, "budget": budget}
        if subset is not None:
            self.n_features = int(np.unpackbits(subset.bits, count=subset.n_features).sum())
        self.subset = subset
        if group is not None:
            whole("group", group, 1)
        self.n_evaluations = 0

    def __call__(self, w):
        w = check_weights(w, self.n_features)
        self.n_evaluations += 1
        value, grad = self._total(w, "counts")
        grad = np.array(grad) if not grad.flags.writeable else grad
        with one_blas_thread():
            value += l2_penalty(self.c2, w)
        if self.c2:
            grad += 2.0 * self.c2 * w
        return float(value), grad

    def curvature(self, w):
        """Roughly the second derivatives (F,), as `Objective.curvature` gives them."""
        return self._total(check_weights(w, self.n_features), "variances")[1] + 2.0 * self.c2

    def smaller(self, keep):
        """The objective of the weights where keep (F,) is true; the others are 0 and are not sent."""
        import hashlib

        bits = np.packbits(keep)
        subset = Subset(bits, len(keep), hashlib.sha256(bits.tobytes()).hexdigest())
        return ShardedObjective(self.shards, self.engine, self.c2, **self.settings, subset=subset)

    def _total(self, w, what):
        n_threads, group, budget = self.settings.values()
        more = self.n_features, what, n_threads, budget
        return self.engine.total(evaluate, self.shards.shards, (w, self.subset), *more, group=group)
