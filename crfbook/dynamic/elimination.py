"""Exact inference in m label chains over a batch: each step eliminates the old label of one chain after the
other.

A state of a step is a table of all joint labels, K = L_1 L_2 .. L_m cells. Its product with the transitions
of a chain is a matrix product over one axis:

    X_m = alpha[t-1],   X_{k-1}[.., y_k, ..] = sum_{yp_k} S_k X_k[.., yp_k, ..] psi_k[yp_k, y_k],   k = m .. 1
    alpha[t] = X_0 o psi_1[t, y_1] o .. o psi_m[t, y_m] o beside

So a step costs K (L_1 + .. + L_m) products, and one over joint labels K^2. S_k are potentials of an old label
of chain k and of new labels (skew edges). They are multiplied elementwise, and cost no such product.
Packed batches ("step-major") as in chain/forward_backward_batched.py. n rows of B sequences; a step of b rows
lies as (L_1, .., L_{m-1}, b, L_m), C order, flat: each product is then one matrix product, or one for each
value of the axes before. `chains` is a `ChainTables` and `work` a `ChainWork`, with their shapes below.

`Elimination` is the form of these kernels. Junction trees compute the sequences for which they lose digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import MAX_SPREAD, SMALLEST_MASS
from crfbook.chain.vector_math import exp_inplace, exp_table
from crfbook.data.corpus import offsets
from crfbook.dynamic.junction import FormWork, JunctionTrees

BYTES = 8 << 20  # of alpha and what stands between, aimed at


class ChainTables(NamedTuple):
    """Sizes, places and shared potentials of m chains: exp of scores for sums, scores for maxima.

    L_k labels of chain k, K = L_1 L_2 .. L_m joint labels; axes in the order of a `TemplateLayout`, or for
    maxima turned round. None stands for what only sums, or only maxima, read.
    """

    size: np.ndarray  # int64 (m,): L_k
    before: np.ndarray  # int64 (m,): product of the sizes before
    after: np.ndarray  # int64 (m,): and of those after
    first: np.ndarray  # int64 (m,): first column of each chain in a row of scores
    column: (
        np.ndarray
    )  # int64 (m-1, K / L_m): column of chain k's label, for the cells of all axes but the last
    pair_row: np.ndarray  # int64 (m,): first column of a row's own transitions; -1: all share `pair`
    beside_row: int  # the same for the potentials of a token's labels
    pair: np.ndarray  # (sum L_k^2,): transitions of each chain, [previous, next]
    pair_start: np.ndarray  # int64 (m,): where those of each begin
    beside: np.ndarray  # (K,): of the labels of a token
    skew: np.ndarray  # (m, K): of an old label of chain k and labels that have come; or (0, K)
    has_skew: np.ndarray  # uint8 (m,)
    block: (
        np.ndarray | None
    )  # sums, int64 (n_blocks, 3): first and last column of a row's block; 1: a transition
    log_token: float | None  # sums: nats taken out of beside
    log_step: float | None  # sums: and of pair and skew
    spread: float | None  # sums: nats between the largest and the smallest product of shared potentials
    cell: (
        np.ndarray | None
    )  # maxima, int64 (K,): the place of each cell in a row's potentials of a token's labels


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


def chain_tables(layout, tables, axes):
    """`ChainTables` of the scores of `log_tables`, chains in the order `axes`; None for what differs."""
    size, m = np.array([layout.sizes[chain] for chain in axes], np.int64), len(axes)
    before = np.concatenate([[1], np.cumprod(size[:-1])]).astype(np.int64)
    first, place = layout.first[axes], {chain: k for k, chain in enumerate(axes)}
    column = np.indices(size[:-1]).reshape(m - 1, before[-1]) + first[:-1, None]
    pair_row, beside_row, has_skew = np.full(m, -1), -1, np.zeros(m, np.uint8)
    pair, beside, skew = [np.zeros((L, L)) for L in size], np.zeros(size), np.zeros((m, *size))
    for table, scores in zip(layout.tables, tables, strict=True):
        where = [place[chain] for _, chain in table.at]
        if table.row >= 0:  # its scores are in the rows
            if table.span:
                pair_row[where[0]] = table.row
            elif len(where) > 1:
                beside_row = table.row
        elif table.span == 0:
            beside += along(scores, where, m)
        elif where[0] == where[1]:
            pair[where[0]] += scores
        else:
            skew[where[0]] += along(scores, where, m)
            has_skew[where[0]] = 1
    return ChainTables(
        size, before, np.prod(size) // (before * size), first, np.ascontiguousarray(column), pair_row,
        beside_row, np.concatenate([table.reshape(-1) for table in pair]), offsets(size * size)[:-1],
        beside.reshape(-1), skew.reshape(m, -1) if has_skew.any() else np.zeros((0, beside.size)), has_skew,
        *[None] * 5,
    )  # fmt: skip


def along(scores, where, m):
    """A table of the axes `where` in a shape that broadcasts over m axes."""
    order, shape = np.argsort(where), np.ones(m, np.int64)
    shape[np.sort(where)] = np.array(scores.shape)[order]
    return scores.transpose(order).reshape(shape)


def chain_potentials(layout, tables):
    """`ChainTables` for sums, of the scores of `log_tables`."""
    chains = chain_tables(layout, tables, list(layout.axes))
    block = [(lo, lo + L, 0) for lo, L in zip(chains.first, chains.size, strict=True)]
    block += [(t.row, t.row + t.size, t.span) for t in layout.tables if t.row >= 0 and len(t.at) > 1]
    pair = [exp_table(table) for table in np.split(chains.pair, chains.pair_start[1:])]
    steps = pair + [exp_table(table) for table in chains.skew]
    beside, most, width = exp_table(chains.beside)
    return chains._replace(
        pair=np.concatenate([psi for psi, *_ in pair]),
        beside=beside,
        skew=np.array([psi for psi, *_ in steps[len(pair) :]]).reshape(chains.skew.shape),
        block=np.array(block, np.int64),
        log_token=float(most),
        log_step=float(sum(part[1] for part in steps)),
        spread=float(width + sum(part[2] for part in steps)),
    )


def chain_work(sizes, n_rows, n_wide):
    """`ChainWork` for chains of these sizes and batches of up to n_rows rows of n_wide sequences."""
    n_cells = int(np.prod(sizes))
    alpha, between = np.empty(n_cells * n_rows), np.empty((len(sizes) - 1, n_cells * n_rows))
    wide, kept = np.empty((2, n_cells * n_wide)), np.empty(n_cells * n_wide)
    pair, n_products = np.empty(max(sizes) ** 2), np.zeros(1, np.int64)
    return ChainWork(alpha, between, wide, kept, np.empty(n_rows), pair, n_products)


@kernel
def exp_blocks(log_node, step_ptr, chains, log_z, flags):
    """psi = exp(log_node - middle) in place, block by block of a row; the middles go to log_z.

    A row has a block of scores for each chain, then one for each pair of labels whose weights depend on the
    text (not read at first tokens, where it is one of a transition). Beyond MAX_SPREAD nats between the
    largest and the smallest product of a step, digits may be lost unseen: flagged.

    Arguments:
        log_node : (n, M), overwritten
        step_ptr : (T+1,) of a packed batch
        chains : a `ChainTables` (for shapes, see the top)
    Out:
        log_z : (B,), added to
        flags : uint8 (B,), 1 where the log form is needed
    Cost: n M exps.
    Source: chapter 12.
    """
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            row, r, spread = log_node[i], i - step_ptr[t], chains.spread
            for k in range(chains.block.shape[0]):
                high, low = -np.inf, np.inf
                for y in range(chains.block[k, 0], chains.block[k, 1]):
                    high = row[y] if row[y] > high else high
                    low = row[y] if row[y] < low and row[y] > -np.inf else low
                if high == -np.inf or t == 0 and chains.block[k, 2]:
                    continue
                middle = low + 0.5 * (high - low)
                spread += high - low
                log_z[r] += middle
                for y in range(chains.block[k, 0], chains.block[k, 1]):
                    row[y] -= middle
            if not spread <= MAX_SPREAD:
                flags[r] = 1
    exp_inplace(log_node.reshape(-1))


@kernel
def transitions_of(k, i, psi, chains):
    """Transitions (L_k, L_k) [previous, next] of chain k into row i: shared by all tokens, or that row's own.

    Arguments:
        k : chain
        i : row
        psi : (n, M), of `exp_blocks`; or scores
        chains : a `ChainTables` (for shapes, see the top); with scores one of viterbi.py
    Cost: 1, a view.
    Source: chapter 12.
    """
    L, start = chains.size[k], chains.pair_start[k]
    if chains.pair_row[k] >= 0:
        start = i * psi.shape[1] + chains.pair_row[k]
        return psi.reshape(-1)[start : start + L * L].reshape(L, L)
    return chains.pair[start : start + L * L].reshape(L, L)


@kernel
def eliminate(k, source, table, chains, n_rows, out):
    """out[.., y, ..] = sum_yp source[.., yp, ..] table[yp, y] over the axis of chain k; on the way back the
    table is given transposed. Returns the number of products.

    Arguments:
        k : chain
        source : (>= K n_rows,)
        table : (L_k, L_k)
        chains : a `ChainTables` (for shapes, see the top)
        n_rows : of the step
    Out:
        out : (>= K n_rows,)
    Cost: K n_rows L_k multiply-adds.
    Source: Sutton, Rohanimanesh and McCallum (2004), section 3.2; docs/SPEC.md, B.3.
    """
    L, before = chains.size[k], chains.before[k]
    if k == chains.size.size - 1:
        n = before * n_rows
        np.dot(source[: n * L].reshape(n, L), table, out[: n * L].reshape(n, L))
        return n * L * L
    width = chains.after[k] * n_rows
    for p in range(before):
        block = slice(p * L * width, (p + 1) * L * width)
        np.dot(table.T, source[block].reshape(L, width), out[block].reshape(L, width))
    return before * L * L * width


@kernel
def copy_step(source, n_before, n_rows, chains, out):
    """The first rows of a step of n_before rows, as those of a step of n_rows: as many as both have.

    Arguments:
        source : (>= K n_before,)
        n_before : rows of the step before
        n_rows : rows of the step
        chains : a `ChainTables` (for shapes, see the top)
    Out:
        out : (>= K n_rows,)
    Cost: K n_rows.
    Source: chapter 12.
    """
    P, L = chains.before[-1], chains.size[-1]
    cells = source[: P * n_before * L].reshape(P, n_before * L)
    kept = out[: P * n_rows * L].reshape(P, n_rows * L)
    for p in range(P):
        for j in range(min(n_before, n_rows) * L):
            kept[p, j] = cells[p, j]


@kernel
def times_cells(table, n_rows, chains, state):
    """state[cell, row] *= table[cell] for all rows.

    Arguments:
        table : (K,)
        n_rows : rows of the step
        chains : a `ChainTables` (for shapes, see the top)
    Out:
        state : (>= K n_rows,), in the layout of a step
    Cost: K n_rows.
    Source: chapter 12.
    """
    P, L = chains.before[-1], chains.size[-1]
    cells, factor = state[: P * n_rows * L].reshape(P, n_rows, L), table.reshape(P, L)
    for p in range(P):
        for b in range(n_rows):
            for y in range(L):
                cells[p, b, y] *= factor[p, y]


@kernel
def times_nodes(lo, factor, psi, chains, state, total, flags):
    """state[cell, row] *= factor[row] psi_1[row, y_1] .. psi_m[row, y_m] beside[cell]; sums and lost digits.

    Arguments:
        lo : first row of the step
        factor : (b,)
        psi : (n, M)
        chains : a `ChainTables` (for shapes, see the top)
    Out:
        state : (>= K b,)
        total : (b,), its sum over all cells
        flags : (B,), 1 where a cell has less than SMALLEST_MASS
    Cost: 3 K b.
    Source: docs/SPEC.md, B.3.
    """
    last, n_rows, own = chains.size.size - 1, factor.size, chains.beside_row
    L, P, first = chains.size[last], chains.before[last], chains.first[last]
    cells, beside = state[: P * n_rows * L].reshape(P, n_rows, L), chains.beside.reshape(P, L)
    nodes = psi[lo : lo + n_rows, first : first + L].copy()
    for p in range(P):
        for b in range(n_rows):
            f = factor[b]
            for k in range(last):
                f *= psi[lo + b, chains.column[k, p]]
            if own >= 0:
                for y in range(L):
                    cells[p, b, y] *= psi[lo + b, own + p * L + y]
            lost = 0
            for y in range(L):
                v = cells[p, b, y] * f * nodes[b, y] * beside[p, y]
                cells[p, b, y] = v
                lost += (v > 0.0) & (v < SMALLEST_MASS)
            if lost:
                flags[b] = 1
    # a product with ones: the additions of a loop would depend on each other
    part = np.dot(state[: P * n_rows * L].reshape(P * n_rows, L), np.ones(L))
    total[:] = 0.0
    for p in range(P):
        for b in range(n_rows):
            total[b] += part[p * n_rows + b]


@kernel
def chains_forward(step_ptr, chains, log_node, log_z, flags, work):
    """alpha of all steps, normalised one step late, and log Z; returns how many sequences are flagged.

    alpha[t] = X_0 o nodes gain[t-1], gain[t] = 1 / sum alpha[t]; see the top of the file.

    Arguments:
        step_ptr : (T+1,)
        chains : a `ChainTables` (for shapes, see the top)
        log_node : (n, M), becomes psi
    Out:
        log_z : (B,)
        flags : uint8 (B,)
        work.alpha : (K n,)
        work.between : (m-1, K n), where the elimination of chain k starts
        work.gain : (n,)
    Cost: K (L_1 + .. + L_m) multiply-adds a row, counted in work.n_products.
    Source: docs/SPEC.md, B.3; chapter 12.
    """
    m, K = chains.size.size, chains.before[-1] * chains.size[-1]
    log_z[:], flags[:] = 0.0, 0
    exp_blocks(log_node, step_ptr, chains, log_z, flags)
    factor, total = np.ones(log_z.size), np.empty(log_z.size)
    for t in range(step_ptr.size - 1):
        lo, n_rows = step_ptr[t], step_ptr[t + 1] - step_ptr[t]
        state = work.alpha[lo * K : (lo + n_rows) * K]
        if t == 0:
            state[:] = 1.0
        else:
            before = step_ptr[t - 1]
            source = work.alpha[before * K : lo * K]
            if lo - before > n_rows:
                copy_step(source, lo - before, n_rows, chains, work.kept)
                source = work.kept
            for k in range(m - 1, -1, -1):
                if chains.has_skew[k]:
                    times_cells(chains.skew[k], n_rows, chains, source)
                target = state if k == 0 else work.between[k - 1, lo * K : (lo + n_rows) * K]
                table = transitions_of(k, lo, log_node, chains)
                work.n_products[0] += eliminate(k, source, table, chains, n_rows, target)
                source = target
            factor[:n_rows] = work.gain[before : before + n_rows]
        times_nodes(lo, factor[:n_rows], log_node, chains, state, total[:n_rows], flags)
        for b in range(n_rows):
            gain = 1.0 / total[b]
            work.gain[lo + b] = gain
            log_z[b] += np.log(total[b]) + chains.log_token + (chains.log_step if t else 0.0)
            if not (gain > 0.0 and gain < np.inf):
                flags[b] = 1
    n_flagged = 0
    for r in range(flags.size):
        n_flagged += flags[r]
    return n_flagged


@kernel
def node_counts(lo, factor, psi, alpha, chains, p_node, g, sums):
    """q = alpha o g, in place of alpha, summed into the marginals of each chain; g becomes v = g o nodes o
    factor.

    Arguments:
        lo : first row of the step
        factor : (b,), the gain before
        psi : (n, M)
        chains : a `ChainTables` (for shapes, see the top)
    Out:
        alpha, g : (>= K b,), overwritten
        p_node : (n, M) of these rows
        sums.beside : (K,), added to
    Cost: 5 K b.
    Source: docs/SPEC.md, B.3.
    """
    last, n_rows, own = chains.size.size - 1, factor.size, chains.beside_row
    L, P, first = chains.size[last], chains.before[last], chains.first[last]
    q, v = alpha[: P * n_rows * L].reshape(P, n_rows, L), g[: P * n_rows * L].reshape(P, n_rows, L)
    beside, cell_sum = chains.beside.reshape(P, L), sums.beside.reshape(P, L)
    nodes, found = psi[lo : lo + n_rows, first : first + L].copy(), np.zeros((n_rows, L))
    p_node[lo : lo + n_rows] = 0.0
    for p in range(P):
        for b in range(n_rows):
            f = factor[b]
            for k in range(last):
                f *= psi[lo + b, chains.column[k, p]]
            for y in range(L):
                # The beta of an unreachable state can be any number, even inf. It is not used.
                x = v[p, b, y] if q[p, b, y] > 0.0 else 0.0
                share = q[p, b, y] * x
                q[p, b, y] = share
                found[b, y] += share
                cell_sum[p, y] += share
                v[p, b, y] = x * f * nodes[b, y] * beside[p, y]
            if own >= 0:
                for y in range(L):
                    p_node[lo + b, own + p * L + y] = q[p, b, y]
                    v[p, b, y] *= psi[lo + b, own + p * L + y]
    p_node[lo : lo + n_rows, first : first + L] = found
    part = np.dot(alpha[: P * n_rows * L].reshape(P * n_rows, L), np.ones(L))
    for p in range(P if last else 0):
        for b in range(n_rows):
            for k in range(last):
                p_node[lo + b, chains.column[k, p]] += part[p * n_rows + b]


@kernel
def open_ends(following, weight, gain, chains, g, out):
    """g of the rows that have a next token, and weight gain for those that end here.

    Arguments:
        following : number of rows that have a next token
        weight : (B,)
        gain : (b,)
        chains : a `ChainTables` (for shapes, see the top)
        g : (>= K following,)
    Out:
        out : (>= K b,)
    Cost: K b.
    Source: docs/SPEC.md, B.3.
    """
    P, L, n_rows = chains.before[-1], chains.size[-1], gain.size
    copy_step(g, following, n_rows, chains, out)
    cells = out[: P * n_rows * L].reshape(P, n_rows * L)
    for p in range(P):
        for b in range(following, n_rows):
            cells[p, b * L : (b + 1) * L] = weight[b] * gain[b]


@kernel
def pair_counts(k, lo, before, v, psi, chains, n_rows, p_node, sums, buf):
    """Expected transitions of chain k into a step: sum before[.., yp, ..] v[.., y, ..], not yet times psi_k;
    in rows that have transitions of their own, with them, to p_node.

    Arguments:
        k : chain
        lo : first row of the step
        before, v : (>= K n_rows,)
        psi : (n, M)
        chains : a `ChainTables` (for shapes, see the top)
        n_rows : rows of the step
    Out:
        p_node : (n, M) or sums.pair, added to
    Work:
        buf : (>= L_k^2,)
    Cost: K n_rows L_k multiply-adds.
    Source: docs/SPEC.md, B.3.
    """
    L, m = chains.size[k], chains.size.size
    pair, start = buf[: L * L].reshape(L, L), chains.pair_start[k]
    own = chains.pair_row[k] >= 0
    n_blocks = 1 if k == m - 1 else chains.before[k]
    for p in range(n_blocks):
        if k == m - 1:
            n = chains.before[k] * n_rows
            np.dot(before[: n * L].reshape(n, L).T, v[: n * L].reshape(n, L), pair)
        else:
            width = chains.after[k] * n_rows
            block = slice(p * L * width, (p + 1) * L * width)
            np.dot(before[block].reshape(L, width), v[block].reshape(L, width).T, pair)
        for j in range(L * L):
            if own:
                p_node[lo, chains.pair_row[k] + j] += buf[j] * psi[lo, chains.pair_row[k] + j]
            else:
                sums.pair[start + j] += buf[j]


@kernel
def skew_counts(k, before, v, chains, n_rows, sums):
    """Expected pairs of an old label of chain k and new ones; v *= the potentials S_k.

    Arguments:
        k : chain
        before : (>= K n_rows,), with S_k in it
        v : (>= K n_rows,), overwritten
        chains : a `ChainTables` (for shapes, see the top)
        n_rows : rows of the step
    Out:
        sums.skew : (m, K), row k added to
    Cost: 3 K n_rows.
    Source: chapter 12.
    """
    P, L = chains.before[-1], chains.size[-1]
    table, out = chains.skew[k].reshape(P, L), sums.skew[k].reshape(P, L)
    here, cells = before[: P * n_rows * L].reshape(P, n_rows, L), v[: P * n_rows * L].reshape(P, n_rows, L)
    for p in range(P):
        for b in range(n_rows):
            for y in range(L):  # `before` has S_k already, and v gets it now
                out[p, y] += here[p, b, y] * cells[p, b, y]
                cells[p, b, y] *= table[p, y]


@kernel
def chains_backward(step_ptr, weight, chains, psi, p_node, sums, work):
    """Marginals of all labels and the sums of those of all pairs, from what `chains_forward` left.

    g[T-1] = weight gain,  v = g o nodes gain[t-1],  then for k = 1 .. m: counts of chain k from `between` and
    v, v <- v over psi_k transposed;  g[t-1] = v.

    Arguments:
        step_ptr : (T+1,)
        weight : (B,)
        chains : a `ChainTables` (for shapes, see the top)
        psi : (n, M) of `chains_forward`
    Out:
        p_node : (n, M) = weight * marginals, of all blocks
        sums : a `ChainSums`, added to, those of pairs still without their potential
    Work:
        work : the arrays of `chains_forward`, and work.wide (2, K B), work.pair
    Cost: 2 K (L_1 + .. + L_m) multiply-adds a row.
    Source: docs/SPEC.md, B.3; chapter 12.
    """
    m, K = chains.size.size, chains.before[-1] * chains.size[-1]
    now, following = 0, 0
    ones = np.ones(weight.size)
    for t in range(step_ptr.size - 2, -1, -1):
        lo, n_rows = step_ptr[t], step_ptr[t + 1] - step_ptr[t]
        if following < n_rows:
            now = 1 - now
            open_ends(
                following, weight, work.gain[lo : lo + n_rows], chains, work.wide[1 - now], work.wide[now]
            )
        target = work.wide[now]
        before = step_ptr[t - 1] if t else 0
        factor = work.gain[before : before + n_rows] if t else ones[:n_rows]
        alpha = work.alpha[lo * K : (lo + n_rows) * K]
        node_counts(lo, factor, psi, alpha, chains, p_node, target, sums)
        if t == 0:
            break
        for k in range(m):
            if k < m - 1:
                source = work.between[k, lo * K : (lo + n_rows) * K]
            else:
                source = work.alpha[before * K : lo * K]
                if lo - before > n_rows:
                    copy_step(source, lo - before, n_rows, chains, work.kept)
                    source = work.kept
            v = work.wide[now]
            pair_counts(k, lo, source, v, psi, chains, n_rows, p_node, sums, work.pair)
            eliminate(k, v, transitions_of(k, lo, psi, chains).T, chains, n_rows, work.wide[1 - now])
            now = 1 - now
            if chains.has_skew[k]:
                skew_counts(k, source, work.wide[now], chains, n_rows, sums)
        following = n_rows


def elimination_rows(layout):
    """Rows of a batch. One sequence where transitions depend on the text: products have no common factor."""
    if any(table.row >= 0 and table.span for table in layout.tables):
        return 1
    cells = float(np.prod(layout.sizes)) * len(layout.sizes)
    return int(np.clip(BYTES / (8 * cells), 64, 4096))


class Elimination(JunctionTrees):
    """Chains with potentials between neighbours: each batch by matrix products."""

    def work(self, work):
        sizes = [self.layout.sizes[chain] for chain in self.layout.axes]
        return FormWork(*work, chain_work(sizes, len(work.gain), len(work.flags)))

    def redo(self, batch, r, log_z, part):
        try:
            super().redo(batch, r, log_z, part)
        except ValueError as error:
            raise ValueError(
                f"scores too far apart for elimination need junction trees, but {error} (max_cells)"
            ) from None

    def prepare(self, w, what):
        super().prepare(w, what)
        self.chains = chain_potentials(self.layout, self.tables)

    def begin(self):
        chains = self.chains
        sums = ChainSums(*(np.zeros_like(psi) for psi in (chains.pair, chains.beside, chains.skew)))
        return sums, np.zeros(len(self.bounds.middle))

    def batch_sums(self, batch, work, log_z, sums):
        step_ptr, chains = batch.step_ptr, self.chains
        lost = chains_forward(step_ptr, chains, batch.log_node, log_z, batch.flags, work.own)
        if lost:
            erase(step_ptr, chains, np.flatnonzero(batch.flags), batch.log_node, work.own)
            log_z[batch.flags > 0] = np.nan
        if sums is None:
            return lost > 0
        chains_backward(step_ptr, batch.weight, chains, batch.log_node, batch.p_node, sums[0], work.own)
        sums[1][:] += batch.p_node.sum(axis=0)
        return lost > 0

    def finish(self, sums, part):
        """The counts of all weights that do not depend on the text; sums: `ChainSums`, and marginals of the
        cells of rows, summed over rows.
        """
        (sums, row_sum), chains = sums, self.chains
        place, sizes = {chain: k for k, chain in enumerate(self.layout.axes)}, tuple(chains.size)
        for table in self.layout.tables:
            if table.start < 0:
                continue
            where = [place[chain] for _, chain in table.at]
            if table.row >= 0:
                found = row_sum[table.cells]
            elif table.span and where[0] == where[1]:
                cells = slice(chains.pair_start[where[0]], chains.pair_start[where[0]] + table.size)
                found = sums.pair[cells] * chains.pair[cells]
            else:
                whole = sums.skew[where[0]] if table.span else sums.beside
                others = tuple(k for k in range(len(sizes)) if k not in where)
                found = whole.reshape(sizes).sum(axis=others)
            part[table.weights] += found.reshape(-1)


def erase(step_ptr, chains, flagged, psi, work):
    """Set the rows of sequences that need the log form to 0, so that they add nothing."""
    last, n_cells = chains.size[-1], len(chains.beside)
    for lo, hi in zip(step_ptr[:-1].tolist(), step_ptr[1:].tolist(), strict=True):
        here = flagged[flagged < hi - lo]
        work.gain[lo + here], psi[lo + here] = 0.0, 0.0
        for array in (work.alpha, *work.between):
            array[lo * n_cells : hi * n_cells].reshape(-1, hi - lo, last)[:, here] = 0.0
