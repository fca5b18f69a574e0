"""From attribute lists to node scores, and back from node marginals to the gradient.

Both are products with one sparse matrix: log_node = X w and grad = X' p_node, where X says which weights
each (token, label) cell sums. `list_scores` walks attribute lists as they stand (tagging, one-off scores).
Training visits the same cells hundreds of times, so it uses a layout built once: frequent attributes as
dense rows (`dense_*`), all other occurrences as a flat list of (weight, cell) pairs (`pair_*`).

Attributes that always come together share a row. Wherever the tag trigram DT|JJ|NN occurs, its three tags and
its two bigrams occur at the same positions. Then the trigram can carry them: its dense row holds the sum of
all six rows, and the five are left out of the lists of those tokens. `find_companions` finds the attributes
that accompany another one in the corpus, without knowing templates.
"""

import numpy as np

from crfbook._jit import kernel


@kernel
def list_scores(w, node_ptr, node_label, dense, dense_of, token, attr_ptr, attr_idx, attr_val, log_node):
    """log_node[r, y] += sum over attributes a of token[r] of x[a] w[a, y]; absent weights count as 0.

    Arguments:
        w : float64 (F,)
        node_ptr : (A+1,)
        node_label : (n_node,), the rows of the FeatureSet
        dense : (H, >= L), copies of some rows of weights, from `fill_dense`; may be empty
        dense_of : int32 (A',), the copy of attribute a < A', or -1; may be empty
        token : int64 (n,), corpus token of each row
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        attr_val : (nnz,) or (0,) for all ones
    Out:
        log_node : (n, >= L), added to
    Cost: one multiply-add per stored (occurrence, weight) pair, or one contiguous row per occurrence.
    Source: Sokolovska et al. (2010), section 2; docs/SPEC.md, F.2.
    """
    n_attrs = node_ptr.size - 1
    width = dense.shape[1]
    for r in range(token.size):
        t = token[r]
        u = log_node[r]
        for i in range(attr_ptr[t], attr_ptr[t + 1]):
            a = attr_idx[i]
            x = attr_val[i] if attr_val.size else 1.0
            h = dense_of[a] if a < dense_of.size else -1
            if h >= 0:
                d = dense[h]
                for y in range(width):
                    u[y] += x * d[y]
            elif a < n_attrs:
                for k in range(node_ptr[a], node_ptr[a + 1]):
                    # an unsigned index needs no test of its sign
                    u[np.uint32(node_label[k])] += x * w[k]


@kernel
def list_gradient(
    p_node, node_ptr, node_label, dense_of, token, attr_ptr, attr_idx, attr_val, dense_grad, grad
):
    """grad[a, y] += sum over rows r of x[a] p_node[r, y]: `list_scores` transposed.

    Arguments:
        p_node : (n, >= L)
        node_ptr : (A+1,)
        node_label : (n_node,)
        dense_of : int32 (A',)
        token : (n,)
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        attr_val : (nnz,) or (0,) as in `list_scores`
    Out:
        dense_grad : (H, <= M), of attributes with a dense row
        grad : (F,), of the others; both added to
    Cost: that of `list_scores`.
    Source: Sokolovska et al. (2010), eq. (5); docs/SPEC.md, F.2.
    """
    n_attrs, width = node_ptr.size - 1, dense_grad.shape[1]
    for r in range(token.size):
        p = p_node[r]
        for i in range(attr_ptr[token[r]], attr_ptr[token[r] + 1]):
            a = attr_idx[i]
            x = attr_val[i] if attr_val.size else 1.0
            h = dense_of[a] if a < dense_of.size else -1
            if h >= 0:
                g = dense_grad[h]
                for y in range(width):
                    g[y] += x * p[y]
            elif a < n_attrs:
                for k in range(node_ptr[a], node_ptr[a + 1]):
                    grad[k] += x * p[np.uint32(node_label[k])]


