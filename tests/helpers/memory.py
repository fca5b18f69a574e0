"""The memory that a piece of work takes."""

import gc
import tracemalloc


def peak_bytes(job):
    """(result, peak): what job() returns, and the most bytes above those before that Python and NumPy held at
    once. All threads count, so a limit leaves room for them: the loop of a Dask cluster takes 0.3 MB.
    """
    gc.collect()
    tracemalloc.start()
    try:
        return job(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
