"""What coordinate descent and its paths are given: one sentence for each mistake,
and weights that are others' are refused.
"""

import numpy as np
import pytest
from helpers.problems import C1, C2, run_of, symbols

from crfbook.chain.objective import Objective
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed, select
from crfbook.learners.coordinate.arrays import Sparse, scatter
from crfbook.learners.coordinate.descent import coordinate_descent, falling, solve_path
from crfbook.learners.coordinate.visit import VisitByParts
from crfbook.learners.quasi_newton.l1 import proximal_gradient
from crfbook.learners.quasi_newton.lbfgs import minimize

pytestmark = pytest.mark.kernels
CORPUS, FEATURES = symbols()
F = FEATURES.n_features
FEW = select(FEATURES, np.arange(F) % 2 == 0)
NAN = float("nan")
VIRTUAL = {"features": None}


def ones(features):
    return Sparse(features, np.ones(features.n_features))


BAD = [
    ({"c1": "1"}, "c1: expected a finite number >= 0, got '1'"),
    ({"c1": None}, "c1: expected a finite number >= 0, got None"),
    ({"c2": "x"}, "c2: expected"),
    ({"tol": "a"}, "tol: expected"),
    ({"factor": "2"}, "factor: expected"),
    ({"factor": None}, "factor: expected"),
    ({"joint": "apart"}, "joint: expected one of True, False, 'alternate', got 'apart'"),
    ({"max_iterations": "x"}, "max_iterations: expected an integer >= 0, got 'x'"),
    ({"max_iterations": NAN}, "max_iterations: expected"),
    ({"freeze_after": "x"}, "freeze_after: expected an integer >= 0, got 'x'"),
    ({"constraints": "iob2"}, "constraints: expected Constraints or None"),
    ({"w0": Sparse(FEATURES, np.full(F, NAN))}, "w0: expected finite weights, got nan"),
    ({"w0": Sparse(FEATURES, np.ones(3))},
     rf"w0: expected one weight for each of its {F} features, got float64 \(3,\)"),
    ({"w0": ones(observed(CORPUS, 3, 9, 4, all_states=True))},
     r"w0: expected weights of at most \(L, A, B\) = \(3, 3, 4\), got .*9"),
    ({"w0": ones(observed(CORPUS, 4, 3, 4))}, r"w0: expected weights of at most \(L, A, B\)"),
    ({"features": FEW, "w0": ones(FEATURES)},
     "w0: expected weights of the given features alone, got 4 node weights of others"),
    (VIRTUAL | {"w0": ones(FEATURES), "edge_attrs": [0, 1]},
     "w0: expected no weights of edge attributes that are not among"),
    (VIRTUAL | {"w0": np.ones(3)}, "w0: where no features"),
    (VIRTUAL | {"sizes": 3}, r"sizes: expected three integers \(L, A, B\), got 3"),
    (VIRTUAL | {"sizes": (3, 3)}, "sizes: expected three integers"),
    (VIRTUAL | {"sizes": (3, 3, "a")}, "n_edge_attrs in sizes: expected an integer"),
    (VIRTUAL | {"sizes": (3, 1, 1)},
     r"sizes: expected at least \(L, A, B\) = \(3, 3, 4\), which the corpus holds, got \(3, 1, 1\)"),
    ({"features": FEATURES._replace(n_attrs=2)}, r"features: expected at least \(L, A, B\) = \(3, 3, 4\)"),
    (VIRTUAL | {"edge_attrs": [9]}, r"edge_attrs: expected integers from 0 to 3, got \[9\]"),
    (VIRTUAL | {"edge_attrs": [-1]}, "edge_attrs: expected"),
    (VIRTUAL | {"edge_attrs": ["a"]}, "edge_attrs: expected"),
    ({"state": {}}, "state: expected SparseResult.state, got one without n_labels"),
    ({"state": 3}, "state: expected SparseResult.state"),
]  # fmt: skip


@pytest.mark.parametrize(
    "arguments, message", BAD, ids=[f"{i} {message.split()[0]}" for i, (_, message) in enumerate(BAD)]
)
def test_one_sentence_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        coordinate_descent(CORPUS, **({"features": FEATURES, "c1": 1.0} | arguments))


PATHS = [
    ({"c1": [1.0, 0.0]}, "c1: expected values > 0, where c2 = 0"),
    ({"c1": []}, "c1: expected finite values"),
    ({"c1": [1.0, NAN]}, "c1: expected finite values"),
    ({"c1": [[1.0, 0.5]]}, "c1: expected finite values"),
    ({"c1": ["a"]}, "c1: expected numbers"),
    ({"sweeps": -1}, "sweeps: expected an integer >= 1, got -1"),
    ({"sweeps": 0}, "sweeps: expected"),
    ({"sweeps": [1.5, 2]}, "sweeps: expected an integer >= 1, got 1.5"),
    ({"sweeps": "x"}, "sweeps: expected an integer, or one for each of the 2 values of c1, got 1"),
    ({"sweeps": [1, 2, 3]}, "sweeps: expected an integer, or one for each of the 2 values of c1, got 3"),
    ({"max_iterations": 3}, "max_iterations: a path counts the sweeps of each value, give sweeps"),
    ({"w0": np.zeros(3)},
     "w0: a path begins without weights and goes on from each solution; coordinate_descent begins where"),
    ({"state": {}},
     "state: a path begins without weights and goes on from each solution; coordinate_descent goes on from"),
    ({"callback": 3}, "callback: expected a function or None, got 3"),
]  # fmt: skip


