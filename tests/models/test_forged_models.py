"""Well-sealed model files that no `save` wrote: each array and field of each kind of model, changed.

A changed file is refused in one sentence, or the change does no harm: it predicts, and goes on learning.
"""

import copy
import warnings
import zipfile

import numpy as np
import pytest

import crfbook
from crfbook._checks import ModelFileError
from crfbook.data.corpus import make_corpus
from crfbook.data.files import load_arrays, save_arrays
from crfbook.encoding import families
from crfbook.models import fitting, saving
from crfbook.models.crf import CRF
from crfbook.models.parameters import ALGORITHMS

pytestmark = pytest.mark.kernels  # which check nothing, where NumPy would refuse an index

WORDS = [["the", "man", "runs"], ["a", "dog", "barks", "-"], ["the", "a", "dog"]] * 2
TAGS = [["D", "N", "V"], ["D", "N", "V", "O"], ["D", "D", "N"]] * 2
RULES = {"start": ["D", "N", "V"]}
DICTS = [[{w: 1.0, "n": 0.5 * len(w)} for w in sentence] for sentence in WORDS]
MATRICES = [np.array([[len(w), 0.0, w < "d"] for w in sentence], float) for sentence in WORDS]
CORPUS = make_corpus([0, 2, 5], np.arange(6), [0, 1, 0, 2, 1], labels=[0, 1, 0, 2, 1])
PATTERNS = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]/%x[1,0]\nU2:%suffix[0,0,1,2]\nB:%x[0,0]\n"
OWN_REGEX = 'U0:%x[0,0]\nU1:%match[0,0,"(a+)+$"]\n'
# name -> (parameters, X, y)
MODELS = {
    "template": ({"template": PATTERNS}, WORDS, TAGS),
    "dictionary": ({"template": "U:%x[0,0]", "tag_dictionary": 2, "constraints": RULES}, WORDS, TAGS),
    "dicts": ({"constraints": RULES}, DICTS, TAGS),
    "matrices": ({}, MATRICES, TAGS),
    "corpus": ({}, CORPUS, None),
    "lbfgs": ({"algorithm": "lbfgs", "max_iterations": 2}, DICTS, TAGS),
    "sgd": ({"algorithm": "sgd"}, DICTS, TAGS),
    "sgd-l1": ({"algorithm": "sgd-l1", "c1": 0.01}, DICTS, TAGS),
    "pa": ({"algorithm": "pa"}, DICTS, TAGS),
    "arow": ({"algorithm": "arow"}, DICTS, TAGS),
}
OTHER_DTYPES = (np.float32, np.int32, np.int64, np.uint8, bool, ">f8", "S8")


def resealed(path, arrays=None, **fields):
    """Change arrays and fields ("a__b": header["a"]["b"]) of a model file, and seal it again."""
    header, old = load_arrays(path, "CRF")
    for place, value in fields.items():
        *way, last = place.split("__")
        inside = header
        for name in way:
            inside = inside[name]
        inside[last] = value
    save_arrays(path, "CRF", header, old | (arrays or {}))


def changes(array):
    """(name, changed array) of all that may be done to an array."""
    flat = np.atleast_1d(array)
    yield "missing", None
    yield from (("short", flat[:-1]), ("empty", flat[:0]), ("long", np.concatenate([flat, flat[-1:]])))
    yield from (("deep", array[None]), ("unsorted", flat[::-1]), ("turned", np.roll(flat, 1, axis=0)))
    for dtype in OTHER_DTYPES:
        if np.dtype(dtype) != array.dtype:
            yield f"as {np.dtype(dtype)}", array.astype(dtype)
    if array.dtype == bool:
        yield from (("opposite", ~array), ("bytes of 2", (array.view(np.uint8) + 2).view(bool)))
        yield from (("none", array & False), ("all", array | True))
        return
    with np.errstate(all="ignore"):
        for shift in (1, -1, 2**30):
            yield f"shifted by {shift}", (array + np.int64(shift)).astype(array.dtype)
        yield from (("negative", (-array).astype(array.dtype)), ("twice", (array * 2).astype(array.dtype)))
    for value in (0, 3, *([np.nan, -np.inf, 1e6] if array.dtype.kind == "f" else [])):
        yield f"full of {value}", np.full_like(array, value)
        if array.size:
            one = array.copy()
            one.flat[-1] = value
            yield f"last is {value}", one


