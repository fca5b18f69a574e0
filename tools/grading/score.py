"""Points of one submission: its functions run in a process of their own, their answers are compared here."""

import ast
import contextlib
import re
import warnings

import numpy as np

from tools.grading import assignment as source
from tools.grading.compare import difference
from tools.grading.complaints import NOT_DONE, Failed, printable
from tools.grading.marks import Mark
from tools.grading.run import Kept, ask

MAGIC = re.compile(r"^[ \t]*[%!?,;/]|\?[ \t]*$|=[ \t]*[%!]", re.M)
EFFORT = 1_000_000  # characters of a submission that IPython reads: each once, and for each magic of its cell


def cells_of(about, nb):
    """(name, code) of what defines a student's functions: what is given, as we gave it, then the student's
    cells, in the order of the notebook. Not run: tests, given cells, and what looks at text, unchanged.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    ours = {name for name, _ in about.given} | {test.name for test in about.tests} | {"check"}
    looks = {cell.source.strip() for cell in about.nb.cells if source.role(cell)[0] == "text"}
    cells, effort = list(about.given), EFFORT
    for number, cell in enumerate(nb.cells):
        if cell.cell_type != "code" or cell.source.strip() in looks:
            continue
        name = source.role(cell)[1].get("grade_id")
        if name in ours:  # once: a copy of such a cell may hold something else
            ours.remove(name)
            continue
        code = cell.source  # as it is, where it cannot be read
        cost = len(code) * (1 + len(MAGIC.findall(code)))
        if cost <= effort:
            effort -= cost
            with contextlib.suppress(SyntaxError, RuntimeError, UnicodeError):
                code = TransformerManager().transform_cell(code)
        cells.append((f"{printable(name or 'cell')} [{number}]", code))
    return cells


def grade(about, nb, **limits):
    """({test: Mark}, {cell: complaints}) of a submission; the complaints of cells that raised or hung.

    All functions are asked in one process. Those that fail are asked again, each in one of its own: what
    another one patches, changes or forges there does not count.
    """
    calls, cells = [call for test in about.tests for call in test.calls], cells_of(about, nb)
    asked = [(call.function, call.arguments, call.keeps) for call in calls]
    answers, wrong = ask(cells, asked, **limits)
    said = [judge(call, answer) for call, answer in zip(calls, answers, strict=True)]
    functions = {name: [n for n, call in enumerate(calls) if call.function == name] for name, *_ in asked}
    remarks = {}
    for name, mine in functions.items():
        for options, remark in chances(name, functions, about, cells):
            failed = [said[n] for n in mine if said[n]]
            if not failed or all(brief == f"{name}: {NOT_DONE}" for _, brief in failed):
                break
            again, _ = ask(cells, [asked[n] for n in mine], **limits | options)
            now = [judge(calls[n], answer) for n, answer in zip(mine, again, strict=True)]
            if remark and sum(map(bool, now)) >= len(failed):
                continue
            for n, line in zip(mine, now, strict=True):
                said[n] = line
            remarks[name] = remark
    marks, at = {}, 0
    for test in about.tests:
        lines = said[at : at + len(test.calls)]
        at += len(test.calls)
        mark = marks[test.name] = points(test, lines)
        told = {remarks.get(call.function) for call in test.calls} - {None, ""}
        mark.brief = "; ".join([*filter(None, [mark.brief]), *sorted(told)])
    return marks, wrong


def chances(name, functions, about, cells):
    """(options of `ask`, what is told of it) of further runs that a function which failed gets: alone; with
    calls at the top of the student's cells that may change something; on ours of what it builds on.
    """
    nodes = [node for cell in cells[len(about.given) :] for node in top(cell)]
    uses = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            uses.setdefault(node.name, set()).update(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    if len(functions) > 1:
        yield {}, ""
    called = [
        node.value.func for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    helpers = set(uses) - set(functions)
    if any(f.id in helpers if isinstance(f, ast.Name) else not drawing(f) for f in called):
        yield {"trials": True}, "right with the calls at the top of cells"
    needs, new = set(), {name}
    while new:
        needs |= new
        new = set().union(*(uses.get(one, set()) for one in new)) - needs
    others = sorted((needs & set(functions)) - {name})
    if others:
        names = ", ".join(f"`{one}`" for one in others)
        yield {"ours": (about.code, others)}, f"with our {names} in place of yours"


def drawing(node):
    """Whether what is called belongs to a figure."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id.startswith(("plt", "ax", "fig", "left", "right"))


def top(cell):
    """The statements of a cell; none if it cannot be read."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(cell[1]).body
    return []


def points(test, said):
    """`Mark` of a test, by what is said of each call. Where all ordinary calls are right, half of the points
    are safe, and each further kind of calls has an equal share of the others; where one is wrong, none is.
    """
    kinds = {"": []}
    for call, line in zip(test.calls, said, strict=True):
        kinds.setdefault(call.kind, []).append(line)
    if not any(said):
        return Mark(test.points, test.points)
    further = [not any(lines) for kind, lines in kinds.items() if kind]
    share = 0.0 if any(kinds[""]) or not further else (1 + sum(further) / len(further)) / 2
    right = f"{said.count(None)} of {len(said)} calls right; "
    notes = []
    for which in (0, 1):  # for the teacher, for the student
        found = {
            kind: next(line[which] for line in lines if line) for kind, lines in kinds.items() if any(lines)
        }
        if len(set(found.values())) == 1 and not any(line is None for line in said):
            notes.append(right + next(iter(found.values())))
            continue
        counts = {kind: f"{kind} ({kinds[kind].count(None)} of {len(kinds[kind])} right)" for kind in found}
        if "" in found:  # a rule that is wrong shows in all kinds
            first = found.pop("")
            others = ", ".join(counts[kind] for kind in found)
            parts = [first, f"also wrong: {others}"] if found else [first]
        else:
            parts = [f"{counts[kind]}: {text}" for kind, text in found.items()]
        notes.append(right + "; ".join(parts))
    return Mark(round(share * test.points, 2), test.points, *notes)


def judge(call, answer):
    """None if the answer is right, else why not: (for the teacher, for the student)."""
    if isinstance(answer, Failed):
        return f"{call.function}: {answer}", f"{call.function}: {answer.brief()}"
    expected, kept = call.expected, None
    if call.keeps and isinstance(answer, Kept):
        answer, kept = answer
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if call.by is not None:
                expected, answer = call.by(expected), call.by(answer)
            found = difference(expected, answer, call.tol)
            if call.keeps and not found:
                found = changed(call, kept)
        except Exception as error:  # of a result of another kind
            found = f"the result cannot be judged ({type(error).__name__})"
    return (f"{call.function}: {found}",) * 2 if found else None


def changed(call, kept):
    """Which of the arguments that a function should keep is not what the solution leaves there."""
    for place, left, found in zip(call.keeps, call.left, kept, strict=True):
        if difference(left, found, call.tol):
            keeps = not difference(left, call.arguments[place], call.tol)
            return (
                f"argument {place + 1} is {'changed by' if keeps else 'not as it should be after'} the call"
            )
    return ""
