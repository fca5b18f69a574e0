"""exp of a whole array as straight-line arithmetic, which LLVM turns into vector instructions.

numba calls the C library's ``exp`` once per element. Range reduction and a polynomial without a branch let
the loop run on 4 or 8 doubles at once.
"""

import numpy as np

from crfbook._jit import kernel

# 1/ln 2, and ln 2 in two pieces: the first ends in 20 zero bits, so that k * LN2_HIGH is exact for |k| <=
# 1024.
LOG2_E = 1.4426950408889634074
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
# 1.5 * 2^52: adding it to a small number rounds that to an integer, and leaves the integer in the low bits.
ROUND = 6755399441055744.0
LARGEST = 709.782712893384  # log of the largest double
SMALLEST = -708.0  # just above the log of the smallest normal double


@kernel
def exp_inplace(x):
    """x[i] <- exp(x[i]), error below 1 unit in the last place; what would be subnormal becomes 0.

    x = k ln 2 + r with integer k and |r| <= ln(2)/2;  exp(x) = 2^k exp(r), exp(r) by its series up to r^13
    (remainder below 2^-57). The factor 2^k is an addition to the exponent bits.

    Arguments:
        x : float64 (n,), contiguous, overwritten. exp(-inf) = 0 and exp(x) = 0 for x < -708, exactly; exp(x)
            = inf for x > 709.78; NaN stays NaN
    Cost: about 25 operations per element.
    Source: Cody and Waite, Software Manual for the Elementary Functions (1980), chapter 6; the series is
    Taylor's.
    """
    bits = x.view(np.int64)  # the same memory read as integers
    for i in range(x.size):
        v = x[i]
        shifted = v * LOG2_E + ROUND
        x[i] = shifted
        k_bits = bits[i] << 52  # the low 12 bits of k, moved to where the exponent stands
        k = shifted - ROUND
        r = (v - k * LN2_HIGH) - k * LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        x[i] = p
        bits[i] += k_bits
        # Outside its range the value above is arbitrary.
        p = x[i] if v >= SMALLEST else 0.0
        p = p if v <= LARGEST else np.inf
        x[i] = p if v == v else v


@kernel
def copy_row(source, i, target, j):
    """target[j] = source[i], in a loop: numba takes seconds to compile a slice assigned to a slice.

    Arguments:
        source : (n, L)
        i : row
    Out:
        target : (m, L), row j
    Cost: L.
    Source: chapter 02.
    """
    for y in range(source.shape[1]):
        target[j, y] = source[i, y]


@kernel
def add_row(source, target):
    """target += source, in a loop as `copy_row`.

    Arguments:
        source : (n,)
    Out:
        target : (n,)
    Cost: n.
    Source: chapter 02.
    """
    for y in range(target.size):
        target[y] += source[y]


@kernel
def copy_table(source, k, target):
    """target[k] = source[k], in a loop as `copy_row`.

    Arguments:
        source : (K, L, L)
        k : number of the table
    Out:
        target : (K, L, L), table k
    Cost: L^2.
    Source: chapter 02.
    """
    for yp in range(source.shape[1]):
        for y in range(source.shape[2]):
            target[k, yp, y] = source[k, yp, y]


@kernel
def clear_table(k, target):
    """target[k] = 0, in a loop as `copy_row`.

    Arguments:
        k : number of the table
    Out:
        target : (K, L, L), table k
    Cost: L^2.
    Source: chapter 02.
    """
    for yp in range(target.shape[1]):
        for y in range(target.shape[2]):
            target[k, yp, y] = 0.0


@kernel
def add_products(factor, pair, out):
    """out += factor * pair, entry by entry.

    Arguments:
        factor, pair : (L, L)
    Out:
        out : (L, L), added to
    Cost: L^2.
    Source: Rabiner (1989), section V.A.
    """
    for yp in range(out.shape[0]):
        for y in range(out.shape[1]):
            out[yp, y] += factor[yp, y] * pair[yp, y]


@kernel
def log_sum_exp(x):
    """log sum_i exp(x[i]) = m + log sum_i exp(x[i] - m), m = max x; m itself if that is not finite.

    Arguments:
        x : (n,)
    Cost: n exps.
    Source: docs/SPEC.md, 0.2.
    """
    high, total = -np.inf, 0.0
    for i in range(x.size):
        high = x[i] if x[i] > high else high
    if not np.isfinite(high):
        return high
    for i in range(x.size):
        total += np.exp(x[i] - high)
    return high + np.log(total)


def exp_table(scores):
    """(exp(scores - largest), largest, nats between the largest and the smallest finite one)."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return np.zeros(scores.shape), 0.0, 0.0
    return np.exp(scores - finite.max()), finite.max(), finite.max() - finite.min()
