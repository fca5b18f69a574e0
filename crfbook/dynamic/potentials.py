"""Potentials of m label chains, as the kernels of elimination.py and viterbi.py read them.

L_k labels of chain k, K = L_1 L_2 .. L_m joint labels; axes in the order of a `Layout`, for viterbi.py turned
round.
"""

from typing import NamedTuple

import numpy as np


class Chains(NamedTuple):
    """Sizes, places and shared potentials, for exact sums."""

    size: np.ndarray  # int64 (m,): L_k
    before: np.ndarray  # int64 (m,): product of the sizes before
    after: np.ndarray  # int64 (m,): and of those after
    # int64 (n_blocks, 3): first and last column of a row's block, chains first; 1 if it is of a transition
    block: np.ndarray
    # int64 (m-1, K / L_m), at least (1, 1): column of chain k's label, for the cells of all axes but the last
    column: np.ndarray
    pair_row: np.ndarray  # int64 (m,): first column of a row's own transitions; -1: all share `pair`
    beside_row: np.ndarray  # int64 (1,): the same for the potentials of a token's labels
    pair: np.ndarray  # (sum L_k^2,): transitions of each chain, [previous, next]
    pair_start: np.ndarray  # int64 (m,): where those of each begin
    psi_beside: np.ndarray  # (K,): of the labels of a token
    psi_skew: np.ndarray  # (m, K): of an old label of chain k and labels that have come; or (0, K)
    has_skew: np.ndarray  # uint8 (m,)
    log_token: np.ndarray  # (1,): nats taken out of psi_beside
    log_step: np.ndarray  # (1,): and of pair and psi_skew
    spread: np.ndarray  # (1,): nats between the largest and the smallest product of shared potentials


class MaxChains(NamedTuple):
    """The same as scores, for the best labelling. What is not here is as in `Chains`."""

    size: np.ndarray
    before: np.ndarray
    after: np.ndarray
    first: np.ndarray  # int64 (m,): first column of each chain's scores
    pair_row: np.ndarray
    beside_row: np.ndarray
    pair: np.ndarray  # (sum L_k^2,): scores
    pair_start: np.ndarray
    log_beside: np.ndarray  # (K,)
    log_skew: np.ndarray  # (m, K) or (0, K)
    has_skew: np.ndarray
    cell: np.ndarray  # int64 (K,): the place of each cell in a row's potentials of a token's labels


class ChainWork(NamedTuple):
    """What elimination writes on its way, for a batch of n rows and B sequences."""

    alpha: np.ndarray  # (K n,)
    between: np.ndarray  # (m-1, K n): what the elimination of each chain but the last starts from
    wide: np.ndarray  # (2, K B)
    kept: np.ndarray  # (K B,)
    gain: np.ndarray  # (n,)
    pair: np.ndarray  # (largest L_k squared,)
    n_products: np.ndarray  # int64 (1,): multiply-adds of forward steps


class ChainSums(NamedTuple):
    """What a shard finds for the shared potentials."""

    pair: np.ndarray  # (sum L_k^2,): still without those potentials
    beside: np.ndarray  # (K,)
    skew: np.ndarray  # (m, K) or (0, K)


class DualChain(NamedTuple):
    """One of two chains, for dual decomposition (dual.py): its scores, and what sweeps write."""

    first: int  # first column of its scores
    pair: np.ndarray  # (L, L): scores of transitions, [previous, next]
    pair_t: np.ndarray  # (L, L): the same, [next, previous]
    beside: np.ndarray  # (L of the other chain, L): scores of the two labels of a token
    u: np.ndarray  # (longest, L): scores of the labels of a sequence
    c: np.ndarray  # (longest, L): what is left of them to the chain
    g: np.ndarray  # (longest, L): what is given to the rungs
    A: np.ndarray  # (longest, L): the best of what is before
    B: np.ndarray  # (longest, L): and of what follows
    node: np.ndarray  # (longest, L): scores where the labels of the other chain are known
    follows: np.ndarray  # (longest, L): B of these
    M: np.ndarray  # (L,): max-marginals of the chain
    R: np.ndarray  # (L,): and of a rung
    path: np.ndarray  # int32 (longest,): best labels of the chain
    given: np.ndarray  # int32 (longest,): the same, where the labels of the other chain are known


class _Shared(NamedTuple):
    """Scores of all cliques, axis by axis."""

    pair: list  # (L_k, L_k) of each chain
    beside: np.ndarray  # (L_1, .., L_m)
    skew: np.ndarray  # (m, L_1, .., L_m)
    has_skew: np.ndarray  # uint8 (m,)
    pair_row: np.ndarray
    beside_row: np.ndarray


def _shared(layout, tables, axes):
    sizes, m = [layout.sizes[chain] for chain in axes], len(axes)
    place = {chain: k for k, chain in enumerate(axes)}
    pair_row, beside_row, has_skew = np.full(m, -1), np.full(1, -1), np.zeros(m, np.uint8)
    pair, beside, skew = [np.zeros((size, size)) for size in sizes], np.zeros(sizes), np.zeros((m, *sizes))
    for table, scores in zip(layout.tables, tables, strict=True):
        where = [place[chain] for _, chain in table.at]
        if table.row >= 0:  # its scores are in the rows
            if table.span:
                pair_row[where[0]] = table.row
            elif len(where) > 1:
                beside_row[0] = table.row
        elif table.span == 0:
            beside += along(scores, where, m)
        elif where[0] == where[1]:
            pair[where[0]] += scores
        else:
            skew[where[0]] += along(scores, where, m)
            has_skew[where[0]] = 1
    return _Shared(pair, beside, skew if has_skew.any() else skew[:0], has_skew, pair_row, beside_row)


