"""Table 3 of Altun, Johnson and Hofmann (2003): perceptron and boosting, with their descendants PA and AROW;
chapter 05.

As in tables.py, the one number that an online learner needs, its epochs, is chosen on a tenth of the training
data, and then the whole training part, and prefixes of it, are learnt from. Boosting gets a fixed number of
rounds, more of them where each is cheaper, and in proportion fewer on a prefix. A second record follows
boosting round by round, with its three bounds and without the longest sentences.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np

from ..data.corpus import take_sequences
from ..data.datasets import load_dataset
from ..data.features import observed
from ..optim.boosting import boost
from ..optim.online import arow, passive_aggressive, perceptron
from .records import read_record
from .tables import SIZES, TASKS, TEMPLATES, fill, row_of, scores, set_up

LEARNERS = {
    "perceptron": partial(perceptron, average=False),
    "averaged perceptron": perceptron,
    "passive-aggressive": passive_aggressive,
    "AROW": arow,
    "boosting": boost,
    "boosting, per instance": partial(boost, bound="instance"),
}
EPOCHS = (1, 2, 3, 5, 10, 20, 30, 50)
ROUNDS = {"boosting": 10_000, "boosting, per instance": 20_000}
FOLLOWED = (
    ("s1", "split", None, 50_000),
    ("s2", "split", None, 12_000),
    ("s3", "split", None, 12_000),
    ("s2", "split", 60, 5_000),
    ("s2", "global", None, 7_000),
    ("s2", "instance", None, 7_000),
    ("s3", "split", 60, 5_000),
    ("s3", "global", None, 7_000),
)  # template, bound, longest sentence, rounds
LOOKS = (
    100,
    200,
    300,
    500,
    700,
    1000,
    1500,
    2000,
    3000,
    5000,
    7000,
    10_000,
    15_000,
    20_000,
    30_000,
    50_000,
)  # rounds


def fit_learner(setup, learner, iterations, callback=None):
    """(OptResult, CPU seconds) of a function in `LEARNERS` after so many epochs or rounds;
    compilation and callbacks do not count.

    callback: called with (Step, w, CPU seconds so far).
    """
    fit = partial(learner, setup.corpus, setup.features, constraints=setup.constraints)
    fit(max_iterations=1)
    clock, paused = time.process_time(), []

    def pause(step, w):
        if callback is not None:
            start = time.process_time()
            callback(step, w, start - clock - sum(paused))
            paused.append(time.process_time() - start)

    result = fit(max_iterations=iterations, callback=pause)
    return result, time.process_time() - clock - sum(paused)


def epochs_row(task, template, learner):
    """Scores on a tenth of the training data after each of `EPOCHS`,
    and the best number (the smallest of equals).
    """
    setup, found = set_up(task, template, held_out=True), {}

    def watch(step, w, seconds):
        if step.iteration in EPOCHS:
            found[step.iteration] = round(scores(setup, w)["tenth"], 2)

    fit_learner(setup, LEARNERS[learner], EPOCHS[-1], watch)
    best = max(found, key=lambda n: (found[n], -n))
    return {**{str(n): f"{found[n]:.2f}" if n in found else "" for n in EPOCHS}, "chosen": best}


def learner_row(task, template, learner, n_sentences, iterations):
    setup = set_up(task, template, n_sentences)
    result, seconds = fit_learner(setup, LEARNERS[learner], iterations)
    return row_of(setup, result.w, seconds, iterations=result.n_iter, status=result.status)


def fill_learners(task, folder):
    """Table 3 ("ner") with its learning curve, in `folder`: 05_epochs_<task>.csv, then 05_<task>.csv;
    returns the two paths.
    """
    folder, data = Path(folder), [load_dataset(TASKS[task].dataset, TASKS[task].task, verbose=False)]
    cells = [
        {"template": template, "learner": learner} for learner in LEARNERS for template in TEMPLATES[task]
    ]
    chosen = fill(
        folder / f"05_epochs_{task}.csv",
        [
            (cell, lambda cell=cell: epochs_row(task, **cell))
            for cell in cells
            if cell["learner"] not in ROUNDS
        ],
        datasets=data,
    )
    best = {(row["template"], row["learner"]): int(row["chosen"]) for row in read_record(chosen)[1]}
    jobs = []
    for n in SIZES[task][::-1]:  # the paper's table first, then the learning curve
        for cell in cells:
            sentences = n or len(data[0].train)
            rounds = ROUNDS.get(cell["learner"], 0) * sentences // len(data[0].train)
            more = {"n_sentences": n, "iterations": best.get(tuple(cell.values()), rounds)}
            key = {**cell, "sentences": sentences}
            jobs.append((key, lambda cell=cell, more=more: learner_row(task, **cell, **more)))
    return chosen, fill(folder / f"05_{task}.csv", jobs, datasets=data)


def without_long(setup, longest):
    """`Setup` without the training sentences of more than `longest` tokens;
    the features are those of the rest.
    """
    corpus = take_sequences(setup.corpus, np.flatnonzero(np.diff(setup.corpus.seq_ptr) <= longest))
    features = observed(corpus, setup.encoder.n_labels, setup.encoder.n_attrs)
    return setup._replace(corpus=corpus, features=features)


def rounds_rows(task, template, bound, longest, rounds):
    """Boosting seen after each of `LOOKS` and at its end: a row with rounds, log of the loss (nats), scores,
    weights, CPU seconds.

    longest: words of the longest training sentence that is kept; None: all are.
    """
    setup = set_up(task, template)
    setup = setup if longest is None else without_long(setup, longest)
    rows = []

    def look(step, w, seconds):
        rows.append(
            {
                "rounds": step.iteration,
                "log_loss": f"{step.objective:.3f}",
                "sentences": setup.corpus.n_sequences,
                **row_of(setup, w, seconds),
            }
        )

    def watch(step, w, seconds):
        if step.iteration in LOOKS:
            look(step, w, seconds)

    result, seconds = fit_learner(setup, partial(boost, bound=bound), rounds, watch)
    if result.n_iter not in LOOKS:  # it converged, or was to end elsewhere
        look(result.history[-1], result.w, seconds)
    return rows


def fill_rounds(task, folder):
    """F1 and loss against rounds of boosting, in `folder`: 05_rounds_<task>.csv; half an hour.
    Returns the path.
    """
    data = [load_dataset(TASKS[task].dataset, TASKS[task].task, verbose=False)]
    jobs = [
        (
            {"template": cell[0], "bound": cell[1], "longest": cell[2] or "all"},
            lambda cell=cell: rounds_rows(task, *cell),
        )
        for cell in FOLLOWED
    ]
    return fill(Path(folder) / f"05_rounds_{task}.csv", jobs, datasets=data)
