"""The batched kernel against enumeration and against the log form, sequence by sequence."""

import numpy as np
import pytest
from helpers.chains import (
    Chain,
    batches,
    overtaking_mass,
    random_chain,
    returning_mass,
    run_batched,
    run_log,
    unreachable_label,
)
from hypothesis import given

from crfbook import brute

pytestmark = pytest.mark.kernels

CLOSE = dict(rtol=1e-11, atol=1e-12)


def check(sequences, results, weight, batch, close):
    edge_sum = np.zeros(batch.edge_sum.shape)
    for s, (log_z, p_node, p_edge_sum) in enumerate(results):
        if log_z == -np.inf:
            assert batch.flags[s] == 1
        if batch.flags[s]:
            assert np.isnan(batch.log_z[s]) and not batch.p_node[s].any()
            continue
        np.testing.assert_allclose(batch.log_z[s], log_z, **close)
        np.testing.assert_allclose(batch.p_node[s], weight[s] * p_node, **close)
        edge_sum += weight[s] * p_edge_sum
    np.testing.assert_allclose(batch.edge_sum, edge_sum, **close)


@given(sequences=batches())
def test_equals_enumeration(sequences):
    weight = np.linspace(0.0, 3.0, len(sequences))
    results = [
        (brute.log_z(*c), brute.node_marginals(*c), brute.edge_marginal_sums(*c))
        if brute.log_z(*c) > -np.inf
        else (-np.inf, None, None)
        for c in sequences
    ]
    batch = run_batched(sequences, weight)
    assert [r[0] == -np.inf for r in results] == batch.flags.astype(bool).tolist()
    check(sequences, results, weight, batch, CLOSE)


@pytest.mark.parametrize("n_labels", [1, 2, 7, 8, 9, 15, 16, 17, 22, 24, 31, 33, 50, 70])
@pytest.mark.parametrize("n_classes", [1, 3])
def test_equals_log_form(n_labels, n_classes):
    """Sizes around the widths of vector registers and of blocks, and lengths from 1 to 60."""
    rng = np.random.default_rng(n_labels)
    lengths = [*rng.integers(1, 25, 30), 60, 1, 1]
    sequences = [random_chain(rng, n, n_labels, n_classes, 3.0, 0.02) for n in lengths]
    sequences = [c._replace(log_edge=sequences[0].log_edge) for c in sequences]
    weight = rng.random(len(sequences))
    results = [run_log(c) for c in sequences]
    batch = run_batched(sequences, weight)
    assert batch.flags.sum() == sum(r.log_z == -np.inf for r in results)
    check(
        sequences,
        [(r.log_z, r.p_node, r.p_edge_sum) for r in results],
        weight,
        batch,
        dict(rtol=1e-9, atol=1e-11),
    )


def test_flagged_sequences_do_not_disturb_the_others():
    """Lost prefix mass, a NaN, a row without labels and scores of 1e4 among good sequences, in any order."""
    rng = np.random.default_rng(2)
    lost = returning_mass(100.0, 9)
    good = [
        lost._replace(log_node=rng.normal(size=(n, 3)), edge_class=np.zeros(n, np.int32))
        for n in (12, 10, 3, 1)
    ]
    nan, empty, huge = (rng.normal(size=(n, 3)) for n in (10, 4, 11))
    nan[5, 1], empty[3], huge[2, 0] = np.nan, -np.inf, 1e4
    bad = [lost] + [
        lost._replace(log_node=u, edge_class=np.zeros(len(u), np.int32)) for u in (nan, empty, huge)
    ]
    sequences = [bad[0], good[0], bad[1], good[1], good[2], bad[2], bad[3], good[3]]
    batch = run_batched(sequences)
    assert batch.flags.tolist() == [1, 0, 1, 0, 0, 1, 1, 0]
    results = [run_log(c) for c in sequences]
    check(sequences, [(r.log_z, r.p_node, r.p_edge_sum) for r in results], np.ones(8), batch, CLOSE)


def test_lost_prefix_mass_that_would_win_later():
    assert run_batched([overtaking_mass()]).flags.tolist() == [1]


