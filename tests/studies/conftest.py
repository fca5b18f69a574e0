"""What the tests of studies share: the built-in twins, whatever is on this machine, and nothing kept."""

import pytest

from crfbook.studies import work


@pytest.fixture
def on_twins(monkeypatch, tmp_path):
    """The tables of `make paper` from the built-in twins."""
    monkeypatch.delenv("CRFBOOK_MIRROR", raising=False)
    monkeypatch.setenv("CRFBOOK_DATA", str(tmp_path))
    work.clear()
    yield
    work.clear()
