"""Feature sets: which (attribute, label) and (edge attribute, label, label) weights exist.

All weights of a model are one flat vector `w`: node weights first, attribute by attribute, then edge
weights, edge attribute by edge attribute. A weight that does not exist counts as 0; it forbids nothing.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.corpus import ragged_index


class FeatureSet(NamedTuple):
    """Layout of the weight vector `w (F,)`, F = n_node + n_edge. Immutable; rows are sorted by label.

    Weight k of node_ptr[a]:node_ptr[a+1] joins attribute a and label node_label[k]; weight n_node + k of
    edge_ptr[b]:edge_ptr[b+1] joins edge attribute b and the label pair (edge_prev[k], edge_next[k]).
    """

    n_labels: int  # L
    n_attrs: int  # A
    n_edge_attrs: int  # B >= 1; edge attribute 0 is the constant one
    node_ptr: np.ndarray  # int64 (A+1,)
    node_label: np.ndarray  # int32 (n_node,)
    edge_ptr: np.ndarray  # int64 (B+1,)
    edge_prev: np.ndarray  # int32 (n_edge,)
    edge_next: np.ndarray  # int32 (n_edge,)

    @property
    def n_node(self):
        return len(self.node_label)

    @property
    def n_edge(self):
        return len(self.edge_prev)

    @property
    def n_features(self):
        return len(self.node_label) + len(self.edge_prev)


def _distinct(keys):
    """Sorted distinct values; keys are sorted in place. (np.unique hashes, 20 times slower on such keys.)"""
    keys.sort()
    return keys[np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]])]


def _rows(keys, width, n_rows):
    """Sorted distinct keys = row * width + column, as pointers (n_rows+1,) and columns."""
    ptr = np.searchsorted(keys, np.arange(n_rows + 1, dtype=np.int64) * width)
    return ptr.astype(np.int64), (keys % width).astype(np.int32) if len(keys) else np.zeros(0, np.int32)


def _label_keys(corpus, n_labels, chunk=1 << 13):
    """Yield (attribute * L + label, occurrence, token) for stretches of labelled tokens: little memory."""
    for first in range(0, corpus.n_tokens, chunk):
        last = min(first + chunk, corpus.n_tokens)
        token = np.repeat(np.arange(first, last), np.diff(corpus.attr_ptr[first : last + 1]))
        item = np.arange(corpus.attr_ptr[first], corpus.attr_ptr[last])
        known = corpus.labels[token] >= 0
        if not known.all():
            token, item = token[known], item[known]
        yield corpus.attr_idx[item].astype(np.int64) * n_labels + corpus.labels[token], item, token


def inner_tokens(corpus):
    """Tokens that have a predecessor in their sequence, in order (int64)."""
    inner = np.ones(corpus.n_tokens, bool)
    starts = corpus.seq_ptr[:-1]
    inner[starts[starts < corpus.seq_ptr[1:]]] = False
    return np.flatnonzero(inner)


def _pair_counts(corpus, n_labels, n_edge_attrs):
    """Weighted counts of labelled transitions: keys (edge attribute * L + previous) * L + next, rising,
    and their counts.

    A transition counts once for each edge attribute of its token. Memory grows with what occurs,
    not with classes times L^2.
    """
    token = inner_tokens(corpus)
    prev, here = corpus.labels[token - 1].astype(np.int64), corpus.labels[token].astype(np.int64)
    known = (prev >= 0) & (here >= 0)
    token, pair = token[known], (prev * n_labels + here)[known]
    weight = np.ones(len(token))
    if len(corpus.seq_weight):
        weight = np.repeat(corpus.seq_weight, np.diff(corpus.seq_ptr))[token]
    of_class, inverse = np.unique(
        corpus.edge_class[token] * np.int64(n_labels**2) + pair, return_inverse=True
    )
    count = np.bincount(inverse, weight, minlength=len(of_class))
    items, ptr = ragged_index(corpus.class_ptr, of_class // n_labels**2)
    owner = np.repeat(np.arange(len(of_class)), np.diff(ptr))
    attr = corpus.class_attr[items].astype(np.int64)
    owner, attr = owner[attr < n_edge_attrs], attr[attr < n_edge_attrs]
    keys, inverse = np.unique(attr * n_labels**2 + of_class[owner] % n_labels**2, return_inverse=True)
    return keys, np.bincount(inverse, count[owner], minlength=len(keys))


def observed(corpus, n_labels, n_attrs, n_edge_attrs=1, *, all_states=False, all_transitions=False):
    """FeatureSet of what occurs in the labelled tokens of `corpus`, as CRFsuite does by default.

    `all_states` adds every (attribute, label) pair, `all_transitions` every label pair of every edge
    attribute. Raises ValueError if an id of the corpus does not fit the stated sizes.
    """
    for name, ids, size in (
        ("attribute", corpus.attr_idx, n_attrs),
        ("label", corpus.labels, n_labels),
        ("edge attribute", corpus.class_attr, n_edge_attrs),
    ):
        if ids.size and ids.max() >= size:
            raise ValueError(f"{name} ids: expected 0..{size - 1}, got {ids.max()}")
    if all_states:
        node_ptr = np.arange(n_attrs + 1, dtype=np.int64) * n_labels
        node_label = np.tile(np.arange(n_labels, dtype=np.int32), n_attrs)
    else:
        distinct = [_distinct(key) for key, _, _ in _label_keys(corpus, n_labels)]
        distinct = _distinct(np.concatenate([np.zeros(0, np.int64), *distinct]))
        node_ptr, node_label = _rows(distinct, n_labels, n_attrs)
    if all_transitions:
        pairs = np.arange(n_edge_attrs * n_labels**2, dtype=np.int64)
    else:
        pairs = _pair_counts(corpus._replace(seq_weight=np.zeros(0)), n_labels, n_edge_attrs)[0]
    edge_ptr, pair = _rows(pairs, n_labels**2, n_edge_attrs)
    return FeatureSet(
        int(n_labels),
        int(n_attrs),
        int(n_edge_attrs),
        node_ptr,
        node_label,
        edge_ptr,
        pair // n_labels,
        pair % n_labels,
    )


def select(features, keep):
    """The FeatureSet of the weights where `keep` (F,) is true; `w[keep]` are its weights."""
    keep = np.asarray(keep, bool)
    node, edge = keep[: features.n_node], keep[features.n_node :]
    count = lambda ptr, kept: np.concatenate([[0], np.cumsum(kept)])[ptr].astype(np.int64)  # noqa: E731
    return features._replace(
        node_ptr=count(features.node_ptr, node),
        node_label=features.node_label[node],
        edge_ptr=count(features.edge_ptr, edge),
        edge_prev=features.edge_prev[edge],
        edge_next=features.edge_next[edge],
    )


def log_edge(features, w, class_ptr, class_attr):
    """Transition scores (K, L, L) [class, previous, next] in nats: sums over each class's edge attributes."""
    out = np.zeros((len(class_ptr) - 1, features.n_labels, features.n_labels))
    for k in range(len(out)):
        for b in class_attr[class_ptr[k] : class_ptr[k + 1]]:
            row = slice(features.edge_ptr[b], features.edge_ptr[b + 1])
            out[k, features.edge_prev[row], features.edge_next[row]] += w[features.n_node :][row]
    return out


