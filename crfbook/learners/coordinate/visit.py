"""Blockwise coordinate descent: the visit of a block, and a sweep over many.

Sokolovska, Lavergne, Cappe and Yvon (2010), Algorithm 2 (and 1: a block of which only one weight may move).
First stands the step of one block: candidates, their new weights, and the changes of tables and lattices. A
candidate is a weight of the block that is not zero, or would not stay zero: cell yp << SHIFT | y, or -1 - y
for a node weight. `move` is a Move: its first move.n[0] candidates count. `arrays` is a VisitArrays, `rule` a
VisitRule: everything that a visit reads and changes, see arrays.py. `visit_blocks` makes the visits in one
kernel. `VisitByParts` makes one from Python, and calls the kernels one by one: of a large block on several
threads, of a block with unsafe sequences, with exact curvatures, and where blocks are few and `visit_blocks`
is not compiled. Sequences that share rows of alpha (beta) stay together in a group, gradients are cut into
shards of tokens: both by the data alone. Sums are added in a fixed binary tree: the result has the same bits
for any number of threads. `sweep_plain` is the readable sister.
"""

import math

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.likelihood import add_tree
from crfbook.chain.sequence import plain_marginals, plain_tables
from crfbook.learners.coordinate.arrays import block_sums, lattice_work
from crfbook.learners.coordinate.derivatives import (
    CURVATURE,
    CURVE,
    EXPECTED,
    GOLD,
    GRADIENT,
    NEW,
    OLD,
    add_unsafe,
    block_gradient,
    close_unsafe,
    exact_curvature,
    gold_doubt,
)
from crfbook.learners.coordinate.lattice import (
    LABEL,
    ROOM,
    SHIFT,
    SIZE,
    START,
    UNSAFE,
    extend,
    extend_alphas,
    extend_betas,
    keep_log_z,
    log_z_change,
    mark_change,
    place_list,
    rebuild_base,
    rebuild_classes,
    score_rows,
)
from crfbook.learners.coordinate.token_index import balanced
from crfbook.training.threads import run_tasks

ADAPTIVE, FIXED, WAPITI, SAFE, CS = 0, 1, 2, 3, 4  # VisitRule.step
STEPS = {"adaptive": ADAPTIVE, "fixed": FIXED, "wapiti": WAPITI, "safe": SAFE, "cs": CS}
LARGEST, SQUARES = 0, 1  # places of VisitArrays.seen: of the violations of the KKT conditions
SLOPE, BEND, PENALTY = 0, 1, 2  # places of Move.model, see `propose`
FLOOR = 1e-5  # of the largest curvature of a block: the adaptive rule uses no smaller one
STRIDE = 8  # between candidates that become neighbours in a list
MAX_TRIALS = 60
LEAST_FACTOR = 0.1  # of the adaptive rule
FACTOR, LIMIT, SAFE_CURVE = 0, 1, 2  # rows of VisitArrays.number
PASSES, STEP_PASSES, SCREENED = 0, 1, 2  # places of VisitArrays.count
BY_PARTS = -1
ALONE = 2000  # visits: fewer are done before the threads have begun
SHARDS = 4


@kernel
def load_block(a, b, rule, weights, move):
    """move.old_edge[yp, y] = weights of edge attribute b;
    returns how many weights of the block (a, b) are not zero.

    Arguments:
        a, b : node and edge attribute, -1: none
        rule : a `VisitRule`
        weights : a `Weights`
        move : a `Move`
    Cost: M + active weights; M^2 for the weights of the base table.
    Source: docs/SPEC.md, A.10.
    """
    n, old_edge, lists = 0, move.old_edge, weights.lists
    if a >= 0:
        for w in weights.mu[a]:
            n += 1 if w != 0.0 else 0
    if b == 0 and rule.base_holds:
        for yp in range(old_edge.shape[0]):
            for y in range(old_edge.shape[1]):
                w = weights.base_log[yp, y]
                old_edge[yp, y] = w if w > -np.inf else 0.0
                n += 1 if old_edge[yp, y] != 0.0 else 0
    elif b >= 0:
        start, size = lists.row[START, b], lists.row[SIZE, b]
        for e in range(start, start + size):
            old_edge[lists.cell[e] >> SHIFT, lists.cell[e] & LABEL] = lists.value[e]
        n += size
    return n


