"""What bad input gets: the right answer, or one sentence with the sequence,
the position and what was expected.

Damaged model files are in test_saving.py, ragged column files in the readers' tests.
"""

import os
import warnings

import numpy as np
import pandas as pd
import pytest

import data_fetch
from crfbook import evaluation, load_dataset, plotting
from crfbook._checks import ModelFileError
from crfbook.data.corpus import make_corpus
from crfbook.data.files import load_arrays, save_arrays
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from crfbook.learners.stochastic.gradient_descent import sgd_l1
from crfbook.models.crf import CRF
from crfbook.models.directed import HMM, MEMM
from crfbook.models.dynamic import DCRF

X = [[{"a": 1.0}, {"b": 1.0}], [{"b": 1.0}, {"a": 1.0}, {"a": 1.0, "b": 2.0}]]
Y = [["A", "B"], ["B", "A", "A"]]


@pytest.fixture(scope="module")
def crf():
    return CRF(c2=0.1).fit(X, Y)


def refused(message, call, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=message) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600, text


# ---- sizes


def test_empty_corpus(crf):
    refused("0 sequences and no token", CRF().fit, [], [])
    refused("2 sequences and no token", CRF().fit, [[], []], [[], []])
    refused("0 sequences and no token", CRF().fit, make_corpus([0], [0], [], labels=[]))
    assert crf.predict([]) == [] == crf.predict_marginals([]) == crf.predict_array([])
    assert list(crf.predict_edge_marginals([])) == [] and crf.log_proba([], []).shape == (0,)
    refused("at least one token", crf.score, [], [])


def test_sequences_of_length_zero_and_one(crf):
    with_empty = CRF(c2=0.1).fit([[], *X, []], [[], *Y, []])
    assert np.array_equal(with_empty.weights_, crf.weights_)  # contributes nothing
    assert crf.predict([[], X[0], []]) == [[], crf.predict_single(X[0]), []]
    assert crf.predict_single([]) == [] == crf.predict_marginals_single([])
    assert [table.shape for table in crf.predict_edge_marginals([[], X[0][:1], X[1]])] == [
        (0, 2, 2),
        (0, 2, 2),
        (2, 2, 2),
    ]
    assert crf.log_proba([[], X[0]], [[], Y[0]])[0] == 0.0
    single = CRF(c2=0.1).fit([[{"a": 1}], [{"b": 1}]], [["A"], ["B"]])
    assert single.predict([[{"a": 1}], [{"b": 1}]]) == [["A"], ["B"]]
    assert sum(single.predict_marginals_single([{"a": 1}])[0].values()) == pytest.approx(1)


def test_tokens_without_attributes(crf):
    assert len(crf.predict_single([{}, {}, {}])) == 3
    assert CRF(c2=0.1).fit([[{}, {}]], [["A", "B"]]).predict([[{}, {}]]) == [["A", "B"]]  # transitions alone
    assert len(CRF().fit([[{}], [{}]], [["A"], ["B"]]).predict_single([{}])) == 1  # no weight at all


def test_lengths_of_X_and_y(crf):
    refused("2 sequences.*1", CRF().fit, X, Y[:1])
    refused("sequence 1.*3.*2", CRF().fit, X, [Y[0], ["A", "B"]])
    refused("sequence 1.*3.*2", crf.log_proba, X, [Y[0], ["A", "B"]])
    refused("sequence 1.*3.*2", crf.score, X, [Y[0], ["A", "B"]])
    refused("2 in X and 1 in y", crf.score, X, Y[:1])
    refused("expected labels y", CRF().fit, X)
    refused("expected labels y", crf.score, X)
    refused("y_dev was given without X_dev", CRF().fit, X, Y, y_dev=Y)
    refused("patience was given without X_dev", CRF(patience=3).fit, X, Y)
    refused("X_dev was given without its labels y_dev", CRF().fit, X, Y, X)
    refused(r"sample_weight goes by keyword.*\[1\.0, 2\.0\]", CRF().fit, X, Y, [1.0, 2.0])
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 1])
    refused("sequence 0: expected 2 labels.*got 1", CRF().fit, corpus, [[0]])


