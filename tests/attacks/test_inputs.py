"""X, y, weights and parameters that no manual shows: one sentence, or a model whose probabilities are those
of its own weights, by enumeration, and whose labels are those that were given.
"""

import datetime
import enum
import math
import warnings
from collections import Counter, deque
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.attacks import ODD_NUMBERS, ODD_TEXTS, attacks, one_sentence

from crfbook import CRF, DCRF, HMM, MEMM, brute
from crfbook.data.corpus import make_corpus, take_sequences

pytestmark = pytest.mark.kernels
Colour = enum.Enum("Colour", "RED BLUE")
DEEP, LOOP = [], {}
for _ in range(3000):
    DEEP = [DEEP]
LOOP["a"] = LOOP
TABLE = pd.DataFrame({"word": ["a", "b"], "label": ["A", "B"]})
VALUES = (
    1, 2.0, True, False, 0, -1.5, "text", "", b"text", b"\xff", None, 10**400, 10**5000, Decimal("1.5"),
    Fraction(1, 3), 1j, np.float32(0.5), np.int8(3), np.bool_(True), np.str_("s"), np.array(1.0),
    np.array([1.0]), float("nan"), float("inf"), pd.NA, pd.NaT, np.datetime64("2020"), {"in": 1.0},
    {"in": {"deep": "x"}}, ["u", "v"], {"s"}, DEEP, LOOP, object(), len, "\ud800", "a:b", "\n", 1e-320,
    Colour.RED,
)  # fmt: skip
NAMES = "a", "b", "w", "a:b", "", "\ud800", "\n", "\0", b"a", b"\xff", np.str_("n"), 1, None, ("a",), 2.5, "é"
TOKENS = (
    None, 1, 1.5, "a", "", b"a", (), [], {}, set(), {"a"}, frozenset("ab"), ("a", "b"), ["a", "a"], [["a"]],
    [1], DEEP, LOOP, TABLE, np.array(["a", "b"]), np.array([1.0]), MappingProxyType({"a": 1}), object(),
    float("nan"), {"a": LOOP},
)  # fmt: skip
LABELS = (
    "A", "B", "", "\ud800", "\0", 0, 1, -1, -100, np.int64(-100), np.int32(1), np.str_("A"), True, None,
    1.5, float("nan"), np.float64("nan"), pd.NA, pd.NaT, Decimal("NaN"), 10**5000, -(10**30), ("A", 1), (),
    frozenset("ab"), ["A"], {"A"}, {"A": 1}, np.array("A"), np.array([1]), b"A", b"\xff", Colour.RED,
    datetime.date(2020, 1, 1), 1j, len, np.datetime64("2020"), Decimal("1"), Fraction(1, 2), object(),
    "x" * 5000, "\x1b[2J", float("inf"), ("A", None),
)  # fmt: skip
WEIGHTS = (
    [1.0, 2.0, 0.5], np.array([1, 0, 2]), [True, False, True], [0, 0, 0], [1, 1], [[1, 1, 1]], "abc",
    ["1", "1", "1"], [1, float("nan"), 1], [1, -1, 1], [1e308] * 3, [10**400, 1, 1], [None] * 3, 1.0,
    {"a": 1}, pd.Series([1, 2, 3]), TABLE, [1j, 1, 1], np.array(["2020"] * 3, "M8[Y]"),
    [Decimal("1.5")] * 3, (w for w in (1, 2, 3)), [pd.NA, 1, 2], [[1], [2], 3],
)  # fmt: skip
SETTINGS = (
    *ODD_NUMBERS, *ODD_TEXTS, None, True, [], {}, (), [1], {"a": 1}, object(), len, np.array([1.0, 2.0]),
    TABLE, 10**400, float("-inf"), "auto", "exact", ["B-x"], ("a", "b"), pd.NA, 1j, np.float32(0.5), b"x",
    np.ones((2, 2)), Decimal(1), np.ones((3, 3), bool), 1e-320, -0.0,
)  # fmt: skip
MODELS = {
    "CRF": lambda **more: CRF(**{"max_iterations": 4, **more}),
    "perceptron": lambda **more: CRF(**{"algorithm": "perceptron", "max_iterations": 3, **more}),
    "owlqn": lambda **more: CRF(**{"algorithm": "owlqn", "c1": 0.1, "max_iterations": 4, **more}),
    "HMM": HMM,
    "MEMM": lambda **more: MEMM(**{"max_iterations": 4, **more}),
    "DCRF": lambda **more: DCRF(**{"cliques": "linear", "labels": ("y",), "max_iterations": 4, **more}),
}
LARGE = {"n_jobs", "num_memories", "max_linesearch", "period"}  # a large one is work that was asked for
TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]\nB:%x[0,0]"


