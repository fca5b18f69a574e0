"""Every estimator on every kind of input, fitted, comes back from pickle, joblib, copies and another process:
the same bits, and training that goes on. `docs/COMING_FROM_SKLEARN_CRFSUITE.md` promises it.
"""

import copy
import io
import itertools
import multiprocessing
import pickle
import threading
from operator import methodcaller

import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.model_selection import GridSearchCV

from crfbook import CRF, DCRF, HMM, MEMM, Encoder, TokenColumns, make_corpus, regularization_path
from crfbook.encoding.tag_dictionary import TagDictionary
from crfbook.encoding.templates import EXTRACTORS, as_template

WORDS = [["The", "cat", "sat-1", "."], ["A", "dog", "."], [], ["It", "is"]]
Y = [["D", "N", "V", "."], ["D", "N", "."], [], ["N", "V"]]
TEMPLATE = "\n".join(
    ["U:%x[0,0]", "B:%x[0,0]", "*:%lower[-1,0]"]
    + [f'U{n}:%{n}[0,0,"[a-z]+"]' for n in ("t", "m", "M", "match")]
    + [f"U{n}:%{n}[0,0,1,2]" for n in ("prefix", "suffix", "ngrams")]
    + [f"U{n}:%{n}[1,0]" for n in ("shape", "shortshape", "each", "inside", "X")]
    + ['U:%T[0,0,"(a|t)+"]']
)  # fmt: skip
DENSE = [np.array([[len(w), w.isalpha(), i] for i, w in enumerate(s)], float).reshape(-1, 3) for s in WORDS]
COLUMNS = TokenColumns.from_sentences([[(w,) for w in s] for s in WORDS], ("word",))
TEMPLATED = {"columns": COLUMNS, "strings": WORDS, "tuples": [[(w, w[0]) for w in s] for s in WORDS]}
TEMPLATED["cells"] = [[{"word": w} for w in s] for s in WORDS]
PLAIN = {
    "dicts": [[{"w": w, "length": len(w), "first": True} for w in s] for s in WORDS],
    "nested": [[{"w": {"text": w, "parts": list(w)}} for w in s] for s in WORDS],
    "lists": [[[w, w.lower()] for w in s] for s in WORDS],
    "dense": DENSE,
    "sparse": [scipy.sparse.csr_matrix(array) for array in DENSE],
}
CORPUS = make_corpus([0, 2, 3], [0, 1, 3, 4], [0, 1, 2, 0], attr_val=[1, 2, 3, 4.5], labels=[0, 1, 1])
MODELS = {
    "CRF": lambda **more: CRF(max_iterations=2, **more),
    "owlqn": lambda **more: CRF("owlqn", c1=0.1, max_iterations=2, warm_start=True, **more),
    "perceptron": lambda **more: CRF("perceptron", max_iterations=2, **more),
    "HMM": HMM,
    "MEMM": lambda **more: MEMM(max_iterations=2, **more),
    "DCRF": lambda **more: DCRF(max_iterations=2, **more),
}
WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "oldest protocol": lambda model: pickle.loads(pickle.dumps(model, 0)),
    "joblib": lambda model: joblib.load(_dumped(model)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def _dumped(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return file


def fitted(name, kind):
    """(model, X, y) of an estimator on one kind of input."""
    X = CORPUS if kind == "corpus" else TEMPLATED.get(kind, PLAIN.get(kind))
    y = [CORPUS.labels[:2].tolist(), CORPUS.labels[2:].tolist()] if kind == "corpus" else Y
    y = [[(label, label) for label in labels] for labels in y] if name == "DCRF" else y
    model = MODELS[name](**{"template": TEMPLATE} if kind in TEMPLATED else {})
    return model.fit(X, y), X, y


CASES = list(itertools.product(MODELS, [*TEMPLATED, *PLAIN, "corpus"]))


def bits(model, X):
    """All that a model says of X, as it is written."""
    return repr((model.predict(X), model.predict_marginals(X)))


@pytest.mark.parametrize("name, kind", CASES)
def test_a_model_comes_back_and_goes_on(name, kind):
    model, X, y = fitted(name, kind)
    if isinstance(model, CRF):
        model.tagger_.set(WORDS[0])  # which no copy takes along
    said = bits(model, X)
    for way, again in WAYS.items():
        new = again(model)
        assert bits(new, X) == said, way
        own = {"_tagger", "_sentences"}
        assert "_tagger" not in vars(new) and vars(new).keys() - own == vars(model).keys() - own
        if name == "perceptron":
            rest = copy.deepcopy(model).partial_fit(X, y).weights_
            assert np.array_equal(new.partial_fit(X, y).weights_, rest), way
        elif name == "owlqn":
            rest = copy.deepcopy(model).fit(X, y).weights_
            assert np.array_equal(new.fit(X, y).weights_, rest), way
        assert bits(model, X) == said, way


def test_models_work_in_a_process_that_was_spawned():
    """Both ways: predicted there, and fitted there."""
    models = [fitted(name, kind) for name, kind in CASES]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = [pool.apply_async(methodcaller("predict", X), (model,)) for model, X, _ in models]
        sent = [pool.apply_async(methodcaller("fit", X, y), (model,)) for model, X, y in models]
        for (model, X, y), there, back in zip(models, found, sent, strict=True):
            assert there.get(300) == model.predict(X)
            assert bits(back.get(300), X) == bits(model.fit(X, y), X)


@pytest.mark.parametrize("kind", [*TEMPLATED, *PLAIN])
def test_an_encoder_comes_back(kind):
    X = TEMPLATED.get(kind, PLAIN.get(kind))
    encoder = Encoder(TEMPLATE if kind in TEMPLATED else None).fit(X, Y)
    for way, again in WAYS.items():
        pairs = zip(again(encoder).transform(X, Y), encoder.transform(X, Y), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs), way
    assert pickle.loads(pickle.dumps(Encoder())).template is None


def test_every_extractor_is_in_the_template_that_is_pickled():
    assert {source.name for source in as_template(TEMPLATE).sources} == set(EXTRACTORS)
    assert pickle.loads(pickle.dumps(as_template(TEMPLATE))) == as_template(TEMPLATE)


@pytest.mark.parametrize("inference", ["exact", "junction", "block", "tree", "sweep", "mean-field"])
def test_every_engine_of_a_dynamic_model(inference):
    y = [[(label, label) for label in labels] for labels in Y]
    model = DCRF(max_iterations=1, inference=inference, template=TEMPLATE).fit(WORDS, y)
    for way, again in WAYS.items():
        assert bits(again(model), WORDS) == bits(model, WORDS), way


def test_searches_paths_and_tag_dictionaries():
    search = GridSearchCV(CRF(template=TEMPLATE, max_iterations=2), {"c2": [0.1, 1.0]}, cv=2).fit(WORDS, Y)
    path = regularization_path(CRF(template=TEMPLATE, c2=0.1), WORDS, Y, strengths=[0.5, 0.1], cv=2)
    known = CRF(template=TEMPLATE, max_iterations=2, tag_dictionary=1, constraints={"start": {"D", "N"}})
    known.fit(WORDS, Y)
    words = TagDictionary.learn(WORDS, Y, 1)
    for way, again in WAYS.items():
        assert again(search).predict(WORDS) == search.predict(WORDS), way
        assert (
            again(search).cv_results_["mean_test_score"].tolist()
            == search.cv_results_["mean_test_score"].tolist()
        )
        assert again(path).frame.equals(path.frame) and bits(again(path).best, WORDS) == bits(
            path.best, WORDS
        )
        assert bits(again(known), WORDS) == bits(known, WORDS), way
        assert again(words).entries == words.entries


def test_a_copy_has_a_tagger_of_its_own():
    """A copy's tagger was the one of the first model, and spoke of its weights after a new fit."""
    model = CRF(c2=0.1).fit(PLAIN["lists"], Y)
    tagger = model.tagger_
    other = copy.copy(model)
    assert other.tagger_ is not tagger and other.tagger_._crf is other
    assert pickle.loads(pickle.dumps(tagger)).tag(PLAIN["lists"][0]) == tagger.tag(PLAIN["lists"][0])


def test_threads_share_a_tagger():
    """Eight threads set their sentence, all of them, before one asks: each got the last one's numbers."""
    X = PLAIN["lists"][:2] * 4
    model, all_set = CRF(c2=0.1).fit(PLAIN["lists"], Y), threading.Barrier(8)
    expected, found = [model.predict_marginals_single(x) for x in X], [None] * 8

    def ask(i):
        tagger = model.tagger_
        tagger.set(X[i])
        all_set.wait(60)
        found[i] = (
            [{y: tagger.marginal(y, t) for y in tagger.labels()} for t in range(len(X[i]))],
            tagger.tag(),
        )

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == list(zip(expected, model.predict(X), strict=True))
