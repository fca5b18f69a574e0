"""Attributes that X brings along; the forms that X may have; rows of attributes of a corpus.

Attribute strings: a token is a list (tuple, set) of strings, each an attribute of value 1, or a dict, read by
python-crfsuite's rules: `{name: number}` has that value, True is 1 and False 0; `{name: "text"}` is the
attribute `name:text` of value 1; `{name: {...}}` and `{name: ["a", "b"]}` are nested: what is inside, with
`name:` in front. Bytes are UTF-8. Beyond that strings are never looked into: colons and line breaks are
characters like others. One rule is our own: a vector, `{name: [1.5, 1.6]}` or a 1-d array of numbers, has an
attribute for each component, `name:0`, `name:1`, ... An attribute given twice at a token counts once, in the
position of its first occurrence that is not 0, with the sum of its values. What equals a string, hash
included, may be taken for it: no subclass of str should change either. `dicts` has the fast readers; what
they refuse is read here, item by item.

Numbers: one dense array or scipy.sparse matrix (T_i, A) for each sequence. Column j is attribute "j", or has
the j-th of the given names. Zeros are absent; a column that is zero throughout training is no attribute.

Rows: the attribute side of a corpus, with sums of duplicates. Templates use them, too.
"""

from itertools import chain, repeat
from numbers import Real
from typing import NamedTuple

import numpy as np

from crfbook._checks import Stored, check_arrays, check_fields, shown, unexpected
from crfbook.data.corpus import (
    blocks,
    counted,
    gathered,
    offsets,
    owners,
    pointers_of_kept,
)
from crfbook.data.vocabulary import (
    falling_order,
    in_order,
    look_up,
    numbered,
    pack_strings,
    unpack_strings,
    where,
)
from crfbook.encoding.dicts import LISTS, UNREADABLE, ItemNumbers, is_number
from crfbook.encoding.templates import available

_BLOCK = 1 << 12  # tokens whose duplicates are looked for at once: limits the scratch memory


class Rows(NamedTuple):
    """The attribute side of a `Corpus`, same names, dtypes and shapes; `attr_val` None: all ones."""

    attr_ptr: np.ndarray
    attr_idx: np.ndarray
    attr_val: np.ndarray | None = None
    edge_class: np.ndarray | None = None
    class_ptr: np.ndarray | None = None
    class_attr: np.ndarray | None = None


def sum_duplicates(ptr, idx, val):
    """Attributes that occur twice at a token become one whose values are added.

    A row keeps its order: the values are added at the first occurrence that is not 0. So no row depends on
    others.
    Returns (ptr, idx, val) unchanged if there are no duplicates. `val` may be None (all ones).
    """
    n = len(ptr) - 1
    width = int(idx.max(initial=-1)) + 1

    def keys(rows):
        """Row * width + attribute of a block's occurrences, and where these stand."""
        items = slice(ptr[rows.start], ptr[rows.stop])
        return owners(ptr[rows.start : rows.stop + 1]) * width + idx[items], items

    if not any((np.diff(np.sort(keys(rows)[0])) == 0).any() for rows in blocks(n, _BLOCK)):
        return ptr, idx, val
    first, sums = np.zeros(len(idx), bool), []
    for rows in blocks(n, _BLOCK):
        key, items = keys(rows)
        here = None if val is None else val[items]
        if here is not None and not here.all():  # what is 0 stands nowhere
            order = np.argsort(here == 0.0, kind="stable")
            key, here = key[order], here[order]
        else:
            order = None
        _, place, inverse = np.unique(key, return_index=True, return_inverse=True)
        added = np.bincount(inverse, here, len(place))
        place = place if order is None else order[place]
        first[items][place] = True
        sums.append(added[np.argsort(place)].astype(np.float64))
    return pointers_of_kept(ptr, first), idx[first], np.concatenate(sums)


def is_columns(X):
    """Is X a `TokenColumns`, or anything with its `columns` and `seq_ptr`?"""
    return hasattr(X, "columns") and hasattr(X, "seq_ptr")


