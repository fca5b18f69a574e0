"""Products of the rows of a packed batch with tables of edge potentials:
one matrix product per step and edge class.

The layout is that of forward_backward_batched.py: step-major rows,
and `group_rows` where there are several classes. A batch is named by (b, packing): its number, and the
`Packing` of packing.py, which lists its arrays with shapes.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import add_products, copy_row


@kernel
def steps_of(b, packing):
    """Batch b step by step: (step_ptr (T+1,), row_class (n,), by_step (n,) or (0,)), parts of `packing`.

    Arguments: b, packing: a `Packing` of packing.py. Cost: 1. Source: chapter 02.
    """
    lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    return step_ptr, packing.row_class[lo:hi], packing.by_step[lo:hi]


@kernel
def groups_of(b, packing):
    """Batch b class by class: (class_start (K+1,), by_class (n,), prev_row (n,)), see `group_rows`.

    Arguments: b, packing, grouped. Cost: 1. Source: chapter 02.
    """
    lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
    return packing.class_start[b], packing.by_class[lo:hi], packing.prev_row[lo:hi]


@kernel
def times_edges(source, matrices, rows, row_class, order, lo, out, buf):
    """out[r] = source[r] @ matrices[class of row lo + r], r < rows: one product per run of equal classes.

    Arguments: source (>= rows, L), matrices (K, L, L), rows; row_class (n,), order (n,): rows of the step,
    class by class (by_step of `group_rows`), both may have length 0 if K = 1; lo: first row of the step; out:
    out (rows, L); work: buf (2 rows, L) for the gathered operands, not read if K = 1. Cost:
    rows L^2 multiply-adds. Source: chapter 02.
    """
    if matrices.shape[0] == 1:
        np.dot(source[:rows], matrices[0], out[:rows])
        return
    start = 0
    while start < rows:
        k = row_class[order[lo + start]]
        stop = start
        while stop < rows and row_class[order[lo + stop]] == k:
            copy_row(source, order[lo + stop] - lo, buf, stop)
            stop += 1
        np.dot(buf[start:stop], matrices[k], buf[rows + start : rows + stop])
        for j in range(start, stop):
            copy_row(buf, rows + j, out, order[lo + j] - lo)
        start = stop


@kernel
def add_edge_sum(b, packing, psi_edge, alpha, v, edge_sum, work):
    """edge_sum[k] += psi_edge[k] * sum over rows i of class k of alpha[before i]^T v[i]:
    one product per class.

    Arguments: b, packing: a batch; psi_edge (K, L, L); alpha, v (n, L); out: edge_sum (K, L, L), added to;
    work: its prev and pair are overwritten. Cost: n L^2 multiply-adds. Source: Rabiner (1989), section V.A;
    chapter 02.
    """
    n, step_ptr = v.shape[0], steps_of(b, packing)[0]
    T, prev, pair = step_ptr.size - 1, work.prev[:n], work.pair
    if psi_edge.shape[0] == 1:
        # While no sequence has ended, predecessors are contiguous as they stand; later ones are brought
        # together.
        first, full = step_ptr[1], 1
        while full < T and step_ptr[full + 1] - step_ptr[full] == first:
            full += 1
        split = step_ptr[full]
        if split > first:
            np.dot(alpha[: split - first].T, v[first:split], pair)
            add_products(psi_edge[0], pair, edge_sum[0])
        if split == n:
            return
        for t in range(full, T):
            lo, hi = step_ptr[t], step_ptr[t + 1]
            for r in range(hi - lo):
                copy_row(alpha, step_ptr[t - 1] + r, prev, lo + r)
        np.dot(prev[split:].T, v[split:], pair)
        add_products(psi_edge[0], pair, edge_sum[0])
        return
    class_start, by_class, prev_row = groups_of(b, packing)
    chunk = max(1, n // 2)  # both gathered operands share prev
    for k in range(psi_edge.shape[0]):
        for start in range(class_start[k], class_start[k + 1], chunk):
            size = min(chunk, class_start[k + 1] - start)
            for j in range(size):
                i = by_class[start + j]
                copy_row(alpha, prev_row[i], prev, j)
                copy_row(v, i, prev, chunk + j)
            np.dot(prev[:size].T, prev[chunk : chunk + size], pair)
            add_products(psi_edge[k], pair, edge_sum[k])
