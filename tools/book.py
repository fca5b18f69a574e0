"""``make book``: run the chapters and write them as HTML below build/book/.
The notebooks themselves stay untouched.

python -m tools.book [NN ...]
"""

import sys

from tools.chapters import ROOT, asked_for_help, chapters
from tools.execute import cell_timeout, report, run_all
from tools.pages import write_index, write_page

BUILD = ROOT / "build" / "book"


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    paths = chapters(arguments)
    if not paths:
        raise SystemExit("no chapters in notebooks/")
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise SystemExit(f"expected a folder {BUILD.relative_to(ROOT)}, found a file of that name") from None
    runs = run_all(paths, cell_timeout())
    for run in runs:
        write_page(run, BUILD, runs)
    index = write_index(runs, BUILD)
    status = report(runs)
    print(f"HTML: {index.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
