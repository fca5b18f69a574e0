"""Labels known in part: enumeration in every form, bits where all is known, cuts, what is refused."""

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model

from crfbook import brute
from crfbook.chain.objective import LOG_LOSS_FORMS, Objective
from crfbook.chain.partial import Difference, partial_objective
from crfbook.chain.sparse.choice import never_tiny
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import take_sequences
from crfbook.data.features import edge_gradient, empirical_counts, observed, select
from crfbook.data.partial import Partial, hold, lost_tokens, spelled_out

pytestmark = pytest.mark.kernels
FORMS = ("auto", *LOG_LOSS_FORMS)
L = 3


def random_problem(seed):
    """(corpus, features, w, constraints or None, Partial): three labels, sentences of up to five tokens."""
    rng = np.random.default_rng(seed)
    lengths = tuple(rng.integers(0, 6, rng.integers(1, 5)).tolist())
    kind = {
        "n_classes": int(rng.integers(1, 4)),
        "valued": rng.random() < 0.5,
        "weighted": rng.random() < 0.5,
    }
    corpus = random_corpus(rng, lengths, L, **kind)
    features, w = random_model(rng, corpus, L, size=rng.choice([0.5, 3.0, 30.0]), all_states=True)
    constraints = None
    if rng.random() < 0.7:
        tables = rng.random((L, L)) < 0.85, rng.random(L) < 0.9, rng.random(L) < 0.9
        sets = np.vstack([np.ones(L, bool), rng.random((2, L)) < 0.85])
        constraints = Constraints(*tables, sets)
        if rng.random() < 0.5:
            corpus = corpus._replace(label_set=rng.integers(0, 3, corpus.n_tokens).astype(np.int32))
        keep = np.append(np.ones(features.n_node, bool), tables[0][features.edge_prev, features.edge_next])
        features, w = select(features, keep), w[keep]
    sets = np.vstack([np.eye(L, dtype=bool), np.ones(L, bool), rng.random((3, L)) < 0.6])
    chances = [rng.random(len(sets)) + 1e-9, np.eye(len(sets))[L], [1.0] * L + [0.0] * 4][
        rng.choice(3, p=[0.8, 0.1, 0.1])
    ]
    row = rng.choice(len(sets), corpus.n_tokens, p=np.array(chances) / np.sum(chances)).astype(np.int32)
    return corpus, features, w, constraints, Partial(row, sets)


