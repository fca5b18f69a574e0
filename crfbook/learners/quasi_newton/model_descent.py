"""Coordinate descent on the model that quasi-Newton pairs give of the objective,
its L1 penalty left as it is.
"""

from crfbook._jit import kernel


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
