"""The pages as a reader meets them: from a folder, on a desk and on a phone, in the light and in the dark, on
paper, by the keyboard, by search.
"""

import html
import re
from pathlib import Path

import pytest

from tools import chapters as book
from tools import site

CHAPTERS = [f"{path.stem}.html" for path in book.chapters()]
GUIDES = [f"{page}.html" for page in [*site.GUIDES.values(), *site.REFERENCE.values()]]
API = [f"api/{path.stem}.html" for path in (site.WRITTEN / "api").glob("*.md")]
OTHERS = ["index.html", "claims.html", "builds.html", "search.html", "records/index.html", "records/03.html"]
PAGES = sorted([*CHAPTERS, *GUIDES, *API, *OTHERS])
VIEWS = [(width, scheme) for width in (1366, 390) for scheme in ("light", "dark")]
STYLED = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}  # the background: stylesheets are applied

# axe takes half a minute for all parts of a chapter: formulas, coloured code and rows of tables are left out.
WHOLE = ["index.html"]
LEFT_OUT = [["math"], [".highlight pre"], ["table.dataframe tr"]]
AXE = """part => axe.run(part, {resultTypes: ["violations"], preload: false}).then(found => found.violations
  .filter(one => ["serious", "critical"].includes(one.impact))
  .map(one => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 200)]))"""
CUT = """() => [...document.querySelectorAll(".bd-article :is(pre, div.math, math, img, table)")]
  .filter(one => {
  const box = one.getBoundingClientRect();
  const inside = ["math", "TABLE"].includes(one.tagName) ? 0 : one.scrollWidth - one.clientWidth;
  return box.width && (box.right > innerWidth + 1 || box.left < 0 || inside > 1);
}).map(one => one.textContent.slice(0, 80))"""

REACHED = """[...document.querySelectorAll(".bd-article :is(pre, div, section)")].every(one =>
  one.scrollWidth <= one.clientWidth + 1 || !["auto", "scroll"].includes(getComputedStyle(one).overflowX)
  || one.tabIndex == 0)"""
STILL = "document.getAnimations().every(one => one.playState != 'running')"
WIDE = """([what, much]) => [...document.querySelectorAll(what)].flatMap(
  (one, i) => one.scrollWidth > one.clientWidth + much ? [i] : [])"""


def axe():
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def look(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme, media="screen")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_asks_for_no_host_and_can_be_read_by_all(page, folder, name):
    page.goto((folder / name).as_uri())
    where = VIEWS if name in WHOLE else [VIEWS[PAGES.index(name) % len(VIEWS)]]
    for width, scheme in VIEWS:
        look(page, width, scheme)
        page.wait_for_function(f"getComputedStyle(document.body).backgroundColor == '{STYLED[scheme]}'")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, scheme)
        page.wait_for_function(REACHED)  # the theme marks what is wide a while after the window has changed
        if (width, scheme) in where:
            page.reload()
            page.wait_for_function(REACHED)
            page.wait_for_function(STILL)  # colours that are still changing have other contrasts
            page.evaluate(axe())
            part = {"exclude": [] if name in WHOLE else LEFT_OUT}
            assert page.evaluate(AXE, part) == [], (width, scheme)
    assert not [url for url in page.requests if not url.startswith(("file:", "data:"))]
    assert page.locator(".unread-formula").count() == 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_needs_no_scrolling_on_a_desk_and_paper_cuts_nothing(page, folder, name):
    page.goto((folder / name).as_uri())
    assert page.evaluate(WIDE, [".cell_input pre", 1]) == []
    page.set_viewport_size({"width": 680, "height": 960})  # A4 without its margins
    page.emulate_media(media="print")
    assert page.evaluate(CUT) == []


def test_a_page_prints(page, folder, tmp_path):
    page.goto((folder / CHAPTERS[2]).as_uri())
    pdf = page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 10


def test_what_is_wide_scrolls_by_keyboard(page, folder):
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto((folder / CHAPTERS[3]).as_uri())
    page.wait_for_function(REACHED)
    for what in ("div.math", ".cell_output > .output.text_html", ".cell_input pre"):
        one = page.locator(what).nth(page.evaluate(WIDE, [what, 40])[0])
        assert one.get_attribute("tabindex") == "0", what
        one.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("one => one.scrollLeft > 0", arg=one.element_handle())


@pytest.fixture(scope="session")
def texts(folder):
    """{chapter: its text}, of the pages as they are stored."""
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in CHAPTERS}
    parts = {name: text[text.index("<article") : text.index("</article>")] for name, text in parts.items()}
    return {name: html.unescape(re.sub("<[^>]+>", " ", text)) for name, text in parts.items()}


@pytest.mark.parametrize("word", ["CarpeDiem", "Bethe", "phonetization", "Dask"])
def test_search_finds_a_word_in_the_chapters_that_hold_it(page, folder, texts, word):
    held = re.compile(rf"(?<![\w-]){word}(?![\w-])", re.I)
    holding = {name for name, text in texts.items() if held.search(text)}
    page.goto(f"{(folder / 'search.html').as_uri()}?q={word}")
    page.wait_for_function(
        "/matching|did not match/.test(document.querySelector('.search-summary')?.textContent)"
    )
    links = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    found = {Path(link.partition("?")[0].partition("#")[0]).name for link in links} & set(CHAPTERS)
    assert found == holding != set()


def test_a_chapter_can_be_downloaded_and_its_cells_copied(page, folder):
    page.goto((folder / CHAPTERS[0]).as_uri())
    link = page.locator("a.notebook-link")
    assert (folder / link.get_attribute("href")).read_bytes() == book.chapters()[0].read_bytes()
    cells = page.locator(".cell_input")
    assert page.locator(".cell_input .copybtn").count() == cells.count() > 10
    page.locator(".cell_input .copybtn").first.click()
    page.locator(".cell_input .copybtn.success").wait_for()


def test_plumbing_is_folded_and_opens_by_keyboard(page, folder):
    page.goto((folder / CHAPTERS[1]).as_uri())
    folded = page.locator("details.hide")
    hidden = [
        cell for cell in book.read(book.chapters()[1]).cells if "hide-input" in cell.metadata.get("tags", [])
    ]
    assert folded.count() == len(hidden) > 0
    folded.first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert folded.first.get_attribute("open") is not None
