"""What an L1 penalty does to a step, coordinate by coordinate.

The penalty c1*|w|_1 has a kink where a weight is zero. Inside one orthant (every weight keeps its sign) it is
linear, so L-BFGS may be used there: OWL-QN (Andrew and Gao 2007) chooses the orthant and keeps the step
inside it. The proximal step and coordinate descent on a quadratic model leave the penalty as it is.
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
def descend_model(x, grad, diagonal, left, right, c1, sweeps, tolerance, moved, width_buf, product_buf):
    """Minimise  grad . d + d' B d / 2 + c1 |x + d|_1  over d, one coordinate at a time;
    returns the sweeps made.

        B = diag(diagonal) - left right^T              symmetric, positive definite, never formed
        b = B[i,i],  g = grad[i] + (B d)[i],  u = x[i] + d[i] - g/b
        x[i] + d[i] becomes  sign(u) max(|u| - c1/b, 0)

    It ends when the largest b |change| of a sweep is at most `tolerance`.

    Arrays, n free weights, r columns: x (n,) present weights, grad (n,), diagonal (n,), left (n, r), right
    (n, r); moved (n,) = x + d: where it starts, and out: where it ends, exactly 0 where the penalty holds it;
    work: width_buf (n,), product_buf (r,) = left^T d, kept up to date.
    Cost: 2 n r a sweep. Source: Friedman, Hastie and Tibshirani (2010), section 2;
    Scheinberg and Tang (2016), section 4.
    """
    n, r = left.shape
    product_buf[:] = 0.0
    for i in range(n):
        b = diagonal[i]
        for j in range(r):
            b -= left[i, j] * right[i, j]
            product_buf[j] += left[i, j] * (moved[i] - x[i])
        width_buf[i] = max(b, 1e-6 * diagonal[i])  # rounding may eat what is left of a flat direction
    for sweep in range(sweeps):
        largest = 0.0
        for i in range(n):
            even, odd = 0.0, 0.0  # two sums, so that one addition need not wait for the other
            for j in range(0, r - 1, 2):
                even += right[i, j] * product_buf[j]
                odd += right[i, j + 1] * product_buf[j + 1]
            if r % 2:
                even += right[i, r - 1] * product_buf[r - 1]
            g = grad[i] + diagonal[i] * (moved[i] - x[i]) - (even + odd)
            u = moved[i] - g / width_buf[i]
            threshold = c1 / width_buf[i]
            new = u - threshold if u > threshold else u + threshold if u < -threshold else 0.0
            change = new - moved[i]
            if change != 0.0:
                moved[i] = new
                for j in range(r):
                    product_buf[j] += left[i, j] * change
                largest = max(largest, abs(change) * width_buf[i])
        if largest <= tolerance:
            return sweep + 1
    return sweeps
