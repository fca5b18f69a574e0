"""Corpora as flat arrays: the one place where dtypes, order and ranges of ids are decided.

A corpus is ragged and never padded. Tokens of all sequences stand in a row, `seq_ptr` says where each
sequence begins; attributes of all tokens stand in a row, `attr_ptr` says where each token's begin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook.data.vocabulary import where


def offsets(sizes):
    """int64 (n+1,): where each of n rows of these sizes begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def owners(ptr):
    """int64: the row that each item of a ragged array belongs to."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def stretches(start, size):
    """int64: positions of the items of stretches that begin at `start` and are `size` long, one by one."""
    return np.repeat(start - np.cumsum(size) + size, size) + np.arange(np.sum(size, dtype=np.int64))


def ragged_index(ptr, index):
    """Positions of the items of rows `index` of a ragged array, and the pointers of the rows so taken."""
    index = np.asarray(index, dtype=np.int64)
    sizes = ptr[index + 1] - ptr[index]
    return stretches(ptr[index], sizes), offsets(sizes)


def positions(ptr):
    """int64: the place of each item of a ragged array in its row."""
    return np.arange(ptr[-1]) - np.repeat(ptr[:-1], np.diff(ptr))


def inner_tokens(seq_ptr):
    """int64: all tokens but the first of each sequence, in order."""
    return np.flatnonzero(positions(seq_ptr))


def pointers_of_kept(ptr, keep):
    """int64 (n+1,): where each row of a ragged array begins once the items without `keep` (bool) are gone."""
    sizes = np.diff(ptr)
    for rows in blocks(len(sizes), 1 << 12):
        first = ptr[rows] - ptr[rows.start]
        some = np.append(keep[ptr[rows.start] : ptr[rows.stop]], False)
        # of an empty row, reduceat takes the item after it
        sizes[rows] = np.add.reduceat(some, first, dtype=np.int64) * (sizes[rows] > 0)
    return offsets(sizes)


def place_of(some, n):
    """int32 (n,): where each of 0..n-1 stands among `some`; -1: nowhere."""
    place = np.full(n, -1, np.int32)
    place[some] = np.arange(len(some))
    return place


def blocks(n, size=1 << 16):
    """Slices that cover 0..n-1. NumPy widens int32 indices to int64: block by block, that takes no memory."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def gathered(table, index, out=None):
    """table[index], where `index` is long; out: the array to fill, which may be `index` itself."""
    out = np.empty(len(index), table.dtype) if out is None else out
    for part in blocks(len(index)):
        out[part] = table[index[part]]
    return out


def counted(index, n):
    """int64 (n,): how often each of 0..n-1 occurs in a long `index`."""
    counts = np.zeros(n, np.int64)
    for part in blocks(len(index)):
        counts += np.bincount(index[part], minlength=n)
    return counts


