"""crfbook/_checks.py: what is let through, and the sentence for what is not."""

import math

import numpy as np
import pytest

from crfbook._checks import function_or_none, number, one_of, shown, whole


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2.0), np.array(2.0)])
def test_numbers_come_back_as_plain_ones(value):
    assert type(number("x", value)) is float and number("x", value) == 2.0
    assert type(whole("x", value)) is int and whole("x", value, 2) == 2


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((-1,), {}, "x: expected a finite number >= 0, got -1"),
        ((math.inf,), {}, "x: expected a finite number >= 0, got inf"),
        ((math.nan,), {"finite": False}, "x: expected a number >= 0, got nan"),
        ((1.0,), {"above": 1}, "x: expected a finite number > 1, got 1.0"),
        ((1.5,), {"above": 0, "most": 1}, "x: expected a finite number > 0 and at most 1, got 1.5"),
        ((math.inf, -math.inf), {}, "x: expected a finite number, got inf"),
        (
            ("2",),
            {"note": " (in nats) or None"},
            r"x: expected a finite number >= 0 \(in nats\) or None, got '2'",
        ),
        ((True,), {}, "x: expected a finite number >= 0, got True"),
        ((np.ones(1),), {}, "x: expected a finite number >= 0, got array"),
    ],
)
def test_what_is_no_such_number(arguments, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        number("x", *arguments, **options)


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, 0, "1", None, True, [1]])
def test_what_is_no_such_integer(value):
    with pytest.raises(ValueError, match=r"^x: expected an integer >= 1, got "):
        whole("x", value, 1)


def test_what_is_no_number_at_all_may_be_a_type_error():
    for check in (number, whole):
        with pytest.raises(TypeError, match="^x: expected a.* >= 0, got '1'"):
            check("x", "1", wrong=TypeError)
        with pytest.raises(ValueError, match="^x: expected a.* >= 0, got -1"):
            check("x", -1, wrong=TypeError)
    assert number("x", math.inf, finite=False) == math.inf


def test_integers_beyond_float64_and_int64_are_told():
    for value in (10**400, -(10**400), 10**5000):
        with pytest.raises(ValueError, match="^x: expected a finite number >= 0, got "):
            number("x", value)
    with pytest.raises(ValueError, match="^x: expected a number >= 0, got -1000"):
        number("x", -(10**400), finite=False)
    with pytest.raises(ValueError, match=r"^x: expected an integer >= 0 and below 2\*\*63, got 1000"):
        whole("x", 10**400)
    assert whole("x", 2**63 - 1) == 2**63 - 1
    for value in (2**63, np.uint64(2**63), 1e300):
        with pytest.raises(ValueError, match=r"below 2\*\*63, got "):
            whole("x", value)


def test_long_values_are_cut_and_stand_on_one_line():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no words")

    for value in ("a" * 10**6, [1] * 10**5, 10**5000, np.eye(50), Broken(), "\ud800" * 1000):
        text = shown(value)
        assert len(text) <= 80 and "\n" not in text and text.encode()
    assert shown("a b\n") == "'a b\\n'" and shown(np.eye(2)) == "array([[1., 0.], [0., 1.]])"
    assert shown("a" * 100) == "'" + "a" * 76 + "..."


def test_choices_and_functions():
    assert one_of("x", "a", {"a": 1, "b": 2}) == "a" and function_or_none("x", None) is None
    with pytest.raises(ValueError, match="^x: expected one of 'a', 'b', got 'c'"):
        one_of("x", "c", {"a": 1, "b": 2})
    with pytest.raises(ValueError, match="^x: expected a function or None, got 3"):
        function_or_none("x", 3)
