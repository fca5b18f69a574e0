"""`CRF` with labels that are known in part, in training and in `given=`: enumeration, alphabets, errors."""

import itertools
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from helpers.corpora import chains_of
from helpers.problems import central_differences
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from crfbook import CRF, DCRF, HMM, MEMM, TokenColumns, brute
from crfbook.chain.objective import LOG_LOSS_FORMS
from crfbook.data.corpus import make_corpus
from crfbook.data.features import empirical_counts
from crfbook.decoding import DECODERS, FORMS
from crfbook.encoding.tag_dictionary import TagDictionary
from crfbook.models.fitting import warn_of_runaway
from crfbook.models.inputs import training_set
from crfbook.models.parameters import ALGORITHMS, check_settings

X = [[["the"], ["old"], ["man"]], [["a"], ["man"]], [["the"], ["dog"], ["bites"], ["x"]], [], [["a"]]]
Y = [["O", None, {"B-X", "I-X"}], ["O", "B-X"], [None, "B-Y", None, "O"], [], [None]]
FULL = [["O", "B-X", "I-X"], ["O", "B-X"], ["O", "B-Y", "O", "O"], [], ["O"]]


def sets_of(model, y):
    """bool (T, L): the labels that may be right."""
    every = set(model.classes_)
    kept = [every if label is None else label if isinstance(label, set) else {label} for label in y]
    return np.array([[name in names for name in model.classes_] for names in kept]).reshape(len(y), -1)


def enumerated(model, w, y=Y):
    """What training minimises, by listing all labellings."""
    corpus, total = model.encoder_.transform(X), 0.0
    for chain, labels in zip(chains_of(corpus, model.features_, w, model.constraints_), y, strict=True):
        if labels:
            total += brute.partial_loss(*chain, sets_of(model, labels))[0]
    return total + 0.5 * w @ w


@pytest.mark.parametrize("constraints", [None, "BIO"])
def test_training_ends_where_the_enumerated_objective_is_stationary(constraints):
    model = CRF(c2=0.5, constraints=constraints, all_possible_states=True).fit(X, Y)
    assert model.status_ == "stationary point" and model.classes_ == ["B-X", "B-Y", "I-X", "O"]
    assert model.objective_ == pytest.approx(enumerated(model, model.weights_), rel=1e-10)
    slope = central_differences(lambda w: enumerated(model, w), model.weights_)
    assert np.abs(slope).max() < 1e-3 + 1e-6  # 1000 tol nats, and what differences add


def test_what_is_known_alone_is_what_it_was():
    plain = CRF(c2=0.5).fit(X, FULL)
    again = CRF(c2=0.5).fit(X, [[{label} for label in labels] for labels in FULL])
    assert np.array_equal(plain.weights_, again.weights_) and plain.status_ == again.status_ == "converged"
    assert plain.objective_ == again.objective_


def test_a_sentence_of_which_nothing_is_known_changes_nothing():
    kept = [i for i, y in enumerate(Y) if any(y)]
    one, two = (CRF(c2=0.5, n_jobs=n).fit(X, Y) for n in (1, 2))
    short = CRF(c2=0.5).fit([X[i] for i in kept], [Y[i] for i in kept])
    assert np.array_equal(one.weights_, two.weights_)
    assert one.state_features_ == pytest.approx(short.state_features_, abs=1e-9)


def test_which_weights_exist():
    """Those of known labels, those of all labels of a set, and none for a token that is not known."""
    text = [[["a"], ["b"], ["c"]], [["c"], ["b"]]]
    model = CRF(max_iterations=0).fit(text, [["O", {"P", "Q"}, None], [None, {"P", "Q"}]])
    names, labels = model.encoder_.attribute_names(), model.classes_
    pairs = zip(model.features_.node_attr.tolist(), model.features_.node_label.tolist(), strict=True)
    assert {(names[a], labels[y]) for a, y in pairs} == {("a", "O"), ("b", "P"), ("b", "Q")}
    moves = zip(model.features_.edge_prev.tolist(), model.features_.edge_next.tolist(), strict=True)
    assert {(labels[p], labels[n]) for p, n in moves} == {("O", "P"), ("O", "Q")}
    text, y = [[["a"], ["b"]]] * 3, [[{"P", "Q"}, "O"], ["P", "O"], [None, "O"]]
    assert CRF(max_iterations=0, min_freq=2).fit(text, y).features_.n_features == 3  # a/P, b/O and P to O


