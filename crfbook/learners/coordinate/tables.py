"""Transition tables of edge classes as a dense base and packed differences, and products with them.

Over M padded labels, table of class k:  psi[k] = base + D[k],  D[k] = base * (exp(s[k]) - 1),  s[k] = sum of
the weights of its edge attributes (the constant one aside, which is the base). D[k] has few entries; where it
has many, or psi is tiny, the whole table is kept. A cell is a pair (yp, y) as one number, see SHIFT.
`tables` is a SharedTables, `weights` a Weights, `lists` a Lists, `work` a LatticeWork of arrays.py, which
lists their arrays.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import exp_inplace

# nats: below, base + D would lose more than six digits of psi, and the class gets a whole table
LOWEST = -14.0
START, SIZE, ROOM = 0, 1, 2  # rows of Lists.row
# a cell (yp, y) is the number yp << SHIFT | y: no division when a list is read
SHIFT, LABEL = 16, 0xFFFF
CENTRE, WIDTH, FLAT = 0, 1, 2  # places of SharedTables.level, see `rebuild_base`


@kernel
def place_list(r, n, row):
    """Room for n entries in list r, which is about to be overwritten: where it is,
    or else at the end of the pool.

    Arguments: r; n; row int64 (3, R+1) of a Lists with at least n + n/4 free places. Cost: 1. Source:
    docs/SPEC.md, A.10, packed and growing lists.
    """
    if n > row[ROOM, r]:
        end = row.shape[1] - 1
        row[START, r] = row[START, end]
        row[ROOM, r] = n + n // 4
        row[START, end] += row[ROOM, r]
    row[SIZE, r] = n


@kernel
def room_for_classes(classes, more, class_ptr, class_attr, class_row, weight_row):
    """Places in the pool of differences that rebuilding these classes may take,
    if `more` entries come to each.

    Arguments: classes int32 (n,); more; class_ptr (K+1,), class_attr (n,) of SharedTables; class_row (3,
    K+1), weight_row (3, B+1): rows of the lists of classes and of weights. Cost: the edge attributes of
    these classes. Source: docs/SPEC.md, A.10.
    """
    need = 0
    for k in classes:
        n = more
        for j in range(class_ptr[k], class_ptr[k + 1]):
            n += weight_row[SIZE, class_attr[j]]
        need += n + n // 4 if n > class_row[ROOM, k] else 0
    return need


@kernel
def _sum_weights(k, class_ptr, class_attr, lists, sum_buf, touched_buf):
    """sum_buf[yp, y] = s[k][yp, y] at the cells touched_buf[:n]; returns n. sum_buf (M, M) is nan before,
    and elsewhere after.
    """
    n = 0
    for j in range(class_ptr[k], class_ptr[k + 1]):
        b = class_attr[j]
        start = lists.row[START, b]
        for e in range(start, start + lists.row[SIZE, b]):
            c = lists.cell[e]
            yp, y = c >> SHIFT, c & LABEL
            if np.isnan(sum_buf[yp, y]):
                touched_buf[n] = c
                sum_buf[yp, y] = lists.value[e]
                n += 1
            else:
                sum_buf[yp, y] += lists.value[e]
    return n


@kernel
def _claim_table(k, wanted, slot, free):
    """Take or give back a whole table for class k; its number, or -1."""
    if wanted and slot[k] < 0 and free[0] > 0:
        slot[k] = free[free[0]]
        free[0] -= 1
    if not wanted and slot[k] >= 0:
        free[0] += 1
        free[free[0]] = slot[k]
        slot[k] = -1
    return slot[k]


@kernel
def rebuild_classes(classes, dense_above, tables, weights, work):
    """psi[k] of these classes from the weights: a list of differences;
    whole if it has more than dense_above entries or one below LOWEST.

    Where no table is free, a long list does; an entry below LOWEST makes spread[k] infinite: its sequences
    are done in logarithms. Arguments: classes int32 (n,); dense_above; tables; weights; work. Cost: the
    active weights of their edge attributes, one exp each; M^2 for a whole table. Source: docs/SPEC.md, A.4.
    """
    sum_buf, touched_buf, value_buf = work.score, work.touched, work.value
    base, M, row, cell = tables.base, tables.base.shape[0], tables.lists.row, tables.lists.cell
    value = tables.lists.value
    for k in classes:
        n = _sum_weights(k, tables.class_ptr, tables.class_attr, weights.lists, sum_buf, touched_buf)
        largest, lowest = 0.0, 0.0
        for e in range(n):
            yp, y = touched_buf[e] >> SHIFT, touched_buf[e] & LABEL
            value_buf[e] = sum_buf[yp, y]
            sum_buf[yp, y] = np.nan
            largest = max(largest, abs(value_buf[e]))
            lowest = min(lowest, value_buf[e])
        exp_inplace(value_buf[:n])
        d = _claim_table(k, n > dense_above or lowest < LOWEST, tables.slot, tables.free)
        tables.spread[k] = 2.0 * largest if d >= 0 or lowest >= LOWEST else np.inf
        if d >= 0:
            for yp in range(M):
                for y in range(M):
                    tables.whole[d, yp, y] = base[yp, y]
            for e in range(n):
                tables.whole[d, touched_buf[e] >> SHIFT, touched_buf[e] & LABEL] *= value_buf[e]
            n = np.int64(0)
        place_list(np.int64(k), n, row)
        start = row[START, k]
        for e in range(n):
            c = touched_buf[e]
            cell[start + e] = c
            value[start + e] = base[c >> SHIFT, c & LABEL] * (value_buf[e] - 1.0)


@kernel
def rebuild_base(base_log, n_labels, base, base_t, level):
    """base = exp(base_log - level[CENTRE]), level[CENTRE] the largest entry, level[WIDTH] the spread of the
    finite ones, level[FLAT] the number of labels if all pairs of them are allowed and equal, else 0.

    Arguments: base_log (M, M); n_labels; out: base (M, M), base_t (M, M): its transpose, level (3,). Cost:
    M^2 exps. Source: docs/SPEC.md, A.4.
    """
    high, low, n = -np.inf, np.inf, 0
    M = base.shape[0]
    for yp in range(M):
        for y in range(M):
            v = base_log[yp, y]
            high = v if v > high else high
            low = v if v < low and v > -np.inf else low
            n += 1 if v > -np.inf else 0
    level[CENTRE] = high if high > -np.inf else 0.0
    level[WIDTH] = max(0.0, high - low)
    level[FLAT] = n_labels if high == low and n == n_labels * n_labels else 0.0
    for yp in range(M):
        for y in range(M):
            base[yp, y] = base_log[yp, y] - level[CENTRE]
    exp_inplace(base.reshape(-1))
    for yp in range(M):
        for y in range(M):
            base_t[y, yp] = base[yp, y]


@kernel
def total_of(v):
    """sum_y v[y], in four sums of every fourth.

    Arguments: v (M,). Cost: M. Source: none needed.
    """
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(v.size // 4):  # not range(0, M, 4): of 4 j it is known that it is no index from the end
        y = 4 * j
        a, b, c, d = a + v[y], b + v[y + 1], c + v[y + 2], d + v[y + 3]
    return (a + b) + (c + d)


@kernel
def from_left(alpha, p, psi, d, out, r):
    """out[r, y] = sum_yp alpha[p, yp] psi[d, yp, y].

    Arguments: alpha (P, M); p; psi (D, M, M); d; out (R, M), which may be alpha; r, not p. Cost: M^2.
    Source: Sokolovska et al. (2010), eq. (9).
    """
    M = psi.shape[1]
    for y in range(M):
        out[r, y] = 0.0
    for j in range(M // 4):
        x = 4 * j
        a0, a1, a2, a3 = alpha[p, x], alpha[p, x + 1], alpha[p, x + 2], alpha[p, x + 3]
        for y in range(M):
            out[r, y] += (
                a0 * psi[d, x, y] + a1 * psi[d, x + 1, y] + a2 * psi[d, x + 2, y] + a3 * psi[d, x + 3, y]
            )


@kernel
def from_right(v, psi_t, out, r):
    """out[r, yp] = sum_y psi[yp, y] v[y].

    Arguments: v (M,); psi_t (M, M): psi transposed; out (R, M); r. Cost: M^2. Source: Sokolovska et al.
    (2010), eq. (9).
    """
    M = psi_t.shape[0]
    for yp in range(M):
        out[r, yp] = 0.0
    for j in range(M // 4):
        y = 4 * j
        v0, v1, v2, v3 = v[y], v[y + 1], v[y + 2], v[y + 3]
        for yp in range(M):
            out[r, yp] += (
                v0 * psi_t[y, yp] + v1 * psi_t[y + 1, yp] + v2 * psi_t[y + 2, yp] + v3 * psi_t[y + 3, yp]
            )
