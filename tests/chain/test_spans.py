"""Probabilities of spans: enumeration, pairs of labels, and many labels."""

import itertools

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import problem

from crfbook import CRF, Tagger, brute
from crfbook.chain import inference
from crfbook.evaluation import SCHEMES, chunks

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
        ((0, 0, 1, ["X"]), "expected a type that the model has labels for, got .'X'.$"),
        ((0, "0", 1, "X"), "span 0: expected .sequence, first token, .* got .0, '0', 1, 'X'.$"),
        ((0, 0.0, 1.0, "X"), "three integers and a string, got .0, 0.0, 1.0, 'X'.$"),
        ((0, ["B-X"]), "three integers and a string, got .0, .'B-X'..$"),
        ((0, 0, 1, 2, "X"), "three integers and a string, got .0, 0, 1, 2, 'X'.$"),
    ):
        with pytest.raises(ValueError, match=said):
            model.span_log_proba(X, [span], scheme="BIO")
    with pytest.raises(ValueError, match="scheme: expected BIO, .* or labels of one, got 'conlleval'"):
        model.span_log_proba(X, [], scheme="conlleval")
    for span, said in (
        ((0, 2, ["O", "O"]), "some of the 3 tokens of sequence 0, got 2 from token 2 on"),
        ((5, 0, ["O"]), "some of the 0 tokens of sequence 5"),
        ((0, 0, []), "got 0 from token 0 on"),
        ((0, 0, ["B-Y"]), "expected labels of the model, got 'B-Y'"),
    ):
        with pytest.raises(ValueError, match=said):
            model.span_log_proba(X, [span])


def free_model(name, scale):
    """A CRF of a scheme's labels with random weights, without constraints; and a sentence of three tokens."""
    names = ["O", *(f"{tag}-{kind}" for tag in SCHEMES[name].tags for kind in "XY")]
    model = CRF(max_iterations=1, all_possible_states=True, all_possible_transitions=True)
    model.fit([[[word] for word in "abcabcabc"[: len(names)]]], [names])
    model.weights_[:] = np.random.default_rng(0).normal(scale=scale, size=len(model.weights_))
    return model, [["a"], ["b"], ["c"]]


def by_enumeration(model, x, name, chunk):
    """log p of a chunk: the sum over all labellings that `chunks` reads strictly as having it."""
    corpus = model.encoder_.transform([x])
    ((node, table, classes),) = chains_of(corpus, model.features_, model.weights_)
    paths, scores = brute.all_scores(node, table, classes)
    rows = [[model.classes_[y] for y in path] for path in paths]
    having = [s for row, s in zip(rows, scores, strict=True) if chunk in chunks(row, name, strict=True)]
    return np.logaddexp.reduce(having) - np.logaddexp.reduce(scores)


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("name", ["BIO", "IO", "BIOES", "BILOU"])
def test_chunks_by_enumeration(name, scale):
    """Also improbable ones, and of a model without constraints; one by one and by the way of a corpus."""
    model, x = free_model(name, scale)
    places = [(a, b, kind) for a, b in itertools.combinations(range(4), 2) for kind in "XY"]
    spans = [(0, *place) for place in places]
    want = [by_enumeration(model, x, name, (kind, a, b)) for a, b, kind in places]
    assert scale == 1.0 or min(want) < np.log(1e-40)
    for X in ([x], [x] * 70):
        found = model.span_log_proba(X, spans, scheme=name)
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def test_chunks_of_iob1_by_enumeration():
    """Its strict reading in `chunks` has gaps: the sums of the docstring of chunk_patterns instead."""
    model, x = free_model("IOB1", 2.0)
    (found,) = model.span_log_proba([x], [(0, 1, 2, "X")], scheme="IOB1")
    corpus = model.encoder_.transform([x])
    paths, p = brute.path_probabilities(*next(chains_of(corpus, model.features_, model.weights_)))
    rows = [[model.classes_[y] for y in path] for path in paths]
    own = "B-X", "I-X"
    want = sum(
        share
        for (y, here, x), share in zip(rows, p, strict=True)
        if x != "I-X" and here == ("B-X" if y in own else "I-X")
    )
    assert found == pytest.approx(np.log(want), rel=1e-12)


def test_an_improbable_chunk_is_no_difference():
    """p(B-X) and p(B-X I-X) have sixteen digits in common: what is left is below 1e-40."""
    model, x = free_model("BIO", 0.0)
    y = {label: i for i, label in enumerate(model.classes_)}
    model.weights_[model.features_.n_node + y["B-X"] * len(y) + y["I-X"]] = 100.0
    (found,) = model.span_log_proba([x], [(0, 1, 2, "X")], scheme="BIO")
    assert found == pytest.approx(by_enumeration(model, x, "BIO", ("X", 1, 2)), rel=1e-12)
    assert -np.inf < found < np.log(1e-40)


@pytest.mark.parametrize("n_sentences", [1, 70])
def test_a_known_type_without_a_label_that_the_chunk_needs(n_sentences):
    X = [[["a"], ["b"], ["c"]]]
    model = CRF(max_iterations=2).fit(X, [["S-X", "B-Y", "E-Y"]])
    spans = [(0, 0, 2, "X"), (0, 0, 1, "Y"), (0, 0, 1, "X")]
    found = model.span_log_proba(X * n_sentences, spans, scheme="IOBES")
    assert found[:2].tolist() == [-np.inf, -np.inf] and np.isfinite(found[2])
    with pytest.raises(ValueError, match="span 0: expected a type that the model has labels for, got 'Z'"):
        model.span_log_proba(X, [(0, 0, 1, "Z")], scheme="IOBES")


def test_several_labels_at_a_token():
    corpus, features, w, constraints = problem(1, constrained=True)
    chains = list(chains_of(corpus, features, w, constraints))
    s = next(i for i, chain in enumerate(chains) if len(chain[0]) > 2)
    node, table, classes = chains[s]
    sets = constraints.label_sets[corpus.label_set[slice(*corpus.seq_ptr[s : s + 2])]]
    paths, p = brute.path_probabilities(np.where(sets, node, -np.inf), table, classes)
    every = list(range(features.n_labels))
    spans = [(s, 0, [every[1:], 0, every]), (s, 1, [every[:2], every[1:]]), (s, 2, [every])]
    found = inference.span_log_proba(corpus, features, w, spans, constraints)
    for (_, first, labels), log_p in zip(spans, found, strict=True):
        inside = [np.isin(paths[:, t], ids) for t, ids in enumerate(labels, first)]
        assert np.exp(log_p) == pytest.approx(p[np.all(inside, axis=0)].sum(), abs=1e-12)
