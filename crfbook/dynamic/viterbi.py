"""The best joint labelling of m label chains, by elimination with maxima and without back pointers.

    X_m = delta[t-1],  X_{k-1}[.., y_k, ..] = max_{yp_k} S_k + X_k[.., yp_k, ..] + log_pair_k[yp_k, y_k]
    delta[t] = X_0 + scores of the labels of t

Back pointers would be one number for each cell, chain and step, written with a comparison that the processor
cannot vectorise. Only those of the best path are read. So delta is kept, and the way back compares the K
cells before a label of the best path again: m K additions a step, beside K (L_1 + .. + L_m) forwards.

Here the first axis is eliminated first: with the largest chain last, maxima run over long rows. Else as
elimination.py. `chains` is a `ChainTables` of elimination.py, made by `max_chains`.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.dynamic.elimination import chain_tables, transitions_of


def max_chains(layout, tables):
    """`ChainTables` for maxima, of the scores of `log_tables`, and the chain of each axis."""
    axes = list(layout.axes)
    if any(table.span and table.at[0][1] != table.at[1][1] for table in layout.tables if len(table.at) == 2):
        axes = axes[::-1]
    chains, sizes = chain_tables(layout, tables, axes), [layout.sizes[chain] for chain in layout.axes]
    place = [layout.axes.index(chain) for chain in axes]
    cell = np.arange(chains.beside.size).reshape(sizes).transpose(place)
    return chains._replace(cell=np.ascontiguousarray(cell.reshape(-1))), axes


@kernel
def max_plus(a, b, out):
    """out[x, z] = max_y a[x, y] + b[y, z]: a matrix product with maxima for sums and sums for products.

    Two rows of out and six of b at a time: twelve sums and twelve maxima for eight reads and two writes, and
    a tree of maxima in place of a chain.

    Arguments:
        a : (n, m)
        b : (m, width)
    Out:
        out : (n, width)
    Cost: n m width.
    Source: chapter 12.
    """
    n, m, width = a.shape[0], a.shape[1], b.shape[1]
    for x in range(0, n, 2):
        e, f = a[x], a[min(x + 1, n - 1)]
        first, second = out[x], out[min(x + 1, n - 1)]
        first[:], second[:] = -np.inf, -np.inf
        for k in range(m // 6):
            y = 6 * k
            e0, e1, e2, e3, e4, e5 = e[y], e[y + 1], e[y + 2], e[y + 3], e[y + 4], e[y + 5]
            f0, f1, f2, f3, f4, f5 = f[y], f[y + 1], f[y + 2], f[y + 3], f[y + 4], f[y + 5]
            b0, b1, b2, b3, b4, b5 = b[y], b[y + 1], b[y + 2], b[y + 3], b[y + 4], b[y + 5]
            for z in range(width):
                v0, v1, v2, v3, v4, v5 = b0[z], b1[z], b2[z], b3[z], b4[z], b5[z]
                p, q, r, s, t, u = e0 + v0, e1 + v1, e2 + v2, e3 + v3, e4 + v4, e5 + v5
                p = q if q > p else p
                r = s if s > r else r
                t = u if u > t else t
                p = r if r > p else p
                g = first[z]
                g = t if t > g else g
                first[z] = p if p > g else g
                p, q, r, s, t, u = f0 + v0, f1 + v1, f2 + v2, f3 + v3, f4 + v4, f5 + v5
                p = q if q > p else p
                r = s if s > r else r
                t = u if u > t else t
                p = r if r > p else p
                g = second[z]
                g = t if t > g else g
                second[z] = p if p > g else g
        for y in range(m // 6 * 6, m):
            e0, f0, b0 = e[y], f[y], b[y]
            for z in range(width):
                p, q, g, h = e0 + b0[z], f0 + b0[z], first[z], second[z]
                first[z] = p if p > g else g
                second[z] = q if q > h else h


@kernel
def add_labels(t, log_node, chains, state):
    """state[cell] += the scores of the cell's labels at token t.

    Arguments:
        t : token
        log_node : (n, M)
        chains : a `ChainTables` (for shapes, see the top)
    Out:
        state : (K,)
    Cost: 2 K.
    Source: docs/SPEC.md, B.3.
    """
    m, row = chains.size.size, log_node[t]
    L, first = chains.size[m - 1], chains.first[m - 1]
    for p in range(chains.before[m - 1]):
        f = 0.0
        for k in range(m - 1):
            f += row[chains.column[k, p]]
        for y in range(L):
            state[p * L + y] += f + row[first + y] + chains.beside[p * L + y]
    if chains.beside_row >= 0:
        for c in range(state.size):
            state[c] += row[chains.beside_row + chains.cell[c]]


@kernel
def best_before(t, cell, log_node, chains, delta, buf):
    """The best cell of token t - 1 before `cell` of token t: all of them are looked at.

    Arguments:
        t, cell : a token and its cell
        log_node : (n, M) of the sequence
        chains, delta : (T, K)
    Work:
        buf : (K,)
    Cost: (m + 1) K.
    Source: chapter 12.
    """
    buf[:] = delta[t - 1]
    for k in range(chains.size.size):
        L, after = chains.size[k], chains.after[k]
        table = transitions_of(k, t, log_node, chains)
        y = cell // after % L
        for yp in range(L):
            v = table[yp, y]
            if chains.has_skew[k]:
                v += chains.skew[k, cell + (yp - y) * after]
            for p in range(chains.before[k]):
                lo = (p * L + yp) * after
                for j in range(lo, lo + after):
                    buf[j] += v
    return np.argmax(buf)


@kernel
def chains_viterbi(log_node, chains, seq_ptr, path, score, delta, buf):
    """The best joint labelling of each sequence; of equally good ones, one.

    Arguments:
        log_node : (n, M), scores of rows, limits included, sequence by sequence
        chains : a `ChainTables` (for shapes, see the top)
        seq_ptr : (S+1,)
    Out:
        path : int32 (n, m), in the order of the axes
        score : (S,), -inf where every labelling is forbidden (path 0 then), 0 for no token
    Work:
        delta : (longest, K)
        buf : (2, K)
    Cost: K (L_1 + .. + L_m) additions and maxima a token.
    Source: Sutton, Rohanimanesh and McCallum (2004), section 3.2; chapter 12.
    """
    m = chains.size.size
    for s in range(seq_ptr.size - 1):
        first, T = seq_ptr[s], seq_ptr[s + 1] - seq_ptr[s]
        score[s] = 0.0
        if T == 0:
            continue
        rows = log_node[first : first + T]
        for t in range(T):
            state, source = delta[t], delta[t - 1]
            if t == 0:
                state[:] = 0.0
            for k in range(m if t else 0):
                out = state if k == m - 1 else buf[k % 2]
                if chains.has_skew[k]:
                    for c in range(source.size):
                        source[c] += chains.skew[k, c]
                L, after, n = chains.size[k], chains.after[k], chains.before[k]
                table = transitions_of(k, t, rows, chains)
                if after == 1:
                    max_plus(source.reshape(n, L), table, out.reshape(n, L))
                else:
                    turned = table.T.copy()
                    for p in range(n):
                        block = slice(p * L * after, (p + 1) * L * after)
                        max_plus(turned, source[block].reshape(L, after), out[block].reshape(L, after))
                source = out
            add_labels(t, rows, chains, state)
        cell = np.argmax(delta[T - 1])
        score[s] = delta[T - 1, cell]
        for t in range(T - 1, -1, -1):
            for k in range(m):
                path[first + t, k] = cell // chains.after[k] % chains.size[k]
            if t > 0 and score[s] > -np.inf:
                cell = best_before(t, cell, rows, chains, delta, buf[0])
            elif t > 0:
                cell = 0


@kernel
def best_and_second(log_node, chains, delta, cells, second, gap, buf):
    """The best labelling that ends in cells[n-1:], and at each of its first n tokens the next best cell.

    score(t, c) = delta[t, c] + the scores of a step from c to cells[t+1]
    order(t): all c by falling score(t, c), equal ones by c;  cells[t] = the first one, for t < n - 1
    second[t] = the one that follows cells[t] in order(t);  gap[t] = score(t, second[t]) - score(t, cells[t])

    So the best labelling that ends in second[t] and cells[t+1:] scores gap[t] more than the one in cells.

    Arguments:
        log_node : (T, M)
        chains, delta : (T, K), of `chains_viterbi`
        cells : int64 (T,), given from n - 1 on, with a score above -inf
    Out:
        cells : those before n - 1
        second : int64 (n,)
        gap : (n,), -inf where nothing possible follows
    Work:
        buf : (K,)
    Cost: (m + 2) K n.
    Source: Nilsson and Goldberger (2001), Sequentially finding the N-best list in hidden Markov models.
    """
    n, T = second.size, cells.size
    for t in range(n - 1, -1, -1):
        if t == T - 1:
            buf[:] = delta[t]
        else:
            best = best_before(t + 1, cells[t + 1], log_node, chains, delta, buf)
            cells[t] = best if t < n - 1 else cells[t]
        given, top = cells[t], buf[cells[t]]
        second[t], high = given, -np.inf
        for c in range(buf.size):
            if buf[c] > high and (buf[c] < top or buf[c] == top and c > given):
                second[t], high = c, buf[c]
        gap[t] = high - top
