"""The best joint labelling of two label chains by dual decomposition, with a certificate.

The model has three kinds of parts whose best labels are cheap to find: chain 1, chain 2, and each rung, the
two labels of a token. Numbers g_k[t, y] are added to rungs and subtracted from chains. So labellings keep
their scores:

    score(y) = sum_k C_k(y_k) + sum_t R_t(y_1[t], y_2[t]),         c_k[t, y] = u_k[t, y] - g_k[t, y]
    C_k(y) = sum_t c_k[t, y[t]] + pair_k[y[t-1], y[t]],       R_t(a, b) = beside[a, b] + g_1[t, a] + g_2[t, b]
    D(g) = sum_k max C_k + sum_t max R_t >= score(y)   for each y: every part has its own best labels

Each update changes g of one token and one chain so that D falls or stays, and leaves max R_t = 0. If a
labelling has the score D, it is the best one: the certificate. Where parts disagree in a cycle, D may stay
above all scores. Then joint labels of a token whose own bound is below the best score so far are dropped
(pruning), and elimination over the others is exact.

Hard rules: c and g of a label that a part forbids are -inf, both of them, so every part forbids it.
`one` and `two` are `DualChain`s, with their shapes; T tokens of a sequence.
Source: Kolmogorov (2006), Convergent tree-reweighted message passing for energy minimization; Sontag,
Globerson and Jaakkola (2011), Introduction to dual decomposition for inference.
"""

from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel

TOLERANCE = 1e-9  # of a certificate, relative to the bound


class DualChain(NamedTuple):
    """One of two chains, its scores, and what sweeps write."""

    first: int  # first column of its scores
    pair: np.ndarray  # (L, L): scores of transitions, [previous, next]
    pair_t: np.ndarray  # (L, L): the same, [next, previous]
    beside: np.ndarray  # (L of the other chain, L): scores of the two labels of a token
    u: np.ndarray  # (longest, L): scores of the labels of a sequence
    c: np.ndarray  # (longest, L): what is left of them to the chain
    g: np.ndarray  # (longest, L): what is given to the rungs
    A: np.ndarray  # (longest, L): the best of what is before
    B: np.ndarray  # (longest, L): and of what follows
    node: np.ndarray  # (longest, L): scores where the labels of the other chain are known
    follows: np.ndarray  # (longest, L): B of these
    M: np.ndarray  # (L,): max-marginals of the chain
    R: np.ndarray  # (L,): and of a rung
    path: np.ndarray  # int32 (longest,): best labels of the chain
    given: np.ndarray  # int32 (longest,): the same, where the labels of the other chain are known


def dual_chains(chains, longest):
    """Both `DualChain`s of two `ChainTables` of `max_chains`, for sequences of up to `longest` tokens."""
    found, beside = [], chains.beside.reshape(chains.size)
    for first, L, start in zip(chains.first.tolist(), chains.size.tolist(), chains.pair_start, strict=True):
        beside = np.ascontiguousarray(beside.T)
        pair = chains.pair[start : start + L * L].reshape(L, L)
        rows, cells = (np.empty((longest, L)) for _ in range(7)), (np.empty(L) for _ in range(2))
        paths = (np.empty(longest, np.int32) for _ in range(2))
        found.append(DualChain(first, pair, np.ascontiguousarray(pair.T), beside, *rows, *cells, *paths))
    return found


