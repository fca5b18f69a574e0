"""Online learners with staggered decoding: the steps are those with tables of all pairs, unless paths tie."""

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model

from crfbook.chain import token_layout
from crfbook.data.constraints import Constraints
from crfbook.decoding import staggered_tables
from crfbook.learners.online import arow, online, passive_aggressive, perceptron
from crfbook.learners.online.staggered import decode_staggered

pytestmark = pytest.mark.kernels
STAGGERED = pytest.mark.parametrize("form", ["staggered", "staggered-columns"])
LEARNERS = {
    "perceptron": perceptron,
    "batch": lambda *a, **k: perceptron(*a, batch=True, **k),
    "pa": passive_aggressive,
    "arow": arow,
}


def problem(n_labels, seed=0, valued=False, **options):
    """(corpus, features, w0): at a random w0 no two paths tie; some sequences have no weight or no token."""
    rng = np.random.default_rng([seed, n_labels])
    corpus = random_corpus(rng, tuple(rng.integers(0, 9, 40)), n_labels, 25, valued=valued, weighted=True)
    corpus = corpus._replace(seq_weight=np.where(rng.random(40) < 0.2, 0.0, corpus.weights))
    return corpus, *random_model(rng, corpus, n_labels, 25, **options)


def narrow(corpus, n_labels, seed=0):
    """(corpus, constraints): what occurs is allowed, and few other things; sets of labels at some tokens."""
    rng, inner = np.random.default_rng(seed), corpus.inner
    allowed = rng.random((n_labels, n_labels)) < 0.2
    allowed[corpus.labels[inner - 1], corpus.labels[inner]] = True
    sets = np.vstack([np.ones(n_labels, bool), np.eye(n_labels, dtype=bool) | (rng.random(n_labels) < 0.5)])
    label_set = np.where(np.arange(corpus.n_tokens) % 3 == 0, 1 + corpus.labels, 0).astype(np.int32)
    return corpus._replace(label_set=label_set), Constraints(allowed, *np.ones((2, n_labels), bool), sets)


def same(found, wanted):
    np.testing.assert_array_equal(found.w, wanted.w)
    assert found.status == wanted.status
    for name in ("w", "w_sum", "count"):
        np.testing.assert_array_equal(found.state[name], wanted.state[name])
    # losses are sums over the cells that moved, which another layout has in another order
    losses = [[step.objective for step in result.history] for result in (found, wanted)]
    assert losses[0] == pytest.approx(losses[1][-len(losses[0]) :])


@STAGGERED
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("n_labels", [1, 2, 3, 7, 33])
def test_the_same_weights_bit_for_bit(n_labels, constrained, form, monkeypatch):
    corpus, features, w = problem(n_labels)
    options = {"max_iterations": 3}
    if constrained:
        corpus, options["constraints"] = narrow(corpus, n_labels)
    found = perceptron(corpus, features, w, form=form, **options)
    assert n_labels == 1 or not np.array_equal(found.state["w"], w)
    same(found, perceptron(corpus, features, w, form="plain", **options))
    monkeypatch.setattr(token_layout, "MANY_LABELS", 0)
    monkeypatch.setattr(token_layout, "FEW_PAIRS", 1.0)
    assert token_layout.worth_lists(corpus, features)
    same(found, perceptron(corpus, features, w, form="auto", **options))


@STAGGERED
@pytest.mark.parametrize("all_transitions", [False, True])
@pytest.mark.parametrize("name", LEARNERS)
def test_all_learners_with_values(name, all_transitions, form):
    """Scores are sums in another order than with tables: equal but for rounding. Resumed after two epochs."""
    corpus, features, w = problem(33, 1, valued=True, all_transitions=all_transitions)
    learn = LEARNERS[name]
    wanted = learn(corpus, features, w, form="plain", max_iterations=4)
    state = learn(corpus, features, w, form=form, max_iterations=2).state
    found = learn(corpus, features, state=state, form=form, max_iterations=4)
    np.testing.assert_allclose(found.w, wanted.w, rtol=1e-9, atol=1e-11)
    same(found, learn(corpus, features, w, form=form, max_iterations=4))


def with_tables(n_labels, constrained=False, form="staggered", start=True, seed=2):
    corpus, features, w = problem(n_labels, seed)
    constraints = None
    if constrained:
        corpus, constraints = narrow(corpus, n_labels)
    start = w if start else None
    return online._Online(
        corpus, features, start, constraints, None, True, 0.0, 9, 0, form, online.perceptron_epoch
    ), features


def check_tables(learner, features):
    """What steps have kept is what is made of the weights, bit for bit."""
    tables, rank = learner.work.staggered
    log_edge = learner.layout.bounds.edge.copy()
    log_edge[features.edge_prev, features.edge_next] += learner.theta[features.n_node :]
    fresh = staggered_tables(log_edge[None], tables.order)
    assert np.array_equal(tables.order[rank], np.arange(len(rank)))
    for name in ("log_edge", "to_z", "z_to_z"):
        np.testing.assert_array_equal(getattr(tables, name), getattr(fresh, name), err_msg=name)
    assert fresh.reach[0] <= tables.reach[0]


