"""Reads texts in pieces: files of columns and of Parquet, columns in memory, pairs (X, y), frames of pandas.

A piece is (X, y, sample weights or None), as `CRF.fit` takes them. One piece is in memory at a time, or the
row groups of a Parquet file. A file that changes between hashing and reading is refused.
"""

import hashlib
import io
import os
import pickle
from itertools import chain
from types import SimpleNamespace

import numpy as np

from crfbook._checks import file_name, one_line, shown
from crfbook.data.columns import TokenColumns
from crfbook.data.corpus import offsets
from crfbook.data.readers import MAX_SENTENCE, iter_conll
from crfbook.data.vocabulary import flat_labels

PARQUET = ".parquet", ".pq"
BLOCK = 1 << 20  # bytes of a file that are hashed together


def is_file(text):
    return isinstance(text, str | os.PathLike)


def is_parquet(path):
    return str(path).lower().endswith(PARQUET)


def parquet():
    """pyarrow.parquet, or the sentence that says how to get it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "Parquet files need pyarrow, which is not installed: it comes with the extra 'distributed'"
        ) from None
    return pyarrow.parquet


def pieces(text, n_tokens, columns=None, label="label", file=None):
    """Yield (X, y, weights) of at least n_tokens tokens each, but the last.

    text : path of a file of columns (blank lines between sentences) or of Parquet (a row a sentence, lists of
        strings); `TokenColumns`; (X, y) or (X, y, sample_weight); pandas.DataFrame, a row a sentence; a list
        of pairs (x, y), a sentence each.
    columns : names of the columns of a file, the label's among them; Parquet has its own.
    label : the column that holds labels; None: there are none.
    file : of a path, the `SameFile` that is read; None: a new one.

    Raises ValueError or TypeError naming the file, or the sequence and token.
    """
    if not is_file(text):
        yield from _cut(*_in_memory(text, label), n_tokens)
    elif is_parquet(text):
        yield from _parquet_pieces(file or same_file(text), n_tokens, label)
    elif columns is None:
        raise ValueError(f"{text}: expected columns=, the names of the columns of this file, got none")
    else:
        for piece in iter_conll(file or same_file(text), columns, label, n_tokens=n_tokens):
            yield piece, None, None


def _in_memory(text, label):
    """(X, y, weights) of a text that is no file."""
    if isinstance(text, TokenColumns):
        return text, None, None
    if hasattr(text, "to_dict") and hasattr(text, "columns"):  # a DataFrame
        lists = {str(name): text[name].tolist() for name in text.columns}
        return _of_lists(lists, label, "row", 0), None, None
    if isinstance(text, tuple) and len(text) in (2, 3) and not hasattr(text[0], "attr_ptr"):
        X, y, weights = (*text, None)[:3]
        if isinstance(X, TokenColumns) and y is not None:  # may be flat
            labels = flat_labels(y, X.seq_ptr, may_be_flat=True)
            X, y = TokenColumns(X.columns, X.seq_ptr, labels, X.label_name), None
        return X, y, weights
    if isinstance(text, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in text):
        return [x for x, _ in text], [y for _, y in text], None
    raise TypeError(
        "texts: expected paths, TokenColumns, tuples (X, y) or (X, y, sample_weight), DataFrames or lists "
        f"of pairs (x, y), got {shown(text)}"
    )


def _cut(X, y, weights, n_tokens):
    """Neighbouring sequences, at least n_tokens tokens each time."""
    weights = weights if weights is None or hasattr(weights, "__len__") else list(weights)
    y = y if y is None or hasattr(y, "__getitem__") else list(y)
    X = X if hasattr(X, "__getitem__") else list(X)
    if y is not None and len(X) != len(y):
        raise ValueError(f"X has {len(X)} sequences but y has {len(y)}")
    if weights is not None and len(weights) != len(X):
        raise ValueError(f"X has {len(X)} sequences but sample_weight has {len(weights)}")
    lengths = lengths_of(X)
    start, tokens = 0, 0
    for i, length in enumerate(lengths):
        tokens += int(length)
        if tokens >= n_tokens or i == len(lengths) - 1:
            part = slice(start, i + 1)
            yield X[part], None if y is None else y[part], None if weights is None else weights[part]
            start, tokens = i + 1, 0


def lengths_of(X):
    """Tokens of each sequence."""
    if hasattr(X, "seq_ptr"):
        return np.diff(X.seq_ptr).tolist()
    # what is no sequence counts as one token: the encoder raises the error
    return [x.shape[0] if getattr(x, "shape", ()) else len(x) if hasattr(x, "__len__") else 1 for x in X]


def _of_lists(lists, label, what, first):
    """`TokenColumns` of a table whose cells are lists, a row a sentence; first : number of its first row."""
    if label is not None and label not in lists:
        raise ValueError(f"{what}: expected a column {label!r} of labels, got {', '.join(map(repr, lists))}")
    sizes = None
    for name, column in lists.items():
        for i, cell in enumerate(column):
            if isinstance(cell, str) or not hasattr(cell, "__len__"):
                raise ValueError(f"{what} {first + i}, column {name!r}: expected a list, got {shown(cell)}")
            most = f"at most {MAX_SENTENCE:,} values" if len(cell) > MAX_SENTENCE else ""
            if most or (sizes is not None and len(cell) != sizes[i]):
                wanted = f"expected {most or f'{sizes[i]} values, as in the first column'}, got {len(cell)}"
                raise ValueError(f"{what} {first + i}, column {name!r}: {wanted}")
        sizes = sizes or list(map(len, column))
    flat = {name: list(chain.from_iterable(column)) for name, column in lists.items()}
    labels = flat.pop(label) if label is not None else None
    return TokenColumns(flat, offsets(sizes or []), labels, label or "label")


def _parquet_pieces(file, n_tokens, label):
    held, tokens, batches = [], 0, parquet_batches(file, 1024, label)
    next(batches)
    for _, part in batches:
        tokens += part.n_tokens
        held.append(part)
        if tokens >= n_tokens:
            yield joined(held), None, None
            held, tokens = [], 0
    if held:
        yield joined(held), None, None


def parquet_batches(file, size, label=None, wanted=None):
    """Yield the schema of an open file of Parquet, then (rows, their `TokenColumns`), `size` rows at a time.

    wanted : function of the names that are there, gives those that are read; None: all. ValueError that names
    the file for one that is damaged, or holds anything but lists.
    """
    first, name = 0, file.name
    try:
        with parquet().ParquetFile(file) as opened:
            if len(set(names := opened.schema_arrow.names)) < len(names):
                raise ValueError(f"expected columns with different names, got {', '.join(map(repr, names))}")
            yield opened.schema_arrow
            for batch in opened.iter_batches(batch_size=size):
                chosen = batch.select(wanted(batch.schema.names)) if wanted else batch
                lists = {column: chosen.column(column).to_pylist() for column in chosen.schema.names}
                yield batch, _of_lists(lists, label, f"{name}, row", first)
                first += len(batch)
    except Exception as error:
        if isinstance(error, ImportError) or getattr(error, "errno", None):
            raise
        raise named(error, name) from None


def joined(parts):
    """Several `TokenColumns` with the same columns as one."""
    first = parts[0]
    columns = {name: list(chain.from_iterable(p.columns[name] for p in parts)) for name in first.columns}
    labels = None if first.labels is None else list(chain.from_iterable(p.labels for p in parts))
    lengths = np.concatenate([np.diff(part.seq_ptr) for part in parts])
    return TokenColumns(columns, offsets(lengths), labels, first.label_name)


def regular(path):
    """`path` as str; ValueError for a folder or a pipe."""
    name = file_name(path)
    if os.path.exists(name) and not os.path.isfile(name):
        raise ValueError(f"{name}: expected a file, which can be read twice, got a folder or a pipe")
    return name


def same_file(path):
    """An open file: what is read has the hash `raw.digest`, or there is an error."""
    return io.BufferedReader(_Blocks(regular(path)), BLOCK)


class _Blocks(io.FileIO):
    """A file whose blocks must have the hashes that they had when it was opened."""

    def __init__(self, path):
        super().__init__(path)
        self.hashes, whole = [], hashlib.sha256()
        while block := self.read(BLOCK):
            self.hashes.append(hashlib.sha256(block).digest())
            whole.update(block)
        self.digest = whole.hexdigest()
        self.seek(0)

    def readinto(self, out):
        i, start = divmod(self.tell(), BLOCK)
        if i >= len(self.hashes):
            return 0
        self.seek(i * BLOCK)
        block = self.read(BLOCK)
        if hashlib.sha256(block).digest() != self.hashes[i]:
            raise ValueError(
                f"{self.name}: expected a file that stays as it is, it changed while it was read"
            )
        part = block[start : start + len(out)]
        out[: len(part)] = part
        self.seek(i * BLOCK + start + len(part))
        return len(part)


def digest_of(value):
    """Hash of plain objects, arrays and tables. Equal ones have the same, whatever they share or cache.

    Dicts and sets must have their entries in the same order.
    """
    digest = hashlib.sha256()
    pickler = _Plain(SimpleNamespace(write=digest.update), protocol=5)
    pickler.fast = True  # each object anew, so that shared or not the bytes are the same
    pickler.dump(value)
    return digest.hexdigest()


class _Plain(pickle.Pickler):
    """Pickles the content of objects, not what they share or cache."""

    def reducer_override(self, value):
        if isinstance(value, TokenColumns):
            return tuple, ((tuple(value.columns.items()), value.seq_ptr.tolist(), value.labels),)
        if hasattr(value, "tocsr"):  # a sparse matrix remembers what it has been asked
            rows = value.tocsr(copy=True)
            rows.sum_duplicates()
            return tuple, ((rows.shape, rows.indptr, rows.indices, rows.data),)
        if hasattr(value, "to_dict") and hasattr(value, "columns"):
            return tuple, (tuple((str(name), value[name].tolist()) for name in value.columns),)
        return NotImplemented


def named(error, name):
    """The same kind of error, whose sentence begins with the name of the text."""
    said = str(error)
    said = one_line(said if said.startswith(str(name)) else f"{name}: {said}")
    return TypeError(said) if isinstance(error, TypeError) else ValueError(said)
