"""chain/sequence.py and token_layout.py: one sequence's loss and gradient, by kernels and in plain NumPy,
against the objective of the whole corpus and enumeration.
"""

import numba
import numpy as np
import pytest
from helpers.corpora import brute_node_scores, chains_of, random_corpus, random_model
from helpers.problems import laid_out

from crfbook import brute
from crfbook.chain.objective import Objective
from crfbook.chain.sequence import (
    add_gradient,
    bound_nodes,
    feature_matrix,
    path_indicator,
    plain_loss,
    plain_marginals,
    plain_viterbi,
    score_gradient,
    score_nodes,
    score_sequence,
    sequence_marginals,
)
from crfbook.chain.token_layout import (
    cells_of,
    epoch_order,
    lay_out_online,
    online_work,
    sequence_work,
    used_classes,
    weights_of,
)
from crfbook.data.constraints import Constraints, bounds_of
from crfbook.data.corpus import take_sequences
from crfbook.learners.boosting.learner import lay_out_boosting
from crfbook.learners.boosting.rounds import score_attributes
from crfbook.learners.stochastic.dual import DualAscent

pytestmark = pytest.mark.kernels


def loss_and_gradient(i, w, layout, cells, work, scale=1.0):
    """-log p of sequence i at the weights scale * w, and its gradient (F,), by the kernels."""
    theta = cells_of(cells, w)
    score_sequence(i, theta, scale, layout, work)
    loss, grad = score_gradient(i, layout, work), np.zeros_like(theta)
    add_gradient(i, 1.0, layout, work, grad)
    return loss, weights_of(cells, grad)


@pytest.mark.parametrize("n_classes", [1, 3])
@pytest.mark.parametrize("size", [1.0, 500.0])  # scaled, and the log form where weights contradict each other
def test_one_sequence_is_the_objective_of_a_corpus_of_one(n_classes, size):
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng, lengths=(4, 1, 3, 5), n_classes=n_classes, valued=True)
    features, w = random_model(rng, corpus, size=size)
    arrays = laid_out(
        corpus, features
    )  # one set of work arrays: what a visit leaves must not disturb the next
    for i in [2, 0, 3, 1, 0]:
        loss, grad = loss_and_gradient(i, w, *arrays)
        expected, expected_grad = Objective(take_sequences(corpus, [i]), features)(w)
        np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-9 * size)
        np.testing.assert_allclose(grad, expected_grad, rtol=0, atol=1e-10)


def test_scale_is_a_factor_of_all_weights():
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, lengths=(4, 3), n_classes=2)
    features, w = random_model(rng, corpus)
    arrays = laid_out(corpus, features)
    loss, grad = loss_and_gradient(0, w, *arrays, scale=0.3)
    expected, expected_grad = loss_and_gradient(0, 0.3 * w, *arrays)
    np.testing.assert_allclose(loss, expected, rtol=1e-13)
    np.testing.assert_allclose(grad, expected_grad, atol=1e-13)


def test_constraints_are_exact():
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, lengths=(5,))._replace(labels=np.array([0, 1, 2, 2, 0], np.int32))
    features, w = random_model(rng, corpus)
    allowed = np.ones((3, 3), bool)
    allowed[0, 2] = allowed[2, 1] = False
    constraints = Constraints(allowed, np.array([True, True, False]), np.array([True, False, True]))
    loss, grad = loss_and_gradient(0, w, *laid_out(corpus, features, constraints))
    expected, expected_grad = Objective(corpus, features, constraints=constraints)(w)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    np.testing.assert_allclose(grad, expected_grad, atol=1e-12)


def test_node_scores_and_label_sets():
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, lengths=(2, 3), valued=True)
    features, w = random_model(rng, corpus)
    wanted = brute_node_scores(corpus, features, w)[2:]
    log_node = np.full((3, 3), 7.0)
    score_attributes(2, 5, lay_out_boosting(corpus, features, False)[0], w, log_node)
    np.testing.assert_allclose(log_node, wanted, atol=1e-13)
    layout, cells, work = laid_out(corpus, features)
    score_nodes(1, cells_of(cells, w), 0.5, layout, None, work.log_node)
    np.testing.assert_allclose(work.log_node[:, :3], 0.5 * wanted, atol=1e-13)
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
    log_z = sequence_marginals(work.log_node, work.log_edge, corpus.edge_class, np.zeros(1, np.int32), work)
    assert log_z == -np.inf and not work.p_node.any() and not work.edge_sum.any()


def test_the_classes_that_a_sequence_uses():
    corpus = random_corpus(np.random.default_rng(8), lengths=(3, 0, 1, 6, 2), n_classes=4)
    used_ptr, used = used_classes(corpus)
    for i, (first, last) in enumerate(zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True)):
        here = sorted(set(corpus.edge_class[first + 1 : last].tolist()))
        assert used[used_ptr[i] : used_ptr[i + 1]].tolist() == here


def test_an_epoch_visits_everything_once_in_an_order_of_its_own():
    orders = [epoch_order(0, epoch, 50) for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    np.testing.assert_array_equal(orders[1], epoch_order(0, 1, 50))


def test_arrays_have_one_type_for_any_corpus():
    """Another type of one array, and every kernel that takes the tuple would compile twice."""
    rng, types = np.random.default_rng(0), []
    corpora = [random_corpus(rng, lengths=(3, 1, 2), n_classes=k, valued=k == 2) for k in (1, 2, 3)]
    empty = np.zeros(7, np.int64), np.zeros(0, np.int32)
    for corpus in [*corpora, corpora[0]._replace(attr_ptr=empty[0], attr_idx=empty[1])]:
        features, w = random_model(rng, corpus)
        wide = features._replace(edge_prev=features.edge_prev.astype(np.int64))
        layout, cells = lay_out_online(corpus, wide, None)
        learner = DualAscent(corpus, features, None, None, None, 0, 1.0, 1e-4)
        arrays = layout, online_work(layout, len(cells_of(cells, w))), learner.memory
        types.append([numba.typeof(array) for array in arrays])
    assert types[0] == types[1] == types[2] == types[3]


@pytest.mark.parametrize("n_classes", [1, 3])
def test_plain_numpy_is_enumeration(n_classes):
    """T is never the number of labels, and transitions are not symmetric."""
    rng = np.random.default_rng(9)
    corpus = random_corpus(rng, lengths=(4, 1, 2, 5), n_classes=n_classes, valued=True)
    features, w = random_model(rng, corpus)
    for s, chain in enumerate(chains_of(corpus, features, w)):
        labels = corpus.labels[corpus.seq_ptr[s] : corpus.seq_ptr[s + 1]]
        X, gold = feature_matrix(s, corpus, features)
        u = X @ w
        log_z, p = plain_marginals(u, 3)
        np.testing.assert_allclose(p[: chain[0].size], brute.node_marginals(*chain).ravel(), atol=1e-13)
        loss, slope = plain_loss(u, gold, 3)
        np.testing.assert_allclose(loss, -brute.log_proba(*chain, labels), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(log_z - u @ gold, loss, rtol=1e-12, atol=1e-12)
        expected, expected_grad = Objective(take_sequences(corpus, [s]), features)(w)
        np.testing.assert_allclose(X.T @ slope, expected_grad, rtol=0, atol=1e-12)
        path, (score, paths) = plain_viterbi(u, 3), brute.best_paths(*chain)
        np.testing.assert_allclose(u @ path_indicator(path, 3), score, rtol=1e-12, atol=1e-12)
        assert any((path == best).all() for best in paths)
