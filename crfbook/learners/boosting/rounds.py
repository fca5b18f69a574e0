"""Rounds of boosting: which weight moves next, by how much, and what changes with it.

**Which weight**, under one of two bounds in closed form.

L(w) = sum_i weight_i (1/p_i - 1), p_i = p(y_i | x_i), is the sequential exp loss. With phi = S_k(x_i, y) -
S_k(x_i, y_i), the count of feature k in a labelling minus its count in the gold one, and low_k <= phi <=
high_k for all i and y, convexity of exp gives for a step D of weight k

    L(w + D e_k) / L(w)  <=  B_k(D) = (1 - a) e^{D low} + a e^{D high}
    a = (m - low) / (high - low),   m = (dL/dw_k) / L.

B_k is a two-point moment generating function, so its least logarithm is a relative entropy (Chernoff's
bound): -log min_D B_k(D) = KL(q || a), the distance of a from q = -low / (high - low), where the mean would
be 0. Source of all of it: Altun, Johnson and Hofmann (2003), section 5.2.

The longest sequence makes that bound loose. A bound without this defect separates what a feature gains and
what it loses. Write phi = A - B: A is the count of feature k at places where the gold labelling does not have
it, B is its count in the gold labelling at places where y does not have it. With 0 <= A <= more and 0 <= B <=
less, e^{DA} and e^{-DB} lie below their chords, 1 + A (e^{D more} - 1) / more and 1 + B (e^{-D less} - 1) /
less. In the product of the chords the term with A B is negative or 0, whatever the sign of D, so

    L(w + D e_k)  <=  L + P (e^{D more} - 1) / more + Q (e^{-D less} - 1) / less
    P = sum_i g_i E[A],  Q = sum_i g_i E[B]

(g_i = weight_i / p_i; P - Q = dL/dw_k). A labelling that leaves the feature as it is costs nothing here, and
sequences without the feature drop out; on the chord from low to high both cost more than e^0 = 1. For more =
less = 1 it is the bound of AdaBoost and of Collins, Schapire and Singer (2002), exact for each sequence.

**How far**: each sequence has its own extremes of the feature's count.

With extremes over the whole corpus, the longest sequence limits the step of a frequent feature. The same
bound holds for each sequence by itself, with smaller extremes. There is no closed form then, but a sum

    f(D) = rest + sum_i c_i e^{D low_i} + d_i e^{D high_i},   f(0) = L,   f(D) >= the loss after the step.

From the chord over [low_i, high_i] of Altun, Johnson and Hofmann (2003), section 5.2, with the loss L_i of
sequence i and its derivative M_i: c_i = (high_i L_i - M_i) / (high_i - low_i),  d_i = (M_i - low_i L_i) /
(high_i - low_i). From gains and losses apart: c_i = Q_i / less_i with low_i = -less_i,
d_i = P_i / more_i with high_i = more_i. A sequence that is inactive enters as e^{ceiling_i + |D| (most that
phi can move)}, so that a step accounts for those that it makes active.

**What changes** when one weight changes.

Sequence i adds g_i (E[S_k | x_i] - S_k(x_i, y_i)), g_i = weight_i / p_i, to dL/dw_k. What it added last is
kept per token (`cell`) and per label pair (`edge_cell`), so that a visit adds the difference.
Everything is in units of e^{log_ref}.

Most sequences need no visit, by proof. u_i = -log p_i after a step D of feature k is at most u_i + max_y D
phi_i(y). An inactive sequence keeps such a ceiling of log g_i, raised by each step that concerns it. It
becomes active when the ceiling reaches log L + log share - log S, so all inactive ones together hold less
than `share` of L. share is a thousandth of the least decrease (relative) that a round has promised so far, at
most 1e-3 and at least 1e-9. It also limits the rounding of the sums (`boost_rounds`); so m_k, relative to the
largest counts, and L are known to two shares.

The NamedTuples `data` (BoostData), `index` (BoostIndex), `state` (BoostState) of learner.py and `work` (a
SequenceWork of chain/token_layout.py) list their arrays with shapes.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import (
    bound_nodes,
    feature_matrix,
    path_indicator,
    plain_loss,
    plain_viterbi,
    sequence_marginals,
    subtract_gold,
)

BLOCK = 64  # slots whose largest and smallest sum are kept together
LOG_REF, TOTAL, DRIFT, SHARE, FLOOR = 0, 1, 2, 3, 4  # places in state.number, see BoostState
VISITS, TOKENS, ROUNDS, GIVEN = 0, 1, 2, 3  # places in state.count
GLOBAL, INSTANCE, SPLIT = 0, 1, 2  # which bound
EDGE = 1e-6  # a is held this far from 0 and 1: the step stays finite, and no e^{D phi} exceeds 1e6

# rows of `parts`: P_i, Q_i, L_i (inactive: -e^ceiling), low_i, high_i, more_i
GAIN, LOSS, MASS, LOW, HIGH, MORE = 0, 1, 2, 3, 4, 5
LONGEST = 100.0  # a step, where nothing else ends it

SLACK, LEAST_SHARE = 1e-3, 1e-9  # of the loss, see above
PAUSED, CONVERGED, DRIFTED, AT_FLOOR, NOT_FINITE = 0, 1, 2, 3, 4  # why `boost_rounds` returns
HYSTERESIS = 3.0  # nats: an active sequence becomes inactive only so far below the limit


@kernel
def best_step(m, low, high, cap):
    """(D, gain): the step that minimises B_k(D), and gain = -log B_k(D) >= 0 in nats,
    the certain decrease of log L.

    D = log( q (1 - a) / (a (1 - q)) ) / (high - low),  gain = q log(q/a) + (1 - q) log((1 - q)/(1 - a)).
    Beyond |D| > cap, D = +-cap and the gain is what B_k is there (B_k is convex). With low = 0 or high = 0
    the minimiser is infinite: such a feature takes steps of size cap, or none (gain 0) if cap is infinite.
    Moving a off 0 and 1 raises B_k for the sign of D that is chosen there, so that the bound remains one.

    Arguments:
        m : in [low, high], the mean of phi
        low, high : extremes of phi, low <= 0 <= high
        cap : > 0, largest |step|
    Cost: 3 logarithms.
    Source: Altun, Johnson and Hofmann (2003), section 5.2; KL form: chapter 05.
    """
    span = high - low
    if low < 0.0 < high:
        q = -low / span
        d = min(max(m / span, EDGE - q), 1.0 - EDGE - q)  # a - q
        step = np.log((1.0 - q - d) * q / ((q + d) * (1.0 - q))) / span
        if abs(step) <= cap:
            return step, -q * np.log1p(d / q) - (1.0 - q) * np.log1p(-d / (1.0 - q))
    if cap == np.inf or m == 0.0 or span == 0.0:
        return 0.0, 0.0
    step = cap if m < 0.0 else -cap
    return step, -np.log(((high - m) * np.exp(step * low) + (m - low) * np.exp(step * high)) / span)


@kernel
def select_feature(cap, index, state):
    """(k, D, gain) of the feature with the largest gain, exactly, without a test of most of them;
    k = -1 if all are 0.

    m_k = (sums[slot of k, 0] - sums[slot of k, 1]) / total. Two things are proved and used:
    (a) For fixed (low, high) the gain grows with |m| on either side of 0: B_k(D) is linear in m with slope
        (e^{D high} - e^{D low}) / span, of the sign of D, so where m moves away from 0 B_k falls at every D
        of the useful sign. Features with equal (low, high) form a group; its best is the one with the largest
        or the smallest sum. No sum changes when only `total` does:
        blocks of slots keep their extremes until one of their sums changes.
    (b) KL(q || a) <= (q - a)^2 / (a (1 - a)) = m^2 / ((m - low)(high - m)): a group whose right side does not
        exceed the best gain so far needs no logarithm. (`cap` and EDGE only lower a gain.)
    Ties go to the group that comes first, in it to positive sums, among these to the smallest feature number.

    Arguments:
        cap : largest |step|
        index : groups and slots
        state : number, sums; its block_high, block_low and stale are brought up to date
    Cost: n / BLOCK + G, BLOCK for each stale block, a few closed forms.
    Source: the two proofs above; Gibbs and Su (2002) for KL <= chi^2.
    """
    sums, total = state.sums, state.number[TOTAL]
    for b in range(index.group_ptr[-1]):
        if state.stale[b]:
            state.stale[b] = 0
            high, low = 0.0, 0.0
            for s in range(b * BLOCK, (b + 1) * BLOCK):
                v = sums[s, 0] - sums[s, 1]
                high = max(high, v)
                low = min(low, v)
            state.block_high[b], state.block_low[b] = high, low
    best, best_k, step = 0.0, np.int64(-1), 0.0
    for g in range(index.group_low.size):
        blocks = slice(index.group_ptr[g], index.group_ptr[g + 1])
        low, high = index.group_low[g], index.group_high[g]
        for v in (np.max(state.block_high[blocks]), np.min(state.block_low[blocks])):
            m = v / total
            product = (m - low) * (high - m)
            if v == 0.0 or (product > 0.0 and m * m <= best * product):
                continue
            new_step, gain = best_step(m, low, high, cap)
            if gain > best:
                best, step = gain, new_step
                s = blocks.start * BLOCK
                while sums[s, 0] - sums[s, 1] != v:
                    s += 1
                best_k = index.slot_feature[s]
    return best_k, step, best


@kernel
def node_extremes(data, index, gold_buf):
    """index.low[k] = min_{i,y} phi, index.high[k] = max_{i,y} phi of every node feature k = (a, y).

    In sequence i the count of (a, y) runs from sum_t min(x_t, 0) to sum_t max(x_t, 0) over the tokens with a
    (for counts: 0 to n_ia), each end reached by some labelling; phi is that minus the gold count.
    0 belongs to it (y = y_i).

    Arguments:
        data : a `BoostData`
    Out:
        index : low, high, their node part, lowered or raised from 0
    Work:
        gold_buf : (L,), zeros
    Cost: occurrences, and sequences with a times labels of a.
    Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    for a in range(data.node_ptr.size - 1):
        for e in range(index.entry_ptr[a], index.entry_ptr[a + 1]):
            most, least = 0.0, 0.0
            for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
                x = index.item_val[j] if index.item_val.size else 1.0
                most += max(x, 0.0)
                least += min(x, 0.0)
                gold_buf[data.labels[index.item_token[j]]] += x
            for k in range(data.node_ptr[a], data.node_ptr[a + 1]):
                gold = gold_buf[data.node_label[k]]
                index.low[k] = min(index.low[k], least - gold)
                index.high[k] = max(index.high[k], most - gold)
            for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
                gold_buf[data.labels[index.item_token[j]]] = 0.0


