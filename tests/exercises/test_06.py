"""Chapter 06: what its exercises say one will find."""

from itertools import product

import numpy as np
import pytest

from crfbook import Encoder, Objective, brute, load_dataset, make_corpus, minimize
from crfbook.data.features import observed

EXACT = {"tol": 1e-12, "tol_gradient": 1e-6, "max_iterations": 3000}


@pytest.fixture(scope="module")
def toy():
    """The sentence of sections 2 and 4: counts in all labellings, and the row of the gold one."""
    words, gold = "the old man the boat".split(), "DNVDN"
    names = [*product(sorted(set(words)), "DNV"), *product("DNV", repeat=2)]
    paths = list(product("DNV", repeat=5))
    fired = [[*zip(words, path, strict=True), *zip(path, path[1:], strict=False)] for path in paths]
    return np.array([[one.count(name) for name in names] for one in fired], float), paths.index(tuple(gold))


def loss(toy, w):
    phi, gold = toy
    score = phi @ w
    p = np.exp(score - np.logaddexp.reduce(score))
    return -np.log(p[gold]), p @ phi - phi[gold]


def test_exercise_1_the_largest_penalty_with_a_weight(toy):
    phi, gold = toy
    largest = np.abs(
        phi.mean(axis=0) - phi[gold]
    ).max()  # from the counts alone: at zero all labellings are equal
    zero = np.zeros(phi.shape[1])
    for share, n in ((1.001, 0), (0.999, 1)):
        w = minimize(lambda w: loss(toy, w), zero, c1=share * largest, l1_method="owlqn", **EXACT).w
        assert np.count_nonzero(w) == n


@pytest.fixture(scope="module")
def chunks():
    data = load_dataset("conll2000", source="builtin", verbose=False)
    encoder = Encoder("chunking")
    corpus = encoder.fit_transform(data.train[:30])
    return corpus, observed(corpus, encoder.n_labels, encoder.n_attrs)


def test_exercise_2_the_soft_threshold_of_the_elastic_net(chunks):
    c1, c2, (corpus, features) = 0.5, 0.1, chunks
    net = minimize(Objective(corpus, features, c2=c2), np.zeros(features.n_features), c1=c1, c2=c2, tol=1e-4)
    g = Objective(corpus, features)(net.w)[1]
    off = np.abs(net.w - soft(-g, c1) / (2 * c2))
    slope = g + 2 * c2 * net.w
    violation = np.where(net.w != 0, np.abs(slope + c1 * np.sign(net.w)), np.maximum(np.abs(slope) - c1, 0))
    assert (off <= violation / (2 * c2) + 1e-9).all() and np.count_nonzero(net.w) > 10


def soft(z, c):
    return np.sign(z) * np.maximum(np.abs(z) - c, 0.0)


def test_exercise_3_between_the_longer_list_and_both():
    rng = np.random.default_rng(0)
    for a, b in rng.integers(0, 20, (50, 2)):
        union = len(set(rng.choice(30, a, replace=False)) | set(rng.choice(30, b, replace=False)))
        assert max(a, b) <= union <= a + b


def test_exercise_4_fista_with_an_l2_part_in_its_step(chunks):
    """The proximal step of c1 |w|_1 + c2 |w|^2 is S(z, eta c1) / (1 + 2 eta c2)."""
    rng, c1, c2 = np.random.default_rng(1), 0.7, 0.05
    corpus = make_corpus(
        np.arange(0, 61, 3), np.arange(61), rng.integers(6, size=60), labels=rng.integers(3, size=60)
    )
    features = observed(corpus, 3, 6)
    fun, w, t, eta = Objective(corpus, features), np.zeros(features.n_features), 1.0, 0.05
    v = w
    for _ in range(4000):
        new = soft(v - eta * fun(v)[1], eta * c1) / (1 + 2 * eta * c2)
        t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2
        v, w, t = new + (t - 1) / t_new * (new - w), new, t_new
    found = fun(w)[0] + c1 * np.abs(w).sum() + c2 * w @ w
    best = minimize(Objective(corpus, features, c2=c2), np.zeros(len(w)), c1=c1, c2=c2, **EXACT)
    assert found == pytest.approx(best.objective, abs=1e-6)


def test_exercise_5_a_dense_base_and_a_product_for_each_stored_pair():
    rng, L, T = np.random.default_rng(2), 4, 5
    for _ in range(10):
        base = rng.normal(size=(L, L))
        extra = np.where(rng.random((T, L, L)) < 0.3, rng.normal(size=(T, L, L)), 0.0)
        node, products = rng.normal(size=(T, L)), 0
        alpha = np.exp(node[0])
        for t in range(1, T):
            m = alpha @ np.exp(base)
            for yp, y in zip(*np.nonzero(extra[t]), strict=True):
                m[y] += alpha[yp] * np.exp(base[yp, y]) * np.expm1(extra[t, yp, y])
                products += 1
            alpha = m * np.exp(node[t])
        assert np.log(alpha.sum()) == pytest.approx(brute.log_z(node, base + extra, np.arange(T)), rel=1e-12)
        assert products == np.count_nonzero(extra[1:])


def test_exercise_6_a_score_for_each_label_leaves_fewer_entries_and_the_same_marginals():
    """A column that is nearly full of one weight: that weight is the label's, and its exceptions are left."""
    rng, L, T = np.random.default_rng(4), 5, 4
    score = np.array([0.0, -2.0, 0.0, -1.5, 0.0])  # of the labels beside the ones
    edge = np.tile(score, (L, 1))
    edge[rng.integers(L, size=6), rng.integers(L, size=6)] += rng.normal(size=6)
    left, node = edge - score, rng.normal(size=(T, L))
    shifted = node + np.where(np.arange(T)[:, None] > 0, score, 0.0)
    assert 0 < np.count_nonzero(left) < np.count_nonzero(edge)
    for of in (brute.log_z, brute.node_marginals, brute.edge_marginals):
        want = of(node, edge[None], np.zeros(T, int))
        np.testing.assert_allclose(of(shifted, left[None], np.zeros(T, int)), want, rtol=0, atol=1e-12)


def test_exercise_7_groups_of_one_weight_are_l1(toy):
    """The proximal step of a group shrinks its norm; of one weight it is the soft threshold."""
    z = np.random.default_rng(3).normal(size=100)
    group = z * np.maximum(1 - 0.5 / np.abs(z), 0)
    np.testing.assert_allclose(group, soft(z, 0.5), atol=1e-15)
