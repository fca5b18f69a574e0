"""Templates: the notation, its errors, the shipped files, and the named extractors."""

import re
import subprocess
import sys

import pytest

from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from crfbook.encoding.templates import (
    EXTRACTORS,
    Source,
    Template,
    as_template,
    make_extractor,
    shape,
    short_shape,
)


def test_one_pattern_per_line_and_what_is_in_it():
    template = Template.parse(
        '# comment\n\nU01:%x[-1,0]/%x[0,pos] # why\r\nB\nB02:%X[+1,2]\n*03:%%%t[0,0,"a#,]\\""]\nU\n'
    )
    first, both, constant = template.node
    assert first.literals == ("U01:", "/", "")
    assert first.sources == (Source(0, "x", ()), Source("pos", "x", ()))
    assert first.offsets == (-1, 0) and first.line == 3
    assert both.literals == ("*03:%", "") and both.sources == (Source(0, "t", ('a#,]"',)),)
    assert constant.literals == ("U",) and constant.sources == ()
    assert [pattern.line for pattern in template.edge] == [5, 6], (
        "a bare B is the constant edge attribute, which is implicit"
    )
    assert template.reach == (1, 1)
    assert [source.name for source in template.sources] == ["x", "x", "t", "X"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("X01:%x[0,0]", "expected U (node), B (edge), * (both) or # (comment)"),
        ("U:%x[0]", "expected %x[row,column]"),
        ("U:%x[0,0", "is no macro: expected %x[row,column]"),
        ("U:100%", "is no macro"),
        ("U:%x[@1,0]", "expected %x[row,column]"),
        ("U:%x[0,-1]", "the column must be a number from 0 or a name, got '-1'"),
        ("U:%x[0,0,3]", "expected %x[row,column], got 1 further"),
        ("U:%stem[0,0]", "unknown extractor %stem; known: %x"),
        ("U:%prefix[0,0]", "expected %prefix[row,column,n] or"),
        ("U:%prefix[0,0,0]", "lengths must satisfy 1 <= low <= high"),
        ("U:%ngrams[0,0,3,2]", "lengths must satisfy 1 <= low <= high"),
        ('U:%prefix[0,0,"a"]', "expected %prefix[row,column,n]"),
        ("U:%t[0,0,[a-z]]", "must be a whole number or a regular expression in double quotes"),
        ('U:%t[0,0,"("]', "does not compile"),
        ("U:%x[1,0]", "repeats line 1"),
    ],
)
def test_errors_name_the_line_and_the_expected_form(line, message):
    with pytest.raises(ValueError, match=r"template line 2 \(") as caught:
        Template.parse("U:%x[1,0]\n" + line)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("macro", "message"),
    [
        ("%x[-1000000000,0]", "the row must lie within 1,000, got '-1000000000'"),
        ("%x[+1001,0]", "the row must lie within 1,000, got '+1001'"),
        ("%x[0,99999999]", "the column must lie within 1,000,000, got '99999999'"),
        ("%prefix[0,0,1,999999999]", "the length must lie within 100, got '999999999'"),
        ("%suffix[0,0,101]", "the length must lie within 100, got '101'"),
        ("%ngrams[0,0,1,999999999]", "the length must lie within 100, got '999999999'"),
        (f"%prefix[0,0,{'9' * 5000}]", "the length must lie within 100, got '9999"),
    ],
)
def test_rows_columns_and_lengths_have_limits(macro, message):
    with pytest.raises(ValueError, match="^template line 1 ") as caught:
        Template.parse("U:" + macro)
    assert message in str(caught.value) and len(str(caught.value)) < 400
    assert Template.parse("U:%x[-1000,0]/%ngrams[1000,0,1,100]").reach == (1000, 1000)
    with pytest.raises(ValueError, match="lengths must be at most 100, got 101"):
        make_extractor("prefix", (101,))


def test_cells_of_many_values_multiply_up_to_a_limit():
    """At one token: as much is allowed in all, and by one cell alone."""
    many, few = "".join(map(chr, range(300, 1301))), "abcdefghij" * 5
    twice = "U1:%ngrams[0,0,1,1]/%ngrams[0,0,1,1]\n"
    message = r"template pattern 'U1:', sequence 1, token 2: its cells give 1,002,001 attributes together"
    for text in (twice, twice.replace("U", "B")):
        Encoder(text + "U2:%ngrams[0,0,1,3]/%x[0,0]\n").fit([[few], [few, few, few]], [["x"], ["x"] * 3])
        with pytest.raises(ValueError, match=f"{message.replace('U', text[0])}, expected at most 1,000,000"):
            Encoder(text).fit([[few], [few, few, many]], [["x"], ["x"] * 3])
    assert Encoder("U:%x[0,0]/%ngrams[0,0,1,2]").fit([[many * 600]], [["x"]]).n_attrs == 2002


def test_hostile_lines_take_time_in_proportion():
    """Each took hours before: the time grew with the cube of the number of blanks, or with the range."""
    code = """if True:
        from crfbook.encoding.templates import Template
        n = 10**5
        for line in ('%t[0,0,"a"' + " " * n + "b]", "%x[0," + " " * n + '"a"b]', "%x[0,0" + " " * n + '"]',
                     "%x[0,0]" * 1000 + "%" * 10 * n, "%x[0,-1000000000]", "%x[-1000000000,0]"):
            try:
                Template.parse("U:" + line).boundaries
            except ValueError as error:
                assert len(str(error)) < 500, len(str(error))
        """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("text", ["", "\n# nothing\n"])
