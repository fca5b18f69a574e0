"""The stated outcomes of the exercises of chapter 09, solved on the corpus at hand."""

from collections import Counter
from functools import cache, partial
from itertools import product

import numpy as np
import pytest

from crfbook import CRF, Encoder, Objective, load_dataset, minimize, regularization_path
from crfbook.chain.inference import decode
from crfbook.data.corpus import take_sequences
from crfbook.data.features import empirical_counts, heaviest, mutual_information, observed, select
from crfbook.encoding import templates
from crfbook.evaluation import chunk_report

STRENGTHS = 8.0, 4.0, 2.0, 1.0, 0.5
N_WORDS = 3000  # of exercise 7
TEXT = """in Paris/P it rained | see Paris/P in June | Paris Hilton left Lima/P
| Mr Lima left Paris/P | we left Rome/P | in Rome/P it rained | Mr Rome left
| Hilton left Lima/P in June | see Miss Paris in Lima/P"""
TEN = """capital/P small/O capital/O before=left/P before=in/P before=Mr/O before=Paris/O before=start/O
word=Paris/P word=Lima/P"""


class Names:
    """The live experiment of section 7."""

    def __init__(self):
        data = load_dataset("wnut17", verbose=False)
        self.encoder, self.dev = Encoder(templates.load("ner")), data.dev
        self.corpus = self.encoder.fit_transform(data.train[:300])
        self.held = self.encoder.transform(data.dev, on_unknown_label="mark")
        self.features = observed(self.corpus, self.encoder.n_labels, self.encoder.n_attrs)
        self.n = self.features.n_features
        self.whole = minimize(
            Objective(self.corpus, self.features, c2=0.1), np.zeros(self.n), c2=0.1, tol=1e-4
        ).w

    def f1(self, w):
        guess = self.encoder.decode(decode(self.held, self.features, w), self.held.seq_ptr)
        return chunk_report(self.dev.labels_by_sequence(), guess).f1

    def retrained(self, keep):
        w, fun = np.zeros(self.n), Objective(self.corpus, select(self.features, keep), c2=0.1)
        w[keep] = minimize(fun, self.whole[keep], c2=0.1, tol=1e-4).w
        return w

    @cache  # noqa: B019 - one object
    def path(self):
        """{c1: weights}."""
        fun, models, w = Objective(self.corpus, self.features, c2=0.03), {}, np.zeros(self.n)
        for c1 in STRENGTHS:
            models[c1] = w = minimize(fun, w, c1=c1, c2=0.03, tol=1e-3).w
        return models


@pytest.fixture(scope="module")
def names():
    return Names()


def information(share):
    """Of a feature with n11 = n_u = n_v = share * n."""
    return -share * np.log(share) - (1 - share) * np.log(1 - share)


def test_1_information_of_itself_is_the_entropy_largest_at_one_half():
    share = np.linspace(0.001, 0.999, 999)
    assert share[information(share).argmax()] == pytest.approx(0.5)
    assert information(0.5) == pytest.approx(np.log(2))
    encoder = Encoder()
    corpus = encoder.fit_transform([[["a"], ["b"], ["b"], ["b"]]], [["A", "B", "B", "B"]])
    found = mutual_information(corpus, observed(corpus, encoder.n_labels, encoder.n_attrs))
    assert found[:2] == pytest.approx([information(0.25)] * 2)


def test_2_no_positive_weight_from_its_count_on(names):
    counts = empirical_counts(names.corpus, names.features)
    for c1, w in names.path().items():
        assert not (w[counts <= c1] > 0).any() and (w[counts > c1] > 0).any()


def test_3_the_largest_gradient_is_of_a_feature_of_o(names):
    grad = np.abs(Objective(names.corpus, names.features)(np.zeros(names.n))[1])
    label = np.append(names.features.node_label, names.features.edge_next)[grad.argmax()]
    assert names.encoder.labels_[label] == "O" and grad.max() > 50 * max(STRENGTHS)


def test_4_curvature_helps_thresholding_at_1000_features(names):
    curvature = Objective(names.corpus, names.features, c2=0.1).curvature(names.whole)
    plain, better = (
        names.f1(np.where(heaviest(score, 1000), names.whole, 0.0))
        for score in (names.whole, names.whole**2 * curvature)
    )
    assert better > plain


def test_5_refitting_helps_where_the_penalty_is_strong(names):
    for c1 in (8.0, 4.0, 2.0, 1.0):
        w = names.path()[c1]
        assert names.f1(names.retrained(w != 0)) > names.f1(w)


