"""L1 by four routes that share no step: all meet at one optimum, with one support;
and what each promises beside.
"""

import io

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model
from helpers.problems import kkt

from crfbook.chain.inference import iter_edge_marginals, node_marginals
from crfbook.chain.objective import Objective
from crfbook.data.features import observed
from crfbook.learners.quasi_newton.l1 import (
    BLOCK,
    LocalModel,
    dual_variables,
    owlqn_plain,
    proximal_gradient,
    proximal_step,
    pseudo_gradient,
)
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.models.crf import CRF
from crfbook.training.certificate import duality_gap


def owlqn(fun, w0=None, **options):
    return minimize(fun, w0, l1_method="owlqn", **options)


METHODS = {"proximal-newton": minimize, "owlqn": owlqn, "dual": dual_variables, "fista": proximal_gradient}
EXACT = {"tol": 1e-13, "tol_gradient": 1e-8, "max_iterations": 20000}


def problem(seed=0, c2=0.0, n_sequences=40, **options):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=rng.integers(0, 6, n_sequences), n_attrs=9, **options)
    features = observed(corpus, 3, 9, int(corpus.class_attr.max()) + 1)
    return Objective(corpus, features, c2=c2), features.n_features


@pytest.mark.parametrize("c2", [0.0, 0.2])
@pytest.mark.parametrize("c1", [0.3, 2.0])
def test_four_methods_meet_at_one_optimum(c1, c2):
    fun, n = problem(c2=c2)
    found = {name: method(fun, np.zeros(n), c1=c1, c2=c2, **EXACT) for name, method in METHODS.items()}
    best = min(result.objective for result in found.values())
    referee = found["fista"]
    assert 0 < np.count_nonzero(referee.w) < n
    for name, result in found.items():
        assert kkt(fun, result.w, c1) <= 1e-5, name
        assert result.objective == pytest.approx(best, rel=1e-10), name
        np.testing.assert_array_equal(result.w != 0, referee.w != 0, err_msg=name)
        np.testing.assert_allclose(result.w, referee.w, rtol=0, atol=1e-4, err_msg=name)
        assert result.objective == pytest.approx(fun(result.w)[0] + c1 * np.abs(result.w).sum(), rel=1e-13)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("c1", [0.3, 2.0])
def test_owlqn_takes_the_steps_of_its_readable_sister(seed, c1):
    """Weights that begin away from zero: some cross it, some reach it; later ones outgrow the memory."""
    fun, n = problem(seed, c2=0.05)
    w0 = np.random.default_rng(seed).normal(size=n)
    w0[::3] = 0.0
    for iterations in (1, 2, 3, 5, 9, 14):
        found = owlqn(fun, w0, c1=c1, memory=4, max_iterations=iterations, tol=0.0, tol_gradient=0.0)
        plain = owlqn_plain(fun, w0, c1, iterations, memory=4)
        assert found.n_iter == iterations
        np.testing.assert_allclose(found.w, plain, rtol=1e-7, atol=1e-9)
        np.testing.assert_array_equal(found.w != 0, plain != 0)
    assert ((w0 != 0) & (plain == 0)).any() and ((w0 == 0) & (plain != 0)).any()


