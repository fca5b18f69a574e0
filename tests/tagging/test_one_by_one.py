"""One sentence a call: labels those of a corpus, probabilities to 1e-12, by kernels and by NumPy."""

import copy
import pickle
import threading
from decimal import Decimal
from enum import Enum
from fractions import Fraction

import numpy as np
import pytest

from crfbook import CRF, Tagger, TokenColumns, brute
from crfbook.chain import inference
from crfbook.data.constraints import Constraints
from crfbook.data.features import log_edge
from crfbook.decoding import kbest
from crfbook.tagging import model as tagging

LABELS = "A B C D".split()
WORDS = [f"w{i}" for i in range(30)]


def token(rng, kind):
    words = [WORDS[i] for i in rng.integers(len(WORDS), size=3)]
    if kind == "lists":
        return words  # now and then with a duplicate
    if kind == "flat":
        return {"word": words[0], "upper": bool(rng.integers(2)), "n": int(rng.integers(4)), words[1]: 1.0}
    if kind == "floats":
        return {"word": words[0]} | {f"f{i}": float(rng.normal()) for i in range(3)}
    return {
        "word": words[0],
        "next": {"word": words[1], "shape": {"x": words[2], "last": True}},
        "in": words[:2],
    }


def text(rng, kind, n=40):
    return [[token(rng, kind) for _ in range(rng.integers(1, 7))] for _ in range(n)]


def labels_of(rng, X):
    return [[LABELS[i] for i in rng.integers(len(LABELS), size=len(x))] for x in X]


@pytest.fixture(params=["kernels", "numpy"])
def way(request, monkeypatch):
    """The one of the two ways that is not asked for cannot be taken."""
    monkeypatch.setattr(tagging, "_at_hand", lambda: request.param == "kernels")
    if request.param == "numpy":
        monkeypatch.setattr(tagging, "NUMPY_TOKENS", np.inf)
    return request.param


def random_model(rng, kind, **options):
    X = text(rng, kind)
    model = CRF(max_iterations=3, all_possible_transitions=True, **options).fit(X, labels_of(rng, X))
    model.weights_ = rng.normal(size=len(model.weights_))
    return model, text(rng, kind)


def taken(model, X):
    """Is every sentence answered one by one?"""
    return model._one_by_one(X, tagging.SentenceModel.tag) is not None


def by_corpus(model, X):
    """(labels, marginals, k best, log Z) of the way of a corpus."""
    corpus, what = model._known(X), model._model()
    ids = inference.decode(corpus, *what)
    best = kbest(corpus, *what[:3], 3)
    return model.encoder_.decode(ids, corpus.seq_ptr), inference.node_marginals(corpus, *what), best


@pytest.mark.parametrize("min_freq", [1, 2, 4, 60])
def test_attributes_of_a_template_are_those_of_a_corpus(min_freq):
    """Also where a family lacks keys of its cells: few, many or all."""
    rng = np.random.default_rng(min_freq)
    X = [[str(rng.choice(WORDS)) for _ in range(rng.integers(1, 9))] for _ in range(60)]
    template = "U0:%x[0,word]\nU1:%x[-1,word]/%x[0,word]\nU2:%x[1,word]\nU3:%suffix[0,word,1]\n"
    columns = [[{"word": word} for word in x] for x in X]
    model = CRF(template=template, min_freq=min_freq, max_iterations=2).fit(columns, labels_of(rng, X))
    one = tagging.SentenceModel.of(
        *(getattr(model, f"{a}_") for a in ("encoder", "features", "weights")), None
    )
    one.load()
    families = [len(f.keys) for f in model.encoder_.attributes.node]
    assert max(families) > 0 or min_freq == 60
    for x in [*columns, [{"word": "new"}, {"word": "w3"}, {"word": "w1"}]]:
        n, flat, _ = one.read(x)
        corpus = model.encoder_.transform([x])
        assert flat[: n + 1].tolist() == corpus.attr_ptr.tolist()
        assert flat[n + 1 :].tolist() == corpus.attr_idx.tolist()


