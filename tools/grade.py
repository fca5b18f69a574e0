"""Grade assignments without nbgrader: a table, a CSV, a page of feedback for each student.

    python -m tools.grade FILE_OR_FOLDER ... [--seed N] [--csv FILE] [--feedback FOLDER]
    python -m tools.grade release [NN ...] [--seed N]    what students get, solutions, a course for nbgrader
    python -m tools.grade check [NN ...] [--seed N]      solutions get all points, wrong ones lose theirs
    python -m tools.grade pack --teacher                 solutions, wrong solutions and keys as one archive

A submission is recognised by its metadata or by --assignment, its student by the name of its file or folder.
Functions run in a process of their own, with limits of time and memory; what they return is compared here.
notebooks/assignments/README.md says more.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import warnings
from functools import cache
from itertools import islice
from pathlib import Path

import nbformat
import numpy as np

from tools.grading import assignment as source
from tools.grading.compare import difference
from tools.grading.release import pack, release
from tools.grading.report import Mark, Result, overview, table, write_csv, write_feedback
from tools.grading.run import Failed, ask, fence, printable, regular

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 20_000_000  # bytes of a notebook
WRITTEN = 2_000_000, 2000  # characters without outputs and pasted pictures; cells
LEVELS, ENTRIES = 20, 100_000  # of folders below one that is graded; of files in each of those
MAGIC = re.compile(r"^[ \t]*[%!?,;/]|\?[ \t]*$|=[ \t]*[%!]", re.M)
EFFORT = 1_000_000  # characters of a submission that IPython reads: each once, and for each magic of its cell


# ---- one submission ----


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
    """({test: Mark}, {cell: complaint}) of a submission; the complaints of cells that raised or hung.

    All functions are asked in one process. Those that fail are asked again, each in one of its own: what
    another one patches, changes or forges there does not count.
    """
    calls, cells = [call for test in about.tests for call in test.calls], cells_of(about, nb)
    asked = [(call.function, call.arguments) for call in calls]
    answers, wrong = ask(cells, asked, **limits)
    said = [judge(call, answer) for call, answer in zip(calls, answers, strict=True)]
    functions = {name: [n for n, call in enumerate(calls) if call.function == name] for name, _ in asked}
    for mine in functions.values() if len(functions) > 1 else ():
        if any(said[n] for n in mine):
            alone, _ = ask(cells, [asked[n] for n in mine], **limits)
            said_alone = (judge(calls[n], answer) for n, answer in zip(mine, alone, strict=True))
            said = [next(said_alone) if n in mine else line for n, line in enumerate(said)]
    marks, at = {}, 0
    for test in about.tests:
        lines = said[at : at + len(test.calls)]
        at += len(test.calls)
        bad = [pair for pair in lines if pair]
        right = f"{len(lines) - len(bad)} of {len(lines)} calls right; "
        notes = [right + text for text in bad[0]] if bad else ["", ""]
        marks[test.name] = Mark(0.0 if bad else test.points, test.points, *notes)
    return marks, wrong


def judge(call, answer):
    """None if the answer is right, else why not: (for the teacher, for the student)."""
    if isinstance(answer, Failed):
        return f"{call.function}: {answer}", f"{call.function}: {answer.brief()}"
    expected = call.expected
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if call.by is not None:
                expected, answer = call.by(expected), call.by(answer)
            found = difference(expected, answer, call.tol)
        except Exception as error:  # of a result of another kind
            found = f"the result cannot be judged ({type(error).__name__})"
    return (f"{call.function}: {found}",) * 2 if found else None


def recognise(nb, name=None):
    """The path of the source of a submission. ValueError if it is of none."""
    known = {path.stem: path for path in source.sources()}
    said = source.sources([name])[0].stem if name else str(about_it(nb).get("assignment"))
    if said in known:
        return known[said]
    ids = {source.role(cell)[1].get("grade_id") for cell in nb.cells}
    fits = {path: len(ids & asked(path)) for path in known.values()}
    best = max(fits, key=fits.get, default=None)
    if not best or not fits[best]:
        raise ValueError("of no assignment that we know; name it with --assignment NN")
    return best


@cache
def asked(path):
    """The grade_ids of the cells that students write."""
    roles = map(source.role, nbformat.read(path, 4).cells)
    return {named["grade_id"] for kind, named in roles if kind == "solution"}


def about_it(nb):
    found = nb.metadata.get("crfbook")
    return found if isinstance(found, dict) else {}


def seed_of(nb):
    """The seed that a submission names: its metadata, else its first `seed = N`; None if it has none."""
    seed = about_it(nb).get("seed")
    if seed is None:
        found = (source.SEED.search(cell.source) for cell in nb.cells if cell.cell_type == "code")
        seed = next((int(match[0].split("=")[1]) for match in found if match), None)
    return seed if type(seed) is int and 0 <= seed < 1 << 32 else None


# ---- a pile of them ----


def files(paths):
    """[(file, student)] of files and folders. A student is named by the file, or, where that has the name of
    an assignment, by the folder: ann.ipynb, 02_name_ann.ipynb, ann/02_name.ipynb, ann/02_name/02_name.ipynb.
    """
    names, found = [path.stem for path in source.sources()], []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = list(notebooks(path))
        if not inside:
            raise ValueError(f"{path}: no notebook in this folder")
        found += inside
    return [(path, printable(student(path.absolute(), names))) for path in found]


def notebooks(folder, levels=LEVELS, left=None):
    """Files called *.ipynb in a folder, in order; links to folders are not followed. A folder that cannot be
    read, or is too deep or too full, stands there itself: it does not keep others from being read.
    """
    left = left or [ENTRIES]  # counts down
    try:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, left[0] + 1), key=lambda entry: entry.name)
    except OSError:
        entries, levels = [], 0
    left[0] -= len(entries)
    if levels == 0 or left[0] < 0:
        yield Path(folder)
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != ".ipynb_checkpoints":
                yield from notebooks(entry.path, levels - 1, left if levels < LEVELS else None)
        elif entry.name.endswith(".ipynb"):
            yield Path(entry.path)


def read(path):
    """The notebook in a file. ValueError for what is none, or is too large."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise ValueError(f"a folder that cannot be read: {LEVELS} levels and {ENTRIES:,} files are the most")
    with regular(path, LARGEST) as file:
        nb = json.loads(file.read(LARGEST + 1))
    try:
        sheets = nb.get("worksheets") or [nb]  # of an old form
        cells = [cell for sheet in sheets for cell in sheet.get("cells", [])]
        for cell in cells:
            cell.pop("attachments", None)
            if "outputs" in cell:
                cell["outputs"] = []
    except (AttributeError, TypeError):
        raise ValueError("not a notebook") from None
    text = json.dumps(nb)
    if len(text) > WRITTEN[0] or len(cells) > WRITTEN[1]:
        raise ValueError("more than {:,} characters or {:,} cells".format(*WRITTEN))
    return nbformat.reads(text, 4)


