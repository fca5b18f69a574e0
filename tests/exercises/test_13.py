"""Chapter 13: what its exercises say that one should find, found without the chapter's code."""

from itertools import product

import numpy as np
import pytest


def random_graph(rng, n=6, more=0, size=1.0, forbidden=0.15):
    """The graphs of section 6: drawn in the same order, so that they are the same."""
    labels, allowed = rng.integers(2, 5, n), rng.integers(0, 2, n)
    edges = {(int(rng.integers(v)), v) for v in range(1, n)}
    while len(edges) < n - 1 + more:
        edges.add(tuple(sorted(rng.choice(n, 2, replace=False).tolist())))
    log_phi, tables = [rng.normal(size=k) for k in labels], {}
    for u, v in sorted(edges):
        tables[u, v] = table = size * rng.normal(size=(labels[u], labels[v]))
        table[rng.random(table.shape) < forbidden] = -np.inf
        table[allowed[u], allowed[v]] = 0.0
    return log_phi, tables


class Graph:
    """Variables, pairs and messages; `send` returns the message of (5), `largest` takes the maximum."""

    def __init__(self, log_phi, tables):
        self.log_phi, self.tables, self.largest = log_phi, tables, False
        self.phi = [np.exp(s) for s in log_phi]
        self.psi = {e: np.exp(t) for e, t in tables.items()}
        self.psi |= {(v, u): t.T for (u, v), t in list(self.psi.items())}
        self.near = {u: [w for w, x in self.psi if x == u] for u in range(len(log_phi))}
        self.msg = {(u, v): np.full(len(log_phi[v]), 1 / len(log_phi[v])) for u, v in self.psi}

    def view(self, u, but=None):
        return np.prod([self.phi[u], *(self.msg[w, u] for w in self.near[u] if w != but)], axis=0)

    def send(self, u, v):
        table = self.view(u, v)[:, None] * self.psi[u, v]
        m = table.max(0) if self.largest else table.sum(0)
        return m / m.sum()

    def residual(self):
        """The largest change that a message would make."""
        return max(abs(self.send(*way) - m).max() for way, m in self.msg.items())

    def sync(self, tol=1e-12, damping=0.0, most=3000):
        """Number of messages sent."""
        sent, change = 0, np.inf
        while change >= tol and sent < most * len(self.msg):
            new = {way: (1 - damping) * self.send(*way) + damping * m for way, m in self.msg.items()}
            change = max(abs(new[way] - m).max() for way, m in self.msg.items())
            self.msg, sent = new, sent + len(new)
        return sent

    def beliefs(self):
        return [b / b.sum() for b in map(self.view, range(len(self.phi)))]

    def far(self, beliefs):
        return max(abs(a - b).max() for a, b in zip(self.beliefs(), beliefs, strict=True))

    def bethe(self):
        """log Z at a fixed point: the sums of variables, and of pairs over those of their two ends."""
        log_z = sum(np.log(self.view(u).sum()) for u in range(len(self.phi)))
        for u, v in self.tables:
            both = self.view(u, v) @ self.psi[u, v] @ self.view(v, u)
            log_z += np.log(both) - np.log(self.view(u).sum()) - np.log(self.view(v).sum())
        return log_z


def listed(log_phi, tables):
    """(log Z, marginals, best score)."""
    paths = np.array(list(product(*(range(len(s)) for s in log_phi))))
    score = sum(s[paths[:, v]] for v, s in enumerate(log_phi))
    score = score + sum(table[paths[:, u], paths[:, v]] for (u, v), table in tables.items())
    log_z = np.logaddexp.reduce(score)
    p = [np.bincount(paths[:, v], np.exp(score - log_z), len(s)) for v, s in enumerate(log_phi)]
    return log_z, p, score.max()


def loops(seed, size=0.5, forbidden=0.15):
    return random_graph(np.random.default_rng(seed), more=3, size=size, forbidden=forbidden)


def test_1_a_chain_needs_twice_its_pairs_forward_and_backward():
    rng = np.random.default_rng(1)
    for T in (2, 3, 6):
        log_phi = [rng.normal(size=3) for _ in range(T)]
        tables = {(t, t + 1): rng.normal(size=(3, 3)) for t in range(T - 1)}
        ways = [*tables, *((v, u) for u, v in reversed(tables))]
        assert len(ways) == 2 * (T - 1)
        truth = listed(log_phi, tables)[1]
        graph, wrong = Graph(log_phi, tables), Graph(log_phi, tables)
        for one, order in ((graph, ways), (wrong, ways[: T - 1][::-1] + ways[T - 1 :][::-1])):
            for way in order:
                one.msg[way] = one.send(*way)
        assert graph.far(truth) < 1e-12 and (T == 2 or wrong.far(truth) > 1e-3)


