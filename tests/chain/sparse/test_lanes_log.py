"""log Z in logarithms with a default and stored pairs, against the forms with tables and by enumeration."""

from itertools import pairwise

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import CASES, case, constraints_for

from crfbook import brute
from crfbook.chain import inference
from crfbook.chain.forward_backward import sequence_sums_log
from crfbook.chain.sparse.form import DefaultPairs
from crfbook.chain.sparse.lanes import default_log_sums
from crfbook.data.constraints import constraints_from

BIO = ["O", *(f"{p}-{i}" for i in range(18) for p in "BI")]


def log_z_of(corpus, features, w, constraints=None):
    potentials = DefaultPairs.potentials
    model = inference.ready_model(corpus, features, w, constraints, potentials, False)
    every = slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    log_node, log_z = inference.stretch_scores(corpus, model, *every), np.zeros(corpus.n_sequences)
    for i, (lo, hi) in enumerate(pairwise(corpus.seq_ptr)):
        if lo < hi:
            p_node, sums = np.empty_like(log_node[lo:hi]), DefaultPairs.batch.no_sums(model.edges)
            log_z[i] = default_log_sums(log_node[lo:hi], model.edges, 1.0, p_node, sums.count)
            assert default_log_sums(log_node[lo:hi], model.edges, 0.0, p_node, sums.count) == log_z[i]
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
    """(1, n, n) [class, previous, next]: 0, the scores of stored pairs, -inf where forbidden; their cells."""
    table, cells = np.full((1, n, n), -np.inf), []
    for c, before in enumerate(scores.member):
        g = np.searchsorted(scores.member_ptr, c, side="right") - 1
        table[0, before, scores.label[scores.label_ptr[g] : scores.label_ptr[g + 1]]] = 0.0
    for c, before in enumerate(scores.member):
        row = slice(scores.row_ptr[c], scores.row_ptr[c + 1])
        table[0, before, scores.next_label[row]] = scores.score[row]
        cells += [(before, y) for y in scores.next_label[row]]
    return table, tuple(np.array(cells, int).reshape(-1, 2).T)


@pytest.mark.parametrize("size", [1.0, 100.0, 1e5])
@pytest.mark.parametrize("shift", [0.0, -20.0, 20.0])
@pytest.mark.parametrize("constrained", [False, True])
def test_marginals_and_counts_are_those_of_the_table(constrained, shift, size):
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, (1, 2, 9, 14), 11, 20)
    features, w = random_model(rng, corpus, 11, 20, size)
    w[features.n_node :] += shift
    constraints = constraints_from("BIO", BIO[:11]) if constrained else None
    model = inference.ready_model(corpus, features, w, constraints, DefaultPairs.potentials, False)
    every = slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    log_node = inference.stretch_scores(corpus, model, *every)
    table, cells = table_of(model.edges.scores, log_node.shape[1])
    for lo, hi in pairwise(corpus.seq_ptr):
        x, found, sums = log_node[lo:hi], np.empty_like(log_node[lo:hi]), np.zeros_like(table)
        want, count = found.copy(), np.zeros(len(cells[0]))
        log_z = sequence_sums_log(x, table, np.zeros(hi - lo, np.int32), 2.0, want, sums)
        assert default_log_sums(x, model.edges, 2.0, found, count) == pytest.approx(log_z, rel=1e-12)
        rounding = 1e-15 * abs(x[np.isfinite(x)]).sum()
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=rounding + 1e-12)
        np.testing.assert_allclose(count, sums[0][cells], rtol=1e-9, atol=rounding + 1e-12)


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
