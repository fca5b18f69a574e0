"""Estimators with scikit-learn conventions: parameters, training, prediction by names, model files."""
