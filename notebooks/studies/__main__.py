"""python -m studies [NAME ... | all] [--repeats N] [--csv FILE] [--folder DIR]"""

import argparse
import sys
import time
from importlib.util import find_spec
from itertools import groupby

from . import measure, run, studies
from .harness import report
from .records import environment, require_clean, write_report
from .work import TWINS

ABOUT = "Measure crfbook beside python-crfsuite, or make the tables of a chapter. Without a NAME: the list."
TARGETS = "In a report, required and aim are shares of the time of the reference in the same run."


def main(argv=None):
    known = studies()
    timings = [name for name, one in known.items() if one.timed]
    parser = argparse.ArgumentParser(prog="python -m studies", description=ABOUT, epilog=TARGETS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)} or all (timings)")
    parser.add_argument("--repeats", type=int, default=None, help="counted runs of each candidate")
    parser.add_argument("--csv", help="write the rows of timings there as well")
    parser.add_argument("--folder", default="results", help="where tables write their records (%(default)s)")
    parser.add_argument("--dirty", action="store_true", help="record although files are not committed")
    options = parser.parse_args(argv)
    if options.repeats is not None and options.repeats < 1:
        parser.error(f"--repeats: expected at least 1, got {options.repeats}")
    if not options.names:
        return list_studies(known)
    names = timings if options.names == ["all"] else options.names
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"expected names among {', '.join(known)}; got {', '.join(unknown)}")
    if any(name in timings for name in names) and find_spec("pycrfsuite") is None:
        parser.error("python-crfsuite, the reference, is not installed: pip install python-crfsuite")
    if not options.dirty and (options.csv or set(names) - set(timings)):
        require_clean()
    for key, value in environment().items():
        print(f"{key}: {value}")
    rows, rests_on, start = [], [], time.perf_counter()
    for name in names:
        print(f"... {name}", file=sys.stderr, flush=True)
        if name not in timings:
            for path in run(name, folder=options.folder, dirty=options.dirty):
                print(f"written to {path}", flush=True)
            continue
        found, rests_on = [], list(dict.fromkeys([*rests_on, *known[name].frozen]))
        for row in measure(name, **({} if options.repeats is None else {"repeats": options.repeats})):
            found.append(row._replace(required=None, aim=None) if TWINS else row)
            if options.csv:  # after each row: what is measured is kept, whatever becomes of the next one
                seconds = time.perf_counter() - start
                write_report(options.csv, rows + found, seconds=seconds, frozen=rests_on)
        print(report(found), flush=True)
        rows += found
        if TWINS:
            print(f"targets are not judged: built-in twins stand in for {', '.join(sorted(TWINS))}")
    if options.csv and rows:
        print(f"written to {options.csv}")
    return int(any(row.verdict == "MISSED" for row in rows))


def list_studies(known):
    """Print a line for each study, by chapter: its name, its kind, what it is about."""
    width = max(map(len, known))
    for chapter, some in groupby(known.values(), lambda one: one.chapter):
        print(f"chapter {chapter}")
        for one in some:
            print(f"  {one.name:<{width}} {'timing' if one.timed else 'table '}  {one.about}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
