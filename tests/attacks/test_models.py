"""Model files that no `save` wrote, as many as CRFBOOK_ATTACKS asks for: one field changed, sealed again.

Each is refused in one sentence, or it says what the definition by enumeration says of the weights that it
holds: the best labels, their probability, and marginals that sum to one.
"""

import warnings

import numpy as np
import pytest
from helpers.attacks import attacks, changed, one_sentence
from helpers.corpora import chains_of
from helpers.dynamic import DynamicProblem, enumerate_sequence
from helpers.dynamic import X as GRAPH_X
from helpers.dynamic import Y as GRAPH_Y

from crfbook import CRF, DCRF, brute
from crfbook._checks import ModelFileError
from crfbook.data.corpus import make_corpus
from crfbook.data.files import load_arrays, save_arrays
from crfbook.dynamic import EXACT, factorial

pytestmark = pytest.mark.kernels  # which check nothing, where NumPy would refuse an index

WORDS = [["the", "man", "runs"], ["a", "dog", "barks", "-"], ["the"], [], ["a", "dog"]] * 2
TAGS = [["D", "N", "V"], ["D", "N", "V", "O"], ["D"], [], ["D", "N"]] * 2
RULES = {"start": ["D", "N"], "end": ["N", "V", "O", "D"]}
DICTS = [[{w: 1.0, "n": 0.5 * len(w)} for w in sentence] for sentence in WORDS]
CORPUS = make_corpus(
    [0, 2, 5], np.arange(6), [0, 1, 0, 2, 1], labels=[0, 1, 0, 2, 1],
    edge_class=[0, 1, 0, 0, 1], class_ptr=[0, 1, 3], class_attr=[0, 0, 1],
)  # fmt: skip
PATTERNS = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]\nU2:%suffix[0,0,1]\nB:%x[0,0]\n"
BOTH = {"labels": ("pos", "np")}
# name -> (class, parameters, X, y)
MODELS = {
    "template": (CRF, {"template": PATTERNS, "constraints": RULES}, WORDS, TAGS),
    "dictionary": (CRF, {"template": "U:%x[0,0]", "tag_dictionary": 2, "constraints": RULES}, WORDS, TAGS),
    "dicts": (CRF, {"algorithm": "arow", "all_possible_transitions": True}, DICTS, TAGS),
    "corpus": (CRF, {"algorithm": "sgd"}, CORPUS, None),
    "two chains": (
        DCRF,
        {"labels": ("pos", "np"), "constraints": {"np": {"start": ["B", "O"]}}},
        GRAPH_X,
        GRAPH_Y,
    ),
    "skew": (DCRF, {"labels": ("pos", "np"), "cliques": factorial("pos", "np", skew=True)}, GRAPH_X, GRAPH_Y),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """{name: (header, arrays)} of files that `save` wrote."""
    found = {}
    for name, (kind, params, X, y) in MODELS.items():
        path = tmp_path_factory.mktemp("saved") / name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind(**params).set_params(max_iterations=3).fit(X, y).save(path)
        found[name] = load_arrays(path, kind.__name__)
    return found


def changed_field(value, rng):
    """One entry of a header, found by going down a way in it, changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.one_of(value)
        return value | {name: changed_field(value[name], rng)}
    return changed(value, rng)


def chain_says(model, X):
    """Predictions of a `CRF` are those by enumeration. A sentence where the model refuses."""
    corpus = model._known(X)
    path, p = model.predict_array(X), model.predict_marginals_array(X)
    best = model.predict_kbest(X, 2)
    model.predict(X), model.predict_marginals(X)
    limits = model.constraints_
    for i, (node, edge, classes) in enumerate(chains_of(corpus, model.features_, model.weights_, limits)):
        if limits is not None and len(corpus.label_set):
            tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
            node[~limits.label_sets[corpus.label_set[tokens]]] = -np.inf
        if not len(node):
            continue
        size = float(np.abs(model.weights_).max(initial=1.0)) * 8.0
        if size > 1e300:
            assert np.isfinite(p[i]).all()
            continue
        score, paths = brute.best_paths(node, edge, classes)
        assert brute.path_score(node, edge, classes, path[i]) >= score - 1e-9 * size
        np.testing.assert_allclose(p[i].sum(axis=1), 1.0, rtol=1e-9)
        np.testing.assert_allclose(p[i], brute.node_marginals(node, edge, classes), atol=1e-12 * size + 1e-9)
        assert best[i][0][1] == pytest.approx(
            score - brute.log_z(node, edge, classes), abs=1e-12 * size + 1e-9
        )


def graph_says(model, X):
    """Predictions of a `DCRF` are those by enumeration."""
    corpus, _ = model._ready(X)
    path, p = model.predict(X), model.predict_marginals_array(X)
    problem = DynamicProblem(corpus, None, model.layout_, model.features_, model.weights_)
    size = float(np.abs(model.weights_).max(initial=1.0)) * 16.0
    for tables in p.values():
        for table in tables:
            assert np.isfinite(table).all()
            np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-6)
    if model.engine_ not in EXACT or size > 1e300:
        return
    numbers = [{label: k for k, label in enumerate(labels)} for labels in model._classes.values()]
    for i, length in enumerate(corpus.lengths.tolist()):
        if not length:
            continue
        one = enumerate_sequence(problem, i)
        weights = np.exp(one.scores - one.scores.max())
        weights /= weights.sum()
        own = [numbers[j][label] for labels in path[i] for j, label in enumerate(labels)]
        (at,) = np.flatnonzero((one.paths == own).all(axis=1))
        assert one.scores[at] >= one.scores.max() - 1e-9 * size
        for j, name in enumerate(model._columns):
            labels = one.paths[:, j :: len(numbers)]
            wanted = [
                [weights[labels[:, t] == k].sum() for k in range(len(numbers[j]))] for t in range(length)
            ]
            np.testing.assert_allclose(p[name][i], wanted, atol=1e-12 * size + 1e-9)


def test_models(saved, tmp_path):
    refused = 0
    for rng in attacks("models"):
        name = rng.one_of(MODELS)
        kind, _, X, y = MODELS[name]
        header, arrays = saved[name]
        if rng.random() < 0.75:
            field = rng.one_of(sorted(arrays))
            held = arrays | {field: changed(arrays[field], rng)}
            new = header, {key: array for key, array in held.items() if key != field or rng.random() > 0.03}
        else:
            field = rng.one_of(header)
            new = header | {field: changed_field(header[field], rng)}, arrays
        path = tmp_path / "model"
        save_arrays(path, kind.__name__, *new)
        try:
            try:
                model = kind.load(path)
            except ModelFileError as error:
                assert one_sentence(error), str(error)
                refused += 1
                continue
            try:
                (chain_says if kind is CRF else graph_says)(model, X)
            except ValueError as error:
                assert one_sentence(error), str(error)
        except Exception as error:
            raise AssertionError(f"try {rng.number}, {name}: {field}: {error!r}") from error
    assert refused
