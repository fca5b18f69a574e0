"""`CRF.predict_spans`, `sample`, `entropy` and posterior decoding, against listings of all labellings."""

import doctest

import numpy as np
import pytest
from helpers.chains import random_chain
from helpers.corpora import chains_of
from helpers.problems import problem

from crfbook import CRF, brute
from crfbook.chain import inference
from crfbook.chain.sparse.choice import never_tiny
from crfbook.evaluation import SCHEMES, chunks
from crfbook.models.prediction import Span

WORDS = "abcde"
LABELS = {
    "BIO": ["B-X", "B-Y", "I-X", "I-Y", "O"],
    "IOB1": ["B-X", "I-X", "I-Y", "O"],
    "BIOES": ["B-X", "E-X", "I-X", "O", "S-X"],
}


def random_crf(scheme, seed, size=2.0):
    """A constrained CRF with random weights on all pairs."""
    rng, labels = np.random.default_rng(seed), LABELS[scheme]
    model = CRF(constraints=scheme, all_possible_states=True, all_possible_transitions=True, max_iterations=0)
    model.fit([[[word] for word in WORDS], [], [["a"]]], [["O"] * 5, [], [{*labels}]])
    model.weights_ = rng.normal(scale=size, size=len(model.weights_))
    X = [[[word] for word in rng.choice(list(WORDS), n)] for n in rng.integers(0, 5, 3)]
    return model, X


def listed(model, X):
    """[(paths, p, labellings)] of each sequence, those of probability 0 left out; empty ones: None."""
    corpus = model.encoder_.transform(X)
    for chain in chains_of(corpus, model.features_, model.weights_, model.constraints_):
        if not len(chain[0]):
            yield None
            continue
        paths, p = brute.path_probabilities(*chain)
        paths, p = paths[p > 0], p[p > 0]
        yield paths, p, [[model.classes_[y] for y in path] for path in paths]


@pytest.mark.parametrize("scheme", LABELS)
@pytest.mark.parametrize("seed", range(12))
def test_spans_entropy_and_samples_by_enumeration(scheme, seed):
    model, X = random_crf(scheme, seed)
    spans, best = model.predict_spans(X, "all", least=1e-9), model.predict_spans(X)
    by_log = [(i, s.start, s.stop, s.type) for i, row in enumerate(best) for s in row]
    p_best = np.exp(model.span_log_proba(X, by_log, scheme=scheme))
    np.testing.assert_allclose([s.probability for row in best for s in row], p_best, rtol=1e-9, atol=1e-12)
    entropy, tokens, samples = model.entropy(X), model.token_entropy(X), model.sample(X, 30, seed)
    predicted = model.predict(X)
    for i, case in enumerate(listed(model, X)):
        if case is None:
            assert (spans[i], best[i], samples[i], entropy[i], len(tokens[i])) == ([], [], [[]] * 30, 0.0, 0)
            continue
        _, p, rows = case
        wanted = {}
        for row, q in zip(rows, p.tolist(), strict=True):
            for chunk in chunks(row, scheme, strict=True):
                wanted[chunk] = wanted.get(chunk, 0.0) + q
        found = {span[:3]: span.probability for span in spans[i]}
        assert found == pytest.approx({c: q for c, q in wanted.items() if q >= 1e-9}, rel=1e-9, abs=1e-12)
        assert [span[:3] for span in best[i]] == chunks(predicted[i], scheme, strict=True)
        assert entropy[i] == pytest.approx(-np.sum(p * np.log(p)), abs=1e-10)
        assert tokens[i].sum() >= entropy[i] - 1e-10 and all(row in rows for row in samples[i])


@pytest.mark.kernels
def test_kernels_say_what_numpy_says():
    model, X = random_crf("BIO", 3)
    with never_tiny():
        spans, entropy = model.predict_spans(X, "all"), model.entropy(X)
        samples, best = model.sample(X, 5, 0), model.predict(X, "posterior")
    np.testing.assert_allclose(entropy, model.entropy(X), atol=1e-10)
    assert samples == model.sample(X, 5, 0) and best == model.predict(X, "posterior")
    for ours, theirs in zip(spans, model.predict_spans(X, "all"), strict=True):
        assert [span[:3] for span in ours] == [span[:3] for span in theirs]
        np.testing.assert_allclose([s[3] for s in ours], [s[3] for s in theirs], atol=1e-12)


