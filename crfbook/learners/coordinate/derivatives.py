"""Derivatives of the loss by one block of weights, from the sequences that hold its symbol and from no other.

`sums` is a BlockSums: rows EXPECTED, CURVATURE, GOLD of node (3, M) and edge (3, M, M). `blocks` is a Blocks
of token_index.py; this and all else that kernels of coordinate descent share is listed in arrays.py.
`block_gradient` computes gradient and approximate curvature; `block_sums_plain` of visit.py is its readable
sister. The exact curvature of a weight is the variance of how often its feature fires, by a recursion of
moments. Unsafe sequences, whose scaled vectors cannot be trusted (potentials hundreds of nats apart), are
done in logarithms, anew at each visit: they are rare, and only log Z is kept.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.inference import log_form
from crfbook.learners.coordinate.lattice import LABEL, SCALE, SHIFT, SIZE, START, UNSAFE, mass, token_scores

OLD, NEW, GRADIENT, CURVE = 0, 1, 2, 3  # rows of Move.number
EXPECTED, CURVATURE, GOLD = 0, 1, 2  # rows of BlockSums.node and .edge
FEW_TOKENS = 4  # tokens of one class: fewer are added entry by entry of its list, more through a whole table


@kernel
def gold_doubt(g, limit, blocks, lattices, tables):
    """sum over the occurrences of block g of weight |x| (1 - p(gold)), cut short once above limit;
    inf if a sequence is unsafe.

    Each entry of the block's gradient is at most this: it gains x (1 - p) where it is gold, and loses
    x p <= x (1 - p(gold)) elsewhere. So a block without active weights stays without them while this is at
    most c1.

    Arguments:
        g : block
        limit : where the sum is cut short
        blocks : a `Blocks`
        lattices, tables : after `extend`
    Cost: M a token, and lists.
    Source: Sokolovska et al. (2010), eq. (5), (13).
    """
    total, row, cell, value = 0.0, tables.lists.row, tables.lists.cell, tables.lists.value
    alpha, beta, labels, slot = lattices.alpha, lattices.beta, lattices.labels, tables.slot
    has_edge = blocks.member[1, g] >= 0
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i = blocks.visit_seq[v]
        if lattices.place[UNSAFE, i]:
            return np.inf
        for o in range(blocks.occ_ptr[v], blocks.occ_ptr[v + 1]):
            t = blocks.occ_token[o]
            y, x = labels[t], max(1.0, abs(blocks.occ_val[o])) if blocks.occ_val.size else 1.0
            r, q = lattices.alpha_row[t], lattices.beta_row[t]
            z = mass(alpha, r, beta, q)
            p = alpha[r, y] * beta[q, y] / z
            if has_edge and t > lattices.seq_ptr[i]:
                yp, k = labels[t - 1], lattices.edge_class[t]
                psi = tables.base[yp, y]
                for e in range(row[START, k], row[START, k] + row[SIZE, k]):
                    if cell[e] == (yp << SHIFT | y):
                        psi += value[e]
                if slot[k] >= 0:
                    psi = tables.whole[slot[k], yp, y]
                p = (
                    alpha[lattices.alpha_row[t - 1], yp]
                    * psi
                    * lattices.psi_node[lattices.node_row[t], y]
                    * beta[q, y]
                )
                p /= lattices.alpha_note[SCALE, r] * z
            total += lattices.weight[i] * x * max(0.0, 1.0 - p)
        if total > limit:
            return total
    return total


@kernel
def _clear(sums):
    """All sums of a block back to 0."""
    for part in range(3):
        for y in range(sums.node.shape[1]):
            sums.node[part, y] = 0.0
            for x in range(sums.node.shape[1]):
                sums.edge[part, y, x] = 0.0


@kernel
def _fill_table(k, tables, psi):
    """psi = the whole table of class k."""
    lists, slot, M = tables.lists, tables.slot, psi.shape[0]
    for yp in range(M):
        for y in range(M):
            psi[yp, y] = tables.base[yp, y] if slot[k] < 0 else tables.whole[slot[k], yp, y]
    for e in range(lists.row[START, k], lists.row[START, k] + lists.row[SIZE, k]):
        psi[lists.cell[e] >> SHIFT, lists.cell[e] & LABEL] += lists.value[e]


@kernel
def _add_difference(k, n, base, lists, rows, edge):
    """What the list of class k adds to the sums that the base gives for token n of the rows:
    weight p[yp, y] = left[n, yp] psi[yp, y] right[n, y].
    """
    share, repeat = 1.0 / rows.given[0, n], rows.given[1, n]
    for e in range(lists.row[START, k], lists.row[START, k] + lists.row[SIZE, k]):
        yp, y = lists.cell[e] >> SHIFT, lists.cell[e] & LABEL
        s = rows.left[n, yp] * rows.right[n, y]
        more = s * lists.value[e]
        edge[EXPECTED, yp, y] += more
        edge[CURVATURE, yp, y] += repeat * more * (1.0 - share * (2.0 * s * base[yp, y] + more))


@kernel
def _flush(at, n, psi, rows, repeated, edge):
    """Sums of n tokens with the same table: w p = left psi right;  edge[EXPECTED] += w p,
    edge[CURVATURE] += w repeat p (1 - p).

    Two matrix products (three if repeated) instead of n outer ones: the table multiplies sums, not tokens.
    left and right are overwritten.
    """
    M, left, right, product = psi.shape[0], rows.left[at : at + n], rows.right[at : at + n], rows.product
    weight, repeat = rows.given[0, at : at + n], rows.given[1, at : at + n]
    if n == 0:
        return
    np.dot(left.T, right, product[0])
    if repeated:
        for r in range(n):
            for y in range(M):
                right[r, y] *= repeat[r]
        np.dot(left.T, right, product[1])
        for yp in range(M):
            for y in range(M):
                edge[CURVATURE, yp, y] += psi[yp, y] * (product[1, yp, y] - product[0, yp, y])
    for r in range(n):
        share = 1.0 / (weight[r] * repeat[r])
        for y in range(M):
            left[r, y] *= left[r, y] * share
            right[r, y] *= right[r, y]
    np.dot(left.T, right, product[1])
    for yp in range(M):
        for y in range(M):
            p = psi[yp, y] * product[0, yp, y]
            edge[EXPECTED, yp, y] += p
            edge[CURVATURE, yp, y] += p - psi[yp, y] * psi[yp, y] * product[1, yp, y]


@kernel
def _same_class(o, high, has_edge, blocks, lattices):
    """(edge class of occurrence by_class[o], -1 if it has no edge; end of those behind it that have the same,
    64 at most).
    """
    token, by_class, edge_class = blocks.occ_token, blocks.by_class, lattices.edge_class
    t = token[by_class[o]]
    k = edge_class[t] if has_edge and t > lattices.seq_ptr[lattices.sequence[t]] else -1
    stop = o + 1
    while stop < min(high, o + 64):
        t = token[by_class[stop]]
        if k != (edge_class[t] if has_edge and t > lattices.seq_ptr[lattices.sequence[t]] else -1):
            break
        stop += 1
    return k, stop


@kernel
def block_gradient(g, low, high, repeats, blocks, lattices, tables, sums, work):
    """Expected and gold counts and curvatures of block g, over its occurrences by_class[low:high];
    of unsafe sequences the gold counts alone.

        p[y] = alpha[t, y] beta[t, y] / Z,  Z = sum_y alpha[t, y] beta[t, y]
        p[yp, y] = alpha[t-1, yp] psi[yp, y] psi_node[t, y] beta[t, y] / (scale[t] Z)
        expected = sum_t w x p,  curvature = sum_t w n x^2 p (1 - p)
    over the occurrences t of the symbol, w the weight of the sequence. n is 1: the approximation (16); or, if
    repeats, the occurrences in the sequence: a bound of the exact diagonal. All this in matrix products.
    Tokens wait in rows: n of any class, to which the base table is applied, and the list of each token's
    class entry by entry; or those of one class that has a whole table, or a list and at least FEW_TOKENS of
    them.

    Arguments:
        g : block
        low, high : occurrences by_class[low:high]
        repeats : 1: count repeated symbols, see above
        blocks : a `Blocks`
        lattices, tables : after `extend`
    Out:
        sums : a `BlockSums`
    Work:
        work : a `LatticeWork`
    Cost: 2 M^2 a token in matrix products, M^2 a class.
    Source: Sokolovska et al. (2010), eq. (5), (16); docs/SPEC.md, A.6, A.8.
    """
    node, edge, rows, lists, slot = sums.node, sums.edge, work.rows, tables.lists, tables.slot
    left, right, given, labels, psi = rows.left, rows.right, rows.given, lattices.labels, lattices.psi_node
    alpha, beta, scale, M = lattices.alpha, lattices.beta, lattices.alpha_note[SCALE], lattices.alpha.shape[1]
    has_edge, n, o, room = blocks.member[1, g] >= 0, np.int64(0), low, left.shape[0] // 2
    _clear(sums)
    while o < high:
        k, stop = _same_class(o, high, has_edge, blocks, lattices)
        size = lists.row[SIZE, k] if k >= 0 and slot[k] < 0 else 0
        own = k >= 0 and (slot[k] >= 0 or (size > 0 and stop - o >= FEW_TOKENS))
        if k >= 0 and not own and n + stop - o > room:
            _flush(np.int64(0), n, tables.base, rows, repeats, edge)
            n = np.int64(0)
        at = room if own else n
        for j in range(o, stop):
            t, v = blocks.occ_token[blocks.by_class[j]], blocks.occ_visit[blocks.by_class[j]]
            i, x = blocks.visit_seq[v], blocks.occ_val[blocks.by_class[j]] if blocks.occ_val.size else 1.0
            weight = lattices.weight[i]
            repeat = float(blocks.occ_ptr[v + 1] - blocks.occ_ptr[v]) if repeats else 1.0
            node[GOLD, labels[t]] += weight * x
            if k >= 0:
                edge[GOLD, labels[t - 1], labels[t]] += weight
            if lattices.place[UNSAFE, i] or weight == 0.0:
                continue
            r, q, c = lattices.alpha_row[t], lattices.beta_row[t], lattices.node_row[t]
            before = lattices.alpha_row[t - 1]
            share = 1.0 / mass(alpha, r, beta, q)
            for y in range(M):
                p = alpha[r, y] * beta[q, y] * share
                node[EXPECTED, y] += weight * x * p
                node[CURVATURE, y] += weight * repeat * x * x * (p - p * p)
            if k < 0:
                continue
            share *= weight / scale[r]
            for y in range(M):
                left[at, y] = alpha[before, y]
                right[at, y] = psi[c, y] * beta[q, y] * share
            given[0, at], given[1, at] = weight, repeat
            if not own and size > 0:
                _add_difference(k, at, tables.base, lists, rows, edge)
            at += 1
        if own:
            _fill_table(k, tables, work.table)
            _flush(room, at - room, work.table, rows, repeats, edge)
        else:
            n = at
        o = stop
    _flush(np.int64(0), n, tables.base, rows, repeats, edge)


@kernel
def lattice_scores(i, lattices, tables, weights, log_node, log_edge):
    """log_node[t], log_edge[t] of sequence i from the weights, for what is not done in scaled form.

    Arguments:
        i : sequence
        lattices : a `Lattices`
        tables : a `SharedTables`
        weights : a `Weights`
    Out:
        log_node : (T, M)
        log_edge : (T, M, M), its first entry untouched
    Cost: T M^2.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    begin, M, lists = lattices.seq_ptr[i], weights.mu.shape[1], weights.lists
    for p in range(log_node.shape[0]):
        t = begin + p
        bound = lattices.bound[lattices.bound_row[t]]
        token_scores(
            t, weights.mu, lattices.attr_ptr, lattices.attr_idx, lattices.attr_val, bound, log_node[p]
        )
        if p == 0:
            continue
        k, table = lattices.edge_class[t], log_edge[p]
        for yp in range(M):
            for y in range(M):
                table[yp, y] = weights.base_log[yp, y]
        for j in range(tables.class_ptr[k], tables.class_ptr[k + 1]):
            start = lists.row[START, tables.class_attr[j]]
            for e in range(start, start + lists.row[SIZE, tables.class_attr[j]]):
                table[lists.cell[e] >> SHIFT, lists.cell[e] & LABEL] += lists.value[e]