def test_columns_and_corpora_may_have_sets_too():
    columns = TokenColumns({"word": ["a", "b", "a"]}, [0, 2, 3], [{"P", "Q"}, None, "P"])
    flat = CRF(template="U0:%x[0,0]").fit(columns)
    given = CRF(template="U0:%x[0,0]").fit(columns, [[{"P", "Q"}, None], ["P"]])
    assert np.array_equal(flat.weights_, given.weights_) and flat.classes_ == ["P", "Q"]
    corpus = make_corpus([0, 2, 3], [0, 1, 2, 3], [0, 1, 0], labels=[0, -1, 1])
    assert CRF().fit(corpus).status_ == "stationary point"
    assert CRF().fit(corpus, [[0, {0, 2}], [1]]).classes_ == [0, 1, 2]
    with pytest.raises(
        ValueError, match="sequence 0, token 1: expected label ids from 0 to 46,339 in a set, got 'P'"
    ):
        CRF().fit(corpus, [[0, {"P"}], [1]])


def test_a_tag_dictionary_allows_the_labels_of_sets():
    text = [[["a"], ["b"]]] * 6
    y = [["P", "O"]] * 5 + [[{"Q", "R"}, None]]
    model = CRF(template="U0:%x[0,0]", tag_dictionary=5).fit(text, y)
    words = {word: model.label_sets_.sets[row] for word, row in model.label_sets_.row_of.items()}
    assert words["a"].tolist() == [False, True, True, True] and words["b"].tolist() == [
        True,
        False,
        False,
        False,
    ]
    chosen = TagDictionary({"b": ["P"]})
    model = CRF(template="U0:%x[0,0]", tag_dictionary=chosen, constraints={"allowed": np.eye(4, dtype=bool)})
    model.fit(text[:2], [["O", None], ["P", {"P", "Q", "R"}]])  # the dictionary gives way in the first one
    assert model.predict([[["a"], ["b"]]], given=[["O", None]]) == [["O", "O"]]
    with pytest.raises(ValueError, match="given: sequence 0, token 1: 'Q' may not follow 'O'"):
        model.predict([[["a"], ["b"]]], given=[["O", "Q"]])


@pytest.mark.parametrize("algorithm", [name for name, row in ALGORITHMS.items() if not row.partial])
def test_other_algorithms_name_the_token_and_what_works(algorithm):
    row = ALGORITHMS[algorithm]
    model = CRF(algorithm, c1=0.1 if row.c1 in ("needed", "either") else 0.0)
    said = "sequence 0, token 1: expected a label, got none; labels known in part need algorithm='lbfgs' or"
    with pytest.raises(ValueError, match=said):
        model.fit(X, Y)
    with pytest.raises(ValueError, match=r"sequence 0, token 0: expected a label, got \['O', 'Z'\]"):
        model.fit(X, [[{"Z", "O"}, *FULL[0][1:]], *FULL[1:]])


def test_other_losses_and_models_refuse():
    for model in (CRF(loss="exp"), CRF(inference="active"), HMM(), MEMM()):
        with pytest.raises(ValueError, match="sequence 0, token 1: expected a label, got none"):
            model.fit(X, Y)


def test_other_models_refuse_what_is_known_in_one_sentence():
    text, y = X[:2], FULL[:2]
    chains, dynamic = (HMM().fit(text, y), MEMM().fit(text, y)), DCRF()
    dynamic.fit(text, [[(label, label) for label in labels] for labels in y])
    asks = [
        getattr(m, f"predict{how}")
        for m in (*chains, dynamic)
        for how in ("", "_marginals", "_marginals_array")
    ]
    for ask in asks:
        with pytest.raises(
            ValueError, match="^given: expected None: CRF alone takes labels that are known, got"
        ):
            ask(text, given=Y[:2])
        assert len(ask(text, given=None)) == 2
    for ask in (getattr(m, f"predict{how}_single") for m in chains for how in ("", "_marginals")):
        with pytest.raises(
            ValueError, match="given: expected None: CRF alone takes labels that are known, got"
        ):
            ask(text[0], given=Y[0])


