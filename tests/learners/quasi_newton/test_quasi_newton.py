"""L-BFGS and OWL-QN against SciPy's L-BFGS-B and a proximal-gradient loop,
and the promises of `minimize` one by one.
"""

import io

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.special import logsumexp

from crfbook.chain.objective import Objective
from crfbook.data.features import observed
from crfbook.datasets import load_dataset
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from crfbook.learners.quasi_newton.lbfgs import (
    BLOCK,
    LBFGS,
    CurvatureMemory,
    Pairs,
    backtracking_search,
    minimize,
    wolfe_search,
)
from crfbook.training.loop import Step, run

TIGHT = {"tol": 1e-12, "tol_gradient": 1e-6}


def softmax_problem(seed=0, n=120, n_inputs=9, n_labels=4, c2=0.0):
    """Multinomial logistic regression with summed loss: a CRF whose sequences have length 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, n_inputs)) * rng.exponential(1.0, n_inputs)
    y = np.argmax(
        x @ rng.standard_normal((n_inputs, n_labels)) + rng.gumbel(size=(n, n_labels)) * 2.0, axis=1
    )
    one_hot = np.eye(n_labels)[y]

    def fun(w):
        scores = x @ w.reshape(n_inputs, n_labels)
        log_z = logsumexp(scores, axis=1)
        value = log_z.sum() - (scores * one_hot).sum() + c2 * (w @ w)
        return value, (x.T @ (np.exp(scores - log_z[:, None]) - one_hot)).ravel() + 2.0 * c2 * w

    lipschitz = 0.5 * np.linalg.norm(x, 2) ** 2 + 2.0 * c2
    return fun, n_inputs * n_labels, lipschitz


def proximal_gradient(fun, n, c1, lipschitz, iterations=30000):
    """FISTA with restarts: the oracle for c1 > 0, which shares no line with OWL-QN."""
    w = v = np.zeros(n)
    t, best = 1.0, np.inf
    for _ in range(iterations):
        grad = fun(v)[1]
        moved = v - grad / lipschitz
        new = np.sign(moved) * np.maximum(np.abs(moved) - c1 / lipschitz, 0.0)
        t_new = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        if (v - new) @ (new - w) > 0:
            t_new = 1.0
        v = new + (t - 1.0) / t_new * (new - w)
        if np.abs(new - w).max() < 1e-14:
            break
        w, t = new, t_new
        best = min(best, fun(w)[0] + c1 * np.abs(w).sum())
    return w, best


@pytest.mark.parametrize("c2", [0.01, 0.3, 3.0])
def test_without_l1_it_finds_scipys_minimum(c2):
    fun, n, _ = softmax_problem(c2=c2)
    ours = minimize(fun, np.zeros(n), c2=c2, **TIGHT)
    theirs = scipy_minimize(
        fun, np.zeros(n), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 9999}
    )
    assert ours.status == "converged"
    assert ours.objective == pytest.approx(theirs.fun, rel=1e-10)
    np.testing.assert_allclose(ours.w, theirs.x, rtol=0, atol=1e-4)
    assert ours.n_evaluations <= 1.3 * ours.n_iter + 5
    assert ours.n_evaluations <= 1.5 * theirs.nfev + 5


@pytest.mark.parametrize("c2", [0.05, 1.0])
def test_a_crf_takes_the_iterations_and_evaluations_of_scipy(c2):
    """The same memory, the same rules for the step: the same path, evaluation by evaluation (counts,
    so any machine will do).
    """
    train = load_dataset("conll2000", source="builtin").train.head(150)
    encoder = Encoder(templates.load("chunking"))
    corpus = encoder.fit_transform(train)
    features = observed(corpus, encoder.n_labels, encoder.n_attrs)
    objective, start = Objective(corpus, features, c2=c2), np.zeros(features.n_features)
    theirs = []

    def fresh(w):
        value, grad = objective(w)
        return value, grad.copy()

    def watch(intermediate_result):
        theirs.append(intermediate_result.fun)

    limits = {"maxcor": 6, "maxiter": 60, "maxfun": 1000, "ftol": 0.0, "gtol": 0.0}
    peer = scipy_minimize(fresh, start, jac=True, method="L-BFGS-B", options=limits, callback=watch)
    ours = minimize(objective, start, c2=c2, memory=6, tol=0.0, max_iterations=60)
    assert ours.n_iter == peer.nit == 60
    assert ours.n_evaluations <= min(peer.nfev, 1.15 * 60)
    np.testing.assert_allclose(
        [step.objective for step in ours.history], theirs, rtol=1e-8
    )  # measured: 1e-12


def test_c2_zero_stops_on_the_gradient():
    fun, n, _ = softmax_problem()
    ours = minimize(fun, np.zeros(n), tol_gradient=1e-5)
    assert ours.status == "converged"
    assert np.abs(fun(ours.w)[1]).max() <= 1e-5
    assert ours.history[-1].violation == np.abs(fun(ours.w)[1]).max()


@pytest.mark.parametrize("c1", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("c2", [0.0, 0.05, 1.0])
def test_with_l1_it_finds_the_proximal_gradient_minimum(c1, c2):
    # an odd number of labels: with an even one the median of a row may lie anywhere between two weights
    fun, n, lipschitz = softmax_problem(seed=1, c2=c2, n_labels=3)
    ours = minimize(fun, np.zeros(n), c1=c1, c2=c2, **TIGHT)
    w, best = proximal_gradient(fun, n, c1, lipschitz)
    assert ours.status in ("converged", "rounding floor")
    assert ours.objective == pytest.approx(best, rel=1e-9)
    np.testing.assert_allclose(ours.w, w, rtol=0, atol=2e-4)
    grad = fun(w)[1]
    clear = np.abs(np.abs(grad) - c1) > 1e-4 * c1  # neither just inside nor just outside of the kink
    np.testing.assert_array_equal((ours.w != 0)[clear | (w != 0)], (w != 0)[clear | (w != 0)])
    assert 0 < np.count_nonzero(ours.w) <= n


def test_large_l1_leaves_exact_zeros():
    fun, n, _ = softmax_problem()
    c1 = np.abs(fun(np.zeros(n))[1]).max()
    nothing = minimize(fun, np.ones(n), c1=c1 * 1.001, tol_gradient=1e-9)
    assert np.count_nonzero(nothing.w) == 0 and nothing.status == "empty model"
    one = minimize(fun, np.zeros(n), c1=c1 * 0.999, tol_gradient=1e-9)
    assert np.count_nonzero(one.w) == 1


@pytest.mark.parametrize(("c1", "c2"), [(0.0, 0.0), (0.0, 0.5), (1.0, 0.0), (1.0, 0.5)])
def test_objective_never_rises_and_the_bound_holds(c1, c2):
    fun, n, _ = softmax_problem(seed=2, c2=c2)
    rng = np.random.default_rng(5)
    result = minimize(fun, rng.standard_normal(n) * 3, c1=c1, c2=c2, **TIGHT)
    values = np.array([step.objective for step in result.history])
    assert (np.diff(values) <= 0).all()
    assert [step.iteration for step in result.history] == list(range(1, result.n_iter + 1))
    assert result.objective == pytest.approx(fun(result.w)[0] + c1 * np.abs(result.w).sum(), rel=1e-14)
    if c2 > 0:
        gaps = np.array([step.violation for step in result.history])
        assert (values - result.objective <= gaps + 1e-12 * abs(result.objective)).all()
    assert result.history[-1].n_active == np.count_nonzero(result.w)


@pytest.mark.parametrize("c1", [0.0, 0.7])
@pytest.mark.parametrize("stop_at", [0, 1, 5, 14])
def test_resumed_training_is_bit_identical(c1, stop_at):
    fun, n, _ = softmax_problem(seed=3, c2=0.01, n_inputs=7)
    settings = {"c1": c1, "c2": 0.01, "memory": 4, "tol": 0.0, "relative_change": (5, 1e-9)}
    whole = minimize(fun, np.zeros(n), max_iterations=30, **settings)
    first = minimize(fun, np.zeros(n), max_iterations=stop_at, **settings)
    kept = io.BytesIO()  # through a file, as a user would
    np.savez(kept, **first.state)
    kept.seek(0)
    with np.load(kept, allow_pickle=False) as saved:
        state = dict(saved)
    before = {name: array.copy() for name, array in state.items()}
    second = minimize(fun, state=state, max_iterations=30, **settings)
    assert whole.n_iter == second.n_iter == 30 and first.n_iter == stop_at
    np.testing.assert_array_equal(whole.w, second.w)
    assert whole.objective == second.objective
    assert [s[:4] for s in first.history + second.history] == [s[:4] for s in whole.history]
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_two_runs_give_the_same_bits():
    fun, n, _ = softmax_problem(c2=0.1)
    runs = [minimize(fun, np.zeros(n), c1=0.1, c2=0.1) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].w, runs[1].w)


def test_max_iterations_zero_evaluates_the_start_only():
    fun, n, _ = softmax_problem(c2=0.1)
    w0 = np.full(n, 0.25)
    result = minimize(fun, w0, c1=0.5, c2=0.1, max_iterations=0)
    assert (result.status, result.n_iter, result.history, result.n_evaluations) == (
        "max_iterations",
        0,
        [],
        1,
    )
    np.testing.assert_array_equal(result.w, w0)
    assert result.objective == pytest.approx(fun(w0)[0] + 0.5 * 0.25 * n)
    assert result.w is not w0


def test_relative_change_is_crfsuites_rule():
    fun, n, _ = softmax_problem(c2=0.01)
    result = minimize(fun, np.zeros(n), c2=0.01, tol=0.0, relative_change=(10, 1e-3))
    values = [fun(np.zeros(n))[0]] + [step.objective for step in result.history]
    met = [(values[k - 10] - values[k]) / values[k] <= 1e-3 for k in range(10, len(values))]
    assert result.status == "small change" and met[-1] and not any(met[:-1])


@pytest.mark.parametrize(("c1", "c2"), [(0.0, 0.0), (0.0, 0.5), (0.5, 0.0), (0.5, 0.5)])
def test_epsilon_is_crfsuites_rule(c1, c2):
    fun, n, _ = softmax_problem(c2=c2)
    result = run(LBFGS(fun, np.zeros(n), c1=c1, c2=c2, tol=0.0, tol_gradient=0.0, epsilon=1e-2))

    def size(w):
        grad = fun(w)[1]
        pg = np.where(w != 0, grad + c1 * np.sign(w), np.sign(grad) * np.maximum(np.abs(grad) - c1, 0.0))
        return np.linalg.norm(pg) if c2 else np.abs(pg).max()

    steps = []
    minimize(
        fun, np.zeros(n), c1=c1, c2=c2, tol=0.0, tol_gradient=0.0, max_iterations=result.n_iter,
        callback=lambda step, w: steps.append(size(w) / max(1.0, np.linalg.norm(w))),
    )  # fmt: skip
    assert result.status == "small gradient (epsilon)" and result.n_iter > 3
    assert steps[-1] <= 1e-2 < min(steps[:-1])


def test_callback_sees_each_step_and_stops():
    fun, n, _ = softmax_problem(c2=0.01)
    seen = []

    def callback(step, w):
        assert isinstance(step, Step)
        with pytest.raises(ValueError):
            w[0] = 1.0
        seen.append((step, w.copy()))
        return len(seen) == 4

    result = minimize(fun, np.zeros(n), c2=0.01, callback=callback)
    assert result.status == "stopped by callback" and result.n_iter == 4
    assert [step for step, _ in seen] == result.history
    np.testing.assert_array_equal(seen[-1][1], result.w)


@pytest.mark.parametrize("c1", [0.0, 0.5])
def test_ctrl_c_returns_the_last_good_weights_and_can_be_resumed(c1):
    fun, n, _ = softmax_problem(c2=0.01)
    calls = []

    def interrupted(w):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return fun(w)

    settings = {"c1": c1, "c2": 0.01}
    result = minimize(interrupted, np.zeros(n), **settings)
    assert result.status == "interrupted" and 0 < result.n_iter <= 8
    assert result.objective == result.history[-1].objective
    resumed = minimize(fun, state=result.state, **settings)
    np.testing.assert_array_equal(resumed.w, minimize(fun, np.zeros(n), **settings).w)

    def at_once(w):
        raise KeyboardInterrupt

    start = minimize(at_once, np.ones(n), **settings)  # before anything is known
    assert (start.status, start.n_iter, start.state) == ("interrupted", 0, {}) and np.isnan(start.objective)
    np.testing.assert_array_equal(start.w, np.ones(n))
    at_first = minimize(at_once, state=result.state, **settings)
    assert at_first.status == "interrupted" and at_first.objective == result.objective
    np.testing.assert_array_equal(minimize(fun, state=at_first.state, **settings).w, resumed.w)


@pytest.mark.parametrize("c1", [0.0, 0.5])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_region_is_backed_away_from(c1, bad):
    """f = 1/(1 - w) + w/2 within |w| < 1, not finite outside: the first step lands outside."""

    def fun(w):
        if not (w < 0.9).all():
            return bad, np.full_like(w, bad)
        return (1.0 / (1.0 - w) - 3.0 * w).sum(), 1.0 / (1.0 - w) ** 2 - 3.0

    result = minimize(fun, np.full(1, -60.0), c1=c1, tol_gradient=1e-8)
    assert result.status in ("converged", "rounding floor")
    np.testing.assert_allclose(result.w, 1.0 - 1.0 / np.sqrt(3.0 - c1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("c1", [0.0, 0.5])
@pytest.mark.parametrize("where", ["value", "gradient"])
def test_a_persistent_nan_ends_with_the_last_good_weights(c1, where):
    fun, n, _ = softmax_problem(c2=0.01)
    calls = []

    def breaking(w):
        calls.append(1)
        value, grad = fun(w)
        if len(calls) <= 6:
            return value, grad
        return (np.nan, grad) if where == "value" else (value, np.where(np.arange(n) == 3, np.nan, grad))

    result = minimize(breaking, np.zeros(n), c1=c1, c2=0.01)
    assert result.status == "non-finite objective" and result.n_iter >= 1
    assert np.isfinite(result.w).all() and np.isfinite(result.objective)
    nowhere = minimize(lambda w: (np.nan, w), np.zeros(n), c1=c1)
    assert nowhere.status == "non-finite objective" and nowhere.n_iter == 0


@pytest.mark.parametrize("c1", [0.0, 0.5])
def test_a_wrong_gradient_ends_as_line_search_failure(c1):
    fun, n, _ = softmax_problem(c2=0.1)

    def wrong(w):
        value, grad = fun(w)
        return value, -grad

    result = minimize(wrong, np.zeros(n), c1=c1)
    assert result.status == "line search failed" and result.n_iter == 0
    np.testing.assert_array_equal(result.w, 0.0)


@pytest.mark.parametrize("c1", [0.0, 0.5])
def test_rounding_floor_ends_the_loop(c1):
    fun, n, _ = softmax_problem(c2=0.01)
    shifted = minimize(
        lambda w: (fun(w)[0] + 1e9, fun(w)[1]), np.zeros(n), c1=c1, tol_gradient=0.0, max_iterations=5000
    )
    assert shifted.status == "rounding floor"
    assert shifted.objective - 1e9 == pytest.approx(minimize(fun, np.zeros(n), c1=c1).objective, abs=1e-4)


@pytest.mark.parametrize("c1", [0.0, 2.0])
def test_one_weight(c1):
    result = minimize(
        lambda w: (float(5.0 * (w[0] - 3.0) ** 2), 10.0 * (w - 3.0)), [0.0], c1=c1, tol_gradient=1e-10
    )
    assert result.status == "converged"
    assert result.w[0] == pytest.approx(3.0 - c1 / 10.0, abs=1e-10)


def test_no_weights_at_all():
    result = minimize(lambda w: (7.0, np.zeros(0)), np.zeros(0))
    assert (result.status, result.objective, result.n_iter) == ("converged", 7.0, 0)


def test_a_gradient_buffer_may_be_reused():
    fun, n, _ = softmax_problem(c2=0.1)
    buffer = np.empty(n)

    def reusing(w):
        value, buffer[:] = fun(w)
        return value, buffer

    np.testing.assert_array_equal(
        minimize(reusing, np.zeros(n), c2=0.1).w, minimize(fun, np.zeros(n), c2=0.1).w
    )


def test_rosenbrock():
    """Not convex: the line search must turn and the memory skip pairs."""

    def rosenbrock(w):
        a, b = w[:-1], w[1:]
        grad = np.zeros_like(w)
        grad[:-1] = -400.0 * a * (b - a * a) - 2.0 * (1.0 - a)
        grad[1:] += 200.0 * (b - a * a)
        return float((100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2).sum()), grad

    result = minimize(rosenbrock, np.array([-1.2, 1.0, -0.5, 0.8]), tol_gradient=1e-8)
    np.testing.assert_allclose(result.w, 1.0, atol=1e-6)


def test_two_loop_recursion_is_the_bfgs_update():
    """H from the recursion, column by column, against the textbook product form."""
    rng = np.random.default_rng(0)
    n, memory, pairs = 6, CurvatureMemory(3, 6), Pairs()
    h = np.eye(n)
    points = rng.standard_normal((4, n))
    hessian = np.diag(np.arange(1.0, n + 1)) + 0.1
    for old, new in zip(points[:-1], points[1:], strict=True):
        pairs = memory.add(pairs, new, old, hessian @ new, hessian @ old)
    h *= pairs.scale
    for row, rho in zip(pairs.rows, pairs.rho, strict=True):
        s, y = memory.s[row], memory.y[row]
        v = np.eye(n) - rho * np.outer(y, s)
        h = v.T @ h @ v + rho * np.outer(s, s)
    out = np.empty(n)
    for k in range(n):
        memory.descent(pairs, np.eye(n)[k], out)
        np.testing.assert_allclose(out, -h[:, k], rtol=1e-12, atol=1e-14)
    assert memory.add(pairs, points[0], points[1], points[1], points[0]) is pairs  # s.y < 0: left out


def test_line_searches_alone():
    accepted = wolfe_search(lambda t: ((t - 5.0) ** 2, 2.0 * (t - 5.0)), 25.0, -10.0, 1e-6, 40)
    assert accepted.accepted is not None and accepted.accepted < 25.0
    assert wolfe_search(lambda t: (t, 1.0), 0.0, 1.0, 1.0, 40).accepted is None  # not a direction of descent
    tried = []
    wolfe_search(lambda t: tried.append(t) or ((t - 90.0) ** 2, 2.0 * (t - 90.0)), 8100.0, -180.0, 1.0, 40)
    assert tried == [1.0, 5.0, 21.0]  # too short: four times the last advance on top
    tried = []
    wolfe_search(
        lambda t: tried.append(t) or (np.expm1(9 * t) - 99 * t, 9 * np.exp(9 * t) - 99), 0.0, -90.0, 1.0, 40
    )
    assert (
        len(tried) <= 4 and abs(9 * np.exp(9 * tried[-1]) - 99) <= 0.9 * 90
    )  # too long: the bracket closes quickly
    assert backtracking_search(lambda t: (t, -t, 1.0), 0.0, -1.0, 1.0, 40).reason == "line search failed"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c1": -1.0}, "c1: expected"),
        ({"c2": np.nan}, "c2: expected"),
        ({"memory": 0}, "memory: expected"),
        ({"max_iterations": -1}, "max_iterations: expected"),
        ({"max_iterations": 1.5}, "max_iterations: expected"),
        ({"relative_change": (0, 1e-5)}, "period in relative_change: expected an integer >= 1, got 0"),
        ({"relative_change": (1, np.nan)}, "delta in relative_change: expected a number >= 0, got nan"),
        ({"w0": np.zeros((2, 2))}, r"shape \(2, 2\)"),
        ({"w0": None}, "got None"),
        ({"w0": np.array([0.0, np.nan])}, "w0: expected finite weights, got nan at position 1"),
        ({"fun": lambda w: (0.0, np.zeros(3))}, r"gradient of shape \(2,\)"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"fun": lambda w: (w @ w, 2 * w), "w0": np.ones(2), **change}
    with pytest.raises(ValueError, match=message):
        minimize(**arguments)


def test_pairs_in_float32_find_the_same_minimum():
    """They cost no accuracy: gradients stay in float64. Rows are longer than a block."""
    rng, n = np.random.default_rng(0), 3 * BLOCK + 5
    scale = np.exp(rng.uniform(-2, 2, n))

    def fun(w):
        return float(scale @ (w - 1.0) ** 2), 2.0 * scale * (w - 1.0)

    wide, narrow = (
        run(LBFGS(fun, np.zeros(n), c2=0.1, tol=1e-12, precision=dtype)) for dtype in (np.float64, np.float32)
    )
    assert narrow.state["s"].dtype == np.float32
    assert narrow.status == wide.status == "converged" and abs(narrow.n_iter - wide.n_iter) <= 3
    np.testing.assert_allclose(narrow.w, 1.0, atol=1e-4)
    again = run(LBFGS(fun, state=narrow.state, c2=0.1, tol=1e-12, precision=np.float32))
    assert again.w.tobytes() == narrow.w.tobytes()
