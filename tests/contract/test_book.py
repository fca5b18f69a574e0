"""What every stored chapter owes its reader (notebooks/README.md says it for authors).

nbval runs the chapters; this file looks at what is stored. Each rule has a broken chapter that it refuses.
"""

import ast
import copy
import re
import statistics

import nbformat
import pytest

from crfbook.widgets import source
from tools import chapters as book

# Chapters that may carry {"crfbook": {"draft": true}}; empty when a release is made.
DRAFTS = set()


PATHS = re.compile(
    r"(?<![\w.:/])/(?:home|root|tmp|work|usr|opt|mnt|Users|private|var|content)/[\w.]|[A-Z]:\\\\?\w|site-packages|file://"
)
ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
MARKERS = re.compile(r"^\s*#\s*(PYTEST_VALIDATE\w*|NBVAL_(?!CHECK_OUTPUT\b)\w*)", re.M)
NO_DESCRIPTION = re.compile(
    r"\.(?:png|svg|jpe?g)\b|\b(?:TODO|TBD|FIXME|placeholder|lorem ipsum)\b|\.\.\.$", re.I
)
PROGRESS = re.compile(r"\d+%\|")


def code_cells(nb):
    return [c for c in nb.cells if c.cell_type == "code"]


def tags(cell):
    return set(cell.metadata.get("tags", []))


