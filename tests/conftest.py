"""What all unit tests share: hypothesis without deadlines (a first call compiles), no display, real data on demand."""

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")
settings.register_profile(
    "crfbook", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("crfbook")


def pytest_runtest_setup(item):
    """``@pytest.mark.real_data("conll2000", ...)``: skip where one of the named corpora is neither mirrored nor cached."""
    marker = item.get_closest_marker("real_data")
    if marker is None:
        return
    from data_fetch import REGISTRY, locate

    for name in marker.args:
        missing = [f for f in REGISTRY[name]["files"] if locate(name, f) is None]
        if missing:
            pytest.skip(f"real corpus {name} is not at hand ({missing[0]}): set CRFBOOK_MIRROR or fetch it")
