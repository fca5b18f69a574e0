"""Any template on one sequence, exactly: scores of rows and tables as the factors of a junction tree.

Rows of scores are as layout.py has them, (T, M): limits and bias included. Everything is in logarithms.
"""

from typing import NamedTuple

import numpy as np

from crfbook.dynamic.junction import plan_of
from crfbook.dynamic.messages import junction_log_z, junction_max

LIMIT = 1 << 20  # cells of the largest clique


class Sums(NamedTuple):
    """What a sequence of T tokens says."""

    log_z: float
    p_row: np.ndarray  # (T, M): marginals of the cells of rows
    counts: np.ndarray  # (n_tables,): those of weights that do not depend on the text, summed


def cliques_of(layout):
    """Cliques of the tree: a label of each chain by itself, then the tables of several labels."""
    return [table for table in layout.tables if len(table.at) > 1]


def tree_plan(layout, n_steps, limit=LIMIT):
    """The `Plan` for sequences of n_steps tokens; ValueError where a clique has more cells than the limit."""
    alone = (((0, chain),) for chain in range(len(layout.chains)))
    at = (*alone, *(table.at for table in cliques_of(layout)))
    return plan_of(at, layout.sizes, n_steps, limit)


def _factors(layout, tables, rows):
    """All log tables of a sequence, one after the other."""
    first, n_steps = layout.first, len(rows)
    parts = [rows[:, a:b].reshape(-1) for a, b in zip(first[:-1], first[1:], strict=True)]
    for table, scores in zip(layout.tables, tables, strict=True):
        if len(table.at) > 1:
            if table.row >= 0:
                parts.append(rows[table.span :, table.row : table.row + table.size].reshape(-1))
            else:
                parts.append(np.tile(scores.reshape(-1), max(0, n_steps - table.span)))
    return np.concatenate(parts)


def sequence_sums(layout, tables, rows, limit=LIMIT):
    """`Sums` of a sequence; log Z is -inf, and everything 0, where every labelling is forbidden.

    tables : of `log_tables`. rows (T, M), T >= 1. Cost: 2 exps a cell of the junction tree.
    """
    plan, n_steps = tree_plan(layout, len(rows), limit), len(rows)
    log_tables = _factors(layout, tables, rows)
    p_tables, message = np.empty_like(log_tables), np.empty((2, int(plan.message_ptr[-1])))
    log_z = junction_log_z(plan, log_tables, p_tables, np.empty(int(plan.cells)), message)
    found = Sums(float(log_z), np.zeros(rows.shape), np.zeros(layout.n_tables))
    start = 0
    for chain, size in enumerate(layout.sizes):
        part, start = p_tables[start : start + n_steps * size], start + n_steps * size
        found.p_row[:, layout.first[chain] : layout.first[chain + 1]] = part.reshape(n_steps, size)
    for table in layout.tables:
        n, p = max(0, n_steps - table.span), found.p_row[:, table.row : table.row + table.size]
        if len(table.at) > 1:
            part, start = p_tables[start : start + n * table.size], start + n * table.size
            if table.row >= 0:
                p[table.span :] = part.reshape(n, table.size)
            p = part.reshape(n, table.size)
        if table.start >= 0:
            found.counts[table.start : table.start + table.size] += p.sum(axis=0)
    return found


def sequence_best(layout, tables, rows, limit=LIMIT):
    """(labels int32 (T, m), score): the best labelling of a sequence, -inf where all are forbidden."""
    plan = tree_plan(layout, len(rows), limit)
    labels = np.zeros(len(rows) * len(layout.sizes), np.int32)
    log_tables = _factors(layout, tables, rows)
    buffers = np.empty(int(plan.cells)), np.empty((2, int(plan.message_ptr[-1])))
    score = junction_max(plan, log_tables, labels, *buffers)
    return labels.reshape(len(rows), -1), float(score)
