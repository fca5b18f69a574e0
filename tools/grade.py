"""Grade assignments without nbgrader; keep the marks; read what a person reads; give pages back.

    python -m tools.grade FILE_OR_FOLDER ... [--seed N]  grade; the marks go into marks/marks.sqlite
    python -m tools.grade hand [NN ...] [--anonymous]    a page to mark by hand; or a table: --csv FILE writes
                                                         it, --read FILE reads it back
    python -m tools.grade export [NN ...]                what the marks hold: --csv FILE, --feedback FOLDER,
                                                         --moodle FILE, --canvas FILE, each [--roster FILE]
    python -m tools.grade release [NN ...] [--seed N]    what students get, solutions, a course for nbgrader
    python -m tools.grade check [NN ...] [--seed N]      solutions get all points, wrong ones lose theirs
    python -m tools.grade pack --teacher                 solutions, wrong solutions and keys as one archive

A submission is recognised by its metadata, its name or --assignment, its student by the name of its file or
folder (--by). Functions run in a process of their own, with limits of time and memory; what they return is
compared here. notebooks/assignments/README.md says more.
"""

import argparse
import sys
import warnings
from collections import Counter
from hashlib import sha256
from pathlib import Path

import nbformat

from tools.grading import assignment as source
from tools.grading import export, hand
from tools.grading.marks import Marks
from tools.grading.pile import answers, content, date, files, read, recognise, seed_in_cell, seed_of
from tools.grading.release import pack, release
from tools.grading.report import Result, table, write_feedback
from tools.grading.run import fence
from tools.grading.score import grade

ROOT = Path(__file__).resolve().parent.parent
MARKS = ROOT / "marks" / "marks.sqlite"


# ---- a pile of submissions ----


def grade_files(paths, seed=None, name=None, keep=None, by=None, **limits):
    """`Result` of each submission, handed to `keep` as soon as it is there. seed: of the release; None: what
    each names (a student can change it). by: what names students, as `files` has it.
    """
    known = {}

    def load(of, seed):
        if (of, seed) not in known:
            known[of, seed] = source.load(of, seed)
        return known[of, seed]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbformat's, on cells without ids
        pile = [opened(*pair, name) for pair in files(paths, by)]
        agreed = Counter(result.named for result, nb in pile if nb is not None)
        for result, nb in pile:
            if nb is not None:
                seeds(result, nb, seed, agreed)
                try:
                    about = load(result.of, result.seed)
                    result.marks, result.wrong = grade(about, nb, **limits)
                    result.answers, result.assignment = answers(about, nb), about.name
                except Exception as error:  # a pile does not end at a file that is none of ours
                    result.refuse(error)
            if keep:
                keep(result)
    return [result for result, _ in pile]


def opened(path, student, name):
    """(`Result`, its notebook, or None where it cannot be graded)."""
    result, nb = Result(path, student), None
    try:
        result.handed_in, data = date(path), str(path).encode(errors="replace")
        result.digest = sha256(data).hexdigest()  # of its place, where it cannot be read
        data = content(path)
        result.digest, nb = sha256(data).hexdigest(), read(data)
        result.of, result.named = recognise(nb, name, path), seed_of(nb)
    except Exception as error:
        result.refuse(error)
        nb = None
    return result, nb


def seeds(result, nb, seed, agreed):
    """The seed by which a submission is graded, and remarks on others that it or its neighbours name."""
    named, in_cell = result.named, seed_in_cell(nb)
    result.seed = seed if seed is not None else named or 0
    usual, votes = max(agreed.items(), key=lambda pair: (pair[1], pair[0] == named))
    if named is None and seed is None:
        result.remarks.append("names no seed: graded by seed 0; give it as --seed")
    elif named is not None and named != result.seed:
        result.remarks.append(f"graded by seed {seed}, but it says seed {named}")
    elif named is not None and in_cell not in (None, named):
        result.remarks.append(f"its cell says seed {in_cell}, its metadata seed {named}")
    elif seed is None and named != usual and 2 * votes > agreed.total():
        result.remarks.append(f"names seed {named}, most others seed {usual}: give the seed as --seed")


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
    names_of = [path.stem for path in source.sources(names)] if command in ("hand", "export") else []
    if command == "hand":
        return by_hand(options, names_of)
    if command == "export":
        if not options.marks.exists():
            raise ValueError(f"{options.marks}: no marks there yet")
        with Marks(options.marks) as marks:
            return export_all(options, marks, names_of)
    return grade_all(options)


