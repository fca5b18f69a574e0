"""`DCRF` as users call it: data in several forms, what comes back, files, bad input."""

import numpy as np
import pandas as pd
import pytest
from helpers.dynamic import NP, POS, WORDS, X, Y
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from crfbook import CRF, DCRF, ModelFileError, TokenColumns
from crfbook.data.constraints import Constraints
from crfbook.dynamic import (
    Clique,
    check_engine,
    factorial,
    hierarchical,
    linear,
    marginals,
    memory,
    second_order,
)
from crfbook.dynamic.templates import nodes

pytestmark = pytest.mark.kernels
NAMES = {"labels": ("pos", "np")}
AB, PAIR = nodes("pos", "np"), [Clique(((0, "pos"), (0, "np")))]
FREE = np.ones((3, 3), bool)
NAMED = pd.DataFrame(True, ["D", "N", "V"], ["B", "I", "O"])
BOTH_WAYS = [*factorial("pos", "np", skew=True), Clique(((1, "pos"), (0, "np")))]


def fitted(**options):
    return DCRF(**{**NAMES, "c2": 0.1, **options}).fit(X, Y)


def test_a_model_learns_and_says_what_it_learnt():
    model = fitted()
    assert model.predict(X) == Y and model.score(X, Y) == 1.0
    assert model.classes_ == {"pos": ["D", "N", "V"], "np": ["B", "I", "O"]}
    assert model.engine_ == "elimination" and model.status_ == "converged"
    p = model.predict_marginals(X)
    assert [len(rows) for rows in p] == [3, 2, 2, 0, 4]
    for labels, rows in zip(Y, p, strict=True):
        for label, row in zip(labels, rows, strict=True):
            assert [max(row[name], key=row[name].get) for name in ("pos", "np")] == list(label)
            assert [sum(row[name].values()) for name in row] == pytest.approx([1.0, 1.0])
    ranked = model.predict_kbest(X, 3)
    assert [found[0][0] for found in ranked] == Y and ranked[3] == [([], 0.0)]
    log_p = model.log_proba(X, Y)
    assert [found[0][1] for found in ranked] == pytest.approx(log_p, abs=1e-12)
    loss = -log_p.sum() + 0.1 * model.weights_ @ model.weights_
    assert model.objective_ == pytest.approx(loss, rel=1e-10)
    assert len(model.history_) == model.n_iter_
    assert model.table("np(t-1), np(t)").shape == (3, 3)


def test_one_chain_is_a_linear_chain_crf():
    chain = DCRF("linear", labels=("pos",), c2=0.2, tol=1e-9).fit(X, [[(p,) for p in row] for row in POS])
    # a CRF has no bias of labels but in an attribute; that attribute is in X, and both are penalised
    twice = [[[*token, "bias of labels"] for token in row] for row in X]
    crf = CRF(c2=0.2, tol=1e-9, all_possible_transitions=True).fit(twice, POS)
    assert chain.objective_ == pytest.approx(crf.objective_, rel=1e-7)
    np.testing.assert_allclose(
        chain.log_proba(X, [[(p,) for p in row] for row in POS]), crf.log_proba(twice, POS), atol=1e-4
    )


def test_columns_dicts_and_tuples_are_the_same_data():
    want = DCRF(**NAMES, c2=0.1, template="U:%x[0,0]")
    flat = [[row[j] for rows in table for row in rows] for table, j in ((Y, 0), (Y, 1))]
    ptr = np.cumsum([0, *map(len, WORDS)])
    words = [w for row in WORDS for w in row]
    text = TokenColumns({"word": words}, ptr)
    a = clone(want).fit(text, Y)
    b = clone(want).fit(text, {"pos": POS, "np": NP})
    c = clone(want).fit(TokenColumns({"word": words, "pos": flat[0]}, ptr, flat[1], "np"))
    for other in (b, c):
        np.testing.assert_array_equal(a.weights_, other.weights_)
    assert c.predict(text) == a.predict(text)
    with_labels = TokenColumns({"word": words, "pos": flat[0]}, ptr, flat[1], "np")
    assert c.score(with_labels) == a.score(text, Y)


