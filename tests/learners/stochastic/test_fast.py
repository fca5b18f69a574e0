"""The fastest route: dual coordinate ascent, then L-BFGS in stretched weights;
both ways to the end against plain L-BFGS.
"""

from functools import partial

import numpy as np
import pytest
from helpers.problems import KINDS, problem

from crfbook.chain.objective import Objective
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.quasi_newton.support import minimize_on_support
from crfbook.learners.stochastic import fast as module
from crfbook.learners.stochastic.averaged import AverageGradient, sag
from crfbook.learners.stochastic.dual import DualAscent, sdca
from crfbook.learners.stochastic.fast import fast_fit, fast_l1_fit
from crfbook.learners.stochastic.gradient_descent import Sgd, sgd

pytestmark = pytest.mark.kernels
C2 = 0.2


@pytest.fixture(params=["ascent", "both"])
def route(request, monkeypatch):
    """Coordinate ascent all the way, or L-BFGS after LOOK_BACK + 1 epochs."""
    monkeypatch.setattr(module, "HANDOVER", np.inf)
    monkeypatch.setattr(module, "SLOW", -np.inf if request.param == "ascent" else np.inf)
    return request.param


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_reaches_the_certificate(route, kind, constrained):
    corpus, features, _, constraints = problem(60, constrained, **kind)
    objective = Objective(corpus, features, c2=C2, constraints=constraints)
    best = minimize(objective, np.zeros(features.n_features), c2=C2, tol=1e-12).objective
    result = fast_fit(corpus, features, c2=C2, constraints=constraints, tol=1e-6)
    assert result.status == "converged"
    assert (result.n_iter > module.LOOK_BACK + 1) and ("stretch" in result.state) == (route == "both")
    value, gradient = objective(result.w)
    np.testing.assert_allclose(result.objective, value, rtol=1e-12)
    assert best - 1e-9 <= value <= best + result.history[-1].violation <= best + 1e-6 * max(1.0, value)
    if route == "both":  # what L-BFGS in other units reports is the bound in our own
        np.testing.assert_allclose(result.history[-1].violation, gradient @ gradient / (4 * C2), rtol=1e-6)
    assert [step.iteration for step in result.history] == list(range(1, result.n_iter + 1))
    assert all(np.diff([step.seconds for step in result.history]) >= 0)


@pytest.mark.parametrize("stop", [2, 5, 9])
def test_resuming_goes_on_bit_for_bit(route, stop):
    corpus, features, _, _ = problem(61, n_classes=2)
    options = {"c2": C2, "tol": 0.0}
    whole = fast_fit(corpus, features, max_iterations=14, **options)
    half = fast_fit(corpus, features, max_iterations=stop, **options)
    rest = fast_fit(corpus, features, max_iterations=14, state=half.state, **options)
    assert [s.objective for s in half.history + rest.history] == [s.objective for s in whole.history]
    assert [s.iteration for s in rest.history] == list(range(stop + 1, 15))
    assert np.array_equal(rest.w, whole.w) and rest.n_iter == whole.n_iter == 14


def test_while_ascent_is_fast_it_is_coordinate_ascent(monkeypatch):
    monkeypatch.setattr(module, "SLOW", -np.inf)
    corpus, features, _, _ = problem(62)
    alone = sdca(corpus, features, c2=C2, tol=1e-5)
    result = fast_fit(corpus, features, c2=C2, tol=1e-5)
    assert np.array_equal(result.w, alone.w) and result.status == alone.status == "converged"


def test_callback_start_and_no_iterations(route):
    corpus, features, w, _ = problem(63)
    seen = []
    result = fast_fit(
        corpus, features, c2=C2, tol=0.0, callback=lambda step, w: seen.append(w.copy()) or len(seen) == 8
    )
    assert (
        result.status == "stopped by callback" and result.n_iter == 8 and np.array_equal(result.w, seen[-1])
    )
    nothing = fast_fit(corpus, features, w, c2=C2, max_iterations=0)
    assert np.array_equal(nothing.w, w) and nothing.n_iter == 0
    best = minimize(Objective(corpus, features, c2=C2), w, c2=C2, tol=1e-13)
    assert fast_fit(corpus, features, best.w, c2=C2, tol=1e-5).n_iter == 1


