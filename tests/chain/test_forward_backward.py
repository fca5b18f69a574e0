"""Log and scaled forward-backward of one sequence, against enumeration and against what must always hold."""

import numpy as np
import pytest
from helpers.chains import (
    Chain,
    chains,
    overtaking_mass,
    random_chain,
    returning_mass,
    run_log,
    run_scaled,
    unreachable_label,
)
from hypothesis import given
from hypothesis import strategies as st

from crfbook import brute
from crfbook.chain.forward_backward import sequence_sums_log

pytestmark = pytest.mark.kernels

# Sums of at most 4^5 terms of either sign, in float64.
CLOSE = dict(rtol=1e-11, atol=1e-12)


def assert_same(result, log_z, p_node, p_edge, **close):
    np.testing.assert_allclose(result.log_z, log_z, **close)
    np.testing.assert_allclose(result.p_node, p_node, **close)
    np.testing.assert_allclose(result.p_edge, p_edge, **close)
    assert np.shape(result.p_node) == np.shape(p_node)


@pytest.mark.parametrize("run", [run_log, run_scaled])
@given(chain=chains())
def test_equals_enumeration(run, chain):
    result = run(chain)
    log_z = brute.log_z(*chain)
    if log_z == -np.inf:
        assert result.status == 1 or result.log_z == -np.inf
        assert not result.p_node.any() and not result.p_edge.any() and not result.p_edge_sum.any()
        return
    assert result.status == 0
    assert_same(result, log_z, brute.node_marginals(*chain), brute.edge_marginals(*chain), **CLOSE)
    np.testing.assert_allclose(result.p_edge_sum, brute.edge_marginal_sums(*chain), **CLOSE)


@given(chain=chains(), weight=st.sampled_from([0.0, 0.5, 3.0]))
def test_sums_of_a_sequence_in_logarithms(chain, weight):
    """They are those of enumeration times the weight, added to what is there; nothing if all is forbidden."""
    log_node, log_edge, edge_class = chain
    p_node, edge_sum = np.full(log_node.shape, 7.0), np.full(log_edge.shape, 2.0)
    log_z = sequence_sums_log(log_node, log_edge, edge_class, weight, p_node, edge_sum)
    wanted = brute.log_z(*chain)
    np.testing.assert_allclose(log_z, wanted, **CLOSE)
    if wanted == -np.inf:
        assert not p_node.any() and (edge_sum == 2.0).all()
        return
    np.testing.assert_allclose(p_node, weight * brute.node_marginals(*chain), **CLOSE)
    np.testing.assert_allclose(edge_sum, 2.0 + weight * brute.edge_marginal_sums(*chain), **CLOSE)


