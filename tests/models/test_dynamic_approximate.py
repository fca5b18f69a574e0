"""`DCRF` with approximate inference and with linked tokens, as users call it."""

import warnings

import numpy as np
import pytest
from helpers.dynamic import X, Y
from helpers.problems import central_differences
from sklearn.exceptions import ConvergenceWarning

from crfbook import DCRF, ModelFileError, TokenColumns, dynamic
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.files import load_arrays, save_arrays
from crfbook.dynamic import (
    EXACT,
    FORMS,
    DynamicObjective,
    check_engine,
    check_options,
    dynamic_features,
    factorial,
    lay_out_template,
    linear,
    memory,
    skip,
)

pytestmark = pytest.mark.kernels
APPROXIMATE = [name for name in FORMS if name not in EXACT]
approximate = pytest.mark.parametrize("inference", APPROXIMATE)


def fitted(inference="auto", **options):
    more = {"labels": ("pos", "np"), "c2": 0.1, **options}
    return DCRF(inference=inference, **more).fit(X, Y)


@approximate
def test_training_ends_near_the_exact_minimum(inference):
    exact, model = fitted("exact"), fitted(inference, bp_tol=1e-8)
    assert model.engine_ == inference and model.n_unconverged_ == 0 and model.status_ == "converged"
    model.engine_ = "elimination"
    loss = -model.log_proba(X, Y).sum() + 0.1 * model.weights_ @ model.weights_
    assert (
        exact.objective_ <= loss * (1 + 1e-5)
        and loss < (1.1 if inference == "mean-field" else 1.005) * exact.objective_
    )
    assert model.predict(X) == Y


@approximate
def test_marginals_and_log_probabilities_are_those_of_the_messages(inference):
    model = fitted("exact")
    right, log_p = model.predict_marginals_array(X), model.log_proba(X, Y)
    model.engine_, model.bp_tol = inference, 1e-9
    p, about = model.predict_marginals_array(X), model.log_proba(X, Y)
    for name in ("pos", "np"):
        for one, other in zip(p[name], right[name], strict=True):
            np.testing.assert_allclose(one.sum(axis=1), 1.0, rtol=1e-12)
            assert np.abs(one - other).max(initial=0.0) < 0.1
    assert np.abs(about - log_p).max() < 0.2 and about[3] == 0.0
    assert (p["np"][0] != right["np"][0]).any()  # not the exact engine


@approximate
def test_the_gradient_is_that_of_the_value(inference):
    rng = np.random.default_rng(0)
    names = {"a": [0, 1, 2], "b": [0, 1]}
    layout = lay_out_template(factorial("a", "b"), ("a", "b"), names)
    model = fitted("exact")
    corpus = model.encoder_.transform(X)
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in (3, 2)], axis=1).astype(np.int32)
    labels[2, 1] = -1  # one label is unknown
    features = dynamic_features(layout, corpus, labels, model.encoder_.n_attrs)
    options = check_options(inference, 1e-12, 5000)
    objective = DynamicObjective(corpus, labels, layout, features, c2=0.1, engine=inference, options=options)
    w = rng.normal(0.0, 0.5, features.n_features)
    _, grad = objective(w)
    np.testing.assert_allclose(grad, central_differences(lambda v: objective(v)[0], w), atol=1e-6)
    assert objective.stats[0] == 4 + 1 and objective.stats[1] == 0  # once more with what is known


def test_auto_takes_what_is_exact_where_cells_allow_it():
    assert fitted().engine_ == "elimination"
    with pytest.warns(UserWarning, match="more than max_cells=8 for this template; 'block' is taken"):
        assert fitted(max_cells=8).engine_ == "block"
    with pytest.warns(UserWarning, match="'tree' is taken, an approximation"):
        wide = fitted(cliques=[*factorial("pos", "np"), *memory("np", "m", "last other", ["O"])], max_cells=8)
    assert wide.engine_ == "tree"
    with pytest.raises(ValueError, match="at most 8 cells for exact inference"):
        fitted("exact", max_cells=8)


