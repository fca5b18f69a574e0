"""Constraints: schemes against a plain reading of their rules, tables in all their forms, violations."""

import itertools

import numpy as np
import pytest

from crfbook.data.constraints import Constraints, constraints_from, describe_violations, violations
from crfbook.data.corpus import make_corpus

CHUNKS = ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
SINGLES = CHUNKS + ["E-NP", "S-NP", "E-VP", "S-VP"]
UNITS = [label.replace("E-", "L-").replace("S-", "U-") for label in SINGLES]


def is_valid(scheme, sequence):
    """A reader of whole sequences: walks left to right, knows only the definition of the scheme."""
    inside = None  # type of the chunk that the previous token belongs to and that may go on
    for label in sequence:
        head, _, kind = label.partition("-")
        head = {"L": "E", "U": "S"}.get(head, head)
        if scheme == "BIO" and head == "I" and kind != inside:
            return False
        if scheme == "IOB1" and head == "B" and kind != inside:
            return False
        if scheme in ("BIOES", "BILOU"):
            if head in ("I", "E") and kind != inside:
                return False
            if head not in ("I", "E") and inside is not None:
                return False
            inside = kind if head in ("B", "I") else None
        else:
            inside = kind if head != "O" else None
    return not (scheme in ("BIOES", "BILOU") and inside is not None)


@pytest.mark.parametrize(
    "scheme, labels",
    [("BIO", CHUNKS), ("IOB1", CHUNKS), ("BIOES", SINGLES), ("BILOU", UNITS), ("IO", ["O", "I-A", "I-B"])],
)
def test_scheme_agrees_with_a_reader_of_whole_sequences(scheme, labels):
    table = constraints_from(scheme, labels)
    for length in (1, 2, 3):
        for path in itertools.product(range(len(labels)), repeat=length):
            allowed = (
                table.start[path[0]]
                and table.end[path[-1]]
                and all(table.allowed[a, b] for a, b in itertools.pairwise(path))
            )
            assert allowed == is_valid(scheme, [labels[y] for y in path]), [labels[y] for y in path]


def test_order_of_labels_and_aliases():
    shuffled = CHUNKS[::-1]
    forward, backward = constraints_from("BIO", CHUNKS), constraints_from("iob2", shuffled)
    assert np.array_equal(forward.allowed, backward.allowed[::-1, ::-1])
    assert np.array_equal(forward.start, backward.start[::-1])
    assert constraints_from(None, CHUNKS) is None
    swapped = constraints_from("BIO", ["O", "NP_B", "NP_I", "VP_B", "VP_I"])
    assert all(map(np.array_equal, swapped[:3], forward[:3]))
    assert all(
        map(np.array_equal, constraints_from("bilou", UNITS)[:3], constraints_from("IOBES", SINGLES)[:3])
    )
    assert not constraints_from("BIO", ["O", "B", "I"]).allowed[0, 2]  # bare labels: one type


def test_table_is_previous_then_next():
    labels = ["a", "b"]
    table = np.array([[True, False], [True, True]])  # b may not follow a
    for spec in (table, table.astype(int), table.tolist(), {"allowed": table}):
        result = constraints_from(spec, labels)
        assert not result.allowed[0, 1] and result.allowed[1, 0]
        assert result.start.all() and result.end.all()
    again = constraints_from(result, labels)
    assert isinstance(again, Constraints) and np.array_equal(again.allowed, table)


def test_frame_is_read_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        [[True, False, True], [True, True, True], [True] * 3], ["a", "b", "z"], ["a", "b", "z"]
    )
    assert constraints_from(frame, ["b", "a"]).allowed.tolist() == [[True, True], [False, True]]
    with pytest.raises(ValueError, match="no row for the label 'c'"):
        constraints_from(frame, ["a", "c"])


def test_start_and_end_as_vector_or_as_labels():
    for start in ({"b"}, ["b"], [False, True], np.array([False, True])):
        result = constraints_from({"start": start}, ["a", "b"])
        assert result.start.tolist() == [False, True] and result.allowed.all() and result.end.all()
    assert constraints_from({"end": [1]}, [1, 2]).end.tolist() == [True, False]  # integer labels, not 0/1


@pytest.mark.parametrize(
    "spec, labels, message",
    [
        ("BILOUX", CHUNKS, "expected 'BIO', 'IOB1', .*'BILUO' or a boolean table, got 'BILOUX'"),
        ("auto", CHUNKS, "or a boolean table, got 'auto'"),
        ("BIO", ["O", "B-X", "I_X"], "got 'I_X'"),
        ("BIO", ["O", "E-NP"], "got 'E-NP'"),
        ("BIO", ["O", "B-"], "got 'B-'"),
        ("BIO", [0, 1], "got 0"),
        (np.ones((2, 3), bool), ["a", "b"], r"shape \(2, 2\) .* got shape \(2, 3\)"),
        (np.full((2, 2), 0.5), ["a", "b"], "True or False"),
        ({"allow": np.ones((2, 2))}, ["a", "b"], "got 'allow'"),
        ({"start": [True]}, ["a", "b"], "'start' with 2 values"),
        ({"start": "a"}, ["a", "b"], "got the string 'a'"),
    ],
)
def test_bad_specifications_get_one_sentence(spec, labels, message):
    with pytest.raises(ValueError, match=message):
        constraints_from(spec, labels)


def corpus_of(*sequences, labels=CHUNKS):
    flat = [labels.index(y) if y else -1 for seq in sequences for y in seq]
    ptr = np.cumsum([0, *(len(seq) for seq in sequences)])
    return make_corpus(ptr, np.zeros(len(flat) + 1, int), np.zeros(0, int), labels=flat)


def test_violations_name_sequence_and_token():
    table = constraints_from("BIO", CHUNKS)
    corpus = corpus_of(
        ["B-NP", "I-NP", "O"], [], ["I-NP"], ["O", "I-VP"], ["B-NP", None, "I-NP"], ["I-VP", "I-NP"]
    )
    assert violations(corpus, table, CHUNKS) == [
        (2, 0, "'I-NP' may not start a sequence"),
        (3, 1, "'I-VP' may not follow 'O'"),
        (5, 0, "'I-VP' may not start a sequence"),
        (5, 1, "'I-NP' may not follow 'I-VP'"),
    ]
    assert violations(corpus, None, CHUNKS) == []
    assert violations(corpus_of(["O"], []), table, CHUNKS) == []
    assert violations(corpus_of(), table, CHUNKS) == []


def test_violations_at_the_end_of_a_sequence():
    table = constraints_from("BIOES", SINGLES)
    corpus = corpus_of(["B-NP"], ["B-NP", "E-NP"], labels=SINGLES)
    assert violations(corpus, table, SINGLES) == [(0, 0, "'B-NP' may not end a sequence")]


def test_description_is_short():
    found = [(i, 0, "x") for i in range(8)]
    text = describe_violations(found, limit=2)
    assert text == "sequence 0, token 0: x; sequence 1, token 0: x; and 6 more"
