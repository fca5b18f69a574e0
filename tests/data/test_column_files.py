"""Column files as people have them: comments, documents, missing labels, byte order marks, CoNLL-U."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crfbook.data.readers as readers
from crfbook import TokenColumns, read_conll, write_conll
from crfbook.data.readers import CONLLU_FIELDS, iter_conll

BOM = b"\xef\xbb\xbf"
NER = {"columns": ("word", "ner"), "label": "ner"}
LINES = (
    b"a X", b"# b", b"#c Y", b"-DOCSTART- O", b" \t-DOCSTART-", b"", b" \t", b"d", BOM + b"e X", BOM,
    b"f" + BOM + b" Z", b"# g h i",
)  # fmt: skip


def by_lines(lines, comment, docstart, unlabelled):
    """The definition: sentences of (word, label), and the number of the first wrong line or None."""
    sentences = [[]]
    for number, line in enumerate(lines, 1):
        text = line.replace(BOM, b"").decode()
        if comment and text.startswith(comment):
            continue
        cells = text.split()
        if not cells or (docstart == "drop" and cells[0] == "-DOCSTART-"):
            sentences.append([])
        elif len(cells) == 2 or (unlabelled and len(cells) == 1):
            sentences[-1].append((cells[0], cells[1] if len(cells) == 2 else None))
        else:
            return None, number
    return [sentence for sentence in sentences if sentence], None


@settings(deadline=None, max_examples=300)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=9), comment=st.sampled_from([None, "#", "# "]),
    docstart=st.sampled_from(["keep", "drop"]), unlabelled=st.booleans(), piece=st.integers(1, 30),
)  # fmt: skip
def test_as_reading_line_by_line(lines, comment, docstart, unlabelled, piece):
    want, wrong = by_lines(lines, comment, docstart, unlabelled)
    options = {"comment": comment, "docstart": docstart, "unlabelled": unlabelled}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_CHUNK", piece)
        if wrong:
            with pytest.raises(ValueError, match=f"line {wrong}: expected 2 columns"):
                read_conll(b"\n".join(lines), **NER, **options)
            return
        tokens = read_conll(b"\n".join(lines), **NER, **options)
    assert list(tokens) == want
    parts = list(iter_conll(io.BytesIO(b"\n".join(lines)), **NER, n_tokens=2, **options))
    assert [sentence for part in parts for sentence in part] == want
    out = io.StringIO()
    write_conll(out, tokens)
    assert read_conll(out.getvalue().encode(), **NER, unlabelled=True) == tokens


def test_labels_may_be_missing_between_tabs():
    options = {"columns": ("ner", "word"), "label": "ner", "separator": "\t", "unlabelled": True}
    tokens = read_conll(b"X\tNew York\n\tb\n\n\tc\n", **options)
    assert tokens.labels == ["X", None, None] and tokens.columns == {"word": ["New York", "b", "c"]}
    with pytest.raises(ValueError, match=r"line 1: column 2 \(word\) is empty$"):
        read_conll(b"X\t\n", **options)
    with pytest.raises(ValueError, match="unlabelled=True: expected the label in the last column"):
        read_conll(b"", **options | {"separator": None})
    with pytest.raises(ValueError, match="unlabelled=True: expected the label"):
        read_conll(b"", ("word",), unlabelled=True)


@pytest.mark.parametrize(
    "data, options, said",
    [
        (
            b"a X\n# id 1 2\n",
            {},
            r"mine.conll, line 2: .* found 4: '# id 1 2'; comment='#' leaves such lines out$",
        ),
        (b"-DOCSTART-\n", {}, "line 1: .* docstart='drop' leaves such lines out$"),
        (b"a X\n\nb\n", {}, "line 3: .* unlabelled=True reads lines without a label$"),
        (b"New York\tX\n", {}, r"line 1: .* separator='.t' keeps blanks in cells$"),
        (b"a X\n", {"separator": "\t"}, "line 1: .* separator=None splits at blanks and tabs$"),
        (b"1\ta\t" + b"\t".join([b"_"] * 8) + b"\n", {}, "line 1: .* format='conllu' reads CoNLL-U$"),
        (
            b"a\t\n",
            {"separator": "\t"},
            r"line 1: column 2 \(ner\) is empty; unlabelled=True reads lines without",
        ),
        (b"a b c d\n", {}, "found 4: 'a b c d'$"),
    ],
)
def test_errors_name_the_option_that_helps(tmp_path, data, options, said):
    path = tmp_path / "mine.conll"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said):
        read_conll(path, **NER, **options)
    if "conllu" in said:
        path.with_suffix(".conllu").write_bytes(b"# sent_id = 1\n" + data)
        with pytest.raises(ValueError, match=r"mine.conllu, line 1: .* format='conllu' reads CoNLL-U$"):
            read_conll(path.with_suffix(".conllu"), **NER)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"comment": ""}, "comment: expected None or the beginning of comments, such as '#', found ''"),
        ({"comment": 3}, "comment: expected None"),
        ({"docstart": "no"}, "docstart: expected one of 'keep', 'drop', got 'no'"),
        ({"format": "conll"}, "format: expected one of 'columns', 'conllu', got 'conll'"),
    ],
)
def test_options_are_checked(options, said):
    with pytest.raises(ValueError, match=said):
        read_conll(b"a X\n", **NER, **options)


TREE = """\ufeff# sent_id = 1
# text = Vamonos al mar
1-2\tVamonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\tMood=Imp|Number=Plur\t0\troot\t_\tNER=O
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
2.1\tel\t_\t_\t_\t_\t_\t_\t_\t_
3\tal mar\tmar\tNOUN\t_\tNumber=Sing\t1\tobl\t_\tNER=B-LOC

