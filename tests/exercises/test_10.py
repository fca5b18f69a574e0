"""Chapter 10: what its exercises say that one should find, found without the chapter's code."""

from typing import NamedTuple

import numpy as np
import pytest

from crfbook import CRF, load_dataset
from crfbook.chain import inference
from crfbook.data.features import log_edge
from crfbook.encoding import templates
from studies.work import joint

C2 = 0.1


class Found(NamedTuple):
    log_z: float
    p_node: np.ndarray  # (T, L)
    counts: np.ndarray  # (L, L), of the pairs that start in an active label


def tables(edge, sets, outside):
    """(T, L, L): the potentials into each token; those of labels that are not active are outside(y)."""
    first = np.ones((1, *edge.shape))
    inside = sets[:-1, :, None]
    return np.concatenate([first, np.where(inside, np.exp(edge), np.broadcast_to(outside, edge.shape))])


def summed(node, psi, sets):
    """Exact inference with one table of potentials for each token."""
    T, L = node.shape
    u, c = np.exp(node - node.max(1, keepdims=True)), np.zeros(T)
    alpha, beta, counts = np.zeros((T, L)), np.ones((T, L)), np.zeros((L, L))
    for t in range(T):
        a = u[t] * (alpha[t - 1] @ psi[t] if t else 1.0)
        c[t] = a.sum()
        alpha[t] = a / c[t]
    for t in range(T - 1, 0, -1):
        v = u[t] * beta[t] / c[t]
        counts += np.where(sets[t - 1][:, None], np.outer(alpha[t - 1], v) * psi[t], 0.0)
        beta[t - 1] = psi[t] @ v
    return Found(np.log(c).sum() + node.max(1).sum(), alpha * beta, counts)


def active(node, edge, sets, outside=1.0):
    return summed(node, tables(edge, sets, outside), sets)


def exact(node, edge):
    return active(node, edge, np.ones(node.shape, bool)).log_z


def score(node, edge, path):
    return node[np.arange(len(path)), path].sum() + edge[path[:-1], path[1:]].sum()


def chain(rng, T, L=4):
    return rng.normal(size=(T, L)), 2 * rng.normal(size=(L, L)), rng.integers(L, size=T)


def test_1_the_first_word_alone_is_enough_for_two_words():
    rng, off = np.random.default_rng(1), []
    for T in (1, 2, 3, 5) * 5:
        node, edge, _ = chain(rng, T)
        sets = np.zeros(node.shape, bool)
        sets[0] = True
        off.append((T, abs(active(node, edge, sets).log_z - exact(node, edge))))
        assert active(node, 0 * edge, sets).log_z == pytest.approx(exact(node, 0 * edge))
    assert max(error for T, error in off if T <= 2) < 1e-12
    assert min(error for T, error in off if T > 2) > 1e-3


def test_2_gold_alone_is_the_last_word_given_the_others():
    rng = np.random.default_rng(2)
    for T in (1, 2, 3, 5):
        node, edge, gold = chain(rng, T)
        loss = active(node, edge, np.eye(4, dtype=bool)[gold], 0.0).log_z - score(node, edge, gold)
        others = [score(node, edge, np.append(gold[:-1], y)) for y in range(4)]
        assert loss == pytest.approx(np.logaddexp.reduce(others) - others[gold[-1]])


def test_3_a_constant_on_all_pairs_is_seen_by_the_penalty_alone():
    rng = np.random.default_rng(3)
    for T in (1, 2, 5):
        node, s, gold = chain(rng, T)
        stored, eta, values = rng.random(s.shape) < 0.5, rng.normal(size=4), []
        for shift in (0.0, 1.0):
            edge = np.where(stored, s + shift, eta + shift)
            loss = exact(node, edge) - score(node, edge, gold)
            values.append((loss, C2 * (((s + shift)[stored] ** 2).sum() + ((eta + shift) ** 2).sum())))
        assert values[0][0] == pytest.approx(values[1][0]) and abs(values[0][1] - values[1][1]) > 1e-3


