"""The only place with threads: independent tasks on compiled code that holds no GIL.

The data alone decide what a task is, and results are added in a fixed order. So a result has the same bits
for any number of threads. BLAS is held to one thread meanwhile. Its own threads would compete with ours for
the cores, and its sums would depend on their number.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, local

import scipy.linalg.cython_blas  # noqa: F401  (loads the BLAS that compiled np.dot calls, so that it is found)
from threadpoolctl import ThreadpoolController

from crfbook._checks import is_number, shown
from crfbook.training.interrupts import deliver_signals, held_back


@lru_cache(maxsize=1)
def _controller():
    return ThreadpoolController()  # searching the loaded libraries takes milliseconds; once is enough


class _Limit:
    """How many threads are inside `one_blas_thread`, and the setting to be restored."""

    lock, inside, before = Lock(), 0, ()
    mine = local()  # .depth: how often this thread is inside; .before: its own setting, for BLAS on OpenMP


def _libraries(per_thread):
    """BLAS libraries whose number of threads is a setting of each thread (OpenMP), or else of the process."""
    return [
        lib
        for lib in _controller().lib_controllers
        if lib.user_api == "blas" and (getattr(lib, "threading_layer", "") == "openmp") == per_thread
    ]


def _set_threads(libraries, numbers):
    for lib, number in zip(libraries, numbers, strict=True):
        # From its version 3.8 on, threadpoolctl ignores all threads but the one that came first; here the
        # lock decides.
        release = getattr(lib, "clear_controlling_thread", lambda force: None)
        release(force=True)
        lib.set_num_threads(number)
        release(force=True)


@contextmanager
def one_blas_thread():
    """Context manager: BLAS runs on one thread inside, and signals wait for `deliver_signals` or for the end.

    Most BLAS libraries have one setting for the process. Several threads may be inside at once: the first one
    sets it, the last one restores it. If each thread restored it, BLAS could use many threads while others
    are inside, or keep one for good. So could a signal handler that raises in between: see interrupts.py.
    """
    with held_back():
        _enter()
        try:
            yield
        finally:
            _leave()


def _enter():
    mine = _Limit.mine
    with _Limit.lock:
        if _Limit.inside == 0:
            shared = _libraries(False)
            _Limit.before = [lib.num_threads for lib in shared]
            _set_threads(shared, [1] * len(shared))
        _Limit.inside += 1
        mine.depth = getattr(mine, "depth", 0) + 1
    if mine.depth == 1:
        own = _libraries(True)
        mine.before = [lib.num_threads for lib in own]
        _set_threads(own, [1] * len(own))


def _leave():
    mine = _Limit.mine
    with _Limit.lock:
        _Limit.inside -= 1
        mine.depth -= 1
        if _Limit.inside == 0:
            _set_threads(_libraries(False), _Limit.before)
    if mine.depth == 0:
        _set_threads(_libraries(True), mine.before)


def _after_fork():
    """A child has only the thread that forked. The others are not inside any more, and hold no lock."""
    before, _Limit.inside, _Limit.lock = _Limit.inside, getattr(_Limit.mine, "depth", 0), Lock()
    if before and not _Limit.inside:
        _set_threads(_libraries(False), _Limit.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def resolve_threads(n_threads, name="n_threads"):
    """Number of threads that `n_threads` (scikit-learn's n_jobs) means: None: 1, -1: all cores, -2: one less.

    name : of the argument, for messages. Raises ValueError for 0 and for what is not an integer.
    """
    if n_threads is None:
        return 1
    if not (is_number(n_threads) and hasattr(n_threads, "__index__")) or n_threads == 0:
        raise ValueError(
            f"{name}: expected an integer >= 1, or a negative one to count from all cores (-1), "
            f"got {shown(n_threads)}"
        )
    n_threads = int(n_threads)
    return n_threads if n_threads > 0 else max(1, (os.cpu_count() or 1) + 1 + n_threads)


def run_tasks(task, n_tasks, n_threads=1):
    """[task(0), ..., task(n_tasks - 1)], computed on up to `n_threads` threads; the first error is raised.

    The pool lives for this call only (0.1 ms), so that nothing is left over to be forked or closed.
    """
    n_threads = min(resolve_threads(n_threads), n_tasks)
    with one_blas_thread():
        if n_threads <= 1:
            return [_after_signals(task(i)) for i in range(n_tasks)]

        def limited(i):
            with one_blas_thread():  # for BLAS whose setting is each thread's own
                return task(i)

        with ThreadPoolExecutor(n_threads) as pool:
            return [_after_signals(result) for result in pool.map(limited, range(n_tasks))]


def _after_signals(result):
    """`result`, unless Ctrl-C was pressed meanwhile."""
    deliver_signals()
    return result