def along(scores, where, m):
    """A table of the axes `where` in a shape that broadcasts over m axes."""
    order, shape = np.argsort(where), np.ones(m, np.int64)
    shape[np.sort(where)] = np.array(scores.shape)[order]
    return scores.transpose(order).reshape(shape)


def _sizes(sizes):
    """(size, before, after), int64 (m,) each."""
    size = np.array(sizes, np.int64)
    before = np.concatenate([[1], np.cumprod(size[:-1])]).astype(np.int64)
    return size, before, np.prod(size) // (before * size)


def _flat(pair):
    """(tables one after the other, where each begins)."""
    start = np.concatenate([[0], np.cumsum([table.size for table in pair[:-1]])]).astype(np.int64)
    return np.concatenate([table.reshape(-1) for table in pair]), start


def _exp(scores):
    """(exp(scores - largest), largest, nats between the largest and the smallest finite one)."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return np.zeros(scores.shape), 0.0, 0.0
    return np.exp(scores - finite.max()), finite.max(), finite.max() - finite.min()


def chain_potentials(layout, tables):
    """`Chains` of the scores of `log_tables`."""
    axes, first = list(layout.axes), layout.first
    shared, sizes = _shared(layout, tables, axes), _sizes([layout.sizes[chain] for chain in axes])
    block = [[first[chain], first[chain + 1], 0] for chain in axes]
    block += [[t.row, t.row + t.size, t.span] for t in layout.tables if t.row >= 0 and len(t.at) > 1]
    column = np.zeros((1, 1), np.int64)
    if len(axes) > 1:
        column = np.indices(sizes[0][:-1]).reshape(len(axes) - 1, -1) + first[axes[:-1]][:, None]
    pair, skew = [_exp(table) for table in shared.pair], [_exp(table) for table in shared.skew]
    beside, most, width = _exp(shared.beside)
    return Chains(
        *sizes, np.array(block, np.int64), np.ascontiguousarray(column), shared.pair_row, shared.beside_row,
        *_flat([psi for psi, *_ in pair]), beside.reshape(-1),
        np.array([psi for psi, *_ in skew]).reshape(len(skew), beside.size), shared.has_skew,
        np.array([most]), np.array([sum(part[1] for part in pair + skew)], float),
        np.array([width + sum(part[2] for part in pair + skew)]),
    )  # fmt: skip


def max_chains(layout, tables):
    """`MaxChains` of the scores of `log_tables`, and the chain of each axis."""
    axes, first = list(layout.axes), layout.first
    if any(table.span and table.at[0][1] != table.at[1][1] for table in layout.tables if len(table.at) == 2):
        axes = axes[::-1]
    shared, sizes = _shared(layout, tables, axes), _sizes([layout.sizes[chain] for chain in axes])
    n_cells = shared.beside.size
    place = [layout.axes.index(chain) for chain in axes]
    cell = np.arange(n_cells).reshape([layout.sizes[chain] for chain in layout.axes]).transpose(place)
    chains = MaxChains(
        *sizes, first[axes], shared.pair_row, shared.beside_row, *_flat(shared.pair),
        shared.beside.reshape(-1), shared.skew.reshape(len(shared.skew), n_cells), shared.has_skew,
        np.ascontiguousarray(cell.reshape(-1)),
    )  # fmt: skip
    return chains, axes


def dual_chains(chains, longest):
    """Both `DualChain`s of two `MaxChains`, for sequences of up to `longest` tokens."""
    found, beside = [], chains.log_beside.reshape(chains.size)
    for first, L, start in zip(chains.first.tolist(), chains.size.tolist(), chains.pair_start, strict=True):
        beside = np.ascontiguousarray(beside.T)
        pair = chains.pair[start : start + L * L].reshape(L, L)
        rows, cells = (np.empty((longest, L)) for _ in range(7)), (np.empty(L) for _ in range(2))
        paths = (np.empty(longest, np.int32) for _ in range(2))
        found.append(DualChain(first, pair, np.ascontiguousarray(pair.T), beside, *rows, *cells, *paths))
    return found


def table_counts(layout, chains, sums, row_sum, out):
    """Add the counts of all weights that do not depend on the text to out (n_tables,).

    row_sum (M,): marginals of the cells of rows, summed over rows.
    """
    place, sizes = {chain: k for k, chain in enumerate(layout.axes)}, tuple(chains.size)
    for table in layout.tables:
        if table.start < 0:
            continue
        where = [place[chain] for _, chain in table.at]
        if table.row >= 0:
            found = row_sum[table.row : table.row + table.size]
        elif table.span and where[0] == where[1]:
            cells = slice(chains.pair_start[where[0]], chains.pair_start[where[0]] + table.size)
            found = sums.pair[cells] * chains.pair[cells]
        else:
            whole = sums.skew[where[0]] if table.span else sums.beside
            others = tuple(k for k in range(len(sizes)) if k not in where)
            found = whole.reshape(sizes).sum(axis=others)
        out[table.start : table.start + table.size] += found.reshape(-1)


def chain_work(sizes, n_rows, n_wide):
    """`ChainWork` for chains of these sizes and batches of up to n_rows rows of n_wide sequences."""
    n_cells = int(np.prod(sizes))
    alpha, between = np.empty(n_cells * n_rows), np.empty((len(sizes) - 1, n_cells * n_rows))
    wide, kept = np.empty((2, n_cells * n_wide)), np.empty(n_cells * n_wide)
    pair, n_products = np.empty(max(sizes) ** 2), np.zeros(1, np.int64)
    return ChainWork(alpha, between, wide, kept, np.empty(n_rows), pair, n_products)


def chain_sums(chains):
    """`ChainSums` of zeros."""
    return ChainSums(*(np.zeros_like(psi) for psi in (chains.pair, chains.psi_beside, chains.psi_skew)))