@pytest.mark.parametrize("where", [(Objective, "curvature"), (module.Preconditioned, "of_v")])
def test_a_word_to_stop_and_an_interrupt_where_the_routes_meet(where, monkeypatch):
    monkeypatch.setattr(module, "HANDOVER", np.inf)
    monkeypatch.setattr(module, "SLOW", np.inf)
    corpus, features, _, _ = problem(66)
    last = module.LOOK_BACK + 1
    result = fast_fit(corpus, features, c2=C2, tol=0.0, callback=lambda step, w: step.iteration == last)
    assert result.status == "stopped by callback" and result.n_iter == last

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(*where, interrupted)
    stopped = fast_fit(corpus, features, c2=C2, tol=0.0, max_iterations=12)
    assert stopped.status == "interrupted" and np.array_equal(stopped.w, result.w)
    monkeypatch.undo()
    assert fast_fit(corpus, features, c2=C2, state=stopped.state).status == "converged"


@pytest.mark.parametrize("lengths", [(3,), (1,), (0, 2, 0), (0,), ()])
def test_small_corpora(lengths):
    corpus, features, _, _ = problem(64, lengths=lengths)
    assert fast_fit(corpus, features, c2=C2).status == "converged"


def test_bad_arguments_are_named():
    corpus, features, _, _ = problem(65)
    with pytest.raises(ValueError, match="c2: expected a finite number > 0"):
        fast_fit(corpus, features, c2=0.0)
    with pytest.raises(MemoryError, match="more than memory_limit"):
        fast_fit(corpus, features, c2=1.0, memory_limit=10)
    with pytest.raises(ValueError, match="max_iterations: expected an integer"):
        fast_fit(corpus, features, c2=1.0, max_iterations=-1)


@pytest.mark.parametrize(
    "learner", [sgd, partial(sag, tol=0.0), partial(sdca, tol=0.0), partial(fast_fit, tol=0.0)]
)
def test_ctrl_c_in_the_last_pass_keeps_the_model(learner, monkeypatch):
    """In the pass that only tells the objective of what was trained."""
    corpus, features, _, _ = problem(63)
    whole = learner(corpus, features, c2=1.0, max_iterations=2)

    def interrupt(self, *args):
        raise KeyboardInterrupt

    for owner in (AverageGradient, DualAscent):
        monkeypatch.setattr(owner, "evaluate", interrupt)
    losses = Sgd.losses
    monkeypatch.setattr(
        Sgd, "losses", lambda self, *args: interrupt(self) if self.iteration == 2 else losses(self, *args)
    )
    stopped = learner(corpus, features, c2=1.0, max_iterations=2)
    assert stopped.status == "interrupted" and stopped.n_iter == 2 and np.isfinite(stopped.objective)
    np.testing.assert_array_equal(stopped.w, whole.w)


# ---- with an L1 penalty

L1 = [(0.4, 0.1), (0.7, 0.0)]


def lowest(corpus, features, c1, c2, constraints=None):
    objective = Objective(corpus, features, c2=c2, constraints=constraints)
    ends = {"tol": 1e-11, "tol_gradient": 1e-9}
    return minimize(objective, np.zeros(features.n_features), c1=c1, c2=c2, **ends)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(("c1", "c2"), L1)
@pytest.mark.parametrize("kind", KINDS)
def test_l1_reaches_the_minimum(kind, c1, c2, constrained):
    corpus, features, _, constraints = problem(70, constrained, **kind)
    best = lowest(corpus, features, c1, c2, constraints)
    result = fast_l1_fit(corpus, features, c1=c1, c2=c2, constraints=constraints, tol_gradient=1e-7, tol=1e-9)
    assert result.status == "converged" and result.n_iter > module.EPOCHS
    assert result.objective == pytest.approx(best.objective, rel=1e-7)
    np.testing.assert_array_equal(result.w != 0, best.w != 0)
    assert [step.iteration for step in result.history] == list(range(1, result.n_iter + 1))
    assert all(np.diff([step.seconds for step in result.history]) >= 0)


@pytest.mark.parametrize(("c1", "c2"), L1)
@pytest.mark.parametrize("stop", [0, 1, module.EPOCHS, module.EPOCHS + 1, 14])
def test_l1_resumes_bit_for_bit(stop, c1, c2, monkeypatch):
    monkeypatch.setattr("crfbook.learners.quasi_newton.support.SETTLED", (3, 1.0))  # both parts of the end
    corpus, features, _, _ = problem(71, n_classes=2)
    options = {"c1": c1, "c2": c2, "tol": 0.0, "tol_gradient": 0.0}
    whole = fast_l1_fit(corpus, features, max_iterations=18, **options)
    half = fast_l1_fit(corpus, features, max_iterations=stop, **options)
    assert half.n_iter == stop == len(half.history)
    rest = fast_l1_fit(corpus, features, max_iterations=18, state=half.state, **options)
    assert [s.objective for s in half.history + rest.history] == [s.objective for s in whole.history]
    assert [s.iteration for s in rest.history] == list(range(stop + 1, 19))
    assert np.array_equal(rest.w, whole.w) and rest.n_iter == whole.n_iter == 18
    assert all(np.diff([s.seconds for s in half.history + rest.history]) >= 0)


