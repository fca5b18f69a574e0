"""Executed chapters as HTML pages, and the index page that lists them. The pages need no network to be read."""

import copy
import html
from datetime import date

from jinja2 import pass_context
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from tools.chapters import promise, title
from tools.formulas import to_mathml

STYLE = """
body { font: 17px/1.5 Georgia, serif; max-width: 58rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .4rem .6rem;
border-bottom: 1px solid #ddd; } .failed { color: #b00020; font-weight: bold; } small { color: #555; }
"""

# JupyterLab's look, a readable column, formulas as MathML; no script from anywhere.
TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}<style>
main { max-width: 58rem; margin: 0 auto; }
math { font-size: 1.1em; } math[display="block"] { margin: .7em 0; }
mtd { padding: .2em .15em; } mtd[columnalign="right"] { text-align: right; } mtd[columnalign="left"] { text-align: left; }
menclose[notation="box"] { border: 1px solid; padding: .2em; }
.jp-OutputArea-output img { max-width: 100%; height: auto; }
</style>{% endblock %}
{% block body_header %}{{ super() }}<p><a href="index.html">All chapters</a></p>{% endblock %}
"""


class _Renderer(IPythonRenderer):
    """Markdown whose formulas become MathML."""

    def inline_math(self, body):
        return to_mathml(body)

    def block_math(self, body):
        return to_mathml(body, display=True)

    def latex_environment(self, name, body):
        return to_mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", display=True)


class _Exporter(HTMLExporter):
    @pass_context
    def markdown2html(self, context, source):
        return MarkdownWithMath(renderer=_Renderer(escape=False)).render(source)


def write_page(run, folder):
    """One chapter as build/book/NN_name.html, tracebacks included where a cell failed."""
    exporter = _Exporter(raw_template=TEMPLATE)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    nb = copy.deepcopy(run.nb)
    nb.cells = [c for c in nb.cells if "install" not in c.metadata.get("tags", [])]
    for cell in nb.cells:
        if "hide-input" in cell.metadata.get("tags", []):
            cell.metadata["transient"] = {"remove_source": True}
    body, _ = exporter.from_notebook_node(nb, resources={"metadata": {"name": f"{run.path.stem[:2]}. {title(nb)}"}})
    path = folder / f"{run.path.stem}.html"
    path.write_text(body, encoding="utf-8")
    return path


def write_index(runs, folder):
    rows = []
    for run in runs:
        data = "<br>".join(html.escape(f"{n}: {s}") for n, s in sorted(run.data.items())) or "none"
        state = '<span class="failed">failed</span>' if run.error else "ok"
        rows.append(
            f'<tr><td>{run.path.stem[:2]}</td><td><a href="{run.path.stem}.html">{html.escape(title(run.nb))}</a>'
            f"<br><small>{html.escape(promise(run.nb))}</small></td><td>{data}</td>"
            f"<td>{run.seconds:.1f} s</td><td>{state}</td></tr>"
        )
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>crfbook</title><style>{STYLE}</style>'
        "<h1>crfbook</h1><p>Conditional random fields, derived, implemented, checked and measured.</p>"
        "<table><tr><th></th><th>Chapter</th><th>Data of this run</th><th>Time</th><th></th></tr>"
        + "".join(rows)
        + f"</table><p><small>Executed on {date.today()}. Text: CC BY 4.0. Code: BSD-3-Clause.</small></p></html>"
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path
