"""One visit of stochastic gradient to a sequence, for many labels, most pairs of which have no weight.

What gradient_descent.py does on dense rows and tables of transitions is done here on the weights where they
stand in the FeatureSet: cells are the weights w (F,) themselves. Transitions are potentials of 1 and stored
pairs, of which those of active labels count (chain/active/sequence.py). The sets are chosen anew at each
visit, so a label that comes to matter comes in. eps = 0 is exact. `lists`: a `ListLayout` of
chain/token_layout.py; `work`: a `ListWork`. There is one edge class with one edge attribute.

After a step all pairs of active labels have moved, others have at most shrunk. So scores and gains of a label
are made when a sequence first needs them, from theta.
"""

from typing import NamedTuple

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.active.sequence import (
    ActiveRule,
    ActiveWork,
    PairWeights,
    active_backward,
    active_forward,
    active_work,
    refresh_cells,
)
from crfbook.chain.forward_backward_batched import exp_rows
from crfbook.chain.scores import list_gradient
from crfbook.chain.sequence import score_nodes
from crfbook.chain.sparse.default import find_next
from crfbook.chain.sparse.lanes import default_log_sums
from crfbook.chain.sparse.potentials import DefaultEdges, default_edges


class ListWork(NamedTuple):
    """What stochastic gradient writes while it visits one sequence after another; T = the longest, C cells, P
    stored pairs.

    In the log form `psi` holds scores and `product` expected counts.
    """

    psi: np.ndarray  # (T, L): scores, then their exp
    p_node: np.ndarray  # (T, L)
    log_z: np.ndarray  # (1,): what exp took away
    flags: np.ndarray  # (1,): 1: the log form is needed
    rows: np.ndarray  # int64 (T+1,): 0, 1, 2, ...
    cells: np.ndarray  # int32 (C,): 0, 1, 2, ...
    edges: DefaultEdges
    product: np.ndarray  # (P,): zeros between visits
    pairs: PairWeights
    rule: ActiveRule
    cell: np.ndarray  # int32 (T C,): active cells
    ptr: np.ndarray  # int64 (T+1,)
    active: ActiveWork


def list_work(corpus, layout, lists, eps):
    """`ListWork` for the sequences of a corpus, from its `lay_out_lists`."""
    scores, longest = lists.scores, max(1, corpus.longest)
    n_labels, n_cells = len(scores.group), len(scores.member)
    weight = len(lists.node_label) + scores.score.astype(np.int64) - 1
    edges = default_edges(scores._replace(score=np.zeros(len(weight))), layout.bounds)
    psi, p_node = np.zeros((2, longest, n_labels))
    numbers = np.arange(longest + 1), np.arange(n_cells, dtype=np.int32)
    single = np.zeros(1), np.zeros(1, np.uint8)
    pairs = PairWeights(weight, np.zeros(1), np.zeros(1, np.int64), np.full(n_cells, -1))
    sets = np.zeros(longest * n_cells, np.int32), np.zeros(longest + 1, np.int64)
    found = psi, p_node, *single, *numbers, edges, np.zeros(len(weight)), pairs
    return ListWork(*found, ActiveRule(float(eps), -1.0, 1), *sets, active_work(longest, n_labels))


@kernel
def gold_edge(t, n_before, layout):
    """The weight of the gold transition into token t, or -1.

    Arguments:
        t : a token that is not the first
        n_before : weights before those of transitions
        layout : an `OnlineLayout`
    Cost: a bisection.
    Source: Sokolovska et al. (2010), eq. (3).
    """
    k = layout.edge_class[t]
    pair = layout.labels[t - 1] * layout.exists.shape[1] + layout.labels[t]
    for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
        e = find_next(layout.edge_cell, layout.edge_ptr[b], layout.edge_ptr[b + 1], pair)
        if e >= 0:
            return n_before + e
    return -1


