"""SGD and SGD-L1 on lists of weights: what they find on tables if eps is 0, and the rest by enumeration."""

import numpy as np
import pytest
from helpers.corpora import chains_of, held_bytes, random_corpus, random_model
from helpers.memory import peak_bytes
from helpers.problems import central_differences, on_both, problem

from crfbook import brute
from crfbook.chain import token_layout
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed
from crfbook.learners.stochastic.averaged import AverageGradient, sag, sag_memory
from crfbook.learners.stochastic.dual import DualAscent, sdca, sdca_memory
from crfbook.learners.stochastic.gradient_descent import clip_cells, sgd, sgd_l1, sgd_l1_steps, sgd_steps
from crfbook.learners.stochastic.lists import list_work
from crfbook.training.certificate import Rules

pytestmark = pytest.mark.kernels
LEARNERS = {"sgd": (sgd, {"c2": 0.3}), "sgd_l1": (sgd_l1, {"c1": 0.3})}
both = pytest.mark.parametrize("name", LEARNERS)


def wide(seed=0, n_labels=41, lengths=None):
    rng = np.random.default_rng(seed)
    lengths = tuple(rng.integers(0, 9, 30)) if lengths is None else lengths
    corpus = random_corpus(rng, lengths, n_labels, 20, valued=True, weighted=True)
    features, w = random_model(rng, corpus, n_labels, 20)
    return corpus, features, w


def laid_out(corpus, features, constraints, eps):
    layout, _, lists = token_layout.lay_out_lists(corpus, features, constraints)
    return layout, lists, list_work(corpus, layout, lists, eps)


def active_tables(u, table, labels, eps):
    """Scores of transitions into each token (T, L, L), and which of them count, loop by loop."""
    counts, alpha = np.zeros((len(u), *table.shape), bool), np.exp(u[0])
    for t in range(1, len(u)):
        alpha = alpha / alpha.sum()
        for yp in range(len(alpha)):
            counts[t, yp] = (alpha[yp] >= eps) | (yp == labels[t - 1]) | ~np.isfinite(table[yp])
        alpha = np.exp(u[t]) * (alpha @ np.exp(np.where(counts[t], table, 0.0)))
    return np.where(counts, table, 0.0), counts


def approximate(corpus, features, w, s, eps, constraints):
    """(loss, gradient) of sequence s by enumeration, its weight included; central differences, sets fixed."""
    tokens = slice(corpus.seq_ptr[s], corpus.seq_ptr[s + 1])
    labels, weight = corpus.labels[tokens], corpus.seq_weight[s] if len(corpus.seq_weight) else 1.0
    counts = None

    def loss(w):
        nonlocal counts
        u, table, _ = list(chains_of(corpus, features, w, constraints))[s]
        if counts is None:
            counts = active_tables(u, table[0], labels, eps)[1]
        return -weight * brute.log_proba(u, np.where(counts, table[0], 0.0), np.arange(len(u)), labels)

    return loss(w), central_differences(loss, w)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("seed", range(3))
@both
def test_exact_lists_are_tables(name, seed, constrained, monkeypatch):
    corpus, features, w, constraints = problem(seed, constrained, valued=True, weighted=True)
    if constrained:
        constraints = constraints._replace(label_sets=None)
        corpus = corpus._replace(label_set=np.zeros(0, np.int32))
    learner, penalty = LEARNERS[name]

    def learn():
        start = learner(corpus, features, w, **penalty, constraints=constraints, max_iterations=3)
        rest = learner(
            corpus, features, **penalty, constraints=constraints, max_iterations=5, state=start.state
        )
        return start, rest

    tables, lists = on_both(monkeypatch, learn)
    for want, got in zip(tables, lists, strict=True):
        np.testing.assert_allclose(got.w, want.w, rtol=1e-9, atol=1e-11)
        assert [s.objective for s in got.history] == pytest.approx([s.objective for s in want.history])
        assert got.objective == pytest.approx(want.objective, rel=1e-12)


