"""Feature templates: CRF++ and Wapiti pattern files, with named extractors written the same way.

A template has one pattern a line:

    # chunking                      a comment; also after blanks at the end of a line
    U01:%x[-1,0]/%x[0,0]            node attributes: previous and present cell of column 0
    U02:%x[0,pos]                   columns by number (from 0) or by name
    U10:%prefix[0,0,1,4]            a named extractor: prefixes of 1 to 4 characters
    U                               a constant: one attribute that every token has
    B                               plain transitions
    B02:%x[0,1]                     edge attributes: transitions that depend on a cell
    *03:%x[0,0]                     both a node and an edge pattern (Wapiti)

The first character says where the attributes go: `U` to the label of the token, `B` to the pair of
labels (previous, present), `*` to both; case does not matter. All that follows, this character
included, is the attribute's text, in which each `%name[row,column,...]` is replaced by what the
extractor gives for the cell `row` tokens further on. `%%` is a per cent sign.

Rules, where the tools differ:

- A cell before the first or behind the last token is its own symbol per distance: `_B-1`, `_B-2`,
  `_B+1`, ... whatever the extractor (but for `%inside` and `%each`, which give nothing there).
  It is never confused with a token spelt `_B-1`.
- Two patterns with the same text and the same extractors and columns, at different rows, share their
  attributes (CRF++'s bag of words); the values of an attribute that occurs twice at a token add up.
- Attributes are compared cell by cell, not as strings: `a/b` + `c` is not `a` + `b/c`.
- Plain transitions always exist, as in CRFsuite; a line `B` may be left out.
- An edge attribute belongs to the transition INTO the token; there is none into a first token.
- Wapiti's absolute positions (`%x[@1,0]`) are not supported and refused.
- A pattern whose extractor gives nothing for a cell gives no attribute; several values give one each
  (with several such cells: every combination).

An extractor maps one string to a tuple of strings: one attribute for each, none if the tuple is empty.
They are applied to the vocabulary of a column, once per distinct string, never to tokens.

| form | gives |
|---|---|
| `%x[row,column]` | the string itself (CRF++, Wapiti) |
| `%inside[row,column]` | the string itself; nothing for a cell outside the sequence (others: a boundary) |
| `%X[row,column]`, `%lower[row,column]` | the string in lower case (Wapiti's `%X`) |
| `%t[row,column,"regex"]` (also `%T`) | `true` or `false`: does it match somewhere (Wapiti) |
| `%m[row,column,"regex"]` | the first text that matches, or the empty string (Wapiti); `%M` in lower case |
| `%match[row,column,"regex"]` | `true` where it matches, nothing elsewhere |
| `%prefix[row,column,n]` | the first n characters; nothing for a shorter string |
| `%prefix[row,column,low,high]` | one attribute for every length from low to high |
| `%suffix[row,column,n]`, `%suffix[row,column,low,high]` | the same from the end |
| `%shape[row,column]` | `X` capital, `x` letter, `d` digit, all else unchanged: `McCoy-7` gives `XxXxx-d` |
| `%shortshape[row,column]` | the same with runs shortened: `XxXx-d` |
| `%ngrams[row,column,low,high]` | every distinct character n-gram with low <= n <= high |
| `%each[row,column]` | every distinct part of a cell that blanks divide; nothing outside the sequence |

Regular expressions are those of Python's `re` (search, not a full match). One of your own that takes more
than 2 seconds on one cell is stopped, with an error that names both (`regexes`). Rows lie within 1,000
tokens, lengths within 100 characters: a line of a file cannot ask for more work than its data are worth.

Such a search runs in a process of its own, since within a process nothing stops it in every thread and on
every system. `re` tries one way after the other: for `(a+)+$` on 40 letters a and a b some 10^12. A watchdog
of Python ends the process after LIMIT seconds on one cell. Most searches are short by the form of the
expression, and start no process.

Sources: CRF++ 0.59 and Wapiti 1.5 manuals for the notation.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from crfbook._checks import File, shown

LIMIT = 2.0  # seconds for one cell
STEPS = 10**7  # of a search that is never stopped: some tenths of a second

# reads limit, pattern and cells; writes a line for each cell, for which the watchdog is set anew
_CHILD = """
import faulthandler, json, re, sys
limit, pattern, cells = json.load(sys.stdin)
for cell in cells:
    faulthandler.dump_traceback_later(limit, exit=True)
    found = re.search(pattern, cell)
    print(json.dumps(found and found.group()), flush=True)
