"""Edge potentials of a class as a base plus sparse differences,
merged from the weights of its edge attributes.

Weights are attribute by attribute: those of edge attribute b > 0 that are not zero are attr_code,
attr_log[attr_ptr[b] : attr_ptr[b + 1]], code = previous * L + next, rising. Attribute 0, plain transitions,
and hard constraints are the base (M, M), shared by all classes; with neither of them the base is 1
everywhere, and has shape (0, 0). The NamedTuples `active` (ActiveEdges), `edges` (SparseEdges) and `scores`
(SparseScores) of potentials.py list their arrays with shapes.
"""

import numpy as np

from crfbook._jit import kernel


@kernel
def count_entries(active, stamp_buf, count):
    """count[k] = how many label pairs have a weight in some attribute b > 0 of class k:
    the union of their supports.

    Arguments: active; work: stamp_buf int64 (L*L,), all -1; out: count int64 (K,). Cost: one step for each
    weight of each class. Source: Sokolovska et al. (2010), section 3.2.
    """
    for k in range(count.size):
        count[k] = 0
        for i in range(active.class_ptr[k], active.class_ptr[k + 1]):
            b = active.class_attr[i]
            if b == 0 or b >= active.attr_ptr.size - 1:
                continue
            for j in range(active.attr_ptr[b], active.attr_ptr[b + 1]):
                count[k] += stamp_buf[active.attr_code[j]] != k
                stamp_buf[active.attr_code[j]] = k


@kernel
def sort_touched(touched, n, stamp, mark):
    """Put touched[:n], the positions of stamp that hold mark, into rising order: sorted if few,
    found again if many.

    Arguments: touched uint32 (m,), changed; n; stamp int64 (m,); mark. Cost: n log n, or m. Source:
    chapter 06.
    """
    if n * 32 < stamp.size:
        touched[:n].sort()
        return
    i = 0
    for code in range(stamp.size):
        if stamp[code] == mark:
            touched[i] = code
            i += 1


@kernel
def open_table(base, n_labels, table):
    """table = base, or 1 for the L labels and 0 for padding if there is no base.

    Arguments: base (M, M) or (0, 0); n_labels; out: table (M, M). Cost: M^2. Source: Sokolovska et al.
    (2010), eq. (9).
    """
    for yp in range(table.shape[0]):
        for y in range(table.shape[1]):
            if base.size:
                table[yp, y] = base[yp, y]
            else:
                table[yp, y] = 1.0 if yp < n_labels and y < n_labels else 0.0


@kernel
def merge_weights(k, active, opening, stamp_buf, touched_buf, pair_buf):
    """pair_buf[code] = opening + sum_b lam[b, code] for every pair of the support of class k;
    returns how many there are.

    Their codes, rising, are left in touched_buf. Arguments: k; active; opening (M, M) or (0, 0): zeros; out:
    touched_buf uint32 (L*L,), pair_buf (L*L,); work: stamp_buf int64 (L*L,), no k in it. Cost: one step a
    weight, and sorting. Source: Sokolovska et al. (2010), eq. (3).
    """
    n, L = 0, active.n_labels
    for i in range(active.class_ptr[k], active.class_ptr[k + 1]):
        b = active.class_attr[i]
        if b == 0 or b >= active.attr_ptr.size - 1:
            continue
        for j in range(active.attr_ptr[b], active.attr_ptr[b + 1]):
            code = active.attr_code[j]
            if stamp_buf[code] != k:
                stamp_buf[code] = k
                pair_buf[code] = opening[code // L, code % L] if opening.size else 0.0
                touched_buf[n] = code
                n += 1
            pair_buf[code] += active.attr_log[j]
    sort_touched(touched_buf, n, stamp_buf, k)
    return n


@kernel
def fill_entries(edges, spread, stamp_buf, touched_buf, pair_buf):
    """psi[e] = base[yp,y] exp(sum_b lam[b,yp,y]) and gain[e] = psi[e] - base[yp,y]
    of every pair (yp, y) of the support of a class.

    One exponential of the sum, whatever the number of attributes: gain = base expm1(sum). A class with
    table_of[k] >= 0 is written as a whole table instead. Arguments: edges, of which active, base, table_of
    and entry_ptr are read; out: its prev, next_label, gain, psi (E,) and table (D, M, M); spread (K,):
    largest minus smallest of 0 and the sums; work: stamp_buf int64 (L*L,), all -1; touched_buf uint32 (L*L,);
    pair_buf (L*L,). Cost: one step a weight, an exp an entry. Source: Sokolovska et al. (2010), eq. (9).
    """
    zero, L, base = np.empty((0, 0)), edges.active.n_labels, edges.base
    for k in range(edges.table_of.size):
        n = merge_weights(k, edges.active, zero, stamp_buf, touched_buf, pair_buf)
        low, high, e, d = 0.0, 0.0, edges.entry_ptr[k], edges.table_of[k]
        if d >= 0:
            open_table(base, L, edges.table[d])
        for i in range(n):
            code = touched_buf[i]
            v = pair_buf[code]
            low, high = min(low, v), max(high, v)
            yp, y = code // L, code % L
            b, m = base[yp, y] if base.size else 1.0, np.expm1(v)
            p = 1.0 + m if m > -0.5 else np.exp(v)
            if d >= 0:
                edges.table[d, yp, y] = b * p
            else:
                edges.prev[e], edges.next_label[e] = yp, y
                edges.gain[e], edges.psi[e] = b * m, b * p
                e += 1
        spread[k] = high - low


@kernel
def fill_scores(active, log_base, scores, stamp_buf, touched_buf, pair_buf):
    """entry_score[e] = log_base[yp,y] + sum_b lam[b,yp,y] of every pair of the support of a class,
    summed in that order.

    Arguments as in `fill_entries`: active; log_base (M, M) or (0, 0); scores, of which entry_ptr is read;
    out: its prev, next_label and entry_score (E,); work: stamp_buf (L*L,), all -1; touched_buf (L*L,);
    pair_buf (L*L,). Cost: one step a weight. Source: Sokolovska et al. (2010), eq. (10).
    """
    L = active.n_labels
    for k in range(scores.entry_ptr.size - 1):
        n = merge_weights(k, active, log_base, stamp_buf, touched_buf, pair_buf)
        for i in range(n):
            e, code = scores.entry_ptr[k] + i, touched_buf[i]
            scores.prev[e], scores.next_label[e], scores.entry_score[e] = code // L, code % L, pair_buf[code]


@kernel
def class_scores(k, edges, table):
    """table[yp,y] = log_base[yp,y] + sum_b lam[b,yp,y]: the scores of class k in the logarithmic domain.

    Arguments: k; edges; out: table (M, M), padding labels -inf. Cost: M^2 and the weights of the class.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    active, log_base, L = edges.active, edges.log_base, edges.active.n_labels
    for yp in range(table.shape[0]):
        for y in range(table.shape[1]):
            if log_base.size:
                table[yp, y] = log_base[yp, y]
            else:
                table[yp, y] = 0.0 if yp < L and y < L else -np.inf
    for i in range(active.class_ptr[k], active.class_ptr[k + 1]):
        b = active.class_attr[i]
        if b == 0 or b >= active.attr_ptr.size - 1:
            continue
        for j in range(active.attr_ptr[b], active.attr_ptr[b + 1]):
            table[active.attr_code[j] // L, active.attr_code[j] % L] += active.attr_log[j]
