"""Patterns of a template as integers: each distinct row of cells is one key, mixed radix.

A pattern with cells c1 .. cm has the key (.. (c1 V2 + c2) V3 + ..) Vm + cm, V the number of values of a cell.
Where that would pass 2^62 a stage numbers the beginnings seen so far anew. As codes follow the order of
strings, so do keys: they are independent of the order of the data.

Then: what patterns find at tokens as ragged rows of attributes, and as classes of edge attributes.
"""

from itertools import repeat

import numpy as np

from crfbook._checks import Stored, check_arrays, shown
from crfbook.data.corpus import offsets, owners, stretches
from crfbook.data.vocabulary import look_up

LIMIT = 2**62  # keys stay below
MAX_PRODUCT = 10**6  # attributes that several cells of one pattern give a token together
TABLE = 2**20  # up to this many possible keys a table replaces sorting and searching


class Family:
    """Patterns with the same text and sources (one, unless rows alone differ): they share their attributes.

    keys: int64, sorted: the values seen; ids: int32: their attribute ids; stages: {slot: int64 sorted}
    re-numberings of the key before that slot.
    """

    def __init__(self, literals, sources, rows):
        self.literals, self.sources, self.rows = literals, sources, rows
        self.keys, self.ids, self.stages = np.zeros(0, np.int64), np.zeros(0, np.int32), {}
        self._table = None

    def parts(self, coded, cells, tables, start, learn):
        """([(rows, keys) of each pattern], radix), for the cells that have a value.

        rows : token numbers; None: each token once.
        keys : int64; all lie below the radix.
        """
        parts = [(start, None) for _ in self.rows]
        radix = 1

        def place(token):
            return f"template pattern {shown(self.literals[0])}, {coded.place(token)}"

        for slot, source in enumerate(self.sources):
            if radix * cells[source].size >= LIMIT:
                parts, radix = self._renumber(parts, slot, learn)
            size, table = cells[source].size, tables[source]
            parts = [
                append_cell(part, coded.codes(source.column, rows[slot]), table, size, place)
                for part, rows in zip(parts, self.rows, strict=True)
            ]
            radix *= size
        if not self.sources:
            n = coded.n_tokens if start is None else len(start)
            parts = [(rows, np.zeros(n, np.int64)) for rows, _ in parts]
        return parts, radix

    def _renumber(self, parts, slot, learn):
        if learn:
            self.stages[slot] = np.unique(np.concatenate([keys for _, keys in parts]))
        stage = self.stages[slot]
        return [select_known(rows, _position(stage, keys)) for rows, keys in parts], len(stage)

    def check(self, cells, stage, keys):
        """ValueError, under these names, unless stages and keys of a file are what the cells allow."""
        radix, row = 1, Stored(np.int64, (None,), 0, None, "rising")
        for slot, source in enumerate(self.sources):
            if radix * cells[source].size >= LIMIT:
                check_arrays(
                    {f"{stage}{slot}": self.stages[slot]}, {f"{stage}{slot}": row._replace(below=radix)}
                )
                radix = len(self.stages[slot])
            radix *= cells[source].size
        check_arrays({keys: self.keys}, {keys: row._replace(below=radix)})

    def learn(self, parts, radix):
        """Find the distinct keys. Returns (parts with int32 places in `keys` instead of keys, counts)."""
        keys = parts[0][1] if len(parts) == 1 else np.concatenate([part[1] for part in parts])
        if radix <= TABLE:
            counts = np.bincount(keys, minlength=radix)
            self.keys = np.flatnonzero(counts)
            place = np.empty(radix, np.int32)
            place[self.keys] = np.arange(len(self.keys), dtype=np.int32)
            counts, places = counts[self.keys], place[keys]
        else:
            self.keys, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
            places = places.astype(np.int32)
        ends = np.cumsum([len(part[1]) for part in parts])[:-1]
        return [(part[0], p) for part, p in zip(parts, np.split(places, ends), strict=True)], counts

    def number(self, rank, cells):
        """Give the attribute of place i the id rank[i]; -1 drops it."""
        self.keys, self.ids = self.keys[rank >= 0], rank[rank >= 0]
        if self.stages:  # beginnings of what is kept alone: they follow from the keys, and from nothing else
            self.keys = self.encode(self.decode(self.keys, cells), cells)

    def decode(self, keys, cells):
        """int64 (n, m): the codes of the cells of each key."""
        codes = np.empty((len(keys), len(self.sources)), np.int64)
        for slot in range(len(self.sources) - 1, -1, -1):
            keys, codes[:, slot] = np.divmod(keys, cells[self.sources[slot]].size)
            if slot in self.stages:
                keys = self.stages[slot][keys]
        return codes

    def encode(self, codes, cells):
        """The keys of rows of codes (n, m); the stages become those that these rows need."""
        keys, radix, self.stages = np.zeros(len(codes), np.int64), 1, {}
        for slot, source in enumerate(self.sources):
            if radix * cells[source].size >= LIMIT:
                self.stages[slot], keys = np.unique(keys, return_inverse=True)
                radix = len(self.stages[slot])
            keys = keys * cells[source].size + codes[:, slot]
            radix *= cells[source].size
        return keys

    def place(self, codes, cells):
        """Attribute ids of rows of codes (n, m), -1 for those never seen."""
        keys, known = np.zeros(len(codes), np.int64), (codes >= 0).all(axis=1)
        for slot, source in enumerate(self.sources):
            if slot in self.stages:
                keys = _position(self.stages[slot], keys)
                known &= keys >= 0
            keys = keys * cells[source].size + codes[:, slot]
        return np.where(known, self.find(keys, LIMIT), -1)

    def find(self, keys, radix):
        """Attribute ids of keys, -1 for those never seen."""
        if radix <= TABLE:
            if self._table is None:
                self._table = np.full(radix, -1, np.int32)
                self._table[self.keys] = self.ids
            return self._table[keys]
        place = _position(self.keys, keys)
        return np.where(place >= 0, self.ids[place] if len(self.ids) else -1, -1).astype(np.int32)

    def names(self, keys, cells, boundaries):
        """The attributes' texts for an array of keys."""
        codes = self.decode(keys, cells)
        pieces = [repeat(self.literals[0], len(keys))]
        for slot, (source, literal) in enumerate(zip(self.sources, self.literals[1:], strict=True)):
            known = cells[source].values + boundaries
            pieces += [[known[code] for code in codes[:, slot].tolist()], repeat(literal, len(keys))]
        return list(map("".join, zip(*pieces, strict=True)))


