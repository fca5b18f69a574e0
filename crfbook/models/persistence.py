"""One file per model: a zip of plain arrays (npz) with a JSON header and a checksum over every byte.

Layout of the file
    crfbook_header.npy      uint8, UTF-8 JSON: {"schema", "kind", "version", "arrays": {name: [dtype, shape]},
                            "header"}
    <name>.npy              one member for each array
    zip comment             "crfbook sha256 " + 64 hexadecimal digits: the hash of all bytes before the digits
`numpy.load(path)` opens it too. Nothing is ever unpickled: object arrays are refused on both ways, and no
array is looked at before the checksum, the header and the schema version are in order.
"""

import hashlib
import io
import json
import os
import secrets
import zipfile

import numpy as np

SCHEMA = 1
_HEADER = "crfbook_header"
_MARK = b"crfbook sha256 "
_DIGITS = 64


class ModelFileError(ValueError):
    """The file is not a model that this version can load: foreign, damaged, of a later schema, or unsafe."""


def save_arrays(path, kind, header, arrays):
    """Write a header and arrays to one file, atomically.

    Parameters
    ----------
    path : str or path-like. The file appears complete or not at all: it is written beside its final name
        and then moved over it, so that an older model survives a full disk.
    kind : str, e.g. "CRF"; `load_arrays` insists on it.
    header : dict that JSON can carry.
    arrays : dict name -> array without objects.

    Raises
    ------
    TypeError : an object array, or a header that JSON cannot carry.  OSError : as the file system says.
    """
    from crfbook import __version__

    path = os.path.realpath(os.fspath(path))
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"cannot save {name!r}: expected an array of numbers, got Python objects")
    about = {
        "schema": SCHEMA,
        "kind": kind,
        "version": __version__,
        "header": header,
        "arrays": {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()},
    }
    try:
        text = json.dumps(about, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"cannot save the model: {error}") from None
    members = {_HEADER: np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8), **arrays}

    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot save the model: there is no folder {folder}")
    beside = f"{path}.{secrets.token_hex(6)}.tmp"
    try:
        with open(beside, "xb+") as file:  # "x": never through somebody else's file or link
            _write_zip(file, members)
            _seal(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def load_arrays(path, kind):
    """Read what `save_arrays` wrote: (header, {name: array}).

    Raises
    ------
    FileNotFoundError (or another OSError) : as the file system says.
    ModelFileError : one sentence saying why the file is refused.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        _check_seal(file, path)
        try:
            with zipfile.ZipFile(file) as archive:
                return _read_members(archive, path, kind)
        except ModelFileError:
            raise
        except Exception as error:  # the checksum holds, so whoever wrote this was not save_arrays
            raise ModelFileError(f"{path}: refused, this is not what crfbook writes ({error})") from None


def _write_zip(file, members):
    # Stored, not deflated: weights hardly shrink, and a small file cannot unpack into a large one.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = _MARK + b"0" * _DIGITS
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                np.lib.format.write_array(out, array, allow_pickle=False)


def _seal(file):
    digest = _digest(file)
    file.seek(-_DIGITS, os.SEEK_END)
    file.write(digest)


def _digest(file):
    """Hash of all bytes but the last 64."""
    left = file.seek(0, os.SEEK_END) - _DIGITS
    file.seek(0)
    hashed = hashlib.sha256()
    while left > 0:
        block = file.read(min(left, 1 << 20))
        if not block:
            break
        hashed.update(block)
        left -= len(block)
    return hashed.hexdigest().encode()


def _check_seal(file, path):
    start = file.read(4 + 26 + len(_HEADER))  # a zip's first local header is 30 bytes, then the name
    if not (start[:4] == b"PK\x03\x04" and start[30:] == _HEADER.encode()):
        raise ModelFileError(f"{path}: this is not a crfbook model file")
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _DIGITS - len(_MARK)))
    tail = file.read()
    if not tail.startswith(_MARK):
        raise ModelFileError(
            f"{path}: the model file is cut short or damaged (its checksum is missing at the end)"
        )
    if _digest(file) != tail[len(_MARK) :]:
        raise ModelFileError(f"{path}: the model file is damaged (its checksum does not match its content)")


def _read_members(archive, path, kind):
    about = json.loads(_read_array(archive, _HEADER).tobytes().decode("utf-8", "surrogatepass"))
    if about["schema"] > SCHEMA:
        raise ModelFileError(
            f"{path}: written by crfbook {about['version']} with schema {about['schema']}; this version "
            f"reads schema {SCHEMA} and earlier: update crfbook"
        )
    if about["kind"] != kind:
        raise ModelFileError(f"{path}: expected a saved {kind}, got a saved {about['kind']}")
    names = {f"{name}.npy" for name in about["arrays"]} | {f"{_HEADER}.npy"}
    if names != set(archive.namelist()):
        raise ModelFileError(f"{path}: refused, its members differ from those its header names")
    arrays = {}
    for name, (dtype, shape) in about["arrays"].items():
        arrays[name] = _read_array(archive, name)
        if arrays[name].dtype.str != dtype or list(arrays[name].shape) != shape:
            raise ModelFileError(f"{path}: refused, array {name!r} is not the one its header describes")
    return about["header"], arrays


def _read_array(archive, name):
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1:
        raise ValueError(f"array {name!r} is compressed or encrypted")
    member = archive.read(info)  # stored, so at most as large as the file itself
    if info.file_size != len(member):
        raise ValueError(f"array {name!r} has another size than announced")
    file = io.BytesIO(member)
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"array {name!r} has the unknown npy version {version}")
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError(f"array {name!r} holds pickled objects, which are never loaded")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count * dtype.itemsize != len(member) - file.tell():
        raise ValueError(f"array {name!r} does not have the size that its shape says")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
