"""A trained chain, ready for one sentence a call.

`SentenceModel` reads a sentence to attribute ids, and finds labels and marginals, by kernels over plain
arrays or, as long as these are not at hand, by NumPy. It raises nothing for a sentence: where it is not sure
(odd input, all paths forbidden, scores that leave the range of scaled sums) it answers None, and its caller
goes the way of a corpus (`chain.inference`), whose errors name the place.
"""

import sys
import threading
from array import array
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from crfbook.data.constraints import bounds_of
from crfbook.data.corpus import offsets, owners, ragged_index
from crfbook.data.features import log_edge
from crfbook.encoding.dicts import UNREADABLE, ItemReader
from crfbook.encoding.given_attributes import sum_duplicates
from crfbook.encoding.template_attributes import column_name
from crfbook.encoding.templates import EXTRACTORS, make_extractor

MOST_LABELS = 400  # of more labels few pairs have a weight: forms for corpora are faster
MOST_TOKENS = 400  # of more tokens, too
MOST_ATTRIBUTES = 1 << 13  # of a sentence: duplicates among those of a token are looked for in pairs
# tokens that NumPy tags before kernels are loaded: as long as loading takes (0.4 s), at 15 us a token and
# 3 ns a pair of labels; counted, not timed: who runs a program twice gets the same bits
NUMPY_TOKENS, PAIRS_OF_TOKEN = 25_000, 5000
MOST_RANKS = 64  # of k best labellings by lists, whose time grows with k
LARGEST = 1e5  # nats, as LARGEST_TERM of kernels.py
MAX_SPREAD, SMALLEST_MASS = 300.0, 1e-150  # as in chain/forward_backward.py
INF = np.inf
MOST_CELLS = 1 << 17  # that a column of a template remembers
NONE = np.zeros(0)


class Transitions(NamedTuple):
    """Tables of transitions, and the bytes of the weights that they were made of."""

    weights: bytes
    log_edge: np.ndarray  # (1, L, L) as [0, previous, next], nats
    psi: np.ndarray  # (L, L): exp(log_edge - edge[0])
    edge: np.ndarray  # (2,): the largest score, and the largest difference of two finite ones
    of_tags: np.ndarray  # `tables` of `tag_sentence`
    of_sums: np.ndarray  # `tables` of `sentence_marginals`