def test_without_a_penalty_the_readable_sister_ends_where_lbfgs_ends():
    fun, n = problem(3, c2=0.05)
    found = minimize(fun, np.zeros(n), c2=0.05, **EXACT)
    np.testing.assert_allclose(owlqn_plain(fun, np.zeros(n), 0.0, 60), found.w, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_above_the_largest_gradient_nothing_survives(name):
    fun, n = problem()
    largest = np.abs(fun(np.zeros(n))[1]).max()
    nothing = METHODS[name](fun, np.full(n, 0.5), c1=1.01 * largest, **EXACT)
    assert nothing.status == "empty model" and not nothing.w.any()
    assert nothing.history[-1].n_active == 0
    one = METHODS[name](fun, np.zeros(n), c1=0.99 * largest, **EXACT)
    assert np.count_nonzero(one.w) >= 1


@pytest.mark.parametrize("name", METHODS)
def test_zero_iterations_and_callbacks(name):
    fun, n = problem()
    w0 = np.linspace(-1, 1, n)
    start = METHODS[name](fun, w0, c1=0.5, max_iterations=0)
    assert (start.status, start.n_iter, start.history) == ("max_iterations", 0, [])
    np.testing.assert_array_equal(start.w, w0)
    assert start.objective == pytest.approx(fun(w0)[0] + 0.5 * np.abs(w0).sum())
    seen = []

    def callback(step, w):
        with pytest.raises(ValueError):
            w[0] = 1.0
        seen.append((step, w.copy()))
        return len(seen) == 3

    stopped = METHODS[name](fun, np.zeros(n), c1=0.5, callback=callback)
    assert stopped.status == "stopped by callback" and stopped.n_iter == 3
    assert [step for step, _ in seen] == stopped.history
    np.testing.assert_array_equal(stopped.w, seen[-1][1])
    assert [step.n_active for step, _ in seen] == [np.count_nonzero(w) for _, w in seen]


@pytest.mark.parametrize("name", METHODS)
def test_ctrl_c_keeps_the_last_good_weights(name):
    fun, n = problem()
    calls = []

    def interrupted(w):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return fun(w)

    result = METHODS[name](interrupted, np.zeros(n), c1=0.5)
    assert result.status == "interrupted" and result.n_iter >= 1
    assert result.objective == result.history[-1].objective
    assert result.objective == pytest.approx(fun(result.w)[0] + 0.5 * np.abs(result.w).sum())

    def at_once(w):
        raise KeyboardInterrupt

    start = METHODS[name](at_once, np.ones(n), c1=0.5)
    assert (start.status, start.n_iter) == ("interrupted", 0) and np.isnan(start.objective)
    np.testing.assert_array_equal(start.w, np.ones(n))


@pytest.mark.parametrize("name", ["proximal-newton", "owlqn", "fista"])
@pytest.mark.parametrize("stop_at", [0, 1, 7, 20, 23])
def test_resumed_training_is_bit_identical(name, stop_at):
    fun, n = problem(seed=2)
    settings = {"c1": 0.2, "tol_gradient": 0.0}
    whole = METHODS[name](fun, np.zeros(n), max_iterations=30, **settings)
    kept = io.BytesIO()
    np.savez(kept, **METHODS[name](fun, np.zeros(n), max_iterations=stop_at, **settings).state)
    kept.seek(0)
    with np.load(kept, allow_pickle=False) as saved:
        resumed = METHODS[name](fun, state=dict(saved), max_iterations=30, **settings)
    assert resumed.n_iter == whole.n_iter
    np.testing.assert_array_equal(resumed.w, whole.w)
    assert resumed.objective == whole.objective


def test_dual_variables_go_on_from_the_weights_of_a_state():
    fun, n = problem()
    first = dual_variables(fun, np.zeros(n), c1=0.5, max_iterations=4)
    second = dual_variables(fun, state=first.state, c1=0.5, **EXACT)
    assert second.history[0].iteration == 5 and second.history[0].objective <= first.objective
    assert second.objective == pytest.approx(minimize(fun, np.zeros(n), c1=0.5, **EXACT).objective, rel=1e-9)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c1": -1.0}, "c1: expected"),
        ({"c2": np.inf}, "c2: expected"),
        ({"max_iterations": 1.5}, "max_iterations: expected"),
        ({"w0": None}, "got None"),
        ({"w0": np.array([0.0, np.nan])}, "w0: expected finite weights, got nan at position 1"),
        ({"fun": lambda w: (0.0, np.zeros(3))}, r"gradient of shape \(2,\)"),
    ],
)
def test_bad_arguments_are_named(name, change, message):
    arguments = {"fun": lambda w: (w @ w, 2 * w), "w0": np.ones(2), "c1": 0.1, **change}
    fun, w0 = arguments.pop("fun"), arguments.pop("w0")
    with pytest.raises(ValueError, match=message):
        METHODS[name](fun, w0, **arguments)
    with pytest.raises(ValueError, match="l1_method: expected one of 'proximal', 'owlqn', got 'fista'"):
        minimize(fun, w0, c1=0.0, l1_method="fista")


@pytest.mark.parametrize("name", METHODS)
def test_nan_from_the_start_is_said(name):
    result = METHODS[name](lambda w: (np.nan, w), np.ones(2), c1=0.5)
    assert result.status == "non-finite objective" and result.n_iter == 0
    np.testing.assert_array_equal(result.w, np.ones(2))


