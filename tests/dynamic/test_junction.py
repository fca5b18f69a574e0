"""Junction trees against enumeration, on the templates and on random models."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from helpers.factors import enumerate_factors, factor_sizes, random_tables
from hypothesis import given
from hypothesis import strategies as st

from crfbook.dynamic.junction import _eliminate, junction_log_z, junction_max, junction_plan, plan_of, unroll
from crfbook.dynamic.templates import (
    Clique,
    factorial,
    hierarchical,
    linear,
    memory,
    rule_table,
    second_order,
)

pytestmark = pytest.mark.kernels


class Result(NamedTuple):
    log_z: float
    p_tables: np.ndarray
    score: float
    path: np.ndarray


def run(plan, log_tables):
    """Both kernels, with work arrays and results that hold NaN or nonsense before."""
    work = np.full(plan.cells, np.nan), np.full((2, plan.message_ptr[-1]), np.nan)
    p_tables, path = np.full(log_tables.size, np.nan), np.full(plan.card.size, -7, np.int32)
    log_z = junction_log_z(plan, log_tables, p_tables, *work)
    return Result(log_z, p_tables, junction_max(plan, log_tables, path, *work), path)


def assert_equals_enumeration(cards, scopes, log_tables):
    found = run(junction_plan(cards, scopes), log_tables)
    wanted = enumerate_factors(cards, scopes, log_tables)
    if wanted.score == -np.inf:
        assert found.log_z == found.score == -np.inf
        assert not found.p_tables.any() and not found.path.any()
        return
    tolerance = 1e-12 * (1.0 + np.abs(log_tables[log_tables > -np.inf]).max(initial=0.0))
    np.testing.assert_allclose(found.log_z, wanted.log_z, rtol=1e-13, atol=tolerance)
    np.testing.assert_allclose(found.p_tables, wanted.p_tables, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(found.score, wanted.score, rtol=1e-13, atol=tolerance)
    own = wanted.scores[np.ravel_multi_index(found.path, cards)] if cards else found.score
    np.testing.assert_allclose(own, wanted.score, rtol=1e-13, atol=tolerance)
    second = np.sort(wanted.scores)[-2:][0]
    if wanted.score - second > 2 * tolerance or len(wanted.scores) == 1:
        np.testing.assert_array_equal(found.path, wanted.path)


def numbered(cliques, chains):
    """Cliques as `unroll` takes them."""
    return tuple(tuple((dt, chains.index(chain)) for dt, chain in clique.at) for clique in cliques)


SKEW_BACK = [Clique(((1, "a"), (0, "b")))]
TEMPLATES = {  # cliques, labels of each chain, tokens
    "linear": (linear("a"), {"a": range(3)}, 5),
    "two linear chains": (linear("a", "b"), {"a": range(3), "b": range(2)}, 4),
    "two chains": (factorial("a", "b"), {"a": range(3), "b": range(2)}, 4),
    "three chains": (factorial("a", "b", "c"), {"a": range(2), "b": range(3), "c": range(2)}, 3),
    "skew": (factorial("a", "b", skew=True), {"a": range(3), "b": range(2)}, 4),
    "skew both ways": (factorial("a", "b", skew=True) + SKEW_BACK, {"a": range(2), "b": range(3)}, 4),
    "second order": (second_order("a"), {"a": range(3)}, 5),
    "seen": (linear("a") + memory("a", "m", "seen", [1]), {"a": range(3), "m": [False, True]}, 4),
    "last other": (
        linear("a") + memory("a", "m", "last other", [0]), {"a": range(3), "m": [None, 1, 2]}, 3,
    ),
    "hierarchical": (
        hierarchical("a", "b", "e"), {"a": range(2), "b": range(3), "e": [False, True]}, 3,
    ),
    "a chain of one label": (factorial("a", "b", "c"), {"a": range(3), "b": range(1), "c": range(2)}, 4),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("one_token", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_equal_enumeration(name, one_token, seed):
    """Rules forbid with -inf; `one_token`: most cliques stick out."""
    cliques, labels, n_steps = TEMPLATES[name]
    labels = {chain: list(values) for chain, values in labels.items()}
    at, rng = numbered(cliques, list(labels)), np.random.default_rng(seed)
    cards = [len(values) for values in labels.values()]
    scopes, where = unroll(at, 1 if one_token else n_steps)
    cards = cards * (1 if one_token else n_steps)
    tables = np.split(random_tables(rng, cards, scopes), np.cumsum(factor_sizes(cards, scopes)))
    for table, (number, _) in zip(tables, where, strict=False):
        clique = cliques[number]
        allowed = rule_table(clique, [labels[chain] for _, chain in clique.at])
        if allowed is not None:
            table[~allowed.ravel()] = -np.inf
    assert_equals_enumeration(cards, scopes, np.concatenate(tables))


@st.composite
def models(draw, sizes=(0.0, 1.0, 5.0, 1e3), forbidden=(0.0, 0.2, 0.6)):
    """(cards, scopes, log_tables): up to 7 variables of 1 to 3 labels, any factors of up to 4 of them."""
    cards = draw(st.lists(st.integers(1, 3), min_size=1, max_size=7))
    variables = st.lists(st.integers(0, len(cards) - 1), min_size=1, max_size=4, unique=True)
    scopes = draw(st.lists(variables.map(tuple), min_size=0, max_size=9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, share = draw(st.sampled_from(sizes)), draw(st.sampled_from(forbidden))
    return cards, scopes, random_tables(rng, cards, scopes, size, share)


@given(model=models())
def test_random_models_equal_enumeration(model):
    """Also unconnected ones, fully connected ones, variables without a factor, and equal scopes."""
    assert_equals_enumeration(*model)


def complete(n):
    return [(u, v) for u in range(n) for v in range(u)]


@pytest.mark.parametrize(
    "cards, scopes",
    [
        ([2, 3, 2, 3, 2], complete(5)),
        ([3, 2, 4], []),
        ([2, 3, 4, 2, 2], [(3, 0), (1, 4)]),
        ([3, 2, 3, 2, 3, 2], [(i, (i + 1) % 6) for i in range(6)]),
        ([1, 1], [(0, 1)]),
        ([4], [(0,), (0,)]),
        ([], []),
    ],
    ids=["complete", "no factor", "unconnected", "ring", "one label", "one variable", "nothing"],
)
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_shapes_of_graphs(cards, scopes, size):
    rng = np.random.default_rng(len(cards))
    assert_equals_enumeration(cards, scopes, random_tables(rng, cards, scopes, size))


def test_all_forbidden():
    """By one cell of several factors, in one of two parts; the other one alone would have a best path."""
    cards, scopes = [2, 3, 2, 2], [(0, 1), (2, 3), (2,)]
    log_tables = np.zeros(12)
    log_tables[5] = 1.0
    log_tables[[6, 8, 9, 11]] = -np.inf
    assert run(junction_plan(cards, scopes), log_tables).path.tolist() == [1, 2, 0, 1]
    log_tables[7] = -np.inf
    assert_equals_enumeration(cards, scopes, log_tables)


def test_zero_potentials_count():
    """log Z = log of the number of assignments; the smallest labels win the tie."""
    cards, scopes = [2, 3, 4] * 5, unroll(numbered(factorial("a", "b", "c"), ["a", "b", "c"]), 5)[0]
    found = run(junction_plan(cards, scopes), np.zeros(sum(factor_sizes(cards, scopes))))
    np.testing.assert_allclose(found.log_z, 5 * np.log(24.0), rtol=1e-14)
    assert found.score == 0.0 and not found.path.any()


# ---- trees ----


def members(plan):
    return [set(plan.var[lo:hi].tolist()) for lo, hi in zip(plan.var_ptr, plan.var_ptr[1:], strict=False)]


@given(model=models())
def test_trees(model):
    """Cliques are maximal; a variable's cliques are connected; each factor has a home; sizes are told."""
    cards, scopes, _ = model
    plan = junction_plan(cards, scopes)
    cliques = members(plan)
    assert not any(a <= b for i, a in enumerate(cliques) for j, b in enumerate(cliques) if i != j)
    assert set().union(*cliques) == set(range(len(cards)))
    assert (plan.parent[:-1] > np.arange(len(cliques) - 1)).all() and plan.parent[-1] == -1
    for v in range(len(cards)):
        tops = [
            c
            for c, q in enumerate(cliques)
            if v in q and (c == len(cliques) - 1 or v not in cliques[plan.parent[c]])
        ]
        assert len(tops) == 1
    assert all(set(scope) <= cliques[home] for scope, home in zip(scopes, plan.home, strict=True))
    sizes = factor_sizes(cards, cliques)
    assert plan.largest == max(sizes) and plan.cells == sum(sizes)
    np.testing.assert_array_equal(np.diff(plan.cell_ptr), sizes)
    shared = [cliques[c] & cliques[above] for c, above in enumerate(plan.parent[:-1])]
    np.testing.assert_array_equal(np.diff(plan.message_ptr), [*factor_sizes(cards, shared), 1])


