"""A template's attributes: learnt from columns of strings, then found again in other columns.

The columns are integer-coded: no string is built for any token. Each column is coded once by its distinct
strings; each extractor is applied to those. The cells of a pattern are one integer (families.py), and finding
its distinct values is counting or sorting integers.
"""

from functools import lru_cache, partial
from itertools import chain, pairwise, repeat

import numpy as np

from crfbook._checks import Stored, check_arrays, check_fields, shown, unexpected
from crfbook.data.corpus import inner_tokens, offsets, positions
from crfbook.data.vocabulary import falling_order, numbered, pack_strings, unpack_strings, where
from crfbook.encoding.families import edge_classes, gather, group, recoded, select_known
from crfbook.encoding.given_attributes import (
    Rows,
    as_sequences,
    is_columns,
    pointers,
    sum_duplicates,
)
from crfbook.encoding.templates import (
    EXTRACTORS,
    OF_MATCH,
    Template,
    make_extractor,
    searched,
    shipped_regexes,
)


class TemplateAttributes:
    """Alphabet of the attributes that a template gives.

    n_attrs, n_edge_attrs: sizes (edge attribute 0 is the constant one).
    Ids by falling count; ties by the pattern's place in the template, then by its cells in string order,
    cells outside the sequence last. So ids depend on what occurs how often, not on where.
    """

    kind, reads = "template", "columns of strings"

    def __init__(self, template):
        self.template = template
        self.node, self.edge = group(template.node), group(template.edge)
        self.boundaries = template.boundaries
        self.cells = {}
        self.node_order = self.edge_order = np.zeros(0, np.int32)
        self.edge_counts = np.zeros(0, np.int64)  # occurrences of each edge attribute but the constant one

    @property
    def n_attrs(self):
        return len(self.node_order)

    @property
    def n_edge_attrs(self):
        return 1 + len(self.edge_order)

    def learn(self, columns, seq_ptr, min_freq):
        """Build the alphabet from columns {name: list of str}.

        Returns (Rows, occurrences of each node attribute).
        """
        coded = CodedColumns(self._resolve(columns), seq_ptr, self.template)
        self.cells = {
            source: CellValues.learn(source, coded.distinct[source.column], len(self.boundaries))
            for source in self.template.sources
        }
        tables = self._tables(coded)
        node_parts, self.node_order, counts = self._learn(self.node, coded, tables, None, min_freq, 0)
        edge_parts, self.edge_order, self.edge_counts = self._learn(
            self.edge, coded, tables, inner_tokens(seq_ptr), min_freq, 1
        )
        return self._rows(coded.n_tokens, node_parts, edge_parts, seq_ptr), counts

    def apply(self, columns, seq_ptr):
        """Rows of other columns; what was not seen in `learn` is left out."""
        coded = CodedColumns(self._resolve(columns), seq_ptr, self.template)
        tables = self._tables(coded)
        node_parts = self._find(self.node, coded, tables, None)
        edge_parts = self._find(self.edge, coded, tables, inner_tokens(seq_ptr))
        return self._rows(coded.n_tokens, node_parts, edge_parts, seq_ptr)

    def node_names(self, ids=None):
        """Texts of node attributes, for all ids or for a list of them."""
        return self._names(self.node, self.node_order, ids)

    def edge_names(self):
        """Texts of the edge attributes; the constant one is called "B"."""
        return ["B", *self._names(self.edge, self.edge_order, None)]

    # -- learning and finding ------------------------------------------------------------------------

    def _resolve(self, columns):
        """Columns by what the template calls them. Raises ValueError naming the line and the column."""
        names, resolved = list(columns), {}
        there = [f"{j} {shown(name)}" for j, name in enumerate(names) if columns[name] is not None]
        there = ", ".join(there) or "none"
        for pattern in self.template.node + self.template.edge:
            for column in (source.column for source in pattern.sources):
                name = column_name(column, names)
                if columns.get(name) is None:
                    called = shown(column) if name == column else f"{column}, {shown(name)}"
                    raise ValueError(
                        f"template line {pattern.line} asks for column {called}; "
                        f"the data has these columns: {there}"
                    )
                resolved[column] = columns[name]
        return resolved

    def _tables(self, coded):
        return {source: cell.tabulate(coded.distinct[source.column]) for source, cell in self.cells.items()}

    def _learn(self, families, coded, tables, start, min_freq, first_id):
        found = []
        for family in families:
            family.stages = {}
            found.append(family.learn(*family.parts(coded, self.cells, tables, start, learn=True)))
        order, ids_of, counts = _ids([count for _, count in found], min_freq, first_id)
        parts = []
        for family, ids in zip(families, ids_of, strict=True):
            mine, _ = found.pop(0)  # to free memory
            parts += [select_known(rows, ids[places]) for rows, places in mine]
            family.number(ids, self.cells)
        return parts, order, counts

    def _find(self, families, coded, tables, start):
        parts = []
        for family in families:
            found, radix = family.parts(coded, self.cells, tables, start, learn=False)
            parts += [select_known(rows, family.find(keys, radix)) for rows, keys in found]
        return parts

    def _rows(self, n, node_parts, edge_parts, seq_ptr):
        ptr, idx = gather(n, node_parts)
        val = None
        if any(len(family.rows) > 1 for family in self.node):
            ptr, idx, val = sum_duplicates(ptr, idx, val)
        if not self.edge:
            return Rows(ptr, idx, val)
        return Rows(ptr, idx, val, *edge_classes(n, inner_tokens(seq_ptr), edge_parts, self.n_edge_attrs))

    def _names(self, families, order, ids):
        places = order if ids is None else order[np.asarray(ids, np.int64)]
        ends = np.cumsum([len(family.keys) for family in families])
        owner = np.searchsorted(ends, places, side="right")
        names = np.empty(len(places), object)
        for f, family in enumerate(families):
            mine = np.flatnonzero(owner == f)
            keys = family.keys[places[mine] - (ends[f] - len(family.keys))]
            names[mine] = family.names(keys, self.cells, self.boundaries)
        return names.tolist()

    # -- merging -------------------------------------------------------------------------------------

    def merged(self, counts, other, other_counts):
        """(attributes of both, their counts), of counts (A,) each; both learnt without min_freq."""
        new, parts = TemplateAttributes(self.template), (self, other)
        for source in new.template.sources:
            values = sorted({*self.cells[source].values, *other.cells[source].values})
            new.cells[source] = CellValues(source, values, len(new.boundaries))
        new.node_order, counts = new._merge("node", parts, (counts, other_counts), 0)
        edge_counts = self.edge_counts, other.edge_counts
        new.edge_order, new.edge_counts = new._merge("edge", parts, edge_counts, 1)
        return new, counts

    def places(self, merged):
        """The ids of these attributes, and of these edge attributes, in `merged`."""
        node, edge = np.zeros(self.n_attrs, np.int32), np.zeros(self.n_edge_attrs, np.int32)
        for place, name in ((node, "node"), (edge, "edge")):
            for mine, new in zip(getattr(self, name), getattr(merged, name), strict=True):
                place[mine.ids] = new.place(recoded(mine, self.cells, merged.cells), merged.cells)
        return node, edge

    def _merge(self, name, parts, counts_by_id, first_id):
        """(order, counts by falling count) of all families "node" or "edge"; they get their keys and ids."""
        families, counts = getattr(self, name), []
        for f, family in enumerate(families):
            olds = [getattr(part, name)[f] for part in parts]
            recodings = [recoded(old, part.cells, self.cells) for old, part in zip(olds, parts, strict=True)]
            seen = [n[old.ids - first_id] for old, n in zip(olds, counts_by_id, strict=True)]
            family.keys, place = np.unique(
                family.encode(np.concatenate(recodings), self.cells), return_inverse=True
            )
            counts.append(np.bincount(place, np.concatenate(seen), len(family.keys)).astype(np.int64))
        order, ids_of, counts = _ids(counts, 0, first_id)
        for family, ids in zip(families, ids_of, strict=True):
            family.ids = ids
        return order, counts

    # -- saving --------------------------------------------------------------------------------------

    def get_state(self):
        """(JSON-able header, dict of arrays)."""
        arrays = {"node_order": self.node_order, "edge_order": self.edge_order}
        for s, source in enumerate(self.template.sources):
            arrays[f"cell{s}_text"], arrays[f"cell{s}_ptr"] = pack_strings(self.cells[source].values)
        stages = {}
        for name, families in (("node", self.node), ("edge", self.edge)):
            arrays[f"{name}_keys"] = np.concatenate(
                [np.zeros(0, np.int64), *(family.keys for family in families)]
            )
            stages[name] = [[len(family.keys), sorted(family.stages)] for family in families]
            for f, family in enumerate(families):
                arrays |= {f"{name}{f}_stage{slot}": stage for slot, stage in family.stages.items()}
        return {"template": self.template.text, "families": stages}, arrays

    @classmethod
    def from_state(cls, header, arrays, trust=False):
        """The inverse of `get_state`.

        ValueError for arrays that are not what it gives. Without trust also for regular expressions that no
        shipped template has.
        """
        text = header["template"]
        new = cls(_parsed(text) if trust else Template.parse(text, shipped_regexes()))
        for s, source in enumerate(new.template.sources):
            values = unpack_strings(arrays, f"cell{s}_", "rising")
            new.cells[source] = CellValues(source, values, len(new.boundaries))
        for name, families, first in (("node", new.node, 0), ("edge", new.edge, 1)):
            sizes = header["families"][name]
            for size, _ in sizes:
                check_fields({"size of a family": size}, {"size of a family": ((int,), 0)})
            n = sum(size for size, _ in sizes)
            row = Stored(np.int32, (n,), 0, n, "all different")
            check_arrays(arrays, {f"{name}_order": row, f"{name}_keys": Stored(np.int64, (n,))})
            order, rank = arrays[f"{name}_order"], np.empty(n, np.int32)
            rank[order] = np.arange(first, first + n, dtype=np.int32)
            setattr(new, f"{name}_order", order)
            keys, ids = (_cut(array, [size for size, _ in sizes]) for array in (arrays[f"{name}_keys"], rank))
            for f, (family, (_, slots)) in enumerate(zip(families, sizes, strict=True)):
                family.keys, family.ids = keys[f], ids[f]
                family.stages = {slot: arrays[f"{name}{f}_stage{slot}"] for slot in slots}
                family.check(new.cells, f"{name}{f}_stage", f"{name}_keys")
        return new


