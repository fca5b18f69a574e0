"""Altun, Johnson and Hofmann (2003): losses in chapter 04, perceptron and boosting in chapter 05.

Tags: our treebank is a tenth of theirs, the test part is another. Names: the parts testb and testa, of which
the paper's is probably testa (chapter 04); both decide. Boosting: the recorded CPU minute that is the best on
the other part, dev or testa.
"""

from .judge import Claim, Found, alike, less, minus, more, near, ratios, tested

NER, POS = ("s1", "s2", "s3"), ("s1", "s2")
CELLS = [("pos", one) for one in POS] + [("ner", one) for one in NER]
ACL = "the rest of the text"  # the stored copy ends inside Algorithm 2; the whole is ACL W03-1019
SAME = {"testb": "test", "p testb": "p test"}


def features_over_losses(table):
    """What the next set of features gains, mean of losses, over the larger range of losses in the two."""
    scores = table["test"].unstack()
    spread, gains = scores.max(axis=1) - scores.min(axis=1), scores.mean(axis=1).diff().iloc[1:]
    return [Found(gain / max(spread.iloc[i : i + 2])) for i, gain in enumerate(gains)]


def claims(record):
    """Yield its `Claim`s."""
    sizes = {task: record(f"04_{task}", "sentences", "template", "loss") for task in ("ner", "pos")}
    tables = {task: table.loc[table.index[-1][0]].rename(columns=SAME) for task, table in sizes.items()}
    few = sizes["ner"].loc[sizes["ner"].index[0][0]].rename(columns=SAME)

    def above(task, template, loss, base="log", part="test"):
        """Points of a loss above another one; each has a paired test against the log loss."""
        at = tables[task].loc[template]
        off = {
            one: tested(at[part][one] - at[part]["log"], at[f"p {part}"][one])
            for one in at.index
            if one != "log"
        }
        off = dict(zip(off, alike(off.values(), off.values()), strict=True))
        return off[loss] if base == "log" else minus(off[loss], off[base])

    def on_both(task_sets, *losses):
        """`above` of tags, then of names on testb, then of names on testa."""
        names = [one for one in task_sets if one[0] == "ner"]
        return [above(*one, *losses) for one in task_sets] + [
            above(*one, *losses, part="testa") for one in names
        ]

    gains = [features_over_losses(tables[task]) for task in ("pos", "ner")]
    yield Claim(
        "features matter more than the loss: gain of the next set over the range of losses; tags, names",
        more(1), [1.58, 3.15, 1.82], gains[0] + gains[1], "04, Tables 1 and 2",
    )  # fmt: skip
    yield Claim(
        "the same with fewer sentences: names", more(1), "similar", features_over_losses(few),
        "04, Tables 1 and 2",
    )  # fmt: skip
    scores = [tables[task]["test"].unstack() for task in ("pos", "ner")]
    yield Claim(
        "the losses differ little: best less worst, tags S1, S2, names S1 to S3 (below 3.5 points)",
        less(3.5), [0.34, 0.46, 3.19, 2.45, 1.71],
        [Found(x) for one in scores for x in one.max(axis=1) - one.min(axis=1)], "04, Tables 1 and 2",
    )  # fmt: skip
    yield Claim(
        "exp is below log (both sequential): tags S1, S2, names S1 to S3, on testb, testa", less(),
        [-0.34, -0.43, -0.24, -2.45, -1.51], on_both(CELLS, "exp", "log"), "04, Tables 1 and 2",
    )  # fmt: skip
    yield Claim(
        "pointwise log is below sequential log: names S1 to S3, on testb, testa", less(),
        [-3.19, -1.47, -0.45], on_both(CELLS[2:], "pointwise-log", "log"), "04, Tables 1 and 2",
    )  # fmt: skip
    yield Claim(
        "and as good on tags (within 0.3 points)", near(0, 0.3), [-0.01, 0.03],
        [above("pos", one, "pointwise-log") for one in POS], "04, Tables 1 and 2",
    )  # fmt: skip
    yield Claim(
        "pointwise exp is above sequential exp with spelling: tags S2, names S2, S3, on testb, testa", more(),
        [0.06, 2.21, 1.71], on_both([CELLS[i] for i in (1, 3, 4)], "pointwise-exp", "exp"),
        "04, Tables 1 and 2",
    )  # fmt: skip
    yield Claim(
        "a quasi-Newton method converges faster than conjugate gradients", None, "observed",
        "no record: the package has no conjugate gradients", "04, Ways to one minimum",
    )  # fmt: skip
    learners = record("05_ner", "sentences", "learner", "template").rename(columns=SAME)
    rows = learners.loc[learners.index[-1][0]]
    averaged, plain, exact = (rows.loc[one] for one in ("averaged perceptron", "perceptron", "log loss"))

    def learned(base):
        """Points of the averaged perceptron above another learner, S1 to S3 on testb, then on testa."""
        found = []
        for part in ("test", "testa"):
            tests = [tested(averaged[part][one] - base[part][one], base[f"p {part}"][one]) for one in NER]
            found += alike(tests, tests)
        return found

    yield Claim(
        "the perceptron is close to log: names S1 to S3, on testb, testa (within 1 point)", near(0, 1),
        [-0.15, -0.46, -0.65], learned(exact), "05, Table 3",
    )  # fmt: skip
    yield Claim(
        f"the averaged perceptron is better than the plain one, which fluctuates: testb, testa ({ACL})",
        more(), "averaged reported", learned(plain), "05, Table 3",
    )  # fmt: skip
    batch = record("05_batch_ner", "learner").groupby(level=0).last()
    online, whole = (batch.loc[name, ["testb", "testa"]] for name in ("online, mean", "batch, mean"))
    yield Claim(
        f"the batch perceptron comes closer: its mean's F1 above the online mean's, testb, testa ({ACL})",
        None, "a closer approximation",
        " / ".join(f"{x:+.2f}" for x in whole - online) + ": no paired test is recorded", "05, Table 3",
    )  # fmt: skip
    yield Claim(
        "the perceptron converges faster than the exact method: log's CPU seconds over its own", more(1),
        "it may", ratios(*([table["seconds"][one] for one in NER] for table in (exact, averaged))),
        "05, Table 3",
    )  # fmt: skip
    boosted = {}
    for task in ("pos", "ner"):
        table = record(f"05_boosting_{task}").rename(columns=SAME)
        chosen = table.groupby("template")[{"pos": "dev", "ner": "testa"}[task]].idxmax()
        boosted |= {(task, one): table.loc[row] for one, row in chosen.items()}
    beside = [boosted["ner", one] for one in NER]
    yield Claim(
        "boosting is below the perceptron: names S1 to S3", less(), [-11.54, -3.18, -1.9],
        [tested(one["test"] - averaged["test"][one["template"]], one["p test"]) for one in beside],
        "05, Table 3",
    )  # fmt: skip

    def below_exp(task, template):
        """Boosting less exp; no test has both, and the error is that of exp's test against log."""
        gap = boosted[task, template]["test"] - tables[task]["test"][template, "exp"]
        return Found(gap, above(task, template, "exp").error)

    gaps = [below_exp(*cell) for cell in CELLS]
    yield Claim(
        "boosting is below exp, whose loss it lowers: tags S1, S2, names S1 to S3", less(),
        [-5.15, -0.33, -11.45, -1.19, -1.04], gaps, "05, Table 3",
    )  # fmt: skip
    yield Claim(
        "and nearer to it with more features: tags S1 to S2, names S1 to S2, S2 to S3", more(),
        [4.82, 10.26, 0.15], [minus(gaps[i], gaps[i - 1]) for i in (1, 3, 4)], "05, Table 3",
    )  # fmt: skip
    taken = [Found(boosted[task, one]["active"] / tables[task]["active"][one, "log"]) for task, one in CELLS]
    yield Claim(
        f"with S1 boosting takes in nearly all features: share of log's; tags, names ({ACL}; above 0.8)",
        more(0.8), "nearly all", [taken[0], taken[2]], "05, Table 3",
    )  # fmt: skip
    yield Claim(
        "boosting is sparse: share of log's weights; tags S2, names S2, S3 (below 0.5)", less(0.5), "sparse",
        [taken[1], *taken[3:]], "05, Table 3",
    )  # fmt: skip
