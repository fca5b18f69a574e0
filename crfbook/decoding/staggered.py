"""Staggered decoding: frequent labels are expanded first, and one label z stands for all others of a token.

A best path without z is the answer. Otherwise tokens (columns) get twice as many labels, and the next sweep
runs in the other direction. ``staggered_decode`` is the readable form. Forbidden = -inf;
bounds that are not known yet are +inf. -inf decides before it is added to another: -inf + inf is NaN.

Labels are numbered by their place in tables.order, `tables` is StaggeredTables. `lattice` is a
tuple of work arrays, T tokens of the longest sequence, M levels:
column int64 (T, 4): labels expanded, labels kept (expanded and not pruned), whether z is alive, level of z;
kept int32 (T, L): rising; bound (2, T, L+1) as [direction, token, label, z last]: the best score of what lies
before a node in that direction, its own node score left out; sole (T, L): bound of the last sweep without z;
z_node (T, M): node scores of z; delta (2, 2, L+1) as [parity of the column, with z, place in kept];
route int32 (2, T): the best path found so far without z, and the best one of the sweep (label L is z);
edge : tables.log_edge, or a copy to which `_dress` adds what depends on the text.
"""

import itertools
from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook._jit import kernel
from crfbook.data.corpus import offsets, owners, positions

# Relative to T times the sum of all magnitudes: some 9 rounding errors an addition, where 4 can occur.
SLACK = 1e-15


@kernel
def _within(before, behind, node, threshold):
    """Can a path through this node reach the threshold? No if any of the three is -inf."""
    if before == -np.inf or behind == -np.inf or node == -np.inf:
        return False
    return before + node + behind >= threshold


@kernel
def _dress(d, k, tables, edge):
    """The place in edge[d] of the table of class k. Where there is one table alone, what the edge attributes
    of the class add to it is added; `_undress` takes it away.
    """
    class_ptr, class_attr, pair_ptr, pair, weight = tables.lists
    if class_ptr.size == 0:
        return np.int64(k)
    for j in range(class_ptr[k], class_ptr[k + 1]):
        for e in range(pair_ptr[class_attr[j]], pair_ptr[class_attr[j] + 1]):
            edge[d, 0, pair[d, e], pair[1 - d, e]] += weight[e]
    return np.int64(0)


@kernel
def _undress(d, k, tables, edge):
    """edge[d, 0] is the table of all classes again."""
    class_ptr, class_attr, pair_ptr, pair, weight = tables.lists
    for j in range(class_ptr[k] if class_ptr.size else 0, class_ptr[k + 1] if class_ptr.size else 0):
        for e in range(pair_ptr[class_attr[j]], pair_ptr[class_attr[j] + 1]):
            yp, y = pair[d, e], pair[1 - d, e]
            edge[d, 0, yp, y] = tables.log_edge[d, 0, yp, y]


@kernel
def _start(lo, hi, log_node, tables, lattice):
    """Every column has its first label and z. Returns the sum of the largest finite magnitudes."""
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    L, M = log_node.shape[1], z_node.shape[1]
    magnitude = 0.0
    for n in range(hi - lo):
        column[n, 0], column[n, 1], column[n, 2], column[n, 3] = 1, 1, int(L > 1), 0
        kept[n, 0] = 0
        for d in range(2):
            bound[d, n, 0] = bound[d, n, L] = np.inf
        high, reach, level = -np.inf, 0.0, M - 1
        for y in range(L - 1, -1, -1):
            v = log_node[lo + n, tables.order[y]]
            high = v if v > high else high
            reach = max(reach, abs(v)) if v > -np.inf else reach
            if level >= 0 and y == 1 << level:
                z_node[n, level] = high
                level -= 1
        magnitude += reach + tables.reach[0]
    return magnitude


@kernel
def _greedy(lo, hi, log_node, tables, edge_class, route, edge):
    """route[0] = the greedy path; returns its score, -inf if it runs into a dead end."""
    low, yp = 0.0, 0
    for n in range(hi - lo):
        best, best_y, k = -np.inf, 0, np.int64(0)
        if n > 0:
            k = _dress(0, edge_class[lo + n], tables, edge)
        for y in range(log_node.shape[1]):
            v = low + log_node[lo + n, tables.order[y]]
            if n > 0:
                v = low + edge[0, k, yp, y] + log_node[lo + n, tables.order[y]]
            if v > best:
                best, best_y = v, y
        if n > 0:
            _undress(0, edge_class[lo + n], tables, edge)
        low, yp = best, best_y
        route[0, n] = yp
    return low


