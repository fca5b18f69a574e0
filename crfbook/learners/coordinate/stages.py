"""One visit of a block in stages, which are those of `visit_blocks` (visit.py): large blocks on
several threads, blocks with sequences that need logarithms, exact curvatures, and all blocks where they are
few, as long as `visit_blocks` is not compiled.

Sequences that share rows of alpha (beta) stay together in a group, gradients are cut into shards of tokens:
both by the data alone. Sums are added in a fixed binary tree:
the result has the same bits for any number of threads.
"""

import numpy as np

import crfbook.learners.coordinate.lattice as lattice
import crfbook.learners.coordinate.step as steps
import crfbook.learners.coordinate.visit as kernels
from crfbook.learners.coordinate.exact import exact_curvature
from crfbook.learners.coordinate.gradient import block_gradient, clear_sums, gold_doubt
from crfbook.learners.coordinate.logs import add_unsafe, close_unsafe
from crfbook.learners.coordinate.shared_rows import balanced
from crfbook.learners.coordinate.state import block_sums, lattice_work
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
        self.groups = []
        for row, token in (
            (chains.alpha_row, chains.seq_ptr[:-1]),
            (chains.beta_row, chains.seq_ptr[1:] - 2),
        ):
            group, inner = np.zeros(len(length), np.int64), length > 1
            group[inner] = balanced(row[token[inner]], length[inner], SHARDS)
            self.groups.append(group)

    @property
    def products(self):
        return sum(int(work.steps[0]) for work in self.works)

    def extend(self, sequences, low, high, measure, state):
        """`extend` of lattice.py; log Z in logarithms where that has none.
        True if there are unsafe sequences.
        """
        chains, tables = state.chains, state.tables
        if self.n_threads == 1 or len(sequences) < LARGE:
            unsafe = lattice.extend(sequences, low, high, measure, chains, tables, self.works[0]) > 0
        else:

            def betas(s, which):
                self.works[s].steps[0] += lattice.extend_betas(
                    sequences[which], low[which], chains, tables, self.works[s].right
                )

            def alphas(s, which):
                self.works[s].steps[0] += lattice.extend_alphas(
                    sequences[which], high[which], measure, chains, tables
                )

            for task, group in zip((betas, alphas), self.groups[::-1], strict=True):
                mine = [group[sequences] == s for s in range(SHARDS)]
                run_pieces(lambda s, task=task, mine=mine: task(s, mine[s]), SHARDS, self.n_threads)
            unsafe = bool(chains.place[lattice.UNSAFE, sequences].any())
        if unsafe and measure:
            close_unsafe(sequences, state)
        return unsafe

    def visit(self, g, only, rule, state):
        """(change of the objective, places that the pool of the classes needs before):
        as `visit_blocks` for one block.
        """
        blocks, chains, tables, weights = state.blocks, state.chains, state.tables, state.weights
        (a, b), (first, last) = blocks.member[:, g].tolist(), blocks.visit_ptr[g : g + 2].tolist()
        empty = (
            steps.load_block(a, b, rule.base_holds, state.mu, tables.base_log, weights, state.old_edge) == 0
            and rule.screening
        )
        if empty and state.number[kernels.LIMIT, g] <= rule.c1:
            state.count[kernels.SCREENED] += 1
            return 0.0, 0
        unsafe = self.extend(
            blocks.visit_seq[first:last],
            blocks.visit_low[first:last],
            blocks.visit_high[first:last],
            0,
            state,
        )
        if empty and gold_doubt(g, rule.c1, blocks, chains, tables) <= rule.c1:
            state.count[kernels.SCREENED] += 1
            return 0.0, 0
        self._gradient(g, first, last, unsafe, rule, state)
        state.count[kernels.PASSES] += last - first
        n = steps.candidates(
            a, b, only, rule, state.mu, state.old_edge, state.exist, state.sums, state.found, state.seen
        )
        held = b < 0 or (b == 0 and rule.base_holds) or n == 0 or rule.measure
        missing = 0 if held else kernels.missing_room(b, n, blocks, tables, weights)
        change = 0.0
        if n > 0 and missing == 0 and not rule.measure:
            if rule.exact:
                exact_curvature(g, n, blocks, chains, tables, state.mu, weights, state.found)
            steps.scale_curvatures(n, rule, state.number[kernels.SQUARE, g], state.sums, state.found)
            change = self._step(g, a, b, n, rule, state)
        steps.clear_block(
            b, n, rule.base_holds, weights, state.found, state.old_edge, state.delta_node, state.delta_edge
        )
        return change, missing

    def _gradient(self, g, first, last, unsafe, rule, state):
        blocks, chains = state.blocks, state.chains
        cuts = np.linspace(blocks.occ_ptr[first], blocks.occ_ptr[last], SHARDS + 1).astype(np.int64).tolist()

        def shard(s):
            clear_sums(self.sums[s])
            block_gradient(
                g,
                cuts[s],
                cuts[s + 1],
                rule.repeats,
                blocks,
                chains,
                state.tables,
                self.sums[s],
                self.works[s],
            )

        if last - first < LARGE:  # at once, as `visit_blocks` does
            clear_sums(state.sums)
            block_gradient(
                g, cuts[0], cuts[-1], rule.repeats, blocks, chains, state.tables, state.sums, self.works[0]
            )
        else:
            run_pieces(shard, SHARDS, self.n_threads)
            for part in ("node", "edge"):
                getattr(state.sums, part)[:] = tree_sum([getattr(sums, part) for sums in self.sums])
        if unsafe:
            add_unsafe(g, rule.repeats, state)

    def _renew(self, g, measure, state):
        """Lattices after a change; the change of the loss, if measure."""
        blocks, chains = state.blocks, state.chains
        first, last = blocks.visit_ptr[g : g + 2].tolist()
        total = -lattice.mark_change(g, blocks, chains, state.delta_node, state.delta_edge)
        lattice.score_rows(blocks.score_row[blocks.score_ptr[g] : blocks.score_ptr[g + 1]], state.mu, chains)
        if not measure:
            return 0.0
        sequences, high = blocks.visit_seq[first:last], blocks.visit_high[first:last]
        self.extend(sequences, high, high, 1, state)
        return total + lattice.log_z_change(sequences, chains.weight, chains.log_z, state.log_z)

    def _write(self, a, b, n, rule, state):
        steps.write_block(
            a,
            b,
            n,
            rule.base_holds,
            state.mu,
            state.tables.base_log,
            state.weights,
            state.found,
            state.delta_node,
            state.delta_edge,
        )

    def _step(self, g, a, b, n, rule, state):
        """Steps until one is good; the change of the objective."""
        adaptive, blocks = rule.step == steps.ADAPTIVE, state.blocks
        first, last = blocks.visit_ptr[g : g + 2].tolist()
        factor = float(state.number[kernels.FACTOR, g]) if adaptive else rule.factor
        noise, change = lattice.keep_log_z(blocks.visit_seq[first:last], state.chains.log_z, state.log_z), 0.0
        try:
            for trial in range(kernels.MAX_TRIALS):
                end = trial == kernels.MAX_TRIALS - 1
                steps.propose(n, np.inf if end else factor, rule.c1, rule.c2, state.found.number, state.model)
                if state.model[steps.BEND] == 0.0 and trial == 0:
                    return 0.0
                self._write(a, b, n, rule, state)
                steps.renew_tables(
                    b,
                    rule.base_holds,
                    rule.n_labels,
                    rule.dense_above,
                    blocks,
                    state.tables,
                    state.weights,
                    state.work,
                )
                change = self._renew(g, adaptive, state)
                state.count[kernels.STEP_PASSES] += last - first if adaptive else 0
                good, factor = kernels.judge(change, noise, trial, adaptive, state.model, factor)
                if good:
                    break
        except (
            BaseException
        ):  # Ctrl-C: a step that nobody has judged must not stay; whoever goes on renews tables and lattices
            steps.propose(n, np.inf, rule.c1, rule.c2, state.found.number, state.model)
            self._write(a, b, n, rule, state)
            raise
        if adaptive:
            state.number[kernels.FACTOR, g] = factor
        return change + float(state.model[steps.PENALTY])


def tree_sum(parts):
    """Sum of the parts, added pair by pair."""
    parts = list(parts)
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    return parts[0]
