"""Ask a student's functions in a process of their own, whatever they do there: one answer for each call."""

import json
import os
import pickle
import signal
import site
import stat
import subprocess
import sys
import tempfile
import time
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tools.grading import worker
from tools.grading.complaints import Failed, raised

SECONDS = 5.0  # for a call, or for a statement of a cell
START = 20.0  # for Python and numpy to start
IN_ALL = 120.0  # for a submission
MEMORY = 2 << 30  # bytes of address space: numpy alone reserves a part of one
DISK = 500_000_000  # bytes in the worker's folder
ROOT = Path(__file__).resolve().parents[2]
LINES = 100_000  # of the log
BARE = [sys.executable, "-E", "-P", "-B"]  # what starts a worker
FENCE = str(Path(__file__).with_name("fence.py"))
REFUSED = 97  # its exit code
SYSTEM = ("/usr", "/etc", "/lib", "/lib64", "/opt", "/dev", "/sys/devices", "/proc/cpuinfo", "/proc/meminfo")
PYTHON = (sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), site.getusersitepackages())
PYTHON = [place for place in PYTHON if os.path.realpath(place) != str(ROOT)]  # made right here
PYTHON += [str(ROOT / "crfbook"), str(ROOT / "data_fetch")]


class Refused(OSError):
    """The system does not let the fence stand."""


@cache
def fence():
    """(how a worker is started, the sentence that says so). One whole trial decides: some systems refuse new
    namespaces, others what is done in them.
    """
    libraries = [
        Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(place)
    ]
    # none that shows the book
    libraries = [
        p for p in libraries if not (p.resolve().is_relative_to(ROOT) or ROOT.is_relative_to(p.resolve()))
    ]
    places = {form(place) for place in (*PYTHON, *libraries) for form in (os.path.abspath, os.path.realpath)}
    fenced = [*BARE, FENCE, str(ROOT), *places]
    try:
        if sys.platform != "linux":
            raise Refused(f"no namespaces on {sys.platform}")
        (found,), _ = ask([("trial", "def trial(x): return x")], [("trial", (1,))], start=fenced)
        if found != 1:
            raise Refused("Python does not start within namespaces")
    except Refused as error:
        return BARE, f"fence: the audit hook alone, not safe against intent ({error})"
    return fenced, "fence: namespaces"


class Kept(NamedTuple):
    """What a call returned, and the arguments that it should keep, as it left them."""

    result: object
    arguments: object


def ask(
    cells,
    calls,
    *,
    seconds=SECONDS,
    in_all=IN_ALL,
    memory=MEMORY,
    start=None,
    hook=True,
    trials=False,
    ours=None,
):
    """(answers, {cell: complaints}): for each call its result, `Kept` or `Failed`.

    cells : (name, source) in their order; calls : (function, arguments[, places of those that it keeps]);
    start : of a worker, see `fence`; hook : without it, as in some tests, the fence stands alone; trials :
    whether calls at the top of cells run; ours : (code, names) of functions that stand in for the student's.
    A process that ends, or that is stopped after `seconds` without a sign, is started anew without the
    statement that ended it.
    """
    answers, wrong, skip, slow = {}, {}, set(), set()
    start = start or fence()[0]
    task = {"cells": cells, "skip": skip, "memory": memory, "hook": hook, "trials": trials, "ours": ours}
    calls = [(name, arguments, *(keeps or [()])) for name, arguments, *keeps in calls]
    deadline = time.monotonic() + in_all
    while len(answers) < len(calls):
        for n in range(len(calls)):
            if n not in answers and calls[n][0] in slow:
                answers[n] = Failed(f"not called again: it took longer than {seconds:g} s before")
        left = [n for n in range(len(calls)) if n not in answers]
        if time.monotonic() > deadline:
            answers |= {n: Failed(f"the submission took longer than {in_all:g} s in all") for n in left}
        elif left:
            _once(task, calls, left, answers, wrong, slow, seconds, deadline, start)
    return [answers[n] for n in range(len(calls))], wrong