def kind_of(X, template):
    """The form that X is to be read in: "template", "items" or "matrix"; None if X holds no token."""
    in_order(X, "X")
    if template is not None:
        return "template"
    if is_columns(X):
        raise ValueError(
            "columns of strings need a template: a file, a text, "
            f"or one of the shipped ones ({', '.join(available())})"
        )
    first = None
    for i, sequence in enumerate(X):
        if not (hasattr(sequence, "__len__") or hasattr(sequence, "tocsr")):
            raise TypeError(f"sequence {i}: expected a list of tokens, got {shown(sequence)}")
        if _length(sequence):
            first = sequence
            break
    if first is None:
        return None
    dense = isinstance(first, np.ndarray) and (first.ndim != 1 or first.dtype.kind in "biuf")
    return "matrix" if dense or hasattr(first, "tocsr") else "items"


def pointers(sequences):
    """int64 (S+1,): where each sequence begins in the flat order."""
    return offsets([_length(sequence) for sequence in sequences])


def as_sequences(X):
    """X as a list of sequences with lengths. Raises TypeError for one sequence in place of a list of them."""
    if isinstance(X, (str, bytes, dict)) or not hasattr(X, "__iter__"):
        raise TypeError(f"X: expected a list of sequences, got {type(X).__name__}")
    sequences = []
    for i, sequence in enumerate(X):
        if type(sequence) is list:
            sequences.append(sequence)
            continue
        if isinstance(sequence, (str, bytes, dict)):
            got = f"{shown(sequence)} (X is a list of sequences of tokens)"
            raise unexpected(f"sequence {i}", "a list of tokens", got, TypeError)
        if not hasattr(sequence, "__len__"):
            if hasattr(sequence, "items"):  # pycrfsuite.ItemSequence
                sequence = sequence.items()
            elif hasattr(sequence, "__iter__"):
                sequence = list(sequence)
            else:
                raise TypeError(f"sequence {i}: expected a list of tokens, got {shown(sequence)}")
        elif callable(getattr(in_order(sequence, f"sequence {i}", "a list of tokens"), "items", None)):
            # `items` of a pandas Series gives its index too
            sequence = list(sequence) if hasattr(sequence, "iloc") else sequence.items()
        sequences.append(sequence)
    return sequences


def _length(sequence):
    return sequence.shape[0] if hasattr(sequence, "tocsr") else len(sequence)


# ---- attribute strings ----


class _Given:
    """What both alphabets share: no edge attributes but the constant one."""

    n_edge_attrs = 1

    def edge_names(self):
        """Texts of the edge attributes."""
        return ["B"]


