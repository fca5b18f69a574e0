"""Rounds of boosting: what changes when one weight changes, and only that.

Sequence i adds g_i (E[S_k | x_i] - S_k(x_i, y_i)), g_i = weight_i / p_i, to dL/dw_k. What it added last is
kept per token (`cell`) and per label pair (`edge_cell`), so that a visit adds the difference.
Everything is in units of e^{log_ref}.

Most sequences need no visit, by proof. u_i = -log p_i after a step D of feature k is at most u_i + max_y D
phi_i(y). A sequence that is asleep keeps such a ceiling of log g_i, raised by each step that concerns it, and
wakes when the ceiling reaches log L + log share - log S: all that sleep hold together less than `share` of L.
share is a thousandth of the least decrease (relative) that a round has promised so far, at most 1e-3 and at
least 1e-9. It also limits the rounding of the sums (`boost_rounds`); so m_k, relative to the largest counts,
and L are known to two shares. The NamedTuples `data`, `index`, `state` and `work` list their arrays with
shapes (learner.py, chain/token_layout.py).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import bound_nodes, sequence_marginals, subtract_gold
from crfbook.learners.boosting.selection import (
    BLOCK,
    DRIFT,
    EDGE,
    FLOOR,
    GIVEN,
    INSTANCE,
    LOG_REF,
    ROUNDS,
    SHARE,
    SPLIT,
    TOKENS,
    TOTAL,
    VISITS,
    select_feature,
    select_split,
    tighten,
)

SLACK, LEAST_SHARE = 1e-3, 1e-9  # see above
PAUSED, CONVERGED, DRIFTED, AT_FLOOR, NOT_FINITE = 0, 1, 2, 3, 4  # why `boost_rounds` returns
DROWSY = (
    3.0  # nats: a sequence falls asleep only so much further down, so that none does so and wakes in turn
)


@kernel
def score_attributes(first, last, data, w, log_node):
    """log_node[t, y] = sum_{a in x_t} x[a] w[a, y] from lists of attributes; absent weights count as 0.

    Arguments: first, last: tokens of the sequence; data; w (F,); out: log_node (T, L), overwritten. Cost: one
    multiply-add per stored (occurrence, weight) pair. Source: Sokolovska et al. (2010), section 2.
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
    holds both side by side. Arguments: first, last: tokens of the sequence; data; change (>= T, L); out:
    state: sums, added to, and stale, 1 for their blocks. Cost: one addition per stored (occurrence, weight)
    pair. Source: Altun, Johnson and Hofmann (2003), eq. (5); chapter 05.
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

    Arguments: data; out: state: sums, stale. Cost: edge features of all classes. Source: Altun,
    Johnson and Hofmann (2003), eq. (5).
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

    Arguments: labels int32 (T,): gold; log_node (T, L), log_edge (K, L, L), edge_class int32 (T,), log_z,
    work as `sequence_marginals` had and left them; out: lost (K, L, L), added to. Cost O(T). Source:
    Rabiner (1989), section III.
    """
    for t in range(1, labels.size):
        k, yp, y = edge_class[t], labels[t - 1], labels[t]
        if work.scale[0] == work.scale[0]:  # work.beta[t] is psi_node beta / scale, see expected_edges
            p = work.alpha[t - 1, yp] * work.psi_edge[k, yp, y] * work.beta[t, y]
        else:
            p = np.exp(work.alpha[t - 1, yp] + log_edge[k, yp, y] + log_node[t, y] + work.beta[t, y] - log_z)
        lost[k, yp, y] += max(1.0 - p, 0.0)


@kernel
def sleep_limit(log_loss, share, n_sequences):
    """Ceiling above which a sequence must be awake: log L + log share - log S. Cost O(1). Source:
    the proof at the head of this file.

    Arguments: log_loss: log L; share: what all that sleep may hold of L; n_sequences: S.
    """
    return log_loss + np.log(share) - np.log(n_sequences)


@kernel
def weigh(i, u, limit, data, state):
    """What sequence i loses, from u = -log p(y_i | x_i): its log_mass, mass, and whether it sleeps, with the
    ceiling that it keeps then; returns g_i = weight_i / p_i, 0 if it sleeps.

    Arguments: i; u; limit: from `sleep_limit`; data; out: state. Cost O(1). Source: Altun,
    Johnson and Hofmann (2003), section 5.2; the proof at the head of this file.
    """
    u = max(u, 0.0) if u == u else np.inf
    ceiling, log_ref = data.log_weight[i] + u, state.number[LOG_REF]
    state.log_mass[i] = ceiling + np.log1p(-np.exp(-u)) if u > 0.0 else -np.inf
    state.asleep[i] = not ceiling > limit - (0.0 if state.asleep[i] else DROWSY)
    if state.asleep[i]:
        state.ceiling[i], state.mass[i] = ceiling, 0.0
        return 0.0
    state.ceiling[i], state.mass[i] = -np.inf, np.exp(state.log_mass[i] - log_ref)
    return np.exp(ceiling - log_ref)


@kernel
def renew_pairs(i, g, lost, data, state, work):
    """Gains and losses of the label pairs of sequence i: what it adds to edge_sum from now on.

    A pair loses g (1 - p) at its gold places and gains g p at others. Arguments: i; g = weight_i / p_i; lost
    (K, L, L) from `lost_pairs`, all 0 after it; data; work: edge_sum, expected minus gold counts; out: state:
    edge_sum, edge_cell. Cost: label pairs, for each class that i uses. Source: chapter 05.
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
    for pairs; a sequence far below log_loss is put to sleep: it adds nothing,
    and its ceiling is log weight_i + u.

    Arguments: sequences int64 (n,): which; rescore: 1 to compute their node scores, which are not kept for
    those asleep; log_loss; data, state, work: see above. Cost: 3 T L^2 multiply-adds, T L + L^2 exps, an
    addition per (occurrence, weight) pair. Source: Altun, Johnson and Hofmann (2003), section 5.2 and
    eq. (5).
    """
    limit = sleep_limit(log_loss, state.number[SHARE], state.asleep.size)
    lost = work.log_edge  # free for use, all 0: the tables are state.log_edge
    for i in sequences:
        first, last, slept = data.seq_ptr[i], data.seq_ptr[i + 1], state.asleep[i]
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
        if slept and state.asleep[i]:
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
    """After visits: total = sum of the losses of all who are awake, edge sums folded into `sums`;
    returns log L.

    Arguments: data, state: see above. Cost: S, and the edge features. Source: Altun,
    Johnson and Hofmann (2003), eq. (2).
    """
    fold_edges(data, state)
    state.number[TOTAL] = np.sum(state.mass)
    return state.number[LOG_REF] + np.log(state.number[TOTAL])


@kernel
def step_node(k, step, data, index, state):
    """w[k] += step for a node feature (a, y): scores of the tokens with a;
    returns how many sequences must be visited.

    They stand in state.touched; the ceilings of those asleep rise by max_y step phi_i(y). Arguments: k, step;
    data, index, state: see above. Cost: occurrences of a. Source: docs/SPEC.md, E.5, inverted index.
    """
    a, y, n = np.searchsorted(data.node_ptr, k + 1) - 1, data.node_label[k], 0
    for e in range(index.entry_ptr[a], index.entry_ptr[a + 1]):
        i = index.entry_seq[e]
        rise = 0.0
        for j in range(index.item_ptr[e], index.item_ptr[e + 1]):
            t = index.item_token[j]
            x = step * index.item_val[j] if index.item_val.size else step
            if state.asleep[i]:
                rise += max(x, 0.0) - (x if data.labels[t] == y else 0.0)
            else:
                state.log_node[t, y] += x
        if state.asleep[i]:
            state.ceiling[i] += rise
        else:
            state.touched[n] = i
            n += 1
    return n


@kernel
def step_edge(k, step, data, index, state):
    """w[k] += step for an edge feature (b, yp, y), k counted among them: tables of the classes with b,
    and as `step_node`.

    Arguments: k, step; data, index, state: see above. Cost: edge attributes of all classes, and sequences
    with b. Source: docs/SPEC.md, E.5.
    """
    b, n = np.searchsorted(data.edge_ptr, k + 1) - 1, 0
    yp, y = data.pair_prev[data.edge_pair[k]], data.pair_next[data.edge_pair[k]]
    for c in range(data.class_ptr.size - 1):
        for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
            if attr == b:
                state.log_edge[c, yp, y] += step
    for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
        i = index.edge_entry_seq[e]
        if state.asleep[i]:
            state.ceiling[i] += abs(step) * (index.entry_same[e] if yp == y else index.entry_other[e])
        else:
            state.touched[n] = i
            n += 1
    return n


@kernel
def boost_rounds(n_rounds, budget, cap, tol, kind, data, index, state, work, journal):
    """Rounds until n_rounds of them are done in all, or another reason to return: CONVERGED, ...

    A round: the feature with the best bound, its step, visits to the awake sequences that hold it, then to
    those that wake. Rounds that the journal holds already are repeated as they stand there (that is how a run
    is resumed). Each addition to a sum errs by at most 2^-53 of it; a sum that fell by a factor keeps the
    errors of its larger past. So after a round, in units of the loss, drift = drift * (loss before / loss
    after) + 2^-53 * tokens visited bounds the error of m_k relative to the largest counts; the caller
    recomputes the sums when it passes `share` (DRIFTED).

    Arguments: n_rounds; budget: tokens visited before returning with PAUSED; cap, tol; kind: GLOBAL, INSTANCE
    or SPLIT (these two `tighten` the step); data, index, state, work: see above; journal: a Journal (>=
    n_rounds) of learner.py. Cost: of a round, that of its visits, S, and `select_feature`. Source:
    Altun, Johnson and Hofmann (2003), Algorithm 2; docs/SPEC.md, E.5.
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
                n, limit = 0, sleep_limit(log_loss, state.number[SHARE], state.asleep.size)
                for i in range(state.asleep.size):
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