@lru_cache(maxsize=8)
def _parsed(text):
    """Parts of a text have all the same template: it is parsed once."""
    return Template.parse(text)


def _cut(array, sizes):
    """The rows of these sizes."""
    return [array[a:b] for a, b in pairwise(offsets(sizes).tolist())]


def _ids(counts, min_freq, first_id):
    """(order, ids of each family, -1 for rare attributes; counts by falling count) of families' counts."""
    together = np.concatenate([np.zeros(0, np.int64), *counts])
    kept = together >= min_freq
    order, rank = falling_order(together[kept])
    ids = np.full(len(together), -1, np.int32)
    ids[kept] = rank + first_id
    return order, _cut(ids, list(map(len, counts))), together[kept][order]


def column_name(column, names):
    """The name of a column, which a template calls by name or by number."""
    return names[column] if isinstance(column, int) and column < len(names) else column


def as_columns(X, names):
    """(columns {name: flat list}, seq_ptr) of a `TokenColumns`, or of strings, tuples or dicts of cells.

    names : those seen at fit, or None. A string is a token of one column; the places of a tuple are columns
    called as in `names`, else "0", "1", ...; a dict has its columns by name. Columns that were seen at fit
    keep their numbers where data name them: None stands for one that is missing. Raises ValueError or
    TypeError naming sequence and token where a token has another form than the first one, or more cells than
    at fit.
    """
    if is_columns(X):
        return _as_at_fit(X.columns, names), X.seq_ptr
    sequences = as_sequences(X)
    seq_ptr = pointers(sequences)
    tokens = list(chain.from_iterable(sequences))
    first = tokens[0] if tokens else ""
    if isinstance(first, dict):
        keys = list(first)
        rows = [tuple(map(token.get, keys)) if isinstance(token, dict) else token for token in tokens]
    elif isinstance(first, str):
        keys, rows = ["0"], [(token,) if isinstance(token, str) else token for token in tokens]
    else:
        keys, rows = [str(j) for j in range(len(first))] if isinstance(first, (tuple, list)) else [], tokens
    if not isinstance(first, dict) and names is not None:
        if len(keys) > len(names):
            there = ", ".join(map(repr, names))
            raise unexpected(where(0, seq_ptr), f"at most {len(names)} cells ({there}), as at fit", len(keys))
        keys = names[: len(keys)]
    sizes = {len(row) if isinstance(row, (tuple, list)) else -1 for row in rows}
    if not keys or sizes - {len(keys)}:
        _complain(rows, len(keys), seq_ptr)
    columns = {key: [row[j] for row in rows] for j, key in enumerate(keys)}
    return _as_at_fit(columns, names), seq_ptr


