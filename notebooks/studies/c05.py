"""Chapter 05: online and stochastic learners, boosting, the fastest way to an optimum; Table 3.

The table is that of Altun, Johnson and Hofmann (2003), perceptron and boosting, with their descendants PA and
AROW. As in c04.py, the numbers that a learner needs (epochs, PA's price of slack, AROW's gamma, the variance
of the log loss) are those that are best on a tenth of the training data, along half decades until the best is
inside; then the whole training part, and prefixes of it, are learnt from. Boosting gets CPU time;
another record follows it round by round, with its three bounds and without the longest sentences. Paired
tests are those against the averaged perceptron.
"""

from dataclasses import replace
from functools import cache, partial

import numpy as np

from crfbook import Objective
from crfbook.data.corpus import slice_sequences, take_sequences
from crfbook.evaluation import paired_test
from crfbook.learners import online, stochastic
from crfbook.learners.boosting import boost
from crfbook.learners.stochastic.fast import fast_fit

from . import crfsuite
from .c04 import HALF_DECADES, SIZES, TEMPLATES, fit_loss, row_of
from .harness import Clocked, Row, at, cpu_row, follow, race, study
from .records import RESULTS, cells, each, read_record
from .work import dataset, descend, load, set_up

# ---- an epoch beside CRFsuite's ----

RECORD, EPOCHS = "05_benchmarks.csv", 10
ONLINE = {"ap": online.perceptron, "pa": online.passive_aggressive, "arow": online.arow}  # CRFsuite's names


def epoch_race(work, algorithm, learners, repeats, numbers=False, **params):
    """Timings of an epoch: CRFsuite's algorithm ("crfsuite") and our learners (their names).

    Also what the last runs left: CRFsuite's tagger, our weights. Times are medians between the ends of
    epochs: the first one, with layout and compilation, is left out. numbers: see `crfsuite.sentences`.
    """
    rows = crfsuite.sentences(work, numbers)
    peer, last = crfsuite.trainer(*rows, algorithm, max_iterations=EPOCHS, **params), {}

    def theirs():
        last["crfsuite"], log = crfsuite.train(peer)
        return Clocked(float(np.median([float(step["time"]) for step in log.iterations[1:]])))

    def ours(name):
        run = follow(learners[name], work.corpus, work.features, max_iterations=EPOCHS)
        last[name] = run.result.w
        return Clocked(*np.median(np.diff([tick[:2] for tick in run.ticks], axis=0), axis=0).tolist())

    return race({"crfsuite": theirs} | {name: partial(ours, name) for name in learners}, repeats), last


@study(RECORD, frozen=("perceptron", "pa", "arow"))
def perceptron(repeats=3):
    """Averaged perceptron, PA, AROW on CoNLL-2000, 22 labels, one thread: seconds an epoch, F1 after ten."""
    work = load("chunking", verbose=True)
    test = crfsuite.attribute_strings(work.words, work.template)
    for name, learner in ONLINE.items():
        took, last = epoch_race(work, name, {"ours": learner}, repeats)
        labels = {"test": [last["crfsuite"].tag(rows) for rows in test]}
        f1, theirs = (work.scores(found)["test"] for found in (last["ours"], labels))
        note = f"F1 after {EPOCHS} epochs: ours {f1:.2f}, CRFsuite {theirs:.2f} "
        note += "(the orders of the sentences differ)"
        line = f"{learner.__name__.replace('_', '-')}, one epoch"
        yield cpu_row(line, took, 0.6 if name == "ap" else None, None, note)
    names = load("ner", "s2")  # fewer labels, fewer attributes
    took, _ = epoch_race(names, "ap", {"ours": online.perceptron}, repeats, numbers=True)
    yield cpu_row("perceptron, one epoch, Spanish names, S2, 9 labels", took)


# ---- to the optimum ----

CLOSE = 1e-4
PIECES = (("chunking", 1.0, 0.10), ("chunking", 0.05, 0.20), ("ner", 1.0, 0.15))  # work, c2, required
FAST = {"fast_fit": fast_fit, "sdca": stochastic.sdca, "L-BFGS": partial(descend, memory=30)}


@study("05_fast_benchmarks.csv", frozen=("auto", "sdca", "lbfgs"))
def fast(repeats=1):
    """CPU seconds to 1e-4 above the optimum, one thread: CoNLL-2000, c2 = 1 and 0.05; Spanish names, S3.

    fast_fit (CRF's algorithm "auto"), sdca alone and L-BFGS against CRFsuite's L-BFGS. Layouts are built
    inside the clock, the corpus is encoded outside. CRFsuite's seconds are those of its own log, from the
    first iteration to the first one that is close enough.
    """
    for piece in PIECES:
        yield from _to_optimum(*piece, repeats)  # as they come: each takes minutes


