"""Arrays of blockwise coordinate descent, made once and changed in place: weights, transition tables, forward
and backward vectors of all sequences (lattices), work arrays.

Of 10^8 virtual weights only the active ones are stored, and the tables that follow from them.
Edge attribute b has a packed list of its active (previous, next, weight); each edge class a packed list of
the entries in which its table differs from the base table of plain transitions. A list that exceeds its place
moves to the end of its pool, and `make_room` packs the pools again. No array has the size of the virtual
weights. `Sparse` is the form of weights as arguments and results.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.packing import padded, padded_bounds
from crfbook.data.corpus import offsets, owners, stretches
from crfbook.data.features import FeatureSet, find, select
from crfbook.learners.coordinate.lattice import BEHIND, CHANGED, ROOM, SIZE, START
from crfbook.learners.coordinate.token_index import Blocks, lattice_rows, node_rows

# transition tables of classes: whole ones beside lists, or all of them for a quasi-Newton step
TABLE_BYTES = 1 << 28
ROWS = 64  # tokens whose expected counts are added up at once
DENSE_SHARE = 0.25  # of L^2: a longer list costs more than a whole table


class Lists(NamedTuple):
    """R packed lists in one pool."""

    # int64 (3, R+1): start, size and capacity of each list; the pool is free from row[0, R] on
    row: np.ndarray
    cell: np.ndarray  # uint32 (n_pool,): unsigned, so that kernels need no test for indices below 0
    value: np.ndarray  # float64 (n_pool,)


class Weights(NamedTuple):
    """All weights, over A node attributes, B edge attributes, M padded labels."""

    mu: np.ndarray  # (A, M): of node attributes
    # (M, M): of edge attribute 0 where the base table holds it, see `make_tables`;
    # -inf: forbidden, and padding
    base_log: np.ndarray
    lists: Lists  # of edge attribute b: its active weights


class SharedTables(NamedTuple):
    """Transition potentials of K edge classes over M padded labels:
    base[yp, y] + (value of the class's list at yp, y).
    """

    base: np.ndarray  # (M, M): exp(Weights.base_log - level[0])
    base_t: np.ndarray  # (M, M): its transpose
    # (3,): largest entry of base_log, the spread of its finite ones, L if all L * L are finite and equal
    level: np.ndarray
    lists: Lists  # of class k: base * (exp(s) - 1), s the sum of the weights of its other edge attributes
    slot: np.ndarray  # int32 (K,): whole table of a class with a long list, -1: it has none
    whole: np.ndarray  # (D, M, M): base * exp(s)
    free: np.ndarray  # int32 (D+1,): whole tables not in use are free[1:1+free[0]]
    spread: np.ndarray  # (K,): twice the largest |s|
    class_ptr: np.ndarray  # int64 (K+1,)
    class_attr: np.ndarray  # int32: edge attributes of a class, without the one that the base table holds


def make_lists(size, cell, value, more=1 << 10):
    """Lists of these sizes, filled in order, with `more` places free at the end."""
    size = np.asarray(size, np.int64)
    row = np.zeros((3, len(size) + 1), np.int64)
    row[SIZE, :-1] = row[ROOM, :-1] = size
    row[START] = offsets(size)
    return make_room(Lists(row, np.asarray(cell, np.uint32), np.asarray(value, np.float64)), more)


def make_room(lists, more):
    """The same lists, packed (a quarter of slack each), in a pool with at least `more` free places."""
    row, item = np.zeros_like(lists.row), list_items(lists)
    size = lists.row[SIZE, :-1]
    row[SIZE, :-1] = size
    row[ROOM, :-1] = size + size // 4
    row[START] = offsets(row[ROOM, :-1])
    used = int(row[START, -1])
    pool = used + max(int(more), used // 2, 1 << 10)
    cell, value = np.zeros(pool, np.uint32), np.zeros(pool)
    packed = Lists(row, cell, value)
    new = list_items(packed)
    cell[new], value[new] = lists.cell[item], lists.value[item]
    return packed


def list_items(lists):
    """Places in the pool of all entries, list by list."""
    return stretches(lists.row[START, :-1], lists.row[SIZE, :-1])


def holding(member, weights, base_holds):
    """Boolean (n,): which blocks hold a weight other than zero; the one of the base table always.

    member (2, n): node and edge attribute of each block, -1: none; weights: `Weights`.
    """
    a, b = member
    active = (a >= 0) & weights.mu[a].any(axis=1) | (b >= 0) & (weights.lists.row[SIZE, b] > 0)
    return active | (b == 0) if base_holds else active


class Lattices(NamedTuple):
    """S sequences, N tokens, M padded labels."""

    seq_ptr: np.ndarray  # int64 (S+1,)
    weight: np.ndarray  # (S,)
    labels: np.ndarray  # int32 (N,)
    edge_class: np.ndarray  # int32 (N,)
    attr_ptr: np.ndarray  # int64 (N+1,)
    attr_idx: np.ndarray  # int32
    attr_val: np.ndarray  # float64, or (0,): all ones
    bound: np.ndarray  # (R, M): 0, -inf where a label is forbidden, and for padding
    bound_row: np.ndarray  # int32 (N,): the row that holds at a token
    sequence: np.ndarray  # int32 (N,): of a token
    # int32 (N,): rows of psi_node, alpha and beta that hold those of a token: equal ones are kept once
    node_row: np.ndarray
    alpha_row: np.ndarray  # int32 (N,)
    beta_row: np.ndarray  # int32 (N,)
    node_token: np.ndarray  # int32 (C,): a token of each row of psi_node
    psi_node: np.ndarray  # (C, M): exp(node scores - node_max)
    alpha: np.ndarray  # (P, M): sum to one
    beta: np.ndarray  # (Q, M): sum to one; row 0 is that of last tokens, and constant
    node_note: np.ndarray  # (2, C): node_max; largest difference of finite node scores
    # (2, P): what alpha was divided by; logarithm of all that alpha up to here was divided by
    alpha_note: np.ndarray
    beta_note: np.ndarray  # (1, Q): logarithm of all that beta from here on was divided by
    alpha_clock: np.ndarray  # int64 (P,): when this row was computed
    beta_clock: np.ndarray  # int64 (Q,)
    # int64 (4, S): alpha is good for so many positions; beta from this one on; 1: unsafe; when it last
    # changed
    place: np.ndarray
    clock: np.ndarray  # int64 (1,): number of changes so far
    log_z: np.ndarray  # (S,): log Z when it was last computed


class TokenRows(NamedTuple):
    """Tokens whose expected counts are added up at once: R of any class, and R of one class."""

    left: np.ndarray  # (2 R, M): alpha before them
    right: np.ndarray  # (2 R, M): psi_node beta / Z at them
    given: np.ndarray  # (2, 2 R): weights of their sequences, occurrences there
    product: np.ndarray  # (2, M, M)


class LatticeWork(NamedTuple):
    """Work arrays of one thread."""

    right: np.ndarray  # (M,)
    rows: TokenRows
    table: np.ndarray  # (M, M): of one class
    score: np.ndarray  # (M, M): sums of weights, nan between uses
    touched: np.ndarray  # uint32 (M * M,)
    value: np.ndarray  # (M * M,)
    steps: np.ndarray  # int64 (1,): products made


class BlockSums(NamedTuple):
    """Expected counts, curvatures and gold counts of one block."""

    node: np.ndarray  # (3, M)
    edge: np.ndarray  # (3, M, M)


class Move(NamedTuple):
    """The weights of one block that may move, its candidates, and where to:
    n of them at most, M padded labels.
    """

    n: np.ndarray  # int64 (1,): number of candidates, 0 between visits
    cell: np.ndarray  # int32 (n,): yp << SHIFT | y, or -1 - y for a node weight
    number: np.ndarray  # (4, n): old and new weight, gradient of the loss alone, curvature
    old_edge: np.ndarray  # (M, M): old weights of the edge attribute, 0 between visits
    delta_node: np.ndarray  # (M,): new - old, 0 between visits
    delta_edge: np.ndarray  # (M, M): as delta_node
    model: np.ndarray  # (3,): gradient times step, squares of the step by curvature, change of the penalty


class VisitRule(NamedTuple):
    """Numbers that steer a visit."""

    c1: float
    c2: float
    factor: float  # of the curvatures, where the rule is not adaptive
    step: int  # ADAPTIVE, FIXED ... of visit.py
    repeats: int  # 1: curvatures count how often a symbol occurs in a sequence
    exact: int  # 1: exact second derivatives
    frozen: int  # 1: zeros stay zeros
    screening: int
    measure: int  # 1: nothing moves
    base_holds: int  # 1: the base table holds edge attribute 0
    dense_above: int  # entries of a list
    n_labels: int


class VisitArrays(NamedTuple):
    """Everything a visit reads and changes."""

    blocks: Blocks
    lattices: Lattices
    tables: SharedTables
    weights: Weights
    exist: FeatureSet  # the weights that exist; all its arrays are empty where all exist virtually
    # (3, G): step factors of the adaptive rule; bounds of an entry of the gradient; curvatures of the safe
    # rule
    number: np.ndarray
    sums: BlockSums
    move: Move
    log_z: np.ndarray  # (largest number of visits,)
    seen: np.ndarray  # (2,): largest violation, sum of squared ones
    count: np.ndarray  # int64 (3,): sequences visited for gradients, for step rules; blocks screened
    work: LatticeWork


def lattice_work(width):
    n, square = width * width, (width, width)
    left, right = np.zeros((2, 2 * ROWS, width))
    rows = TokenRows(left, right, np.zeros((2, 2 * ROWS)), np.zeros((2, *square)))
    nan, touched, steps = np.full(square, np.nan), np.zeros(n, np.uint32), np.zeros(1, np.int64)
    return LatticeWork(np.zeros(width), rows, np.zeros(square), nan, touched, np.zeros(n), steps)


def block_sums(width):
    return BlockSums(np.zeros((3, width)), np.zeros((3, width, width)))


def no_move(width):
    n, square = width * width + width, (width, width)
    none, cell, number = np.zeros(1, np.int64), np.zeros(n, np.int32), np.zeros((4, n))
    return Move(none, cell, number, np.zeros(square), np.zeros(width), np.zeros(square), np.zeros(3))


def make_lattices(corpus, n_labels, constraints):
    """`Lattices` of a corpus; no vector is valid yet."""
    n, width = corpus.n_sequences, padded(n_labels)
    bounds, sets = padded_bounds(constraints, n_labels), len(corpus.label_set) > 0
    row = np.zeros((corpus.n_tokens, 3), np.int64)
    row[corpus.first, 0] = 1
    row[corpus.last, 1] = 1
    row[:, 2] = corpus.label_set if sets else 0
    kinds, bound_row = np.unique(row, axis=0, return_inverse=True)
    bound = np.tile(bounds.middle, (len(kinds), 1))
    bound[kinds[:, 0] > 0] += bounds.start
    bound[kinds[:, 1] > 0] += bounds.end
    if sets:
        bound += bounds.label_sets[kinds[:, 2]]
    bound_row = bound_row.reshape(-1).astype(np.int32)
    node_row, node_token = node_rows(corpus, bound_row)
    (alpha_row, n_alpha), (beta_row, n_beta) = lattice_rows(corpus, node_row)
    n_beta = max(1, n_beta)
    beta, beta_note = np.zeros((n_beta, width)), np.zeros((1, n_beta))
    beta[0, :n_labels], beta_note[0, 0] = 1.0 / n_labels, np.log(n_labels)
    given = corpus.seq_ptr, corpus.weights, corpus.labels, corpus.edge_class
    given += corpus.attr_ptr, corpus.attr_idx, corpus.attr_val, bound, bound_row
    rows = corpus.sequence.astype(np.int32), node_row, alpha_row, beta_row, node_token
    vectors = np.zeros((len(node_token), width)), np.zeros((n_alpha, width)), beta
    notes = np.zeros((2, len(node_token))), np.zeros((2, n_alpha)), beta_note
    clocks, place = (np.zeros(n_alpha, np.int64), np.zeros(n_beta, np.int64)), np.zeros((4, n), np.int64)
    return Lattices(*given, *rows, *vectors, *notes, *clocks, place, np.zeros(1, np.int64), np.zeros(n))


def forget(lattices):
    """Mark every alpha, beta and log Z as out of date."""
    lattices.clock[0] += 1
    lattices.place[:] = 0
    lattices.place[BEHIND] = np.maximum(np.diff(lattices.seq_ptr) - 1, 0)
    lattices.place[CHANGED] = lattices.clock[0]


def make_tables(corpus, n_labels, edge_kept, constraints):
    """(`SharedTables` of zero weights, `Weights.base_log` of them, 1 if the base holds edge attribute 0):
    it does where every class has it and it is kept.
    """
    base_log, n_classes = padded_bounds(constraints, n_labels).edge, corpus.n_classes
    width = len(base_log)
    used = np.zeros(n_classes, bool)
    used[corpus.edge_class[corpus.inner]] = True
    owner = owners(corpus.class_ptr)
    constant = corpus.class_attr == 0
    base_holds = bool(edge_kept[:1].all() and np.isin(np.flatnonzero(used), owner[constant]).all())
    kept = (
        edge_kept[np.minimum(corpus.class_attr, len(edge_kept) - 1)]
        & (corpus.class_attr < len(edge_kept))
        & used[owner]
    )
    if base_holds:
        kept &= ~constant
    class_ptr = offsets(np.bincount(owner[kept], minlength=n_classes))
    n_tables = int(min(n_classes, max(1, TABLE_BYTES // (8 * width * width))))
    free = np.concatenate([[n_tables], np.arange(n_tables)[::-1]]).astype(np.int32)
    base, base_t = np.zeros((2, width, width))
    lists, slot = make_lists(np.zeros(n_classes), [], []), np.full(n_classes, -1, np.int32)
    whole, spread = np.empty((n_tables, width, width)), np.zeros(n_classes)
    attrs = class_ptr, corpus.class_attr[kept]
    tables = SharedTables(base, base_t, np.zeros(3), lists, slot, whole, free, spread, *attrs)
    return tables, base_log, int(base_holds)


class Sparse(NamedTuple):
    """Active weights: a FeatureSet and its flat weights w (F,)."""

    features: FeatureSet
    w: np.ndarray

    def copy(self):
        """As that of an array: the weights are copied."""
        return self._replace(w=self.w.copy())


def scatter(sparse, features):
    """w (F,) of `features` from active weights; ValueError unless they are among them."""
    w, part = np.zeros(features.n_features), sparse.features
    n, n_node = part.n_node, features.n_node
    for kind, known, some, out, value in (
        ("node", features.node_keys, part.node_keys, w[:n_node], sparse.w[:n]),
        ("edge", features.edge_keys, part.edge_keys, w[n_node:], sparse.w[n:]),
    ):
        at, hit = find(known, some)
        if not hit.all():
            raise ValueError(
                "expected weights of the given features alone, "
                f"got {np.count_nonzero(~hit)} {kind} weights of others"
            )
        out[at] = value
    return w


def active_among(name, sparse, sizes, features=None, edge_kept=None):
    """`Sparse` of the weights of one that are not zero, checked: finite, one for each feature,
    and only of features that exist here.

    sizes: (L, A, B); features: a FeatureSet, or None: all of these sizes, of the edge attributes where
    edge_kept (B,). Raises ValueError that begins with `name`.
    """
    given, w = sparse.features, np.asarray(sparse.w)
    try:
        if w.dtype.kind not in "fiu" or w.shape != (given.n_features,):
            raise ValueError(
                f"expected one weight for each of its {given.n_features} features, got {w.dtype} {w.shape}"
            )
        if not np.isfinite(w).all():
            raise ValueError(f"expected finite weights, got {w[~np.isfinite(w)][0]}")
        active = Sparse(select(given, w != 0), np.ascontiguousarray(w[w != 0], np.float64))
        held = [
            1 + int(np.flatnonzero(np.diff(ptr)).max(initial=-1))
            for ptr in (active.features.node_ptr, active.features.edge_ptr)
        ]
        if given.n_labels != sizes[0] or held[0] > sizes[1] or held[1] > sizes[2]:
            raise ValueError(
                f"expected weights of at most (L, A, B) = {tuple(sizes)}, "
                f"got those of {(given.n_labels, *held)}"
            )
        if features is not None:
            scatter(active, features)
        elif not edge_kept[np.flatnonzero(np.diff(active.features.edge_ptr))].all():
            raise ValueError("expected no weights of edge attributes that are not among edge_attrs")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return active


class ModelSizes(NamedTuple):
    """Of a model whose weights all exist, virtually."""

    n_labels: int
    n_attrs: int
    n_edge_attrs: int
