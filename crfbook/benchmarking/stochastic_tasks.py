"""Stochastic gradient against CRFsuite's "l2sgd",
and how far each learner has come after so many passes over the corpus.
"""

from functools import partial

import numpy as np

from . import Row, race
from .crfsuite import weights_of
from .online_tasks import EPOCHS, crfsuite_epoch_seconds, epoch_seconds, epoch_trainer
from .work import attribute_strings, load

PASSES = (5, 10, 20, 30)


def sgd(repeats=3):
    """SGD on CoNLL-2000, c2 = 1, one thread: seconds an epoch and objective after ten,
    against CRFsuite's l2sgd; sgd-l1, sag.
    """
    from ..optim import stochastic
    from ..optim.objective import Objective
    from ..optim.sag import sag

    work = load("chunking")
    trainer = epoch_trainer(
        attribute_strings(work.columns, work.template), work.columns.labels_by_sequence(), "l2sgd"
    )
    trainer.set_params({"c2": 1.0})
    last = {name: {} for name in ("crfsuite", "sgd", "sgd-l1", "sag")}
    learners = {
        "sgd": partial(stochastic.sgd, c2=1.0),
        "sgd-l1": partial(stochastic.sgd_l1, c1=1.0),
        "sag": partial(sag, c2=1.0),
    }
    took = race(
        {"crfsuite": lambda: crfsuite_epoch_seconds(trainer, last["crfsuite"])}
        | {name: partial(epoch_seconds, work, learner, last[name]) for name, learner in learners.items()},
        repeats,
    )
    objective = Objective(work.corpus, work.features, c2=1.0)
    value = {
        "ours": objective(last["sgd"]["w"])[0],
        "crfsuite": objective(weights_of(work, last["crfsuite"]["tagger"]))[0],
    }
    notes = {
        "sgd": "",
        "sag": "against the same; it does two sums of scores and two updates, and searches for Lipschitz constants",
        "sgd-l1": f"against the same, CRFsuite has no L1; c1 = 1: {np.count_nonzero(last['sgd-l1']['w']):,} weights after {EPOCHS}",
    }
    rows = [
        Row(
            f"{name}, one epoch",
            took[name].median_cpu,
            took["crfsuite"].median_cpu,
            "CPU s",
            note=notes[name],
        )
        for name in learners
    ]
    return [
        *rows,
        Row(
            f"sgd, objective after {EPOCHS} epochs",
            value["ours"],
            value["crfsuite"],
            "nats",
            1.0,
            None,
            "ours the mean over epochs, CRFsuite's the best epoch",
        ),
    ]


def stochastic_passes(repeats=1):
    """CoNLL-2000, c2 = 1: (objective - optimum) / optimum after 5, 10, 20, 30 passes of sgd and sag,
    against L-BFGS.
    """
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from ..optim.sag import sag
    from ..optim.stochastic import sgd

    work = load("chunking")
    objective, start = Objective(work.corpus, work.features, c2=1.0), np.zeros(work.features.n_features)
    reached = {"L-BFGS": {}, "sgd": {}, "sag": {}}

    def watch(name, passes):
        def note(step, w):
            reached[name][passes(step)] = objective(w)[0]

        return note

    best = minimize(
        objective,
        start,
        c2=1.0,
        memory=30,
        tol=1e-7,
        callback=lambda step, w: reached["L-BFGS"].__setitem__(step.iteration, step.objective),
    ).objective
    for name, learner in (("sgd", sgd), ("sag", sag)):
        learner(
            work.corpus,
            work.features,
            c2=1.0,
            max_iterations=max(PASSES),
            callback=watch(name, lambda step: step.iteration),
        )
    return [
        Row(
            f"{name}: (objective - optimum) / optimum, {n} passes",
            reached[name].get(n, best) / best - 1,
            reached["L-BFGS"][n] / best - 1,
            "relative",
            note="" if n > PASSES[0] else "the trials of sgd's calibration not counted",
        )
        for name in ("sgd", "sag")
        for n in PASSES
    ]
