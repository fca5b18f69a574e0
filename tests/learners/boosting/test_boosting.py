"""Boosting for label sequences: every quantity by enumeration, whole runs against a naive one,
and what a user may do.
"""

import itertools
import math

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model

from crfbook import brute
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus, take_sequences
from crfbook.data.features import FeatureSet, observed
from crfbook.learners.boosting import learner as boosting
from crfbook.learners.boosting.learner import boost, lay_out_boosting
from crfbook.learners.boosting.rounds import (
    DRIFTED,
    INSTANCE,
    PAUSED,
    ROUNDS,
    SHARE,
    TOTAL,
    best_step,
    boost_rounds_plain,
    least_sum,
    split_step,
    tighten,
)

LENGTHS = (3, 0, 1, 4, 2, 4)
CORPORA = {
    "plain": {},
    "valued": {"valued": True},
    "weighted": {"weighted": True},
    "classes": {"n_classes": 3},
    "all": {"n_classes": 2, "valued": True, "weighted": True},
}


def feature_counts(corpus, features, i, path):
    """S_k(x_i, path) of every feature (F,), from its definition."""
    return place_counts(corpus, features, i, path).sum(0)


def place_counts(corpus, features, i, path):
    """What every token adds to S_k(x_i, path), (T, F)."""
    rows = np.zeros((len(path), features.n_features))
    first = corpus.seq_ptr[i]
    for t, y in enumerate(path):
        out = rows[t]
        for j in range(corpus.attr_ptr[first + t], corpus.attr_ptr[first + t + 1]):
            a = corpus.attr_idx[j]
            for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
                if features.node_label[k] == y:
                    out[k] += corpus.attr_val[j] if len(corpus.attr_val) else 1.0
        c = corpus.edge_class[first + t]
        for b in corpus.class_attr[corpus.class_ptr[c] : corpus.class_ptr[c + 1]] if t else ():
            for k in range(features.edge_ptr[b], features.edge_ptr[b + 1]):
                if (features.edge_prev[k], features.edge_next[k]) == (path[t - 1], y):
                    out[features.n_node + k] += 1.0
    return rows


class Enumerated:
    """phi_i(y) = S(x_i, y) - S(x_i, y_i) for all y that the constraints allow,
    and what the paper makes of it.
    """

    def __init__(self, corpus, features, constraints=None):
        self.phi, self.weight, self.gains, self.losses_of = [], [], [], []
        n_labels = features.n_labels
        for i, (node, edge, classes) in enumerate(
            chains_of(corpus, features, np.zeros(features.n_features), constraints)
        ):
            paths, scores = brute.all_scores(node, edge, classes) if len(node) else ([()], [0.0])
            gold = corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]
            of_gold = feature_counts(corpus, features, i, gold)
            kept = [
                feature_counts(corpus, features, i, y) - of_gold
                for y, s in zip(paths, scores, strict=True)
                if s > -np.inf and tuple(y) != tuple(gold)
            ]
            places = [
                place_counts(corpus, features, i, y) - place_counts(corpus, features, i, gold)
                for y, s in zip(paths, scores, strict=True)
                if s > -np.inf and tuple(y) != tuple(gold)
            ]
            self.gains.append(
                np.array([np.maximum(d, 0).sum(0) for d in places]).reshape(-1, features.n_features)
            )
            self.losses_of.append(
                np.array([np.maximum(-d, 0).sum(0) for d in places]).reshape(-1, features.n_features)
            )
            self.phi.append(np.array(kept).reshape(-1, features.n_features))
            self.weight.append(corpus.seq_weight[i] if len(corpus.seq_weight) else 1.0)
        counts = [
            feature_counts(corpus, features, i, y)
            - feature_counts(corpus, features, i, corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]])
            for i, T in enumerate(np.diff(corpus.seq_ptr))
            for y in itertools.product(range(n_labels), repeat=T)
        ]
        none = np.zeros(features.n_features)  # of every sequence, over the allowed labellings: all, here
        self.most, self.less = (
            [np.max(part, 0, initial=0.0) + none for part in parts] for parts in (self.gains, self.losses_of)
        )
        self.low, self.high = np.min(counts, 0), np.max(counts, 0)  # over all labellings, allowed or not

    def losses(self, w):
        """Loss of every sequence (S,)."""
        return np.array(
            [weight * np.exp(phi @ w).sum() for phi, weight in zip(self.phi, self.weight, strict=True)]
        )

    def means(self, w):
        """m_k = sum_i D(i) E_{pi_i}[phi_i] (F,): derivative of the log loss."""
        total = sum(
            weight * (np.exp(phi @ w) @ phi) for phi, weight in zip(self.phi, self.weight, strict=True)
        )
        return total / self.losses(w).sum()

    def gained_and_lost(self, w):
        """(P, Q), each (F,), in units of 1 (not of the loss)."""
        share = [weight * np.exp(phi @ w) for phi, weight in zip(self.phi, self.weight, strict=True)]
        return tuple(
            sum(s @ part for s, part in zip(share, parts, strict=True))
            for parts in (self.gains, self.losses_of)
        )

    def split_decrease(self, w, k, D):
        """What the bound of every sequence by itself, gains and losses apart,
        promises of a step D of feature k.
        """
        total = 0.0
        for phi, weight, gains, losses, most, less in zip(
            self.phi, self.weight, self.gains, self.losses_of, self.most, self.less, strict=True
        ):
            share = weight * np.exp(phi @ w)
            total -= share @ gains[:, k] * np.expm1(D * most[k]) / most[k] if most[k] else 0.0
            total -= share @ losses[:, k] * np.expm1(-D * less[k]) / less[k] if less[k] else 0.0
        return total

    def best(self, w, cap):
        """(feature, step, gain) by trying all."""
        found = [
            best_step(m, low, high, cap)
            for m, low, high in zip(self.means(w), self.low, self.high, strict=True)
        ]
        k = int(np.argmax([gain for _, gain in found]))
        return k, *found[k]


