"""Directed chains: emissions of the HMM, local likelihood of the MEMM,
and the MEMM written as a chain of potentials.

Both are products of conditional probabilities along the chain. Once their factors stand as log_node and
log_edge, decoding and marginals are those of the CRF (viterbi, forward_backward).
The containers of arrays are those of `likelihood_of_batches`.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.forward_backward_batched import steps_of
from crfbook.chain.likelihood import batch_gradient, batch_scores
from crfbook.chain.vector_math import exp_inplace


@kernel
def emission_scores(
    log_emit, absent, unknown, node_ptr, node_label, attr_ptr, attr_idx, attr_val, log_node, seen_buf
):
    """log_node[t, y] = sum over attributes a of token t of x[a] log p(a | y);
    log p(unknown | y) if t has no attribute.

    log p(a | y) = log_emit[k] where weight k joins a and y, else absent[y], which may be -inf:
    it is added only where needed.

    Arguments: log_emit (n_node,); absent, unknown (L,); node_ptr (A+1,), node_label (n_node,): rows of the
    FeatureSet; attr_ptr (N+1,), attr_idx (nnz,), attr_val (nnz,) or (0,) for all ones; out: log_node (N, L);
    work: seen_buf (L,). Cost: one multiply-add per stored (occurrence, weight) pair and N L additions.
    Source: Rabiner (1989), eq. (8), with a bag of symbols for an observation.
    """
    for t in range(attr_ptr.size - 1):
        u = log_node[t]
        if attr_ptr[t] == attr_ptr[t + 1]:
            u[:] = unknown
            continue
        u[:] = 0.0
        seen_buf[:] = 0.0
        total = 0.0
        for i in range(attr_ptr[t], attr_ptr[t + 1]):
            x = attr_val[i] if attr_val.size else 1.0
            total += x
            if x > 0.0:
                for k in range(node_ptr[attr_idx[i]], node_ptr[attr_idx[i] + 1]):
                    u[node_label[k]] += x * log_emit[k]
                    seen_buf[node_label[k]] += x
        for y in range(u.size):
            if seen_buf[y] < total:
                u[y] += (total - seen_buf[y]) * absent[y]


@kernel
def _softmax_row(log_node, log_edge, weight, p_row):
    """p_row[y] = weight * exp(log_node[y] + log_edge[y]) / Z; returns log Z. All (M,);
    log_edge (M,) or (0,) for a first token.
    """
    high = -np.inf
    for y in range(p_row.size):
        p_row[y] = log_node[y] + log_edge[y] if log_edge.size else log_node[y]
        high = max(high, p_row[y])
    for y in range(p_row.size):
        p_row[y] -= high
    exp_inplace(p_row)
    z = p_row.sum()
    for y in range(p_row.size):
        p_row[y] *= weight / z
    return high + np.log(z)


@kernel
def shard_local_likelihood(shard, w, dense, edges, packing, layout, work, counts, edge_sum):
    """Expected counts of one shard under p(y_t | y_{t-1}, x), the gold previous label given:
    `likelihood_of_batches` of a MEMM.

    p[t, y] = exp(log_node[t, y] + log_edge[k, yp, y]) / Z[t, yp],   yp = gold label of t-1
    log_z = sum_t log Z[t, yp]
    grad[a, y] = sum_{t: a in x_t} weight x[a] p[t, y];   edge_sum[k, yp, y] = sum_t weight p[t, y]

    Arguments as there: shard; w (F,), dense (H, M or L), edges, packing, layout, work; out:
    counts, edge_sum (K, M, M). Returns the first sequence whose log Z is not finite, or -1. Cost: n M exps:
    no recursion, each token is a small classifier. Source: McCallum, Freitag and Pereira (2000), section 2.
    """
    counts.grad[:] = 0.0
    counts.dense_grad[:] = 0.0
    edge_sum[:] = 0.0
    bad = -1
    for b in range(packing.shard_ptr[shard], packing.shard_ptr[shard + 1]):
        lo, n, slot = packing.row_ptr[b], packing.row_ptr[b + 1] - packing.row_ptr[b], packing.slot_ptr[b]
        step_ptr, log_node, p_node = steps_of(b, packing)[0], work.log_node[:n], work.p_node[:n]
        batch_scores(b, w, dense, edges.bounds, packing, layout, log_node)
        for t in range(step_ptr.size - 1):
            for i in range(step_ptr[t], step_ptr[t + 1]):
                s = slot + i - step_ptr[t]
                weight = packing.weight[s]
                if t == 0:
                    counts.log_z[s] = _softmax_row(log_node[i], edges.bounds.middle[:0], weight, p_node[i])
                else:
                    k, yp = packing.row_class[lo + i], packing.labels[lo + step_ptr[t - 1] + i - step_ptr[t]]
                    counts.log_z[s] += _softmax_row(log_node[i], edges.log_edge[k, yp], weight, p_node[i])
                    for y in range(p_node.shape[1]):
                        edge_sum[k, yp, y] += p_node[i, y]
                if bad < 0 and not np.isfinite(counts.log_z[s]):
                    bad = s
        batch_gradient(b, p_node, packing, layout, counts.dense_grad, counts.grad)
    return bad


@kernel
def move_normalisers(log_node, log_edge, edge_class, seq_ptr):
    """Write a MEMM as a chain of potentials: each local normaliser moves to the label it depends on.

    log p(y | x) = sum_t log_node[t, y_t] + log_edge[y_{t-1}, y_t] - log Z[t, y_{t-1}],
    log Z[t, yp] = LSE_y(log_node[t, y] + log_edge[yp, y])
    so  log_node[t-1, yp] -= log Z[t, yp]  and  log_node[first] -= LSE_y log_node[first, y]  leave the same
    log p, without a Z: the forward-backward of these potentials has log_z = 0. A label yp without successor,
    Z[t, yp] = 0, gets log_node -inf.

    Arguments: log_node (N, L), changed in place; log_edge (K, L, L) [class, previous, next]; edge_class (N,);
    seq_ptr (S+1,). Cost: N L^2 exps. Source: McCallum, Freitag and Pereira (2000), section 2;
    the rewriting is ours.
    """
    L = log_node.shape[1]
    for s in range(seq_ptr.size - 1):
        for t in range(seq_ptr[s], seq_ptr[s + 1]):
            high = log_node[t].max()
            if t == seq_ptr[s]:
                if high > -np.inf:
                    log_node[t] -= high + np.log(np.exp(log_node[t] - high).sum())
                continue
            edge = log_edge[edge_class[t]]
            for yp in range(L):
                high = -np.inf
                for y in range(L):
                    high = max(high, log_node[t, y] + edge[yp, y])
                if high == -np.inf:
                    log_node[t - 1, yp] = -np.inf
                    continue
                z = 0.0
                for y in range(L):
                    z += np.exp(log_node[t, y] + edge[yp, y] - high)
                log_node[t - 1, yp] -= high + np.log(z)
