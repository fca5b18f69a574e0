"""Messages along a junction tree: log Z and marginals, or the best assignment, of any model of factors.

`plan` is a `crfbook.dynamic.junction.Plan`. Each clique has a table: a matrix [others, separator], as the
variables that it shares with its parent stand last. `log_tables` holds the factors' tables one after the
other. -inf forbids; +inf and NaN are not allowed.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import exp_inplace


@kernel
def _next_row(at, lo, last, plan, digit):
    """Where in the smaller table the next row of a walk begins, after a row at `at`; -1 after the last row.

    A row is the last axis; digit counts the axes lo..last-1.
    """
    for a in range(last - 1, lo - 1, -1):
        digit[a - lo] += 1
        at += plan.axis_step[a]
        if digit[a - lo] < plan.axis_card[a]:
            return at
        digit[a - lo] = 0
        at -= plan.axis_card[a] * plan.axis_step[a]
    return -1


@kernel
def _add_to_clique(walk, plan, small, first, table, cell):
    """table[cell:] += the smaller table small[first:], each of its cells wherever its labels stand."""
    lo, last = plan.axis_ptr[walk], plan.axis_ptr[walk + 1] - 1
    n, step = plan.axis_card[last], plan.axis_step[last]
    digit = np.zeros(last - lo, np.int64)
    at = 0
    while at >= 0:
        k = first + at
        if step == 0:
            v = small[k]
            for i in range(n):
                table[cell + i] += v
        elif step == 1:
            for i in range(n):
                table[cell + i] += small[k + i]
        else:
            for i in range(n):
                table[cell + i] += small[k + i * step]
        cell += n
        at = _next_row(at, lo, last, plan, digit)


@kernel
def _sum_of_clique(walk, plan, table, cell, small, first):
    """small[first:] <- sums of the cells table[cell:] that have the same labels there; small has zeros."""
    lo, last = plan.axis_ptr[walk], plan.axis_ptr[walk + 1] - 1
    n, step = plan.axis_card[last], plan.axis_step[last]
    digit = np.zeros(last - lo, np.int64)
    at = 0
    while at >= 0:
        k = first + at
        if step == 0:
            total = 0.0
            for i in range(n):
                total += table[cell + i]
            small[k] += total
        elif step == 1:
            for i in range(n):
                small[k + i] += table[cell + i]
        else:
            for i in range(n):
                small[k + i * step] += table[cell + i]
        cell += n
        at = _next_row(at, lo, last, plan, digit)


@kernel
def _begin(plan, log_tables, tables):
    """tables <- the sum of the factors that each clique holds."""
    for i in range(plan.cells):
        tables[i] = 0.0
    for f in range(plan.home.size):
        _add_to_clique(f, plan, log_tables, plan.factor_ptr[f], tables, plan.cell_ptr[plan.home[f]])


@kernel
def _column_maxima(lo, hi, tables, first, n, message):
    """message[first+s] <- max_r tables[lo + r n + s], for the columns s < n of tables[lo:hi]."""
    for s in range(n):
        message[first + s] = -np.inf
    for k in range(lo, hi, n):
        for s in range(n):
            v, top = tables[k + s], message[first + s]
            message[first + s] = v if v > top else top


@kernel
def _normalise_columns(lo, hi, tables, first, n, message, total):
    """message[first+s] <- log sum_r exp(tables[r,s]);  tables[r,s] <- exp(tables[r,s] - message[s]), or 0
    for a column that is forbidden; total (n,) is work.
    """
    _column_maxima(lo, hi, tables, first, n, message)
    for s in range(n):
        total[s] = message[first + s] if message[first + s] > -np.inf else 0.0
    for k in range(lo, hi, n):
        for s in range(n):
            tables[k + s] -= total[s]
    exp_inplace(tables[lo:hi])
    for s in range(n):
        total[s] = 0.0
    for k in range(lo, hi, n):
        for s in range(n):
            total[s] += tables[k + s]
    for s in range(n):
        if total[s] > 0.0:
            message[first + s] += np.log(total[s])
            total[s] = 1.0 / total[s]
    for k in range(lo, hi, n):
        for s in range(n):
            tables[k + s] *= total[s]


@kernel
def junction_log_z(plan, log_tables, p_tables, tables_buf, message_buf):
    """log Z of a model, -inf if every assignment is forbidden, and the marginals of all factors.

    Collect, children before parents: psi_c = sum of the factors that c holds and of its children's messages,
        m_c(s) = log sum_r exp psi_c(r, s),  p_c(r | s) = exp(psi_c(r, s) - m_c(s));  log Z = m_root.
    Distribute, parents first: p_c(s) = the sum of p_parent over what s lacks,  p_c(r, s) = p_c(r | s) p_c(s).
    s are the labels of the separator from the parent, r the others. A conditional probability below exp(-708)
    becomes 0.

    Arguments: plan, a Plan; log_tables (cells of all factors,); out: p_tables (cells of all factors,), zeros
    if all is forbidden; work: tables_buf (plan.cells,), message_buf (2, plan.message_ptr[-1]).
    Cost: one exp and some ten additions or multiplications for each cell of a clique, and two additions for
    each of its factors and children; a logarithm for each cell of a separator.
    Source: Lauritzen and Spiegelhalter (1988); docs/SPEC.md, B.3.
    """
    n_factors, n_cliques = plan.home.size, plan.parent.size
    message, total = message_buf[0], message_buf[1]
    _begin(plan, log_tables, tables_buf)
    for c in range(n_cliques):
        lo, hi, first = plan.cell_ptr[c], plan.cell_ptr[c + 1], plan.message_ptr[c]
        _normalise_columns(lo, hi, tables_buf, first, plan.message_ptr[c + 1] - first, message, total)
        if plan.parent[c] >= 0:
            above = plan.cell_ptr[plan.parent[c]]
            _add_to_clique(n_factors + c, plan, message, first, tables_buf, above)
    log_z = message[plan.message_ptr[n_cliques - 1]]
    for c in range(n_cliques - 2, -1, -1):
        first, n = plan.message_ptr[c], plan.message_ptr[c + 1] - plan.message_ptr[c]
        for s in range(n):
            message[first + s] = 0.0
        above = plan.cell_ptr[plan.parent[c]]
        _sum_of_clique(n_factors + c, plan, tables_buf, above, message, first)
        for k in range(plan.cell_ptr[c], plan.cell_ptr[c + 1], n):
            for s in range(n):
                tables_buf[k + s] *= message[first + s]
    for i in range(p_tables.size):
        p_tables[i] = 0.0
    for f in range(n_factors):
        _sum_of_clique(f, plan, tables_buf, plan.cell_ptr[plan.home[f]], p_tables, plan.factor_ptr[f])
    return log_z


@kernel
def junction_max(plan, log_tables, path, tables_buf, message_buf):
    """The best assignment; returns its score, -inf if all are forbidden (path is then all 0).

    Collect, children before parents: psi_c as ``junction_log_z``,  m_c(s) = max_r psi_c(r, s).
    Then, parents first: r_c = the smallest r with the largest psi_c(r, s), s the labels of the parent.
    Of assignments that tie at a clique, the one that comes first in the order of its table wins: with the
    smaller label of the smaller variable. Over several cliques that is no fixed order of assignments.

    Arguments: plan, a Plan; log_tables (cells of all factors,); out: path int32 (V,); work: tables_buf
    (plan.cells,), message_buf (2, plan.message_ptr[-1]).
    Cost: two comparisons for each cell of a clique, and an addition for each of its factors and children.
    Source: Koller and Friedman (2009), section 13.3; docs/SPEC.md, B.3.
    """
    n_factors, n_cliques = plan.home.size, plan.parent.size
    message = message_buf[0]
    path[:] = 0
    _begin(plan, log_tables, tables_buf)
    for c in range(n_cliques):
        lo, hi, first = plan.cell_ptr[c], plan.cell_ptr[c + 1], plan.message_ptr[c]
        _column_maxima(lo, hi, tables_buf, first, plan.message_ptr[c + 1] - first, message)
        if plan.parent[c] >= 0:
            above = plan.cell_ptr[plan.parent[c]]
            _add_to_clique(n_factors + c, plan, message, first, tables_buf, above)
    score = message[plan.message_ptr[n_cliques - 1]]
    for c in range(n_cliques - 1 if score > -np.inf else -1, -1, -1):
        n = plan.message_ptr[c + 1] - plan.message_ptr[c]
        s, size, i = 0, 1, plan.var_ptr[c + 1] - 1
        while size < n:
            s += path[plan.var[i]] * size
            size *= plan.card[plan.var[i]]
            i -= 1
        best, r, row = -np.inf, 0, 0
        for k in range(plan.cell_ptr[c] + s, plan.cell_ptr[c + 1], n):
            if tables_buf[k] > best:
                best, r = tables_buf[k], row
            row += 1
        while r > 0:
            path[plan.var[i]] = r % plan.card[plan.var[i]]
            r //= plan.card[plan.var[i]]
            i -= 1
    return score
