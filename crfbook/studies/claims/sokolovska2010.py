"""Sokolovska, Lavergne, Cappe and Yvon (2010), chapters 06 to 09.

Their simulated model is not printed: ours was fitted to errors and counts of their Table 1 (chapter 07), so
what it agrees with there is no finding. CoNLL-2003 may not be passed on: names are Spanish ones of
CoNLL-2002 and those of WNUT-17, and a claim is judged by both. Times of both methods at the same steps of one
path are those of WNUT-17 alone.
"""

import numpy as np

from .judge import Claim, Found, less, minus, more, near, ratio, ratios, slope, tested

SETS = "pseudo_ngrams_3", "ngrams_3", "pseudo_ngrams_5", "ngrams_5"
FITTED = "by construction: the simulated model was fitted to these numbers"


def claims(record):
    """Yield its `Claim`s."""
    yield from simulation(record("07_simulation", "model"))
    yield from sparse_sums(record)
    yield from letters(record)
    yield from contexts(record)
    yield from selections([record(f"09_selection_{task}", "selection") for task in ("ner", "wnut17")])
    seconds = [record(f"09_{kind}_wnut17", "setting")["seconds"] for kind in ("sbcd", "path")]
    yield Claim(
        "OWL-QN is faster than SBCD with few labels and large blocks: SBCD's seconds over its own, WNUT-17",
        more(1), [8.4], ratios(*seconds), "09, Figure 6, recorded",
    )  # fmt: skip


def simulation(table):
    """Figure 2 and Table 1 of the paper; errors of means over its 100 replications."""
    half = 1.96 * table["sd test"] / np.sqrt(table["replications"])
    test = {name: Found(table["test"][name], half[name]) for name in table.index}
    yield Claim(
        "pairs alone are worse than single labels alone: test error of M2 less M3", more(), "much worse",
        [minus(test["M2"], test["M3"])], "07, Table 1",
    )  # fmt: skip
    for claim, paper in (("both together are best under L2: M1 beside M3", "lowest"),
                         ("with the right c1, L1 is as good as L2: M7 beside M1", "-0.6 points"),
                         ("training error says more of test error with L1", "0.63 of the gap")):  # fmt: skip
        yield Claim(claim, None, paper, FITTED, "07, Table 1", "fitted")


def sparse_sums(record):
    """Figure 5, and labelling."""
    forms = record("06_sparse_forms").set_index("edge weights")
    few, many = forms.loc[:10_000], forms.loc[10_001:]
    lists, own = "sparse, lists only", "one by one"
    noise = forms[own].max() / forms[own].min()  # of forms timed in turn: active pairs do not change this one
    yield Claim(
        "few active pairs speed up a gradient: tables over lists, word by word, to 10,000 pairs", more(1),
        "yes", ratios(few[own], few[lists], noise), "06, Figure 5",
    )  # fmt: skip
    yield Claim(
        "above 10,000 active pairs lists are slower: lists over tables, word by word", more(1), "slower",
        ratios(many[lists], many[own], noise), "06, Figure 5",
    )  # fmt: skip
    yield Claim(
        "the same beside batched tables, which the paper has not: batched over lists, to 10,000 pairs",
        more(1), "yes", ratios(few["batched"], few[lists], noise), "06, Figure 5",
    )  # fmt: skip
    yield Claim(
        "to 10,000, time is proportional to active pairs: the power of lists (within 0.3 of 1)", near(1, 0.3),
        [1], [slope(few.index, few[lists])], "06, Figure 5",
    )  # fmt: skip
    sweep = record("06_training_speed", "c1")["sweep"]
    yield Claim(
        "sparser models train several times faster: a sweep at c1 = 0 over one at c1 = 10 (above 2)", more(2),
        [5], [ratio(sweep[0.0], sweep[10.0])], "06, Figure 5",
    )  # fmt: skip
    tagging = record("08_tagging", "form")["decode"]
    yield Claim(
        "sparse Viterbi labels faster: dense over sparse seconds", more(1), "yes",
        [ratio(tagging["dense"], tagging["sparse"])], "08, Table 3",
    )  # fmt: skip


