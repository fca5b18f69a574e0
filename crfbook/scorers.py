"""Scorers for scikit-learn's model selection under the names of `sklearn_crfsuite.scorers`.

    RandomizedSearchCV(CRF(), space, scoring=crfbook.scorers.sequence_accuracy)

Others: `sklearn.metrics.make_scorer(crfbook.metrics.flat_f1_score, average="weighted", labels=labels)`.
"""

from sklearn.metrics import make_scorer

from crfbook.metrics import flat_accuracy_score, sequence_accuracy_score

flat_accuracy = make_scorer(flat_accuracy_score)
sequence_accuracy = make_scorer(sequence_accuracy_score)
