"""Chapter 07: what its exercises say that one should find, found without the chapter's code."""

import math
from itertools import product

import numpy as np
import pytest

A = L = 3
SIZE = L + L * L
C1 = 0.3


def random_text(seed, n=8, longest=4):
    rng, text = np.random.default_rng(seed), []
    for T in rng.integers(1, longest + 1, n):
        x = rng.integers(A, size=T)
        text.append((x, np.where(rng.random(T) < 0.6, (x + np.arange(T)) % L, rng.integers(L, size=T))))
    return text


STUCK = [(np.zeros(12, int), np.full(12, i % 3)) for i in range(6)]


def tables(x, W):
    """exp of the scores of labels (T, L), and of pairs (T, L, L) that lead into each token."""
    return np.exp(W[x, :L]), np.exp(W[x, L:]).reshape(-1, L, L)


class Vectors:
    """alpha and beta of one sequence, kept over the range where they are valid; counts products.

    `kept=False` begins anew at every visit, as the chapter's code does.
    """

    def __init__(self, x, kept):
        self.x, self.kept, self.products = x, kept, 0
        self.forget()

    def forget(self, first=0, last=None):
        """A step of the block of tokens first..last leaves alpha before and beta from last on alone."""
        T = len(self.x)
        if last is None or not self.kept:
            self.alpha, self.beta, self.to, self.since = np.zeros((T, L)), np.ones((T, L)), -1, T - 1
        else:
            self.to, self.since = min(self.to, first - 1), max(self.since, last)

    def reach(self, W, first, last):
        node, edge = tables(self.x, W)
        while self.to < last:
            t = self.to = self.to + 1
            self.alpha[t] = node[t] * (self.alpha[t - 1] @ edge[t] if t else 1.0)
            self.products += t > 0
        while self.since > first:
            t = self.since = self.since - 1
            self.beta[t] = edge[t + 1] @ (node[t + 1] * self.beta[t + 1])
            self.products += 1
        return node, edge


def visit(held, W, a, bound=False):
    """Gradient and curvature (16) of the block of a, times n_i where `bound`."""
    g, h = np.zeros((2, SIZE))
    for (x, y), vectors in held:
        where = np.flatnonzero(x == a)
        node, edge = vectors.reach(W, where[0], where[-1])
        for t in where:
            p = vectors.alpha[t] * vectors.beta[t]
            z = p.sum()
            pair = np.zeros((L, L))
            if t:
                pair = np.outer(vectors.alpha[t - 1], node[t] * vectors.beta[t]) * edge[t] / z
                g[L + y[t - 1] * L + y[t]] -= 1
            p = np.concatenate([p / z, pair.ravel()])
            g, h = g + p, h + p * (1 - p) * (len(where) if bound else 1)
            g[y[t]] -= 1
    return g, h


def objective(text, W, c2):
    total = C1 * np.abs(W).sum() + c2 * (W**2).sum()
    for x, y in text:
        node, edge = tables(x, W)
        alpha = node[0]
        for t in range(1, len(x)):
            alpha = node[t] * (alpha @ edge[t])
        total += math.log(alpha.sum()) - W[x, y].sum() - W[x[1:], L + y[:-1] * L + y[1:]].sum()
    return total


def update(w, g, h, c2, factor):
    z = factor * h * w - g
    return np.sign(z) * np.maximum(np.abs(z) - C1, 0.0) / (factor * h + 2 * c2)


def sweep(text, every, W, c2, factor=2.0, bound=False):
    for a in range(A):
        held = [one for one in zip(text, every, strict=True) if a in one[0][0]]
        if not held:
            continue
        g, h = visit(held, W, a, bound)
        W[a] = update(W[a], g, np.maximum(h, max(1e-12, 1e-3 * h.max())), c2, factor)
        for (x, _), vectors in held:
            where = np.flatnonzero(x == a)
            vectors.forget(where[0], where[-1])


def fresh(text, kept=False):
    return [Vectors(x, kept) for x, _ in text]


def violation(text, W, c2):
    worst = 0.0
    for a in range(A):
        held = [one for one in zip(text, fresh(text), strict=True) if a in one[0][0]]
        g = visit(held, W, a)[0] + 2 * c2 * W[a]
        at = np.where(W[a] != 0, np.abs(g + C1 * np.sign(W[a])), np.maximum(np.abs(g) - C1, 0))
        worst = max(worst, at.max())
    return worst


def test_1_the_dot_of_the_left_picture():
    """F is the number of zeros among three fair choices of three labels: E = 1, variance 2/3, gold 2."""
    g, h = 1 - 2, 3 * (1 / 3) * (2 / 3)
    u = -g / h
    assert u == 1.5
    assert 3 * math.log((2 + math.exp(u)) / 3) - 2 * u == pytest.approx(-0.6889, abs=5e-5)


def test_2_cutting_saves_half_wherever_the_symbol_stands_once():
    for T in (2, 5, 9):
        whole = 2 * (T - 1)
        for t in range(T):
            vectors = Vectors(np.zeros(T, int), kept=False)
            vectors.reach(np.zeros((A, SIZE)), t, t)
            assert vectors.products == whole // 2
        vectors = Vectors(np.zeros(T, int), kept=False)
        vectors.reach(np.zeros((A, SIZE)), 0, T - 1)
        assert vectors.products == whole


