"""Coordinate descent: gradients and losses by enumeration, its end against OWL-QN and the proximal gradient,
memory, bad input.
"""

import signal

import numpy as np
import pytest
from helpers.corpora import brute_value, random_corpus, random_model
from helpers.problems import C1, C2, dense_weights, run_of, symbols

from crfbook import brute
from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import FeatureSet, observed
from crfbook.datasets.simulated import SPARSE_HMM, sample
from crfbook.learners.coordinate import arrays as arrays_module
from crfbook.learners.coordinate.arrays import ModelSizes, Sparse, scatter
from crfbook.learners.coordinate.derivatives import feature_variance
from crfbook.learners.coordinate.descent import (
    CoordinateDescent,
    coordinate_descent,
    falling,
    largest_c1,
    prepare,
    solve_path,
)
from crfbook.learners.coordinate.lattice import LABEL, SHIFT
from crfbook.learners.coordinate.sweeps import Sweeper
from crfbook.learners.coordinate.visit import sweep_plain
from crfbook.learners.quasi_newton.l1 import proximal_gradient
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.training import interrupts
from crfbook.training.loop import run

pytestmark = pytest.mark.kernels
LENGTHS = (3, 0, 1, 4, 2, 5, 4, 3, 4)
KINDS = [{}, {"n_classes": 3}, {"valued": True}, {"weighted": True, "n_classes": 2}]


def problem(seed=0, lengths=LENGTHS, **kind):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=lengths, **kind)
    return corpus, random_model(rng, corpus, all_states=True, all_transitions=True)[0]


def optimum(corpus, features, constraints=None, c1=C1, c2=C2):
    return minimize(
        Objective(corpus, features, c2=c2, constraints=constraints),
        np.zeros(features.n_features),
        c1=c1,
        c2=c2,
        tol=1e-12,
    )


@pytest.fixture(params=[0.0, 0.25, 2.0], ids=["whole tables", "both", "lists"])
def share(request, monkeypatch):
    """Which classes have whole tables: all, some, none."""
    monkeypatch.setattr(arrays_module, "DENSE_SHARE", request.param)
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.DENSE_SHARE", request.param)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_same_optimum_as_owlqn_and_proximal_gradient(kind, share):
    corpus, features = problem(1, **kind)
    best = optimum(corpus, features)
    fun = Objective(corpus, features, c2=C2)
    referee = proximal_gradient(
        fun, np.zeros(features.n_features), c1=C1, c2=C2, tol=1e-9, max_iterations=5000
    )
    found = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=1e-10, max_iterations=3000)
    assert found.status == "converged"
    np.testing.assert_allclose(found.objective, best.objective, rtol=1e-8)
    np.testing.assert_allclose(referee.objective, best.objective, rtol=1e-7)
    np.testing.assert_allclose(fun(found.w)[0] + C1 * np.abs(found.w).sum(), found.objective, rtol=1e-12)
    assert np.array_equal(found.w != 0, best.w != 0)
    objectives = [step.objective for step in found.history]
    assert max(np.diff(objectives), default=0.0) <= 1e-9  # adaptive: monotone


