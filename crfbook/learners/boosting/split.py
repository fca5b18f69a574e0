"""A closed form that the longest sequence does not spoil: what a feature gains and what it loses,
bounded apart.

Write phi = A - B: A is the count of feature k where the gold labelling has it not, B that of the gold
labelling where y has it not. With 0 <= A <= more and 0 <= B <= less, e^{DA} and e^{-DB} lie below their
chords, 1 + A (e^{D more} - 1) / more and 1 + B (e^{-D less} - 1) / less. In the product of the chords the
term with A B is negative or 0, whatever the sign of D, so

    L(w + D e_k)  <=  L + P (e^{D more} - 1) / more + Q (e^{-D less} - 1) / less
    P = sum_i g_i E[A],  Q = sum_i g_i E[B]

(g_i = weight_i / p_i; P - Q = dL/dw_k). A labelling that leaves the feature as it is costs nothing here, and
sequences without the feature drop out; on the chord from low to high, in features.py, both cost more
than e^0 = 1. For more = less = 1 it is the bound of AdaBoost and of Collins, Schapire and Singer (2002),
exact for each sequence.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.boosting.features import BLOCK, EDGE


@kernel
def split_step(plus, minus, more, less, cap):
    """(D, decrease >= 0): D = log(Q / P) / (more + less) minimises the bound above; decrease = L - bound,
    in the unit of P and Q.

    Beyond |D| > cap, or where e^{D phi} could exceed 1 / EDGE, D ends there. more = 0 or less = 0: only `cap`
    ends the step, so none is taken (D = 0) if it is infinite.
    Arguments: plus, minus = P, Q >= 0; more, less >= 0; cap > 0. Cost: a logarithm, 2 exps. Source: the bound
    above; chapter 05.
    """
    upper = -np.log(EDGE) / more if more > 0.0 else np.inf
    lower = -np.log(EDGE) / less if less > 0.0 else np.inf
    upper, lower = min(upper, cap), min(lower, cap)
    if minus > plus:
        D = min(np.log(minus / plus) / (more + less), upper) if plus > 0.0 else upper
    elif plus > minus:
        D = -min(np.log(plus / minus) / (more + less), lower) if minus > 0.0 else -lower
    else:
        return 0.0, 0.0
    if not abs(D) < np.inf:
        return 0.0, 0.0
    change = minus * np.expm1(-D * less) / less if less > 0.0 else 0.0
    if more > 0.0:
        change += plus * np.expm1(D * more) / more
    return D, max(-change, 0.0)


@kernel
def split_of_slot(s, cap, index, state):
    """`split_step` of the feature that has slot s: (D, decrease). Arguments: s; cap; index, state as in
    `select_split`. Cost: that of `split_step`. Source: chapter 05.
    """
    k, plus, minus = index.slot_feature[s], max(state.sums[s, 0], 0.0), max(state.sums[s, 1], 0.0)
    return split_step(plus, minus, index.most[k], -index.low[k], cap)


@kernel
def select_split(cap, index, state):
    """(k, D, decrease) of the feature with the largest decrease, exactly; k = -1 if there is none.

    The decrease depends on P_k and Q_k alone, not on the loss of other sequences: the best slot of a block
    stays the best until a sum of the block changes. Ties go to the smallest slot.
    Arguments: cap; index: slots, most and low (more and -less of a feature); state: sums (P, Q); its
    block_high (the largest decrease), block_slot and stale are brought up to date. Cost: n / BLOCK, BLOCK
    closed forms for a stale block. Source: docs/SPEC.md, E.5, inverted index.
    """
    best, at = 0.0, np.int64(-1)
    for b in range(index.group_ptr[-1]):
        if state.stale[b]:
            state.stale[b] = 0
            state.block_high[b] = 0.0
            for s in range(b * BLOCK, (b + 1) * BLOCK):
                if index.slot_feature[s] >= 0 and state.sums[s, 0] != state.sums[s, 1]:
                    _, decrease = split_of_slot(s, cap, index, state)
                    if decrease > state.block_high[b]:
                        state.block_high[b], state.block_slot[b] = decrease, s
        if state.block_high[b] > best:
            best, at = state.block_high[b], state.block_slot[b]
    if at < 0:
        return at, 0.0, 0.0
    step, decrease = split_of_slot(at, cap, index, state)
    return index.slot_feature[at], step, decrease
