"""Value and gradient of the objective against enumeration and central differences, and what it refuses."""

import numpy as np
import pytest
from helpers.corpora import brute_value, random_corpus, random_model
from helpers.problems import CASES, case, central_differences, constraints_for

from crfbook.chain.forms import Tables
from crfbook.chain.likelihood import Work
from crfbook.chain.objective import Objective
from crfbook.chain.packing import forecast
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import take_sequences

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("all_states", [False, True])
def test_value_and_gradient_by_enumeration(name, all_states):
    corpus, features, w = case(name, all_states=all_states, all_transitions=all_states)
    value, grad = Objective(corpus, features, c2=0.3)(w)
    assert value == pytest.approx(brute_value(corpus, features, w, 0.3), rel=1e-11, abs=1e-11)
    # Rounding of the difference quotient: about 1e-16 * value / step.
    want = central_differences(lambda v: brute_value(corpus, features, v, 0.3), w)
    np.testing.assert_allclose(grad, want, rtol=1e-6, atol=1e-7)


def test_batches_and_shards_change_nothing():
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(0, 12, 60)), n_classes=2, valued=True)
    features, w = random_model(rng, corpus)
    value, grad = Objective(corpus, features)(w)
    for rows in (1, 10, 100):
        other_value, other_grad = Objective(corpus, features, batch_tokens=rows)(w)
        assert other_value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(other_grad, grad, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_constraints_by_enumeration(seed):
    corpus, features, w = case("plain", seed)
    constraints = constraints_for(corpus)
    assert not (constraints.allowed.all() and constraints.start.all() and constraints.end.all())
    value, grad = Objective(corpus, features, constraints=constraints)(w)
    assert value == pytest.approx(brute_value(corpus, features, w, 0.0, constraints), rel=1e-11)
    want = central_differences(lambda v: brute_value(corpus, features, v, 0.0, constraints), w)
    np.testing.assert_allclose(grad, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["plain", "everything"])
@pytest.mark.parametrize("size", [300.0, 1e4])
def test_huge_weights_go_through_the_log_form(monkeypatch, name, size):
    seen = []
    plain = Tables.run

    def watched(*args):
        bad = plain(*args)
        seen.append(next(a for a in args if isinstance(a, Work)).flags.max())
        return bad

    monkeypatch.setattr(Tables, "run", watched)
    corpus, features, w = case(name, size=size)
    value, grad = Objective(corpus, features, form="batched")(w)
    assert max(seen) == 1, "no sequence was flagged: the test tests nothing"
    want = brute_value(corpus, features, w)
    assert value == pytest.approx(want, rel=1e-9)
    step = 1e-3  # at these scores log Z is all but piecewise linear, and rounds at 1e-12
    differences = central_differences(lambda v: brute_value(corpus, features, v), w, step)
    np.testing.assert_allclose(grad, differences, rtol=1e-4, atol=1e-5)


def test_weights_whose_square_overflows_have_a_value_without_a_penalty():
    corpus, features, w = case("plain", size=1e200)
    value, grad = Objective(corpus, features)(w)
    assert value == pytest.approx(brute_value(corpus, features, w), rel=1e-9)
    assert np.isfinite(grad).all()


def test_gradient_is_a_new_array_and_evaluations_are_counted():
    corpus, features, w = case("plain")
    objective = Objective(corpus, features, c2=1.0)
    first = objective(w)[1].copy()
    kept = objective(w)[1]
    objective(w + 1.0)
    np.testing.assert_array_equal(kept, first)
    assert objective.n_evaluations == 3
    w.flags.writeable = False
    np.testing.assert_array_equal(objective(w)[1], first)


def test_forecast_counts_what_will_be_held():
    corpus, features, _ = case("plain")
    made, twice = forecast(corpus, features), forecast(take_sequences(corpus, [0, 1, 2, 3, 4] * 2), features)
    assert 0 < made.bytes < twice.bytes and 0.0 < made.seconds < twice.seconds


def test_empty_corpora():
    corpus = random_corpus(np.random.default_rng(0), lengths=())
    features, w = random_model(np.random.default_rng(0), random_corpus(np.random.default_rng(0)))
    value, grad = Objective(corpus, features, c2=0.5)(w)
    assert value == pytest.approx(0.5 * w @ w)
    np.testing.assert_allclose(grad, w)


def test_refusals():
    corpus, features, w = case("plain")
    labels = corpus.labels.copy()
    labels[5] = -1  # sequences of 3, 0, 1, 4 and 2 tokens: the second token of sequence 3
    with pytest.raises(ValueError, match=r"sequence 3, token 1: expected a label"):
        Objective(corpus._replace(labels=labels), features)
    with pytest.raises(ValueError, match="c2: expected"):
        Objective(corpus, features, c2=-1.0)
    with pytest.raises(ValueError, match="label ids: expected 0..2"):
        Objective(corpus._replace(labels=labels + 3), features)
    nothing = Constraints(np.zeros((3, 3), bool), np.ones(3, bool), np.ones(3, bool))
    with pytest.raises(ValueError, match="sequence 0, token 1"):
        Objective(corpus, features, constraints=nothing)
    objective = Objective(corpus, features)
    broken = w.copy()
    broken[4] = np.nan
    with pytest.raises(ValueError, match="weights: expected finite numbers, got nan at position 4"):
        objective(broken)
    with pytest.raises(ValueError, match="weights: expected shape"):
        objective(w[:-1])
    with pytest.raises(
        ValueError, match="sequence 0: expected a path of finite score, but its scores exceed float64"
    ):
        objective(np.full(len(w), 1e308))