@kernel
def _relax(d, n, prev, now, k, tables, lattice):
    """delta[now] = best score of what leads from column prev into each node of column n, in direction d.

    Blocks: kept labels to kept labels, kept labels to z, z to kept labels, z to z.
    """
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    old, at = 1 - now, _dress(d, k, tables, edge)
    n_kept, n_prev, level, level_prev = column[n, 1], column[prev, 1], column[n, 3], column[prev, 3]
    for i in range(n_kept):
        delta[now, 1, i] = delta[now, 0, i] = -np.inf
        if column[prev, 2]:
            delta[now, 1, i] = delta[old, 1, n_prev] + tables.to_z[1 - d, level_prev, kept[n, i]]
    for j in range(n_prev):
        yp, v, v_sole = kept[prev, j], delta[old, 1, j], delta[old, 0, j]
        for i in range(n_kept):
            w = edge[d, at, yp, kept[n, i]]
            delta[now, 1, i] = v + w if v + w > delta[now, 1, i] else delta[now, 1, i]
            delta[now, 0, i] = v_sole + w if v_sole + w > delta[now, 0, i] else delta[now, 0, i]
    _undress(d, k, tables, edge)
    if column[n, 2]:
        best = -np.inf
        for j in range(n_prev):
            best = max(best, delta[old, 1, j] + tables.to_z[d, level, kept[prev, j]])
        if column[prev, 2]:
            best = max(best, delta[old, 1, n_prev] + tables.z_to_z[d, level_prev, level])
        delta[now, 1, n_kept] = best


@kernel
def _prune(d, n, now, i, log_node, tables, threshold, lattice):
    """Bounds of column n in direction d; nodes below the threshold go; delta[now] += node scores."""
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    L, n_new = log_node.shape[1], 0
    for j in range(column[n, 1]):
        y = kept[n, j]
        v, node = delta[now, 1, j], log_node[i, tables.order[y]]
        bound[d, n, y], sole[n, y] = v, delta[now, 0, j]
        if _within(v, bound[1 - d, n, y], node, threshold):
            kept[n, n_new] = y
            delta[now, 1, n_new], delta[now, 0, n_new] = v + node, sole[n, y] + node
            n_new += 1
    if column[n, 2]:
        v, node = delta[now, 1, column[n, 1]], z_node[n, column[n, 3]]
        bound[d, n, L] = v
        column[n, 2] = int(_within(v, bound[1 - d, n, L], node, threshold))
        delta[now, 1, n_new] = v + node
    column[n, 1] = n_new


@kernel
def _sweep(d, lo, hi, log_node, tables, edge_class, threshold, counters, lattice):
    """One sweep over all columns, from the first one on (d = 0) or from the last one back (d = 1)."""
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    T = hi - lo
    for c in range(T):
        n, prev = (c, c - 1) if d == 0 else (T - 1 - c, T - c)
        n_nodes = column[n, 1] + column[n, 2]
        counters[0] += n_nodes
        if c == 0:
            for j in range(n_nodes):
                delta[0, 0, j] = delta[0, 1, j] = 0.0
        else:
            counters[1] += n_nodes * (column[prev, 1] + column[prev, 2])
            _relax(d, n, prev, c % 2, edge_class[lo + max(n, prev)], tables, lattice)
        _prune(d, n, c % 2, lo + n, log_node, tables, threshold, lattice)
    counters[2] += 1


@kernel
def _trace_back(with_z, d, y, lo, hi, log_node, tables, edge_class, lattice):
    """route[with_z] = the path of the last sweep whose last node is y, with nodes z or without."""
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    L, T = log_node.shape[1], hi - lo
    for c in range(T - 1, 0, -1):
        n, prev = (c, c - 1) if d == 0 else (T - 1 - c, T - c)
        route[with_z, n] = y
        k, level, came = edge_class[lo + max(n, prev)], column[n, 3], L
        at = _dress(d, k, tables, edge)
        best = bound[d, n, y] if with_z else sole[n, y]
        for j in range(column[prev, 1]):
            yp = kept[prev, j]
            v = (bound[d, prev, yp] if with_z else sole[prev, yp]) + log_node[lo + prev, tables.order[yp]]
            w = tables.to_z[d, level, yp] if y == L else edge[d, at, yp, y]
            if v + w == best:
                came = yp
                break
        _undress(d, k, tables, edge)
        y = came
    route[with_z, 0 if d == 0 else T - 1] = y