class SentenceModel:
    """encoder : `Encoder` of attribute strings or of a template. features, w, constraints : as for
    `chain.inference`. label_sets : `LabelSets` of a tag dictionary, or None.

    frozen : w will not change; else each call looks whether weights of transitions have changed.
    kernels : True or False; None: once they pay.
    Threads may share it: each reads with a reader of its own.
    """

    def __init__(self, encoder, features, w, constraints, label_sets=None, *, frozen=False, kernels=None):
        self.encoder, self.features, self.w = encoder, features, w
        self.constraints, self.label_sets, self.frozen = constraints, label_sets, frozen
        self.number = {label: y for y, label in enumerate(encoder.labels_)}
        self.labels, self.bounds = encoder.labels_, bounds_of(constraints, features.n_labels)
        self._limits = np.vstack([self.bounds.start, self.bounds.end, self.bounds.label_sets])
        self._lists = features.node_ptr, features.node_label
        self._edge_w = w[features.n_node :]  # a view
        self._by_now, self._of_template = 0.0, encoder.attributes.kind == "template"
        if self._of_template:
            self._local = _Reader(partial(TemplateReader, encoder, label_sets))
        else:
            self._local = _Reader(partial(ItemReader, encoder.attributes.ids))
        self._kernels: Any = None
        self._tag: Any = None
        self._may_load = kernels is None
        self._tables = self._transitions()
        if kernels or kernels is None and _at_hand():
            self.load()

    @classmethod
    def of(cls, encoder, features, *model, **options):
        """A `SentenceModel`, or None for a model that it cannot serve."""
        attributes = getattr(encoder, "attributes", None)
        kind = getattr(attributes, "kind", None)
        simple = kind == "items" or kind == "template" and not any(f.stages for f in attributes.node)
        if simple and features.n_edge_attrs == 1 and features.n_labels <= MOST_LABELS:
            return cls(encoder, features, *model, **options)
        return None

    def load(self):
        """Take the kernels from now on."""
        from crfbook.tagging import kernels

        self._tag, self._kernels = kernels.tag_sentence, kernels  # in this order: other threads look

    def tag(self, read):
        """Labels of a sentence, a list; None: see the file."""
        n_tokens, flat, value = read
        if not n_tokens:
            return []
        tables = self._tables if self.frozen else self.transitions()
        if self._kernels is None:
            path = self._by_numpy(_viterbi, read, tables.log_edge[0])
        else:
            path = np.empty(n_tokens, np.int32)
            ptr, label = self._lists
            score = self._tag(flat, value, self.w, ptr, label, tables.of_tags, len(self.labels), path)
            path = path.tolist() if -INF < score < INF else None
        labels = self.labels
        return None if path is None else [labels[y] for y in path]

    def marginals(self, read):
        """(p_node (T, L), log Z in nats) of a sentence; None: see the file."""
        n_tokens, flat, value = read
        p_node = np.empty((n_tokens, len(self.labels)))
        if not n_tokens:
            return p_node, 0.0
        tables = self.transitions()
        if self._kernels is None:
            return self._by_numpy(_marginals, read, tables)
        log_z = self._kernels.sentence_marginals(flat, value, self.w, *self._lists, tables.of_sums, p_node)
        return (p_node, log_z) if log_z == log_z else None

    def read(self, tokens):
        """(T, flat, value): the number of tokens, and what kernels.py has; None: see the file."""
        if not isinstance(tokens, (list, tuple)) or len(tokens) > MOST_TOKENS:
            return None
        reader = self._local.reader
        try:
            if self._of_template:
                return len(tokens), *reader.read(tokens, self._kernels)
            ids, ptr, values = reader.read(tokens)
            if len(ids) > MOST_ATTRIBUTES:
                return None
            flat = np.fromiter(ptr + ids, np.int64, len(ptr) + len(ids))  # faster than `array`
            return len(tokens), flat, NONE if values is None else np.array(values)
        except (*UNREADABLE, LookupError):
            return None

    def scores(self, read):
        """log_node (T, L) in nats, as `sentence_scores` has them."""
        (n_tokens, flat, value), n_labels = read, len(self.labels)
        ptr, ids, set_of = np.split(flat, n_tokens + 1 + np.array([0, flat[n_tokens]]))
        known = ids >= 0
        value = value[known] if len(value) else None
        ptr, ids, value = sum_duplicates(offsets(known)[ptr], ids[known], value)
        weight, weight_ptr = ragged_index(self.features.node_ptr, ids)
        item = owners(weight_ptr)
        cell = owners(ptr)[item] * n_labels + self.features.node_label[weight]
        with np.errstate(all="ignore"):
            terms = self.w[weight] if value is None else value[item] * self.w[weight]
            sums = np.bincount(cell, terms, minlength=n_tokens * n_labels)
        u = sums.astype(np.float64, copy=False).reshape(n_tokens, n_labels)  # of nothing it is an int64
        if len(set_of):
            u += self._limits[set_of]
        u[0] += self._limits[0]
        u[-1] += self._limits[1]
        return u

    def transitions(self):
        """The current `Transitions`."""
        tables = self._tables
        if self.frozen or tables.weights == self._edge_w.tobytes():
            return tables
        tables = self._tables = self._transitions()
        return tables

    def _transitions(self):
        weights = self._edge_w.tobytes()
        table = log_edge(self.features, self.w, np.array([0, 1]), np.zeros(1, np.int32))
        table[:, self.bounds.edge < 0.0] = -np.inf
        if not np.isfinite(self._edge_w).all():
            table[:] = np.nan  # None for every sentence
        finite = table[np.isfinite(table)]
        edge = np.array([finite.max(initial=-1e300), np.ptp(finite) if finite.size else np.inf])
        with np.errstate(all="ignore"):
            psi = np.exp(table[0] - edge[0])
        flat, limits = np.concatenate, self._limits.ravel()
        sums = flat([edge, psi.ravel(), psi.T.ravel(), limits])
        return Transitions(weights, table, psi, edge, flat([table.ravel(), limits]), sums)

    def _by_numpy(self, recursion, read, tables):
        found = recursion(self.scores(read), tables)
        self._by_now += read[0] * (1.0 + len(self.labels) ** 2 / PAIRS_OF_TOKEN)
        if self._may_load and self._by_now > NUMPY_TOKENS:
            self.load()
        return found

    def log_proba(self, read, spans):
        """log p(these label ids from this token on | x) of spans (first, ids), (n,) in nats; None: see the
        file. Each is log Z of the labellings that have the span, less log Z of all. ids : for each token one,
        or several, of which it has one.
        """
        tables, out = self.transitions(), np.full(len(spans), -np.inf)
        scores = self.scores(read)
        whole = _marginals(scores, tables)
        for i, (first, ids) in enumerate(spans):
            u = scores.copy()
            for t, here in enumerate(ids, first):
                u[t] = -np.inf
                u[t, here] = scores[t, here]
            found = whole and _marginals(u, tables)
            if found is None:
                return None
            out[i] = min(0.0, found[1] - whole[1])
        return out

    def kbest(self, read, k):
        """[(label ids, log probability in nats)] of the k best labellings, best first; None: see the file."""
        from crfbook.decoding.kbest import kbest_by_lists

        n, n_labels = read[0], len(self.labels)
        if not n or k > MOST_RANKS:
            return None
        u, tables = self.scores(read), self.transitions()
        found = _marginals(u, tables)
        if found is None:
            return None
        ranked, back = np.empty((n + 1, n_labels, k + 1)), np.empty((n + 1, n_labels, k, 2), np.int64)
        path, score = np.zeros((n, k), np.int32), np.empty(k)
        kbest_by_lists(u, tables.log_edge, np.zeros(n, np.int32), ranked, back, path, score)
        score = score[score > -np.inf].tolist()
        return [(path[:, j].tolist(), min(0.0, s - found[1])) for j, s in enumerate(score)]


