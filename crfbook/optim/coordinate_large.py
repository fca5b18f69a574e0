"""One visit of a large block on several threads: the stages of `visit_blocks` (kernels/coordinate.py), each over shards of its sequences.

Shards are cut by the data alone and their sums added in a fixed binary tree: the result has the same bits for any number of threads.
"""

import numpy as np

from crfbook.kernels import coordinate as kernels
from crfbook.kernels import coordinate_step as steps
from crfbook.kernels.coordinate_gradient import block_gradient, gold_doubt
from crfbook.kernels.coordinate_lattice import extend
from crfbook.optim.chains import block_sums, lattice_work
from crfbook.optim.parallel import run_pieces

LARGE = 2000  # visits: shorter blocks are done before the threads have begun
SHARDS = 4


class LargeBlocks:
    """Work arrays of the shards, and the visit."""

    def __init__(self, width, n_labels, n_threads):
        self.n_threads = n_threads
        self.works = [lattice_work(width, n_labels) for _ in range(SHARDS)]
        self.sums = [block_sums(width) for _ in range(SHARDS)]

    @property
    def products(self):
        return sum(int(work.steps[0]) for work in self.works)

    def visit(self, g, rule, state):
        """(change of the objective, places that the pool of the classes needs before): as `visit_blocks` for one block."""
        blocks, chains, tables, weights = state.blocks, state.chains, state.tables, state.weights
        (a, b), (first, last) = blocks.member[:, g].tolist(), blocks.visit_ptr[g:g + 2].tolist()
        cuts = np.linspace(first, last, SHARDS + 1).astype(np.int64).tolist()
        shards = lambda task: run_pieces(lambda s: task(s, cuts[s], cuts[s + 1]), SHARDS, self.n_threads)  # noqa: E731
        n_active = steps.load_block(a, b, rule.base_holds, state.mu, tables.base_log, weights, state.old_edge)
        shards(lambda s, low, high: extend(blocks.visit_seq[low:high], blocks.visit_low[low:high], blocks.visit_high[low:high], chains,
                                           tables, state.mu, weights, self.works[s]))
        if rule.screening and n_active == 0 and gold_doubt(g, rule.c1, blocks, chains, tables) <= rule.c1:
            state.count[2] += 1
            return 0.0, 0
        shards(lambda s, low, high: self._gradient(s, g, low, high, rule, state))
        for part in ("node", "edge"):
            getattr(state.sums, part)[:] = tree_sum([getattr(sums, part) for sums in self.sums])
        state.count[0] += last - first
        n = steps.candidates(a, b, rule.c1, rule.c2, -1, rule.frozen, rule.step == 0, rule.n_labels, state.mu, state.old_edge, state.exist,
                             state.sums, state.found, state.seen)
        held = b < 0 or (b == 0 and rule.base_holds) or n == 0 or rule.measure
        missing = 0 if held else kernels.missing_room(b, n, blocks, tables, weights)
        change = 0.0
        if n > 0 and missing == 0 and not rule.measure:
            if rule.exact:
                kernels.exact_curvature(g, n, blocks, chains, tables, state.mu, weights, state.found)
            steps.scale_curvatures(n, rule, state.number[kernels.SQUARE, g], state.sums, state.found)
            change = self._step(g, a, b, n, last - first, shards, rule, state)
        steps.clear_block(b, n, rule.base_holds, weights, state.found, state.old_edge, state.delta_node, state.delta_edge)
        return change, missing

    def _gradient(self, s, g, low, high, rule, state):
        for part in self.sums[s]:
            part[:] = 0.0
        block_gradient(g, low, high, rule.repeats, state.blocks, state.chains, state.tables, state.mu, state.weights, self.sums[s],
                       state.log_z, self.works[s])

    def _step(self, g, a, b, n, n_visits, shards, rule, state):
        """`take_step`, its lattices in shards."""
        adaptive = rule.step == 0
        factor = float(state.number[kernels.FACTOR, g]) if adaptive else rule.factor
        noise = 1e-14 * float(np.abs(state.log_z[:n_visits]).sum())
        for trial in range(kernels.MAX_TRIALS):
            last = trial == kernels.MAX_TRIALS - 1
            steps.propose(n, np.inf if last else factor, rule.c1, rule.c2, state.found.number, state.model)
            if state.model[1] == 0.0 and trial == 0:
                return 0.0
            steps.write_block(a, b, n, rule.base_holds, state.mu, state.tables.base_log, state.weights, state.found, state.delta_node,
                              state.delta_edge)
            steps.renew_tables(b, rule.base_holds, rule.dense_above, state.blocks, state.tables, state.weights, state.work)
            changes = shards(lambda s, low, high: steps.renew_lattices(
                g, low, high, adaptive, state.blocks, state.chains, state.tables, state.mu, state.weights, state.delta_node,
                state.delta_edge, state.log_z, self.works[s]))
            change = tree_sum(changes)
            state.count[1] += n_visits if adaptive else 0
            good, factor = kernels.judge(change, noise, trial, adaptive, rule.least_factor, state.model, factor)
            if good:
                break
        if adaptive:
            state.number[kernels.FACTOR, g] = factor
        return change + float(state.model[2])


def tree_sum(parts):
    """Sum of the parts, added pair by pair."""
    parts = list(parts)
    while len(parts) > 1:
        parts = [sum(parts[i + 1:i + 2], parts[i]) for i in range(0, len(parts), 2)]
    return parts[0]
