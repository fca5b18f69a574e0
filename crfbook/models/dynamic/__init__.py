"""Dynamic CRFs as an estimator (chapters 12 and 13): estimator.py, and its files, saved.py."""

from crfbook.models.dynamic.estimator import DCRF
from crfbook.models.dynamic.saved import SavedDynamic

__all__ = ["DCRF", "SavedDynamic"]
