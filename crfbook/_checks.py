"""Checks of what users hand in: each raises one sentence that says of what, what was expected, what came."""

import math


def is_number(value):
    """Whether it can be compared with one: no text, no truth value, no None, no array of several."""
    return hasattr(value, "__float__") and not isinstance(value, bool) and not getattr(value, "ndim", 0)


def number(name, value, least=0.0, *, above=None, most=math.inf, finite=True, note="", wrong=ValueError):
    """`value` as a float; ValueError unless it is a number >= least (or > above) and at most `most`.

    finite : infinity will not do. note : stands behind what was expected. wrong : error for no number.
    """
    high_enough = is_number(value) and (value >= least if above is None else value > above)
    if not (high_enough and value <= most and (math.isfinite(value) or not finite)):
        wanted = f"{'finite ' if finite else ''}number"
        if least > -math.inf:
            wanted += f" >= {least:g}" if above is None else f" > {above:g}"
        wanted += f" and at most {most:g}" if most < math.inf else ""
        error = ValueError if is_number(value) else wrong
        raise error(f"{name}: expected a {wanted}{note}, got {value!r:.80}")
    return float(value)


def whole(name, value, least=0, *, note="", wrong=ValueError):
    """`value` as an int; ValueError unless it is a whole number >= least. note, wrong : as for `number`."""
    if not (is_number(value) and math.isfinite(value) and value == int(value) and value >= least):
        error = ValueError if is_number(value) else wrong
        raise error(f"{name}: expected an integer >= {least}{note}, got {value!r:.80}")
    return int(value)


def one_of(name, value, allowed):
    """`value`; ValueError unless it is one of those that are allowed."""
    if value not in tuple(allowed):
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, allowed))}, got {value!r:.80}")
    return value


def function_or_none(name, value):
    """`value`; ValueError if it is neither None nor a function."""
    if value is not None and not callable(value):
        raise ValueError(f"{name}: expected a function or None, got {value!r:.80}")
    return value
