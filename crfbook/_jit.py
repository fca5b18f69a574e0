"""The one decorator of all kernels, and the folder where their machine code is kept.

numba's cache works file by file: a cached caller does not notice that a kernel it calls, in another file,
has changed, and a cached kernel ignores a later ``NUMBA_BOUNDSCHECK``. So the cache folder is named after a
hash of all that the compiler reads: kernels, tuples, the constants beside kernels, and that flag. A change of
these changes the folder. Docstrings, comments and places in a file do not count. The
folder lies in the user's cache (``CRFBOOK_KERNEL_CACHE`` overrides it), so that read-only installations work.

What lies there carries a checksum. A damaged file is dropped and its kernel compiled again; what cannot be
written stays in memory. A warning says so, once a process.
"""

import ast
import contextlib
import functools
import hashlib
import io
import os
import shutil
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path

from numba import config, njit
from numba.core import event as events
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    NullCache,
    UserProvidedCacheLocator,
)

_KEEP_DAYS = 30.0
_PACKAGE = Path(__file__).resolve().parent


def _sources():
    """This file, and every file that holds a kernel or a tuple of arrays, in a fixed order."""
    files = sorted(_PACKAGE.rglob("*.py"))
    marks = b"\n@kernel", b"NamedTuple", b"namedtuple("
    held = (path for path in files if any(mark in path.read_bytes() for mark in marks))
    return [_PACKAGE / "_jit.py", *(path for path in held if path.name != "_jit.py")]


def _syntax(path):
    """What machine code depends on, without docstrings: of a file with kernels all but plain functions and
    classes, of each file the tuples, whose fields kernels read by their places.
    """
    text = path.read_bytes()
    tree, all_counts = ast.parse(text), path.name == "_jit.py"  # which says how all kernels compile
    tree.body = [node for node in tree.body if all_counts or _counts(node, b"\n@kernel" in text)]
    for node in ast.walk(tree):
        holds = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if holds and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def _counts(node, kernels):
    if kernels and not isinstance(node, ast.ClassDef):  # learners stand beside kernels, too
        return not isinstance(node, ast.FunctionDef) or bool(node.decorator_list)
    made = node.bases if isinstance(node, ast.ClassDef) else [getattr(node, "value", None)]
    return any("namedtuple" in ast.dump(part).lower() for part in made if part is not None)


def _fingerprint():
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()} {_syntax(path)}".encode())
    digest.update(str(config.BOUNDSCHECK).encode())
    return digest.hexdigest()[:16]


def _user_cache():
    # empty counts as not set, or the kernels would lie in the working folder
    if os.environ.get("CRFBOOK_KERNEL_CACHE"):
        return Path(os.environ["CRFBOOK_KERNEL_CACHE"]).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "crfbook" / "kernels"


def _prune(folder, keep):
    """Remove sibling folders that were not used for a month."""
    limit = time.time() - _KEEP_DAYS * 86400
    with contextlib.suppress(OSError):
        for old in folder.iterdir():
            if old.name != keep and old.is_dir() and old.stat().st_mtime < limit:
                shutil.rmtree(old, ignore_errors=True)


def _remembered_fingerprint(root):
    """`_fingerprint`, from a file of `root` where these very sources have been read before: that takes no
    hundredth of the time.
    """
    seen = hashlib.sha256(
        b"".join(path.read_bytes() for path in _sources()) + str(config.BOUNDSCHECK).encode()
    )
    memo = root / "fingerprints" / seen.hexdigest()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if len(name := memo.read_text()) == 16 and name.isalnum():
            return name
    name = _fingerprint()
    with contextlib.suppress(OSError):
        memo.parent.mkdir(parents=True, exist_ok=True)
        beside = memo.with_suffix(f".{os.getpid()}")
        beside.write_text(name)
        os.replace(beside, memo)
    return name


def _cache_folder():
    """Folder for this version's machine code, or None where there is none and none can be made."""
    try:
        root = _user_cache()
    except RuntimeError:  # a home folder that the system does not know
        return None
    name = _remembered_fingerprint(root)
    with contextlib.suppress(OSError):
        (root / name).mkdir(parents=True, exist_ok=True)
        os.utime(root / name)
        _prune(root, name)
    return str(root / name) if os.access(root / name, os.R_OK | os.X_OK) else None


CACHE_FOLDER = None if config.DISABLE_JIT else _cache_folder()


def is_compiled(name):
    """Has the kernel `name` machine code on disk, or needs it none?"""
    return (
        bool(config.DISABLE_JIT)
        or CACHE_FOLDER is not None
        and any(Path(CACHE_FOLDER).rglob(f"*.{name}-*.nbi"))
    )


_SAID = set()  # what the warnings of this process were about


def _say(about, sentence):
    if about not in _SAID:
        _SAID.add(about)
        warnings.warn(f"kernel cache {str(CACHE_FOLDER or _user_cache())!r}: {sentence}", stacklevel=2)


def all_kept():
    """Is all that this process has compiled on disk?"""
    return "full" not in _SAID


def _say_damaged():
    _say("damaged", "a damaged file was dropped, its kernel is compiled again")


class _Place(UserProvidedCacheLocator):
    """Below CACHE_FOLDER, whether or not anything can be written there."""

    def __init__(self, function, file):
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._cache_path = os.path.join(CACHE_FOLDER, self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function, file):
        return cls(function, file)

    def get_source_stamp(self):
        # the folder is named after what kernels of the package say; others go by their file, as with numba
        return "" if Path(self._py_file).is_relative_to(_PACKAGE) else super().get_source_stamp()

    def get_disambiguator(self):
        return "kernel"  # there is one of a name in a file, wherever it stands


