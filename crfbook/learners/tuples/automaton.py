"""Label tuples with weights, and the automaton that finds them along a path: contexts as states,
exceptions as arcs.

    score(y) += sum_t sum over edge attributes b of token t and tuples z of
                nu[b, z] 1{(y_{t-m+1}, ..., y_t) = z},   m = 3 or 4

A state is a context: a single label, or a proper prefix (of two labels or more) of a tuple. A path is in the
longest state that its labels end in; reading y leads to the longest state that q + y ends in. Prefixes of
prefixes are states too, so this is the automaton of Aho and Corasick (1975), and every tuple is met in a
state that ends in all its labels but the last. Contexts that no tuple needs do not exist, and cost nothing.
(For CRFs: Ye, Lee, Chieu and Wu (2009); Cuong et al. (2014).)
"""

from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook.chain.packing import padded
from crfbook.data.corpus import offsets, owners, ragged_index


class Tuples(NamedTuple):
    """G label tuples, each with the edge attribute that must hold at its last token; rows differ."""

    attr: np.ndarray  # int32 (G,): edge attribute; 0 is the constant one
    labels: np.ndarray  # int32 (G, D): oldest first; a tuple of three in rows of four has -1 before it


class Arcs(NamedTuple):
    """States and arcs (Q states, the first M single labels; E arcs in P patterns,
    each in the order of its states).
    """

    backoff: np.ndarray  # int32 (Q,): longest proper suffix that is a state; -1 at single labels
    last: np.ndarray  # uint32 (Q,): newest label
    prev: np.ndarray  # uint32 (Q,): the one before it; 0 at single labels
    child_ptr: np.ndarray  # int64 (Q+1,): those that back off to q, its children: child_ptr[q]:child_ptr[q+1]
    pattern: np.ndarray  # int32 (K,): arcs of an edge class
    # int64 (P+1,): arcs of pattern p: first those of states with children (I at most), in their order,
    pattern_ptr: np.ndarray
    leaf_ptr: np.ndarray  # int64 (P,): and from here on those of all other states
    arc_lo: np.ndarray  # int64 (P, Q): arcs of pattern p at state q are arc_lo[p, q]:arc_hi[p, q]
    arc_hi: np.ndarray  # int64 (P, Q)
    arc_state: np.ndarray  # uint32 (E,): the state it leaves
    arc_label: np.ndarray  # uint32 (E,): the label that is read
    # uint32 (E,): the state it leads to; Q + d for pair d of the pattern, which leads to a single label
    arc_dest: np.ndarray
    # uint32 (E,): the arc of the same label at the back-off, from the pattern's first; I at single labels
    arc_parent: np.ndarray
    pair_ptr: np.ndarray  # int64 (P+1,): pairs (yp, y) with an arc that leads to y, and to no longer state
    pair_prev: np.ndarray  # uint32
    pair_next: np.ndarray  # uint32


class ArcPotentials(NamedTuple):
    """What the scaled form needs of the weights: factors, not scores."""

    psi_edge: np.ndarray  # (K, M, M) [class, previous, next], as in `Edges`
    psi_plain: np.ndarray  # (K, M, M): psi_edge, but 0 where a single label has an arc
    psi_plain_t: np.ndarray  # (K, M, M): its transposes
    factor: np.ndarray  # (E,): exponential of log_factor


class ArcScores(NamedTuple):
    """Tuple weights on an `Arcs`, beside the `Edges` of its transitions."""

    log_factor: np.ndarray  # (E,): sum of the weights of all tuples that an arc completes
    potentials: ArcPotentials
    spread: float  # largest difference of finite scores of a step, its node score left out


class Lanes(NamedTuple):
    """W sequences of a batch side by side, one a lane; T tokens, or more, in the longest."""

    length: np.ndarray  # int64 (W,): tokens; 0 in a lane without sequence, or of one that needs the log form
    weight: np.ndarray  # (W,)
    rows: np.ndarray  # int64 (T, W): row of the batch
    classes: np.ndarray  # int32 (T, W): edge class
    psi_node: np.ndarray  # (T, M, W): 0 where a sequence has ended


class Masses(NamedTuple):
    """What tuple_forward leaves for tuple_backward (I inner arcs, D pairs at most)."""

    alpha: np.ndarray  # (T, Q + D, W): of states, scaled; behind them what arrives at pairs, not scaled
    up: np.ndarray  # (T, Q, W): of all paths that end in a state, those in longer states too
    scale: np.ndarray  # (T, W)
    rest: np.ndarray  # (T, I+1, W): what the arcs of token t+1 carry; the last place belongs to no arc


class TupleCounts(NamedTuple):
    """Expected counts, times the weights of the sequences."""

    p_node: np.ndarray  # (n, M): of the rows of a batch
    edge_sum: np.ndarray  # (K, M, M) [class, previous, next]
    arc_sum: np.ndarray  # (E,): of paths that use an arc itself, not one that backs off to it


