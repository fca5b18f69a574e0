"""Learning from sequences as they come: `partial_fit` against one epoch of `fit`, growing, saving,
refusing.
"""

import numpy as np
import pytest

from crfbook.chain.inference import node_scores
from crfbook.data.corpus import make_corpus, slice_sequences
from crfbook.data.features import log_edge, observed
from crfbook.learners.online import online
from crfbook.models.crf import CRF
from crfbook.models.fitting import VECTORS, merged
from crfbook.models.parameters import ALGORITHMS

RNG = np.random.default_rng(7)
Y = [RNG.choice(["DET", "N", "V"], size=t).tolist() for t in RNG.integers(1, 7, size=40)]
X = [[[f"w:{y}" if RNG.random() < 0.7 else "?", f"n{RNG.integers(5)}"] for y in seq] for seq in Y]
CHUNKS = [slice(0, 10), slice(10, 11), slice(11, 30), slice(30, 40)]
ABLE = [key for key, row in ALGORITHMS.items() if row.one_pass is not None]
DECODERS = {"perceptron": online.perceptron, "pa": online.passive_aggressive, "arow": online.arow}
MORE = {"sgd-l1": {"c1": 0.01}}


def stream(algorithm, chunks=CHUNKS, **params):
    model = CRF(algorithm, **MORE.get(algorithm, {}), **params)
    model.set_params(max_iterations=0).fit(X, Y)  # settles the alphabets, trains nothing
    model.set_params(max_iterations=None)
    for chunk in chunks:
        assert model.partial_fit(X[chunk], Y[chunk]) is model
    return model


@pytest.mark.parametrize("algorithm", DECODERS)
def test_chunks_in_order_are_one_epoch(algorithm):
    model = stream(algorithm)
    corpus = model.encoder_.transform(X, Y)
    whole = DECODERS[algorithm](corpus, model.features_, shuffle=False, max_iterations=1)
    # AROW's and the averaged weights are sums in the same order; only the mean's last division may differ
    np.testing.assert_allclose(model.weights_, whole.w, rtol=1e-12, atol=1e-14)
    assert model.n_iter_ == len(CHUNKS) == len(model.history_) and list(model.history_.iteration) == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("algorithm", ABLE)
def test_a_stream_is_learnt(algorithm):
    model = stream(algorithm, CHUNKS * 5)
    assert model.score(X, Y) > 0.75 and np.isfinite(model.weights_).all()
    assert model.n_iter_ == 5 * len(CHUNKS) and (np.diff(model.history_.seconds) >= 0).all()


@pytest.mark.parametrize("algorithm", ["sgd", "sgd-l1"])
def test_a_longer_or_harder_chunk_is_no_divergence(algorithm):
    """What an epoch may lose without the learning rate being blamed is a matter of the chunk,
    not of the chunks before it.
    """
    model = CRF(algorithm, **MORE.get(algorithm, {}))
    for chunk in (slice(0, 4), slice(4, 40), slice(4, 40)):
        model.partial_fit(X[chunk], Y[chunk], classes=["DET", "N", "V"] if chunk.start == 0 else None)
    before = model.score(X, Y)
    model.partial_fit([[["w:N"]] * 3], [["V"] * 3])  # loses more than weights that are all 0
    assert before > 0.7 and model.score(X, Y) > before - 0.25 and model.objective_ > 3 * np.log(3)
    assert model._learner[1]["n_halvings"] == 0


@pytest.mark.parametrize("algorithm", ABLE)
def test_saving_between_two_calls_changes_nothing(algorithm, tmp_path):
    stream(algorithm, CHUNKS[:2]).save(tmp_path / "model")
    loaded = CRF.load(tmp_path / "model")
    for chunk in CHUNKS[2:]:
        loaded.partial_fit(X[chunk], Y[chunk])
    straight = stream(algorithm)
    assert np.array_equal(loaded.weights_, straight.weights_) and loaded.objective_ == straight.objective_


@pytest.mark.parametrize("algorithm", ABLE)
def test_weights_that_come_later_are_added(algorithm):
    model = CRF(algorithm, **MORE.get(algorithm, {})).partial_fit(
        X, [["DET"] * len(seq) for seq in Y], classes=["DET", "N", "V"]
    )
    one_label = model.features_.n_features
    for chunk in CHUNKS:
        model.partial_fit(X[chunk], Y[chunk])
    seen = observed(model.encoder_.transform(X, Y), 3, model.features_.n_attrs)
    expected, _ = merged(
        observed(model.encoder_.transform(X, [["DET"] * len(seq) for seq in Y]), 3, model.features_.n_attrs),
        seen,
    )
    assert one_label < model.features_.n_features
    assert all(np.array_equal(a, b) for a, b in zip(model.features_, expected, strict=True))
    assert all(
        len(model._learner[1][name]) == len(model.weights_) for name in model._learner[1] if name in VECTORS
    )


