"""Texts of templates that nobody should write: one sentence, or the attributes that are defined."""

import itertools
import re
import warnings
from collections import Counter

import pytest
from helpers.attacks import ODD_TEXTS, attacks, one_sentence

from crfbook import Encoder, Template
from crfbook.encoding import templates as regexes
from crfbook.encoding.templates import as_template

pytestmark = pytest.mark.kernels
ATOMS = [
    "a", "b", "A", "ß", ".", r"\w", r"\W", r"\s", r"\d", r"\b", "[a-z]", "[^a]", "[]a]", "[[a]", "[a&&b]",
    "[[:alpha:]]", "^", "$", r"\Z", r"\1", r"\2", r"\x41", r"\u0301", r"\N{DIGIT ONE}", "\ud800", "\0", "-",
    "{", "{e<=1}", r"\p{L}", r"\q", ")", "(?R)", "(?P=n)", "(?(1)a|b)", r"\\", '\\"', " ", "\u2028", "İ", "#",
]  # fmt: skip
AROUND = (
    "({})", "(?:{})", "(?P<n>{})", "(?={})", "(?!{})", "(?<={})", "(?<!{})", "(?>{})", "(?i:{})", "[{}]",
    "({}|a)",
)  # fmt: skip
REPEATS = (
    "*", "+", "?", "*?", "++", "{2}", "{1,3}", "{,2}", "{0,65535}", "{99999999999}", "{3,1}", "**",
    "{4294967296}",
)  # fmt: skip
FLAGS = "", "", "", "", "(?i)", "(?s)", "(?x)", "(?a)", "(?L)", "(?u)", "(?ai)", "(?Q)"
EXPLODING = (
    "(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*)*x", r"(\w+\s?)*!", "(?:a?){40}a{40}", r"^(([a-z])+.)+[A-Z]+$",
)  # fmt: skip
CELLS = [
    "", "a", "b", "Ab-12", "ß", "İstanbul", "e\u0301", "\ud800", "a\nb", "\0", "\x1c", " a  b ", "aaaaaa!",
    "_B-1", "a" * 45 + "c", "ab" * 30, "ﬁ", "x" * 3000, "\u2028", "%x", '"',
]  # fmt: skip
ROWS = (
    "0", "0", "0", "0", "-1", "+1", "2", "-0", "007", "1000", "-1001", "99999999999", "@1", "1.5", "", "٣",
    "0x1",
)  # fmt: skip
COLUMNS = "0", "0", "0", "word", "word", "1", "tag", "7", "1000001", "é", "a b", "-1", "", "٠", "word\0"
NUMBERS = "1", "2", "3", "0", "100", "101", "-1", "1.5", "99999999999", "", '"1"', "٣"
NAMES = (
    "x", "X", "lower", "inside", "shape", "shortshape", "each", "prefix", "suffix", "ngrams", "t", "T", "m",
    "M", "match",
)  # fmt: skip
BY_REGEX = "t", "T", "m", "M", "match"


def a_regex(rng, depth=3):
    if depth == 3 and (way := rng.random()) < 0.25:
        nested = int(rng.integers(1, 20_000))
        deep = "(" * nested + "a" + ")*" * nested if way < 0.03 else "(?:" * nested
        return deep if way < 0.05 else rng.one_of(EXPLODING)
    parts = [rng.one_of(FLAGS)] if depth == 3 else []
    for _ in range(int(rng.integers(1, 4))):
        part = rng.one_of(ATOMS)
        if depth and rng.random() < 0.4:
            part = rng.one_of(AROUND).replace("{}", a_regex(rng, depth - 1))
        parts.append(part + (rng.one_of(REPEATS) if rng.random() < 0.3 else ""))
        if rng.random() < 0.15:
            parts.append("|")
    return "".join(parts)


def compiles(pattern):
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False


def a_macro(rng, honest):
    rows, columns = (ROWS[:7], COLUMNS[:7]) if honest else (ROWS, COLUMNS)
    name = rng.one_of(NAMES)
    fields = [rng.one_of(rows), rng.one_of(columns)]
    if name in BY_REGEX:
        some = [a_regex(rng) for _ in range(8 if rng.random() < 0.7 else 1)]
        fields.append(f'"{next(filter(compiles, some), some[0])}"')
    elif name in ("prefix", "suffix", "ngrams"):
        n_lengths = 2 if name == "ngrams" else int(rng.integers(1, 3))
        fields += sorted(rng.one_of(NUMBERS[:3] if honest else NUMBERS) for _ in range(n_lengths))
    if not honest and rng.random() < 0.2:
        fields = fields[:-1] if rng.random() < 0.5 else [*fields, rng.one_of(NUMBERS)]
    return f"%{name}[{rng.one_of([',', ' , ']).join(fields)}]"


