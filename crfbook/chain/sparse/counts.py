"""Expected counts of edge weights, class by class: whole tables where most pairs have a weight,
pair by pair where few have. Arguments as in forward_backward.py.

Last, forward-backward in the log domain, for the sequences that the scaled form refuses. No table of all
classes exists: each step gets its table from the weights. It is called sequence by sequence, and seldom
(form.py), so that nobody compiles it who does not need it.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward_batched import groups_of
from crfbook.chain.sparse.forward_backward import CANCELLED, put_entries
from crfbook.chain.sparse.potentials import open_table
from crfbook.chain.vector_math import copy_row


@kernel
def add_table(table, start, stop, edge_prev, edge_next, n_labels, grad):
    """grad[f] += table[edge_prev[f], edge_next[f]] for start <= f < stop.

    Arguments: table (M, M); start, stop; edge_prev, edge_next int32 (n_edge,): weights of a FeatureSet;
    n_labels; out: grad (n_edge,). Cost: one addition a weight, contiguous where all L^2 exist. Source:
    Sokolovska et al. (2010), eq. (5).
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
    """out[f] += table[yp, y] sum_i alpha[prev_row[i], yp] v[i, y] with (yp, y) = (prev[f], next_label[f]),
    start <= f < stop.

    Arguments: alpha, v (n, M); rows int64 (m,), prev_row int64 (n,); start, stop; prev, next_label (F',);
    table (M, M); out: out (F',).
    Cost: two products for each pair and row. Source: Sokolovska et al. (2010), eq. (5).
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

    Arguments: alpha, v (n, M); rows int64 (m,); prev_row int64 (n,); out: out (M, M); work: buf (>= n, M).
    Cost: m M^2 multiply-adds. Source: Sokolovska et al. (2010), section 3.2.
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
def take_entries(start, stop, prev, next_label, base, table):
    """table = base again at the entries start:stop, undoing `put_entries`.

    Arguments: start, stop; prev, next_label (E,); base (M, M) or (0, 0): ones; out: table (M, M). Cost: one
    step an entry. Source: chapter 06.
    """
    for e in range(start, stop):
        table[prev[e], next_label[e]] = base[prev[e], next_label[e]] if base.size else 1.0


@kernel
def open_class(k, edges, table_buf):
    """The potentials of class k as a table (M, M): its own,
    or the base in table_buf with the entries of the class put in.

    Arguments: k; edges; work: table_buf (M, M), the base until `close_class`. Cost: one step an entry.
    Source: chapter 06.
    """
    if edges.table_of[k] >= 0:
        return edges.table[edges.table_of[k]]
    put_entries(
        edges.entry_ptr[k], edges.entry_ptr[k + 1], edges.prev, edges.next_label, edges.psi, table_buf
    )
    return table_buf


@kernel
def close_class(k, edges, table_buf):
    """table_buf = the base again, undoing `open_class`.

    Arguments: k; edges; out: table_buf (M, M). Cost: one step an entry. Source: chapter 06.
    """
    if edges.table_of[k] < 0:
        take_entries(
            edges.entry_ptr[k], edges.entry_ptr[k + 1], edges.prev, edges.next_label, edges.base, table_buf
        )


@kernel
def correct_base(alpha, v, rows, prev_row, start, stop, prev, next_label, gain, counts):
    """counts[yp,y] += gain[e] sum_i alpha[prev_row[i],yp] v[i,y] for the entries e = (yp, y) of start:stop.

    Arguments as in `add_pairs`: alpha, v (n, M), rows (m,), prev_row (n,); start, stop; prev, next_label
    (E,), gain (E,); out: counts (M, M). Cost: two products for each entry and row. Source: Sokolovska et al.
    (2010), eq. (5).
    """
    for e in range(start, stop):
        yp, y = prev[e], next_label[e]
        total = 0.0
        for i in rows:
            total += alpha[prev_row[i], yp] * v[i, y]
        counts[yp, y] += gain[e] * total


@kernel
def base_counts(b, packing, edges, v, work):
    """counts[yp,y] = sum_i p_edge[i,yp,y] over all classes: one product for the base,
    then what the entries of each class change.

    whole = base sum_i alpha v,   counts = whole + sum_k gain_k sum_{i of class k} alpha v: differences.
    A pair that keeps less than CANCELLED of `whole` has lost digits; returns how many have: they are for
    `recount`. Arguments as in `edge_counts`: b, packing; edges; v (n, M), work.alpha; out: counts =
    work.base_sum and work.whole (M, M). Cost: n M^2 multiply-adds, two products for each entry and row.
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
    """counts[yp,y] = sum_k psi_k[yp,y] sum_i alpha[prev_row[i],yp] v[i,y] where `base_counts` has lost
    digits, without differences.

    Arguments as there: b, packing; edges; v (n, M), work.alpha; work.table is the base, work.whole as it left
    it; out: counts = work.base_sum (M, M). Cost: two products for each lost pair and row. Source: chapter 06.
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
    """Expected counts of the edge weights of a batch into grad;
    those of attribute 0 as a table into base_sum, if `whole`.

    grad[b,yp,y] += sum_{k with b} psi_k[yp,y] sum_{i of class k} alpha[prev_row[i],yp] v[i,y]
    Arguments: b, packing: a batch, grouped; edges; v (n, M) of `sparse_backward`, work.alpha; edge_ptr int64
    (B+1,), edge_prev, edge_next int32 (n_edge,) of the FeatureSet; whole: 1 to form psi_k as a table and
    multiply it as a whole, 0 to go pair by pair and leave attribute 0 to `base_counts`; out: grad (n_edge,),
    base_sum (M, M), added to; work: its prev, pair and table are overwritten. A wide class is passed over:
    its sequences are left to the log domain. Cost: n M^2, or n times the weights of a class.
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