def _as_at_fit(columns, names):
    """`columns` in the order of `names`, where one of these is among them."""
    if not names or columns.keys().isdisjoint(names):
        return columns
    return {name: columns.get(name) for name in names}


def _complain(rows, n, seq_ptr):
    for t, row in enumerate(rows):
        if not isinstance(row, (tuple, list)):
            wanted = "cells of the same form as in the first token"
            raise unexpected(where(t, seq_ptr), wanted, shown(row), TypeError)
        if len(row) != n or n == 0:
            raise unexpected(where(t, seq_ptr), f"{max(n, 1)} cells as in the first token", len(row))


class CodedColumns:
    """The columns that a template needs, as numbers of distinct strings, shifted on demand.

    `codes(column, offset)` is int32 (N,): the number of the distinct string `offset` tokens further on. A
    cell outside its sequence has n_distinct + b: b = 0, 1, ... stands for _B-1, _B-2, ..., then for _B+1, ...
    """

    def __init__(self, columns, seq_ptr, template):
        self.back, self.ahead = template.reach
        self.n_tokens, self.place = int(seq_ptr[-1]), partial(where, seq_ptr=seq_ptr)
        length = np.diff(seq_ptr)
        self.from_start = positions(seq_ptr).astype(np.int32)
        self.to_end = np.repeat(length, length).astype(np.int32) - self.from_start - 1
        self.distinct, self._codes = {}, {}  # _codes: {(column, offset): what `codes` gives}
        for column in dict.fromkeys(source.column for source in template.sources):
            cells = columns[column]
            self._codes[column, 0], self.distinct[column] = numbered(cells, self.n_tokens)
            for number, cell in enumerate(self.distinct[column]):
                if not isinstance(cell, str):
                    place = self.place(int(np.argmax(self._codes[column, 0] == number)))
                    raise TypeError(f"{place}, column {shown(column)}: expected a string, got {shown(cell)}")

    def codes(self, column, offset):
        if (column, offset) not in self._codes:
            self._codes[column, offset] = self._shift(column, offset)
        return self._codes[column, offset]

    def _shift(self, column, offset):
        out, first = np.roll(self._codes[column, 0], -offset), len(self.distinct[column])
        if offset < 0:
            distance = -offset - self.from_start
        else:
            distance, first = offset - self.to_end, first + self.back
        outside = np.flatnonzero(distance > 0)
        out[outside] = first + distance[outside] - 1
        return out