"""


def compiled(pattern: str) -> re.Pattern:
    """The compiled regular expression. Raises ValueError, one sentence, for what does not compile."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        why = shown(str(error))[1:-1]
        raise ValueError(f"the regular expression {shown(pattern)} does not compile: {why}") from None


def searched(pattern: str, cells: Sequence[str], trusted: bool = False) -> list[str | None]:
    """The first text that the regular expression matches in each of the cells; None: none.

    trusted : whether it is known to be fast.

    Raises ValueError that names the cell which takes over LIMIT seconds.
    """
    search = compiled(pattern).search
    slow = [] if trusted else [cell for cell in dict.fromkeys(cells) if not _is_short(pattern, len(cell))]
    apart = dict(zip(slow, _in_a_process(pattern, slow), strict=True)) if slow else {}
    found = ((cell, None if cell in apart else search(cell)) for cell in cells)
    return [match.group() if match else apart.get(cell) for cell, match in found]


def _is_short(pattern: str, n: int) -> bool:
    """Whether a search in n characters takes at most STEPS steps, by a bound that needs no parser.

    It allows no repeat within a repeat, and counts n + 1 ways of each repeat, and two of each "|".
    """
    plain = re.sub(r"(?s)\\.", "", pattern).replace("(?", "(")
    repeats, bars = sum(map(plain.count, "*+?{")), plain.count("|")
    nested = "(" in plain and repeats and repeats + bars > 1
    return not nested and bars < 64 and (n + 1) ** (repeats + 1) * 2**bars * (len(pattern) + n) <= STEPS


def _in_a_process(pattern: str, cells: Sequence[str]) -> list[str | None]:
    told = json.dumps([LIMIT, pattern, cells]).encode()
    run = subprocess.run([sys.executable, "-I", "-S", "-c", _CHILD], input=told, capture_output=True)
    lines = run.stdout.splitlines()
    if len(lines) < len(cells):
        timeout = run.stderr.startswith(b"Timeout")
        why = f"takes over {LIMIT:g} seconds" if timeout else f"failed, {shown(run.stderr[-60:].decode())},"
        raise ValueError(f"the regular expression {shown(pattern)} {why} on {shown(cells[len(lines)])}")
    return list(map(json.loads, lines))


_FOLDER = Path(__file__).parent / "patterns"
_MACRO = re.compile(r'%(?P<name>[A-Za-z]+)\[(?P<body>(?:[^\]"]|"(?:[^"\\]|\\.)*")*)\]')
# possessive: nothing is tried twice, whatever the number of blanks
_FIELD = r'\s*+("(?:[^"\\]|\\.)*+"|[^,"]*+)\s*+'
MAX_OFFSET, MAX_COLUMN, MAX_LENGTH = 1000, 10**6, 100  # of a cell's row, its column, and a prefix's length
_FORM = (
    "expected %x[row,column] or %extractor[row,column,argument,...], "
    "for example %x[-1,0] or %suffix[0,word,3]"
)


class Source(NamedTuple):
    """What one column is turned into: `column` (number or name), extractor `name`, `arguments`."""

    column: int | str
    name: str
    arguments: tuple


class Pattern(NamedTuple):
    """One line: text `literals[0] cell[0] literals[1] ...`, where cell i is `sources[i]` at `offsets[i]`."""

    literals: tuple[str, ...]
    sources: tuple[Source, ...]
    offsets: tuple[int, ...]
    line: int


