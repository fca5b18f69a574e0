"""The pages of docs/: sections that are cited exist, links lead somewhere, files that are named are there.

Each rule is a function that lists what is wrong, and has a broken text that it refuses.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tools import chapters as book

ROOT = book.ROOT
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINKING = [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "notebooks" / "README.md"]
MOST_LINES = 90  # of ARCHITECTURE.md: one page

SECTION = r"(?:0|[A-FX])\.\d+"
CITATION = re.compile(rf"docs/SPEC\.md(?P<sections>(?:(?:,|,? and) {SECTION}\b)*)")
WITHOUT_FILE = re.compile(rf"\b(?:spec|specification),? {SECTION}\b", re.I)
PLACES = re.compile(
    r"(?<![\w.:/~$}])/(?:home|root|tmp|work|usr|opt|mnt|var|Users)/\w|\b[A-Z]:\\\w|site-packages"
)
PATH = re.compile(r"[\w.*-]*(?:/[\w.*-]*)+|[\w*-]+\.(?:py|md|toml|txt|json|yml|csv|cff|ipynb)")
MODULE = re.compile(r"(?:crfbook|data_fetch|tools|tests)(?:\.\w+)+")


def sections(text):
    """Numbers of the sections of SPEC.md, in order."""
    return re.findall(rf"^### ({SECTION}) \S", text, re.M)


def prose(text):
    """Markdown without its code blocks and code spans."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)


def anchors(text):
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ +(.+?) *$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# ---- the rules: each yields what is wrong ----


def wrong_citations(text, existing):
    """Citations of SPEC.md in a source: with sections, which exist, and by the name of the file."""
    flat = re.sub(r"\s*\n\s*(?:# )?", " ", text)
    for found in CITATION.finditer(flat):
        named = re.findall(SECTION, found["sections"])
        yield from (f"{found[0]!r}: there is no section {n}" for n in named if n not in existing)
        if not named:
            yield f"{flat[found.start() : found.end() + 20]!r} names no section, as docs/SPEC.md, A.1 does"
    yield from (f"{found[0]!r} does not name docs/SPEC.md" for found in WITHOUT_FILE.finditer(flat))


def wrong_numbers(text):
    """Sections of each letter count from 1, in order: citations rely on them."""
    numbers = {}
    for section in sections(text):
        letter, number = section.split(".")
        numbers.setdefault(letter, []).append(int(number))
    for letter, found in numbers.items():
        if found != list(range(1, len(found) + 1)):
            yield f"the sections of {letter} are numbered {found}"


def wrong_links(text, folder):
    """Relative links, from a page in `folder`."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = folder / name
        if name and not path.exists():
            yield f"a link to {target}, which is not there"
        elif anchor and (not name or path.suffix == ".md"):
            if anchor not in anchors(path.read_text() if name else text):
                yield f"a link to {target}: no such heading"


def wrong_places(text):
    """Paths of somebody's machine."""
    yield from (f"a path of a machine: {found[0]}" for found in PLACES.finditer(text))


def wrong_files(text):
    """Paths in backticks, and those that begin a line of a code block; * stands for any name."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    blocks = [
        line.split() for block in re.findall(r"```\w*\n(.*?)```", text, re.S) for line in block.split("\n")
    ]
    for name in spans + [words[0] for words in blocks if words]:
        path = name.replace(".", "/") if MODULE.fullmatch(name) and not PATH.fullmatch(name) else name
        if PATH.fullmatch(path) and not (is_there(path) or path != name and is_there(f"{path}.py")):
            yield f"{name} is not there"


def is_there(path):
    return any(ROOT.glob(path.rstrip("/"))) if path.strip("/*.") else False


# ---- the pages and the sources ----


def sources():
    """(name, text) of every source and chapter, this file left out: it shows what is refused."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.ipynb"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix == ".ipynb" and path.is_file():
            yield name, "\n".join(cell.source for cell in book.read(path).cells)
        elif path.is_file() and path != Path(__file__).resolve():
            yield name, path.read_text()


def specification():
    return (ROOT / "docs" / "SPEC.md").read_text()


def test_every_section_that_is_cited_exists():
    existing = sections(specification())
    texts = list(sources())
    assert [f"{name}: {wrong}" for name, text in texts for wrong in wrong_citations(text, existing)] == []
    cited = sum(len(CITATION.findall(re.sub(r"\s+", " ", text))) for _, text in texts)
    assert cited >= 30, f"{cited} citations found: are the sources read?"


def test_sections_are_numbered_in_order():
    assert list(wrong_numbers(specification())) == []
    letters = [section.partition(".")[0] for section in sections(specification())]
    assert list(dict.fromkeys(letters)) == ["0", *"ABCDEFX"]


