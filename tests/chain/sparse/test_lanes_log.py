"""log Z in logarithms with a default and stored pairs, against the forms with tables and by enumeration."""

from decimal import MAX_EMAX, Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import CASES, case, constraints_for

from crfbook import brute
from crfbook.chain import inference
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.form import DefaultPairs
from crfbook.chain.sparse.lanes import default_log_sums
from crfbook.data.constraints import constraints_from

BIO = ["O", *(f"{p}-{i}" for i in range(18) for p in "BI")]


def model_of(corpus, features, w, constraints):
    """The model with its `DefaultEdges`, and scores (N, M)."""
    model = inference.ready_model(corpus, features, w, constraints, DefaultPairs.potentials, False)
    every = slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    return model, inference.stretch_scores(corpus, model, *every)


def log_z_of(corpus, features, w, constraints=None):
    (model, log_node), log_z = model_of(corpus, features, w, constraints), np.zeros(corpus.n_sequences)
    for i, (lo, hi) in enumerate(pairwise(corpus.seq_ptr)):
        if lo < hi:
            p_node, sums = np.empty_like(log_node[lo:hi]), DefaultPairs.batch.no_sums(model.edges)
            log_z[i] = default_log_sums(log_node[lo:hi], model.edges, 1.0, p_node, sums.count)
            again = default_log_sums(log_node[lo:hi], model.edges, 0.0, p_node, sums.count)
            np.testing.assert_equal(again, log_z[i])
    return log_z


@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 1000.0, 1e6])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", [name for name, kind in CASES.items() if "n_classes" not in kind])
def test_equals_enumeration(name, constrained, size):
    """Up to scores of a million, where sums of few labels are what is left of all."""
    for seed in range(3):
        corpus, features, w = case(name, seed)
        w *= size
        constraints = constraints_for(corpus, features.n_labels) if constrained else None
        want = [brute.log_z(*c) if len(c[0]) else 0.0 for c in chains_of(corpus, features, w, constraints)]
        np.testing.assert_allclose(log_z_of(corpus, features, w, constraints), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [0.3, 3.0, 100.0])
@pytest.mark.parametrize("shift", [0.0, -20.0, 20.0])
@pytest.mark.parametrize("scheme", [None, "BIO", "any"])
def test_many_labels(scheme, shift, size):
    """shift: nearly all of a sum is taken back, or nothing but stored pairs counts."""
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, tuple(rng.integers(0, 12, 30)), 37, 60)
    features, w = random_model(rng, corpus, 37, 60, size)
    w[features.n_node :] += shift
    allowed = rng.random((37, 37)) < 0.3
    np.fill_diagonal(allowed, True)
    constraints = constraints_from({"any": {"allowed": allowed}}.get(scheme, scheme), BIO)
    want = inference.log_partition(corpus, features, w, constraints, form="batched")
    np.testing.assert_allclose(log_z_of(corpus, features, w, constraints), want, rtol=1e-11, atol=1e-11)


def table_of(scores, n):
    """(n, n) [previous, next]: 0, the scores of stored pairs, -inf where forbidden; and their places."""
    table, cells = np.full((n, n), -np.inf), []
    for c, before in enumerate(scores.member):
        g = np.searchsorted(scores.member_ptr, c, side="right") - 1
        table[before, scores.label[scores.label_ptr[g] : scores.label_ptr[g + 1]]] = 0.0
    for c, before in enumerate(scores.member):
        row = slice(scores.row_ptr[c], scores.row_ptr[c + 1])
        table[before, scores.next_label[row]] = scores.score[row]
        cells += [(before, y) for y in scores.next_label[row]]
    return table, tuple(np.array(cells, int).reshape(-1, 2).T)


