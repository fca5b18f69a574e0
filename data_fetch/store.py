"""Where files stand on this machine: the cache, the mirror, and what is known to be whole.

Nothing appears in the cache under its final name before its size and sha256 have been checked:
a download goes to a folder of its own beside its destination and is moved in one step (os.replace).
So a crash, or two processes that fetch the same file at once, leave nothing half-written behind.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from .download import Downloader
from .errors import FetchError
from .registry import REGISTRY, USER_SUPPLIED, dataset, file_entry

TEMPORARY = ".incoming-"
LONG = 2**20  # bytes from which a download deserves a progress bar
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))

_whole = {}  # (path, size, mtime in ns) -> sha256: a file is hashed once per process


class FileState(NamedTuple):
    """One row of `verify`: state is "ok", "damaged", "absent" or "unchecked" (the reader's own file)."""

    name: str
    filename: str
    path: Path
    state: str


def cache_dir() -> Path:
    """Folder of the cached files: CRFBOOK_DATA, or the place this system keeps caches in.
    It need not exist.
    """
    return _folder("CRFBOOK_DATA", os.environ.get("CRFBOOK_DATA") or _pooch().os_cache("crfbook"))


def _folder(variable, place):
    """`place`, the value of an environment variable, as a Path; FetchError if no folder can be called so."""
    try:
        if "\0" not in str(place):
            return Path(place).expanduser().absolute()
        why = "it has a NUL character"
    except (RuntimeError, OSError) as error:  # a home folder that is not known; a working folder that is gone
        why = str(error)
    raise FetchError(f"{variable}: expected the path of a folder, got {str(place)[:80]!r} ({why})")


def _pooch():
    """pooch, imported when needed; in a notebook without ipywidgets its tqdm would complain on stderr."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import pooch
    return pooch


def mirror() -> Path | str | None:
    """CRFBOOK_MIRROR: a Path, or a str if it is an http(s) address, or None if it is not set."""
    place = os.environ.get("CRFBOOK_MIRROR")
    if not place:
        return None
    if place.startswith(("http://", "https://")):
        return place.rstrip("/")
    return _folder("CRFBOOK_MIRROR", place)


def locate(name: str, filename: str) -> Path | None:
    """Path of a file that is here, in the cache or in a mirror folder, and whole; None otherwise.
    Never downloads.

    A damaged file is passed over with a warning. Raises FetchError for a name that is not registered.
    """
    entry = file_entry(name, filename)
    folders = [cache_dir()]
    if isinstance(place := mirror(), Path):
        folders.append(place)
    for folder in folders:
        path = folder / name / filename
        state = _state(path, entry)
        if state in ("ok", "unchecked"):
            return path
        if state == "damaged":
            remedy = (
                f"`python -m data_fetch {name}` replaces it"
                if folder == folders[0]
                else "the mirror needs a new copy"
            )
            warnings.warn(f"{path} is damaged and was passed over; {remedy}", stacklevel=2)
    return None


def verify(names: Iterable[str] | None = None) -> list[FileState]:
    """FileState of every file in the cache (of the data sets `names`, or of one; None: all), hashed anew."""
    _whole.clear()
    names = [*REGISTRY, *USER_SUPPLIED] if names is None else names
    names = names if hasattr(names, "__iter__") and not isinstance(names, str) else [names]
    rows = []
    for name in names:
        for filename, entry in dataset(name)["files"].items():
            path = cache_dir() / name / filename
            rows.append(FileState(name, filename, path, _state(path, entry)))
    return rows


def fetch(name: str, progressbar: Any = None, *, timeout: float = 30.0) -> dict[str, Path]:
    """Bring all files of a data set into the cache: {filename: Path}. Whole files are not fetched again.

    progressbar: True, False, or None (a bar on a terminal, for more than a megabyte). timeout: seconds
    without progress, or with less than 200 bytes each, after which a server is given up.
    Raises FetchError, one sentence, if a file cannot be had.
    """
    entry = dataset(name)
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise FetchError(f"timeout: expected a number of seconds above 0, got {timeout!r:.80}")
    if name in USER_SUPPLIED:
        return _own_files(name, entry)
    paths = {filename: cache_dir() / name / filename for filename in entry["files"]}
    missing = [f for f, facts in entry["files"].items() if _state(paths[f], facts) != "ok"]
    done, total = 0, sum(entry["files"][f]["bytes"] for f in missing)
    with _bar(name, total, progressbar) as show:
        for filename in missing:
            facts = entry["files"][filename]
            _bring(name, filename, facts, paths[filename], timeout, lambda got, base=done: show(base + got))
            done += facts["bytes"]
    return paths


def _own_files(name, entry):
    paths = {filename: locate(name, filename) for filename in entry["files"]}
    lacking = [filename for filename, path in paths.items() if path is None]
    if lacking:
        raise FetchError(
            f"{name} cannot be downloaded ({entry['licence']}): "
            f"put {', '.join(lacking)} into {cache_dir() / name}"
        )
    return paths


def _bring(name, filename, facts, target, timeout, progress):
    """Get one file from the mirror, else from its own address, into `target`;
    FetchError names every failure.
    """
    failures = []
    with _incoming(target) as folder:
        for source in _sources(name, filename, facts):
            try:
                arrived = _from(source, facts, folder, timeout, progress)
                os.chmod(arrived, 0o644)  # a cache may be shared; temporary files are private
                os.replace(arrived, target)
                return
            except FetchError as error:
                failures.append(f"{source}: {error}")
            except OSError as error:
                if _state(target, facts) == "ok":  # another process was quicker and holds it open (Windows)
                    return
                if error.errno in FULL:
                    size = f"{facts['bytes'] / 1e6:.1f} MB"
                    raise FetchError(f"the disk is full: {target} needs {size} ({error.strerror})") from None
                raise FetchError(f"{target} could not be written ({error.strerror or error})") from None
    raise FetchError(f"{name}/{filename} could not be fetched from {'; nor from '.join(failures)}")


def _sources(name, filename, facts):
    place = mirror()
    if isinstance(place, Path):
        yield place / name / filename
    elif place:
        yield f"{place}/{name}/{filename}"
    yield facts["url"]


def _from(source, facts, folder, timeout, progress):
    """Copy or download `source` into `folder`, checked; the path there."""
    arrived = folder / "file"
    if isinstance(source, Path):
        if not source.is_file():
            raise FetchError("no such file")
        shutil.copyfile(source, arrived)
        progress(arrived.stat().st_size)
        if _digest(arrived, facts) != facts["sha256"]:
            raise FetchError(f"wrong content, its sha256 is not {facts['sha256'][:12]}...")
        return arrived
    pooch = _pooch()
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # pooch announces each file on stderr, which would stand in notebooks
    try:
        downloader = Downloader(facts["bytes"], timeout=timeout, progress=progress)
        pooch.retrieve(
            source, f"sha256:{facts['sha256']}", fname=arrived.name, path=folder, downloader=downloader
        )
    except ValueError:  # how pooch reports a hash that differs
        raise FetchError(f"wrong content, its sha256 is not {facts['sha256'][:12]}...") from None
    finally:
        logger.setLevel(level)
    return arrived


@contextmanager
def _incoming(target):
    """A folder of our own beside `target`, gone afterwards; FetchError if the cache cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=target.parent))
    except OSError as error:
        raise FetchError(
            f"cannot write to the cache folder {target.parent} ({error.strerror or error}): "
            "set CRFBOOK_DATA to a folder you may write to"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(folder):
    """Remove what a killed process left behind a day ago or more;
    others' folders may vanish while we look.
    """
    for old in folder.glob(TEMPORARY + "*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > 86400:
                shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _bar(name, total, wanted):
    """Yield show(bytes so far, of `total`): a tqdm bar if one is wanted, else nothing."""
    if wanted is None:
        wanted = total > LONG and sys.stderr.isatty()
    if not wanted or not total:
        yield lambda n: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=name, unit="B", unit_scale=True) as bar:
        yield lambda n: bar.update(n - bar.n)


def _state(path, entry):
    try:
        if not path.is_file():
            return "absent"
        if "sha256" not in entry:
            return "unchecked"
        return "ok" if _digest(path, entry) == entry["sha256"] else "damaged"
    except OSError:
        return "damaged"  # there, but not to be read


def _digest(path, entry):
    """sha256 of a file, "" if its size is already wrong; remembered while size and time of change stay."""
    stat = path.stat()
    if stat.st_size != entry["bytes"]:
        return ""
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if key not in _whole:
        with open(path, "rb") as stream:
            _whole[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _whole[key]
