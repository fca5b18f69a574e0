"""The definition of every quantity of a model of factors, by listing all assignments: an oracle.

cards : labels of each variable. scopes : the variables of each factor. log_tables : all factors' tables in
one array, row-major, the first variable of a scope changing slowest. Cost: factors times assignments.
"""

import itertools
from typing import NamedTuple

import numpy as np


class Enumerated(NamedTuple):
    log_z: float  # -inf if every assignment is forbidden
    p_tables: np.ndarray  # laid out as log_tables: each factor's marginals; zeros if all is forbidden
    score: float  # of the best assignment
    path: np.ndarray  # the first best assignment in lexicographic order
    scores: np.ndarray  # (assignments,)
    paths: np.ndarray  # (assignments, variables), in lexicographic order


def factor_sizes(cards, scopes):
    """Cells of each factor's table."""
    return [int(np.prod([cards[v] for v in scope])) for scope in scopes]


def random_tables(rng, cards, scopes, size=1.0, forbidden=0.0):
    """Gaussian log_tables; a fraction `forbidden` of the cells is -inf."""
    log_tables = rng.normal(0.0, size, sum(factor_sizes(cards, scopes)))
    log_tables[rng.random(log_tables.size) < forbidden] = -np.inf
    return log_tables


def enumerate_factors(cards, scopes, log_tables):
    """Enumerated(log Z, factor marginals, best score and path, all scores and paths)."""
    paths = np.array(list(itertools.product(*map(range, cards))), dtype=np.int64)
    scores, cells, first = np.zeros(len(paths)), [], 0
    for scope, size in zip(scopes, factor_sizes(cards, scopes), strict=True):
        cells.append(np.zeros(len(paths), np.int64))
        for v in scope:
            cells[-1] = cells[-1] * cards[v] + paths[:, v]
        scores += log_tables[first : first + size][cells[-1]]
        cells[-1] += first
        first += size
    best = int(np.argmax(scores))
    p, log_z = np.zeros(len(paths)), -np.inf
    if scores[best] > -np.inf:
        p = np.exp(scores - scores[best])
        log_z = float(scores[best] + np.log(p.sum()))
        p /= p.sum()
    p_tables = np.zeros(first)
    for cell in cells:
        p_tables += np.bincount(cell, p, first)
    return Enumerated(log_z, p_tables, float(scores[best]), paths[best], scores, paths)