def curved(node, edge, sets, outside, v_node, v_edge):
    """The Hessian of log Z~ times (v_node, v_edge): each line of the recursions, and its derivative."""
    T, L = node.shape
    u, psi = np.exp(node), tables(edge, sets, outside)
    du = u * v_node
    dpsi = np.where(np.r_[[np.zeros(L, bool)], sets[:-1]][:, :, None], psi * v_edge, 0.0)
    a, da, b, db = u.copy(), du.copy(), np.ones((T, L)), np.zeros((T, L))
    for t in range(1, T):
        into, d_into = a[t - 1] @ psi[t], da[t - 1] @ psi[t] + a[t - 1] @ dpsi[t]
        a[t], da[t] = u[t] * into, du[t] * into + u[t] * d_into
    for t in range(T - 1, 0, -1):
        v, dv = u[t] * b[t], du[t] * b[t] + u[t] * db[t]
        b[t - 1], db[t - 1] = psi[t] @ v, psi[t] @ dv + dpsi[t] @ v
    z, dz = a[-1].sum(), da[-1].sum()
    node_v, edge_v = (da * b + a * db) / z - a * b / z * (dz / z), np.zeros((L, L))
    for t in range(1, T):
        v, dv = u[t] * b[t], du[t] * b[t] + u[t] * db[t]
        outer = np.outer(a[t - 1], v)
        d_outer = np.outer(da[t - 1], v) + np.outer(a[t - 1], dv)
        part = (d_outer * psi[t] + outer * dpsi[t]) / z - outer * psi[t] / z * (dz / z)
        edge_v += np.where(sets[t - 1][:, None], part, 0.0)
    return node_v, edge_v


def test_4_the_product_with_the_hessian_is_the_difference_of_gradients():
    rng, h = np.random.default_rng(4), 1e-5
    for T in (1, 2, 5):
        for outside in (0.0, 1.0):
            node, edge, gold = chain(rng, T)
            sets = (rng.random((T, 4)) < 0.5) | np.eye(4, dtype=bool)[gold]
            v = rng.normal(size=(T, 4)), rng.normal(size=(4, 4))
            up, down = (active(node + s * v[0], edge + s * v[1], sets, outside) for s in (h, -h))
            found = curved(node, edge, sets, outside, *v)
            np.testing.assert_allclose(found[0], (up.p_node - down.p_node) / (2 * h), rtol=0, atol=1e-8)
            np.testing.assert_allclose(found[1], (up.counts - down.counts) / (2 * h), rtol=0, atol=1e-8)


# ---- a trained model ----


class Trained:
    """The model of section 1 on the built-in twin, and what is asked of it."""

    def __init__(self):
        chunks, history = load_dataset("conll2000", source="builtin", verbose=False), []
        train, test = joint(chunks.train, 300), joint(chunks.test, None)
        known = set(train.labels)
        test = test.take([i for i, y in enumerate(test.labels_by_sequence()) if known.issuperset(y)][:40])
        model = CRF(template=templates.load("pos"), algorithm="lbfgs", c2=0.1, max_iterations=30)
        model.fit(train, callback=lambda step, w: history.append(w.copy()))
        self.model, self.last, self.before = model, history[-1], history[-2]
        self.test, self.train = (model.encoder_.transform(some) for some in (test, train.head(200)))
        self.edge, self.nodes = self.scores(self.last, self.test)
        self.truth = np.array([exact(node, self.edge) for node in self.nodes])

    def scores(self, w, corpus):
        features = self.model.features_
        node = inference.node_scores(corpus, features, w)
        edge = log_edge(features, w, corpus.class_ptr, corpus.class_attr)[0]
        return edge, [node[a:b] for a, b in zip(corpus.seq_ptr, corpus.seq_ptr[1:], strict=False)]

    def errors(self, sets, outside=1.0):
        """|log Z~ - log Z| of each test sentence."""
        pairs = zip(self.nodes, sets, strict=True)
        return np.abs([active(node, self.edge, some, outside).log_z for node, some in pairs] - self.truth)


