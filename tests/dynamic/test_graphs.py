"""Factor graphs as arrays, spanning forests and orders of messages."""

import numpy as np
import pytest
from helpers.dynamic import GENERAL, TEMPLATES, dynamic_problem
from hypothesis import given
from hypothesis import strategies as st

from crfbook.dynamic.graphs import by_sentence, factor_graph, join_tables, layout_graph, split_tables
from crfbook.dynamic.junction import unroll
from crfbook.dynamic.loopy import OPTIONS, ORDERS, check_options, copy_tables

pytestmark = pytest.mark.kernels
CELLS = "expected tables of at most 1,099,511,627,776 cells in all"
ARITY = "expected 2 to 4 variables"


@pytest.mark.parametrize(
    ("n_labels", "scopes", "table_of", "said"),
    [
        ([2, 0], [], None, "variable 1: expected at least one label, got 0"),
        ([2, 3], [(0, 1), (1,)], None, f"factor 1: {ARITY}, got 1 (scores of one are log_phi)"),
        ([2] * 5, [(0, 1, 2, 3, 4)], None, f"factor 0: {ARITY}, got 5 (scores of one are log_phi)"),
        ([2, 3], [(0, 2)], None, "factor 0: expected variables from 0 to 1, got 2"),
        ([2, 3], [(0, 1), (-1, 1)], None, "factor 1: expected variables from 0 to 1, got -1"),
        ([2, 3], [(1, 1)], None, "factor 0: expected different variables, got (1, 1)"),
        ([2, 3], [(0, 1)], [0, 1], "table_of: expected one table for each of 1 factors, got (2,)"),
        ([2, 3], [(0, 1)], [3], "table_of: expected the numbers from 0 to 0, got [3]"),
        ([2.5, 3], [], None, "n_labels: expected integers, got [2.5, 3]"),
        ([2, 3], [(0, 0.5)], None, "factor 0: expected integers, got (0, 0.5)"),
        ([2, 3], [(0, 1)], [0.5], "table_of: expected integers, got [0.5]"),
        ([9, 10**5, 10**5, 10**5, 10**5], [(0, 1), (1, 2, 3, 4)], None, f"factor 1: {CELLS}, got more"),
        (
            [2, 3, 2], [(0, 1), (1, 2)], [0, 0],
            "factor 1: expected variables of 2 x 3 labels, those of table 0, got 3 x 2",
        ),
        (
            [2, 3, 1], [(0, 1), (0, 1, 2)], [0, 0],
            "factor 1: expected variables of 2 x 3 labels, those of table 0, got 2 x 3 x 1",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(n_labels, scopes, table_of, said):
    with pytest.raises(ValueError) as caught:
        factor_graph(n_labels, scopes, table_of)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "best"}, "schedule"),
        (
            {"damping": 0.5},
            "damping: expected a number below 1, and 0 unless schedule is 'sync' or 'block', got 0.5",
        ),
        ({"damping": 1.0, "schedule": "sync"}, "damping"),
        ({"tol": -1.0}, "tol"),
        ({"max_sweeps": 1.5}, "max_sweeps"),
    ],
)
def test_options_that_cannot_be(options, said):
    with pytest.raises(ValueError, match=said):
        check_options(**options)


def test_tables_are_joined_and_split():
    graph = factor_graph([2, 3, 1], [(0, 1), (1, 0), (2, 1, 0)], [1, 0, 2])
    tables = [np.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(2, 3) + 9, np.arange(6.0).reshape(1, 3, 2)]
    for one, two in zip(split_tables(graph, join_tables(graph, tables)), tables, strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match=r"table 1: expected shape \(2, 3\), got \(3, 2\)"):
        join_tables(graph, [tables[0], tables[0], tables[2]])
    with pytest.raises(ValueError, match="tables: expected 3, got 1"):
        join_tables(graph, tables[:1])
    assert split_tables(factor_graph([2], []), np.zeros(0)) == []