@pytest.mark.parametrize("joint", [True, False, "alternate"], ids=["joint", "apart", "alternate"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sweep_equals_its_readable_sister(seed, kind, joint):
    """From random weights, a part of them 0; three sweeps, so that weights come and go."""
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=LENGTHS, **kind)
    features, w = random_model(rng, corpus, all_states=True, all_transitions=True)
    w *= rng.random(len(w)) < 0.5
    run = Sweeper(corpus, None, ModelSizes(*features.sizes), None, joint=joint)
    run.set_rule(C1, C2, step="fixed", factor=2.0)
    run.load(Sparse(features, w))
    run.renew()
    mu, nu = dense_weights(features, w)
    for _ in range(3):
        run.sweep()
        sweep_plain(run.arrays.blocks.member.T[run.order].tolist(), corpus, mu, nu, C1, C2, 2.0)
        found = dense_weights(*run.export())
        for mine, plain in zip(found, (mu, nu), strict=True):
            # nodes alone run to weights of 14, where p (1 - p) has lost digits
            atol = 1e-9 if joint == "alternate" else 1e-11
            np.testing.assert_allclose(mine, plain, rtol=1e-9, atol=atol)
    before, after = dense_weights(features, w)[1] != 0, nu != 0
    # where nodes move first, all of them take what edges could have: there none comes, or none goes
    assert joint == "alternate" or (before & ~after).any() and (after & ~before).any()


OPTIONS = [
    {"blocks": False}, {"blocks": False, "curvature": "exact"}, {"curvature": "exact"}, {"joint": False},
    {"joint": "alternate"}, {"joint": "alternate", "blocks": False},
    {"joint": "alternate", "freeze_after": 2}, {"accelerate": True}, {"freeze_after": 2},
    {"screening": False}, {"step": "wapiti"},
    {"step": "safe", "tol": 1e-8}, {"step": "cs"}, {"step": "fixed", "factor": 4.0},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("constant", [True, False])
def test_every_variant_has_the_same_end(options, constant):
    corpus, features = symbols(constant=constant)
    best = optimum(corpus, features)
    found = coordinate_descent(
        corpus, features, **({"c1": C1, "c2": C2, "tol": 1e-10, "max_iterations": 5000} | options)
    )
    assert found.status == "converged"
    np.testing.assert_allclose(found.objective, best.objective, rtol=1e-7)
    assert np.array_equal(found.w != 0, best.w != 0)


@pytest.mark.parametrize("constant", [True, False])
def test_alternate_sweeps_move_the_weights_of_nodes_then_those_of_edges(constant):
    corpus, features = symbols(constant=constant)
    run = Sweeper(corpus, None, ModelSizes(*features.sizes), None, joint="alternate")
    run.set_rule(C1, C2)
    run.renew()
    of_nodes = run.arrays.blocks.member[0][run.order] >= 0
    n = int(of_nodes.sum())
    assert of_nodes[:n].all() and 0 < n < len(of_nodes) == run.arrays.blocks.n_blocks
    occurrences = np.diff(run.arrays.blocks.occ_ptr[run.arrays.blocks.visit_ptr])
    assert (np.diff(occurrences[run.order[:n]]) <= 0).all()
    for _ in range(2):
        for part, moves in ((run.order[:n], 0), (run.order[n:], 1)):
            before = dense_weights(*run.export())
            run.sweep(part)
            after = dense_weights(*run.export())
            changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
            assert changed == [moves == 0, moves == 1]
    whole = coordinate_descent(corpus, c1=C1, c2=C2, joint="alternate", tol=0.0, max_iterations=2)
    for mine, found in zip(dense_weights(*run.export()), dense_weights(whole.features, whole.w), strict=True):
        np.testing.assert_array_equal(mine, found)


def test_what_a_sweep_saw_is_confirmed(monkeypatch):
    """A block is seen before others move: here each sweep says that it saw nothing at all,
    and only the pass at the end can tell.
    """
    corpus, features = symbols(2)
    sweep = CoordinateDescent._sweep

    def blind(self):
        sweep(self)
        self.shown = 0.0
        return 0.0

    monkeypatch.setattr(CoordinateDescent, "_sweep", blind)
    found = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=1e-8, max_iterations=500)
    grad = Objective(corpus, features, c2=C2)(found.w)[1]
    slope = np.where(found.w != 0, np.abs(grad + C1 * np.sign(found.w)), np.maximum(np.abs(grad) - C1, 0.0))
    assert (
        found.status == "converged"
        and found.n_iter > 1
        and slope @ slope / (4 * C2) <= 1e-8 * found.objective
    )


def test_a_frozen_sweep_visits_the_active_blocks_alone():
    corpus, features = symbols(5, lengths=(3, 4, 2, 5, 4, 3, 4, 6), n_symbols=9, constant=False)
    options = {"c1": 2.0, "c2": C2, "screening": False, "freeze_after": 2, "tol": 0.0}
    sweeps = [
        coordinate_descent(corpus, features, max_iterations=n, **options) for n in (2, 3, 4)
    ]  # the last is frozen
    everything, frozen = np.diff([found.counts["gradient_visits"] for found in sweeps])
    w, held = sweeps[1].w, np.zeros(9, bool)
    held[np.repeat(np.arange(9), np.diff(features.node_ptr))[w[: features.n_node] != 0]] = True
    held[np.repeat(np.arange(10), np.diff(features.edge_ptr))[w[features.n_node :] != 0] - 1] = True
    in_sequence = [
        np.unique(corpus.attr_idx[i:j]) for i, j in zip(corpus.seq_ptr, corpus.seq_ptr[1:], strict=False)
    ]
    assert everything == sum(map(len, in_sequence)) and 0 < held.sum() < 9
    assert frozen == sum(held[present].sum() for present in in_sequence)
    assert np.array_equal(sweeps[2].w != 0, (sweeps[2].w != 0) & (w != 0))  # zeros stayed zeros


@pytest.mark.parametrize("c1, c2", [(1.0, 0.0), (0.0, 0.3), (0.2, 0.2)])
def test_elastic_net(c1, c2):
    corpus, features = symbols(2)
    best = optimum(corpus, features, c1=c1, c2=c2)
    found = coordinate_descent(
        corpus, features, c1=c1, c2=c2, tol=1e-10, tol_gradient=1e-7, max_iterations=5000
    )
    np.testing.assert_allclose(found.objective, best.objective, rtol=1e-7)
    assert found.status == "converged"


@pytest.mark.parametrize("kind", ["pairs", "start", "end", "label sets"])
def test_hard_constraints(kind):
    """What the labels never do is forbidden, kind by kind;
    each makes the labels more probable than they were.
    """
    corpus, features = symbols(3)
    lo, hi = corpus.seq_ptr[:-1][np.diff(corpus.seq_ptr) > 0], corpus.seq_ptr[1:][np.diff(corpus.seq_ptr) > 0]
    corpus = corpus._replace(labels=corpus.labels.copy())
    corpus.labels[lo], corpus.labels[hi - 1] = corpus.labels[lo] % 2, 2 * (corpus.labels[hi - 1] > 0)
    constraints = Constraints(np.ones((3, 3), bool), np.ones(3, bool), np.ones(3, bool))
    if kind == "pairs":
        constraints.allowed[:], inner = False, np.setdiff1d(np.arange(corpus.n_tokens), corpus.seq_ptr)
        constraints.allowed[corpus.labels[inner - 1], corpus.labels[inner]] = True
    elif kind == "label sets":
        constraints = constraints._replace(
            label_sets=np.array([[True, True, True], [True, True, False], [False, True, True]])
        )
        corpus = corpus._replace(label_set=np.where(corpus.labels < 2, 1, 2).astype(np.int32))
        corpus.label_set[::3] = 0
    else:
        getattr(constraints, kind)[:] = np.isin(
            np.arange(3), corpus.labels[lo if kind == "start" else hi - 1]
        )
    fun = Objective(corpus, features, c2=C2, constraints=constraints)
    free = Objective(corpus._replace(label_set=corpus.label_set[:0]), features, c2=C2)
    assert fun(np.zeros(features.n_features))[0] < 0.99 * free(np.zeros(features.n_features))[0], (
        "nothing is forbidden"
    )
    best = optimum(corpus, features, constraints)
    found = coordinate_descent(
        corpus, features, c1=C1, c2=C2, tol=1e-10, constraints=constraints, max_iterations=3000
    )
    np.testing.assert_allclose(found.objective, best.objective, rtol=1e-7)
    np.testing.assert_allclose(found.objective, fun(found.w)[0] + C1 * np.abs(found.w).sum(), rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_objective_and_violation_by_other_code(kind, size, share):
    """1000: potentials that contradict each other by 10^3 nats, the lattices are logarithms."""
    corpus, features = problem(4, **kind)
    w = np.random.default_rng(0).normal(size=features.n_features) * size
    run = run_of(corpus, features, w)
    value = run.renew()
    np.testing.assert_allclose(value, brute_value(corpus, features, w, C2) + C1 * np.abs(w).sum(), rtol=1e-10)
    assert size < 1000.0 or run.arrays.lattices.place[2].any()
    _, grad = Objective(corpus, features, c2=C2)(w)
    slope = np.where(w != 0, np.abs(grad + C1 * np.sign(w)), np.maximum(np.abs(grad) - C1, 0.0))
    largest, squares = run.violation()
    np.testing.assert_allclose([largest, squares], [slope.max(), slope @ slope], rtol=1e-9)


def test_tracked_potentials_are_those_of_the_weights(share):
    """After sweeps that start far away, everything that is kept equals what is built from the weights
    alone.
    """
    corpus, features = problem(5, n_classes=4, valued=True)
    w = np.random.default_rng(1).normal(size=features.n_features) * 20
    run = run_of(corpus, features, w)
    objective = run.renew()
    for _ in range(4):
        objective += run.sweep()
        kept, w = run.arrays, scatter(run.export(), features)
        fresh = run_of(corpus, features, w)
        np.testing.assert_allclose(
            objective, brute_value(corpus, features, w, C2) + C1 * np.abs(w).sum(), rtol=1e-10
        )
        for name in ("psi_node", "log_z"):
            np.testing.assert_allclose(
                getattr(kept.lattices, name), getattr(fresh.arrays.lattices, name), rtol=1e-9, atol=1e-300
            )


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_exact_curvature_by_enumeration(size):
    """1000: the best way into a label loses everything on the way on."""

    def fires(cell, y, t):
        pair = cell >> SHIFT, cell & LABEL
        return y[t] == -1 - cell if cell < 0 else t > 0 and (y[t - 1], y[t]) == pair

    rng = np.random.default_rng(6)
    for T in (1, 2, 4, 5) * (1 if size < 1000 else 20):
        log_node, log_edge = size * rng.normal(size=(T, 3)), size * rng.normal(size=(T, 3, 3))
        log_node[rng.random(log_node.shape) < 0.1] = -np.inf
        log_node[:, 1] = np.maximum(log_node[:, 1], -size)  # a way is left
        tokens = np.flatnonzero(rng.random(T) < 0.7).astype(np.int32)
        x = rng.normal(size=len(tokens))
        paths, p = brute.path_probabilities(log_node, log_edge, np.arange(T))
        for cell in (-1, -3, 0 << SHIFT | 1, 2 << SHIFT | 0):
            f = np.array([sum(v * fires(cell, y, t) for t, v in zip(tokens, x, strict=True)) for y in paths])
            wanted = p @ f**2 - (p @ f) ** 2
            found = feature_variance(cell, tokens, x, log_node, log_edge)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * max(1.0, size / 100))


def test_virtual_features_equal_allocated_ones():
    corpus, features = symbols(7, lengths=(4, 3, 5, 2, 6) * 5, n_symbols=5)
    given = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=1e-8, max_iterations=500)
    virtual = coordinate_descent(corpus, c1=C1, c2=C2, tol=1e-8, max_iterations=500, sizes=(3, 5, 6))
    assert isinstance(virtual.features, FeatureSet) and virtual.features.n_features == np.count_nonzero(
        given.w
    )
    np.testing.assert_array_equal(scatter(Sparse(virtual.features, virtual.w), features), given.w)
    value = Objective(corpus, virtual.features, c2=C2)(virtual.w)[0] + C1 * np.abs(virtual.w).sum()
    np.testing.assert_allclose(value, virtual.objective, rtol=1e-11)


