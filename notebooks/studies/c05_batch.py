"""Chapter 05: the batch perceptron beside the online one, each with and without the mean, pass after pass."""

from functools import partial

from crfbook.learners.online import online

from .c04 import row_of
from .c05 import base_labels, fit_learner, p_values
from .harness import study
from .records import each
from .work import dataset, set_up

BATCH = {  # of the perceptron: passes, options
    "online, last": (200, {"average": False}), "online, mean": (200, {}),
    "batch, last": (6400, {"average": False, "batch": True}), "batch, mean": (6400, {"batch": True}),
}  # fmt: skip
N_BATCH, AGAINST = 800, "online, mean"  # sentences; the averaged perceptron, what paired tests are against
PASSES_SHOWN = (1, 3, 6, 12, 25, 50, 100, 200, 400, 800, 1600, 3200, 6400)


def batch_rows(task, learner):
    """A perceptron after some of its passes over the first 800 sentences, S2, and where it ends.

    p: paired tests against the end of `AGAINST`.
    """
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
    yield (
        f"05_batch_{task}.csv",
        each(batch_rows, [{"learner": name} for name in BATCH], task=task),
        [dataset(task)],
    )
