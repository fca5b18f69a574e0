"""What graders read on the screen, and for each student a page and a CSV that show no hidden test."""

import html
import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.grading.complaints import printable
from tools.grading.marks import replace, rounded
from tools.grading.tables import written


@dataclass
class Result:
    """One submission, graded."""

    path: Path
    student: str
    assignment: str = ""
    seed: object = None
    marks: dict = field(default_factory=dict)  # {test: Mark}
    answers: dict = field(default_factory=dict)  # {question: (points at most, text)}
    wrong: dict = field(default_factory=dict)  # {cell: complaints}
    remarks: list = field(default_factory=list)
    digest: str = ""
    handed_in: str = ""
    of: object = None  # the source of its assignment
    named: object = None  # the seed that it names

    @property
    def points(self):
        return sum(mark.points for mark in self.marks.values())

    @property
    def most(self):
        return sum(mark.of for mark in self.marks.values())

    def refuse(self, error):
        said = printable((str(error).splitlines() or [""])[0][:160])
        self.remarks.append(f"cannot be graded: {said or type(error).__name__}")

    def keep(self, marks):
        """Merge it into the marks."""
        about = {name: getattr(self, name) for name in ("seed", "remarks", "wrong", "marks", "answers")}
        file = printable(self.path.as_posix())
        marks.keep(self.student, self.assignment, self.digest, self.handed_in, file=file, **about)


def total(attempt):
    """All points of an attempt, of how many, and what is not yet read."""
    points, most = attempt.points + attempt.by_hand, attempt.most + attempt.most_by_hand
    left = f", {len(attempt.open)} not yet read" if attempt.open else ""
    return f"{rounded(points)} of {rounded(most)}{left}"


def table(results, attempts=()):
    """Points of each submission; below, the tests that failed, why, and what its student is told of it."""
    known, lines = {}, []
    for attempt in attempts:
        known.setdefault((attempt.student, attempt.assignment), []).append(attempt)
    for result in results:
        of = f"{rounded(result.points):>5} of {result.most:g}" if result.assignment else "    - "
        more = f" + {sum(most for most, _ in result.answers.values()):g} by hand" if result.answers else ""
        lines.append(f"{result.student:<28} {result.assignment:<26} {of}{more}")
        for test, mark in result.marks.items():
            if mark.note:
                lines.append(f"    {test:<24} {rounded(mark.points):>5} of {mark.of:g}  {mark.note}")
            if mark.brief != mark.note:
                lines.append(f"    {'':<24} the student reads: {mark.brief}")
        lines += [f"    cell {cell}: {said}" for cell, all_ in result.wrong.items() for said in all_]
        lines += [f"    {remark}" for remark in result.remarks]
        own = known.get((result.student, result.assignment), ())
        if len(own) > 1:
            lines.append(f"    {len(own)} attempts are in the marks; the last one counts")
        lines += [f"    with what a person gave: {total(one)}" for one in own if one.counts and one.given]
    return "\n".join(lines)


RULE = (
    "A test whose ordinary calls are not all right has no points. Where it has further kinds of calls, these "
    "share half of its points."
)
STYLE = """\
body { font: 16px/1.5 sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse }
th, td { text-align: left; padding: .3em .8em; border-bottom: 1px solid #bbb }
"""


def for_student(attempt):
    """(rows of the CSV, page) of a student: points and why; no hidden test, no number of the solution, and
    nothing that the student's own code made of what it was handed.
    """
    rows, given = [], attempt.given
    for test, mark in attempt.marks.items():
        by_a_person = given.get(test)
        why = "; ".join(filter(None, (mark.brief, by_a_person and f"by a person: {by_a_person.comment}")))
        of = rounded(by_a_person.points if by_a_person else mark.points)
        rows.append({"test": test, "points": of, "of": rounded(mark.of), "why": why})
    for name, (most, _) in attempt.answers.items():
        points = rounded(given[name].points) if name in given else ""
        why = given[name].comment if name in given else "not yet read by a person"
        rows.append({"test": name, "points": points, "of": rounded(most), "why": why})
    cells = ["".join(f"<td>{lines(value)}</td>" for value in row.values()) for row in rows]
    said = [f"<li>Cell <code>{html.escape(cell)}</code>: {html.escape(one)}</li>"
            for cell, complaints in attempt.wrong.items() for one in complaints]  # fmt: skip
    title = html.escape(f"{attempt.student}: {attempt.assignment or 'a file that cannot be graded'}")
    parts = [f"<p>{html.escape(remark)}</p>" for remark in attempt.remarks]
    if attempt.assignment:
        by_hand = f" By a person: <b>{rounded(attempt.by_hand)} of {rounded(attempt.most_by_hand)}</b>"
        by_hand += f" ({len(attempt.open)} not yet read)." if attempt.open else "."
        by_hand = f"{by_hand} In all: <b>{total(attempt)}</b>." if attempt.answers else ""
        parts.insert(
            0,
            f"""\
<p>By the grader: <b>{rounded(attempt.points)} of {rounded(attempt.most)}</b> points.{by_hand}
Seed of the release: {attempt.seed}. Handed in: {attempt.handed_in}, attempt {attempt.number}.</p>""",
        )
        body = "\n".join(f"<tr>{row}</tr>" for row in cells)
        parts.append(f"<table><tr><th>test</th><th>points</th><th>of</th><th>why</th></tr>\n{body}</table>")
        if any(mark.points < mark.of for mark in attempt.marks.values()):
            parts.append(f"<p>{RULE}</p>")
    else:
        file = html.escape(Path(attempt.file).name)
        parts.append(f"<p>File: {file}, {attempt.handed_in}. Hand in a notebook, as Jupyter saves it.</p>")
    if said:
        parts.append(f"<p>When its cells ran:</p><ul>{''.join(said)}</ul>")
    page = f"""\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>{STYLE}</style></head><body>
<h1>{title}</h1>
{chr(10).join(parts)}
</body></html>
"""
    return rows, page


def lines(text):
    return html.escape(text).replace("\n", "<br>")


def write_feedback(folder, attempts):
    """FOLDER/STUDENT/NN_name.html and .csv; a further attempt of an assignment gets its number."""
    taken = set()
    for attempt in attempts:
        student = re.sub(r"[^\w .()-]", "_", attempt.student).strip(". ") or "unnamed"
        name, number = attempt.assignment or "cannot be graded", 1
        base = name
        while (student.lower(), name) in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add((student.lower(), name))
        rows, page = for_student(attempt)
        place = Path(folder) / student
        place.mkdir(parents=True, exist_ok=True)
        if rows:
            replace(place / f"{name}.csv", written(rows).encode())
        replace(place / f"{name}.html", page.encode())