def test_screened_blocks_stay_without_weights():
    corpus, features = symbols(8, lengths=(3,) * 30, n_symbols=12)
    both = [
        coordinate_descent(corpus, features, c1=2.5, c2=0.01, tol=1e-9, screening=on, max_iterations=500)
        for on in (True, False)
    ]
    np.testing.assert_allclose(both[0].w, both[1].w, rtol=0, atol=1e-6)
    assert both[0].counts["screened"] > 0 and both[1].counts["screened"] == 0


def test_a_block_takes_as_many_passes_as_one_of_its_weights():
    """Simulated data of section 6.1: 6 labels, blocks of 6 + 36 weights:
    Algorithm 2 makes 42 times fewer gradient passes.
    """
    labels, x = sample(SPARSE_HMM, [5] * 10)
    corpus = make_corpus(
        np.arange(0, 51, 5),
        np.arange(51),
        x,
        labels=labels,
        edge_class=x,
        class_ptr=np.arange(6),
        class_attr=np.arange(5) + 1,
    )
    visits = [
        coordinate_descent(
            corpus, sizes=(6, 5, 6), c1=1.0, c2=0.001, blocks=blocks, screening=False, max_iterations=1
        ).counts["gradient_visits"]
        for blocks in (True, False)
    ]
    assert visits[1] == 42 * visits[0]


