"""Scorers for scikit-learn's model selection under the names of `sklearn_crfsuite.scorers`, and of chunks.

    RandomizedSearchCV(CRF(), space, scoring=crfbook.scorers.sequence_accuracy)
    RandomizedSearchCV(CRF(), space, scoring=crfbook.scorers.chunk_scorer(scheme="BIO", strict=True))

Others: `sklearn.metrics.make_scorer(crfbook.metrics.flat_f1_score, average="weighted", labels=labels)`.
"""

from typing import Any

from sklearn.metrics import make_scorer

from crfbook.evaluation import chunk_score
from crfbook.metrics import flat_accuracy_score, sequence_accuracy_score

flat_accuracy = make_scorer(flat_accuracy_score)
sequence_accuracy = make_scorer(sequence_accuracy_score)


def chunk_scorer(metric: str = "f1", scheme: str = "auto", strict: bool = False) -> Any:
    """Scorer of chunks; arguments are those of `crfbook.evaluation.chunk_score`."""
    return make_scorer(chunk_score, metric=metric, scheme=scheme, strict=strict)


chunk_f1 = chunk_scorer()
