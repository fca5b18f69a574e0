"""SGD and SGD-L1: fast forms against the updates written out, and both against the optimum."""

import numpy as np
import pytest
from helpers.corpora import brute_value
from helpers.problems import KINDS, laid_out, loss_of, problem, separable

from crfbook.chain.objective import Objective
from crfbook.chain.sequence import add_gradient, score_gradient, score_sequence
from crfbook.chain.token_layout import cells_of, epoch_order, weights_of
from crfbook.data.corpus import make_corpus, take_sequences
from crfbook.data.features import observed
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.stochastic import gradient_descent as stochastic_run
from crfbook.learners.stochastic.gradient_descent import (
    clip_cells,
    divergence,
    sgd,
    sgd_l1,
    sgd_l1_steps,
    sgd_l1_steps_plain,
    sgd_steps,
    sgd_steps_plain,
)

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_is_the_objective_of_a_corpus_of_one(kind, constrained):
    corpus, features, w, constraints = problem(13, constrained, **kind)
    layout, cells, work = laid_out(corpus, features, constraints)
    assert len(layout.dense_id) and len(layout.pair_cell) and not layout.exists[:, :3].all()
    theta = cells_of(cells, w / 0.25)
    for s in [3, 0, 6, 2, 3, 8]:
        score_sequence(s, theta, 0.25, layout, work)
        loss = layout.weight[s] * score_gradient(s, layout, work)
        grad = np.zeros_like(theta)
        add_gradient(s, layout.weight[s], layout, work, grad)
        expected, expected_grad = loss_of(corpus, features, s, constraints)(w)
        np.testing.assert_allclose(loss, expected, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(weights_of(cells, grad), expected_grad, rtol=0, atol=1e-11)
        assert np.count_nonzero(grad) == np.count_nonzero(
            weights_of(cells, grad)
        )  # what is no weight stays 0


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_updates_are_plain_gradient_steps(kind):
    corpus, features, w, _ = problem(2, **kind)
    layout, cells, work = laid_out(corpus, features)
    order = np.array([3, 0, 6, 3, 2, 8, 7])
    eta0, shrinkage, n_done = 0.7, 0.3, 5
    theta = cells_of(cells, w)
    total, scale = sgd_steps(order, eta0, shrinkage, n_done, 1.0, layout, work, None, None, theta)
    losses = 0.0
    for j, s in enumerate(order):
        value, grad = loss_of(corpus, features, s)(w)
        losses += value
        eta = 1.0 / (shrinkage * (1.0 / (shrinkage * eta0) + n_done + j))
        w = w - eta * shrinkage * w - eta * grad
    np.testing.assert_allclose(scale * weights_of(cells, theta), w, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(total, losses, rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_lazy_penalty_is_the_penalty_of_all_weights_after_each_update(kind):
    corpus, features, w, _ = problem(3, **kind)
    layout, cells, work = laid_out(corpus, features)
    order = np.random.default_rng(0).choice([0, 2, 3, 4, 5, 6, 7, 8], 40)
    eta0, decay, penalty, n_done = 0.5, 0.97, 0.3, 4
    theta = cells_of(cells, w)
    received = np.zeros_like(theta)
    total, due = sgd_l1_steps(
        order, eta0, decay, penalty, n_done, 0.0, layout, work, None, None, theta, received
    )
    clip_cells(0, len(theta), due, theta, received)
    assert np.abs(received).max() <= due + 1e-12
    u, q, losses = 0.0, np.zeros_like(w), 0.0
    for j, s in enumerate(order):
        value, grad = loss_of(corpus, features, s)(w)
        losses += value
        eta = eta0 * decay ** (n_done + j)
        u += eta * penalty
        z = w - eta * grad
        w = np.where(z > 0, np.maximum(0, z - (u + q)), np.where(z < 0, np.minimum(0, z + (u - q)), z))
        q += w - z
    assert 0 < np.count_nonzero(w) < len(w)
    np.testing.assert_allclose(weights_of(cells, theta), w, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(weights_of(cells, theta) == 0, w == 0)
    np.testing.assert_allclose(weights_of(cells, received), q, rtol=0, atol=1e-11)
    np.testing.assert_allclose([total, due], [losses, u], rtol=1e-11)


def test_an_update_touches_the_weights_of_its_sequence_only():
    corpus, features, w, _ = problem(4, lengths=(3,) * 60)
    layout, cells, work = laid_out(corpus, features)
    for steps in ("l2", "l1"):
        theta = cells_of(cells, w)
        if steps == "l2":
            sgd_steps(np.array([0]), 0.5, 0.1, 0, 1.0, layout, work, None, None, theta)
        else:
            sgd_l1_steps(
                np.array([0]), 0.5, 1.0, 0.1, 0, 0.2, layout, work, None, None, theta, np.zeros_like(theta)
            )
        moved = np.flatnonzero(weights_of(cells, theta) != w)
        attrs = np.unique(corpus.attr_idx[: corpus.attr_ptr[3]])
        mine = np.concatenate(
            [np.arange(features.node_ptr[a], features.node_ptr[a + 1]) for a in attrs]
            + [np.arange(features.n_node, features.n_features)]
        )
        assert set(moved) <= set(mine) and len(mine) < features.n_features


def test_what_is_left_out_at_zero_weights_is_log_l_a_token():
    corpus, features, _, _ = problem(5)
    result = sgd(corpus, features, c2=1.0, max_iterations=0)
    np.testing.assert_allclose(result.objective, corpus.n_tokens * np.log(3))
    assert result.status == "max_iterations" and not result.history and not result.w.any()


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sgd_reaches_the_optimum_within_a_hundredth(kind, constrained):
    corpus, features, _, constraints = problem(6, constrained, **kind)
    best = minimize(
        Objective(corpus, features, c2=0.5, constraints=constraints), np.zeros(features.n_features), c2=0.5
    )
    result = sgd(corpus, features, c2=0.5, constraints=constraints, max_iterations=300, delta=0.0)
    np.testing.assert_allclose(
        result.objective,
        Objective(corpus, features, c2=0.5, constraints=constraints)(result.w)[0],
        rtol=1e-12,
    )
    assert best.objective <= result.objective <= 1.001 * best.objective
    last = sgd(
        corpus, features, c2=0.5, constraints=constraints, max_iterations=300, delta=0.0, average=False
    )
    assert best.objective <= last.objective <= 1.01 * best.objective


def test_the_mean_gives_later_epochs_more_weight():
    corpus, features, _, _ = problem(6)
    last = []
    sgd(
        corpus,
        features,
        c2=0.5,
        average=False,
        max_iterations=5,
        callback=lambda step, w: last.append(w.copy()),
    )
    weight = np.array([k * (k + 1) * (k + 2) for k in range(1, 6)])
    mean = sgd(corpus, features, c2=0.5, max_iterations=5).w
    np.testing.assert_allclose(mean, weight @ last / weight.sum(), rtol=0, atol=1e-14)


def test_sgd_l1_comes_near_the_optimum_with_its_zeros():
    corpus, features, _, _ = problem(7, lengths=(4,) * 60)
    best = minimize(Objective(corpus, features), np.zeros(features.n_features), c1=2.0, tol_gradient=1e-6)
    result = sgd_l1(corpus, features, c1=2.0, eta0=0.2, decay=0.95, max_iterations=150, delta=0.0)
    assert result.objective <= 1.01 * best.objective
    zero = best.w == 0
    assert zero.sum() > 5 and np.mean(result.w[zero] == 0) > 0.7 and np.mean(result.w[~zero] != 0) > 0.7
    assert result.history[-1].n_active == np.count_nonzero(result.w)


@pytest.mark.parametrize("learner, penalty", [(sgd, {"c2": 0.5}), (sgd_l1, {"c1": 0.5})])
def test_resuming_goes_on_bit_for_bit(learner, penalty):
    corpus, features, _, _ = problem(8, valued=True)
    whole = learner(corpus, features, **penalty, max_iterations=7, random_state=3)
    half = learner(corpus, features, **penalty, max_iterations=3, random_state=3)
    rest = learner(corpus, features, **penalty, max_iterations=7, state=half.state)
    assert [s.objective for s in half.history + rest.history] == [s.objective for s in whole.history]
    assert np.array_equal(rest.w, whole.w) and rest.objective == whole.objective and rest.n_iter == 7
    other = learner(corpus, features, **penalty, max_iterations=7, random_state=4)
    assert not np.array_equal(other.w, whole.w)


@pytest.mark.parametrize("learner, penalty", [(sgd, {"c2": 0.5}), (sgd_l1, {"c1": 0.5})])
def test_callback_sees_each_epoch_and_can_stop(learner, penalty):
    corpus, features, _, _ = problem(9)
    seen = []

    def callback(step, w):
        assert not w.flags.writeable and step.n_active == np.count_nonzero(w)
        seen.append((step.iteration, w.copy()))
        return step.iteration == 3

    result = learner(corpus, features, **penalty, callback=callback)
    assert result.status == "stopped by callback" and [n for n, _ in seen] == [1, 2, 3] and result.n_iter == 3
    assert np.array_equal(result.w, seen[-1][1])
    assert all(b.seconds >= a.seconds > 0 for a, b in zip(result.history, result.history[1:], strict=False))


@pytest.mark.parametrize("learner, penalty", [(sgd, {"c2": 0.5}), (sgd_l1, {"c1": 0.5})])
def test_interrupted_training_keeps_the_last_epoch(learner, penalty):
    corpus, features, _, _ = problem(10)

    def callback(step, w):
        if step.iteration == 4:
            raise KeyboardInterrupt

    stopped = learner(corpus, features, **penalty, callback=callback)
    assert stopped.status == "interrupted"
    four = learner(corpus, features, **penalty, max_iterations=4)
    assert np.array_equal(stopped.w, four.w) and stopped.objective == four.objective
    rest = learner(corpus, features, **penalty, max_iterations=6, state=stopped.state)
    assert np.array_equal(rest.w, learner(corpus, features, **penalty, max_iterations=6).w)


def test_ctrl_c_inside_an_epoch_rolls_it_back(monkeypatch):
    corpus, features, _, _ = problem(11)
    calls = []

    def steps(*arguments):
        calls.append(1)
        if len(calls) == 40:
            arguments[-1][:] = 1e3
            raise KeyboardInterrupt
        return sgd_steps(*arguments)

    monkeypatch.setattr(stochastic_run, "sgd_steps", steps)
    stopped = sgd(corpus, features, c2=0.5)
    monkeypatch.undo()
    assert stopped.status == "interrupted" and stopped.n_iter > 2
    assert np.array_equal(stopped.w, sgd(corpus, features, c2=0.5, max_iterations=stopped.n_iter).w)


def test_interrupted_while_the_learning_rate_is_searched(monkeypatch):
    corpus, features, _, _ = problem(11)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stochastic_run.Sgd, "calibrate", interrupted)
    stopped = sgd(corpus, features, c2=0.5)
    monkeypatch.undo()
    assert stopped.status == "interrupted" and stopped.n_iter == 0 and not stopped.w.any()
    whole = sgd(corpus, features, c2=0.5, max_iterations=5)
    assert np.array_equal(sgd(corpus, features, c2=0.5, max_iterations=5, state=stopped.state).w, whole.w)


@pytest.mark.parametrize("learner, penalty", [(sgd, {"c2": 0.5}), (sgd_l1, {"c1": 0.5})])
def test_interrupted_while_the_start_is_looked_at(learner, penalty, monkeypatch):
    corpus, features, w, _ = problem(11)
    name = f"{learner.__name__}_steps"
    steps = getattr(stochastic_run, name)

    def interrupted(*_):
        monkeypatch.setattr(stochastic_run, name, steps)  # once
        raise KeyboardInterrupt

    monkeypatch.setattr(stochastic_run, name, interrupted)
    stopped = learner(corpus, features, w, **penalty)
    assert (stopped.status, stopped.n_iter, stopped.history) == ("interrupted", 0, [])
    assert np.array_equal(stopped.w, w) and np.isnan(stopped.objective)
    whole = learner(corpus, features, w, **penalty, max_iterations=5)
    rest = learner(corpus, features, **penalty, max_iterations=5, state=stopped.state)
    assert np.array_equal(rest.w, whole.w)


def test_it_stops_when_the_objective_stands_still():
    corpus, features, _, _ = problem(12)
    result = sgd(corpus, features, c2=0.5, period=5, delta=1e-2)
    assert result.status == "small change" and 10 <= result.n_iter < 300
    assert np.isnan(result.history[8].violation) and result.history[-1].violation < 1e-2


@pytest.mark.parametrize(
    "learner, options",
    [
        (sgd_l1, {"c1": 0.1, "eta0": 1e5}),
        (sgd_l1, {"c1": 0.1, "eta0": 1e305}),
        (sgd, {"c2": 0.0, "calibration_eta": 1e6, "calibration_candidates": 1, "calibration_max_trials": 1}),
    ],
)
def test_a_diverging_step_is_halved_and_reported(learner, options):
    corpus, features, _, _ = problem(13, lengths=(5,) * 30)
    result = learner(corpus, features, **options, max_iterations=30)
    assert np.isfinite(result.w).all() and np.isfinite(result.objective)
    assert int(result.state["n_halvings"]) > 0 and "halved" in divergence(result)
    if result.status != "diverged":
        assert result.objective < corpus.n_tokens * np.log(3)


def test_without_penalty_the_step_stays_and_separable_data_are_learnt():
    corpus, features = separable()
    for result in (
        sgd(corpus, features, c2=0.0, max_iterations=50),
        sgd_l1(corpus, features, c1=0.0, max_iterations=50),
    ):
        assert np.isfinite(result.w).all() and result.objective < 0.6 * corpus.n_tokens * np.log(3)
        assert divergence(result) is None


@pytest.mark.parametrize("lengths", [(3,), (1,), (0, 2, 0), (0,), ()])
@pytest.mark.parametrize("learner, penalty", [(sgd, {"c2": 0.5}), (sgd_l1, {"c1": 0.1})])
def test_small_corpora(learner, penalty, lengths):
    corpus, features, _, _ = problem(14, lengths=lengths)
    result = learner(corpus, features, **penalty, max_iterations=20)
    assert np.isfinite(result.w).all() and result.objective <= corpus.n_tokens * np.log(3) + 1e-9
    np.testing.assert_allclose(
        result.objective,
        brute_value(corpus, features, result.w, penalty.get("c2", 0.0))
        + penalty.get("c1", 0.0) * np.abs(result.w).sum(),
        atol=1e-9,
    )


def test_unseen_attributes_and_sequences_without_weight_do_nothing():
    corpus, features, _, _ = problem(15, weighted=True)
    weight = corpus.seq_weight.copy()
    weight[3] = 0.0
    corpus = corpus._replace(seq_weight=weight, attr_idx=np.where(corpus.attr_idx == 2, 8, corpus.attr_idx))
    wide = observed(corpus, 3, 12)  # attributes 9 to 11 occur nowhere, and 2 no more
    result = sgd(corpus, wide, c2=0.5, max_iterations=5)
    kept = take_sequences(corpus, [0, 1, 2, 4, 5, 6, 7, 8])
    assert result.n_evaluations >= 6
    again = sgd(kept, wide, c2=0.5, max_iterations=5)
    np.testing.assert_allclose(result.w, again.w, atol=1e-13)


def test_a_start_is_used():
    corpus, features, w, _ = problem(16)
    assert np.array_equal(sgd(corpus, features, w, c2=0.5, max_iterations=0).w, w)
    best = minimize(Objective(corpus, features, c2=0.5), np.zeros(features.n_features), c2=0.5)
    near = sgd(corpus, features, best.w, c2=0.5, max_iterations=2)
    assert near.history[0].objective < sgd(corpus, features, c2=0.5, max_iterations=2).history[0].objective
    far = sgd(corpus, features, 1e3 * w, c2=1e-9, max_iterations=3)
    assert np.isfinite(far.objective)


@pytest.mark.parametrize("options, message", [
    ({"c2": -1.0}, "c2: expected a finite number >= 0, got -1.0"),
    ({"c2": 1.0, "period": 0}, "period: expected an integer >= 1, got 0"),
    ({"c2": 1.0, "delta": -1e-3}, "delta: expected a number >= 0"),
    ({"c2": 1.0, "calibration_rate": 1.0}, "calibration_rate: expected a finite number > 1, got 1.0"),
    ({"c2": 1.0, "calibration_samples": 0}, "calibration_samples: expected an integer >= 1"),
    ({"c2": 1.0, "max_iterations": -1}, "max_iterations: expected an integer >= 0"),
    ({"c2": 1.0, "state": {"w": np.zeros(2)}}, "state: expected an array 'w' of shape"),
])  # fmt: skip
def test_bad_arguments_are_named(options, message):
    corpus, features, _, _ = problem(17)
    with pytest.raises(ValueError, match=message):
        sgd(corpus, features, **options)


def test_sgd_l1_refuses_an_l2_penalty():
    corpus, features, _, _ = problem(18)
    with pytest.raises(ValueError, match="no L2 penalty: expected c2=0, got 0.5"):
        sgd_l1(corpus, features, c1=1.0, c2=0.5)
    with pytest.raises(ValueError, match="decay: expected a finite number > 0 and at most 1, got 1.5"):
        sgd_l1(corpus, features, c1=1.0, decay=1.5)


def test_orders_differ_between_epochs():
    assert not np.array_equal(epoch_order(0, 1, 50), epoch_order(0, 2, 50))


@pytest.mark.parametrize("size", [1e160, 1e200, 1e300])
@pytest.mark.parametrize("n_epochs", [1, 2, 5])
def test_weights_that_the_last_step_spoilt_are_not_kept(size, n_epochs):
    """A single sequence: nobody sees what its step has done before the pass at the end."""
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 1], attr_val=[size, 1.0])
    features = observed(corpus, 2, 2)
    for result in (
        sgd_l1(corpus, features, c1=0.1, max_iterations=n_epochs),
        sgd(corpus, features, c2=1.0, max_iterations=n_epochs),
    ):
        assert np.isfinite(result.objective) and result.status == "diverged" and result.n_iter < n_epochs
        value = Objective(corpus, features, c2=0.0)(result.w)[0]
        assert value <= 2.0 * np.log(2.0) + 1e-9  # no worse than zero weights
        assert len(result.state["w"]) == features.n_features and result.state["epoch"] == result.n_iter


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_the_readable_sister_does_the_same_steps(kind, seed):
    corpus, features, w, _ = problem(seed, **kind)
    layout, cells, work = laid_out(corpus, features)
    order, rates = np.random.default_rng(seed).permutation(corpus.visited), (0.7, 0.3, 5)
    theta = cells_of(cells, w)
    total, scale = sgd_steps(order, *rates, 1.0, layout, work, None, None, theta)
    found = w.copy()
    losses = sgd_steps_plain(order, *rates, found, corpus, features)
    np.testing.assert_allclose(found, scale * weights_of(cells, theta), rtol=0, atol=1e-11)
    np.testing.assert_allclose(losses, total, rtol=1e-11)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_the_readable_sister_clips_the_same_weights(kind, seed):
    corpus, features, w, _ = problem(seed, **kind)
    layout, cells, work = laid_out(corpus, features)
    order, rates = np.random.default_rng(seed).choice(corpus.visited, 30), (0.5, 0.97, 0.2, 4)
    theta = cells_of(cells, w)
    received = np.zeros_like(theta)
    found, had, due = w.copy(), np.zeros_like(w), 0.0
    for part in np.split(order, [12]):
        plain = sgd_l1_steps_plain(part, *rates, due, found, had, corpus, features)
        total, due = sgd_l1_steps(part, *rates, due, layout, work, None, None, theta, received)
        np.testing.assert_allclose(plain, (total, due), rtol=1e-11)
        clip_cells(0, len(theta), due, theta, received)
    assert 0 < np.count_nonzero(found) < len(w)
    np.testing.assert_allclose(found, weights_of(cells, theta), rtol=0, atol=1e-11)
    np.testing.assert_allclose(had, weights_of(cells, received), rtol=0, atol=1e-11)
