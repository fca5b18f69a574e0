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
shapes (layout.py, chain/sequence_work.py).
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import bound_nodes, score_nodes, sequence_marginals, subtract_gold
from crfbook.learners.boosting.features import (
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
)
from crfbook.learners.boosting.instance import tighten
from crfbook.learners.boosting.split import select_split

SLACK, LEAST_SHARE = 1e-3, 1e-9  # see above
STORED, RESCORED, FROM_ZERO = 0, 1, 2  # what a visit begins with, see `visit`
PAUSED, CONVERGED, DRIFTED, AT_FLOOR, NOT_FINITE = 0, 1, 2, 3, 4  # why `boost_rounds` returns
DROWSY = (
    3.0  # nats: a sequence falls asleep only this much further down, so that none does so and wakes in turn
)


@kernel
def add_differences(
    first, last, change, labels, node_ptr, node_label, attr_ptr, attr_idx, attr_val, slot, sums, stale
):
    """P and Q of every feature (a, y) with an attribute a of token t grow by |x[a]| change[t, y], t by t.

    Q, what the feature loses, for the gold label, P for all others, the other way round for x < 0: sums (n,
    2) hold both side by side. Arguments: first, last: tokens of the sequence; change (>= T, L); labels int32
    (N,); node_ptr (A+1,), node_label (n_node,); attr_ptr (N+1,), attr_idx (nnz,), attr_val (nnz,) or (0,) for
    all ones; slot int32 (F,); out: sums (n, 2), added to, stale uint8 (n / BLOCK,): 1 for their blocks.
    Cost: one addition per stored (occurrence, weight) pair. Source: Altun, Johnson and Hofmann (2003), eq.
    (5); chapter 05.
    """
    for t in range(first, last):
        d, gold = change[t - first], labels[t]
        for j in range(attr_ptr[t], attr_ptr[t + 1]):
            x = attr_val[j] if attr_val.size else 1.0
            for k in range(node_ptr[attr_idx[j]], node_ptr[attr_idx[j] + 1]):
                s = slot[k]
                sums[s, int((node_label[k] == gold) != (x < 0.0))] += abs(x) * d[node_label[k]]
                stale[s // BLOCK] = 1


@kernel
def fold_edges(
    edge_sum, class_ptr, class_attr, edge_ptr, edge_prev, edge_next, pair_of, edge_slot, sums, stale
):
    """sums[slot of (b, yp, y)] = sum of edge_sum[k, pair (yp, y)] over the classes k that hold b.

    Arguments: edge_sum (K, Q, 2): label pairs that have a weight; class_ptr (K+1,), class_attr (n,); edge_ptr
    (B+1,), edge_prev, edge_next (n_edge,); pair_of int32 (L, L): number of a pair; edge_slot int32 (n_edge,);
    out: sums (n, 2), stale (n / BLOCK,). Cost: edge features of all classes. Source: Altun,
    Johnson and Hofmann (2003), eq. (5).
    """
    for s in edge_slot:
        sums[s, :] = 0.0
        stale[s // BLOCK] = 1
    for c in range(class_ptr.size - 1):
        for b in class_attr[class_ptr[c] : class_ptr[c + 1]]:
            for k in range(edge_ptr[b], edge_ptr[b + 1]):
                q = pair_of[edge_prev[k], edge_next[k]]
                sums[edge_slot[k], 0] += edge_sum[c, q, 0]
                sums[edge_slot[k], 1] += edge_sum[c, q, 1]


@kernel
def lost_pairs(first, last, labels, edge_class, log_node, log_edge, log_z, work, lost):
    """lost[k, yp, y] += 1 - p(y_{t-1} = yp, y_t = y) at every gold transition (yp,
    y) into a token t of class k.

    Arguments: first, last: tokens of the sequence; labels, edge_class int32 (N,); log_node (T, L), log_edge
    (K, L, L), log_z, work as `sequence_marginals` had and left them; out: lost (K, L, L), added to. Cost
    O(T). Source: Rabiner (1989), section III.
    """
    for t in range(1, last - first):
        k, yp, y = edge_class[first + t], labels[first + t - 1], labels[first + t]
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
def visit(sequences, fresh, log_loss, data, bounds, state, work):
    """Forward-backward of some sequences, and what they add to the sums from now on.

    u = log Z - score(y_i);  log_mass = log weight_i + log(e^u - 1);  cell[t] = g |p_node[t] - gold|, the same
    for pairs; a sequence far below log_loss is put to sleep: it adds nothing,
    and its ceiling is log weight_i + u.

    Arguments: sequences int64 (n,): which; fresh: RESCORED, node scores are computed from the weights,
    FROM_ZERO, and cells count as 0 before (the sums were emptied), or STORED; log_loss; data, bounds, state,
    work: see above. Cost: 3 T L^2 multiply-adds, T L + L^2 exps, an addition per (occurrence, weight) pair.
    Source: Altun, Johnson and Hofmann (2003), section 3.3 and eq. (5).
    """
    limit = sleep_limit(log_loss, state.number[SHARE], state.asleep.size)
    for i in sequences:
        first, last = data.seq_ptr[i], data.seq_ptr[i + 1]
        log_node, edge_class = state.log_node[first:last], data.edge_class[first:last]
        if fresh != STORED:
            score_nodes(
                first,
                last,
                state.w,
                1.0,
                data.node_ptr,
                data.node_label,
                data.attr_ptr,
                data.attr_idx,
                data.attr_val,
                log_node,
            )
            bound_nodes(first, last, bounds, data.label_set, log_node)
        state.count[VISITS] += 1
        state.count[TOKENS] += last - first
        rows = range(data.row_ptr[i], data.row_ptr[i + 1])
        for r in rows:
            work.stamp[data.row_class[r]] = state.count[VISITS]
        log_z = sequence_marginals(
            log_node,
            state.log_edge,
            edge_class,
            state.count[VISITS],
            work.stamp,
            work,
            work.p_node,
            work.edge_sum,
        )
        u = log_z - subtract_gold(
            first, last, data.labels, data.edge_class, log_node, state.log_edge, work.p_node, work.edge_sum
        )
        u = max(u, 0.0) if u == u else np.inf
        ceiling = data.log_weight[i] + u
        state.log_mass[i] = ceiling + np.log1p(-np.exp(-u)) if u > 0.0 else -np.inf
        slept = state.asleep[i]
        state.asleep[i] = not ceiling > limit - (0.0 if slept else DROWSY)
        state.ceiling[i] = ceiling if state.asleep[i] else -np.inf
        state.mass[i] = 0.0 if state.asleep[i] else np.exp(state.log_mass[i] - state.number[LOG_REF])
        if slept and state.asleep[i]:
            continue
        g = 0.0 if state.asleep[i] else np.exp(ceiling - state.number[LOG_REF])
        for t in range(first, last):
            p, cell = work.p_node[t - first], state.cell[t]
            for y in range(cell.size):
                new = g * abs(p[y])
                p[y] = new - (cell[y] if fresh != FROM_ZERO else 0.0)
                cell[y] = new
        add_differences(
            first,
            last,
            work.p_node,
            data.labels,
            data.node_ptr,
            data.node_label,
            data.attr_ptr,
            data.attr_idx,
            data.attr_val,
            data.slot,
            state.sums,
            state.stale,
        )
        lost = work.log_edge  # free for use: the tables are state.log_edge
        lost_pairs(first, last, data.labels, data.edge_class, log_node, state.log_edge, log_z, work, lost)
        for r in rows:
            c = data.row_class[r]
            for q in range(data.pair_prev.size):
                yp, y = data.pair_prev[q], data.pair_next[q]
                for side in range(2):  # edge_sum holds expected minus gold counts
                    new = g * (lost[c, yp, y] if side else max(work.edge_sum[c, yp, y] + lost[c, yp, y], 0.0))
                    state.edge_sum[c, q, side] += new - (
                        state.edge_cell[r, q, side] if fresh != FROM_ZERO else 0.0
                    )
                    state.edge_cell[r, q, side] = new
            lost[c] = 0.0


@kernel
def settle(data, state):
    """After visits: total = sum of the losses of all who are awake, edge sums folded into `sums`;
    returns log L.

    Arguments: data, state: see above. Cost: S, and the edge features. Source: Altun,
    Johnson and Hofmann (2003), eq. (2).
    """
    fold_edges(
        state.edge_sum,
        data.class_ptr,
        data.class_attr,
        data.edge_ptr,
        data.edge_prev,
        data.edge_next,
        data.pair_of,
        data.slot[data.node_label.size :],
        state.sums,
        state.stale,
    )
    state.number[TOTAL] = np.sum(state.mass)
    return state.number[LOG_REF] + np.log(state.number[TOTAL])


@kernel
def step_node(k, step, data, index, state, touched):
    """w[k] += step for a node feature (a, y): scores of the tokens with a;
    returns how many sequences must be visited.

    They stand in touched int64 (>= sequences with a,); the ceilings of those asleep rise by max_y step
    phi_i(y). Arguments: k, step; data, index, state: see above. Cost: occurrences of a.
    Source: docs/SPEC.md, E.5, inverted index.
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
            touched[n] = i
            n += 1
    return n


@kernel
def step_edge(k, step, data, index, state, touched):
    """w[k] += step for an edge feature (b, yp, y), k counted among them: tables of the classes with b,
    and as `step_node`.

    Arguments: k, step; data, index, state: see above; out: touched int64 (>= sequences with b,).
    Cost: K L^2, and sequences with b. Source: docs/SPEC.md, E.5.
    """
    b, n = np.searchsorted(data.edge_ptr, k + 1) - 1, 0
    yp, y = data.edge_prev[k], data.edge_next[k]
    for c in range(data.class_ptr.size - 1):
        for attr in data.class_attr[data.class_ptr[c] : data.class_ptr[c + 1]]:
            if attr == b:
                state.log_edge[c, yp, y] += step
    for e in range(index.edge_entry_ptr[b], index.edge_entry_ptr[b + 1]):
        i = index.edge_entry_seq[e]
        if state.asleep[i]:
            state.ceiling[i] += abs(step) * (index.entry_same[e] if yp == y else index.entry_other[e])
        else:
            touched[n] = i
            n += 1
    return n


@kernel
def boost_rounds(n_rounds, budget, cap, tol, kind, data, bounds, index, state, work, journal):
    """Rounds until n_rounds of them are done in all, or another reason to return: CONVERGED, ...


    A round: the feature with the best bound, its step, visits to the awake sequences that hold it, then to
    those that wake. Rounds that the journal holds already are repeated as they stand there (that is how a run
    is resumed). Each addition to a sum errs by at most 2^-53 of it; a sum that fell by a factor keeps the
    errors of its larger past. So after a round, in units of the loss, drift = drift * (loss before / loss
    after) + 2^-53 * tokens visited bounds the error of m_k relative to the largest counts; the caller
    recomputes the sums when it passes `share` (DRIFTED).

    Arguments: n_rounds; budget: tokens visited before returning with PAUSED; cap, tol; kind: GLOBAL, INSTANCE
    or SPLIT (these two `tighten` the step); data, bounds,
    index, state, work: see above; journal: feature, step, gain, log_loss, each (>= n_rounds,). Cost: of a
    round, that of its visits, S, and `select_feature`. Source: Altun, Johnson and Hofmann (2003),
    Algorithm 2; docs/SPEC.md, E.5.
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
                k, step, decrease = select_split(
                    cap,
                    index.group_ptr[-1],
                    index.slot_feature,
                    index.most,
                    index.low,
                    state.sums,
                    state.stale,
                    state.block_high,
                    state.block_slot,
                )
                gain = -np.log1p(-min(decrease / total, 1.0 - EDGE))
            else:
                k, step, gain = select_feature(
                    total,
                    cap,
                    index.group_ptr,
                    index.group_low,
                    index.group_high,
                    index.slot_feature,
                    state.sums,
                    state.stale,
                    state.block_high,
                    state.block_low,
                )
            if not -np.expm1(-gain) >= tol or k < 0:
                return CONVERGED
            if kind == INSTANCE or (kind == SPLIT and max(index.most[k], -index.low[k]) > 1.0):
                step, gain = tighten(k, step, cap, kind, data, index, state, work)
        state.number[SHARE] = min(state.number[SHARE], max(-SLACK * np.expm1(-gain), LEAST_SHARE))
        state.w[k] += step
        if k < n_node:
            n = step_node(k, step, data, index, state, state.touched)
        else:
            n = step_edge(k - n_node, step, data, index, state, state.touched)
        log_loss = state.number[LOG_REF] + np.log(total)
        visit(state.touched[:n], np.int64(STORED), log_loss, data, bounds, state, work)
        log_loss = settle(data, state)
        n, limit = 0, sleep_limit(log_loss, state.number[SHARE], state.asleep.size)
        for i in range(state.asleep.size):
            if state.ceiling[i] > limit:
                state.touched[n] = i
                n += 1
        if n:
            visit(state.touched[:n], np.int64(RESCORED), log_loss, data, bounds, state, work)
            log_loss = settle(data, state)
        journal.feature[r], journal.step[r], journal.gain[r], journal.log_loss[r] = k, step, gain, log_loss
        state.count[ROUNDS] = r + 1
        state.number[DRIFT] *= total / state.number[TOTAL]
        state.number[DRIFT] += 2.0**-53 * (state.count[TOKENS] - before)
        if state.number[DRIFT] > state.number[SHARE] and state.number[TOTAL] > 0.0:
            return DRIFTED
    return PAUSED
