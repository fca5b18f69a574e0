"""Chapter 14: the algorithms of the papers side by side, quality against CPU seconds, on four corpora.

One rule tunes every arm: each setting of its grid learns from nine tenths of the training part for TUNING CPU
seconds at most; the best on the last tenth is taken, of equals the first. With that it learns from the whole
part for BUDGET CPU seconds at most, in three processes, with a seed each, in turn with the other arms. Looks
at a learner on its way lie outside its clock, and so do kernels, which a few sentences load before.
"""

from functools import cache, partial
from itertools import chain, pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from crfbook import CRF, Objective
from crfbook.chain.sparse.choice import never_tiny
from crfbook.data.corpus import slice_sequences
from crfbook.evaluation import holm, paired_test
from crfbook.models.parameters import ALGORITHMS

from .harness import follow, in_own_process, quiet, study, with_memory
from .records import cells, rounded
from .work import dataset, set_up

CORPORA = "chunking", "ner", "ewt", "joint"
TUNING, BUDGET, PROCESSES = 10.0, 30.0, 3
LOOKS = 0.25 * 1.5 ** np.arange(12)  # CPU seconds, up to BUDGET
WARM = 200  # sentences


class Arm(NamedTuple):
    """Parameters of `CRF`: those of the arm, and the settings of which held-out text chooses one."""

    fixed: dict
    grid: list


_SIZES = 0.008, 0.03, 0.125, 0.5, 2.0, 8.0  # of penalties
_L2, _L1 = cells(c2=_SIZES), cells(c1=_SIZES)
ARMS = {
    "L-BFGS": Arm({"algorithm": "lbfgs"}, _L2),
    "auto": Arm({"algorithm": "auto"}, _L2),
    "SDCA": Arm({"algorithm": "sdca"}, _L2),
    "SAG": Arm({"algorithm": "sag"}, _L2),
    "SGD": Arm({"algorithm": "sgd"}, _L2),
    "OWL-QN": Arm({"algorithm": "owlqn", "c2": 0.0}, _L1),
    "SBCD": Arm({"algorithm": "sbcd", "c2": 0.0}, _L1),
    "SGD-L1": Arm({"algorithm": "sgd-l1"}, _L1),
    "exp loss": Arm({"loss": "exp"}, _L2),
    "pointwise log loss": Arm({"loss": "pointwise-log"}, _L2),
    "pointwise exp loss": Arm({"loss": "pointwise-exp"}, _L2),
    "perceptron": Arm({"algorithm": "perceptron"}, cells(max_iterations=(5, 15, 30, 50, 100, 150))),
    "PA": Arm({"algorithm": "pa"}, cells(c=(0.001, 0.03, 1.0), max_iterations=(10, 50))),
    "AROW": Arm({"algorithm": "arow"}, cells(gamma=(10.0, 100.0, 1000.0), max_iterations=(10, 50))),
    "boosting": Arm({"algorithm": "boosting"}, cells(max_iterations=(100, 300, 1000, 3000, 10_000, 30_000))),
}
BASE = "L-BFGS"  # of the paired tests


def ready(setup, arm, setting, seed=0):
    """The `CRF` of an arm, whose kernels a few sentences have loaded."""
    model = CRF(**ARMS[arm].fixed, **setting, random_state=seed)
    few = slice_sequences(setup.corpus, 0, min(WARM, setup.corpus.n_sequences))
    with quiet(), never_tiny():
        return model.fit(few, callback=lambda step, w: True)


def trained(model, setup, seconds, look=lambda step, w, cpu: None):
    """CPU seconds of a fit to its own end, or to the first iteration that ends past so many seconds."""
    with quiet(), never_tiny():
        watch = lambda *shown: look(*shown) or shown[-1] >= seconds  # noqa: E731
        return follow(model.fit, setup.corpus, look=watch).seconds


def problem(arm, setting):
    """(loss or None, c1, c2) of what an arm minimises; None: it corrects mistakes."""
    told = {"algorithm": "lbfgs", "c1": 0.0, "c2": 0.0} | ARMS[arm].fixed | setting
    losses = ALGORITHMS[told["algorithm"]].losses
    return told.get("loss", losses[0]) if losses else None, told["c1"], told["c2"]


