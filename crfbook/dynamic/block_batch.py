"""A batch of chain blocks (block_sweeps.py): its arrays, what it begins with, what it closes, who leaves it.

`blocks` and `work` are a `Blocks` and a `BlockWork` of potentials.py, which list their arrays with shapes: m
chains, G groups of links; n rows of B sequences that are left, step-major as in
chain/forward_backward_batched.py. kind: BELIEFS or MEAN_FIELD.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import MAX_SPREAD
from crfbook.chain.forward_backward_batched import exp_rows
from crfbook.chain.vector_math import copy_row, exp_inplace

BELIEFS, MEAN_FIELD = 0, 1


@kernel
def rows_of(k, n, blocks, array):
    """The first n rows of chain k, (n, L_k).

    Arguments: k, n, blocks (`Blocks`, see the top); array (cells,): of work, chain
    after chain, each of as many rows as the largest batch. Cost: 1, a view. Source: chapter 13.
    """
    L, lo = blocks.size[k], blocks.first[k] * (array.size // blocks.first[-1])
    return array[lo : lo + n * L].reshape(n, L)


@kernel
def side_of(g, side, blocks, work, array):
    """Messages or cavities of group g at its chain a (side 0) or b (side 1), (n_links[g], L).

    Arguments: g, side, blocks (`Blocks`, see the top), work; array (cells,): work.message or
    work.cavity. Cost: 1, a view. Source: chapter 13.
    """
    L, lo, n = blocks.size[blocks.link[g, side]], work.link_at[g], work.n_links[g]
    if side == 1:
        lo += (work.link_ptr[g + 1] - work.link_ptr[g]) * blocks.size[blocks.link[g, 0]]
    return array[lo : lo + n * L].reshape(n, L)


@kernel
def ends_of(g, side, work):
    """Rows of the links of group g at that side, (n_links[g],).

    Arguments: g, side, work. Cost: 1, a view. Source: chapter 13.
    """
    return work.end[side, work.link_ptr[g] : work.link_ptr[g] + work.n_links[g]]


@kernel
def table_of(g, blocks, tables):
    """The shared table of group g, (L_a, L_b), or its transpose (L_b, L_a) from transposed tables, flat.

    Arguments: g, blocks (`Blocks`, see the top); tables (n_cells,): one of its arrays.
    Cost: 1, a view. Source: chapter 13.
    """
    size = blocks.size[blocks.link[g, 0]] * blocks.size[blocks.link[g, 1]]
    return tables[blocks.link[g, 2] : blocks.link[g, 2] + size]


@kernel
def times_table(g, side, source, log_node, blocks, work, out):
    """out[e] = source[e] @ X, from side 0 of group g, or with the transpose from side 1; mean field: log X.

    Arguments: g, side; source (E, L); log_node (n, M): tables of rows; blocks (`Blocks`, see the top), work;
    out: out (E, L'), L' labels of the other chain. Cost: E L L' multiply-adds. Source: docs/SPEC.md, B.4.
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
    """The scores of a batch chain by chain, uniform messages (mean field: none); returns how many scores
    are -inf.

    Arguments: step_ptr (T+1,); links: (link_ptr (G+1,), end (2, E)); log_node (n, M); blocks (`Blocks`, see
    the top); kind; out: work. Cost: n M. Source: docs/SPEC.md, B.4.
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

    Arguments: out: u (L,), -inf: closed; beside (L,), scores of the neighbour; log_pair (L, L) [x, y].
    Cost: L^2 at most. Source: arc consistency; Dechter and Mateescu (2003).
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

    Arguments: step (T+1,); log_pair (L, L) [previous, next]; out: u (n, L), -inf: closed. Cost: n L^2 at
    most. Source: as in `close_row`.
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

    Arguments: g, side, log_node (n, M), blocks (`Blocks`, see the top); out: work.u. Cost: E L_a L_b at most.
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
    """Close every label that no labelling of its neighbours allows, until nothing changes; sequences with a
    token of no label are done.

    What is closed so has no belief at a fixed point of belief propagation, and only that.
    Arguments: log_node (n, M), blocks (`Blocks`, see the top); out: work.u, work.done. Cost: a few n L.
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
    """work.u and cells of rows become exp(scores); flags what spreads too far.

    Arguments: log_node (n, M): cells of links that have their own tables, overwritten; blocks (`Blocks`, see
    the top); out: work.u, work.offset, work.flags. Cost: n M exps. Source: chapter 02.
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
    """Rows i of array (n, L) go to place[i] <= i (n,); -1: they go away.

    Arguments: place (n,); out: array (n, L). Cost: n L. Source: chapter 13.
    """
    for i in range(place.size):
        if place[i] >= 0 and place[i] < i:
            copy_row(array, i, array, place[i])


@kernel
def compact(blocks, work):
    """Sequences that are done leave the batch.

    Arguments: blocks (`Blocks`, see the top); out: work. Cost: n (L_1 + .. + L_m). Source: chapter 13.
    """
    n, B, T = work.count[0], work.count[1], work.count[2]
    place, c, n_steps = work.place, 0, 0
    for t in range(T):
        lo, hi = work.step[t], work.step[t + 1]
        work.step[t] = c
        for i in range(lo, hi):
            place[i] = -1
            if work.done[work.seq[i]] == 0:
                place[i], work.origin[c] = c, work.origin[i]
                c += 1
        n_steps += c > work.step[t]
    work.step[n_steps] = c
    for k in range(blocks.size.size):
        for array in (work.u, work.psi, work.alpha, work.p):
            move_rows(place[:n], rows_of(k, n, blocks, array))
        move_rows(place[:n], work.gain[k, :n].reshape(n, 1))
    for g in range(blocks.link.shape[0]):
        rows, other, kept, E = ends_of(g, 0, work), ends_of(g, 1, work), 0, work.n_links[g]
        where = work.link_place[:E]
        for e in range(E):
            where[e] = -1
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
