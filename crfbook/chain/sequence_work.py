"""What learners share that visit one sequence at a time: work arrays, the classes of a sequence,
the order of an epoch.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.features import distinct_keys, row_offsets


class SequenceWork(NamedTuple):
    """Work arrays of the kernels of sequence.py: T = longest sequence, K edge classes."""

    log_node: np.ndarray  # (T, L)
    log_edge: np.ndarray  # (K, L, L)
    p_node: np.ndarray  # (T, L)
    edge_sum: np.ndarray  # (K, L, L)
    psi_node: np.ndarray  # (T, L)
    psi_edge: np.ndarray  # (K, L, L)
    psi_edge_t: np.ndarray  # (K, L, L)
    alpha: np.ndarray  # (T, L)
    beta: np.ndarray  # (T, L)
    scale: np.ndarray  # (T,)
    node_max: np.ndarray  # (T,)
    edge_max: np.ndarray  # (K,)


def sequence_work(corpus, n_labels):
    """`SequenceWork` for the sequences of a corpus."""
    longest, n_classes = max(1, corpus.longest), corpus.n_classes
    log_node, p_node, psi_node, alpha, beta = (np.zeros((longest, n_labels)) for _ in range(5))
    tables = (np.zeros((n_classes, n_labels, n_labels)) for _ in range(4))
    log_edge, edge_sum, psi_edge, psi_edge_t = tables
    vectors = np.zeros(longest), np.zeros(longest), np.zeros(n_classes)
    return SequenceWork(
        log_node, log_edge, p_node, edge_sum, psi_node, psi_edge, psi_edge_t, alpha, beta, *vectors
    )


def used_classes(corpus):
    """(used_ptr int64 (S+1,), used int32): the edge classes of the transitions of each sequence, rising."""
    inner, width = corpus.inner, corpus.n_classes
    row = distinct_keys(corpus.sequence[inner] * width + corpus.edge_class[inner])
    return row_offsets(row, corpus.n_sequences, width), (row % width).astype(np.int32)


def epoch_order(seed, epoch, n):
    """The n sequences in the random order of one epoch (int64): a run resumes from (seed, epoch) alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)
