"""What the README promises: its chapters, commands,
and the ten lines of its example with what they print.
"""

import os
import re
import subprocess
import sys
from statistics import median

from tools import chapters as book

ROOT = book.ROOT


def readme():
    return (ROOT / "README.md").read_text()


def guide(name):
    return (ROOT / "docs" / f"{name}.md").read_text()


def test_readme_is_read_in_a_minute_or_two():
    assert len(readme().split()) <= 900
    where = re.findall(r"^\| an? (\w+) \| .*\]\(", readme().split("## Where to go on")[1], re.M)
    assert where == ["student", "teacher", "researcher", "engineer", "contributor"]


def test_the_figure_shows_the_sentence_of_chapter_01():
    (alt, path), *more = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", readme())
    drawing = (ROOT / path).read_text(encoding="utf-8")
    assert not more and '"the old man the boats"' in alt and "<image" not in drawing
    assert all(f">{word}</text>" in drawing for word in "the old man boats A D N V".split())
    sources = "\n".join(cell.source for cell in book.read(book.chapters(["01"])[0]).cells)
    assert 'sentence = "the old man the boats".split()' in sources


def test_readme_commands_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^make ([a-z]+)", readme(), re.M))
    assert {"book", "test", "lab"} <= named <= targets


def test_the_examples_print_what_is_shown(tmp_path):
    """Those of README and its guide: on the twin, in a folder of their own, all in one program."""
    text = readme() + guide("USING")
    pairs = re.findall(r"```python\n(.*?)```\s+prints[^`]*```text\n(.*?)```", text, re.S)
    assert len(pairs) == text.count("```python") == 7
    assert sum(bool(line.strip()) for line in pairs[0][0].splitlines()) <= 10
    environment = {k: v for k, v in os.environ.items() if k != "CRFBOOK_MIRROR"} | {
        "CRFBOOK_DATA": str(tmp_path)
    }
    command = [sys.executable, "-W", "error", "-c", "".join(code for code, _ in pairs)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(shown for _, shown in pairs)


OURS_ALONE = ("matrix products", "loss + gradient", "boosting")  # their reference is our own work


def record(name, **where):
    """The about and the one row of a record of notebooks/results in which columns have these values."""
    from studies import read_record

    about, rows = read_record(ROOT / "notebooks" / "results" / f"{name}.csv")
    (row,) = [row for row in rows if where.items() <= row.items()]
    return about, row


def numbers(text):
    """Numbers of the prose: without tables, code and addresses of links."""
    text = re.sub(r"```.*?```|^\|[^\n]*|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.S | re.M)
    return re.findall(r"(?<![\w.-])\d+(?:[,.]\d+)*(?:e-?\d+)?(?![\w-])", text)


def test_the_prose_of_the_measurements_says_what_the_records_say():
    section = guide("MEASURED")
    about, _ = record("03_benchmarks", work="Viterbi alone, 22 labels")
    ours = record("03_whole_corpus", tool="crfbook", stop="its own")[1]
    theirs = record("03_whole_corpus", tool="python-crfsuite", stop="its own")[1]
    letters = record("08_ngrams", template="ngrams_5", sweeps="20")[1]
    tagging = [record("08_tagging", form=form)[1] for form in ("sparse", "dense")]
    candidates = record("08_candidates", template="ngrams_5")[1]
    assert ours["F1"] == theirs["F1"] and float(ours["gap at most"]) < 1e-4
    said = {
        about["python-crfsuite"], f"{int(ours['weights']):,}", f"{float(ours['objective']):,.3f}",
        f"{float(theirs['objective']):,.3f}", ours["F1"], f"{float(candidates['million']):.0f}",
        f"{float(letters['seconds']):.0f}",
        letters["sweeps"], letters["c1"], f"{int(tagging[0]['words']):,}",
        *(f"{float(row['encode']) + float(row['decode']):.2f}" for row in tagging),
    }  # fmt: skip
    named = {"2000", "1", "5", "0", "06", "09", "1e-4", "1e-04"}  # corpora, chapters, settings
    assert set(numbers(section)) <= said | named, f"of no record: {set(numbers(section)) - said - named}"
    assert said <= set(numbers(section)), f"docs/MEASURED.md does not say: {said - set(numbers(section))}"


def test_no_other_number_of_the_readme_is_a_measurement():
    measured = r"\b\d[\d,.]*\s*(?:min|minutes?|s|seconds?|[KMG]B|tests)\b"
    rest = "\n## ".join(part for part in readme().split("\n## ") if not part.startswith("Measured"))
    assert not re.findall(measured, rest)
    assert re.search(measured, "make test takes 12 min")


def beside_crfsuite():
    """crfbook / CRFsuite in the records of chapter 14: (labels, seconds to 0.1 % above the optimum, seconds
    of tagging) of ten corpora, and the memory of the programs that train on the first four.
    """
    from studies import read_record

    def ratio(rows, column, names):
        values = [[float(row[column]) for row in rows if row["tool"] == name] for name in names]
        return median(values[0]) / median(values[1])

    folder, table, memory, names = ROOT / "notebooks" / "results", [], [], ("crfbook", "python-crfsuite")
    for corpus in ("chunking", "names", "ewt", "joint"):
        rows = read_record(folder / f"14_tools_{corpus}.csv")[1]
        rows = [row for row in rows if row["features"] == "observed"]
        labels = read_record(folder / f"14_optimum_{corpus}.csv")[1][0]["labels"]
        tagging = 1 / ratio(rows, "sentences/s, one", names)
        table.append((labels, ratio(rows, "to 0.001", names), tagging))
        memory.append(ratio(rows, "MB", names))
    others = read_record(folder / "14_corpora.csv")[1]
    for corpus in dict.fromkeys(row["corpus"] for row in others):
        rows = [row for row in others if row["corpus"] == corpus]
        both = ratio(rows, "s to 0.001", ("crfbook", "CRFsuite")), "tokens tagged a second"
        table.append((rows[0]["labels"], both[0], 1 / ratio(rows, both[1], ("crfbook", "CRFsuite"))))
    return [(labels, f"{one:.2f}", f"{two:.2f}") for labels, one, two in table], memory


def test_the_table_of_the_readme_is_that_of_chapter_14():
    table, memory = beside_crfsuite()
    assert re.findall(r"^\| [^|]+ \| (\d+) \| ([0-9.]+) \| ([0-9.]+) \|$", readme(), re.M) == table
    assert f"{min(memory):.1f} to {max(memory):.1f} times" in readme()


def test_readme_ratios_are_those_of_the_records():
    """Tables of ratios in MEASURED.md are rows of the records: all with a target."""
    from studies import read_record

    folder = ROOT / "notebooks" / "results"
    rows, own = (
        [row for path in sorted(folder.glob(f"*_{kind}.csv")) for row in read_record(path)[1]]
        for kind in ("benchmarks", "targets")
    )
    recorded = {row["work"]: f"{float(row['ratio']):.2f}" for row in own + rows}
    row = re.compile(r"^\| ([^|]+?) \| ([0-9.]+) \|$", re.M)
    said = dict(row.findall(guide("MEASURED")))
    assert said == {work: recorded.get(work) for work in said} and len(said) >= 12
    peers = {
        row["work"]
        for row in rows
        if row["required"]
        and row["unit"] not in ("nats", "weights", "points")
        and not any(words in row["work"] for words in OURS_ALONE)
    }
    assert peers <= set(said), "a target of which docs/MEASURED.md says nothing"
