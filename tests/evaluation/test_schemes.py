"""Label schemes: strict and lenient reading, detection, conversion there and back, repair, masked tokens."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from crfbook import TokenColumns, scorers
from crfbook.evaluation import (
    SCHEMES,
    bootstrap_interval,
    chunk_report,
    chunk_score,
    chunks,
    confusion,
    convert_labels,
    error_table,
    paired_test,
    token_accuracy,
)
from crfbook.evaluation.schemes import Reading, chunk_lists, chunk_patterns, faults, reading
from crfbook.metrics import flat_f1_score, sequence_accuracy_score

NAMES = sorted(SCHEMES)
KEEPING = [name for name in NAMES if name != "IO"]


@st.composite
def spans_of(draw, touching=True):
    """(chunks, number of tokens)."""
    spans, n = [], 0
    for kind, size, gap in draw(
        st.lists(st.tuples(st.sampled_from("XY"), st.integers(1, 4), st.integers(0, 2)))
    ):
        gap = gap or int(not touching and bool(spans) and spans[-1][0] == kind)
        spans.append((kind, n + gap, n + gap + size))
        n += gap + size
    return spans, n + draw(st.integers(0, 2))


def written(name, spans, n, form="{0}-{1}"):
    """Labels, from the definition of each scheme."""
    labels, before = ["O"] * n, None
    first, inner, last, one = {
        "BIO": "BIIB", "IO": "IIII", "IOB1": "IIII", "BIOES": "BIES", "BILOU": "BILU"
    }[name]  # fmt: skip
    for kind, start, stop in spans:
        tags = one if stop - start == 1 else first + inner * (stop - start - 2) + last
        if name == "IOB1" and before == (kind, start):
            tags = "B" + tags[1:]
        labels[start:stop] = [form.format(tag, kind) for tag in tags]
        before = kind, stop
    return labels


FORMS = "{0}-{1}", "{0}_{1}", "{1}-{0}", "{1}_{0}"


@given(made=spans_of(), name=st.sampled_from(KEEPING), form=st.sampled_from(FORMS), strict=st.booleans())
def test_what_was_written_is_read(made, name, form, strict):
    labels = written(name, *made, form)
    assert chunks(labels, name, strict) == made[0]
    read = reading(labels, name)
    assert not faults([read.split(label) for label in labels], SCHEMES[name])
    report = chunk_report([labels], [labels], name, strict)
    assert report.n_correct == report.n_gold == len(made[0])


@given(
    made=spans_of(),
    source=st.sampled_from(KEEPING),
    target=st.sampled_from(KEEPING),
    form=st.sampled_from(FORMS),
)
def test_there_and_back_is_the_same(made, source, target, form):
    labels = written(source, *made, form)
    there = convert_labels(labels, source, target)
    assert there == written(target, *made, form if made[0] else FORMS[0])
    assert convert_labels(there, target, source) == labels
    masked = list(itertools.chain.from_iterable((label, None) for label in labels))
    assert convert_labels(masked, source, target)[::2] == there and set(masked[1::2]) <= {None}


@given(made=spans_of(touching=False), name=st.sampled_from(KEEPING))
def test_io_loses_nothing_where_no_chunks_touch(made, name):
    labels = written(name, *made)
    assert convert_labels(convert_labels(labels, name, "IO"), "IO", name) == labels
    bare = written("IO", *made, "{1}")
    assert convert_labels(bare, "IO", name) == labels and convert_labels(bare, "IO", "IO") == bare


def test_io_says_what_it_loses():
    rows = [["B-X", "B-Y"], ["O", None, "B-X", "B-X", "I-X", "B-X"]]
    with pytest.warns(UserWarning, match="just before, they are joined: sequence 1, token 3, and 1 more$"):
        found = convert_labels(rows, "BIO", "IO")
    assert found == [["I-X", "I-Y"], ["O", None, "I-X", "I-X", "I-X", "I-X"]]


def test_columns_are_converted(capsys):
    tokens = TokenColumns({"word": list("abc")}, [0, 2, 3], ["B-X", "I-X", "B-X"], "ner")
    found = convert_labels(tokens, "auto", "BILOU")
    assert found.labels == ["B-X", "L-X", "U-X"] and found.label_name == "ner" and found.names == ("word",)
    assert capsys.readouterr().out == "scheme='auto': BIO; tags B, I, written as B-X\n"
    assert convert_labels([], "BIO", "IO") == [] and convert_labels([[]], "BIO", "IO") == [[]]


def test_three_ways_of_repair():
    """I-Y after B-X and a chunk that never ends."""
    rows = [["O", "I-X", "B-X", "I-Y", "I-Y"]]
    with pytest.raises(
        ValueError,
        match="^sequence 0, token 1: 'I-X' may not follow 'O' in this scheme .BIO.; repair='conlleval'",
    ):
        convert_labels(rows, "BIO", "BIO")
    assert convert_labels(rows, "BIO", "BIO", repair="conlleval") == [["O", "B-X", "B-X", "B-Y", "I-Y"]]
    assert convert_labels(rows, "BIO", "BIO", repair="drop") == [["O", "O", "B-X", "O", "O"]]
    rows = [["B-X", None, "I-X"]]
    with pytest.raises(
        ValueError, match="sequence 0, token 2: 'I-X' may not end a sequence in this scheme .BIOES."
    ):
        convert_labels(rows, "BIOES", "BIO")
    with pytest.raises(
        ValueError, match="sequence 0, token 0: 'I-X' may not start a sequence in this scheme .BIO."
    ):
        convert_labels(["I-X"], "BIO", "BIO")
    with pytest.raises(ValueError, match="repair: expected 'refuse', 'conlleval' or 'drop', got 'no'"):
        convert_labels(rows, "BIO", "BIO", repair="no")
    with pytest.raises(ValueError, match="target: expected 'BIO', .* got 'auto'"):
        convert_labels(rows, "BIO", "auto")


@given(
    labels=st.lists(st.sampled_from(["O", *(f"{t}-{k}" for t in "BIES" for k in "XY")]), max_size=8),
    name=st.sampled_from(NAMES), repair=st.sampled_from(["conlleval", "drop"]),
)  # fmt: skip
def test_repaired_labels_are_consistent_and_repair_is_final(labels, name, repair):
    labels = [y.translate(str.maketrans("ES", "LU")) if name == "BILOU" else y for y in labels]
    labels = [y if y == "O" or y[0] in SCHEMES[name].tags else "I" + y[1:] for y in labels]
    found = convert_labels(labels, name, name, repair=repair)
    assert not faults([tuple(y.partition("-")[::2]) for y in found], SCHEMES[name])
    assert convert_labels(found, name, name) == found
    assert chunks(found, name) == chunks(labels, name, strict=repair == "drop")


# ---- strict reading ----


def test_the_example_of_bilou():
    gold, found = [list("UUOBLBL")], [list("BLOBIIL")]
    assert chunk_report(gold, found, "BILOU", strict=True)[1:4] == (4, 2, 0)
    assert chunk_report(gold, found, "BILOU", strict=True).f1 == 0.0


def by_definition(labels, name):
    """Strict chunks of IO, BIO, BIOES and BILOU: maximal runs that are spelt as the scheme spells them."""
    scheme, found, t = SCHEMES[name], [], 0
    parts = [tuple(y.partition("-")[::2]) for y in labels]
    first, inner, last, one = scheme.written
    while t < len(parts):
        size = 0
        for n in range(len(parts) - t, 0, -1):
            tags, kinds = "".join(tag for tag, _ in parts[t : t + n]), {kind for _, kind in parts[t : t + n]}
            want = one if n == 1 else first + inner * (n - 2) + last
            if not size and tags == want and len(kinds) == 1:
                size = n
        found += [(parts[t][1], t, t + size)] * bool(size)
        t += size or 1
    return found


@pytest.mark.parametrize("name", ["IO", "BIO", "BIOES", "BILOU"])
def test_strict_chunks_are_those_that_the_scheme_spells(name):
    labels = ["O", *(f"{tag}-{kind}" for tag in SCHEMES[name].tags for kind in "XY")]
    for row in itertools.product(labels, repeat=4 if len(labels) < 8 else 3):
        assert chunks(list(row), name, strict=True) == by_definition(row, name), row


FROZEN = [  # of seqeval 1.2.2, IOB1: its rules have gaps
    ("B-X I-X", [("X", 1, 2)]), ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]), ("O B-X", []),
    ("I-X B-X B-Y", [("X", 0, 1)]), ("I-X B-X I-Y", [("X", 0, 1), ("X", 1, 2), ("Y", 2, 3)]),
    ("I-X B-Y I-Y O", [("X", 0, 1), ("Y", 2, 3)]),
]  # fmt: skip


@pytest.mark.parametrize("labels, want", FROZEN)
def test_strict_iob1_as_seqeval_reads_it(labels, want):
    assert chunks(labels.split(), "IOB1", strict=True) == want


@pytest.mark.parametrize("name", KEEPING)
def test_counts_of_seqeval(name):
    """Strict counts are those of its strict mode, others those of its default, type by type."""
    theirs = pytest.importorskip("seqeval.scheme")
    default = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    scheme = getattr(theirs, {"BIO": "IOB2", "BIOES": "IOBES"}.get(name, name))
    rng, labels = random.Random(0), ["O", *(f"{t}-{k}" for t in SCHEMES[name].tags for k in "XY")]
    for _ in range(1000):
        gold = [[rng.choice(labels) for _ in range(rng.randrange(9))] for _ in range(3)]
        found = [[y if rng.random() < 0.7 else rng.choice(labels) for y in row] for row in gold]

        def strict(rows):
            entities = theirs.Entities(rows, scheme).entities
            return {(i, e.start, e.end, e.tag) for i, row in enumerate(entities) for e in row}

        def usual(rows):
            return {(i, a, b + 1, kind) for i, row in enumerate(rows) for kind, a, b in default(row)}

        for how, read in ((True, strict), (False, usual))[: 1 if name == "BILOU" else 2]:
            a, b = read(gold), read(found)
            report = chunk_report(gold, found, name, how)
            assert report[1:4] == (len(a), len(b), len(a & b)), (gold, found)
            for kind, row in report.by_type.items():
                assert row == tuple(sum(s[3] == kind for s in side) for side in (a & b, a, b))


# ---- which scheme, which separator ----


@pytest.mark.parametrize(
    "rows, took",
    [
        ([["B-X", "I-X"], ["B-X"]], "BIO; tags B, I, written as B-X"),
        ([["I-X", "B-X"], ["O", "I-Y"]], "IOB1; tags B, I, written as B-X"),
        ([["I-X", "I-X"]], "IO; tags I, written as B-X"),
        ([["B_X", "E_X", "S_A-B"]], "BIOES; tags B, E, S, written as B_X"),
        ([["PER-U", "A-B-L", "O"]], "BILOU; tags L, U, written as X-B"),
        ([["I-X", "E-X"]], "conlleval (IOE); tags E, I, written as B-X"),
        ([["O"], []], "BIO; tags none, written as B-X"),
    ],
)
def test_auto_says_what_it_took(rows, took, capsys):
    chunk_report(rows, rows, "auto")
    assert capsys.readouterr().out == f"scheme='auto': {took}\n"
    assert chunk_score(rows, rows, scheme="auto") in (0.0, 1.0) and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "labels, scheme, said",
    [
        (["B-X", "I_X"], "auto", "scheme='auto': expected labels 'O' or B-x, .* got 'I_X'"),
        (["DET", "NN"], "auto", "got 'DET', 'NN'; 'IO' takes labels without tags for types$"),
        (["B:X"], "BIO", "scheme='BIO': expected labels 'O' or B-x, I-x .* got 'B:X'$"),
        (["B-X", "S-X"], "BIO", "got 'S-X'$"),
        (["B-X", "E-X", "U-X"], "auto", "expected labels of one scheme, got the tags B, E, U$"),
        ([1, 2], "auto", "got 1, 2"),
        (["I-X", "PER"], "IO", "scheme='IO': expected labels 'O' or I-x .* got 'PER'$"),
        (["B_X", "I_X"], "conlleval", "conlleval reads .* not 'B_X', 'I_X'; scheme='auto' reads them$"),
        (["X-B", "X-I"], "conlleval", "not 'X-B', 'X-I'; scheme='auto' reads them$"),
        (["B-X"], "IOB", "scheme: expected 'BIO', .*\"auto\" or \"conlleval\", got 'IOB'"),
        (["B-X"], None, "scheme: expected .* got None"),
    ],
)
def test_labels_are_read_or_named(labels, scheme, said):
    for call in (chunk_report, error_table, chunk_score, bootstrap_interval):
        with pytest.raises(ValueError, match=said):
            call([labels], [labels], scheme=scheme)
    with pytest.raises(ValueError, match=said):
        chunks(labels, scheme)


def test_strict_needs_a_scheme():
    for call in (chunk_report, error_table):
        with pytest.raises(ValueError, match="strict=True: expected a scheme, 'BIO', .* got 'conlleval'"):
            call([["B-X"]], [["B-X"]], strict=True)
    with pytest.raises(ValueError, match="strict=True: expected a scheme"):
        chunk_report([["I-X", "E-X"]], [["O", "O"]], "auto", strict=True)


def test_types_keep_their_names():
    assert chunks(["B-0", "I-0", "B-A-B"], "BIO") == [("0", 0, 2), ("A-B", 2, 3)]
    assert chunks(["person-artist", "O"], "IO") == [("person-artist", 0, 1)]
    assert chunks(["B-0", "I", "I-X"]) == [("", 0, 2), ("X", 2, 3)]  # to conlleval "0" is no type


def test_scorers_count_chunks():
    class Model(BaseEstimator):
        def predict(self, X):
            return X

    gold, found = [["U-X", "B-X", "L-X"]], [["U-X", "B-X", "I-X"]]
    assert scorers.chunk_f1(Model(), found, gold) == 1.0
    assert scorers.chunk_scorer(scheme="BILOU", strict=True)(Model(), found, gold) == pytest.approx(2 / 3)
    assert scorers.chunk_scorer("recall", strict=True)(Model(), found, gold) == 0.5
    for metric in ("f2", ["f1"]):
        with pytest.raises(ValueError, match="metric: expected one of f1"):
            scorers.chunk_scorer(metric)(Model(), found, gold)


@pytest.mark.parametrize("labels", [["B-X", "B_X"], ["O", "B-X", "X-I"], ["I-X", "X_B", "DET"]])
def test_labels_joined_in_several_ways_are_refused(labels):
    """conlleval.pl would count none of the other kind."""
    for call in (chunks, lambda row: chunk_report([row], [row])):
        with pytest.raises(ValueError, match="conlleval reads O, B-x, .*; join tag and type .* in one way$"):
            call(labels)
    for tags in (
        ["S", "NN", "O"],
        ["B-X", "S-X"],
        ["DET", "B"],
        ["S-X", "DET"],
        ["B-X", "S"],
        ["1-B", "1-M"],
        ["B-B", "S-B", "DET"],
    ):  # no scheme's, or one whose S it does not know
        with pytest.warns(UserWarning, match="conlleval reads O"):
            chunks(tags)


def test_types_without_tags_come_back_with_tags():
    assert convert_labels(["PER", "PER", "O"], "IO", "BIO") == ["B-PER", "I-PER", "O"]
    assert convert_labels(["B-PER", "I-PER", "O"], "BIO", "IO") == ["I-PER", "I-PER", "O"]
    assert convert_labels(["PER", "O"], "IO", "IO") == ["PER", "O"]


# ---- masked tokens ----


def test_a_masked_token_counts_nowhere():
    rng = np.random.default_rng(0)
    names = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    gold = [rng.choice(names, n).tolist() for n in (4, 6, 0, 3)]
    found = [rng.choice(names, len(row)).tolist() for row in gold]
    masked = [[y for label in row for y in (label, None)] for row in gold] + [[None, None]]
    noise = [[y for label in row for y in (label, "B-X")] for row in found] + [["B-X", None]]
    for call in (
        chunk_report, token_accuracy, chunk_score, lambda a, b: paired_test(a, b, b, n_samples=99),
        lambda a, b: bootstrap_interval(a, b, "sentence_accuracy", n_samples=20),
        lambda a, b: error_table(a, b).to_dict(), lambda a, b: confusion(a, b).to_dict(),
        lambda a, b: flat_f1_score(a, b, average="macro"), sequence_accuracy_score,
    ):  # fmt: skip
        assert call(masked, noise) == call(gold, found)
    assert chunks(["B-X", None, "I-X", None], "BIO") == [("X", 0, 3)]


def test_what_looks_like_a_mask_is_asked_about():
    with pytest.raises(ValueError, match="sequence 0, token 1: .* -100: is it padding. Write None"):
        token_accuracy([[1, -100, 2]], [[1, 1, 2]])
    with pytest.raises(ValueError, match="sequence 1, token 0: .* is it padding"):
        chunk_report([["B-X"], [-100]], [["B-X"], ["O"]])
    for number in (-100.0, np.float64(-100), np.float32(-100), np.int64(-100)):
        with pytest.raises(ValueError, match="sequence 0, token 1: .* -100.*: is it padding. Write None"):
            token_accuracy([[1, number, 2]], [[1, 1, 2]])
    with pytest.raises(ValueError, match="sequence 0, token 1: .* -100.0: is it padding"):
        flat_f1_score(np.array([[0.0, -100.0]]), np.array([[0.0, 1.0]]))
    assert token_accuracy([[-1, -100]], [[-1, 0]]) == token_accuracy([[-1.0, -100.0]], [[-1.0, 0.5]]) == 0.5
    with pytest.raises(ValueError, match="sequence 0, token 1: expected a predicted label, got None"):
        chunk_report([["B-X", "O"]], [["B-X", None]])


# ---- probabilities of chunks ----


def stands(row, chunk, name):
    """Whether labels have a chunk as its scheme writes it, and no neighbour makes it longer."""
    kind, start, stop = chunk
    before, after = (row[t] if 0 <= t < len(row) else "O" for t in (start - 1, stop))
    touches = name == "IOB1" and before in (f"B-{kind}", f"I-{kind}")
    spans = [(kind, start - 1, start)] * touches + [chunk]
    longer = after == f"I-{kind}" and not SCHEMES[name].marks_ends
    longer |= name == "IO" and before == f"I-{kind}"
    return list(row[start:stop]) == written(name, spans, len(row))[start:stop] and not longer


@pytest.mark.parametrize("name", NAMES)
def test_a_labelling_has_a_pattern_where_it_has_the_chunk(name):
    """All labellings, also those that the scheme forbids: as strict reading, without the gaps of its IOB1."""
    names = ["O", *(f"{tag}-{kind}" for tag in SCHEMES[name].tags for kind in "XY")]
    n = 4 if len(names) < 8 else 3
    parts = [tuple(y.partition("-")[::2]) for y in names]
    for start, stop in itertools.combinations(range(n + 1), 2):
        chunk = "X", start, stop
        patterns = chunk_patterns(SCHEMES[name], chunk, n, parts)
        for path in itertools.product(range(len(names)), repeat=n):
            row = [names[y] for y in path]
            here = [all(path[t] in ids for t, ids in enumerate(sets, first)) for first, sets in patterns]
            assert sum(here) == stands(row, chunk, name), row
            assert name == "IOB1" or (chunk in chunks(row, name, strict=True)) == sum(here), row


def test_a_pattern_that_lacks_a_label_is_left_out():
    parts = [("O", ""), ("B", "X"), ("I", "X"), ("I", "Y")]
    assert chunk_patterns(SCHEMES["BIO"], ("Y", 0, 1), 2, parts) == []
    assert chunk_patterns(SCHEMES["IOB1"], ("Y", 1, 2), 2, parts) == [(0, [[0, 1, 2], [3]])]
    assert chunk_patterns(SCHEMES["BIOES"], ("X", 0, 2), 2, parts) == []


def test_iterators_and_columns_of_tables_are_read():
    import pandas as pd

    assert convert_labels(iter(["B-X", "I-X"]), "BIO", "IO") == ["I-X", "I-X"]
    assert convert_labels((row for row in [["B-X", "I-X"]]), "BIO", "IO") == [["I-X", "I-X"]]
    column = pd.Series(["B-X", None, "I-X"], index=[7, 8, 9], dtype=object)
    assert chunks(column) == chunks(list(column)) and convert_labels([column], "BIO", "IO") == [
        ["I-X", None, "I-X"]
    ]
    assert chunk_report([column], [["B-X", "O", "I-X"]]).f1 == 1.0


def test_a_chunk_ends_in_its_sequence():
    """conlleval has no rule that ends B S, and none that begins S B: no chunk goes from one to the other."""
    assert chunk_lists([["B", "S"], ["S", "B"]], Reading(None)) == [[], []]
    assert chunk_lists([["O", "B"], [], ["I", "O", "S"]], Reading(None)) == [[("", 1, 2)], [], [("", 0, 1)]]