@STAGGERED
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("n_labels", [1, 2, 3, 7, 33])
def test_tables_are_kept_up_to_date(n_labels, start, constrained, form):
    learner, features = with_tables(n_labels, constrained, form, start)
    before = learner.theta[features.n_node :].copy()
    for _ in range(3):
        online.perceptron_epoch(
            learner.sequences, learner.theta, learner.theta_sum, learner.count, learner.layout,
            learner.work, learner.totals,
        )  # fmt: skip
        check_tables(learner, features)
    moved = learner.theta[features.n_node :] - before
    assert n_labels < 3 or (moved.min() < 0 < moved.max())


def test_tables_are_those_of_other_weights_for_once():
    """The objective of a start is that of the averaged weights; training goes on with its own."""
    learner, features = with_tables(7)
    learner.direction(learner.sequences, np.zeros(features.n_features), learner.totals)
    online.perceptron_epoch(
        learner.sequences[:1], learner.theta, learner.theta_sum, learner.count, learner.layout,
        learner.work, learner.totals,
    )  # fmt: skip
    check_tables(learner, features)


def test_frequent_labels_come_first():
    learner, _ = with_tables(7)
    count = np.bincount(learner.layout.labels, minlength=7)
    assert (np.diff(count[learner.work.staggered[0].order]) <= 0).all() and count.min() < count.max()


def test_others_do_not_compile_it():
    """Where it is not asked for, there is None in its place: a type of its own."""
    corpus, features, w = problem(7)
    for form in ("auto", "plain"):
        learner = online._Online(
            corpus, features, w, None, None, True, 0.0, 9, 0, form, online.perceptron_epoch
        )
        assert learner.work.staggered is None


@STAGGERED
def test_from_zero_the_objective_falls_as_plainly(form):
    """At w = 0 all paths tie and first steps may differ: what is learnt is as good."""
    corpus, features, _ = problem(33)
    histories = [perceptron(corpus, features, form=f, max_iterations=30).history for f in (form, "plain")]
    found, wanted = (history[-1].violation for history in histories)
    assert found < 0.5 * histories[0][0].violation and abs(found - wanted) < 0.1


@STAGGERED
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("size", [1e154, 1e200])
def test_what_leaves_float64_ends_as_with_tables(name, size, form):
    corpus, features, w = problem(33, 3, valued=True)
    sign = np.where(np.random.default_rng(0).random(len(corpus.attr_idx)) < 0.5, size, -size)
    corpus = corpus._replace(attr_val=sign, seq_weight=np.full(corpus.n_sequences, size))
    found = LEARNERS[name](corpus, features, form=form, max_iterations=3)
    assert found.status == LEARNERS[name](corpus, features, form="plain", max_iterations=3).status
    assert np.isfinite(found.w).all()


@pytest.mark.parametrize("score", [np.nan, np.inf, 1e308, -1e308])
def test_sums_that_may_leave_float64_are_not_searched(score):
    """Of nodes and of transitions; -inf is a label that is forbidden."""
    learner, _ = with_tables(7)
    tables = learner.work.staggered[0]
    path, edge_class = np.full(3, 5, np.int32), np.zeros(3, np.int32)
    for place in ((0, 0), (2, 6)):
        log_node = np.random.default_rng(0).normal(size=(3, 7))
        log_node[1, :6] = -np.inf
        log_node[place] = score
        assert np.isnan(decode_staggered(log_node, edge_class, learner.work.staggered, path))
        assert (path == 5).all()
    log_node[2, 6] = 0.0
    tables.reach[0] = score
    assert score < 0 or np.isnan(decode_staggered(log_node, edge_class, learner.work.staggered, path))
    tables.reach[0] = 5.0
    assert np.isfinite(decode_staggered(log_node, edge_class, learner.work.staggered, path))
    assert path[1] == 6


@STAGGERED
def test_corpora_without_weights_for_transitions(form):
    """An edge attribute that the model does not know, and a class without any."""
    corpus, features, w = problem(7)
    for attrs in ([], [700_000]):
        corpus = corpus._replace(class_ptr=np.array([0, len(attrs)]), class_attr=np.array(attrs, np.int32))
        found = [perceptron(corpus, features, w, form=f, max_iterations=3) for f in (form, "plain")]
        same(*found)
        _, _, lists = token_layout.lay_out_lists(corpus, features, None)
        assert lists.scores.score.dtype == np.float64  # of integers all kernels would compile again


def test_refusals():
    corpus, features, w = problem(3)
    with pytest.raises(ValueError, match=r"form.*'auto'.*'plain'.*'staggered'.*'staggered-columns'.*'beam'"):
        perceptron(corpus, features, form="beam")
    with pytest.raises(ValueError, match=r"form='staggered': expected one edge class .* 'plain' and 'auto'"):
        arow(corpus, features._replace(n_edge_attrs=2), form="staggered")
    with pytest.raises(ValueError, match="got 2 and 1"):
        passive_aggressive(corpus._replace(class_ptr=np.array([0, 1, 2])), features, form="staggered-columns")
