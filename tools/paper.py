"""``make paper``: the experiments at the papers' full size (CRFBOOK_SCALE=paper); hours, not seconds.

    python -m tools.paper [NN ...]

The chapters write their tables to notebooks/results/; nothing else in notebooks/ changes.
"""

import os
import sys

from tools.chapters import chapters
from tools.execute import cell_timeout, report, run_all


def main(arguments):
    os.environ["CRFBOOK_SCALE"] = "paper"
    return report(run_all(chapters(arguments), cell_timeout()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
