"""Perceptron, passive-aggressive and AROW against their definitions in plain Python,
and against their guarantees.
"""

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model

from crfbook import brute
from crfbook.chain.inference import decode
from crfbook.chain.objective import Objective
from crfbook.chain.token_layout import cells_of, epoch_order, lay_out_online, weights_of
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus, slice_sequences, take_sequences
from crfbook.data.features import observed
from crfbook.learners.online import online
from crfbook.learners.online.online import arow, passive_aggressive, perceptron
from crfbook.training import interrupts

LEARNERS = [perceptron, passive_aggressive, arow]
CONSTRAINTS = Constraints(
    np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1]], bool), np.array([1, 0, 1], bool), np.array([1, 1, 0], bool)
)


# ---- the definition, loop by loop


def counts(corpus, features, i, path):
    """S(x, path) of sequence i, (F,)."""
    out = np.zeros(features.n_features)
    first = corpus.seq_ptr[i]
    for t, y in enumerate(path):
        for j in range(corpus.attr_ptr[first + t], corpus.attr_ptr[first + t + 1]):
            a, x = corpus.attr_idx[j], corpus.attr_val[j] if len(corpus.attr_val) else 1.0
            for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
                out[k] += x * (features.node_label[k] == y)
        if t > 0:
            c = corpus.edge_class[first + t]
            for b in corpus.class_attr[corpus.class_ptr[c] : corpus.class_ptr[c + 1]]:
                for e in range(features.edge_ptr[b], features.edge_ptr[b + 1]):
                    out[features.n_node + e] += (
                        features.edge_prev[e] == path[t - 1] and features.edge_next[e] == y
                    )
    return out


def best_path(chain):
    """Ties as Viterbi breaks them: the smallest last label, then the smallest one before it, ..."""
    return min(brute.best_paths(*chain)[1].tolist(), key=lambda path: path[::-1])


def differences(corpus, features, i, w, constraints):
    """(dS (F,), wrong tokens, w . dS) of sequence i at the weights w."""
    alone = take_sequences(corpus, [i])
    (chain,) = chains_of(alone, features, w, constraints)
    gold, best = alone.labels, best_path(chain)
    dS = counts(alone, features, 0, gold) - counts(alone, features, 0, best)
    return dS, int((gold != best).sum()), float(w @ dS)


def plain(corpus, features, n_epochs, step, constraints=None, seed=0, w=None):
    """Every weight vector (the start first), and per epoch the list of (seq_weight, wrong, T, -w . dS)."""
    w = np.zeros(features.n_features) if w is None else w.copy()
    weight = corpus.seq_weight if len(corpus.seq_weight) else np.ones(corpus.n_sequences)
    used = np.flatnonzero((np.diff(corpus.seq_ptr) > 0) & (weight > 0))
    vectors, epochs = [w.copy()], []
    for epoch in range(n_epochs):
        epochs.append([])
        for i in used[epoch_order(seed, epoch, len(used))]:
            dS, wrong, score = differences(corpus, features, i, w, constraints)
            if wrong:
                w = w + weight[i] * step(dS, wrong, score)
            vectors.append(w.copy())
            epochs[-1].append((weight[i], wrong, int(corpus.seq_ptr[i + 1] - corpus.seq_ptr[i]), -score))
    return vectors, epochs


CORPORA = {
    "plain": {"lengths": (3, 0, 1, 4, 2, 3)},
    "classes": {"n_classes": 3, "lengths": (3, 1, 4, 2)},
    "values": {"valued": True, "lengths": (2, 4, 3, 1)},
    "weights": {"weighted": True, "n_classes": 2, "valued": True},
}
SIZES = [2, 100]  # attributes: few (dense rows), many (lists)


def small(name, n_attrs, seed=1):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, n_attrs=n_attrs, **CORPORA[name])
    if name == "weights":
        corpus.seq_weight[2] = 0.0
    return corpus, random_model(rng, corpus, n_attrs=n_attrs)[0]


@pytest.fixture(params=CORPORA)
def name(request):
    return request.param


@pytest.fixture(params=SIZES)
def n_attrs(request):
    return request.param


@pytest.fixture(autouse=True)
def dense_rows_in_small_corpora(monkeypatch):
    """So that both ways of storing a weight occur in a test; the real rule wants 8 occurrences."""
    monkeypatch.setattr(
        "crfbook.chain.token_layout.worth_a_row",
        lambda features, count: (np.diff(features.node_ptr) >= 2) & (count >= 3),
    )


