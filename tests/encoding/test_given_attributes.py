"""Reading lists and dicts by rows, by columns and token by token, against a slow reader that stands here."""

import random
import threading
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from helpers.memory import peak_bytes

from crfbook.encoding import dicts
from crfbook.encoding.encoder import Encoder


class Colour(str):  # as an enum of strings: its text is not what it equals
    def __str__(self):
        return "Colour.RED"


class Odd(dict):
    def __getitem__(self, name):
        raise AssertionError("what stands in the dict counts")

    def __iter__(self):
        return reversed(list(super().__iter__()))


WORDS = ["red", "1", "", "b:c", "x", "ä"]
NUMBERS = [1, True, 1.0, 0, False, 0.0, -0.0, 2.5, 3, 10**20, np.float32(0.1), np.bool_(True), np.int64(4)]
NUMBERS += [Decimal(1), Decimal("2.75"), Fraction(1, 2), 1 + 0j, np.complex64(2)]
VECTORS = [[0.5, 2], [1], np.arange(3), np.zeros(0), np.array([0.25, -1.0], np.float32)]
VALUES = (
    WORDS + WORDS + NUMBERS + VECTORS + [b"red", Colour("of an enum"), np.str_("red"), [], ["a", b"b"], {"a"}]
)
BAD = [None, Decimal("NaN"), 2 + 1j, ("a",), frozenset("a"), float("nan"), float("inf"), 10**400, ["a", 1.0]]
BAD += [[["a"]], np.ones((1, 1)), np.array("a"), b"\xff", {1.5}, {5: {"a": 1}}, [None]]
KEYS = ["a", "a:b", "b", "w[-1]", b"w[-1]", "b:", "", "0"]


class Draw(random.Random):
    """Corpora drawn at random: dicts of a few kinds, in which keys have strings, numbers or both; others."""

    def value(self, bad, depth=0):
        if self.random() < bad:
            return self.choice(BAD)
        nested = self.random() < 0.1 and depth < 3
        return self.token(bad, depth + 1) if nested else self.choice([*VALUES, self.gauss(0, 1)])

    def token(self, bad=0, depth=0):
        return {key: self.value(bad, depth) for key in self.sample(KEYS, self.randrange(6))}

    def kind_of_dict(self, bad):
        makers = [
            lambda: self.choice(WORDS),
            lambda: self.gauss(0, 1),
            lambda: self.choice([0, 1, 2, 0.5, "none"]),
            lambda: dict.fromkeys("pqr"[: self.randrange(4)], self.choice([True, "x", self.gauss(0, 1)])),
            lambda: self.value(bad),
        ]
        makers = {key: self.choice(makers) for key in self.sample(KEYS, self.randrange(1, 6))}
        return lambda: {key: make() for key, make in makers.items()}

    def corpus(self, bad=0):
        kinds = [self.kind_of_dict(bad) for _ in range(2)]
        kinds += [lambda: self.token(bad), lambda: Odd(self.token(bad)), lambda: self.choices(WORDS, k=3)]
        kinds += [lambda: {self.choice(WORDS): self.choice([1, True, 1.0]) for _ in range(3)}]
        kinds += [lambda: tuple(self.choices([*WORDS, b"y"], k=self.randrange(3)))]
        kinds = self.sample(kinds, self.choice([1, 1, 2, 4]))
        return [[self.choice(kinds)() for _ in range(self.randrange(1, 30))] for _ in range(2)]


def unfold(token, prefix=""):
    """The attributes (name, value) of a token: the rules of the module's docstring, one item at a time."""
    if (
        prefix
        and isinstance(token, (list, np.ndarray))
        and all(isinstance(x, (int, float, np.number)) for x in token)
    ):
        token = {str(j): x for j, x in enumerate(token)}
    for key, value in dict.items(token) if isinstance(token, dict) else ((key, 1) for key in token):
        name = prefix + (key.decode() if isinstance(key, bytes) else str(key))
        if isinstance(value, (dict, list, set, np.ndarray)):
            yield from unfold(value, f"{name}:")
        elif isinstance(value, (str, bytes)):
            yield f"{name}:{value.decode() if isinstance(value, bytes) else str.__str__(value)}", 1.0
        else:
            yield name, float(value.real)