def exact_sums(log_node, table):
    """(log Z, p_node, p_edge summed over the sequence) with 60 decimal digits; table : (L, L)."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -MAX_EMAX, MAX_EMAX
        exp = np.frompyfunc(lambda x: Decimal(x).exp() if x > -np.inf else Decimal(0), 1, 1)
        psi, pairs = exp(log_node), exp(table)
        alpha, beta = [psi[0]], [np.full(len(table), Decimal(1))]
        for row in psi[1:]:
            alpha.append(alpha[-1] @ pairs * row)
        for row in psi[:0:-1]:
            beta.insert(0, pairs @ (row * beta[0]))
        z = alpha[-1].sum()
        steps = zip(alpha[:-1], psi[1:], beta[1:], strict=True)
        p_edge = sum((np.outer(a, row * b) * pairs / z for a, row, b in steps), np.zeros_like(pairs))
        p_node = [a * b / z for a, b in zip(alpha, beta, strict=True)]
        return float(z.ln()), np.array(p_node, float), np.array(p_edge, float)


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("shift", [0.0, -20.0, 20.0])
@pytest.mark.parametrize("constrained", [False, True])
def test_marginals_and_counts_are_those_of_exact_arithmetic(constrained, shift, size):
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, (1, 2, 5, 9), 7, 9)
    features, w = random_model(rng, corpus, 7, 9, size)
    w[features.n_node :] += shift
    constraints = constraints_from("BIO", BIO[:7]) if constrained else None
    model, log_node = model_of(corpus, features, w, constraints)
    table, cells = table_of(model.edges.scores, log_node.shape[1])
    for lo, hi in pairwise(corpus.seq_ptr):
        x, found, count = log_node[lo:hi], np.empty_like(log_node[lo:hi]), np.ones(len(cells[0]))
        log_z, p_node, p_edge = exact_sums(x, table)
        assert default_log_sums(x, model.edges, 2.0, found, count) == pytest.approx(log_z, rel=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 2.0, rtol=1e-14)
        rounding = 4e-16 * abs(x[np.isfinite(x)]).max() + 1e-13  # of sums of scores, in nats
        np.testing.assert_allclose(found, 2.0 * p_node, rtol=0, atol=10 * rounding)
        np.testing.assert_allclose(count - 1.0, 2.0 * p_edge[cells], rtol=0, atol=10 * rounding * (hi - lo))


@pytest.mark.parametrize("size", [1e6, 1e12, 1e16, 1e100, 1e300])
@pytest.mark.parametrize("scheme", [None, "BIO"])
def test_probabilities_are_such_however_large_the_scores_are(scheme, size):
    """Which of two labels is likelier may be lost in rounding; that they sum to one may not."""
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, (1, 6, 11), 7, 9)
    features, w = random_model(rng, corpus, 7, 9, 1.0)
    model, log_node = model_of(corpus, features, size * w, constraints_from(scheme, BIO[:7]))
    scores = model.edges.scores
    before = np.repeat(scores.member, np.diff(scores.row_ptr))
    for lo, hi in pairwise(corpus.seq_ptr):
        found, count = np.empty_like(log_node[lo:hi]), np.zeros(len(model.edges.gain))
        assert np.isfinite(default_log_sums(log_node[lo:hi], model.edges, 1.0, found, count))
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
        behind = np.bincount(before, count, minlength=found.shape[1])
        assert (behind <= found[:-1].sum(axis=0) + 1e-12).all()


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_the_gradient_is_that_of_the_form_with_tables(size):
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, (1, 5, 8, 0, 3), 7, 12)
    features, w = random_model(rng, corpus, 7, 12, 1.0)
    found, want = (Objective(corpus, features, form=form)(size * w) for form in ("default", "batched"))
    assert found[0] == pytest.approx(want[0], rel=1e-12)
    np.testing.assert_allclose(found[1], want[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("constrained", [False, True])
def test_scores_that_are_no_numbers_give_no_number(constrained, bad):
    corpus, features, w = case("plain")
    model, log_node = model_of(corpus, features, w, constraints_for(corpus, 3) if constrained else None)
    lo, hi = max(pairwise(corpus.seq_ptr), key=lambda ends: ends[1] - ends[0])
    for t in range(hi - lo):
        x, count = log_node[lo:hi].copy(), np.zeros(len(model.edges.gain))
        x[t, np.flatnonzero(np.isfinite(x[t]))[-1]] = bad
        found = np.empty_like(x)
        assert np.isnan(default_log_sums(x, model.edges, 1.0, found, count))
        assert not found.any() and not count.any()


def test_a_label_whose_successors_are_all_impossible_leaves_nothing_behind():
    """In mid-sequence: its own sum is 0, which nothing may be divided by."""
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, (6, 8), 5, 9)
    features, w = random_model(rng, corpus, 5, 9, 1.0, all_states=True, all_transitions=True)
    allowed = np.ones((5, 5), bool)
    allowed[0] = [False, True, True, False, False]
    model, log_node = model_of(corpus, features, w, constraints_from({"allowed": allowed}, BIO[:5]))
    table, cells = table_of(model.edges.scores, log_node.shape[1])
    log_node[2, 1:3] = log_node[4, 1:3] = log_node[8, 1:3] = -np.inf
    for lo, hi in pairwise(corpus.seq_ptr):
        x, found, count = log_node[lo:hi], np.empty_like(log_node[lo:hi]), np.zeros(len(cells[0]))
        log_z, p_node, p_edge = exact_sums(x, table)
        assert default_log_sums(x, model.edges, 1.0, found, count) == pytest.approx(log_z, rel=1e-12)
        np.testing.assert_allclose(found, p_node, rtol=0, atol=1e-12)
        np.testing.assert_allclose(count, p_edge[cells], rtol=0, atol=1e-12)
        assert (found[:-1, 0] == 0.0).any()


def test_a_weight_of_zero_leaves_nothing():
    corpus, features, w = case("plain")
    model, log_node = model_of(corpus, features, w, None)
    found, count = np.ones_like(log_node), np.ones(len(model.edges.gain))
    assert np.isfinite(default_log_sums(log_node, model.edges, 0.0, found, count))
    assert not found.any() and (count == 1.0).all()


def test_what_was_taken_back_is_added_up_anew():
    """Label 0 has all of the sum at every token, and all pairs behind it are 25 nats below the default."""
    corpus = random_corpus(np.random.default_rng(0), (6, 4), 4, 3)
    features, w = random_model(np.random.default_rng(0), corpus, 4, 3, all_states=True, all_transitions=True)
    w[:] = 0.0
    w[: features.n_node][features.node_label == 0] = 40.0
    w[features.n_node :][features.edge_prev == 0] = -25.0
    want = [brute.log_z(*chain) for chain in chains_of(corpus, features, w)]
    np.testing.assert_allclose(log_z_of(corpus, features, w), want, rtol=1e-14)


def test_no_path_and_sums_beyond_float64():
    corpus, features, w = case("plain")
    nothing = constraints_for(corpus, 3)
    nothing.start[:] = False
    assert log_z_of(corpus, features, w, nothing).tolist() == [-np.inf, 0.0, -np.inf, -np.inf, -np.inf]
    w[features.n_node :] = 1.7e308
    assert not np.isfinite(log_z_of(corpus, features, w)[0])
