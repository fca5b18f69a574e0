"""L1 on CoNLL-2000: time to the optimum against CRFsuite's OWL-QN, and what accuracy costs in weights."""

import os
import time
from typing import NamedTuple

import numpy as np

from . import Row
from .work import encode, load

STRENGTHS = (4.0, 2.0, 1.0, 0.5, 0.25)  # c1, each from the solution of the one before
RIDGES = (1.0, 0.3, 0.1, 0.05, 0.03)  # c2
STOP = {"relative_change": (10, 1e-5), "tol_gradient": 1e-2}  # enough for F1
HELD_OUT = 10  # every tenth training sentence chooses c1, and c2


class Run(NamedTuple):
    """One training run: what it found, CPU seconds in all, and (CPU seconds,
    objective) after each iteration.
    """

    w: np.ndarray
    objective: float
    status: str
    n_iter: int
    n_evaluations: int
    seconds: float
    trace: list


def train_l1(work, c1, c2=0.0, *, start=None, below=None, **settings):
    """`minimize_on_support`, or `minimize` if `settings` name an l1_method or c1 is 0, on a `Work`: a `Run`.

    The corpus is laid out inside the clock. below : stop when the objective is not above that.
    """
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from ..optim.support import minimize_on_support

    trace, clock = [], time.process_time()

    def watch(step, w):
        trace.append((time.process_time() - clock, step.objective))
        return below is not None and step.objective <= below

    start = np.zeros(work.features.n_features) if start is None else start
    if c1 and "l1_method" not in settings:
        found = minimize_on_support(
            work.corpus, work.features, start, c1=c1, c2=c2, callback=watch, **settings
        )
    else:
        found = minimize(
            Objective(work.corpus, work.features, c2=c2), start, c1=c1, c2=c2, callback=watch, **settings
        )
    seconds = time.process_time() - clock
    return Run(found.w, found.objective, found.status, found.n_iter, found.n_evaluations, seconds, trace)


def crfsuite_l1(work, c1, **params):
    """CRFsuite's OWL-QN on the same features, to its own stop unless `params` say otherwise: a `Run`."""
    import pycrfsuite

    from .crfsuite import model_file, trainer, weights_of
    from .work import attribute_strings

    peer = trainer(
        attribute_strings(work.columns, work.template),
        work.columns.labels_by_sequence(),
        c1=c1,
        c2=0.0,
        **params,
    )
    path, clock = model_file(), time.process_time()
    peer.train(path)
    seconds, log = time.process_time() - clock, peer.logparser.iterations
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    os.unlink(path)
    trace = list(
        zip(
            np.cumsum([float(step["time"]) for step in log]).tolist(),
            [float(step["loss"]) for step in log],
            strict=True,
        )
    )
    trials = sum(int(step.get("linesearch_trials", 1)) for step in log)
    return Run(weights_of(work, tagger), trace[-1][1], "its own stop", len(log), trials, seconds, trace)


def f1_of(work, w, columns):
    """F1 of phrases, per cent, on columns that the work's encoder has not seen."""
    from ..evaluation import chunk_report

    return 100 * chunk_report(columns.labels_by_sequence(), _guess(work, w, columns)).f1


def _guess(work, w, columns):
    from ..models.inference import decode

    corpus = work.encoder.transform(columns, on_unknown_label="mark")
    return work.encoder.decode(decode(corpus, work.features, w), corpus.seq_ptr)


def owlqn(repeats=1):
    """L1 training to the certificate, CoNLL-2000, c1 = 1, against CRFsuite's OWL-QN to its own stop (once:
    minutes).
    """
    from threadpoolctl import threadpool_limits

    from ..optim.certificate import duality_gap
    from ..optim.objective import Objective

    work = load("chunking")
    train_l1(work, 1.0, max_iterations=30)  # machine code
    with threadpool_limits(1):
        theirs = crfsuite_l1(work, 1.0)
        ours = train_l1(work, 1.0)
        plain = train_l1(work, 1.0, l1_method="owlqn", below=theirs.objective, max_iterations=1500)
        value, grad = Objective(work.corpus, work.features)(ours.w)
    violation = np.maximum(np.abs(grad) - 1.0, 0.0)
    violation[ours.w != 0] = np.abs(grad + np.sign(ours.w))[ours.w != 0]
    gap = duality_gap(value, grad, ours.w, 1.0)
    level = next((t for t, value in ours.trace if value <= theirs.objective), float("nan"))
    return [
        Row(
            "L1, c1 = 1, until certified, 1 thread",
            ours.seconds,
            theirs.seconds,
            "CPU s",
            0.5,
            0.3,
            f"{ours.status}: largest pseudo-gradient {violation.max():.1e} (at most 1e-3 asked), duality gap at most {gap:.3g} nats; "
            f"{ours.n_evaluations} evaluations against {theirs.n_evaluations}",
        ),
        Row(
            "the same: objective",
            ours.objective,
            theirs.objective,
            "nats",
            1.0,
            None,
            f"{ours.objective:.4f} with {np.count_nonzero(ours.w):,} weights, {theirs.objective:.4f} with "
            f"{np.count_nonzero(theirs.w):,}; test F1 {f1_of(work, ours.w, work.test):.2f} and {f1_of(work, theirs.w, work.test):.2f}",
        ),
        Row(
            "the same: until CRFsuite's objective",
            level,
            theirs.seconds,
            "CPU s",
            0.5,
            0.3,
            f"{next(i for i, (t, _) in enumerate(ours.trace, 1) if t == level)} iterations"
            if level == level
            else "never",
        ),
        Row(
            "textbook OWL-QN until CRFsuite's objective",
            plain.seconds,
            theirs.seconds,
            "CPU s",
            None,
            None,
            f"{plain.n_iter} iterations, {plain.n_evaluations} evaluations, {plain.objective:.2f}, memory 10",
        ),
    ]