class _Reader(threading.local):
    """A reader for each thread."""

    def __init__(self, make):
        self.reader = make()


def _at_hand():
    """Is numba loaded, and are the kernels on disk?"""
    if "numba" not in sys.modules:
        return False
    from crfbook._jit import is_compiled

    return is_compiled("tag_sentence") and is_compiled("sentence_marginals")


@np.errstate(all="ignore")
def _viterbi(u, log_edge):
    """Label ids, a list; None where all labellings are forbidden or sums leave float64. Ties as `viterbi`."""
    delta, back = u[0], []
    for row in u[1:]:
        ways = delta[:, None] + log_edge
        back.append(ways.argmax(0).tolist())
        delta = row + ways.max(0)
    if not -np.inf < delta.max() < np.inf:
        return None
    path = [int(delta.argmax())]
    for before in reversed(back):
        path.append(before[path[-1]])
    return path[::-1]


@np.errstate(all="ignore")
def _marginals(u, tables):
    """(p_node (T, L), log Z), or None: `sentence_marginals` in NumPy."""
    high = u.max(1)
    finite = np.isfinite(u)
    spread = high - np.min(u, 1, initial=np.inf, where=finite)
    if not (
        finite.any(1).all()
        and (np.abs(u[finite]) < LARGEST).all()
        and spread.max() + tables.edge[1] <= MAX_SPREAD
    ):
        return None
    alpha, scale = np.exp(u - high[:, None]), np.empty(len(u))
    beta, psi = np.ones_like(alpha), tables.psi
    factor = alpha.copy()
    for t, row in enumerate(alpha):
        if t:
            row *= alpha[t - 1] @ psi
        scale[t] = row.sum()
        if not (0.0 < scale[t] < np.inf and row[row > 0.0].min() >= SMALLEST_MASS):
            return None
        row /= scale[t]
    for t in range(len(u) - 1, 0, -1):
        beta[t - 1] = psi @ (factor[t] * beta[t] / scale[t])
    p_node = alpha * np.where(alpha > 0.0, beta, 0.0)
    p_node /= p_node.sum(1, keepdims=True)
    return p_node, float(np.log(scale).sum() + high.sum() + (len(u) - 1) * tables.edge[0])


class _Column(dict):
    """Cell -> its row in `codes`, flat and C to a row: the code of each source of the column, -1 for none."""

    def __init__(self, cells):
        self._sources = [(make_extractor(*cell.source[1:]), cell.codes.get) for cell in cells]
        self._as_it_is = len(cells) == 1 and cells[0].source.name in ("x", "inside")
        self.codes = array("q")

    def __missing__(self, cell):
        if not isinstance(cell, str):
            raise TypeError("expected a string")
        row, codes = len(self), []
        for extract, code in self._sources:
            values = extract(cell)
            if len(values) > 1:
                raise LookupError("several values")
            codes.append(code(values[0], -1) if values else -1)
        self.codes.extend(codes)
        self[cell] = row
        return row

    def rows(self, cells):
        """int64 (T, C): the codes of these cells."""
        if self._as_it_is and all(map(isinstance, cells, repeat(str))):  # nothing to remember
            found = map(self._sources[0][1], cells, repeat(-1))
            return np.fromiter(found, np.int64, len(cells)).reshape(-1, 1)
        rows = np.fromiter(map(self.__getitem__, cells), np.int64, len(cells))
        return np.frombuffer(self.codes, np.int64).reshape(-1, len(self._sources))[rows]