def extract_all(source, strings):
    """A tuple for each string: what the extractor of a source gives.

    ValueError for a regular expression that takes too long on one of them.
    """
    extract = make_extractor(source.name, source.arguments)
    if source.name not in OF_MATCH:
        return list(map(extract, strings))
    pattern = source.arguments[0]
    return list(map(OF_MATCH[source.name], searched(pattern, strings, pattern in shipped_regexes())))


class CellValues:
    """The values that one source (column, extractor) was seen to give, sorted; code = place."""

    def __init__(self, source, values, n_boundaries):
        self.source, self.values = source, values
        self.size = len(values) + n_boundaries
        self.codes = {value: code for code, value in enumerate(values)}

    @classmethod
    def learn(cls, source, distinct, n_boundaries):
        return cls(source, sorted(set(chain.from_iterable(extract_all(source, distinct)))), n_boundaries)

    def tabulate(self, distinct):
        """Codes for each distinct string, then each boundary symbol.

        Returns (table, None) if there is at most one value each (-1: none or never seen), else
        (table, ptr): the codes of number i are table[ptr[i]:ptr[i+1]].
        An extractor without padding gives no boundary symbols.
        """
        found = extract_all(self.source, distinct)
        sizes = np.fromiter(map(len, found), np.int64, len(found))
        flat = np.fromiter(
            map(self.codes.get, chain.from_iterable(found), repeat(-1)), np.int32, int(sizes.sum())
        )
        boundaries = np.arange(len(self.values), self.size, dtype=np.int32)
        if not EXTRACTORS[self.source.name].padded:
            boundaries[:] = -1
        if sizes.max(initial=0) <= 1:
            table = np.full(len(found), -1, np.int32)
            table[sizes == 1] = flat
            return np.concatenate([table, boundaries]), None
        owner = np.repeat(np.arange(len(found)), sizes)[flat >= 0]
        sizes = np.concatenate([np.bincount(owner, minlength=len(found)), np.ones(len(boundaries), np.int64)])
        return np.concatenate([flat[flat >= 0], boundaries]), offsets(sizes)
