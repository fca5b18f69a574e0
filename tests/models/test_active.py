"""`CRF(inference="active")`: what it trains, what it reports, and what it refuses."""

import numpy as np
import pytest
from helpers.corpora import random_corpus
from sklearn.base import clone

from crfbook import CRF
from crfbook.chain.active.form import ActiveObjective
from crfbook.chain.objective import Objective

pytestmark = pytest.mark.kernels
TRAINERS = ["lbfgs", "owlqn", "auto", "sgd", "sgd-l1"]


def corpus_of(n_labels=130, n_sequences=80, seed=0):
    """Labels that follow upon each other, with attributes that say half of it."""
    rng = np.random.default_rng(seed)
    return random_corpus(rng, tuple(rng.integers(0, 9, n_sequences)), n_labels, 50)


def options_of(algorithm):
    return {"algorithm": algorithm} | ({"c1": 0.5, "c2": 0.0} if algorithm in ("owlqn", "sgd-l1") else {})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("algorithm", TRAINERS)
def test_it_trains_as_exact_inference_does(algorithm, tmp_path):
    corpus = corpus_of()
    options = options_of(algorithm) | {"max_iterations": 20}
    exact = CRF(**options).fit(corpus)
    active = CRF(**options, inference="active", eps=1e-3).fit(corpus)
    assert abs(active.score(corpus) - exact.score(corpus)) < 0.1
    bounded = "error_bound" in active.history_
    assert bounded == (not algorithm.startswith("sgd")) and "error_bound" not in exact.history_
    active.save(tmp_path / "model")
    again = CRF.load(tmp_path / "model")
    assert again.predict(corpus) == active.predict(corpus)
    assert again.get_params()["eps"] == 1e-3 and clone(active).inference == "active"


@pytest.mark.parametrize("algorithm", ["lbfgs", "auto"])
def test_the_history_has_the_objective_of_its_sets_and_the_bound_holds(algorithm):
    corpus = corpus_of()
    model = CRF(algorithm=algorithm, c2=0.3, inference="active", eps=5e-3).fit(corpus)
    assert model.status_ == "converged"
    exact = Objective(corpus, model.features_, c2=0.3)(model.weights_)[0]
    fresh = ActiveObjective(corpus, model.features_, c2=0.3, eps=5e-3)
    assert fresh(model.weights_)[0] == pytest.approx(model.history_["objective"].iloc[-1], rel=1e-5)
    bound = model.history_["error_bound"].iloc[-1]
    assert 0.0 < abs(exact - fresh(model.weights_)[0]) <= fresh.error_bound
    assert bound == pytest.approx(fresh.error_bound, rel=0.05)


@pytest.mark.parametrize("algorithm, c1", [("lbfgs", 0.0), ("owlqn", 0.2), ("sgd", 0.0), ("sgd-l1", 0.2)])
def test_the_objective_at_the_end_is_the_exact_one(algorithm, c1):
    """So it is not below the minimum, as that of the sets can be."""
    corpus, c2 = corpus_of(), 0.0 if algorithm == "sgd-l1" else 0.3
    model = CRF(algorithm=algorithm, c1=c1, c2=c2, inference="active", eps=5e-3, max_iterations=20).fit(
        corpus
    )
    exact = Objective(corpus, model.features_, c2=c2)(model.weights_)[0] + c1 * np.abs(model.weights_).sum()
    assert model.objective_ == pytest.approx(exact, rel=1e-12)
    assert model.objective_ > CRF(c1=c1, c2=c2).fit(corpus).objective_ * (1.0 - 1e-6)


def test_eps_of_zero_is_exact():
    corpus = corpus_of(20)
    models = [CRF(inference=how, eps=eps).fit(corpus) for how, eps in (("exact", None), ("active", 0.0))]
    np.testing.assert_array_equal(models[0].weights_, models[1].weights_)


def test_one_label_two_labels_and_constraints():
    for n_labels in (1, 2):
        assert CRF(inference="active").fit(corpus_of(n_labels)).score(corpus_of(n_labels)) > 0.4
    X = [[["a"], ["b"], ["c"]], [["a"], ["c"]], [], [["b"]]]
    y = [["B-X", "I-X", "O"], ["B-X", "O"], [], ["O"]]
    model = CRF(inference="active", eps=0.9, constraints="BIO").fit(X, y)
    assert model.predict(X) == y


@pytest.mark.parametrize("eps", [-1e-3, 1.0, float("nan"), "small"])
def test_a_bad_eps_is_named(eps):
    with pytest.raises((ValueError, TypeError), match="eps: expected"):
        CRF(inference="active", eps=eps).fit([[["a"]]], [["x"]])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"algorithm": "perceptron"}, "got algorithm='perceptron'"),
        ({"algorithm": "sdca"}, "got algorithm='sdca'"),
        ({"loss": "exp"}, "got loss='exp'"),
    ],
)
def test_what_has_no_active_sets_is_refused(options, said):
    with pytest.raises(ValueError, match="inference='active' is for the log loss with .*" + said):
        CRF(**options, inference="active").fit([[["a"]]], [["x"]])


def test_an_unknown_inference_and_an_idle_eps():
    with pytest.raises(ValueError, match="inference: expected one of 'exact', 'active', got 'beam'"):
        CRF(inference="beam").fit([[["a"]]], [["x"]])
    with pytest.warns(UserWarning, match="no effect with inference='exact', ignored: eps"):
        CRF(eps=0.1).fit([[["a"]]], [["x"]])


def test_features_of_label_pairs_and_too_little_memory_are_said():
    columns = [[["a", "b"]] * 3] * 2, [["x", "y", "x"]] * 2
    with pytest.raises(ValueError, match="expected the same transitions at all tokens, got those of"):
        CRF(inference="active", template="B0:%x[0,0]\nU0:%x[0,0]").fit(*columns)
    with pytest.raises(MemoryError, match="a larger eps"):
        CRF(inference="active", eps=1e-9, memory_limit=10).fit(corpus_of())
