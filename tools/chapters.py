"""The chapters as files: where they are, what a clean one looks like, and how a new one starts.

python -m tools.chapters new 04 loss_functions "Which loss?"     an empty chapter with the anatomy's headings
python -m tools.chapters tidy [NN ...]                           normalise metadata, keep outputs
python -m tools.chapters check [NN ...]                          the contract test for these chapters only
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
from nbformat import v4

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PICTURES = "image/png", "image/svg+xml"
NAME = re.compile(r"^(\d\d)_[a-z0-9_]+$")

ALLOWED_TAGS = {
    "install": "the hidden first code cell, which does something on Google Colab only",
    "algorithm": "the one plain-NumPy algorithm of the chapter, up to 40 lines",
    "hide-input": "the source is folded away (figures); the output counts",
    "exercise": "left for the reader to fill in",
}

# Headings of a full chapter, in this order. A heading may say more: "## 2. By enumeration: two words, nine
# paths".
ANATOMY = [
    "question", "by enumeration", "derivation", "plain numpy", "the kernel", "check",
    "experiment", "cost", "when to use it", "exercises", "references",
]  # fmt: skip
# Chapter 00 derives nothing: it is ten minutes with a tagger.
ANATOMY_START = [
    "question",
    "the corpus",
    "a tagger",
    "its errors",
    "its weights",
    "notation",
    "exercises",
    "references",
]

PARTS = {  # of the book, with the numbers of their chapters
    "Foundations": ("00", "03"),
    "Learning": ("04", "09"),
    "Many labels": ("10", "11"),
    "Many chains": ("12", "13"),
    "Scale and practice": ("14", "99"),
}

PROMISE = "**After this chapter you can**"

# The rest is the core, where a class can stop. A star at a section holds for all below it.
STAR = r"\*"
CORE = (
    f"Sections with a star {STAR}, and their subsections, can be skipped in reading. "
    "Run their cells all the same: later ones may use them."
)
STARRED = "the kernel", "cost"  # of every chapter


# Where the project lives on the web, or "": pyproject.toml is the one place that says so.
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["crfbook"]["home"]


def install_cell(home=HOME):
    """On Colab: the checkout, from its own address or brought by the reader; then its folder of chapters."""
    told = "The book has no address on the web yet: upload the folder of its checkout, named crfbook."
    bring = f"!git clone --quiet --depth 1 {home} crfbook" if home else f'print("{told}")'
    return (
        "# Only Google Colab needs this cell: everywhere else the package is installed, "
        "and it does nothing.\n"
        "import os, sys\n"
        'if "google.colab" in sys.modules and not os.path.isdir("studies"):\n'
        f"    {bring}\n"
        '    %pip install --quiet "./crfbook[peers]"\n'
        "    %cd crfbook/notebooks"
    )


def chapters(only=()):
    """Paths of the chapters in order; ``only`` keeps those whose number or stem is named."""
    found = sorted(p for p in NOTEBOOKS.glob("*.ipynb") if NAME.match(p.stem))
    if not only:
        return found
    wanted = {str(o).removesuffix(".ipynb").split("/")[-1] for o in only}
    kept = [p for p in found if p.stem in wanted or p.stem[:2] in wanted]
    unknown = wanted - {p.stem for p in kept} - {p.stem[:2] for p in kept}
    if unknown:
        raise SystemExit(
            f"no chapter {', '.join(sorted(unknown))} in notebooks/; there are: "
            f"{', '.join(p.stem for p in found)}"
        )
    return kept


def read(path):
    return nbformat.read(path, as_version=4)


def title(nb):
    """The text of the first level-one heading, without the chapter's number."""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            match = re.search(r"^# +(?:\d\d[.:]? +)?(.+)$", cell.source, re.M)
            return match.group(1).strip() if match else ""
    return ""


def asked_for_help(arguments, text):
    """Whether -h or --help is among the arguments of a tool; prints its help then."""
    asked = bool({"-h", "--help"} & set(arguments))
    if asked:
        print(text.strip())
    return asked


def promise(nb):
    """What the reader can do afterwards: the rest of the paragraph that starts with PROMISE."""
    for cell in nb.cells[:2]:
        if cell.cell_type == "markdown" and PROMISE in cell.source:
            return " ".join(cell.source.split(PROMISE)[1].split("\n\n")[0].split())
    return ""


