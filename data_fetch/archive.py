"""Members of zip files as bytes in memory.

A member's name is a dictionary key and nothing else: no path is ever built from it and nothing is
written, so "../../.bashrc" or "C:\\x" in an archive can do no harm. Sizes are bounded before and
while inflating, because a kilobyte of zip can claim, or hold, gigabytes.
"""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from .errors import FetchError

MEMBER_LIMIT = 64 * 2**20  # bytes of one member; the largest of the registry's has 3.3 MB
TOTAL_LIMIT = 512 * 2**20  # bytes of all members that one read_members call may return
ENCRYPTED = 1  # bit 0 of a member's flags
# What zipfile raises over damaged bytes; NotImplementedError and RuntimeError where they look like a feature
# it lacks.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


def read_member(path: str | PathLike[str], member: str, *, limit: int = MEMBER_LIMIT) -> bytes:
    """One member of the zip file `path` as bytes; `FetchError` if it is absent,
    damaged or over `limit` bytes.
    """
    with _opened(path) as archive:
        return _read(archive, path, member, limit, _times(archive))


def read_members(
    path: str | PathLike[str], *, prefix: str = "", suffix: str = "", limit: int = MEMBER_LIMIT,
    total_limit: int = TOTAL_LIMIT,
) -> Iterator[tuple[str, bytes]]:  # fmt: skip
    """Yield (name, bytes) of the members that start and end so, in order of name; folders are left out."""
    with _opened(path) as archive:
        total, times = 0, _times(archive)
        for name in _names(archive, prefix, suffix):
            content = _read(archive, path, name, limit, times)
            total += len(content)
            if total > total_limit:
                raise FetchError(f"{path}: its members hold more than {total_limit} bytes together")
            yield name, content


def list_members(path: str | PathLike[str], *, prefix: str = "", suffix: str = "") -> list[str]:
    """Names of the members that start and end so, sorted; folders are left out."""
    with _opened(path) as archive:
        return _names(archive, prefix, suffix)


def _names(archive, prefix, suffix):
    names = {info.filename for info in archive.infolist() if not info.is_dir()}
    return sorted(name for name in names if name.startswith(prefix) and name.endswith(suffix))


def _opened(path):
    try:
        return zipfile.ZipFile(Path(path))
    except TypeError:
        raise FetchError(f"expected the path of a zip file, got {path!r:.80}") from None
    except FileNotFoundError:
        raise FetchError(f"{path}: no such file") from None
    except DAMAGE as error:
        raise FetchError(f"{str(path)!r:.200}: not a readable zip file ({error!s:.80})") from None


def _times(archive):
    return Counter(info.filename for info in archive.infolist())


def _read(archive, path, member, limit, times):
    if times[member] != 1:
        raise FetchError(f"{path}: expected one member named {member!r:.80}, found {times[member]}")
    info = archive.getinfo(member)
    if info.file_size > limit:
        raise FetchError(
            f"{path}: member {member!r:.80} claims {info.file_size} bytes, more than the limit of {limit}"
        )
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & ENCRYPTED:
        raise FetchError(f"{path}: member {member!r:.80} is encrypted or packed by a method not read here")
    try:
        with archive.open(info) as stream:
            content = stream.read(limit + 1)  # never inflates past the limit, whatever the archive claims
    except DAMAGE as error:
        raise FetchError(f"{path}: member {member!r:.80} is damaged ({error!s:.80})") from None
    if len(content) != info.file_size:
        raise FetchError(
            f"{path}: member {member!r:.80} holds {len(content)} bytes but claims {info.file_size}"
        )
    return content
