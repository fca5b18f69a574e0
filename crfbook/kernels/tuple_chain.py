"""Forward-backward over label contexts of varying length: a chain that remembers only where a weight asks it to.

A state q is a context, the newest labels of a path: one label, or a longer one that some weighted tuple of labels needs. A
path is in the longest state that its labels end in. States 0..M-1 are the single labels; every longer one has a back-off,
its longest proper suffix that is a state, and stands after it; those that back off to q, its children, are first[q]:first[q+1].
Where a context says nothing about the next label, its back-off decides. So only exceptions are stored: arc e = (q, y) multiplies
the transition from the newest label of q to y by factor[e], and may lead to another state. Where (q, y) has an arc, so has
(back-off of q, y). Classes of tokens with the same tuples share one pattern of arcs.
"""

import numpy as np

from crfbook._jit import kernel

MAX_SPREAD = 100.0  # nats; see tuple_forward
SMALLEST_MASS = 1e-150
CANCELLED = 1e-3  # of a sum is left after a subtraction: add the terms instead


@kernel
def _without_arc(t, q, label, p, alpha, up, first, arc_lo, arc_hi, arc_label):
    """alpha[t,q] + sum of up[t,c] over the children c of q that have no arc of this label in pattern p."""
    total = alpha[t, q]
    for c in range(first[q], first[q + 1]):
        i, stop = arc_lo[p, c], arc_hi[p, c]
        while i < stop and arc_label[i] != label:
            i += 1
        if i == stop:
            total += up[t, c]
    return total


@kernel
def spread_masses(t, p, alpha, up, arcs, factor, rest, slot):
    """slot[d] += mass of token t times factor, for every arc of pattern p that leads to d; returns the number of products.

    Arc e = (q, y) carries the paths that end in q, but in no longer state that has an arc of y:
    rest[e] = up[t,q] - sum of up[t,c] over the states c of the arcs whose parent is e;   slot[arc_dest[e]] += rest[e] factor[e]
    Where less than CANCELLED of up[t,q] is left, it is added up instead: alpha[t,q] and the children of q without an arc of y.
    A state without children has rest = up. Its arcs stand after all others, whose places in the pattern are places in rest.

    Arguments: t, p; alpha, up (T, Q) as in tuple_forward; arcs: `Arcs` of optim/tuple_automaton.py; factor (E,); out: rest (T, I+1), row t
    overwritten, the last place is nobody's; slot (Q + D,), added to. Cost: the arcs of the pattern.
    Source: Aho and Corasick (1975) for the automaton; handing masses over to back-offs is ours.
    """
    start, inner, stop = arcs.pattern_ptr[p], arcs.leaf_ptr[p], arcs.pattern_ptr[p + 1]
    state, parent, dest = arcs.arc_state, arcs.arc_parent, arcs.arc_dest
    rest[t, :] = 0.0
    for e in range(inner, stop):
        mass = up[t, state[e]]
        slot[dest[e]] += mass * factor[e]
        rest[t, parent[e]] -= mass
    for e in range(inner - 1, start - 1, -1):
        mass, left = up[t, state[e]], rest[t, e - start]
        left += mass
        if left < CANCELLED * mass:
            left = _without_arc(t, state[e], arcs.arc_label[e], p, alpha, up, arcs.first, arcs.arc_lo, arcs.arc_hi, arcs.arc_label)
        rest[t, e - start] = left
        slot[dest[e]] += left * factor[e]
        rest[t, parent[e]] -= mass
    return stop - start


