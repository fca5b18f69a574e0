"""Readers: what comes out, and what a wrong file is told."""

import io
import os
from threading import Thread

import numpy as np
import pytest
from helpers.memory import peak_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

import crfbook.data.readers as readers
from crfbook.data.columns import TokenColumns
from crfbook.data.readers import iter_conll, read_conll, read_conllu, write_conll
from crfbook.datasets.corpora import (
    morphological_tags,
    read_atis,
    read_brown,
    read_cmudict,
    read_nettalk,
    read_treebank,
    supertags,
)

CHUNKS = b"He PRP B-NP\nreckons VBZ B-VP\n\nThe DT B-NP\ndeficit NN I-NP\n. . O\n\n"


def test_columns_and_labels():
    tokens = read_conll(CHUNKS, label="chunk")
    assert tokens.columns == {
        "word": ["He", "reckons", "The", "deficit", "."],
        "pos": ["PRP", "VBZ", "DT", "NN", "."],
    }
    assert tokens.labels == ["B-NP", "B-VP", "B-NP", "I-NP", "O"]
    assert tokens.seq_ptr.tolist() == [0, 2, 5] and tokens.seq_ptr.dtype == np.int64
    assert len(tokens) == 2 and tokens.n_tokens == 5 and tokens.label_name == "chunk"
    assert tokens.labels_by_sequence() == [["B-NP", "B-VP"], ["B-NP", "I-NP", "O"]]
    assert list(tokens) == [
        [("He", "PRP", "B-NP"), ("reckons", "VBZ", "B-VP")],
        [("The", "DT", "B-NP"), ("deficit", "NN", "I-NP"), (".", ".", "O")],
    ]


def test_equal_strings_are_one_object():
    tokens = read_conll(b"a X\na X\n\na X\n", ("word", "pos"))
    assert len({id(cell) for cell in tokens.columns["word"]}) == 1


@pytest.mark.parametrize(
    "data",
    [
        CHUNKS.rstrip(b"\n"),
        CHUNKS.replace(b"\n", b"\r\n"),
        CHUNKS.replace(b"\n", b"\r\r\n"),
        b"\xef\xbb\xbf" + CHUNKS,
        b"\n\n \t\n" + CHUNKS,
        CHUNKS.replace(b"\n\n", b"\n \t \n\n"),
        CHUNKS.replace(b" ", b"\t"),
        CHUNKS.replace(b" ", b"   ").replace(b"\n", b" \n"),
    ],
    ids=[
        "no last newline",
        "crlf",
        "crcrlf",
        "byte order mark",
        "leading breaks",
        "breaks of blanks",
        "tabs",
        "runs of blanks",
    ],
)
def test_the_same_sentences_however_they_are_laid_out(data):
    assert read_conll(data, label="chunk") == read_conll(CHUNKS, label="chunk")


