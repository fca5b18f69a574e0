"""chain/sequence.py: one sequence's loss and gradient,
against the objective of the whole corpus and enumeration.
"""

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, random_corpus, random_model

from crfbook.chain.objective import Objective
from crfbook.chain.sequence import (
    add_edges,
    bound_nodes,
    score_edges,
    score_nodes,
    sequence_marginals,
    subtract_gold,
)
from crfbook.chain.sequence_work import epoch_order, sequence_work
from crfbook.data.constraints import Constraints, bounds_of
from crfbook.data.corpus import take_sequences

pytestmark = pytest.mark.kernels


def loss_and_gradient(corpus, features, w, i, constraints=None, scale=1.0, visit=0, work=None):
    """-log p of sequence i at the weights scale * w, and its gradient (F,), by the kernels."""
    work = work or sequence_work(corpus, features.n_labels)
    bounds, no_sets = bounds_of(constraints, features.n_labels), np.zeros(0, np.int32)
    c, f = corpus, features
    first, last = c.seq_ptr[i], c.seq_ptr[i + 1]
    score_nodes(
        first, last, w, scale, f.node_ptr, f.node_label, c.attr_ptr, c.attr_idx, c.attr_val, work.log_node
    )
    bound_nodes(first, last, bounds, no_sets, work.log_node)
    score_edges(
        first,
        last,
        w,
        scale,
        f.n_node,
        c.edge_class,
        c.class_ptr,
        c.class_attr,
        f.edge_ptr,
        f.edge_prev,
        f.edge_next,
        bounds.edge,
        visit,
        work.stamp,
        work.log_edge,
    )
    T = last - first
    log_z = sequence_marginals(
        work.log_node[:T],
        work.log_edge,
        c.edge_class[first:last],
        visit,
        work.stamp,
        work,
        work.p_node[:T],
        work.edge_sum,
    )
    score = subtract_gold(
        first, last, c.labels, c.edge_class, work.log_node, work.log_edge, work.p_node, work.edge_sum
    )
    grad = np.zeros(f.n_features)
    for t in range(first, last):
        for j in range(c.attr_ptr[t], c.attr_ptr[t + 1]):
            row = slice(*f.node_ptr[c.attr_idx[j] : c.attr_idx[j] + 2])
            value = c.attr_val[j] if len(c.attr_val) else 1.0
            grad[row] += value * work.p_node[t - first, f.node_label[row]]
    add_edges(
        1.0,
        f.n_node,
        visit,
        work.stamp,
        work.edge_sum,
        c.class_ptr,
        c.class_attr,
        f.edge_ptr,
        f.edge_prev,
        f.edge_next,
        grad,
    )
    return log_z - score, grad


@pytest.mark.parametrize("n_classes", [1, 3])
@pytest.mark.parametrize("size", [1.0, 500.0])  # scaled, and the log form where weights contradict each other
def test_one_sequence_is_the_objective_of_a_corpus_of_one(n_classes, size):
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng, lengths=(4, 1, 3, 5), n_classes=n_classes, valued=True)
    features, w = random_model(rng, corpus, size=size)
    work = sequence_work(
        corpus, features.n_labels
    )  # one set of work arrays: what a visit leaves must not disturb the next
    for visit, i in enumerate([2, 0, 3, 1, 0]):
        loss, grad = loss_and_gradient(corpus, features, w, i, visit=visit, work=work)
        expected, expected_grad = Objective(take_sequences(corpus, [i]), features)(w)
        np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-9 * size)
        np.testing.assert_allclose(grad, expected_grad, rtol=0, atol=1e-10)


def test_scale_is_a_factor_of_all_weights():
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, lengths=(4, 3), n_classes=2)
    features, w = random_model(rng, corpus)
    loss, grad = loss_and_gradient(corpus, features, w, 0, scale=0.3)
    expected, expected_grad = loss_and_gradient(corpus, features, 0.3 * w, 0)
    np.testing.assert_allclose(loss, expected, rtol=1e-13)
    np.testing.assert_allclose(grad, expected_grad, atol=1e-13)


def test_constraints_are_exact():
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, lengths=(5,))._replace(labels=np.array([0, 1, 2, 2, 0], np.int32))
    features, w = random_model(rng, corpus)
    allowed = np.ones((3, 3), bool)
    allowed[0, 2] = allowed[2, 1] = False
    constraints = Constraints(allowed, np.array([True, True, False]), np.array([True, False, True]))
    loss, grad = loss_and_gradient(corpus, features, w, 0, constraints)
    expected, expected_grad = Objective(corpus, features, constraints=constraints)(w)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    np.testing.assert_allclose(grad, expected_grad, atol=1e-12)


def test_node_scores_and_label_sets():
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, lengths=(2, 3), valued=True)
    features, w = random_model(rng, corpus)
    log_node = np.full((3, 3), 7.0)
    score_nodes(
        2,
        5,
        w,
        1.0,
        features.node_ptr,
        features.node_label,
        corpus.attr_ptr,
        corpus.attr_idx,
        corpus.attr_val,
        log_node,
    )
    np.testing.assert_allclose(log_node, brute_node_scores(corpus, features, w)[2:], atol=1e-13)
    sets, free = np.array([[True, True, True], [True, False, True]]), np.ones(3, bool)
    bounds = bounds_of(Constraints(np.ones((3, 3), bool), free, free, sets), 3)
    before = log_node.copy()
    bound_nodes(2, 5, bounds, np.array([1, 1, 0, 1, 0], np.int32), log_node)
    before[1, 1] = -np.inf
    np.testing.assert_array_equal(log_node, before)


def test_no_path_is_minus_infinity_and_no_gradient():
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, lengths=(3,))
    features, _ = random_model(rng, corpus)
    work = sequence_work(corpus, 3)
    work.log_node[:] = -np.inf
    work.stamp[0] = 0
    log_z = sequence_marginals(
        work.log_node, work.log_edge, corpus.edge_class, 0, work.stamp, work, work.p_node, work.edge_sum
    )
    assert log_z == -np.inf and not work.p_node.any() and not work.edge_sum.any()


def test_an_epoch_visits_everything_once_in_an_order_of_its_own():
    orders = [epoch_order(0, epoch, 50) for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    np.testing.assert_array_equal(orders[1], epoch_order(0, 1, 50))
