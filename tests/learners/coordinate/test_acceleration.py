"""Coordinate descent with OWL-QN on the support: sooner at the minimum, Ctrl-C, tables that are too large;
interrupted paths.
"""

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed
from crfbook.learners.coordinate import descent
from crfbook.learners.coordinate.descent import coordinate_descent, solve_path
from crfbook.learners.quasi_newton.lbfgs import minimize

pytestmark = pytest.mark.kernels
C = {"c1": 0.3, "c2": 0.001}


@pytest.fixture(scope="module")
def problem():
    """Node and edge weights of a letter are nearly redundant."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 6, 80)
    x = rng.integers(0, 4, lengths.sum())
    labels = np.where(rng.random(len(x)) < 0.8, x % 3, rng.integers(0, 3, len(x)))
    classes = np.array([[0, s + 1] for s in range(4)])
    corpus = make_corpus(
        np.cumsum([0, *lengths]),
        np.arange(len(x) + 1),
        x,
        labels=labels,
        edge_class=x,
        class_ptr=np.arange(5) * 2,
        class_attr=classes.ravel(),
    )
    features = observed(corpus, 3, 4, 5, all_states=True, all_transitions=True)
    return (
        corpus,
        features,
        minimize(
            Objective(corpus, features, c2=C["c2"]), np.zeros(features.n_features), tol=1e-11, **C
        ).objective,
    )


def sweeps_to(problem, **options):
    corpus, features, best = problem
    found = coordinate_descent(
        corpus,
        features,
        tol=0.0,
        max_iterations=2000,
        **C,
        **options,
        callback=lambda step, w: step.objective <= best * (1 + 1e-4),
    )
    assert (
        found.status == "stopped by callback"
        and max(np.diff([step.objective for step in found.history])) <= 1e-9
    )
    return found.n_iter


def test_a_quarter_of_the_sweeps(problem):
    assert sweeps_to(problem, accelerate=True) <= 0.25 * sweeps_to(problem)


def test_hard_constraints_hold_in_the_other_optimiser(problem):
    """Without them its end would be no end here, would be taken back, and nothing would be gained."""
    corpus, features, _ = problem
    two = Constraints(np.ones((3, 3), bool), np.ones(3, bool), np.ones(3, bool), ~np.eye(3, dtype=bool))
    corpus = corpus._replace(label_set=((corpus.labels + 1) % 3).astype(np.int32))
    fun = Objective(corpus, features, c2=C["c2"], constraints=two)
    best = minimize(fun, np.zeros(features.n_features), tol=1e-11, **C).objective
    assert sweeps_to((corpus, features, best), accelerate=True, constraints=two) <= 0.5 * sweeps_to(
        (corpus, features, best), constraints=two
    )


def test_the_certificate_is_checked_by_other_code(problem):
    corpus, features, best = problem
    found = coordinate_descent(corpus, features, tol=1e-9, max_iterations=500, accelerate=True, **C)
    _, grad = Objective(corpus, features, c2=C["c2"])(found.w)
    slope = np.where(found.w != 0, grad + C["c1"] * np.sign(found.w), np.maximum(np.abs(grad) - C["c1"], 0.0))
    assert found.status == "converged" and slope @ slope / (4 * C["c2"]) <= 1e-9 * found.objective
    assert found.objective == pytest.approx(best, rel=1e-9)


def test_too_many_edge_classes_are_left_to_sweeps(problem, monkeypatch):
    plain = sweeps_to(problem)
    monkeypatch.setattr(descent, "TABLE_BYTES", 8 * 4 * 16 - 1)
    monkeypatch.setattr(descent, "minimize", None)
    assert sweeps_to(problem, accelerate=True) == plain


def test_a_worse_end_is_taken_back(problem, monkeypatch):
    corpus, features, best = problem
    tried = []

    def worse(fun, w, **options):
        tried.append(1)
        return minimize(fun, w, **options | {"max_iterations": 1})._replace(w=w + 5.0)

    monkeypatch.setattr(descent, "minimize", worse)
    found = coordinate_descent(corpus, features, tol=0.0, max_iterations=60, accelerate=True, **C)
    told = [step.objective for step in found.history]
    assert tried and max(np.diff(told)) <= 1e-9 and told[-1] < 1.01 * best
    value = Objective(corpus, features, c2=C["c2"])(found.w)[0] + C["c1"] * np.abs(found.w).sum()
    np.testing.assert_allclose(found.objective, value, rtol=1e-12)


def test_ctrl_c_inside_the_other_optimiser(problem, monkeypatch):
    corpus, features, best = problem

    def interrupted(*arguments, **options):
        def stop(step, w):
            raise KeyboardInterrupt

        return minimize(*arguments, **options, callback=stop)

    monkeypatch.setattr(descent, "minimize", interrupted)
    found = coordinate_descent(corpus, features, tol=0.0, max_iterations=500, accelerate=True, **C)
    assert (
        found.status == "interrupted" and found.n_iter < 30 and found.objective < found.history[-1].objective
    )
    value = Objective(corpus, features, c2=C["c2"])(found.w)[0] + C["c1"] * np.abs(found.w).sum()
    np.testing.assert_allclose(found.objective, value, rtol=1e-12)


def test_ctrl_c_keeps_the_path_so_far(problem):
    corpus, features, _ = problem

    def interrupt(c1, step, w):
        if c1 == 1.0 and step.iteration == 7:
            raise KeyboardInterrupt

    path = solve_path(corpus, features, c1=[3.0, 1.0, 0.3], c2=C["c2"], sweeps=5, tol=0.0, callback=interrupt)
    assert [point.c1 for point in path] == [3.0, 1.0] and path[-1].result.status == "interrupted"
    assert path[-1].result.w.any() and path[-1].n_active == np.count_nonzero(path[-1].result.w)
