"""Where each symbol fires, and which tokens share what is kept of them.

A block is a node attribute, an edge attribute, or a pair of them that fire at the same tokens (the same test
of the input, of which one speaks about a label and the other about a pair of labels): then one
forward-backward serves both. `Blocks` has the sequences that hold its symbol, and the positions there.
Source: Sokolovska, Lavergne, Cappe and Yvon (2010), section 4.4; docs/SPEC.md, A.10.

alpha[t] depends on the tokens up to t and on nothing else, beta[t] on those behind t: words that begin (end)
alike share their vectors. A row is where a vector lies. Source: a trie of prefixes and one of suffixes,
Knuth, The Art of Computer Programming 3 (1998), 6.3.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.corpus import owners, positions, ragged_index
from crfbook.data.features import row_offsets

DEEPEST = 64  # tokens from the start (the end) of a sequence: what is common further inside is not looked for


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
    score_row: np.ndarray  # int32: their rows, as node_rows (token_index.py) numbers them
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
    n_blocks, n_tokens = len(order), max(1, corpus.n_tokens)
    edge_class = np.where(token == corpus.seq_ptr[sequence], -1, corpus.edge_class[token])
    scored = np.unique((block * n_tokens + node_row[token])[(node_of >= 0)[block]])
    visits = sequence[first], token[first] - begin, token[occ_ptr[1:] - 1] - begin
    value = np.zeros(0) if (value == 1.0).all() else value
    by_class = np.lexsort((edge_class, block))
    return Blocks(
        np.stack([node_of, edge_of[order]]).astype(np.int32), row_offsets(block[first], n_blocks),
        *(numbers.astype(np.int32) for numbers in visits), occ_ptr, token.astype(np.int32), value,
        (np.cumsum(new) - 1).astype(np.int32), by_class.astype(np.int32),
        row_offsets(scored, n_blocks, n_tokens), (scored % n_tokens).astype(np.int32),
        *_classes_of(corpus, n_edge_attrs),
    )  # fmt: skip


def _classes_of(corpus, n_edge_attrs):
    """Edge classes of each edge attribute: pointers (B+1,) and classes."""
    known, width = corpus.class_attr < n_edge_attrs, max(1, corpus.n_classes)
    key = np.unique(corpus.class_attr[known].astype(np.int64) * width + owners(corpus.class_ptr)[known])
    return row_offsets(key, n_edge_attrs, width), (key % width).astype(np.int32)


def node_rows(corpus, bound_row):
    """(row of each token (N,), one token of each row): tokens with the same attributes,
    values and bounds share a row.
    """
    n, size, position = corpus.n_tokens, np.diff(corpus.attr_ptr), positions(corpus.attr_ptr)
    salt = np.random.default_rng(0).integers(
        0, 2**63, int(corpus.attr_idx.max(initial=0)) + 1, dtype=np.uint64
    )
    mixed = salt[corpus.attr_idx] * (2 * position + 1).astype(np.uint64)
    if len(corpus.attr_val):
        mixed *= corpus.attr_val.view(np.uint64) | np.uint64(1)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    prints = (
        total[corpus.attr_ptr[1:]]
        - total[corpus.attr_ptr[:-1]]
        + bound_row.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    )
    _, first, row = np.unique(prints, return_index=True, return_inverse=True)
    row = row.reshape(-1)
    like = first[row]
    if not (
        np.array_equal(size, size[like])
        and np.array_equal(bound_row, bound_row[like])
        and _equal_items(corpus, like, position)
    ):
        # two different tokens have one fingerprint
        return np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    return row.astype(np.int32), first.astype(np.int32)


def _equal_items(corpus, like, position):
    """Have all tokens the attributes and values of the tokens `like`, of which they have as many?"""
    other = np.repeat(corpus.attr_ptr[:-1][like], np.diff(corpus.attr_ptr)) + position
    same = np.array_equal(corpus.attr_idx, corpus.attr_idx[other])
    return same and (not len(corpus.attr_val) or np.array_equal(corpus.attr_val, corpus.attr_val[other]))


def lattice_rows(corpus, node_row):
    """((row of alpha[t] (N,), number of rows), (row of beta[t] (N,), number of rows)).
    Row 0 of beta is that of all last tokens.
    """
    edge_class = corpus.edge_class.astype(np.int64) + 1
    edge_class[corpus.first] = 0
    symbol = node_row * np.int64(corpus.n_classes + 1) + edge_class
    symbol = np.unique(symbol, return_inverse=True)[1].reshape(-1)
    behind = np.zeros(corpus.n_tokens, np.int64)  # what comes next: nothing, or a symbol
    behind[:-1] = symbol[1:] + 1
    behind[corpus.last] = 0
    first, last, length = corpus.seq_ptr[:-1], corpus.seq_ptr[1:] - 1, corpus.lengths
    return _rows(first, length, symbol, 1), _rows(last, length, behind, -1)


def _rows(start, length, symbol, step):
    """Rows of a trie: tokens start + step * q with the same symbols up to there share one; (row (N,),
    number of rows).
    """
    n_tokens = len(symbol)
    row, n, depth, n_symbols = np.full(n_tokens, -1, np.int32), 0, 0, int(symbol.max(initial=0)) + 1
    alive = np.flatnonzero(length > 0)
    parent = np.zeros(len(alive), np.int64)
    while len(alive) and depth < DEEPEST:
        token = start[alive] + step * depth
        found, parent = np.unique(parent * n_symbols + symbol[token], return_inverse=True)
        parent = parent.reshape(-1)
        row[token] = n + parent
        n, depth = n + len(found), depth + 1
        if len(found) == len(alive):
            break
        going = length[alive] > depth
        alive, parent = alive[going], parent[going]
    alone = np.flatnonzero(row < 0)
    row[alone] = n + np.arange(len(alone))
    return _in_order_of_use(row, start, length, step), n + len(alone)


def _in_order_of_use(row, start, length, step):
    """The same rows, numbered as sequence after sequence comes to them:
    what is used together lies together in memory.
    """
    begin = np.cumsum(length) - length
    used = row[np.repeat(start - step * begin, length) + step * np.arange(len(row))]
    _, first, old = np.unique(used, return_index=True, return_inverse=True)
    new = np.empty(len(first), np.int32)
    new[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return new[row]


def balanced(root, size, n_groups):
    """A group for each item: those of one root stay together, groups have about the same size.
    Depends on the data alone.
    """
    total = np.bincount(root, size)
    load, group = np.zeros(n_groups), np.zeros(len(total), np.int64)
    for r in np.argsort(-total, kind="stable").tolist():
        group[r] = load.argmin()
        load[group[r]] += total[r]
    return group[root]


@np.errstate(over="ignore", invalid="ignore")
def count_bounds(blocks, lattices):
    """(curvatures of the safe rule (G,), bounds of an entry of the gradient (G,)) from counts alone.
    ValueError where they exceed float64.
    """
    block = owners(blocks.visit_ptr)
    weight = lattices.weight[blocks.visit_seq]
    x = np.maximum(1.0, np.abs(blocks.occ_val)) if len(blocks.occ_val) else np.ones(len(blocks.occ_token))
    mass = np.add.reduceat(x, blocks.occ_ptr[:-1]) if len(block) else np.zeros(0)
    both = np.where((blocks.member >= 0).all(axis=0), 1.0, 0.5)
    curvature = both * np.bincount(block, weight * mass**2, minlength=blocks.n_blocks)
    if not np.isfinite(curvature).all():
        raise ValueError(
            f"attribute values up to {x.max():.3g} and sequence weights up to {weight.max():.3g}: "
            "expected sums of their squares within float64; scale them"
        )
    return curvature, np.bincount(block, weight * mass, minlength=blocks.n_blocks)


def gold_edges(corpus, edge_kept, n_labels):
    """Keys (b L + previous) L + next of the labelled transitions, rising, and their weighted counts."""
    attr, token = edge_occurrences(corpus, edge_kept)
    key = (attr * n_labels + corpus.labels[token - 1]) * n_labels + corpus.labels[token]
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([key[:1] == key[:1], key[1:] != key[:-1]]))
    weight = corpus.token_weights[token[order]]
    counts = np.add.reduceat(weight, first) if len(first) else np.zeros(0)
    return key[first], counts