@pytest.fixture(scope="module")
def trained():
    return Trained()


def by_share(node, edge, eps, outside=1.0):
    """Labels with a share of at least eps of the forward mass; each set is chosen before the next step."""
    psi, u, sets = np.exp(edge), np.exp(node - node.max(1, keepdims=True)), np.zeros(node.shape, bool)
    alpha = u[0] / u[0].sum()
    for t in range(len(node)):
        if t:
            kept = np.where(sets[t - 1], alpha, 0.0)
            alpha = u[t] * (kept @ psi + outside * (alpha - kept).sum())
            alpha /= alpha.sum()
        sets[t] = alpha >= eps
    return sets


def interval(node, edge, sets):
    """Two numbers between which log Z lies: section 3."""
    gain, ends = np.expm1(edge), []
    for side in (-1, 1):
        extra, log_b, b = np.maximum(side * gain, 0), 0.0, None
        for t, u in enumerate(node):
            a = np.ones(len(edge))
            if t > 0:
                dropped = np.where(sets[t - 1], 0, b)
                h = np.minimum(dropped.sum() * extra.max(0), dropped.max() * extra.sum(0))
                a = np.maximum(b.sum() + (b - dropped) @ gain + side * h, 0)
                a[sets[t]] = (b.sum() + b @ gain)[sets[t]]
            b = np.exp(u - u.max()) * a
            log_b += np.log(b.sum()) + u.max()
            b = b / b.sum()
        ends.append(log_b)
    return ends


def test_5_sets_of_the_previous_marginals_are_smaller_and_bounded_less_tightly(trained):
    edge, nodes = trained.scores(trained.before, trained.test)
    marginals = [active(node, edge, np.ones(node.shape, bool)).p_node for node in nodes]
    for eps in (0.03, 0.01, 1e-3):
        sets = {
            "alpha": [by_share(node, trained.edge, eps) for node in trained.nodes],
            "alpha beta": [p >= eps for p in marginals],
        }
        labels, error, width = {}, {}, dict.fromkeys(sets, 0.0)
        for name, some in sets.items():
            labels[name], error[name] = sum(s.sum() for s in some), trained.errors(some).sum()
            for node, one, truth in zip(trained.nodes, some, trained.truth, strict=True):
                low, high = interval(node, trained.edge, one)
                assert low - 1e-8 <= truth <= high + 1e-8
                width[name] += high - low
        assert labels["alpha beta"] < labels["alpha"] and error["alpha beta"] < error["alpha"]
        assert width["alpha beta"] > width["alpha"]


def test_6_a_mean_potential_outside_is_several_times_closer(trained):
    edge, nodes = trained.scores(trained.last, trained.train)
    psi, L = np.exp(edge), len(edge)
    for eps in (0.1, 0.01):
        inactive, every = np.zeros((2, L))
        mass_inactive = mass = 0.0
        for node in nodes:
            sets, alpha = by_share(node, edge, eps), None
            for t, u in enumerate(np.exp(node - node.max(1, keepdims=True))):
                if t:
                    left = np.where(sets[t - 1], 0.0, alpha)
                    inactive, every = inactive + left @ psi, every + alpha @ psi
                    mass_inactive, mass = mass_inactive + left.sum(), mass + alpha.sum()
                alpha = u * (alpha @ psi if t else 1.0)
                alpha /= alpha.sum()
        error = {}
        for name, outside in (("1", 1.0), ("inactive", inactive / mass_inactive), ("all", every / mass)):
            sets = [by_share(node, trained.edge, eps, outside) for node in trained.nodes]
            error[name] = trained.errors(sets, outside).sum()
        assert 3 * error["inactive"] < error["1"] and error["all"] > error["inactive"]
