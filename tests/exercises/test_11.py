"""Chapter 11: what its exercises say that one should find, found without the chapter's code."""

from heapq import heapify, heappop, heappush
from itertools import product

import numpy as np
import pytest

from crfbook import CRF, load_dataset
from crfbook.chain import inference
from crfbook.data.features import log_edge
from crfbook.decoding import label_order, search_by
from crfbook.decoding.staggered import staggered_decode
from crfbook.encoding import templates
from studies.work import joint


def random_model(rng, T, L):
    """Small whole numbers, so that ties abound; a third of the pairs is stored."""
    edge = rng.integers(-3, 4, (L, L)) * (rng.random((L, L)) < 0.35)
    return rng.integers(-3, 4, (T, L)).astype(float), edge.astype(float)


def all_scores(node, edge):
    paths = np.array(list(product(range(len(edge)), repeat=len(node))))
    return node[np.arange(len(node)), paths].sum(1) + edge[paths[:, :-1], paths[:, 1:]].sum(1)


def forward(node, edge):
    """delta, and where it came from."""
    delta, back = [node[0]], []
    for u in node[1:]:
        table = delta[-1][:, None] + edge
        delta.append(u + table.max(0))
        back.append(table.argmax(0))
    return np.array(delta), back


def gain(edge, q):
    """b_q of section 3."""
    return (edge - edge[q]).max(1)


class Tagger:
    """The perceptron of section 7 on the built-in twin, and the sentences that the chapter calls `some`."""

    def __init__(self):
        chunks = load_dataset("conll2000", source="builtin", verbose=False)
        model = CRF(template=templates.load("pos"), algorithm="perceptron", max_iterations=5)
        model.fit(joint(chunks.train, 500))
        corpus = model.encoder_.transform(joint(chunks.test, None), on_unknown_label="mark")
        features, w = model.features_, model.weights_
        node = inference.node_scores(corpus, features, w)
        self.edge = log_edge(features, w, corpus.class_ptr, corpus.class_attr)[0]
        self.order, length = label_order(features, w), np.diff(corpus.seq_ptr)
        some = [i for i, n in enumerate(length) if 10 <= n <= 14][:20]
        self.nodes = [node[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]] for i in some]


@pytest.fixture(scope="module")
def tagger():
    return Tagger()


def test_1_without_transitions_the_leaders_alone_are_alive():
    rng = np.random.default_rng(1)
    for _ in range(20):
        node, edge = random_model(rng, 5, 4)
        delta, back = forward(node, 0 * edge)
        for d in delta:
            alive = d + gain(0 * edge, d.argmax()) >= d.max()
            assert (alive == (d == d.max())).all()
        path = [int(delta[-1].argmax())]
        for came in reversed(back):
            path.insert(0, int(came[path[0]]))
        assert path == node.argmax(1).tolist()


def test_2_any_order_is_exact_and_the_wrong_one_costs_pairs(tagger):
    pairs = []
    for order in (tagger.order, tagger.order[::-1]):
        scores, counted = [], np.zeros(3, int)
        for node in tagger.nodes:
            T, path, score = len(node), np.zeros(len(node), np.int32), np.zeros(1)
            search = search_by("staggered", tagger.edge[None], order.copy())
            counted += search(node, np.zeros(T, np.int32), np.array([0, T]), path, score)
            scores.append(staggered_decode(node, tagger.edge, order)[0])
            assert score[0] == pytest.approx(scores[-1])
        np.testing.assert_allclose(scores, [forward(node, tagger.edge)[0][-1].max() for node in tagger.nodes])
        pairs.append(counted[1])
    assert pairs[1] > 2 * pairs[0]


def test_3_the_neighbours_that_save_a_label_mostly_store_a_pair_with_it(tagger):
    """First pass of dead-end elimination; the rival is the leader by which dominance drops the label."""
    edge, saved = tagger.edge, []
    for node in tagger.nodes:
        delta = forward(node, edge)[0]
        for t in range(1, len(node) - 1):
            q, u = int(delta[t].argmax()), node[t]
            drops = delta[t] + gain(edge, q) < delta[t].max() - 1e-9
            left, right = edge[:, [q]] - edge, edge[q] - edge  # [y', r], [r, y'']
            better = u[q] - u + left.min(0) + right.min(1)
            for r in np.flatnonzero(drops & (better <= 0)):
                saved.append((edge[left[:, r].argmin(), r] != 0, edge[r, right[r].argmin()] != 0))
    assert len(saved) > 100 and np.mean(saved, 0).min() > 0.5


