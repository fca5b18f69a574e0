"""What blockwise coordinate descent keeps: lattices of all sequences, potentials, work arrays. Built once,
changed in place by kernels.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.potentials import padded, padded_bounds
from crfbook.data.corpus import offsets, owners
from crfbook.learners.coordinate.index import Blocks
from crfbook.learners.coordinate.lattice import BEHIND, CHANGED
from crfbook.learners.coordinate.pools import Tables, Weights, make_lists
from crfbook.learners.coordinate.shared_rows import lattice_rows, node_rows

TABLE_BYTES = (
    1 << 28
)  # transition tables of classes: whole ones beside lists, or all of them for a quasi-Newton step
ROWS = 64  # tokens whose expected counts are added up at once
DENSE_SHARE = 0.25  # of L^2: a longer list costs more than a whole table


class Chains(NamedTuple):
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


class Existing(NamedTuple):
    """Weights that exist, as in a FeatureSet; all arrays are empty where all exist virtually."""

    node_ptr: np.ndarray  # int64 (A+1,)
    node_label: np.ndarray  # int32
    edge_ptr: np.ndarray  # int64 (B+1,)
    edge_prev: np.ndarray  # int32
    edge_next: np.ndarray  # int32


class Rule(NamedTuple):
    """Numbers that steer a visit."""

    c1: float
    c2: float
    factor: float  # of the curvatures, where the rule is not adaptive
    step: int  # ADAPTIVE, FIXED ... of step.py
    repeats: int  # 1: curvatures count how often a symbol occurs in a sequence
    exact: int  # 1: exact second derivatives
    frozen: int  # 1: zeros stay zeros
    screening: int
    measure: int  # 1: nothing moves
    base_holds: int  # 1: the base table holds edge attribute 0
    dense_above: int  # entries of a list
    n_labels: int


class State(NamedTuple):
    """Everything a visit reads and changes."""

    blocks: Blocks
    chains: Chains
    tables: Tables
    weights: Weights
    exist: Existing
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


def make_chains(corpus, n_labels, constraints):
    """`Chains` of a corpus; nothing is good yet."""
    n, width = corpus.n_tokens, padded(n_labels)
    bounds, sets = padded_bounds(constraints, n_labels), len(corpus.label_set) > 0
    row = np.zeros((n, 3), np.int64)
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
    return Chains(
        corpus.seq_ptr,
        corpus.weights,
        corpus.labels,
        corpus.edge_class,
        corpus.attr_ptr,
        corpus.attr_idx,
        corpus.attr_val,
        bound,
        bound_row,
        corpus.sequence.astype(np.int32),
        node_row,
        alpha_row,
        beta_row,
        node_token,
        np.zeros((len(node_token), width)),
        np.zeros((n_alpha, width)),
        beta,
        np.zeros((2, len(node_token))),
        np.zeros((2, n_alpha)),
        beta_note,
        np.zeros(n_alpha, np.int64),
        np.zeros(n_beta, np.int64),
        np.zeros((4, corpus.n_sequences), np.int64),
        np.zeros(1, np.int64),
        np.zeros(corpus.n_sequences),
    )


def forget(chains):
    """No alpha, beta or log Z is good any more."""
    chains.clock[0] += 1
    chains.place[:] = 0
    chains.place[BEHIND] = np.maximum(np.diff(chains.seq_ptr) - 1, 0)
    chains.place[CHANGED] = chains.clock[0]


def make_tables(corpus, n_labels, edge_kept, constraints):
    """(`Tables` of zero weights, `Weights.base_log` of them, 1 if the base holds edge attribute 0):
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
    tables = Tables(
        np.zeros((width, width)),
        np.zeros((width, width)),
        np.zeros(3),
        make_lists(np.zeros(n_classes), np.zeros(0), np.zeros(0)),
        np.full(n_classes, -1, np.int32),
        np.empty((n_tables, width, width)),
        free,
        np.zeros(n_classes),
        class_ptr,
        corpus.class_attr[kept],
    )
    return tables, base_log, int(base_holds)
