"""Tables of text for spreadsheets, as they are written and as they come back."""

import csv
import io
from pathlib import Path

BOM = "\ufeff"  # by which spreadsheets know UTF-8


def plain(value):
    """A cell of a CSV: text that a spreadsheet would take for a formula is quoted."""
    return "'" + value if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def as_it_is(value):
    """A cell of somebody's own table, in place of `plain`."""
    return value


def written(rows, columns=(), cell=plain):
    """The CSV of rows (dictionaries) with the columns of all of them. cell : what is done with each value."""
    columns = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return BOM + out.getvalue()


def readable(path):
    """(columns, rows) of a CSV by whichever spreadsheet: commas, semicolons or tabs, UTF-8 or Latin-1."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: expected a table to fill in, got: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
    rows = [{name: value or "" for name, value in row.items() if name is not None} for row in reader]
    return list(reader.fieldnames or ()), rows


def unquoted(value):
    """Text as it was before `plain`."""
    return value[1:] if value[:1] == "'" and value[1:2] in tuple("=+-@\t\r") else value


def number(text):
    """A number as people write it, 1.5 or 1,5; ValueError for what is none."""
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        raise ValueError(f"{text.strip()[:40]!r} is no number") from None