class _Code(CompileResultCacheImpl):
    _locator_classes = [_Place]


class _Files(IndexDataCacheFile):
    """The index and the machine code of one kernel on disk, each file with a checksum at its end."""

    @contextlib.contextmanager
    def _open_for_write(self, path):
        with super()._open_for_write(path) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + zlib.crc32(content.getvalue()).to_bytes(4, "big"))

    def _load_index(self):
        return self._read(self._index_path, super()._load_index) or {}

    def _load_data(self, name):
        return self._read(self._data_path(name), lambda: super(_Files, self)._load_data(name))

    def _read(self, path, load):
        """What numba loads from `path` (it does not look at the checksum), or None."""
        try:
            content = Path(path).read_bytes()
            if content[-4:] == zlib.crc32(content[:-4]).to_bytes(4, "big"):
                return load()
        except FileNotFoundError:
            return None
        except Exception:  # unreadable; or unpickling, which may raise anything
            pass
        with contextlib.suppress(OSError):
            os.unlink(path)
        _say_damaged()
        return None


class _Cache(FunctionCache):
    """numba's cache of one kernel, where nothing that goes wrong with a file ends the program."""

    _impl_class = _Code

    def __init__(self, function):
        super().__init__(function)
        place = self._impl.locator
        self._cache_file = _Files(place.get_cache_path(), self._impl.filename_base, place.get_source_stamp())

    def load_overload(self, sig, target_context):
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # the file is whole, but LLVM or numba cannot use it: it will be overwritten
            return _say_damaged()
        # two processes that save at once may give one name to the code of two signatures
        wanted = tuple(getattr(sig, "args", sig))
        return found if found is None or tuple(found.signature.args) == wanted else None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say_not_kept(error)


class _Memory(NullCache):
    """Where there is no folder."""

    def save_overload(self, sig, data):
        _say_not_kept("the folder cannot be made")


def _say_not_kept(why):
    why = getattr(why, "strerror", None) or why
    _say("full", f"kernels cannot be kept and compile again in each process ({why})")


class Counter(events.Listener):
    """Counts the kernels that this process compiles, and says so in a line that moves and is taken away.

    numba reports where compiling begins and ends, one thread at a time; calls of kernels are not touched.
    """

    SOON, OFTEN = 0.5, 0.5  # seconds: before the line is shown, and between two of its moves

    def __init__(self):
        self.n_done, self.seconds, self._depth = 0, 0.0, 0
        self._began = self._show = self._ticker = self._ended = None

    def text(self):
        often = "again in each process" if CACHE_FOLDER is None else "once"
        seconds = self.seconds + time.perf_counter() - self._began
        return f"crfbook: compiling kernels, {often}: {self.n_done} done, {seconds:.0f} s"

    def on_start(self, event):
        if not _is_ours(event):
            return
        self._depth += 1
        if self._depth == 1:
            self._began, self._show, self._ended = time.perf_counter(), _line(), threading.Event()
            if self._show is not None:
                self._ticker = threading.Thread(target=self._tick, args=[self.seconds], daemon=True)
                self._ticker.start()

    def on_end(self, event):
        if not _is_ours(event):
            return
        self._depth -= 1
        self.n_done += 1  # event.is_failed of numba 0.68 says the opposite of what it is called
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began
            self._ended.set()
            if self._show is not None:
                self._ticker.join()

    def _tick(self, so_far):
        """Show the line until compiling has ended. What goes wrong on a screen is no reason to stop."""
        with contextlib.suppress(Exception):
            if so_far < self.SOON and self._ended.wait(self.SOON):
                return
            self._show(self.text())
            while not self._ended.wait(self.OFTEN):
                self._show(self.text())
            self._show("")


def _is_ours(event):
    return isinstance(event.data["dispatcher"]._cache, _Cache | _Memory)


def _line():
    """A function that shows a text in place of the one before ("": none), or None where output is stored.

    A notebook stores what it shows, so there the line is shown only to somebody who could answer a question
    (JupyterLab, not nbclient), and ends as a display without content.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):
        request = shell.kernel.get_parent()
        if not request.get("content", {}).get("allow_stdin"):
            return None
        return functools.partial(_show_below, shell, f"crfbook-{request['header']['msg_id']}")
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    return lambda text: print(f"\r{text:<70}\r", end="", file=sys.stderr, flush=True)


_DISPLAYS = set()  # one for a cell


def _show_below(shell, name, text):
    content = {"text/plain": text} if text else {}
    shell.display_pub.publish(content, transient={"display_id": name}, update=name in _DISPLAYS)
    _DISPLAYS.add(name)


COUNTER = Counter()
events.register("numba:compile", COUNTER)


def kernel(function):
    """Compile on first call: no GIL, cached on disk, IEEE division, products and sums may fuse (FMA).

    Fusing ("contract") is the only liberty taken with floating point: nothing is reordered and
    infinities keep their meaning. Compilation happens at the first call, never at import. The entry for
    C callbacks is left out, as nothing calls it: that saves a tenth of the compilation.
    """
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, "no_cfunc_wrapper": True}
    dispatcher = njit(**options)(function)
    if not config.DISABLE_JIT:
        dispatcher._cache = _Memory() if CACHE_FOLDER is None else _Cache(function)
    return dispatcher
