"""Forward-backward with a default: all label pairs have potential 1 but for those that are stored.

    sum_yp alpha[yp] psi(yp,y) = sum_yp alpha[yp] + sum_stored alpha[yp] gain(yp,y),  gain = psi - 1

The first sum is the same for all y, so a token costs L and the stored pairs. These are scattered: a product
with one reads memory at random. LANES sequences side by side share that read, and their numbers fill one or
two vector registers. A *lane* is the place of a sequence in [label, lane] arrays, and in tuples of LANES
numbers.

Hard constraints make groups of next labels, as in default.py; each group has a first sum of its own.
gain >= -1, and digits are lost where the gains cancel most of the first sum: such sums are added up anew. A
sequence that scaled numbers cannot hold is flagged, and `default_log_sums` computes it.

`edges` is a `DefaultEdges` of potentials.py; `cells` is a tuple of work arrays, T steps of the longest batch:
psi, alpha (T, L, LANES), scale (T, LANES), v, beta (L, LANES), factor_buf (L,). One edge class.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward import SMALLEST_MASS, node_marginals_log
from crfbook.chain.forward_backward_batched import exp_rows

LANES = 8
NOTHING = (0.0,) * LANES
LEAST_SHARE = 1e-4  # a sum of which the gains leave less than this share has lost 4 digits of 16


@kernel
def _get(x, i):
    """Lanes of x[i]."""
    return x[i, 0], x[i, 1], x[i, 2], x[i, 3], x[i, 4], x[i, 5], x[i, 6], x[i, 7]


@kernel
def _put(a, x, i):
    """x[i] = a."""
    x[i, 0], x[i, 1], x[i, 2], x[i, 3], x[i, 4], x[i, 5], x[i, 6], x[i, 7] = a


@kernel
def _plus(a, f, b):
    """a + f b."""
    return (
        a[0] + f * b[0], a[1] + f * b[1], a[2] + f * b[2], a[3] + f * b[3],
        a[4] + f * b[4], a[5] + f * b[5], a[6] + f * b[6], a[7] + f * b[7],
    )  # fmt: skip


@kernel
def _times(a, b):
    """a b, lane by lane."""
    return (
        a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3],
        a[4] * b[4], a[5] * b[5], a[6] * b[6], a[7] * b[7],
    )  # fmt: skip


@kernel
def _dot(a, b):
    """Sum of a b over the lanes."""
    c = _times(a, b)
    return ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]))


@kernel
def _lost_digits(a, total):
    """Is a lane of a less than LEAST_SHARE of its total?"""
    n = 0
    for b in range(LANES):
        n += a[b] < LEAST_SHARE * total[b]
    return n > 0


@kernel
def _weighted(factor_buf, x):
    """sum_i factor_buf[i] x[i]."""
    a = NOTHING
    for i in range(factor_buf.size):
        a = _plus(a, factor_buf[i], _get(x, i))
    return a


@kernel
def column_factors(y, edges, factor):
    """factor[yp] = psi(yp,y), each pair by itself, to add up a sum again that has lost digits.

    Arguments:
        y : next label
        edges : a `DefaultEdges`
    Out:
        factor : (L,), 0 where forbidden
    Cost: L, an exp a stored pair.
    Source: chapter 10.
    """
    scores = edges.scores
    factor[:] = 0.0
    g = scores.group[y]
    for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
        factor[scores.member[c]] = 1.0
    for k in range(edges.column_ptr[y], edges.column_ptr[y + 1]):
        factor[edges.column_prev[k]] = np.exp(scores.score[edges.column_place[k]])


@kernel
def row_factors(c, g, edges, factor):
    """factor[y] = psi(c,y) for the next labels y of group g, as `column_factors`.

    Arguments:
        c : a cell of g
        g : group of next labels
        edges : a `DefaultEdges`
    Out:
        factor : (L,), 0 for other labels
    Cost: L, an exp a stored pair.
    Source: chapter 10.
    """
    scores = edges.scores
    factor[:] = 0.0
    for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
        factor[scores.label[i]] = 1.0
    for k in range(scores.row_ptr[c], scores.row_ptr[c + 1]):
        factor[scores.next_label[k]] = np.exp(scores.score[k])


@kernel
def _mix(edges, before, psi, alpha, factor_buf):
    """alpha[y] = psi[y] sum_yp before[yp] psi(yp,y); returns sum_y alpha[y]."""
    scores, mass = edges.scores, NOTHING
    for g in range(scores.member_ptr.size - 1):
        total = NOTHING
        for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
            total = _plus(total, 1.0, _get(before, np.uint32(scores.member[c])))
        for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
            y, a = np.uint32(scores.label[i]), total
            for k in range(edges.column_ptr[y], edges.column_ptr[y + 1]):
                a = _plus(a, edges.column_gain[k], _get(before, np.uint32(edges.column_prev[k])))
            if _lost_digits(a, total):
                column_factors(y, edges, factor_buf)
                a = _weighted(factor_buf, before)
            a = _times(a, _get(psi, y))
            _put(a, alpha, y)
            mass = _plus(mass, 1.0, a)
    return mass


@kernel
def _normalise(n, r, alpha, mass, scale, log_z, flags):
    """alpha /= its sum, which log_z takes in; flags what breaks the rule of forward_backward_scaled."""
    n_lost = 0
    for y in range(alpha.shape[0]):
        for b in range(LANES):
            n_lost += (alpha[y, b] > 0.0) & (alpha[y, b] < SMALLEST_MASS)
    for b in range(LANES):
        scale[b], lost = 0.0, True
        if b < n:
            lost = not (mass[b] > 0.0 and mass[b] < np.inf)
            for y in range(alpha.shape[0] if n_lost > 0 else 0):
                lost |= alpha[y, b] > 0.0 and alpha[y, b] < SMALLEST_MASS
            if lost:
                flags[r + b] = 1
            else:
                scale[b] = 1.0 / mass[b]
                log_z[r + b] += np.log(mass[b])
        for y in range(alpha.shape[0] if lost else 0):  # it may be infinite, and 0 times that is no 0
            alpha[y, b] = 0.0
    f = _get(scale.reshape(1, LANES), 0)
    for y in range(alpha.shape[0]):
        _put(_times(_get(alpha, y), f), alpha, y)


@kernel
def _lanes_forward(r, step_ptr, edges, log_node, log_z, flags, cells):
    """alpha and log_z of the sequences r..r+LANES-1 of a batch; log_node (n, M) holds exp of scores."""
    psi, alpha, scale, v, beta, factor_buf = cells
    L = alpha.shape[1]
    for t in range(step_ptr.size - 1):
        lo = step_ptr[t] + r
        n = min(LANES, step_ptr[t + 1] - lo)
        if n <= 0:
            break
        for b in range(LANES):
            for y in range(L):
                psi[t, y, b] = log_node[lo + b, y] if b < n and not flags[r + b] else 0.0
        mass = NOTHING
        if t == 0:
            for y in range(L):
                a = _get(psi[0], y)
                _put(a, alpha[0], y)
                mass = _plus(mass, 1.0, a)
        else:
            mass = _mix(edges, alpha[t - 1], psi[t], alpha[t], factor_buf)
        _normalise(n, r, alpha[t], mass, scale[t], log_z, flags)


@kernel
def _step_back(edges, before, v, beta, product, square, share, factor_buf):
    """beta[yp] = sum_y psi(yp,y) v[y]; product of each stored pair += before[yp] v[y], square its square."""
    scores = edges.scores
    beta[:] = 0.0
    for g in range(scores.member_ptr.size - 1):
        total = NOTHING
        for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
            total = _plus(total, 1.0, _get(v, np.uint32(scores.label[i])))
        for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
            yp = np.uint32(scores.member[c])
            a, p = total, _get(before, yp)
            for k in range(scores.row_ptr[c], scores.row_ptr[c + 1]):
                x = _get(v, np.uint32(scores.next_label[k]))
                a = _plus(a, edges.gain[k], x)
                product[k] += _dot(p, x)
                if square.size:
                    q = _times(p, x)
                    square[k] += _dot(_times(q, share), q)
            if _lost_digits(a, total):
                row_factors(c, g, edges, factor_buf)
                a = _weighted(factor_buf, v)
            _put(_plus(_get(beta, yp), 1.0, a), beta, yp)


@kernel
def _lanes_backward(r, step_ptr, edges, weight, flags, p_node, sums, cells):
    """p_node of the sequences r..r+LANES-1 of a batch, flagged ones 0; adds to the sums of stored pairs."""
    psi, alpha, scale, v, beta, factor_buf = cells
    L, n_ahead, share = alpha.shape[1], 0, np.zeros((1, LANES))
    beta[:] = 0.0
    for b in range(min(LANES, weight.size - r)):
        share[0, b] = 1.0 / weight[r + b] if weight[r + b] > 0.0 else 0.0
    for t in range(step_ptr.size - 2, -1, -1):
        lo = step_ptr[t] + r
        n = min(LANES, step_ptr[t + 1] - lo)
        if n <= 0:
            continue
        for b in range(n_ahead, n):
            for y in range(L):
                beta[y, b] = 0.0 if flags[r + b] else weight[r + b]
        n_ahead = n
        for b in range(n):
            # The beta of an unreachable label can be any number, even inf. It is not used.
            for y in range(L):
                p_node[lo + b, y] = alpha[t, y, b] * beta[y, b] if alpha[t, y, b] > 0.0 else 0.0
            for y in range(L, p_node.shape[1]):
                p_node[lo + b, y] = 0.0
        if t > 0:
            for y in range(L):
                for b in range(LANES):
                    g = psi[t, y, b] * beta[y, b] * scale[t, b]
                    v[y, b] = g if alpha[t, y, b] > 0.0 else 0.0
            _step_back(edges, alpha[t - 1], v, beta, sums.product, sums.square, _get(share, 0), factor_buf)


@kernel
def lanes_forward_backward(b, packing, edges, log_node, log_z, p_node, sums, work):
    """log Z, node marginals and sums for the stored pairs of a batch; returns how many sequences are flagged.

    alpha[0,y] = psi[0,y] / c[0],  c[t] such that sum_y alpha[t,y] = 1
    alpha[t,y] = psi[t,y] (sum_yp alpha[t-1,yp] + sum_stored alpha[t-1,yp] gain(yp,y)) / c[t]
    v[t,y] = psi[t,y] beta[t,y] / c[t],   beta[T-1] = weight
    beta[t-1,yp] = sum_y v[t,y] + sum_stored gain(yp,y) v[t,y]
    log_z = sum_t log c[t] + what exp took away;  p_node = alpha beta
    product(yp,y) += sum_t alpha[t-1,yp] v[t,y]:  psi(yp,y) times that are expected counts

    Arguments:
        b, packing : a batch, n rows of B sequences
        edges : a `DefaultEdges`
        log_node : (n, M), scores, overwritten
    Out:
        log_z : (B,)
        p_node : (n, M) = weight * marginals
        sums : a `DefaultSums`, its product and, if it is not empty, its square added to
        work : a `LaneWork`: flags uint8, the first B: 1 = needs the log form
            (its log_z is NaN, its p_node rows are 0, it adds nothing)
    Cost a token: 2 L and 3 products a stored pair, LANES tokens at a time; L exps.
    Source: Jeong, Lin and Lee (2009), eq. (8), (9) with omega = 1; Sokolovska et al. (2010), section 3.2;
    chapter 10.
    """
    step_ptr = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
    weight, flags = packing.weight[packing.slot_ptr[b] : packing.slot_ptr[b + 1]], work.flags
    n_flagged = 0
    for r in range(log_z.size):
        log_z[r], flags[r] = 0.0, 0
    exp_rows(log_node, edges.edge_spread[0], step_ptr, log_z, flags)
    cells = work.psi, work.lane_alpha, work.scale, work.v, work.beta, work.factor
    for r in range(0, log_z.size, LANES):
        _lanes_forward(r, step_ptr, edges, log_node, log_z, flags, cells)
        _lanes_backward(r, step_ptr, edges, weight, flags, p_node, sums, cells)
    for r in range(log_z.size):
        n_flagged += flags[r]
        log_z[r] = np.nan if flags[r] else log_z[r]
    return n_flagged


@kernel
def _scaled_sum(x, place, left_out):
    """(high, sum of exp(x[i] - high)), high the largest x[i], for i of place that are not left out (M,) bool.

    (-inf, 0) where none is finite. NaN and +inf make the sum NaN.
    """
    high, total = -np.inf, 0.0
    for i in place:
        high = x[i] if x[i] > high and not left_out[i] else high
    for i in place:
        if x[i] != -np.inf and not left_out[i]:
            total += np.exp(x[i] - high)
    return high, total


@kernel
def _stored_sum(x, high, total, place, stored, at, score, is_stored):
    """As `_scaled_sum` of place, but stored[k] of them have score[at[k]] added.

    high, total : `_scaled_sum` of place without these scores
    is_stored : (M,), False, and again at the end
    """
    rest = total
    for i in stored:
        rest -= np.exp(x[i] - high) if x[i] > -np.inf else 0.0
    if stored.size > 0 and not rest >= LEAST_SHARE * total:
        is_stored[stored] = True
        high, rest = _scaled_sum(x, place, is_stored)
        is_stored[stored] = False
    top = high
    for k in range(stored.size):
        v = x[stored[k]] + score[at[k]]
        top = v if v > top else top
    if rest != 0.0:
        rest *= np.exp(high - top)
    for k in range(stored.size):
        v = x[stored[k]] + score[at[k]]
        if v != -np.inf:
            rest += np.exp(v - top)
    return top, rest


@kernel
def _log_alpha(log_node, edges, alpha):
    """`forward_backward_log`'s log_alpha into alpha (T, M), -inf before; returns log_z, NaN if a score is."""
    scores, no_label = edges.scores, np.zeros(log_node.shape[1], np.bool_)
    alpha[0] = log_node[0]
    for t in range(1, log_node.shape[0]):
        for g in range(scores.member_ptr.size - 1):
            cells = scores.member[scores.member_ptr[g] : scores.member_ptr[g + 1]]
            high, total = _scaled_sum(alpha[t - 1], cells, no_label)
            for y in scores.label[scores.label_ptr[g] : scores.label_ptr[g + 1]]:
                column = slice(edges.column_ptr[y], edges.column_ptr[y + 1])
                stored = edges.column_prev[column], edges.column_place[column], scores.score
                top, part = _stored_sum(alpha[t - 1], high, total, cells, *stored, no_label)
                alpha[t, y] = log_node[t, y] + (top + np.log(part))
    high, total = _scaled_sum(alpha[-1], np.arange(alpha.shape[1]), no_label)
    return high + np.log(total)


