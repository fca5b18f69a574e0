"""The four losses: kernels and objective against enumeration, the batched form against the log form,
extreme scores.
"""

import math

import numpy as np
import pytest
from helpers.chains import chains, random_chain
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import CASES, case, central_differences, constraints_for
from hypothesis import assume, given
from hypothesis import strategies as st

from crfbook import brute
from crfbook.chain.losses import LOSSES, make_loss, sequence_loss_log, value_and_slope
from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import edge_gradient

pytestmark = pytest.mark.kernels

OTHERS = [
    (name, clamp) for name in LOSSES[1:] for clamp in ((None, 2.0) if name.endswith("exp") else (None,))
]


def log_form(log_node, log_edge, edge_class, labels, loss="log", clamp=None, log_scale=0.0, weight=1.0):
    """(value, gradient by nodes, by edges, u) of the kernel in the log domain."""
    grad_node, grad_edge, u = (
        np.full(log_node.shape, np.nan),
        np.zeros(log_edge.shape),
        np.zeros(len(log_node)),
    )
    settings = make_loss(loss, clamp, log_scale)
    labels = np.asarray(labels, np.int32)
    value, _ = sequence_loss_log(
        log_node, log_edge, edge_class, labels, weight, settings, u, grad_node, grad_edge
    )
    return value, grad_node, grad_edge, u if settings.pointwise else u[:1]


def summed(form, corpus, features, w, loss, clamp=None, constraints=None, c2=0.0, **settings):
    """(value, grad (F,)) of a corpus: `form` sequence by sequence, plain loops back to the weights."""
    value, grad = c2 * float(w @ w), 2 * c2 * w
    weight = corpus.seq_weight if len(corpus.seq_weight) else np.ones(corpus.n_sequences)
    for i, chain in enumerate(chains_of(corpus, features, w, constraints)):
        first = corpus.seq_ptr[i]
        if len(chain[0]) == 0:
            continue
        v, grad_node, grad_edge = form(
            *chain, corpus.labels[first : corpus.seq_ptr[i + 1]], loss, clamp, **settings
        )[:3]
        value += weight[i] * v
        edge_gradient(features, weight[i] * grad_edge, corpus.class_ptr, corpus.class_attr, grad)
        for t in range(len(chain[0])):
            for j in range(corpus.attr_ptr[first + t], corpus.attr_ptr[first + t + 1]):
                a = corpus.attr_idx[j]
                x = corpus.attr_val[j] if len(corpus.attr_val) else 1.0
                for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
                    grad[k] += weight[i] * x * grad_node[t, features.node_label[k]]
    return value, grad


# ---- the definitions


