"""Forward-backward with a default: enumeration, the batched form, and what breaks scaled sums."""

import numpy as np
import pytest
from helpers.corpora import brute_value, random_corpus, random_model
from helpers.problems import CASES, case, central_differences, constraints_for, problem

from crfbook.chain import inference, packing
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.choice import FormChooser
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed

pytestmark = pytest.mark.kernels
ONE_CLASS = [name for name, options in CASES.items() if options.get("n_classes", 1) == 1]


def large(seed=0, n_labels=37, n_sequences=70, size=1.0, **options):
    """More sequences than lanes, of unlike lengths, and few of all pairs of labels."""
    rng = np.random.default_rng(seed)
    lengths = tuple(rng.integers(0, 12, n_sequences))
    corpus = random_corpus(rng, lengths, n_labels, 60, **options)
    return corpus, *random_model(rng, corpus, n_labels, 60, size=size)


def both(corpus, features, w, constraints=None, **options):
    """[(value, gradient, curvature)] of the batched form and of this one."""
    found = []
    for form in ("batched", "default"):
        objective = Objective(corpus, features, c2=0.1, constraints=constraints, form=form, **options)
        found.append((*objective(w), objective.curvature(w)))
    return found


def check(want, got, rtol=1e-11):
    assert got[0] == pytest.approx(want[0], rel=rtol)
    for a, b in zip(want[1:], got[1:], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=rtol * max(1.0, np.abs(a).max()))


