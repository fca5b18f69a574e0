"""The weights of a CRF by name: dictionaries, a table, and their way into the next fit (warm start).

Weights that are exactly zero are left out of dictionaries and tables, as CRFsuite leaves them out of its
model files: they score as if they did not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import Stored, check_arrays, check_fields, pointers
from crfbook.data.features import FeatureSet, empirical_counts, find, from_keys, observed, select

if TYPE_CHECKING:
    from pandas import DataFrame

SIZES = FeatureSet._fields[:3]


def choose_features(corpus, encoder, settings, constraints):
    """FeatureSet for training, and CRFsuite's cut-off: the counts (of sums of attribute values, not of
    sample weights) must reach `min_freq`. Transitions that the constraints forbid get no weight. Where all
    weights exist virtually (`Settings.virtual`): one of the same sizes without any."""
    sizes = len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs
    if settings.virtual:
        return from_keys(*sizes, *np.zeros((2, 0), np.int64))
    every = dict(all_states=settings.all_possible_states, all_transitions=settings.all_possible_transitions)
    features, counts = observed(corpus, *sizes, **every), None
    if settings.min_freq > 0:
        counts = empirical_counts(corpus._replace(seq_weight=np.zeros(0)), features)
    return kept_weights(features, counts, settings.min_freq, constraints)


def kept_weights(features, counts, min_freq, constraints):
    """FeatureSet without transitions that the constraints forbid, and without weights whose counts (F,) do
    not reach min_freq (counts None: all do).
    """
    keep = np.ones(features.n_features, dtype=bool)
    if constraints is not None:
        keep[features.n_node :] = constraints.allowed[features.edge_prev, features.edge_next]
    if counts is not None:
        keep &= counts >= min_freq
    return features if keep.all() else select(features, keep)


def carried_over(old, encoder, features):
    """Start weights (F,) from a fitted model: what has the same names keeps its weight, the rest is 0."""
    label, attribute, edge_attribute = _new_places(old.encoder_, encoder)
    before, w_old = old.features_, old.weights_
    w = np.zeros(features.n_features)

    n, n_node = features.n_labels, features.n_node
    nodes = _joined(n, attribute[before.node_attr], label[before.node_label])
    edges = _joined(n, edge_attribute[before.edge_attr], label[before.edge_prev], label[before.edge_next])
    for keys, wanted, new, old in (
        (features.node_keys, nodes, w[:n_node], w_old[: before.n_node]),
        (features.edge_keys, edges, w[n_node:], w_old[before.n_node :]),
    ):
        where, hit = find(keys, wanted)
        new[where[hit]] = old[hit]
    return w


def carried_features(old, encoder):
    """FeatureSet of those weights of a fitted model whose names the new alphabets have too."""
    label, attribute, edge_attribute = _new_places(old.encoder_, encoder)
    before, n = old.features_, len(encoder.labels_)
    nodes = _joined(n, attribute[before.node_attr], label[before.node_label])
    edges = _joined(n, edge_attribute[before.edge_attr], label[before.edge_prev], label[before.edge_next])
    nodes, edges = (np.sort(keys[keys >= 0]) for keys in (nodes, edges))
    return from_keys(n, encoder.n_attrs, encoder.n_edge_attrs, nodes, edges)


def _new_places(old, new):
    """Where each label, attribute and edge attribute of an encoder stands in a new one, -1 if it does not."""
    return (
        _positions(old.labels_, new.labels_),
        _positions(old.attribute_names(), new.attribute_names()),
        _positions(old.edge_attribute_names(), new.edge_attribute_names()),
    )


def _joined(n_labels, owner, *labels):
    """Keys (owner * L + label) * L + ..., -1 where a part is."""
    key = owner
    for label in labels:
        key = np.where((key < 0) | (label < 0), -1, key * n_labels + label)
    return key


def merged(old, new):
    """A FeatureSet that has the weights of both (of the same alphabets),
    and the places (F,) of the old one's in it.
    """
    nodes, edges = np.union1d(old.node_keys, new.node_keys), np.union1d(old.edge_keys, new.edge_keys)
    place = [np.searchsorted(nodes, old.node_keys), len(nodes) + np.searchsorted(edges, old.edge_keys)]
    return from_keys(*old.sizes, nodes, edges), np.concatenate(place)


class WeightNames:
    """The part of `CRF` that reads its weights aloud. Needs encoder_, features_ and weights_."""

    @property
    def attributes_(self) -> list[Any]:
        """Names of the attributes that have a weight other than zero, most frequent first."""
        check_is_fitted(self, "weights_")
        names = self.encoder_.attribute_names()
        attrs = self.features_.node_attr[self.weights_[: self.features_.n_node] != 0]
        return [names[a] for a in np.unique(attrs)]

    @property
    def num_attributes_(self) -> int:
        """How many attributes have a weight other than zero."""
        return len(self.attributes_)

    @property
    def state_features_(self) -> dict[tuple[Any, Any], float]:
        """{(attribute, label): weight}."""
        check_is_fitted(self, "weights_")
        names, labels = self.encoder_.attribute_names(), self.encoder_.labels_
        attrs, ids = self.features_.node_attr.tolist(), self.features_.node_label.tolist()
        weights = self.weights_[: self.features_.n_node].tolist()
        return {(names[a], labels[y]): w for a, y, w in zip(attrs, ids, weights, strict=True) if w}

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """{(label_from, label_to): weight} of the plain transitions.

        A pair that is missing has weight 0. That does not forbid it: only `constraints` forbid.
        """
        return {(p, n): w for (b, p, n), w in self._edges() if b == 0}

    @property
    def edge_features_(self) -> dict[tuple[Any, Any, Any], float]:
        """{(edge attribute, label_from, label_to): weight} of the transitions that depend on the text
        (bigram patterns of a template)."""
        check_is_fitted(self, "weights_")
        names = self.encoder_.edge_attribute_names()
        return {(names[b], p, n): w for (b, p, n), w in self._edges() if b}

    def weights_to_frame(self) -> DataFrame:
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
        columns = features.edge_attr, features.edge_prev, features.edge_next, self.weights_[features.n_node :]
        for b, p, n, w in zip(*(column.tolist() for column in columns), strict=True):
            if w:
                yield (b, labels[p], labels[n]), w


def _positions(old_names, new_names):
    """Where each old name stands among the new ones, -1 if it does not."""
    where = {name: i for i, name in enumerate(new_names)}
    return np.array([where.get(name, -1) for name in old_names], dtype=np.int64)


def check_layout(features, w, encoder, constraints):
    """Raise ValueError unless the arrays of a loaded model fit together:
    kernels trust them and check nothing.
    """
    check_features(features, constraints, (len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs))
    check_arrays({"weights": w}, {"weights": Stored(np.float64, (features.n_features,))})


def check_features(features, constraints, known=None):
    """ValueError unless a `FeatureSet` and `Constraints` (or None) of a file, of a model or of a shard, fit
    together. known : the sizes of their alphabets, where these are at hand.
    """
    check_fields(
        features._asdict(), {name: ((int,), least) for name, least in zip(SIZES, (1, 0, 1), strict=True)}
    )
    n_labels, n_attrs, n_edge_attrs = features.sizes
    known = known or features.sizes
    if features.sizes != known or max(n_attrs, n_edge_attrs * n_labels) * n_labels >= 2**63:
        raise ValueError(f"sizes of alphabets and weights: expected {known}, got {features.sizes}")
    labels = Stored(np.int32, (None,), 0, n_labels)
    check_arrays(features._asdict(), dict.fromkeys(("node_label", "edge_prev"), labels))
    n_node, n_edge = features.n_node, features.edge_prev.size
    check_arrays(
        features._asdict(),
        {
            "node_ptr": pointers(n_attrs, n_node),
            "edge_ptr": pointers(n_edge_attrs, n_edge),
            "edge_next": labels._replace(shape=(n_edge,)),
        },
    )
    for name in ("node_keys", "edge_keys"):  # their labels rise within each row
        check_arrays({name: getattr(features, name)}, {name: Stored(np.int64, order="rising")})
    if constraints is not None:
        tables = {name: table for name, table in constraints._asdict().items() if table is not None}
        shapes = zip(tables, ((n_labels, n_labels), (n_labels,), (n_labels,), (None, n_labels)), strict=False)
        check_arrays(tables, {name: Stored(bool, shape) for name, shape in shapes})
