"""Label tuples of three and four: the automaton, its forward-backward and Viterbi against enumeration,
training to its optimum.
"""

import itertools

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, chains_of, random_corpus, random_model

from crfbook import brute
from crfbook.chain.forms import make_edges
from crfbook.chain.inference import decode
from crfbook.chain.objective import Objective
from crfbook.data.corpus import make_corpus
from crfbook.data.features import log_edge, observed
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.tuples import tuple_chain
from crfbook.learners.tuples.automaton import Automaton, TupleCounts, Tuples, lane_arrays, tuple_occurrences
from crfbook.learners.tuples.forward_backward import tuple_backward, tuple_forward
from crfbook.learners.tuples.log_form import tuple_chain_log
from crfbook.learners.tuples.tuple_chain import TupleObjective, decode_tuples, kkt_residual, train_tuples

LENGTHS = (5, 0, 1, 4, 2, 6, 3)


def random_tuples(rng, n, n_labels, n_classes, size=2.0):
    """(Tuples, nu): triples and quadruples, of whatever edge attributes the classes of `random_corpus`
    have.
    """
    labels = rng.integers(0, n_labels, (n, 4))
    labels[rng.random(n) < 0.5, 0] = -1
    rows = np.unique(np.column_stack([rng.integers(0, n_classes, n), labels]), axis=0).reshape(-1, 5)
    tuples = Tuples(rows[:, 0].astype(np.int32), rows[:, 1:].astype(np.int32))
    return tuples, rng.normal(0.0, size, len(rows))


def spelt(tuples):
    return [
        (b, tuple(y for y in z if y >= 0))
        for b, z in zip(tuples.attr.tolist(), tuples.labels.tolist(), strict=True)
    ]


def enumerated(corpus, features, w, tuples, nu):
    """For each sequence: (weight, paths, scores, counts of the tuples on each path,
    number of the gold path).
    """
    weight = corpus.seq_weight if len(corpus.seq_weight) else np.ones(corpus.n_sequences)
    for i, chain in enumerate(chains_of(corpus, features, w)):
        if len(chain[0]):
            paths, score = brute.all_scores(*chain)
            attrs = [
                corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]].tolist() for k in chain[2]
            ]
            counts = brute.tuple_counts(paths, attrs, spelt(tuples))
            gold = np.flatnonzero(
                (paths == corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]).all(axis=1)
            )[0]
            yield weight[i], paths, score + counts @ nu, counts, gold


def brute_value(corpus, features, w, tuples, nu):
    """(-log-likelihood, expected counts of the tuples (G,), gold counts (G,))."""
    value, expected, gold_counts = 0.0, np.zeros(len(nu)), np.zeros(len(nu))
    for weight, _, score, counts, gold in enumerated(corpus, features, w, tuples, nu):
        top = score.max()
        log_z = top + np.log(np.exp(score - top).sum())
        value += weight * (log_z - score[gold])
        expected += weight * np.exp(score - log_z) @ counts
        gold_counts += weight * counts[gold]
    return value, expected, gold_counts


def problem(seed, n_tuples=9, size=1.0, tuple_size=2.0, **options):
    """A random corpus with two to four labels and one to three edge classes, first-order weights, tuples:
    all asymmetric.
    """
    rng = np.random.default_rng(seed)
    n_labels, n_classes = 2 + seed % 3, 1 + seed // 3 % 3
    corpus = random_corpus(
        rng, LENGTHS if n_labels < 4 else LENGTHS[:5], n_labels, n_classes=n_classes, **options
    )
    features, w = random_model(rng, corpus, n_labels, size=size)
    return corpus, features, w, *random_tuples(rng, n_tuples, n_labels, n_classes, tuple_size)


