"""Small dynamic CRFs, and everything that they say by listing all joint labellings."""

import itertools
from typing import NamedTuple

import numpy as np
from helpers.corpora import random_corpus
from helpers.factors import enumerate_factors

from crfbook.data.constraints import Constraints
from crfbook.dynamic.layout import dynamic_features, lay_out_template
from crfbook.dynamic.templates import Clique, factorial, hierarchical, linear, memory, second_order, skip

TEMPLATES = {
    "one chain": (linear("a"), (3,)),
    "independent": (linear("a", "b"), (3, 2)),
    "two chains": (factorial("a", "b"), (2, 3)),
    "large first": (factorial("a", "b"), (4, 2)),
    "skew": (factorial("a", "b", skew=True), (3, 2)),
    "skew back": ([*factorial("a", "b"), Clique(((1, "a"), (0, "b")))], (3, 2)),
    "three chains": (factorial("a", "b", "c"), (2, 3, 2)),
    "three, skew": (factorial("a", "b", "c", skew=True), (2, 2, 3)),
    "a triple": ([*linear("a", "b", "c"), Clique(((0, "a"), (0, "b"), (0, "c")))], (2, 2, 3)),
    "pairs of the text": (factorial("a", "b", features="supported"), (3, 2)),
    "no nodes": (factorial("a", "b", features="supported", node_features="none"), (2, 3)),
    "one chain of the text": (linear("a", features="all"), (3,)),
    "one apart": ([*linear("c", "b", "a"), Clique(((0, "a"), (0, "c")))], (3, 2, 2)),
}
GENERAL = {
    "both skews": ([*factorial("a", "b", skew=True), Clique(((1, "a"), (0, "b")))], (2, 3)),
    "second order": (second_order("a"), (3,)),
    "hierarchical": (hierarchical("a", "b", "c"), (2, 2, 2)),
    "memory": ([*linear("a"), *memory("a", "b", "last other", (0,))], (3, 3)),
    "second order apart": ([*second_order("b"), *factorial("a", "c", features="supported")], (4, 2, 3)),
    "text and skew": ([*linear("a", "b"), Clique(((0, "a"), (1, "b")), "supported")], (2, 2)),
}
SKIPPING = {
    "skip": ([*linear("a"), *skip("a")], (3,)),
    "two chains, skip": ([*factorial("a", "b"), *skip("b")], (2, 3)),
    "skip to the other": ([*linear("a", "b"), *skip("a", "b")], (3, 2)),
}

# What users hand to `DCRF`: attributes of words, and a tag and a phrase label of each.
WORDS = [["the", "dog", "barks"], ["dogs", "bark"], ["the", "cat"], [], ["cats", "see", "the", "dog"]]
POS = [["D", "N", "V"], ["N", "V"], ["D", "N"], [], ["N", "V", "D", "N"]]
NP = [["B", "I", "O"], ["B", "O"], ["B", "I"], [], ["B", "O", "B", "I"]]
X = [[["bias", w, w[-1]] for w in words] for words in WORDS]
Y = [list(zip(pos, chunk, strict=True)) for pos, chunk in zip(POS, NP, strict=True)]


class DynamicProblem(NamedTuple):
    corpus: object
    labels: np.ndarray
    layout: object
    features: object
    w: np.ndarray


def dynamic_problem(name, seed=0, lengths=(3, 1, 2, 4, 0, 1), size=1.0, constrained=False, **kind):
    """Random labels, all of them allowed, and weights of this size."""
    rng = np.random.default_rng(seed)
    cliques, sizes = {**TEMPLATES, **GENERAL, **SKIPPING}[name]
    chains = "abc"[: len(sizes)]
    names = {chain: list(range(n)) for chain, n in zip(chains, sizes, strict=True)}
    if name == "memory":
        names["b"] = [None, 1, 2]
    if name == "hierarchical":
        names["c"] = [False, True]
    constraints = None
    if constrained:
        allowed = rng.random((sizes[0], sizes[0])) < 0.7
        allowed[np.arange(sizes[0]), np.arange(sizes[0])] = True
        ends = np.arange(sizes[0]) < sizes[0] - 1
        constraints = {"a": Constraints(allowed, ends, np.ones(sizes[0], bool))}
        if len(sizes) > 1:
            constraints["b", "a"] = np.arange(sizes[1])[:, None] != np.arange(sizes[0]) + 1
    layout = lay_out_template(cliques, tuple(chains), names, constraints)
    corpus = random_corpus(rng, lengths, 2, 5, **kind)
    if name in SKIPPING:
        corpus = corpus._replace(link=rng.integers(-1, 2, corpus.n_tokens).astype(np.int32))
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in sizes], axis=1).astype(np.int32)
    features = dynamic_features(layout, corpus, labels, 5)
    w = rng.normal(0.0, size, features.n_features)
    problem = DynamicProblem(corpus, labels, layout, features, w)
    for i in range(corpus.n_sequences):  # labels that rules and constraints allow
        one = enumerate_sequence(problem, i)
        free = np.flatnonzero(one.scores > -np.inf)
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        labels[tokens] = one.paths[rng.choice(free)].reshape(-1, len(sizes))
    return problem


