"""Gradient and curvature of one block of weights, from the sequences that hold its symbol and from no other.

`blocks` (optim/inverted_index.py), `chains`, `work` (optim/chains.py), `tables`, `weights` (optim/arena.py) list their arrays. `sums` is a
BlockSums of optim/chains.py: rows EXPECTED, CURVATURE, GOLD of node (3, M) and edge (3, M, M).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.coordinate_lattice import SCALE, UNSAFE, mass, sequence_scores
from crfbook.kernels.forward_backward import edge_marginal_log

EXPECTED, CURVATURE, GOLD = 0, 1, 2
START, SIZE = 0, 1  # rows of Lists.row


@kernel
def gold_doubt(g, limit, blocks, chains, tables):
    """sum over the occurrences of block g of weight |x| (1 - p(gold)), cut short once above limit; inf if a sequence is unsafe.

    Each entry of the block's gradient is at most this: it gains x (1 - p) where it is gold, loses x p <= x (1 - p(gold)) elsewhere.
    So a block without active weights stays without them for certain while this is at most c1.
    Arguments: g; limit; blocks; chains and tables after `extend`. Cost: M a token, and lists. Source: Sokolovska et al. (2010), eq. (5), (13).
    """
    total, row, cell, value = 0.0, tables.lists.row, tables.lists.cell, tables.lists.value
    alpha, beta, labels, slot, has_edge = chains.alpha, chains.beta, chains.labels, tables.slot, blocks.member[1, g] >= 0
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i = blocks.visit_seq[v]
        if chains.place[UNSAFE, i]:
            return np.inf
        for o in range(blocks.occ_ptr[v], blocks.occ_ptr[v + 1]):
            t = blocks.occ_token[o]
            y, x = labels[t], max(1.0, abs(blocks.occ_val[o])) if blocks.occ_val.size else 1.0
            z = mass(alpha, beta, t)
            p = alpha[t, y] * beta[t, y] / z
            if has_edge and t > chains.seq_ptr[i]:
                yp, k = labels[t - 1], chains.edge_class[t]
                psi = tables.base[yp, y]
                for e in range(row[START, k], row[START, k] + row[SIZE, k]):
                    if cell[e] == (yp << 16 | y):
                        psi += value[e]
                if slot[k] >= 0:
                    psi = tables.whole[slot[k], yp, y]
                p = alpha[t - 1, yp] * psi * chains.psi_node[t, y] * beta[t, y] / (chains.token[SCALE, t] * z)
            total += chains.weight[i] * x * max(0.0, 1.0 - p)
        if total > limit:
            return total
    return total


@kernel
def _add_node(p, x, weight, repeat, node):
    """node[EXPECTED, y] += weight x p[y], node[CURVATURE, y] += weight repeat x^2 p (1 - p)."""
    for y in range(p.size):
        node[0, y] += weight * x * p[y]
        node[1, y] += weight * repeat * x * x * (p[y] - p[y] * p[y])


@kernel
def _add_difference(left, right, n, cell, value, start, stop, base, weight, repeat, edge):
    """What the list cell[start:stop] of a class adds to the sums that the base gives: p[yp, y] = left[n, yp] psi[yp, y] right[n, y]."""
    both = weight * repeat
    for e in range(start, stop):
        yp, y = cell[e] >> 16, cell[e] & 65535
        s = left[n, yp] * right[n, y]
        more = s * value[e]
        edge[0, yp, y] += weight * more
        edge[1, yp, y] += both * more * (1.0 - 2.0 * s * base[yp, y] - more)


@kernel
def _flush(n, psi, left, right, repeated, weights_buf, edge, product):
    """Sums of n tokens with the same table: p = left psi right;  edge[EXPECTED] += weight p, edge[CURVATURE] += weight repeat p (1 - p).

    Two or three matrix products instead of n outer ones: the table multiplies sums, not tokens. left and right are spoilt.
    """
    M = psi.shape[0]
    if n == 0:
        return
    for r in range(n):
        for y in range(M):
            left[r, y] *= weights_buf[0, r]
    np.dot(left[:n].T, right[:n], product)
    for yp in range(M):
        for y in range(M):
            p = psi[yp, y] * product[yp, y]
            edge[0, yp, y] += p
            edge[1, yp, y] += 0.0 if repeated else p
    if repeated:
        for r in range(n):
            for y in range(M):
                left[r, y] *= weights_buf[1, r]
        np.dot(left[:n].T, right[:n], product)
        for yp in range(M):
            for y in range(M):
                edge[1, yp, y] += psi[yp, y] * product[yp, y]
    for r in range(n):
        share = 1.0 / (weights_buf[0, r] * (weights_buf[1, r] if repeated else 1.0))
        for y in range(M):
            left[r, y] *= left[r, y] * share
            right[r, y] *= right[r, y]
    np.dot(left[:n].T, right[:n], product)
    for yp in range(M):
        for y in range(M):
            edge[1, yp, y] -= psi[yp, y] * psi[yp, y] * product[yp, y]


@kernel
def _add_unsafe(v, repeat, with_edge, blocks, chains, tables, mu, weights, sums):
    """Expected counts of one visit of an unsafe sequence, in logarithms."""
    i = blocks.visit_seq[v]
    begin, T, M, weight = chains.seq_ptr[i], chains.seq_ptr[i + 1] - chains.seq_ptr[i], mu.shape[1], chains.weight[i]
    log_node, log_edge, p = np.empty((T, M)), np.empty((T, M, M)), np.empty((M, M))
    sequence_scores(i, chains, tables, mu, weights, log_node, log_edge)
    alpha, beta, edge_class = chains.alpha[begin : begin + T], chains.beta[begin : begin + T], np.arange(T).astype(np.int32)
    for o in range(blocks.occ_ptr[v], blocks.occ_ptr[v + 1]):
        t, x = blocks.occ_token[o] - begin, blocks.occ_val[o] if blocks.occ_val.size else 1.0
        _add_node(np.exp(alpha[t] + beta[t] - chains.log_z[i]), x, weight, repeat, sums.node)
        if with_edge and t > 0:
            edge_marginal_log(t, log_node, log_edge, edge_class, alpha, beta, chains.log_z[i], p)
            for yp in range(M):
                _add_node(p[yp], 1.0, weight, repeat, sums.edge[:, yp])


@kernel
def block_gradient(g, first, last, repeats, blocks, chains, tables, mu, weights, sums, log_z, work):
    """Expected and gold counts and curvatures of block g over its visits first..last-1; log_z[v - visit_ptr[g]] = log Z.

    expected[yp, y] = sum_t p(y_{t-1} = yp, y_t = y),  curvature = sum_t n_t p (1 - p)  over the occurrences t; nodes likewise, with
    values x. n_t is 1: the approximation (16); or, if repeats, the occurrences in the sequence of t: a bound of the exact diagonal.
    Arguments: g; first, last; repeats; blocks; chains and tables after `extend`; mu (A, M); weights; out: sums, added to, log_z (n_visits,); work.
    Cost: 2 M^2 a token in matrix products, and its list. Source: Sokolovska et al. (2010), eq. (5), (16); spec A.6, A.8.
    """
    has_edge, node, edge, n, table = blocks.member[1, g] >= 0, sums.node, sums.edge, 0, -1
    left, right, given, base, whole, product = work.left_rows, work.right_rows, work.given, tables.base, tables.whole, work.product
    alpha, beta, psi, labels, slot, M = chains.alpha, chains.beta, chains.psi_node, chains.labels, tables.slot, chains.alpha.shape[1]
    row, cell, value, edge_class, scale = tables.lists.row, tables.lists.cell, tables.lists.value, chains.edge_class, chains.token[SCALE]
    for v in range(first, last):
        i, low, high = blocks.visit_seq[v], blocks.occ_ptr[v], blocks.occ_ptr[v + 1]
        begin, weight, unsafe = chains.seq_ptr[i], chains.weight[i], chains.place[UNSAFE, i]
        log_z[v - blocks.visit_ptr[g]] = chains.log_z[i]
        repeat = float(high - low) if repeats else 1.0
        if unsafe:
            _add_unsafe(v, repeat, has_edge, blocks, chains, tables, mu, weights, sums)
        for o in range(low, high):
            t = blocks.occ_token[o]
            x, with_edge = blocks.occ_val[o] if blocks.occ_val.size else 1.0, has_edge and t > begin
            node[GOLD, labels[t]] += weight * x
            if with_edge:
                edge[GOLD, labels[t - 1], labels[t]] += weight
            if unsafe or weight == 0.0:
                continue
            share = 1.0 / mass(alpha, beta, t)
            for y in range(M):
                p = alpha[t, y] * beta[t, y] * share
                node[EXPECTED, y] += weight * x * p
                node[CURVATURE, y] += weight * repeat * x * x * (p - p * p)
            if not with_edge:
                continue
            k = edge_class[t]
            if n == left.shape[0] or slot[k] != table:
                _flush(n, whole[table] if table >= 0 else base, left, right, repeats, given, edge, product)
                n, table = 0, slot[k]
            share /= scale[t]
            for y in range(M):
                left[n, y] = alpha[t - 1, y]
                right[n, y] = psi[t, y] * beta[t, y] * share
            given[0, n], given[1, n] = weight, repeat
            _add_difference(left, right, n, cell, value, row[START, k], row[START, k] + row[SIZE, k], base, weight, repeat, edge)
            n += 1
    _flush(n, whole[table] if table >= 0 else base, left, right, repeats, given, edge, product)
