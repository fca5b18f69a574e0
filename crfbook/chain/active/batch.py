"""A packed batch with active sets: its sequences one after another, as each has sets of its own."""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.active.bound import ABOVE, BELOW, bound_log_z
from crfbook.chain.active.sequence import active_backward, active_forward
from crfbook.chain.forward_backward_batched import exp_rows


@kernel
def active_batch(b, packing, edges, rule, choose, log_node, found, chosen, limits, work, flags):
    """log Z, node marginals and sums of a batch, each sequence by itself; returns cells of `Chosen`.

    Arguments: b, packing: n rows, B sequences; edges: a `DefaultEdges`; rule; choose = 1: sets are made, and
    the bounds with them; log_node (n, M): scores, overwritten; out: found; chosen: its cells may grow, and
    come back; limits: `Extremes`; work; flags uint8 (>= B,): 1: needs the log form, and has added nothing.
    Cost: that of `active_forward`, `active_backward`, `bound_log_z`. Source: chapter 10.
    """
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    lo, hi = packing.row_ptr[b], packing.row_ptr[b + 1]
    labels, cell, C = packing.labels[lo:hi], chosen.cell, edges.scores.member.size
    first, n_steps = 0, step_ptr.size - 1
    found.log_z[:] = 0.0
    flags[: found.log_z.size] = 0
    exp_rows(log_node, edges.edge_spread[0], step_ptr, found.log_z, flags)
    every = np.empty(n_steps, np.int64)
    for r in range(found.log_z.size):
        T = 0
        while T < n_steps and step_ptr[T] + r < step_ptr[T + 1]:
            every[T] = step_ptr[T] + r
            T += 1
        rows, begin = every[:T], chosen.start[r]
        if choose and cell.size < begin + T * C:
            more = np.empty(2 * cell.size + T * C, np.int32)
            more[:begin] = cell[:begin]
            cell = more
        own, ptr = cell[begin:], chosen.ptr[first : first + T + 1]
        first += T + 1
        if choose:
            ptr[:] = 0
        log_z = np.nan
        if not flags[r]:
            log_z = active_forward(rows, log_node, labels, edges, rule, choose, own, ptr, work, None, own)
        for i in rows:
            found.p_node[i] = 0.0
        if np.isnan(log_z):
            flags[r], found.log_z[r], found.bound[:, r] = 1, np.nan, np.nan
            if choose:  # all cells: where later weights allow the scaled form, it is exact as well
                for t in range(T):
                    ptr[t + 1] = (t + 1) * C
                    for c in range(C):
                        own[t * C + c] = c
        else:
            weight = packing.weight[packing.slot_ptr[b] + r]
            active_backward(rows, log_node, weight, edges, rule, own, ptr, found.p_node, found.product, work)
            if choose:
                for side in (ABOVE, BELOW):
                    found.bound[side, r] = found.log_z[r] + bound_log_z(
                        side, rows, log_node, edges, limits, own, ptr, work
                    )
            found.log_z[r] += log_z
        if choose:
            chosen.start[r + 1] = begin + ptr[T]
    return cell