@pytest.mark.parametrize("blocks", [True, False])
def test_each_sweep_tells_the_objective_of_its_weights(blocks):
    corpus, features = problem(4, n_classes=2)
    fun, seen = Objective(corpus, features, c2=C2), []
    coordinate_descent(
        corpus,
        features,
        c1=C1,
        c2=C2,
        blocks=blocks,
        tol=0.0,
        max_iterations=4,
        callback=lambda step, w: seen.append((step.objective, fun(w)[0] + C1 * np.abs(w).sum())),
    )
    told, true = np.array(seen).T
    np.testing.assert_allclose(told, true, rtol=1e-10)


def test_state_goes_on_and_paths_start_warm():
    corpus, features = symbols(9, lengths=(4,) * 20)
    whole = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=0.0, max_iterations=9)
    first = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=0.0, max_iterations=4)
    second = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=0.0, max_iterations=9, state=first.state)
    np.testing.assert_array_equal(second.w, whole.w)
    assert [step.iteration for step in second.history] == [5, 6, 7, 8, 9]


def test_many_occurrences_in_one_sequence():
    """A symbol that fires 10,000 times in one sequence: the fixed rule of the paper would blow up,
    the adaptive one descends.
    """
    rng = np.random.default_rng(0)
    n = 10000
    corpus = make_corpus([0, n], np.arange(n + 1), np.zeros(n, int), labels=(rng.random(n) < 0.1).astype(int))
    found = coordinate_descent(corpus, sizes=(2, 1, 1), c1=1.0, c2=0.001, max_iterations=60)
    objectives = [step.objective for step in found.history]
    assert max(np.diff(objectives), default=0.0) <= 1e-6 and objectives[-1] < 0.5 * n