def problem(seed, kind, lengths=LENGTHS, **options):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths, **CORPORA[kind])
    features, w = random_model(rng, corpus, **{"size": 0.4, **options})
    return corpus, features, w


def first_state(corpus, features, w=None, cap=1.0, constraints=None):
    run = boosting._Boosting(corpus, features, w, constraints, None, cap, 1e-6, 0)
    run.begin()
    return run


def means_of(run):
    plus, minus = run.tables.sums[run.data.slot].T
    return (plus - minus) / run.tables.number[TOTAL]


# ---- the quantities of section 3.3


@pytest.mark.parametrize("kind", CORPORA)
@pytest.mark.parametrize("options", [{}, {"all_states": True, "all_transitions": True}])
def test_loss_derivatives_and_extremes_are_those_of_enumeration(kind, options):
    corpus, features, w = problem(1, kind, **options)
    run, true = first_state(corpus, features, w), Enumerated(corpus, features)
    assert run.objective == pytest.approx(np.log(true.losses(w).sum()), rel=1e-12)
    mass = np.exp(run.tables.log_mass - run.objective)
    np.testing.assert_allclose(mass, true.losses(w) / true.losses(w).sum(), rtol=1e-10)  # D(i)
    np.testing.assert_allclose(
        means_of(run)[true.low < true.high], true.means(w)[true.low < true.high], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(run.index.low, true.low, atol=1e-12)
    np.testing.assert_allclose(run.index.high, true.high, atol=1e-12)


def test_derivative_of_the_log_loss_by_differences():
    corpus, features, w = problem(2, "all")
    run = first_state(corpus, features, w)
    for k, m in enumerate(means_of(run)):
        near = []
        for h in (1e-5, -1e-5):
            moved = w.copy()
            moved[k] += h
            near.append(first_state(corpus, features, moved).objective)
        assert m == pytest.approx((near[0] - near[1]) / 2e-5, abs=1e-8)


def test_constraints_and_label_sets_are_obeyed():
    rng = np.random.default_rng(3)
    allowed = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
    sets = np.array([[1, 1, 1], [1, 1, 0]], bool)
    constraints = Constraints(allowed, np.array([1, 1, 0], bool), np.ones(3, bool))
    corpus = random_corpus(rng, LENGTHS)
    corpus = corpus._replace(labels=np.tile(np.array([0, 1], np.int32), 20)[: corpus.n_tokens])
    features = observed(corpus, 3, 7)
    run, true = (
        first_state(corpus, features, constraints=constraints),
        Enumerated(corpus, features, constraints),
    )
    w = np.zeros(features.n_features)
    assert run.objective == pytest.approx(np.log(true.losses(w).sum()), rel=1e-12)
    np.testing.assert_allclose(
        means_of(run)[true.low < true.high], true.means(w)[true.low < true.high], atol=1e-12
    )
    result = boost(corpus, features, constraints=constraints, max_iterations=40)
    assert result.objective == pytest.approx(np.log(true.losses(result.w).sum()), rel=1e-12)
    limited = corpus._replace(label_set=np.ones(corpus.n_tokens, np.int32))
    two = boost(limited, features, constraints=constraints._replace(label_sets=sets), max_iterations=0)
    assert two.objective == pytest.approx(np.log(sum(2.0**T - 1 for T in LENGTHS)))  # two labels a token


@pytest.mark.parametrize("kind", CORPORA)
def test_ratio_instance_bound_global_bound_in_this_order(kind):
    corpus, features, w = problem(4, kind)
    true = Enumerated(corpus, features)
    losses, total, means = true.losses(w), true.losses(w).sum(), true.means(w)
    run = first_state(corpus, features, w)
    for k in range(features.n_features):
        parts = [
            (
                mass,
                weight * (np.exp(phi @ w) @ phi[:, k]),
                phi[:, k].min(initial=0.0),
                phi[:, k].max(initial=0.0),
            )
            for mass, phi, weight in zip(losses, true.phi, true.weight, strict=True)
        ]

        def instance(D, parts=parts):
            return sum(
                mass
                if low == high
                else ((high * mass - moment) * np.exp(D * low) + (moment - low * mass) * np.exp(D * high))
                / (high - low)
                for mass, moment, low, high in parts
            )

        span = true.high[k] - true.low[k]
        for D in np.linspace(-3, 3, 13) if span else ():
            moved = w.copy()
            moved[k] += D
            a = (means[k] - true.low[k]) / span
            globally = (1 - a) * np.exp(D * true.low[k]) + a * np.exp(D * true.high[k])
            assert true.losses(moved).sum() <= instance(D) * (1 + 1e-10)
            assert instance(D) <= total * globally * (1 + 1e-10)
        step, gain = best_step(means[k], true.low[k], true.high[k], 1.0)
        if gain > 1e-9:  # the kernel that minimises it, from arrays and from the state of a run
            limit = np.sign(step)
            mass, moment, low, high = np.array(parts).T.copy()
            span = np.where(high > low, high - low, np.inf)
            c, d = (high * mass - moment) / span, (moment - low * mass) / span
            D, f = least_sum(total - c.sum() - d.sum(), len(parts), c, d, low, high, step, limit)
            assert f == pytest.approx(instance(D), rel=1e-12)
            assert all(f <= instance(other) * (1 + 1e-12) for other in np.linspace(0, limit, 200))
            D2, gain2 = tighten(k, step, 1.0, INSTANCE, run.data, run.index, run.tables, run.work)
            assert (D2, -gain2) == (
                pytest.approx(D, rel=1e-5, abs=1e-7),
                pytest.approx(math.log(f / total), abs=1e-10),
            )


def test_closed_form_minimises_the_bound():
    rng = np.random.default_rng(5)
    for _ in range(300):
        low, high = -rng.choice([0.0, 1.0, 2.0, 7.5, 300.0]), rng.choice([0.0, 1.0, 3.0, 40.0])
        if low == high:
            continue
        m = low + (high - low) * rng.random()
        for cap in (math.inf, 1.0, 0.01):
            step, gain = best_step(m, low, high, cap)
            a = (m - low) / (high - low)

            def bound(D, a=a, low=low, high=high):
                return (1 - a) * np.exp(D * low) + a * np.exp(D * high)

            if math.isinf(cap) and (low == 0 or high == 0):
                assert (step, gain) == (0.0, 0.0)
                continue
            assert abs(step) <= cap
            assert math.exp(-gain) == pytest.approx(bound(step), rel=1e-10)
            assert gain >= 0
            assert all(
                bound(step) <= bound(D) * (1 + 1e-12) for D in step + np.array([-1e-3, 1e-3]) if abs(D) <= cap
            )


def test_at_the_ends_of_its_range_the_step_is_finite_and_the_bound_holds():
    for m, far in ((-2.0, 3.0), (3.0, -2.0)):  # every sequence that counts lies at one end
        step, gain = best_step(m, -2.0, 3.0, math.inf)
        assert math.isfinite(step) and step * m < 0 and abs(step * far) < 30
        assert math.exp(-gain) >= math.exp(step * m)  # what happens if phi = m always


# ---- whole runs


@pytest.mark.parametrize("kind", CORPORA)
@pytest.mark.parametrize("cap", [math.inf, 1.0])
def test_a_run_is_the_naive_one_round_by_round(kind, cap):
    corpus, features, _ = problem(6, kind)
    true = Enumerated(corpus, features)
    result = boost(corpus, features, bound="global", cap=cap, max_iterations=60, tol=0.0)
    w = np.zeros(features.n_features)
    for r in range(result.n_iter):
        before = np.log(true.losses(w).sum())
        k, step, gain = true.best(w, cap)
        if result.state["feature"][r] != k:  # a tie but for rounding
            k = result.state["feature"][r]
            step, other = best_step(true.means(w)[k], true.low[k], true.high[k], cap)
            assert other == pytest.approx(gain, rel=1e-9)
        assert result.state["step"][r] == pytest.approx(step, rel=1e-8)
        assert result.state["gain"][r] == pytest.approx(gain, rel=1e-8)
        w[k] += result.state["step"][r]
        after = np.log(true.losses(w).sum())
        assert result.state["log_loss"][r] == pytest.approx(after, rel=1e-11)
        assert after <= before - gain + 1e-11  # the bound, every round
    np.testing.assert_allclose(result.w, w, rtol=1e-12)
    assert result.n_iter == 60 or result.status in ("converged", "rounding floor")


@pytest.mark.parametrize("kind", CORPORA)
def test_a_split_run_is_the_naive_one_round_by_round(kind):
    corpus, features, _ = problem(22, kind)
    true = Enumerated(corpus, features)
    run = first_state(corpus, features)
    most, less = run.index.most, -run.index.low
    assert np.all(np.max([gain.max(0, initial=0.0) for gain in true.gains], 0) <= most + 1e-12)
    assert np.allclose(np.max([loss.max(0, initial=0.0) for loss in true.losses_of], 0), less, atol=1e-12)
    for b in range(
        features.n_edge_attrs
    ):  # most of a pair of different labels is a bound that need not be reached
        for e in range(run.index.edge_entry_ptr[b], run.index.edge_entry_ptr[b + 1]):
            row = np.arange(features.edge_ptr[b], features.edge_ptr[b + 1])
            row = row[features.edge_prev[row] != features.edge_next[row]] + features.n_node
            true.most[run.index.edge_entry_seq[e]][row] = run.index.entry_other[e]
    result = boost(corpus, features, bound="split", max_iterations=60, tol=0.0)
    w = np.zeros(features.n_features)
    for r in range(result.n_iter):
        before, (plus, minus) = true.losses(w).sum(), true.gained_and_lost(w)
        if before < 1e-3:
            break
        found = [split_step(*four, 1.0) for four in zip(plus, minus, most, less, strict=True)]
        k = result.state["feature"][r]
        assert found[k][1] == pytest.approx(max(decrease for _, decrease in found), rel=1e-8)
        step, promised = result.state["step"][r], before * -np.expm1(-result.state["gain"][r])
        steps = (step, step - 1e-4, step + 1e-4)
        if max(most[k], less[k]) <= 1.0:  # then the closed form is all there is
            assert (step, promised) == (
                pytest.approx(found[k][0], rel=1e-7),
                pytest.approx(found[k][1], rel=1e-7),
            )
        else:
            assert promised >= found[k][1] * (1 - 1e-9)
            decreases = [true.split_decrease(w, k, D) for D in steps]
            assert decreases[0] == pytest.approx(promised, rel=1e-7)
            assert all(
                decreases[0] >= other - 1e-9 for other, D in zip(decreases, steps, strict=True) if abs(D) <= 1
            )
        w[k] += step
        after = true.losses(w).sum()
        assert result.state["log_loss"][r] == pytest.approx(np.log(after), rel=1e-10)
        assert after <= (before - promised) * (1 + 1e-10)  # the bound, every round
    assert r > 10


@pytest.mark.parametrize("kind", ["plain", "all"])
def test_the_split_bound_holds_everywhere_and_its_step_minimises_it(kind):
    corpus, features, w = problem(23, kind, size=1.0)
    true, run = Enumerated(corpus, features), first_state(corpus, features)
    (plus, minus), total = true.gained_and_lost(w), true.losses(w).sum()
    np.testing.assert_allclose((plus - minus) / total, true.means(w), atol=1e-12)
    for k in range(features.n_features):
        more, less = run.index.most[k], -run.index.low[k]

        def bound(D, k=k, more=more, less=less):
            gain = plus[k] * np.expm1(D * more) / more if more else 0.0
            return total + gain + (minus[k] * np.expm1(-D * less) / less if less else 0.0)

        for D in np.linspace(-3, 3, 13):
            moved = w.copy()
            moved[k] += D
            assert true.losses(moved).sum() <= bound(D) * (1 + 1e-10)
        for cap in (0.05, 1.0):
            step, decrease = split_step(plus[k], minus[k], more, less, cap)
            assert abs(step) <= cap and total - decrease == pytest.approx(bound(step), rel=1e-12)
            assert all(bound(step) <= bound(D) + 1e-12 for D in np.linspace(-cap, cap, 101))


@pytest.mark.parametrize("kind", CORPORA)
def test_tighter_steps_keep_their_bound_and_reach_the_same_minimum(kind):
    corpus, features, _ = problem(7, kind)
    true = Enumerated(corpus, features)
    one = boost(corpus, features, bound="global", tol=1e-9, max_iterations=20_000, report_every=1000)
    two = boost(corpus, features, bound="instance", tol=1e-9, max_iterations=20_000, report_every=1000)
    path = np.concatenate([[np.log(true.losses(np.zeros(features.n_features)).sum())], two.state["log_loss"]])
    fall, sound = np.diff(path), path[1:] > -2.0  # below, the rounding of log Z shows
    assert np.all(fall[sound] <= -two.state["gain"][sound] + 1e-11)
    if one.status == two.status == "converged":
        assert one.objective == pytest.approx(two.objective, abs=1e-4)
        assert two.n_iter <= one.n_iter
    assert two.objective == pytest.approx(
        np.log(true.losses(two.w).sum()), abs=1e-9 if two.objective > -8 else 0.01
    )


def long_corpus(rng, lengths):
    """Sequences of very different lengths: the short ones are inactive at first."""
    corpus = random_corpus(rng, lengths, n_attrs=30)
    return corpus, observed(corpus, 3, 30, 1)


def exact(corpus, features, w):
    """(log loss, m) by one pass with the log-likelihood alone."""
    from crfbook.chain.objective import Objective

    losses, grads = [], []
    for i in range(corpus.n_sequences):
        value, grad = Objective(take_sequences(corpus, [i]), features)(w)
        losses.append(value + np.log(-np.expm1(-value)) if value > 0 else -np.inf)
        grads.append(grad / -np.expm1(-value) if value > 0 else 0.0 * grad)
    top = max(losses)
    share = np.exp(np.array(losses) - top)
    return top + np.log(share.sum()), (share / share.sum()) @ np.array(grads)


@pytest.mark.parametrize("bound", boosting.BOUNDS)
def test_sums_kept_by_difference_are_those_of_a_fresh_start_and_inactive_ones_return(bound):
    rng = np.random.default_rng(8)
    corpus, features = long_corpus(rng, (120, 70, 3, 30, 5, 1, 55, 8))
    run = first_state(corpus, features)
    assert run.tables.inactive.sum() == 7  # all but the longest
    run.kind = boosting.BOUNDS[bound]
    anchors = []
    for target in (1, 10, 100, 400, 1500):
        while run.iteration < target:
            assert run.go_on(target) in (PAUSED, DRIFTED)
            anchors.append(run.anchor["count"][ROUNDS])
        log_loss, means = exact(corpus, features, run.tables.w)
        share, usable = 2 * run.tables.number[SHARE], run.index.low < run.index.high
        assert run.objective == pytest.approx(log_loss, abs=share)
        np.testing.assert_allclose(means_of(run)[usable], means[usable], atol=120 * share)
        fresh = first_state(corpus, features, run.tables.w)
        assert fresh.objective == pytest.approx(log_loss, abs=1e-9)
        filled = np.diff(corpus.seq_ptr) > 0
        truth = fresh.tables.log_mass[filled]
        inactive = run.tables.inactive[filled] == 1
        assert np.all(
            truth[inactive] <= run.tables.ceiling[filled][inactive] + 1e-9
        )  # the ceilings are ceilings
    assert run.tables.inactive.sum() < 7
    assert len(set(anchors)) > 1  # the drift rule spoke


def test_few_forward_backwards_while_one_sequence_rules():
    corpus, features = long_corpus(np.random.default_rng(9), (200, *[20] * 40))
    result = boost(corpus, features, max_iterations=50)
    assert (
        result.n_evaluations < 41 + 1 + 2 * 50 + 10
    )  # first pass, its wakening, the rounds (and fresh sums)


def test_resume_is_bit_for_bit_and_leaves_the_state_alone():
    corpus, features = long_corpus(np.random.default_rng(10), (90, 40, 3, 20, 5))
    whole = boost(corpus, features, max_iterations=300, report_every=7)
    for stop in (0, 1, 50, 151, 299):
        part = boost(corpus, features, max_iterations=stop)
        kept = {name: array.copy() for name, array in part.state.items()}
        rest = boost(corpus, features, max_iterations=300, report_every=100, state=part.state)
        assert all(np.array_equal(kept[name], part.state[name]) for name in kept)
        for name in ("feature", "step", "gain", "log_loss"):
            assert np.array_equal(rest.state[name], whole.state[name])
        assert np.array_equal(rest.w, whole.w)
        assert rest.n_evaluations == whole.n_evaluations
        assert [s.iteration for s in rest.history][-1] == 300
    with pytest.raises(ValueError, match="anchor_w"):
        boost(corpus, features, state={})


def test_what_the_callback_sees_and_stops():
    corpus, features = long_corpus(np.random.default_rng(11), (20, 10))
    seen = []

    def callback(step, w):
        assert not w.flags.writeable
        seen.append((step, w.copy()))
        return step.iteration >= 30

    result = boost(corpus, features, max_iterations=100, report_every=10, callback=callback)
    assert result.status == "stopped by callback"
    assert [s.iteration for s, _ in seen] == [10, 20, 30] == [s.iteration for s in result.history]
    assert np.array_equal(seen[-1][1], result.w)
    assert all(s.n_active == np.count_nonzero(w) <= s.iteration for s, w in seen)
    assert seen[0][0].violation == pytest.approx(1 - math.exp(-result.state["gain"][9]))
    assert boost(corpus, features, max_iterations=25, report_every=10).history[-1].iteration == 25


def test_an_interrupt_keeps_whole_rounds():
    corpus, features = long_corpus(np.random.default_rng(12), (20, 10))

    def callback(step, w):
        if step.iteration == 20:
            raise KeyboardInterrupt

    result = boost(corpus, features, max_iterations=100, report_every=10, callback=callback)
    assert (result.status, result.n_iter, len(result.state["feature"])) == ("interrupted", 20, 20)
    again = boost(corpus, features, max_iterations=100, state=result.state)
    assert np.array_equal(again.w, boost(corpus, features, max_iterations=100).w)


@pytest.mark.parametrize("resumed", [False, True])
def test_an_interrupt_before_the_first_round_gives_the_start(resumed, monkeypatch):
    """Of a state whose rounds are being repeated: what that state held."""
    corpus, features = long_corpus(np.random.default_rng(12), (20, 10))
    part = boost(corpus, features, max_iterations=30)
    w, state = part.w, part.state if resumed else None

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(boosting.rounds, "boost_rounds" if resumed else "visit", interrupt)
    stopped = boost(corpus, features, None if resumed else w, state=state, max_iterations=100)
    monkeypatch.undo()
    assert stopped.status == "interrupted" and np.isnan(stopped.objective) and stopped.history == []
    assert np.array_equal(stopped.w, w) and stopped.n_iter == (30 if resumed else 0)
    if resumed:
        again = boost(corpus, features, max_iterations=100, state=stopped.state)
        assert np.array_equal(again.w, boost(corpus, features, max_iterations=100).w)
    else:
        assert stopped.state == {}


# ---- odd data


def test_no_round_at_all():
    corpus, features, w = problem(13, "plain")
    result = boost(corpus, features, w, max_iterations=0)
    assert np.array_equal(result.w, w) and result.w is not w
    assert result.objective == pytest.approx(np.log(Enumerated(corpus, features).losses(w).sum()))
    assert (result.status, result.n_iter, result.history) == ("max_iterations", 0, [])


def test_a_single_sequence_and_single_tokens():
    for lengths in ((4,), (1,), (1, 1, 1)):
        corpus, features, _ = problem(21, "plain", lengths, all_states=True)
        true = Enumerated(corpus, features)
        result = boost(corpus, features, max_iterations=20)
        assert result.objective == pytest.approx(np.log(true.losses(result.w).sum()), abs=1e-6)


def test_nothing_to_lose():
    for corpus in (make_corpus([0], [0], []), make_corpus([0, 0, 0], [0], [])):
        features = FeatureSet(
            2,
            0,
            1,
            *(np.zeros(n, t) for n, t in ((1, int), (0, np.int32), (2, int), (0, np.int32), (0, np.int32))),
        )
        result = boost(corpus, features, max_iterations=5)
        assert (result.status, result.n_iter) == ("rounding floor", 0)
        assert result.objective == pytest.approx(math.log(1e-10))  # of one token: log 0 is no number to keep
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 0], labels=[0, 0])  # one label only: p = 1
    result = boost(corpus, observed(corpus, 1, 1), max_iterations=5)
    assert result.status == "rounding floor" and result.objective == pytest.approx(math.log(2e-10))


