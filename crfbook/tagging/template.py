"""The attributes of one sentence that a template makes of columns of strings.

`TemplateReader` remembers the cells that it has seen, each with a code for every source (column, extractor)
of the template. The rest is arithmetic on codes, `template_rows` of kernels.py. Edge patterns, keys in
stages, and cells with several values take the way of a corpus (encoding/template_attributes.py).
"""

import numpy as np

from crfbook.data.corpus import offsets
from crfbook.encoding.template_attributes import extract_all
from crfbook.encoding.templates import EXTRACTORS, OF_MATCH, make_extractor

MOST_CELLS = 1 << 17  # that a column remembers


def is_simple(attributes):
    """Whether `TemplateReader` can serve these `TemplateAttributes`."""
    return not attributes.edge and not any(family.stages for family in attributes.node)


class _Column(dict):
    """Cell -> its row in `codes`, int64 (n, C): the code of each source of the column, -1 for none."""

    def __init__(self, cells):
        self._sources = [(_extractor(cell.source), cell.codes.get) for cell in cells]
        self.codes = np.empty((64, len(cells)), np.int64)

    def __missing__(self, cell):
        if not isinstance(cell, str):
            raise TypeError("expected a string")
        found = [(extract(cell), code) for extract, code in self._sources]
        if any(len(values) > 1 for values, _ in found):
            raise LookupError("several values")
        row = len(self)
        if row == len(self.codes):
            self.codes = np.concatenate([self.codes, np.empty_like(self.codes)])
        self.codes[row] = [code(values[0], -1) if values else -1 for values, code in found]
        self[cell] = row
        return row


def _extractor(source):
    if source.name in OF_MATCH:  # under the watch that regular expressions need
        return lambda text: extract_all(source, [text])[0]
    return make_extractor(source.name, source.arguments)


class TemplateReader:
    """encoder : `Encoder` of a template. label_sets : `LabelSets`, or None. It belongs to one thread."""

    def __init__(self, encoder, label_sets):
        attributes, self._encoder, self._label_sets = encoder.attributes, encoder, label_sets
        sources = sorted(attributes.cells, key=lambda source: str(source.column))
        self._cells = {}
        for source in sources:
            self._cells.setdefault(source.column, []).append(attributes.cells[source])
        self._clear()
        place = {
            source: c for c, source in enumerate(s.source for cells in self._cells.values() for s in cells)
        }
        cells = [attributes.cells[source] for source in place]
        padded = [len(cell.values) if EXTRACTORS[cell.source.name].padded else -1 for cell in cells]
        self._outside = np.array([padded, [cell.size for cell in cells]], np.int64).T.copy()
        self._back = attributes.template.reach[0]
        patterns, slots = [], []
        for f, family in enumerate(attributes.node):
            for rows in family.rows:
                first = len(slots)
                slots += [(place[source], row) for source, row in zip(family.sources, rows, strict=True)]
                patterns.append((f, first, len(slots)))
        self._patterns = np.array(patterns, np.int64).reshape(-1, 3)
        self._slots = np.array(slots, np.int64).reshape(-1, 2)
        self._keys = np.concatenate([np.zeros(0, np.int64), *(family.keys for family in attributes.node)])
        self._ids = np.concatenate([np.zeros(0, np.int64), *(family.ids for family in attributes.node)])
        self._key_ptr = offsets([len(family.keys) for family in attributes.node])
        self._ones, self._no_sets = np.zeros(0), np.zeros(0, np.int32)

    def _clear(self):
        self._columns = {column: _Column(cells) for column, cells in self._cells.items()}

    def read(self, tokens, kernels):
        """(flat, value, set_of) of a sentence as kernels.py has them. kernels : None: by the encoder.

        Raises one of `ODD` for what the way of a corpus must look at.
        """
        if not tokens:
            return np.zeros(1, np.int64), self._ones, self._no_sets
        cells_of = self._cells_of(tokens)
        set_of = self._no_sets
        if self._label_sets is not None:
            row_of = self._label_sets.row_of.get
            set_of = np.array([row_of(word, 0) for word in cells_of(self._label_sets.column)], np.int32)
        if kernels is None:
            corpus = self._encoder.transform([tokens])
            return np.concatenate([corpus.attr_ptr, corpus.attr_idx]), corpus.attr_val, set_of
        codes = []
        for column, known in self._columns.items():
            rows = [known[cell] for cell in cells_of(column)]
            codes.append(known.codes[rows])
            if len(known) > MOST_CELLS:
                self._clear()
        codes = codes[0] if len(codes) == 1 else np.concatenate(codes, 1)
        flat = np.empty(len(tokens) * (1 + len(self._patterns)) + 1, np.int64)
        tables = self._outside, self._back, self._patterns, self._slots, self._keys, self._key_ptr, self._ids
        return flat[: kernels.template_rows(codes, *tables, flat)], self._ones, set_of

    def _cells_of(self, tokens):
        """column -> its cells in the sentence; as `as_columns` and a template find them."""
        first, columns = tokens[0], self._encoder.columns_
        kind = type(first)
        if not all(type(token) is kind for token in tokens):
            raise TypeError("tokens of several kinds")
        names = list(first) if kind is dict else (columns or [])[: len(first) if kind in (tuple, list) else 1]
        if kind in (tuple, list) and any(len(token) != len(names) for token in tokens) or not names:
            raise ValueError("tokens of several sizes, or columns without a name")

        def cells_of(column):
            name = names[column] if isinstance(column, int) and column < len(names) else column
            if kind is str:
                return tokens if names.index(name) == 0 else ()
            at = name if kind is dict else names.index(name)
            return [token[at] for token in tokens]

        return cells_of
