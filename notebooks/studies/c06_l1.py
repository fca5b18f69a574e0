"""Chapter 06: L1 on CoNLL-2000 beside CRFsuite, and beside L2 down a path of c1."""

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.evaluation import bootstrap_interval, paired_test
from crfbook.learners.quasi_newton.steps import pseudo_gradient
from crfbook.learners.quasi_newton.support import minimize_on_support
from crfbook.learners.stochastic.fast import fast_fit
from crfbook.training.certificate import duality_gap
from crfbook.training.loop import OptResult

from . import crfsuite
from .harness import Row, Run, follow, study, timed
from .work import columns_of, dataset, descend, encode, load

# c1, each from the solution of the one before
STRENGTHS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.06, 0.03, 0.015, 0.0075)
RIDGES = (1.0, 0.3, 0.1, 0.05, 0.03)  # c2
NEAR = 0.05  # on the path training ends where no pseudo-gradient exceeds this share of c1
HELD_OUT = 10  # every tenth training sentence chooses c1, and c2


def train_l1(work, c1, start=None, **settings):
    """`Run` of `minimize_on_support`, or of `minimize` if `settings` name an l1_method; with the layout."""
    learner = descend if "l1_method" in settings else minimize_on_support
    start = np.zeros(work.features.n_features) if start is None else start
    return follow(learner, work.corpus, work.features, start, c1=c1, **settings)


def crfsuite_l1(work, c1):
    """CRFsuite's OWL-QN on the same features, to its own stop: a `Run` without steps."""
    peer = crfsuite.trainer(*crfsuite.sentences(work), c1=c1, c2=0.0)
    (tagger, log), seconds = timed(crfsuite.train, peer)
    trials = sum(int(step.get("linesearch_trials", 1)) for step in log.iterations)
    w, objective = crfsuite.weights_of(work, tagger), float(log.iterations[-1]["loss"])
    return Run(OptResult(w, objective, "its own stop", len(log.iterations), [], {}, trials), seconds, [])


@study("06_benchmarks.csv", frozen=("owlqn", "lbfgs, elastic net", "objective, auto"))
def owlqn(repeats=1):
    """L1 to the certificate, CoNLL-2000, c1 = 1, against CRFsuite's OWL-QN to its own stop; minutes."""
    work = load("chunking", verbose=True)
    train_l1(work, 1.0, max_iterations=30)  # machine code
    (theirs, seconds, _), (ours, our_seconds, ticks) = crfsuite_l1(work, 1.0), train_l1(work, 1.0)
    goal, n, n_theirs = theirs.objective, np.count_nonzero(ours.w), np.count_nonzero(theirs.w)

    def stop(step, w, seconds):
        return step.objective <= goal

    plain = train_l1(work, 1.0, l1_method="owlqn", max_iterations=1500, look=stop)
    value, grad = Objective(work.corpus, work.features)(ours.w)
    largest = pseudo_gradient(ours.w, grad, 1.0, np.empty_like(grad))[1]
    note = f"{ours.status}: largest pseudo-gradient {largest:.1e} (at most 1e-3 asked), "
    note += f"duality gap at most {duality_gap(value, grad, ours.w, 1.0):.3g} nats; "
    note += f"{ours.n_evaluations} evaluations against {theirs.n_evaluations}"
    line = "L1, c1 = 1, until certified, 1 thread"
    yield Row(line, our_seconds, seconds, "CPU s", 0.5, 0.3, note)
    note = f"{ours.objective:.4f} with {n:,} weights, {goal:.4f} with {n_theirs:,}; "
    note += "test F1 {:.2f} and {:.2f}".format(*(work.scores(found.w)["test"] for found in (ours, theirs)))
    yield Row("the same: objective", ours.objective, goal, "nats", 1.0, None, note)
    there = [(i, tick.cpu) for i, tick in enumerate(ticks, 1) if tick.step.objective <= goal]
    note, level = (f"{there[0][0]} iterations", there[0][1]) if there else ("never", float("nan"))
    yield Row("the same: until CRFsuite's objective", level, seconds, "CPU s", 0.5, 0.3, note)
    end = plain.result
    note = f"{end.n_iter} iterations, {end.n_evaluations} evaluations, {end.objective:.2f}, memory 10"
    line = "textbook OWL-QN until CRFsuite's objective"
    yield Row(line, plain.seconds, seconds, "CPU s", None, None, note)


