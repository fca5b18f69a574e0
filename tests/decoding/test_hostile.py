"""Hostile models and texts, through the estimators: every form is right, or a sentence says what is wrong."""

import itertools

import numpy as np
import pytest

from crfbook.chain import inference
from crfbook.chain.sparse import choice
from crfbook.data.corpus import make_corpus
from crfbook.data.features import MOST_LABELS, from_keys, observed
from crfbook.decoding import FORMS, decode, kbest
from crfbook.models.crf import CRF
from crfbook.models.directed import HMM, MEMM
from crfbook.models.inputs import known_corpus


def one_of_each(n_labels):
    """Two tokens a sequence, and each label once."""
    return make_corpus(
        np.arange(0, n_labels + 1, 2), range(n_labels + 1), np.arange(n_labels) % 50, labels=range(n_labels)
    )


@pytest.mark.parametrize(
    "model",
    [
        CRF("perceptron", max_iterations=0),
        CRF(all_possible_transitions=True),
        CRF("sbcd", c1=1.0, c2=0.0, all_possible_states=True, all_possible_transitions=True),
        HMM(),
        MEMM(),
    ],
    ids=["perceptron", "lbfgs", "sbcd", "HMM", "MEMM"],
)
def test_more_labels_than_pairs_have_numbers(model):
    """46,341 labels squared exceed 31 bits; pairs of them would be taken for others in silence."""
    with pytest.raises(ValueError, match="^labels: expected at most 46,340 different ones, got 46,342$"):
        model.fit(one_of_each(MOST_LABELS + 2))
    assert MOST_LABELS**2 < 2**31 <= (MOST_LABELS + 1) ** 2


def test_many_labels_take_stored_pairs_without_a_count_of_all(monkeypatch):
    """Counting the pairs of 8,000 labels for the choice alone would take a table of them."""
    n_labels = 8_000
    pairs = np.array([0 * n_labels + 7_999, 7_999 * n_labels + 5])
    features = from_keys(n_labels, 2, 1, np.array([0, n_labels + 3]), pairs)
    corpus, w = make_corpus([0, 3], [0, 1, 1, 1], [0]), np.array([1.0, 1.0, 3.0, 2.0])
    monkeypatch.setattr(choice, "count_supports", None)
    assert choice.decoding_form("auto", corpus, features, w) == "default"
    assert decode(corpus, features, w).tolist() == [0, 7_999, 5]
    assert kbest(corpus, features, w, k=2).path.T.tolist() == [[0, 7_999, 5], [0, 7_999, 0]]


@pytest.mark.parametrize("form", ["dense", "numpy", "sparse"])
def test_tables_that_no_memory_holds_are_refused_with_their_size(form):
    features = from_keys(40_000, 1, 1, np.array([39_999]), np.array([5]))
    corpus = make_corpus([0, 2], [0, 1, 1], [0])
    most = r"^form='{}': expected tables of at most 8 GiB, got {} GiB for .* 40,000 labels; 'default' "
    with pytest.raises(ValueError, match=most.format(form, 29.8 if form == "sparse" else 35.8)):
        decode(corpus, features, np.ones(2), form=form)
    with pytest.raises(ValueError, match=most.format("dense", 35.8)):
        kbest(corpus, features, np.ones(2), form="dense")


X = [
    [{"a": 1}, {"b": 2.5}, {"a": -1, "c": 0.5}],
    [{"b": 1}],
    [],
    [{"a": 1}, {"b": 1}, {"c": 1}, {"c": 1}],
    [{"new": 1}, {}],
]
Y = [["B-X", "I-X", "O"], ["B-Y"], [], ["B-Y", "I-Y", "I-Y", "O"], ["O", "O"]]
ENDS = [["B-X", "E-X", "O"], ["S-X"], [], ["B-X", "I-X", "E-X", "S-X"], ["O", "O"]]
COLUMNS = [
    [("u", "p"), ("v", "q"), ("w", "p")],
    [("v", "r")],
    [],
    [("u", "p"), *[("v", "q")] * 3],
    [("x", "s")] * 2,
]
PATTERNS = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\nB1:%x[0,1]\n"
ALLOWED = {
    "allowed": np.array([[1, 0, 1, 0, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 1], [1, 0, 0, 1, 1], [1, 1, 1, 0, 1]])
    > 0,
    "start": ["B-X", "B-Y", "O"],
    "end": ["B-Y", "O", "I-X"],
}


