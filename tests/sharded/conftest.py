"""A small cluster for the tests of a file that need one: two processes, a thread each."""

import os
import signal
import time

import pytest


@pytest.fixture(scope="module")
def cluster():
    """It goes with its file: what its thread allocates would count in tests of memory that come after.

    A LocalCluster looks, 15 s after each loss of a worker, whether that is there, and removes it for good
    if not. Tests kill one worker twice in 15 s, so one that is just starting again would go: it looks later.
    """
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    patient = {"distributed.deploy.lost-worker-timeout": "1h"}
    size = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "2GiB"}
    with dask.config.set(patient), distributed.LocalCluster(**size, processes=True) as found:
        yield found


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as found:
        found.wait_for_workers(2, timeout=60)
        yield found


@pytest.fixture
def kill(client):
    """Kills the process of the worker number i of those that are there now; its nanny replaces it."""
    pids, until = [], time.monotonic() + 60
    while (
        len(pids) < 2 and time.monotonic() < until
    ):  # one that the test before has killed may still be listed
        pids = [pid for _, pid in sorted(client.run(os.getpid, on_error="ignore").items())]
    assert len(pids) == 2

    def killed(i=0):
        os.kill(pids[i], signal.SIGKILL)

    def on_the_way(monkeypatch, module):
        """Kill a worker when `module` has the first of its results. Returns a list, not empty after that."""
        done, engine_of = [], module.engine_of

        def watched(client):
            found = engine_of(client)
            if client is None:
                return found
            run = found.run

            def killing(task, jobs):
                for result in run(task, jobs):
                    if not done:
                        done.append(killed())
                    yield result

            found.run = killing
            return found

        monkeypatch.setattr(module, "engine_of", watched)
        return done

    killed.on_the_way = on_the_way
    return killed