@pytest.mark.parametrize(
    "labels, said",
    [
        ([["O", set(), "O"]], "sequence 0, token 1: expected some labels in a set, got an empty one"),
        ([["O", {None}, "O"]], "sequence 0, token 1: expected labels in a set, got None in it"),
        ([["O", {float("nan")}, "O"]], "sequence 0, token 1: expected labels in a set, got nan in it"),
        ([[None] * 3], "sequence 0, token 0: expected a label, got none"),
        ([["O", {"O", "B-X", "I-X"}, None]], None),
        ([["O", {"I-X"}, "I-X"]], "1 of 1 .*: sequence 0, token 1: 'I-X' may not follow 'O'"),
        ([["O", {"I-X", "I-Y"}, "B-X"]], "1 of 1 .*: sequence 0, token 1: up to here no labelling is left"),
        (
            [[{"I-X", "I-Y"}, "B-X", "O"]],
            "1 of 1 .*: sequence 0, token 0: all its labels are forbidden there",
        ),
        ([[{"O", "B-X", "I-X"}] * 3, ["O"]], "X has 1 sequences but y has 2"),
        ([{"O", "B-X"}], "sequence 0: expected a list of 3 labels, got set, which has no order"),
    ],
)
def test_hostile_labels(labels, said):
    model = CRF(constraints="BIO", max_iterations=1)
    if said is None:
        model.fit(X[:1], labels)
        return
    with pytest.raises((TypeError, ValueError), match=said):
        model.fit(X[:1], labels)


def test_sequences_that_contradict_the_constraints_may_be_dropped():
    more = [X[1], *X], [["O", {"I-X"}], *Y]
    with pytest.warns(UserWarning, match="1 training sequences violate the constraints"):
        model = CRF(constraints="BIO", on_violation="drop", c2=0.5).fit(*more)
    assert model.n_dropped_ == 1
    without = CRF(constraints="BIO", c2=0.5).fit(X, Y)
    assert model.objective_ == pytest.approx(without.objective_, rel=1e-9)


def test_saved_cloned_pickled_warm(tmp_path):
    model = CRF(c2=0.5, constraints="BIO", warm_start=True).fit(X, Y)
    model.save(tmp_path / "m")
    for copy in (CRF.load(tmp_path / "m"), pickle.loads(pickle.dumps(model)), clone(model).fit(X, Y)):
        assert np.array_equal(copy.weights_, model.weights_) and copy.status_ == "stationary point"
        assert copy.predict(X, given=[[None, "B-X", None], *Y[1:]]) == model.predict(
            X, given=[[None, "B-X", None], *Y[1:]]
        )
    first = model.n_iter_
    assert model.fit(X, Y).n_iter_ <= first and CRF("owlqn", c1=0.1).fit(X, Y).status_ == "stationary point"


# ---- given= ----

GIVEN = [[None, "B-X", None], [{"O", "B-Y"}, None], [None, None, {"I-X", "I-Y"}, None], [], ["B-Y"]]


@pytest.fixture(scope="module")
def model():
    """Random weights on all pairs: no ties."""
    found = CRF(constraints="BIO", all_possible_states=True, all_possible_transitions=True, max_iterations=1)
    found.fit(X, [["B-X", "I-X", "O"], ["B-Y", "I-Y"], ["O"] * 4, [], ["O"]])
    found.weights_[:] = np.random.default_rng(0).normal(scale=2.0, size=len(found.weights_))
    return found


def held_chains(model):
    """(log_node, log_edge, edge_class) of each sequence, held to GIVEN."""
    corpus = model.encoder_.transform(X)
    chains = chains_of(corpus, model.features_, model.weights_, model.constraints_)
    for (node, edge, classes), y in zip(chains, GIVEN, strict=True):
        yield np.where(sets_of(model, y), node, -np.inf) if y else node, edge, classes


@pytest.mark.kernels
@pytest.mark.parametrize("form", FORMS)
def test_every_decoder_keeps_what_is_given(model, form):
    found = model.predict(X, form, given=GIVEN)
    for labels, chain in zip(found, held_chains(model), strict=True):
        if labels:
            _, (best, *others) = brute.best_paths(*chain)
            assert labels == [model.classes_[y] for y in best] and not others
    assert found != model.predict(X, form) and (form not in DECODERS or DECODERS[form])


@pytest.mark.kernels
@pytest.mark.parametrize("form", ("auto", *LOG_LOSS_FORMS))
def test_marginals_given_what_is_known(model, form):
    found = model.predict_marginals(X, form, given=GIVEN)
    for rows, chain in zip(found, held_chains(model), strict=True):
        if rows:
            table = np.array([[row[name] for name in model.classes_] for row in rows])
            np.testing.assert_allclose(table, brute.node_marginals(*chain), rtol=1e-9, atol=1e-12)
    assert [row["B-X"] for row in found[0]][1] == pytest.approx(1.0, rel=1e-12)


