"""Marks last: what a grading adds, what a person gave, what an export finds; and no kill loses one."""

import random
import sqlite3
import subprocess
import sys
from csv import DictReader
from pathlib import Path

import nbformat
import pytest
from helpers.assignments import NAME

from tools import grade as tool
from tools.grading import export
from tools.grading import marks as marks_of
from tools.grading.marks import Mark, Marks, Stale

ROOT = Path(__file__).resolve().parents[2]


def fill(marks, student="ann", digest="1", day="2026-01-01", answer="because", **more):
    about = {"marks": {"t": Mark(1, 2, "note", "brief")}, "answers": {"why": (2, answer)}} | more
    return marks.keep(student, NAME, digest, day, **about)


@pytest.fixture
def marks(tmp_path):
    with Marks(tmp_path / "marks" / "m.sqlite") as made:
        yield made


def test_a_second_grading_adds_and_takes_nothing_away(marks):
    first = fill(marks)
    marks.give(first, "why", 1.5, "half")
    marks.give(first, "t", 2, "a typing error")
    assert fill(marks, day="2026-02-02") == first, "the same file is the same attempt"
    fill(marks, "bo")
    late = fill(marks, digest="2", day="2026-01-09", answer="another reason")
    ann, ann_late, bo = marks.attempts()
    assert (ann.id, ann.handed_in, ann.number, ann.counts) == (first, "2026-01-01", 1, False)
    assert (ann_late.id, ann_late.number, ann_late.counts) == (late, 2, True)
    assert (ann.points, ann.by_hand, ann.total, ann.open) == (2, 1.5, 3.5, [])
    assert (ann_late.points, ann_late.by_hand, ann_late.open) == (1, 0, ["why"]) and bo.counts


def test_points_go_with_an_answer_into_the_next_attempt_and_stay_open_to_change(marks):
    marks.give(fill(marks), "why", 1, "good")
    late = fill(marks, digest="2", day="2026-01-09")
    assert [(one.given["why"].points, one.given["why"].carried) for one in marks.attempts()] == [
        (1, False), (1, True),
    ]  # fmt: skip
    marks.give(late, "why", 2, "better", version=0)
    assert [one.given["why"].points for one in marks.attempts()] == [1, 2]
    fill(marks, "bo", "3")
    assert marks.attempts()[-1].open == ["why"], "never to another student"