def grade_all(options):
    """Grade a pile, merge it into the marks, print the table."""
    if options.assignment:
        source.sources([options.assignment])  # or say now that there is none
    files(options.what, options.by)  # or that there are no files
    print(fence()[1])
    with Marks(options.marks) as marks:
        waiting, graded = [], []

        def keep(result):
            """What cannot be graded waits until something can: a folder of other things leaves no trace."""
            graded.extend([True] * bool(result.assignment))
            waiting.append(result)
            while graded and waiting:
                waiting.pop(0).keep(marks)

        results = grade_files(options.what, options.seed, options.assignment, keep, options.by)
        print(table(results, marks.attempts()))
        if not graded:
            raise ValueError(f"nothing here could be graded: {', '.join(options.what)}")
        return export_all(options, marks, None)


def export_all(options, marks, names):
    """Write the tables and pages that the options name."""
    attempts = [
        one for one in marks.attempts() if names is None or not one.assignment or one.assignment in names
    ]
    tables = {"csv": export.overview, "moodle": export.moodle, "canvas": export.canvas}
    for kind, form in tables.items():
        place = getattr(options, kind)
        if not place:
            continue
        text, remarks = form(attempts, options.roster)
        kept = marks.write(place, text)
        print(*remarks, f"{place}: written", sep="\n")
        if kept:
            print(f"{place} had been changed since we wrote it: what was there is now {kept.name}")
    if options.feedback:
        write_feedback(options.feedback, attempts)
    return 0


def by_hand(options, names):
    """Serve the page, or write or read the table, of the questions of some assignments."""
    if not options.marks.exists():
        raise ValueError(f"{options.marks}: no marks there yet; grade the submissions first")
    with Marks(options.marks) as marks:
        if options.read:
            lines, ok = hand.read_table(marks, options.read)
            print("\n".join(lines))
            return 0 if ok else 1
        if options.csv:
            kept = marks.write(options.csv, hand.table(marks, names, options.anonymous))
            print(f"{options.csv}: written" + (f"; what was there is now {kept.name}" if kept else ""))
            return 0
        return hand.serve(marks, names, options.anonymous, options.port, not options.no_browser)


def main(argv=None):
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tools.grade", description=__doc__, formatter_class=form)
    what = "FILE_OR_FOLDER | hand | export | release | check | pack"
    parser.add_argument("what", nargs="+", metavar=what)
    parser.add_argument(
        "--seed", type=int, help="of the release (default: 0; grading: what a submission names)"
    )
    parser.add_argument("--assignment", help="its number or name, where submissions do not say it")
    parser.add_argument("--by", choices=("file", "folder"), help="what names the students (as it seems)")
    parser.add_argument("--marks", help="the file that keeps them (marks/marks.sqlite)")
    parser.add_argument("--csv", help="write a row for each submission of the marks there; hand: each answer")
    parser.add_argument("--moodle", help="write the grades and comments of one assignment for Moodle there")
    parser.add_argument("--canvas", help="write the grades for Canvas there")
    parser.add_argument("--roster", help="the table from Moodle or Canvas to fill in (a new file is written)")
    parser.add_argument("--feedback", help="write a page and a CSV for each student into this folder")
    parser.add_argument("--read", metavar="CSV", help="with hand: read points and comments from this table")
    parser.add_argument("--anonymous", action="store_true", help="with hand: no names")
    parser.add_argument("--port", type=int, default=0, help="with hand: of the page (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="with hand: print the address only")
    parser.add_argument("--folder", default=ROOT / "build" / "assignments", help="of releases and archives")
    parser.add_argument("--teacher", action="store_true", help="with pack: yes, with solutions")
    options = parser.parse_args(argv)
    options.marks = Path(options.marks or MARKS)
    try:
        return run(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    sys.exit(main())
