"""Active sets: enumeration of the model that they stand for, their bound, and what they must not break."""

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model
from helpers.problems import CASES, case, central_differences, constraints_for

from crfbook import brute
from crfbook.chain import inference
from crfbook.chain.active.form import OUTSIDE, RULES, ActiveObjective
from crfbook.chain.active.sequence import active_marginals_plain
from crfbook.chain.numpy_form import attribute_pairs
from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import log_edge, observed
from crfbook.learners.quasi_newton import ActiveLBFGS, minimize
from crfbook.training.loop import run

pytestmark = pytest.mark.kernels
ONE_CLASS = [name for name, options in CASES.items() if options.get("n_classes", 1) == 1]
EVERY = [(eps, rule, outside) for eps in (0.05, 0.3, 0.7) for rule in RULES for outside in OUTSIDE]


def by_definition(u, table, gold, eps, rule, outside):
    """log Z of the model that the sets stand for, by enumeration."""
    T, L = u.shape
    every = np.tile(table, (T, 1, 1))
    a = np.exp(u[0] - u[0].max())
    for t in range(T):
        if t:
            psi = np.exp(every[t])
            a = np.exp(u[t] - u[t].max()) * (a @ psi)
        a = a / a.sum()
        least = eps
        if rule == "mass":
            falling = np.sort(a)[::-1]
            least = falling[np.searchsorted(np.cumsum(falling), 1.0 - eps - 1e-15)] if eps else 0.0
        active = a >= least
        active[gold[t]] = True
        if t + 1 < T:
            if outside == "default":
                away = np.where(table > -np.inf, 0.0, -np.inf)
            else:
                away = np.full((L, L), -np.inf)
                a = np.where(active, a, 0.0)
                a /= a.sum()
            every[t + 1] = np.where(active[:, None], table, away)
    return brute.log_z(u, every, np.arange(T))


def whole(name, size=1.0, constrained=False):
    corpus, features, w = case(name, size=size)
    return corpus, features, w, constraints_for(corpus, features.n_labels) if constrained else None


@pytest.mark.parametrize("name", ["plain", "two labels", "five labels"])
@pytest.mark.parametrize(("eps", "rule", "outside"), EVERY)
def test_log_z_is_that_of_the_model_of_the_sets(name, eps, rule, outside):
    corpus, features, w, _ = whole(name)
    objective = ActiveObjective(corpus, features, eps=eps, rule=rule, outside=outside)
    value, _ = objective(w)
    node = inference.node_scores(corpus, features, w)
    table = log_edge(features, w, corpus.class_ptr, corpus.class_attr)[0]
    want = 0.0
    for s in range(corpus.n_sequences):
        lo, hi = corpus.seq_ptr[s : s + 2]
        if hi > lo:
            u, gold = node[lo:hi], corpus.labels[lo:hi]
            log_z = by_definition(u, table, gold, eps, rule, outside)
            score = u[np.arange(hi - lo), gold].sum()
            score += sum(table[gold[t - 1], gold[t]] for t in range(1, hi - lo))
            want += log_z - score
    assert value == pytest.approx(want, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ONE_CLASS)
@pytest.mark.parametrize("constrained", [False, True])
def test_everything_active_is_exact(name, constrained):
    for size in (1.0, 300.0):
        corpus, features, w, constraints = whole(name, size, constrained)
        want = Objective(corpus, features, c2=0.3, constraints=constraints, form="default")(w)
        active = ActiveObjective(corpus, features, c2=0.3, constraints=constraints, eps=0.0)
        value, grad = active(w)
        assert value == pytest.approx(want[0], rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(grad, want[1], rtol=1e-8, atol=1e-8 * max(1.0, np.abs(want[1]).max()))
        assert active.error_bound <= 1e-9 * max(1.0, abs(value))


@pytest.mark.parametrize("name", ONE_CLASS)
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(("eps", "rule", "outside"), EVERY)
def test_the_bound_holds_and_the_gradient_is_that_of_the_value(name, constrained, eps, rule, outside):
    corpus, features, w, constraints = whole(name, 1.5, constrained)
    exact = Objective(corpus, features, constraints=constraints, form="default")
    sets = {"eps": eps, "rule": rule, "outside": outside}
    active = ActiveObjective(corpus, features, constraints=constraints, **sets)
    (want, _), (value, grad) = exact(w), active(w)
    error = active.error_bound
    assert abs(value - want) <= error + 1e-9 * max(1.0, abs(want))
    above, below = active._made["batched"][0].bound
    assert np.all(below <= exact._log_z + 1e-9) and np.all(exact._log_z <= above + 1e-9)
    if outside == "zero":
        assert value <= want + 1e-9
    assert value >= -1e-9  # the gold labelling is never lost
    want = central_differences(lambda v: active(v)[0], w)
    np.testing.assert_allclose(grad, want, rtol=1e-5, atol=1e-6)
    assert active.error_bound == error  # of the moment when the sets were made


def test_sets_stay_until_they_are_renewed():
    corpus, features, w, _ = whole("plain")
    active = ActiveObjective(corpus, features, eps=0.3)
    active(w)
    there = active(2.0 * w)[0]
    active.renew()
    assert active(2.0 * w)[0] != pytest.approx(there, rel=1e-6)
    again = ActiveObjective(corpus, features, eps=0.3)
    assert active(2.0 * w)[0] == again(2.0 * w)[0]


def many(seed=0, n_labels=60, size=1.0):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, tuple(rng.integers(0, 12, 60)), n_labels, 80)
    return corpus, *random_model(rng, corpus, n_labels, 80, size=size)