def penalty_path(strengths=STRENGTHS, ridges=RIDGES):
    """Two lists of dicts: for each c1, each from the one before, and for each c2 of L2 alone, from zeros.

    F1 on dev is that of a model trained without every tenth sentence, on these; all else of a model of all.
    violation: the largest pseudo-gradient, at most NEAR of c1 where c1 > 0. gain, p: F1 on test less that of
    the c2 that is best on dev, and its paired test.
    """
    template, train, parts = columns_of("chunking", verbose=True)
    whole, held = encode("chunking", template, train, parts), np.arange(len(train)) % HELD_OUT == 0
    rest, dev = (train.take(np.flatnonzero(keep)) for keep in (~held, held))
    part, w, tables = encode("chunking", template, rest, {"dev": dev}), [None, None], ([], [])
    for c1 in strengths:
        starts = zip((part, whole), w, strict=True)
        runs = [train_l1(work, c1, start, tol_gradient=NEAR * c1) for work, start in starts]
        w = [run.result.w for run in runs]
        tables[0].append(_path_row(c1, 0.0, part, whole, *runs))
    for c2 in ridges:
        runs = [follow(fast_fit, work.corpus, work.features, c2=c2, tol=1e-5) for work in (part, whole)]
        tables[1].append(_path_row(0.0, c2, part, whole, *runs))
    best = max(tables[1], key=lambda row: float(row["dev F1"]))["guess"]
    for row in sum(tables, []):
        test = paired_test(whole.parts["test"].gold, best, row.pop("guess"))
        row |= {"gain": f"{100 * test.difference:+.2f}", "p": f"{test.p_value:.4f}"}
    return tables


def _path_row(c1, c2, part, whole, tried, run):
    gold, found = whole.parts["test"].gold, run.result
    guess = whole.guess(found.w, "test")
    value, low, high = (f"{100 * x:.2f}" for x in bootstrap_interval(gold, guess))
    grad = Objective(whole.corpus, whole.features, c2=c2)(found.w)[1]
    return {
        "c1": c1, "c2": c2, "offered": whole.features.n_features, "not zero": int(np.count_nonzero(found.w)),
        "objective": f"{found.objective:.4f}",
        "violation": f"{pseudo_gradient(found.w, grad, c1, np.empty_like(grad))[1]:.1e}",
        "evaluations": found.n_evaluations, "dev F1": f"{part.scores(tried.result.w)['dev']:.2f}",
        "test F1": value, "95 % from": low, "to": high, "CPU seconds": f"{run.seconds:.1f}", "guess": guess,
    }  # fmt: skip


@study("06_l1_path.csv", frozen=("owlqn", "auto", "lbfgs", "decoding, dense"))
def l1_path(**strengths):
    """CoNLL-2000: F1 and size of models for falling c1, and for several c2; half an hour."""
    yield "06_l1_path.csv", [({}, lambda: sum(penalty_path(**strengths), []))], [dataset("chunking")]


@study()
def l1_accuracy(repeats=1):
    """F1 and size of an L1 model against L2, c1 and c2 chosen on held-out training sentences; CoNLL-2000."""
    tables = penalty_path()
    l1, l2 = (max(rows, key=lambda row: float(row["dev F1"])) for rows in tables)
    tried = ", ".join(f"{row['c1']:g}: {row['dev F1']}" for row in tables[0])
    note = f"c1 = {l1['c1']:g} by F1 on held-out sentences ({tried})"
    yield Row("weights of the L1 model", l1["not zero"], l2["not zero"], "weights", 0.1, None, note)
    errors = [100 - float(row["test F1"]) for row in (l1, l2)]
    note = f"F1 {l1['test F1']} against {l2['test F1']} (c2 = {l2['c2']:g}): "
    note += f"{errors[0] - errors[1]:.2f} lost, 0.3 allowed"
    yield Row("error of the L1 model, 100 - F1", *errors, "points", 1 + 0.3 / errors[1], None, note)
