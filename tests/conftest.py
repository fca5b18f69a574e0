"""What all unit tests share: hypothesis without deadlines (a first call compiles) and with the same examples
each time (others with --hypothesis-profile=explore), no display, real data on demand.
"""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")
settings.register_profile(
    "crfbook",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("explore", settings.get_profile("crfbook"), derandomize=False)
settings.load_profile("crfbook")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def kernels_only(monkeypatch):
    """Problems of any size go to kernels: without this, those of most tests are small enough for NumPy."""
    monkeypatch.setattr("crfbook.chain.sparse.choice.TINY_SECONDS", 0.0)


@pytest.fixture(params=["kernels", "numpy"])
def both_ways(request, monkeypatch):
    """Once with kernels, once with the form without them."""
    seconds = {"kernels": 0.0, "numpy": float("inf")}[request.param]
    monkeypatch.setattr("crfbook.chain.sparse.choice.TINY_SECONDS", seconds)
    return request.param


def pytest_collection_modifyitems(items):
    """Tests called test_real_* look at the real corpora: ``-m real_data`` selects them."""
    for item in items:
        if item.get_closest_marker("kernels") and "both_ways" not in item.fixturenames:
            item.fixturenames.append("kernels_only")  # what tests compiled code must not go round it
        if item.name.startswith("test_real_"):
            item.add_marker("real_data")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where the corpora must be there (CI sets CRFBOOK_REAL_DATA=required) a skipped test of them is a
    failure.
    """
    report = yield
    if (
        report.skipped
        and item.get_closest_marker("real_data")
        and os.environ.get("CRFBOOK_REAL_DATA") == "required"
    ):
        report.outcome, report.longrepr = (
            "failed",
            f"{item.nodeid}: skipped, but the real corpora should be here: {report.longrepr}",
        )
    return report


def pytest_runtest_setup(item):
    """``@pytest.mark.real_data("conll2000", ...)``:
    skip where one of the named corpora is neither mirrored nor cached.

    A test that no warning passes begins without the garbage of others: a socket among it would warn.
    """
    if "recwarn" in item.fixturenames or item.get_closest_marker("filterwarnings"):
        gc.collect()
    marker = item.get_closest_marker("real_data")
    if marker is None:
        return
    from data_fetch import REGISTRY, locate

    for name in marker.args:
        missing = [f for f in REGISTRY[name]["files"] if locate(name, f) is None]
        if missing:
            pytest.skip(f"real corpus {name} is not at hand ({missing[0]}): set CRFBOOK_MIRROR or fetch it")
