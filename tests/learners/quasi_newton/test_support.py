"""L1 training on the support: it ends where `minimize` on all weights does,
also when the support was chosen badly.
"""

import io

import numpy as np
import pytest
from helpers.corpora import random_corpus
from helpers.problems import kkt

from crfbook.chain.objective import Objective
from crfbook.data.features import observed
from crfbook.learners.quasi_newton import support
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.quasi_newton.support import minimize_on_support

pytestmark = pytest.mark.usefixtures("kernels_only")

EXACT = {"tol": 1e-13, "tol_gradient": 1e-6}


def problem(seed=0):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=rng.integers(0, 6, 60), n_attrs=30, n_classes=2)
    return corpus, observed(corpus, 3, 30, int(corpus.class_attr.max()) + 1)


def in_a_hurry(monkeypatch, look_around=3):
    """The support is chosen after two iterations, without a margin:
    most of what it leaves out must come back.
    """
    monkeypatch.setattr(support, "SETTLED", (1, 1.0))
    monkeypatch.setattr(support, "MARGIN", -3.0)
    monkeypatch.setattr(support, "LOOK_AROUND", look_around)


def sizes(monkeypatch):
    """The numbers of weights of the smaller problems, as they are made."""
    made, small = [], support.Shrinking._small
    monkeypatch.setattr(
        support.Shrinking, "_small", lambda self, free: made.append(len(free)) or small(self, free)
    )
    return made


@pytest.mark.parametrize("hurry", [False, True])
@pytest.mark.parametrize("c1, c2", [(0.5, 0.0), (2.0, 0.0), (0.5, 0.2)])
def test_same_optimum_and_support(c1, c2, hurry, monkeypatch):
    if hurry:
        in_a_hurry(monkeypatch)
    made = sizes(monkeypatch)
    corpus, features = problem()
    fun = Objective(corpus, features, c2=c2)
    found = minimize_on_support(corpus, features, c1=c1, c2=c2, **EXACT)
    best = minimize(fun, np.zeros(features.n_features), c1=c1, c2=c2, **EXACT)
    assert found.status == "converged" and kkt(fun, found.w, c1) <= 1e-5
    assert made and made[0] < features.n_features, "the support was never tried"
    assert not hurry or (len(made) > 1 and max(made) > made[0]), "nothing had to be let in"
    np.testing.assert_array_equal(found.w != 0, best.w != 0)
    np.testing.assert_allclose(found.w, best.w, rtol=0, atol=1e-5)
    assert found.objective == pytest.approx(fun(found.w)[0] + c1 * np.abs(found.w).sum(), rel=1e-12)
    assert [step.iteration for step in found.history] == list(range(1, found.n_iter + 1))


def test_converged_is_said_of_all_weights(monkeypatch):
    """Without the looks in between, only the last one finds what is missing."""
    in_a_hurry(monkeypatch, look_around=10**6)
    corpus, features = problem(1)
    found = minimize_on_support(corpus, features, c1=0.5, tol_gradient=1e-4)
    assert found.status == "converged" and kkt(Objective(corpus, features), found.w, 0.5) <= 1.0001e-4


@pytest.mark.parametrize("stop_at", range(1, 14))
def test_resumed_training_is_bit_identical(stop_at, monkeypatch):
    in_a_hurry(monkeypatch, look_around=4)
    corpus, features = problem()
    whole = minimize_on_support(corpus, features, c1=0.5, max_iterations=14, **EXACT)
    first = minimize_on_support(
        corpus, features, c1=0.5, callback=lambda step, w: step.iteration == stop_at, **EXACT
    )
    assert first.status == "stopped by callback" and first.n_iter == stop_at
    file = io.BytesIO()
    np.savez(file, **first.state)
    file.seek(0)
    rest = minimize_on_support(
        corpus, features, c1=0.5, state=dict(np.load(file)), max_iterations=14, **EXACT
    )
    assert rest.n_iter == whole.n_iter == 14
    np.testing.assert_array_equal(rest.w, whole.w)


def test_a_state_of_minimize_will_do():
    corpus, features = problem()
    first = minimize(Objective(corpus, features), np.zeros(features.n_features), c1=0.5, max_iterations=5)
    rest = minimize_on_support(corpus, features, c1=0.5, state=first.state, **EXACT)
    assert rest.status == "converged" and rest.history[0].iteration == 6


@pytest.mark.parametrize("at", [2, 8])
def test_ctrl_c_returns_the_last_good_weights(at, monkeypatch):
    in_a_hurry(monkeypatch)
    corpus, features = problem()
    seen = []

    def interrupt(step, w):
        assert w.shape == (features.n_features,) and not w.flags.writeable
        seen.append(w.copy())
        if step.iteration == at:
            raise KeyboardInterrupt

    found = minimize_on_support(corpus, features, c1=0.5, callback=interrupt, **EXACT)
    assert found.status == "interrupted"
    np.testing.assert_array_equal(found.w, seen[-1])


def test_ctrl_c_between_two_stages(monkeypatch):
    in_a_hurry(monkeypatch)
    corpus, features = problem()

    def interrupt(self, free):
        raise KeyboardInterrupt

    monkeypatch.setattr(support.Shrinking, "_small", interrupt)
    found = minimize_on_support(corpus, features, c1=0.5)
    assert found.status == "interrupted" and found.n_iter == 2 and np.isfinite(found.w).all()


@pytest.mark.parametrize("stop", [None, 4])
def test_ctrl_c_before_the_first_evaluation_has_ended(stop, monkeypatch):
    """It gives the start, also where a resumed training begins with a look at all weights."""
    in_a_hurry(monkeypatch, look_around=4)
    corpus, features = problem()
    state, w = None, np.ones(features.n_features)
    if stop is not None:
        first = minimize_on_support(corpus, features, c1=0.5, max_iterations=stop)
        state, w = first.state, first.w

    def interrupt(self, w):
        raise KeyboardInterrupt

    monkeypatch.setattr(Objective, "__call__", interrupt)
    found = minimize_on_support(corpus, features, None if stop else w, c1=0.5, state=state)
    assert found.status == "interrupted" and found.n_iter == (stop or 0) and not found.history
    np.testing.assert_array_equal(found.w, w)
    monkeypatch.undo()
    rest = minimize_on_support(corpus, features, w, c1=0.5, state=found.state, **EXACT)
    assert rest.status == "converged"


def test_no_iterations_and_no_survivors():
    corpus, features = problem()
    w0 = np.linspace(-1.0, 1.0, features.n_features)
    none = minimize_on_support(corpus, features, w0, c1=0.5, max_iterations=0)
    assert none.status == "max_iterations" and none.n_iter == 0
    np.testing.assert_array_equal(none.w, w0)
    empty = minimize_on_support(corpus, features, c1=1e6)
    assert empty.status == "empty model" and not empty.w.any()
    with pytest.raises(ValueError, match="c1"):
        minimize_on_support(corpus, features, c1=-1.0)
