"""Executed chapters as HTML pages, and the index page that lists them.
The pages need no network to be read.
"""

import copy
import html
import re
from datetime import date

from jinja2 import pass_context
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from studies.claims import PAPERS, UNJUDGED, VERDICTS, claims
from tools.chapters import NOTEBOOKS, normalise, promise, title
from tools.formulas import to_mathml

# A link from one notebook to another leads from page to page.
CHAPTER_LINK = re.compile(r'href="(\d\d_[a-z0-9_]+)\.ipynb')
PAGE_LINK = re.compile(r'<a href="(\d\d_[a-z0-9_]+)\.html[^>]*>(.*?)</a>', re.S)
# What nbconvert makes of formulas in headings, <ns0:math>, no browser knows.
NAMESPACE = re.compile(r'(</?)ns0:| xmlns:ns0="[^"]*"')
HEADING = re.compile(r'<h([23]) id="([^"]+)">(.*?)<a class="anchor-link"', re.S)

# What the index and the chapters share: a readable column, links that look like links, room on a telephone.
COMMON = """
.bar { display: flex; justify-content: space-between; gap: 1rem; padding: .6rem 0;
font: 15px/1.4 system-ui, sans-serif; }
.bar a, main a { color: #0b57a4; text-decoration: none; }
.bar a:hover, main a:hover { text-decoration: underline; }
.contents { max-width: 62rem; margin: 0 auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
.contents div { padding-left: 1rem; } .contents div.h3 { padding-left: 2.5rem; }
.contents a { color: #0b57a4; text-decoration: none; }
"""

STYLE = """
body { font: 17px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
color: #222; }
table { border-collapse: collapse; width: 100%; margin: 1.5rem 0; }
td, th { text-align: left; vertical-align: top; padding: .5rem .6rem; border-bottom: 1px solid #ddd; }
.time { white-space: nowrap; } .time { text-align: right; } td.data { min-width: 11rem; }
small { color: #555; } td small { display: block; margin-top: .2rem; }
code { background: #f2f2f2; padding: 0 .25em; }
.failed { color: #b00020; font-weight: bold; }
.claims { font-size: .85em; }
"""

# JupyterLab's look; formulas as MathML, drawn with a font made for them where there is one; no script from
# anywhere.
TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}<style>
main, .bar { max-width: 62rem; margin: 0 auto; } .bar { padding: .6rem 1rem; }
math { font-size: 1.15em;
font-family: "Latin Modern Math", "STIX Two Math", "Cambria Math", "Libertinus Math",
"TeX Gyre Termes Math", "DejaVu Math TeX Gyre", math; }
math[display="block"] { margin: .9em 0; overflow-x: auto; overflow-y: hidden; }
mtd { padding: .25em .15em; } mtd[columnalign="right"] { text-align: right; }
mtd[columnalign="left"] { text-align: left; }
menclose[notation="box"] { border: 1px solid; padding: .2em; }
.jp-OutputArea-output img { max-width: 100%; height: auto; }
body .jp-RenderedText pre { word-break: normal; overflow-wrap: anywhere; }
''' COMMON '''</style>{% endblock %}
{% block data_png scoped %}<div class="jp-RenderedImage jp-OutputArea-output {{ extra_class }}" tabindex="0">
<img src="data:image/png;base64,{{ output.data['image/png'] | escape_html }}"
alt="{{ (output | get_metadata('alt', 'image/png') or 'figure') | escape_html }}"></div>{% endblock %}
{% block body_header %}{{ super() }}{{ resources.bar }}{% endblock %}
{% block body_footer %}{{ resources.bar }}{{ super() }}{% endblock %}
""".replace("''' COMMON '''", COMMON)


INDEX = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>crfbook</title><style>{style}</style>
<main><h1>crfbook</h1>
<p>Conditional random fields, derived, implemented, checked and measured. Each page is a notebook that was
executed on this machine; to change it and run it yourself: <code>make lab</code>.</p>
<table><tr><th></th><th>Chapter, and what you can do after it</th><th>Data of this run</th>
<th class="time">Time</th><th></th></tr>
{rows}</table>
{note}<h2>What the papers claim</h2>
<p>Our numbers come from the records of the book, each with its error or the p-value of a paired test.</p>
<pre>{verdicts}</pre>
{claims}<p><small>Executed on {date}. Text: CC BY 4.0. Code: BSD-3-Clause.</small></p></main></html>
"""


class _Renderer(IPythonRenderer):
    """Markdown whose formulas become MathML."""

    def inline_math(self, body):
        return to_mathml(body)

    def block_math(self, body):
        return to_mathml(body, display=True)

    def latex_environment(self, name, body):
        return to_mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", display=True)


def markdown(source):
    """Markdown with $formulas$ as HTML with MathML."""
    return MarkdownWithMath(renderer=_Renderer(escape=False)).render(source)


class _Exporter(HTMLExporter):
    @pass_context
    def markdown2html(self, context, source):
        page = markdown(source)
        return CHAPTER_LINK.sub(r'href="\1.html', page)


