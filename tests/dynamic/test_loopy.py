"""Belief propagation on factor graphs: exact on trees, one fixed point for all schedules, Bethe's log Z."""

import numpy as np
import pytest
from helpers.factors import factor_sizes
from helpers.graphs import flat_rows, ladder, listed, phi_rows, random_model, random_tree
from helpers.problems import central_differences
from hypothesis import given
from hypothesis import strategies as st

import crfbook.dynamic.loopy as loopy
from crfbook.dynamic.graphs import factor_graph
from crfbook.dynamic.junction import junction_log_z, junction_plan
from crfbook.dynamic.loopy import SCHEDULES, Buffers, check_options, max_marginals, propagate, score_of
from crfbook.dynamic.sum_product import (
    LOG_SUM,
    SUM,
    cavities_of_others,
    cavity_at,
    message_sweep,
    plain_message,
    sweep_messages_plain,
)

pytestmark = pytest.mark.kernels
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.fixture(params=[False, True], ids=["probabilities", "logarithms"])
def in_logarithms(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(loopy, "_too_wide", lambda graph, scores: np.ones(graph.n_components, bool))
    return request.param


def of(model, schedule="tree", tol=1e-13, **more):
    options = check_options(schedule, tol, **more)
    return propagate(model.graph, model.log_phi, model.log_tables, options)


def best_of(model, schedule="tree", tol=1e-13, **more):
    options = check_options(schedule, tol, **more)
    return max_marginals(model.graph, model.log_phi, model.log_tables, options)


def assert_exact(model, schedule):
    wanted, found, best = listed(model), of(model, schedule), best_of(model, schedule)
    scores = np.concatenate([flat_rows(model, model.log_phi), model.log_tables])
    tolerance = 1e-12 * (1.0 + np.abs(scores[scores > -np.inf]).max(initial=0.0))
    assert found.converged.all() and best.converged.all()
    np.testing.assert_allclose(found.log_z, wanted.log_z, rtol=1e-13, atol=tolerance)
    beliefs = np.concatenate([flat_rows(model, found.p_var), found.p_table])
    np.testing.assert_allclose(beliefs, wanted.p_tables, rtol=0.0, atol=tolerance)
    np.testing.assert_array_equal(best.labels, wanted.path)
    np.testing.assert_allclose(best.score, wanted.score, rtol=1e-13, atol=tolerance)


# ---- trees ----


@schedules
@pytest.mark.parametrize("most", [2, 3, 4])
@pytest.mark.parametrize("size, forbidden", [(1.0, 0.0), (1.0, 0.3), (30.0, 0.2), (300.0, 0.1), (1e3, 0.3)])
def test_trees_are_exact(schedule, most, size, forbidden):
    """log Z, beliefs and best labels, whatever the schedule, also with -inf and far apart."""
    for seed in range(4):
        rng = np.random.default_rng([seed, most])
        assert_exact(random_model(rng, *random_tree(rng, 7 - most), size, forbidden), schedule)


@given(seed=st.integers(0, 10**6), schedule=st.sampled_from(SCHEDULES), most=st.integers(2, 4))
def test_trees_in_logarithms(seed, schedule, most):
    rng = np.random.default_rng(seed)
    model = random_model(rng, *random_tree(rng, 3), 1.0, 0.2)
    found = of(model, schedule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loopy, "_too_wide", lambda graph, scores: np.ones(graph.n_components, bool))
        assert_exact(model, schedule)
        other = of(model, schedule)
    np.testing.assert_allclose(other.p_table, found.p_table, atol=1e-13)


@pytest.mark.parametrize("most", [2, 3, 4])
def test_one_sweep_along_a_tree_is_enough(most):
    """Each slot has one message: 2 (V - 1) where factors have two variables."""
    rng = np.random.default_rng(most)
    model = random_model(rng, *random_tree(rng, 3, most))
    found = of(model, "tree", max_sweeps=1)
    assert found.converged.all() and found.sweeps[0] == 1
    assert found.n_messages == sum(len(scope) for scope in model.scopes)
    if most == 2:
        assert found.n_messages == 2 * (len(model.cards) - 2 - 1)  # two are lonely
    wanted = listed(model)
    np.testing.assert_allclose(found.log_z, wanted.log_z, rtol=1e-13)
    beliefs = np.concatenate([flat_rows(model, found.p_var), found.p_table])
    np.testing.assert_allclose(beliefs, wanted.p_tables, atol=1e-13)


@pytest.mark.parametrize("schedule", ["tree", "sweep"])
def test_a_chain_needs_one_sweep(schedule):
    rng = np.random.default_rng(0)
    model = random_model(rng, [2, 3, 4, 2, 3], [(0, 1), (2, 1), (2, 3), (4, 3)])
    np.testing.assert_allclose(of(model, schedule, max_sweeps=1).log_z, listed(model).log_z, rtol=1e-13)


@schedules
@pytest.mark.parametrize("size", [1.0, 20.0])
def test_labels_from_1_to_50(schedule, size):
    """A path through variables of 1 to 50 labels, with leaves: against the junction tree."""
    rng = np.random.default_rng(3)
    cards = [int(n) for n in rng.permutation(np.arange(1, 51))]
    scopes = [(v, v + 1) if v % 2 else (v + 1, v) for v in range(40)] + [(v - 30, v) for v in range(41, 50)]
    model = random_model(rng, cards, scopes, size)
    plan = junction_plan(cards, [(v,) for v in range(50)] + scopes)
    scores = np.concatenate([flat_rows(model, model.log_phi), model.log_tables])
    wanted, buffers = np.zeros(len(scores)), (np.empty(plan.cells), np.empty((2, plan.message_ptr[-1])))
    log_z = junction_log_z(plan, scores, wanted, *buffers)
    found = of(model, schedule)
    np.testing.assert_allclose(found.log_z, log_z, rtol=1e-12)
    beliefs = np.concatenate([flat_rows(model, found.p_var), found.p_table])
    # a change below the tolerance is not sent on, and scores of 20 nats make it larger
    np.testing.assert_allclose(beliefs, wanted, atol=1e-11 if size == 1.0 else 1e-8)


@schedules
def test_a_label_fades_and_wins(schedule):
    """What has faded to nothing on the left wins on the right: no potential alone is too small."""
    n = 10
    graph = factor_graph([2] * n, [(v, v + 1) for v in range(n - 1)], [0] * (n - 1))
    same = np.where(np.eye(2, dtype=bool), 0.0, -np.inf).reshape(-1)
    for scores in ([-250.0] * 4 + [250.0] * 6, [-250.0] * 5 + [250.0] * 5, [250.0] * 3 + [-250.0] * 7):
        phi = phi_rows(graph, [[0.0, score] for score in scores])
        found = propagate(graph, phi, same, check_options(schedule, 1e-13))
        total = sum(scores)
        np.testing.assert_allclose(found.log_z, np.logaddexp(0.0, total), rtol=1e-12, atol=1e-11)
        p = np.exp(total - np.logaddexp(0.0, total))
        np.testing.assert_allclose(found.p_var[:, :2], np.tile([1.0 - p, p], (n, 1)), atol=1e-12)


@schedules
@pytest.mark.parametrize("triples", [False, True])
def test_a_label_fades_at_once_and_wins(schedule, triples):
    """Four neighbours make a label's product 0, though no message has a 0; a chain behind them has more."""
    fades, wins = 4, 5
    scores = [0.0] + [-300.0] * fades + [290.0] * wins
    if triples:  # two neighbours in one factor
        scopes = (
            [(0, 1, 2), (3, 0, 4)] + [(v, v + 1) for v in range(fades + 1, fades + wins)] + [(fades + 1, 0)]
        )
    else:
        scopes = [(0, v) for v in range(1, fades + 2)] + [(v, v + 1) for v in range(fades + 1, fades + wins)]
    same = {n: np.full((2,) * n, -np.inf) for n in (2, 3)}
    for n, table in same.items():
        table[(0,) * n] = table[(1,) * n] = 0.0
    graph = factor_graph([2] * len(scores), scopes)
    tables = np.concatenate([same[len(scope)].reshape(-1) for scope in scopes])
    found = propagate(
        graph, phi_rows(graph, [[0.0, x] for x in scores]), tables, check_options(schedule, 1e-13)
    )
    np.testing.assert_allclose(found.log_z, 250.0, rtol=1e-12)
    np.testing.assert_allclose(found.p_var[:, 1], 1.0, rtol=1e-12)


@schedules
def test_many_neighbours(schedule, monkeypatch):
    """A star of 700 leaves: the product of all messages is no number of 64 bits; probabilities suffice."""
    n = 700
    monkeypatch.setattr(loopy, "LOG_SUM", "never needed")
    rng = np.random.default_rng(0)
    graph = factor_graph([5] + [3] * n, [(0, v + 1) if v % 2 else (v + 1, 0) for v in range(n)])
    tables = [rng.normal(size=(5, 3) if v % 2 else (3, 5)) for v in range(n)]
    phi = phi_rows(graph, [rng.normal(size=5), *rng.normal(size=(n, 3))])
    flat = np.concatenate([table.reshape(-1) for table in tables])
    found = propagate(graph, phi, flat, check_options(schedule, 1e-12))
    hub = phi[0, :5].copy()
    for v, table in enumerate(tables):
        table = table if v % 2 else table.T
        hub += np.log(np.exp(table + phi[v + 1, :3]).sum(axis=1))
    log_z = hub.max() + np.log(np.exp(hub - hub.max()).sum())
    np.testing.assert_allclose(found.log_z, log_z, rtol=1e-12)
    np.testing.assert_allclose(found.p_var[0, :5], np.exp(hub - log_z), atol=1e-10)


@schedules
def test_zero_coupling(schedule):
    """Tables of zeros: labels are independent, though the graph has loops."""
    rng = np.random.default_rng(1)
    model = random_model(
        rng, [2, 3, 4, 2], [(0, 1), (1, 2), (2, 0), (0, 1, 3), (3, 2, 1, 0), (1, 2)], coupling=0.0
    )
    model = model._replace(log_tables=np.zeros(len(model.log_tables)))
    found, best = of(model, schedule), best_of(model, schedule)
    each = [model.log_phi[v, :n] for v, n in enumerate(model.cards)]
    np.testing.assert_allclose(found.log_z, sum(np.log(np.exp(phi).sum()) for phi in each), rtol=1e-13)
    want = np.concatenate([np.exp(phi) / np.exp(phi).sum() for phi in each])
    np.testing.assert_allclose(flat_rows(model, found.p_var), want, atol=1e-13)
    assert best.labels.tolist() == [int(phi.argmax()) for phi in each]


@schedules
def test_ties_have_the_smaller_label(schedule):
    model = random_model(np.random.default_rng(0), *ladder(3, (3, 2)))
    model = model._replace(log_tables=np.zeros(len(model.log_tables)))
    model.log_phi[model.log_phi > -np.inf] = 0.0
    model.log_phi[2, :3] = [0.0, 1.0, 1.0]
    assert best_of(model, schedule).labels.tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("cards", [[], [1], [3, 2, 1]])
@schedules
def test_no_factor(schedule, cards):
    model = random_model(np.random.default_rng(0), cards, [])
    found, best = of(model, schedule), best_of(model, schedule)
    want = sum(np.log(np.exp(model.log_phi[v, :n]).sum()) for v, n in enumerate(cards))
    np.testing.assert_allclose(found.log_z, [want], rtol=1e-13, atol=1e-15)
    assert found.converged.all() and found.n_messages == 0 and len(best.labels) == len(cards)


# ---- loops ----


def loops(seed, size=1.0, forbidden=0.0):
    """A ladder, a chain of triples and quadruples, double edges."""
    rng = np.random.default_rng(seed)
    yield random_model(rng, *ladder(4, (3, 2)), size, forbidden, coupling=0.7 * size)
    scopes = [(0, 1, 2), (3, 1, 2), (3, 2, 4), (0, 4), (4, 0, 5, 1)]
    yield random_model(rng, [2, 3, 2, 2, 3, 4], scopes, size, forbidden, coupling=0.5 * size)
    scopes = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0)]
    yield random_model(rng, [3, 2, 4], scopes, size, forbidden, coupling=0.5 * size)


