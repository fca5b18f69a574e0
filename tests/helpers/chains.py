"""Small chains for tests: random potentials, and calls of the kernels with their work arrays allocated."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from crfbook.chain.forms import make_edges
from crfbook.chain.forward_backward import (
    add_edge_marginals_log,
    edge_marginal_log,
    edge_marginal_scaled,
    exp_edges,
    exp_nodes,
    forward_backward_log,
    forward_backward_scaled,
    log_z_scaled,
    node_marginals_log,
)
from crfbook.chain.forward_backward_batched import forward_backward_batched, group_rows
from crfbook.chain.likelihood import make_work
from crfbook.chain.packing import Groups, Packing
from crfbook.chain.viterbi import viterbi, viterbi_many
from crfbook.data.constraints import bounds_of


class Chain(NamedTuple):
    log_node: np.ndarray  # (T, L)
    log_edge: np.ndarray  # (K, L, L)
    edge_class: np.ndarray  # int32 (T,)


def random_chain(rng, n_tokens, n_labels, n_classes=1, size=2.0, forbidden=0.0):
    """Gaussian scores, no symmetry anywhere; a fraction `forbidden` of the scores is -inf."""
    log_node = rng.normal(0.0, size, (n_tokens, n_labels))
    log_edge = rng.normal(0.0, size, (n_classes, n_labels, n_labels))
    for scores in (log_node, log_edge):
        scores[rng.random(scores.shape) < forbidden] = -np.inf
    return Chain(log_node, log_edge, rng.integers(0, n_classes, n_tokens).astype(np.int32))


@st.composite
def chains(draw, max_tokens=5, max_labels=4, max_classes=3, sizes=(0.0, 1.0, 5.0), forbidden=(0.0, 0.3)):
    """Chains with T != L unless both are 1."""
    n_tokens = draw(st.integers(1, max_tokens))
    n_labels = draw(st.integers(1, max_labels).filter(lambda n: n != n_tokens or n == 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random_chain(
        rng,
        n_tokens,
        n_labels,
        draw(st.integers(1, max_classes)),
        draw(st.sampled_from(sizes)),
        draw(st.sampled_from(forbidden)),
    )


class Result(NamedTuple):
    log_z: float
    p_node: np.ndarray  # (T, L)
    p_edge: np.ndarray  # (T, L, L), p_edge[0] = 0
    p_edge_sum: np.ndarray  # (K, L, L)
    status: int


def run_log(chain):
    log_alpha, log_beta, p_node = (np.full(chain.log_node.shape, np.nan) for _ in range(3))
    log_z = forward_backward_log(*chain, log_alpha, log_beta)
    node_marginals_log(log_alpha, log_beta, log_z, p_node)
    n_tokens, n_labels = chain.log_node.shape
    p_edge, p_edge_sum = np.zeros((n_tokens, n_labels, n_labels)), np.zeros(chain.log_edge.shape)
    for t in range(1, n_tokens):
        edge_marginal_log(t, *chain, log_alpha, log_beta, log_z, p_edge[t])
    add_edge_marginals_log(*chain, log_alpha, log_beta, log_z, 1.0, p_edge_sum)
    return Result(log_z, p_node, p_edge, p_edge_sum, 0)


def potentials(log_edge):
    """(psi_edge, psi_edge_t, edge_max, edge_spread)."""
    psi_edge, psi_edge_t, edge_max = (
        np.empty(log_edge.shape),
        np.empty(log_edge.shape),
        np.empty(len(log_edge)),
    )
    spread = exp_edges(log_edge, psi_edge, psi_edge_t, edge_max)
    return psi_edge, psi_edge_t, edge_max, spread


def run_scaled(chain):
    n_tokens, n_labels = chain.log_node.shape
    psi_node, alpha, beta = (np.full(chain.log_node.shape, np.nan) for _ in range(3))
    node_max, scale = np.empty(n_tokens), np.full(n_tokens, np.nan)
    psi_edge, psi_edge_t, edge_max, edge_spread = potentials(chain.log_edge)
    spread = edge_spread + exp_nodes(chain.log_node, psi_node, node_max)
    status = forward_backward_scaled(
        psi_node, psi_edge, psi_edge_t, chain.edge_class, spread, alpha, beta, scale
    )
    p_edge, p_edge_sum = np.zeros((n_tokens, n_labels, n_labels)), np.zeros(chain.log_edge.shape)
    if status:
        return Result(np.nan, np.zeros(chain.log_node.shape), p_edge, p_edge_sum, status)
    for t in range(1, n_tokens):
        edge_marginal_scaled(t, psi_node, psi_edge, chain.edge_class, alpha, beta, scale, p_edge[t])
        p_edge_sum[chain.edge_class[t]] += p_edge[t]
    log_z = log_z_scaled(scale, node_max, edge_max, chain.edge_class)
    return Result(log_z, alpha * beta, p_edge, p_edge_sum, status)


def edges_of(log_edge):
    """`Edges` of these scores as they stand, not padded."""
    return make_edges(log_edge, bounds_of(None, log_edge.shape[1]))


def one_batch(step_ptr, row_class, n_classes, weight):
    """`Packing` of one batch, made by hand; a single class has no `Groups`."""
    n, n_slots, none, groups = len(row_class), len(weight), np.zeros(0, np.int32), None
    if n_classes > 1:
        orders = [np.full(size, -9, np.int64) for size in (n_classes + 1, n, n, n)]
        group_rows(row_class, step_ptr, *orders)
        groups = Groups(orders[0][None], *orders[1:])
    ends = [np.array([0, size]) for size in (n_slots, n, len(step_ptr))]
    tokens, shard_ptr = np.arange(n), np.array([0, 1])
    rest = none, none, weight, shard_ptr, groups
    return Packing(np.arange(n_slots), *ends, step_ptr, tokens, row_class, *rest)


class BatchResult(NamedTuple):
    log_z: np.ndarray  # (S,)
    p_node: list  # (T, L) each
    edge_sum: np.ndarray  # (K, L, L)
    flags: np.ndarray  # (S,)


def run_batched(sequences, weight=None):
    """One batch of chains that share log_edge, packed here by hand: plain loops, no code of the package."""
    lengths = np.array([len(chain.log_node) for chain in sequences])
    order = sorted(range(len(sequences)), key=lambda s: -lengths[s])
    rows = [(s, t) for t in range(max(lengths)) for s in order if lengths[s] > t]
    step_ptr = np.concatenate([[0], np.cumsum([np.sum(lengths > t) for t in range(max(lengths))])])
    log_node = np.array([sequences[s].log_node[t] for s, t in rows])
    row_class = np.array([sequences[s].edge_class[t] for s, t in rows], dtype=np.int32)
    log_edge = sequences[0].log_edge
    weight = np.ones(len(sequences)) if weight is None else np.asarray(weight, dtype=float)
    packing = one_batch(step_ptr, row_class, len(log_edge), weight[order])
    work = make_work(packing, log_node.shape[1])
    for array in (work.p_node, work.alpha, work.prev, work.gain, work.pair):
        array[:] = np.nan
    work.flags[:] = 7
    log_z, edge_sum = np.full(len(sequences), np.nan), np.zeros(log_edge.shape)
    n_flagged = forward_backward_batched(
        0, packing, edges_of(log_edge), log_node, log_z, work.p_node, edge_sum, work
    )
    flags, p_node = work.flags, work.p_node
    assert n_flagged == np.sum(flags)
    back = np.argsort(order)
    by_sequence = [np.empty(chain.log_node.shape) for chain in sequences]
    for (s, t), p in zip(rows, p_node, strict=True):
        by_sequence[s][t] = p
    return BatchResult(log_z[back], by_sequence, edge_sum, flags[back])


def run_viterbi(chain):
    n_tokens, n_labels = chain.log_node.shape
    path = np.full(n_tokens, -9, np.int32)
    back = np.full((n_tokens, n_labels), -9, np.int32)
    return viterbi(*chain, np.empty((2, n_labels)), back, path), path


def run_viterbi_many(sequences, skip=True):
    """(scores, paths) of chains that share log_edge;
    repeated until long enough for skipping to be switched on.
    """
    log_edge = sequences[0].log_edge
    n_tokens = sum(len(chain.log_node) for chain in sequences)
    times = 1 + 4 * log_edge.shape[0] * log_edge.shape[1] // n_tokens if skip else 1
    seq_ptr = np.concatenate([[0], np.cumsum([len(chain.log_node) for chain in sequences] * times)]).astype(
        np.int64
    )
    log_node = np.concatenate([chain.log_node for chain in sequences] * times)
    edge_class = np.concatenate([chain.edge_class for chain in sequences] * times)
    path, score = np.full(len(log_node), -9, np.int32), np.full(len(seq_ptr) - 1, np.nan)
    viterbi_many(log_node, log_edge, edge_class, seq_ptr, path, score)
    n = len(sequences)
    np.testing.assert_array_equal(score, np.tile(score[:n], times))
    np.testing.assert_array_equal(path, np.tile(path[:n_tokens], times))
    return score[:n], np.split(path[:n_tokens], seq_ptr[1:n])


def returning_mass(gap, steps):
    """Label 1 loses `gap` nats a step against label 0 for `steps` steps; then label 0 is forbidden.

    What remains are paths whose prefixes held exp(-gap * steps) of the mass: a kernel that lets them
    underflow finds another answer or none.
    """
    log_node = np.zeros((steps + 1, 3))
    log_node[:-1, 1] = -gap
    log_node[:-1, 2] = -2.0 * gap
    log_node[-1, 0] = -np.inf
    log_edge = np.full((1, 3, 3), -np.inf)
    np.fill_diagonal(log_edge[0], 0.0)
    log_edge[0, 2, 1] = -1.0
    return Chain(log_node, log_edge, np.zeros(steps + 1, np.int32))


def overtaking_mass():
    """Label 1 falls exp(-900) behind label 0, which underflows; then 0 must become 2,
    and 2 falls behind by exp(-2000).

    Nothing but the safety rule notices: the sums never vanish, and without it log Z comes out as -2005,
    not -900.
    """
    log_node = np.zeros((29, 3))
    log_node[:9] = 0.0, -100.0, -np.inf
    log_node[9:] = -np.inf, 0.0, -100.0
    log_edge = np.array([[[0.0, -np.inf, -5.0], [-np.inf, 0.0, -np.inf], [-np.inf, -np.inf, 0.0]]])
    return Chain(log_node, log_edge, np.zeros(29, np.int32))


def unreachable_label():
    """Label 1 cannot be reached, and its beta grows by exp(200) a step: inf * 0 must not appear."""
    log_node = np.zeros((12, 2))
    log_node[:, 0] = -200.0
    log_node[0] = 0.0, -np.inf
    return Chain(log_node, np.array([[[0.0, -np.inf], [0.0, 0.0]]]), np.zeros(12, np.int32))


@st.composite
def batches(draw, max_sequences=7, max_tokens=5, max_labels=4, forbidden=(0.0, 0.2)):
    """Sequences of any lengths that share log_edge."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, max_tokens), min_size=1, max_size=max_sequences))
    n_labels, n_classes = draw(st.integers(1, max_labels)), draw(st.integers(1, 4))
    fraction, size = draw(st.sampled_from(forbidden)), draw(st.sampled_from((0.5, 4.0)))
    sequences = [random_chain(rng, n, n_labels, n_classes, size, fraction) for n in lengths]
    return [chain._replace(log_edge=sequences[0].log_edge) for chain in sequences]
