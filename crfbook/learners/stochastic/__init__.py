"""One sequence at a time: SGD, its L1 form, SAG, SDCA; and "auto", which begins with SDCA (chapter 05).

    sgd, sgd_l1     steps along the gradient of one sequence, with an L2 or a lazy L1 penalty
    sag             steps along the mean of the gradients that it remembers
    sdca            ascent of the dual, one sequence's distribution at a time
    auto            sdca, then L-BFGS for what is left
    Preconditioned       that L-BFGS, as a learner of training/loop.py

Sources: docs/SPEC.md, A.12 for SGD; averaged.py and dual.py name those of SAG and SDCA.
"""

from crfbook.learners.stochastic.averaged import sag
from crfbook.learners.stochastic.dual import sdca
from crfbook.learners.stochastic.fast import Preconditioned, auto
from crfbook.learners.stochastic.gradient_descent import sgd, sgd_l1

__all__ = ["Preconditioned", "auto", "sag", "sdca", "sgd", "sgd_l1"]
