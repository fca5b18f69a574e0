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


class Loopy(NamedTuple):
    log_z: float  # Bethe's
    p_tables: np.ndarray  # beliefs of all factors, laid out as log_tables


def log_sum(x, axis=None):
    high = x.max(axis=axis, keepdims=True)
    high = np.where(high > -np.inf, high, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - high).sum(axis=axis)) + high.squeeze(axis)


def loopy_beliefs(cards, scopes, log_tables, damping=0.3, tol=1e-13, most=20000):
    """`Loopy` of sum-product messages between variables and factors, all at once: plain, slow, in logarithms.

    Stops where no message changes by tol; AssertionError after `most` rounds.
    """
    cuts = np.cumsum(factor_sizes(cards, scopes))[:-1]
    shaped = [
        part.reshape([cards[v] for v in scope])
        for part, scope in zip(np.split(log_tables, cuts), scopes, strict=True)
    ]
    pairs = [(f, v) for f, scope in enumerate(scopes) for v in scope]
    into = {(f, v): np.full(cards[v], -np.log(cards[v])) for f, v in pairs}  # from f into v
    factors = {v: [f for f, scope in enumerate(scopes) if v in scope] for v in range(len(cards))}

    def joint(f, without=None):
        """Table of f plus what its variables hear elsewhere."""
        total = shaped[f]
        for axis, v in enumerate(scopes[f]):
            if v != without:
                heard = sum((into[g, v] for g in factors[v] if g != f), np.zeros(cards[v]))
                total = total + heard.reshape([-1 if a == axis else 1 for a in range(total.ndim)])
        return total

    for _ in range(most):
        new, change = {}, 0.0
        for f, v in pairs:
            axes = tuple(a for a, u in enumerate(scopes[f]) if u != v)
            out = joint(f, without=v)
            out = log_sum(out, axes) if axes else out
            out = np.exp(out - log_sum(out))
            change = max(change, np.abs(out - np.exp(into[f, v])).max())
            with np.errstate(divide="ignore"):
                new[f, v] = np.log((1.0 - damping) * out + damping * np.exp(into[f, v]))
        into = new
        if change < tol:
            break
    assert change < tol, "plain belief propagation did not converge"
    value, found = 0.0, []
    for f in range(len(scopes)):
        total = joint(f)
        b = np.exp(total - log_sum(total))
        some = b > 0.0
        value += (b[some] * (shaped[f][some] - np.log(b[some]))).sum()
        found.append(b.reshape(-1))
    for v, own in factors.items():
        total = sum(into[f, v] for f in own)
        b = np.exp(total - log_sum(total))
        value += (len(own) - 1) * (b[b > 0.0] * np.log(b[b > 0.0])).sum()
    return Loopy(float(value), np.concatenate(found))