def min_fill_order(cards, scopes):
    """The order of elimination by its definition: all is counted again for each variable."""
    edges = {frozenset(pair) for scope in scopes for pair in itertools.combinations(scope, 2)}
    order, left = [], set(range(len(cards)))
    while left:
        near = {v: [u for u in left if {u, v} in edges] for v in left}
        missing = {
            v: [p for p in map(frozenset, itertools.combinations(near[v], 2)) if p not in edges] for v in left
        }
        v = min(left, key=lambda v: (len(missing[v]), np.prod([cards[u] for u in near[v]]) * cards[v], v))
        edges.update(missing[v])
        order.append(v)
        left.remove(v)
    return order


@given(seed=st.integers(0, 10**6), n=st.integers(1, 14), share=st.sampled_from([0.1, 0.25, 0.5]))
def test_order_is_min_fill(seed, n, share):
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 4, n).tolist()
    scopes = [pair for pair in complete(n) if rng.random() < share]
    assert list(_eliminate(cards, scopes, 10**9)) == min_fill_order(cards, scopes)


@pytest.mark.parametrize("n_steps", [2, 3, 40])
def test_sizes_of_trees(n_steps):
    """The cells that theory gives: L^2 for a chain, the two products of the elimination for two chains."""
    plan = plan_of(numbered(linear("a"), ["a"]), (5,), n_steps)
    assert plan.largest == 25 and plan.cells == 25 * (n_steps - 1)
    plan = plan_of(numbered(second_order("a"), ["a"]), (3,), n_steps + 1)
    assert plan.largest == 27 and plan.cells == 27 * (n_steps - 1)
    pair = numbered(factorial("a", "b"), ["a", "b"])
    plan = plan_of(pair, (5, 3), n_steps)
    assert plan.largest <= 5 * 5 * 3 and plan.cells <= (5 * 5 * 3 + 5 * 3 * 3) * (n_steps - 1)
    plan = plan_of(numbered(factorial("a", "b", "c"), ["a", "b", "c"]), (2, 3, 4), n_steps)
    assert plan.cells <= 2 * 3 * 4 * (2 + 3 + 4) * (n_steps - 1)
    assert plan_of(pair, (5, 3), n_steps) is plan_of(pair, (5, 3), n_steps)


