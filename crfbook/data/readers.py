"""Readers of column files: a token per line, a blank line between sentences.

`read_conll` is for users' own files. It states exactly what is wrong with one that is not rectangular, and
which option would read it. It counts the cells of all lines with NumPy, splits bytes rather than text, and
decodes every different cell once, so that equal strings are one object: 0.1 s and little memory for the
212,000 lines of CoNLL-2000.
CoNLL-U (universaldependencies.org/format.html) is read line by line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import compress, pairwise
from typing import IO, Any, NamedTuple

import numpy as np

from crfbook._checks import File, file_name, one_of, shown
from crfbook.data.columns import TokenColumns
from crfbook.data.files import replacing
from crfbook.data.vocabulary import where

Readable = File | IO[Any] | bytes

_BLANKS = " \t\n\r\x0b\x0c"  # what bytes.split() splits at; a no-break space stays in its cell
_BLANK = np.isin(np.arange(256), list(map(ord, _BLANKS)))
_CHUNK = 1 << 18  # bytes parsed at a time: limits the memory of the cell list
# what a file may hold: with these limits memory is bounded whatever comes
MAX_LINE = 1 << 20  # bytes
MAX_SENTENCE = 1_000_000  # tokens
MAX_PIECE = 1 << 26  # bytes of a sentence; of more than that of whole sentences, several pieces are made
_ENDS = 3  # bytes of the longest line ending, CR CR LF
_NONE = b"\xff"  # stands for a label that is not there; no UTF-8 has this byte

COLUMNS = ("word", "pos", "chunk")
CONLLU_COLUMNS = ("word", "upos", "xpos", "feats", "head", "deprel")
CONLLU_FIELDS = ("id", "word", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class Layout(NamedTuple):
    """What a file of columns holds: the arguments of `read_conll`, checked."""

    columns: tuple[str | None, ...]
    label: str | None
    separator: bytes | None
    comment: bytes
    docstart: str
    unlabelled: bool


class Interner(dict):
    """bytes -> str, decoding each different cell once; share one between files to share their strings."""

    def __missing__(self, raw):
        value = self[raw] = raw.decode("utf-8")
        return value


def read_source(source):
    """Bytes and a name for messages, from a path, an open file (text or binary) or bytes."""
    name, blocks = _blocks(source)
    return b"".join(blocks), name


def clean_bytes(data, name, n_lines=0, anywhere=True):
    """Without byte order marks, with newline at each line's end: LF, CR LF or (twice converted) CR CR LF.

    UTF-16 is refused with a sentence, and so is any other CR: it would become a part of a cell.
    n_lines: lines of the file before these bytes. Files that were joined have byte order marks in the middle;
    not anywhere: inside a line U+FEFF is a character.
    """
    if not n_lines and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{name}: expected UTF-8 text, found UTF-16; convert it first")
    data = re.sub(rb"\xef\xbb\xbf" if anywhere else rb"(?m)^(\xef\xbb\xbf)+", b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n")
        if (at := data.find(b"\r")) >= 0:
            line = n_lines + data.count(b"\n", 0, at) + 1
            raise ValueError(f"{name}, line {line}: expected lines that end in LF or CR LF, found a CR alone")
    return data if data.endswith(b"\n") or not data else data + b"\n"


def _opened(source):
    """(an open file, its name for messages) of a path, an open file or bytes."""
    if isinstance(source, (bytes, bytearray)):
        return io.BytesIO(source), "<bytes>"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file>"))
        whole = not hasattr(source, "readline")  # whole lines come only with all of it
        return io.BytesIO(_as_bytes(source.read(), name)) if whole else source, name
    return open(file_name(source), "rb"), file_name(source)


def _blocks(source):
    """(name for messages, iterator over the bytes in pieces of whole lines)."""
    file, name = _opened(source)

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


def text_lines(source, marks_anywhere=True):
    """(number, line) pairs of a UTF-8 text, numbers from 1; and the name for messages."""
    data, name = read_source(source)
    text = decoded(clean_bytes(data, name, anywhere=marks_anywhere), name)
    return enumerate(text.split("\n"), 1), name


def filled_lines(source, marks_anywhere=True):
    """(where, line) of every line that is not blank; where: file and line, for messages."""
    lines, name = text_lines(source, marks_anywhere)
    return ((f"{name}, line {number}", line) for number, line in lines if line.strip())


def decoded(data, name, n_lines=0):
    """The text of bytes in UTF-8; ValueError naming file and line. n_lines: lines before these bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        k = data.count(b"\n", 0, error.start)
        line = data.split(b"\n")[k]
        found = f"byte {data[error.start]:#04x} in {shown(line)}"
        raise ValueError(f"{name}, line {n_lines + k + 1}: expected UTF-8, found {found}") from None


