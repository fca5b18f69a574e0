"""``make book``: run the chapters and write all pages of the book as HTML below build/book/.
The notebooks themselves stay untouched. A chapter that is not run shows its stored outputs.

python -m tools.book [NN ...]
"""

import sys

from tools.chapters import ROOT, asked_for_help, chapters
from tools.execute import cell_timeout, report, run_all
from tools.site import build

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
    status = report(runs)
    made = build(BUILD, runs)
    print(f"HTML: {(BUILD / 'index.html').relative_to(ROOT)}")
    return status or made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
