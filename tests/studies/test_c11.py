"""Random taggers are what they say, and the fit of the default form's costs is a fit."""

import numpy as np

from crfbook.chain.sparse.choice import DECODING, SECONDS, FormChooser, decoding_sizes, terms
from crfbook.studies.c11 import fit_default, random_tagger, time_decoders


def test_random_taggers_store_few_pairs():
    rng = np.random.default_rng(0)
    for _ in range(5):
        corpus, features, w = random_tagger(rng, largest=300)
        assert features.n_edge <= 40 * features.n_labels and len(w) == features.n_features
        assert 600 <= corpus.n_tokens <= 20_000 and corpus.longest < 50


def test_all_forms_are_timed():
    ((sizes, took),) = time_decoders(1, 0, repeats=1, largest=40)
    assert sorted(took) == sorted(DECODING) and sizes.plain > 0 and sizes.cells == sizes.labels


def test_the_fit_finds_the_costs():
    rng, cases = np.random.default_rng(1), []
    true = np.array(SECONDS[DECODING[2]]) + 1e-9
    for _ in range(30):
        corpus, features, w = random_tagger(rng, largest=200)
        sizes = decoding_sizes(FormChooser(features, corpus, "auto", 1, kernels=True), w)
        cases.append((sizes, {DECODING[2]: float(true @ terms(DECODING[2], sizes))}))
    found = fit_default(cases)
    for sizes, took in cases:
        np.testing.assert_allclose(found @ terms(DECODING[2], sizes), took[DECODING[2]], rtol=1e-3)