def counts(x, y):
    F = np.zeros((A, SIZE))
    np.add.at(F, (x, y), 1)
    np.add.at(F, (x[1:], L + y[:-1] * L + y[1:]), 1)
    return F


def test_3_the_bound_of_safe():
    rng, largest = np.random.default_rng(3), 0.0
    for seed in range(6):
        W, hessian, squares = 2 * rng.normal(size=(A, SIZE)), np.zeros((A, SIZE, SIZE)), np.zeros(A)
        for x, _ in random_text(seed):
            F = np.array([counts(x, np.array(y)) for y in product(range(L), repeat=len(x))])
            p = np.exp((F * W).sum(axis=(1, 2)))
            p /= p.sum()
            mean = np.tensordot(p, F, 1)
            for a in range(A):
                hessian[a] += F[:, a].T @ (p[:, None] * F[:, a]) - np.outer(mean[a], mean[a])
            squares += np.bincount(x, minlength=A) ** 2
        for a in range(A):
            node = np.linalg.eigvalsh(hessian[a, :L, :L])[-1] / max(0.5 * squares[a], 1e-9)
            both = np.linalg.eigvalsh(hessian[a])[-1] / max(squares[a], 1e-9)
            largest = max(largest, node, both)
    assert 0.2 < largest < 1.0


def sweeps_to(text, c2, goal, bound):
    W, every = np.zeros((A, SIZE)), fresh(text)
    for n in range(1, 2000):
        sweep(text, every, W, c2, bound=bound)
        if objective(text, W, c2) <= goal:
            return n
    return math.inf


def test_4_the_bound_of_cauchy_and_schwarz():
    W, values, every = np.zeros((A, SIZE)), [objective(STUCK, np.zeros((A, SIZE)), 0.05)], fresh(STUCK)
    for _ in range(40):
        sweep(STUCK, every, W, 0.05, bound=True)
        values.append(objective(STUCK, W, 0.05))
    assert max(np.diff(values)) < 1e-9
    ratios = []
    for seed in (0, 3):
        text, W = random_text(seed), np.zeros((A, SIZE))
        for _ in range(200):
            sweep(text, fresh(text), W, 0.05)
        goal = objective(text, W, 0.05) * (1 + 1e-5)
        ratios.append(sweeps_to(text, 0.05, goal, True) / sweeps_to(text, 0.05, goal, False))
    assert 1.2 < min(ratios) <= max(ratios) < 3.0, ratios


class Shared(Vectors):
    """alpha of a beginning, beta of an end: computed once for all sequences that have it."""

    def __init__(self, x, pool):
        self.pool = pool
        super().__init__(x, True)

    def reach(self, W, first, last):
        node, edge = tables(self.x, W)
        x = tuple(self.x)
        for t in range(last + 1):
            if (0, x[: t + 1]) not in self.pool:
                self.products += t > 0
                self.pool[0, x[: t + 1]] = node[t] * (self.pool[0, x[:t]] @ edge[t] if t else 1.0)
            self.alpha[t] = self.pool[0, x[: t + 1]]
        for t in range(len(x) - 1, first - 1, -1):
            if t < len(x) - 1 and (1, x[t + 1 :]) not in self.pool:
                self.products += 1
                self.pool[1, x[t + 1 :]] = edge[t + 1] @ (node[t + 1] * self.beta[t + 1])
            self.beta[t] = self.pool[1, x[t + 1 :]] if t < len(x) - 1 else np.ones(L)
        return node, edge

    def forget(self, first=0, last=None):
        """What holds the symbol that moved is gone: here of the whole pool."""
        if last is None:
            return super().forget()
        a = self.x[first]
        for key in [key for key in self.pool if a in key[1]]:
            del self.pool[key]


def test_5_keeping_and_sharing():
    text = random_text(0, n=30)
    pool = {}
    ways = {"plain": fresh(text), "kept": fresh(text, True), "shared": [Shared(x, pool) for x, _ in text]}
    ends, products = {}, {}
    for name, every in ways.items():
        ends[name] = np.zeros((A, SIZE))
        for _ in range(20):
            sweep(text, every, ends[name], 0.05)
        products[name] = sum(one.products for one in every)
    for name in ("kept", "shared"):
        np.testing.assert_allclose(ends[name], ends["plain"], rtol=0, atol=1e-10)
    assert products["shared"] < products["kept"] < products["plain"], products


def anderson(points):
    """The combination of the points whose combined differences are shortest."""
    steps = np.diff(np.array(points), axis=0)
    gram = steps @ steps.T
    z = np.linalg.solve(gram + 1e-10 * np.trace(gram) * np.eye(len(steps)), np.ones(len(steps)))
    return (z / z.sum()) @ np.array(points[1:])


def test_6_anderson():
    for seed in range(2):
        text, c2, needed = random_text(seed), 1e-3, {}
        for every_five in (False, True):
            W, points, every = np.zeros((A, SIZE)), [np.zeros(A * SIZE)], fresh(text)
            for n in range(1, 5000):
                sweep(text, every, W, c2)
                points.append(W.ravel().copy())
                if every_five and n % 5 == 0:
                    better = anderson(points).reshape(A, SIZE)
                    if objective(text, better, c2) < objective(text, W, c2):
                        W[:] = better
                    points, every = [W.ravel().copy()], fresh(text)
                if violation(text, W, c2) <= 1e-6:
                    break
            needed[every_five] = n
        assert needed[True] < 0.5 * needed[False] < 2500, needed