@kernel
def _consider(cell, w, expected, curvature, gold, pinned, rule, move, seen):
    """Append the weight to the candidates if it is one. seen: largest violation, sum of squared ones.

    pinned: the weight stays what it is: an infinite curvature.
    secant: where gold > expected, the curvature sum p (1 - p) grows by (gold - expected) / (expected log(gold
    / expected)): while p is small that makes the step log(gold / expected) of iterative scaling, where
    Newton's would be far too long; near the end the factor is 1.
    """
    grad, c1, n = expected - gold, rule.c1, move.n[0]
    if w == 0.0 and (pinned or abs(grad) <= c1):
        return
    move.n[0] += 1
    move.cell[n] = cell
    move.number[OLD, n] = w
    if pinned:
        move.number[CURVE, n] = np.inf
        return
    slope = grad + 2.0 * rule.c2 * w
    violation = abs(slope + c1) if w > 0.0 else abs(slope - c1) if w < 0.0 else abs(slope) - c1
    seen[LARGEST] = max(seen[LARGEST], violation)
    seen[SQUARES] += violation * violation
    if rule.step == ADAPTIVE and gold > expected >= 0.0:
        expected = max(expected, 1e-12)
        curvature *= max(1.0, (gold - expected) / (expected * np.log(gold / expected)))
    move.number[GRADIENT, n] = grad
    move.number[CURVE, n] = curvature


@kernel
def candidates(a, b, only, rule, weights, exist, sums, move, seen):
    """Candidates of block (a, b), into move; returns their number.
    seen[LARGEST] = largest violation of the KKT conditions so far, seen[SQUARES] += its squares.

    Arguments:
        a, b : node and edge attribute, -1: none
        only : place of the one weight that may move (nodes first, then pairs row by row), -1: all
        rule : a `VisitRule`; frozen: zeros stay zeros
        weights : a `Weights`
        exist : a `FeatureSet`
        sums : a `BlockSums`
        move : after `load_block`
    Out:
        seen : (2,)
    Cost: the weights of the block.
    Source: Sokolovska et al. (2010), eq. (13); docs/SPEC.md, A.7.
    """
    L, virtual, mu, old_edge = rule.n_labels, exist.node_ptr.size == 0, weights.mu, move.old_edge
    move.n[0] = 0
    if a >= 0:
        p = sums.node
        for j in range(0 if virtual else exist.node_ptr[a], L if virtual else exist.node_ptr[a + 1]):
            y = j if virtual else exist.node_label[j]
            w, pinned = mu[a, y], only >= 0 and only != y
            if w != 0.0 or not rule.frozen:
                _consider(-1 - y, w, p[EXPECTED, y], p[CURVATURE, y], p[GOLD, y], pinned, rule, move, seen)
    if b >= 0:
        q, yp, y = sums.edge, 0, -1
        for j in range(0 if virtual else exist.edge_ptr[b], L * L if virtual else exist.edge_ptr[b + 1]):
            if virtual:
                yp, y = (yp, y + 1) if y + 1 < L else (yp + 1, 0)
            else:
                yp, y = exist.edge_prev[j], exist.edge_next[j]
            w, expected, gold = old_edge[yp, y], q[EXPECTED, yp, y], q[GOLD, yp, y]
            if w != 0.0 or not (rule.frozen or abs(expected - gold) <= rule.c1):
                cell, pinned = yp << SHIFT | y, only >= 0 and only != L + yp * L + y
                _consider(cell, w, expected, q[CURVATURE, yp, y], gold, pinned, rule, move, seen)
    return move.n[0]


