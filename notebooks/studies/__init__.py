"""What the chapters and README measure: timings, and the tables of `make paper`.

    python -m studies                                     # what there is, by chapter; in notebooks/
    python -m studies gradient viterbi --csv rows.csv     # timings beside their reference
    python -m studies loss-table-ner                      # a table: its records in results/

`harness` declares, times, judges and records a study, `work` loads what it works on, `crfsuite` trains the
peer; cNN.py, and cNN_part.py, have the studies of chapter NN; `contest` sets anybody's taggers side by side.
Only chapters, tools and tests import this.
"""

import inspect
import re
from importlib import import_module
from pkgutil import iter_modules

from .harness import STUDIES, Clocked, Row, race
from .records import fill_all, read_record, recorded, require_clean, write_record

__all__ = [
    "Clocked", "Row", "measure", "race", "read_record", "recorded", "run", "source",
    "studies", "write_record",
]  # fmt: skip


def source(function):
    """The text of a function, to be shown: a kernel's without its docstring, any other's whole."""
    text = inspect.getsource(getattr(function, "py_func", function)).rstrip()
    if not text.startswith("@kernel"):
        return text
    before, _, after = text.partition('"""')
    return before.rstrip() + after.partition('"""')[2]


def studies():
    """{name: Study} of all chapters, in their order."""
    for module in sorted(found.name for found in iter_modules(__path__)):
        if re.fullmatch(r"c\d\d(_\w+)?", module):
            import_module(f"{__name__}.{module}")
    return dict(sorted(STUDIES.items(), key=lambda item: item[1].chapter))


def find(name, kind):
    """The study of that name; ValueError if there is none of this kind ("timings" or "tables")."""
    known = {key: one for key, one in studies().items() if one.timed == (kind == "timings")}
    if name not in known:
        raise ValueError(f"{kind}: expected names among {', '.join(known)}; got {name}")
    return known[name]


def run(*names, folder="results", dirty=False, **options):
    """Make the records of these tables in `folder`; an interrupted run goes on. Kernels, BLAS on one thread.

    options: arguments of the study, such as `n_words` for a small one. Returns the paths. RuntimeError where
    files of the package are not committed, unless dirty=True.
    """
    from crfbook.chain.sparse.choice import never_tiny
    from crfbook.training.threads import one_blas_thread

    tables = [find(name, "tables") for name in names]
    if not dirty:
        require_clean()
    with one_blas_thread(), never_tiny():
        return [path for table in tables for path in fill_all(table.run(**options), folder, table.frozen)]


def measure(name, **options):
    """Yield the `Row`s of a timing of kernels, BLAS on one thread.

    options: `repeats`, counted runs of each candidate.
    """
    from crfbook.chain.sparse.choice import never_tiny
    from crfbook.training.threads import one_blas_thread

    with one_blas_thread(), never_tiny():
        yield from find(name, "timings").run(**options)