def use(model, X, y):
    """Predict, explain and learn on: finite weights, and no other exception than a ValueError."""
    try:
        model.predict(X), model.predict_marginals(X), model.log_proba(X, y)
        _ = model.state_features_, model.edge_features_, repr(model.encoder_), model.classes_
        if ALGORITHMS[model._learner[0]].one_pass is not None:
            model.partial_fit(X, y)
    except ValueError as error:
        assert "\n" not in str(error)
    assert np.isfinite(model.weights_).all()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    monkeypatch.setattr(families, "LIMIT", 100)  # so that keys are numbered again on the way
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def saved(name, path):
    params, X, y = MODELS[name]
    model = CRF(**{"algorithm": "perceptron", "max_iterations": 2} | params).fit(X, y)
    model.set_params(max_iterations=None).save(path)
    return X, y


@pytest.mark.parametrize("name", MODELS)
def test_each_array_changed_in_each_way(name, tmp_path, monkeypatch):
    path = tmp_path / "m"
    data = saved(name, path)
    use(CRF.load(path), *data)  # so it is what is changed that is refused
    (header, arrays), refused = load_arrays(path, "CRF"), set()
    for array in sorted(arrays):
        for change, new in changes(arrays[array]):
            if new is not None and new.dtype == arrays[array].dtype and np.array_equal(new, arrays[array]):
                continue
            held = {key: kept.copy() for key, kept in arrays.items() if key != array}
            held |= {} if new is None else {array: new}
            content = copy.deepcopy(header), held
            monkeypatch.setattr(
                saving, "load_arrays", lambda *_, content=content: content
            )  # as resealed, but quick
            try:
                model = CRF.load(path)
            except ModelFileError as error:
                refused.add((array, change))
                assert "\n" not in str(error) and len(str(error)) < 500, (array, change)
                continue
            if array.startswith("history."):
                assert len(model.history_) == model._history["iteration"].size
                continue
            try:
                use(model, *data)
            except Exception as error:
                raise AssertionError(f"{array}, {change}: {error!r}") from error
    loose = {
        (array, change) for array in arrays for change in ("empty", "short", "deep", "missing")
    } - refused
    shapes = {array for array, change in loose if change != "missing" and arrays[array].size}
    assert shapes <= {"state.window", "constraints.label_sets"}, sorted(loose)  # of any length


@pytest.mark.parametrize(
    "name, array, change, shown",
    [
        ("template", "encoder.node_order", lambda a: np.zeros_like(a), ""),
        ("template", "encoder.node_keys", lambda a: a + 10**6, ""),
        ("template", "encoder.node_keys", lambda a: a[::-1], ""),
        ("template", "encoder.cell0_ptr", lambda a: a[:-1], ""),
        ("template", "encoder.node1_stage2", lambda a: a[::-1], ""),
        ("template", "encoder.attribute_counts", lambda a: -a, ""),
        ("dicts", "features.node_label", lambda a: a[::-1], "node_keys"),
        ("dicts", "encoder.names_ptr", lambda a: np.roll(a, 1), ""),
        ("matrices", "encoder.columns", lambda a: a + 9, ""),
        ("matrices", "encoder.columns", lambda a: a * 0, ""),
        ("dictionary", "dictionary.row", lambda a: a.astype(float) + 0.5, ""),
        ("dictionary", "constraints.label_sets", lambda a: a & False, "tag dictionary"),
        ("sgd", "state.mean", lambda a: a * np.nan, ""),
        ("sgd-l1", "state.received", lambda a: a + np.inf, ""),
        ("arow", "state.variance", lambda a: -a, ""),
        ("arow", "state.w_sum", lambda a: a[:-1], ""),
        ("pa", "state.count", lambda a: a * 0, ""),
        ("lbfgs", "history.objective", lambda a: a[:-1], ""),
    ],
)
def test_what_kernels_and_indices_touch_is_refused(name, array, change, shown, tmp_path):
    path = tmp_path / "m"
    saved(name, path)
    resealed(path, {array: change(load_arrays(path, "CRF")[1][array])})
    with pytest.raises(ModelFileError, match=f"m: refused, .*{shown or array.partition('.')[2]}"):
        CRF.load(path)


NAN, HUGE = float("nan"), 10**15


