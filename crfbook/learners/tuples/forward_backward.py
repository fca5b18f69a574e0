"""Forward-backward over label contexts of varying length: contexts are as long as some weight needs them.

A state q is a context, the newest labels of a path: one label, or a longer one that some weighted tuple of
labels needs. A path is in the longest state that its labels end in. States 0..M-1 are the single labels;
every longer one has a back-off, its longest proper suffix that is a state, and stands after it; those that
back off to q, its children, are child_ptr[q]:child_ptr[q+1]. Where a context has no arc for the next
label, its back-off is used. So only exceptions are stored: arc e = (q, y) multiplies the transition from the
newest label of q to y by factor[e], and leads to a destination: a longer state, or the place of the pair
(newest label of q, y), whose paths are then in the single label y. Where (q, y) has an arc, so has (back-off
of q, y). Classes of tokens with the same tuples share one pattern of arcs. W sequences go side by side, one a
lane, so that what is read of an arc serves all of them: numbers of the lanes stand next to each other, last
index. Lanes with other patterns, and those whose sequence has ended, are masked: they count as 0.

The tuples of arrays are those of automaton.py. `tuple_chain_log` of log_form.py takes one sequence and tries
every context with every next label: it is the form to read, and what these kernels are held against.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS

TUPLE_SPREAD = 100.0  # nats; see tuple_forward
CANCELLED = 1e-3  # of a sum is left after a subtraction: add the terms instead


@kernel
def clear(table):
    """table = 0 (I, W). A loop, as everywhere in these kernels:
    machine code for array expressions takes several times as long to make.

    Out:
        table : (I, W)
    Cost: I W.
    Source: none needed.
    """
    for i in range(table.shape[0]):
        for r in range(table.shape[1]):
            table[i, r] = 0.0


@kernel
def expand_arcs(p, arcs, arc_of, dest):
    """arc_of[q,y] = the arc that a path in context q uses when it reads y: its own, or its back-off's; -1:
    none. dest[q,y] = the state that it is in then.

    Arguments:
        p : pattern
        arcs : an `Arcs`
    Out:
        arc_of, dest : int64 (Q, M)
    Cost: Q M.
    Source: Aho and Corasick (1975).
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

    Arguments:
        t : token
        lane : number of a lane
        lanes : a `Lanes`
        pattern : int32 (K,) of the classes
    Out:
        mask : (W,)
    Cost: W.
    Source: chapter 08.
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

    Arguments:
        t : token, >= 1
        p : its pattern
        arcs : an `Arcs`
        factor : (E,)
        masses : a `Masses`, added to
        mask : (W,) of same_pattern
    Cost: the arcs of the pattern.
    Source: Aho and Corasick (1975) for the automaton; handing masses over to back-offs is ours.
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

    Arguments:
        t : token
        p : pattern
        arcs : an `Arcs`
        factor : (E,)
        masses : as in spread_masses
        weight : (W,)
        work : a `TupleWork`, of which v and mask are read, more is added to and gain overwritten
    Out:
        arc_sum : (E,), added to
    Cost: the arcs of the pattern.
    Source: as spread_masses.
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

    Arguments:
        q : state
        k : class of the token
        lane : its lane
        arcs : an `Arcs`
        potentials : an `ArcPotentials`
        work : a `TupleWork`, of which v is read; its stamps tell which labels have been met
    Cost: M, and the arcs at q and its back-offs.
    Source: as spread_masses.
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

    Arguments:
        slot : number of the first sequence
        psi : (n, M) of exp_nodes
        row_class : (n,)
        step_ptr : (T'+1,) of the batch
        refused : bool (B,), 1 for those that must go through the log form, which get length 0
        weight : (B,)
    Out:
        lanes : a `Lanes`
    Cost: T M W.
    Source: chapter 08.
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

    Arguments:
        slot : number of the first sequence
        lanes : a `Lanes`, of fill_lanes
        scale : (T, W) of tuple_forward
        node_max : (n,) of exp_nodes
        edge_max : (K,)
    Out:
        log_z : (B,)
    Cost: T W logs.
    Source: Rabiner (1989), section V.A.
    """
    for r in range(lanes.length.size):
        for t in range(lanes.length[r]):
            step = np.log(scale[t, r]) + node_max[lanes.rows[t, r]]
            log_z[slot + r] = log_z[slot + r] + (step + edge_max[lanes.classes[t, r]]) if t else step


@kernel
def _arrive(t, lanes, arcs, potentials, masses, row):
    """alpha[t]: m from the masses that arrived, and from the transitions without arcs; see tuple_forward."""
    psi_node, psi_edge, m, up = lanes.psi_node, potentials.psi_edge, masses.alpha[t], masses.up[t - 1]
    M, Q, W = psi_node.shape[1], up.shape[0], lanes.length.size
    for r in range(W):
        if t >= lanes.length[r]:
            continue
        k = lanes.classes[t, r]
        p = arcs.pattern[k]
        for y in range(M):
            row[y] = 0.0
        for yp in range(M):
            a, plain = up[yp, r], potentials.psi_plain[k, yp]
            for y in range(M):
                row[y] += a * plain[y]
        for d in range(arcs.pair_ptr[p], arcs.pair_ptr[p + 1]):
            yp, y = arcs.pair_prev[d], arcs.pair_next[d]
            row[y] += psi_edge[k, yp, y] * m[Q + d - arcs.pair_ptr[p], r]
        for y in range(M):
            m[y, r] = psi_node[t, y, r] * row[y]
    for q in range(M, Q):  # nothing arrived in lanes that have ended
        yp, y = arcs.prev[q], arcs.last[q]
        for r in range(W):
            m[q, r] = psi_node[t, y, r] * psi_edge[lanes.classes[t, r], yp, y] * m[q, r]


@kernel
def _normalise(t, length, child_ptr, masses, part):
    """scale[t], alpha[t] = m / scale[t] and up[t]; length becomes 0 where the form fails; see tuple_forward.
    part (W,) is a work array.
    """
    m, up = masses.alpha[t], masses.up[t]
    Q, W = up.shape
    for r in range(W):
        total, smallest = 0.0, np.inf
        for q in range(Q):
            total += m[q, r]
            smallest = m[q, r] if m[q, r] > 0.0 and m[q, r] < smallest else smallest
        if t < length[r] and not (total > 0.0 and total < np.inf and smallest >= SMALLEST_MASS):
            length[r] = 0
        masses.scale[t, r] = total if t < length[r] else 1.0
        part[r] = 1.0 / total if t < length[r] else 0.0
    for q in range(Q - 1, -1, -1):
        for r in range(W):
            m[q, r] = m[q, r] * part[r] if part[r] > 0.0 else 0.0
            up[q, r] = m[q, r]
        for c in range(child_ptr[q], child_ptr[q + 1]):
            for r in range(W):
                up[q, r] += up[c, r]


@kernel
def tuple_forward(T, lanes, arcs, potentials, masses, work):
    """Scaled forward masses of the states; returns the number of products with arcs.
    A lane that needs the log form gets length 0.

    m[t,d] = sum over the (q, y) that lead to d of alpha[t-1,q] psi_edge[last q,y] factor[arc] psi_node[t,y],
    but context q and its back-offs share the products of what they have in common, and the lanes share what
    is read:
    m[y] = psi_node[0,y] at single labels of token 0
    up[t,q] = alpha[t,q] + sum of up[t,c] over the children c of q: all paths ending in q
    a[d] = sum over the arcs e that lead to d of rest[t-1,e] factor[e]   (spread_masses)
    m[q] = psi_node[t,last q] psi_edge[prev q,last q] a[q] for longer contexts q
    m[y] = psi_node[t,y] (sum_yp up[t-1,yp] psi_plain[yp,y] + sum of psi_edge[yp,y] a[d] over the pairs
    d = (yp, y) with arcs) at single labels
    scale[t] = sum_q m[q],  alpha[t,q] = m[q] / scale[t] at states, a[d] at pairs

    The log form is needed if some 0 < m[q] < 1e-150, or scale[t] is 0 or not finite, or (the caller sees to
    that) scores of a step spread over more than TUPLE_SPREAD: as in forward_backward_scaled, with a smaller
    spread. A context that no path is in still lends its beta to longer ones; it reads the same labels with
    other weights for at most three tokens, so its beta is at most 1e150 exp(3 * 100).

    Arguments:
        T : tokens of the longest sequence
        lanes : a `Lanes`, length set to 0 where the form fails
        arcs : an `Arcs`
        potentials : an `ArcPotentials`
    Out:
        masses : a `Masses`
    Work:
        work : a `TupleWork`
    Cost: M^2 products a token, one for each arc of its pattern, Q.
    Source: Rabiner (1989), section V.A, over label contexts.
    """
    length, psi_node, mask, n_products = lanes.length, lanes.psi_node, work.mask, 0
    for t in range(T):
        clear(masses.alpha[t])
        if t == 0:
            for y in range(psi_node.shape[1]):
                for r in range(length.size):
                    masses.alpha[0, y, r] = psi_node[0, y, r]
        else:
            clear(masses.rest[t - 1])
            for r in range(length.size):
                n = same_pattern(t, r, lanes, arcs.pattern, mask)
                if n:
                    p = arcs.pattern[lanes.classes[t, r]]
                    spread_masses(t, p, arcs, potentials.factor, masses, mask)
                    n_products += n * (arcs.pattern_ptr[p + 1] - arcs.pattern_ptr[p])
            _arrive(t, lanes, arcs, potentials, masses, work.row)
        _normalise(t, length, arcs.child_ptr, masses, mask)
    return n_products


@kernel
def _look_ahead(t, lanes, arcs, potentials, masses, work, counts):
    """p_node of token t, v beyond it, and the counts of the pairs of labels that longer contexts and arcs
    stand for; see tuple_backward.
    """
    psi_node, length, weight, p_label = lanes.psi_node, lanes.length, lanes.weight, work.p_label
    psi_edge, edge_sum, alpha = potentials.psi_edge, counts.edge_sum, masses.alpha[t]
    beta, v, M, (Q, W) = work.beta, work.v, psi_node.shape[1], work.beta.shape
    for y in range(M):
        for r in range(W):
            p_label[y, r] = weight[r] * alpha[y, r] * beta[y, r]
            psi_node[t, y, r] = psi_node[t, y, r] / masses.scale[t, r]
            v[y, r] = psi_node[t, y, r] * beta[y, r]  # 0 in lanes that have ended: their beta is 0
    for q in range(M, Q if t > 0 else M):
        yp, y = arcs.prev[q], arcs.last[q]
        for r in range(W):
            both, k = weight[r] * alpha[q, r] * beta[q, r], lanes.classes[t, r]
            p_label[y, r] += both
            edge_sum[k, yp, y] += both
            v[q, r] = psi_edge[k, yp, y] * (psi_node[t, y, r] * beta[q, r])
    for r in range(W):
        if t >= length[r]:
            continue
        for y in range(M):
            counts.p_node[lanes.rows[t, r], y] = p_label[y, r]
        k = lanes.classes[t, r]
        p = arcs.pattern[k]
        for d in range(arcs.pair_ptr[p], arcs.pair_ptr[p + 1] if t > 0 else 0):
            yp, y, i = arcs.pair_prev[d], arcs.pair_next[d], Q + d - arcs.pair_ptr[p]
            v[i, r] = psi_edge[k, yp, y] * v[y, r]
            edge_sum[k, yp, y] += weight[r] * alpha[i, r] * v[i, r]


@kernel
def _step_back(t, lanes, arcs, potentials, up, work, edge_sum):
    """beta of token t - 1 from what its arcs gain (`more`), and the counts of pairs without arcs;
    see tuple_backward. up (Q, W) is that of token t - 1.
    """
    beta, more, v, v_row, row = work.beta, work.more, work.v, work.v_row, work.row
    M, (Q, W) = row.size, beta.shape
    for r in range(W):
        if t >= lanes.length[r]:
            continue
        k = lanes.classes[t, r]
        for yp in range(M):
            v_row[yp], row[yp] = v[yp, r], 0.0
        # a row of the transposed table after the other: sums along a row would wait for each other
        for y in range(M):
            g, plain = v_row[y], potentials.psi_plain_t[k, y]
            for yp in range(M):
                row[yp] += plain[yp] * g
        for yp in range(M):
            plain, row_sum, a = potentials.psi_plain[k, yp], edge_sum[k, yp], lanes.weight[r] * up[yp, r]
            beta[yp, r] = row[yp] + more[yp, r] if up[yp, r] > 0.0 else 0.0
            for y in range(M):
                row_sum[y] += a * (plain[y] * v_row[y])
    for q in range(M, Q):
        b, low = arcs.backoff[q], 0
        for r in range(W):
            beta[q, r] = beta[b, r] + more[q, r] if up[q, r] > 0.0 else 0.0
            low += up[q, r] > 0.0 and not beta[q, r] > CANCELLED * beta[b, r]
        if low:
            for r in range(W):
                if t < lanes.length[r] and up[q, r] > 0.0 and not beta[q, r] > CANCELLED * beta[b, r]:
                    beta[q, r] = add_up(q, lanes.classes[t, r], r, arcs, potentials, work)


@kernel
def tuple_backward(T, lanes, arcs, potentials, masses, work, counts):
    """Backward masses, and the expected counts that they and tuple_forward's give;
    returns the products with arcs.

    The path through context q, then y, has step[q,y] = psi_edge[last q,y] factor[arc] psi_node[t,y]
    beta[t,dest] / scale[t], and beta[t-1,q] = sum_y step[q,y]. Products are shared as in tuple_forward:
    beta[T-1] = 1
    v[y] = psi_node[t,y] beta[t,y] / scale[t] at single labels, psi_edge[yp,y] v[y] at pairs (yp, y) with arcs
    v[q] = psi_edge[prev q,last q] psi_node[t,last q] beta[t,q] / scale[t] at longer contexts
    beta[t-1,yp] = sum_y psi_plain[yp,y] v[y] + more[yp] at single labels
    beta[t-1,q] = beta[t-1,back-off of q] + more[q] at longer contexts (collect_masses)
    p_node[t,y] = sum of alpha[t,q] beta[t,q] over last q = y
    edge_sum[k,yp,y] += up[t-1,yp] psi_plain[yp,y] v[y], or alpha[t,d] v[d] of the pair d,
    and alpha[t,q] beta[t,q] of the q that end in (yp, y)
    arc_sum[e] += rest[t-1,e] gain[e];   all counts times weight

    A beta[t-1,q] below CANCELLED of its back-off's is added up label by label. Where up is 0, beta is set to
    0. What is expected of a tuple is the arc_sum of its arc and of all arcs that back off to it.

    Arguments:
        T, lanes, arcs, potentials, masses : as tuple_forward leaves them; psi_node is divided by scale on the
            way
        work : a `TupleWork`
    Out:
        counts : a `TupleCounts`, rows of p_node overwritten, edge_sum and arc_sum added to
    Cost: 2 M^2 and two for each arc of the pattern, a token.
    Source: Rabiner (1989), section V.A, over label contexts.
    """
    length, beta, n_products = lanes.length, work.beta, 0
    clear(beta)
    clear(work.v)
    for t in range(T - 1, -1, -1):
        for r in range(length.size):
            if t == length[r] - 1:
                for q in range(beta.shape[0]):
                    beta[q, r] = 1.0
        _look_ahead(t, lanes, arcs, potentials, masses, work, counts)
        if t == 0:
            break
        clear(work.more)
        for r in range(length.size):
            n = same_pattern(t, r, lanes, arcs.pattern, work.mask)
            if n:
                p = arcs.pattern[lanes.classes[t, r]]
                collect_masses(t, p, lanes.weight, arcs, potentials.factor, masses, work, counts.arc_sum)
                n_products += n * (arcs.pattern_ptr[p + 1] - arcs.pattern_ptr[p])
        _step_back(t, lanes, arcs, potentials, masses.up[t - 1], work, counts.edge_sum)
    return n_products