@pytest.mark.parametrize(
    "arguments, message", PATHS, ids=[f"{i} {message.split()[0]}" for i, (_, message) in enumerate(PATHS)]
)
def test_one_sentence_of_a_path(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        solve_path(CORPUS, FEATURES, **({"c1": [1.0, 0.5]} | arguments))


def test_an_option_that_is_none():
    with pytest.raises(
        TypeError, match="^solve_path: there is no option 'c3'; options are those of coordinate_descent"
    ):
        solve_path(CORPUS, FEATURES, c1=[1.0], c2=0.1, c3=1.0)


@pytest.mark.parametrize("minimizer", [minimize, proximal_gradient, coordinate_descent])
def test_one_word_for_a_model_without_weights(minimizer):
    """And for a proven minimum with weights, another."""
    problem = (
        (CORPUS, FEATURES)
        if minimizer is coordinate_descent
        else (Objective(CORPUS, FEATURES), np.zeros(FEATURES.n_features))
    )
    assert minimizer(*problem, c1=1e6).status == "empty model"
    assert minimizer(*problem, c1=0.5, tol_gradient=0.01, max_iterations=1000).status == "converged"
    with pytest.raises(ValueError, match="callback: expected a function or None, got 'x'"):
        minimizer(*problem, c1=1.0, callback="x")


@pytest.mark.parametrize(
    "arguments",
    [
        ("a", 1.0, 2),
        (1.0, 0.0, 2),
        (NAN, 1.0, 2),
        (np.inf, 1.0, 2),
        (1.0, 0.1, 1.5),
        (1.0, 0.1, "x"),
        (1.0, None, 2),
    ],
    ids=str,
)
def test_a_path_that_cannot_fall(arguments):
    with pytest.raises(ValueError, match="a path falls: expected finite|n: expected an integer >= 1"):
        falling(*arguments)


def test_a_path_may_end_without_l1_where_there_is_l2():
    assert [point.c1 for point in solve_path(CORPUS, FEATURES, c1=[1.0, 0.0], c2=C2, sweeps=[1, 2])] == [
        1.0,
        0.0,
    ]


def test_weights_of_another_run_are_taken_where_their_features_exist():
    """From virtual features: zeros do not count, the rest must be among the given ones;
    a state is checked as w0 is.
    """
    found = coordinate_descent(CORPUS, c1=0.5, c2=C2, tol=1e-8)
    again = coordinate_descent(
        CORPUS, FEATURES, w0=Sparse(found.features, found.w), c1=0.5, c2=C2, max_iterations=0
    )
    np.testing.assert_allclose(again.objective, found.objective, rtol=1e-12)
    padded = Sparse(FEATURES, np.where(np.arange(F) % 2 == 0, 0.3, 0.0))
    start = coordinate_descent(CORPUS, FEW, w0=padded, c1=0.5, c2=C2, max_iterations=0)
    np.testing.assert_array_equal(start.w, np.full(FEW.n_features, 0.3))
    whole = coordinate_descent(CORPUS, FEATURES, c1=0.1, c2=C2, max_iterations=3)
    with pytest.raises(ValueError, match="^state: expected weights of the given features alone"):
        coordinate_descent(CORPUS, FEW, c1=0.1, c2=C2, state=whole.state)


def test_a_state_of_a_like_corpus_is_refused():
    """Of the same shape, with other values: its log Z would judge the first steps,
    and block sizes of 1e29 would be learned.
    """
    part = coordinate_descent(CORPUS, FEATURES, c1=0.1, c2=C2, max_iterations=3)
    other = CORPUS._replace(attr_val=np.full(len(CORPUS.attr_idx), 3.0))
    with pytest.raises(
        ValueError,
        match="^state: expected that of coordinate_descent on the same corpus and constraints, got log Z",
    ):
        coordinate_descent(other, FEATURES, c1=0.1, c2=C2, state=part.state)


def test_an_edge_attribute_stands_once_in_a_class():
    """The tables would add its weight twice, and its counts be taken once."""
    with pytest.raises(
        ValueError, match="^class_attr: expected each edge attribute once in a class, got 3 twice in class 2"
    ):
        make_corpus([0], [0], [], class_ptr=[0, 2, 4, 7], class_attr=[0, 3, 0, 3, 3, 0, 3])


@pytest.mark.parametrize("when", [1, 2, 9])
def test_ctrl_c_amid_a_step_leaves_the_weights_before_it(monkeypatch, when):
    """In the parts of a large block, where a step is written before it is judged."""
    corpus, features = symbols(14, lengths=(4, 6, 1, 3) * 10)
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.LARGE", 0)
    run, calls, before = run_of(corpus, features), [], []
    extend, curvatures = VisitByParts.extend, VisitByParts.curvatures

    def interrupted(self, sequences, low, high, measure, state):
        calls.extend([1] * measure)  # the step is written
        if measure and len(calls) == when:
            assert not np.array_equal(scatter(run.export(), features), before[0])
            raise KeyboardInterrupt
        return extend(self, sequences, low, high, measure, state)

    def watched(self, *arguments):
        before[:] = [scatter(run.export(), features)]
        return curvatures(self, *arguments)

    monkeypatch.setattr(VisitByParts, "extend", interrupted)
    monkeypatch.setattr(VisitByParts, "curvatures", watched)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(9):
            run.sweep()
    np.testing.assert_array_equal(scatter(run.export(), features), before[0])
    move = run.arrays.move  # the next visit finds nothing of this one
    assert move.n[0] == 0 and not any(part.any() for part in (move.old_edge, *move[4:6]))
    np.testing.assert_allclose(
        run.renew(),
        Objective(corpus, features, c2=C2)(before[0])[0] + C1 * np.abs(before[0]).sum(),
        rtol=1e-12,
    )