@pytest.mark.parametrize(
    "name, field, value",
    [
        ("corpus", "encoder__sizes", [HUGE, 3, 1]),  # allocates nothing of that size
        ("corpus", "encoder__sizes", [0, 3, 1]),
        ("corpus", "encoder__sizes", [3.0, 3, 1]),
        ("corpus", "encoder__sizes", [3, HUGE, 1]),
        ("corpus", "encoder__sizes", [3, 3]),
        ("corpus", "features__n_labels", True),
        ("dicts", "features__n_attrs", HUGE),
        ("dicts", "features__n_labels", 4.0),
        ("dicts", "encoder__kind", "template"),
        ("dicts", "encoder__labels", ["D", "N", "V", "D"]),
        ("dicts", "encoder__labels", ["D", "N", "V", NAN]),
        ("dicts", "encoder__labels", ["D", "N", "V", {"tuple": [1, NAN]}]),
        ("dicts", "encoder__labels", ["D", "N", "V", None]),
        ("dicts", "encoder__labels", [1, True, "V", "D"]),
        ("dicts", "encoder__labels", "DNVO"),
        ("dicts", "encoder__min_freq", -1.0),
        ("dicts", "fitted__n_iter_", -1),
        ("dicts", "fitted__status_", 3),
        ("dicts", "n_seen", -6),
        ("dicts", "n_seen", NAN),
        ("dicts", "trained_by", "lbfgs"),  # which keeps no state
        ("dicts", "trained_by", "arow"),
        ("dicts", "trained_by", ["arow"]),
        ("dicts", "params__c2", [1]),
        ("dicts", "params__unknown", 1),
        ("dicts", "dictionary", {"column": 0}),
        ("dictionary", "dictionary__column", [0]),
        ("template", "encoder__columns", [["word"]]),
        ("template", "encoder__columns", ["a", "a"]),
        ("template", "encoder__attributes__template", "U:%x[0,0]"),
        ("template", "encoder__attributes__template", None),
        ("template", "encoder__attributes__families", {"node": [[-1, []], [1, []]], "edge": []}),
        ("template", "encoder__attributes__families", {"node": [[HUGE, []]] * 3, "edge": [[1, []]]}),
        ("matrices", "encoder__attributes", {"n_columns": HUGE, "named": True}),
        ("matrices", "encoder__attributes", {"n_columns": 2.5, "named": False}),
        ("matrices", "encoder__attributes", {}),
    ],
)
def test_fields_of_the_header(name, field, value, tmp_path):
    path = tmp_path / "m"
    saved(name, path)
    resealed(path, **{field: value})
    with pytest.raises(ModelFileError, match="m: refused"):
        CRF.load(path)


def test_a_sentence_shows_nothing_that_a_terminal_obeys(tmp_path):
    path = tmp_path / "m"
    saved("dicts", path)
    resealed(path, trained_by="\x1b[2J\r\n" * 1000)
    with pytest.raises(ModelFileError) as caught:
        CRF.load(path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


def test_members_that_share_bytes_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "m"
    saved("dicts", path)
    sizes = zipfile.ZipFile.infolist
    monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda self: sizes(self) * 1000)
    with pytest.raises(ModelFileError, match="larger than the file"):
        CRF.load(path)


def test_regular_expressions_need_trust(tmp_path):
    for template in ("ner", "words", PATTERNS):  # the library's own, or none
        CRF("perceptron", template=template, max_iterations=1).fit(WORDS, TAGS).save(tmp_path / "m")
        assert CRF.load(tmp_path / "m").template.text
    CRF("perceptron", template=OWN_REGEX, max_iterations=1).fit(WORDS, TAGS).save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"m: refused, .*\(a\+\)\+.*trust=True"):
        CRF.load(tmp_path / "m")
    model = CRF.load(tmp_path / "m", trust=True)
    assert model.predict(WORDS) == CRF.load(tmp_path / "m", trust=True).partial_fit(WORDS[:0], []).predict(
        WORDS
    )


def test_a_refused_regular_expression_is_not_even_compiled(tmp_path, monkeypatch):
    saved("template", tmp_path / "m")
    resealed(tmp_path / "m", encoder__attributes__template='U0:%t[0,0,"((("]')
    with pytest.raises(ModelFileError, match="trust=True"):  # not: does not compile
        CRF.load(tmp_path / "m")


def test_every_algorithm_that_goes_on_has_a_table_of_its_state():
    assert fitting.STATES.keys() == {key for key, row in ALGORITHMS.items() if row.one_pass is not None}


def test_the_error_can_be_imported():
    assert crfbook.ModelFileError is ModelFileError