def objective_of(setup, arm, setting):
    """w -> {"objective", "certified": at most this share of it is above the minimum}, "" where nothing is."""
    loss, c1, c2 = problem(arm, setting)
    smooth = loss and Objective(setup.corpus, setup.features, c2=c2, loss=loss)
    certifies = c2 > 0 and loss in ("log", "exp")  # convex

    def found(w):
        value, grad = smooth(w) if smooth else (0.0, w)
        objective = value + c1 * float(np.abs(w).sum())
        bound = f"{grad @ grad / (4 * c2 * value):.2g}" if certifies else ""
        return {"objective": f"{objective:.10g}" if smooth else "", "certified": bound}

    return found


# ---- one rule for all ----


def tenth_row(task, arm, setting, n_sentences):
    """The score of a setting on the tenth that was put aside, at the end of its budget; and what training
    adds to the largest resident size, MB.
    """
    setup = set_up(task, None, n_sentences, True)
    model = ready(setup, arm, setting)
    seconds, added = with_memory(trained, model, setup, TUNING)
    about = {"CPU s": seconds, "MB added": added, "iterations": model.n_iter_, "status": model.status_}
    return {"tenth": setup.scores(model.weights_)["tenth"], **about}


def chosen(rows):
    """{arm: (its setting, its row)} of the best score of each arm, of equals the first; rows: tenth_row."""
    best = {}
    for row in rows:
        if row["arm"] not in best or float(row["tenth"]) > float(best[row["arm"]]["tenth"]):
            best[row["arm"]] = row
    return {arm: (grid_of(arm)[row["setting"]], row) for arm, row in best.items()}


def grid_of(arm):
    """{text: setting}"""
    return {", ".join(f"{k} = {v:g}" for k, v in one.items()): one for one in ARMS[arm].grid}


# ---- the whole training part ----


def followed(task, arm, setting, seconds, seed, n_sentences):
    """In a process of its own: what an arm is at LOOKS and at its end, how it ended, what it says of the last
    part.
    """
    setup, rows, marks = set_up(task, None, n_sentences), [], list(LOOKS)
    value = objective_of(setup, arm, setting)

    def note(iteration, w, cpu):
        scores = {name: f"{score:.3f}" for name, score in setup.scores(w).items()}
        about = {"CPU s": f"{cpu:.4g}", "iteration": iteration, **value(w)}
        rows.append({**about, "not 0": int(np.count_nonzero(w)), **scores})

    def look(step, w, cpu):
        if marks and cpu >= marks[0]:
            note(step.iteration, w, cpu)
            marks[:] = [mark for mark in marks if mark > cpu]

    model = ready(setup, arm, setting, seed)
    cpu = trained(model, setup, seconds, look)
    note(model.n_iter_, model.weights_, cpu)
    return rows, model.status_, setup.guess(model.weights_, list(setup.parts)[-1])


def curve_rows(task, process, arm, setting, n_sentences, kept):
    """Rows of `followed`; the last says how it ended, and p of a paired test against BASE of this process,
    whose labels are in the file `kept`.
    """
    rows, status, labels = in_own_process(followed, task, arm, setting, BUDGET, process, n_sentences)
    known, p = dict(np.load(kept)) if kept.exists() else {}, ""
    if arm == BASE:
        np.savez(kept, **known | {f"{process}": np.array(list(chain(*labels)))})
    else:
        setup, base = set_up(task, None, n_sentences), known[f"{process}"].tolist()
        corpus, gold = list(setup.parts.values())[-1]
        base = [base[i:j] for i, j in pairwise(corpus.seq_ptr.tolist())]
        test = paired_test(gold, base, labels, setup.task.measure.lower())
        p = f"{test.p_value:.4f}"
    return [{**row, "status": "", "p": ""} for row in rows[:-1]] + [{**rows[-1], "status": status, "p": p}]