def rows_of(X):
    """One dict {name: sum of values} a token, in the order of the first value of each that is not 0."""
    rows = []
    for token in (token for sequence in X for token in sequence):
        sums, place, occurrences = {}, {}, list(enumerate(unfold(token)))
        for _, (name, value) in occurrences:
            sums[name] = sums.get(name, 0.0) + value
        for i, (name, value) in reversed(occurrences):
            if value or not any(other for _, (same, other) in occurrences if same == name):
                place[name] = i
        rows.append({name: sums[name] for name in sorted(sums, key=place.get)})
    return rows


def named(corpus, names):
    """The rows of a corpus with names for ids."""
    items = [
        (names[i], value) for i, value in zip(corpus.attr_idx.tolist(), corpus.values.tolist(), strict=True)
    ]
    rows = [items[a:b] for a, b in zip(corpus.attr_ptr[:-1], corpus.attr_ptr[1:], strict=True)]
    assert all(len(dict(row)) == len(row) for row in rows)
    return rows


def labels(X):
    return [["l"] * len(sequence) for sequence in X]


@pytest.mark.parametrize("block", [1 << 10, 3])
def test_tokens_are_read_as_one_item_after_another(block, monkeypatch):
    monkeypatch.setattr(dicts, "_BLOCK", block)
    for seed in range(300):
        draw = Draw(seed)
        X, others = draw.corpus(), draw.corpus()
        encoder = Encoder()
        corpus = encoder.fit_transform(X, labels(X))
        names, rows = encoder.attribute_names(), rows_of(X)
        assert named(corpus, names) == [list(row.items()) for row in rows]
        counts = {}
        for sequence in X:
            for token in sequence:
                for name, _ in unfold(token):
                    counts[name] = counts.get(name, 0) + 1
        assert names == sorted(counts, key=lambda name: (-counts[name], name))
        assert encoder.attribute_counts_.tolist() == [counts[name] for name in names]
        known = [[pair for pair in row.items() if pair[0] in counts] for row in rows_of(others)]
        assert named(encoder.transform(others), names) == known


def test_a_sentence_is_read_as_a_corpus():
    for seed in range(300):
        draw = Draw(seed)
        X, others = draw.corpus(), draw.corpus()
        names = sorted({name for row in rows_of(X) for name in row})
        reader = dicts.ItemReader({name: i for i, name in enumerate(names)})
        reader.most = draw.choice([reader.most, 40])
        for sequence in [*X, *others, *X, *others[:1], []]:
            try:
                ids, ptr, values = reader.read(sequence)
            except dicts.UNREADABLE:
                assert "of an enum" in repr(sequence)  # a subclass of str in a list
                continue
            assert {type(i) for i in ids} <= {int} and {type(x) for x in values or []} <= {float}
            found = []
            for a, b in zip(ptr[:-1], ptr[1:], strict=True):
                found.append({})
                for i, x in zip(ids[a:b], (values or [1.0] * len(ids))[a:b], strict=True):
                    found[-1][i] = found[-1].get(i, 0.0) + x
            found = [{names[i]: x for i, x in row.items() if i >= 0 and x} for row in found]
            assert found == [
                {n: x for n, x in row.items() if n in names and x} for row in rows_of([sequence])
            ]