# ---- labels


def test_unknown_label(crf):
    assert crf.score(X, [["A", "?"], Y[1]]) == pytest.approx(0.8)  # counts as an error
    refused("sequence 0, token 1: .*'\\?'", crf.log_proba, X, [["A", "?"], Y[1]])
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 5])
    ready = CRF().fit(corpus._replace(labels=np.array([0, 1], np.int32)))
    refused("sequence 0, token 1: expected label ids 0..1, got 5", ready.log_proba, corpus)


def test_missing_label_in_training():
    """`CRF` takes it with batch algorithms, see test_partial_labels.py. No model learns from nothing."""
    corpus = make_corpus([0, 1, 3], [0, 1, 2, 3], [0, 1, 0], labels=[0, 1, -1])
    refused("sequence 1, token 1: expected a label, got none", CRF("sgd").fit, corpus)
    refused("sequence 1, token 0: expected a label, got none", HMM().fit, X, [Y[0], [None, "A", "A"]])
    refused("sequence 0, token 0: expected a label, got none", CRF().fit, X, [[None] * len(y) for y in Y])
    refused(
        "sequence 0, token 0",
        CRF().fit(corpus._replace(labels=np.array([0, 1, 0], np.int32))).log_proba,
        corpus._replace(labels=np.array([-1, 1, 0], np.int32)),
    )


def test_labels_that_cannot_be_labels():
    refused("sequence 0, token 1.*hashable", CRF().fit, X, [["A", ["B"]], Y[1]], error=TypeError)
    refused("sequence 1, token 2", CRF().fit, X, [[1.0, 2.0], [1.0, 2.0, float("nan")]])


def test_one_label_only():
    crf = CRF(c2=0.1).fit(X, [["A", "A"], ["A"] * 3])
    assert crf.predict(X) == [["A", "A"], ["A"] * 3] and crf.objective_ == pytest.approx(0, abs=1e-12)
    assert crf.predict_marginals_single(X[0]) == [{"A": pytest.approx(1)}] * 2
    assert np.allclose(crf.log_proba(X, [["A", "A"], ["A"] * 3]), 0)


MODELS = [CRF, HMM, MEMM, lambda **more: DCRF(labels="y", **more)]
TABLE = pd.DataFrame({"word": ["a", "b"], "label": ["A", "B"]})
MAPPING = {"word": ["a", "b"]}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("template", [None, "U:%x[0,0]"])
def test_tables_and_dicts_are_refused_by_name(model, template):
    """A DataFrame was said to be 'word', or had no len(); of one that held labels the names became labels."""
    y = [[("A",), ("B",)], [("B",), ("A",), ("A",)]] if model is MODELS[3] else Y
    model = model(template=template)
    table, mapping = "got DataFrame: for _, rows in table.groupby", "got dict: list.*TokenColumns"
    refused(f"^X: expected a list of sequences, {table}", model.fit, TABLE, y, error=TypeError)
    refused(f"^X: expected a list of sequences, {mapping}", model.fit, MAPPING, y, error=TypeError)
    refused(f"^sequence 1: .*{table}", model.fit, [X[0], TABLE], y, error=TypeError)
    refused("^sequence 1: expected a list of tokens, got ", model.fit, [X[0], MAPPING], y, error=TypeError)
    refused(f"^y: expected a list of sequences, {table}", model.fit, X, TABLE, error=TypeError)
    refused(f"^sequence 0: expected .*labels, {table}", model.fit, X, [TABLE, y[1]], error=TypeError)
    refused("^sequence 0: .*got set, which has no order", model.fit, X, [set(y[0]), y[1]], error=TypeError)
    model = model.set_params(template=None).fit(X, y)
    refused(f"^X: expected a list of sequences, {table}", model.predict, TABLE, error=TypeError)
    refused(f"^y: expected a list of sequences, {table}", model.score, X, TABLE, error=TypeError)


