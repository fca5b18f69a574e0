"""docs/PAPERS.md: each item of a paper stands under a heading that exists, and its record is there."""

import re

import pytest

from tools import chapters as book

PAGE = book.ROOT / "docs" / "PAPERS.md"


def rows(text):
    """[item, chapter, heading, record] of each row of a table."""
    found = re.findall(r"^\| (?!item|---)(.+?) \| (\d\d): (.+?) \| (.+?) \|$", text, re.M)
    assert len(found) == len(re.findall(r"^\| (?!item|-{3})", text, re.M)), "a row of another form"
    return found


def headings():
    """{chapter: its headings}."""
    found = {}
    for path in book.chapters():
        text = "\n".join(c.source for c in book.read(path).cells if c.cell_type == "markdown")
        found[path.stem[:2]] = re.findall(r"^#{2,4} (.+)$", text, re.M)
    return found


def wrong_rows(text, known, records):
    """What does not exist: headings (their beginnings count) and records."""
    for item, chapter, heading, record in rows(text):
        if not any(one.startswith(heading) for one in known.get(chapter, ())):
            yield f"{item}: chapter {chapter} has no heading {heading!r}"
        if record not in ("-", "related", *records):
            yield f"{item}: there is no record {record}"


def test_every_item_is_where_the_page_says():
    records = [path.stem for path in (book.NOTEBOOKS / "results").glob("*.csv")]
    text = PAGE.read_text()
    assert list(wrong_rows(text, headings(), records)) == []
    n, related = (int(n) for n in re.search(r"These are (\d+) items, (\d+) of them", text).groups())
    assert (n, related) == (len(rows(text)), sum(row[3] == "related" for row in rows(text)))


def test_names_and_records_are_in_their_chapters():
    """An author with a year is named in the chapter, and the chapter reads the record."""
    text = {path.stem[:2]: path.read_text() for path in book.chapters()}
    missing = []
    for item, chapter, _, record in rows(PAGE.read_text()):
        page, (short, *_) = text[chapter], record.partition("_")[2:]
        authors = re.findall(r"([A-Z]\w+)(?: and [A-Z]\w+| and others)* \(?\d{4}", item)
        missing += [f"{item}: chapter {chapter} does not name {one}" for one in authors if one not in page]
        names = (record, f'\\"{short}\\"', f'\\"{short}_', f'\\"{short.rpartition("_")[0]}\\"')
        if short and not any(name in page for name in names):
            missing.append(f"{item}: chapter {chapter} does not read {record}")
    assert not missing, "\n".join(missing)


WRONG = [("04: Not there", "-"), ("99: Table 1", "-"), ("04: Cost", "04_x")]


@pytest.mark.parametrize("place, record", WRONG)
def test_a_wrong_row_is_found(place, record):
    text = f"| item | chapter: heading | record |\n|---|---|---|\n| a | {place} | {record} |\n"
    assert len(list(wrong_rows(text, {"04": ["Cost and memory"]}, ["04_ner"]))) == 1