def edge_gradient(features, edge_count, class_ptr, class_attr, grad):
    """Add transition counts (K, L, L) of classes into the edge part of `grad` (F,): `log_edge` transposed."""
    for k in range(len(edge_count)):
        for b in class_attr[class_ptr[k] : class_ptr[k + 1]]:
            row = slice(features.edge_ptr[b], features.edge_ptr[b + 1])
            grad[features.n_node :][row] += edge_count[k, features.edge_prev[row], features.edge_next[row]]


def empirical_counts(corpus, features):
    """Feature counts of the gold labelling (F,), weighted by `seq_weight` and `attr_val`.

    Tokens without a label contribute nothing, nor do pairs that have no weight in `features`.
    """
    n_labels = features.n_labels
    counts = np.zeros(features.n_features)
    row = np.repeat(np.arange(features.n_attrs, dtype=np.int64), np.diff(features.node_ptr))
    keys = row * n_labels + features.node_label
    weight = np.repeat(corpus.seq_weight, np.diff(corpus.seq_ptr)) if len(corpus.seq_weight) else None
    for key, item, token in _label_keys(corpus, n_labels):
        if weight is None and not len(corpus.attr_val):
            key, value = np.unique(key, return_counts=True)
        else:
            value = corpus.attr_val[item] if len(corpus.attr_val) else np.ones(len(item))
            value = value if weight is None else value * weight[token]
        where = np.searchsorted(keys, key)
        hit = np.append(keys, -1)[where] == key
        counts[: features.n_node] += np.bincount(where[hit], value[hit], minlength=features.n_node)
    pairs, value = _pair_counts(corpus, n_labels, features.n_edge_attrs)
    row = np.repeat(np.arange(features.n_edge_attrs, dtype=np.int64), np.diff(features.edge_ptr))
    keys = row * n_labels**2 + features.edge_prev.astype(np.int64) * n_labels + features.edge_next
    where = np.searchsorted(keys, pairs)
    hit = np.append(keys, -1)[where] == pairs
    counts[features.n_node + where[hit]] = value[hit]
    return counts