@pytest.mark.parametrize("chunk", [1, 7, 16, 40])
def test_pieces_do_not_show(monkeypatch, chunk):
    whole = read_conll(CHUNKS * 5, label="chunk")
    monkeypatch.setattr(readers, "_CHUNK", chunk)
    assert read_conll(CHUNKS * 5, label="chunk") == whole
    with pytest.raises(ValueError, match="line 37: expected 3 columns"):
        read_conll(CHUNKS * 5 + b"\nlast one\n", label="chunk")


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from([b"a X", b" b\tY ", b"c  X", b"", b" \t", b"d", b"e X Z"])), st.integers(1, 12)
)
def test_as_reading_line_by_line(lines, chunk):
    """The definition, in plain Python: same sentences, and the first wrong line named."""
    sentences, wrong = [[]], None
    for number, line in enumerate(lines, 1):
        cells = line.decode().split()
        if len(cells) not in (0, 2):
            wrong = wrong or number
        elif cells:
            sentences[-1].append(tuple(cells))
        elif sentences[-1]:
            sentences.append([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_CHUNK", chunk)
        if wrong:
            with pytest.raises(ValueError, match=f"line {wrong}: expected 2 columns"):
                read_conll(b"\n".join(lines), ("word", "pos"))
        else:
            assert list(read_conll(b"\n".join(lines), ("word", "pos"))) == [s for s in sentences if s]


def test_sources(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(CHUNKS)
    expected = read_conll(CHUNKS)
    for source in (path, str(path), io.BytesIO(CHUNKS), io.StringIO(CHUNKS.decode()), path.open()):
        assert read_conll(source) == expected


def test_a_column_may_be_left_out_and_blanks_stay_in_cells_between_tabs():
    assert read_conll(CHUNKS, ("word", None, "chunk"), "chunk").names == ("word",)
    tokens = read_conll(
        "New York\tLOC\n \t \n\tx\n".replace("\tx\n", "a\u00a0b\tO\n").encode(), ("w", "t"), separator="\t"
    )
    assert tokens.columns == {"w": ["New York", "a\u00a0b"], "t": ["LOC", "O"]} and len(tokens) == 2
    assert read_conll("a\u00a0b c\n".encode(), ("w", "t")).columns["w"] == ["a\u00a0b"]


def test_nothing_in_a_file_is_no_sentence():
    for data in (b"", b"\n", b" \n\t\n"):
        tokens = read_conll(data, label="chunk")
        assert len(tokens) == 0 and tokens.n_tokens == 0 and tokens.labels == []


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"a b c\nd e\n", {}, r"line 2: expected 3 columns \(word, pos, chunk\), found 2: 'd e'"),
        (b"a b c\n\n\nd e f g\n", {}, r"line 4: expected 3 columns \(word, pos, chunk\), found 4: 'd e f g'"),
        (b"a b\n", {"columns": ("word",)}, r"line 1: expected 1 column \(word\), found 2"),
        (
            b"a\tb\nc\n",
            {"columns": ("w", "t"), "separator": "\t"},
            r"line 2: expected 2 columns \(w, t\), found 1",
        ),
        (b"a\tb\n\nc\t\n", {"columns": ("w", "t"), "separator": "\t"}, r"line 3: column 2 \(t\) is empty"),
        (b"a b c\n\xe9t\xe9 b c\n", {}, "line 2: expected UTF-8, found byte 0xe9"),
        ("a b c\n".encode("utf-16"), {}, "expected UTF-8 text, found UTF-16"),
        (b"", {"label": "ner"}, "label 'ner' is not among the columns 'word', 'pos', 'chunk'"),
        (b"", {"columns": ("a", "a")}, "expected different names"),
        (b"", {"separator": "::"}, "expected None or one ASCII character"),
    ],
)
def test_wrong_files_are_told_where(data, options, message):
    with pytest.raises(ValueError, match=message):
        read_conll(data, **options)


@pytest.mark.parametrize("separator", [None, "\t"])
@pytest.mark.parametrize("chunk", [1, 1 << 18])
def test_a_carriage_return_never_becomes_part_of_a_cell(monkeypatch, separator, chunk):
    monkeypatch.setattr(readers, "_CHUNK", chunk)
    options = {"columns": ("w", "t"), "label": "t", "separator": separator}
    for end in (b"\r\n", b"\r\r\n"):
        assert read_conll(end.join([b"a\tX", b"", b"b\tY", b""]), **options).labels == ["X", "Y"]
    for data, line in ((b"a\tX\rb\tY\r", 1), (b"a\tX\nb\tY\r\n\nc\tZ\r", 4), (b"a\tX\nb\tY\r\r \n", 2)):
        with pytest.raises(
            ValueError, match=f"line {line}: expected lines that end in LF or CR LF, found a CR"
        ):
            read_conll(data, **options)


def test_memory_is_at_most_four_times_the_file(tmp_path):
    """Beside the strings, which are few: the columns of 8 bytes a cell. The file itself was held, too."""
    path = tmp_path / "large.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"governmental NN B-NP\r\n" * 200_000 + b"last NN B-NP")
    tokens, peak = peak_bytes(lambda: read_conll(path, label="chunk"))
    assert tokens.n_tokens == 200_001 and peak < 3 * path.stat().st_size


def test_a_source_that_can_only_be_read_whole():
    class Response:
        def read(self):
            return CHUNKS

    assert read_conll(Response(), label="chunk").labels == read_conll(CHUNKS, label="chunk").labels


