"""Label contexts of varying length and their arcs: how masses leave contexts,
and what comes back through the same arcs.

A state q is a context, the newest labels of a path: one label, or a longer one that some weighted tuple of
labels needs. A path is in the longest state that its labels end in. States 0..M-1 are the single labels;
every longer one has a back-off, its longest proper suffix that is a state, and stands after it; those that
back off to q, its children, are child_ptr[q]:child_ptr[q+1]. Where a context says nothing about the next
label, its back-off decides. So only exceptions are stored: arc e = (q, y) multiplies the transition from the
newest label of q to y by factor[e], and leads to a destination: a longer state, or the place of the pair
(newest label of q, y), whose paths are then in the single label y. Where (q, y) has an arc, so has (back-off
of q, y). Classes of tokens with the same tuples share one pattern of arcs. W sequences go side by side, one a
lane, so that what is read of an arc serves all of them: numbers of the lanes stand next to each other, last
index. Lanes with other patterns, and those whose sequence has ended, are masked: they count as 0.
The tuples of arrays are those of automaton.py.
"""

import numpy as np

from crfbook._jit import kernel

CANCELLED = 1e-3  # of a sum is left after a subtraction: add the terms instead


@kernel
def clear(table):
    """table = 0 (I, W). A loop, as everywhere in these kernels:
    machine code for array expressions takes several times as long to make.

    Arguments: out: table (I, W). Cost: I W. Source: none needed.
    """
    for i in range(table.shape[0]):
        for r in range(table.shape[1]):
            table[i, r] = 0.0


@kernel
def expand_arcs(p, arcs, arc_of, dest):
    """arc_of[q,y] = the arc that a path in context q uses when it reads y: its own, or its back-off's; -1:
    none. dest[q,y] = the state that it is in then.

    Arguments: pattern p; arcs: `Arcs`; out: arc_of, dest int64 (Q, M). Cost: Q M. Source: Aho and Corasick
    (1975).
    """
    Q, M = arc_of.shape
    for q in range(Q):
        b = arcs.backoff[q]
        for y in range(M):
            arc_of[q, y] = arc_of[b, y] if b >= 0 else -1
        for e in range(arcs.arc_lo[p, q], arcs.arc_hi[p, q]):
            arc_of[q, arcs.arc_label[e]] = e
        for y in range(M):
            e = arc_of[q, y]
            dest[q, y] = arcs.arc_dest[e] if e >= 0 and arcs.arc_dest[e] < Q else y


@kernel
def same_pattern(t, lane, lanes, pattern, mask):
    """mask[r] = 1 in the lanes alive at t whose token has the pattern of `lane`, else 0;
    returns how many if `lane` is the first of them, else 0.

    Arguments: t, lane; lanes: `Lanes`; pattern int32 (K,) of the classes; out: mask (W,). Cost: W. Source:
    chapter 08.
    """
    if t >= lanes.length[lane]:
        return 0
    p, first, n = pattern[lanes.classes[t, lane]], -1, 0
    for r in range(mask.size):
        if t < lanes.length[r] and pattern[lanes.classes[t, r]] == p:
            mask[r] = 1.0
            n += 1
            first = r if first < 0 else first
        else:
            mask[r] = 0.0
    return n if first == lane else 0


@kernel
def _without_arc(q, lane, label, p, alpha, up, arcs):
    """alpha[q] + sum of up[c] over the children c of q that have no arc of this label in pattern p."""
    total = alpha[q, lane]
    for c in range(arcs.child_ptr[q], arcs.child_ptr[q + 1]):
        i, stop = arcs.arc_lo[p, c], arcs.arc_hi[p, c]
        while i < stop and arcs.arc_label[i] != label:
            i += 1
        if i == stop:
            total += up[c, lane]
    return total


