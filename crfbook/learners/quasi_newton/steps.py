"""What an L1 penalty does to a step, coordinate by coordinate.

The penalty c1*|w|_1 has a kink where a weight is zero. Inside one orthant (every weight keeps its sign) it is
linear, so L-BFGS may be used there: OWL-QN (Andrew and Gao 2007) chooses the orthant and keeps the step
inside it. The proximal steps leave the penalty as it is.
"""

import numpy as np

from crfbook._jit import kernel

BLOCK = 1024  # weights at a time


@kernel
def pseudo_gradient(w, grad, c1, pg):
    """Steepest-ascent direction of f(w) + c1*|w|_1, written into `pg`; returns (sum of squares,
    largest magnitude).

        pg[k] = grad[k] + c1*sign(w[k])           w[k] != 0
              = grad[k] + c1                      w[k] == 0 and grad[k] < -c1
              = grad[k] - c1                      w[k] == 0 and grad[k] > +c1
              = 0                                 otherwise (the kink holds the weight at zero)

    pg is the shortest subgradient: it is zero exactly at the minimum.

    Arrays: w (F,), grad (F,) gradient of the smooth part, pg (F,) out. Cost: F. Source:
    Andrew and Gao (2007), eq. 4.
    """
    sum_squares = 0.0
    largest = 0.0
    for k in range(w.shape[0]):
        slope = grad[k]
        if w[k] > 0.0 or (w[k] == 0.0 and slope < -c1):
            slope += c1
        elif w[k] == 0.0 and -c1 <= slope <= c1:
            slope = 0.0
        else:  # also where the gradient is nan, so that the sum tells
            slope -= c1
        pg[k] = slope
        sum_squares += slope * slope
        largest = max(largest, abs(slope))
    return sum_squares, largest


@kernel
def align_direction(pg, direction):
    """Drop the components of `direction` that do not descend;
    returns the slope  sum_k pg[k]*direction[k]  of what is left.

        direction[k] = 0   where  direction[k]*pg[k] >= 0

    Arrays: pg (F,), direction (F,) changed in place. Cost: F. Source: Andrew and Gao (2007), section 3.2.
    """
    slope = 0.0
    for k in range(pg.shape[0]):
        product = direction[k] * pg[k]
        if product >= 0.0:
            direction[k] = 0.0
        else:
            slope += product
    return slope


@kernel
def orthant_step(w, direction, pg, step, w_new):
    """Move along `direction` and stop every weight that would cross zero; returns (decrease predicted,
    |w_new|_1).

        xi[k]    = sign(w[k]), or -sign(pg[k]) where w[k] == 0             the orthant of this iteration
        w_new[k] = w[k] + step*direction[k], or 0 if its sign is not xi[k]
        predicted = sum_k pg[k]*(w_new[k] - w[k])        negative: first-order change of the objective

    Arrays: w (F,), direction (F,), pg (F,), w_new (F,) out. Cost: F. Source: Andrew and Gao (2007), eq. 5.
    """
    predicted = 0.0
    norm1 = 0.0
    for k in range(w.shape[0]):
        xi = w[k] if w[k] != 0.0 else -pg[k]
        moved = w[k] + step * direction[k]
        if moved * xi <= 0.0:
            moved = 0.0
        w_new[k] = moved
        predicted += pg[k] * (moved - w[k])
        norm1 += abs(moved)
    return predicted, norm1


@kernel
def proximal_step(v, grad, step, c1, w_new):
    """One proximal-gradient step from v, written into `w_new`; returns (grad . d, |d|^2,
    |w_new|_1) with d = w_new - v.

        u        = v[k] - step*grad[k]
        w_new[k] = sign(u) max(|u| - step*c1, 0)
                 = argmin_w  grad[k] (w - v[k]) + (w - v[k])^2 / (2 step) + c1 |w|

    Arrays: v (F,), grad (F,) gradient of the smooth part at v, w_new (F,) out. Cost: F.
    Source: Beck and Teboulle (2009), eq. 2.6 with the shrinkage operator of section 1.
    """
    slope = 0.0
    squares = 0.0
    norm1 = 0.0
    threshold = step * c1
    for k in range(v.shape[0]):
        u = v[k] - step * grad[k]
        moved = 0.0
        if u > threshold:
            moved = u - threshold
        elif u < -threshold:
            moved = u + threshold
        elif u != u:  # nan: not hidden behind a zero
            moved = u
        w_new[k] = moved
        d = moved - v[k]
        slope += grad[k] * d
        squares += d * d
        norm1 += abs(moved)
    return slope, squares, norm1


