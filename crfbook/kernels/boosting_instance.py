"""The tighter bound of boosting: every sequence with its own extremes of the feature's count.

Altun, Johnson and Hofmann (2003), section 3.3, bound e^{D phi} by one chord over [low_k, high_k], the extremes over the whole
corpus, so that the longest sequence decides how far a frequent feature may go. Their argument holds for each sequence on its
own: over [low_ik, high_ik] the chord lies lower. What is lost is the closed form.
The NamedTuples `data`, `index`, `state` and `work` list their arrays with shapes (optim/boosting_layout.py, optim/sequences.py).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.boosting import EDGE, TOTAL, count_gold_pairs


@kernel
def instance_step(rest, n, mass, moment, low, high, first, limit):
    """(D, f(D)): minimum between 0 and `limit` of the tighter bound, in which every sequence has its own extremes.

    f(D) = rest + sum_{i<n} [ (high_i mass_i - moment_i) e^{D low_i} + (moment_i - low_i mass_i) e^{D high_i} ] / (high_i - low_i)
    f(0) is the loss, f is convex, and f(D) >= the loss after the step; f(D) <= L B_k(D), as each chord of exp lies below the
    common one. Newton's method, kept inside the interval where f' changes its sign: it is halved
    where Newton leaves it, after a look at its end.

    Arguments: rest: loss of the sequences without the feature; n; mass (>= n,): loss of a sequence; moment (>= n,): its
    derivative; low, high (>= n,): its extremes; first: where to begin; limit: end of the interval, on the side where f falls.
    Cost: 2 n exps an iteration, 5 to 10 of them. Source: the convexity argument of Altun, Johnson and Hofmann (2003), section 3.3,
    one sequence at a time; chapter 05.
    """
    near, far, D = 0.0, limit, first
    best, best_f = 0.0, np.inf
    for _ in range(60):
        f, slope, curve = rest, 0.0, 0.0
        for i in range(n):
            span = high[i] - low[i]
            if span > 0.0:
                p = max(high[i] * mass[i] - moment[i], 0.0) / span * np.exp(D * low[i])
                q = max(moment[i] - low[i] * mass[i], 0.0) / span * np.exp(D * high[i])
                f += p + q
                slope += low[i] * p + high[i] * q
                curve += low[i] * low[i] * p + high[i] * high[i] * q
            else:
                f += mass[i]
        if f < best_f:
            best, best_f = D, f
        if slope * limit > 0.0:
            far = D
        else:
            near = D
        new = D - slope / curve if curve > 0.0 else far
        if not min(near, far) <= new <= max(near, far):
            new = limit if far == limit and near == D else 0.5 * (near + far)
        if abs(new - D) <= 1e-10 * abs(new):
            break
        D = new
    return best, best_f


@kernel
def gather_node(k, data, index, state, parts):
    """Loss, derivative and extremes of the sequences that hold node feature k, for `instance_step`; returns how many.

    Arguments: k; data, index, state: see above; out: parts (4, >= sequences with the attribute): mass, moment, low, high.
    Cost: occurrences of the attribute. Source: Altun, Johnson and Hofmann (2003), section 3.3.
    """
    a, y, n = np.searchsorted(data.node_ptr, k + 1) - 1, data.node_label[k], 0
    for e in range(index.entry_ptr[a], index.entry_ptr[a + 1]):
        i = index.entry_seq[e]
        if state.asleep[i]:
            continue
        parts[0, n] = state.mass[i]
        parts[1:, n] = 0.0
        for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
            t = index.item_token[j]
            x = index.item_val[j] if index.item_val.size else 1.0
            gold = x if data.labels[t] == y else 0.0
            parts[1, n] += -x * state.cell[t, y] if data.labels[t] == y else x * state.cell[t, y]
            parts[2, n] += min(x, 0.0) - gold
            parts[3, n] += max(x, 0.0) - gold
        n += 1
    return n


@kernel
def gather_edge(k, data, index, state, work, parts):
    """As `gather_node` for an edge feature, k counted among them.

    Arguments: k; data, index, state, work: see above; out: parts (4, >= sequences with the edge attribute).
    Cost: tokens of these sequences, L^2 for each. Source: Altun, Johnson and Hofmann (2003), section 3.3.
    """
    b, n = np.searchsorted(data.edge_ptr, k + 1) - 1, 0
    yp, y = data.edge_prev[k], data.edge_next[k]
    gold = work.edge_sum[0]
    for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
        i = index.edge_entry_seq[e]
        if state.asleep[i]:
            continue
        count_gold_pairs(data.seq_ptr[i], data.seq_ptr[i + 1], b, data.labels, data.edge_class, data.class_ptr, data.class_attr,
                         gold)
        parts[0, n] = state.mass[i]
        parts[1, n] = 0.0
        for r in range(data.row_ptr[i], data.row_ptr[i + 1]):
            c = data.row_class[r]
            for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
                if attr == b:
                    cell = state.edge_cell[r, data.pair_of[yp, y]]
                    parts[1, n] += cell[0] - cell[1]
        parts[2, n] = -gold[yp, y]
        parts[3, n] = (index.entry_same[e] if yp == y else index.entry_other[e]) - gold[yp, y]
        n += 1
    return n


@kernel
def tighten(k, step, cap, data, index, state, work):
    """(D, gain): step of feature k by `instance_step`, begun at `step`, the one in closed form.

    The interval ends where e^{D phi} could exceed 1 / EDGE for some sequence, or at cap: those asleep stay negligible.
    Arguments: k, step, cap; data, index, state, work: see above. Cost: as `gather_node`, `instance_step`.
    Source: Altun, Johnson and Hofmann (2003), section 3.3.
    """
    n_node, parts = data.node_label.size, state.parts
    n = gather_node(k, data, index, state, parts) if k < n_node else gather_edge(k - n_node, data, index, state, work, parts)
    extreme = index.high[k] if step > 0.0 else index.low[k]
    limit = min(cap, -np.log(EDGE) / abs(extreme)) if extreme != 0.0 else cap
    total = state.number[TOTAL]
    rest = max(total - np.sum(parts[0, :n]), 0.0)
    D, f = instance_step(rest, n, parts[0], parts[1], parts[2], parts[3], step, limit if step > 0.0 else -limit)
    return D, -np.log(f / total)
