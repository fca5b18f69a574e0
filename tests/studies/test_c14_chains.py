"""Two chains with given scores: log Z and best scores are those of all labellings, listed."""

import os
from itertools import product

import numpy as np
import pytest

from crfbook import dynamic
from studies import c14_chains, c14_tools, read_record, run

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("on_twins")]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(c14_chains, "SIZES", {"3 x 2": (3, 2)})
    c14_chains.of_crfbook.cache_clear()
    yield
    c14_chains.of_crfbook.cache_clear()


def listed(tags, chunks, both, node):
    """Scores of all labellings of a sentence."""
    n, (a, b) = len(node), both.shape
    found = []
    for y, z in product(product(range(a), repeat=n), product(range(b), repeat=n)):
        score = sum(node[t, y[t]] + node[t, a + z[t]] + both[y[t], z[t]] for t in range(n))
        score += sum(tags[y[t - 1], y[t]] + chunks[z[t - 1], z[t]] for t in range(1, n))
        found.append(score)
    return np.array(found)


def test_the_model_has_the_scores_that_are_given():
    _, *tables, node = c14_chains.scores("3 x 2", 2)
    node, lengths = node[:5], np.array([4, 1])
    corpus, model = c14_chains.ours(lengths, *tables, node)
    scores = [listed(*tables, own) for own in (node[:4], node[4:])]
    log_z, best = dynamic.marginals(corpus, model)[1], dynamic.decode(corpus, model)[1]
    np.testing.assert_allclose(log_z, [np.logaddexp.reduce(own) for own in scores], rtol=1e-12)
    np.testing.assert_allclose(best, [own.max() for own in scores], rtol=1e-12)


def rows(monkeypatch, folder):
    """Those of a record of six sentences; the processes of the study know no other sizes."""
    monkeypatch.setattr(c14_chains, "in_own_process", lambda work, *given: work(*given))
    [path] = run("chains", folder=folder, dirty=True, sizes=("3 x 2",), n_sentences=6, processes=1)
    return {row["tool"]: row for row in read_record(path)[1]}


def test_without_mallet_our_own_rows_are_there(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("MALLET_CLASSPATH", raising=False)
    c14_tools.program.cache_clear()
    found = rows(monkeypatch, tmp_path)
    c14_tools.program.cache_clear()
    assert list(found) == list(c14_chains.OURS) and "MALLET_CLASSPATH" in capsys.readouterr().out
    assert all(row["unsettled"] == "0" and float(row["log Z off"]) < 0.1 for row in found.values())
    assert float(found["crfbook, exact"]["log Z off"]) == 0.0


@pytest.mark.skipif("MALLET_CLASSPATH" not in os.environ, reason="MALLET_CLASSPATH is not set")
def test_grmm_finds_the_same(monkeypatch, tmp_path):
    found = rows(monkeypatch, tmp_path)
    assert list(found) == [*c14_chains.OURS, *c14_chains.GRMM]
    for tool in ("GRMM, junction tree", "GRMM, junction tree, logs"):
        assert float(found[tool]["log Z off"]) < 1e-9 and float(found[tool]["best off"]) < 1e-9
    for tool in ("GRMM, TRP", "GRMM, TRP, logs"):
        assert float(found[tool]["log Z off"]) < 0.1 and float(found[tool]["sweeps"]) > 1