def test_duality_gap_bounds_the_distance_and_closes():
    fun, n = problem()
    result = minimize(fun, np.zeros(n), c1=0.5, **EXACT)
    assert -1e-9 <= duality_gap(*fun(result.w), result.w, 0.5) <= 1e-5 * result.objective
    rng = np.random.default_rng(0)
    for w in (np.zeros(n), *(result.w + rng.normal(0.0, size, n) for size in (0.01, 0.3, 3.0))):
        assert fun(w)[0] + 0.5 * np.abs(w).sum() - result.objective <= duality_gap(*fun(w), w, 0.5) + 1e-9


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_do_not_change_a_bit(threads):
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, lengths=rng.integers(1, 30, 150), n_attrs=9)
    features = observed(corpus, 3, 9)
    runs = [
        minimize(
            Objective(corpus, features, n_threads=k), np.zeros(features.n_features), c1=0.2, max_iterations=30
        )
        for k in (1, threads)
    ]
    np.testing.assert_array_equal(runs[0].w, runs[1].w)


@pytest.mark.parametrize(
    "options", [{}, {"n_classes": 3}, {"valued": True}, {"weighted": True, "n_classes": 2}]
)
def test_curvature_is_a_sum_of_variances(options):
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng, **options)
    features, w = random_model(rng, corpus)
    weight = corpus.seq_weight if len(corpus.seq_weight) else np.ones(corpus.n_sequences)
    p = node_marginals(corpus, features, w)
    expected = np.full(features.n_features, 2 * 0.1)
    for i, p_edge in enumerate(iter_edge_marginals(corpus, features, w)):
        for t in range(corpus.seq_ptr[i], corpus.seq_ptr[i + 1]):
            for j in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
                a, x = corpus.attr_idx[j], corpus.attr_val[j] if len(corpus.attr_val) else 1.0
                for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
                    q = p[t, features.node_label[k]]
                    expected[k] += weight[i] * x * x * q * (1 - q)
        for q, t in zip(p_edge, range(corpus.seq_ptr[i] + 1, corpus.seq_ptr[i + 1]), strict=True):
            c = corpus.edge_class[t]
            for b in corpus.class_attr[corpus.class_ptr[c] : corpus.class_ptr[c + 1]]:
                row = slice(features.edge_ptr[b], features.edge_ptr[b + 1])
                pairs = q[features.edge_prev[row], features.edge_next[row]]
                expected[features.n_node :][row] += weight[i] * pairs * (1 - pairs)
    np.testing.assert_allclose(Objective(corpus, features, c2=0.1).curvature(w), expected, rtol=1e-12)


def test_curvature_of_other_losses_is_not_known():
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng)
    features, _ = random_model(rng, corpus)
    objective = Objective(corpus, features, loss="pointwise-log")
    assert objective.curvature is None
    result = minimize(objective, np.zeros(features.n_features), c1=0.3, tol_gradient=1e-6)
    assert kkt(objective, result.w, 0.3) <= 1e-5


def bfgs(width, pairs, free):
    """B as the textbook updates it, pair by pair, from a diagonal that fits the free part of the newest."""
    s, y = pairs[-1]
    b = np.diag(width) * ((y * y / width)[free].sum() / (s @ y))
    for s, y in pairs:
        b = b - np.outer(b @ s, b @ s) / (s @ b @ s) + np.outer(y, y) / (s @ y)
    return b


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_the_step_is_the_minimum_of_a_model_with_the_bfgs_matrix(monkeypatch, m, measured):
    """Newton's method to its end: the conditions of a minimum hold with a B that is formed."""
    monkeypatch.setattr("crfbook.learners.quasi_newton.l1.FLAT", 1e-13)
    monkeypatch.setattr("crfbook.learners.quasi_newton.l1.TRIALS", 50)
    rng, n, c1 = np.random.default_rng(m), 30, 0.7
    hessian = np.diag(rng.uniform(2.0, 9.0, n)) + 0.1
    s = rng.standard_normal((m + 1, n))
    y = s @ hessian + 0.05 * rng.standard_normal((m + 1, n))  # s_i.y_j is not s_j.y_i
    rows = tuple(rng.permutation(m + 1)[:m].tolist())
    w, grad = 0.3 * rng.standard_normal(n) * (rng.random(n) < 0.6), 2 * rng.standard_normal(n)
    pg, d = np.empty((2, n))
    pseudo_gradient(w, grad, c1, pg)
    free, model = (w != 0) | (pg != 0), LocalModel(c1, lambda _: width)
    width = rng.uniform(1.0, 2.0, n) if measured else np.ones(n)
    if measured:
        model.measure(w)
    promised = model.descend(w, grad, pg, (s, y, rows), d)
    moved, slope = w + d, grad + bfgs(width, [(s[row], y[row]) for row in rows], free) @ d
    assert 0 < np.count_nonzero(moved[free]) < free.sum() < n and not d[~free].any()
    np.testing.assert_allclose(slope[moved != 0], -c1 * np.sign(moved[moved != 0]), atol=1e-9)
    assert (np.abs(slope[free & (moved == 0)]) <= c1 + 1e-9).all()
    assert promised == pytest.approx(grad @ d + c1 * (np.abs(moved).sum() - np.abs(w).sum())) and promised < 0
    # a pair later only its own products are new
    more, again = (*rows[1:], ({*range(m + 1)} - {*rows}).pop()), LocalModel(c1, lambda _: width)
    again.diagonal, other = model.diagonal, np.empty(n)
    assert model.descend(w, grad, pg, (s, y, more), d) == again.descend(w, grad, pg, (s, y, more), other)
    np.testing.assert_array_equal(d, other)


