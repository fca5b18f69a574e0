"""crfbook: numba kernels for conditional random fields, and the estimators built on them.

The public names are loaded when first used (PEP 562), so that ``import crfbook`` compiles nothing and
imports neither numba nor SciPy, pandas or scikit-learn.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "CRF": "crfbook.models.linear_chain",
    "regularization_path": "crfbook.models.path",
    "HMM": "crfbook.models.directed",
    "MEMM": "crfbook.models.directed",
    "Corpus": "crfbook.data.corpus",
    "make_corpus": "crfbook.data.corpus",
    "FeatureSet": "crfbook.data.features",
    "Encoder": "crfbook.data.encoder",
    "Template": "crfbook.data.templates",
    "TokenColumns": "crfbook.data.columns",
    "load_dataset": "crfbook.data.datasets",
    "list_datasets": "crfbook.data.datasets",
    "read_conll": "crfbook.data.readers",
    "write_conll": "crfbook.data.readers",
    "Objective": "crfbook.optim.objective",
    "minimize": "crfbook.optim.quasi_newton",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'crfbook' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
