"""``make site``: the book as pages that need no network, with the outputs that the notebooks hold.

python -m tools.site          build/site/index.html; nothing is executed
"""

import copy
import html
import re
import shutil
import sys
from pathlib import Path

from nbformat import writes
from nbformat.v4 import new_output

from tools.chapters import NOTEBOOKS, PARTS, PICTURES, ROOT, asked_for_help, chapters, normalise, read
from tools.execute import data_used
from tools.formulas import STYLE, to_mathml
from tools.site_pages import (
    builds,
    claims_page,
    contents,
    in_part,
    names,
    records,
    shown_lattice,
    toctree,
)

BUILD = ROOT / "build" / "site"
THEME = ROOT / "tools" / "theme"
RECORDS = NOTEBOOKS / "results"
WRITTEN = ROOT / "docs" / "site"  # the index, and the texts of the API reference
GUIDES = {  # file of the checkout: its page
    "docs/GLOSSARY.md": "guides/glossary",
    "docs/INSTALLING.md": "guides/installing",
    "docs/USING.md": "guides/using",
    "docs/COMING_FROM_SKLEARN_CRFSUITE.md": "guides/coming_from_sklearn_crfsuite",
    "notebooks/teaching/README.md": "guides/teaching",
    "notebooks/teaching/syllabus.md": "guides/syllabus",
    "notebooks/teaching/prerequisites.ipynb": "guides/prerequisites",
    "notebooks/assignments/README.md": "guides/assignments",
    "notebooks/README.md": "guides/writing_a_chapter",
    "docs/ARCHITECTURE.md": "guides/architecture",
    "docs/CONTRIBUTING.md": "guides/contributing",
}
REFERENCE = {f"docs/{name}.md": f"guides/{name.lower()}" for name in ("PAPERS", "SPEC", "MEASURED")}
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")
ATTACHED = re.compile(r"^@(\w+)(.*)$", re.M)
# What means itself: fenced code, code, formulas; and comments, which readers of pages do not need.
APART = re.compile(
    r"^(?P<fence>[ \t]*(?P<marks>`{3,}|~{3,}))(?P<language>[^\n]*)(?P<body>\n.*?^[ \t]*(?P=marks)[ \t]*$)"
    r"|(?P<comment>^[ \t]*<!--.*?-->\n?|[ \t]*<!--.*?-->)"
    r"|(?<!`)(?P<tick>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=tick)(?!`)"
    r"|\$\$.+?\$\$|\$(?P<formula>[^$\n]+)\$",
    re.S | re.M,
)
SUMMARY = re.compile(r"<summary>.*?</summary>", re.S)
RECORDED = re.compile(r"^(\w+): recorded (.*)\n", re.M)  # as studies.recorded prints it
LONG = 24  # signs of a cell that may take several lines


def pages():
    """{file of the checkout: its page, with the suffix that the page's source has}."""
    found = {f"notebooks/{path.name}": path.name for path in chapters()}
    found |= {name: page + Path(name).suffix for name, page in {**GUIDES, **REFERENCE}.items()}
    for path in RECORDS.glob("*.csv"):
        found[f"notebooks/results/{path.name}"] = f"records/{path.stem[:2]}.md#{path.stem}"
    return found


