"""Tiny fits with hostile parameters and inputs, drawn from a seed: each ends well, or says why not.

Ends well: finite weights, a finite objective (or a warning of ours), and labels that are allowed. No other
exception, and no warning of NumPy's.
"""

import math
import warnings

import numpy as np
import pandas
import pytest

from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed
from crfbook.learners.stochastic.dual import DualAscent
from crfbook.models.crf import CRF
from crfbook.models.directed import HMM, MEMM
from crfbook.models.dynamic import DCRF
from crfbook.models.parameters import ALGORITHMS, EITHER, NEEDED, NONE, PARAMETERS

FITS = 134  # of each algorithm and model: 2,010 in all
MODELS = {key: CRF for key in ALGORITHMS} | {"HMM": HMM, "MEMM": MEMM}
ORDINARY = 0.5, 1.0, 2.0, -1.0, 3
HOSTILE = 0.0, -0.0, 1e300, -1e300, 1e160, 5e-324, 1e-320, 1e-160, 1e150, -1e155, 1.7e308
TINY_AND_HUGE = 5e-324, 1e-320, 1e-300, 1e-160, 1e-20, 1e-6, 0.1, 1.0, 10.0, 1e6, 1e20, 1e160, 1e300, 1.7e308
LABELS = ["A", "B", "C", "D"]


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def extreme(rng):
    """A positive number: half of them ordinary, the others anywhere in float64."""
    if rng.random() < 0.5:
        return float(rng.uniform(0.01, 2.0))
    return pick(rng, TINY_AND_HUGE) if rng.random() < 0.5 else float(10.0 ** rng.uniform(-320, 308))


def text(rng):
    """(X, y, sample_weight): sequences of dicts, or of lists with duplicates; some are empty."""
    n_labels, values = int(rng.integers(1, 5)), ORDINARY if rng.random() < 0.5 else (*ORDINARY, *HOSTILE)
    lengths = [1] if rng.random() < 0.1 else rng.integers(0, 5, rng.integers(1, 6))
    kind = int(rng.integers(3))

    def token():
        names = [f"a{k}" for k in rng.integers(0, 5, rng.integers(0, 4))]
        return names if kind == 0 else {name: pick(rng, values) for name in names}

    X = [[token() for _ in range(n)] for n in lengths]
    y = [[LABELS[k] for k in rng.integers(0, n_labels, n)] for n in lengths]
    weights = None
    if rng.random() < 0.4:
        weights = [0.0 if rng.random() < 0.2 else extreme(rng) for _ in X]
    return X, y, weights


def parameters(rng, key):
    """What a `CRF` of this algorithm is made with."""
    row, drawn = ALGORITHMS[key], {"algorithm": key, "max_iterations": pick(rng, (0, 1, 2, 5, 20))}
    if row.c1 in (NEEDED, EITHER) or (row.c1 != NONE and rng.random() < 0.4):
        drawn["c1"] = extreme(rng)
    if row.c2 != NONE and rng.random() < 0.7:
        drawn["c2"] = 0.0 if row.c2 != NEEDED and rng.random() < 0.2 else extreme(rng)
    if len(row.losses) > 1:
        drawn["loss"] = pick(rng, row.losses)
    for name, parameter in PARAMETERS.items():
        if name in drawn or name in ("c1", "c2") or key not in parameter.readers or rng.random() < 0.8:
            continue
        if parameter.kind == "number":
            drawn[name] = extreme(rng)
        elif parameter.kind == "whole":
            drawn[name] = int(rng.integers(1, 5))
        elif parameter.kind in ("choice", "flag"):
            drawn[name] = pick(rng, parameter.choices or (False, True))
    drawn["n_jobs"] = int(rng.integers(1, 5))
    for name in ("all_possible_states", "all_possible_transitions", "warm_start"):
        drawn[name] = bool(rng.random() < 0.3)
    drawn["random_state"] = int(rng.integers(1000))
    return drawn


def limits(rng, y):
    """Constraints that allow what occurs, and nothing else; or, now and then, not even that."""
    if rng.random() < 0.7:
        return None
    names = sorted({label for labels in y for label in labels})
    allowed = pandas.DataFrame(False, index=names, columns=names)
    for labels in y:
        for pair in zip(labels[:-1], labels[1:], strict=True):
            allowed.loc[pair] = rng.random() < 0.9
    ends = {"end": {labels[-1] for labels in y if labels}} if rng.random() < 0.5 else {}
    return {"allowed": allowed, **ends}


