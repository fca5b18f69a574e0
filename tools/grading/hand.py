"""Marking by hand: a page on this computer alone, or a table for a spreadsheet. Both give into the marks.

The page is for one person with a keyboard. Its address holds a word that no other page and no other user of
the computer knows; what a student wrote stands in it as text, never as code.
"""

import json
import re
import secrets
import webbrowser
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from threading import Lock
from unicodedata import normalize

from tools.grading import assignment as source
from tools.grading.complaints import printable
from tools.grading.marks import Stale, rounded
from tools.grading.tables import number, readable, unquoted, written

PAGE = Path(__file__).resolve().parents[1] / "hand.html"
LARGEST = 100_000  # bytes that the page may send at once; characters of a comment are fewer
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{}'; connect-src 'self'"
KEY = re.compile(r"a(\d{1,15})v(\d{1,15})")


def questions(marks, names):
    """[(assignment, question, most, asked, model, attempts)] in order, of attempts that count."""
    found, attempts = [], [one for one in marks.attempts() if one.counts]
    for path in source.sources(names):
        of = [one for one in attempts if one.assignment == path.stem]
        for question, (most, asked, model) in source.load(path).questions().items() if of else ():
            found.append((path.stem, question, most, asked, model, [a for a in of if question in a.answers]))
    return found


def shuffled(attempts):
    """In an order that says nothing of names: by what was handed in."""
    return sorted(attempts, key=lambda one: sha256(json.dumps(list(one.answers.items())).encode()).digest())


def bare(name):
    """A name as tables hold it, and spreadsheets give it back."""
    return normalize("NFC", unquoted(name)).strip()


def shown(one, question, anonymous):
    """The answer of an attempt; where it has a pasted picture, which file shows it."""
    text = one.answers[question][1]
    where = "the file, which is named where names are shown" if anonymous else one.file
    return f"{text}\n\n[A picture was pasted here: see {where}]" if "(attachment:" in text else text


# ---- a table ----


def table(marks, names, anonymous):
    """A CSV with a row for each answer, and for each test whose points a person has changed: points and
    comment are to be filled in.
    """
    rows = []

    def add(one, assignment, question, most, answer):
        given = one.given.get(question)
        who = {} if anonymous else {"student": one.student}
        rows.append(who | {
            "assignment": assignment, "question": question, "of": rounded(most), "answer": answer,
            "points": rounded(given.points) if given else "", "comment": given.comment if given else "",
            "key": f"a{one.id}v{given.version if given else 0}",
        })  # fmt: skip

    for assignment, question, most, _, _, attempts in questions(marks, names):
        for one in shuffled(attempts) if anonymous else attempts:
            add(one, assignment, question, most, shown(one, question, anonymous))
    wanted = {path.stem for path in source.sources(names)}
    changed = [one for one in marks.attempts() if one.counts and one.assignment in wanted]
    for one in shuffled(changed) if anonymous else changed:
        for test in filter(one.given.__contains__, one.marks):
            add(one, one.assignment, test, one.marks[test].of, "")
    return written(rows)


def read_table(marks, path):
    """(lines that say what came of each row that was not taken, and how many were; whether all were)."""
    columns, rows = readable(path)
    if missing := {"question", "points", "comment", "key"} - set(columns):
        raise ValueError(
            f"{path}: expected a table of `hand --csv`, its columns {', '.join(sorted(missing))} too"
        )
    owner = {one.id: (bare(one.student), one.assignment) for one in marks.attempts()}
    students = {student for student, _ in owner.values()}
    before = {(one.id, name): given for one in marks.attempts() for name, given in one.given.items()}
    lines, taken = [], 0
    for line, row in enumerate(rows, 2):
        points, comment = row["points"].strip(), unquoted(row["comment"]).strip()
        who, of = bare(row.get("student") or ""), (row.get("assignment") or "").strip()
        if not points:
            lines += [f"row {line}: a comment without points"] * bool(comment)
            continue
        try:
            found = KEY.fullmatch(row["key"].strip())
            if not found:
                raise ValueError("its key has been changed" if row["key"].strip() else "its key is missing")
            attempt, version, question = int(found[1]), int(found[2]), row["question"].strip()
            student, assignment = owner.get(attempt, (who, of))
            if who in students - {student} or of not in ("", assignment):
                raise ValueError(f"its key is that of {student}, {assignment}")
            known = before.get((attempt, question))
            if known and known.carried and (known.points, known.comment) == (number(points), comment):
                continue
            given = marks.give(attempt, question, number(points), comment, version)
            taken += known is None or given.version != known.version
            before[attempt, question] = given
        except ValueError as error:
            lines.append(f"row {line}{who and f' ({who})'}: not taken: {error}")
    return [*lines, f"{taken} new points"], not lines