@kernel
def path_scores(log_node, log_edge, edge_class, labels, seq_ptr, score):
    """score[s] = sum_t log_node[t, y_t] + sum_{t>=1} log_edge[c_t, y_{t-1}, y_t] for the labels of s.

    Arguments:
        log_node : (n, L)
        log_edge : (K, L, L) [class, previous, next]
        edge_class : (n,)
        labels : (n,)
        seq_ptr : (S+1,), relative to row 0
    Out:
        score : (S,)
    Cost: O(n).
    Source: Sokolovska et al. (2010), eq. (1).
    """
    for s in range(seq_ptr.size - 1):
        total = 0.0
        for t in range(seq_ptr[s], seq_ptr[s + 1]):
            total += log_node[t, labels[t]]
            if t > seq_ptr[s]:
                total += log_edge[edge_class[t], labels[t - 1], labels[t]]
        score[s] = total


@kernel
def fill_dense(w, member_ptr, member, node_ptr, node_label, dense):
    """dense[h, y] = sum of w[a, y] over the attributes a that share row h; absent weights count as 0.

    Arguments:
        w : (F,)
        member_ptr : int64 (H+1,)
        member : int64 (n_members,), the attributes of row h are member[member_ptr[h]:member_ptr[h+1]]
        node_ptr : (A+1,)
        node_label : (n_node,)
    Out:
        dense : (H, >= L), overwritten
    Cost: H L, and the number of weights of these attributes.
    Source: docs/SPEC.md, F.2.
    """
    for h in range(member_ptr.size - 1):
        d = dense[h]
        for y in range(d.size):
            d[y] = 0.0
        for m in range(member_ptr[h], member_ptr[h + 1]):
            a = member[m]
            for k in range(node_ptr[a], node_ptr[a + 1]):
                d[node_label[k]] += w[k]


@kernel
def collect_dense(dense_grad, member_ptr, member, node_ptr, node_label, grad):
    """grad[a, y] += dense_grad[h, y] for all attributes a that share row h: the transpose of `fill_dense`.

    Arguments:
        dense_grad : (H, >= L)
        member_ptr : (H+1,)
        member : (n_members,)
        node_ptr : (A+1,)
        node_label : (n_node,)
    Out:
        grad : (F,), added to
    Cost: the number of weights of these attributes.
    Source: docs/SPEC.md, F.2.
    """
    for h in range(member_ptr.size - 1):
        for m in range(member_ptr[h], member_ptr[h + 1]):
            a = member[m]
            for k in range(node_ptr[a], node_ptr[a + 1]):
                grad[k] += dense_grad[h, node_label[k]]


@kernel
def value_of(values, i):
    """values[i], and 1 where there are none: of attributes that all have the value 1.

    Arguments:
        values : (R,), or (0,)
        i : position
    Cost: a load.
    Source: docs/SPEC.md, F.1.
    """
    return values[i] if values.size else 1.0


@kernel
def dense_scores(dense, dense_id, dense_row, dense_val, start, stop, log_node):
    """log_node[dense_row[i], y] += dense_val[i] dense[dense_id[i], y] for start <= i < stop.

    Arguments:
        dense : (H, M)
        dense_id, dense_row : int32 (R,), dense row of weights, row of the batch
        dense_val : float64 (R,), or (0,) for all ones
    Out:
        log_node : (n, >= M), added to
    Sorted by dense_id, the large table is walked in order while the batch stays in the second-level cache.
    Cost: M additions an entry, over contiguous memory.
    Source: docs/SPEC.md, F.2.
    """
    width = dense.shape[1]
    for i in range(start, stop):
        d, u = dense[dense_id[i]], log_node[dense_row[i]]
        x = value_of(dense_val, i)
        for y in range(width):
            u[y] += x * d[y]


@kernel
def dense_gradient(p_node, dense_id, dense_row, dense_val, start, stop, dense_grad):
    """dense_grad[dense_id[i], y] += dense_val[i] p_node[dense_row[i], y]: `dense_scores` transposed.

    Arguments:
        p_node : (n, >= M)
        dense_id, dense_row : (R,)
        dense_val : (R,) or (0,)
        start, stop : as in `dense_scores`
    Out:
        dense_grad : (H, M), added to
    Cost: M additions an entry.
    Source: Sokolovska et al. (2010), eq. (5); docs/SPEC.md, F.2.
    """
    width = dense_grad.shape[1]
    for i in range(start, stop):
        g, p = dense_grad[dense_id[i]], p_node[dense_row[i]]
        x = value_of(dense_val, i)
        for y in range(width):
            g[y] += x * p[y]


