"""Rounds of boosting against one full pass over the corpus per round,
which is what they would cost without bookkeeping.
"""

import time

import numpy as np

from . import Row, race

STRETCHES = (0, 500, 1000, 2000, 4000)  # rounds; the first one is what is asked of


def boosting(repeats=3):
    """Seconds a round, Spanish names (CoNLL-2002), S2, 9 labels, one thread, from zero weights.

    The reference is a pass of our own batched kernels, value and gradient of the log loss: all that a naive
    round needs before it chooses. A round costs what the sequences with its feature cost,
    and grows as more sequences have a share in the loss.
    """
    from ..data.datasets import load_dataset
    from ..optim.objective import Objective
    from .tasks import _threads_one
    from .work import encode

    data = load_dataset("conll2002", "esp", verbose=False)
    work = encode("names", "s2", data.train, data.test)
    objective = Objective(work.corpus, work.features)
    w = np.random.default_rng(0).normal(scale=0.1, size=work.features.n_features)
    with _threads_one():
        full = race({"pass": lambda: objective(w)}, max(5, repeats))["pass"].median_cpu
        rows = []
        for bound in ("global", "split"):
            runs = [_stretches(work, bound) for _ in range(repeats + 1)][1:]  # the first one compiles
            seconds = np.median([times for times, _ in runs], axis=0)
            speed = ", ".join(
                f"{1 / s:,.0f} to round {stop:,}" for s, stop in zip(seconds, STRETCHES[1:], strict=True)
            )
            rows.append(
                Row(
                    f"boosting, {bound} bound, a round of the first {STRETCHES[1]}",
                    seconds[0],
                    full,
                    "CPU s",
                    0.1,
                    None,
                    f"rounds a second: {speed}; log loss there {runs[-1][1]:.1f} nats",
                )
            )
            rows.append(
                Row(f"the same, rounds {STRETCHES[-2]:,} to {STRETCHES[-1]:,}", seconds[-1], full, "CPU s")
            )
    return rows


def _stretches(work, bound):
    """(CPU seconds a round in each of `STRETCHES`, log loss at the end). Layout,
    first pass and first round are not counted.
    """
    from ..optim.boosting import boost

    clock = {}

    def watch(step, w):
        if step.iteration == 1 or step.iteration in STRETCHES:
            clock[step.iteration if step.iteration > 1 else 0] = time.process_time()

    # every round reports itself: 5 per cent that a user does not pay
    result = boost(
        work.corpus, work.features, bound=bound, max_iterations=STRETCHES[-1], report_every=1, callback=watch
    )
    stops = zip(STRETCHES[:-1], STRETCHES[1:], strict=True)
    return [(clock[stop] - clock[start]) / (stop - start) for start, stop in stops], result.objective
