"""Sparse forward-backward: one product with a base that all tokens share, plus the label pairs with a weight.

psi_edge = base + gain. base is 1 (rank one), or the potentials of the plain transitions. gain = base
expm1(weights) is 0 where there is no weight. So a token costs one product for each stored pair of its class,
instead of L^2. Rows are packed as in forward_backward_batched.py. The rows of a step are computed class by
class, so that a list of pairs is read once for all rows of the class. Expected counts of edge weights are
made class by class, too: as whole tables where most pairs have a weight, pair by pair where few have.

(b, packing) names a batch, as there. `edges` is a SparseEdges (potentials.py), `work` a `SparseWork`
(chain/likelihood.py): they list their arrays with shapes. M >= L labels, padded.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS
from crfbook.chain.forward_backward_batched import erase_flagged, exp_rows, groups_of, steps_of
from crfbook.chain.sparse.potentials import open_table
from crfbook.chain.vector_math import copy_row

# A sum of base and gains below this share of the base has lost digits. It is computed again from psi, whose
# numbers are all positive.
CANCELLED = 1e-3


@kernel
def times_entries(source, source_row, source_label, gain, target_row, target_label, out):
    """out[target_row[j],target_label[e]] += source[source_row[j],source_label[e]] gain[e] for all j and e.

    Forward, to read: source_label are the previous labels of the entries, target_label the next ones;
    `push_entries` is the kernel that runs. Backward the two change places; `pull_entries` runs.

    Arguments:
        source : (n, M)
        source_row, target_row : int64 (m,)
        source_label, target_label : uint32 (E,)
        gain : (E,)
    Out:
        out : (n, M)
    Cost: one product for each entry and row.
    Source: Sokolovska et al. (2010), (9).
    """
    for j in range(source_row.size):
        for e in range(gain.size):
            out[target_row[j], target_label[e]] += source[source_row[j], source_label[e]] * gain[e]


@kernel
def _open_rows(rows, shift, based, part, out):
    """out[i - shift,y] = part[i - shift,y], or part[i - shift,0] for all y unless based, for i in rows."""
    for i in rows:
        level = part[i - shift, 0]
        for y in range(out.shape[1]):
            out[i - shift, y] = part[i - shift, y] if based else level


@kernel
def push_entries(source, rows, shift, start, stop, prev, next_label, gain, based, part, out):
    """out[i,y] = part[i,y] + sum_yp source[i - shift,yp] gain[yp,y] over the entries, for i in rows.

    Rows go four at a time, so that an entry is loaded once for all four; `times_entries` is the sister to
    read. Cells are counted from the beginning of the matrices (x of source, u of out; row i begins at i M) by
    unsigned numbers: no index is checked for its sign.

    Arguments:
        source : (n, M)
        rows : int64 (m,)
        shift : rows from a row to its predecessor
        start, stop : entries start..stop-1
        prev, next_label : uint32 (E,)
        gain : (E,), entries sorted by prev
        based : true if the base is not rank one
        part : (n, M), what the base contributes, the same number part[i,0] in a whole row unless based
    Out:
        out : (n, M)
    Cost: one product for each entry and row.
    Source: Sokolovska et al. (2010), eq. (9).
    """
    x, u, M, s = source.reshape(-1), out.reshape(-1), np.uint64(out.shape[1]), np.uint64(shift * out.shape[1])
    for j in range(0, rows.size, 4):
        _open_rows(rows[j : j + 4], 0, based, part, out)
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
    """out[i - shift,yp] = part[i - shift,yp] + sum_y gain[yp,y] source[i,y], for i in rows: the way back.

    Arguments as in `push_entries`:
        source : (n, M)
        rows : (m,)
        shift, start, stop : as there
        prev, next_label : (E,)
        gain : (E,)
        based : true if the base is not rank one
        part : (n, M)
    Out:
        out : (n, M)
    Cost: one product for each entry and row.
    Source: Sokolovska et al. (2010), eq. (9).
    """
    x, u, M, s = source.reshape(-1), out.reshape(-1), np.uint64(out.shape[1]), np.uint64(shift * out.shape[1])
    for j in range(0, rows.size, 4):
        _open_rows(rows[j : j + 4], shift, based, part, out)
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
def open_class(k, edges, table_buf):
    """The potentials of class k as a table (M, M): its own, or table_buf with the entries of the class.

    Arguments:
        k : edge class
        edges : a `SparseEdges`
    Work:
        table_buf : (M, M), the base until `close_class`
    Cost: one step an entry.
    Source: chapter 06.
    """
    if edges.table_of[k] >= 0:
        return edges.table[edges.table_of[k]]
    for e in range(edges.entry_ptr[k], edges.entry_ptr[k + 1]):
        table_buf[edges.prev[e], edges.next_label[e]] = edges.psi[e]
    return table_buf


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
    """Compute row o of out again where it has lost digits, from positive numbers: source[i] times table
    (M, M).
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
            open_class(k, edges, table)
            filled = k
        _repair(based, source, i - shift_in, forward, part, o, out, table)


