"""Perceptron, PA and AROW on lists of weights and stored pairs: what they find on tables, step by step."""

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model
from helpers.problems import on_both, problem

from crfbook.chain import token_layout
from crfbook.data.constraints import Constraints
from crfbook.learners.online import online
from crfbook.learners.online.online import arow, passive_aggressive, perceptron
from crfbook.learners.online.staggered import refresh_all

pytestmark = pytest.mark.kernels
LEARNERS = {
    "perceptron": perceptron,
    "batch": lambda *a, **k: perceptron(*a, batch=True, **k),
    "pa": lambda *a, **k: passive_aggressive(*a, pa_type=2, **k),
    "arow": arow,
}


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_weights_as_on_tables(name, constrained, seed, monkeypatch):
    corpus, features, w, constraints = problem(seed, constrained, valued=True, weighted=True)
    start = w if seed else None  # ties of sums that round otherwise could part them; values are random

    def learn():
        result = LEARNERS[name](corpus, features, start, constraints=constraints, max_iterations=6)
        again = LEARNERS[name](
            corpus, features, constraints=constraints, max_iterations=9, state=result.state
        )
        return result, again

    tables, lists = on_both(monkeypatch, learn)
    for want, got in zip(tables, lists, strict=True):
        np.testing.assert_allclose(got.w, want.w, rtol=1e-9, atol=1e-11)
        assert [s.objective for s in got.history] == pytest.approx([s.objective for s in want.history])


def wide(seed=0, n_labels=41):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, tuple(rng.integers(0, 9, 60)), n_labels, 40, valued=True)
    features, _ = random_model(rng, corpus, n_labels, 40)
    return corpus, features


@pytest.mark.parametrize("limited", [False, True])
def test_many_labels(limited, monkeypatch):
    corpus, features = wide()
    constraints = None
    if limited:
        allowed = np.random.default_rng(1).random((41, 41)) < 0.3
        inner = corpus.inner
        allowed[corpus.labels[inner - 1], corpus.labels[inner]] = True
        constraints = Constraints(allowed, *np.ones((2, 41), bool))
    tables, lists = on_both(
        monkeypatch, lambda: perceptron(corpus, features, constraints=constraints, max_iterations=5)
    )
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-11)


def test_pairs_and_row_extremes_are_kept_up_to_date(monkeypatch):
    """After each epoch, what single steps have kept is what all weights give."""
    monkeypatch.setattr(token_layout, "MANY_LABELS", 0)
    corpus, features = wide(2)
    learner = online._Online(
        corpus, features, None, None, None, True, 0.0, 10, 0, "auto", online.perceptron_epoch
    )
    order = learner.sequences
    for _ in range(3):
        moved = learner.theta, learner.theta_sum, learner.count
        online.perceptron_epoch(order, *moved, learner.layout, learner.work, learner.totals)
        scores = learner.work.lists.scores
        kept = [scores.score.copy(), scores.max_row.copy(), scores.min_row.copy()]
        assert kept[0].any() and scores.reach[0] >= np.abs(kept[0]).max()
        refresh_all(learner.theta, learner.work.lists, None)
        for before, now in zip(kept, (scores.score, scores.max_row, scores.min_row), strict=True):
            np.testing.assert_array_equal(before, now)


def test_who_gets_lists():
    """Many labels with few pairs, one class; nobody else."""
    corpus, features = wide()
    some = features._replace(n_labels=200)
    assert token_layout.worth_lists(corpus, some)
    assert not token_layout.worth_lists(corpus, features)
    assert not token_layout.worth_lists(corpus, some._replace(n_edge_attrs=2))
    every = np.zeros(200 * 200 // 2, np.int32)
    assert not token_layout.worth_lists(corpus, some._replace(edge_prev=every, edge_next=every))


def test_no_array_of_the_corpus_grows_with_labels():
    """Occurrences times weights, tokens times labels and pairs of labels are never stored."""
    corpus, features = wide(0, 150)
    layout, _, lists = token_layout.lay_out_lists(corpus, features, None)
    work = token_layout.online_work(layout, features.n_features, lists)
    arrays = [*layout[:-2], *work[:-2], *lists[:-2], *lists.scores, *lists.work]
    most = max(array.size for array in arrays)
    assert most <= max(corpus.longest * 150, features.n_features, len(corpus.attr_idx), 16384)


@pytest.mark.parametrize("name", LEARNERS)
def test_what_leaves_float64_ends_as_on_tables(name, monkeypatch):
    """NaN among the scores is no largest one."""
    corpus, features = wide(3)
    sign = np.where(np.random.default_rng(0).random(len(corpus.attr_idx)) < 0.5, 1e200, -1e200)
    corpus = corpus._replace(attr_val=sign, seq_weight=np.full(corpus.n_sequences, 1e200))
    tables, lists = on_both(monkeypatch, lambda: LEARNERS[name](corpus, features, max_iterations=3))
    assert lists.status == tables.status and np.isfinite(lists.w).all()


@pytest.mark.parametrize("attrs", [[0, 700_000], [700_000], []])
def test_edge_attributes_without_weights(attrs, monkeypatch):
    """One class whose attributes the model does not know."""
    corpus, features = wide(5)
    corpus = corpus._replace(class_ptr=np.array([0, len(attrs)]), class_attr=np.array(attrs, np.int32))
    tables, lists = on_both(monkeypatch, lambda: perceptron(corpus, features, max_iterations=4))
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-11)


def test_row_extremes_of_a_start(monkeypatch):
    """They are those of all weights before the first sequence is decoded."""
    monkeypatch.setattr(token_layout, "MANY_LABELS", 0)
    corpus, features = wide(6)
    w = np.random.default_rng(0).normal(size=features.n_features)
    learner = online._Online(
        corpus, features, w, None, None, True, 0.0, 10, 0, "auto", online.perceptron_epoch
    )
    refresh_all(learner.theta, learner.work.lists, None)
    scores, table = learner.work.lists.scores, np.zeros((41, 41))
    table[features.edge_prev, features.edge_next] = w[features.n_node :]
    np.testing.assert_array_equal(scores.max_row, np.maximum(table.max(axis=1), 0.0))
    np.testing.assert_array_equal(scores.min_row, np.minimum(table.min(axis=1), 0.0))
    assert scores.reach[0] == np.abs(table).max()


def test_attributes_without_weights(monkeypatch):
    """A corpus with attributes that the model does not know."""
    corpus, features = wide(7)
    corpus.attr_idx[::4] = 10_000
    tables, lists = on_both(monkeypatch, lambda: perceptron(corpus, features, max_iterations=4))
    np.testing.assert_allclose(lists.w, tables.w, rtol=1e-9, atol=1e-11)