def test_separable_data_end_at_the_rounding_floor_with_a_usable_model():
    corpus = make_corpus([0, 3, 5], [0, 1, 2, 3, 4, 5], [0, 1, 0, 1, 0], labels=[0, 1, 0, 1, 0])
    features = observed(corpus, 2, 2)
    result = boost(corpus, features, max_iterations=None, tol=0.0)
    assert result.status == "rounding floor" and np.isfinite(result.w).all()
    assert result.objective < math.log(1e-8)
    strict = boost(corpus, features, cap=math.inf, max_iterations=100)  # both attributes have high = 0
    assert strict.status == "converged" and not strict.w[:2].any()


def test_label_noise_and_long_sequences_do_not_overflow():
    rng = np.random.default_rng(15)
    corpus = random_corpus(rng, (3000, 10, 2000, 4), n_attrs=5)  # labels at random; 3^3000 is beyond float64
    features = observed(corpus, 3, 5)
    result = boost(corpus, features, max_iterations=300)
    assert 1000 < result.objective < 3000 * math.log(3)
    assert np.isfinite(result.state["log_loss"]).all() and np.all(np.diff(result.state["log_loss"]) <= 1e-9)


def test_a_start_far_away_needs_logarithms_and_comes_back():
    corpus, features, w = problem(16, "plain")
    result = boost(corpus, features, 1000.0 * w, max_iterations=1000)
    assert np.all(np.diff(result.state["log_loss"]) <= 1e-6)
    assert result.objective < boost(corpus, features, 1000.0 * w, max_iterations=0).objective - 500
    assert np.isfinite(result.w).all()