def enumerated(corpus, features, w, constraints, partial, c2):
    """(value, grad (F,)) by listing all labellings; None where a sequence has no labelling that is known."""
    value, grad = c2 * float(w @ w), 2.0 * c2 * w
    for i, (node, edge, classes) in enumerate(chains_of(corpus, features, w, constraints)):
        if not len(node):
            continue
        tokens = np.arange(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        if len(corpus.label_set):
            node[~constraints.label_sets[corpus.label_set[tokens]]] = -np.inf
        sets = partial.sets[partial.row[tokens]]
        paths, scores = brute.all_scores(node, edge, classes)
        if not np.isfinite(scores[brute.agreeing(paths, sets)]).any():
            return None
        loss, d_node, d_edge = brute.partial_loss(node, edge, classes, sets)
        weight = corpus.weights[i]
        value += weight * loss
        for t, d in zip(tokens, d_node, strict=True):
            for k in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
                own = slice(*features.node_ptr[corpus.attr_idx[k] : corpus.attr_idx[k] + 2])
                grad[own] += weight * corpus.values[k] * d[features.node_label[own]]
        edge_gradient(features, weight * d_edge, corpus.class_ptr, corpus.class_attr, grad)
    return value, grad


def made(corpus, features, constraints, partial, **options):
    held = hold(corpus, constraints, partial)
    return partial_objective(corpus, held, features, c2=0.3, constraints=constraints, **options)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_enumeration(form):
    """Values and gradients, and the sequences that have no labelling are refused by every form."""
    seen, refused = 0, 0
    for seed in range(60):
        corpus, features, w, constraints, partial = random_problem(seed)
        if form == "default" and (corpus.n_classes > 1 or features.n_edge_attrs > 1):
            continue
        wanted = enumerated(corpus, features, w, constraints, partial, 0.3)
        if wanted is None:
            with pytest.raises(ValueError, match=r"sequence \d, token \d: expected a labelling up to here"):
                made(corpus, features, constraints, partial, form=form)
            refused += 1
            continue
        value, grad = made(corpus, features, constraints, partial, form=form, n_threads=2)(w)
        # rounding of log Z, which is as large as the scores
        np.testing.assert_allclose(value, wanted[0], rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(
            grad, wanted[1], rtol=1e-9, atol=1e-9 * (1 + np.abs(wanted[1]).max(initial=0))
        )
        seen += 1
    assert seen > (10 if form == "default" else 30) and refused > 2, (seen, refused)


@pytest.mark.parametrize("tiny", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_where_all_is_known_the_bits_are_those_of_the_objective(seed, tiny):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, (3, 0, 1, 4, 2, 9), L, n_classes=2, valued=True, weighted=True)
    features, w = random_model(rng, corpus, L)
    partial = Partial(corpus.labels, np.eye(L, dtype=bool))
    with never_tiny() if not tiny else np.errstate():
        ours = made(corpus, features, None, partial)
        theirs = Objective(corpus, features, c2=0.3)
    assert ours.held is None
    for weights in (w, np.zeros_like(w)):
        (value, grad), (wanted, slope) = ours(weights), theirs(weights)
        assert value == wanted and np.array_equal(grad, slope)


def test_a_gap_may_lie_between_labels_that_open_and_close_no_sentence():
    corpus = random_corpus(np.random.default_rng(0), (5,), L)._replace(
        labels=np.array([0, 1, 2, 1, 0], np.int32)
    )
    features, w = random_model(np.random.default_rng(1), corpus, L, all_transitions=True)
    ends = np.array([True, False, True])
    constraints = Constraints(np.ones((L, L), bool), ends, ends)
    row = np.array([0, 1, L, 1, 0], np.int32)
    partial = Partial(row, np.vstack([np.eye(L, dtype=bool), np.ones((1, L), bool)]))
    value, _ = made(corpus, features, constraints, partial)(w)
    assert value == pytest.approx(enumerated(corpus, features, w, constraints, partial, 0.3)[0], rel=1e-12)


def test_any_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, tuple(rng.integers(1, 12, 400)), L, 40)
    features, w = random_model(rng, corpus, L, 40)
    row = np.where(rng.random(corpus.n_tokens) < 0.4, L, corpus.labels).astype(np.int32)
    partial = Partial(row, np.vstack([np.eye(L, dtype=bool), np.ones((1, L), bool)]))
    found = [made(corpus, features, None, partial, form="batched", n_threads=n)(w) for n in (1, 2, 4)]
    assert all(value == found[0][0] and np.array_equal(grad, found[0][1]) for value, grad in found)


def test_gaps_alone_are_computed_twice_and_silent_sentences_not_at_all():
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, (9, 4, 5, 0), L, weighted=True)
    features, w = random_model(rng, corpus, L)
    row = corpus.labels.copy()
    row[[0, 4, 5, 7]] = (
        L  # gaps 0, 4-5, 7 of the first sequence; the second one is known, of the third nothing
    )
    row[13:] = L
    partial = Partial(row, np.vstack([np.eye(L, dtype=bool), np.ones((1, L), bool)]))
    both = made(corpus, features, None, partial, form="batched")
    assert both.held._packing.row_token.size == 2 + 4 + 3 and both.free._packing.row_token.size == 13
    two = take_sequences(corpus, [0, 1])
    alone = made(two, features, None, Partial(row[:13], partial.sets), form="batched")
    assert both(w)[0] == alone(w)[0]  # what says nothing adds nothing
    with pytest.raises(ValueError, match="sequence 0: expected a path of finite score"):
        both.held(np.full_like(w, 1e308))  # its own sequences 0, 1, 2 are gaps of sequence 0