@pytest.mark.parametrize("run", [run_log, run_scaled])
@given(chain=chains(forbidden=(0.0,)), seed=st.integers(0, 10**6))
def test_marginals_are_probabilities(run, chain, seed):
    result = run(chain)
    np.testing.assert_allclose(result.p_node.sum(1), 1.0, **CLOSE)
    np.testing.assert_allclose(result.p_edge[1:].sum(2), result.p_node[:-1], **CLOSE)
    np.testing.assert_allclose(result.p_edge[1:].sum(1), result.p_node[1:], **CLOSE)
    shift = np.random.default_rng(seed).normal(0.0, 10.0, (len(chain.log_node), 1))
    shifted = run(chain._replace(log_node=chain.log_node + shift))
    assert_same(shifted, result.log_z + shift.sum(), result.p_node, result.p_edge, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("run", [run_log, run_scaled])
@given(chain=chains(), seed=st.integers(0, 10**6))
def test_names_of_labels_do_not_matter(run, chain, seed):
    p = np.random.default_rng(seed).permutation(chain.log_node.shape[1])
    result = run(chain)
    renamed = run(Chain(chain.log_node[:, p].copy(), chain.log_edge[:, p][:, :, p].copy(), chain.edge_class))
    expected = result.p_node[:, p], result.p_edge[:, p][:, :, p]
    assert renamed.status == result.status
    assert_same(renamed, result.log_z, *expected, **CLOSE)


@pytest.mark.parametrize("run", [run_log, run_scaled])
@pytest.mark.parametrize(("n_tokens", "n_labels"), [(1, 1), (1, 4), (7, 1), (50, 3), (300, 22)])
def test_zero_scores_count_paths(run, n_tokens, n_labels):
    chain = Chain(np.zeros((n_tokens, n_labels)), np.zeros((2, n_labels, n_labels)), np.arange(n_tokens) % 2)
    result = run(chain)
    np.testing.assert_allclose(result.log_z, n_tokens * np.log(n_labels), rtol=1e-13)
    np.testing.assert_allclose(result.p_node, 1.0 / n_labels, rtol=1e-11)


@given(chain=chains(max_tokens=40, max_labels=6, sizes=(1.0, 3.0)))
def test_scaled_equals_log(chain):
    scaled, log = run_scaled(chain), run_log(chain)
    if scaled.status == 0:
        assert_same(scaled, *log[:3], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(scaled.p_edge_sum, log.p_edge_sum, rtol=1e-9, atol=1e-11)
    else:
        assert log.log_z == -np.inf  # scores this small are handed over only if no path is left


@given(chain=chains(sizes=(1.0, 2.0)))
def test_scores_times_1000(chain):
    """The distribution freezes onto the best path, and log Z approaches its score: never NaN,
    never overflow.
    """
    large = Chain(chain.log_node * 1000.0, chain.log_edge * 1000.0, chain.edge_class)
    result = run_log(large)
    score, best = brute.best_paths(*large)
    if score == -np.inf:
        assert result.log_z == -np.inf
        return
    assert score <= result.log_z + 1e-9 * abs(score) + 1e-9
    assert result.log_z <= score + len(large.log_node) * np.log(large.log_node.shape[1]) + 1e-9 * abs(score)
    assert_same(
        result,
        brute.log_z(*large),
        brute.node_marginals(*large),
        brute.edge_marginals(*large),
        rtol=1e-9,
        atol=1e-10,
    )
    scaled = run_scaled(large)
    if scaled.status == 0:
        assert_same(scaled, *result[:3], rtol=1e-9, atol=1e-10)


def test_weights_of_ten_thousand():
    rng = np.random.default_rng(3)
    chain = random_chain(rng, 60, 5, 2, size=1e4)
    result = run_log(chain)
    assert run_scaled(chain).status == 1
    assert np.isfinite(result.log_z) and np.isfinite(result.p_node).all()
    np.testing.assert_allclose(result.p_node.sum(1), 1.0, rtol=1e-7)  # eps * |log Z| = 1e-16 * 1e6


@pytest.mark.parametrize(("gap", "steps"), [(100.0, 9), (10.0, 80), (100.0, 4), (2.0, 1000)])
def test_lost_prefix_mass_is_noticed(gap, steps):
    chain = returning_mass(gap, steps)
    log = run_log(chain)
    j = np.arange(steps + 1)  # tokens labelled 2 before the path of ones begins
    scores = np.append(-gap * (steps + j) - (j > 0), -2.0 * gap * steps)
    np.testing.assert_allclose(log.log_z, np.logaddexp.reduce(scores), rtol=1e-13)
    np.testing.assert_array_equal(log.p_node[:, 0], 0.0)
    assert run_scaled(chain).status == 1


@pytest.mark.parametrize("size", [1e4, 1e8, 1e15, 1e100])
def test_marginals_of_the_log_form_sum_to_one_at_any_size(size):
    """At 1e15 one rounding error is an eighth of a nat:
    exp(alpha + beta - log_z) alone gave probabilities of 1e52.
    """
    rng = np.random.default_rng(5)
    result = run_log(random_chain(rng, 40, 3, 2, size, 0.1))
    np.testing.assert_allclose(result.p_node.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(result.p_edge[1:].sum(axis=(1, 2)), 1.0, rtol=1e-14)
    np.testing.assert_allclose(result.p_edge_sum.sum(), 39.0, rtol=1e-13)


def test_lost_prefix_mass_that_would_win_later():
    chain = overtaking_mass()
    log = run_log(chain)
    np.testing.assert_allclose(log.log_z, np.logaddexp(-9 * 100.0, -5.0 - 20 * 100.0), rtol=1e-13)
    np.testing.assert_array_equal(log.p_node[:, 1], 1.0)
    assert run_scaled(chain).status == 1


def test_small_masses_within_the_rule_are_exact():
    """Just inside the rule the scaled form must not only say yes but be right."""
    chain = returning_mass(30.0, 5)  # masses down to exp(-300) = 5e-131
    scaled, log = run_scaled(chain), run_log(chain)
    assert scaled.status == 0
    assert_same(scaled, *log[:3], rtol=1e-11, atol=1e-13)


def test_unreachable_states_with_infinite_beta():
    chain = unreachable_label()
    scaled, log = run_scaled(chain), run_log(chain)
    assert scaled.status == 0
    assert_same(scaled, *log[:3], rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(scaled.p_node, np.tile([1.0, 0.0], (12, 1)))


def test_status_of_a_row_without_labels_and_of_nan():
    chain = random_chain(np.random.default_rng(0), 4, 3)
    for bad in (-np.inf, np.nan):
        log_node = chain.log_node.copy()
        log_node[2] = bad
        assert run_scaled(chain._replace(log_node=log_node)).status == 1


def test_a_million_tokens():
    """One token more adds the same to log Z each time, far along a periodic sequence."""
    rng = np.random.default_rng(5)
    period = random_chain(rng, 4, 3, 2)
    n_tokens = 1_000_000
    log_node = np.tile(period.log_node, (n_tokens // 4, 1))
    edge_class = np.tile(period.edge_class, n_tokens // 4)
    long = run_log_z(Chain(log_node, period.log_edge, edge_class))
    part = run_log_z(Chain(log_node[:2000], period.log_edge, edge_class[:2000]))
    shorter = run_log_z(Chain(log_node[:1996], period.log_edge, edge_class[:1996]))
    expected = part + (part - shorter) * (n_tokens - 2000) / 4
    np.testing.assert_allclose(
        long, expected, rtol=1e-9
    )  # part - shorter has 1e-12 of error, taken 250,000 times


def run_log_z(chain):
    """Both forms without the (T, L, L) arrays of the other tests; asserts that they agree."""
    from helpers.chains import potentials

    from crfbook.chain import forward_backward as fb

    n_tokens = len(chain.log_node)
    alpha, beta, psi_node = (np.empty(chain.log_node.shape) for _ in range(3))
    node_max, scale = np.empty(n_tokens), np.empty(n_tokens)
    psi_edge, psi_edge_t, edge_max, spread = potentials(chain.log_edge)
    spread += fb.exp_nodes(chain.log_node, psi_node, node_max)
    assert (
        fb.forward_backward_scaled(
            psi_node, psi_edge, psi_edge_t, chain.edge_class, spread, alpha, beta, scale
        )
        == 0
    )
    np.testing.assert_allclose((alpha * beta).sum(1), 1.0, rtol=1e-8)
    log_z = fb.log_z_scaled(scale, node_max, edge_max, chain.edge_class)
    np.testing.assert_allclose(log_z, fb.forward_backward_log(*chain, alpha, beta), rtol=1e-10)
    return log_z
