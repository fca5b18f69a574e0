"""Reliability curves, their error, abstention, and temperatures, against plain counting."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from crfbook import CRF, plotting
from crfbook.evaluation import abstention, chunk_score, reliability

GOLD = [["B-X", "I-X", "O"], ["O", None, "B-Y"], [], ["O"]]


def tokens(rng, n, sharpness=1.0):
    """(gold, marginals) of n sentences of three tokens whose labels are drawn from calibrated probabilities;
    sharpness: what their logarithms are then multiplied by.
    """
    gold, rows = [], []
    for _ in range(n):
        p = rng.dirichlet([0.7, 0.7], 3)
        gold.append([("a", "b")[int(u < q)] for u, q in zip(rng.random(3), p[:, 1], strict=True)])
        p = p**sharpness / (p**sharpness).sum(axis=1, keepdims=True)
        rows.append([{"a": a, "b": b} for a, b in p.tolist()])
    return gold, rows


def test_bins_of_tokens_are_counted():
    gold, rows = tokens(np.random.default_rng(0), 50)
    gold[3][1] = None
    found, counts = reliability(gold, rows, n_bins=5, n_samples=50), {}
    for labels, sentence in zip(gold, rows, strict=True):
        for label, row in zip(labels, sentence, strict=True):
            best = max(row, key=row.get)
            if label is not None:
                counts.setdefault(min(int(row[best] * 5), 4), []).append((row[best], best == label))
    bins = [np.transpose(counts[b]) for b in sorted(counts)]
    assert found.size.tolist() == [len(b[0]) for b in bins] and found.size.sum() == 149
    np.testing.assert_allclose(found.confidence, [b[0].mean() for b in bins], rtol=1e-12)
    np.testing.assert_allclose(found.accuracy, [b[1].mean() for b in bins], rtol=1e-12)
    ece = sum(abs(b[0].mean() - b[1].mean()) * len(b[0]) for b in bins) / 149
    assert found.ece.value == pytest.approx(ece, rel=1e-12)
    assert (found.low <= found.accuracy).all() and (found.accuracy <= found.high).all()


def test_calibrated_and_overconfident():
    rng = np.random.default_rng(1)
    fine, sure = (reliability(*tokens(rng, 400, sharpness), n_samples=200) for sharpness in (1.0, 3.0))
    assert fine.ece.value < 2 * fine.ece_calibrated and fine.ece.low <= fine.ece.value <= fine.ece.high
    assert sure.ece.low > 3 * sure.ece_calibrated
    again = reliability(*tokens(np.random.default_rng(2), 40), random_state=7, n_samples=20)
    same = reliability(*tokens(np.random.default_rng(2), 40), random_state=7, n_samples=20)
    assert again.ece == same.ece and again.ece_calibrated == same.ece_calibrated


def test_spans_are_right_where_gold_has_them():
    spans = [
        [("X", 0, 2, 0.9), ("X", 2, 3, 0.2)],
        [("Y", 2, 3, 0.7), ("X", 0, 1, 0.6)],
        [],
        [("X", 0, 1, 0.2)],
    ]
    found = reliability(GOLD, spans, "spans", n_samples=10)  # beside a masked token nothing counts
    assert found.size.tolist() == [2, 1] and found.accuracy.tolist() == [0.0, 1.0]
    np.testing.assert_allclose(found.confidence, [0.2, 0.9], rtol=1e-12)
    assert found.ece.value == pytest.approx((2 * 0.2 + 0.1) / 3)


@pytest.mark.parametrize(
    "given, said",
    [
        ((GOLD, [[]], "spans"), "expected spans of 4 sequences, got those of 1"),
        ((GOLD, [[("X", 0, 4, 0.5)], [], [], []], "spans"), "sequence 0: expected .type, start, stop, prob"),
        ((GOLD, [[("X", 0, 1, 1.5)], [], [], []], "spans"), "sequence 0: expected a probability, got 1.5"),
        ((GOLD, [[], [], [], []], "spans"), "expected some predicted spans with a gold label, got none"),
        ((GOLD, GOLD), "sequence 0: expected a dict .label: probability. a token, got 'B-X'"),
        (
            (GOLD, [[("X", "0", 1, 0.5)], [], [], []], "spans"),
            "sequence 0: expected .type, start, stop, prob",
        ),
        (
            (GOLD, [[("X", 0.0, 1, 0.5)], [], [], []], "spans"),
            "sequence 0: expected .type, start, stop, prob",
        ),
        ((GOLD, [[("X", 0, 1, None)], [], [], []], "spans"), "sequence 0: expected .type, start, stop, prob"),
        (([["a"]], [[{"a": "x"}]]), "sequence 0: expected a dict .label: probability. a token, got"),
        (
            ([["a"]], [[{"a": 0.5, "b": None}]]),
            "sequence 0: expected a dict .label: probability. a token, got",
        ),
        (([None], [[]]), "gold, sequence 0: expected a list, got None"),
        (([["a"]], [7]), "predicted, sequence 0: expected a list, got 7"),
        ((GOLD, [[]]), "expected as many predicted as gold sequences"),
        ((GOLD, GOLD, "words"), "of: expected 'tokens' or 'spans', got 'words'"),
    ],
)
def test_hostile_predictions(given, said):
    with pytest.raises(ValueError, match=said):
        reliability(*given)


def test_options_are_checked():
    gold, rows = tokens(np.random.default_rng(0), 3)
    assert reliability(gold, rows, n_bins=np.int64(5)).size.sum() == 9
    for options in (
        *({"n_bins": n} for n in (0, True, 1.5, 10**12)),
        *({"n_samples": n} for n in (0, 1.5, "9")),
        *({"level": level} for level in (1.0, "9", np.nan)),
    ):
        with pytest.raises(ValueError, match="expected n_bins >= 1, n_samples >= 1 and 0 < level < 1"):
            reliability(gold, rows, **options)


def test_abstention_scores_the_sentences_that_are_kept():
    rng = np.random.default_rng(0)
    gold = [rng.choice(["B-X", "O"], 3).tolist() for _ in range(10)]
    found = [[y if rng.random() < 0.7 else "O" for y in labels] for labels in gold]
    confidence = rng.permutation(10) / 10
    curve = abstention(gold, found, confidence, shares=[0.0, 0.25, 0.5, 0.9])
    order = np.argsort(-confidence)
    for score, n in zip(curve.score, (10, 8, 5, 1), strict=True):
        kept = order[:n]
        assert score == pytest.approx(chunk_score([gold[i] for i in kept], [found[i] for i in kept]))
    assert abstention(gold, found, confidence, "accuracy").share.tolist() == [k / 20 for k in range(20)]
    once = abstention(iter(gold), iter(found), confidence, shares=[0.0, 0.25, 0.5, 0.9])
    assert np.array_equal(once.score, curve.score)
    for options, said in (
        ({"confidence": confidence[1:]}, "confidence: expected a number for each of 10 sequences"),
        ({"confidence": confidence, "shares": [1.0]}, "shares: expected numbers from 0 to below 1"),
        ({"confidence": confidence, "metric": "f2"}, "metric: expected one of f1"),
        ({"confidence": ["x"] * 10}, "confidence: expected numbers, got"),
        ({"confidence": confidence, "shares": ["x"]}, "shares: expected numbers, got"),
    ):
        with pytest.raises(ValueError, match=said):
            abstention(gold, found, **options)
    with pytest.raises(ValueError, match="gold: expected a label for every token, got None"):
        abstention([[None]], [["O"]], [0.5])


def test_a_share_that_binary_numbers_miss():
    gold = [["O"]] * 29 + [["B-X"]] * 71
    found = abstention(gold, [["B-X"]] * 100, np.arange(100), "accuracy", shares=[0.28, 0.29])
    assert found.score.tolist() == [71 / 72, 1.0]  # 0.29 * 100 is 28.999...


@pytest.mark.filterwarnings("error")
def test_resamples_without_a_prediction_are_left_out():
    for n_samples in (1, 50):
        found = reliability([["a"]] + [[]] * 5, [[{"a": 0.6, "b": 0.4}]] + [[]] * 5, n_samples=n_samples)
        assert found.ece == pytest.approx((0.4, 0.4, 0.4))


def test_a_probability_of_one_is_in_the_last_bin():
    found = reliability([["a", "b"]], [[{"a": 1.0, "b": 0.0}, {"a": 0.04, "b": 0.05}]], n_samples=2)
    np.testing.assert_allclose(found.confidence, [0.05, 1.0])


def test_a_masked_token_is_not_outside():
    """Places are those of the sentence, with the token that has no label."""
    found = reliability(
        [["I-X", None, "O", "I-X"]], [[("X", 3, 4, 0.4)]], "spans", scheme="IOB1", n_samples=2
    )
    assert found.accuracy.tolist() == [1.0]


def test_the_figure_returns_what_it_shows():
    gold, rows = tokens(np.random.default_rng(0), 60)
    one, two = (reliability(gold[half::2], rows[half::2], n_samples=20) for half in (0, 1))
    drawn = plotting.reliability({"one": one, "two": two})
    assert list(drawn) == ["one", "two"] and np.array_equal(drawn["two"][1], two.accuracy)
    texts = [text.get_text() for text in plt.gca().get_legend().get_texts()]
    assert texts == [f"one: ECE {one.ece.value:.3f}", f"two: ECE {two.ece.value:.3f}"]
    assert list(plotting.reliability(one, ax=plt.figure().add_subplot())) == [""]
    plt.close("all")


# ---- temperatures ----


def sentences(rng, n):
    """Words that tell the label in three of four cases."""
    y = [rng.choice(["A", "B", "C"], rng.integers(1, 6)).tolist() for _ in range(n)]
    return [[[f"w{label if rng.random() < 0.75 else 'A'}"] for label in labels] for labels in y], y


def test_a_temperature_undoes_a_scale_of_the_weights():
    rng = np.random.default_rng(0)
    model, (X, y) = CRF(c2=0.1).fit(*sentences(rng, 60)), sentences(rng, 60)
    model.calibrate(X, y)
    best, w = model.log_proba(X, y).sum(), model.weights_
    for scale in (0.2, 5.0):
        model.weights_ = scale * w
        before = model.predict(X)
        del model.temperature_
        model.calibrate(X, y)
        assert model.temperature_ == pytest.approx(scale, rel=1e-6) and model.predict(X) == before
        np.testing.assert_allclose(model.weights_, w, rtol=1e-6)
    for scale in (0.999, 1.001):  # the held-out likelihood is at its top
        model.weights_ = scale * w
        assert model.log_proba(X, y).sum() < best


def test_what_sets_no_temperature(tmp_path):
    rng = np.random.default_rng(0)
    model, (X, y) = CRF(c2=0.1, constraints=None).fit(*sentences(rng, 40)), sentences(rng, 20)
    with pytest.raises(ValueError, match="temperature, but every labelling is the best one"):
        model.calibrate(X, model.predict(X))
    worst = [[{"A": "B", "B": "C", "C": "B"}[label] for label in labels] for labels in model.predict(X)]
    with pytest.raises(ValueError, match="temperature, but the scores do not tell them apart"):
        model.calibrate(X, worst)
    with pytest.raises(ValueError, match="sequence 0, token 0: expected a label, got none"):
        model.calibrate(X, [[None] * len(labels) for labels in y])
    with pytest.raises(ValueError, match="label 'Z' was not seen in training"):
        model.calibrate(X, [["Z"] * len(labels) for labels in y])
    model.calibrate(X, y).save(tmp_path / "m")
    assert np.array_equal(CRF.load(tmp_path / "m").weights_, model.weights_)
    with pytest.raises(ValueError, match="temperature, but there is no token"):
        model.calibrate([[]], [[]])
    model.weights_ = np.zeros_like(model.weights_)
    with pytest.raises(ValueError, match="temperature, but every labelling is the best one"):
        model.calibrate(X, y)


def two_words(scale=1.0):
    """P scores `scale` at 'a', Q at 'b', all else 0."""
    model = CRF(max_iterations=0, all_possible_states=True, all_possible_transitions=True)
    model.fit([[["a"], ["b"]]], [["P", "Q"]])
    model.weights_ = scale * np.array([1, 0, 0, 1, 0, 0, 0, 0.0])
    return model


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1.0, 40.0, 1e8])
def test_temperatures_know_no_unit_and_ties_are_the_best(size):
    X, y = [[["a"]]] * 3 + [[["b"]]], [["P"]] * 4
    model = two_words(size).calibrate(X, y)
    assert model.temperature_ == pytest.approx(size / np.log(3), rel=1e-6)
    weighted = two_words(size).calibrate(X, y, sample_weight=[1, 2, 2, 1])  # five against one
    assert weighted.temperature_ == pytest.approx(size / np.log(5), rel=1e-6)
    nearly = two_words(size).calibrate(
        [[["a"]]] * 11 + [[["b"]]] * 9, [["P"]] * 20
    )  # hardly better than chance
    assert nearly.temperature_ == pytest.approx(size / np.log(11 / 9), rel=1e-6)
    for text in ([[["a"]], [["zzz"]]], [[["zzz"]]]):
        with pytest.raises(ValueError, match="temperature, but every labelling is the best one"):
            two_words(size).calibrate(text, [["P"]] * len(text))
    with pytest.raises(ValueError, match="temperature, but the scores do not tell them apart"):
        two_words(size).calibrate([[["a"]], [["b"]]], [["P"], ["P"]])


def test_temperatures_multiply_until_training():
    X, y = [[["a"]]] * 3 + [[["b"]]], [["P"]] * 4
    model = two_words(6.0).calibrate(X, y)
    assert model._learner[1] is None
    model.calibrate(X, y)
    assert model.temperature_ == pytest.approx(6.0 / np.log(3), rel=1e-6)
    assert not hasattr(model.fit(X, y), "temperature_")
    strict = CRF(constraints="BIO").fit(X, [["O"]] * 3 + [["B-X"]])
    with pytest.raises(ValueError, match="calibrate: sequence 0, token 0: 'I-X' may not start a sequence"):
        CRF(constraints="BIO").fit([[["a"], ["b"]]], [["B-X", "I-X"]]).calibrate(X[:1], [["I-X"]])
    assert np.isfinite(strict.calibrate(X, [["O"], ["O"], ["O"], ["O"]]).temperature_)


def test_a_tag_dictionary_gives_way_to_held_out_labels():
    X, y = [[["a"], ["b"]]] * 6, [["P", "O"]] * 5 + [["P", "P"]]
    model = CRF(template="U0:%x[0,0]", tag_dictionary=5, c2=0.1).fit(X, y)
    model.calibrate(X, [["O", "O"], *y[1:]])  # 'a' had P alone
    assert np.isfinite(model.temperature_)