@pytest.mark.parametrize("size", [0.0, 0.3, 2.0, 40.0, 1000.0])
@pytest.mark.parametrize("outside", OUTSIDE)
def test_many_labels_and_large_scores(size, outside):
    corpus, features, w = many(size=size)
    (exact, want), bounds = Objective(corpus, features, form="batched")(w), []
    value, grad = ActiveObjective(corpus, features, eps=0.0, outside=outside)(w)
    assert value == pytest.approx(exact, rel=1e-9)
    np.testing.assert_allclose(grad, want, rtol=1e-8, atol=1e-8 * max(1.0, np.abs(want).max()))
    for eps in (0.0, 1e-4, 1e-2, 0.2):
        active = ActiveObjective(corpus, features, eps=eps, outside=outside)
        value, grad = active(w)
        assert np.isfinite(value) and np.isfinite(grad).all()
        assert abs(value - exact) <= active.error_bound + 1e-9 * max(1.0, abs(exact))
        bounds.append(active.error_bound)
    assert bounds[0] <= 1e-8 * max(1.0, exact)
    if 0.3 <= size <= 2.0:
        assert bounds[1] < bounds[3]


def test_the_default_outside_is_closer_than_nothing():
    errors = {}
    for outside in OUTSIDE:
        errors[outside] = 0.0
        for seed in range(5):
            corpus, features, w = many(seed, size=0.7)
            exact = Objective(corpus, features, form="default")(w)[0]
            errors[outside] += abs(ActiveObjective(corpus, features, eps=0.01, outside=outside)(w)[0] - exact)
    assert errors["default"] < 0.5 * errors["zero"]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_any_number_of_threads_and_batches(n_threads):
    corpus, features, w = many(3)
    want = ActiveObjective(corpus, features, eps=0.01)
    got = ActiveObjective(corpus, features, eps=0.01, n_threads=n_threads, batch_tokens=20)
    assert got(w)[0] == pytest.approx(want(w)[0], rel=1e-12)
    np.testing.assert_allclose(got(w)[1], want(w)[1], atol=1e-10)


@pytest.mark.parametrize("n_labels", [1, 2])
def test_few_labels_and_short_sequences(n_labels):
    corpus = random_corpus(np.random.default_rng(0), (0, 1, 2, 3), n_labels, 3)
    features = observed(corpus, n_labels, 3, 1)
    w = np.linspace(-1.0, 1.0, features.n_features)
    exact = Objective(corpus, features, form="default")(w)
    active = ActiveObjective(corpus, features, eps=0.9)
    value, _ = active(w)
    assert abs(value - exact[0]) <= active.error_bound + 1e-12


def repelled(size, n_labels=12):
    """Labels that repel all others but one: sums of which stored pairs leave next to nothing."""
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, (6,) * 12, n_labels, 5)
    features = observed(corpus, n_labels, 5, 1)
    w = rng.normal(size=features.n_features)
    w[features.n_node :] = -size
    return corpus, features, w


