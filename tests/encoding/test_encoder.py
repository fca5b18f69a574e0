"""The encoder against a naive one that builds every attribute; unseen text, edge classes, saving,
bad input.
"""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from crfbook.data.columns import TokenColumns
from crfbook.encoding import families
from crfbook.encoding.encoder import Encoder
from crfbook.encoding.templates import Template, make_extractor

MIXED = Template.parse(
    """
U00:%x[0,0]
U01:%x[-1,0]/%x[0,0]
U02:%x[-2,1]/%x[0,1]/%x[2,1]
U03:%suffix[0,0,1,2]/%x[1,1]
U04:%match[0,0,"b"]
U05:%ngrams[-1,0,1,2]
bag:%x[-1,0]
bag:%x[1,0]
U
B
B06:%x[0,1]
*07:%x[-1,1]
""".replace("bag", "U08")
)


# -- the reference: attributes as tuples, built token by token -----------------------------------------


def naive_cell(columns, seq_ptr, token, source, offset):
    """(outside?, value) of one cell; a list, as extractors may give several."""
    sequence = np.searchsorted(seq_ptr, token, side="right") - 1
    start, stop, place = seq_ptr[sequence], seq_ptr[sequence + 1], token + offset
    if place < start:
        return [(1, f"_B-{start - place}")]
    if place >= stop:
        return [(1, f"_B+{place - stop + 1}")]
    names = list(columns)
    column = columns[names[source.column] if isinstance(source.column, int) else source.column]
    return [(0, value) for value in make_extractor(source.name, source.arguments)(column[place])]


def naive_attributes(patterns, columns, seq_ptr, token):
    """Counter of (pattern text, sources, cells) at one token."""
    found = Counter()
    for pattern in patterns:
        cells = [
            naive_cell(columns, seq_ptr, token, s, o)
            for s, o in zip(pattern.sources, pattern.offsets, strict=True)
        ]
        found.update(
            (pattern.literals, pattern.sources, combination) for combination in itertools.product(*cells)
        )
    return found


def naive_alphabet(rows, patterns, min_freq=0):
    """Attributes by falling count, then pattern, then cells (values in string order,
    then the symbols outside).
    """
    counts = sum(rows, Counter())
    first = {}
    for i, pattern in enumerate(patterns):
        first.setdefault((pattern.literals, pattern.sources), i)
    symbols = [f"_B-{d}" for d in range(1, 9)] + [f"_B+{d}" for d in range(1, 9)]

    def rank(attribute):
        cells = [(outside, symbols.index(value) if outside else value) for outside, value in attribute[2]]
        return -counts[attribute], first[attribute[:2]], cells

    return sorted((a for a in counts if counts[a] >= max(min_freq, 1)), key=rank)


def naive_text(attribute):
    literals, _, cells = attribute
    return literals[0] + "".join(
        value + literal for (_, value), literal in zip(cells, literals[1:], strict=True)
    )


def row_of(corpus, token):
    low, high = corpus.attr_ptr[token : token + 2]
    values = corpus.attr_val[low:high] if len(corpus.attr_val) else np.ones(high - low)
    row = dict(zip(corpus.attr_idx[low:high].tolist(), values.tolist(), strict=True))
    assert len(row) == high - low, "an attribute occurs twice at a token"
    return row


def assert_equals_naive(template, train, other, min_freq=0):
    encoder = Encoder(template, min_freq)
    corpus = encoder.fit_transform(train)
    inner = [t for t in range(train.n_tokens) if t not in set(train.seq_ptr.tolist())]
    rows = [naive_attributes(template.node, train.columns, train.seq_ptr, t) for t in range(train.n_tokens)]
    edge_rows = {t: naive_attributes(template.edge, train.columns, train.seq_ptr, t) for t in inner}
    alphabet = naive_alphabet(rows, template.node, min_freq)
    edge_alphabet = naive_alphabet(edge_rows.values(), template.edge, min_freq)
    assert encoder.attribute_names() == list(map(naive_text, alphabet))
    assert encoder.edge_attribute_names() == ["B", *map(naive_text, edge_alphabet)]
    assert encoder.attribute_counts_.tolist() == [sum(rows, Counter())[a] for a in alphabet]
    ids = {a: i for i, a in enumerate(alphabet)}
    edge_ids = {a: i for i, a in enumerate(edge_alphabet, 1)}
    restored = Encoder.from_state(encoder.get_state())
    for columns, coded in (
        (train, corpus),
        (train, encoder.transform(train)),
        (other, encoder.transform(other)),
        (other, restored.transform(other)),
    ):
        assert coded.n_tokens == columns.n_tokens
        firsts = set(columns.seq_ptr.tolist())
        sets = {}
        for t in range(columns.n_tokens):
            expected = naive_attributes(template.node, columns.columns, columns.seq_ptr, t)
            assert row_of(coded, t) == {ids[a]: n for a, n in expected.items() if a in ids}
            k = coded.edge_class[t]
            got = coded.class_attr[coded.class_ptr[k] : coded.class_ptr[k + 1]].tolist()
            if t not in firsts:
                expected = naive_attributes(template.edge, columns.columns, columns.seq_ptr, t)
                assert got == [0, *sorted(edge_ids[a] for a in expected if a in edge_ids)]
                sets[tuple(got)] = k
        assert len(sets) == len(set(sets.values())), "two sets share a class"
        assert coded.n_classes == max(1, len(sets)), "a class for each set that leads into a token, no more"


