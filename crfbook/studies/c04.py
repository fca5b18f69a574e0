"""Chapter 04: the four losses, what a gradient costs and where training leads; Tables 1 and 2.

The tables are those of Altun, Johnson and Hofmann (2003), on their corpora as we have them. The variance of
the Gaussian prior is chosen for each cell on the last tenth of the training data; all of it is then learnt
from, and prefixes of it for the learning curves.
"""

from functools import partial

import numpy as np

from crfbook.chain.losses.form import LOSSES
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.choice import never_tiny
from crfbook.data.corpus import take_sequences
from crfbook.learners.quasi_newton.loss_path import minimize_loss

from . import crfsuite
from .harness import Row, cpu_row, race, study, timed
from .records import each
from .work import dataset, load, set_up

REQUIRED = {"exp": 1.1, "pointwise-log": 2.2, "pointwise-exp": 2.2}  # times the log loss's seconds
CLAMP = 40.0
VARIANCES = (0.1, 1.0, 10.0, 100.0)  # of the Gaussian prior: c2 = 1 / (2 variance)
# sentences of the learning curves; None: all
SIZES = {"pos": (300, 800, 1600, None), "ner": (300, 1000, 3000, None)}
TEMPLATES = {"pos": ("s1", "s2"), "ner": ("s1", "s2", "s3")}
STOP = {"tol": 1e-4, "relative_change": (10, 1e-4), "max_iterations": 300}  # of each stage
ROUGH = {"tol": 1e-3, "relative_change": (10, 1e-3), "max_iterations": 100}  # to choose a variance
WARM_UP = 5  # sentences


@study("04_benchmarks.csv")
def losses(repeats=9):
    """Loss + gradient of three losses against the log loss: CoNLL-2000, 22 labels, ATIS, 121; one thread."""
    for name in ("chunking", "atis"):
        work = load(name, verbose=True)
        log, w = Objective(work.corpus, work.features, c2=1.0), work.random_weights()
        others = {loss: log.with_loss(loss, CLAMP if loss.endswith("exp") else None) for loss in REQUIRED}
        took = race({loss: partial(fun, w) for loss, fun in {"log": log, **others}.items()}, repeats)
        for loss, required in REQUIRED.items():
            note = f"largest u = -log p: {others[loss].largest_u:.0f} nats"
            line = f"{loss} loss + gradient, {work.features.n_labels} labels, 1 thread"
            asked = required if name == "chunking" else None
            yield cpu_row(line, took, asked, None, note, ours=loss, reference="log")


@study()
def loss_training(repeats=1):
    """Training with each loss to its end on CoNLL-2000, c2 = 1: CPU seconds against the log loss's, F1."""
    work, reference = load("chunking", verbose=True), None
    for loss in ("log", *REQUIRED):
        how = {"loss": loss, "c2": 1.0, "tol": 1e-4}
        found, seconds = timed(minimize_loss, work.corpus, work.features, **how)
        reference = reference or seconds
        test = work.reports(found.w)["test"]
        note = f"objective {found.objective:.2f}, {found.status} after {found.n_iter} iterations, "
        note += f"{found.n_evaluations} evaluations; "
        note += f"test accuracy {100 * test.accuracy:.2f}, F1 {100 * test.f1:.2f}"
        yield Row(f"training, {loss} loss", seconds, reference, "CPU s", None, None, note)


# ---- Tables 1 and 2 ----


def row_of(setup, w, seconds, **more):
    """A row of a table: scores, weights that are not zero, what `more` says, CPU seconds of training."""
    percent = {name: f"{value:.2f}" for name, value in setup.scores(w).items()}
    return {**percent, "active": int(np.count_nonzero(w)), **more, "seconds": f"{seconds:.1f}"}


