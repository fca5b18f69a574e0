"""log Z with a default and stored pairs: what turns scores of many labels into probabilities.

All pairs but the stored ones score 0, so that all next labels of a group share one sum over previous
labels, and each stored pair corrects one of them. `scores` is a DefaultScores (chain/sparse/potentials.py),
`tables` a KBestTables (labellings.py) of the same pairs by column.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.vector_math import exp_inplace
from crfbook.decoding.kbest import fill_column

# A sum that corrections leave less than this share of is added up anew: it lost 4 digits of 16.
LEAST_SHARE = 1e-4
FAR = 50.0  # nats: rows so far below a sum of L labels change less than its rounding


@kernel
def _log_sum_exp(x, x_buf):
    """log sum_i exp(x[i]); -inf if all are."""
    high, total = -np.inf, 0.0
    for i in range(x.size):
        high = x[i] if x[i] > high else high
    if high == -np.inf:
        return high
    for i in range(x.size):
        x_buf[i] = x[i] - high
    exp_inplace(x_buf)
    for i in range(x.size):
        total += x_buf[i]
    return high + np.log(total)


@kernel
def _add_group(k, g, high, log_alpha, share, scores, gain, out):
    """out[y] = sum_yp share[yp] exp(s(yp,y)) for the next labels y of group g, as far as cancellation lets;
    returns the sum of share, which is that of a label without stored pairs.
    """
    first, stop, base, total = scores.member_ptr[g], scores.member_ptr[g + 1], k * scores.member.size, 0.0
    for c in range(first, stop):
        total += share[scores.member[c]]
    for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
        out[scores.label[i]] = total
    if total > 0.0:
        limit = high + np.log(total) - FAR
        for c in range(first, stop):
            yp = scores.member[c]
            if log_alpha[yp] + scores.max_row[base + c] >= limit:
                for e in range(scores.row_ptr[base + c], scores.row_ptr[base + c + 1]):
                    out[scores.next_label[e]] += share[yp] * gain[e]
    return total


@kernel
def log_z_stored(log_node, scores, tables, gain, edge_class, seq_ptr, log_z):
    """log Z of every sequence, in logarithms throughout: nothing underflows, whatever is forbidden.

    log_alpha[t,y] = log_node[t,y] + high + log(out[y]),  high = max log_alpha[t-1]
    out[y] = sum_yp share[yp] + sum over stored (yp,y) of share[yp] gain(yp,y),  share = exp(log_alpha[t-1] -
    high); where out[y] is a small part of the first sum it is added up pair by pair
    log_z = log sum_y exp(log_alpha[T-1,y])

    Arguments: log_node (n, L); scores: a `DefaultScores`; tables: a `KBestTables`; gain (P,): exp(score) - 1
    of the stored pairs; edge_class int32 (n,); seq_ptr int64 (S+1,); out: log_z (S,): 0 for an empty
    sequence, -inf if all is forbidden. Cost a token: L, the cells of all groups, the stored pairs, and L for
    each sum that is added up anew. Source: docs/SPEC.md, A.3; Sokolovska et al. (2010), section 3.2.
    """
    L = log_node.shape[1]
    log_alpha, share, out, column, x_buf = np.empty(L), np.empty(L), np.empty(L), np.empty(L), np.empty(L)
    for s in range(log_z.size):
        log_z[s] = 0.0
        for t in range(seq_ptr[s], seq_ptr[s + 1]):
            if t == seq_ptr[s]:
                for y in range(L):
                    log_alpha[y] = log_node[t, y]
                continue
            k, high = edge_class[t], -np.inf
            for y in range(L):
                high = log_alpha[y] if log_alpha[y] > high else high
            if high == -np.inf:
                break
            for y in range(L):
                share[y] = log_alpha[y] - high
            exp_inplace(share)
            for g in range(scores.member_ptr.size - 1):
                total = _add_group(k, g, high, log_alpha, share, scores, gain, out)
                log_total = np.log(total) if total > 0.0 else -np.inf
                for i in range(scores.label_ptr[g], scores.label_ptr[g + 1]):
                    y = scores.label[i]
                    if total > 1e-280 and out[y] > LEAST_SHARE * total and out[y] < 1e300:
                        out[y] = high + (log_total if out[y] == total else np.log(out[y]))
                    else:
                        fill_column(k, y, tables, column)
                        for yp in range(L):
                            column[yp] += log_alpha[yp]
                        out[y] = _log_sum_exp(column, x_buf)
            for y in range(L):
                log_alpha[y] = log_node[t, y] + out[y]
        if seq_ptr[s] < seq_ptr[s + 1]:
            log_z[s] = _log_sum_exp(log_alpha, x_buf)
