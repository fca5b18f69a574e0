"""What each paper claims, beside what the records say: `claims("jeong2009")`, a table for its last chapter.

Numbers of ours come from the records alone, each with its error: half of a 95 % interval, of random subsets,
of repeats or of a paired test. `print(VERDICTS)` says what a verdict means. ledger.py has all of them on one
page, and errors of the papers.
"""

from importlib import import_module
from pathlib import Path
from textwrap import wrap

import numpy as np

from ..records import RESULTS, read_record
from .judge import VERDICTS, decided, shown, verdict

__all__ = ["PAPERS", "VERDICTS", "Narrow", "claims", "listed"]

WIDTH = 96  # of a line of text

PAPERS = {  # the chapter that has the table, and the paper
    "altun2003": ("05", "Altun, Johnson and Hofmann (2003)"),
    "sokolovska2010": ("09", "Sokolovska, Lavergne, Cappe and Yvon (2010)"),
    "jeong2009": ("10", "Jeong, Lin and Lee (2009)"),
    "kaji2010": ("11", "Kaji, Fujiwara, Yoshinaga and Kitsuregawa (2010)"),
    "sutton2004": ("13", "Sutton, Rohanimanesh and McCallum (2004)"),
}


def listed(paper, folder=RESULTS):
    """The `Claim`s of a paper of PAPERS, from the records of a folder."""

    def record(name, *keys):
        """The rows of NN_<table> as a DataFrame, numbers as numbers; keys: the columns of its index."""
        import pandas as pd

        table = pd.DataFrame(read_record(Path(folder) / f"{name}.csv")[1]).map(_number)
        return table.set_index(list(keys)).sort_index(kind="stable") if keys else table

    return list(import_module(f"{__name__}.{paper}").claims(record))


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text or np.nan


def claims(paper, folder=RESULTS):
    """The table of a paper, a `Claim` a row. A record that changes it changes verdicts."""
    import pandas as pd

    rows = []
    for claim, rule, theirs, ours, where, unjudged, budget in listed(paper, folder):
        judged = verdict(rule, ours, unjudged), decided(rule, ours)
        rows.append([claim, shown(theirs, rule), shown(ours, rule), budget, *judged, where])
    return pd.DataFrame(rows, columns=["claim", "paper", "ours", "budget", "verdict", "decided", "where"])


class Narrow:
    """Some rows of `claims` to show: a table in HTML; as text a paragraph a claim, in short lines.

    What the rows were given to spend stands once, in `budgets`, not in a column.
    """

    def __init__(self, rows):
        self.table = rows.set_index("claim").drop(columns=["budget", "where"])
        self.budgets = rows[["where", "budget"]].drop_duplicates().query("budget != '-'")

    def _repr_html_(self):
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            return self.table._repr_html_()

    def __repr__(self):
        lines = []
        for claim, row in self.table.iterrows():
            lines += wrap(claim, WIDTH)
            for name, text in row.items():
                lines += wrap(text, WIDTH, initial_indent=f"    {name:9}", subsequent_indent=" " * 13)
        return "\n".join(lines)