@kernel
def add_gold_pairs(i, b, amount, data, gold):
    """gold[yp, y] += amount for each token of sequence i whose class has the edge attribute b and whose
    labels are (yp, y).

    Arguments:
        i : sequence
        b : edge attribute
        amount : 1 to count, -1 to take it back
        data : a `BoostData`
    Out:
        gold : (L, L)
    Cost: T times attributes of a class.
    Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    for t in range(data.seq_ptr[i] + 1, data.seq_ptr[i + 1]):
        c = data.edge_class[t]
        for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
            if attr == b:
                gold[data.labels[t - 1], data.labels[t]] += amount


@kernel
def edge_extremes(data, index, gold_buf):
    """index.low, index.high of every edge feature (b, yp, y), as `node_extremes` does for node features,
    and its largest gain index.most.

    The count of (b, y, y) runs from 0 to the number of tokens with b in their class. That of (b, yp, y) with
    yp != y cannot use two neighbouring tokens: from a run of n of them at most ceil(n / 2), floor(T / 2) for
    plain transitions. most bounds how often a labelling has the feature where the gold one has it not: such
    places may lie between gold ones, so that for yp != y it is that largest count itself.

    Arguments:
        data : a `BoostData`
    Out:
        index : low, high, most, their edge part
    Work:
        gold_buf : (L, L), zeros
    Cost: tokens of these sequences, and sequences with b times features of b.
    Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    n_node = data.node_label.size
    for b in range(data.edge_ptr.size - 1):
        for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
            i = index.edge_entry_seq[e]
            add_gold_pairs(i, b, 1.0, data, gold_buf)
            for j in range(data.edge_ptr[b], data.edge_ptr[b + 1]):
                k, yp, y = n_node + j, data.pair_prev[data.edge_pair[j]], data.pair_next[data.edge_pair[j]]
                gold = gold_buf[yp, y]
                count = index.entry_same[e] if yp == y else index.entry_other[e]
                index.low[k] = min(index.low[k], -gold)
                index.high[k] = max(index.high[k], count - gold)
                index.most[k] = max(index.most[k], count - gold if yp == y else count)
            add_gold_pairs(i, b, -1.0, data, gold_buf)