def test_surrogates_are_told_where(tmp_path):
    tokens = TokenColumns({"w": ["a", "\ud800"]}, [0, 1, 2])
    with pytest.raises(ValueError, match=r"sequence 1, token 0: expected a string that fits .*'.ud800'"):
        write_conll(tmp_path / "x", tokens)
    with pytest.raises(
        ValueError, match=r"<file>: expected text that is UTF-8, found the surrogate '.udcff'"
    ):
        read_conll(io.StringIO("a b\udcff c\n"))


def test_the_message_names_the_file(tmp_path):
    path = tmp_path / "mine.conll"
    path.write_text("a b c\nd\n")
    with pytest.raises(ValueError, match=r"mine\.conll, line 2: "):
        read_conll(path)


# ---- in pieces of whole sentences


def pieces(tmp_path, data, n_tokens, columns=("word", "pos", "chunk"), label="chunk", **options):
    path = tmp_path / "mine.conll"
    path.write_bytes(data)
    return list(iter_conll(path, columns, label, n_tokens=n_tokens, **options))


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 7, 10**6])
@pytest.mark.parametrize(
    "data",
    [CHUNKS * 4, b"\n\n" + CHUNKS.replace(b"\n\n", b"\n\n \n\t\n") * 4, b"\xef\xbb\xbf" + CHUNKS * 4,
     (CHUNKS * 4).replace(b"\n", b"\r\n"), (CHUNKS * 4).rstrip()],
    ids=["plain", "breaks", "byte order mark", "crlf", "no last newline"],
)  # fmt: skip
def test_pieces_are_the_whole(tmp_path, data, n_tokens):
    found, whole = pieces(tmp_path, data, n_tokens), read_conll(data, label="chunk")
    assert [s for piece in found for s in piece] == list(whole)
    assert all(piece.label_name == "chunk" for piece in found)
    longest = max(np.diff(whole.seq_ptr))
    assert all(n_tokens <= piece.n_tokens < n_tokens + longest for piece in found[:-1])
    assert 0 < found[-1].n_tokens


@pytest.mark.parametrize("n_tokens", [1, 5])
@pytest.mark.parametrize("data", [b"", b"\n" * 30, b" \n\t\n" * 30, b"\xef\xbb\xbf\n\n\n"])
def test_no_token_is_no_piece(tmp_path, data, n_tokens):
    assert pieces(tmp_path, data, n_tokens) == []


def test_blank_lines_are_no_tokens(tmp_path):
    found = pieces(tmp_path, b"a X\n\n\n\n" * 30, 10, ("word", "pos"), "pos")
    assert [piece.n_tokens for piece in found] == [10, 10, 10]


@pytest.mark.parametrize("n_tokens", [1, 4, 10**6])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            b"one two\n",
            r"line 36: expected 3 columns \(word, pos, chunk\), found 2: 'one two'; unlabelled=True",
        ),
        (b"\xff b c\n", r"line 36: expected UTF-8, found byte 0xff"),
        (b"a b c\rd\n", r"line 36: expected lines that end in LF or CR LF, found a CR alone$"),
    ],
)
def test_lines_of_pieces_are_counted_from_the_file(tmp_path, bad, message, n_tokens):
    with pytest.raises(ValueError, match=rf"mine\.conll, {message}"):
        pieces(tmp_path, CHUNKS * 5 + bad + CHUNKS, n_tokens)


def test_an_empty_cell_of_a_piece_is_told_where(tmp_path):
    tabs = {"columns": ("w", "t"), "label": "t", "separator": "\t"}
    with pytest.raises(ValueError, match=r"mine\.conll, line 5: column 2 \(t\) is empty; unlabelled=True"):
        pieces(tmp_path, b"New York\tX\n\nb\tY\n\nc\t\n", 1, **tabs)
    found = pieces(tmp_path, b"New York\tX\n\nb\tY\n", 1, **tabs)
    assert [piece.columns["w"] for piece in found] == [["New York"], ["b"]]


def test_arguments_of_pieces_are_checked(tmp_path):
    with pytest.raises(ValueError, match="label 'ner' is not among the columns"):
        pieces(tmp_path, b"", 1, label="ner")
    with pytest.raises(FileNotFoundError):
        list(iter_conll(tmp_path / "nothing", ("a",)))


