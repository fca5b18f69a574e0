"""Every algorithm of `CRF` on input that training may meet, and every combination that makes no sense."""

import inspect
import re
import warnings
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from crfbook.data.corpus import make_corpus
from crfbook.learners.coordinate import coordinate_descent
from crfbook.learners.quasi_newton import quasi_newton
from crfbook.learners.stochastic import fast
from crfbook.models.crf import CRF
from crfbook.models.fitting import warn_of_end
from crfbook.models.parameters import ALGORITHMS, ALIASES, EITHER, NEEDED, NONE, arguments_of

RNG = np.random.default_rng(3)
Y = [RNG.choice(["DET", "N", "V"], size=t).tolist() for t in RNG.integers(1, 7, size=24)]
X = [[[f"w:{y}" if RNG.random() < 0.8 else "?", "all"] for y in seq] for seq in Y]
EACH = pytest.mark.parametrize("algorithm", ALGORITHMS)


def crf(algorithm, **params):
    """With the penalties that the algorithm needs, few iterations,
    and no learning rate to be searched for long.
    """
    row = ALGORITHMS[ALIASES.get(algorithm, algorithm)]
    usual = {
        "c1": 0.1 if row.c1 == NEEDED else 0.0,
        "c2": 0.1 if row.c2 != NONE else None,
        "max_iterations": 20,
    }
    return CRF(algorithm, **{**usual, **params})


def usable(model, data=X):
    assert (
        np.isfinite(model.weights_).all() and model.objective_ < np.inf
    )  # boosting's is a logarithm: -inf is possible
    assert [len(seq) for seq in model.predict(data)] == [len(seq) for seq in data]
    return True


# ---- what training may meet


@EACH
def test_all_learn(algorithm):
    model = crf(algorithm).fit(X, Y)
    assert model.score(X, Y) > 0.75 and usable(model)
    assert model.n_iter_ <= 20 and model.history_.iteration.iloc[-1] == model.n_iter_
    assert (
        algorithm == "boosting" or len(model.history_) == model.n_iter_
    )  # boosting reports every 100 rounds
    again = clone(model).fit(X, Y)
    assert np.array_equal(again.weights_, model.weights_)  # random_state is fixed


@EACH
def test_no_iteration_at_all(algorithm):
    model = crf(algorithm, max_iterations=0).fit(X, Y)
    assert (
        usable(model)
        and not model.weights_.any()
        and model.n_iter_ == 0
        and model.status_ == "max_iterations"
    )


@EACH
def test_a_single_sequence_and_a_single_token(algorithm):
    model = crf(algorithm).fit([[["a"], ["b"], ["a"]]], [["A", "B", "A"]])
    assert usable(model, [[["a"], ["b"], ["a"]]]) and model.predict_single([["a"], ["b"]]) == ["A", "B"]
    assert usable(crf(algorithm).fit([[["a"]]], [["A"]]), [[["a"]]])


@EACH
def test_one_label_only(algorithm):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # ConvergenceWarning is one
        model = crf(algorithm).fit(X, [["A"] * len(seq) for seq in Y])
    assert usable(model) and {label for seq in model.predict(X) for label in seq} == {"A"}


@EACH
def test_empty_sequences_count_for_nothing(algorithm):
    model = crf(algorithm).fit(X, Y)
    assert np.array_equal(crf(algorithm).fit([*X, [], []], [*Y, [], []]).weights_, model.weights_)
    among = crf(algorithm).fit([[], *X[:5], [], *X[5:]], [[], *Y[:5], [], *Y[5:]])
    assert usable(among) and among.predict_single([]) == []


@EACH
def test_an_attribute_that_never_comes_again(algorithm):
    once = [
        [[*token, "once"] if i == t == 0 else token for t, token in enumerate(seq)] for i, seq in enumerate(X)
    ]
    model = crf(algorithm).fit(once, Y)
    assert usable(model, once)
    unknown = [[[*token, "never seen"] for token in seq] for seq in X]
    assert model.predict_marginals(unknown) == model.predict_marginals(X)


