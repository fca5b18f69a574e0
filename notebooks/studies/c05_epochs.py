"""Chapter 05: the perceptrons of Table 3 whose epochs were at the end of `c05.CHOICES`, for longer.

Each is followed on nine tenths of the training data, where epochs are chosen, and on all of them, where its
labels after the table's epochs are those that later ones are tested against.
"""

from functools import partial

from crfbook.evaluation import paired_test

from .c05 import CHOICES, LEARNERS, fit_learner, labels_of
from .harness import study
from .records import each
from .work import dataset, set_up

LONGER = (100, CHOICES[-1], 400, 800)  # epochs
EDGE = (("s1", "perceptron"), ("s2", "perceptron"), ("s1", "averaged perceptron"))


def longer_rows(task, template, learner):
    """A row for each of `LONGER`: scores on the tenth and on the held-out parts; p: against the table's."""
    fit = partial(fit_learner, learner=LEARNERS[learner], iterations=LONGER[-1])
    setup, tenth, found = set_up(task, template, held_out=True), {}, {}

    def choose(step, w, seconds):
        if step.iteration in LONGER:
            tenth[step.iteration] = setup.scores(w)["tenth"]

    fit(setup, look=choose)
    whole, rows = set_up(task, template), []

    def keep(step, w, seconds):
        if step.iteration in LONGER:
            found[step.iteration] = labels_of(whole, w)

    fit(whole, look=keep)
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
    cells = [{"template": template, "learner": learner} for template, learner in EDGE]
    yield f"05_more_epochs_{task}.csv", each(longer_rows, cells, task=task), [dataset(task)]