class TupleWork(NamedTuple):
    """Work arrays of tuple_forward and tuple_backward, for one token of W lanes."""

    mask: np.ndarray  # (W,)
    beta: np.ndarray  # (Q, W)
    more: np.ndarray  # (Q, W): what a state gains beyond its back-off
    v: np.ndarray  # (Q + D, W): what lies beyond each destination
    gain: np.ndarray  # (I+1, W): of inner arcs; the last place belongs to no arc
    p_label: np.ndarray  # (M, W)
    v_row: np.ndarray  # (M,): of one lane, as is the next
    row: np.ndarray  # (M,)
    stamp: np.ndarray  # int64 (M+1,): a counter in its last place


def lane_arrays(arcs, longest, width, n_lanes):
    """(`Lanes`, `Masses`, `TupleWork`) of one thread, for sequences of up to `longest` tokens, M = width
    padded labels.
    """
    T, M, W, Q, zeros = longest, width, n_lanes, len(arcs.last), np.zeros
    I, D = int((arcs.leaf_ptr - arcs.pattern_ptr[:-1]).max()), int(np.diff(arcs.pair_ptr).max())
    tokens = zeros((T, W), np.int64), zeros((T, W), np.int32), zeros((T, M, W))
    masses = Masses(zeros((T, Q + D, W)), zeros((T, Q, W)), zeros((T, W)), zeros((T, I + 1, W)))
    tables = (zeros((n, W)) for n in (Q, Q, Q + D, I + 1, M))
    work = TupleWork(zeros(W), *tables, zeros(M), zeros(M), zeros(M + 1, np.int64))
    return Lanes(zeros(W, np.int64), zeros(W), *tokens), masses, work


def check_tuples(tuples, n_labels):
    """`Tuples` as int32 arrays; ValueError, naming the first one,
    for a row that no labels 0..n_labels-1 can match.
    """
    attr, labels = np.asarray(tuples.attr), np.asarray(tuples.labels)
    if labels.ndim != 2 or labels.shape[1] not in (3, 4) or attr.shape != labels.shape[:1]:
        raise ValueError(
            "tuples: expected attr (G,) and labels (G, 3) or (G, 4), "
            f"got shapes {attr.shape} and {labels.shape}"
        )
    if labels.size and (attr.dtype.kind not in "iu" or labels.dtype.kind not in "iu"):
        raise ValueError(f"tuples: expected integers, got dtypes {attr.dtype} and {labels.dtype}")
    bad = (attr < 0) | (labels < -1).any(axis=1) | (labels >= n_labels).any(axis=1)
    bad |= (labels[:, -3:] < 0).any(axis=1)
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"tuple {i}: expected an edge attribute >= 0 and three or four labels in 0..{n_labels - 1}, "
            f"with -1 only before three, got {attr[i]} and {labels[i].tolist()}"
        )
    return Tuples(attr.astype(np.int32), labels.astype(np.int32))