def test_a_template_without_patterns_is_refused(text):
    with pytest.raises(ValueError, match="no patterns"):
        Template.parse(text)


@pytest.mark.parametrize(
    ("name", "arguments", "text", "expected"),
    [
        ("x", (), "The", ("The",)),
        ("X", (), "The", ("the",)),
        ("lower", (), "The", ("the",)),
        ("t", ("^[A-Z]",), "The", ("true",)),
        ("t", ("^[A-Z]",), "the", ("false",)),
        ("m", ("[0-9]+",), "in1999a", ("1999",)),
        ("m", ("[0-9]+",), "in", ("",)),
        ("M", ("[A-Z]+",), "inABC", ("abc",)),
        ("match", ("[0-9]",), "a1", ("true",)),
        ("match", ("[0-9]",), "a", ()),
        ("prefix", (2,), "abc", ("ab",)),
        ("prefix", (4,), "abc", ()),
        ("prefix", (2, 4), "abc", ("ab", "abc")),
        ("suffix", (1, 2), "abc", ("c", "bc")),
        ("suffix", (1, 2), "", ()),
        ("shape", (), "McCoy-70 ß", ("XxXxx-dd x",)),
        ("shortshape", (), "McCoy-70", ("XxXx-d",)),
        ("shortshape", (), "", ("",)),
        ("ngrams", (1, 2), "aba", ("a", "b", "ab", "ba")),
        ("each", (), " NN  VB NN", ("NN", "VB")),
        ("each", (), "", ()),
    ],
)
def test_extractors(name, arguments, text, expected):
    assert make_extractor(name, arguments)(text) == expected


def test_shapes_are_plain_functions_too():
    assert shape("IBM") == "XXX" and short_shape("IBM") == "X"


def test_every_extractor_is_documented():
    for name in EXTRACTORS:
        assert f"%{name}" in templates.__doc__


@pytest.mark.parametrize("name", templates.available())
def test_shipped_templates_parse_and_say_what_they_are(name):
    template = templates.load(name)
    assert template.text.startswith("# ") and template.node
    assert Template.parse(template.text) == template


def test_chunking_template_is_the_one_of_the_comparisons():
    template = templates.load("chunking")
    assert len(template.node) == 19 and not template.edge
    assert template.reach == (2, 2)


def test_as_template_takes_names_files_and_texts(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("U:%x[0,0]\n", encoding="utf-8")
    mine = Template.parse("U:%x[0,0]\n")
    assert (
        as_template(path) == as_template(str(path)) == as_template("U:%x[0,0]\n") == as_template(mine) == mine
    )
    assert as_template("words") == templates.load("words")
    with pytest.raises(ValueError, match="neither a file nor a shipped template.*chunking"):
        as_template("chunkin")
    with pytest.raises(ValueError, match="there are: chunking"):
        templates.load("chunkin")
    path.write_text("Q\n", encoding="utf-8")
    with pytest.raises(ValueError, match="mine.txt: template line 1"):
        as_template(path)


def test_a_template_prints_short():
    assert repr(Template.parse("U:%x[0,0]\nB\n*:%x[1,0]")) == "<Template: 2 node and 1 edge patterns>"
    assert repr(Template.parse("B")) == "<Template: no node patterns>"


DEEP = "(" * 10_000


@pytest.mark.parametrize(
    "pattern, why", [(DEEP, "recursion"), ("a{99999999999}", "too large"), ("(?\x1b)", "ext")]
)
def test_regular_expressions_that_do_not_compile(pattern, why):
    """Deep ones raised RecursionError, overflowing ones OverflowError."""
    with pytest.raises(ValueError, match=f"does not compile: .*{why}") as caught:
        Template.parse(f'U:%t[0,0,"{pattern}"]')
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(?:a|aa)+b", "(.*)*(.*)*x", "a?" * 60 + "a" * 60])
def test_a_search_without_end_is_stopped(pattern, monkeypatch):
    """It ran for ever, and no signal stopped it outside the main thread."""
    monkeypatch.setattr(templates, "LIMIT", 0.2)
    cell = "a" * 59 + "c"
    with pytest.raises(
        ValueError, match="the regular expression .* takes over 0.2 seconds on 'aaaa"
    ) as caught:
        make_extractor("t", (pattern,))(cell)
    assert repr(pattern)[:70] in str(caught.value)
    monkeypatch.setattr(templates, "LIMIT", 60.0)
    short = ["b", "", "x"]
    expected = [found and found.group() for found in map(re.compile(pattern).search, short)]
    assert templates.searched(pattern, short) == expected


def test_what_is_searched_apart_is_what_re_finds(monkeypatch):
    monkeypatch.setattr(templates, "LIMIT", 60.0)
    cells = ["", "a-b", "\ud800-x", "ß" * 200, "Ab-cd-" * 50, "e\u0301-\u2028", "a\nb", "\x1c_"]
    for pattern in (r"(\w+-)*\w+", r"(\s|-)+$", r"(?i)(SS|ß)+", r"(?s)(.|\n)*\W", r"([^-]*)-(?:\1|x)?"):
        expected = [found and found.group() for found in map(re.compile(pattern).search, cells)]
        assert templates._in_a_process(pattern, cells) == expected == templates.searched(pattern, cells)