@kernel
def default_log_sums(log_node, edges, weight, p_node, count):
    """log_z of one sequence, node marginals and expected counts of stored pairs, in the log domain.

    As `sequence_sums_log` finds them with a table of all pairs. However large the scores are, probabilities
    of a token sum to one, and those of the pairs behind a label to at most its own:

        p(yp, y) = p_node[t-1,yp] exp(score + log_node[t,y] + log_beta[t,y]) / (the sum of these over all y)

    Arguments:
        log_node : (T, M), T >= 1
        edges : a `DefaultEdges`, whose gains are not read
        weight : of the sequence
    Out:
        p_node : (T, M) = weight * marginals; zeros if the weight is 0 or log_z is not finite
        count : (P,), += weight * p of each stored pair
    Cost a token: 2 L exps, and 6 a stored pair; up to L more for each label whose sum its stored pairs
    decide. With all pairs stored a table is faster.
    Source: docs/SPEC.md, A.3.
    """
    scores, (T, M) = edges.scores, log_node.shape
    row_ptr, next_label, score = scores.row_ptr, scores.next_label, scores.score
    in_row = np.arange(score.size)  # a row stands in one piece, a column does not
    alpha, beta, no_label = np.full((T, M), -np.inf), np.full((T, M), -np.inf), np.zeros(M, np.bool_)
    log_z = _log_alpha(log_node, edges, alpha)
    if not np.isfinite(log_z) or weight == 0.0:
        p_node[:] = 0.0
        return log_z
    beta[T - 1] = 0.0
    node_marginals_log(alpha[T - 1 :], beta[T - 1 :], log_z, p_node[T - 1 :])
    high_of, sum_of = np.empty(M), np.empty(M)  # of each label before, over the groups that it is in
    for t in range(T - 1, 0, -1):
        after = log_node[t] + beta[t]
        high_of[:], sum_of[:] = -np.inf, 0.0
        for g in range(scores.member_ptr.size - 1):
            own = scores.label[scores.label_ptr[g] : scores.label_ptr[g + 1]]
            high, total = _scaled_sum(after, own, no_label)
            for c in range(scores.member_ptr[g], scores.member_ptr[g + 1]):
                row, yp = slice(row_ptr[c], row_ptr[c + 1]), scores.member[c]
                stored = next_label[row], in_row[row], score
                top, part = _stored_sum(after, high, total, own, *stored, no_label)
                if top > high_of[yp]:
                    sum_of[yp] *= np.exp(high_of[yp] - top)
                    high_of[yp] = top
                if part != 0.0:
                    sum_of[yp] += part * np.exp(top - high_of[yp])
        for yp in range(M):
            beta[t - 1, yp] = high_of[yp] + np.log(sum_of[yp]) if sum_of[yp] > 0.0 else -np.inf
        node_marginals_log(alpha[t - 1 : t], beta[t - 1 : t], log_z, p_node[t - 1 : t])
        for c in range(scores.member.size):
            yp = scores.member[c]
            if p_node[t - 1, yp] > 0.0:
                share = weight * p_node[t - 1, yp] / sum_of[yp]
                for k in range(row_ptr[c], row_ptr[c + 1]):
                    count[k] += share * np.exp(after[next_label[k]] + score[k] - high_of[yp])
    p_node *= weight
    return log_z