def a_line(rng):
    honest = rng.random() < 0.8
    literals = (
        "/",
        "%%",
        ":",
        "\0",
        "\ud800",
        '"',
        "é",
        " # why",
        " ",
        "#",
        "\x1b",
        *(() if honest else ("%", "%y[0,0]")),
    )
    parts = [rng.one_of(["U", "U", "U", "u", "*", "B"] + ["", "X", "\0", "#"] * (not honest))]
    for _ in range(int(rng.integers(1, 4))):
        parts.append(a_macro(rng, honest) if rng.random() < 0.6 else rng.one_of(literals))
    return "".join(parts)


def expected(template, cells, t):
    """The node attributes of token t of one sequence, by the words of the module's docstring."""
    found = Counter()
    for pattern in template.node:
        values = []
        for source, offset in zip(pattern.sources, pattern.offsets, strict=True):
            at = t + offset
            if 0 <= at < len(cells):
                column = source.column if isinstance(source.column, str) else ("word", "tag")[source.column]
                values.append(extracted(source.name, source.arguments, cells[at][column]))
            else:
                inside = source.name in ("inside", "each")
                values.append([] if inside else [f"_B{at}" if at < 0 else f"_B+{at - len(cells) + 1}"])
        for some in itertools.product(*values):
            found["".join(itertools.chain(*zip(pattern.literals, [*some, ""], strict=True)))] += 1
    return found


def extracted(name, arguments, cell):
    if name in BY_REGEX:
        match = re.search(arguments[0], cell)
        if name in ("t", "T"):
            return ["true" if match else "false"]
        if name == "match":
            return ["true"] if match else []
        text = match[0] if match else ""
        return [text.lower() if name == "M" else text]
    if name in ("prefix", "suffix", "ngrams"):
        low, high = arguments[0], arguments[-1]
        if name == "ngrams":
            return {cell[i:j] for i in range(len(cell)) for j in range(i + low, min(i + high, len(cell)) + 1)}
        sizes = range(low, min(high, len(cell)) + 1)
        return [cell[:n] if name == "prefix" else cell[len(cell) - n :] for n in sizes]
    if name == "each":
        return set(cell.split())
    kinds = ["X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in cell]
    if name == "shortshape":
        kinds = [key for key, _ in itertools.groupby(kinds)]
    return ["".join(kinds) if "shape" in name else cell.lower() if name in ("X", "lower") else cell]


def attempt(rng, call, *arguments):
    try:
        return call(*arguments)
    except (ValueError, TypeError) as error:
        assert one_sentence(error), (rng.number, error)
        return None


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(regexes, "LIMIT", 0.1)
    warnings.filterwarnings("ignore", "Possible (nested set|set )", FutureWarning)


def test_a_template_is_refused_or_means_what_it_says():
    taken = 0
    for rng in attacks("patterns"):
        text = "\n".join(a_line(rng) for _ in range(int(rng.integers(1, 4))))
        template = attempt(rng, Template.parse, text)
        if template is None:
            continue
        assert Template.parse(template.text) == template
        X = [
            [dict(word=rng.one_of(CELLS), tag=rng.one_of(CELLS[:9])) for _ in range(int(rng.integers(1, 4)))]
            for _ in range(2)
        ]
        y = [["O"] * len(sequence) for sequence in X]
        encoder = Encoder(template)
        corpus = attempt(rng, encoder.fit_transform, X, y)
        if corpus is None:
            continue
        names, at, taken = encoder.attribute_names(), 0, taken + 1
        for sequence in X:
            for t in range(len(sequence)):
                items = slice(*corpus.attr_ptr[at : at + 2])
                found = Counter()
                for i, value in zip(corpus.attr_idx[items], corpus.values[items], strict=True):
                    found[names[i]] += value
                assert found == expected(template, sequence, t), (rng.number, text, sequence, t)
                at += 1
    assert taken


def test_odd_names_of_templates():
    for rng in attacks("patterns"):
        odd = rng.one_of([*ODD_TEXTS, 3, None, b"U:%x[0,0]", ["U:%x[0,0]"], "pos\0", "/", "~", "x" * 100_000])
        attempt(rng, as_template, odd)