def a_token(rng, kind, odd):
    if kind == "templated":
        return (
            rng.one_of(TOKENS) if odd and rng.random() < 0.3 else rng.one_of(["a", "b", "\ud800", "\0", ""])
        )
    if kind == "cells":
        return {"word": rng.one_of(["a", "b"]), "tag": rng.one_of(VALUES if odd else ["x", "y"])}
    if odd and rng.random() < 0.3:
        return rng.one_of(TOKENS)
    names, values = (NAMES, VALUES) if odd else (NAMES[:3], VALUES[:8])
    if kind == "lists":
        return [rng.one_of(names) for _ in range(int(rng.integers(0, 4)))]
    return {rng.one_of(names): rng.one_of(values) for _ in range(int(rng.integers(0, 4)))}


def an_input(rng, n_odd):
    """(kind, X: list of lists of tokens or of arrays)."""
    kind = rng.one_of(["dicts", "dicts", "lists", "templated", "cells", "dense", "sparse", "corpus"])
    sizes = [int(rng.integers(0, 4)) for _ in range(3)]
    if kind in ("dense", "sparse"):
        arrays = [rng.one_of([0, 1, 2.5, -1]) * (rng.random((n, 2)) < 0.7) for n in sizes]
        form = scipy.sparse.csr_matrix if kind == "sparse" else np.asarray
        first = form(arrays[0].astype(float))
        if n_odd:
            strange = [arrays[0].astype(kind) for kind in (object, bool, np.int8, complex, "S3")]
            strange += [
                np.full((sizes[0], 2), np.nan),
                np.full((sizes[0], 3), 1.0),
                arrays[0].T,
                arrays[0][None],
            ]
            first = rng.one_of([*strange, TABLE, arrays[0].tolist(), first.astype(np.float32)])
        return kind, [first, *map(form, arrays[1:])]
    odd = set(rng.integers(0, sum(sizes) + 1, n_odd).tolist()) if n_odd else set()
    at = iter(range(sum(sizes)))
    return kind, [[a_token(rng, kind, next(at) in odd) for _ in range(n)] for n in sizes]


def length(sequence):
    return sequence.shape[0] if hasattr(sequence, "shape") else len(sequence)


def some_labels(rng, sizes, n_odd):
    names = rng.one_of(
        [("A", "B"), ("A", "B", "C"), (0, 1, 2), ("O", "B-x", "I-x"), (1.5, 2.5), (True, False)]
    )
    y = [[rng.one_of(names) for _ in range(n)] for n in sizes]
    places = [(i, t) for i, n in enumerate(sizes) for t in range(n)]
    label = rng.one_of(LABELS)
    for i, t in [rng.one_of(places) for _ in range(n_odd)] if places else []:
        y[i][t] = label if rng.random() < 0.7 else rng.one_of(LABELS)
    return y


def series(s):
    return pd.Series(list(s), dtype=object)


PLAIN = list, tuple, lambda s: (part for part in s), series, deque
STRANGE = (
    lambda s: TABLE, lambda s: None, lambda s: s[0], lambda s: [s], lambda s: "AB",
    lambda s: dict(enumerate(s)), lambda s: s[:-1], lambda s: [*s, s[0]], lambda s: [None, *s[1:]],
    lambda s: [iter(part) for part in s], lambda s: ["ab", *s[1:]], lambda s: [set(map(str, s[0])), *s[1:]],
    lambda s: [TABLE, *s[1:]], lambda s: [dict(enumerate(s[0])), *s[1:]], lambda s: np.zeros(()),
    lambda s: [3, *s[1:]], lambda s: 3, lambda s: MappingProxyType({"a": s}), lambda s: object(),
    lambda s: list(map(series, s)), lambda s: list(map(tuple, s)), lambda s: b"x", lambda s: [],
)  # fmt: skip


def wrapped(rng, sequences, odd):
    """A function that gives the sequences anew, in some container."""
    way = rng.one_of(STRANGE if odd else PLAIN)

    def give():
        return way(sequences)

    return give


class Refused(Exception):
    pass


