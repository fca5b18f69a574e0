"""Names for the types of the public face. Only type checkers import this module."""
# ruff: noqa: F401

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from os import PathLike
from typing import IO, Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from pandas import DataFrame as Frame

from crfbook.data.columns import TokenColumns
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.datasets import Dataset
from crfbook.encoding.tag_dictionary import TagDictionary
from crfbook.encoding.templates import Template
from crfbook.learners.coordinate.arrays import Sparse
from crfbook.learners.tuples.automaton import Automaton, Tuples
from crfbook.models.crf import CRF
from crfbook.training.loop import OptResult, Step

File = str | PathLike[str]
Source = File | IO[Any] | bytes

# what estimators take
Data = TokenColumns | Corpus | Iterable[Any]
Labels = Iterable[Sequence[Hashable]]
Rules = str | Constraints | Mapping[str, Any] | ArrayLike | None
Pattern = Template | File | None
Dictionary = int | TagDictionary | None
Seed = int | np.random.RandomState | None

# what optimisers take
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
Callback = Callable[[Step, Any], object] | None
State = Mapping[str, Any] | None
Limits = Constraints | None