@cache
def lowest(task, n_sentences, c1, c2):
    """The objective of the log loss where "auto" ends with four budgets."""
    setup = set_up(task, None, n_sentences)
    model = CRF("auto", c1=c1, c2=c2, tol=1e-9)
    trained(model, setup, 4 * BUDGET)
    return model.objective_


def summary_rows(task, rows, best, n_sentences):
    """A row for each arm: medians over processes of where it ended; rows: of the curves; best: of `chosen`.

    gap : of an objective of the log loss above the lowest one known for its penalty, relative: that of any
    arm at any look, or `lowest`. p : the largest of the processes; Holm's correction is for all arms.
    """
    seen, problems = {}, {arm: problem(arm, setting) for arm, (setting, _) in best.items()}
    # of an arm that was tuned again, others may be there
    rows = [row for row in rows if row["setting"] == best[row["arm"]][1]["setting"]]
    ends = {arm: [row for row in rows if row["arm"] == arm and row["status"]] for arm in best}
    for row in rows:
        if problems[row["arm"]][0] == "log":
            seen.setdefault(problems[row["arm"]], []).append(float(row["objective"]))
    least = {key: min(*values, lowest(task, n_sentences, *key[1:])) for key, values in seen.items()}
    p = {arm: max(float(row["p"]) for row in some) for arm, some in ends.items() if arm != BASE}
    corrected = dict(zip(p, holm(list(p.values())), strict=True))
    tests = {arm: (p.get(arm, ""), corrected.get(arm, "")) for arm in best}
    return [summary_row(arm, *best[arm], ends[arm], least.get(problems[arm]), *tests[arm]) for arm in best]


def summary_row(arm, setting, tuning, ends, least, p, corrected):
    """One of `summary_rows`."""

    def middle(name, digits=6):
        return "" if ends[0][name] == "" else f"{median(float(row[name]) for row in ends):.{digits}g}"

    columns, seconds = list(ends[0]), [float(row["CPU s"]) for row in ends]
    scores = columns[columns.index("not 0") + 1 : columns.index("status")]
    return {
        "arm": arm, "parameters": " and ".join(setting), "tried": len(ARMS[arm].grid),
        "setting": tuning["setting"], "tenth": tuning["tenth"], "CPU s": median(seconds),
        "least CPU s": min(seconds), "most CPU s": max(seconds), "MB added": tuning["MB added"],
        "status": "; ".join(dict.fromkeys(row["status"] for row in ends)),
        "objective": middle("objective", 10),
        "gap": "" if least is None else f"{float(middle('objective', 12)) / least - 1.0:.2g}",
        **{name: middle(name) for name in ("certified", "iteration", "not 0", *scores)},
        "p": p, "p, Holm": corrected,
    }  # fmt: skip


@study(
    "14_tuning_{}.csv", "14_curves_{}.csv", "14_algorithms_{}.csv", of=CORPORA,
    frozen=("lbfgs", "auto", "sdca", "sag", "sgd", "owlqn", "sbcd", "sgd-l1", "exp", "pointwise-log",
            "pointwise-exp", "perceptron", "pa", "arow", "boosting"),
)  # fmt: skip
def algorithms(task, arms=tuple(ARMS), processes=PROCESSES, n_sentences=None):
    """The algorithms of the papers, tuned by one rule: quality against CPU seconds; 40 minutes a corpus."""
    data, few = [dataset(task)], {"task": task, "n_sentences": n_sentences}
    tried, make = [(arm, *one) for arm in arms for one in grid_of(arm).items()], rounded(tenth_row)
    jobs = [({"arm": arm, "setting": text}, partial(make, arm=arm, setting=one, **few))
            for arm, text, one in tried]  # fmt: skip
    best = chosen((yield f"14_tuning_{task}.csv", jobs, data))
    runs = cells(process=range(processes), arm=best)
    keys = [key | {"setting": best[key["arm"]][1]["setting"]} for key in runs]
    jobs = [(key, partial(curve_rows, **key | few | {"setting": best[key["arm"]][0]})) for key in keys]
    rows = yield f"14_curves_{task}.csv", jobs, data
    jobs = [({}, partial(rounded(summary_rows), rows=rows, best=best, **few))]
    yield f"14_algorithms_{task}.csv", jobs, data
