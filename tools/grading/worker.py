"""What runs a student's code: `python worker.py FOLDER`, one process for as long as it lives.

It knows no answer. It reads definitions (cells) and calls from FOLDER, and writes what the calls returned
into FOLDER/log, one line of JSON each; tools/grading/run.py watches it and compares in another process.
Whatever the student's code patches, prints or breaks stays here. Only numpy is imported.
"""

import ast
import base64
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from types import GeneratorType

import numpy as np

# Kept under names of our own: a submission may patch those of numpy.
NDARRAY, SCALAR, asarray, dumps = np.ndarray, np.generic, np.asarray, json.dumps
LONGEST = 300  # characters of a complaint
DEEPEST, MOST, LARGEST = 8, 50_000, 8_000_000  # of a result: levels, parts, bytes of an array
FILE = 64_000_000  # bytes of a file that is written
LINE = 16_000_000  # bytes of an answer
CELL = "<cell> "  # and its name: the file that a traceback names
COMPLAINTS = 8  # of a cell
NONE = "there is no such function"
DEEP = "the result is nested too deeply"
LARGE = "the result is too large"
KIND = "the result is neither numbers nor text nor lists of them"
KEPT = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign,
    ast.AnnAssign, ast.AugAssign, ast.With, ast.If, ast.Try, ast.For, ast.While,
)  # fmt: skip


def statements(name, cell, trials=False):
    """Top-level statements of a cell that may define something, each compiled alone: calls and assertions
    at the top are a student's trials. With `trials` calls run, too. SyntaxError if it cannot be read.
    """
    for node in ast.parse(cell).body:
        call = trials and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if isinstance(node, KEPT) or call:
            yield compile(ast.Module([node], []), CELL + name, "exec")


def complaint(error):
    """The kind and the text of an error, and the student's cell and line where it was raised."""
    said = {"kind": type(error).__name__, "text": "", "cell": "", "line": 0}
    try:
        if isinstance(error, SyntaxError):
            return said | {"text": str(error.msg)[:LONGEST], "line": error.lineno or 0}
        frames = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in frames if frame.filename.startswith(CELL)]
        if frames:
            said |= {"cell": frames[-1].filename[len(CELL) :], "line": frames[-1].lineno}
        return said | {"text": str(error)[:LONGEST]}
    except BaseException:  # an error whose text raises another one
        return said


class Unfit(Exception):
    """A result that cannot be handed on."""


def pack(value, parts, depth=0):
    """A value as JSON; `Unfit` for what is neither numbers, text nor lists of them. parts: to count."""
    parts.append(None)
    if depth > DEEPEST:
        raise Unfit(DEEP)
    if len(parts) > MOST:
        raise Unfit(LARGE)
    if isinstance(value, SCALAR):
        value = value.item()
    if isinstance(value, (SCALAR, complex)):
        value = asarray(value)
    if isinstance(value, NDARRAY):
        value = asarray(value)
        if value.dtype.kind == "O":
            return pack(value.tolist(), parts, depth + 1)
        if value.dtype.kind not in "biufcU":
            raise Unfit(KIND)
        if value.nbytes > LARGEST:
            raise Unfit(LARGE)
        raw = base64.b64encode(value.tobytes()).decode("ascii")
        return {"array": raw, "dtype": value.dtype.str, "shape": value.shape}
    if value is None:
        return {"value": None, "kind": "None"}
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            text = repr(float(value)) if kind is float else kind(value)
            if (len(text) if kind in (float, str) else int(text).bit_length()) > 10_000:
                raise Unfit(LARGE)
            return {"value": text, "kind": kind.__name__}
    if isinstance(value, (list, tuple, GeneratorType, range, map, zip)):
        return {"list": [pack(item, parts, depth + 1) for item in value]}
    if isinstance(value, dict):
        pairs = value.items()
        return {"dict": [[pack(a, parts, depth + 1), pack(b, parts, depth + 1)] for a, b in pairs]}
    raise Unfit(KIND)


def unpack(found, lists=list):
    """What `pack` made; an error of some kind if it is no such thing."""
    if "array" in found:
        flat = np.frombuffer(base64.b64decode(found["array"]), np.dtype(str(found["dtype"])))
        return flat.reshape(found["shape"])
    if "list" in found:
        return lists(unpack(item, lists) for item in found["list"])
    if "dict" in found:
        return {unpack(key, tuple): unpack(item, lists) for key, item in found["dict"]}
    return float(found["value"]) if found["kind"] == "float" else found["value"]