def test_bit_identical_threads_and_a_warm_start():
    rng = np.random.default_rng(0)
    X = [[[f"w{rng.integers(50)}" for _ in range(3)] for _ in range(rng.integers(1, 30))] for _ in range(200)]
    Y = [[(int(len(a[0])), int(rng.integers(3))) for a in row] for row in X]
    one, two = (DCRF(**NAMES, c2=0.5, n_jobs=n, max_iterations=8).fit(X, Y) for n in (1, 2))
    np.testing.assert_array_equal(one.weights_, two.weights_)
    more = clone(one).set_params(warm_start=True, max_iterations=3).fit(X, Y)
    first = more.objective_
    assert more.fit(X, Y).objective_ < first


def test_unknown_labels_are_summed_over():
    held = [[(None if t % 2 else a, b) for t, (a, b) in enumerate(row)] for row in Y]
    model = DCRF(**NAMES, c2=0.3).fit(X, held)
    assert model.status_ == "converged" and model.score(X, held) == 1.0
    assert model.objective_ == pytest.approx(
        -model.log_proba(X, held).sum() + 0.3 * model.weights_ @ model.weights_
    )
    assert (model.log_proba(X, held) >= model.log_proba(X, Y) - 1e-12).all()


def test_l1_leaves_weights_out_and_scikit_learn_selects():
    model = fitted(c1=0.5, c2=0.01)
    assert model.status_ == "converged" and 0 < np.count_nonzero(model.weights_) < 0.5 * len(model.weights_)
    scores = cross_val_score(DCRF(**NAMES), X * 3, Y * 3, cv=3)
    assert (scores > 0.5).all()


def test_constraints_hold():
    allowed = pd.DataFrame(True, ["D", "N", "V"], ["B", "I", "O"])
    allowed.loc["V", ["B", "I"]] = False
    model = fitted(constraints={"np": {"start": ["B", "O"]}, ("pos", "np"): allowed}, max_iterations=1)
    for row in model.predict([[["x"]] * 4] * 3):
        assert row[0][1] != "I" and all(np_ == "O" for pos, np_ in row if pos == "V")
    assert model.log_proba(X[:1], [[("V", "B"), ("N", "I"), ("V", "O")]])[0] == -np.inf
    with pytest.raises(ValueError, match=r"sequence 0, token 0: the constraints forbid its label.*'np'"):
        DCRF(**NAMES, constraints={"np": {"start": ["O"]}}).fit(X, Y)
    allowed.loc["N"] = False
    with pytest.raises(
        ValueError, match=r"sequence 0, token 1: the constraints forbid its labels of pos\(t\), np"
    ):
        DCRF(**NAMES, constraints={("pos", "np"): allowed}).fit(X, Y)


@pytest.mark.parametrize("cliques", ["factorial", BOTH_WAYS])
def test_unknown_labels_that_cannot_be(cliques):
    """Between two labels that are known, or in a sentence without any: the sentence is named."""
    allowed = pd.DataFrame(True, list("BIO"), list("BIO"))
    allowed.loc["B", ["B", "O"]] = allowed.loc["I", ["B", "I"]] = False  # B I O B
    limits = {"np": {"allowed": allowed, "start": ["B"]}}
    options = {"cliques": cliques, **NAMES, "constraints": limits}
    good = [("D", "B"), ("N", "I"), ("V", "O")]
    for bad in ([("D", "B"), ("N", None), ("D", "B")], [(None, None), ("D", "B")]):
        rows = [good, [("D", None), *good[1:]], bad, good]
        with pytest.raises(ValueError, match="sequence 2: the constraints forbid every labelling"):
            DCRF(**options).fit([[["x"]] * len(row) for row in rows], rows)