@kernel
def scale_curvatures(rule, square, sums, move):
    """Curvatures of the step rule: floored (ADAPTIVE), as they are (FIXED),
    times the largest Newton step (WAPITI, CS), constant (SAFE).

    WAPITI and CS multiply them by gamma, too. CS: of one choice with probabilities p the Hessian
    diag(p) - p p' is at most 2 diag(p (1 - p)). Where node and edge weights move together,
    Var(a + b) <= 2 Var(a) + 2 Var(b) makes that 4 (docs/SPEC.md, A.8).

    Arguments:
        rule : a `VisitRule`
        square : the curvature of the safe rule
        sums : a `BlockSums`
        move : a `Move`
    Cost: M^2.
    Source: docs/SPEC.md, A.9.
    """
    n, cell, curve, high, node, edge = move.n[0], move.cell, move.number[CURVE], 0.0, 1.0, 1.0
    p, q, newton = sums.node, sums.edge, rule.step == WAPITI or rule.step == CS
    for y in range(p.shape[1]):
        high = max(high, p[CURVATURE, y])
        if newton:
            node = max(node, abs(p[EXPECTED, y] - p[GOLD, y]) / max(p[CURVATURE, y], 1e-12))
        for x in range(p.shape[1]):
            high = max(high, q[CURVATURE, y, x])
            if newton:
                edge = max(edge, abs(q[EXPECTED, y, x] - q[GOLD, y, x]) / max(q[CURVATURE, y, x], 1e-12))
    n_node, n_edge = 0, 0
    for j in range(n):
        if curve[j] < np.inf:
            n_node, n_edge = n_node + (cell[j] < 0), n_edge + (cell[j] >= 0)
    gamma = 1.5 if rule.step == WAPITI else 4.0 if n_node > 0 and n_edge > 0 else 2.0
    for j in range(n):
        curve[j] = max(curve[j], 1e-12)
        if curve[j] == np.inf:
            continue
        if rule.step == ADAPTIVE:
            curve[j] = max(curve[j], FLOOR * high)
        elif newton:
            curve[j] *= (node if cell[j] < 0 else edge) * gamma
        elif rule.step == SAFE:
            curve[j] = square


@kernel
def propose(n, factor, c1, c2, number, model):
    """new = S(factor h old - grad, c1) / (factor h + 2 c2); model = (grad . d, sum h d^2,
    change of the penalty).

    Arguments:
        n : number of candidates
        factor : of the curvatures
        c1, c2 : penalties
    Out:
        number : (4, n), of a `Move`: its new weights
        model : (3,), of a `Move`
    Cost: n.
    Source: Sokolovska et al. (2010), eq. (13), (14).
    """
    model[SLOPE], model[BEND], model[PENALTY] = 0.0, 0.0, 0.0
    for j in range(n):
        h, old, grad = factor * number[CURVE, j], number[OLD, j], number[GRADIENT, j]
        number[NEW, j] = old
        if h == np.inf:
            continue
        z = h * old - grad
        new = (z - c1 if z > c1 else z + c1 if z < -c1 else 0.0) / (h + 2.0 * c2)
        number[NEW, j] = new
        d = new - old
        model[SLOPE] += grad * d
        model[BEND] += number[CURVE, j] * d * d
        model[PENALTY] += c1 * (abs(new) - abs(old)) + c2 * (new * new - old * old)


@kernel
def write_block(a, b, rule, weights, move):
    """The new weights of block (a, b) into mu, the base table or the list of b (which has room for them);
    delta = new - old.

    Neighbours in the list are far apart in the table, so that sums over it are independent.

    Arguments:
        a, b : node and edge attribute, -1: none
        rule : a `VisitRule`
        weights : a `Weights`
        move : a `Move`
    Cost: the candidates, and the list.
    Source: docs/SPEC.md, A.10.
    """
    n, n_edge, held, lists = move.n[0], np.int64(0), b == 0 and rule.base_holds, weights.lists
    for j in range(n):
        c, new = move.cell[j], move.number[NEW, j]
        d = new - move.number[OLD, j]
        if c < 0:
            weights.mu[a, -1 - c] = new
            move.delta_node[-1 - c] = d
            continue
        move.delta_edge[c >> SHIFT, c & LABEL] = d
        if held:
            weights.base_log[c >> SHIFT, c & LABEL] = new
        else:
            n_edge += 1 if new != 0.0 else 0
    if b < 0 or held:
        return
    place_list(b, n_edge, lists.row)
    e = lists.row[START, b]
    for first in range(STRIDE):
        for j in range(first, n, STRIDE):
            if move.cell[j] >= 0 and move.number[NEW, j] != 0.0:
                lists.cell[e], lists.value[e] = move.cell[j], move.number[NEW, j]
                e += 1