def test_fixed_steps_diverge_where_a_symbol_repeats():
    labels = np.repeat(np.arange(6) % 3, 12)
    corpus = make_corpus(
        np.arange(0, 73, 12),
        np.arange(73),
        np.zeros(72, int),
        labels=labels,
        edge_class=np.zeros(72, int),
        class_ptr=[0, 1],
        class_attr=[1],
    )
    features = observed(corpus, 3, 1, 2, all_states=True, all_transitions=True)
    fixed = coordinate_descent(corpus, features, c1=C1, c2=C2, step="fixed", factor=1.0, max_iterations=40)
    adaptive = coordinate_descent(corpus, features, c1=C1, c2=C2, max_iterations=200)
    assert max(np.diff([step.objective for step in fixed.history])) > 1.0
    assert max(np.diff([step.objective for step in adaptive.history])) <= 1e-9
    np.testing.assert_allclose(adaptive.objective, optimum(corpus, features).objective, rtol=0.05)


def test_nothing_survives_a_large_penalty():
    corpus, features = symbols(10)
    found = coordinate_descent(corpus, features, c1=1e6, c2=0.0)
    assert found.status == "empty model" and not found.w.any()


def test_interrupt_keeps_what_there_is():
    corpus, features = symbols(11)

    def interrupt(step, w):
        if step.iteration == 3:
            raise KeyboardInterrupt

    found = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=0.0, callback=interrupt)
    assert found.status == "interrupted" and found.n_iter == 3
    value = Objective(corpus, features, c2=C2)(found.w)[0] + C1 * np.abs(found.w).sum()
    np.testing.assert_allclose(found.objective, value, rtol=1e-12)


