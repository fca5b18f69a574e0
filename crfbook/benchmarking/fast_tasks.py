"""Seconds until the objective is within 1e-4 (relative) of its minimum:
our fastest route against CRFsuite's L-BFGS.
"""

import os
import time
from functools import partial

import numpy as np

from . import Row
from .crfsuite import model_file, trainer
from .work import encode, load

CLOSE = 1e-4
PIECES = (("chunking", 1.0, 0.10), ("chunking", 0.05, 0.20), ("names", 1.0, 0.15))  # work, c2, required
TITLES = {"chunking": "CoNLL-2000", "names": "Spanish names, S3"}
OURS = {"fast_fit": "algorithm=auto", "sdca": "sdca alone", "L-BFGS": "our L-BFGS"}


def fast(repeats=1):
    """CPU seconds to 1e-4 above the optimum, one thread: CoNLL-2000, c2 = 1 and 0.05, Spanish names S3,
    c2 = 1; sdca alone, L-BFGS.

    Layouts are built inside the clock, the corpus is encoded outside. CRFsuite's seconds are those of its own
    log, from the first iteration to the first one that is close enough.
    """
    for piece in PIECES:
        yield from _race(*piece, repeats)  # as they come: each takes minutes


def _load(name):
    if name == "chunking":
        return load(name)
    from ..data.datasets import load_dataset

    data = load_dataset("conll2002", "esp", verbose=False)
    return encode("names", "s3", data.train, data.test)


def _race(name, c2, required, repeats):
    from ..data.corpus import slice_sequences
    from ..optim.fast import fast_fit
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from ..optim.sdca import sdca
    from .tasks import _threads_one

    work = _load(name)
    corpus, features = work.corpus, work.features
    names = work.encoder.attribute_names()
    tokens = [
        [names[a] for a in corpus.attr_idx[lo:hi].tolist()]
        for lo, hi in zip(corpus.attr_ptr[:-1], corpus.attr_ptr[1:], strict=True)
    ]
    rows = [tokens[lo:hi] for lo, hi in zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True)]
    peer = trainer(
        rows, work.columns.labels_by_sequence(), c2=c2, epsilon=1e-9, delta=3e-6, max_iterations=600
    )

    def lbfgs(corpus, features, c2, tol, callback):
        fun = Objective(corpus, features, c2=c2)
        return minimize(fun, np.zeros(features.n_features), c2=c2, memory=30, tol=tol, callback=callback)

    with _threads_one():
        objective = Objective(corpus, features, c2=c2)
        best = fast_fit(corpus, features, c2=c2, tol=1e-9).objective
        steps = {}
        ours = {"fast_fit": fast_fit, "sdca": sdca, "L-BFGS": lbfgs}
        for learner in ours.values():  # compile on something small
            learner(slice_sequences(corpus, 0, 30), features, c2=c2, tol=1e-2, callback=lambda step, w: False)
        candidates = {"crfsuite": partial(_crfsuite_seconds, peer, best, steps)}
        candidates |= {
            key: partial(_seconds, learner, work, objective, best, steps, key)
            for key, learner in ours.items()
        }
        runs = [
            {key: run() for key, run in candidates.items()} for _ in range(repeats)
        ]  # in turn; no warm-up of minutes
    took = {key: float(np.median([run[key] for run in runs])) for key in candidates}
    ends = f"optimum {best:.4f}; CRFsuite is there after {steps['crfsuite']} iterations"
    notes = {
        "fast_fit": f"{steps['fast_fit']} epochs and iterations; {ends}",
        "sdca": f"coordinate ascent alone: {steps['sdca']} epochs",
        "L-BFGS": f"ours, from 0, memory 30: {steps['L-BFGS']} iterations",
    }
    return [
        Row(
            f"to {CLOSE:g} above the optimum, {TITLES[name]}, c2 = {c2:g}: {OURS[key]}",
            took[key],
            took["crfsuite"],
            "CPU s",
            required if key == "fast_fit" else None,
            None,
            notes[key],
        )
        for key in ours
    ]


def _crfsuite_seconds(peer, best, steps):
    path = model_file()
    try:
        peer.train(path)
    finally:
        os.unlink(path)
    spent = 0.0
    for step in peer.logparser.iterations:
        spent += float(step["time"])
        if step["loss"] <= best * (1 + CLOSE):
            steps["crfsuite"] = step["num"]
            return spent
    raise RuntimeError(
        f"CRFsuite stopped at {peer.logparser.last_iteration['loss']}, never within {CLOSE:g} of {best}"
    )


def _seconds(learner, work, objective, best, steps, key):
    """CPU seconds until the weights shown to the callback are close enough; looking at them is left out."""
    start, aside = time.process_time(), 0.0

    def close_enough(step, w):
        nonlocal aside
        now, steps[key] = time.process_time(), step.iteration
        if objective(w)[0] <= best * (1 + CLOSE):
            raise _ThereError(now - start - aside)
        aside += time.process_time() - now
        return False

    try:
        learner(work.corpus, work.features, c2=objective.c2, tol=1e-6, callback=close_enough)
    except _ThereError as there:
        return there.args[0]
    raise RuntimeError(f"{key} stopped before it was within {CLOSE:g} of {best}")


class _ThereError(Exception):
    """Thrown by the callback: a learner that returned would look at its result once more."""
