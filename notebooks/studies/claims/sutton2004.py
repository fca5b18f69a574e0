"""Sutton, Rohanimanesh and McCallum (2004): Table 1 in chapter 12, Table 3 in chapter 13.

The paper's cliques are not certain (chapter 12): its model as in (4), and one with weights for single labels.
"""

from crfbook.evaluation import holm

from .judge import Found, at, less, mean_of, minus, more, near, significant, tested

MODELS = {  # their lexica differ, too
    "(4), lexicon with test tags": "NP, lexicon of everything, pairs",
    "single labels, lexicon of training": "NP, lexicon of all training sentences",
}
SIZES = 223, 447, 670, 894, 2234, 8936
PAPER = {  # FCRF less CRF+CRF, by SIZES
    "POS": [6.89, 4.99, 4.01, 3.29, 1.69, 0.64], "joint": [7.27, 5.27, 4.18, 3.54, 1.9, 0.92],
    "F1": [2.19, 1.72, 1.45, 1.34, 0.95, 0.77],
}  # fmt: skip
NAMES = {
    "POS": "FCRF's tags are better than those of a chain of tags",
    "joint": "FCRF is above CRF+CRF in both labels right",
    "F1": "FCRF is above CRF+CRF in F1 of noun phrases",
}


def claims(record):
    """Yield its `Claim`s."""
    table = record("12_table", "setting", "arm", "size", "seed")
    for model, setting in MODELS.items():
        yield from table_1(table.loc[setting], model)
    targets = record("12_targets", "work")
    note = targets.loc["POS x NP, all sentences: value and gradient", "note"]
    labels = [float(n) for n in note.split(",")[0].split("x")]
    pairs = labels[0] ** 2 + labels[1] ** 2 + labels[0] * labels[1]
    single = table.loc[MODELS["single labels, lexicon of training"], "weights"].xs(8936, level="size")
    weights = single.groupby("arm").first()
    yield from at("12, The paper's claims",
        ("FCRF has less than an eighth of the weights of the chain of pairs: its share, all possible / seen",
         less(1 / 8), "below 0.125",
         [Found(pairs / (labels[0] * labels[1]) ** 2), Found(weights["FCRF"] / weights["flat"])]),
    )  # fmt: skip
    yield from table_3(record)


def table_1(table, model):
    """Its claims on labelling; table : (arm, size, seed) of one of MODELS."""

    def difference(measure, arm, base, size, base_size=None):
        """arm less base: mean over subsets; of a single one, by its paired tests. None: not measured."""
        if size not in table.loc[arm].index or (base_size or size) not in table.loc[base].index:
            return None
        a, b = table.loc[arm].loc[size], table.loc[base].loc[base_size or size]
        if len(a) > 1 or base_size:
            return mean_of((a[measure] - b[measure]).dropna())
        first = table.loc["CRF+CRF", measure].loc[size].iloc[0]  # every arm is tested against it
        beside = [tested(one[measure].iloc[0] - first, one[f"p {measure}"].iloc[0]) for one in (a, b)]
        return beside[0] if base == "CRF+CRF" else minus(*beside)

    def found(*cases, none="not measured"):
        return [one for one in (difference(*case) for case in cases) if one] or none

    drawn = table.loc["FCRF"].groupby("size").size()
    drawn = " / ".join(str(drawn.get(n, 0)) for n in SIZES)
    budget = f"budget: subsets, by size: 5 / 5 / 5 / 5 / 5 / 1; ours {drawn}"
    for measure, claim in NAMES.items():
        yield from at("12, Table 1", budget,
            (f"{claim}: points, by size; {model}", more(), PAPER[measure],
             found(*((measure, "FCRF", "CRF+CRF", n) for n in SIZES))),
        )  # fmt: skip
    from scipy.stats import ttest_ind

    sizes = [n for n in SIZES if n in table.loc["FCRF"].index]
    f1 = [[table.loc[arm, "F1"].loc[n] for arm in ("FCRF", "CRF+CRF")] for n in sizes]
    p = [ttest_ind(a, b).pvalue for a, b in f1 if len(a) > 1]
    spread = table.loc["FCRF", "F1"].groupby("size").std().dropna()
    yield from at("12, Table 1", budget,
        (f"F1 differs at all sizes, t-test: p with Holm's correction (below 0.002); {model}",
         significant(0.002),
         "below 0.002", [Found(one) for one in holm(p)]),
        (f"FCRF has about the F1 of Brill+CRF, up to 2,234 sentences (within 0.3 points); {model}",
         near(0, 0.3), [0.01, 0.03, -0.01, 0.24, 0.12],
         found(*(("F1", "FCRF", "Brill+CRF", n) for n in SIZES[:-1]))),
        (f"and a better one on all sentences; {model}", more(), [0.54],
         found(("F1", "FCRF", "Brill+CRF", SIZES[-1]))),
        (f"FCRF needs half of CRF+CRF's sentences: F1 less that of twice as many (-1 or more); {model}",
         more(-1), [-0.84, -0.62],
         found(*(("F1", "FCRF", "CRF+CRF", n, twice) for n, twice in ((223, 447), (447, 894))))),
        "12, Figure 4", budget,
        (f"F1 varies little over subsets: FCRF's standard deviation, mean of sizes (below 0.6); {model}",
         less(0.6), [0.39], [Found(spread.mean())]),
    )  # fmt: skip


def table_3(record):
    """Its claims on training with approximate inference."""
    training = record("13_training", "inference", "seed")

    def slower(a, b, column="CPU s"):
        """CPU seconds of a over those of b, mean of the seeds' ratios."""
        return mean_of(training.loc[a, column] / training.loc[b, column])

    def off(a, b="exact"):
        return mean_of(training.loc[a, "F1"] - training.loc[b, "F1"])

    early = [("random (3)", "random"), ("tree (3)", "tree")]
    means = [training.loc[name, "F1"].mean() for name in ("exact", "random", "tree", "random (3)")]
    schedules = record("13_schedules", "part", "schedule")["without a fixed point"]
    stops = "budget: L-BFGS's own stop; ours a certificate of 1e-4"
    yield from at("13, Table 2", stops,
        ("approximate inference trains faster than exact: its seconds over random's, tree's", more(1),
         [1.55, 1.51], [slower("exact", name) for name in ("random", "tree")]),
        ("with no loss in F1: random, tree less exact (within 0.3 points)", near(0, 0.3), [-0.03, 0.04],
         [off("random"), off("tree")]),
        ("little difference between schedules, F1: tree less random (within 0.3 points)", near(0, 0.3),
         [0.07], [off("tree", "random")]),
        ("and time: tree's seconds over random's (within 0.25 of 1)", near(1, 0.25), [1.02],
         [slower("tree", "random")]),
        ("three iterations take longer in total than convergence: seconds over seconds", more(1),
         [1.18, 1.02], [slower(*pair) for pair in early]),
        ("and lower F1: three iterations less convergence", less(), [-0.03, -0.65],
         [off(*pair) for pair in early]),
        ("tree (3) ends too early: its L-BFGS iterations over tree's", less(1), [0.495],
         [slower("tree (3)", "tree", "iterations")]),
        ("F1 varies more over subsets than over inference: standard deviation over the largest difference",
         more(1), [5.3], [Found(training.loc["exact", "F1"].std() / (max(means) - min(means)))]),
        "13, Table 1",
        ("belief propagation always converged: sentences that did not settle, random, tree; train, test",
         near(0, 0.5), [0],
         [Found(schedules[part, name]) for part in ("train", "test") for name in ("random", "tree")]),
    )  # fmt: skip