def test_a_series_is_a_sequence():
    plain = CRF().fit(X, Y).weights_
    for data in (pd.Series(X), [pd.Series(sequence) for sequence in X]):
        assert np.array_equal(CRF().fit(data, pd.Series(Y)).weights_, plain)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("label", [-100, 0, -1, np.int64(-100), -1.0])
def test_padding_among_strings_is_asked_about(model, label):
    """It became a label."""
    pack = (lambda labels: [(label,) for label in labels]) if model is MODELS[3] else list
    y = [pack(["A", label]), pack(Y[1])]
    question = f"^sequence 0, token 1: the label {label} is among strings, is it padding"
    refused(question, model().fit, X, y)
    refused("-100 is among numbers >= 0, is it padding", model().fit, X, [pack([1, -100]), pack([1, 2, 0])])
    with pytest.warns(UserWarning, match="sequence 0, token 1: the label '' is among others, is it padding"):
        model().fit(X, [pack(["A", ""]), pack(Y[1])])


@pytest.mark.parametrize(
    "labels", [["A", 1, "B"], [-1, 1, 0], [-100, -200, 3], [True, "A", "A"], ["", "", ""], ["A", 0, 1]]
)
def test_labels_that_are_no_padding(labels, recwarn):
    assert set(CRF().fit([X[1]], [labels]).classes_) == set(labels) and not recwarn


@pytest.mark.parametrize("label", [float("nan"), np.nan, np.float32("nan"), pd.NA, pd.NaT])
def test_missing_labels_are_named(label):
    refused("sequence 0, token 1: the label is .*, a missing value", CRF().fit, X, [["A", label], Y[1]])


IOB1, IOB2 = [["I-A", "I-A"], ["O", "I-A", "B-A"]], [["B-A", "I-A"], ["O", "B-A", "B-A"]]


@pytest.mark.parametrize("model", [CRF, MEMM])
def test_a_refusal_names_the_scheme_of_the_text(model):
    refused("may not start .*; constraints='IOB1' allows all of them$", model(constraints="BIO").fit, X, IOB1)
    refused("may not .*; constraints='BIO' allows all of them$", model(constraints="IOB1").fit, X, IOB2)
    table = np.zeros((2, 2), bool)
    refused("sequence 1, token 2: 'A' may not follow 'A'$", model(constraints=table).fit, X, Y)


def test_weights_of_a_score_are_checked(crf):
    refused("sample_weight: expected one weight for each of the 2", crf.score, X, Y, [1.0])
    refused(
        "sample_weight: expected numbers, got \\['1', '2'\\]",
        CRF().fit,
        X,
        Y,
        sample_weight=["1", "2"],
        error=TypeError,
    )
    refused(
        "sample_weight: expected numbers, got", CRF().fit, X, Y, sample_weight=[10**400, 1], error=TypeError
    )


# ---- attributes and values


def test_unknown_attribute_is_ignored(crf):
    more = [[{**token, "never seen": 3.0} for token in seq] for seq in X]
    assert crf.predict_marginals(more) == crf.predict_marginals(X)
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 1])
    ready = CRF().fit(corpus)
    edges = corpus._replace(class_ptr=np.array([0, 2]), class_attr=np.array([0, 9], np.int32))
    assert ready.predict(edges) == ready.predict(corpus)  # so are unknown edge attributes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite(crf, value):
    bad = [X[0], [*X[1][:2], {"a": value}]]
    refused("sequence 1, token 2", CRF().fit, bad, Y)
    refused("sequence 1, token 2", crf.predict, bad)
    dense = [np.ones((2, 3)), np.ones((3, 3))]
    dense[1][2, 1] = value
    refused("sequence 1, token 2", CRF().fit, dense, Y)
    refused("attr_val.*position 1", make_corpus, [0, 1], [0, 2], [0, 1], attr_val=[1.0, value])
    corpus = make_corpus([0, 1], [0, 2], [0, 1], labels=[0])._replace(attr_val=np.array([1.0, value]))
    refused("attr_val.*position 1", CRF().fit, corpus)  # even if put together by hand