@pytest.mark.parametrize("kind", ["lists", "flat", "nested", "floats"])
@pytest.mark.parametrize("constrained", [False, True])
def test_a_sentence_is_answered_as_in_a_corpus(kind, constrained, way):
    rng = np.random.default_rng(0)
    model, X = random_model(rng, kind)
    if constrained:
        allowed = rng.random((4, 4)) < 0.8
        start, end = np.array([1, 1, 0, 1], bool), np.array([1, 0, 1, 1], bool)
        limits = {"allowed": allowed | np.eye(4, dtype=bool), "start": start, "end": end}
        model.constraints_ = Constraints(*limits.values())
        X = [x for x in X if len(x) > 1]
    assert taken(model, X)
    labels, p_node, best = by_corpus(model, X)
    assert model.predict(X) == [model.predict_single(x) for x in X] == labels
    assert model.predict([]) == [] and model.predict([[]]) == [[]]
    np.testing.assert_allclose(np.vstack(model.predict_marginals_array(X)), p_node, rtol=0, atol=1e-12)
    ptr = np.cumsum([0, *map(len, X)])
    for i, found in enumerate(model.predict_kbest(X, 3)):
        assert [y for y, _ in found] == [
            [model.classes_[y] for y in best.path[ptr[i] : ptr[i + 1], j]] for j in range(best.found[i])
        ]
        np.testing.assert_allclose([p for _, p in found], best.log_proba[i, : len(found)], atol=1e-12)
    spans = [(i, 0, labels[i][:2]) for i in range(len(X))]
    ids = [(i, t, [model.classes_.index(y) for y in ys]) for i, t, ys in spans]
    known = inference.span_log_proba(model._known(X), *model._model()[:2], ids, model.constraints_)
    np.testing.assert_allclose(model.span_log_proba(X, spans), known, atol=1e-12)


def test_enumeration(way):
    rng = np.random.default_rng(1)
    model, X = random_model(rng, "floats")
    features, w = model.features_, model.weights_
    table = log_edge(features, w, np.array([0, 1]), np.zeros(1, np.int32))
    for x in X[:20]:
        corpus = model.encoder_.transform([x])
        chain = inference.node_scores(corpus, features, w), table, np.zeros(len(x), np.int32)
        _, best = brute.best_paths(*chain)
        path = [model.classes_.index(y) for y in model.predict([x])[0]]
        assert path in np.asarray(best).tolist()
        np.testing.assert_allclose(
            model.predict_marginals_array([x])[0], brute.node_marginals(*chain), atol=1e-12
        )
        found = model.span_log_proba([x], [(0, 0, [model.classes_[y] for y in path])])
        assert found[0] == pytest.approx(brute.log_proba(*chain, path), abs=1e-12)


@pytest.mark.parametrize("dictionary", [None, 1])
def test_templates(way, dictionary):
    rng = np.random.default_rng(2)

    def columns(n):
        words = [[WORDS[i] for i in rng.integers(len(WORDS), size=rng.integers(1, 8))] for _ in range(n)]
        return [[(word, word[-1]) for word in sentence] for sentence in words]

    X = columns(40)
    template = (
        "U00:%x[-2,0]\nU01:%x[-1,0]/%x[0,1]\nU02:%x[0,0]\nU03:%x[1,0]\nU:%prefix[0,0,1]\nU:%suffix[0,0,2]\nB"
    )
    model = CRF(template=template, max_iterations=2, tag_dictionary=dictionary).fit(X, labels_of(rng, X))
    model.weights_ = rng.normal(size=len(model.weights_))
    new = columns(30)
    new[0][0] = "never seen", "x"
    assert taken(model, new[:1]) and sum(taken(model, [x]) for x in new) > 15  # some are blocked, and freed
    labels, p_node, _ = by_corpus(model, new)
    assert model.predict(new) == labels
    np.testing.assert_allclose(np.vstack(model.predict_marginals_array(new)), p_node, rtol=0, atol=1e-12)
    as_dicts = [[dict(zip("01", cells, strict=True)) for cells in x] for x in new]
    assert model.predict(as_dicts) == labels


def test_texts_of_one_column(way):
    X = [["the", "cat"], ["a", "dog", "sat"]] * 3
    model = CRF(template="words", max_iterations=5).fit(X, [["D", "N"], ["D", "N", "V"]] * 3)
    assert taken(model, X)
    assert model.predict(X) == by_corpus(model, X)[0]
    flat = TokenColumns({"word": [w for x in X for w in x]}, np.cumsum([0, *map(len, X)]))
    assert model.predict(X) == model.predict(flat)


def test_the_sum_of_a_duplicate_stands_first(way):
    X = [[["a", "b", "a"], ["c", "b"]], [["b", "a"], ["c"]]]
    model = CRF(max_iterations=2).fit(X, [["A", "B"], ["B", "A"]])
    model.weights_[:] = np.random.default_rng(3).normal(size=len(model.weights_)) * 0.1
    alone, together = model.encoder_.transform(X[:1]), model.encoder_.transform(X)
    np.testing.assert_array_equal(alone.attr_idx, together.attr_idx[: len(alone.attr_idx)])
    read = model._sentence_model().read(X[0])
    scores = inference.node_scores(alone, model.features_, model.weights_)
    np.testing.assert_array_equal(model._sentence_model().scores(read), scores)


