"""Checks of user input and of files. Each raises one sentence: what was expected, what came, where."""

import contextlib
import math
import os
from typing import NamedTuple

import numpy as np

COUNTS = 2**53  # counts and sizes of a file stay below: sums and shares of them are exact
WHOLE = 2**63  # counts are int64 in kernels
SHOWN = 80  # characters of a value in a message
LONGEST_NAME = 4096  # bytes of a path

File = str | os.PathLike[str]


class ModelFileError(ValueError):
    """The file is not a model that this version can load: foreign, damaged, of a later schema, or unsafe."""

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


def _printable(text):
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def one_line(sentence):
    """A sentence that quotes a file, cut and printable: a file may hold long text and control characters."""
    line = _printable(sentence[:1000])
    return line if len(line) <= 500 else f"{line[:500]} ..."


def shown(value):
    """`repr` of what came, for a message: on one line, printable, and cut where it is long."""
    try:
        text = repr(value)
    except Exception as error:  # an integer of more than 4,300 digits; a class whose repr is broken
        text = f"<{type(value).__name__}: {error}>"
    text = " ".join(map(str.strip, text[: 10 * SHOWN].split("\n")))
    text = _printable(text)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def unexpected(place, expected, got, error=ValueError):
    """The error of input that is not what was expected: one sentence. got : see `shown`."""
    return error(f"{place}: expected {expected}, got {got}")


def is_number(value):
    """Whether `value` compares with a number: no text, no truth value, no None, no array of several."""
    return hasattr(value, "__float__") and not isinstance(value, bool) and not getattr(value, "ndim", 0)


def file_name(path, what="path"):
    """`path` as str; ValueError that begins with `what` where it cannot name a file."""
    raw = b""
    with contextlib.suppress(TypeError, UnicodeEncodeError):
        raw = os.fsencode(path)
    if not 0 < len(raw) <= LONGEST_NAME or b"\0" in raw:
        raise ValueError(f"{what}: expected the name of a file, got {shown(path)}")
    return os.fsdecode(raw)


def _as_float(value):
    """nan if it is no number; infinity for an integer beyond float64."""
    try:
        return float(value) if is_number(value) else math.nan
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def number(name, value, least=0.0, *, above=None, most=math.inf, finite=True, note="", wrong=ValueError):
    """`value` as a float; ValueError unless it is a number >= least (or > above) and at most `most`.

    finite : True: infinity is refused.
    note : text after what was expected.
    wrong : class of the error where `value` is not a number.
    """
    came = _as_float(value)
    high_enough = came >= least if above is None else came > above
    if not (high_enough and came <= most and (math.isfinite(came) or not finite)):
        wanted = f"{'finite ' if finite else ''}number"
        if least > -math.inf:
            wanted += f" >= {least:g}" if above is None else f" > {above:g}"
        wanted += f" and at most {most:g}" if most < math.inf else ""
        error = ValueError if is_number(value) else wrong
        raise error(f"{name}: expected a {wanted}{note}, got {shown(value)}")
    return came


def whole(name, value, least=0, *, note="", wrong=ValueError):
    """`value` as an int; ValueError unless it is a whole number >= least, of 64 bits.
    note, wrong : as for `number`.
    """
    came = _as_float(value)
    if not (math.isfinite(came) and value == int(value) and least <= value < WHOLE):
        most = " and below 2**63" if came >= WHOLE and value != math.inf else ""
        error = ValueError if is_number(value) else wrong
        raise error(f"{name}: expected an integer >= {least}{most}{note}, got {shown(value)}")
    return int(value)


def one_of(name, value, allowed):
    """`value`; ValueError unless it is one of those that are allowed."""
    if value not in tuple(allowed):
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, allowed))}, got {shown(value)}")
    return value


def function_or_none(name, value):
    """`value`; ValueError if it is neither None nor a function."""
    if value is not None and not callable(value):
        raise ValueError(f"{name}: expected a function or None, got {shown(value)}")
    return value


class Stored(NamedTuple):
    """What an array of a file must be: one row of a table for `check_arrays`."""

    dtype: object  # or the kinds of dtypes that will do, "iuf" for instance
    shape: tuple = (None,)  # None: any length
    least: float | None = None
    below: float | None = None  # larger than all values
    order: str = ""  # key of ORDERS
    finite: bool = True


def pointers(n, total):
    """The row for int64 (n+1,) that cut `total` items into n rows; n may be None."""
    return Stored(np.int64, (None if n is None else n + 1,), 0, total + 1, "never falling, first to last")


# what the values do, in words -> what tells whether they do; (array, row)
ORDERS = {
    "": lambda a, row: True,
    "rising": lambda a, row: (a[1:] > a[:-1]).all(),
    "never rising": lambda a, row: (a[1:] <= a[:-1]).all(),
    "all different": lambda a, row: len(np.unique(a)) == len(a),
    "never falling, first to last": lambda a, row: (
        a.size and a[0] == row.least and a[-1] == row.below - 1 and (a[1:] >= a[:-1]).all()
    ),
}


def check_arrays(arrays, table):
    """ValueError unless `arrays` has all names of `table` ({name: Stored}) and each is what its row says."""
    for name, row in table.items():
        if name not in arrays:
            raise ValueError(f"the array {name!r} is missing")
        array = arrays[name]
        if not _is_stored(array, row):
            kind = row.dtype if isinstance(row.dtype, str) else np.dtype(row.dtype).name
            shape = ", ".join("any" if n is None else str(n) for n in row.shape)
            low, high = (("" if x is None else f"{x:,}") for x in (row.least, row.below))
            values = (low and f" >= {low}") + (high and f" < {high}") + (row.order and f" {row.order}")
            raise ValueError(
                f"array {name!r}: expected {kind} ({shape}){' finite' if row.finite else ''}{values}, "
                f"got {array.dtype} {array.shape} with other values or of another kind"
            )


def _is_stored(array, row):
    shapes = len(array.shape) == len(row.shape) and all(
        wanted in (None, n) for n, wanted in zip(array.shape, row.shape, strict=True)
    )
    kinds = array.dtype.kind in row.dtype if isinstance(row.dtype, str) else array.dtype == row.dtype
    if not (shapes and kinds):
        return False
    if array.dtype == bool:
        array = array.view(np.uint8)  # a byte of a file may be 2
        row = row._replace(least=0, below=2)
    if row.finite and not np.isfinite(array).all():
        return False
    low, high = (array.min(), array.max()) if array.size else (row.least, row.least)
    within = (row.least is None or low >= row.least) and (
        row.below is None or not array.size or high < row.below
    )
    return bool(within and ORDERS[row.order](array, row))


def check_fields(fields, table):
    """ValueError unless each field of a file's header has one of its types and, where a least value is given,
    lies from there to 2^53. table : {name: (types, least or None)}; True is no integer.
    """
    for name, (types, least) in table.items():
        value = fields.get(name)
        if type(value) not in types or (least is not None and not least <= value < COUNTS):
            kinds = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
            more = "" if least is None else f" from {least} to 2^53"
            raise ValueError(f"{name}: expected {kinds}{more}, got {value!r:.40}")