@pytest.mark.parametrize("seed", range(18))
def test_value_and_gradient_are_those_of_enumeration(seed):
    corpus, features, w, tuples, nu = problem(seed, weighted=seed % 2 == 0, valued=seed % 4 == 0)
    value, expected, gold = brute_value(corpus, features, w, tuples, nu)
    objective = TupleObjective(corpus, features, tuples, gold, c2=0.1)
    x = np.concatenate([w, nu])
    found, grad = objective(x)
    assert objective.n_products[2] == 0, "the scaled form"
    np.testing.assert_allclose(found, value + 0.1 * x @ x, rtol=1e-12)
    np.testing.assert_allclose(grad[len(w) :], expected - gold + 0.2 * nu, rtol=1e-10, atol=1e-11)
    step = 1e-5
    for k in np.random.default_rng(seed).permutation(len(w))[:12]:
        d = np.zeros(len(x))
        d[k] = step
        slope = (objective(x + d)[0] - objective(x - d)[0]) / (2 * step)
        np.testing.assert_allclose(grad[k], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_without_tuples_it_is_the_first_order_model(seed):
    corpus, features, w, *_ = problem(seed, weighted=True)
    none = Tuples(np.zeros(0, np.int32), np.zeros((0, 4), np.int32))
    objective = TupleObjective(corpus, features, none, np.zeros(0))
    value, grad = Objective(corpus, features)(w)
    found = objective(w)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], grad, rtol=1e-9, atol=1e-12)
    assert objective.automaton.n_states == features.n_labels and objective.n_products == (0, 0, 0)
    np.testing.assert_array_equal(
        decode_tuples(corpus, features, w, none, np.zeros(0)), decode(corpus, features, w)
    )
    huge = 1e200 * w  # its square exceeds float64
    np.testing.assert_allclose(objective(huge)[0], Objective(corpus, features)(huge)[0], rtol=1e-9)


EXTREMES = {
    "negative": lambda nu: np.full(len(nu), -12.0),
    "positive": lambda nu: np.full(len(nu), 12.0),
    "both": lambda nu: np.sign(nu) * 8.0,
    "log": lambda nu: 60.0 * nu,
    "huge": lambda nu: 1e5 * nu,
}


def plain_and_fast(corpus, features, w, tuples, nu, forbidden=()):
    """What the form in logarithms says of each sequence, and the fast kernels of all in one go, with lanes to
    spare: log Z (S,), then `TupleCounts`. forbidden: transitions.
    """
    automaton = Automaton(tuples, features.n_labels, corpus.class_ptr, corpus.class_attr)
    table = log_edge(features, w, corpus.class_ptr, corpus.class_attr)
    for previous, following in forbidden:
        table[:, previous, following] = -np.inf
    edges, arcs, M = make_edges(table), automaton.arcs, automaton.width
    scores, log_node = automaton.scores(edges, nu), np.full((corpus.n_tokens, M), -np.inf)
    log_node[:, : features.n_labels] = brute_node_scores(corpus, features, w)
    node_max, potentials = log_node.max(axis=1), scores.potentials
    psi = np.exp(log_node - node_max[:, None])
    plain, fast = (
        TupleCounts(np.full(psi.shape, np.nan), np.zeros(edges.psi_edge.shape), np.zeros(len(arcs.arc_label)))
        for _ in range(2)
    )
    longest, log_z = corpus.longest, np.zeros((2, corpus.n_sequences))
    lanes, masses, work = lane_arrays(arcs, longest, M, corpus.n_sequences + 1)
    for r, (lo, hi) in enumerate(itertools.pairwise(corpus.seq_ptr)):
        rows, T, weight = slice(lo, hi), hi - lo, corpus.weights[r]
        lanes.length[r], lanes.weight[r], lanes.rows[:T, r] = T, weight, np.arange(lo, hi)
        lanes.classes[:T, r], lanes.psi_node[:T, :, r] = corpus.edge_class[rows], psi[rows]
        if T:
            tables = log_node[rows], edges.log_edge, corpus.edge_class[rows]
            log_z[0, r] = tuple_chain_log(*tables, weight, np.arange(lo, hi), arcs, scores.log_factor, plain)
    tuple_forward(longest, lanes, arcs, potentials, masses, work)
    assert (lanes.length[:-1] == corpus.lengths).all(), "the scaled form"
    steps = np.log(masses.scale[corpus.position, corpus.sequence]) + node_max
    steps[corpus.inner] += edges.edge_max[corpus.edge_class[corpus.inner]]
    log_z[1] = np.bincount(corpus.sequence, steps, corpus.n_sequences)
    tuple_backward(longest, lanes, arcs, potentials, masses, work, fast)
    return (log_z[0], *plain), (log_z[1], *fast)


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("kind", ["as drawn", "negative", "positive", "both", "forbidden"])
def test_the_fast_kernels_say_what_the_form_in_logarithms_says(seed, kind):
    """To 1e-11 of the largest number of each array. A hand-over that cancels loses three digits at most;
    where one follows another the loss grows: 6e-12 is the worst in 60 seeds (18, all weights -12).
    """
    corpus, features, w, tuples, nu = problem(seed, n_tuples=25, weighted=True)
    nu = EXTREMES.get(kind, np.array)(nu)
    plain, fast = plain_and_fast(corpus, features, w, tuples, nu, [(0, 1)] if kind == "forbidden" else ())
    for name, a, b in zip(("log_z", "p_node", "edge_sum", "arc_sum"), plain, fast, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-11 * a.max(), err_msg=name)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_weights(seed, kind):
    """Hand-overs that cancel, and spreads that only the log form takes."""
    corpus, features, w, tuples, nu = problem(seed, n_tuples=25, weighted=True)
    nu = EXTREMES[kind](nu)
    value, expected, gold = brute_value(corpus, features, w, tuples, nu)
    objective = TupleObjective(corpus, features, tuples, gold)
    found, grad = objective(np.concatenate([w, nu]))
    np.testing.assert_allclose(found, value, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        grad[len(w) :] + gold, expected, rtol=1e-8 if kind != "huge" else 1e-6, atol=1e-13 * (1 + gold.max())
    )
    assert (objective.n_products[2] > 0) == (kind in ("log", "huge"))