def test_memory_of_pieces_does_not_grow_with_the_file(tmp_path):
    """A file 50 times as long, whose columns alone would take ten times the peak of the shorter one."""
    path, peaks = tmp_path / "large.txt", []
    for n in (4_000, 200_000):
        path.write_bytes(b"governmental NN B-NP\nwork NN I-NP\n\n" * n)
        parts = iter_conll(path, ("w", "p", "c"), n_tokens=2_000)
        n_tokens, peak = peak_bytes(lambda parts=parts: sum(part.n_tokens for part in parts))
        assert n_tokens == 2 * n
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 1e6


def test_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    words = ["a", "#", "U:1", "\u00e9t\u00e9", "\u4e2d", "\\", "'", "-DOCSTART-", "a\u00a0b", "\u2028"]
    rows = [
        [(words[rng.integers(10)], words[rng.integers(10)], "O") for _ in range(n)]
        for n in rng.integers(1, 9, 50)
    ]
    tokens = TokenColumns.from_sentences(rows, ("word", "pos", "chunk"), "chunk")
    for separator in (" ", "\t"):
        write_conll(tmp_path / "x", tokens, separator)
        assert read_conll(tmp_path / "x", label="chunk") == tokens
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    buffer = io.StringIO()
    write_conll(buffer, tokens, extra=[tokens.labels])
    assert (
        read_conll(io.StringIO(buffer.getvalue()), ("w", "p", "gold", "guess")).columns["guess"]
        == tokens.labels
    )


@pytest.mark.parametrize("cell", ["New York", "", "a\nb", " "])
def test_cells_that_would_not_come_back_are_refused(cell, tmp_path):
    tokens = TokenColumns.from_sentences([["a"], ["b", cell]], ["word"])
    with pytest.raises(ValueError, match="sequence 1, token 1: expected a string that fits"):
        write_conll(tmp_path / "x", tokens)
    assert not list(tmp_path.iterdir())


def test_token_columns_cut_and_take():
    tokens = read_conll(CHUNKS, label="chunk")
    assert (
        tokens[1] == [("The", "DT", "B-NP"), ("deficit", "NN", "I-NP"), (".", ".", "O")]
        and tokens[-1] == tokens[1]
    )
    assert list(tokens.head(1)) == [tokens[0]] and len(tokens.head(9)) == 2 and len(tokens[2:]) == 0
    assert list(tokens.take([1, 0, 1])) == [tokens[1], tokens[0], tokens[1]]
    assert list(tokens[::-1]) == [tokens[1], tokens[0]]
    assert tokens.take([]).n_tokens == 0 and len(tokens.take([-1])) == 1
    assert tokens.select(["word"], "pos").labels == ["PRP", "VBZ", "DT", "NN", "."]
    assert tokens.by_sequence("word") == [["He", "reckons"], ["The", "deficit", "."]]
    for bad in (lambda: tokens[2], lambda: tokens.take([2])):
        with pytest.raises(IndexError):
            bad()
    with pytest.raises(ValueError, match="no column 'x'"):
        tokens.by_sequence("x")


def test_token_columns_check_lengths():
    with pytest.raises(ValueError, match="column 'word': expected 2 tokens as seq_ptr says, found 1"):
        TokenColumns({"word": ["a"]}, [0, 2])
    with pytest.raises(ValueError, match="sequence 1, token 0: expected 2 values"):
        TokenColumns.from_sentences([[("a", "b")], [("a",)]], ("x", "y"))
    empty = TokenColumns.from_sentences([[], [("a", "X")], []], ("word", "label"), "label")
    assert len(empty) == 3 and empty.labels_by_sequence() == [[], ["X"], []]


CONLLU = """# text = ...
1-2\tcannot\t_\t_\t_\t_\t_\t_\t_\t_
1\tShe\tshe\tPRON\tPRP\tCase=Nom|Number=Sing\t2\tnsubj\t_\t_
2\truns\trun\tVERB\tVBZ\t_\t0\troot\t_\t_
2.1\tran\trun\tVERB\tVBD\t_\t_\t_\t_\t_
3\tfast\tfast\tADV\tRB\t_\t2\tadvmod\t_\t_

"""