def _to_optimum(name, c2, required, repeats):
    work, steps = load(name, verbose=name == "chunking"), {}
    corpus, features, few = work.corpus, work.features, slice_sequences(work.corpus, 0, 30)
    stop = {"epsilon": 1e-9, "delta": 3e-6, "max_iterations": 600}
    peer = crfsuite.trainer(*crfsuite.sentences(work, numbers=True), c2=c2, **stop)
    objective = Objective(corpus, features, c2=c2)
    best = fast_fit(corpus, features, c2=c2, tol=1e-9).objective
    goal = best * (1 + CLOSE)

    def theirs():
        path = crfsuite.seconds_and_losses(crfsuite.train(peer)[1])
        for n, (seconds, loss) in enumerate(path, 1):
            if loss <= goal:
                steps["crfsuite"] = n
                return seconds
        raise RuntimeError(f"CRFsuite stopped at {loss}, never within {CLOSE:g} of {best}")

    def ours(key):
        """CPU seconds until the weights shown are close enough; looking at them is left out."""
        close = []

        def look(step, w, seconds):
            if not close and objective(w)[0] <= goal:
                close.append((seconds, step.iteration))
            return bool(close)

        follow(FAST[key], corpus, features, c2=c2, tol=1e-6, look=look)
        if not close:
            raise RuntimeError(f"{key} stopped before it was within {CLOSE:g} of {best}")
        seconds, steps[key] = close[0]
        return seconds

    for learner in FAST.values():  # compile on something small
        learner(few, features, c2=c2, tol=1e-2, callback=lambda step, w: False)
    candidates = {"crfsuite": theirs} | {key: partial(ours, key) for key in FAST}
    runs = [{key: run() for key, run in candidates.items()} for _ in range(repeats)]  # no warm-up of minutes
    took = {key: float(np.median([run[key] for run in runs])) for key in candidates}
    ends = f"optimum {best:.4f}; CRFsuite is there after {steps['crfsuite']} iterations"
    what = f"{'names' if name == 'ner' else name}, c2 = {c2:g}, to {CLOSE:g}"
    for key, asked, note in (
        ("fast_fit", required, f"{steps['fast_fit']} epochs and iterations; {ends}"),
        ("sdca", None, f"coordinate ascent alone: {steps['sdca']} epochs"),
        ("L-BFGS", None, f"ours, from 0, memory 30: {steps['L-BFGS']} iterations"),
    ):
        yield Row(f"{key}: {what}", took[key], took["crfsuite"], "CPU s", asked, None, note)


# ---- boosting ----

STRETCHES = (0, 500, 1000, 2000, 4000)  # rounds; the first one is what is asked of


@study(RECORD, frozen=("boosting",))
def boosting(repeats=3):
    """Seconds a round, Spanish names (CoNLL-2002), S2, 9 labels, one thread, from zero weights.

    The reference is a pass of our own batched kernels, value and gradient of the log loss: all that a naive
    round needs before it chooses. A round costs what the sequences with its feature cost, and grows as more
    sequences have a share in the loss.
    """
    work = load("ner", "s2")
    full = race({"pass": work.evaluation(c2=0.0)}, max(5, repeats))["pass"].median_cpu
    for bound in ("global", "split"):
        runs = [_stretches(work, bound) for _ in range(repeats + 1)][1:]  # the first one compiles
        seconds = np.median([times for times, _ in runs], axis=0)
        speeds = zip(1 / seconds, STRETCHES[1:], strict=True)
        note = "rounds a second: " + ", ".join(f"{speed:,.0f} to round {stop:,}" for speed, stop in speeds)
        note += f"; log loss there {runs[-1][1]:.1f} nats"
        line = f"boosting, {bound} bound, a round of the first {STRETCHES[1]}"
        yield Row(line, seconds[0], full, "CPU s", 0.1, None, note)
        yield Row(f"the same, rounds {STRETCHES[-2]:,} to {STRETCHES[-1]:,}", seconds[-1], full, "CPU s")


def _stretches(work, bound):
    """(CPU seconds a round in each of `STRETCHES`, log loss at the end).

    Layout, first pass and first round do not count. Every round reports itself: 5 per cent that a user does
    not pay.
    """
    limits = {"max_iterations": STRETCHES[-1], "report_every": 1}
    run = follow(boost, work.corpus, work.features, bound=bound, **limits)
    ends = [run.ticks[max(stop, 1) - 1].cpu for stop in STRETCHES]
    return np.diff(ends) / np.diff(STRETCHES), run.result.objective


