"""The stated outcomes of the exercises of chapter 03: the toy by enumeration, and real sentences."""

from itertools import product

import numpy as np
import pytest

from crfbook import CRF, load_dataset, minimize
from crfbook.encoding import templates
from crfbook.evaluation import paired_test

WORDS, LABELS, GOLD = "the old man the boat".split(), "DNV", (0, 1, 2, 0, 1)
ATTRIBUTES = [("word=" + word, "before=" + before) for word, before in zip(WORDS, ["(start)", *WORDS[:-1]])]  # noqa: B905
ASKED = sorted({a for x in ATTRIBUTES for a in x})
X = np.array([[a in x for a in ASKED] for x in ATTRIBUTES], float)
PATHS = list(product(range(3), repeat=5))


def counts(path):
    Y = np.eye(3)[list(path)]
    return np.concatenate([(X.T @ Y).ravel(), (Y[:-1].T @ Y[1:]).ravel()])


PHI = np.array([counts(path) for path in PATHS])


def probabilities(w):
    p = np.exp(PHI @ w - (PHI @ w).max())
    return p / p.sum()


def loss(w, c2=0.05):
    score = PHI @ w
    value = np.log(np.exp(score - score.max()).sum()) + score.max() - w @ counts(GOLD)
    return value + c2 * w @ w, probabilities(w) @ PHI - counts(GOLD) + 2 * c2 * w


def hessian(w, c2=0.05):
    p = probabilities(w)
    mean = p @ PHI
    return (PHI.T * p) @ PHI - np.outer(mean, mean) + 2 * c2 * np.eye(len(w))


def pair(y_before, y):
    return PHI[:, len(ASKED) * 3 + 3 * LABELS.index(y_before) + LABELS.index(y)]


def test_1_equal_expectations_and_unequal_variances():
    assert pair("V", "D").mean() == pytest.approx(pair("D", "D").mean()) == pytest.approx(4 / 9)
    assert pair("V", "D").var() == pytest.approx(26 / 81)
    assert pair("D", "D").var() == pytest.approx(44 / 81)


def test_2_one_penalty_in_four_notations():
    w, variance = np.random.default_rng(0).normal(size=7), 10.0
    c2, rho2, C = 0.05, 0.1, 10.0
    for other in (w @ w / (2 * variance), rho2 / 2 * w @ w, w @ w / (2 * C)):
        assert other == pytest.approx(c2 * w @ w)


def test_3_the_gradient_of_an_attribute_adds_up_to_zero():
    gradient = loss(np.random.default_rng(1).normal(size=PHI.shape[1]), c2=0.0)[1]
    assert np.abs(gradient[: 3 * len(ASKED)].reshape(-1, 3).sum(1)).max() < 1e-9


def wolfe(fun, w, direction):
    """A step by bisection for which the value falls enough and |slope| falls to 0.9 of what it was."""
    value, gradient = fun(w)
    slope, low, high, step = gradient @ direction, 0.0, np.inf, 1.0
    for _ in range(60):
        value_new, gradient_new = fun(w + step * direction)
        if value_new > value + 1e-4 * step * slope or gradient_new @ direction > 0.9 * abs(slope):
            high = step
        elif gradient_new @ direction < 0.9 * slope:
            low = step
        else:
            return step
        step = 2 * low if high == np.inf else (low + high) / 2
    raise AssertionError("no step")


def test_4_wolfe_makes_every_pair_positive_convex_or_not():
    def valley(w):  # Rosenbrock's, which is not convex
        a, b = w
        return (1 - a) ** 2 + 100 * (b - a * a) ** 2, np.array(
            [-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)]
        )

    for fun, w in ((loss, np.zeros(PHI.shape[1])), (valley, np.array([-1.2, 1.0]))):
        for _ in range(30):
            gradient = fun(w)[1]
            if np.abs(gradient).max() < 1e-8:
                break
            step = wolfe(fun, w, -gradient)
            change = fun(w - step * gradient)[1] - gradient
            assert (-step * gradient) @ change > 0
            w = w - step * gradient


def test_5_owlqn_meets_the_package():
    c1, fun = 0.3, lambda w: loss(w, 0.0)

    def pseudo(w, g):
        toward = np.where(g < -c1, g + c1, np.where(g > c1, g - c1, 0.0))
        return np.where(w != 0, g + c1 * np.sign(w), toward)

    w, pairs = np.zeros(PHI.shape[1]), []
    for _ in range(400):
        value, g = fun(w)
        v = pseudo(w, g)
        q, shares = -v, []
        for s, y in reversed(pairs):
            shares.append(s @ q / (s @ y))
            q = q - shares[-1] * y
        if pairs:
            s, y = pairs[-1]
            q = q * (s @ y) / (y @ y)
        for (s, y), a in zip(pairs, reversed(shares), strict=True):
            q = q + (a - y @ q / (s @ y)) * s
        direction = np.where(q * v < 0, q, 0.0)  # of descent, weight by weight
        orthant, step = np.where(w != 0, np.sign(w), -np.sign(v)), 1.0
        while True:
            new = w + step * direction
            new = np.where(new * orthant > 0, new, 0.0)
            reached = fun(new)[0] + c1 * np.abs(new).sum()
            if reached <= value + c1 * np.abs(w).sum() + 1e-4 * v @ (new - w) or step < 1e-12:
                break
            step /= 2
        s, y = new - w, fun(new)[1] - g
        if s @ y > 1e-14:
            pairs = [*pairs, (s, y)][-6:]
        w = new
    ours = fun(w)[0] + c1 * np.abs(w).sum()
    package = minimize(fun, np.zeros(len(w)), c1=c1, tol_gradient=1e-7, max_iterations=2000).objective
    assert ours == pytest.approx(package, rel=1e-6) and (w == 0).any()


def test_6_newton_doubles_the_digits():
    w = np.zeros(PHI.shape[1])
    for _ in range(12):
        w -= np.linalg.solve(hessian(w), loss(w)[1])
    best, w = w, w + 0.01 * np.random.default_rng(2).normal(size=len(w))
    digits = []
    for _ in range(3):
        digits.append(-np.log10(np.abs(w - best).max()))
        w = w - np.linalg.solve(hessian(w), loss(w)[1])
    assert digits[1] > 1.7 * digits[0] and digits[2] > 1.7 * digits[1]


def test_7_spelling_helps_with_and_much_more_without_parts_of_speech():
    data = load_dataset("conll2000", verbose=False)
    train, dev = data.train[:600], data.train[600:900]
    text = templates.load("chunking").text
    spelling = "\nU90:%prefix[0,0,1,4]\nU91:%suffix[0,0,1,4]"
    gains = []
    for lines in (text, "\n".join(line for line in text.splitlines() if ",1]" not in line)):
        both = [CRF(template=t, c2=0.3, tol=1e-3).fit(train).predict(dev) for t in (lines, lines + spelling)]
        test = paired_test(dev.labels_by_sequence(), *both, n_samples=2000)
        gains.append(test.difference)
        assert test.p_value < 0.01
    assert 0.005 < gains[0] < 0.02 and gains[1] > 3 * gains[0]
