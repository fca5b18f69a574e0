"""Weights that grow: the active weights of 10^8 virtual candidates,
and the transition tables that follow from them.

Edge attribute b has a packed list of its active (previous, next, weight); each edge class a packed list of
the entries in which its table differs from the base table of plain transitions. Lists that outgrow their
place move to the end of their pool; `make_room` packs the pools again.
Nothing here has the size of the candidates.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.corpus import offsets, stretches
from crfbook.learners.coordinate.tables import ROOM, SIZE, START


class Lists(NamedTuple):
    """R packed lists in one pool."""

    row: np.ndarray  # int64 (3, R+1): start, size and room of each list; row[0, R]: what lies behind is free
    cell: np.ndarray  # uint32 (n_pool,): not signed, so that kernels need not look for indices below 0
    value: np.ndarray  # float64 (n_pool,)


class Weights(NamedTuple):
    """All weights, over A node attributes, B edge attributes, M padded labels."""

    mu: np.ndarray  # (A, M): of node attributes
    # (M, M): of edge attribute 0 where the base table holds it, see `make_tables`;
    # -inf: forbidden, and padding
    base_log: np.ndarray
    lists: Lists  # of edge attribute b: its active weights


class Tables(NamedTuple):
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