def test_perceptron_is_its_definition_and_lazy_averaging_the_naive_mean(name, n_attrs):
    corpus, features = small(name, n_attrs)
    vectors, epochs = plain(corpus, features, 3, lambda dS, wrong, score: dS)
    last = perceptron(corpus, features, average=False, max_iterations=3)
    mean = perceptron(corpus, features, max_iterations=3)
    np.testing.assert_allclose(last.w, vectors[-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(mean.w, np.mean(vectors, axis=0), rtol=0, atol=1e-12)
    for step, epoch in zip(mean.history, epochs, strict=True):
        assert step.objective == pytest.approx(sum(weight * loss for weight, _, _, loss in epoch), abs=1e-12)
        assert step.violation == pytest.approx(
            np.mean([weight * wrong / n for weight, wrong, n, _ in epoch]), abs=1e-12
        )


@pytest.mark.parametrize("pa_type", [0, 1, 2])
@pytest.mark.parametrize("error_sensitive", [True, False])
def test_passive_aggressive_is_its_definition(name, pa_type, error_sensitive, n_attrs):
    corpus, features = small(name, n_attrs)
    c = 0.3

    def step(dS, wrong, score):
        cost, square = (np.sqrt(wrong) if error_sensitive else 1.0) - score, dS @ dS
        return (
            dS * {0: cost / square, 1: min(c, cost / square), 2: cost / (square + 0.5 / c)}[pa_type]
            if square
            else dS
        )

    vectors, epochs = plain(corpus, features, 3, step)
    options = {"pa_type": pa_type, "c": c, "error_sensitive": error_sensitive, "max_iterations": 3}
    mean = passive_aggressive(corpus, features, **options)
    np.testing.assert_allclose(mean.w, np.mean(vectors, axis=0), rtol=0, atol=1e-9)
    last = passive_aggressive(corpus, features, averaging=False, **options)
    np.testing.assert_allclose(last.w, vectors[-1], rtol=0, atol=1e-9)
    for at, epoch in zip(mean.history, epochs, strict=True):
        loss = sum(
            weight * (loss + (np.sqrt(wrong) if error_sensitive else 1.0))
            for weight, wrong, _, loss in epoch
            if wrong
        )
        assert at.objective == pytest.approx(loss, rel=1e-9)
        assert at.violation == pytest.approx(loss / len(epoch), rel=1e-9)


def test_arow_is_its_definition(name, n_attrs):
    corpus, features = small(name, n_attrs)
    variance, gamma = np.full(features.n_features, 0.5), 2.0

    def step(dS, wrong, score):
        alpha = (wrong - score) / (gamma + variance @ dS**2)
        change = alpha * variance * dS
        variance[:] = 1.0 / (1.0 / variance + dS**2 / gamma)
        return change

    vectors, epochs = plain(corpus, features, 3, step)
    found = arow(corpus, features, variance=0.5, gamma=gamma, max_iterations=3)
    np.testing.assert_allclose(found.w, vectors[-1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.state["variance"], variance, rtol=1e-12)
    loss = sum(weight * (loss + wrong) for weight, wrong, _, loss in epochs[-1] if wrong)
    assert found.objective == pytest.approx(loss, rel=1e-9)


def test_constraints_and_label_sets_hold_in_training(n_attrs):
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, lengths=(4, 3, 1, 2, 4), n_attrs=n_attrs, n_classes=2)
    for i in range(corpus.n_sequences):  # gold labellings that the constraints allow
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        corpus.labels[tokens] = rng.choice([0, 1], tokens.stop - tokens.start)
        corpus.labels[corpus.seq_ptr[i]] = 0
    features = observed(corpus, 3, n_attrs, 2, all_states=True, all_transitions=True)
    vectors, _ = plain(corpus, features, 4, lambda dS, wrong, score: dS, CONSTRAINTS)
    free, _ = plain(corpus, features, 4, lambda dS, wrong, score: dS)
    found = perceptron(corpus, features, constraints=CONSTRAINTS, max_iterations=4, average=False)
    np.testing.assert_array_equal(found.w, vectors[-1])
    assert (vectors[-1] != free[-1]).any(), "the constraints never mattered"


def test_a_tag_dictionary_holds_in_training(n_attrs):
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, lengths=(4, 3, 0, 1, 2, 4), n_attrs=n_attrs)
    sets = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], bool)
    label_set = np.array(
        [rng.choice(np.flatnonzero(sets[:, y])) for y in corpus.labels], np.int32
    )  # gold is always allowed
    corpus = corpus._replace(label_set=label_set)
    everywhere = Constraints(np.ones((3, 3), bool), np.ones(3, bool), np.ones(3, bool), sets)
    features = observed(corpus, 3, n_attrs)
    w, free = np.zeros(features.n_features), corpus._replace(label_set=np.zeros(0, np.int32))
    for i in epoch_order(0, 0, 5):
        i += i >= 2  # the empty one
        alone = take_sequences(corpus, [i])
        (chain,) = chains_of(take_sequences(free, [i]), features, w)
        chain[0][~sets[alone.label_set]] = -np.inf
        w += counts(alone, features, 0, alone.labels) - counts(alone, features, 0, best_path(chain))
    found = perceptron(corpus, features, constraints=everywhere, max_iterations=1, average=False)
    np.testing.assert_array_equal(found.w, w)
    assert (perceptron(free, features, max_iterations=1, average=False).w != w).any(), (
        "the sets never mattered"
    )