# ---- limits ----

REFUSED = {
    "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.kill",
    "os.killpg", "subprocess.Popen", "pty.spawn", "socket.connect", "socket.bind", "socket.sendto",
    "socket.getaddrinfo", "os.symlink", "os.link", "sys.remote_exec",
}  # fmt: skip
CHANGES = {
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard(folder, readable):
    """From here on: no other process, no network, no change outside `folder`, nothing read outside of it but
    what lies below `readable` (Python and its packages). It stops a student's idea and names it; a list of
    events is never complete. Against intent stands tools/grading/fence.py, where the system allows it.
    """
    real, case, plain = os.path.realpath, os.path.normcase, os.fsdecode
    own = (case(real(folder)) + os.sep,)
    readable = own + tuple(case(real(place)) + os.sep for place in readable)
    null = case(real(os.devnull))

    def inside(path, places):
        place = case(real(plain(path)))
        return place == null or (place + os.sep).startswith(places)

    def hook(event, arguments):
        if event in REFUSED:
            raise PermissionError(f"a submission may not use {event}")
        if event == "open" and not isinstance(arguments[0], int):
            path, _, flags = arguments
            if path is not None and not inside(path, own if flags & WRITES else readable):
                raise PermissionError("a submission may not open this file")
        if event in CHANGES:
            for path in arguments[: 2 if event == "os.rename" else 1]:
                if not isinstance(path, int) and not inside(path, own):
                    raise PermissionError("a submission may not change this file")

    sys.addaudithook(hook)


def limit(memory):
    """Bytes of address space and of a file that is written. Where the system has no such limits, none."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            pass


# ---- definitions and calls ----


def define(cells, skip, note, namespace, trials=False):
    """Run what the cells define. Before each statement its place is written down: who reads it after a crash
    knows what to skip. Returns {cell: complaints} of those that raised.
    """
    wrong = {}
    for name, cell in cells:
        try:
            parts = list(statements(name, cell, trials))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            wrong[name] = [complaint(error)]
            continue
        for number, part in enumerate(parts):
            if (name, number) in skip:
                continue
            note(dumps({"cell": name, "statement": number}))
            try:
                exec(part, namespace)
            except BaseException as error:  # SystemExit too
                wrong[name] = [*wrong.get(name, ()), complaint(error)][:COMPLAINTS]
    return wrong


def build_on(code, names, namespace):
    """Put our functions of these names into the namespace: what another function builds on."""
    ours = {"__name__": "ours"}
    exec(compile(code, "<ours>", "exec"), ours)
    namespace |= {name: ours[name] for name in names}


def answer(number, name, arguments, keeps, namespace):
    """A line of JSON: what a call returned, and left in the arguments that it should keep; or why not."""
    try:
        function = namespace.get(name)
        if not callable(function):
            return dumps({"answer": number, "error": NONE})
        result, parts = function(*arguments), []
        line = {"answer": number, "result": pack(result, parts)}
        if keeps:
            line["kept"] = pack([arguments[place] for place in keeps], parts)
        line = dumps(line)
        if len(line) >= LINE:
            raise Unfit(LARGE)
        return line
    except Unfit as error:
        return dumps({"answer": number, "error": str(error)})
    except BaseException as error:
        return dumps({"answer": number, "raised": complaint(error)})


def main(folder):
    """Define, then answer the calls in their order."""
    folder, end = Path(folder).resolve(), os._exit
    task = pickle.loads((folder / "task").read_bytes())
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP", "MPLCONFIGDIR"), str(folder)))
    with open(folder / "log", "ab", buffering=0) as log:

        def note(line, write=log.write):
            write(line.encode() + b"\n")

        limit(task["memory"])
        if task["hook"]:
            guard(folder, task["readable"])
        namespace = {"__name__": "submission"}
        note(dumps({"wrong": define(task["cells"], task["skip"], note, namespace, task["trials"])}))
        if task["ours"]:
            build_on(*task["ours"], namespace)
        for number, name, arguments, keeps in task["calls"]:
            note(dumps({"call": number}))
            note(answer(number, name, arguments, keeps, namespace))
        end(0)  # whatever still runs in a thread


if __name__ == "__main__":
    main(sys.argv[1])
