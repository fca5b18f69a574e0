"""Readers of attribute tokens: from plain Python objects to numbers, for one sentence or for many.

A token is a list (tuple, set) of strings, or a dict, nested to any depth (`given_attributes` has the rules).
Each (key, value) is understood once. The dicts of a sentence are read by rows: a set of keys has a plan, and
then a value costs one look-up, inside `map`. The dicts of a corpus are read by columns, a key a column.
Numbers other than 0 and 1 are not looked up: the key has its attribute, and the value goes along.

The file imports the standard library and NumPy alone: a process that tags starts with it.
"""

from array import array
from itertools import chain, cycle, repeat
from math import inf, isfinite
from numbers import Number
from operator import getitem

import numpy as np

LISTS = list, tuple, set, frozenset
UNREADABLE = TypeError, ValueError, AttributeError, ArithmeticError, RecursionError  # what readers raise
_NESTED = dict, list, set, np.ndarray
_NUMBERS = {kind for kind in np.ScalarType if np.dtype(kind).kind in "biuf"}
_TEXTS, _STR, _DICT = {str, bytes, np.str_}, {str}, {dict}
_MOST_PLANS = 1 << 12  # of one prefix
_MOST_ENTRIES = 1 << 18  # of all caches of a reader together
_PREFIX_ENTRIES = 32  # what the empty caches of one prefix take
_FEW = 4  # tokens of one set of keys, on average, from which on columns pay
_BLOCK = 1 << 12  # tokens that are read by columns at once


class ItemReader:
    """Reads tokens as ids of a fixed alphabet. Its caches have a limit. One reader serves one thread.

    ids : dict {attribute string: id}, which is only read.
    """

    most = _MOST_ENTRIES

    def __init__(self, ids):
        self.ids = ids
        self.forget()

    def forget(self):
        """Empty the caches."""
        self.size = 0
        self.root = _Prefix("", self)

    def read(self, tokens):
        """(ids, ptr, values) of a list of tokens, as plain lists.

        ids : ints, -1 for an attribute that the alphabet does not have, or that has the value 0.
        ptr : len(tokens) + 1 ints; token t has ids[ptr[t]:ptr[t + 1]].
        values : floats, or None if all are 1.

        Raises one of UNREADABLE for what it cannot read; `given_attributes` then reads token by token, and
        knows the sentence and the place.
        """
        if self.size > self.most:
            self.forget()
        kind = type(tokens[0]) if tokens else None
        if kind in LISTS:
            ids, ptr = [], [0]
            for token in tokens:
                if type(token) is not kind:
                    break
                ids += token
                ptr.append(len(ids))
            if len(ptr) > len(tokens):
                found = list(map(self.ids.get, ids, repeat(-1)))
                if -1 not in found or _STR.issuperset(map(type, ids)):  # what is known equals a string
                    return found, ptr, None
        row, nested = self.root.row, self.root.nested
        ids, ptr, values = _joined([row(t) if type(t) is dict else nested(t) for t in tokens])
        if values is not None:
            values = array("d", values).tolist()
            if not isfinite(sum(values)):
                raise ValueError
            if 0.0 in values:
                ids = [-1 if value == 0.0 else a for a, value in zip(ids, values, strict=True)]
        return ids, ptr, values

    def number(self, name, value=1):
        """The number of an attribute that has this value. TypeError for values that go along in a list."""
        if value not in (0, 1):
            raise TypeError
        self.size += 1
        return self.ids.get(name, -1) if value else -1

    def understand(self, name, value):
        """The number of what {name: value} means. TypeError as above, ValueError for what has no meaning."""
        if isinstance(value, (str, bytes)):
            return self.number(f"{name}:{value if type(value) is str else _text(value)}")
        if not is_number(value):
            raise ValueError
        return self.number(name, value)