def test_the_step_of_many_weights_is_that_of_its_blocks(monkeypatch):
    """More weights than a block has, and a step of the default accuracy: it promises a decrease."""
    rng, n, c1 = np.random.default_rng(0), 2 * BLOCK + 7, 0.5
    s = rng.standard_normal((4, n))
    together = rng.standard_normal(n) / np.sqrt(
        n
    )  # one direction of much curvature: many weights move at once
    y, rows = s * rng.uniform(1.0, 5.0, n) + 300.0 * np.outer(s @ together, together), (0, 1, 2)
    w, grad, pg, d = rng.standard_normal(n), 2 * rng.standard_normal(n), *np.empty((2, n))
    pseudo_gradient(w, grad, c1, pg)
    promised = LocalModel(c1, None).descend(w, grad, pg, (s, y, rows), d)
    b = bfgs(np.ones(n), [(s[row], y[row]) for row in rows], np.ones(n, bool))
    value = grad @ d + 0.5 * d @ b @ d + c1 * (np.abs(w + d).sum() - np.abs(w).sum())
    monkeypatch.setattr("crfbook.learners.quasi_newton.l1.FLAT", 1e-13)
    monkeypatch.setattr("crfbook.learners.quasi_newton.l1.TRIALS", 50)
    best = np.empty(n)
    LocalModel(c1, None).descend(w, grad, pg, (s, y, rows), best)
    least = grad @ best + 0.5 * best @ b @ best + c1 * (np.abs(w + best).sum() - np.abs(w).sum())
    assert promised < 0 and least <= value <= 0.999 * least


def test_without_pairs_it_is_a_proximal_gradient_step():
    rng, n, c1 = np.random.default_rng(2), 40, 0.5
    w, grad, pg, d, moved = rng.standard_normal(n), 2 * rng.standard_normal(n), *np.empty((3, n))
    pseudo_gradient(w, grad, c1, pg)
    promised = LocalModel(c1, None).descend(w, grad, pg, (np.empty((3, n)), np.empty((3, n)), ()), d)
    proximal_step(w, grad, 1.0 / max(1.0, np.linalg.norm(pg)), c1, moved)
    np.testing.assert_allclose(w + d, moved, atol=1e-12)
    assert promised < 0


def test_a_memory_that_begins_anew_brings_new_products():
    """The rows of the memory are the same ones: what was known of the pairs before must not be taken."""
    rng = np.random.default_rng(0)
    w, grad, pg, first, second = rng.standard_normal(8), rng.standard_normal(8), *np.empty((3, 8))
    pseudo_gradient(w, grad, 0.5, pg)
    model, old, new = LocalModel(0.5, None), rng.standard_normal((3, 8)), rng.standard_normal((3, 8))
    for s, rows in ((old, (0, 1)), (old, ()), (new, (0,))):
        model.descend(w, grad, pg, (s, 2.0 * s, rows), first)
    LocalModel(0.5, None).descend(w, grad, pg, (new, 2.0 * new, (0,)), second)
    np.testing.assert_array_equal(first, second)


