"""Named extractors: what `%name[row,column,...]` in a template turns a cell's string into.

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

Regular expressions are those of Python's `re` (search, not a full match).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

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


def _test(pattern: str) -> Extract:
    search = re.compile(pattern).search
    return lambda text: ("true",) if search(text) else ("false",)


def _match(pattern: str) -> Extract:
    search = re.compile(pattern).search
    return lambda text: ("true",) if search(text) else ()


def _matched(pattern: str) -> Extract:
    search = re.compile(pattern).search

    def extract(text: str) -> tuple[str, ...]:
        found = search(text)
        return (found.group(),) if found else ("",)

    return extract


def _matched_lower(pattern: str) -> Extract:
    extract = _matched(pattern)
    return lambda text: (extract(text)[0].lower(),)


def _lengths(low: int, high: int | None) -> range:
    """low..high as a range; both are lengths in characters."""
    high = low if high is None else high
    if not 1 <= low <= high:
        raise ValueError(f"lengths must satisfy 1 <= low <= high, got {low} and {high}")
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
    """Character classes of a string: `X` capital letter, `x` other letter, `d` digit,
    anything else itself.
    """
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in text)


def short_shape(text: str) -> str:
    """`shape` with every run of one symbol shortened to a single one."""
    full = shape(text)
    return full[:1] + "".join(c for previous, c in zip(full, full[1:], strict=False) if c != previous)


EXTRACTORS: dict[str, Extractor] = {
    "x": Extractor("%x[row,column]", _identity),
    "inside": Extractor("%inside[row,column]", _identity, padded=False),
    "X": Extractor("%X[row,column]", _lower),
    "lower": Extractor("%lower[row,column]", _lower),
    "t": Extractor('%t[row,column,"regex"]', _test),
    "T": Extractor('%T[row,column,"regex"]', _test),
    "m": Extractor('%m[row,column,"regex"]', _matched),
    "M": Extractor('%M[row,column,"regex"]', _matched_lower),
    "match": Extractor('%match[row,column,"regex"]', _match),
    "prefix": Extractor("%prefix[row,column,n] or %prefix[row,column,low,high]", _prefix),
    "suffix": Extractor("%suffix[row,column,n] or %suffix[row,column,low,high]", _suffix),
    "shape": Extractor("%shape[row,column]", lambda: lambda text: (shape(text),)),
    "shortshape": Extractor("%shortshape[row,column]", lambda: lambda text: (short_shape(text),)),
    "ngrams": Extractor("%ngrams[row,column,low,high]", _ngrams),
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
        raise ValueError(f"expected {forms}, got arguments {arguments}")
    try:
        return make(*arguments)
    except TypeError:
        raise ValueError(f"expected {forms}, got {len(arguments)} further arguments") from None
    except re.error as error:
        raise ValueError(f"the regular expression {arguments[0]!r} does not compile: {error}") from None