# ---- a page ----


def data(marks, names, anonymous):
    """What the page shows, as it stands now."""
    from tools.formulas import markdown

    found = []
    for assignment, question, most, asked, model, attempts in questions(marks, names):
        answers = []
        for place, one in enumerate(shuffled(attempts) if anonymous else attempts, 1):
            given = one.given.get(question)
            answers.append({
                "attempt": one.id, "text": shown(one, question, anonymous),
                "name": f"answer {place}" if anonymous else one.student,
                "points": rounded(given.points) if given else "", "comment": given.comment if given else "",
                "version": given.version if given else 0, "carried": bool(given and given.carried),
            })  # fmt: skip
        about = {"assignment": assignment, "question": question, "most": most, "answers": answers}
        found.append(about | {"asked": markdown(asked), "model": markdown(model)})
    return found


def server(marks, names=(), anonymous=False, port=0):
    """(the server, not yet running, its address)."""
    word, lock = secrets.token_urlsafe(24), Lock()

    class Handler(BaseHTTPRequestHandler):
        def allowed(self, path):
            """Whether this address, with its word, was asked for by a name of this computer."""
            hosts = {f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")}
            right = secrets.compare_digest(self.path.encode(), f"/{word}/{path}".encode())
            if right and self.headers.get("Host") in hosts:
                return True
            self.answer(404, "no such page", "text/plain")
            return False

        def answer(self, status, text, kind="application/json", **headers):
            body = text.encode()
            self.send_response(status)
            fixed = {
                "Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(body),
                "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
            }  # fmt: skip
            for name, value in (fixed | headers).items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.allowed(""):
                nonce = secrets.token_urlsafe(16)
                with lock:
                    found = json.dumps(data(marks, names, anonymous)).replace("<", "\\u003c")
                page = Template(PAGE.read_text(encoding="utf-8")).substitute(nonce=nonce, data=found)
                self.answer(200, page, "text/html", **{"Content-Security-Policy": POLICY.format(nonce)})

        def do_POST(self):
            if not self.allowed("give"):
                return
            try:
                length = int(self.headers.get("Content-Length") or 0)
                if not 0 < length <= LARGEST:
                    raise ValueError("too long")
                sent = json.loads(self.rfile.read(length))
                comment = "\n".join(map(printable, str(sent["comment"]).splitlines()))
                with lock:
                    place = int(sent["attempt"]), str(sent["question"])
                    given = marks.give(*place, number(str(sent["points"])), comment, int(sent["version"]))
                self.answer(200, said(given))
            except Stale as error:
                self.answer(409, said(error.now, error))
            except (ValueError, KeyError, TypeError) as error:
                self.answer(400, json.dumps({"error": str(error) or type(error).__name__}))

        def log_message(self, *about):
            pass

    def said(given, error=""):
        about = {"points": rounded(given.points), "comment": given.comment, "version": given.version}
        return json.dumps(about | {"error": str(error)})

    found = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    return found, f"http://127.0.0.1:{found.server_port}/{word}/"


def serve(marks, names, anonymous, port, browser):
    """Serve the page until Ctrl-C; then say what is left."""
    if not any(attempts for *_, attempts in questions(marks, names)):
        raise ValueError("the marks hold no answer that a person reads")
    running, address = server(marks, names, anonymous, port)
    print(
        f"to mark by hand: {address}\nCtrl-C ends it; all that the page calls saved is in the marks",
        flush=True,
    )
    if browser:
        webbrowser.open(address)
    try:
        running.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        running.server_close()
    for assignment, question, _, _, _, attempts in questions(marks, names):
        read = sum(question in one.given for one in attempts)
        print(f"{assignment} {question}: {read} of {len(attempts)} read")
    return 0
