"""Random factor graphs with scores, and what they say by listing all assignments."""

from typing import NamedTuple

import numpy as np
from helpers.factors import enumerate_factors, factor_sizes, random_tables

from crfbook.dynamic.graphs import factor_graph


class Model(NamedTuple):
    cards: list
    scopes: list
    graph: object
    log_phi: np.ndarray  # (V, W)
    log_tables: np.ndarray  # one table a factor


def phi_rows(graph, parts):
    """log_phi (V, W) of a list with the scores of each variable."""
    rows = np.full((len(graph.n_labels), graph.width), -np.inf)
    for v, part in enumerate(parts):
        rows[v, : len(part)] = part
    return rows


def flat_rows(model, rows):
    """The entries of rows (V, W) that belong to labels, one variable after the other."""
    return np.concatenate([np.zeros(0), *(rows[v, :n] for v, n in enumerate(model.cards))])


def random_model(rng, cards, scopes, size=1.0, forbidden=0.0, coupling=None):
    """Gaussian scores, of which a share is -inf; one assignment is always allowed."""
    path = [rng.integers(n) for n in cards]
    parts = [rng.normal(0.0, size, n) for n in cards]
    for part, y in zip(parts, path, strict=True):
        part[(rng.random(len(part)) < forbidden / 2) & (np.arange(len(part)) != y)] = -np.inf
    log_tables = random_tables(rng, cards, scopes, size if coupling is None else coupling, forbidden)
    first = 0
    for scope, n in zip(scopes, factor_sizes(cards, scopes), strict=True):
        cell = first + np.ravel_multi_index([path[v] for v in scope], [cards[v] for v in scope])
        log_tables[cell] = max(log_tables[cell], -size)
        first += n
    graph = factor_graph(cards, scopes)
    return Model(list(cards), list(scopes), graph, phi_rows(graph, parts), log_tables)


def random_tree(rng, n_factors, most=4, labels=3):
    """(cards, scopes): a tree of factors of 2 to `most` variables in any order, and two lonely variables."""
    scopes, n = [], 1
    for _ in range(n_factors):
        new = int(rng.integers(1, most))
        scope = [int(rng.integers(n)), *range(n, n + new)]
        scopes.append([scope[i] for i in rng.permutation(new + 1)])
        n += new
    name = rng.permutation(n + 2)
    cards = rng.integers(1, labels + 1, n + 2)
    return [int(c) for c in cards], [tuple(int(name[v]) for v in scope) for scope in scopes]


def ladder(n_steps, sizes):
    """(cards, scopes) of two chains with a rung at each step."""
    scopes = []
    for t in range(n_steps):
        scopes.append((2 * t, 2 * t + 1))
        if t:
            scopes += [(2 * t - 2, 2 * t), (2 * t - 1, 2 * t + 1)]
    return list(sizes) * n_steps, scopes


def listed(model):
    """`Enumerated`, whose p_tables are those of all variables, then of the factors."""
    alone = [(v,) for v in range(len(model.cards))]
    scores = np.concatenate([flat_rows(model, model.log_phi), model.log_tables])
    return enumerate_factors(model.cards, alone + model.scopes, scores)
