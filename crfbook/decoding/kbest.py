"""The k best labellings of a sequence: Viterbi forwards, then the further labellings one by one.

Each (t, y) has a ranked list: the labellings of tokens 0..t that end in label y, best first. Viterbi gives
the first of each list, and the others are made when needed. A labelling in the list of (t, y) is one in the
list of (t-1, yp), and y. So the list of (t, y) merges L lists, by a heap.

Order: by score, added up as Viterbi adds; among equal scores the smaller label one token before, and then the
order of the list before. Rounding never reverses an order (a <= b makes a + c <= b + c, rounded). So the
lists are exactly the k largest of all rounded scores, falling, and rank 1 is the path of ``viterbi_many``.
A* backwards adds suffixes to prefixes: its totals round otherwise, and need not fall.

A labelling is an entry e of a pool that grows. `pool` is a pair of arrays. number (P, 2):
  SCORE  score up to the transition into t, without the node score of (t, y)
  EDGE   score of that transition
link int64 (P, 4):
  PREV   label yp of token t-1
  BACK   its entry in the list of (t-1, yp), or FIRST: the first one, not looked for yet
  NEXT   in a list: the entry behind it, END or UNKNOWN; in a heap: the next child of the same parent
  CHILD  in a list: the root of the heap of (t, y), if this is the last so far; in a heap: the first child
Token T, behind the last one, has one label and no scores: its list holds the labellings of the sequence.
`lattice` is a tuple: log_node (n, L), tables (a KBestTables), edge_class int32 (n,), delta (n, L) with
Viterbi's scores, head int64 (longest T + 1, L): the first entry of each list or END, column_buf (L,).

`kbest` ranks the labellings of a corpus. `dense_search` and `stored_search` hand the kernels transitions.
"""

from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from crfbook._checks import one_of, whole
from crfbook._jit import kernel
from crfbook.chain import inference
from crfbook.chain.forms import table_edges
from crfbook.chain.inference import large_sequences, log_chain, path_log_proba, refuse
from crfbook.chain.likelihood import queued_or_new
from crfbook.chain.sparse.choice import decoding_form
from crfbook.chain.sparse.default import default_step
from crfbook.chain.sparse.potentials import default_scores, default_work
from crfbook.chain.viterbi import _largest, _max_plus, _surviving, bounds_of_losers
from crfbook.data.corpus import offsets, owners
from crfbook.decoding.decoders import check_tables

SCORE, EDGE = 0, 1
PREV, BACK, NEXT, CHILD = 0, 1, 2, 3
END, UNKNOWN, FIRST = -1, -2, -3
FORMS = ("auto", "dense", "default")


@kernel
def kbest_by_lists(log_node, log_edge, edge_class, ranked, back, path, score):
    """The k best labellings of one sequence, all lists whole: ``kbest_many`` to read.

    ranked[0,y,0] = log_node[0,y], others -inf
    ranked[t,y,j] = log_node[t,y] + the j-th largest of ranked[t-1,yp,i] + log_edge[yp,y] over all yp and i
    score[j] = the j-th largest of ranked[T-1,y,i]; ties go to the smaller yp, and then to the smaller i.

    Arguments:
        log_node : (T, L)
        log_edge : (K, L, L) as [class, previous, next]
        edge_class : (T,)
    Out:
        score : (k,), -inf where there are fewer
        path : int (T, k) as [token, rank], 0 there
    Work:
        ranked : (T+1, L, k+1)
        back : int (T+1, L, k, 2)
    Cost: T L^2 k.
    Source: Viterbi (1967); Huang and Chiang (2005), algorithm 2.
    """
    T, L = log_node.shape
    k = score.size
    ranked[:] = -np.inf
    path[:] = 0
    for y in range(L):
        ranked[0, y, 0] = log_node[0, y]
    taken = np.empty(L, np.int64)
    for t in range(1, T + 1):
        for y in range(L if t < T else 1):
            taken[:] = 0
            for j in range(k):
                best, best_yp = -np.inf, 0
                for yp in range(L):
                    v = ranked[t - 1, yp, taken[yp]] + (log_edge[edge_class[t], yp, y] if t < T else 0.0)
                    if v > best:
                        best, best_yp = v, yp
                ranked[t, y, j] = best + (log_node[t, y] if t < T else 0.0)
                back[t, y, j, 0], back[t, y, j, 1] = best_yp, taken[best_yp]
                taken[best_yp] += best > -np.inf
    for rank in range(k):
        score[rank] = ranked[T, 0, rank]
        y, j = 0, rank
        for t in range(T, 0, -1):
            if score[rank] > -np.inf:
                y, j = back[t, y, j, 0], back[t, y, j, 1]
                path[t - 1, rank] = y


