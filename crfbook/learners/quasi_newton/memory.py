"""The curvature memory of L-BFGS: the last pairs (change of weights, change of gradient),
and the two-loop recursion.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import daxpy, ddot


class Pairs(NamedTuple):
    """Which rows of the memory count. Immutable: a new pair enters, whole, when this is replaced."""

    rows: tuple = ()  # oldest first
    rho: tuple = ()  # 1 / s.y of each
    scale: float = 1.0  # H0 = s.y / y.y of the newest


class CurvatureMemory:
    """Storage of at most `size` pairs  s = w' - w,  y = grad' - grad  with s.y > 0.

    One row more than `size` is kept, so that the next pair never overwrites one that counts: an interrupt at
    any moment leaves a whole memory. 2*(size + 1)*n doubles, which the system hands out only as pairs arrive.
    """

    def __init__(self, size, n):
        self.size = size
        self.s, self.y = np.zeros((size + 1, n)), np.zeros((size + 1, n))

    def add(self, pairs, w_new, w, grad_new, grad):
        """`pairs` and the pair of two points (all (n,)); unchanged when s.y <= 1e-12*|s|*|y|:
        no curvature to learn from.
        """
        free = next(row for row in range(self.size + 1) if row not in pairs.rows)
        np.subtract(w_new, w, out=self.s[free])
        np.subtract(grad_new, grad, out=self.y[free])
        return self._admit(pairs, free)

    def _admit(self, pairs, row):
        s, y = self.s[row], self.y[row]
        s_y, s_s, y_y = ddot(s, y), ddot(s, s), ddot(y, y)
        if not (s_y > 1e-12 * math.sqrt(s_s) * math.sqrt(y_y) and s_y * s_y > 0.0):
            return pairs
        return Pairs((*pairs.rows, row)[-self.size :], (*pairs.rho, 1.0 / s_y)[-self.size :], s_y / y_y)

    def load(self, s, y, rows):
        """Copy the pairs of another memory, given its arrays and the rows that count."""
        pairs = Pairs()
        for row, source in enumerate(rows[-self.size :]):
            self.s[row], self.y[row] = s[source], y[source]
            pairs = self._admit(pairs, row)
        return pairs

    def descent(self, pairs, grad, direction):
        """direction = -H*grad, where H is the inverse Hessian that the pairs describe. Both (n,);
        `direction` is overwritten.

            q = -grad
            for i newest to oldest:  a[i] = s[i].q / s[i].y[i];   q -= a[i]*y[i]
            q *= s.y/y.y (newest)
            for i oldest to newest:  b = y[i].q / s[i].y[i];      q += (a[i] - b)*s[i]

        Cost: 4*size products of length n. Source: Nocedal and Wright, algorithm 7.4.
        """
        np.negative(grad, out=direction)
        shares = []
        for row, rho in zip(reversed(pairs.rows), reversed(pairs.rho), strict=True):
            a = rho * ddot(self.s[row], direction)
            daxpy(self.y[row], direction, a=-a)
            shares.append(a)
        direction *= pairs.scale
        for row, rho, a in zip(pairs.rows, pairs.rho, reversed(shares), strict=True):
            b = rho * ddot(self.y[row], direction)
            daxpy(self.s[row], direction, a=a - b)
