"""What learners share that visit one sequence at a time: bounds, work arrays, the order of an epoch."""

from typing import NamedTuple

import numpy as np


class Bounds(NamedTuple):
    """Hard constraints as scores: 0 where allowed, -inf where not."""

    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)
    edge: np.ndarray  # (L, L) [previous, next]
    label_sets: np.ndarray  # (D, L): row `label_set[t]` of a corpus holds at token t


class SequenceWork(NamedTuple):
    """Work arrays of the kernels of kernels/sequence.py: T = longest sequence, K edge classes."""

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
    stamp: np.ndarray  # int64 (K,): last visit of a sequence that used the class


def bounds_of(constraints, n_labels):
    """`Bounds` of `Constraints`, or of None: everything is allowed."""
    free = np.zeros(n_labels)
    if constraints is None:
        return Bounds(free, free.copy(), np.zeros((n_labels, n_labels)), np.zeros((0, n_labels)))
    score = lambda allowed: np.where(allowed, 0.0, -np.inf)  # noqa: E731
    sets = getattr(constraints, "label_sets", None)
    sets = np.zeros((0, n_labels)) if sets is None else score(sets)
    return Bounds(score(constraints.start), score(constraints.end), score(constraints.allowed), sets)


def sequence_work(corpus, n_labels):
    """`SequenceWork` for the sequences of a corpus; no class is stamped yet (visits count from 0)."""
    longest = max(1, int(np.diff(corpus.seq_ptr).max(initial=0)))
    n_classes = corpus.n_classes
    rows = lambda: np.zeros((longest, n_labels))  # noqa: E731
    tables = lambda: np.zeros((n_classes, n_labels, n_labels))  # noqa: E731
    return SequenceWork(
        rows(),
        tables(),
        rows(),
        tables(),
        rows(),
        tables(),
        tables(),
        rows(),
        rows(),
        np.zeros(longest),
        np.zeros(longest),
        np.zeros(n_classes),
        np.full(n_classes, -1, np.int64),
    )


def epoch_order(seed, epoch, n):
    """The n sequences in the random order of one epoch (int64): a run resumes from (seed, epoch) alone."""
    return np.random.default_rng([seed, epoch]).permutation(n)