# Three kernels depend on how transitions are stored. Python calls one of the first two, so that the other one
# is not compiled.


@kernel
def viterbi_scores(log_node, log_edge, bound, reach, edge_class, seq_ptr, delta):
    """Viterbi forwards with a table: delta[t,y] = log_node[t,y] + max_yp(delta[t-1,yp] + log_edge[yp,y]).

    Arguments:
        log_node : (n, L)
        log_edge : (K, L, L)
        bound : (K, L, L)
        reach : from ``dominance``; a bound (0, 0, 0) leaves no label out
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        delta : (n, L)
    Cost: n L^2 additions and maxima, less what is skipped.
    Source: Viterbi (1967); as ``viterbi_many``.
    """
    L = log_node.shape[1]
    rows, n_rows = np.empty(L, np.int64), L
    for y in range(L):
        rows[y] = y
    for s in range(seq_ptr.size - 1):
        for t in range(seq_ptr[s], seq_ptr[s + 1]):
            if t == seq_ptr[s]:
                for y in range(L):
                    delta[t, y] = log_node[t, y]
                continue
            k = edge_class[t]
            if bound.size > 0:
                n_rows = _surviving(delta, t - 1, _largest(delta, t - 1), bound, k, reach, rows)
            _max_plus(delta, log_edge, k, rows, n_rows, delta, t)
            for y in range(L):
                delta[t, y] = log_node[t, y] + delta[t, y]


@kernel
def viterbi_scores_stored(log_node, scores, work, edge_class, seq_ptr, delta):
    """``viterbi_scores`` with a default and stored pairs: the same bits.

    Arguments:
        log_node : (n, L)
        scores : a `DefaultScores`
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        delta : (n, L)
    Work:
        work : a `DefaultWork`
    Cost a token: L, the cells of all groups, and the stored pairs of the cells alive.
    Source: as ``default_step``.
    """
    L = log_node.shape[1]
    pool, seen = np.empty(L, np.int32), np.zeros(4, np.int64)
    for s in range(seq_ptr.size - 1):
        for t in range(seq_ptr[s], seq_ptr[s + 1]):
            for y in range(L):
                work.delta[y] = delta[t - 1, y] if t > seq_ptr[s] else 0.0
                work.best[y] = 0.0
            for g in range(scores.member_ptr.size - 1 if t > seq_ptr[s] else 0):
                default_step(edge_class[t], g, work.delta, scores, work, pool, 0, seen)
            for y in range(L):
                delta[t, y] = log_node[t, y] + work.best[y]


@kernel
def fill_column(k, y, tables, column):
    """column[yp] = transition(k, yp, y).

    Arguments:
        k : the class
        y : next label
        tables : a `KBestTables`
    Out:
        column : (L,)
    Cost: L.
    Source: this package.
    """
    L = column.size
    if tables.log_edge_t.size > 0:
        for yp in range(L):
            column[yp] = tables.log_edge_t[k, y, yp]
        return
    g = tables.group[y]
    for yp in range(L):
        column[yp] = -np.inf
    for c in range(tables.member_ptr[g], tables.member_ptr[g + 1]):
        column[tables.member[c]] = 0.0
    for e in range(tables.column_ptr[k * L + y], tables.column_ptr[k * L + y + 1]):
        column[tables.column_prev[e]] = tables.column_score[e]


@kernel
def _comes_before(a, b, number, link):
    """Does entry a stand before entry b in the list that both belong to?"""
    if number[a, SCORE] == number[b, SCORE]:
        return link[a, PREV] < link[b, PREV]
    return number[a, SCORE] > number[b, SCORE]


@kernel
def _meld(a, b, number, link):
    """The root of the pairing heap made of the heaps with roots a and b; END stands for an empty heap."""
    if a == END or b == END:
        return max(a, b)
    if _comes_before(b, a, number, link):
        a, b = b, a
    link[b, NEXT] = link[a, CHILD]
    link[a, CHILD] = b
    return a


