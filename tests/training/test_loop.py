"""The outer loop: history, clock, callback, Ctrl-C and stages, on a learner of three lines."""

import signal
from types import SimpleNamespace

import numpy as np
import pytest

from crfbook.training import loop
from crfbook.training.loop import Learner, Training, run, stages


class Halving(Learner):
    """w <- w / 2; the objective is |w|^2."""

    def __init__(self, n=2, max_iterations=None, interrupt_at=(), before=(0, 0.0), enough=0.0):
        self.w, self.max_iterations, self.interrupt_at, self.before = (
            np.ones(n),
            max_iterations,
            interrupt_at,
            before,
        )
        self.enough, self.settled = enough, 0

    def begin(self):
        self._pass("begin")

    def advance(self):
        self._pass(self.iteration + 1)
        self.w = self.w / 2
        self.iteration += 1

    def _pass(self, at):
        if at in self.interrupt_at:
            raise KeyboardInterrupt
        self.n_evaluations += 1
        self.objective = self.violation = float(self.w @ self.w)

    def finished(self):
        return "converged" if self.objective <= self.enough else None

    def weights(self):
        return self.w

    def settle(self):
        self.settled += 1

    def final_objective(self):
        if "end" in self.interrupt_at:
            raise KeyboardInterrupt
        return float(self.w @ self.w)

    def state(self):
        return {"iteration": np.array(self.iteration)}


def test_history_and_result():
    found = run(Halving(max_iterations=3))
    assert (found.status, found.n_iter, found.n_evaluations) == ("max_iterations", 3, 4)
    assert [step.iteration for step in found.history] == [1, 2, 3]
    assert [step.objective for step in found.history] == [2.0, 0.5, 0.125]
    assert found.objective == 2 / 64 and found.state == {"iteration": 3}
    assert all(step.n_active == 2 for step in found.history)


def test_what_is_finished_takes_no_step():
    found = run(Halving(enough=2.0))
    assert (found.status, found.n_iter, found.history) == ("converged", 0, [])
    found = run(Halving(max_iterations=0))
    assert (found.status, found.n_iter, found.objective) == ("max_iterations", 0, 2.0)


def test_a_learner_says_why_it_takes_no_step():
    class Stuck(Halving):
        def advance(self):
            return "line search failed"

    assert run(Stuck()).status == "line search failed"


@pytest.mark.parametrize("objective", [np.nan, np.inf, -np.inf])
def test_an_objective_that_is_no_number_is_the_status(objective):
    class Lost(Halving):
        def final_objective(self):
            return objective

    def script(training):
        result = yield Halving(max_iterations=1)
        return result._replace(objective=objective)

    for found in (run(Lost(max_iterations=1)), stages(script)):
        assert found.status == "non-finite objective"
    assert run(Lost(interrupt_at=(1,))).status == "interrupted"


def test_steps_of_earlier_learners_count():
    found = run(Halving(max_iterations=2, before=(10, 100.0)))
    assert [step.iteration for step in found.history] == [11, 12] and found.n_iter == 12
    assert 100.0 <= found.history[0].seconds <= found.history[1].seconds < 160.0