@pytest.mark.parametrize("n", [1, module.EPOCHS, module.EPOCHS + 3])
def test_l1_reports_its_own_objective(n):
    corpus, features, _, _ = problem(72)
    c1, c2 = L1[0]
    result = fast_l1_fit(corpus, features, c1=c1, c2=c2, tol=0.0, max_iterations=n)
    value = Objective(corpus, features, c2=c2)(result.w)[0] + c1 * np.abs(result.w).sum()
    assert result.objective == pytest.approx(value, rel=1e-12)
    seen = result.history[min(n, module.EPOCHS) - 1].objective  # as the sequences had their losses
    assert seen > lowest(corpus, features, c1, c2).objective


def test_l1_a_word_to_stop_and_an_interrupt_where_the_parts_meet(monkeypatch):
    corpus, features, _, _ = problem(73)
    common = {"c1": 0.4, "c2": 0.1}
    last = module.EPOCHS
    result = fast_l1_fit(corpus, features, callback=lambda step, w: step.iteration == last, **common)
    assert result.status == "stopped by callback" and result.n_iter == last

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Shrinking, "script", interrupted)
    stopped = fast_l1_fit(corpus, features, **common)
    assert stopped.status == "interrupted" and np.array_equal(stopped.w, result.w)
    monkeypatch.undo()
    whole = fast_l1_fit(corpus, features, **common)
    rest = fast_l1_fit(corpus, features, state=stopped.state, **common)
    assert np.array_equal(rest.w, whole.w) and rest.status == whole.status == "converged"


@pytest.mark.parametrize(
    ("c1", "c2", "size"),
    [(0.3, 0.0, 1e8), (0.3, 0.1, 1e8), (1e-12, 1e-12, 1.0), (1e-200, 0.0, 1.0), (1e200, 0.1, 1.0)],
)
def test_l1_begins_at_zero_where_ascent_ends_far_off(c1, c2, size):
    corpus, features, _, _ = problem(4, valued=True, lengths=(3, 0, 1, 4, 2, 6, 5, 3, 2) * 6)
    corpus.attr_val[::7] *= size
    options = {"c1": c1, "c2": c2, "max_iterations": 300}
    best = minimize_on_support(corpus, features, **options)
    result = fast_l1_fit(corpus, features, **options)
    assert result.objective == pytest.approx(best.objective, rel=1e-5) and result.status == best.status
    half = fast_l1_fit(corpus, features, **options | {"max_iterations": module.EPOCHS})
    rest = fast_l1_fit(corpus, features, state=half.state, **options)
    np.testing.assert_array_equal(rest.w, result.w)


@pytest.mark.parametrize("lengths", [(), (0,), (1,), (2, 3)])
@pytest.mark.filterwarnings("error")
def test_l1_of_nothing(lengths):
    """No sequence, or none that counts."""
    corpus, features, _, _ = problem(64, lengths=lengths)
    result = fast_l1_fit(corpus._replace(seq_weight=np.zeros(len(lengths))), features, c1=0.5)
    assert result.status == "empty model" and result.objective == 0.0 and not result.w.any()
    with pytest.raises(ValueError, match="max_iterations: expected an integer"):
        fast_l1_fit(corpus, features, c1=1.0, max_iterations="2")


def test_l1_an_interrupt_in_the_first_epoch_knows_no_objective(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(DualAscent, "visit", interrupted)
    corpus, features, _, _ = problem(75)
    stopped = fast_l1_fit(corpus, features, c1=0.4)
    assert stopped.status == "interrupted" and np.isnan(stopped.objective) and stopped.n_iter == 0
    monkeypatch.undo()
    whole, rest = (fast_l1_fit(corpus, features, c1=0.4, state=state) for state in (None, stopped.state))
    np.testing.assert_array_equal(rest.w, whole.w)


def test_l1_epochs_are_those_of_ascent_and_report_their_own_penalties():
    corpus, features, _, _ = problem(76)
    c1, c2, seen = 0.4, 0.1, []
    alone = sdca(
        corpus,
        features,
        c2=c1 + c2,
        tol=0.0,
        max_iterations=3,
        callback=lambda step, w: seen.append(w.copy()),
    )
    result = fast_l1_fit(corpus, features, c1=c1, c2=c2, max_iterations=3)
    np.testing.assert_array_equal(result.w, alone.w)
    for step, other, w in zip(result.history, alone.history, seen, strict=True):
        want = other.objective + c1 * np.abs(w).sum() - c1 * float(w @ w)
        assert step.objective == pytest.approx(want, rel=1e-12)
