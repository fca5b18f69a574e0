"""Viterbi with a default and stored pairs: the paths of the dense form, bit for bit, and what it looks at."""

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model
from helpers.problems import CASES, case, constraints_for

from crfbook import brute
from crfbook.chain import inference
from crfbook.chain.sequence import plain_viterbi
from crfbook.chain.sparse import potentials
from crfbook.chain.sparse.default import ALIVE, PAIRS, ROWS, bound_row, default_viterbi_plain, largest
from crfbook.data.constraints import Constraints, bounds_of, constraints_from
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed

pytestmark = pytest.mark.kernels


def both(corpus, features, w, constraints=None):
    """(path of the dense form, of the default, counts of the default)."""
    path, seen = inference._decode_by_default(corpus, features, w, constraints, 1)
    return inference.decode(corpus, features, w, constraints, form="dense"), path, seen


def weights(name, seed, size, kind):
    corpus, features, w = case(name, seed, size)
    w, edges, rng = w.copy(), slice(features.n_node, None), np.random.default_rng(seed)
    if kind == "ties":
        w = np.round(w)
    if kind == "few pairs":
        w[edges][rng.random(features.n_edge) < 0.7] = 0.0
    if kind == "negative":
        w[edges] = -np.abs(w[edges]) * 100.0
    return corpus, features, w


@pytest.mark.parametrize("bounds", [True, False], ids=["bounds", "row extremes"])
@pytest.mark.parametrize("kind", ["any", "ties", "few pairs", "negative"])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_it_finds_the_path_of_the_dense_form(name, constrained, kind, bounds, monkeypatch):
    monkeypatch.setattr(potentials, "MOST_BOUNDS", 1 << 26 if bounds else -1)
    for seed in range(4):
        for size in (1.0, 1000.0):
            corpus, features, w = weights(name, seed, size, kind)
            constraints = constraints_for(corpus, features.n_labels) if constrained else None
            want, got, seen = both(corpus, features, w, constraints)
            np.testing.assert_array_equal(got, want)
            assert bounds or not seen[ROWS]