class TemplateReader:
    """The attributes of one sentence that a template makes of columns of strings.

    It remembers the cells that it has seen, each with a code for every source (column, extractor). The rest
    is arithmetic on codes, `template_rows` of kernels.py. Edge patterns, keys in stages and cells with
    several values go the way of a corpus (encoding/template_attributes.py).

    encoder : `Encoder` of a template. label_sets : `LabelSets`, or None. It belongs to one thread."""

    def __init__(self, encoder, label_sets):
        attributes, self._encoder, self._label_sets = encoder.attributes, encoder, label_sets
        sources = sorted(attributes.cells, key=lambda source: str(source.column))
        self._cells = {}
        for source in sources:
            self._cells.setdefault(source.column, []).append(attributes.cells[source])
        self._clear()
        cells = [cell for of_column in self._cells.values() for cell in of_column]
        place = {cell.source: c for c, cell in enumerate(cells)}
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
        self._keys, self._ids, self._key_ptr = _found_at_once(attributes.node)

    def _clear(self):
        self._columns = {column: _Column(cells) for column, cells in self._cells.items()}

    def read(self, tokens, kernels):
        """(flat, value) of a sentence as kernels.py has them. kernels : None: by the encoder.

        Raises one of these errors for what the way of a corpus must look at.
        """
        if not tokens:
            return np.zeros(1, np.int64), NONE
        cells_of = self._cells_of(tokens)
        set_of = []
        if self._label_sets is not None:
            row_of = self._label_sets.row_of.get
            set_of = [2 + row_of(word, 0) for word in cells_of(self._label_sets.column)]
        if kernels is None:
            corpus = self._encoder.transform([tokens])
            return np.r_[corpus.attr_ptr, corpus.attr_idx, np.array(set_of, np.int64)], corpus.attr_val
        codes = []
        for column, known in self._columns.items():
            codes.append(known.rows(cells_of(column)))
            if len(known) > MOST_CELLS:
                self._clear()
        codes = codes[0] if len(codes) == 1 else np.concatenate(codes, 1)
        flat = np.empty(len(tokens) * (2 + len(self._patterns)) + 1, np.int64)
        tables = self._outside, self._back, self._patterns, self._slots, self._keys, self._key_ptr, self._ids
        n = kernels.template_rows(codes, *tables, flat)
        flat[n : n + len(set_of)] = set_of
        return flat[: n + len(set_of)], NONE

    def _cells_of(self, tokens):
        """column -> its cells in the sentence; as `as_columns` and a template find them."""
        first, columns = tokens[0], self._encoder.columns_
        kind = type(first)
        if len(set(map(type, tokens))) > 1:
            raise TypeError("tokens of several kinds")
        names = list(first) if kind is dict else (columns or [])[: len(first) if kind in (tuple, list) else 1]
        if kind in (tuple, list) and set(map(len, tokens)) != {len(names)} or not names:
            raise ValueError("tokens of several sizes, or columns without a name")

        def cells_of(column):
            name = column_name(column, columns or names)
            if kind is str:
                return tokens if names.index(name) == 0 else ()
            at = name if kind is dict else names.index(name)
            return [token[at] for token in tokens]

        return cells_of


def _found_at_once(families):
    """(keys, ids, key_ptr) of `template_rows`. A family of one cell that lacks few keys gets them,
    with id -1, so that each key stands in its own place.
    """
    keys, ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for family in families:
        known, found = family.keys, family.ids
        size = int(known[-1]) + 1 if len(family.sources) == 1 and len(known) else 0
        if 0 < size <= 2 * len(known):
            found = np.full(size, -1)
            found[known], known = family.ids, np.arange(size)
        keys.append(known)
        ids.append(found)
    return np.concatenate(keys), np.concatenate(ids), offsets(list(map(len, keys[1:])))
