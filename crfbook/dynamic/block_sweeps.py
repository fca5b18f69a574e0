"""Sweeps of chain blocks over a packed batch: exact inference in a label chain, given messages of the others.

A *link* joins a label of one chain with one of another, or with another of the same. Links with one table
X (L_a, L_b) are a group. One update of a chain k, over all sequences at once:

    psi_k[i] = u_k[i] o messages of all links into its row i
    p = beliefs of the chain alone, by forward-backward
    cavity[e] = p[row of e] / message into it along e
    message along e = cavity[e] @ X, scaled to a mean of one

No digit is lost unseen. `close_dead` closes labels that no other label allows. So each label that is left has
alpha and p above 0, and a number below SMALLEST_MASS flags its sequence for the log form. Tables within
MAX_SPREAD nats then make no product that underflows, and no division by 0.
In mean field the cavity is the belief q itself, and the message the field q[row of e] @ log X, a score.

Sequences leave the batch when they are done. `blocks`, `work`, `sums` and `rule` are a `LinkedChains`,
`LinkedWork`, `LinkedSums` and `SweepRule` of block_batch.py, with shapes.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS
from crfbook.chain.forward_backward_batched import backward_batched, exp_rows, forward_rows
from crfbook.chain.sequence import plain_marginals, plain_tables
from crfbook.chain.vector_math import copy_row
from crfbook.dynamic.block_batch import (
    BELIEFS,
    MEAN_FIELD,
    close_dead,
    compact,
    ends_of,
    exp_scores,
    open_blocks,
    rows_of,
    side_of,
    times_table,
)

LEAVE = 8  # sequences leave when one row in LEAVE is done


@kernel
def run_chain(k, kind, blocks, work):
    """Beliefs p of chain k given the messages into it; flags sequences that lose digits.

    Arguments:
        k : chain
        kind : BELIEFS or MEAN_FIELD
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work : psi (v of the chain), alpha, gain and p of the chain, flags
    Cost: 2 n L^2 multiply-adds.
    Source: Sutton, Rohanimanesh and McCallum (2004), section 3.2; chapter 13.
    """
    n, B, T = work.count[0], work.count[1], work.count[2]
    L, start, step = blocks.size[k], blocks.pair_start[k], work.step[: T + 1]
    u, psi = rows_of(k, n, blocks, work.u), rows_of(k, n, blocks, work.psi)
    alpha, p = rows_of(k, n, blocks, work.alpha), rows_of(k, n, blocks, work.p)
    gain = work.gain[k, :n]
    for i in range(n):
        copy_row(u, i, psi, i)
    for g in range(blocks.link.shape[0]):
        for side in range(2):
            if blocks.link[g, side] == k:
                rows, into = ends_of(g, side, work), side_of(g, side, blocks, work, work.message)
                for e in range(rows.size):
                    i = rows[e]
                    if kind:
                        for y in range(L):
                            psi[i, y] += into[e, y]
                    else:
                        for y in range(L):
                            psi[i, y] *= into[e, y]
    if kind:
        work.offset[k, :B] = 0.0
        exp_rows(psi, blocks.pair_spread[k], step, work.offset[k, :B], work.flags[:B])
    if start >= 0:
        none, nothing = np.zeros(0, np.int32), np.zeros(0, np.int64)
        psi_edge = blocks.psi_pair[start : start + L * L].reshape(1, L, L)
        psi_edge_t = blocks.psi_pair_t[start : start + L * L].reshape(1, L, L)
        forward_rows(psi, psi_edge, none, step, nothing, alpha, gain, work.ones[:L], alpha)
        backward_batched((step, none, nothing), psi_edge_t, work.ones[:B], alpha, gain, psi, p, alpha)
    else:
        np.dot(psi, work.ones[:L], gain)
        for i in range(n):
            gain[i] = 1.0 / gain[i]
            for y in range(L):
                alpha[i, y] = psi[i, y]
                p[i, y] = psi[i, y] * gain[i]
    for i in range(n):
        n_bad = 0
        if kind:
            for y in range(L):
                n_bad += (alpha[i, y] > 0.0) & (alpha[i, y] < SMALLEST_MASS)
        else:
            for y in range(L):
                good = (alpha[i, y] >= SMALLEST_MASS) & (p[i, y] >= SMALLEST_MASS) & (p[i, y] < 2.0)
                n_bad += (u[i, y] > 0.0) & (1 - good)
        if n_bad > 0 or not (gain[i] > 0.0 and gain[i] < np.inf):
            work.flags[work.seq[i]] = 1


@kernel
def take_cavities(k, rule, blocks, work):
    """Cavities of chain k at the ends of its links: beliefs without the messages along them; mean field: q.

    Arguments:
        k : chain
        rule : a `SweepRule`
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work.cavity; mean field: also work.moved, work.offset
    Cost: E L.
    Source: docs/SPEC.md, B.4.
    """
    n, L = work.count[0], blocks.size[k]
    p = rows_of(k, n, blocks, work.p)
    for g in range(blocks.link.shape[0]):
        for side in range(2):
            if blocks.link[g, side] != k:
                continue
            rows, into = ends_of(g, side, work), side_of(g, side, blocks, work, work.message)
            cavity = side_of(g, side, blocks, work, work.cavity)
            for e in range(rows.size):
                i = rows[e]
                if rule.kind == BELIEFS:
                    for y in range(L):
                        cavity[e, y] = p[i, y] / into[e, y] if p[i, y] > 0.0 else 0.0
                    continue
                r, n_moved, energy = work.seq[i], 0, 0.0
                for y in range(L):
                    n_moved += 1 - (abs(p[i, y] - cavity[e, y]) < rule.tol)
                    energy += p[i, y] * into[e, y]
                    cavity[e, y] = p[i, y]
                work.moved[r] += n_moved
                work.offset[k, r] -= energy


@kernel
def send_messages(k, rule, log_node, blocks, work):
    """Messages along all links of chain k, from its cavities; returns how many.

    Arguments:
        k : chain
        rule : a `SweepRule`
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work.message, work.moved : (B,), how many numbers of a sequence moved by tol or more
    Cost: E L L' multiply-adds.
    Source: docs/SPEC.md, B.4.
    """
    n_sent = 0
    for g in range(blocks.link.shape[0]):
        for side in range(2):
            if blocks.link[g, side] != k:
                continue
            rows, cavity = ends_of(g, side, work), side_of(g, side, blocks, work, work.cavity)
            into = side_of(g, 1 - side, blocks, work, work.message)
            E, L = into.shape
            n_sent += E
            if rule.kind == MEAN_FIELD:
                times_table(g, side, cavity, log_node, blocks, work, into)
                continue
            raw = work.one[: E * L].reshape(E, L)
            times_table(g, side, cavity, log_node, blocks, work, raw)
            total = np.dot(raw, work.ones[:L])
            bound = rule.tol * L
            for e in range(E):
                f, n_moved = (1.0 - rule.damping) * L / total[e], 0
                for y in range(L):
                    v = f * raw[e, y] + rule.damping * into[e, y]
                    n_moved += 1 - (abs(v - into[e, y]) < bound)
                    into[e, y] = v
                work.moved[work.seq[rows[e]]] += n_moved
    return n_sent


@kernel
def settle(sweep, blocks, work):
    """Mark sequences as done where no message moved in the last update of each chain; returns how many rows
    are.

    Arguments:
        sweep : number of the sweep
        blocks : a `LinkedChains` (for shapes, see the top)
    Out:
        work.quiet, work.done, work.sweeps
    Cost: B.
    Source: docs/SPEC.md, B.4.
    """
    n_done = 0
    for r in range(work.count[1]):
        work.quiet[r] = 0 if work.moved[r] > 0 else work.quiet[r] + 1
        if work.done[r] == 0 and (work.quiet[r] >= blocks.size.size or work.flags[r]):
            work.done[r], work.sweeps[r] = 1, sweep
        n_done += work.length[r] * work.done[r]
    return n_done


@kernel
def leaving_log_z(kind, log_node, blocks, work, log_z):
    """log Z of the sequences that are done, NaN where flagged.

    The sum of the chains' log Z and, over links, of log (cavity X cavity). Mean field: the sum of the chains'
    log Z less their fields and, over links, of q log X q.

    Arguments:
        kind : BELIEFS or MEAN_FIELD
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
        work : a `LinkedWork`
    Out:
        log_z : (B of the batch,)
        work.link_z : (E,), of each link
        work.flags
    Cost: E L_a L_b multiply-adds.
    Source: docs/SPEC.md, B.5.
    """
    n, B, m = work.count[0], work.count[1], blocks.size.size
    value = np.zeros(B)
    for k in range(m):
        for r in range(B):
            value[r] += work.offset[k, r] + blocks.pair_max[k] * (work.length[r] - 1)
        for i in range(n):
            if work.done[work.seq[i]]:
                value[work.seq[i]] -= np.log(work.gain[k, i])
    for g in range(blocks.link.shape[0]):
        left, right = side_of(g, 0, blocks, work, work.cavity), side_of(g, 1, blocks, work, work.cavity)
        E, L = right.shape
        raw, rows, lo = work.one[: E * L].reshape(E, L), ends_of(g, 0, work), work.link_ptr[g]
        times_table(g, 0, left, log_node, blocks, work, raw)
        for e in range(E):
            total = 0.0
            for y in range(L):
                total += raw[e, y] * right[e, y]
            work.link_z[lo + e] = total
            value[work.seq[rows[e]]] += total if kind else np.log(total) + blocks.link_max[g]
    for r in range(B):
        if work.done[r]:
            if not np.isfinite(value[r]):
                work.flags[r] = 1
            log_z[work.slot[r]] = np.nan if work.flags[r] else value[r]


@kernel
def add_pairs(one, two, total):
    """total += one^T two, cell after cell.

    Arguments:
        one : (c, L)
        two : (c, L')
    Out:
        total : (>= L L',)
    Cost: c L L' multiply-adds.
    Source: chapter 13.
    """
    pair = np.dot(one.T, two).reshape(-1)
    for j in range(pair.size):
        total[j] += pair[j]


@kernel
def leaving_sums(kind, weight, log_node, blocks, work, p_node, sums):
    """Beliefs of the sequences that are done, and the sums of those of pairs, still without their potentials.

    Arguments:
        kind : BELIEFS or MEAN_FIELD
        weight : (B of the batch,)
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
        work : a `LinkedWork`
    Out:
        p_node : (n, M)
        sums : a `LinkedSums`, added to
    Cost: n L^2 + E L_a L_b multiply-adds.
    Source: docs/SPEC.md, B.4.
    """
    n, T = work.count[0], work.count[2]
    for k in range(blocks.size.size):
        L, first, start = blocks.size[k], blocks.first[k], blocks.pair_start[k]
        alpha, v = rows_of(k, n, blocks, work.alpha), rows_of(k, n, blocks, work.psi)
        p, c = rows_of(k, n, blocks, work.p), 0
        one, two = work.one[: n * L].reshape(n, L), work.two[: n * L].reshape(n, L)
        for t in range(T):
            for i in range(work.step[t], work.step[t + 1]):
                r = work.seq[i]
                if work.done[r] == 0 or work.flags[r]:
                    continue
                w, target = weight[work.slot[r]], p_node[work.origin[i]]
                for y in range(L):
                    target[first + y] = w * p[i, y]
                if t > 0 and start >= 0:
                    copy_row(alpha, work.step[t - 1] + i - work.step[t], one, c)
                    for y in range(L):
                        two[c, y] = w * v[i, y]
                    c += 1
        if c > 0:
            add_pairs(one[:c], two[:c], sums.pair[start:])
    for g in range(blocks.link.shape[0]):
        link_sums(g, kind, weight, log_node, blocks, work, p_node, sums)


@kernel
def link_sums(g, kind, weight, log_node, blocks, work, p_node, sums):
    """The same for the links of group g; those that have their own tables, with them, to p_node.

    Arguments:
        g : group of links
        kind : BELIEFS or MEAN_FIELD
        weight : (B of the batch,)
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
        work : a `LinkedWork`
    Out:
        p_node : (n, M)
        sums : a `LinkedSums`
    Cost: E L_a L_b multiply-adds.
    Source: docs/SPEC.md, B.4.
    """
    La, Lb, row, c = blocks.size[blocks.link[g, 0]], blocks.size[blocks.link[g, 1]], blocks.link[g, 3], 0
    left, right = side_of(g, 0, blocks, work, work.cavity), side_of(g, 1, blocks, work, work.cavity)
    rows, E = ends_of(g, 1, work), work.n_links[g]
    one, two = work.one[: E * La].reshape(E, La), work.two[: E * Lb].reshape(E, Lb)
    for e in range(E):
        r = work.seq[rows[e]]
        if work.done[r] == 0 or work.flags[r]:
            continue
        w = weight[work.slot[r]] / (1.0 if kind else work.link_z[work.link_ptr[g] + e])
        if row >= 0:
            i = work.origin[rows[e]]
            for y in range(La):
                for x in range(Lb):
                    cell = row + y * Lb + x
                    share = w * left[e, y] * right[e, x]
                    p_node[i, cell] = share if kind else share * log_node[i, cell]
            continue
        copy_row(left, e, one, c)
        for x in range(Lb):
            two[c, x] = w * right[e, x]
        c += 1
    if c > 0:
        add_pairs(one[:c], two[:c], sums.link[blocks.link[g, 2] :])


@kernel
def leave(converged, weight, log_node, blocks, rule, log_z, p_node, sums, stats, work):
    """Write the results of the sequences that are done, and remove them from the batch.

    Arguments:
        converged : 0 or 1
        weight : (B,)
        log_node : (n, M)
        blocks : a `LinkedChains` (for shapes, see the top)
        rule : a `SweepRule`
    Out:
        log_z : (B,)
        p_node : (n, M)
        sums : a `LinkedSums`
        stats : (4,)
    Work:
        work : a `LinkedWork`
    Cost: see `leaving_log_z`, `leaving_sums`, `compact`.
    Source: chapter 13.
    """
    leaving_log_z(rule.kind, log_node, blocks, work, log_z)
    leaving_sums(rule.kind, weight, log_node, blocks, work, p_node, sums)
    for r in range(work.count[1]):
        if work.done[r] and not work.flags[r]:
            stats[0] += 1
            stats[1] += 1 - converged
            stats[2] += work.sweeps[r]
    compact(blocks, work)


@kernel
def sweep_blocks(step_ptr, links, weight, log_node, blocks, rule, log_z, p_node, sums, stats, work):
    """Beliefs of a packed batch and its Bethe log Z (mean field: the bound); returns how many are flagged.

    Chain after chain, until no message into or out of a sequence moves by rule.tol; at rule.max_sweeps each
    chain once more, with the messages as they are.

    Arguments:
        step_ptr : (T+1,)
        links : (link_ptr (G+1,), end (2, E))
        weight : (B,)
        log_node : (n, M), overwritten
        blocks : a `LinkedChains` (for shapes, see the top)
        rule : a `SweepRule`
    Out:
        log_z : (B,), NaN where the log form is needed, -inf where all labels of a token are forbidden
        p_node : (n, M) = weight * beliefs
        sums : a `LinkedSums`
        stats : (4,), added to
    Work:
        work : a `LinkedWork`
    Cost: a sweep is 2 n L^2 a chain and 2 E L_a L_b a group, in matrix products.
    Source: docs/SPEC.md, B.4, B.5; chapter 13.
    """
    m = blocks.size.size
    p_node[:] = 0.0
    log_z[:] = -np.inf
    if open_blocks(step_ptr, links, log_node, blocks, rule.kind, work) > 0 or blocks.is_hard:
        close_dead(log_node, blocks, work)
        compact(blocks, work)
    if rule.kind == BELIEFS and work.count[1] > 0:
        exp_scores(log_node, blocks, work)
    for sweep in range(rule.max_sweeps + 1):
        last = sweep == rule.max_sweeps
        if work.count[1] == 0:
            break
        for k in range(m):
            n, B = work.count[0], work.count[1]
            if B == 0:
                break
            work.moved[:B] = 0
            run_chain(k, rule.kind, blocks, work)
            take_cavities(k, rule, blocks, work)
            stats[3] += 2 * (n - B) * (blocks.pair_start[k] >= 0)
            if last:
                continue
            stats[3] += send_messages(k, rule, log_node, blocks, work)
            n_done = settle(sweep + 1, blocks, work)
            if LEAVE * n_done >= n or n_done > 0 and k == m - 1 and sweep + 1 == rule.max_sweeps:
                leave(1, weight, log_node, blocks, rule, log_z, p_node, sums, stats, work)
        if last and work.count[1] > 0:
            work.done[: work.count[1]], work.sweeps[: work.count[1]] = 1, sweep
            leave(0, weight, log_node, blocks, rule, log_z, p_node, sums, stats, work)
    n_flagged = 0
    for r in range(log_z.size):
        n_flagged += np.isnan(log_z[r])
    return n_flagged


@np.errstate(divide="ignore")  # log 0 of a message is -inf
def block_sweeps_plain(chains, links, n_sweeps, mean_field=False):
    """Beliefs [(T, L_k), ...] of the label chains of one sequence: the readable sister of `sweep_blocks`.

    chains : [(log_node (T, L_k), log_pair (L_k, L_k) [previous, next]), ...].
    links : [(a, b, end int64 (2, E), log_table (L_a, L_b)), ...]: labels of chain a at tokens end[0], and of
        chain b at tokens end[1].
    n_sweeps : updates of each chain.
    mean_field : the fields of structured mean field in place of messages.
    Source: Sutton, Rohanimanesh and McCallum (2004), section 3.2; Saul and Jordan (1996).
    """
    into = {}  # (link, 0): messages to its chain a, (link, 1): to its chain b; in logarithms
    for g, (_, _, end, table) in enumerate(links):
        for side in (0, 1):
            into[g, side] = np.zeros((end.shape[1], table.shape[side]))
    beliefs = [None] * len(chains)
    for _ in range(n_sweeps):
        for k, (log_node, log_pair) in enumerate(chains):
            mine = [(g, side) for g, side in into if links[g][side] == k]
            u = log_node.copy()
            for g, side in mine:
                np.add.at(u, links[g][2][side], into[g, side])
            scores = np.concatenate([u.ravel(), *[log_pair.ravel()] * len(u)])
            p = beliefs[k] = plain_tables(plain_marginals(scores, u.shape[1])[1], u.shape[1])[0]
            sent = {}
            for g, side in mine:
                q = p[links[g][2][side]]
                table = links[g][3].T if side else links[g][3]
                if mean_field:
                    new = q @ table
                else:  # the cavity lacks what came along the same link
                    cavity = np.divide(q, np.exp(into[g, side]), out=np.zeros_like(q), where=q > 0)
                    message = cavity @ np.exp(table)
                    new = np.log(message / message.sum(axis=1, keepdims=True))
                sent[g, 1 - side] = new
            into |= sent  # not before: a link may join two tokens of chain k
    return beliefs
