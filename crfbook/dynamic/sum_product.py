"""Messages of belief propagation: sweeps over slots, beliefs, log Z; probabilities or logarithms.

`graph` is a `Graph` (graphs.py), `potentials` a `Potentials` (loopy.py): phi (V, W), and copies of the
tables, one for each axis, whose last axis is that one. So the message along slot s = (f, v) is a vector times
a matrix with contiguous rows:

    q_u(x) = phi_u(x) prod_{slots e at u, not of f} m_e(x)                  the variable without the factor
    m_s(y) ~ sum_r T(r, y) prod_{other variables u of f} q_u(r_u)           r: their labels

`domain` says what phi, the tables and messages are. numba compiles each domain by itself.

SUM (None): probabilities, exp(score - maximum), fast where scores are not too far apart. No message is
divided by another, as 0 / 0 would be wrong where labels are forbidden. LEAST guards the precision: products
of two numbers of at least LEAST are normal numbers. A number that is positive and smaller is counted as lost,
and its component is computed again in logarithms. An exact 0 is a forbidden label.

LOG_SUM, LOG_MAX: logarithms, for scores of any size, with sums for products. In place of a sum stands log sum
exp, or the maximum. A message of -inf alone says that every labelling is forbidden: its component is lost.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import exp_inplace

SUM, LOG_SUM, LOG_MAX = None, 0, 1  # domains
LEAST = 1e-150
RESCALE = 8  # messages, each of which can make a product smaller by the number of labels


@kernel
def plain_message(s, graph, potentials, msg, out):
    """out <- the message along slot s, normalised: eq. (5), cell by cell, the sister to be read.

        out(y) ~ sum_r T(r, y) prod_u q_u(r_u)

    Arguments:
        s : slot
        graph : a `Graph`
        potentials : a `Potentials`
        msg : (S, W)
    Out:
        out : (W,)
    Cost: degree and arity a cell.
    Source: Sutton et al. (2004), eq. (5); docs/SPEC.md, B.4.
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


def sweep_messages_plain(order, graph, potentials, msg, at_once=False, damping=0.0):
    """A sweep along the slots of `order`, the readable sister of `message_sweep`: the largest change.

    msg : (S, W), moved. at_once : all messages come from those before the sweep, as "sync" has it.
    damping : share of the old message in a new one.
    Source: Sutton et al. (2004), eq. (5).
    """
    source, new, change = msg.copy() if at_once else msg, np.empty(msg.shape[1]), 0.0
    for s in order:
        plain_message(s, graph, potentials, source, new)
        new += damping * (msg[s] - new)
        change = max(change, np.abs(new - msg[s]).max())
        msg[s] = new
    return change


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
def cavity_at(v, skip, graph, phi, msg, domain, q):
    """q <- phi_v times the messages into v but that of slot `skip`; (how many entries are lost, log of what q
    was divided by). In logarithms a sum, and (0, 0).

    Arguments:
        v : variable
        skip : a slot or -1
        graph : a `Graph`
        phi : (V, W)
        msg : (S, W)
        domain : SUM, LOG_SUM or LOG_MAX
    Out:
        q : (W,)
    Cost: labels times degree.
    Source: docs/SPEC.md, B.4.
    """
    n, row = graph.n_labels[v] + 3 & -4, phi[v]
    slots = graph.var_slot[graph.var_ptr[v] : graph.var_ptr[v + 1]]
    for y in range(n):
        q[y] = row[y]
    if domain is None:
        return _times_messages(slots, skip, msg, n, q)
    for s in slots:
        if s != skip:
            for y in range(n):
                q[y] += msg[s, y]
    return 0, 0.0


@kernel
def cavities_of_others(s, graph, phi, msg, domain, w, q):
    """w <- prod_u q_u(r_u), all labels r of the other variables of the factor of slot s; (how many, how many
    entries are lost, log of what w was divided by). In logarithms a sum.

    Arguments:
        s : slot
        graph : a `Graph`
        phi : (V, W)
        msg : (S, W)
        domain : SUM, LOG_SUM or LOG_MAX
    Out:
        w : (rows,)
    Work:
        q : (W,)
    Cost: rows.
    Source: docs/SPEC.md, B.4.
    """
    f, rows, lost, log_scale = graph.slot_factor[s], 1, 0, 0.0
    for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
        if e != s:
            u = graph.slot_var[e]
            n = graph.n_labels[u]
            few, log_q = cavity_at(u, e, graph, phi, msg, domain, q)
            lost, log_scale = lost + few, log_scale + log_q
            for r in range(rows - 1, -1, -1):
                if domain is None:
                    above = w[r] if rows > 1 else 1.0
                    for y in range(n):
                        x = above * q[y]
                        w[r * n + y] = x
                        lost += (x > 0.0) & (x < LEAST)
                else:
                    above = w[r] if rows > 1 else 0.0
                    for y in range(n):
                        w[r * n + y] = above + q[y]
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
def _log_vector_matrix(w, n_rows, matrix, n, domain, out):
    """out[y] <- log sum_r exp(w[r] + matrix[r n + y]), or the maximum."""
    for y in range(n):
        out[y] = -np.inf
    for r in range(n_rows):
        for y in range(n):
            x = w[r] + matrix[r * n + y]
            out[y] = x if x > out[y] else out[y]
    if domain == LOG_MAX:
        return
    total, row = np.zeros(n), np.empty(n)
    for r in range(n_rows):
        if w[r] > -np.inf:
            for y in range(n):
                x = w[r] + matrix[r * n + y]
                row[y] = x - out[y] if x > -np.inf else x
            exp_inplace(row)
            for y in range(n):
                total[y] += row[y]
    for y in range(n):
        out[y] += np.log(total[y]) if total[y] > 0.0 else 0.0