def test_merging_moves_no_weight():
    rng = np.random.default_rng(1)
    whole = make_corpus([0, 6, 12], np.arange(25)[::2], rng.integers(0, 5, 24), labels=rng.integers(0, 3, 12))
    old, new = (observed(slice_sequences(whole, i, i + 1), 3, 5) for i in range(2))
    both, place = merged(old, new)
    assert all(np.array_equal(a, b) for a, b in zip(both, observed(whole, 3, 5), strict=True))
    w, spread = rng.normal(size=old.n_features), np.zeros(both.n_features)
    spread[place] = w
    for before, after in (
        (node_scores(whole, old, w), node_scores(whole, both, spread)),
        (log_edge(old, w, *whole[5:7]), log_edge(both, spread, *whole[5:7])),
    ):
        assert np.array_equal(before, after)


@pytest.mark.parametrize("algorithm", ABLE)
def test_fit_and_then_more(algorithm):
    model = CRF(algorithm, **MORE.get(algorithm, {}), max_iterations=3).fit(X[:30], Y[:30])
    before = model.weights_.copy()
    model.partial_fit(X[30:], Y[30:])
    assert (
        model.n_iter_ == 4 and not np.array_equal(model.weights_[:3], before[:3]) and model.score(X, Y) > 0.7
    )
    assert model._n_seen == 40


def test_another_algorithm_goes_on_from_the_weights():
    model = CRF("ap", max_iterations=3).fit(X, Y)
    model.set_params(algorithm="arow").partial_fit(X[:5], Y[:5])
    assert model.n_iter_ == 1 and model.score(X, Y) > 0.75


def test_unknown_attributes_are_ignored_and_unknown_labels_refused():
    model = CRF("ap").partial_fit(X, Y)
    features = model.features_
    model.partial_fit([[["never seen"]]], [["V"]])
    assert model.features_.n_attrs == features.n_attrs
    with pytest.raises(ValueError, match="sequence 0, token 1: .*'X'"):
        model.partial_fit([[["w:V"], ["w:V"]]], [["V", "X"]])
    with pytest.raises(ValueError, match="classes of the first call"):
        model.partial_fit(X, Y, classes=["A"])
    with pytest.raises(
        ValueError,
        match=r"'NEW' was not seen in training; known: .*; the first partial_fit has to name all labels",
    ):
        model.partial_fit(X, [["NEW"] * len(seq) for seq in Y])
    assert CRF("ap").partial_fit(X, Y, classes=["A", "V"]).classes_ == ["A", "DET", "N", "V"]


def test_nothing_to_learn_changes_nothing():
    model = CRF("ap").partial_fit(X, Y)
    before = model.weights_
    assert np.array_equal(model.partial_fit([], []).weights_, before)
    assert np.array_equal(model.partial_fit([[]], [[]]).weights_, before)


def test_batch_algorithms_are_refused_with_what_works():
    for algorithm in sorted(set(ALGORITHMS) - set(ABLE)):
        with pytest.raises(
            ValueError, match="needs all sequences at once; .*: 'sgd', 'sgd-l1', 'perceptron', 'pa', 'arow'$"
        ):
            CRF(algorithm).partial_fit(X, Y)


def test_ready_corpora_and_weights_of_sequences():
    corpus = make_corpus([0, 2, 3, 5], [0, 1, 2, 3, 4, 5], [0, 1, 1, 2, 0], labels=[0, 1, 1, 2, 0])
    model = CRF("perceptron", averaging=False).partial_fit(slice_sequences(corpus, 0, 2), classes=range(3))
    model.partial_fit(corpus, sample_weight=[1.0, 0.0, 2.0])
    assert model.classes_ == [0, 1, 2] and model.features_.n_attrs == 2 and len(model.predict(corpus)) == 3


@pytest.mark.parametrize("algorithm", ["sgd", "sgd-l1"])
def test_chunks_do_not_multiply_the_penalty(algorithm):
    """40 calls of one sequence, 10 times over, end near the minimum for the 40 of them,
    not for 400 penalties.
    """
    penalty = {"c2": 0.5} if algorithm == "sgd" else {"c1": 0.5}
    model = CRF(algorithm, **penalty)
    model.set_params(max_iterations=0).fit(X, Y).set_params(max_iterations=None)
    for _ in range(10):
        for i in range(len(X)):
            model.partial_fit(X[i : i + 1], Y[i : i + 1])
    best = CRF("lbfgs", c1=penalty.get("c1", 0), c2=penalty.get("c2", 0)).fit(X, Y)
    size = np.abs(model.weights_).sum() / np.abs(best.weights_).sum()
    assert 0.5 < size < 3 and model.score(X, Y) > best.score(X, Y) - 0.1