def test_a_memory_remembers():
    cliques = [
        *linear("np"),
        *memory("np", "last", "last other", ("O",)),
        *memory("np", "seen", "seen", ("I",)),
    ]
    model = DCRF(cliques, labels="np", c2=0.1).fit(X, [[(c,) for c in row] for row in NP])
    assert model.classes_["last"] == [None, "B", "I"] and model.classes_["seen"] == [False, True]
    assert model.engine_ == "junction" and model.predict(X) == [[(c,) for c in row] for row in NP]
    p = model.predict_kbest([X[4]], 81)[0]
    assert len(p) == 81 and sum(np.exp(log_p) for _, log_p in p) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["factorial", "second order", "hierarchical", "faithful", "constrained"])
def test_files(name, tmp_path):
    rows, names, options = Y, ("pos", "np"), {}
    if name == "second order":
        rows, names, options = [[(c,) for c in row] for row in NP], ("np",), {"cliques": second_order("np")}
    if name == "hierarchical":
        rows = [
            [(a, b, t % 2 == 1) for t, (a, b) in enumerate(row)]
            for row in [[("u", p) for p in row] for row in POS]
        ]
        names, options = ("up", "low", "end"), {"cliques": hierarchical("up", "low", "end")}
    if name == "faithful":
        options = {"cliques": factorial("pos", "np", features="supported", node_features="none")}
    if name == "constrained":
        options = {"constraints": {"np": {"start": ["B", "O"]}, ("pos", "np"): np.ones((3, 3), bool)}}
    model = DCRF(labels=names, c2=0.1, **options).fit(X, rows)
    model.save(tmp_path / "model")
    again = DCRF.load(tmp_path / "model")
    assert again.predict(X) == model.predict(X) and again.classes_ == model.classes_
    np.testing.assert_array_equal(again.log_proba(X, rows), model.log_proba(X, rows))
    (tmp_path / "model").write_bytes((tmp_path / "model").read_bytes()[:-200])
    with pytest.raises(ModelFileError):
        DCRF.load(tmp_path / "model")
    CRF(max_iterations=1).fit(X, POS).save(tmp_path / "crf")
    with pytest.raises(ModelFileError):
        DCRF.load(tmp_path / "crf")


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"cliques": [Clique(((0, "pos"), (0, "tag")))]}, Y, "clique 0: expected a chain among 'pos', 'np'"),
        ({"cliques": [((0, "pos"),)]}, Y, "template: expected a clique for each chain, got none with 'np'"),
        ({"cliques": [()]}, Y, "clique 0: expected labels as"),
        ({"cliques": "cascade"}, Y, "cliques: expected one of 'factorial', 'linear', got 'cascade'"),
        ({}, POS, r"sequence 0, token 0: expected 2 labels \(pos, np\), got 'D'"),
        ({}, {"pos": POS, "np": NP[:-1]}, "sequence 4: expected as many labels .*, got None and 4"),
        ({}, {"pos": POS, "np": [*NP[:4], ["B"]]}, "sequence 4: expected as many labels of 'np' as of 'pos'"),
        ({}, {"pos": POS}, "y: expected the columns pos, np, got pos"),
        ({}, {"pos": POS, "np": [[None] * len(r) for r in NP]}, "column 'np': expected some labels, got 11"),
        ({}, None, "expected labels y"),
        ({"labels": ("pos", "pos")}, Y, "labels: expected different names"),
        ({"inference": "loopy"}, Y, "inference: expected one of 'auto', 'exact', .*, got 'loopy'"),
        ({"constraints": "BIO"}, Y, "constraints: expected {column: constraints"),
        ({"constraints": {"tag": "BIO"}}, Y, "constraints: expected one of 'pos', 'np', got 'tag'"),
        ({"constraints": {("pos", "np"): np.ones((2, 3), bool)}}, Y, r"expected a boolean table \(3, 3\)"),
        ({"c2": -1}, Y, "c2: expected"),
        ({"cliques": BOTH_WAYS, "inference": "elimination"}, Y, "'junction' takes any"),
        ({"cliques": factorial("pos", "np"), "inference": "junction", "max_cells": 20}, Y, "cells"),
        ({"inference": "elimination", "max_cells": 8}, Y, "expected at most 8 joint labels .*, got 9"),
        ({"labels": 5}, Y, "labels: expected different names of columns, got 5"),
        ({"cliques": None}, Y, "cliques: expected a list of cliques, got None"),
        ({"cliques": [*AB, Clique(((0, "pos"), (0, 5)))]}, Y, "clique 2: expected a string as the name"),
        ({"cliques": [*AB, Clique(((0, "np"), (1, "np")), labels=3)]}, Y, "clique 2: expected a tuple of"),
        ({"cliques": [*AB, *PAIR, Clique(((0, "np"), (0, "pos")))]}, Y, "clique 3: expected each"),
        ({"cliques": [*AB, Clique(((0, "pos"), (0, "np")), "bias", "seen")]}, Y, "clique 2: expected three"),
        (
            {"cliques": [*AB, Clique(((0, "m"), (1, "np"), (1, "m")), "none", "seen")]}, Y,
            r"clique 2: expected \(\(0, name\), \(0, chain\), \(1, name\)\)",
        ),
        (
            {"cliques": [*AB, Clique(((0, "m"), (0, "np"), (1, "np")), "none", "seen")]}, Y,
            r"clique 2: expected \(\(0, name\)",
        ),
        ({"cliques": [*AB, *memory("np", "pos", "seen", "I")]}, Y, "another name of a memory than 'pos'"),
        ({"cliques": [*AB, *memory("tag", "m", "seen", "I")]}, Y, "a chain among .*, got 'm'"),
        ({"constraints": {5: "BIO"}}, Y, "constraints: expected one of 'pos', 'np', got 5"),
        ({"constraints": {("pos", "pos"): FREE}}, Y, "expected a chain, or two different ones"),
        ({"constraints": {("pos", "np", "pos"): FREE}}, Y, "expected a chain, or two different ones"),
        ({"constraints": {("pos", "np"): FREE.astype(float)}}, Y, "expected a boolean table .*, got float64"),
        ({"constraints": {("pos", "np"): [[True], [True, True]]}}, Y, "constraints: expected a table, got"),
        ({"constraints": {("pos", "np"): NAMED.iloc[1:]}}, Y, "the table has no row for the label 'D'"),
        ({"constraints": {("pos", "np"): NAMED.iloc[[0, 0, 1, 2]]}}, Y, "expected one row of the table"),
        ({"constraints": {"np": Constraints(FREE, FREE[0], FREE[0], FREE)}}, Y, "expected no label_sets"),
        ({}, Y[:-1], "X has 5 sequences but y has 4"),
        ({}, [Y[0][:2], *Y[1:]], "sequence 0: 3 tokens but 2 labels"),
    ],
)  # fmt: skip
def test_bad_input(options, y, message):
    with pytest.raises(ValueError, match=message):
        DCRF(**{**NAMES, **options}).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (5, "expected a list of sequences, got 5"),
        ([5] * 5, "sequence 0: expected a list of labels, got 5"),
        ({"pos": POS, "np": 5}, "expected a list of sequences, got 5"),
        ({"pos": POS, "np": ["B", *NP[1:]]}, "sequence 0: expected a list of labels, got 'B'"),
        ([[(["D"], "B")]] * 5, "sequence 0, token 0: a label must be hashable"),
    ],
)
def test_bad_types(y, message):
    with pytest.raises(TypeError, match=message):
        DCRF(**NAMES).fit(X, y)


