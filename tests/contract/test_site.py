"""The pages of the book: what Sphinx reads, what it makes of it. tests/browser looks at them in Chromium."""

import ast
import contextlib
import io
import re
from html.parser import HTMLParser
from importlib import import_module

import nbformat
import pytest
from docutils import nodes

import crfbook
from tools import chapters as book
from tools import site, site_pages
from tools.execute import Run

FACES = "decoding", "dynamic", "distributed", "evaluation", "plotting", "widgets"
GLOSSARY = (book.ROOT / "docs" / "GLOSSARY.md").read_text()
API = site.WRITTEN / "api"


class Text(HTMLParser):
    """Running text of a page, and its pictures: no code, links, headings or navigation."""

    SKIPPED = {"pre", "code", "a", "h1", "h2", "h3", "h4", "script", "style", "nav", "math", "title"}

    def __init__(self, page):
        super().__init__()
        self.open, self.texts, self.alts = [], [], []
        self.feed(page[page.find("<article") : page.find("</article>")])

    def handle_starttag(self, tag, attrs):
        if tag in self.SKIPPED:
            self.open.append(tag)
        if tag == "img":
            self.alts.append(dict(attrs).get("alt", ""))

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        if not self.open:
            self.texts.append(data)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """All pages, from the stored outputs; Sphinx must have nothing to say."""
    folder, said = tmp_path_factory.mktemp("site") / "pages", io.StringIO()
    with contextlib.redirect_stderr(said):
        assert site.build(folder) == 0
    assert said.getvalue().strip() == ""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}


def test_every_chapter_guide_topic_and_record_has_a_page(built):
    wanted = {f"{path.stem}.html" for path in book.chapters()} | {"index.html", "claims.html", "builds.html"}
    wanted |= {f"{page}.html" for page in [*site.GUIDES.values(), *site.REFERENCE.values()]}
    wanted |= {f"api/{path.stem}.html" for path in API.glob("*.md")}
    wanted |= {f"records/{path.stem[:2]}.html" for path in site.RECORDS.glob("*.csv")}
    assert wanted <= set(built)


def test_pages_need_no_other_host_and_read_every_formula(built):
    for name, page in built.items():
        assert "unread-formula" not in page, name
        assert not re.search(
            r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*href="(?:https?:)?//', page
        )


def test_chapters_that_are_named_are_links(built):
    numbers = "|".join(path.stem[:2] for path in book.chapters())
    for name, page in built.items():
        own = {name[:2], *re.findall(r"records/(\d\d)", name)}
        plain = re.findall(rf"[Cc]hapters?\s+({numbers})\b", " ".join(Text(page).texts))
        assert set(plain) <= own, name


def test_every_picture_says_what_it_shows(built):
    for path in book.chapters():
        alts = Text(built[f"{path.stem}.html"]).alts
        stored = [out for cell in book.read(path).cells for out in cell.get("outputs", ())]
        pictures = [out for out in stored if set(book.PICTURES) & set(out.get("data", {}))]
        assert len(alts) == len(pictures), path.stem
        assert all(len(alt.split()) >= 5 for alt in alts), path.stem


def test_pages_have_neighbours_sections_and_their_notebook(built):
    first, second = (path.stem for path in book.chapters()[:2])
    page = built[f"{second}.html"]
    assert re.search(rf'class="left-prev"\s+href="{first}.html"', page) and 'class="right-next"' in page
    assert f'href="{second}.ipynb" download' in page
    contents = page[page.index("page-toc") :]
    stars = [h for h in re.findall(r'nav-link" href="#[^"]+">(.*?)</a>', contents, re.S) if h.endswith("*")]
    assert any("The kernel" in h for h in stars) and any("Cost" in h for h in stars)
    assert "google.colab" not in page and "NBVAL" not in page and "holds:" not in page


def test_the_first_use_of_a_term_leads_to_the_glossary(built):
    places = set(re.findall(r' id="([^"]+)"', built["guides/glossary.html"]))
    for path in book.chapters():
        linked = re.findall(
            r'class="term[^"]*" href="guides/glossary\.html#([^"]+)"', built[f"{path.stem}.html"]
        )
        assert len(linked) == len(set(linked)) and set(linked) <= places, path.stem
        assert len(linked) >= 5, path.stem
    for row in re.findall(r"^\| (.+) \| (.+) \| (.*) \| (\d\d) \|$", GLOSSARY, re.M):
        pages = [built[f"{path.stem}.html"] for path in book.chapters() if path.stem[:2] == row[3]]
        assert all(f'glossary.html#{nodes.make_id(row[0])}"' in page for page in pages), row[0]
    assert len(site_pages.terms()) == len(set(site_pages.terms())) > 60


def test_what_was_recorded_is_a_link_to_the_record(built):
    page = built["15_distributed.html"]
    assert not re.search(r"\d\d_\w+: recorded ", page)
    links = re.findall(r'<p class="recorded">.*?</p>', page, re.S)
    found = re.findall(r'href="(records/15\.html)#(\w+)"', " ".join(links))
    assert len(found) > 5 and all(f'id="{place}"' in built[name] for name, place in found)


