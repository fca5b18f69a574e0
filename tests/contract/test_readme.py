"""What the README promises: its chapters, commands,
and the ten lines of its example with what they print.
"""

import os
import re
import subprocess
import sys

from tools import chapters as book

ROOT = book.ROOT


def readme():
    return (ROOT / "README.md").read_text()


def test_readme_lists_the_chapters():
    rows = re.findall(r"^\| \[(\d\d)\]\(notebooks/(\d\d_\w+)\.ipynb\) \| ([^|]+) \|", readme(), re.M)
    on_disk = [(p.stem[:2], p.stem, book.title(book.read(p))) for p in book.chapters()]
    assert [(number, stem, name.strip()) for number, stem, name in rows] == on_disk


def test_readme_commands_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^make ([a-z]+)", readme(), re.M))
    assert {"book", "test", "lab"} <= named <= targets


def test_the_examples_print_what_is_shown(tmp_path):
    """On the built-in twin, in a folder of their own, one after the other in one program."""
    pairs = re.findall(r"```python\n(.*?)```\s+prints[^`]*```text\n(.*?)```", readme(), re.S)
    assert len(pairs) == readme().count("```python") == 4
    assert sum(bool(line.strip()) for line in pairs[0][0].splitlines()) <= 10
    environment = {k: v for k, v in os.environ.items() if k != "CRFBOOK_MIRROR"} | {
        "CRFBOOK_DATA": str(tmp_path)
    }
    command = [sys.executable, "-W", "error", "-c", "".join(code for code, _ in pairs)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(shown for _, shown in pairs)


OURS_ALONE = ("matrix products", "loss + gradient", "boosting")  # their reference is our own work


def test_readme_ratios_are_those_of_the_records():
    """README's tables of ratios: rows of the records as they stand there,
    and none of those that a target was set for is left out.
    """
    from crfbook.studies import read_record

    folder = ROOT / "notebooks" / "results"
    rows, own = (
        [row for path in sorted(folder.glob(f"*_{kind}.csv")) for row in read_record(path)[1]]
        for kind in ("benchmarks", "targets")
    )
    recorded = {row["work"]: f"{float(row['ratio']):.2f}" for row in own + rows}
    section = readme().split("## Measured")[1].split("\n## ")[0]
    said = dict(re.findall(r"^\| ([^|]+?) \| ([0-9.]+) \|$", section, re.M))
    assert said == {work: recorded.get(work) for work in said} and len(said) >= 12
    peers = {
        row["work"]
        for row in rows
        if row["required"]
        and row["unit"] not in ("nats", "weights", "points")
        and not any(words in row["work"] for words in OURS_ALONE)
    }
    assert peers <= set(said), "a target of which README says nothing"
