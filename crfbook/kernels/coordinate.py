"""Blockwise coordinate descent: one visit of a block, and a sweep over many.

Sokolovska, Lavergne, Cappe and Yvon (2010), Algorithm 2 (and 1: a block of which only one weight may move). `state` is a State and `rule` a
Rule of optim/chains.py: everything that a visit reads and changes. Its stages see coordinate_gradient.py and coordinate_step.py.
"""

import math

from crfbook._jit import kernel
from crfbook.kernels.coordinate_exact import exact_curvature
from crfbook.kernels.coordinate_gradient import block_gradient, clear_sums, gold_doubt
from crfbook.kernels.coordinate_lattice import extend, mark_change, score_rows
from crfbook.kernels.coordinate_step import (
    candidates,
    clear_block,
    load_block,
    propose,
    renew_tables,
    scale_curvatures,
    write_block,
)
from crfbook.kernels.coordinate_tables import START, room_for_classes

MAX_TRIALS = 60
FACTOR, LIMIT, SQUARE = 0, 1, 2  # rows of State.number
PASSES, STEP_PASSES, SCREENED = 0, 1, 2  # places of State.count
BY_STAGES = -1


@kernel
def missing_room(b, n, blocks, tables, weights):
    """Free places that the pool of the classes must have before edge attribute b may have n weights; 0 if both pools will do.

    Arguments: b; n; blocks; tables; weights. Cost: the classes of b. Source: spec A.10.
    """
    classes, row = blocks.classes[blocks.class_ptr[b] : blocks.class_ptr[b + 1]], tables.lists.row
    need = room_for_classes(classes, n, tables.class_ptr, tables.class_attr, row, weights.row)
    if n + n // 4 > weights.cell.size - weights.row[START, weights.row.shape[1] - 1]:
        return max(1, need)
    return need if need > tables.lists.cell.size - row[START, row.shape[1] - 1] else 0


@kernel
def judge(change, noise, trial, adaptive, least, model, factor):
    """Was the step good? Returns 1 and the factor of the next visit, or 0 and the factor of another trial.

    The adaptive rule wants  change of the loss <= grad . d + factor/2 sum h d^2, and learns the factor that would just have done.
    Arguments: change, of the loss; noise: of rounding in it; trial; adaptive; least; model (3,) of `propose`; factor. Cost: 1. Source: spec A.9.
    """
    if not adaptive:
        return 1, factor
    if trial == MAX_TRIALS - 1:  # the weights are what they were
        return 1, 1e3 * factor if factor < 1e6 else 2.0
    needed = (change - model[0]) / (0.5 * model[1])
    if change <= model[0] + 0.5 * factor * model[1] + noise:
        return 1, max(least, min(factor, max(0.6 * factor, 1.25 * needed)))
    if not needed < math.inf:
        return 0, 10.0 * factor
    return 0, max(2.0 * factor, min(1.2 * needed, 100.0 * factor))


@kernel
def renew_lattices(g, measure, state):
    """After a change of block g: scores of its tokens, alpha as far as its last occurrence; (change of the loss if measure, else 0;
    how many of its sequences are unsafe).

    change = sum_i weight_i (log Z_i - log_z[i]) - change of the gold scores.
    Arguments: g; measure; state. Cost: a product a row between the first and the last occurrence. Source: spec A.9, A.10.
    """
    blocks, chains = state.blocks, state.chains
    first, last = blocks.visit_ptr[g], blocks.visit_ptr[g + 1]
    total = -mark_change(g, blocks, chains, state.delta_node, state.delta_edge)
    score_rows(blocks.score_row[blocks.score_ptr[g] : blocks.score_ptr[g + 1]], state.mu, chains)
    if not measure:
        return 0.0, 0
    high = blocks.visit_high[first:last]
    unsafe = extend(blocks.visit_seq[first:last], high, high, chains, state.tables, state.work)
    for v in range(first, last):
        i = blocks.visit_seq[v]
        total += chains.weight[i] * (chains.log_z[i] - state.log_z[v - first])
    return total, unsafe


