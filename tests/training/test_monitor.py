"""The monitor of a training run: history, early stopping, progress, time."""

import time

import numpy as np
import pandas as pd
import pytest

from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.training.monitor import STOPPED_EARLY, Monitor, history_columns


def quadratic(w):
    scale = np.arange(1.0, len(w) + 1) ** 2
    return float(0.5 * scale @ (w - 1.0) ** 2), scale * (w - 1.0)


def test_history_as_a_frame():
    monitor = Monitor(score=lambda w: -float(np.abs(w - 1).max()), score_name="dev_accuracy")
    result = monitor.finish(minimize(quadratic, np.zeros(8), callback=monitor))
    frame = pd.DataFrame(history_columns(result.history, dev_accuracy=monitor.scores))
    assert list(frame.columns) == [
        "iteration",
        "objective",
        "violation",
        "n_active",
        "seconds",
        "dev_accuracy",
    ]
    assert len(frame) == result.n_iter and frame["iteration"].tolist() == list(range(1, result.n_iter + 1))
    assert frame["objective"].is_monotonic_decreasing and frame["seconds"].is_monotonic_increasing
    for name, column in monitor.columns().items():
        np.testing.assert_array_equal(frame[name], column)
    assert len(history_columns([])["iteration"]) == 0
    assert np.isnan(
        history_columns(result.history, dev=[0.5])["dev"][-1]
    )  # interrupted before the last score


def test_early_stopping_keeps_the_best_weights():
    scores = iter([0.1, 0.5, 0.5, 0.4, 0.3, 0.9, 0.9])
    seen = []

    def score(w):
        seen.append(w.copy())
        return next(scores)

    monitor = Monitor(score=score, patience=3)
    stopped = minimize(quadratic, np.zeros(8), callback=monitor, tol_gradient=1e-12)
    result = monitor.finish(stopped)
    assert result.status == STOPPED_EARLY and result.n_iter == 5 == len(monitor.scores)
    np.testing.assert_array_equal(result.w, seen[1])  # the first of two equally good ones
    assert result.objective == pytest.approx(quadratic(seen[1])[0])
    assert not np.array_equal(stopped.w, result.w)


def test_without_patience_the_last_weights_stay():
    monitor = Monitor(score=lambda w: 0.0)
    result = minimize(quadratic, np.zeros(4), callback=monitor)
    assert monitor.finish(result) is result and not monitor.stopped_early


def test_the_users_callback_stops():
    monitor = Monitor(callback=lambda step, w: step.iteration == 2)
    assert monitor.finish(minimize(quadratic, np.zeros(8), callback=monitor)).status == "stopped by callback"


def test_time_of_watching_is_counted_apart():
    monitor = Monitor(score=lambda w: time.sleep(0.2) or 0.0)
    result = minimize(quadratic, np.zeros(8), callback=monitor, max_iterations=5)
    assert monitor.seconds >= 0.2 * result.n_iter
    assert result.history[-1].seconds < monitor.seconds


def test_progress_goes_to_stderr(capsys):
    for verbose in (True, 2):
        with Monitor(verbose=verbose, score=lambda w: 0.25, score_name="dev_accuracy", total=50) as monitor:
            result = minimize(quadratic, np.zeros(8), callback=monitor)
        out, err = capsys.readouterr()
        assert out == "" and "objective" in err and "dev_accuracy 0.2500" in err
        assert verbose is True or err.count("\n") == result.n_iter
    with Monitor(verbose=True):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patience": 0, "score": len}, ">= 1"),
        ({"patience": 2}, "patience: expected a score on held-out data"),
        ({"callback": 3}, "callback: expected a function or None, got 3"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        Monitor(**change)


def test_the_state_is_passed_on_to_who_wants_it():
    states = []

    def callback(step, w, state):
        states.append(state()["iteration"].item())
        return step.iteration == 2

    callback.wants_state = True
    monitor = Monitor(callback=callback)
    assert monitor.wants_state and not Monitor(callback=lambda step, w: None).wants_state
    assert not Monitor().wants_state
    result = monitor.finish(minimize(quadratic, np.zeros(8), callback=monitor))
    assert states == [1, 2] and result.status == "stopped by callback"
