"""Marks that last: one SQLite file, outside of build/, into which every grading is merged.

    attempt    a student's file of an assignment, by its content: the same file again is the same attempt
    test       what the grader gave: graded anew, it is replaced
    answer     what a student wrote for a person to read
    given      what a person gave, each time: rows are added, none is changed or deleted; the last one counts
    export     what we wrote into which file: a file that somebody has changed since is kept

Each submission and each point by hand is one transaction: a kill at any moment loses none that was reported.
Only the standard library.
"""

import hashlib
import json
import os
import shutil
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

VERSION = 1
SCHEMA = [
    """CREATE TABLE attempt (
    id INTEGER PRIMARY KEY, student TEXT NOT NULL, assignment TEXT NOT NULL, digest TEXT NOT NULL,
    handed_in TEXT NOT NULL, seed INTEGER, file TEXT, remarks TEXT, wrong TEXT,
    UNIQUE (student, assignment, digest))""",
    """CREATE TABLE test (
    attempt INTEGER REFERENCES attempt ON DELETE CASCADE, name TEXT, points REAL, most REAL, note TEXT,
    brief TEXT, PRIMARY KEY (attempt, name))""",
    """CREATE TABLE answer (
    attempt INTEGER REFERENCES attempt ON DELETE CASCADE, question TEXT, most REAL, text TEXT,
    PRIMARY KEY (attempt, question))""",
    """CREATE TABLE given (
    id INTEGER PRIMARY KEY AUTOINCREMENT, attempt INTEGER NOT NULL REFERENCES attempt,
    question TEXT NOT NULL, points REAL NOT NULL, comment TEXT NOT NULL, at TEXT NOT NULL)""",
    "CREATE TABLE export (path TEXT PRIMARY KEY, digest TEXT NOT NULL)",
    *(
        f"CREATE TRIGGER no_{change} BEFORE {change} ON given BEGIN"
        " SELECT RAISE(ABORT, 'what a person gave stays'); END"
        for change in ("UPDATE", "DELETE")
    ),
]


@dataclass
class Mark:
    """A test: points, and why not all, for the teacher and for the student."""

    points: float
    of: float
    note: str = ""
    brief: str = ""


@dataclass
class Given:
    """What a person gave for a question, or instead of the grader's points for a test."""

    points: float
    comment: str
    version: int  # grows with each that is given
    carried: bool = False  # from an earlier attempt with the same answer


@dataclass
class Attempt:
    """One submission as it stands in the marks."""

    id: int
    student: str
    assignment: str
    handed_in: str
    seed: object
    file: str
    remarks: list
    wrong: dict  # {cell: complaints}
    number: int = 1  # of this student for this assignment, by date
    counts: bool = True  # the last one does
    marks: dict = field(default_factory=dict)  # {test: Mark}
    answers: dict = field(default_factory=dict)  # {question: (points at most, text)}
    given: dict = field(default_factory=dict)  # {question or test: Given}

    @property
    def points(self):
        """By the grader, or by a person instead."""
        return sum(self.given[t].points if t in self.given else mark.points for t, mark in self.marks.items())

    @property
    def most(self):
        return sum(mark.of for mark in self.marks.values())

    @property
    def by_hand(self):
        """Points for the questions that a person reads; those not read yet count as none."""
        return sum(self.given[q].points for q in self.answers if q in self.given)

    @property
    def most_by_hand(self):
        return sum(most for most, _ in self.answers.values())

    @property
    def total(self):
        return self.points + self.by_hand

    @property
    def open(self):
        """Questions that nobody has read."""
        return [question for question in self.answers if question not in self.given]


class Stale(ValueError):
    """Somebody gave points in the meantime; `now` is what stands there."""

    def __init__(self, text, now):
        super().__init__(text)
        self.now = now


def rounded(value):
    """A number of points as it is written."""
    return f"{round(value, 2):g}"