def with_weights(model, change):
    """The model, its weights of transitions changed."""
    w, n_node = model.weights_.copy(), model.features_.n_node
    w[n_node:] = change(w[n_node:])
    model.weights_ = w
    return model


MODELS = {
    "real values": lambda: CRF(c2=0.1).fit(X, Y),
    "rare features left out": lambda: CRF(c2=0.1, min_freq=2).fit(X, Y),
    "every pair is stored": lambda: CRF(c2=0.01, all_possible_states=True, all_possible_transitions=True).fit(
        X, Y
    ),
    "edge templates": lambda: CRF(c2=0.1, template=PATTERNS).fit(COLUMNS, Y),
    "edge templates, every pair": lambda: CRF(
        c2=0.1, template=PATTERNS, all_possible_transitions=True, constraints="BIO"
    ).fit(COLUMNS, Y),
    "BIO": lambda: CRF(c2=0.1, constraints="BIO").fit(X, Y),
    "BIOES": lambda: CRF(c2=0.1, constraints="BIOES").fit(X, ENDS),
    "starts and ends": lambda: CRF(c2=0.1, constraints=ALLOWED).fit(X, Y),
    "dictionary": lambda: CRF(c2=0.1, template=PATTERNS, tag_dictionary=2, constraints="BIO").fit(COLUMNS, Y),
    "ties everywhere": lambda: CRF("perceptron", max_iterations=0).fit(X, Y),
    "perceptron": lambda: CRF("perceptron", max_iterations=3).fit(X, Y),
    "a million below": lambda: with_weights(CRF(c2=0.1).fit(X, Y), lambda w: 0.0 * w - 1e6),
    "one label": lambda: CRF(c2=0.1).fit(X, [["A"] * len(x) for x in X]),
    "HMM": lambda: HMM().fit(X[1:], Y[1:]),
    "HMM with probabilities of 0": lambda: HMM(smoothing=0.0).fit(X[1:4], Y[1:4]),
    "MEMM": lambda: MEMM().fit(X, Y),
}
FIRST = [
    "auto",
    "dense",
    "sparse",
    "default",
    "numpy",
    "plain",
    "beam",
]  # those labels come first


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """(model, texts that it has a labelling for)"""
    model = MODELS[request.param]()
    x = COLUMNS if getattr(model, "template", None) else X
    return model, x[1:4] if "HMM" in request.param else x


def enumerated(model, x):
    """{labels: log probability} of all labellings that are possible, each by `log_proba`."""
    every = list(itertools.product(model.classes_, repeat=len(x)))
    log_proba = model.log_proba([x] * len(every), [list(y) for y in every]).tolist()
    return {y: p for y, p in zip(every, log_proba, strict=True) if p > -np.inf}


def test_every_form_finds_a_best_labelling(fitted, tmp_path):
    model, texts = fitted
    every, first = [enumerated(model, x) for x in texts], model.predict(texts, "dense")
    for form in FORMS:
        if not hasattr(model, "save") and form in ("sparse", "default", "numpy"):
            continue
        found = model.predict(texts, form, beam_width=5)
        for y, possible in zip(found, every, strict=True):
            assert possible[tuple(y)] == pytest.approx(max(possible.values()), rel=1e-12, abs=1e-12)
        assert form not in FIRST or found == first
        if hasattr(model, "save"):
            model.n_jobs = 2
            assert model.predict(texts, form, beam_width=5) == found
            model.n_jobs = None
    if hasattr(model, "save"):
        model.save(tmp_path / "model.crf")
        again = CRF.load(tmp_path / "model.crf")
        for form in FORMS:
            assert again.predict(texts, form, beam_width=5) == model.predict(texts, form, beam_width=5)