def read_conll(
    path_or_file: Readable, columns: Iterable[str | None] = COLUMNS,
    label: str | None = None, separator: str | None = None, interner: Interner | None = None, *,
    format: str = "columns", comment: str | None = None, docstart: str = "keep", unlabelled: bool = False,
) -> TokenColumns:  # fmt: skip
    """Read a file of columns into `TokenColumns`.

    path_or_file : path, open file (binary or text), or bytes; UTF-8, byte order marks are passed over, lines
        end in LF or CR LF. It is read in pieces, which are not kept.
    columns : a name for every column of the file, in order; None leaves a column out.
    label : the one of these names that holds the labels, or None.
    separator : None splits at runs of blanks and tabs; otherwise exactly this character, "\\t" for tabs alone
        (cells may then hold blanks). Lines that are blank after stripping end a sentence; several in a row
        end one.
    format : "columns", or "conllu": columns are chosen, see `read_conllu`; of the other options
        `unlabelled` alone is read.
    comment : lines that begin with this text are left out; None: lines beginning with "#" are tokens.
    docstart : "keep": lines that begin with -DOCSTART- are tokens, as others; "drop": they end a sentence.
    unlabelled : True: a line that lacks the last cell, where that is the label, has the label None. So has
        one whose label is empty between separators, or _ in CoNLL-U.

    Raises ValueError naming file and line for a line with another number of cells ("expected 3 columns (...),
    found 2"), with the option that would read it; for an empty cell, and for bytes that are not UTF-8. It
    does so, too, for a line of more than MAX_LINE bytes (1 MB), and for a sentence of more than MAX_SENTENCE
    tokens (a million).
    """
    if one_of("format", format, ("columns", "conllu")) == "conllu":
        columns = CONLLU_COLUMNS if columns is COLUMNS else columns
        return read_conllu(path_or_file, columns, label=label, unlabelled=unlabelled)
    layout = _layout(columns, label, separator, comment, docstart, unlabelled)
    name, blocks = _blocks(path_or_file)
    return _token_columns(blocks, name, layout, Interner() if interner is None else interner)


def read_conllu(
    source: Readable, columns: Iterable[str | None] = CONLLU_COLUMNS, shared: dict[str, str] | None = None,
    label: str | None = None, unlabelled: bool = False,
) -> TokenColumns:  # fmt: skip
    """Universal Dependencies: syntactic words only (no ranges such as 4-5, no empty nodes such as 8.1).

    columns : names among CONLLU_FIELDS ("form" is "word"), or those of a line "# global.columns", as CoNLL-U
        Plus has it. "feats.Case" is the value of one feature, "_" where there is none; "feats.*" has all,
        divided by blanks. An empty cell, and a feature without a value, are "_", too.
    shared : a dict that lets several files share equal strings.
    label, unlabelled : as in `read_conll`.

    Raises ValueError naming file and line: another number of columns, words out of order.
    """
    columns, shared = _checked_columns(columns, label), {} if shared is None else shared
    flat: dict[str, list[Any]] = {column: [] for column in columns if column is not None}
    lines, name = text_lines(source)
    fields, places, seq_ptr, n_words = list(CONLLU_FIELDS), None, [0], 0
    for number, line in lines:  # the last one is empty
        if not line.strip():
            if n_words > seq_ptr[-1]:
                seq_ptr.append(n_words)
            continue
        if line[0] == "#":
            if line.startswith("# global.columns"):
                fields, places = list(map(_field, line.partition("=")[2].split())), None
            continue
        cells = line.split("\t")
        if len(cells) != len(fields):
            wanted = f"expected the {len(fields)} columns of CoNLL-U"
            raise ValueError(f"{name}, line {number}: {wanted}, found {len(cells)} (tabs divide them)")
        if cells[0] != str(word := n_words - seq_ptr[-1] + 1):
            if re.fullmatch(r"\d+[-.]\d+", cells[0]):
                continue
            raise ValueError(f"{name}, line {number}: expected word {word}, found {shown(cells[0])}")
        places = places or _conllu_places(flat, fields)
        for out, (place, feature) in zip(flat.values(), places, strict=True):
            cell = cells[place] or "_"
            if feature == "*":
                cell = cell.replace("|", " ")
            elif feature:
                cell = dict(part.partition("=")[::2] for part in cell.split("|")).get(feature) or "_"
            out.append(shared.setdefault(cell, cell))
        n_words += 1
    places = places or _conllu_places(flat, fields)  # names are checked also where there is no word
    labels = None if label is None else flat.pop(label)
    if unlabelled and labels is not None:
        labels = [None if cell == "_" else cell for cell in labels]
    return TokenColumns(flat, seq_ptr, labels, label or "label")


