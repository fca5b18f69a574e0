"""Chapter 15: what two busy cores cost by themselves: a gradient by two processes that exchange nothing."""

import contextlib
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from crfbook.distributed.engine import stretch
from crfbook.distributed.objective import evaluate


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