class ItemAttributes(_Given):
    """Alphabet of attribute strings; ids by falling count, then by string."""

    kind, reads = "items", "attribute dicts or lists"

    def __init__(self):
        self.names, self._ids = [], {}

    @property
    def n_attrs(self):
        return len(self.names)

    def learn(self, tokens, seq_ptr, min_freq):
        """Build the alphabet from a flat list of tokens; returns (Rows, occurrences of each attribute)."""
        ptr, numbers, names, values, own = _read(tokens, seq_ptr)
        ids, counts = self._take_up(names, counted(numbers, len(names)), min_freq)
        del names
        return _rows(ptr, numbers, ids, values, own), counts

    def merged(self, counts, other, other_counts):
        """(attributes of both, their counts), of counts (A,) each; both learnt without min_freq."""
        new = ItemAttributes()
        return new, new._take_up(self.names + other.names, np.concatenate([counts, other_counts]), 1)[1]

    def places(self, merged):
        """The ids of these attributes, and of these edge attributes, in `merged`."""
        return look_up(merged.ids, self.names, len(self.names)), np.zeros(1, np.int32)

    def _take_up(self, names, counts, min_freq):
        """Become the alphabet of these names, some of them the same, that occur so often.

        Returns (id of each name, -1 for a rare one; occurrences of each attribute).
        """
        place, distinct = numbered(names, len(names))
        counts = np.bincount(place, counts, len(distinct)).astype(np.int64)
        by_name = np.array(sorted(range(len(distinct)), key=distinct.__getitem__), np.int64)
        by_name = by_name[counts[by_name] >= max(min_freq, 1)]
        kept = by_name[falling_order(counts[by_name])[0]]
        self.names = [distinct[i] for i in kept.tolist()]
        ids = np.full(len(distinct), -1, np.int32)
        ids[kept] = np.arange(len(kept), dtype=np.int32)
        return ids[place], counts[kept]

    def apply(self, tokens, seq_ptr):
        """Rows of other tokens; attributes not in the alphabet are left out."""
        ptr, numbers, names, values, own = _read(tokens, seq_ptr)
        return _rows(ptr, numbers, look_up(self.ids, names, len(names)), values, own)

    @property
    def ids(self):
        """{name: id}, made when first asked for."""
        if len(self._ids) != len(self.names):
            self._ids = {name: i for i, name in enumerate(self.names)}
        return self._ids

    def node_names(self, ids=None):
        """Attribute strings, for all ids or for a list of them."""
        return list(self.names) if ids is None else [self.names[i] for i in ids]

    def get_state(self):
        """(JSON-able header, dict of arrays)."""
        text, ptr = pack_strings(self.names)
        return {}, {"names_text": text, "names_ptr": ptr}

    @classmethod
    def from_state(cls, header, arrays, trust=False):
        """The inverse of `get_state`. ValueError for arrays that are not what it gives."""
        new = cls()
        new.names = unpack_strings(arrays, "names_", "all different")
        return new


def _rows(ptr, numbers, ids, values, own):
    """Rows from numbers of items, whose array is taken: item d is attribute ids[d] with value values[d].

    own : float64 (nnz,), factors of the values, or None.
    """
    known = ids >= 0
    if not known.all():
        known = gathered(known, numbers)
        ptr, numbers, own = pointers_of_kept(ptr, known), numbers[known], None if own is None else own[known]
    val = gathered(values, numbers) if (values != 1).any() else None
    if own is not None:
        val = own if val is None else np.multiply(val, own, out=val)
    return Rows(*sum_duplicates(ptr, gathered(ids, numbers, out=numbers), val))


def _read(tokens, seq_ptr):
    """(ptr, numbers, names, values, own) of all tokens.

    ptr : int64 (N+1,). numbers : int32 (nnz,), of items.
    names, values : of the items; values are float64. Several items may have one name.
    own : float64 (nnz,), factors of the values, or None.
    """
    try:
        if all(issubclass(kind, LISTS) for kind in set(map(type, tokens))):
            ptr = offsets(np.fromiter(map(len, tokens), np.int64, len(tokens)))
            numbers, distinct = numbered(chain.from_iterable(tokens), int(ptr[-1]))
            if set(map(type, distinct)) <= {str}:
                return ptr, numbers, distinct, np.ones(len(distinct)), None
        reader = ItemNumbers()
        sizes, numbers, own = reader.read_all(tokens)
        return offsets(sizes), numbers, reader.names, np.array(reader.values), own
    except UNREADABLE:
        pass  # token by token, which says where it is
    items = [_pairs(token, t, seq_ptr) for t, token in enumerate(tokens)]
    numbers, pairs = numbered(chain.from_iterable(items), sum(map(len, items)))
    values = np.array([value for _, value in pairs])
    return offsets(list(map(len, items))), numbers, [name for name, _ in pairs], values, None


