"""The enumeration oracle itself, against numbers worked out by hand and against finite differences."""

import numpy as np
import pytest
from helpers.chains import random_chain

from crfbook import brute


def two_tokens():
    """exp scores of the four labellings, by hand: 00: 2*3*1 = 6, 01: 2*5*1 = 10, 10: 1*7*1 = 7, 11:
    1*1*1 = 1.
    """
    log_node = np.log([[2.0, 1.0], [1.0, 1.0]])
    log_edge = np.log([[[9.0, 9.0], [9.0, 9.0]], [[3.0, 5.0], [7.0, 1.0]]])
    return log_node, log_edge, np.array([0, 1])


def test_two_tokens_by_hand():
    chain = two_tokens()
    assert brute.all_paths(2, 2).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    np.testing.assert_allclose(brute.log_z(*chain), np.log(24.0))
    np.testing.assert_allclose(brute.node_marginals(*chain), np.array([[16, 8], [13, 11]]) / 24)
    np.testing.assert_allclose(brute.edge_marginals(*chain)[1], np.array([[6, 10], [7, 1]]) / 24)
    np.testing.assert_allclose(brute.edge_marginal_sums(*chain)[1], np.array([[6, 10], [7, 1]]) / 24)
    assert not brute.edge_marginals(*chain)[0].any() and not brute.edge_marginal_sums(*chain)[0].any()
    np.testing.assert_allclose(brute.log_proba(*chain, [1, 0]), np.log(7 / 24))
    score, paths = brute.best_paths(*chain)
    np.testing.assert_allclose(score, np.log(10.0))
    assert paths.tolist() == [[0, 1]]


def test_gradient_by_central_differences():
    log_node, log_edge, edge_class = random_chain(np.random.default_rng(0), 4, 3, 2)
    path = [2, 0, 1, 1]
    _, *grads = brute.negative_log_likelihood(log_node, log_edge, edge_class, path)
    h = 1e-5
    for scores, grad in zip((log_node, log_edge), grads, strict=True):
        for index in np.ndindex(scores.shape):
            values = []
            for step in (h, -h):
                moved = scores.copy()
                moved[index] += step
                pair = (moved, log_edge) if scores is log_node else (log_node, moved)
                values.append(brute.negative_log_likelihood(*pair, edge_class, path)[0])
            np.testing.assert_allclose((values[0] - values[1]) / (2 * h), grad[index], atol=1e-9)


def test_everything_forbidden():
    log_node, log_edge, edge_class = two_tokens()
    log_edge[1] = -np.inf
    assert brute.log_z(log_node, log_edge, edge_class) == -np.inf
    assert brute.best_paths(log_node, log_edge, edge_class)[0] == -np.inf
    with pytest.raises(ValueError, match="at least one labelling"):
        brute.node_marginals(log_node, log_edge, edge_class)
