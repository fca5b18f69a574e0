"""The records of `notebooks/results`: what was measured, and what is needed to judge it.

A record holds results of a run too long to repeat at every reading: a CSV file whose first lines, after `#`,
name the code (commit), the date, the versions, the data (sha256 of every file) and the seconds it took:
`notebooks/results/NN_<table>.csv`. It names the frozen results of its code path, too (cases of
tests/frozen.json), each with its hash, and stands while these are the same.
"""

import csv
import datetime
import hashlib
import inspect
import json
import os
import platform
import subprocess
import time
from functools import partial
from importlib import metadata
from itertools import product
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"  # beside the chapters, wherever these run
OF_TWINS = Path(__file__).parents[2] / "build" / "results"  # not committed
FROZEN = "frozen "  # begins the keys of a header that name a case


def environment():
    """What a reader needs to judge the numbers: date, processor, cores, versions."""
    versions = {}
    for package in ("crfbook", "numpy", "numba", "scipy", "python-crfsuite"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    about = {"date": datetime.date.today().isoformat(), "processor": _processor(), "cores": os.cpu_count()}
    return {**about, "python": platform.python_version(), **versions}


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            facts = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
            return facts["model name"] + ", AVX-512" * ("avx512f" in facts.get("flags", "").split())
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def commit():
    """Commit of the checkout that the studies run from, or "unknown".

    A "+" stands after it if tracked files of the package or of the studies differ.
    """

    def git(*words):
        options = {"cwd": Path(__file__).parents[2], "capture_output": True, "text": True, "check": True}
        return subprocess.run(["git", *words], **options).stdout.strip()

    try:
        changed = git("status", "--porcelain", "-uno", "--", "crfbook", "notebooks/studies")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def require_clean():
    """RuntimeError where files differ from the commit: no record could name its code."""
    if commit().endswith("+"):
        raise RuntimeError(
            "a record names the commit that made it, and files of crfbook or studies differ from theirs: "
            "commit them first, or write elsewhere with dirty=True (--dirty)"
        )


def frozen_results():
    """{case: the first 12 digits of its hash} of the checkout's tests/frozen.json; {} where there is none."""
    path = Path(__file__).parents[2] / "tests" / "frozen.json"
    if not path.exists():
        return {}
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    parts = {case: json.dumps(found, sort_keys=True).encode() for case, found in cases.items()}
    return {case: hashlib.sha256(part).hexdigest()[:12] for case, part in parts.items()}


def changed_since(about):
    """The frozen results that are others now than a record's header says, as a list; empty: it stands."""
    then = {key[len(FROZEN) :]: digest for key, digest in about.items() if key.startswith(FROZEN)}
    now = frozen_results()
    return [case for case, digest in then.items() if now and now.get(case) != digest]


def data_hashes(dataset):
    """{file: sha256} of the real files behind a `Dataset`; {"built-in twin": name} where there are none."""
    if dataset.source != "real":
        return {"built-in twin": dataset.name}
    from data_fetch import REGISTRY, USER_SUPPLIED, locate

    if dataset.name in USER_SUPPLIED:  # the reader's own, which may differ from anybody else's
        files = {name: Path(locate(dataset.name, name)) for name in USER_SUPPLIED[dataset.name]["files"]}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return {name: facts["sha256"] for name, facts in REGISTRY[dataset.name]["files"].items()}


def write_record(path, rows, *, seconds, datasets=(), begun_at=None, frozen=()):
    """Write `rows` (list of dicts with the same keys) with their header; makes the folder. Returns the path.

    The file is replaced at once: an interrupted call leaves the one that was there.

    seconds: wall-clock time of the run; datasets: the `Dataset`s it used; begun_at: the commits that made the
    first rows, as an unfinished record names them; frozen: cases of tests/frozen.json. ValueError if there is
    no row, or keys differ.
    """
    if not rows or any(list(row) != list(rows[0]) for row in rows):
        raise ValueError("a record needs rows, all with the same columns in the same order")
    now, before = commit(), [] if begun_at is None else begun_at.split(", ")
    about = {"commit": ", ".join([*before, now] if now not in before else before), **environment()}
    about["seconds"] = f"{seconds:.0f}"
    for dataset in datasets:
        about |= {f"data {dataset.name} {name}": digest for name, digest in data_hashes(dataset).items()}
    known = frozen_results()
    about |= {f"{FROZEN}{case}": known[case] for case in frozen if known}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.tmp")
    with open(draft, "w", newline="", encoding="utf-8") as out:
        out.writelines(f"# {key}: {value}\n" for key, value in about.items())
        table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return draft.replace(path)


def write_report(path, rows, *, seconds, frozen=()):
    """Write `Row`s of a timing as a record, each with its ratio and verdict. Returns the path."""
    table = [{**row._asdict(), "ratio": f"{row.ratio:.4f}", "verdict": row.verdict} for row in rows]
    return write_record(path, table, seconds=seconds, frozen=frozen)


def read_record(path):
    """(about, rows) of a file that `write_record` wrote: dicts of strings, the header's and each row's."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = file.read().splitlines()
    n_head = next((i for i, line in enumerate(lines) if not line.startswith("# ")), len(lines))
    head = [line[2:].partition(": ") for line in lines[:n_head]]
    return {key: value for key, _, value in head}, list(csv.DictReader(lines[n_head:]))


def cells(**columns):
    """Keys of rows: a dict for each choice of one value a column, the last column fastest."""
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def each(make, keys, **options):
    """Jobs for `fill`: make(**key, **options) for each dict of `keys`, which is the key of its row."""
    return [(key, partial(make, **key, **options)) for key in keys]


def rounded(make):
    """`make`, with five digits of the floats in its row or rows."""

    def rows(**options):
        made = make(**options)
        made = [made] if isinstance(made, dict) else made
        return [{k: f"{x:.5g}" if isinstance(x, float) else x for k, x in row.items()} for row in made]

    return rows


PROCESSOR_DECIDES = (  # ratios that another kind of processor turns round: they have no verdict
    "joint: the 10 best with probabilities / plain Viterbi, node scores in both",  # 0.77; there 1.32 to 1.44
)


def recorded(name, folder=RESULTS):
    """The rows of NN_<table> as a table of strings; prints when and at which commit it was recorded, and of
    targets on which processor.
    """
    import pandas as pd  # loads megabytes, which the peer's process in c03.py should not

    about, rows = read_record(Path(folder) / f"{name}.csv")
    made = f"recorded {about['date']} at {about['commit']}, {float(about['seconds']) / 60:.0f} minutes"
    changed = changed_since(about)
    table = pd.DataFrame(rows)
    if "required" in table:
        made += f", {about.get('processor', 'processor not said')}"
        table.loc[table["work"].isin(PROCESSOR_DECIDES), ["required", "aim", "verdict"]] = ""
    print(f"{name}: {made}" + (f"; results have changed since: {', '.join(changed)}" if changed else ""))
    return table


def fill(path, jobs, datasets=(), frozen=()):
    """Do the jobs that the record lacks, written as soon as each is done. Returns the path.

    jobs: list of (key, make): key a dict whose values name the job, make() -> dict of the other columns of
    its row, or a list of them. An unfinished record is kept beside the finished one as `*.part.csv`: an
    interrupted run goes on with it, a finished one begins anew. A job that takes an argument `kept` gets the
    path of a file beside it, *.part.npz, for what the next job goes on from; it goes with the part.
    """
    path = Path(path)
    part, kept = path.with_suffix(".part.csv"), path.with_suffix(".part.npz")
    about, rows = read_record(part) if part.exists() else ({"seconds": "0"}, [])
    clock = time.perf_counter() - float(about["seconds"])
    for key, make in jobs:
        key = {name: str(value) for name, value in key.items()}
        if not any(key.items() <= row.items() for row in rows):
            made = make(**({"kept": kept} if "kept" in inspect.signature(make).parameters else {}))
            for more in made if isinstance(made, list) else [made]:
                rows.append({**key, **{name: str(value) for name, value in more.items()}})
            seconds, begun_at = time.perf_counter() - clock, about.get("commit")
            about_them = {"datasets": datasets, "begun_at": begun_at, "frozen": frozen}
            write_record(part, rows, seconds=seconds, **about_them)
    kept.unlink(missing_ok=True)
    return part.replace(path)


def folder_of(folder, datasets=()):
    """Where a record goes: `folder`, but no record of a built-in twin joins those of RESULTS."""
    if Path(folder).resolve() != RESULTS.resolve() or all(one.source == "real" for one in datasets):
        return Path(folder)
    print(f"built-in twins in place of the corpora: not into {RESULTS.name}, but into {OF_TWINS}")
    return OF_TWINS


def fill_all(made, folder, frozen=()):
    """Fill in `folder_of` what a study yields, (file, jobs, data sets); send it the rows. Returns the paths.

    frozen : the cases of tests/frozen.json that the records name.
    """
    paths, rows = [], None
    while True:
        try:
            name, jobs, *data = made.send(rows)
        except StopIteration:
            return paths
        paths.append(fill(folder_of(folder, *data) / name, jobs, *data, frozen=frozen))
        rows = read_record(paths[-1])[1]