def test_small_masses_keep_their_digits():
    """Label 0 is improbable, but all other triples cost 60 nats: what matters is 1e-11 of what is subtracted,
    on the way out and back.
    """
    rng = np.random.default_rng(5)
    lengths = (6, 5)
    corpus = make_corpus(
        np.cumsum([0, *lengths]), np.arange(12), np.zeros(11, int), labels=rng.integers(0, 3, 11)
    )
    features = observed(corpus, 3, 1, all_states=True, all_transitions=True)
    w = np.concatenate([[-25.0, 0.3, 0.0], rng.normal(0.0, 0.5, 9)])
    labels = np.array([z for z in np.ndindex(3, 3, 3) if z[0] and z[2]], np.int32)
    tuples, nu = Tuples(np.zeros(len(labels), np.int32), labels), np.full(len(labels), -60.0)
    _, expected, _ = brute_value(corpus, features, w, tuples, nu)
    objective = TupleObjective(corpus, features, tuples, np.zeros(len(nu)))
    _, grad = objective(np.concatenate([w, nu]))
    assert objective.n_products[2] == 0
    np.testing.assert_allclose(grad[len(w) :], expected, rtol=1e-10)


def test_masses_too_small_for_the_scaled_form_are_refused(monkeypatch):
    """One sequence's best path first loses 800 nats, in two steps, and its triples give back 1,000:
    what underflows would never return.

    Scores that spread that far are refused before (TUPLE_SPREAD, lifted here), so that this is a second line.
    """
    monkeypatch.setattr(tuple_chain, "TUPLE_SPREAD", np.inf)
    corpus = make_corpus([0, 2, 6], np.arange(7), np.repeat([0, 1], [2, 4]), labels=[0, 1, 2, 1, 0, 2])
    features = observed(corpus, 3, 2, all_states=True, all_transitions=True)
    w = np.concatenate([[0.2, 0.1, 0.0], [-400.0, 0.3, 0.0], np.linspace(-0.5, 0.5, 9)])
    tuples, nu = (
        Tuples(np.zeros(2, np.int32), np.array([[0, 0, 1], [0, 1, 1]], np.int32)),
        np.array([650.0, 350.0]),
    )
    value, expected, gold = brute_value(corpus, features, w, tuples, nu)
    objective = TupleObjective(corpus, features, tuples, gold)
    found, grad = objective(np.concatenate([w, nu]))
    assert objective.n_products[2] == 1, "the other one stays scaled"
    np.testing.assert_allclose(found, value, rtol=1e-11)
    np.testing.assert_allclose(grad[len(w) :] + gold, expected, rtol=1e-10)
    assert expected.min() > 0.9


def test_only_the_sequence_whose_scores_spread_goes_through_the_log_form():
    corpus = make_corpus(
        [0, 3, 7, 9], np.arange(10), np.repeat([0, 1, 0], [3, 1, 5]), labels=[0, 1, 2, 1, 0, 2, 1, 0, 1]
    )
    features = observed(corpus, 3, 2, all_states=True, all_transitions=True)
    w = np.concatenate([[0.2, 0.1, 0.0], [-101.0, 0.3, 0.0], np.linspace(-0.5, 0.5, 9)])
    tuples, nu = (
        Tuples(np.zeros(2, np.int32), np.array([[0, 0, 1], [0, 1, 1]], np.int32)),
        np.array([1.5, -0.5]),
    )
    value, expected, gold = brute_value(corpus, features, w, tuples, nu)
    objective = TupleObjective(corpus, features, tuples, gold)
    found, grad = objective(np.concatenate([w, nu]))
    assert objective.n_products[2] == 1
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(grad[len(w) :] + gold, expected, rtol=1e-10)