@kernel
def _without_root(a, number, link):
    """The root of what remains of the heap with root a: its children are melded in pairs, then backwards."""
    child, melded = link[a, CHILD], END
    while child != END:
        b, c = child, link[child, NEXT]
        child = END
        if c != END:
            child = link[c, NEXT]
            link[c, NEXT] = END
        link[b, NEXT] = END
        b = _meld(b, c, number, link)
        link[b, NEXT] = melded
        melded = b
    root = END
    while melded != END:
        b = melded
        melded = link[b, NEXT]
        link[b, NEXT] = END
        root = _meld(root, b, number, link)
    return root


@kernel
def _new_entry(score, edge, prev, back, pool, size):
    """Number of a new entry, a heap of its own; size int64 (3,): entries in use, then two counts."""
    number, link = pool
    e = size[0]
    size[0] += 1
    number[e, SCORE], number[e, EDGE] = score, edge
    link[e, PREV], link[e, BACK], link[e, NEXT], link[e, CHILD] = prev, back, END, END
    return e


@kernel
def _from_first(lo, hi, t, y, score, prev, lattice, pool, size):
    """A new entry for (t, y): of the first entries of all lists (t-1, yp), the best one behind (score, prev).
    END if there is none.
    """
    log_node, tables, edge_class, delta, head, column = lattice
    L = column.size
    if lo + t < hi:
        fill_column(edge_class[lo + t], y, tables, column)
    else:
        for yp in range(L):
            column[yp] = 0.0
    best, best_yp = -np.inf, -1
    for yp in range(L):
        v = delta[lo + t - 1, yp] + column[yp]
        if v > best and (v < score or (v == score and yp > prev)):
            best, best_yp = v, yp
    size[1] += L
    if best_yp < 0:
        return END
    return _new_entry(best, column[best_yp], best_yp, FIRST, pool, size)


@kernel
def _first(lo, hi, t, y, lattice, pool, size):
    """The first entry of the list (t, y), whose score is not -inf."""
    head, link = lattice[4], pool[1]
    if head[t, y] == END:
        if t == 0:
            e = _new_entry(0.0, 0.0, -1, END, pool, size)
        else:
            e = _from_first(lo, hi, t, y, np.inf, -1, lattice, pool, size)
            link[e, NEXT] = UNKNOWN
        head[t, y] = e
    return head[t, y]


@kernel
def _append_next(lo, hi, t, y, e, lattice, pool, size):
    """Find the entry behind e, the last one of the list (t, y) so far. The lists of token t-1 are long
    enough.

    Two labellings enter the heap: the one behind BACK in the same list before, and, if BACK is the first of
    its list, the best first one that did not enter yet. All others stand behind one that is in the heap.
    """
    log_node, head = lattice[0], lattice[4]
    number, link = pool
    heap, yp, behind = link[e, CHILD], link[e, PREV], link[link[e, BACK], NEXT]
    if behind != END:
        score = log_node[lo + t - 1, yp] + number[behind, SCORE] + number[e, EDGE]
        if score > -np.inf:
            heap = _meld(heap, _new_entry(score, number[e, EDGE], yp, behind, pool, size), number, link)
    if head[t - 1, yp] == link[e, BACK]:
        heap = _meld(heap, _from_first(lo, hi, t, y, number[e, SCORE], yp, lattice, pool, size), number, link)
    link[e, NEXT] = heap
    if heap != END:
        link[heap, CHILD] = _without_root(heap, number, link)
        link[heap, NEXT] = UNKNOWN
    size[2] += 1


@kernel
def _extend(lo, hi, e, lattice, pool, size, chain):
    """The labelling of the sequence behind e, the last one known; END if there is none.

    The lists along e are made longer from the left: backwards up to the first one that is long enough.
    """
    link, t = pool[1], hi - lo
    chain[t] = e
    while link[link[chain[t], BACK], NEXT] == UNKNOWN:
        chain[t - 1] = link[chain[t], BACK]
        t -= 1
    for i in range(t, hi - lo + 1):
        y = link[chain[i + 1], PREV] if lo + i < hi else 0
        _append_next(lo, hi, i, y, chain[i], lattice, pool, size)
    return link[e, NEXT]


@kernel
def _write_path(lo, hi, e, rank, lattice, pool, size, path):
    """path[lo:hi,rank] = the labels of entry e; entries of earlier lists are made where they are missing."""
    link = pool[1]
    for t in range(hi - lo - 1, -1, -1):
        y = link[e, PREV]
        if link[e, BACK] == FIRST:
            link[e, BACK] = _first(lo, hi, t, y, lattice, pool, size)
        e = link[e, BACK]
        path[lo + t, rank] = y