@pytest.mark.parametrize("seed", range(3))
def test_one_fixed_point(seed, in_logarithms):
    """All schedules meet, damped or not; probabilities and logarithms agree."""
    for model in loops(seed):
        wanted = of(model, "sync", 1e-14, damping=0.3)
        for schedule in SCHEDULES:
            found = of(model, schedule, 1e-12)
            assert found.converged.all() and found.sweeps[0] < 200
            np.testing.assert_allclose(found.p_var, wanted.p_var, atol=1e-9)
            np.testing.assert_allclose(found.p_table, wanted.p_table, atol=1e-9)
            np.testing.assert_allclose(found.log_z, wanted.log_z, rtol=1e-9)
        exact = listed(model)
        assert abs(wanted.log_z[0] - exact.log_z) < 0.2
        assert not np.allclose(flat_rows(model, wanted.p_var), exact.p_tables[: sum(model.cards)], atol=1e-9)


@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_the_gradient_is_beliefs(forbidden, in_logarithms):
    """Of Bethe's log Z at a fixed point, by scores of variables and cells of factors, weights included."""
    for model in loops(5, forbidden=forbidden):
        free = np.isfinite(model.log_phi)
        scores = np.concatenate([model.log_phi[free], model.log_tables])
        finite = np.isfinite(scores)

        def log_z(x, model=model, free=free, scores=scores, finite=finite):
            own, log_phi = scores.copy(), model.log_phi.copy()
            own[finite] = x
            log_phi[free] = own[: free.sum()]
            options = check_options("sweep", 1e-14)
            return propagate(model.graph, log_phi, own[free.sum() :], options).log_z[0]

        found = of(model, "sweep", 1e-14)
        beliefs = np.concatenate([found.p_var[free], found.p_table])
        assert not beliefs[~finite].any()
        np.testing.assert_allclose(
            beliefs[finite], central_differences(log_z, scores[finite]), rtol=0.0, atol=2e-8
        )
        double = propagate(
            model.graph, model.log_phi, model.log_tables, check_options("sweep", 1e-14), np.array([2.0])
        )
        np.testing.assert_allclose(double.p_table, 2.0 * found.p_table, rtol=1e-12)