def relinked(text, source, page, where):
    """Markdown whose links to files of the checkout lead to their pages; those without a page are text."""

    def titled(match):
        path = (ROOT / source).parent / match[2]
        heading = re.search(r"# ([^\n\"\\]+)", path.read_text(encoding="utf-8")) if path.is_file() else None
        return f"[{heading[1] if heading else match[1]}]("

    def target(match):
        name, anchor = match[1], (match[2] or "").lower()
        if not name:
            return match[0]
        path = (ROOT / source).parent.joinpath(name).resolve()
        found = where.get(path.relative_to(ROOT).as_posix()) if path.is_relative_to(ROOT) else None
        if found is None:
            return "](#)"
        up = "../" * page.count("/")
        return f"]({up}{found}{anchor if '#' not in found else ''})"

    kept = []

    def keep(match):
        if match["comment"]:
            return ""
        kept.append(match)
        return f"\0{len(kept) - 1}\0"

    def back(match):
        one = kept[int(match[1])]
        if one["fence"] and not one["language"].strip():  # no language is no Python
            return f"{one['fence']}text{one['body']}"
        return one[0]

    def drawn(match):
        one = kept[int(match[1])]
        return to_mathml(one["formula"]) if one["formula"] else one[0]

    text = APART.sub(keep, text)
    text = re.sub(r"\[([\w./]+\.(?:md|ipynb))\]\((?=([\w./]+))", titled, text)
    text = re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(#\)", r"\1", LINK.sub(target, text))
    text = SUMMARY.sub(lambda found: re.sub("\0(\\d+)\0", drawn, found[0]), text)
    return re.sub("\0(\\d+)\0", back, text)


def file_of(record):
    return f"notebooks/results/{record}.csv"


def with_records(outputs, page, where):
    """Outputs of a cell without the lines that say what was recorded when; these are links at their end."""
    found, kept = [], []
    for out in outputs:
        if out.output_type == "stream":
            found += RECORDED.findall(out.text)
            out.text = RECORDED.sub(lambda line: line[0] * (file_of(line[1]) not in where), out.text)
        if out.output_type != "stream" or out.text.strip():
            kept.append(out)
    links = [
        f'<a href="{where[file].replace(".md", ".html")}">{name}</a> ({html.escape(about)})'
        for name, about in found
        if (file := file_of(name)) in where
    ]
    if links:
        text = f'<p class="recorded">Recorded: {"; ".join(links)}</p>'
        kept.append(new_output("display_data", {"text/html": text}))
    return kept


def tabled(page):
    """HTML of a table of pandas, with a class that says whether a cell has a long text."""
    longest = max(map(len, re.findall(r"<td[^>]*>([^<]*)", page)), default=0)
    return page.replace('class="dataframe"', f'class="dataframe {"long" if longest > LONG else "short"}"')


def page_of(nb, source, page, where):
    """A notebook as Sphinx reads it: without what concerns tests, figures with their alternative texts."""
    nb = normalise(copy.deepcopy(nb))
    nb.cells = [cell for cell in nb.cells if "install" not in cell.metadata.get("tags", [])]
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = relinked(cell.source, source, page, where)
            continue
        cell.source = cell.source.removeprefix("# NBVAL_CHECK_OUTPUT\n")
        cell.outputs = with_records(cell.outputs, page, where)
        for out in cell.outputs:  # a page has no kernel
            data = out.get("data", {})
            data.pop("application/vnd.jupyter.widget-view+json", None)
            if "text/html" in data:
                data["text/html"] = tabled(data["text/html"])
        about = [out.metadata.get(kind, {}) for out in cell.outputs if "metadata" in out for kind in PICTURES]
        described = [one.get("alt") for one in about]
        if any(described):
            cell.metadata["mystnb"] = {"image": {"alt": next(filter(None, described))}}
        if "hide-input" in cell.metadata.get("tags", []):
            said = re.match(r"# ?(.{1,70}?)[.:;,]?(?:\n|$| \()", cell.source)
            cell.metadata.setdefault("mystnb", {})["code_prompt_show"] = (
                f"Code: {said[1]}" if said else "Code"
            )
    return writes(nb)


def stage(folder, runs=()):
    """Write the sources of all pages into a new folder. `runs` bring their chapters' new outputs."""
    shutil.rmtree(folder, ignore_errors=True)
    where, done = pages(), {run.path.stem: run.nb for run in runs}
    notebooks = {path.stem: done.get(path.stem) or read(path) for path in chapters()}

    def put(name, text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    for source, page in where.items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            nb = notebooks.get(path.stem) or read(path)
            put(page, page_of(nb, source, page, where))
        elif path.suffix == ".md":
            put(page, relinked(path.read_text(encoding="utf-8"), source, page, where))
    numbers = sorted({path.stem[:2] for path in RECORDS.glob("*.csv")})
    for number in numbers:
        put(f"records/{number}.md", records(number))
    listed = [f"{number}.md" for number in numbers]
    put(
        "records/index.md", "\n".join(["# Records", "", WHAT_RECORDS_ARE, "", "```{toctree}", *listed, "```"])
    )
    put("claims.md", claims_page(notebooks))
    put("builds.md", builds(notebooks, runs, data_used))
    fill = {
        "chapters": lambda _: contents(notebooks),
        "lattice": lambda _: f"```{{raw}} html\n{shown_lattice()}\n```",
        "names": lambda words: names(words.split()[0], words.split()[1:]),
    }
    api = sorted(path.stem for path in (WRITTEN / "api").glob("*.md"))
    for path in WRITTEN.rglob("*.md"):
        text = ATTACHED.sub(lambda match: fill[match[1]](match[2]), path.read_text(encoding="utf-8"))
        if path.stem == "index":
            trees = {part: [stem for stem in notebooks if in_part(part, stem)] for part in PARTS}
            trees |= {"Guides": GUIDES.values(), "Reference": [f"api/{name}" for name in api]}
            trees["The papers"] = [*REFERENCE.values(), "claims", "records/index", "builds"]
            text += "\n" + "\n".join(toctree(part, pages) for part, pages in trees.items() if pages)
        put(str(path.relative_to(WRITTEN)), text)
    put("_static/site.css", STYLE + (THEME / "site.css").read_text(encoding="utf-8"))
    put("_static/site.js", (THEME / "site.js").read_text(encoding="utf-8"))


WHAT_RECORDS_ARE = (
    "A record holds what a run measured. Its first lines name the commit, the date, the versions and the "
    "data. Chapters show records beside the numbers of the papers."
)


def build(folder, runs=()):
    """All pages as HTML in a folder; returns Sphinx's exit code, with its warnings on stderr."""
    from sphinx.cmd.build import main as sphinx

    source = folder.with_name(f"{folder.name}-source")
    stage(source, runs)
    shutil.rmtree(folder, ignore_errors=True)  # pages of chapters that are no more
    options = ["-q", "-j", "2", "-E", "-d", str(source / "_doctrees"), "-c", str(THEME)]
    status = sphinx([*options, "-b", "html", str(source), str(folder)])
    (folder / "_static" / "webpack-macros.html").unlink(missing_ok=True)  # a template of the theme, no page
    for path in chapters():  # as they are stored: what the button downloads
        shutil.copy(path, folder / path.name)
    shutil.copytree(RECORDS, folder / "records" / "csv", dirs_exist_ok=True)
    return status


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    print("making the pages, about half a minute ...", flush=True)
    status = build(BUILD)
    print(f"HTML: {(BUILD / 'index.html').relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