def test_pairs_without_curvature_where_weights_are_free_do_no_harm():
    """Where the second weight is at work f is linear in it: its newest y is 0 on the free weights."""

    def fun(w):
        size = abs(w[1])
        return 0.5 * w[0] ** 2 + (0.5 * size**2 if size < 1 else size - 0.5), np.array(
            [w[0], np.clip(w[1], -1, 1)]
        )

    found = minimize(fun, np.array([0.3, 30.0]), c1=0.5)
    assert found.status == "empty model" and not found.w.any()
    tokens = [[{"a": 1000.0, "b": 1.0}], [{"b": 1.0}]]
    model = CRF(c1=0.2082928081606096, c2=0.0, max_iterations=100)
    model.fit(tokens, [["A"], ["B"]], sample_weight=[1000.0, 0.01])
    assert np.isfinite(model.weights_).all() and model.objective_ < 10.0


def test_the_diagonal_stays_positive():
    """The newest y is 0 on all free weights, the older one is not."""
    w, grad, pg, d = np.array([1.0, -1.0, 0.0]), np.array([0.7, -2.0, 0.1]), *np.empty((2, 3))
    pseudo_gradient(w, grad, 0.5, pg)
    s, y = np.array([[1.0, 0.5, 0.0], [0.3, -0.2, 1.0]]), np.array([[2.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    assert pg[2] == 0.0
    promised = LocalModel(0.5, None).descend(w, grad, pg, (s, y, (0, 1)), d)
    assert np.isfinite(d).all() and -np.inf < promised < 0.0


def test_a_singular_system_takes_the_step_without_pairs(monkeypatch):
    rng = np.random.default_rng(1)
    w, grad, pg, first, second = rng.standard_normal(8), rng.standard_normal(8), *np.empty((3, 8))
    pseudo_gradient(w, grad, 0.5, pg)
    s = rng.standard_normal((2, 8))
    alone = LocalModel(0.5, None).descend(w, grad, pg, (s, s, ()), second)
    model = LocalModel(0.5, None)
    monkeypatch.setattr(model, "_compact", lambda *_: (1.0, np.zeros((2, 2)), np.ones(2)))
    assert model.descend(w, grad, pg, (s, s, (0,)), first) == alone
    np.testing.assert_array_equal(first, second)


def test_of_all_trials_the_lowest_is_taken(monkeypatch):
    """A Newton step that leads far away: the model's own value tells, and the first trial is kept."""
    rng = np.random.default_rng(3)
    w, grad, pg, first, second = rng.standard_normal(8), rng.standard_normal(8), *np.empty((3, 8))
    pseudo_gradient(w, grad, 0.5, pg)
    s = rng.standard_normal((2, 8))
    known = s, 3.0 * s + 0.1, (0, 1)
    monkeypatch.setattr("crfbook.learners.quasi_newton.l1.TRIALS", 1)
    alone = LocalModel(0.5, None).descend(w, grad, pg, known, second)
    monkeypatch.setattr("crfbook.learners.quasi_newton.l1.TRIALS", 4)
    better = LocalModel(0.5, None).descend(w, grad, pg, known, first)
    assert better != alone and not np.array_equal(first, second)  # by itself it would go on
    away, jump = LocalModel(0.5, None), np.full(4, 50.0)

    def solve(matrix, right):  # the system of Newton's method is the second of each trial
        solve.n += 1
        return true_solve(matrix, right) if solve.n % 2 else jump

    true_solve, solve.n = np.linalg.solve, 0
    monkeypatch.setattr(np.linalg, "solve", solve)
    assert away.descend(w, grad, pg, known, first) == alone
    np.testing.assert_array_equal(first, second)


def test_when_and_how_the_diagonal_is_measured():
    answers = iter([np.array([np.nan, np.inf, 0.0, 5.0]), np.ones(3)])
    model = LocalModel(4.0, lambda w: next(answers))
    assert [i for i in range(200) if model.is_due(i)] == [0, 5, 15, 30, 60, 120]
    assert not any(LocalModel(4.0, None).is_due(i) for i in range(200))
    model.measure(np.zeros(4))
    assert model.diagonal.tolist() == [1.0, 1.0, 2.0, 5.0]  # at least half of c1
    with pytest.raises(ValueError, match=r"fun.curvature must return shape \(4,\), got \(3,\)"):
        model.measure(np.zeros(4))
