"""Marking by hand: the page by its keys, what it refuses, the table there and back."""

import csv
import json
import urllib.error
import urllib.request
from threading import Thread

import nbformat
import pytest
from helpers import browser
from helpers.assignments import NAME

from tools import grade as tool
from tools import teaching
from tools.grading import hand
from tools.grading.marks import Mark, Marks
from tools.grading.report import RULE, for_student

needs_browser = pytest.mark.skipif(teaching.browser() is None, reason="no Chromium on this machine")
SCRIPT = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\"></script>"
ANSWERS = {"ann": "Overflow.", "bo": SCRIPT, "cy": "", "di": "Sums of exponentials\n\n  are large."}


@pytest.fixture
def marks(submitted, tmp_path):
    """Four graded submissions."""
    pile = tmp_path / "pile"
    pile.mkdir()
    for name, text in ANSWERS.items():
        nb = submitted()
        (cell,) = (c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "why")
        cell.source = text or cell.source
        nbformat.write(nb, pile / f"{name}.ipynb")
    assert tool.main([str(pile)]) == 0
    with Marks(tool.MARKS) as made:
        yield made


def given(marks):
    """{student: (points, comment)} of those that count."""
    found = {one.student: one.given.get("why") for one in marks.attempts() if one.counts}
    return {name: (mark.points, mark.comment) for name, mark in found.items() if mark}


def test_a_pasted_picture_is_said_with_its_file(submitted, tmp_path):
    nb = submitted()
    (cell,) = (c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "why")
    cell.source, cell.attachments = "By hand: ![x](attachment:a.png)", {"a.png": {"image/png": "aGk="}}
    nbformat.write(nb, tmp_path / "ann.ipynb")
    assert tool.main([str(tmp_path / "ann.ipynb")]) == 0
    with Marks(tool.MARKS) as made:
        for anonymous in (False, True):
            (answer,) = hand.data(made, (), anonymous)[0]["answers"]
            assert "A picture was pasted here" in answer["text"]
            assert ("ann.ipynb" in answer["text"]) is not anonymous
            assert answer["text"] in hand.table(made, (), anonymous).replace('""', '"')


@pytest.fixture
def address(marks):
    running, address = hand.server(marks)
    thread = Thread(target=running.serve_forever)
    thread.start()
    yield address
    running.shutdown()
    running.server_close()
    thread.join()


SAVED = "document.querySelectorAll('article')[{}].querySelector('.said').textContent"


@needs_browser
def test_a_question_is_marked_by_keys_alone(marks, address, tmp_path):
    with browser.page(teaching.browser(), tmp_path / "profile") as page:
        page.open(address)
        text = page.ask("document.body.innerText")
        assert "Why the largest?" in text and "the model answer" in text and "0 of 4 read" in text
        assert page.ask("document.title") == "Marking by hand", "an answer is text"
        assert SCRIPT in page.ask("document.querySelectorAll('.answer')[1].textContent")
        assert "No answer." in page.ask("document.querySelectorAll('.answer')[2].textContent")
        page.press("2", "Enter")
        page.until(SAVED.format(0) + " === 'Saved.'")
        page.until("document.querySelectorAll('article')[1].classList.contains('here')")
        page.press("1", ".", "5", "Escape", "c")
        page.type("no cause\nis named")
        page.press("Escape", "Enter")
        page.until(SAVED.format(1) + " === 'Saved.'")
        page.until("document.querySelectorAll('article')[2].classList.contains('here')")
        page.press("9", "Enter")
        page.until(SAVED.format(2) + ".startsWith('Not saved: 9 points: expected 0 to 2')")
        page.press("Escape", "0", "Enter")
        page.until(SAVED.format(2) + " === 'Saved.'")
        page.until("document.querySelectorAll('article')[3].classList.contains('here')")
        page.press("r", "1", "Enter")
        page.until(SAVED.format(3) + " === 'Saved.'")
        assert page.ask("document.getElementById('progress').textContent") == "4 of 4 read"
        wanted = {
            "ann": (2, ""),
            "bo": (1.5, "no cause\nis named"),
            "cy": (0, ""),
            "di": (1, "no cause\nis named"),
        }
        assert given(marks) == wanted
        page.open(address)
        assert page.ask("document.querySelectorAll('input')[1].value") == "1.5"
        with Marks(tool.MARKS) as other:  # somebody else, in the meantime
            other.give(other.attempts()[0].id, "why", 1, "too short")
        page.press("k", "k", "k", "k", "0", "Enter")
        page.until(
            SAVED.format(0) + ".startsWith('Not saved: 1 points were given in the meantime (too short)')"
        )
        assert given(marks)["ann"] == (1, "too short")
        page.press("Enter")
        page.until(SAVED.format(0) + " === 'Saved.'")
        assert given(marks)["ann"] == (0, "")