def test_an_engine_that_cannot_do_a_template_says_why():
    cliques = [*factorial("pos", "np"), *memory("np", "m", "last other", ["O"])]
    with pytest.raises(
        ValueError, match=r"inference='block': expected cliques of one or two labels, got .*'tree'"
    ):
        fitted("block", cliques=cliques)


@approximate
def test_what_does_not_converge_is_counted_and_said_once(inference):
    with pytest.warns(ConvergenceWarning, match=r"no fixed point in 4 of 4 sequences") as said:
        model = fitted(inference, max_sweeps=1, bp_tol=1e-300, max_iterations=3)
    assert len([w for w in said if "fixed point" in str(w.message)]) == 1
    assert model.n_unconverged_ == 4 and model.status_.endswith("; no fixed point in 4 of 4 sequences")
    with pytest.warns(ConvergenceWarning, match="no fixed point") as said:
        p = model.predict_marginals_array(X)["np"]
    assert len(said) == 1 and all(np.isfinite(part).all() for part in p)


@approximate
def test_log_probabilities_and_unknown_labels_count_a_sentence_once(inference):
    unknown = [[(pos if t else None, chunk) for t, (pos, chunk) in enumerate(row)] for row in Y]
    with pytest.warns(ConvergenceWarning, match="no fixed point in 4 of 4 sequences") as said:
        model = DCRF(labels=("pos", "np"), inference=inference, max_sweeps=0, max_iterations=1).fit(
            X, unknown
        )
    assert len(said) == 1 and model.n_unconverged_ == 4
    with pytest.warns(ConvergenceWarning, match="no fixed point in 4 of 4 sequences") as said:
        model.log_proba(X, unknown)
    assert len(said) == 1
    model.max_cells = 1  # nothing exact
    for form in ("max-product", "auto"):
        with pytest.warns(ConvergenceWarning, match=r"\(max-product\) .* in 4 of 4 sequences") as said:
            model.predict(X, form=form)
        assert len(said) == 1


@approximate
def test_no_sweep_at_all(inference):
    with pytest.warns(ConvergenceWarning, match="no fixed point in 4 of 4"):
        model = fitted(inference, max_sweeps=0, max_iterations=2)
    assert np.isfinite(model.objective_)


@approximate
@pytest.mark.parametrize("size", [1e3, -1e3])
def test_a_thousand_nats(inference, size):
    model = fitted("exact")
    model.weights_, model.engine_, model.max_sweeps = size * model.weights_, inference, 50
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        p = model.predict_marginals_array(X)
    for part in (*p["pos"], *p["np"]):
        assert np.isfinite(part).all()
        np.testing.assert_allclose(part.sum(axis=1), 1.0, rtol=1e-9)


@approximate
def test_hard_rules_hold(inference):
    """No verb begins a phrase; of two chains mean field cannot forbid pairs, but I after O."""
    table = np.ones((3, 3), bool)
    if inference == "mean-field":
        table[2, 1] = False
        limits = {"np": Constraints(table, np.ones(3, bool), np.ones(3, bool))}
    else:
        table[2, 0] = False
        limits = {("pos", "np"): table}
    model = fitted(inference, constraints=limits, max_iterations=5, bp_tol=1e-7)
    p = model.predict_marginals_array(X)
    assert all(np.isfinite(part).all() for part in p["np"])
    for labels in model.predict(X, form="max-product"):
        chunks = [chunk for _, chunk in labels]
        if inference == "mean-field":
            assert ("O", "I") not in list(zip(chunks, chunks[1:], strict=False))
        else:
            assert ("V", "B") not in labels


@approximate
def test_threads_change_nothing(inference):
    one, two = (fitted(inference, n_jobs=n, max_iterations=4) for n in (1, 2))
    np.testing.assert_array_equal(one.weights_, two.weights_)


@pytest.mark.parametrize("form", ["exact", "max-product", "dual", "posterior"])
def test_ways_to_decode(form):
    for inference in ("exact", "block"):
        model = fitted(inference)
        assert model.predict(X, form=form) == Y
    with pytest.raises(ValueError, match="form: expected one of 'auto', 'exact'"):
        model.predict(X, form="viterbi")


