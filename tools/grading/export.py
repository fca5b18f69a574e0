"""The marks as tables: all of them, and those that count in the columns of Moodle and of Canvas."""

import re

from tools.grading.marks import rounded
from tools.grading.tables import as_it_is, plain, readable, written

MOODLE = ["Full name", "Grade", "Maximum Grade", "Feedback comments"]
CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
POINTS = "Points Possible"


def overview(attempts, roster=None):
    """(CSV, remarks): a row for each attempt, a column for each test and each question."""
    rows = []
    for one in attempts:
        number = one.assignment[:2]
        row = {
            "student": one.student, "assignment": one.assignment, "attempt": one.number,
            "counts": "yes" if one.counts else "no", "handed in": one.handed_in, "seed": one.seed,
        }  # fmt: skip
        whole = {
            "total": rounded(one.total),
            "points": rounded(one.points),
            "of": f"{one.most:g}",
        }
        whole |= {"by hand": rounded(one.by_hand), "of by hand": f"{one.most_by_hand:g}"}
        row |= whole if one.assignment else dict.fromkeys(whole, "")
        row |= {"not yet read": len(one.open), "remarks": "; ".join(one.remarks), "file": one.file}
        for test, mark in one.marks.items():
            row[f"{number} {test}"] = rounded(one.given[test].points if test in one.given else mark.points)
        for name, (most, _) in one.answers.items():
            given = one.given.get(name)
            row[f"{number} {name} (of {most:g}, by hand)"] = rounded(given.points) if given else ""
            row[f"{number} {name}, comment"] = given.comment if given else ""
        told = (f"{test}: {mark.brief}" for test, mark in one.marks.items() if mark.brief)
        rows.append(row | {f"{number} told": "; ".join(told)} if one.assignment else row)
    return written(rows), []


def counted(attempts):
    """{assignment: {student: attempt}} of those that count, and a remark on answers that nobody has read."""
    found = {}
    for one in attempts:
        if one.assignment and one.counts:
            found.setdefault(one.assignment, {})[one.student] = one
    unread = sum(bool(one.open) for of in found.values() for one in of.values())
    said = f"{unread} submissions have answers that nobody has read: their grades are without these points"
    return found, [said] * bool(unread)


def comments(one):
    """What a person wrote of an attempt, in one line."""
    said = (
        f"{name}: {' '.join(given.comment.split())}" for name, given in one.given.items() if given.comment
    )
    return "; ".join(said)


def key(name):
    """A name without what systems write differently: case, commas, the order of its parts."""
    return tuple(sorted(re.findall(r"\w+", name.casefold())))


def matched(students, rows, column):
    """([(row, attempt)] of a roster's rows that have one, remarks on the others)."""
    by_name = {}
    for name, one in students.items():
        by_name.setdefault(key(name), []).append(one)
        by_name.setdefault(("".join(key(name)),), []).append(one)  # Canvas writes smithann for Smith, Ann
    pairs, left = [], set(students)
    for row in rows:
        name = row.get(column, "")
        forms = key(name), ("".join(re.findall(r"\w+", name.casefold())),)
        found = next((by_name[form] for form in forms if form in by_name), [])
        if len({id(one) for one in found}) == 1:
            pairs.append((row, found[0]))
            left.discard(found[0].student)
    return pairs, [f"not in the roster: {name}" for name in sorted(left)]


def moodle(attempts, roster=None):
    """(CSV, remarks) of one assignment: a new table, or Moodle's grading worksheet with grades filled in."""
    found, remarks = counted(attempts)
    if len(found) != 1:
        raise ValueError(f"Moodle takes one assignment at a time: say which, of {', '.join(found) or 'none'}")
    ((_, students),) = found.items()
    if not roster:
        rows = [
            {"Full name": name, "Grade": rounded(one.total),
             "Maximum Grade": rounded(one.most + one.most_by_hand), "Feedback comments": comments(one)}
            for name, one in students.items()
        ]  # fmt: skip
        return written(rows, MOODLE), remarks
    columns, rows = readable(roster)
    if not {"Full name", "Grade"} <= set(columns):
        raise ValueError(f"{roster}: expected Moodle's columns Full name and Grade, got {', '.join(columns)}")
    pairs, others = matched(students, rows, "Full name")
    for row, one in pairs:
        remarks += fill(row, "Grade", one.total, row["Full name"])
        row["Feedback comments"] = plain(comments(one)) or row.get("Feedback comments", "")
    return written(rows, columns, as_it_is), remarks + others


def canvas(attempts, roster=None):
    """(CSV, remarks): a column for each assignment and a row of their points; or Canvas's own, filled in."""
    found, remarks = counted(attempts)
    if not found:
        raise ValueError("no assignment has been graded")
    columns, rows = readable(roster) if roster else (CANVAS, [])
    if "Student" not in columns:
        raise ValueError(f"{roster}: expected Canvas's column Student, got {', '.join(columns)}")
    if not roster:
        names = sorted({name for students in found.values() for name in students})
        rows = [{"Student": f"    {POINTS}"}, *({"Student": name} for name in names)]
    for assignment, students in found.items():
        title = next((c for c in columns if re.sub(r" \(\d+\)$", "", c) == assignment), assignment)
        columns = [*columns, title] if title not in columns else columns
        pairs, others = matched(students, rows, "Student")
        for row in rows:
            if row["Student"].strip() == POINTS and not row.get(title, "").strip():
                most = {one.most + one.most_by_hand for one in students.values()}
                row[title] = rounded(max(most))
        for row, one in pairs:
            remarks += fill(row, title, one.total, row["Student"])
        remarks += others
    return written(rows, columns, as_it_is if roster else plain), remarks


def fill(row, column, points, name):
    """Put points into a cell; a remark if another number stood there."""
    before, row[column] = row.get(column, "").strip(), rounded(points)
    try:
        same = not before or float(before.replace(",", ".")) == float(row[column])
    except ValueError:
        same = before == "-"
    return [] if same else [f"{name}: {row[column]} instead of {before}"]