def model_of(rng, name, y):
    if name == "HMM":
        return HMM(smoothing=extreme(rng))
    if name == "MEMM":
        return MEMM(
            c1=extreme(rng) if rng.random() < 0.4 else 0.0, c2=extreme(rng), tol=extreme(rng),
            max_iterations=pick(rng, (0, 1, 5)), constraints=limits(rng, y),
        )  # fmt: skip
    return CRF(**parameters(rng, name), constraints=limits(rng, y), on_violation=pick(rng, ("raise", "drop")))


def one_sentence(error):
    text = str(error)
    return text and "\n" not in text and len(text) < 600


def ours(caught):
    """The sentences of our warnings; fails for one of NumPy's. ResourceWarnings: of what other tests left."""
    caught = [warning for warning in caught if not issubclass(warning.category, ResourceWarning)]
    for warning in caught:
        assert issubclass(warning.category, UserWarning), (
            f"{warning.filename}:{warning.lineno} {warning.message}"
        )
        assert one_sentence(warning.message)
    return [str(warning.message) for warning in caught]


def attempt(call, *arguments, **more):
    """Its result, or None where it raised one sentence."""
    try:
        return call(*arguments, **more)
    except (ValueError, TypeError, MemoryError) as error:
        assert one_sentence(error), str(error)
        return None


def run(seed, name):
    rng = np.random.default_rng([seed, list(MODELS).index(name)])
    X, y, weights = text(rng)
    more = text(rng)
    model = model_of(rng, name, y)
    for sequences, labels, weight in [(X, y, weights)] + [more] * bool(getattr(model, "warm_start", False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            arguments = {} if weight is None else {"sample_weight": weight}
            if attempt(model.fit, sequences, labels, **arguments) is None:
                ours(caught)
                return "refused"
            said = ours(caught)
            if name != "HMM":
                assert np.isfinite(model.weights_).all(), said
                logarithm = name == "boosting" and model.objective_ == -math.inf  # of no loss at all
                assert math.isfinite(model.objective_) or said or logarithm, model.objective_
            strange = [[["never", "seen", "a0"], ["a0", "a0"]], []]
            for new in (sequences, strange):
                found = attempt(model.predict, new)
                assert found is None or [len(s) for s in found] == [len(s) for s in new]
                assert found is None or {k for s in found for k in s} <= set(model.classes_)
            ours(caught)
    return "warned" if said else "fitted"


@pytest.mark.parametrize("name", MODELS)
def test_hostile_fits(name, both_ways):
    """All these problems are tiny: those with even seeds are given to kernels, the others to NumPy."""
    ends = [run(seed, name) for seed in range(both_ways == "numpy", FITS, 2)]
    assert ends.count("refused") < 0.6 * len(ends), "so many refusals say little about training"


# ---- what it has found, made small


X = [[{"a": 1.0}, {"b": 1.0}], [{"b": 1.0}, {"a": 1.0}, {"a": 1.0, "b": 2.0}]]
Y = [["A", "B"], ["B", "A", "A"]]


def silent(model, *arguments, **more):
    """Its fit and what our warnings say; one of NumPy's is a failure."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*arguments, **more)
    return model, " ".join(ours(caught))


def penalised(name, **params):
    row = ALGORITHMS[name]
    c1 = 0.1 if row.c1 == NEEDED else 0.0
    return CRF(name, **{"c1": c1, "c2": None if row.c2 == NONE else 0.1, "max_iterations": 5, **params})


@pytest.mark.parametrize("size", [1e160, 1e300])
@pytest.mark.parametrize("name", ["lbfgs", "owlqn", "auto", "sgd", "sgd-l1", "sag", "sdca", "MEMM"])
def test_values_whose_squares_overflow_are_named(name, size):
    huge = [[{"a": size}, {"b": -size}], [{"b": size}]]
    model = MEMM(max_iterations=5) if name == "MEMM" else penalised(name)
    model, said = silent(model, huge, [["A", "B"], ["B"]])
    assert np.isfinite(model.weights_).all()
    if not np.isfinite(model.objective_) or model.status_ == "non-finite objective":
        assert f"attribute values up to {size:.3g}" in said


@pytest.mark.parametrize("name", ["cd", "sbcd"])
def test_coordinate_descent_refuses_them(name):
    with pytest.raises(ValueError, match="attribute values up to 1e\\+300 .*scale them"):
        silent(penalised(name), [[{"a": 1e300}, {"b": 1.0}]], [["A", "B"]])


def test_a_tiny_penalty_is_no_reason_to_stop():
    """The bound |g|^2 / (4 c2) exceeds float64: training went no step."""
    for c2 in (5e-324, 1e-320):
        model, said = silent(CRF(c2=c2, max_iterations=3), X, Y)
        assert model.n_iter_ == 3 and model.status_ == "max_iterations" and not said
        assert model.objective_ == pytest.approx(CRF(c2=1e-20, max_iterations=3).fit(X, Y).objective_)
    assert silent(CRF(c2=1e-320, epsilon=1e-5, max_iterations=3), X, Y)[0].n_iter_ == 3


def test_a_huge_penalty_is_met():
    model, _ = silent(CRF(c2=1.7e308), X, Y)  # 4 c2 exceeds float64
    assert np.abs(model.weights_).max() < 1e-300 and math.isfinite(model.objective_)


def test_sgd_does_not_end_at_infinity_in_silence():
    """An epoch ended well, and the scores of the weights that it left exceeded float64: it is undone."""
    zeros = {"a3": 1e-160, "a4": -0.0, "a0": 0.0}
    text = [[zeros], [{"a4": 0.0, "a1": 1e300}, {}, {"a2": 1e-160}, {"a0": -1.0}]]
    model = CRF("sgd-l1", c1=0.5069132056760787, max_iterations=2, period=1, random_state=361)
    model, said = silent(model, text, [["B"], ["A", "B", "B", "B"]])
    assert np.isfinite(model.weights_).all() and math.isfinite(model.objective_)
    assert "diverged; the last good weights are kept" in said and "attribute values up to 1e+300" in said


def test_averages_that_overflow_do_not_become_weights():
    text = [[{"a": -1e155}, {"b": -1.0, "c": 1.7e308}], [], [{"b": 3.0}, {}], [{"a": -1.0}]]
    model, said = silent(CRF("perceptron", max_iterations=5), text, [["B", "B"], [], ["B", "D"], ["A"]])
    again, _ = silent(
        CRF("perceptron", max_iterations=5, random_state=1), text, [["B", "B"], [], ["B", "D"], ["A"]]
    )
    assert np.isfinite(model.weights_).all() and np.isfinite(again.weights_).all() and said


def test_an_hmm_whose_counts_overflow():
    with pytest.raises(ValueError, match=r"smoothing=1\.7e\+308: expected sums within float64"):
        silent(HMM(smoothing=1.7e308), X, Y)


def test_a_huge_value_changes_no_other_token():
    """Squares of a token's values were differences of a running sum: 1e200 swallowed all that came later."""
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], attr_val=[1e100, 2.0], labels=[0, 1])
    learner = DualAscent(corpus, observed(corpus, 2, 2), None, None, None, 0, 1.0, 1e-6)
    assert learner.memory.square[1] == 2.0**2 + 1.0  # and the transition