words = st.sampled_from(["a", "b", "ab", "ba", "", "_B-1", "a/b", "é", "b\n:"])
tags = st.sampled_from(["X", "Y", "Z"])
sentences = st.lists(st.lists(st.tuples(words, tags), max_size=5), max_size=5)


def token_columns(rows):
    columns = TokenColumns.from_sentences(rows, ("word", "tag"))
    return TokenColumns(columns.columns, columns.seq_ptr, labels=columns.columns["tag"])


@settings(deadline=None, max_examples=60)
@given(sentences.filter(any), sentences, st.integers(0, 3))
def test_equals_the_naive_encoder(train, other, min_freq):
    assert_equals_naive(MIXED, token_columns(train), token_columns(other), min_freq)


@settings(deadline=None, max_examples=30)
@given(sentences.filter(any), sentences)
def test_keys_that_would_overflow_are_renumbered(train, other):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "LIMIT", 40)
        patch.setattr(families, "TABLE", 10)  # sorting and searching in place of tables, too
        assert_equals_naive(MIXED, token_columns(train), token_columns(other))


def test_seven_words_of_a_large_vocabulary_do_not_overflow():
    rng = np.random.default_rng(0)
    rows = [[(f"w{i}", "X") for i in rng.integers(0, 3000, 50)] for _ in range(40)]
    template = Template.parse("U:" + "/".join(f"%x[{d},0]" for d in range(-3, 4)))
    columns = token_columns(rows)
    encoder = Encoder(template)
    corpus = encoder.fit_transform(columns)
    for t in (0, 3, 777, 1999):
        attribute = next(iter(naive_attributes(template.node, columns.columns, columns.seq_ptr, t)))
        assert encoder.attribute_name(corpus.attr_idx[t]) == naive_text(attribute)


def test_ids_do_not_depend_on_the_order_of_the_data():
    rng = np.random.default_rng(3)
    rows = [[(f"w{i}", f"t{i % 3}") for i in rng.integers(0, 9, 4)] for _ in range(20)]
    columns = token_columns(rows)
    names = [
        Encoder(MIXED).fit(c).attribute_names() for c in (columns, columns.take(rng.permutation(len(rows))))
    ]
    assert names[0] == names[1]


def test_letters_have_a_class_for_each_letter():
    letters = TokenColumns.from_sentences([list("abca"), list("b"), list("cab")], ("letter",))
    letters.labels = ["x"] * 8
    encoder = Encoder("letters")
    corpus = encoder.fit_transform(letters)
    assert corpus.n_classes == 3 and encoder.n_edge_attrs == 4
    assert sorted(encoder.edge_attribute_names()) == ["B", "B16:a", "B16:b", "B16:c"]
    assert encoder.transform([list("xx")]).class_attr.tolist() == [0], (
        "an unseen letter leaves the plain transition"
    )


def test_plain_templates_have_one_class():
    corpus = Encoder("words").fit_transform(token_columns([[("a", "X"), ("b", "X")], []]))
    assert corpus.class_ptr.tolist() == [0, 1] and corpus.class_attr.tolist() == [0]


def test_sequences_of_strings_tuples_and_dicts_are_columns_too():
    rows = [[("a", "X"), ("b", "Y")], [("c", "X")]]
    y = [["0", "1"], ["1"]]
    template = Template.parse("U0:%x[0,0]/%x[0,1]\nU1:%x[-1,0]")
    corpora = [
        Encoder(template).fit_transform(TokenColumns.from_sentences(rows, ("word", "tag")), y),
        Encoder(template).fit_transform(rows, y),
        Encoder(template).fit_transform([[{"word": w, "tag": t} for w, t in row] for row in rows], y),
        Encoder(template).fit_transform((iter(row) for row in rows), y),
    ]
    for corpus in corpora[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(corpora[0], corpus, strict=True))
    encoder = Encoder("U0:%x[0,word]").fit(TokenColumns.from_sentences(rows, ("word", "tag")), y)
    assert encoder.transform([["a", "z"]]).attr_ptr.tolist() == [0, 1, 1], "strings are the first column"


