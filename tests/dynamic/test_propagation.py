"""Belief propagation as a form, and as a decoder, against exact engines and against the graph itself."""

import numpy as np
import pytest
from helpers.dynamic import GENERAL, SKIPPING, TEMPLATES, dynamic_problem, factors_of
from helpers.graphs import phi_rows
from helpers.problems import central_differences

from crfbook.chain import inference as chain_inference
from crfbook.dynamic import inference
from crfbook.dynamic.graphs import by_sentence, factor_graph, layout_graph, rows_scores
from crfbook.dynamic.inference import DynamicModel, decode, marginals, max_product
from crfbook.dynamic.layout import known_sets
from crfbook.dynamic.loopy import OPTIONS, SCHEDULES, check_options, max_marginals, propagate
from crfbook.dynamic.objective import JointObjective, plain

pytestmark = pytest.mark.kernels
EXACT = [("one chain", False), ("one chain", True), ("independent", False), ("one chain of the text", True)]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def lattice(problem, n_threads=1, known=None, schedule="junction", **options):
    """sum_i weight_i log Z_i, by way of the form; `sequence` gives those of log_z."""
    corpus, _, layout, features, _ = problem
    sets = np.zeros((0, layout.n_cells), bool)
    corpus = plain(corpus)
    if known is not None:
        which, sets = known_sets(layout, known)
        corpus = corpus._replace(label_set=which)
    counts, how = np.zeros(features.n_features), OPTIONS._replace(**options)
    if schedule != "junction":
        how = how._replace(schedule=schedule)
    return JointObjective(corpus, features, layout, counts, sets, n_threads, 1 << 20, schedule, how)


def form_of(made):
    return made._made["batched"][0]


def graph_of(problem, i, w=None, links=None):
    """(graph, log_phi, log_tables, factors (table, token) of it) of sequence i, straight from B.1."""
    cards, scopes, tables, where = factors_of(problem, i, w)
    parts = [np.zeros(n) for n in cards]
    wide, flat, kept = [], [np.zeros(0)], []
    for scope, scores, place in zip(scopes, tables, where, strict=True):
        if len(scope) == 1:
            parts[scope[0]] = parts[scope[0]] + scores
        else:
            wide.append(scope)
            flat.append(scores)
            kept.append(place)
    graph = factor_graph(cards, wide)
    return graph, phi_rows(graph, parts), np.concatenate(flat), kept


@schedules
@pytest.mark.parametrize(("name", "constrained"), EXACT)
def test_trees_are_exact(name, schedule, constrained):
    problem = dynamic_problem(name, constrained=constrained, valued=True, weighted=True)
    exact = lattice(problem)
    found = lattice(problem, schedule=schedule, tol=1e-14)
    (value, grad), (other, slope) = exact(problem.w), found(problem.w)
    assert other == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(slope, grad, atol=1e-11)
    np.testing.assert_allclose(found.log_z, exact.log_z, rtol=1e-12)
    known = np.where(np.random.default_rng(0).random(problem.labels.shape) < 0.5, -1, problem.labels)
    exact, found = (
        lattice(problem, known=known, **more) for more in ({}, {"schedule": schedule, "tol": 1e-14})
    )
    np.testing.assert_allclose(found(problem.w)[1], exact(problem.w)[1], atol=1e-11)


@pytest.mark.parametrize("name", [*TEMPLATES, *GENERAL])
@pytest.mark.parametrize(("schedule", "size"), [("sweep", 0.5), ("tree", 0.5), ("sync", 300.0)])
def test_sentences_are_their_graphs(name, schedule, size):
    """log Z of each sentence, and the gradient at the fixed point, also of weights of the text."""
    problem = dynamic_problem(name, seed=3, size=size, weighted=True)
    most = 300 if size < 1.0 else 20  # sweeps of "sync" do not depend on orders: no need to converge
    found = lattice(problem, schedule=schedule, tol=1e-13, max_sweeps=most)
    value, grad = found(problem.w)
    counts, total = np.zeros(problem.features.n_edge), 0.0
    for slot, i in enumerate(found._packing.sequence):
        graph, log_phi, log_tables, where = graph_of(problem, i)
        one = propagate(graph, log_phi, log_tables, check_options(schedule, 1e-13, most))
        assert found.log_z[slot] == pytest.approx(one.log_z[0], rel=1e-10)
        weight, first = problem.corpus.weights[i], 0
        total += weight * one.log_z[0]
        for table, _ in where:
            part, first = one.p_table[first : first + table.size], first + table.size
            if table.start >= 0:
                counts[table.start : table.start + table.size] += weight * part
        m = len(problem.layout.sizes)
        for table in problem.layout.tables:
            if len(table.at) == 1 and table.start >= 0:
                p = one.p_var[table.at[0][1] :: m, : table.size].sum(axis=0)
                counts[table.start : table.start + table.size] += weight * p
    assert value == pytest.approx(total, rel=1e-10)
    np.testing.assert_allclose(grad[problem.features.n_node :], counts, atol=1e-8)
    if size < 1.0:
        differences = central_differences(lambda w: found(w)[0], problem.w)
        np.testing.assert_allclose(grad, differences, atol=1e-6)


