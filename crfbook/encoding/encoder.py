"""The encoder: the alphabets beside a `Corpus`. It learns what occurs, and encodes more text alike."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import Stored, check_arrays, check_fields, number, shown, unexpected
from crfbook.data.columns import Data
from crfbook.data.corpus import Corpus, make_corpus, owners
from crfbook.data.vocabulary import (
    Labels,
    encode_labels,
    flat_labels,
    label_alphabet,
    labels_from_json,
    labels_to_json,
    number_labels,
)
from crfbook.encoding.families import edge_classes
from crfbook.encoding.given_attributes import (
    ItemAttributes,
    MatrixAttributes,
    as_sequences,
    checked_matrix,
    is_columns,
    kind_of,
    pointers,
)
from crfbook.encoding.template_attributes import TemplateAttributes, as_columns, column_name
from crfbook.encoding.templates import TemplateLike, as_template

_KINDS = {kind.kind: kind for kind in (TemplateAttributes, ItemAttributes, MatrixAttributes)}
_HOT = 1000


class Encoder:
    """Alphabets of attributes and labels, learnt from training data.

    Parameters
    ----------
    template : Template, str, Path or None
        How attributes are made from columns of strings: a template, the name of a shipped one, a file or a
        text (`templates`). None: X brings its attributes along.
    min_freq : int
        Attributes (and edge attributes) that occur at fewer tokens of the training data are left out: the
        cut-off of CRF++'s `-f`. (CRFsuite's `feature.minfreq` is another thing: it counts (attribute, label)
        pairs and transitions, weighted by values; that choice is made where weights are chosen.)
    attribute_names : list of str or None
        Names of the columns of dense or sparse X; by default "0", "1", ...

    X may be
        with a template: a `TokenColumns`; sequences of strings, of tuples or of dicts of cells;
        without: sequences of lists of attribute strings or of dicts as python-crfsuite reads them
        (`given_attributes`); one dense array or scipy.sparse matrix (T_i, A) for each sequence.
    y has one sequence of labels for each sequence of X (a flat list will do for a `TokenColumns`). Labels may
    be strings, integers, anything hashable; None means unknown. What looks like padding is asked about: a
    number <= 0 that is alone among strings, and -100 as the only negative one (ValueError).

    Fitted: labels_ (list, sorted; place = id), n_labels, n_attrs, n_edge_attrs, attribute_counts_ (A,) int64.
    Attribute ids fall in frequency. An attribute given twice at a token has the sum of the values.
    """

    def __init__(
        self, template: TemplateLike = None, min_freq: float = 0, attribute_names: Sequence[str] | None = None
    ) -> None:
        number("min_freq", min_freq, finite=False)
        self.template = None if template is None else as_template(template)
        self.min_freq = min_freq
        self._column_names = attribute_names
        self._attributes = None

    def fit(self, X: Data, y: Labels | None = None) -> Self:
        """Learn the alphabets. Returns the encoder; arguments and errors as for `fit_transform`."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Data, y: Labels | None = None, seq_weight: ArrayLike | None = None) -> Corpus:
        """Learn the alphabets and encode X and y: a `Corpus`.

        y may be left out where X is a `TokenColumns` with labels. seq_weight: float (S,) or None.
        Raises ValueError or TypeError, naming sequence and token, for data that does not fit together, an
        empty corpus, values that are not finite, names that are not strings.
        """
        kind = kind_of(X, self.template) or "items"
        content, seq_ptr = self._content(kind, X, None)
        if seq_ptr[-1] == 0:
            raise ValueError(f"nothing to learn from: X has {len(seq_ptr) - 1} sequences and no token")
        if y is None and getattr(X, "labels", None) is None:
            raise ValueError("fit needs labels: give y, or columns that have labels")
        labels, alphabet = number_labels(self._flat(X, y, seq_ptr), int(seq_ptr[-1]), seq_ptr)
        options = {"template": (self.template,), "matrix": (self._column_names,)}
        attributes = _KINDS[kind](*options.get(kind, ()))
        rows, counts = attributes.learn(content, seq_ptr, self.min_freq)
        self._attributes, self.labels_, self.attribute_counts_ = attributes, alphabet, counts
        self.columns_ = list(content) if kind == "template" else None
        of_dicts = kind == "template" and self.columns_ != [*map(str, range(len(content)))]
        if of_dicts and not is_columns(X):
            read = {column_name(source.column, self.columns_) for source in self.template.sources}
            if unread := [name for name in content if name not in read]:
                told = f"the template reads {shown([name for name in content if name in read])}"
                warnings.warn(f"of the tokens' keys {told}; not read: {shown(unread)}", stacklevel=3)
        return make_corpus(seq_ptr, **rows._asdict(), labels=labels, seq_weight=seq_weight)

    def transform(
        self, X: Data, y: Labels | None = None, *, on_unknown_label: str | None = None,
        seq_weight: ArrayLike | None = None,
    ) -> Corpus:  # fmt: skip
        """Encode more text with the alphabets learnt: a `Corpus`. Unseen attributes are left out.

        Without y, labels that X brings along are encoded (unseen ones as unknown, -1); other text is
        unlabelled. on_unknown_label: "raise" (ValueError naming label and place;
        the default with y) or "mark" (-1).
        """
        attributes = self.attributes
        kind = kind_of(X, self.template)
        if kind not in (attributes.kind, None):
            raise ValueError(f"this encoder was fitted on {attributes.reads}, got {_KINDS[kind].reads}")
        content, seq_ptr = self._content(kind or "items", X, self.columns_)  # no token: any form will do
        labels = None
        if y is not None or getattr(X, "labels", None) is not None:
            unknown = on_unknown_label or ("mark" if y is None else "raise")
            labels = encode_labels(
                self._flat(X, y, seq_ptr), int(seq_ptr[-1]), self.labels_, seq_ptr, unknown
            )
        if seq_ptr[-1] == 0:
            return make_corpus(seq_ptr, [0], [], seq_weight=seq_weight)
        rows = attributes.apply(content, seq_ptr)
        return make_corpus(seq_ptr, **rows._asdict(), labels=labels, seq_weight=seq_weight)

    def merged(self, other: Encoder) -> Encoder:
        """The encoder that both texts together would have given, ids included. Both fitted without min_freq.

        Ids depend on what occurs how often, not on where: nothing of the text is read again.
        `renumbered` gives a corpus the new ids.

        Raises ValueError where forms of X, templates, columns or minimal frequencies differ.
        """
        for what, one, two in (
            ("form of X", self.attributes.kind, other.attributes.kind),
            ("template", *(getattr(e.template, "text", None) for e in (self, other))),
            ("columns", self.columns_, other.columns_),
            ("min_freq", max(self.min_freq, other.min_freq), 0),
        ):
            if one != two:
                both = f"{shown(one)} and {shown(two)}"
                raise unexpected(what, "the same in all parts of a text", both)
        new = Encoder(self.template, attribute_names=self._column_names)
        new._attributes, new.attribute_counts_ = self.attributes.merged(
            self.attribute_counts_, other.attributes, other.attribute_counts_
        )
        new.labels_, new.columns_ = label_alphabet({*self.labels_, *other.labels_}), self.columns_
        return new

    def decode(self, label_ids: ArrayLike, seq_ptr: ArrayLike) -> list[list[Any]]:
        """Label ids (N,) as a list of S lists of labels; -1 gives None."""
        names = [*self.labels_, None]  # -1 is the last place
        flat = [names[i] for i in np.asarray(label_ids).tolist()]
        return [flat[start:stop] for start, stop in pairwise(np.asarray(seq_ptr).tolist())]

    @property
    def n_labels(self) -> int:
        return len(self.labels_)

    @property
    def n_attrs(self) -> int:
        return self.attributes.n_attrs

    @property
    def n_edge_attrs(self) -> int:
        return self.attributes.n_edge_attrs

    @property
    def attributes(self) -> Any:
        """The alphabet of attributes: of a template, of attribute strings or of columns of numbers."""
        if self._attributes is None:
            raise ValueError("this encoder is not fitted: call fit or fit_transform first")
        return self._attributes

    def attribute_names(self, ids: Sequence[int] | None = None) -> list[Any]:
        """Texts of the attributes, in the order of ids (or of the given ids); built when asked for."""
        return self.attributes.node_names(ids)

    def attribute_name(self, i: int) -> str:
        """Text of one attribute, for example "U05:the/DT"."""
        return self.attributes.node_names([i])[0]

    def edge_attribute_names(self) -> list[str]:
        """Texts of the edge attributes; number 0 is the constant one, "B"."""
        return self.attributes.edge_names()

    def summary(self) -> str:
        """A few lines about the alphabets, to be printed."""
        hot = min(_HOT, self.n_attrs)
        counts, total = self.attribute_counts_, int(self.attribute_counts_.sum())
        share = counts[:hot].sum() / max(total, 1)
        lines = [
            f"labels           {self.n_labels:>12,}",
            f"attributes       {self.n_attrs:>12,}   ({np.count_nonzero(counts == 1):,} of them seen once)",
            f"occurrences      {total:>12,}",
            f"hot share        {share:>12.1%}   (the {hot:,} most frequent attributes' occurrences)",
            f"edge attributes  {self.n_edge_attrs:>12,}   (the constant one included)",
        ]
        return "\n".join(lines)

    def get_state(self) -> dict[str, Any]:
        """What restores the encoder, without pickle: {"header": dict for JSON, "arrays": {name: array}}."""
        attributes = self.attributes
        header, arrays = attributes.get_state()
        header = {
            "kind": attributes.kind,
            "labels": labels_to_json(self.labels_),
            "min_freq": float(self.min_freq),
            "columns": self.columns_,
            "attributes": header,
        }
        return {"header": header, "arrays": {**arrays, "attribute_counts": self.attribute_counts_}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], trust: bool = True) -> Self:
        """The inverse of `get_state`.

        trust : False refuses regular expressions that no shipped template has.

        Raises ValueError for a header of another kind, and for arrays that do not fit it.
        """
        header, arrays = state["header"], state["arrays"]
        if header.get("kind") not in _KINDS:
            kinds = f"one of the kinds {', '.join(_KINDS)}"
            raise unexpected("this is no encoder", kinds, shown(header.get("kind")))
        attributes = _KINDS[header["kind"]].from_state(header["attributes"], arrays, trust)
        check_fields(header, {"min_freq": ((int, float), 0), "columns": ((list, type(None)), None)})
        columns = header["columns"] or []
        if any(type(name) not in (str, int) for name in columns) or len(set(columns)) < len(columns):
            raise ValueError(f"columns: expected names of columns, all different, got {shown(columns)}")
        counts = Stored(np.int64, (attributes.n_attrs,), 0, None, "never rising")
        check_arrays(arrays, {"attribute_counts": counts})
        template, names = (getattr(attributes, name, None) for name in ("template", "column_names"))
        new = cls(template, header["min_freq"], names)
        new._attributes, new.labels_ = attributes, labels_from_json(header["labels"])
        new.columns_, new.attribute_counts_ = header["columns"], arrays["attribute_counts"]
        return new

    def __repr__(self):
        if self._attributes is None:
            return (
                f"Encoder(template={'yes' if self.template else None}, min_freq={self.min_freq}), not fitted"
            )
        attributes = f"{self.n_attrs:,} attributes, {self.n_edge_attrs:,} edge attributes"
        return f"Encoder({attributes}, {self.n_labels} labels)"

    @staticmethod
    def _content(kind, X, names):
        """(what the attributes class reads, seq_ptr)."""
        if kind == "template":
            return as_columns(X, names)
        if is_columns(X):
            raise ValueError("this encoder has no template and cannot read columns of strings")
        sequences = [checked_matrix(i, m) for i, m in enumerate(X)] if kind == "matrix" else as_sequences(X)
        return (sequences if kind == "matrix" else [token for s in sequences for token in s]), pointers(
            sequences
        )

    @staticmethod
    def _flat(X, y, seq_ptr):
        own = getattr(X, "labels", None)
        return own if y is None or y is own else flat_labels(y, seq_ptr, may_be_flat=is_columns(X))


