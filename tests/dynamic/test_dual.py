"""Dual decomposition: the best labelling by enumeration and by elimination, bounds, certificates, pruning."""

import itertools

import numpy as np
import pytest
from helpers.corpora import random_corpus
from helpers.dynamic import dynamic_problem, enumerate_sequence

from crfbook.chain.inference import node_scores
from crfbook.data.constraints import Constraints
from crfbook.dynamic import DynamicModel, decode, decode_dual, factorial, linear
from crfbook.dynamic.dual import ahead, average, best_of, cells_left, dual_chains, follow_given, sweep
from crfbook.dynamic.inference import check_dual
from crfbook.dynamic.layout import dynamic_features, lay_out_template, log_tables
from crfbook.dynamic.templates import Clique, nodes
from crfbook.dynamic.viterbi import max_chains

pytestmark = pytest.mark.kernels
NAMES = ("two chains", "large first", "independent")


def model_of(problem):
    return DynamicModel(problem.layout, problem.features, problem.w, "elimination")


def larger(sizes, seed=0, size=1.0, lengths=(9, 1, 0, 30, 2, 14), cliques=None, limits=None):
    """(corpus, model): random weights; those of cliques of two labels decide more than the text."""
    rng = np.random.default_rng(seed)
    names = {chain: list(range(n)) for chain, n in zip("ab", sizes, strict=True)}
    layout = lay_out_template(cliques or factorial("a", "b"), ("a", "b"), names, limits)
    corpus = random_corpus(rng, lengths, 2, 9)
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in sizes], axis=1).astype(np.int32)
    features = dynamic_features(layout, corpus, labels, 9)
    w = rng.normal(0.0, size, features.n_features)
    return corpus, DynamicModel(layout, features, w, "elimination")


def frustrated(n_tokens, hard=False):
    """Labels a stay, labels b change, and those of a token are equal: of each four only three can be had.

    Each is worth 1 nat; hard: everything else is forbidden, too.
    """
    equal = np.eye(2, dtype=bool)
    ends = np.ones(2, bool)
    limits = {"a": Constraints(equal, ends, ends), "b": Constraints(~equal, ends, ends), ("a", "b"): equal}
    corpus, model = larger((2, 2), lengths=(n_tokens,), limits=limits if hard else None)
    w = np.zeros(model.features.n_features)
    for table in model.layout.tables:
        if len(table.at) == 2:
            start = model.features.n_node + table.start
            w[start : start + 4] = (~equal if table.at[0][1] == table.at[1][1] == 1 else equal).reshape(-1)
    return corpus, model._replace(w=w)