@kernel
def feature_variance(cell, tokens, values, log_node, log_edge):
    """Variance of F = sum_t x[t] 1{the labels at t are those of the cell} over the positions t of `tokens`,
    in one sequence.

    Forward, beside log_alpha, the moments of F so far given the label y at t; f is the value that a move from
    yp into y adds:
        q[yp] = exp(log_alpha[t-1,yp] + log_edge[t,yp,y] - LSE),  log_alpha[t,y] = log_node[t,y] + LSE
        first[t,y] = sum_yp q[yp] (first[t-1,yp] + f)
        second[t,y] = sum_yp q[yp] (second[t-1,yp] + 2 f first[t-1,yp] + f f)
    These are the moments of docs/SPEC.md, A.8, divided by alpha: no score is too large for them. At the last
    token they are averaged over y.

    Arguments:
        cell : yp << SHIFT | y, or -1 - y
        tokens : int32 (n,), positions, rising
        values : (n,) or (0,)
        log_node : (T, M)
        log_edge : (T, M, M)
    Cost: 3 T M^2, and as many exps.
    Source: Sokolovska et al. (2010), eq. (15); docs/SPEC.md, A.8.
    """
    T, M = log_node.shape
    now, before, o = np.zeros((3, M)), np.zeros((3, M)), 0
    for t in range(T):
        x = 0.0
        if o < tokens.size and tokens[o] == t:
            x = values[o] if values.size else 1.0
            o += 1
        for y in range(M):
            for m in range(3):
                before[m, y], now[m, y] = now[m, y], 0.0
        for y in range(M):
            high, total, first, second = -np.inf, 0.0, 0.0, 0.0
            for yp in range(M if t > 0 else 0):
                high = max(high, before[0, yp] + log_edge[t, yp, y])
            for yp in range(M if t > 0 and high > -np.inf else 0):
                q = np.exp(before[0, yp] + log_edge[t, yp, y] - high)
                f = x if cell == -1 - y or cell == (yp << SHIFT | y) else 0.0
                total += q
                first += q * (before[1, yp] + f)
                second += q * (before[2, yp] + 2.0 * f * before[1, yp] + f * f)
            if t == 0:
                f = x if cell == -1 - y else 0.0
                now[0, y], now[1, y], now[2, y] = log_node[0, y], f, f * f
            elif total > 0.0:
                now[0, y], now[1, y] = log_node[t, y] + high + np.log(total), first / total
                now[2, y] = second / total
            else:
                now[0, y] = -np.inf
    high, total, mean, square = np.max(now[0]), 0.0, 0.0, 0.0
    for y in range(M if high > -np.inf else 0):
        p = np.exp(now[0, y] - high)
        total, mean, square = total + p, mean + p * now[1, y], square + p * now[2, y]
    return square / total - (mean / total) ** 2 if total > 0.0 else 0.0


