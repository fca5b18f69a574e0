"""How a study is declared, timed and judged: one place for all chapters (records.py: how it is recorded).

    @study("03_benchmarks.csv")                         # a timing: yields `Row`s; a record may hold them
    def gradient(repeats=5): ...

    @study("04_variance_{}.csv", "04_{}.csv", of=("pos", "ner"))     # tables: yields one record after the
    def loss_table(task): ...                           # other, (file, jobs, data sets), gets its rows back

Fair timings: a warm-up, candidates in turn (A B A B ...), medians, ratios in one run. These machines are
noisy: quote ratios and medians, never a single time. Compilation is timed apart (the warm-up).
"""

import ctypes
import gc
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .work import TWINS


class Study(NamedTuple):
    """What the command lists and runs."""

    name: str
    chapter: str  # "03": its module is c03.py
    about: str  # one line
    files: tuple  # of notebooks/results: the records that it writes, or whose rows it times
    run: Callable
    timed: bool  # rows of a comparison; otherwise records
    frozen: tuple  # cases of tests/frozen.json: the code path of its records


STUDIES = {}  # name -> Study: a chapter's are here once its module is imported


def study(*files, of=("",), frozen=()):
    """Declare a study: named as its function, which has `repeats` as a parameter where it times something.

    of : words; there is a study for each, whose function gets the word and whose name and files end in it.
    frozen : the cases of tests/frozen.json on which its records rest.
    """

    def declare(run):
        timed = "repeats" in inspect.signature(run).parameters
        about, chapter = run.__doc__.splitlines()[0], run.__module__.rpartition(".c")[2][:2]
        for word in of:
            name = "-".join([*run.__name__.split("_"), *filter(None, [word])])
            made = partial(run, word) if word else run
            named = tuple(f.format(word) for f in files)
            STUDIES[name] = Study(name, chapter, about, named, made, timed, frozen)
        return run

    return declare


# ---- timing ----


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
    wall: float | None = None  # None: the same


def _once(run):
    """Seconds of one call, by our clock or by the candidate's own."""
    own, spent = clocked(run)
    if isinstance(own, Clocked):
        return own if own.wall is not None else Clocked(own.cpu, own.cpu)
    return Clocked(**spent)