def student(path, names):
    for part in (path.stem, *(folder.name for folder in path.parents)):
        for name in names:
            part = part.replace(name, "")
        part = re.sub(r" ?\(\d+\)$|-Copy\d+$|_\d+_assignsubmission_file_?$", "", part).strip("_- .")
        if part:
            return part
    return path.stem


def grade_files(paths, seed=None, name=None, **limits):
    """`Result` of each submission. seed: of the release; None: what each names (a student can change it)."""
    known = {}

    def one(pair):
        result = Result(*pair)
        try:
            nb = read(result.path)
            of, named = recognise(nb, name), seed_of(nb)
            result.seed = seed if seed is not None else named or 0
            if named is None and seed is None:
                result.remarks.append("names no seed: graded by seed 0; give it as --seed")
            elif named != result.seed and named is not None:
                result.remarks.append(f"graded by seed {seed}, but it says seed {named}")
            if (of, result.seed) not in known:
                known[of, result.seed] = source.load(of, result.seed)
            about = known[of, result.seed]
            result.marks, result.wrong = grade(about, nb, **limits)
            result.assignment, result.by_hand = about.name, about.by_hand
        except Exception as error:  # a pile does not end at a file that is none of ours
            said = printable((str(error).splitlines() or [""])[0][:160])
            result.remarks.append(f"cannot be graded: {said or type(error).__name__}")
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbformat's, on cells without ids
        return [one(pair) for pair in files(paths)]


