"""L-BFGS and OWL-QN over the whole corpus, with proximal and dual relatives (chapters 03, 04 and 06).

    minimize(fun, w0, ...)          any smooth function, with c1 |w|_1 beside it
    LBFGS(fun, w0, ...)             the same as a learner of training/loop.py
    minimize_on_support(...)        L1 with few weights that move: the rest is looked at now and then
    ActiveLBFGS(objective, ...)     the same for active sets, which are made anew on the way
    Shrinking(...)                  the same as learners in a row, for a script of training/loop.py
    proximal_gradient(fun, w0, ...)  FISTA, and dual_variables(...): L1 by two baselines
    quasi_newton(corpus, ...)       what `CRF(algorithm="lbfgs")` and "owlqn" run

Sources: Andrew and Gao (2007); docs/SPEC.md, A.11; each file names its own.
"""

from crfbook.learners.quasi_newton.l1 import dual_variables, proximal_gradient
from crfbook.learners.quasi_newton.lbfgs import LBFGS, ActiveLBFGS, minimize
from crfbook.learners.quasi_newton.loss_path import quasi_newton
from crfbook.learners.quasi_newton.support import Shrinking, both_sizes, minimize_on_support

__all__ = [
    "LBFGS",
    "ActiveLBFGS",
    "Shrinking",
    "both_sizes",
    "dual_variables",
    "minimize",
    "minimize_on_support",
    "proximal_gradient",
    "quasi_newton",
]
