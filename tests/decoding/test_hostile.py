"""Hostile models and texts, through the estimators: every form of decoding is right, or names what is wrong."""

import numpy as np
import pytest

from crfbook.chain.sparse import choice
from crfbook.data.corpus import make_corpus
from crfbook.data.features import MOST_LABELS, from_keys
from crfbook.decoding import decode
from crfbook.models.crf import CRF
from crfbook.models.directed import HMM, MEMM


def one_of_each(n_labels):
    """Two tokens a sequence, and each label once."""
    return make_corpus(
        np.arange(0, n_labels + 1, 2), range(n_labels + 1), np.arange(n_labels) % 50, labels=range(n_labels)
    )


@pytest.mark.parametrize(
    "model",
    [
        CRF("perceptron", max_iterations=0),
        CRF(all_possible_transitions=True),
        CRF("sbcd", c1=1.0, c2=0.0, all_possible_states=True, all_possible_transitions=True),
        HMM(),
        MEMM(),
    ],
    ids=["perceptron", "lbfgs", "sbcd", "HMM", "MEMM"],
)
def test_more_labels_than_pairs_have_numbers(model):
    """46,341 labels squared exceed 31 bits; pairs of them would be taken for others in silence."""
    with pytest.raises(ValueError, match="^labels: expected at most 46,340 different ones, got 46,342$"):
        model.fit(one_of_each(MOST_LABELS + 2))
    assert MOST_LABELS**2 < 2**31 <= (MOST_LABELS + 1) ** 2


def test_many_labels_take_stored_pairs_without_a_count_of_all(monkeypatch):
    """Counting the pairs of 8,000 labels for the choice alone would take a table of them."""
    n_labels = 8_000
    pairs = np.array([0 * n_labels + 7_999, 7_999 * n_labels + 5])
    features = from_keys(n_labels, 2, 1, np.array([0, n_labels + 3]), pairs)
    corpus, w = make_corpus([0, 3], [0, 1, 1, 1], [0]), np.array([1.0, 1.0, 3.0, 2.0])
    monkeypatch.setattr(choice, "count_supports", None)
    assert choice.decoding_form("auto", corpus, features, w) == "default"
    assert decode(corpus, features, w).tolist() == [0, 7_999, 5]
