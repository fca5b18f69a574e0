"""Estimators with scikit-learn conventions, and inference over whole corpora."""
