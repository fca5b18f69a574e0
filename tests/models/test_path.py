"""The regularisation path: each point is the optimum from anywhere, and what choosing,
interrupting and plotting promise.
"""

import functools
import warnings
from unittest import mock

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, StratifiedKFold

from crfbook import CRF, TokenColumns, load_dataset, metrics
from crfbook.chain.objective import Objective
from crfbook.data.features import observed
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.models import path as path_module
from crfbook.models.path import regularization_path

TEMPLATE = "U00:%x[-1,0]\nU01:%x[0,0]\nU02:%x[1,0]\nU03:%suffix[0,0,1,3]\n"


@pytest.fixture(scope="module")
def train():
    return load_dataset("wnut17", source="builtin", verbose=False).train.head(60)


def crf(**options):
    return CRF(template=TEMPLATE, c2=0.1, **options)


@pytest.fixture(scope="module")
def path(train):
    largest = path_module._Problem(crf(), train, None).largest_gradient()
    return regularization_path(crf(), train, strengths=largest * np.geomspace(1.0, 5e-4, 5), cv=3)


def test_every_point_is_the_optimum_reached_from_zero(train, path):
    encoder = path.models[0].encoder_
    corpus = encoder.transform(train)
    features = observed(corpus, encoder.n_labels, encoder.n_attrs)
    for row in path.frame.itertuples():
        cold = minimize(
            Objective(corpus, features, c2=0.1), np.zeros(features.n_features), c1=row.c1, c2=0.1, tol=1e-9
        )
        assert row.objective == pytest.approx(cold.objective, rel=3e-6)
        assert row.n_active == pytest.approx(np.count_nonzero(cold.w), abs=3)


def test_the_path_begins_empty_and_grows(path):
    frame = path.frame
    assert list(frame.columns) == [
        "c1",
        "objective",
        "n_active",
        "n_node",
        "n_edge",
        "iterations",
        "status",
        "seconds",
        "score",
        "score_error",
        "n_folds",
    ]
    assert (
        frame["n_active"].iloc[0] == 0
        and frame["n_active"].is_monotonic_increasing
        and frame["n_active"].iloc[-1] > 50
    )
    assert (frame["n_node"] + frame["n_edge"] == frame["n_active"]).all() and frame["n_edge"].iloc[-1] > 0
    assert path.status == "complete" and (frame["n_folds"] == 3).all() and len(path.models) == 5


def test_a_path_falls_from_a_hundred_occurrences_to_a_tenth_of_one(train):
    """From where a few features survive, not from c1_max, which grows with the data;
    in units of the weight of a sequence.
    """
    few = crf(max_iterations=1)
    problem = path_module._Problem(few, train, None)
    assert problem.largest_gradient() > 200
    found = regularization_path(few, train).frame["c1"]
    np.testing.assert_allclose(found, 100.0 * 1e-3 ** (np.arange(10) / 9))
    half = problem.ready.corpus._replace(seq_weight=np.full(60, 0.5))
    np.testing.assert_allclose(
        regularization_path(CRF(max_iterations=1), half, n_strengths=2, ratio=0.1).frame["c1"], [50.0, 5.0]
    )


def test_a_path_of_little_data_begins_with_the_empty_model(train):
    small = regularization_path(crf(), train[:2], n_strengths=3, ratio=0.1).frame
    assert small["c1"].iloc[0] < 100 and small["n_active"].iloc[0] == 0 < small["n_active"].iloc[1]


def test_just_below_the_largest_gradient_a_weight_comes_in(train, path):
    largest = path.frame["c1"].iloc[0]
    found = regularization_path(crf(), train, strengths=[0.99 * largest, 1.001 * largest]).frame
    assert found["n_active"].tolist()[0] == 0 and 0 < found["n_active"].tolist()[1] < 5


def test_models_hold_their_active_weights_and_predict_as_the_whole(train, path):
    for row, model in zip(path.frame.itertuples(), path.models, strict=True):
        assert len(model.weights_) == model.features_.n_features == row.n_active and model.c1 == row.c1
        assert np.all(model.weights_ != 0) and model.status_ == row.status
    alone = CRF(template=TEMPLATE, c1=path.frame["c1"].iloc[3], c2=0.1, tol=1e-9).fit(train)
    assert path.models[3].predict(train) == alone.predict(train)
    assert path.models[3].num_attributes_ == alone.num_attributes_