@kernel
def clear_block(a, b, rule, weights, move):
    """No candidates; old_edge and delta back to 0 after `load_block` and a step.

    Arguments:
        a, b : node and edge attribute, -1: none
        rule : a `VisitRule`
        weights : a `Weights`
        move : a `Move`
    Cost: as `load_block`.
    Source: none needed.
    """
    old_edge, lists = move.old_edge, weights.lists
    for j in range(move.n[0]):
        c = move.cell[j]
        if c < 0:
            move.delta_node[-1 - c] = 0.0
        else:
            move.delta_edge[c >> SHIFT, c & LABEL] = 0.0
            old_edge[c >> SHIFT, c & LABEL] = 0.0
    move.n[0] = 0
    if b == 0 and rule.base_holds:
        for yp in range(old_edge.shape[0]):
            for y in range(old_edge.shape[1]):
                old_edge[yp, y] = 0.0
    elif b >= 0:
        for e in range(lists.row[START, b], lists.row[START, b] + lists.row[SIZE, b]):
            old_edge[lists.cell[e] >> SHIFT, lists.cell[e] & LABEL] = 0.0


@kernel
def renew_tables(b, rule, blocks, tables, weights, work):
    """Tables of all classes that hold edge attribute b.

    Arguments:
        b : edge attribute
        rule : a `VisitRule`
        blocks : a `Blocks`
        tables : a `SharedTables`
        weights : a `Weights`
        work : a `LatticeWork`
    Cost: see `rebuild_classes`.
    Source: docs/SPEC.md, A.10.
    """
    if b == 0 and rule.base_holds:
        rebuild_base(weights.base_log, rule.n_labels, tables.base, tables.base_t, tables.level)
    if b >= 0:
        classes = blocks.classes[blocks.class_ptr[b] : blocks.class_ptr[b + 1]]
        rebuild_classes(classes, rule.dense_above, tables, weights, work)


@kernel
def missing_room(b, n, rule, blocks, tables, weights):
    """Free places that the pool of the classes must have before edge attribute b may have n weights;
    0 if both pools will do.

    Arguments:
        b : edge attribute
        n : number of weights
        rule : a `VisitRule`
        blocks : a `Blocks`
        tables : a `SharedTables`
        weights : a `Weights`
    Cost: the edge attributes of the classes of b.
    Source: docs/SPEC.md, A.10.
    """
    if b < 0 or (b == 0 and rule.base_holds):
        return 0
    lists, pool, need = weights.lists, tables.lists, 0
    for k in blocks.classes[blocks.class_ptr[b] : blocks.class_ptr[b + 1]]:
        most = n
        for j in range(tables.class_ptr[k], tables.class_ptr[k + 1]):
            most += lists.row[SIZE, tables.class_attr[j]]
        need += most + most // 4 if most > pool.row[ROOM, k] else 0
    if n + n // 4 > lists.cell.size - lists.row[START, lists.row.shape[1] - 1]:
        return max(1, need)
    return need if need > pool.cell.size - pool.row[START, pool.row.shape[1] - 1] else 0


@kernel
def judge(change, noise, trial, adaptive, model, factor):
    """Was the step good? Returns 1 and the factor of the next visit, or 0 and the factor of another trial.

    The adaptive rule wants  change of the loss <= grad . d + factor/2 sum h d^2, and learns the factor that
    would just have done.

    Arguments:
        change : change of the loss
        noise : what rounding may have added to it
        trial : number of the trial
        adaptive : 1: the rule is ADAPTIVE
        model : (3,) of `propose`
        factor : of the curvatures
    Cost: 1.
    Source: docs/SPEC.md, A.9.
    """
    if not adaptive:
        return 1, factor
    if trial == MAX_TRIALS - 1:  # the weights are what they were
        return 1, 1e3 * factor if factor < 1e6 else 2.0
    needed = (change - model[SLOPE]) / (0.5 * model[BEND])
    if change <= model[SLOPE] + 0.5 * factor * model[BEND] + noise:
        return 1, max(LEAST_FACTOR, min(factor, max(0.6 * factor, 1.25 * needed)))
    if not needed < math.inf:
        return 0, 10.0 * factor
    return 0, max(2.0 * factor, min(1.2 * needed, 100.0 * factor))


