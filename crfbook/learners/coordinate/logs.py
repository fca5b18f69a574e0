"""Sequences whose scaled lattices cannot be trusted (potentials hundreds of nats apart): in logarithms,
anew at each visit.

They are rare, so that nothing of them is kept but log Z.
"""

import numpy as np

from crfbook.chain.forward_backward import edge_marginal_log, forward_backward_log, node_marginals_log
from crfbook.learners.coordinate.exact import sequence_scores
from crfbook.learners.coordinate.gradient import CURVATURE, EXPECTED
from crfbook.learners.coordinate.lattice import UNSAFE


def _lattice(i, state):
    """(log_node (T, M), log_edge (T, M, M), edge_class (T,), alpha, beta (T, M), log Z) of sequence i;
    its edge classes are positions.
    """
    chains, width = state.chains, state.weights.mu.shape[1]
    n = int(chains.seq_ptr[i + 1] - chains.seq_ptr[i])
    log_node, log_edge, alpha = np.zeros((n, width)), np.zeros((n, width, width)), np.zeros((n, width))
    beta = np.zeros((n, width))
    sequence_scores(i, chains, state.tables, state.weights, log_node, log_edge)
    edge_class = np.arange(n, dtype=np.int32)
    return (
        log_node,
        log_edge,
        edge_class,
        alpha,
        beta,
        forward_backward_log(log_node, log_edge, edge_class, alpha, beta),
    )


def close_unsafe(sequences, state):
    """log Z of these unsafe sequences."""
    for i in sequences.tolist():
        state.chains.log_z[i] = _lattice(i, state)[-1]


def add_unsafe(g, repeats, state):
    """Expected counts and curvatures of block g in its unsafe sequences, added to state.sums;
    see `block_gradient`.
    """
    blocks, chains, (node, edge) = state.blocks, state.chains, state.sums
    with_edge, p_edge = blocks.member[1, g] >= 0, np.zeros(state.tables.base.shape)
    for v in range(int(blocks.visit_ptr[g]), int(blocks.visit_ptr[g + 1])):
        i, occurrences = int(blocks.visit_seq[v]), range(int(blocks.occ_ptr[v]), int(blocks.occ_ptr[v + 1]))
        if not chains.place[UNSAFE, i]:
            continue
        log_node, log_edge, edge_class, alpha, beta, log_z = _lattice(i, state)
        p_node, weight = np.zeros(log_node.shape), chains.weight[i]
        node_marginals_log(alpha, beta, log_z, p_node)
        repeat = weight * (len(occurrences) if repeats else 1.0)
        for o in occurrences:
            t = int(blocks.occ_token[o] - chains.seq_ptr[i])
            x, p = blocks.occ_val[o] if len(blocks.occ_val) else 1.0, p_node[t]
            node[EXPECTED] += weight * x * p
            node[CURVATURE] += repeat * x * x * (p - p * p)
            if with_edge and t > 0:
                edge_marginal_log(t, log_node, log_edge, edge_class, alpha, beta, log_z, p_edge)
                edge[EXPECTED] += weight * p_edge
                edge[CURVATURE] += repeat * (p_edge - p_edge * p_edge)