# ---- Table 3 ----

LEARNERS = {
    "perceptron": partial(online.perceptron, average=False), "averaged perceptron": online.perceptron,
    "passive-aggressive": online.passive_aggressive, "AROW": online.arow,
}  # fmt: skip
CHOICES = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200)  # epochs
BASE = "averaged perceptron"  # of the paired tests
TUNED = {"passive-aggressive": "c", "AROW": "gamma"}  # the number that a learner needs beside its epochs
FOLLOWED = (  # template, bound, words of the longest training sentence that is kept (None: all are), rounds
    ("s1", "split", None, 50_000), ("s2", "split", None, 12_000), ("s3", "split", None, 12_000),
    ("s2", "split", 60, 5_000), ("s2", "global", None, 7_000), ("s2", "instance", None, 7_000),
    ("s3", "split", 60, 5_000), ("s3", "global", None, 7_000),
)  # fmt: skip
LOOKS = 100 * np.array([1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500])  # rounds


def fit_learner(setup, learner, iterations, look=None, **options):
    """`Run` of a function in `LEARNERS` after so many epochs or rounds; compilation does not count."""
    fit = partial(learner, setup.corpus, setup.features, constraints=setup.constraints, **options)
    fit(max_iterations=1)
    return follow(fit, max_iterations=iterations, look=look)


def log_variances(task):
    """{template: variance of the log loss on all sentences}, as chapter 04 chose them."""
    rows = [row for row in read_record(RESULTS / f"04_variance_{task}.csv")[1] if row["loss"] == "log"]
    return {row["template"]: float(row["chosen"]) for row in reversed(rows)}  # all sentences come first


def epochs_rows(task, template, learner):
    """Scores on a tenth of the training data after each of `CHOICES`; chosen: the best (smallest of equals).

    A row for each value of the number in `TUNED`: from 1 on along half decades, up or down, until the best
    one lies inside; used: it is the best one.
    """
    setup, rows = set_up(task, template, held_out=True), {}

    def try_out(value):
        look, found = at(CHOICES, lambda step, w, _: (step.iteration, round(setup.scores(w)["tenth"], 2)))
        options = {TUNED[learner]: value} if learner in TUNED else {}
        fit_learner(setup, LEARNERS[learner], CHOICES[-1], look, **options)
        best = max(found := dict(found), key=lambda n: (found[n], -n))
        scores = {str(n): f"{found[n]:.2f}" if n in found else "" for n in CHOICES}
        rows[value] = found[best], {"value": f"{value:g}", **scores, "chosen": best}

    new = HALF_DECADES.index(1.0)
    while new is not None:
        try_out(HALF_DECADES[new])
        best, tried = HALF_DECADES.index(best_of(rows)), list(map(HALF_DECADES.index, rows))
        outwards = best + 1 if best == max(tried) else best - 1
        new = outwards if learner in TUNED and best in (min(tried), max(tried)) else None
    used = best_of(rows)
    return [{**rows[value][1], "used": value == used} for value in sorted(rows)]


def best_of(rows):
    """The value with the best score, the one tried first of equals. rows : {value: (score, row)}"""
    return max(rows, key=lambda value: rows[value][0])


@cache
def base_labels(task, template, n_sentences=None, iterations=None):
    """{part: labels} of the averaged perceptron; iterations: None: as many epochs as Table 3 would choose."""
    setup = set_up(task, template, n_sentences)
    epochs = iterations or epochs_rows(task, template, BASE)[0]["chosen"]
    return labels_of(setup, fit_learner(setup, LEARNERS[BASE], epochs).result.w)


def labels_of(setup, w):
    """{part: labels by Viterbi}, as lists of lists."""
    return {part: setup.guess(w, part) for part in setup.parts}


def p_values(setup, base, w):
    """{"p part": p-value of a paired test of weights against the labels of the averaged perceptron}."""
    found, metric, p = labels_of(setup, w), setup.task.measure.lower(), {}
    for name, part in setup.parts.items():
        p[f"p {name}"] = f"{paired_test(part.gold, base[name], found[name], metric).p_value:.4f}"
    return p


