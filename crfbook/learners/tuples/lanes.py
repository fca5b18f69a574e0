"""Sequences of a batch side by side, for the chain with label tuples, and their log Z.

What runs them is train.py: every kernel of that chain is called from there,
so that each is compiled once, and by itself.
"""

import numpy as np

from crfbook._jit import kernel


@kernel
def fill_lanes(slot, psi, row_class, step_ptr, refused, weight, lanes):
    """`Lanes` of neighbouring sequences of a batch, from number `slot` on, as many as there are, one a lane;
    returns the tokens of the longest.

    Arguments: slot; psi (n, M) of exp_nodes, row_class (n,), step_ptr (T'+1,) of the batch; refused bool
    (B,): 1 for those that must go through the log form, which get length 0; weight (B,); out: lanes: `Lanes`.
    Cost: T M W. Source: chapter 08.
    """
    psi_node, W, B, M = lanes.psi_node, lanes.length.size, weight.size, psi.shape[1]
    T = 0  # tokens of the first sequence, which is the longest
    while T + 1 < step_ptr.size and step_ptr[T] + slot < step_ptr[T + 1]:
        T += 1
    for r in range(W):
        lanes.length[r] = 0
        lanes.weight[r] = weight[slot + r] if slot + r < B else 0.0
        for t in range(T):
            i = step_ptr[t] + slot + r
            if i < step_ptr[t + 1]:
                lanes.rows[t, r], lanes.classes[t, r], lanes.length[r] = i, row_class[i], t + 1
                for y in range(M):
                    psi_node[t, y, r] = psi[i, y]
            else:
                for y in range(M):
                    psi_node[t, y, r] = 0.0
        if slot + r < B and refused[slot + r]:
            lanes.length[r] = 0
    return T


@kernel
def lanes_log_z(slot, lanes, scale, node_max, edge_max, log_z):
    """log_z = sum_t log scale[t] + node_max[t] + edge_max[class of t >= 1] of the sequences in the lanes;
    one of length 0 is left alone.

    Arguments: slot, lanes: `Lanes` of fill_lanes; scale (T, W) of tuple_forward; node_max (n,) of exp_nodes;
    edge_max (K,); out: log_z (B,). Cost: T W logs. Source: Rabiner (1989), section V.A.
    """
    for r in range(lanes.length.size):
        for t in range(lanes.length[r]):
            step = np.log(scale[t, r]) + node_max[lanes.rows[t, r]]
            log_z[slot + r] = log_z[slot + r] + (step + edge_max[lanes.classes[t, r]]) if t else step
