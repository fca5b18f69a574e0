"""What the README promises: its chapters, commands, address, and the ten lines of its example with what they print."""

import os
import re
import subprocess
import sys
import tomllib

from tools import chapters as book

ROOT = book.ROOT
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def readme():
    return (ROOT / "README.md").read_text()


def citation():
    return (ROOT / "CITATION.cff").read_text()


def test_readme_lists_the_chapters():
    rows = re.findall(r"^\| \[(\d\d)\]\(notebooks/(\d\d_\w+)\.ipynb\) \| ([^|]+) \|", readme(), re.M)
    on_disk = [(p.stem[:2], p.stem, book.title(book.read(p))) for p in book.chapters()]
    assert [(number, stem, name.strip()) for number, stem, name in rows] == on_disk


def test_readme_commands_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^make ([a-z]+)", readme(), re.M))
    assert {"book", "test", "lab"} <= named <= targets


def test_one_address():
    """Whoever moves the project changes pyproject.toml, and this test names the other places."""
    owner = PYPROJECT["project"]["urls"]["Homepage"].removeprefix("https://github.com/")
    address = re.compile(r"(?:github\.com|mybinder\.org/v2/gh|research\.google\.com/github)/([\w.-]+/[\w-]+)")
    for name, text in [("README.md", readme()), ("install cell", book.install_cell()), ("CITATION.cff", citation())]:
        assert set(address.findall(text)) == {owner}, name
    assert len(address.findall(readme())) >= 3, "the clone command, Binder and Colab"


def test_the_examples_print_what_is_shown(tmp_path):
    """On the built-in twin, in a folder of their own, one after the other in one program."""
    pairs = re.findall(r"```python\n(.*?)```\s+prints[^`]*```text\n(.*?)```", readme(), re.S)
    assert len(pairs) == readme().count("```python") == 2
    assert sum(bool(line.strip()) for line in pairs[0][0].splitlines()) <= 10
    environment = {k: v for k, v in os.environ.items() if k != "CRFBOOK_MIRROR"} | {"CRFBOOK_DATA": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", "".join(code for code, _ in pairs)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(shown for _, shown in pairs)


def test_readme_ratios_are_those_of_the_record():
    """Every row of README's table of ratios stands in notebooks/results/03_benchmarks.csv, and none is left out."""
    from crfbook.benchmarking.records import read_record

    _, rows = read_record(ROOT / "notebooks" / "results" / "03_benchmarks.csv")
    recorded = {row["work"]: f"{float(row['ratio']):.2f}" for row in rows if "matrix products" not in row["work"]}
    section = readme().split("## Measured")[1].split("\n## ")[0]
    said = dict(re.findall(r"^\| ([^|]+?) \| ([0-9.]+) \|$", section, re.M))
    assert said == recorded and len(said) >= 8