def test_copies_have_each_axis_last():
    cards, scopes = [2, 3, 5, 1, 4], [(0, 2), (4, 2, 1), (1, 3, 0, 2)]
    graph = factor_graph(cards, scopes)
    log_tables = np.random.default_rng(0).normal(size=graph.cell_ptr[-1])
    copies = np.full(graph.copy_ptr[-1], -np.inf)
    copy_tables(log_tables, graph, copies)
    for s, (f, v) in enumerate(zip(graph.slot_factor, graph.slot_var, strict=True)):
        axis, wide = s - graph.factor_ptr[f], -(-cards[v] // 4) * 4
        want = np.moveaxis(split_tables(graph, log_tables)[f], axis, -1).reshape(-1, cards[v])
        found = copies[graph.slot_copy[s] :][: len(want) * wide].reshape(-1, wide)
        np.testing.assert_array_equal(found[:, : cards[v]], want)
        assert (found[:, cards[v] :] == -np.inf).all()


@pytest.mark.parametrize("name", [*TEMPLATES, *GENERAL])
def test_sentences_are_unrolled(name):
    """One component a sentence; the factors of `unroll`, and scores of the right token."""
    layout = dynamic_problem(name).layout
    lengths = np.array([4, 3, 3, 1])
    step_ptr = np.concatenate([[0], np.cumsum([(lengths > t).sum() for t in range(4)])])
    rows = layout_graph(layout, by_sentence(step_ptr), 4)
    graph, m = rows.graph, len(layout.sizes)
    start = np.concatenate([[0], np.cumsum(lengths)])
    wide = [number for number, table in enumerate(layout.tables) if len(table.at) > 1]
    at = [((0, chain),) for chain in range(m)] + [layout.tables[number].at for number in wide]
    number_of = np.full(len(graph.table_arity), -1)
    for found in rows.instances:
        number_of[found.tables] = found.number
    for i, n in enumerate(lengths.tolist()):
        np.testing.assert_array_equal(rows.row[start[i] : start[i + 1]], step_ptr[:n] + i)
        want = {
            (wide[clique - m], tuple(v + start[i] * m for v in scope))
            for scope, (clique, _) in zip(*unroll(at, n), strict=True)
            if clique >= m
        }
        factors = range(graph.first_factor[i], graph.first_factor[i + 1])
        ends = [graph.slot_var[graph.factor_ptr[f] : graph.factor_ptr[f + 1]].tolist() for f in factors]
        found = {(number_of[graph.factor_table[f]], tuple(end)) for f, end in zip(factors, ends, strict=True)}
        assert found == want and len(factors) == len(want)
    assert graph.first_factor[-1] == len(graph.factor_table) and graph.first_var[-1] == len(graph.n_labels)


def is_forest(edges, n):
    above = list(range(n))

    def root(x):
        while above[x] != x:
            x = above[x]
        return x

    for x, y in edges:
        x, y = root(x), root(y)
        if x == y:
            return False
        above[x] = y
    return True


@st.composite
def shapes(draw):
    n = draw(st.integers(1, 8))
    scope = st.lists(st.integers(0, n - 1), min_size=2, max_size=4, unique=True)
    return [2] * n, [tuple(s) for s in draw(st.lists(scope, max_size=10))] if n > 1 else []


@given(shape=shapes(), seed=st.integers(0, 10**6))
def test_trees_of_messages(shape, seed):
    """Slots of a sweep are a spanning forest, each once, of a factor none or several; a message waits for
    those that it is made of; in the end every slot has been used.
    """
    graph, active = factor_graph(*shape), np.ones(1, bool)
    if not shape[1]:
        return
    tree, V = ORDERS["tree"](graph, OPTIONS, np.random.default_rng(seed)), len(shape[0])
    everything = {(int(v), V + int(f)) for v, f in zip(graph.slot_var, graph.slot_factor, strict=True)}
    for _ in range(200):
        order = tree.next(active, None)
        assert sorted(order) == np.flatnonzero(tree.picked).tolist()
        edges = {(int(graph.slot_var[s]), V + int(graph.slot_factor[s])) for s in order}
        assert is_forest(edges, V + len(shape[1]))
        assert not (np.bincount(graph.slot_factor[order], minlength=len(shape[1])) == 1).any()
        for v, u in everything - edges:  # whatever it leaves would close a loop between two variables
            others = {w for w, f in everything if f == u and w != v}
            assert not all(is_forest([*edges, (v, u), (w, u)], V + len(shape[1])) for w in others - {v})
        time = {s: i for i, s in enumerate(order.tolist())}
        for s, i in time.items():
            first, last = graph.factor_ptr[graph.slot_factor[s]], graph.factor_ptr[graph.slot_factor[s] + 1]
            for o in set(range(first, last)) - {s}:
                if o in time:  # the factor's other ends in the tree, and what comes to them
                    u = graph.slot_var[o]
                    comes = graph.var_slot[graph.var_ptr[u] : graph.var_ptr[u + 1]].tolist()
                    assert all(time[e] < i for e in comes if e in time and e != o)
        if tree.used.all():
            return
    raise AssertionError("a slot was never used")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "scopes", [[(v, (v + 1) % 5) for v in range(5)], [(0, 1), (1, 0)], [(0, 1, 2), (1, 0)]]
)
def test_what_was_never_used_comes_first(scopes, seed):
    """A loop leaves one end out; the second tree has it."""
    graph = factor_graph([2] * 5, scopes)
    tree = ORDERS["tree"](graph, OPTIONS, np.random.default_rng(seed))
    tree.next(np.ones(1, bool), None)
    assert not tree.used.all()
    tree.next(np.ones(1, bool), None)
    assert tree.used.all()