def staggered(node, edge, prune):
    """(score, sweeps, nodes): columns of the first `size` labels and z, doubled together (SD).

    bound[0] is f, bound[1] is g; a sweep that turns back renews the other one.
    """
    (T, L), size, n_nodes, sweeps = node.shape, 1, 0, 0
    low, y = node[0].max(), node[0].argmax()
    for u in node[1:]:
        low, y = (edge[y] + u).max() + low, (edge[y] + u).argmax()
    low = low if prune else -np.inf
    bound, alive = np.full((2, T, 2), np.inf), np.full((T, 2), L > 1)
    alive[:, 0] = True
    while True:
        starts = np.arange(size + (size < L))  # maxima over segments: the last one is z
        pairs = np.maximum.reduceat(np.maximum.reduceat(edge, starts, 0), starts, 1)
        nodes, d = np.maximum.reduceat(node, starts, 1), sweeps % 2
        alive = alive[:, : len(starts)]
        n_nodes, sweeps, came = n_nodes + alive.sum(), sweeps + 1, None
        for t in range(T) if d == 0 else reversed(range(T)):
            with_z, without = (np.zeros(len(starts)),) * 2
            if came is not None:
                table = pairs if d == 0 else pairs.T
                with_z, without = ((v[:, None] + table).max(0) for v in came)
            bound[d, t, : len(starts)] = with_z
            if prune:
                reach = bound[:, t, : len(starts)].sum(0) + nodes[t]
                alive[t] &= reach >= low - 1e-9 * max(1.0, abs(low))
            with_z = np.where(alive[t], with_z + nodes[t], -np.inf)
            without = np.where(alive[t] & (starts < size), without + nodes[t], -np.inf)
            came = with_z, without
        low = max(low, came[1].max())
        if came[0].max() <= low:
            return low, sweeps, n_nodes
        new = min(2 * size, L)
        grown, living = np.empty((2, T, new + 1)), np.empty((T, new + 1), bool)
        grown[..., :size], living[:, :size] = bound[..., :size], alive[:, :size]
        grown[..., size:], living[:, size:] = bound[..., [size]], alive[:, [size]]
        bound, alive, size = grown, living, new


def test_4_pruning_keeps_the_scores_and_sweeps_of_the_package_and_drops_nodes(tagger):
    edge, plain, pruned = tagger.edge[tagger.order][:, tagger.order], 0, 0
    for whole in tagger.nodes:
        node = whole[:, tagger.order]
        score, sweeps, nodes = staggered(node, edge, prune=True)
        wanted, _, n = staggered_decode(whole, tagger.edge, tagger.order)
        assert score == pytest.approx(wanted) and sweeps == n
        other, _, more = staggered(node, edge, prune=False)
        assert other == pytest.approx(wanted) and nodes <= more
        plain, pruned = plain + more, pruned + nodes
    assert pruned < 0.8 * plain


def grouped_step(delta, edge, groups):
    """max over y' of delta(y') + edge[y', y], by stored pairs, with a leader in each group of next labels.

    groups: (previous labels that may come before, next labels). Others stay -inf.
    """
    best = np.full(len(delta), -np.inf)
    for before, nexts in groups:
        before, nexts = np.array(before), np.array(nexts)
        q = before[delta[before].argmax()]
        if delta[q] == -np.inf:
            continue
        inside = edge[np.ix_(before, nexts)]
        alive = before[delta[before] + (inside - edge[q, nexts]).max(1) >= delta[q]]
        best[nexts] = delta[q]
        for y in nexts[edge[q, nexts] != 0]:  # here the default is another label's
            best[y] = max((delta[yp] for yp in alive if edge[yp, y] == 0), default=-np.inf)
        for yp in alive:
            stored = nexts[edge[yp, nexts] != 0]
            best[stored] = np.maximum(best[stored], delta[yp] + edge[yp, stored])
    return best


