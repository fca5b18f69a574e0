"""The study of speed of chapter 12, on the built-in twin: what it times is the same thing on both sides."""

import numpy as np
import pytest

from crfbook.studies import c12_speed as study

pytestmark = pytest.mark.kernels


@pytest.fixture
def small():
    study.problem.cache_clear()
    yield study.problem("NP", 30)
    study.problem.cache_clear()


def test_the_chain_of_joint_labels_is_the_same_text(small):
    for every in (False, True):
        objective, w, n_labels = study.joint_chain(small, every)
        assert objective.features.n_labels == n_labels <= np.prod(study.problem("all").layout.sizes)
        value, _ = objective(np.zeros_like(w))
        assert value == pytest.approx(small.corpus.n_tokens * np.log(n_labels))
    value, _ = study.objective_of(small)(np.zeros_like(small.w))
    assert value == pytest.approx(small.corpus.n_tokens * np.log(np.prod(small.layout.sizes)))


def test_both_searches_find_the_same_and_theory_is_counted(small):
    runs = study.viterbi_runs(small)  # compares scores and paths
    assert set(runs) == {"with", "without"}
    row = study.growth_row((4, 3), 5, 40, 1)
    assert row["products a token"] == 3 * 12 * 7 and row["us a token"] > 0
