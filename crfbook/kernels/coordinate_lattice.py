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
def _finish(v, spread):
    """Sum of v (M,), which is divided by it; 0 where scaled vectors cannot be trusted."""
    c, tiny = 0.0, 0
    for y in range(v.size):
        c += v[y]
        tiny += 1 if 0.0 < v[y] < SMALLEST_MASS else 0
    if not (spread <= MAX_SPREAD and c > 0.0 and c < np.inf) or tiny:
        return 0.0
    for y in range(v.size):
        v[y] /= c
    return c


@kernel
def extend_alpha(begin, position, stop, edge_class, psi_node, alpha, token, tables):
    """alpha of positions position..stop-1 of the sequence that begins at token `begin`; returns how far it is good.

    alpha[0] ~ psi_node[0],  alpha[t, y] ~ psi_node[t, y] sum_yp alpha[t-1, yp] psi[yp, y];  scale[t] the sums divided out.
    Arguments: begin, position, stop; edge_class (N,), psi_node (N, M), alpha (N, M), token (5, N) of chains; tables.
    Cost: a product a position. Source: spec A.10.
    """
    row, M = tables.lists.row, psi_node.shape[1]
    for p in range(position, stop):
        t = begin + p
        a, psi = alpha[t], psi_node[t]
        spread, log_scale = token[NODE_SPREAD, t], token[NODE_MAX, t]
        if p == 0:
            a[:] = psi
        else:
            k = edge_class[t]
            if tables.slot[k] >= 0:
                np.dot(alpha[t - 1], tables.whole[tables.slot[k]], a)
            else:
                low, high = row[START, k], row[START, k] + row[SIZE, k]
                from_left(alpha[t - 1], tables.base, tables.lists.cell[low:high], tables.lists.value[low:high], a)
            for y in range(M):
                a[y] *= psi[y]
            spread += tables.spread[k] + tables.level[1]
            log_scale += token[ALPHA_LOG, t - 1] + tables.level[0]
        c = _finish(a, spread)
        if c == 0.0:
            return p
        token[SCALE, t] = c
        token[ALPHA_LOG, t] = log_scale + np.log(c)
    return stop


@kernel
def extend_beta(begin, position, start, T, edge_class, psi_node, beta, token, ends, tables, v):
    """beta of positions position-1 down to start; returns from where it is good.

    beta[T-1] = 1/L,  beta[t-1, yp] ~ sum_y psi[yp, y] psi_node[t, y] beta[t, y]; each sums to one.
    Arguments: begin, position, start, T; edge_class (N,), psi_node (N, M), beta (N, M), token (5, N) of chains; ends (M,): 1, 0 for padding; tables; work: v (M,).
    Cost: a product a position. Source: spec A.10.
    """
    row, M = tables.lists.row, psi_node.shape[1]
    for p in range(position - 1, start - 1, -1):
        t = begin + p
        b, spread, log_scale = beta[t], 0.0, 0.0
        if p == T - 1:
            b[:] = ends
        else:
            k = edge_class[t + 1]
            for y in range(M):
                v[y] = psi_node[t + 1, y] * beta[t + 1, y]
            if tables.slot[k] >= 0:
                np.dot(tables.whole[tables.slot[k]], v, b)
            else:
                low, high = row[START, k], row[START, k] + row[SIZE, k]
                from_right(v, tables.base, tables.lists.cell[low:high], tables.lists.value[low:high], b)
            spread = tables.spread[k] + tables.level[1] + token[NODE_SPREAD, t + 1]
            log_scale = token[BETA_LOG, t + 1] + token[NODE_MAX, t + 1] + tables.level[0]
        c = _finish(b, spread)
        if c == 0.0:
            return p + 1
        token[BETA_LOG, t] = log_scale + np.log(c)
    return start


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
def extend(i, first, last, chains, tables, mu, weights, work):
    """alpha up to position last and beta from position first on; log_z[i] and the return value: log Z.

    A sequence whose scaled vectors cannot be trusted gets place[UNSAFE, i] = 1, and logarithms of alpha and beta, all of them.
    Arguments: i; first; last; chains; tables; mu (A, M), weights: node and edge weights; work. Cost: a product a new position. Source: spec A.10.
    """
    begin, T, place = chains.seq_ptr[i], chains.seq_ptr[i + 1] - chains.seq_ptr[i], chains.place
    if place[UNSAFE, i] == 0:
        ahead, behind = place[AHEAD, i], place[BEHIND, i]
        if ahead <= last:
            place[AHEAD, i] = extend_alpha(
                begin, ahead, last + 1, chains.edge_class, chains.psi_node, chains.alpha, chains.token, tables
            )
        if behind > first:
            place[BEHIND, i] = extend_beta(
                begin, behind, first, T, chains.edge_class, chains.psi_node, chains.beta, chains.token, work.ends, tables, work.right
            )
        work.steps[0] += abs(place[AHEAD, i] - ahead) + abs(behind - place[BEHIND, i])
        total = 0.0
        if place[AHEAD, i] > last and place[BEHIND, i] <= first:
            t = begin + last
            total = np.dot(chains.alpha[t], chains.beta[t])
        if total > SMALLEST_MASS:
            chains.log_z[i] = chains.token[ALPHA_LOG, t] + chains.token[BETA_LOG, t] + np.log(total)
            return chains.log_z[i]
        place[UNSAFE, i] = 1
        place[AHEAD, i] = 0
    if place[AHEAD, i] == 0:
        log_node, log_edge = np.empty((T, mu.shape[1])), np.empty((T, mu.shape[1], mu.shape[1]))
        sequence_scores(i, chains, tables, mu, weights, log_node, log_edge)
        chains.log_z[i] = forward_backward_log(
            log_node, log_edge, np.arange(T).astype(np.int32), chains.alpha[begin : begin + T], chains.beta[begin : begin + T]
        )
        work.steps[0] += 2 * T
        place[AHEAD, i] = T
        place[BEHIND, i] = 0
    return chains.log_z[i]


@kernel
def extend_all(first, last, chains, tables, mu, weights, work):
    """log_z[i] of sequences first..last-1, alpha to their ends.

    Arguments: first, last; chains; tables; mu (A, M); weights; work. Cost: a product a token. Source: Sokolovska et al. (2010), eq. (4).
    """
    for i in range(first, last):
        T = chains.seq_ptr[i + 1] - chains.seq_ptr[i]
        if T > 0:
            extend(i, T - 1, T - 1, chains, tables, mu, weights, work)