@EACH
def test_an_attribute_twice_at_a_position_counts_twice(algorithm):
    twice = crf(algorithm).fit(
        [[["a", "a", "b"], ["b"]], [["b"], ["a", "b"]]] * 3, [["A", "B"], ["B", "A"]] * 3
    )
    value = crf(algorithm).fit(
        [[{"a": 2, "b": 1}, {"b": 1}], [{"b": 1}, {"a": 1, "b": 1}]] * 3, [["A", "B"], ["B", "A"]] * 3
    )
    assert np.array_equal(twice.weights_, value.weights_)
    # a corpus put together by hand may hold an attribute twice at a token
    ptr, labels = [0, 2, 4], [0, 1, 1, 0]
    by_hand = make_corpus(ptr, [0, 3, 4, 5, 7], [0, 0, 1, 1, 1, 0, 1], labels=labels)
    summed = make_corpus(ptr, [0, 2, 3, 4, 6], [0, 1, 1, 1, 0, 1], attr_val=[2, 1, 1, 1, 1, 1], labels=labels)
    if algorithm in ("sdca", "auto"):  # |x_t|^2 decides the steps, not where they lead to
        a, b = (crf(algorithm, max_iterations=None, tol=1e-10).fit(corpus) for corpus in (by_hand, summed))
        np.testing.assert_allclose(a.weights_, b.weights_, rtol=1e-3, atol=1e-4, err_msg="gaps of 1e-10")
    else:
        a, b = (crf(algorithm, max_iterations=5).fit(corpus) for corpus in (by_hand, summed))
        np.testing.assert_allclose(
            a.weights_, b.weights_, rtol=1e-6, atol=1e-9, err_msg="sums in another order"
        )


@EACH
@pytest.mark.filterwarnings("ignore:no effect on algorithm")
def test_ctrl_c_leaves_the_last_good_weights(algorithm):
    seen = []

    def interrupt(step, w):
        seen.append(w.copy())
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted after [0-9]+ iterations"):
        model = (
            crf(algorithm, tol=0, epsilon=0, delta=0).fit(X, Y, callback=interrupt)
            if algorithm != "boosting"
            else crf(algorithm, max_iterations=300).fit(X, Y, callback=interrupt)
        )
    assert model.status_ == "interrupted" and usable(model)
    assert any(np.array_equal(model.weights_, w) for w in seen)


@EACH
def test_a_callback_stops(algorithm):
    model = crf(algorithm).fit(X, Y, callback=lambda step, w: True)
    assert model.n_iter_ >= 1 and len(model.history_) == 1 and usable(model)


@EACH
def test_patience_keeps_the_best_weights(algorithm):
    model = crf(algorithm, patience=2, max_iterations=300).fit(
        X, Y, X_dev=X[:5], y_dev=[["V"] * len(seq) for seq in Y[:5]]
    )
    best = model.history_.dev_accuracy.max()
    assert model.score(X[:5], [["V"] * len(seq) for seq in Y[:5]]) == pytest.approx(best)


@pytest.mark.parametrize(
    "algorithm", sorted(set(ALGORITHMS) - {"sdca"})
)  # that one starts from distributions, not from weights
def test_warm_start_begins_where_the_fit_before_ended(algorithm):
    model = crf(algorithm, warm_start=True).fit(X, Y)
    before = model.weights_
    assert np.array_equal(model.set_params(max_iterations=0).fit(X, Y).weights_, before)


@EACH
def test_a_saved_model_is_the_same_model(algorithm, tmp_path):
    model = crf(algorithm).fit(X, Y)
    model.save(tmp_path / "model")
    again = CRF.load(tmp_path / "model")
    assert np.array_equal(again.weights_, model.weights_) and again.get_params() == model.get_params()


@EACH
def test_verbose_prints_a_forecast_first(algorithm, capsys):
    crf(algorithm, verbose=True, max_iterations=1).fit(X, Y)
    assert capsys.readouterr().out.startswith("24 sequences, ")


# ---- labels that are wrong, data that are separable, steps that are too long


