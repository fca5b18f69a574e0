"""Tokens that share what is kept of them: equal node scores, equal forward vectors (common prefixes),
equal backward vectors (suffixes).

alpha[t] depends on the tokens up to t and on nothing else, beta[t] on those behind t: words that begin (end)
alike share their vectors. A row is where a vector lies. Source: a trie of prefixes and one of suffixes,
Knuth, The Art of Computer Programming 3 (1998), 6.3.
"""

import numpy as np

from crfbook.data.corpus import positions

DEEPEST = 64  # tokens from the start (the end) of a sequence: what is common further inside is not looked for


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
