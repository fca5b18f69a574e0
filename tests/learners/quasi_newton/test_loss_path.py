"""Training under the four losses: stages, starts, resuming, noise,
and the minima against other ways to them.
"""

import math
import warnings

import numpy as np
import pytest
from helpers.corpora import random_model

from crfbook.chain.losses import LOSSES
from crfbook.chain.objective import Objective
from crfbook.data.corpus import make_corpus
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.quasi_newton.loss_path import minimize_loss, stages_of
from crfbook.training.monitor import Monitor

pytestmark = pytest.mark.kernels


def noisy_corpus(lengths=(5,) * 12 + (9,) * 4, noise=0.15, seed=0, n_labels=3):
    """One attribute a token that tells its label, but for a share of labels that are drawn at random."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    attr = rng.integers(0, 7, n)
    labels = np.where(rng.random(n) < noise, rng.integers(0, n_labels, n), attr % n_labels)
    corpus = make_corpus(np.cumsum([0, *lengths]), np.arange(n + 1), attr, labels=labels)
    return corpus, random_model(rng, corpus, n_labels)[0]


def value_at(corpus, features, w, **settings):
    return Objective(corpus, features, **settings)(w)[0]


# ---- minima


def test_sequential_exp_has_one_minimum():
    """From the log solution, by the clamped stages from zero,
    and straight from zero divided by the start's value.
    """
    corpus, features = noisy_corpus()
    warm = minimize_loss(corpus, features, loss="exp", c2=0.5, tol=1e-12)
    cold = minimize_loss(corpus, features, loss="exp", c2=0.5, tol=1e-12, starts=("zero",))
    zero = np.zeros(features.n_features)
    scale = Objective(corpus, features, c2=0.5, loss="exp").log_value(zero)
    scaled = Objective(corpus, features, c2=0.5, loss="exp", log_scale=scale)
    straight = minimize(scaled, zero, c2=0.5 * math.exp(-scale), tol=1e-14)
    assert warm.status in ("converged", "rounding floor") and warm.n_iter == len(warm.history)
    assert cold.objective == pytest.approx(warm.objective, rel=1e-9)
    assert straight.objective * math.exp(scale) == pytest.approx(warm.objective, rel=1e-9)
    assert value_at(corpus, features, warm.w, c2=0.5, loss="exp") == warm.objective
    log = minimize_loss(corpus, features, c2=0.5, tol=1e-12)
    assert value_at(corpus, features, log.w, c2=0.5, loss="exp") > 1.001 * warm.objective


@pytest.mark.parametrize("loss", LOSSES)
def test_a_clamp_and_every_loss_end_where_the_gradient_vanishes(loss):
    corpus, features = noisy_corpus()
    clamp = 1.5 if loss.endswith("exp") else None
    found = minimize_loss(corpus, features, loss=loss, clamp=clamp, c2=0.3, tol=1e-10)
    value, grad = Objective(corpus, features, c2=0.3, loss=loss, clamp=clamp)(found.w)
    assert value == found.objective
    assert grad @ grad / (4 * 0.3) <= 1e-9 * value
    if clamp:
        free = value_at(corpus, features, found.w, c2=0.3, loss=loss)
        assert free > value, "the clamp is not felt: the test tests nothing"


def test_pointwise_losses_keep_the_better_of_two_starts():
    corpus, features = noisy_corpus(seed=3)
    for loss in LOSSES[2:]:
        one_by_one = [
            minimize_loss(corpus, features, loss=loss, c2=0.05, starts=(start,)) for start in ("zero", "log")
        ]
        both = minimize_loss(corpus, features, loss=loss, c2=0.05)
        assert both.objective == min(r.objective for r in one_by_one)
        assert both.n_iter == sum(r.n_iter for r in one_by_one) == len(both.history)
        assert both.history[-1].iteration == both.n_iter


@pytest.mark.parametrize("loss", LOSSES[1:])
def test_l1_penalty(loss):
    corpus, features = noisy_corpus()
    found = minimize_loss(corpus, features, loss=loss, c1=2.0, c2=0.1, tol=1e-6)
    value, grad = Objective(corpus, features, c2=0.1, loss=loss)(found.w)
    assert found.status == "converged"
    assert found.objective == pytest.approx(value + 2.0 * np.abs(found.w).sum(), rel=1e-12)
    zero = found.w == 0.0
    assert 0 < zero.sum() < len(zero)
    assert abs(grad[zero]).max() <= 2.0 * (1 + 1e-9)  # the optimality conditions of |w|_1
    np.testing.assert_allclose(grad[~zero], -2.0 * np.sign(found.w[~zero]), atol=0.02)


# ---- noise, and numbers beyond float64


@pytest.mark.parametrize(
    "loss, clamp", [("exp", None), ("exp", 30.0), ("pointwise-exp", None), ("pointwise-exp", 5.0)]
)
@pytest.mark.parametrize("c1, c2", [(0.0, 0.1), (1.0, 0.0)])
def test_flipped_labels_overflow_nothing(loss, clamp, c1, c2):
    """A third of the labels is random; the longest sequence has p below exp(-1000) even at the minimum."""
    corpus, features = noisy_corpus(lengths=(1500, 40, 40, 8, 8, 8, 1), noise=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = minimize_loss(
            corpus, features, loss=loss, clamp=clamp, c1=c1, c2=c2, tol=1e-4, max_iterations=60
        )
    assert np.isfinite(found.w).all() and found.n_iter > 0
    assert not any(math.isnan(step.objective) or math.isnan(step.violation) for step in found.history)
    target = Objective(corpus, features, loss=loss, clamp=clamp, c2=c2)
    assert target.log_value(found.w) < target.log_value(np.zeros(features.n_features))
    if (loss, clamp) == ("exp", None):
        assert found.objective == math.inf and target.largest_u > 750.0
        assert found.state["log_scale"] == pytest.approx(target.log_value(found.w), abs=10.0)
    else:
        assert math.isfinite(found.objective)


def test_clamped_stages_are_skipped_where_no_clamp_is_felt():
    corpus, features = noisy_corpus(noise=0.0)
    found = minimize_loss(corpus, features, loss="exp", c2=0.01)
    target = Objective(corpus, features, c2=0.01, loss="exp")
    target(found.w)
    assert target.largest_u < 10.0
    jumps = [b for a, b in zip(found.history, found.history[1:], strict=False) if b.objective > a.objective]
    assert len(jumps) <= 1  # from the log loss to the exp loss, and no other


# ---- the plan


def test_the_stages():
    def plan(*arguments):
        return [(s.loss, s.clamp, s.start, s.final) for s in stages_of(*arguments)]

    assert plan("log") == [("log", None, "zero", True)]
    assert plan("exp") == [
        ("log", None, "zero", False),
        *(("exp", c, "before", False) for c in (10.0, 20.0, 40.0)),
        ("exp", None, "before", True),
    ]
    assert plan("exp", 20.0, "zero") == [("exp", 10.0, "zero", False), ("exp", 20.0, "before", True)]
    assert plan("pointwise-log", None, "w0") == [("pointwise-log", None, "before", True)]
    assert plan("log", None, "w0") == [("log", None, "before", True)]


def test_w0_is_the_only_start_when_given():
    corpus, features = noisy_corpus()
    solved = minimize_loss(corpus, features, loss="pointwise-log", c2=0.3)
    again = minimize_loss(corpus, features, solved.w, loss="pointwise-log", c2=0.3)
    assert again.n_iter == 0 and again.status == "converged" and again.objective == solved.objective
    np.testing.assert_array_equal(again.w, solved.w)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_iterations(loss):
    corpus, features = noisy_corpus()
    w = np.linspace(-1, 1, features.n_features)
    for w0, at in ((w, w), (None, np.zeros_like(w))):
        found = minimize_loss(corpus, features, w0, loss=loss, c2=0.3, max_iterations=0)
        assert (found.status, found.n_iter, found.history) == ("max_iterations", 0, [])
        np.testing.assert_array_equal(found.w, at)
        assert found.objective == value_at(corpus, features, at, c2=0.3, loss=loss)


# ---- what watches it


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("stop", [3, 21, 40])
def test_stopped_and_resumed_bit_for_bit(loss, stop):
    corpus, features = noisy_corpus(noise=0.3)
    settings = dict(loss=loss, c2=0.3, tol=1e-9)
    whole = minimize_loss(corpus, features, **settings)
    first = minimize_loss(corpus, features, callback=lambda step, w: step.iteration == stop, **settings)
    if whole.n_iter > stop:
        assert first.status == "stopped by callback" and first.n_iter == stop
        assert first.objective == value_at(corpus, features, first.w, c2=0.3, loss=loss)
    rest = minimize_loss(corpus, features, state=first.state, **settings)
    np.testing.assert_array_equal(rest.w, whole.w)
    assert (rest.objective, rest.status, rest.n_iter) == (whole.objective, whole.status, whole.n_iter)
    steps = [step[:4] for step in first.history + rest.history]
    assert steps == [step[:4] for step in whole.history]


def test_a_monitor_sees_all_stages():
    corpus, features = noisy_corpus(noise=0.3)
    with Monitor(score=lambda w: -float(w @ w)) as monitor:
        found = minimize_loss(corpus, features, loss="pointwise-exp", c2=0.3, callback=monitor)
    assert [step.iteration for step in monitor.steps] == list(range(1, found.n_iter + 1))
    seconds = [step.seconds for step in monitor.steps]
    assert seconds == sorted(seconds) and len(monitor.scores) == found.n_iter


def test_an_interrupt_keeps_the_last_good_weights():
    corpus, features = noisy_corpus()

    def interrupt(step, w):
        if step.iteration == 5:
            raise KeyboardInterrupt

    found = minimize_loss(corpus, features, loss="exp", c2=0.3, callback=interrupt)
    assert found.status == "interrupted" and found.n_iter == 5 and np.isfinite(found.w).all()


@pytest.mark.parametrize("w0, evaluations", [(None, 0), ("given", 0), (None, 30), (None, 60)])
def test_an_interrupt_anywhere_keeps_what_is_known(w0, evaluations, monkeypatch):
    """At the first evaluation there is the start alone; later, also between stages, a state to go on from."""
    corpus, features = noisy_corpus(noise=0.3)
    settings = dict(loss="exp", c2=0.3, tol=1e-9)
    whole = minimize_loss(corpus, features, **settings)
    w0 = np.full(features.n_features, 0.1) if w0 else None
    calls, call = [], Objective.__call__

    def interrupted(self, w):
        calls.append(w)
        if len(calls) == evaluations + 1:
            raise KeyboardInterrupt
        return call(self, w)

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "__call__", interrupted)
        found = minimize_loss(corpus, features, w0, **settings)
    assert found.status == "interrupted" and len(found.history) == found.n_iter
    assert bool(found.state) == (found.n_iter > 0) == (evaluations > 0)
    if not evaluations:
        assert math.isnan(found.objective)
        np.testing.assert_array_equal(found.w, np.zeros(features.n_features) if w0 is None else w0)
    else:
        rest = minimize_loss(corpus, features, state=found.state, **settings)
        assert rest.n_iter == whole.n_iter
        np.testing.assert_array_equal(rest.w, whole.w)


def test_an_interrupt_between_stages_keeps_the_stage_before(monkeypatch):
    corpus, features = noisy_corpus(noise=0.3)
    whole = minimize_loss(corpus, features, loss="exp", c2=0.3)

    def interrupted(self, w):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "log_value", interrupted)
        found = minimize_loss(corpus, features, loss="exp", c2=0.3)
    assert found.status == "interrupted" and found.n_iter > 0 and np.isfinite(found.objective)
    rest = minimize_loss(corpus, features, loss="exp", c2=0.3, state=found.state)
    assert rest.n_iter == whole.n_iter
    np.testing.assert_array_equal(rest.w, whole.w)


def test_refusals():
    corpus, features = noisy_corpus()
    with pytest.raises(ValueError, match="starts: expected some of"):
        minimize_loss(corpus, features, loss="pointwise-log", starts=("gold",))
    with pytest.raises(ValueError, match="loss: expected one of"):
        minimize_loss(corpus, features, loss="hinge")
    with pytest.raises(ValueError, match="clamp: belongs to"):
        minimize_loss(corpus, features, clamp=3.0)
