"""Epoch after epoch of a learner that visits sequences: history, clock, callback, Ctrl-C. What an epoch does,
the learner says.
"""

import time

import numpy as np

from crfbook._checks import whole
from crfbook.training.loop import Step
from crfbook.training.threads import one_blas_thread

CHUNK = 512  # sequences per compiled call: Ctrl-C is heard between calls


def chunks(order):
    """The order of an epoch, cut into stretches for one compiled call each."""
    return (order[first : first + CHUNK] for first in range(0, len(order), CHUNK))


def run_epochs(learner, max_iterations, callback):
    """(reason to stop, list of Step) of `learner`, which has

    epoch, seconds : epochs done and seconds spent so far, those of earlier calls included;
        `seconds` is updated.
    advance() : one more epoch, returns (objective, violation); None where there can be none,
        with `reason` set.
    weights() : the weights (F,) to keep now.
    finished(objective, violation) : the reason to stop, or None.
    roll_back() : after Ctrl-C: to where an epoch ended.
    """
    max_iterations = whole("max_iterations", max_iterations)
    with one_blas_thread():  # a product split over threads depends on their number in its last bits
        return _run(learner, max_iterations, callback)


def _run(learner, max_iterations, callback):
    history, status, clock = [], None, time.perf_counter()
    try:
        while status is None:
            if learner.epoch >= max_iterations:
                status = "max_iterations"
                break
            found = learner.advance()
            if found is None:
                status = learner.reason
                break
            w = learner.weights()
            learner.seconds += time.perf_counter() - clock
            step = Step(learner.epoch, *found, int(np.count_nonzero(w)), learner.seconds)
            history.append(step)
            status = learner.finished(*found)
            if callback is not None:
                w.flags.writeable = False
                if callback(step, w) and status is None:
                    status = "stopped by callback"
            clock = time.perf_counter()
    except KeyboardInterrupt:
        learner.roll_back()
        status = "interrupted"
    return status, history


def last_look(evaluate, status, history):
    """(objective, status): that of `evaluate()`, a last pass over the corpus;
    after Ctrl-C during it what the last epoch knew, if any.
    """
    try:
        return float(evaluate()), status
    except KeyboardInterrupt:
        return (float(history[-1].objective) if history else float("nan")), "interrupted"
