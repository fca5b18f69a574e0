"""Reading lists of dicts: regular ones by sets of keys, others pair by pair; the same results, and how much
memory either takes.
"""

from decimal import Decimal

import numpy as np
import pytest
from helpers.memory import peak_bytes
from hypothesis import given
from hypothesis import strategies as st

from crfbook.encoding import given_attributes
from crfbook.encoding.encoder import Encoder


class Colour(str):  # as an enum of strings: it equals "red", and its text is another
    def __str__(self):
        return "Colour.RED"


class Odd(dict):
    def __getitem__(self, name):
        raise AssertionError("what stands in the dict counts")

    def __iter__(self):
        return reversed(list(super().__iter__()))


VALUES = ["red", "1", "", "b:c", 1, True, 1.0, 0, False, 0.0, -0.0, 2.5, 10**20, b"red", Colour("red")]
VALUES += [np.float32(0.5), np.bool_(True), np.int64(1), np.str_("red")]
BAD = [None, Decimal(1), 1 + 0j, ("a",), float("nan"), float("inf"), 10**400]
KEYS = ["a", "a:b", "b", "w[-1]", b"w[-1]", "b:", ""]


def read(X, few, monkeypatch):
    """What an encoder makes of X, or its sentence; few = 0: every dict counts as regular."""
    monkeypatch.setattr(given_attributes, "_FEW", few)
    monkeypatch.setattr(given_attributes, "_SAMPLE", 1 if few == 0 else 10**9)
    encoder, y = Encoder(), [["l"] * len(sequence) for sequence in X]
    try:
        corpora = encoder.fit_transform(X, y), encoder.transform(X[::-1])
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    arrays = [array.tobytes() for corpus in corpora for array in corpus]
    return encoder.attribute_names(), encoder.attribute_counts_.tolist(), arrays


def texts(values):
    token = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(values), max_size=6)
    few = st.lists(token, min_size=1, max_size=4).flatmap(
        lambda tokens: st.lists(st.sampled_from(tokens), min_size=20, max_size=40)
    )
    return st.lists(few | st.just([]), min_size=1, max_size=3).filter(any)


@pytest.mark.parametrize("values", [VALUES, VALUES + BAD], ids=["good", "some bad"])
def test_regular_dicts_are_read_as_others(values, monkeypatch):
    regular = []

    @given(X=texts(values))
    def check(X):
        with pytest.MonkeyPatch.context() as patch:
            expected = read(X, 4, patch)
            assert read(X, 0, patch) == expected
            assert read([[Odd(token) for token in sequence] for sequence in X], 0, patch) == expected

    made = given_attributes._prefix_free  # the last call of a reading by sets of keys
    monkeypatch.setattr(given_attributes, "_prefix_free", lambda keys: regular.append(1) or made(keys))
    check()
    assert regular


def test_unhashable_values_and_other_kinds_of_tokens_are_no_regular_dicts(monkeypatch):
    for odd in ({"a": ["x", "y"]}, {"n": {"k": 2.0}}, ["a", "b"], {"a": {"x"}}):
        X = [[{"a": "x"}] * 30, [odd]]
        assert read(X, 0, monkeypatch) == read(X, 4, monkeypatch)
    found = read([[{"a": 1.0}] * 30, ["the"]], 0, monkeypatch)
    assert "sequence 1, token 0: expected a dict or a list of attribute strings, got 'the'" in found[1]


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


def test_nothing_is_sorted_where_no_attribute_can_come_twice(monkeypatch):
    calls = []
    summed = given_attributes.sum_duplicates
    monkeypatch.setattr(given_attributes, "sum_duplicates", lambda *a: calls.append(1) or summed(*a))
    tokens = tutorial(2_000)
    encoder = Encoder().fit([tokens], [["l"] * len(tokens)])
    encoder.transform([tokens])
    assert not calls
    twice = [{"a": "b", "a:b": 1.0} for _ in range(2_000)]
    corpus = Encoder().fit_transform([twice], [["l"] * len(twice)])
    assert calls and (corpus.attr_val == 2).all() and len(corpus.attr_val) == len(twice)