def learner_row(task, template, learner, n_sentences, iterations, value, base_epochs):
    """A row of Table 3, or a point of a learning curve: scores after so many epochs, or of the log loss at
    its end (iterations None), with tests against the averaged perceptron. value : see `TUNED`; the variance.
    """
    setup, base = set_up(task, template, n_sentences), base_labels(task, template, n_sentences, base_epochs)
    if iterations is None:
        found, seconds = fit_loss(setup, "log", value)
    else:
        options = {TUNED[learner]: value} if learner in TUNED else {}
        found, seconds, _ = fit_learner(setup, LEARNERS[learner], iterations, **options)
    more = {"value": f"{value:g}", "iterations": found.n_iter, "status": found.status}
    return row_of(setup, found.w, seconds, **more, **p_values(setup, base, found.w))


@study("05_epochs_{}.csv", "05_{}.csv", of=("ner",), frozen=("perceptron", "pa", "arow", "lbfgs"))
def learner_table(task):
    """Online learners of Table 3 with learning curves, epochs chosen before; the log loss; two hours."""
    data = [dataset(task)]
    keys = [{"template": template, "learner": name} for name in LEARNERS for template in TEMPLATES[task]]
    rows = yield f"05_epochs_{task}.csv", each(epochs_rows, keys, task=task), data
    best = {(row["template"], row["learner"]): (int(row["chosen"]), float(row["value"]))
            for row in rows if row["used"] == "True"}  # fmt: skip
    variances = log_variances(task)
    # the paper's table, then the learning curve
    sized = [(key, n) for n in SIZES[task][::-1] for key in keys]
    sized += [({"template": template, "learner": "log loss"}, None) for template in TEMPLATES[task]]
    jobs = []
    for key, n in sized:
        chosen = best.get(tuple(key.values()), (None, variances[key["template"]]))
        row = partial(learner_row, task, *key.values(), n, *chosen, best[key["template"], BASE][0])
        jobs.append(({**key, "sentences": n or len(data[0].train)}, row))
    yield f"05_{task}.csv", jobs, data


# ---- boosting, an hour, and round by round ----

TEMPLATES_BY_COST = {"ner": ("s3", "s2", "s1"), "pos": ("s2", "s1")}
MINUTES = {"ner": (0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60), "pos": (1, 2, 5, 10, 20)}  # of a feature set
SAVED = 100.0  # CPU seconds between two savings of the weights


def minutes_row(task, template, minutes, kept):
    """Boosting by the split bound after so many CPU minutes, begun at the weights of this template in file
    `kept`, if there are any; every `SAVED` seconds they are written there.

    To go on from weights is to take all sums anew: another run ends in other bits.
    """
    setup = set_up(task, template)
    everybody = dict(np.load(kept)) if kept.exists() else {}
    names = [f"{template} {name}" for name in ("w", "rounds", "seconds", "log_loss")]
    starts = zip(names, (None, 0, 0.0, np.nan), strict=True)
    begun = [everybody.get(name, start) for name, start in starts]
    now, last = begun, begun[2]

    def save():
        np.savez(kept.with_suffix(".tmp.npz"), **everybody | dict(zip(names, now, strict=True)))
        kept.with_suffix(".tmp.npz").replace(kept)

    def keep(step, w, seconds):
        nonlocal now, last
        now = w.copy(), begun[1] + step.iteration, begun[2] + seconds, step.objective
        if now[2] - last > SAVED:
            last = now[2]
            save()
        return now[2] >= 60 * minutes

    if last < 60 * minutes:
        fit_learner(setup, partial(boost, bound="split", report_every=20, tol=0.0), None, keep, w0=begun[0])
        save()
    w, rounds, seconds, log_loss = now
    more = {"log_loss": f"{log_loss:.3f}", **p_values(setup, base_labels(task, template), w)}
    return {"rounds": int(rounds), **row_of(setup, w, float(seconds), **more)}


@study("05_boosting_{}.csv", of=("ner", "pos"), frozen=("boosting", "perceptron"))
def boosting_minutes(task):
    """Boosting by the split bound against CPU time: an hour a feature set of names, 20 minutes of tags."""
    keys = [{"template": name, "minutes": n} for n in MINUTES[task] for name in TEMPLATES_BY_COST[task]]
    yield f"05_boosting_{task}.csv", each(minutes_row, keys, task=task), [dataset(task)]


def without_long(setup, longest):
    """`Work` without the training sentences of more than `longest` tokens; features are those of the rest."""
    short = np.flatnonzero(np.diff(setup.corpus.seq_ptr) <= longest)
    return replace(setup, corpus=take_sequences(setup.corpus, short))


