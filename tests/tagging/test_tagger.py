"""`Tagger`, its low floor, and the names of python-crfsuite."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from crfbook import CRF, DCRF, MEMM, ModelFileError, Tagger, pycrfsuite

X = [[{"w": "a", "n": 1.5}, {"w": "b"}], [["x", "y"], ["z"]], [{"w": "b", "in": {"c": "d"}}] * 3] * 4
Y = [["A", "B"], ["C", "A"], ["B", "B", "A"]] * 4


@pytest.fixture(scope="module")
def model():
    return CRF(c1=0.01, max_iterations=30).fit(X, Y)


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("tagger") / "model.crfbook"
    model.save(path)
    return path


@pytest.mark.parametrize("kernels", [None, True, False])
@pytest.mark.parametrize("source", ["path", "model", "tagger_"])
def test_it_says_what_the_model_says(model, path, source, kernels):
    tagger = (
        model.tagger_ if source == "tagger_" else Tagger(path if source == "path" else model, kernels=kernels)
    )
    assert tagger.labels() == model.classes_
    assert tagger.tag_many(X) == [tagger.tag(x) for x in X] == model.predict(X)
    assert tagger.tag(pycrfsuite.ItemSequence(X[0])) == model.predict_single(X[0])
    for x, y in zip(X[:3], Y, strict=False):
        tagger.set(x)
        assert tagger.tag() == model.predict_single(x)
        assert tagger.probability(y) == pytest.approx(np.exp(model.log_proba([x], [y])[0]), abs=1e-12)
        for row, known in zip(tagger.marginals(), model.predict_marginals_single(x), strict=True):
            assert row == pytest.approx(known, abs=1e-12)
        assert tagger.marginal("A", 1) == pytest.approx(model.predict_marginals_single(x)[1]["A"], abs=1e-12)
        best, known = tagger.kbest(x, 3), model.predict_kbest([x], 3)[0]
        assert [y for y, _ in best] == [y for y, _ in known]
        np.testing.assert_allclose([p for _, p in best], [p for _, p in known], atol=1e-12)
        span = tagger.span_log_proba(x, [(1, y[1:])])
        np.testing.assert_allclose(span, model.span_log_proba([x], [(0, 1, y[1:])]), atol=1e-12)


def test_a_copy_is_frozen_and_tagger_follows(model):
    model = CRF(max_iterations=20).fit(X, Y)
    tagger, live = Tagger(model), model.tagger_
    before = tagger.marginals(X[0])
    model.weights_ *= 0.5
    assert tagger.marginals(X[0]) == before != live.marginals(X[0])
    assert model.tagger_ is live
    model.fit(X[:2], Y[:2])
    assert live.labels() == model.classes_ and live.tag(X[0]) == model.predict_single(X[0])


@pytest.mark.parametrize("template", ["U:%x[0,0]\nB", "U:%x[0,0]\nB:%x[0,0]"])
def test_marginals_are_those_of_the_model_that_is_open(template):
    """Of models with a way of their own for one sentence, and of others."""
    words = [["a", "b"], ["b", "a", "c"]] * 3
    first = CRF(template=template, max_iterations=9).fit(words, [["A", "B"], ["B", "A", "A"]] * 3)
    second = CRF(template=template, max_iterations=9).fit(words, [["A", "C"], ["B", "B", "A"]] * 3)
    tagger, live = Tagger(first), first.tagger_
    for one in (tagger, live):
        one.set(words[0])
        assert one.marginal("A", 1) == one.marginals()[1]["A"] == one.marginal("A", np.int64(1))
    tagger.open(second)
    assert tagger.marginal("C", 1) == Tagger(second).marginals(words[0])[1]["C"]
    assert tagger.marginals() == Tagger(second).marginals(words[0])
    first.fit(words, [["B", "A"], ["A", "B", "A"]] * 3)
    assert live.marginal("A", 1) == Tagger(first).marginals(words[0])[1]["A"] > 0.5
    for bad in (True, 1.0, "1", None, 2):
        if bad is not True:
            with pytest.raises(ValueError, match="expected a token in 0..1"):
                live.marginal("A", bad)


def test_a_process_that_tags_imports_little(path):
    code = (
        "import sys, crfbook; t = crfbook.Tagger(sys.argv[1]); x = [{'w': 'a', 'n': 1.5}, {'w': 'b'}]\n"
        "print(t.tag(x), t.marginals(x) is not None, t.span_log_proba(x, [(0, ['A'])]).size)\n"
        "print(sorted({'numba', 'scipy', 'sklearn', 'pandas'} & set(sys.modules)))\n"
        "crfbook.Tagger(sys.argv[1], kernels=True).tag(x)\n"
        "print(sorted({'scipy.optimize', 'sklearn', 'pandas'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['A', 'B'] True 1", "[]", "[]"]


def test_kernels_come_once_they_pay(model, monkeypatch):
    from crfbook.tagging import model as tagging

    monkeypatch.setattr(tagging, "_at_hand", lambda: False)
    tagger = Tagger(model)
    assert tagger._model._sentences._kernels is None
    monkeypatch.setattr(tagging, "NUMPY_TOKENS", 0)
    labels = [tagger.tag(x) for x in X]
    assert tagger._model._sentences._kernels is not None and labels == tagger.tag_many(X) == model.predict(X)
    later = Tagger(model)  # counted in tokens, so that it does not depend on time
    monkeypatch.setattr(tagging, "NUMPY_TOKENS", 1.5 * len(X[0]))
    assert later.tag(X[0]) == labels[0] and later._model._sentences._kernels is None
    assert later.tag(X[0]) == labels[0] and later._model._sentences._kernels is not None
    never = Tagger(model, kernels=False)
    assert never.tag(X[0]) == labels[0] and never._model._sentences._kernels is None


def test_files_of_crfsuite(tmp_path):
    peer = pytest.importorskip("pycrfsuite")
    trainer = peer.Trainer(verbose=False)
    for x, y in zip(X, Y, strict=True):
        trainer.append(x, y)
    trainer.train(str(tmp_path / "peer"))
    theirs, ours = peer.Tagger(), pycrfsuite.Tagger()
    theirs.open(str(tmp_path / "peer")), ours.open(tmp_path / "peer")
    assert ours.labels() == theirs.labels()
    for x, y in zip(X[:3], Y, strict=False):
        assert ours.tag(x) == theirs.tag(x)
        assert ours.probability(y) == pytest.approx(theirs.probability(y), abs=1e-9)
        assert ours.marginal("A", 1) == pytest.approx(theirs.marginal("A", 1), abs=1e-9)


def test_bad_input(model, path, tmp_path):
    tagger = Tagger()
    for ask in (tagger.labels, tagger.tag_many, tagger.tag):
        with pytest.raises((ValueError, TypeError)):
            ask(*([] if ask == tagger.labels else [X[0]]))
    with pytest.raises(ValueError, match="call open"):
        tagger.tag(X[0])
    tagger.open(path)
    with pytest.raises(ValueError, match="call set"):
        tagger.tag()
    with pytest.raises(ValueError, match="expected a label of the model, got 'Z'"):
        tagger.span_log_proba(X[0], [(0, ["Z"])])
    with pytest.raises(ValueError, match="span 0: expected some of the 2 tokens, got 2 from token 1 on"):
        tagger.span_log_proba(X[0], [(1, ["A", "B"])])
    tagger.set(X[0])
    with pytest.raises(ValueError, match="expected 2 labels, one for each token, got 1"):
        tagger.probability(["A"])
    with pytest.raises(ValueError, match="finite"):
        tagger.tag([{"a": np.inf}])
    with pytest.raises(ValueError, match="k: expected"):
        tagger.kbest(X[0], 0)
    (tmp_path / "damaged").write_bytes(path.read_bytes()[:-7])
    (tmp_path / "foreign").write_bytes(b"lCRF but not whole")
    for name in ("damaged", "foreign"):
        with pytest.raises(ModelFileError):
            Tagger(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Tagger(tmp_path / "missing")
    with pytest.raises(TypeError, match="expected a path or a CRF"):
        Tagger(3)
    columns = [(a, b) for a, b in zip("ABAB", "xyxy", strict=True)]
    for other in (
        MEMM(max_iterations=2).fit(X, Y),
        DCRF(max_iterations=2).fit([X[0]] * 2, [columns[:2]] * 2),
        CRF(),
    ):
        with pytest.raises(TypeError, match="expected a path or a CRF"):
            Tagger(other)
    tagger.set(X[0])
    with pytest.raises(ValueError, match="expected a token in 0..1, got -1"):
        tagger.marginal("A", -1)
    with pytest.raises(TypeError, match="sequence 1, token 0"):
        tagger.tag_many([X[0], [{"w": None}]])
    with pytest.raises(ValueError, match="follows its model"):
        model.tagger_.open(path)
    tagger.close()
    with pytest.raises(ValueError, match="call open"):
        tagger.labels()
    with Tagger().open(path) as tagger:
        again = pickle.loads(pickle.dumps(tagger))
        assert again.tag(iter(X[0])) == tagger.tag(X[0]) and again.span_log_proba(X[0], []).shape == (0,)


# ---- a program as they are written on python-crfsuite: a parser of addresses


def features(tokens, i):
    token = tokens[i]
    own = {
        "length": f"d:{len(token)}",
        "digits": token.isdigit(),
        "word": token.lower(),
        "trailing": token[-1:],
    }
    around = {"previous": {"word": tokens[i - 1].lower()}} if i else {"first": True}
    return (
        own | around | ({"next": {"word": tokens[i + 1].lower()}} if i + 1 < len(tokens) else {"last": True})
    )


ADDRESSES = [
    "12/number Main/street Street/kind Springfield/town", "7/number Oak/street Road/kind Dover/town",
    "450/number Mill/street Lane/kind Apt/unit 3/unit York/town", "9/number Hill/street Way/kind Bath/town",
]  # fmt: skip


def train_and_parse(suite, path):
    trainer = suite.Trainer(verbose=False, params={"feature.minfreq": 0})
    for line in ADDRESSES * 5:
        words, tags = zip(*(pair.split("/") for pair in line.split()), strict=True)
        trainer.append([features(words, i) for i in range(len(words))], list(tags))
    trainer.select("lbfgs")
    trainer.set_params({"c1": 0.1, "c2": 0.01, "max_iterations": 100, "feature.possible_transitions": True})
    trainer.train(path)
    tagger = suite.Tagger()
    tagger.open(path)
    words = "88 Oak Street Bath".split()
    tags = tagger.tag([features(words, i) for i in range(len(words))])
    return tags, tagger.probability(tags)


def test_a_program_runs_after_one_changed_import(tmp_path):
    peer = pytest.importorskip("pycrfsuite")
    ours, theirs = (
        train_and_parse(pycrfsuite, str(tmp_path / "a")),
        train_and_parse(peer, str(tmp_path / "b")),
    )
    assert ours[0] == theirs[0] == ["number", "street", "kind", "town"]
    assert ours[1] == pytest.approx(theirs[1], abs=0.02)


def test_trainer(tmp_path, monkeypatch):
    trainer = pycrfsuite.Trainer("ap", {"max_iterations": 3}, verbose=False)
    for x, y in zip(X, Y, strict=True):
        trainer.append(pycrfsuite.ItemSequence(x), y, group=x is X[0])
    assert trainer.get("max_iterations") == 3 and trainer.get_params() == {"max_iterations": 3}
    trainer.train(tmp_path / "model", holdout=1)
    assert trainer.model_.algorithm == "perceptron" and "dev_accuracy" in trainer.model_.history_
    assert Tagger(tmp_path / "model").tag(X[0]) == trainer.model_.predict_single(X[0])
    trainer.set("feature.possible_states", "0")
    assert trainer.get_params()["feature.possible_states"] is False
    trainer.set("feature.possible_states", 1)
    assert trainer.get_params()["feature.possible_states"] is True
    for wrong in (
        lambda: trainer.select("svm"),
        lambda: trainer.set("c3", 1),
        lambda: trainer.append(X[0], ["A"]),
        lambda: trainer.set("verbose", False),
    ):
        with pytest.raises(ValueError, match="expected"):
            wrong()
    trainer.clear()
    with pytest.raises(ValueError, match="nothing to learn"):
        trainer.train(tmp_path / "model")


def test_model_filename(tmp_path):
    model = CRF(max_iterations=3, model_filename=tmp_path / "model").fit(X, Y)
    assert Tagger(tmp_path / "model").tag_many(X) == model.predict(X)
    assert CRF(model_filename=tmp_path / "model").n_iter_ == model.n_iter_
    later = CRF(model_filename=tmp_path / "model")  # as sklearn-crfsuite has it: nobody called fit
    assert later.predict(X) == model.predict(X)
    assert (tmp_path / "model").stat().st_size == model.size_
    assert CRF.load(tmp_path / "model").model_filename is None  # which a later fit would write
    assert later.tagger_.tag(X[0]) == pickle.loads(pickle.dumps(later)).predict_single(X[0])
    with pytest.raises(NotFittedError):
        CRF(model_filename=tmp_path / "missing").predict(X)
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        getattr(later, "no_such")  # noqa: B009
    with pytest.raises(FileNotFoundError):
        CRF(model_filename=tmp_path / "no folder" / "model").fit(X, Y)
    fresh = CRF("perceptron", model_filename=tmp_path / "model").partial_fit(X[:2], Y[:2])
    assert fresh._n_seen == 2  # it does not go on from the file