@pytest.mark.parametrize(
    "token, message",
    [
        ({"a": {"b": float("nan")}}, "'b': expected a finite value"),
        ({"a": 10**400}, "'a': expected a value within float64"),
        ({"a": [1, "b"]}, "expected attribute names that are strings, got 1"),
        ({b"\xff": 1}, "utf-8"),
        ([b"\xff"], "utf-8"),
    ],
)
def test_items_that_cannot_be_read_are_placed(crf, token, message):
    refused(
        f"sequence 1, token 1: .*{message}",
        crf.predict,
        [X[0], [X[1][0], token]],
        error=(ValueError, TypeError),
    )


def test_nested_too_deeply(crf):
    deep = loop = {}
    for _ in range(100_000):
        deep = {"a": deep}
    loop["a"] = loop
    for token in (deep, loop, {"b": 1.0, "a": deep}):
        refused("sequence 1, token 1: .* nested too deeply", crf.predict, [X[0], [X[1][0], token]])
    refused("token 0: expected attribute names", crf.predict, [[[deep]]], error=TypeError)


def test_no_attributes_at_all():
    empty = [[[] for _ in labels] for labels in Y]
    for more in ({}, {"all_possible_states": True, "all_possible_transitions": True, "c1": 1.0}):
        for algorithm in ("sbcd", "cd"):
            model = CRF(algorithm=algorithm, **more)
            refused("^the training sequences have no attributes: ", model.fit, empty, Y)


@pytest.mark.parametrize("algorithm", ["lbfgs", "owlqn", "auto", "sbcd"])
def test_the_largest_tolerance_is_a_tolerance(algorithm):
    CRF(algorithm=algorithm, tol=1e308).fit(X, Y)
    MEMM(tol=1e308).fit(X, Y)


LONG = "x" * 5000


@pytest.mark.parametrize(
    "call",
    [
        lambda: evaluation.chunk_report([["O"]], [["O"]], scheme=LONG),
        lambda: evaluation.bootstrap_interval([["O"]], [["O"]], metric=LONG),
        lambda: evaluation.paired_test([["O"]], [["O"]], [["O"]], method=LONG),
        lambda: plotting.confusion([["O"]], [["O"]], labels=[LONG]),
        lambda: Encoder.from_state({"header": {"kind": LONG}, "arrays": {}}),
        lambda: load_dataset(LONG),
        lambda: load_dataset("conll2000", LONG),
        lambda: load_dataset("conll2000", source=LONG),
        lambda: templates.load(LONG),
        lambda: templates.make_extractor("t", (LONG + "(",)),
        lambda: templates.make_extractor("ngrams", (LONG,)),
        lambda: sgd_l1(None, None, c1=1.0, c2=LONG),
        lambda: data_fetch.fetch(LONG),
        lambda: data_fetch.locate("conll2000", LONG),
    ],
)
def test_long_values_are_cut_in_every_message(call):
    with pytest.raises((ValueError, TypeError, data_fetch.FetchError)) as caught:
        call()
    text = str(caught.value)
    assert "xxxx" in text and len(text) < 1000 and "x" * 81 not in text


def test_corpus_put_together_by_hand_is_checked():
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 1])
    refused("seq_ptr", CRF().fit, corpus._replace(seq_ptr=np.array([0, 7])))
    refused("attr_idx", CRF().fit, corpus._replace(attr_idx=np.array([-3, 0], np.int32)))