class Automaton:
    """The states and arcs of `tuples` for a corpus with these edge classes.
    Raises ValueError as `check_tuples` does.

    arcs : Arcs. n_states : single labels and longer contexts. contexts : list of the longer ones,
        tuples of labels.
    Classes whose tokens meet the same tuples share a pattern of arcs.
    """

    def __init__(self, tuples, n_labels, class_ptr, class_attr):
        tuples = check_tuples(tuples, n_labels)
        self.base, self.width = n_labels + 1, padded(n_labels)
        digits = tuples.labels.astype(np.int64) + 1
        # a tuple as one number to the base L + 1, newest label last, no digit 0
        self.code = np.zeros(len(digits), np.int64)
        for column in digits.T:
            self.code = self.code * self.base + column
        self._find_states()
        self.n_states = n_labels + len(self.states)
        self.contexts = [self._spell(code) for code in self.ordered.tolist()]
        self._find_arcs(tuples, class_ptr, class_attr)

    def _find_states(self):
        """states: sorted codes of the contexts of two labels or more;
        their places in the order of the kernels.
        """
        prefixes, prefix = [np.zeros(0, np.int64)], self.code // self.base
        while len(prefix):
            prefix = np.unique(prefix[prefix >= self.base])
            prefixes.append(prefix)
            prefix = prefix // self.base
        self.states = np.unique(np.concatenate(prefixes))
        self.place = np.full(len(self.states), -1)
        backoff = self._longest_suffix(self.states, proper=True)
        n, levels, parents = self.width, [], [np.full(self.width, -1)]
        while (self.place < 0).any():  # level by level, so that states with the same back-off are neighbours
            known = backoff < self.base
            known[~known] = self.place[np.searchsorted(self.states, backoff[~known])] >= 0
            new = np.flatnonzero(known & (self.place < 0))
            parent = self._state(backoff[new])
            order = np.lexsort((self.states[new], parent))
            levels.append(self.states[new[order]])
            parents.append(parent[order])
            self.place[new[order]] = n + np.arange(len(new))
            n += len(new)
        self.ordered = np.concatenate([np.zeros(0, np.int64), *levels])
        self.backoff = np.concatenate(parents).astype(np.int32)
        self.last = np.concatenate([np.arange(self.width), self.ordered % self.base - 1])
        self.n_children = np.bincount(self.backoff[self.width :], minlength=len(self.last))
        # of the states in the order of the arcs: those with children first
        self.rank = np.empty(len(self.last), np.int64)
        self.rank[np.argsort(self.n_children == 0, kind="stable")] = np.arange(len(self.last))

    def _longest_suffix(self, code, proper):
        """The code of the longest state that each ends in; `proper`: not itself."""
        found = code % self.base
        power = self.base**2
        while power <= max(self.states.max(initial=0), self.base) * self.base:
            suffix = code % power
            at = np.minimum(np.searchsorted(self.states, suffix), max(0, len(self.states) - 1))
            hit = self.states[at] == suffix if len(self.states) else np.zeros(len(code), bool)
            found = np.where(hit & (~(suffix == code) if proper else True), suffix, found)
            power *= self.base
        return found

    def _state(self, code):
        """Numbers of the states with these codes."""
        if not len(self.states):
            return code - 1
        at = np.minimum(np.searchsorted(self.states, code), len(self.states) - 1)
        return np.where(code < self.base, code - 1, self.place[at])

    def _spell(self, code):
        labels = []
        while code:
            labels.append(code % self.base - 1)
            code //= self.base
        return tuple(labels[::-1])

    def _closed(self, key):
        """Keys (context, label) of arcs, and of the arcs of the same label at all their back-offs."""
        keys = [key]
        while len(key):
            key = key[key // self.base >= self.base]
            key = np.unique(self._parent(key))
            keys.append(key)
        return np.unique(np.concatenate(keys))

    def _arc_place(self, key):
        """Numbers that rise as the arcs of a pattern do: by rank of their state, then by label."""
        return self.rank[self._state(key // self.base)] * self.base + key % self.base

    def _parent(self, key):
        return self._longest_suffix(key // self.base, proper=True) * self.base + key % self.base

    def _find_arcs(self, tuples, class_ptr, class_attr):
        """The arcs of every pattern; entries: which tuples (entry_tuple) add their weight to which arc
        (entry_arc).
        """
        made, pattern, parts = {}, [], []
        for k in range(len(class_ptr) - 1):
            attrs = np.intersect1d(class_attr[class_ptr[k] : class_ptr[k + 1]], tuples.attr)
            if attrs.tobytes() not in made:
                made[attrs.tobytes()] = len(parts)
                here = np.flatnonzero(np.isin(tuples.attr, attrs))
                codes = self.code[here]
                parts.append((*self._make_pattern(np.concatenate([self.states, codes]), codes), here))
            pattern.append(made[attrs.tobytes()])
        n_arcs = offsets([len(part[0]) for part in parts])
        state, label, dest, parent, at, here = (list(column) for column in zip(*parts, strict=True))
        has_children = self.n_children > 0
        n_inner = np.array([int(has_children[q].sum()) for q in state])
        begin, ranks = n_arcs[:-1].tolist(), [self.rank[q] for q in state]
        lo, hi = (
            np.array([np.searchsorted(of, self.rank, side) + n for of, n in zip(ranks, begin, strict=True)])
            for side in ("left", "right")
        )
        self.arc_parent = np.concatenate(
            [np.where(up < 0, -1, up + n) for up, n in zip(parent, begin, strict=True)]
        )
        self.entry_tuple = np.concatenate(here)
        self.entry_arc = np.concatenate([arc + n for arc, n in zip(at, begin, strict=True)])
        Q, I = len(self.last), n_inner.max()
        self.single = [
            (self.last[q[up < 0]], y[up < 0]) for q, y, up in zip(state, label, parent, strict=True)
        ]
        pairs = [
            tuple(x[(up < 0) & (d >= Q)] for x in (self.last[q], y))
            for q, y, d, up in zip(state, label, dest, parent, strict=True)
        ]
        before = np.concatenate([np.zeros(self.width, np.int64), self.ordered // self.base % self.base - 1])
        states = self.backoff, _narrow([self.last]), _narrow([before]), offsets(self.n_children) + self.width
        patterns = np.array(pattern, np.int32), n_arcs, n_arcs[:-1] + n_inner, lo, hi
        arcs = state, label, dest, [np.where(up < 0, I, up) for up in parent]
        pair_ptr, pair_labels = offsets([len(yp) for yp, _ in pairs]), zip(*pairs, strict=True)
        self.arcs = Arcs(*states, *patterns, *map(_narrow, arcs), pair_ptr, *map(_narrow, pair_labels))
        depth = np.zeros(len(self.arc_parent), np.int64)
        for _ in range(4):
            depth = np.where(self.arc_parent < 0, 0, depth[self.arc_parent] + 1)
        self.levels = [np.flatnonzero(depth == d) for d in range(1, depth.max(initial=0) + 1)]

    def _make_pattern(self, key, codes):
        """(state, label, dest, parent) of the arcs with these keys and their back-offs; arcs of `codes`."""
        Q, key = len(self.last), self._closed(key)
        key = key[np.argsort(self._arc_place(key))]
        places, state, label = self._arc_place(key), self._state(key // self.base), key % self.base - 1
        single = state < self.width
        parent = np.full(len(key), -1)
        parent[~single] = np.searchsorted(places, self._arc_place(self._parent(key[~single])))
        dest = self._state(self._longest_suffix(key, proper=False))
        root = np.arange(len(key))
        for _ in range(4):
            root = np.where(parent[root] < 0, root, parent[root])
        to_pair = dest < self.width  # such an arc leads to the pair's place, which all arcs of the pair share
        dest = np.where(to_pair, Q + (np.cumsum(to_pair & single) - 1)[root], dest)
        return state, label, dest, parent, np.searchsorted(places, self._arc_place(codes))

    def scores(self, edges, nu):
        """`ArcScores` of the tuple weights nu (G,) beside these `Edges`."""
        # no entries: integers
        log_factor = np.bincount(self.entry_arc, nu[self.entry_tuple], len(self.arc_parent)).astype(
            np.float64
        )
        for level in self.levels:
            log_factor[level] += log_factor[self.arc_parent[level]]
        psi_plain = edges.psi_edge.copy()
        for k, p in enumerate(self.arcs.pattern):
            psi_plain[k][self.single[p]] = 0.0
        psi_plain_t = np.ascontiguousarray(psi_plain.transpose(0, 2, 1))
        spread = log_factor.max(initial=0.0) - log_factor.min(initial=0.0)
        with np.errstate(over="ignore"):
            potentials = ArcPotentials(edges.psi_edge, psi_plain, psi_plain_t, np.exp(log_factor))
        return ArcScores(log_factor, potentials, float(edges.edge_spread[0] + spread))

    def counts(self, arc_sum):
        """Expected counts of the tuples (G,), from the sums (E,) of tuple_backward, which are changed."""
        for level in self.levels[::-1]:
            np.add.at(arc_sum, self.arc_parent[level], arc_sum[level])
        return np.bincount(self.entry_tuple, arc_sum[self.entry_arc], len(self.code))


def _narrow(parts):
    """What kernels use as an index: not signed, so that they need not look for indices below 0."""
    return np.concatenate(parts).astype(np.uint32)


def tuple_occurrences(corpus, order, edge_attrs=(0,)):
    """(Tuples, count (G,)): the label tuples of 3 to order + 1 labels seen with these edge attributes,
    and how often (weighted).

    Tuples with an unknown label are none. Raises ValueError for another order,
    and edge attributes that are not integers >= 0.
    """
    wanted_attrs = np.asarray(edge_attrs)
    if wanted_attrs.size and (wanted_attrs.dtype.kind not in "iu" or wanted_attrs.min() < 0):
        raise ValueError(f"edge_attrs: expected integers >= 0, got {shown(edge_attrs)}")
    if not isinstance(order, (int, np.integer)) or order not in (2, 3):
        raise ValueError(
            f"order: expected 2 (label triples) or 3 (triples and quadruples), got {shown(order)}"
        )
    base = int(corpus.labels.max(initial=0)) + 2
    position, weight = corpus.position, corpus.token_weights
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0)]
    for size in range(3, order + 2):
        token = np.flatnonzero(position >= size - 1)
        for back in range(size):
            token = token[corpus.labels[token - back] >= 0]
        code = sum((corpus.labels[token - back].astype(np.int64) + 1) * base**back for back in range(size))
        items, ptr = ragged_index(corpus.class_ptr, corpus.edge_class[token])
        owner = owners(ptr)
        attr = corpus.class_attr[items].astype(np.int64)
        wanted = np.isin(attr, wanted_attrs)
        key, inverse = np.unique(attr[wanted] * base**4 + code[owner[wanted]], return_inverse=True)
        keys.append(key)
        counts.append(np.bincount(inverse, weight[token][owner[wanted]], minlength=len(key)))
    key = np.concatenate(keys)
    code = key % base**4
    labels = np.stack([code // base**back % base - 1 for back in range(order, -1, -1)], axis=1)
    return Tuples((key // base**4).astype(np.int32), labels.astype(np.int32)), np.concatenate(counts)
