"""The step of one block: candidates, their new weights, and what these do to tables and lattices.

A candidate is a weight of the block that is not zero, or would not stay zero: cell yp << SHIFT | y, or -1 - y
for a node weight. `found` is a Candidates of state.py: cell, and rows OLD, NEW, GRADIENT, CURVE of
number; the first n places count. All others see gradient.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.learners.coordinate.gradient import CURVATURE, EXPECTED, GOLD
from crfbook.learners.coordinate.tables import (
    LABEL,
    SHIFT,
    SIZE,
    START,
    place_list,
    rebuild_base,
    rebuild_classes,
)

ADAPTIVE, FIXED, WAPITI, SAFE, CS = 0, 1, 2, 3, 4  # Rule.step
OLD, NEW, GRADIENT, CURVE = 0, 1, 2, 3  # rows of Candidates.number
LARGEST, SQUARES = 0, 1  # places of State.seen: of the violations of the KKT conditions
SLOPE, BEND, PENALTY = 0, 1, 2  # places of State.model, see `propose`
FLOOR = 1e-5  # of the largest curvature of a block: the adaptive rule believes no smaller one
STRIDE = 8  # between candidates that become neighbours in a list


@kernel
def load_block(a, b, base_holds, mu, base_log, weights, old_edge):
    """old_edge[yp, y] = weights of edge attribute b;
    returns how many weights of the block (a, b) are not zero.

    Arguments: a, b: node and edge attribute, -1: none; base_holds: does the base table hold edge attribute 0;
    mu (A, M); base_log (M, M); weights; out: old_edge (M, M), 0 before. Cost: M + active weights. Source:
    docs/SPEC.md, A.10.
    """
    n = 0
    if a >= 0:
        for w in mu[a]:
            n += 1 if w != 0.0 else 0
    if b == 0 and base_holds:
        for yp in range(old_edge.shape[0]):
            for y in range(old_edge.shape[1]):
                w = base_log[yp, y]
                old_edge[yp, y] = w if w > -np.inf else 0.0
                n += 1 if old_edge[yp, y] != 0.0 else 0
    elif b >= 0:
        start, size = weights.row[START, b], weights.row[SIZE, b]
        for e in range(start, start + size):
            old_edge[weights.cell[e] >> SHIFT, weights.cell[e] & LABEL] = weights.value[e]
        n += size
    return n


@kernel
def _consider(cell, w, expected, curvature, gold, c1, c2, secant, pinned, n, found, seen):
    """Append the weight to the candidates if it is one; returns their number. seen: largest violation,
    sum of squared ones.

    pinned: the weight stays what it is: an infinite curvature.
    secant: where gold > expected, the curvature sum p (1 - p) grows by (gold - expected) / (expected log(gold
    / expected)): while p is small that makes the step log(gold / expected) of iterative scaling, where
    Newton's would be far too long; near the end the factor is 1.
    """
    grad = expected - gold
    if w == 0.0 and (pinned or abs(grad) <= c1):
        return n
    if pinned:
        found.cell[n] = cell
        found.number[OLD, n] = w
        found.number[CURVE, n] = np.inf
        return n + 1
    slope = grad + 2.0 * c2 * w
    violation = abs(slope + c1) if w > 0.0 else abs(slope - c1) if w < 0.0 else abs(slope) - c1
    seen[LARGEST] = max(seen[LARGEST], violation)
    seen[SQUARES] += violation * violation
    if secant and gold > expected >= 0.0:
        expected = max(expected, 1e-12)
        curvature *= max(1.0, (gold - expected) / (expected * np.log(gold / expected)))
    found.cell[n] = cell
    found.number[OLD, n] = w
    found.number[GRADIENT, n] = grad
    found.number[CURVE, n] = curvature
    return n + 1


@kernel
def candidates(a, b, only, rule, mu, old_edge, exist, sums, found, seen):
    """Candidates of block (a, b); returns their number.
    seen[LARGEST] = largest violation of the KKT conditions so far, seen[SQUARES] += its squares.

    Arguments: a, b: node and edge attribute, -1: none; only: place of the one weight that may move (nodes
    first, then pairs row by row), -1: all; rule: a Rule of state.py (frozen: zeros stay zeros); mu (A,
    M); old_edge (M, M) of `load_block`; exist: the weights that exist, an Existing of state.py; sums;
    out: found, seen (2,). Cost: the weights of the block. Source: Sokolovska et al. (2010), eq. (13);
    docs/SPEC.md, A.7.
    """
    n, L, virtual, c1, c2 = np.int64(0), rule.n_labels, exist.node_ptr.size == 0, rule.c1, rule.c2
    frozen, secant = rule.frozen, rule.step == ADAPTIVE
    if a >= 0:
        p = sums.node
        for j in range(0 if virtual else exist.node_ptr[a], L if virtual else exist.node_ptr[a + 1]):
            y = j if virtual else exist.node_label[j]
            if frozen and mu[a, y] == 0.0:
                continue
            pinned = only >= 0 and only != y
            n = _consider(
                -1 - y,
                mu[a, y],
                p[EXPECTED, y],
                p[CURVATURE, y],
                p[GOLD, y],
                c1,
                c2,
                secant,
                pinned,
                n,
                found,
                seen,
            )
    if b < 0:
        return n
    p = sums.edge
    yp, y = 0, -1
    for j in range(0 if virtual else exist.edge_ptr[b], L * L if virtual else exist.edge_ptr[b + 1]):
        if virtual:
            yp, y = (yp, y + 1) if y + 1 < L else (yp + 1, 0)
        else:
            yp, y = exist.edge_prev[j], exist.edge_next[j]
        w = old_edge[yp, y]
        if w == 0.0 and (frozen or abs(p[EXPECTED, yp, y] - p[GOLD, yp, y]) <= c1):
            continue
        pinned = only >= 0 and only != L + yp * L + y
        n = _consider(
            yp << SHIFT | y,
            w,
            p[EXPECTED, yp, y],
            p[CURVATURE, yp, y],
            p[GOLD, yp, y],
            c1,
            c2,
            secant,
            pinned,
            n,
            found,
            seen,
        )
    return n


@kernel
def scale_curvatures(n, rule, square, sums, found):
    """Curvatures of the step rule: floored (ADAPTIVE), as they are (FIXED),
    times the largest Newton step (WAPITI, SQUARES), constant (SAFE).

    SQUARES, times gamma: of one choice with probabilities p the Hessian diag(p) - p p' is at most 2 diag(p (1
    - p)); where node and edge weights move together,
        Var(a + b) <= 2 Var(a) + 2 Var(b) makes that 4 (docs/SPEC.md, A.8).
    Arguments: n; rule: a Rule of state.py; square: the curvature of the safe rule; sums; out: found.
    Cost: M^2. Source: docs/SPEC.md, A.9.
    """
    curve, high, node, edge, M = found.number[CURVE], 0.0, 1.0, 1.0, sums.node.shape[1]
    for y in range(M):
        high = max(high, sums.node[CURVATURE, y])
        for x in range(M):
            high = max(high, sums.edge[CURVATURE, y, x])
    for y in range(M if rule.step == WAPITI or rule.step == CS else 0):
        node = max(
            node, abs(sums.node[EXPECTED, y] - sums.node[GOLD, y]) / max(sums.node[CURVATURE, y], 1e-12)
        )
        for x in range(M):
            edge = max(
                edge,
                abs(sums.edge[EXPECTED, y, x] - sums.edge[GOLD, y, x])
                / max(sums.edge[CURVATURE, y, x], 1e-12),
            )
    n_node, n_edge = 0, 0
    for j in range(n):
        if curve[j] < np.inf:
            n_node, n_edge = n_node + (found.cell[j] < 0), n_edge + (found.cell[j] >= 0)
    gamma = 1.5 if rule.step == WAPITI else 4.0 if n_node > 0 and n_edge > 0 else 2.0
    for j in range(n):
        curve[j] = max(curve[j], 1e-12)
        if curve[j] == np.inf:
            continue
        if rule.step == ADAPTIVE:
            curve[j] = max(curve[j], FLOOR * high)
        elif rule.step == WAPITI or rule.step == CS:
            curve[j] *= (node if found.cell[j] < 0 else edge) * gamma
        elif rule.step == SAFE:
            curve[j] = square


@kernel
def propose(n, factor, c1, c2, number, model):
    """new = S(factor h old - grad, c1) / (factor h + 2 c2); model = (grad . d, sum h d^2,
    change of the penalty).

    Arguments: n; factor; c1, c2; number (4, n) of Candidates; out: model (3,). Cost: n. Source:
    Sokolovska et al. (2010), eq. (13), (14).
    """
    model[SLOPE], model[BEND], model[PENALTY] = 0.0, 0.0, 0.0
    for j in range(n):
        h, old, grad = factor * number[CURVE, j], number[OLD, j], number[GRADIENT, j]
        number[NEW, j] = old
        if h == np.inf:
            continue
        z = h * old - grad
        new = (z - c1 if z > c1 else z + c1 if z < -c1 else 0.0) / (h + 2.0 * c2)
        number[NEW, j] = new
        d = new - old
        model[SLOPE] += grad * d
        model[BEND] += number[CURVE, j] * d * d
        model[PENALTY] += c1 * (abs(new) - abs(old)) + c2 * (new * new - old * old)


@kernel
def write_block(a, b, n, base_holds, mu, base_log, weights, found, delta_node, delta_edge):
    """The new weights of block (a, b) into mu, the base table or the list of b (which has room for n);
    delta = new - old.

    Arguments: a, b; n; base_holds; mu (A, M); base_log (M, M); weights; found; delta_node (M,), delta_edge
    (M, M): set at the candidates. In the list neighbours are far apart in the table: sums over it need not
    wait for each other. Cost: n, and the list. Source: docs/SPEC.md, A.10.
    """
    n_edge, held = np.int64(0), b == 0 and base_holds
    for j in range(n):
        c, new = found.cell[j], found.number[NEW, j]
        d = new - found.number[OLD, j]
        if c < 0:
            mu[a, -1 - c] = new
            delta_node[-1 - c] = d
            continue
        delta_edge[c >> SHIFT, c & LABEL] = d
        if held:
            base_log[c >> SHIFT, c & LABEL] = new
        else:
            n_edge += 1 if new != 0.0 else 0
    if b < 0 or held:
        return
    place_list(b, n_edge, weights.row)
    e = weights.row[START, b]
    for first in range(STRIDE):
        for j in range(first, n, STRIDE):
            if found.cell[j] >= 0 and found.number[NEW, j] != 0.0:
                weights.cell[e] = found.cell[j]
                weights.value[e] = found.number[NEW, j]
                e += 1


@kernel
def clear_block(b, n, base_holds, weights, found, old_edge, delta_node, delta_edge):
    """old_edge and delta back to 0 after `load_block` and a step with n candidates.

    Arguments: b; n; base_holds; weights; found; old_edge (M, M), delta_node (M,), delta_edge (M, M). Cost:
    as `load_block`. Source: none needed.
    """
    for j in range(n):
        c = found.cell[j]
        if c < 0:
            delta_node[-1 - c] = 0.0
        else:
            delta_edge[c >> SHIFT, c & LABEL] = 0.0
            old_edge[c >> SHIFT, c & LABEL] = 0.0
    if b == 0 and base_holds:
        for yp in range(old_edge.shape[0]):
            for y in range(old_edge.shape[1]):
                old_edge[yp, y] = 0.0
    elif b >= 0:
        for e in range(weights.row[START, b], weights.row[START, b] + weights.row[SIZE, b]):
            old_edge[weights.cell[e] >> SHIFT, weights.cell[e] & LABEL] = 0.0


@kernel
def renew_tables(b, base_holds, n_labels, dense_above, blocks, tables, weights, work):
    """Tables of all classes that hold edge attribute b.

    Arguments: b; base_holds; n_labels; dense_above; blocks; tables; weights; work. Cost:
    see `rebuild_classes`. Source: docs/SPEC.md, A.10.
    """
    if b == 0 and base_holds:
        rebuild_base(tables.base_log, n_labels, tables.base, tables.base_t, tables.level)
    if b >= 0:
        classes = blocks.classes[blocks.class_ptr[b] : blocks.class_ptr[b + 1]]
        rebuild_classes(classes, dense_above, tables, weights, work.sum, work.touched, work.value)
