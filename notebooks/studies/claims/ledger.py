"""All claims of the five papers on one page, counted by verdict; and the errors found in the papers."""

from typing import NamedTuple

from ..records import RESULTS
from . import PAPERS, claims

JUDGED = "holds", "holds where decided", "weaker", "undecided", "mixed", "reversed"
UNTESTED = "not tested", "not finished", "other data"
GROUPS = *JUDGED, "not tested", "seen, not judged"


def group(verdict):
    """The one of GROUPS: "weaker" and "reversed" also where decided; without a rule, was it tested?"""
    short = verdict if verdict in JUDGED else verdict.removesuffix(" where decided")
    return short if short in JUDGED else "not tested" if verdict in UNTESTED else "seen, not judged"


def linked(where):
    """The file of a chapter, of "NN, " and a place in it."""
    return next(RESULTS.parent.glob(f"{where[:2]}_*.ipynb")).name


def sentence(row):
    """What is claimed, our numbers and the verdict, as one sentence."""
    claim = row.claim[0].upper() + row.claim[1:]
    return f"{claim}: {row.ours}; {row.verdict}."


def ledger(folder=RESULTS):
    """A row for each claim: paper, sentence, verdict, its group, how many of its numbers are decided, where
    our numbers stand, and the file of that chapter.
    """
    import pandas as pd

    rows = []
    for key, (_, paper) in PAPERS.items():
        for row in claims(key, folder).itertuples():
            about = {"verdict": row.verdict, "group": group(row.verdict), "decided": row.decided}
            place = {"where": row.where, "link": linked(row.where)}
            rows.append({"paper": paper, "sentence": sentence(row), **about, **place})
    return pd.DataFrame(rows)


def counted(table):
    """How many claims of each paper are in each of GROUPS, and of all; table : of `ledger`."""
    import pandas as pd

    counts = pd.crosstab(table["paper"], table["group"]).reindex(columns=GROUPS, fill_value=0)
    counts = counts.reindex(table["paper"].unique())
    counts.loc["all"] = counts.sum()
    return counts.assign(claims=counts.sum(axis=1))


class Erratum(NamedTuple):
    """What a paper prints, what is right, and where that is shown."""

    paper: str  # key of PAPERS
    place: str
    printed: str
    right: str
    where: str  # "NN, " and a heading of that chapter
    spec: str  # its section of the formulas


ERRATA = (
    Erratum("altun2003", "4.2", "the training part for names has about 7,200 sentences",
            "that file has 8,323; the paper does not say which are left out", "04, Where ours differ", "E.6"),
    Erratum("jeong2009", "after (9)", "the average number of active states is 1/T sum_t |A_i|",
            "1/L sum_i |A_i|, the numbers of its Table 1", "10, The corpora", "D.1"),
    Erratum("jeong2009", "(9)", "the sum is over i in A_j", "over all i whose own set A_i holds j",
            "10, Failure gallery", "D.2"),
    Erratum("jeong2009", "(10)", "the second maximum is over all labels",
            "over the labels outside A_i: else an active pair below omega counts as omega",
            "10, Equation (10) as printed", "D.5"),
    Erratum("jeong2009", "Table 2", "Method 2 has 95.7 and 87.4 where Sparse has 95.9 and 88.4",
            "the same, as it is the same model, decoded exactly", "10, Accuracy", "D.7"),
    Erratum("sokolovska2010", "Table 2", "OWL-QN has 1,864 active label weights",
            "26 letters and 53 labels have 1,378", "08, Table 2", "A.18"),
    Erratum("sokolovska2010", "Tables 2, 3", "74,412 weights for a letter; 0.236 million for 81 tests",
            "two rules: the first leaves out a label before the first token, the second counts it",
            "08, Tests and candidates", "A.1"),
    Erratum("sutton2004", "4.2", "a run has converged when no message changes by more than 0.001",
            "a tree drawn again changes nothing: every edge must have been used since the last change",
            "13, Failure gallery", "B.4"),
)  # fmt: skip


def errata():
    """ERRATA as a table, with the link of its chapter. None was found in Kaji and others (2010)."""
    import pandas as pd

    rows = [{**one._asdict(), "paper": PAPERS[one.paper][1], "link": linked(one.where)} for one in ERRATA]
    return pd.DataFrame(rows)
