"""Sparse forward-backward: one product with a base that all tokens share, plus the few label pairs that have a weight.

psi_edge = base + gain, base = 1 (rank one) or the potentials of the plain transitions, gain = base expm1(weights), which is 0
wherever no weight is. So a token costs one product per stored pair of its class, instead of L^2. Rows are packed as in
forward_backward_batched.py; each step goes class by class, so that a list of pairs is read once for all its rows.
`edges` is a SparseEdges (optim/sparse_chain.py), which lists its arrays with shapes; M >= L labels, padded.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.forward_backward import SMALLEST_MASS
from crfbook.kernels.forward_backward_batched import _exp_nodes, erase_flagged
from crfbook.kernels.sparse_edges import open_table

# A sum of base and gains below this share of the base has lost digits: it is computed again from psi, all of it positive.
CANCELLED = 1e-3


@kernel
def push_entries(source, first, rows, shift, start, stop, prev, next_label, gain, out):
    """out[i,y] += sum_yp source[i - shift,yp] gain[yp,y] over the entries start:stop, for the rows i = rows[first:].

    Arguments: source (n, M); first; rows int64 (m,); shift; start, stop; prev, next_label uint32 (E,), sorted by prev;
    gain (E,); out: out (n, M). Cost: one product for each entry and row. Source: Sokolovska et al. (2010), eq. (9).
    """
    x, u, M = source.reshape(-1), out.reshape(-1), np.uint64(out.shape[1])
    j = first
    while j + 4 <= rows.size:
        o0, o1 = np.uint64(rows[j]) * M, np.uint64(rows[j + 1]) * M
        o2, o3 = np.uint64(rows[j + 2]) * M, np.uint64(rows[j + 3]) * M
        s = np.uint64(shift) * M
        e = start
        while e < stop:
            yp = prev[e]
            a0, a1, a2, a3 = x[o0 - s + yp], x[o1 - s + yp], x[o2 - s + yp], x[o3 - s + yp]
            while e < stop and prev[e] == yp:
                y, g = next_label[e], gain[e]
                u[o0 + y] += g * a0
                u[o1 + y] += g * a1
                u[o2 + y] += g * a2
                u[o3 + y] += g * a3
                e += 1
        j += 4
    while j < rows.size:
        o0, s = np.uint64(rows[j]) * M, np.uint64(shift) * M
        e = start
        while e < stop:
            yp = prev[e]
            a0 = x[o0 - s + yp]
            while e < stop and prev[e] == yp:
                u[o0 + next_label[e]] += gain[e] * a0
                e += 1
        j += 1


@kernel
def pull_entries(source, first, rows, shift, start, stop, prev, next_label, gain, out):
    """out[i - shift,yp] += sum_y gain[yp,y] source[i,y] over the entries start:stop: `push_entries` transposed.

    Arguments as in `push_entries`: source (n, M); first, rows (m,), shift, start, stop; prev, next_label (E,), gain (E,);
    out: out (n, M). Cost: one product for each entry and row. Source: Sokolovska et al. (2010), eq. (9).
    """
    x, u, M = source.reshape(-1), out.reshape(-1), np.uint64(out.shape[1])
    j = first
    while j + 4 <= rows.size:
        o0, o1 = np.uint64(rows[j]) * M, np.uint64(rows[j + 1]) * M
        o2, o3 = np.uint64(rows[j + 2]) * M, np.uint64(rows[j + 3]) * M
        s = np.uint64(shift) * M
        e = start
        while e < stop:
            yp = prev[e]
            a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
            while e < stop and prev[e] == yp:
                y, g = next_label[e], gain[e]
                a0 += g * x[o0 + y]
                a1 += g * x[o1 + y]
                a2 += g * x[o2 + y]
                a3 += g * x[o3 + y]
                e += 1
            u[o0 - s + yp] += a0
            u[o1 - s + yp] += a1
            u[o2 - s + yp] += a2
            u[o3 - s + yp] += a3
        j += 4
    while j < rows.size:
        o0, s = np.uint64(rows[j]) * M, np.uint64(shift) * M
        e = start
        while e < stop:
            yp = prev[e]
            a0 = 0.0
            while e < stop and prev[e] == yp:
                a0 += gain[e] * x[o0 + next_label[e]]
                e += 1
            u[o0 - s + yp] += a0
        j += 1


@kernel
def put_entries(start, stop, prev, next_label, value, table):
    """table[prev[e], next_label[e]] = value[e] for start <= e < stop.

    Arguments: start, stop; prev, next_label (E,), value (E,); out: table (M, M). Cost: one step an entry. Source: chapter 06.
    """
    for e in range(start, stop):
        table[prev[e], next_label[e]] = value[e]


@kernel
def _class_table(k, edges, table):
    """The potentials of class k as a table (M, M): base with its entries put in."""
    open_table(edges.base, edges.n_labels[0], table)
    put_entries(edges.entry_ptr[k], edges.entry_ptr[k + 1], edges.prev, edges.next_label, edges.psi, table)


@kernel
def _times_table(source, rows, shift_in, table, shift_out, out, buf):
    """out[i - shift_out] = source[i - shift_in] @ table for i in rows; buf (>= 2 len(rows), M)."""
    n = rows.size
    for j in range(n):
        buf[j, :] = source[rows[j] - shift_in]
    np.dot(buf[:n], table, buf[n : 2 * n])
    for j in range(n):
        out[rows[j] - shift_out, :] = buf[n + j]


@kernel
def _repair(k, edges, source, rows, shift_in, forward, part, shift_out, out, table):
    """Recompute, from sums of positive numbers, what is below CANCELLED * part: out (n, M), part (n, M) of the same rows."""
    filled = False
    M = out.shape[1]
    for j in range(rows.size):
        i, o = rows[j] - shift_in, rows[j] - shift_out
        n_bad = 0
        for y in range(M):
            n_bad += out[o, y] < CANCELLED * part[o, y]
        if n_bad == 0:
            continue
        if not filled:
            _class_table(k, edges, table)
            filled = True
        for y in range(M):
            if out[o, y] < CANCELLED * part[o, y]:
                total = 0.0
                for z in range(M):
                    total += source[i, z] * (table[z, y] if forward else table[y, z])
                out[o, y] = total


@kernel
def _times_edges(source, lo, hi, shift_in, forward, edges, row_class, by_step, part, shift_out, out, buf, table):
    """out[i - shift_out] = source[i - shift_in] @ psi_edge (forward), or psi_edge @ source: all rows i of lo:hi, class by class.

    part: where the product with the base goes; buf (>= 2 (hi - lo), M), table (M, M): work. Returns the number of products.
    """
    n, L = hi - lo, edges.n_labels[0]
    into = part[lo - shift_out : hi - shift_out]
    given = source[lo - shift_in : hi - shift_in]
    if edges.base.size:
        np.dot(given, edges.base if forward else edges.base_t, into)
    else:
        for j in range(n):
            total = 0.0
            for y in range(L):
                total += given[j, y]
            into[j, :] = total
    n_products, first = 0, lo
    while first < hi:
        k, last = row_class[by_step[first]], first
        while last < hi and row_class[by_step[last]] == k:
            last += 1
        rows, d = by_step[first:last], edges.table_of[k]
        if d >= 0:
            dense = edges.table[d] if forward else edges.table_t[d]
            _times_table(source, rows, shift_in, dense, shift_out, out, buf)
        else:
            a, b = edges.entry_ptr[k], edges.entry_ptr[k + 1]
            for i in rows:
                out[i - shift_out, :] = part[i - shift_out]
            if forward:
                push_entries(source, 0, rows, shift_in, a, b, edges.prev, edges.next_label, edges.gain, out)
            else:
                pull_entries(source, 0, rows, shift_out, a, b, edges.prev, edges.next_label, edges.gain, out)
            _repair(k, edges, source, rows, shift_in, forward, part, shift_out, out, table)
            n_products += (b - a) * (last - first)
        first = last
    return n_products


@kernel
def flag_wide(row_class, step_ptr, wide, flags):
    """flags[r] = 1 for the sequences with a transition whose potentials differ by too much for float64 to hold them scaled.

    Arguments: row_class int32 (n,), step_ptr int64 (T+1,) of a batch; wide uint8 (K,); out: flags uint8 (B,).
    Cost: n. Source: chapter 06.
    """
    for t in range(1, step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            if wide[row_class[i]]:
                flags[i - step_ptr[t]] = 1


@kernel
def sparse_forward(log_node, edges, row_class, step_ptr, by_step, log_z, flags, alpha, gain, part_buf, buf, pair_buf, n_products):
    """Scaled forward vectors of a packed batch; returns how many sequences are flagged: they need the log form.

    m[t,y] = psi_node[t,y] (sum_yp alpha[t-1,yp] base[yp,y] + sum_{yp in support of y} alpha[t-1,yp] gain[yp,y])
    c[t] = sum_y m[t,y],  alpha[t] = m[t] / c[t],  log_z = sum_t log c[t] + maxima taken out
    Arguments: log_node (n, M), overwritten with psi_node; edges: a SparseEdges; row_class (n,), step_ptr (T+1,), by_step (n,):
    see `group_rows`; out: log_z (B,); flags uint8 (B,); alpha (n, M); gain (n,) = 1 / c; n_products int64 (2,), added to:
    products with entries forward, backward; work: part_buf, buf (n, M), pair_buf (M, M).
    Cost: one product for each entry of each token's class (and n M^2 if there is a base), n M exps.
    Source: Sokolovska et al. (2010), eq. (9).
    """
    log_z[:] = 0.0
    flags[:] = 0
    flag_wide(row_class, step_ptr, edges.wide, flags)
    _exp_nodes(log_node, edges.edge_spread[0], step_ptr, log_z, flags)
    M, before = log_node.shape[1], 0
    for t in range(step_ptr.size - 1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        if t == 0:
            alpha[:hi] = log_node[:hi]
        else:
            n_products[0] += _times_edges(
                alpha, lo, hi, lo - before, True, edges, row_class, by_step, part_buf, 0, alpha, buf, pair_buf
            )
        for i in range(lo, hi):
            total, r = 0.0, i - lo
            if t > 0:
                for y in range(M):
                    alpha[i, y] *= log_node[i, y]
            for y in range(M):
                total += alpha[i, y]
            small = 0
            for y in range(M):
                small += (alpha[i, y] > 0.0) & (alpha[i, y] < SMALLEST_MASS)
            if small > 0 or not (total > 0.0 and total < np.inf):
                flags[r] = 1
                total = 1.0
            gain[i] = 1.0 / total
            for y in range(M):
                alpha[i, y] *= gain[i]
            log_z[r] += np.log(total)
            if t > 0:
                log_z[r] += edges.base_max[0]
        before = lo
    return erase_flagged(step_ptr, flags, log_z, log_node, alpha, gain)


@kernel
def sparse_backward(psi_node, edges, row_class, step_ptr, by_step, weight, alpha, gain, p_node, part_buf, buf, pair_buf, n_products):
    """Backward vectors beta, weighted, and node marginals of a packed batch.

    beta[T-1] = weight,  v[t,y] = psi_node[t,y] beta[t,y] / c[t],  p_node[t] = alpha[t] beta[t]
    beta[t-1,yp] = sum_y base[yp,y] v[t,y] + sum_{y in support of yp} gain[yp,y] v[t,y]
    Arguments as in `sparse_forward`: psi_node (n, M), overwritten with v; edges; row_class (n,), step_ptr (T+1,), by_step (n,);
    weight (B,); alpha (n, M), gain (n,); out: p_node (n, M) = weight * marginals; n_products (2,); work: part_buf, buf (n, M),
    pair_buf (M, M). Cost: as `sparse_forward`, without the exps. Source: Sokolovska et al. (2010), eq. (9).
    """
    M, T = psi_node.shape[1], step_ptr.size - 1
    following = 0
    for t in range(T - 1, -1, -1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        for r in range(following, hi - lo):
            p_node[lo + r, :] = weight[r]
        for i in range(lo, hi):
            for y in range(M):
                a, f = alpha[i, y], gain[i]
                beta = p_node[i, y] if a > 0.0 else 0.0  # an unreachable state can have any beta
                p_node[i, y] = a * beta
                psi_node[i, y] *= beta * f
        if t > 0:
            shift, following = lo - step_ptr[t - 1], hi - lo
            n_products[1] += _times_edges(
                psi_node, lo, hi, 0, False, edges, row_class, by_step, part_buf, shift, p_node, buf, pair_buf
            )
