"""The four losses: what a gradient costs beside the log loss, and where training with each of them leads."""

import time

import numpy as np

from . import Row, race
from .work import load

REQUIRED = {"exp": 1.1, "pointwise-log": 2.2, "pointwise-exp": 2.2}  # times the log loss's seconds
CLAMP = 40.0


def losses(repeats=9):
    """Loss + gradient of the three other losses against the log loss: CoNLL-2000, 22 labels, and ATIS, 121;
    one thread.
    """
    return [row for name in ("chunking", "atis") for row in _gradients(load(name), repeats)]


def _gradients(work, repeats):
    from ..optim.objective import Objective

    log = Objective(work.corpus, work.features, c2=1.0)
    w = np.random.default_rng(0).normal(scale=0.1, size=work.features.n_features)
    objectives = {
        "log": log,
        **{name: log.with_loss(name, CLAMP if name.endswith("exp") else None) for name in REQUIRED},
    }
    took = race({name: lambda f=f: f(w) for name, f in objectives.items()}, repeats)
    labels = work.features.n_labels
    return [
        Row(
            f"{name} loss + gradient, {labels} labels, 1 thread",
            took[name].median_cpu,
            took["log"].median_cpu,
            "CPU s",
            required if work.name == "chunking" else None,
            None,
            f"largest u = -log p: {objectives[name].largest_u:.0f} nats",
        )
        for name, required in REQUIRED.items()
    ]


def loss_training(repeats=1):
    """Training with each loss to its end on CoNLL-2000, c2 = 1: CPU seconds against the log loss's; accuracy,
    F1.
    """
    work = load("chunking")
    rows, reference = [], None
    for loss in ("log", *REQUIRED):
        seconds, note = _train(work, loss)
        reference = reference or seconds
        rows.append(Row(f"training, {loss} loss", seconds, reference, "CPU s", None, None, note))
    return rows


def _train(work, loss):
    from ..evaluation import chunk_report
    from ..models.inference import decode
    from ..optim.loss_path import minimize_loss

    start = time.process_time()
    found = minimize_loss(work.corpus, work.features, loss=loss, c2=1.0, tol=1e-4)
    seconds = time.process_time() - start
    test = work.encoder.transform(work.test, on_unknown_label="mark")
    path = decode(test, work.features, found.w)
    f1 = 100 * chunk_report(work.test.labels_by_sequence(), work.encoder.decode(path, test.seq_ptr)).f1
    return seconds, (
        f"objective {found.objective:.2f}, {found.status} after {found.n_iter} iterations, {found.n_evaluations} "
        f"evaluations; test accuracy {100 * np.mean(path == test.labels):.2f}, F1 {f1:.2f}"
    )