def test_many_lanes_and_threads():
    """More sequences than lanes, of very different lengths, one of 500 tokens:
    log form and scaled form agree, threads change no bit.
    """
    rng = np.random.default_rng(3)
    lengths = (*rng.integers(0, 9, 260).tolist(), 500)
    corpus = random_corpus(rng, lengths, 4, n_classes=3, weighted=True)
    features, w = random_model(rng, corpus, 4)
    tuples, nu = random_tuples(rng, 30, 4, 3, size=1.0)
    objective = TupleObjective(corpus, features, tuples, np.zeros(len(nu)))
    value, grad = objective(np.concatenate([w, nu]))
    assert objective.n_products[2] == 0 and objective.chain.transitions.parts.shape[0] > 2, (
        "several shards, or threads have nothing to share"
    )
    alone = [
        TupleObjective(corpus, features, tuples, np.zeros(len(nu)), n_threads=n)(np.concatenate([w, nu]))
        for n in (1, 3)
    ]
    assert alone[0][0] == alone[1][0] == value
    np.testing.assert_array_equal(alone[1][1], grad)
    scores, automaton = objective.chain.transitions, objective.automaton
    wide = scores.automaton.scores
    automaton.scores = lambda edges, nu: wide(edges, nu)._replace(spread=np.inf)
    slow = objective(np.concatenate([w, nu]))
    assert objective.n_products[2] == np.count_nonzero(lengths)
    np.testing.assert_allclose(slow[0], value, rtol=1e-11)
    np.testing.assert_allclose(slow[1], grad, rtol=1e-8, atol=1e-8)


def test_states_are_the_contexts_that_tuples_need():
    """By plain sets: prefixes of two labels and more, and the longest suffix among them;
    products are the arcs of each token's pattern.
    """
    corpus, features, w, tuples, nu = problem(5, n_tuples=12)
    objective = TupleObjective(corpus, features, tuples, np.zeros(len(nu)))
    automaton, arcs = objective.automaton, objective.automaton.arcs
    contexts = {z[:n] for _, z in spelt(tuples) for n in range(2, len(z))}
    assert set(automaton.contexts) == contexts and len(automaton.contexts) == len(contexts)
    assert automaton.n_states == features.n_labels + len(contexts)
    states = [(y,) for y in range(automaton.width)] + automaton.contexts
    for q in range(automaton.width, len(states)):
        suffixes = [states[q][n:] for n in range(1, len(states[q]))]
        assert states[arcs.backoff[q]] == next(z for z in suffixes if z in contexts or len(z) == 1)
    n = 0
    for p in range(len(arcs.leaf_ptr)):
        k = int(np.flatnonzero(arcs.pattern == p)[0])
        attrs = set(corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]].tolist())
        wanted = contexts | {z for b, z in spelt(tuples) if b in attrs}
        queue = [z for z in wanted]
        while queue:  # what has an arc has one at its back-off
            z = queue.pop()
            if len(z) > 2:
                back = (
                    next(z[n:-1] for n in range(1, len(z)) if z[n:-1] in contexts or len(z[n:-1]) == 1)
                    + z[-1:]
                )
                queue += [back] if back not in wanted else []
                wanted.add(back)
        found = [states[q] + (int(y),) for q, y in zip(arcs.arc_state, arcs.arc_label, strict=True)][
            arcs.pattern_ptr[p] : arcs.pattern_ptr[p + 1]
        ]
        assert set(found) == wanted and len(found) == len(wanted)
    objective(np.concatenate([w, nu]))
    inner = np.concatenate(
        [np.arange(lo + 1, hi) for lo, hi in zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True)]
    )
    n = int(np.diff(arcs.pattern_ptr)[arcs.pattern[corpus.edge_class[inner]]].sum())
    assert objective.n_products == (n, n, 0)


