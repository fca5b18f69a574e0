"""Run chapters, each in a fresh kernel of this very Python, and say in one line each how it went."""

import os
import re
import sys
import time
from typing import NamedTuple

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from tools.chapters import NOTEBOOKS, read

SOURCE = re.compile(r"^([a-z0-9][a-z0-9-]*(?: \([\w-]+\))?): (real data|built-in twin|simulated)\b", re.M)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Run(NamedTuple):
    path: object
    nb: object  # with the outputs of this run
    seconds: float
    error: str  # "" where every cell ran
    data: dict  # what load_dataset was asked for -> "real data" | "built-in twin" | "simulated"


def stream_text(nb, name):
    """All that the chapter wrote to "stdout" or "stderr"."""
    return "\n".join(
        output.text
        for cell in nb.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == name
    )


def data_used(nb):
    """What load_dataset said about its sources, one line a call."""
    used = {}
    for name, source in SOURCE.findall(stream_text(nb, "stdout")):
        used.setdefault(name, set()).add(source)
    return {name: " and ".join(sorted(sources)) for name, sources in used.items()}


def execute(path, timeout):
    """Run one chapter. ``timeout`` is in seconds a cell. Never raises for what the chapter did wrong."""
    nb = read(path)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        nb,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=40"],  # its start-up notes would break the progress line
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    error, start = "", time.perf_counter()
    try:
        client.execute()
    except CellTimeoutError:
        error = f"a cell took more than {timeout} s:\n{_running_cell(nb)}"
    except DeadKernelError:
        error = f"the kernel died in:\n{_running_cell(nb)}"
    except CellExecutionError as failed:
        error = ESCAPES.sub("", str(failed)).strip()
    return Run(path, nb, time.perf_counter() - start, error, data_used(nb))


def _running_cell(nb):
    code = [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]
    return next((c.source for c in code if c.execution_count is None), code[-1].source if code else "")


def run_all(paths, timeout, after=None):
    """Run the chapters one after another, printing a line each;
    ``after(run)`` may return a complaint of its own.
    """
    runs = []
    width = max((len(p.stem) for p in paths), default=0)
    for path in paths:
        print(f"{path.stem:<{width}}  ", end="", flush=True)
        run = execute(path, timeout)
        if not run.error and after is not None:
            run = run._replace(error=after(run) or "")
        print(f"{run.seconds:6.1f} s  {'failed' if run.error else 'ok'}", flush=True)
        runs.append(run)
    return runs


def report(runs):
    """The table of what ran on which data, then the failures. Returns the exit code."""
    width = max((len(r.path.stem) for r in runs), default=7)
    print(f"\n{'chapter':<{width}}  seconds  outcome  data")
    for run in runs:
        data = ", ".join(f"{name}: {source}" for name, source in sorted(run.data.items())) or "none"
        print(
            f"{run.path.stem:<{width}}  {run.seconds:7.1f}  {'failed ' if run.error else 'ok     '}  {data}"
        )
    failed = [r for r in runs if r.error]
    print(f"{len(runs)} chapters, {len(failed)} failed, {sum(r.seconds for r in runs):.0f} s in all")
    for run in failed:
        print(f"\n{run.path.name} failed:\n{run.error}", file=sys.stderr)
    return 1 if failed else 0


def cell_timeout():
    """Seconds a cell may take: two minutes, or a day at the scale of the papers."""
    return 86400 if os.environ.get("CRFBOOK_SCALE") == "paper" else 120