def test_unrolling():
    scopes, where = unroll([((0, 1),), ((0, 0), (1, 1)), ((-1, 0), (1, 0)), ((0, 0), (9, 0))], 3)
    assert scopes == [(1,), (3,), (5,), (0, 3), (2, 5), (0, 4)]
    assert where == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(
    "cards, scopes, limit, size",
    [
        ([10] * 4, [(0, 1, 2, 3)], 9999, "10,000"),
        ([10**6] * 4, complete(4), 10**13, f"{10**24:,}"),
        ([7] * 60, complete(60), 10**6, f"{7**60:,}"),
        ([3] * 6, [(i, (i + 1) % 6) for i in range(6)], 26, "27"),
    ],
)
def test_what_is_too_large_is_refused(cards, scopes, limit, size):
    with pytest.raises(ValueError) as caught:
        junction_plan(cards, scopes, limit)
    assert str(caught.value) == (
        f"template: expected cliques of at most {limit:,} cells for exact inference, got one of at least "
        f"{size}: take a template with fewer labels in a clique, or approximate inference"
    )


def test_the_limit_itself_fits():
    assert junction_plan([3] * 6, [(i, (i + 1) % 6) for i in range(6)], 27).largest == 27


# ---- invariants ----


@given(model=models(sizes=(1.0,), forbidden=(0.0, 0.2)), seed=st.integers(0, 10**6))
def test_relabelling_changes_nothing_else(model, seed):
    """Variables and labels under other names, factors in another order, their axes, too."""
    cards, scopes, log_tables = model
    rng = np.random.default_rng(seed)
    name = rng.permutation(len(cards))
    label = [rng.permutation(n) for n in cards]
    tables = np.split(log_tables, np.cumsum(factor_sizes(cards, scopes))[:-1]) if scopes else []
    turned, places = [], []
    for f in rng.permutation(len(scopes)):
        scope, axes = scopes[f], rng.permutation(len(scopes[f]))
        shape = [cards[v] for v in scope]
        place = np.arange(tables[f].size).reshape(shape)[np.ix_(*(np.argsort(label[v]) for v in scope))]
        turned.append(tuple(int(name[scope[a]]) for a in axes))
        places.append(place.transpose(axes).ravel() + sum(len(t) for t in tables[:f]))
    place = np.concatenate([*places, np.zeros(0, int)]).astype(int)
    first = run(junction_plan(cards, scopes), log_tables)
    renamed_cards = [cards[v] for v in np.argsort(name)]
    second = run(junction_plan(renamed_cards, turned), log_tables[place])
    np.testing.assert_allclose(second.log_z, first.log_z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(second.p_tables, first.p_tables[place], rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(second.score, first.score, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_steps, size", [(200, 1.0), (60, 1e3)])
def test_long_sequences(n_steps, size):
    """Marginals of all factors sum to 1 and agree where factors share a variable; a shift adds to log Z."""
    at = numbered(factorial("a", "b", "c", skew=True), ["a", "b", "c"])
    cards, scopes = [3, 2, 4] * n_steps, unroll(at, n_steps)[0]
    rng = np.random.default_rng(n_steps)
    log_tables = random_tables(rng, cards, scopes, size)
    plan = plan_of(at, (3, 2, 4), n_steps)
    found, bounds = run(plan, log_tables), plan.factor_ptr
    of_variable = {}
    for scope, lo, hi in zip(scopes, bounds, bounds[1:], strict=False):
        table = found.p_tables[lo:hi].reshape([cards[v] for v in scope])
        np.testing.assert_allclose(table.sum(), 1.0, atol=1e-12)
        for axis, v in enumerate(scope):
            p = table.sum(tuple(a for a in range(table.ndim) if a != axis))
            np.testing.assert_allclose(p, of_variable.setdefault(v, p), atol=1e-11)
    shifted = log_tables.copy()
    shifted[bounds[5] : bounds[6]] += 3.0
    np.testing.assert_allclose(run(plan, shifted).log_z, found.log_z + 3.0, rtol=1e-13)
    own = sum(
        log_tables[lo + np.ravel_multi_index(found.path[list(scope)], [cards[v] for v in scope])]
        for scope, lo in zip(scopes, bounds, strict=False)
    )
    np.testing.assert_allclose(own, found.score, rtol=1e-12)
    assert found.score <= found.log_z
