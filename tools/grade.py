"""Grade assignments without nbgrader: a table, a CSV, a page of feedback for each student.

    python -m tools.grade SUBMISSION.ipynb ... [--seed N] [--csv FILE] [--feedback FOLDER]
    python -m tools.grade release [NN ...] [--seed N] [--folder build/assignments]     what students get
    python -m tools.grade check [NN ...]              solutions get all points, wrong ones lose exactly theirs
    python -m tools.grade pack --teacher              solutions, wrong solutions and keys as one archive

A submission is recognised by its metadata, or by --assignment. Its functions run in a process of their own,
one call after the other, with limits of time and memory, and are compared here: see tools/grading/run.py.
"""

import argparse
import csv
import sys
import zipfile
from pathlib import Path

import nbformat

from tools.grading import assignment as source
from tools.grading.nbgrader import hidden_tests
from tools.grading.run import Failed, ask, difference

ROOT = Path(__file__).resolve().parent.parent
ASSIGNMENTS = ROOT / "notebooks" / "assignments"


# ---- one submission ----


def cells_of(about, nb):
    """(name, code) of what defines a student's functions: what is given, as we gave it, then the student's
    cells, in the order of the notebook. Not run: tests, given cells, and what looks at text, unchanged.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    ours = {name for name, _ in about.given} | {test.name for test in about.tests} | {"check"}
    looks = {cell.source.strip() for cell in about.nb.cells if source.role(cell)[0] == "text"}
    cells = list(about.given)
    for number, cell in enumerate(nb.cells):
        name = cell.metadata.get("nbgrader", {}).get("grade_id", f"cell {number}")
        if cell.cell_type == "code" and name not in ours and cell.source.strip() not in looks:
            cells.append((name, TransformerManager().transform_cell(cell.source)))
    return cells


def grade(about, nb, **limits):
    """{test: (points, one line for the student)}, and {cell: complaint} of cells that raised or hung."""
    calls = [call for test in about.tests for call in test.calls]
    answers, wrong = ask(cells_of(about, nb), [(call.function, call.arguments) for call in calls], **limits)
    said = [judge(call, answer) for call, answer in zip(calls, answers, strict=True)]
    marks, at = {}, 0
    for test in about.tests:
        lines = said[at : at + len(test.calls)]
        at += len(test.calls)
        bad = [line for line in lines if line]
        note = f"{len(lines) - len(bad)} of {len(lines)} calls right; {bad[0]}" if bad else ""
        marks[test.name] = (0.0 if bad else test.points, note)
    return marks, wrong


def judge(call, answer):
    """ "" if the answer is right, else why not."""
    if isinstance(answer, Failed):
        return f"{call.function}: {answer}"
    expected = call.expected
    if call.by is not None:
        try:
            expected, answer = call.by(expected), call.by(answer)
        except Exception as error:  # of a result of another kind
            return f"{call.function}: the result cannot be judged ({type(error).__name__})"
    found = difference(expected, answer, call.tol)
    return f"{call.function}: {found}" if found else ""


def recognise(nb, path, name=None):
    """The path of the source of a submission. ValueError if it is of none."""
    name = name or nb.metadata.get("crfbook", {}).get("assignment")
    if name is None:
        ids = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells}
        fits = {other: len(ids & source.load(other).asked) for other in source.sources()}
        best = max(fits, key=fits.get, default=None)
        if not best or not fits[best]:
            raise ValueError(f"{path}: of no assignment that we know; name it with --assignment NN")
        return best
    return source.sources([name])[0]


def seed_of(nb):
    """The seed that a submission names: its metadata, else its first `seed = N`; None if it has none."""
    seed = nb.metadata.get("crfbook", {}).get("seed")
    if seed is None:
        found = (source.SEED.search(cell.source) for cell in nb.cells if cell.cell_type == "code")
        seed = next((int(match[0].split("=")[1]) for match in found if match), None)
    return seed if type(seed) is int and 0 <= seed < 1 << 32 else None


def grade_files(paths, seed=None, name=None, **limits):
    """Rows of the table, one for each test of each submission, and {path: feedback}.

    seed : of the release; None: the one that a submission names, which its student can change
    """
    rows, pages, known = [], {}, {}
    for path in map(Path, paths):
        try:
            nb = nbformat.read(path, 4)
            of = recognise(nb, path, name)
        except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
            rows.append({"submission": path.stem, "assignment": "", "seed": "", "test": "", "points": 0.0, "of": 0.0,
                         "note": f"cannot be read: {str(error).splitlines()[0][:200]}"})  # fmt: skip
            continue
        named = seed_of(nb)
        used = seed if seed is not None else named or 0
        if seed is not None and named not in (None, seed):
            print(f"{path}: graded by seed {seed}, but it says seed {named}", file=sys.stderr)
        elif seed is None and named is None:
            print(f"{path}: names no seed, graded by seed 0; name it with --seed", file=sys.stderr)
        if (of, used) not in known:
            known[of, used] = source.load(of, used)
        about = known[of, used]
        marks, wrong = grade(about, nb, **limits)
        first = {"submission": path.stem, "assignment": about.name, "seed": used}
        most = {test.name: test.points for test in about.tests}
        rows += [{**first, "test": test, "points": points, "of": most[test], "note": note}
                 for test, (points, note) in marks.items()]  # fmt: skip
        rows += [{**first, "test": cell, "points": "", "of": points, "note": "by hand"}
                 for cell, points in about.by_hand.items()]  # fmt: skip
        pages[path] = feedback(about, marks, wrong)
    return rows, pages


def feedback(about, marks, wrong):
    """A page for the student, in Markdown: points, and why; no hidden test, no number of the solution."""
    lines = [f"# {about.name}", "", "| test | points | of | |", "|---|---|---|---|"]
    most = {test.name: test.points for test in about.tests}
    lines += [
        f"| {test} | {p:g} | {most[test]:g} | {note.replace('|', '/')} |" for test, (p, note) in marks.items()
    ]
    lines += [f"| {cell} | | {points:g} | read by a person |" for cell, points in about.by_hand.items()]
    total = sum(points for points, _ in marks.values())
    lines += ["", f"By the grader: {total:g} of {sum(most.values()):g} points."]
    lines += [f"\nCell `{cell}`: {said}" for cell, said in wrong.items()]
    return "\n".join(lines) + "\n"


def table(rows):
    """Points of each submission, test by test, as text."""
    lines = []
    for key in dict.fromkeys((row["submission"], row["assignment"]) for row in rows):
        mine = [row for row in rows if (row["submission"], row["assignment"]) == key]
        graded = [row for row in mine if row["points"] != ""]
        total, most = (sum(row[column] for row in graded) for column in ("points", "of"))
        lines.append(f"{key[0]:<32} {key[1]:<28} {total:5g} of {most:g}")
        lines += [f"    {row['test']:<28} {row['points']:5g} of {row['of']:g}  {row['note']}"
                  for row in graded if row["note"]]  # fmt: skip
    return "\n".join(lines)


# ---- releases ----


CHECKS = '''\
import numpy as np

def check(found, expected, tol=1e-5, where=""):
    """Say whether `found` is `expected`, to five digits: arrays as a whole, other containers item by item."""
    try:
        b = np.asarray(expected)
        whole = b.dtype.kind in "biufcU" and not isinstance(expected, (tuple, dict))
    except ValueError:  # lists of unequal lengths
        whole = False
    if isinstance(expected, dict):
        assert isinstance(found, dict), f"{where or 'this'} is a {type(found).__name__}, expected a dict"
        assert set(found) == set(expected), f"{where} keys {set(found)}, expected {set(expected)}"
        for key in expected:
            check(found[key], expected[key], tol, f"{where}[{key!r}]")
    elif whole or isinstance(expected, str) or expected is None:
        a, b = np.asarray(found), np.asarray(expected)
        assert a.shape == b.shape, f"{where} shape {a.shape}, expected {b.shape}"
        number = b.dtype.kind in "fc" and a.dtype.kind in "biufc"
        same = np.isclose(a, b, rtol=tol, atol=tol, equal_nan=True) if number else a == b
        assert np.all(same), f"{where} found\\n{a}\\nexpected\\n{b}"
    else:
        assert hasattr(found, "__len__"), f"{where} is {found}, expected {len(expected)} items"
        assert len(found) == len(expected), f"{where} {len(found)} items, expected {len(expected)}"
        for n, (one, other) in enumerate(zip(found, expected)):
            check(one, other, tol, f"{where}[{n}]")
    if not where:
        print("right")\
'''


def with_cells(about, rewrite):
    """A copy of the notebook, cells rewritten, without outputs; `check` comes first."""
    nb = nbformat.from_dict(about.nb)
    about_check = {
        "grade": False,
        "grade_id": "check",
        "locked": True,
        "schema_version": 3,
        "solution": False,
    }
    first = nbformat.v4.new_code_cell(CHECKS, metadata={"nbgrader": {**about_check, "task": False}})
    for cell in nb.cells:
        cell.source = rewrite(cell, *source.role(cell))
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nb.cells.insert(1, first)
    return nb


def release(path, seed, folder):
    """Write an assignment at one seed below `folder`; returns what students get.

    release/NAME/NAME.ipynb for students; solutions/NAME/NAME.ipynb, which nbgrader takes for its source.
    """
    about = source.load(path, seed)
    tests, hidden = {test.name: test for test in about.tests}, hidden_tests(about)

    def student(cell, kind, named):
        if kind == "solution" or kind == "manual" and cell.cell_type == "code":
            return source.without_solution(cell.source)
        if kind == "test":
            return source.shown(cell.source, tests[named["grade_id"]])
        return "*Your answer here.*" if kind == "manual" else cell.source

    def teacher(cell, kind, named):
        return hidden[named["grade_id"]] if kind == "test" else cell.source

    written = []
    for name, rewrite in (("solutions", teacher), ("release", student)):
        target = Path(folder) / name / about.name / f"{about.name}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(with_cells(about, rewrite), target)
        written.append(target)
    return written[-1]


# ---- wrong solutions ----


def wrong_solutions(name):
    """[(fault, {grade_id or function: code}, tests that must fail)] of notebooks/assignments/wrong/NN.py.

    Each begins with a line `# wrong: the fault | test, test` and is the code that stands in for the solution of
    the functions that it defines.
    """
    text = (ASSIGNMENTS / "wrong" / f"{name[:2]}.py").read_text(encoding="utf-8")
    for part in text.split("# wrong: ")[1:]:
        head, _, code = part.partition("\n")
        fault, _, tests = head.partition("|")
        yield fault.strip(), code, {test.strip() for test in tests.split(",")}


def with_code(about, code):
    """The solution's notebook with a last cell that defines some of its functions again."""
    nb = nbformat.from_dict(about.nb)
    return nbformat.v4.new_notebook(
        cells=[*nb.cells, nbformat.v4.new_code_cell(code)], metadata={"crfbook": about.nb.metadata["crfbook"]}
    )


