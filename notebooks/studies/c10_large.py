"""Chapter 10, second half: training with thousands of labels, as in chapter 11; beside CRF++ and MALLET."""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook import Objective, minimize
from crfbook.chain.active import ActiveObjective
from crfbook.chain.active.form import OUTSIDE
from crfbook.data.features import observed
from crfbook.decoding import decode
from crfbook.learners.stochastic import sgd

from . import c14_tools
from .c10 import C2, PEERS_ON, columns_of, encoded, renewing
from .c11 import TAGGERS, beginning, data_of, growing_tagger, tagger, us_a_token
from .harness import Row, clocked, cpu_row, follow, in_own_process, own_peak_mb, quiet, race, study, timed
from .records import cells, each, rounded
from .work import MOST_CELLS

LARGE = ("joint", "morphology", "supertags")
LEAST_SHARES = 1e-1, 1e-2, 1e-3, 1e-4, 1e-5
GRADIENT_CELLS = 8e9  # tokens times label pairs that the batched form is timed on
MOST_TIMED = 20_000  # tokens that other gradients are timed on
EPOCHS = 3
ERROR = 4.4e-3  # nats a token: where active sets are held against exact inference


STEPS = {  # of SGD; the first step size is not searched for: all arms take the same ones
    "c2": 0.0, "delta": 0.0, "calibration_eta": 0.1, "calibration_candidates": 1,
    "calibration_max_trials": 1, "calibration_samples": 10,
}  # fmt: skip