def test_cross_validation_is_on_blocks_that_each_fold_has_not_seen(train, path):
    """The score of a point, fold by fold: fitted and scored here."""
    c1 = path.frame["c1"].iloc[3]
    scores = []
    for k in range(3):
        held = np.arange(20 * k, 20 * (k + 1))
        model = CRF(template=TEMPLATE, c1=c1, c2=0.1).fit(train.take(np.setdiff1d(np.arange(60), held)))
        scores.append(model.score(train.take(held)))
    assert path.frame["score"].iloc[3] == pytest.approx(np.mean(scores), abs=2e-3)
    assert path.frame["score_error"].iloc[3] == pytest.approx(np.std(scores, ddof=1) / 3**0.5, abs=2e-3)
    assert path.chosen == path.frame["score"].to_numpy().argmax() and path.best is path.models[path.chosen]
    sparse = path.within_one_error()
    assert sparse <= path.chosen
    assert (
        path.frame["score"].iloc[sparse]
        >= path.frame["score"].iloc[path.chosen] - path.frame["score_error"].iloc[path.chosen]
    )


def test_folds_have_not_seen_what_they_are_scored_on():
    """Every word once, its label by chance: whoever has seen it knows it, nobody else can."""
    rng = np.random.default_rng(0)
    X = [[(f"w{i}-{t}",) for t in range(4)] for i in range(30)]
    y = [[str(label) for label in rng.integers(0, 3, 4)] for _ in X]
    model = CRF(template="U00:%x[0,0]\n", c2=0.01)
    seen = regularization_path(model, X, y, strengths=[0.1], X_dev=X, y_dev=y).frame["score"].iloc[0]
    held_out = regularization_path(model, X, y, strengths=[0.1], cv=3).frame["score"].iloc[0]
    assert seen > 0.95 and held_out < 0.6


def test_errors_of_the_mean_and_the_sparsest_within_one(train):
    """Scores as given, fold after fold: means 0.5, 0.65, 0.69, 0.7,
    of which the last has a standard error of 0.03.
    """
    given = np.array(
        [[0.5, 0.6, 0.71, 0.7 - 0.03 * 3**0.5], [0.5, 0.65, 0.69, 0.7], [0.5, 0.7, 0.67, 0.7 + 0.03 * 3**0.5]]
    )
    left = given.ravel().tolist()
    with pytest.warns(
        UserWarning, match="the best score is that of the smallest c1, 1: the path may end too early"
    ):
        found = regularization_path(
            crf(),
            train,
            strengths=[8.0, 4.0, 2.0, 1.0],
            cv=3,
            scoring=lambda gold, guess: 0.0 if guess is gold else left.pop(0),
        )
    np.testing.assert_allclose(found.frame["score"], [0.5, 0.65, 0.69, 0.7])
    np.testing.assert_allclose(found.frame["score_error"], given.std(axis=0, ddof=1) / 3**0.5)
    assert found.frame["score_error"].iloc[3] == pytest.approx(0.03)
    assert found.chosen == 3 and found.within_one_error() == 2 and found.best is found.models[3]


def test_each_point_starts_from_the_one_before(train, monkeypatch):
    starts, ends, train_it = [], [], path_module.train

    def watched(ready, settings, w0, **options):
        starts.append(w0.copy())
        result, history = train_it(ready, settings, w0, **options)
        ends.append(result.w.copy())
        return result, history

    monkeypatch.setattr(path_module, "train", watched)
    regularization_path(crf(), train, strengths=[4.0, 2.0, 1.0])
    assert not starts[0].any() and ends[1].any()
    np.testing.assert_array_equal(starts[1:], ends[:-1])


