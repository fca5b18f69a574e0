"""Potentials of m label chains, as the kernels of elimination.py, viterbi.py and block_sweeps.py read them.

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
    return np.concatenate([np.zeros(0), *(table.reshape(-1) for table in pair)]), start


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


class Blocks(NamedTuple):
    """Potentials of m chains and G groups of links, for block_sweeps.py. Tables lie one after the other."""

    size: np.ndarray  # int64 (m,): L_k
    first: np.ndarray  # int64 (m+1,): first column of each chain in a row of scores
    pair_start: np.ndarray  # int64 (m,): where the transitions of each chain begin; -1: it has none
    log_pair: np.ndarray  # (sum L_k^2,), [previous, next]
    psi_pair: np.ndarray  # exp(log_pair - pair_max)
    psi_pair_t: np.ndarray  # [next, previous]
    pair_max: np.ndarray  # (m,)
    pair_spread: np.ndarray  # (m,): largest difference of finite values
    # int64 (G, 4): chain a, chain b, where its table begins, first column of its cells in the rows of b or -1
    link: np.ndarray
    log_link: np.ndarray  # (sum L_a L_b,), [a, b]; nothing of groups that have cells in rows
    psi_link: np.ndarray  # exp(log_link - link_max); mean field: log_link
    psi_link_t: np.ndarray  # [b, a]
    link_max: np.ndarray  # (G,)
    link_spread: np.ndarray  # (G,)
    is_hard: np.ndarray  # uint8 (1,): whether a table forbids a pair


class BlockWork(NamedTuple):
    """What sweeps write, for up to N rows of B sequences of T steps, E links; M labels of all chains."""

    count: np.ndarray  # int64 (3,): rows, sequences and steps that are left
    step: np.ndarray  # int64 (T+1,): where each of the steps begins
    seq: np.ndarray  # int64 (N,): sequence of each row
    origin: np.ndarray  # int64 (N,): the row of the batch that it was
    place: np.ndarray  # int64 (N,): the row that it becomes
    slot: np.ndarray  # int64 (B,): the sequence of the batch that each was
    length: np.ndarray  # int64 (B,)
    quiet: np.ndarray  # int64 (B,): chains in a row whose update moved no message of it
    moved: np.ndarray  # int64 (B,): how many numbers of its messages the last update moved
    sweeps: np.ndarray  # int64 (B,): after which it was done
    done: np.ndarray  # uint8 (B,)
    flags: np.ndarray  # uint8 (B,): 1 where the log form is needed
    offset: np.ndarray  # (m, B): nats taken out of the scores of each chain; mean field: less its fields
    gain: np.ndarray  # (m, N)
    u: np.ndarray  # (M N,): exp(scores) of each chain; mean field: scores
    psi: np.ndarray  # (M N,): what a chain was run with, then v of `backward_batched`
    alpha: np.ndarray  # (M N,)
    p: np.ndarray  # (M N,): beliefs
    link_ptr: np.ndarray  # int64 (G+1,): links of each group
    link_at: np.ndarray  # int64 (G,): where its messages and cavities begin
    n_links: np.ndarray  # int64 (G,): how many are left
    end: np.ndarray  # int64 (2, E): rows of the links at a and b
    link_place: np.ndarray  # int64 (E,)
    link_z: np.ndarray  # (E,): cavity X cavity
    total: np.ndarray  # (E,)
    message: np.ndarray  # into the a of a group's links, (E, L_a), then into the b; group after group
    cavity: np.ndarray  # of those labels, laid out as `message`
    one: np.ndarray  # gathered operands, (N or E, largest L)
    two: np.ndarray
    ones: np.ndarray
    pair: np.ndarray  # (largest L squared,)


class BlockSums(NamedTuple):
    """What a shard finds for weights that do not depend on the text."""

    pair: np.ndarray  # of transitions, still without their potentials
    link: np.ndarray  # of links, too; mean field: whole
    row: np.ndarray  # (M,): beliefs of the cells of rows, summed over rows


def block_potentials(layout, tables, along, across, mean_field):
    """`Blocks` of the scores of `log_tables`. along, across : numbers of tables of transitions, of links."""
    pairs = [np.zeros((0, 0))] * len(layout.sizes)
    for n in along:
        pairs[layout.tables[n].at[0][1]] = tables[n]
    shared = [tables[n] if layout.tables[n].row < 0 else np.zeros((0, 0)) for n in across]
    (psi, most, spread), (psi_link, link_max, link_spread) = (
        ([found[0] for found in group], *(np.array([found[i] for found in group], float) for i in (1, 2)))
        for group in ([_exp(table) for table in tables_] for tables_ in (pairs, shared))
    )
    psi_link = shared if mean_field else psi_link
    (log_pair, start), (log_link, where) = _flat(pairs), _flat(shared)
    link = [
        (*(chain for _, chain in layout.tables[n].at), begin, layout.tables[n].row)
        for n, begin in zip(across, where, strict=False)
    ]
    hard = any((tables[n] == -np.inf).any() for n in (*along, *across))
    psi, psi_t = (_flat(part)[0] for part in (psi, [table.T for table in psi]))
    psi_link, psi_link_t = (_flat(part)[0] for part in (psi_link, [table.T for table in psi_link]))
    return Blocks(
        np.array(layout.sizes, np.int64), layout.first,
        np.where([pair.size > 0 for pair in pairs], start, -1), log_pair, psi, psi_t, most, spread,
        np.array(link, np.int64).reshape(-1, 4), log_link, psi_link, psi_link_t, link_max, link_spread,
        np.array([hard], np.uint8),
    )  # fmt: skip


def block_sums(blocks, n_cells):
    """`BlockSums` of zeros, for rows of n_cells cells."""
    return BlockSums(np.zeros_like(blocks.psi_pair), np.zeros_like(blocks.psi_link), np.zeros(n_cells))


def block_work(sizes, ends, n, wide, steps, link_ptrs):
    """`BlockWork` for batches of up to n rows, `wide` sequences, `steps` steps and these links.

    ends : (a, b) of each group. link_ptrs : (G+1,) of each batch.
    """
    most, m, n_groups, labels = max(sizes), len(sizes), len(ends), sum(sizes)
    n_links = max((int(ptr[-1]) for ptr in link_ptrs), default=0)
    widths = np.array([sizes[a] + sizes[b] for a, b in ends], np.int64)
    cells = max((int(np.diff(ptr) @ widths) for ptr in link_ptrs), default=0)

    def ints(*shape):
        return np.zeros(shape, np.int64)

    return BlockWork(
        ints(3), ints(steps + 1), *ints(3, n), *ints(5, wide), *np.zeros((2, wide), np.uint8),
        np.zeros((m, wide)), np.empty((m, n)), *np.empty((4, labels * n)), ints(n_groups + 1),
        *ints(2, n_groups), ints(2, n_links), ints(n_links), *np.empty((2, n_links)), *np.empty((2, cells)),
        *np.empty((2, max(n, n_links) * most)), np.ones(max(wide, most)), np.empty(most * most),
    )  # fmt: skip
