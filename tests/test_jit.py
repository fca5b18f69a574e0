"""The kernel decorator's surroundings: the cache folder and the line that says that kernels compile."""

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_client.manager import start_new_kernel

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


def test_what_has_code_on_disk_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "CACHE_FOLDER", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "file.other_kernel-1.py311.nbi").touch()
    assert not _jit.is_compiled("some_kernel")
    (tmp_path / "kernels" / "file.some_kernel-1.py311.nbi").touch()
    assert _jit.is_compiled("some_kernel")
    monkeypatch.setattr(_jit, "CACHE_FOLDER", None)
    assert not _jit.is_compiled("some_kernel")
    monkeypatch.setattr(_jit.config, "DISABLE_JIT", 1)
    assert _jit.is_compiled("some_kernel")


KERNEL = """\"\"\"A file.\"\"\"
import numpy as np
LIMIT = 3.0
class Rows(NamedTuple):
    first: int
@kernel
def twice(x):
    \"\"\"Twice x.\"\"\"
    return 2.0 * x + LIMIT
def rows():
    return Rows(1)
"""


def test_the_cache_goes_by_what_kernels_say(tmp_path, monkeypatch):
    """Docstrings, comments, blank lines and plain functions are no reason to compile anew; all else is."""
    path = tmp_path / "rows.py"
    monkeypatch.setattr(_jit, "_PACKAGE", tmp_path)
    monkeypatch.setattr(_jit, "_sources", lambda: [path])

    def mark(old="", new=""):
        assert old in KERNEL
        path.write_text(KERNEL.replace(old, new, 1))
        return _jit._fingerprint()

    was = mark()
    for old, new in [
        ("A file.", "Another."), ("Twice x.", "x + x."), ("@kernel", "\n# on the way\n@kernel"),
        ("Rows(1)", "Rows(2)"), ("    first: int", "    first: int  # of all"),
        ("@kernel", "class Learner:\n    rate = 1.0\n\n\n@kernel"),
    ]:  # fmt: skip
        assert mark(old, new) == was, (old, new)
    for old, new in [
        ("3.0", "4.0"), ("2.0 * x", "x * 2.0"), ("(x)", "(y)"), ("first", "last"), ("numpy", "math"),
        ("twice", "double"), ("@kernel", "@kernel\n@other"),
    ]:  # fmt: skip
        assert mark(old, new) != was, (old, new)
    # of a file without kernels the tuples count, since kernels read their fields by their places
    for old, new, same in [("a: int\n    b: int", "b: int\n    a: int", False), ("= 1", "= 2", True)]:
        text = "from typing import NamedTuple\nX = 1\nclass P(NamedTuple):\n    a: int\n    b: int\n"
        path.write_text(text)
        was = _jit._fingerprint()
        path.write_text(text.replace(old, new))
        assert (_jit._fingerprint() == was) == same
    path = path.rename(tmp_path / "_jit.py")
    was = mark()
    assert mark("Rows(1)", "Rows(2)") != was  # of this file all counts: it says how kernels compile


def test_the_key_has_every_file_that_kernels_read():
    """Every kernel and every tuple of the package, found by its syntax."""
    want = set()
    for path in (ROOT / "crfbook").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            bases = [ast.unparse(base) for base in getattr(node, "bases", [])]
            called = isinstance(node, ast.Call) and ast.unparse(node.func) == "namedtuple"
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if called or "NamedTuple" in bases or "kernel" in marks:
                want.add(path)
    assert len(want) > 50 and want <= set(_jit._sources())


def test_the_key_has_places_and_the_check_of_bounds(tmp_path, monkeypatch):
    path, root = tmp_path / "rows.py", tmp_path / "cache"
    path.write_text(KERNEL)
    monkeypatch.setattr(_jit, "_PACKAGE", tmp_path)
    monkeypatch.setattr(_jit, "_sources", lambda: [path])
    was = _jit._fingerprint()
    assert _jit._remembered_fingerprint(root) == was
    with monkeypatch.context() as checked:
        checked.setattr(_jit.config, "BOUNDSCHECK", 1 - bool(_jit.config.BOUNDSCHECK))
        assert _jit._remembered_fingerprint(root) == _jit._fingerprint() != was
    path = path.rename(tmp_path / "other.py")
    assert _jit._fingerprint() != was


