"""Roughly the diagonal of the Hessian of the log loss: how steep each weight's own valley is.

A weight acts on the scores of many cells (token, label); the second derivative with respect to the score of
one cell is the variance p (1 - p) of its indicator. Summed over a weight's cells this is the diagonal of the
Hessian but for the covariances of different cells of one sequence. It is used to scale steps
(learners/quasi_newton/proximal_newton.py), where rough is enough.
"""

from crfbook._jit import kernel


@kernel
def spread_rows(step_ptr, weight, p_node, alpha, v):
    """p_node becomes weight p (1 - p); alpha and v their squares,
    so that alpha^T v sums weight p_edge^2 / psi_edge^2.

    Arguments: step_ptr (T+1,) of a packed batch; weight (B,) of its sequences; p_node (n, M) = weight * p,
    alpha (n, M), v (n, M) as forward_backward_batched leaves them, v with the weight in it; all three
    overwritten. Cost: 3 n M. Source: the variance of an indicator.
    """
    for t in range(step_ptr.size - 1):
        for i in range(step_ptr[t], step_ptr[t + 1]):
            each = weight[i - step_ptr[t]]
            share = 1.0 / each if each > 0.0 else 0.0
            for y in range(p_node.shape[1]):
                p_node[i, y] -= p_node[i, y] * p_node[i, y] * share
                alpha[i, y] *= alpha[i, y]
                v[i, y] *= v[i, y] * share