def test_nothing_given_is_predict(model):
    nothing = [[None] * len(x) for x in X]
    assert model.predict(X, given=nothing) == model.predict(X)
    for a, b in itertools.zip_longest(
        model.predict_marginals_array(X, given=nothing), model.predict_marginals_array(X)
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "given, said",
    [
        ([[None]], "given: X has 5 sequences but given has 1"),
        ([GIVEN[0][:2], *GIVEN[1:]], "given: sequence 0: 3 tokens but 2 labels"),
        (["O", *GIVEN[1:]], "given: sequence 0: expected a list of 3 labels, got 'O'"),
        ([["Z", None, None], *GIVEN[1:]], "given: sequence 0, token 0: label 'Z' was not seen in training"),
        ([[{"Z"}, None, None], *GIVEN[1:]], "given: sequence 0, token 0: label 'Z' of a set was not seen in"),
        (
            [[None, set(), None], *GIVEN[1:]],
            "given: sequence 0, token 1: expected some labels in a set, got an",
        ),
        ([["O", "I-X", None], *GIVEN[1:]], "given: sequence 0, token 1: 'I-X' may not follow 'O'"),
        (
            [["O", {"I-X", "I-Y"}, None], *GIVEN[1:]],
            "given: sequence 0, token 1: up to here no labelling is left",
        ),
        (3, "given: expected a list of sequences, got 3"),
        ({"O"}, "given: expected a list of sequences, got set, which has no order"),
    ],
)
def test_hostile_given(model, given, said):
    for ask in (model.predict, model.predict_marginals):
        with pytest.raises((TypeError, ValueError), match=said):
            ask(X, given=given)


def test_one_sentence_and_what_is_known_of_it(model):
    for x, known in zip(X[:3], GIVEN, strict=False):
        assert model.predict_single(x, given=known) == model.predict([x], given=[known])[0]
        assert (
            model.predict_marginals_single(x, given=known) == model.predict_marginals([x], given=[known])[0]
        )
    assert model.predict_single([], given=[]) == [] == model.predict_marginals_single([], given=[])
    with pytest.raises(ValueError, match="given: sequence 0: 3 tokens but 0 labels"):
        model.predict_single(X[0], given=[])


def test_what_is_known_of_columns_may_be_flat_as_y_is():
    columns = TokenColumns({"word": ["a", "b", "a"]}, [0, 2, 3], ["P", "Q", "P"])
    model, flat = CRF(template="U0:%x[0,0]", c2=0.5).fit(columns), ["Q", None, {"P"}]
    nested = [flat[:2], flat[2:]]
    assert (
        model.predict(columns, given=flat)
        == model.predict(columns, given=iter(nested))
        == [["Q", "Q"], ["P"]]
    )
    assert model.predict_marginals(columns, given=flat) == model.predict_marginals(columns, given=nested)
    for given, said in (
        (flat[:2], "given: sequence 0: expected a list of 2 labels, got 'Q'"),
        ([*flat, None], "given: X has 2 sequences but given has 4"),
        (["Q", {"Z"}, None], "given: sequence 0, token 1: label 'Z' of a set was not seen"),
        ([None, None, set()], "given: sequence 1, token 0: expected some labels in a set, got an empty one"),
    ):
        with pytest.raises(ValueError, match=said):
            model.predict(columns, given=given)
    with pytest.raises(ValueError, match="given: X has 2 sequences but given has 3"):
        CRF(c2=0.5).fit(X[:2], FULL[:2]).predict(X[:2], given=["O", "O", None])