@kernel
def loss_by_lists(s, theta, scale, spread, layout, lists, work):
    """log Z~ - score(gold) of sequence s at the weights scale theta; `work` keeps what the gradient needs.

    Z~ is the sum over paths of which only the active pairs count. The gold labels are active, so their path
    counts with all its pairs, and no loss is negative. Where the scaled form is not safe log Z is exact, in
    logarithms. Not finite: scores exceed float64, or every path is forbidden.

    Arguments:
        s : a sequence that is not empty
        theta : (F,)
        scale : factor of all weights
        spread : at least the largest difference of scores of transitions, 0 among them
        layout : an `OnlineLayout`
        lists : a `ListLayout`
    Out:
        work : a `ListWork`
    Cost: one addition per stored (occurrence, weight) pair, T L exps, and that of `active_forward`.
    Source: Jeong, Lin and Lee (2009), eq. (8); chapter 10.
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    labels, psi, n_before = layout.labels[first:last], work.psi[: last - first], theta.size - lists.place.size
    score_nodes(s, theta, scale, layout, lists, psi)
    gold = 0.0
    for t in range(first, last):
        gold += psi[t - first, layout.labels[t]]
        e = gold_edge(t, n_before, layout) if t > first else -1
        if e >= 0:
            gold += scale * theta[e]
    work.pairs.scale[0] = scale
    work.pairs.step[0] += 1
    work.flags[0], work.log_z[0] = 0, 0.0
    rows = work.rows[: last - first]
    exp_rows(psi, spread, work.rows[: last - first + 1], work.log_z, work.flags)
    if work.flags[0] == 0:
        log_z = active_forward(
            rows, psi, labels, work.edges, work.rule, 1, work.cell, work.ptr, work.active, work.pairs, theta
        )
        if not np.isnan(log_z):
            return log_z + work.log_z[0] - gold
    work.flags[0] = 1
    refresh_cells(work.cells, theta, work.pairs, work.edges)
    score_nodes(s, theta, scale, layout, lists, psi)
    p_node = work.p_node[: last - first]
    return default_log_sums(psi, work.edges, 0.0, p_node, work.product) - gold


@kernel
def move_pairs(cells, step, work, theta):
    """theta of the stored pairs of some cells += step * expected counts, each once; returns the smallest and
    the largest of them. `product` becomes 0.

    Arguments:
        cells : int32 (n,), they may repeat
        step : factor of the gradient
        work : after `active_backward` or, flagged, in the log form
    Out:
        theta : (F,)
    Cost: the stored pairs.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    scores, gain, low, high = work.edges.scores, work.edges.gain, 0.0, 0.0
    for c in cells:
        if work.pairs.known[c] != work.pairs.step[0]:
            continue
        work.pairs.known[c] = -1
        for k in range(scores.row_ptr[c], scores.row_ptr[c + 1]):
            count = work.product[k]
            if count > 0.0:
                if work.flags[0] == 0:  # close to -1 a gain has lost the digits of its potential
                    count *= gain[k] + 1.0 if gain[k] > -0.5 else np.exp(scores.score[k])
                z = theta[work.pairs.weight[k]] + step * count
                theta[work.pairs.weight[k]] = z
                low, high = min(low, z), max(high, z)
                work.product[k] = 0.0
    return low, high


@kernel
def add_gradient_by_lists(s, step, layout, lists, work, theta):
    """theta <- theta + step * (gradient of the loss of sequence s), its sets held constant; returns the
    smallest and the largest weight of a transition that it moved, 0 among them.

    Arguments:
        s, layout, lists, work : as `loss_by_lists` left them
        step : factor of the gradient
    Out:
        theta : (F,)
    Cost: one addition per stored (occurrence, weight) pair, and that of `active_backward`.
    Source: Jeong, Lin and Lee (2009), eq. (9); Sokolovska et al. (2010), eq. (5).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    T, n_before = last - first, theta.size - lists.place.size
    p_node, psi, cells = work.p_node[:T], work.psi[:T], work.cells
    if work.flags[0] == 0:
        cells = work.cell[: work.ptr[T]]
        active_backward(
            work.rows[:T], psi, 1.0, work.edges, work.rule, work.cell, work.ptr, p_node, work.product,
            work.active
        )  # fmt: skip
    else:
        default_log_sums(psi, work.edges, 1.0, p_node, work.product)
    low, high = move_pairs(cells, step, work, theta)
    for t in range(first, last):
        p_node[t - first, layout.labels[t]] -= 1.0
        e = gold_edge(t, n_before, layout) if t > first else -1
        if e >= 0:
            theta[e] -= step
            low, high = min(low, theta[e]), max(high, theta[e])
    flat = p_node.reshape(-1)
    for i in range(flat.size):
        flat[i] *= step
    list_gradient(
        p_node, lists.node_ptr, lists.node_label, lists.dense_of, lists.number[first:last],
        lists.attr_ptr, lists.attr_idx, lists.attr_val, lists.dense, theta
    )  # fmt: skip
    return low, high


@kernel
def edge_extremes(theta, lists):
    """The smallest and the largest weight of a transition, 0 among them; on tables (0, 0).

    Arguments:
        theta : (C,)
        lists : a `ListLayout`
    Cost: the weights of transitions.
    Source: chapter 10.
    """
    low, high = 0.0, 0.0
    if lists is None:
        return low, high
    for k in range(theta.size - lists.place.size, theta.size):
        low, high = min(low, theta[k]), max(high, theta[k])
    return low, high
