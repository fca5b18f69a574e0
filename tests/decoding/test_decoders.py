"""Every form of decoding, on corpora and in models: the score of the dense form, its path where the best one
is unique, and what each form answers to bad input.
"""

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import CASES, case, constraints_for, problem

from crfbook import brute
from crfbook.chain import inference, packing
from crfbook.chain.numpy_form import edge_scores
from crfbook.data.constraints import bounds_of, constraints_from
from crfbook.data.corpus import make_corpus
from crfbook.decoding import DECODERS, FORMS, decode, kbest, label_order
from crfbook.decoding.decoders import STAGGERED
from crfbook.models.crf import CRF
from crfbook.models.directed import HMM, MEMM

EXACT = [form for form in FORMS if form not in DECODERS or DECODERS[form].exact]
X = [[{"a": 1}, {"b": 1}, {"a": 1}], [{"b": 1}], [], [{"a": 1}, {"b": 1}]]
Y = [["A", "B", "A"], ["B"], [], ["A", "C"]]


@pytest.fixture(scope="module")
def crf():
    return CRF(c2=0.1).fit(X, Y)


@pytest.fixture(params=[HMM, MEMM], ids=["HMM", "MEMM"])
def directed(request):
    return request.param().fit(X, Y)


def weights(name, kind, seed=0):
    corpus, features, w = case(name, seed)
    edges, rng = slice(features.n_node, None), np.random.default_rng(seed)
    if kind == "ties":
        w = np.round(w)
    if kind == "all equal":
        w[:] = 0.0
    if kind == "a million below":
        w[edges][rng.random(features.n_edge) < 0.5] = -1e6
    return corpus, features, w


def agree(path, other, corpus, features, w, constraints):
    """Both are best paths of all sequences, and the same ones where only one is best."""
    for i, chain in enumerate(chains_of(corpus, features, w, constraints)):
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        if len(chain[0]):
            best, paths = brute.best_paths(*chain)
            mine = brute.path_score(*chain, path[tokens])
            assert mine == pytest.approx(brute.path_score(*chain, other[tokens]), rel=1e-12, abs=1e-12)
            assert mine == pytest.approx(best, rel=1e-12, abs=1e-12)
            if len(paths) == 1:
                np.testing.assert_array_equal(path[tokens], other[tokens])


@pytest.mark.parametrize("kind", ["any", "ties", "all equal", "a million below"])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_exact_forms_agree_with_the_dense_one(name, constrained, kind):
    for seed in range(3):
        corpus, features, w = weights(name, kind, seed)
        constraints = constraints_for(corpus, features.n_labels) if constrained else None
        model = corpus, features, w, constraints
        want = decode(*model, form="dense")
        for form in EXACT:
            path = decode(*model, form=form)
            assert path.dtype == np.int32
            agree(path, want, *model)
            if form not in DECODERS:
                np.testing.assert_array_equal(path, want)
        np.testing.assert_array_equal(decode(*model, form="beam", beam_width=features.n_labels), want)


@pytest.mark.parametrize("form", EXACT)
def test_label_sets_of_tokens_hold(form):
    corpus, features, w, constraints = problem(constrained=True)
    path = decode(corpus, features, w, constraints, form=form)
    assert constraints.label_sets[corpus.label_set, path].all()
    scores = [
        inference.sequence_scores(corpus._replace(labels=labels), features, w, constraints)
        for labels in (path, decode(corpus, features, w, constraints, form="dense"))
    ]
    np.testing.assert_allclose(*scores, rtol=1e-12)