def _field(name):
    """The name that a column of CoNLL-U has here."""
    return {"form": "word"}.get(name.lower(), name.lower())


def _conllu_places(names, fields):
    """(number of the field, name of a feature in it or "") of each name."""
    found = []
    for name in names:
        field, feature = (name, "") if name.lower() in fields else name.partition(".")[::2]
        if (field := _field(field)) not in fields:
            some = f"names among {', '.join(fields)}, or feats.Case for a feature"
            raise ValueError(f"columns: expected {some}, found {shown(name)}")
        found.append((fields.index(field), feature))
    return found


def iter_conll(
    path: Readable, columns: Iterable[str | None], label: str | None = None, separator: str | None = None,
    n_tokens: int = 50_000, *, comment: str | None = None, docstart: str = "keep", unlabelled: bool = False,
) -> Iterator[TokenColumns]:  # fmt: skip
    """`read_conll` in pieces of whole sentences, so that memory does not grow with the file.

    path : a path, an open file (binary or text), or bytes.
    n_tokens : each piece but the last has at least so many tokens, or MAX_PIECE bytes (64 MB).

    Other arguments and errors are those of `read_conll`. A sentence of more than MAX_PIECE bytes is refused.
    A file without a token gives nothing.
    """
    layout = _layout(columns, label, separator, comment, docstart, unlabelled)
    file, name = _opened(path)

    def piece():
        held.seek(0)
        found = _token_columns(_blocks(held)[1], name, layout, Interner(), n_before)
        return [found] if len(found) else []

    held, n_before, n_lines, n_found, in_sentence, begins, size = io.BytesIO(), 0, 0, 0, 0, 0, 0
    with nullcontext() if file is path else file:
        while line := _as_bytes(file.readline(MAX_LINE + _ENDS), name):
            held.write(line)
            n_lines, size, blank = n_lines + 1, size + len(line), line.isspace()
            n_found, in_sentence = n_found + (not blank), 0 if blank else in_sentence + 1
            begins = size if blank else begins
            if size - begins > MAX_PIECE:
                raise _too_long(name, n_lines, f"a sentence of at most {MAX_PIECE:,} bytes")
            cut = len(line) == MAX_LINE + _ENDS and not line.endswith(b"\n")
            if cut or in_sentence > MAX_SENTENCE or (blank and (n_found >= n_tokens or size > MAX_PIECE)):
                yield from piece()
                held, n_before, n_found, begins, size = io.BytesIO(), n_lines, 0, 0, 0
    yield from piece()


def _too_long(name, line, wanted):
    return ValueError(f"{name}, line {line}: expected {wanted}, got more")


def _checked_columns(columns, label):
    given = () if isinstance(columns, str) or not hasattr(columns, "__iter__") else tuple(columns)
    if not given or not all(name is None or isinstance(name, str) for name in given):
        raise ValueError(f"columns: expected a list of names, None to leave one out; found {shown(columns)}")
    named = [name for name in given if name is not None]
    if label is not None and label not in named:
        raise ValueError(f"label {shown(label)} is not among the columns {', '.join(map(repr, named))}")
    if len(set(named)) != len(named) or not named:
        raise ValueError(f"columns: expected different names, at least one; found {shown(given)}")
    return given


def _layout(columns, label, separator, comment, docstart, unlabelled):
    columns = _checked_columns(columns, label)
    if comment is not None and (not isinstance(comment, str) or not comment.strip()):
        found = shown(comment)
        raise ValueError(f"comment: expected None or the beginning of comments, such as '#', found {found}")
    if unlabelled and (label is None or (separator is None and columns[-1] != label)):
        raise ValueError("unlabelled=True: expected the label in the last column, or label= and separator=")
    one_of("docstart", docstart, ("keep", "drop"))
    comment = (comment or "").encode("utf-8", "surrogatepass")
    return Layout(columns, label, _separator_byte(separator), comment, docstart, bool(unlabelled))


def _token_columns(blocks, name, layout, strings, n_lines=0):
    """`TokenColumns` of pieces of bytes that come after n_lines lines of their file."""
    label, flat = layout.label, {column: [] for column in layout.columns if column is not None}
    strings[_NONE] = None
    starts = _read_chunks(blocks, name, layout, flat, strings, n_lines)
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


