"""``make paper``: the experiments at the papers' full size (CRFBOOK_SCALE=paper); hours, not seconds.

    python -m tools.paper [NN ...]

The chapters write their tables to notebooks/results/, by notebooks/studies; nothing else in
notebooks/ changes. A chapter after which a record of its studies is still the old one has failed.
"""

import os
import sys
import time

from studies import studies
from tools.chapters import NOTEBOOKS, asked_for_help, chapters
from tools.execute import cell_timeout, report, run_all

# text of the reader's own, by hand; programs that the reader builds, or installs
OWN_FILES = "conll2003", "_built", "14_chains", "14_neural"


def left_out(chapter, since, folder=NOTEBOOKS / "results"):
    """Records that the table studies of a chapter ("04") should write and have not since that time."""
    tables = [one for one in studies().values() if one.chapter == chapter and not one.timed]
    paths = [
        folder / name for one in tables for name in one.files if not any(own in name for own in OWN_FILES)
    ]
    return [path.name for path in paths if not path.exists() or path.stat().st_mtime < since]


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    os.environ["CRFBOOK_SCALE"], start = "paper", time.time()

    def complain(run):
        missing = left_out(run.path.stem[:2], start)
        return f"these records of its studies were not written: {', '.join(missing)}" if missing else ""

    return report(run_all(chapters(arguments), cell_timeout(), after=complain))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
