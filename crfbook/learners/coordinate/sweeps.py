"""Sweeps of blockwise coordinate descent over the arrays that kernels change: their weights, objective and
certificate. visit.py visits a block.
"""

import numpy as np

from crfbook._jit import is_compiled
from crfbook.chain.objective import check_labels, padded
from crfbook.data.corpus import owners
from crfbook.data.features import FeatureSet, find, from_keys
from crfbook.learners.coordinate.arrays import (
    DENSE_SHARE,
    Sparse,
    VisitArrays,
    VisitRule,
    Weights,
    active_among,
    block_sums,
    forget,
    holding,
    lattice_work,
    list_items,
    make_lattices,
    make_lists,
    make_room,
    make_tables,
    no_move,
    scatter,
)
from crfbook.learners.coordinate.lattice import LABEL, SHIFT, SIZE, rebuild_base, rebuild_classes, score_rows
from crfbook.learners.coordinate.token_index import count_bounds, gold_edges, inverted_index
from crfbook.learners.coordinate.visit import (
    ALONE,
    BY_PARTS,
    FACTOR,
    LARGEST,
    SQUARES,
    STEPS,
    VisitByParts,
    visit_blocks,
)
from crfbook.training.interrupts import deliver_signals

STRETCH = 1 << 14  # visits of one compiled call, after which Ctrl-C takes effect
LARGE = ALONE  # blocks of so many visits are visited in parts
FEW_BLOCKS = 100  # blocks: a visit in parts costs 0.2 ms more, which is less than compiling `visit_blocks`
MOST_BY_PARTS = 10_000  # unless a process makes so many of them