def test_things_that_are_no_sequences(crf):
    refused("sequence 0: expected a list of tokens, got None", CRF().fit, [None], Y[:1], error=TypeError)
    refused("sequence 0: expected a list of tokens, got None", crf.predict, [None], error=TypeError)
    refused("X: expected a list of sequences, got None", CRF().fit, None, Y, error=TypeError)
    refused("X: expected a list of sequences, got None", crf.predict, None, error=TypeError)
    refused("expected a list of sequences, got 3", CRF().fit, X, 3, error=TypeError)
    for bad in ([1, 2], [[1, 2]], ["ab"], 3):
        with pytest.raises((TypeError, ValueError)):
            CRF().fit(bad, Y[:1])
        with pytest.raises((TypeError, ValueError)):
            crf.predict(bad)


# ---- parameters


@pytest.mark.parametrize(
    "params, message",
    [
        ({"c2": -1}, "c2: expected a finite number >= 0, got -1"),
        ({"c1": float("nan")}, "c1: expected a finite number >= 0, got nan"),
        ({"c2": "abc"}, "c2: expected a finite number >= 0, got 'abc'"),
        ({"c2": np.array([1.0])}, "c2: expected a finite number >= 0"),
        ({"min_freq": -2}, "min_freq"),
        ({"max_iterations": -1}, "max_iterations: expected an integer >= 0, got -1"),
        ({"max_iterations": 2.5}, "max_iterations: expected an integer >= 0, got 2.5"),
        ({"num_memories": 0}, "num_memories: expected an integer >= 1"),
        ({"period": 0, "delta": 1e-3}, "period"),
        ({"tol": -1e-3}, "tol"),
        ({"tol": 10**400}, "tol: expected a finite number >= 0, got 1000"),
        ({"c1": 10**400}, "c1: expected a finite number >= 0, got 1000"),
        ({"n_jobs": np.array([1, 2])}, r"n_jobs: expected an integer .* got array\(\[1, 2\]\)"),
        ({"n_jobs": 0}, "n_jobs: expected an integer"),
        ({"patience": 0}, "patience"),
        ({"on_violation": "ignore"}, "on_violation: expected one of 'raise', 'drop', got 'ignore'"),
        ({"constraints": "BIO"}, "got 'A'"),
    ],
)
def test_parameters_out_of_range(params, message):
    refused(message, CRF(**params).fit, X, Y, error=(ValueError, TypeError))


def test_sample_weights_that_are_no_numbers():
    refused("sample_weight: expected numbers, got 'ab'", CRF().fit, X, Y, sample_weight="ab", error=TypeError)


@pytest.mark.parametrize(
    "weight, message",
    [
        ([1.0], r"each of the 2 sequences, got shape \(1,\)"),
        ([1.0, -2.0], "got -2.0 for sequence 1"),
        ([float("nan"), 1.0], "got nan for sequence 0"),
        ([0.0, 0.0], "only zeros"),
    ],
)
def test_sample_weights(weight, message):
    refused(message, CRF().fit, X, Y, sample_weight=weight)


# ---- constraints


def test_every_path_forbidden(crf):
    nowhere = {"allowed": np.zeros((2, 2), bool)}
    refused(
        "2 of 2 training sequences violate.*sequence 0, token 1: 'B' may not follow 'A'",
        CRF(constraints=nowhere).fit,
        X,
        Y,
    )
    short = CRF(constraints=nowhere).fit([[{"a": 1}], [{"b": 1}]], [["A"], ["B"]])
    assert short.predict([[{"a": 1}], [], [{"b": 1}]]) == [["A"], [], ["B"]]
    long = [[{"a": 1}], [{"a": 1}, {"b": 1}]]
    for call in (short.predict, short.predict_marginals, lambda x: list(short.predict_edge_marginals(x))):
        refused("sequence 1", call, long)
    refused("sequence 1", short.log_proba, long, [["A"], ["A", "B"]])


# ---- sizes and scores at the limit


