"""Models of CRFsuite, from its files or its tagger: what `CRF.save` would have written of them.

A file has a header, weights, and names of labels and of attributes. All numbers are little-endian uint32,
weights float64. A place counts bytes from the beginning of the chunk; those of the header count from its own.

    header     "lCRF", size, "FOMC", 100, 0, L, A, places of the five chunks
    weights    "FEAT", size, n, n records: 0 and attribute, or 1 and previous label; label; weight
    names      (twice) "CQDB", size, 0, byte order, n, place of n numbers: the places of n records, each
               a number (0, 1, ...), the length of the string, the string and a zero byte
    records    "LFRF" and "AFRF" list the weights of each label and attribute: nothing that is not said above

Every place, count and id is held against the size of the file before it is used. There is no checksum: a
weight that was changed is not noticed. Source: CRFsuite 0.12, crf1d_model.c and cqdb.c.
"""

import os
import re
import struct
from typing import Any

import numpy as np

from crfbook._checks import ModelFileError, file_name, shown
from crfbook.data.features import FeatureSet, from_keys
from crfbook.data.vocabulary import pack_strings

MAGIC = b"lCRF"
CHUNKS = {
    "weights": b"FEAT", "labels": b"CQDB", "attributes": b"CQDB",
    "records of labels": b"LFRF", "records of attributes": b"AFRF",
}  # fmt: skip
BYTE_ORDER = 0x62445371
_HEADER, _WEIGHTS = struct.Struct("<4sI4s9I"), struct.Struct("<4sII")
_NAMES, _NAME = struct.Struct("<4s5I"), struct.Struct("<II")
_RECORD = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
STATE, TRANSITION = 0, 1


