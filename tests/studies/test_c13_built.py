"""Ours beside pgmpy: the same models on both sides."""

import numpy as np
import pytest
from helpers.factors import enumerate_factors

from studies import c13_built

pytestmark = pytest.mark.kernels


def test_both_ways_of_ours_have_the_log_z_of_the_listing():
    case = c13_built.models((3, 2), 3)[1]
    want = enumerate_factors(case["cards"], case["scopes"], np.concatenate(case["tables"])).log_z
    assert c13_built.by_tree(case) == pytest.approx(want, rel=1e-12)
    assert c13_built.by_messages(case) == pytest.approx(want, rel=0.05)
    assert c13_built.by_messages(case) != want


def test_without_pgmpy_it_says_what_it_needs(monkeypatch):
    monkeypatch.setenv("PGMPY_PYTHON", "")
    with pytest.raises(ValueError, match="expected PGMPY_PYTHON"):
        c13_built.pgmpy_rows((3, 2), 3)
