"""Gradient and curvature of one block of weights, from the sequences that hold its symbol and from no other.

`blocks` (index.py), `chains`, `work` (state.py), `tables` (pools.py) list their
arrays. `sums` is a BlockSums of state.py: rows EXPECTED, CURVATURE, GOLD of node (3, M) and edge (3,
M, M).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.coordinate.lattice import SCALE, UNSAFE, mass
from crfbook.learners.coordinate.tables import LABEL, SHIFT, SIZE, START

EXPECTED, CURVATURE, GOLD = 0, 1, 2  # rows of BlockSums.node and .edge
FEW = 4  # tokens of one class: fewer are added entry by entry of its list, more through a whole table


@kernel
def gold_doubt(g, limit, blocks, chains, tables):
    """sum over the occurrences of block g of weight |x| (1 - p(gold)), cut short once above limit;
    inf if a sequence is unsafe.

    Each entry of the block's gradient is at most this: it gains x (1 - p) where it is gold, loses x p <= x (1
    - p(gold)) elsewhere. So a block without active weights stays without them for certain while this is at
        most c1.
    Arguments: g; limit; blocks; chains and tables after `extend`. Cost: M a token, and lists. Source:
    Sokolovska et al. (2010), eq. (5), (13).
    """
    total, row, cell, value = 0.0, tables.lists.row, tables.lists.cell, tables.lists.value
    alpha, beta, labels, slot = chains.alpha, chains.beta, chains.labels, tables.slot
    has_edge = blocks.member[1, g] >= 0
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i = blocks.visit_seq[v]
        if chains.place[UNSAFE, i]:
            return np.inf
        for o in range(blocks.occ_ptr[v], blocks.occ_ptr[v + 1]):
            t = blocks.occ_token[o]
            y, x = labels[t], max(1.0, abs(blocks.occ_val[o])) if blocks.occ_val.size else 1.0
            r, q = chains.alpha_row[t], chains.beta_row[t]
            z = mass(alpha, r, beta, q)
            p = alpha[r, y] * beta[q, y] / z
            if has_edge and t > chains.seq_ptr[i]:
                yp, k = labels[t - 1], chains.edge_class[t]
                psi = tables.base[yp, y]
                for e in range(row[START, k], row[START, k] + row[SIZE, k]):
                    if cell[e] == (yp << SHIFT | y):
                        psi += value[e]
                if slot[k] >= 0:
                    psi = tables.whole[slot[k], yp, y]
                p = (
                    alpha[chains.alpha_row[t - 1], yp]
                    * psi
                    * chains.psi_node[chains.node_row[t], y]
                    * beta[q, y]
                )
                p /= chains.alpha_note[SCALE, r] * z
            total += chains.weight[i] * x * max(0.0, 1.0 - p)
        if total > limit:
            return total
    return total


@kernel
def clear_sums(sums):
    """All sums of a block back to 0.

    Arguments: sums. Cost: 3 M^2. Source: none needed.
    """
    for part in range(3):
        for y in range(sums.node.shape[1]):
            sums.node[part, y] = 0.0
            for x in range(sums.node.shape[1]):
                sums.edge[part, y, x] = 0.0


@kernel
def _add_difference(left, right, n, cell, value, start, stop, base, weight, repeat, edge):
    """What the list cell[start:stop] of a class adds to the sums that the base gives:
    weight p[yp, y] = left[n, yp] psi[yp, y] right[n, y].
    """
    share = 1.0 / weight
    for e in range(start, stop):
        yp, y = cell[e] >> SHIFT, cell[e] & LABEL
        s = left[n, yp] * right[n, y]
        more = s * value[e]
        edge[EXPECTED, yp, y] += more
        edge[CURVATURE, yp, y] += repeat * more * (1.0 - share * (2.0 * s * base[yp, y] + more))


@kernel
def _fill_table(k, tables, psi):
    """psi = the whole table of class k."""
    row, cell, value, base = tables.lists.row, tables.lists.cell, tables.lists.value, tables.base
    slot, M = tables.slot, psi.shape[0]
    for yp in range(M):
        for y in range(M):
            psi[yp, y] = base[yp, y] if slot[k] < 0 else tables.whole[slot[k], yp, y]
    for e in range(row[START, k], row[START, k] + row[SIZE, k]):
        psi[cell[e] >> SHIFT, cell[e] & LABEL] += value[e]


@kernel
def _flush(at, n, psi, left, right, given, repeated, edge, product):
    """Sums of n tokens with the same table: w p = left psi right;  edge[EXPECTED] += w p,
    edge[CURVATURE] += w repeat p (1 - p).

    Two matrix products (three if repeated) instead of n outer ones: the table multiplies sums, not tokens.
    left and right are spoilt.
    """
    M = psi.shape[0]
    if n == 0:
        return
    np.dot(left[at : at + n].T, right[at : at + n], product[0])
    if repeated:
        for r in range(at, at + n):
            for y in range(M):
                right[r, y] *= given[1, r]
        np.dot(left[at : at + n].T, right[at : at + n], product[1])
        for yp in range(M):
            for y in range(M):
                edge[1, yp, y] += psi[yp, y] * (product[1, yp, y] - product[0, yp, y])
    for r in range(at, at + n):
        share = 1.0 / (given[0, r] * given[1, r])
        for y in range(M):
            left[r, y] *= left[r, y] * share
            right[r, y] *= right[r, y]
    np.dot(left[at : at + n].T, right[at : at + n], product[1])
    for yp in range(M):
        for y in range(M):
            p = psi[yp, y] * product[0, yp, y]
            edge[0, yp, y] += p
            edge[1, yp, y] += p - psi[yp, y] * psi[yp, y] * product[1, yp, y]


@kernel
def _same_class(o, high, has_edge, blocks, chains):
    """(edge class of occurrence by_class[o], -1 if it has no edge; end of those behind it that have the same,
    64 at most).
    """
    token, by_class, edge_class = blocks.occ_token, blocks.by_class, chains.edge_class
    t = token[by_class[o]]
    k = edge_class[t] if has_edge and t > chains.seq_ptr[chains.sequence[t]] else -1
    stop = o + 1
    while stop < min(high, o + 64):
        t = token[by_class[stop]]
        if k != (edge_class[t] if has_edge and t > chains.seq_ptr[chains.sequence[t]] else -1):
            break
        stop += 1
    return k, stop


@kernel
def block_gradient(g, low, high, repeats, blocks, chains, tables, sums, work):
    """Expected and gold counts and curvatures of block g over its occurrences by_class[low:high];
    expected ones of safe sequences alone.

    expected[yp, y] = sum_t p(y_{t-1} = yp, y_t = y),  curvature = sum_t n_t p (1 - p)  over the occurrences
    t; nodes likewise, with values x. n_t is 1: the approximation (16); or, if repeats, the occurrences in the
    sequence of t: a bound of the exact diagonal. Arguments: g; low, high; repeats; blocks; chains and tables
    after `extend`; out: sums, added to; work. Cost: 2 M^2 a token in matrix products, M^2 a class. Source:
    Sokolovska et al. (2010), eq. (5), (16); docs/SPEC.md, A.6, A.8.
    """
    has_edge, node, edge, n, o = blocks.member[1, g] >= 0, sums.node, sums.edge, np.int64(0), low
    rows = work.left_rows.shape[0] // 2
    left, right, given, base, product = work.left_rows, work.right_rows, work.given, tables.base, work.product
    alpha, beta, psi, labels, slot = chains.alpha, chains.beta, chains.psi_node, chains.labels, tables.slot
    M = chains.alpha.shape[1]
    row, cell, value = tables.lists.row, tables.lists.cell, tables.lists.value
    scale = chains.alpha_note[SCALE]
    while o < high:
        k, stop = _same_class(o, high, has_edge, blocks, chains)
        size = row[SIZE, k] if k >= 0 and slot[k] < 0 else 0
        own = k >= 0 and (slot[k] >= 0 or (size > 0 and stop - o >= FEW))
        if k >= 0 and not own and n + stop - o > rows:
            _flush(np.int64(0), n, base, left, right, given, repeats, edge, product)
            n = np.int64(0)
        at = rows if own else n
        for j in range(o, stop):
            t, v = blocks.occ_token[blocks.by_class[j]], blocks.occ_visit[blocks.by_class[j]]
            i, x = blocks.visit_seq[v], blocks.occ_val[blocks.by_class[j]] if blocks.occ_val.size else 1.0
            weight = chains.weight[i]
            repeat = float(blocks.occ_ptr[v + 1] - blocks.occ_ptr[v]) if repeats else 1.0
            node[GOLD, labels[t]] += weight * x
            if k >= 0:
                edge[GOLD, labels[t - 1], labels[t]] += weight
            if chains.place[UNSAFE, i] or weight == 0.0:
                continue
            r, q, c = chains.alpha_row[t], chains.beta_row[t], chains.node_row[t]
            before = chains.alpha_row[t - 1]
            share = 1.0 / mass(alpha, r, beta, q)
            for y in range(M):
                p = alpha[r, y] * beta[q, y] * share
                node[EXPECTED, y] += weight * x * p
                node[CURVATURE, y] += weight * repeat * x * x * (p - p * p)
            if k < 0:
                continue
            share *= weight / scale[r]
            for y in range(M):
                left[at, y] = alpha[before, y]
                right[at, y] = psi[c, y] * beta[q, y] * share
            given[0, at], given[1, at] = weight, repeat
            if not own:
                _add_difference(
                    left,
                    right,
                    at,
                    cell,
                    value,
                    row[START, k],
                    row[START, k] + size,
                    base,
                    weight,
                    repeat,
                    edge,
                )
            at += 1
        if own:
            _fill_table(k, tables, work.table)
            _flush(rows, at - rows, work.table, left, right, given, repeats, edge, product)
        else:
            n = at
        o = stop
    _flush(np.int64(0), n, base, left, right, given, repeats, edge, product)