def rounds_rows(task, template, bound, longest, rounds):
    """Boosting after each of `LOOKS` and at its end: rounds, log of the loss, scores, weights, seconds."""
    setup = set_up(task, template)
    setup = without_long(setup, longest) if longest else setup

    def row(step, w, seconds):
        begin = {"rounds": step.iteration, "log_loss": f"{step.objective:.3f}"}
        return {**begin, "sentences": setup.corpus.n_sequences, **row_of(setup, w, seconds)}

    look, found = at(LOOKS, row)
    result, seconds, _ = fit_learner(setup, partial(boost, bound=bound), rounds, look)
    if result.n_iter not in LOOKS:  # it converged, or was to end elsewhere
        found.append(row(result.history[-1], result.w, seconds))
    return found


@study("05_rounds_{}.csv", of=("ner",), frozen=("boosting",))
def boosting_rounds(task):
    """F1 and loss against rounds of boosting, three bounds, with and without long sentences; half an hour."""
    jobs = []
    for template, bound, longest, rounds in FOLLOWED:
        key = {"template": template, "bound": bound, "longest": longest or "all"}
        jobs.append((key, partial(rounds_rows, task, template, bound, longest, rounds)))
    yield f"05_rounds_{task}.csv", jobs, [dataset(task)]


# ---- perceptrons whose epochs were at the end of CHOICES, for longer ----

LONGER = (100, CHOICES[-1], 400, 800)  # epochs
EDGE = cells(template=("s1", "s2"), learner=["perceptron"]) + cells(template=["s1"], learner=[BASE])


def longer_rows(task, template, learner):
    """A row for each of `LONGER`: scores on the tenth, where epochs are chosen, and of learning from all on
    the held-out parts; p: against the labels after the table's epochs.
    """
    setup, whole = set_up(task, template, held_out=True), set_up(task, template)
    fit = partial(fit_learner, learner=LEARNERS[learner], iterations=LONGER[-1])
    look, tenth = at(LONGER, lambda step, w, _: (step.iteration, setup.scores(w)["tenth"]))
    fit(setup, look=look)
    look, found = at(LONGER, lambda step, w, _: (step.iteration, labels_of(whole, w)))
    fit(whole, look=look)
    tenth, found, rows = dict(tenth), dict(found), []
    for n, labels in found.items():
        row = {"epochs": n, "tenth": f"{tenth[n]:.2f}" if n in tenth else ""}
        for name, part in whole.parts.items():
            end = found[CHOICES[-1]][name]
            test = paired_test(part.gold, end, labels[name], whole.task.measure.lower())
            row |= {name: f"{100 * test.value_b:.2f}", f"p {name}": f"{test.p_value:.4f}"}
        rows.append(row)
    return rows


@study("05_more_epochs_ner.csv", frozen=("perceptron",))
def more_epochs(task="ner"):
    """Perceptrons of Table 3 for 400 and 800 epochs; five minutes."""
    yield f"05_more_epochs_{task}.csv", each(longer_rows, EDGE, task=task), [dataset(task)]


# ---- the batch perceptron beside the online one, with and without the mean ----

BATCH = {  # of the perceptron: passes, options
    "online, last": (200, {"average": False}), "online, mean": (200, {}),
    "batch, last": (6400, {"average": False, "batch": True}), "batch, mean": (6400, {"batch": True}),
}  # fmt: skip
N_BATCH, AGAINST = 800, "online, mean"  # sentences; the averaged perceptron, what paired tests are against
PASSES_SHOWN = (1, 3, 6, 12, 25, 50, 100, 200, 400, 800, 1600, 3200, 6400)


def batch_rows(task, learner):
    """A perceptron after some passes over 800 sentences, S2, and at its end; tests are against `AGAINST`."""
    setup, rows, (most, options) = set_up(task, "s2", N_BATCH), [], BATCH[learner]
    base = base_labels(task, "s2", N_BATCH, BATCH[AGAINST][0])

    def look(step, w, seconds):
        if step.iteration in PASSES_SHOWN or step.objective == 0.0:
            begin = {"passes": step.iteration, "loss": f"{step.objective:.2f}"}
            rows.append({**begin, **row_of(setup, w, seconds, **p_values(setup, base, w))})

    fit_learner(setup, partial(online.perceptron, **options), most, look)
    return rows


@study("05_batch_{}.csv", of=("ner",), frozen=("perceptron",))
def batch_perceptron(task):
    """The batch perceptron until it separates 800 sentences, beside the online one; eleven minutes."""
    yield f"05_batch_{task}.csv", each(batch_rows, cells(learner=BATCH), task=task), [dataset(task)]
