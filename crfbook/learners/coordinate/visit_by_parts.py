"""One visit of a block in parts: large blocks on several threads, blocks with sequences that need
logarithms, exact curvatures, and all blocks where they are few, as long as `visit_blocks` is not compiled.

The visit is `visit_blocks` (visit.py) itself, its source run by Python: the kernels that it calls
are compiled one by one, and `VisitByParts` takes the place of three of them. Sequences that share rows of
alpha (beta) stay together in a group, gradients are cut into shards of tokens: both by the data alone. Sums
are added in a fixed binary tree: the result has the same bits for any number of threads. Sequences whose
scaled lattices cannot be trusted (potentials hundreds of nats apart) are done in logarithms, anew at each
visit: they are rare, so that nothing of them is kept but log Z.
"""

from types import FunctionType

import numpy as np

import crfbook.learners.coordinate.visit as kernels
from crfbook.chain.forward_backward import edge_marginal_log, forward_backward_log, node_marginals_log
from crfbook.learners.coordinate.arrays import block_sums, lattice_work
from crfbook.learners.coordinate.derivatives import (
    CURVATURE,
    EXPECTED,
    block_gradient,
    exact_curvature,
    lattice_scores,
)
from crfbook.learners.coordinate.lattice import UNSAFE, extend_alphas, extend_betas
from crfbook.learners.coordinate.token_index import balanced
from crfbook.learners.coordinate.visit import clear_block, propose, scale_curvatures, write_block
from crfbook.training.threads import run_pieces

LARGE = 2000  # visits: shorter blocks are done before the threads have begun
FEW_BLOCKS = 100  # blocks: a visit in parts costs 0.2 ms more, which is less than compiling `visit_blocks`
MOST_BY_PARTS = 10_000  # unless a process makes so many of them
SHARDS = 4


class VisitByParts:
    """Work arrays of the shards, and the visit."""

    n_by_parts = 0  # visits that `visit_blocks` could have made, in this process

    def __init__(self, width, lattices, n_threads):
        self.n_threads = n_threads
        self.works = [lattice_work(width) for _ in range(SHARDS)]
        self.sums = [block_sums(width) for _ in range(SHARDS)]
        length = np.diff(lattices.seq_ptr)
        self.groups = np.zeros((2, len(length)), np.int64)  # for beta, alpha
        ends = (lattices.beta_row, lattices.seq_ptr[1:] - 2), (lattices.alpha_row, lattices.seq_ptr[:-1])
        for group, (row, token) in zip(self.groups, ends, strict=True):
            group[length > 1] = balanced(row[token[length > 1]], length[length > 1], SHARDS)

    @property
    def products(self):
        return sum(int(work.steps[0]) for work in self.works)

    def visit(self, g, only, rule, arrays):
        """`visit_blocks` for block g: (change of the objective, places that its pool needs before)."""
        source = getattr(kernels.visit_blocks, "py_func", kernels.visit_blocks)
        parts = {
            "extend": lambda *arguments: self.extend(*arguments[:4], arrays),
            "block_gradient": lambda *_: self.gradient(g, rule, arrays),
            "scale_curvatures": lambda *_: self.curvatures(g, rule, arrays),
        }
        visit = FunctionType(source.__code__, vars(kernels) | parts)
        try:
            return visit(np.array([g]), 0, only, rule, arrays)[1:]
        except BaseException:  # Ctrl-C: a step that nobody has judged must not stay
            move, (a, b) = arrays.move, arrays.blocks.member[:, g].tolist()
            if move.n[0]:  # whoever goes on renews tables and lattices
                propose(int(move.n[0]), np.inf, rule.c1, rule.c2, move.number, move.model)
                write_block(a, b, rule, arrays.weights, move)
            clear_block(a, b, rule, arrays.weights, move)
            raise

    def extend(self, sequences, low, high, measure, arrays):
        """`extend` of lattice.py, on several threads;
        log Z in logarithms where that has none. Returns 0: no sequence is left to be done.
        """
        lattices, tables = arrays.lattices, arrays.tables
        alone = self.n_threads == 1 or len(sequences) < LARGE

        def betas(work, which):
            work.steps[0] += extend_betas(sequences[which], low[which], lattices, tables, work.right)

        def alphas(work, which):
            work.steps[0] += extend_alphas(sequences[which], high[which], measure, lattices, tables)

        for task, group in zip((betas, alphas), self.groups, strict=True):
            if alone:
                task(self.works[0], slice(None))
                continue
            mine = [group[sequences] == s for s in range(SHARDS)]
            run_pieces(lambda s, task=task, mine=mine: task(self.works[s], mine[s]), SHARDS, self.n_threads)
        if measure:
            close_unsafe(sequences[lattices.place[UNSAFE, sequences] > 0], arrays)
        return 0

    def gradient(self, g, rule, arrays):
        """`block_gradient`: in shards where the block is large; unsafe sequences in logarithms."""
        blocks, lattices, tables, sums = arrays.blocks, arrays.lattices, arrays.tables, arrays.sums
        first, last = blocks.visit_ptr[g : g + 2].tolist()
        alone = last - first < LARGE  # at once, as `visit_blocks` does
        cuts = np.linspace(blocks.occ_ptr[first], blocks.occ_ptr[last], 2 if alone else SHARDS + 1).astype(
            np.int64
        )

        def shard(s, sums):
            low, high = cuts[s : s + 2].tolist()
            block_gradient(g, low, high, rule.repeats, blocks, lattices, tables, sums, self.works[s])

        if alone:
            shard(0, sums)
        else:
            run_pieces(lambda s: shard(s, self.sums[s]), SHARDS, self.n_threads)
            for out, *parts in zip(sums, *self.sums, strict=True):
                out[:] = tree_sum(parts)
        if lattices.place[UNSAFE, blocks.visit_seq[first:last]].any():
            add_unsafe(g, rule.repeats, arrays)

    def curvatures(self, g, rule, arrays):
        """`scale_curvatures`, after the exact ones where the rule says so."""
        if rule.exact:
            exact_curvature(g, arrays.blocks, arrays.lattices, arrays.tables, arrays.weights, arrays.move)
        scale_curvatures(rule, arrays.number[kernels.SAFE_CURVE, g], arrays.sums, arrays.move)


