"""Blockwise coordinate descent: the visit of a block, and a sweep over many.

Sokolovska, Lavergne, Cappe and Yvon (2010), Algorithm 2 (and 1: a block of which only one weight may move).
`state` is a State and `rule` a Rule of state.py: everything that a visit reads and changes. Its stages
see gradient.py and step.py. The visit is written here and nowhere else:
stages.py has Python run this source, with stages that no kernel can do.
"""

import math

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.coordinate.gradient import block_gradient, gold_doubt
from crfbook.learners.coordinate.lattice import extend, keep_log_z, log_z_change, mark_change, score_rows
from crfbook.learners.coordinate.step import (
    ADAPTIVE,
    BEND,
    PENALTY,
    SLOPE,
    candidates,
    clear_block,
    load_block,
    propose,
    renew_tables,
    scale_curvatures,
    write_block,
)
from crfbook.learners.coordinate.tables import START, room_for_classes

MAX_TRIALS = 60
LEAST_FACTOR = 0.1  # of the adaptive rule
FACTOR, LIMIT, SQUARE = 0, 1, 2  # rows of State.number
PASSES, STEP_PASSES, SCREENED = 0, 1, 2  # places of State.count
BY_STAGES = -1


@kernel
def missing_room(b, n, rule, blocks, tables, weights):
    """Free places that the pool of the classes must have before edge attribute b may have n weights;
    0 if both pools will do.

    Arguments: b; n; rule; blocks; tables; weights. Cost: the classes of b. Source: docs/SPEC.md, A.10.
    """
    if b < 0 or (b == 0 and rule.base_holds):
        return 0
    classes, row = blocks.classes[blocks.class_ptr[b] : blocks.class_ptr[b + 1]], tables.lists.row
    lists = weights.lists
    need = room_for_classes(classes, n, tables.class_ptr, tables.class_attr, row, lists.row)
    if n + n // 4 > lists.cell.size - lists.row[START, lists.row.shape[1] - 1]:
        return max(1, need)
    return need if need > tables.lists.cell.size - row[START, row.shape[1] - 1] else 0


@kernel
def judge(change, noise, trial, adaptive, model, factor):
    """Was the step good? Returns 1 and the factor of the next visit, or 0 and the factor of another trial.

    The adaptive rule wants  change of the loss <= grad . d + factor/2 sum h d^2, and learns the factor that
    would just have done. Arguments: change, of the loss; noise: of rounding in it; trial; adaptive; model
    (3,) of `propose`; factor. Cost: 1. Source: docs/SPEC.md, A.9.
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
def visit_blocks(order, start, only, rule, state):
    """Visits of blocks order[start:]; returns (place of the next, change of the objective,
    places that its pool needs before).

    A visit: gradient and curvature, candidates, steps until one is good. BY_STAGES instead of the places: a
    sequence is unsafe, or would become so; nothing has changed, the block is left to
    stages.py. Where rule.measure is 1, nothing moves: state.seen tells how far the conditions
    of optimality are violated. Arguments: order int32 (n,); start; only as in `candidates`; rule; state.
    Cost: see `block_gradient`; a step: `renew_tables`, and a product a row between the first and the last
    occurrence. Source: Sokolovska et al. (2010), Algorithm 2; docs/SPEC.md, A.9, A.10.
    """
    blocks, chains, tables, weights = state.blocks, state.chains, state.tables, state.weights
    sums, move, work, number, log_z = state.sums, state.move, state.work, state.number, state.log_z
    count, total, adaptive = state.count, 0.0, rule.step == ADAPTIVE
    for place in range(start, order.size):
        g = np.int64(order[place])  # int() keeps 32 bits, and a kernel is compiled for each kind of integer
        a, b, first = np.int64(blocks.member[0, g]), np.int64(blocks.member[1, g]), blocks.visit_ptr[g]
        last = blocks.visit_ptr[g + 1]
        visited, low, high = (
            blocks.visit_seq[first:last],
            blocks.visit_low[first:last],
            blocks.visit_high[first:last],
        )
        empty = load_block(a, b, rule, weights, move) == 0 and rule.screening
        if empty and number[LIMIT, g] <= rule.c1:
            count[SCREENED] += 1
            continue
        unsafe, n, missing = extend(visited, low, high, np.int64(0), chains, tables, work), 0, 0
        if unsafe:
            missing = BY_STAGES
        elif empty and gold_doubt(g, rule.c1, blocks, chains, tables) <= rule.c1:
            count[SCREENED] += 1
            continue
        else:
            from_, to = blocks.occ_ptr[first], blocks.occ_ptr[last]
            block_gradient(g, from_, to, rule.repeats, blocks, chains, tables, sums, work)
            count[PASSES] += last - first
            n = candidates(a, b, only, rule, weights, state.exist, sums, move, state.seen)
        if n > 0 and not rule.measure:
            missing = missing_room(b, n, rule, blocks, tables, weights)
            scale_curvatures(rule, number[SQUARE, g], sums, move)
        noise, trial = keep_log_z(visited, chains.log_z, log_z), np.int64(0)
        factor = number[FACTOR, g] if adaptive else rule.factor
        while n > 0 and missing == 0 and not rule.measure:
            back = unsafe or trial == MAX_TRIALS - 1  # to the weights as they were
            propose(n, math.inf if back else factor, rule.c1, rule.c2, move.number, move.model)
            if move.model[BEND] == 0.0 and trial == 0:
                break
            write_block(a, b, rule, weights, move)
            renew_tables(b, rule, blocks, tables, weights, work)
            change = -mark_change(g, blocks, chains, move)
            score_rows(blocks.score_row[blocks.score_ptr[g] : blocks.score_ptr[g + 1]], weights.mu, chains)
            if unsafe:
                missing = BY_STAGES
                for v in range(last - first):
                    chains.log_z[visited[v]] = log_z[v]
                break
            if adaptive:
                unsafe = extend(visited, high, high, np.int64(1), chains, tables, work)
                change += log_z_change(visited, chains.weight, chains.log_z, log_z)
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
