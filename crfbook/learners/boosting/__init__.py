"""Boosting: one feature a round, under a bound of the exponential loss (chapter 05).

Source: Altun, Johnson and Hofmann (2003), section 5.2; docs/SPEC.md, E.5.
"""

from crfbook.learners.boosting.learner import boost

__all__ = ["boost"]