@kernel
def split_step(plus, minus, more, less, cap):
    """(D, decrease >= 0): D = log(Q / P) / (more + less) minimises the bound of gains and losses apart;
    decrease = L - bound, in the unit of P and Q.

    Beyond |D| > cap, or where e^{D phi} could exceed 1 / EDGE, D ends there. more = 0 or less = 0: only `cap`
    ends the step, so none is taken (D = 0) if it is infinite.

    Arguments:
        plus, minus : P and Q, >= 0
        more, less : largest gain and loss of the count, >= 0
        cap : > 0, largest |step|
    Cost: a logarithm, 2 exps.
    Source: the bound above; chapter 05.
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
    """`split_step` of the feature that has slot s: (D, decrease).

    Arguments:
        s : slot
        cap : largest |step|
        index, state : as in `select_split`
    Cost: that of `split_step`.
    Source: chapter 05.
    """
    k, plus, minus = index.slot_feature[s], max(state.sums[s, 0], 0.0), max(state.sums[s, 1], 0.0)
    return split_step(plus, minus, index.most[k], -index.low[k], cap)


@kernel
def select_split(cap, index, state):
    """(k, D, decrease) of the feature with the largest decrease, exactly; k = -1 if there is none.

    The decrease depends on P_k and Q_k alone, not on the loss of other sequences: the best slot of a block
    stays the best until a sum of the block changes. Ties go to the smallest slot.

    Arguments:
        cap : largest |step|
        index : slots, most and low (more and -less of a feature)
        state : sums (P, Q); its block_high (the largest decrease), block_slot and stale are brought up to
            date
    Cost: n / BLOCK, BLOCK closed forms for a stale block.
    Source: docs/SPEC.md, E.5, inverted index.
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