def test_conllu():
    tokens = read_conllu(CONLLU.encode())
    assert tokens.columns["word"] == ["She", "runs", "fast"] and len(tokens) == 1
    assert supertags(tokens) == ["PRP|nsubj|L|VERB", "VBZ|root|R|ROOT", "RB|advmod|R|VERB"]
    assert morphological_tags(tokens) == ["PRON|Case=Nom|Number=Sing", "VERB", "ADV"]
    with pytest.raises(ValueError, match="line 3: expected word 1, found .2."):
        read_conllu(CONLLU.replace("1\tShe", "2\tShe").encode())
    with pytest.raises(ValueError, match="line 4: expected the 10 columns of CoNLL-U, found 9"):
        read_conllu(CONLLU.replace("runs\trun", "runs").encode())


def test_atis():
    tokens, intents = read_atis(
        b"BOS to st. louis EOS\t O O B-to.city I-to.city flight#fare\n\nBOS hi EOS\tO O x\n"
    )
    assert tokens.columns["word"] == ["to", "st.", "louis", "hi"] and tokens.labels[1:3] == [
        "B-to.city",
        "I-to.city",
    ]
    assert intents == ["flight#fare", "x"] and tokens.seq_ptr.tolist() == [0, 3, 4]
    with pytest.raises(ValueError, match="line 1: expected as many tags as words, found 2 and 3"):
        read_atis(b"BOS hi EOS\tO x\n")


def test_nettalk_header_and_oddities():
    text = b"Title\n\n\t\tCopyright\n-----------\n\nab\t@b\t1<\t0 \ngunpowder\tg^npW-d-R\t0\t\n"
    assert read_nettalk(text) == [("ab", "@b", "1<", "0"), ("gunpowder", "g^npW-d-R", "", "0")]
    with pytest.raises(ValueError, match="line 2: expected a stress mark for every letter, found '1'"):
        read_nettalk(b"-----\nab\t@b\t1\t0\n")
    with pytest.raises(ValueError, match="line 2: expected word, phonemes"):
        read_nettalk(b"-----\nab\t@bb\t1<\t0\n")


def test_treebank_brown_cmudict():
    tree = b"( (S (NP (DT The) (NN cat) (-NONE- *)) \n  (VP (VBZ is))\n (. .) ))\n( (X (CD 1\\/2)))\n"
    assert read_treebank(tree) == [
        [("The", "DT"), ("cat", "NN"), ("is", "VBZ"), (".", ".")],
        [("1\\/2", "CD")],
    ]
    with pytest.raises(ValueError, match="brackets do not match"):
        read_treebank(b"( (S (NN a))\n")
    assert read_brown(b"\n\n\tThe/at 1/2/cd ./.\n\n\n") == [[("The", "at"), ("1/2", "cd"), (".", ".")]]
    with pytest.raises(ValueError, match="line 1: expected word/tag, found 'oops'"):
        read_brown(b"oops\n")
    pairs = read_cmudict(b"a AH0\na(2) EY1\naalto AA1 L T OW2 # name, finnish\n")
    assert pairs == [("a", ("AH0",)), ("a", ("EY1",)), ("aalto", ("AA1", "L", "T", "OW2"))]


# ---- limits


def lines_of(path, data, **options):
    path.write_bytes(data)
    yield lambda: read_conll(path, ("word",), **options)
    yield lambda: list(iter_conll(path, ("word",), n_tokens=2, **options))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n", b""])
def test_a_line_has_a_limit(tmp_path, monkeypatch, end):
    monkeypatch.setattr(readers, "_CHUNK", 8)
    monkeypatch.setattr(readers, "MAX_LINE", 20)
    for read in lines_of(tmp_path / "a", b"a\n\nb\n" + b"x" * 20 + end):
        read()
    for size in (21, 22, 23, 24, 1000):
        for read in lines_of(tmp_path / "a", b"a\n\nb\n" + b"x" * size + end):
            with pytest.raises(ValueError, match=r"a, line 4: expected a line of at most 20 bytes"):
                read()