def test_exp_losses_are_what_they_are_called():
    chain = random_chain(np.random.default_rng(0), 4, 3, 2)
    path = [2, 0, 1, 1]
    paths, scores = brute.all_scores(*chain)
    gold = brute.path_score(*chain, path)
    others = [math.exp(s - gold) for y, s in zip(paths, scores, strict=True) if list(y) != path]
    assert brute.loss_of(*chain, path, "exp")[0] == pytest.approx(math.fsum(others), rel=1e-12)
    p = brute.node_marginals(*chain)[np.arange(4), path]
    assert brute.loss_of(*chain, path, "pointwise-exp")[0] == pytest.approx(np.sum((1 - p) / p), rel=1e-12)
    value, *grads = brute.loss_of(*chain, path)
    want, *want_grads = brute.negative_log_likelihood(*chain, path)
    assert value == pytest.approx(want, rel=1e-12)
    for grad, other in zip(grads, want_grads, strict=True):
        np.testing.assert_allclose(grad, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss, clamp", OTHERS)
def test_gradients_of_the_definition(loss, clamp):
    chain = random_chain(np.random.default_rng(1), 4, 3, 2, size=1.0)
    path = [0, 2, 2, 1]
    _, grad_node, grad_edge = brute.loss_of(*chain, path, loss, clamp)
    for i, grad in ((0, grad_node), (1, grad_edge)):

        def value(x, i=i):
            moved = list(chain)
            moved[i] = x.reshape(chain[i].shape)
            return brute.loss_of(*moved, path, loss, clamp)[0]

        np.testing.assert_allclose(
            grad.ravel(), central_differences(value, chain[i].ravel()), rtol=1e-6, atol=1e-7
        )


@given(chain=chains(), loss=st.sampled_from(OTHERS + [("log", None)]), seed=st.integers(0, 99))
def test_log_form_equals_enumeration(chain, loss, seed):
    path = np.random.default_rng(seed).integers(0, chain.log_node.shape[1], len(chain.log_node))
    assume(brute.path_score(*chain, path) > -np.inf)
    value, grad_node, grad_edge = brute.loss_of(*chain, path, *loss)
    got = log_form(*chain, path, *loss)
    scale = max(1.0, abs(grad_node).max())  # 1/p reaches 1e10 here: rounding is relative to the largest term
    np.testing.assert_allclose(got[0], value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[1], grad_node, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(got[2], grad_edge, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("loss, clamp", OTHERS)
def test_gradients_by_position_agree(loss, clamp):
    """With a class of its own for each step: nodes sum to zero, edges to the nodes of both ends."""
    chain = random_chain(np.random.default_rng(3), 6, 4, 6, size=1.0)._replace(
        edge_class=np.arange(6, dtype=np.int32)
    )
    _, grad_node, grad_edge, _ = log_form(*chain, [3, 0, 2, 1, 1, 0], loss, clamp)
    np.testing.assert_allclose(grad_node.sum(axis=1), 0.0, atol=1e-12 * abs(grad_node).max())
    np.testing.assert_allclose(grad_edge[1:].sum(axis=1), grad_node[1:], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(grad_edge[1:].sum(axis=2), grad_node[:-1], rtol=1e-9, atol=1e-10)


def test_clamp_is_smooth_and_straight():
    def phi(u, clamp):
        return value_and_slope(u, make_loss("exp", clamp))

    for u in (0.0, 1e-9, 0.5, 3.0, 7.0):
        assert phi(u, None) == pytest.approx((math.expm1(u), math.exp(u)), rel=1e-13)
        assert phi(u, 3.0) == pytest.approx(brute.phi(u, "exp", 3.0), rel=1e-13)
    below, above = phi(3.0 - 1e-9, 3.0), phi(3.0 + 1e-9, 3.0)
    np.testing.assert_allclose(below, above, rtol=1e-8)
    assert phi(5000.0, 3.0)[1] == phi(4.0, 3.0)[1] == pytest.approx(math.exp(3.0))
    assert phi(900.0, None)[0] == np.inf and np.isfinite(phi(900.0, None)[1])
    assert value_and_slope(900.0, make_loss("exp", None, 898.0)) == pytest.approx(
        (math.exp(2), math.exp(2)), rel=1e-12
    )
    assert value_and_slope(-1e-14, make_loss("exp")) == (0.0, 1.0)


# ---- the objective


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("loss, clamp", OTHERS)
def test_objective_by_enumeration(name, loss, clamp):
    corpus, features, w = case(name)
    objective = Objective(corpus, features, c2=0.3, loss=loss, clamp=clamp)
    value, grad = objective(w)
    want, want_grad = summed(brute.loss_of, corpus, features, w, loss, clamp, c2=0.3)
    assert value == pytest.approx(want, rel=1e-11)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-9, atol=1e-11 * value)
    assert objective.log_value(w) == pytest.approx(math.log(want), rel=1e-12)


@pytest.mark.parametrize("loss, clamp", OTHERS)
def test_objective_by_central_differences(loss, clamp):
    corpus, features, w = case("everything", 4)
    objective = Objective(corpus, features, c2=0.1, loss=loss, clamp=clamp)
    grad = objective(w)[1]
    differences = central_differences(lambda v: objective(v)[0], w)
    np.testing.assert_allclose(grad, differences, rtol=1e-6, atol=1e-7 * abs(grad).max())


@pytest.mark.parametrize("loss, clamp", OTHERS)
def test_constraints_by_enumeration(loss, clamp):
    corpus, features, w = case("plain", 1)
    constraints = constraints_for(corpus)
    value, grad = Objective(corpus, features, loss=loss, clamp=clamp, constraints=constraints)(w)
    want, want_grad = summed(brute.loss_of, corpus, features, w, loss, clamp, constraints)
    assert value == pytest.approx(want, rel=1e-11)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-9, atol=1e-10)
    assert value != pytest.approx(Objective(corpus, features, loss=loss, clamp=clamp)(w)[0], rel=1e-3)


@pytest.mark.parametrize("n_labels, n_classes", [(1, 1), (3, 1), (9, 3), (17, 1)])
@pytest.mark.parametrize("loss, clamp", OTHERS)
def test_batched_equals_log_form(loss, clamp, n_labels, n_classes):
    """Many sequences of lengths up to 30, several batches and shards; the same bits with three threads."""
    rng = np.random.default_rng(n_labels)
    lengths = tuple(rng.integers(0, 30, 150))
    corpus = random_corpus(rng, lengths, n_labels, 40, n_classes, valued=True, weighted=True)
    features, w = random_model(rng, corpus, n_labels, 40, size=0.3, all_states=n_labels > 1)
    objective = Objective(corpus, features, loss=loss, clamp=clamp, batch_tokens=200)
    value, grad = objective(w)
    assert not any(work.flags.any() for work, _ in objective._buffers), (
        "the log form was used: nothing is compared"
    )
    want, want_grad = summed(log_form, corpus, features, w, loss, clamp)
    assert value == pytest.approx(want, rel=1e-10)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-7, atol=1e-10 * max(1.0, abs(want_grad).max()))
    threads = Objective(corpus, features, loss=loss, clamp=clamp, batch_tokens=200, n_threads=3)
    assert threads._packing.n_shards > 1
    other_value, other_grad = threads(w)
    assert other_value == value
    np.testing.assert_array_equal(other_grad, grad)


# ---- special cases


def test_single_tokens_have_one_loss_each_way():
    corpus, features, w = case("weights")
    corpus = corpus._replace(
        seq_ptr=np.arange(corpus.n_tokens + 1), seq_weight=np.linspace(0, 2, corpus.n_tokens)
    )
    for scale in ("log", "exp"):
        value, grad = Objective(corpus, features, loss=scale)(w)
        other, other_grad = Objective(corpus, features, loss="pointwise-" + scale)(w)
        assert other == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(other_grad, grad, rtol=1e-10, atol=1e-12)


def test_without_edge_weights_the_log_losses_agree():
    corpus, features, w = case("classes")
    w[features.n_node :] = 0.0
    value, grad = Objective(corpus, features)(w)
    other, other_grad = Objective(corpus, features, loss="pointwise-log")(w)
    assert other == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other_grad[: features.n_node], grad[: features.n_node], rtol=1e-10, atol=1e-12)
    assert abs(other_grad - grad).max() > 0.1, "the gradients by the edge weights should differ"