def test_the_value_is_bethes(in_logarithms):
    """B.5 term by term, and its identity: score(y) - log Z = sum_f log b_f - sum_v (d_v - 1) log b_v."""
    for model in loops(6):
        found, exact = of(model, "sweep", 1e-14), listed(model)
        degree = np.diff(model.graph.var_ptr)

        def entropy(p):
            return -np.sum(p * np.log(p))

        value, first, log_b = 0.0, 0, np.zeros(len(exact.paths))
        for f, n in enumerate(factor_sizes(model.cards, model.scopes)):
            scores, p = model.log_tables[first : first + n], found.p_table[first : first + n]
            value, first = value + p @ scores + entropy(p), first + n
            labels = exact.paths[:, list(model.scopes[f])].T
            log_b += np.log(p)[np.ravel_multi_index(labels, [model.cards[v] for v in model.scopes[f]])]
        for v, n in enumerate(model.cards):
            p = found.p_var[v, :n]
            value += p @ model.log_phi[v, :n] + (1 - degree[v]) * entropy(p)
            log_b -= (degree[v] - 1) * np.log(p)[exact.paths[:, v]]
        np.testing.assert_allclose(found.log_z, value, rtol=1e-12)
        np.testing.assert_allclose(exact.scores - found.log_z, log_b, atol=1e-9)


