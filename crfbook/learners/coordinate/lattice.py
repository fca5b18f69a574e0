"""Transition tables of edge classes; forward and backward vectors that are kept between visits.

Sequences that begin or end alike share vectors, which are extended only as far as a visit needs them.

Over M padded labels, table of class k:  psi[k] = base + D[k],  D[k] = base * (exp(s[k]) - 1),  s[k] = sum of
the weights of its edge attributes (the constant one aside, which is the base). D[k] has few entries; where it
has many, or psi is tiny, the whole table is kept. A cell is a pair (yp, y) as one number, see SHIFT.

alpha of token t lies in row alpha_row[t], which all sequences with the same tokens up to t share; beta in
beta_row[t], psi_node in node_row[t] likewise. alpha is valid for the first place[AHEAD, i] positions of
sequence i, beta from position place[BEHIND, i] on. Other rows are valid where they were computed
(alpha_clock, beta_clock) no earlier than the sequence last changed, place[CHANGED, i]: another sequence has
extended them. Both sum to one; the logarithms of what was divided out add up in alpha_note and beta_note, so
that at any position t log Z = alpha_log[t] + beta_log[t] + log sum_y alpha[t, y] beta[t, y]. A change of
weights at positions first..last of a sequence invalidates alpha from first on and beta before last, and
nothing else.

`tables` is a SharedTables, `lattices` a Lattices, `weights` a Weights, `lists` a Lists, `work` a LatticeWork:
arrays.py lists their arrays. Source: Sokolovska et al. (2010), section 4.4; docs/SPEC.md, A.10.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import MAX_SPREAD, SMALLEST_MASS
from crfbook.chain.vector_math import exp_inplace

# nats: below, base + D would lose more than six digits of psi, and the class gets a whole table
LOWEST = -14.0
START, SIZE, ROOM = 0, 1, 2  # rows of Lists.row
# a cell (yp, y) is the number yp << SHIFT | y: no division when a list is read
SHIFT, LABEL = 16, 0xFFFF
CENTRE, WIDTH, FLAT = 0, 1, 2  # places of SharedTables.level, see `rebuild_base`
NODE_MAX, NODE_SPREAD = 0, 1  # rows of Lattices.node_note
SCALE, LOG_SCALE = 0, 1  # rows of Lattices.alpha_note
AHEAD, BEHIND, UNSAFE, CHANGED = 0, 1, 2, 3  # rows of Lattices.place


@kernel
def place_list(r, n, row):
    """Make place for n entries in list r, which will be overwritten: at its place, or at the end of the pool.

    Arguments:
        r : number of the list
        n : number of entries
        row : int64 (3, R+1) of a Lists with at least n + n/4 free places
    Cost: 1.
    Source: docs/SPEC.md, A.10, packed and growing lists.
    """
    if n > row[ROOM, r]:
        end = row.shape[1] - 1
        row[START, r] = row[START, end]
        row[ROOM, r] = n + n // 4
        row[START, end] += row[ROOM, r]
    row[SIZE, r] = n


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
    are done in logarithms.

    Arguments:
        classes : int32 (n,)
        dense_above : entries of the longest list
        tables : a `SharedTables`
        weights : a `Weights`
        work : a `LatticeWork`
    Cost: the active weights of their edge attributes, one exp each; M^2 for a whole table.
    Source: docs/SPEC.md, A.4.
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

    Arguments:
        base_log : (M, M)
        n_labels : L
    Out:
        base : (M, M)
        base_t : (M, M), its transpose
        level : (3,)
    Cost: M^2 exps.
    Source: docs/SPEC.md, A.4.
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

    Arguments:
        v : (M,)
    Cost: M.
    Source: none needed.
    """
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(v.size // 4):  # not range(0, M, 4): of 4 j it is known that it is no index from the end
        y = 4 * j
        a, b, c, d = a + v[y], b + v[y + 1], c + v[y + 2], d + v[y + 3]
    return (a + b) + (c + d)


@kernel
def from_left(alpha, p, psi, d, out, r):
    """out[r, y] = sum_yp alpha[p, yp] psi[d, yp, y].

    Arguments:
        alpha : (P, M)
        p : row of alpha
        psi : (D, M, M)
        d : number of the table
        out : (R, M), which may be alpha
        r : row of out, not p
    Cost: M^2.
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

    Arguments:
        v : (M,)
        psi_t : (M, M), psi transposed
        out : (R, M)
        r : row of out
    Cost: M^2.
    Source: Sokolovska et al. (2010), eq. (9).
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


@kernel
def token_scores(t, mu, attr_ptr, attr_idx, attr_val, bound, u):
    """u[y] = bound[y] + sum_{a in x_t} x[a] mu[a, y].

    Arguments:
        t : token
        mu : (A, M)
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        attr_val : (nnz,) or (0,)
        bound : (M,), -inf where a label is forbidden
    Out:
        u : (M,)
    Cost: its attributes times M.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    M = u.size
    for y in range(M):
        u[y] = bound[y]
    for j in range(attr_ptr[t], attr_ptr[t + 1]):
        a = attr_idx[j]
        if a < mu.shape[0]:
            x = attr_val[j] if attr_val.size else 1.0
            for y in range(M):
                u[y] += x * mu[a, y]


@kernel
def score_rows(rows, mu, lattices):
    """psi_node[r] = exp(u - node_max[r]) with u of `token_scores`, for these rows.

    Arguments:
        rows : int32 (n,)
        mu : (A, M)
        lattices : a `Lattices`
    Cost: `token_scores` and M exps each.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    psi_node, note = lattices.psi_node, lattices.node_note
    for r in rows:
        t, u = np.int64(lattices.node_token[r]), psi_node[r]
        bound = lattices.bound[lattices.bound_row[t]]
        token_scores(t, mu, lattices.attr_ptr, lattices.attr_idx, lattices.attr_val, bound, u)
        high, low = -np.inf, np.inf
        for v in u:
            high = v if v > high else high
            low = v if v < low and v > -np.inf else low
        note[NODE_MAX, r] = high
        note[NODE_SPREAD, r] = high - low
        for y in range(u.size):
            u[y] -= high
        exp_inplace(u)


@kernel
def _finish(v, r, spread):
    """Sum of row r of v (n, M), which is divided by it; 0 where scaled vectors cannot be trusted."""
    a, b, c, d, tiny, M = 0.0, 0.0, 0.0, 0.0, 0, v.shape[1]
    for j in range(M // 4):
        y = 4 * j
        a, b, c, d = a + v[r, y], b + v[r, y + 1], c + v[r, y + 2], d + v[r, y + 3]
    for y in range(M):
        tiny += 1 if 0.0 < v[r, y] < SMALLEST_MASS else 0
    total = (a + b) + (c + d)
    if not (spread <= MAX_SPREAD and total > 0.0 and total < np.inf) or tiny:
        return 0.0
    share = 1.0 / total
    for y in range(M):
        v[r, y] *= share
    return total


@kernel
def mass(alpha, p, beta, q):
    """sum_y alpha[p, y] beta[q, y].

    Arguments:
        alpha : (P, M)
        p : row of alpha
        beta : (Q, M)
        q : row of beta
    Cost: M.
    Source: Rabiner (1989), section III.
    """
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(alpha.shape[1] // 4):
        y = 4 * j
        a, b = a + alpha[p, y] * beta[q, y], b + alpha[p, y + 1] * beta[q, y + 1]
        c, d = c + alpha[p, y + 2] * beta[q, y + 2], d + alpha[p, y + 3] * beta[q, y + 3]
    return (a + b) + (c + d)


@kernel
def extend_alphas(sequences, wanted, measure, lattices, tables):
    """alpha of these sequences up to positions wanted;
    a sequence whose scaled vectors cannot be trusted gets place[UNSAFE] = 1.

    If measure is 1, also log_z from alpha and beta at these positions, where beta must be good.

    alpha[0] ~ psi_node[0],  alpha[t, y] ~ psi_node[t, y] sum_yp alpha[t-1, yp] psi[yp, y];  SCALE the sums
    divided out. Returns the number of products. Where all pairs of the base are allowed and equal it is of
    rank one, and alpha[t-1] sums to one.

    Arguments:
        sequences, wanted : int32 (n,)
        measure : 1: log Z, too
        lattices : a `Lattices`
        tables : a `SharedTables`
    Cost: M^2 a new row, M if the base is flat, and its list.
    Source: Sokolovska et al. (2010), eq. (9); docs/SPEC.md, A.4, A.10.
    """
    psi_node, alpha, note, place = lattices.psi_node, lattices.alpha, lattices.alpha_note, lattices.place
    M, steps = lattices.alpha.shape[1], 0
    row, cell, value, level = tables.lists.row, tables.lists.cell, tables.lists.value, tables.level
    base = tables.base.reshape((1, M, M))
    slot, whole, spreads, edge_class = tables.slot, tables.whole, tables.spread, lattices.edge_class
    flat = int(tables.level[FLAT])
    node_row, alpha_row, done = lattices.node_row, lattices.alpha_row, lattices.alpha_clock
    node_note, now = lattices.node_note, lattices.clock[0]
    beta, beta_row, beta_note = lattices.beta, lattices.beta_row, lattices.beta_note
    seq_ptr, log_z = lattices.seq_ptr, lattices.log_z
    for v in range(sequences.size):
        i = sequences[v]
        if place[UNSAFE, i]:
            continue
        for p in range(place[AHEAD, i], wanted[v] + 1):
            t = seq_ptr[i] + p
            r, n = alpha_row[t], node_row[t]
            if done[r] < place[CHANGED, i]:
                spread, log_scale = node_note[NODE_SPREAD, n], node_note[NODE_MAX, n]
                if p == 0:
                    for y in range(M):
                        alpha[r, y] = psi_node[n, y]
                else:
                    k, before = edge_class[t], alpha_row[t - 1]
                    if slot[k] >= 0:
                        from_left(alpha, before, whole, slot[k], alpha, r)
                    elif flat:
                        for y in range(M):
                            alpha[r, y] = 1.0  # psi_node is 0 for padding
                    else:
                        from_left(alpha, before, base, np.int32(0), alpha, r)
                    # none, where the table is whole
                    for e in range(row[START, k], row[START, k] + row[SIZE, k]):
                        alpha[r, cell[e] & LABEL] += alpha[before, cell[e] >> SHIFT] * value[e]
                    for y in range(M):
                        alpha[r, y] *= psi_node[n, y]
                    spread += spreads[k] + level[WIDTH]
                    log_scale += note[LOG_SCALE, before] + level[CENTRE]
                c = _finish(alpha, r, spread)
                if c == 0.0:
                    place[UNSAFE, i] = 1
                    break
                note[SCALE, r] = c
                note[LOG_SCALE, r] = log_scale + np.log(c)
                done[r] = now
                steps += 1
            place[AHEAD, i] = p + 1
        if measure and place[UNSAFE, i] == 0:
            t = seq_ptr[i] + wanted[v]
            r, q = alpha_row[t], beta_row[t]
            total = mass(alpha, r, beta, q)
            log_z[i] = note[LOG_SCALE, r] + beta_note[0, q] + np.log(total)
            if not total > SMALLEST_MASS:
                place[UNSAFE, i] = 1
    return steps


@kernel
def extend_betas(sequences, wanted, lattices, tables, v_buf):
    """beta of these sequences from positions wanted on;
    a sequence whose scaled vectors cannot be trusted gets place[UNSAFE] = 1.

    beta[T-1] = 1/L,  beta[t-1, yp] ~ sum_y psi[yp, y] psi_node[t, y] beta[t, y]; each sums to one.
    Returns the number of products.

    Arguments as in `extend_alphas`:
        sequences, wanted, lattices, tables : as there
    Work:
        v_buf : (M,)
    Cost: as there.
    Source: Sokolovska et al. (2010), eq. (9); docs/SPEC.md, A.4, A.10.
    """
    psi_node, beta, note, place = lattices.psi_node, lattices.beta, lattices.beta_note, lattices.place
    M, steps = lattices.beta.shape[1], 0
    row, cell, value, base_t = tables.lists.row, tables.lists.cell, tables.lists.value, tables.base_t
    level = tables.level
    slot, whole, spreads, edge_class = tables.slot, tables.whole, tables.spread, lattices.edge_class
    flat = int(tables.level[FLAT])
    node_row, beta_row, done = lattices.node_row, lattices.beta_row, lattices.beta_clock
    node_note, now = lattices.node_note, lattices.clock[0]
    for v in range(sequences.size):
        i = sequences[v]
        if place[UNSAFE, i]:
            continue
        for p in range(place[BEHIND, i] - 1, wanted[v] - 1, -1):
            t = lattices.seq_ptr[i] + p
            r = beta_row[t]
            if done[r] < place[CHANGED, i]:
                k, n, behind = edge_class[t + 1], node_row[t + 1], beta_row[t + 1]
                for y in range(M):
                    v_buf[y] = psi_node[n, y] * beta[behind, y]
                if slot[k] >= 0:
                    np.dot(whole[slot[k]], v_buf, beta[r])
                elif flat:
                    total = total_of(v_buf)
                    for y in range(M):
                        beta[r, y] = total if y < flat else 0.0
                else:
                    from_right(v_buf, base_t, beta, r)
                for e in range(row[START, k], row[START, k] + row[SIZE, k]):
                    beta[r, cell[e] >> SHIFT] += v_buf[cell[e] & LABEL] * value[e]
                c = _finish(beta, r, spreads[k] + level[WIDTH] + node_note[NODE_SPREAD, n])
                if c == 0.0:
                    place[UNSAFE, i] = 1
                    break
                note[0, r] = note[0, behind] + node_note[NODE_MAX, n] + level[CENTRE] + np.log(c)
                done[r] = now
                steps += 1
            place[BEHIND, i] = p
    return steps


@kernel
def extend(sequences, low, high, measure, lattices, tables, work):
    """beta from positions low on and alpha up to positions high, of these sequences; their log Z too,
    if measure is 1.

    Returns how many are unsafe: those have no alpha and beta, and no new log Z.

    Arguments:
        sequences, low, high : int32 (n,)
        measure : 1: log Z, too
        lattices : a `Lattices`
        tables : a `SharedTables`
        work : a `LatticeWork`
    Cost: a product a new row.
    Source: docs/SPEC.md, A.10.
    """
    work.steps[0] += extend_betas(sequences, low, lattices, tables, work.right)
    work.steps[0] += extend_alphas(sequences, high, measure, lattices, tables)
    place, n_unsafe = lattices.place, 0
    for i in sequences:
        n_unsafe += place[UNSAFE, i]
    return n_unsafe


@kernel
def keep_log_z(sequences, log_z, before):
    """before[v] = log Z of sequence v of these; returns what rounding may add to a sum of differences to
    them.

    Arguments:
        sequences : int32 (n,)
        log_z : (S,)
    Out:
        before : (n,) or longer
    Cost: n.
    Source: none needed.
    """
    noise = 0.0
    for v in range(sequences.size):
        before[v] = log_z[sequences[v]]
        noise += 1e-14 * abs(before[v])
    return noise


@kernel
def log_z_change(sequences, weight, log_z, before):
    """sum_i weight_i (log Z_i - before[i]) over these sequences.

    Arguments:
        sequences : int32 (n,)
        weight : (S,)
        log_z : (S,)
        before : (n,) of `keep_log_z`
    Cost: n.
    Source: Sokolovska et al. (2010), eq. (4).
    """
    total = 0.0
    for v in range(sequences.size):
        total += weight[sequences[v]] * (log_z[sequences[v]] - before[v])
    return total


@kernel
def mark_change(g, blocks, lattices, move):
    """Mark the vectors of its sequences that a change of block g invalidates.

    Returns the change of their weighted gold scores.

    Arguments:
        g : block
        blocks : a `Blocks`
        lattices : a `Lattices`
        move : of which deltas are read
    Cost: the occurrences of the symbol.
    Source: docs/SPEC.md, A.10.
    """
    total, has_node, place, labels = 0.0, blocks.member[0, g] >= 0, lattices.place, lattices.labels
    weight, delta_node, delta_edge = lattices.weight, move.delta_node, move.delta_edge
    lattices.clock[0] += 1
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i = blocks.visit_seq[v]
        begin, T = lattices.seq_ptr[i], lattices.seq_ptr[i + 1] - lattices.seq_ptr[i]
        for o in range(blocks.occ_ptr[v], blocks.occ_ptr[v + 1]):
            t = blocks.occ_token[o]
            if has_node:
                x = blocks.occ_val[o] if blocks.occ_val.size else 1.0
                total += weight[i] * x * delta_node[labels[t]]
            if t > begin:
                total += weight[i] * delta_edge[labels[t - 1], labels[t]]
        if place[UNSAFE, i]:
            place[UNSAFE, i], place[AHEAD, i], place[BEHIND, i] = 0, 0, T - 1
        place[AHEAD, i] = min(place[AHEAD, i], blocks.visit_low[v])
        place[BEHIND, i] = max(place[BEHIND, i], blocks.visit_high[v])
        place[CHANGED, i] = lattices.clock[0]
    return total
