"""Regular expressions of users on the strings of a column: a search that may run for ever is stopped.

`re` tries one way after the other: for `(a+)+$` on 40 letters a and a b some 10^12. Within a process nothing
stops it in every thread and on every system. So what may take long runs in a process of its own,
which a watchdog of Python ends after LIMIT seconds on one cell. Most searches are short by the form of the
expression, and start no process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence

from crfbook._checks import shown

LIMIT = 2.0  # seconds for one cell
STEPS = 10**7  # of a search that is never stopped: some tenths of a second

# reads limit, pattern and cells; writes a line for each cell, for which the watchdog is set anew
_CHILD = """
import faulthandler, json, re, sys
limit, pattern, cells = json.load(sys.stdin)
for cell in cells:
    faulthandler.dump_traceback_later(limit, exit=True)
    found = re.search(pattern, cell)
    print(json.dumps(found and found.group()), flush=True)
"""


def compiled(pattern: str) -> re.Pattern:
    """The compiled regular expression. Raises ValueError, one sentence, for what does not compile."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        why = shown(str(error))[1:-1]
        raise ValueError(f"the regular expression {shown(pattern)} does not compile: {why}") from None


def searched(pattern: str, cells: Sequence[str], trusted: bool = False) -> list[str | None]:
    """The first text that the regular expression matches in each of the cells; None: none.

    trusted : whether it is known to be fast. Raises ValueError that names the cell which takes over LIMIT
    seconds.
    """
    search = compiled(pattern).search
    slow = [] if trusted else [cell for cell in dict.fromkeys(cells) if not _is_short(pattern, len(cell))]
    apart = dict(zip(slow, _in_a_process(pattern, slow), strict=True)) if slow else {}
    found = ((cell, None if cell in apart else search(cell)) for cell in cells)
    return [match.group() if match else apart.get(cell) for cell, match in found]


def _is_short(pattern: str, n: int) -> bool:
    """Whether a search in n characters takes at most STEPS steps, by a bound that needs no parser: no repeat
    within a repeat, at most n + 1 ways of each repeat, and two of each "|".
    """
    plain = re.sub(r"(?s)\\.", "", pattern).replace("(?", "(")
    repeats, bars = sum(map(plain.count, "*+?{")), plain.count("|")
    nested = "(" in plain and repeats and repeats + bars > 1
    return not nested and bars < 64 and (n + 1) ** (repeats + 1) * 2**bars * (len(pattern) + n) <= STEPS


def _in_a_process(pattern: str, cells: Sequence[str]) -> list[str | None]:
    told = json.dumps([LIMIT, pattern, cells]).encode()
    run = subprocess.run([sys.executable, "-I", "-S", "-c", _CHILD], input=told, capture_output=True)
    lines = run.stdout.splitlines()
    if len(lines) < len(cells):
        timeout = run.stderr.startswith(b"Timeout")
        why = f"takes over {LIMIT:g} seconds" if timeout else f"failed, {shown(run.stderr[-60:].decode())},"
        raise ValueError(f"the regular expression {shown(pattern)} {why} on {shown(cells[len(lines)])}")
    return list(map(json.loads, lines))