@pytest.mark.parametrize("size", [5.0, 20.0, 35.0, 60.0, 400.0])
def test_what_cancels_is_made_anew(size):
    corpus, features, w = repelled(size)
    for outside in OUTSIDE:
        want = Objective(corpus, features, form="batched")(w)
        active = ActiveObjective(corpus, features, eps=0.0, outside=outside)
        value, grad = active(w)
        assert value == pytest.approx(want[0], rel=1e-10)
        np.testing.assert_allclose(grad, want[1], rtol=1e-7, atol=1e-9)
        assert active.error_bound <= 1e-8 * want[0]
        some = ActiveObjective(corpus, features, eps=0.2, outside=outside)
        assert abs(some(w)[0] - want[0]) <= some.error_bound + 1e-8


def test_sequences_in_the_log_form_keep_all_labels():
    """Frozen sets were made where their scores were too large: small weights later are exact."""
    for seed in range(3):
        corpus, features, w = many(seed, n_labels=20, size=300.0)
        active = ActiveObjective(corpus, features, eps=1e-3)
        active(w)
        few = w / 300.0
        want = Objective(corpus, features, form="default")(few)[0]
        assert active(few)[0] == pytest.approx(want, rel=1e-6)


def test_a_pair_that_outweighs_a_share_of_zero():
    """In logarithms: 300 nats of a transition bring back a label that is 760 below the others."""
    corpus = make_corpus([0, 2, 4], [0, 1, 2, 3, 4], [0, 1, 0, 1], labels=[2, 1, 0, 0])
    features = observed(corpus, 3, 2, 1, all_states=True)
    allowed, every = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]], bool), np.ones(3, bool)
    w = np.zeros(features.n_features)
    w[:6] = 0.0, -640.0, -760.0, 0.0, 700.0, 0.0
    w[features.n_node :][(features.edge_prev == 2) & (features.edge_next == 1)] = 300.0
    constraints = Constraints(allowed, every, every)
    want = inference.log_partition(corpus, features, w, constraints, form="batched")
    assert want == pytest.approx([240.0, 240.0])
    assert inference.log_partition(corpus, features, w, constraints, form="default") == pytest.approx(want)


def test_no_lost_mass_is_exact():
    corpus, features, w = many(size=3.0)
    want = Objective(corpus, features, form="batched")(w)[0]
    assert ActiveObjective(corpus, features, eps=0.0, rule="mass")(w)[0] == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize("eps", [-0.1, 1.0, float("nan"), "much", None, True, np.False_, 1j])
def test_a_bad_eps_is_named(eps):
    corpus, features, _, _ = whole("plain")
    with pytest.raises(ValueError, match=r"eps: expected a number from 0 to below 1, got"):
        ActiveObjective(corpus, features, eps=eps)


def test_what_it_cannot_do_is_said():
    corpus, features, w = case(next(name for name, o in CASES.items() if o.get("n_classes", 1) > 1))
    with pytest.raises(ValueError, match="expected the same transitions at all tokens, got those of"):
        ActiveObjective(corpus, features)
    corpus, features, w = many()
    with pytest.raises(MemoryError, match=r"active sets: expected at most 0.0001 MB .* got .* a larger eps"):
        ActiveObjective(corpus, features, eps=1e-6, memory_limit=100)(w)


@pytest.mark.parametrize(("c1", "c2"), [(0.0, 0.5), (0.2, 0.1)])
def test_training_ends_on_fresh_sets_near_the_optimum(c1, c2):
    corpus, features, _ = many(1, n_labels=20)
    problem = {"c1": c1, "c2": c2, "tol": 1e-6}
    exact = minimize(
        Objective(corpus, features, c2=c2, form="default"), np.zeros(features.n_features), **problem
    )
    objective = ActiveObjective(corpus, features, c2=c2, eps=1e-3)
    found = run(ActiveLBFGS(objective, np.zeros(features.n_features), **problem))
    assert found.status == "converged"
    bounds = [step.error_bound for step in found.history]
    bound = bounds[-1]
    assert 1 < np.count_nonzero(np.isfinite(bounds)) < len(bounds)  # where sets had just been made
    fresh = ActiveObjective(corpus, features, c2=c2, eps=1e-3)
    value = fresh(found.w)[0] + c1 * np.abs(found.w).sum()
    assert value == pytest.approx(found.objective, rel=1e-6)
    # each is at most `error_bound` below the other model's minimum
    assert abs(found.objective - exact.objective) <= 2.0 * max(bound, fresh.error_bound) + 1e-3


