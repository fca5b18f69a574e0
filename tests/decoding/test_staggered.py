"""Staggered decoding against enumeration, Viterbi and its readable form; its bounds and counts."""

import numpy as np
import pytest
from helpers.chains import Chain, batches, chains, random_chain, run_viterbi
from helpers.corpora import chains_of
from helpers.decoders import CASES, check_enumeration, check_exact, decode, rounded
from helpers.problems import constraints_for
from hypothesis import given
from hypothesis import strategies as st

from crfbook import brute
from crfbook.chain.numpy_form import edge_scores
from crfbook.data.constraints import bounds_of
from crfbook.data.corpus import make_corpus
from crfbook.data.features import log_edge as log_edge_of
from crfbook.data.features import observed
from crfbook.decoding import decoders, staggered_decode, staggered_many, staggered_tables
from crfbook.decoding.staggered import _expand, _start, _sweep, exclusive_groups, staggered_lists

pytestmark = pytest.mark.kernels
BY_COLUMN = pytest.mark.parametrize("by_column", [False, True])


def tables_of(log_edge, by_column, seed=0):
    order = np.random.default_rng(seed).permutation(log_edge.shape[1])
    return staggered_tables(log_edge, order, by_column)


def run(sequences, by_column=False, seed=0):
    return decode(staggered_many, tables_of(sequences[0].log_edge, by_column, seed), sequences)


@BY_COLUMN
@given(chain=chains(), seed=st.integers(0, 99))
def test_equals_enumeration(by_column, chain, seed):
    scores, paths, counters = run([chain], by_column, seed)
    check_enumeration(chain, scores[0], paths[0])


@BY_COLUMN
@given(sequences=batches(max_tokens=12, max_labels=11, forbidden=(0.0, 0.1, 0.6)), rounding=st.booleans())
def test_small_batches_equal_viterbi(by_column, sequences, rounding):
    sequences = rounded(sequences) if rounding else sequences
    check_exact(*run(sequences, by_column)[:2], sequences)


@BY_COLUMN
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 8, 17, 33, 64, 70])
def test_equals_viterbi(by_column, case, n_labels):
    sequences = CASES[case](np.random.default_rng(n_labels), n_labels)
    scores, paths, counters = run(sequences, by_column)
    check_exact(scores, paths, sequences)
    n_levels = (n_labels - 1).bit_length()
    if by_column:
        assert counters[2] <= sum(len(c.log_node) * n_levels + 1 for c in sequences if len(c.log_node))
    else:
        assert counters[2] <= len(sequences) * (n_levels + 1)


