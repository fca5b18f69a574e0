"""One sequence at a time: SGD, its L1 form, SAG, SDCA; and "auto", which begins with SDCA (chapter 05).

Sources: docs/SPEC.md, A.12; each file names its own.
"""

from crfbook.learners.stochastic.averaged import sag
from crfbook.learners.stochastic.dual import sdca
from crfbook.learners.stochastic.fast import auto
from crfbook.learners.stochastic.gradient_descent import sgd, sgd_l1

__all__ = ["auto", "sag", "sdca", "sgd", "sgd_l1"]
