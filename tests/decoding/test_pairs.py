"""Entropy, samples and spans from marginals of tokens and pairs, against listings of all labellings."""

import numpy as np
import pytest
from helpers.chains import random_chain

from crfbook import brute
from crfbook.data.constraints import constraints_from
from crfbook.decoding import pairs
from crfbook.evaluation.schemes import SCHEMES, Reading, chunk_lists, chunk_ways

NEAR_ONE = 1.0 - 2.0**-53


def chains_with_marginals(n, n_labels=3, size=2.0, most=4, limits=None):
    """(chain, p_node, p_edge) of n random chains, a fifth of whose scores is -inf; limits : `Constraints`."""
    seed = found = 0
    while found < n:
        rng = np.random.default_rng(seed)
        chain = random_chain(rng, int(rng.integers(1, most + 1)), n_labels, 2, size, 0.2)
        seed += 1
        if limits is not None:
            chain.log_edge[:, ~limits.allowed] = chain.log_node[0, ~limits.start] = -np.inf
        if np.isfinite(brute.log_z(*chain)):
            found += 1
            yield chain, brute.node_marginals(*chain), brute.edge_marginals(*chain)[1:]


def test_entropies_are_those_of_all_labellings():
    for chain, p_node, p_edge in chains_with_marginals(150):
        found = pairs.sequence_entropy(p_node, p_edge)
        assert found == pytest.approx(brute.entropy(*chain), abs=1e-12)
        alone = [brute.entropy(np.log(row[row > 0])[None], np.zeros((1, 9, 9)), [0]) for row in p_node]
        np.testing.assert_allclose(pairs.token_entropy(p_node), alone, atol=1e-12)
        assert 0.0 <= found <= sum(alone) + 1e-12
    assert pairs.sequence_entropy(np.zeros((0, 3)), np.zeros((0, 3, 3))) == 0.0


def test_entropy_of_all_that_is_possible_and_of_what_is_certain():
    even = np.full((4, 3), 1 / 3), np.full((3, 3, 3), 1 / 9)
    assert pairs.sequence_entropy(*even) == pytest.approx(4 * np.log(3), rel=1e-12)
    sure = np.eye(3)[[0, 1]], np.zeros((1, 3, 3))
    sure[1][0, 0, 1] = 1.0
    assert pairs.sequence_entropy(*sure) == 0.0 and not pairs.token_entropy(sure[0]).any()


def test_samples_have_their_probabilities():
    rng = np.random.default_rng(0)
    for chain, p_node, p_edge in chains_with_marginals(8):
        paths, p = brute.path_probabilities(*chain)
        drawn = pairs.draw(p_node, p_edge, rng.random((20_000, len(p_node))))
        place = np.ravel_multi_index(drawn.T, (3,) * len(p_node))  # lexicographic, as the paths are
        share = np.bincount(place, minlength=len(paths)) / 20_000
        assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 20_000) + 2e-4 * (p > 0)).all()


def test_the_ends_of_the_unit_interval_draw_what_is_possible():
    for chain, p_node, p_edge in chains_with_marginals(150, size=30.0):
        for u in (0.0, NEAR_ONE):
            (path,) = pairs.draw(p_node, p_edge, np.full((1, len(p_node)), u))
            assert brute.path_score(*chain, path) > -np.inf


