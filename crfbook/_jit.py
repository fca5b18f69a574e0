"""The one decorator of all kernels, and the folder where their machine code is kept.

numba's cache works file by file: a cached caller does not notice that a kernel it calls, in another file,
has changed, and a cached kernel ignores a later ``NUMBA_BOUNDSCHECK``. So the cache folder is named after a
hash of every file that may hold a kernel and of that flag: whatever changes, the folder changes. It lies in
the user's cache (``CRFBOOK_KERNEL_CACHE`` overrides it), so that read-only installations work.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

from numba import config, njit

_KEEP_DAYS = 30.0
_PACKAGE = Path(__file__).resolve().parent


def _sources():
    """This file, and every file that holds a kernel, in a fixed order."""
    files = sorted(_PACKAGE.rglob("*.py"))
    return [_PACKAGE / "_jit.py", *(path for path in files if b"\n@kernel" in path.read_bytes())]


def _fingerprint():
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
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
    """Remove sibling folders that nobody has used for a month."""
    limit = time.time() - _KEEP_DAYS * 86400
    with contextlib.suppress(OSError):
        for old in folder.iterdir():
            if old.name != keep and old.is_dir() and old.stat().st_mtime < limit:
                shutil.rmtree(old, ignore_errors=True)


def _cache_folder():
    """Folder for this version's machine code, or None where nothing can be written."""
    root, name = _user_cache(), _fingerprint()
    try:
        (root / name).mkdir(parents=True, exist_ok=True)
        os.utime(root / name)
    except OSError:
        return None
    _prune(root, name)
    return str(root / name) if os.access(root / name, os.W_OK) else None


CACHE_FOLDER = None if config.DISABLE_JIT else _cache_folder()


def is_compiled(name):
    """Has the kernel `name` machine code on disk, or needs it none?"""
    return (
        bool(config.DISABLE_JIT)
        or CACHE_FOLDER is not None
        and any(Path(CACHE_FOLDER).rglob(f"*.{name}-*.nbi"))
    )


def announce_compilation(name, stream=None):
    """Where the kernel `name` has no machine code yet, say so on a terminal: compiling takes about a minute,
    once.

    Nothing is said where output may be stored (a notebook, a pipe) or where nothing is compiled.
    """
    stream = stream or sys.stderr
    if stream and stream.isatty() and not is_compiled(name):
        again = "again in each process, as no folder can be written" if CACHE_FOLDER is None else "once"
        print(f"crfbook: compiling kernels, about a minute, {again}", file=stream, flush=True)


def kernel(function):
    """Compile on first call: no GIL, cached on disk, IEEE division, products and sums may fuse (FMA).

    Fusing ("contract") is the only liberty taken with floating point: nothing is reordered and
    infinities keep their meaning. Compilation happens at the first call, never at import. The entry for
    C callbacks, which nobody calls, is left out: a tenth of the compilation.
    """
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, "no_cfunc_wrapper": True}
    if CACHE_FOLDER is None:
        return njit(**options)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, CACHE_FOLDER
    try:
        return njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before
