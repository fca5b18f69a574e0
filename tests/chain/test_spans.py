"""Probabilities of spans: enumeration, pairs of labels, and many labels."""

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import problem

from crfbook import CRF, Tagger, brute
from crfbook.chain import inference

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_spans_by_enumeration(seed, constrained):
    corpus, features, w, constraints = problem(seed, constrained=constrained)
    rng, spans, want = np.random.default_rng(seed), [], []
    for s, (node, table, classes) in enumerate(chains_of(corpus, features, w, constraints)):
        if not len(node):
            continue
        if constrained:
            tokens = slice(corpus.seq_ptr[s], corpus.seq_ptr[s + 1])
            node = np.where(constraints.label_sets[corpus.label_set[tokens]], node, -np.inf)
        paths, p = brute.path_probabilities(node, table, classes)
        for _ in range(4):
            first = int(rng.integers(len(node)))
            labels = rng.integers(features.n_labels, size=rng.integers(1, len(node) - first + 1)).tolist()
            spans.append((s, first, labels))
            want.append(p[(paths[:, first : first + len(labels)] == labels).all(axis=1)].sum())
    found = inference.span_log_proba(corpus, features, w, spans, constraints)
    np.testing.assert_allclose(np.exp(found), want, atol=1e-12)
    assert not constrained or np.isneginf(found).any()


def test_pairs_of_many_labels_are_edge_marginals():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, tuple(rng.integers(2, 9, 60)), 120, 40)
    features, w = random_model(rng, corpus, 120, 40)
    edges = list(inference.iter_edge_marginals(corpus, features, w))
    spans = [(s, t, rng.integers(120, size=2).tolist()) for s in range(60) for t in range(len(edges[s]))]
    found = inference.span_log_proba(corpus, features, w, spans)
    want = [edges[s][(t, *labels)] for s, t, labels in spans]
    np.testing.assert_allclose(np.exp(found), want, rtol=1e-8, atol=1e-14)


def test_a_crf_says_how_sure_it_is_of_an_entity():
    X = [[["the"], ["old"], ["man"]], [["a"], ["man"]]]
    y = [["O", "B-X", "I-X"], ["O", "B-X"]]
    model = CRF(constraints="BIO").fit(X, y)
    found = np.exp(model.span_log_proba(X, [(0, 1, ["B-X", "I-X"]), (0, 0, y[0]), (1, 0, ["O", "I-X"])]))
    assert found[0] >= found[1] > 0.0 and found[2] == 0.0
    assert found[1] == pytest.approx(np.exp(model.log_proba(X, y)[0]), rel=1e-9)
    assert len(model.span_log_proba(X, [])) == 0
    by_type = np.exp(model.span_log_proba(X, [(0, 1, 3, "X"), (0, 1, 2, "X"), (1, 0, 1, "X")], scheme="BIO"))
    p = np.exp(model.span_log_proba(X, [(0, 1, ["B-X"]), (1, 0, ["B-X"]), (1, 0, ["B-X", "I-X"])]))
    np.testing.assert_allclose(by_type, [found[0], p[0] - found[0], p[1] - p[2]], atol=1e-12)
    assert model.span_log_proba(X, [], scheme="auto").shape == (0,)
    alone = Tagger(model).span_log_proba(X[0], [(1, 3, "X"), (1, 2, "X")], scheme="BIO")
    np.testing.assert_allclose(np.exp(alone), by_type[:2], atol=1e-12)
    with pytest.raises(ValueError, match="scheme='BILOU': expected labels .* got"):
        CRF().fit(X, [["O", "B-X", "E-X"], ["O", "O"]]).span_log_proba(X, [(0, 1, 3, "X")], scheme="BILOU")
    for span, said in (
        ((0, 2, 4, "X"), "some of the 3 tokens of sequence 0, got 2:4"),
        ((0, 2, 2, "X"), "got 2:2"),
        ((2, 0, 1, "X"), "some of the 0 tokens of sequence 2"),
        ((0, 0, 1, "Y"), "expected a type that the model has labels for, got 'Y'"),
    ):
        with pytest.raises(ValueError, match=said):
            model.span_log_proba(X, [span], scheme="BIO")
    for span, said in (
        ((0, 2, ["O", "O"]), "some of the 3 tokens of sequence 0, got 2 from token 2 on"),
        ((5, 0, ["O"]), "some of the 0 tokens of sequence 5"),
        ((0, 0, []), "got 0 from token 0 on"),
        ((0, 0, ["B-Y"]), "expected labels of the model, got 'B-Y'"),
    ):
        with pytest.raises(ValueError, match=said):
            model.span_log_proba(X, [span])