def check(corpus, model, unique=True, **kind):
    """`decode_dual` against elimination, with few and many sweeps, with and without pruning."""
    labels, score = decode(corpus, model, **kind)
    for max_sweeps in (1, 2, 30):
        best = decode_dual(corpus, model, max_sweeps=max_sweeps, **kind)
        np.testing.assert_allclose(best.score, score, rtol=2e-9, atol=2e-9)
        np.testing.assert_array_equal(best.bound[best.pruned], best.score[best.pruned])
        if unique:
            np.testing.assert_array_equal(best.labels, labels)
        some = decode_dual(corpus, model, max_sweeps=max_sweeps, prune=False, **kind)
        slack = 1e-12 * np.maximum(1.0, np.abs(score))
        assert (some.bound >= some.score).all() and (some.bound >= score - slack).all()
        assert not some.pruned.any() and (some.sweeps <= max_sweeps).all()
        certified = some.bound - some.score <= 1e-9 * np.maximum(1.0, np.abs(some.bound))
        np.testing.assert_array_equal(certified, ~best.pruned)
        np.testing.assert_allclose(some.score[certified], score[certified], rtol=2e-9, atol=2e-9)
        np.testing.assert_array_equal(some.sweeps, best.sweeps)
    return best


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e3])
@pytest.mark.parametrize("seed", range(3))
def test_enumeration(name, constrained, size, seed):
    problem = dynamic_problem(name, seed=seed, constrained=constrained, size=size)
    best = check(problem.corpus, model_of(problem))
    for i in range(problem.corpus.n_sequences):
        want = enumerate_sequence(problem, i)
        tokens = slice(problem.corpus.seq_ptr[i], problem.corpus.seq_ptr[i + 1])
        np.testing.assert_array_equal(best.labels[tokens].reshape(-1), want.path)
        assert best.score[i] == pytest.approx(want.score, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("sizes", [(8, 7), (3, 13), (22, 9), (1, 6), (5, 1), (1, 1)])
@pytest.mark.parametrize("size", [0.1, 1.0, 1e3])
def test_elimination(sizes, size):
    best = check(*larger(sizes, seed=sum(sizes), size=size))
    assert best.sweeps[2] == 0 and best.score[2] == best.bound[2] == 0.0  # no token


@pytest.mark.parametrize(
    "cliques",
    [
        [*nodes("a", "b"), Clique(((0, "b"), (0, "a")))],
        [*nodes("a", "b"), Clique(((0, "a"), (1, "a")))],
        [*linear("a", "b")],
        nodes("a", "b"),
    ],
    ids=["no transitions", "one chain has them", "nothing beside", "labels alone"],
)
def test_parts_that_are_missing(cliques):
    """Without cycles the bound comes down to the best score."""
    best = check(*larger((4, 6), seed=2, cliques=cliques))
    assert not best.pruned.any()


@pytest.mark.parametrize("seed", range(4))
def test_many_labellings_are_equally_good(seed):
    corpus, model = larger((4, 3), seed)
    check(corpus, model._replace(w=np.round(model.w)), unique=False)
    check(corpus, model._replace(w=np.zeros_like(model.w)), unique=False)
    problem = dynamic_problem("large first", seed)
    problem = problem._replace(w=np.round(problem.w))
    labels = decode_dual(problem.corpus, model_of(problem), max_sweeps=1).labels
    for i in range(problem.corpus.n_sequences):
        tokens = slice(problem.corpus.seq_ptr[i], problem.corpus.seq_ptr[i + 1])
        want = enumerate_sequence(problem, i)
        own = (want.paths == labels[tokens].reshape(-1)).all(axis=1)
        assert want.scores[own] == pytest.approx(want.score)


@pytest.mark.parametrize("size", [0.3, 3.0, 1e3])
def test_hard_rules(size):
    """Transitions, ends and pairs of labels that are forbidden, and half of the labels known."""
    rng = np.random.default_rng(5)
    limits = {}
    for chain, n in (("a", 7), ("b", 5)):
        allowed = (rng.random((n, n)) < 0.4) | np.eye(n, dtype=bool)
        limits[chain] = Constraints(allowed, np.arange(n) > 0, np.arange(n) < n - 1)
    limits["a", "b"] = (rng.random((7, 5)) < 0.6) | (np.arange(7)[:, None] % 5 == np.arange(5))
    corpus, model = larger((7, 5), 1, size, limits=limits)
    best = check(corpus, model)
    known = np.where(rng.random(best.labels.shape) < 0.5, best.labels, np.int32(-1))
    np.testing.assert_array_equal(check(corpus, model, known=known).labels, best.labels)
    other = decode(corpus, model._replace(w=-model.w))[0]  # allowed, but far from the best
    known = np.where(rng.random(other.shape) < 0.3, other, np.int32(-1))
    found = check(corpus, model, known=known).labels
    np.testing.assert_array_equal(found[known >= 0], known[known >= 0])


@pytest.mark.parametrize("n_tokens", [2, 5, 8])
def test_a_gap_that_no_sweep_closes(n_tokens):
    """Half of each label fulfils everything, so the bound stays; pruning finishes."""
    corpus, model = frustrated(n_tokens)
    best = check(corpus, model, unique=False)
    most = 3 * n_tokens - 2
    some = decode_dual(corpus, model, prune=False)
    assert some.bound[0] == pytest.approx(most) and some.score[0] <= most - 1
    assert best.pruned[0] and best.sweeps[0] == 30


def test_no_labelling_is_allowed():
    corpus, model = frustrated(3, hard=True)
    with pytest.raises(ValueError, match="sequence 0: expected a path of finite score"):
        decode_dual(corpus, model)
    some = decode_dual(corpus, model, prune=False)  # parts alone do not see it
    assert some.score[0] == -np.inf and some.bound[0] == pytest.approx(7.0) and (some.labels == -1).all()
    for prune in (False, True):  # here they do
        with pytest.raises(ValueError, match="sequence 0: expected a path of finite score"):
            decode_dual(corpus, model, known=np.array([[0, 1], [-1, -1], [-1, -1]], np.int32), prune=prune)


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_never_rises(seed):
    corpus, model = larger((6, 5), seed, size=2.0)
    before = np.full(corpus.n_sequences, np.inf)
    for n in range(1, 9):
        bound = decode_dual(corpus, model, max_sweeps=n, prune=False).bound
        assert (bound <= before + 1e-12 * np.abs(bound)).all()
        before = bound


def test_a_long_sequence():
    best = check(*larger((3, 2), lengths=(20_000,)))
    assert best.labels.shape == (20_000, 2)


def test_any_number_of_threads():
    corpus, model = larger((3, 2), lengths=(11, 0, 6) * 1000)
    one, three = (decode_dual(corpus, model, n_threads=n, max_sweeps=2) for n in (1, 3))
    for a, b in zip(one, three, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(one.score, decode(corpus, model)[1], rtol=2e-9, atol=2e-9)


@pytest.mark.parametrize(
    ("name", "came"),
    [
        ("one chain", "1 chain$"),
        ("three chains", "3 chains$"),
        ("skew", r"the clique a\(t-1\), b\(t\)$"),
        ("skew back", r"the clique a\(t\), b\(t-1\)$"),
        ("memory", "the clique "),
        ("pairs of the text", "weights of .* that depend on the text$"),
    ],
)
def test_other_templates_are_refused(name, came):
    problem = dynamic_problem(name)
    with pytest.raises(ValueError, match="decode_dual: expected a template of two chains .* got " + came):
        decode_dual(problem.corpus, model_of(problem))


def test_other_input_is_refused():
    corpus, model = larger((3, 2))
    with pytest.raises(ValueError, match="max_sweeps: expected an integer >= 1, got 0"):
        decode_dual(corpus, model, max_sweeps=0)
    names = {chain: list(range(2100)) for chain in "ab"}
    with pytest.raises(ValueError, match="got 2100 x 2100 labels"):
        check_dual(lay_out_template(nodes("a", "b"), ("a", "b"), names))


# ---- kernels ----


@pytest.mark.parametrize("n", [1, 3, 4, 6, 8, 13])
def test_best_of(n):
    rng = np.random.default_rng(n)
    for m in (1, 5):
        v, table, out = rng.normal(size=n), rng.normal(size=(n, m)), np.full(m, np.nan)
        for y in range(n):  # each is the largest once
            best_of(v + 100.0 * (np.arange(n) == y), table, out)
            np.testing.assert_allclose(out, v[y] + 100.0 + table[y], rtol=1e-15)
        v[: n // 2 + 1] = -np.inf
        table[rng.random(table.shape) < 0.3] = -np.inf
        best_of(v, table, out)
        np.testing.assert_array_equal(out, (v[:, None] + table).max(axis=0))


def both_chains(seed, sizes=(4, 3), n_tokens=4, forbid=0.0):
    """`DualChain`s of a random sequence, c and g as they begin."""
    rng = np.random.default_rng(seed)
    corpus, model = larger(sizes, seed, size=2.0, lengths=(n_tokens,))
    chains, _ = max_chains(model.layout, log_tables(model.layout, model.features, model.w))
    one, two = dual_chains(chains, n_tokens)
    rows = node_scores(corpus, model.features, model.w)
    for own in (one, two):
        own.u[:] = rows[:, own.first : own.first + own.M.size]
        own.u[rng.random(own.u.shape) < forbid] = -np.inf
        own.c[:], own.g[:] = own.u, 0.0
        ahead(n_tokens, own.c, own.pair_t, own.M, own.B)
    return one, two


def every_score(one, two, T):
    """{labels of both chains: score} of all joint labellings."""

    def of(own):
        paths = itertools.product(range(own.M.size), repeat=T)
        return {y: own.c[range(T), y].sum() + own.pair[y[:-1], y[1:]].sum() for y in paths}

    first, second = of(one), of(two)
    rung = two.beside + one.g[:T, :, None] + two.g[:T, None, :]
    joint = {(y, z): s + q + rung[range(T), y, z].sum() for y, s in first.items() for z, q in second.items()}
    return joint, max(first.values()) + max(second.values()) + rung.max(axis=(1, 2)).sum()


@pytest.mark.parametrize("forbid", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_an_average_keeps_scores_and_lowers_the_bound(seed, forbid):
    T = 3
    one, two = both_chains(seed, (3, 2), T, forbid)
    scores, bound = every_score(one, two, T)
    best = max(scores.values())
    for t, (own, other) in [*enumerate([(one, two), (two, one), (one, two)]), (0, (two, one))]:
        for chain in (one, two):  # messages as they are now
            ahead(T, chain.c, chain.pair_t, chain.M, chain.B)
            chain.A[0] = 0.0
            for k in range(1, T):
                best_of(chain.A[k - 1] + chain.c[k - 1], chain.pair, chain.A[k])
        average(t, own, other)
        after, lower = every_score(one, two, T)
        allowed = [y for y, s in scores.items() if s > -np.inf]
        assert [after[y] for y in allowed] == pytest.approx(
            [scores[y] for y in allowed], rel=1e-12, abs=1e-12
        )
        assert all(after[y] == -np.inf for y, s in scores.items() if s == -np.inf)
        assert best - 1e-12 <= lower <= bound + 1e-12
        rung = two.beside + one.g[t, :, None] + two.g[t, None, :]
        assert best == -np.inf or rung.max() == pytest.approx(0.0, abs=1e-12)
        bound = lower


@pytest.mark.parametrize("forbid", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_cells_of_good_labellings_are_left(seed, forbid):
    T = 4
    one, two = both_chains(seed, (4, 3), T, forbid)
    scores = every_score(one, two, T)[0]
    ranked = sorted(scores.values(), reverse=True)
    assert sweep(T, one, two) >= ranked[0] - 1e-12
    sizes = []
    for least in (ranked[0], ranked[5], ranked[100], -np.inf):
        cell, start = np.zeros(T * 12, np.int32), np.zeros(T + 1, np.int64)
        cells_left(T, one, two, least - 1e-9, cell, start)
        left = [{divmod(k, two.M.size) for k in cell[a:b].tolist()} for a, b in itertools.pairwise(start)]
        for (y, z), s in scores.items():
            if s >= least and s > -np.inf:
                assert all(pair in left[t] for t, pair in enumerate(zip(y, z, strict=True)))
        for t in range(T):
            assert all(one.u[t, a] + two.u[t, b] > -np.inf for a, b in left[t])
        sizes.append(start[-1])
    assert sizes == sorted(sizes) and (forbid or sizes[0] < sizes[-1] == T * 12)


@pytest.mark.parametrize("seed", range(3))
def test_a_chain_given_the_other_one(seed):
    T = 4
    one, two = both_chains(seed, (4, 3), T)
    scores = every_score(one, two, T)[0]
    sweep(T, one, two)
    for k, (own, other) in enumerate([(one, two), (two, one)]):
        held = np.random.default_rng(seed).integers(0, other.M.size, T).astype(np.int32)
        follow_given(T, own, held)
        best = max((s, y[k]) for y, s in scores.items() if y[1 - k] == tuple(held))
        assert tuple(own.given) == best[1]