class ItemNumbers(ItemReader):
    """Reads tokens as numbers of items, an alphabet that grows. Its caches have no limit.

    names, values : of the items. Several items may have one name. The values that `read_all` returns are
    factors of these.
    """

    most = inf

    def __init__(self):
        super().__init__({})
        self.names, self.values = [], array("d")

    def number(self, name, value=1):
        """A new item. TypeError for values that go along in a list."""
        if value != 1 and value != 0 and type(value) is not int:
            raise TypeError
        self.names.append(name)
        self.values.append(value.real)
        return len(self.names) - 1

    def read_all(self, tokens):
        """(sizes, numbers, values) of a list of tokens. Errors are those of `read`. It empties the caches.

        sizes : int64 (N,), attributes of each token.
        numbers : int32 (nnz,), of items.
        values : float64 (nnz,), or None if all are 1.
        """
        sizes, numbers, values = [np.zeros(0, np.int64)], array("i"), None
        for start in range(0, len(tokens), _BLOCK):
            block = tokens[start : start + _BLOCK]
            parts = [(np.zeros(0, np.int16), np.zeros(0, np.int32), None)]
            self.root.by_columns(block, np.arange(len(block), dtype=np.int16), parts)
            rows, found, own = zip(*parts, strict=True)
            row = np.concatenate(rows)
            order = np.argsort(row, kind="stable")
            sizes.append(np.bincount(row, minlength=len(block)))
            if values is None and any(part is not None for part in own):
                values = array("d", [1.0]) * len(numbers)
            numbers.frombytes(np.concatenate(found)[order].tobytes())
            if values is not None:
                own = [np.ones(len(r)) if v is None else v for r, v in zip(rows, own, strict=True)]
                values.frombytes(np.concatenate(own)[order].tobytes())
        self.forget()  # caches and reader refer to each other: they would stay until the next collection
        if values is not None:
            values = np.frombuffer(values)
            if not np.isfinite(values).all():
                raise ValueError
        return np.concatenate(sizes), np.frombuffer(numbers, np.int32), values


class _Memo(dict):
    """What `understand` makes of each thing that is asked for."""

    __slots__ = ("understand",)

    def __init__(self, understand):
        self.understand = understand

    def __missing__(self, thing):
        found = self[thing] = self.understand(thing)
        return found


class _Leaf(dict):
    """The number of each value of one key; `start` is the key's name and a colon."""

    __slots__ = ("name", "start", "reader")

    def __init__(self, name, reader):
        self.name, self.start, self.reader = name, f"{name}:", reader

    def __missing__(self, value):
        if type(value) is str:
            found = self.reader.number(self.start + value)
        else:
            found = self.reader.understand(self.name, value)
        self[value] = found
        return found


class _Either:
    """The leaf of a key that has nested values, too: what it gives is a row."""

    __slots__ = ("leaf", "below")

    def __init__(self, leaf, below):
        self.leaf, self.below = leaf, below

    def __getitem__(self, value):
        if type(value) is dict:
            return self.below.row(value)
        return self.below.nested(value) if isinstance(value, _NESTED) else ([self.leaf[value]], None)