@kernel
def spread_masses(t, p, arcs, factor, masses, mask):
    """alpha[t,d] += mass of token t-1 times factor, for every arc of pattern p that leads to destination d.

    Arc e = (q, y) carries the paths that end in q, but in no longer state that has an arc of y:
    rest[t-1,e] = up[t-1,q] - sum of up[t-1,c] over the states c of the arcs whose parent is e
    alpha[t,arc_dest[e]] += rest[t-1,e] factor[e]
    Where less than CANCELLED of up[t-1,q] is left, it is added up instead: alpha[t-1,q] and the children of q
    without an arc of y. A state without children has rest = up. Its arcs stand after all others,
    whose places in the pattern are places in rest.

    Arguments: token t >= 1 and its pattern p; arcs: `Arcs`; factor (E,); masses: `Masses`, added to; mask
    (W,) of same_pattern. Cost: the arcs of the pattern. Source: Aho and Corasick (1975) for the automaton;
    handing masses over to back-offs is ours.
    """
    start, inner, stop, W = arcs.pattern_ptr[p], arcs.leaf_ptr[p], arcs.pattern_ptr[p + 1], mask.size
    state, parent, dest = arcs.arc_state, arcs.arc_parent, arcs.arc_dest
    up, rest, arrived = masses.up[t - 1], masses.rest[t - 1], masses.alpha[t]
    for e in range(inner, stop):
        q, d, i, f = state[e], dest[e], parent[e], factor[e]
        for r in range(W):
            mass = up[q, r] * mask[r]
            arrived[d, r] += mass * f
            rest[i, r] -= mass
    for e in range(inner - 1, start - 1, -1):
        q, d, i, j, f, low = state[e], dest[e], parent[e], e - start, factor[e], 0
        for r in range(W):
            mass = up[q, r] * mask[r]
            left = rest[j, r] + mass
            rest[j, r] = left
            rest[i, r] -= mass
            low += left < CANCELLED * mass
        if low:
            for r in range(W):
                if rest[j, r] < CANCELLED * up[q, r] * mask[r]:
                    rest[j, r] = _without_arc(q, r, arcs.arc_label[e], p, masses.alpha[t - 1], up, arcs)
        for r in range(W):
            arrived[d, r] += rest[j, r] * mask[r] * f


@kernel
def collect_masses(t, p, weight, arcs, factor, masses, work, arc_sum):
    """What the arcs of pattern p gain at token t, for beta of token t-1 and the counts:
    the way back of spread_masses.

    gain[e] = factor[e] v[arc_dest[e]];   arc_sum[e] += weight rest[t-1,e] gain[e]
    more[q] = sum over the arcs e of q of gain[e] - gain[parent of e], the latter 0 at single labels

    Arguments: t, p, arcs, factor (E,), masses as in spread_masses; weight (W,); work: `TupleWork`, of which v
    and mask are read, more is added to and gain overwritten; out: arc_sum (E,), added to. Cost: the arcs of
    the pattern. Source: as spread_masses.
    """
    start, inner, stop, W = arcs.pattern_ptr[p], arcs.leaf_ptr[p], arcs.pattern_ptr[p + 1], weight.size
    state, parent, dest = arcs.arc_state, arcs.arc_parent, arcs.arc_dest
    up, rest, v = masses.up[t - 1], masses.rest[t - 1], work.v
    more, gain, mask = work.more, work.gain, work.mask
    for r in range(W):
        gain[gain.shape[0] - 1, r] = 0.0
    for e in range(start, inner):
        q, d, i, j, f = state[e], dest[e], parent[e], e - start, factor[e]
        for r in range(W):
            g = v[d, r] * f * mask[r]
            gain[j, r] = g
            more[q, r] += g - gain[i, r]
        total = 0.0
        for r in range(W):
            total += weight[r] * rest[j, r] * gain[j, r]
        arc_sum[e] += total
    for e in range(inner, stop):
        q, d, i, f = state[e], dest[e], parent[e], factor[e]
        for r in range(W):
            more[q, r] += v[d, r] * f * mask[r] - gain[i, r]
        total = 0.0
        for r in range(W):
            total += weight[r] * up[q, r] * (v[d, r] * f * mask[r])
        arc_sum[e] += total


@kernel
def add_up(q, k, lane, arcs, potentials, work):
    """sum_y of what context q gains by reading y:
    factor v of the arc of the longest suffix of q that has one, or psi_plain v.

    Arguments: state q, class k of a token, its lane; arcs: `Arcs`; potentials: `ArcPotentials`; work:
    `TupleWork`, of which v is read; its stamps tell which labels have been met. Cost: M, and the arcs at q
    and its back-offs. Source: as spread_masses.
    """
    p, v, stamp, M = arcs.pattern[k], work.v, work.stamp, potentials.psi_plain.shape[1]
    stamp[M] += 1
    total, mark = 0.0, stamp[M]
    while True:
        for e in range(arcs.arc_lo[p, q], arcs.arc_hi[p, q]):
            if stamp[arcs.arc_label[e]] != mark:
                stamp[arcs.arc_label[e]] = mark
                total += potentials.factor[e] * v[arcs.arc_dest[e], lane]
        if arcs.backoff[q] < 0:
            break
        q = arcs.backoff[q]
    for y in range(M):
        if stamp[y] != mark:
            total += potentials.psi_plain[k, q, y] * v[y, lane]
    return total


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