@kernel
def _log_total(n, x, domain):
    """log sum exp x[:n], or the maximum; -inf for -inf alone."""
    top, total = -np.inf, 0.0
    for y in range(n):
        top = x[y] if x[y] > top else top
    if domain == LOG_MAX or top == -np.inf:
        return top
    for y in range(n):
        total += np.exp(x[y] - top)
    return top + np.log(total)


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
    """max_y |out[y] - old[y]| of n entries, n a multiple of 4; between two -inf, NaN is never the larger."""
    d0, d1, d2, d3 = 0.0, 0.0, 0.0, 0.0
    for y in range(0, n, 4):
        e0, e1 = abs(out[y] - old[y]), abs(out[y + 1] - old[y + 1])
        e2, e3 = abs(out[y + 2] - old[y + 2]), abs(out[y + 3] - old[y + 3])
        d0, d1 = e0 if e0 > d0 else d0, e1 if e1 > d1 else d1
        d2, d3 = e2 if e2 > d2 else d2, e3 if e3 > d3 else d3
    d0, d2 = d1 if d1 > d0 else d0, d3 if d3 > d2 else d2
    return d2 if d2 > d0 else d0


@kernel
def _fold(w, rows, matrix, n, domain, out):
    """out[:n] <- the vector w (rows,) times the matrix (rows, n), flat, with the sums of a domain."""
    if domain is None:
        _vector_matrix(w, rows, matrix, n, out)
    else:
        _log_vector_matrix(w, rows, matrix, n, domain, out)


@kernel
def message_sweep(order, graph, potentials, msg, domain, new, damping, change, lost, work):
    """Messages along the slots of `order`, one after the other, as `plain_message`.

        new_s <- (1 - damping) m_s + damping msg_s;   change_c <- max |new_s - msg_s|, s in component c

    In logarithms, changes are those of logarithms, as what is small in one message may win in the next one.
    They are never less than those of the probabilities.

    Arguments:
        order : (n,), slots
        graph : a `Graph`
        potentials : a `Potentials`
        msg : (S, W)
        domain : SUM, LOG_SUM or LOG_MAX
        damping : share of the old message
    Out:
        new : (S, W), msg itself for messages that see those before them
        change : (C,), only raised
        lost : uint8 (C,), only raised
    Work:
        work : a `Buffers`
    Cost: two operations a cell of a table; in logarithms an exp and two additions.
    Source: Sutton et al. (2004), eq. (5); docs/SPEC.md, B.4.
    """
    out, phi = work.out, potentials.phi
    for i in range(order.size):
        s = order[i]
        v, f, first = graph.slot_var[s], graph.slot_factor[s], graph.slot_copy[s]
        c, n, a = graph.component[v], graph.n_labels[v] + 3 & -4, graph.factor_ptr[f]
        if lost[c]:
            continue
        if graph.factor_ptr[f + 1] - a == 2:  # the other variable's cavity is the vector
            u = graph.slot_var[2 * a + 1 - s]
            rows = graph.n_labels[u]
            few, _ = cavity_at(u, 2 * a + 1 - s, graph, phi, msg, domain, work.q)
            _fold(work.q, rows, potentials.table[first : first + rows * n], n, domain, out)
        else:
            rows, few, _ = cavities_of_others(s, graph, phi, msg, domain, work.w, work.q)
            _fold(work.w, rows, potentials.table[first : first + rows * n], n, domain, out)
        old, target = msg[s], new[s]
        if domain is None:
            lost[c] = few + _normalise(n, out) > 0
            if damping > 0.0:
                for y in range(n):
                    out[y] += damping * (old[y] - out[y])
        else:
            total = _log_total(n, out, domain)
            lost[c] = total == -np.inf
            if lost[c]:
                continue
            for y in range(n):
                out[y] -= total
            if damping > 0.0:
                for y in range(graph.n_labels[v]):
                    out[y] = np.logaddexp(out[y] + np.log(1.0 - damping), old[y] + np.log(damping))
        moved = _largest_change(n, out, old)
        change[c] = moved if moved > change[c] else change[c]
        for y in range(n):
            target[y] = out[y]


