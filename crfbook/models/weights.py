"""The weights of a CRF by name: dictionaries, a table, and their way into the next fit (warm start).

Weights that are exactly zero are left out of dictionaries and tables, as CRFsuite leaves them out of its
model files: they score as if they did not exist.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from crfbook.data.features import FeatureSet, empirical_counts, observed, select


def choose_features(corpus, encoder, settings, constraints):
    """FeatureSet for training, and CRFsuite's cut-off: the counts (of sums of attribute values, not of
    sample weights) must reach `min_freq`. Transitions that the constraints forbid get no weight. Where all
    weights exist virtually (`Settings.virtual`): one of the same sizes without any."""
    if settings.virtual:
        return laid_out(
            len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs, *np.zeros((2, 0), np.int64)
        )
    features = observed(
        corpus,
        len(encoder.labels_),
        encoder.n_attrs,
        encoder.n_edge_attrs,
        all_states=settings.all_states,
        all_transitions=settings.all_transitions,
    )
    keep = np.ones(features.n_features, dtype=bool)
    if constraints is not None:
        keep[features.n_node :] = constraints.allowed[features.edge_prev, features.edge_next]
    if settings.min_freq > 0:
        unweighted = corpus._replace(seq_weight=np.zeros(0))
        keep &= empirical_counts(unweighted, features) >= settings.min_freq
    return features if keep.all() else select(features, keep)


def carried_over(old, encoder, features):
    """Start weights (F,) from a fitted model: what has the same names keeps its weight, the rest is 0."""
    label = _positions(old.encoder_.labels_, encoder.labels_)
    attribute = _positions(old.encoder_.attribute_names(), encoder.attribute_names())
    edge_attribute = _positions(old.encoder_.edge_attribute_names(), encoder.edge_attribute_names())
    before, w_old = old.features_, old.weights_
    w = np.zeros(features.n_features)

    row, column = _node_rows(before)
    _copy(
        w[: features.n_node],
        _node_rows(features),
        w_old[: before.n_node],
        (attribute[row], label[column]),
        features.n_labels,
    )
    row, column = _edge_rows(before)
    pair = label[column // before.n_labels] * features.n_labels + label[column % before.n_labels]
    pair[(label[column // before.n_labels] < 0) | (label[column % before.n_labels] < 0)] = -1
    _copy(
        w[features.n_node :],
        _edge_rows(features),
        w_old[before.n_node :],
        (edge_attribute[row], pair),
        features.n_labels**2,
    )
    return w


def carried_features(old, encoder):
    """FeatureSet of those weights of a fitted model whose names the new alphabets have too."""
    label = _positions(old.encoder_.labels_, encoder.labels_)
    row, column = _node_rows(old.features_)
    attribute = _positions(old.encoder_.attribute_names(), encoder.attribute_names())[row]
    known = (attribute >= 0) & (label[column] >= 0)
    n, width = len(encoder.labels_), old.features_.n_labels
    nodes = np.sort((attribute * n + label[column])[known])
    row, column = _edge_rows(old.features_)
    before, behind = label[column // width], label[column % width]
    attribute = _positions(old.encoder_.edge_attribute_names(), encoder.edge_attribute_names())[row]
    known = (attribute >= 0) & (before >= 0) & (behind >= 0)
    return laid_out(
        n,
        encoder.n_attrs,
        encoder.n_edge_attrs,
        nodes,
        np.sort(((attribute * n + before) * n + behind)[known]),
    )


def laid_out(n_labels, n_attrs, n_edge_attrs, nodes, edges):
    """FeatureSet from rising keys: attribute * L + label, (edge attribute * L + previous) * L + next."""
    width = n_labels**2
    ptr = lambda keys, n, width: np.searchsorted(keys, np.arange(n + 1, dtype=np.int64) * width).astype(
        np.int64
    )  # noqa: E731
    pair = (edges % width).astype(np.int32)
    return FeatureSet(
        n_labels,
        n_attrs,
        n_edge_attrs,
        ptr(nodes, n_attrs, n_labels),
        (nodes % n_labels).astype(np.int32),
        ptr(edges, n_edge_attrs, width),
        pair // n_labels,
        pair % n_labels,
    )


def merged(old, new):
    """A FeatureSet that has the weights of both (of the same alphabets),
    and the places (F,) of the old one's in it.
    """
    n_labels = old.n_labels
    width = n_labels**2
    node = [row * n_labels + column for row, column in map(_node_rows, (old, new))]
    edge = [row * width + column for row, column in map(_edge_rows, (old, new))]
    nodes, edges = np.union1d(*node), np.union1d(*edge)
    place = np.concatenate([np.searchsorted(nodes, node[0]), len(nodes) + np.searchsorted(edges, edge[0])])
    return laid_out(n_labels, old.n_attrs, old.n_edge_attrs, nodes, edges), place


class WeightNames:
    """The part of `CRF` that reads its weights aloud. Needs encoder_, features_ and weights_."""

    @property
    def attributes_(self):
        """Names of the attributes that have a weight other than zero, most frequent first."""
        check_is_fitted(self, "weights_")
        names = self.encoder_.attribute_names()
        row, _ = _node_rows(self.features_)
        return [names[a] for a in np.unique(row[self.weights_[: self.features_.n_node] != 0])]

    @property
    def num_attributes_(self):
        """How many attributes have a weight other than zero."""
        return len(self.attributes_)

    @property
    def state_features_(self):
        """{(attribute, label): weight}."""
        check_is_fitted(self, "weights_")
        names, labels = self.encoder_.attribute_names(), self.encoder_.labels_
        row, column = _node_rows(self.features_)
        weights = self.weights_[: self.features_.n_node].tolist()
        return {
            (names[a], labels[y]): w
            for a, y, w in zip(row.tolist(), column.tolist(), weights, strict=True)
            if w
        }

    @property
    def transition_features_(self):
        """{(label_from, label_to): weight} of the plain transitions.

        A pair that is missing has weight 0. That does not forbid it: only `constraints` forbid.
        """
        return {(p, n): w for (b, p, n), w in self._edges() if b == 0}

    @property
    def edge_features_(self):
        """{(edge attribute, label_from, label_to): weight} of the transitions that depend on the text
        (bigram patterns of a template)."""
        check_is_fitted(self, "weights_")
        names = self.encoder_.edge_attribute_names()
        return {(names[b], p, n): w for (b, p, n), w in self._edges() if b}

    def weights_to_frame(self):
        """All weights other than zero as a pandas DataFrame, largest magnitude first.

        Columns: kind ("state", "transition" or "edge"), attribute, from, label, weight. `from` is the
        previous label of a transition and missing for a state feature;
        `attribute` is missing for a plain transition.
        """
        import pandas

        rows = [("state", a, None, y, w) for (a, y), w in self.state_features_.items()]
        rows += [("transition", None, p, n, w) for (p, n), w in self.transition_features_.items()]
        rows += [("edge", b, p, n, w) for (b, p, n), w in self.edge_features_.items()]
        frame = pandas.DataFrame(rows, columns=["kind", "attribute", "from", "label", "weight"])
        return frame.sort_values("weight", key=abs, ascending=False, kind="stable", ignore_index=True)

    def _edges(self):
        check_is_fitted(self, "weights_")
        labels, features = self.encoder_.labels_, self.features_
        row, column = _edge_rows(features)
        for b, pair, w in zip(
            row.tolist(), column.tolist(), self.weights_[features.n_node :].tolist(), strict=True
        ):
            if w:
                yield (b, labels[pair // features.n_labels], labels[pair % features.n_labels]), w


def _node_rows(features):
    """(attribute, label) of each node weight."""
    row = np.repeat(np.arange(features.n_attrs, dtype=np.int64), np.diff(features.node_ptr))
    return row, features.node_label.astype(np.int64)


def _edge_rows(features):
    """(edge attribute, previous * L + next) of each edge weight."""
    row = np.repeat(np.arange(features.n_edge_attrs, dtype=np.int64), np.diff(features.edge_ptr))
    return row, features.edge_prev.astype(np.int64) * features.n_labels + features.edge_next


def _positions(old_names, new_names):
    """Where each old name stands among the new ones, -1 if it does not."""
    where = {name: i for i, name in enumerate(new_names)}
    return np.array([where.get(name, -1) for name in old_names], dtype=np.int64)


def _copy(w, rows, w_old, old_rows, width):
    """w[k] = w_old[j] where the (row, column) of k is that of j; rows are sorted."""
    keys = rows[0] * width + rows[1]
    wanted = old_rows[0] * width + old_rows[1]
    wanted[(old_rows[0] < 0) | (old_rows[1] < 0)] = -1
    where = np.searchsorted(keys, wanted)
    hit = np.append(keys, -2)[where] == wanted
    w[where[hit]] = w_old[hit]


def check_layout(features, w, encoder, constraints):
    """Raise ValueError unless the arrays of a loaded model fit together:
    kernels trust them and check nothing.
    """
    n_labels, n_attrs, n_edge_attrs = features[:3]
    same = (n_labels, n_attrs, n_edge_attrs) == (len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs)
    rows = all(
        ptr.dtype == np.int64
        and ptr.shape == (n + 1,)
        and ptr[0] == 0
        and ptr[-1] == size
        and (np.diff(ptr) >= 0).all()
        for ptr, n, size in (
            (features.node_ptr, n_attrs, features.n_node),
            (features.edge_ptr, n_edge_attrs, features.n_edge),
        )
    )
    ids = all(
        a.dtype == np.int32 and a.ndim == 1 and (not a.size or (a.min() >= 0 and a.max() < n_labels))
        for a in (features.node_label, features.edge_prev, features.edge_next)
    )
    weights = w.dtype == np.float64 and w.shape == (features.n_features,) and np.isfinite(w).all()
    tables = constraints is None or all(
        table.dtype == bool and table.shape == shape
        for table, shape in zip(
            constraints[:3], ((n_labels, n_labels), (n_labels,), (n_labels,)), strict=True
        )
    )
    if tables and constraints is not None and constraints.label_sets is not None:
        tables = constraints.label_sets.dtype == bool and constraints.label_sets.shape[1:] == (n_labels,)
    for holds, what in (
        (same, "sizes of alphabets and weights"),
        (rows, "pointers"),
        (ids, "label ids"),
        (len(features.edge_prev) == len(features.edge_next), "edge labels"),
        (weights, "weights"),
        (tables, "constraints"),
    ):
        if not holds:
            raise ValueError(f"the {what} do not fit together")
