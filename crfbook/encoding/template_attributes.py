"""A template's attributes: learnt from columns of strings, then found again in other columns."""

import numpy as np

from crfbook.data.corpus import inner_tokens
from crfbook.data.vocabulary import falling_order, pack_strings, unpack_strings
from crfbook.encoding.assemble import Rows, edge_classes, gather, sum_duplicates
from crfbook.encoding.pattern_index import CellValues, CodedColumns, boundary_names, group
from crfbook.encoding.templates import Template


class TemplateAttributes:
    """Alphabet of the attributes that a template gives.

    n_attrs, n_edge_attrs: sizes (edge attribute 0 is the constant one).
    Ids by falling count; ties by the pattern's place in the template, then by its cells in string order,
    cells outside the sequence last. So ids depend on what occurs how often, not on where.
    """

    kind = "template"

    def __init__(self, template):
        self.template = template
        self.node, self.edge = group(template.node), group(template.edge)
        self.boundaries = boundary_names(template)
        self.cells = {}
        self.node_order = self.edge_order = np.zeros(0, np.int32)

    @property
    def n_attrs(self):
        return len(self.node_order)

    @property
    def n_edge_attrs(self):
        return 1 + len(self.edge_order)

    def learn(self, columns, seq_ptr, min_freq):
        """Build the alphabet from columns {name: list of str}; returns (Rows,
        occurrences of each node attribute).
        """
        coded = CodedColumns(self._resolve(columns), seq_ptr, self.template)
        self.cells = {
            source: CellValues.learn(source, coded.distinct[source.column], len(self.boundaries))
            for source in self.template.sources
        }
        tables = self._tables(coded)
        node_parts, self.node_order, counts = self._learn(self.node, coded, tables, None, min_freq, 0)
        edge_parts, self.edge_order, _ = self._learn(
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
        for pattern in self.template.node + self.template.edge:
            for column in (source.column for source in pattern.sources):
                if isinstance(column, int) and column < len(names):
                    resolved[column] = columns[names[column]]
                elif column in columns:
                    resolved[column] = columns[column]
                else:
                    there = ", ".join(f"{j} {name!r}" for j, name in enumerate(names)) or "none"
                    raise ValueError(
                        f"template line {pattern.line} asks for column {column!r}; "
                        f"the data has these columns: {there}"
                    )
        return resolved

    def _tables(self, coded):
        return {source: cell.tabulate(coded.distinct[source.column]) for source, cell in self.cells.items()}

    def _learn(self, families, coded, tables, start, min_freq, first_id):
        parts, counts, ends = [], [np.zeros(0, np.int64)], []
        for family in families:
            family.stages = {}
            found, count = family.learn(*family.parts(coded, self.cells, tables, start, learn=True))
            parts += found
            counts.append(count)
            ends += [len(found)]
        kept = [count >= min_freq for count in counts]
        order, rank = falling_order(np.concatenate([c[k] for c, k in zip(counts, kept, strict=True)]))
        rank += first_id
        at, low = 0, 0
        for family, n_parts, keep in zip(families, ends, kept[1:], strict=True):
            ids = np.full(len(keep), -1, np.int32)
            ids[keep] = rank[low : low + keep.sum()]
            low += int(keep.sum())
            for p in range(at, at + n_parts):
                parts[p] = _known(parts[p][0], ids[parts[p][1]], bool(keep.all()))
            at += n_parts
            family.number(ids)
        return parts, order, np.sort(np.concatenate(counts))[::-1][: len(order)]

    def _find(self, families, coded, tables, start):
        parts = []
        for family in families:
            found, radix = family.parts(coded, self.cells, tables, start, learn=False)
            parts += [_known(rows, family.find(keys, radix), False) for rows, keys in found]
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
    def from_state(cls, header, arrays):
        """The inverse of `get_state`."""
        new = cls(Template.parse(header["template"]))
        new.node_order, new.edge_order = arrays["node_order"], arrays["edge_order"]
        for s, source in enumerate(new.template.sources):
            values = unpack_strings(arrays[f"cell{s}_text"], arrays[f"cell{s}_ptr"])
            new.cells[source] = CellValues(source, values, len(new.boundaries))
        parts = (("node", new.node, new.node_order, 0), ("edge", new.edge, new.edge_order, 1))
        for name, families, order, first in parts:
            rank = np.empty(len(order), np.int32)
            rank[order] = np.arange(first, first + len(order), dtype=np.int32)
            low = 0
            for f, (family, (size, slots)) in enumerate(zip(families, header["families"][name], strict=True)):
                family.keys, family.ids = arrays[f"{name}_keys"][low : low + size], rank[low : low + size]
                family.stages = {slot: arrays[f"{name}{f}_stage{slot}"] for slot in slots}
                low += size
        return new


def _known(rows, ids, all_known):
    """The part without ids of -1."""
    if all_known or (ids >= 0).all():
        return rows, ids
    keep = ids >= 0
    return np.flatnonzero(keep) if rows is None else rows[keep], ids[keep]