def test_2_without_pairs_bethe_is_exact():
    for seed in range(10):
        log_phi, tables = loops(seed, forbidden=0.0)
        graph = Graph(log_phi, {e: 0 * table for e, table in tables.items()})
        graph.sync()
        for m in graph.msg.values():
            np.testing.assert_allclose(m, 1 / len(m), rtol=1e-12)
        assert graph.far([phi / phi.sum() for phi in graph.phi]) < 1e-12
        wanted = sum(np.log(phi.sum()) for phi in graph.phi)
        assert graph.bethe() == pytest.approx(wanted) == pytest.approx(listed(log_phi, graph.tables)[0])


def test_3_damped_runs_have_the_same_fixed_points():
    for seed in range(10):
        plain, damped = Graph(*loops(seed)), Graph(*loops(seed))
        plain.sync()
        damped.sync(damping=0.5)
        assert damped.residual() < 1e-10 and damped.far(plain.beliefs()) < 1e-9
        kept = plain.beliefs()
        plain.sync(damping=0.5, most=1)
        assert plain.far(kept) < 1e-11


def by_residual(graph, tol=1e-12):
    """Number of messages sent: always the one that would change most."""
    waiting, sent = {way: graph.send(*way) for way in graph.msg}, 0
    while True:
        way = max(waiting, key=lambda one: abs(waiting[one] - graph.msg[one]).max())
        if abs(waiting[way] - graph.msg[way]).max() < tol:
            return sent
        graph.msg[way], sent = waiting[way], sent + 1
        for w in graph.near[way[1]]:
            if w != way[0]:
                waiting[way[1], w] = graph.send(way[1], w)


def test_4_the_residual_order_sends_fewer_messages():
    counted = []
    for seed in range(30):
        one, other = Graph(*loops(seed)), Graph(*loops(seed))
        counted.append((by_residual(one), other.sync()))
        assert one.far(other.beliefs()) < 1e-9
    residual, sync = np.array(counted).T
    assert (residual < sync).all()


def test_5_max_product_finds_the_best_score_on_trees():
    for seed in range(30):
        model = random_graph(np.random.default_rng(seed))
        graph = Graph(*model)
        graph.largest = True
        graph.sync()
        y = [int(b.argmax()) for b in graph.beliefs()]
        score = sum(s[a] for s, a in zip(model[0], y, strict=True))
        score += sum(table[y[u], y[v]] for (u, v), table in model[1].items())
        assert score == pytest.approx(listed(*model)[2])


def spanning_tree(edges, n, rng):
    group, kept = list(range(n)), []
    for u, v in rng.permutation(edges).tolist():
        if group[u] != group[v]:
            kept.append((u, v))
            group = [group[u] if g == group[v] else g for g in group]
    return kept


def leaves_first(tree):
    """Its pairs as (child, parent): each after those of the branches behind the child."""
    root, order = tree[0][0], []

    def visit(u, above):
        for a, b in tree:
            for v in (b,) if a == u else (a,) if b == u else ():
                if v != above:
                    visit(v, u)
                    order.append((v, u))

    visit(root, None)
    return order


def by_trees(graph, rng, early, tol=1e-12, most=3000):
    """Turns on random spanning trees. early: GRMM's rule; else trees since a change must cover all pairs."""
    ever, since = set(), set()
    for _ in range(most):
        tree = spanning_tree(list(graph.tables), len(graph.phi), rng)
        up, change = leaves_first(tree), 0.0
        for u, v in [*up, *((v, u) for u, v in reversed(up))]:
            new = graph.send(u, v)
            change = max(change, abs(new - graph.msg[u, v]).max())
            graph.msg[u, v] = new
        ever |= set(tree)
        since = since | set(tree) if change < tol else set()
        if change < tol and (ever if early else since) == set(graph.tables):
            return True
    return False


def test_6_our_stop_for_trees_where_grmms_fails():
    off = []
    for seed in range(30):
        model = loops(seed, size=1.0, forbidden=0.0)
        fixed = Graph(*model)
        fixed.sync()
        runs = [Graph(*model), Graph(*model)]
        for graph, early in zip(runs, (True, False), strict=True):
            assert by_trees(graph, np.random.default_rng(seed), early)
        off.append([graph.far(fixed.beliefs()) for graph in runs])
    grmm, ours = np.array(off).T
    assert ours.max() < 1e-9 and grmm.max() > 1e-3
