"""Spans of characters to labels of tokens and back; brat, doccano and a stand-in for spaCy's Doc."""

import json
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfbook.data.offsets import (
    Document,
    columns_from_spans,
    read_brat,
    read_doccano,
    read_spacy,
    spans_from_labels,
    token_places,
    write_brat,
    write_doccano,
    write_spacy,
)
from crfbook.evaluation import SCHEMES

TEXT = "Alice Smith lives in New York.  She likes Bob."
SPANS = [(0, 11, "PER"), (21, 29, "LOC"), (42, 45, "PER")]


def words(text):
    return re.findall(r"\w+|[^\w\s]", text)


def places(text):
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


def by_sentence(text):
    return [words(part) for part in text.split("  ")]


@pytest.mark.parametrize("tokenizer", [words, places, by_sentence, None])
@pytest.mark.parametrize("scheme", ["BIO", "BILOU", "iobes", "IOB1", "IO"])
def test_there_and_back(tokenizer, scheme):
    tokens = columns_from_spans([(TEXT, SPANS), ("", []), ("no", [])], tokenizer, scheme)
    assert [w for row in tokens.by_sequence("word") for w in row] == [*words(TEXT), "no"]
    assert len(tokens) == (4 if tokenizer in (None, by_sentence) else 3)
    found = spans_from_labels([TEXT, "", "no"], tokens.labels_by_sequence(), tokenizer, scheme)
    assert [document.spans for document in found] == [SPANS, [], []]
    again = columns_from_spans(found, None, scheme)  # with the tokens that they have
    assert again == tokens


@st.composite
def texts(draw):
    """(text, spans that begin and end with tokens)."""
    text, spans, free = "", [], True
    for word in draw(
        st.lists(st.sampled_from(["ab", "c", "é", "😀x", "\u0301", "d\n", ".", "ab"]), max_size=9)
    ):
        kind = draw(st.sampled_from([None, "X", "Y"]))
        core = word.strip()
        if kind and free:
            spans.append((len(text), len(text) + len(core), kind))
        elif kind and spans[-1][2] == kind and spans[-1][1] == len(text.rstrip()):
            spans[-1] = (spans[-1][0], len(text) + len(core), kind)
        free = not kind or free
        text += word + draw(st.sampled_from([" ", "  ", "\t"]))
    return text, spans


@settings(deadline=None)
@given(made=texts(), scheme=st.sampled_from(sorted(SCHEMES)))
def test_spans_of_tokens_come_back(made, scheme):
    text, spans = made
    tokens = columns_from_spans([made], str.split, scheme)
    if scheme == "IO" and any(a[2] == b[2] for a, b in zip(spans, spans[1:], strict=False)):
        return
    (found,) = spans_from_labels([text], tokens.labels_by_sequence(), str.split, scheme)
    assert found.spans == spans


def test_misaligned_spans_are_reported_with_their_text():
    spans = [(0, 5, "PER"), (8, 17, "X"), (21, 29, "LOC")]
    said = r"document 0, 8:17 'X': 'Alice Sm\[ith lives\] in New York"
    with pytest.raises(ValueError, match=f"^spans: expected ends .*{said}.*; misaligned='expand', 'drop' or"):
        columns_from_spans([(TEXT, spans)], words)
    for way, want in (
        ("expand", ["B-PER", "B-X", "I-X"]), ("drop", ["B-PER", "O", "O"]), ("mask", ["B-PER", None, None])
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=said):
            tokens = columns_from_spans([(TEXT, spans)], words, misaligned=way)
        assert tokens.labels[:3] == want and tokens.labels[4:6] == ["B-LOC", "I-LOC"]
    with pytest.raises(ValueError, match=r"; and 1 more; misaligned="):
        columns_from_spans([(TEXT, [(a, a + 1, "X") for a in (0, 6, 12, 21)])], words)


