"""Tighter steps of boosting: every sequence with its own extremes of the feature's count.

A bound with extremes over the whole corpus lets the longest sequence decide how far a frequent feature may
go. The same argument holds for each sequence on its own, with smaller extremes.
What is lost is the closed form; what remains is a sum

    f(D) = rest + sum_i c_i e^{D low_i} + d_i e^{D high_i},   f(0) = L,   f(D) >= the loss after the step.

From the chord over [low_i, high_i] of Altun, Johnson and Hofmann (2003), section 5.2, with the loss L_i of
sequence i and its derivative M_i: c_i = (high_i L_i - M_i) / (high_i - low_i),  d_i = (M_i - low_i L_i) /
(high_i - low_i). From gains and losses apart (selection.py): c_i = Q_i / less_i with low_i = -less_i,
d_i = P_i / more_i with high_i = more_i. A sequence that is asleep enters as e^{ceiling_i + |D| (most that phi
can move)}, so that no step wakes it to the loss's harm. The NamedTuples `data`, `index`, `state` and `work`
list their arrays with shapes (layout.py, chain/token_layout.py).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.boosting.selection import LOG_REF, SPLIT, TOTAL, add_gold_pairs

# rows of `parts`: P_i, Q_i, L_i (asleep: -e^ceiling), low_i, high_i, more_i
GAIN, LOSS, MASS, LOW, HIGH, MORE = 0, 1, 2, 3, 4, 5
LONGEST = 100.0  # a step, where nothing else ends it


@kernel
def least_sum(rest, n, c, d, low, high, first, limit):
    """(D, f(D)): minimum between 0 and `limit` of f(D) = rest + sum_{i<n} c_i e^{D low_i} + d_i e^{D high_i},
    convex.

    Newton's method, kept inside the interval where f' changes its sign: it is halved where Newton leaves it,
    after a look at its end. f(D) <= f(first).
    Arguments: rest; n; c, d (>= n,), >= 0; low, high (>= n,); first: where to begin; limit: end of the
    interval, on the side where f falls. Cost: 2 n exps an iteration, 5 to 10 of them. Source: Nocedal and
    Wright, Numerical Optimization, section 3.3; safeguarded.
    """
    near, far, D = 0.0, limit, first
    best, best_f = 0.0, np.inf
    for _ in range(60):
        f, slope, curve = rest, 0.0, 0.0
        for i in range(n):
            p, q = c[i] * np.exp(D * low[i]), d[i] * np.exp(D * high[i])
            f += p + q
            slope += low[i] * p + high[i] * q
            curve += low[i] * low[i] * p + high[i] * high[i] * q
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
def mass_of(i, state):
    """Loss of sequence i in units of e^{log_ref}; of one asleep minus e^ceiling. Arguments: i; state. Cost:
    an exp. Source: the head of this file.
    """
    return -np.exp(state.ceiling[i] - state.number[LOG_REF]) if state.asleep[i] else state.mass[i]


@kernel
def gather_node(k, data, index, state):
    """P_i, Q_i, loss and extremes of the sequences that hold node feature k; returns how many.

    Arguments: k; data, index, state: see above; out: state.parts, rows GAIN to MORE. Cost: occurrences of the
    attribute. Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    a, y, n = np.searchsorted(data.node_ptr, k + 1) - 1, data.node_label[k], 0
    parts = state.parts
    for e in range(index.entry_ptr[a], index.entry_ptr[a + 1]):
        i = index.entry_seq[e]
        parts[:, n] = 0.0
        parts[MASS, n] = mass_of(i, state)
        for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
            t = index.item_token[j]
            x = index.item_val[j] if index.item_val.size else 1.0
            if data.labels[t] == y:
                x = -x  # x > 0: what a labelling without the feature at t gains
            if not state.asleep[i]:
                parts[GAIN if x > 0.0 else LOSS, n] += abs(x) * state.cell[t, y]
            parts[HIGH if x > 0.0 else LOW, n] += x
        parts[MORE, n] = parts[HIGH, n]
        n += 1
    return n


@kernel
def gather_edge(k, data, index, state, work):
    """As `gather_node` for an edge feature, k counted among them.

    Arguments: k; data, index, state, work: see above; out: state.parts. Cost: tokens of these sequences.
    Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    b, q, n, parts = np.searchsorted(data.edge_ptr, k + 1) - 1, data.edge_pair[k], 0, state.parts
    yp, y = data.pair_prev[q], data.pair_next[q]
    gold = work.edge_sum[0]  # of which one cell is read
    for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
        i = index.edge_entry_seq[e]
        count = index.entry_same[e] if yp == y else index.entry_other[e]
        parts[:, n] = 0.0
        parts[MASS, n] = mass_of(i, state)
        gold[yp, y] = 0.0
        if not state.asleep[i]:
            add_gold_pairs(i, b, 1.0, data, gold)
            for r in range(data.row_ptr[i], data.row_ptr[i + 1]):
                c = data.row_class[r]
                for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
                    if attr == b:
                        parts[GAIN, n] += state.edge_cell[r, q, 0]
                        parts[LOSS, n] += state.edge_cell[r, q, 1]
        parts[LOW, n] = -gold[yp, y] if not state.asleep[i] else -count
        parts[HIGH, n] = count - gold[yp, y]
        parts[MORE, n] = parts[HIGH, n] if yp == y else count
        n += 1
    return n


@kernel
def tighten(k, step, cap, kind, data, index, state, work):
    """(D, gain): step of feature k that minimises the sum above, begun at `step`, the one in closed form;
    gain = log L - log f(D).

    Arguments: k, step, cap; kind: SPLIT, or the chord; data, index, state, work: see above. Cost: as
    `gather_node`, `least_sum`. Source: Altun, Johnson and Hofmann (2003), section 5.2; chapter 05.
    """
    n_node, parts = data.node_label.size, state.parts
    if k < n_node:
        n = gather_node(k, data, index, state)
    else:
        n = gather_edge(k - n_node, data, index, state, work)
    rest = state.number[TOTAL]
    for i in range(n):
        gain, loss, mass, low, high, more = parts[:, i]
        if mass <= 0.0:
            c, d = (-mass, 0.0) if step < 0.0 else (0.0, -mass)
            high, rest = more, rest - mass
        elif kind == SPLIT:
            c, d, high = loss / -low if low < 0.0 else 0.0, gain / more if more > 0.0 else 0.0, more
        else:
            span = high - low if high > low else np.inf
            c, d = max(high * mass - gain + loss, 0.0) / span, max(gain - loss - low * mass, 0.0) / span
        parts[GAIN, i], parts[LOSS, i], parts[HIGH, i] = d, c, high
        rest -= c + d
    limit = min(cap, LONGEST) if step > 0.0 else -min(cap, LONGEST)
    D, f = least_sum(rest, n, parts[LOSS], parts[GAIN], parts[LOW], parts[HIGH], step, limit)
    return D, np.log(state.number[TOTAL]) - np.log(f)