@kernel
def least_sum(rest, n, c, d, low, high, first, limit):
    """(D, f(D)): minimum between 0 and `limit` of f(D) = rest + sum_{i<n} c_i e^{D low_i} + d_i e^{D high_i},
    convex.

    Newton's method, kept inside the interval where f' changes its sign: it is halved where Newton leaves it,
    after f is computed at its end. f(D) <= f(first).

    Arguments:
        rest : the constant term
        n : terms of the sum
        c, d : (>= n,), >= 0
        low, high : (>= n,)
        first : where to begin
        limit : end of the interval, on the side where f falls
    Cost: 2 n exps an iteration, 5 to 10 of them.
    Source: Nocedal and Wright, Numerical Optimization, section 3.3; safeguarded.
    """
    near, far, D = 0.0, limit, first
    best, best_f = 0.0, np.inf
    for _ in range(60):
        f, slope, curve = rest, 0.0, 0.0
        for i in range(n):
            p, q = c[i] * np.exp(D * low[i]), d[i] * np.exp(D * high[i])
            f += p + q
            slope += low[i] * p + high[i] * q
            curve += low[i] * low[i] * p + high[i] * high[i] * q
        if f < best_f:
            best, best_f = D, f
        if slope * limit > 0.0:
            far = D
        else:
            near = D
        new = D - slope / curve if curve > 0.0 else far
        if not min(near, far) <= new <= max(near, far):
            new = limit if far == limit and near == D else 0.5 * (near + far)
        if abs(new - D) <= 1e-10 * abs(new):
            break
        D = new
    return best, best_f


@kernel
def mass_of(i, state):
    """Loss of sequence i in units of e^{log_ref}; of an inactive one minus e^ceiling.

    Arguments:
        i : sequence
        state : a `BoostState`
    Cost: an exp.
    Source: the head of this file.
    """
    return -np.exp(state.ceiling[i] - state.number[LOG_REF]) if state.inactive[i] else state.mass[i]