def test_sequences_of_weight_zero_do_not_count_but_have_a_say_in_the_extremes():
    corpus, features, _ = problem(17, "plain")
    weight = np.array([1.0, 1.0, 0.0, 2.0, 0.0, 1.0])
    zero = boost(corpus._replace(seq_weight=weight), features, max_iterations=30)
    assert zero.objective == pytest.approx(np.log(Enumerated(corpus, features).losses(zero.w) @ weight))


def test_duplicates_of_an_attribute_add_up():
    twice = make_corpus([0, 2], [0, 3, 4], [0, 0, 1, 1], labels=[0, 1])
    valued = make_corpus([0, 2], [0, 2, 3], [0, 1, 1], attr_val=[2.0, 1.0, 1.0], labels=[0, 1])
    features = observed(twice, 2, 2, all_states=True)
    assert np.array_equal(
        boost(twice, features, max_iterations=20).w, boost(valued, features, max_iterations=20).w
    )


def test_ties_go_to_the_smallest_feature():
    corpus = make_corpus(
        [0, 1, 2], [0, 2, 4], [0, 1, 0, 1], labels=[0, 1]
    )  # attributes 0 and 1 are always together
    result = boost(corpus, observed(corpus, 2, 2), max_iterations=1)
    assert (
        result.n_iter == 0 and result.status == "converged"
    )  # the two sequences pull alike, in opposite directions
    corpus = make_corpus([0, 1, 2, 3], [0, 2, 4, 6], [0, 1, 0, 1, 0, 1], labels=[0, 1, 0])
    features = observed(corpus, 2, 2)
    # the global bound takes (0, 1), before (1, 1), its twin; the split bound (0, 0), which pulls alike, down
    for bound, k in (("global", 1), ("split", 0)):
        first = boost(corpus, features, bound=bound, max_iterations=1)
        assert first.state["feature"][0] == k
        assert np.array_equal(first.w, boost(corpus, features, bound=bound, max_iterations=1).w)


