"""CRF as a scikit-learn estimator: parameters, clone, cross-validation, search, pipelines,
errors before fit.
"""

import inspect
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from crfbook.data.columns import TokenColumns
from crfbook.data.corpus import make_corpus
from crfbook.models.crf import CRF
from crfbook.models.directed import HMM, MEMM

RNG = np.random.default_rng(5)
Y = [RNG.choice(["DET", "N", "V"], size=t).tolist() for t in RNG.integers(1, 8, size=30)]
X = [
    [{f"w:{y[0]}": 1.0, "noise": float(RNG.normal())} if RNG.random() < 0.9 else {"?": True} for y in seq]
    for seq in Y
]


def test_constructor_only_stores():
    given = {name: object() for name in inspect.signature(CRF).parameters}
    crf = CRF(**given)
    assert vars(crf) == given  # the very objects, nothing checked
    assert crf.get_params() == given
    assert clone(CRF(c1=0.3, constraints="BIO")).get_params() == CRF(c1=0.3, constraints="BIO").get_params()
    assert crf.set_params(c2=4).c2 == 4
    assert "c1=0.3" in repr(CRF(c1=0.3))


def test_every_name_of_sklearn_crfsuite_is_accepted():
    peer = pytest.importorskip("sklearn_crfsuite")
    theirs = list(inspect.signature(peer.CRF).parameters)
    assert theirs == list(inspect.signature(CRF).parameters)[: len(theirs)]  # positions too
    theirs = list(inspect.signature(peer.CRF.fit).parameters)
    assert theirs == list(inspect.signature(CRF.fit).parameters)[: len(theirs)]
    public = {name for name in dir(peer.CRF) if not name.startswith("_")}
    assert public - set(dir(CRF)) <= {"size_"}  # what only makes sense for its model files


def test_none_means_the_default():
    spelled = CRF(
        algorithm=None,
        min_freq=None,
        all_possible_states=None,
        all_possible_transitions=None,
        c1=None,
        c2=None,
        num_memories=None,
        max_iterations=4,
    ).fit(X, Y)
    assert np.array_equal(spelled.weights_, CRF(max_iterations=4).fit(X, Y).weights_)


def test_nothing_works_before_fit(tmp_path):
    crf = CRF()
    for call in (
        lambda: crf.predict(X),
        lambda: crf.predict_single(X[0]),
        lambda: crf.predict_kbest(X),
        lambda: crf.predict_marginals(X),
        lambda: crf.predict_marginals_single(X[0]),
        lambda: crf.predict_edge_marginals(X),
        lambda: crf.log_proba(X, Y),
        lambda: crf.score(X, Y),
        lambda: crf.weights_to_frame(),
        lambda: crf.save(tmp_path / "m"),
    ):
        with pytest.raises(NotFittedError):
            call()
    names = "tagger_ size_ classes_ num_attributes_ attributes_ state_features_ transition_features_"
    assert all(getattr(crf, name) is None for name in names.split())  # as in sklearn-crfsuite


def test_fit_returns_self_and_fits_anew():
    crf = CRF(max_iterations=3)
    assert crf.fit(X, Y) is crf
    first = crf.weights_
    assert np.array_equal(crf.fit(X, Y).weights_, first)  # nothing of the first fit is left


def test_a_held_out_set_comes_by_position_and_weights_by_keyword():
    """The order of sklearn-crfsuite; a weight by position would be taken for X_dev."""
    crf = CRF(max_iterations=3).fit(X[5:], Y[5:], X[:5], Y[:5])
    assert len(crf.history_["dev_accuracy"]) == 3
    for model in (CRF(), HMM(), MEMM()):
        after_y = list(inspect.signature(model.fit).parameters.values())[2:]
        assert {p.name: p.kind for p in after_y}["sample_weight"] is inspect.Parameter.KEYWORD_ONLY


def test_weights_reach_fit_through_model_selection():
    weight = np.ones(len(X))
    weight[::3] = 0.0
    search = GridSearchCV(CRF(max_iterations=5), {"c2": [0.1]}, cv=2).fit(X, Y, sample_weight=weight)
    alone = CRF(c2=0.1, max_iterations=5).fit(X, Y, sample_weight=weight)
    assert np.array_equal(search.best_estimator_.weights_, alone.weights_)
    assert not np.array_equal(alone.weights_, CRF(c2=0.1, max_iterations=5).fit(X, Y).weights_)


def test_failed_fit_leaves_the_old_model():
    crf = CRF(max_iterations=3).fit(X, Y)
    before = crf.predict(X)
    with pytest.raises(ValueError):
        crf.fit(X, Y[:-1])
    assert crf.predict(X) == before