def test_an_occurrence_of_value_0_has_no_place(way):
    """The order of a sum does not depend on the way, nor on zeros."""
    X = [[{"p": {"a": 0.0}, "b": 1, "c": 1, "p:a": 1, "d": 1}, {"p": {"a": True}, "b": 2.5, "p:b": 0}]]
    model = CRF(max_iterations=2).fit(X, [["A", "B"]])
    model.weights_[:] = np.random.default_rng(3).normal(size=len(model.weights_)) * 0.1
    names = [model.encoder_.attribute_name(a) for a in model.encoder_.transform(X).attr_idx[:4]]
    assert names == ["b", "c", "p:a", "d"]
    scores = inference.node_scores(model.encoder_.transform(X), model.features_, model.weights_)
    np.testing.assert_array_equal(model._sentence_model().scores(model._sentence_model().read(X[0])), scores)
    assert model.predict(X) == by_corpus(model, X)[0]


def test_weights_that_change_in_place_are_seen(way):
    rng = np.random.default_rng(4)
    model, X = random_model(rng, "lists")
    before = model.predict_marginals_array(X)
    n_node = model.features_.n_node
    for part in (slice(0, n_node), slice(n_node, None)):
        model.weights_[part] *= -1.0
        labels, p_node, _ = by_corpus(model, X)
        assert [model.predict_single(x) for x in X] == labels
        np.testing.assert_allclose(np.vstack(model.predict_marginals_array(X)), p_node, rtol=0, atol=1e-12)
        assert not np.allclose(np.vstack(before), p_node)
        assert model.predict(X) == by_corpus(model, X)[0]
    model.weights_[:] = np.nan
    with pytest.raises(ValueError, match="finite"):
        model.predict(X)


def test_what_scaled_sums_cannot_hold_goes_another_way(way):
    model, X = random_model(np.random.default_rng(5), "lists")
    for size in (300.0, 1e4, 1e9):
        model.weights_[:] = np.random.default_rng(5).normal(scale=size, size=len(model.weights_))
        assert model._one_by_one(X, tagging.SentenceModel.marginals) is None
        expected = by_corpus(model, X)
        assert model.predict(X) == expected[0]
        np.testing.assert_allclose(np.vstack(model.predict_marginals_array(X)), expected[1], atol=1e-12)


def test_a_sentence_without_a_known_attribute(way):
    model, X = random_model(np.random.default_rng(12), "lists")
    for odd in ([["never seen"]], [[]], [["never seen"], X[0][0]]):
        labels, p_node, best = by_corpus(model, [odd])
        assert model.predict([odd]) == labels
        np.testing.assert_allclose(model.predict_marginals_array([odd])[0], p_node, atol=1e-12)
        found = [p for _, p in model.predict_kbest([odd], 2)[0]]
        assert found == pytest.approx(best.log_proba[0, :2], abs=1e-12)
        assert model.span_log_proba([odd], [(0, 0, (y for y in labels[0][:1]))])[0] <= 0.0


def test_what_equals_a_value_is_not_taken_for_it(way):
    """Caches compare by ==, and know what equals it: numbers of any type, and an Enum of strings."""

    class Word(str, Enum):  # noqa: UP042
        w0 = "w0"

    model, X = random_model(np.random.default_rng(13), "flat")
    known = {"word": "w0", "n": 1}
    for _ in range(3):
        model.predict([[known]])
    with pytest.raises(TypeError, match="expected a number"):
        model.predict([[known | {"n": 1 + 1j}]])
    for unit in ("NaT", 3):
        with pytest.raises(TypeError, match="sequence 0, token 0: attribute 'n': expected a number"):
            model.predict([[known | {"n": np.timedelta64(unit, "D")}]])
    with pytest.raises(ValueError, match="sequence 0, token 0: "):
        model.predict([[known | {"n": Decimal("sNaN")}]])
    same = {"word": ["w0", Word.w0], "n": [1, True, Decimal(1), Fraction(1), 1 + 0j, np.float32(1)]}
    for name, values in same.items():
        first, *others = [model.predict_marginals_array([[known | {name: value}]])[0] for value in values]
        for other in others:
            np.testing.assert_array_equal(other, first)
    together = model.encoder_.transform([[known]] * 9 + [[known | {"word": Word.w0}]]).attr_idx
    assert together[-2:].tolist() == together[:2].tolist()