class Corpus(NamedTuple):
    """Encoded sequences (S sequences, N tokens, K edge classes). Build it with `make_corpus`.

    Attribute ids fall in frequency (0 is the most frequent); the alphabets live in the `Encoder`.
    Tokens whose edge attributes are the same set share an edge class; `edge_class[t]` selects the
    transition that leads INTO token t, so its value at a first token is never used.
    What follows from the arrays is computed at each access, in O(N): bind it outside of loops.
    """

    seq_ptr: np.ndarray  # int64 (S+1,): tokens of sequence i are seq_ptr[i]:seq_ptr[i+1]
    attr_ptr: np.ndarray  # int64 (N+1,): attributes of token t are attr_idx[attr_ptr[t]:attr_ptr[t+1]]
    attr_idx: np.ndarray  # int32 (nnz,)
    attr_val: np.ndarray  # float64 (nnz,), or (0,): all ones
    edge_class: np.ndarray  # int32 (N,)
    class_ptr: np.ndarray  # int64 (K+1,): edge attributes of class k
    # int32, each once in a class: edge attribute 0 is the constant one (plain transitions)
    class_attr: np.ndarray
    labels: np.ndarray  # int32 (N,), -1: unknown
    seq_weight: np.ndarray  # float64 (S,), or (0,): all ones
    # int32 (N,): row of Constraints.label_sets that holds at a token; (0,): all labels
    label_set: np.ndarray = np.zeros(0, np.int32)
    # int32 (N,): tokens of a sequence with the same number are linked, -1: with none; (0,): no token is.
    # Skip-chain models alone read it, see dynamic/templates.py
    link: np.ndarray = np.zeros(0, np.int32)

    @property
    def n_sequences(self) -> int:
        return len(self.seq_ptr) - 1

    @property
    def n_tokens(self) -> int:
        return len(self.attr_ptr) - 1

    @property
    def n_classes(self) -> int:
        return len(self.class_ptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        """int64 (S,): tokens of each sequence."""
        return np.diff(self.seq_ptr)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.lengths.max(initial=0))

    @property
    def filled(self) -> np.ndarray:
        """int64: the sequences that are not empty."""
        return np.flatnonzero(self.lengths)

    @property
    def first(self) -> np.ndarray:
        """int64: first tokens of the sequences that are not empty."""
        return self.seq_ptr[self.filled]

    @property
    def last(self) -> np.ndarray:
        """int64: their last tokens."""
        return self.seq_ptr[self.filled + 1] - 1

    @property
    def inner(self) -> np.ndarray:
        """int64: tokens that have a predecessor in their sequence, in order."""
        return inner_tokens(self.seq_ptr)

    @property
    def sequence(self) -> np.ndarray:
        """int64 (N,): the sequence of each token."""
        return owners(self.seq_ptr)

    @property
    def position(self) -> np.ndarray:
        """int64 (N,): the place of each token in its sequence."""
        return positions(self.seq_ptr)

    @property
    def weights(self) -> np.ndarray:
        """float64 (S,): sequence weights, ones where none are given."""
        return self.seq_weight if len(self.seq_weight) else np.ones(self.n_sequences)

    @property
    def visited(self) -> np.ndarray:
        """int64: the sequences that learners visit: not empty, and of a weight above 0."""
        return np.flatnonzero((self.lengths > 0) & (self.weights > 0))

    @property
    def token_weights(self) -> np.ndarray:
        """float64 (N,): the weight of each token's sequence."""
        return np.repeat(self.weights, self.lengths)

    @property
    def values(self) -> np.ndarray:
        """float64 (nnz,): attribute values, ones where none are given."""
        return self.attr_val if len(self.attr_val) else np.ones(len(self.attr_idx))

    @property
    def attr_token(self) -> np.ndarray:
        """int64 (nnz,): the token of each attribute."""
        return owners(self.attr_ptr)

    @property
    def linked(self) -> np.ndarray:
        """int64 (E, 2): tokens and the next one of the same sequence with the same link, in order."""
        tokens = np.flatnonzero(self.link >= 0)
        order = tokens[np.lexsort((tokens, self.link[tokens], self.sequence[tokens]))]
        a, b = order[:-1], order[1:]
        same = (self.link[a] == self.link[b]) & (self.sequence[a] == self.sequence[b])
        pairs = np.stack([a[same], b[same]], axis=1)
        return pairs[np.argsort(pairs[:, 1])]

    def place(self, token: int) -> str:
        """The words "sequence 17, token 3" for a token."""
        return where(token, self.seq_ptr)


def _integers(name, values, dtype) -> np.ndarray:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iub":
        raise TypeError(f"{name}: expected integers, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got shape {array.shape}")
    limits = np.iinfo(dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"{name}: a value does not fit {np.dtype(dtype).name}")
    return np.ascontiguousarray(array, dtype=dtype)


def _pointers(name, values, n_items, what) -> np.ndarray:
    pointers = _integers(name, values, np.int64)
    if len(pointers) == 0 or pointers[0] != 0 or pointers[-1] != n_items or np.any(np.diff(pointers) < 0):
        raise ValueError(f"{name}: expected pointers that rise from 0 to {n_items} ({what})")
    return pointers


def _floats(name, values, size, minimum=-np.inf) -> np.ndarray:
    if values is None:
        return np.zeros(0)
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape not in ((size,), (0,)):
        raise ValueError(f"{name}: expected shape ({size},), got {array.shape}")
    bad = ~(np.isfinite(array) & (array >= minimum))
    if bad.any():
        where = int(np.argmax(bad))
        raise ValueError(
            f"{name}: expected finite numbers{'' if minimum == -np.inf else f' >= {minimum}'}, "
            f"got {array[where]} at position {where}"
        )
    return array