def letters(record):
    """Table 2; L1 where about 95 % of the pair weights are zero, as in the paper."""
    by = record("08_letters", "method")
    path, rest, from_zero = (
        by.loc["SBCD"].set_index("c1"),
        by.loc["L-BFGS, at rest"],
        by.loc["SBCD, from zero"],
    )
    zeros = 1 - path["lambda"] / rest["lambda"]
    lean = path.loc[(zeros - 0.95).abs().idxmin()]
    yield Claim(
        "with 95 % of the pair weights 0, L1 is as accurate as L2: error less L-BFGS's (within 0.5 points)",
        near(0, 0.5), [0.1], [tested(lean["test"] - rest["test"], lean["p"])], "08, Table 2",
    )  # fmt: skip
    yield Claim(
        "SBCD and OWL-QN are as accurate", None, "18.7 / 18.7",
        "no paired test between the two is recorded", "08, Table 2",
    )  # fmt: skip
    for name, times in {"OWL-QN": 165 / 70, "L-BFGS": 302 / 70}.items():
        spent = [
            [_seconds(row[unit]) for row in (by.loc[name], from_zero)] for unit in ("seconds", "s to 1 %")
        ]
        yield Claim(
            f"SBCD is faster than {name}: its seconds over SBCD's; the paper's iterations, to 1 % off (or all"
            " that was given)", more(1), [times], [ratio(*pair) for pair in spent], "08, Table 2",
        )  # fmt: skip
    epochs = record("08_epochs", "epochs")
    yield Claim(
        "SGD ends worse on this task: error less L-BFGS's, 10 to 40 epochs (ours averages its iterates)",
        more(), [5.0], [tested(one["test"] - rest["test"], one["p"]) for _, one in epochs.iterrows()],
        "08, Table 2",
    )  # fmt: skip
    yield Claim(
        "and takes the least time: its seconds over SBCD's from zero", less(1), [0.24],
        [ratio(by.loc["SGD", "seconds"], from_zero["seconds"])], "08, Table 2",
    )  # fmt: skip


def _seconds(text):
    """Of a row; "not in 60": as many were not enough."""
    return float(str(text).removeprefix("not in "))


def contexts(record):
    """Table 3; one c1, chosen for n-grams of five letters, for all sets."""
    table, sizes = record("08_ngrams", "template", "sweeps"), record("08_candidates", "template")["million"]
    yield Claim(
        "millions of candidate weights", None, "0.236 / 14.2 / 0.399 / 121",
        " / ".join(f"{sizes[name]:.3g}" for name in SETS) + ": another file, with 51 labels", "08, Table 3",
        "other data",
    )  # fmt: skip
    paired = record("08_paired", "before", "after")
    pairs = [("pseudo_ngrams_3", "ngrams_3"), ("pseudo_ngrams_5", "ngrams_5")]
    yield Claim(
        "n-grams beat pseudo n-grams: points of error fewer, 3 and 5 letters", more(), [0.63, 0.15],
        [tested(paired.loc[pair, "difference"], paired.loc[pair, "p"]) for pair in pairs], "08, Table 3",
    )  # fmt: skip
    at = table.xs(20, level="sweeps")
    yield Claim(
        "and are faster: pseudo n-grams' seconds over theirs, 20 sweeps", more(1), "yes",
        [ratio(at["seconds"][one], at["seconds"][other]) for one, other in pairs], "08, Table 3",
    )  # fmt: skip
    active = at["mu"] + at["lambda"]
    yield Claim(
        "both extract about as many features: n-grams over pseudo n-grams (within 0.25 of 1)",
        near(1, 0.25), [1.02, 1.1], [Found(active[other] / active[one]) for one, other in pairs],
        "08, Table 3",
    )  # fmt: skip
    early, last = table.loc["ngrams_5"].loc[8], table.loc["ngrams_5"].iloc[-1]
    yield Claim(
        "5-grams: phoneme error",
        None,
        "6.5",
        f"{last['test']:.2f}: another split of other data",
        "08, Table 3",
        "other data",
    )
    yield Claim(
        "5-grams are soon there: error after 8 of our sweeps, 9 of theirs, less the last's (below 0.5)",
        less(0.5), [0.06], [Found(early["test"] - last["test"], 1.96 * last["standard error"])],
        "08, Table 3",
    )  # fmt: skip
    yield Claim(
        "few are ever active: share of 5-grams' candidates after 8 of our sweeps, 9 of theirs (below 0.001)",
        less(0.001), [0.000226], [Found((early["mu"] + early["lambda"]) / sizes["ngrams_5"] / 1e6)],
        "08, Table 3",
    )  # fmt: skip


def selections(tables):
    """Figure 6 on two texts, points of F1 of one selection above another, feature for feature."""

    def above(name, other, low=0, high=np.inf, sign=1):
        found = []
        for table in tables:
            rows = table.loc[[name]].dropna(subset=f"p {other}")
            rows = rows[(rows["features"] >= low) & (rows["features"] < high)]
            gains = zip(rows[f"gain {other}"], rows[f"p {other}"], strict=True)
            found += [tested(sign * gain, p) for gain, p in gains]
        return found

    where = "09, Figure 6, recorded"
    yield Claim(
        "mutual information is better than a cut-off: points of F1, Spanish, WNUT-17", more(),
        "clearly dominates",
        above("cut-off", "MI", sign=-1), where,
    )  # fmt: skip
    yield Claim(
        "thresholding is better than mutual information, 10,000 features and more: points of F1, Spanish, "
        "WNUT-17", more(), "more efficient", above("threshold", "MI", low=10_000), where,
    )  # fmt: skip
    yield Claim(
        "and fails with fewer: points of F1, Spanish, WNUT-17",
        less(),
        "cannot be used",
        above("threshold", "MI", high=10_000),
        where,
    )
    for name in ("mutual information", "cut-off", "threshold"):
        yield Claim(
            f"L1 is best at equal size: points of F1 above {name}, Spanish, WNUT-17", more(), "lowest error",
            above(name, "L1", sign=-1), where,
        )  # fmt: skip