@kernel
def _times_edges(t, forward, edges, row_class, step_ptr, by_step, source, part, out, buf, table):
    """Forward out[i] = source[before i] @ psi_edge, else out[before i] = psi_edge @ source[i].

    i are the rows of step t. They go class by class. part (n, M), part[:, 0] filled if there is no base, buf
    (>= 2 rows, M), table (M, M): work. Returns the number of products with entries. Callers pass a typed
    constant for `forward`: with the literals True and False numba would compile all of this twice.
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
    """alpha[i] becomes psi_node[i] alpha[i] / c, gain[i] = 1 / c, log_z[i - lo] += log c, lo <= i < hi.

    What is not safe is flagged. Eight partial sums are independent of each other. M is a multiple of 4.
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
            a0, a1 = a0 + alpha[i, M - 4], a1 + alpha[i, M - 3]
            a2, a3 = a2 + alpha[i, M - 2], a3 + alpha[i, M - 1]
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
    """p_node[i] = alpha[i] beta[i], v[i] = psi_node[i] beta[i] / c, part[i - shift,0] = sum v.

    p_node comes in as beta, and psi_node leaves as v.
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
    """flags[r] = 1 for the sequences with a transition of a wide class.

    Its potentials differ by too much for float64 to hold them scaled.

    Arguments:
        row_class : int32 (n,)
        step_ptr : int64 (T+1,) of a batch
        wide : uint8 (K,)
    Out:
        flags : uint8 (B,)
    Cost: n.
    Source: chapter 06.
    """
    for t in range(1, step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            if wide[row_class[i]]:
                flags[i - step_ptr[t]] = 1


@kernel
def sparse_forward(b, packing, edges, log_node, log_z, work, n_products):
    """Scaled forward vectors of a packed batch; returns how many sequences are flagged for the log form.

    m[t,y] = psi_node[t,y] (sum_yp alpha[t-1,yp] base[yp,y] + sum of alpha[t-1,yp] gain[yp,y] over the
    support of y)
    c[t] = sum_y m[t,y],  alpha[t] = m[t] / c[t],  log_z = sum_t log c[t] + maxima taken out

    Arguments:
        b, packing : a batch, grouped
        edges : a `SparseEdges`
        log_node : (n, M), overwritten with psi_node
    Out:
        log_z : (B,)
        work.flags : uint8, 1: needs the log form
        work.alpha : (n, M)
        work.gain : (n,), 1 / c
        n_products : int64 (2,), added to: products with entries forward, backward
    Cost: one product for each entry of each token's class (and n M^2 if there is a base), n M exps.
    Source: Sokolovska et al. (2010), eq. (9).
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

    Arguments as in `sparse_forward`:
        b, packing, edges : as there
        psi_node : (n, M), overwritten with v
        work : with its alpha and gain
    Out:
        p_node : (n, M) = weight * marginals
        n_products : (2,)
    Cost: as `sparse_forward`, without the exps.
    Source: Sokolovska et al. (2010), eq. (9).
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


