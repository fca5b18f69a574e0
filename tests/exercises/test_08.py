"""Chapter 08: what its exercises say one will find."""

import numpy as np
import pytest

from crfbook import Encoder, brute, load_dataset
from crfbook.chain import inference
from crfbook.data.features import log_edge
from crfbook.learners.coordinate.descent import coordinate_descent
from studies import c08 as study


def test_exercise_1_about_five_thousand_trigrams():
    block = 53 + 54 * 53
    n = 14.2e6 / block - 1 - 26  # the constant test and the letters come first
    assert 4500 < n < 5500


@pytest.mark.parametrize("gold", [True, False])
def test_exercise_2_screening_by_doubt_is_tight(gold):
    """One pair gold at all occurrences, or never gold and the only rival: its gradient is the doubt."""
    p = np.random.default_rng(0).uniform(0.05, 0.95, 7)  # of that pair, at each occurrence
    doubt = (1 - p).sum() if gold else p.sum()  # the gold pair has what the only rival leaves
    assert abs((p - gold).sum()) == pytest.approx(doubt)


def test_exercise_3_half_to_two():
    for first, second in np.random.default_rng(1).uniform(0, 1, (200, 2)):
        screened = (1 - first) + (1 - second) <= 1.5
        assert screened == (0.5 <= first + second <= 2)


@pytest.fixture(scope="module")
def words():
    encoder = Encoder("ngrams_3")
    corpus = encoder.fit_transform(
        load_dataset("nettalk", "phonemes", source="builtin", verbose=False).train[:40]
    )
    return corpus, {"sizes": (encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs), "c1": 0.4, "c2": 0.1}


def test_exercise_4_label_and_pair_weights_apart_have_the_same_minimum(words):
    corpus, how = words
    whole, apart = (
        coordinate_descent(corpus, joint=joint, tol=1e-9, max_iterations=3000, **how)
        for joint in (True, False)
    )
    assert apart.objective == pytest.approx(whole.objective, abs=1e-6)
    assert apart.counts["screened"] > 0


def test_exercise_5_the_best_pronunciation_of_three_letters():
    """100 best readings by Viterbi with several paths a label, added by sound, agree with all readings."""
    at = study.set_up("letter_tests", 100)
    small, names = coordinate_descent(at.corpus, c1=1.0, max_iterations=10, **at.options), at.encoder.labels_
    node = inference.node_scores(at.held, small.features, small.w)
    edge = log_edge(small.features, small.w, at.held.class_ptr, at.held.class_attr)
    lengths = np.diff(at.held.seq_ptr)
    for i in np.flatnonzero(lengths == 3)[:3]:
        t = np.arange(at.held.seq_ptr[i], at.held.seq_ptr[i + 1])
        chain = node[t], edge, at.held.edge_class[t]
        sounds, total = {}, brute.log_z(*chain)
        for path, score in best_readings(*chain, 100):
            sound = "".join(names[y] for y in path).replace("-", "")
            sounds[sound] = sounds.get(sound, 0.0) + np.exp(score - total)
        wanted = {}
        paths = brute.all_paths(3, len(names))
        scores = node[t][np.arange(3), paths].sum(axis=1)
        for k in (1, 2):
            scores = scores + edge[at.held.edge_class[t[k]]][paths[:, k - 1], paths[:, k]]
        for k, score in enumerate(scores):
            sound = "".join(names[y] for y in paths[k]).replace("-", "")
            wanted[sound] = wanted.get(sound, 0.0) + np.exp(score - total)
        best = max(wanted, key=wanted.get)
        assert sum(wanted.values()) == pytest.approx(1.0)
        assert max(sounds, key=sounds.get) == best and sounds[best] == pytest.approx(wanted[best], rel=0.02)


def best_readings(node, edge, edge_class, n):
    """The n best (labels, score), n paths a label kept on the way."""
    ends = {y: [([y], score)] for y, score in enumerate(node[0])}
    for t in range(1, len(node)):
        tables, after = edge[edge_class[t]], {}
        for y in range(len(node[0])):
            more = [
                (path + [y], score + tables[yp, y] + node[t][y])
                for yp, kept in ends.items()
                for path, score in kept
            ]
            after[y] = sorted(more, key=lambda one: -one[1])[:n]
        ends = after
    return sorted(sum(ends.values(), []), key=lambda one: -one[1])[:n]


def test_exercise_6_frozen_sweeps_and_full_passes_end_at_the_minimum(words):
    corpus, how = words
    plain, frozen = (
        coordinate_descent(corpus, freeze_after=after, tol=1e-9, max_iterations=3000, **how)
        for after in (None, 2)
    )
    assert frozen.objective == pytest.approx(plain.objective, abs=1e-6)
    np.testing.assert_array_equal(frozen.features.node_label, plain.features.node_label)
    assert frozen.counts["gradient_visits"] / frozen.n_iter < plain.counts["gradient_visits"] / plain.n_iter
