"""The three coordinate-wise steps of OWL-QN (Andrew and Gao 2007): what an L1 penalty adds to L-BFGS.

The penalty c1*|w|_1 has a kink where a weight is zero. Inside one orthant (every weight keeps its sign) it is
linear, so L-BFGS may be used there; these loops choose the orthant and keep the step inside it.
"""

from crfbook._jit import kernel


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
