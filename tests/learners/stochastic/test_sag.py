"""Stochastic average gradient: its representation against the dense steps written out,
and its end against L-BFGS.
"""

import numpy as np
import pytest
from helpers.corpora import brute_value, held_bytes, random_corpus, random_model
from helpers.problems import KINDS, laid_out, loss_of, problem, separable

from crfbook.chain.objective import Objective
from crfbook.chain.sequence import score_gradient, score_sequence
from crfbook.chain.token_layout import cells_of, sequence_work, weights_of
from crfbook.data.corpus import take_sequences
from crfbook.data.features import observed
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.stochastic.averaged import (
    AverageGradient,
    clear_gradient,
    sag,
    sag_memory,
    sag_steps,
    sag_steps_plain,
    search_lipschitz,
    write_out,
)
from crfbook.learners.stochastic.dual import sdca
from crfbook.learners.stochastic.fast import fast_fit
from crfbook.training.certificate import Rules

pytestmark = pytest.mark.kernels


def dense_sag(corpus, features, w, order, c2, constants, first_pass, boldness):
    """The algorithm as the paper has it, every vector dense; `constants[j]`: (sum,
    largest) of the L_i seen up to step j.
    """
    n = int((np.diff(corpus.seq_ptr) > 0).sum())
    shrinkage, gradients = 2 * c2 / n, {}
    for j, s in enumerate(order):
        gradients[s] = loss_of(corpus, features, s)(w)[1]
        m, (total, largest) = len(gradients), constants[j]
        alpha = 1 / (total / m + shrinkage)
        if j >= first_pass:
            alpha = boldness * alpha + (1 - boldness) / (largest + shrinkage)
            w = (1 - alpha * shrinkage) * w - alpha / m * sum(gradients.values())
        else:
            w = (1 - alpha * shrinkage) * w - alpha * gradients[s]
    return w, sum(gradients.values())


