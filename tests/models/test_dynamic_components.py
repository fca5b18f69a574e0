"""Columns that no clique joins: each component has its engine, and the whole is their product, exactly.

The oracle is the same layout taken in one piece, `components=()`, whose junction trees are held against
enumeration elsewhere; and enumeration.
"""

import numpy as np
import pytest
from helpers.dynamic import X, Y, dynamic_problem, enumerate_sequence, row_marginals

from crfbook import DCRF, ModelFileError
from crfbook.dynamic import (
    Clique,
    DynamicModel,
    DynamicObjective,
    decode,
    factorial,
    kbest,
    lay_out_template,
    linear,
    marginals,
    second_order,
)

pytestmark = pytest.mark.kernels
APART = "independent", "one apart", "second order apart"
apart = pytest.mark.parametrize("name", APART)
MIXED = {"labels": ("a", "b", "c"), "cliques": [*second_order("b"), *factorial("a", "c")], "c2": 0.1}
ROWS = [[(p, q, p) for p, q in row] for row in Y]


def model_of(problem, engine="elimination"):
    return DynamicModel(problem.layout, problem.features, problem.w, engine)


def in_one_piece(problem):
    return problem._replace(layout=problem.layout._replace(components=()))


def engine_of(name):
    return "elimination, junction" if name == "second order apart" else "elimination"


def test_components_are_what_cliques_and_constraints_leave_apart():
    labels = {chain: [0, 1] for chain in "abcd"}

    def groups(cliques, constraints=None):
        layout = lay_out_template(cliques, tuple("abcd"), labels, constraints)
        return [part.chains for part in layout.components]

    chains = linear("a", "b", "c", "d")
    assert groups(chains) == [[0], [1], [2], [3]]
    assert groups([*chains, Clique(((0, "d"), (2, "a")))]) == [[0, 3], [1], [2]]
    assert groups([*chains, Clique(((0, "d"), (2, "a"))), Clique(((0, "b"), (0, "d")))]) == [[0, 1, 3], [2]]
    assert groups(factorial(*"abcd")) == []  # one piece
    assert groups(chains, {("c", "b"): np.eye(2, dtype=bool)}) == [[0], [1, 2], [3]]
    assert groups(chains, {("c", "b"): np.ones((2, 2), bool)}) == [[0], [1], [2], [3]]


@apart
@pytest.mark.parametrize("known", ["all", "some"])
def test_the_objective_is_that_of_the_whole(name, known):
    problem = dynamic_problem(name, seed=3, weighted=True)
    labels = problem.labels.copy()
    if known == "some":
        labels[::3, 0] = -1
    given = problem.corpus, labels, problem.layout, problem.features
    parts = DynamicObjective(*given, c2=0.3)
    whole = DynamicObjective(*given[:2], *in_one_piece(problem)[2:4], c2=0.3, engine="junction")
    assert len(parts.parts) == 2 and len(whole.parts) == 1
    assert parts.is_convex == whole.is_convex == (known == "all")
    (value, grad), (want, slope) = parts(problem.w), whole(problem.w)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    np.testing.assert_allclose(grad, slope, rtol=1e-9, atol=1e-11)


@apart
def test_marginals_and_the_best_labelling_by_enumeration(name):
    problem = dynamic_problem(name, seed=4)
    model, starts = model_of(problem, engine_of(name)), problem.corpus.seq_ptr
    known = np.where(np.arange(len(problem.labels))[:, None] % 2, problem.labels, -1)
    for held in (None, known):
        p, log_z = marginals(problem.corpus, model, held)
        path, score = decode(problem.corpus, model, held)
        for i, (a, b) in enumerate(zip(starts, starts[1:], strict=False)):
            one = enumerate_sequence(problem, i, None if held is None else held[a:b])
            want = row_marginals(problem, i, None if held is None else held[a:b])
            np.testing.assert_allclose(p[a:b], want, atol=1e-12)
            np.testing.assert_allclose([log_z[i], score[i]], [one.log_z, max(one.scores)], atol=1e-12)
            assert tuple(path[a:b].reshape(-1)) == tuple(one.paths[np.argmax(one.scores)])
    p, _ = marginals(problem.corpus, model)
    assert marginals(problem.corpus, model, rows=False)[0] is None
    for width in range(1, problem.layout.n_cells + 1):
        np.testing.assert_array_equal(marginals(problem.corpus, model, rows=width)[0], p[:, :width])


@pytest.mark.parametrize("ties", [False, True])
@apart
def test_the_best_labellings_are_the_largest_sums(name, ties):
    problem = dynamic_problem(name, seed=5, lengths=(2, 1, 0))
    if ties:
        problem = problem._replace(w=(problem.w > 0.5).astype(float))
    model = model_of(problem, engine_of(name))
    for k in (1, 7, 700):
        for i, found in enumerate(kbest(problem.corpus, model, k)):
            one = enumerate_sequence(problem, i)
            score = dict(zip(map(tuple, one.paths.tolist()), one.scores, strict=True))
            paths = [tuple(labels.reshape(-1).tolist()) for labels, _ in found]
            assert len(set(paths)) == len(paths) == min(k, len(score))
            scores = [score for _, score in found]
            assert scores == pytest.approx(np.sort(one.scores)[::-1][:k], abs=1e-11)
            assert scores == pytest.approx([score[path] for path in paths], abs=1e-11)


