"""Names of python-crfsuite for programs that were written on it: `from crfbook import pycrfsuite`.

`Trainer` collects sequences, trains a `CRF` and writes its model file. `Tagger` is `crfbook.Tagger`, which
reads these files and those of CRFsuite.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

from crfbook._checks import File, one_of, shown
from crfbook.data.files import target
from crfbook.tagging.tagger import Tagger as Tagger

__all__ = ["ItemSequence", "Tagger", "Trainer"]

ALGORITHMS = {
    "lbfgs": "lbfgs", "l2sgd": "sgd", "ap": "perceptron", "averaged-perceptron": "perceptron", "pa": "pa",
    "passive-aggressive": "pa", "arow": "arow",
}  # fmt: skip
# name there -> parameter of `CRF`; other names are the same ones
PARAMETERS = {
    "feature.minfreq": "min_freq", "feature.possible_states": "all_possible_states",
    "feature.possible_transitions": "all_possible_transitions", "type": "pa_type",
    **{f"calibration.{name}": f"calibration_{name}"
       for name in ("eta", "rate", "samples", "candidates", "max_trials")},
}  # fmt: skip
FLAGS = "all_possible_states", "all_possible_transitions", "error_sensitive", "averaging"
OWN = "algorithm", "verbose", "model_filename", "template", "tag_dictionary", "trainer_cls", "keep_tempfiles"


class ItemSequence:
    """A sentence: a list of attribute dicts or lists, as it was given."""

    def __init__(self, pymod_items: Sequence[Any]) -> None:
        self._items = list(pymod_items)

    def items(self) -> list[Any]:
        """The tokens."""
        return list(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Trainer:
    """Trains as python-crfsuite's Trainer does: `append` sentences, then `train` into a file.

    algorithm : "lbfgs", "l2sgd", "ap", "pa" or "arow". params : see `set_params`. verbose : a progress bar.
    """

    def __init__(
        self, algorithm: str | None = None, params: dict[str, Any] | None = None, verbose: bool = True
    ) -> None:
        self.verbose = verbose
        self._params: dict[str, Any] = {}
        self._sentences: list[tuple[list[Any], list[Hashable], int]] = []
        self.model_: Any = None
        self.select(algorithm or "lbfgs")
        self.set_params(params or {})

    def append(self, xseq: Any, yseq: Sequence[Hashable], group: int = 0) -> None:
        """Add a copy of a sentence (of each token's dict or list) and its labels. group : see `train`.

        ValueError where their numbers differ.
        """
        xseq, yseq = xseq.items() if isinstance(xseq, ItemSequence) else list(xseq), list(yseq)
        if len(xseq) != len(yseq):
            raise ValueError(f"expected a label for each of {len(xseq)} tokens, got {len(yseq)}")
        self._sentences.append((list(map(copy.copy, xseq)), yseq, group))

    def clear(self) -> None:
        """Forget all sentences."""
        self._sentences = []

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Choose the algorithm. ValueError for an unknown one, and for another graph than the chain."""
        one_of("type", type, ("crf1d", "1d"))
        self._algorithm = ALGORITHMS[one_of("algorithm", algorithm, ALGORITHMS)]

    def set_params(self, params: dict[str, Any]) -> None:
        """Set parameters by CRFsuite's names ("c1", "feature.minfreq"); others are `CRF`'s."""
        for name, value in params.items():
            self.set(name, value)

    def set(self, name: str, value: Any) -> None:
        """Set one parameter.

        value : a number, or a string that holds one. ValueError for an unknown name, and for another string.
        """
        from crfbook.models.crf import CRF

        own = PARAMETERS.get(name, name)
        if own not in CRF().get_params() or own in OWN:
            raise ValueError(f"expected a parameter of CRFsuite or of CRF, got {shown(name)}")
        if isinstance(value, str) and own not in ("linesearch", "inference", "loss", "constraints"):
            value = float(value) if "." in value or "e" in value else int(value)  # as CRFsuite reads them
        self._params[own] = bool(value) if own in FLAGS else value

    def get(self, name: str) -> Any:
        """A parameter that was set; None: it has its default."""
        return self._params.get(PARAMETERS.get(name, name))

    def get_params(self) -> dict[str, Any]:
        """The parameters that were set, by CRFsuite's names."""
        names = {own: name for name, own in PARAMETERS.items()}
        return {names.get(own, own): value for own, value in self._params.items()}

    def train(self, model: File, holdout: int = -1) -> None:
        """Train and write the model to a file; `model_` is then the `CRF`.

        holdout : sentences of this group are left out. Their token accuracy stands in
        `model_.history_["dev_accuracy"]`. Raises what `CRF.fit`
        and `CRF.save` raise. Ctrl-C ends training with a model that is written.
        """
        from crfbook.models.crf import CRF

        target(model)
        crf = CRF(self._algorithm, verbose=self.verbose, **self._params)
        kept = [sentence for sentence in self._sentences if sentence[2] != holdout]
        held = [sentence for sentence in self._sentences if sentence[2] == holdout]
        dev = ([x for x, _, _ in held], [y for _, y, _ in held]) if held else (None, None)
        self.model_ = crf.fit([x for x, _, _ in kept], [y for _, y, _ in kept], *dev)
        self.model_.save(model)