# ---- wrong solutions ----


def wrong_solutions(name):
    """(fault, code, tests that must fail) of each wrong solution in notebooks/assignments/wrong/NN.py.

    Each begins with a line `# wrong: the fault | test, test`; its code stands in for the solution of the
    functions that it defines.
    """
    text = (source.SOURCE.parent / "wrong" / f"{name[:2]}.py").read_text(encoding="utf-8")
    for part in text.split("# wrong: ")[1:]:
        head, _, code = part.partition("\n")
        fault, _, tests = head.partition("|")
        yield fault.strip(), code, {test.strip() for test in tests.split(",")}


def with_code(about, code):
    """The solution's notebook with a last cell that defines some of its functions again."""
    return nbformat.v4.new_notebook(cells=[*about.nb.cells, nbformat.v4.new_code_cell(code)])


def check(path, seed=0):
    """Lines that say what is wrong with an assignment; none if nothing is."""
    about = source.load(path, seed)
    marks, wrong = grade(about, about.nb)
    complaints = [
        f"{about.name}: its solution fails {t}: {mark.note}" for t, mark in marks.items() if mark.note
    ]
    complaints += [f"{about.name}: its solution, cell {cell}: {said}" for cell, said in wrong.items()]
    for fault, code, tests in wrong_solutions(about.name):
        lost = {test for test, mark in grade(about, with_code(about, code))[0].items() if mark.note}
        if lost != tests:
            complaints.append(f"{about.name}, {fault}: fails {sorted(lost)}, should fail {sorted(tests)}")
    return complaints


# ---- the command ----


def run(options):
    command, *names = options.what
    if command == "release":
        for path in source.sources(names):
            print(release(path, options.seed or 0, options.folder))
        return 0
    if command == "check":
        print(fence()[1])
        complaints = [line for path in source.sources(names) for line in check(path, options.seed or 0)]
        print("\n".join(complaints) or "all solutions and wrong solutions get what they deserve")
        return int(bool(complaints))
    if command == "pack":
        if not options.teacher:
            raise ValueError("the archive holds solutions: say so with --teacher")
        print(pack(options.folder, options.seed or 0))
        return 0
    if options.assignment:
        source.sources([options.assignment])  # or say now that there is none
    print(fence()[1])
    results = grade_files(options.what, options.seed, options.assignment)
    print(table(results))
    if options.csv:
        write_csv(options.csv, list(overview(results)))
    if options.feedback:
        write_feedback(options.feedback, results)
    return 0


def main(argv=None):
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tools.grade", description=__doc__, formatter_class=form)
    parser.add_argument("what", nargs="+", metavar="FILE_OR_FOLDER | release | check | pack")
    parser.add_argument(
        "--seed", type=int, help="of the release (default: 0; grading: what a submission names)"
    )
    parser.add_argument("--assignment", help="its number or name, where submissions do not say it")
    parser.add_argument("--csv", help="write a row for each submission there")
    parser.add_argument("--feedback", help="write a page and a CSV for each student into this folder")
    parser.add_argument("--folder", default=ROOT / "build" / "assignments", help="of releases and archives")
    parser.add_argument("--teacher", action="store_true", help="with pack: yes, with solutions")
    options = parser.parse_args(argv)
    try:
        return run(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    sys.exit(main())