def test_beliefs_agree_at_a_fixed_point():
    for model in loops(7, forbidden=0.15):
        found, first = of(model, "tree", 1e-13), 0
        for scope, n in zip(model.scopes, factor_sizes(model.cards, model.scopes), strict=True):
            table = found.p_table[first : first + n].reshape([model.cards[v] for v in scope])
            first += n
            for axis, v in enumerate(scope):
                p = table.sum(axis=tuple(a for a in range(len(scope)) if a != axis))
                np.testing.assert_allclose(p, found.p_var[v, : model.cards[v]], atol=1e-10)


def test_grmm_stops_too_early():
    """At a tolerance of 1e-12, beliefs are far from the fixed point; the strict rule's are not."""
    model, worst = random_model(np.random.default_rng(0), *ladder(5, (4, 3)), coupling=1.5), {}
    wanted = of(model, "sync", 1e-13)
    for early_stop in (False, True):
        worst[early_stop] = max(
            np.abs(of(model, "tree", 1e-12, seed=seed, early_stop=early_stop).p_var - wanted.p_var).max()
            for seed in range(100)
        )
    assert worst[False] < 1e-9 and worst[True] > 1e-6


@schedules
def test_what_does_not_converge_is_counted(schedule, in_logarithms):
    """Strong couplings that contradict each other: finite beliefs, no more sweeps than allowed."""
    scopes = [(u, v) for u in range(6) for v in range(u)]
    signs = np.random.default_rng(4).choice([-3.0, 3.0], len(scopes))
    tables = np.concatenate([sign * np.array([1.0, -1.0, -1.0, 1.0]) for sign in signs])
    graph = factor_graph([2] * 6, scopes)
    phi = phi_rows(graph, np.random.default_rng(2).normal(0.0, 0.5, (6, 2)))
    found = propagate(graph, phi, tables, check_options(schedule, 1e-9, 60))
    assert not found.converged[0] and found.sweeps[0] == 60
    for part in (found.log_z, found.p_var, found.p_table):
        assert np.isfinite(part).all()
    np.testing.assert_allclose(found.p_var.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.p_table.reshape(-1, 4).sum(axis=1), 1.0, rtol=1e-12)


