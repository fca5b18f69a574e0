"""The k best labellings of a corpus and of a CRF: probabilities, constraints, bad input."""

from importlib import import_module

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import CASES, case, constraints_for, problem

from crfbook import brute
from crfbook.chain import inference, packing
from crfbook.data.constraints import constraints_from
from crfbook.decoding import kbest
from crfbook.models.crf import CRF

X = [[{"a": 1}, {"b": 1}, {"a": 1}], [{"b": 1}], [], [{"a": 1}, {"b": 1}]]
Y = [["A", "B", "A"], ["B"], [], ["A", "A"]]


@pytest.fixture(scope="module")
def crf():
    return CRF(c2=0.1).fit(X, Y)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("k, n_threads", [(1, 1), (5, 2), (5000, 1)])
def test_equals_enumeration(name, constrained, k, n_threads):
    corpus, features, w = case(name)
    constraints = constraints_for(corpus, features.n_labels) if constrained else None
    best = kbest(corpus, features, w, constraints, k, n_threads)
    n_ranks = best.path.shape[1]
    assert n_ranks == min(k, features.n_labels**corpus.longest)
    assert best.score.shape == best.log_proba.shape == (corpus.n_sequences, n_ranks)
    for i, chain in enumerate(chains_of(corpus, features, w, constraints)):
        if len(chain[0]) == 0:
            assert best.found[i] == 1 and best.score[i, 0] == best.log_proba[i, 0] == 0.0
            continue
        scores = brute.all_scores(*chain)[1]
        want = np.sort(scores[scores > -np.inf])[::-1][:k]
        assert best.found[i] == len(want)
        np.testing.assert_allclose(best.score[i, : len(want)], want, rtol=1e-10, atol=1e-10)
        path = best.path[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1], : len(want)].T
        found = [brute.log_proba(*chain, p) for p in path]
        np.testing.assert_allclose(best.log_proba[i, : len(want)], found, rtol=1e-9, atol=1e-9)
        assert len({tuple(p) for p in path.tolist()}) == len(want)
    np.testing.assert_array_equal(best.path[:, 0], inference.decode(corpus, features, w, constraints))


def same(*found):
    """Are these `KBest` the same bit for bit? Forms add up log Z in different orders."""
    for other in found[1:]:
        for name in ("path", "score", "found"):
            np.testing.assert_array_equal(getattr(found[0], name), getattr(other, name))
        reach = np.abs(other.score, where=other.score > -np.inf, out=np.zeros(other.score.shape)).max(
            initial=0
        )
        slack = 1e-11 + 1e-15 * reach  # differences of numbers so large
        np.testing.assert_allclose(found[0].log_proba, other.log_proba, rtol=1e-11, atol=slack)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kind", ["any", "ties", "few pairs", "all zero", "far below", "far above", "mixed"])
def test_stored_pairs_give_the_bits_of_the_table(name, constrained, kind):
    corpus, features, w = case(name, 3)
    edges, rng = slice(features.n_node, None), np.random.default_rng(5)
    if kind == "ties":
        w = np.round(w)
    if kind == "few pairs":
        w[edges][rng.random(features.n_edge) < 0.7] = 0.0
    if kind == "all zero":
        w[:] = 0.0
    if kind == "far below":
        w[edges] = -1e6
    if kind == "far above":
        w[edges][::2] = 1e4
    if kind == "mixed":
        w[edges] *= 10.0
    constraints = constraints_for(corpus, features.n_labels) if constrained else None
    given = corpus, features, w, constraints, 9, 1
    same(kbest(*given, form="dense"), kbest(*given, form="default"), kbest(*given))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("scheme", [None, "BIO", "any"])
def test_stored_pairs_of_many_labels(monkeypatch, scheme, n_threads):
    """Groups of next labels, several classes, bounds kept between stretches, and two threads."""
    monkeypatch.setattr(packing, "STRETCH_ROWS", 20)
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, tuple(rng.integers(0, 12, 40)), 37, 60, n_classes=2)
    features, w = random_model(rng, corpus, 37, 60)
    allowed = rng.random((37, 37)) < 0.3
    np.fill_diagonal(allowed, True)
    names = ["O", *(f"{p}-{i}" for i in range(18) for p in "BI")]
    spec = {None: None, "BIO": "BIO", "any": {"allowed": allowed}}[scheme]
    given = corpus, features, w, constraints_from(spec, names), 12
    same(kbest(*given, form="dense"), kbest(*given, n_threads, form="default"))