def _once(task, calls, left, answers, wrong, slow, seconds, deadline, start):
    """One process: it makes calls until it has made all, or ends, or is stopped."""
    cells, skip = task["cells"], task["skip"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        now = task | {"readable": [*PYTHON, *SYSTEM], "calls": [(n, *calls[n]) for n in left]}
        (folder / "task").write_bytes(pickle.dumps(now))
        (folder / "log").touch()
        stopped, code = _watch(folder, seconds, deadline, start)
        at, broken = None, False
        for line in _lines(folder / "log"):
            if code == REFUSED and FENCE in start:  # no submission has run
                raise Refused(str((line or {}).get("refused")))
            broken = line is None
            if broken:
                break
            if line.get("answer") in left:
                answers[line["answer"]] = _answer(line, cells)
            elif isinstance(line.get("wrong"), dict):
                for cell, _ in cells:
                    said = line["wrong"].get(cell)
                    _complain(wrong, cell, _complaints(said, cell, cells) if isinstance(said, list) else [])
            at = line if "call" in line or "cell" in line else at
    if all(n in answers for n in left):
        return
    how = f"took longer than {seconds:g} s" if stopped else "ended the process"
    how = "wrote what is no answer" if broken and not stopped else how
    place = (at.get("cell"), at.get("statement")) if at else None
    if at and "call" in at and at["call"] in left and at["call"] not in answers:
        answers[at["call"]] = Failed(f"the call {how}")
        slow |= {calls[at["call"]][0]} if stopped else set()
    elif place and place not in skip and place[0] in [c for c, _ in cells] and isinstance(place[1], int):
        skip.add(place)
        _complain(wrong, place[0], [f"a statement of this cell {how}"])
    else:
        answers |= {n: Failed(f"the submission {how}") for n in left if n not in answers}


def _watch(folder, seconds, deadline, start):
    """Run the worker in `folder`: (whether it had to be stopped, its exit code)."""
    command = [*start, str(Path(worker.__file__).resolve()), str(folder)]
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "APPDATA", "USERPROFILE")
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= dict.fromkeys(threads, "1") | {"MPLBACKEND": "Agg"}
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    group = {"start_new_session": True} if os.name == "posix" else {}
    process = subprocess.Popen(command, cwd=folder, env=environment, **quiet, **group)
    stopped = False
    try:
        seen, since, looked = None, time.monotonic(), time.monotonic()
        while process.poll() is None and not stopped:
            now, size = time.monotonic(), _size([folder / "log"])
            if size != seen:
                seen, since = size, now
            if now - looked > 0.5:
                looked = now
                stopped = _size(folder.iterdir()) > DISK
            stopped |= now - since > (seconds if size else seconds + START) or now > deadline
            time.sleep(0 if stopped else 0.004)
    finally:
        _stop(process)  # also what it started and left behind
        process.wait()
    return stopped, process.returncode


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


def regular(path, most):
    """The regular file there, open, of at most `most` bytes; ValueError for anything else, links too.
    What may wait for ever when it is opened, as a pipe does, is not opened.
    """
    flags = (getattr(os, f"O_{name}", 0) for name in ("RDONLY", "NONBLOCK", "NOFOLLOW", "CLOEXEC", "BINARY"))
    about = os.lstat(path)
    if stat.S_ISREG(about.st_mode):
        file = open(os.open(path, sum(flags)), "rb")
        about = os.fstat(file.fileno())  # it may be another one by now
        if stat.S_ISREG(about.st_mode) and about.st_size <= most:
            return file
        file.close()
    raise ValueError(f"not a regular file of at most {most / 1e6:g} MB")


def _lines(path):
    """The dictionaries that the worker, or a student's code, wrote; then None if a line is no such thing."""
    try:
        file = regular(path, worker.FILE)
    except (OSError, ValueError):
        return
    with file:
        for line in islice(iter(lambda: file.readline(worker.LINE), b""), LINES):
            try:  # a line that is cut, or has more parts than a result, is not read
                parts = line.count(b"[") + line.count(b"{")
                found = json.loads(line) if line[-1:] == b"\n" and parts < 4 * worker.MOST else None
            except (ValueError, RecursionError):
                found = None
            known = isinstance(found, dict) and found.keys() & {"answer", "call", "cell", "wrong", "refused"}
            hash_of = [found.get(name) for name in ("answer", "call", "cell", "statement")] if known else [[]]
            if not all(isinstance(value, (int, str, type(None))) for value in hash_of):
                yield None
                return
            yield found


def _complaints(said, cell, cells):
    """The lines that the worker wrote of a cell, each with the line of the cell."""
    said = [found for found in said[: worker.COMPLAINTS] if isinstance(found, dict)]
    return [str(raised({**found, "cell": cell}, cells)) for found in said]


def _complain(wrong, cell, lines):
    """Each complaint once, in their order: a cell runs anew in each process."""
    if lines:
        wrong[cell] = list(dict.fromkeys([*wrong.get(cell, ()), *lines]))[: worker.COMPLAINTS]


def _answer(found, cells):
    """A result, or `Failed`."""
    if "raised" in found and isinstance(found["raised"], dict):
        return raised(found["raised"], cells)
    if "error" in found:
        known = found["error"] in (worker.NONE, worker.DEEP, worker.LARGE, worker.KIND)
        return Failed(str(found["error"])[: worker.LONGEST], None if known else "an error")
    try:
        result = worker.unpack(found["result"])
        return Kept(result, worker.unpack(found["kept"])) if "kept" in found else result
    except Exception as error:  # what a student's code wrote there may be anything
        return Failed(f"the result cannot be read: {type(error).__name__}")