def l1_path(strengths=STRENGTHS):
    """Yield a dict for each c1: F1 on held-out training sentences,
    then of the model of all of them on the test part.
    """
    whole, part, dev = _parts()
    w_part, w = None, None
    for c1 in strengths:
        tried = train_l1(part, c1, start=w_part, **STOP)
        found = train_l1(whole, c1, start=w, **STOP)
        w_part, w = tried.w, found.w
        yield _row(c1, 0.0, whole, found, f1_of(part, w_part, dev))


def l2_path(strengths=RIDGES):
    """The same dict for each c2 of L2 alone, each from zeros."""
    whole, part, dev = _parts()
    for c2 in strengths:
        tried, found = _train_l2(part, c2), _train_l2(whole, c2)
        yield _row(0.0, c2, whole, found, f1_of(part, tried.w, dev))


def best_on_dev(rows):
    """The row with the highest F1 on held-out sentences."""
    return max(rows, key=lambda row: float(row["dev F1"]))


def _parts():
    """(all training sentences, those that are not held out, the columns of those that are):
    two `Work`s and columns.
    """
    whole = load("chunking")
    held = np.arange(len(whole.columns)) % HELD_OUT == 0
    part = encode("chunking", "chunking", whole.columns.take(np.flatnonzero(~held)))
    return whole, part, whole.columns.take(np.flatnonzero(held))


def _train_l2(work, c2):
    from ..optim.fast import fast_fit

    clock = time.process_time()
    found = fast_fit(work.corpus, work.features, c2=c2, tol=1e-5)
    seconds = time.process_time() - clock
    return Run(found.w, found.objective, found.status, found.n_iter, found.n_evaluations, seconds, [])


def _row(c1, c2, work, run, dev_f1):
    from ..evaluation import bootstrap_interval

    interval = bootstrap_interval(work.test.labels_by_sequence(), _guess(work, run.w, work.test))
    value, low, high = (f"{100 * x:.2f}" for x in interval)
    return {
        "c1": c1,
        "c2": c2,
        "offered": work.features.n_features,
        "not zero": int(np.count_nonzero(run.w)),
        "objective": f"{run.objective:.4f}",
        "evaluations": run.n_evaluations,
        "dev F1": f"{dev_f1:.2f}",
        "test F1": value,
        "95 % from": low,
        "to": high,
        "CPU seconds": f"{run.seconds:.1f}",
    }


def l1_accuracy(repeats=1):
    """F1 and size of an L1 model against L2, c1 and c2 chosen on held-out training sentences; CoNLL-2000."""
    rows, others = list(l1_path()), list(l2_path())
    best, l2 = best_on_dev(rows), best_on_dev(others)
    tried = ", ".join(f"{row['c1']:g}: {row['dev F1']}" for row in rows)
    loss = float(l2["test F1"]) - float(best["test F1"])
    return [
        Row(
            "weights of the L1 model",
            best["not zero"],
            l2["not zero"],
            "weights",
            0.1,
            None,
            f"c1 = {best['c1']:g} by F1 on held-out sentences ({tried})",
        ),
        Row(
            "error of the L1 model, 100 - F1",
            100 - float(best["test F1"]),
            100 - float(l2["test F1"]),
            "points",
            1 + 0.3 / (100 - float(l2["test F1"])),
            None,
            f"F1 {best['test F1']} against {l2['test F1']} (c2 = {l2['c2']:g}): {loss:.2f} lost, 0.3 allowed",
        ),
    ]
