"""One sentence a call, compiled: node scores, Viterbi, marginals, and the attributes of a template.

A call of a kernel costs a microsecond, as much as the work on one token. So what changes from sentence to
sentence comes in few flat arrays, and NamedTuples, which cost another microsecond each, are not used.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import exp_nodes, forward_backward_scaled, log_z_scaled
from crfbook.chain.viterbi import _max_plus

LARGEST_TERM = 1e5  # nats: 500 tokens of such scores stay below what `LogChain` must look at


@kernel
def sentence_scores(flat, value, w, node_ptr, node_label, limits, u):
    """u[t,y] = sum_a x[t,a] w[a,y], in the order of the attributes, plus the scores of hard constraints.

    An attribute that a token has twice counts where it stands first, with the sum of its values.
    Arguments:
        flat : int64 (T+1+n,) or (T+1+n+T,), the pointers of T tokens, which count from 0, then n attribute
            ids, -1: unknown; then the row in limits of each token's label set, where there are such sets
        value : (n,) values of the attributes, or (0,) where all are 1
        w : (F,) weights
        node_ptr : int64 (A+1,), the rows of a `FeatureSet`
        node_label : int32 (n_node,), their labels
        limits : (2+D, L) hard constraints as scores, 0 or -inf: of first tokens, last tokens, label sets
    Out:
        u : (T, L)
    Cost: one multiply-add a weight, n^2 / 2 comparisons for the n attributes of a token.
    Source: Sokolovska et al. (2010), section 2; docs/SPEC.md, F.2.
    """
    T, L = u.shape
    base, sets = T + 1, T + 1 + flat[T]
    for t in range(T):
        for y in range(L):
            u[t, y] = 0.0
        begin, end = base + flat[t], base + flat[t + 1]
        for i in range(begin, end):
            a = flat[i]
            before, after = 0, 0
            for j in range(begin, i):
                before += flat[j] == a
            for j in range(i + 1, end):
                after += flat[j] == a
            if a < 0 or before:
                continue
            x = value[i - base] if value.size else 1.0
            if after:
                for j in range(i + 1, end):
                    if flat[j] == a:
                        x += value[j - base] if value.size else 1.0
            for k in range(node_ptr[a], node_ptr[a + 1]):
                u[t, np.uint32(node_label[k])] += x * w[k]
        if flat.size > sets:
            for y in range(L):
                u[t, y] += limits[flat[sets + t], y]
    for y in range(L):
        u[0, y] += limits[0, y]
        u[T - 1, y] += limits[1, y]


@kernel
def tag_sentence(flat, value, w, node_ptr, node_label, tables, n_labels, path):
    """The best labelling; returns its score: -inf where all are forbidden, NaN or inf where sums overflow.

    The recursion of `viterbi`, with its ties; previous labels are found again on the way back.
    Arguments: as in `sentence_scores`, and
        tables : (n,), n = (L+2+D) L: scores of transitions as [previous, next], and limits
        n_labels : L
    Out:
        path : int32 (T,), T >= 1
    Cost: that of `sentence_scores`, and T L^2 additions and maxima. Source: Viterbi (1967).
    """
    T, L = path.size, n_labels
    log_edge, limits = tables[: L * L].reshape(1, L, L), tables[L * L :].reshape(-1, L)
    delta, best, rows = np.empty((T, L)), np.empty((T, L)), np.arange(L)
    sentence_scores(flat, value, w, node_ptr, node_label, limits, delta)
    for t in range(T):
        if t > 0:
            _max_plus(delta, log_edge, 0, rows, L, best, t)
            for y in range(L):
                delta[t, y] += best[t, y]
        for y in range(L):
            if not delta[t, y] < np.inf:
                return np.nan
    last = np.argmax(delta[T - 1])
    score = delta[T - 1, last]
    if score == -np.inf:
        return score
    path[T - 1] = last
    for t in range(T - 1, 0, -1):
        y, before = path[t], 0
        while delta[t - 1, before] + log_edge[0, before, y] != best[t, y]:
            before += 1
        path[t - 1] = before
    return score


@kernel
def sentence_marginals(flat, value, w, node_ptr, node_label, tables, p_node):
    """Node marginals by scaled forward-backward; returns log_z, or NaN where only logarithms will do.

    p_node[t,y] = alpha[t,y] beta[t,y] / sum_y' of these. See `forward_backward_scaled`.
    Arguments: as in `sentence_scores`, and
        tables : (n,), n = 2 + (2L+2+D) L: the largest score of a transition in nats, the spread of all,
            psi_edge of `exp_edges` as [previous, next], its transpose, and limits
    Out:
        p_node : (T, L), T >= 1
    Cost: that of `sentence_scores`, T L exps, 2 T L^2 multiply-adds. Source: Rabiner (1989), section V.A.
    """
    T, L = p_node.shape
    n, edge, rest = L * L, tables[:2], tables[2:]
    psi_edge, psi_edge_t = rest[:n].reshape(1, L, L), rest[n : 2 * n].reshape(1, L, L)
    node_max, scale, edge_class = np.empty(T), np.empty(T), np.zeros(T, np.int32)
    psi_node, alpha, beta = np.empty((T, L)), np.empty((T, L)), np.empty((T, L))
    sentence_scores(flat, value, w, node_ptr, node_label, rest[2 * n :].reshape(-1, L), p_node)
    spread = edge[1] + exp_nodes(p_node, psi_node, node_max)
    for i in range(flat[T]):  # large terms that cancel leave few digits: logarithms know how many
        a, x = flat[T + 1 + i], value[i] if value.size else 1.0
        for k in range(node_ptr[a], node_ptr[a + 1] if a >= 0 else 0):
            if not abs(x * w[k]) < LARGEST_TERM:
                return np.nan
    if forward_backward_scaled(psi_node, psi_edge, psi_edge_t, edge_class, spread, alpha, beta, scale):
        return np.nan
    for t in range(T):
        total = 0.0
        for y in range(L):
            p_node[t, y] = alpha[t, y] * beta[t, y]
            total += p_node[t, y]
        for y in range(L):
            p_node[t, y] /= total
    return log_z_scaled(scale, node_max, edge[:1], edge_class)


@kernel
def template_rows(codes, first_outside, back, patterns, slots, keys, key_ptr, ids, flat):
    """The attributes that the patterns of a template find in one sentence, into flat; returns its length.

    A pattern's cells c1 .. cm have the key (.. (c1 V2 + c2) .. ) Vm + cm, V the number of values of a cell
    (encoding/families.py). It is found where it stands if no smaller one is missing, or else by halving.
    Arguments:
        codes : int64 (T, C), the value of each cell source at each token, -1: none that is known
        first_outside : int64 (C, 2), the code of the cell before the sequence, -1 if that gives no value; V
        back : cells before a sequence that have a code of their own
        patterns : int64 (P, 3), family, first slot, end
        slots : int64 (n, 2), source and offset
        keys : int64 (K,), those of all families, rising in each
        key_ptr : int64 (families + 1,), where each begins
        ids : int64 (K,), attributes of the keys, -1: none
    Out:
        flat : int64 (T+1 + at most T P,)
    Cost: T P times the log of the keys. Source: docs/SPEC.md, F.1.
    """
    T, base, n = codes.shape[0], codes.shape[0] + 1, 0
    flat[0] = 0
    for t in range(T):
        for p in range(patterns.shape[0]):
            key, known = np.int64(0), True
            for s in range(patterns[p, 1], patterns[p, 2]):
                c, at = slots[s, 0], t + slots[s, 1]
                code = np.int64(-1)
                if 0 <= at < T:
                    code = codes[at, c]
                elif first_outside[c, 0] >= 0:
                    code = first_outside[c, 0] + (-at - 1 if at < 0 else back + at - T)
                known &= code >= 0
                key = key * first_outside[c, 1] + code
            low, end = key_ptr[patterns[p, 0]], key_ptr[patterns[p, 0] + 1]
            high = end
            if known and low + key < end and keys[low + key] == key:  # all keys below are there, too
                low = high = low + key
            while known and low < high:
                middle = (low + high) >> 1
                if keys[middle] < key:
                    low = middle + 1
                else:
                    high = middle
            if known and low < end and keys[low] == key and ids[low] >= 0:
                flat[base + n] = ids[low]
                n += 1
        flat[t + 1] = n
    return base + n