@pytest.mark.parametrize("virtual", [False, True])
def test_ctrl_c_before_the_first_evaluation_gives_the_start(monkeypatch, virtual):
    """A training that goes on from there ends where an undisturbed one does, bit for bit."""
    corpus, features = symbols(11)
    problem = (corpus, None if virtual else features)
    start = coordinate_descent(*problem, c1=C1, c2=C2, max_iterations=2)
    w0 = Sparse(start.features, start.w)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("crfbook.learners.coordinate.visit.VisitByParts.extend", interrupt)
        found = coordinate_descent(*problem, w0, c1=C1, c2=C2)
        again = coordinate_descent(*problem, state=start.state, c1=C1, c2=C2)
    for one, n_iter in ((found, 0), (again, 2)):
        assert (one.status, one.n_iter, one.history) == ("interrupted", n_iter, []) and np.isnan(
            one.objective
        )
        np.testing.assert_array_equal(one.w, start.w)
    alone = coordinate_descent(*problem, w0, c1=C1, c2=C2, max_iterations=5)
    resumed = coordinate_descent(*problem, state=found.state, c1=C1, c2=C2, max_iterations=5)
    np.testing.assert_array_equal(resumed.w, alone.w)
    assert len(resumed.history) == 5 and resumed.objective == alone.objective


def test_ctrl_c_is_heard_between_two_calls_of_compiled_code(monkeypatch):
    """A sweep over a large corpus takes minutes; what it has moved stays."""
    corpus, features = symbols(11)
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.STRETCH", 1)
    calls, deliver_signals = [], interrupts.deliver_signals

    def press():
        calls.append(1)
        if len(calls) == 40:
            signal.raise_signal(signal.SIGINT)
        deliver_signals()

    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.deliver_signals", press)
    found = coordinate_descent(corpus, features, c1=C1, c2=C2, tol=0.0, max_iterations=500)
    assert found.status == "interrupted" and len(calls) == 40 and found.n_iter == len(found.history) < 40
    value = Objective(corpus, features, c2=C2)(found.w)[0] + C1 * np.abs(found.w).sum()
    np.testing.assert_allclose(found.objective, value, rtol=1e-12)


BAD = [
    ({"c1": 0.0, "c2": 0.0}, "needs a penalty"), ({"c1": -1.0}, "c1"),
    ({"c1": 1.0, "step": "newton"}, "step"), ({"c1": 1.0, "curvature": "none"}, "curvature"),
    ({"c1": 1.0, "factor": 0.0}, "factor"), ({"c1": 1.0, "w0": [1.0]}, "weights"),
    ({"c1": 1.0, "freeze_after": -1}, "freeze_after"), ({"c1": 1.0, "n_threads": 0}, "n_threads"),
]  # fmt: skip


@pytest.mark.parametrize("arguments, word", BAD, ids=[word for _, word in BAD])
def test_bad_input_gets_one_sentence(arguments, word):
    corpus, features = symbols()
    with pytest.raises(ValueError, match=word):
        coordinate_descent(corpus, features, **arguments)


