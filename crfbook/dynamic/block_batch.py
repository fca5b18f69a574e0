"""A batch of chain blocks (block_sweeps.py): its arrays, its start, closed labels, and sequences that leave.

`blocks` and `work` are a `LinkedChains` and a `LinkedWork`, which list their arrays with shapes: m chains, G
groups of links; n rows of B sequences that are left, step-major as in chain/forward_backward_batched.py.
kind: BELIEFS or MEAN_FIELD.
"""

from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import MAX_SPREAD
from crfbook.chain.forward_backward_batched import exp_rows
from crfbook.chain.vector_math import copy_row, exp_inplace, exp_table
from crfbook.data.corpus import offsets

BELIEFS, MEAN_FIELD = 0, 1


class SweepRule(NamedTuple):
    """How messages are sent."""

    kind: int  # BELIEFS or MEAN_FIELD
    tol: float  # of a message that sums to one
    damping: float  # share of the old message
    max_sweeps: int


class LinkedChains(NamedTuple):
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
    is_hard: bool  # whether a table forbids a pair


class LinkedWork(NamedTuple):
    """What sweeps write, for up to N rows of B sequences, E links; M labels of all chains."""

    count: np.ndarray  # int64 (3,): rows, sequences and steps that are left
    step: np.ndarray  # int64 (N+1,): where each of the steps begins
    seq: np.ndarray  # int64 (N,): sequence of each row
    origin: np.ndarray  # int64 (N,): the row of the batch that it was
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
    link_z: np.ndarray  # (E,): cavity X cavity
    message: np.ndarray  # into the a of a group's links, (E, L_a), then into the b; group after group
    cavity: np.ndarray  # of those labels, laid out as `message`
    one: np.ndarray  # gathered operands, (N or E, largest L)
    two: np.ndarray
    ones: np.ndarray


class LinkedSums(NamedTuple):
    """What a shard finds for weights that do not depend on the text."""

    pair: np.ndarray  # of transitions, still without their potentials
    link: np.ndarray  # of links, too; mean field: whole
    row: np.ndarray  # (M,): beliefs of the cells of rows, summed over rows


def linked_chains(layout, tables, along, across, mean_field):
    """`LinkedChains` of the scores of `log_tables`.

    along, across : numbers of tables of transitions, of links.
    """
    pairs, none = [np.zeros((0, 0))] * len(layout.sizes), np.zeros((0, 0))
    for n in along:
        pairs[layout.tables[n].at[0][1]] = tables[n]
    shared = [tables[n] if layout.tables[n].row < 0 else none for n in across]
    start, where = (offsets([table.size for table in part])[:-1] for part in (pairs, shared))
    link = [
        (*(chain for _, chain in layout.tables[n].at), begin, layout.tables[n].row)
        for n, begin in zip(across, where, strict=True)
    ]
    return LinkedChains(
        np.array(layout.sizes, np.int64), layout.first,
        np.where([pair.size > 0 for pair in pairs], start, -1), *_flat_tables(pairs),
        np.array(link, np.int64).reshape(-1, 4), *_flat_tables(shared, mean_field),
        any((tables[n] == -np.inf).any() for n in (*along, *across)),
    )  # fmt: skip


def _flat_tables(tables, as_scores=False):
    """(scores, exp of them less the largest, the same of transposed tables: one after the other; the largest
    of each table, its spread); as_scores: scores in place of exp.
    """
    found = [exp_table(table) for table in tables]
    psi = tables if as_scores else [table for table, *_ in found]
    parts = (tables, psi, [table.T for table in psi])
    flat = (np.concatenate([np.zeros(0), *(table.reshape(-1) for table in part)]) for part in parts)
    return *flat, *(np.array([number[i] for number in found], float) for i in (1, 2))


def linked_work(sizes, ends, n, wide, link_ptrs):
    """`LinkedWork` for batches of up to n rows, `wide` sequences and these links.

    ends : (a, b) of each group. link_ptrs : (G+1,) of each batch.
    """
    most, m, n_groups, labels = max(sizes), len(sizes), len(ends), sum(sizes)
    n_links = max((int(ptr[-1]) for ptr in link_ptrs), default=0)
    widths = np.array([sizes[a] + sizes[b] for a, b in ends], np.int64)
    cells = max((int(np.diff(ptr) @ widths) for ptr in link_ptrs), default=0)

    def ints(*shape):
        return np.zeros(shape, np.int64)

    return LinkedWork(
        ints(3), ints(n + 1), *ints(2, n), *ints(5, wide), *np.zeros((2, wide), np.uint8),
        np.zeros((m, wide)), np.empty((m, n)), *np.empty((4, labels * n)), ints(n_groups + 1),
        *ints(2, n_groups), ints(2, n_links), np.empty(n_links), *np.empty((2, cells)),
        *np.empty((2, max(n, n_links) * most)), np.ones(max(wide, most)),
    )  # fmt: skip