def test_tables_say_whether_a_cell_is_long():
    table = '<table border="1" class="dataframe"><tr><td>{}</td></tr></table>'
    assert "dataframe short" in site.tabled(table.format("F1")) and "long" in site.tabled(
        table.format("x " * 20)
    )


def test_each_chapter_is_in_one_part():
    for path in book.chapters():
        assert sum(site_pages.in_part(part, path.stem) for part in book.PARTS) == 1


def documented():
    for path in API.glob("*.md"):
        for line in re.findall(r"^@names (.+)$", path.read_text(), re.M):
            module, *names = line.split()
            yield from ((module, name) for name in names)


def test_the_reference_has_every_public_name():
    named = set(documented())
    for module, name in named:
        assert getattr(import_module(module), name).__doc__, (module, name)
    modules = {name for name in crfbook.__all__ if name == name.lower() and name in crfbook._HOME}
    wanted = {name for name in crfbook.__all__ if not name.startswith("_")} - modules
    assert wanted | {"load_dataset", "read_conll"} <= {n for m, n in named if m == "crfbook"} | modules
    for face in FACES[2:]:
        module = import_module(f"crfbook.{face}")
        public = {name for name in module.__all__ if callable(getattr(module, name))}  # no constants
        assert public <= {n for m, n in named if m.endswith(face)}


def test_the_reference_names_the_chapters_that_use_a_name(built):
    assert site_pages.used_in("crfbook.regularization_path").startswith("chapter")
    assert site_pages.used_in("crfbook.no_such_name") == ""
    uses = built["api/estimators.html"]
    assert re.search(r'Used in <a [^>]*href="\.\./00_start_here\.html"[^>]*>chapters 00</a>', uses)


@pytest.mark.parametrize("topic", ["estimators", "data", "decoding", "widgets"])
def test_examples_of_the_reference_print_what_is_shown(topic):
    ((code, shown),) = re.findall(
        r"```python\n(.*?)```\s+prints[^`]*```text\n(.*?)```", (API / f"{topic}.md").read_text(), re.S
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(ast.parse(code), topic, "exec"), {})
    assert said.getvalue() == shown


def test_links_lead_to_pages_or_become_text():
    where = site.pages()

    def linked(text, source="notebooks/04_x.ipynb", page="04_x.ipynb"):
        return site.relinked(text, source, page, where)

    assert linked("[why](01_from_hmm_to_crf.ipynb#Cost)") == "[why](01_from_hmm_to_crf.ipynb#cost)"
    assert linked("[a](https://example.org/05_x.ipynb)") == "[a](https://example.org/05_x.ipynb)"
    assert linked("See [the `code`](../crfbook/brute.py).") == "See the `code`."
    guide = ("docs/PAPERS.md", "guides/papers.md")
    assert linked("[r](../notebooks/results/02_limits.csv)", *guide) == "[r](../records/02.md#02_limits)"
    assert linked("x <!-- holds: a > b -->, y") == "x, y"
    assert linked("write `<!-- so -->` <!-- b\n -->or\n<!-- c -->\nz") == "write `<!-- so -->`or\nz"
    for code in (
        "```python\nf[i](x) <!-- a -->\n```",
        "~~~text\na[b](c)\n~~~",
        "`a[b](c)`",
        "$p[i](x)$",
        "$$\na[b](c)\n$$",
    ):
        assert linked(f"so\n{code}\nthen [x](nowhere.md)") == f"so\n{code}\nthen x"
    assert linked("  ```\n  a\n  ```") == "  ```text\n  a\n  ```"
    assert "<math" in linked("<summary>why $x$ and `$y`</summary>") and "`$y`" in linked(
        "<summary>`$y`</summary>"
    )
    assert linked("see [USING.md](../docs/USING.md)").startswith("see [Using ")


def test_a_page_shows_the_outputs_of_its_run_and_others_the_stored_ones(tmp_path):
    path, other = book.chapters()[:2]
    nb = book.read(path)
    nb.cells.append(nbformat.v4.new_code_cell("1 / 0", execution_count=1))
    nb.cells[-1].outputs = [nbformat.v4.new_output("error", ename="E", evalue="bad", traceback=["E: bad"])]
    site.stage(tmp_path / "source", [Run(path, nb, 1.0, "E: bad", {})])
    assert "E: bad" in (tmp_path / "source" / path.name).read_text()
    assert (tmp_path / "source" / other.name).exists()
    index = (tmp_path / "source" / "index.md").read_text()
    assert all(p.stem in index for p in book.chapters())
    table = (tmp_path / "source" / "builds.md").read_text()
    assert table.count("<td>failed</td>") == 1 and "<td>stored outputs</td>" in table


DOCSTRING = """Fit `model`, with **kwargs_.

Parameters
----------
c1 : number, of |w|_1.
    More of it.
X, y: as in `fit`

    indented * block_
Returns w_.
"""


def test_docstrings_become_lists_and_blocks():
    found = "\n".join(site_pages.docstring(DOCSTRING.splitlines()))
    assert "Fit ``model``, with \\*\\*kwargs\\_." in found and "**Parameters**" in found
    assert "* ``c1``: number, of \\|w\\|\\_1.\n  More of it.\n* ``X, y``: as in ``fit``" in found
    assert "::\n\n       indented * block_\n\nReturns w\\_." in found