@kernel
def _room(n, used, pool):
    """The pool, or a copy of its first `used` entries, at least twice as large, with room for n more."""
    number, link = pool
    if used + n <= len(link):
        return pool
    capacity = max(2 * len(link), used + n)
    more_number, more_link = np.empty((capacity, 2)), np.empty((capacity, 4), np.int64)
    for e in range(used):
        for i in range(2):
            more_number[e, i] = number[e, i]
        for i in range(4):
            more_link[e, i] = link[e, i]
    return more_number, more_link


@kernel
def kbest_many(log_node, delta, tables, edge_class, seq_ptr, path, score, found, counters):
    """The k best labellings of every sequence, best first, from Viterbi's scores.

    D_1(t,y) = delta[t,y];  D_j(t,y) = log_node[t,y] + the j-th largest D_i(t-1,yp) + transition(yp,y)
    score[s,j] = the j-th largest of all D_i(T-1,y)
    D_j(t,y) needs D_1, .., D_i(t-1,yp) where its predecessor is at rank i: a chain of lists backwards, which
    ends where a list is long enough. A list is made longer by two entries of its heap at most.

    Arguments:
        log_node : (n, L)
        delta : (n, L), from ``viterbi_scores``
        tables : a `KBestTables`
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        path : int32 (n, k) as [token, rank], 0 where there are fewer
        score : (S, k), falling, -inf where there are fewer
        found : int64 (S,), labellings with a score above -inf, k at most, 1 for an empty sequence, of score 0
        counters : int64 (3,), added to: entries made, label pairs looked at backwards, steps by which a list
            grew
    Allocates (longest T) L numbers and 6 an entry: at most 3 T entries for one more labelling, fewer as a
    rule.
    Cost: for each labelling at most T columns of L label pairs and T heap operations.
    Source: Jimenez and Marzal (1999), the recursive enumeration algorithm; Huang and Chiang (2005), alg. 3.
    """
    L, longest = log_node.shape[1], 0
    for s in range(found.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    column = np.empty(L)
    head, chain = np.empty((longest + 1, L), np.int64), np.empty(longest + 1, np.int64)
    lattice = (log_node, tables, edge_class, delta, head, column)
    pool = (np.empty((0, 2)), np.empty((0, 4), np.int64))
    size = np.zeros(3, np.int64)
    path[:] = 0
    score[:] = -np.inf
    for s in range(found.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        size[0], found[s] = 0, 0
        for t in range(hi - lo + 1):
            for y in range(L):
                head[t, y] = END
        if lo == hi:
            score[s, 0], found[s] = 0.0, 1
            continue
        if delta[hi - 1, _largest(delta, hi - 1)] == -np.inf:
            continue
        e = END
        for rank in range(score.shape[1]):
            pool = _room(3 * (hi - lo) + 3, size[0], pool)
            if rank == 0:
                e = _first(lo, hi, hi - lo, 0, lattice, pool, size)
            else:
                e = _extend(lo, hi, e, lattice, pool, size, chain)
            if e == END:
                break
            _write_path(lo, hi, e, rank, lattice, pool, size, path)
            score[s, rank] = pool[0][e, SCORE]
            found[s] = rank + 1
        counters[0] += size[0]
    counters[1] += size[1]
    counters[2] += size[2]


class KBestTables(NamedTuple):
    """Transitions as `kbest_many` reads them: a table, or 0 but for stored pairs.
    The arrays of the other kind are empty, so that both are one type, and are compiled once.
    """

    log_edge_t: np.ndarray  # (K, L, L) as [class, next, previous], or (0, 0, 0): stored pairs
    group: np.ndarray  # int32 (L,), this and the next two as in `DefaultScores`
    member_ptr: np.ndarray
    member: np.ndarray
    column_ptr: np.ndarray  # int64 (K L + 1,): stored pairs by class and next label
    column_prev: np.ndarray  # int32
    column_score: np.ndarray


def dense_search(log_edge, n_tokens):
    """f(log_node, edge_class, seq_ptr, path, score, found, counters): `kbest_many` with a table
    log_edge (K, L, L). Labels that cannot win are left out of Viterbi where n_tokens repay it.
    """
    log_edge_t = np.ascontiguousarray(log_edge.transpose(0, 2, 1))
    ptr, label = np.zeros(1, np.int64), np.zeros(0, np.int32)
    tables = KBestTables(log_edge_t, label, ptr, label, ptr, label, np.zeros(0))
    bound, reach = bounds_of_losers(log_edge, log_edge_t, n_tokens)

    def search(log_node, edge_class, seq_ptr, *out):
        delta = np.empty(log_node.shape)
        viterbi_scores(log_node, log_edge, bound, reach, edge_class, seq_ptr, delta)
        kbest_many(log_node, delta, tables, edge_class, seq_ptr, *out)

    return search


def stored_search(scores, n_classes):
    """`dense_search` with `DefaultScores`."""
    n_labels, idle = len(scores.group), SimpleQueue()
    k, cell = np.divmod(owners(scores.row_ptr), max(1, len(scores.member)))
    column = k * n_labels + scores.next_label
    order = np.argsort(column, kind="stable")
    column_ptr = offsets(np.bincount(column, minlength=n_classes * n_labels))
    columns = column_ptr, scores.member[cell[order]], scores.score[order]
    groups = scores.group, scores.member_ptr, scores.member
    tables = KBestTables(np.zeros((0, 0, 0)), *groups, *columns)

    def search(log_node, edge_class, seq_ptr, *out):
        delta, work = np.empty(log_node.shape), queued_or_new(idle, partial(default_work, scores))
        viterbi_scores_stored(log_node, scores, work, edge_class, seq_ptr, delta)
        idle.put(work)
        kbest_many(log_node, delta, tables, edge_class, seq_ptr, *out)

    return search


class KBest(NamedTuple):
    """The best labellings of N tokens, S sequences: of rank 0 to k-1, or fewer if no sequence has k."""

    path: np.ndarray  # int32 (N, k), 0 where there are fewer
    score: np.ndarray  # (S, k) in nats, falling, -inf where there are fewer
    log_proba: np.ndarray  # (S, k): score - log Z
    found: np.ndarray  # int64 (S,): how many there are, k at most


def kbest(corpus, features, w, constraints=None, k=10, n_threads=1, form="auto"):
    """`KBest`: the k most probable labellings of every sequence that the constraints allow, or all there are.

    k : at least 1.
    form : "dense", a table of all label pairs; "default", the stored pairs; or "auto": as `inference.decode`
        chooses. Both find the same bits, but for the rounding of log Z.
    Rank 0 is the path of `inference.decode`.
    Raises ValueError for another k or form, and otherwise as `inference` does.
    """
    k = rank_limit(k, corpus, features.n_labels)
    check_tables(one_of("form", form, FORMS), corpus.n_classes, features.n_labels)
    name = decoding_form(form, corpus, features, w, constraints)
    stored = name in ("default", "sparse")
    transitions = default_scores if stored else table_edges
    # ValueError for a sequence without a path
    log_z = inference.log_partition(corpus, features, w, constraints, n_threads)
    model = inference.ready_model(corpus, features, w, constraints, transitions, False, padding=not stored)
    if stored:
        search = stored_search(model.edges, corpus.n_classes)
    else:
        search = dense_search(model.edges.log_edge, corpus.n_tokens)
    scores = partial(inference.stretch_scores, corpus, model)
    path, score, found = ranked_paths(corpus, features.n_labels, scores, search, k, n_threads)
    log_proba = score - log_z[:, None]
    for i in large_sequences(corpus, features, w):
        chain, tokens = log_chain(i, corpus, features, w, constraints), slice(*corpus.seq_ptr[i : i + 2])
        if chain.off:  # rounding may hide which of two close labellings is better
            refuse(i, np.spacing(np.abs(score[i, 0])))
        for rank in range(found[i]):
            log_proba[i, rank] = path_log_proba(i, chain, path[tokens, rank])
    return KBest(path, score, log_proba, found)


def ranked_paths(corpus, n_labels, scores, search, k, n_threads=1):
    """(path int32 (N, k), score (S, k), found int64 (S,)) by `dense_search` or `stored_search`; scores: see
    `inference.in_stretches`.
    """
    path, score = np.empty((corpus.n_tokens, k), np.int32), np.empty((corpus.n_sequences, k))
    found = np.empty(corpus.n_sequences, np.int64)

    def call(log_node, edge_class, seq_ptr, sequences, tokens):
        out = path[tokens], score[sequences], found[sequences], np.zeros(3, np.int64)
        search(log_node, edge_class, seq_ptr, *out)

    inference.in_stretches(corpus, n_labels, scores, call, n_threads)
    return path, score, found


def rank_limit(k, corpus, n_labels):
    """k, or how many labellings the longest sequence has, if they are fewer; ValueError for a bad k."""
    return min(whole("k", k, 1), n_labels ** min(corpus.longest, 63))
