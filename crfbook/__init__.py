"""crfbook: numba kernels for conditional random fields, and the estimators built on them.

The public names and modules are loaded when first used (PEP 562), so that ``import crfbook`` compiles
nothing and imports neither numba nor SciPy, pandas or scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crfbook import brute as brute
    from crfbook import chain as chain
    from crfbook import data as data
    from crfbook import datasets as datasets
    from crfbook import encoding as encoding
    from crfbook import evaluation as evaluation
    from crfbook import learners as learners
    from crfbook import metrics as metrics
    from crfbook import models as models
    from crfbook import plotting as plotting
    from crfbook import scorers as scorers
    from crfbook import training as training
    from crfbook import widgets as widgets
    from crfbook._checks import ModelFileError as ModelFileError
    from crfbook.chain.objective import Objective as Objective
    from crfbook.data.columns import TokenColumns as TokenColumns
    from crfbook.data.corpus import Corpus as Corpus
    from crfbook.data.corpus import make_corpus as make_corpus
    from crfbook.data.features import FeatureSet as FeatureSet
    from crfbook.data.readers import read_conll as read_conll
    from crfbook.data.readers import write_conll as write_conll
    from crfbook.datasets import list_datasets as list_datasets
    from crfbook.datasets import load_dataset as load_dataset
    from crfbook.encoding.encoder import Encoder as Encoder
    from crfbook.encoding.templates import Template as Template
    from crfbook.learners.quasi_newton import minimize as minimize
    from crfbook.models.crf import CRF as CRF
    from crfbook.models.directed import HMM as HMM
    from crfbook.models.directed import MEMM as MEMM
    from crfbook.models.dynamic import DCRF as DCRF
    from crfbook.models.path import regularization_path as regularization_path
    from crfbook.tagging.tagger import Tagger as Tagger

__version__ = "0.1.0"

_HOME = {
    "CRF": "crfbook.models.crf",
    "regularization_path": "crfbook.models.path",
    "Tagger": "crfbook.tagging.tagger",
    "ModelFileError": "crfbook._checks",
    "HMM": "crfbook.models.directed",
    "MEMM": "crfbook.models.directed",
    "DCRF": "crfbook.models.dynamic",
    "Corpus": "crfbook.data.corpus",
    "make_corpus": "crfbook.data.corpus",
    "FeatureSet": "crfbook.data.features",
    "Encoder": "crfbook.encoding.encoder",
    "Template": "crfbook.encoding.templates",
    "TokenColumns": "crfbook.data.columns",
    "load_dataset": "crfbook.datasets",
    "list_datasets": "crfbook.datasets",
    "read_conll": "crfbook.data.readers",
    "write_conll": "crfbook.data.readers",
    "Objective": "crfbook.chain.objective",
    "minimize": "crfbook.learners.quasi_newton",
    **{home.rpartition(".")[2]: home for home in (
        "crfbook.brute", "crfbook.chain", "crfbook.data", "crfbook.datasets", "crfbook.encoding",
        "crfbook.evaluation", "crfbook.learners", "crfbook.metrics", "crfbook.models", "crfbook.plotting",
        "crfbook.scorers", "crfbook.training", "crfbook.widgets",
    )},
}  # fmt: skip

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'crfbook' has no attribute {name!r}")
    home = import_module(_HOME[name])
    value = home if _HOME[name] == f"crfbook.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