@kernel
def message_beliefs(wanted, graph, potentials, msg, domain, log_z, p_var, z_factor, lost, work):
    """Beliefs of variables, and log Z of the components that are wanted, as Bethe has it.

        p_v ~ phi_v prod_e m_e       Z_v its sum      Z_f = sum_r T(r) prod_u q_u(r_u)
        log Z_c = sum_f log Z_f + sum_v (1 - d_v) log Z_v      d_v factors at v

    This is B.5 at a fixed point, and its derivatives by messages are 0 there. A factor of which every cell is
    forbidden, or too small a sum, makes its component lost. LOG_MAX: p_var are log max-marginals, the largest
    0, and log_z has no meaning.

    Arguments:
        wanted : uint8 (C,)
        graph : a `Graph`
        potentials : a `Potentials`
        msg : (S, W)
        domain : SUM, LOG_SUM or LOG_MAX
    Out:
        log_z : (C,), added to
        p_var : (V, W)
        z_factor : (F,), with which `message_counts` divides, in logarithms theirs; or None, and variables
            alone are wanted
        lost : uint8 (C,)
    Work:
        work : a `Buffers`
    Cost: one message a factor.
    Source: docs/SPEC.md, B.5.
    """
    q, out, phi = work.q, work.out, potentials.phi
    for c in range(wanted.size):
        if not wanted[c] or lost[c]:
            continue
        for v in range(graph.first_var[c], graph.first_var[c + 1]):
            few, log_total = cavity_at(v, -1, graph, phi, msg, domain, q)
            n = graph.n_labels[v]
            if domain is None:
                total = 0.0
                for y in range(n):
                    total += q[y]
                lost[c] |= few > 0 or not total >= LEAST
                for y in range(n):
                    p_var[v, y] = q[y] / total
                log_total = np.log(total) + log_total
            else:
                log_total = _log_total(n, q, domain)
                lost[c] |= log_total == -np.inf
                for y in range(n):
                    p_var[v, y] = q[y] - log_total if domain == LOG_MAX else np.exp(q[y] - log_total)
            log_z[c] += (1 - (graph.var_ptr[v + 1] - graph.var_ptr[v])) * log_total
        if z_factor is not None:
            for f in range(graph.first_factor[c], graph.first_factor[c + 1]):
                s = graph.factor_ptr[f + 1] - 1
                n, first = graph.n_labels[graph.slot_var[s]], graph.slot_copy[s]
                wide = n + 3 & -4
                rows, few, log_w = cavities_of_others(s, graph, phi, msg, domain, work.w, q)
                _fold(work.w, rows, potentials.table[first : first + rows * wide], wide, domain, out)
                more, log_q = cavity_at(graph.slot_var[s], s, graph, phi, msg, domain, q)
                if domain is None:
                    total = 0.0
                    for y in range(n):
                        total += out[y] * q[y]
                    lost[c] |= few + more > 0 or not total >= LEAST
                    log_z[c] += np.log(total) + log_w + log_q
                else:
                    for y in range(n):
                        out[y] += q[y]
                    total = _log_total(n, out, domain)
                    lost[c] |= total == -np.inf
                    log_z[c] += total
                z_factor[f] = total


@kernel
def message_counts(weight, graph, potentials, msg, domain, z_factor, p_table, work):
    """p_table += weight_c times the belief of each factor, in the cells of its table.

        p_f(r, y) = T(r, y) prod_u q_u(r_u) q_v(y) / Z_f

    Arguments:
        weight : (C,), components with 0 are left out
        graph : a `Graph`
        potentials : a `Potentials`
        msg : (S, W)
        domain : SUM, LOG_SUM or LOG_MAX
        z_factor : (F,), of `message_beliefs`
    Out:
        p_table : (cells,)
    Work:
        work : a `Buffers`
    Cost: two multiplications and an addition a cell; in logarithms an exp.
    Source: Sutton et al. (2004), eq. (6).
    """
    w, q = work.w, work.q
    for c in range(weight.size):
        if weight[c] == 0.0:
            continue
        for f in range(graph.first_factor[c], graph.first_factor[c + 1]):
            s = graph.factor_ptr[f + 1] - 1
            n, k = graph.n_labels[graph.slot_var[s]], graph.cell_ptr[graph.factor_table[f]]
            wide, first = n + 3 & -4, graph.slot_copy[s]
            rows, _, _ = cavities_of_others(s, graph, potentials.phi, msg, domain, w, q)
            cavity_at(graph.slot_var[s], s, graph, potentials.phi, msg, domain, q)
            for r in range(rows):
                row, part = potentials.table[first + r * wide :], p_table[k + r * n :]
                if domain is None:
                    x = w[r] * (weight[c] / z_factor[f])
                    for y in range(n):
                        part[y] += x * row[y] * q[y]
                else:
                    for y in range(n):
                        part[y] += weight[c] * np.exp(w[r] + row[y] + q[y] - z_factor[f])