def test_every_weight_lives_in_one_cell(n_attrs):
    corpus, features = small("plain", n_attrs)
    w = np.random.default_rng(0).normal(size=features.n_features)
    layout, cells = lay_out_online(corpus, features, None)
    theta = cells_of(cells, w)
    np.testing.assert_array_equal(weights_of(cells, theta), w)
    np.testing.assert_array_equal(np.sort(theta[theta != 0]), np.sort(w))
    assert (layout.exists.size > 0) == (n_attrs == 2)


# ---- guarantees


def separable(rng, n_sequences=60, n_labels=4, n_attrs=30):
    """(corpus, features, u): each token carries attribute = its label or one that says nothing; u separates,
    |u| = 1.
    """
    lengths = rng.integers(1, 6, n_sequences)
    labels = rng.integers(0, n_labels, lengths.sum())
    noise = rng.integers(n_labels, n_attrs, len(labels))
    attr_idx = np.stack([labels, noise], axis=1).ravel()
    corpus = make_corpus(np.cumsum([0, *lengths]), np.arange(len(labels) + 1) * 2, attr_idx, labels=labels)
    features = observed(corpus, n_labels, n_attrs, all_states=True, all_transitions=True)
    u = np.zeros(features.n_features)
    for y in range(n_labels):
        u[features.node_ptr[y] + y] = 1.0
    return corpus, features, u / np.linalg.norm(u)


def test_separable_data_are_learnt_within_novikoffs_bound():
    """Mistaken sequences <= (R / margin)^2, R = largest |dS|: Novikoff (1962), Collins (2002), theorem 1."""
    corpus, features, u = separable(np.random.default_rng(0))
    n_labels = features.n_labels
    # u gives each wrong token 1/sqrt(L) less; a token changes 2 * 2 node weights and at most 2 * 2 edge
    # weights by 1
    longest = int(np.diff(corpus.seq_ptr).max())
    margin, radius = 1.0 / np.sqrt(n_labels), 0.0
    for i in range(corpus.n_sequences):
        radius = max(
            radius,
            2.0
            * np.sqrt(
                counts(corpus, features, i, corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]).sum()
            )
            * np.sqrt(longest),
        )
    n_mistakes, w = 0, np.zeros(features.n_features)
    found = perceptron(corpus, features, average=False, max_iterations=100)
    assert found.status == "converged" and found.history[-1].violation == 0.0
    np.testing.assert_array_equal(decode(corpus, features, found.w), corpus.labels)
    for epoch in range(found.n_iter):
        for i in epoch_order(0, epoch, corpus.n_sequences):
            part = slice_sequences(corpus, i, i + 1)
            wrong = (decode(part, features, w) != part.labels).any()
            n_mistakes += wrong
            if wrong:
                w += counts(corpus, features, i, part.labels) - counts(
                    corpus, features, i, decode(part, features, w)
                )
    np.testing.assert_array_equal(found.w, w)
    assert 0 < n_mistakes <= (radius / margin) ** 2
    # and the two inequalities the bound is made of
    assert w @ u >= margin * n_mistakes - 1e-9 and w @ w <= radius**2 * n_mistakes


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_separates_what_can_be_separated(learner):
    corpus, features, _ = separable(np.random.default_rng(1))
    found = learner(corpus, features, max_iterations=100)
    assert found.status == "converged"
    np.testing.assert_array_equal(decode(corpus, features, found.w), corpus.labels)


