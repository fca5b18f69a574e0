"""Scaled forward-backward over many sequences at once: each time step is one matrix product.

Packed layout ("step-major"): the B sequences of a batch are sorted by falling length. The rows of time step t
are step_ptr[t]:step_ptr[t+1]. Row step_ptr[t] + r belongs to sequence r, and its predecessor is row
step_ptr[t-1] + r. So the rows of a step are contiguous, and so are their predecessors. No sequence is empty.

(b, packing) names a batch: its number, and the `Packing` of packing.py. A product with tables is one matrix
product for each step and edge class. Where there are several edge classes, ``group_rows`` is run once when a
batch is packed; without it packing.groups is None. The NamedTuples `packing`, `edges` (`Edges` of forms.py)
and `work` (`Work` of likelihood.py, as long as the longest batch) list their arrays with shapes.
Labels may be padded, for instance to a multiple of 4: log_node and log_edge are -inf there, and results are
the same.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import MAX_SPREAD, SMALLEST_MASS
from crfbook.chain.vector_math import add_products, copy_row, exp_inplace


@kernel
def steps_of(b, packing):
    """Batch b step by step: (step_ptr (T+1,), row_class (n,), by_step (n,) or None), parts of `packing`.

    Arguments:
        b, packing : a `Packing` of packing.py
    Cost: 1.
    Source: chapter 02.
    """
    lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    return step_ptr, packing.row_class[lo:hi], _by_step(packing.groups, lo, hi)


@kernel
def _by_step(groups, lo, hi):
    """by_step of the rows lo..hi-1; None without groups."""
    if groups is None:
        return None
    return groups.by_step[lo:hi]


@kernel
def groups_of(b, packing):
    """Batch b class by class: (class_start (K+1,), by_class (n,), prev_row (n,)), see `group_rows`.

    Arguments:
        b, packing : grouped
    Cost: 1.
    Source: chapter 02.
    """
    groups, lo, hi = packing.groups, packing.row_ptr[b], packing.row_ptr[b + 1]
    return groups.class_start[b], groups.by_class[lo:hi], groups.prev_row[lo:hi]


@kernel
def times_edges(source, matrices, rows, row_class, order, lo, out, buf):
    """out[r] = source[r] @ matrices[class of row lo + r], r < rows: one product per run of equal classes.

    Arguments:
        source : (>= rows, L)
        matrices : (K, L, L)
        rows : number of rows of the step
        row_class : (n,)
        order : (n,), rows of the step, class by class (by_step of `group_rows`), not read if K = 1, when
            order may be None
        lo : first row of the step
    Out:
        out : (rows, L)
    Work:
        buf : (2 rows, L) for the gathered operands, not read if K = 1
    Cost: rows L^2 multiply-adds.
    Source: chapter 02.
    """
    if matrices.shape[0] == 1:
        np.dot(source[:rows], matrices[0], out[:rows])
    else:
        _times_by_class(source, matrices, rows, row_class, order, lo, out, buf)


@kernel
def _times_by_class(source, matrices, rows, row_class, order, lo, out, buf):
    """`times_edges` for several classes."""
    if order is None:  # a step of one class: nothing of this is compiled
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
def add_edge_sum(b, packing, psi_edge, alpha, v, edge_sum, prev, pair):
    """edge_sum[k] += psi_edge[k] * sum over rows i of class k of alpha[before i]^T v[i]:
    one product per class.

    Arguments:
        b, packing : a batch
        psi_edge : (K, L, L)
        alpha, v : (n, L)
    Out:
        edge_sum : (K, L, L), added to
    Work:
        prev : (n, L)
        pair : (L, L)
    Cost: n L^2 multiply-adds.
    Source: Rabiner (1989), section V.A; chapter 02.
    """
    if psi_edge.shape[0] > 1:
        _add_by_class(b, packing.row_ptr[b], packing.groups, psi_edge, alpha, v, edge_sum, prev, pair)
        return
    step_ptr = steps_of(b, packing)[0]
    n, T = v.shape[0], step_ptr.size - 1
    # While no sequence has ended, predecessors are contiguous; later ones are gathered.
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


@kernel
def _add_by_class(b, lo, groups, psi_edge, alpha, v, edge_sum, prev, pair):
    """`add_edge_sum` for several classes; lo: first row of the batch."""
    if groups is None:  # nothing of this is compiled
        return
    class_start, by_class, prev_row = groups.class_start[b], groups.by_class[lo:], groups.prev_row[lo:]
    chunk = max(1, v.shape[0] // 2)  # both gathered operands share prev
    for k in range(psi_edge.shape[0]):
        for start in range(class_start[k], class_start[k + 1], chunk):
            size = min(chunk, class_start[k + 1] - start)
            for j in range(size):
                i = by_class[start + j]
                copy_row(alpha, prev_row[i], prev, j)
                copy_row(v, i, prev, chunk + j)
            np.dot(prev[:size].T, prev[chunk : chunk + size], pair)
            add_products(psi_edge[k], pair, edge_sum[k])


@kernel
def group_rows(row_class, step_ptr, class_start, by_class, by_step, prev_row):
    """Orders of the rows of a packed batch that bring equal edge classes together; data only, run once.

    Arguments:
        row_class : int32 (n,)
        step_ptr : int64 (T+1,)
    Out:
        prev_row : int64 (n,), row of the token before, -1 at step 0
        class_start : int64 (K+1,) and by_class int64 (n,): by_class[class_start[k]:class_start[k+1]] are the
            rows of class k that have a predecessor, rising
        by_step : int64 (n,), by_step[step_ptr[t]:step_ptr[t+1]] are the rows of step t, class by class
    Cost: O(n + K + T), two counting sorts.
    Source: chapter 02.
    """
    K, T = class_start.size - 1, step_ptr.size - 1
    n0 = step_ptr[1]
    class_start[:] = 0
    for i in range(n0):
        prev_row[i] = -1
        by_step[i] = i
    for t in range(1, T):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            prev_row[i] = step_ptr[t - 1] + i - step_ptr[t]
            class_start[row_class[i] + 1] += 1
    for k in range(K):
        class_start[k + 1] += class_start[k]
    cursor = class_start[:K].copy()
    for i in range(n0, step_ptr[T]):
        k = row_class[i]
        by_class[cursor[k]] = i
        cursor[k] += 1
    # Dealing the rows, taken class by class, to their steps keeps the classes in order inside each step.
    step_of = np.empty(step_ptr[T], np.int64)
    for t in range(T):
        step_of[step_ptr[t] : step_ptr[t + 1]] = t
    cursor = step_ptr[:T].copy()
    for j in range(class_start[K]):
        i = by_class[j]
        by_step[cursor[step_of[i]]] = i
        cursor[step_of[i]] += 1


@kernel
def exp_rows(log_node, edge_spread, step_ptr, log_z, flags):
    """psi_node = exp(log_node), in place. The middle of a row that spreads too far is subtracted before, and
    added to log_z.

    If all finite scores of a row lie within +-limit, its spread is at most 2 limit = MAX_SPREAD -
    edge_spread, which satisfies the safety rule without a second look.

    Arguments:
        log_node : (n, L), overwritten
        edge_spread : of the transitions
        step_ptr : (T+1,) of a packed batch
    Out:
        log_z : (B,), added to
        flags : (B,), 1 where a row spreads too far
    Cost: n L exps.
    Source: chapter 02.
    """
    flat = log_node.reshape(-1)
    limit = 0.5 * (MAX_SPREAD - edge_spread)
    n_wide = 0
    for i in range(flat.size):
        n_wide += (flat[i] > limit) | ((flat[i] < -limit) & (flat[i] > -np.inf))
    if n_wide > 0 or limit < 0.0:
        for t in range(step_ptr.size - 1):
            for i in range(step_ptr[t], step_ptr[t + 1]):
                _centre_row(log_node[i], limit, i - step_ptr[t], log_z, flags)
    exp_inplace(flat)


@kernel
def _centre_row(row, limit, r, log_z, flags):
    """Subtract the middle of one row (L,) of sequence r, so that it lies within +-limit; flag r if it cannot.

    The middle and not the maximum: alpha carries the gain of the step before, at least exp(-limit) / L. With
    psi >= exp(-limit) in every row, mass above SMALLEST_MASS times a step's factors stays above 5e-281 / L; a
    psi of exp(-2 limit) after so small a gain would underflow unseen.
    """
    high, low = -np.inf, np.inf
    for y in range(row.size):
        high = row[y] if row[y] > high else high
        low = row[y] if row[y] < low and row[y] > -np.inf else low
    if high == -np.inf or high <= limit and low >= -limit:  # nothing finite: its sum will be 0
        return
    if not high - low <= 2.0 * limit:
        flags[r] = 1
    middle = low + 0.5 * (high - low)
    log_z[r] += middle
    for y in range(row.size):
        row[y] -= middle


@kernel
def forward_rows(psi_node, psi_edge, row_class, step_ptr, by_step, alpha, gain, ones, buf):
    """alpha[t] = (alpha[t-1] @ psi_edge) psi_node[t] gain[t-1], gain[t] = 1 / sum alpha[t].

    Arguments:
        psi_node : (n, L)
        psi_edge : (K, L, L)
        row_class : (n,)
        by_step : (n,), see `times_edges`
        step_ptr : (T+1,)
    Out:
        alpha : (n, L)
        gain : (n,)
    Work:
        ones : (L,), all 1
        buf : (n, L)
    Cost: n L^2 multiply-adds.
    Source: Rabiner (1989), section V.A; chapter 02.
    """
    L = psi_node.shape[1]
    for i in range(step_ptr[1]):
        copy_row(psi_node, i, alpha, i)
    for t in range(step_ptr.size - 1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        if t > 0:
            before = step_ptr[t - 1]
            times_edges(alpha[before:lo], psi_edge, hi - lo, row_class, by_step, lo, alpha[lo:hi], buf)
            for i in range(lo, hi):
                f = gain[before + i - lo]
                for y in range(L):
                    alpha[i, y] *= psi_node[i, y] * f
        np.dot(alpha[lo:hi], ones, gain[lo:hi])
        for i in range(lo, hi):
            gain[i] = 1.0 / gain[i]


@kernel
def _log_z(alpha, gain, edge_max, row_class, step_ptr, log_z, flags):
    """log_z[r] += the edge maxima - sum_t log gain[t]; flags what breaks the safety rule.
    See `forward_batched` for shapes.

    Factors are multiplied up and a logarithm is taken only when the product leaves [1e-100, 1e100].
    """
    flat = alpha.reshape(-1)
    n_lost = 0
    for i in range(flat.size):
        n_lost += (flat[i] > 0.0) & (flat[i] < SMALLEST_MASS)
    product = np.ones(log_z.size)
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            r = i - step_ptr[t]
            product[r] *= gain[i]
            if not (product[r] > 1e-100 and product[r] < 1e100):
                log_z[r] -= np.log(product[r])
                product[r] = 1.0
                if not (gain[i] > 0.0 and gain[i] < np.inf):
                    flags[r] = 1
            if t > 0:
                log_z[r] += edge_max[row_class[i] if edge_max.size > 1 else 0]
            if n_lost > 0:
                for y in range(alpha.shape[1]):
                    if alpha[i, y] > 0.0 and alpha[i, y] < SMALLEST_MASS:
                        flags[r] = 1
    for r in range(log_z.size):
        log_z[r] -= np.log(product[r])


@kernel
def erase_flagged(step_ptr, flags, log_z, psi_node, alpha, gain):
    """Set the rows of sequences that need the log form to 0, so that they add nothing; returns their number.

    Arguments:
        step_ptr : (T+1,)
        flags : (B,)
    Out:
        log_z : (B,), NaN
        psi_node, alpha : (n, L)
        gain : (n,), 0, where flagged
    Cost: n L where anything is flagged.
    Source: chapter 02.
    """
    n_flagged = 0
    for r in range(flags.size):
        if flags[r]:
            n_flagged += 1
            log_z[r] = np.nan
            for t in range(step_ptr.size - 1):
                i = step_ptr[t] + r
                if i < step_ptr[t + 1]:
                    for y in range(psi_node.shape[1]):
                        psi_node[i, y], alpha[i, y] = 0.0, 0.0
                    gain[i] = 0.0
    return n_flagged


@kernel
def forward_batched(steps, psi_edge, edge_max, edge_spread, log_node, log_z, alpha, gain, flags, ones, buf):
    """The first half of `forward_backward_batched`: alpha, gain and log_z;
    returns how many sequences are flagged.

    Arguments as there:
        steps : of the batch
        psi_edge : (K, L, L)
        edge_max : (K,)
        edge_spread : (1,)
        log_node : (n, L), overwritten with psi_node
    Out:
        log_z : (B,)
        alpha : (n, L)
        gain : (n,)
        flags : (B,)
    Work:
        ones : (L,)
        buf : (n, L)
    Flagged sequences have psi_node = alpha = gain = 0.
    Cost: n L^2 multiply-adds, n L exps.
    Source: Rabiner (1989), section V.A; chapter 02.
    """
    step_ptr, row_class, by_step = steps
    for r in range(log_z.size):
        log_z[r], flags[r] = 0.0, 0
    for y in range(ones.size):
        ones[y] = 1.0
    exp_rows(log_node, edge_spread[0], step_ptr, log_z, flags)
    forward_rows(log_node, psi_edge, row_class, step_ptr, by_step, alpha, gain, ones, buf)
    _log_z(alpha, gain, edge_max, row_class, step_ptr, log_z, flags)
    return erase_flagged(step_ptr, flags, log_z, log_node, alpha, gain)


@kernel
def backward_batched(steps, psi_edge_t, weight, alpha, gain, psi_node, p_node, buf):
    """g = beta gain weight: p_node[t] = alpha[t] g[t], v[t] = psi_node[t] g[t] gain[t-1],
    g[t-1] = v[t] @ psi_edge^T.

    Arguments:
        steps : of a batch
        psi_edge_t : (K, L, L)
        weight : (B,)
        alpha : (n, L) and gain (n,) of `forward_batched`
        psi_node : (n, L), overwritten with v
    Out:
        p_node : (n, L) = weight * marginals
    Work:
        buf : (n, L)
    Cost: n L^2 multiply-adds.
    Source: Rabiner (1989), section V.A; chapter 02.
    """
    step_ptr, row_class, by_step = steps
    L, T = psi_node.shape[1], step_ptr.size - 1
    following = 0  # rows of step t that have a successor
    for t in range(T - 1, -1, -1):
        lo, hi = step_ptr[t], step_ptr[t + 1]
        for r in range(following, hi - lo):
            for y in range(L):
                p_node[lo + r, y] = weight[r] * gain[lo + r]
        for i in range(lo, hi):
            f = gain[step_ptr[t - 1] + i - lo] if t > 0 else 0.0
            for y in range(L):
                a = alpha[i, y]
                # An unreachable state can have any beta, even an infinite one; nothing may use it.
                g = p_node[i, y] if a > 0.0 else 0.0
                p_node[i, y] = a * g
                psi_node[i, y] *= g * f
        if t > 0:
            v, out, following = psi_node[lo:hi], p_node[step_ptr[t - 1] : lo], hi - lo
            times_edges(v, psi_edge_t, following, row_class, by_step, lo, out, buf)


@kernel
def forward_backward_batched(b, packing, edges, log_node, log_z, p_node, edge_sum, work):
    """log Z, node marginals and summed edge marginals of a packed batch;
    returns how many sequences are flagged.

    alpha[0] = psi_node[0],  c[t] = sum_y alpha[t,y],  gain[t] = 1/c[t]
    alpha[t] = (alpha[t-1] @ psi_edge) psi_node[t] gain[t-1]
    log_z = sum_t log c[t] + what exp took away
    g[T-1] = weight gain[T-1],  v[t] = psi_node[t] g[t] gain[t-1],  g[t-1] = v[t] @ psi_edge^T
    p_node[t] = alpha[t] g[t]        edge_sum += psi_edge * sum_t alpha[t-1]^T v[t]
    So alpha is normalised one step late, which saves a pass over memory, and g = beta gain weight has the
    weight in it.

    Arguments:
        b, packing : a batch, n rows of B sequences; the weight of each sequence is there
        edges : an `Edges`: psi_edge, psi_edge_t (K, L, L), edge_max (K,), edge_spread (1,)
        log_node : (n, L), overwritten with v
    Out:
        log_z : (B,)
        p_node : (n, L) = weight * marginals
        edge_sum : (K, L, L) += weight * expected transitions, as [class, previous, next]
        work.flags : uint8, the first B: 1 = needs the log form (the safety rule of forward_backward_scaled):
            its log_z is NaN, its p_node rows are 0 and it adds nothing to edge_sum
    Work:
        work : its alpha, gain, prev and pair, overwritten
    Cost: 3 n L^2 multiply-adds in matrix products, n L exps.
    Source: Rabiner (1989), section V.A; chapter 02.
    """
    n, steps, psi_edge = log_node.shape[0], steps_of(b, packing), edges.psi_edge
    alpha, gain, prev, pair = work.alpha[:n], work.gain[:n], work.prev[:n], work.pair
    n_flagged = forward_batched(
        steps, psi_edge, edges.edge_max, edges.edge_spread, log_node, log_z, alpha, gain,
        work.flags[: log_z.size], pair[0], prev,
    )  # fmt: skip
    weight = packing.weight[packing.slot_ptr[b] : packing.slot_ptr[b + 1]]
    backward_batched(steps, edges.psi_edge_t, weight, alpha, gain, log_node, p_node, prev)
    v = log_node
    add_edge_sum(b, packing, psi_edge, alpha, v, edge_sum, prev, pair)
    return n_flagged