@kernel
def exact_curvature(g, blocks, lattices, tables, weights, move):
    """curvature of each candidate of block g: sum_i weight_i Var_i(F), the second derivative of the loss.

    Arguments:
        g : block
        blocks : a `Blocks`
        lattices : a `Lattices`
        tables : a `SharedTables`
        weights : a `Weights`
        move : a `Move`
    Cost: `feature_variance` for each candidate and visit.
    Source: Sokolovska et al. (2010), eq. (15).
    """
    curve, M = move.number[CURVE], weights.mu.shape[1]
    for j in range(move.n[0]):
        curve[j] = 0.0 if curve[j] < np.inf else np.inf
    for v in range(blocks.visit_ptr[g], blocks.visit_ptr[g + 1]):
        i, low, high = blocks.visit_seq[v], blocks.occ_ptr[v], blocks.occ_ptr[v + 1]
        begin, T = lattices.seq_ptr[i], lattices.seq_ptr[i + 1] - lattices.seq_ptr[i]
        log_node, log_edge, tokens = np.empty((T, M)), np.empty((T, M, M)), np.empty(high - low, np.int32)
        lattice_scores(i, lattices, tables, weights, log_node, log_edge)
        for o in range(low, high):
            tokens[o - low] = blocks.occ_token[o] - begin
        values = blocks.occ_val[low:high] if blocks.occ_val.size else blocks.occ_val
        for j in range(move.n[0]):
            if curve[j] < np.inf:
                variance = feature_variance(move.cell[j], tokens, values, log_node, log_edge)
                curve[j] += lattices.weight[i] * variance