def test_batch_step_is_the_limit_of_the_log_loss_gradient():
    """At s w, s -> infinity, the gradient of -log p is S(x, best) - S(x, gold): Altun et al. (2003),
    section 4.1.
    """
    rng = np.random.default_rng(2)
    corpus = random_corpus(rng, lengths=(5, 3, 0, 4, 1), n_classes=2, valued=True, weighted=True)
    features, w = random_model(rng, corpus)
    found = perceptron(corpus, features, w, batch=True, average=False, max_iterations=1)
    value, gradient = Objective(corpus, features)(1e5 * w)
    n_used = 4  # one sequence is empty
    np.testing.assert_allclose((found.w - w) * n_used, -gradient, rtol=0, atol=1e-9)
    assert found.objective == pytest.approx(value / 1e5, rel=1e-9)
    averaged = perceptron(corpus, features, w, batch=True, max_iterations=1)
    np.testing.assert_allclose(averaged.w, (w + found.w) / 2, rtol=0, atol=1e-12)


def test_batch_perceptron_learns_separable_data():
    corpus, features, _ = separable(np.random.default_rng(1))
    found = perceptron(corpus, features, batch=True, max_iterations=300, average=False)
    assert found.status == "converged"


@pytest.mark.parametrize("pa_type", [0, 1, 2])
def test_passive_aggressive_step_is_optimal(pa_type):
    """min |d|^2 / 2 + (0 | C xi | C xi^2) with  (w + d) . dS >= margin - xi: type 0 meets the margin,
    the others trade it.
    """
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, lengths=(5,), valued=True)
    features, w = random_model(rng, corpus)
    c = 0.1
    found = passive_aggressive(corpus, features, w, pa_type=pa_type, c=c, averaging=False, max_iterations=1)
    dS, wrong, score = differences(corpus, features, 0, w, None)
    d, margin = found.w - w, np.sqrt(wrong)
    assert wrong
    if pa_type == 0:
        assert (w + d) @ dS == pytest.approx(margin, rel=1e-12)

    def cost(d):
        slack = max(0.0, margin - (w + d) @ dS)
        return d @ d / 2 + (0.0 if pa_type == 0 else c * slack if pa_type == 1 else c * slack**2)

    for factor in np.linspace(0.0, 2.0, 41):
        if pa_type or factor >= 1.0:  # type 0: only steps that meet the margin
            assert cost(d) <= cost(factor * d) + 1e-12
    residual = d - dS * (d @ dS) / (dS @ dS)
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)  # the step lies along dS


# ---- going on, stopping, refusing


@pytest.mark.parametrize("learner", LEARNERS)
def test_resume_bit_for_bit(learner):
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(0, 6, 30)), valued=True)
    features, _ = random_model(rng, corpus)
    whole = learner(corpus, features, max_iterations=5)
    half = learner(corpus, features, max_iterations=2)
    kept = {name: value.copy() for name, value in half.state.items()}
    rest = learner(corpus, features, max_iterations=5, state=half.state)
    np.testing.assert_array_equal(rest.w, whole.w)
    assert [step[:4] for step in half.history + rest.history] == [step[:4] for step in whole.history]
    for key, value in kept.items():
        np.testing.assert_array_equal(half.state[key], value)  # the state given is not changed
    for key in set(kept) - {"seconds"}:
        np.testing.assert_array_equal(rest.state[key], whole.state[key])


