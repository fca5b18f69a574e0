"""Transition potentials as tables, one a class, and the hard constraints beside them."""

from typing import NamedTuple

import numpy as np

from crfbook.chain.forward_backward import exp_edges
from crfbook.data.constraints import Bounds, bounds_of
from crfbook.data.features import log_edge


class Edges(NamedTuple):
    """Transition potentials of all classes and the hard constraints, padded to M labels with -inf."""

    log_edge: np.ndarray  # (K, M, M) [class, previous, next]
    psi_edge: np.ndarray  # (K, M, M): exp(log_edge - edge_max)
    psi_edge_t: np.ndarray  # (K, M, M): its transposes
    edge_max: np.ndarray  # (K,)
    edge_spread: np.ndarray  # (1,): largest difference of finite values inside a class
    bounds: Bounds  # of M labels


def padded(n_labels):
    """Labels padded to whole vector registers (8 doubles), so that inner loops have no remainder."""
    return -(-n_labels // 8) * 8 if n_labels > 4 else 4


def padded_bounds(constraints, n_labels):
    """`Bounds` of M labels."""
    return bounds_of(constraints, n_labels, padded(n_labels))


def table_edges(features, w, class_ptr, class_attr, bounds=None):
    """`Edges` of the weights w (F,) for the classes of a corpus. bounds: of M labels; None: all allowed."""
    return make_edges(log_edge(features, w, class_ptr, class_attr), bounds)


def make_edges(table, bounds=None):
    """`Edges` of a table of transition scores (K, L, L), forbidden ones set to -inf, padded to M labels."""
    n_classes, n_labels, _ = table.shape
    bounds = padded_bounds(None, n_labels) if bounds is None else bounds
    width = len(bounds.middle)
    scores = np.full((n_classes, width, width), -np.inf)
    scores[:, :n_labels, :n_labels] = table
    scores[:, :n_labels, :n_labels][:, bounds.edge[:n_labels, :n_labels] < 0.0] = -np.inf
    psi_edge, psi_edge_t, edge_max = np.empty_like(scores), np.empty_like(scores), np.empty(n_classes)
    spread = exp_edges(scores, psi_edge, psi_edge_t, edge_max)
    return Edges(scores, psi_edge, psi_edge_t, edge_max, np.array([spread]), bounds)