@pytest.mark.parametrize("seed", range(12))
def test_viterbi_is_the_best_of_all_paths(seed):
    corpus, features, w, tuples, nu = problem(seed, n_tuples=12)
    path = decode_tuples(corpus, features, w, tuples, nu)
    at = np.flatnonzero(np.diff(corpus.seq_ptr))
    for i, (_, paths, score, _, _) in zip(at, enumerated(corpus, features, w, tuples, nu), strict=True):
        mine = path[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]
        assert score[(paths == mine).all(axis=1)][0] >= score.max() - 1e-12 * max(1.0, abs(score.max()))


def test_ties_go_to_the_smallest_label():
    corpus, features, w, tuples, nu = problem(1)
    assert not decode_tuples(corpus, features, 0.0 * w, tuples, 0.0 * nu).any()


@pytest.mark.parametrize("order", [2, 3])
def test_occurrences_are_what_the_labels_show(order):
    corpus = random_corpus(np.random.default_rng(order), (7, 0, 1, 5, 3, 9), 3, n_classes=3, weighted=True)
    tuples, count = tuple_occurrences(corpus, order, edge_attrs=(0, 2))
    seen = {}
    for i in range(corpus.n_sequences):
        for t in range(corpus.seq_ptr[i], corpus.seq_ptr[i + 1]):
            k = corpus.edge_class[t]
            for b in corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]].tolist():
                for size in range(3, order + 2):
                    if b in (0, 2) and t - size + 1 >= corpus.seq_ptr[i]:
                        key = b, tuple(corpus.labels[t - size + 1 : t + 1].tolist())
                        seen[key] = seen.get(key, 0.0) + corpus.seq_weight[i]
    assert dict(zip(spelt(tuples), count, strict=True)) == pytest.approx(seen, rel=1e-12)


@pytest.mark.parametrize("order", [2, 3])
def test_training_ends_at_the_optimum_over_all_candidates(order):
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, (9,) * 12, 3, n_classes=2)
    corpus = corpus._replace(labels=np.tile([0, 1, 1, 2, 0, 2, 2, 1, 0], 12).astype(np.int32))
    corpus.labels[rng.integers(0, 108, 25)] = 0
    features, w = random_model(rng, corpus, 3)
    found = train_tuples(corpus, features, order=order, c1=0.5, edge_attrs=(0, 1), tol_gradient=1e-5)
    tuples, count = tuple_occurrences(corpus, order, (0, 1))
    whole = TupleObjective(corpus, features, tuples, count)
    best = minimize(whole, np.zeros(whole.n_features), c1=0.5, tol_gradient=1e-5)
    assert (
        found.status == "converged"
        and found.violation <= 1e-5
        and 0 < len(found.nu) < len(count)
        and found.nu.all()
    )
    np.testing.assert_allclose(found.objective, best.objective, rtol=1e-8)
    small = TupleObjective(corpus, features, found.tuples, dict_counts(found.tuples, tuples, count))
    x = np.concatenate([found.w, found.nu])
    value, grad = small(x)
    np.testing.assert_allclose(value + 0.5 * np.abs(x).sum(), found.objective, rtol=1e-12)
    assert kkt_residual(x, grad, 0.5).max() <= 1.1e-5
    again = train_tuples(
        corpus,
        features,
        order=order,
        c1=0.5,
        edge_attrs=(0, 1),
        tol_gradient=1e-4,
        start=(found.w, found.tuples, found.nu),
    )
    assert again.status == "converged" and len(again.rounds) == 1, "a solution is left alone"


def dict_counts(some, tuples, count):
    known = dict(zip(spelt(tuples), count, strict=True))
    return np.array([known[z] for z in spelt(some)])


def test_a_strong_penalty_leaves_the_first_order_model_and_a_stronger_one_nothing():
    corpus, features, *_ = problem(4)
    found = train_tuples(corpus, features, c1=2.0)
    assert (
        len(found.nu) == 0
        and found.n_states == features.n_labels
        and found.w.any()
        and found.status == "converged"
    )
    nothing = train_tuples(corpus, features, c1=20.0)
    assert nothing.status == "empty model" and not nothing.w.any() and len(nothing.nu) == 0


