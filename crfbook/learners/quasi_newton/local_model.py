"""What L-BFGS knows of the curvature, and the step to the minimum of that model with an L1 penalty beside it.

The memory keeps the last pairs (change of weights, change of gradient) and goes down by the two-loop
recursion. With a penalty there is

    d = argmin_d  g.d + d'B d/2 + c1 |w + d|_1,    B from the pairs of L-BFGS, d = 0 outside the free weights

OWL-QN cuts the step of a smooth model where it would leave its orthant; here the model knows the kink, so
that a weight may go to zero, stay there or change sign inside one step, and long memories pay. Free weights
are those that are not zero or whose pseudo-gradient is not. The pairs are read on the free weights alone:
there they are pairs of the smaller problem.

Sources: Scheinberg and Tang (2016), "Practical inexact proximal quasi-Newton method"; Lee, Sun and Saunders
(2014); the compact form of B is Byrd, Nocedal and Schnabel (1994), eq. 2.17,
with a diagonal in place of a multiple of the identity.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import daxpy, ddot

from crfbook.learners.quasi_newton.steps import descend_model

ROUNDS = 2  # of coordinate descent, which finds the signs, and a Newton step, which finds the rest
SWEEPS = 10  # of coordinate descent in a round
TOLERANCE = 0.001  # times the largest pseudo-gradient: slopes of the model below that are flat
FIRST_DIAGONAL = (
    20  # the diagonal is measured after 20, 60, 180, ... iterations: far from the start and never often
)
FLOOR = 0.5  # times c1: curvature at least taken for granted, so that rare features make no leaps


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


class LocalModel:
    """The model and its diagonal D (F,), which is 1 until `curvature(w) -> (F,)`, if there is one,
    has been asked.
    """

    def __init__(self, c1, curvature):
        self.c1, self.curvature = c1, curvature
        self.diagonal = np.zeros(0)

    def is_due(self, iteration):
        """Is the diagonal to be measured before this iteration's step?"""
        due = FIRST_DIAGONAL
        while due < iteration:
            due *= 3
        return self.curvature is not None and iteration == due

    def measure(self, w):
        h = np.asarray(self.curvature(w), dtype=np.float64)
        if h.shape != w.shape:
            raise ValueError(f"fun.curvature must return shape {w.shape}, got {h.shape}")
        self.diagonal = np.where(np.isfinite(h), np.maximum(h, FLOOR * self.c1), 1.0)

    def descend(self, w, grad, pg, memory, pairs, direction):
        """Write the step (F,) into `direction`; returns  g.d + c1 (|w + d|_1 - |w|_1),
        the change it promises (negative).
        """
        free = np.flatnonzero((w != 0.0) | (pg != 0.0))
        x, g = w[free], grad[free]
        diagonal = self.diagonal[free] if self.diagonal.size else np.ones(len(free))
        s, y = _normalised(memory.s, memory.y, pairs.rows, free)
        if len(s):
            diagonal *= (y[-1] / diagonal) @ y[-1]
        else:
            diagonal = np.full(len(free), max(1.0, math.sqrt(pg @ pg)))
        left, right = _compact(s, y, diagonal)
        moved = _solve(x, g, diagonal, left, right, self.c1, TOLERANCE * np.abs(pg).max())
        direction[:] = 0.0
        direction[free] = moved - x
        return float(g @ (moved - x) + self.c1 * (np.abs(moved).sum() - np.abs(x).sum()))


def _solve(x, g, diagonal, left, right, c1, tolerance):
    """x + d (n,) at the minimum of the model, nearly: every round lowers it."""
    n, r = left.shape
    moved, width, product = x.copy(), np.empty(n), np.empty(r)

    def model(at):
        d = at - x
        return g @ d + 0.5 * (d @ (diagonal * d) - (d @ left) @ (right.T @ d)) + c1 * np.abs(at).sum()

    for _ in range(ROUNDS):
        if descend_model(x, g, diagonal, left, right, c1, SWEEPS, tolerance, moved, width, product) < SWEEPS:
            break
        tried = _newton(x, g, diagonal, left, right, c1, moved)
        if model(tried) < model(moved):
            moved = tried
    return moved


def _newton(x, g, diagonal, left, right, c1, moved):
    """The minimum of the model while all signs stay as they are;
    a weight that would change sign becomes 0 instead.
    """
    kept = np.flatnonzero(moved)
    d, sign = moved - x, np.sign(moved[kept])
    slope = g[kept] + diagonal[kept] * d[kept] - left[kept] @ (right.T @ d) + c1 * sign
    scaled, step = left[kept] / diagonal[kept, None], slope / diagonal[kept]
    # Sherman, Morrison, Woodbury: r equations instead of n
    small = np.eye(left.shape[1]) - right[kept].T @ scaled
    step = step + scaled @ np.linalg.solve(small, right[kept].T @ step)
    tried = moved.copy()
    tried[kept] = np.where((moved[kept] - step) * sign > 0, moved[kept] - step, 0.0)
    return tried


def _normalised(s, y, rows, free):
    """Pairs (m, n) on the free weights, oldest first, scaled to s.y = 1;
    those without curvature there are left out.
    """
    s, y = (
        np.array([table[row].take(free) for row in rows]).reshape(len(rows), len(free)) for table in (s, y)
    )
    s_y = np.einsum("ij,ij->i", s, y)
    scale = np.sqrt(np.einsum("ij,ij->i", s, s) * np.einsum("ij,ij->i", y, y))
    good = s_y > 1e-10 * scale
    root = np.sqrt(s_y[good])[:, None]
    return s[good] / root, y[good] / root


def _compact(s, y, diagonal):
    """left, right (n, 2m) with  B = diag(diagonal) - left right^T  the BFGS matrix of pairs with s.y = 1."""
    scaled = s * diagonal
    lower = np.tril(s @ y.T, -1)
    middle = np.block([[scaled @ s.T, lower], [lower.T, -np.eye(len(s))]])
    left = np.ascontiguousarray(np.concatenate([scaled, y]).T)
    return left, left @ np.linalg.inv(middle)