@pytest.mark.parametrize("one", [{"O", "B-X"}, {"O"}, frozenset({"O"})])
def test_sets_are_refused_where_one_label_is_expected(one):
    from crfbook.evaluation import abstention, chunk_score, confusion, reliability, token_accuracy
    from crfbook.models.path import regularization_path

    gold = [FULL[0], ["O", one], *FULL[2:]]
    columns = TokenColumns(
        {"word": list("abcdefghij")}, [0, 3, 5, 9, 9, 10], [y for row in gold for y in row]
    )
    model, perceptron = CRF().fit(X, FULL), CRF("perceptron", max_iterations=1).fit(X, FULL)
    p = model.predict_marginals(X)
    for ask in (
        lambda: model.score(X, gold),
        lambda: model.log_proba(X, gold),
        lambda: model.calibrate(X, gold),
        lambda: perceptron.partial_fit(X, gold),
        lambda: CRF().fit(X, FULL, X_dev=X, y_dev=gold),
        lambda: CRF(template="U:%x[0,0]").fit(X, FULL).log_proba(columns),
        lambda: DCRF().fit(X, [[(y, y) for y in row] for row in gold]),
        lambda: regularization_path(CRF(c2=0), X, FULL, X_dev=X, y_dev=gold, strengths=[1], scoring="f1"),
        lambda: regularization_path(CRF(c2=0), X, gold, cv=[([0, 2], [0, 1])], strengths=[1], scoring="f1"),
        lambda: token_accuracy(gold, FULL),
        lambda: chunk_score(gold, FULL),
        lambda: confusion(gold, FULL),
        lambda: abstention(gold, FULL, [0.0] * 5),
        lambda: reliability(gold, p),
        lambda: reliability(gold, [[]] * 5, "spans"),
    ):
        said = "sequence 1, token 1: expected one label, got .* as a set; `fit` and given= alone take sets"
        with pytest.raises(ValueError, match=said):
            ask()
    path = regularization_path(CRF(c2=0), X, gold, strengths=[1.0], X_dev=X, y_dev=FULL, scoring="f1")
    assert len(path.models) == 1


def test_dev_accuracy_leaves_out_what_is_not_known():
    y_dev = [[None, "O", None], [None, "Z"], *FULL[2:]]
    for given in (y_dev, iter(y_dev)):
        model = CRF(c2=0.5, max_iterations=3).fit(X, FULL, X_dev=X, y_dev=given)
        assert model.history_["dev_accuracy"].iloc[-1] == pytest.approx(model.score(X, y_dev))
    corpus = make_corpus([0, 2, 3], [0, 1, 2, 3], [0, 1, 0], labels=[0, 1, 1])
    dev = corpus._replace(labels=np.array([0, -1, 1], np.int32))
    model = CRF(c2=0.5, max_iterations=3).fit(corpus, X_dev=dev)
    assert model.history_["dev_accuracy"].iloc[-1] == pytest.approx(model.score(dev))
    with pytest.raises(ValueError, match="X_dev: expected at least one token with a label, got none"):
        CRF().fit(X, FULL, X_dev=X[:1], y_dev=[[None] * 3])


def test_sets_of_numbers():
    one = CRF(c2=0.5).fit(X[1:2] * 2, [[1, {np.int64(1), np.int64(2)}], [2, 1]])
    two = CRF(c2=0.5).fit(X[1:2] * 2, [[1, {1, 2}], [2, 1]])
    assert np.array_equal(one.weights_, two.weights_) and one.classes_ == [1, 2]
    corpus = make_corpus([0, 2, 3], [0, 1, 2, 3], [0, 1, 0], labels=[0, -1, 1])
    for large in (10**7, 10**30, True):
        with pytest.raises(
            ValueError, match="sequence 0, token 1: expected label ids from 0 to 46,339 in a set"
        ):
            CRF().fit(corpus, [[0, {0, large}], [1]])
    for odd, labels in (({"B-X", 0}, ["O", "O"]), ({2, -100}, [1, 1]), ({"B-X", -1}, ["O", "O"])):
        with pytest.raises(ValueError, match="sequence 0, token 2: the label .* is it padding"):
            CRF().fit(X[:1], [[*labels, odd]])
    with pytest.warns(UserWarning, match="sequence 0, token 2: the label '' is among others"):
        CRF(max_iterations=0).fit(X[:1], [["O", "O", {"B-X", ""}]])
    with pytest.raises(ValueError, match=r"classes\[1\]: the label 0 is among strings"):
        CRF("perceptron").partial_fit(X[:1], FULL[:1], classes=np.array(["O", 0], object))


def test_rows_of_arrays_and_series_may_have_sets():
    import pandas as pd

    wanted = CRF(c2=0.5).fit(X, Y).weights_
    arrays = []
    for labels in Y:
        arrays.append(np.empty(len(labels), object))
        arrays[-1][:] = labels
    series = [pd.Series(labels, dtype=object) for labels in Y]
    for rows in (arrays, series):
        assert np.array_equal(CRF(c2=0.5).fit(X, rows).weights_, wanted)
    columns = TokenColumns({"word": list("abcdefghij")}, [0, 3, 5, 9, 9, 10])
    one, two = (CRF(template="U:%x[0,0]", c2=0.5).fit(columns, rows) for rows in (Y, series))
    assert np.array_equal(one.weights_, two.weights_)