def renumbered(corpus, old, new):
    """The corpus that `new` would have made of a text that `old` has encoded.

    old : encoder.
    new : encoder merged from `old` and others, in any order.

    The attributes of a token may stand in another order.
    """
    node, edge = old.attributes.places(new.attributes)
    number = {label: i for i, label in enumerate(new.labels_)}
    label = np.array([*map(number.__getitem__, old.labels_), -1], np.int32)  # -1 is the last place
    val, weight = (x if len(x) else None for x in (corpus.attr_val, corpus.seq_weight))
    attr, inner = edge[corpus.class_attr], corpus.inner
    own = np.flatnonzero(attr)  # the constant attribute belongs to every class
    sets = [(owners(corpus.class_ptr)[own], attr[own])]
    classes = np.arange(corpus.n_classes)
    class_of, class_ptr, class_attr = edge_classes(len(classes), classes, sets, new.n_edge_attrs)
    edge_class = np.zeros(corpus.n_tokens, np.int32)
    edge_class[inner] = class_of[corpus.edge_class[inner]]
    return make_corpus(
        corpus.seq_ptr, corpus.attr_ptr, node[corpus.attr_idx], attr_val=val, seq_weight=weight,
        labels=label[corpus.labels], edge_class=edge_class, class_ptr=class_ptr, class_attr=class_attr,
    )  # fmt: skip
