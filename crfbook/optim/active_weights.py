"""The weights that are not zero, of a model whose weights all exist virtually."""

from typing import NamedTuple

import numpy as np

from crfbook.data.features import FeatureSet


class Sparse(NamedTuple):
    """Active weights: a FeatureSet and its flat weights w (F,)."""

    features: FeatureSet
    w: np.ndarray

    def copy(self):
        """As that of an array: the weights are copied."""
        return self._replace(w=self.w.copy())


def scatter(sparse, features):
    """w (F,) of `features` from active weights that are among them."""
    w, n_labels = np.zeros(features.n_features), features.n_labels

    def keys(part):
        node = np.repeat(np.arange(part.n_attrs), np.diff(part.node_ptr)) * n_labels + part.node_label
        edge = np.repeat(np.arange(part.n_edge_attrs), np.diff(part.edge_ptr)) * n_labels**2
        return node, edge + part.edge_prev.astype(np.int64) * n_labels + part.edge_next

    (node, edge), (some_node, some_edge) = keys(features), keys(sparse.features)
    w[np.searchsorted(node, some_node)] = sparse.w[:len(some_node)]
    w[features.n_node + np.searchsorted(edge, some_edge)] = sparse.w[len(some_node):]
    return w