@kernel
def visit_blocks(order, start, only, rule, arrays):
    """Visits of blocks order[start:]; returns (place of the next, change of the objective,
    places that its pool needs before).

    A visit: gradient and curvature, candidates, steps until one is good. BY_PARTS instead of the places: a
    sequence is unsafe, or would become so; nothing has changed, the block is left to
    `VisitByParts`. Where rule.measure is 1, nothing moves: arrays.seen tells how far the conditions
    of optimality are violated.

    Arguments:
        order : int32 (n,)
        start : first place in order
        only : as in `candidates`
        rule : a `VisitRule`
        arrays : a `VisitArrays`
    Cost: see `block_gradient`; a step: `renew_tables`, and a product a row between the first and the last
    occurrence.
    Source: Sokolovska et al. (2010), Algorithm 2; docs/SPEC.md, A.9, A.10.
    """
    blocks, lattices, tables, weights = arrays.blocks, arrays.lattices, arrays.tables, arrays.weights
    sums, move, work, number, log_z = arrays.sums, arrays.move, arrays.work, arrays.number, arrays.log_z
    count, total, adaptive = arrays.count, 0.0, rule.step == ADAPTIVE
    for place in range(start, order.size):
        g = np.int64(order[place])  # int() keeps 32 bits, and a kernel is compiled for each kind of integer
        a, b = np.int64(blocks.member[0, g]), np.int64(blocks.member[1, g])
        first, last = blocks.visit_ptr[g], blocks.visit_ptr[g + 1]
        visited, low = blocks.visit_seq[first:last], blocks.visit_low[first:last]
        high = blocks.visit_high[first:last]
        empty = load_block(a, b, rule, weights, move) == 0 and rule.screening
        if empty and number[LIMIT, g] <= rule.c1:
            count[SCREENED] += 1
            continue
        unsafe, n, missing = extend(visited, low, high, np.int64(0), lattices, tables, work), 0, 0
        if unsafe:
            missing = BY_PARTS
        elif empty and gold_doubt(g, rule.c1, blocks, lattices, tables) <= rule.c1:
            count[SCREENED] += 1
            continue
        else:
            from_, to = blocks.occ_ptr[first], blocks.occ_ptr[last]
            block_gradient(g, from_, to, rule.repeats, blocks, lattices, tables, sums, work)
            count[PASSES] += last - first
            n = candidates(a, b, only, rule, weights, arrays.exist, sums, move, arrays.seen)
        if n > 0 and not rule.measure:
            missing = missing_room(b, n, rule, blocks, tables, weights)
            scale_curvatures(rule, number[SAFE_CURVE, g], sums, move)
        noise, trial = keep_log_z(visited, lattices.log_z, log_z), np.int64(0)
        factor = number[FACTOR, g] if adaptive else rule.factor
        while n > 0 and missing == 0 and not rule.measure:
            back = unsafe or trial == MAX_TRIALS - 1  # to the weights as they were
            propose(n, math.inf if back else factor, rule.c1, rule.c2, move.number, move.model)
            if move.model[BEND] == 0.0 and trial == 0:
                break
            write_block(a, b, rule, weights, move)
            renew_tables(b, rule, blocks, tables, weights, work)
            change = -mark_change(g, blocks, lattices, move)
            score_rows(blocks.score_row[blocks.score_ptr[g] : blocks.score_ptr[g + 1]], weights.mu, lattices)
            if unsafe:
                missing = BY_PARTS
                for v in range(last - first):
                    lattices.log_z[visited[v]] = log_z[v]
                break
            if adaptive:
                unsafe = extend(visited, high, high, np.int64(1), lattices, tables, work)
                change += log_z_change(visited, lattices.weight, lattices.log_z, log_z)
                count[STEP_PASSES] += last - first
            good, factor = judge(change, noise, trial, adaptive, move.model, factor)
            trial += 1
            if good and not unsafe:
                total += change + move.model[PENALTY]
                number[FACTOR, g] = factor
                break
        clear_block(a, b, rule, weights, move)
        if missing:
            return place, total, missing
    return order.size, total, 0


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

    def visit(self, g, only, rule, arrays):
        """`visit_blocks` for block g alone: (change of the objective, places that its pool needs before)."""
        blocks, weights, move, count = arrays.blocks, arrays.weights, arrays.move, arrays.count
        (a, b), visits = blocks.member[:, g].tolist(), slice(*blocks.visit_ptr[g : g + 2].tolist())
        visited, low, high = blocks.visit_seq[visits], blocks.visit_low[visits], blocks.visit_high[visits]
        try:
            empty = load_block(a, b, rule, weights, move) == 0 and rule.screening
            if empty and arrays.number[LIMIT, g] <= rule.c1:
                count[SCREENED] += 1
                return 0.0, 0
            self.extend(visited, low, high, 0, arrays)
            if empty and gold_doubt(g, rule.c1, blocks, arrays.lattices, arrays.tables) <= rule.c1:
                count[SCREENED] += 1
                return 0.0, 0
            self.gradient(g, rule, arrays)
            count[PASSES] += len(visited)
            n = candidates(a, b, only, rule, weights, arrays.exist, arrays.sums, move, arrays.seen)
            if n == 0 or rule.measure:
                return 0.0, 0
            if missing := missing_room(b, n, rule, blocks, arrays.tables, weights):
                return 0.0, missing
            self.curvatures(g, rule, arrays)
            return self._step(g, n, visited, high, rule, arrays), 0
        except BaseException:  # Ctrl-C: a step that was not judged must not stay
            if move.n[0]:  # `renew` brings tables and lattices after it
                propose(int(move.n[0]), math.inf, rule.c1, rule.c2, move.number, move.model)
                write_block(a, b, rule, weights, move)
            raise
        finally:
            clear_block(a, b, rule, weights, move)

    def _step(self, g, n, visited, high, rule, arrays):
        """Steps of the n candidates until one is good; returns the change of the objective."""
        blocks, lattices, tables, weights = arrays.blocks, arrays.lattices, arrays.tables, arrays.weights
        move, number, a, b = arrays.move, arrays.number, *blocks.member[:, g].tolist()
        score_row = blocks.score_row[slice(*blocks.score_ptr[g : g + 2])]
        noise, adaptive = keep_log_z(visited, lattices.log_z, arrays.log_z), rule.step == ADAPTIVE
        factor = number[FACTOR, g] if adaptive else rule.factor
        for trial in range(MAX_TRIALS):
            back = trial == MAX_TRIALS - 1  # to the weights as they were
            propose(n, math.inf if back else factor, rule.c1, rule.c2, move.number, move.model)
            if move.model[BEND] == 0.0 and trial == 0:
                break
            write_block(a, b, rule, weights, move)
            renew_tables(b, rule, blocks, tables, weights, arrays.work)
            change = -mark_change(g, blocks, lattices, move)
            score_rows(score_row, weights.mu, lattices)
            if adaptive:
                self.extend(visited, high, high, 1, arrays)
                change += log_z_change(visited, lattices.weight, lattices.log_z, arrays.log_z)
                arrays.count[STEP_PASSES] += len(visited)
            good, factor = judge(change, noise, trial, adaptive, move.model, factor)
            if good:
                number[FACTOR, g] = factor
                return change + move.model[PENALTY]
        return 0.0

    def extend(self, sequences, low, high, measure, arrays):
        """`extend` of lattice.py, on several threads; log Z in logarithms where that has none."""
        lattices, tables = arrays.lattices, arrays.tables
        alone = self.n_threads == 1 or len(sequences) < ALONE

        def betas(work, which):
            work.steps[0] += extend_betas(sequences[which], low[which], lattices, tables, work.right)

        def alphas(work, which):
            work.steps[0] += extend_alphas(sequences[which], high[which], measure, lattices, tables)

        for task, group in zip((betas, alphas), self.groups, strict=True):
            if alone:
                task(self.works[0], slice(None))
                continue
            mine = [group[sequences] == s for s in range(SHARDS)]
            run_tasks(lambda s, task=task, mine=mine: task(self.works[s], mine[s]), SHARDS, self.n_threads)
        if measure:
            close_unsafe(sequences, lattices, tables, arrays.weights)

    def gradient(self, g, rule, arrays):
        """`block_gradient`: in shards where the block is large; unsafe sequences in logarithms."""
        blocks, lattices, tables, sums = arrays.blocks, arrays.lattices, arrays.tables, arrays.sums
        first, last = blocks.visit_ptr[g : g + 2].tolist()
        alone = last - first < ALONE  # at once, as `visit_blocks` does
        cuts = np.linspace(blocks.occ_ptr[first], blocks.occ_ptr[last], 2 if alone else SHARDS + 1).astype(
            np.int64
        )

        def shard(s, sums):
            low, high = cuts[s : s + 2].tolist()
            block_gradient(g, low, high, rule.repeats, blocks, lattices, tables, sums, self.works[s])

        if alone:
            shard(0, sums)
        else:
            run_tasks(lambda s: shard(s, self.sums[s]), SHARDS, self.n_threads)
            for out, *parts in zip(sums, *self.sums, strict=True):
                out[:] = add_tree(np.stack(parts))
        if lattices.place[UNSAFE, blocks.visit_seq[first:last]].any():
            add_unsafe(g, rule.repeats, blocks, lattices, tables, arrays.weights, sums)

    def curvatures(self, g, rule, arrays):
        """`scale_curvatures`, after the exact ones where the rule says so."""
        if rule.exact:
            exact_curvature(g, arrays.blocks, arrays.lattices, arrays.tables, arrays.weights, arrays.move)
        scale_curvatures(rule, arrays.number[SAFE_CURVE, g], arrays.sums, arrays.move)