@both
def test_many_labels(name, monkeypatch):
    corpus, features, w = wide()
    learner, penalty = LEARNERS[name]
    tables, lists = on_both(
        monkeypatch, lambda: learner(corpus, features, 0.3 * w, **penalty, max_iterations=3)
    )
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.3, 0.999])
def test_one_step_is_the_gradient_with_the_sets_fixed(eps, constrained):
    corpus, features, w, constraints = problem(1, constrained, (3, 1, 4, 2, 3), valued=True, weighted=True)
    if constrained:
        constraints = constraints._replace(label_sets=None)
        corpus = corpus._replace(label_set=np.zeros(0, np.int32))
    layout, lists, work = laid_out(corpus, features, constraints, eps)
    differs = 0
    for s in [0, 2, 1, 4, 3]:
        theta = w / 0.25
        total, scale = sgd_steps(np.array([s]), 0.5, 0.0, 0, 0.25, layout, None, lists, work, theta)
        loss, grad = approximate(corpus, features, w, s, eps, constraints)
        assert (total, scale) == (pytest.approx(loss, abs=1e-11), 0.25) and total >= -1e-12
        np.testing.assert_allclose((w - 0.25 * theta) / 0.5, grad, rtol=0, atol=1e-8)
        differs += abs(loss - approximate(corpus, features, w, s, 0.0, constraints)[0]) > 1e-3
    assert differs >= 1 or eps == 0.0 or constrained


@pytest.mark.parametrize("eps", [0.0, 0.2])
def test_steps_with_a_lazy_shrink_are_plain_steps(eps):
    corpus, features, w = wide(2)
    layout, lists, work = laid_out(corpus, features, None, eps)
    order, (eta0, shrinkage, n_done) = np.random.default_rng(0).choice(corpus.visited, 40), (0.4, 0.3, 5)
    theta = w.copy()
    total, scale = sgd_steps(order, eta0, shrinkage, n_done, 1.0, layout, None, lists, work, theta)
    losses = 0.0
    for j, s in enumerate(order):
        after, eta = w.copy(), eta0 / (1.0 + shrinkage * eta0 * (n_done + j))
        layout, lists, work = laid_out(corpus, features, None, eps)  # nothing kept from the step before
        losses += sgd_steps(np.array([s]), eta, 0.0, 0, 1.0, layout, None, lists, work, after)[0]
        w = after - eta * shrinkage * w
    np.testing.assert_allclose(scale * theta, w, rtol=1e-9, atol=1e-11)
    assert total == pytest.approx(losses, rel=1e-11)


@pytest.mark.parametrize("eps", [0.0, 0.2])
def test_a_lazy_penalty_is_that_of_all_weights_after_each_step(eps):
    corpus, features, w = wide(3)
    layout, lists, work = laid_out(corpus, features, None, eps)
    order = np.random.default_rng(0).choice(corpus.visited, 40)
    eta0, decay, penalty, n_done = 0.3, 0.97, 0.3, 4
    theta, received = w.copy(), np.zeros_like(w)
    total, due = sgd_l1_steps(
        order, eta0, decay, penalty, n_done, 0.0, layout, None, lists, work, theta, received
    )
    clip_cells(0, len(theta), due, theta, received)
    u, q, losses = 0.0, np.zeros_like(w), 0.0
    for j, s in enumerate(order):
        z, eta = w.copy(), eta0 * decay ** (n_done + j)
        losses += sgd_steps(np.array([s]), eta, 0.0, 0, 1.0, layout, None, lists, work, z)[0]
        u += eta * penalty
        w = np.where(z > 0, np.maximum(0, z - (u + q)), np.where(z < 0, np.minimum(0, z + (u - q)), z))
        q += w - z
    assert 0 < np.count_nonzero(w) < len(w)
    np.testing.assert_allclose(theta, w, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(theta == 0, w == 0)
    np.testing.assert_allclose([total, due], [losses, u], rtol=1e-11)


@both
def test_resuming_goes_on_bit_for_bit(name):
    corpus, features, _ = wide(4)
    learner, options = LEARNERS[name][0], LEARNERS[name][1] | {"eps": 0.05, "random_state": 3}
    whole = learner(corpus, features, **options, max_iterations=6)
    half = learner(corpus, features, **options, max_iterations=2)
    rest = learner(corpus, features, **options, max_iterations=6, state=half.state)
    assert [s.objective for s in half.history + rest.history] == [s.objective for s in whole.history]
    assert np.array_equal(rest.w, whole.w) and rest.objective == whole.objective
    exact = learner(corpus, features, **options | {"eps": 0.0}, max_iterations=6)
    assert np.abs(exact.w - whole.w).max() > 1e-6


@pytest.mark.parametrize("size", [30.0, 1e3])
@both
def test_extreme_weights(name, size, monkeypatch):
    """The log form, and what it leaves behind for the scaled one."""
    corpus, features, w = wide(5)
    learner, penalty = LEARNERS[name]
    w = np.where(np.random.default_rng(0).random(len(w)) < 0.3, size * w, w)
    rates = {"sgd": {"calibration_max_trials": 1}, "sgd_l1": {}}[name]
    tables, lists = on_both(
        monkeypatch, lambda: learner(corpus, features, w, **penalty, **rates, max_iterations=2)
    )
    assert np.isfinite(lists.objective) and lists.objective == pytest.approx(tables.objective, rel=1e-9)
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-8)