# ---- extreme scores


@pytest.mark.parametrize("name", ["plain", "everything"])
@pytest.mark.parametrize("size", [100.0, 1e3, 1e5])
@pytest.mark.parametrize("loss", LOSSES[1:])
def test_huge_weights(name, size, loss):
    """u of thousands of nats: finite with a clamp, and what the log form says."""
    corpus, features, w = case(name, size=size)
    clamp = 40.0 if loss.endswith("exp") else None
    objective = Objective(corpus, features, loss=loss, clamp=clamp)
    value, grad = objective(w)
    assert objective.largest_u > 100.0
    assert np.isfinite(value) and np.isfinite(grad).all()
    want, want_grad = summed(log_form, corpus, features, w, loss, clamp)
    assert value == pytest.approx(want, rel=1e-9)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-6, atol=1e-9 * abs(want_grad).max())


def improbable(u):
    """Sequences of 3 tokens; in the middle one of five,
    the gold label of token 1 has probability near exp(-u).
    """
    labels = np.tile([0, 1, 2], 5)
    attr = np.tile([0, 1, 2], 5)
    attr[7] = 3
    corpus = make_corpus(np.arange(0, 16, 3), np.arange(16), attr, labels=labels)
    features, w = random_model(
        np.random.default_rng(5), corpus, 3, 4, size=0.5, all_states=True, all_transitions=True
    )
    w[features.node_ptr[3] + 1] = -u
    return corpus, features, w


@pytest.mark.parametrize("loss", LOSSES[1:])
@pytest.mark.parametrize("u", [200.0, 240.0, 290.0, 600.0, 3000.0])
def test_one_label_all_but_impossible(loss, u):
    """From 230 nats on the pointwise losses leave the scaled form, at 300 all do;
    nothing shows at the seams.
    """
    corpus, features, w = improbable(u)
    exponential = loss.endswith("exp")
    log_scale = u if exponential else 0.0
    objective = Objective(corpus, features, loss=loss, log_scale=log_scale)
    value, grad = objective(w)
    flags = objective._buffers[0][0].flags
    assert flags.sum() == (u > (230.0 if loss.startswith("pointwise") else 300.0))
    want, want_grad = summed(log_form, corpus, features, w, loss, None, log_scale=log_scale)
    assert value == pytest.approx(want, rel=1e-11)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-9, atol=1e-12 * abs(grad).max())
    assert objective.largest_u == pytest.approx(u, abs=4.0)
    if exponential:
        assert objective.log_value(w) == pytest.approx(log_scale + math.log(value), rel=1e-13)
        plain_value, plain_grad = Objective(corpus, features, loss=loss)(w)
        assert plain_value == (np.inf if u > 500 else pytest.approx(value * math.exp(u), rel=1e-9))
        assert np.isfinite(plain_grad).all()