def test_lists_splits_and_other_scores(train):
    X = [[(word,) for word in sentence] for sentence in train.by_sequence("word")]
    y = train.labels_by_sequence()
    split = [(np.arange(40), np.arange(40, 60))]
    lists = regularization_path(crf(), X, y, strengths=[1.0, 4.0], cv=split, scoring="f1")
    columns = regularization_path(crf(), train, strengths=[4.0, 1.0, 1.0], cv=split, scoring="f1")
    assert lists.frame["c1"].tolist() == [4.0, 1.0]
    np.testing.assert_array_equal(lists.frame["score"], columns.frame["score"])
    assert lists.frame["score_error"].isna().all() and 0 <= lists.frame["score"].min()
    dev = train.take(np.arange(40, 60))
    counted = regularization_path(
        crf(), train[:40], strengths=[1.0], X_dev=dev, scoring=lambda gold, found: len(found)
    )
    assert counted.frame["score"].tolist() == [20] and counted.chosen == 0 and "n_folds" not in counted.frame


def test_equal_scores_choose_the_smaller_model(train):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one value is not the end of a path
        for strengths in ([2.0, 1.0, 0.5], [0.5]):
            same = regularization_path(
                crf(), train, strengths=strengths, X_dev=train, scoring=lambda gold, found: 1.0
            )
            assert same.chosen == 0


def test_another_algorithm_gives_the_same_path(train):
    """Any algorithm of the table with an L1 penalty will do."""
    a = regularization_path(crf(algorithm="owlqn"), train, strengths=[4.0, 1.0]).frame
    b = regularization_path(crf(algorithm="auto"), train, strengths=[4.0, 1.0]).frame
    np.testing.assert_allclose(a["objective"], b["objective"], rtol=2e-6)
    c = regularization_path(
        crf(algorithm="sbcd", tol=1e-7, max_iterations=500), train, strengths=[4000.0, 4.0, 1.0]
    ).frame
    np.testing.assert_allclose(a["objective"], c["objective"].iloc[1:], rtol=2e-6)
    assert c["status"].iloc[0] == "empty model"
    assert a["n_active"].tolist() == c["n_active"].tolist()[1:]
    with pytest.raises(ValueError, match="has no L1 penalty"):
        regularization_path(crf(algorithm="sag"), train, strengths=[1.0])


def test_one_word_for_a_model_without_weights(train):
    for algorithm in ("owlqn", "sbcd"):
        with pytest.warns(UserWarning, match="the model is empty: c1=1e"):
            model = crf(algorithm=algorithm, c1=1e6).fit(train)
        assert model.status_ == "empty model"


def test_one_bar_counts_all_fits(train, capsys):
    """Those of the folds, too; a path that its callback ends has fewer."""
    stop = [lambda row, model: row["c1"] == 2.0]
    for verbose, more, n_fits in (
        (True, {}, 9),
        (True, {"callback": stop[0]}, 6),
        (2, {}, 9),
        (2, {"callback": stop[0]}, 6),
    ):
        regularization_path(crf(verbose=verbose), train, strengths=[4.0, 2.0, 1.0], cv=2, **more)
        shown, said = capsys.readouterr()[::-1]
        assert said.count("weights: about") == 1 and "training" not in shown
        last = [line for line in shown.replace("\r", "\n").split("\n") if line.strip()]
        assert f"fold 2 of 2, c1 = {1 if n_fits == 9 else 2}: converged after" in last[-1]
        if verbose == 2:
            assert len(last) == n_fits and last[-1].strip().startswith(f"{n_fits} of {n_fits}  fold 2")
            assert last[0].strip().startswith("1 of 9  all data, c1 = 4: converged after")
        else:
            assert "path: 100%" in last[-1] and f"{n_fits}/{n_fits}" in last[-1]
            assert any("all data, c1 = 4: iteration 2, objective" in line for line in last)


class Interrupt:
    """Ctrl-C at the n-th call of `train`, as the optimiser meets it."""

    def __init__(self, n, monkeypatch, inside):
        self.n, self.calls, self.train, self.inside = n, 0, path_module.train, inside
        monkeypatch.setattr(path_module, "train", self)

    def __call__(self, *args, **options):
        self.calls += 1
        if self.calls < self.n:
            return self.train(*args, **options)
        if not self.inside:
            raise KeyboardInterrupt

        def stop(step, w):
            raise KeyboardInterrupt

        return self.train(*args, **options, callback=stop)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("calls, rows, folds", [(3, 2, 0), (5, 3, 0), (8, 3, 1)])
