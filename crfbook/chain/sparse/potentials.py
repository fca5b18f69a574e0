"""Sparse transitions: a base that all classes share plus, for each class,
the label pairs in which it differs.

Built from the weights without a table (K, L, L): memory grows with the weights that are not zero. Source:
Sokolovska et al. (2010), section 3.2.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.potentials import padded_bounds
from crfbook.chain.sparse.entries import count_entries, fill_entries, fill_scores
from crfbook.data.constraints import Bounds
from crfbook.data.corpus import offsets

# nats between potentials of a class; beyond, its sequences are computed in the log domain (MAX_SPREAD / 2)
WIDE = 150.0
# a class with entries in more than this share of all label pairs is kept as a table: a list would be larger
TABLE_SHARE = 0.25


class SparseEdges(NamedTuple):
    """Transition potentials of K classes: base + gain on the support of each; M padded labels, E entries,
    B edge attributes.
    """

    base: np.ndarray  # (M, M) [previous, next]: exp(log_base - base_max), or (0, 0): 1 everywhere
    base_t: np.ndarray  # its transpose
    log_base: np.ndarray  # (M, M): plain transitions, -inf where forbidden and for padding, or (0, 0)
    base_max: np.ndarray  # (1,)
    edge_spread: np.ndarray  # (1,): largest difference of finite values inside a class that is not wide
    wide: np.ndarray  # uint8 (K,): 1 where differences exceed WIDE
    entry_ptr: np.ndarray  # int64 (K+1,): entries of class k, sorted by (previous, next)
    prev: np.ndarray  # uint32 (E,)
    next_label: np.ndarray  # uint32 (E,)
    gain: np.ndarray  # (E,): psi - base
    psi: np.ndarray  # (E,): base exp(sum of the weights)
    table_of: np.ndarray  # int64 (K,): row of `table` for a class with many entries, or -1
    table: np.ndarray  # (D, M, M) [previous, next]
    table_t: np.ndarray  # (D, M, M): its transposes
    class_ptr: np.ndarray  # int64 (K+1,): edge attributes of class k, as in a Corpus
    class_attr: np.ndarray  # int32
    attr_ptr: np.ndarray  # int64 (B+1,): weights of edge attribute b > 0 that are not zero
    attr_code: np.ndarray  # uint32: previous * L + next, rising
    attr_log: np.ndarray  # the weights
    n_labels: np.ndarray  # int64 (1,): L
    bounds: Bounds  # of M labels


def active_edges(features, w):
    """(attr_ptr int64 (B+1,), attr_code uint32, attr_log) of the edge weights that are not zero,
    edge attribute 0 left out.
    """
    first = int(features.edge_ptr[1])
    weights = w[features.n_node :]
    active = first + np.flatnonzero(weights[first:])
    code = features.edge_prev[active].astype(np.uint32) * np.uint32(features.n_labels)
    code += features.edge_next[active].astype(np.uint32)
    return np.searchsorted(active, features.edge_ptr).astype(np.int64), code, weights[active]


def count_supports(features, attr_ptr, attr_code, class_ptr, class_attr):
    """int64 (K,): number of label pairs that have a weight in some attribute of each class,
    attribute 0 left out.
    """
    count = np.empty(len(class_ptr) - 1, np.int64)
    count_entries(class_ptr, class_attr, attr_ptr, attr_code, np.full(features.n_labels**2, -1), count)
    return count


def base_scores(features, w, bounds):
    """log_base (M, M): plain transitions, -inf where forbidden and for padding labels;
    (0, 0) if they are all 0.
    """
    n_labels, n_base = features.n_labels, int(features.edge_ptr[1])
    weights = w[features.n_node : features.n_node + n_base]
    if not weights.any() and not bounds.edge[:n_labels, :n_labels].any():
        return np.zeros((0, 0))
    out = bounds.edge.copy()
    out[features.edge_prev[:n_base], features.edge_next[:n_base]] += weights
    return out


def sparse_edges(features, w, class_ptr, class_attr, bounds=None, table_share=TABLE_SHARE):
    """`SparseEdges` of the weights w (F,) for the classes of a corpus. bounds: as in `table_edges`."""
    n_labels, n_classes = features.n_labels, len(class_ptr) - 1
    bounds = padded_bounds(None, n_labels) if bounds is None else bounds
    width = len(bounds.middle)
    log_base = base_scores(features, w, bounds)
    finite = log_base[np.isfinite(log_base)]
    base_max, base_spread = finite.max(initial=-np.inf), np.ptp(finite) if finite.size else 0.0
    base_max = base_max if finite.size else 0.0
    base = np.exp(log_base - base_max)
    attr_ptr, attr_code, attr_log = active_edges(features, w)
    count = count_supports(features, attr_ptr, attr_code, class_ptr, class_attr)
    as_table = count > table_share * n_labels**2
    table_of = np.where(as_table, np.cumsum(as_table) - 1, -1)
    entry_ptr = offsets(np.where(as_table, 0, count))
    n_entries = int(entry_ptr[-1])
    prev, next_label = np.empty(n_entries, np.uint32), np.empty(n_entries, np.uint32)
    gain, psi = np.empty(n_entries), np.empty(n_entries)
    table, spread = np.empty((int(as_table.sum()), width, width)), np.empty(n_classes)
    fill_entries(
        class_ptr,
        class_attr,
        attr_ptr,
        attr_code,
        attr_log,
        base,
        table_of,
        entry_ptr,
        prev,
        next_label,
        gain,
        psi,
        table,
        spread,
        n_labels,
        np.full(n_labels**2, -1),
        np.empty(n_labels**2, np.uint32),
        np.empty(n_labels**2),
    )
    wide = ~(spread + base_spread <= WIDE)
    widest = base_spread + spread[~wide].max(initial=0.0)
    return SparseEdges(
        base,
        np.ascontiguousarray(base.T),
        log_base,
        np.array([base_max]),
        np.array([min(widest, WIDE)]),
        wide.astype(np.uint8),
        entry_ptr,
        prev,
        next_label,
        gain,
        psi,
        table_of,
        table,
        np.ascontiguousarray(table.transpose(0, 2, 1)),
        class_ptr,
        class_attr,
        attr_ptr,
        attr_code,
        attr_log,
        np.array([n_labels]),
        bounds,
    )


class SparseScores(NamedTuple):
    """Transition scores of K classes for decoding: a base,
    and the pairs of each class that differ from it (E entries).
    """

    # (1, M, M): plain transitions, -inf where forbidden and for padding, or (0, 0, 0): 0 everywhere
    log_base: np.ndarray
    entry_ptr: np.ndarray  # int64 (K+1,)
    prev: np.ndarray  # uint32 (E,)
    next_label: np.ndarray  # uint32 (E,)
    entry_score: np.ndarray  # (E,): the base included


def sparse_scores(features, w, class_ptr, class_attr, bounds):
    """`SparseScores` of the weights w (F,) for the classes of a corpus."""
    n_labels = features.n_labels
    log_base = base_scores(features, w, bounds)
    attr_ptr, attr_code, attr_log = active_edges(features, w)
    entry_ptr = offsets(count_supports(features, attr_ptr, attr_code, class_ptr, class_attr))
    n_entries = int(entry_ptr[-1])
    prev, next_label = np.empty(n_entries, np.uint32), np.empty(n_entries, np.uint32)
    score = np.empty(n_entries)
    fill_scores(
        class_ptr,
        class_attr,
        attr_ptr,
        attr_code,
        attr_log,
        log_base,
        entry_ptr,
        prev,
        next_label,
        score,
        n_labels,
        np.full(n_labels**2, -1),
        np.empty(n_labels**2, np.uint32),
        np.empty(n_labels**2),
    )
    return SparseScores(
        log_base.reshape(1 if log_base.size else 0, *log_base.shape),
        entry_ptr,
        prev,
        next_label,
        score,
    )