@kernel
def _expand(n, lo, log_node, tables, threshold, lattice):
    """Column n gets twice as many labels; they and the new z take over the bounds of z."""
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    L, size = log_node.shape[1], column[n, 0]
    before, behind = bound[0, n, L], bound[1, n, L]
    column[n, 0] = min(2 * size, L)
    for y in range(size, column[n, 0]):
        if _within(before, behind, log_node[lo + n, tables.order[y]], threshold):
            bound[0, n, y], bound[1, n, y] = before, behind
            kept[n, column[n, 1]] = y
            column[n, 1] += 1
    column[n, 2] = int(column[n, 0] < L)
    column[n, 3] += 1


@kernel
def _search(lo, hi, log_node, tables, edge_class, counters, lattice):
    """route[0] = the best path of the tokens lo..hi-1, at least one; returns -inf if all is forbidden."""
    column, kept, bound, sole, z_node, delta, route, edge = lattice
    L, T = log_node.shape[1], hi - lo
    slack = SLACK * (T + 1) * _start(lo, hi, log_node, tables, lattice)
    low = _greedy(lo, hi, log_node, tables, edge_class, route, edge)
    for sweep in range(T * z_node.shape[1] + 1):  # every sweep but the last expands a column
        d = sweep % 2
        _sweep(d, lo, hi, log_node, tables, edge_class, low - slack, counters, lattice)
        last, now, best = (T - 1) * (1 - d), (T - 1) % 2, -np.inf
        for with_z in range(2):
            low, best, y = max(low, best), -np.inf, L
            for j in range(column[last, 1] + with_z * column[last, 2]):
                if delta[now, with_z, j] > best:
                    best, y = delta[now, with_z, j], kept[last, j] if j < column[last, 1] else L
            if best > low and (with_z == 0 or tables.by_column):
                _trace_back(with_z, d, y, lo, hi, log_node, tables, edge_class, lattice)
        if best <= low:  # the best path avoids z, or is no better than one that does
            break
        for n in range(T):
            if column[n, 2] and (not tables.by_column or route[1, n] == L):
                _expand(n, lo, log_node, tables, low - slack, lattice)
    return low


@kernel
def staggered_many(log_node, tables, edge_class, seq_ptr, path, score, counters):
    """Best path and score of every sequence, exactly; a path with the same score may stand for another.

    low = score of the greedy path
    repeat: sweep the columns:
                bound[d,n,y] = max over nodes yp before: bound[d,n-1,yp] + node score[n-1,yp] + transition
                prune y if bound[0,n,y] + node score[n,y] + bound[1,n,y] < low - slack
            low = max(low, best path without z);  stop if the best path with z is no better
            expand all columns (or those where the best path uses z);  turn the direction round
    Degenerate transitions bound all classes, transitions between labels have the score of their class.
    The slack exceeds all rounding errors. The score is added up as in ``viterbi_many``.

    Arguments:
        log_node : (n, L), may be -inf
        tables : a `StaggeredTables`
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        path : int32 (n,), original labels
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
        counters : int64 (3,), added to: nodes and transitions looked at, sweeps
    Allocates 4 (longest T) (L + log2 L) numbers, and 2 L^2 where pairs are listed.
    Cost: n L at best; at most ceil(log2 L) + 1 sweeps and 7/3 n L^2 transitions between labels
    (4/3 if L is a power of two); by column n log2 L sweeps. Listed pairs: all of its class for a
    token and sweep.
    Source: Kaji et al. (2010), section 3; docs/SPEC.md, C.3 to C.7; chapter 11.
    """
    L, longest = log_node.shape[1], 1
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    lattice = (
        np.empty((longest, 4), np.int64),
        np.empty((longest, L), np.int32),
        np.empty((2, longest, L + 1)),
        np.empty((longest, L)),
        np.empty((longest, tables.to_z.shape[1])),
        np.empty((2, 2, L + 1)),
        np.empty((2, longest), np.int32),
        tables.log_edge.copy() if tables.lists.class_ptr.size else tables.log_edge,
    )
    route, edge = lattice[6], lattice[7]
    path[:] = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            score[s] = _search(lo, hi, log_node, tables, edge_class, counters, lattice)
        if score[s] == -np.inf or lo == hi:
            continue
        for i in range(lo, hi):
            path[i] = tables.order[route[0, i - lo]]
            if i == lo:
                score[s] = log_node[i, path[i]]
            else:
                k = _dress(0, edge_class[i], tables, edge)
                w = edge[0, k, route[0, i - 1 - lo], route[0, i - lo]]
                score[s] = score[s] + w + log_node[i, path[i]]
                _undress(0, edge_class[i], tables, edge)