@pytest.mark.parametrize("learner", LEARNERS)
def test_new_sequences_are_taken_in(learner):
    """Two passes over halves of a corpus, the second with the state of the first,
    are one pass over the whole.
    """
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, lengths=(3, 4, 2, 3, 1, 4))
    features, _ = random_model(rng, corpus)
    first, second = take_sequences(corpus, [0, 1, 2]), take_sequences(corpus, [3, 4, 5])
    state = learner(first, features, max_iterations=1, shuffle=False).state
    found = learner(second, features, max_iterations=2, shuffle=False, state=state)
    np.testing.assert_allclose(
        found.w, learner(corpus, features, max_iterations=1, shuffle=False).w, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("learner", LEARNERS)
def test_no_epoch_and_no_sequence(learner):
    rng = np.random.default_rng(8)
    corpus = random_corpus(rng)
    features, w = random_model(rng, corpus)
    found = learner(corpus, features, w, max_iterations=0)
    np.testing.assert_array_equal(found.w, w)
    assert found.status == "max_iterations" and found.history == [] and found.objective > 0
    nothing = take_sequences(corpus, [1])  # of length 0
    found = learner(nothing, features, w, max_iterations=3)
    np.testing.assert_array_equal(found.w, w)
    assert found.status == "converged" and found.objective == 0.0


@pytest.mark.parametrize("learner", LEARNERS)
def test_callback_and_interruption(learner, monkeypatch):
    rng = np.random.default_rng(9)
    corpus = random_corpus(rng, lengths=(4, 4, 3, 5))
    features, _ = random_model(rng, corpus)
    seen = []

    def callback(step, w):
        assert not w.flags.writeable
        seen.append((step, w.copy()))
        return step.iteration == 2

    found = learner(corpus, features, max_iterations=9, callback=callback)
    assert found.status == "stopped by callback" and found.n_iter == 2
    np.testing.assert_array_equal(seen[-1][1], found.w)
    found.w[0] += 1.0  # what comes back is the caller's own

    def interrupt(step, w):
        if step.iteration == 2:
            raise KeyboardInterrupt

    found = learner(corpus, features, max_iterations=9, callback=interrupt)
    assert found.status == "interrupted" and found.n_iter == 2
    np.testing.assert_array_equal(seen[-1][1], found.w)
    monkeypatch.setattr(interrupts, "STRETCH", 3)

    def break_off(*arguments):  # in the middle of the third epoch
        if len(arguments[0]) == 1 and break_off.n == 2:
            raise KeyboardInterrupt
        break_off.n += len(arguments[0]) == 1
        return break_off.kernel(*arguments)

    name = f"{learner.__name__}_epoch"
    break_off.n, break_off.kernel = 0, getattr(online, name)
    monkeypatch.setattr(online, name, break_off)
    found = learner(corpus, features, max_iterations=9)
    assert found.status == "interrupted" and found.n_iter == 2
    np.testing.assert_array_equal(seen[-1][1], found.w)  # the last complete epoch, not half of one


def test_features_may_lack_what_the_corpus_has(n_attrs):
    """Weights that do not exist are not updated: gold labels of new sequences, unknown attributes,
    unknown edge attributes.
    """
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng, lengths=(3, 4, 2, 4, 3, 4), n_attrs=n_attrs, n_classes=2)
    seen = take_sequences(corpus, [0, 1])
    whole = observed(seen, 3, n_attrs, 2)
    vectors, _ = plain(corpus, whole, 3, lambda dS, wrong, score: dS)
    np.testing.assert_array_equal(perceptron(corpus, whole, average=False, max_iterations=3).w, vectors[-1])
    part = whole._replace(
        n_attrs=1,
        n_edge_attrs=1,
        node_ptr=whole.node_ptr[:2],
        node_label=whole.node_label[: whole.node_ptr[1]],
        edge_ptr=whole.edge_ptr[:2],
        edge_prev=whole.edge_prev[: whole.edge_ptr[1]],
        edge_next=whole.edge_next[: whole.edge_ptr[1]],
    )
    known = corpus.attr_idx < 1  # the same corpus without what `part` does not know
    without = corpus._replace(
        attr_idx=corpus.attr_idx[known],
        attr_ptr=np.concatenate([[0], np.cumsum(known)])[corpus.attr_ptr],
        class_ptr=np.array([0, 1, 2]),
        class_attr=np.zeros(2, np.int32),
    )
    vectors, _ = plain(without, part, 3, lambda dS, wrong, score: dS)
    np.testing.assert_array_equal(perceptron(corpus, part, average=False, max_iterations=3).w, vectors[-1])


def test_scores_beyond_float64_are_noticed_where_no_path_is_wrong():
    corpus = make_corpus([0, 1], [0, 2], [0, 1], attr_val=[1e200, -1e200], labels=[0])
    features = observed(corpus, 2, 2, all_states=True)
    found = perceptron(corpus, features, np.full(features.n_features, 1e200))  # inf - inf
    assert found.status == "non-finite weights" and found.n_iter == 0


def test_weights_beyond_float64_end_training():
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], attr_val=[1e200, 1e200], labels=[0, 1])
    features = observed(corpus, 2, 2, all_states=True)
    found = perceptron(
        corpus, features, np.full(features.n_features, 1e150) * np.array([1, 2, 2, 1] + [0] * features.n_edge)
    )
    assert found.status == "non-finite weights" and np.isfinite(found.w).all() and found.n_iter == 0