def test_a_path_begins_where_the_gradient_of_what_is_known_ends():
    from crfbook.models.path import regularization_path

    path = regularization_path(CRF(c2=0), X, Y, n_strengths=3, ratio=0.1)
    assert len(path.models) == 3 and path.frame["n_active"].iloc[0] == 0 < path.frame["n_active"].iloc[-1]


def interrupt(step, w):
    raise KeyboardInterrupt


@pytest.mark.parametrize("c1", [0.0, 0.01])
def test_the_status_says_why_training_ended(c1):
    crf = partial(CRF, "owlqn" if c1 else "lbfgs", c1=c1, c2=0.5)
    assert crf().fit(X, Y).status_ == "stationary point"
    assert crf(max_iterations=1).fit(X, Y).status_ == "max_iterations"
    assert crf(tol=0.0, period=1, delta=0.5).fit(X, Y).status_ == "small change"
    assert crf().fit(X, Y, callback=lambda *_: True).status_ == "stopped by callback"
    with pytest.warns(UserWarning, match="training was interrupted after 1 iterations"):
        assert crf().fit(X, Y, callback=interrupt).status_ == "interrupted"


@pytest.mark.parametrize(
    "labels, scheme",
    [
        (["O", "I-X", {"B-Z", "B-Y"}], None),  # in IOB1 a B comes after its own type alone
        (["O", "I-X", {"B-X", "B-Y"}], "IOB1"),
        (["O", {"I-X", "I-Y"}, "B-X"], "IOB1"),
        (["O", "I-X", None], "IOB1"),
        (["I-X", None, "B-X"], "IOB1"),
        (["I-X", None, "B-Y"], None),  # no label of this text may come before B-Y
        (["B-X", None, "B-Y"], None),  # in BIO it is right, in IOB1 the first label is wrong
    ],
)
def test_a_scheme_is_named_only_if_some_labelling_obeys_it(labels, scheme):
    text = [[["a"], ["b"], ["c"]], [["d"]]]
    with pytest.raises(ValueError, match="1 of 2 training sequences violate the constraints") as caught:
        CRF(constraints="BIO").fit(text, [labels, ["I-X" if labels[0] == "B-X" else "O"]])
    said = str(caught.value)
    assert (
        said.endswith(f"; constraints={scheme!r} allows all of them") if scheme else "allows all" not in said
    )


@pytest.mark.parametrize("constraints", [None, "BIO"])
def test_weights_that_keep_growing_by_enumeration(constraints):
    """A warning means: of each sequence one labelling that agrees beats all together that do not."""
    options = {"constraints": constraints, "all_possible_states": True, "all_possible_transitions": True}
    model, seen = CRF(c2=0.0, max_iterations=0, **options).fit(X, Y), set()
    settings = check_settings(model)
    ready = training_set(model, settings, X, Y, None)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model.weights_ = rng.normal(size=len(model.weights_)) * rng.choice([0.5, 2.0, 8.0])
        model.weights_ += 5.0 * empirical_counts(ready.corpus, model.features_) * rng.integers(0, 2)
        won = True
        for chain, y in zip(
            chains_of(ready.corpus, model.features_, model.weights_, model.constraints_), Y, strict=True
        ):
            if y:
                paths, p = brute.path_probabilities(*chain)
                right = brute.agreeing(paths, sets_of(model, y))
                won &= bool(right.all() or p[right].max() > p[~right].sum())
        won |= bool(np.abs(model.weights_).max() > 30.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_runaway(model, settings, ready.corpus, ready.held)
        assert won == any("weights keep growing" in str(w.message) for w in caught), seed
        seen.add(won)
    assert seen == {True, False}


def test_weights_that_keep_growing_without_a_penalty():
    text, y = (
        [[["p"], ["q"]], [["r"], ["p"]], [["s"]] * 1200],
        [["A", None], ["B", {"A", "B"}], [None] * 1200],
    )
    with pytest.warns(
        ConvergenceWarning, match="weights keep growing: without a penalty .* separate the training"
    ):
        CRF(c2=0.0, max_iterations=20).fit(text, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CRF(c2=0.0).fit(text[:1] * 3, [["A", None], ["B", None], ["A", {"A", "B"}]])  # no minimum is lower