@pytest.mark.parametrize("valued", [False, True])
def test_what_sets_of_labels_show_by_listing(valued):
    """Counts of (attribute, label) and (edge attribute, label, label), token by token and pair by pair."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        corpus = random_corpus(rng, tuple(rng.integers(0, 9, 6).tolist()), L, n_classes=3, valued=valued)
        sets = np.vstack([np.eye(L, dtype=bool), np.ones((1, L), bool), ~np.eye(L, dtype=bool)])
        row = rng.choice(len(sets), corpus.n_tokens).astype(np.int32)
        corpus = corpus._replace(labels=np.where(row < L, row, -1).astype(np.int32))
        node, edge = np.zeros((7, L)), np.zeros((3, L, L))
        known = [np.flatnonzero(sets[r]).tolist() if r != L else [] for r in row]
        for t, labels in enumerate(known):
            for k in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
                node[corpus.attr_idx[k], labels] += corpus.values[k]
        for t in corpus.inner.tolist():
            for a in corpus.class_attr[
                slice(*corpus.class_ptr[corpus.edge_class[t] : corpus.edge_class[t] + 2])
            ]:
                for yp in known[t - 1]:
                    edge[a, yp, known[t]] += 1.0
        shown = spelled_out(corpus, hold(corpus, None, Partial(row, sets)))
        features = observed(shown, L, 7, 3)
        counts = np.split(empirical_counts(shown, features), [features.n_node])
        attr = np.repeat(np.arange(7), np.diff(features.node_ptr))
        np.testing.assert_allclose(counts[0], node[attr, features.node_label], rtol=1e-12, atol=1e-12)
        place = features.edge_attr, features.edge_prev, features.edge_next
        np.testing.assert_array_equal(counts[1], edge[place])
        assert len(counts[1]) == np.count_nonzero(edge)
        seen = {
            (a, y)
            for t, labels in enumerate(known)
            for y in labels
            for a in corpus.attr_idx[slice(*corpus.attr_ptr[t : t + 2])]
        }
        assert len(counts[0]) == len(seen)


def test_curvature_is_that_of_the_free_lattice():
    corpus, features, w, _, _ = random_problem(5)
    objective = Objective(corpus, features, c2=0.3)
    assert np.array_equal(Difference(objective, objective).curvature(w), objective.curvature(w))


def test_lost_tokens_by_listing():
    """The token up to which no labelling is left: prefixes of all labellings, one by one."""
    lost = 0
    for seed in range(60):
        corpus, _, _, constraints, partial = random_problem(seed)
        if constraints is not None:  # held sets know the ends already
            narrow = constraints._replace(end=np.arange(L) == seed % L)
            nothing = Partial(np.zeros(corpus.n_tokens, np.int32), np.ones((1, L), bool))
            alone = hold(corpus, narrow, nothing)
            found = lost_tokens(corpus._replace(label_set=alone.row), alone.limits(narrow))
            assert np.array_equal(lost_tokens(corpus, narrow), found)
        held = hold(corpus, constraints, partial)
        found = lost_tokens(corpus._replace(label_set=held.row), held.limits(constraints))
        allowed = held.limits(constraints).allowed
        for i, (first, stop) in enumerate(zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True)):
            wanted, sets = -1, held.sets[held.row[first:stop]]
            for t in range(stop - first):
                paths = brute.all_paths(t + 1, L)
                fine = brute.agreeing(paths, sets[: t + 1]) & allowed[paths[:, :-1], paths[:, 1:]].all(axis=1)
                if not fine.any():
                    wanted = t
                    break
            assert found[i] == wanted
            lost += wanted >= 0
    assert lost > 20