def large(seed=0, n_labels=37, n_tokens=900, scale=1.0, share=0.1, n_classes=1):
    """A corpus of many labels, few of whose pairs occur, and random weights."""
    rng = np.random.default_rng(seed)
    lengths = tuple(rng.integers(0, 12, n_tokens // 6))
    corpus = random_corpus(rng, lengths, n_labels, 60, n_classes)
    features, w = random_model(rng, corpus, n_labels, 60)
    w[features.n_node :] *= scale * (rng.random(features.n_edge) < share)
    return corpus, features, w


@pytest.mark.parametrize("n_classes", [1, 3])
@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_many_labels_with_and_without_groups(seed, share, n_classes):
    corpus, features, w = large(seed, share=share, n_classes=n_classes)
    names = ["O", *(f"{p}-{i}" for i in range(18) for p in "BI")]
    rng = np.random.default_rng(seed)
    anything = Constraints(rng.random((37, 37)) < 0.5, *np.ones((2, 37), bool))
    np.fill_diagonal(anything.allowed, True)
    for constraints in (None, constraints_from("BIO", names), constraints_from("BIOES", names), anything):
        want, got, _ = both(corpus, features, w, constraints)
        np.testing.assert_array_equal(got, want)


def test_bio_stays_sparse():
    """One group of labels that anything may precede, and one for each type."""
    corpus, features, w = large()
    names = ["O", *(f"{p}-{i}" for i in range(18) for p in "BI")]
    limits = bounds_of(constraints_from("BIO", names), 37)
    scores = potentials.default_scores(features, w, corpus.class_ptr, corpus.class_attr, limits)
    assert len(scores.member_ptr) - 1 == 19 and len(scores.member) == 37 + 18 * 2
    assert sorted(np.diff(scores.label_ptr)) == [1] * 18 + [19]


def test_dominance_is_exact_and_saves_work():
    """Bounds let in no more than row extremes do, and fewer pairs are looked at than are stored."""
    corpus, features, w = large(n_labels=37, share=0.2)
    want, path, seen = both(corpus, features, w)
    stored = np.count_nonzero(w[features.n_node :])
    assert seen[PAIRS] < 0.5 * stored * corpus.n_tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(potentials, "MOST_BOUNDS", -1)
        _, again, more = both(corpus, features, w)
    np.testing.assert_array_equal(path, again)
    assert seen[ALIVE] < more[ALIVE] < 37 * corpus.n_tokens


def test_a_bound_is_the_largest_gain_over_the_winner():
    corpus, features, w = large(3, share=1.0)
    limits = bounds_of(None, 37)
    scores = potentials.default_scores(features, w, corpus.class_ptr, corpus.class_attr, limits)
    table = np.zeros((37, 37))
    table[features.edge_prev, features.edge_next] = w[features.n_node :]
    bound = np.zeros(37, np.float32)
    for q in (0, 5, 36):
        bound_row(q, 0, 37, 0, scores, bound, 0)
        gain = np.maximum((table - table[q]).max(axis=1), 0.0)
        assert (bound >= gain).all()
        np.testing.assert_allclose(bound, gain, rtol=1e-5, atol=1e-20)


def test_long_sequences_threads_and_sums_beyond_float64():
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, (30_000, 0, 1, 5_000), 5, 7)
    features, w = random_model(rng, corpus, 5, 7)
    want, got, _ = both(corpus, features, w)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(inference.decode(corpus, features, w, None, 2, "default"), want)
    w[: features.n_node] = 1e308
    for form in ("dense", "default"):
        with pytest.raises(ValueError, match=r"sequence 0, token \d+: expected scores within float64"):
            inference.decode(corpus, features, w, form=form)


def test_a_sequence_without_a_path_is_named():
    corpus, features, w = large(2)
    nothing = Constraints(np.zeros((37, 37), bool), np.ones(37, bool), np.ones(37, bool))
    with pytest.raises(ValueError, match="sequence") as dense:
        inference.decode(corpus, features, w, nothing, form="dense")
    with pytest.raises(ValueError, match="sequence") as default:
        inference.decode(corpus, features, w, nothing, form="default")
    assert str(dense.value) == str(default.value)


def test_inf_minus_inf_is_named():
    """Sums of attributes that are NaN at the first label, too."""
    corpus, features, w = large(4)
    corpus = corpus._replace(attr_val=np.full(len(corpus.attr_idx), 10.0))
    w[: features.n_node] = np.where(w[: features.n_node] > 0.0, 1e308, -1e308)
    for form in ("dense", "default"):
        with pytest.raises(ValueError, match=r"sequence \d+, token \d+: expected scores within float64"):
            inference.decode(corpus, features, w, form=form)


@pytest.mark.parametrize("bounds", [True, False])
def test_who_ties_only_by_rounding_stays_alive(bounds, monkeypatch):
    """0 + 1e17 = 1 + 1e17 in float64: the smaller label wins, though the other one is ahead."""
    monkeypatch.setattr(potentials, "MOST_BOUNDS", 1 << 26 if bounds else -1)
    corpus = make_corpus([0, 2, 3, 5], [0, 1, 2, 2, 2, 2], [0, 1], labels=[1, 0, 2, 0, 0])
    features = observed(corpus, 3, 2)
    assert features.n_features == 4  # (attribute 0, label 1), (1, 0); transitions 0 0 and 1 0
    want, got, _ = both(corpus, features, np.array([1.0, 5.0, 1e17, 1e17]))
    np.testing.assert_array_equal(want, [0, 0, 0, 0, 0])
    np.testing.assert_array_equal(got, want)


def test_the_largest_is_the_first_of_the_largest():
    rng = np.random.default_rng(0)
    for n in (1, 2, 31, 32, 33, 64, 65, 200):
        x = rng.integers(-2, 3, n) + rng.choice([0.0, 1e-9], n)
        x[rng.random(n) < 0.3] = -np.inf
        for values in (x, np.full(n, -np.inf), np.sort(x), rng.choice([0.0, 1e-9], n)):
            assert largest(np.append(values, 9.0), n) == (values.argmax(), values.max())


@pytest.mark.parametrize("kind", ["any", "ties", "few pairs", "negative"])
@pytest.mark.parametrize("seed", range(4))
def test_the_readable_sister_finds_the_same_paths(seed, kind):
    corpus, features, w = weights("five labels", seed, 1.0, kind)
    table, stored = np.zeros((5, 5)), np.zeros((5, 5), bool)
    table[features.edge_prev, features.edge_next] = w[features.n_node :]
    stored[table != 0.0] = True
    _, path, _ = both(corpus, features, w)
    node = inference.node_scores(corpus, features, w)
    want = inference.sequence_scores(corpus._replace(labels=path), features, w)
    for s in corpus.visited:
        rows = slice(*corpus.seq_ptr[s : s + 2])
        score, found = default_viterbi_plain(node[rows], table, stored)
        assert found == path[rows].tolist() and score == pytest.approx(want[s], rel=1e-12)
    assert kind == "few pairs" or stored.any()


def test_the_readable_sister_takes_the_smallest_of_equal_labels():
    rng = np.random.default_rng(0)
    for _ in range(200):
        node, stored = rng.integers(0, 2, (4, 3)).astype(float), rng.random((3, 3)) < 0.5
        table = np.where(stored, rng.integers(-1, 2, (3, 3)), 0.0)
        scores = np.concatenate([node.ravel(), np.tile(table, (4, 1, 1)).ravel()])
        assert default_viterbi_plain(node, table, stored)[1] == plain_viterbi(scores, 3)


@pytest.mark.parametrize("seed", range(8))
def test_the_readable_sister_looks_past_a_best_label_that_stores_the_pair(seed):
    """Most pairs are stored and cost something: the default then comes from another label than the best."""
    rng = np.random.default_rng(seed)
    node, stored = rng.normal(size=(6, 4)), rng.random((4, 4)) < 0.7
    table = np.where(stored, -rng.exponential(3.0, size=(4, 4)), 0.0)
    score, found = default_viterbi_plain(node, table, stored)
    want, paths = brute.best_paths(node, table[None], np.zeros(6, np.int32))
    assert score == pytest.approx(want, rel=1e-12) and found in paths.tolist()