def test_spans_across_sentences_and_beside_tokens():
    with pytest.warns(UserWarning, match="21:35 'X'"):
        tokens = columns_from_spans([(TEXT, [(21, 35, "X")])], by_sentence, misaligned="expand")
    assert tokens.labels_by_sequence() == [["O"] * 4 + ["B-X", "I-X", "I-X"], ["B-X", "O", "O", "O"]]
    with pytest.raises(ValueError, match="11:12 'X'"):
        columns_from_spans([(TEXT, [(11, 12, "X")])], words)
    assert columns_from_spans([(TEXT, [(0, 12, "X")])], words).labels[:3] == ["B-X", "I-X", "O"]


@pytest.mark.parametrize(
    "spans, said, want",
    [
        ([(0, 3, "X"), (3, 11, "Y")], "3:11 'Y': .* .without labels: 0:3 'X' has", ["B-X", "O", "O"]),
        ([(0, 5, "X"), (5, 7, "Y"), (8, 11, "Z")], "8:11 'Z': .*: 5:7 'Y' has", ["B-X", "B-Y", "O"]),
        ([(1, 8, "X"), (8, 11, "Y"), (12, 15, "Z")], "8:11 'Y': .*: 1:8 'X' has", ["B-X", "I-X", "B-Z"]),
        ([(0, 1, "X"), (2, 7, "Y"), (8, 11, "Z")], "2:7 'Y': .*: 0:1 'X' has", ["B-X", "B-Z", "O"]),
        ([(1, 7, "X"), (12, 17, "Y")], "", ["B-X", "I-X", "B-Y"]),
    ],
)
def test_spans_that_touch_one_token(spans, said, want):
    """The first one has it; the warning begins with the others and names both."""
    with pytest.warns(UserWarning, match=f"found document 0, {said}") as found:
        tokens = columns_from_spans([(TEXT, spans)], words, misaligned="expand")
    assert tokens.labels[:3] == want and str(found[0].message).count("without labels") == bool(said)


@pytest.mark.parametrize(
    "spans, said",
    [
        ([(0, 50, "X")], "document 0: expected a span .* in a text of 46 characters, .* got .0, 50, 'X'.$"),
        ([(3, 3, "X")], "expected a span"),
        ([(0, 5, 1)], "expected a span"),
        ([(0, 5)], "document 0: expected a span .start, stop, type. .* got .0, 5.$"),
        ([(0, 5, "X"), (6.0, 11.0, "X")], "start and stop integers, got .6.0, 11.0, 'X'.$"),
        ([("0", "5", "X")], "start and stop integers, got .'0', '5', 'X'.$"),
        ([(False, True, "X")], "start and stop integers, got .False, True, 'X'.$"),
        ([(np.False_, np.True_, "X")], "start and stop integers, got "),
        (None, "document 0: expected a span .* got None$"),
        (
            [(0, 11, "X"), (6, 11, "Y")],
            r"that do not overlap, got .0, 11, 'X'. and .6, 11, 'Y'. in '\[Alice Smith\] lives",
        ),
    ],
)
def test_spans_are_checked(spans, said):
    with pytest.raises(ValueError, match=said):
        columns_from_spans([(TEXT, spans)], words)