def test_a_million_tokens(crf):
    n = 1_000_000
    rng = np.random.default_rng(0)
    corpus = make_corpus(
        [0, n],
        np.arange(n + 1),
        rng.integers(0, 2, size=n).astype(np.int32),
        labels=rng.integers(0, 2, size=n),
    )
    model = CRF(c2=1.0, max_iterations=2).fit(corpus)
    assert np.isfinite(model.objective_) and len(model.predict_array(corpus)[0]) == n
    assert np.isfinite(model.log_proba(corpus)).all()
    table = model.predict_marginals_array(corpus)[0]
    assert np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-9)


def test_weights_of_ten_thousand(crf):
    big = CRF(c2=0.1).fit(X, Y)
    big.weights_ = big.weights_ / np.abs(big.weights_).max() * 1e4
    long = [X[1] * 50]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        marginals = big.predict_marginals_array(long)[0]
        # scores add up to a million here, whose last bit is 1e-10
        assert np.isfinite(marginals).all() and np.allclose(marginals.sum(axis=1), 1, rtol=0, atol=1e-7)
        path = big.predict(long)
        assert np.isfinite(big.log_proba(long, path)).all() and big.log_proba(long, path)[0] <= 0
        assert all(np.isfinite(pair).all() for pair in big.predict_edge_marginals(long))
    ids = big.predict_array(long)[0]
    assert np.array_equal(marginals.argmax(axis=1), ids)  # nearly certain: both decoders agree


@pytest.mark.parametrize(
    "model", [CRF(c2=0.1, all_possible_states=True), MEMM(c2=0.1, all_possible_states=True)]
)
def test_scores_that_exceed_float64(model):
    """inf - inf at label B: a decoder that compares would pass over B in silence,
    and answer A with probability 1.
    """
    model.fit([[{"a": 1, "b": 1}, {"b": 1}]], [["A", "B"]])
    features = model.features_
    place = {
        (a, y): features.node_ptr[i] + j
        for i, a in enumerate(model.encoder_.attribute_names())
        for j, y in enumerate("AB")
    }
    model.weights_ = np.zeros_like(model.weights_)
    model.weights_[place["a", "B"]], model.weights_[place["b", "B"]] = 1e308, -1e308
    long = [[{"b": 1}], [{"a": 1}, {"a": 10.0, "b": 10.0}]]
    for call in (model.predict, model.predict_marginals, lambda x: list(model.predict_edge_marginals(x))):
        refused("sequence 1, token 1: expected scores within float64", call, long)
    refused("sequence 1, token 1: expected scores within float64", model.log_proba, long, [["A"], ["A", "A"]])
    assert model.predict([[{"b": 1}], [{"a": 1}]]) == [["A"], ["B"]]  # large, and not too large


def test_huge_values_do_not_become_nan():
    bad = [[{"a": 1e300}, {"b": -1e300}], [{"b": 1e300}]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            crf = CRF(c2=0.1, max_iterations=20).fit(bad, [["A", "B"], ["B"]])
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert np.isfinite(crf.weights_).all() and np.isfinite(crf.objective_)


# ---- model files (the rest is in test_saving.py)


def test_saving_to_a_bad_place(tmp_path, crf):
    with pytest.raises(FileNotFoundError):
        crf.save(tmp_path / "no" / "such" / "folder")
    with pytest.raises(FileNotFoundError):
        CRF.load(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 5000, b"a\0b"])
def test_names_that_no_file_can_have(crf, name):
    refused("cannot save the model: expected the name of a file, got b?'", crf.save, name)
    for kind in (CRF, DCRF):
        refused("cannot load the model: expected the name of a file, got b?'", kind.load, name)
    refused("from_crfsuite: expected the name of a file, got b?'", CRF.from_crfsuite, name)
    if isinstance(name, str):
        refused("template '.* is neither a file nor a shipped template", templates.as_template, f"t{name}")
    refused(
        "not a readable zip file|no such file",
        data_fetch.read_member,
        f"t{name}",
        "x",
        error=data_fetch.FetchError,
    )