def test_bad_values_get_their_sentence_and_place():
    for seed in range(60):
        X = Draw(seed).corpus(0.01)
        first = None
        for i, sequence in enumerate(X):
            for t, token in enumerate(sequence):
                try:
                    Encoder().fit([[token]], [["l"]])
                except (TypeError, ValueError) as error:
                    first = first or (
                        type(error),
                        str(error).replace("sequence 0, token 0", f"sequence {i}, token {t}"),
                    )
        if first is None:
            Encoder().fit(X, labels(X))
            continue
        with pytest.raises((TypeError, ValueError)) as caught:
            Encoder().fit(X, labels(X))
        assert (caught.type, str(caught.value)) == first


def test_a_bad_value_below_many_dicts_is_found_at_once():
    token = {"a": None}
    for _ in range(60):  # an attempt at two readings a level would never end
        token = {"a": token, "b": 0.5}
    with pytest.raises(TypeError, match="expected a number, a bool, a string, a dict or a list, got None"):
        Encoder().fit([[token] * 9], [["l"] * 9])
    with pytest.raises(dicts.UNREADABLE):
        reader = dicts.ItemReader({})
        for _ in range(9):
            reader.read([token])


def test_the_row_of_a_sentence_does_not_depend_on_others():
    plain = [{"z": 0.1, "a": "x", "m": 0.3}, ["b", "a:x"]]
    twice = [{"z": 0.2, "a": "x", "m": 0.3, "a:x": 0.7}, ["b", "a:x", "b", "z"]]
    encoder = Encoder().fit([plain, twice], labels([plain, twice]))
    names = encoder.attribute_names()
    alone = named(encoder.transform([plain]), names), named(encoder.transform([twice]), names)
    assert alone[0] == [[("z", 0.1), ("a:x", 1.0), ("m", 0.3)], [("b", 1.0), ("a:x", 1.0)]]
    assert alone[1] == [[("z", 0.2), ("a:x", 1.7), ("m", 0.3)], [("b", 2.0), ("a:x", 1.0), ("z", 1.0)]]
    assert named(encoder.transform([plain, twice, plain]), names) == alone[0] + alone[1] + alone[0]


def test_caches_have_a_limit_and_hold_what_comes_again():
    reader = dicts.ItemReader({"w:a": 0, "w": 1})
    reader.most = 1000
    for t in range(5000):
        made = [
            {"w": "a", f"key{t}": "x"},
            {"w": f"value{t}"},
            {f"k{t}": {"w": t}},
            {"w": [f"s{t}"]},
            {"w": t / 7},
        ]
        assert reader.read(made)[0][0] == 0
        assert reader.size < 1200
    for _ in range(3):
        reader.read([{"w": "a", "v": True}])
    before = reader.size
    reader.read([{"w": "a", "v": True}])
    assert reader.size == before


def test_threads_transform_on_one_encoder():
    X = Draw(1).corpus() * 5
    encoder = Encoder().fit(X, labels(X))
    expected, found = encoder.transform(X), [None] * 4

    def work(i):
        found[i] = encoder.transform(X)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for corpus in found:
        assert all(map(np.array_equal, corpus, expected))


def tutorial(n, width=20):
    """n tokens of a feature function: the same keys at each, bools among them."""
    return [
        {f"key{k}": f"value{(t * k) % 50}" if k % 3 else t % 2 == 0 for k in range(width)} for t in range(n)
    ]


@pytest.mark.parametrize(("form", "at_most"), [(dict, 19), (list, 14)])
def test_reading_keeps_no_object_for_an_occurrence(form, at_most):
    """Bytes an occurrence: 4 of its id, 8 of its value if some differ from 1, and little more at any time."""
    tokens = tutorial(20_000)
    if form is list:
        tokens = [[f"{name}={value}" for name, value in token.items()] for token in tokens]
    X, y = [tokens], [["l"] * len(tokens)]
    encoder = Encoder().fit(X, y)
    for job in (lambda: Encoder().fit_transform(X, y), lambda: encoder.transform(X)):
        corpus, peak = peak_bytes(job)
        assert peak < at_most * len(corpus.attr_idx)
