"""Messages of belief propagation in logarithms, with sums or maxima: for scores of any size.

As sum_product.py, with sums for products: `potentials` has log_phi (V, W) and copies of the log tables, with
-inf behind the labels, and messages (S, W) are logarithms. An operation (+) takes the place of a sum: log sum
exp, or the maximum (`maximum` is 1).

    q_u(x) = log_phi_u(x) + sum_e m_e(x)        m_s(y) = (+)_r T(r, y) + sum_u q_u(r_u)

less (+)_y of it. A message of -inf alone says that every labelling is forbidden: its component is `lost`.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import exp_inplace


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
def _log_total(x):
    """log sum exp x, -inf for -inf alone."""
    top, total = -np.inf, 0.0
    for y in range(x.size):
        top = x[y] if x[y] > top else top
    if top == -np.inf:
        return top
    for y in range(x.size):
        total += np.exp(x[y] - top)
    return top + np.log(total)


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
        total = out.max() if maximum else _log_total(out)
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
            total = q.max() if maximum else _log_total(q)
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
            total = _log_total(out[:n])
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