@given(chain=chains(max_tokens=9, max_labels=12, max_classes=1), rounding=st.booleans())
def test_equals_the_readable_form(chain, rounding):
    chain = rounded([chain])[0] if rounding else chain
    tables = tables_of(chain.log_edge, False)
    scores, paths, counters = decode(staggered_many, tables, [chain])
    score, path, sweeps = staggered_decode(chain.log_node, chain.log_edge[0], tables.order)
    np.testing.assert_allclose(scores[0], score, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(paths[0], path)
    assert counters[2] == sweeps


@given(chain=chains(max_labels=12), seed=st.integers(0, 99))
def test_tables_bound_every_class(chain, seed):
    """docs/SPEC.md, C.3, by its definition."""
    tables = tables_of(chain.log_edge, False, seed)
    edge = chain.log_edge[:, tables.order][:, :, tables.order]
    for k, a in enumerate(2 ** np.arange(tables.to_z.shape[1])):
        np.testing.assert_array_equal(tables.to_z[0, k], edge[:, :, a:].max((0, 2)))
        np.testing.assert_array_equal(tables.to_z[1, k], edge[:, a:].max((0, 1)))
        for j, b in enumerate(2 ** np.arange(tables.to_z.shape[1])):
            assert tables.z_to_z[0, k, j] == tables.z_to_z[1, j, k] == edge[:, a:, b:].max()
    np.testing.assert_array_equal(tables.log_edge[1], edge.swapaxes(1, 2))


def groups(size, n_labels):
    """The nodes of a column, as lists of labels: active ones, then z."""
    return [[y] for y in range(size)] + [list(range(size, n_labels))] * (size < n_labels)


def bounds_by_definition(node, edge, edge_class, sizes):
    """Of each column: best score of what lies before each node, its own score left out. edge (K, L, L)."""
    L, found = node.shape[1], []
    for t, size in enumerate(sizes):
        bounds = []
        for group in groups(size, L):
            best = -np.inf if t else 0.0
            for b, came in zip(found[-1], groups(sizes[t - 1], L), strict=True) if t else ():
                active = group[0] < size and came[0] < sizes[t - 1]
                tables = edge[edge_class[t] :][:1] if active else edge
                best = max(best, b + node[t - 1, came].max() + tables[:, came][:, :, group].max())
            bounds.append(best)
        found.append(bounds)
    return found


def empty_lattice(n_tokens, n_labels, n_levels):
    T, L, M = n_tokens, n_labels, n_levels
    shapes = ((T, 4), np.int64), ((T, L), np.int32), ((2, T, L + 1), float), ((T, L), float), ((T, M), float)
    return tuple(np.zeros(*shape) for shape in (*shapes, ((2, 2, L + 1), float), ((2, T), np.int32)))


@given(chain=chains(max_tokens=5, max_labels=9, forbidden=(0.0,)), seed=st.integers(0, 10**6))
def test_bounds_of_sweeps(chain, seed):
    """Columns of unlike levels, both directions; without pruning. No bound is below the best path."""
    rng = np.random.default_rng(seed)
    (T, L), tables = chain.log_node.shape, tables_of(chain.log_edge, True, seed)
    node, edge = chain.log_node[:, tables.order], chain.log_edge[:, tables.order][:, :, tables.order]
    lattice = *empty_lattice(T, L, tables.to_z.shape[1]), tables.log_edge
    column, kept, bound, *_ = lattice
    _start(0, T, chain.log_node, tables, lattice)
    best = run_viterbi(chain)[0]
    for _ in range(6):
        sizes = column[:, 0].tolist()
        for d in range(2):
            _sweep(d, 0, T, chain.log_node, tables, chain.edge_class, -np.inf, np.zeros(3, np.int64), lattice)
        behind = bounds_by_definition(
            node[::-1], edge.swapaxes(1, 2), np.roll(chain.edge_class[::-1], 1), sizes[::-1]
        )[::-1]
        for d, wanted in enumerate((bounds_by_definition(node, edge, chain.edge_class, sizes), behind)):
            for t, size in enumerate(sizes):
                places = [*range(size), *[L] * (size < L)]
                np.testing.assert_allclose(bound[d, t, places], wanted[t], rtol=1e-12, atol=1e-12)
        for t, size in enumerate(sizes):
            through = [
                bound[:, t, g[0] if g[0] < size else L].sum() + node[t, g].max() for g in groups(size, L)
            ]
            assert max(through) >= best - 1e-9
            if column[t, 2] and rng.random() < 0.5:
                _expand(t, 0, chain.log_node, tables, -np.inf, lattice)
                assert column[t, 0] == column[t, 1] == min(2 * size, L)
                children = bound[:, t, size : column[t, 0]]
                np.testing.assert_array_equal(children, bound[:, t, [L] * children.shape[1]])


@BY_COLUMN
def test_forbidden_labels_are_pruned_at_once(by_column):
    """Also while no path is known: the greedy one runs into a dead end here."""
    chain = random_chain(np.random.default_rng(6), 20, 16)
    chain.log_node[:, :14] = -np.inf
    chain.log_edge[:, 14:, 14:] = [[0.0, -np.inf], [-np.inf, 0.0]]
    chain.log_node[:, 14:] = [1.0, 0.0]
    chain.log_node[-1, 14] = -np.inf
    tables = staggered_tables(chain.log_edge, np.arange(16), by_column)
    scores, paths, counters = decode(staggered_many, tables, [chain])
    assert (paths[0] == 15).all() and scores[0] == 0.0
    assert counters[0] <= 3 * 20 * counters[2]


def test_frequent_labels_cost_little():
    """Node scores far apart, the best label first: one sweep of two nodes a token."""
    rng = np.random.default_rng(3)
    chain = random_chain(rng, 40, 64)
    chain.log_node[:, 7] += 1000.0
    order = np.append(7, np.delete(np.arange(64), 7))
    for by_column in (False, True):
        _, paths, counters = decode(
            staggered_many, staggered_tables(chain.log_edge, order, by_column), [chain]
        )
        assert (paths[0] == 7).all() and counters[2] == 1 and counters[0] == 80
        assert counters[1] <= 4 * 39


def test_columns_expand_where_it_matters():
    """One token has a rare label: by column, the others stay as they are."""
    chain = random_chain(np.random.default_rng(4), 40, 64, size=0.01)
    chain.log_node[:, 0] += 1.0
    chain.log_node[20, 63] += 2.5
    order = np.arange(64)
    counts = [
        decode(staggered_many, staggered_tables(chain.log_edge, order, by_column), [chain])[2]
        for by_column in (False, True)
    ]
    assert counts[1][0] < counts[0][0]


@BY_COLUMN
def test_a_million_tokens(by_column):
    chain = random_chain(np.random.default_rng(9), 1_000_000, 5, 2)
    check_exact(*run([chain], by_column)[:2], [chain])


def test_rounding_does_not_prune_the_best_path():
    """Scores of 1e8 that cancel: bounds are off by far more than 1e-9 of the best score, which is small."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chain, level = random_chain(rng, 200, 9), np.where(np.arange(200) < 100, 1e8, -1e8)[:, None]
        near = chain._replace(log_node=level + 1e-3 * chain.log_node, log_edge=1e-3 * chain.log_edge)
        chain.log_node[:] += level  # `near`: many paths differ by less than the slack
        for by_column in (False, True):
            check_exact(*run([chain], by_column)[:2], [chain], rtol=0.0, atol=1e-4)
            check_exact(*run([near], by_column)[:2], [near], rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 1], [0, 1, 3], [0.5, 1, 2], "abc"])
def test_an_order_that_is_no_permutation(order):
    with pytest.raises(ValueError, match="expected a permutation of the 3 labels"):
        staggered_tables(np.zeros((1, 3, 3)), order)


# ---- transitions that depend on the text, in lists


def text_problem(seed, n_labels=6, constrained=False, size=1.5):
    """(corpus, features, w, bounds): each class has one edge attribute of three groups at most, and the
    constant one first, but for seeds that are multiples of 3.
    """
    rng = np.random.default_rng(seed)
    lengths, listed = (5, 0, 1, 4, 7), []
    for _ in range(8):
        chosen = [1 + 3 * g + rng.integers(3) for g in range(3) if rng.random() < 0.7]
        listed.append(([0] if seed % 3 else []) + chosen)
    n = sum(lengths)
    symbols, labels = rng.integers(0, 5, n), rng.integers(0, n_labels, n)
    corpus = make_corpus(
        np.cumsum([0, *lengths]), np.arange(n + 1), symbols, labels=labels, edge_class=rng.integers(0, 8, n),
        class_ptr=np.cumsum([0, *map(len, listed)]), class_attr=[b for members in listed for b in members],
    )  # fmt: skip
    features = observed(corpus, n_labels, 5, 10, all_transitions=bool(seed % 2))
    w = rng.normal(0.0, size, features.n_features)
    limits = constraints_for(corpus, n_labels) if constrained else None
    return corpus, features, w, limits


def lists_of(problem, seed=0, by_column=False):
    corpus, features, w, limits = problem
    order = np.random.default_rng(seed).permutation(features.n_labels)
    bounds = bounds_of(limits, features.n_labels)
    given = corpus.class_ptr, corpus.class_attr, bounds
    return staggered_lists(features, w, *given, order, by_column), edge_scores(features, w, *given)


@BY_COLUMN
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_lists_equal_whole_tables(by_column, constrained, seed, monkeypatch):
    """The score of Viterbi, its path where it is the only best one, and so the best one by enumeration."""
    problem = text_problem(seed, 4 + seed % 5, constrained)
    form = "staggered-columns" if by_column else "staggered"
    monkeypatch.setattr(decoders, "WHOLE_BYTES", 0)
    counters = np.zeros(3, np.int64)
    path = decoders.decode(*problem, form=form, counters=counters)
    for i, chain in enumerate(chains_of(*problem)):
        lo, hi = problem[0].seq_ptr[i : i + 2]
        if hi > lo:
            best, paths = run_viterbi(Chain(*chain))
            assert brute.path_score(*chain, path[lo:hi]) == pytest.approx(best, rel=1e-12, abs=1e-12)
            if hi - lo <= 5 and problem[1].n_labels <= 5:
                assert path[lo:hi].tolist() in brute.best_paths(*chain)[1].tolist()
    assert counters[2] > 0
    tables, log_edge = lists_of(problem, seed, by_column)
    rng = np.random.default_rng(seed)
    some = [random_chain(rng, n, log_edge.shape[1], len(log_edge)) for n in (0, 1, 6, 9)]
    some = [c._replace(log_edge=log_edge) for c in some]
    before = tables.log_edge.copy()
    check_exact(*decode(staggered_many, tables, some)[:2], some)
    np.testing.assert_array_equal(tables.log_edge, before)


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_of_listed_pairs(seed):
    """The sum of positive weights, of attributes that exclude each other the largest; above every class."""
    problem = text_problem(seed, constrained=seed > 3)
    corpus, features, w, _ = problem
    tables, log_edge = lists_of(problem, seed)
    edge = log_edge[:, tables.order][:, :, tables.order]
    group = exclusive_groups(tables.lists.class_ptr, tables.lists.class_attr, 10)
    for k in range(corpus.n_classes):
        members = tables.lists.class_attr[slice(*tables.lists.class_ptr[k : k + 2])]
        assert len(set(group[members])) == len(members)
    lam = log_edge_of(features, w, np.arange(11), np.arange(10))[:, tables.order][:, :, tables.order]
    used = np.isin(np.arange(10), tables.lists.class_attr)
    rest = tables.log_edge[0, 0].copy()
    for g in set(group[used]):
        rest += np.maximum(lam[used & (group == g)].max(axis=0), 0.0)
    every = tables.log_edge[0, 0] + np.maximum(lam[used], 0.0).sum(axis=0)
    assert (rest <= every + 1e-12).all() and (seed % 2 == 0 or (rest < every - 1e-3).any())
    for k, a in enumerate(2 ** np.arange(tables.to_z.shape[1])):
        np.testing.assert_allclose(tables.to_z[0, k], rest[:, a:].max(axis=1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(tables.to_z[1, k], rest[a:].max(axis=0), rtol=1e-12, atol=1e-12)
        assert (tables.to_z[0, k] >= edge[:, :, a:].max((0, 2))).all()
        assert (tables.to_z[1, k] >= edge[:, a:].max((0, 1))).all()
    assert np.isfinite(edge).any() and tables.reach[0] >= np.abs(edge[np.isfinite(edge)]).max()