def make_corpus(
    seq_ptr: ArrayLike, attr_ptr: ArrayLike, attr_idx: ArrayLike, *, attr_val: ArrayLike | None = None,
    edge_class: ArrayLike | None = None, class_ptr: ArrayLike | None = None,
    class_attr: ArrayLike | None = None, labels: ArrayLike | None = None,
    seq_weight: ArrayLike | None = None, label_set: ArrayLike | None = None, link: ArrayLike | None = None,
) -> Corpus:  # fmt: skip
    """Cast, check and pack arrays into a `Corpus` (shapes and meanings there).

    Left out: attribute values and sequence weights are one, labels are unknown, transitions are plain.
    Raises ValueError or TypeError with the name of the array that does not fit.
    """
    attr_idx = _integers("attr_idx", attr_idx, np.int32)
    attr_ptr = _pointers("attr_ptr", attr_ptr, len(attr_idx), "number of attribute occurrences")
    n_tokens = len(attr_ptr) - 1
    seq_ptr = _pointers("seq_ptr", seq_ptr, n_tokens, "number of tokens")
    if attr_idx.size and attr_idx.min() < 0:
        raise ValueError("attr_idx: expected ids >= 0, got a negative one")
    if (class_ptr is None) != (class_attr is None):
        raise ValueError("class_ptr and class_attr: expected both or neither")
    class_attr = _integers("class_attr", [0] if class_attr is None else class_attr, np.int32)
    class_ptr = [0, 1] if class_ptr is None else class_ptr
    class_ptr = _pointers("class_ptr", class_ptr, len(class_attr), "number of edge attributes of all classes")
    pairs = np.stack([owners(class_ptr), class_attr], axis=1)
    pairs = pairs[np.lexsort(pairs.T[::-1])]
    twice = pairs[1:][(pairs[1:] == pairs[:-1]).all(axis=1)]
    if len(twice):
        raise ValueError(
            "class_attr: expected each edge attribute once in a class, "
            f"got {twice[0, 1]} twice in class {twice[0, 0]}"
        )
    if edge_class is None:
        edge_class = np.zeros(n_tokens, np.int32)
    edge_class = _integers("edge_class", edge_class, np.int32)
    labels = _integers("labels", np.full(n_tokens, -1) if labels is None else labels, np.int32)
    label_set, link = (
        _integers(name, np.zeros(0) if given is None or not np.size(given) else given, np.int32)
        for name, given in (("label_set", label_set), ("link", link))
    )
    sized = {"edge_class": edge_class, "labels": labels, "label_set": label_set, "link": link}
    for name, array in sized.items():
        if len(array) != n_tokens and not (name in ("label_set", "link") and len(array) == 0):
            raise ValueError(f"{name}: expected one entry a token ({n_tokens}), got {len(array)}")
    if n_tokens and (edge_class.min() < 0 or edge_class.max() >= len(class_ptr) - 1):
        raise ValueError(f"edge_class: expected classes 0..{len(class_ptr) - 2}")
    if n_tokens and labels.min() < -1:
        raise ValueError("labels: expected ids >= 0, or -1 for unknown")
    if label_set.size and label_set.min() < 0:
        raise ValueError("label_set: expected rows >= 0, got a negative one")
    attr_val = _floats("attr_val", attr_val, len(attr_idx))
    seq_weight = _floats("seq_weight", seq_weight, len(seq_ptr) - 1, 0.0)
    edges = edge_class, class_ptr, class_attr
    return Corpus(seq_ptr, attr_ptr, attr_idx, attr_val, *edges, labels, seq_weight, label_set, link)


def without_zeros(corpus):
    """The corpus without attribute occurrences of value 0, which add to no score and to no gradient."""
    keep = corpus.attr_val != 0
    if keep.all():
        return corpus
    ones = not np.any(keep & (corpus.attr_val != 1))
    val = np.zeros(0) if ones else corpus.attr_val[keep]
    ptr, idx = pointers_of_kept(corpus.attr_ptr, keep), corpus.attr_idx[keep]
    return corpus._replace(attr_ptr=ptr, attr_idx=idx, attr_val=val)


def without_attributes(corpus):
    """The corpus without any attribute occurrence."""
    none = corpus.attr_idx[:0], np.zeros(0)
    return corpus._replace(attr_ptr=np.zeros_like(corpus.attr_ptr), attr_idx=none[0], attr_val=none[1])


def plain_transitions(corpus):
    """The corpus with one edge class, that of plain transitions."""
    edge_class, class_attr = np.zeros_like(corpus.edge_class), np.zeros(1, np.int32)
    return corpus._replace(edge_class=edge_class, class_ptr=np.array([0, 1]), class_attr=class_attr)


def slice_sequences(corpus, start, stop):
    """Sequences start:stop as a corpus that shares the arrays of `corpus` (only pointers are copied)."""
    first, last = corpus.seq_ptr[start], corpus.seq_ptr[stop]
    low, high = corpus.attr_ptr[first], corpus.attr_ptr[last]
    pointers = corpus.seq_ptr[start : stop + 1] - first, corpus.attr_ptr[first : last + 1] - low
    return _part(corpus, *pointers, slice(start, stop), slice(first, last), slice(low, high))


def take_sequences(corpus, index):
    """Sequences `index` (any order, repeats allowed) as a new corpus; arrays are copied."""
    tokens, seq_ptr = ragged_index(corpus.seq_ptr, index)
    items, attr_ptr = ragged_index(corpus.attr_ptr, tokens)
    return _part(corpus, seq_ptr, attr_ptr, index, tokens, items)


def _part(corpus, seq_ptr, attr_ptr, sequences, tokens, items):
    """The corpus with these pointers, and these sequences, tokens and attribute occurrences of all arrays."""
    where = {"attr_idx": items, "attr_val": items, "seq_weight": sequences}
    where |= dict.fromkeys(("edge_class", "labels", "label_set", "link"), tokens)
    arrays = {name: getattr(corpus, name) for name in where}
    chosen = {name: array[where[name]] if len(array) else array for name, array in arrays.items()}
    return corpus._replace(seq_ptr=seq_ptr, attr_ptr=attr_ptr, **chosen)