def test_sparse_transitions_take_stored_pairs(monkeypatch):
    """Where decoding takes pairs and no table, so does `kbest`."""
    corpus, features, w = case("plain")
    module = import_module("crfbook.decoding.kbest")  # the face has a function of this name
    monkeypatch.setattr(module, "decoding_form", lambda *given: "sparse")
    monkeypatch.setattr(module, "dense_search", None)
    assert kbest(corpus, features, w, k=2).found.tolist() == [2, 1, 2, 2, 2]


def test_a_form_that_kbest_does_not_have(crf):
    with pytest.raises(ValueError, match="^form: expected one of 'auto', 'dense', 'default', got 'numpy'$"):
        crf.predict_kbest(X, 3, form="numpy")
    for stored, dense in zip(*(crf.predict_kbest(X, 3, form=f) for f in ("default", "dense")), strict=True):
        assert [labels for labels, _ in stored] == [labels for labels, _ in dense]
        assert [p for _, p in stored] == pytest.approx([p for _, p in dense], abs=1e-12)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_stretches_change_nothing(monkeypatch, n_threads):
    corpus, features, w = case("everything")
    whole = kbest(corpus, features, w, k=7)
    monkeypatch.setattr(packing, "STRETCH_ROWS", 2)
    assert len(inference.stretches(corpus.seq_ptr, features.n_labels)) > 2
    same(whole, kbest(corpus, features, w, None, 7, n_threads))


def test_label_sets_of_tokens_hold():
    corpus, features, w, constraints = problem(constrained=True)
    best = kbest(corpus, features, w, constraints, 50)
    rank = np.repeat(best.found, corpus.lengths)[:, None] > np.arange(best.path.shape[1])
    t, j = np.nonzero(rank)
    assert constraints.label_sets[corpus.label_set[t], best.path[t, j]].all()
    assert (best.found < 50).any()


def test_all_labellings_have_probability_one():
    corpus, features, w = case("everything")
    best = kbest(corpus, features, w, k=3**4)
    total = np.where(best.log_proba > -np.inf, np.exp(best.log_proba), 0.0).sum(axis=1)
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)


def test_predict_kbest(crf):
    best = crf.predict_kbest(X, 3)
    assert [len(pairs) for pairs in best] == [3, 2, 1, 3]
    assert best[2] == [([], 0.0)]
    assert [pairs[0][0] for pairs in best] == crf.predict(X)
    for x, pairs in zip(X, best, strict=True):
        for labels, log_proba in pairs:
            assert type(labels) is list and type(log_proba) is float
            assert log_proba == pytest.approx(crf.log_proba([x], [labels])[0], abs=1e-12)
        assert [p for _, p in pairs] == sorted((p for _, p in pairs), reverse=True)
    every = crf.predict_kbest(X[:1], 10**15)[0]
    assert len(every) == 2**3 and sum(np.exp([p for _, p in every])) == pytest.approx(1.0)
    assert len(crf.predict_kbest([X[0] * 4])[0]) == 10
    assert crf.predict_kbest([], 3) == []
    assert crf.predict_kbest([[]], 3) == [[([], 0.0)]]


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None, float("nan"), True, 10**30])
def test_a_bad_k_is_named(crf, k):
    with pytest.raises(ValueError, match="^k: expected an integer >= 1"):
        crf.predict_kbest(X, k)


def test_constraints_of_a_model_hold():
    allowed = np.array([[True, True], [False, True]])  # no A behind B
    model = CRF(c2=0.1, constraints={"allowed": allowed}).fit(X[1:], [["B"], [], ["A", "B"]])
    (best,) = model.predict_kbest(X[:1], 100)
    want = [["A", "A", "A"], ["A", "A", "B"], ["A", "B", "B"], ["B", "B", "B"]]
    assert sorted(labels for labels, _ in best) == want
    assert sum(np.exp([p for _, p in best])) == pytest.approx(1.0)


def test_no_labelling_allowed():
    corpus, features, w = case("plain")
    nothing = constraints_for(corpus, features.n_labels)
    nothing.start[:] = False
    with pytest.raises(ValueError, match="^sequence 0: expected a path of finite score, but the constraints"):
        kbest(corpus, features, w, nothing, 3)


def test_node_scores_that_exceed_float64():
    model = CRF(c2=0.1, all_possible_states=True).fit([[{"a": 1, "b": 1}, {"b": 1}]], [["A", "B"]])
    model.weights_ = np.full_like(model.weights_, 1e308)
    with pytest.raises(ValueError, match="^sequence 0, token 0: expected scores within float64"):
        model.predict_kbest([[{"a": 10.0}]])
