"""The kernel decorator's surroundings: the cache folder and the notice before a long compilation."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crfbook import _jit

ROOT = Path(__file__).resolve().parents[1]
N_KERNELS = 7
TINY = "from crfbook._jit import kernel\n" + "".join(
    f"@kernel\ndef k{n}(x):\n    return {f'k{n - 1}(x) + 1' if n else 'x'}\n" for n in range(N_KERNELS)
)
RUN = """
import tiny
every = [getattr(tiny, f"k{n}") for n in range(7)]
print(*(k(1) for k in every), tiny.k0(1.5), sum(len(k.stats.cache_hits) for k in every))
"""
RIGHT = "1 2 3 4 5 6 7 1.5"
NO_ROOM = """
import builtins, errno
real = open
def full(file, mode="r", *more, **named):
    if "w" in mode and CACHE in str(file):
        raise OSError(errno.ENOSPC, "No space left on device", file)
    return real(file, mode, *more, **named)
builtins.open = full
"""


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


# ---- damaged files and full disks: kernels of two lines, each run in a process of its own ----


def run_tiny(folder, cache, before=""):
    """(what RUN prints, its warnings as one string) with the kernel cache `cache`."""
    done = subprocess.run(
        [sys.executable, "-c", before + RUN],
        env={
            **os.environ,
            "CRFBOOK_KERNEL_CACHE": str(cache),
            "NUMBA_DISABLE_JIT": "0",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with tiny.py and, in cache/, its machine code."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.py").write_text(TINY)
    assert run_tiny(folder, folder / "cache") == (f"{RIGHT} 0", "")
    assert run_tiny(folder, folder / "cache") == (f"{RIGHT} 8", "")
    return folder


def in_the_middle(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def in_a_circle(path):
    """A link to itself: opening it is an OSError, for root as well."""
    path.unlink()
    path.symlink_to(path)


DAMAGES = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "four zeros": lambda path: path.write_bytes(bytes(4)),
    "one bit": in_the_middle,
    "unreadable": in_a_circle,
}


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_files_are_dropped_and_compiled_again(filled, tmp_path, ending):
    """A kernel for each kind of damage; each kernel calls the one before it."""
    cache = tmp_path / "cache"
    shutil.copytree(filled / "cache", cache)
    for n, damage in enumerate(DAMAGES.values()):
        (path,) = cache.rglob(f"tiny.k{n}-*{'.1' if ending == 'nbc' else ''}.{ending}")
        damage(path)
    printed, said = run_tiny(filled, cache)
    assert printed == f"{RIGHT} {1 if ending == 'nbc' else 0}"
    assert said.count("Warning") == 1 and str(cache) in said and "a damaged file was dropped" in said
    assert run_tiny(filled, cache) == (f"{RIGHT} 8", "")


def test_on_a_full_disk_kernels_stay_in_memory(filled, tmp_path):
    """Also where files were damaged before, and nothing can take their place."""
    cache = tmp_path / "cache"
    shutil.copytree(filled / "cache", cache)
    for number, path in enumerate(sorted(cache.rglob("tiny.*"))):
        path.unlink() if number % 2 else path.write_bytes(b"")
    printed, said = run_tiny(filled, cache, f"CACHE = {str(cache)!r}\n" + NO_ROOM)
    assert printed == f"{RIGHT} 0"
    assert said.count("Warning") == 2 and said.count("No space left on device") == 1
    assert not list(cache.rglob("*.tmp.*"))
    assert run_tiny(filled, cache) == (f"{RIGHT} 0", "")


def test_without_a_folder_kernels_stay_in_memory(filled, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    printed, said = run_tiny(filled, tmp_path / "cache")
    assert printed == f"{RIGHT} 0" and said.count("Warning") == 1 and str(tmp_path / "cache") in said


def test_code_under_a_wrong_name_is_not_run(filled, tmp_path):
    """Two processes that save at once may leave the code of one signature under the name of another."""
    cache = tmp_path / "cache"
    shutil.copytree(filled / "cache", cache)
    of_int, of_float = sorted(cache.rglob("tiny.k0-*.nbc"))
    shutil.copy(of_int, of_float)
    assert run_tiny(filled, cache) == (f"{RIGHT} 7", "")