def test_generators_are_read_once():
    want = fitted()
    for y in ((iter(row) for row in Y), {"pos": map(iter, POS), "np": map(iter, NP)}):
        model = DCRF(**NAMES, c2=0.1).fit(iter(X), y)
        np.testing.assert_array_equal(model.weights_, want.weights_)
    assert model.score(iter(X), iter(Y)) == 1.0
    np.testing.assert_array_equal(model.log_proba(iter(X), iter(Y)), model.log_proba(X, Y))


def test_score_weighs_sentences_and_needs_labels():
    model = fitted()
    wrong = [[("V", "B"), *Y[0][1:]], *Y[1:]]
    assert model.score(X, wrong) == 10 / 11 and model.score(X, wrong, [3, 1, 1, 1, 1]) == 14 / 17
    # a token without any label is not right: it does not count
    held = [wrong[0][:1] + [(None, None)] * 2, [(None, None)] * 2, *wrong[2:]]
    assert model.score(X, held) == 6 / 7
    for y, weight, message in (
        (Y[:-1], None, "expected as many sequences in both, got 5 in X and 4 in y"),
        ([Y[0][:2], Y[1] + Y[0][2:], *Y[2:]], None, "sequence 0: expected 3 labels, one for each token of X"),
        ([[(None, None)] * len(row) for row in Y], None, "expected at least one token with a label"),
        (Y, [1, 0], "one weight for each of the 5 sequences"),
        (Y, [-1] * 5, "expected finite numbers >= 0"),
        (Y, [0, 0, 0, 1, 0], "expected at least one token with a label and a weight"),
    ):
        with pytest.raises(ValueError, match=message):
            model.score(X, y, weight)
    with pytest.raises(ValueError, match="sequence 0: expected 3 labels"):
        model.log_proba(X, [Y[0][:2], Y[1] + Y[0][2:], *Y[2:]])


