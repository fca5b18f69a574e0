"""Files of dynamic CRFs: what of one goes into a file, and how it comes out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import (
    ModelFileError,
    Stored,
    check_arrays,
    check_fields,
    one_of,
    pointers,
    shown,
    whole,
)
from crfbook.data.constraints import Constraints
from crfbook.data.features import FeatureSet
from crfbook.dynamic import Clique, engines_of, lay_out_template, memories_of, reads_links, with_tables
from crfbook.models.inputs import IntegerAlphabet, encoder_from_state, encoder_state
from crfbook.models.saving import FITTED, SCALARS, load_arrays, save_arrays

if TYPE_CHECKING:
    from crfbook._types import File

REBUILT = "cliques", "labels", "template", "constraints"  # of a file by other means than its parameters


class SavedDynamic:
    """The part of `DCRF` that reads and writes model files."""

    def save(self, path: File) -> None:
        """Write the model to one file, atomically and without pickle. Labels are strings or numbers."""
        check_is_fitted(self, "weights_")
        for name, labels in self._classes.items():
            for label in labels:
                if not isinstance(label, str | int | float | None):
                    raise TypeError(
                        f"column {name!r}: expected labels that are strings or numbers, got {shown(label)}"
                    )
        state, arrays = encoder_state(self.encoder_)
        arrays = {f"encoder.{name}": array for name, array in arrays.items()}
        arrays |= {
            "weights": self.weights_,
            "node_ptr": self.features_.node_ptr,
            "node_label": self.features_.node_label,
        }
        arrays |= {f"history.{name}": column for name, column in self._history.items()}
        keys = list(self._limits)
        for i, limits in enumerate(self._limits.values()):
            parts = limits[:3] if isinstance(limits, Constraints) else (limits,)
            arrays |= {f"limits.{i}.{j}": part for j, part in enumerate(parts)}
        params = {n: v.item() if isinstance(v, np.generic) else v for n, v in self.get_params().items()}
        params = {n: v for n, v in params.items() if v is None or isinstance(v, bool | int | float | str)}
        header = {
            "params": {n: v for n, v in params.items() if n not in REBUILT}, "labels": list(self._columns),
            "encoder": state, "classes": self._classes, "limits": keys,
            "cliques": [list(clique) for clique in self._cliques],
            "fitted": {name: getattr(self, name) for name in FITTED}, "engine": self.engine_,
            "unconverged": self.n_unconverged_,
        }  # fmt: skip
        save_arrays(path, "DCRF", header, arrays)

    @classmethod
    def load(cls, path: File, trust: bool = False) -> Self:
        """A model that `save` wrote. trust : as in `CRF.load`. Raises ModelFileError as that does."""
        header, arrays = load_arrays(path, "DCRF")
        try:
            return cls._restored(header, arrays, trust)
        except KeyError as error:
            raise ModelFileError(f"{path}: refused, {error} is missing, or no part of a model") from None
        except Exception as error:
            raise ModelFileError(f"{path}: refused, {error}") from None

    @classmethod
    def _restored(cls, header, arrays, trust):
        cliques = [
            Clique(tuple((dt, chain) for dt, chain in at), features, rule, tuple(labels))
            for at, features, rule, labels in header["cliques"]
        ]
        part = {name: {} for name in ("encoder", "history", "limits")}
        for key, array in arrays.items():
            group, _, name = key.partition(".")
            if name:
                part[group][name] = array
        check_fields(header["params"], {name: (SCALARS, None) for name in header["params"]})
        model = cls(cliques, tuple(header["labels"]), **header["params"])
        model._classes, model._limits, model._columns = header["classes"], {}, model._names()
        check_classes(model._classes, [*model._columns, *memories_of(cliques)])
        check_arrays(part["limits"], {n: Stored(bool, array.shape) for n, array in part["limits"].items()})
        for i, key in enumerate(header["limits"]):
            parts = [part["limits"][f"{i}.{j}"] for j in range(3 if isinstance(key, str) else 1)]
            model._limits[key if isinstance(key, str) else tuple(key)] = (
                Constraints(*parts) if len(parts) > 1 else parts[0]
            )
        model.encoder_ = encoder_from_state(header["encoder"], part["encoder"], trust)
        model.layout_ = lay_out_template(cliques, tuple(model._classes), model._classes, model._limits)
        check_sizes(model.layout_, model.encoder_, arrays)
        n_attrs = len(arrays["node_ptr"]) - 1
        none = np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
        nodes = FeatureSet(model.layout_.n_cells, n_attrs, 1, arrays["node_ptr"], arrays["node_label"], *none)
        model.features_, model.weights_ = with_tables(nodes, model.layout_), arrays["weights"]
        check_arrays({"node_keys": nodes.node_keys}, {"node_keys": Stored(np.int64, order="rising")})
        check_fields(header["fitted"], FITTED)
        for name in FITTED:
            setattr(model, name, header["fitted"][name])
        model.engine_ = one_of("engine", header["engine"], engines_of(model.layout_))
        corpora = isinstance(model.encoder_, IntegerAlphabet)  # which have links of their own
        if reads_links(cliques) and not (corpora or isinstance(model.link, str)):
            raise ValueError(f"link: expected the name of a column, got {shown(model.link)}")
        model.n_unconverged_ = whole("unconverged", header.get("unconverged", 0), 0)
        model.constraints = model._limits or None
        rows = (part["history"]["iteration"].size,)
        check_arrays(part["history"], dict.fromkeys(part["history"], Stored("iuf", rows, finite=False)))
        model.template, model._history = getattr(model.encoder_, "template", None), part["history"]
        model._cliques = cliques
        return model


def check_classes(classes, names):
    """ValueError unless {column: its labels} of a file has the columns `names`, each label once."""
    if list(classes) != names:
        raise ValueError(f"classes: expected the columns {', '.join(names)}, got {', '.join(classes)}")
    for name, labels in classes.items():
        plain = type(labels) is list and all(isinstance(label, SCALARS) for label in labels)
        if not plain or not labels or len(set(labels)) < len(labels):
            raise ValueError(f"column {name!r}: expected different labels, got {shown(labels)}")


def check_sizes(layout, encoder, arrays):
    """ValueError where the arrays of a file do not fit its template and its attributes, before more is made
    of them.
    """
    n_attrs, n_node = max(encoder.n_attrs, 1), arrays["node_label"].size
    check_arrays(
        arrays,
        {
            "node_ptr": pointers(n_attrs, n_node),
            "node_label": Stored(np.int32, (n_node,), 0, layout.n_cells),
            "weights": Stored(np.float64, (n_node + layout.n_tables,)),
        },
    )