def code_lines(cell):
    """Lines that are neither blank nor comment only."""
    return sum(1 for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#"))


def words(nb):
    """Words of prose: without formulas, code, link targets, the references, and answers that are folded."""
    text = "\n\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    text = re.sub(r"<details>.*?</details>", " ", text, flags=re.S)
    text = re.sub(r"```.*?```|\$\$.*?\$\$|\\begin\{.*?\\end\{[^}]*\}|<!--.*?-->", " ", text, flags=re.S)
    text = re.sub(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|<[^>]+>", " ", text)
    return len(re.findall(r"[^\W_][\w'’-]*", text))


def texts(nb):
    """Every text of the chapter, outputs included, with a name for messages."""
    for number, cell in enumerate(nb.cells):
        yield f"cell {number}", cell.source
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                yield f"output of cell {number}", output.text
            for kind, value in output.get("data", {}).items():
                if kind.startswith("text/") or kind == "image/svg+xml":
                    yield f"output of cell {number}", value


def headings(nb):
    """Level-two headings in lower case."""
    text = "\n".join(
        re.sub(r"```.*?```", "", c.source, flags=re.S) for c in nb.cells if c.cell_type == "markdown"
    )
    return [h.lower() for h in re.findall(r"^## +(.+)$", text, re.M)]


# ---- the rules: each takes the notebook and its stem, and asserts ----


def rule_kernel(nb, stem):
    assert nb.metadata.kernelspec.name == "python3", "kernelspec is not python3"
    assert (nb.nbformat, nb.nbformat_minor) >= (4, 5), "older than nbformat 4.5"
    nbformat.validate(nb)


def rule_executed_in_order(nb, stem):
    counts = [c.execution_count for c in code_cells(nb)]
    assert counts == list(range(1, len(counts) + 1)), f"execution counts are {counts}"
    assert all(c.source.strip() for c in nb.cells), "an empty cell"


def rule_no_error(nb, stem):
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            assert output.output_type != "error", f"cell {number} stores an error: {output.get('evalue')}"


def rule_no_stderr(nb, stem):
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", f"cell {number} stores stderr: {output.text[:80]}"
    for where, text in texts(nb):
        assert not PROGRESS.search(text) or not where.startswith("output"), f"{where}: a progress bar"


def rule_no_cell_is_cut_off(nb, stem):
    """pandas ends long cells, and hides rows and columns, with "..."."""
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            html, plain = (output.get("data", {}).get(f"text/{kind}", "") for kind in ("html", "plain"))
            cut = re.search(r"\.\.\.</t[dh]>", html) or ("<table" in html and "..." in plain)
            assert not cut, f"cell {number} stores a table that is cut off: set display.max_colwidth"


def rule_no_paths(nb, stem):
    for where, text in texts(nb):
        assert not PATHS.search(text), f"{where}: a path of a machine: {PATHS.search(text).group(0)!r}"
        assert not (where.startswith("output") and ADDRESS.search(text)), f"{where}: a memory address"


def rule_tags_and_markers(nb, stem):
    for number, cell in enumerate(nb.cells):
        assert tags(cell) <= set(book.ALLOWED_TAGS), (
            f"cell {number}: tags {tags(cell) - set(book.ALLOWED_TAGS)} are not known"
        )
        marker = MARKERS.search(cell.source)
        assert cell.cell_type != "code" or not marker, (
            f"cell {number}: marker {marker.group(1)} hides a cell from the tests"
        )


def rule_metadata_is_clean(nb, stem):
    tidy = book.normalise(copy.deepcopy(nb))
    assert tidy == nb, f"metadata or ids are not normalised: python -m tools.chapters tidy {stem[:2]}"


def rule_title_and_promise(nb, stem):
    first = nb.cells[0]
    assert first.cell_type == "markdown", "the first cell is not text"
    assert re.match(rf"# {stem[:2]}\. \S", first.source), f"the first line is not '# {stem[:2]}. Title'"
    assert len(book.promise(nb).split()) >= 5, f"no promise: a paragraph starting {book.PROMISE}"


def rule_install_cell(nb, stem):
    cells = [c for c in nb.cells if "install" in tags(c)]
    assert len(cells) == 1 and cells[0] is nb.cells[1], (
        "the install cell is not the second cell, or not the only one"
    )
    assert cells[0].source == book.install_cell(), (
        "the install cell differs from tools.chapters.install_cell()"
    )
    assert not cells[0].outputs, "the install cell did something"


def rule_references(nb, stem):
    assert any("references" in h for h in headings(nb)), "no heading 'References'"
    last = next(c for c in reversed(nb.cells) if c.cell_type == "markdown")
    assert re.search(r"(19|20)\d\d", last.source), "the references name no year"


def rule_cell_sizes(nb, stem):
    cells = [c for c in code_cells(nb) if "install" not in tags(c)]
    algorithm = [c for c in cells if "algorithm" in tags(c)]
    assert len(algorithm) <= 1, f"{len(algorithm)} cells tagged 'algorithm': one may be long"
    assert all(code_lines(c) <= 40 for c in algorithm), "the algorithm cell has more than 40 lines"
    sizes = sorted(code_lines(c) for c in cells if c not in algorithm)
    assert sizes, "no code"
    assert statistics.median(sizes) <= 5, f"the median code cell has {statistics.median(sizes)} lines"
    assert sum(s <= 15 for s in sizes) >= 0.9 * len(sizes), (
        f"more than one cell in ten is over 15 lines: {sizes}"
    )
    assert sizes[-1] <= 25, f"a code cell has {sizes[-1]} lines"
    assert all(len(line) <= 110 for c in cells for line in c.source.splitlines()), (
        "a line of code is wider than 110 columns"
    )


def rule_figures_are_described(nb, stem):
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            for kind in set(book.PICTURES) & set(output.get("data", {})):
                said = output.metadata.get(kind, {}).get("alt", "")
                assert len(said.split()) >= 5, (
                    f"cell {number} draws, and opens with no comment '# Figure: ...'"
                )
                assert not NO_DESCRIPTION.search(said), f"cell {number}: {said!r} describes no figure"


def rule_a_widget_is_that_of_the_package(nb, stem):
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            page = output.get("data", {}).get("text/html", "")
            if "crfbook-lattice" in page:
                assert source() in page, f"cell {number}: lattice.js is another one: make outputs"


def rule_size(nb, stem):
    assert len(nbformat.writes(nb)) < 3_000_000, "the stored chapter is larger than 3 MB"


def rule_anatomy(nb, stem):
    wanted = book.ANATOMY_START if stem.startswith("00") else book.ANATOMY
    found = headings(nb)
    place = 0
    for name in wanted:
        following = [i for i in range(place, len(found)) if name in found[i]]
        assert following, f"no heading {name!r} after {found[:place]}; headings are {found}"
        place = following[0] + 1


def rule_levels_of_exercises(nb, stem):
    text = "\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    for level in (1, 2, 3):
        assert re.search(rf"^### +Level {level}\b", text, re.M | re.I), f"no exercises '### Level {level}'"


def rule_words(nb, stem):
    assert 1500 <= words(nb) <= 4500, f"{words(nb)} words of prose, not 1,500 to 4,500"


def rule_core(nb, stem):
    assert book.CORE in nb.cells[0].source, f"the first cell does not say: {book.CORE}"
    for name in book.STARRED if not stem.startswith("00") else ():
        plain = [h for h in headings(nb) if name in h and not h.endswith(book.STAR)]
        assert not plain, f"a section for implementers has no star: {plain}"
    part = nbformat.v4.new_notebook(cells=book.core(nb))
    size = words(part)
    assert size <= 1800, f"{size} words in the sections without a star, not 1,800 at most"
    size = sum(code_lines(c) for c in code_cells(part) if "hide-input" not in tags(c))
    assert size <= 300, f"{size} lines of code in the sections without a star, not 300 at most"


def rule_marks_of_sentences(nb, stem):
    """`<!-- holds: EXPRESSION -->` alone: conftest.py asserts it after the cell above, no compared one."""
    above = None
    for number, cell in enumerate(nb.cells):
        for comment in re.findall("<!--(.*?)-->", cell.source, re.S) if cell.cell_type == "markdown" else ():
            found = re.fullmatch(" holds: (.+) ", comment, re.S)
            try:
                assert found and ast.parse(found[1], mode="eval") and "NBVAL_CHECK_OUTPUT" not in above.source
            except SyntaxError:
                raise AssertionError(f"cell {number}: {comment} is no expression") from None
        above = cell if cell.cell_type == "code" else above


def rule_asserts(nb, stem):
    asserting = sum(
        bool(re.search(r"^\s*assert\b|assert_allclose|assert_array_equal", c.source, re.M))
        for c in code_cells(nb)
    )
    assert asserting >= 3, f"{asserting} cells with an assert: claims are asserts"


ALWAYS = [
    rule_kernel, rule_executed_in_order, rule_no_error, rule_no_stderr, rule_no_paths, rule_tags_and_markers,
    rule_metadata_is_clean, rule_title_and_promise, rule_install_cell, rule_references, rule_cell_sizes,
    rule_a_widget_is_that_of_the_package, rule_size, rule_figures_are_described, rule_no_cell_is_cut_off,
    rule_marks_of_sentences,
]  # fmt: skip
FINISHED = [rule_anatomy, rule_levels_of_exercises, rule_words, rule_core, rule_asserts]


@pytest.mark.parametrize("rule", ALWAYS + FINISHED, ids=lambda r: r.__name__.removeprefix("rule_"))
@pytest.mark.parametrize("path", book.chapters(), ids=lambda p: p.stem)
def test_chapter(path, rule):
    nb = book.read(path)
    if book.is_draft(nb):
        assert path.stem in DRAFTS, "a draft among the finished chapters"
        if rule in FINISHED:
            return
    rule(nb, path.stem)


def test_there_are_chapters_and_nothing_else():
    assert book.chapters()
    strays = [p.name for p in book.NOTEBOOKS.glob("*.ipynb") if p not in book.chapters()]
    assert not strays, f"not named NN_name.ipynb: {strays}"
    numbers = [p.stem[:2] for p in book.chapters()]
    assert len(set(numbers)) == len(numbers), "two chapters with one number"


# ---- the rules are rules: a sound chapter passes all of them, and each broken one fails its own ----


def sound():
    """A finished chapter in miniature, as stored."""
    v4 = nbformat.v4
    prose = "word " * 160
    cells = [
        v4.new_markdown_cell(
            f"# 04. Sound\n\n{book.PROMISE} tell a sound chapter from a broken one.\n\n{book.CORE}"
        ),
        v4.new_code_cell(book.install_cell(), metadata={"tags": ["install"]}, execution_count=1),
    ]
    for place, name in enumerate(book.ANATOMY, start=1):
        star = f" {book.STAR}" if name in book.STARRED else ""
        cells.append(v4.new_markdown_cell(f"## {place}. {name.capitalize()}: more{star}\n\n{prose}"))
        if name in ("by enumeration", "plain numpy", "check", "cost"):
            output = v4.new_output("stream", name="stdout", text="1\n")
            cells.append(
                v4.new_code_cell("x = 1\nassert x == 1\nprint(x)", outputs=[output], execution_count=1)
            )
        if name == "exercises":
            cells[-1].source += "\n\n### Level 1\n\n### Level 2: more\n\n### Level 3\n"
        if name == "references":
            cells[-1].source += "\n\nLafferty (2001)."
    return book.normalise(v4.new_notebook(cells=cells))


def broken(change):
    nb = sound()
    change(nb)
    return nb


def _set(attribute, value, cell=-1):
    return lambda nb: setattr(code_cells(nb)[cell], attribute, value)


def _output(output):
    return lambda nb: code_cells(nb)[-1].outputs.append(output)


def _in_section(name, change):
    def changed(nb):
        cell = next(c for c in nb.cells if c.source.startswith("## ") and name in c.source)
        cell.source = change(cell.source)

    return changed


_STREAM = nbformat.v4.new_output


def _table(cell, plain=""):
    return _STREAM("display_data", data={"text/html": f"<table><tr>{cell}</tr></table>", "text/plain": plain})


_text = nbformat.v4.new_markdown_cell


def _checked(nb):
    code_cells(nb)[-1].source = "# NBVAL_CHECK_OUTPUT\nprint(x)"
    return nb


_LONG = "\n".join(f"x{i} = {i}" for i in range(26))

BROKEN = [
    (rule_kernel, lambda nb: nb.metadata.kernelspec.update(name="conda-env-me")),
    (rule_executed_in_order, _set("execution_count", None)),
    (rule_executed_in_order, _set("execution_count", 9)),
    (rule_executed_in_order, lambda nb: setattr(nb.cells[-1], "source", " ")),
    (rule_no_error, _output(_STREAM("error", ename="E", evalue="e", traceback=[]))),
    (rule_no_stderr, _output(_STREAM("stream", name="stderr", text="UserWarning"))),
    (rule_no_stderr, _output(_STREAM("stream", name="stdout", text=" 40%|████      | 4/10"))),
    (rule_no_paths, _output(_STREAM("stream", name="stdout", text="saved to " + "/ho" + "me/me/model.npz"))),
    (rule_no_paths, _set("source", "open('" + "C:" + "\\\\Users')")),
    (rule_no_paths, _output(_STREAM("stream", name="stdout", text="<function f at 0x7f00aa11bb22>"))),
    (rule_tags_and_markers, lambda nb: code_cells(nb)[-1].metadata.update(tags=["raises-exception"])),
    (rule_tags_and_markers, _set("source", "# NBVAL_" + "SKIP\nassert False")),
    (rule_metadata_is_clean, lambda nb: nb.cells[0].metadata.update(collapsed=True)),
    (rule_metadata_is_clean, lambda nb: nb.metadata.update(widgets={})),
    (rule_title_and_promise, lambda nb: setattr(nb.cells[0], "source", "# 05. Another")),
    (rule_title_and_promise, lambda nb: setattr(nb.cells[0], "source", "# 04. Sound\n\nHello.")),
    (rule_install_cell, _set("source", "%pip install .", 0)),
    (rule_install_cell, lambda nb: nb.cells.pop(1)),
    (rule_references, lambda nb: setattr(nb.cells[-1], "source", "## References\n\nnone")),
    (rule_cell_sizes, _set("source", _LONG)),
    (rule_cell_sizes, lambda nb: [setattr(c, "source", _LONG[:60]) for c in code_cells(nb)[1:]]),
    (rule_cell_sizes, lambda nb: [c.metadata.update(tags=["algorithm"]) for c in code_cells(nb)[1:3]]),
    (rule_cell_sizes, _set("source", "x = '" + "x" * 120 + "'")),
    *(
        (rule_figures_are_described, _output(_STREAM("display_data", data={kind: "AAAA"})))
        for kind in ("image/png", "image/svg+xml")
    ),
    *(
        (
            rule_figures_are_described,
            _output(_STREAM("display_data", data={"image/png": "AAAA"}, metadata=alt)),
        )
        for alt in (
            {"image/png": {"alt": ""}},
            {"image/png": {"alt": "the picture in file figure_02.png of this chapter"}},
            {"image/png": {"alt": "TODO say what this figure shows"}},
        )
    ),
    (
        rule_a_widget_is_that_of_the_package,
        _output(_STREAM("display_data", data={"text/html": '<div class="crfbook-lattice"></div>'})),
    ),
    (rule_marks_of_sentences, lambda nb: nb.cells.append(_text("F1 rises <!-- holds: f1 goes up -->"))),
    (
        rule_marks_of_sentences,
        lambda nb: _checked(nb).cells.append(_text("It is one <!-- holds: x == 1 -->")),
    ),
    (rule_no_cell_is_cut_off, _output(_table("<td>as it was...</td>"))),
    (rule_no_cell_is_cut_off, _output(_table("<td>as it was made</td>", "as it was..."))),
    (rule_size, _output(_STREAM("stream", name="stdout", text="x" * 3_000_001))),
    (
        rule_anatomy,
        lambda nb: nb.cells.pop(next(i for i, c in enumerate(nb.cells) if "Derivation" in c.source)),
    ),
    (
        rule_levels_of_exercises,
        lambda nb: [setattr(c, "source", c.source.replace("### Level 3", "")) for c in nb.cells],
    ),
    (rule_words, lambda nb: [setattr(c, "source", c.source.replace("word ", "")) for c in nb.cells]),
    (rule_words, lambda nb: setattr(nb.cells[-1], "source", nb.cells[-1].source + " word" * 3000)),
    (rule_core, lambda nb: setattr(nb.cells[0], "source", nb.cells[0].source.replace(book.CORE, ""))),
    (rule_core, _in_section("Cost", lambda text: text.replace(book.STAR, ""))),
    (rule_core, _in_section("Derivation", lambda text: text + " word" * 900)),
    (
        rule_core,
        _in_section(
            "Derivation",
            lambda text: (
                f"{text}\n\n### Not this {book.STAR}\n\n#### Nor this {book.STAR}\n\n### But this\n\n"
                + " word" * 900
            ),
        ),
    ),
    (rule_core, _set("source", "x = 1\n" * 301, 2)),
    (rule_asserts, lambda nb: [setattr(c, "source", "x = 1") for c in code_cells(nb)[1:]]),
]


@pytest.mark.parametrize("rule", ALWAYS + FINISHED, ids=lambda r: r.__name__.removeprefix("rule_"))
def test_a_sound_chapter_passes(rule):
    rule(sound(), "04_sound")


@pytest.mark.parametrize(
    "rule, change", BROKEN, ids=[f"{i}-{r.__name__[5:]}" for i, (r, _) in enumerate(BROKEN)]
)
def test_a_broken_chapter_fails(rule, change):
    with pytest.raises((AssertionError, nbformat.ValidationError)):
        rule(broken(change), "04_sound")


def test_what_has_a_star_is_not_counted():
    long = " word" * 2000
    for change in (
        _in_section("Cost", lambda text: text + long),
        _in_section(
            "Derivation", lambda text: f"{text}\n\n### Not this {book.STAR}\n\n#### Nor this\n\n{long}"
        ),
        _in_section("Exercises", lambda text: text + long),
        _set("source", "x = 1\n" * 301, 4),
    ):
        rule_core(broken(change), "04_sound")


def test_every_rule_has_a_broken_chapter():
    assert {r for r, _ in BROKEN} == set(ALWAYS + FINISHED)
