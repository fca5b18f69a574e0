"""Attributes given ready-made: lists of strings, or dicts as python-crfsuite and sklearn-crfsuite take them.

A token is a list (tuple, set) of strings, each an attribute of value 1, or a dict, read by python-crfsuite's
rules: `{name: number}` has that value, True is 1 and False 0; `{name: "text"}` is the attribute `name:text`
of value 1; `{name: {...}}` and `{name: [...]}` are nested: what is inside, with `name:` in front. Bytes are
UTF-8. Beyond that strings are never looked into: colons and line breaks are characters like others.

Each distinct (name, value) is understood once; tokens only cost dict look-ups.
"""

from itertools import chain, repeat
from numbers import Real

import numpy as np

from crfbook.data.corpus import offsets
from crfbook.data.vocabulary import (
    falling_order,
    look_up,
    numbered,
    pack_strings,
    row_of,
    unpack_strings,
    where,
)
from crfbook.encoding.assemble import Rows, sum_duplicates

_LISTS = (list, tuple, set, frozenset)


class ItemAttributes:
    """Alphabet of attribute strings; ids by falling count, then by string."""

    kind = "items"
    n_edge_attrs = 1

    def __init__(self):
        self.names, self._ids = [], {}

    @property
    def n_attrs(self):
        return len(self.names)

    def learn(self, tokens, seq_ptr, min_freq):
        """Build the alphabet from a flat list of tokens; returns (Rows, occurrences of each attribute)."""
        ptr, numbers, names, values = _read(tokens, seq_ptr)
        place, distinct = numbered(names, len(names))
        counts = np.bincount(place, np.bincount(numbers, minlength=len(names)), len(distinct)).astype(
            np.int64
        )
        by_name = np.array(sorted(range(len(distinct)), key=distinct.__getitem__), np.int64)
        by_name = by_name[counts[by_name] >= min_freq]
        order, _ = falling_order(counts[by_name])
        kept = by_name[order]
        self.names = [distinct[i] for i in kept.tolist()]
        ids = np.full(len(distinct), -1, np.int32)
        ids[kept] = np.arange(len(kept), dtype=np.int32)
        return _rows(ptr, numbers, ids[place], values), counts[kept]

    def apply(self, tokens, seq_ptr):
        """Rows of other tokens; attributes not in the alphabet are left out."""
        ptr, numbers, names, values = _read(tokens, seq_ptr)
        if len(self._ids) != len(self.names):
            self._ids = {name: i for i, name in enumerate(self.names)}
        return _rows(ptr, numbers, look_up(self._ids, names, len(names)), values)

    def node_names(self, ids=None):
        """Attribute strings, for all ids or for a list of them."""
        return list(self.names) if ids is None else [self.names[i] for i in ids]

    def edge_names(self):
        """There is only the constant one."""
        return ["B"]

    def get_state(self):
        """(JSON-able header, dict of arrays)."""
        text, ptr = pack_strings(self.names)
        return {}, {"names_text": text, "names_ptr": ptr}

    @classmethod
    def from_state(cls, header, arrays):
        """The inverse of `get_state`."""
        new = cls()
        new.names = unpack_strings(arrays["names_text"], arrays["names_ptr"])
        return new


def _rows(ptr, numbers, ids, values):
    """Rows from distinct-item numbers: item d is attribute ids[d] with value values[d]."""
    idx = ids[numbers]
    val = values[numbers] if (values != 1).any() else None
    if (ids < 0).any():
        known = idx >= 0
        ptr, idx = offsets(known)[ptr], idx[known]
        val = None if val is None else val[known]
    return Rows(*sum_duplicates(ptr, idx, val))


def _read(tokens, seq_ptr):
    """(ptr int64 (N+1,), numbers int32 (nnz,) of distinct items, their names, their values float64)."""
    kinds = set(map(type, tokens))
    only_lists = all(issubclass(kind, _LISTS) for kind in kinds)
    if only_lists:
        items = tokens
        flat = chain.from_iterable
    elif all(issubclass(kind, dict) for kind in kinds):
        items = tokens
        flat = _items_of_dicts
    else:
        items, flat = [_pairs(token, t, seq_ptr) for t, token in enumerate(tokens)], chain.from_iterable
    ptr = offsets(list(map(len, items)))
    try:
        numbers, distinct = numbered(flat(items), int(ptr[-1]))
    except TypeError:  # something unhashable: nested values, which are unfolded, or an error, which is placed
        items, only_lists = [_pairs(token, t, seq_ptr) for t, token in enumerate(tokens)], False
        ptr = offsets(list(map(len, items)))
        numbers, distinct = numbered(chain.from_iterable(items), int(ptr[-1]))

    def place(number):
        occurrence = int(np.argmax(numbers == number))
        return where(row_of(ptr, occurrence), seq_ptr)

    values = np.ones(len(distinct))
    if only_lists and set(map(type, distinct)) <= {str}:
        return ptr, numbers, distinct, values
    names = []
    for number, item in enumerate(distinct):
        name, value = (item, 1.0) if only_lists else item
        if type(name) is type(value) is str:
            names.append(f"{name}:{value}")
            continue
        try:
            name, values[number] = _understand(name, value)
        except (TypeError, ValueError) as error:
            raise _placed(error, place(number)) from None
        names.append(name)
    return ptr, numbers, names, values


def _items_of_dicts(rows):
    return chain.from_iterable(map(dict.items, rows))


def _pairs(token, t, seq_ptr):
    """One token as a list of (name, value) without nesting; raises TypeError naming the token."""
    if not isinstance(token, (dict, *_LISTS)):
        raise TypeError(f"{where(t, seq_ptr)}: expected a dict or a list of attribute strings, got {token!r}")
    try:
        return list(_unfold(token))
    except (TypeError, ValueError) as error:
        raise _placed(error, where(t, seq_ptr)) from None


def _placed(error, place):
    """The same sentence with the place in front; of the kinds of ValueError (bytes that are not UTF-8) only
    that.
    """
    return (TypeError if isinstance(error, TypeError) else ValueError)(f"{place}: {error}")


def _unfold(token):
    for name, value in token.items() if isinstance(token, dict) else zip(token, repeat(1.0)):
        if isinstance(value, (dict, list, set)):
            for inner, inner_value in _unfold(value):
                yield _understand(f"{_text(name)}:{_text(inner)}", inner_value)
        else:
            yield _understand(name, value)


def _understand(name, value):
    """(attribute string, value as float) of one item of a dict."""
    name = _text(name)
    if isinstance(value, (str, bytes)):
        return f"{name}:{_text(value)}", 1.0
    if not isinstance(value, (Real, np.bool_)):
        raise TypeError(
            f"attribute {name!r}: expected a number, a bool, a string, a dict or a list, got {value!r}"
        )
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        raise ValueError(
            f"attribute {name!r}: expected a value within float64, got an integer that exceeds it"
        ) from None
    if not np.isfinite(number):
        raise ValueError(f"attribute {name!r}: expected a finite value, got {number}")
    return name, number


def _text(name):
    if isinstance(name, str):
        return str(name)
    if isinstance(name, bytes):
        return name.decode("utf-8")
    hint = " (dense input: give a list of NumPy arrays)" if isinstance(name, Real) else ""
    raise TypeError(f"expected attribute names that are strings, got {name!r}{hint}")