@pytest.mark.parametrize("loss", ["exp", "pointwise-exp"])
@pytest.mark.parametrize("clamp", [None, 5.0])
def test_label_noise_under_the_exp_losses(loss, clamp):
    wrong = [
        [{"N": "V", "V": "DET", "DET": "N"}[y] for y in seq] if i % 5 == 0 else seq for i, seq in enumerate(Y)
    ]
    long = [sum(X, []) * 10, *X], [sum(wrong, []) * 10, *wrong]  # 1/p begins beyond 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if numba.config.DISABLE_JIT else "error", RuntimeWarning)
        model = crf("lbfgs", loss=loss, clamp=clamp).fit(*long)
    assert usable(model, long[0]) and model.score(*long) > 0.5


@pytest.mark.parametrize(
    "algorithm",
    [key for key, row in ALGORITHMS.items() if row.losses and not {NEEDED, EITHER} & {row.c1, row.c2}],
)
def test_separable_data_without_a_penalty(algorithm):
    data = [[["a"], ["b"]], [["b"]]] * 4, [["A", "B"], ["B"]] * 4
    remedy = {"boosting": "fewer iterations", "sgd": "c2=0.01 gives", "sag": "c2=0.01 gives"}.get(
        algorithm, "c2=0.01 or c1=0.01"
    )
    with pytest.warns(ConvergenceWarning, match=f"weights keep growing.*no minimum.*can be used.*; {remedy}"):
        model = CRF(algorithm, c2=0, max_iterations=200).fit(*data)
    assert usable(model, data[0]) and model.score(*data) == 1


def test_an_overlap_without_a_penalty_has_a_minimum(recwarn):
    CRF(c2=0).fit([[["a"]], [["a"]], [["a"]]], [["A"], ["B"], ["A"]])
    assert [str(w.message) for w in recwarn if issubclass(w.category, UserWarning)] == []


def test_a_learning_rate_that_diverges_is_halved_and_reported():
    with pytest.warns(
        ConvergenceWarning, match="learning rate made the loss grow: it was halved [0-9]+ times"
    ):
        model = crf("sgd-l1", calibration_eta=1e6).fit(X, Y)
    assert usable(model) and model.score(X, Y) > 0.7


def test_more_memory_than_allowed_is_refused_before_it_is_taken():
    for algorithm in ("sag", "sdca", "boosting"):
        with pytest.raises(MemoryError, match="GB|MB|bytes") as caught:
            crf(algorithm, memory_limit=10).fit(X, Y)
        assert "\n" not in str(caught.value)
    assert usable(crf("auto", memory_limit=10).fit(X, Y))  # takes L-BFGS


# ---- combinations