def test_bad_arguments():
    corpus, features, w, tuples, nu = problem(4)
    with pytest.raises(ValueError, match="c1: expected a finite number > 0"):
        train_tuples(corpus, features, c1=0.0)
    with pytest.raises(ValueError, match="order: expected 2"):
        train_tuples(corpus, features, order=4, c1=1.0)
    with pytest.raises(ValueError, match="weights: expected shape"):
        decode_tuples(corpus, features, w[1:], tuples, nu)
    with pytest.raises(ValueError, match="weights: expected finite numbers"):
        decode_tuples(corpus, features, w, tuples, nu * np.nan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": 2.0}, "order: expected 2"),
        ({"order": "2"}, "order: expected 2"),
        ({"c1": float("nan")}, "c1: expected"),
        ({"c1": float("inf")}, "c1: expected"),
        ({"c1": "1"}, "c1: expected"),
        ({"c2": -1.0}, "c2: expected a finite number"),
        ({"max_rounds": "3"}, "max_rounds: expected an integer"),
        ({"edge_attrs": ("a",)}, "edge_attrs: expected integers"),
        ({"edge_attrs": (-1,)}, "edge_attrs: expected integers"),
        ({"edge_attrs": (2,)}, r"edge_attrs: expected 0\.\.1"),
        ({"callback": 3}, "callback: expected a function or None, got 3"),
        ({"start": (0, 1)}, r"start: expected \(w, Tuples, nu\), got tuple"),
    ],
)
def test_bad_arguments_of_training(change, message):
    corpus, features, *_ = problem(4)
    with pytest.raises(ValueError, match=message):
        train_tuples(corpus, features, **{"c1": 1.0, **change})


def test_tuples_that_no_labels_match_are_refused():
    corpus, features, w, tuples, nu = problem(4)
    wrong = []
    for place, value in ((3, 3), (3, -1), (2, -1), (1, -5)):
        labels = tuples.labels.copy()
        labels[2, place] = value
        wrong.append((tuples._replace(labels=labels), "tuple 2: expected"))
    wrong += [
        (tuples._replace(labels=tuples.labels[:, 2:]), "got shapes"),
        (tuples._replace(labels=tuples.labels + 0.5), "expected integers"),
        (tuples._replace(attr=tuples.attr[1:]), "got shapes|weights: expected shape"),
        (tuples._replace(attr=tuples.attr - 9), "tuple 0: expected"),
    ]
    for bad, message in wrong:
        with pytest.raises(ValueError, match=message):
            decode_tuples(corpus, features, w, bad, nu)
    for bad, message in wrong[:5]:
        with pytest.raises(ValueError, match=message):
            TupleObjective(corpus, features, bad, 0.0 * nu)
        with pytest.raises(ValueError, match=message):
            train_tuples(corpus, features, c1=1.0, start=(w, bad, nu))
    with pytest.raises(ValueError, match="count: expected"):
        TupleObjective(corpus, features, tuples, nu[1:])
    with pytest.raises(ValueError, match="c2: expected"):
        TupleObjective(corpus, features, tuples, nu, c2=-1.0)
    with pytest.raises(ValueError, match="sequence 0: expected a path of finite score"):
        decode_tuples(corpus, features, w, tuples, np.full(len(nu), 1e308))


def test_label_sets_and_unknown_labels():
    """Sets of labels are refused, never passed over; a tuple with an unknown label is none."""
    corpus, features, w, tuples, nu = problem(4)
    limited = corpus._replace(label_set=np.zeros(corpus.n_tokens, np.int32))
    with pytest.raises(ValueError, match="label_set: expected rows"):
        decode_tuples(limited, features, w, tuples, nu)
    with pytest.raises(ValueError, match="label_set: expected rows"):
        train_tuples(limited, features, c1=1.0)
    labels = corpus.labels.copy()
    labels[2] = -1  # of five
    found, count = tuple_occurrences(corpus._replace(labels=labels, edge_class=0 * corpus.edge_class), 3)
    known, n_known = tuple_occurrences(corpus._replace(edge_class=0 * corpus.edge_class), 3)
    assert found.labels[:, 1:].min() >= 0 and count.sum() == n_known.sum() - 5
    assert set(spelt(found)) <= set(spelt(known))
    with pytest.raises(ValueError, match="sequence 0, token 2: expected a label"):
        train_tuples(corpus._replace(labels=labels), features, c1=1.0)