@kernel
def best_of(v, table, out):
    """out[y] = max_yp v[yp] + table[yp, y]: a step of a chain, or what a rung has for each label.

    Arguments:
        v : (n,)
        table : (n, m)
    Out:
        out : (m,)
    Cost: n m, four rows at a time.
    Source: docs/SPEC.md, B.3.
    """
    n, m = table.shape
    out[:] = -np.inf
    for k in range(n // 4):
        y = 4 * k
        a, b, c, d = v[y], v[y + 1], v[y + 2], v[y + 3]
        if max(max(a, b), max(c, d)) == -np.inf:
            continue
        e, f, g, h = table[y], table[y + 1], table[y + 2], table[y + 3]
        for z in range(m):
            p, q, r, s, x = a + e[z], b + f[z], c + g[z], d + h[z], out[z]
            p = q if q > p else p
            r = s if s > r else r
            p = r if r > p else p
            out[z] = p if p > x else x
    for y in range(n // 4 * 4, n):
        a, e = v[y], table[y]
        for z in range(m):
            p, x = a + e[z], out[z]
            out[z] = p if p > x else x


@kernel
def beyond(reach, node, table, buf, out):
    """out[y] = max_yp reach[yp] + node[yp] + table[yp, y]: A or B of the next token.

    Arguments:
        reach, node : (L,)
        table : (L, L)
    Out:
        out : (L,)
    Work:
        buf : (L,)
    Cost: L^2 maxima.
    Source: docs/SPEC.md, B.3.
    """
    for y in range(buf.size):
        buf[y] = reach[y] + node[y]
    best_of(buf, table, out)


@kernel
def average(t, own, other):
    """Average the max-marginals of a chain and of the rung of token t over the chain's label; then max R_t =
    0.

    M[y] = A[t, y] + c[t, y] + B[t, y],   R[y] = g[t, y] + max_yo g_other[t, yo] + beside[yo, y]
    d[y] = (R[y] - M[y] + max_y' (R[y'] + M[y'])) / 2,   c[t, y] += d[y],   g[t, y] -= d[y]

    The bound never rises. Before, chain and rung had max M + max R of it. After it the chain has
    M + d = (R + M + max (R + M)) / 2 and the rung R - d, whose maximum is 0: they have max (R + M) of it.
    A label that one of the two forbids is forbidden for both, by -inf in c and g.

    Arguments:
        t : token
        own, other : two `DualChain`s (for shapes, see the top)
    Cost: L_1 L_2 maxima.
    Source: Kolmogorov (2006).
    """
    R, M, A, B, c, g = own.R, own.M, own.A[t], own.B[t], own.c[t], own.g[t]
    best_of(other.g[t], own.beside, R)
    for y in range(R.size):
        R[y] += g[y]
        M[y] = A[y] + c[y] + B[y]
    top = -np.inf
    for y in range(R.size):
        top = R[y] + M[y] if R[y] + M[y] > top else top
    for y in range(R.size):
        free = R[y] + M[y] > -np.inf
        d = 0.5 * (R[y] - M[y] + top) if free else 0.0
        c[y] = c[y] + d if free else -np.inf
        g[y] = g[y] - d if free else -np.inf


@kernel
def ahead(T, node, pair_t, buf, out):
    """The best of what follows each label of a chain, from the right.

    out[T-1, y] = 0,   out[t, y] = max_yn pair[y, yn] + node[t+1, yn] + out[t+1, yn]

    Arguments:
        T : tokens of the sequence
        node : (longest, L)
        pair_t : (L, L) [next, previous]
    Out:
        out : (longest, L)
    Work:
        buf : (L,)
    Cost: T L^2 maxima.
    Source: docs/SPEC.md, B.3.
    """
    out[T - 1] = 0.0
    for t in range(T - 1, 0, -1):
        beyond(out[t], node[t], pair_t, buf, out[t - 1])


@kernel
def sweep(T, one, two):
    """Average at all tokens forwards, then at all backwards; returns the bound D, max C_1 + max C_2.

    A[t, y] = max_yp A[t-1, yp] + c[t-1, yp] + pair[yp, y], from the left; B as in `ahead`, from the right.

    Forwards at t, A[t] is made of the newest c on the left, and B[t] of c on the right, which has not changed
    since B came: so M is a max-marginal of the chain as it is, as `average` needs. Backwards likewise.

    Arguments:
        T : tokens of the sequence
        one, two : two `DualChain`s (for shapes, see the top)
    Cost: T (2 L_1^2 + 2 L_2^2 + 4 L_1 L_2) maxima.
    Source: Kolmogorov (2006), sequential averaging.
    """
    for t in range(T):
        for own in (one, two):
            if t == 0:
                own.A[t] = 0.0
            else:
                beyond(own.A[t - 1], own.c[t - 1], own.pair, own.M, own.A[t])
        average(t, one, two)
        average(t, two, one)
    for t in range(T - 1, -1, -1):
        for own in (one, two):
            if t == T - 1:
                own.B[t] = 0.0
            else:
                beyond(own.B[t + 1], own.c[t + 1], own.pair_t, own.M, own.B[t])
        average(t, one, two)
        average(t, two, one)
    return np.max(one.c[0] + one.B[0]) + np.max(two.c[0] + two.B[0])


@kernel
def follow(T, node, B, pair, path):
    """path[t] = argmax_y pair[path[t-1], y] + node[t, y] + B[t, y]: the best labels of a chain.

    Arguments:
        T : tokens of the sequence
        node, B : (longest, L)
        B : of `ahead`
        pair : (L, L) [previous, next]
    Out:
        path : int32 (longest,)
    Cost: T L.
    Source: docs/SPEC.md, B.3.
    """
    for t in range(T):
        best, y = -np.inf, 0
        for k in range(node.shape[1]):
            s = node[t, k] + B[t, k]
            if t:
                s += pair[path[t - 1], k]
            if s > best:
                best, y = s, k
        path[t] = y


@kernel
def follow_given(T, own, other_path):
    """own.given: the best labels of a chain where those of the other one are known.

    Arguments:
        T : tokens of the sequence
        own : a `DualChain` (for shapes, see the top)
        other_path : int32 (longest,)
    Cost: T L^2 maxima.
    Source: docs/SPEC.md, B.3.
    """
    for t in range(T):
        own.node[t] = own.u[t] + own.beside[other_path[t]]
    ahead(T, own.node, own.pair_t, own.M, own.follows)
    follow(T, own.node, own.follows, own.pair, own.given)


@kernel
def path_score(T, one, two, y_1, y_2):
    """The score of a labelling, from u: no g in it, so nothing that sweeps have rounded.

    Arguments:
        T : tokens of the sequence
        one, two : two `DualChain`s (for shapes, see the top)
        y_1, y_2 : int32 (longest,)
    Cost: 5 T.
    Source: docs/SPEC.md, B.1.
    """
    score = 0.0
    for t in range(T):
        score += one.u[t, y_1[t]] + two.u[t, y_2[t]] + two.beside[y_1[t], y_2[t]]
        if t:
            score += one.pair[y_1[t - 1], y_1[t]] + two.pair[y_2[t - 1], y_2[t]]
    return score


@kernel
def is_best(score, bound):
    """Is a labelling with this score the best one, or is there none at all?

    Arguments:
        score, bound : of the labelling, on all labellings
    Cost: 1.
    Source: Sontag, Globerson and Jaakkola (2011).
    """
    return bound == -np.inf or bound - score <= TOLERANCE * max(1.0, abs(bound))


@kernel
def improve(T, one, two, score, bound, path):
    """Labellings from the best labels of each chain; the best one so far is kept. Returns its score.

    Both chains as they are; chain 1 as it is and the best of chain 2 given it; the other way round.

    Arguments:
        T : tokens of the sequence
        one, two : two `DualChain`s (for shapes, see the top)
        score : so far
        bound : on all labellings of the sequence
    Out:
        path : int32 (T, 2)
    Cost: T (L_1 + L_2), or T (L_1^2 + L_2^2) where the chains disagree.
    Source: chapter 12.
    """
    for own in (one, two):
        follow(T, own.c, own.B, own.pair, own.path)
    for way in range(3):
        if way == 1:
            follow_given(T, two, one.path)
        if way == 2:
            follow_given(T, one, two.path)
        y_1, y_2 = one.given if way == 2 else one.path, two.given if way == 1 else two.path
        found = path_score(T, one, two, y_1, y_2)
        if found > score:
            score = found
            path[:, 0], path[:, 1] = y_1[:T], y_2[:T]
        if is_best(score, bound):
            break
    return score


@kernel
def cells_left(T, one, two, least, cell, start):
    """The joint labels of each token through which a labelling could have a score >= least.

    No labelling through (a, b) at t has more than D with chain 1 held at a, chain 2 at b and rung t at both:
    M_1[t, a] + M_2[t, b] + R_t(a, b), the M of `average`; other rungs have 0. What is -inf goes, too.

    Arguments:
        T : tokens of the sequence
        one, two : two `DualChain`s (for shapes, see the top), after a `sweep`
        least : a score
    Out:
        cell : int32 (T L_1 L_2,), a L_2 + b, token after token
        start : int64 (T+1,), where those of each begin
    Cost: T (L_1^2 + L_2^2 + L_1 L_2) maxima.
    Source: chapter 12.
    """
    n, L_2 = 0, two.R.size
    for t in range(T):
        start[t] = n
        for own in (one, two):
            if t:
                beyond(own.A[t - 1], own.c[t - 1], own.pair, own.M, own.A[t])
            for y in range(own.M.size):
                own.M[y] = own.A[t, y] + own.c[t, y] + own.B[t, y] + own.g[t, y]
        best_of(two.M, one.beside, one.R)
        for a in range(one.M.size):
            if one.M[a] + one.R[a] >= least and one.M[a] + one.R[a] > -np.inf:
                for b in range(L_2):
                    s = one.M[a] + two.M[b] + two.beside[a, b]
                    if s >= least and s > -np.inf:
                        cell[n] = a * L_2 + b
                        n += 1
    start[T] = n


@kernel
def step_left(before, here, delta, new, one, two, X):
    """A step of elimination over joint labels that are left: new[i], the best score up to the old labels.

    X[a', b] = max_b' delta[a', b'] + pair_2[b', b],   new[a, b] = max_a' X[a', b] + pair_1[a', a]

    Arguments:
        before : int32 (n',)
        here : int32 (n,), cells of two neighbouring tokens
        delta : (n',)
    Out:
        new : (n,)
        one, two : two `DualChain`s (for shapes, see the top)
    Work:
        X : (L_1, L_2)
    Cost: n' L_2 + n L_1, at most that of elimination.
    Source: docs/SPEC.md, B.3.
    """
    L_1, L_2 = X.shape
    X[:] = -np.inf
    for i in range(before.size):
        row, pair, d = X[before[i] // L_2], two.pair[before[i] % L_2], delta[i]
        for b in range(L_2):
            s = d + pair[b]
            row[b] = s if s > row[b] else row[b]
    for i in range(here.size):
        a, b, best = here[i] // L_2, here[i] % L_2, -np.inf
        for ap in range(L_1):
            s = X[ap, b] + one.pair[ap, a]
            best = s if s > best else best
        new[i] = best


@kernel
def finish(T, one, two, score, bound, path):
    """The best labelling among all that could beat `score`; returns its score, or `score` if there is none.

    Exact: a labelling with a better score has only joint labels that `cells_left` keeps. The bound is given
    what rounding could take from it, in proportion to the numbers that it is a sum of.

    Arguments:
        T : tokens of the sequence
        one, two : two `DualChain`s (for shapes, see the top), after a `sweep`
        score : of path
        bound : on all labellings of the sequence
        path : int32 (T, 2), overwritten by a better one
    Cost: that of `step_left`, T times.
    Source: chapter 12.
    """
    L_2, size = two.R.size, 1.0
    for own in (one, two):
        size += abs(np.max(own.c[0] + own.B[0]))
    cell, start = np.empty(T * one.R.size * L_2, np.int32), np.empty(T + 1, np.int64)
    cells_left(T, one, two, score - TOLERANCE * size, cell, start)
    delta, X = np.zeros(start[T]), np.empty((one.R.size, L_2))
    for t in range(T):
        lo, hi = start[t], start[t + 1]
        if t:
            old = slice(start[t - 1], lo)
            step_left(cell[old], cell[lo:hi], delta[old], delta[lo:hi], one, two, X)
        for i in range(lo, hi):
            a, b = cell[i] // L_2, cell[i] % L_2
            delta[i] += one.u[t, a] + two.u[t, b] + two.beside[a, b]
    found, last = score, -1
    for i in range(start[T - 1], start[T]):
        if delta[i] > found:
            found, last = delta[i], i
    if last < 0:
        return score
    for t in range(T - 1, -1, -1):
        a, b, best = cell[last] // L_2, cell[last] % L_2, -np.inf
        path[t, 0], path[t, 1] = a, b
        for i in range(start[t - 1] if t else 0, start[t] if t else 0):
            s = delta[i] + one.pair[cell[i] // L_2, a] + two.pair[cell[i] % L_2, b]
            if s > best:
                best, last = s, i
    return found


@kernel
def dual_sequences(log_node, seq_ptr, one, two, max_sweeps, prune, path, score, bound, sweeps, pruned):
    """The best labelling of each sequence and a bound on all its labellings.

    Arguments:
        log_node : (n, M), scores of rows, limits included, sequence by sequence
        seq_ptr : (S+1,)
        one, two : two `DualChain`s (for shapes, see the top)
        max_sweeps : >= 1
        prune : 0: stop there without a certificate
    Out:
        path : int32 (n, 2), left alone where no labelling was found
        score : (S,), -inf then
        bound : (S,) >= score, -inf where every labelling is forbidden
        sweeps : int64 (S,), pairs of them
        pruned : bool (S,)
    Cost: `sweep`, then `finish`.
    Source: chapter 12.
    """
    for s in range(seq_ptr.size - 1):
        first, T = seq_ptr[s], seq_ptr[s + 1] - seq_ptr[s]
        score[s], bound[s], sweeps[s], pruned[s] = 0.0, 0.0, 0, False
        if T == 0:
            continue
        labels = path[first : first + T]
        for own in (one, two):
            own.u[:T] = log_node[first : first + T, own.first : own.first + own.R.size]
            own.c[:T], own.g[:T] = own.u[:T], 0.0
            ahead(T, own.c, own.pair_t, own.M, own.B)
        score[s] = -np.inf
        while sweeps[s] == 0 or sweeps[s] < max_sweeps and not is_best(score[s], bound[s]):
            bound[s] = sweep(T, one, two)
            sweeps[s] += 1
            score[s] = improve(T, one, two, score[s], bound[s], labels)
        if prune and not is_best(score[s], bound[s]):
            score[s] = finish(T, one, two, score[s], bound[s], labels)
            bound[s], pruned[s] = score[s], True
        bound[s] = max(bound[s], score[s])
