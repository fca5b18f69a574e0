"""Chapter 11: decoding over large label sets."""

import time
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook.chain import inference
from crfbook.chain.inference import decode
from crfbook.chain.sparse.choice import (
    DECODING,
    DECODING_FORMS,
    FormChooser,
    choose_form,
    decoding_sizes,
    terms,
)
from crfbook.data.corpus import Corpus, make_corpus, slice_sequences
from crfbook.data.features import FeatureSet, observed
from crfbook.datasets import load_dataset
from crfbook.decoding import DECODERS
from crfbook.decoding import decode as decode_by
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from crfbook.learners.online import perceptron

from .harness import Row, race, study
from .work import joint

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


# ---- four tasks with many labels ----

TEMPLATE = "pos"
TAGGERS = {  # name: (data set, its task, test accuracy of the perceptron that is required)
    "pos": ("conll2000", "pos", 97.9),
    "joint": ("conll2000", "chunking", 93.3),  # labels POS/chunk, all sentences
    "morphology": ("ud-turkish-imst", "morph", 79.9),
    "supertags": ("ud-english-ewt", "supertag", 67.7),
}


class Tagger(NamedTuple):
    """A task, and an averaged perceptron of 10 epochs."""

    features: FeatureSet
    train: Corpus
    test: Corpus
    w: np.ndarray  # (F,)
    seconds: float  # CPU s of an epoch, the median


@cache
def tagger(name, epochs=10):
    """`Tagger` of one of TAGGERS."""
    data = load_dataset(*TAGGERS[name][:2], verbose=False)
    parts = data.train, data.test
    if name == "joint":
        parts = [joint(part, None) for part in parts]
    encoder = Encoder(templates.as_template(TEMPLATE))
    train, test = encoder.fit_transform(parts[0]), encoder.transform(parts[1], on_unknown_label="mark")
    features, clock = observed(train, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs), []
    perceptron(slice_sequences(train, 0, 20), features, max_iterations=1)
    found = perceptron(
        train, features, max_iterations=epochs, callback=lambda step, w: clock.append(time.process_time())
    )
    return Tagger(features, train, test, found.w, float(np.median(np.diff(clock))))


def us_a_token(corpus, run, repeats):
    """Median CPU microseconds a token of run(), after a first one."""
    return 1e6 * race({"run": run}, repeats)["run"].median_cpu / corpus.n_tokens


def beginning(corpus, n_tokens):
    """The first sequences of a corpus, some n_tokens."""
    return slice_sequences(corpus, 0, max(1, int(np.searchsorted(corpus.seq_ptr, n_tokens))))


PLAIN_CELLS = 3e9  # tokens times label pairs that "plain" is timed on
BOUNDS = {"morphology": (1 / 15, 1 / 35), "supertags": (1 / 150, 1 / 400)}


@study("11_decoding_{}.csv", of=tuple(TAGGERS))
def decoding_of(name, repeats=3):
    """Decoders on one task: microseconds a token with node scores, beside Viterbi over all pairs."""
    task = tagger(name)
    features, w, n_labels = task.features, task.w, task.features.n_labels
    some = beginning(task.test, PLAIN_CELLS / n_labels**2)
    accuracy = float(np.mean(decode_by(task.test, features, w) == task.test.labels)) * 100
    about = f"{n_labels:,} labels, {features.n_edge:,} pairs; {TAGGERS[name][0]}, {TAGGERS[name][1]}"
    yield Row(f"{name}: accuracy of the perceptron", TAGGERS[name][2], accuracy, "%", 1.0, note=about)
    plain = us_a_token(some, partial(decode_by, some, features, w, form="plain"), repeats)
    scores = us_a_token(task.test, partial(node_scores_by_parts, task.test, features, w), repeats)
    wanted = decode_by(some, features, w, form="plain")
    for form in ("auto", *DECODING_FORMS[1:4], *DECODERS):
        slow = form in ("plain", "dense", "sparse", *DECODERS)
        if form.startswith("carpediem") and n_labels > 1000:
            continue  # minutes a hundred tokens
        corpus, counters = some if slow else task.test, np.zeros(3, np.int64)
        took = us_a_token(corpus, partial(decode_by, corpus, features, w, form=form), repeats)
        path = decode_by(some, features, w, form=form, counters=counters)
        same = f"{np.mean(path == wanted):.2%} of the labels are plain Viterbi's"
        if form in DECODERS:
            same += (
                f"; a token: {counters[0] / some.n_tokens:.1f} nodes, {counters[1] / some.n_tokens:.0f} pairs"
            )
            same += f"; {counters[2] / some.n_sequences:.2f} sweeps" * form.startswith("staggered")
        limits = BOUNDS.get(name, (None, None)) if form == "auto" else (None, None)
        yield Row(f"{name}: {form} / plain", took - scores, plain - scores, "us a token", *limits, same)
        if form == "auto" and name == "supertags":
            yield Row(f"{name}: scores and decoding", took, 1.0, "us a token", 20.0, 10.0)
    note = "node scores alone, which are taken off above"
    yield Row(f"{name}: node scores / plain", scores, plain, "us a token", note=note)


def node_scores_by_parts(corpus, features, w):
    """Node scores, part by part, that are thrown away."""
    model = inference.ready_model(corpus, features, w, None, None, False)
    for part in inference.stretches(corpus.seq_ptr, features.n_labels):
        inference.stretch_scores(corpus, model, *part)