@kernel
def take_step(g, n, rule, state):
    """Steps of block g with n candidates until one is good; returns (change of the objective, of the adaptive rule; 1: it was given up).

    It is given up, and nothing changes, where a sequence becomes unsafe.
    Arguments: g; n; rule; state. Cost: see `renew_tables`, `renew_lattices`. Source: Sokolovska et al. (2010), eq. (13), (14); spec A.9.
    """
    blocks, tables, weights, found, adaptive, noise, change = state.blocks, state.tables, state.weights, state.found, rule.step == 0, 0.0, 0.0
    a, b, first, last = blocks.member[0, g], blocks.member[1, g], blocks.visit_ptr[g], blocks.visit_ptr[g + 1]
    factor, trial, unsafe = state.number[FACTOR, g] if adaptive else rule.factor, 0, 0
    for v in range(last - first):
        state.log_z[v] = state.chains.log_z[blocks.visit_seq[first + v]]
        noise += 1e-14 * abs(state.log_z[v])
    while trial < MAX_TRIALS or unsafe:
        propose(n, factor if trial < MAX_TRIALS - 1 and not unsafe else math.inf, rule.c1, rule.c2, found.number, state.model)
        if state.model[1] == 0.0 and trial == 0:
            return 0.0, 0
        write_block(a, b, n, rule.base_holds, state.mu, tables.base_log, weights, found, state.delta_node, state.delta_edge)
        renew_tables(b, rule.base_holds, rule.dense_above, blocks, tables, weights, state.work)
        given_up = unsafe > 0
        change, unsafe = renew_lattices(g, adaptive and not given_up, state)
        if given_up:
            return 0.0, 1
        state.count[STEP_PASSES] += last - first if adaptive else 0
        trial += 1
        if unsafe == 0:
            good, factor = judge(change, noise, trial - 1, adaptive, rule.least_factor, state.model, factor)
            if good:
                break
    if adaptive:
        state.number[FACTOR, g] = factor
    return change + state.model[2], 0


@kernel
def visit_blocks(order, start, only, rule, state):
    """Visits of blocks order[start:]; returns (place of the next, change of the objective, places that its pool needs before).

    BY_STAGES instead of the places: a sequence is or becomes unsafe, the block is left to optim/coordinate_large.py.
    Where rule.measure is 1, nothing moves: state.seen tells how far the conditions of optimality are violated.
    Arguments: order int32 (n,); start; only as in `candidates`; rule; state. Cost: see `block_gradient`, `take_step`.
    Source: Sokolovska et al. (2010), Algorithm 2.
    """
    blocks, tables, weights, found, total = state.blocks, state.tables, state.weights, state.found, 0.0
    for place in range(start, order.size):
        g = order[place]
        a, b, first, last = blocks.member[0, g], blocks.member[1, g], blocks.visit_ptr[g], blocks.visit_ptr[g + 1]
        n_active = load_block(a, b, rule.base_holds, state.mu, tables.base_log, weights, state.old_edge)
        empty = rule.screening and n_active == 0
        if empty and state.number[LIMIT, g] <= rule.c1:
            state.count[SCREENED] += 1
            continue
        n, missing = 0, 0
        if extend(
            blocks.visit_seq[first:last], blocks.visit_low[first:last], blocks.visit_high[first:last], state.chains, tables, state.work
        ):  # fmt: skip
            missing = BY_STAGES
        elif empty and gold_doubt(g, rule.c1, blocks, state.chains, tables) <= rule.c1:
            state.count[SCREENED] += 1
            continue
        else:
            clear_sums(state.sums)
            block_gradient(
                g, blocks.occ_ptr[first], blocks.occ_ptr[last], rule.repeats, blocks, state.chains, tables, state.sums, state.work
            )
            state.count[PASSES] += last - first
            n = candidates(
                a, b, rule.c1, rule.c2, only, rule.frozen, rule.step == 0, rule.n_labels, state.mu, state.old_edge, state.exist,
                state.sums, found, state.seen,
            )  # fmt: skip
        held = b < 0 or (b == 0 and rule.base_holds)
        if n > 0 and not held and not rule.measure:
            missing = missing_room(b, n, blocks, tables, weights)
        if n > 0 and missing == 0 and not rule.measure:
            if rule.exact:
                exact_curvature(g, n, blocks, state.chains, tables, state.mu, weights, found)
            scale_curvatures(n, rule, state.number[SQUARE, g], state.sums, found)
            change, given_up = take_step(g, n, rule, state)
            total += change
            missing = BY_STAGES if given_up else 0
        clear_block(b, n, rule.base_holds, weights, found, state.old_edge, state.delta_node, state.delta_edge)
        if missing:
            return place, total, missing
    return order.size, total, 0