def test_ctrl_c_keeps_what_is_finished(train, monkeypatch, calls, rows, folds, inside):
    Interrupt(calls, monkeypatch, inside)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = regularization_path(crf(), train, strengths=[4.0, 2.0, 1.0], cv=3)
    assert found.status == "interrupted" and len(found.frame) == len(found.models) == rows
    assert ("score" in found.frame) == (folds > 0)
    if folds:
        assert (found.frame["n_folds"] == folds).all() and found.best in found.models
    else:
        with pytest.raises(
            ValueError, match="no scores to choose by: it was interrupted before the first fold ended"
        ):
            found.best  # noqa: B018
    found.models[-1].predict(train)


def test_ctrl_c_before_the_first_model_is_raised(train, monkeypatch):
    Interrupt(1, monkeypatch, True)
    with pytest.raises(KeyboardInterrupt):
        regularization_path(crf(), train, strengths=[4.0])


def test_a_callback_ends_the_path(train):
    seen = []
    found = regularization_path(
        crf(),
        train,
        strengths=[4.0, 2.0, 1.0],
        callback=lambda row, model: seen.append(row) or len(seen) == 2,
    )
    assert found.status == "stopped by callback" and [row["c1"] for row in seen] == found.frame[
        "c1"
    ].tolist() == [4.0, 2.0]


def test_an_empty_path_says_so(train):
    with pytest.warns(UserWarning, match=r"the path is empty: c1 >= 1e\+06 leaves no weight"):
        found = regularization_path(crf(), train, strengths=[1e6, 1e7])
    assert found.frame["n_active"].tolist() == [0, 0]
    assert found.models[0].predict(train)[0] == [found.models[0].classes_[0]] * len(train[0])


def test_a_model_without_weights_is_chosen_only_where_all_are(train):
    found = regularization_path(
        crf(), train, strengths=[1e6, 1.0, 0.5], cv=2, scoring=lambda gold, guess: 1.0
    )
    assert found.frame["n_active"].iloc[0] == 0 and found.chosen == found.within_one_error() == 1
    with pytest.warns(UserWarning, match="the path is empty"):
        found = regularization_path(crf(), train, strengths=[1e7, 1e6], cv=2, scoring=lambda gold, guess: 1.0)
    assert found.chosen == found.within_one_error() == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"strengths": [1.0, -1.0]}, "strengths: expected finite numbers > 0"),
        ({"strengths": []}, "strengths: expected finite numbers > 0"),
        ({"strengths": [float("nan")]}, "strengths: expected finite numbers > 0"),
        ({"callback": 3}, "callback: expected a function or None, got 3"),
        ({"n_strengths": 0}, "n_strengths: expected an integer >= 1, got 0"),
        ({"ratio": 0.0}, "ratio: expected a finite number > 0 and at most 1, got 0"),
        ({"cv": 1}, "cv: expected 2 to 60 folds of 60 sequences, got 1"),
        ({"scoring": "f2"}, "scoring: expected 'accuracy', 'f1' or a function, got 'f2'"),
        ({"strengths": "abc"}, "strengths: expected finite numbers > 0, got 'abc'"),
        ({"n_strengths": "x"}, "n_strengths: expected an integer >= 1, got 'x'"),
        ({"n_strengths": float("nan")}, "n_strengths: expected an integer >= 1, got nan"),
        ({"ratio": None}, "ratio: expected a finite number > 0 and at most 1, got None"),
        ({"cv": 2, "X_dev": []}, "cv and X_dev: expected one of them"),
        ({"cv": []}, "cv: expected at least one pair"),
        (
            {"cv": [([0, 1], [99])]},
            r"cv, fold 0: expected numbers of sequences in 0\.\.59, got array\(\[99\]\)",
        ),
        ({"cv": [([0, 1], [])]}, r"cv, fold 0: expected numbers of sequences in 0\.\.59, got array\(\[\]"),
        (
            {"cv": [([0, 1], [2], [3])]},
            r"cv: expected pairs \(training numbers, held-out numbers\).* got \[\(\[0, 1\], \[2\], \[3\]\)\]",
        ),
        (
            {"cv": [([0], [[1]])]},
            r"cv, fold 0: expected numbers of sequences in 0\.\.59, got array\(\[\[1\]\]\)",
        ),
        ({"cv": [(1, 2)]}, r"cv, fold 0: expected numbers of sequences in 0\.\.59, got array\(1\)"),
        ({"cv": [1, 2]}, r"cv: expected pairs .* of 60 sequences, got \[1, 2\]"),
        ({"cv": 2.5}, "cv: expected pairs .* of 60 sequences, got 2.5"),
        (
            {"cv": GroupKFold(3)},
            r"cv: expected pairs .* of 60 sequences, got GroupKFold\(.*groups or classes give list",
        ),
        ({"cv": StratifiedKFold(3)}, r"cv: expected pairs .* of 60 sequences, got StratifiedKFold\("),
        ({"y_dev": [["O"]]}, "y_dev: expected X_dev with it, got labels alone"),
        ({"X_dev": [["a"]]}, "expected labels y"),
        (
            {"X_dev": [["a"], ["b"]], "y_dev": [["O"]]},
            "X_dev: expected labels of its 2 sequences, got those of 1",
        ),
        ({"X_dev": [], "y_dev": []}, "X_dev: expected sequences with tokens to score, got none"),
        (
            {"cv": 2, "scoring": lambda gold, found: None},
            "scoring: expected a function that returns a finite number, got None of it",
        ),
    ],
)
def test_bad_arguments_get_one_sentence(train, options, message):
    with pytest.raises(ValueError, match=message), mock.patch.object(path_module, "train") as trained:
        regularization_path(crf(), train, **options)
    trained.assert_not_called()