def _pairs(token, t, seq_ptr):
    """One token as a list of (name, value) without nesting; raises TypeError naming the token."""
    if not isinstance(token, (dict, *LISTS)):
        wanted = "a dict or a list of attribute strings"
        wanted += " (template='words' reads words)" if isinstance(token, str) else ""
        raise unexpected(where(t, seq_ptr), wanted, shown(token), TypeError)
    try:
        return list(_unfold(token))
    except RecursionError:  # some 1,000 levels; a dict that holds itself has no end
        raise ValueError(f"{where(t, seq_ptr)}: the attributes are nested too deeply") from None
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError  # no narrower kind
        raise kind(f"{where(t, seq_ptr)}: {error}") from None


def _unfold(token):
    for name, value in token.items() if isinstance(token, dict) else zip(token, repeat(1.0)):
        value = _named(value)
        if isinstance(value, (dict, list, set)):
            for inner, inner_value in _unfold(value):
                yield _understand(f"{_text(name)}:{_text(inner)}", inner_value)
        else:
            yield _understand(name, value)


def _named(value):
    """A vector of numbers (1-d array, or list) as a dict; whatever else as it is."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biuf":
        value = value.tolist()
    if isinstance(value, list) and all(map(is_number, value)):
        return {str(j): x for j, x in enumerate(value)}
    return value


def _understand(name, value):
    """(attribute string, value as float) of one item of a dict."""
    name = _text(name)
    if isinstance(value, (str, bytes)):
        return f"{name}:{_text(value)}", 1.0
    if not is_number(value):
        wanted = "a number, a bool, a string, a dict or a list"
        raise unexpected(f"attribute {shown(name)}", wanted, shown(value), TypeError)
    try:
        number = float(value.real)
    except OverflowError:  # an integer of more than 308 digits
        what = f"attribute {shown(name)}"
        raise unexpected(what, "a value within float64", "an integer that exceeds it") from None
    if not np.isfinite(number):
        raise unexpected(f"attribute {shown(name)}", "a finite value", number)
    return name, number


def _text(name):
    if isinstance(name, str):
        return str.__str__(name)  # what it holds, as it is hashed and compared; an Enum may say another text
    if isinstance(name, bytes):
        return name.decode("utf-8")
    hint = " (dense input: give a list of NumPy arrays)" if isinstance(name, Real) else ""
    raise TypeError(f"expected attribute names that are strings, got {shown(name)}{hint}")


# ---- numbers ----


class MatrixAttributes(_Given):
    """Alphabet of columns; ids by falling number of non-zero entries, then by column."""

    kind, reads = "matrix", "dense or sparse arrays"

    def __init__(self, column_names=None):
        self.column_names = None if column_names is None else list(column_names)
        self.n_columns, self.columns = 0, np.zeros(0, np.int64)

    @property
    def n_attrs(self):
        return len(self.columns)

    def learn(self, matrices, seq_ptr, min_freq):
        """Build the alphabet; returns (Rows, non-zero entries of each attribute)."""
        self.n_columns = next((matrix.shape[1] for matrix in matrices if matrix.shape[0]), 0)
        if self.column_names is not None and len(self.column_names) != self.n_columns:
            raise ValueError(f"{len(self.column_names)} attribute names for {self.n_columns} columns")
        ptr, column, val = self._read(matrices)
        counts = self._take_up(np.bincount(column, minlength=self.n_columns), min_freq)
        return self._rows(ptr, column, val), counts

    def merged(self, counts, other, other_counts):
        """As of `ItemAttributes`. ValueError unless both have as many columns."""
        if self.n_columns != other.n_columns:
            both = f"{self.n_columns} and {other.n_columns}"
            raise unexpected("columns of numbers", "the same in all parts of a text", both)
        new, together = MatrixAttributes(self.column_names), np.zeros(self.n_columns, np.int64)
        new.n_columns = self.n_columns
        together[self.columns] += counts
        together[other.columns] += other_counts
        return new, new._take_up(together, 1)

    def places(self, merged):
        """As of `ItemAttributes`."""
        return merged._ids()[self.columns], np.zeros(1, np.int32)

    def _take_up(self, counts, min_freq):
        """Become the alphabet of columns that occur so often; returns the occurrences of each attribute."""
        kept = np.flatnonzero(counts >= max(min_freq, 1))
        self.columns = kept[falling_order(counts[kept])[0]]
        return counts[self.columns]

    def _ids(self):
        """int32: the attribute of each column, or -1."""
        ids = np.full(self.n_columns, -1, np.int32)
        ids[self.columns] = np.arange(self.n_attrs, dtype=np.int32)
        return ids

    def apply(self, matrices, seq_ptr):
        """Rows of other matrices; columns without an attribute are left out."""
        return self._rows(*self._read(matrices))

    def node_names(self, ids=None):
        """Names of the columns in the order of ids."""
        columns = (self.columns if ids is None else self.columns[np.asarray(ids, np.int64)]).tolist()
        return [str(j) if self.column_names is None else self.column_names[j] for j in columns]

    def get_state(self):
        """(JSON-able header, dict of arrays)."""
        text, ptr = pack_strings(self.column_names or [])
        arrays = {"columns": self.columns, "names_text": text, "names_ptr": ptr}
        return {"n_columns": self.n_columns, "named": self.column_names is not None}, arrays

    @classmethod
    def from_state(cls, header, arrays, trust=False):
        """The inverse of `get_state`. ValueError for arrays that are not what it gives."""
        check_fields(header, {"n_columns": ((int,), 0), "named": ((bool,), None)})
        names, n_columns = unpack_strings(arrays, "names_"), header["n_columns"]
        if len(names) != (n_columns if header["named"] else 0):
            raise ValueError(f"names_text: expected names of {n_columns} columns or none, got {len(names)}")
        check_arrays(arrays, {"columns": Stored(np.int64, (None,), 0, n_columns, "all different")})
        new = cls(names if header["named"] else None)
        new.n_columns, new.columns = n_columns, arrays["columns"]
        return new

    def _rows(self, ptr, column, val):
        ids = self._ids()[column]
        known = ids >= 0
        val = val[known]
        return Rows(pointers_of_kept(ptr, known), ids[known], None if (val == 1).all() else val)

    def _read(self, matrices):
        """All matrices as one CSR without zeros: ptr int64 (N+1,), column int and value float64 (nnz,)."""
        sizes, columns, values = [], [np.zeros(0, np.int64)], [np.zeros(0)]
        for i, matrix in enumerate(matrices):
            if matrix.shape[0] == 0:
                continue
            if matrix.shape[1] != self.n_columns:
                raise ValueError(f"sequence {i}: expected {self.n_columns} columns, got {matrix.shape[1]}")
            row, column, value = _entries(matrix)
            bad = ~np.isfinite(value)
            if bad.any():
                k = int(np.argmax(bad))
                place = f"sequence {i}, token {row[k]}, column {column[k]}"
                raise unexpected(place, "a finite number", value[k])
            sizes.append(np.bincount(row, minlength=matrix.shape[0]))
            columns.append(column)
            values.append(value)
        ptr = np.concatenate([np.zeros(1, np.int64), *sizes]).cumsum()
        return ptr, np.concatenate(columns), np.concatenate(values)


def checked_matrix(i, matrix):
    """Sequence i with `.shape` (T, A) and numbers inside; ValueError or TypeError that names it."""
    if not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix)
        if matrix.ndim == 1 and matrix.size == 0:
            matrix = np.zeros((0, 0))
    if len(matrix.shape) != 2:
        shape = f"shape {matrix.shape}"
        raise unexpected(f"sequence {i}", "an array of shape (tokens, attributes)", shape)
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"sequence {i}: expected an array of real numbers, got dtype {matrix.dtype}")
    return matrix


def _entries(matrix):
    """(row, column, value float64) of what is not zero, by rows."""
    if hasattr(matrix, "tocsr"):
        matrix = matrix.tocsr().copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return owners(matrix.indptr), matrix.indices.astype(np.int64), matrix.data.astype(np.float64)
    row, column = np.nonzero(matrix)
    return row, column, matrix[row, column].astype(np.float64)
