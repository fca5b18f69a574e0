"""What graders read: the table, the CSV, and for each student a page and a CSV that show no hidden test."""

import csv
import html
import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.grading.run import printable


@dataclass
class Result:
    """One submission, graded."""

    path: Path
    student: str
    assignment: str = ""
    seed: object = ""
    marks: dict = field(default_factory=dict)  # {test: Mark}
    by_hand: dict = field(default_factory=dict)  # {question: points}
    wrong: dict = field(default_factory=dict)  # {cell: complaint}
    remarks: list = field(default_factory=list)

    @property
    def points(self):
        return sum(mark.points for mark in self.marks.values())

    @property
    def most(self):
        return sum(mark.of for mark in self.marks.values())


@dataclass
class Mark:
    """A test: points, and why not all, for the teacher and for the student."""

    points: float
    of: float
    note: str = ""
    brief: str = ""


def table(results):
    """Points of each submission and, below, the tests that failed."""
    lines = []
    for result in results:
        of = f"{result.points:5g} of {result.most:g}" if result.assignment else "    - "
        more = f" + {sum(result.by_hand.values()):g} by hand" if result.by_hand else ""
        lines.append(f"{result.student:<28} {result.assignment:<26} {of}{more}")
        failed = [(test, mark) for test, mark in result.marks.items() if mark.note]
        lines += [f"    {test:<24} {mark.points:5g} of {mark.of:g}  {mark.note}" for test, mark in failed]
        lines += [f"    {remark}" for remark in result.remarks]
    return "\n".join(lines)


def plain(value):
    """A cell of a CSV: text that a spreadsheet would take for a formula is quoted."""
    return "'" + value if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def write_csv(path, rows):
    """Rows (dictionaries) with the columns of all of them."""
    columns = dict.fromkeys(name for row in rows for name in row)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8-sig") as out:
        writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: plain(value) for name, value in row.items()} for row in rows)


def overview(results):
    """Rows of the CSV: one for each submission, a column for each test; questions by hand are left empty."""
    for result in results:
        number = result.assignment[:2]
        tests = {f"{number} {test}": f"{mark.points:g}" for test, mark in result.marks.items()}
        whole = {"points": f"{result.points:g}", "of": f"{result.most:g}"} if result.assignment else {}
        first = {"student": result.student, "assignment": result.assignment, "seed": result.seed}
        asked = {f"{number} {name} (of {points:g}, by hand)": "" for name, points in result.by_hand.items()}
        remarks = {"remarks": "; ".join(result.remarks), "file": printable(result.path.as_posix())}
        yield first | {"points": "", "of": ""} | whole | remarks | tests | asked


STYLE = """\
body { font: 16px/1.5 sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse }
th, td { text-align: left; padding: .3em .8em; border-bottom: 1px solid #bbb }
"""


def for_student(result):
    """(rows of the CSV, page) of a student: points and why; no hidden test, no number of the solution, and
    nothing that the student's own code made of what it was handed.
    """
    rows = [{"test": test, "points": f"{mark.points:g}", "of": f"{mark.of:g}", "why": mark.brief}
            for test, mark in result.marks.items()]  # fmt: skip
    rows += [{"test": name, "points": "", "of": f"{points:g}", "why": "read by a person"}
             for name, points in result.by_hand.items()]  # fmt: skip
    cells = ["".join(f"<td>{html.escape(value)}</td>" for value in row.values()) for row in rows]
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    said = [f"<li>Cell <code>{html.escape(str(cell))}</code>: {html.escape(complaint)}</li>"
            for cell, complaint in result.wrong.items()]  # fmt: skip
    title = html.escape(f"{result.student}: {result.assignment}")
    page = f"""\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p>By the grader: <b>{result.points:g} of {result.most:g}</b> points. Seed of the release: {result.seed}.</p>
<table><tr><th>test</th><th>points</th><th>of</th><th>why not all</th></tr>
{body}</table>
{"<p>When its cells ran:</p><ul>" + "".join(said) + "</ul>" if said else ""}
</body></html>
"""
    return rows, page


def write_feedback(folder, results):
    """FOLDER/STUDENT/NN_name.html and .csv; a second file of a student for an assignment gets a number."""
    taken = set()
    for result in results:
        if not result.assignment:
            continue
        student = re.sub(r"[^\w .()-]", "_", result.student).strip(". ") or "unnamed"
        name, number = result.assignment, 1
        while (student.lower(), name) in taken:
            number += 1
            name = f"{result.assignment}_{number}"
        taken.add((student.lower(), name))
        rows, page = for_student(result)
        write_csv(Path(folder) / student / f"{name}.csv", rows)
        (Path(folder) / student / f"{name}.html").write_text(page, encoding="utf-8")
