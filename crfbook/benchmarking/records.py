"""Recorded tables: results of runs too long to repeat at every reading, with what is needed to judge them.

A record is a CSV file whose first lines, after `#`, name the code (commit), the date, the versions, the data
(sha256 of every file) and the seconds it took: `notebooks/results/NN_<table>.csv`.
"""

import csv
import hashlib
import subprocess
from pathlib import Path

from . import environment


def commit():
    """Commit of the checkout this package runs from, "+" after it if tracked files of the package differ;
    else "unknown".
    """
    here = Path(__file__).resolve().parent.parent
    try:
        head, changed = (
            subprocess.run(
                ["git", *words], cwd=here, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno", "--", "."])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def data_hashes(dataset):
    """{file: sha256} of the real files behind a `Dataset`; {"built-in twin": name} where there are none."""
    if dataset.source != "real":
        return {"built-in twin": dataset.name}
    from data_fetch import REGISTRY, USER_SUPPLIED, locate

    if dataset.name in USER_SUPPLIED:  # the reader's own, which may differ from anybody else's
        files = USER_SUPPLIED[dataset.name]["files"]
        return {
            name: hashlib.sha256(Path(locate(dataset.name, name)).read_bytes()).hexdigest() for name in files
        }
    return {name: facts["sha256"] for name, facts in REGISTRY[dataset.name]["files"].items()}


def write_record(path, rows, *, seconds, datasets=(), begun_at=None):
    """Write `rows` (list of dicts with the same keys) with their header; makes the folder. Returns the path.

    seconds: wall-clock time of the run; datasets: the `Dataset`s it used; begun_at: the commits that made the
    first rows, as an unfinished record names them. ValueError if there is no row, or keys differ.
    """
    if not rows or any(list(row) != list(rows[0]) for row in rows):
        raise ValueError("a record needs rows, all with the same columns in the same order")
    now, before = commit(), [] if begun_at is None else begun_at.split(", ")
    about = {
        "commit": ", ".join([*before, now] if now not in before else before),
        **environment(),
        "seconds": f"{seconds:.0f}",
    }
    for dataset in datasets:
        about |= {f"data {dataset.name} {name}": digest for name, digest in data_hashes(dataset).items()}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as out:
        out.writelines(f"# {key}: {value}\n" for key, value in about.items())
        table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return path


def write_report(path, rows, *, seconds):
    """Write `Row`s of a benchmark as a record, each with its ratio and verdict. Returns the path."""
    table = [{**row._asdict(), "ratio": f"{row.ratio:.4f}", "verdict": row.verdict} for row in rows]
    return write_record(path, table, seconds=seconds)


def read_record(path):
    """(about, rows) of a file that `write_record` wrote: two dicts of strings,
    the header's and one for each row.
    """
    with open(path, newline="", encoding="utf-8") as file:
        lines = file.read().splitlines()
    n_head = next((i for i, line in enumerate(lines) if not line.startswith("# ")), len(lines))
    head = [line[2:].partition(": ") for line in lines[:n_head]]
    return {key: value for key, _, value in head}, list(csv.DictReader(lines[n_head:]))
