"""The names of sklearn_crfsuite.metrics and .scorers: its numbers, model selection, and what it let pass."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import make_scorer
from sklearn.model_selection import RandomizedSearchCV, cross_val_score

import crfbook
from crfbook import metrics, scorers
from crfbook.models.crf import CRF

RNG = np.random.default_rng(3)
GOLD = [RNG.choice(["O", "B", "I"], size=t).tolist() for t in RNG.integers(0, 9, size=40)]
FOUND = [[y if RNG.random() < 0.7 else "O" for y in labels] for labels in GOLD]
OPTIONS = {
    "flat_accuracy_score": {},
    "flat_precision_score": {"average": "macro"},
    "flat_recall_score": {"average": "micro", "labels": ["B", "I"]},
    "flat_f1_score": {"average": "weighted", "labels": ["B", "I"]},
    "flat_fbeta_score": {"beta": 0.5, "average": "weighted"},
    "flat_classification_report": {"labels": ["B", "I"], "digits": 3},
    "sequence_accuracy_score": {},
}


@pytest.mark.parametrize("name", metrics.__all__)
def test_the_numbers_of_sklearn_crfsuite(name):
    peer = pytest.importorskip("sklearn_crfsuite.metrics", reason="extra `peers` is not installed")
    for gold, found in ((GOLD, FOUND), (GOLD, GOLD)):
        assert getattr(metrics, name)(gold, found, **OPTIONS[name]) == getattr(peer, name)(
            gold, found, **OPTIONS[name]
        )
    theirs = [n for n, f in vars(peer).items() if inspect.isfunction(f) and n.endswith(("_score", "_report"))]
    assert sorted(theirs) == sorted(metrics.__all__) == sorted(OPTIONS)


def test_by_hand():
    gold, found = [["x", "z", "y"], ["x", "x"]], [["y", "z", "y"], ["x", "y"]]
    assert metrics.flat_accuracy_score(gold, found) == 3 / 5
    assert metrics.flat_f1_score(gold, found, average="macro") == pytest.approx(2 / 3)
    assert metrics.flat_fbeta_score(gold, found, 1, average="macro") == pytest.approx(2 / 3)
    assert "x" in metrics.flat_classification_report(gold, found, ["x", "y"])  # labels by position
    assert metrics.sequence_accuracy_score([[1, 2], [3], [4]], [[1, 2], [4], [4]]) == 2 / 3
    assert metrics.sequence_accuracy_score([[1, 2], [3]], [[3], [1, 2]]) == 0.0
    assert metrics.sequence_accuracy_score([], []) == 0.0 == metrics.flat_accuracy_score([], [])
    assert metrics.sequence_accuracy_score([[1, 2]], [np.array([1, 2])]) == 1.0


def test_labellings_that_do_not_fit_are_refused():
    """Also where the numbers of tokens agree in all: flattened, they would be compared token by token."""
    for name, options in OPTIONS.items():
        with pytest.raises(ValueError, match="expected as many predicted as gold sequences, got 1 and 2"):
            getattr(metrics, name)([["a"], ["b"]], [["a", "b"]], **options)
        if name.startswith("flat_"):
            with pytest.raises(ValueError, match="sequence 0: expected 1 predicted labels .* got 2"):
                getattr(metrics, name)([["a"], ["b", "a"]], [["a", "b"], ["a"]], **options)


def test_scorers_in_model_selection():
    X = [[{f"w:{y}": 1.0, "odd": t % 2 == 1} for t, y in enumerate(labels)] for labels in GOLD]
    X, y = [x for x in X if x], [labels for labels in GOLD if labels]
    model = CRF(max_iterations=10)
    f1 = make_scorer(crfbook.metrics.flat_f1_score, average="weighted", labels=["B", "I"])
    for scoring in (f1, scorers.flat_accuracy, crfbook.scorers.sequence_accuracy):
        search = RandomizedSearchCV(
            model, {"c1": [0.0, 0.1], "c2": [0.01, 100.0]}, n_iter=3, cv=2, scoring=scoring, random_state=0
        )
        assert search.fit(X, y).best_params_["c2"] == 0.01 and search.best_score_ == 1.0
        assert pickle.loads(pickle.dumps(scoring))._score_func is scoring._score_func
    assert cross_val_score(model, X, y, cv=2, scoring=scorers.flat_accuracy).min() == 1.0


def test_modules_are_had_without_an_import_of_their_own():
    code = "import sys, crfbook; crfbook.evaluation.token_accuracy; crfbook.metrics.flat_f1_score;"
    code += "print('sklearn' in sys.modules, 'numba' in sys.modules, 'scorers' in dir(crfbook));"
    code += "print(hasattr(crfbook, 'metric'), crfbook.scorers.sequence_accuracy is not None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "False", "True"]
