"""Chapter 16: what its exercises say that one should find."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from crfbook import CRF, brute


def sums(log_node, log_edge):
    """log Z and p(y_t), as in section 4."""
    none = np.zeros(len(log_node), int)
    return (
        brute.log_z(log_node, log_edge[None], none),
        brute.node_marginals(log_node, log_edge[None], none),
    )


def held(log_node, sets):
    return np.where(sets, log_node, -np.inf)


def random_model(seed, T=5, L=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, L)), rng.normal(size=(L, L)), rng


def test_1_how_many_labellings_agree():
    T, L = 5, 3
    sets = np.ones((T, L), bool)
    sets[0] = sets[2] = [True, False, False]
    sets[3] = [True, True, False]
    agree = [y for y in product(range(L), repeat=T) if sets[range(T), y].all()]
    assert len(agree) == 2 * L ** (T - 3)


def test_2_nothing_known_teaches_nothing():
    node, edge, _ = random_model(0)
    for free, known in zip(sums(node, edge), sums(held(node, np.ones(node.shape, bool)), edge), strict=True):
        assert np.array_equal(free, known)


def test_3_a_shift_of_a_known_token_changes_nothing():
    node, edge, _ = random_model(1)
    sets = np.ones(node.shape, bool)
    sets[2] = [False, True, False]

    def loss(node):
        return sums(node, edge)[0] - sums(held(node, sets), edge)[0]

    other = node.copy()
    other[2] += 1.0
    assert loss(other) == pytest.approx(loss(node), abs=1e-12)


def cut_log_z(node, edge, known):
    """log Z_A of known labels (-1: unknown), from the gaps alone: a gap and its neighbours are a sentence."""
    T, L = node.shape
    total = sum(node[t, y] for t, y in enumerate(known) if y >= 0)
    total += sum(edge[a, b] for a, b in zip(known, known[1:], strict=False) if a >= 0 and b >= 0)
    t = 0
    while t < T:
        if known[t] >= 0:
            t += 1
            continue
        stop = next((u for u in range(t, T) if known[u] >= 0), T)
        part = node[t:stop].copy()
        if t:
            part[0] += edge[known[t - 1]]
        if stop < T:
            part[-1] += edge[:, known[stop]]
        total += sums(part, edge)[0]
        t = stop
    return total


def test_4_the_gaps_are_enough():
    for seed in range(20):
        node, edge, rng = random_model(seed)
        known = np.where(rng.random(5) < 0.5, rng.integers(0, 3, 5), -1)
        sets = (known[:, None] < 0) | (known[:, None] == np.arange(3))
        assert cut_log_z(node, edge, known) == pytest.approx(sums(held(node, sets), edge)[0], abs=1e-10)


ENDS = [np.array([side, [True, True], side]) for side in ([True, False], [False, True])]


def objective(w, c2=0.05):
    """f of section 3 for transition weights (4,)."""
    edge, node = w.reshape(2, 2), np.zeros((3, 2))
    return sum(sums(node, edge)[0] - sums(held(node, sets), edge)[0] for sets in ENDS) + c2 * w @ w


def test_5_two_starts_two_minima():
    same = np.array([1.0, -1.0, -1.0, 1.0])
    ends = [minimize(objective, 0.3 * sign * same, method="BFGS") for sign in (1, -1)]
    values = [found.fun for found in ends]
    assert values[0] == pytest.approx(values[1], abs=1e-6) and values[0] < objective(np.zeros(4)) - 0.1
    middle = []
    for found in ends:
        p = sums(held(np.zeros((3, 2)), ENDS[0]), found.x.reshape(2, 2))[1]
        middle.append(int(p[1].argmax()))
    assert middle == [0, 1]  # a a a, and a b a
    X, y = [[["u"], ["m"], ["u"]]] * 2, [["a", None, "a"], ["b", None, "b"]]
    flat = CRF(c2=0.05, all_possible_transitions=True).fit(X, y)
    assert flat.n_iter_ == 0 and flat.status_ == "stationary point"


def test_6_em_never_rises_and_ends_where_the_gradient_is_zero():
    ys = np.array(list(product(range(2), repeat=3)))
    counts = np.array(
        [
            [sum((a, b) == pair for pair in zip(y, y[1:], strict=False)) for a in (0, 1) for b in (0, 1)]
            for y in ys
        ]
    )
    agree = [np.array([sets[range(3), y].all() for y in ys]) for sets in ENDS]

    def expected(w):
        q = [np.where(some, np.exp(counts @ w), 0.0) for some in agree]
        return sum(part @ counts / part.sum() for part in q)

    w, values = np.array([0.3, -0.3, -0.3, 0.3]), []
    for _ in range(60):
        values.append(objective(w))
        target = expected(w)
        w = minimize(
            lambda v, target=target: 2 * np.logaddexp.reduce(counts @ v) - target @ v + 0.05 * v @ v, w
        ).x
    assert np.diff(values).max() < 1e-8
    step = 1e-5 * np.eye(4)
    slope = [(objective(w + e) - objective(w - e)) / 2e-5 for e in step]
    assert np.abs(slope).max() < 1e-3