def factors_of(problem, i, w=None, links=None):
    """(cards, scopes, tables by factor, (clique, last token) of each) of sequence i, straight from B.1.

    links : {number of a table: tokens (E, 2)}: such a table is that of each of these pairs, at no other.
    """
    corpus, layout, features = problem.corpus, problem.layout, problem.features
    w, m = problem.w if w is None else w, len(layout.sizes)
    first, n_steps = int(corpus.seq_ptr[i]), int(corpus.lengths[i])
    rows = np.zeros((n_steps, layout.n_cells))
    for t in range(n_steps):
        for k in range(corpus.attr_ptr[first + t], corpus.attr_ptr[first + t + 1]):
            a, x = corpus.attr_idx[k], corpus.values[k]
            for j in range(features.node_ptr[a], features.node_ptr[a + 1]):
                rows[t, features.node_label[j]] += x * w[j]
    scopes, tables, where = [], [], []
    for t, chain in itertools.product(range(n_steps), range(m)):
        limit = np.zeros(layout.sizes[chain])
        block = slice(layout.first[chain], layout.first[chain + 1])
        if t == 0:
            limit[~layout.start[block]] = -np.inf
        if t == n_steps - 1:
            limit[~layout.end[block]] = -np.inf
        scopes.append((t * m + chain,))
        tables.append(limit)
        where.append((None, t))
    for number, table in enumerate(layout.tables):
        places = [
            (t, tuple((t - table.span + dt) * m + chain for dt, chain in table.at))
            for t in range(table.span, n_steps)
        ]
        pairs = corpus.linked if table.linked else (links or {}).get(number)
        if pairs is not None:
            pairs = np.asarray(pairs).reshape(-1, 2) - first
            pairs = pairs[(pairs >= 0).all(axis=1) & (pairs < n_steps).all(axis=1)].tolist()
            (_, a), (_, b) = table.at
            places = [(t, (s * m + a, t * m + b)) for s, t in pairs]
        for t, scope in places:
            scores = np.zeros(table.size)
            if table.start >= 0:
                lo = features.n_node + table.start
                scores += w[lo : lo + table.size]
            if table.row >= 0:
                scores += rows[t, table.row : table.row + table.size]
            if table.allowed is not None:
                scores[~table.allowed.reshape(-1)] = -np.inf
            scopes.append(scope)
            tables.append(scores)
            where.append((table, t))
    return list(layout.sizes) * n_steps, scopes, tables, where


def enumerate_sequence(problem, i, known=None, w=None):
    """`Enumerated` of sequence i; known (T, m): -1 where a label may be any."""
    cards, scopes, tables, _ = factors_of(problem, i, w)
    if known is not None:
        for v, label in enumerate(np.asarray(known).reshape(-1)):
            if label >= 0:
                tables[v][np.arange(cards[v]) != label] = -np.inf
    return enumerate_factors(cards, scopes, np.concatenate([np.zeros(0), *tables]))


def row_marginals(problem, i, known=None):
    """(T, n_cells): probabilities of the cells of rows."""
    found = enumerate_sequence(problem, i, known)
    layout, (_, _, tables, where) = problem.layout, factors_of(problem, i)
    out, start, m = np.zeros((int(problem.corpus.lengths[i]), layout.n_cells)), 0, len(layout.sizes)
    for number, (scores, (table, t)) in enumerate(zip(tables, where, strict=True)):
        p, start = found.p_tables[start : start + len(scores)], start + len(scores)
        if table is None:
            first = layout.first[number % m]
            out[t, first : first + len(p)] = p
        elif table.row >= 0:
            out[t, table.row : table.row + len(p)] = p
    return out