class _Prefix:
    """What stands below one prefix. A row is (list of numbers, list of values or None if all are 1).

    leaves[key][value] and pairs[key, value] are numbers of attributes without a value that goes along.
    columns[key] is the number of the attribute that the key's numbers have.
    below[key] is the prefix of what is nested.
    """

    def __init__(self, prefix, reader):
        reader.size += _PREFIX_ENTRIES
        self.prefix, self.reader, self.plans = prefix, reader, {}
        self.leaves = _Memo(lambda key: _Leaf(prefix + _text(key), reader))
        self.pairs = _Memo(lambda pair: reader.understand(prefix + _text(pair[0]), pair[1]))
        self.columns = columns = _Memo(lambda key: reader.number(prefix + _text(key)))
        self.below = _Memo(lambda key: _Prefix(f"{prefix}{_text(key)}:", reader))
        self.strings = _Memo(lambda text: reader.number(prefix + _text(text)))
        self.vectors = _Memo(lambda n: [columns[str(j)] for j in range(n)])

    def row(self, token):
        """The row of a dict."""
        keys = tuple(token)
        plan = self.plans.get(keys)
        if not plan:
            if plan is None:  # a set of keys gets a plan when it comes again
                if len(self.plans) >= _MOST_PLANS:
                    self.plans.clear()
                self.plans[keys] = ()
                self.reader.size += len(keys)
                return self._by_item(token)
            plan = self.plans[keys] = self._plan(keys)
        leaves, nested, numbers = plan
        try:
            if numbers is None:
                found, own = list(map(getitem, leaves, token.values())), None
            else:
                found, own = numbers[:], list(token.values())
                for i, leaf in leaves:
                    found[i], own[i] = leaf[own[i]], 1.0
                if not _NUMBERS.issuperset(map(type, own)):  # these keys have strings, too
                    for i in [i for i, value in enumerate(own) if type(value) not in _NUMBERS]:
                        found[i], own[i] = self.leaves[keys[i]][own[i]], 1.0
        except TypeError:  # numbers or nested values where there were none
            self.plans[keys] = ()
            return self._by_item(token)
        for i in nested:
            inner, values = found[i]
            if values is not None and own is None:
                own = [1.0] * len(found)
            if own is not None:
                own[i : i + 1] = repeat(1.0, len(inner)) if values is None else values
            found[i : i + 1] = inner
        return found, own

    def _plan(self, keys):
        """(leaves, places of nested values from the last to the first, None), or with numbers of columns
        (places and leaves of the others, nested, list with None for the others).
        """
        numbers, leaves = list(map(self.columns.get, keys)), list(map(self.leaves.__getitem__, keys))
        nested = [i for i in reversed(range(len(keys))) if keys[i] in self.below and numbers[i] is None]
        for i in nested:
            leaves[i] = _Either(leaves[i], self.below[keys[i]])
        if self.columns.keys().isdisjoint(keys):
            return leaves, nested, None
        return [(i, leaf) for i, leaf in enumerate(leaves) if numbers[i] is None], nested, numbers

    def _by_item(self, token):
        try:
            return list(map(self.pairs.__getitem__, token.items())), None
        except TypeError:  # some are nested, or numbers
            found, _, own = _joined([self._item(key, value) for key, value in token.items()])
            return found, own

    def _item(self, key, value):
        if isinstance(value, _NESTED):
            return self.below[key].nested(value)
        if type(value) is not str and value not in (0, 1) and is_number(value):
            return [self.columns[key]], [value.real]
        return [self.pairs[key, value]], None

    def nested(self, value):
        """The row of what stands below this prefix: a dict, strings, or a vector of numbers."""
        if isinstance(value, dict):
            return self.row(value if type(value) is dict else dict(dict.items(value)))
        if isinstance(value, LISTS) and _TEXTS.issuperset(map(type, value)):
            return list(map(self.strings.__getitem__, value)), None
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biuf":
            value = value.tolist()
        if not self.prefix or not isinstance(value, list) or not _NUMBERS.issuperset(map(type, value)):
            raise ValueError
        return self.vectors[len(value)], value

    def by_columns(self, tokens, rows, parts):
        """Append to `parts`, for tokens at rising `rows`, arrays (rows, numbers, values or None).

        The attributes of one row stand in the order of the parts.
        """
        groups, last = {}, None
        if _DICT.issuperset(map(type, tokens)):
            for i, keys in enumerate(map(tuple, tokens)):
                if keys != last:  # comparing costs less than hashing
                    last, places = keys, groups.setdefault(keys, [])
                places.append(i)
        if not groups or _FEW * len(groups) > len(tokens):
            return self._by_rows(tokens, rows, parts)
        for keys, places in groups.items():
            at, mine = rows[places], map(tokens.__getitem__, places)
            values = list(chain.from_iterable(map(dict.values, mine)))
            if self.columns.keys().isdisjoint(keys) and self.below.keys().isdisjoint(keys):
                leaves = cycle(list(map(self.leaves.__getitem__, keys)))
                try:
                    found = np.fromiter(map(getitem, leaves, values), np.int32, len(values))
                    parts.append((np.repeat(at, len(keys)), found, None))
                    continue
                except TypeError:  # numbers, or nested values
                    pass
            for j, key in enumerate(keys):
                self._column(key, values[j :: len(keys)], at, parts)

    def _column(self, key, column, rows, parts):
        if key not in self.columns and key not in self.below:
            try:
                found = np.fromiter(map(self.leaves[key].__getitem__, column), np.int32, len(column))
                return parts.append((rows, found, None))
            except TypeError:  # numbers, or nested values
                pass
        kinds = set(map(type, column))
        if kinds == _DICT:
            self.below[key].by_columns(column, rows, parts)
        elif kinds <= _NUMBERS:
            found = np.full(len(column), self.columns[key], np.int32)
            parts.append((rows, found, np.array(column, np.float64)))
        else:
            self._append([self._item(key, value) for value in column], rows, parts)

    def _by_rows(self, tokens, rows, parts):
        try:
            pairs = chain.from_iterable(map(dict.items, tokens))
            found = np.fromiter(map(self.pairs.__getitem__, pairs), np.int32)
            parts.append((np.repeat(rows, list(map(len, tokens))), found, None))
        except TypeError:  # lists, numbers, or nested values
            self._append(list(map(self.nested, tokens)), rows, parts)

    @staticmethod
    def _append(found, rows, parts):
        numbers, ptr, values = _joined(found)
        values = None if values is None else np.array(values, np.float64)
        parts.append((np.repeat(rows, np.diff(ptr)), np.array(numbers, np.int32), values))


def _joined(rows):
    """(numbers, pointers, values) of rows (numbers, values or None) one after the other; None: all are 1."""
    found, ptr, own = [], [0], None
    for numbers, values in rows:
        if values is not None:
            own = [] if own is None else own
            own += repeat(1.0, len(found) - len(own))
            own += values
        found += numbers
        ptr.append(len(found))
    if own is not None:
        own += repeat(1.0, len(found) - len(own))
    return found, ptr, own


def is_number(value):
    """Is it a real number? 1 + 0j is one: caches find it where they find 1. A timedelta64 has a unit."""
    is_one = isinstance(value, (Number, np.bool_)) and not isinstance(value, np.timedelta64)
    return is_one and getattr(value, "imag", None) == 0


def _text(name):
    return str.__str__(name) if isinstance(name, str) else name.decode("utf-8")
