"""Fetch public corpora: pinned addresses, checked hashes, one cache folder, an offline path.

    python -m data_fetch list                 what there is, its size and its licence
    python -m data_fetch conll2000 nettalk    download into the cache, each file checked
    python -m data_fetch verify               hash again everything that is cached

    import data_fetch
    data_fetch.fetch("conll2000")                       # {"conll2000.zip": Path(...)}
    data_fetch.locate("conll2000", "conll2000.zip")     # Path or None; never touches the network

``CRFBOOK_DATA`` names the cache folder. ``CRFBOOK_MIRROR`` names a folder or an http address laid
out as ``<dataset>/<file>``; it is tried before the original addresses, and a folder also serves
`locate` directly, so a classroom without a network works from a memory stick.

Nothing here knows about crfbook; importing this package costs one small JSON file.
"""

from .archive import list_members, read_member, read_members
from .errors import FetchError
from .registry import REGISTRY, USER_SUPPLIED
from .store import FileState, cache_dir, fetch, locate, mirror, verify

__all__ = [
    "REGISTRY",
    "USER_SUPPLIED",
    "FetchError",
    "FileState",
    "cache_dir",
    "fetch",
    "list_members",
    "locate",
    "mirror",
    "read_member",
    "read_members",
    "verify",
]