def group(patterns):
    """Patterns as families, in the order of their first pattern."""
    families = {}
    for pattern in patterns:
        families.setdefault((pattern.literals, pattern.sources), []).append(pattern.offsets)
    return [Family(literals, sources, rows) for (literals, sources), rows in families.items()]


def recoded(family, before, after):
    """The keys of a family as rows of codes (n, m) of other cells.

    before : {source: CellValues}, of the keys.
    after : {source: CellValues}, of the codes; they have all values that `before` has.
    """
    codes = family.decode(family.keys, before)
    for slot, source in enumerate(family.sources):
        old, new = before[source], after[source]
        table = look_up(new.codes, old.values, len(old.values))
        outside = np.arange(len(new.values), new.size, dtype=np.int32)
        codes[:, slot] = np.concatenate([table, outside])[codes[:, slot]]
    return codes


def _position(values, queries):
    """Places of queries in the sorted `values`, -1 where absent."""
    if len(values) == 0:
        return np.full(len(queries), -1, np.int64)
    place = np.searchsorted(values, queries)
    place[place == len(values)] = 0
    place[values[place] != queries] = -1
    return place


# ---- (token, key) pairs of a pattern, and what becomes of them ----


def append_cell(part, codes, tabulated, size, place):
    """Key times size plus the cell's code, on the rows of `part`; rows without a code drop out.

    The numbers of values of a token's cells multiply. ValueError with place(token) where the product passes
    MAX_PRODUCT.
    """
    rows, keys = part
    table, ptr = tabulated
    codes = codes if rows is None else codes[rows]
    if ptr is None:
        values = table[codes]
    else:
        sizes = ptr[codes + 1] - ptr[codes]
        if keys is not None and rows is not None:
            before, after = np.bincount(rows), np.bincount(rows, sizes)
            for token in np.flatnonzero((before > 1) & (after > MAX_PRODUCT))[:1]:
                many = f"its cells give {int(after[token]):,} attributes together"
                raise ValueError(f"{place(token)}: {many}, expected at most {MAX_PRODUCT:,}")
        rows = np.repeat(np.arange(len(codes)) if rows is None else rows, sizes)
        keys = None if keys is None else np.repeat(keys, sizes)
        values = table[stretches(ptr[codes], sizes)]
    has_value = values >= 0
    if not has_value.all():
        rows = np.flatnonzero(has_value) if rows is None else rows[has_value]
        keys = None if keys is None else keys[has_value]
        values = values[has_value]
    return rows, values.astype(np.int64) if keys is None else keys * size + values