@pytest.mark.parametrize("loss", LOSSES[1:])
def test_unreachable_states_with_infinite_beta(loss):
    """Label 1 cannot be reached, and its beta grows by exp(200) a step: inf * 0 must not appear."""
    corpus = make_corpus([0, 12], np.arange(13), [0] + [1] * 11, labels=np.zeros(12, np.int32))
    features, _ = random_model(np.random.default_rng(0), corpus, 2, 2, all_states=True, all_transitions=True)
    constraints = Constraints(
        np.array([[True, False], [True, True]]), np.array([True, False]), np.ones(2, bool)
    )
    w = np.zeros(features.n_features)
    w[features.node_ptr[1]] = -200.0
    objective = Objective(corpus, features, loss=loss, constraints=constraints)
    value, grad = objective(w)
    assert not objective._buffers[0][0].flags.any()
    assert value == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(grad, 0.0, atol=1e-12)


@pytest.mark.parametrize("u", [100.0, 900.0])
def test_a_sequence_of_weight_zero_says_nothing(u):
    corpus, features, w = improbable(u)
    weight = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    for loss in LOSSES[1:]:
        objective = Objective(corpus._replace(seq_weight=weight), features, loss=loss)
        value, grad = objective(w)
        assert np.isfinite(value) and np.isfinite(grad).all()
        assert objective.log_value(w) == pytest.approx(math.log(value), rel=1e-12)
        assert 0.0 < objective.largest_u < 10.0


def test_a_batch_of_nothing():
    corpus = random_corpus(np.random.default_rng(0), lengths=())
    features, w = random_model(np.random.default_rng(0), random_corpus(np.random.default_rng(0)))
    for loss in LOSSES[1:]:
        value, grad = Objective(corpus, features, c2=0.5, loss=loss)(w)
        assert value == pytest.approx(0.5 * w @ w)
        np.testing.assert_allclose(grad, w)


# ---- what else is promised


def test_with_loss_shares_and_disturbs_nothing():
    corpus, features, w = case("everything")
    objective = Objective(corpus, features, c2=0.2)
    value, grad = objective(w)
    other = objective.with_loss("pointwise-exp", 3.0)
    alone = Objective(corpus, features, c2=0.2, loss="pointwise-exp", clamp=3.0)(w)
    got = other(w)
    assert got[0] == alone[0]
    np.testing.assert_array_equal(got[1], alone[1])
    for log in (objective, other.with_loss("log")):
        again, again_grad = log(w)
        assert again == value
        np.testing.assert_array_equal(again_grad, grad)
    assert other.n_evaluations == 1


def test_log_scale_scales_everything():
    corpus, features, w = case("plain")
    for loss in ("exp", "pointwise-exp"):
        value, grad = Objective(corpus, features, c2=0.7, loss=loss)(w)
        scaled, scaled_grad = Objective(corpus, features, c2=0.7, loss=loss, log_scale=50.0)(w)
        assert scaled == pytest.approx(value * math.exp(-50.0), rel=1e-12)
        np.testing.assert_allclose(scaled_grad, grad * math.exp(-50.0), rtol=1e-10)


def test_refusals():
    corpus, features, _ = case("plain")
    for arguments, message in [
        (
            {"loss": "hinge"},
            "loss: expected one of 'log', 'exp', 'pointwise-log', 'pointwise-exp', got 'hinge'",
        ),
        (
            {"loss": "log", "clamp": 3.0},
            "clamp: belongs to the losses exp and pointwise-exp, got 3.0 with loss='log'",
        ),
        ({"loss": "pointwise-log", "log_scale": 3.0}, "log_scale: belongs to"),
        ({"loss": "exp", "clamp": 0.0}, "clamp: expected a finite number > 0"),
        ({"loss": "exp", "clamp": math.nan}, "clamp: expected a finite number > 0"),
        ({"loss": "exp", "log_scale": math.inf}, "log_scale: expected a finite number"),
    ]:
        with pytest.raises(ValueError, match=message.replace("(", r"\(")):
            Objective(corpus, features, **arguments)
    with pytest.raises(ValueError, match="sequence 0: expected a path of finite score"):
        Objective(corpus, features, loss="exp")(np.full(features.n_features, 1e308))