class Marks:
    """The marks in a file, which is made where there is none."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.db = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} holds no marks that can be read ({error})") from None

    def _open(self):
        self.db.execute("PRAGMA foreign_keys = ON")
        self.db.execute("PRAGMA synchronous = FULL")
        with self.changes():
            (version,) = self.db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                if self.db.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise sqlite3.DatabaseError("it is another kind of database")
                for statement in SCHEMA:
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"its form is {version}, this program reads {VERSION}")

    def close(self):
        self.db.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def changes(self):
        """A transaction: all of it, or nothing."""
        return _Transaction(self.db)

    # ---- what the grader gives ----

    def keep(self, student, assignment, digest, handed_in, *, seed=None, file="", remarks=(), wrong=None,
             marks=None, answers=None):  # fmt: skip
        """Merge one graded submission; returns the id of its attempt. The first date of a file stays."""
        said = seed, file, json.dumps(list(remarks)), json.dumps(wrong or {})
        with self.changes():
            key = student, assignment, digest
            graded = self.db.execute(
                "SELECT id FROM attempt WHERE (student, digest) = (?, ?) AND assignment != ''",
                (student, digest),
            ).fetchone()
            if graded and not assignment:  # a failure now takes no marks away
                return graded["id"]
            self.db.execute(
                "INSERT INTO attempt (student, assignment, digest, handed_in, seed, file, remarks, wrong)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (student, assignment, digest) DO UPDATE SET"
                " handed_in = min(handed_in, excluded.handed_in), seed = excluded.seed, file = excluded.file,"
                " remarks = excluded.remarks, wrong = excluded.wrong",
                (*key, handed_in, *said),
            )
            (number,) = self.db.execute(
                "SELECT id FROM attempt WHERE (student, assignment, digest) = (?, ?, ?)", key
            ).fetchone()
            if assignment:  # it was not recognised before
                self.db.execute(
                    "DELETE FROM attempt WHERE (student, assignment, digest) = (?, '', ?)", (student, digest)
                )
            self.db.execute("DELETE FROM test WHERE attempt = ?", (number,))
            self.db.execute("DELETE FROM answer WHERE attempt = ?", (number,))
            self.db.executemany(
                "INSERT INTO test VALUES (?, ?, ?, ?, ?, ?)",
                [(number, name, m.points, m.of, m.note, m.brief) for name, m in (marks or {}).items()],
            )
            self.db.executemany(
                "INSERT INTO answer VALUES (?, ?, ?, ?)",
                [(number, question, most, text) for question, (most, text) in (answers or {}).items()],
            )
        return number

    # ---- what a person gives ----

    def give(self, attempt, question, points, comment="", version=None):
        """Add what a person gave; returns its `Given`. version: of what that person saw (0: nothing); `Stale`
        if something newer stands there. ValueError for points that do not fit.
        """
        with self.changes():
            row = self.db.execute(
                "SELECT most FROM answer WHERE attempt = ? AND question = ?"
                " UNION ALL SELECT most FROM test WHERE attempt = ? AND name = ?",
                (attempt, question, attempt, question),
            ).fetchone()
            if row is None:
                raise ValueError(f"no attempt {attempt} has a question {question}")
            if not 0 <= points <= row["most"]:
                raise ValueError(f"{rounded(points)} points: expected 0 to {rounded(row['most'])}")
            last = self.db.execute(
                "SELECT id, points, comment FROM given WHERE attempt = ? AND question = ? ORDER BY id DESC",
                (attempt, question),
            ).fetchone()
            now = Given(last["points"], last["comment"], last["id"]) if last else None
            if now and (now.points, now.comment) == (points, comment):
                return now
            if version is not None and now and now.version != version:
                raise Stale(f"{rounded(now.points)} points were given in the meantime", now)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            added = self.db.execute(
                "INSERT INTO given (attempt, question, points, comment, at) VALUES (?, ?, ?, ?, ?)",
                (attempt, question, points, comment, at),
            )
        return Given(points, comment, added.lastrowid)

    # ---- what stands there ----

    def attempts(self):
        """All, by assignment, student and date."""
        found = {}
        for row in self.db.execute("SELECT * FROM attempt ORDER BY assignment, student, handed_in, id"):
            about = {name: row[name] for name in ("id", "student", "assignment", "handed_in", "seed", "file")}
            found[row["id"]] = Attempt(
                **about, remarks=json.loads(row["remarks"]), wrong=json.loads(row["wrong"])
            )
        for row in self.db.execute("SELECT * FROM test ORDER BY rowid"):
            mark = Mark(row["points"], row["most"], row["note"], row["brief"])
            found[row["attempt"]].marks[row["name"]] = mark
        for row in self.db.execute("SELECT * FROM answer ORDER BY rowid"):
            found[row["attempt"]].answers[row["question"]] = row["most"], row["text"]
        same = {}  # a mark goes with its answer into later attempts
        for row in self.db.execute("SELECT * FROM given ORDER BY id"):
            attempt, question = found[row["attempt"]], row["question"]
            given = Given(row["points"], row["comment"], row["id"])
            attempt.given[question] = given
            if question in attempt.answers:
                text = attempt.answers[question][1]
                same[attempt.student, attempt.assignment, question, text] = given
        number = {}
        for attempt in found.values():
            key = attempt.student, attempt.assignment
            attempt.number = number[key] = number.get(key, 0) + 1
            for question in attempt.open:
                known = same.get((*key, question, attempt.answers[question][1]))
                if known:
                    attempt.given[question] = Given(known.points, known.comment, 0, carried=True)
        for attempt in found.values():
            attempt.counts = attempt.number == number[attempt.student, attempt.assignment]
        return list(found.values())

    # ---- files that are made of them ----

    def write(self, path, text):
        """Write an export, whole or not at all. A file there that is not what we wrote is kept under another
        name, which is returned.
        """
        path, data, kept = Path(path).absolute(), text.encode(), None
        path.parent.mkdir(parents=True, exist_ok=True)
        ours = self.db.execute("SELECT digest FROM export WHERE path = ?", (str(path),)).fetchone()
        if path.exists():
            there = hashlib.sha256(path.read_bytes()).hexdigest()
            if there != hashlib.sha256(data).hexdigest() and (ours is None or there != ours["digest"]):
                names = (path.with_stem(f"{path.stem} (kept {n})") for n in range(1, 10_000))
                kept = next(name for name in names if not name.exists())
                shutil.copy2(path, kept)
        replace(path, data)
        with self.changes():
            row = str(path), hashlib.sha256(data).hexdigest()
            self.db.execute("INSERT OR REPLACE INTO export VALUES (?, ?)", row)
        return kept


def replace(path, data):
    """Put these bytes into the file at once: who reads it finds the old ones or the new ones."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


class _Transaction:
    def __init__(self, db):
        self.db = db

    def __enter__(self):
        self.db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind, error, trace):
        self.db.execute("COMMIT" if kind is None else "ROLLBACK")