def test_the_name_of_one_column_may_be_a_string(tmp_path):
    rows = [[(c,) for c in row] for row in NP]
    model, want = (DCRF("linear", labels=names, c2=0.1).fit(X, rows) for names in ("np", ("np",)))
    assert model.predict_marginals(X) == want.predict_marginals(X)
    model.save(tmp_path / "model")
    assert DCRF.load(tmp_path / "model").predict(X) == rows


def test_columns_are_those_of_the_fit():
    model = fitted()
    want = model.predict_marginals(X)
    model.set_params(labels=("np", "pos"))
    assert model.predict(X) == Y and model.predict_marginals(X) == want and model.score(X, Y) == 1.0


def test_constraints_of_a_pair_in_both_orders():
    """Both hold, whichever comes first."""
    first, second = FREE.copy(), FREE.copy()
    first[2, 0] = second[1, 0] = False  # V with B; I with D
    for spec in (
        {("pos", "np"): first, ("np", "pos"): second},
        {("np", "pos"): second, ("pos", "np"): first},
        {("np", "pos"): first.T & second, "np": None},
    ):
        found = fitted(constraints=spec, max_iterations=0).predict_kbest([[["x"]]], 9)[0]
        want = {(p, c) for p in "DNV" for c in "BIO"} - {("V", "B"), ("D", "I")}
        assert {labels[0] for labels, _ in found} == want


def test_cliques_without_any_weight():
    cliques = [Clique(((0, name),), "none") for name in ("pos", "np")]
    model = DCRF(cliques, **NAMES).fit(X, Y)
    assert model.weights_.size == 0 and model.status_ == "converged"
    np.testing.assert_allclose(model.log_proba(X, Y), [-len(row) * np.log(9) for row in Y], rtol=1e-12)


def test_a_memory_of_one_label_by_its_name():
    """A string is one label, not its characters."""
    (update, _), (same, _) = (memory("np", "m", "seen", labels) for labels in ("OUT", ["OUT"]))
    assert update == same and update.labels == ("OUT",)