@pytest.mark.parametrize("ended", [{"max_iterations": 7}, {"tol": 1e-3}, {"relative_change": (3, 1e-2)}])
def test_every_end_reports_fresh_sets(ended):
    corpus, features, _ = many(1, n_labels=20)
    for c2 in (0.0, 0.2):
        objective = ActiveObjective(corpus, features, c2=c2, eps=0.05)
        found = run(ActiveLBFGS(objective, np.zeros(features.n_features), c2=c2, **ended))
        fresh = ActiveObjective(corpus, features, c2=c2, eps=0.05)
        assert found.objective == pytest.approx(fresh(found.w)[0], rel=1e-12)
        assert found.history[-1].error_bound == pytest.approx(fresh.error_bound, rel=1e-12)
        exact = Objective(corpus, features, c2=c2, form="default")(found.w)[0]
        assert abs(exact - found.objective) <= found.history[-1].error_bound + 1e-9


def test_without_a_penalty_it_goes_on_past_a_renewal():
    corpus, features, _ = many(1, n_labels=20)
    rules = {"tol_gradient": 1e-3, "relative_change": (10, 1e-6)}
    exact = minimize(Objective(corpus, features, form="default"), np.zeros(features.n_features), **rules)
    objective = ActiveObjective(corpus, features, eps=1e-3)
    found = run(ActiveLBFGS(objective, np.zeros(features.n_features), **rules))
    assert found.n_iter > 15 and found.objective < 2.0 * exact.objective + 1.0


def test_training_goes_on_bit_for_bit():
    corpus, features, _ = many(2, n_labels=20)

    def train(most, state=None):
        objective = ActiveObjective(corpus, features, c2=0.5, eps=0.01)
        start = None if state else np.zeros(features.n_features)
        return run(ActiveLBFGS(objective, start, c2=0.5, max_iterations=most, state=state))

    whole_run, part = train(14), train(8)
    rest = train(14, part.state)
    np.testing.assert_array_equal(rest.w, whole_run.w)
    assert [step.objective for step in part.history + rest.history] == [
        s.objective for s in whole_run.history
    ]


@pytest.mark.parametrize("eps", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_the_readable_sister_has_the_same_sums(seed, eps):
    """log Z and expected counts; with eps = 0 also those of the default form, and of the exact objective."""
    corpus, features, w = case("five labels", seed)
    table, node = np.zeros((5, 5)), inference.node_scores(corpus, features, w)
    keep = np.random.default_rng(seed).random(features.n_edge) < 0.6
    w[features.n_node :] *= keep
    table[features.edge_prev, features.edge_next] = w[features.n_node :]
    counts, log_z, kept, weights = np.zeros((5, 5)), 0.0, 0, corpus.weights
    p_node = np.zeros_like(node)
    for s in corpus.visited:
        rows = slice(*corpus.seq_ptr[s : s + 2])
        found = active_marginals_plain(node[rows], table, corpus.labels[rows], eps)
        log_z, p_node[rows] = log_z + weights[s] * found[0], weights[s] * found[1]
        counts, kept = counts + weights[s] * found[2], kept + found[3].sum()
    score = weights @ inference.sequence_scores(corpus, features, w)
    gold = np.zeros((5, 5))
    np.add.at(gold, (corpus.labels[corpus.inner - 1], corpus.labels[corpus.inner]), 1.0)
    objectives = [ActiveObjective(corpus, features, eps=eps)]
    if eps == 0.0:
        objectives += [Objective(corpus, features, form=form) for form in ("default", "batched")]
    else:
        assert 0 < kept < node.size
    for objective in objectives:
        value, grad = objective(w)
        assert value == pytest.approx(log_z - score, rel=1e-11)
        edge = (counts - gold)[features.edge_prev, features.edge_next]
        weight, cell, x = attribute_pairs(corpus, features, np.arange(corpus.n_tokens))
        less = p_node.copy()
        less[np.arange(len(less)), corpus.labels] -= weights[corpus.sequence]
        nodes = np.bincount(weight, x * less.ravel()[cell], features.n_node)
        np.testing.assert_allclose(grad[: features.n_node], nodes, rtol=0, atol=1e-10)
        # pairs that start active alone: of the others no form has counts
        np.testing.assert_allclose(grad[features.n_node :], edge, rtol=0, atol=1e-10)
    if eps == 0.0:
        np.testing.assert_allclose(p_node, inference.node_marginals(corpus, features, w), rtol=0, atol=1e-11)