# sent_id = 2
1\tSi\tsi\tINTJ\t_\t_\t0\troot\t_\t_
"""


def test_conllu_columns_are_chosen():
    tokens = read_conll(TREE.encode(), format="conllu")
    assert tokens.names == ("word", "upos", "xpos", "feats", "head", "deprel") and len(tokens) == 2
    names = "FORM", "lemma", "feats.Number", "feats.*", "misc.NER"
    tokens = read_conll(TREE.encode(), names, label="misc.NER", format="conllu", unlabelled=True)
    assert tokens.columns == {
        "FORM": ["Vamos", "nos", "al mar", "Si"],
        "lemma": ["ir", "nosotros", "mar", "si"],
        "feats.Number": ["Plur", "_", "Sing", "_"],
        "feats.*": ["Mood=Imp Number=Plur", "_", "Number=Sing", "_"],
    }
    assert tokens.labels == ["O", None, "B-LOC", None]
    for name in ("pos", "feat.Number", "word.x.y", "word."):
        if name.startswith("word"):
            assert read_conll(TREE.encode(), (name,), format="conllu").n_tokens == 4
            continue
        with pytest.raises(ValueError, match=f"columns: expected names among id, word, .* found '{name}'"):
            read_conll(TREE.encode(), (name,), format="conllu")


def test_conllu_plus_names_its_columns():
    text = "# global.columns = ID FORM CRF:NER\n1\ta\tB-X\n2\tb\tO\n"
    tokens = read_conll(text.encode(), ("form", "crf:ner"), label="crf:ner", format="conllu")
    assert tokens.labels == ["B-X", "O"] and tokens.columns == {"form": ["a", "b"]}


def test_conllu_is_written_as_it_was_read(tmp_path):
    tokens = read_conll(TREE.encode(), CONLLU_FIELDS, label="upos", format="conllu")
    path = tmp_path / "x.conllu"
    write_conll(path, tokens, format="conllu")
    assert read_conll(path, CONLLU_FIELDS, label="upos", format="conllu") == tokens
    rows = [line for line in TREE.split("\n") if line and line[0] != "#" and line.split("\t")[0].isdecimal()]
    assert [line for line in path.read_text("utf-8").split("\n") if line] == [
        r for r in rows if r[0] != "\ufeff"
    ]
    write_conll(path, TokenColumns({"word": ["a b"]}, [0, 1], [None], "upos"), format="conllu")
    assert path.read_text() == "1\ta b\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    with pytest.raises(ValueError, match="format='conllu': expected columns id, word, .* found 'ner'"):
        write_conll(path, TokenColumns({"word": ["a"]}, [0, 1], ["O"], "ner"), format="conllu")


def test_what_would_not_come_back_is_not_written():
    for tokens, extra in (
        (TokenColumns({"word": ["a\ufeff"]}, [0, 1]), ()),
        (TokenColumns({}, [0, 1], [None]), ()),
        (TokenColumns({"word": ["a"]}, [0, 1], [None]), [["x"]]),
    ):
        with pytest.raises(ValueError, match="sequence 0, token 0: expected a string that fits"):
            write_conll(io.StringIO(), tokens, extra=extra)
    for cell in ("a\rb", "a\nb", "a\tb", " ", "", "\ud800", "\ufeff", 3):
        with pytest.raises(ValueError, match="sequence 0, token 0: expected a string that fits"):
            write_conll(io.StringIO(), TokenColumns({"word": [cell]}, [0, 1]), separator="\t")


def test_pieces_of_all_that_can_be_read(tmp_path):
    data = "é\tX\n\nb \t X\n"  # blanks and tabs in one file
    (tmp_path / "x.conll").write_text(data, "utf-8")
    want = read_conll(data.encode(), **NER)
    assert want.labels == ["X", "X"]
    for source in (io.BytesIO(data.encode()), io.StringIO(data), data.encode(), tmp_path / "x.conll"):
        parts = list(iter_conll(source, **NER, n_tokens=1))
        assert len(parts) == 2 and [row for part in parts for row in part] == list(want)
    with pytest.raises(ValueError, match="^<file>, line 3: expected 2 columns .*, found 1: 'b'"):
        list(iter_conll(io.BytesIO(b"a X\n\nb\n"), **NER))
    with pytest.raises(ValueError, match="^path: expected the name of a file, got 3$"):
        list(iter_conll(3, **NER))


def test_names_of_conllu_columns_are_written_as_they_are_read(tmp_path):
    path = tmp_path / "x.conllu"
    for names in (("form", "UPOS", "Lemma"), ("FORM", "upos", "LEMMA")):
        tokens = read_conll(TREE.encode(), names, label=names[1], format="conllu")
        write_conll(path, tokens, format="conllu")
        assert read_conll(path, names, label=names[1], format="conllu") == tokens
    for names in (("word", "form"), ("word", "FORM"), ("word", "feats.Number")):
        tokens = TokenColumns({name: ["a"] for name in names}, [0, 1])
        with pytest.raises(ValueError, match=f"columns id, word, .*, each once, found '{names[1]}'"):
            write_conll(path, tokens, format="conllu")
    with pytest.raises(ValueError, match="each once, found 'UPOS'"):
        write_conll(path, TokenColumns({"upos": ["a"]}, [0, 1], ["b"], "UPOS"), format="conllu")


def test_what_conllu_leaves_empty_is_not_there():
    """An empty cell and a feature without a value are _; they are written again."""
    line = b"1\ta\t\t\t_\tA|B=|C=x\t0\troot\t_\t\n"
    names = "word", "lemma", "feats.A", "feats.B", "feats.C", "misc.*", "upos"
    tokens = read_conll(line, names, "upos", format="conllu", unlabelled=True)
    assert tokens[0] == [("a", "_", "_", "_", "x", "_", None)]
    out = io.StringIO()
    write_conll(out, tokens.select(["word", "lemma"]), format="conllu")
    assert out.getvalue() == "1\ta" + "\t_" * 8 + "\n\n"


@pytest.mark.parametrize("number", ["x", "", "0", "01", "1-", "-1", "²", "١", "9" * 5000])
def test_numbers_of_words_are_read_as_they_are_written(number):
    with pytest.raises(ValueError, match="^<bytes>, line 1: expected word 1, found '"):
        read_conll((number + "\ta" + "\t_" * 8).encode(), format="conllu")


def test_nothing_is_left_out_in_silence(tmp_path):
    tokens = TokenColumns({"word": ["a"]}, [0, 1])
    with pytest.raises(ValueError, match="^format='conllu': expected no extra columns, found 1$"):
        write_conll(io.StringIO(), tokens, extra=[["x"]], format="conllu")
    for path in (None, 3):
        with pytest.raises(ValueError, match="^path: expected the name of a file, got "):
            write_conll(path, tokens)
