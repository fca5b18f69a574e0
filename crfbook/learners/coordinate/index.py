"""Where each symbol fires: blocks of weights, the sequences that hold their symbol, and its positions there.

A block is a node attribute, an edge attribute, or a pair of them that fire at the same tokens (the same test
of the input, of which one speaks about a label and the other about a pair of labels): then one
forward-backward serves both.
Source: Sokolovska, Lavergne, Cappe and Yvon (2010), section 4.4; docs/SPEC.md, A.10.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.corpus import owners, ragged_index
from crfbook.data.features import row_offsets


class Blocks(NamedTuple):
    """G blocks, most frequent first; a visit is a (block, sequence) pair. All arrays are read only."""

    member: np.ndarray  # int32 (2, G): node and edge attribute, -1: none
    visit_ptr: np.ndarray  # int64 (G+1,): visits of block g
    visit_seq: np.ndarray  # int32 (n_visits,): their sequences, rising within a block
    visit_low: np.ndarray  # int32 (n_visits,): position of the first occurrence in its sequence
    visit_high: np.ndarray  # int32 (n_visits,): of the last
    occ_ptr: np.ndarray  # int64 (n_visits+1,): occurrences of a visit
    occ_token: np.ndarray  # int32 (n_occ,): tokens where the symbol fires, rising
    occ_val: np.ndarray  # float64 (n_occ,), or (0,): its values, all ones
    occ_visit: np.ndarray  # int32 (n_occ,): visit of an occurrence
    # int32 (n_occ,): the occurrences of each block by edge class, first tokens before all others
    by_class: np.ndarray
    score_ptr: np.ndarray  # int64 (G+1,): distinct tokens that hold the node attribute of block g
    score_row: np.ndarray  # int32: their rows, as node_rows (shared_rows.py) numbers them
    class_ptr: np.ndarray  # int64 (B+1,): edge classes that hold edge attribute b
    classes: np.ndarray  # int32: them

    @property
    def n_blocks(self):
        return self.member.shape[1]


def _node_occurrences(corpus, keep):
    """(attribute, token, value) of node attributes, sorted by both;
    values of an attribute given twice at a token are added.
    """
    token, value = corpus.attr_token, corpus.values
    kept = keep[corpus.attr_idx] & np.isin(corpus.attr_idx, np.flatnonzero(keep))
    key = corpus.attr_idx[kept].astype(np.int64) * max(1, corpus.n_tokens) + token[kept]
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[kept][order]
    first = (
        np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.zeros(0, np.int64)
    )
    value = np.add.reduceat(value, first) if len(first) else np.zeros(0)
    return key[first] // max(1, corpus.n_tokens), key[first] % max(1, corpus.n_tokens), value


def edge_occurrences(corpus, keep):
    """(edge attribute, token) sorted by both."""
    inner = corpus.inner
    item, ptr = ragged_index(corpus.class_ptr, corpus.edge_class[inner])
    attr, token = corpus.class_attr[item].astype(np.int64), inner[owners(ptr)]
    kept = keep[attr]
    key = attr[kept] * max(1, corpus.n_tokens) + token[kept]
    key = np.unique(key)
    return key // max(1, corpus.n_tokens), key % max(1, corpus.n_tokens)


def _fingerprints(attr, token, n_attrs, n_tokens):
    """A number of 64 bits for the set of tokens of each attribute: equal sets, equal numbers."""
    salt = np.random.default_rng(0).integers(0, 2**63, n_tokens, dtype=np.uint64)
    prints = np.zeros(n_attrs, np.uint64)
    np.add.at(prints, attr, salt[token])
    return prints


def _partners(node, edge, corpus, n_attrs, n_edge_attrs):
    """For each edge attribute the first node attribute that fires at the same inner tokens, or -1."""
    inner = np.zeros(corpus.n_tokens, bool)
    inner[corpus.inner] = True
    held = inner[node[1]]
    count = np.bincount(node[0][held], minlength=n_attrs), np.bincount(edge[0], minlength=n_edge_attrs)
    prints = (
        _fingerprints(node[0][held], node[1][held], n_attrs, corpus.n_tokens),
        _fingerprints(*edge, n_edge_attrs, corpus.n_tokens),
    )
    free = {}
    for a in np.flatnonzero(count[0])[::-1].tolist():
        free[int(prints[0][a]), int(count[0][a])] = a
    partner = np.full(n_edge_attrs, -1, np.int64)
    for b in np.flatnonzero(count[1]).tolist():
        partner[b] = free.pop((int(prints[1][b]), int(count[1][b])), -1)
    return partner


def inverted_index(corpus, node_kept, edge_kept, node_row, *, joint=True):
    """`Blocks` of the node attributes (A,) and edge attributes (B,) that are kept (boolean arrays) and occur
    in `corpus`.

    node_row (N,): equal for tokens with equal node scores.

    joint: a node and an edge attribute that fire at the same tokens (first tokens aside, which have no edge)
    share a block. Memory: 16 bytes an occurrence (24 with values) and 20 a visit; time: a few sorts.
    The constant edge attribute comes first.
    """
    n_attrs, n_edge_attrs = len(node_kept), len(edge_kept)
    node, edge = _node_occurrences(corpus, node_kept), edge_occurrences(corpus, edge_kept)
    partner = (
        _partners(node, edge, corpus, n_attrs, n_edge_attrs) if joint else np.full(n_edge_attrs, -1, np.int64)
    )
    paired = np.zeros(n_attrs, bool)
    paired[partner[partner >= 0]] = True
    alone = (partner < 0)[edge[0]]
    owner = np.concatenate([node[0], n_attrs + edge[0][alone]])  # node attribute, or n_attrs + edge attribute
    token, value = np.concatenate([node[1], edge[1][alone]]), np.concatenate([node[2], np.ones(alone.sum())])
    count = np.bincount(owner, minlength=n_attrs + n_edge_attrs)
    edge_of = np.full(n_attrs + n_edge_attrs, -1, np.int64)
    edge_of[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    edge_of[n_attrs:] = np.arange(n_edge_attrs)
    constant = edge_of == 0
    order = np.lexsort((np.arange(len(count)), -count, ~constant))
    order = order[count[order] > 0]
    place = np.full(len(count), -1, np.int64)
    place[order] = np.arange(len(order))
    by_block = np.argsort(place[owner], kind="stable")
    block, token, value = place[owner][by_block], token[by_block], value[by_block]
    sequence = corpus.sequence[token]
    new = np.ones(len(token), bool)
    new[1:] = (block[1:] != block[:-1]) | (sequence[1:] != sequence[:-1])
    first = np.flatnonzero(new)
    node_of = np.where(order < n_attrs, order, -1)
    occ_ptr = np.concatenate([first, [len(token)]]).astype(np.int64)
    begin = corpus.seq_ptr[sequence[first]]
    class_ptr, classes = _classes_of(corpus, n_edge_attrs)
    n_blocks = len(order)
    edge_class = np.where(token == corpus.seq_ptr[sequence], -1, corpus.edge_class[token])
    scored = np.unique((block * max(1, corpus.n_tokens) + node_row[token])[(node_of >= 0)[block]])
    return Blocks(
        np.stack([node_of, edge_of[order]]).astype(np.int32),
        row_offsets(block[first], n_blocks),
        sequence[first].astype(np.int32),
        (token[first] - begin).astype(np.int32),
        (token[occ_ptr[1:] - 1] - begin).astype(np.int32),
        occ_ptr,
        token.astype(np.int32),
        np.zeros(0) if (value == 1.0).all() else value,
        (np.cumsum(new) - 1).astype(np.int32),
        np.lexsort((edge_class, block)).astype(np.int32),
        row_offsets(scored, n_blocks, max(1, corpus.n_tokens)),
        (scored % max(1, corpus.n_tokens)).astype(np.int32),
        class_ptr,
        classes,
    )


def _classes_of(corpus, n_edge_attrs):
    """Edge classes of each edge attribute: pointers (B+1,) and classes."""
    known, width = corpus.class_attr < n_edge_attrs, max(1, corpus.n_classes)
    key = np.unique(corpus.class_attr[known].astype(np.int64) * width + owners(corpus.class_ptr)[known])
    return row_offsets(key, n_edge_attrs, width), (key % width).astype(np.int32)