def test_5_groups_of_next_labels_obey_bio():
    names, rng = ["O", "B-x", "I-x", "B-y", "I-y"], np.random.default_rng(5)
    allowed = np.array([[not b.startswith("I") or a[1:] == b[1:] for b in names] for a in names])
    groups = [([1, 2], [2]), ([3, 4], [4]), (range(5), [0, 1, 3])]
    for _ in range(60):
        node, edge = random_model(rng, rng.integers(1, 6), 5)
        node[0, [2, 4]] = -np.inf  # no sentence begins inside
        delta = node[0]
        for u in node[1:]:
            delta = u + grouped_step(delta, edge, groups)
        assert delta.max() == all_scores(node, np.where(allowed, edge, -np.inf)).max()


class Ranked:
    """Lists of the best labellings that end in a label, whose entries are made when they are asked for."""

    def __init__(self, node, edge):
        self.node, self.edge = np.vstack([node, np.zeros(node.shape[1])]), edge  # a last column of ends
        self.delta, self.n_entries, self.lists = forward(node, edge)[0], 0, {}

    def ask(self, t, y, j):
        """The j-th best score that ends in y at t, None if there are fewer; t = T: of all labellings."""
        if t == 0:
            return self.node[0, y] if j == 0 else None
        if (t, y) not in self.lists:
            step = self.edge[:, y] if t < len(self.delta) else 0.0
            waiting = [(-v, yp, 0) for yp, v in enumerate(self.delta[t - 1] + step + self.node[t, y])]
            heapify(waiting)
            self.lists[t, y] = [], waiting
        made, waiting = self.lists[t, y]
        while len(made) <= j:
            if made:
                v, yp, rank = made[-1]
                now, after = (self.ask(t - 1, yp, r) for r in (rank, rank + 1))
                if after is not None:
                    heappush(waiting, (v + now - after, yp, rank + 1))
            if not waiting:
                return None
            made.append(heappop(waiting))
            self.n_entries += t < len(self.delta)
        return -made[j][0]


def test_6_lists_that_are_made_when_asked_for_are_short(tagger):
    rng = np.random.default_rng(6)
    for T in (1, 2, 4):
        node, edge = random_model(rng, T, 3)
        ranked, scores = Ranked(node, edge), np.sort(all_scores(node, edge))[::-1]
        assert [ranked.ask(T, 0, j) for j in range(len(scores))] == scores.tolist()
        assert ranked.ask(T, 0, len(scores)) is None
    k, (node, *_), edge = 10, tagger.nodes, tagger.edge
    lists = -np.sort(-node[0][:, None], 1)  # k numbers a label, as kbest keeps them
    for u in node[1:]:
        table = (lists[:, :, None] + edge[:, None, :]).reshape(-1, len(edge))
        lists = -np.sort(-table, axis=0)[:k].T + u[:, None]
    ranked = Ranked(node, edge)
    found = [ranked.ask(len(node), 0, j) for j in range(k)]
    np.testing.assert_allclose(found, -np.sort(-lists.ravel())[:k])
    assert ranked.n_entries / len(node) < 3 * k < k * len(edge)


def test_7_with_delta_on_the_left_it_is_dominance_by_every_label(tagger):
    edge, by_leader, by_all = tagger.edge, 0, 0
    for node in tagger.nodes[:6]:
        for delta in forward(node, edge)[0][:-1]:
            q = int(delta.argmax())
            every = np.array([gain(edge, v) for v in range(len(edge))])  # b_v(r)
            rest = np.array([(edge[q] - edge[r]).min() for r in range(len(edge))])  # min over y''
            assert ((delta[q] - delta + rest > 0) == (delta + every[q] < delta[q])).all()
            dead = delta + every < delta[:, None]
            by_leader, by_all = by_leader + (~dead[q]).sum(), by_all + (~dead.any(0)).sum()
    assert by_all < by_leader