def test_k_best_wants_exact_inference():
    with pytest.raises(ValueError, match="predict_kbest: expected exact inference, got 'block'"):
        fitted("block").predict_kbest(X, 2)


def test_files_keep_the_engine(tmp_path):
    model = fitted("sweep", bp_tol=1e-6, damping=0.0, max_sweeps=77)
    model.save(tmp_path / "m")
    back = DCRF.load(tmp_path / "m")
    assert (back.engine_, back.bp_tol, back.max_sweeps, back.n_unconverged_) == ("sweep", 1e-6, 77, 0)
    np.testing.assert_array_equal(
        np.concatenate(back.predict_marginals_array(X)["np"]),
        np.concatenate(model.predict_marginals_array(X)["np"]),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bp_tol": -1.0}, "bp_tol: expected a finite number >= 0"),
        ({"max_sweeps": -1}, "max_sweeps: expected an integer >= 0, got -1"),
        ({"max_sweeps": 2.5}, "max_sweeps"),
        ({"damping": 1.0, "inference": "sync"}, "damping: expected a number below 1"),
        ({"damping": 0.5, "inference": "tree"}, "damping: .* unless schedule is 'sync' or 'block'"),
        ({"random_state": "x", "inference": "random"}, "random_state"),
        ({"link": "word"}, r"link: expected None where no clique is one of `skip`, got 'word'"),
        ({"inference": "loopy"}, "inference: expected one of 'auto'"),
    ],
)
def test_bad_options(options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        fitted(**options)


def test_options_reach_the_messages():
    """bp_tol, max_sweeps and random_state, also after training."""
    strong = fitted("random", max_iterations=3)
    strong.weights_ = 5.0 * np.random.default_rng(0).normal(size=len(strong.weights_))

    def p(**options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return np.concatenate(strong.set_params(**options).predict_marginals_array(X)["np"])

    loose, tight = p(bp_tol=0.9), p(bp_tol=1e-12)
    assert (loose != tight).any()
    one, again, other = (p(max_sweeps=1, random_state=seed) for seed in (0, 0, 1))
    assert (one == again).all() and (one != other).any() and (one != tight).any()


def test_damping_is_for_messages_that_have_it():
    """Exact inference has none; max-product sweeps are not damped: two are enough for chains."""
    assert fitted("exact", damping=0.5).predict(X) == Y
    model = fitted("sync", damping=0.5, cliques="linear")
    model.max_sweeps = 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict(X, form="max-product") == Y


def test_decoding_is_exact_where_it_can_be(monkeypatch):
    model = fitted("block")
    monkeypatch.setattr(dynamic, "max_product", None)
    assert model.predict(X) == Y


# ---- linked tokens ----


def names(n=12, seed=0):
    """Short documents in which a name is a person in some, a place in others; evidence stands at one of two
    places.
    """
    rng, rows = np.random.default_rng(seed), []
    for _ in range(n):
        kind = rng.choice(["PER", "LOC"])
        sure = "Mr" if kind == "PER" else "in"
        rows.append([(sure, "O", ""), ("Paris", kind, "Paris"), ("and", "O", ""), ("Paris", kind, "Paris")])
    ptr = np.arange(0, 4 * n + 1, 4)
    columns = [list(column) for column in zip(*(row for part in rows for row in part), strict=True)]
    return TokenColumns({"word": columns[0], "link": columns[2], "label": columns[1]}, ptr)


@pytest.mark.parametrize("inference", ["auto", "tree", "sweep", "sync", "random", "residual"])
def test_evidence_at_one_place_helps_at_the_other(inference):
    train, test = names(), names(6, 1)
    common = {"labels": ("label",), "c2": 0.01, "template": "U:%x[-1,word]/%x[0,word]"}
    chain = DCRF("linear", **common).fit(train)
    cliques = [*linear("label"), *skip("label")]
    model = DCRF(cliques, **common, link="link", inference=inference).fit(train)
    assert model.engine_ == ("block" if inference == "auto" else inference)
    assert model.score(test) == 1.0 > chain.score(test)
    table = model.table("label(t), label(linked)")
    kinds = [model.classes_["label"].index(kind) for kind in ("PER", "LOC")]
    assert table[kinds[0], kinds[0]] > table[kinds[0], kinds[1]]
    with pytest.raises(ValueError, match="expected cliques of neighbouring tokens for exact inference"):
        model.predict(test, form="exact")


def test_links_want_a_column_of_the_text(tmp_path):
    cliques = [*linear("label"), *skip("label")]
    common = {"labels": ("label",), "c2": 0.01, "template": "U:%x[0,word]"}
    train = names()
    for link in (None, "text", "label", ["link"]):
        with pytest.raises(ValueError, match="link: expected the name of a column of X, got"):
            DCRF(cliques, **common, link=link).fit(train)
    model = DCRF(cliques, **common, link="link", max_iterations=2).fit(train)
    with pytest.raises(ValueError, match="got 'link' and no TokenColumns"):
        model.predict([[["x"]]])
    with pytest.raises(ValueError, match="approximate inference"):
        DCRF(cliques, **common, link="link", inference="exact").fit(train)
    model.save(tmp_path / "m")
    assert DCRF.load(tmp_path / "m").predict(train) == model.predict(train)
    header, arrays = load_arrays(tmp_path / "m", "DCRF")
    for change in (
        {"engine": "junction"},
        {"engine": "mean-field"},
        {"params": {**header["params"], "link": None}},
    ):
        save_arrays(tmp_path / "m", "DCRF", {**header, **change}, arrays)
        with pytest.raises(
            ModelFileError, match="link: expected the name|engine: expected one of 'block', 'sync'"
        ):
            DCRF.load(tmp_path / "m")


def test_links_of_a_ready_corpus(tmp_path):
    cliques = [*linear("label"), *skip("label")]
    corpus = make_corpus([0, 3, 3, 7], np.arange(8), [0, 1, 2, 0, 1, 1, 2], link=[5, -1, 5, 5, 7, -3, 7])
    rows = [[(0,), (1,), (0,)], [], [(1,), (0,), (1,), (0,)]]
    model = DCRF(cliques, ("label",)).fit(corpus, rows)
    assert model.table("label(t), label(linked)")[0, 0] > 0.0
    model.save(tmp_path / "m")
    assert DCRF.load(tmp_path / "m").predict(corpus) == model.predict(corpus) == rows
    for link, said in (
        (None, "link: expected the name"), (np.zeros(0, np.int32), "link: expected the name"),
        (np.zeros(3, np.int32), r"link: expected one entry a token \(7\), got 3"),
        (np.zeros(7), "link: expected integers"),
        (np.zeros((7, 1), np.int32), "link: expected one dimension"),
    ):  # fmt: skip
        for run in (lambda other: DCRF(cliques, ("label",)).fit(other, rows), model.predict):
            with pytest.raises((ValueError, TypeError), match=said):
                run(corpus._replace(link=link))


def test_auto_without_linked_words_is_the_chain():
    train = names()
    plain = TokenColumns({**train.columns, "link": [""] * train.n_tokens}, train.seq_ptr)
    common = {"labels": ("label",), "c2": 0.1, "template": "U:%x[0,word]", "tol": 1e-10}
    chain = DCRF("linear", **common).fit(plain)
    model = DCRF([*linear("label"), *skip("label")], **common, link="link").fit(plain)
    assert model.objective_ == pytest.approx(chain.objective_, rel=1e-8)
    assert not model.table("label(t), label(linked)").any()


def test_the_cost_of_an_approximation_is_said_before_training(capsys):
    fitted("block", verbose=1, max_iterations=1)
    assert "block, an approximation" in capsys.readouterr().out


def test_check_engine_of_links():
    layout = lay_out_template([*linear("a"), *skip("a")], ("a",), {"a": [0, 1]})
    corpus = fitted().encoder_.transform(X)
    assert check_engine(layout, corpus, "auto") == "block"
    with pytest.raises(ValueError, match="mean field: expected links of two chains"):
        check_engine(layout, corpus, "mean-field")
