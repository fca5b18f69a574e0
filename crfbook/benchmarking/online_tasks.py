"""Online learners against CRFsuite's "ap", "pa" and "arow": seconds an epoch,
and what the models are worth.
"""

import os
import time

import numpy as np

from ..evaluation import chunk_report
from . import Clocked, Row, race
from .work import attribute_strings, load

EPOCHS = 10
LEARNERS = {
    "ap": ("perceptron", 0.6),
    "pa": ("passive_aggressive", None),
    "arow": ("arow", None),
}  # CRFsuite's name, ours, required


def perceptron(repeats=3):
    """Averaged perceptron, PA and AROW on CoNLL-2000, 22 labels, one thread: seconds an epoch,
    F1 after ten.
    """
    work = load("chunking")
    strings = attribute_strings(work.columns, work.template)
    return [_against_crfsuite(work, strings, name, repeats) for name in LEARNERS]


def _against_crfsuite(work, strings, name, repeats):
    from ..models.inference import decode
    from ..optim import online

    (ours, required), last = LEARNERS[name], {}
    learner, trainer = getattr(online, ours), epoch_trainer(strings, work.columns.labels_by_sequence(), name)
    took = race(
        {
            "crfsuite": lambda: crfsuite_epoch_seconds(trainer, last),
            "ours": lambda: epoch_seconds(work, learner, last),
        },
        repeats,
    )
    test = work.encoder.transform(work.test, on_unknown_label="mark")
    paths = {
        "ours": work.encoder.decode(decode(test, work.features, last["w"]), test.seq_ptr),
        "crfsuite": [last["tagger"].tag(rows) for rows in attribute_strings(work.test, work.template)],
    }
    f1 = {side: 100 * chunk_report(work.test.labels_by_sequence(), path).f1 for side, path in paths.items()}
    return Row(
        f"{ours.replace('_', '-')}, one epoch",
        took["ours"].median_cpu,
        took["crfsuite"].median_cpu,
        "CPU s",
        required,
        None,
        f"F1 after {EPOCHS} epochs: ours {f1['ours']:.2f}, CRFsuite {f1['crfsuite']:.2f} (the orders of the sentences differ)",
    )


def epoch_seconds(work, learner, last):
    """Median seconds between the ends of epochs: the first one, with layout and compilation, is left out."""
    cpu, wall = [], []

    def tick(step, w):
        cpu.append(time.process_time())
        wall.append(time.perf_counter())

    last["w"] = learner(work.corpus, work.features, max_iterations=EPOCHS, callback=tick).w
    return Clocked(float(np.median(np.diff(cpu))), float(np.median(np.diff(wall))))


def epoch_trainer(strings, labels, algorithm):
    import pycrfsuite

    trainer = pycrfsuite.Trainer(algorithm=algorithm, verbose=False)
    for x, y in zip(strings, labels, strict=True):
        trainer.append(x, y)
    trainer.set_params({"max_iterations": EPOCHS})
    return trainer


def crfsuite_epoch_seconds(trainer, last):
    """Median CPU seconds of an epoch by CRFsuite's own log; the model goes to last["tagger"]."""
    import pycrfsuite

    from .crfsuite import model_file

    path = model_file()
    try:
        trainer.train(path)
        last["tagger"] = pycrfsuite.Tagger()
        last["tagger"].open(path)
    finally:
        os.unlink(path)
    seconds = float(np.median([float(step["time"]) for step in trainer.logparser.iterations[1:]]))
    return Clocked(seconds, seconds)