def test_sample_weights_that_overflow_in_the_sum():
    for name in ("sgd", "sgd-l1", "lbfgs"):
        model, said = silent(penalised(name), X, Y, sample_weight=[1.7e308, 1.7e308])
        assert np.isfinite(model.weights_).all() and "sample weights up to 1.7e+308" in said


def test_a_callback_keeps_its_own_warnings():
    def callback(step, w):
        np.square(np.array([1e300]))

    with pytest.warns(RuntimeWarning, match="overflow"):
        CRF(max_iterations=1).fit(X, Y, callback=callback)


def test_an_empty_token_that_is_none_is_refused():
    """The last one, if it had no length, was taken for one without attributes."""
    for token in ("", b"", np.zeros(0)):
        with pytest.raises(
            TypeError, match="sequence 1, token 2: expected a dict or a list of attribute strings"
        ):
            CRF().fit([X[0], [*X[1][:2], token]], Y)


def test_an_attribute_of_value_0_says_nothing_to_an_hmm():
    """It made a token known, and of an impossible one nan."""
    zero = [[{**token, "a": token.get("a", 0)} for token in sequence] for sequence in X]
    for smoothing in (0.0, 0.1):
        one, other = HMM(smoothing).fit(X, Y), HMM(smoothing).fit(zero, Y)
        assert np.array_equal(one.predict_marginals_array(X)[1], other.predict_marginals_array(zero)[1])
    assert one.predict_marginals([[{}]]) == one.predict_marginals([[{"a": 0.0}]])


def test_large_sample_weights_of_a_dynamic_model_and_of_scores():
    y = [[(label,) for label in labels] for labels in Y]
    model, said = silent(DCRF("linear", ("y",)), X, y, sample_weight=[1e308, 1e308])
    assert "sample weights up to 1e+308" in said and np.isfinite(model.weights_).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fitted, labels in ((DCRF("linear", ("y",)).fit(X, y), y), (CRF().fit(X, Y), Y)):
            assert fitted.score(X, labels, sample_weight=[1e308, 1.7e308]) == fitted.score(
                X, labels, [1.0, 1.7]
            )