def test_extremes_of_pairs_are_exact_for_classes_in_runs():
    rng = np.random.default_rng(18)
    corpus = random_corpus(rng, (5, 5, 4, 2), n_classes=3, n_labels=2)
    features = observed(corpus, 2, 7, 3, all_transitions=True)
    _, index = lay_out_boosting(corpus, features, False)
    true = Enumerated(corpus, features)
    np.testing.assert_array_equal(index.low[features.n_node :], true.low[features.n_node :])
    np.testing.assert_array_equal(index.high[features.n_node :], true.high[features.n_node :])


BAD = [
    ({"max_iterations": -1}, "max_iterations"),
    ({"bound": "best"}, "'global', 'instance'"),
    ({"cap": 0}, "cap"),
    ({"cap": math.nan}, "cap"),
    ({"tol": -1}, "tol"),
    ({"report_every": 0}, "report_every"),
    ({"w0": np.zeros(2)}, "shape"),
]


@pytest.mark.parametrize("options, word", BAD, ids=[w for _, w in BAD])
def test_bad_arguments_are_one_sentence(options, word):
    corpus, features, _ = problem(19, "plain")
    with pytest.raises(ValueError, match=word) as error:
        boost(corpus, features, **options)
    assert "\n" not in str(error.value)


def test_bad_data_are_one_sentence():
    corpus, features, _ = problem(20, "plain")
    with pytest.raises(ValueError, match="sequence 0, token 1: expected a label"):
        boost(
            corpus._replace(
                labels=np.where(np.arange(corpus.n_tokens) == 1, -1, corpus.labels).astype(np.int32)
            ),
            features,
        )
    with pytest.raises(MemoryError, match="0.001 GB"):
        boost(random_corpus(np.random.default_rng(0), (50_000,)), features, memory_limit=1e6)
    with pytest.raises(ValueError, match=r"sequence \d: expected gold labels of finite score"):
        boost(corpus, features, np.full(features.n_features, 1e308))
    constraints = Constraints(np.zeros((3, 3), bool), np.ones(3, bool), np.ones(3, bool))
    with pytest.raises(ValueError, match="constraints"):
        boost(corpus, features, constraints=constraints)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["valued", "weighted", "all"])  # in others rounds tie
def test_the_readable_sister_does_the_same_rounds(name, seed):
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=(2, 0, 1, 4, 2, 4), **CORPORA[name])
    features, w = random_model(rng, corpus, size=0.3)
    result = boost(corpus, features, w, bound="global", max_iterations=12, tol=0.0)
    journal = boost_rounds_plain(12, 1.0, w, corpus, features)
    assert [k for k, _, _ in journal] == result.state["feature"].tolist()
    np.testing.assert_allclose([step for _, step, _ in journal], result.state["step"], rtol=0, atol=1e-9)
    np.testing.assert_allclose([gain for _, _, gain in journal], result.state["gain"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(w, result.w, rtol=0, atol=1e-9)