def test_labels_and_folds_that_do_not_fit_are_found_before_training():
    X, y = [[["a"], ["b"]], [["b"]], [], [["a"]]], [["x", "y"], ["y"], [], ["x"]]
    with mock.patch.object(path_module, "train") as trained:
        with pytest.raises(ValueError, match="X has 4 sequences but y has 3"):
            regularization_path(CRF(), X, y[:3], strengths=[1.0], cv=2)
        with pytest.raises(
            ValueError, match="cv, fold 1: expected sequences with tokens to train on, got none"
        ):
            regularization_path(CRF(), X, y, strengths=[1.0], cv=[([0, 1], [3]), ([2], [3])])
    trained.assert_not_called()


def test_groups_are_given_as_pairs():
    X, y = [[["a"], ["b"]], [["b"]], [["c"]], [["a"]]] * 2, [["x", "y"], ["y"], ["z"], ["x"]] * 2
    splits = list(GroupKFold(4).split(X, groups=[0, 1, 2, 3] * 2))
    found = regularization_path(CRF(c2=0.1), X, y, strengths=[0.1], cv=splits)
    assert found.frame["n_folds"].tolist() == [4]


def test_one_label_has_no_path():
    columns = TokenColumns.from_sentences([["a", "b"]], ("word",))
    columns.labels = ["x", "x"]
    with pytest.raises(ValueError, match="no weight would ever leave it"):
        regularization_path(crf(), columns)


def test_the_plot_shows_what_the_path_found(path):
    plt = pytest.importorskip("matplotlib.pyplot")
    from crfbook import plotting

    drawn = plotting.regularization_path(path, measure="token accuracy")
    np.testing.assert_array_equal(drawn["c1"], path.frame["c1"])
    np.testing.assert_array_equal(drawn["n_active"], path.frame["n_active"])
    np.testing.assert_array_equal(drawn["score"], path.frame["score"])
    ax = plt.gcf().axes[0]
    assert ax.get_xlabel() == "penalty c1" and ax.get_xlim()[0] > ax.get_xlim()[1]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [f"{c1:.3g}" for c1 in drawn["c1"]]
    many = plotting.regularization_path(
        path.frame.loc[np.arange(40) % 5, ["c1", "n_active"]].sort_values("c1", ascending=False)
    )
    assert len(many["c1"]) == 40 and len(plt.gca().get_xticks()) == 8
    assert list(plotting.regularization_path(path.frame[["c1", "n_active"]])) == ["c1", "n_active"]
    plt.close("all")


