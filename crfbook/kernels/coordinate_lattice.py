"""Forward and backward vectors of single sequences, kept between visits and extended only as far as they are needed.

alpha[t] is good for the first place[AHEAD, i] positions of sequence i, beta[t] from position place[BEHIND, i] on. Both sum to one; the
logarithms of what was divided out add up in token[ALPHA_LOG] and token[BETA_LOG], so that at any position t where both are good
    log Z = alpha_log[t] + beta_log[t] + log sum_y alpha[t, y] beta[t, y].
A change of weights at positions first..last of a sequence spoils alpha from first on and beta before last, and nothing else.
`chains` and `work` (optim/chains.py), `tables` and `weights` (optim/arena.py) list their arrays. Source: Sokolovska et al. (2010),
section 5.2; spec A.10.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.kernels.coordinate_tables import from_left, from_right
from crfbook.kernels.forward_backward import forward_backward_log
from crfbook.kernels.vector_math import exp_inplace

NODE_MAX, NODE_SPREAD, SCALE, ALPHA_LOG, BETA_LOG = 0, 1, 2, 3, 4  # rows of Chains.token
AHEAD, BEHIND, UNSAFE = 0, 1, 2  # rows of Chains.place
START, SIZE = 0, 1  # rows of Lists.row
MAX_SPREAD = 300.0  # when scaled vectors may be trusted: as in forward_backward.py
SMALLEST_MASS = 1e-150


@kernel
def node_scores(t, mu, attr_ptr, attr_idx, attr_val, bound, u):
    """u[y] = bound[y] + sum_{a in x_t} x[a] mu[a, y].

    Arguments: t; mu (A, M); attr_ptr (N+1,), attr_idx (nnz,), attr_val (nnz,) or (0,); bound (M,): -inf where a label is forbidden; out: u (M,).
    Cost: its attributes times M. Source: Sokolovska et al. (2010), eq. (3).
    """
    M = u.size
    for y in range(M):
        u[y] = bound[y]
    for j in range(attr_ptr[t], attr_ptr[t + 1]):
        a = attr_idx[j]
        if a < mu.shape[0]:
            x = attr_val[j] if attr_val.size else 1.0
            for y in range(M):
                u[y] += x * mu[a, y]


@kernel
def score_tokens(tokens, mu, chains):
    """psi_node[t] = exp(u - node_max[t]) with u of `node_scores`, for these tokens.

    Arguments: tokens int32 (n,); mu (A, M); chains. Cost: `node_scores` and M exps each. Source: Sokolovska et al. (2010), eq. (3).
    """
    psi_node, token = chains.psi_node, chains.token
    for t in tokens:
        u = psi_node[t]
        node_scores(t, mu, chains.attr_ptr, chains.attr_idx, chains.attr_val, chains.bound[chains.bound_row[t]], u)
        high, low = -np.inf, np.inf
        for v in u:
            high = v if v > high else high
            low = v if v < low and v > -np.inf else low
        token[NODE_MAX, t] = high
        token[NODE_SPREAD, t] = high - low
        for y in range(u.size):
            u[y] -= high
        exp_inplace(u)


@kernel
def _finish(v, t, spread):
    """Sum of row t of v (N, M), which is divided by it; 0 where scaled vectors cannot be trusted."""
    a, b, c, d, tiny, M = 0.0, 0.0, 0.0, 0.0, 0, v.shape[1]
    for y in range(0, M, 4):
        a, b, c, d = a + v[t, y], b + v[t, y + 1], c + v[t, y + 2], d + v[t, y + 3]
    for y in range(M):
        tiny += 1 if 0.0 < v[t, y] < SMALLEST_MASS else 0
    total = (a + b) + (c + d)
    if not (spread <= MAX_SPREAD and total > 0.0 and total < np.inf) or tiny:
        return 0.0
    share = 1.0 / total
    for y in range(M):
        v[t, y] *= share
    return total


@kernel
def mass(alpha, beta, t):
    """sum_y alpha[t, y] beta[t, y].

    Arguments: alpha, beta (N, M); t. Cost: M. Source: Rabiner (1989), section III.
    """
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for y in range(0, alpha.shape[1], 4):
        a, b = a + alpha[t, y] * beta[t, y], b + alpha[t, y + 1] * beta[t, y + 1]
        c, d = c + alpha[t, y + 2] * beta[t, y + 2], d + alpha[t, y + 3] * beta[t, y + 3]
    return (a + b) + (c + d)


@kernel
def extend_alphas(sequences, wanted, chains, tables):
    """alpha of these sequences up to positions wanted; a sequence whose scaled vectors cannot be trusted gets place[UNSAFE] = 1.

    alpha[0] ~ psi_node[0],  alpha[t, y] ~ psi_node[t, y] sum_yp alpha[t-1, yp] psi[yp, y];  scale[t] the sums divided out.
    Returns the number of products. Arguments: sequences int32 (n,), wanted int32 (n,); chains; tables. Cost: a product a new position.
    Source: spec A.10.
    """
    psi_node, alpha, token, place, M, steps = chains.psi_node, chains.alpha, chains.token, chains.place, chains.alpha.shape[1], 0
    row, cell, value, base, level = tables.lists.row, tables.lists.cell, tables.lists.value, tables.base, tables.level
    slot, whole, spreads, edge_class, flat = tables.slot, tables.whole, tables.spread, chains.edge_class, int(tables.level[2])
    for v in range(sequences.size):
        i = sequences[v]
        if place[UNSAFE, i]:
            continue
        for p in range(place[AHEAD, i], wanted[v] + 1):
            t = chains.seq_ptr[i] + p
            spread, log_scale = token[NODE_SPREAD, t], token[NODE_MAX, t]
            if p == 0:
                for y in range(M):
                    alpha[t, y] = psi_node[t, y]
            else:
                k = edge_class[t]
                if slot[k] >= 0:
                    from_left(alpha, t, whole[slot[k]], 0, cell, value, 0, 0, alpha)
                else:
                    from_left(alpha, t, base, flat, cell, value, row[START, k], row[START, k] + row[SIZE, k], alpha)
                for y in range(M):
                    alpha[t, y] *= psi_node[t, y]
                spread += spreads[k] + level[1]
                log_scale += token[ALPHA_LOG, t - 1] + level[0]
            c = _finish(alpha, t, spread)
            if c == 0.0:
                place[UNSAFE, i], place[AHEAD, i] = 1, 0
                break
            token[SCALE, t] = c
            token[ALPHA_LOG, t] = log_scale + np.log(c)
            place[AHEAD, i] = p + 1
            steps += 1
    return steps


@kernel
def extend_betas(sequences, wanted, chains, tables, v_buf, ends):
    """beta of these sequences from positions wanted on; a sequence whose scaled vectors cannot be trusted gets place[UNSAFE] = 1.

    beta[T-1] = 1/L,  beta[t-1, yp] ~ sum_y psi[yp, y] psi_node[t, y] beta[t, y]; each sums to one.
    Returns the number of products. Arguments: sequences, wanted, chains, tables as in `extend_alphas`; work: v_buf (M,); ends (M,): 1, 0 for
    padding. Cost: a product a new position. Source: spec A.10.
    """
    psi_node, beta, token, place, M, steps = chains.psi_node, chains.beta, chains.token, chains.place, chains.beta.shape[1], 0
    row, cell, value, base_t, level = tables.lists.row, tables.lists.cell, tables.lists.value, tables.base_t, tables.level
    slot, whole, spreads, edge_class, flat = tables.slot, tables.whole, tables.spread, chains.edge_class, int(tables.level[2])
    for v in range(sequences.size):
        i = sequences[v]
        if place[UNSAFE, i]:
            continue
        for p in range(place[BEHIND, i] - 1, wanted[v] - 1, -1):
            t = chains.seq_ptr[i] + p
            spread, log_scale = 0.0, 0.0
            if t + 1 == chains.seq_ptr[i + 1]:
                for y in range(M):
                    beta[t, y] = ends[y]
            else:
                k = edge_class[t + 1]
                for y in range(M):
                    v_buf[y] = psi_node[t + 1, y] * beta[t + 1, y]
                if slot[k] >= 0:
                    np.dot(whole[slot[k]], v_buf, beta[t])
                else:
                    from_right(v_buf, t, base_t, flat, cell, value, row[START, k], row[START, k] + row[SIZE, k], beta)
                spread = spreads[k] + level[1] + token[NODE_SPREAD, t + 1]
                log_scale = token[BETA_LOG, t + 1] + token[NODE_MAX, t + 1] + level[0]
            c = _finish(beta, t, spread)
            if c == 0.0:
                place[UNSAFE, i], place[AHEAD, i] = 1, 0
                break
            token[BETA_LOG, t] = log_scale + np.log(c)
            place[BEHIND, i] = p
            steps += 1
    return steps


@kernel
def sequence_scores(i, chains, tables, mu, weights, log_node, log_edge):
    """log_node[t], log_edge[t] of sequence i from the weights, for what is not done in scaled form.

    Arguments: i; chains; tables; mu (A, M); weights; out: log_node (T, M), log_edge (T, M, M), its first entry untouched.
    Cost: T M^2. Source: Sokolovska et al. (2010), eq. (3).
    """
    begin, M = chains.seq_ptr[i], mu.shape[1]
    for p in range(log_node.shape[0]):
        t = begin + p
        node_scores(t, mu, chains.attr_ptr, chains.attr_idx, chains.attr_val, chains.bound[chains.bound_row[t]], log_node[p])
        if p == 0:
            continue
        k, table = chains.edge_class[t], log_edge[p]
        for yp in range(M):
            for y in range(M):
                table[yp, y] = tables.base_log[yp, y]
        for j in range(tables.class_ptr[k], tables.class_ptr[k + 1]):
            start = weights.row[START, tables.class_attr[j]]
            for e in range(start, start + weights.row[SIZE, tables.class_attr[j]]):
                table[weights.cell[e] >> 16, weights.cell[e] & 65535] += weights.value[e]


@kernel
def extend_in_logs(i, chains, tables, mu, weights):
    """alpha and beta of unsafe sequence i as logarithms, all of them, and its log Z.

    Arguments: i; chains; tables; mu (A, M), weights: node and edge weights. Cost: 2 T M^2 exps. Source: Lafferty et al. (2001), section 3.
    """
    begin, T = chains.seq_ptr[i], chains.seq_ptr[i + 1] - chains.seq_ptr[i]
    log_node, log_edge = np.empty((T, mu.shape[1])), np.empty((T, mu.shape[1], mu.shape[1]))
    sequence_scores(i, chains, tables, mu, weights, log_node, log_edge)
    chains.log_z[i] = forward_backward_log(
        log_node, log_edge, np.arange(T).astype(np.int32), chains.alpha[begin : begin + T], chains.beta[begin : begin + T]
    )
    chains.place[AHEAD, i], chains.place[BEHIND, i] = T, 0


@kernel
def extend(sequences, low, high, chains, tables, mu, weights, work):
    """alpha up to positions high and beta from positions low on, of these sequences; log_z of them.

    Unsafe sequences (place[UNSAFE] = 1) get logarithms of alpha and beta, all of them.
    Arguments: sequences, low, high int32 (n,); chains; tables; mu (A, M), weights: node and edge weights; work. Cost: a product a new
    position. Source: spec A.10.
    """
    place, token, log_z, alpha, beta = chains.place, chains.token, chains.log_z, chains.alpha, chains.beta
    work.steps[0] += extend_alphas(sequences, high, chains, tables)
    work.steps[0] += extend_betas(sequences, low, chains, tables, work.right, work.ends)
    for v in range(sequences.size):
        i = sequences[v]
        if place[UNSAFE, i] == 0:
            t = chains.seq_ptr[i] + high[v]
            total = mass(alpha, beta, t)
            log_z[i] = token[ALPHA_LOG, t] + token[BETA_LOG, t] + np.log(total)
            if not total > SMALLEST_MASS:
                place[UNSAFE, i], place[AHEAD, i] = 1, 0
        if place[UNSAFE, i] and place[AHEAD, i] == 0:
            extend_in_logs(i, chains, tables, mu, weights)
            work.steps[0] += 2 * (chains.seq_ptr[i + 1] - chains.seq_ptr[i])
