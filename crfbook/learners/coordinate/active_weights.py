"""The weights that are not zero, of a model whose weights all exist virtually."""

from typing import NamedTuple

import numpy as np

from crfbook.data.features import FeatureSet, find, select


class Sparse(NamedTuple):
    """Active weights: a FeatureSet and its flat weights w (F,)."""

    features: FeatureSet
    w: np.ndarray

    def copy(self):
        """As that of an array: the weights are copied."""
        return self._replace(w=self.w.copy())


def scatter(sparse, features):
    """w (F,) of `features` from active weights; ValueError unless they are among them."""
    w, part = np.zeros(features.n_features), sparse.features
    n, n_node = part.n_node, features.n_node
    for kind, known, some, out, value in (
        ("node", features.node_keys, part.node_keys, w[:n_node], sparse.w[:n]),
        ("edge", features.edge_keys, part.edge_keys, w[n_node:], sparse.w[n:]),
    ):
        at, hit = find(known, some)
        if not hit.all():
            raise ValueError(
                "expected weights of the given features alone, "
                f"got {np.count_nonzero(~hit)} {kind} weights of others"
            )
        out[at] = value
    return w


def active_among(name, sparse, sizes, features=None, edge_kept=None):
    """`Sparse` of the weights of one that are not zero, checked: finite, one for each feature,
    and only of features that exist here.

    sizes: (L, A, B); features: a FeatureSet, or None: all of these sizes, of the edge attributes where
    edge_kept (B,). Raises ValueError that begins with `name`.
    """
    given, w = sparse.features, np.asarray(sparse.w)
    try:
        if w.dtype.kind not in "fiu" or w.shape != (given.n_features,):
            raise ValueError(
                f"expected one weight for each of its {given.n_features} features, got {w.dtype} {w.shape}"
            )
        if not np.isfinite(w).all():
            raise ValueError(f"expected finite weights, got {w[~np.isfinite(w)][0]}")
        active = Sparse(select(given, w != 0), np.ascontiguousarray(w[w != 0], np.float64))
        held = [
            1 + int(np.flatnonzero(np.diff(ptr)).max(initial=-1))
            for ptr in (active.features.node_ptr, active.features.edge_ptr)
        ]
        if given.n_labels != sizes[0] or held[0] > sizes[1] or held[1] > sizes[2]:
            raise ValueError(
                f"expected weights of at most (L, A, B) = {tuple(sizes)}, "
                f"got those of {(given.n_labels, *held)}"
            )
        if features is not None:
            scatter(active, features)
        elif not edge_kept[np.flatnonzero(np.diff(active.features.edge_ptr))].all():
            raise ValueError("expected no weights of edge attributes that are not among edge_attrs")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return active
