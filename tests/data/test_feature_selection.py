"""Selections of features against their definitions, written out token by token."""

import math

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model

from crfbook.data import features as fs
from crfbook.data.features import observed, select

RNG = np.random.default_rng


def occurrences(corpus, features):
    """Boolean tables over tokens: (U, V) of each feature, and which tokens count; loops only."""
    starts = {int(corpus.seq_ptr[i]) for i in range(corpus.n_sequences)}
    for k in range(features.n_features):
        U, V, counts = [], [], []
        for t in range(corpus.n_tokens):
            if k < features.n_node:
                a = int(np.searchsorted(features.node_ptr, k, side="right")) - 1
                items = range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1])
                here = any(
                    corpus.attr_idx[i] == a and (not len(corpus.attr_val) or corpus.attr_val[i] != 0)
                    for i in items
                )
                U.append(here)
                V.append(corpus.labels[t] == features.node_label[k])
                counts.append(corpus.labels[t] >= 0)
            else:
                j = k - features.n_node
                b = int(np.searchsorted(features.edge_ptr, j, side="right")) - 1
                c = corpus.edge_class[t]
                U.append(b in corpus.class_attr[corpus.class_ptr[c] : corpus.class_ptr[c + 1]])
                V.append(
                    t not in starts
                    and corpus.labels[t - 1] == features.edge_prev[j]
                    and corpus.labels[t] == features.edge_next[j]
                )
                counts.append(t not in starts and corpus.labels[t] >= 0 and corpus.labels[t - 1] >= 0)
        yield np.array(U)[counts], np.array(V)[counts]


def information(U, V):
    total = 0.0
    for u in (False, True):
        for v in (False, True):
            p = np.mean((U == u) & (V == v))
            if p > 0:
                total += p * math.log(p / (np.mean(U == u) * np.mean(V == v)))
    return total


@pytest.mark.parametrize(
    "seed, options",
    [(0, {}), (1, {"n_classes": 3}), (2, {"valued": True, "n_classes": 2}), (3, {"weighted": True})],
)
def test_mutual_information_is_its_definition(seed, options):
    corpus = random_corpus(RNG(seed), lengths=(4, 0, 1, 6, 3, 5), **options)
    features = random_model(RNG(0), corpus, all_states=True, all_transitions=True)[0]
    if seed == 2:
        corpus.attr_val[::3] = 0.0
    if seed == 3:
        corpus.labels[[2, 7]] = -1
    found = fs.mutual_information(corpus, features)
    wanted = [information(U, V) for U, V in occurrences(corpus, features)]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    assert found.max() > 0.05
    if options.get("n_classes", 1) == 1:
        assert not found[features.n_node :].any()  # plain transitions: every token has them


def test_information_of_a_variable_about_itself_is_its_entropy():
    """A five times, x four times: I(a, A) = H(5/9)."""
    corpus = random_corpus(RNG(0), lengths=(9,), n_attrs=2)
    attr = np.array([0, 0, 1, 0, 1, 1, 0, 1, 0])
    corpus = corpus._replace(
        attr_ptr=np.arange(10), attr_idx=attr.astype(np.int32), labels=attr.astype(np.int32)
    )
    features = observed(corpus, 2, 2)
    h = -(5 / 9 * math.log(5 / 9) + 4 / 9 * math.log(4 / 9))
    np.testing.assert_allclose(fs.mutual_information(corpus, features)[:2], h, rtol=1e-12)


@pytest.mark.parametrize("min_count", [0, 1, 2, 4])
def test_cutoff_counts_occurrences(min_count):
    corpus = random_corpus(RNG(5), lengths=(5, 4, 0, 7), n_classes=2, weighted=True)
    features = random_model(RNG(0), corpus, all_states=True, all_transitions=True)[0]
    unique = fs._presence(corpus)
    wanted = [np.count_nonzero(U & V) >= min_count for U, V in occurrences(unique, features)]
    np.testing.assert_array_equal(fs.frequency_cutoff(unique, features, min_count), wanted)
    assert fs.frequency_cutoff(corpus, features, 0).all()
    assert len(corpus.seq_weight) and not len(unique.seq_weight)
    once = corpus._replace(seq_weight=np.zeros(0))
    np.testing.assert_array_equal(
        fs.frequency_cutoff(corpus, features, min_count), fs.frequency_cutoff(once, features, min_count)
    )


def test_a_cutoff_of_one_keeps_what_is_observed():
    corpus = random_corpus(RNG(6), n_classes=2)
    full = random_model(RNG(0), corpus, all_states=True, all_transitions=True)[0]
    small = select(full, fs.frequency_cutoff(corpus, full, 1))
    for a, b in zip(small, observed(corpus, 3, 7, full.n_edge_attrs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_most_informative_are_the_largest_and_transitions_stay():
    corpus = random_corpus(RNG(7), lengths=(6, 6, 6), n_classes=2)
    features = random_model(RNG(0), corpus)[0]
    score = fs.mutual_information(corpus, features)
    plain = ~fs.without_plain_transitions(features)
    assert 0 < plain.sum() == features.edge_ptr[1]
    for n in (plain.sum(), plain.sum() + 5, features.n_features, features.n_features + 9):
        keep = fs.most_informative(corpus, features, n)
        assert keep.sum() == min(n, features.n_features) and keep[plain].all()
        rest = ~keep & ~plain
        assert not rest.any() or score[rest].max() <= score[keep & ~plain].min(initial=np.inf)
    assert select(features, ~plain).edge_ptr[1] == 0


def test_weights_are_cut_by_magnitude():
    w = np.array([0.5, -2.0, 0.0, 1.0, -1.0, 0.25])
    np.testing.assert_array_equal(fs.heaviest(w, 3), [0, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(fs.heaviest(w, 2), [0, 1, 0, 1, 0, 0])  # the first of equals
    np.testing.assert_array_equal(fs.heaviest(w, 6), w != 0)
    np.testing.assert_array_equal(fs.above_threshold(w, 1.0), [0, 1, 0, 1, 1, 0])
    for bad in (
        lambda: fs.heaviest(w, -1),
        lambda: fs.heaviest(w, 1.5),
        lambda: fs.above_threshold(w, 0.0),
        lambda: fs.heaviest(w, "a"),
        lambda: fs.heaviest(w, np.inf),
        lambda: fs.above_threshold(w, None),
    ):
        with pytest.raises(ValueError, match="expected"):
            bad()
    with pytest.raises(ValueError, match="min_count: expected a number >= 0, got -1"):
        fs.frequency_cutoff(None, None, -1)