@kernel
def add_table(table, start, stop, edge_prev, edge_next, n_labels, grad):
    """grad[f] += table[edge_prev[f], edge_next[f]] for start <= f < stop.

    Arguments:
        table : (M, M)
        start, stop : entries start..stop-1
        edge_prev, edge_next : int32 (n_edge,), weights of a FeatureSet
        n_labels : L
    Out:
        grad : (n_edge,)
    Cost: one addition a weight, contiguous where all L^2 exist.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    L = n_labels
    if stop - start == L * L:
        for yp in range(L):
            for y in range(L):
                grad[start + yp * L + y] += table[yp, y]
        return
    for f in range(start, stop):
        grad[f] += table[edge_prev[f], edge_next[f]]


@kernel
def add_pairs(alpha, v, rows, prev_row, start, stop, prev, next_label, table, out):
    """out[f] += table[yp, y] sum_i alpha[prev_row[i], yp] v[i, y], start <= f < stop.

    (yp, y) is (prev[f], next_label[f]).

    Arguments:
        alpha, v : (n, M)
        rows : int64 (m,)
        prev_row : int64 (n,)
        start, stop : entries start..stop-1
        prev, next_label : (F',)
        table : (M, M)
    Out:
        out : (F',)
    Cost: two products for each pair and row.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    a, b, M = alpha.reshape(-1), v.reshape(-1), np.uint64(alpha.shape[1])
    j = 0
    while j < rows.size:
        four = j + 4 <= rows.size
        i0 = rows[j]
        i1, i2, i3 = (rows[j + 1], rows[j + 2], rows[j + 3]) if four else (i0, i0, i0)
        p0, p1 = np.uint64(prev_row[i0]) * M, np.uint64(prev_row[i1]) * M
        p2, p3 = np.uint64(prev_row[i2]) * M, np.uint64(prev_row[i3]) * M
        q0, q1, q2, q3 = np.uint64(i0) * M, np.uint64(i1) * M, np.uint64(i2) * M, np.uint64(i3) * M
        for f in range(start, stop):
            yp, y = np.uint64(prev[f]), np.uint64(next_label[f])
            total = a[p0 + yp] * b[q0 + y]
            if four:
                total += a[p1 + yp] * b[q1 + y] + a[p2 + yp] * b[q2 + y] + a[p3 + yp] * b[q3 + y]
            out[f] += total * table[yp, y]
        j += 4 if four else 1


@kernel
def gather_product(alpha, v, rows, prev_row, buf, out):
    """out = sum_i alpha[prev_row[i]]^T v[i] over rows: one matrix product.

    Arguments:
        alpha, v : (n, M)
        rows : int64 (m,)
        prev_row : int64 (n,)
    Out:
        out : (M, M)
    Work:
        buf : (>= n, M)
    Cost: m M^2 multiply-adds.
    Source: Sokolovska et al. (2010), section 3.2.
    """
    M, half, first = out.shape[0], max(1, buf.shape[0] // 2), 0
    product = np.empty((M, M))
    for yp in range(M):
        for y in range(M):
            out[yp, y] = 0.0
    while first < rows.size:
        m = min(half, rows.size - first)
        for j in range(m):
            copy_row(alpha, prev_row[rows[first + j]], buf, j)
            copy_row(v, rows[first + j], buf, half + j)
        np.dot(buf[:m].T, buf[half : half + m], product)
        for yp in range(M):
            for y in range(M):
                out[yp, y] += product[yp, y]
        first += m


@kernel
def close_class(k, edges, table_buf):
    """table_buf = the base again, undoing `open_class`.

    Arguments:
        k : edge class
        edges : a `SparseEdges`
    Out:
        table_buf : (M, M)
    Cost: one step an entry.
    Source: chapter 06.
    """
    for e in range(edges.entry_ptr[k], edges.entry_ptr[k + 1]):
        yp, y = edges.prev[e], edges.next_label[e]
        table_buf[yp, y] = edges.base[yp, y] if edges.base.size else 1.0


@kernel
def correct_base(alpha, v, rows, prev_row, start, stop, prev, next_label, gain, counts):
    """counts[yp,y] += gain[e] sum_i alpha[prev_row[i],yp] v[i,y] for the entries e = (yp, y) of start:stop.

    Arguments as in `add_pairs`:
        alpha, v : (n, M)
        rows : (m,)
        prev_row : (n,)
        start, stop : entries start..stop-1
        prev, next_label : (E,)
        gain : (E,)
    Out:
        counts : (M, M)
    Cost: two products for each entry and row.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    for e in range(start, stop):
        yp, y = prev[e], next_label[e]
        total = 0.0
        for i in rows:
            total += alpha[prev_row[i], yp] * v[i, y]
        counts[yp, y] += gain[e] * total


@kernel
def base_counts(b, packing, edges, v, work):
    """counts[yp,y] = sum_i p_edge[i,yp,y]: one product for the base, then what the entries of classes change.

    whole = base sum_i alpha v,   counts = whole + sum_k gain_k sum_{i of class k} alpha v: differences.
    A pair that keeps less than CANCELLED of `whole` has lost digits. Returns how many have: `recount` takes
    them.

    Arguments as in `edge_counts`:
        b, packing : a batch, grouped by class
        edges : a `SparseEdges`
        v : (n, M)
        work : a `SparseWork`, its alpha
    Out:
        work.base_sum : (M, M), the counts
        work.whole : (M, M)
    Cost: n M^2 multiply-adds, two products for each entry and row.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    (class_start, by_class, prev_row), M = groups_of(b, packing), v.shape[1]
    alpha, buf, pair, table = work.alpha, work.prev[: v.shape[0]], work.pair, work.table
    counts, whole = work.base_sum, work.whole
    open_table(edges.base, edges.active.n_labels, table)
    gather_product(alpha, v, by_class[: class_start[class_start.size - 1]], prev_row, buf, pair)
    for yp in range(M):
        for y in range(M):
            whole[yp, y] = counts[yp, y] = pair[yp, y] * table[yp, y]
    for k in range(edges.table_of.size):
        rows, d = by_class[class_start[k] : class_start[k + 1]], edges.table_of[k]
        if rows.size == 0 or edges.wide[k]:
            continue
        if d >= 0:
            gather_product(alpha, v, rows, prev_row, buf, pair)
            for yp in range(M):
                for y in range(M):
                    counts[yp, y] += (edges.table[d, yp, y] - table[yp, y]) * pair[yp, y]
        else:
            correct_base(
                alpha, v, rows, prev_row, edges.entry_ptr[k], edges.entry_ptr[k + 1], edges.prev,
                edges.next_label, edges.gain, counts,
            )  # fmt: skip
    n_lost = 0
    for yp in range(M):
        for y in range(M):
            n_lost += counts[yp, y] < CANCELLED * whole[yp, y]
    return n_lost


@kernel
def recount(b, packing, edges, v, work):
    """counts[yp,y] = sum_k psi_k[yp,y] sum_i alpha[prev_row[i],yp] v[i,y] where `base_counts` lost digits.

    Nothing is subtracted.

    Arguments as there:
        b, packing : a batch, grouped by class
        edges : a `SparseEdges`
        v : (n, M)
        work : its alpha; its table is the base; its whole is as `base_counts` left it
    Out:
        work.base_sum : (M, M), the counts
    Cost: two products for each lost pair and row.
    Source: chapter 06.
    """
    (class_start, by_class, prev_row), M = groups_of(b, packing), v.shape[1]
    alpha, counts, whole = work.alpha, work.base_sum, work.whole
    lost = np.empty((M * M, 2), np.int64)
    n_lost = 0
    for yp in range(M):
        for y in range(M):
            if counts[yp, y] < CANCELLED * whole[yp, y]:
                counts[yp, y], lost[n_lost, 0], lost[n_lost, 1], n_lost = 0.0, yp, y, n_lost + 1
    for k in range(edges.table_of.size):
        rows = by_class[class_start[k] : class_start[k + 1]]
        if rows.size == 0 or edges.wide[k]:
            continue
        psi = open_class(k, edges, work.table)
        for j in range(n_lost):
            yp, y, total = lost[j, 0], lost[j, 1], 0.0
            for i in rows:
                total += alpha[prev_row[i], yp] * v[i, y]
            counts[yp, y] += psi[yp, y] * total
        close_class(k, edges, work.table)


@kernel
def edge_counts(b, packing, edges, v, edge_ptr, edge_prev, edge_next, whole, grad, base_sum, work):
    """Add expected counts of the edge weights of a batch to grad; `whole`: those of attribute 0 to base_sum.

    grad[b,yp,y] += sum_{k with b} psi_k[yp,y] sum_{i of class k} alpha[prev_row[i],yp] v[i,y]

    Arguments:
        b, packing : a batch, grouped
        edges : a `SparseEdges`
        v : (n, M) of `sparse_backward`
        work : its alpha
        edge_ptr : int64 (B+1,)
        edge_prev, edge_next : int32 (n_edge,) of the FeatureSet
        whole : 1 to form psi_k as a table and multiply it as a whole, 0 to go pair by pair and leave
            attribute 0 to `base_counts`
    Out:
        grad : (n_edge,)
        base_sum : (M, M), added to
    Work:
        work : its prev, pair and table, overwritten
    A wide class is passed over: its sequences are left to the log domain.
    Cost: n M^2, or n times the weights of a class.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    M, L, has_base, active = v.shape[1], edges.active.n_labels, edge_ptr[1] > 0, edges.active
    class_start, by_class, prev_row = groups_of(b, packing)
    alpha, buf, pair, table = work.alpha, work.prev[: v.shape[0]], work.pair, work.table
    open_table(edges.base, L, table)
    for k in range(edges.table_of.size):
        rows = by_class[class_start[k] : class_start[k + 1]]
        if rows.size == 0 or edges.wide[k]:
            continue
        psi = open_class(k, edges, table)
        if whole:
            gather_product(alpha, v, rows, prev_row, buf, pair)
            for yp in range(M):
                for y in range(M):
                    pair[yp, y] *= psi[yp, y]
                    base_sum[yp, y] += pair[yp, y] if has_base else 0.0
        for j in range(active.class_ptr[k], active.class_ptr[k + 1]):
            c = active.class_attr[j]
            if c == 0 or c >= edge_ptr.size - 1:
                continue
            lo, hi = edge_ptr[c], edge_ptr[c + 1]
            if whole:
                add_table(pair, lo, hi, edge_prev, edge_next, L, grad)
            else:
                add_pairs(alpha, v, rows, prev_row, lo, hi, edge_prev, edge_next, psi, grad)
        close_class(k, edges, table)
