"""One visit of a block in stages: large blocks on several threads, blocks with sequences that need
logarithms, exact curvatures, and all blocks where they are few, as long as `visit_blocks` is not compiled.

The visit is `visit_blocks` (visit.py) itself, its source run by Python: the stages that it calls
are compiled one by one, and `LargeBlocks` takes the place of three of them. Sequences that share rows of
alpha (beta) stay together in a group, gradients are cut into shards of tokens: both by the data alone. Sums
are added in a fixed binary tree: the result has the same bits for any number of threads.
"""

from types import FunctionType

import numpy as np

import crfbook.learners.coordinate.visit as kernels
from crfbook.learners.coordinate.exact import exact_curvature
from crfbook.learners.coordinate.gradient import block_gradient
from crfbook.learners.coordinate.lattice import UNSAFE, extend_alphas, extend_betas
from crfbook.learners.coordinate.logs import add_unsafe, close_unsafe
from crfbook.learners.coordinate.shared_rows import balanced
from crfbook.learners.coordinate.state import block_sums, lattice_work
from crfbook.learners.coordinate.step import clear_block, propose, scale_curvatures, write_block
from crfbook.training.threads import run_pieces

LARGE = 2000  # visits: shorter blocks are done before the threads have begun
FEW = 100  # blocks: a visit in stages costs 0.2 ms more, which is less than compiling `visit_blocks`
STAGED = 10_000  # unless a process makes so many of them
SHARDS = 4


class LargeBlocks:
    """Work arrays of the shards, and the visit."""

    n_staged = 0  # visits that `visit_blocks` could have made, of all runs of the process

    def __init__(self, width, chains, n_threads):
        self.n_threads = n_threads
        self.works = [lattice_work(width) for _ in range(SHARDS)]
        self.sums = [block_sums(width) for _ in range(SHARDS)]
        length = np.diff(chains.seq_ptr)
        self.groups = np.zeros((2, len(length)), np.int64)  # for beta, alpha
        ends = (chains.beta_row, chains.seq_ptr[1:] - 2), (chains.alpha_row, chains.seq_ptr[:-1])
        for group, (row, token) in zip(self.groups, ends, strict=True):
            group[length > 1] = balanced(row[token[length > 1]], length[length > 1], SHARDS)

    @property
    def products(self):
        return sum(int(work.steps[0]) for work in self.works)

    def visit(self, g, only, rule, state):
        """`visit_blocks` for block g: (change of the objective, places that its pool needs before)."""
        source = getattr(kernels.visit_blocks, "py_func", kernels.visit_blocks)
        stages = {
            "extend": lambda sequences, low, high, measure, *_: self.extend(
                sequences, low, high, measure, state
            ),
            "block_gradient": lambda *_: self.gradient(g, rule, state),
            "scale_curvatures": lambda *_: self.curvatures(g, rule, state),
        }
        visit = FunctionType(source.__code__, vars(kernels) | stages)
        try:
            return visit(np.array([g]), 0, only, rule, state)[1:]
        except BaseException:  # Ctrl-C: a step that nobody has judged must not stay
            move, (a, b) = state.move, state.blocks.member[:, g].tolist()
            if move.n[0]:  # whoever goes on renews tables and lattices
                propose(int(move.n[0]), np.inf, rule.c1, rule.c2, move.number, move.model)
                write_block(a, b, rule, state.weights, move)
            clear_block(a, b, rule, state.weights, move)
            raise

    def extend(self, sequences, low, high, measure, state):
        """`extend` of lattice.py, on several threads;
        log Z in logarithms where that has none. Returns 0: no sequence is left to be done.
        """
        chains, tables, alone = state.chains, state.tables, self.n_threads == 1 or len(sequences) < LARGE

        def betas(work, which):
            work.steps[0] += extend_betas(sequences[which], low[which], chains, tables, work.right)

        def alphas(work, which):
            work.steps[0] += extend_alphas(sequences[which], high[which], measure, chains, tables)

        for task, group in zip((betas, alphas), self.groups, strict=True):
            if alone:
                task(self.works[0], slice(None))
                continue
            mine = [group[sequences] == s for s in range(SHARDS)]
            run_pieces(lambda s, task=task, mine=mine: task(self.works[s], mine[s]), SHARDS, self.n_threads)
        if measure:
            close_unsafe(sequences[chains.place[UNSAFE, sequences] > 0], state)
        return 0

    def gradient(self, g, rule, state):
        """`block_gradient`: in shards where the block is large; unsafe sequences in logarithms."""
        blocks, chains, tables, sums = state.blocks, state.chains, state.tables, state.sums
        first, last = blocks.visit_ptr[g : g + 2].tolist()
        alone = last - first < LARGE  # at once, as `visit_blocks` does
        cuts = np.linspace(blocks.occ_ptr[first], blocks.occ_ptr[last], 2 if alone else SHARDS + 1).astype(
            np.int64
        )

        def shard(s, sums):
            low, high = cuts[s : s + 2].tolist()
            block_gradient(g, low, high, rule.repeats, blocks, chains, tables, sums, self.works[s])

        if alone:
            shard(0, sums)
        else:
            run_pieces(lambda s: shard(s, self.sums[s]), SHARDS, self.n_threads)
            for out, *parts in zip(sums, *self.sums, strict=True):
                out[:] = tree_sum(parts)
        if chains.place[UNSAFE, blocks.visit_seq[first:last]].any():
            add_unsafe(g, rule.repeats, state)

    def curvatures(self, g, rule, state):
        """`scale_curvatures`, after the exact ones where the rule says so."""
        if rule.exact:
            exact_curvature(g, state.blocks, state.chains, state.tables, state.weights, state.move)
        scale_curvatures(rule, state.number[kernels.SQUARE, g], state.sums, state.move)


def tree_sum(parts):
    """Sum of the parts, added pair by pair."""
    parts = list(parts)
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    return parts[0]
