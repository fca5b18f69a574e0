"""What kernels of active sets read and write beside potentials: rules, work arrays, extremes of columns."""

from numbers import Real
from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook.chain.sparse.potentials import DefaultEdges, default_edges

EPS = 1e-3  # the paper's, and the default


class ActiveRule(NamedTuple):
    """Which labels are active."""

    least_share: float  # eps: those with alpha >= eps; 0: all
    lost_mass: float  # >= 0: the smallest set that loses at most this; -1: eps alone counts
    outside: int  # 1: the default potential for all pairs of other labels; 0: no potential


class ActiveWork(NamedTuple):
    """What one thread writes; T steps of the longest sequence."""

    alpha: np.ndarray  # (T, L)
    scale: np.ndarray  # (T,)
    v: np.ndarray  # (L,)
    beta: np.ndarray  # (L,)
    factor: np.ndarray  # (L,)
    aside: np.ndarray  # (L,)
    mark: np.ndarray  # int64 (L,): the last token that a label was active at


class PairWeights(NamedTuple):
    """Where the scores of stored pairs come from while the weights change all the time: scale w[weight]."""

    weight: np.ndarray  # int64 (P,): weight of each stored pair
    scale: np.ndarray  # (1,)
    step: np.ndarray  # int64 (1,): number of the present weights
    known: np.ndarray  # int64 (C,): of the weights that the pairs of a cell have been taken from


class Extremes(NamedTuple):
    """Of the stored pairs into each label, those that raise it (first row) and those that lower it."""

    largest: np.ndarray  # (2, L): of |gain|
    total: np.ndarray  # (2, L): sum of |gain|
    last: np.ndarray  # int32: labels that nothing may follow; no set has them


class ListWork(NamedTuple):
    """What stochastic gradient writes while it visits one sequence after another; T = the longest, C cells, P
    stored pairs.

    In the log form `psi` holds scores and `product` expected counts.
    """

    psi: np.ndarray  # (T, L): scores, then their exp
    p_node: np.ndarray  # (T, L)
    log_z: np.ndarray  # (1,): what exp took away
    flags: np.ndarray  # (1,): 1: the log form is needed
    rows: np.ndarray  # int64 (T+1,): 0, 1, 2, ...
    cells: np.ndarray  # int32 (C,): 0, 1, 2, ...
    edges: DefaultEdges
    product: np.ndarray  # (P,): zeros between visits
    pairs: PairWeights
    rule: ActiveRule
    cell: np.ndarray  # int32 (T C,): active cells
    ptr: np.ndarray  # int64 (T+1,)
    active: ActiveWork


def check_eps(eps):
    """`eps` as a number in [0, 1); ValueError."""
    flag = isinstance(eps, bool | np.bool_)
    if flag or not isinstance(eps, Real) or not 0.0 <= eps < 1.0:
        raise ValueError(f"eps: expected a number from 0 to below 1, got {shown(eps)}")
    return float(eps)


def check_transitions(corpus, features):
    """ValueError where transitions depend on attributes."""
    if (corpus.n_classes, features.n_edge_attrs) != (1, 1):
        raise ValueError(
            "active sets: expected the same transitions at all tokens, got those of "
            f"{corpus.n_classes:,} classes and {features.n_edge_attrs:,} attributes: use exact inference"
        )


def active_work(n_steps, n_labels):
    """`ActiveWork` for sequences of up to n_steps tokens."""
    vectors = np.empty((4, n_labels))
    table, marks = np.empty((n_steps, n_labels)), np.empty(n_labels, np.int64)
    return ActiveWork(table, np.empty(n_steps), *vectors, marks)


def extremes(edges):
    """`Extremes` of a `DefaultEdges`."""
    n_labels, into = len(edges.scores.group), edges.scores.next_label
    largest, total = np.zeros((2, 2, n_labels))
    for side, gain in enumerate((edges.gain, -edges.gain)):
        gain = np.maximum(gain, 0.0)
        np.maximum.at(largest[side], into, gain)
        total[side] = np.bincount(into, gain, minlength=n_labels)
    last = np.setdiff1d(np.arange(n_labels), edges.scores.member).astype(np.int32)
    return Extremes(largest, total, last)


def list_work(corpus, layout, lists, eps):
    """`ListWork` for the sequences of a corpus, from its `lay_out_lists`."""
    scores, longest = lists.scores, max(1, corpus.longest)
    n_labels, n_cells = len(scores.group), len(scores.member)
    weight = len(lists.node_label) + scores.score.astype(np.int64) - 1
    edges = default_edges(scores._replace(score=np.zeros(len(weight))), layout.bounds)
    psi, p_node = np.zeros((2, longest, n_labels))
    numbers = np.arange(longest + 1), np.arange(n_cells, dtype=np.int32)
    single = np.zeros(1), np.zeros(1, np.uint8)
    pairs = PairWeights(weight, np.zeros(1), np.zeros(1, np.int64), np.full(n_cells, -1))
    sets = np.zeros(longest * n_cells, np.int32), np.zeros(longest + 1, np.int64)
    found = psi, p_node, *single, *numbers, edges, np.zeros(len(weight)), pairs
    return ListWork(*found, ActiveRule(float(eps), -1.0, 1), *sets, active_work(longest, n_labels))
