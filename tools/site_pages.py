"""What Sphinx reads of the pages that nobody writes by hand: the API reference, the records, the claims, the
list of chapters and how they were run; and docstrings as reStructuredText.
"""

import html
import re
from datetime import date
from functools import cache
from importlib import import_module
from itertools import pairwise

from crfbook.widgets import Lattice, lattice
from studies.claims import PAPERS, VERDICTS, claims
from studies.records import RESULTS, read_record
from tools.chapters import PARTS, ROOT, chapters, promise, read, title

SHOWN = 40  # rows of a record on its page, where it has more than twice as many
# of a docstring: an argument, an attribute; "Source: ..." and "int64: ..." are none
MEMBER = re.compile(r"((?!u?int\d|float\d|bool\b|[A-Z]\w+:)[\w.*]+(?:, [\w.*]+)*) ?: (.+)")
VERDICT = re.compile(r"^([a-z.][^:\n]*): ", re.M)


def in_part(part, stem):
    first, last = PARTS[part]
    return first <= stem[:2] <= last


def contents(notebooks):
    """The list of chapters, by parts, each with what its reader can do afterwards."""
    found = []
    for part in PARTS:
        found.append(f"### {part}\n")
        for stem, nb in notebooks.items():
            if in_part(part, stem):
                found.append(f"- [{stem[:2]} {title(nb)}]({stem}.ipynb): {promise(nb)}")
        found.append("")
    return "\n".join(found)


@cache
def terms():
    """The terms of the glossary."""
    text = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
    return [term for term in re.findall(r"^\| ([^|]+?) \|", text, re.M) if term != "term"]


def toctree(caption, names):
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", ""])


def names(module, wanted):
    """The part of a page that documents these names of a module."""
    lines = ["```{eval-rst}"]
    for name in wanted:
        thing = getattr(import_module(module), name)
        if isinstance(thing, type):
            again = ["   :no-index:"] * (module == "crfbook.pycrfsuite")  # its Tagger has a namesake
            own = ["   :inherited-members:"] * (not issubclass(thing, (tuple, BaseException)))
            lines += [f".. autoclass:: {module}.{name}", "   :members:", *own, *again, ""]
        elif callable(thing):
            lines += [f".. autofunction:: {module}.{name}", ""]
    return "\n".join([*lines, "```"])


def shown_lattice():
    """The lattice of three words, as pages have it."""
    log_node = [[2.0, 0.0, -1.0], [0.0, 0.5, 0.3], [-1.0, 0.6, 0.8]]
    log_edge = [[float("-inf"), 1.5, -1.0], [-1.0, 0.0, 1.0], [1.0, 0.5, float("-inf")]]
    return Lattice(lattice(["the", "old", "man"], ["D", "N", "V"], log_node, log_edge).model)._repr_html_()


@cache
def code():
    """{number of a chapter: the text of its code cells}."""
    return {
        path.stem[:2]: "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
        for path in chapters()
    }


def used_in(name):
    """The chapters whose code has a public name: "chapters 03 and 06", or ""."""
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    found = [number for number, text in code().items() if word.search(text)]
    if len(found) < 2:
        return "".join(f"chapter {number}" for number in found)
    return f"chapters {', '.join(found[:-1])} and {found[-1]}"


def docstring(lines):
    """A docstring of this package as reStructuredText: arguments as a list, indented blocks as they are."""
    found, inside = [], ""  # of a "table", a "doctest", a list's "item", an indented "block"
    for line, after in pairwise([*lines, ""]):
        text, indented = line.strip(), line.startswith("    ")
        if not text or set(text) == {"-"}:
            inside = inside if inside == "block" or text else ""
            found.append("")
        elif inside == "doctest" or text.startswith(">>> "):
            inside = "doctest"
            found.append(line)
        elif inside == "table" or re.fullmatch("=+( +=+)+", text):
            inside = "table"
            found.append(line)
        elif set(after.strip()) == {"-"} or re.fullmatch(r"\*\*.+\*\*", text):
            inside = ""
            found += ["", f"**{text.strip('*')}**", ""]
        elif indented and inside != "item" and found[-1:] and not found[-1].startswith("["):
            found += [] if inside == "block" else ["", "::", ""]
            inside = "block"
            found.append("   " + line)
        elif member := MEMBER.match(line):
            found += [] if inside == "item" else [""]
            inside = "item"
            found.append(f"* ``{member[1]}``: {escaped(member[2])}")
        elif inside == "item" and (indented or not text[0].isupper()):
            found.append("  " + escaped(text))
        else:
            found += [""] if inside else []
            inside = ""
            found.append(escaped(text))
    return found