class Template(NamedTuple):
    """A parsed template. `node` and `edge` are lists of `Pattern`; `text` is what was parsed.

    `edge` holds only patterns with cells: the constant one (plain transitions) is implicit.
    """

    node: list[Pattern]
    edge: list[Pattern]
    text: str

    @classmethod
    def parse(cls, text: str, regexes: Container[str] | None = None) -> Template:
        """Parse a template text. regexes : the regular expressions that it may hold; None: any.

        Raises ValueError that names the line and the expected form; also for a text without patterns and
        for a line that repeats an earlier one.
        """
        node: list[Pattern] = []
        edge: list[Pattern] = []
        seen: dict[tuple, int] = {}
        for number, raw in enumerate(text.split("\n"), 1):
            line = _strip_comment(raw)
            if not line:
                continue
            try:
                pattern = _parse_line(line, number, regexes)
            except ValueError as error:
                raise ValueError(f"template line {number} ({shown(line)}): {error}") from None
            first = seen.setdefault(pattern[:3], number)
            if first != number:
                raise ValueError(f"template line {number} ({shown(line)}) repeats line {first}")
            if line[0] in "Uu*":
                node.append(pattern)
            if line[0] in "Bb*" and pattern.sources:
                edge.append(pattern)
        if not seen:
            raise ValueError("the template has no patterns: expected lines such as U01:%x[0,0]")
        return cls(node, edge, text)

    def __repr__(self) -> str:
        """Short: estimators print their parameters. The patterns are in `text`."""
        counts = [f"{len(part)} {name}" for name, part in (("node", self.node), ("edge", self.edge)) if part]
        return f"<Template: {' and '.join(counts) or 'no node'} patterns>"

    @property
    def sources(self) -> list[Source]:
        """The distinct (column, extractor, arguments), in order of appearance."""
        return list(dict.fromkeys(source for pattern in self.node + self.edge for source in pattern.sources))

    @property
    def reach(self) -> tuple[int, int]:
        """How many tokens the patterns look back and ahead, both >= 0."""
        offsets = [0] + [offset for pattern in self.node + self.edge for offset in pattern.offsets]
        return -min(offsets), max(offsets)

    @property
    def boundaries(self) -> list[str]:
        """Texts of the cells outside a sequence, in the order of their codes."""
        back, ahead = self.reach
        return [f"_B-{d}" for d in range(1, back + 1)] + [f"_B+{d}" for d in range(1, ahead + 1)]