@given(shape=shapes(), seed=st.integers(0, 10**6))
def test_orders_have_all_slots(shape, seed):
    """Random: the last end of each factor in a shuffled order, then the end before it in the same order.
    A sweep to the right has every end but the leftmost, that to the left every end but the rightmost.
    """
    graph, rng, active = factor_graph(*shape), np.random.default_rng(seed), np.ones(1, bool)
    if not shape[1]:
        return
    n = len(graph.slot_var)
    np.testing.assert_array_equal(ORDERS["sync"](graph, OPTIONS, rng).next(active, None), np.arange(n))
    order = ORDERS["random"](graph, OPTIONS, rng).next(active, None)
    assert sorted(order) == list(range(n))
    arity = np.diff(graph.factor_ptr)[graph.slot_factor[order]]
    behind = graph.factor_ptr[graph.slot_factor[order] + 1] - 1 - order
    assert (np.diff(behind) >= 0).all()
    first = graph.slot_factor[order[behind == 0]]
    for i in range(1, 4):
        kept = first[np.diff(graph.factor_ptr)[first] > i]
        np.testing.assert_array_equal(graph.slot_factor[order[behind == i]], kept)
    assert (arity > behind).all()
    order = ORDERS["sweep"](graph, OPTIONS, rng).next(active, None)
    half = sum(len(scope) - 1 for scope in shape[1])
    step = graph.slot_var[order]
    assert len(order) == 2 * half
    assert (np.diff(step[:half]) >= 0).all() and (np.diff(step[half:]) <= 0).all()
    assert set(order.tolist()) == set(range(n))


def test_finished_components_are_left_out():
    layout = dynamic_problem("two chains").layout
    graph = layout_graph(layout, by_sentence(np.array([0, 3, 6, 8])), 3).graph
    active = np.array([True, False, True])
    for name, kind in ORDERS.items():
        orders = kind(graph, OPTIONS, np.random.default_rng(0))
        everything, some = orders.next(np.ones(3, bool), None), orders.next(active, None)
        assert set(graph.slot_component[everything]) == {0, 1, 2}, name
        assert set(graph.slot_component[some]) == {0, 2}, name
        assert (np.diff(graph.slot_component[everything]) >= 0).all(), name


def test_rungs_have_both_messages_in_each_pass():
    """In a sweep over two chains: first the messages from the step before, then those of the rung."""
    layout = dynamic_problem("two chains").layout
    graph = layout_graph(layout, by_sentence(np.array([0, 1, 2, 3])), 1).graph
    order = ORDERS["sweep"](graph, OPTIONS, None).next(np.ones(1, bool), None)
    ends = [
        sorted(graph.slot_var[graph.factor_ptr[f] : graph.factor_ptr[f + 1]].tolist())
        for f in graph.slot_factor[order]
    ]
    to = graph.slot_var[order].tolist()
    rung, right, left = [[[2 * t, 2 * t + 1]] * 2 for t in range(3)], [], []
    for t in range(3):
        right += ([[2 * t - 2, 2 * t], [2 * t - 1, 2 * t + 1]] if t else []) + rung[t]
        left = rung[t] + ([[2 * t - 2, 2 * t], [2 * t - 1, 2 * t + 1]] if t else []) + left
    assert [sorted(ends[i : i + 2]) for i in range(0, 20, 2)] == [
        sorted((right + left)[i : i + 2]) for i in range(0, 20, 2)
    ]
    assert [sorted(to[i : i + 2]) for i in range(0, 10, 2)] == [[0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
    assert [sorted(to[i : i + 2]) for i in range(10, 20, 2)] == [[4, 5], [2, 3], [2, 3], [0, 1], [0, 1]]