@pytest.mark.parametrize("chunk", [1, 10, 1 << 18])
def test_a_sentence_has_a_limit(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(readers, "_CHUNK", chunk)
    monkeypatch.setattr(readers, "MAX_SENTENCE", 5)
    for read in lines_of(tmp_path / "a", b"a\n\n" + b"x\n" * 5 + b"\n" + b"y\n" * 5):
        read()
    for read in lines_of(tmp_path / "a", b"a\n\n" + b"x\n" * 5 + b"\n" + b"y\n" * 9):
        with pytest.raises(ValueError, match=r"a, line 14: expected a sentence of at most 5 tokens"):
            read()


def test_a_sentence_of_a_million_tokens_is_none_too_long():
    assert readers.MAX_SENTENCE >= 1_000_000 and readers.MAX_PIECE > readers.MAX_SENTENCE * 40


def test_pieces_have_a_limit_in_bytes(tmp_path, monkeypatch):
    """Of many blank lines, and of short sentences of long lines."""
    monkeypatch.setattr(readers, "MAX_PIECE", 100)
    path = tmp_path / "a"
    path.write_bytes((b"x" * 30 + b"\n\n") * 12 + b"\n" * 300 + b"y\n")
    found = list(iter_conll(path, ("word",), n_tokens=1000))
    assert [piece.n_tokens for piece in found] == [4, 4, 4, 1] and found[-1].columns["word"] == ["y"]
    path.write_bytes(b"a\n\n" + (b"x" * 30 + b"\n") * 12)
    with pytest.raises(ValueError, match=r"a, line 6: expected a sentence of at most 100 bytes, got more$"):
        list(iter_conll(path, ("word",)))


@pytest.mark.parametrize("what", ["a line", "a sentence", "NUL"])
def test_memory_is_bounded_whatever_comes(tmp_path, what):
    """200 MB of it."""
    size = 200_000_000
    data = {"a line": b"x", "a sentence": b"x\n", "NUL": b"\0"}[what] * (1 << 20)

    class Stream(io.RawIOBase):
        name, left = "endless", size

        def readable(self):
            return True

        def readinto(self, out):
            n = min(len(out), len(data), self.left)
            out[:n], self.left = data[:n], self.left - n
            return n

    def read():
        stream = io.BufferedReader(Stream(), 1 << 20)
        with pytest.raises(ValueError, match="^endless, line [0-9]+: expected a (line|sentence) of at most"):
            list(iter_conll(stream, ("word",), n_tokens=1000))

    sizes = {name: getattr(readers, name) for name in ("MAX_SENTENCE", "MAX_PIECE")}
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in sizes.items():
            patch.setattr(readers, name, limit // 16)
        _, peak = peak_bytes(read)
    assert peak < 60_000_000


# ---- what is no file, no name, no separator


@pytest.mark.parametrize("name", ["a\0b", "", "\ud800"])
def test_no_name_of_a_file(name):
    for read in (lambda: read_conll(name), lambda: list(iter_conll(name, ("word",)))):
        with pytest.raises(ValueError, match=r"^path: expected the name of a file, got '"):
            read()


@pytest.mark.parametrize("separator", [3, b"\t", "", "ab", "\n", "é", ("\t",), "\ud800"])
def test_no_separator(separator, tmp_path):
    tokens = read_conll(b"a\n", ("word",))
    for use in (
        lambda: read_conll(b"a\n", ("word",), separator=separator),
        lambda: list(iter_conll(tmp_path / "x", ("word",), separator=separator)),
        lambda: write_conll(tmp_path / "x", tokens, separator),
    ):
        with pytest.raises(ValueError, match=r"^separator: expected None or one ASCII character, found "):
            use()
    with pytest.raises(ValueError, match=r"^separator: expected one ASCII character, found None$"):
        write_conll(tmp_path / "x", tokens, None)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("names", [3, None, "word", b"word", ("word", 3), (), {}])
def test_no_names_of_columns(names):
    with pytest.raises(ValueError, match=r"^columns: expected "):
        read_conll(b"a\n", names)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(b"a\nb\n",))
    writer.start()
    assert read_conll(tmp_path / "pipe", ("word",)).columns == {"word": ["a", "b"]}
    writer.join()