def test_the_k_best_are_the_k_best_of_all(fitted):
    model, texts = fitted
    for form in ("auto", "dense", *["default"] * hasattr(model, "save")):
        found, some = model.predict_kbest(texts, 10**6, form), model.predict_kbest(texts, 3, form)
        for x, pairs, few in zip(texts, found, some, strict=True):
            possible, log_proba = enumerated(model, x), [p for _, p in pairs]
            assert few == pairs[:3] and {tuple(y) for y, _ in pairs} == possible.keys()
            assert len(pairs) == len(possible) and log_proba == sorted(log_proba, reverse=True)
            assert sum(np.exp(log_proba)) == pytest.approx(1.0, abs=1e-9)
            for y, p in pairs:
                assert p == pytest.approx(possible[tuple(y)], rel=1e-11, abs=1e-11)
        assert [pairs[0][0] for pairs in found] == model.predict(texts, "dense")


def test_scores_whose_rounding_leaves_no_digit_of_a_probability():
    """Every form still finds a labelling of the best score; who asks for probabilities is told."""
    model = with_weights(CRF(c2=0.1).fit(X, Y), lambda w: np.resize([1e150, -1e150], w.shape))
    best = None
    for form in FORMS:
        found = known_corpus(model.encoder_, X, model.predict(X, form, beam_width=5))
        score = inference.sequence_scores(found, model.features_, model.weights_)
        best = score if best is None else best
        np.testing.assert_allclose(score, best, rtol=1e-12)
        every = known_corpus(model.encoder_, [X[0]] * 125, list(itertools.product(model.classes_, repeat=3)))
        assert score[0] == max(inference.sequence_scores(every, model.features_, model.weights_))
    pairs = lambda x: list(model.predict_edge_marginals(x))  # noqa: E731
    for ask in (model.predict_kbest, model.predict_marginals, pairs):
        with pytest.raises(ValueError, match="^sequence 3: expected scores whose differences float64 knows"):
            ask(X)
    for x in X[0], X[1]:  # one labelling is far above all others; one token has no transition
        for row in model.predict_marginals([x])[0]:
            assert sum(row.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("form", FORMS)
def test_a_text_without_any_labelling_is_named(form):
    """A sequence that begins with A ends with A, and must end with B."""
    model = CRF(constraints={"allowed": np.eye(2, dtype=bool)}).fit(
        [[["a"], ["a"]], [["b"]]], [["A", "A"], ["B"]]
    )
    model.constraints_ = model.constraints_._replace(
        start=np.array([True, False]), end=np.array([False, True])
    )
    match = "^sequence 1: expected a path" if form == "beam" else "^sequence 1: .* the constraints"
    with pytest.raises(ValueError, match=match):
        model.predict([[], [["a"], ["b"]], [["a"]]], form)
    with pytest.raises(ValueError, match="^sequence 1: .* the constraints"):
        model.predict_kbest([[], [["a"], ["b"]]], form="default")


@pytest.mark.parametrize("form", ["default", "plain", "sparse", "staggered-columns"])
def test_a_million_tokens_in_one_sequence(form):
    rng, n = np.random.default_rng(0), 10**6
    corpus = make_corpus([0, 0, 1, n, n], range(n + 1), rng.integers(0, 4, n), labels=rng.integers(0, 3, n))
    features = observed(corpus, 3, 4)
    w = np.round(rng.normal(size=features.n_features), 2)
    found, want = decode(corpus, features, w, form=form), decode(corpus, features, w, form="dense")
    assert form == "staggered-columns" or (found == want).all()
    score, best = (
        inference.sequence_scores(corpus._replace(labels=path), features, w) for path in (found, want)
    )
    np.testing.assert_allclose(score, best, rtol=1e-12)
