"""Readers of column files: a token per line, a blank line between sentences.

`read_conll` is for users' own files and states exactly what is wrong with one that is not rectangular.
It counts the cells of all lines with NumPy, splits bytes rather than text, and decodes every different
cell once, so that equal strings are one object: 0.1 s and little memory for the 212,000 lines of CoNLL-2000.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import IO, Any

import numpy as np

from crfbook._checks import File, file_name, shown
from crfbook.data.columns import TokenColumns
from crfbook.data.files import replacing
from crfbook.data.vocabulary import where

Readable = File | IO[Any] | bytes

_BLANK = np.zeros(256, dtype=bool)
_BLANK[list(b" \t\n\r\x0b\x0c")] = True  # what bytes.split() splits at; a no-break space stays in its cell
_CHUNK = 1 << 18  # bytes parsed at a time: limits the memory of the cell list
# what a file may hold: with these limits memory is bounded whatever comes
MAX_LINE = 1 << 20  # bytes
MAX_SENTENCE = 1_000_000  # tokens
MAX_PIECE = 1 << 26  # bytes of a sentence; of more than that of whole sentences, several pieces are made
_ENDS = 3  # bytes of the longest line ending, CR CR LF


class Interner(dict):
    """bytes -> str, decoding each different cell once; share one between files to share their strings."""

    def __missing__(self, raw):
        value = self[raw] = raw.decode("utf-8")
        return value


def read_source(source):
    """Bytes and a name for messages, from a path, an open file (text or binary) or bytes."""
    name, blocks = _blocks(source)
    return b"".join(blocks), name


def clean_bytes(data, name, n_lines=0):
    """Without byte order mark, with newline at each line's end: LF, CR LF or (twice converted) CR CR LF.

    UTF-16 is refused with a sentence, and so is any other CR: it would become a part of a cell.
    n_lines: lines of the file before these bytes, of which the first may have a byte order mark.
    """
    if not n_lines:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"{name}: expected UTF-8 text, found UTF-16; convert it first")
        data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in data:
        data = data.replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n")
        if (at := data.find(b"\r")) >= 0:
            line = n_lines + data.count(b"\n", 0, at) + 1
            raise ValueError(f"{name}, line {line}: expected lines that end in LF or CR LF, found a CR alone")
    return data if data.endswith(b"\n") or not data else data + b"\n"


def _blocks(source):
    """(name for messages, iterator over the bytes in pieces of whole lines)."""
    if isinstance(source, (bytes, bytearray)) or not hasattr(source, "read"):
        is_path = not isinstance(source, (bytes, bytearray))
        name = file_name(source) if is_path else "<bytes>"
        file = open(name, "rb") if is_path else io.BytesIO(source)  # noqa: SIM115
    else:
        file, name = source, str(getattr(source, "name", "<file>"))
        if not hasattr(file, "readline"):  # whole lines come only with all of it
            return name, iter([_as_bytes(file.read(), name)])

    def pieces():
        with nullcontext() if file is source else file:
            while piece := file.read(_CHUNK):
                yield _as_bytes(piece + file.readline(MAX_LINE + _ENDS), name)

    return name, pieces()


def _as_bytes(data, name):
    """UTF-8 of what a file gave, text or bytes."""
    try:
        return data.encode("utf-8") if isinstance(data, str) else data
    except UnicodeEncodeError as error:
        found = shown(data[error.start])
        raise ValueError(f"{name}: expected text that is UTF-8, found the surrogate {found}") from None


def text_lines(source):
    """(number, line) pairs of a UTF-8 text, numbers from 1; and the name for messages."""
    data, name = read_source(source)
    data = clean_bytes(data, name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _not_utf8(data, name) from None
    return enumerate(text.split("\n"), 1), name


def _not_utf8(data, name, n_lines=0):
    for number, line in enumerate(data.split(b"\n"), n_lines + 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            return ValueError(
                f"{name}, line {number}: expected UTF-8, found byte {line[error.start]:#04x} in {shown(line)}"
            )
    return ValueError(f"{name}: not UTF-8")


def read_conll(
    path_or_file: Readable, columns: Iterable[str | None] = ("word", "pos", "chunk"),
    label: str | None = None, separator: str | None = None, interner: Interner | None = None,
) -> TokenColumns:  # fmt: skip
    """Read a file of columns into `TokenColumns`.

    path_or_file: path, open file (binary or text), or bytes; UTF-8, lines end in LF or CR LF. It is read in
    pieces, which are not kept.
    columns: a name for every column of the file, in order; None leaves a column out.
    label: the one of these names that holds the labels, or None.
    separator: None splits at runs of blanks and tabs; otherwise exactly this character (cells may then hold
    blanks). Lines that are blank after stripping end a sentence; several in a row end one.
    Lines starting with "#" are text.

    Raises ValueError naming file and line for a line with another number of cells ("expected 3 columns (...),
    found 2"), for an empty cell, and for bytes that are not UTF-8. It does so, too, for a line of more than
    MAX_LINE bytes (1 MB), and for a sentence of more than MAX_SENTENCE tokens (a million).
    """
    columns, separator = _checked_columns(columns, label), _separator_byte(separator)
    name, blocks = _blocks(path_or_file)
    strings = Interner() if interner is None else interner
    return _token_columns(blocks, name, columns, label, strings, separator)


def iter_conll(
    path: File, columns: Iterable[str | None], label: str | None = None, separator: str | None = None,
    n_tokens: int = 50_000,
) -> Iterator[TokenColumns]:  # fmt: skip
    """`read_conll` in pieces of whole sentences, so that memory does not grow with the file.

    path : a path or an open binary file.
    n_tokens : each piece but the last has at least so many tokens, or MAX_PIECE bytes (64 MB).

    Other arguments and errors are those of `read_conll`. A sentence of more than MAX_PIECE bytes is refused.
    A file without a token gives nothing.
    """
    columns, separator = _checked_columns(columns, label), _separator_byte(separator)
    file: Any = path if hasattr(path, "readline") else open(file_name(path), "rb")  # noqa: SIM115

    def piece():
        held.seek(0)
        blocks = _blocks(held)[1]
        found = _token_columns(blocks, file.name, columns, label, Interner(), separator, n_before)
        return [found] if len(found) else []

    held, n_before, n_lines, n_found, in_sentence, begins, size = io.BytesIO(), 0, 0, 0, 0, 0, 0
    with nullcontext() if file is path else file:
        while line := file.readline(MAX_LINE + _ENDS):
            held.write(line)
            n_lines, size, blank = n_lines + 1, size + len(line), line.isspace()
            n_found, in_sentence = n_found + (not blank), 0 if blank else in_sentence + 1
            begins = size if blank else begins
            if size - begins > MAX_PIECE:
                raise _too_long(file.name, n_lines, f"a sentence of at most {MAX_PIECE:,} bytes")
            cut = len(line) == MAX_LINE + _ENDS and not line.endswith(b"\n")
            if cut or in_sentence > MAX_SENTENCE or (blank and (n_found >= n_tokens or size > MAX_PIECE)):
                yield from piece()
                held, n_before, n_found, begins, size = io.BytesIO(), n_lines, 0, 0, 0
    yield from piece()


def _too_long(name, line, wanted):
    return ValueError(f"{name}, line {line}: expected {wanted}, got more")


def _checked_columns(columns, label):
    given = [] if isinstance(columns, str) or not hasattr(columns, "__iter__") else list(columns)
    if not given or not all(name is None or isinstance(name, str) for name in given):
        raise ValueError(f"columns: expected a list of names, None to leave one out; found {shown(columns)}")
    columns = tuple(given)
    named = [name for name in columns if name is not None]
    if label is not None and label not in named:
        raise ValueError(f"label {shown(label)} is not among the columns {', '.join(map(repr, named))}")
    if len(set(named)) != len(named) or not named:
        raise ValueError(f"columns: expected different names, at least one; found {shown(columns)}")
    return columns


def _token_columns(blocks, name, columns, label, strings, separator, n_lines=0):
    """`TokenColumns` of pieces of bytes that come after n_lines lines of their file."""
    flat = {column: [] for column in columns if column is not None}
    starts = _read_chunks(blocks, name, columns, flat, strings, separator, n_lines)
    n_tokens = len(next(iter(flat.values())))
    labels = flat.pop(label) if label is not None else None
    return TokenColumns(flat, np.append(starts, n_tokens), labels, label or "label")


def _separator_byte(separator):
    if separator is None:
        return None
    byte = separator.encode("utf-8", "surrogatepass") if isinstance(separator, str) else b""
    if len(byte) != 1 or byte in b"\n\r":
        raise ValueError(f"separator: expected None or one ASCII character, found {shown(separator)}")
    return byte


def _read_chunks(blocks, name, columns, flat, strings, separator, n_lines=0):
    """Fill the lists of `flat`; return the positions of first tokens, int64 (S,)."""
    starts, n_tokens, after_break, begun = [], 0, True, 0
    for block in blocks:
        for k, line in enumerate(block.split(b"\n") if len(block) > MAX_LINE else (), n_lines + 1):
            if len(line.rstrip(b"\r")) > MAX_LINE:
                raise _too_long(name, k, f"a line of at most {MAX_LINE:,} bytes")
        if not (chunk := clean_bytes(block, name, n_lines)):
            continue  # a byte order mark and nothing else
        n_cells = _cells_per_line(chunk, separator)
        is_token = n_cells > 0
        if (wrong := np.flatnonzero(is_token & (n_cells != len(columns)))).size:
            _ragged(chunk, int(wrong[0]), n_lines, int(n_cells[wrong[0]]), name, columns)
        begins = is_token & ~np.concatenate(([not after_break], is_token[:-1]))
        starts.append(n_tokens + (np.cumsum(is_token) - 1)[begins])
        ends = np.concatenate(([begun], starts[-1], [n_tokens + is_token.sum()]))
        if (long := np.flatnonzero(np.diff(ends) > MAX_SENTENCE)).size:
            line = np.flatnonzero(is_token)[ends[long[0]] + MAX_SENTENCE - n_tokens]
            raise _too_long(name, n_lines + line + 1, f"a sentence of at most {MAX_SENTENCE:,} tokens")
        after_break, begun = not is_token[-1], ends[-2]
        cells = _split(chunk, separator)
        if separator is not None and b"" in cells:
            _empty_cell(cells.index(b""), is_token, n_lines, name, columns)
        for j, column in enumerate(columns):
            if column is not None:
                try:
                    flat[column].extend(map(strings.__getitem__, cells[j :: len(columns)]))
                except UnicodeDecodeError:
                    raise _not_utf8(chunk, name, n_lines) from None
        n_tokens += int(is_token.sum())
        n_lines += len(n_cells)
    return np.concatenate(starts) if starts else np.zeros(0, dtype=np.int64)


def _cells_per_line(chunk, separator):
    """Number of cells of every line, int64 (lines,); 0 for lines that are blank after stripping."""
    raw = np.frombuffer(chunk, dtype=np.uint8)
    blank = _BLANK[raw]
    newline = np.flatnonzero(raw == 10)
    cell_start = ~blank
    cell_start[1:] &= blank[:-1]
    count = np.diff(np.cumsum(cell_start)[newline], prepend=0)
    if separator is None:
        return count
    separators = np.diff(np.cumsum(raw == separator[0])[newline], prepend=0)
    return np.where(count > 0, separators + 1, 0)


def _split(chunk, separator):
    if separator is None:
        return chunk.split()
    lines = [line for line in chunk.split(b"\n") if line.strip()]
    return separator.join(lines).split(separator) if lines else []


def _ragged(chunk, k, n_lines, found, name, columns):
    line = chunk.split(b"\n", k + 1)[k].decode("utf-8", "replace")
    line = line if len(line) <= 60 else line[:57] + "..."
    names = ", ".join("(skipped)" if c is None else c for c in columns)
    noun = "column" if len(columns) == 1 else "columns"
    raise ValueError(
        f"{name}, line {n_lines + k + 1}: expected {len(columns)} {noun} ({names}), "
        f"found {found}: {shown(line)}"
    )


def _empty_cell(position, is_token, n_lines, name, columns):
    row, j = divmod(position, len(columns))
    line = n_lines + int(np.flatnonzero(is_token)[row]) + 1
    raise ValueError(f"{name}, line {line}: column {j + 1} ({columns[j]}) is empty")


def write_conll(
    path_or_file: File | IO[str], tokens: TokenColumns, separator: str = " ",
    extra: Iterable[Sequence[str]] = (),
) -> None:  # fmt: skip
    """Write `TokenColumns` as lines of columns, labels last; `read_conll` gives the same back.

    extra: further flat lists of N cells to put after the labels, e.g. predictions for conlleval.
    Writing to a path is atomic. Raises ValueError for a cell that is empty or would not survive being read
    back (blanks or newlines inside; name another separator), naming sequence and token.
    """
    if _separator_byte(separator) is None:
        raise ValueError("separator: expected one ASCII character, found None")
    parts = [*tokens.columns.values(), *([] if tokens.labels is None else [tokens.labels]), *extra]
    for part in parts:
        if len(part) != tokens.n_tokens:
            raise ValueError(f"expected {tokens.n_tokens} cells in every column, found {len(part)}")
        _check_cells(part, tokens, separator)
    text = io.StringIO()
    for start, stop in pairwise(tokens.seq_ptr.tolist()):
        if stop > start:  # a sentence of length 0 has no lines in this format
            rows = zip(*(part[start:stop] for part in parts), strict=True)
            text.write("\n".join(map(separator.join, rows)) + "\n\n")
    if hasattr(path_or_file, "write"):
        path_or_file.write(text.getvalue())
    else:
        with replacing(os.fspath(path_or_file)) as beside, open(beside, "xb") as file:
            file.write(text.getvalue().encode("utf-8"))


def _check_cells(part, tokens, separator):
    def is_bad(cell):
        try:
            raw = cell.encode("utf-8")
        except UnicodeEncodeError:  # a surrogate, which no UTF-8 file can hold
            return True
        if separator == " ":
            return raw.split() != [raw]
        return not raw.strip() or separator in cell or b"\n" in raw or b"\r" in raw

    bad = {cell for cell in set(part) if not isinstance(cell, str) or is_bad(cell)}
    if bad:
        t = next(t for t, cell in enumerate(part) if cell in bad)
        raise ValueError(
            f"{where(t, tokens.seq_ptr)}: expected a string that fits between separators {shown(separator)}, "
            f"found {shown(part[t])}"
        )