def load(name: str) -> Template:
    """A template shipped with crfbook, by name: see `available()`."""
    if name not in available():
        raise ValueError(f"no shipped template {shown(name)}; there are: {', '.join(available())}")
    return Template.parse((_FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


def available() -> list[str]:
    """Names of the shipped templates."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


TemplateLike = Template | File | None


@cache
def shipped_regexes() -> frozenset[str]:
    """The regular expressions of all shipped templates."""
    arguments = (part for name in available() for source in load(name).sources for part in source.arguments)
    return frozenset(argument for argument in arguments if isinstance(argument, str))


def as_template(template: Template | File) -> Template:
    """A `Template` from a template, a path, the name of a shipped one, or a template's text.

    A str that holds a line break or `%` is a text; else a shipped name; else a path.
    """
    if isinstance(template, Template):
        return template
    if isinstance(template, str):
        if "\n" in template or "%" in template:
            return Template.parse(template)
        if template in available():
            return load(template)
    if not isinstance(template, str | os.PathLike):
        raise TypeError(f"template: expected a Template, a name, a path or a text, got {shown(template)}")
    path = Path(os.fsdecode(template))
    if not os.path.isfile(path):  # False also where no file can be called so
        raise ValueError(
            f"template {shown(str(template))} is neither a file nor a shipped template "
            f"({', '.join(available())}) nor a template text"
        )
    try:
        return Template.parse(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _strip_comment(raw: str) -> str:
    """The line without its comment (`#` at the start or after a blank, outside quotes) and outer blanks."""
    quoted = False
    for position, character in enumerate(raw):
        if character == '"' and (position == 0 or raw[position - 1] != "\\"):
            quoted = not quoted
        if character == "#" and not quoted and (position == 0 or raw[position - 1].isspace()):
            return raw[:position].strip()
    return raw.strip()


def _parse_line(line: str, number: int, regexes: Container[str] | None) -> Pattern:
    if line[0] not in "UuBb*":
        raise ValueError("expected U (node), B (edge), * (both) or # (comment) as the first character")
    literals, sources, offsets = [[]], [], []
    position = 0
    while position < len(line):
        sign = line.find("%", position)
        literals[-1].append(line[position : sign if sign >= 0 else len(line)])
        if sign < 0:
            break
        if line[sign : sign + 2] == "%%":
            literals[-1].append("%")
            position = sign + 2
            continue
        macro = _MACRO.match(line, sign)
        if macro is None:
            raise ValueError(f"{shown(line[sign:])} is no macro: {_FORM}")
        source, offset = _parse_macro(macro, regexes)
        sources.append(source)
        offsets.append(offset)
        literals.append([])
        position = macro.end()
    return Pattern(tuple(map("".join, literals)), tuple(sources), tuple(offsets), number)


def _parse_macro(macro: re.Match, regexes: Container[str] | None) -> tuple[Source, int]:
    fields = _split(macro["body"])
    text = shown(macro[0])
    if len(fields) < 2 or not re.fullmatch(r"[+-]?\d+", fields[0]):
        raise ValueError(f"{text}: {_FORM}")
    if not re.fullmatch(r"\d+|[^\W\d]\w*", fields[1]):
        raise ValueError(f"{text}: the column must be a number from 0 or a name, got {shown(fields[1])}")
    try:
        offset = _within("row", fields[0], MAX_OFFSET)
        column = _within("column", fields[1], MAX_COLUMN) if fields[1].isdecimal() else fields[1]
        arguments = tuple(map(_argument, fields[2:]))
        for argument in arguments:  # refused before it is compiled
            if regexes is not None and isinstance(argument, str) and argument not in regexes:
                raise ValueError(
                    f"the regular expression {shown(argument)} may take very long on some text; "
                    "CRF.load(path, trust=True) takes it from a file that you trust"
                )
        make_extractor(macro["name"], arguments)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None
    return Source(column, macro["name"], arguments), offset


def _within(what, digits, most):
    """The whole number that the digits stand for; ValueError for one beyond `most`, never converted."""
    if len(digits) > 9 or abs(int(digits)) > most:
        raise ValueError(f"the {what} must lie within {most:,}, got {shown(digits)}")
    return int(digits)


def _split(body: str) -> list[str]:
    """Comma-separated fields; commas inside quotes do not count."""
    if not re.fullmatch(f"{_FIELD}(?:,{_FIELD})*+", body):
        return []
    return [field.rstrip() for field in re.findall(f"(?:^|,){_FIELD}", body)]


def _argument(field: str) -> int | str:
    if re.fullmatch(r"\d+", field):
        return _within("length", field, MAX_LENGTH)
    if len(field) >= 2 and field[0] == field[-1] == '"':
        return field[1:-1].replace('\\"', '"')
    raise ValueError(
        f"argument {shown(field)} must be a whole number or a regular expression in double quotes"
    )


# ---- extractors: what `%name[row,column,...]` turns a cell's string into ----


Extract = Callable[[str], tuple[str, ...]]


class Extractor(NamedTuple):
    """`forms`: how it is written, for error messages; `make(*arguments)` returns the function on strings.

    `padded`: a cell outside the sequence gives a boundary symbol; else it gives nothing.
    """

    forms: str
    make: Callable[..., Extract]
    padded: bool = True


def _identity() -> Extract:
    return lambda text: (text,)


def _lower() -> Extract:
    return lambda text: (text.lower(),)


def _by_regex(then: Callable[[str | None], tuple[str, ...]], pattern: str) -> Extract:
    compiled(pattern)
    return lambda text: then(*searched(pattern, [text], pattern in shipped_regexes()))


def _lengths(low: int, high: int | None) -> range:
    """low..high as a range; both are lengths in characters."""
    high = low if high is None else high
    if not 1 <= low <= high:
        raise ValueError(f"lengths must satisfy 1 <= low <= high, got {low} and {high}")
    if high > MAX_LENGTH:  # from a caller; in a template the sentence came before
        raise ValueError(f"lengths must be at most {MAX_LENGTH}, got {high}")
    return range(low, high + 1)


def _prefix(low: int, high: int | None = None) -> Extract:
    lengths = _lengths(low, high)
    return lambda text: tuple(text[:n] for n in lengths if n <= len(text))


def _suffix(low: int, high: int | None = None) -> Extract:
    lengths = _lengths(low, high)
    return lambda text: tuple(text[-n:] for n in lengths if n <= len(text))


def _ngrams(low: int, high: int) -> Extract:
    lengths = _lengths(low, high)
    return lambda text: tuple(
        dict.fromkeys(text[i : i + n] for n in lengths for i in range(len(text) - n + 1))
    )


def shape(text: str) -> str:
    """Character classes of a string: `X` capital letter, `x` other letter, `d` digit, all else itself."""
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in text)


def short_shape(text: str) -> str:
    """`shape` with every run of one symbol shortened to a single one."""
    full = shape(text)
    return full[:1] + "".join(c for previous, c in zip(full, full[1:], strict=False) if c != previous)


# what extractors make of the first text that matches; None: none does
OF_MATCH: dict[str, Callable[[str | None], tuple[str, ...]]] = {
    "t": lambda found: ("false",) if found is None else ("true",),
    "T": lambda found: ("false",) if found is None else ("true",),
    "m": lambda found: (found or "",),
    "M": lambda found: ((found or "").lower(),),
    "match": lambda found: () if found is None else ("true",),
}

EXTRACTORS: dict[str, Extractor] = {
    "x": Extractor("%x[row,column]", _identity),
    "inside": Extractor("%inside[row,column]", _identity, padded=False),
    "X": Extractor("%X[row,column]", _lower),
    "lower": Extractor("%lower[row,column]", _lower),
    **{
        name: Extractor(f'%{name}[row,column,"regex"]', partial(_by_regex, then))
        for name, then in OF_MATCH.items()
    },
    "prefix": Extractor("%prefix[row,column,n] or %prefix[row,column,low,high]", _prefix),
    "suffix": Extractor("%suffix[row,column,n] or %suffix[row,column,low,high]", _suffix),
    "shape": Extractor("%shape[row,column]", lambda: lambda text: (shape(text),)),
    "shortshape": Extractor("%shortshape[row,column]", lambda: lambda text: (short_shape(text),)),
    "ngrams": Extractor("%ngrams[row,column,low,high]", _ngrams),
    "each": Extractor("%each[row,column]", lambda: lambda text: tuple(dict.fromkeys(text.split())), False),
}


def make_extractor(name: str, arguments: tuple) -> Extract:
    """The function behind `%name[row,column,*arguments]`.

    Raises ValueError with the expected form for an unknown name, a wrong number or kind of
    arguments, or a regular expression that does not compile.
    """
    if name not in EXTRACTORS:
        raise ValueError(
            f"unknown extractor %{name}; known: " + ", ".join("%" + known for known in EXTRACTORS)
        )
    forms, make, _ = EXTRACTORS[name]
    wanted = str if '"regex"' in forms else int
    if not all(isinstance(argument, wanted) for argument in arguments):
        raise ValueError(f"expected {forms}, got arguments {shown(arguments)}")
    try:
        return make(*arguments)
    except TypeError:
        raise ValueError(f"expected {forms}, got {len(arguments)} further arguments") from None