@pytest.mark.parametrize("lengths", [(), (0, 0)])
def test_a_corpus_without_tokens(lengths):
    corpus = random_corpus(np.random.default_rng(0), lengths)
    features, w = random_model(np.random.default_rng(0), corpus)
    found = train_tuples(corpus, features, c1=1.0)
    assert found.status == "empty model" and found.objective == 0.0 and len(found.nu) == 0
    tuples, nu = random_tuples(np.random.default_rng(0), 5, 3, 1)
    assert not TupleObjective(corpus, features, tuples, 0.0 * nu)(np.concatenate([w, nu]))[1].any()
    assert len(decode_tuples(corpus, features, w, tuples, nu)) == 0


@pytest.fixture
def patterned():
    """(corpus, features) whose labels triples explain."""
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, (9,) * 12, 3, n_classes=2)
    corpus = corpus._replace(labels=np.tile([0, 1, 1, 2, 0, 2, 2, 1, 0], 12).astype(np.int32))
    return corpus, random_model(rng, corpus, 3)[0]


def test_the_gap_ends_training_where_c2_is_positive(patterned):
    """The rounds stop by the same rule as `minimize` in each of them:
    none is spent on what already counts as solved.
    """
    found = train_tuples(*patterned, order=3, c1=0.5, c2=0.01)
    assert found.status == "converged" and len(found.rounds) < 8
    assert found.violation**2 / 0.04 <= 1e-6 * max(1.0, found.objective)


def test_training_may_start_from_rows_of_another_width(patterned):
    """Triples in rows of four, as a model of third order has them, are found again in rows of three."""
    start = train_tuples(*patterned, order=2, c1=0.5)
    wide = start.tuples._replace(labels=np.pad(start.tuples.labels, ((0, 0), (1, 0)), constant_values=-1))
    shown = []
    train_tuples(
        *patterned,
        order=2,
        c1=0.5,
        start=(start.w, wide, start.nu),
        callback=lambda one: shown.append(one) or True,
    )
    assert shown[0]["tuples"] == len(start.nu) > 0 and shown[0]["objective"] == start.objective
    with pytest.raises(ValueError, match=r"start: expected \(w, Tuples, nu\), got TupleResult"):
        train_tuples(*patterned, order=2, c1=0.5, start=start)


def test_a_callback_that_stops_is_named(patterned):
    """Not the rounds, of which there were more to come; a round that has converged is still called that."""
    found = train_tuples(*patterned, c1=0.5, callback=lambda one: True)
    assert found.status == "stopped by callback" and len(found.rounds) == 1 and found.violation > 1e-3
    assert train_tuples(*patterned, c1=0.5, max_rounds=0).status == "max_rounds"
    assert (
        train_tuples(*patterned, c1=0.5, callback=lambda one: one["violation"] <= 1e-3).status == "converged"
    )


@pytest.mark.parametrize("at", [1, 2, 15, 10**6])
def test_an_interrupt_keeps_the_last_good_weights(patterned, monkeypatch, at):
    """Wherever it falls: what comes back has the objective it says,
    and before the first evaluation it is the start.
    """
    calls, evaluate = [], TupleObjective.__call__

    def interrupted(self, w):
        calls.append(0)
        if len(calls) == at or (at == 10**6 and len(calls) > 5 and self.n_features == whole.n_features):
            raise KeyboardInterrupt
        return evaluate(self, w)

    tuples, count = tuple_occurrences(patterned[0], 2)
    whole = TupleObjective(*patterned, tuples, count)
    monkeypatch.setattr(TupleObjective, "__call__", interrupted)
    if at == 1:
        start = train_tuples(*patterned, c1=0.5)
        assert start.status == "interrupted" and not start.rounds and not len(start.nu)
        assert np.isnan(start.objective) and np.isnan(start.violation) and not start.w.any()
        return
    found = train_tuples(*patterned, c1=0.5)
    monkeypatch.undo()
    assert found.status == "interrupted"
    x = np.concatenate([found.w, found.nu])
    value = (
        TupleObjective(*patterned, found.tuples, dict_counts(found.tuples, tuples, count))(x)[0]
        + 0.5 * np.abs(x).sum()
    )
    np.testing.assert_allclose(found.objective, value, rtol=1e-12)
    assert x.any() == (at > 2) and (np.isnan(found.violation) if at > 2 else found.violation > 0)


def test_an_automaton_may_be_empty_or_nested():
    one = Automaton(
        Tuples(np.zeros(1, np.int32), np.array([[2, 2, 2, 2]], np.int32)), 3, np.array([0, 1]), np.array([0])
    )
    assert one.contexts == [(2, 2), (2, 2, 2)] and one.n_states == 5
