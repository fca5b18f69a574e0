"""Elimination and junction trees against the sum over all joint labellings, by way of what users call."""

import numpy as np
import pytest
from helpers.dynamic import GENERAL, TEMPLATES, dynamic_problem, enumerate_sequence, row_marginals
from helpers.problems import central_differences

from crfbook.dynamic.inference import DynamicModel, decode, kbest, marginals
from crfbook.dynamic.layout import dynamic_features
from crfbook.dynamic.objective import DynamicObjective

pytestmark = pytest.mark.kernels
ENGINES = [(name, engine) for name in TEMPLATES for engine in ("elimination", "junction")]
ENGINES += [(name, "junction") for name in GENERAL]
engines = pytest.mark.parametrize(("name", "engine"), ENGINES)


def model_of(problem, engine):
    return DynamicModel(problem.layout, problem.features, problem.w, engine)


@engines
@pytest.mark.parametrize("constrained", [False, True])
def test_marginals_and_log_z(name, engine, constrained):
    problem = dynamic_problem(name, constrained=constrained)
    p, log_z = marginals(problem.corpus, model_of(problem, engine))
    for i in np.flatnonzero(problem.corpus.lengths):
        tokens = slice(problem.corpus.seq_ptr[i], problem.corpus.seq_ptr[i + 1])
        assert log_z[i] == pytest.approx(enumerate_sequence(problem, i).log_z, rel=1e-12)
        np.testing.assert_allclose(p[tokens], row_marginals(problem, i), atol=1e-12)


@engines
@pytest.mark.parametrize("constrained", [False, True])
def test_best_labellings(name, engine, constrained):
    problem = dynamic_problem(name, seed=1, constrained=constrained)
    path, score = decode(problem.corpus, model_of(problem, engine))
    ranked = kbest(problem.corpus, model_of(problem, engine), 7)
    for i in range(problem.corpus.n_sequences):
        tokens = slice(problem.corpus.seq_ptr[i], problem.corpus.seq_ptr[i + 1])
        want = enumerate_sequence(problem, i)
        np.testing.assert_array_equal(path[tokens].reshape(-1), want.path)
        assert score[i] == pytest.approx(want.score, abs=1e-11)
        best = np.argsort(-want.scores)[: min(7, np.count_nonzero(want.scores > -np.inf))]
        assert [score for _, score in ranked[i]] == pytest.approx(want.scores[best], abs=1e-11)
        assert [labels.reshape(-1).tolist() for labels, _ in ranked[i]] == want.paths[best].tolist()


@engines
@pytest.mark.parametrize("kind", [{}, {"valued": True, "weighted": True}])
def test_value_and_gradient(name, engine, kind):
    problem = dynamic_problem(name, seed=2, **kind)
    corpus, labels, layout, features, w = problem
    objective = DynamicObjective(corpus, labels, layout, features, c2=0.1, engine=engine)
    value, grad = objective(w)
    want = 0.1 * w @ w
    for i in range(corpus.n_sequences):
        one = enumerate_sequence(problem, i)
        gold = labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]].reshape(-1)
        want += corpus.weights[i] * (one.log_z - one.scores[(one.paths == gold).all(axis=1)][0])
    assert value == pytest.approx(want, rel=1e-12) and objective.is_convex
    np.testing.assert_allclose(grad, central_differences(lambda v: objective(v)[0], w), atol=2e-8)


@engines
def test_partly_known_labels(name, engine):
    problem = dynamic_problem(name, seed=3)
    corpus, labels, layout, features, w = problem
    rng = np.random.default_rng(3)
    known = np.where(rng.random(labels.shape) < 0.4, np.int32(-1), labels)
    known[corpus.seq_ptr[2] : corpus.seq_ptr[3]] = labels[corpus.seq_ptr[2] : corpus.seq_ptr[3]]
    objective = DynamicObjective(corpus, known, layout, features, c2=0.1, engine=engine)
    value, grad = objective(w)
    each = [
        enumerate_sequence(problem, i).log_z
        - enumerate_sequence(problem, i, known[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]).log_z
        for i in range(corpus.n_sequences)
    ]
    assert value == pytest.approx(sum(each) + 0.1 * w @ w, rel=1e-11) and not objective.is_convex
    np.testing.assert_allclose(grad, central_differences(lambda v: objective(v)[0], w), atol=2e-8)
    model = model_of(problem, engine)
    share = marginals(corpus, model, known, rows=False)[1] - marginals(corpus, model, rows=False)[1]
    np.testing.assert_allclose(share, -np.array(each), atol=1e-11)


def test_rare_weights_do_not_exist():
    """Those that occur as often as min_freq asks for do; occurrences have their sequences' weights."""
    corpus, labels, layout, features, _ = dynamic_problem("pairs of the text", seed=2)
    corpus = corpus._replace(seq_weight=np.full(corpus.n_sequences, 0.5))
    found = {}
    for t in range(corpus.n_tokens):
        cells = [layout.first[chain] + labels[t, chain] for chain in (0, 1)]
        for table in layout.tables:
            if len(table.at) > 1 and table.row >= 0:
                (d, a), (_, b) = table.at
                if corpus.position[t] >= table.span:
                    cells += [table.row + labels[t - table.span + d, a] * layout.sizes[b] + labels[t, b]]
        for k in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
            for cell in cells:
                key = int(corpus.attr_idx[k] * layout.n_cells + cell)
                found[key] = found.get(key, 0.0) + 0.5
    for least in (0, 0.5, 1.0, 1.5):
        kept = dynamic_features(layout, corpus, labels, 5, least).node_keys.tolist()
        assert kept == sorted(key for key, count in found.items() if count >= least)
    assert 0 < len(kept) < features.n_node


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("size", [30.0, 200.0, 1e3])
def test_large_scores(name, size):
    """Where scaled tables would lose digits, the sentence goes to the junction tree."""
    problem = dynamic_problem(name, seed=4, size=size)
    corpus, labels, layout, features, w = problem
    p, log_z = marginals(corpus, model_of(problem, "elimination"))
    for i in np.flatnonzero(corpus.lengths):
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        assert log_z[i] == pytest.approx(enumerate_sequence(problem, i).log_z, rel=1e-12)
        np.testing.assert_allclose(p[tokens], row_marginals(problem, i), atol=1e-9)
    values = [
        DynamicObjective(corpus, labels, layout, features, engine=e)(w) for e in ("elimination", "junction")
    ]
    assert values[0][0] == pytest.approx(values[1][0], rel=1e-10, abs=1e-6)
    np.testing.assert_allclose(values[0][1], values[1][1], atol=1e-8)