def test_sources_that_were_read_before_are_not_read_again(tmp_path, monkeypatch):
    path, root = tmp_path / "rows.py", tmp_path / "cache"
    path.write_text(KERNEL)
    monkeypatch.setattr(_jit, "_PACKAGE", tmp_path)
    monkeypatch.setattr(_jit, "_sources", lambda: [path])
    was = _jit._remembered_fingerprint(root)
    with monkeypatch.context() as without:
        without.setattr(_jit, "_fingerprint", None)
        assert _jit._remembered_fingerprint(root) == was
    path.write_text(KERNEL.replace("2.0", "3.0"))
    assert _jit._remembered_fingerprint(root) == _jit._fingerprint() != was
    for memo in (root / "fingerprints").iterdir():
        memo.write_text("no name")
    assert _jit._remembered_fingerprint(root) == _jit._fingerprint()


def count_two_kernels(stream, monkeypatch):
    """What a counter writes to `stream` while a kernel and one that it calls are compiled."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(_jit, "CACHE_FOLDER", "somewhere")
    counter, ours = _jit.Counter(), {"dispatcher": SimpleNamespace(_cache=_jit._Memory())}
    counter.SOON, counter.OFTEN = 0.0, 0.01
    start, end = (SimpleNamespace(data=ours, is_failed=False),) * 2
    foreign = SimpleNamespace(data={"dispatcher": SimpleNamespace(_cache=None)}, is_failed=False)
    for call in (counter.on_start, counter.on_start, counter.on_end):
        call(start)
        call(foreign)
    for _ in range(3000 * bool(counter._show)):
        if "1 done" in stream.getvalue():
            break
        threading.Event().wait(0.01)
    counter.on_end(end)
    assert counter.n_done == 2
    return stream.getvalue()


def test_a_terminal_sees_a_counter_that_disappears(monkeypatch):
    written = count_two_kernels(Terminal(), monkeypatch).split("\r")
    said = re.compile(r"crfbook: compiling kernels, once: 1 done, \d+ s")
    assert any(said.fullmatch(line.rstrip()) for line in written)
    assert "\n" not in "".join(written) and written[-1] == "" and not written[-2].strip()


def test_nothing_is_said_into_a_pipe(monkeypatch):
    assert count_two_kernels(io.StringIO(), monkeypatch) == ""


def test_a_notebook_sees_the_counter_and_stores_nothing(tmp_path):
    """The same cell, sent by a front end that a reader sits at and by one that only stores what it gets."""
    (tmp_path / "tiny.py").write_text(TINY)
    begin = "from crfbook import _jit; _jit.Counter.SOON, _jit.Counter.OFTEN = 0, 0.01; import tiny"
    manager, client = start_new_kernel(kernel_name="python3", env=environment(tmp_path, tmp_path / "cache"))
    heard = []
    try:
        client.execute_interactive(begin, timeout=120)
        for stdin, number in ((False, "1"), (True, "1.5")):
            heard.append([])
            client.execute_interactive(
                f"tiny.k6({number});", allow_stdin=stdin, output_hook=heard[-1].append, timeout=120
            )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    stored, seen = (
        [(m["msg_type"], m["content"]["data"]) for m in messages if "display" in m["msg_type"]]
        for messages in heard
    )
    assert stored == [] and not any(m["msg_type"] == "stream" for messages in heard for m in messages)
    assert seen[0][0] == "display_data" and {kind for kind, _ in seen[1:]} == {"update_display_data"}
    assert "compiling kernels" in seen[0][1]["text/plain"] and seen[-1][1] == {}


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


def environment(folder, cache):
    path = os.pathsep.join([str(folder), str(ROOT)])
    return os.environ | {
        "CRFBOOK_KERNEL_CACHE": str(cache), "NUMBA_DISABLE_JIT": "0", "PYTHONPATH": path,
    }  # fmt: skip


def run_tiny(folder, cache, before=""):
    """(what RUN prints, its warnings as one string) with the kernel cache `cache`."""
    done = subprocess.run(
        [sys.executable, "-c", before + RUN],
        env=environment(folder, cache),
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


def test_the_counter_counts_what_numba_compiles(filled, tmp_path):
    """Whose events said that each had failed."""
    code = "import tiny; from crfbook import _jit; tiny.k6(1); print(_jit.COUNTER.n_done)"
    for wanted in (N_KERNELS, 0):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment(filled, tmp_path), capture_output=True, text=True
        )
        assert (done.stdout.strip(), done.stderr) == (str(wanted), "")


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