@kernel
def pair_scores(w, pair_weight, pair_cell, pair_val, start, stop, log_node):
    """log_node.flat[pair_cell[i]] += pair_val[i] w[pair_weight[i]] for start <= i < stop.

    Arguments:
        w : (F,)
        pair_weight, pair_cell : int32 (P,)
        pair_val : (P,), or (0,) for all ones
    Out:
        log_node : (n * M,), flat, added to
    The loads do not depend on each other, so the processor overlaps them.
    Cost: one addition a pair.
    Source: docs/SPEC.md, F.2.
    """
    for i in range(start, stop):
        x = value_of(pair_val, i)
        log_node[pair_cell[i]] += x * w[pair_weight[i]]


@kernel
def pair_gradient(p_node, pair_weight, pair_cell, pair_val, start, stop, grad):
    """grad[pair_weight[i]] += pair_val[i] p_node.flat[pair_cell[i]]: `pair_scores` transposed.

    Arguments:
        p_node : (n * M,), flat
        pair_weight, pair_cell, pair_val, start, stop : as in `pair_scores`
    Out:
        grad : (F,), added to
    Cost: one addition a pair.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    for i in range(start, stop):
        x = value_of(pair_val, i)
        grad[pair_weight[i]] += x * p_node[pair_cell[i]]


@kernel
def _mark_carried(attributes, dense_of, member_ptr, member, r, carried_buf):
    """carried_buf[b] = r for every attribute b that another one of this token carries in its dense row."""
    for a in attributes:
        h = dense_of[a] if a < dense_of.size else -1
        if h >= 0:
            for m in range(member_ptr[h] + 1, member_ptr[h + 1]):
                carried_buf[member[m]] = r


@kernel
def count_layout(
    row_token, attr_ptr, attr_idx, dense_of, member_ptr, member, node_ptr, dense_ptr, pair_ptr, carried_buf
):
    """Sizes of the training layout: dense occurrences and expanded pairs of every packed row.

    Arguments:
        row_token : (n,)
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        dense_of : int32 (A,), dense row of an attribute, or -1
        member_ptr : (H+1,)
        member : (n_members,), attributes that share row h, the one that carries the others first
        node_ptr : (A+1,)
    Out:
        dense_ptr, pair_ptr : int64 (n+1,), running counts
    Work:
        carried_buf : int64 (A,), -1 at the start
    Cost: O(nnz).
    Source: docs/SPEC.md, F.1.
    """
    dense_ptr[0] = 0
    pair_ptr[0] = 0
    for r in range(row_token.size):
        attributes = attr_idx[attr_ptr[row_token[r]] : attr_ptr[row_token[r] + 1]]
        _mark_carried(attributes, dense_of, member_ptr, member, r, carried_buf)
        n_dense = 0
        n_pairs = 0
        for a in attributes:
            if a >= dense_of.size or carried_buf[a] == r:
                continue
            if dense_of[a] >= 0:
                n_dense += 1
            else:
                n_pairs += node_ptr[a + 1] - node_ptr[a]
        dense_ptr[r + 1] = dense_ptr[r] + n_dense
        pair_ptr[r + 1] = pair_ptr[r] + n_pairs


@kernel
def fill_layout(
    row_token, row_base, attr_ptr, attr_idx, attr_val, dense_of, node_ptr, node_label, width, layout,
    carried_buf,
):  # fmt: skip
    """The training layout itself: (dense_id, dense_row) for dense rows, (pair_weight,
    pair_cell) for everything else.

    Arguments as in `count_layout`:
        row_token : (n,)
        row_base : int64 (n,), position of a row inside its batch
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        attr_val : (nnz,) or (0,)
        dense_of : (A,)
        node_ptr : (A+1,)
        node_label : (n_node,)
        width : cells of a row of scores
        layout : a `Layout` of packing.py, whose member_ptr, member, dense_ptr and pair_ptr (n+1,) are read
        carried_buf : (A,), -1 at the start
    Out:
        its dense_id, dense_row int32 (R,), dense_val (R,) or (0,); pair_weight, pair_cell int32 (P,),
            pair_val (P,) or (0,): cell = row_base * width + label
    Cost: O(R + P).
    Source: docs/SPEC.md, F.1.
    """
    for r in range(row_token.size):
        i, j = layout.dense_ptr[r], layout.pair_ptr[r]
        first = attr_ptr[row_token[r]]
        attributes = attr_idx[first : attr_ptr[row_token[r] + 1]]
        _mark_carried(attributes, dense_of, layout.member_ptr, layout.member, r, carried_buf)
        for n in range(attributes.size):
            a = attributes[n]
            if a >= dense_of.size or carried_buf[a] == r:
                continue
            if dense_of[a] >= 0:
                layout.dense_id[i], layout.dense_row[i] = dense_of[a], row_base[r]
                if attr_val.size:
                    layout.dense_val[i] = attr_val[first + n]
                i += 1
                continue
            for k in range(node_ptr[a], node_ptr[a + 1]):
                layout.pair_weight[j], layout.pair_cell[j] = k, row_base[r] * width + node_label[k]
                if attr_val.size:
                    layout.pair_val[j] = attr_val[first + n]
                j += 1


@kernel
def find_companions(attr_ptr, attr_idx, candidate, companion, n_companions, repeated, seen_buf):
    """companion[c] = attributes present at ALL tokens of candidate c:
    the intersection of those tokens' lists.

    Arguments:
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        candidate : int32 (A,), number of a candidate carrier, or -1
    Out:
        companion : int32 (C, W), at most W of them each
        n_companions : int32 (C,), -1 at the start
        repeated : uint8 (A,), 1 if a token lists the attribute twice
    Work:
        seen_buf : int64 (A,), -1 at the start
    Cost: O(nnz + sum of |companion[c]| over the candidates' occurrences).
    Source: closure of an item set, Pasquier et al. (1999), "Discovering frequent closed itemsets".
    """
    for t in range(attr_ptr.size - 1):
        lo, hi = attr_ptr[t], attr_ptr[t + 1]
        for i in range(lo, hi):
            if seen_buf[attr_idx[i]] == t:
                repeated[attr_idx[i]] = 1
            seen_buf[attr_idx[i]] = t
        for i in range(lo, hi):
            c = candidate[attr_idx[i]]
            if c < 0:
                continue
            n = 0
            if n_companions[c] < 0:
                for j in range(lo, hi):
                    if j != i and n < companion.shape[1]:
                        companion[c, n] = attr_idx[j]
                        n += 1
            else:
                for j in range(n_companions[c]):
                    if seen_buf[companion[c, j]] == t:
                        companion[c, n] = companion[c, j]
                        n += 1
            n_companions[c] = n


@kernel
def count_claims(attr_ptr, attr_idx, candidate, companion, n_companions, claims, state_buf):
    """claims[c, j] = number of tokens where candidate c gets companion[c, j],
    each attribute going to one carrier at most.

    In each token the later attributes of the list choose first, as templates put their most specific tests
    last. An attribute that is carried carries nothing, and one that carries cannot be carried. A pair with as
    many claims as c has tokens can be kept: dropping other pairs never takes a claim away.

    Arguments:
        attr_ptr : (N+1,)
        attr_idx : (nnz,)
        candidate : int32 (A,)
        companion : (C, W)
        n_companions : (C,) as in `find_companions`
    Out:
        claims : int32 (C, W), added to
    Work:
        state_buf : int64 (A,), -1 at the start
    Cost: as `find_companions`.
    Source: greedy set cover; the rule is ours.
    """
    for t in range(attr_ptr.size - 1):
        carrying, taken = 2 * t, 2 * t + 1
        for i in range(attr_ptr[t + 1] - 1, attr_ptr[t] - 1, -1):
            a = attr_idx[i]
            c = candidate[a]
            if c < 0 or state_buf[a] == taken:
                continue
            for j in range(n_companions[c]):
                b = companion[c, j]
                if state_buf[b] < carrying:
                    state_buf[b] = taken
                    state_buf[a] = carrying
                    claims[c, j] += 1