def test_a_wide_clique_of_long_sentences_is_refused_before_training():
    """Of five chains, the junction tree of three tokens is narrower than that of many."""
    names = tuple("abcde")
    rows = [[tuple(np.random.default_rng(t).integers(0, 2, 5).tolist()) for t in range(12)], [(0,) * 5] * 3]
    text = [[["x"]] * 12, [["x"]] * 3]
    options = {"labels": names, "inference": "junction", "max_iterations": 1}
    few = DCRF(**options, max_cells=32).fit(text[1:] * 2, [[(0, 1, 0, 1, 0), (1, 0, 1, 0, 1), (0,) * 5]] * 2)
    assert few.engine_ == "junction"
    with pytest.raises(ValueError, match="expected cliques of at most 32 cells"):
        DCRF(**options, max_cells=32).fit(text, rows)
    with pytest.raises(ValueError, match="expected cliques of at most 32 cells"):
        check_engine(few.layout_, few.encoder_.transform(text), "junction", 32)


def test_elimination_gives_way_where_its_table_is_too_wide():
    """Labels that only those of their token are joined with have small junction trees, and a joint table of
    any size.
    """
    rows = [[(t, t, t) for t in range(20)]]
    cliques = [*nodes("a", "b", "c"), *(Clique(((0, a), (0, b))) for a, b in ("ab", "bc"))]
    model = DCRF(cliques, labels=("a", "b", "c"), max_iterations=1, max_cells=7999).fit([[["x"]] * 20], rows)
    assert model.engine_ == "junction"
    model.set_params(max_cells=8000).fit([[["x"]] * 20], rows)
    assert model.engine_ == "elimination"


def test_a_chain_with_one_label_and_short_sequences():
    one = [[(p, "x") for p in row] for row in POS]
    model = DCRF(**NAMES, c2=0.1).fit(X, one)
    plain = DCRF("linear", labels=("pos",), c2=0.1).fit(X, [[(p,) for p in row] for row in POS])
    assert model.predict(X) == one
    # the same labels; the penalty differs, as two tables have the bias of a label
    want = plain.log_proba(X, [[(p,) for p in row] for row in POS])
    np.testing.assert_allclose(model.log_proba(X, one), want, atol=1e-2)
    assert model.predict([[], [["bias"]], []])[0::2] == [[], []]


def test_a_clique_that_sticks_out_of_every_sentence_counts_nothing():
    cliques = [*linear("pos", "np"), Clique(((0, "pos"), (9, "pos")))]
    model = DCRF(cliques, **NAMES, c2=0.1).fit(X, Y)
    assert not model.table("pos(t-9), pos(t)").any() and model.predict(X) == Y


def test_marginals_of_labels_do_not_hold_those_of_pairs(monkeypatch):
    """Of pairs that depend on the text there are L_1 L_2 a token; users get L_1 + L_2."""
    seen = []

    def watched(*args, **more):
        found = marginals(*args, **more)
        seen.append(found[0].shape)
        return found

    model = fitted(cliques=factorial("pos", "np", features="supported"))
    monkeypatch.setattr("crfbook.dynamic.marginals", watched)
    p = model.predict_marginals_array(X)
    assert seen == [(11, 6)] and model.layout_.n_cells > 15
    for name in p:
        np.testing.assert_allclose(np.concatenate(p[name]).sum(axis=1), 1.0, rtol=1e-12)


def test_scores_too_far_apart_for_elimination_and_a_wide_tree():
    model = fitted(max_cells=9)
    model.weights_ = 1e3 * model.weights_
    with pytest.raises(
        ValueError, match="scores too far apart for elimination .* at most 9 cells .*max_cells"
    ):
        model.log_proba(X, Y)


def test_potentials_of_a_thousand_nats():
    model = fitted()
    model.weights_ = 1e3 * model.weights_
    assert np.isfinite(model.log_proba(X, Y)).all() and model.predict(X) == Y
    assert np.isfinite(model.predict_marginals_array(X)["np"][0]).all()
    model.weights_ = np.full_like(model.weights_, 1e308)
    with pytest.raises(ValueError, match="float64"):
        model.predict(X)