@pytest.mark.parametrize("form", DECODERS)
def test_many_labels_stretches_and_threads(monkeypatch, form):
    monkeypatch.setattr(packing, "STRETCH_ROWS", 30)
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, tuple(rng.integers(0, 12, 40)), 37, 60, n_classes=2)
    features, w = random_model(rng, corpus, 37, 60)
    names = ["O", *(f"{p}-{i}" for i in range(18) for p in "BI")]
    for constraints in (None, constraints_from("BIO", names)):
        model, counters, again = (corpus, features, w, constraints), *np.zeros((2, 3), np.int64)
        path = decode(*model, form=form, beam_width=37, counters=counters)
        np.testing.assert_array_equal(path, decode(*model, 3, form=form, beam_width=37, counters=again))
        assert counters[0] > 0 and counters.tolist() == again.tolist()
        scores = [
            inference.sequence_scores(corpus._replace(labels=labels), features, w, constraints)
            for labels in (path, decode(*model, form="dense"))
        ]
        np.testing.assert_allclose(*scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_tables_have_one_type(name):
    """Whatever labels and classes there are, each kernel is compiled once."""
    corpus, features, w = case(name)
    bounds = bounds_of(None, features.n_labels)
    table = edge_scores(features, w, corpus.class_ptr, corpus.class_attr, bounds)
    for decoder in DECODERS.values():
        for array in decoder.tables(table, label_order(features, w), 3):
            assert not isinstance(array, np.ndarray) or array.flags.c_contiguous


def test_labels_are_ordered_by_what_attributes_predict():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, (40,) * 20, 6, 500)
    corpus = corpus._replace(labels=np.minimum(corpus.labels, rng.integers(0, 6, 800)).astype(np.int32))
    features, w = random_model(rng, corpus, 6, 500)
    frequency = np.bincount(corpus.labels, minlength=6)
    assert label_order(features, w).tolist() == np.argsort(-frequency).tolist() == [0, 1, 2, 3, 4, 5]
    w = 300.0 * w
    votes = np.zeros(6)
    for a in range(500):
        row = slice(features.node_ptr[a], features.node_ptr[a + 1])
        share = np.exp(w[row] - w[row].max(initial=-np.inf))
        votes[features.node_label[row]] += share / share.sum()
    assert label_order(features, w).tolist() == np.argsort(-votes).tolist()
    every, w = random_model(rng, corpus, 6, 500, all_states=True)
    w = np.where(every.node_label == 3, 2.0, np.where(every.node_label == 1, -3.0, 1.0))
    assert label_order(every, w).tolist() == [3, 0, 2, 4, 5, 1]
    for same in (0.0, -np.inf, -1e308):
        assert label_order(every, np.full(every.n_node, same)).tolist() == [0, 1, 2, 3, 4, 5]
    nothing = corpus._replace(attr_idx=corpus.attr_idx[:0], attr_ptr=0 * corpus.attr_ptr)
    assert label_order(*random_model(rng, nothing, 6, 500)).tolist() == [0, 1, 2, 3, 4, 5]


# ---- models


@pytest.mark.parametrize("form", FORMS)
def test_crf_predicts_by_every_form(crf, form):
    want = crf.predict(X, "dense")
    assert crf.predict(X, form) == crf.predict(X, form=form, beam_width=3) == want
    assert [crf.encoder_.labels_[y] for y in crf.predict_array(X, form=form)[0]] == want[0]
    assert crf.predict_single(X[3], form=form) == want[3]
    assert crf.predict([], form) == [] and crf.predict([[]], form) == [[]]
    assert crf.predict_array([], form) == [] == crf.predict_single([], form)
    assert crf.predict([[{"a": 1}], [], [{"a": 1}]], form) == [["A"], [], ["A"]]


@pytest.mark.parametrize("form", FORMS)
def test_one_label(form):
    model = CRF(c2=0.1).fit([[{"a": 1}, {"b": 1}]], [["A", "A"]])
    assert model.predict([[{"a": 1}] * 3, []], form, beam_width=5) == [["A"] * 3, []]
    assert model.predict_kbest([[{"a": 1}] * 3])[0] == [(["A"] * 3, 0.0)]


@pytest.mark.parametrize("form", ["auto", "dense", *DECODERS])
def test_directed_models_predict_by_every_form(directed, form):
    want = directed.predict(X)
    assert directed.predict(X, form, beam_width=3) == want
    assert [y.tolist() for y in directed.predict_array(X, form)] == [
        [directed.classes_.index(label) for label in labels] for labels in want
    ]
    assert directed.predict_single(X[0], form) == want[0]
    assert directed.predict([], form) == [] and directed.predict([[]], form) == [[]]


def test_directed_models_have_the_k_best(directed, monkeypatch):
    monkeypatch.setattr(packing, "STRETCH_ROWS", 3)  # several parts
    best = directed.predict_kbest(X, 100)
    assert [len(pairs) for pairs in best] == [27, 3, 1, 9]
    assert [pairs[0][0] for pairs in best] == directed.predict(X)
    for x, pairs in zip(X, best, strict=True):
        assert sum(np.exp([p for _, p in pairs])) == pytest.approx(1.0)
        for labels, log_proba in pairs:
            assert log_proba == pytest.approx(directed.log_proba([x], [labels])[0], abs=1e-12)
    assert [[len(pairs) for pairs in directed.predict_kbest(X, k)] for k in (1, 5)] == [
        [1, 1, 1, 1],
        [5, 3, 1, 5],
    ]
    assert directed.predict_kbest([]) == []


def test_impossible_labellings_of_an_hmm():
    model = HMM(smoothing=0.0).fit([[{"a": 1}, {"b": 1}]], [["A", "B"]])
    assert model.predict_kbest([[{"a": 1}, {"b": 1}]]) == [[(["A", "B"], 0.0)]]
    for form in ["dense", *(set(EXACT) & set(DECODERS))]:
        with pytest.raises(ValueError, match="^sequence 1: every labelling has probability 0"):
            model.predict([[{"a": 1}], [{"b": 1}, {"a": 1}]], form)
    with pytest.raises(ValueError, match="^sequence 1: every labelling has probability 0"):
        model.predict_kbest([[{"a": 1}], [{"b": 1}, {"a": 1}]])


# ---- bad input


