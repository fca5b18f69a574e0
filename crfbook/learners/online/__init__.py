"""Learners that change weights where the prediction is wrong: perceptron, PA, AROW (chapter 05).

Sources: Altun et al. (2003), Algorithm 1; docs/SPEC.md, E.4; each file names its own.
"""

from crfbook.learners.online.online import arow, passive_aggressive, perceptron

__all__ = ["arow", "passive_aggressive", "perceptron"]