def test_transitions_that_are_all_but_forbidden():
    """Potentials of e^-60: a gain alone has lost them."""
    corpus, _, _ = wide(6, 3, (2, 3, 2))
    features, w = random_model(np.random.default_rng(0), corpus, 3, 20, all_transitions=True)
    w[features.n_node :] -= 60.0
    layout, lists, work = laid_out(corpus, features, None, 0.0)
    for s in range(3):
        after, (want, grad) = w.copy(), approximate(corpus, features, w, s, 0.0, None)
        loss, _ = sgd_steps(np.array([s]), 1.0, 0.0, 0, 1.0, layout, None, lists, work, after)
        assert loss == pytest.approx(want, rel=1e-12) and work.flags[0] == 0
        np.testing.assert_allclose(w - after, grad, rtol=0, atol=1e-7)


def test_mass_that_would_vanish_unseen():
    """e^-749 on the way to most of it: scores of nodes and transitions together decide on the log form."""
    corpus = make_corpus([0, 3], np.arange(4), np.arange(3), labels=np.array([0, 1, 2]))
    features = observed(corpus, 3, 3, all_states=True, all_transitions=True)
    edges = np.array([[0.0, -600.0, -700.0], [0.0, -600.0, 700.0], [0.0, -600.0, -700.0]])
    nodes = np.array([[0.0, -149.0, -149.0], [0.0, -149.0, -149.0], [-149.0, -149.0, 0.0]])
    w = np.concatenate([nodes.ravel(), edges.ravel()])
    only_first = Constraints(np.ones((3, 3), bool), np.arange(3) == 0, np.ones(3, bool))
    layout, lists, work = laid_out(corpus, features, only_first, 0.0)
    loss, _ = sgd_steps(np.array([0]), 0.0, 0.0, 0, 1.0, layout, None, lists, work, w)
    assert abs(loss) < 1e-9 and work.flags[0] == 1
    w[-9:] = 0.0  # larger ones that come by a step are seen as well
    sgd_steps(np.array([0, 0]), 700.0, 0.0, 0, 1.0, layout, None, lists, work, w)
    assert work.flags[0] == 1 and np.isfinite(w).all()


def test_weights_that_change_between_calls():
    """A trial of a learning rate is undone: nothing of its scores may stay."""
    corpus, features, w = wide(13, 5, (3, 4))
    layout, lists, work = laid_out(corpus, features, None, 0.0)
    other, order = np.random.default_rng(1).normal(size=len(w)), corpus.visited[:1]
    losses = [sgd_steps(order, 0.0, 0.0, 0, 1.0, layout, None, lists, work, v)[0] for v in (w, other, w)]
    assert losses[0] == losses[2] != losses[1]
    want = [approximate(corpus, features, v, order[0], 0.0, None)[0] for v in (w, other)]
    np.testing.assert_allclose(losses[:2], want, rtol=1e-11)


@pytest.mark.parametrize("eps", [0.0, 0.2])
@pytest.mark.parametrize("n_labels", [1, 2])
@pytest.mark.parametrize("lengths", [(2, 0, 1, 3), (1,), (0, 1), (0,), ()])
@both
def test_small_problems(name, lengths, n_labels, eps, monkeypatch):
    monkeypatch.setattr(token_layout, "MANY_LABELS", 0)
    monkeypatch.setattr(token_layout, "FEW_PAIRS", 1.0)
    corpus, features, _ = wide(7, n_labels, lengths)
    learner, penalty = LEARNERS[name]
    result = learner(corpus, features, **penalty, eps=eps, max_iterations=4)
    w, c2, c1 = result.w, penalty.get("c2", 0.0), penalty.get("c1", 0.0)
    want = sum(approximate(corpus, features, w, s, eps, None)[0] for s in corpus.visited)
    assert result.objective == pytest.approx(want + c2 * w @ w + c1 * np.abs(w).sum(), abs=1e-9)