def test_tokens_are_checked():
    assert token_places("a b", [[0, 1], [2, 3]]) == [[(0, 1), (2, 3)]]
    assert token_places("a b", [["a"], [], ["b"]]) == [[(0, 1)], [], [(2, 3)]] and token_places("", []) == [
        []
    ]
    for tokens in (
        [("a",), ("b",)], (("a",), ("b",)), iter([["a"], iter(["b"])]), [np.array([[0, 1]]), [(2, 3)]],
        [np.array(["a"]), ["b"]], [[(np.int64(0), np.int32(1))], [[2, 3]]],
    ):  # fmt: skip
        found = token_places("a b", tokens)
        assert found == [[(0, 1)], [(2, 3)]] and type(found[0][0][0]) is int
    for flat in (("a", "b"), np.array([[0, 1], [2, 3]]), ([0, 1], (2, 3)), iter(["a", "b"])):
        assert token_places("a b", flat) == [[(0, 1), (2, 3)]]
    assert token_places("a b c d", [("a", "b"), ("c", "d")]) == [[(0, 1), (2, 3)], [(4, 5), (6, 7)]]
    for tokens in ([(0.0, 1.0)], [5], [["a"], "b"], [(0, 1, 2)], [[("0", "1")]], [(False, True)], [None]):
        with pytest.raises(
            ValueError, match="tokens: expected strings, places .start, stop. as integers, or"
        ):
            token_places("a b", tokens)
    with pytest.raises(ValueError, match="tokens: expected .0, 9. after"):
        columns_from_spans([Document("a b", [], [[(0, 9)]])])
    for tokens in (["b", "a"], [(0, 2), (1, 3)], [(2, 4)], [(1, 1)]):
        with pytest.raises(ValueError, match="tokens: expected .* found none"):
            token_places("a b", tokens)
    with pytest.raises(ValueError, match="document 1: expected labels of sentences of .1. tokens, got .*2"):
        spans_from_labels(["a b", "c"], [["O", "O"], ["O", "O"]], str.split)
    with pytest.raises(ValueError, match="labels: expected those of the 1 sentences of the texts, got 2"):
        spans_from_labels(["a"], [["O"], ["O"]], str.split)
    with pytest.raises(ValueError, match="documents: expected pairs .text, spans. or .* got 'a b'"):
        columns_from_spans(("a b", []))
    with pytest.raises(ValueError, match="misaligned: expected one of"):
        columns_from_spans([], misaligned="no")


def test_predictions_become_spans(capsys):
    (found,) = spans_from_labels(
        [TEXT], [["B-PER", "I-PER", None, *["O"] * 4, "I-X", "O", "B-PER", "O"]], words
    )
    assert found.spans == [(0, 11, "PER"), (32, 35, "X"), (42, 45, "PER")]
    assert capsys.readouterr().out.startswith("scheme='auto': ")
    (found,) = spans_from_labels([TEXT], [["O"] * 7 + ["I-X"] + ["O"] * 3], words, "BIO", strict=True)
    assert found.spans == []


# ---- formats ----

BRAT = (
    "T1\tPER 0 11\tAlice Smith\nR1\tLives Arg1:T1 Arg2:T2\nT2\tLOC 21 24;25 29\tNew York\n#1\tNote T1\tx\n"
    "T3\tPER 42 45\tBob\n"
)


def test_brat(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "a.ann").write_text(BRAT)
    document = read_brat(tmp_path / "a.ann")
    assert document == read_brat(tmp_path / "a.txt") == Document(TEXT, SPANS)
    write_brat(tmp_path / "b.ann", document)
    assert (tmp_path / "b.ann").read_text().splitlines()[1] == "T2\tLOC 21 29\tNew York"
    assert read_brat(tmp_path / "b.txt") == document and len(list(tmp_path.iterdir())) == 4


@settings(deadline=None)
@given(made=texts())
def test_brat_and_doccano_keep_all(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("offsets")
    write_brat(folder / "x", made)
    write_doccano(folder / "x.jsonl", [made, made])
    assert read_brat(folder / "x.txt") == Document(*made)
    assert read_doccano(folder / "x.jsonl") == [Document(*made)] * 2


def test_a_span_over_two_lines(tmp_path):
    document = Document("a New\r\nYork b", [(2, 11, "LOC")])
    write_brat(tmp_path / "a.txt", document)
    assert (tmp_path / "a.ann").read_text() == "T1\tLOC 2 5;7 11\tNew York\n"
    assert read_brat(tmp_path / "a.txt") == document


@pytest.mark.parametrize(
    "line, said",
    [
        ("T1\tPER 0 5\tAlive", "a.ann, line 1: expected 'Alice', which stands at 0 5, got 'Alive'"),
        ("T1\tPER 0 5", "a.ann, line 1: expected number, type with places, and text"),
        ("T1\tPER 0 5;21 24\tAlice New", "expected one piece, got 0 5;21 24; fragments='cover' joins them"),
        ("T1\tPER 42 99\tBob.", "a span .start, stop, type. in a text of 46 characters"),
    ],
)
def test_wrong_annotations_are_told_where(tmp_path, line, said):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "a.ann").write_text(line + "\n")
    with pytest.raises(ValueError, match=said):
        read_brat(tmp_path / "a.txt")
    if "cover" in said:
        assert read_brat(tmp_path / "a.txt", fragments="cover").spans == [(0, 24, "PER")]


