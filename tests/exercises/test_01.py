"""The stated outcomes of the exercises of chapter 01: the machine of rib and rob, and real sentences."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from crfbook import CRF, HMM, MEMM, TokenColumns, load_dataset
from crfbook.evaluation import chunk_report

STATES, LETTERS, OWN = "12345", "riob", "ribro"  # state k emits OWN[k]
ARCS = np.full((5, 5), -np.inf)
ARCS[[0, 1, 3, 4, 2], [1, 2, 4, 2, 2]] = 0.0  # 1 to 2 to 3, 4 to 5 to 3, and 3 to itself
FIRST = np.array([np.log(3), -np.inf, -np.inf, 0.0, -np.inf])
RIB, ROB = (0, 1, 2), (3, 4, 2)


def scores(word, weight=3.0, first=FIRST):
    node = np.array([[weight * (letter == own) for own in OWN] for letter in word])
    node[0] += first
    return node


def crf(word, weight=3.0, first=FIRST, arcs=ARCS):
    """p(y | x) of all labellings (5, 5, 5)."""
    node = scores(word, weight, first)
    mass = np.exp(node[0][:, None, None] + (arcs + node[1])[:, :, None] + (arcs + node[2])[None])
    with np.errstate(invalid="ignore"):
        return mass / mass.sum()


def softmax(v):
    return np.exp(v) / np.exp(v).sum()


def noisy(n, rng):
    """Words of the noisy machine and their paths, as lists of letters and states."""
    y = np.array([RIB, ROB])[rng.integers(2, size=n)]
    own = np.array([LETTERS.index(a) for a in OWN])[y]
    x = np.where(rng.random((n, 3)) < 29 / 32, own, (own + rng.integers(1, 4, size=(n, 3))) % 4)
    return x, y


@pytest.fixture(scope="module")
def machine():
    rng = np.random.default_rng(5)
    return *noisy(2000, rng), *noisy(500, rng)


def as_lists(x, y, ahead=False):
    words = [[[LETTERS[a]] for a in row] for row in x]
    if ahead:
        words = [
            [[*t, *(f"next={a}" for a in n)] for t, n in zip(w, [*w[1:], []], strict=True)] for w in words
        ]
    return words, [[STATES[k] for k in row] for row in y]


def words_wrong(model, machine, ahead=False):
    x, y, x_new, y_new = machine
    words, gold = as_lists(x_new, y_new, ahead)
    found = model.fit(*as_lists(x, y, ahead)).predict(words)
    return np.mean([list(a) != b for a, b in zip(found, gold, strict=True)])


def test_1_the_threshold_is_the_logarithm_of_three():
    for weight, right in ((np.log(3) - 1e-6, False), (np.log(3) + 1e-6, True)):
        p = crf("rob", weight)
        assert (p[ROB] > p[RIB]) == right


def test_2_a_second_way_out_of_state_1():
    arcs, node = ARCS.copy(), scores("rob")
    arcs[0, 4] = 0.0
    p = softmax(node[0])[0] * softmax(node[1] + arcs[0])[1] * softmax(node[2] + arcs[1])[2]
    assert p == pytest.approx(0.75 / (1 + np.exp(3))) == pytest.approx(0.0356, abs=5e-5)


def counted(machine, s, legal=None):
    """Share of wrong words of a MEMM of smoothed counts; legal: arcs to keep, all others forbidden again."""
    x, y, x_new, y_new = machine
    first, move = np.full((4, 5), float(s)), np.full((5, 4, 5), float(s))
    np.add.at(first, (x[:, 0], y[:, 0]), 1)
    for t in (1, 2):
        np.add.at(move, (y[:, t - 1], x[:, t], y[:, t]), 1)
    if legal is not None:
        move *= legal[:, None]
    first, move = (p / np.maximum(p.sum(-1, keepdims=True), 1e-300) for p in (first, move))
    p = [first[a][:, None, None] * move[:, b][:, :, None] * move[:, c][None] for a, b, c in x_new]
    found = np.array([np.unravel_index(one.argmax(), one.shape) for one in p])
    return (found != y_new).any(axis=1).mean()


def test_3_counts_are_biased_like_trained_weights_until_smoothing_opens_forbidden_arcs(machine):
    trained = words_wrong(MEMM(c2=1e-3, constraints=np.isfinite(ARCS)), machine)
    assert abs(counted(machine, 0.1) - trained) < 0.02 and trained > 0.4
    assert counted(machine, 1.0) < 0.1
    assert abs(counted(machine, 1.0, np.isfinite(ARCS)) - trained) < 0.02


def test_4_a_look_ahead_takes_the_memm_to_the_limit_of_the_crf(machine):
    p = {a: [29 / 32 if a == own else 1 / 32 for own in OWN] for a in LETTERS}
    branch = [[np.prod([p[a][k] for a, k in zip(w, path, strict=True)]) for path in (RIB, ROB)]
              for w in product(LETTERS, repeat=3)]  # fmt: skip
    limit = 0.5 * np.min(branch, axis=1).sum()
    found = words_wrong(MEMM(c2=1e-3, constraints=np.isfinite(ARCS)), machine, ahead=True)
    assert abs(found - limit) < 4 * np.sqrt(limit * (1 - limit) / 500)


def test_5_a_large_penalty_approaches_the_forbidden_like_its_exponential():
    words = list(product(LETTERS, repeat=3))
    exact = np.array([crf(w) for w in words])

    def finite(c):
        return np.array([crf(w, 3.0, np.maximum(FIRST, -c), np.maximum(ARCS, -c)) for w in words])

    error = [np.abs(finite(c) - exact).max() for c in (14.0, 16.0, 18.0)]
    np.testing.assert_allclose(np.diff(np.log(error)), -2.0, atol=0.1)
    nothing = np.full(5, -np.inf)
    assert np.isnan(crf("rib", 3.0, nothing)).all()
    arcs = np.maximum(ARCS, -18.0)
    np.testing.assert_allclose(crf("rib", 3.0, np.full(5, -18.0), arcs), crf("rib", 3.0, np.zeros(5), arcs))


@pytest.mark.real_data("conll2000")
def test_6_with_words_hmm_and_crf_stay_close_until_text_is_plenty():
    data = load_dataset("conll2000", verbose=False)
    test, gold = data.test.head(500), data.test.head(500).labels_by_sequence()
    for n in (250, 1000, 8000):
        train = data.train.head(n)
        often = {word for word, times in Counter(train.columns["word"]).items() if times > 1}
        rare = [
            TokenColumns({"word": [w if w in often else "<rare>" for w in part.columns["word"]]},
                         part.seq_ptr, part.labels)
            for part in (train, test)
        ]  # fmt: skip
        options = {"c2": 0.1, "tol": 3e-3, "template": "U0:%x[0,word]\nB"}
        models = HMM(template=options["template"]), CRF(**options), MEMM(**options)
        hmm, crf_, memm = (chunk_report(gold, m.fit(rare[0]).predict(rare[1])).f1 for m in models)
        assert memm < min(hmm, crf_)
        assert crf_ > hmm + 0.01 if n == 8000 else abs(hmm - crf_) < 0.03


@pytest.mark.real_data("conll2000")
def test_6_with_overlapping_features_the_memm_is_above_the_hmm_and_close_to_the_crf():
    data = load_dataset("conll2000", verbose=False)
    test, gold = data.test.head(500), data.test.head(500).labels_by_sequence()
    options = {"c2": 0.1, "tol": 3e-3, "template": "chunking"}
    for n in (250, 1000):
        models = HMM(template="chunking"), CRF(**options), MEMM(**options)
        train = data.train.head(n)
        hmm, crf_, memm = (chunk_report(gold, m.fit(train).predict(test)).f1 for m in models)
        assert memm > hmm and abs(memm - crf_) < 0.02