@pytest.mark.parametrize("name", ONE_CLASS)
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_value_and_gradient_by_enumeration(name, constrained, size):
    corpus, features, w = case(name, size=size)
    constraints = constraints_for(corpus, features.n_labels) if constrained else None
    value, grad = Objective(corpus, features, c2=0.3, constraints=constraints, form="default")(w)
    assert value == pytest.approx(brute_value(corpus, features, w, 0.3, constraints), rel=1e-10)
    if size == 1.0:
        want = central_differences(lambda v: brute_value(corpus, features, v, 0.3, constraints), w)
        np.testing.assert_allclose(grad, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("size", [0.0, 0.1, 3.0, 40.0, 1e4])
@pytest.mark.parametrize("options", [{}, {"valued": True, "weighted": True}], ids=["plain", "weighted"])
def test_it_equals_the_batched_form(size, options):
    for seed in range(3):
        want, got = both(*large(seed, size=size, **options))
        n = (
            3 if size < 1e3 else 2
        )  # second derivatives leave out sequences in the log form: not the same ones
        check(want[:n], got[:n], rtol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_constraints_and_sets_of_labels(seed):
    corpus, features, w, constraints = problem(seed, constrained=True)
    check(*both(corpus, features, w, constraints))
    rng = np.random.default_rng(seed)
    corpus, features, w = large(seed)
    allowed, every = rng.random((37, 37)) < 0.5, np.ones(37, bool)
    inner = corpus.inner
    allowed[corpus.labels[inner - 1], corpus.labels[inner]] = True
    check(*both(corpus, features, w, Constraints(allowed, every, every)))


def gold(n_labels, n_sequences=20):
    """Sequences of three tokens with attribute 0, whose labels follow upon each other."""
    labels = np.add.outer(np.arange(n_sequences), np.arange(3)).reshape(-1) % n_labels
    n = len(labels)
    corpus = make_corpus(3 * np.arange(n_sequences + 1), np.arange(n + 1), np.zeros(n, int), labels=labels)
    return corpus, observed(corpus, n_labels, 1, all_states=True)


@pytest.mark.parametrize("cost", [1.0, 8.0, 20.0, 36.0, 80.0])
@pytest.mark.parametrize("lead", [0.0, 5.0, 60.0])
def test_no_digits_are_lost_where_a_likely_label_forbids_its_neighbours(cost, lead):
    # label 0 takes all mass, and what is stored behind it costs much: 1 + expm1(-cost) alone would keep
    # 1e-16 / exp(-cost) of the digits
    corpus, features = gold(5)
    w = np.zeros(features.n_features)
    w[0], w[features.n_node :] = lead, -cost
    want, got = both(corpus, features, w)
    check(want, got, rtol=1e-12)
    marginals = [inference.node_marginals(corpus, features, w, form=form) for form in ("batched", "default")]
    np.testing.assert_allclose(marginals[1], marginals[0], rtol=1e-9)


def test_lists_in_place_of_entries(monkeypatch):
    for options in ({}, {"valued": True, "weighted": True}):
        corpus, features, w = large(5, **options)
        want = both(corpus, features, w)
        monkeypatch.setattr(packing, "ENTRY_BYTES", -1)
        objective = Objective(corpus, features, form="default")
        assert len(objective._problem.layout.lists.row_token) == corpus.n_tokens
        assert not len(objective._problem.layout.pair_weight)
        for one, other in zip(want, both(corpus, features, w), strict=True):
            check(one, other, rtol=1e-12)
        monkeypatch.undo()


def test_threads_and_batches():
    corpus, features, w = large(3, n_sequences=400)
    one, two = (Objective(corpus, features, form="default", n_threads=n)(w) for n in (1, 2))
    assert one[0] == two[0] and one[1].tobytes() == two[1].tobytes()
    for rows in (1, 30, 500):
        value, grad = Objective(corpus, features, form="default", batch_tokens=rows)(w)
        assert value == pytest.approx(one[0], rel=1e-12)
        np.testing.assert_allclose(grad, one[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_marginals_and_log_z(size):
    corpus, features, w = large(2, size=size)
    for what in (inference.log_partition, inference.node_marginals):
        want, got = (what(corpus, features, w, form=form) for form in ("batched", "default"))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_a_sequence_without_path_is_named():
    corpus, features, w = large(1, n_labels=4)
    allowed = np.ones((4, 4), bool)
    allowed[:, 2] = False
    bad = int(np.argmax([(2 in labels[1:]) for labels in np.split(corpus.labels, corpus.seq_ptr[1:-1])]))
    sets = np.vstack([np.ones(4, bool), np.arange(4) == 2])
    label_set = np.zeros(corpus.n_tokens, np.int32)
    label_set[corpus.seq_ptr[bad] + 1] = 1
    constraints = Constraints(allowed, np.ones(4, bool), np.ones(4, bool), sets)
    with pytest.raises(ValueError, match=f"^sequence {bad}: expected a path"):
        inference.log_partition(
            corpus._replace(label_set=label_set), features, w, constraints, form="default"
        )


def test_edge_classes_are_refused():
    corpus, features, _ = case("classes")
    with pytest.raises(ValueError, match="form='default': expected plain transitions alone"):
        Objective(corpus, features, form="default")


def test_it_is_chosen_for_many_labels_with_few_pairs():
    for n_labels, chosen in ((9, "batched"), (300, "default")):
        corpus, features, w = large(0, n_labels, 400)
        corpus = corpus._replace(labels=np.arange(corpus.n_tokens, dtype=np.int32) % n_labels)
        features = observed(corpus, n_labels, 60)
        chooser = FormChooser(features, corpus, "auto", kernels=True)
        assert chooser.choose(np.ones(features.n_features)) == chosen


@pytest.mark.parametrize("constrained", [False, True])
def test_a_sequence_that_scaled_sums_cannot_hold_spoils_no_other(constrained):
    """Its exp is inf, and inf times 0 is NaN: the sums of all pairs are those of the batched form."""
    corpus = make_corpus([0, 2, 4], [0, 0, 0, 1, 1], [0], labels=[0, 1, 0, 1])
    features = observed(corpus, 3, 1, 1, all_states=True, all_transitions=True)
    ones, cycle = np.ones(3, bool), np.roll(np.eye(3, dtype=bool), 1, axis=1)
    constraints = Constraints(cycle, ones, ones) if constrained else None
    for big in (-1e3, -1e4, 1e5):
        w = np.concatenate([[0.0, 0.0, big], 0.1 * np.arange(9.0)])
        check(*both(corpus, features, w, constraints))
