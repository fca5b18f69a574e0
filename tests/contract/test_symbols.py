"""Every letter of a formula stands in notebooks/symbols.csv for its chapter; chapter 00 shows the table.

A symbol is a letter, Latin or Greek, with its accent (\\hat, \\tilde, \\bar) or alphabet (\\mathcal).
An index is a symbol of its own: $c_k$ is c and k. Words (\\text, \\texttt, three small letters) are none.
"""

import csv
import re

import pytest

from tests.contract.test_formulas import formulas
from tools import chapters as book

WORDS = re.compile(r"\\(?:text\w*|math(?:tt|it|rm|sf)|operatorname\*?)\s*\{(?:[^{}]|\{[^{}]*\})*\}")
MARKED = re.compile(r"\\(hat|tilde|bar|mathcal|mathbb)\s*(?:\{\s*)?(\\?[A-Za-z]+)")
GREEK = set(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi pi rho sigma
    tau phi varphi chi psi omega ell nabla Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega""".split()
)
SIGNS = set(
    """approx arg ast begin big Big bigl bigr Bigl Bigr cap cdot cdots circ cup det displaystyle dots end
    equiv exp forall frac ge geq gg in infty int langle lceil ldots le left leftarrow leq lfloor lim limits ll
    log lvert lVert max mid min mp ne neq notin odot overline partial pm Pr prod propto qquad quad rangle
    rceil rfloor right rightarrow Rightarrow rvert rVert setminus sim sqrt square star subset subseteq sum sup
    textstyle tfrac times to top underbrace""".split()
)


def symbols(tex):
    """The symbols of a formula as a set; AssertionError for a command that is neither symbol nor sign."""
    tex, found = WORDS.sub(" ", tex), set()
    tex = re.sub(r"\\(?:begin|end)\{[^}]*\}", " ", tex)

    def marked(match):
        name = match[2]
        letter = name if name.startswith("\\") or len(name) == 1 else name[0]
        found.add(f"\\{match[1]}{{{letter}}}")
        return " " + name[len(letter) :]

    tex = MARKED.sub(marked, tex)
    for command in re.findall(r"\\([A-Za-z]+)", tex):
        assert command in GREEK | SIGNS, f"\\{command}: neither a Greek letter nor a sign of test_symbols.py"
        if command in GREEK:
            found.add(f"\\{command}")
    tex = re.sub(r"\\[A-Za-z]+", " ", tex)
    return found | set(re.sub(r"[^A-Za-z]|[a-z]{3,}", "", tex))


def used(path):
    """{symbol: its first formula} of a chapter."""
    found = {}
    for cell in book.read(path).cells:
        for tex in formulas(cell.source) if cell.cell_type == "markdown" else ():
            for symbol in symbols(tex):
                found.setdefault(symbol, tex)
    return found


def declared():
    """Rows of the table."""
    with open(book.NOTEBOOKS / "symbols.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def missing(found, rows, chapter):
    known = {row["symbol"] for row in rows if row["chapters"] == "all" or chapter in row["chapters"].split()}
    return {symbol: tex for symbol, tex in found.items() if symbol not in known}


@pytest.mark.parametrize("path", book.chapters(), ids=lambda p: p.stem)
def test_every_symbol_is_in_the_table(path):
    found = missing(used(path), declared(), path.stem[:2])
    assert not found, f"not in notebooks/symbols.csv for chapter {path.stem[:2]}: {found}"


def test_no_row_is_stale_and_none_is_said_twice():
    by_chapter = {path.stem[:2]: set(used(path)) for path in book.chapters()}
    seen = set()
    for row in declared():
        symbol, where = row["symbol"], row["chapters"].split()
        assert None not in row and row["meaning"], f"not five fields, or no meaning: {row}"
        if where == ["all"]:
            assert sum(symbol in found for found in by_chapter.values()) > 3, f"not of all chapters: {row}"
            continue
        stale = [chapter for chapter in where if symbol not in by_chapter[chapter]]
        assert not stale, f"{symbol} is not in the formulas of {stale}: {row}"
        assert not seen & {(symbol, chapter) for chapter in where}, f"two rows for one symbol: {row}"
        seen |= {(symbol, chapter) for chapter in where}


def two_meanings(row):
    """A semicolon stands before the same letter with an index ("; $L_j$: of chain $j$") alone."""
    return row["chapters"] != "all" and re.search(r";(?! \$)", row["meaning"])


def test_a_letter_has_one_meaning_in_a_chapter():
    assert not [row for row in declared() if two_meanings(row)]
    assert two_meanings({"chapters": "12", "meaning": "sentences in a batch; taggings passed on"})
    assert not two_meanings({"chapters": "02", "meaning": "a number; $a_i$: of shard $i$"})


def test_a_formula_is_taken_apart():
    tex = r"\hat\alpha_t(y') = \mathcal{L}(w) + \sum_{k} \texttt{log\_node}[t, y] \psi_{edge}"
    assert symbols(tex + r" \tilde y \text{ if } TLW") == set("tywkTLW") | {
        r"\hat{\alpha}",
        r"\mathcal{L}",
        r"\psi",
        r"\tilde{y}",
    }
    with pytest.raises(AssertionError, match="neither a Greek letter"):
        symbols(r"\mystery_k")


def test_a_new_symbol_fails():
    rows = declared()
    assert missing(dict.fromkeys(symbols(r"\zeta_t + \hat w + J")), rows, "04").keys() == {
        "\\zeta",
        "\\hat{w}",
        "J",
    }
    assert not missing(dict.fromkeys(symbols(r"\hat A_t + c_1")), rows, "04")