def test_what_is_refused():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng)
    features, w = random_model(rng, corpus)
    for call, words in [
        (lambda: perceptron(corpus, features, w[:-1]), "weights: expected shape"),
        (lambda: perceptron(corpus, features, w * np.nan), "finite"),
        (
            lambda: perceptron(corpus, features, max_iterations=-1),
            "max_iterations: expected an integer >= 0, got -1",
        ),
        (lambda: perceptron(corpus, features, epsilon=-1), "epsilon: expected a finite number >= 0, got -1"),
        (lambda: passive_aggressive(corpus, features, pa_type=3), "pa_type: expected one of 0, 1, 2, got 3"),
        (lambda: passive_aggressive(corpus, features, c=0), "c: expected a finite number > 0, got 0"),
        (lambda: arow(corpus, features, variance=-1), "variance: expected a finite number > 0, got -1"),
        (lambda: arow(corpus, features, gamma=np.inf), "gamma: expected a finite number > 0, got inf"),
        (
            lambda: perceptron(corpus._replace(labels=np.full_like(corpus.labels, -1)), features),
            "sequence 0, token 0",
        ),
        (lambda: perceptron(corpus, features, state={"w": w[:-1]}), "state: expected an array 'w' of shape"),
        (
            lambda: arow(corpus, features, state=perceptron(corpus, features, max_iterations=1).state),
            "'variance'",
        ),
    ]:
        with pytest.raises(ValueError, match=words.replace("(", r"\(")):
            call()


@pytest.mark.parametrize("seed", range(3))
def test_the_readable_sister_does_the_same_steps(name, n_attrs, seed):
    corpus, features = small(name, n_attrs, seed)
    w = np.random.default_rng(seed).normal(size=features.n_features)
    learner = online._Online(
        corpus, features, w, None, None, True, 0.0, 3, seed, "plain", online.perceptron_epoch
    )
    w_sum, count = np.zeros_like(w), 1
    for epoch in range(3):
        order = corpus.visited[epoch_order(seed, epoch, len(corpus.visited))]
        count = online.perceptron_epoch_plain(order, w, w_sum, count, corpus, features)
        learner.advance()
    assert w_sum.any() and learner.good["count"] == count
    np.testing.assert_allclose(learner.good["w"], w, rtol=0, atol=1e-11)  # sums of a few dozen steps
    np.testing.assert_allclose(learner.good["w_sum"], w_sum, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", [(0, 0.1, 0), (1, 0.1, 1), (2, 0.1, 0)])
def test_the_readable_sister_of_pa_does_the_same_steps(name, n_attrs, rule, seed):
    corpus, features = small(name, n_attrs, seed)
    w = np.random.default_rng(seed).normal(size=features.n_features)
    common = corpus, features, w, None, None, True, 0.0, 3, seed, "plain"
    learner = online._Online(*common, online.passive_aggressive_epoch, True, rule)
    w_sum, count = np.zeros_like(w), 1
    for epoch in range(3):
        order = corpus.visited[epoch_order(seed, epoch, len(corpus.visited))]
        count = online.passive_aggressive_epoch_plain(order, *rule, w, w_sum, count, corpus, features)
        learner.advance()
    assert w_sum.any() and learner.good["count"] == count
    np.testing.assert_allclose(learner.good["w"], w, rtol=0, atol=1e-11)
    np.testing.assert_allclose(learner.good["w_sum"], w_sum, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_readable_sister_of_arow_does_the_same_steps(name, n_attrs, seed):
    corpus, features = small(name, n_attrs, seed)
    w, variance = np.random.default_rng(seed).normal(size=features.n_features), np.ones(features.n_features)
    common = corpus, features, w, None, None, True, 0.0, 3, seed, "plain"
    learner = online._Online(*common, online.arow_epoch, False, (0.7,), variance=1.0)
    for epoch in range(3):
        order = corpus.visited[epoch_order(seed, epoch, len(corpus.visited))]
        online.arow_epoch_plain(order, 0.7, w, variance, corpus, features)
        learner.advance()
    assert variance.min() < 0.9
    np.testing.assert_allclose(learner.good["w"], w, rtol=0, atol=1e-11)
    np.testing.assert_allclose(learner.good["variance"], variance, rtol=0, atol=1e-11)
