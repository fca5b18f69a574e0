"""``make outputs``: run the chapters in place and store what they print, cleaned.

    python -m tools.outputs [NN ...]

The stored outputs of the book are from the real data: set CRFBOOK_MIRROR, or fetch the corpora, before.
A chapter that fails, or writes to stderr (warnings, progress bars), keeps its old outputs.
"""

import sys

from tools.chapters import asked_for_help, chapters, normalise, write
from tools.execute import cell_timeout, report, run_all, stream_text


def store(run):
    """Write the chapter with its new outputs, or say why not."""
    complaint = stream_text(run.nb, "stderr").strip()
    if complaint:
        return f"nothing stored: a chapter may not write to stderr, but this one wrote\n{complaint}"
    write(normalise(run.nb), run.path)
    return ""


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    runs = run_all(chapters(arguments), cell_timeout(), after=store)
    status = report(runs)
    twins = sorted(
        {f"{r.path.stem[:2]}: {name}" for r in runs for name, source in r.data.items() if "twin" in source}
    )
    if twins:
        print(
            "Note: built-in twins stood in for "
            + ", ".join(twins)
            + "; the book's stored outputs should be from the real data."
        )
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