def attempt(case, call, *arguments, **more):
    """What it returns. Refused where it raised a sentence; its warnings are sentences of ours."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return call(*arguments, **more)
        except (ValueError, TypeError, MemoryError) as error:
            assert one_sentence(error), (case, type(error), str(error))
            raise Refused from None
        finally:
            for warning in caught:
                assert issubclass(warning.category, UserWarning | ResourceWarning), (case, str(warning))
                assert one_sentence(warning.message), (case, warning.message)


def test_an_input_is_refused_or_means_what_it_says(tmp_path):
    ends = Counter()
    for rng in attacks("inputs"):
        ends[one_try(rng, tmp_path / "model")] += 1
    assert ends["fitted"] and ends["refused"], ends


def one_try(rng, path):
    name = rng.one_of(MODELS)
    what = rng.one_of(["X", "y", "container", "weight", "setting", "nothing", "y"])
    kind, X = an_input(rng, what == "X" and int(rng.integers(1, 3)))
    sizes = list(map(length, X))
    y = some_labels(rng, sizes, what == "y" and int(rng.integers(1, 3)))
    flat = [label for labels in y for label in labels]
    given = {"template": TEMPLATE} if kind in ("templated", "cells") else {}
    if what == "setting":
        setting = rng.one_of(
            sorted(set(MODELS[name]().get_params()) - {"verbose", "template", "tag_dictionary"})
        )
        given[setting] = rng.one_of(
            [v for v in SETTINGS if not (setting in LARGE and isinstance(v, int) and v > 9)]
        )
    X, y = as_corpus(rng, X, y, sizes) if kind == "corpus" else (X, y)
    if name == "DCRF":
        y = [[(label,) for label in labels] for labels in y]
    of_X = (lambda: X) if kind == "corpus" else wrapped(rng, X, what == "container" and rng.random() < 0.6)
    of_y = wrapped(rng, y, what == "container" and rng.random() < 0.5)
    weight = {"sample_weight": rng.one_of(WEIGHTS)} if what == "weight" else {}
    case = rng.number, name, what, kind
    try:
        model = attempt(case, MODELS[name], **given)
        assert attempt(case, model.fit, of_X(), of_y(), **weight) is model
        found = attempt(case, model.predict, of_X())
    except Refused:
        return "refused"
    classes = next(iter(model.classes_.values())) if name == "DCRF" else model.classes_
    if kind != "corpus":
        plain = [label.item() if isinstance(label, np.generic) else label for label in flat]
        kept = [any(a is c or (a == c and type(a) is type(c)) for a in plain) for c in classes]
        assert all(kept), (case, classes)
        assert len(classes) == len(set(plain) - ({None} if name == "DCRF" else set())), case
    if kind != "corpus":
        X = [part if hasattr(part, "shape") else list(part) for part in of_X()]
        assert [len(labels) for labels in found] == list(map(length, X)), case
    for i, labels in enumerate(found):
        check_by_enumeration(case, model, name, X, i, labels, classes)
    if hasattr(model, "save"):
        save(case, model, path, of_X, found)
    if what == "nothing":
        other = [an_input(rng, 2)[1], X, X]
        odd = [y, some_labels(rng, sizes, 2), y]
        for X, y, in_odd in zip(other, odd, (False, False, True), strict=True):
            use(rng, case, model, wrapped(rng, X, in_odd and kind != "corpus"), wrapped(rng, y, in_odd))
    return "fitted"


def save(case, model, path, of_X, found):
    """A file of the model gives the same labels; or what no file can carry is named."""
    try:
        attempt((*case, "save"), model.save, path)
    except Refused:
        return
    again = type(model).load(path)
    assert repr(again.predict(of_X())) == repr(found), case
    assert repr(again.classes_) == repr(model.classes_), case


def use(rng, case, model, of_X, of_y):
    """What a trained model says of other text: as many answers as sequences, probabilities, or a sentence."""
    weight = rng.one_of(WEIGHTS)
    for call in (
        "predict",
        "predict_marginals",
        "predict_kbest",
        "log_proba",
        "score",
        "weighted",
        "partial_fit",
    ):
        labels = (of_y(),) if call in ("log_proba", "score", "weighted", "partial_fit") else ()
        more = {"sample_weight": weight} if call == "weighted" else {}
        if call == "partial_fit" and getattr(model, "algorithm", "") != "perceptron":
            continue
        try:
            said = attempt((*case, call), getattr(model, "score" if more else call), of_X(), *labels, **more)
        except Refused:
            continue
        if call in ("score", "weighted"):
            assert 0.0 <= said <= 1.0 + 1e-12, (case, call, said)
        elif call == "log_proba":
            assert (said <= 0.0).all() and not np.isnan(said).any(), (case, call, said)
        elif call == "predict_marginals":
            rows = [row["y"] if "y" in row else row for labels in said for row in labels]
            assert all(math.isclose(math.fsum(row.values()), 1.0, abs_tol=1e-8) for row in rows), (case, said)


def as_corpus(rng, X, y, sizes):
    n = sum(sizes)
    ptr = np.cumsum([0, *sizes])
    attrs = rng.integers(0, 3, n)
    labels = [[int(rng.integers(0, 2)) for _ in range(size)] for size in sizes]
    return make_corpus(ptr, np.arange(n + 1), attrs), labels


def check_by_enumeration(case, model, name, X, i, labels, classes):
    """Every labelling of sequence i has the probability that weights by name give; `labels` is a best one."""
    kind = case[3]
    sequence = take_sequences(X, [i]) if kind == "corpus" else X[i]
    n, n_labels = len(labels), len(classes)
    if n == 0 or n_labels**n > 300:
        return
    paths = brute.all_paths(n, n_labels)
    names = [[classes[y] for y in path] for path in paths.tolist()]
    if name == "DCRF":
        names = [[(y,) for y in path] for path in names]
    many = take_sequences(X, [i] * len(paths)) if kind == "corpus" else [sequence] * len(paths)
    said = model.log_proba(many, names)
    if name == "DCRF":
        own = said
        assert math.fsum(np.exp(said)) == pytest.approx(1.0, abs=1e-8), case
    else:
        own = own_log_probabilities(model, name, kind, sequence, n, n_labels, paths)
        if own is None:
            return
        np.testing.assert_allclose(np.exp(said), np.exp(own), rtol=1e-7, atol=1e-9, err_msg=str(case))
    at = [k for k, path in enumerate(names) if path == labels]
    assert at and max(own[k] for k in at) >= own.max() - 1e-7 * max(1.0, abs(own.max())), (case, labels)
    assert all(math.isfinite(p) for p in said[at]), case


def own_log_probabilities(model, name, kind, sequence, n, n_labels, paths):
    """log p of each labelling, from weights by name and attributes read here; None beyond float64."""
    attrs = [attributes(kind, sequence, t) for t in range(n)]
    node, edge = np.zeros((n, n_labels)), np.zeros((n, n_labels, n_labels))
    limits = getattr(model, "constraints_", None)
    classes = {label: y for y, label in enumerate(model.classes_)}
    if name == "HMM":
        known, features = model.encoder_.attribute_names(), model.features_
        row = {a: slice(*features.node_ptr[k : k + 2]) for k, a in enumerate(known)}
        for t, found in enumerate(attrs):
            for a, value in found.items():
                if a in row and value:
                    emission = model.absent_.copy()
                    emission[features.node_label[row[a]]] = model.emission_[row[a]]
                    node[t] += value * emission
            if not any(a in row and value for a, value in found.items()):
                node[t] = model.unknown_
        node[0] += model.start_
        edge[1:] = model.transition_
    else:
        state, text = model.state_features_, model.edge_features_
        for (p, q), w in model.transition_features_.items():
            edge[1:, classes[p], classes[q]] = w
        for t, found in enumerate(attrs):
            for label, y in classes.items():
                node[t, y] = sum(value * state.get((a, label), 0.0) for a, value in found.items())
            for (b, p, q), w in text.items() if t else ():
                here = kind in ("templated", "cells") and b == f"B:{cell(sequence[t])}"
                edge[t, classes[p], classes[q]] += w * here
        if limits is not None:
            node[0, ~limits.start], node[-1, ~limits.end] = -np.inf, -np.inf
            edge[1:, ~limits.allowed] = -np.inf
    if not np.abs(node[np.isfinite(node)]).max(initial=0.0) < 1e4 or np.isnan(edge).any():
        return None
    if name == "MEMM":
        local = node[:, None, :] + edge
        edge = local - np.logaddexp.reduce(local, axis=2, keepdims=True)
        node = np.concatenate([edge[0, :1], np.zeros((n - 1, n_labels))])
        edge = np.nan_to_num(edge, nan=-np.inf, neginf=-np.inf)
    scores = np.array([brute.path_score(node, edge, np.arange(n), path) for path in paths])
    total = np.logaddexp.reduce(scores)
    return scores - total if math.isfinite(total) else None


def cell(token):
    return token if isinstance(token, str) else token["word"] if isinstance(token, dict) else token[0]


def attributes(kind, sequence, t):
    """Counter of the attributes of token t: python-crfsuite's rules, the template, or columns."""
    if kind in ("templated", "cells"):
        before = cell(sequence[t - 1]) if t else "_B-1"
        return Counter([f"U0:{cell(sequence[t])}", f"U1:{before}"])
    if kind == "corpus":
        return Counter([int(sequence.attr_idx[t])])
    if hasattr(sequence, "tocsr"):
        sequence = sequence.toarray()
    if isinstance(sequence, np.ndarray) and sequence.ndim == 2:
        return {str(j): float(value) for j, value in enumerate(sequence[t]) if value}
    found = Counter()
    for name, value in unfolded(sequence[t]):
        found[name] += value
    return found


def unfolded(token):
    for name, value in token.items() if isinstance(token, dict) else [(name, 1.0) for name in token]:
        name = name.decode() if isinstance(name, bytes) else str(name)
        if isinstance(value, dict | list | set):
            yield from ((f"{name}:{inner}", number) for inner, number in unfolded(value))
        elif isinstance(value, str | bytes):
            yield f"{name}:{value.decode() if isinstance(value, bytes) else value}", 1.0
        else:
            yield name, float(value)
