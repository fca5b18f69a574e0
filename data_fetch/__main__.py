"""python -m data_fetch list | NAME... | all | verify

Exit code 0: done. 1: something could not be fetched, or is damaged. 2: the command line makes no sense.
"""

import argparse
import os
import shutil
import sys
import textwrap

from .errors import FetchError
from .registry import REGISTRY, USER_SUPPLIED, dataset, n_bytes
from .store import cache_dir, fetch, locate, mirror, verify

EPILOG = """\
environment: CRFBOOK_DATA    the cache folder
             CRFBOOK_MIRROR  a folder or http address laid out as <dataset>/<file>, tried first
exit code:   0 done; 1 a file could not be fetched or is damaged; 2 wrong usage"""


def main(arguments=None):
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m data_fetch",
        usage="%(prog)s [-h] [--timeout SECONDS] (list | NAME... | all | verify)",
        description="Download public corpora into the cache, each file checked against its sha256.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="+", metavar="WHAT", help="a command, or names of data sets")
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="seconds without progress (default: 30)",
    )
    options = parser.parse_args(arguments)
    if options.timeout <= 0:
        parser.error("--timeout: expected a number of seconds above 0")
    if show := {"list": show_list, "verify": show_verify}.get(" ".join(options.what)):
        try:
            return show()
        except FetchError as error:  # a cache or a mirror that no folder can be called
            print(error, file=sys.stderr)
            return 1
    names = list(REGISTRY) if options.what == ["all"] else list(dict.fromkeys(options.what))
    try:
        for name in names:
            dataset(name)
    except FetchError as error:
        parser.error(str(error))
    return fetch_all(names, options.timeout)


def show_list():
    """Print name, size, whether it is here, task and licence of every data set."""
    width, cache = max(60, shutil.get_terminal_size().columns), cache_dir()
    print(f"{'name':<16}{'size':>8} {'state':>6}  task and licence\n")
    for name, entry in {**REGISTRY, **USER_SUPPLIED}.items():
        here = [locate(name, filename) for filename in entry["files"]]
        state = "here" if all(here) else "partly" if any(here) else "-"
        text = f"{entry['task']}. Licence: {entry['licence']}."
        lead = f"{name:<16}{_size(name):>8} {state:>6}  "
        print(textwrap.fill(lead + text, width, subsequent_indent=" " * len(lead)))
    print("\nstate: here, partly, or - (python -m data_fetch NAME gets it)")
    print(f"cache: {cache}   mirror: {mirror() or 'none'}")
    return 0


def show_verify():
    """Print the state of every cached file; 1 if one is damaged."""
    rows = verify()
    for row in rows:
        if row.state != "absent":
            print(f"{row.state:<10}{row.name}/{row.filename}")
    damaged = [row for row in rows if row.state == "damaged"]
    n_ok = sum(row.state == "ok" for row in rows)
    print(f"{n_ok} files whole, {len(damaged)} damaged, in {cache_dir()}")
    if damaged:
        names = " ".join(dict.fromkeys(row.name for row in damaged))
        print(f"to replace what is damaged: python -m data_fetch {names}", file=sys.stderr)
    return 1 if damaged else 0


def fetch_all(names, timeout):
    """Fetch each data set, say where it went; a failure does not keep the others from being tried."""
    failed = 0
    for name in names:
        print(f"{name}  {_size(name)}  licence: {dataset(name)['licence']}", flush=True)
        try:
            for path in fetch(name, timeout=timeout).values():
                print(f"  {path}")
        except FetchError as error:
            print(f"  failed: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


def _size(name):
    return f"{n_bytes(name) / 1e6:.1f} MB" if name in REGISTRY else "-"


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit("interrupted; what was fetched completely stays in the cache")
    except BrokenPipeError:  # the reader has seen enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ModuleNotFoundError as missing:
        sys.exit(
            f"{missing.name} is not installed in {sys.executable}: "
            "use the Python that crfbook was installed with "
            "(after `make` that is .venv/bin/python, or just python after `source .venv/bin/activate`)"
        )