@pytest.mark.parametrize(
    "params, message",
    [
        (
            {"algorithm": "sag", "c1": 1},
            "'sag' has no L1 penalty, got c1=1.0; with c1 > 0 these work: "
            "'auto', 'lbfgs', 'owlqn', 'sbcd', 'cd'.* or ",
        ),
        ({"algorithm": "perceptron", "c1": 0.5}, "no L1 penalty.*'cd'.* or "),
        (
            {"algorithm": "sdca", "c2": 0},
            "'sdca' needs an L2 penalty, got c2=0; with c2=0 these work: 'auto', 'lbfgs'",
        ),
        (
            {"algorithm": "sbcd", "c2": 0},
            "'sbcd' needs a penalty.*with neither these work: 'auto', 'lbfgs', 'owlqn', 'sgd', 'sag'",
        ),
        ({"algorithm": "sgd-l1"}, "'sgd-l1' is for c1 > 0, got c1=0; with c1=0 these work: 'auto', 'lbfgs'"),
        (
            {"algorithm": "sgd_l1", "c1": 1, "c2": 1},
            "no L2 penalty.*with both penalties these work: 'auto', 'lbfgs', 'owlqn', 'sbcd'.* or ",
        ),
        (
            {"algorithm": "ap", "loss": "exp"},
            "corrects mistakes, got loss='exp'; with that loss these work: 'auto', .* 'boosting'",
        ),
        (
            {"algorithm": "sgd", "loss": "pointwise-log"},
            "'sgd' minimises 'log', got .*these work: 'auto', 'lbfgs' or 'owlqn'",
        ),
        ({"algorithm": "boosting", "loss": "log"}, "minimises 'exp', got loss='log'"),
        ({"loss": "hinge"}, "loss: expected 'log', 'exp', 'pointwise-log' or 'pointwise-exp', got 'hinge'"),
        ({"clamp": 3}, "clamp: it is for loss='exp' and 'pointwise-exp'.*got clamp=3.0"),
        ({"random_state": -1}, "random_state: expected an integer >= 0"),
        ({"random_state": "x"}, "random_state: expected an integer >= 0"),
        ({"algorithm": "pa", "pa_type": 5}, "pa_type"),
        ({"algorithm": "pa", "c": 0.0}, "c: expected"),
        ({"memory_limit": -1}, "memory_limit: expected a finite number >= 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_works(params, message):
    with pytest.raises(ValueError, match=message) as caught:
        CRF(**params).fit(X, Y)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "params, idle",
    [
        ({"algorithm": "lbfgs", "pa_type": 2}, "pa_type"),
        ({"algorithm": "perceptron", "c2": 1.0, "tol": 1e-3}, "tol, c2"),
        ({"algorithm": "arow", "c": 2.0, "averaging": False}, "averaging, c"),
        ({"algorithm": "boosting", "epsilon": 0.1}, "epsilon"),
    ],
)
def test_what_has_no_effect_is_named(params, idle):
    with pytest.warns(
        UserWarning, match=f"no effect on algorithm='{params['algorithm']}' of crfbook, ignored: {idle}$"
    ):
        CRF(max_iterations=1, **params).fit(X, Y)


@pytest.mark.parametrize(
    "algorithm, params",
    [
        ("pa", {"pa_type": 2}),
        ("pa", {"c": 0.01}),
        ("pa", {"error_sensitive": False}),
        ("pa", {"averaging": False}),
        ("ap", {"averaging": False}),
        ("arow", {"variance": 0.1}),
        ("arow", {"gamma": 10.0}),
        ("sgd", {"calibration_samples": 3}),
        ("sgd-l1", {"calibration_eta": 0.1}),
        ("perceptron", {"random_state": 1}),
    ],
)
def test_parameters_of_crfsuite_have_their_effect(algorithm, params):
    plain, other = (
        crf(algorithm, max_iterations=3).fit(X, Y),
        crf(algorithm, max_iterations=3, **params).fit(X, Y),
    )
    assert not np.array_equal(plain.weights_, other.weights_)


@pytest.mark.parametrize("algorithm", ["perceptron", "pa", "arow"])
def test_epsilon_ends_online_learners(algorithm):
    model = crf(algorithm, epsilon=1e3).fit(X, Y)
    assert (model.n_iter_, model.status_) == (1, "converged")


def test_auto_reaches_the_certificate_of_lbfgs():
    auto, lbfgs = (crf(name, max_iterations=None).fit(X, Y) for name in ("auto", "lbfgs"))
    assert (
        auto.objective_ == pytest.approx(lbfgs.objective_, rel=2e-6)
        and auto.status_ == lbfgs.status_ == "converged"
    )
    assert (
        list(auto.history_.iteration) == list(range(1, auto.n_iter_ + 1))
        and (np.diff(auto.history_.seconds) >= 0).all()
    )
    sparse, owlqn = (crf(name, c1=0.5, max_iterations=None).fit(X, Y) for name in ("auto", "owlqn"))
    assert np.array_equal(sparse.weights_, owlqn.weights_)


@pytest.mark.parametrize("algorithm", ["sbcd", "cd"])
def test_coordinate_descent_reaches_the_optimum_of_owlqn(algorithm):
    """Sequence weights and hard constraints included."""
    weight = np.arange(len(X)) % 3 + 0.5
    table = np.arange(9).reshape(3, 3) > 0  # no DET after DET
    data = [(x, y) for x, y in zip(X, Y, strict=True) if ("DET", "DET") not in zip(y, y[1:], strict=False)]
    few, gold = [x for x, _ in data], [y for _, y in data]
    found, owlqn = (
        crf(name, c1=0.4, max_iterations=2000, tol=1e-8, constraints=table).fit(
            few, gold, sample_weight=weight[: len(few)]
        )
        for name in (algorithm, "owlqn")
    )
    assert found.objective_ == pytest.approx(owlqn.objective_, rel=1e-7)
    np.testing.assert_array_equal(found.weights_ != 0, owlqn.weights_ != 0)
    assert 0 < np.count_nonzero(found.weights_) < len(found.weights_)


@pytest.mark.parametrize("algorithm", ["owlqn", "sbcd", "cd", "sgd-l1"])
def test_an_empty_model_is_said_to_be_empty(algorithm):
    with pytest.warns(UserWarning, match="the model is empty: c1=1000 leaves no weight"):
        model = crf(algorithm, c1=1000.0).fit(X, Y)
    assert usable(model) and not model.weights_.any()


def test_auto_hands_over_where_dual_ascent_is_slow(monkeypatch):
    monkeypatch.setattr(fast, "HANDOVER", np.inf)
    monkeypatch.setattr(fast, "SLOW", np.inf)  # nothing is fast enough: after LOOK_BACK + 1 epochs
    model, lbfgs = (crf(name, max_iterations=None, tol=1e-9, c2=0.01).fit(X, Y) for name in ("auto", "lbfgs"))
    assert model.n_iter_ > fast.LOOK_BACK + 1 and list(model.history_.iteration) == list(
        range(1, model.n_iter_ + 1)
    )
    assert model.status_ == "converged" and model.objective_ == pytest.approx(lbfgs.objective_, rel=2e-9)
    assert (np.diff(model.history_.seconds) >= 0).all()
    few = crf("auto", max_iterations=13, tol=1e-9, c2=0.01).fit(X, Y)
    assert (few.n_iter_, few.status_) == (13, "max_iterations")
    stopped = crf("auto", max_iterations=None, c2=0.01, tol=1e-9).fit(
        X, Y, callback=lambda step, w: step.iteration == 12
    )
    assert (stopped.n_iter_, stopped.status_) == (12, "stopped by callback")


def test_grid_search_over_algorithms():
    grid = {"algorithm": ["lbfgs", "sdca", "sgd", "ap", "boosting"]}
    search = GridSearchCV(CRF(max_iterations=10), grid, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["algorithm"] in grid["algorithm"] and search.score(X, Y) > 0.7


# learners that hand on what they do not name, and to whom
HANDED_ON = {"auto": quasi_newton, "sbcd": coordinate_descent, "cd": coordinate_descent}


def test_the_table_names_what_exists():
    for key, row in ALGORITHMS.items():
        assert callable(row.load()), key
        taken = set(inspect.signature(row.load()).parameters)
        if key in HANDED_ON:
            taken |= set(inspect.signature(HANDED_ON[key]).parameters)
        wanted = {"constraints", "max_iterations", "callback", "state", *arguments_of(key).values()}
        assert wanted <= taken, key
        assert re.search(rf'^ *"{key}"  ', CRF.__doc__, re.M)  # a row of the docstring's table


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_who_has_a_goal_is_told_that_the_default_of_epochs_ended_before_it(algorithm):
    """Perceptron, PA, AROW and boosting have none. L-BFGS and "auto" say that themselves."""
    settings = SimpleNamespace(algorithm=algorithm, c1=0.0, c2=1.0)
    result = SimpleNamespace(status="max_iterations", n_iter=7, w=np.ones(3), state={}, objective=1.0)
    corpus = SimpleNamespace(attr_val=np.zeros(0), seq_weight=np.zeros(0))
    for by_default in (True, False):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            warn_of_end(result, corpus, settings, by_default, 2)
        wanted = by_default and algorithm in ("sgd", "sag", "sdca", "sbcd", "cd")
        assert [w.category for w in said] == [ConvergenceWarning] * wanted
        assert not wanted or "stopped at its default of 7 epochs" in str(said[0].message)


def test_learning_rates_that_are_too_large_are_told():
    """One value of 1e5 is within every trial's bounds, and leaves weights worse than none."""
    y = [[f"l{(31 * i + 7 * t * t) % 90}" for t in range(1 + i % 5)] for i in range(80)]
    X = [[{f"w{label}": 1.0} for label in labels] for labels in y]
    X[0][0]["n"], X[1][0]["n"] = 1e5, -1.0
    with pytest.warns(ConvergenceWarning, match="above that of the start.*smaller attribute values"):
        CRF("sgd", max_iterations=8).fit(X, y)
    X[0][0]["n"] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CRF("sgd", max_iterations=8).fit(X, y)