@schedules
@pytest.mark.parametrize("name", SKIPPING)
def test_links(schedule, name):
    """Cliques join tokens that are far apart; double edges are there where linked tokens are neighbours."""
    problem = dynamic_problem(name, seed=5, lengths=(4, 1, 5, 0, 3, 5))
    corpus, _, layout, features, w = problem
    found = lattice(problem, schedule=schedule, tol=1e-13)
    value, grad = found(w)
    counts, total, m = np.zeros(features.n_edge), 0.0, len(layout.sizes)
    for slot, i in enumerate(found._packing.sequence):
        graph, log_phi, log_tables, where = graph_of(problem, i)
        one = propagate(graph, log_phi, log_tables, check_options("sync", 1e-14, 500, 0.2))
        assert found.log_z[slot] == pytest.approx(one.log_z[0], rel=1e-9)
        total, first = total + one.log_z[0], 0
        for table, _ in where:
            counts[table.start : table.start + table.size] += one.p_table[first : first + table.size]
            first += table.size
        for table in layout.tables:
            if len(table.at) == 1 and table.start >= 0:
                p = one.p_var[table.at[0][1] :: m, : table.size].sum(axis=0)
                counts[table.start : table.start + table.size] += p
    assert value == pytest.approx(total, rel=1e-9)
    np.testing.assert_allclose(grad[features.n_node :], counts, atol=1e-8)
    linked = next(table for table in layout.tables if table.linked)
    assert counts[linked.start : linked.start + linked.size].sum() == pytest.approx(len(corpus.linked))
    model = DynamicModel(layout, features, w, schedule, options=check_options(schedule, 1e-12, 200))
    path, score, converged = max_product(corpus, model, schedule=schedule)
    for i in np.flatnonzero(converged):
        graph, log_phi, log_tables, _ = graph_of(problem, i)
        best = max_marginals(graph, log_phi, log_tables, check_options("sync", 1e-12, 200, 0.2))
        if best.converged[0]:
            own = path[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]].reshape(-1)
            np.testing.assert_array_equal(own, best.labels)
            assert score[i] == pytest.approx(best.score[0], rel=1e-12)


@schedules
def test_threads_change_nothing(schedule):
    """Bit for bit, statistics included; another seed is another order."""
    problem = dynamic_problem("two chains", seed=7, lengths=(3, 2, 3) * 140)
    made = [lattice(problem, n, schedule=schedule, seed=s) for n, s in ((1, 0), (2, 0), (2, 1))]
    (a, x), (b, y), (_, z) = (one(problem.w) for one in made)
    assert a == b and np.array_equal(x, y)
    one, two, _ = (form_of(each).stats.copy() for each in made)
    assert len(one) > 1 and np.array_equal(one, two)
    assert np.array_equal(y, z) == (schedule not in ("random", "tree"))
    assert made[0](problem.w)[0] == a
    np.testing.assert_array_equal(form_of(made[0]).stats, one)


