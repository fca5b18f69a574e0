"""Sphinx's settings for the pages of the book, and what the pages have that Sphinx does not know:
formulas as MathML, "chapter 06" as a link, docstrings of this package, a button for the notebook.

tools/site.py calls Sphinx, which reads this file.
"""

import re

from docutils import nodes

from tools.chapters import NAME
from tools.formulas import to_mathml
from tools.site_pages import docstring, terms, used_in

project = "crfbook"
html_title = "crfbook"
project_copyright = "text: CC BY 4.0; code: BSD-3-Clause"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_static"]
default_role = "code"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "myst.xref_missing"]  # sections begin at level 2 where a page has parts
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # nothing from another host
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_number_source_lines = False
copybutton_selector = "div.cell_input pre, div.highlight-python pre, div.highlight-default pre"
smartquotes = False
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
add_module_names = False
html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = html_show_sourcelink = html_show_search_summary = False
templates_path = ["templates"]
html_sidebars = {"**": ["contents.html"]}
html_theme_options = {
    "navbar_center": [], "navbar_end": ["theme-switcher"], "secondary_sidebar_items": ["page-toc"],
    "article_header_start": [], "article_header_end": ["notebook.html"], "primary_sidebar_end": [],
    "footer_start": ["copyright"], "footer_end": [], "show_toc_level": 2, "logo": {"text": "crfbook"},
    "search_bar_text": "Search the book",
}  # fmt: skip

CHAPTERS = re.compile(r"\b[Cc]hapters?\s+\d\d\b(?:(?:,| and| to| or|, and)\s+\d\d\b)*")


GLOSSARY = "guides/glossary"
KEPT = nodes.reference, nodes.FixedTextElement, nodes.literal, nodes.raw, nodes.math, nodes.title


def running(doctree, besides=()):
    """The texts of a page outside links, code, formulas and titles."""
    for text in list(doctree.findall(nodes.Text)):
        around = text.parent
        while around and not isinstance(around, (*KEPT, *besides)):
            around = around.parent
        if around is None:
            yield text


def put_links(text, links):
    """Links in the place of parts of a text: [(start, end, address, class), ...] in their order."""
    found, at = [], 0
    for start, end, uri, kind in links:
        link = nodes.reference("", str(text)[start:end], refuri=uri, internal=True, classes=kind)
        found += [nodes.Text(str(text)[at:start]), link]
        at = end
    if found:
        text.parent.replace(text, [*found, nodes.Text(str(text)[at:])])


def link_terms(app, doctree, page):
    """The first use of each term of the glossary in a chapter becomes a link; there, terms are places."""
    if page == GLOSSARY:
        for row in doctree.findall(nodes.row):
            row["ids"].append(nodes.make_id(row[0].astext()))
    if not NAME.match(page):
        return
    uri, left = app.builder.get_relative_uri(page, GLOSSARY), set(terms())
    cited = {
        id(text)
        for part in doctree.findall(nodes.section)
        if "references" in part["ids"][0]
        for text in part.findall(nodes.Text)
    }
    for text in running(doctree, (nodes.table,)):
        if id(text) in cited:
            continue
        tried = ((re.search(rf"\b{re.escape(term)}(?:e?s)?\b", text, re.I), term) for term in left)
        links, at = [], 0
        for start, _, end, term in sorted(
            (hit.start(), -len(term), hit.end(), term) for hit, term in tried if hit
        ):
            if start >= at:
                links.append((start, end, f"{uri}#{nodes.make_id(term)}", ["term"]))
                left.discard(term)
                at = end
        put_links(text, links)


def link_chapters(app, doctree, page):
    """Every chapter that running text names by its number becomes a link to it."""
    pages = {name[:2]: name for name in app.env.found_docs if NAME.match(name)}
    for text in running(doctree):
        links = []
        for name in CHAPTERS.finditer(text):
            for place, number in enumerate(re.finditer(r"\d\d", name[0])):
                if number[0] in pages and pages[number[0]] != page:
                    uri = app.builder.get_relative_uri(page, pages[number[0]])
                    start = name.start() + (number.start() if place else 0)
                    links.append((start, name.start() + number.end(), uri, []))
        put_links(text, links)


def inline_math(self, node):
    self.body.append(f'<span class="math">{to_mathml(node.astext())}{node.get("tail", "")}</span>')
    raise nodes.SkipNode


def keep_punctuation(app, doctree, page):
    """A full stop or a comma stays in the line of the formula that it follows."""
    for formula in doctree.findall(nodes.math):
        after = formula.next_node(descend=False, siblings=True)
        if isinstance(after, nodes.Text) and (tail := re.match(r"[.,;:?!)]+(?=\s|$)", after)):
            formula["tail"] = tail[0]
            after.parent.replace(after, nodes.Text(after[tail.end() :]))


def block_math(self, node):
    self.body.append(f'<div class="math">{to_mathml(node.astext(), display=True)}</div>')
    raise nodes.SkipNode


def docstrings(app, what, name, thing, options, lines):
    lines[:] = docstring(lines)
    chapters = used_in(name) if what in ("class", "function", "exception") else ""
    if chapters:
        lines += ["", f"Used in {chapters}."]


def members(app, what, name, thing, skip, options):
    """What classes inherit from others than ours, as scikit-learn's, is described there."""
    foreign = not (getattr(thing, "__module__", None) or "crfbook").startswith("crfbook")
    return foreign or (getattr(thing, "__doc__", None) or "").startswith("Alias for field") or None


def notebook_of(app, page, template, context, doctree):
    context["notebook"] = f"{page}.ipynb" if NAME.match(page) else ""


def setup(app):
    app.config.html_static_path = [f"{app.srcdir}/_static"]
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("doctree-resolved", keep_punctuation)
    app.connect("doctree-resolved", link_chapters)
    app.connect("doctree-resolved", link_terms)
    app.connect("autodoc-process-docstring", docstrings)
    app.connect("autodoc-skip-member", members)
    app.connect("html-page-context", notebook_of)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