def unsafe_marginals(i, lattices, tables, weights, edges=True):
    """`log_form` of sequence i, anew from its weights: its scaled vectors cannot be trusted.

    edges : False: without those of pairs.
    """
    T, M = lattices.seq_ptr[i + 1] - lattices.seq_ptr[i], weights.mu.shape[1]
    log_node, log_edge = np.empty((T, M)), np.empty((T, M, M))
    lattice_scores(i, lattices, tables, weights, log_node, log_edge)
    return log_form(log_node, log_edge, np.arange(T, dtype=np.int32), edges)


def close_unsafe(sequences, lattices, tables, weights):
    """lattices.log_z of those of the sequences int (n,) that are unsafe, from `unsafe_marginals`."""
    for i in sequences[lattices.place[UNSAFE, sequences] > 0]:
        lattices.log_z[i] = unsafe_marginals(i, lattices, tables, weights, edges=False)[0]


def add_unsafe(g, repeats, blocks, lattices, tables, weights, sums):
    """Expected counts and curvatures of block g in its unsafe sequences, added to `sums`: those of
    `block_gradient`, from `unsafe_marginals`. Source: docs/SPEC.md, A.9.
    """
    first, stop = blocks.visit_ptr[g], blocks.visit_ptr[g + 1]
    for v in first + np.flatnonzero(lattices.place[UNSAFE, blocks.visit_seq[first:stop]]):
        i, low, high = blocks.visit_seq[v], blocks.occ_ptr[v], blocks.occ_ptr[v + 1]
        _, p_node, p_edge = unsafe_marginals(i, lattices, tables, weights)
        weight = lattices.weight[i]
        repeat = weight * (high - low if repeats else 1)
        for o in range(low, high):
            x = blocks.occ_val[o] if blocks.occ_val.size else 1.0
            t = blocks.occ_token[o] - lattices.seq_ptr[i]
            p, q = p_node[t], p_edge[t]
            sums.node[EXPECTED] += weight * x * p
            sums.node[CURVATURE] += repeat * x * x * (p - p * p)
            if blocks.member[1, g] >= 0:
                sums.edge[EXPECTED] += weight * q
                sums.edge[CURVATURE] += repeat * (q - q * q)
