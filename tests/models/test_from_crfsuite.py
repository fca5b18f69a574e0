"""Models of CRFsuite read by `CRF.from_crfsuite`: what they predict, and what damaged files get."""

import pickle
import re
import struct
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.memory import peak_bytes

from crfbook._checks import ModelFileError
from crfbook.data.crfsuite import BYTE_ORDER
from crfbook.datasets import load_dataset
from crfbook.models.crf import CRF
from tools.chapters import ROOT

pycrfsuite = pytest.importorskip("pycrfsuite", reason="extra `peers` is not installed")

X = [[["a", "b"], ["c:1"]], [{"été": 2.0, "c": "1", "n": {"x": 0.5}}, {"d": True}], [["b"]]]
Y = [["Z", "A"], ["M", "Z"], ["A"]]
EVERY = {"c1": 0.1, "c2": 0.1, "max_iterations": 20, "feature.possible_transitions": True}


def trained(path, X, y, algorithm="lbfgs", **params):
    """A `pycrfsuite.Tagger` of a model that stands at `path`."""
    trainer = pycrfsuite.Trainer(algorithm, verbose=False)
    for tokens, labels in zip(X, y, strict=True):
        trainer.append(tokens, labels)
    trainer.set_params(params)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(path, tagger) of a model of a few kilobytes."""
    path = tmp_path_factory.mktemp("models") / "small.crfsuite"
    return path, trained(path, X, Y, c2=0.1)


def sentences(columns, form):
    """Attributes as the tutorial of sklearn-crfsuite makes them: dicts with numbers, or lists of strings."""
    for sentence in columns.sentences():
        words = ["", *(token[0] for token in sentence), ""]
        dicts = [
            {"bias": 1.0, "-1": a.lower(), "0": w.lower(), "+1": b.lower(), "end": w[-3:],
             "title": w.istitle(), "length": len(w) / 10}
            for a, w, b in zip(words, words[1:], words[2:], strict=False)
        ]  # fmt: skip
        yield dicts if form == "dicts" else [[f"{k}={v}" for k, v in token.items()] for token in dicts]


def compare(tmp_path, form, data, n_train, params):
    """All test sentences get the same labels, also after saving; (their number, largest difference of
    marginals).
    """
    path, test = tmp_path / "m.crfsuite", list(sentences(data.test, form))
    X, y = list(sentences(data.train.head(n_train), form)), data.train.head(n_train).labels_by_sequence()
    tagger = trained(path, X, y, **params)
    theirs, model = [tagger.tag(tokens) for tokens in test], CRF.from_crfsuite(path)
    assert model.predict(test) == theirs
    model.save(tmp_path / "ours")
    assert CRF.load(tmp_path / "ours").predict(test) == theirs
    worst = 0.0
    for tokens, rows in zip(test[:50], model.predict_marginals(test[:50]), strict=True):
        tagger.set(tokens)
        for t, row in enumerate(rows):
            worst = max(worst, *(abs(tagger.marginal(label, t) - p) for label, p in row.items()))
    return len(test), worst


@pytest.mark.parametrize("form", ["dicts", "lists"])
def test_the_same_labels_and_marginals(tmp_path, form):
    n, worst = compare(tmp_path, form, load_dataset("conll2000", source="builtin"), 100, EVERY)
    assert n > 100 and worst < 1e-12


@pytest.mark.real_data("conll2000")
@pytest.mark.parametrize("form", ["dicts", "lists"])
def test_real_chunks_are_the_same(tmp_path, form):
    n, worst = compare(tmp_path, form, load_dataset("conll2000"), 1000, EVERY)
    assert n >= 2000 and worst < 1e-12


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    """The blocks of docs/COMING_FROM_SKLEARN_CRFSUITE.md, one after the other in one program."""
    page = (ROOT / "docs" / "COMING_FROM_SKLEARN_CRFSUITE.md").read_text()
    blocks, names = re.findall(r"```python\n(.*?)```", page, re.S), {}
    exec(*re.findall(r"```py\n(.*?)```", page, re.S), names)  # the text of who has none
    assert len(names["X_train"]) == 200 and names["X_train"][0][0].keys() == {"word", "pos"}
    train, test = names["parts"]
    for name, part in {"train": train.head(60), "test": test.head(20)}.items():
        names[f"X_{name}"], names[f"y_{name}"] = list(sentences(part, "dicts")), part.labels_by_sequence()
    trained(tmp_path / "ner.crfsuite", names["X_train"], names["y_train"], **EVERY)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the best score is that of the (smallest|largest) c1")
        exec("\n".join(blocks), names)
    assert len(blocks) == 6 and names["same"].predict(names["X_test"]) == names["old"].predict(
        names["X_test"]
    )
    assert "weighted avg" in capsys.readouterr().out and names["search"].best_score_ > 0.5


def test_weights_are_those_of_the_tagger(small):
    path, tagger = small
    exact, told = CRF.from_crfsuite(path), CRF.from_crfsuite(tagger)
    for model, places in ((exact, 5e-7), (told, 0.0)):
        assert model.state_features_ == pytest.approx(tagger.info().state_features, abs=places)
        assert model.transition_features_ == pytest.approx(tagger.info().transitions, abs=places)
        assert model.classes_ == tagger.labels() == ["Z", "A", "M"] and model.status_ == "read from CRFsuite"
        assert model.predict(X) == [tagger.tag(tokens) for tokens in X]
    assert np.abs(exact.weights_ - told.weights_).max() < 1e-6


def test_the_tagger_answers_as_theirs(small):
    path, theirs = small
    model = CRF.from_crfsuite(path)
    assert model.tagger_.labels() == theirs.labels()
    for tokens, labels in zip(X, Y, strict=True):
        theirs.set(tokens)
        model.tagger_.set(tokens)
        assert model.tagger_.tag() == theirs.tag() == model.tagger_.tag(tokens)
        assert model.tagger_.probability(labels) == pytest.approx(theirs.probability(labels), rel=1e-9)
        for t in range(len(tokens)):
            for y in "ZAM":
                assert model.tagger_.marginal(y, t) == pytest.approx(theirs.marginal(y, t), rel=1e-9)
    before = model.tagger_
    assert pickle.loads(pickle.dumps(model)).tagger_.tag(X[0]) == before.tag(X[0])
    before.set(X[0])
    model.set_params(c2=100.0).fit(X, Y)  # nothing of the first fit is remembered
    assert before.tag() == model.predict_single(X[0])
    assert before.marginal("Z", 0) == model.predict_marginals_single(X[0])[0]["Z"]


ODD = [
    "a: b",
    "-->",
    "a --> b",
    "--> b",
    "b",
    "a -->",
    "a\nb",
    "a\r",
    "",
    " ",
    "'",
    '"',
    "b: 0.5",
    "(0) b",
    "}",
    "\\",
]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("of", ["labels", "attributes"])
def test_odd_names_are_told_or_refused(tmp_path, of, name):
    """python-crfsuite reads names out of lines of text: some it confuses, at others it gave no sentence."""
    names = {"labels": ["b", "Z"], "attributes": ["b", "q"], of: [name, "b", "a"]}
    X = [[[a] for a in names["attributes"]]]
    tagger = trained(tmp_path / "m", X, [(names["labels"] * 2)[: len(X[0])]], c2=0.1)
    exact = CRF.from_crfsuite(tmp_path / "m")
    try:
        told = CRF.from_crfsuite(tagger)
    except ModelFileError as error:
        assert "give the path of the model file" in str(error) and str(error).isprintable()
        assert not name or any(part in name for part in ("\n", "\r", "--> ", ": 0"))
        return
    for weights in ("state_features_", "transition_features_"):
        assert getattr(told, weights) == pytest.approx(getattr(exact, weights), abs=1e-6)


def test_two_names_on_one_line_are_refused(tmp_path):
    """(x, "A --> B") and ("x --> A", B) are written alike: one weight was lost in silence."""
    X, y = [[["x"], ["x --> A"], ["x"]]], [["A --> B", "B", "A"]]
    tagger = trained(tmp_path / "m", X, y, c2=0.1)
    with pytest.raises(ModelFileError, match="give the path of the model file"):
        CRF.from_crfsuite(tagger)
    assert CRF.from_crfsuite(tmp_path / "m").predict(X) == y


@pytest.mark.parametrize("algorithm", ["l2sgd", "ap", "pa", "arow"])
def test_models_of_every_algorithm(tmp_path, algorithm):
    tagger = trained(tmp_path / "m", X, Y, algorithm, max_iterations=5)
    assert CRF.from_crfsuite(tmp_path / "m").predict(X) == [tagger.tag(tokens) for tokens in X]


def test_a_model_without_weights_takes_the_first_label_as_theirs_does(tmp_path):
    tagger = trained(tmp_path / "m", X, Y, c1=1000.0)
    for source in (tmp_path / "m", str(tmp_path / "m"), tagger):
        model = CRF.from_crfsuite(source)
        assert model.predict(X) == [tagger.tag(tokens) for tokens in X] == [["Z"] * len(y) for y in Y]


def test_an_estimator_of_sklearn_crfsuite_is_read():
    peer = pytest.importorskip("sklearn_crfsuite").CRF(c1=0.1, c2=0.1).fit(X, Y)
    model = CRF.from_crfsuite(peer)
    assert model.predict(X) == list(peer.predict(X))
    assert model.state_features_ == pytest.approx(peer.state_features_, abs=5e-7)


def test_the_parameters_of_an_estimator_are_taken_over(small):
    """One that only looks like sklearn_crfsuite's, which need not be installed."""
    params = {"c1": 0.3, "c2": 0.2, "max_iterations": 7, "all_possible_states": None, "of another version": 1}
    peer = SimpleNamespace(modelfile=SimpleNamespace(name=small[0]), get_params=lambda: params)
    model = CRF.from_crfsuite(peer)
    assert (model.c1, model.c2, model.max_iterations, model.all_possible_states) == (0.3, 0.2, 7, False)
    assert CRF.from_crfsuite(small[0]).get_params() == CRF().get_params()


