"""Saving and loading a CRF: what of it goes into the file, and how it comes out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from crfbook.data.constraints import Constraints
from crfbook.data.features import FeatureSet
from crfbook.encoding.tag_dictionary import LabelSets
from crfbook.models.algorithms import ALGORITHMS, resolve
from crfbook.models.inputs import encoder_from_state, encoder_state
from crfbook.models.persistence import ModelFileError, load_arrays, save_arrays
from crfbook.models.weights import check_layout

if TYPE_CHECKING:
    from crfbook._types import File

# plain numbers and words that a model file carries
FITTED = ("objective_", "status_", "n_iter_", "n_dropped_")


class Saved:
    """The part of `CRF` that reads and writes model files."""

    def save(self, path: File) -> None:
        """Write the trained model to one file (see `models.persistence`), atomically and without pickle.

        The state of a learner that `partial_fit` can go on from is kept; batch algorithms go on from the
        weights (warm_start). Raises NotFittedError before `fit`; TypeError for labels other than strings,
        numbers, booleans and tuples of these.
        """
        check_is_fitted(self, "weights_")
        state, arrays = encoder_state(self.encoder_)
        arrays = {f"encoder.{name}": array for name, array in arrays.items()}
        features = self.features_._asdict()
        arrays.update({f"features.{name}": features.pop(name) for name in FeatureSet._fields[3:]})
        arrays["weights"] = self.weights_
        if self.constraints_ is not None:
            tables = self.constraints_._asdict().items()
            arrays.update({f"constraints.{name}": table for name, table in tables if table is not None})
        arrays.update({f"history.{name}": column for name, column in self._history.items()})
        header = {
            "features": features,
            "encoder": state,
            "fitted": {name: getattr(self, name) for name in FITTED},
        }
        if self.label_sets_ is not None:
            header["dictionary"], words = self.label_sets_.get_state()
            arrays.update({f"dictionary.{name}": array for name, array in words.items()})
        trained_by, learner = self._learner
        if ALGORITHMS[trained_by].one_pass is not None:
            arrays.update({f"state.{name}": array for name, array in (learner or {}).items()})
        header["trained_by"], header["n_seen"] = trained_by, self._n_seen
        # template and a table of constraints come back from the encoder and from constraints_
        params = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
        }
        params = {
            name: value
            for name, value in params.items()
            if value is None or isinstance(value, (bool, int, float, str))
        }
        params.pop("template", None)
        save_arrays(path, "CRF", {"params": params, **header}, arrays)

    @classmethod
    def load(cls, path: File) -> Self:
        """A model that `save` wrote; it predicts,
        explains its weights and can be trained further (warm_start, partial_fit).

        Raises ModelFileError (a ValueError) for a file that is damaged, foreign or of a later schema;
        nothing in it is executed.
        """
        header, arrays = load_arrays(path, "CRF")
        try:
            return cls._restored(header, arrays)
        except Exception as error:  # an intact file that no `save` wrote
            raise ModelFileError(f"{path}: refused, {error}") from None

    @classmethod
    def _restored(cls, header, arrays):
        part = {name: {} for name in ("features", "encoder", "constraints", "history", "dictionary", "state")}
        for key, array in arrays.items():
            group, _, name = key.partition(".")
            if name:
                part[group][name] = array
        model = cls(**header["params"])
        model.encoder_ = encoder_from_state(header["encoder"], part["encoder"])
        model.features_ = FeatureSet(**header["features"], **part["features"])
        model.constraints_ = Constraints(**part["constraints"]) if part["constraints"] else None
        model.weights_ = arrays["weights"]
        check_layout(model.features_, model.weights_, model.encoder_, model.constraints_)
        model.label_sets_ = None
        if "dictionary" in header:
            model.label_sets_ = LabelSets.from_state(
                header["dictionary"], part["dictionary"], model.constraints_.label_sets
            )
        if model.constraints is None and model.constraints_ is not None:
            model.constraints = (
                model.constraints_._replace(label_sets=None) if model.label_sets_ else model.constraints_
            )
        model.template = getattr(model.encoder_, "template", None)
        for name in FITTED:
            setattr(model, name, header["fitted"][name])
        model._history, model._n_seen = part["history"], int(header["n_seen"])
        model._learner = resolve(header["trained_by"]), part["state"] or None
        return model