@pytest.mark.parametrize("name", [3, None, ["a"]])
def test_what_is_no_name_of_a_file(crf, name):
    refused("cannot save the model: expected the name of a file, got ", crf.save, name)
    refused("cannot load the model: expected the name of a file, got ", CRF.load, name)
    refused(
        "template: expected a Template, a name, a path or a text, got ", Encoder, name or 3, error=TypeError
    )


@pytest.mark.parametrize("name", [["conll2000"], {"a"}, 3, ("conll2000",), b"conll2000"])
def test_what_is_no_name_of_a_data_set(name):
    for call in (data_fetch.fetch, lambda name: data_fetch.verify([name])):
        refused("expected the name of one data set: ", call, name, error=data_fetch.FetchError)
    refused("expected the name of one", data_fetch.locate, name, "x", error=data_fetch.FetchError)
    refused("has no file ", data_fetch.locate, "conll2000", name, error=data_fetch.FetchError)
    refused("there is no data set ", load_dataset, name)
    refused("timeout: expected", data_fetch.fetch, "conll2000", timeout=[name], error=data_fetch.FetchError)


def test_surrogates_in_labels_and_attributes_are_saved(tmp_path):
    """Texts of a file that was read with errors="surrogateescape" have them."""
    a, b, x, z = "a\udcff", "b\ud800", "x\udc80", "z\udfff"
    columns, labels = [[a, b, a], [b, a]], [[x, z, x], [z, x]]
    items = [[{token: 1.0} for token in sequence] for sequence in columns]
    for given, more in (
        (items, {}),
        (columns, {"template": f"U{a}:%x[0,0]\nB", "tag_dictionary": 1}),
        ([[{a: token} for token in sequence] for sequence in columns], {"template": "U:%x[0,0]"}),
    ):
        kept = CRF(c2=0.1, **more).fit(given, labels)
        kept.save(tmp_path / "m")
        found = CRF.load(tmp_path / "m")
        assert found.predict(given) == kept.predict(given) == labels
        assert found.encoder_.attribute_names() == kept.encoder_.attribute_names()


def test_a_folder_is_no_file(tmp_path, crf):
    with pytest.raises(IsADirectoryError, match="expected the name of a file, got the folder"):
        crf.save(tmp_path)
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}.*.tmp"))


def test_what_killed_saves_left_is_swept(tmp_path, crf):
    """Only files of this name, an hour old: younger ones may belong to a living save."""
    digits = "0123456789ab"
    old = [f"m.{digits}.tmp", f"m2.{digits}.tmp", f"xm.{digits}.tmp", "m.tmp", f"m.{digits}0.tmp", "m.x.tmp"]
    old.append(f"m.{digits}.tmp.mine")
    for name in [*old, "m.ba9876543210.tmp"]:
        (tmp_path / name).write_bytes(b"x")
        if name in old:
            os.utime(tmp_path / name, (1, 1))
    crf.save(tmp_path / "m")
    assert {path.name for path in tmp_path.iterdir()} == {*old[1:], "m.ba9876543210.tmp", "m"}


def test_labels_that_cannot_be_saved(tmp_path):
    crf = CRF(c2=0.1).fit([[{"a": 1}]], [[b"bytes"]])
    refused("cannot be saved", crf.save, tmp_path / "m", error=TypeError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, change",
    [
        ("features.node_label", lambda a: a + 100),
        ("features.node_ptr", lambda a: a * 2),
        ("features.edge_prev", lambda a: a - 9),
        ("weights", lambda a: a[:-1]),
        ("weights", lambda a: a * np.nan),
        ("features.node_ptr", lambda a: a[:-1]),
    ],
)
def test_model_file_whose_arrays_do_not_fit(tmp_path, crf, name, change):
    crf.save(tmp_path / "m")
    header, arrays = load_arrays(tmp_path / "m", "CRF")
    arrays[name] = change(arrays[name])
    save_arrays(tmp_path / "m", "CRF", header, arrays)  # a valid checksum around nonsense
    refused("m: refused", CRF.load, tmp_path / "m", error=ModelFileError)
