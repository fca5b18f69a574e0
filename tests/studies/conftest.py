"""What the tests of studies share: the built-in twins, whatever is on this machine, and nothing kept."""

import pytest

from studies import work


@pytest.fixture(autouse=True)
def clean_tree(monkeypatch):
    """While the package is worked on, its files differ from the commit's."""
    monkeypatch.setattr("studies.require_clean", lambda: None)
    monkeypatch.setattr("studies.__main__.require_clean", lambda: None)


@pytest.fixture(autouse=True)
def no_twins_yet():
    """What a process notes of its corpora belongs to one test."""
    work.TWINS.clear()
    yield
    work.TWINS.clear()


@pytest.fixture
def on_twins(monkeypatch, tmp_path):
    """The tables of `make paper` from the built-in twins."""
    monkeypatch.delenv("CRFBOOK_MIRROR", raising=False)
    monkeypatch.setenv("CRFBOOK_DATA", str(tmp_path))
    work.clear()
    yield
    work.clear()
