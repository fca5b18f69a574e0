"""The teacher's pages: built from the chapters as they are, offline, looked at in a browser where one is."""

import html
import re
from importlib.util import find_spec

import pytest

from tools import teaching

DECKS = sorted((teaching.TEACHING / "decks").glob("*.md"))
needs_browser = pytest.mark.skipif(teaching.browser() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out, teaching.OUT = teaching.OUT, tmp_path_factory.mktemp("teaching")
    yield teaching.build()
    teaching.OUT = out


def test_each_chapter_has_a_deck(built):
    assert [path.stem for path in built] == [path.stem for path in teaching.chapters()]


def test_pages_need_no_network_and_read_every_formula(built):
    for path in [*built, built[0].with_name("summaries.html")]:
        page = path.read_text()
        assert "unread-formula" not in page, path.stem
        assert not re.search(r'(?:src|href)="https?:', page), path.stem


def test_the_page_of_summaries_holds_no_answers(built):
    page = built[0].with_name("summaries.html").read_text()
    for path in (teaching.TEACHING / "summaries").glob("*.md"):
        (answers,) = teaching.ANSWERS.findall(path.read_text())
        assert answers not in page and html.escape(answers) not in page, path.stem
    assert "answers:" not in page


def test_a_deck_shows_what_the_chapter_shows(built):
    cell = next(cell for cell in teaching.cells("02") if "many, by alpha" in teaching.printed(cell))
    assert "many, by alpha" not in cell.source  # the numbers come from the stored output
    first = teaching.printed(cell).splitlines()[0]
    assert first in built[2].read_text()
    pictures = built[0].read_text().count('<img src="data:image/png;base64,')
    assert pictures == DECKS[0].read_text().count("@figure")


def test_words_that_fit_no_cell_or_several_are_refused():
    with pytest.raises(SystemExit, match="chapter 00 has 0 cells for 'no such words'"):
        teaching.figure("00", "no such words")
    with pytest.raises(SystemExit, match="exactly one is wanted"):
        teaching.output("00", "e")


@needs_browser
def test_every_slide_fits(built):
    for path in built:
        assert re.fullmatch(r"\d+ slides: all fit", teaching.fits(path))


@needs_browser
def test_a_crowded_slide_is_seen(built, tmp_path, monkeypatch):
    monkeypatch.setattr(teaching, "TEACHING", tmp_path)
    monkeypatch.setattr(teaching, "OUT", tmp_path)
    (tmp_path / "decks").mkdir()
    crowded = "# A\n\n---\n## B\n" + "- one more line\n" * 30 + "\n---\n## C\n```\n" + "x" * 200 + "\n```\n"
    (tmp_path / "decks" / "crowded.md").write_text(crowded)
    said = teaching.fits(teaching.build()[0])
    assert "slide 2 overflows" in said and "slide 3: PRE leaves the slide" in said and "slide 1" not in said


@needs_browser
def test_every_summary_fills_one_page(built, tmp_path):
    pdf = tmp_path / "summaries.pdf"
    teaching.headless(f"--print-to-pdf={pdf}", built[0].with_name("summaries.html").as_uri())
    pages = len(re.findall(rb"/Type\s*/Page[^s]", pdf.read_bytes()))
    assert pages == len(list((teaching.TEACHING / "summaries").glob("*.md"))) > 0


def test_commands_without_make_exist_and_need_no_shell():
    """Every `python -m tools.NAME` of the teachers' pages is there; none relies on a shell."""
    pages = [teaching.TEACHING / "README.md", teaching.TEACHING / "syllabus.md"]
    pages.append(teaching.NOTEBOOKS / "assignments" / "README.md")
    named = {name for page in pages for name in re.findall(r"-m tools\.(\w+)", page.read_text())}
    assert {"teaching", "wheelhouse", "grade", "book"} <= named
    for name in named:
        assert (teaching.ROOT / "tools" / f"{name}.py").exists(), name
    for path in (teaching.ROOT / "tools").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        shell = re.search(r"shell\s*=\s*True|os\.(?:system|popen)\(", code)
        assert not shell, path.name


def test_each_target_of_make_has_a_form_without_it():
    """A row of the table; its modules are there."""
    makefile = (teaching.ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.M)[1].split()) - {"help"}
    table = (teaching.TEACHING / "README.md").read_text().split("## Commands without make")[1]
    rows = re.findall(r"^\| (`make .+?) \| (.+) \|$", table, re.M)
    assert {name for left, _ in rows for name in re.findall(r"make (\w+)", left)} == targets
    for name in {name for _, right in rows for name in re.findall(r"python -m ([\w.]+)", right)}:
        assert find_spec(name), name