def test_a_callback_reads_stops_and_costs_no_time(monkeypatch):
    seen, now = [], [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def callback(step, w):
        with pytest.raises(ValueError, match="read-only"):
            w[0] = 7.0
        now[0] += 1.0
        seen.append(w.copy())
        return step.iteration == 2

    learner = Halving()
    found = run(learner, callback)
    assert (found.status, found.n_iter) == ("stopped by callback", 2)
    np.testing.assert_array_equal(seen, [[0.5, 0.5], [0.25, 0.25]])
    assert learner.w.flags.writeable and found.history[-1].seconds == 0


def test_a_certificate_counts_more_than_the_callback():
    assert run(Halving(enough=0.5), lambda step, w: step.iteration == 2).status == "converged"


def test_a_callback_that_is_none_is_named():
    with pytest.raises(ValueError, match="callback: expected a function or None, got 3"):
        Training(3)


def test_ctrl_c_before_the_first_evaluation_gives_the_start():
    learner = Halving(interrupt_at=("begin", "end"))
    found = run(learner)
    assert (found.status, found.n_iter, found.history) == ("interrupted", 0, [])
    assert np.isnan(found.objective) and learner.settled == 1
    np.testing.assert_array_equal(found.w, [1.0, 1.0])


@pytest.mark.parametrize("at, objective", [((3,), 2 / 16), ((3, "end"), 0.5), (("end",), None)])
def test_ctrl_c_keeps_what_was_good(at, objective):
    """At the end it is the last epoch's own estimate that stays."""
    found = run(Halving(interrupt_at=at, max_iterations=5))
    assert found.status == "interrupted"
    assert found.objective == (found.history[-1].objective if objective is None else objective)
    assert found.n_iter == len(found.history) == (5 if objective is None else 2)


def script_of(*learners, results):
    def script(training):
        for learner in learners:
            results.append((yield learner))
            if training.stopped:
                break
        return results[-1]

    return script


def test_a_callback_may_ask_for_the_state():
    """A function without arguments: a state that nobody wants is not made."""
    states, made = [], []

    class Counted(Halving):
        def state(self):
            made.append(self.iteration)
            return super().state()

    def callback(step, w, state):
        assert not w.flags.writeable
        if step.iteration != 2:
            states.append(state())

    callback.wants_state = True
    found = run(Counted(max_iterations=3), callback)
    assert states == [{"iteration": 1}, {"iteration": 3}] and made == [1, 3, 3]
    assert states[-1] == found.state
    plain = []
    run(Counted(max_iterations=2), lambda *args: plain.append(len(args)) and None)
    callback.wants_state = False
    with pytest.raises(TypeError, match="state"):
        run(Counted(max_iterations=1), callback)
    assert plain == [2, 2]


def test_the_state_of_each_stage_is_that_of_its_learner():
    seen = []

    def script(training):
        first = yield Halving(max_iterations=2)
        return (yield Halving(max_iterations=1, before=(first.n_iter, 0.0)))

    def callback(step, w, state):
        seen.append((step.iteration, int(state()["iteration"])))

    callback.wants_state = True
    stages(script, callback)
    assert seen == [(1, 1), (2, 2), (3, 1)]


def test_stages_are_one_training():
    results = []
    found = stages(
        script_of(Halving(max_iterations=2), Halving(max_iterations=1, before=(2, 0.0)), results=results)
    )
    assert [step.iteration for step in found.history] == [1, 2, 3]
    assert [len(result.history) for result in results] == [2, 1] and found.n_iter == 3


def test_a_callback_stops_all_stages():
    results = []
    learners = Halving(max_iterations=2), Halving(max_iterations=2)
    found = stages(script_of(*learners, results=results), lambda step, w: True)
    assert found.status == "stopped by callback" and len(found.history) == len(results) == 1


def test_ctrl_c_between_stages_keeps_the_first():
    def script(training):
        yield Halving(max_iterations=2)
        raise KeyboardInterrupt

    found = stages(script)
    assert (found.status, found.n_iter, len(found.history)) == ("interrupted", 2, 2)


def test_ctrl_c_before_any_stage_has_nothing_to_keep():
    def script(training):
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        stages(script)


class Pressed(Halving):
    """Ctrl-C comes while a method works, as a signal does: Python code goes on until it listens."""

    def __init__(self, where, **settings):
        super().__init__(**settings)
        self.where = where

    def _press(self, where):
        if where == self.where:
            self.where = None
            signal.raise_signal(signal.SIGINT)

    def advance(self):
        super().advance()
        self._press("advance")

    def final_objective(self):
        self._press("final_objective")
        return super().final_objective()

    def state(self):
        self._press("state")
        return super().state()


@pytest.mark.parametrize("where", ["advance", "final_objective", "state"])
@pytest.mark.parametrize("of_stages", [False, True])
def test_a_signal_never_loses_the_model(where, of_stages):
    learner, seen = Pressed(where, max_iterations=3), []

    def callback(step, w):
        seen.append(step)

    try:
        found = stages(script_of(learner, results=[]), callback) if of_stages else run(learner, callback)
    except KeyboardInterrupt:  # it would end all of pytest
        pytest.fail(f"Ctrl-C in {where} got out, and the model is lost")
    assert found.status == "interrupted"
    assert found.n_iter == len(found.history) == (1 if where == "advance" else 3)
    assert np.array_equal(found.w, np.ones(2) / 2**found.n_iter) and np.isfinite(found.objective)
    assert seen == found.history, "every iteration is shown"