def fetch(address, sent=None, **headers):
    data = sent if sent is None or isinstance(sent, bytes) else json.dumps(sent).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers)) as found:
            return found.status, found.read().decode(), found.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_the_page_is_for_who_knows_its_word(marks, address):
    status, text, headers = fetch(address)
    assert status == 200 and "Overflow." in text and headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert address.startswith("http://127.0.0.1:")
    root = address.rsplit("/", 2)[0]
    mark = {"attempt": 1, "question": "why", "points": "1", "comment": "", "version": 0}
    for place in (root, f"{root}/", f"{root}/give", f"{address}x", f"{root}/{'x' * 32}/"):
        assert fetch(place)[0] == 404
    for place, more in ((f"{root}/give", {}), (f"{address}give", {"Host": "elsewhere.example"})):
        assert fetch(place, mark, **more)[0] == 404
    assert given(marks) == {}
    assert fetch(f"{address}give", mark)[0] == 200 and given(marks)["ann"][0] == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[]",
        b"{",
        b"x" * 200_000,
        {"attempt": 1},
        {"points": "many"},
        {"question": "x"},
        {"attempt": 99},
    ],
)
def test_what_the_page_does_not_send_is_refused(marks, address, sent):
    if isinstance(sent, dict) and len(sent) == 1:
        sent = {"attempt": 1, "question": "why", "points": "1", "comment": "", "version": 0} | sent
        sent = (
            sent
            if sent["attempt"] != 1 or sent["points"] != "1" or sent["question"] != "why"
            else {"attempt": 1}
        )
    status, text, _ = fetch(f"{address}give", sent)
    assert status == 400 and json.loads(text)["error"]
    assert given(marks) == {}


def test_without_names(marks):
    names = {answer["name"] for answer in hand.data(marks, [NAME], True)[0]["answers"]}
    assert names == {f"answer {n}" for n in range(1, 5)}
    whole = json.dumps(hand.data(marks, [NAME], True)) + hand.table(marks, [NAME], True)
    assert not [name for name in ANSWERS if f'"{name}"' in whole or f"{name}," in whole]