# -- dicts and lists --------------------------------------------------------------------------------

DICTS = [
    [{"a": 1, "b": True, "c": False, "w": "x"}, {"n": {"k": 2.5, "deep": {"s": "t"}}, "l": ["p", "q"]}],
    [],
    [{"a": 1.5, "w:x": 1}, {}],
    [{"s": {"one"}, b"by": b"tes", "new\nline": "co:lon"}],
]


def test_dicts_mean_what_python_crfsuite_says():
    pycrfsuite = pytest.importorskip("pycrfsuite")
    encoder = Encoder()
    y = [["u"] * len(sequence) for sequence in DICTS]
    corpus = encoder.fit_transform(DICTS, y)
    token = 0
    for sequence in DICTS:
        for expected in pycrfsuite.ItemSequence(sequence).items():
            row = {encoder.attribute_name(i): v for i, v in row_of(corpus, token).items()}
            assert row == expected
            token += 1
    items = Encoder().fit_transform([pycrfsuite.ItemSequence(s) for s in DICTS], y)
    assert all(np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(corpus, items, strict=True))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.lists(st.sampled_from("abcde"), max_size=4), max_size=4), max_size=4).filter(any))
def test_lists_dicts_and_columns_agree(X):
    y = [["0"] * len(sequence) for sequence in X]
    encoder = Encoder()
    corpus = encoder.fit_transform(X, y)
    counts = Counter(name for sequence in X for token in sequence for name in set(token))
    totals = Counter(name for sequence in X for token in sequence for name in token)
    assert encoder.attribute_names() == sorted(counts, key=lambda name: (-totals[name], name))
    tokens = [token for sequence in X for token in sequence]
    for t, token in enumerate(tokens):
        row = {encoder.attribute_name(i): v for i, v in row_of(corpus, t).items()}
        assert row == Counter(token), "values of repeated attributes add up"
    as_dicts = [[dict(Counter(token)) for token in sequence] for sequence in X]
    same = Encoder.from_state(encoder.get_state()).transform(as_dicts, y)
    assert [row_of(same, t) for t in range(len(tokens))] == [row_of(corpus, t) for t in range(len(tokens))]


def test_mixed_tokens_and_unseen_attributes():
    encoder = Encoder().fit([[["a", "b"], {"a": 2.0}]], [[0, 1]])
    corpus = encoder.transform([[["zzz", "b"], {"a": 0.5, "zzz": "y"}, ("a",)]])
    assert [row_of(corpus, t) for t in range(3)] == [{1: 1.0}, {0: 0.5}, {0: 1.0}]
    assert corpus.labels.tolist() == [-1] * 3


def test_min_freq_counts_tokens():
    encoder = Encoder(min_freq=2).fit([[["a", "b"], ["a"]]], [["x", "y"]])
    assert encoder.attribute_names() == ["a"]


# -- matrices ---------------------------------------------------------------------------------------


def test_dense_and_sparse_agree():
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(1)
    dense = [rng.normal(size=(t, 5)) * (rng.random((t, 5)) < 0.5) for t in (3, 0, 1, 4)]
    dense = [matrix * np.array([1, 1, 0, 1, 1]) for matrix in dense]
    y = [[0] * len(matrix) for matrix in dense]
    encoder = Encoder(attribute_names=list("abcde"))
    corpora = [
        encoder.fit_transform(dense, y),
        encoder.transform([sparse.coo_matrix(matrix) for matrix in dense], y),
        Encoder.from_state(encoder.get_state()).transform(dense, y),
    ]
    assert encoder.n_attrs == 4 and "c" not in encoder.attribute_names()
    flat = np.concatenate(dense)
    for corpus in corpora:
        for t, row in enumerate(flat):
            expected = {name: value for name, value in zip("abcde", row, strict=True) if value}
            assert {encoder.attribute_name(i): v for i, v in row_of(corpus, t).items()} == expected
    assert encoder.attribute_counts_.tolist() == sorted(
        (flat != 0).sum(0)[[0, 1, 3, 4]].tolist(), reverse=True
    )
    ones = Encoder().fit_transform([np.eye(3)], [[0, 1, 2]])
    assert len(ones.attr_val) == 0


