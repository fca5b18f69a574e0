"""Coordinate descent for L1: weight by weight, and all weights of a symbol at once (chapters 07 to 09).

    coordinate_descent(corpus, ...)     Algorithms 1 and 2, over given or virtual weights
    solve_path(corpus, ...)             solutions for a falling row of c1
    cd, sbcd                            what `CRF(algorithm="cd")` and "sbcd" run

Source: Sokolovska et al. (2010), section 4; docs/SPEC.md, A.6 and A.10 and A.13.
"""

from crfbook.learners.coordinate.descent import cd, coordinate_descent, sbcd, solve_path

__all__ = ["cd", "coordinate_descent", "sbcd", "solve_path"]