def test_damping_helps():
    graph = factor_graph([2, 2, 2], [(0, 1), (1, 2), (2, 0)])
    tables = -4.0 * np.array([1.0, -1.0, -1.0, 1.0] * 3)
    phi = phi_rows(graph, [[0.0, 0.5], [0.1, 0.0], [0.0, 0.0]])
    swings = propagate(graph, phi, tables, check_options("sync", 1e-9, 300))
    damped = propagate(graph, phi, tables, check_options("sync", 1e-9, 300, 0.5))
    assert not swings.converged[0] and damped.converged[0]


@schedules
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_no_sweep(schedule, size):
    """Beliefs of uniform messages."""
    model = next(loops(8, size, 0.2))
    found = of(model, schedule, max_sweeps=0)
    assert not found.converged[0] and found.sweeps[0] == found.n_messages == 0
    phi = np.exp(model.log_phi - model.log_phi.max(axis=1)[:, None])
    np.testing.assert_allclose(found.p_var, phi / phi.sum(axis=1)[:, None], atol=1e-13)
    assert np.isfinite(found.log_z).all() and np.isfinite(found.p_table).all()


@pytest.mark.parametrize("schedule", ["sync", "random", "sweep", "tree"])
def test_three_sweeps(schedule):
    """tol = 0: exactly as many as asked for."""
    model = next(loops(9))
    found = of(model, schedule, 0.0, max_sweeps=3)
    assert found.sweeps[0] == 3 and not found.converged[0]


@schedules
def test_all_is_forbidden(schedule, in_logarithms):
    """Messages find it: log Z is -inf, beliefs are 0, nothing is NaN."""
    model = random_model(np.random.default_rng(0), *ladder(3, (3, 2)))
    model.log_tables[: 3 * 2] = -np.inf
    found, best = of(model, schedule), best_of(model, schedule)
    assert found.log_z[0] == best.score[0] == -np.inf
    assert not found.p_var.any() and not found.p_table.any() and not best.labels.any()
    model = random_model(np.random.default_rng(0), [2, 2, 3], [(0, 1), (1, 2)])
    model.log_tables[:4] = [0.0, -np.inf, -np.inf, 0.0]
    model.log_phi[0, 0] = model.log_phi[1, 1] = -np.inf
    assert of(model, schedule).log_z[0] == best_of(model, schedule).score[0] == -np.inf


def test_labels_of_what_is_forbidden_are_0():
    graph = factor_graph([3, 2], [(0, 1)])
    phi = phi_rows(graph, [[0.0, 2.0, 1.0], [-np.inf, -np.inf]])
    for most in (0, 9):
        best = max_marginals(graph, phi, np.zeros(6), check_options(max_sweeps=most))
        assert best.labels.tolist() == [0, 0] and best.score[0] == -np.inf