def marginals_plain(i, corpus, mu, nu):
    """p[t, y] (T, L) and q[t, yp, y] (T, L, L): probabilities of labels, and of labels with the one before,
    at the tokens of sequence i; q[0] is 0.

        u[t, y] = sum_a x[t, a] mu[a, y],  v[t, yp, y] = sum of nu[b, yp, y] over the edge attributes b of t

    Source: Sokolovska et al. (2010), eq. (3), (9).
    """
    tokens = range(*corpus.seq_ptr[i : i + 2])
    u, v = np.zeros((len(tokens), mu.shape[1])), np.zeros((len(tokens), *nu.shape[1:]))
    for t, token in enumerate(tokens):
        held, k = slice(*corpus.attr_ptr[token : token + 2]), corpus.edge_class[token]
        u[t] = corpus.values[held] @ mu[corpus.attr_idx[held]]
        v[t] = nu[corpus.class_attr[slice(*corpus.class_ptr[k : k + 2])]].sum(axis=0)
    _, p = plain_marginals(np.concatenate([u.ravel(), v.ravel()]), mu.shape[1])
    return plain_tables(p, mu.shape[1])


def block_sums_plain(a, b, corpus, mu, nu):
    """(expected, curvature, gold) of the weights of block (a, b): node (3, L) and edge (3, L, L), from the
    sequences that hold its symbol and from no other.

        expected = sum_t w x p,  curvature = sum_t w x^2 p (1 - p),  gold = sum_t w x 1{y_t = y}

    over the occurrences t of the symbol, w the weight of the sequence; likewise of pairs, where x is 1.
    Source: Sokolovska et al. (2010), eq. (5), (16).
    """
    n_labels = mu.shape[1]
    node, edge = np.zeros((3, n_labels)), np.zeros((3, n_labels, n_labels))
    one = np.eye(n_labels)
    for i, (begin, end) in enumerate(zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True)):
        x, holds = np.zeros(end - begin), np.zeros(end - begin, bool)
        for t, k in enumerate(corpus.edge_class[begin:end]):
            held = slice(*corpus.attr_ptr[begin + t : begin + t + 2])
            x[t] = corpus.values[held] @ (corpus.attr_idx[held] == a)
            holds[t] = t > 0 and b in corpus.class_attr[slice(*corpus.class_ptr[k : k + 2])]
        if not (x.any() or holds.any()):
            continue
        p, q = marginals_plain(i, corpus, mu, nu)
        y, w = corpus.labels[begin:end], corpus.weights[i]
        node += w * np.stack([x @ p, x**2 @ (p - p**2), x @ one[y]])
        for t in np.flatnonzero(holds):
            edge += w * np.stack([q[t], q[t] - q[t] ** 2, np.outer(one[y[t - 1]], one[y[t]])])
    return node, edge


def sweep_plain(blocks, corpus, mu, nu, c1, c2, factor):
    """One sweep of Algorithm 2: the readable sister of `visit_blocks`, with the rule FIXED and all weights.

        h = factor curvature,  g = expected - gold,  w = S(h w - g, c1) / (h + 2 c2)
        S(z, c) = sign(z) max(|z| - c, 0)

    for all weights w of a block at once.

    Arguments:
        blocks : pairs (node attribute a, edge attribute b), -1: none
        corpus : a `Corpus`, labelled
        mu : (A, L), weights of node attributes, changed in place
        nu : (B, L, L), weights of edge attributes, changed in place
        c1, c2 : penalties
        factor : of the curvatures
    Source: Sokolovska et al. (2010), Algorithm 2, eq. (13), (14).
    """
    for a, b in blocks:
        for k, weights, sums in zip((a, b), (mu, nu), block_sums_plain(a, b, corpus, mu, nu), strict=True):
            if k >= 0:
                expected, h, gold = sums
                h, g = factor * np.maximum(h, 1e-12), expected - gold  # gamma h of (14)
                z = h * weights[k] - g
                weights[k] = np.sign(z) * np.maximum(np.abs(z) - c1, 0.0) / (h + 2.0 * c2)
