"""Forward-backward over label contexts of varying length:
a chain that remembers only where a weight asks it to.

States, arcs, lanes: arcs.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS
from crfbook.learners.tuples.arcs import CANCELLED, add_up, clear, collect_masses, same_pattern, spread_masses

TUPLE_SPREAD = 100.0  # nats; see tuple_forward


@kernel
def _step(t, edge_class, length, arcs, psi_node, psi_edge, psi_plain, up, slot, row_buf, m):
    """m (Q, W) from the slots and from the transitions without arcs; see tuple_forward."""
    M, Q = psi_node.shape[1], m.shape[0]
    last, prev = arcs.last, arcs.prev
    for r in range(length.size):
        if t >= length[r]:
            continue
        k = edge_class[t, r]
        p = arcs.pattern[k]
        for y in range(M):
            row_buf[y] = 0.0
        for yp in range(M):
            a, row = up[t - 1, yp, r], psi_plain[k, yp]
            for y in range(M):
                row_buf[y] += a * row[y]
        for d in range(arcs.pair_ptr[p], arcs.pair_ptr[p + 1]):
            row_buf[arcs.pair_next[d]] += (
                psi_edge[k, arcs.pair_prev[d], arcs.pair_next[d]] * slot[Q + d - arcs.pair_ptr[p], r]
            )
        for y in range(M):
            m[y, r] = psi_node[t, y, r] * row_buf[y]
    for q in range(M, Q):  # slots of lanes that have ended are 0
        yp, y = prev[q], last[q]
        for r in range(length.size):
            m[q, r] = psi_node[t, y, r] * psi_edge[edge_class[t, r], yp, y] * slot[q, r]


@kernel
def tuple_forward(
    psi_node,
    edge_class,
    length,
    arcs,
    factor,
    psi_edge,
    psi_plain,
    alpha,
    up,
    scale,
    rest,
    pair_mass,
    mask_buf,
    row_buf,
    slot_buf,
):
    """Scaled forward masses of the states; returns the number of products with arcs.
    A lane that needs the log form gets length 0.

    alpha[0,y] = psi_node[0,y] at single labels;  up[t,q] = alpha[t,q] + sum of up[t,c] over the children c of
    q: all paths ending in q
    slot[d] = sum over the arcs e that lead to d of rest[t-1,e] factor[e]   (spread_masses)
    m[q] = psi_node[t,last q] psi_edge[prev q, last q] slot[q] for longer contexts q
    m[y] = psi_node[t,y] (sum_yp up[t-1,yp] psi_plain[yp,y] + sum of psi_edge[yp,y] slot[d] over the pairs
    d = (yp, y) with arcs) at single labels
    scale[t] = sum_q m[q],  alpha[t] = m / scale[t]

    The log form is needed if some 0 < m[q] < 1e-150, or scale[t] is 0 or not finite, or (the caller sees to
    that) scores of a step spread over more than TUPLE_SPREAD: as in forward_backward_scaled, with a smaller
    spread. A context that no path is in still lends its beta to longer ones; it reads the same labels with
    other weights for at most three tokens, so its beta is at most 1e150 exp(3 * 100).

    Arguments: psi_node (T, M, W) as from exp_nodes; edge_class (T, W), length int64 (W,): tokens in each
    lane, set to 0 where the form fails; arcs: `Arcs` of automaton.py; factor (E,); psi_edge (K,
    M, M); psi_plain (K, M, M), the same but 0 where a single label has an arc; out: alpha, up (T, Q, W),
    scale (T, W), rest (T, I+1, W), pair_mass (T, D, W): slots of pairs; work: mask_buf (W,), row_buf (M,),
    slot_buf (Q + D, W). Cost: M^2 products a token, one for each arc of its pattern, Q. Source: Rabiner
    (1989), section V.A, over label contexts.
    """
    (T, M, W), Q, n_products, first, pattern = psi_node.shape, alpha.shape[1], 0, arcs.first, arcs.pattern
    pattern_ptr = arcs.pattern_ptr
    for t in range(T):
        m = alpha[t]
        if t == 0:
            for q in range(Q):
                for r in range(W):
                    m[q, r] = psi_node[0, q, r] if q < M else 0.0
        else:
            clear(slot_buf)
            clear(rest[t - 1])
            for r in range(W):
                n = same_pattern(t, edge_class, length, pattern, r, mask_buf) if t < length[r] else 0
                if n:
                    p = pattern[edge_class[t, r]]
                    spread_masses(t - 1, p, mask_buf, alpha, up, arcs, factor, rest, slot_buf)
                    n_products += n * (pattern_ptr[p + 1] - pattern_ptr[p])
            for d in range(pair_mass.shape[1]):
                for r in range(W):
                    pair_mass[t, d, r] = slot_buf[Q + d, r]
            _step(t, edge_class, length, arcs, psi_node, psi_edge, psi_plain, up, slot_buf, row_buf, m)
        for r in range(W):
            total, smallest = 0.0, np.inf
            for q in range(Q):
                total += m[q, r]
                smallest = m[q, r] if m[q, r] > 0.0 and m[q, r] < smallest else smallest
            fails = not (total > 0.0 and total < np.inf and smallest >= SMALLEST_MASS)
            if fails and t < length[r]:
                length[r] = 0
            scale[t, r] = 1.0 if fails or t >= length[r] else total
            mask_buf[r] = 0.0 if t >= length[r] else 1.0 / total
        for q in range(Q - 1, -1, -1):
            for r in range(W):
                m[q, r] = m[q, r] * mask_buf[r] if mask_buf[r] > 0.0 else 0.0
                up[t, q, r] = m[q, r]
            for c in range(first[q], first[q + 1]):
                for r in range(W):
                    up[t, q, r] += up[t, c, r]
    return n_products


@kernel
def _look_ahead(
    t,
    edge_class,
    length,
    weight,
    arcs,
    psi_node,
    psi_edge,
    alpha,
    scale,
    beta,
    p_label,
    edge_sum,
    v,
    slot,
    pair_mass,
):
    """Marginals of token t (M, W), v and slot beyond it, and the counts of pairs with arcs;
    see tuple_backward.
    """
    M, Q, W = psi_node.shape[1], alpha.shape[1], length.size
    last, prev, pattern, pair_ptr = arcs.last, arcs.prev, arcs.pattern, arcs.pair_ptr
    pair_prev, pair_next = arcs.pair_prev, arcs.pair_next
    for y in range(M):
        for r in range(W):
            p_label[y, r] = weight[r] * alpha[t, y, r] * beta[y, r]
            psi_node[t, y, r] = psi_node[t, y, r] / scale[t, r]
            v[y, r] = psi_node[t, y, r] * beta[y, r]  # 0 in lanes that have ended: their beta is 0
    for q in range(M, Q if t > 0 else M):
        yp, y = prev[q], last[q]
        for r in range(W):
            both, k = weight[r] * alpha[t, q, r] * beta[q, r], edge_class[t, r]
            p_label[y, r] += both
            edge_sum[k, yp, y] += both
            slot[q, r] = psi_edge[k, yp, y] * (psi_node[t, y, r] * beta[q, r])
    for r in range(W if t > 0 else 0):
        k = edge_class[t, r]
        p = pattern[k]
        for d in range(pair_ptr[p], pair_ptr[p + 1] if t < length[r] else 0):
            yp, y, i = pair_prev[d], pair_next[d], Q + d - pair_ptr[p]
            slot[i, r] = psi_edge[k, yp, y] * v[y, r]
            edge_sum[k, yp, y] += weight[r] * pair_mass[t, i - Q, r] * slot[i, r]


@kernel
def _step_back(
    t,
    edge_class,
    length,
    weight,
    arcs,
    factor,
    psi_plain,
    psi_plain_t,
    up,
    v,
    slot,
    more,
    beta,
    edge_sum,
    stamp,
    v_buf,
    beta_buf,
):
    """beta of token t - 1 from what its arcs gain (`more`), and the counts of pairs without arcs;
    see tuple_backward.
    """
    M, W = psi_plain.shape[1], length.size
    for r in range(W):
        if t >= length[r]:
            continue
        k = edge_class[t, r]
        for yp in range(M):
            v_buf[yp], beta_buf[yp] = v[yp, r], 0.0
        # a row of the transposed table after the other: sums along a row would wait for each other
        for y in range(M):
            g, row = v_buf[y], psi_plain_t[k, y]
            for yp in range(M):
                beta_buf[yp] += row[yp] * g
        for yp in range(M):
            row, row_sum, a = psi_plain[k, yp], edge_sum[k, yp], weight[r] * up[t - 1, yp, r]
            beta[yp, r] = beta_buf[yp] + more[yp, r] if up[t - 1, yp, r] > 0.0 else 0.0
            for y in range(M):
                row_sum[y] += a * (row[y] * v_buf[y])
    for q in range(M, beta.shape[0]):
        b, low = arcs.backoff[q], 0
        for r in range(W):
            beta[q, r] = beta[b, r] + more[q, r] if up[t - 1, q, r] > 0.0 else 0.0
            low += up[t - 1, q, r] > 0.0 and not beta[q, r] > CANCELLED * beta[b, r]
        if low:
            for r in range(W):
                if t < length[r] and up[t - 1, q, r] > 0.0 and not beta[q, r] > CANCELLED * beta[b, r]:
                    k = edge_class[t, r]
                    stamp[M] += 1
                    beta[q, r] = add_up(
                        q, k, arcs.pattern[k], r, arcs, factor, slot, psi_plain, v, stamp, stamp[M]
                    )


@kernel
def tuple_backward(
    psi_node,
    edge_class,
    length,
    weight,
    arcs,
    factor,
    psi_edge,
    psi_plain,
    psi_plain_t,
    alpha,
    up,
    scale,
    rest,
    pair_mass,
    rows,
    p_node,
    edge_sum,
    arc_sum,
    beta_buf,
    v_buf,
    label_buf,
    mask_buf,
    slot_buf,
    more_buf,
    gain_buf,
    stamp_buf,
    row_buf,
    sum_buf,
):
    """Backward masses, and the expected counts that they and tuple_forward's give;
    returns the products with arcs.

    beta[T-1] = 1;  v[q] = psi_node[t,last q] beta[t,q] / scale[t]
    slot[d] = psi_edge[prev d, last d] v[d], v at its label for a pair
    beta[t-1,yp] = sum_y psi_plain[yp,y] v[y] + more[yp] at single labels
    beta[t-1,q] = beta[t-1, back-off of q] + more[q] at longer contexts (collect_masses)
    p_node[t,y] = sum of alpha[t,q] beta[t,q] over last q = y
    edge_sum[k,yp,y] += up[t-1,yp] psi_plain[yp,y] v[y], or pair_mass[t,d] slot[d], and alpha[t,q] beta[t,q]
    of the q that end in (yp, y)
    arc_sum[e] += rest[t-1,e] gain[e]

    A beta[t-1,q] below CANCELLED of its back-off's is added up label by label. Where up is 0, beta is set to
    0. What is expected of a tuple is the arc_sum of its arc and of all arcs that back off to it.

    Arguments: as tuple_forward: psi_node (T, M, W), divided by scale on the way, edge_class (T, W), length
    (W,), arcs, factor (E,), psi_edge, psi_plain (K, M, M), psi_plain_t (K, M, M): its transposes, alpha, up
    (T, Q, W), scale (T, W), rest (T, I+1, W), pair_mass (T, D, W); weight (W,); rows int64 (T, W): row of
    p_node for each token; out: p_node (n, M), rows overwritten; edge_sum (K, M, M) and arc_sum (E,), added
    to; work: beta_buf, more_buf (Q, W), v_buf, label_buf (M, W), mask_buf (W,), slot_buf (Q + D, W), gain_buf
    (I+1, W), stamp_buf int64 (M + 1,): a counter in its last place, row_buf, sum_buf (M,). Cost: 2 M^2 and
    two for each arc of the pattern, a token. Source: Rabiner (1989), section V.A, over label contexts.
    """
    (T, M, W), Q, n_products, pattern = psi_node.shape, beta_buf.shape[0], 0, arcs.pattern
    pattern_ptr = arcs.pattern_ptr
    for y in range(M + 1):
        stamp_buf[y] = 0
    clear(beta_buf)
    clear(slot_buf)
    for t in range(T - 1, -1, -1):
        for r in range(W):
            if t == length[r] - 1:
                for q in range(Q):
                    beta_buf[q, r] = 1.0
        _look_ahead(
            t,
            edge_class,
            length,
            weight,
            arcs,
            psi_node,
            psi_edge,
            alpha,
            scale,
            beta_buf,
            label_buf,
            edge_sum,
            v_buf,
            slot_buf,
            pair_mass,
        )
        for r in range(W):
            if t < length[r]:
                for y in range(M):
                    p_node[rows[t, r], y] = label_buf[y, r]
        if t == 0:
            break
        clear(more_buf)
        for r in range(W):
            n = same_pattern(t, edge_class, length, pattern, r, mask_buf) if t < length[r] else 0
            if n:
                p = pattern[edge_class[t, r]]
                collect_masses(
                    t - 1, p, mask_buf, weight, up, arcs, factor, rest, slot_buf, arc_sum, more_buf, gain_buf
                )
                n_products += n * (pattern_ptr[p + 1] - pattern_ptr[p])
        _step_back(
            t,
            edge_class,
            length,
            weight,
            arcs,
            factor,
            psi_plain,
            psi_plain_t,
            up,
            v_buf,
            slot_buf,
            more_buf,
            beta_buf,
            edge_sum,
            stamp_buf,
            row_buf,
            sum_buf,
        )
    return n_products
