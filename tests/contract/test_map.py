"""Chapter 00 tells the reader where to go: its table links the chapters that exist, and only those."""

import re

from tools import chapters as book


def linked(text):
    """(number, title, link or "") of each row of the table of chapters."""
    rows = re.findall(r"^\| (\d\d) \| (?:\[([^\]]+)\]\(([^)]+)\)|([^|\[]+)) \|", text, re.M)
    return [(number, title or plain, link) for number, title, link, plain in rows]


def test_the_table_of_chapters_links_what_exists():
    chapters = {path.stem[:2]: path for path in book.chapters()}
    start = book.read(chapters["00"])
    rows = linked("\n".join(cell.source for cell in start.cells if cell.cell_type == "markdown"))
    assert [number for number, _, _ in rows] == [f"{n:02d}" for n in range(18)]
    wanted = {number: path.name for number, path in chapters.items() if number != "00"}
    assert {number: link for number, _, link in rows if link} == wanted


def test_the_table_is_read():
    text = "| 00 | Start here | what? |\n| 01 | [From HMM to CRF](01_a.ipynb) | why? |\n"
    assert linked(text) == [("00", "Start here", ""), ("01", "From HMM to CRF", "01_a.ipynb")]
