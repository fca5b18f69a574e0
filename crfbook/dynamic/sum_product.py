"""Messages of belief propagation as probabilities: fast, for scores that are not too far apart.

`graph` is a `Graph` (graphs.py), `potentials` a `Potentials` (loopy.py): phi (V, W) = exp(log_phi - maximum),
and copies of the tables, one for each axis, whose last axis is that one. So the message along slot s = (f, v)
is a vector times a matrix with contiguous rows:

    q_u(x) = phi_u(x) prod_{slots e at u, not of f} m_e(x)                  the variable without the factor
    m_s(y) ~ sum_r T(r, y) prod_{other variables u of f} q_u(r_u)           r: their labels

No message is divided by another, as 0 / 0 would be wrong where labels are forbidden. LEAST guards the
precision: products of two numbers of at least LEAST are normal numbers. Whatever is positive and smaller is
reported (`lost`), and that component belongs to sum_product.py. An exact 0 is a forbidden label.

Messages of belief propagation in logarithms, with sums or maxima: for scores of any size.

As sum_product.py, with sums for products: `potentials` has log_phi (V, W) and copies of the log tables, with
-inf behind the labels, and messages (S, W) are logarithms. An operation (+) takes the place of a sum: log sum
exp, or the maximum (`maximum` is 1).

    q_u(x) = log_phi_u(x) + sum_e m_e(x)        m_s(y) = (+)_r T(r, y) + sum_u q_u(r_u)

less (+)_y of it. A message of -inf alone says that every labelling is forbidden: its component is `lost`.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import exp_inplace, log_sum_exp


@kernel
def _sum_at(v, skip, graph, log_phi, msg, q):
    """q <- log_phi_v plus the messages into v but that of slot `skip`."""
    for y in range(q.size):
        q[y] = log_phi[v, y]
    for i in range(graph.var_ptr[v], graph.var_ptr[v + 1]):
        s = graph.var_slot[i]
        if s != skip:
            for y in range(q.size):
                q[y] += msg[s, y]


@kernel
def _sum_of_others(s, graph, log_phi, msg, w, q):
    """w <- sum_u q_u(r_u), all labels r of the other variables of the factor of slot s; how many."""
    f, rows = graph.slot_factor[s], 1
    for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
        if e != s:
            u = graph.slot_var[e]
            n = graph.n_labels[u]
            _sum_at(u, e, graph, log_phi, msg, q)
            for r in range(rows - 1, -1, -1):
                above = w[r] if rows > 1 else 0.0
                for y in range(n):
                    w[r * n + y] = above + q[y]
            rows *= n
    return rows


@kernel
def _fold(w, n_rows, matrix, n, maximum, out, row):
    """out[y] <- (+)_r w[r] + matrix[r n + y], n columns; row (n,) is work."""
    for y in range(n):
        out[y] = -np.inf
    for r in range(n_rows):
        for y in range(n):
            x = w[r] + matrix[r * n + y]
            out[y] = x if x > out[y] else out[y]
    if maximum:
        return
    total = np.zeros(n)
    for r in range(n_rows):
        if w[r] > -np.inf:
            for y in range(n):
                x = w[r] + matrix[r * n + y]
                row[y] = x - out[y] if x > -np.inf else x
            exp_inplace(row[:n])
            for y in range(n):
                total[y] += row[y]
    for y in range(n):
        out[y] += np.log(total[y]) if total[y] > 0.0 else 0.0


@kernel
def _largest_step(out, old):
    """max_y |out[y] - old[y]|, 0 between two -inf."""
    largest = 0.0
    for y in range(out.size):
        moved = abs(out[y] - old[y]) if out[y] != old[y] else 0.0
        largest = moved if moved > largest else largest
    return largest


@kernel
def log_sweep(order, graph, potentials, msg, new, damping, maximum, change, lost, work):
    """Messages along the slots of `order`, one after the other, as `sum_product_sweep`, in logarithms.

    Changes, too, are those of logarithms, as what is small in one message may win in the next one. They are
    never less than those of the probabilities.
    Arguments: order (n,), slots; graph; potentials; msg (S, W); out: new (S, W); damping; maximum, 1 for
    max-product; out: change (C,); lost uint8 (C,): every labelling is forbidden; work, a `Buffers`. Cost: an
    exp and two additions a cell of a table. Source: Sutton et al. (2004), eq. (5); docs/SPEC.md, B.4.
    """
    out = work.out
    for i in range(order.size):
        s = order[i]
        v, first = graph.slot_var[s], graph.slot_copy[s]
        c, n = graph.component[v], graph.n_labels[v] + 3 & -4
        if lost[c]:
            continue
        rows = _sum_of_others(s, graph, potentials.phi, msg, work.w, work.q)
        out[n:] = -np.inf
        _fold(work.w, rows, potentials.table[first : first + rows * n], n, maximum, out, work.q)
        total = out.max() if maximum else log_sum_exp(out)
        lost[c] = total == -np.inf
        if lost[c]:
            continue
        for y in range(n):
            out[y] -= total
        if damping > 0.0:
            for y in range(graph.n_labels[v]):
                out[y] = np.logaddexp(out[y] + np.log(1.0 - damping), msg[s, y] + np.log(damping))
        moved = _largest_step(out, msg[s])
        change[c] = moved if moved > change[c] else change[c]
        for y in range(out.size):
            new[s, y] = out[y]


@kernel
def log_beliefs(wanted, graph, potentials, msg, maximum, log_z, p_var, z_factor, lost, work):
    """Beliefs of variables, and log Z of the components that are wanted, as `sum_product_beliefs`.

    Arguments: wanted uint8 (C,); graph; potentials; msg (S, W); maximum: 1 leaves log beliefs, largest entry
    0, in p_var and log_z alone; out: log_z (C,), added to; p_var (V, W); z_factor (F,), logarithms; lost
    uint8 (C,): every labelling is forbidden; work, a `Buffers`. Cost: one message a factor. Source:
    docs/SPEC.md, B.5.
    """
    q, out = work.q, work.out
    for c in range(wanted.size):
        if not wanted[c] or lost[c]:
            continue
        for v in range(graph.first_var[c], graph.first_var[c + 1]):
            _sum_at(v, -1, graph, potentials.phi, msg, q)
            total = q.max() if maximum else log_sum_exp(q)
            lost[c] |= total == -np.inf
            for y in range(graph.n_labels[v]):
                p_var[v, y] = q[y] - total if maximum else np.exp(q[y] - total)
            n_factors = graph.var_ptr[v + 1] - graph.var_ptr[v]
            log_z[c] += 0.0 if maximum else (1 - n_factors) * total
        for f in range(graph.first_factor[c], 0 if maximum else graph.first_factor[c + 1]):
            s = graph.factor_ptr[f + 1] - 1
            n, first = graph.n_labels[graph.slot_var[s]] + 3 & -4, graph.slot_copy[s]
            rows = _sum_of_others(s, graph, potentials.phi, msg, work.w, q)
            _fold(work.w, rows, potentials.table[first : first + rows * n], n, 0, out, q)
            _sum_at(graph.slot_var[s], s, graph, potentials.phi, msg, q)
            for y in range(n):
                out[y] += q[y]
            total = log_sum_exp(out[:n])
            lost[c] |= total == -np.inf
            z_factor[f] = total
            log_z[c] += total


@kernel
def log_counts(weight, graph, potentials, msg, z_factor, p_table, work):
    """p_table += weight_c times the belief of each factor, as `sum_product_counts`.

    Arguments: weight (C,), components with 0 are left out; graph; potentials; msg (S, W); z_factor (F,), of
    `log_beliefs`; out: p_table (cells,); work, a `Buffers`. Cost: an exp a cell. Source: Sutton et al.
    (2004), eq. (6).
    """
    w, q = work.w, work.q
    for c in range(weight.size):
        if weight[c] == 0.0:
            continue
        for f in range(graph.first_factor[c], graph.first_factor[c + 1]):
            s = graph.factor_ptr[f + 1] - 1
            n, k = graph.n_labels[graph.slot_var[s]], graph.cell_ptr[graph.factor_table[f]]
            first, wide = graph.slot_copy[s], n + 3 & -4
            rows = _sum_of_others(s, graph, potentials.phi, msg, w, q)
            _sum_at(graph.slot_var[s], s, graph, potentials.phi, msg, q)
            for r in range(rows):
                for y in range(n):
                    x = w[r] + potentials.table[first + r * wide + y] + q[y]
                    p_table[k + r * n + y] += weight[c] * np.exp(x - z_factor[f])


LEAST = 1e-150
RESCALE = 8  # messages, each of which can make a product smaller by the number of labels


@kernel
def plain_message(s, graph, potentials, msg, out):
    """out <- the message along slot s, normalised: eq. (5), cell by cell, the sister to be read.

        out(y) ~ sum_r T(r, y) prod_u q_u(r_u)

    Arguments: s; graph; potentials; msg (S, W); out: out (W,). Cost: degree and arity a cell. Source: Sutton
    et al. (2004), eq. (5); docs/SPEC.md, B.4.
    """
    f, v = graph.slot_factor[s], graph.slot_var[s]
    L, rows, total = graph.n_labels[v], 1, 0.0
    for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
        rows *= graph.n_labels[graph.slot_var[e]] if e != s else 1
    out[:] = 0.0
    for r in range(rows):
        q, rest = 1.0, r
        for e in range(graph.factor_ptr[f + 1] - 1, graph.factor_ptr[f] - 1, -1):
            if e != s:
                u = graph.slot_var[e]
                x = rest % graph.n_labels[u]
                rest //= graph.n_labels[u]
                q *= potentials.phi[u, x]
                for i in range(graph.var_ptr[u], graph.var_ptr[u + 1]):
                    if graph.var_slot[i] != e:
                        q *= msg[graph.var_slot[i], x]
        for y in range(L):
            out[y] += q * potentials.table[graph.slot_copy[s] + r * (L + 3 & -4) + y]
    for y in range(L):
        total += out[y]
    for y in range(L):
        out[y] /= total


@kernel
def _times_messages(slots, skip, msg, n, q):
    """q[:n] *= the messages of `slots` but `skip`; (how many entries are lost, log of what q was divided by).
    No graph among its arguments: handing one on takes longer than a short product.
    """
    lost, count, log_scale = 0, 0, 0.0
    for s in slots:
        if s != skip:
            m = msg[s]
            for y in range(n):
                x = q[y] * m[y]
                q[y] = x
                lost += (x > 0.0) & (x < LEAST)
            count += 1
            if count % RESCALE == 0:
                top = 0.0
                for y in range(n):
                    top = q[y] if q[y] > top else top
                if top > 0.0:
                    log_scale += np.log(top)
                    for y in range(n):
                        q[y] /= top
    return lost, log_scale


@kernel
def product_at(v, skip, graph, phi, msg, q):
    """q <- phi_v times the messages into v but that of slot `skip`; (how many entries are lost, log of what q
    was divided by).

    Arguments: v; skip, a slot or -1; graph; phi (V, W); msg (S, W); out: q (W,). Cost: labels times degree.
    Source: docs/SPEC.md, B.4.
    """
    n, row = graph.n_labels[v] + 3 & -4, phi[v]
    for y in range(n):
        q[y] = row[y]
    return _times_messages(graph.var_slot[graph.var_ptr[v] : graph.var_ptr[v + 1]], skip, msg, n, q)


@kernel
def product_of_others(s, graph, phi, msg, w, q):
    """w <- prod_u q_u(r_u), all labels r of the other variables of the factor of slot s; (how many, how many
    entries are lost, log of what w was divided by).

    Arguments: s; graph; phi (V, W); msg (S, W); out: w (rows,); work: q (W,). Cost: rows. Source:
    docs/SPEC.md, B.4.
    """
    f, rows, lost, log_scale = graph.slot_factor[s], 1, 0, 0.0
    for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
        if e != s:
            u = graph.slot_var[e]
            n = graph.n_labels[u]
            few, log_q = product_at(u, e, graph, phi, msg, q)
            lost, log_scale = lost + few, log_scale + log_q
            for r in range(rows - 1, -1, -1):
                above = w[r] if rows > 1 else 1.0
                for y in range(n):
                    x = above * q[y]
                    w[r * n + y] = x
                    lost += (x > 0.0) & (x < LEAST)
            rows *= n
    return rows, lost, log_scale


@kernel
def _vector_matrix(w, n_rows, matrix, n, out):
    """out[y] <- sum_r w[r] matrix[r n + y]: four rows at a time."""
    for y in range(n):
        out[y] = 0.0
    for r in range(0, n_rows - 3, 4):
        a, b, c, d = w[r], w[r + 1], w[r + 2], w[r + 3]
        row0, row1 = matrix[r * n : (r + 1) * n], matrix[(r + 1) * n : (r + 2) * n]
        row2, row3 = matrix[(r + 2) * n : (r + 3) * n], matrix[(r + 3) * n : (r + 4) * n]
        for y in range(n):
            out[y] += (a * row0[y] + b * row1[y]) + (c * row2[y] + d * row3[y])
    for r in range(n_rows & -4, n_rows):
        a, row0 = w[r], matrix[r * n : (r + 1) * n]
        for y in range(n):
            out[y] += a * row0[y]


@kernel
def _normalise(n, out):
    """out[:n] /= its sum, n a multiple of 4; how many entries are lost."""
    z0, z1, z2, z3 = 0.0, 0.0, 0.0, 0.0
    for y in range(0, n, 4):
        z0, z1, z2, z3 = z0 + out[y], z1 + out[y + 1], z2 + out[y + 2], z3 + out[y + 3]
    total = (z0 + z1) + (z2 + z3)
    if not total >= LEAST:
        return 1
    lost, scale = 0, 1.0 / total
    for y in range(n):
        x = out[y] * scale
        out[y] = x
        lost += (x > 0.0) & (x < LEAST)
    return lost


@kernel
def _largest_change(n, out, old):
    """max_y |out[y] - old[y]| of n entries, n a multiple of 4."""
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    for y in range(0, n, 4):
        e0, e1 = abs(out[y] - old[y]), abs(out[y + 1] - old[y + 1])
        e2, e3 = abs(out[y + 2] - old[y + 2]), abs(out[y + 3] - old[y + 3])
        d0, d1 = e0 if e0 > d0 else d0, e1 if e1 > d1 else d1
        d2, d3 = e2 if e2 > d2 else d2, e3 if e3 > d3 else d3
    d0, d2 = d1 if d1 > d0 else d0, d3 if d3 > d2 else d2
    return d2 if d2 > d0 else d0


@kernel
def sum_product_sweep(order, graph, potentials, msg, new, damping, change, lost, work):
    """Messages along the slots of `order`, one after the other, as `plain_message`.

        new_s <- (1 - damping) m_s + damping msg_s;   change_c <- max |new_s - msg_s|, s in component c

    Arguments: order (n,), slots; graph; potentials; msg (S, W); out: new (S, W), msg itself for messages that
    see those before them; damping, a number; out: change (C,) and lost uint8 (C,), both only raised; work, a
    `Buffers`. Cost: two operations a cell of a table. Source: Sutton et al. (2004), eq. (5);
    docs/SPEC.md, B.4.
    """
    out, phi = work.out, potentials.phi
    for i in range(order.size):
        s = order[i]
        v, f = graph.slot_var[s], graph.slot_factor[s]
        c, n, a, first = (
            graph.component[v],
            graph.n_labels[v] + 3 & -4,
            graph.factor_ptr[f],
            graph.slot_copy[s],
        )
        if lost[c]:
            continue
        if graph.factor_ptr[f + 1] - a == 2:
            other = 2 * a + 1 - s
            rows = graph.n_labels[graph.slot_var[other]]
            few, _ = product_at(graph.slot_var[other], other, graph, phi, msg, work.q)
            _vector_matrix(work.q, rows, potentials.table[first : first + rows * n], n, out)
        else:
            rows, few, _ = product_of_others(s, graph, phi, msg, work.w, work.q)
            _vector_matrix(work.w, rows, potentials.table[first : first + rows * n], n, out)
        few += _normalise(n, out)
        lost[c] = few > 0
        old, target = msg[s], new[s]
        if damping > 0.0:
            for y in range(n):
                out[y] += damping * (old[y] - out[y])
        moved = _largest_change(n, out, old)
        change[c] = moved if moved > change[c] else change[c]
        for y in range(n):
            target[y] = out[y]


@kernel
def sum_product_beliefs(wanted, graph, potentials, msg, log_z, p_var, z_factor, lost, work):
    """Beliefs of variables, and log Z of the components that are wanted, as Bethe has it.

        p_v ~ phi_v prod_e m_e       Z_v its sum      Z_f = sum_r T(r) prod_u q_u(r_u)
        log Z_c = sum_f log Z_f + sum_v (1 - d_v) log Z_v      d_v factors at v

    This is B.5 at a fixed point, and its derivatives by messages are 0 there. A factor of which every cell is
    forbidden, or too small a sum, makes its component lost.
    Arguments: wanted uint8 (C,); graph; potentials; msg (S, W); out: log_z (C,), added to; p_var (V, W);
    z_factor (F,), with which `sum_product_counts` divides; lost uint8 (C,); work, a `Buffers`. Cost: one
    message a factor. Source: docs/SPEC.md, B.5.
    """
    q, out = work.q, work.out
    for c in range(wanted.size):
        if not wanted[c] or lost[c]:
            continue
        for v in range(graph.first_var[c], graph.first_var[c + 1]):
            few, log_scale = product_at(v, -1, graph, potentials.phi, msg, q)
            total = 0.0
            for y in range(graph.n_labels[v]):
                total += q[y]
            lost[c] |= few > 0 or not total >= LEAST
            for y in range(graph.n_labels[v]):
                p_var[v, y] = q[y] / total
            n_factors = graph.var_ptr[v + 1] - graph.var_ptr[v]
            log_z[c] += (1 - n_factors) * (np.log(total) + log_scale)
        for f in range(graph.first_factor[c], graph.first_factor[c + 1]):
            s = graph.factor_ptr[f + 1] - 1
            n, first = graph.n_labels[graph.slot_var[s]], graph.slot_copy[s]
            wide = n + 3 & -4
            rows, few, log_w = product_of_others(s, graph, potentials.phi, msg, work.w, q)
            _vector_matrix(work.w, rows, potentials.table[first : first + rows * wide], wide, out)
            more, log_q = product_at(graph.slot_var[s], s, graph, potentials.phi, msg, q)
            total = 0.0
            for y in range(n):
                total += out[y] * q[y]
            lost[c] |= few + more > 0 or not total >= LEAST
            z_factor[f] = total
            log_z[c] += np.log(total) + log_w + log_q


@kernel
def sum_product_counts(weight, graph, potentials, msg, z_factor, p_table, work):
    """p_table += weight_c times the belief of each factor, in the cells of its table.

        p_f(r, y) = T(r, y) prod_u q_u(r_u) q_v(y) / Z_f

    Arguments: weight (C,), components with 0 are left out; graph; potentials; msg (S, W); z_factor (F,), of
    `sum_product_beliefs`; out: p_table (cells,); work, a `Buffers`. Cost: two multiplications and an addition
    a cell. Source: Sutton et al. (2004), eq. (6).
    """
    w, q = work.w, work.q
    for c in range(weight.size):
        if weight[c] == 0.0:
            continue
        for f in range(graph.first_factor[c], graph.first_factor[c + 1]):
            s = graph.factor_ptr[f + 1] - 1
            n, k = graph.n_labels[graph.slot_var[s]], graph.cell_ptr[graph.factor_table[f]]
            wide, first = n + 3 & -4, graph.slot_copy[s]
            rows, _, _ = product_of_others(s, graph, potentials.phi, msg, w, q)
            product_at(graph.slot_var[s], s, graph, potentials.phi, msg, q)
            for r in range(rows):
                x = w[r] * (weight[c] / z_factor[f])
                row, part = potentials.table[first + r * wide :], p_table[k + r * n :]
                for y in range(n):
                    part[y] += x * row[y] * q[y]