@pytest.mark.parametrize("scheme", LABELS)
@pytest.mark.parametrize("seed", range(8))
def test_expected_f1_by_listing(scheme, seed):
    model, X = random_crf(scheme, seed, 1.0)
    X = [x[:2] for x in X]
    spans = [{span[:3]: span[3] for span in row} for row in model.predict_spans(X, "all", least=1e-12)]
    chosen = model.predict_spans(X, "expected-f1")
    total, n = sum(s.probability for row in chosen for s in row), sum(map(len, chosen))
    expected = sum(p for row in spans for p in row.values())
    value = 2 * total / (n + expected) if n else 0.0
    assert value == pytest.approx(brute.best_expected_f1(spans), abs=1e-10)


def test_all_spans_count_as_expected_whatever_is_listed():
    """`least` says which spans "all" lists; what expected F1 divides by knows those below, too."""
    chosen_few = 0
    for seed in range(8):
        model, X = random_crf("BIO", seed, 1.0)
        long, X = [sum(X, [])], [x[:2] for x in X]
        for text in (long, X):  # in the long one chunks of three tokens and more are expected, too
            chosen = model.predict_spans(text, "expected-f1", least=0.9)
            assert chosen == model.predict_spans(text, "expected-f1", least=1e-12)
        every = model.predict_spans(X, "all", least=1e-12)
        expected = sum(span.probability for row in every for span in row)
        wanted = brute.best_expected_f1([{span[:3]: span[3] for span in row} for row in every])
        total, n = sum(s.probability for row in chosen for s in row), sum(map(len, chosen))
        assert 2 * total / (n + expected) == pytest.approx(wanted, abs=1e-10)
        assert model.predict_spans(X, "all", least=0.3) == [[s for s in row if s[3] >= 0.3] for row in every]
        chosen_few += any(span.probability < 0.9 for row in chosen for span in row)
    assert chosen_few > 4


def test_spans_are_listed_down_to_any_probability():
    model = CRF(max_iterations=0, all_possible_states=True, all_possible_transitions=True)
    model.fit([[["a"], ["a"], ["a"]]], [["B-X", "I-X", "O"]])
    model.weights_ = np.zeros(len(model.weights_))
    model.weights_[:3] = [-30.0, -30.0, 0.0]  # B-X, I-X, O at 'a'
    (spans,) = model.predict_spans([[["a"]] * 3], "all", least=1e-50)
    assert [span[1:3] for span in spans] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for _, start, stop, p in spans:
        assert np.log(p) == pytest.approx(-30.0 * (stop - start), abs=1e-6)
    assert len(model.predict_spans([[["a"]] * 3], "all", least=1e-20)[0]) == 3


def test_posterior_decoding_by_listing():
    """Also where the most probable labels of the tokens make a labelling that the constraints forbid."""
    forbidden = 0
    for seed in range(60):
        model, X = random_crf("BIOES", seed, 0.7)
        found, marginals = model.predict(X, "posterior"), model.predict_marginals_array(X)
        for labels, p_node, case in zip(found, marginals, listed(model, X), strict=True):
            if case is not None:
                paths, _, rows = case
                right = p_node[np.arange(len(p_node)), paths].sum(axis=1)
                assert right[rows.index(labels)] == pytest.approx(right.max(), abs=1e-12)
                forbidden += p_node.max(axis=1).sum() > right.max() + 1e-9
    assert forbidden > 1


