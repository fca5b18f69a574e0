"""python -m crfbook.benchmarking [NAME ... | all] [--repeats N] [--csv FILE]"""

import argparse
import sys
import time
from importlib.util import find_spec

from . import environment, report


def main(argv=None):
    from .records import write_report
    from .tasks import TARGETS, TASKS

    parser = argparse.ArgumentParser(prog="python -m crfbook.benchmarking", description=TARGETS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TASKS)} or all")
    parser.add_argument("--repeats", type=int, default=None, help="counted runs of each candidate")
    parser.add_argument("--csv", help="write the rows there as well")
    options = parser.parse_args(argv)
    if not options.names:
        for name, task in TASKS.items():
            print(f"{name:<18} {task.__doc__.splitlines()[0]}")
        return 0
    names = list(TASKS) if options.names == ["all"] else options.names
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        parser.error(f"expected names among {', '.join(TASKS)}; got {', '.join(unknown)}")
    if find_spec("pycrfsuite") is None:
        parser.error("python-crfsuite, the reference, is not installed: pip install python-crfsuite")
    for key, value in environment().items():
        print(f"{key}: {value}")
    rows, start = [], time.perf_counter()
    for name in names:
        print(f"... {name}", file=sys.stderr, flush=True)
        found = []
        for row in TASKS[name](**({} if options.repeats is None else {"repeats": options.repeats})):
            found.append(row)
            if options.csv:  # after each row: what is measured is kept, whatever becomes of the next one
                write_report(options.csv, rows + found, seconds=time.perf_counter() - start)
        print(report(found), flush=True)
        rows += found
    if options.csv:
        print(f"written to {options.csv}")
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
