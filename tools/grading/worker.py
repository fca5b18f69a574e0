"""What runs a student's code: `python -I worker.py FOLDER`, one process for as long as it lives.

It knows no answer. It reads definitions (cells) and calls from FOLDER, and writes back what the calls returned,
as JSON whose arrays are .npy files; tools/grading/run.py watches it and compares in another process. Whatever
the student's code patches, prints or breaks stays here. Written without the project: only numpy is imported.
"""

import ast
import json
import sys
import traceback
import types
from pathlib import Path

import numpy as np

LONGEST = 300  # characters of a complaint
KEPT = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign,
    ast.AnnAssign, ast.AugAssign, ast.With, ast.If, ast.Try,
)  # fmt: skip


def statements(cell):
    """Top-level statements of a cell that may define something, each compiled alone: calls, loops and
    assertions at the top are a student's trials. SyntaxError if it cannot be read.
    """
    for node in ast.parse(cell).body:
        if isinstance(node, KEPT):
            yield compile(ast.Module([node], []), "<cell>", "exec")


def complaint(error):
    """One line: the kind of the error, what it says, the student's line where it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<cell>"]
    where = f" (line {frames[-1].lineno} of its cell)" if frames else ""
    return f"{type(error).__name__}: {error}{where}"[:LONGEST]


def pack(value, folder, arrays, depth=0):
    """A value as JSON, its arrays beside; TypeError for what is neither numbers, text nor containers of them."""
    if depth > 8:
        raise TypeError("the result is nested too deeply")
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufcU":
            raise TypeError(f"the result has an array of dtype {value.dtype}, expected numbers or text")
        name = f"{folder.name}_{len(arrays)}.npy"
        np.save(folder.parent / name, np.asarray(value, order="C"), allow_pickle=False)
        arrays.append(name)
        return {"array": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": repr(value) if isinstance(value, float) else value, "kind": type(value).__name__}
    if isinstance(value, complex):
        return pack(np.asarray(value), folder, arrays)
    if isinstance(value, types.GeneratorType):
        value = list(value)
    if isinstance(value, (list, tuple)):
        return {"list": [pack(item, folder, arrays, depth + 1) for item in value]}
    if isinstance(value, dict):
        pairs = [[pack(key, folder, arrays, depth + 1), pack(item, folder, arrays, depth + 1)]
                 for key, item in value.items()]  # fmt: skip
        return {"dict": pairs}
    raise TypeError(
        f"the result is a {type(value).__name__}, expected numbers, text, arrays or lists of them"
    )


def unpack(found, folder, lists=list):
    """What `pack` wrote. Arrays are read without pickle; ValueError, KeyError or OSError if it is no such thing."""
    if "array" in found:
        return np.load(folder / Path(found["array"]).name, allow_pickle=False)
    if "list" in found:
        return lists(unpack(item, folder, lists) for item in found["list"])
    if "dict" in found:
        return {unpack(key, folder, tuple): unpack(item, folder, lists) for key, item in found["dict"]}
    return float(found["value"]) if found["kind"] == "float" else found["value"]


def write(path, found):
    """At once: a reader sees all of it or nothing."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(found), encoding="utf-8")
    draft.replace(path)


def limit(memory):
    """Bytes of address space; files of at most 64 MB. Where the system has no such limits, none."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 64_000_000)):
        resource.setrlimit(kind, (most, most))


def define(cells, skip, folder, namespace):
    """Run what the cells define. Before each statement its place is written down: who reads it after a crash
    knows what to skip. Returns {cell: complaint} of those that raised.
    """
    wrong = {}
    for name, cell in cells:
        try:
            parts = list(statements(cell))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            wrong[name] = f"SyntaxError: {error}"[:LONGEST]
            continue
        for number, part in enumerate(parts):
            if [name, number] in skip:
                continue
            (folder / "at").write_text(json.dumps([name, number]), encoding="utf-8")
            try:
                exec(part, namespace)
            except BaseException as error:  # SystemExit too
                wrong[name] = complaint(error)
    (folder / "at").unlink(missing_ok=True)
    return wrong


def answer(call, folder, namespace):
    """{"result": ...} of one call, or {"error": one line}."""
    try:
        arguments = unpack(call["arguments"], folder)
        function = namespace.get(call["function"])
        if not callable(function):
            return {"error": f"there is no function {call['function']}"}
        arrays = []
        return {"result": pack(function(*arguments), folder / f"out{call['number']}", arrays)}
    except BaseException as error:
        return {"error": complaint(error)}


def main(folder):
    """Define, then answer the calls in their order, each in a file of its own."""
    folder = Path(folder)
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    limit(task["memory"])
    namespace = {"__name__": "submission"}
    wrong = define(task["cells"], task["skip"], folder, namespace)
    write(folder / "defined.json", wrong)
    for call in task["calls"]:
        (folder / "at").write_text(json.dumps(call["number"]), encoding="utf-8")
        write(folder / f"answer{call['number']}.json", answer(call, folder, namespace))
    write(folder / "done.json", True)


if __name__ == "__main__":
    main(sys.argv[1])