def test_a_token_of_many_attributes_goes_as_a_corpus(monkeypatch, way):
    monkeypatch.setattr(tagging, "MOST_ATTRIBUTES", 5)
    model, X = random_model(np.random.default_rng(14), "lists")
    assert model._sentence_model().read([["a"] * 6]) is None
    assert model.predict(X) == by_corpus(model, X)[0]


@pytest.mark.parametrize(
    "bad", [[{"a": np.inf}], ["abc"], [[1]], [[["a"]]], [{"a": None}], [None], [{1: "x"}], 5]
)
def test_errors_are_those_of_a_corpus(bad, way):
    model, X = random_model(np.random.default_rng(6), "flat")
    with pytest.raises((TypeError, ValueError)) as expected:
        model._known([X[0], bad])
    with pytest.raises(expected.type) as got:
        model.predict([X[0], bad])
    assert str(got.value) == str(expected.value)


def test_long_inputs_go_as_a_corpus(monkeypatch):
    model, X = random_model(np.random.default_rng(7), "lists")
    monkeypatch.setattr(CRF, "_most_sequences", 3)
    monkeypatch.setattr(tagging, "MOST_TOKENS", 2)
    assert model._one_by_one(X[:4], tagging.SentenceModel.tag) is None
    assert model._sentence_model().read(max(X, key=len)) is None
    assert model.predict(X) == by_corpus(model, X)[0]


def test_copies_and_later_fits():
    model, X = random_model(np.random.default_rng(8), "lists")
    labels = model.predict(X[:5])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.predict(X[:5]) == labels
    model.fit(X, labels_of(np.random.default_rng(9), X))
    assert model.predict(X[:5]) == by_corpus(model, X[:5])[0]
    model.sparsify(0.05)
    assert model.predict(X[:5]) == by_corpus(model, X[:5])[0]


def test_what_the_estimator_holds_may_be_replaced(way):
    """Each of its parts is asked for at every call."""
    model, X = random_model(np.random.default_rng(15), "lists")
    other = copy.deepcopy(model)
    other.weights_ = other.weights_[::-1].copy()
    before = model.predict(X)
    free = model._sentence_model()
    everywhere = np.ones(len(LABELS), bool)
    model.constraints_ = Constraints(~np.eye(len(LABELS), dtype=bool), everywhere, everywhere)
    assert model._sentence_model() is not free
    assert model.predict(X) == by_corpus(model, X)[0] != before
    for part in ("features_", "encoder_", "weights_"):
        held = model._sentence_model()
        setattr(model, part, getattr(other, part))
        assert model._sentence_model() is not held
        assert model.predict(X) == by_corpus(model, X)[0]


@pytest.mark.parametrize("cell", ["%suffix[0,0,1]", "%x[0,0]", "%lower[0,0]", "%shape[0,0]"])
def test_templates_of_one_cell(cell, way):
    X = [["ab", "cB", "ab"], ["cb", "aa"]] * 3
    model = CRF(template=f"U0:{cell}\nB", max_iterations=2).fit(X, [["X", "Y", "X"], ["Y", "X"]] * 3)
    model.weights_ = np.random.default_rng(5).normal(size=len(model.weights_))
    assert taken(model, X) and model.predict(X) == by_corpus(model, X)[0]
    p_node = by_corpus(model, X)[1]
    np.testing.assert_allclose(np.vstack(model.predict_marginals_array(X)), p_node, rtol=0, atol=1e-12)


def test_threads_share_a_tagger(way):
    model, X = random_model(np.random.default_rng(10), "floats")
    tagger, labels = Tagger(model, kernels=way == "kernels"), by_corpus(model, X)[0]
    found = {}

    def work(i):
        found[i] = [(tagger.tag(x), tagger.marginal("A", 0)) for _ in range(5) for x in X]

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all([y for y, _ in found[i]] == labels * 5 for i in range(4))
    assert found[0] == found[1] == found[2] == found[3]


def test_other_models_have_no_way_of_their_own():
    rng = np.random.default_rng(11)
    X = [rng.normal(size=(3, 2)) for _ in range(5)]
    model = CRF(max_iterations=2).fit(X, [["A", "B", "A"]] * 5)
    assert model._sentence_model() is None and len(model.predict(X)) == 5
    model = CRF(template="U:%x[0,0]\nB:%x[0,0]", max_iterations=2).fit([["a", "b"]] * 3, [["A", "B"]] * 3)
    assert model._sentence_model() is None and model.predict([["a", "b"]]) == [["A", "B"]]
