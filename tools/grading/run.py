"""Ask a student's functions in a process of their own, whatever they do there: one answer for each call."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tools.grading import worker

SECONDS = 5.0  # for a call, or for a statement of a cell
IN_ALL = 60.0  # for a submission
MEMORY = 4 << 30  # bytes of address space: numpy alone reserves a part of one
PATIENCE = 2  # calls of a function that run into the limit, before its others are not made


class Failed(Exception):
    """A call without a result; its text is one line for the student."""


def ask(cells, calls, *, seconds=SECONDS, in_all=IN_ALL, memory=MEMORY):
    """(answers, {cell: complaint}): for each call its result or `Failed`.

    cells : (name, source) in their order; calls : (function, arguments). A process that ends, or that is
    stopped because it takes longer than `seconds`, is started anew without the statement that ended it.
    """
    answers, wrong, skip, slow = {}, {}, [], {}
    deadline = time.monotonic() + in_all
    while len(answers) < len(calls):
        left = [n for n in range(len(calls)) if n not in answers]
        for n in list(left):
            if slow.get(calls[n][0], 0) >= PATIENCE:
                answers[n] = Failed(f"not called: {calls[n][0]} took longer than {seconds:g} s before")
                left.remove(n)
        if time.monotonic() > deadline:
            answers |= {n: Failed(f"the submission took longer than {in_all:g} s in all") for n in left}
        elif left:
            _once(cells, calls, left, skip, answers, wrong, slow, seconds, memory)
    return [answers[n] for n in range(len(calls))], wrong


def _once(cells, calls, left, skip, answers, wrong, slow, seconds, memory):
    """One process: it makes calls until it has made all, or ends, or is stopped."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        packed = []
        for n in left:
            arguments = worker.pack(list(calls[n][1]), folder / f"in{n}", [])
            packed.append({"number": n, "function": calls[n][0], "arguments": arguments})
        task = {"cells": cells, "skip": skip, "calls": packed, "memory": memory}
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        stopped = _watch(folder, seconds)
        defined = _read(folder / "defined.json")
        for n in left:
            found = _read(folder / f"answer{n}.json")
            if found is not None:
                answers[n] = _answer(found, folder)
        if defined is not None:
            wrong |= {cell: said for cell, said in defined.items() if isinstance(said, str)}
        if _read(folder / "done.json") is not None:
            answers |= {n: Failed("no answer was found") for n in left if n not in answers}
            return
        how = f"took longer than {seconds:g} s" if stopped else "ended the process"
        at = _read(folder / "at")
        if defined is None and isinstance(at, list) and at not in skip:
            skip.append(at)
            wrong[at[0]] = f"a statement of this cell {how}"
        elif isinstance(at, int) and at in left and at not in answers:
            answers[at] = Failed(f"the call {how}")
            slow[calls[at][0]] = slow.get(calls[at][0], 0) + 1
        else:
            answers |= {n: Failed(f"the submission {how}") for n in left if n not in answers}


def _watch(folder, seconds):
    """Run the worker in `folder`; True if it had to be stopped."""
    command = [sys.executable, "-I", str(Path(worker.__file__)), str(folder)]
    threads = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    group = {"start_new_session": True} if os.name == "posix" else {}
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **threads}, **quiet, **group) as process:
        seen, since = None, time.monotonic()
        while process.poll() is None:
            now = _progress(folder)
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > seconds:
                _stop(process)
                return True
            time.sleep(0.01)
        _stop(process)  # what it started may still run
    return False


def _progress(folder):
    """When the worker last wrote down where it is, and what it writes at its ends; None: nothing yet."""
    found = []
    for name in ("at", "defined.json", "done.json"):
        try:
            found.append((folder / name).stat().st_mtime_ns)
        except OSError:  # not there yet, or just being replaced
            found.append(None)
    return found


def _stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
    except (OSError, AttributeError):
        pass


def _read(path):
    """The JSON of a file that the worker, or a student's code, wrote; None if there is no such thing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _answer(found, folder):
    """A result, or `Failed`."""
    try:
        if "error" in found:
            return Failed(str(found["error"])[: worker.LONGEST])
        return worker.unpack(found["result"], folder)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, RecursionError) as error:
        return Failed(f"the result cannot be read: {type(error).__name__}")


# ---- comparison, in the grader's process ----


def difference(expected, got, tol):
    """Why `got` is not `expected`, in a line that gives no number away; "" if it is. Sequences are lists."""
    if isinstance(expected, (list, tuple)) and any(isinstance(e, (list, tuple, dict, str)) or e is None
                                                   or isinstance(e, np.ndarray) for e in expected):  # fmt: skip
        if not isinstance(got, (list, tuple)):
            return f"returned {_kind(got)}, expected {len(expected)} values"
        if len(got) != len(expected):
            return f"returned {len(got)} values, expected {len(expected)}"
        found = (difference(e, g, tol) for e, g in zip(expected, got, strict=True))
        return next((f"value {n}: {said}" for n, said in enumerate(found) if said), "")
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return f"returned {_kind(got)}, expected a dict with {len(expected)} other keys"
        found = ((key, difference(expected[key], got[key], tol)) for key in expected)
        return next((f"entry {key!r}: {said}" for key, said in found if said), "")
    if isinstance(expected, str) or expected is None:
        return "" if type(got) is type(expected) and got == expected else f"returned another {_kind(got)}"
    return _of_numbers(np.asarray(expected), got, tol)


def _of_numbers(expected, got, tol):
    try:
        found = np.asarray(got)
    except ValueError:
        return "returned a list of lists of unequal lengths"
    if found.dtype.kind not in "biufc" and expected.dtype.kind != found.dtype.kind:
        return f"returned {_kind(got)}, expected numbers"
    if found.shape != expected.shape:
        return f"returned shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind not in "fc":
        return "" if np.array_equal(expected, found) else "the values differ"
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)
    if np.allclose(found, expected, rtol=tol, atol=tol * min(scale, 1.0) + 1e-300, equal_nan=True):
        return ""
    bad = int(np.sum(~np.isclose(found, expected, rtol=tol, atol=tol, equal_nan=True)))
    extreme = "" if np.isfinite(found).all() or not np.isfinite(expected).all() else "; some are not finite"
    return f"{max(bad, 1)} of {expected.size} values differ{extreme}"


def _kind(value):
    return (
        "an array" if isinstance(value, np.ndarray) else "nothing" if value is None else type(value).__name__
    )
