"""Chapter 11: decoding over large label sets."""

from functools import partial

import numpy as np

from crfbook.chain.inference import decode
from crfbook.chain.sparse.choice import DECODING, FormChooser, choose_form, decoding_sizes, terms
from crfbook.data.corpus import make_corpus
from crfbook.data.features import FeatureSet

from .harness import Row, race, study

MOST_CELLS = 3e8  # tokens times pairs of labels of a case that the dense form decodes, too


def random_tagger(rng, largest=2500):
    """(corpus, features, w): labels by Zipf's law, words with some 20 labels each, few pairs of labels.

    L from 20 to `largest`; 3 to 40 stored pairs a label (at most all), scores of pairs between 0.3 and 3
    times those of words. As many tokens as the dense form decodes in a second or so, at least 600.
    """
    n_labels = int(np.exp(rng.uniform(np.log(20), np.log(largest))))
    n_tokens = int(np.clip(MOST_CELLS / n_labels**2, 600, 20_000))
    per_label, size = np.exp(rng.uniform(np.log(3), np.log(40))), np.exp(rng.uniform(np.log(0.3), np.log(3)))
    n_words, some = 2000, min(20, n_labels)
    zipf, often = (1.0 / np.arange(1, n + 1) / (1.0 / np.arange(1, n + 1)).sum() for n in (n_labels, n_words))
    length = rng.integers(1, 50, n_tokens)
    ends = np.cumsum(length)[np.cumsum(length) < n_tokens]
    corpus = make_corpus(
        np.concatenate([[0], ends, [n_tokens]]), np.arange(n_tokens + 1),
        rng.choice(n_words, n_tokens, p=often), labels=rng.choice(n_labels, n_tokens, p=zipf),
    )  # fmt: skip
    labels = [np.unique(rng.choice(n_labels, some, p=zipf)) for _ in range(n_words)]
    n_pairs = min(n_labels**2, int(per_label * n_labels))
    pair = np.unique(rng.choice(n_labels, n_pairs, p=zipf) * n_labels + rng.choice(n_labels, n_pairs, p=zipf))
    node_ptr, node = np.cumsum([0, *map(len, labels)]), np.concatenate(labels).astype(np.int32)
    edges = np.array([0, len(pair)]), (pair // n_labels).astype(np.int32), (pair % n_labels).astype(np.int32)
    features = FeatureSet(n_labels, n_words, 1, node_ptr, node, *edges)
    return (
        corpus,
        features,
        np.concatenate([rng.normal(3.0, 2.0, len(node)), rng.normal(0.0, 2.0 * size, len(pair))]),
    )


def time_decoders(n_cases, seed, repeats=3, largest=2500):
    """[(`Sizes`, {form: least CPU seconds})] of random taggers."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_cases):
        corpus, features, w = random_tagger(rng, largest)
        sizes = decoding_sizes(FormChooser(features, corpus, "auto", 1, kernels=True), w)
        runs = {form: partial(decode, corpus, features, w, form=form.partition(" ")[0]) for form in DECODING}
        found.append((sizes, {form: float(min(timing.cpu)) for form, timing in race(runs, repeats).items()}))
    return found


def fit_default(cases):
    """Coefficients >= 0 of "default decoding" in chain/sparse/choice.py: least squares of relative errors."""
    from scipy.optimize import nnls

    form = DECODING[2]
    rows = np.array([terms(form, sizes) for sizes, _ in cases])
    scale, took = rows.max(axis=0), np.array([seconds[form] for _, seconds in cases])
    return nnls(rows / scale / took[:, None], np.ones(len(took)))[0] / scale


@study()
def default_fit(n_cases=60):
    """The coefficients of the default form in chain/sparse/choice.py, measured anew: printed only."""
    found = fit_default(time_decoders(n_cases, 0))
    print(f'    "{DECODING[2]}": ({", ".join(f"{value:.3g}" for value in found)}),')
    yield from ()


@study()
def decoding_choice(repeats=3, n_cases=30):
    """How often the cost model chooses the fastest form of Viterbi, on random taggers not in its fit."""
    kept = []
    for sizes, took in time_decoders(n_cases, 1, repeats):
        chosen = choose_form(sizes, DECODING)
        kept.append((sizes, took, chosen, took[chosen] / min(took.values())))
    lost = np.array([ratio for *_, ratio in kept])
    note = f"{n_cases} cases, 20 to 2,500 labels; within 10 %: {np.mean(lost <= 1.1):.0%}"
    yield Row("not the fastest form is chosen", np.mean(lost > 1.0), 1.0, "share", None, None, note)
    yield Row("time lost by that, mean", lost.mean(), 1.0, "ratio", 1.1, 1.03)
    for sizes, took, chosen, ratio in kept:
        note = ", ".join(f"{form.partition(' ')[0]} {1e6 * t / sizes.tokens:.2f}" for form, t in took.items())
        name = f"{sizes.labels:.0f} labels (padded), {sizes.plain / sizes.labels:.0f} pairs a label: {chosen}"
        yield Row(name, ratio, 1.0, "times the fastest", None, None, f"us a token: {note}")