@pytest.mark.parametrize(
    "c2, boldness", [(0.3, 0.5), (400.0, 0.125)]
)  # c2 = 400: the weights are written out again and again
@pytest.mark.parametrize("kind", KINDS)
def test_lazy_steps_are_the_dense_steps(kind, c2, boldness):
    corpus, features, _, _ = problem(20, **kind)
    run = AverageGradient(corpus, features, None, None, None, 0, Rules(0.0, c2, 0.0))
    sequences = run.sequences
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(sequences), rng.choice(sequences, 40)])
    constants = []
    for j, s in enumerate(
        order
    ):  # one call a step, to note the constants that it used; the largest of a call is a running one
        before = run.memory.lipschitz.max()
        how = int(j < len(sequences)), boldness, 2 * c2 / len(sequences)
        bad = sag_steps(np.array([s]), *how, run.layout, run.memory, run.lazy, *run.works, run.grad)
        assert bad == -1 and not run.grad.any()
        constants.append((run.memory.lipschitz.sum(), max(before, run.memory.lipschitz.max())))
    write_out(run.lazy)
    w, d = dense_sag(
        corpus, features, np.zeros(features.n_features), order, c2, constants, len(sequences), boldness
    )
    np.testing.assert_allclose(weights_of(run.cells, run.lazy.u), w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(weights_of(run.cells, run.lazy.d), d, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", [5, 9, 15])  # with the paper's steps alone, 525 epochs, and none in 600
def test_few_and_unlike_sequences(seed):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(
        rng,
        lengths=tuple(rng.integers(0, 7, 40)),
        n_labels=4,
        n_classes=2,
        valued=False,
        weighted=seed % 2 == 1,
    )
    features, _ = random_model(rng, corpus, n_labels=4)
    best = minimize(
        Objective(corpus, features, c2=0.1), np.zeros(features.n_features), c2=0.1, tol=1e-10
    ).objective
    found = sag(corpus, features, c2=0.1, tol=1e-7, max_iterations=300)
    assert found.status == "converged" and found.objective <= best * (1 + 2e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_search_for_a_lipschitz_constant(kind):
    corpus, features, w, _ = problem(21, **kind)
    layout, cells, work = laid_out(corpus, features)
    direction, trial = (sequence_work(corpus, layout.exists.shape[1]) for _ in range(2))
    theta, grad = cells_of(cells, w), np.zeros(len(cells_of(cells, w)))
    for s in [0, 2, 3, 6, 8]:
        score_sequence(s, theta, 1.0, layout, work)
        loss = score_gradient(s, layout, work)
        before = work.p_node.copy(), work.edge_sum.copy()
        found = search_lipschitz(s, loss, 1e-3, layout, work, direction, trial, grad)
        assert (
            not grad.any()
            and np.array_equal(before[0], work.p_node)
            and np.array_equal(before[1], work.edge_sum)
        )
        fun = loss_of(corpus, features, s)
        value, g = fun(w)
        falls = [fun(w - g / L)[0] <= value - g @ g / (2 * L) for L in 1e-3 * 2.0 ** np.arange(20)]
        np.testing.assert_allclose(found, 1e-3 * 2.0 ** falls.index(True), rtol=1e-12)


def test_a_gradient_is_cleared_and_measured():
    corpus, features, w, _ = problem(22, n_classes=2)
    layout, cells, work = laid_out(corpus, features)
    from crfbook.chain.sequence import add_gradient

    score_sequence(3, cells_of(cells, w), 1.0, layout, work)
    score_gradient(3, layout, work)
    grad = np.zeros(len(cells_of(cells, w)))
    add_gradient(3, 1.0, layout, work, grad)
    squares = grad @ grad
    np.testing.assert_allclose(clear_gradient(3, layout, grad), squares)
    assert squares > 0 and not grad.any()


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_reaches_the_optimum(kind, constrained):
    corpus, features, _, constraints = problem(23, constrained, **kind)
    objective = Objective(corpus, features, c2=0.5, constraints=constraints)
    best = minimize(objective, np.zeros(features.n_features), c2=0.5, tol=1e-10)
    result = sag(corpus, features, c2=0.5, constraints=constraints, tol=1e-8, max_iterations=2000)
    assert result.status == "converged" and result.n_iter < 500
    np.testing.assert_allclose(result.w, best.w, rtol=0, atol=1e-3)
    assert best.objective * (1 - 1e-9) <= result.objective <= best.objective * (1 + 1e-6)
    last = result.history[-1]
    value, grad = objective(result.w)
    np.testing.assert_allclose([last.objective, last.violation], [value, grad @ grad / 2.0], rtol=1e-9)
    assert last.violation <= 1e-8 * max(1.0, value)
    assert result.n_iter < result.n_evaluations < 1.5 * result.n_iter + 5


def test_without_penalty_the_gradient_ends_it():
    corpus, features, _, _ = problem(24, lengths=(4,) * 60)
    result = sag(corpus, features, c2=0.0, tol_gradient=1e-3, max_iterations=3000)
    grad = Objective(corpus, features)(result.w)[1]
    assert result.status == "converged" and np.abs(grad).max() <= 1e-3
    np.testing.assert_allclose(result.history[-1].violation, np.abs(grad).max(), rtol=1e-9)


def test_separable_data_without_penalty_stay_usable():
    corpus, features = separable()
    result = sag(corpus, features, c2=0.0, max_iterations=40)
    assert np.isfinite(result.w).all() and result.objective < 0.2 * corpus.n_tokens * np.log(3)


def test_resuming_goes_on_bit_for_bit():
    corpus, features, _, _ = problem(25, valued=True, n_classes=2)
    whole = sag(corpus, features, c2=0.5, tol=0.0, max_iterations=9, random_state=3)
    half = sag(corpus, features, c2=0.5, tol=0.0, max_iterations=4, random_state=3)
    kept = {name: np.array(value) for name, value in half.state.items()}
    rest = sag(corpus, features, c2=0.5, tol=0.0, max_iterations=9, state=half.state)
    assert all(np.array_equal(half.state[name], value) for name, value in kept.items())
    assert [s.objective for s in half.history + rest.history] == [s.objective for s in whole.history]
    assert np.array_equal(rest.w, whole.w) and rest.objective == whole.objective
    assert not np.array_equal(
        sag(corpus, features, c2=0.5, tol=0.0, max_iterations=9, random_state=4).w, whole.w
    )
    with pytest.raises(ValueError, match="state: expected that of sag"):
        sag(corpus, features, c2=0.5, state={"w": np.zeros(2)})


@pytest.mark.parametrize("learner", [sag, sdca, fast_fit])
@pytest.mark.parametrize("n_classes", [1, 2])
def test_a_state_that_keeps_transitions_in_another_order_is_refused(learner, n_classes):
    """Of one class there is one order: such a state is read as ever."""
    corpus, features, _, _ = problem(25, n_classes=n_classes)
    whole = learner(corpus, features, c2=0.5, tol=0.0, max_iterations=4)
    half = learner(corpus, features, c2=0.5, tol=0.0, max_iterations=2)
    old = {name: value for name, value in half.state.items() if name != "edge_order"}
    again = {"c2": 0.5, "tol": 0.0, "max_iterations": 4}
    if n_classes == 1:
        assert np.array_equal(learner(corpus, features, state=old, **again).w, whole.w)
    else:
        with pytest.raises(
            ValueError, match=r"expected one of \w+ with edge_order 2, got 1: .* w0=state\['w'\]"
        ):
            learner(corpus, features, state=old, **again)
    assert np.array_equal(learner(corpus, features, state=half.state, **again).w, whole.w)


def test_from_the_optimum_it_ends_at_once():
    corpus, features, _, _ = problem(26)
    best = minimize(Objective(corpus, features, c2=0.5), np.zeros(features.n_features), c2=0.5, tol=1e-12)
    result = sag(corpus, features, best.w, c2=0.5)
    assert result.status == "converged" and result.n_iter == 1 and np.array_equal(result.w, best.w)
    assert np.array_equal(sag(corpus, features, best.w, c2=0.5, max_iterations=0).w, best.w)


def test_callback_interrupt_and_history(monkeypatch):
    corpus, features, _, _ = problem(27)
    seen = []
    result = sag(corpus, features, c2=0.5, callback=lambda step, w: seen.append(w.copy()) or len(seen) == 3)
    assert (
        result.status == "stopped by callback" and result.n_iter == 3 and np.array_equal(result.w, seen[-1])
    )

    from crfbook.learners.stochastic import averaged as module

    calls = []

    def steps(*arguments):
        calls.append(1)
        bad = sag_steps(*arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return bad

    monkeypatch.setattr(module, "sag_steps", steps)
    stopped = sag(corpus, features, c2=0.5)
    monkeypatch.undo()
    assert stopped.status == "interrupted" and stopped.n_iter == 4 and np.isfinite(stopped.w).all()
    np.testing.assert_allclose(stopped.objective, Objective(corpus, features, c2=0.5)(stopped.w)[0])
    assert sag(corpus, features, c2=0.5, state=stopped.state).status == "converged"


def test_memory_is_stated_and_refused_above_the_limit():
    corpus, features, _, _ = problem(28, n_classes=3)
    need = sag_memory(corpus, features)
    run = AverageGradient(corpus, features, None, None, None, 0, Rules(0.0, 1.0, 0.0))
    held = held_bytes(run.memory, run.layout, run.works, run.lazy, run.grad, run.w)
    assert 0.5 * held < need < 2.0 * held
    with pytest.raises(
        MemoryError, match=r"sag remembers the marginals of every token, .* GB here, more than memory_limit"
    ):
        sag(corpus, features, c2=1.0, memory_limit=need - 1)
    assert sag(corpus, features, c2=1.0, memory_limit=need, max_iterations=1).n_iter == 1


def test_pairs_are_remembered_once_for_each_class_that_a_sequence_uses():
    corpus, features, _, _ = problem(29, n_classes=3)
    run = AverageGradient(corpus, features, None, None, None, 0, Rules(0.0, 1.0, 0.0))
    sizes = np.diff(run.memory.pair_ptr)
    for s, (first, last) in enumerate(zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True)):
        used = set(corpus.edge_class[first + 1 : last].tolist())
        assert run.memory.edge_start[s + 1] - run.memory.edge_start[s] == sum(sizes[list(used)])


@pytest.mark.parametrize("lengths", [(3,), (1,), (0, 2, 0), (0,), ()])
def test_small_corpora(lengths):
    corpus, features, _, _ = problem(30, lengths=lengths)
    result = sag(corpus, features, c2=0.5, max_iterations=300)
    assert result.status == "converged"
    np.testing.assert_allclose(result.objective, brute_value(corpus, features, result.w, 0.5), atol=1e-9)


def test_unseen_attributes_and_sequences_without_weight_do_nothing():
    corpus, features, _, _ = problem(31, weighted=True)
    weight = corpus.seq_weight.copy()
    weight[3] = 0.0
    corpus = corpus._replace(seq_weight=weight, attr_idx=np.where(corpus.attr_idx == 2, 8, corpus.attr_idx))
    wide = observed(corpus, 3, 12)
    result = sag(corpus, wide, c2=0.5, max_iterations=4, tol=0.0)
    again = sag(take_sequences(corpus, [0, 1, 2, 4, 5, 6, 7, 8]), wide, c2=0.5, max_iterations=4, tol=0.0)
    np.testing.assert_allclose(result.w, again.w, atol=1e-12)


@pytest.mark.parametrize("options, message", [
    ({"c2": -1.0}, "c2: expected a finite number >= 0, got -1.0"),
    ({"c2": 1.0, "tol": -1.0}, "tol: expected a finite number >= 0"),
    ({"c2": 1.0, "max_iterations": 1.5}, "max_iterations: expected an integer >= 0, got 1.5"),
])  # fmt: skip
def test_bad_arguments_are_named(options, message):
    corpus, features, _, _ = problem(32)
    with pytest.raises(ValueError, match=message):
        sag(corpus, features, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_the_readable_sister_does_the_same_steps(kind, seed):
    """After a first pass, with steps or without, a hundred steps: searches are left out and begin again."""
    corpus, features, w, _ = problem(seed, **kind)
    run = AverageGradient(corpus, features, w, None, None, 0, Rules(0.0, 0.3, 0.0))
    memory, found, rng = {}, w.copy(), np.random.default_rng(seed)
    orders = rng.permutation(run.sequences), rng.choice(run.sequences, 100)
    for first_pass, order in zip((1 + seed % 2, 0), orders, strict=True):
        how = first_pass, 0.4, 0.6 / len(run.sequences)
        assert sag_steps(order, *how, run.layout, run.memory, run.lazy, *run.works, run.grad) == -1
        sag_steps_plain(order, *how, found, memory, corpus, features)
    write_out(run.lazy)
    assert run.memory.calm.max() > 1
    np.testing.assert_allclose(found, weights_of(run.cells, run.lazy.u), rtol=0, atol=1e-9)
    for s, (gradient, lipschitz, calm, skip) in memory.items():
        assert (run.memory.calm[s], run.memory.skip[s]) == (calm, skip) and gradient.any()
        np.testing.assert_allclose(run.memory.lipschitz[s], lipschitz, rtol=1e-12)
