"""The proximal step: a gradient step on the smooth part,
then the soft threshold that an L1 penalty asks for.
"""

from crfbook._jit import kernel


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