def changed(place, change):
    """Save the table as a spreadsheet would: with semicolons, and decimal commas."""
    with open(place, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        change(row)
    with open(place, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=";")
        writer.writeheader()
        writer.writerows(rows)


def test_a_table_there_and_back(marks, tmp_path, capsys):
    table = str(tmp_path / "hand.csv")
    assert tool.main(["hand", "99", "--csv", table]) == 0
    points = {"ann": "1,5", "bo": "2", "cy": "", "di": "many"}

    def fill(row):
        row["points"], row["comment"] = points[row["student"]], "'=well"

    changed(table, fill)
    capsys.readouterr()
    assert tool.main(["hand", "--read", table]) == 1
    said = capsys.readouterr().out
    assert "row 4: a comment without points" in said and "row 5 (di): not taken: 'many' is no number" in said
    assert "2 new points" in said and given(marks) == {"ann": (1.5, "=well"), "bo": (2, "=well")}
    assert tool.main(["hand", "--csv", table]) == 0
    assert "hand (kept 1).csv" in capsys.readouterr().out, "what a person filled in is kept"
    marks.give(1, "why", 0.5, "on the page")
    changed(table, lambda row: row.update(points={"ann": "2", "bo": "2"}.get(row["student"], "")))
    assert tool.main(["hand", "--read", table]) == 1
    assert "row 2 (ann): not taken: 0.5 points were given in the meantime" in capsys.readouterr().out
    assert given(marks) == {"ann": (0.5, "on the page"), "bo": (2, "=well")}


def test_points_of_a_test_can_be_changed_twice_by_a_table(marks, tmp_path):
    table, test = str(tmp_path / "hand.csv"), "sums-test"

    def correct(points):
        assert tool.main(["hand", "99", "--csv", table]) == 0
        rows = list(csv.DictReader(open(table, encoding="utf-8-sig", newline="")))
        own = [row for row in rows if row["student"] == "bo"]
        row = own[-1] | {"question": test, "points": points}
        assert (own[-1]["question"] == test) is (points != "0.25")
        with open(table, "w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow(row)
        return tool.main(["hand", "--read", table])

    assert correct("0.25") == 0 and correct("0.75") == 0
    (bo,) = (one for one in marks.attempts() if one.student == "bo")
    assert bo.given[test].points == 0.75


def test_a_key_in_the_row_of_another_student_is_not_taken(marks, tmp_path, capsys):
    table = str(tmp_path / "hand.csv")
    assert tool.main(["hand", "99", "--csv", table]) == 0
    keys = {"ann": "bo", "bo": "ann"}
    rows = list(csv.DictReader(open(table, encoding="utf-8-sig", newline="")))
    key = {row["student"]: row["key"] for row in rows}
    changed(table, lambda row: row.update(points="1", key=key[keys.get(row["student"], row["student"])]))
    assert tool.main(["hand", "--read", table]) == 1
    said = capsys.readouterr().out
    assert "row 2 (ann): not taken: its key is that of bo" in said and "2 new points" in said
    assert given(marks).keys() == {"cy", "di"}
    for change, code, told in (
        ({"assignment": "02_other"}, 1, f"its key is that of ann, {NAME}"),
        ({"key": "a99999999999999999999v1"}, 1, "its key has been changed"),
        ({"student": " \u00c5sa"}, 0, ""),  # a name that is nobody's, as a wrong encoding makes it
    ):
        assert tool.main(["hand", "99", "--csv", table]) == 0
        changed(table, lambda row, change=change: row.update(points="1", **change))
        assert tool.main(["hand", "--read", table]) == code
        assert told in capsys.readouterr().out
    assert given(marks).keys() == set(ANSWERS)


def test_grading_again_says_what_a_person_gave(marks, tmp_path, capsys):
    marks.give(1, "why", 1.5, "")
    assert tool.main([str(tmp_path / "pile")]) == 0
    assert "with what a person gave: 7.5 of 8" in capsys.readouterr().out


def test_points_reach_the_table_and_the_page_of_the_student(marks, tmp_path):
    marks.give(1, "why", 1.5, "Say which <sum>.\nThen why.")
    out = ["--csv", str(tmp_path / "grades.csv"), "--feedback", str(tmp_path / "back")]
    assert tool.main(["export", *out]) == 0
    page = (tmp_path / "back" / "ann" / f"{NAME}.html").read_text()
    assert "Say which &lt;sum&gt;.<br>Then why." in page and "1.5 of 2" in page
    assert "In all: <b>7.5 of 8</b>." in page
    assert RULE not in page  # nothing was lost
    one = next(one for one in marks.attempts() if one.student == "ann")
    one.marks["sums-test"] = Mark(0, 1, "wrong", "wrong")
    assert RULE in for_student(one)[1]
    assert "In all: <b>6 of 8, 1 not yet read</b>." in (tmp_path / "back" / "bo" / f"{NAME}.html").read_text()
    assert "not yet read" in (tmp_path / "back" / "bo" / f"{NAME}.html").read_text()
    with open(tmp_path / "grades.csv", encoding="utf-8-sig", newline="") as file:
        ann, *_ = csv.DictReader(file)
    assert (ann["total"], ann["99 why, comment"]) == ("7.5", "Say which <sum>.\nThen why.")
