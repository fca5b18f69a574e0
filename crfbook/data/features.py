"""Feature sets: which (attribute, label) and (edge attribute, label, label) weights exist.

All weights of a model are one flat vector `w`: node weights first, attribute by attribute, then edge
weights, edge attribute by edge attribute. A weight that does not exist counts as 0; it forbids nothing.

At the end, ways to choose features before or after training, the rivals of an L1 penalty:

    keep = frequency_cutoff(corpus, features, 5)       # seen at least five times
    keep = most_informative(corpus, features, 10_000)  # of the largest mutual information with their label
    keep = heaviest(w, 10_000)                         # of the largest weights of a trained model
    smaller, w = select(features, keep), w[keep]

Each returns a boolean vector keep (F,), aligned with the weights. The first two say what is worth training,
the third cuts a trained model, which is used as it is. Source: Sokolovska, Lavergne, Cappe and Yvon (2010),
section 6.3 and Figure 6; Yang and Pedersen (1997) for the mutual information.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfbook._checks import number, whole
from crfbook.data.corpus import offsets, owners, ragged_index

STRETCH = 1 << 13  # tokens whose keys are made at a time: little memory
MOST_LABELS = 46_340  # label pairs have numbers of 31 bits in learners and decoders


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
    def sizes(self) -> tuple[int, int, int]:
        """(L, A, B): numbers of labels, attributes and edge attributes."""
        return self[:3]

    @property
    def n_node(self) -> int:
        return len(self.node_label)

    @property
    def n_edge(self) -> int:
        return len(self.edge_prev)

    @property
    def n_features(self) -> int:
        return len(self.node_label) + len(self.edge_prev)

    @property
    def node_attr(self) -> np.ndarray:
        """int64 (n_node,): the attribute of each node weight."""
        return owners(self.node_ptr)

    @property
    def edge_attr(self) -> np.ndarray:
        """int64 (n_edge,): the edge attribute of each edge weight."""
        return owners(self.edge_ptr)

    @property
    def edge_pair(self) -> np.ndarray:
        """int64 (n_edge,): its labels, previous * L + next."""
        return self.edge_prev.astype(np.int64) * self.n_labels + self.edge_next

    @property
    def node_keys(self) -> np.ndarray:
        """int64 (n_node,): attribute * L + label, rising."""
        return self.node_attr * self.n_labels + self.node_label

    @property
    def edge_keys(self) -> np.ndarray:
        """int64 (n_edge,): (edge attribute * L + previous) * L + next, rising."""
        return self.edge_attr * self.n_labels**2 + self.edge_pair


def distinct_keys(keys):
    """Sorted distinct values; keys are sorted in place. (np.unique hashes, 20 times slower on such keys.)"""
    keys.sort()
    return keys[np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]])]


def row_offsets(keys, n_rows, width=1):
    """int64 (n_rows+1,): where each row begins among rising keys = row * width + column."""
    return np.searchsorted(keys, np.arange(n_rows + 1, dtype=np.int64) * width).astype(np.int64)


def find(keys, wanted):
    """(places, hit): where each of `wanted` stands among rising keys >= 0; hit (bool): it is one of them."""
    place = np.searchsorted(keys, wanted)
    return place, np.append(keys, -2)[place] == wanted


def check_n_labels(n_labels):
    """ValueError for more labels than pairs of them have numbers."""
    if n_labels > MOST_LABELS:
        raise ValueError(f"labels: expected at most {MOST_LABELS:,} different ones, got {n_labels:,}")


def from_keys(n_labels, n_attrs, n_edge_attrs, node_keys, edge_keys):
    """The FeatureSet whose `node_keys` and `edge_keys` are these; ValueError for more than MOST_LABELS."""
    check_n_labels(n_labels)
    node = row_offsets(node_keys, n_attrs, n_labels), (node_keys % n_labels).astype(np.int32)
    pair = (edge_keys % n_labels**2).astype(np.int32)
    edge = row_offsets(edge_keys, n_edge_attrs, n_labels**2), pair // n_labels, pair % n_labels
    return FeatureSet(int(n_labels), int(n_attrs), int(n_edge_attrs), *node, *edge)


def _label_keys(corpus, n_labels):
    """Yield (attribute * L + label, occurrence, token) for stretches of labelled tokens."""
    for first in range(0, corpus.n_tokens, STRETCH):
        last = min(first + STRETCH, corpus.n_tokens)
        token = np.repeat(np.arange(first, last), np.diff(corpus.attr_ptr[first : last + 1]))
        item = np.arange(corpus.attr_ptr[first], corpus.attr_ptr[last])
        known = corpus.labels[token] >= 0
        if not known.all():
            token, item = token[known], item[known]
        yield corpus.attr_idx[item].astype(np.int64) * n_labels + corpus.labels[token], item, token


def _pair_counts(corpus, n_labels, n_edge_attrs):
    """Weighted counts of labelled transitions: (keys, their counts).

    A key is (edge attribute * L + previous) * L + next; keys rise.
    A transition counts once for each edge attribute of its token. Memory grows with what occurs,
    not with classes times L^2.
    """
    token = corpus.inner
    prev, here = corpus.labels[token - 1].astype(np.int64), corpus.labels[token].astype(np.int64)
    known = (prev >= 0) & (here >= 0)
    token, pair = token[known], (prev * n_labels + here)[known]
    of_class, inverse = np.unique(
        corpus.edge_class[token] * np.int64(n_labels**2) + pair, return_inverse=True
    )
    count = np.bincount(inverse, corpus.token_weights[token], minlength=len(of_class))
    items, ptr = ragged_index(corpus.class_ptr, of_class // n_labels**2)
    owner = owners(ptr)
    attr = corpus.class_attr[items].astype(np.int64)
    owner, attr = owner[attr < n_edge_attrs], attr[attr < n_edge_attrs]
    keys, inverse = np.unique(attr * n_labels**2 + of_class[owner] % n_labels**2, return_inverse=True)
    return keys, np.bincount(inverse, count[owner], minlength=len(keys))


def observed(corpus, n_labels, n_attrs, n_edge_attrs=1, *, all_states=False, all_transitions=False):
    """FeatureSet of what occurs in the labelled tokens of `corpus`, as CRFsuite does by default.

    `all_states` adds every (attribute, label) pair, `all_transitions` every label pair of every edge
    attribute. Raises ValueError if an id of the corpus does not fit the stated sizes, and for more than
    MOST_LABELS labels, before anything of L^2 is made.
    """
    check_n_labels(n_labels)
    for name, ids, size in (
        ("attribute", corpus.attr_idx, n_attrs),
        ("label", corpus.labels, n_labels),
        ("edge attribute", corpus.class_attr, n_edge_attrs),
    ):
        if ids.size and ids.max() >= size:
            raise ValueError(f"{name} ids: expected 0..{size - 1}, got {ids.max()}")
    nodes, pairs = np.zeros((2, 0), np.int64)
    if not all_states:
        distinct = [distinct_keys(key) for key, _, _ in _label_keys(corpus, n_labels)]
        nodes = distinct_keys(np.concatenate([nodes, *distinct]))
    if not all_transitions:
        pairs = _pair_counts(corpus._replace(seq_weight=np.zeros(0)), n_labels, n_edge_attrs)[0]
    return with_every(from_keys(n_labels, n_attrs, n_edge_attrs, nodes, pairs), all_states, all_transitions)


def with_every(features, states, transitions):
    """The FeatureSet with more weights.

    states : whether every (attribute, label) pair gets one.
    transitions : whether every label pair of every edge attribute gets one.
    """
    n_labels, n_attrs, n_edge_attrs = features.sizes
    if transitions:
        pairs = np.arange(n_edge_attrs * n_labels**2, dtype=np.int64)
        edges = from_keys(n_labels, 0, n_edge_attrs, np.zeros(0, np.int64), pairs)
        features = edges._replace(n_attrs=n_attrs, node_ptr=features.node_ptr, node_label=features.node_label)
    if states:  # not from keys, which would take thrice the memory
        features = features._replace(
            node_ptr=np.arange(n_attrs + 1, dtype=np.int64) * n_labels,
            node_label=np.tile(np.arange(n_labels, dtype=np.int32), n_attrs),
        )
    return features


def select(features, keep):
    """The FeatureSet of the weights where `keep` (F,) is true; `w[keep]` are its weights."""
    keep = np.asarray(keep, bool)
    node, edge = keep[: features.n_node], keep[features.n_node :]
    return features._replace(
        node_ptr=offsets(node)[features.node_ptr],
        node_label=features.node_label[node],
        edge_ptr=offsets(edge)[features.edge_ptr],
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


@np.errstate(over="ignore", invalid="ignore")  # whoever sums up further sees it
def empirical_counts(corpus, features):
    """Feature counts of the gold labelling (F,), weighted by `seq_weight` and `attr_val`.

    Tokens without a label contribute nothing, nor do pairs that have no weight in `features`.
    """
    n_labels = features.n_labels
    counts = np.zeros(features.n_features)
    keys = features.node_keys
    weight = corpus.token_weights if len(corpus.seq_weight) else None
    for key, item, token in _label_keys(corpus, n_labels):
        if weight is None and not len(corpus.attr_val):
            key, value = np.unique(key, return_counts=True)
        else:
            value = corpus.attr_val[item] if len(corpus.attr_val) else np.ones(len(item))
            value = value if weight is None else value * weight[token]
        where, hit = find(keys, key)
        counts[: features.n_node] += np.bincount(where[hit], value[hit], minlength=features.n_node)
    pairs, value = _pair_counts(corpus, n_labels, features.n_edge_attrs)
    where, hit = find(features.edge_keys, pairs)
    counts[features.n_node + where[hit]] = value[hit]
    return counts


CUTOFFS = (1, 2, 3, 5, 10, 20, 50, 100)


def frequency_cutoff(corpus, features, min_count):
    """keep (F,): features that occur at least `min_count` times in the labelled tokens of the corpus.

    Counts are those of (attribute, label) and (edge attribute, label, label), values of attributes summed,
    every sequence counted once whatever its weight. The same as CRFsuite's `feature.minfreq`.
    """
    min_count = number("min_count", min_count, finite=False)
    return empirical_counts(corpus._replace(seq_weight=np.zeros(0)), features) >= min_count


def mutual_information(corpus, features):
    """I(U; V) in nats of each feature (F,), between two things that hold at a token or not:

        I = sum over u, v in {0, 1} of  n_uv / n  log( n n_uv / (n_u n_v) )

    U: the token has the attribute, V: it has the label; for transitions, counted over tokens that have a
    predecessor, V: this token and the one before have the pair of labels. Values of attributes other than 0
    count as presence, and tokens without label not at all. An attribute that every token has, plain
    transitions among them, tells nothing of its label: I = 0.
    """
    corpus = _presence(corpus)
    labelled = corpus.labels >= 0
    both = empirical_counts(corpus, features)
    n_attr = np.bincount(corpus.attr_idx[labelled[corpus.attr_token]], minlength=features.n_attrs)
    n_label = np.bincount(corpus.labels[labelled], minlength=features.n_labels)
    n_u, n_v = n_attr[features.node_attr], n_label[features.node_label]
    node = _information(both[: features.n_node], n_u, n_v, np.count_nonzero(labelled))
    inner = corpus.inner
    inner = inner[labelled[inner] & labelled[inner - 1]]
    pair = corpus.labels[inner - 1].astype(np.int64) * features.n_labels + corpus.labels[inner]
    n_pair = np.bincount(pair, minlength=features.n_labels**2)
    n_class = np.bincount(corpus.edge_class[inner], minlength=corpus.n_classes)
    tokens = np.repeat(n_class, np.diff(corpus.class_ptr))
    n_edge_attr = np.bincount(corpus.class_attr, tokens, minlength=features.n_edge_attrs)
    n_u, n_v = n_edge_attr[features.edge_attr], n_pair[features.edge_pair]
    return np.concatenate([node, _information(both[features.n_node :], n_u, n_v, len(inner))])


def most_informative(corpus, features, n_features):
    """keep (F,): the `n_features` features of largest `mutual_information`, the first of equals.

    Plain transitions come before all others.
    Plain transitions depend on no attribute: their information is 0 by definition, not because they were of
    no use. Without them, what is compared would no longer be a chain.
    """
    score = mutual_information(corpus, features)
    score[~without_plain_transitions(features)] = np.inf
    return _largest(score, n_features)


def heaviest(w, n_features):
    """keep (F,): the `n_features` weights of largest magnitude, the first of equals; no weight that is 0."""
    return _largest(np.abs(w), n_features) & (np.asarray(w) != 0)


def above_threshold(w, threshold):
    """keep (F,): weights |w| >= threshold > 0: selection a posteriori, no retraining."""
    return np.abs(w) >= number("threshold", threshold, above=0.0, finite=False)


def without_plain_transitions(features):
    """keep (F,): all but the weights of edge attribute 0.

    It is for models whose transitions all depend on an attribute.
    """
    keep = np.ones(features.n_features, bool)
    keep[features.n_node : features.n_node + features.edge_ptr[1]] = False
    return keep


def _information(n11, n_u, n_v, n):
    """I (F,) from n11 = #(U and V), n_u = #U, n_v = #V among n tokens; 0 log 0 = 0."""
    total = np.zeros(len(n11))
    for n_uv, a, b in (
        (n11, n_u, n_v),
        (n_u - n11, n_u, n - n_v),
        (n_v - n11, n - n_u, n_v),
        (n - n_u - n_v + n11, n - n_u, n - n_v),
    ):
        some = n_uv > 0
        total[some] += n_uv[some] / n * np.log(n_uv[some] * n / (a[some] * b[some]))
    return np.maximum(total, 0.0)  # sums of rounding errors may lie below


def _largest(score, n):
    """Boolean (F,): where the n largest scores are; among equals, those that come first."""
    keep = np.zeros(len(score), bool)
    keep[np.argsort(-score, kind="stable")[: whole("n_features", n)]] = True
    return keep


def _presence(corpus):
    """The corpus with each attribute at most once at a token, without values and weights of sequences.

    Attributes whose value was 0 are left out.
    """
    token, attr = corpus.attr_token, corpus.attr_idx.astype(np.int64)
    if len(corpus.attr_val):
        token, attr = token[corpus.attr_val != 0], attr[corpus.attr_val != 0]
    width = int(attr.max(initial=0)) + 1
    key = distinct_keys(token * width + attr)
    ptr, idx, ones = row_offsets(key, corpus.n_tokens, width), (key % width).astype(np.int32), np.zeros(0)
    return corpus._replace(attr_ptr=ptr, attr_idx=idx, attr_val=ones, seq_weight=ones)