def test_files_are_read_without_python_crfsuite(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    assert CRF.from_crfsuite(small[0]).num_attributes_ == 6


def test_training_goes_on_from_its_weights(small):
    model = CRF.from_crfsuite(small[0]).set_params(c2=0.1, warm_start=True, max_iterations=0)
    before = model.state_features_
    assert model.fit(X, Y).state_features_ == before
    assert len(model.history_) == 0 or model.n_iter_ == 0


def test_load_names_from_crfsuite(small):
    with pytest.raises(ModelFileError, match="not a crfbook model file but one of CRFsuite: CRF.from_crf"):
        CRF.load(small[0])


def test_other_sources_are_refused(tmp_path, small):
    CRF(max_iterations=1).fit(X, Y).save(tmp_path / "ours")
    (tmp_path / "text").write_text("hello")
    for name in ("ours", "text"):
        with pytest.raises(ModelFileError, match=f"{name}: this is no intact model .* begin with b'lCRF'"):
            CRF.from_crfsuite(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        CRF.from_crfsuite(tmp_path / "none")
    for source in (3, None, [1]):
        with pytest.raises(TypeError, match="expected a path, or a tagger that has opened a model, got "):
            CRF.from_crfsuite(source)


# ---- damaged files: a sentence, or a model that predicts (a weight may have changed unseen)


def attempt(path, raw):
    """None if the file was refused in one sentence, else the model, after it has predicted."""
    path.write_bytes(raw)
    try:
        model = CRF.from_crfsuite(path)
    except ModelFileError as error:
        assert str(error).startswith(f"{path}: this is no intact model of CRFsuite, ")
        assert "\n" not in str(error) and len(str(error)) < 600
        return None
    assert [len(labels) for labels in model.predict(X)] == [len(labels) for labels in Y]
    return model


def test_every_cut_and_every_byte_more_is_refused(small, tmp_path):
    raw = small[0].read_bytes()
    for length in {*range(4, 120), *range(4, len(raw), 29), *range(len(raw) - 60, len(raw))}:
        assert attempt(tmp_path / "m", raw[:length]) is None
    assert attempt(tmp_path / "m", raw + b"\0") is None


def test_flipped_bytes_are_refused_or_change_one_weight_or_name(small, tmp_path):
    raw, rng = small[0].read_bytes(), np.random.default_rng(0)
    intact, refused = CRF.from_crfsuite(small[0]), 0
    places = [i for i, byte in enumerate(raw) if byte or i < 300]
    for place in rng.permutation(places)[:800].tolist():
        flipped = raw[place] ^ int(rng.integers(1, 256))
        model = attempt(tmp_path / "m", raw[:place] + bytes([flipped]) + raw[place + 1 :])
        refused += model is None
        if model is not None:
            assert len(model.weights_) == len(intact.weights_) and len(model.classes_) == 3
    assert refused > 100


def test_numbers_that_lie_are_refused_before_memory_is_taken(small, tmp_path):
    """Each number of the file becomes one that points, counts or announces elsewhere."""
    raw, path = small[0].read_bytes(), tmp_path / "m"
    places = [
        at for at in range(0, len(raw) - 3) if (raw[at : at + 4] != bytes(4) or at < 60) and at % 4 == 0
    ]
    names = struct.unpack_from("<2I", raw, 32)
    places += [at for start in names for at in range(start, start + 24, 4)]
    attempt(path, raw)  # what is loaded once

    def lie():
        for place in places:
            for value in (0, 1, 7, len(raw) - 4, len(raw), 2**31 - 1, 2**31, 2**32 - 1):
                attempt(path, raw[:place] + struct.pack("<I", value) + raw[place + 4 :])

    assert peak_bytes(lie)[1] < 5e6


def packed(labels, attributes, records, order=BYTE_ORDER, counts=None):
    """A file of this content, whether it makes sense or not; strings are (id, bytes)."""
    chunks = [struct.pack("<4sII", b"FEAT", 12 + 20 * len(records), len(records))]
    chunks[0] += b"".join(struct.pack("<3Id", *record) for record in records)
    for strings in (labels, attributes):
        body, places = b"", []
        for number, text in strings:
            places.append(24 + 2048 + len(body))
            body += struct.pack("<2I", number, len(text)) + text
        table = 24 + 2048 + len(body)
        size = table + 4 * len(places)
        head = struct.pack("<4s5I", b"CQDB", size, 0, order, len(places), table)
        chunks.append(head + bytes(2048) + body + struct.pack(f"<{len(places)}I", *places))
    chunks += [struct.pack("<4sII", mark, 12, 0) for mark in (b"LFRF", b"AFRF")]
    places = [48 + sum(map(len, chunks[:i])) for i in range(5)]
    size = 48 + sum(map(len, chunks))
    numbers = (100, 0, *(counts or (len(labels), len(attributes))), *places)
    return struct.pack("<4sI4s9I", b"lCRF", size, b"FOMC", *numbers) + b"".join(chunks)


SOUND = {
    "labels": [(0, b"A\0"), (1, b"B\0")],
    "attributes": [(0, b"a\0"), (1, b"b\0")],
    "records": [(0, 0, 1, 1.5), (0, 1, 0, -0.5), (1, 1, 0, 0.25)],
}
UNSOUND = [
    ({"labels": []}, "weight 0 is damaged"),
    ({"labels": [], "records": []}, "labels: expected a list of labels"),
    ({"labels": [(0, b"A\0"), (1, b"A\0")]}, "labels: expected a list of labels, all different"),
    ({"attributes": [(0, b"a\0"), (1, b"a\0")]}, "expected them all different"),
    ({"attributes": [(0, b"a\0"), (0, b"b\0")]}, "number 1 of its attributes is damaged"),
    ({"attributes": [(0, b"a\0"), (1, b"b")]}, "number 1 of its attributes is damaged"),
    ({"attributes": [(0, b"a\0"), (1, b"b\0\0")]}, "number 1 of its attributes is damaged"),
    ({"attributes": [(0, b"a\0"), (1, b"\xe9\0")]}, r"number 1 of its attributes is not UTF-8: b'\\xe9'"),
    ({"records": [(0, 2, 0, 1.0)]}, "weight 0 is damaged"),
    ({"records": [(0, 0, 0, 1.0), (1, 0, 2, 1.0)]}, "weight 1 is damaged"),
    ({"records": [(2, 0, 0, 1.0)]}, "weight 0 is damaged"),
    ({"records": [(0, 0, 0, float("nan"))]}, "weight 0 is damaged"),
    ({"records": [(1, 0, 0, float("inf"))]}, "weight 0 is damaged"),
    ({"records": [(0, 0, 0, 1.0), (0, 0, 0, 1.0)]}, "'node_keys': expected .* rising"),
    ({"order": 0x71534462}, "its list of 2 labels is damaged"),
    ({"records": [], "counts": (2, 1)}, "its list of 1 attributes is damaged"),
    ({"records": [], "counts": (2, 1000)}, "its list of 1,000 attributes is damaged"),
]


@pytest.mark.parametrize("change, message", UNSOUND)
def test_content_without_sense_is_refused(tmp_path, change, message):
    model = attempt(tmp_path / "m", packed(**SOUND))
    assert model.state_features_ == {("a", "B"): 1.5, ("b", "A"): -0.5}
    assert model.transition_features_ == {("B", "A"): 0.25}
    (tmp_path / "m").write_bytes(packed(**{**SOUND, **change}))
    with pytest.raises(ModelFileError, match=f"m: this is no intact model of CRFsuite, .*{message}"):
        CRF.from_crfsuite(tmp_path / "m")