@cache
def trained_by_sgd(name, weights):
    """A `Tagger` with the weights of a CRF without penalty, early in training ("0.2 epochs") or after it."""
    task = tagger(name, None)
    if weights == "3 epochs":
        return task._replace(w=epochs_of(name, 1e-3)[1])
    early = beginning(task.train, task.train.n_tokens // 5)
    return task._replace(w=sgd(early, task.features, eps=1e-3, max_iterations=1, **STEPS).w)


@cache
def epochs_of(name, eps, n_epochs=EPOCHS):
    """(rows: CPU seconds until then and test accuracy of each epoch of SGD without penalty, its weights)."""
    task, rows = tagger(name, None), []
    sgd(beginning(task.train, 100), task.features, eps=eps, max_iterations=1, **STEPS)  # compiles

    def look(step, w, cpu):
        right = decode(task.test, task.features, w) == task.test.labels
        rows.append({"epoch": step.iteration, "CPU s": cpu, "accuracy": 100 * float(np.mean(right))})

    options = {"eps": eps, "max_iterations": n_epochs, **STEPS}
    found = follow(sgd, task.train, task.features, look=look, **options)
    about = {"labels": task.features.n_labels, "tokens": task.train.n_tokens}
    return [{**row, **about} for row in rows], found.result.w


@study("10_sgd.csv", frozen=("sgd", "active sets"))
def active_sgd(shares=(0.0, 1e-5, 1e-3, 1e-2)):
    """CRFs by stochastic gradient, exact and with active sets: seconds and accuracy of epochs; minutes."""
    jobs = each(rounded(lambda task, eps: epochs_of(task, eps)[0]), cells(task=LARGE, eps=shares))
    yield "10_sgd.csv", jobs, data_of()


def error_rows(task, weights, n_repeats):
    """Losses with active sets beside the exact one, early and late in training; CPU us a token of a value and
    gradient on frozen sets, and where the sets are made, with the bound.
    """
    task, rows = trained_by_sgd(task, weights), []
    features, w, part = task.features, task.w, beginning(task.train, MOST_TIMED)
    exact, n = Objective(part, features, form="default"), part.n_tokens
    us_exact, (_, grad) = us_a_token(part, partial(exact, w), n_repeats), exact(w)
    for eps in LEAST_SHARES:
        for outside in OUTSIDE:
            active = ActiveObjective(part, features, eps=eps, outside=outside)
            making = us_a_token(part, partial(renewing(active), w), n_repeats)
            error, bound = errors_of(exact, active, w)
            off = float(np.linalg.norm(active(w)[1] - grad) / np.linalg.norm(grad))
            rows.append({
                "eps": eps, "outside": outside, "labels": features.n_labels, "active": active.n_kept,
                "error": error.sum() / n, "bound": bound.sum() / n,
                "bound / error": float(np.median(bound[error > 1e-9] / error[error > 1e-9])),
                "gradient error (%)": 100.0 * off,
                "us a token": us_a_token(part, partial(active, w), n_repeats),
                "us a token, making the sets": making, "exact us a token": us_exact,
            })  # fmt: skip
    return rows


def errors_of(exact, active, w):
    """(error, its bound) of log Z of each sequence, in nats, on sets made at w."""
    active.renew()
    exact(w), active(w)
    return np.abs(exact.log_z - active.log_z), active.bounds


@study("10_errors.csv", frozen=("active sets", "objective, default"))
def active_errors(names=LARGE, n_repeats=3):
    """Error of log Z, its bound, and time against eps, for Method 1 and with the default outside; minutes."""
    keys = cells(task=names, weights=("0.2 epochs", "3 epochs"))
    yield "10_errors.csv", each(rounded(error_rows), keys, n_repeats=n_repeats), data_of()


def growth_rows(labels, n_repeats):
    """CPU us a token of a value and gradient on a `growing_tagger`, by tables, stored pairs, active sets."""
    rows, (whole, features, w) = [], growing_tagger(labels, 8000)
    for name, make in (
        ("tables", partial(Objective, form="batched")), ("stored pairs", partial(Objective, form="default")),
        ("active sets", partial(ActiveObjective, eps=1e-3)),
    ):  # fmt: skip
        part = beginning(whole, max(200, MOST_CELLS / labels**2)) if name == "tables" else whole
        us = us_a_token(part, partial(make(part, features), w), n_repeats)
        rows.append({"form": name, "us a token": us})
    return rows


@study("10_growth.csv", frozen=("objective, batched", "objective, default", "active sets"))
def active_growth(sizes=(50, 100, 200, 500, 1000, 2000, 5000), n_repeats=3):
    """Microseconds a token of a value and gradient against L, labels by Zipf's law; minutes."""
    yield "10_growth.csv", each(rounded(growth_rows), cells(labels=sizes), n_repeats=n_repeats), []


TOL = 1e-4  # of the objective, or for c2 = 0 a thousandth of the largest entry of its gradient, in nats
FITS = {  # how, what `CRF` is given
    "exact": {"algorithm": "auto", "c2": 1.0, "memory_limit": 1e8},  # no room for dual coordinate ascent
    "active": {"algorithm": "auto", "c2": 1.0, "inference": "active"},
    "SGD, active": {"algorithm": "sgd", "c2": 1.0, "inference": "active", "max_iterations": 5},
    "SGD-L1, active": {"algorithm": "sgd-l1", "c1": 1.0, "inference": "active", "max_iterations": 5},
    "OWL-QN": {"algorithm": "owlqn", "c1": 1.0, "c2": 0.0},
    # without a limit it had not ended after 41 CPU minutes, where the exact one, of 392 iterations, took five
    "OWL-QN, active": {
        "algorithm": "owlqn", "c1": 1.0, "c2": 0.0, "inference": "active", "max_iterations": 400,
    },
}  # fmt: skip
FITTED = (  # task, tokens it learns from (None: all), how
    ("joint", None, ("exact", "active")),
    ("morphology", None, ("exact", "active")),
    ("supertags", 40_000, ("exact", "active", "SGD, active", "SGD-L1, active")),
    ("joint", 40_000, ("OWL-QN", "OWL-QN, active")),
)


def fit_alone(task, how, n_tokens=None):
    """One fit of a `CRF`, one thread: seconds, memory, accuracy. The objective is the exact one; at most so
    many times as far from the minimum as its rule for an end allows.
    """
    from crfbook.models.crf import CRF

    options = {"tol": TOL, "n_jobs": 1, **FITS[how]}
    if "sgd" in options["algorithm"]:
        del options["tol"], options["n_jobs"]
    about, model = tagger(task, None), CRF(**options)
    train = beginning(about.train, n_tokens or np.inf)
    with quiet():
        model.fit(beginning(train, 1000))  # compiles
        spent = clocked(model.fit, train)[1]
    peak, last, w = own_peak_mb(), model.history_.iloc[-1], model.weights_
    c1, c2 = options.get("c1", 0.0), options.get("c2", 0.0)
    loss = Objective(train, model.features_, c2=c2, form="default", n_threads=1)(w)[0]
    objective = loss + c1 * float(np.abs(w).sum())
    allowed = TOL * objective if c2 else 1000 * TOL
    return {
        "labels": about.features.n_labels, "tokens": train.n_tokens, "c1": c1, "c2": c2,
        "CPU s": spent["cpu"], "wall s": spent["wall"], "iterations": model.n_iter_, "status": model.status_,
        "objective": objective, "times its certificate": float(last["violation"]) / allowed,
        "bound on what sets leave out": float(last.get("error_bound", np.nan)),
        "weights": len(w), "not 0": int(np.count_nonzero(w)),
        "accuracy": 100 * model.score(about.test), "peak MB": peak,
    }  # fmt: skip


fit_row = cache(partial(in_own_process, fit_alone))


@study("10_fits.csv", frozen=("lbfgs", "owlqn", "sgd", "sgd-l1", "active sets"))
def training_fits(fitted=FITTED):
    """CRFs by quasi-Newton and stochastic gradients: seconds, memory, accuracy, weights; an hour.

    Some learn from a beginning, for time. The exact fit of all supertags is in the record of
    `training_targets`, which needs it.
    """
    jobs = []
    for task, n_tokens, hows in fitted:
        jobs += each(rounded(fit_row), cells(task=[task], how=hows), n_tokens=n_tokens)
    yield "10_fits.csv", jobs, data_of()


REACH = {"joint": (0.9, 0.75), "morphology": (0.3, 0.18), "supertags": (1 / 10, 1 / 20)}


@study("10_targets.csv")
def training_targets(repeats=3):
    """What training with many labels must reach, in one run; an hour."""
    for name, limits in REACH.items():
        task, took = trained_by_sgd(name, "3 epochs"), []
        few = beginning(task.train, GRADIENT_CELLS / task.features.n_labels**2)
        for part, form in ((beginning(task.train, MOST_TIMED), "default"), (few, "batched")):
            run = partial(Objective(part, task.features, form=form), task.w)
            took.append(us_a_token(part, run, repeats))
        work = f"{name}, {task.features.n_labels:,} labels: value and gradient / batched form"
        yield Row(work, *took, "us a token", *limits)
    whole = partial(Objective(task.train, task.features, form="default"), task.w)
    us = us_a_token(task.train, whole, repeats)
    yield Row("supertags, whole corpus: value and gradient", us, 1.0, "us a token", 110.0, 60.0)
    (active, _), (exact, _) = (epochs_of("supertags", eps) for eps in (1e-3, 0.0))
    seconds = float(np.median(np.diff([0.0, *(row["CPU s"] for row in active)])))
    yield Row("supertags: epoch of SGD, eps 1e-3", seconds, 1.0, "CPU s", 15.0, 9.0)
    right = [rows[-1]["accuracy"] for rows in (exact, active)]
    note = f"after {EPOCHS} epochs: {right[0]:.2f} exact, {right[1]:.2f} active"
    yield Row("supertags: accuracy that active sets lose", right[0] - right[1], 1.0, "points", 0.2, note=note)
    yield from active_targets(task, repeats)
    found = fit_row("supertags", "exact")
    note = f"{found['status']}, {found['iterations']} epochs and iterations, two threads"
    yield Row("supertags: fit to 1e-4, c2 = 1", found["wall s"] / 3600, 1.0, "hours", 1.0, 0.3, note)
    yield Row("supertags: memory of that process", found["peak MB"] / 1000, 1.0, "GB", 1.5)
    for name, (*_, required) in TAGGERS.items():
        right = epochs_of(name, 1e-3, 5)[0][-1]["accuracy"]
        yield Row(f"{name}: accuracy, perceptron / CRF after 5 epochs of SGD", required, right, "%", 1.0)


def active_targets(task, repeats):
    """The rows of active sets as large as an error of ERROR nats a token allows."""
    part = beginning(task.train, MOST_TIMED)
    exact = Objective(part, task.features, form="default")
    for eps in np.geomspace(1e-1, 1e-4, 31):
        active = ActiveObjective(part, task.features, eps=eps)
        error, bound = errors_of(exact, active, task.w)
        if error.sum() <= ERROR * part.n_tokens:
            break
    took = race({"ours": partial(active, task.w), "exact": partial(exact, task.w)}, repeats)
    note = f"eps {eps:.2g}: {active.n_kept:.1f} labels and {error.sum() / part.n_tokens:.2g} nats a token"
    line = "supertags: gradient with active sets / exact"
    yield cpu_row(line, took, 0.7, 0.5, note, reference="exact")
    ratio = float(np.median(bound[error > 1e-9] / error[error > 1e-9]))
    yield Row("supertags: bound / error, median of sentences", ratio, 1.0, "ratio", 100.0, 10.0)


# ---- beside programs that the reader builds: CRF++, MALLET ----

# Each learns from a text in a process of its own, on one thread, as in chapter 14 (c14_tools.py), under the
# penalty of `active_peers`. An evaluation is a value and gradient with its share of L-BFGS. Its seconds are
# the median of the CPU seconds of the process between evaluations; it is ended after so many of them. The
# first WARM, in which Java compiles, do not count, nor do start-up and reading.
#
#     CRF++    a weight for every attribute and label, and for every pair of labels.
#     MALLET   weights of the attributes and labels seen together, and a bias, a start and an end of each
#              label; a weight for every pair of labels, or ("pairs seen") for those seen, where the others
#              are impossible, and cost nothing. It skips a sequence then whose first label follows no label
#              anywhere.
#     ours     CPU seconds of L-BFGS over its evaluations, form "auto", on the same sequences: with the
#              program's weights (MALLET's biases apart), and with those of what was seen alone. Other pairs
#              have the weight 0.

WARM = 3  # evaluations
SAID = r"(?:features: +|weights |obj=|evaluation )(\S+)"  # first the number of weights, then each objective


class Program(NamedTuple):
    """A tool of c14_tools, and the weights that it has beside those of what was seen."""

    tool: str
    more: tuple  # words at the end of its command
    all_states: bool
    all_transitions: bool
    n_evaluations: int  # that are timed


PROGRAMS = {
    "CRF++": Program("CRF++", (), True, True, 4),
    "MALLET": Program("MALLET", ("all",), False, True, 3),
    "MALLET, pairs seen": Program("MALLET", ("seen",), False, False, 10),
}
FEWER = {"atis": 500, "simulated 120": 200, "simulated 279": 60}  # sequences, where all pairs are too slow


def require(programs):
    """ValueError for one that is not of PROGRAMS, RuntimeError for one that is not there."""
    for name in programs:
        if name not in PROGRAMS:
            raise ValueError(f"programs: expected names among {'; '.join(PROGRAMS)}; got {name}")
        if c14_tools.program(PROGRAMS[name].tool) is None:
            raise RuntimeError(c14_tools.needs(PROGRAMS[name].tool))


def evaluations(peer, setup):
    """(weights, evaluations timed, CPU seconds of one) of a `Program`.

    Attributes and labels are numbers. For CRF++, PADs make tokens equally long: one attribute more.
    """
    names = ([str(i) for i in range(n)] for n in (setup.encoder.n_attrs, setup.encoder.n_labels))
    here, tool = c14_tools.Ready(setup, c14_tools.new_folder(), *names, C2), c14_tools.TOOLS[peer.tool]
    width = c14_tools.write_template(here.folder / "template", setup.corpus)
    pads = {"width": width if peer.tool == "CRF++" else 0}
    c14_tools.write(here.folder / "train", setup.corpus, here.attributes, here.labels, **pads)
    command = *tool.train(here, here.folder / "model", "", "none"), *peer.more
    found = c14_tools.seen(command, line=SAID, most=1 + WARM + 1 + peer.n_evaluations)["trace"]
    if len(found) < WARM + 3:
        raise RuntimeError(f"{peer.tool}: expected at least {WARM + 2} evaluations, got {len(found) - 1}")
    seconds = np.diff([cpu for cpu, _ in found[1 + WARM :]])
    return int(found[0][1]), len(seconds), float(np.median(seconds))


def ours(corpus, features, n_iterations=20):
    """CPU seconds of an evaluation in our L-BFGS."""
    objective = Objective(corpus, features, c2=C2)
    for w in (np.zeros(features.n_features), np.full(features.n_features, 1e-3)):  # compiles
        objective(w)
    limits = {"c2": C2, "tol": 0.0, "max_iterations": n_iterations}
    found, seconds = timed(minimize, objective, np.zeros(features.n_features), **limits)
    return seconds / found.n_evaluations


def built_row(corpus, program, n_train, fewer):
    """CPU seconds of an evaluation of a program, and of ours."""
    peer = PROGRAMS[program]
    n = min(fewer.get(corpus, n_train), n_train) if peer.all_transitions else n_train
    setup = encoded(corpus, n)
    seen = setup.features
    more = {"all_states": peer.all_states, "all_transitions": peer.all_transitions}
    same = observed(setup.corpus, *setup.sizes, **more)
    n_weights, n_timed, theirs = evaluations(peer, setup)
    seconds = ours(setup.corpus, same)
    seconds_seen = ours(setup.corpus, seen) if peer.all_transitions else seconds
    return {
        "labels": seen.n_labels, "sequences": setup.corpus.n_sequences, "tokens": setup.corpus.n_tokens,
        "evaluations": n_timed, "weights": n_weights, "CPU s": theirs,
        "our weights": same.n_features, "ours": seconds, "ratio": theirs / seconds,
        "our weights, seen": seen.n_features, "ours, seen": seconds_seen,
        "ratio, seen": theirs / seconds_seen,
    }  # fmt: skip


@study("10_built.csv", frozen=("objective, auto", "objective, default"))
def active_peers_built(names=PEERS_ON, programs=tuple(PROGRAMS), n_train=1000, fewer=FEWER):
    """Training beside CRF++ and MALLET, which the reader builds; twenty minutes."""
    require(programs)
    keys = cells(corpus=names, program=programs)
    jobs = each(rounded(built_row), keys, n_train=n_train, fewer=fewer)
    yield "10_built.csv", jobs, [one for name in names for one in columns_of(name)[2]]