@pytest.mark.parametrize("name", SCHEMES)
def test_spans_without_constraints_are_those_of_span_log_proba(name):
    labels = ["O", *(f"{tag}-{kind}" for tag in SCHEMES[name].tags for kind in "XY")]
    model = CRF(max_iterations=0, all_possible_states=True, all_possible_transitions=True)
    model.fit([[[word] for word in "abcabcabc"[: len(labels)]]], [labels])
    model.weights_ = np.random.default_rng(0).normal(size=len(model.weights_))
    X = [[["a"], ["b"], ["c"], ["a"]]]
    places = [(0, a, b, kind) for a in range(4) for b in range(a + 1, 5) for kind in "XY"]
    wanted = np.exp(model.span_log_proba(X, places, scheme=name))
    (spans,) = model.predict_spans(X, "all", scheme=name, least=1e-12)
    found = {span[:3]: span.probability for span in spans}
    np.testing.assert_allclose([found[kind, a, b] for _, a, b, kind in places], wanted, rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_posterior_decoding_holds_to_label_sets(seed):
    corpus, features, w, constraints = problem(seed, constrained=True, lengths=(3, 0, 1, 4, 2))
    found = inference.decode_posterior(corpus, features, w, constraints)
    with never_tiny():
        assert np.array_equal(found, inference.decode_posterior(corpus, features, w, constraints))
    for i, (node, edge, classes) in enumerate(chains_of(corpus, features, w, constraints)):
        if len(node):
            tokens = slice(*corpus.seq_ptr[i : i + 2])
            sets = constraints.label_sets[corpus.label_set[tokens]]
            chain = np.where(sets, node, -np.inf), edge, classes
            paths, scores = brute.all_scores(*chain)
            value, _ = brute.most_right_tokens(*chain, paths[scores > -np.inf])
            p_node = brute.node_marginals(*chain)
            assert brute.path_score(*chain, found[tokens]) > -np.inf
            assert p_node[np.arange(len(node)), found[tokens]].sum() == pytest.approx(value, abs=1e-12)


def test_without_constraints_posterior_decoding_takes_the_largest_marginals():
    node, edge, _ = random_chain(np.random.default_rng(0), 4, 3)
    model = CRF(all_possible_states=True, all_possible_transitions=True, max_iterations=0)
    model.fit([[["a"], ["b"], ["c"], ["d"]]], [["x", "y", "z", "x"]])
    model.weights_ = np.concatenate([node.ravel(), edge.ravel()])
    X = [[["a"], ["b"], ["c"], ["d"]]]
    (rows,) = model.predict_marginals(X)
    assert model.predict(X, "posterior") == [[max(row, key=row.get) for row in rows]]


def test_scores_beyond_the_scaled_form():
    model, _ = random_crf("BIO", 0)
    X = [[["a"], ["b"], ["c"]]]
    model.weights_ *= 1e9
    assert model.entropy(X)[0] == 0.0 and model.sample(X, 3, 0) == [model.predict(X) * 3]
    assert {round(span.probability, 9) for span in model.predict_spans(X)[0]} <= {1.0}


def test_the_examples_of_help_are_true():
    found = doctest.DocTestFinder(recurse=False).find(CRF, "CRF", globs={"CRF": CRF})
    runner = doctest.DocTestRunner()
    assert runner.run(found[0]).failed == 0 and runner.tries > 8


def test_which_scheme_and_what_is_refused():
    X, y = [[["a"], ["b"]]], [["S-X", "O"]]
    by_labels, by_name = CRF().fit(X, y), CRF(constraints="IOBES").fit(X, y)
    for model in (by_labels, by_name):
        assert isinstance(model.predict_spans(X)[0][0], Span) and model.predict_spans(X)[0][0][:3] == (
            "X",
            0,
            1,
        )
    for ask, said in (
        (
            lambda: by_name.predict_spans(X, "best"),
            "decode: expected one of 'viterbi', 'expected-f1', 'all', got 'best'",
        ),
        (lambda: by_name.predict_spans(X, "all", least=0), "least: expected"),
        (lambda: by_name.predict_spans(X, scheme="BIO"), "expected labels 'O' or B-x, I-x"),
        (lambda: by_name.predict_spans(X, scheme="conll"), "scheme: expected 'BIO'"),
        (lambda: by_name.sample(X, 0), "n: expected"),
        (lambda: by_name.sample(X, 1, -1), "random_state: expected"),
        (lambda: CRF().fit(X, [["B-X", "E-X"]]).predict_spans(X, scheme="conlleval"), "scheme: expected"),
        (lambda: CRF(constraints="BIO").predict_spans(X), "not fitted"),
    ):
        with pytest.raises(ValueError, match=said):
            ask()