@pytest.mark.parametrize("schedule", ["sync", "sweep", "residual"])
@pytest.mark.parametrize("size", [1.0, 300.0, "mixed"])
def test_a_sentence_does_not_see_its_neighbours(schedule, size):
    """Bit for bit, though others in its batch need more sweeps; also in logarithms, all or some."""
    layout = dynamic_problem("three, skew").layout
    rng, lengths = np.random.default_rng(0), np.array([6, 6, 5, 3, 1])
    step_ptr = np.concatenate([[0], np.cumsum([(lengths > t).sum() for t in range(6)])])
    some = (
        np.where(np.arange(len(lengths)) % 2, 400.0, 1.0) if size == "mixed" else np.full(len(lengths), size)
    )
    scores = [rng.normal(0.0, some.min(), table.shape) for table in layout.tables]
    log_node = rng.normal(0.0, 1.0, (step_ptr[-1], layout.n_cells))
    for n, here in zip(step_ptr[:-1], np.diff(step_ptr), strict=True):
        log_node[n : n + here] *= some[:here, None]
    options, n_messages = check_options(schedule, 1e-5, 40), 0
    rows = layout_graph(layout, by_sentence(step_ptr), len(lengths))
    found = propagate(rows.graph, *rows_scores(layout, rows, scores, log_node), options)
    assert found.sweeps.min() < found.sweeps.max()
    for i, n in enumerate(lengths):
        alone = layout_graph(layout, by_sentence(np.arange(n + 1)), 1)
        own = rows_scores(layout, alone, scores, log_node[step_ptr[:n] + i])
        one = propagate(alone.graph, *own, options)
        assert (one.sweeps[0], one.converged[0]) == (found.sweeps[i], found.converged[i])
        np.testing.assert_array_equal(one.p_var, found.p_var[rows.graph.component == i])
        assert one.log_z[0] == found.log_z[i]
        n_messages += one.n_messages
    assert found.n_messages == n_messages


@pytest.mark.parametrize("name", ["two chains", *SKIPPING])
def test_stretches_of_sequences_change_nothing(name, monkeypatch):
    """Marginals, statistics and labels of one sentence at a time are those of all at once; so are links."""
    corpus, _, layout, features, w = dynamic_problem(name, seed=5, lengths=(4, 1, 5, 0, 3, 5))
    model = DynamicModel(layout, features, w, "sweep", options=check_options("sweep", 1e-12, 300))
    found = []
    for alone in (False, True):
        if alone:
            ends = corpus.seq_ptr.tolist()
            pieces = [(slice(i, i + 1), slice(*ends[i : i + 2])) for i in range(corpus.n_sequences)]
            for module in (inference, chain_inference):
                monkeypatch.setattr(module, "stretches", lambda *of, pieces=pieces: pieces)
        stats = np.zeros(4, np.int64)
        found.append((*marginals(corpus, model, stats=stats), stats, *max_product(corpus, model)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[0][2][0] == 5


@schedules
def test_statistics(schedule):
    """Sequences, those that failed, sweeps, messages."""
    problem = dynamic_problem("two chains", seed=8, size=0.3)
    n = np.count_nonzero(problem.corpus.lengths)
    made = lattice(problem, schedule=schedule)
    made(problem.w)
    sequences, failed, sweeps, messages = form_of(made).stats.sum(axis=0)
    assert (sequences, failed) == (n, 0) and n <= sweeps < 20 * n and messages > 2 * problem.corpus.n_tokens
    made = lattice(problem, schedule=schedule, max_sweeps=0)
    assert np.isfinite(made(problem.w)[1]).all()
    single = np.count_nonzero(problem.corpus.lengths == 0)
    assert form_of(made).stats.sum(axis=0).tolist() == [n, n, 0, 0] and single


@schedules
@pytest.mark.parametrize(("name", "constrained"), EXACT)
def test_max_product_of_trees(name, schedule, constrained):
    problem = dynamic_problem(name, seed=9, constrained=constrained)
    options = check_options(schedule, 1e-12)
    model = DynamicModel(problem.layout, problem.features, problem.w, "junction", options=options)
    for known in (
        None,
        np.where(np.arange(problem.corpus.n_tokens)[:, None] % 3, np.int32(-1), problem.labels),
    ):
        path, score, converged = max_product(problem.corpus, model, known, 2, schedule)
        want, best = decode(problem.corpus, model, known)
        assert converged.all() and path.dtype == np.int32
        np.testing.assert_array_equal(path, want)
        np.testing.assert_allclose(score, best, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*TEMPLATES, *GENERAL])
def test_max_product_never_beats_the_best(name):
    problem = dynamic_problem(name, seed=10)
    options = check_options("sweep", 1e-3, 50)
    model = DynamicModel(problem.layout, problem.features, problem.w, "junction", options=options)
    path, score, _ = max_product(problem.corpus, model)
    want, best = decode(problem.corpus, model)
    assert (score <= best + 1e-9).all()
    same = (path == want).all(axis=1)
    for i in range(problem.corpus.n_sequences):
        if same[problem.corpus.seq_ptr[i] : problem.corpus.seq_ptr[i + 1]].all():
            assert score[i] == pytest.approx(best[i], abs=1e-9)