@kernel
def rows_of(k, n, blocks, array):
    """The first n rows of chain k, (n, L_k).

    Arguments:
        k : chain
        n : number of rows
        blocks : a `LinkedChains` (for shapes, see the top)
        array : (cells,), of work, chain after chain, each of as many rows as the largest batch
    Cost: 1, a view.
    Source: chapter 13.
    """
    L, lo = blocks.size[k], blocks.first[k] * (array.size // blocks.first[-1])
    return array[lo : lo + n * L].reshape(n, L)


@kernel
def side_of(g, side, blocks, work, array):
    """Messages or cavities of group g at its chain a (side 0) or b (side 1), (n_links[g], L).

    Arguments:
        g : group of links
        side : 0: chain a, 1: chain b
        blocks : a `LinkedChains` (for shapes, see the top)
        work : a `LinkedWork`
        array : (cells,), work.message or work.cavity
    Cost: 1, a view.
    Source: chapter 13.
    """
    L, lo, n = blocks.size[blocks.link[g, side]], work.link_at[g], work.n_links[g]
    if side == 1:
        lo += (work.link_ptr[g + 1] - work.link_ptr[g]) * blocks.size[blocks.link[g, 0]]
    return array[lo : lo + n * L].reshape(n, L)


@kernel
def ends_of(g, side, work):
    """Rows of the links of group g at that side, (n_links[g],).

    Arguments:
        g, side, work : a group of links; 0 or 1; a `LinkedWork`
    Cost: 1, a view.
    Source: chapter 13.
    """
    return work.end[side, work.link_ptr[g] : work.link_ptr[g] + work.n_links[g]]


@kernel
def table_of(g, blocks, tables):
    """The shared table of group g, (L_a, L_b), or its transpose (L_b, L_a) from transposed tables, flat.

    Arguments:
        g : group of links
        blocks : a `LinkedChains` (for shapes, see the top)
        tables : (n_cells,), one of its arrays
    Cost: 1, a view.
    Source: chapter 13.
    """
    size = blocks.size[blocks.link[g, 0]] * blocks.size[blocks.link[g, 1]]
    return tables[blocks.link[g, 2] : blocks.link[g, 2] + size]


@kernel
def times_table(g, side, source, log_node, blocks, work, out):
    """out[e] = source[e] @ X, from side 0 of group g, or with the transpose from side 1; mean field: log X.

    Arguments:
        g, side : a group of links; 0: its chain a, 1: its chain b
        source : (E, L)
        log_node : (n, M), tables of rows
        blocks : a `LinkedChains` (for shapes, see the top)
        work : a `LinkedWork`
    Out:
        out : (E, L'), L' labels of the other chain
    Cost: E L L' multiply-adds.
    Source: docs/SPEC.md, B.4.
    """
    La, Lb, row = blocks.size[blocks.link[g, 0]], blocks.size[blocks.link[g, 1]], blocks.link[g, 3]
    if row < 0:
        if side == 0:
            table = table_of(g, blocks, blocks.psi_link).reshape(La, Lb)
        else:
            table = table_of(g, blocks, blocks.psi_link_t).reshape(Lb, La)
        np.dot(source, table, out)
        return
    rows = ends_of(g, 1, work)
    for e in range(rows.size):
        cells = log_node[work.origin[rows[e]], row : row + La * Lb].reshape(La, Lb)
        if side == 0:
            np.dot(source[e], cells, out[e])
        else:
            np.dot(cells, source[e], out[e])


@kernel
def open_blocks(step_ptr, links, log_node, blocks, kind, work):
    """Set the scores of a batch, chain by chain, and uniform messages (mean field: none).

    Returns how many scores are -inf.

    Arguments:
        step_ptr : (T+1,)
        links : (link_ptr (G+1,), end (2, E))
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
        kind : BELIEFS or MEAN_FIELD
    Out:
        work : a `LinkedWork`
    Cost: n M.
    Source: docs/SPEC.md, B.4.
    """
    n, B, T = step_ptr[-1], step_ptr[1], step_ptr.size - 1
    work.count[0], work.count[1], work.count[2] = n, B, T
    link_ptr, end = links
    n_closed = 0
    work.length[:B] = 0
    for t in range(T):
        work.step[t] = step_ptr[t]
        for i in range(step_ptr[t], step_ptr[t + 1]):
            work.seq[i], work.origin[i] = i - step_ptr[t], i
            work.length[i - step_ptr[t]] += 1
    work.step[T] = n
    for k in range(blocks.size.size):
        u, first = rows_of(k, n, blocks, work.u), blocks.first[k]
        for i in range(n):
            for y in range(u.shape[1]):
                u[i, y] = log_node[i, first + y]
                n_closed += u[i, y] == -np.inf
    for r in range(B):
        work.slot[r], work.quiet[r], work.done[r], work.flags[r] = r, 0, 0, 0
    work.offset[:] = 0.0
    start = 0
    for g in range(link_ptr.size - 1):
        lo, hi = link_ptr[g], link_ptr[g + 1]
        work.link_ptr[g], work.link_ptr[g + 1] = lo, hi
        work.n_links[g], work.link_at[g] = hi - lo, start
        start += (hi - lo) * (blocks.size[blocks.link[g, 0]] + blocks.size[blocks.link[g, 1]])
        for side in range(2):
            for e in range(lo, hi):
                work.end[side, e] = end[side, e]
    for j in range(start):
        work.message[j], work.cavity[j] = 1.0 - kind, -1.0
    return n_closed


@kernel
def close_row(u, beside, log_pair):
    """Close labels y of a token that no open label x of its neighbour allows; returns how many.

    Arguments:
    Out:
        u : (L,), -inf: closed
        beside : (L,), scores of the neighbour
        log_pair : (L, L) [x, y]
    Cost: L^2 at most.
    Source: arc consistency; Dechter and Mateescu (2003).
    """
    n_closed = 0
    for y in range(u.size):
        found = u[y] == -np.inf
        for x in range(beside.size):
            if found:
                break
            found = beside[x] > -np.inf and log_pair[x, y] > -np.inf
        if not found:
            u[y] = -np.inf
            n_closed += 1
    return n_closed


@kernel
def close_along(step, log_pair, u):
    """Close labels that no open label before them, or after them, allows; returns how many.

    Arguments:
        step : (T+1,)
        log_pair : (L, L) [previous, next]
    Out:
        u : (n, L), -inf: closed
    Cost: n L^2 at most.
    Source: as in `close_row`.
    """
    n_closed = 0
    for t in range(1, step.size - 1):
        for i in range(step[t], step[t + 1]):
            n_closed += close_row(u[i], u[step[t - 1] + i - step[t]], log_pair)
    for t in range(step.size - 2, 0, -1):
        for i in range(step[t], step[t + 1]):
            n_closed += close_row(u[step[t - 1] + i - step[t]], u[i], log_pair.T)
    return n_closed


@kernel
def close_links(g, side, log_node, blocks, work):
    """Close labels at one side of group g that no open label at the other allows; returns how many.

    Arguments:
        g : group of links
        side : 0: chain a, 1: chain b
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work.u
    Cost: E L_a L_b at most.
    Source: as in `close_row`.
    """
    a, b, row = blocks.link[g, 0], blocks.link[g, 1], blocks.link[g, 3]
    n, n_closed, La, Lb = work.count[0], 0, blocks.size[a], blocks.size[b]
    u, v = rows_of(a, n, blocks, work.u), rows_of(b, n, blocks, work.u)
    from_row, to_row = ends_of(g, 0, work), ends_of(g, 1, work)
    for e in range(from_row.size):
        i, j = from_row[e], to_row[e]
        cells = log_node[j, row : row + La * Lb] if row >= 0 else table_of(g, blocks, blocks.log_link)
        table = cells.reshape(La, Lb)
        n_closed += close_row(v[j], u[i], table) if side else close_row(u[i], v[j], table.T)
    return n_closed


@kernel
def close_dead(log_node, blocks, work):
    """Close every label that no labelling of its neighbours allows, until nothing changes.

    A sequence with a token that has no open label is done. Exactly the closed labels have belief 0 at a fixed
    point of belief propagation.

    Arguments:
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work.u, work.done
    Cost: a few n L.
    Source: Dechter and Mateescu (2003), "A simple insight into iterative belief propagation's success".
    """
    n, T = work.count[0], work.count[2]
    n_closed = 1
    while n_closed > 0:
        n_closed = 0
        for k in range(blocks.size.size):
            L, start = blocks.size[k], blocks.pair_start[k]
            if start >= 0:
                log_pair = blocks.log_pair[start : start + L * L].reshape(L, L)
                n_closed += close_along(work.step[: T + 1], log_pair, rows_of(k, n, blocks, work.u))
        for g in range(blocks.link.shape[0]):
            n_closed += close_links(g, 0, log_node, blocks, work)
            n_closed += close_links(g, 1, log_node, blocks, work)
    for k in range(blocks.size.size):
        u = rows_of(k, n, blocks, work.u)
        for i in range(n):
            n_open = 0
            for y in range(u.shape[1]):
                n_open += u[i, y] > -np.inf
            if n_open == 0:
                work.done[work.seq[i]] = 1


@kernel
def exp_scores(log_node, blocks, work):
    """work.u and cells of rows become exp(scores); flags sequences whose scores spread too far.

    Arguments:
        log_node : (n, M), cells of links that have their own tables, overwritten
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work.u, work.offset, work.flags
    Cost: n M exps.
    Source: chapter 02.
    """
    n, B, T = work.count[0], work.count[1], work.count[2]
    for k in range(blocks.size.size):
        exp_rows(
            rows_of(k, n, blocks, work.u), blocks.pair_spread[k], work.step[: T + 1], work.offset[k, :B],
            work.flags[:B],
        )  # fmt: skip
    for g in range(blocks.link.shape[0]):
        row = blocks.link[g, 3]
        size = blocks.size[blocks.link[g, 0]] * blocks.size[blocks.link[g, 1]]
        if row < 0:
            if not blocks.link_spread[g] <= MAX_SPREAD:
                work.flags[:B] = 1
            continue
        to_row = ends_of(g, 1, work)
        for e in range(to_row.size):
            cells, r = log_node[to_row[e], row : row + size], work.seq[to_row[e]]
            high, low = -np.inf, np.inf
            for j in range(size):
                high = cells[j] if cells[j] > high else high
                low = cells[j] if cells[j] < low and cells[j] > -np.inf else low
            if not high - low <= MAX_SPREAD:
                work.flags[r] = 1
            if high > -np.inf:
                work.offset[0, r] += high
                for j in range(size):
                    cells[j] -= high
            exp_inplace(cells)


@kernel
def move_rows(place, array):
    """Row i of array (n, L) moves to place[i] <= i (n,); -1: it is dropped.

    Arguments:
        place : (n,)
    Out:
        array : (n, L)
    Cost: n L.
    Source: chapter 13.
    """
    for i in range(place.size):
        if place[i] >= 0 and place[i] < i:
            copy_row(array, i, array, place[i])


@kernel
def compact(blocks, work):
    """Sequences that are done leave the batch.

    Arguments:
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work : a `LinkedWork`
    Cost: n (L_1 + .. + L_m).
    Source: chapter 13.
    """
    n, B, T = work.count[0], work.count[1], work.count[2]
    place, c, n_steps = np.full(n, -1), 0, 0
    for t in range(T):
        lo, hi = work.step[t], work.step[t + 1]
        work.step[t] = c
        for i in range(lo, hi):
            if work.done[work.seq[i]] == 0:
                place[i], work.origin[c] = c, work.origin[i]
                c += 1
        n_steps += c > work.step[t]
    work.step[n_steps] = c
    for k in range(blocks.size.size):
        for array in (work.u, work.psi, work.alpha, work.p):
            move_rows(place, rows_of(k, n, blocks, array))
        move_rows(place, work.gain[k, :n].reshape(n, 1))
    for g in range(blocks.link.shape[0]):
        rows, other, kept, E = ends_of(g, 0, work), ends_of(g, 1, work), 0, work.n_links[g]
        where = np.full(E, -1)
        for e in range(E):
            if place[rows[e]] >= 0:
                where[e], rows[kept], other[kept] = kept, place[rows[e]], place[other[e]]
                kept += 1
        for side in range(2):
            move_rows(where, side_of(g, side, blocks, work, work.message))
            move_rows(where, side_of(g, side, blocks, work, work.cavity))
        work.n_links[g] = kept
    left = 0
    for r in range(B):
        if work.done[r] == 0:
            work.slot[left], work.quiet[left], work.length[left] = work.slot[r], work.quiet[r], work.length[r]
            work.done[left], work.flags[left] = 0, 0
            for k in range(blocks.size.size):
                work.offset[k, left] = work.offset[k, r]
            left += 1
    for t in range(n_steps):
        for i in range(work.step[t], work.step[t + 1]):
            work.seq[i] = i - work.step[t]
    work.count[0], work.count[1], work.count[2] = c, left, n_steps
