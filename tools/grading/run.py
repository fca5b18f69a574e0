"""Ask a student's functions in a process of their own, whatever they do there: one answer for each call."""

import builtins
import json
import os
import pickle
import re
import signal
import site
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tools.grading import worker

SECONDS = 5.0  # for a call, or for a statement of a cell
START = 20.0  # for Python and numpy to start
IN_ALL = 120.0  # for a submission
MEMORY = 2 << 30  # bytes of address space: numpy alone reserves a part of one
DISK = 500_000_000  # bytes in the worker's folder
ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ("/usr", "/etc", "/lib", "/lib64", "/opt", "/dev", "/sys/devices", "/proc/cpuinfo", "/proc/meminfo")
READABLE = [
    *(sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), site.getusersitepackages()),
    *(str(ROOT / "crfbook"), str(ROOT / "data_fetch"), *SYSTEM),
]


class Failed(Exception):
    """A call without a result. Its text is one line, for the teacher: it may quote what it was handed."""

    SAID = re.compile(r"(\w+)((?: \(line \d{1,4} of its cell\))?): ")

    def __init__(self, text, ours=True):
        super().__init__(" ".join(text.split()))
        self.ours = ours or text in (worker.NONE, worker.DEEP, worker.LARGE, worker.KIND)

    def brief(self):
        """For the student: the kind of the error and the line; the text of the student's own is left out."""
        if self.ours:
            return str(self)
        found = self.SAID.match(str(self))
        kind = getattr(builtins, found[1], None) if found else None
        known = isinstance(kind, type) and issubclass(kind, BaseException)
        return f"{found[1]}{found[2]}" if known else "an error"


def ask(cells, calls, *, seconds=SECONDS, in_all=IN_ALL, memory=MEMORY):
    """(answers, {cell: complaint}): for each call its result or `Failed`.

    cells : (name, source) in their order; calls : (function, arguments). A process that ends, or that is
    stopped because it takes longer than `seconds`, is started anew without the statement that ended it.
    """
    answers, wrong, skip, slow = {}, {}, set(), set()
    deadline = time.monotonic() + in_all
    while len(answers) < len(calls):
        for n in range(len(calls)):
            if n not in answers and calls[n][0] in slow:
                answers[n] = Failed(f"not called again: it took longer than {seconds:g} s before")
        left = [n for n in range(len(calls)) if n not in answers]
        if time.monotonic() > deadline:
            answers |= {n: Failed(f"the submission took longer than {in_all:g} s in all") for n in left}
        elif left:
            _once(cells, calls, left, skip, answers, wrong, slow, seconds, deadline, memory)
    return [answers[n] for n in range(len(calls))], wrong


def _once(cells, calls, left, skip, answers, wrong, slow, seconds, deadline, memory):
    """One process: it makes calls until it has made all, or ends, or is stopped."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        task = {"cells": cells, "skip": skip, "memory": memory, "readable": READABLE}
        task["calls"] = [(n, calls[n][0], calls[n][1]) for n in left]
        (folder / "task").write_bytes(pickle.dumps(task))
        stopped = _watch(folder, seconds, deadline)
        at = None
        for line in _lines(folder / "log"):
            if line.get("answer") in left:
                answers[line["answer"]] = _answer(line)
            elif isinstance(line.get("wrong"), dict):
                said = {c: str(said)[: worker.LONGEST] for c, said in line["wrong"].items()}
                wrong |= {c: said[c] for c, _ in cells if c in said}
            at = line if "call" in line or "cell" in line else at
    if all(n in answers for n in left):
        return
    how = f"took longer than {seconds:g} s" if stopped else "ended the process"
    place = (at.get("cell"), at.get("statement")) if at else None
    if at and "call" in at and at["call"] in left and at["call"] not in answers:
        answers[at["call"]] = Failed(f"the call {how}")
        slow |= {calls[at["call"]][0]} if stopped else set()
    elif place and place not in skip and place[0] in [c for c, _ in cells] and isinstance(place[1], int):
        skip.add(place)
        wrong[place[0]] = f"a statement of this cell {how}"
    else:
        answers |= {n: Failed(f"the submission {how}") for n in left if n not in answers}


def _watch(folder, seconds, deadline):
    """Run the worker in `folder`; True if it had to be stopped."""
    command = [sys.executable, "-E", "-P", "-B", str(Path(worker.__file__)), str(folder)]
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "USERPROFILE")
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= dict.fromkeys(threads, "1") | {"MPLBACKEND": "Agg"}
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    group = {"start_new_session": True} if os.name == "posix" else {}
    process = subprocess.Popen(command, cwd=folder, env=environment, **quiet, **group)
    try:
        seen, since, looked = None, time.monotonic(), time.monotonic()
        while process.poll() is None:
            now, size = time.monotonic(), _size([folder / "log"])
            if size != seen:
                seen, since = size, now
            if now - looked > 0.5:
                looked = now
                if _size(folder.iterdir()) > DISK:
                    return True
            if now - since > (seconds if size else seconds + START) or now > deadline:
                return True
            time.sleep(0.01)
        return False
    finally:
        _stop(process)  # also what it started and left behind
        process.wait()


def _size(paths):
    """Bytes of those files that are there."""
    try:
        return sum(path.lstat().st_size for path in paths)
    except OSError:  # not yet, or gone in the meantime
        return 0


def _stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
    except (OSError, AttributeError):
        pass


def _lines(path):
    """The dictionaries that the worker, or a student's code, wrote. No pipe or device blocks who reads."""
    try:
        about = os.lstat(path)
        text = path.read_bytes() if stat.S_ISREG(about.st_mode) and about.st_size <= worker.FILE else b""
    except OSError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            hash_of = (found.get(name) for name in ("answer", "call", "cell", "statement"))
            if all(isinstance(value, (int, str, type(None))) for value in hash_of):
                yield found


def _answer(found):
    """A result, or `Failed`."""
    if "error" in found:
        return Failed(str(found["error"])[: worker.LONGEST], ours=False)
    try:
        return worker.unpack(found["result"])
    except Exception as error:  # what a student's code wrote there may be anything
        return Failed(f"the result cannot be read: {type(error).__name__}")


# ---- comparison, in the grader's process ----


def difference(expected, got, tol):
    """Why `got` is not `expected`, in a line that gives no number away; "" if it is."""
    parts = (list, tuple, dict, str, np.ndarray, type(None))
    if isinstance(expected, (list, tuple)) and any(isinstance(item, parts) for item in expected):
        got = list(got) if isinstance(got, np.ndarray) and got.ndim else got
        if not isinstance(got, (list, tuple)):
            return f"returned {_kind(got)}, expected {len(expected)} values"
        if len(got) != len(expected):
            return f"returned {len(got)} values, expected {len(expected)}"
        found = (difference(e, g, tol) for e, g in zip(expected, got, strict=True))
        return next((f"value {n}: {said}" for n, said in enumerate(found) if said), "")
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return f"returned {_kind(got)}, expected a dict with {len(expected)} keys"
        found = (difference(expected[key], got[key], tol) for key in expected)
        return next((f"one entry: {said}" for said in found if said), "")
    if isinstance(expected, str) or expected is None:
        same = got is None if expected is None else isinstance(got, str) and got == expected
        return "" if same else f"returned {_kind(got)}, expected another value"
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
