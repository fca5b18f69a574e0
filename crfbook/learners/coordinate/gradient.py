"""Gradient and curvature of one block of weights, from the sequences that hold its symbol and from no other.

`blocks` (index.py), `chains`, `work` (state.py), `tables` (pools.py) list their
arrays. `sums` is a BlockSums of state.py: rows EXPECTED, CURVATURE, GOLD of node (3, M) and edge (3,
M, M). Two kernels compute it: `block_gradient_by_token` can be held against the formulas, `block_gradient` is
the fast one.
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
def _clear(sums):
    """All sums of a block back to 0."""
    for part in range(3):
        for y in range(sums.node.shape[1]):
            sums.node[part, y] = 0.0
            for x in range(sums.node.shape[1]):
                sums.edge[part, y, x] = 0.0


@kernel
def _fill_table(k, tables, psi):
    """psi = the whole table of class k."""
    lists, slot, M = tables.lists, tables.slot, psi.shape[0]
    for yp in range(M):
        for y in range(M):
            psi[yp, y] = tables.base[yp, y] if slot[k] < 0 else tables.whole[slot[k], yp, y]
    for e in range(lists.row[START, k], lists.row[START, k] + lists.row[SIZE, k]):
        psi[lists.cell[e] >> SHIFT, lists.cell[e] & LABEL] += lists.value[e]


@kernel
def block_gradient_by_token(g, repeats, blocks, chains, tables, sums):
    """Expected and gold counts and curvatures of block g, token by token;
    expected ones and curvatures of safe sequences alone.

        p[y] = alpha[t, y] beta[t, y] / Z,  Z = sum_y alpha[t, y] beta[t, y]
        p[yp, y] = alpha[t-1, yp] psi[yp, y] psi_node[t, y] beta[t, y] / (scale[t] Z)
        expected = sum_t w x p,  curvature = sum_t w n x^2 p (1 - p)
    over the occurrences t of the symbol, w the weight of the sequence. n is 1: the approximation (16); or, if
    repeats, the occurrences in the sequence: a bound of the exact diagonal. Arguments: g; repeats; blocks;
    chains and tables after `extend`; out: sums. Cost: 2 M^2 a token. Source: Sokolovska et al. (2010),
    eq. (5), (16); docs/SPEC.md, A.6, A.8.
    """
    node, edge, M = sums.node, sums.edge, chains.alpha.shape[1]
    psi = np.empty((M, M))
    _clear(sums)
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i, weight = blocks.visit_seq[v], chains.weight[blocks.visit_seq[v]]
        many = blocks.occ_ptr[v + 1] - blocks.occ_ptr[v] if repeats else 1
        for o in range(blocks.occ_ptr[v], blocks.occ_ptr[v + 1]):
            t, x = blocks.occ_token[o], blocks.occ_val[o] if blocks.occ_val.size else 1.0
            has_edge = blocks.member[1, g] >= 0 and t > chains.seq_ptr[i]
            node[GOLD, chains.labels[t]] += weight * x
            if has_edge:
                edge[GOLD, chains.labels[t - 1], chains.labels[t]] += weight
            if chains.place[UNSAFE, i]:
                continue
            alpha, beta = chains.alpha[chains.alpha_row[t]], chains.beta[chains.beta_row[t]]
            z = np.sum(alpha * beta)
            for y in range(M):
                p = alpha[y] * beta[y] / z
                node[EXPECTED, y] += weight * x * p
                node[CURVATURE, y] += weight * many * x * x * p * (1.0 - p)
            if has_edge:
                _fill_table(chains.edge_class[t], tables, psi)
                before, psi_node = chains.alpha[chains.alpha_row[t - 1]], chains.psi_node[chains.node_row[t]]
                z *= chains.alpha_note[SCALE, chains.alpha_row[t]]
                for yp in range(M):
                    for y in range(M):
                        p = before[yp] * psi[yp, y] * psi_node[y] * beta[y] / z
                        edge[EXPECTED, yp, y] += weight * p
                        edge[CURVATURE, yp, y] += weight * many * p * (1.0 - p)


@kernel
def _add_difference(k, n, base, lists, rows, edge):
    """What the list of class k adds to the sums that the base gives for token n of the rows:
    weight p[yp, y] = left[n, yp] psi[yp, y] right[n, y].
    """
    share, repeat = 1.0 / rows.given[0, n], rows.given[1, n]
    for e in range(lists.row[START, k], lists.row[START, k] + lists.row[SIZE, k]):
        yp, y = lists.cell[e] >> SHIFT, lists.cell[e] & LABEL
        s = rows.left[n, yp] * rows.right[n, y]
        more = s * lists.value[e]
        edge[EXPECTED, yp, y] += more
        edge[CURVATURE, yp, y] += repeat * more * (1.0 - share * (2.0 * s * base[yp, y] + more))


@kernel
def _flush(at, n, psi, rows, repeated, edge):
    """Sums of n tokens with the same table: w p = left psi right;  edge[EXPECTED] += w p,
    edge[CURVATURE] += w repeat p (1 - p).

    Two matrix products (three if repeated) instead of n outer ones: the table multiplies sums, not tokens.
    left and right are spoilt.
    """
    M, left, right, product = psi.shape[0], rows.left[at : at + n], rows.right[at : at + n], rows.product
    weight, repeat = rows.given[0, at : at + n], rows.given[1, at : at + n]
    if n == 0:
        return
    np.dot(left.T, right, product[0])
    if repeated:
        for r in range(n):
            for y in range(M):
                right[r, y] *= repeat[r]
        np.dot(left.T, right, product[1])
        for yp in range(M):
            for y in range(M):
                edge[CURVATURE, yp, y] += psi[yp, y] * (product[1, yp, y] - product[0, yp, y])
    for r in range(n):
        share = 1.0 / (weight[r] * repeat[r])
        for y in range(M):
            left[r, y] *= left[r, y] * share
            right[r, y] *= right[r, y]
    np.dot(left.T, right, product[1])
    for yp in range(M):
        for y in range(M):
            p = psi[yp, y] * product[0, yp, y]
            edge[EXPECTED, yp, y] += p
            edge[CURVATURE, yp, y] += p - psi[yp, y] * psi[yp, y] * product[1, yp, y]


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
    """The same as `block_gradient_by_token`, over the occurrences by_class[low:high] of block g alone,
    but in matrix products.

    Tokens wait in rows: n of any class, to which the base table is applied, and the list of each token's
    class entry by entry; or those of one class that has a whole table, or a list and at least FEW tokens.
    Arguments: g; low, high; repeats; blocks; chains and tables after `extend`; out: sums; work. Cost: 2 M^2 a
    token in matrix products, M^2 a class. Source: Sokolovska et al. (2010), eq. (5), (16); docs/SPEC.md, A.6,
    A.8.
    """
    node, edge, rows, lists, slot = sums.node, sums.edge, work.rows, tables.lists, tables.slot
    left, right, given, labels, psi = rows.left, rows.right, rows.given, chains.labels, chains.psi_node
    alpha, beta, scale, M = chains.alpha, chains.beta, chains.alpha_note[SCALE], chains.alpha.shape[1]
    has_edge, n, o, room = blocks.member[1, g] >= 0, np.int64(0), low, left.shape[0] // 2
    _clear(sums)
    while o < high:
        k, stop = _same_class(o, high, has_edge, blocks, chains)
        size = lists.row[SIZE, k] if k >= 0 and slot[k] < 0 else 0
        own = k >= 0 and (slot[k] >= 0 or (size > 0 and stop - o >= FEW))
        if k >= 0 and not own and n + stop - o > room:
            _flush(np.int64(0), n, tables.base, rows, repeats, edge)
            n = np.int64(0)
        at = room if own else n
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
            if not own and size > 0:
                _add_difference(k, at, tables.base, lists, rows, edge)
            at += 1
        if own:
            _fill_table(k, tables, work.table)
            _flush(room, at - room, work.table, rows, repeats, edge)
        else:
            n = at
        o = stop
    _flush(np.int64(0), n, tables.base, rows, repeats, edge)