def test_cross_validation():
    scores = cross_val_score(CRF(max_iterations=20), X, Y, cv=3)
    assert scores.shape == (3,) and scores.min() > 0.6
    # sklearn-crfsuite's users flatten in their scorers
    accuracy = make_scorer(
        lambda gold, found: np.mean(
            [a == b for g, f in zip(gold, found, strict=True) for a, b in zip(g, f, strict=True)]
        )
    )
    assert np.allclose(cross_val_score(CRF(max_iterations=20), X, Y, cv=3, scoring=accuracy), scores)
    joined = cross_val_predict(CRF(max_iterations=20), X, Y, cv=KFold(3))
    assert [len(seq) for seq in joined] == [len(seq) for seq in Y]
    assert joined[0] == CRF(max_iterations=20).fit(X[10:], Y[10:]).predict_single(X[0])


def test_predictions_become_an_array_of_lists_whatever_their_lengths():
    crf = CRF(max_iterations=5).fit(X, Y)
    for data in (X, [X[0], X[0]], []):
        array = np.array(crf.predict(data))
        assert array.shape == (len(data),) and array.tolist() == crf.predict(data)


def test_grid_search():
    search = GridSearchCV(CRF(max_iterations=10), {"c1": [0.0, 0.1], "c2": [0.01, 100.0]}, cv=3).fit(X, Y)
    assert search.best_params_["c2"] == 0.01
    assert search.best_estimator_.predict(X[:2]) == search.predict(X[:2])
    assert search.score(X, Y) > 0.8


def test_cross_validation_over_columns_with_a_template():
    sentences = [[(str(t % 3), y) for t, y in enumerate(seq)] for seq in Y]
    columns = TokenColumns.from_sentences(sentences, ("word", "label"), label="label")
    # scikit-learn takes columns apart into tuples, so the template has to number its columns
    scores = cross_val_score(
        CRF(template="U:%x[0,0]", max_iterations=5), columns, columns.labels_by_sequence(), cv=3
    )
    assert np.isfinite(scores).all()


def test_pipeline():
    lower = FunctionTransformer(
        lambda data: [[{k.lower(): v for k, v in token.items()} for token in seq] for seq in data]
    )
    pipe = make_pipeline(lower, CRF(max_iterations=5)).fit(X, Y)
    assert len(pipe.predict(X)) == len(X)


def test_pickle_and_copy():
    crf = CRF(max_iterations=5, constraints=np.ones((3, 3), bool)).fit(X, Y)
    assert pickle.loads(pickle.dumps(crf)).predict(X) == crf.predict(X)
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 1])
    ready = CRF().fit(corpus)
    assert pickle.loads(pickle.dumps(ready)).predict(corpus) == ready.predict(corpus)


@pytest.mark.parametrize("model", [CRF(), HMM(), MEMM()])
def test_a_notebook_shows_a_model_without_a_warning(model):
    """scikit-learn parses the docstring for its table of parameters;
    a heading that numpydoc does not know makes it warn.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(model).__name__ in model._repr_html_()


def test_no_warning_on_the_way(recwarn):
    CRF(algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=10, all_possible_transitions=True).fit(
        X, Y
    ).predict(X)
    assert [str(w.message) for w in recwarn] == []


@pytest.mark.parametrize("algorithm", ["adam", 3, ["lbfgs"]])
def test_unknown_algorithms_are_refused_with_what_works(algorithm):
    with pytest.raises(
        ValueError, match="algorithm: expected 'auto', 'lbfgs', .* or 'boosting' .*'l2sgd', 'ap', .*got "
    ):
        CRF(algorithm=algorithm).fit(X, Y)


@pytest.mark.parametrize(
    "theirs, ours", [("l2sgd", "sgd"), ("ap", "perceptron"), ("averaged_perceptron", "perceptron")]
)
def test_names_of_crfsuite_are_understood(theirs, ours):
    a, b = (CRF(algorithm=name, max_iterations=3).fit(X, Y) for name in (theirs, ours))
    assert np.array_equal(a.weights_, b.weights_)


def test_owlqn_is_lbfgs_with_a_penalty():
    a, b = (CRF(algorithm=name, c1=0.2, max_iterations=10).fit(X, Y) for name in ("lbfgs", "owlqn"))
    assert np.array_equal(a.weights_, b.weights_)


def test_parameters_without_effect_are_named():
    with pytest.warns(UserWarning, match="ignored: calibration_eta, linesearch, trainer_cls"):
        CRF(max_iterations=1, calibration_eta=0.1, linesearch="Backtracking", trainer_cls=int).fit(X, Y)


@pytest.mark.parametrize("ask", ["edge_features_", "history_", "weights_to_frame"])
def test_what_makes_a_table_says_that_there_is_no_model_yet(ask, tmp_path):
    for model in (CRF(), CRF(model_filename=tmp_path / "none")):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(model, ask)()
