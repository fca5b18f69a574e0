"""CRF(algorithm="sbcd") over all weights there could be: those that are active, and no other, take memory."""

import warnings

import numpy as np
import pytest
from helpers.memory import peak_bytes

from crfbook.models import inputs
from crfbook.models.crf import CRF
from crfbook.models.path import regularization_path

pytestmark = pytest.mark.kernels
RNG = np.random.default_rng(3)
Y = [RNG.choice(["DET", "N", "V"], size=t).tolist() for t in RNG.integers(1, 7, size=40)]
X = [[[f"w:{y}" if RNG.random() < 0.8 else "?", "all"] for y in seq] for seq in Y]
ALL = {"all_possible_states": True, "all_possible_transitions": True}


def crf(algorithm="sbcd", **params):
    return CRF(algorithm, **{"c1": 0.4, "c2": 0.1, "tol": 1e-9, "max_iterations": 3000, **ALL, **params})


def by_name(model):
    return {**model.state_features_, **{("edge", *pair): w for pair, w in model.transition_features_.items()}}


@pytest.fixture
def nothing_laid_out(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("all weights were laid out")

    monkeypatch.setattr(inputs, "observed", refuse)


def test_the_model_is_that_of_weights_laid_out(nothing_laid_out, monkeypatch):
    virtual = crf().fit(X, Y)
    monkeypatch.undo()
    owlqn = crf("owlqn", tol=1e-10).fit(X, Y)
    assert virtual.status_ == "converged" and virtual.objective_ == pytest.approx(owlqn.objective_, rel=1e-8)
    assert (
        np.all(virtual.weights_ != 0)
        and virtual.features_.n_features == len(virtual.weights_) < owlqn.features_.n_features
    )
    found, wanted = by_name(virtual), by_name(owlqn)
    assert found.keys() == wanted.keys() and all(
        found[k] == pytest.approx(wanted[k], abs=1e-3) for k in wanted
    )
    assert virtual.predict(X) == owlqn.predict(X)


def test_weights_take_memory_when_they_are_active():
    """2000 attributes x 40 labels and 40 x 40 pairs, nearly all of them noise;
    what is laid out takes 8 bytes and 4 for its label.
    """
    labels, words = [f"y{i}" for i in range(40)], [f"w{i}" for i in range(2000)]
    rng = np.random.default_rng(0)
    gold = [[labels[y] for y in rng.integers(0, 40, 5)] for _ in range(60)]
    text = [[[f"is:{y}"] + [words[a] for a in rng.integers(0, 2000, 6)] for y in seq] for seq in gold]
    model = crf(c1=2.0, max_iterations=5, tol=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five sweeps are few
        model.fit(text[:3], gold[:3])  # compiles
        _, peak = peak_bytes(lambda: model.fit(text, gold))
    virtual = model.encoder_.n_attrs * 40 + 40 * 40
    assert 0 < model.features_.n_features == np.count_nonzero(model.weights_) < 0.05 * virtual
    assert model.weights_.nbytes + sum(np.asarray(a).nbytes for a in model.features_) < 0.3 * 8 * virtual
    assert peak < 60e6


def test_an_empty_model_says_so():
    with pytest.warns(UserWarning, match="the model is empty: c1=1000 leaves no weight"):
        model = crf(c1=1000.0).fit(X, Y)
    assert (
        model.status_ == "empty model" and model.features_.n_features == 0 and len(model.predict(X)) == len(X)
    )


def test_no_penalty_is_refused_and_c1_zero_lays_weights_out():
    with pytest.raises(ValueError, match="'sbcd' needs a penalty"):
        crf(c1=0, c2=0).fit(X, Y)
    ridge = crf(c1=0.0, max_iterations=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five sweeps are few
        assert ridge.fit(X, Y).features_.n_features == 3 * ridge.encoder_.n_attrs + 9


def test_warm_start_by_name(nothing_laid_out):
    """From a model of other sequences, whose alphabets are others: it is already there, or nearly."""
    cold = crf().fit(X, Y)
    some = crf(warm_start=True)
    some.fit(X[:20] + [[["only here"]]], Y[:20] + [["INTJ"]])
    assert "INTJ" in some.classes_
    some.fit(X, Y)
    assert (
        some.objective_ == pytest.approx(cold.objective_, rel=1e-7)
        and by_name(some).keys() == by_name(cold).keys()
    )
    again = crf(warm_start=True).fit(X, Y)
    again.fit(X, Y)
    assert again.n_iter_ <= 2 and again.objective_ == pytest.approx(cold.objective_, rel=1e-7)


def test_patience_and_callbacks_see_active_weights(nothing_laid_out):
    seen = []
    model = crf(patience=2, tol=0.0, max_iterations=50).fit(
        X, Y, X_dev=X[:5], y_dev=Y[:5], callback=lambda step, w: seen.append(w.copy()) and None
    )
    best = int(np.argmax(model.history_["dev_accuracy"]))
    np.testing.assert_array_equal(model.weights_, seen[best].w)
    assert (
        model.features_.n_features == len(seen[best].w)
        and model.score(X[:5], Y[:5]) == model.history_["dev_accuracy"].max()
    )


def test_hard_constraints():
    table = np.arange(9).reshape(3, 3) > 0  # no DET after DET
    data = [(x, y) for x, y in zip(X, Y, strict=True) if ("DET", "DET") not in zip(y, y[1:], strict=False)]
    few, gold = [x for x, _ in data], [y for _, y in data]
    virtual, owlqn = (crf(a, constraints=table, tol=1e-10).fit(few, gold) for a in ("sbcd", "owlqn"))
    assert (
        virtual.objective_ == pytest.approx(owlqn.objective_, rel=1e-8)
        and ("DET", "DET") not in virtual.transition_features_
    )


def test_a_regularisation_path(nothing_laid_out, monkeypatch):
    found = regularization_path(crf(), X, Y, n_strengths=4, ratio=0.02)
    monkeypatch.undo()
    laid_out = regularization_path(crf("owlqn", tol=1e-10), X, Y, n_strengths=4, ratio=0.02)
    np.testing.assert_allclose(found.frame["c1"], laid_out.frame["c1"], rtol=1e-9)
    np.testing.assert_allclose(found.frame["objective"], laid_out.frame["objective"], rtol=1e-7)
    assert found.frame["n_active"].tolist() == laid_out.frame["n_active"].tolist()
    assert found.frame["n_node"].tolist() == laid_out.frame["n_node"].tolist()


def test_the_forecast_counts_virtual_weights(capsys):
    crf(verbose=True, max_iterations=1).fit(X, Y)
    assert "+ 9 virtual weights" in capsys.readouterr().out