def test_the_syllabus_names_chapters_and_assignments_that_exist():
    from tools.grading import assignment

    text = (teaching.TEACHING / "syllabus.md").read_text()
    chapters = {path.stem[:2] for path in teaching.chapters()}
    plans = [plan for plan in text.split("## ")[1:] if "weeks" in plan.splitlines()[0]]
    rows = [re.findall(r"^\| (\d+) \|(.+)$", plan, re.M) for plan in plans]
    assert [len(found) for found in rows] == [7, 14]
    for found in rows:
        for _, row in found:
            assert set(re.findall(r"\b(\d\d)\b", row.split("|")[0])) <= chapters
    assert chapters - {"00"} == {path.stem[:2] for path in assignment.sources()}, "one for each but 00"


def plans():
    """The two plans of the syllabus, each with its rows of five cells after the week's number or name."""
    text = (teaching.TEACHING / "syllabus.md").read_text()
    for plan in (plan for plan in text.split("## ")[1:] if "weeks" in plan.splitlines()[0]):
        lines = re.findall(r"^\| (\d+|optional) \| (.+) \|$", plan, re.M)
        yield plan, [(week, row.split(" | ")) for week, row in lines]


def test_the_minutes_of_the_syllabus_add_up():
    for plan, rows in plans():
        sums = {week: 0 for week, _ in rows}
        for week, (chapters, *_, minutes) in rows:
            parts = list(map(int, minutes.split(" + ")))
            assert len(parts) == (len(chapters.split("; "))), (week, chapters)
            assert 60 <= sum(parts) <= 90, (week, minutes)
            sums[week] = sum(parts)
        last = sums.pop("optional", 0)
        said = [int(number.replace(",", "")) for number in re.findall(r"lectures, ([\d,]+) minutes", plan)]
        assert said == [sum(sums.values())]
        assert not last or f"optional last one {sum(sums.values()) + last:,}" in plan


def test_the_syllabus_stops_at_headings_that_exist():
    headings = {
        path.stem[:2]: re.findall(
            r"^#+ (.+)$",
            "\n".join(c.source for c in teaching.read(path).cells if c.cell_type == "markdown"),
            re.M,
        )
        for path in teaching.chapters()
    }
    for _, rows in plans():
        for _, (chapters, stops, *_) in rows:
            numbers = re.findall(r"\b(\d\d)\b", chapters)
            single = numbers if len(stops.split("; ")) == 1 else None
            for stop in stops.split("; "):
                number, what = re.fullmatch(r"(?:(\d\d): )?(.+)", stop).groups()
                begin = re.match(r'section ([\d.]+\d|\d+)|"(.+)"', what)
                for chapter in single or [number]:
                    found = [h for h in headings[chapter] if h.startswith(begin[1] or begin[2])]
                    assert found, (chapter, stop)


def test_the_exercises_of_the_short_examination_exist_at_level_1():
    (plan, rows), _ = plans()
    given = re.search(r"\n\n(01: 1, .+?)\n\n", plan, re.S)[1]
    given = re.sub(r"\(.+?\)", "", " ".join(given.split()))
    named = {
        chapter: re.findall(r"\d+", numbers) for chapter, numbers in re.findall(r"(\d\d): ([\d, ]+)", given)
    }
    taught = {number for _, row in rows for number in re.findall(r"\b(\d\d)\b", row[0])}
    assert set(named) == taught - {"00"}
    for path in teaching.chapters(sorted(named)):
        text = "\n".join(c.source for c in teaching.read(path).cells if c.cell_type == "markdown")
        level = re.search(r"^### Level 1.*?(?=^### Level 2)", text, re.M | re.S)[0]
        assert set(named[path.stem[:2]]) <= set(re.findall(r"^(\d+)\. ", level, re.M)), path.stem
