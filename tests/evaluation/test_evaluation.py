"""Metrics held against counts made by hand and against a chunk counter written as one plain loop."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest

import crfbook.evaluation as evaluation
from crfbook.evaluation import (
    bootstrap_interval,
    chunk_report,
    chunks,
    confusion,
    error_table,
    holm,
    paired_test,
    token_accuracy,
)
from crfbook.evaluation.metrics import count_chunks
from crfbook.evaluation.schemes import Reading

GOLD = [["B-NP", "I-NP", "B-VP", "O"], ["B-NP", "B-NP", "I-NP", "O", "B-PP"], [], ["O"]]
FOUND = [["B-NP", "I-NP", "I-VP", "O"], ["B-NP", "I-NP", "I-NP", "B-VP", "B-NP"], [], ["O"]]


def plain_chunks(labels):
    """IOB1, IOB2, IOE1, IOE2 by one loop over the tokens: a chunk goes on unless a rule below breaks it."""
    found, start = [], None
    before, kind_before = "O", ""
    for t, label in enumerate([*labels, "O"]):
        tag, _, kind = label.partition("-")
        goes_on = before != "O" and tag != "O" and kind == kind_before and tag != "B" and before != "E"
        goes_on = goes_on or (before, tag) == ("E", "B") and kind == kind_before  # the script's gap, kept
        if not goes_on:
            if start is not None:
                found.append((kind_before, start, t))
            start = t if tag != "O" else None
        before, kind_before = tag, kind
    return found


def plain_counts(gold, predicted):
    correct = sum(
        len(set(plain_chunks(a)) & set(plain_chunks(b))) for a, b in zip(gold, predicted, strict=True)
    )
    return correct, sum(len(plain_chunks(a)) for a in gold), sum(len(plain_chunks(b)) for b in predicted)


def random_labels(rng, prefixes, n_sequences, types=("X", "Y"), longest=7):
    names = ["O"] + [f"{prefix}-{kind}" for prefix in prefixes for kind in types]
    return [list(rng.choice(names, size=rng.integers(0, longest))) for _ in range(n_sequences)]


def vary(rng, sequences, prefixes, share=0.2):
    names = ["O"] + [f"{prefix}-{kind}" for prefix in prefixes for kind in ("X", "Y")]
    return [
        [str(rng.choice(names)) if rng.random() < share else label for label in labels]
        for labels in sequences
    ]


def test_counted_by_hand():
    report = chunk_report(GOLD, FOUND)
    # gold: NP VP | NP NP PP; found: NP VP (I-VP after NP starts a chunk) | NP(0:3) VP NP; right: NP, VP
    assert (report.n_gold, report.n_predicted, report.n_correct, report.n_tokens) == (5, 5, 2, 10)
    assert (report.precision, report.recall) == (0.4, 0.4) and report.f1 == pytest.approx(0.4)
    assert report.accuracy == 6 / 10
    assert report.by_type == {"NP": (1, 3, 3), "VP": (1, 1, 2), "PP": (0, 1, 0)}
    assert token_accuracy(GOLD, FOUND) == 0.6


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["I-A", "I-A", "B-A", "I-B"], [("A", 0, 2), ("A", 2, 3), ("B", 3, 4)]),  # IOB1
        (["O", "I-A", "O"], [("A", 1, 2)]),  # a stray I starts a chunk
        (["I-A", "E-A", "E-A", "I-A"], [("A", 0, 2), ("A", 2, 3), ("A", 3, 4)]),  # IOE
        (["B-NP-SBJ", "I-NP-SBJ", "I-NP"], [("NP-SBJ", 0, 2), ("NP", 2, 3)]),  # only the first dash counts
        (["B", "I", "B", "O"], [("", 0, 2), ("", 2, 3)]),  # no type
        ([], []),
        (["O", "O"], []),
    ],
)
def test_chunks_of_one_sequence(labels, expected):
    assert chunks(labels) == expected == plain_chunks(labels)


def test_iobes_needs_its_scheme():
    labels = ["S-A", "S-A", "B-A", "I-A", "E-A", "B-A", "E-A", "S-B"]
    assert chunks(labels, "IOBES") == [("A", 0, 1), ("A", 1, 2), ("A", 2, 5), ("A", 5, 7), ("B", 7, 8)]
    with pytest.warns(UserWarning, match="scheme='auto' reads them"):
        assert chunks(labels) == [
            ("A", 0, 7),
            ("B", 7, 8),
        ]  # as the script: neighbours of a type run together


@pytest.mark.filterwarnings("ignore:chunks. conlleval reads")
@pytest.mark.parametrize("prefixes", ["BI", "IE", "BIE", "I", "B"])
def test_against_the_plain_loop(prefixes):
    rng = np.random.default_rng(0)
    gold = random_labels(rng, prefixes, 400)
    for share in (0.05, 0.3, 1.0):
        found = vary(rng, gold, prefixes, share)
        report = chunk_report(gold, found)
        assert (report.n_correct, report.n_gold, report.n_predicted) == plain_counts(gold, found)
        assert sum(row[0] for row in report.by_type.values()) == report.n_correct
    for labels in gold:
        assert chunks(labels) == plain_chunks(labels)


def one_token_at_a_time(gold, predicted):
    """The script's own way, a state machine over tokens, with its rules as lists:
    also for prefixes nobody should use.
    """
    begin = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")}
    finish = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")}

    def starts(before, now):
        return (
            (before[0], now[0]) in begin
            or (now[0] not in ("O", ".") and before[1] != now[1])
            or now[0] in ("[", "]")
        )

    def ends(before, now):
        return (
            (before[0], now[0]) in finish
            or (before[0] not in ("O", ".") and before[1] != now[1])
            or before[0] in ("[", "]")
        )

    inside, n_correct, n_gold, n_predicted = False, 0, 0, 0
    a_before = b_before = ("O", "")
    for labels, guess in zip(gold, predicted, strict=True):
        for pair in zip([*labels, "O"], [*guess, "O"], strict=True):
            a, b = (label.partition("-")[::2] for label in pair)
            a_ends, b_ends = ends(a_before, a), ends(b_before, b)
            if inside and a_ends and b_ends and a_before[1] == b_before[1]:
                inside, n_correct = False, n_correct + 1
            elif inside and (a_ends != b_ends or a[1] != b[1]):
                inside = False
            a_starts, b_starts = starts(a_before, a), starts(b_before, b)
            inside = inside or (a_starts and b_starts and a[1] == b[1])
            n_gold, n_predicted = n_gold + a_starts, n_predicted + b_starts
            a_before, b_before = a, b
    return n_correct + inside, n_gold, n_predicted


@pytest.mark.filterwarnings("ignore:chunks. conlleval reads")
def test_strange_prefixes_as_the_script_reads_them():
    rng = np.random.default_rng(8)
    names = ["B", "I", "X", "B-", "O-X", "S-X", "M-X", "-X", "a-b-c", "B-b-c"]
    names += ["O", *(f"{prefix}-{kind}" for prefix in "BIE.[]SU" for kind in "XY")]
    for _ in range(60):
        some = rng.choice(names, size=rng.integers(2, len(names)), replace=False).tolist()
        gold = [[str(rng.choice(some)) for _ in range(rng.integers(0, 8))] for _ in range(20)]
        found = [
            [str(rng.choice(some)) if rng.random() < 0.15 else label for label in labels] for labels in gold
        ]
        report = chunk_report(gold, found)
        assert (report.n_correct, report.n_gold, report.n_predicted) == one_token_at_a_time(gold, found)


def test_every_short_pair_of_labellings():
    """All pairs of labellings of length 3 over O, B-X, I-X, I-Y: nothing left to chance."""
    all_labellings = [list(labels) for labels in itertools.product(["O", "B-X", "I-X", "I-Y"], repeat=3)]
    pairs = list(itertools.product(all_labellings, repeat=2))
    counts = count_chunks([gold for gold, _ in pairs], [found for _, found in pairs], Reading(None))[0]
    for row, (gold, found) in zip(counts.tolist(), pairs, strict=True):
        assert tuple(row[:3]) == plain_counts([gold], [found]), (gold, found)


def test_iobes_agrees_with_iob2_of_the_same_spans():
    rng = np.random.default_rng(1)
    iob, iobes = [], []
    for _ in range(200):
        lengths = rng.integers(1, 4, size=rng.integers(0, 5))
        kinds = rng.choice(["O", "X", "Y"], size=len(lengths))
        for target, first, inner, last, single in ((iob, "B", "I", "I", "B"), (iobes, "B", "I", "E", "S")):
            labels = []
            for n, kind in zip(lengths, kinds, strict=True):
                tags = [single] if n == 1 else [first] + [inner] * (n - 2) + [last]
                labels += ["O" if kind == "O" else f"{tag}-{kind}" for tag in tags]
            target.append(labels)
    assert [chunks(labels, "IOBES") for labels in iobes] == [chunks(labels) for labels in iob]


def test_perfect_empty_and_hopeless():
    report = chunk_report(GOLD, GOLD)
    assert report.precision == report.recall == report.f1 == report.accuracy == 1.0
    empty = chunk_report([], [])
    assert (empty.f1, empty.accuracy, empty.n_tokens, empty.by_type) == (0.0, 0.0, 0, {})
    nothing = chunk_report([["B-A"]], [["O"]])
    assert (nothing.precision, nothing.recall, nothing.f1) == (0.0, 0.0, 0.0)
    assert chunk_report([[]], [[]]).n_tokens == 0 and token_accuracy([], []) == 0.0


def test_sequences_never_share_a_chunk():
    assert chunk_report([["B-A", "I-A"], ["I-A"]], [["B-A", "I-A"], ["I-A"]]).n_gold == 2


def test_text_is_what_conlleval_prints():
    assert chunk_report(GOLD, FOUND).text().splitlines() == [
        "processed 10 tokens with 5 phrases; found: 5 phrases; correct: 2.",
        "accuracy:  60.00%; precision:  40.00%; recall:  40.00%; FB1:  40.00",
        "               NP: precision:  33.33%; recall:  33.33%; FB1:  33.33  3",
        "               PP: precision:   0.00%; recall:   0.00%; FB1:   0.00  0",
        "               VP: precision:  50.00%; recall: 100.00%; FB1:  66.67  2",
    ]


def test_tables():
    frame = chunk_report(GOLD, FOUND).to_frame()
    assert list(frame.index) == ["NP", "PP", "VP"]
    assert frame.loc["VP", ["correct", "gold", "predicted"]].tolist() == [1, 1, 2]
    assert frame.loc["VP", "f1"] == pytest.approx(2 / 3)
    errors = error_table(GOLD, FOUND)
    assert errors.loc["NP"].to_dict() == {
        "correct": 1,
        "wrong_type": 0,
        "wrong_boundary": 2,
        "wrong_both": 0,
        "missed": 0,
        "spurious": 0,
    }
    assert errors.loc["PP", "wrong_type"] == 1 and errors.loc["VP", "spurious"] == 1
    counts = confusion(GOLD, FOUND)
    assert counts.loc["B-VP", "I-VP"] == 1 and counts.to_numpy().sum() == 10
    assert confusion([[1, 2]], [[2, 2]]).loc[1, 2] == 1
    assert confusion(GOLD, FOUND, labels=["O"]).to_numpy().tolist() == [[2]]


def test_errors_add_up():
    rng = np.random.default_rng(3)
    gold = random_labels(rng, "BI", 300)
    found = vary(rng, gold, "BI")
    table, report = error_table(gold, found), chunk_report(gold, found)
    kinds = ["correct", "wrong_type", "wrong_boundary", "wrong_both", "missed"]
    for name, (correct, in_gold, _) in report.by_type.items():
        assert table.loc[name, kinds].sum() == in_gold and table.loc[name, "correct"] == correct
    assert (table.sum() > 0).all()


def test_token_accuracy_of_any_labels():
    assert token_accuracy([[1, 0], ["x"]], [[1, 1], ["x"]]) == pytest.approx(2 / 3)


def test_bootstrap_interval():
    rng = np.random.default_rng(4)
    gold = random_labels(rng, "BI", 200)
    found = vary(rng, gold, "BI")
    for metric in ("f1", "precision", "recall", "accuracy", "sentence_accuracy"):
        interval = bootstrap_interval(gold, found, metric, n_samples=200)
        assert interval.low < interval.value < interval.high
        assert interval == bootstrap_interval(gold, found, metric, n_samples=200)
    assert bootstrap_interval(gold, found, "f1").value == pytest.approx(chunk_report(gold, found).f1)
    assert bootstrap_interval(gold, found, "accuracy").value == pytest.approx(token_accuracy(gold, found))
    share = np.mean([a == b for a, b in zip(gold, found, strict=True)])
    normal = bootstrap_interval(gold, found, "sentence_accuracy", n_samples=4000)
    half = 1.96 * np.sqrt(share * (1 - share) / len(gold))  # the textbook interval of a proportion
    np.testing.assert_allclose([normal.low, normal.high], [share - half, share + half], atol=0.01)
    wide = bootstrap_interval(gold, found, level=0.99)
    narrow = bootstrap_interval(gold, found, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_randomisation_is_the_exact_test_on_a_tiny_sample():
    gold = [["B-A"]] * 5
    a, b = [["O"]] * 5, [["B-A"]] * 4 + [["O"]]
    result = paired_test(gold, a, b, "accuracy", n_samples=20000)
    # four sentences differ: only "all swapped" and "none swapped" of the 16 shuffles are as extreme
    assert result.p_value == pytest.approx(2 / 16, abs=0.01)
    assert result.difference == pytest.approx(0.8) and (result.value_a, result.value_b) == (0.0, 0.8)


@pytest.mark.parametrize("method", ["randomisation", "bootstrap"])
def test_paired_test_tells_noise_from_difference(method):
    rng = np.random.default_rng(6)
    gold = random_labels(rng, "BI", 300)
    worse, close, better = (
        vary(rng, gold, "BI", 0.3),
        vary(rng, gold, "BI", 0.101),
        vary(rng, gold, "BI", 0.1),
    )
    clear = paired_test(gold, worse, better, method=method, n_samples=999)
    assert clear.p_value <= 0.002 and clear.difference > 0.05
    other_way = paired_test(gold, better, worse, method=method, n_samples=999)
    assert other_way.difference == -clear.difference and other_way.p_value <= 0.002
    assert paired_test(gold, close, better, method=method, n_samples=999).p_value > 0.02
    assert paired_test(gold, better, better, method=method, n_samples=99).p_value == 1.0
    assert clear == paired_test(gold, worse, better, method=method, n_samples=999)


def test_p_values_are_uniform_where_nothing_differs():
    rng = np.random.default_rng(7)
    values = []
    for seed in range(60):
        gold = random_labels(rng, "BI", 60)
        a, b = vary(rng, gold, "BI"), vary(rng, gold, "BI")
        values.append(paired_test(gold, a, b, n_samples=199, random_state=seed).p_value)
    assert 0.3 < np.mean(values) < 0.7 and np.mean(np.array(values) < 0.1) < 0.3


def test_holm_is_bonferroni_of_what_is_left():
    p = np.random.default_rng(8).random(7) ** 4
    by_hand, left = {}, sorted(p)
    for k, value in enumerate(left):
        by_hand[value] = max([min(1.0, value * (len(p) - k)), *by_hand.values()])
    assert holm(p).tolist() == [by_hand[value] for value in p]
    assert holm([0.01, 0.02, 0.04]).tolist() == [0.03, 0.04, 0.04] and holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("p", [[0.5, 1.1], [-0.1], [np.nan], 0.5, [[0.1]]])
def test_holm_expects_p_values(p):
    with pytest.raises(ValueError, match=r"^p_values: expected numbers from 0 to 1, \(n,\), got "):
        holm(p)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_accuracy([["O"]], []), "as many predicted as gold sequences, got 0 and 1"),
        (lambda: chunk_report([["O"], ["O", "O"]], [["O"], ["O"]]), r"sequence 1: expected 2 .* got 1"),
        (lambda: error_table([["O"]], [["O", "O"]]), "sequence 0: expected 1"),
        (lambda: chunk_report([], [], scheme="BIOX"), "scheme: expected 'BIO', 'IOB1'.* got 'BIOX'"),
        (lambda: bootstrap_interval([], []), "expected sentences"),
        (lambda: bootstrap_interval([["O"]], [["O"]], "f2"), "metric: expected one of f1"),
        (lambda: paired_test([["O"]], [["O"]], [["O"]], method="t"), "method: expected"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_imports_nothing_of_crfbook():
    for path in Path(evaluation.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert not any(name.startswith("crfbook") for name in names), path
            assert not (isinstance(node, ast.ImportFrom) and node.level > 1), path


@pytest.mark.parametrize(
    "labels, lost",
    [
        (["DET", "NN"], "'DET', 'NN'"),
        ([1, 2], "1, 2"),
        (["S-A", "B-A", "E-A"], "'E-A', 'S-A'; scheme='auto' reads them"),
        (["B-A", "E-A"], "'E-A'; scheme='auto' reads them"),
    ],
)
def test_labels_that_are_not_read_are_warned_of(labels, lost):
    """What they mark was not counted, without a word."""
    for call in (chunk_report, error_table, bootstrap_interval, lambda a, b: paired_test(a, b, b)):
        with pytest.warns(
            UserWarning, match=f"^chunks: conlleval reads O, B-x, I-x and the like, not {lost}$"
        ):
            call([labels], [labels])


def test_labels_that_are_read_are_not(recwarn):
    for labels in (["O"], [], ["I-A", "B-A"], ["I-A", "E-A"], ["[", "]"], ["B", "I"], ["."]):
        chunk_report([labels], [labels])
    chunk_report([["S-A", "B-A", "E-A", "I-A", "O"]], [["O"] * 5], scheme="IOBES")
    bootstrap_interval([["DET"]], [["DET"]], "accuracy")
    assert not recwarn