@never_tiny()
def fit_loss(setup, loss, variance, w0=None, stop=STOP):
    """Minimise one of `LOSSES` under a Gaussian prior of that variance: (OptResult, CPU seconds).

    From w0, or by way of the log loss. Some steps on a few sentences come before the clock starts:
    compilation, or its cache's reading, does not count.
    """
    few = take_sequences(setup.corpus, range(min(WARM_UP, setup.corpus.n_sequences)))
    fit = partial(minimize_loss, loss=loss, c2=0.5 / variance, constraints=setup.constraints, starts=("log",))
    fit(few, setup.features, w0, **{**stop, "max_iterations": 3})
    return timed(fit, setup.corpus, setup.features, w0, **stop)


def loss_row(task, template, loss, n_sentences, variance):
    """Scores of one loss trained on the first sentences: a row of Table 1 or 2, or a point of a curve."""
    setup = set_up(task, template, n_sentences)
    result, seconds = fit_loss(setup, loss, variance)
    return row_of(setup, result.w, seconds, iterations=result.n_iter, status=result.status)


def variance_row(task, template, loss):
    """Scores on a tenth of the training data for each of `VARIANCES`, and the best (the first of equals).

    Each run starts at the solution before.
    """
    setup = set_up(task, template, held_out=True)
    tried, w = {}, None
    for variance in VARIANCES:
        w = fit_loss(setup, loss, variance, w, ROUGH)[0].w
        tried[variance] = setup.scores(w)["tenth"]
    best = max(tried, key=tried.get)
    return {**{f"{variance:g}": f"{score:.2f}" for variance, score in tried.items()}, "chosen": f"{best:g}"}


@study("04_variance_{}.csv", "04_{}.csv", of=("pos", "ner"))
def loss_table(task):
    """Table 1 (pos) or 2 (ner) with learning curves, variances chosen before: hours, row by row."""
    data = [dataset(task)]
    cells = [{"template": template, "loss": loss} for template in TEMPLATES[task] for loss in LOSSES]
    rows = yield f"04_variance_{task}.csv", each(variance_row, cells, task=task), data
    best = {(row["template"], row["loss"]): float(row["chosen"]) for row in rows}
    jobs = []
    for n in SIZES[task][::-1]:  # the paper's tables first, then the learning curves
        for cell in cells:
            variance = best[tuple(cell.values())]
            key = {**cell, "sentences": n or len(data[0].train), "variance": f"{variance:g}"}
            jobs.append((key, partial(loss_row, task, **cell, n_sentences=n, variance=variance)))
    yield f"04_{task}.csv", jobs, data


def peer_row(template, tool, variance):
    """Log loss, all Spanish names: our row (tool "crfbook"), or python-crfsuite's on the same attributes."""
    setup = set_up("ner", template)
    if tool == "crfbook":
        found, seconds = fit_loss(setup, "log", variance)
        scores, objective, iterations = setup.scores(found.w), found.objective, found.n_iter
    else:
        sentences = crfsuite.sentences(setup, numbers=True)
        fitted, seconds = timed(lambda: crfsuite.train(crfsuite.trainer(*sentences, c2=0.5 / variance)))
        tagger, last = fitted[0], fitted[1].last_iteration
        rows = {name: crfsuite.attribute_numbers(part.corpus) for name, part in setup.parts.items()}
        scores = setup.scores({name: [tagger.tag(row) for row in part] for name, part in rows.items()})
        objective, iterations = float(last["loss"]), int(last["num"])
    found = {**{name: f"{value:.2f}" for name, value in scores.items()}, "objective": f"{objective:.3f}"}
    return {**found, "iterations": iterations, "seconds": f"{seconds:.1f}"}


@study("04_peer_ner.csv")
def loss_table_peer(variance=0.5):
    """The log loss of S2 and S3 on Spanish names at c2 = 1, by us and by CRFsuite; some minutes."""
    tools = ("crfbook", "python-crfsuite")
    cells = [{"template": template, "tool": tool} for template in ("s2", "s3") for tool in tools]
    rows, c2 = each(peer_row, cells, variance=variance), f"{0.5 / variance:g}"
    jobs = [({**cell, "c2": c2}, make) for cell, make in rows]
    yield "04_peer_ner.csv", jobs, [dataset("ner")]
