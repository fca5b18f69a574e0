"""exp_inplace against NumPy in extended precision, over its whole range."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfbook.chain.vector_math import exp_inplace

pytestmark = pytest.mark.kernels


def vector_exp(x):
    y = np.array(x, dtype=np.float64)
    exp_inplace(y)
    return y


def test_error_in_units_in_the_last_place():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.uniform(-708, 709.78, 200_000), rng.normal(0, 1, 200_000), np.arange(-708, 710) * 1.0]
    )
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(vector_exp(x) - exact) / np.spacing(exact.astype(np.float64))
    assert error.max() < 1.0


def test_near_multiples_of_log_2():
    """Where the integer part changes, the reduced argument jumps from +ln(2)/2 to -ln(2)/2."""
    x = (np.arange(-1020, 1023) + 0.5) * np.log(2.0)
    x = np.concatenate([np.nextafter(x, -np.inf), x, np.nextafter(x, np.inf)])
    np.testing.assert_allclose(vector_exp(x), np.exp(x), rtol=4e-16)


def test_special_values():
    x = [0.0, -0.0, -np.inf, np.inf, np.nan, -708.5, -745.2, -1e308, 709.8, 1e308, 5e-324]
    np.testing.assert_array_equal(vector_exp(x), [1, 1, 0, np.inf, np.nan, 0, 0, 0, np.inf, np.inf, 1])


@given(st.lists(st.floats(allow_subnormal=True), max_size=40))
def test_any_floats_at_any_length(x):
    """Rests of the vector loop included."""
    with np.errstate(all="ignore"):
        expected = np.exp(np.array(x))
    expected[np.array(x) < -708.0] = 0.0
    np.testing.assert_allclose(vector_exp(x), expected, rtol=4e-16, atol=0.0)