# -- labels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([10, 2, 10], [2, 10]),
        ([np.int64(10), 2, 2], [2, 10]),
        (["b", 3, "a"], [3, "a", "b"]),
        ([("N", "a"), ("B", "b"), ("B", "a")], [("B", "a"), ("B", "b"), ("N", "a")]),
        ([True, False, True], [False, True]),
    ],
)
def test_labels_of_any_kind_come_back(labels, expected):
    encoder = Encoder()
    corpus = encoder.fit_transform([[["a"], ["b"]], [["c"]]], [labels[:2], labels[2:]])
    assert encoder.labels_ == expected and list(map(type, encoder.labels_)) == list(map(type, expected))
    assert encoder.decode(corpus.labels, corpus.seq_ptr) == [labels[:2], labels[2:]]
    state = encoder.get_state()
    state["header"] = json.loads(json.dumps(state["header"]))
    assert Encoder.from_state(state).labels_ == expected


def test_unknown_labels():
    encoder = Encoder("U:%x[0,0]").fit([["a", "b"]], [["x", "y"]])
    assert encoder.transform([["a", "b"]]).labels.tolist() == [-1, -1]
    with pytest.raises(
        ValueError, match=r"sequence 1, token 1: label 'z' was not seen in training; known: 'x', 'y'"
    ):
        encoder.transform([["a"], ["a", "b"]], [["x"], ["y", "z"]])
    assert encoder.transform([["a", "b"]], [["x", "z"]], on_unknown_label="mark").labels.tolist() == [0, -1]
    assert encoder.transform([["a", "b"]], [["x", None]]).labels.tolist() == [0, -1]
    with pytest.raises(ValueError, match="X has 1 sequences but y has 2"):
        encoder.transform([["a", "b"]], ["x", "y"])
    flat = TokenColumns({"w": ["a", "b"]}, [0, 1, 2])
    assert (
        encoder.transform(flat, ["x", "y"]).labels.tolist()
        == encoder.transform(flat, [["x"], ["y"]]).labels.tolist()
    )
    brought = TokenColumns({"w": ["a", "b"]}, [0, 2], ["z", "y"])
    assert encoder.transform(brought).labels.tolist() == [-1, 1]


def test_state_survives_json_and_odd_strings():
    encoder = Encoder(min_freq=1).fit([[["a\n:", "\ud800", "", "日本"]]], [["\0"]])
    state = encoder.get_state()
    assert all(array.dtype.kind in "iuf" for array in state["arrays"].values())
    again = Encoder.from_state({"header": json.loads(json.dumps(state["header"])), "arrays": state["arrays"]})
    assert again.attribute_names() == encoder.attribute_names() and again.labels_ == ["\0"]
    with pytest.raises(ValueError, match="no encoder"):
        Encoder.from_state({"header": {"kind": "hmm"}, "arrays": {}})


# -- bad input --------------------------------------------------------------------------------------

ONE = [["a"]]