def read_crfsuite(source: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(header, arrays) of a model, as `CRF.save` would have written them.

    source : path of a model file, or a `pycrfsuite.Tagger` that has opened one.
    Raises ModelFileError for what is damaged or of another program, TypeError for another source, OSError as
    the file system says.
    """
    if hasattr(source, "info"):
        name, read = type(source).__name__, _told
    elif isinstance(source, (str, bytes, os.PathLike)):
        name, read = file_name(source, "from_crfsuite"), _read
    else:
        raise TypeError(
            f"from_crfsuite: expected a path, or a tagger that has opened a model, got {shown(source)}"
        )
    try:
        return _as_saved(*read(source))
    except (ValueError, KeyError, AttributeError, AssertionError) as error:
        odd = " (names with line breaks or '-->' its info() cannot tell: give the path of the model file)"
        fault = f"this is no intact model of CRFsuite, {error}{odd if read is _told else ''}"
        raise ModelFileError(f"{name}: {fault}") from None


def _need(condition, what):
    if not condition:
        raise ValueError(what)


def _read(path):
    """(labels, attributes, records) of a model file."""
    with open(path, "rb") as file:
        start = file.read(_HEADER.size)
        _need(start[:4] == MAGIC, f"it does not begin with {MAGIC!r}")
        size = file.seek(0, os.SEEK_END)
        _need(len(start) == _HEADER.size, f"its header is cut short at {size} bytes")
        _, announced, kind, version, _, n_labels, n_attributes, *places = _HEADER.unpack(start)
        known = f"of kind {kind} and version {version}, expected b'FOMC' and 100"
        _need((kind, version) == (b"FOMC", 100), known)
        _need(size == announced, f"it has {size:,} bytes and announces {announced:,}")
        file.seek(0)
        raw = file.read()
    _need(len(raw) == size, f"it has {len(raw):,} bytes and announces {size:,}")
    for (name, mark), place in zip(CHUNKS.items(), places, strict=True):
        _need(raw[place : place + 4] == mark, f"its {name} do not begin at byte {place:,}")
    _, size, n = _unpacked(_WEIGHTS, raw, places[0])
    fits = size == _WEIGHTS.size + n * _RECORD.itemsize and places[0] + size <= len(raw)
    _need(fits, f"{n:,} weights do not fit into their {size:,} bytes")
    records = np.frombuffer(raw, _RECORD, n, places[0] + _WEIGHTS.size)
    labels = _strings(raw, places[1], n_labels, "labels")
    return labels, _strings(raw, places[2], n_attributes, "attributes"), records


def _unpacked(form, raw, place):
    _need(place + form.size <= len(raw), f"it ends within what begins at byte {place:,}")
    return form.unpack_from(raw, place)


def _strings(raw, place, n, what):
    """The n strings that are listed at `place`. They take their own bytes each: together no more than the
    file has, whatever it says of their lengths."""
    _, size, _, order, n_listed, table = _unpacked(_NAMES, raw, place)
    fits = place + size <= len(raw) and (not n or table + 4 * n <= size)
    _need(order == BYTE_ORDER and n_listed == n and fits, f"its list of {n:,} {what} is damaged")
    chunk, left, strings = raw[place : place + size], size, []
    for i, at in enumerate(np.frombuffer(chunk, "<u4", n, table if n else 0).tolist()):
        number, length = _unpacked(_NAME, chunk, at)
        left -= length
        begin = at + _NAME.size
        text = chunk[begin : begin + length] if left >= 0 else b""
        whole = number == i and len(text) == length and text.find(b"\0") == length - 1
        _need(whole, f"number {i:,} of its {what} is damaged")
        try:
            strings.append(text[:-1].decode("utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"number {i:,} of its {what} is not UTF-8: {shown(text[:-1])}") from None
    return strings


def _told(tagger):
    """(labels, attributes, records) of what a tagger tells of its model. Its `info()` reads them out of lines
    such as "(0) attribute --> label: 0.5": other names than those of the model are refused.
    """
    info = tagger.info()
    labels, attributes = (sorted(d, key=lambda s: int(d[s])) for d in (info.labels, info.attributes))
    sizes = int(info.header["num_labels"]), int(info.header["num_attrs"])
    whole = labels == tagger.labels() and (len(labels), len(attributes)) == sizes
    used = {a for a, _ in info.state_features} == set(attributes)
    _need(whole and used and not any(re.search(r"--> |: [+-]?\d", label) for label in labels), "odd names")
    label, attribute = ({name: i for i, name in enumerate(names)} for names in (labels, attributes))
    rows = [(STATE, attribute[a], label[y], w) for (a, y), w in info.state_features.items()]
    rows += [(TRANSITION, label[y], label[z], w) for (y, z), w in info.transitions.items()]
    return labels, attributes, np.array(rows, _RECORD)


def _as_saved(labels, attributes, records):
    """(header, arrays) of the model in the form of `Saved.save`. Labels keep their order: of equally good
    labellings both programs take the first one. Raises ValueError for weights of what does not exist."""
    n_labels, state = len(labels), records["kind"] == STATE
    source, label = records["source"].astype(np.int64), records["label"].astype(np.int64)
    most = np.where(state, len(attributes), n_labels)
    right = (records["kind"] <= TRANSITION) & (source < most) & (label < n_labels)
    right &= np.isfinite(records["weight"])
    _need(right.all(), f"weight {np.append(right, False).argmin():,} is damaged")
    order = np.lexsort((label, source, ~state))  # of attributes first, as in `FeatureSet`
    state, keys = state[order], (source * n_labels + label)[order]
    features = from_keys(n_labels, len(attributes), 1, keys[state], keys[~state])._asdict()
    text, ptr = pack_strings(attributes)
    arrays = {"encoder.names_text": text, "encoder.names_ptr": ptr}
    arrays["encoder.attribute_counts"] = np.zeros(len(attributes), np.int64)  # which the file does not have
    arrays |= {f"features.{name}": features.pop(name) for name in FeatureSet._fields[3:]}
    arrays |= {"weights": records["weight"][order].astype(np.float64), "history.iteration": np.zeros(0)}
    encoder = {"kind": "items", "labels": labels, "min_freq": 0, "columns": None, "attributes": {}}
    fitted = {"objective_": float("nan"), "status_": "read from CRFsuite", "n_iter_": 0, "n_dropped_": 0}
    header = {"params": {}, "features": features, "encoder": encoder, "fitted": fitted}
    return header | {"trained_by": "lbfgs", "n_seen": 0}, arrays