def check(path, seed=0):
    """Lines that say what is wrong with an assignment; none if nothing is."""
    about = source.load(path, seed)
    marks, wrong = grade(about, about.nb)
    complaints = [
        f"{about.name}: its solution fails {test}: {note}" for test, (_, note) in marks.items() if note
    ]
    complaints += [f"{about.name}: its solution, cell {cell}: {said}" for cell, said in wrong.items()]
    for fault, code, tests in wrong_solutions(about.name):
        lost = {test for test, (_, note) in grade(about, with_code(about, code))[0].items() if note}
        if lost != tests:
            complaints.append(f"{about.name}, {fault}: fails {sorted(lost)}, should fail {sorted(tests)}")
    return complaints


def pack(target):
    """The teacher's archive: sources with solutions, wrong solutions, keys. Returns its path."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in ("source", "wrong", "keys"):
            for path in sorted((ASSIGNMENTS / folder).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(ASSIGNMENTS))
    return target


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tools.grade", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", metavar="SUBMISSION | release NN | check NN | pack")
    parser.add_argument("--seed", type=int, help="of the release (default 0; grading: what each submission names)")
    parser.add_argument("--assignment", help="number or name, where a submission does not say")
    parser.add_argument("--csv", help="write a row for each test there")
    parser.add_argument("--feedback", help="write a page for each submission into this folder")
    parser.add_argument("--folder", default=str(ROOT / "build" / "assignments"), help="of releases")
    parser.add_argument("--teacher", action="store_true", help="with pack: yes, with solutions")
    options = parser.parse_args(argv)
    command, *names = options.what
    if command == "release":
        for path in source.sources(names):
            print(release(path, options.seed or 0, options.folder))
        return 0
    if command == "check":
        complaints = [line for path in source.sources(names) for line in check(path, options.seed or 0)]
        print("\n".join(complaints) or "all solutions and wrong solutions get what they deserve")
        return int(bool(complaints))
    if command == "pack":
        if not options.teacher:
            parser.error("the archive holds solutions: say so with --teacher")
        print(pack(Path(options.folder) / "teacher.zip"))
        return 0
    rows, pages = grade_files(options.what, options.seed, options.assignment)
    print(table(rows))
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    for path, page in pages.items() if options.feedback else ():
        target = Path(options.feedback) / f"{path.stem}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
