"""Kaji, Fujiwara, Yoshinaga, Kitsuregawa (2010), chapter 11: 45, 319, 2,602 labels; ours 44, 319, 2,322."""

from itertools import pairwise

import numpy as np

from .judge import Found, at, less, minus, more, near, over, ratios

TASKS = "pos", "joint", "supertags"
SD, EXPANDED = "staggered", "staggered-columns"  # SD+C-EXP
MEAN = "budget: all test sentences; ours the first 200"


def us(decoders, name, tasks=TASKS):
    """Microseconds a word, half of their range over three processes as error."""
    rows = [decoders.loc[name, task] for task in tasks]
    return [Found(row["us a token"], (row["slowest"] - row["fastest"]) / 2, df=0) for row in rows]


def faster(decoders, name, base, tasks=TASKS):
    """How many times as fast as base."""
    return [over(a, b) for a, b in zip(us(decoders, base, tasks), us(decoders, name, tasks), strict=True)]


def fewer(decoders, name, base, tasks=TASKS):
    """How many times fewer pairs of labels a word than base: counts, without an error."""
    seen = decoders["pairs a token"]
    return [Found(seen[base, task] / seen[name, task]) for task in tasks]


def sweeps(decoders, name, tasks=TASKS):
    """Sweeps a sequence, with their 95 % interval as error."""
    rows = [decoders.loc[name, task] for task in tasks]
    return [Found(row["sweeps"], 1.96 * row["sweeps error"]) for row in rows]


def claims(record):
    """Yield its `Claim`s."""
    decoders = record("11_decoders", "model", "decoder", "task").loc["perceptron"]
    yield from of_seconds(decoders)
    yield from of_sweeps(decoders)
    yield from of_training(record)
    yield from of_beams(record, decoders)


def of_seconds(decoders):
    """Table 1: times as fast."""
    speed = faster(decoders, EXPANDED, "plain")
    opened = faster(decoders, "carpediem", "plain")
    words = [f"{decoders.loc[EXPANDED, task]['tokens']:,.0f}" for task in TASKS]
    yield from at("11, Table 1", f"budget: all test sentences; ours {' / '.join(words)} words",
        ("C-EXP decodes faster than Viterbi: times as fast", more(1), [3.5, 20.8, 273], speed),
        ("by orders of magnitude with thousands of labels (100 or more)", more(100, none=1), [273],
         speed[2:]),
        ("its gain grows with the labels: 319 over 45, thousands over 319", more(1), [5.9, 13.1],
         [over(b, a) for a, b in zip(speed, speed[1:], strict=False)]),
        ("C-EXP is faster than CarpeDiem: times as fast", more(1), [1.63, 31.4, 1150],
         faster(decoders, EXPANDED, "carpediem")),
        ("SD, too, decodes faster than Viterbi: times as fast", more(1), [2.2, 11, 110],
         faster(decoders, SD, "plain")),
        ("C-EXP is faster than SD: times as fast", more(1), [1.59, 1.88, 2.48],
         faster(decoders, EXPANDED, SD)),
        ("CarpeDiem is faster than Viterbi with 45 labels: times as fast", more(1), [2.15], opened[:1]),
        ("and slower with 319 and with thousands: times as fast", less(1), [0.66, 0.24], opened[1:]),
    )  # fmt: skip
    none, columns = "no count", fewer(decoders, EXPANDED, "plain")
    yield from at("11, Table 1b", "budget: as in Table 1; pairs do not depend on the machine",
        ("C-EXP looks at fewer pairs of labels than Viterbi: times fewer", more(1), none, columns),
        ("its gain in pairs grows with the labels: 319 over 45, thousands over 319", more(1), none,
         [over(b, a) for a, b in pairwise(columns)]),
        ("SD looks at fewer pairs than Viterbi: times fewer", more(1), none, fewer(decoders, SD, "plain")),
        ("C-EXP looks at fewer pairs than CarpeDiem: times fewer", more(1), none,
         fewer(decoders, EXPANDED, "carpediem")),
        ("C-EXP looks at fewer pairs than SD: times fewer", more(1), none, fewer(decoders, EXPANDED, SD)),
        ("CarpeDiem looks at fewer pairs than Viterbi: times fewer", more(1), none,
         fewer(decoders, "carpediem", "plain")),
    )  # fmt: skip


def of_sweeps(decoders):
    """Table 2, and that both are exact."""
    for name, short, papers in ((SD, "SD", (6.02, 8.15)), (EXPANDED, "C-EXP", (6.12, 8.62))):
        yield from at("11, Table 2", MEAN,
            (f"sweeps of {short}, 45 and 319 labels: ours less theirs (within 0.5)", near(0, 0.5),
             " / ".join(map(str, papers)),
             [minus(a, Found(b)) for a, b in zip(sweeps(decoders, name, TASKS[:2]), papers, strict=True)]),
        )  # fmt: skip
    rows = [decoders.loc[SD, task] for task in TASKS]
    same = decoders["accuracy"].unstack("task")
    yield from at("11, Table 2", MEAN,
        ("both take about as many sweeps: C-EXP less SD (within 0.7)", near(0, 0.7), [0.1, 0.47, 0.6],
         [minus(a, b) for a, b in zip(sweeps(decoders, EXPANDED), sweeps(decoders, SD), strict=True)]),
        ("SD takes at most log2 L + 1 sweeps: the bound less the most seen", more(-0.5), "a proof",
         [Found(np.ceil(np.log2(row["labels"])) + 1 - row["most sweeps"]) for row in rows]),
        "11, 6. Check",
        ("exact: accuracy less Viterbi's (0)", near(0, 1e-9), "a proof",
         [Found(same.loc[name, one] - same.loc["plain", one]) for name in (SD, EXPANDED) for one in TASKS]),
    )  # fmt: skip


def of_training(record):
    """Table 3. Its record is of another processor than that of decoding: no factor of one over the other."""
    training = record("11_training", "transitions", "task")
    trained = ratios(*(training.loc[name, "10 epochs (s)"].loc[list(TASKS)] for name in ("tables", EXPANDED)))
    yield from at("11, Table 3", "budget: 10 epochs; ours the first and nine times a late one's median",
        ("C-EXP trains the perceptron faster than Viterbi: times as fast", more(1), [2.7, 13.3, 18.9],
         trained),
        ("training gains less than decoding: its factor over that of decoding", None, "0.77 / 0.64 / 0.07",
         "training and decoding were timed on different processors"),
        ("pruning is weak at the beginning of training: first epoch over a late one, C-EXP", more(1),
         "probably",
         ratios(*(training.loc[EXPANDED, name].loc[list(TASKS)] for name in ("first epoch", "us a token")))),
    )  # fmt: skip


def of_beams(record, decoders):
    """Table 4."""
    beam = record("11_beam").groupby("task").last()
    narrow = faster(decoders, "beam", EXPANDED)
    yield from at("11, Table 4",
        ("a beam is faster than C-EXP with 45 and 319 labels: times as fast", more(1), [1.29, 1.5],
         narrow[:2]),
        ("and slower with thousands: times as fast", less(1), [0.6], narrow[2:]),
        ("accuracy with 319 labels (within 0.5 points of theirs)", near(93.21, 0.5), [93.21],
         [Found(beam.loc["joint", "exact"])]),
        ("accuracy with 45 and 2,602 labels", None, "97.08, 91.20", "their treebanks are not public"),
    )  # fmt: skip