@kernel
def tuple_forward(psi_node, edge_class, spread, arcs, factor, psi_edge, psi_plain, alpha, up, scale, rest, pair_mass, slot_buf):
    """Scaled forward masses of the states; returns the number of products with arcs, or -1 (use the log form).

    alpha[0,y] = psi_node[0,y] at single labels;  up[t,q] = alpha[t,q] + sum of up[t,c] over the children c of q: all paths ending in q
    slot[d] = sum over the arcs e that lead to d of rest[t-1,e] factor[e]   (spread_masses)
    m[q] = psi_node[t,last q] psi_edge[prev q, last q] slot[q] for longer contexts q;   at single labels, psi_node[t,y] times
    m[y] = sum_yp up[t-1,yp] psi_plain[yp,y] + sum over the pairs d = (yp, y) with arcs of psi_edge[yp,y] slot[d]
    scale[t] = sum_q m[q],  alpha[t] = m / scale[t]

    -1 if (a) spread > 100 nats, (b) some 0 < m[q] < 1e-150, or (c) scale[t] is 0 or not finite: as in forward_backward_scaled,
    with a smaller spread. A context that no path is in still lends its beta to longer ones; it reads the same labels with
    other weights for at most three tokens, so its beta is at most 1e150 exp(3 * 100), which float64 holds.

    Arguments: psi_node (T, M) from exp_nodes; edge_class (T,); spread in nats; arcs: `Arcs` of optim/tuple_automaton.py; factor (E,);
    psi_edge (K, M, M); psi_plain (K, M, M), the same but 0 where a single label has an arc; out: alpha, up (T, Q), scale (T,),
    rest (T, I+1), pair_mass (T, D): slots of pairs; work: slot_buf (Q + D,).
    Cost: M^2 products a token, one for each arc of its pattern, Q. Source: Rabiner (1989), section V.A, over label contexts.
    """
    (T, M), Q, n_products = psi_node.shape, alpha.shape[1], 0
    first, last, prev = arcs.first, arcs.last, arcs.prev
    if not spread <= MAX_SPREAD:
        return -1
    for t in range(T):
        m = alpha[t]
        m[:] = 0.0
        if t == 0:
            m[:M] = psi_node[0]
        else:
            k, p = edge_class[t], arcs.pattern[edge_class[t]]
            slot_buf[:] = 0.0
            n_products += spread_masses(t - 1, p, alpha, up, arcs, factor, rest, slot_buf)
            for yp in range(M):
                a, row = up[t - 1, yp], psi_plain[k, yp]
                for y in range(M):
                    m[y] += a * row[y]
            for d in range(arcs.pair_ptr[p + 1] - arcs.pair_ptr[p]):
                yp, y = arcs.pair_prev[arcs.pair_ptr[p] + d], arcs.pair_next[arcs.pair_ptr[p] + d]
                pair_mass[t, d] = slot_buf[Q + d]
                m[y] += psi_edge[k, yp, y] * slot_buf[Q + d]
            for y in range(M):
                m[y] *= psi_node[t, y]
            for q in range(M, Q):
                m[q] = psi_node[t, last[q]] * psi_edge[k, prev[q], last[q]] * slot_buf[q]
        scale[t] = np.sum(m)
        if not (scale[t] > 0.0 and scale[t] < np.inf):
            return -1
        for q in range(Q - 1, -1, -1):
            if m[q] > 0.0 and m[q] < SMALLEST_MASS:
                return -1
            m[q] /= scale[t]
            up[t, q] = m[q]
            for c in range(first[q], first[q + 1]):
                up[t, q] += up[t, c]
    return n_products


@kernel
def _add_up(q, k, p, arcs, factor, slot, psi_plain, v, stamp, mark):
    """sum_y of what context q gains by reading y: the arc of the longest suffix of q that has one, or psi_plain v."""
    total = 0.0
    while True:
        for e in range(arcs.arc_lo[p, q], arcs.arc_hi[p, q]):
            if stamp[arcs.arc_label[e]] != mark:
                stamp[arcs.arc_label[e]] = mark
                total += factor[e] * slot[arcs.arc_dest[e]]
        if arcs.backoff[q] < 0:
            break
        q = arcs.backoff[q]
    for y in range(psi_plain.shape[1]):
        if stamp[y] != mark:
            total += psi_plain[k, q, y] * v[y]
    return total


@kernel
def collect_masses(t, p, k, weight, up, arcs, factor, psi_plain, rest, slot, v, beta, arc_sum, more_buf, gain_buf, stamp_buf):
    """beta at token t of the longer states, beta at single labels given in part: the way back of spread_masses; returns its products.

    gain[e] = factor[e] slot[arc_dest[e]];   arc_sum[e] += weight rest[e] gain[e]
    beta[y] += sum over its arcs of gain[e] at single labels;  beta[q] = beta[back-off of q] + sum over the arcs e of q of gain[e] - gain[parent of e]
    A beta[q] below CANCELLED of its back-off's is added up label by label (`_add_up`). Where up is 0, beta is set to 0.

    Arguments: t, p, k, weight; up (T, Q), arcs, factor (E,), psi_plain (K, M, M), rest (T, I+1) as in tuple_forward; slot (Q + D,): what lies beyond
    each destination; v (M,): the same at single labels; out: beta (Q,), arc_sum (E,), added to; work: more_buf (Q,), gain_buf (I+1,), stamp_buf
    int64 (M + 1,): a counter in its last place. Cost: the arcs of the pattern, and Q. Source: as spread_masses.
    """
    start, inner, stop, M = arcs.pattern_ptr[p], arcs.leaf_ptr[p], arcs.pattern_ptr[p + 1], psi_plain.shape[1]
    state, parent, dest = arcs.arc_state, arcs.arc_parent, arcs.arc_dest
    more_buf[:] = 0.0
    gain_buf[gain_buf.size - 1] = 0.0
    for e in range(start, inner):
        g = factor[e] * slot[dest[e]]
        gain_buf[e - start] = g
        arc_sum[e] += weight * rest[t, e - start] * g
        more_buf[state[e]] += g - gain_buf[parent[e]]
    for e in range(inner, stop):
        g = factor[e] * slot[dest[e]]
        arc_sum[e] += weight * up[t, state[e]] * g
        more_buf[state[e]] += g - gain_buf[parent[e]]
    for q in range(beta.size):
        if up[t, q] == 0.0:
            beta[q] = 0.0
        elif q < M:
            beta[q] += more_buf[q]
        else:
            b = beta[arcs.backoff[q]]
            beta[q] = b + more_buf[q]
            if not beta[q] > CANCELLED * b:
                stamp_buf[M] += 1
                beta[q] = _add_up(q, k, p, arcs, factor, slot, psi_plain, v, stamp_buf, stamp_buf[M])
    return stop - start


