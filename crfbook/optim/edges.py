"""Transition potentials as tables, one a class: what the batched forms work on,
and the hard constraints beside them.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.features import edge_gradient, log_edge
from crfbook.kernels.forward_backward import exp_edges
from crfbook.kernels.likelihood import add_tree


class Edges(NamedTuple):
    """Transition potentials of all classes and the hard constraints, padded to M labels with -inf."""

    log_edge: np.ndarray  # (K, M, M) [class, previous, next]
    psi_edge: np.ndarray  # (K, M, M): exp(log_edge - edge_max)
    psi_edge_t: np.ndarray  # (K, M, M): its transposes
    edge_max: np.ndarray  # (K,)
    edge_spread: np.ndarray  # (1,): largest difference of finite values inside a class
    start: np.ndarray  # (M,): 0 where a label may open a sequence, -inf where not
    middle: np.ndarray  # (M,): 0, and -inf for padding labels
    end: np.ndarray  # (M,)
    label_sets: np.ndarray  # (D, M): 0 where a word of that set may have a label, -inf where not


def padded(n_labels):
    """Labels padded to whole vector registers (8 doubles), so that inner loops have no remainder."""
    return -(-n_labels // 8) * 8 if n_labels > 4 else 4


def label_bounds(n_labels, constraints=None):
    """(start, middle, end (M,), label_sets (D, M)) of an `Edges`: 0 where a label may stand,
    -inf where not.
    """
    width = padded(n_labels)
    middle = np.full(width, -np.inf)
    middle[:n_labels] = 0.0
    start, end = middle.copy(), middle.copy()
    sets = (
        np.zeros((0, n_labels), bool)
        if constraints is None or constraints.label_sets is None
        else constraints.label_sets
    )
    label_sets = np.tile(middle, (len(sets), 1))
    label_sets[:, :n_labels][~sets] = -np.inf
    if constraints is not None:
        start[:n_labels][~constraints.start] = -np.inf
        end[:n_labels][~constraints.end] = -np.inf
    return start, middle, end, label_sets


class Bounds(NamedTuple):
    """The hard constraints of an `Edges` alone: all that scores of tokens need."""

    start: np.ndarray  # (M,)
    middle: np.ndarray  # (M,)
    end: np.ndarray  # (M,)
    label_sets: np.ndarray  # (D, M)


def no_tables(features, w, class_ptr, class_attr, constraints=None):
    """`Bounds`, where no transitions are needed; arguments as those of `table_edges`."""
    return Bounds(*label_bounds(features.n_labels, constraints))


def table_edges(features, w, class_ptr, class_attr, constraints=None):
    """`Edges` of the weights w (F,) for the classes of a corpus."""
    return make_edges(log_edge(features, w, class_ptr, class_attr), constraints)


def make_edges(table, constraints=None):
    """`Edges` of a table of transition scores (K, L, L), forbidden ones set to -inf, padded to M labels."""
    n_classes, n_labels, _ = table.shape
    width = padded(n_labels)
    scores = np.full((n_classes, width, width), -np.inf)
    scores[:, :n_labels, :n_labels] = table
    if constraints is not None:
        scores[:, :n_labels, :n_labels][:, ~constraints.allowed] = -np.inf
    psi_edge, psi_edge_t = np.empty_like(scores), np.empty_like(scores)
    edge_max = np.empty(n_classes)
    spread = exp_edges(scores, psi_edge, psi_edge_t, edge_max)
    return Edges(
        scores, psi_edge, psi_edge_t, edge_max, np.array([spread]), *label_bounds(n_labels, constraints)
    )


class TableTransitions:
    """The transitions of an `Objective` as tables (K, M, M), filled from the weights at each evaluation."""

    def __init__(self, features, classes, constraints, n_shards):
        self.features, self.classes, self.constraints = features, classes, constraints
        width, n_classes = padded(features.n_labels), len(classes[0]) - 1
        self.parts = np.empty((n_shards, n_classes, width, width))

    def prepare(self, w, kernel):
        """Fill the tables from w (F,) for `kernel`."""
        self.edges = table_edges(self.features, w, *self.classes, self.constraints)

    def run(self, kernel, shard, w, dense, packing, layout, weight, work, log_z, grad, dense_grad):
        """`kernel`, shard_likelihood or what takes its place, on one shard."""
        return kernel(
            shard,
            w,
            dense,
            self.edges,
            packing,
            layout,
            weight,
            work,
            log_z,
            grad,
            dense_grad,
            self.parts[shard],
        )

    def collect(self, total):
        """Add what all shards found into the edge part of total (F,)."""
        n_labels, n_shards = self.features.n_labels, len(self.parts)
        edge_sum = np.empty(self.parts.shape[1:])
        add_tree(self.parts.reshape(n_shards, -1), edge_sum.reshape(-1))
        edge_gradient(self.features, edge_sum[:, :n_labels, :n_labels], *self.classes, total)