def core(nb):
    """The cells that a class needs: of sections without a star, as far as "when to use it". Text comes as one
    cell a section.
    """
    stars, cells = {}, []
    for cell in nb.cells:
        if cell.cell_type == "code":
            if stars and not any(stars.values()):
                cells.append(cell)
            continue
        for part in re.split(r"^(?=#{2,4} )", cell.source, flags=re.M):
            level, heading = re.match(r"(#*) *(.*)", part).groups()
            if "when to use it" in heading.lower() or "exercises" in heading.lower():
                return cells
            if len(level) > 1:
                stars = {above: star for above, star in stars.items() if above < len(level)}
                stars[len(level)] = heading.endswith(STAR)
            if stars and not any(stars.values()):
                cells.append(v4.new_markdown_cell(part))
    return cells


def is_draft(nb):
    """A draft is not yet held to the anatomy and the word count;
    tests/contract/test_book.py lists who may be one.
    """
    return bool(nb.metadata.get("crfbook", {}).get("draft"))


def normalise(nb):
    """Metadata reduced to what is needed, ids and counts in order, neighbouring streams joined.
    Changes ``nb``.
    """
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
    }
    if nb.metadata.get("crfbook"):
        metadata["crfbook"] = nb.metadata["crfbook"]
    nb.metadata = nbformat.from_dict(metadata)
    nb.nbformat, nb.nbformat_minor = 4, 5
    count = 0
    for number, cell in enumerate(nb.cells):
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if {"install", "hide-input"} & set(tags):
            cell.metadata["jupyter"] = {"source_hidden": True}
        cell.id = f"cell-{number:03d}"
        if cell.cell_type != "code":
            cell.pop("attachments", None)
            continue
        if cell.execution_count is not None:
            count += 1
            cell.execution_count = count
        cell.outputs, described = _joined(cell.outputs), alt_text(cell.source)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
            if output.output_type in ("execute_result", "display_data"):
                if "text/html" in output.data:  # what a widget shows without a kernel
                    output.data.pop("application/vnd.jupyter.widget-view+json", None)
                shown = {kind: {"alt": described} for kind in PICTURES if described and kind in output.data}
                output.metadata = nbformat.from_dict(shown)
    return nb


def alt_text(source):
    """What the comment that opens a cell says of its figure, "# Figure: a lattice of five words ..."; or "".

    It becomes the alternative text of the cell's pictures, on the pages too.
    """
    comment = re.match(r"# Figure: (.+(?:\n# .+)*)", source)
    return comment[1].replace("\n# ", " ") if comment else ""


def _joined(outputs):
    """Consecutive pieces of one stream as one output: how a print arrives in pieces is chance.
    Displays without content, as the line about compiling leaves them in an editor, are dropped.
    """
    joined = []
    for output in outputs:
        if output.output_type == "display_data" and not output.data:
            continue
        last = joined[-1] if joined else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def write(nb, path):
    """Write through a neighbour and rename: an interrupted run leaves the old chapter."""
    nbformat.validate(nb)
    draft = path.with_suffix(".ipynb.tmp")
    draft.write_text(nbformat.writes(nb) + "\n", encoding="utf-8")
    draft.replace(path)


def skeleton(number, heading):
    """A new chapter: title, promise, install cell, the anatomy's headings."""
    install = v4.new_code_cell(install_cell(), metadata={"tags": ["install"]})
    cells = [v4.new_markdown_cell(f"# {number}. {heading}\n\n{PROMISE} ...\n\n{CORE}"), install]
    for place, name in enumerate(ANATOMY, start=1):
        star = f" {STAR}" if name in STARRED else ""
        cells.append(v4.new_markdown_cell(f"## {place}. {name.capitalize()}{star}"))
    return normalise(v4.new_notebook(cells=cells, metadata={"crfbook": {"draft": True}}))


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    if len(arguments) == 4 and arguments[0] == "new":
        path = NOTEBOOKS / f"{arguments[1]}_{arguments[2]}.ipynb"
        if not NAME.match(path.stem):
            raise SystemExit(f"a chapter is called NN_lower_case_name, not {path.stem!r}")
        if path.exists():
            raise SystemExit(f"{path.name} exists already")
        write(skeleton(arguments[1], arguments[3]), path)
    elif arguments[:1] == ["tidy"]:
        for path in chapters(arguments[1:]):
            write(normalise(read(path)), path)
    elif arguments[:1] == ["check"]:
        which = " or ".join(p.stem for p in chapters(arguments[1:]))
        command = [sys.executable, "-m", "pytest", "-q", "tests/contract/test_book.py", "-k", which]
        return subprocess.run(command, cwd=ROOT).returncode
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