@kernel
def tuple_backward(psi_node, edge_class, weight, arcs, factor, psi_edge, psi_plain, alpha, up, scale, rest, pair_mass, rows, p_node,
                   edge_sum, arc_sum, beta_buf, v_buf, slot_buf, more_buf, gain_buf, stamp_buf):
    """Backward masses, and the expected counts that they and tuple_forward's give; returns the products with arcs.

    beta[T-1] = 1;  v[q] = psi_node[t,last q] beta[t,q] / scale[t];  slot[d] = psi_edge[prev d, last d] v[d], v at its label for a pair
    beta[t-1,yp] = sum_y psi_plain[yp,y] v[y] + the gains of its arcs; longer contexts: collect_masses
    p_node[t,y] = sum of alpha[t,q] beta[t,q] over last q = y
    edge_sum[k,yp,y] += up[t-1,yp] psi_plain[yp,y] v[y], or pair_mass[t,d] slot[d], and alpha[t,q] beta[t,q] of the q that end in (yp, y)
    arc_sum[e] += rest[t-1,e] gain[e]: what is expected of a tuple is the arc_sum of its arc and of all arcs that back off to it.

    Arguments: as tuple_forward: psi_node (T, M), edge_class (T,), arcs, factor (E,), psi_edge, psi_plain (K, M, M), alpha, up (T, Q), scale (T,),
    rest (T, I+1), pair_mass (T, D); weight; rows int64 (T,): row of p_node for each token; out: p_node (n, M), rows overwritten; edge_sum
    (K, M, M) and arc_sum (E,), added to; work: beta_buf (Q,), v_buf (M,), slot_buf (Q + D,), more_buf (Q,), gain_buf (I+1,), stamp_buf int64 (M + 1,).
    Cost: 2 M^2 and two for each arc of the pattern, a token. Source: Rabiner (1989), section V.A, over label contexts.
    """
    (T, M), Q, n_products = psi_node.shape, alpha.shape[1], 0
    last, prev = arcs.last, arcs.prev
    stamp_buf[:] = 0
    beta_buf[:] = 1.0
    for t in range(T - 1, -1, -1):
        p_row, k, p = p_node[rows[t]], edge_class[t], arcs.pattern[edge_class[t]]
        for y in range(M):
            p_row[y] = weight * alpha[t, y] * beta_buf[y]
            v_buf[y] = psi_node[t, y] / scale[t] * beta_buf[y]
        if t == 0:
            break
        for q in range(M, Q):
            both = weight * alpha[t, q] * beta_buf[q]
            p_row[last[q]] += both
            edge_sum[k, prev[q], last[q]] += both
            slot_buf[q] = psi_edge[k, prev[q], last[q]] * (psi_node[t, last[q]] / scale[t] * beta_buf[q])
        for d in range(arcs.pair_ptr[p + 1] - arcs.pair_ptr[p]):
            yp, y = arcs.pair_prev[arcs.pair_ptr[p] + d], arcs.pair_next[arcs.pair_ptr[p] + d]
            slot_buf[Q + d] = psi_edge[k, yp, y] * v_buf[y]
            edge_sum[k, yp, y] += weight * pair_mass[t, d] * slot_buf[Q + d]
        for yp in range(M):
            row, row_sum, a, b = psi_plain[k, yp], edge_sum[k, yp], weight * up[t - 1, yp], 0.0
            for y in range(M):
                g = row[y] * v_buf[y]
                b += g
                row_sum[y] += a * g
            beta_buf[yp] = b
        n_products += collect_masses(t - 1, p, k, weight, up, arcs, factor, psi_plain, rest, slot_buf, v_buf, beta_buf, arc_sum, more_buf,
                                     gain_buf, stamp_buf)
    return n_products
