"""Sequences of a batch side by side, for the chain with label tuples, and their log Z.

What runs them is train.py: every kernel of that chain is called from there,
so that each is compiled once, and by itself.
"""

import numpy as np

from crfbook._jit import kernel


@kernel
def fill_lanes(slot, n_lanes, psi, row_class, step_ptr, refused, length, rows, classes, psi_node):
    """Tokens of n_lanes <= W neighbouring sequences of a batch, from number `slot` on, one sequence a lane.

    Arguments: slot, n_lanes; psi (n, M) of exp_nodes, row_class (n,), step_ptr (T'+1,) of the batch; refused
    bool (B,): 1 for those that must go through the log form, which get length 0; out: length int64 (W,), rows
    int64 (>= T, W): rows of the batch; classes int32 (>= T, W), psi_node (T, M, W):
    0 where a sequence has ended. Cost: T M W. Source: chapter 08.
    """
    T, M, W = psi_node.shape
    for r in range(W):
        length[r] = 0
        for t in range(T if r < n_lanes else 0):
            if step_ptr[t] + slot + r < step_ptr[t + 1]:
                i = step_ptr[t] + slot + r
                rows[t, r] = i
                classes[t, r] = row_class[i]
                length[r] = t + 1
                for y in range(M):
                    psi_node[t, y, r] = psi[i, y]
            else:
                for y in range(M):
                    psi_node[t, y, r] = 0.0
        if r < n_lanes and refused[slot + r]:
            length[r] = 0


@kernel
def lanes_log_z(slot, n_lanes, length, rows, classes, scale, node_max, edge_max, log_z):
    """log_z = sum_t log scale[t] + node_max[t] + edge_max[class of t >= 1] of the sequences in the lanes;
    one of length 0 is left alone.

    Arguments: slot, n_lanes, length (W,), rows, classes (>= T, W) as in fill_lanes; scale (T, W) of
    tuple_forward; node_max (n,) of exp_nodes; edge_max (K,); out: log_z (B,). Cost: T W logs. Source:
    Rabiner (1989), section V.A.
    """
    for r in range(n_lanes):
        for t in range(length[r]):
            step = np.log(scale[t, r]) + node_max[rows[t, r]]
            log_z[slot + r] = log_z[slot + r] + (step + edge_max[classes[t, r]]) if t else step
