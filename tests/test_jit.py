"""The kernel decorator's surroundings: the cache folder and the notice before a long compilation."""

import io

import pytest

from crfbook import _jit


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setattr(_jit.config, "DISABLE_JIT", 0)


def said(stream):
    _jit.announce_compilation("some_kernel", stream)
    return stream.getvalue()


def test_a_first_compilation_is_announced_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", str(tmp_path))
    assert said(Terminal()) == "crfbook: compiling kernels, about a minute, once\n"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "file.other_kernel-1.py311.nbi").touch()
    assert "once" in said(Terminal())
    (tmp_path / "kernels" / "file.some_kernel-1.py311.nbi").touch()
    assert said(Terminal()) == ""


def test_without_a_cache_folder_it_is_announced_each_time(monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", None)
    assert "again in each process" in said(Terminal())


def test_nothing_is_said_into_a_pipe_or_without_compilation(tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", str(tmp_path))
    assert said(io.StringIO()) == ""
    monkeypatch.setattr(_jit.config, "DISABLE_JIT", 1)
    assert said(Terminal()) == ""


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("CRFBOOK_KERNEL_CACHE", str(tmp_path / "file"))
    assert _jit._cache_folder() is None


def test_an_empty_variable_is_none(monkeypatch):
    for name in ("CRFBOOK_KERNEL_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, "")
    assert _jit._user_cache().is_absolute() and _jit._user_cache().name == "kernels"


def test_old_folders_are_pruned_and_the_own_one_kept(tmp_path):
    import os

    for name, age in (("old", 40), ("fresh", 1), ("own", 40)):
        (tmp_path / name).mkdir()
        then = _jit.time.time() - age * 86400
        os.utime(tmp_path / name, (then, then))
    _jit._prune(tmp_path, "own")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "own"]
