"""Files of a `DCRF` that `save` did not write: each is refused."""

import numpy as np
import pytest

from crfbook import DCRF, ModelFileError
from crfbook.data.files import load_arrays, save_arrays
from crfbook.dynamic import Clique, factorial

pytestmark = pytest.mark.kernels
FREE = np.ones((3, 3), bool)
BOTH_WAYS = [*factorial("pos", "np", skew=True), Clique(((1, "pos"), (0, "np")))]


def fitted(**options):
    rows = [[("D", "B"), ("N", "I"), ("V", "O")], [("N", "B")], []]
    X = [[["bias", word] for word in words] for words in (("the", "dog", "barks"), ("dogs",), ())]
    return DCRF(labels=("pos", "np"), **options).fit(X, rows)


# what a file may hold in place of each array, and of each value of its header
WRONG = {
    "missing": lambda a: None,
    "empty": lambda a: a[:0],
    "shorter": lambda a: a[:-1],
    "longer": lambda a: np.concatenate([a, a[-1:]]),
    "another shape": lambda a: a.reshape(-1, 1) if a.ndim == 1 else a.reshape(-1),
    "another type": lambda a: a.astype(np.float32 if a.dtype != np.float32 else np.int32),
    "too large": lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size - 1, a.dtype.type(10**9), a),
    "text": lambda a: np.full(a.shape, "a"),
    "no truth values": lambda a: np.full(a.shape, 2, np.uint8).view(bool),
}  # fmt: skip
CHANGED = [
    ("engine", "loopy"), ("engine", None), ("labels", ["pos"]), ("labels", ["pos", "tag"]), ("labels", 5),
    ("classes", {"pos": ["D", "N", "V"]}), ("classes", {"pos": ["D", "D", "V"], "np": ["B", "I", "O"]}),
    ("classes", {"pos": ["D", "N"], "np": ["B", "I", "O"]}), ("classes", {"pos": 3, "np": ["B", "I", "O"]}),
    ("classes", {"pos": [], "np": ["B", "I", "O"]}), ("classes", {"pos": [[1], [2]], "np": ["B", "I", "O"]}),
    ("classes", {"pos": list(range(5000)), "np": list(range(5000))}), ("limits", [["np", "np"], "np"]),
    ("limits", ["tag"]), ("limits", [5]), ("cliques", []), ("cliques", 5), ("cliques", [[]]),
    ("params", {"c3": 1}), ("params", {"c1": [1]}), ("params", 5), ("fitted", {}), ("encoder", {}),
    (
        "cliques",
        [[[[0, "pos"], [t, "np"], [t, "pos"]], "supported", "copy unless", []] for t in range(1, 9999)],
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    fitted(constraints={"np": {"start": ["B", "O"]}, ("pos", "np"): FREE}, max_iterations=3).save(path)
    return path, *load_arrays(path, "DCRF")


LIMITS = ["limits.0.0", "limits.0.1", "limits.0.2", "limits.1.0"]
POINTERS = ["node_ptr", "node_label"]
SPOILT = [(name, wrong) for name in ("weights", *POINTERS, *LIMITS) for wrong in WRONG]
SPOILT = [(name, wrong) for name, wrong in SPOILT if wrong not in ("too large", "no truth values")]
SPOILT += [(name, "too large") for name in POINTERS] + [(name, "no truth values") for name in LIMITS]


@pytest.mark.parametrize(("name", "wrong"), SPOILT)
def test_a_file_with_a_wrong_array_is_refused(saved, name, wrong):
    path, header, arrays = saved
    arrays = {**arrays, name: WRONG[wrong](arrays[name])}
    save_arrays(f"{path}.wrong", "DCRF", header, {n: a for n, a in arrays.items() if a is not None})
    with pytest.raises(ModelFileError):
        DCRF.load(f"{path}.wrong")


@pytest.mark.parametrize(("name", "value"), CHANGED)
def test_a_file_with_a_wrong_header_is_refused(saved, name, value):
    path, header, arrays = saved
    save_arrays(f"{path}.wrong", "DCRF", {**header, name: value}, arrays)
    with pytest.raises(ModelFileError):
        DCRF.load(f"{path}.wrong")


def test_a_file_of_a_template_without_elimination(tmp_path):
    fitted(cliques=BOTH_WAYS, max_iterations=1).save(tmp_path / "model")
    header, arrays = load_arrays(tmp_path / "model", "DCRF")
    assert header["engine"] == "junction"
    save_arrays(tmp_path / "model", "DCRF", {**header, "engine": "elimination"}, arrays)
    with pytest.raises(ModelFileError, match="engine: expected one of 'junction', .*, got 'elimination'"):
        DCRF.load(tmp_path / "model")
    cliques = [*factorial("pos", "np"), Clique(((0, "pos"), (0, "np"), (1, "np")))]
    fitted(cliques=cliques, max_iterations=1).save(tmp_path / "model")
    header, arrays = load_arrays(tmp_path / "model", "DCRF")
    for engine in ("block", "mean-field"):
        save_arrays(tmp_path / "model", "DCRF", {**header, "engine": engine}, arrays)
        with pytest.raises(
            ModelFileError, match=f"engine: expected one of 'junction', 'sync', .*, got '{engine}'"
        ):
            DCRF.load(tmp_path / "model")
