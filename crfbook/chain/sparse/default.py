"""Viterbi with a default: all label pairs score 0 but for those that are stored.

A model with the transitions of its training data alone stores some ten pairs a label. Of 2,322 labels these
are 0.5 % of all pairs, and a table of the others holds zeros. Here they cost one maximum a token:

    best[t,y] = max( max_{yp without a stored (yp,y)} delta[t-1,yp],
                     max_{stored (yp,y)} delta[t-1,yp] + s(yp,y) )

Hard constraints cannot be stored pairs: in BIO most pairs are forbidden. So next labels that the same
previous labels may precede are a group ("B-* and O: all", "I-NP: B-NP and I-NP"), and each group has a
maximum of its own. A *cell* is a previous label in the list of a group. `scores` is a `DefaultScores`
(potentials.py), which lists its arrays with shapes.

Which cells can matter is known before their pairs are looked at. If q is the best previous label of a group,
then yp loses against it for every next label y of that group where

    delta[yp] + bound[q,yp] < delta[q],      bound[q,yp] = max_y ( s(yp,y) - s(q,y) )

This is the dominance of chain/viterbi.py on rows that are lists. A row of `bound` is made when its q wins for
the first time. Few labels ever win.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.scores import list_scores
from crfbook.chain.viterbi import SLACK

BLOCK_CELLS = 1 << 14  # node scores are made for so many cells at a time: they stay in the cache
ALIVE, PAIRS, ROWS, SEARCHED = 0, 1, 2, 3  # places of `seen`
"""What decoding counts: cells alive, stored pairs looked at, rows of `bound` made,
next labels whose default had to be searched for.
"""


@kernel
def find_next(next_label, start, stop, y):
    """Position of y among the rising next_label[start:stop], or -1: bisection.

    Arguments:
        next_label : int32 (P,)
        start, stop : the part that is searched
        y : next label
    Cost: log2(stop - start).
    Source: Knuth, The Art of Computer Programming 3, section 6.2.1.
    """
    end = stop
    while start < stop:
        middle = (start + stop) // 2
        if next_label[middle] < y:
            start = middle + 1
        else:
            stop = middle
    return start if start < end and next_label[start] == y else -1


@kernel
def bound_row(q, first, stop, base, scores, bound, b):
    """bound[b + c - first] = max(0, max_y s(c,y) - s(q,y)) for the cells c of one group, rounded up.

    y are the next labels. Where c stores (c,y), y is looked at; of the others only the y counts that q stores
    with the lowest score.

    Arguments:
        q : the winning cell
        first, stop : the cells of its group
        base : k C for the edge class k
        scores : a `DefaultScores`
    Out:
        bound : float32 (>= b + stop - first,), from b on
    Allocates 12 L bytes.
    Cost: L, the stored pairs of the group, and sorting those of q.
    Source: Esposito and Radicioni (2009), the idea; chapter 11.
    """
    next_label, s = scores.next_label, scores.score
    q_start, q_stop = scores.row_ptr[base + q], scores.row_ptr[base + q + 1]
    rival, seen_by = np.zeros(scores.group.size), np.full(scores.group.size, -1, np.int32)
    for e in range(q_start, q_stop):
        rival[next_label[e]] = s[e]
    rising = np.argsort(s[q_start:q_stop])
    for c in range(first, stop):
        most = 0.0
        for e in range(scores.row_ptr[base + c], scores.row_ptr[base + c + 1]):
            v = s[e] - rival[next_label[e]]
            most = v if v > most else most
            seen_by[next_label[e]] = c
        for i in range(rising.size):
            e = q_start + rising[i]
            if -s[e] <= most:
                break
            if seen_by[next_label[e]] != c:
                most = -s[e]
                break
        bound[b + c - first] = np.float32(most * (1.0 + 1e-6) + 1e-30)


@kernel
def largest(x, n):
    """(place, value) of the largest of x[:n], n >= 1; the smallest place if several are.

    A block without a larger number takes one vector comparison. If x[0] is NaN, so is the value.

    Arguments:
        x : (>= n,)
        n : entries that are looked at
    Cost: n.
    Source: chapter 11.
    """
    place, high = 0, x[0]
    for lo in range(0, n, 32):
        hi = min(lo + 32, n)
        some = 0
        for i in range(lo, hi):
            some += x[i] > high
        if some > 0:
            for i in range(lo, hi):
                if x[i] > high:
                    place, high = i, x[i]
    return place, high


@kernel
def cells_alive(d, first, size, lift, place, limit, pool, n):
    """Append first + i for each i < size with d[i] + lift[place + i] >= limit to pool[:n]; returns the new n.

    Arguments:
        d : (>= size,), delta of the cells of a group
        first : its first cell
        size : cells of the group
        lift : (>= place + size,), by how much a cell may still gain, from `place` on
        limit : least sum of a cell that stays
        n : entries of pool in use
    Out:
        pool : int32 (>= n + size,)
    Cost: size; a block that no cell passes is one vector comparison.
    Source: chapter 11.
    """
    for lo in range(0, size, 64):
        hi = min(lo + 64, size)
        some = 0
        for i in range(lo, hi):
            some += d[i] + lift[place + i] >= limit
        if some > 0:
            for i in range(lo, hi):
                if d[i] + lift[place + i] >= limit:
                    pool[n] = first + i
                    n += 1
    return n


@kernel
def default_step(k, g, delta, scores, work, pool, n_pool, seen):
    """best[y] = max_yp delta[yp] + s(yp,y) for the next labels y of group g.

    Returns the end of its cells in pool. Where q has a stored pair with a score below 0, the default comes
    from another cell, if that is larger. Without a table of bounds, row extremes say which cells are alive:
    more of them are.

    Arguments:
        k : edge class
        g : group of next labels
        delta : (L,), of the token before
        scores : a `DefaultScores`
        n_pool : entries of pool in use
    Out:
        work : its best
        pool : int32 (>= n_pool + cells of g,), the cells alive are pool[n_pool:end]
        seen : int64 (4,), added to
    Cost: the cells and labels of g, and the stored pairs of the cells alive.
    Source: chapter 11.
    """
    first, stop = scores.member_ptr[g], scores.member_ptr[g + 1]
    base, size, best, d = k * scores.member.size, stop - first, work.best, work.gathered
    row_ptr, next_label, score = scores.row_ptr, scores.next_label, scores.score
    if size == best.size:  # every label
        d = delta
    else:
        for i in range(size):
            d[i] = delta[scores.member[first + i]]
    q, m = (0, -np.inf) if size == 0 else largest(d, size)
    if scores.member_ptr.size == 2:
        best[:] = m
    else:
        for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
            best[scores.label[i]] = m
    if m == -np.inf:
        return n_pool
    limit = m - SLACK * (abs(m) + 8.0 * scores.reach[0])
    if work.bound.size > 0:
        place = k * scores.bound_ptr[-1] + scores.bound_ptr[g] + q * size
        if not work.known[base + first + q]:
            bound_row(first + q, first, stop, base, scores, work.bound, place)
            work.known[base + first + q] = 1
            seen[ROWS] += 1
        end = cells_alive(d, first, size, work.bound, place, limit, pool, n_pool)
    else:
        place = base + first
        end = cells_alive(
            d, first, size, scores.max_row, place, limit + scores.min_row[place + q], pool, n_pool
        )
    q += first
    second = -np.inf
    for i in range(n_pool, end):
        if pool[i] != q and d[pool[i] - first] > second:
            second = d[pool[i] - first]
    for e in range(row_ptr[base + q], row_ptr[base + q + 1]):
        v, y = m + score[e], next_label[e]
        if second > v:
            seen[SEARCHED] += 1
            for i in range(n_pool, end):
                c = base + pool[i]
                if d[pool[i] - first] > v and find_next(next_label, row_ptr[c], row_ptr[c + 1], y) < 0:
                    v = d[pool[i] - first]
        best[y] = v
    for i in range(n_pool, end):
        if pool[i] != q:
            c, before = base + pool[i], d[pool[i] - first]
            seen[PAIRS] += row_ptr[c + 1] - row_ptr[c]
            for e in range(row_ptr[c], row_ptr[c + 1]):
                v, y = before + score[e], np.uint32(next_label[e])
                best[y] = v if v > best[y] else best[y]
    seen[ALIVE] += end - n_pool
    return end


@kernel
def score_block(first, stop, lo, hi, tokens, nodes, log_node):
    """log_node[r,y]: scores of token first + r < stop of the sequence lo..hi-1, hard constraints included.

    Arguments:
        first, stop : tokens first..stop-1 are scored
        lo, hi : tokens lo..hi-1 are the sequence
        tokens, nodes : see `default_viterbi_many`
    Out:
        log_node : (>= stop - first, L)
    Cost: one multiply-add per stored (occurrence, weight) pair.
    Source: docs/SPEC.md, F.2.
    """
    for t in range(first, stop):
        row = log_node[t - first]
        for y in range(row.size):
            row[y] = nodes.start[y] if t == lo else nodes.middle[y]
        if t == hi - 1:
            for y in range(row.size):
                row[y] += nodes.end[y]
        if tokens.label_set.size:
            allowed = nodes.label_sets[tokens.label_set[t]]
            for y in range(row.size):
                row[y] += allowed[y]
    list_scores(
        nodes.w, nodes.node_ptr, nodes.node_label, nodes.dense, nodes.dense_of, tokens.number[first:stop],
        tokens.attr_ptr, tokens.attr_idx, tokens.attr_val, log_node
    )  # fmt: skip


@kernel
def default_forward(lo, t, stop, log_node, edge_class, scores, work, pools, n_pool, pool_ptr, seen):
    """delta of tokens t..stop-1 of the sequence that begins at lo, into work.delta; returns (pools, n_pool).

    delta[lo] = log_node[lo];  delta[t,y] = log_node[t,y] + best[t,y],  best by `default_step`
    Of each delta the cells alive are kept: their numbers, rising, and values are pools[0][:n_pool] and
    pools[1][:n_pool], those of token t end at pool_ptr[t - lo]. The pools are copied where they are full.

    Arguments:
        lo : first token of the sequence
        t, stop : tokens t..stop-1 are computed
        log_node : (>= stop - t, >= L), row 0 is token t
        edge_class : int32 (N,)
        scores : a `DefaultScores`
        work : a `DefaultWork`, delta of token t-1
        pools : (int32 (P,), float64 (P,))
        n_pool : entries in use
        pool_ptr : int64 (>= stop - lo,)
        seen : int64 (4,), added to
    Cost: that of `default_step` for each group.
    Source: chapter 11.
    """
    delta, best, n_groups, most = work.delta, work.best, scores.member_ptr.size - 1, scores.member.size
    pool, delta_pool = pools
    for i in range(stop - t):
        if t + i == lo:
            best[:] = 0.0
        else:
            if n_pool + most > pool.size:
                more, more_delta = np.empty(2 * (n_pool + most), np.int32), np.empty(2 * (n_pool + most))
                for j in range(n_pool):
                    more[j], more_delta[j] = pool[j], delta_pool[j]
                pool, delta_pool = more, more_delta
            for g in range(n_groups):
                end = default_step(edge_class[t + i], g, delta, scores, work, pool, n_pool, seen)
                for j in range(n_pool, end):
                    delta_pool[j] = delta[scores.member[pool[j]]]
                n_pool = end
        pool_ptr[t + i - lo] = n_pool
        for y in range(delta.size):
            delta[y] = log_node[i, y] + best[y]
    return (pool, delta_pool), n_pool


@kernel
def default_trace_back(lo, hi, edge_class, scores, work, pools, pool_ptr, path):
    """Score of the best path of tokens lo..hi-1; if that is not -inf: path[t-1-lo] = the smallest yp whose
    delta[yp] + s(yp,path[t-lo]) is largest, among the cells alive.

    Arguments:
        lo, hi : tokens lo..hi-1 are the sequence
        edge_class : int32 (N,)
        scores : a `DefaultScores`
        work : delta of token hi-1
        pools : (int32 (P,), float64 (P,))
        pool_ptr : int64 (>= hi - lo,), see `default_forward`
    Out:
        path : int32 (>= hi - lo,)
    Cost: a bisection for each cell alive in the group of a label.
    Source: Viterbi (1967).
    """
    pool, delta_pool = pools
    y, score = largest(work.delta, work.delta.size)
    if score == -np.inf:
        return score
    path[hi - lo - 1] = y
    for t in range(hi - 1, lo, -1):
        begin, end, g = pool_ptr[t - 1 - lo], pool_ptr[t - lo], scores.group[y]
        begin += np.searchsorted(pool[begin:end], scores.member_ptr[g])
        base, high, label = edge_class[t] * scores.member.size, -np.inf, 0
        for i in range(begin, end):
            if pool[i] >= scores.member_ptr[g + 1]:
                break
            c = base + pool[i]
            e = find_next(scores.next_label, scores.row_ptr[c], scores.row_ptr[c + 1], y)
            v = delta_pool[i] + (scores.score[e] if e >= 0 else 0.0)
            if v > high:
                high, label = v, scores.member[pool[i]]
        y = label
        path[t - 1 - lo] = y
    return score


@kernel
def default_viterbi_many(first, stop, tokens, nodes, scores, work, path, score, seen):
    """Best path and score of sequences first..stop-1, from attributes: bit for bit those of ``viterbi_many``.

    delta[0] = log_node[0]
    delta[t,y] = log_node[t,y] + best[t,y],  best as in `default_step` for the group of y
    Node scores are made for a few tokens at a time, and of each delta only the cells alive are kept: in each
    group one at least. Memory grows with tokens times groups, not with tokens times labels.

    Arguments:
        first, stop : sequences first..stop-1
        tokens : a `Tokens`
        nodes : a `NodeLists`
        scores : a `DefaultScores`
        work : a `DefaultWork`
    Out:
        path : int32 (N,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden, nan if a sum of
            weights left float64
        seen : int64 (4,), see ALIVE, added to
    Cost a token: its attributes, L, the cells, and the stored pairs of the cells alive.
    Source: chapter 11.
    """
    n_rows, most = work.log_node.shape[0], scores.member.size
    pools = (np.empty(2 * most, np.int32), np.empty(2 * most))
    pool_ptr = np.zeros(1, np.int64)
    for s in range(first, stop):
        lo, hi = tokens.seq_ptr[s], tokens.seq_ptr[s + 1]
        score[s] = 0.0
        if lo == hi:
            continue
        path[lo:hi] = 0
        if hi - lo > pool_ptr.size:
            pool_ptr = np.zeros(hi - lo, np.int64)
        n_pool, good = 0, True
        for t in range(lo, hi, n_rows):
            end = min(t + n_rows, hi)
            score_block(t, end, lo, hi, tokens, nodes, work.log_node)
            if nodes.may_overflow[0]:
                for r in range(end - t):
                    for y in range(work.delta.size):
                        good &= work.log_node[r, y] < np.inf
            part = lo, t, end, work.log_node, tokens.edge_class
            pools, n_pool = default_forward(*part, scores, work, pools, n_pool, pool_ptr, seen)
        out = pools, pool_ptr, path[lo:hi]
        score[s] = default_trace_back(lo, hi, tokens.edge_class, scores, work, *out) if good else np.nan


def default_viterbi_plain(log_node, log_edge, stored):
    """(score, path (T,)) of the best path: the readable sister of `default_viterbi_many`, for one group.

    The default comes from the best previous label q. For next labels that follow q in a stored pair, it
    comes from the best label that stores none. Of equally good previous labels the smallest is taken.

    log_node : (T, L).
    log_edge, stored : (L, L) [previous, next], scores and bool; pairs that are not stored score 0.
    Source: chapter 11.
    """
    delta, back = log_node[0], []
    for u in log_node[1:]:
        q = delta.argmax()
        best = np.full(len(u), delta[q])
        came = np.full(len(u), q)
        for y in np.flatnonzero(stored[q]):
            rest = np.where(stored[:, y], -np.inf, delta)
            best[y], came[y] = rest.max(), rest.argmax()
        pairs = np.where(stored, delta[:, None] + log_edge, -np.inf)
        top, first = pairs.max(axis=0), pairs.argmax(axis=0)
        came = np.where(top > best, first, np.where(top == best, np.minimum(first, came), came))
        delta = u + np.maximum(best, top)
        back.append(came)
    path = [int(delta.argmax())]
    for came in reversed(back):
        path.insert(0, int(came[path[0]]))
    return delta.max(), path