def test_an_unknown_form_is_answered_with_the_list(crf, directed):
    with pytest.raises(
        ValueError, match="^form: expected one of 'auto', 'dense', .*'posterior', got 'viterbi'$"
    ) as e:
        crf.predict(X, form="viterbi")
    assert all(repr(form) in str(e.value) for form in FORMS)
    with pytest.raises(ValueError, match="^form: expected one of 'auto', 'dense', .*'beam', got 'sparse'$"):
        directed.predict([], form="sparse")
    with pytest.raises(ValueError, match="^form: expected one of 'auto', 'dense', got 'default'$"):
        directed.predict_kbest(X, form="default")
    for form in (None, 3, ["dense"]):
        with pytest.raises(ValueError, match="^form: expected one of"):
            crf.predict(X, form=form)


@pytest.mark.parametrize("width", [0, -1, 2.5, True, "3", None, float("nan"), float("inf")])
def test_a_bad_beam_width_is_named(crf, directed, width):
    for model in (crf, directed):
        for form in ("beam", "auto"):
            with pytest.raises(ValueError, match="^beam_width: expected an integer >= 1"):
                model.predict([], form=form, beam_width=width)


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_a_bad_k_is_named(directed, k):
    with pytest.raises(ValueError, match="^k: expected an integer >= 1"):
        directed.predict_kbest(X, k)


def dead_end():
    """The label that is best first may not be followed by any other."""
    model = CRF(constraints={"allowed": np.array([[False, False], [True, True]])})
    return model.fit([[{"a": 1}]] * 3 + [[{"b": 1}, {"b": 1}]], [["A"]] * 3 + [["B", "B"]])


def test_a_beam_that_ends_dead_names_what_helps():
    model, x = dead_end(), [[{"a": 1}], [{"a": 1}, {"a": 1}]]
    assert model.predict(x) == [["A"], ["B", "A"]] == model.predict(x, "beam", beam_width=2)
    with pytest.raises(
        ValueError, match=r"^sequence 1: expected a path among the beam_width=1 labels .* 'dense', finds one$"
    ):
        model.predict(x, "beam", beam_width=1)


def test_a_beam_of_an_hmm_that_ends_dead():
    """A is the likelier first label, and nothing but A follows it."""
    given = [["A", "A"]] * 3 + [["B", "C"]]
    model = HMM(smoothing=0.0).fit([[{"a": 1}, {"a": 1}]] * 3 + [[{"a": 1}, {"b": 1}]], given)
    x = [[{"a": 1}], [{"a": 1}, {"b": 1}]]
    assert model.predict(x, "beam") == [["A"], ["B", "C"]]
    with pytest.raises(ValueError, match="^sequence 1: expected a path among the beam_width=1 labels"):
        model.predict(x, "beam", beam_width=1)


@pytest.mark.parametrize("form", EXACT)
def test_no_labelling_allowed(form):
    corpus, features, w = case("plain")
    nothing = constraints_for(corpus, features.n_labels)
    nothing.start[:] = False
    with pytest.raises(ValueError, match="^sequence 0: expected a path of finite score, but the constraints"):
        decode(corpus, features, w, nothing, form=form)


@pytest.mark.parametrize("form", FORMS)
def test_scores_that_exceed_float64(form):
    corpus, features, w = case("plain")
    w[: features.n_node] = 1e308
    with pytest.raises(ValueError, match=r"^sequence 0, token \d: expected scores within float64"):
        decode(corpus, features, w, form=form)


def many_classes():
    """1,000 edge classes of 1,000 labels would take 24 GB in tables."""
    corpus = make_corpus(
        [0, 2], [0, 1, 2], [0, 1], labels=[0, 999], class_ptr=range(1001), class_attr=range(1000)
    )
    return corpus, *random_model(np.random.default_rng(0), corpus, 1000, 2)


@pytest.mark.parametrize("form", STAGGERED)
def test_staggered_decoding_needs_no_table_a_class(form):
    corpus, features, w = many_classes()
    for second in (0, 700):  # the second class has no weight of a pair, and another best path
        corpus = corpus._replace(edge_class=np.array([0, second], np.int32))
        path = decode(corpus, features, w, form=form)
        np.testing.assert_array_equal(path, decode(corpus, features, w, form="default"))
        assert path.tolist() == [0, 0 if second else 999]


@pytest.mark.parametrize("form", [form for form in DECODERS if form not in STAGGERED])
def test_tables_beyond_memory_name_a_form_that_can(form):
    corpus, features, w = many_classes()
    with pytest.raises(
        ValueError, match=rf"^form='{form}': expected tables of at most 1 GiB, got 22.4 GiB .* 'default' and"
    ):
        decode(corpus, features, w, form=form)
    assert decode(corpus, features, w, form="default").shape == (2,)


def test_an_empty_corpus():
    corpus, features, w = case("plain")
    empty = make_corpus([0], [0], [], labels=[])
    for form in FORMS:
        assert decode(empty, features, w, form=form).shape == (0,)
    assert kbest(empty, features, w).score.shape == (0, 1)