def bar(run, runs):
    """The line above and below a chapter: the one before it, the index, the one after it."""
    place = next((i for i, other in enumerate(runs) if other.path == run.path), None)
    before = runs[place - 1] if place else None
    after = runs[place + 1] if place is not None and place + 1 < len(runs) else None
    before, after = (
        f'<a href="{other.path.stem}.html">{mark[0]}{html.escape(_name(other))}{mark[1]}</a>'
        if other
        else "<span></span>"
        for other, mark in ((before, ("&larr; ", "")), (after, ("", " &rarr;")))
    )
    return f'<nav class="bar">{before}<a href="index.html">All chapters</a>{after}</nav>'


def contents(body):
    """The sections of a page, folded away; a star is that of the section."""
    rows = (
        f'<div class="h{level}"><a href="#{place}">{heading}</a></div>'
        for level, place, heading in HEADING.findall(body)
    )
    return f'<details class="contents"><summary>Sections</summary>{"".join(rows)}</details>'


def _name(run):
    return f"{run.path.stem[:2]}. {title(run.nb)}"


def write_page(run, folder, runs=()):
    """One chapter as build/book/NN_name.html, tracebacks included where a cell failed; it links to its
    neighbours in `runs`, and of other chapters to those that have a page then.
    """
    exporter = _Exporter(raw_template=TEMPLATE)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    nb = copy.deepcopy(run.nb)
    nb.cells = [c for c in nb.cells if "install" not in c.metadata.get("tags", [])]
    for cell in normalise(nb).cells:  # the figures' alternative texts, too
        # a note to the tests, not to the reader
        cell.source = cell.source.removeprefix("# NBVAL_CHECK_OUTPUT\n")
        if "hide-input" in cell.metadata.get("tags", []):
            cell.metadata["transient"] = {"remove_source": True}
    resources = {"metadata": {"name": _name(run)}, "bar": bar(run, runs)}
    body, _ = exporter.from_notebook_node(nb, resources=resources)
    body = NAMESPACE.sub(lambda found: found[1] or "", body)
    body = body.replace(resources["bar"], resources["bar"] + contents(body), 1)
    if runs:
        there = {other.path.stem for other in runs} | {page.stem for page in folder.glob("*.html")}
        body = PAGE_LINK.sub(lambda link: link[0] if link[1] in there else link[2], body)
    path = folder / f"{run.path.stem}.html"
    path.write_text(body, encoding="utf-8")
    return path


def _with_formulas(text):
    """Text with $formulas$ as HTML."""
    parts = re.split(r"\$([^$]+)\$", text)
    return "".join(to_mathml(part) if i % 2 else html.escape(part) for i, part in enumerate(parts))


def write_index(runs, folder):
    rows = []
    for run in runs:
        data = "<br>".join(html.escape(f"{n}: {s}") for n, s in sorted(run.data.items())) or "none"
        state = '<span class="failed">failed</span>' if run.error else "ok"
        rows.append(
            f"<tr><td>{run.path.stem[:2]}</td>"
            f'<td><a href="{run.path.stem}.html">{html.escape(title(run.nb))}</a>'
            f'<small>{_with_formulas(promise(run.nb))}</small></td><td class="data">{data}</td>'
            f'<td class="time">{run.seconds:.0f} s</td><td>{state}</td></tr>'
        )
    path = folder / "index.html"
    path.write_text(
        INDEX.format(
            style=COMMON + STYLE,
            rows="".join(rows),
            note=_note(runs),
            claims=_claims(runs),
            verdicts=html.escape(f"{VERDICTS}\n{UNJUDGED}"),
            date=date.today(),
        ),
        encoding="utf-8",
    )
    return path


def _claims(runs):
    """The tables of all papers; a claim leads to the chapter that shows it."""
    stems, parts = {run.path.stem[:2]: run.path.stem for run in runs}, []
    for paper, (_, name) in PAPERS.items():
        table = claims(paper, NOTEBOOKS / "results").map(html.escape)
        pages = table["where"].str[:2].map(lambda chapter: f"{stems.get(chapter, '')}.html")
        linked = pages != ".html"
        table.loc[linked, "where"] = '<a href="' + pages + '">' + table["where"] + "</a>"
        head = "".join(f"<th>{column}</th>" for column in table)
        rows = "".join(f"<tr>{''.join(f'<td>{x}</td>' for x in row)}</tr>" for row in table.to_numpy())
        counts = ", ".join(f"{n} {verdict}" for verdict, n in table["verdict"].value_counts().items())
        parts.append(f"<h3>{html.escape(name)}: {counts}</h3>")
        parts.append(f'<table class="claims"><tr>{head}</tr>{rows}</table>')
    return "".join(parts)


def _note(runs):
    """Where a twin stood in: what that means, and how to change it."""
    twins = sorted({name.split()[0] for run in runs for name, source in run.data.items() if "twin" in source})
    if not twins:
        return ""
    return (
        "<p>A <em>built-in twin</em> is generated text in the place of a corpus that is not on this machine: "
        "the text of the "
        "chapters holds, the numbers are those of the twin. For the real ones: "
        f"<code>python -m data_fetch {html.escape(' '.join(twins))}</code>, "
        "then <code>make book</code> again.</p>"
    )