def test_6_greedy_selection_departs_from_l1():
    sentences = [[(word + "/O").split("/")[:2] for word in s.split()] for s in TEXT.split("|")]
    attributes = [
        [
            [
                f"word={word}",
                f"before={s[t - 1][0] if t else 'start'}",
                "capital" if word[0].isupper() else "small",
            ]
            for t, (word, _) in enumerate(s)
        ]
        for s in sentences
    ]
    encoder = Encoder()
    toy = encoder.fit_transform(attributes, [[label for _, label in s] for s in sentences])
    every = observed(toy, encoder.n_labels, encoder.n_attrs)
    known = [f"{encoder.attribute_names()[a]}/{encoder.labels_[y]}"
             for a, y in zip(every.node_attr, every.node_label, strict=True)]  # fmt: skip
    ten = select(every, np.isin(np.arange(every.n_features), [known.index(name) for name in TEN.split()]))
    known, entering = [name for name in known if name in TEN.split()], np.zeros(10)
    for c1 in np.geomspace(0.05, 20, 60):
        w = minimize(Objective(toy, ten), np.zeros(10), c1=c1, tol_gradient=1e-4).w
        entering[w != 0] = c1
    greedy, w = [], np.zeros(10)
    for _ in range(10):
        grad = np.abs(Objective(toy, ten)(w)[1]).round(9)  # of equal ones the first, whatever rounding says
        grad[greedy] = -1.0
        greedy.append(int(grad.argmax()))
        keep = np.isin(np.arange(10), greedy)
        w[keep] = minimize(Objective(toy, select(ten, keep), c2=0.1), w[keep], c2=0.1, tol=1e-8).w
    l1 = np.argsort(-entering, kind="stable")
    assert [known[k] for k in l1[:4]] == [known[k] for k in greedy[:4]]
    assert known[l1[4]] == "capital/P" == known[greedy[-1]]  # its twin is in: greedily it comes last


def aligned(word, phones, table):
    """(log-likelihood, {(letter, phones): expected count}, the best alignment): a lattice as in chapter 02.

    Each letter takes 0, 1 or 2 phones; table: (letter, phones) -> probability.
    """
    n, most = len(word), len(phones)
    p = np.zeros((n, 3, most + 1))  # the letter, how many phones it takes, phones before it
    for t, k in product(range(n), range(3)):
        p[t, k, : most + 1 - k] = [table((word[t], phones[i : i + k])) for i in range(most + 1 - k)]
    alpha, beta, best = (np.zeros((n + 1, most + 1)) for _ in range(3))
    alpha[0, 0] = beta[n, most] = best[0, 0] = 1.0
    back, counts, labels, i = np.zeros((n + 1, most + 1), int), Counter(), [], most
    for t in range(n):
        step = np.zeros((3, most + 1))
        for k in range(3):
            at = slice(most + 1 - k)
            alpha[t + 1, k:] += alpha[t, at] * p[t, k, at]
            step[k, k:] = best[t, at] * p[t, k, at]
        best[t + 1], back[t + 1] = step.max(axis=0), step.argmax(axis=0)
    for t, k in product(reversed(range(n)), range(3)):
        at = slice(most + 1 - k)
        beta[t, at] += p[t, k, at] * beta[t + 1, k:]
        for j in np.flatnonzero(share := alpha[t, at] * p[t, k, at] * beta[t + 1, k:]):
            counts[word[t], phones[j : j + k]] += share[j] / alpha[n, most]
    for t in range(n, 0, -1):
        i, before = i - back[t, i], i
        labels.append("_".join(phones[i:before]) or "_")
    return np.log(alpha[n, most]), counts, labels[::-1]


@pytest.mark.real_data("cmudict")
def test_7_letters_aligned_with_phones_by_em_and_read_aloud():
    """On some words, phones without the digit of stress; the four selections have no stated outcome."""
    data = load_dataset("cmudict", verbose=False).extra
    words = [data["pairs"][i] for i in np.random.default_rng(0).permutation(data["train"])[:N_WORDS]]
    words = [(word, tuple(phone.rstrip("012") for phone in phones)) for word, phones in words]
    words = [(word, phones) for word, phones in words if word.isalpha() and len(phones) <= 2 * len(word)]
    table, course = (lambda key: 1e-4), []
    for _ in range(5):
        found = [aligned(word, phones, table) for word, phones in words]
        counts, letters = Counter(), Counter()
        for _, one, _ in found:
            counts.update(one)
        for (letter, _), n in counts.items():
            letters[letter] += n
        chance = {key: n / letters[key[0]] for key, n in counts.items()}
        course.append(sum(value for value, _, _ in found))
        table = partial(lambda chance, key: chance.get(key, 0.0), chance)
    assert (np.diff(course) > 0).all()
    labels = [label for _, _, label in found]
    for (word, phones), label in zip(words, labels, strict=True):
        assert len(label) == len(word)
        assert [phone for one in label for phone in one.split("_") if phone] == list(phones)
    for letter in "bdfklmnprstvz":  # they read naturally
        assert max(chance, key=lambda key: chance[key] * (key[0] == letter)) == (letter, (letter.upper(),))
    near = [[{f"{d}:{word[t + d]}": 1.0 for d in range(-3, 4) if 0 <= t + d < len(word)}
             for t in range(len(word))] for word, _ in words]  # fmt: skip
    n, strengths = len(words) * 9 // 10, [4.0, 1.0, 0.25, 0.06, 0.01]
    path = regularization_path(
        CRF(max_iterations=40), near[:n], labels[:n], strengths=strengths, X_dev=near[n:], y_dev=labels[n:]
    )
    assert 0 < path.chosen < len(strengths) - 1 and path.frame["score"].max() > 0.8


def test_8_stability_selection_keeps_fewer_and_scores_nearly_as_well(names):
    rng, votes = np.random.default_rng(0), np.zeros(names.n)
    for _ in range(10):
        half = take_sequences(names.corpus, np.sort(rng.permutation(300)[:150]))
        fun = Objective(half, names.features, c2=0.03)
        votes += minimize(fun, np.zeros(names.n), c1=0.25, c2=0.03, tol=1e-2).w != 0
    keep, best = votes >= 6, names.path()[0.5]
    assert keep.sum() < np.count_nonzero(best)
    assert names.f1(names.retrained(keep)) > 0.9 * names.f1(best)
