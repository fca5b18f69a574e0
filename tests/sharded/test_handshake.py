"""Workers that are unlike this process are refused, and listed."""

import numpy as np
import pytest
from helpers.sharded import some_shards

import crfbook.distributed.engine as handshake
from crfbook import CRF
from crfbook.distributed import fit
from crfbook.distributed.engine import Cluster, check_workers, checked, introduce, versions


class Stub:
    """A client whose workers say what they are told to."""

    def __init__(self, **said):
        self.said = said

    def run(self, function, workers, on_error):
        assert function is introduce and on_error == "return"
        return {worker: self.said[worker] for worker in workers}


def said(**changes):
    theirs, probe = introduce()
    return {**theirs, **changes}, probe


def test_who_is_alike_is_welcome(recwarn):
    check_workers(Stub(a=said(), b=said()), ["a", "b"])
    assert not recwarn.list
    assert {"python", "crfbook", "kernels", "numpy", "numba", "scipy"} <= set(versions())


def test_unlike_versions_are_listed():
    _, (bits, value) = introduce()
    workers = {
        "tcp://a": said(),
        "tcp://b": said(numba="0.1", kernels="abc"),
        "tcp://c": (versions(), (bits, value * 1.5)),
        "tcp://d": ModuleNotFoundError("No module named 'crfbook'"),
        "tcp://e": (versions(), (bits, float("nan"))),
        "tcp://f": OSError("Timed out trying to connect"),  # it is lost, which is another thing
    }
    wanted = (
        rf"^client: expected workers like this process, got others: tcp://b has kernels abc \(here \w+\), "
        rf"numba 0\.1 \(here {versions()['numba']}\); tcp://c has probe \S+ \(here \S+\); "
        r"tcp://d answers ModuleNotFoundError: No module named 'crfbook'; tcp://e has probe nan \(here [^;]*$"
    )
    with pytest.raises(RuntimeError, match=wanted):
        check_workers(Stub(**workers), list(workers))


def test_other_bits_are_a_warning():
    theirs, (_, value) = introduce()
    with pytest.warns(UserWarning, match="these workers round otherwise than this process, .*: b$"):
        check_workers(Stub(a=said(), b=(theirs, ("other bits", value * (1 + 1e-14)))), ["a", "b"])


def test_the_probe_is_the_same_twice():
    first = handshake.probe()
    handshake.probe.cache_clear()
    assert handshake.probe() == first and np.isfinite(first[1])


def test_who_joins_later_is_checked():
    assert checked(versions(), divmod, 7, 2) == (3, 1)
    with pytest.raises(
        RuntimeError, match=r"^a worker that joined later is unlike the others: numpy \S+ \(exp"
    ):
        checked(versions() | {"numpy": "0.1"}, divmod, 7, 2)


def test_a_worker_of_another_version_is_refused(client, tmp_path):
    def become(version):
        import crfbook.distributed.engine as handshake

        handshake.versions()["numba"] = version

    shards = some_shards(tmp_path)
    worker, real = sorted(client.scheduler_info(n_workers=-1)["workers"])[1], versions()["numba"]
    client.run(become, "0.1", workers=[worker])
    try:
        with pytest.raises(RuntimeError, match=rf"got others: {worker} has numba 0\.1 \(here {real}\)$"):
            fit(CRF(max_iterations=1), shards, client)
    finally:
        client.run(become, real, workers=[worker])
    Cluster(client)


def test_a_worker_that_changes_on_the_way_is_refused(client, tmp_path):
    def become(version):
        import crfbook.distributed.engine as handshake

        handshake.versions()["numba"] = version

    shards, real = some_shards(tmp_path), versions()["numba"]
    try:
        with pytest.raises(
            RuntimeError, match=r"^a worker that joined later is unlike the others: numba 0\.1"
        ):
            fit(CRF(max_iterations=9), shards, client, callback=lambda *_: client.run(become, "0.1") is None)
    finally:
        client.run(become, real)


def test_every_task_meets_its_worker(client, monkeypatch):
    """A worker that joined after the handshake: with other versions it computes neither jobs nor sums."""
    cluster, others = Cluster(client), versions() | {"numba": "0.1"}
    asked = (lambda: list(cluster.run(divmod, [(7, 2)]))), (lambda: cluster.total(divmod, [1, 2, 3], 7))
    assert [ask() for ask in asked] == [[(3, 1)], (12, 2)]
    monkeypatch.setattr(handshake, "versions", lambda: others)
    for ask in asked:
        with pytest.raises(RuntimeError, match="^a worker that joined later is unlike the others: numba "):
            ask()