class Sweeper:
    """Weights, lattices and tables of one problem; `sweep` visits every block once."""

    def __init__(self, corpus, features, sizes, constraints, *, joint=True, edge_attrs=None, n_threads=1):
        self.corpus, self.features, self.sizes = corpus, features, sizes
        check_labels(corpus, sizes, constraints)
        n_labels, width = sizes.n_labels, padded(sizes.n_labels)
        if features is None:
            node_kept, edge_kept = np.ones(sizes.n_attrs, bool), np.ones(sizes.n_edge_attrs, bool)
            if edge_attrs is not None:
                edge_kept = np.isin(np.arange(sizes.n_edge_attrs), edge_attrs)
            none, labels = np.zeros(0, np.int64), np.zeros(0, np.int32)
            exist = FeatureSet(*sizes, none, labels, none, labels, labels)
        else:
            node_kept, edge_kept = np.diff(features.node_ptr) > 0, np.diff(features.edge_ptr) > 0
            exist = features
        self._edge_kept = edge_kept
        tables, base_log, self.base_holds = make_tables(corpus, n_labels, edge_kept, constraints)
        self._empty_base = base_log.copy()
        lattices = make_lattices(corpus, n_labels, constraints)
        both = joint != "alternate" and bool(joint)
        blocks = inverted_index(corpus, node_kept, edge_kept, lattices.node_row, joint=both)
        square, limit = count_bounds(blocks, lattices)
        lists = make_lists(np.zeros(sizes.n_edge_attrs), [], [])
        self.arrays = VisitArrays(
            blocks,
            lattices,
            tables,
            Weights(np.zeros((sizes.n_attrs, width)), base_log, lists),
            exist,
            number=np.stack([np.full(blocks.n_blocks, 2.0), limit, square]),
            sums=block_sums(width),
            move=no_move(width),
            log_z=np.zeros(int(np.diff(blocks.visit_ptr).max(initial=1))),
            seen=np.zeros(2),
            count=np.zeros(3, np.int64),
            work=lattice_work(width),
        )
        self.order = np.arange(blocks.n_blocks, dtype=np.int32)
        if joint == "alternate":  # node blocks, then edge blocks; each kind in its order
            self.order = np.argsort(blocks.member[0] < 0, kind="stable").astype(np.int32)
        self._gold = gold_edges(corpus, edge_kept, n_labels)
        self.n_threads, self._by_parts = n_threads, VisitByParts(width, lattices, n_threads)
        self.rule, self.compiled, self._log_z = None, is_compiled("visit_blocks"), None

    def set_rule(self, c1, c2, *, step="adaptive", factor=2.0, exact=False, frozen=False, screening=True):
        factor, n_labels = float(factor) if step == "fixed" else 1.0, int(self.sizes.n_labels)
        flags = int(step == "cs"), int(exact), int(frozen), int(screening), 0, self.base_holds
        dense_above = int(DENSE_SHARE * n_labels**2)
        self.rule = VisitRule(float(c1), float(c2), factor, STEPS[step], *flags, dense_above, n_labels)

    # ---- weights in and out

    def admit(self, name, sparse):
        """The active weights of a `Sparse` that was given as `name`;
        ValueError if there are others than those that exist here.
        """
        return active_among(name, sparse, self.sizes, self.features, self._edge_kept)

    def load(self, sparse):
        """Set the weights to those of a `Sparse`, which only has features that exist here: see `admit`."""
        features, w = sparse
        mu, base, _ = self.arrays.weights
        mu[:] = 0.0
        mu[features.node_attr, features.node_label] = w[: features.n_node]
        edge = features.edge_attr
        prev, following = features.edge_prev.astype(np.int64), features.edge_next.astype(np.int64)
        w = w[features.n_node :]
        base[:] = self._empty_base
        active = w != 0.0
        if self.base_holds:
            held = active & (edge == 0)
            base[prev[held], following[held]] += w[held]
            active &= edge != 0
        size = np.bincount(edge[active], minlength=self.sizes.n_edge_attrs)
        lists = make_lists(size, (prev << SHIFT | following)[active], w[active], self._step_room())
        self.arrays = self.arrays._replace(weights=Weights(mu, base, lists))

    def export(self):
        """`Sparse`: the active weights."""
        mu, (key, value) = self.arrays.weights.mu[:, : self.sizes.n_labels].reshape(-1), self._edges()
        nodes, order = np.flatnonzero(mu), np.argsort(key)
        return Sparse(from_keys(*self.sizes, nodes, key[order]), np.concatenate([mu[nodes], value[order]]))

    def _edges(self):
        """(keys as `FeatureSet.edge_keys`, weights) of the active edge weights."""
        n_labels, (_, base, lists) = self.sizes.n_labels, self.arrays.weights
        item = list_items(lists)
        owner = np.repeat(np.arange(self.sizes.n_edge_attrs), lists.row[SIZE, :-1])
        cell, value = lists.cell[item].astype(np.int64), lists.value[item]
        if self.base_holds:
            prev, following = np.nonzero(np.isfinite(base) & (base != 0.0))
            owner = np.concatenate([np.zeros(len(prev), np.int64), owner])
            cell = np.concatenate([prev << SHIFT | following, cell])
            value = np.concatenate([base[prev, following], value])
        return (owner * n_labels + (cell >> SHIFT)) * n_labels + (cell & LABEL), value

    def weights(self):
        """w (F,) of the given features, or `Sparse` where all features exist virtually."""
        return self.export() if self.features is None else scatter(self.export(), self.features)

    def keep(self, settled):
        """Arrays from which `resume` goes on. settled: log Z is that of the weights."""
        features, w = self.export()
        log_z = self.arrays.lattices.log_z * (1.0 if settled else np.nan)
        numbers = {"factor": self.arrays.number[FACTOR].copy(), "count": self.arrays.count.copy()}
        return {**features._asdict(), "w": w, **numbers, "log_z": log_z}

    def resume(self, state):
        """The weights and numbers that `keep` gave for the same problem; `renew` goes on from them."""
        names = (*FeatureSet._fields, "w", "factor", "count", "log_z")
        lacking = [name for name in names if not isinstance(state, dict) or name not in state]
        if lacking:
            raise ValueError(f"state: expected SparseResult.state, got one without {lacking[0]}")
        sizes = tuple(int(state[name]) for name in self.sizes._fields)
        shapes, log_z = (np.shape(state["factor"]), np.shape(state["log_z"])), self.arrays.lattices.log_z
        if (sizes, *shapes) != (tuple(self.sizes), (self.arrays.blocks.n_blocks,), log_z.shape):
            raise ValueError(
                "state: expected that of coordinate_descent on the same corpus and features, "
                f"(L, A, B) = {tuple(self.sizes)} with {self.arrays.blocks.n_blocks} blocks, "
                f"got {sizes} with {len(np.atleast_1d(state['factor']))}"
            )
        features = FeatureSet(*sizes, *(state[name] for name in FeatureSet._fields[3:]))
        self.load(self.admit("state", Sparse(features, state["w"])))
        self.arrays.number[FACTOR] = state["factor"]
        self.arrays.count[:] = state["count"]
        self._log_z = np.array(state["log_z"], np.float64)

    def _go_on(self):
        """log Z as `resume` was given it: the same but for rounding, which steps show; nan: unknown."""
        given, log_z = self._log_z, self.arrays.lattices.log_z
        known, self._log_z = ~np.isnan(given), None
        if not np.allclose(given[known], log_z[known], rtol=1e-6, atol=1e-6):  # steps would be judged by them
            raise ValueError(
                "state: expected that of coordinate_descent on the same corpus and constraints, "
                "got log Z of other sequences"
            )
        log_z[known] = given[known]

    # ---- objective

    def renew(self):
        """Potentials and tables anew from the weights; returns the objective, in nats."""
        tables, weights, corpus = self.arrays.tables, self.arrays.weights, self.corpus
        k = len(tables.slot)
        tables.lists.row[:] = 0
        owner = owners(tables.class_ptr)
        most = np.bincount(owner, weights.lists.row[SIZE, tables.class_attr], minlength=k).sum()
        self.make_room(int(1.25 * most) + k)
        arrays = self.arrays
        lattices, tables, weights = arrays.lattices, arrays.tables, arrays.weights
        rebuild_base(weights.base_log, self.sizes.n_labels, tables.base, tables.base_t, tables.level)
        rebuild_classes(np.arange(k, dtype=np.int32), self.rule.dense_above, tables, weights, arrays.work)
        score_rows(np.arange(len(lattices.psi_node), dtype=np.int32), weights.mu, lattices)
        forget(lattices)
        sequences, last = corpus.filled.astype(np.int32), corpus.position[corpus.last].astype(np.int32)
        self._by_parts.extend(sequences, last, last, 1, arrays)
        objective = self.loss() + self.penalty()
        if self._log_z is not None:
            self._go_on()
        return objective

    def loss(self):
        """sum of weight (log Z - gold score) from the log Z that `renew` left."""
        corpus, lattices, full = self.corpus, self.arrays.lattices, self.corpus.filled
        known = corpus.attr_idx < self.sizes.n_attrs
        token, x = corpus.attr_token[known], corpus.attr_val[known] if len(corpus.attr_val) else 1.0
        mu = self.arrays.weights.mu[corpus.attr_idx[known], corpus.labels[token]]
        score = float((mu * x * corpus.token_weights[token]).sum())
        (keys, counts), (key, value) = self._gold, self._edges()
        if len(keys):
            at, hit = find(keys, key)
            score += float((value * np.append(counts, 0.0)[at] * hit).sum())
        return float(lattices.weight[full] @ lattices.log_z[full]) - score

    def penalty(self):
        value = np.concatenate([self.arrays.weights.mu.ravel(), self._edges()[1]])
        return self.rule.c1 * float(np.abs(value).sum()) + self.rule.c2 * float(value @ value)

    # ---- sweeps

    def _step_room(self):
        """Free places that any one step may take in the pool of weights."""
        return 2 * self.sizes.n_labels**2

    def make_room(self, more=0):
        """Pack both pools; `more` free places in that of the classes."""
        weights, tables = self.arrays.weights, self.arrays.tables
        weights = weights._replace(lists=make_room(weights.lists, self._step_room()))
        tables = tables._replace(lists=make_room(tables.lists, more + (more >> 2)))
        self.arrays = self.arrays._replace(weights=weights, tables=tables)

    def sweep(self, order=None, only=-1):
        """Visit the blocks `order`; returns the change of the objective (of the adaptive rule;
        other rules do not know it).
        """
        order, place, total = self.order if order is None else order, 0, 0.0
        if self.rule.frozen:
            member = self.arrays.blocks.member[:, order]
            order = order[holding(member, self.arrays.weights, self.base_holds)]
        visits = np.cumsum(size := np.diff(self.arrays.blocks.visit_ptr)[order])
        few = len(self.order) <= FEW_BLOCKS and not self.compiled and VisitByParts.n_by_parts < MOST_BY_PARTS
        by_parts = size >= (0 if self.rule.exact or few else LARGE)
        large = np.append(np.flatnonzero(by_parts), len(order)).astype(np.int64)
        while place < len(order):
            deliver_signals()
            stop, missing = int(large[np.searchsorted(large, place)]), BY_PARTS
            if stop > place:
                done = visits[place - 1] if place else 0
                stop = min(stop, int(np.searchsorted(visits, done + STRETCH)) + 1)
                place, change, missing = visit_blocks(order[:stop], place, only, self.rule, self.arrays)
                total += change
            if missing == BY_PARTS:
                VisitByParts.n_by_parts += int(size[place] < LARGE)
                change, missing = self._by_parts.visit(int(order[place]), only, self.rule, self.arrays)
                place += missing == 0
                total += change
            if missing:
                self.make_room(missing)
        return total

    def sweep_weights(self):
        """Algorithm 1: visit every weight of every block by itself."""
        exist, member, n_labels = self.arrays.exist, self.arrays.blocks.member, self.sizes.n_labels
        everything = np.arange(n_labels + n_labels**2)
        for g in self.order:
            a, b = member[:, g]
            if self.features is None:
                places = everything[(0 if a >= 0 else n_labels) : (n_labels if b < 0 else None)]
            else:
                nodes = exist.node_label[exist.node_ptr[a] : exist.node_ptr[a + 1]] if a >= 0 else []
                edges = slice(exist.edge_ptr[b], exist.edge_ptr[b + 1]) if b >= 0 else slice(0, 0)
                prev, following = exist.edge_prev[edges].astype(np.int64), exist.edge_next[edges]
                places = [*nodes, *(n_labels + prev * n_labels + following)]
            for only in places:
                self.sweep(np.array([g], np.int32), int(only))

    def freeze(self, frozen):
        """From now on zeros stay zeros, and blocks that hold nothing else are not visited (or not)."""
        self.rule = self.rule._replace(frozen=int(frozen))
        self.arrays.seen[:] = 0.0

    @property
    def products(self):
        """Products of a vector and a transition table made so far."""
        return sum(int(work.steps[0]) for work in (self.arrays.work, *self._by_parts.works))

    def violation(self):
        """(largest violation of the conditions of optimality, sum of squared ones) at the present weights,
        over all candidates.
        """
        rule, self.rule = self.rule, self.rule._replace(frozen=0, measure=1)
        self.arrays.seen[:] = 0.0
        try:
            self.sweep()
        finally:
            self.rule = rule
        return float(self.arrays.seen[LARGEST]), float(self.arrays.seen[SQUARES])