@pytest.mark.parametrize(
    "n_active, names",
    [
        ([0, 0], ["0", "1", "10"]),
        ([1, 1], ["0", "1", "10"]),
        ([0, 9], ["0", "1", "10"]),
        ([0, 4000], ["0", "1", "10", "100", "1,000"]),
    ],
)
def test_the_axis_of_counts_names_counts(n_active, names):
    """Few weights or none: still whole numbers, and nothing lies on the edge."""
    plt = pytest.importorskip("matplotlib.pyplot")
    from crfbook import plotting

    plotting.regularization_path({"c1": np.array([2.0, 1.0]), "n_active": np.array(n_active)})
    ax = plt.gca()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == names
    assert ax.get_ylim()[0] < 0 and ax.get_ylim()[1] > max(n_active)
    plt.close("all")


# ---- in which scheme chunks are counted


XY = [["a"], ["a"], ["b"], ["b"]], [["b"], ["b"], ["a"], ["a"]]
IOBES = [["S-X", "S-X", "B-X", "E-X"], ["B-X", "E-X", "S-X", "S-X"]]


@pytest.mark.parametrize("constraints", ["BIOES", "IOBES", None, {"start": {"S-X", "B-X"}}])
def test_chunks_are_counted_in_the_scheme_of_the_model(constraints):
    """conlleval knows no S: neighbours ran together, and no right token scored 1.0."""
    model, dev = CRF(c2=0.1, constraints=constraints), [IOBES[1]]
    found = regularization_path(
        model, list(XY), IOBES, X_dev=[XY[0]], y_dev=dev, strengths=[0.01], scoring="f1"
    )
    assert found.best.predict([XY[0]]) == [IOBES[0]] and found.frame["score"].tolist() == [0.0]
    same = regularization_path(
        model, list(XY), IOBES, X_dev=list(XY), y_dev=IOBES, strengths=[0.01], scoring="f1"
    )
    assert same.frame["score"].tolist() == [1.0]


@pytest.mark.parametrize(
    "labels", [["B_A", "I-A", "B-A", "O"], ["DET", "NN", "VB", "."], [1, 2, 3, 0], ["A-Q"] * 4]
)
def test_labels_that_read_as_no_chunk_are_refused(labels):
    """F1 was 0.0 at accuracy 1.0, and `best` meant nothing."""
    with pytest.raises(
        ValueError, match="scoring='f1': scheme='auto': expected labels .*'accuracy' counts tokens"
    ) as said:
        regularization_path(CRF(), list(XY), [labels] * 2, cv=2, strengths=[0.01], scoring="f1")
    assert repr(labels[0]) in str(said.value)
    assert regularization_path(CRF(), list(XY), [labels] * 2, cv=2, strengths=[0.01]).best


def test_the_scheme_of_a_path_may_be_said():
    """By conlleval a label that it does not read is warned of, once."""
    y = [["Q-X", "B-X", "I-X", "O"]] * 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        how = {"cv": 2, "strengths": [0.1, 0.01], "scoring": "f1"}
        regularization_path(CRF(), list(XY), y, scheme="conlleval", **how)
        regularization_path(CRF(), list(XY), [["O"] * 4, ["O"] * 4], **how)
        units = [["U_X", "B_X", "L_X", "O"]] * 2
        found = regularization_path(CRF(), list(XY), units, scheme="BILOU", strict=True, **how)
        assert 0.0 <= found.frame["score"].max() <= 1.0
    said = [str(warning.message) for warning in caught if "conlleval" in str(warning.message)]
    assert len(said) == 1 and "not 'Q-X'" in said[0]
    with pytest.raises(ValueError, match="strict=True: expected a scheme"):
        regularization_path(CRF(), list(XY), y, scheme="conlleval", strict=True, **how)


@pytest.mark.parametrize("scoring", ["f1_macro", "roc_auc", ["f1"], None, {"f1": 1}])
def test_another_score_says_which_function_to_take(scoring):
    with pytest.raises(
        ValueError, match=r"scoring: expected .*partial\(crfbook.metrics.flat_f1_score, average="
    ):
        regularization_path(CRF(), list(XY), IOBES, cv=2, scoring=scoring)
    f1_macro = functools.partial(metrics.flat_f1_score, average="macro", zero_division=0.0)
    regularization_path(CRF(), list(XY), IOBES, cv=2, strengths=[0.1], scoring=f1_macro)