@both
def test_label_sets_and_unknown_edge_attributes(name, monkeypatch):
    corpus, features, w, constraints = problem(2, True)
    learner, penalty = LEARNERS[name]
    tables, lists = on_both(
        monkeypatch,
        lambda: learner(corpus, features, w, **penalty, constraints=constraints, max_iterations=3),
    )
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-11)
    corpus, features, w = wide(8)
    corpus = corpus._replace(class_ptr=np.array([0, 1]), class_attr=np.array([7], np.int32))
    tables, lists = on_both(monkeypatch, lambda: learner(corpus, features, w, **penalty, max_iterations=2))
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-11)


@both
def test_no_loss_is_negative(name):
    """The gold path keeps all its pairs, so that the mass of all paths is at least its own."""
    corpus, features, _ = wide(9, 12)
    learner, penalty = LEARNERS[name]
    result = learner(corpus, features, **penalty, eps=0.9, max_iterations=3)
    layout, lists, work = laid_out(corpus, features, None, 0.9)
    for factor in (1.0, 20.0):
        for s in corpus.visited:
            loss, _ = sgd_steps(np.array([s]), 0.0, 0.0, 0, 1.0, layout, None, lists, work, factor * result.w)
            assert loss > -1e-9


@pytest.mark.parametrize("eps", [-1e-9, 1.0, 1.5, np.nan, np.inf, "much"])
@both
def test_eps_out_of_range(name, eps):
    corpus, features, _ = wide(10, 3)
    learner, penalty = LEARNERS[name]
    with pytest.raises((ValueError, TypeError), match="eps: expected a number from 0 to below 1, got"):
        learner(corpus, features, **penalty, eps=eps)


@both
def test_eps_with_several_edge_classes(name):
    corpus, features, _, _ = problem(11, n_classes=3)
    learner, penalty = LEARNERS[name]
    with pytest.raises(ValueError, match="active sets: expected the same transitions"):
        learner(corpus, features, **penalty, eps=0.1)


def test_no_array_grows_with_pairs_of_labels():
    """Nor with occurrences times weights."""
    corpus, features, _ = wide(12, 300)
    layout, lists, work = laid_out(corpus, features, None, 1e-3)
    arrays = [*layout[:-2], *lists[:-2], *lists.scores, *work[:6], *work.edges[1:-1], work.product]
    arrays += [*work.pairs, work.cell, work.ptr, *work.active]
    assert max(array.size for array in arrays) <= max(corpus.longest * 300, features.n_features)


REMEMBER = {"sdca": (sdca, sdca_memory, DualAscent), "sag": (sag, sag_memory, AverageGradient)}


@pytest.mark.parametrize("name", REMEMBER)
def test_what_remembers_each_token_says_its_bytes(name):
    """Right for 319 labels with the transitions that occur."""
    learner, memory, kind = REMEMBER[name]
    corpus, features, _ = wide(14, 319, (20,) * 100)
    rest = {"sdca": (1.0, 1e-4, 1), "sag": (Rules(0.0, 1.0, 1e-6, 1e-3), 1)}[name]
    run = kind(corpus, features, None, None, None, 0, *rest)
    works = (run.work, run.trial, run.theta) if name == "sdca" else (run.works, run.lazy, run.grad)
    held = held_bytes(run.memory, run.layout._replace(bounds=()), *works, run.w)
    assert 0.9 * held <= memory(corpus, features) <= 1.1 * held


@pytest.mark.parametrize("name", REMEMBER)
def test_what_remembers_each_token_refuses_thousands_of_labels(name):
    """Before anything grows."""
    learner, memory, _ = REMEMBER[name]
    rng, n = np.random.default_rng(0), 200_000
    labels = np.sort(rng.integers(0, 2322, n))
    corpus = make_corpus(np.arange(0, n + 1, 20), np.arange(n + 1), np.zeros(n, np.int64), labels=labels)
    features = observed(corpus, 2322, 1)
    refused, peak = peak_bytes(lambda: pytest.raises(MemoryError, learner, corpus, features, c2=1.0))
    assert refused.match(f"^{name} remembers .* GB here, more than memory_limit = 2 GB")
    assert peak < 3e7 < 2e9 < memory(corpus, features)