class PairLists(NamedTuple):
    """Weights of pairs that depend on the text: class k has those of its edge attributes. Empty: none."""

    class_ptr: np.ndarray  # int64 (K+1,)
    class_attr: np.ndarray  # int32: attributes of a class, without those that are in the table of all
    pair_ptr: np.ndarray  # int64 (B+1,): pairs of an attribute
    pair: np.ndarray  # int32 (2, P): labels, [previous, next]
    weight: np.ndarray  # (P,)


class StaggeredTables(NamedTuple):
    """What `staggered_many` reads. Labels are numbered by their place in `order`; direction 0 is forward.

    At level c the labels below 2^c are active, and z stands for the others. M = ceil(log2 L) levels.
    """

    order: np.ndarray  # int64 (L,): original labels, the frequent ones first
    log_edge: np.ndarray  # (2, K, L, L) as [direction, class, from, to]; (2, 1, L, L) where pairs are listed
    to_z: np.ndarray  # (2, M, L): best transition of any class from a label to z of a level, or 1 - d: back
    z_to_z: np.ndarray  # (2, M, M) as [direction, from level, to level]
    reach: np.ndarray  # (1,): no finite |log_edge| is larger
    by_column: int  # 1: only columns expand where the best path uses z
    lists: PairLists


def _of_rest(scores, starts):
    """(..., M): the largest scores (..., L) from each start on."""
    blocks = np.maximum.reduceat(scores, starts, axis=-1)
    return np.maximum.accumulate(blocks[..., ::-1], axis=-1)[..., ::-1]


def staggered_tables(log_edge, order, by_column=False):
    """`StaggeredTables`; ValueError unless `order` is a permutation of the labels.

    order : int (L,), labels by falling frequency in training. Any order is exact.
    by_column : expand only the columns where the best path is not settled.
    Source: Kaji et al. (2010), eq. (2) to (4); docs/SPEC.md, C.3 and C.7.
    """
    L, order = np.shape(log_edge)[1], np.asarray(order)
    if order.shape != (L,) or not np.array_equal(np.sort(order), np.arange(L)):
        raise ValueError(f"order: expected a permutation of the {L} labels, got {shown(order)}")
    order = order.astype(np.int64)
    forward = np.ascontiguousarray(np.asarray(log_edge, float)[:, order][:, :, order])
    finite = np.abs(forward[np.isfinite(forward)])
    none = (np.zeros(shape, kind) for shape, kind in (
        (0, np.int64), (0, np.int32), (0, np.int64), ((2, 0), np.int32), (0, float)
    ))  # fmt: skip
    return _tables(order, forward, forward.max(axis=0), finite.max(initial=0.0), by_column, PairLists(*none))


def _tables(order, forward, rest, reach, by_column, lists):
    """`StaggeredTables` from those of the classes, forward (K, L, L), and a bound of all of them, rest."""
    starts = 2 ** np.arange((len(rest) - 1).bit_length())
    to_z, from_z = _of_rest(rest, starts).T, _of_rest(rest.T, starts).T
    z_to_z = _of_rest(to_z, starts).T
    pairs = (forward, np.swapaxes(forward, 1, 2)), (to_z, from_z), (z_to_z, z_to_z.T)
    tables = (np.ascontiguousarray(np.stack(pair)) for pair in pairs)  # one layout: compiled once
    return StaggeredTables(order, *tables, np.array([reach]), int(by_column), lists)


def exclusive_groups(class_ptr, class_attr, n_attrs):
    """int64 (B,): a group for each edge attribute. Attributes of one group stand in no class together."""
    beside, group = [set() for _ in range(n_attrs)], np.full(n_attrs, -1)
    for members in np.split(class_attr, class_ptr[1:-1]):
        for b in members.tolist():
            beside[b].update(members.tolist())
    for b in range(n_attrs):
        taken = set(group[list(beside[b])].tolist())
        group[b] = next(g for g in itertools.count() if g not in taken)
    return group


