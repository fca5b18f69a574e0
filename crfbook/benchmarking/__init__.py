"""Fair timings: a warm-up, candidates in turn (A B A B ...), medians, ratios in one run, a CSV.

    python -m crfbook.benchmarking            # what there is
    python -m crfbook.benchmarking gradient   # one of them

These machines are noisy: quote ratios and medians, never a single time. Compilation is timed apart (the
warm-up). What depends on a peer (python-crfsuite, extra `peers`) says so when it is missing.
"""

import datetime
import os
import platform
import statistics
import time
from importlib import metadata
from typing import NamedTuple


class Timing(NamedTuple):
    """Samples of one candidate: CPU and wall seconds of each counted run, and of the warm-up."""

    name: str
    cpu: list
    wall: list
    warm_up: float

    @property
    def median_cpu(self):
        return statistics.median(self.cpu)

    @property
    def median_wall(self):
        return statistics.median(self.wall)


class Clocked(NamedTuple):
    """What a candidate returns that measured itself (a subprocess, a C tool's own log)."""

    cpu: float
    wall: float


def _once(run):
    """Seconds of one call, by our clock or by the candidate's own."""
    cpu, wall = time.process_time(), time.perf_counter()
    own = run()
    if isinstance(own, Clocked):
        return own
    return Clocked(time.process_time() - cpu, time.perf_counter() - wall)


def race(candidates, repeats=5):
    """Time the callables of `candidates` ({name: callable}) in turn, `repeats` times, after a warm-up each.

    Returns {name: Timing}. A callable that measures itself returns `Clocked`; any other return value is
    ignored and the call itself is timed.
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}")
    warm = {name: _once(run)[1] for name, run in candidates.items()}
    samples = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            samples[name].append(_once(run))
    return {
        name: Timing(name, [c for c, _ in pairs], [w for _, w in pairs], warm[name])
        for name, pairs in samples.items()
    }


class Row(NamedTuple):
    """One line of a report: a figure beside its reference in the same run, and what was asked of it."""

    work: str
    ours: float
    reference: float
    unit: str
    required: float | None = None
    aim: float | None = None
    note: str = ""

    @property
    def ratio(self):
        return self.ours / self.reference

    @property
    def verdict(self):
        if self.required is None:
            return ""
        if self.aim is not None and self.ratio <= self.aim:
            return "aim met"
        return "met" if self.ratio <= self.required else "MISSED"


def environment():
    """What a reader needs to judge the numbers: date, processor, cores, versions."""
    versions = {}
    for package in ("crfbook", "numpy", "numba", "scipy", "python-crfsuite"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(rows):
    """The rows as a text table."""
    head = f"{'work':<46} {'ours':>10} {'reference':>10} {'unit':<11} {'ratio':>6} {'required':>8} {'aim':>5}"
    lines = [head, "-" * len(head)]
    for row in rows:
        bound = ["" if x is None else f"{x:.2f}" for x in (row.required, row.aim)]
        lines.append(
            f"{row.work:<46} {row.ours:>10.4g} {row.reference:>10.4g} {row.unit:<11} "
            f"{row.ratio:>6.3f} {bound[0]:>8} {bound[1]:>5}  {row.verdict}"
        )
        if row.note:
            lines.append(f"    {row.note}")
    return "\n".join(lines)