@schedules
@pytest.mark.parametrize("size, forbidden", [(1e3, 0.0), (1e3, 0.3), (100.0, 0.4)])
def test_loops_far_apart(schedule, size, forbidden):
    """Beliefs are distributions, log Z is a number; what converges agrees with itself."""
    for seed in range(5):
        for model in loops(seed, size, forbidden):
            found, best = of(model, schedule, 1e-9, max_sweeps=50), best_of(model, schedule, max_sweeps=50)
            assert np.isfinite(found.log_z).all()
            np.testing.assert_allclose(found.p_var.sum(axis=1), 1.0, rtol=1e-9)
            assert best.score[0] <= listed(model).score + 1e-9
            own = listed(model).scores[np.ravel_multi_index(best.labels, model.cards)]
            np.testing.assert_allclose(best.score, own, rtol=1e-12)


def test_scores_of_another_graph():
    graph = factor_graph([2, 5], [(0, 1)])
    with pytest.raises(ValueError) as caught:
        propagate(graph, np.zeros((2, 5)), np.zeros(10))
    assert str(caught.value) == "scores: expected log_phi (2, 8) and log_tables (10,), got (2, 5) and (10,)"
    with pytest.raises(ValueError, match="expected log_phi"):
        max_marginals(graph, np.zeros((2, 8)), np.zeros((2, 5)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_are_none(wrong):
    graph = factor_graph([2, 5], [(0, 1)])
    for place in ((1, 4), (0, 0)):
        log_phi = np.zeros((2, 8))
        log_phi[place] = wrong
        for run in (propagate, max_marginals):
            with pytest.raises(ValueError) as caught:
                run(graph, log_phi, np.zeros(10))
            assert (
                str(caught.value)
                == f"log_phi[{place[0]}, {place[1]}]: expected a finite score, or -inf, got {wrong}"
            )
            with pytest.raises(ValueError, match=r"log_tables\[3\]: expected a finite score, or -inf"):
                run(graph, np.zeros((2, 8)), np.where(np.arange(10) == 3, wrong, 0.0))


@schedules
@pytest.mark.parametrize("behind", [0.0, 7.0, np.nan, np.inf])
def test_what_stands_behind_labels_is_not_read(schedule, behind, in_logarithms):
    model = random_model(np.random.default_rng(0), [2, 3, 5], [(0, 1)])
    padded = np.where(np.arange(8) < np.array(model.cards)[:, None], model.log_phi, behind)
    other = model._replace(log_phi=padded)
    found, wanted = of(other, schedule), of(model, schedule)
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(best_of(other, schedule).labels, best_of(model, schedule).labels)


@pytest.mark.parametrize("kind", ["float32", "longdouble", "list", "read only", "strided"])
def test_scores_of_other_kinds(kind):
    """float32 too: its exp(-200) would be 0, which is a forbidden label."""
    model = random_model(np.random.default_rng(0), [2, 3, 4], [(0, 1), (1, 2)])
    scores = [np.rint(8.0 * model.log_phi) / 8.0, np.rint(8.0 * model.log_tables) / 8.0]
    scores[0][0, :2], scores[1][:6] = [0.0, -200.0], [0.0] * 3 + [200.0] * 3
    wanted = propagate(model.graph, *scores)
    if kind == "list":
        other = [part.tolist() for part in scores]
    elif kind == "strided":
        other = [np.repeat(part, 2, axis=-1)[..., ::2] for part in scores]
    else:
        other = [part.astype(float if kind == "read only" else kind) for part in scores]
        for part in other:
            part.flags.writeable = False
    found = propagate(model.graph, *other)
    np.testing.assert_array_equal(found.log_z, wanted.log_z)
    np.testing.assert_array_equal(found.p_table, wanted.p_table)
    best = max_marginals(model.graph, *other)
    np.testing.assert_array_equal(best.labels, max_marginals(model.graph, *scores).labels)
    assert 0.1 < found.p_var[0, 1] < 0.9


def test_bad_weights_and_schedules_of_blocks():
    graph = factor_graph([2, 5], [(0, 1)])
    scores = np.zeros((2, 8)), np.zeros(10)
    for weight in (2.0, np.ones(3), []):
        with pytest.raises(ValueError, match="weight: expected one for each of 1 components, got"):
            propagate(graph, *scores, weight=weight)
    for run in (propagate, max_marginals):
        with pytest.raises(ValueError, match="schedule: expected one of 'sync', .*, got 'block'"):
            run(graph, *scores, check_options("block"))


@pytest.mark.parametrize(("n", "tol", "seed", "most"), [(6, 0.1, 39, 3), (8, 0.1, 33, 5), (8, 0.01, 1, 9)])
def test_residual_sends_no_more_than_it_may(n, tol, seed, most):
    """Where the sweep that ends finds a change again and again."""
    scopes = [(u, v) for u in range(n) for v in range(u)]
    model = random_model(np.random.default_rng(seed), [2] * n, scopes, coupling=2.0)
    found = of(model, "residual", tol, max_sweeps=most)
    assert most <= found.sweeps[0] <= most + 1


# ---- kernels ----


@pytest.mark.parametrize(
    "cards", [[5, 3], [1, 7], [19, 42], [2, 3, 5], [3, 4, 2], [2, 3, 4, 3], [5, 1, 2, 6]]
)
def test_messages_as_they_are_read(cards):
    """The fast kernels against the plain one: any messages, each end, neighbours of another factor."""
    rng = np.random.default_rng(len(cards))
    scope = tuple(range(len(cards)))
    model = random_model(rng, [*cards, 2], [scope, scope[::-1], (0, len(cards)), (1, len(cards))], 1.0, 0.1)
    graph, n = model.graph, model.graph.n_labels[model.graph.slot_var]
    scores, _ = loopy._scores(graph, model.log_phi, model.log_tables)
    inside = np.arange(graph.width) < n[:, None]
    msg = np.where(inside, rng.random((len(n), graph.width)), 0.0)
    msg /= msg.sum(axis=1)[:, None]
    work = Buffers(*(np.full(size, np.nan) for size in (graph.most_rows, graph.width, graph.width)))
    with np.errstate(divide="ignore"):
        logs = np.log(msg)
    for s in range(len(n)):
        order, want = np.array([s]), np.full(graph.width, np.nan)
        plain_message(s, graph, loopy._exp(scores), msg, want)
        for domain in (SUM, LOG_SUM):
            change, lost = np.zeros(1), np.zeros(1, np.uint8)
            potentials, old, view = (
                (scores, logs, np.exp) if domain == LOG_SUM else (loopy._exp(scores), msg, np.array)
            )
            out, damped = np.full((2, *msg.shape), 0.0 if domain is SUM else -np.inf)
            what = order, graph, potentials, old, domain
            message_sweep(*what, out, 0.0, change, lost, work)
            largest, new = np.abs(out[s, : n[s]] - old[s, : n[s]]).max(), view(out)
            assert not lost[0] and change[0] == pytest.approx(largest, rel=1e-9)
            np.testing.assert_allclose(new[s, : n[s]], want[: n[s]], rtol=1e-12, atol=1e-15)
            assert not new[s, n[s] :].any() and not new[np.arange(len(n)) != s].any()
            message_sweep(*what, damped, 0.25, change, lost, work)
            np.testing.assert_allclose(view(damped)[s], 0.75 * want + 0.25 * msg[s], rtol=1e-12, atol=1e-15)


def test_small_products_are_reported():
    """At a variable, and over the variables of a factor: positive and below LEAST, or soon to be."""
    graph = factor_graph([2, 2, 2, 2], [(0, 1, 2), (0, 3), (3, 0)])
    phi, msg = np.ones((4, 4)), np.tile([1.0, 1e-100, 0.0, 0.0], (7, 1))
    w, q = np.zeros(4), np.zeros(4)
    assert cavity_at(3, -1, graph, phi, msg, SUM, q)[0] == 1 and q[1] == pytest.approx(1e-200)
    assert cavity_at(0, -1, graph, phi, msg, SUM, q)[0] == 2 and q[1] == pytest.approx(1e-300)
    assert cavity_at(3, 4, graph, phi, msg, SUM, q)[0] == 0
    phi[1:3, 1] = 1e-80
    rows, lost, _ = cavities_of_others(0, graph, phi, msg, SUM, w, q)
    assert rows == 4 and lost == 1 and w.tolist() == pytest.approx([1.0, 1e-80, 1e-80, 1e-160])


def test_the_largest_change_first():
    """Residual propagation by its readable sister: all changes are computed again for each message."""
    model = next(loops(10))
    graph = model.graph
    scores, _ = loopy._scores(graph, model.log_phi, model.log_tables)
    potentials, msg = loopy._exp(scores), loopy._uniform(graph, SUM)
    for n_sent in range(1, 4):
        assert loopy.residual_plain(graph, potentials, msg, 0.0, len(msg)) == len(msg)
        found = of(model, "residual", 0.0, max_sweeps=n_sent)
        p = potentials.phi.copy()
        for s, v in enumerate(graph.slot_var):
            p[v] *= msg[s]
        np.testing.assert_allclose(found.p_var, p / p.sum(axis=1)[:, None], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_readable_sisters_send_the_same_messages(seed):
    """Residual propagation until no change is large, then sweeps of all kinds."""
    rng = np.random.default_rng(seed)
    for model in loops(seed):
        graph = model.graph
        potentials = loopy._exp(loopy._scores(graph, model.log_phi, model.log_tables)[0])
        msg, work, lost = loopy._uniform(graph, SUM), loopy._buffers(graph), np.zeros(1, np.uint8)
        state = loopy.State(np.zeros(1), lost, np.zeros(1, np.int64))
        fast, queue, what = msg.copy(), loopy._queue(msg, SUM), (graph, potentials)
        loopy.residual_messages(np.array([0]), *what, SUM, fast, 1e-3, 1000, queue, state, work)
        n_sent = loopy.residual_plain(*what, msg, 1e-3, 1000)
        assert 0 < n_sent < 1000 and state.sweeps[0] == -(-n_sent // len(msg))
        np.testing.assert_allclose(fast, msg, rtol=0, atol=1e-12)
        for at_once, damping in ((False, 0.0), (True, 0.0), (True, 0.3)):
            order, old, change = rng.permutation(len(msg)), loopy._uniform(graph, SUM), np.zeros(1)
            msg, new = old.copy(), old.copy() if at_once else old
            message_sweep(order, *what, old, SUM, new, damping, change, lost, work)
            largest = sweep_messages_plain(order, *what, msg, at_once, damping)
            np.testing.assert_allclose(new, msg, rtol=0, atol=1e-12)
            assert change[0] == pytest.approx(largest, rel=1e-9)


def test_scores_of_labels():
    model = next(loops(11))
    exact = listed(model)
    for path, score in zip(exact.paths[::97], exact.scores[::97], strict=True):
        found = score_of(model.graph, model.log_phi, model.log_tables, path)
        np.testing.assert_allclose(found, [score], rtol=1e-12)


@pytest.mark.parametrize("schedule", ["sweep", "residual", "tree"])
def test_a_long_chain_with_skip_links(schedule):
    """10^5 variables; what every sweep costs is linear."""
    n = 100_000
    rng = np.random.default_rng(0)
    starts = rng.choice(n - 60, n // 10, replace=False)
    scopes = np.concatenate(
        [
            np.stack([np.arange(n - 1), np.arange(1, n)], axis=1),
            np.stack([starts, starts + rng.integers(2, 60, len(starts))], axis=1),
        ]
    )
    tables = np.concatenate([rng.normal(size=9), np.where(np.eye(3, dtype=bool), 0.5, 0.0).reshape(-1)])
    graph = factor_graph([3] * n, scopes.tolist(), np.repeat([0, 1], [n - 1, len(starts)]))
    phi = phi_rows(graph, rng.normal(size=(n, 3)))
    found = propagate(graph, phi, tables, check_options(schedule))
    assert found.converged[0] and found.n_messages < 40 * len(graph.slot_var)
    np.testing.assert_allclose(found.p_var.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.p_table.reshape(2, 9).sum(axis=1), [n - 1, len(starts)], rtol=1e-9)
    best = max_marginals(graph, phi, tables, check_options("sweep", 1e-3, 20))
    assert best.score[0] >= score_of(graph, phi, tables, found.p_var.argmax(axis=1).astype(np.int32))[0]