def test_what_brat_cannot_say_is_not_written(tmp_path):
    for spans in ([(0, 1, "A B")], [(1, 3, "X")], [(0, 9, "X")]):
        with pytest.raises(ValueError, match="a.ann: expected a"):
            write_brat(tmp_path / "a", ("a\nb", spans))
    assert not list(tmp_path.iterdir())


def test_doccano_of_several_versions(tmp_path):
    path = tmp_path / "all.jsonl"
    entities = [{"id": 1, "start_offset": 0, "end_offset": 11, "label": "PER"}]
    lines = [
        {"id": 1, "text": TEXT, "label": [[0, 11, "PER"]]}, {"data": TEXT, "labels": [[0, 11, "PER"]]},
        {"text": TEXT, "entities": entities, "relations": []}, {"text": TEXT, "label": []},
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert [document.spans for document in read_doccano(path)] == [[(0, 11, "PER")]] * 3 + [[]]
    for line in (
        '{"label": []}',
        "[1]",
        "{",
        '{"text": 3}',
        '{"text": "a", "label": [[0]]}',
        '{"text": "a", "label": 1}',
    ):
        path.write_text("\n" + line)
        with pytest.raises(ValueError, match="all.jsonl, line 2: expected "):
            read_doccano(path)


class Token:
    def __init__(self, text, idx):
        self.idx, self.text, self.is_space = idx, text, text.isspace()

    def __len__(self):
        return len(self.text)


class Entity:
    def __init__(self, start, stop, label):
        self.start_char, self.end_char, self.label_ = start, stop, label


class Doc(list):
    """What spaCy 3 offers of a Doc, as far as it is used."""

    def __init__(self, text, sentences=()):
        super().__init__(Token(m.group(), m.start()) for m in re.finditer(r"\w+|[^\w\s]|\s\s", text))
        self.text, self.ents, self.sentences = text, (), sentences

    def has_annotation(self, name):
        return name == "SENT_START" and bool(self.sentences)

    @property
    def sents(self):
        return (self[a:b] for a, b in self.sentences)

    def char_span(self, start, stop, label):
        fits = any(t.idx == start for t in self) and any(t.idx + len(t) == stop for t in self)
        return Entity(start, stop, label) if fits else None


def test_spacy():
    for sentences, n in (((), 1), (((0, 8), (8, 12)), 2)):
        doc = Doc(TEXT, sentences)
        assert write_spacy(doc, SPANS) is doc
        document = read_spacy(doc)
        assert document[:2] == (TEXT, SPANS) and len(document.tokens) == n
        tokens = columns_from_spans([document], scheme="BILOU")
        assert tokens.columns["word"] == words(TEXT) and tokens.labels[:2] == ["B-PER", "L-PER"]
        assert spans_from_labels([document], tokens.labels_by_sequence(), scheme="BILOU")[0] == document
    with pytest.raises(ValueError, match=r"doc: expected ends of tokens, found 0:3 'X': '\[Ali\]ce Smith"):
        write_spacy(doc, [(0, 3, "X")])


def test_a_real_doc():
    spacy = pytest.importorskip("spacy")
    doc = spacy.blank("en")(TEXT)
    write_spacy(doc, SPANS)
    assert read_spacy(doc).spans == SPANS
    assert (
        spans_from_labels([read_spacy(doc)], columns_from_spans([read_spacy(doc)]).labels_by_sequence())[0][1]
        == SPANS
    )


def test_nothing_is_said_of_what_fits():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns_from_spans([(TEXT, SPANS)], words, misaligned="drop")


def test_a_byte_order_mark_inside_a_text_stays(tmp_path):
    one = Document("a\ufeffb Ada Lovelace x", [(4, 7, "PER")])
    write_doccano(tmp_path / "d.jsonl", [one])
    (back,) = read_doccano(tmp_path / "d.jsonl")
    assert back.text == one.text and back.text[4:7] == "Ada" and list(back.spans) == [(4, 7, "PER")]
    write_brat(tmp_path / "b.ann", ("x A\ufeffda y", [(2, 6, "PER")]))
    assert list(read_brat(tmp_path / "b.ann").spans) == [(2, 6, "PER")]


def test_names_with_dots_are_names_of_their_own(tmp_path):
    for name, text in (("PMID.1", "one"), ("PMID.2", "two")):
        write_brat(tmp_path / name, (text, [(0, 3, "N")]))
    assert read_brat(tmp_path / "PMID.1").text == "one" and read_brat(tmp_path / "PMID.2.ann").text == "two"


def test_touching_chunks_in_io_are_said():
    with pytest.warns(UserWarning, match="IO cannot tell a chunk .*: sequence 0, token 1"):
        columns = columns_from_spans([("a b", [(0, 1, "X"), (2, 3, "X")])], str.split, scheme="IO")
    assert columns.labels == ["I-X", "I-X"]


class Counted(tuple):
    """A span that counts how often one looks at its places."""

    looks = 0

    def __getitem__(self, place):
        Counted.looks += 1
        return super().__getitem__(place)

    def __iter__(self):
        Counted.looks += 1
        return super().__iter__()


def test_a_span_is_looked_at_in_its_own_sentence_alone(monkeypatch):
    """200 sentences of one span each: the number of looks grows as they do, not as their square."""
    import crfbook.data.offsets as offsets

    looks = []
    for n in (50, 200):
        text = "Ada x. " * n
        spans = [(7 * i, 7 * i + 3, "P") for i in range(n)]
        tokens = [[(7 * i, 7 * i + 3), (7 * i + 4, 7 * i + 6)] for i in range(n)]
        checked, Counted.looks = offsets._checked, 0
        with monkeypatch.context() as patch:
            patch.setattr(offsets, "_checked", lambda *a, of=checked, **k: list(map(Counted, of(*a, **k))))
            columns = columns_from_spans([Document(text, spans, tokens)])
        assert columns.labels == ["B-P", "O"] * n
        looks.append(Counted.looks)
    assert looks[1] <= 5 * looks[0]


@settings(deadline=None)
@given(
    cuts=st.lists(st.integers(0, 30), max_size=12, unique=True).map(sorted),
    ends=st.lists(st.integers(0, 30), max_size=12, unique=True).map(sorted),
    misaligned=st.sampled_from(["drop", "mask", "expand"]),
)
def test_spans_in_sentences_by_looking_at_all(cuts, ends, misaligned):
    """The definition: every span beside every sentence."""
    text, kinds = "x" * 30, "XY"
    rows = [[(a, b) for a, b in zip(cuts[i::4], cuts[i + 1 :: 4], strict=False)] for i in (0, 2)]
    places = sorted(place for row in rows for place in row)
    sentences = [places[i : i + 2] for i in range(0, len(places), 2)]
    spans = [(a, b, kinds[i % 2]) for i, (a, b) in enumerate(zip(ends[::2], ends[1::2], strict=False))]
    want = []
    for row in sentences:
        holder = {}
        touched = [(s, [t for t, (a, b) in enumerate(row) if a < s[1] and s[0] < b]) for s in spans]
        touched = [(s, on) for s, on in touched if on]
        exact = [(s, on) for s, on in touched if (row[on[0]][0], row[on[-1]][1]) == s[:2]]
        others = [one for one in touched if one not in exact]
        for s, on in exact + others * (misaligned == "expand"):
            if not set(on) & set(holder):
                holder |= {t: ("I-" if t > on[0] else "B-") + s[2] for t in on}
        masked = {t for _, on in others for t in on} if misaligned == "mask" else set()
        want += [None if t in masked else holder.get(t, "O") for t in range(len(row))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = columns_from_spans([Document(text, spans, sentences)], misaligned=misaligned)
    assert found.labels == want


def test_integers_of_numpy_are_places():
    spans = [(np.int64(0), np.uint8(11), "PER")]
    assert columns_from_spans([(TEXT, spans)], words).labels[:3] == ["B-PER", "I-PER", "O"]


def test_a_brat_text_that_is_not_utf8_is_told_where(tmp_path):
    (tmp_path / "a.txt").write_bytes("Zoë\nand ".encode() + b"Jos\xe9")
    (tmp_path / "a.ann").write_text("")
    with pytest.raises(
        ValueError, match=r"a.txt, line 2: expected UTF-8, found byte 0xe9 in b'and Jos.xe9'$"
    ):
        read_brat(tmp_path / "a.ann")


def test_offsets_of_doccano_are_integers(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text('{"text": "Ada", "label": [[0.0, 3.0, "P"]]}\n')
    with pytest.raises(
        ValueError, match="all.jsonl, line 1: expected a span .* integers, got .0.0, 3.0, 'P'"
    ):
        read_doccano(path)


def test_types_without_tags_go_through_io():
    """IO is written with tags; types alone become B-x in BIO, and I-x on the way back."""
    rows = [["PER", "PER", "O"]]
    (found,) = spans_from_labels(["a b c"], rows, str.split, scheme="IO")
    assert found.spans == [(0, 3, "PER")]
    assert columns_from_spans([found], scheme="IO").labels == ["I-PER", "I-PER", "O"]


@pytest.mark.parametrize("one", [None, "ab", ("a b",), ("a b", [], None, None), (b"a b", []), (None, []), 3])
def test_what_is_no_document_is_said(tmp_path, one):
    for call in (
        lambda: columns_from_spans([one], str.split),
        lambda: write_brat(tmp_path / "a", one),
        lambda: write_doccano(tmp_path / "a.jsonl", [one]),
    ):
        with pytest.raises(ValueError, match="^documents: expected pairs .text, spans. or `Document`s, got "):
            call()
    assert not list(tmp_path.iterdir())


def test_pieces_of_brat_come_in_any_order(tmp_path):
    (tmp_path / "a.txt").write_text("Ada and Love")
    (tmp_path / "a.ann").write_text("T1\tPER 8 12;0 3\tLove Ada\nT2\tX 0 7;4 5\tAda and a\n")
    with pytest.raises(ValueError, match="a.ann, line 1: expected one piece, got 8 12;0 3; fragments="):
        read_brat(tmp_path / "a")
    assert read_brat(tmp_path / "a", fragments="cover").spans == [(0, 7, "X"), (0, 12, "PER")]


@pytest.mark.parametrize("places", ["0 99", "1 1", "0 " + "9" * 5000])
def test_places_of_brat_outside_the_text_are_told_where(tmp_path, places):
    (tmp_path / "a.txt").write_text("Ada")
    (tmp_path / "a.ann").write_text(f"#1\tx\n\nT1\tPER {places}\t{'Ada' * (places[0] == '0')}\n")
    with pytest.raises(ValueError, match="a.ann, line 3: expected "):
        read_brat(tmp_path / "a")


def test_a_text_that_is_no_utf8_is_not_written(tmp_path):
    for call in (write_brat, lambda path, one: write_doccano(path, [one])):
        with pytest.raises(
            ValueError, match="a.*: expected text that is UTF-8, found the surrogate '.ud800'"
        ):
            call(tmp_path / "a", ("x \ud800", []))
    assert not list(tmp_path.iterdir())
