"""Tables of chapter 10 on a few sentences of the built-in twins, and the chains simulated for them."""

import numpy as np
import pytest

from crfbook.chain.sparse.choice import never_tiny
from crfbook.studies import c10, read_record, run

pytestmark = pytest.mark.usefixtures("on_twins")


def test_simulated_chains_have_few_successors():
    for n_labels in (120, 279):
        chain = c10.simulated_chain(n_labels)
        after = (chain.transition > 0).sum(axis=1)
        assert after.min() == 2 and after.max() == 5 and abs(after.mean() - 3.5) < 0.3
        np.testing.assert_allclose(chain.transition.sum(axis=1), 1.0)


def test_rows_of_both_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(c10, "MOST", 20)
    paths = run("active-sets", folder=tmp_path, names=("conll2000", "conll2003"), n_train=60, n_repeats=1)
    corpora, rows = (read_record(path)[1] for path in paths)
    assert [row["corpus"] for row in corpora] == ["conll2000"]  # a twin stands in for nothing there
    by_method = {row["method"]: row for row in rows}
    sparse, other = by_method["Sparse"], by_method["Method 2"]
    assert sparse["star"] == "" and other["tokens that differ"] == "0"
    assert int(by_method["Method 3"]["weights"]) + 17 >= int(by_method["Method 4"]["weights"])
    assert int(by_method["Dense"]["weights"]) > int(sparse["weights"]) > int(by_method["Method 3"]["weights"])
    assert float(by_method["Dense"]["log-likelihood"]) > float(sparse["log-likelihood"])


@never_tiny()
def test_an_arm_says_how_far_it_is_from_its_minimum():
    setup = c10.encoded("conll2000", 40)
    arm = c10.exact_arm(setup)
    assert arm.found.status == "converged" and arm.found.gap <= c10.TOL * arm.found.objective
    assert arm.found.n_iter <= c10.MOST and arm.log_likelihood < 0.0
