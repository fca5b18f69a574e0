"""The teacher's pages: decks for the screen and one-page summaries, as HTML files that need no network.

python -m tools.teaching            build/teaching/: a page for each deck, and summaries.html to print
python -m tools.teaching check      the same; then Chromium looks for slides that overflow at 1280 x 720

A deck is Markdown in notebooks/teaching/decks/; a line --- starts the next slide. A line `@figure NN words`
shows the figure of chapter NN whose description begins with these words, `@output NN words` the stored text
output that contains them: figures and numbers stay those of the chapters. `> text` is a note for the teacher.
"""

import base64
import html
import re
import shutil
import subprocess
import sys
from functools import cache
from string import Template

from tools.chapters import NOTEBOOKS, PICTURES, ROOT, alt_text, asked_for_help, chapters, read
from tools.formulas import STYLE, markdown

TEACHING = NOTEBOOKS / "teaching"
OUT = ROOT / "build" / "teaching"
SIZE = 1280, 720
ANSWERS = re.compile(r"<!-- answers: (.*?) -->\s*", re.S)  # of a summary, for teachers


@cache
def cells(number):
    (path,) = chapters([number])
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def the_one(number, words, found):
    """The only one of `found`, or a sentence that says what is wrong with the words."""
    if len(found) != 1:
        raise SystemExit(f"chapter {number} has {len(found)} cells for {words!r}: exactly one is wanted")
    return found[0]


def figure(number, words):
    """The stored picture of a chapter's cell, its description as the alternative text (the last one)."""
    of = [cell for cell in cells(number) if alt_text(cell.source).startswith(words)]
    cell = the_one(number, words, of)
    *_, (kind, text) = [
        one for out in cell.outputs for one in out.get("data", {}).items() if one[0] in PICTURES
    ]
    text = text.strip() if kind == "image/png" else base64.b64encode(text.encode()).decode()
    alt = html.escape(alt_text(cell.source))
    return f'<figure><img src="data:{kind};base64,{text}" alt="{alt}"></figure>'


def output(number, words):
    """The stored text of the cell whose output contains the words."""
    texts = [text for cell in cells(number) if words in (text := printed(cell))]
    return f"<pre>{html.escape(the_one(number, words, texts).rstrip())}</pre>"


def printed(cell):
    return "".join(out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs)


def slide(source):
    """One slide's Markdown as a <section>."""
    held = []

    def hold(match):
        held.append({"figure": figure, "output": output}[match[1]](match[2], match[3].strip()))
        return f"\n\n<!--{len(held) - 1}-->\n\n"

    page = markdown(re.sub(r"^@(figure|output) (\d\d) (.+)$", hold, source, flags=re.M))
    return f"<section>{re.sub(r'<!--([0-9]+)-->', lambda match: held[int(match[1])], page)}</section>"


def build():
    """Write all pages; return the paths of the decks."""
    paths = []
    for path in sorted((TEACHING / "decks").glob("*.md")):
        slides = re.split(r"^---$", path.read_text(encoding="utf-8"), flags=re.M)
        title = slides[0].strip().splitlines()[0].lstrip("# ")
        page = {"title": html.escape(title), "slides": "".join(map(slide, slides))}
        paths.append(fill("deck", path.stem, page))
    pages = (path.read_text(encoding="utf-8") for path in sorted(TEACHING.glob("summaries/*.md")))
    sheets = (markdown(ANSWERS.sub("", page)) for page in pages)  # students get the file, too
    fill("sheets", "summaries", {"sheets": "".join(f"<article>{one}</article>" for one in sheets)})
    return paths


def fill(template, stem, parts):
    """Write build/teaching/STEM.html from tools/TEMPLATE.html; return its path."""
    page = Template((ROOT / "tools" / f"{template}.html").read_text(encoding="utf-8")).substitute(
        parts, formulas=STYLE
    )
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{stem}.html"
    path.write_text(page, encoding="utf-8")
    return path


def browser():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def headless(*arguments):
    """What Chromium prints, without a window and without a network."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command = [browser(), *options, f"--window-size={SIZE[0]},{SIZE[1]}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def fits(path):
    """What the deck says of its own slides when it is asked to look: "12 slides: all fit"."""
    page = headless("--dump-dom", "--virtual-time-budget=4000", f"{path.as_uri()}?check")
    return html.unescape(re.search(r"<title>(.*?)</title>", page, re.S)[1])


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    if arguments not in ([], ["check"]):
        raise SystemExit(__doc__)
    paths = build()
    print(f"{len(paths)} decks and summaries.html in {OUT.relative_to(ROOT)}/")
    if not arguments:
        return 0
    if browser() is None:
        raise SystemExit("no Chromium on this machine: the slides were built, not looked at")
    said = {path.stem: fits(path) for path in paths}
    print("\n".join(f"{stem}: {text}" for stem, text in said.items()))
    return int(not all(text.endswith("all fit") for text in said.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
