"""The k best joint labellings: enumeration, ties, where all are forbidden, and what they cost."""

import numpy as np
import pytest
from helpers.dynamic import GENERAL, TEMPLATES, dynamic_problem, enumerate_sequence

from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.dynamic import inference
from crfbook.dynamic.inference import DynamicModel, decode, kbest, marginals
from crfbook.dynamic.layout import dynamic_features, lay_out_template
from crfbook.dynamic.templates import factorial

pytestmark = pytest.mark.kernels


def listed(found):
    return [(labels.tolist(), score) for labels, score in found]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_all_labellings_by_elimination(name, constrained, ties):
    """Each possible one once, with its score, best first. With weights 0 and 1 many are equally good."""
    problem = dynamic_problem(name, seed=5, lengths=(3, 1, 2, 0), constrained=constrained)
    if ties:
        problem = problem._replace(w=(problem.w > 0.5).astype(float))
    model = DynamicModel(problem.layout, problem.features, problem.w, "elimination")
    every, some = (kbest(problem.corpus, model, k) for k in (2000, 5))  # of at most 12^3
    for i, (found, few) in enumerate(zip(every, some, strict=True)):
        one = enumerate_sequence(problem, i)
        want = {tuple(path): score for path, score in zip(one.paths.tolist(), one.scores, strict=True)}
        possible = np.sort(one.scores[one.scores > -np.inf])[::-1]
        assert [score for _, score in found] == pytest.approx(possible, abs=1e-11)
        paths = [tuple(labels.reshape(-1).tolist()) for labels, _ in found]
        assert len(set(paths)) == len(paths)
        assert [score for _, score in found] == pytest.approx([want[path] for path in paths], abs=1e-11)
        assert listed(few) == listed(found)[:5]


@pytest.mark.parametrize("name", ["two chains", *GENERAL])
def test_equally_good_labellings_by_junction_trees(name):
    problem = dynamic_problem(name, seed=5, lengths=(3, 1, 0), constrained=True)
    problem = problem._replace(w=(problem.w > 0.5).astype(float))
    model = DynamicModel(problem.layout, problem.features, problem.w, "junction")
    for i, found in enumerate(kbest(problem.corpus, model, 40)):
        want = np.sort(enumerate_sequence(problem, i).scores)[::-1]
        want = want[: min(40, np.count_nonzero(want > -np.inf))]
        assert [score for _, score in found] == pytest.approx(want, abs=1e-11)
        assert len({labels.tobytes() for labels, _ in found}) == len(found)


def long_problem(cliques, sizes, length, constraints=None, n_sequences=1):
    """(corpus, layout, features, w): no two tokens and no two labellings have the same score."""
    rng = np.random.default_rng(7)
    names = {chain: list(range(n)) for chain, n in zip("abc", sizes, strict=False)}
    layout = lay_out_template(cliques, tuple(names), names, constraints)
    n = length * n_sequences
    ends, values = np.arange(n_sequences + 1) * length, rng.normal(size=n)
    corpus = make_corpus(ends, np.arange(n + 1), rng.integers(0, 9, n), labels=None, attr_val=values)
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in sizes], axis=1).astype(np.int32)
    features = dynamic_features(layout, corpus, labels, 9)
    return corpus, layout, features, rng.normal(size=features.n_features)


@pytest.mark.parametrize("engine", ["elimination", "junction"])
def test_all_labellings_are_forbidden(engine):
    """No transition is allowed: one token has labellings, two have none."""
    limits = {"b": Constraints(np.zeros((3, 3), bool), np.array([True, False, True]), np.ones(3, bool))}
    for length, n in ((1, 4), (2, 0)):
        corpus, *parts = long_problem(factorial("a", "b", skew=True), (2, 3), length, limits)
        assert [len(found) for found in kbest(corpus, DynamicModel(*parts, engine), 9)] == [n]


def test_both_ways_and_what_they_decode(monkeypatch):
    """The same list. Elimination: one decoding, and at most T tokens looked at for each labelling. Junction
    trees: at most m T decodings for each labelling but the last.
    """
    length, k, m, calls = 60, 20, 2, {"chains_viterbi": [], "best_and_second": [], "sequence_best": []}
    corpus, *parts = long_problem(factorial("a", "b", skew=True), (4, 3), length)

    def counting(name):
        original = getattr(inference, name)

        def counted(*args):
            calls[name].append(args)
            return original(*args)

        monkeypatch.setattr(inference, name, counted)

    for name in calls:
        counting(name)
    (one,), (other,) = (kbest(corpus, DynamicModel(*parts, e), k) for e in ("elimination", "junction"))
    assert [labels.tolist() for labels, _ in one] == [labels.tolist() for labels, _ in other]
    assert [score for _, score in one] == pytest.approx([score for _, score in other], rel=1e-12)
    tokens = [len(second) for *_, second, _, _ in calls["best_and_second"]]
    assert len(calls["chains_viterbi"]) == 1 and len(tokens) == k == len(one)
    assert tokens[0] == length and max(tokens) <= length
    assert m * length < len(calls["sequence_best"]) <= 1 + (k - 1) * m * length


def test_scores_of_long_sentences():
    """Each score is that of its labelling, they fall, and the first one is Viterbi's."""
    length, k = 200, 50
    corpus, *parts = long_problem(factorial("a", "b", features="supported"), (13, 7), length, n_sequences=2)
    model = DynamicModel(*parts, "elimination")
    ranked, (path, best) = kbest(corpus, model, k, n_threads=2), decode(corpus, model)
    assert [found[0][1] for found in ranked] == best.tolist()
    np.testing.assert_array_equal(np.concatenate([found[0][0] for found in ranked]), path)
    for rank in (0, 1, k // 2, k - 1):
        known = np.concatenate([found[rank][0] for found in ranked])
        want = marginals(corpus, model, known, rows=False)[1]
        np.testing.assert_allclose([found[rank][1] for found in ranked], want, rtol=1e-12)
    for found in ranked:
        assert np.all(np.diff([score for _, score in found]) <= 0)
        assert len({labels.tobytes() for labels, _ in found}) == k
