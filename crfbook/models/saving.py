"""Model files: what of a model goes into one, and how it comes out again; CRFsuite's models come in here.

The format stands in `data/files.py`, CRFsuite's in `data/crfsuite.py`.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import File, ModelFileError, Stored, check_arrays, check_fields
from crfbook.data.crfsuite import MAGIC, read_crfsuite
from crfbook.data.features import FeatureSet
from crfbook.data.files import file_bytes, load_arrays, prefixed, save_arrays
from crfbook.models.fitting import state_table
from crfbook.models.inputs import encoder_from_state, encoder_state
from crfbook.models.parameters import ALGORITHMS, resolve
from crfbook.models.prediction import Fitted
from crfbook.tagging.tagger import LiveTagger, Tagger, by_group, chain_of

# plain numbers and words that a model file carries: their types, and the least value
FITTED = {
    "objective_": ((int, float), None), "status_": ((str,), None),
    "n_iter_": ((int,), 0), "n_dropped_": ((int,), 0),
}  # fmt: skip
SCALARS = type(None), bool, int, float, str


def plain_parameters(model, others):
    """{name: value} of the parameters that are plain values, but for `others`. NumPy's become Python's."""
    params = {n: v.item() if isinstance(v, np.generic) else v for n, v in model.get_params().items()}
    return {n: v for n, v in params.items() if isinstance(v, SCALARS) and n not in others}


class Saved(Fitted):
    """The part of an estimator that reads and writes model files.

    A subclass has a `_kind`, `_groups` of arrays beside those that every model has, parameters that are
    `_rebuilt` by other means than the header, and `_stored` and `_take_up` for what it alone has.
    """

    _kind: str
    _groups: tuple[str, ...]
    _rebuilt: tuple[str, ...] = ("template", "model_filename")

    def save(self, path: File) -> None:
        """Write the trained model to one file, atomically and without pickle.

        The state of a learner that `partial_fit` can go on from is kept; batch algorithms go on from the
        weights (warm_start). Raises NotFittedError before `fit`; TypeError for labels other than strings,
        numbers, booleans and tuples of these (of a `DCRF`: strings and numbers).
        """
        check_is_fitted(self, "weights_")
        header, arrays = self._saved()
        save_arrays(path, self._kind, header, arrays)

    def _saved(self):
        """(header, arrays) of a model file."""
        header, arrays = self._stored()
        header["encoder"], of_encoder = encoder_state(self.encoder_)
        arrays |= prefixed("encoder", of_encoder) | prefixed("history", self._history)
        header["params"] = plain_parameters(self, self._rebuilt)
        header["fitted"] = {name: getattr(self, name) for name in FITTED}
        return header, {"weights": self.weights_, **arrays}

    @classmethod
    def load(cls, path: File, trust: bool = False) -> Self:
        """A model that `save` wrote; it predicts, explains its weights and can be trained further.

        trust : whether the file comes from someone you trust. Needed for a template with regular expressions
            of its own: on some texts they take 2 seconds a cell. Those of the shipped templates need none.

        Raises ModelFileError (a ValueError) for a file that is damaged, foreign or of a later schema, and for
        such regular expressions without trust. Every array is checked before it is used; nothing in the file
        is executed.
        """
        header, arrays = load_arrays(path, cls._kind)
        try:
            return cls._restored(header, arrays, trust)
        except KeyError as error:  # an intact file that no `save` wrote
            raise ModelFileError(f"{path}: refused, {error} is missing, or no part of a model") from None
        except Exception as error:
            raise ModelFileError(f"{path}: refused, {error}") from None

    @classmethod
    def _restored(cls, header, arrays, trust):
        part = by_group(arrays, ("encoder", "history", *cls._groups))
        check_fields(header["params"], dict.fromkeys(header["params"], (SCALARS, None)))
        model = cls(**header["params"])
        model.encoder_ = encoder_from_state(header["encoder"], part["encoder"], trust)
        model.weights_ = arrays["weights"]
        model.template = getattr(model.encoder_, "template", None)
        model._take_up(header, arrays, part)
        check_fields(header["fitted"], FITTED)
        for name in FITTED:
            setattr(model, name, header["fitted"][name])
        model._history = part["history"]
        rows = (model._history["iteration"].size,)
        check_arrays(model._history, dict.fromkeys(model._history, Stored("iuf", rows, finite=False)))
        return model


class SavedCRF(Saved):
    """What of a `CRF` goes into a file, and how it comes out again."""

    _kind, _groups = "CRF", ("features", "constraints", "dictionary", "state")

    def _stored(self):
        features = self.features_._asdict()
        arrays = {f"features.{name}": features.pop(name) for name in FeatureSet._fields[3:]}
        if self.constraints_ is not None:
            arrays |= prefixed("constraints", self.constraints_._asdict())
        trained_by, learner = self._learner
        header = {"features": features, "trained_by": trained_by, "n_seen": self._n_seen}
        if self.label_sets_ is not None:
            header["dictionary"], words = self.label_sets_.get_state()
            arrays |= prefixed("dictionary", words)
        if ALGORITHMS[trained_by].one_pass is not None:
            arrays |= prefixed("state", learner or {})
        return header, arrays

    def _take_up(self, header, arrays, part):
        chain = chain_of(header, part, self.encoder_, self.weights_)
        self.features_, self.weights_, self.constraints_, self.label_sets_ = chain
        own = self.constraints_
        if self.constraints is None and own is not None:  # a table of constraints is no word of the header
            self.constraints = own._replace(label_sets=None) if self.label_sets_ else own
        check_fields(header, {"n_seen": ((int,), 0)})
        key, self._n_seen = resolve(header["trained_by"]), header["n_seen"]
        check_arrays(part["state"], state_table(key, len(self.weights_)) if part["state"] else {})
        self._learner = key, part["state"] or None


class FromCRFsuite(BaseEstimator):
    """The part of `CRF` that takes over what CRFsuite has trained, and what its scripts ask of a tagger."""

    @property
    def tagger_(self) -> Tagger:
        """A `Tagger` of this model, the same one until the next `fit`; None before the first.

        Of each thread it remembers the sequence that this thread has set.
        """
        if not hasattr(self, "weights_"):
            return None  # type: ignore[return-value]
        return self.__dict__.setdefault("_tagger", LiveTagger(self))

    @property
    def size_(self) -> int:
        """Bytes of the file that `save` writes; None before `fit`."""
        if not hasattr(self, "weights_"):
            return None  # type: ignore[return-value]
        return len(file_bytes(self._kind, *self._saved()))

    def __getattr__(self, name):
        """Of a model that was not fitted: what the file model_filename holds, if it is there."""
        path = self.__dict__.get("model_filename")
        is_path = isinstance(path, (str, bytes, os.PathLike))
        if name.endswith("_") and not name.startswith("_") and is_path and os.path.isfile(path):
            with open(path, "rb") as file:
                foreign = file.read(len(MAGIC)) == MAGIC
            known = vars(type(self).from_crfsuite(path) if foreign else type(self).load(path))
            params = self._get_param_names()
            self.__dict__.update({key: value for key, value in known.items() if key not in params})
        if isinstance(own := getattr(type(self), name, None), property):
            return own.fget(self)  # raises NotFittedError, an AttributeError, once more
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.__dict__[name]

    def __getstate__(self):  # a copy has its own
        made = "_tagger", "_sentences"
        return {name: value for name, value in super().__getstate__().items() if name not in made}

    @classmethod
    def from_crfsuite(cls, source: Any) -> Self:
        """A model of CRFsuite as a fitted CRF. It predicts the same, can be saved, and trained further
        (warm_start).

        source : path of a model file; an `sklearn_crfsuite.CRF` that is fitted; or a `pycrfsuite.Tagger` that
            has opened a model, whose `info()` rounds weights to six decimals, so that near ties may fall
            otherwise, and cannot tell some odd names. The first needs no package beside crfbook.

        Parameters of the training are not in a model: those of the result are defaults, or those of an
        `sklearn_crfsuite.CRF`. objective_ is nan.
        Raises ModelFileError (a ValueError) for a file that is damaged or of another program; TypeError for
        another source; OSError as the file system says.
        """
        params = {}
        if hasattr(source, "modelfile"):
            known = cls._get_param_names()
            params = {k: v for k, v in source.get_params().items() if k in known and v is not None}
            source = source.modelfile.name
        saved = read_crfsuite(source)
        try:
            return cls._restored(*saved, trust=False).set_params(**params)
        except ValueError as error:  # a name twice
            raise ModelFileError(f"{source}: this is no intact model of CRFsuite, {error}") from None
