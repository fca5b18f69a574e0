"""Sparse forward-backward: one product with a base that all tokens share,
plus the few label pairs that have a weight.

psi_edge = base + gain, base = 1 (rank one) or the potentials of the plain transitions, gain = base
expm1(weights), which is 0 wherever no weight is. So a token costs one product per stored pair of its class,
instead of L^2. Rows are packed as in forward_backward_batched.py; each step goes class by class, so that a
list of pairs is read once for all its rows. (b, packing) names a batch, as there; `edges` is a SparseEdges
(potentials.py), `work` a `Work` (chain/likelihood.py): they list their arrays with shapes; M >= L labels,
padded.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS
from crfbook.chain.forward_backward_batched import erase_flagged, exp_rows, steps_of
from crfbook.chain.sparse.potentials import open_table
from crfbook.chain.vector_math import copy_row

# A sum of base and gains below this share of the base has lost digits: it is computed again from psi, all of
# it positive.
CANCELLED = 1e-3


@kernel
def push_row_by_row(source, rows, shift, start, stop, prev, next_label, gain, based, part, out):
    """out[i,y] = part[i,y] + sum_yp source[i - shift,yp] gain[yp,y] over the entries start:stop, for i in
    rows.

    Arguments: source (n, M); rows int64 (m,); shift; start, stop; prev, next_label uint32 (E,), gain (E,);
    based, part (n, M): what the base contributes, the same number part[i,0] in a whole row unless based; out:
    out (n, M). The forward step to read; `push_entries` is the one that runs. Cost: one product for each
    entry and row. Source: Sokolovska et al. (2010), eq. (9).
    """
    for i in rows:
        for y in range(out.shape[1]):
            out[i, y] = part[i, y if based else 0]
        for e in range(start, stop):
            out[i, next_label[e]] += source[i - shift, prev[e]] * gain[e]


@kernel
def pull_row_by_row(source, rows, shift, start, stop, prev, next_label, gain, based, part, out):
    """out[i - shift,yp] = part[i - shift,yp] + sum_y gain[yp,y] source[i,y], for i in rows:
    `push_row_by_row` transposed.

    Arguments as in `push_row_by_row`: source (n, M); rows (m,), shift, start, stop; prev, next_label (E,),
    gain (E,); based, part (n, M); out: out (n, M). The backward step to read; `pull_entries` is the one that
    runs. Cost: one product for each entry and row. Source: Sokolovska et al. (2010), eq. (9).
    """
    for i in rows:
        o = i - shift
        for y in range(out.shape[1]):
            out[o, y] = part[o, y if based else 0]
        for e in range(start, stop):
            out[o, prev[e]] += gain[e] * source[i, next_label[e]]


@kernel
def push_entries(source, rows, shift, start, stop, prev, next_label, gain, based, part, out):
    """The same as `push_row_by_row`, but four rows at a time, so that an entry is loaded once for all four.

    Cells are counted from the beginning of the matrices (x of source, u of out; row i begins at i M) by
    unsigned numbers: no index is checked for its sign. Arguments as in `push_row_by_row`, the entries sorted
    by prev: source (n, M); rows (m,), shift, start, stop; prev, next_label (E,), gain (E,); based, part (n,
    M); out: out (n, M). Cost: one product for each entry and row. Source: Sokolovska et al. (2010), eq. (9).
    """
    x, u, M, s = source.reshape(-1), out.reshape(-1), np.uint64(out.shape[1]), np.uint64(shift * out.shape[1])
    for j in range(0, rows.size, 4):
        for i in rows[j : j + 4]:
            level = part[i, 0]
            for y in range(out.shape[1]):
                out[i, y] = part[i, y] if based else level
        if j + 4 > rows.size:
            for i in rows[j:]:
                o0 = np.uint64(i) * M
                for e in range(start, stop):
                    u[o0 + next_label[e]] += gain[e] * x[o0 - s + prev[e]]
            return
        o0, o1 = np.uint64(rows[j]) * M, np.uint64(rows[j + 1]) * M
        o2, o3 = np.uint64(rows[j + 2]) * M, np.uint64(rows[j + 3]) * M
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


@kernel
def pull_entries(source, rows, shift, start, stop, prev, next_label, gain, based, part, out):
    """The same as `pull_row_by_row`, but four rows at a time, see `push_entries`.

    Arguments as in `push_entries`: source (n, M); rows (m,), shift, start, stop; prev, next_label (E,), gain
    (E,); based, part (n, M); out: out (n, M). Cost: one product for each entry and row. Source:
    Sokolovska et al. (2010), eq. (9).
    """
    x, u, M, s = source.reshape(-1), out.reshape(-1), np.uint64(out.shape[1]), np.uint64(shift * out.shape[1])
    for j in range(0, rows.size, 4):
        for i in rows[j : j + 4]:
            level = part[i - shift, 0]
            for y in range(out.shape[1]):
                out[i - shift, y] = part[i - shift, y] if based else level
        if j + 4 > rows.size:
            for i in rows[j:]:
                o0 = np.uint64(i) * M
                for e in range(start, stop):
                    u[o0 - s + prev[e]] += gain[e] * x[o0 + next_label[e]]
            return
        o0, o1 = np.uint64(rows[j]) * M, np.uint64(rows[j + 1]) * M
        o2, o3 = np.uint64(rows[j + 2]) * M, np.uint64(rows[j + 3]) * M
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


@kernel
def put_entries(start, stop, prev, next_label, value, table):
    """table[prev[e], next_label[e]] = value[e] for start <= e < stop.

    Arguments: start, stop; prev, next_label (E,), value (E,); out: table (M, M). Cost: one step an entry.
    Source: chapter 06.
    """
    for e in range(start, stop):
        table[prev[e], next_label[e]] = value[e]


@kernel
def _times_table(source, rows, shift_in, table, shift_out, out, buf):
    """out[i - shift_out] = source[i - shift_in] @ table for i in rows; buf (>= 2 len(rows), M)."""
    n = rows.size
    for j in range(n):
        copy_row(source, rows[j] - shift_in, buf, j)
    np.dot(buf[:n], table, buf[n : 2 * n])
    for j in range(n):
        copy_row(buf, n + j, out, rows[j] - shift_out)


@kernel
def _repair(based, source, i, forward, part, o, out, table):
    """Recompute, from sums of positive numbers, what row o has lost; out[o] belongs to source[i], table (M,
    M): its potentials.
    """
    M = out.shape[1]
    for y in range(M):
        if out[o, y] < CANCELLED * part[o, y if based else 0]:
            total = 0.0
            for z in range(M):
                total += source[i, z] * (table[z, y] if forward else table[y, z])
            out[o, y] = total


@kernel
def _check_step(source, lo, hi, shift_in, forward, edges, row_class, by_step, part, shift_out, out, table):
    """Rows of a step in which a number is below CANCELLED times the base's part have lost digits:
    `_repair` them.
    """
    M, based, filled = out.shape[1], edges.base.size > 0, -1
    for j in range(lo, hi):
        i = by_step[j]
        o, lost = i - shift_out, 0
        if based:
            for y in range(M):
                lost += out[o, y] < CANCELLED * part[o, y]
        else:
            limit = CANCELLED * part[o, 0]
            for y in range(M):
                lost += out[o, y] < limit
        k = row_class[i]
        if lost == 0 or edges.table_of[k] >= 0:
            continue
        if filled != k:
            open_table(edges.base, edges.active.n_labels, table)
            put_entries(
                edges.entry_ptr[k], edges.entry_ptr[k + 1], edges.prev, edges.next_label, edges.psi, table
            )
            filled = k
        _repair(based, source, i - shift_in, forward, part, o, out, table)


@kernel
def _times_edges(t, forward, edges, row_class, step_ptr, by_step, source, part, out, buf, table):
    """All rows i of step t and the rows before them, class by class: out[i] = source[before i] @ psi_edge
    (forward), or out[before i] = psi_edge @ source[i].

    part (n, M), part[:, 0] filled if there is no base, buf (>= 2 rows, M), table (M, M): work. Returns the
    number of products with entries. Callers pass a typed constant for `forward`:
    with the literals True and False numba would compile all of this twice.
    """
    lo, hi, shift = step_ptr[t], step_ptr[t + 1], step_ptr[t] - step_ptr[t - 1]
    shift_in, shift_out = (shift, 0) if forward else (0, shift)
    based, n_products, first = edges.base.size > 0, 0, lo
    if based:
        base = edges.base if forward else edges.base_t
        np.dot(source[lo - shift_in : hi - shift_in], base, part[lo - shift_out : hi - shift_out])
    while first < hi:
        k, last = row_class[by_step[first]], first
        while last < hi and row_class[by_step[last]] == k:
            last += 1
        rows, d = by_step[first:last], edges.table_of[k]
        a, b = edges.entry_ptr[k], edges.entry_ptr[k + 1]
        if d >= 0:
            psi = edges.table[d] if forward else edges.table_t[d]
            _times_table(source, rows, shift_in, psi, shift_out, out, buf)
        elif forward:
            push_entries(
                source, rows, shift, a, b, edges.prev, edges.next_label, edges.gain, based, part, out
            )
        else:
            pull_entries(
                source, rows, shift, a, b, edges.prev, edges.next_label, edges.gain, based, part, out
            )
        n_products += (b - a) * (last - first)
        first = last
    if n_products:
        _check_step(source, lo, hi, shift_in, forward, edges, row_class, by_step, part, shift_out, out, table)
    return n_products


@kernel
def _finish_forward(lo, hi, psi_node, alpha, gain, log_z, flags):
    """alpha[i] becomes psi_node[i] alpha[i] / c, gain[i] = 1 / c, log_z[i - lo] += log c, lo <= i < hi;
    flags where not safe.

    Eight partial sums do not wait for each other; M is a multiple of 4.
    """
    M = alpha.shape[1]
    for i in range(lo, hi):
        small = 0
        for y in range(M):
            m = alpha[i, y] * psi_node[i, y]
            small += (m > 0.0) & (m < SMALLEST_MASS)
            alpha[i, y] = m
        a0, a1, a2, a3, a4, a5, a6, a7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for y in range(0, M - 7, 8):
            a0, a1 = a0 + alpha[i, y], a1 + alpha[i, y + 1]
            a2, a3 = a2 + alpha[i, y + 2], a3 + alpha[i, y + 3]
            a4, a5 = a4 + alpha[i, y + 4], a5 + alpha[i, y + 5]
            a6, a7 = a6 + alpha[i, y + 6], a7 + alpha[i, y + 7]
        if M % 8:
            a0, a1, a2, a3 = (
                a0 + alpha[i, M - 4],
                a1 + alpha[i, M - 3],
                a2 + alpha[i, M - 2],
                a3 + alpha[i, M - 1],
            )
        total = ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))
        if small > 0 or not (total > 0.0 and total < np.inf):
            flags[i - lo] = 1
            total = 1.0
        gain[i] = 1.0 / total
        log_z[i - lo] += np.log(total)
        for y in range(M):
            alpha[i, y] *= gain[i]


@kernel
def _finish_backward(lo, hi, psi_node, alpha, gain, p_node, shift, part):
    """p_node[i] = alpha[i] beta[i] and v[i] = psi_node[i] beta[i] / c, in the places of beta and psi_node;
    part[i - shift,0] = sum v.
    """
    M = alpha.shape[1]
    for i in range(lo, hi):
        f, total0, total1, total2, total3 = gain[i], 0.0, 0.0, 0.0, 0.0
        for y in range(M):
            a = alpha[i, y]
            beta = p_node[i, y] if a > 0.0 else 0.0  # an unreachable state can have any beta
            p_node[i, y] = a * beta
            psi_node[i, y] *= beta * f
        for y in range(0, M, 4):
            total0, total1 = total0 + psi_node[i, y], total1 + psi_node[i, y + 1]
            total2, total3 = total2 + psi_node[i, y + 2], total3 + psi_node[i, y + 3]
        if lo > 0:
            part[i - shift, 0] = (total0 + total1) + (total2 + total3)


@kernel
def flag_wide(row_class, step_ptr, wide, flags):
    """flags[r] = 1 for the sequences with a transition whose potentials differ by too much for float64 to
    hold them scaled.

    Arguments: row_class int32 (n,), step_ptr int64 (T+1,) of a batch; wide uint8 (K,); out: flags uint8 (B,).
    Cost: n. Source: chapter 06.
    """
    for t in range(1, step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            if wide[row_class[i]]:
                flags[i - step_ptr[t]] = 1


@kernel
def sparse_forward(b, packing, edges, log_node, log_z, work, n_products):
    """Scaled forward vectors of a packed batch; returns how many sequences are flagged:
    they need the log form.

    m[t,y] = psi_node[t,y] (sum_yp alpha[t-1,yp] base[yp,y] + sum of alpha[t-1,yp] gain[yp,y] over the
    support of y)
    c[t] = sum_y m[t,y],  alpha[t] = m[t] / c[t],  log_z = sum_t log c[t] + maxima taken out

    Arguments: b, packing: a batch, grouped; edges: a SparseEdges; log_node (n, M), overwritten with psi_node;
    out: log_z (B,); work.flags; work.alpha; work.gain = 1 / c; n_products int64 (2,), added to: products with
    entries forward, backward. Cost: one product for each entry of each token's class (and n M^2 if there is a
    base), n M exps. Source: Sokolovska et al. (2010), eq. (9).
    """
    n, (step_ptr, row_class, by_step) = log_node.shape[0], steps_of(b, packing)
    alpha, gain, flags, part = work.alpha[:n], work.gain[:n], work.flags[: log_z.size], work.part
    log_z[:], flags[:] = 0.0, 0
    flag_wide(row_class, step_ptr, edges.wide, flags)
    exp_rows(log_node, edges.edge_spread[0], step_ptr, log_z, flags)
    alpha[: step_ptr[1]] = 1.0
    _finish_forward(step_ptr[0], step_ptr[1], log_node, alpha, gain, log_z, flags)
    for t in range(1, step_ptr.size - 1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        part[lo:hi, 0] = 1.0
        log_z[: hi - lo] += edges.base_max[0]
        n_products[0] += _times_edges(
            t, np.bool_(True), edges, row_class, step_ptr, by_step, alpha, part, alpha, work.prev, work.pair
        )
        _finish_forward(lo, hi, log_node, alpha, gain, log_z, flags)
    return erase_flagged(step_ptr, flags, log_z, log_node, alpha, gain)


@kernel
def sparse_backward(b, packing, edges, psi_node, p_node, work, n_products):
    """Backward vectors beta, weighted, and node marginals of a packed batch.

    beta[T-1] = weight,  v[t,y] = psi_node[t,y] beta[t,y] / c[t],  p_node[t] = alpha[t] beta[t]
    beta[t-1,yp] = sum_y base[yp,y] v[t,y] + sum_{y in support of yp} gain[yp,y] v[t,y]
    Arguments as in `sparse_forward`: b, packing, edges; psi_node (n, M), overwritten with v; work, with its
    alpha and gain; out: p_node (n, M) = weight * marginals; n_products (2,). Cost: as `sparse_forward`,
    without the exps. Source: Sokolovska et al. (2010), eq. (9).
    """
    following, (step_ptr, row_class, by_step) = 0, steps_of(b, packing)
    alpha, gain, part = work.alpha, work.gain, work.part
    for t in range(step_ptr.size - 2, -1, -1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        for r in range(following, hi - lo):
            p_node[lo + r, :] = packing.weight[packing.slot_ptr[b] + r]
        shift, following = lo - step_ptr[t - 1] if t > 0 else 0, hi - lo
        _finish_backward(lo, hi, psi_node, alpha, gain, p_node, shift, part)
        if t > 0:
            n_products[1] += _times_edges(
                t, np.bool_(False), edges, row_class, step_ptr, by_step, psi_node, part, p_node, work.prev,
                work.pair,
            )  # fmt: skip
