"""Model files, and what else is kept as arrays with a header: the format.

A file is a zip of plain arrays (npz) with a JSON header and a checksum over every byte.

    crfbook_header.npy      uint8, UTF-8 JSON: {"schema", "kind", "version", "arrays": {name: [dtype, shape]},
                            "header"}
    <name>.npy              one member for each array
    zip comment             "crfbook sha256 " + 64 hexadecimal digits: the hash of all bytes before the digits
`numpy.load(path)` opens it too. Nothing is ever unpickled: object arrays are refused on both ways, and no
array is looked at before the checksum, the header and the schema version are in order.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import time
import zipfile

import numpy as np

from crfbook._checks import ModelFileError, Stored, check_arrays, check_fields, file_name, pointers
from crfbook.data.crfsuite import MAGIC
from crfbook.data.features import FeatureSet

SCHEMA = 1
SIZES = FeatureSet._fields[:3]
_HEADER = "crfbook_header"
_MARK = b"crfbook sha256 "
_DIGITS = 64
ABANDONED = 3600  # seconds without a write after which an unfinished file has no living save


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
    ValueError : no name for a file.
    """
    path, members = target(path), _members(kind, header, arrays)
    _sweep(*os.path.split(path))
    with replacing(path) as beside, open(beside, "xb+") as file:
        _write_zip(file, members)
        _seal(file)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path):
    """Context manager: the name of a new file, which is moved to `path` at the end of the block.

    After an error it is removed, and `path` stays as it was. Open it with "x": never through a file, or a
    link, of others.
    """
    beside = f"{path}.{secrets.token_hex(6)}.tmp"
    try:
        yield beside
        os.replace(beside, path)
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def file_bytes(kind, header, arrays):
    """The content of the file that `save_arrays` writes."""
    file = io.BytesIO()
    _write_zip(file, _members(kind, header, arrays))
    _seal(file)
    return file.getvalue()


def _members(kind, header, arrays):
    """{name: array} of a file, the header first."""
    from crfbook import __version__

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
    return {_HEADER: np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8), **arrays}


def target(path):
    """The full path of a file that is to be written. ValueError for no name of a file, OSError where none can
    be.
    """
    path = os.path.realpath(file_name(path, "cannot save the model"))
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot save the model: there is no folder {folder}")
    if os.path.isdir(path):
        raise IsADirectoryError(f"cannot save the model: expected the name of a file, got the folder {path}")
    return path


def _sweep(folder, name):
    """Remove what killed saves of this very name left: `<name>.<12 hexadecimal digits>.tmp`, untouched for
    an hour. A living save writes without pause; younger files may be one's, and stay.
    """
    left = re.compile(re.escape(name) + r"\.[0-9a-f]{12}\.tmp")
    for entry in os.scandir(folder):
        if left.fullmatch(entry.name):
            with contextlib.suppress(OSError):  # another save was faster, or it is not ours to remove
                if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > ABANDONED:
                    os.unlink(entry.path)


def load_arrays(path, kind):
    """Read what `save_arrays` wrote: (header, {name: array}).

    Raises
    ------
    FileNotFoundError (or another OSError) : as the file system says.
    ValueError : no name for a file.
    ModelFileError : one sentence saying why the file is refused.
    """
    path = file_name(path, "cannot load the model")
    with open(path, "rb") as file:
        return _read(file, path, kind)


def arrays_of(content, name, kind):
    """`load_arrays` of the content of a file, which has this name in messages."""
    return _read(io.BytesIO(content), name, kind)


def _read(file, path, kind):
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
    while block := file.read(min(left, 1 << 20)):
        hashed.update(block)
        left -= len(block)
    return hashed.hexdigest().encode()


def _check_seal(file, path):
    start = file.read(4 + 26 + len(_HEADER))  # a zip's first local header is 30 bytes, then the name
    if not (start[:4] == b"PK\x03\x04" and start[30:] == _HEADER.encode()):
        whose = " but one of CRFsuite: CRF.from_crfsuite reads it" if start[:4] == MAGIC else ""
        raise ModelFileError(f"{path}: this is not a crfbook model file{whose}")
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
    held = archive.infolist()
    if sum(info.file_size for info in held) > archive.fp.seek(0, os.SEEK_END):
        raise ModelFileError(f"{path}: refused, its members are announced larger than the file")
    names = {f"{name}.npy" for name in about["arrays"]} | {f"{_HEADER}.npy"}
    if len(names) != len(held) or names != set(archive.namelist()):
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
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    read_header = readers.get(version)
    if read_header is None:
        raise ValueError(f"array {name!r} has the unknown npy version {version}")
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError(f"array {name!r} holds pickled objects, which are never loaded")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count * dtype.itemsize != len(member) - file.tell():
        raise ValueError(f"array {name!r} does not have the size that its shape says")
    flat = np.frombuffer(bytearray(member), dtype, count, file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def prefixed(group, arrays):
    """{"group.name": array} of the arrays that are not None."""
    return {f"{group}.{name}": array for name, array in arrays.items() if array is not None}


def part_of(group, arrays):
    """The inverse of `prefixed`, among arrays of other groups."""
    return {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{group}.")}


def check_layout(features, w, encoder, constraints):
    """ValueError unless the arrays of a loaded model fit together. Kernels trust them and check nothing."""
    check_features(features, constraints, (len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs))
    check_arrays({"weights": w}, {"weights": Stored(np.float64, (features.n_features,))})


def check_features(features, constraints, known=None):
    """ValueError unless a `FeatureSet` and `Constraints` (or None) of a file, of a model or of a shard, fit
    together. known : the sizes of their alphabets, where these are at hand.
    """
    check_fields(
        features._asdict(), {name: ((int,), least) for name, least in zip(SIZES, (1, 0, 1), strict=True)}
    )
    n_labels, n_attrs, n_edge_attrs = features.sizes
    known = known or features.sizes
    if features.sizes != known or max(n_attrs, n_edge_attrs * n_labels) * n_labels >= 2**63:
        raise ValueError(f"sizes of alphabets and weights: expected {known}, got {features.sizes}")
    labels = Stored(np.int32, (None,), 0, n_labels)
    check_arrays(features._asdict(), dict.fromkeys(("node_label", "edge_prev"), labels))
    n_node, n_edge = features.n_node, features.edge_prev.size
    check_arrays(
        features._asdict(),
        {
            "node_ptr": pointers(n_attrs, n_node),
            "edge_ptr": pointers(n_edge_attrs, n_edge),
            "edge_next": labels._replace(shape=(n_edge,)),
        },
    )
    for name in ("node_keys", "edge_keys"):  # their labels rise within each row
        check_arrays({name: getattr(features, name)}, {name: Stored(np.int64, order="rising")})
    if constraints is not None:
        tables = {name: table for name, table in constraints._asdict().items() if table is not None}
        shapes = zip(tables, ((n_labels, n_labels), (n_labels,), (n_labels,), (None, n_labels)), strict=False)
        check_arrays(tables, {name: Stored(bool, shape) for name, shape in shapes})