def tree_sum(parts):
    """Sum of the parts, added pair by pair."""
    parts = list(parts)
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    return parts[0]


def _lattice(i, arrays):
    """(log_node (T, M), log_edge (T, M, M), edge_class (T,), alpha, beta (T, M), log Z) of sequence i;
    its edge classes are positions.
    """
    lattices, width = arrays.lattices, arrays.weights.mu.shape[1]
    n = int(lattices.seq_ptr[i + 1] - lattices.seq_ptr[i])
    log_node, log_edge, alpha = np.zeros((n, width)), np.zeros((n, width, width)), np.zeros((n, width))
    beta = np.zeros((n, width))
    lattice_scores(i, lattices, arrays.tables, arrays.weights, log_node, log_edge)
    edge_class = np.arange(n, dtype=np.int32)
    return (
        log_node,
        log_edge,
        edge_class,
        alpha,
        beta,
        forward_backward_log(log_node, log_edge, edge_class, alpha, beta),
    )


def close_unsafe(sequences, arrays):
    """log Z of these unsafe sequences."""
    for i in sequences.tolist():
        arrays.lattices.log_z[i] = _lattice(i, arrays)[-1]


def add_unsafe(g, repeats, arrays):
    """Expected counts and curvatures of block g in its unsafe sequences, added to arrays.sums;
    see `block_gradient`.
    """
    blocks, lattices, (node, edge) = arrays.blocks, arrays.lattices, arrays.sums
    with_edge, p_edge = blocks.member[1, g] >= 0, np.zeros(arrays.tables.base.shape)
    for v in range(int(blocks.visit_ptr[g]), int(blocks.visit_ptr[g + 1])):
        i, occurrences = int(blocks.visit_seq[v]), range(int(blocks.occ_ptr[v]), int(blocks.occ_ptr[v + 1]))
        if not lattices.place[UNSAFE, i]:
            continue
        log_node, log_edge, edge_class, alpha, beta, log_z = _lattice(i, arrays)
        p_node, weight = np.zeros(log_node.shape), lattices.weight[i]
        node_marginals_log(alpha, beta, log_z, p_node)
        repeat = weight * (len(occurrences) if repeats else 1.0)
        for o in occurrences:
            t = int(blocks.occ_token[o] - lattices.seq_ptr[i])
            x, p = blocks.occ_val[o] if len(blocks.occ_val) else 1.0, p_node[t]
            node[EXPECTED] += weight * x * p
            node[CURVATURE] += repeat * x * x * (p - p * p)
            if with_edge and t > 0:
                edge_marginal_log(t, log_node, log_edge, edge_class, alpha, beta, log_z, p_edge)
                edge[EXPECTED] += weight * p_edge
                edge[CURVATURE] += repeat * (p_edge - p_edge * p_edge)