def _read_chunks(blocks, name, layout, flat, strings, n_lines=0):
    """Fill the lists of `flat`; return the positions of first tokens, int64 (S,)."""
    columns, separator = layout.columns, layout.separator
    starts, n_tokens, after_break, begun = [], 0, True, 0
    for block in blocks:
        for k, line in enumerate(block.split(b"\n") if len(block) > MAX_LINE else (), n_lines + 1):
            if len(line.rstrip(b"\r")) > MAX_LINE:
                raise _too_long(name, k, f"a line of at most {MAX_LINE:,} bytes")
        whole, before = clean_bytes(block, name, n_lines), n_lines
        n_lines += whole.count(b"\n")
        if _NONE in whole:
            decoded(whole, name, before)  # raises
        chunk, number = _chosen_lines(whole, layout, before)
        if not chunk:
            continue  # a byte order mark or comments, and nothing else
        n_cells = _cells_per_line(chunk, separator)
        is_token = n_cells > 0
        if layout.unlabelled and columns[-1] == layout.label:
            short = np.flatnonzero(is_token & (n_cells == len(columns) - 1))
            chunk, n_cells[short] = _with_none(chunk, short, separator), len(columns)
        if (wrong := np.flatnonzero(is_token & (n_cells != len(columns)))).size:
            k = int(wrong[0])
            _ragged(chunk.split(b"\n", k + 1)[k], number[k], int(n_cells[k]), name, layout)
        begins = is_token & ~np.concatenate(([not after_break], is_token[:-1]))
        starts.append(n_tokens + (np.cumsum(is_token) - 1)[begins])
        ends = np.concatenate(([begun], starts[-1], [n_tokens + is_token.sum()]))
        if (long := np.flatnonzero(np.diff(ends) > MAX_SENTENCE)).size:
            line = number[np.flatnonzero(is_token)[ends[long[0]] + MAX_SENTENCE - n_tokens]]
            raise _too_long(name, line, f"a sentence of at most {MAX_SENTENCE:,} tokens")
        after_break, begun = not is_token[-1], ends[-2]
        cells = _split(chunk, separator)
        if separator is not None and b"" in cells:
            if layout.unlabelled:
                place = slice(columns.index(layout.label), None, len(columns))
                cells[place] = [cell or _NONE for cell in cells[place]]
            if b"" in cells:
                _empty_cell(cells.index(b""), number[is_token], name, layout)
        for j, column in enumerate(columns):
            if column is not None:
                try:
                    flat[column].extend(map(strings.__getitem__, cells[j :: len(columns)]))
                except UnicodeDecodeError:
                    decoded(whole, name, before)  # raises, and says where
        n_tokens += int(is_token.sum())
    return np.concatenate(starts) if starts else np.zeros(0, dtype=np.int64)


def _chosen_lines(chunk, layout, n_lines):
    """(the lines without comments, empty where documents begin; their numbers in the file)."""
    number = n_lines + 1 + np.arange(chunk.count(b"\n"))
    if layout.comment and layout.comment in chunk:
        lines = chunk.split(b"\n")[:-1]
        keep = [not line.startswith(layout.comment) for line in lines]
        chunk, number = b"".join(line + b"\n" for line in compress(lines, keep)), number[keep]
    if layout.docstart == "drop":
        chunk = re.sub(rb"(?m)^[ \t\x0b\x0c]*-DOCSTART-.*", b"", chunk)
    return chunk, number


def _with_none(chunk, short, separator):
    """Lines that lack the last cell have one that stands for None."""
    lines = chunk.split(b"\n")
    for k in short.tolist():
        lines[k] += (separator or b" ") + _NONE
    return b"\n".join(lines)


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


def _ragged(line, number, found, name, layout):
    text = shown(line.decode("utf-8", "replace"))
    names = ", ".join("(skipped)" if c is None else c for c in layout.columns)
    noun = "column" if len(layout.columns) == 1 else "columns"
    wanted, hint = f"{len(layout.columns)} {noun} ({names})", _hint(line, found, name, layout)
    raise ValueError(f"{name}, line {number}: expected {wanted}, found {found}: {text}{hint}")


def _hint(line, found, name, layout):
    """The option that would read a line, for a message; or ""."""
    n, tabs, words = len(layout.columns), line.split(b"\t"), line.split()
    last = layout.label is not None and layout.label == layout.columns[-1]
    options = (
        (line.startswith(b"-DOCSTART-"), "docstart='drop' leaves such lines out"),
        (name.endswith(".conllu") and line.startswith(b"#"), "format='conllu' reads CoNLL-U"),
        (line.startswith(b"#"), "comment='#' leaves such lines out"),
        (len(tabs) == 10 and tabs[0][:1].isdigit(), "format='conllu' reads CoNLL-U"),
        (layout.separator is None and len(tabs) == n, r"separator='\t' keeps blanks in cells"),
        (layout.separator is not None and len(words) == n, "separator=None splits at blanks and tabs"),
        (last and found == n - 1, "unlabelled=True reads lines without a label"),
    )
    return next((f"; {text}" for fits, text in options if fits), "")