def race(candidates, repeats=5, warm_up=True):
    """Time the callables of `candidates` ({name: callable}) in turn, `repeats` times, after a warm-up each
    (False: each warms itself up, in a process of its own).

    Returns {name: Timing}. A callable that measures itself returns `Clocked`; any other return value is
    ignored and the call itself is timed.
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}")
    warm = {name: _once(run).wall if warm_up else 0.0 for name, run in candidates.items()}
    samples = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            samples[name].append(_once(run))
    columns = {name: map(list, zip(*pairs, strict=True)) for name, pairs in samples.items()}
    return {name: Timing(name, *both, warm[name]) for name, both in columns.items()}


def clocked(run, *args, **options):
    """(what the call returns, {"cpu": seconds, "wall": seconds})."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = run(*args, **options)
    return found, {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def timed(run, *args, **options):
    """(what the call returns, its CPU seconds)."""
    found, spent = clocked(run, *args, **options)
    return found, spent["cpu"]


class Tick(NamedTuple):
    """A step that a learner showed to its callback, and the seconds until then."""

    cpu: float
    wall: float
    step: object  # `Step`


class Run(NamedTuple):
    """What a learner found, its CPU seconds, and its steps."""

    result: object  # `OptResult`
    seconds: float
    ticks: list


def follow(learner, *args, look=None, **options):
    """`Run` of learner(*args, callback=..., **options). The time spent in callbacks does not count.

    look : called with what the callback is shown, and the CPU seconds so far; True stops the learner.
    """
    ticks, aside = [], [0.0, 0.0]
    begin = time.process_time(), time.perf_counter()

    def callback(*shown):
        cpu, wall = time.process_time(), time.perf_counter()
        ticks.append(Tick(cpu - begin[0] - aside[0], wall - begin[1] - aside[1], shown[-2]))
        stop = look is not None and look(*shown, ticks[-1].cpu)
        aside[0] += time.process_time() - cpu
        aside[1] += time.perf_counter() - wall
        return stop

    result = learner(*args, callback=callback, **options)
    return Run(result, time.process_time() - begin[0] - aside[0], ticks)


def at(marks, make):
    """(look, rows) for `follow`: rows gets make(step, w, seconds) at the iterations `marks`."""
    rows = []

    def look(step, w, seconds):
        if step.iteration in marks:
            rows.append(make(step, w, seconds))

    return look, rows


@contextmanager
def quiet():
    """No warnings: a record has the status, and of a fit that is thrown away nobody reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# ---- processes and memory ----


def in_own_process(run, *arguments, **options):
    """What run, a function of a module, returns in a fresh interpreter; all that it is given is JSON, too.

    RuntimeError with the last line of the process's complaint.
    """
    code = f"from {run.__module__} import {run.__name__} as run; found = run(*{arguments!r}, **{options!r}); "
    code += "from studies.work import TWINS; import json; print(json.dumps([found, sorted(TWINS)]))"
    known = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [known])])
    how = {"capture_output": True, "text": True, "check": False, "env": os.environ | {"PYTHONPATH": path}}
    done = subprocess.run([sys.executable, "-c", code], **how)
    if done.returncode:
        side, said = map(str, [*arguments, *options.values()]), done.stderr.strip().splitlines()[-1:]
        raise RuntimeError(f"{' '.join(side)}: the process failed: {said}")
    found, twins = json.loads(done.stdout.splitlines()[-1])
    TWINS.update(twins)
    return found


def race_processes(run, arguments, repeats, warm_up=True):
    """(timings, {side: what each of its processes returned}) of run(*arguments), the arguments by side.

    run : returns a dict; "cpu" and "wall" are its seconds.
    """
    done = {side: [] for side in arguments}

    def once(side):
        done[side].append(in_own_process(run, *arguments[side]))
        return Clocked(done[side][-1]["cpu"], done[side][-1]["wall"])

    return race({side: partial(once, side) for side in arguments}, repeats, warm_up), done


def own_peak_mb():
    """Largest resident size of this process so far, in MB; 0 where the system does not tell.

    `ru_maxrss` would count in the process that started this one.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        return 0.0


def settled():
    """The resident size in MB, once what is free has gone back to the system: sizes count anew from here."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return own_peak_mb()


def with_memory(run, *args, **options):
    """(what the call returns, MB that it adds to the largest resident size)."""
    before = settled()
    found = run(*args, **options)
    return found, own_peak_mb() - before


def peak_mb():
    """Largest resident size that the system counts for this process, in MB; its counter may be reset."""
    import resource  # not on every system

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


# ---- fits of measured seconds ----


def steady(seconds, reference):
    """`seconds` as if the machine had been equally busy in all rows.

    reference : the same work in each row; it takes its median there.
    """
    reference = np.asarray(reference, float)
    return np.asarray(seconds, float) * np.median(reference) / reference


def affine_fit(x, y):
    """(constant, slope, R^2) of the least-squares line y = constant + slope x."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    slope, constant = np.polyfit(x, y, 1)
    return constant, slope, 1.0 - np.sum((constant + slope * x - y) ** 2) / np.sum((y - y.mean()) ** 2)


def break_even(n_edge, ratio):
    """Edge weights at which `ratio` of seconds (rising with n_edge) reaches 1, between the points, or inf."""
    for i in range(1, len(ratio)):
        if ratio[i - 1] < 1.0 <= ratio[i]:
            share = np.log(1.0 / ratio[i - 1]) / np.log(ratio[i] / ratio[i - 1])
            return float(n_edge[i - 1] * (n_edge[i] / n_edge[i - 1]) ** share)
    return np.inf


# ---- rows ----


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


def cpu_row(work, took, required=None, aim=None, note="", ours="ours", reference="crfsuite"):
    """The `Row` of two candidates of a race: medians, CPU seconds."""
    seconds = took[ours].median_cpu, took[reference].median_cpu
    return Row(work, *seconds, "CPU s", required, aim, note)


def report(rows):
    """The rows as a text table."""
    head = f"{'work':<46} {'ours':>10} {'reference':>10} {'unit':<11} {'ratio':>6} {'required':>8} {'aim':>5}"
    lines = [head, "-" * len(head)]
    for row in rows:
        bound = ["" if x is None else f"{x:.2f}" for x in (row.required, row.aim)]
        figures = f"{row.ours:>10.4g} {row.reference:>10.4g} {row.unit:<11} {row.ratio:>6.3f}"
        lines.append(f"{row.work:<46} {figures} {bound[0]:>8} {bound[1]:>5}  {row.verdict}")
        if row.note:
            lines.append(f"    {row.note}")
    return "\n".join(lines)
