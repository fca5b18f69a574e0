"""Transition potentials as tables, one a class: what the batched forms work on,
and the hard constraints beside them.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.forward_backward import exp_edges
from crfbook.chain.likelihood import add_tree
from crfbook.data.constraints import Bounds, bounds_of
from crfbook.data.features import edge_gradient, log_edge


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


class TableTransitions:
    """The transitions of an `Objective` as tables (K, M, M), filled from the weights at each evaluation."""

    def __init__(self, features, classes, bounds, n_shards):
        self.features, self.classes, self.bounds = features, classes, bounds
        width, n_classes = padded(features.n_labels), len(classes[0]) - 1
        self.parts = np.empty((n_shards, n_classes, width, width))

    def prepare(self, w, kernel):
        """Fill the tables from w (F,) for `kernel`."""
        self.edges = table_edges(self.features, w, *self.classes, self.bounds)

    def run(self, kernel, shard, w, dense, packing, layout, work, counts):
        """`kernel`, shard_likelihood or what takes its place, on one shard."""
        return kernel(shard, w, dense, self.edges, packing, layout, work, counts, self.parts[shard])

    def collect(self, total):
        """Add what all shards found into the edge part of total (F,)."""
        n_labels, n_shards = self.features.n_labels, len(self.parts)
        edge_sum = np.empty(self.parts.shape[1:])
        add_tree(self.parts.reshape(n_shards, -1), edge_sum.reshape(-1))
        edge_gradient(self.features, edge_sum[:, :n_labels, :n_labels], *self.classes, total)