def _empty_cell(position, numbers, name, layout):
    row, j = divmod(position, len(layout.columns))
    column = layout.columns[j]
    hint = "; unlabelled=True reads lines without a label" * (column is not None and column == layout.label)
    raise ValueError(f"{name}, line {numbers[row]}: column {j + 1} ({column}) is empty{hint}")


def write_conll(
    path_or_file: File | IO[str], tokens: TokenColumns, separator: str = " ",
    extra: Iterable[Sequence[str]] = (), *, format: str = "columns",
) -> None:  # fmt: skip
    """Write `TokenColumns` as lines of columns, labels last; `read_conll` gives the same back.

    extra : further flat lists of N cells to put after the labels, e.g. predictions for conlleval; none
        in CoNLL-U.
    format : "columns", or "conllu": columns and labels stand where their names say, words are numbered, and _
        stands where nothing is known. Names are those that `read_conllu` takes, but for single features.

    A label None is left out, which `read_conll(unlabelled=True)` reads. Writing to a path is atomic. Raises
    ValueError for a cell that is empty or would not survive being read back (blanks, newlines or a byte order
    mark inside; name another separator), naming sequence and token.
    """
    extra = list(extra)
    if one_of("format", format, ("columns", "conllu")) == "conllu":
        if extra:
            raise ValueError(f"format='conllu': expected no extra columns, found {len(extra)}")
        tokens, separator = _as_conllu(tokens), "\t"
    if _separator_byte(separator) is None:
        raise ValueError("separator: expected one ASCII character, found None")
    parts = [*tokens.columns.values(), *([] if tokens.labels is None else [tokens.labels]), *extra]
    for part in parts:
        if len(part) != tokens.n_tokens:
            raise ValueError(f"expected {tokens.n_tokens} cells in every column, found {len(part)}")
        may_lack = part is tokens.labels and tokens.columns and not extra
        _check_cells(part, tokens, separator, {None} if may_lack else set())
    text = io.StringIO()
    for start, stop in pairwise(tokens.seq_ptr.tolist()):
        if stop > start:  # a sentence of length 0 has no lines in this format
            rows = zip(*(part[start:stop] for part in parts), strict=True)
            cells = ([cell for cell in row if cell is not None] for row in rows)
            text.write("\n".join(map(separator.join, cells)) + "\n\n")
    if hasattr(path_or_file, "write"):
        path_or_file.write(text.getvalue())
    else:
        write_text(path_or_file, text.getvalue())


def write_text(path, text):
    """Write a text as UTF-8, atomically. Raises ValueError for what names no file, and for surrogates."""
    content = _as_bytes(text, file_name(path))
    with replacing(file_name(path)) as beside, open(beside, "xb") as file:
        file.write(content)


def _as_conllu(tokens):
    """`TokenColumns` of all fields of CoNLL-U."""
    columns, given = list(tokens.columns.items()), {}
    if tokens.labels is not None:
        columns.append((tokens.label_name, ["_" if label is None else label for label in tokens.labels]))
    for name, cells in columns:
        if (field := _field(name)) not in CONLLU_FIELDS or given.setdefault(field, cells) is not cells:
            names = ", ".join(CONLLU_FIELDS)
            raise ValueError(f"format='conllu': expected columns {names}, each once, found {shown(name)}")
    numbers = np.arange(tokens.n_tokens) - np.repeat(tokens.seq_ptr[:-1], np.diff(tokens.seq_ptr)) + 1
    given["id"] = list(map(str, numbers.tolist()))
    blank = ["_"] * tokens.n_tokens
    return TokenColumns({name: given.get(name, blank) for name in CONLLU_FIELDS}, tokens.seq_ptr)


def _check_cells(part, tokens, separator, allowed):
    divides = _BLANKS if separator == " " else separator
    broken = re.compile(f"[{re.escape(divides)}\n\r\ufeff\ud800-\udfff]")  # no UTF-8 file holds surrogates
    given = set(part) - allowed
    if bad := {c for c in given if not isinstance(c, str) or not c.strip(_BLANKS) or broken.search(c)}:
        t = next(t for t, cell in enumerate(part) if cell in bad)
        wanted = f"a string that fits between separators {shown(separator)}"
        raise ValueError(f"{where(t, tokens.seq_ptr)}: expected {wanted}, found {shown(part[t])}")
