"""The one-page summaries for class: one a chapter, all of one form, in the symbols of their chapters.

tests/contract/test_teaching.py looks at the printed pages.
"""

import csv
import re

import pytest

from tests.contract.test_formulas import formulas
from tests.contract.test_symbols import declared, missing, symbols
from tools import chapters as book

FOLDER = book.NOTEBOOKS / "teaching" / "summaries"
PARTS = ["question", "idea", "formulas", "algorithm", "Remember", "What goes wrong", "Ask yourself"]
# How many: displayed formulas, numbered steps, points to remember, mistakes, questions.
COUNTS = {"displays": (2, 5), "steps": (4, 8), "remember": (3, 4), "mistakes": (2, 3), "questions": (3, 3)}


def complaints(text, chapter, title):
    """What is wrong with a summary."""
    found = [] if text.startswith(f"# {title}\n") else [f"does not begin with # {title}"]
    *_, last = text.splitlines()
    if not re.fullmatch(r"<!-- answers: 1\. .+ 2\. .+ 3\. .+ -->", last):
        found.append("the last line holds no three answers")
    pieces = re.split(r"^\*\*(?:The )?(.+?)\.\*\*", text.replace(last, ""), flags=re.M)
    if pieces[1::2] != PARTS:
        return [*found, f"the parts are {pieces[1::2]}"]
    part = dict(zip(PARTS, pieces[2::2], strict=True))
    numbers = {
        "displays": len(re.findall(r"\$\$.+?\$\$", part["formulas"], re.S)),
        "steps": len(re.findall(r"^\d\. ", part["algorithm"], re.M)),
        "remember": len(re.findall(r"^- ", part["Remember"], re.M)),
        "mistakes": len(re.findall(r"^- ", part["What goes wrong"], re.M)),
        "questions": len(re.findall(r"^\d\. .+\?$", part["Ask yourself"], re.M)),
    }
    found += [f"{n} {what}" for what, n in numbers.items() if not COUNTS[what][0] <= n <= COUNTS[what][1]]
    if not re.search(r"^(Cost|Memory)\b.*\$O\(|^Cost of .*multiplications", part["algorithm"], re.M):
        found.append("the algorithm has no cost")
    prose = re.sub(r"\$\$.+?\$\$|\$[^$]*\$|`[^`]*`", " ", text.replace(last, ""), flags=re.S)
    n_words = len(re.findall(r"[^\W_][\w'’-]*", prose))
    if not 280 <= n_words <= 380:
        found.append(f"{n_words} words")
    used = {symbol: tex for tex in formulas(text) for symbol in symbols(tex)}
    return found + [f"{symbol} is not in symbols.csv" for symbol in missing(used, declared(), chapter)]


@pytest.mark.parametrize("path", book.chapters(), ids=lambda p: p.stem)
def test_every_chapter_has_a_summary_of_one_form(path):
    title = book.read(path).cells[0].source.splitlines()[0].removeprefix("# ")
    text = (FOLDER / f"{path.stem[:2]}.md").read_text(encoding="utf-8")
    assert text.endswith("-->\n") and not complaints(text, path.stem[:2], title)


def test_a_broken_summary_is_seen():
    text, title = (
        (FOLDER / "02.md").read_text(encoding="utf-8"),
        "02. Forward-backward: sums over all labellings",
    )
    assert not complaints(text, "02", title)
    for old, new, said in (
        ("# 02.", "# 03.", "does not begin"),
        ("2. alpha_t has", "alpha_t has", "no three answers"),
        ("**The idea.**", "**An idea.**", "the parts are"),
        ("$$", "", "0 displays"),
        ("Cost: ", "Price: ", "no cost"),
        ("They meet", "They meet " * 120, "words"),
        (r"\beta_t(y)", r"\zeta_t(y)", "not in symbols.csv"),
    ):
        assert any(said in one for one in complaints(text.replace(old, new), "02", title)), said


def test_05_says_the_shares_of_weights_that_the_record_has():
    """Boosting's last recorded minute, over the weights of log loss on all sentences."""
    text = (FOLDER / "05.md").read_text(encoding="utf-8")

    def rows(name):
        lines = (book.NOTEBOOKS / "results" / name).read_text(encoding="utf-8").splitlines()
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))

    possible = {
        row["template"]: int(row["active"])
        for row in sorted(rows("05_ner.csv"), key=lambda row: int(row["sentences"]))
        if row["learner"] == "log loss"
    }
    last = [row for row in rows("05_boosting_ner.csv") if row["minutes"] == "60"]
    share = {row["template"]: int(row["active"]) / possible[row["template"]] for row in last}
    assert share["s1"] > 0.98 and round(5 * share["s2"]) == 2 and round(5 * share["s3"]) == 1
    assert "after an hour nearly all of S1 (words), two in five of S2" in text and "one in five of S3" in text
