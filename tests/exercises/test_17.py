"""Chapter 17: what its exercises say that one should find, found without the chapter's code."""

from itertools import product

import numpy as np
import pytest

NODE = np.array([[1.0, 0.4, -np.inf], [0.2, 1.6, 0.5], [0.8, 0.9, 0.9], [1.5, 0.0, 0.3]])
EDGE = np.array([[0.5, 0.3, -np.inf], [0.0, -1.0, 0.8], [0.4, -0.5, 0.2]])
YS = list(product(range(3), repeat=4))


def listed():
    """Probabilities of YS."""
    score = [sum(NODE[range(4), y]) + sum(EDGE[a, b] for a, b in zip(y, y[1:], strict=False)) for y in YS]
    p = np.exp(score)
    return p / p.sum()


def backward():
    beta = np.ones((4, 3))
    for t in (2, 1, 0):
        beta[t] = np.exp(EDGE) @ (np.exp(NODE[t + 1]) * beta[t + 1])
    return beta


def test_1_labellings_with_a_probability():
    assert (listed() > 0).sum() == 34


def test_2_what_may_stand_before_and_behind_a_chunk():
    from crfbook.evaluation import chunks

    for before, after in product(("O", "B-X", "I-X", "B-Y"), ("O", "B-X", "B-Y")):
        assert ("X", 2, 4) in chunks(["B-X", before, "B-X", "I-X", after], "BIO")
        assert ("X", 2, 4) not in chunks(["B-X", before, "B-X", "I-X", "I-X"], "BIO")
    for after in ("O", "B-X", "S-X", "S-Y", "B-Y"):
        assert ("X", 0, 2) in chunks(["B-X", "E-X", after], "BIOES")


def test_3_the_largest_ratio():
    p, ratio = np.array([0.9, 0.7, 0.3]), {}
    for chosen in product((0, 1), repeat=3):
        ratio[chosen] = 2 * (p @ chosen) / (sum(chosen) + p.sum())
    assert max(ratio, key=ratio.get) == (1, 1, 0) and ratio[1, 1, 0] == pytest.approx(32 / 39)
    assert f"{ratio[1, 1, 1]:.4f}" == "0.7755" and f"{32 / 39:.4f}" == "0.8205"


def test_4_a_sampler_that_goes_forward():
    rng, beta, drawn = np.random.default_rng(0), backward(), np.zeros((20_000, 4), int)
    for t in range(4):
        weights = np.exp(NODE[t]) * beta[t] * (np.exp(EDGE)[drawn[:, t - 1]] if t else np.ones((20_000, 1)))
        sums = weights.cumsum(axis=1)
        drawn[:, t] = (sums <= rng.random((20_000, 1)) * sums[:, -1:]).sum(axis=1)
    share = np.bincount(np.ravel_multi_index(drawn.T, [3] * 4), minlength=81) / 20_000
    assert abs(share - listed()).max() < 0.015


def test_5_bins_of_equal_numbers_keep_the_bias():
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        p = np.sort(0.5 + rng.random(1000) / 2)
        off = (rng.random(1000) < p) - p
        place = (p * 10).astype(int)
        width = sum(abs(off[place == k].sum()) for k in range(10)) / 1000
        found.append((width, np.abs(off.reshape(10, 100).sum(axis=1)).sum() / 1000))
    assert all(0.02 < mean < 0.04 for mean in np.mean(found, axis=0))


def test_6_digits_that_cancel():
    p, node = listed(), NODE.copy()
    truth = -sum(q * np.log(q) for q in p if q > 0)
    node[0] += 1e12
    score = np.array(
        [sum(node[range(4), y]) + sum(EDGE[a, b] for a, b in zip(y, y[1:], strict=False)) for y in YS]
    )
    log_z = np.logaddexp.reduce(score)
    mean = p[p > 0] @ score[p > 0]
    assert abs(log_z - mean - truth) > 1e-6
    alpha, H = np.exp(NODE[0]), np.zeros(3)  # the shift leaves (3) alone: scores less their largest
    for t in (1, 2, 3):
        joint = alpha[:, None] * np.exp(EDGE) * np.exp(NODE[t])
        alpha = joint.sum(axis=0)
        q = joint / alpha
        H = (q * (H[:, None] - np.log(q, out=np.zeros_like(q), where=q > 0))).sum(axis=0)
    last = alpha / alpha.sum()
    assert last @ (H - np.log(last)) == pytest.approx(truth, rel=1e-9)