def select_known(rows, values):
    """Keep the rows whose value is >= 0."""
    keep = values >= 0
    if keep.all():
        return rows, values
    return np.flatnonzero(keep) if rows is None else rows[keep], values[keep]


def gather(n, parts):
    """Merge parts (rows, ids) into ragged rows: (ptr int64 (n+1,), idx int32).

    `rows` rise (with repeats) and say whose the ids are; None stands for 0..n-1. Within a row the order is
    that of the parts. `parts` is emptied on the way, to free memory.
    """
    ptr = np.zeros(n + 1, np.int64)
    for rows, _ in parts:
        ptr[1:] += 1 if rows is None else np.bincount(rows, minlength=n)
    np.cumsum(ptr, out=ptr)
    fill = ptr[:-1].copy()
    idx = np.empty(ptr[-1], np.int32)
    for i in range(len(parts)):
        rows, ids = parts[i]
        parts[i] = None
        if rows is None:
            idx[fill] = ids
            fill += 1
        else:
            sizes = np.bincount(rows, minlength=n)
            first = np.cumsum(sizes) - sizes
            idx[(fill - first)[rows] + np.arange(len(rows))] = ids
            fill += sizes
    parts.clear()
    return ptr, idx


def edge_classes(n, inner, parts, n_edge_attrs):
    """Classes of tokens with the same set of edge attributes.

    inner: int64, the tokens that are not first in their sequence; parts: (rows, ids) as for `gather`, with
    rows among `inner` and ids 1 .. n_edge_attrs-1. Each class also has the constant attribute 0.
    Classes are numbered by their sets (shorter first where one begins the other), so they do not depend on
    the order of the data. Returns (edge_class int32 (n,), class_ptr int64, class_attr int32).
    """
    ptr, idx = gather(n, parts)
    row = owners(ptr)
    key = np.unique(row * n_edge_attrs + idx)  # sets: each attribute once, in rising order
    row, idx = key // n_edge_attrs, key % n_edge_attrs
    size = np.bincount(row, minlength=n)
    first = np.cumsum(size) - size
    code = np.zeros(len(inner), np.int64)
    for slot in range(int(size.max(initial=0))):
        has = size[inner] > slot
        code *= n_edge_attrs
        code[has] += idx[first[inner[has]] + slot]
        code = np.unique(code, return_inverse=True)[1]
    edge_class = np.zeros(n, np.int32)
    if len(inner) == 0:
        return edge_class, np.array([0, 1], np.int64), np.zeros(1, np.int32)
    _, example = np.unique(code, return_index=True)
    edge_class[inner] = code
    sets = [np.concatenate([[0], idx[first[t] : first[t] + size[t]]]) for t in inner[example].tolist()]
    return edge_class, offsets([len(s) for s in sets]), np.concatenate(sets).astype(np.int32)
