"""The only place with threads: independent pieces of work on compiled code that holds no GIL.

The pieces (shards) are cut by the data alone and their results are added in a fixed order, so a result has
the same bits for any number of threads. BLAS is held to one thread meanwhile: its own threads would fight
with ours for the cores, and would make its sums depend on their number.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import scipy.linalg.cython_blas  # noqa: F401  (loads the BLAS that compiled np.dot calls, so that it is found)
from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _controller():
    return ThreadpoolController()  # searching the loaded libraries takes milliseconds; once is enough


def one_blas_thread():
    """Context manager: BLAS runs on one thread inside."""
    return _controller().limit(limits=1, user_api="blas")


def resolve_threads(n_threads):
    """Number of threads meant by `n_threads` (scikit-learn's n_jobs): None is 1, -1 all cores, -2 all but one.

    Raises ValueError for 0 and for what is not an integer.
    """
    if n_threads is None:
        return 1
    if isinstance(n_threads, bool) or not hasattr(n_threads, "__index__") or n_threads == 0:
        raise ValueError(f"n_threads: expected an integer >= 1, or a negative one to count from all cores (-1), "
                         f"got {n_threads!r}")
    n_threads = int(n_threads)
    return n_threads if n_threads > 0 else max(1, (os.cpu_count() or 1) + 1 + n_threads)


def run_pieces(task, n_pieces, n_threads=1):
    """[task(0), ..., task(n_pieces - 1)], computed on up to `n_threads` threads; the first error is raised.

    The pool lives for this call only (0.1 ms), so that nothing is left over to be forked or closed.
    """
    n_threads = min(resolve_threads(n_threads), n_pieces)
    with one_blas_thread():
        if n_threads <= 1:
            return [task(i) for i in range(n_pieces)]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(task, range(n_pieces)))