def escaped(text):
    """Text in which only `names` mean something, all of them code."""
    parts = re.split(r"(`+[^`]+`+)", text)
    return "".join(
        f"``{part.strip('`')}``" if i % 2 else re.sub(r"([\\*|_])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def rows_of(table, class_="table dataframe"):
    """A table as HTML that is read as it stands, of texts that may be HTML already."""
    head = "".join(f"<th>{column}</th>" for column in table[0])
    body = "".join(f"<tr>{''.join(f'<td>{x}</td>' for x in row)}</tr>" for row in table[1:])
    return (
        '```{raw} html\n<div class="pst-scrollable-table-container" tabindex="0" role="region" '
        f'aria-label="table"><table class="{class_}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>\n```\n"
    )


def short(cell):
    """A number with more digits than a reader wants, in four; the file has all."""
    return f"{float(cell):.4g}" if re.fullmatch(r"-?\d*\.\d{6,}(e[-+]?\d+)?", cell) else cell


def records(number):
    """The page of a chapter's records; every one has what it was made by, its rows, and its file."""
    found = [f"# Records of chapter {number}\n", f"What chapter {number} shows, as it was recorded.\n"]
    for path in sorted(RESULTS.glob(f"{number}_*.csv")):
        about, rows = read_record(path)
        table = [list(rows[0]), *([html.escape(short(x or "")) for x in row.values()] for row in rows)]
        made = f"{about['date']}, commit {about['commit']}, {float(about['seconds']):,.0f} s"
        found.append(f"## {path.stem}\n\nRecorded {made}. {len(rows):,} rows.\n")
        found.append(f'```{{raw}} html\n<p><a href="csv/{path.name}" download>{path.name}</a></p>\n```\n')
        shown = SHOWN if len(rows) > 2 * SHOWN else len(rows)
        found.append(rows_of(table[: shown + 1]))
        if len(rows) > shown:
            found.append(f"The first {shown} rows; the file has all.\n")
    return "\n".join(found)


def claims_page(stems):
    """The tables of all papers; a claim leads to the chapter that shows it."""
    found = ["# What the papers claim\n"]
    found.append("Our numbers come from the records. Each has its error, or the p-value of a paired test.\n")
    found.append(VERDICT.sub(r"- **\1**: ", VERDICTS).replace("\nAn error", "\n\nAn error") + "\n")
    pages = {stem[:2]: f"{stem}.html" for stem in stems}
    for paper, (_, name) in PAPERS.items():
        try:
            table = claims(paper)
        except KeyError as missing:
            found.append(f"## {name}\n\nA record lacks rows that these claims need: {missing}.\n")
            continue
        counts = ", ".join(f"{n} {verdict}" for verdict, n in table["verdict"].value_counts().items())
        found.append(f"## {name}\n\n{counts.capitalize()}.\n")
        rows = [[html.escape(str(x)) for x in row] for row in table.to_numpy()]
        for row in rows:
            page = pages.get(row[-1][:2])
            row[-1] = f'<a href="{page}">{row[-1]}</a>' if page else row[-1]
        found.append(rows_of([list(table), *rows], "table dataframe claims"))
    return "\n".join(found)


def builds(notebooks, runs, data_used):
    """Which chapter was run on which data, in which time, or that its stored outputs are shown."""
    done = {run.path.stem: run for run in runs}
    rows = [["chapter", "data", "seconds", "outcome"] if runs else ["chapter", "data"]]
    for stem, nb in notebooks.items():
        run = done.get(stem)
        data = run.data if run else data_used(nb)
        shown = "<br>".join(html.escape(f"{n}: {s}") for n, s in sorted(data.items())) or "none"
        link = f'<a href="{stem}.html">{stem[:2]} {html.escape(title(nb))}</a>'
        ran = [f"{run.seconds:.0f}", "failed" if run.error else "ok"] if run else ["", "stored outputs"]
        rows.append([link, shown, *ran[: len(rows[0]) - 2]])
    stored = "" if runs else " Pages show the stored outputs."
    text = f"# Data and times of this build\n\nBuilt on {date.today()}.{stored}\n\n{rows_of(rows)}"
    twins = sorted({n.split()[0] for run in runs for n, source in run.data.items() if "twin" in source})
    if twins:
        text += (
            "\nA *built-in twin* is generated text. It stands for a corpus that is not on this machine. "
            "The text of the chapters holds. The numbers are those of the twin. For the real corpora: "
            f"`python -m data_fetch {' '.join(twins)}`, then `make book` again.\n"
        )
    return text
