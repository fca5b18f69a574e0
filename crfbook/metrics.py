"""Metrics under the names of `sklearn_crfsuite.metrics`: of all tokens in a row, and of whole sequences.

Gold labels come first. Both labellings are lists of sequences. Options are those of scikit-learn.
A token whose gold label is None counts nowhere. `crfbook.evaluation.chunk_report` counts chunks (entities): a
token metric overrates them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from crfbook.evaluation import token_accuracy
from crfbook.evaluation.metrics import unmasked

if TYPE_CHECKING:
    from crfbook.evaluation.metrics import Labels

__all__ = [
    "flat_accuracy_score", "flat_classification_report", "flat_f1_score", "flat_fbeta_score",
    "flat_precision_score", "flat_recall_score", "sequence_accuracy_score",
]  # fmt: skip


def _of_tokens(name, y_true, y_pred, options):
    """The function `name` of sklearn.metrics on the labels of all tokens. Raises ValueError naming the first
    sequence whose two labellings differ in length.
    """
    from sklearn import metrics

    labels = (list(chain.from_iterable(y)) for y in unmasked(y_true, y_pred))
    return getattr(metrics, name)(*labels, **options)


def flat_accuracy_score(y_true: Labels, y_pred: Labels) -> float:
    """Share of the tokens whose label is right; 0.0 if there is no token."""
    return token_accuracy(y_true, y_pred)


def flat_precision_score(y_true: Labels, y_pred: Labels, **options: Any) -> Any:
    """`sklearn.metrics.precision_score` of the tokens."""
    return _of_tokens("precision_score", y_true, y_pred, options)


def flat_recall_score(y_true: Labels, y_pred: Labels, **options: Any) -> Any:
    """`sklearn.metrics.recall_score` of the tokens."""
    return _of_tokens("recall_score", y_true, y_pred, options)


def flat_f1_score(y_true: Labels, y_pred: Labels, **options: Any) -> Any:
    """`sklearn.metrics.f1_score` of the tokens: average="weighted" and labels=... are usual."""
    return _of_tokens("f1_score", y_true, y_pred, options)


def flat_fbeta_score(y_true: Labels, y_pred: Labels, beta: float, **options: Any) -> Any:
    """`sklearn.metrics.fbeta_score` of the tokens."""
    return _of_tokens("fbeta_score", y_true, y_pred, {"beta": beta, **options})


def flat_classification_report(y_true: Labels, y_pred: Labels, labels: Any = None, **options: Any) -> Any:
    """`sklearn.metrics.classification_report` of the tokens: text, or a dict with output_dict=True."""
    return _of_tokens("classification_report", y_true, y_pred, {"labels": labels, **options})


def sequence_accuracy_score(y_true: Labels, y_pred: Labels) -> float:
    """Share of the sequences whose labels are all right; 0.0 if there is none. Lengths may differ."""
    if len(y_true) != len(y_pred):
        raise ValueError(f"expected as many predicted as gold sequences, got {len(y_pred)} and {len(y_true)}")
    pairs = [pair for pair in zip(y_true, y_pred, strict=True) if not len(pair[0]) or set(pair[0]) != {None}]
    right = sum(len(a) == len(b) and all(x in (None, z) for x, z in zip(a, b, strict=True)) for a, b in pairs)
    return right / len(pairs) if pairs else 0.0
