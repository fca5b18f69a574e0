"""Where shards lie: in a folder, or at an address such as s3://bucket/shards, which fsspec reads and writes.

fsspec comes with Dask. What an address needs beside it (s3fs for s3://, gcsfs for gs://) the user installs.
A file is named as the user names its folder: links are not followed, other machines may not have them.
Files appear complete or not at all, as far as the store does so. Stores have no locks.
"""

import os
from pathlib import Path

from crfbook._checks import file_name
from crfbook.data import files


def is_address(name):
    return "://" in name


def place_of(folder):
    """The full name of a folder, as the user gave it."""
    name = file_name(folder)
    return name.rstrip("/") if is_address(name) else os.path.abspath(name)


def _store(address):
    """(file system of fsspec, path in it). ImportError says what is to be installed."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(
            f"{address}: addresses need fsspec, which is not installed: it comes with the extra 'distributed'"
        ) from None
    return url_to_fs(address, use_listings_cache=False)


def make_folder(name):
    if is_address(name):
        store, path = _store(name)
        store.makedirs(path, exist_ok=True)
    else:
        os.makedirs(name, exist_ok=True)


def is_there(name):
    if not is_address(name):
        return os.path.exists(name)
    store, path = _store(name)
    return store.exists(path)


def names_in(folder):
    """Names of the files and folders of a folder."""
    if not is_address(folder):
        return os.listdir(folder)
    store, path = _store(folder)
    return [os.path.basename(found.rstrip("/")) for found in store.ls(path, detail=False)]


def remove(name):
    if is_address(name):
        store, path = _store(name)
        store.rm_file(path)
    else:
        os.unlink(name)


def read_text(name):
    if not is_address(name):
        return Path(name).read_text("utf-8")
    store, path = _store(name)
    return store.cat_file(path).decode()


def write_text(name, text):
    if is_address(name):
        store, path = _store(name)
        store.pipe_file(path, text.encode())
        return
    with files.replacing(name) as beside:
        Path(beside).write_text(text, "utf-8")


def save_arrays(name, kind, header, arrays):
    """`files.save_arrays`, also at an address."""
    if is_address(name):
        store, path = _store(name)
        store.pipe_file(path, files.file_bytes(kind, header, arrays))
    else:
        files.save_arrays(name, kind, header, arrays)


def load_arrays(name, kind):
    """`files.load_arrays`, also from an address."""
    if not is_address(name):
        return files.load_arrays(name, kind)
    store, path = _store(name)
    return files.arrays_of(store.cat_file(path), name, kind)