def test_labels_must_be_known():
    corpus, features = symbols()
    labels = corpus.labels.copy()
    labels[4] = -1
    with pytest.raises(ValueError, match="sequence"):
        coordinate_descent(corpus._replace(labels=labels), features, c1=1.0)


def test_a_path_ends_where_each_value_alone_does():
    corpus, features = symbols(12, lengths=(4,) * 20)
    top = largest_c1(corpus, features)
    grad = Objective(corpus, features)(np.zeros(features.n_features))[1]
    np.testing.assert_allclose(top, np.abs(grad).max(), rtol=1e-10)
    values = falling(top, 0.01 * top, 5)
    path = solve_path(corpus, features, c1=values, c2=C2, tol=1e-9, sweeps=2000)
    assert not path[0].result.w.any() and [point.c1 for point in path] == values.tolist()
    for point in path:
        alone = coordinate_descent(corpus, features, c1=point.c1, c2=C2, tol=1e-9, max_iterations=2000)
        np.testing.assert_allclose(point.result.objective, alone.objective, rtol=1e-8)
    assert path[-1].n_active > path[1].n_active


def test_an_interrupted_path_keeps_what_it_has():
    corpus, features = symbols(13)
    path = solve_path(
        corpus, features, c1=[3.0, 1.0, 0.3], c2=C2, sweeps=5, tol=0.0, callback=lambda c1, step, w: c1 == 1.0
    )
    assert [point.c1 for point in path] == [3.0, 1.0] and path[-1].result.status == "stopped by callback"
    with pytest.raises(ValueError, match="fall"):
        solve_path(corpus, features, c1=[0.1, 1.0])


def test_ctrl_c_at_the_next_value_of_a_path_keeps_the_solution_before():
    corpus, features = symbols(13)
    learner = prepare(corpus, features, c1=3.0, c2=C2)
    first = run(learner.go_to(1.0, 5))

    def interrupt():
        raise KeyboardInterrupt

    learner.sweeper.renew = interrupt
    found = run(learner.go_to(0.3, 5))
    assert found.status == "interrupted" and np.isnan(found.objective) and not found.history
    np.testing.assert_array_equal(found.w, first.w)
    assert np.isnan(found.state["log_z"]).all()


def test_small_blocks_begin_no_threads(monkeypatch):
    """A pool for each visit took twenty times as long as the visits."""
    corpus, features = symbols(14, lengths=(4, 6, 1, 3) * 10)
    started = []
    monkeypatch.setattr("crfbook.learners.coordinate.visit.run_tasks", lambda *_: started.append(1))
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.LARGE", 0)
    coordinate_descent(corpus, features, c1=C1, c2=C2, max_iterations=2, n_threads=2)
    assert not started


def test_threads_change_no_bit(monkeypatch):
    """Every block counts as large here; shards are cut by the data alone."""
    corpus, features = symbols(14, lengths=(4, 6, 1, 3) * 10)
    to_the_end = {"c1": C1, "c2": C2, "tol": 1e-9, "max_iterations": 3000}
    plain = coordinate_descent(corpus, features, **to_the_end)
    for number in ("sweeps.LARGE", "visit.ALONE"):  # where parts begin, and where threads do
        monkeypatch.setattr(f"crfbook.learners.coordinate.{number}", 0)
    in_parts = coordinate_descent(corpus, features, **to_the_end)
    np.testing.assert_allclose(in_parts.objective, plain.objective, rtol=1e-8)
    assert np.array_equal(in_parts.w != 0, plain.w != 0)
    found = [
        coordinate_descent(corpus, features, **to_the_end | {"max_iterations": 20}, n_threads=n)
        for n in (1, 2, 3)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.w, found[0].w)
        assert [step[:4] for step in other.history] == [step[:4] for step in found[0].history]