def test_mass_lost_between_a_low_gain_and_a_wide_row():
    """Row 1 stays as it is (its gain is exp(-150)), row 2 spreads over 300 nats:
    label 2 enters it at exp(-795).

    That is 0 in float64, and label 2 wins three steps later. Found with rows lowered by their maximum:
    log Z came out as 50.
    """
    u = [[150, -150, -np.inf], [150, -45, -np.inf], [200, -np.inf, -100], *[[-150, -np.inf, 150]] * 3]
    log_edge = np.where([[1, 0, 0], [0, 1, 1], [0, 0, 1]], 0.0, -np.inf)[None]
    chain = Chain(np.array(u, dtype=float), log_edge, np.zeros(6, np.int32))
    np.testing.assert_allclose(run_log(chain).log_z, -150.0 - 45 - 100 + 3 * 150, rtol=1e-13)
    assert run_batched([chain]).flags.tolist() == [1]


def test_unreachable_states_with_infinite_beta():
    batch = run_batched([unreachable_label(), unreachable_label()])
    assert not batch.flags.any()
    np.testing.assert_allclose(batch.p_node[1], np.tile([1.0, 0.0], (12, 1)), rtol=1e-13)
    np.testing.assert_allclose(batch.log_z, -200.0 * 11)
    np.testing.assert_allclose(batch.edge_sum, [[[22.0, 0.0], [0.0, 0.0]]])


@pytest.mark.parametrize("n_classes", [1, 2])
def test_padding_labels_change_nothing(n_classes):
    rng = np.random.default_rng(4)
    sequences = [random_chain(rng, n, 5, n_classes, 2.0, 0.1) for n in (6, 1, 9, 6)]
    sequences = [c._replace(log_edge=sequences[0].log_edge) for c in sequences]
    padded = [
        Chain(
            np.pad(c.log_node, ((0, 0), (0, 3)), constant_values=-np.inf),
            np.pad(c.log_edge, ((0, 0), (0, 3), (0, 3)), constant_values=-np.inf),
            c.edge_class,
        )
        for c in sequences
    ]
    plain, wide = run_batched(sequences), run_batched(padded)
    np.testing.assert_array_equal(plain.flags, wide.flags)
    np.testing.assert_allclose(wide.log_z, plain.log_z, **CLOSE)
    np.testing.assert_allclose(wide.edge_sum[:, :5, :5], plain.edge_sum, **CLOSE)
    assert not wide.edge_sum[:, 5:].any() and not wide.edge_sum[:, :, 5:].any()
    for p, q in zip(plain.p_node, wide.p_node, strict=True):
        np.testing.assert_allclose(q[:, :5], p, **CLOSE)
        assert not q[:, 5:].any()


@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_scores_far_from_zero(forbidden):
    """Rows around +-1000: beyond the range of exp, so that their maxima must be taken out;
    nothing is flagged.
    """
    rng = np.random.default_rng(8)
    sequences = [random_chain(rng, n, 4, 2, 2.0, forbidden) for n in (5, 9, 2, 9)]
    sequences = [c._replace(log_edge=sequences[0].log_edge) for c in sequences]
    shifts = [rng.choice([-1000.0, -150.0, 0.0, 150.0, 1000.0], (len(c.log_node), 1)) for c in sequences]
    batch = run_batched(sequences)
    far = run_batched([c._replace(log_node=c.log_node + d) for c, d in zip(sequences, shifts, strict=True)])
    np.testing.assert_array_equal(far.flags, batch.flags)
    assert not far.flags.all()
    np.testing.assert_allclose(far.log_z, batch.log_z + [d.sum() for d in shifts], rtol=1e-10)
    np.testing.assert_allclose(far.edge_sum, batch.edge_sum, rtol=1e-9, atol=1e-11)
    for p, q in zip(batch.p_node, far.p_node, strict=True):
        np.testing.assert_allclose(q, p, rtol=1e-9, atol=1e-11)


def test_long_sequence_alone():
    """1e5 tokens in one batch of one: the running product of scale factors must be taken out in time."""
    rng = np.random.default_rng(6)
    chain = random_chain(rng, 100_000, 3, 1, size=20.0)
    batch = run_batched([chain])
    log_z = run_log_z(chain)
    assert batch.flags[0] == 0
    np.testing.assert_allclose(batch.log_z[0], log_z, rtol=1e-11)
    np.testing.assert_allclose(batch.p_node[0].sum(1), 1.0, rtol=1e-8)


def run_log_z(chain):
    from crfbook.chain.forward_backward import forward_backward_log

    return forward_backward_log(*chain, np.empty(chain.log_node.shape), np.empty(chain.log_node.shape))