@kernel
def model_point(t, w, grad, pg, c1, scale, diagonal, s, y, rows, direction, product):
    """The step d(t) of `LocalModel` (l1.py) and the products that say how good it is; returns (g.d, d'Dd,
    |w + d|_1 - |w|_1).

        D = scale * diagonal,   u = w - (g - A t)/D,   w + d = sign(u) max(|u| - c1/D, 0),   product = A^T d

    d = 0 where w and the pseudo-gradient are 0. A block of weights at a time: its part of all pairs is read
    twice while it lies in the cache.
    Arrays: t (2m,), w, grad, pg (F,), diagonal (F,) or (0,) for 1; s, y (>= m, F), rows int64 (m,) of them;
    out: direction (F,) = d, product (2m,). Cost: 8 m F. Source: Becker, Fadili and Ochs (2019), section 3.
    """
    m, n = rows.size, w.size
    by_s, by_y = np.empty(BLOCK), np.empty(BLOCK)
    for j in range(2 * m):
        product[j] = 0.0
    slope, squares, norm1 = 0.0, 0.0, 0.0
    for low in range(0, n, BLOCK):
        high = min(n, low + BLOCK)
        for k in range(high - low):
            by_s[k], by_y[k] = 0.0, 0.0
        for j in range(m):
            t_s, t_y, row_s, row_y = t[j], t[m + j], s[rows[j]][low:high], y[rows[j]][low:high]
            for k in range(high - low):
                by_s[k] += t_s * row_s[k]
                by_y[k] += t_y * row_y[k]
        for k in range(low, high):
            d, width = 0.0, scale * diagonal[k] if diagonal.size else scale
            if w[k] != 0.0 or pg[k] != 0.0:
                u = w[k] - (grad[k] - by_y[k - low]) / width + by_s[k - low]
                moved = max(abs(u) - c1 / width, 0.0)
                moved = moved if u > 0.0 else -moved
                d = moved - w[k]
                slope += grad[k] * d
                squares += width * d * d
                norm1 += abs(moved) - abs(w[k])
            direction[k] = d
            by_s[k - low] = width * d
        for j in range(m):
            product[j] += np.dot(s[rows[j]][low:high], by_s[: high - low])
            product[m + j] += np.dot(y[rows[j]][low:high], direction[low:high])
    return slope, squares, norm1


@kernel
def model_gram(w, scale, diagonal, s, y, rows, direction):
    """What d(t) of `model_point` adds to the Jacobian of its equations: A^T D^-1 A (2m, 2m) over the weights
    that are not zero after the step, as others do not move with t.

    Arguments as there: w (F,); scale, diagonal (F,) or (0,) of D; s, y (>= m, F), rows int64 (m,) of them;
    direction (F,) = d(t).
    Cost: 4 m^2 for each such weight. Source: Becker, Fadili and Ochs (2019), section 3.
    """
    m, n = rows.size, w.size
    total, product, cells = np.zeros((2 * m, 2 * m)), np.empty((2 * m, 2 * m)), np.empty(2 * m * BLOCK)
    moved, root = np.empty(BLOCK, np.int64), np.empty(BLOCK)
    for low in range(0, n, BLOCK):
        size = 0
        for k in range(low, min(n, low + BLOCK)):
            if w[k] + direction[k] != 0.0:
                moved[size] = k
                root[size] = np.sqrt(scale * diagonal[k] if diagonal.size else scale)
                size += 1
        part = cells[: 2 * m * size].reshape(2 * m, size)
        for j in range(m):
            row_s, row_y = s[rows[j]], y[rows[j]]
            for k in range(size):
                part[j, k] = row_s[moved[k]] * root[k]
                part[m + j, k] = row_y[moved[k]] / root[k]
        np.dot(part, part.T, product)
        total += product
    return total