@pytest.mark.parametrize(
    ("template", "X", "y", "message"),
    [
        (None, [], [], "nothing to learn from: X has 0 sequences and no token"),
        (None, [[], []], [[], []], "nothing to learn from: X has 2 sequences"),
        (None, [[["a"]]], None, "fit needs labels"),
        (None, [[["a"]], [["a"], ["b"]]], [["x"], ["x"]], "sequence 1: 2 tokens but 1 labels"),
        (None, [[["a"]]], [["x"], ["y"]], "X has 1 sequences but y has 2"),
        (None, [[["a"], ["b"]]], ["xy"], "sequence 0: expected a list of 2 labels, got 'xy'"),
        (
            None,
            [[["a"], [3.5]]],
            [["x", "y"]],
            "sequence 0, token 1: expected attribute names that are strings, got 3.5",
        ),
        (
            None,
            [[["a"]], [["a"], [("b", 1.0)]]],
            [["x"], ["x", "y"]],
            r"sequence 1, token 1: .*got \('b', 1.0\)",
        ),
        (
            None,
            [["the", "dog"]],
            [["x", "y"]],
            "sequence 0, token 0: expected a dict or a list of attribute strings .template='words'",
        ),
        (None, ["the"], [["x"]], "sequence 0: expected a list of tokens, got 'the'"),
        (None, [{"a": 1}], [["x"]], "sequence 0: expected a list of tokens, got {'a': 1}"),
        (None, "the", [["x"]], "X: expected a list of sequences, got str"),
        (
            None,
            [[{"a": 1}, {"b": None}]],
            [["x", "y"]],
            "sequence 0, token 1: attribute 'b': expected a number.*got None",
        ),
        (
            None,
            [[{"a": {"b": [1, "x"]}}]],
            [["x"]],
            "sequence 0, token 0: expected attribute names that are strings, got 1",
        ),
        (
            None,
            [[{"a": float("nan")}]],
            [["x"]],
            "sequence 0, token 0: attribute 'a': expected a finite value, got nan",
        ),
        (None, [[{"a": [{}], "b": 1}]], [["x"]], "sequence 0, token 0"),
        (None, [[["a"], ["b"]]], [["x", ["y"]]], "sequence 0, token 1: a label must be hashable"),
        (None, [[["a"], ["b"]]], [[1.0, float("nan")]], "sequence 0, token 1: the label is nan"),
        (None, TokenColumns({"w": ["a"]}, [0, 1], ["x"]), None, "need a template"),
        (None, [np.ones((1, 2)), np.ones((1, 3))], [["x"], ["x"]], "sequence 1: expected 2 columns, got 3"),
        (
            None,
            [np.array([[1, 2], [3, np.nan]])],
            [["x", "y"]],
            "sequence 0, token 1, column 1: expected a finite number, got nan",
        ),
        (None, [np.ones(3)], [["x"] * 3], r"sequence 0: expected an array of shape \(tokens, attributes\)"),
        (
            None,
            [np.array([["a"]], object)],
            [["x"]],
            "sequence 0: expected an array of real numbers, got dtype object",
        ),
        (
            "U:%x[0,0]\nU1:%x[0,1]",
            [["a"]],
            [["x"]],
            "template line 2 asks for column 1.*these columns: 0 '0'",
        ),
        ("U1:%x[0,pos]", [["a"]], [["x"]], "template line 1 asks for column 'pos'"),
        (
            "U:%x[0,0]",
            [["a"], ["b", None]],
            [["x"], ["x", "y"]],
            "sequence 1, token 1: expected cells of the same form",
        ),
        (
            "U:%x[0,w]",
            [[{"w": "a"}, {"v": "a"}]],
            [["x", "y"]],
            "sequence 0, token 1, column 'w': expected a string, got None",
        ),
        (
            "U:%x[0,0]",
            [[("a", "b"), ("a",)]],
            [["x", "y"]],
            "sequence 0, token 1: expected 2 cells as in the first token, got 1",
        ),
        (
            "U:%x[0,0]",
            TokenColumns({"w": ["a", 7]}, [0, 1, 2], ["x", "y"]),
            None,
            "sequence 1, token 0, column 0: expected a string, got 7",
        ),
    ],
)
def test_bad_input_gets_one_clear_sentence(template, X, y, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        Encoder(template).fit(X, y)
    assert "\n" not in str(caught.value)


def test_misuse_of_the_encoder():
    with pytest.raises(ValueError, match="not fitted"):
        Encoder().transform([])
    with pytest.raises(ValueError, match="min_freq"):
        Encoder(min_freq=-1)
    fitted = Encoder().fit([[["a"]]], [["x"]])
    with pytest.raises(ValueError, match="fitted on attribute dicts or lists, got dense or sparse"):
        fitted.transform([np.ones((1, 1))])
    with pytest.raises(ValueError, match="need a template"):
        fitted.transform(TokenColumns({"w": ["a"]}, [0, 1]))


def test_empty_text_is_no_error_at_transform():
    fitted = Encoder("chunking").fit(token_columns([[("a", "X"), ("b", "Y")]]))
    for X in ([], [[]], [[], []]):
        corpus = fitted.transform(X)
        assert corpus.n_sequences == len(X) and corpus.n_tokens == 0
    corpus = fitted.transform([[], [("a", "X")], []])
    assert corpus.seq_ptr.tolist() == [0, 0, 1, 1]
    assert fitted.decode(np.array([1]), corpus.seq_ptr) == [[], ["Y"], []]


def test_summary_counts():
    encoder = Encoder("chunking").fit(token_columns([[("a", "X"), ("b", "Y")]]))
    assert "occurrences                38" in encoder.summary()
    assert "attributes" in repr(encoder)


@pytest.mark.parametrize(
    "X", [[np.eye(2), np.eye(2)], [sparse.eye_array(2).tocsr()] * 2, [[["a"], ["b"]], [["c"], ["a"]]]]
)
def test_sequences_without_tokens_fit_any_encoder(X):
    encoder = Encoder().fit(X, [[0, 1], [1, 1]])
    assert encoder.transform([[], []]).seq_ptr.tolist() == [0, 0, 0]
    assert encoder.transform([]).n_sequences == 0
