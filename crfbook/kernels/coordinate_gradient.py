"""Gradient and curvature of one block of weights, from the sequences that hold its symbol and from no other.

`blocks` (optim/inverted_index.py), `chains`, `work` (optim/chains.py), `tables`, `weights` (optim/arena.py) list their arrays. `sums` is a
BlockSums of optim/chains.py: rows EXPECTED, CURVATURE, GOLD of node (3, M) and edge (3, M, M).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.coordinate_lattice import SCALE, UNSAFE, extend, sequence_scores
from crfbook.kernels.forward_backward import edge_marginal_log

EXPECTED, CURVATURE, GOLD = 0, 1, 2
START, SIZE = 0, 1  # rows of Lists.row


@kernel
def gold_doubt(g, limit, blocks, chains, tables, mu, weights, work):
    """sum over the occurrences of block g of weight |x| (1 - p(gold)), cut short once above limit.

    Each entry of the block's gradient is at most this: it gains x (1 - p) where it is gold, loses x p <= x (1 - p(gold)) elsewhere.
    So a block without active weights stays without them for certain while this is at most c1.
    Arguments: g; limit; blocks; chains; tables; mu (A, M); weights; work. Cost: lattices as far as they are not known, M a token.
    Source: Sokolovska et al. (2010), eq. (5), (13).
    """
    total, row = 0.0, tables.lists.row
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i, first, last = blocks.visit_seq[v], blocks.occ_ptr[v], blocks.occ_ptr[v + 1]
        begin = chains.seq_ptr[i]
        extend(i, blocks.occ_token[first] - begin, blocks.occ_token[last - 1] - begin, chains, tables, mu, weights, work)
        if chains.place[UNSAFE, i]:
            return np.inf
        for o in range(first, last):
            t = blocks.occ_token[o]
            y, x = chains.labels[t], max(1.0, abs(blocks.occ_val[o])) if blocks.occ_val.size else 1.0
            z = np.dot(chains.alpha[t], chains.beta[t])
            p = chains.alpha[t, y] * chains.beta[t, y] / z
            if blocks.member[1, g] >= 0 and t > begin:
                yp, k = chains.labels[t - 1], chains.edge_class[t]
                psi = tables.base[yp, y]
                for e in range(row[START, k], row[START, k] + row[SIZE, k]):
                    if tables.lists.cell[e] == (yp << 16 | y):
                        psi += tables.lists.value[e]
                if tables.slot[k] >= 0:
                    psi = tables.whole[tables.slot[k], yp, y]
                p = chains.alpha[t - 1, yp] * psi * chains.psi_node[t, y] * chains.beta[t, y] / (chains.token[SCALE, t] * z)
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
def _add_product(a, psi, v, weight, repeat, edge):
    """p[yp, y] = a[yp] psi[yp, y] v[y];  edge[EXPECTED] += weight p, edge[CURVATURE] += weight repeat p (1 - p)."""
    both = weight * repeat
    for yp in range(a.size):
        s = a[yp]
        row, g, h = psi[yp], edge[0, yp], edge[1, yp]
        for y in range(v.size):
            p = s * row[y] * v[y]
            g[y] += weight * p
            h[y] += both * (p - p * p)


@kernel
def _add_difference(a, v, cell, value, base, weight, repeat, edge):
    """What the list of a class adds to the sums made with the base table."""
    both = weight * repeat
    for e in range(cell.size):
        yp, y = cell[e] >> 16, cell[e] & 65535
        s = a[yp] * v[y]
        more = s * value[e]
        edge[0, yp, y] += weight * more
        edge[1, yp, y] += both * more * (1.0 - 2.0 * s * base[yp, y] - more)


@kernel
def _add_token(t, x, weight, repeat, with_edge, alpha, before, beta, psi, scale, k, tables, node, edge, v):
    """Expected counts of one occurrence into node and edge."""
    M, z = alpha.size, np.dot(alpha, beta)
    for y in range(M):
        v[y] = alpha[y] * beta[y] / z
    _add_node(v, x, weight, repeat, node)
    if not with_edge:
        return
    for y in range(M):
        v[y] = psi[y] * beta[y] / (scale * z)
    if tables.slot[k] >= 0:
        _add_product(before, tables.whole[tables.slot[k]], v, weight, repeat, edge)
        return
    _add_product(before, tables.base, v, weight, repeat, edge)
    low, size = tables.lists.row[START, k], tables.lists.row[SIZE, k]
    _add_difference(before, v, tables.lists.cell[low : low + size], tables.lists.value[low : low + size], tables.base, weight, repeat, edge)


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
    Arguments: g; first, last; repeats; blocks; chains; tables; mu (A, M); weights; out: sums, added to, log_z (n_visits,); work.
    Cost: 3 M^2 a token, and lattices as far as they are not known. Source: Sokolovska et al. (2010), eq. (5), (16); spec A.8.
    """
    has_edge, node, edge = blocks.member[1, g] >= 0, sums.node, sums.edge
    for v in range(first, last):
        i, low, high = blocks.visit_seq[v], blocks.occ_ptr[v], blocks.occ_ptr[v + 1]
        begin = chains.seq_ptr[i]
        log_z[v - blocks.visit_ptr[g]] = extend(
            i, blocks.occ_token[low] - begin, blocks.occ_token[high - 1] - begin, chains, tables, mu, weights, work
        )
        repeat, unsafe = float(high - low) if repeats else 1.0, chains.place[UNSAFE, i]
        if unsafe:
            _add_unsafe(v, repeat, has_edge, blocks, chains, tables, mu, weights, sums)
        for o in range(low, high):
            t = blocks.occ_token[o]
            x, with_edge = blocks.occ_val[o] if blocks.occ_val.size else 1.0, has_edge and t > begin
            if not unsafe:
                _add_token(
                    t, x, chains.weight[i], repeat, with_edge, chains.alpha[t], chains.alpha[t - 1], chains.beta[t], chains.psi_node[t],
                    chains.token[SCALE, t], chains.edge_class[t], tables, node, edge, work.right,
                )  # fmt: skip
            node[GOLD, chains.labels[t]] += chains.weight[i] * x
            if with_edge:
                edge[GOLD, chains.labels[t - 1], chains.labels[t]] += chains.weight[i]