def test_who_saw_older_points_does_not_replace_newer_ones(marks):
    one = fill(marks)
    first = marks.give(one, "why", 1, "", version=0)
    assert marks.give(one, "why", 1, "", version=0) == first, "the same again is no news"
    with pytest.raises(Stale, match="1 points were given") as found:
        marks.give(one, "why", 2, "", version=0)
    assert found.value.now == first
    marks.give(one, "why", 2, "", version=first.version)
    rows = marks.db.execute("SELECT points FROM given ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [1, 2], "nothing given is gone"


@pytest.mark.parametrize("question, points", [("why", 2.5), ("why", -1), ("why", float("nan")), ("x", 1)])
def test_points_that_do_not_fit(marks, question, points):
    one = fill(marks)
    with pytest.raises(ValueError):
        marks.give(one, question, points)
    assert marks.attempts()[0].open == ["why"]


def test_the_database_itself_refuses_to_change_what_a_person_gave(marks):
    marks.give(fill(marks), "why", 1)
    for order in ("UPDATE given SET points = 0", "DELETE FROM given", "DELETE FROM attempt"):
        with pytest.raises(sqlite3.IntegrityError):
            marks.db.execute(order)
    assert marks.attempts()[0].by_hand == 1


def test_a_failure_takes_no_marks_away_and_success_replaces_it(marks):
    marks.keep("bo", "", "9", "2026-01-01", remarks=["cannot be graded"])
    one = fill(marks)
    assert marks.keep("ann", "", "1", "2026-01-01", remarks=["cannot be graded"]) == one
    assert [(a.student, a.points) for a in marks.attempts()] == [("bo", 0), ("ann", 1)]
    fill(marks, "bo", "9")
    assert [(a.student, a.assignment) for a in marks.attempts()] == [("ann", NAME), ("bo", NAME)]


@pytest.mark.parametrize("kind", ["text", "other", "newer"])
def test_a_file_that_holds_no_marks_is_left_as_it_is(tmp_path, kind):
    place = tmp_path / "m.sqlite"
    if kind == "text":
        place.write_text("students and their points " * 100)
    else:
        with sqlite3.connect(place) as db:
            db.execute("CREATE TABLE mine (x)")
            db.execute(f"PRAGMA user_version = {marks_of.VERSION + 1 if kind == 'newer' else 0}")
    before = place.read_bytes()
    with pytest.raises(ValueError, match="holds no marks that can be read"):
        Marks(place)
    assert place.read_bytes() == before


def test_an_export_keeps_what_somebody_changed(marks, tmp_path):
    place = tmp_path / "new" / "grades.csv"
    assert [marks.write(place, text) for text in "abb"] == [None] * 3
    place.write_text("mine")
    assert marks.write(place, "c").name == "grades (kept 1).csv" and place.read_text() == "c"
    place.write_text("mine, too")
    marks.write(place, "d")
    assert sorted(path.read_text() for path in place.parent.iterdir()) == ["d", "mine", "mine, too"]


WRITER = """
import sys
from tools.grading.marks import Mark, Marks
marks, start = Marks(sys.argv[1]), int(sys.argv[2])
for n in range(start, start + 100_000):
    about = {"marks": {"t": Mark(1, 2)}, "answers": {"why": (2, "x")}}
    one = marks.keep(f"student {n}", "99_trial", str(n), "2026-01-01", **about)
    print("kept", n, flush=True)
    marks.give(one, "why", 1 + n % 2, f"comment {n}")
    print("given", n, flush=True)
    if n % 5 == 0:
        marks.write(sys.argv[3], f"{n}," * 5000 + "end")
"""  # fmt: skip


def test_kill_9_at_fifty_moments_loses_no_mark(tmp_path):
    """What the writer said is done is there afterwards, and tables are whole; moments are drawn by lines."""
    place, table, dice = tmp_path / "m.sqlite", tmp_path / "grades.csv", random.Random(50)
    kept, given = set(), set()
    for start in range(0, 50 * 1000, 1000):
        command = [sys.executable, "-c", WRITER, str(place), str(start), str(table)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(dice.randint(0, 12)):
                what, n = writer.stdout.readline().split()
                (kept if what == "kept" else given).add(int(n))
            writer.kill()
            for line in writer.stdout:  # said before the kill
                if line.endswith("\n"):
                    what, n = line.split()
                    (kept if what == "kept" else given).add(int(n))
        assert not table.exists() or table.read_text().endswith("end")
    with Marks(place) as marks:
        assert marks.db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        found = {int(one.student.split()[1]): one for one in marks.attempts()}
    assert len(kept) > 100 and kept <= set(found) and len(found) <= len(kept) + 50
    for n in given:
        mark = found[n].given["why"]
        assert (mark.points, mark.comment) == (1 + n % 2, f"comment {n}")
    assert all(one.points == 1 and one.answers == {"why": (2, "x")} for one in found.values())


# ---- the commands ----


def rows(path):
    return {row["student"]: row for row in DictReader(path.read_text(encoding="utf-8-sig").splitlines())}


def test_late_submissions_leave_the_others_and_what_a_person_gave(submitted, tmp_path, capsys):
    pile, late, table = tmp_path / "pile", tmp_path / "late", tmp_path / "grades.csv"
    for folder, names in ((pile, "abc"), (late, "d")):
        folder.mkdir()
        for name in names:
            nbformat.write(submitted(), folder / f"{name}.ipynb")
    options = ["--csv", str(table), "--feedback", str(tmp_path / "back")]
    assert tool.main([str(pile), *options]) == 0
    with Marks(tool.MARKS) as marks:
        marks.give(marks.attempts()[0].id, "why", 2, "well said")
    assert tool.main([str(late), *options]) == 0
    found = rows(table)
    assert set(found) == set("abcd")
    assert (found["a"]["99 why (of 2, by hand)"], found["a"]["total"], found["b"]["total"]) == ("2", "8", "6")
    assert "well said" in (tmp_path / "back" / "a" / f"{NAME}.html").read_text()
    assert "not yet read" in (tmp_path / "back" / "b" / f"{NAME}.html").read_text()
    nbformat.write(submitted(sums="x = 1"), late / "a.ipynb")
    assert tool.main([str(late), *options]) == 0
    assert "2 attempts are in the marks" in capsys.readouterr().out
    with Marks(tool.MARKS) as marks:
        first, second, *_ = marks.attempts()
        assert (first.student, first.total, second.student) == ("a", 8, "a")


def test_a_folder_of_other_things_leaves_no_trace(folder, tmp_path, capsys):
    (tmp_path / "pile").mkdir()
    (tmp_path / "pile" / "x.ipynb").write_text("{}")
    with pytest.raises(SystemExit) as end:
        tool.main([str(tmp_path / "pile"), "--csv", str(tmp_path / "grades.csv")])
    assert end.value.code == 2 and "nothing here could be graded" in capsys.readouterr().err
    assert not (tmp_path / "grades.csv").exists()
    with Marks(tool.MARKS) as marks:
        assert marks.attempts() == []


# ---- Moodle and Canvas ----


@pytest.fixture
def graded(folder):
    with Marks(tool.MARKS) as marks:
        for name in ("Ann Lee", "Müller, Bo", "Cy"):
            one = fill(marks, name, name)
            marks.give(one, "why", 1.5, f"=well,\n{name}")


def test_moodles_worksheet_is_filled_in(graded, tmp_path, capsys):
    sheet = tmp_path / "from moodle.csv"
    head = "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Feedback comments\n"
    body = "Participant 1,Ann Lee,a@x,Submitted,,4,\nParticipant 2,Bo Müller,b@x,Submitted,1,4,\n"
    body += "Participant 3,Di,-,=late,,4,\n"
    sheet.write_text(head + body, encoding="utf-8")
    command = ["export", "99", "--moodle", str(tmp_path / "to.csv"), "--roster", str(sheet)]
    assert tool.main(command) == 0
    said = capsys.readouterr().out
    assert "not in the roster: Cy" in said and "Bo Müller: 2.5 instead of 1" in said
    found = list(DictReader((tmp_path / "to.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [row["Grade"] for row in found] == ["2.5", "2.5", ""] and "=well, Ann Lee" in found[0][
        "Feedback comments"
    ]
    assert found[2]["Email address"] == "-" and found[2]["Status"] == "=late", "their cells stay as they are"
    assert sheet.read_text(encoding="utf-8") == head + body
    with pytest.raises(SystemExit):
        tool.main([*command[:-1], str(tmp_path / "none.csv")])
    assert "none.csv: expected a table to fill in, got: No such file" in capsys.readouterr().err
    assert tool.main(command[:4]) == 0
    assert (
        (tmp_path / "to.csv")
        .read_text(encoding="utf-8-sig")
        .startswith("Full name,Grade,Maximum Grade,Feedback")
    )


def test_our_own_cells_in_a_roster_are_no_formulas(graded, tmp_path, monkeypatch):
    (tmp_path / "from.csv").write_text("Full name,Grade,Feedback comments\nAnn Lee,-,\n", encoding="utf-8")
    monkeypatch.setattr(export, "comments", lambda one: "=1+1")
    command = ["export", "99", "--moodle", str(tmp_path / "to.csv"), "--roster", str(tmp_path / "from.csv")]
    assert tool.main(command) == 0
    assert "Ann Lee,2.5,'=1+1" in (tmp_path / "to.csv").read_text(encoding="utf-8-sig")


def test_canvass_gradebook_gets_a_column(graded, tmp_path):
    sheet = tmp_path / "from canvas.csv"
    head = "Student,ID,SIS User ID,SIS Login ID,Section,Other (7)\n    Points Possible,,,,,10\n"
    sheet.write_text(head + '"Lee, Ann",1,,ann,A,3\n"Ng, Di",2,,-,=B,-\n', encoding="utf-8")
    assert tool.main(["export", "--canvas", str(tmp_path / "to.csv"), "--roster", str(sheet)]) == 0
    found = list(DictReader((tmp_path / "to.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [row[NAME] for row in found] == ["4", "2.5", ""] and found[1]["Other (7)"] == "3"
    assert [found[2][name] for name in ("SIS Login ID", "Section", "Other (7)")] == ["-", "=B", "-"]
    assert tool.main(["export", "--canvas", str(tmp_path / "alone.csv")]) == 0
    found = list(DictReader((tmp_path / "alone.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [row[NAME] for row in found] == ["4"] + ["2.5"] * 3


def test_a_table_of_another_kind_is_refused_by_one_sentence(graded, tmp_path, capsys):
    (tmp_path / "x.csv").write_text("a;b\n1;2\n")
    for kind in ("--moodle", "--canvas"):
        with pytest.raises(SystemExit):
            tool.main(["export", kind, str(tmp_path / "y.csv"), "--roster", str(tmp_path / "x.csv")])
        assert "expected" in (said := capsys.readouterr().err) and said.count("\n") == 1
    assert not (tmp_path / "y.csv").exists()