@pytest.mark.parametrize("name", SCHEMES)
def test_spans_are_sums_over_all_labellings(name):
    """Of every scheme, also where a type lacks a label. In IOB1 without constraints strict reading knows of
    breaks that patterns do not tell: see test_spans.py.
    """
    read = Reading(SCHEMES[name])
    tags = read.scheme.tags
    parts = [("O", ""), *((tag, "X") for tag in tags), *((tag, "Y") for tag in tags[:2][: 4 - len(tags)])]
    labels, kinds = [read.join(*part) for part in parts], ["X", "Y"]
    ways = chunk_ways(read.scheme, kinds, parts)
    limits = constraints_from(name, labels) if name == "IOB1" else None
    for chain, p_node, p_edge in chains_with_marginals(40, len(parts), limits=limits):
        paths = brute.all_paths(*p_node.shape)
        chunks = chunk_lists([[labels[y] for y in path] for path in paths], read, strict=True)
        table = dict(zip(map(tuple, paths.tolist()), chunks, strict=True))
        wanted = brute.span_probabilities(*chain, lambda path, table=table: table[tuple(path.tolist())])
        some = pairs.list_spans(pairs.span_tables(p_node, p_edge, ways), 1e-300)
        columns = (column.tolist() for column in some)
        found = {(kinds[kind], a, b): p for kind, a, b, p in zip(*columns, strict=True)}
        for chunk in wanted.keys() | found.keys():
            assert found.get(chunk, 0.0) == pytest.approx(wanted.get(chunk, 0.0), rel=1e-10, abs=1e-12)


def test_spans_end_where_no_longer_one_is_probable():
    n = 60
    p_node, p_edge = np.tile([0.5, 0.25, 0.25], (n, 1)), np.full((n - 1, 3, 3), 1 / 9)
    ways = chunk_ways(SCHEMES["BIO"], ["X"], [("O", ""), ("B", "X"), ("I", "X")])
    short, whole = pairs.span_tables(p_node, p_edge, ways), pairs.span_tables(p_node, p_edge, ways, 0.0)
    assert len(short) < 30 and len(whole) == n == len(pairs.span_tables(p_node, p_edge, ways, 0.0, 99))
    assert len(pairs.span_tables(p_node, p_edge, ways, 0.0, 2)) == 2
    assert all(np.array_equal(a, b) for a, b in zip(short, whole, strict=False))
    assert max(p.max() for p in whole[len(short) :]) < pairs.NEVER
    assert len(pairs.list_spans(short, 0.1).p) == n


def test_the_best_sets_of_spans_by_listing_all_sets():
    ways = chunk_ways(SCHEMES["BIO"], ["X"], [("O", ""), ("B", "X"), ("I", "X")])
    better = 0
    both = chains_with_marginals(80, most=3)
    for (_, *one), (_, *two) in zip(both, both, strict=True):
        tables = [pairs.span_tables(*each, ways) for each in (one, two)]
        spans = [pairs.list_spans(table) for table in tables]
        chosen, value = pairs.best_span_sets(spans, sum(p.sum() for table in tables for p in table))
        rows = [list(zip(*(column.tolist() for column in some), strict=True)) for some in spans]
        wanted = brute.best_expected_f1([{row[:3]: row[3] for row in some} for some in rows])
        assert value == pytest.approx(wanted, abs=1e-12)
        for some, places in zip(spans, chosen, strict=True):
            assert (some.stop[places][:-1] <= some.start[places][1:]).all()
            better += bool(len(places) != (some.p > 0.5).sum())
    assert better > 5  # to take all spans above 1/2 is not enough
    assert pairs.best_span_sets([], 0.0) == ([], 0.0)


def test_spans_that_do_not_overlap_by_listing():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 7))
        start = rng.integers(0, 6, n)
        some = pairs.Spans(np.zeros(n, np.int64), start, start + rng.integers(1, 4, n), rng.random(n))
        gain, best = rng.normal(size=n), 0.0
        for bits in range(2**n):
            inside = [i for i in range(n) if bits >> i & 1]
            apart = all(
                some.stop[i] <= some.start[j] or some.stop[j] <= some.start[i]
                for i in inside
                for j in inside
                if i < j
            )
            best = max(best, sum(gain[inside])) if apart else best
        found = pairs.best_separate(some, gain)
        assert gain[found].sum() == pytest.approx(best, abs=1e-12)
        assert (some.stop[found][:-1] <= some.start[found][1:]).all()