@pytest.mark.parametrize("path", LINKING, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert list(wrong_links(path.read_text(), path.parent)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_no_paths_of_a_machine(path):
    assert list(wrong_places(path.read_text())) == []


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(name):
    assert list(wrong_files((ROOT / "docs" / name).read_text())) == []


def test_architecture_is_one_page():
    assert (ROOT / "docs" / "ARCHITECTURE.md").read_text().count("\n") <= MOST_LINES


def test_readme_links_every_page():
    readme = (ROOT / "README.md").read_text()
    assert PAGES and [p.name for p in PAGES if f"](docs/{p.name})" not in readme] == []


# ---- the rules are rules: a sound text passes each of them, a broken one does not ----

SOUND = """# A page

### A.1 First

See [the second](#a2-second), [README](README.md#start), [the web](https://example.org/x.md) and
`crfbook/brute.py`, `crfbook/chain`, `crfbook/*.py`, `crfbook.data.corpus`, `tests/`, `README.md`,
`x = a / b`, `[yp, y]`.

### A.2 Second

```
crfbook/data/    corpora
x = 1
```
"""

BROKEN = [
    (wrong_numbers, "### A.2 Second", "### A.3 Second"),
    (wrong_links, "(#a2-second)", "(#a3-second)"),
    (wrong_links, "(README.md#start)", "(READTHEM.md)"),
    (wrong_links, "(README.md#start)", "(README.md#no-such-heading)"),
    (wrong_places, "`tests/`", "/ho" + "me/me/crfbook"),
    (wrong_places, "`tests/`", "C:" + "\\Users"),
    (wrong_files, "`crfbook/brute.py`", "`crfbook/brutus.py`"),
    (wrong_files, "`crfbook/chain`", "`crfbook/colonels/`"),
    (wrong_files, "`crfbook/*.py`", "`crfbook/*.pyx`"),
    (wrong_files, "`crfbook.data.corpus`", "`crfbook.data.corpse`"),
    (wrong_files, "`README.md`", "`READTHEM.md`"),
    (wrong_files, "crfbook/data/    corpora", "crfbook/date/    corpora"),
]
ARGUMENTS = {wrong_links: (ROOT,)}

SPEC_NAME = "docs/" + "SPEC.md"  # in two pieces: whoever searches for citations passes over this file
GOOD_CITATIONS = [
    f'"""Cost: M. Source: {SPEC_NAME}, A.1."""',
    f"# Source: {SPEC_NAME}, A.1,\n    # A.2",
    f"Sokolovska (2010), eq. (5); {SPEC_NAME},\n    A.1 and A.2, packed lists",
    "a species: A.10 is no citation, and the special A.3 neither",
]
BAD_CITATIONS = [
    f"Source: {SPEC_NAME}, A.3.",
    f"Source: {SPEC_NAME}, A.1,\n    A.30.",
    f"# see {SPEC_NAME}, A.1 and\n# A.9",
    f"Source: {SPEC_NAME}.",
    "Source: spec A.1.",
    "as SPEC A.1 says",
]


@pytest.mark.parametrize("rule", sorted({r for r, _, _ in BROKEN}, key=lambda r: r.__name__))
def test_a_sound_page_passes(rule):
    assert list(rule(SOUND, *ARGUMENTS.get(rule, ()))) == []


@pytest.mark.parametrize(
    "rule, old, new", BROKEN, ids=[f"{i}-{r.__name__[6:]}" for i, (r, _, _) in enumerate(BROKEN)]
)
def test_a_broken_page_fails(rule, old, new):
    assert old in SOUND
    assert list(rule(SOUND.replace(old, new), *ARGUMENTS.get(rule, ())))


@pytest.mark.parametrize("text", GOOD_CITATIONS)
def test_a_sound_citation_passes(text):
    assert list(wrong_citations(text, sections(SOUND))) == []


@pytest.mark.parametrize("text", BAD_CITATIONS)
def test_a_broken_citation_fails(text):
    assert list(wrong_citations(text, sections(SOUND)))


def test_every_rule_has_a_broken_text():
    rules = {value for name, value in globals().items() if name.startswith("wrong_")}
    assert rules == {rule for rule, _, _ in BROKEN} | {wrong_citations}


COLUMNS = (
    "c1 = c2 = 0.1, 100 iterations", "its objective", "the same, two threads",
    "c1 = c2 = 0.1, to 1e-4 above the optimum", "c2 = 1, each to its default stop",
    "peak memory", "labels of the test part",
)  # fmt: skip


def stale_costs(text, folder):
    """Rows of the table of costs whose numbers are not those of their record; records without a row."""
    from studies import read_record

    rows = dict(re.findall(r"^\| \[[^|]+\]\([^|)]*/(14_wild_\w+\.csv)\) \| (.+) \|$", text, re.M))
    yield from (f"{path.name} has no row" for path in folder.glob("14_wild_*.csv") if path.name not in rows)
    for name, row in rows.items():
        found = {one["work"].partition(": ")[2]: float(one["ratio"]) for one in read_record(folder / name)[1]}
        for what, said in zip(COLUMNS, row.split(" | "), strict=True):
            if round(found[what], len(said.partition(".")[2])) != float(said):
                yield f"{name}, {what}: {said}, the record has {found[what]}"


def test_costs_beside_sklearn_crfsuite_are_those_of_the_records():
    text = (ROOT / "docs" / "COMING_FROM_SKLEARN_CRFSUITE.md").read_text()
    folder = ROOT / "notebooks" / "results"
    assert not list(stale_costs(text, folder)) and text.count("/14_wild_") >= 2
    assert list(stale_costs(re.sub(r"0\.(\d)(\d) \|", r"0.9\1\2 |", text), folder))
    assert list(stale_costs("", folder))