def staggered_lists(features, w, class_ptr, class_attr, bounds, order, by_column=False):
    """`StaggeredTables` that keep no table for each edge class: a pair of active labels has its own score,

        s_k(yp, y) = base(yp, y) + sum of lam_b(yp, y) over the edge attributes b of class k

    with in `base` those that begin the list of every class. A degenerate label takes a bound of all texts:

        s_k(yp, y) <= base(yp, y) + sum over groups of max(0, largest lam_b(yp, y) of the group)

    where attributes of one group exclude each other. Source: Kaji et al. (2010), section 4.
    """
    known = class_attr < features.n_edge_attrs
    size = np.bincount(owners(class_ptr)[known], minlength=len(class_ptr) - 1)
    class_ptr, class_attr = offsets(size), class_attr[known]
    L, ptr, n_first = features.n_labels, features.edge_ptr.copy(), 0
    order, place = order.astype(np.int64), np.argsort(order).astype(np.int32)
    pair, base = np.stack([place[features.edge_prev], place[features.edge_next]]), np.zeros((L, L))
    lam = w[features.n_node :].astype(float)
    while n_first < size.min() and len(common := np.unique(class_attr[class_ptr[:-1] + n_first])) == 1:
        row, n_first = slice(ptr[common[0]], ptr[common[0] + 1]), n_first + 1
        base[pair[0, row], pair[1, row]] += lam[row]
    base[bounds.edge[np.ix_(order, order)] < 0.0] = -np.inf
    kept = positions(class_ptr) >= n_first
    class_ptr, class_attr = offsets(size - n_first), class_attr[kept].astype(np.int32)
    group, owner = exclusive_groups(class_ptr, class_attr, features.n_edge_attrs), features.edge_attr
    used = np.isin(owner, class_attr)
    rest, reach = base.copy(), np.abs(base[np.isfinite(base)]).max(initial=0.0)
    for g in range(group.max(initial=-1) + 1):
        mine, most = used & (group[owner] == g), np.zeros((L, L))
        np.maximum.at(most, (pair[0, mine], pair[1, mine]), lam[mine])
        rest += most
        reach += np.abs(lam[mine]).max(initial=0.0)
    rest += (group.max(initial=0) + 2) * np.finfo(float).eps * reach  # sums in another order
    lists = PairLists(class_ptr, class_attr, ptr, pair, lam)
    return _tables(order, base[None], rest, reach, by_column, lists)


def _degenerate(scores, size, axis):
    """The first `size` scores along an axis, and the score of z: the largest of the others, or -inf."""
    active, rest = np.split(scores, [size], axis)
    return np.concatenate([active, rest.max(axis, keepdims=True, initial=-np.inf)], axis)


def staggered_decode(log_node, log_edge, order):
    """(score, path, sweeps) of one sequence, not empty, by the steps of `staggered_many`.

    log_node : (T, L). log_edge : (L, L), one class. order : int (L,), labels by falling frequency.
    delta[0] is over all nodes, delta[1] over those that are not z. Source: docs/SPEC.md, C.4 and C.5.
    """
    node, edge = log_node[:, order], log_edge[order][:, order]
    (T, L), size = node.shape, 1
    path = np.zeros(T, int)  # greedy: the first lower bound
    path[0], low = node[0].argmax(), node[0].max()
    for t in range(1, T):
        v = low + edge[path[t - 1]] + node[t]
        path[t], low = v.argmax(), v.max()
    bound, alive = np.full((2, T, 2), np.inf), np.full((T, 2), True)
    for sweep in itertools.count(1):
        z_node, z_edge = _degenerate(node, size, 1), _degenerate(_degenerate(edge, size, 0), size, 1)
        d = (sweep - 1) % 2
        columns = range(T) if d == 0 else range(T - 1, -1, -1)
        v, back = np.zeros((2, size + 1, size + 1)), np.zeros((T, 2, size + 1), int)
        for t in columns:
            back[t], bound[d, t] = v.argmax(1), v[0].max(0)
            with np.errstate(invalid="ignore"):  # -inf + inf is NaN, which is below everything: pruned
                alive[t] &= bound[:, t].sum(0) + z_node[t] >= low - 1e-9 * max(1.0, abs(low))
            delta = np.where(alive[t], v.max(1) + z_node[t], -np.inf)
            delta[1, size] = -np.inf
            v = delta[:, :, None] + (z_edge if d == 0 else z_edge.T)
        if delta[1].max() > low:
            low, y = delta[1].max(), delta[1].argmax()
            for t in reversed(columns):
                path[t], y = y, back[t, 1, y]
        if delta[0].max() <= low:
            return low, order[path] if low > -np.inf else 0 * path, sweep
        new = min(2 * size, L)
        counts = np.append(np.ones(size, int), new - size + 1)  # new labels take over the bounds of z
        bound, alive, size = bound.repeat(counts, 2), alive.repeat(counts, 1), new