def test_columns_of_their_own_are_models_of_their_own():
    """Trained together or one by one: the same weights, marginals and labels."""
    both = DCRF("linear", labels=("pos", "np"), c2=0.2, tol=1e-12).fit(X, Y)
    total = log_p = 0.0
    for i, name in enumerate(("pos", "np")):
        rows = [[(labels[i],) for labels in row] for row in Y]
        alone = DCRF("linear", labels=(name,), c2=0.2, tol=1e-12).fit(X, rows)
        total, log_p = total + alone.objective_, log_p + alone.log_proba(X, rows)
        for found, want in zip(
            both.predict_marginals_array(X)[name], alone.predict_marginals_array(X)[name], strict=True
        ):
            np.testing.assert_allclose(found, want, atol=1e-5)
        np.testing.assert_allclose(both.table(f"{name}(t-1), {name}(t)"), alone.table(1), atol=1e-5)
    assert both.objective_ == pytest.approx(total, rel=1e-9)
    np.testing.assert_allclose(both.log_proba(X, Y), log_p, atol=1e-4)
    assert both.predict(X) == both.predict(X, "dual") == both.predict(X, "posterior") == Y


def test_a_product_of_any_size_is_exact():
    names = tuple("abcdef")  # 30^6 joint labels
    rows = [[tuple((t * (k + 1)) % 30 for k in range(6)) for t in range(30)] for _ in range(2)]
    text = [[[f"w={t}"] for t in range(30)]] * 2
    model = DCRF("linear", labels=names, c2=0.1, max_iterations=30).fit(text, rows)
    assert model.engine_ == "elimination" and model.predict(text) == rows
    best = model.predict_kbest(text[:1], 5)[0]
    assert best[0][0] == rows[0] and len(best) == 5
    assert [score for _, score in best] == pytest.approx(
        [model.log_proba(text[:1], [labels])[0] for labels, _ in best], abs=1e-9
    )


def test_each_component_has_its_engine_and_files_keep_them(tmp_path):
    model = DCRF(**MIXED).fit(X, ROWS)
    assert model.engine_ == "elimination, junction" and model.predict(X) == ROWS
    model.save(tmp_path / "model")
    back = DCRF.load(tmp_path / "model")
    assert back.engine_ == model.engine_ and back.predict_kbest(X, 4) == model.predict_kbest(X, 4)
    np.testing.assert_array_equal(back.log_proba(X, ROWS), model.log_proba(X, ROWS))
    model.engine_ = "junction"  # as files named what did the whole
    model.save(tmp_path / "old")
    old = DCRF.load(tmp_path / "old")
    assert old.engine_ == "junction" and old.predict(X) == ROWS
    np.testing.assert_allclose(old.log_proba(X, ROWS), back.log_proba(X, ROWS), atol=1e-12)
    for bad in ("elimination", "junction, elimination, junction", "junction, elimination", "fast"):
        model.engine_ = bad
        model.save(tmp_path / "bad")
        with pytest.raises(ModelFileError, match="engine: expected"):
            DCRF.load(tmp_path / "bad")


def test_an_approximation_of_one_component_leaves_the_others_exact():
    with pytest.warns(UserWarning, match="'block, elimination' is taken, an approximation"):
        model = DCRF([*factorial("a", "c"), *linear("b")], labels=("a", "b", "c"), c2=0.1, max_cells=8).fit(
            X, ROWS
        )
    rows = [[(q,) for _, q in row] for row in Y]
    alone = DCRF("linear", labels=("b",), c2=0.1).fit(X, rows)
    for found, want in zip(
        model.predict_marginals_array(X)["b"], alone.predict_marginals_array(X)["b"], strict=True
    ):
        np.testing.assert_allclose(found, want, atol=1e-2)  # where training ended
    assert model.predict(X) == ROWS
    model.max_sweeps, model.bp_tol = 1, 1e-300
    with pytest.warns(UserWarning, match="no fixed point in 4 of 4 sequences"):
        model.predict_marginals(X)
    with pytest.raises(ValueError, match="expected exact inference, got 'block, elimination'"):
        model.predict_kbest(X)


def test_one_component_without_any_labelling_leaves_none():
    text, rows = [s[:1] for s in X], [s[:1] for s in Y]
    model = DCRF("linear", labels=("pos", "np"), constraints={"pos": np.zeros((2, 2), bool)}).fit(text, rows)
    assert [len(found) for found in model.predict_kbest([X[0][:1], []], 20)] == [2, 1]  # 2 x 1 labels
    with pytest.raises(ValueError, match="sequence 0: .* forbid"):
        model.predict(X)
    with pytest.raises(ValueError, match="the constraints forbid its labels of pos"):
        model.set_params(constraints={"pos": np.zeros((3, 3), bool)}).fit(X, Y)