@kernel
def gather_node(k, data, index, state):
    """P_i, Q_i, loss and extremes of the sequences that hold node feature k; returns how many.

    Arguments:
        k : feature
        data, index, state : see the top
    Out:
        state.parts : rows GAIN to MORE
    Cost: occurrences of the attribute.
    Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    a, y, n = np.searchsorted(data.node_ptr, k + 1) - 1, data.node_label[k], 0
    parts = state.parts
    for e in range(index.entry_ptr[a], index.entry_ptr[a + 1]):
        i = index.entry_seq[e]
        parts[:, n] = 0.0
        parts[MASS, n] = mass_of(i, state)
        for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
            t = index.item_token[j]
            x = index.item_val[j] if index.item_val.size else 1.0
            if data.labels[t] == y:
                x = -x  # x > 0: what a labelling without the feature at t gains
            if not state.inactive[i]:
                parts[GAIN if x > 0.0 else LOSS, n] += abs(x) * state.cell[t, y]
            parts[HIGH if x > 0.0 else LOW, n] += x
        parts[MORE, n] = parts[HIGH, n]
        n += 1
    return n


@kernel
def gather_edge(k, data, index, state, work):
    """As `gather_node` for an edge feature, k counted among them.

    Arguments:
        k : feature
        data, index, state, work : see the top
    Out:
        state.parts : as there
    Cost: tokens of these sequences.
    Source: Altun, Johnson and Hofmann (2003), section 5.2.
    """
    b, q, n, parts = np.searchsorted(data.edge_ptr, k + 1) - 1, data.edge_pair[k], 0, state.parts
    yp, y = data.pair_prev[q], data.pair_next[q]
    gold = work.edge_sum[0]  # of which one cell is read
    for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
        i = index.edge_entry_seq[e]
        count = index.entry_same[e] if yp == y else index.entry_other[e]
        parts[:, n] = 0.0
        parts[MASS, n] = mass_of(i, state)
        gold[yp, y] = 0.0
        if not state.inactive[i]:
            add_gold_pairs(i, b, 1.0, data, gold)
            for r in range(data.row_ptr[i], data.row_ptr[i + 1]):
                c = data.row_class[r]
                for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
                    if attr == b:
                        parts[GAIN, n] += state.edge_cell[r, q, 0]
                        parts[LOSS, n] += state.edge_cell[r, q, 1]
        parts[LOW, n] = -gold[yp, y] if not state.inactive[i] else -count
        parts[HIGH, n] = count - gold[yp, y]
        parts[MORE, n] = parts[HIGH, n] if yp == y else count
        n += 1
    return n


@kernel
def tighten(k, step, cap, kind, data, index, state, work):
    """(D, gain): step of feature k that minimises the sum above, begun at `step`, the one in closed form;
    gain = log L - log f(D).

    Arguments:
        k, step, cap : feature, start of the search, largest |step|
        kind : SPLIT, or the chord
        data, index, state, work : see the top
    Cost: as `gather_node`, `least_sum`.
    Source: Altun, Johnson and Hofmann (2003), section 5.2; chapter 05.
    """
    n_node, parts = data.node_label.size, state.parts
    if k < n_node:
        n = gather_node(k, data, index, state)
    else:
        n = gather_edge(k - n_node, data, index, state, work)
    rest = state.number[TOTAL]
    for i in range(n):
        gain, loss, mass, low, high, more = parts[:, i]
        if mass <= 0.0:
            c, d = (-mass, 0.0) if step < 0.0 else (0.0, -mass)
            high, rest = more, rest - mass
        elif kind == SPLIT:
            c, d, high = loss / -low if low < 0.0 else 0.0, gain / more if more > 0.0 else 0.0, more
        else:
            span = high - low if high > low else np.inf
            c, d = max(high * mass - gain + loss, 0.0) / span, max(gain - loss - low * mass, 0.0) / span
        parts[GAIN, i], parts[LOSS, i], parts[HIGH, i] = d, c, high
        rest -= c + d
    limit = min(cap, LONGEST) if step > 0.0 else -min(cap, LONGEST)
    D, f = least_sum(rest, n, parts[LOSS], parts[GAIN], parts[LOW], parts[HIGH], step, limit)
    return D, np.log(state.number[TOTAL]) - np.log(f)


@kernel
def score_attributes(first, last, data, w, log_node):
    """log_node[t, y] = sum_{a in x_t} x[a] w[a, y] from lists of attributes; absent weights count as 0.

    Arguments:
        first, last : tokens of the sequence
        data : a `BoostData`
        w : (F,)
    Out:
        log_node : (T, L), overwritten
    Cost: one multiply-add per stored (occurrence, weight) pair.
    Source: Sokolovska et al. (2010), section 2.
    """
    for t in range(first, last):
        u = log_node[t - first]
        u[:] = 0.0
        for j in range(data.attr_ptr[t], data.attr_ptr[t + 1]):
            a = data.attr_idx[j]
            x = data.attr_val[j] if data.attr_val.size else 1.0
            for k in range(data.node_ptr[a], data.node_ptr[a + 1]):
                u[data.node_label[k]] += x * w[k]


@kernel
def add_differences(first, last, data, change, state):
    """P and Q of every feature (a, y) with an attribute a of token t grow by |x[a]| change[t, y], t by t:
    `score_attributes` transposed.

    Q, what the feature loses, for the gold label, P for all others, the other way round for x < 0: state.sums
    holds both side by side.

    Arguments:
        first, last : tokens of the sequence
        data : a `BoostData`
        change : (>= T, L)
    Out:
        state : sums, added to, and stale, 1 for their blocks
    Cost: one addition per stored (occurrence, weight) pair.
    Source: Altun, Johnson and Hofmann (2003), eq. (5); chapter 05.
    """
    for t in range(first, last):
        d, gold = change[t - first], data.labels[t]
        for j in range(data.attr_ptr[t], data.attr_ptr[t + 1]):
            a = data.attr_idx[j]
            x = data.attr_val[j] if data.attr_val.size else 1.0
            for k in range(data.node_ptr[a], data.node_ptr[a + 1]):
                s, y = data.slot[k], data.node_label[k]
                state.sums[s, int((y == gold) != (x < 0.0))] += abs(x) * d[y]
                state.stale[s // BLOCK] = 1


@kernel
def fold_edges(data, state):
    """sums[slot of (b, yp, y)] = sum of edge_sum[k, pair (yp, y)] over the classes k that hold b.

    Arguments:
        data : a `BoostData`
    Out:
        state : sums, stale
    Cost: edge features of all classes.
    Source: Altun, Johnson and Hofmann (2003), eq. (5).
    """
    edge_slot = data.slot[data.node_label.size :]
    for s in edge_slot:
        state.sums[s, :] = 0.0
        state.stale[s // BLOCK] = 1
    for c in range(data.class_ptr.size - 1):
        for b in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
            for k in range(data.edge_ptr[b], data.edge_ptr[b + 1]):
                for side in range(2):
                    state.sums[edge_slot[k], side] += state.edge_sum[c, data.edge_pair[k], side]


@kernel
def lost_pairs(labels, log_node, log_edge, edge_class, log_z, work, lost):
    """lost[k, yp, y] += 1 - p(y_{t-1} = yp, y_t = y) at every gold transition (yp,
    y) into a token t of class k.

    Arguments:
        labels : int32 (T,), gold
        log_node : (T, L)
        log_edge : (K, L, L)
        edge_class : int32 (T,)
        log_z, work : as `sequence_marginals` had and left them
    Out:
        lost : (K, L, L), added to
    Cost: O(T).
    Source: Rabiner (1989), section III.
    """
    for t in range(1, labels.size):
        k, yp, y = edge_class[t], labels[t - 1], labels[t]
        if work.scale[0] == work.scale[0]:  # work.beta[t] is psi_node beta / scale, see expected_edges
            p = work.alpha[t - 1, yp] * work.psi_edge[k, yp, y] * work.beta[t, y]
        else:
            p = np.exp(work.alpha[t - 1, yp] + log_edge[k, yp, y] + log_node[t, y] + work.beta[t, y] - log_z)
        lost[k, yp, y] += max(1.0 - p, 0.0)


@kernel
def activity_limit(log_loss, share, n_sequences):
    """Ceiling above which a sequence must be active: log L + log share - log S. Cost O(1). Source:
    the proof at the head of this file.

    Arguments:
        log_loss : log L
        share : what all inactive ones may hold of L
        n_sequences : S
    """
    return log_loss + np.log(share) - np.log(n_sequences)


@kernel
def weigh(i, u, limit, data, state):
    """What sequence i loses, from u = -log p(y_i | x_i): its log_mass, mass, and whether it is inactive, with
    the ceiling that it keeps then; returns g_i = weight_i / p_i, 0 if it is inactive.

    Arguments:
        i : sequence
        u : -log p(y_i | x_i)
        limit : from `activity_limit`
        data : a `BoostData`
    Out:
        state : a `BoostState`
    Cost: O(1).
    Source: Altun, Johnson and Hofmann (2003), section 5.2; the proof at the head of this file.
    """
    u = max(u, 0.0) if u == u else np.inf
    ceiling, log_ref = data.log_weight[i] + u, state.number[LOG_REF]
    state.log_mass[i] = ceiling + np.log1p(-np.exp(-u)) if u > 0.0 else -np.inf
    state.inactive[i] = not ceiling > limit - (0.0 if state.inactive[i] else HYSTERESIS)
    if state.inactive[i]:
        state.ceiling[i], state.mass[i] = ceiling, 0.0
        return 0.0
    state.ceiling[i], state.mass[i] = -np.inf, np.exp(state.log_mass[i] - log_ref)
    return np.exp(ceiling - log_ref)


@kernel
def renew_pairs(i, g, lost, data, state, work):
    """Gains and losses of the label pairs of sequence i: what it adds to edge_sum from now on.

    A pair loses g (1 - p) at its gold places and gains g p at others.

    Arguments:
        i : sequence
        g : weight_i / p_i
        lost : (K, L, L), from `lost_pairs`, all 0 after it
        data : a `BoostData`
        work : edge_sum, expected minus gold counts
    Out:
        state : edge_sum, edge_cell
    Cost: label pairs, for each class that i uses.
    Source: chapter 05.
    """
    for r in range(data.row_ptr[i], data.row_ptr[i + 1]):
        c = data.row_class[r]
        for q in range(data.pair_prev.size):
            yp, y = data.pair_prev[q], data.pair_next[q]
            for side in range(2):
                new = g * (lost[c, yp, y] if side else max(work.edge_sum[c, yp, y] + lost[c, yp, y], 0.0))
                state.edge_sum[c, q, side] += new - state.edge_cell[r, q, side]
                state.edge_cell[r, q, side] = new
        lost[c] = 0.0


@kernel
def visit(sequences, rescore, log_loss, data, state, work):
    """Forward-backward of some sequences, and what they add to the sums from now on.

    u = log Z - score(y_i);  log_mass = log weight_i + log(e^u - 1);  cell[t] = g |p_node[t] - gold|, the same
    for pairs; a sequence far below log_loss becomes inactive: it adds nothing,
    and its ceiling is log weight_i + u.

    Arguments:
        sequences : int64 (n,), which
        rescore : 1 to compute their node scores, which are not kept for inactive ones
        log_loss : log L
        data, state, work : see the top
    Cost: 3 T L^2 multiply-adds, T L + L^2 exps, an addition per (occurrence, weight) pair.
    Source: Altun, Johnson and Hofmann (2003), section 5.2 and eq. (5).
    """
    limit = activity_limit(log_loss, state.number[SHARE], state.inactive.size)
    lost = work.log_edge  # free for use, all 0: the tables are state.log_edge
    for i in sequences:
        first, last, was_inactive = data.seq_ptr[i], data.seq_ptr[i + 1], state.inactive[i]
        log_node, labels = state.log_node[first:last], data.labels[first:last]
        edge_class, used = data.edge_class[first:last], data.row_class[data.row_ptr[i] : data.row_ptr[i + 1]]
        if rescore:
            score_attributes(first, last, data, state.w, log_node)
            bound_nodes(first, last, data.bounds, data.label_set, log_node)
        state.count[VISITS] += 1
        state.count[TOKENS] += last - first
        log_z = sequence_marginals(log_node, state.log_edge, edge_class, used, work)
        u = log_z - subtract_gold(labels, log_node, state.log_edge, edge_class, work)
        g = weigh(i, u, limit, data, state)
        if was_inactive and state.inactive[i]:
            continue
        for t in range(last - first):
            p, cell = work.p_node[t], state.cell[first + t]
            for y in range(cell.size):
                new = g * abs(p[y])
                p[y] = new - cell[y]
                cell[y] = new
        add_differences(first, last, data, work.p_node, state)
        lost_pairs(labels, log_node, state.log_edge, edge_class, log_z, work, lost)
        renew_pairs(i, g, lost, data, state, work)


@kernel
def settle(data, state):
    """After visits: total = sum of the losses of all active sequences, edge sums folded into `sums`;
    returns log L.

    Arguments:
        data, state : see the top
    Cost: S, and the edge features.
    Source: Altun, Johnson and Hofmann (2003), eq. (2).
    """
    fold_edges(data, state)
    state.number[TOTAL] = np.sum(state.mass)
    return state.number[LOG_REF] + np.log(state.number[TOTAL])


@kernel
def step_node(k, step, data, index, state):
    """w[k] += step for a node feature (a, y): scores of the tokens with a;
    returns how many sequences must be visited.

    They stand in state.touched. The ceilings of inactive ones rise by max_y step phi_i(y).

    Arguments:
        k, step : feature, its step
        data, index, state : see the top
    Cost: occurrences of a.
    Source: docs/SPEC.md, E.5, inverted index.
    """
    a, y, n = np.searchsorted(data.node_ptr, k + 1) - 1, data.node_label[k], 0
    for e in range(index.entry_ptr[a], index.entry_ptr[a + 1]):
        i = index.entry_seq[e]
        rise = 0.0
        for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
            t = index.item_token[j]
            x = step * index.item_val[j] if index.item_val.size else step
            if state.inactive[i]:
                rise += max(x, 0.0) - (x if data.labels[t] == y else 0.0)
            else:
                state.log_node[t, y] += x
        if state.inactive[i]:
            state.ceiling[i] += rise
        else:
            state.touched[n] = i
            n += 1
    return n


@kernel
def step_edge(k, step, data, index, state):
    """w[k] += step for an edge feature (b, yp, y), k counted among them: tables of the classes with b,
    and as `step_node`.

    Arguments:
        k, step : feature, its step
        data, index, state : see the top
    Cost: edge attributes of all classes, and sequences with b.
    Source: docs/SPEC.md, E.5.
    """
    b, n = np.searchsorted(data.edge_ptr, k + 1) - 1, 0
    yp, y = data.pair_prev[data.edge_pair[k]], data.pair_next[data.edge_pair[k]]
    for c in range(data.class_ptr.size - 1):
        for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
            if attr == b:
                state.log_edge[c, yp, y] += step
    for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
        i = index.edge_entry_seq[e]
        if state.inactive[i]:
            state.ceiling[i] += abs(step) * (index.entry_same[e] if yp == y else index.entry_other[e])
        else:
            state.touched[n] = i
            n += 1
    return n


@kernel
def boost_rounds(n_rounds, budget, cap, tol, kind, data, index, state, work, journal):
    """Rounds until n_rounds of them are done in all, or another reason to return: CONVERGED, ...

    A round: the feature with the best bound, its step, visits to the active sequences that hold it, then to
    those that become active. Rounds that the journal holds already are repeated as they stand there: so a run
    is resumed. Each addition to a sum errs by at most 2^-53 of it; a sum that fell by a factor keeps the
    errors of its larger past. So after a round, in units of the loss, drift = drift * (loss before / loss
    after) + 2^-53 * tokens visited bounds the error of m_k relative to the largest counts; the caller
    recomputes the sums when it passes `share` (DRIFTED).

    Arguments:
        n_rounds : rounds to do, those done before included
        budget : tokens visited before returning with PAUSED
        cap, tol : largest |step|; least relative decrease of a round
        kind : GLOBAL, INSTANCE or SPLIT (these two `tighten` the step)
        data, index, state, work : see the top
        journal : a `Journal` (>= n_rounds) of learner.py
    Cost: of a round, that of its visits, S, and `select_feature`.
    Source: Altun, Johnson and Hofmann (2003), Algorithm 2; docs/SPEC.md, E.5.
    """
    n_node, tokens = data.node_label.size, state.count[TOKENS]
    while state.count[ROUNDS] < n_rounds and state.count[TOKENS] - tokens < budget:
        r, before = state.count[ROUNDS], state.count[TOKENS]
        total = state.number[TOTAL]
        if not total > state.number[FLOOR] * np.exp(-state.number[LOG_REF]):
            return AT_FLOOR if total == total else NOT_FINITE
        if r < state.count[GIVEN]:
            k, step, gain = journal.feature[r], journal.step[r], journal.gain[r]
        else:
            if kind == SPLIT:
                k, step, decrease = select_split(cap, index, state)
                gain = -np.log1p(-min(decrease / total, 1.0 - EDGE))
            else:
                k, step, gain = select_feature(cap, index, state)
            if not -np.expm1(-gain) >= tol or k < 0:
                return CONVERGED
            if kind == INSTANCE or (kind == SPLIT and max(index.most[k], -index.low[k]) > 1.0):
                step, gain = tighten(k, step, cap, kind, data, index, state, work)
        state.number[SHARE] = min(state.number[SHARE], max(-SLACK * np.expm1(-gain), LEAST_SHARE))
        state.w[k] += step
        if k < n_node:
            n = step_node(k, step, data, index, state)
        else:
            n = step_edge(k - n_node, step, data, index, state)
        log_loss = state.number[LOG_REF] + np.log(total)
        for rescore in range(2):  # a number: for each literal False and True `visit` would compile anew
            if rescore:
                n, limit = 0, activity_limit(log_loss, state.number[SHARE], state.inactive.size)
                for i in range(state.inactive.size):
                    if state.ceiling[i] > limit:
                        state.touched[n] = i
                        n += 1
            if n or not rescore:
                visit(state.touched[:n], rescore, log_loss, data, state, work)
                log_loss = settle(data, state)
        journal.feature[r], journal.step[r], journal.gain[r], journal.log_loss[r] = k, step, gain, log_loss
        state.count[ROUNDS] = r + 1
        state.number[DRIFT] *= total / state.number[TOTAL]
        state.number[DRIFT] += 2.0**-53 * (state.count[TOKENS] - before)
        if state.number[DRIFT] > state.number[SHARE] and state.number[TOTAL] > 0.0:
            return DRIFTED
    return PAUSED


def boost_rounds_plain(n_rounds, cap, w, corpus, features):
    """The readable sister of `boost_rounds`, with the paper's bound (GLOBAL).

    n_rounds : rounds to do; returns (feature, step, gain) of each.
    cap : largest |step|, as in `best_step`.
    w : (F,), moved. There are no hard constraints.
    Source: Altun, Johnson and Hofmann (2003), section 5.2, Algorithm 2.
    """
    terms = [(feature_matrix(s, corpus, features), corpus.weights[s]) for s in corpus.visited]
    low, high = np.zeros((2, features.n_features))
    L, journal = features.n_labels, []
    for (X, gold), _ in terms:
        # labellings with the least and the largest count of feature k
        for k, x in enumerate(X.T):
            least, most = (path_indicator(plain_viterbi(u, L), L) for u in (-x, x))
            low[k] = min(low[k], x @ (least - gold))
            high[k] = max(high[k], x @ (most - gold))
    for _ in range(n_rounds):
        total, grad = 0.0, np.zeros_like(w)
        for (X, gold), weight in terms:
            loss, slope = plain_loss(X @ w, gold, L)
            total += weight * np.expm1(loss)  # 1 / p - 1
            grad += weight * np.exp(loss) * (X.T @ slope)
        bounds = [best_step(*of_one, cap) for of_one in zip(grad / total, low, high, strict=True)]
        k = int(np.argmax([gain for _, gain in bounds]))
        w[k] += bounds[k][0]
        journal.append((k, *bounds[k]))
    return journal
