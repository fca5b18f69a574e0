"""Label contexts of varying length and their arcs: how masses leave contexts,
and what comes back through the same arcs.

A state q is a context, the newest labels of a path: one label, or a longer one that some weighted tuple of
labels needs. A path is in the longest state that its labels end in. States 0..M-1 are the single labels;
every longer one has a back-off, its longest proper suffix that is a state, and stands after it; those that
back off to q, its children, are first[q]:first[q+1]. Where a context says nothing about the next label, its
back-off decides. So only exceptions are stored: arc e = (q, y) multiplies the transition from the newest
label of q to y by factor[e], and may lead to another state. Where (q, y) has an arc, so has (back-off of q,
y). Classes of tokens with the same tuples share one pattern of arcs. W sequences go side by side, one a lane,
so that what is read of an arc serves all of them; a lane whose sequence has ended holds zeros.
"""

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
def _without_arc(t, q, lane, label, p, alpha, up, arcs):
    """alpha[t,q] + sum of up[t,c] over the children c of q that have no arc of this label in pattern p."""
    total = alpha[t, q, lane]
    for c in range(arcs.first[q], arcs.first[q + 1]):
        i, stop = arcs.arc_lo[p, c], arcs.arc_hi[p, c]
        while i < stop and arcs.arc_label[i] != label:
            i += 1
        if i == stop:
            total += up[t, c, lane]
    return total


@kernel
def spread_masses(t, p, mask, alpha, up, arcs, factor, rest, slot):
    """slot[d] += mass of token t times factor, for every arc of pattern p that leads to d.

    Arc e = (q, y) carries the paths that end in q, but in no longer state that has an arc of y:
    rest[e] = up[t,q] - sum of up[t,c] over the states c of the arcs whose parent is e
    slot[arc_dest[e]] += rest[e] factor[e]
    Where less than CANCELLED of up[t,q] is left, it is added up instead: alpha[t,q] and the children of q
    without an arc of y. A state without children has rest = up. Its arcs stand after all others,
    whose places in the pattern are places in rest.

    Arguments: t, p; mask (W,): 1 in the lanes that have this pattern, else 0; alpha, up (T, Q, W) as in
    tuple_forward; arcs: `Arcs` of automaton.py; factor (E,); out: rest (T, I+1, W), row t added
    to, the last place is nobody's; slot (Q + D, W), added to. Cost: the arcs of the pattern. Source: Aho and
    Corasick (1975) for the automaton; handing masses over to back-offs is ours.
    """
    start, inner, stop, W = arcs.pattern_ptr[p], arcs.leaf_ptr[p], arcs.pattern_ptr[p + 1], mask.size
    state, parent, dest = arcs.arc_state, arcs.arc_parent, arcs.arc_dest
    for e in range(inner, stop):
        q, d, i, f = state[e], dest[e], parent[e], factor[e]
        for r in range(W):
            mass = up[t, q, r] * mask[r]
            slot[d, r] += mass * f
            rest[t, i, r] -= mass
    for e in range(inner - 1, start - 1, -1):
        q, d, i, j, f, low = state[e], dest[e], parent[e], e - start, factor[e], 0
        for r in range(W):
            mass = up[t, q, r] * mask[r]
            left = rest[t, j, r] + mass
            rest[t, j, r] = left
            rest[t, i, r] -= mass
            low += left < CANCELLED * mass
        if low:
            for r in range(W):
                if rest[t, j, r] < CANCELLED * up[t, q, r] * mask[r]:
                    rest[t, j, r] = _without_arc(t, q, r, arcs.arc_label[e], p, alpha, up, arcs)
        for r in range(W):
            slot[d, r] += rest[t, j, r] * mask[r] * f


@kernel
def same_pattern(t, edge_class, length, pattern, lane, mask):
    """mask[r] = 1 in the lanes alive at t whose token has the pattern of `lane`, else 0;
    returns how many if `lane` is the first, else 0.

    Arguments: t, lane; edge_class (T, W), length int64 (W,), pattern int32 (K,); out: mask (W,). Cost: W.
    Source: chapter 08.
    """
    p, first, n = pattern[edge_class[t, lane]], -1, 0
    for r in range(mask.size):
        if t < length[r] and pattern[edge_class[t, r]] == p:
            mask[r] = 1.0
            n += 1
            first = r if first < 0 else first
        else:
            mask[r] = 0.0
    return n if first == lane else 0


@kernel
def add_up(q, k, p, lane, arcs, factor, slot, psi_plain, v, stamp, mark):
    """sum_y of what context q gains by reading y:
    factor slot of the arc of the longest suffix of q that has one, or psi_plain v.

    Arguments: state q, class k and pattern p of a token, its lane; arcs: `Arcs`; factor (E,), slot (Q + D,
    W), psi_plain (K, M, M), v (M, W) as in tuple_backward; work: stamp int64 (>= M,), mark: a number not used
    before. Cost: M, and the arcs at q and its back-offs. Source: as spread_masses.
    """
    total = 0.0
    while True:
        for e in range(arcs.arc_lo[p, q], arcs.arc_hi[p, q]):
            if stamp[arcs.arc_label[e]] != mark:
                stamp[arcs.arc_label[e]] = mark
                total += factor[e] * slot[arcs.arc_dest[e], lane]
        if arcs.backoff[q] < 0:
            break
        q = arcs.backoff[q]
    for y in range(psi_plain.shape[1]):
        if stamp[y] != mark:
            total += psi_plain[k, q, y] * v[y, lane]
    return total


@kernel
def collect_masses(t, p, mask, weight, up, arcs, factor, rest, slot, arc_sum, more, gain_buf):
    """What the arcs of pattern p gain at the token after t, for beta and the counts:
    the way back of spread_masses.

    gain[e] = factor[e] slot[arc_dest[e]];   arc_sum[e] += weight rest[e] gain[e]
    more[q] = sum over the arcs e of q of gain[e] - gain[parent of e], the latter 0 at single labels

    Arguments: t, p, mask (W,), up (T, Q, W), arcs, factor (E,), rest (T, I+1, W) as in spread_masses; weight
    (W,); slot (Q + D, W): what lies beyond each destination; out: arc_sum (E,), more (Q, W), added to; work:
    gain_buf (I+1, W). Cost: the arcs of the pattern. Source: as spread_masses.
    """
    start, inner, stop, W = arcs.pattern_ptr[p], arcs.leaf_ptr[p], arcs.pattern_ptr[p + 1], mask.size
    state, parent, dest = arcs.arc_state, arcs.arc_parent, arcs.arc_dest
    for r in range(W):
        gain_buf[gain_buf.shape[0] - 1, r] = 0.0
    for e in range(start, inner):
        q, d, i, j, f = state[e], dest[e], parent[e], e - start, factor[e]
        for r in range(W):
            g = slot[d, r] * f * mask[r]
            gain_buf[j, r] = g
            more[q, r] += g - gain_buf[i, r]
        total = 0.0
        for r in range(W):
            total += weight[r] * rest[t, j, r] * gain_buf[j, r]
        arc_sum[e] += total
    for e in range(inner, stop):
        q, d, i, f = state[e], dest[e], parent[e], factor[e]
        for r in range(W):
            more[q, r] += slot[d, r] * f * mask[r] - gain_buf[i, r]
        total = 0.0
        for r in range(W):
            total += weight[r] * up[t, q, r] * (slot[d, r] * f * mask[r])
        arc_sum[e] += total
