"""The study of chapter 13 on the built-in twin: what its rows say is so."""

import numpy as np
import pytest

from studies import c12, c13
from studies.harness import Row

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("on_twins")]
SOME = 25  # sentences
CACHED = c12.problem, c12.encoder, c13.trained, c13.part_of, c13.exact_of, c13.fixed_point
CACHED += c13.documents, c13.skipped


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(c13, "FEW", SOME)
    monkeypatch.setattr(c13, "TEST", SOME)
    for made in CACHED:
        made.cache_clear()
    yield
    for made in CACHED:
        made.cache_clear()


def test_schedules_are_held_against_exact_sums_and_the_fixed_point():
    found = {(part, name): c13.schedule_row(part, name) for part in c13.PARTS for name in c13.SCHEDULES}
    corpus = c13.part_of("train")
    assert corpus.n_sequences == SOME and c13.part_of("test").n_sequences == SOME
    for (_, name), row in found.items():
        early = name.endswith("(3)")
        assert row["without a fixed point"] == (SOME if early else 0)
        assert (row["sweeps"] == 3.0) == early or not early
        if name not in ("mean-field", "tree, GRMM's stop") and not early:
            assert row["from the fixed point"] < 3e-2
    assert found["train", "mean-field"]["log Z less exact, a token"] < 0.0
    assert found["train", "tree (3)"]["from the fixed point"] > found["train", "tree"]["from the fixed point"]
    lengths = corpus.lengths[corpus.lengths > 0]
    factors = (3 * lengths - 2).sum()  # of two chains
    assert found["train", "sync"]["messages a token"] * corpus.n_tokens > 2 * 2 * factors
    assert found["train", "random (3)"]["messages a token"] == pytest.approx(6 * factors / corpus.n_tokens)
    assert found["train", "tree (3)"]["messages a token"] == pytest.approx(
        3 * 2 * (2 * lengths - 1).sum() / corpus.n_tokens
    )


def test_the_record_of_schedules_begins_with_exact_sums(tmp_path):
    (name, jobs, _), *_ = c13.bp_schedules(schedules=("block",))
    assert name == "13_schedules.csv" and [key["schedule"] for key, _ in jobs] == ["exact", "block"] * 2
    rows = [make() for _, make in jobs[:2]]
    assert list(rows[0][0]) == list(rows[1][0]) and rows[0][0]["messages a token"] == ""


def test_best_labellings():
    rows = {name: c13.decoded_row("test", name) for name in c13.DECODED}
    for name in ("elimination", "dual 2 pruned", "dual 30 pruned"):
        assert rows[name]["exact"] == 1.0
    assert rows["dual 1"]["certified"] <= rows["dual 30"]["certified"] <= rows["dual 30"]["exact"]
    assert np.isnan(rows["max-product"]["certified"]) and rows["max-product"]["exact"] > 0.5
    assert rows["max-product"]["converged"] > 0.5


def test_training_is_judged_by_exact_inference(monkeypatch):
    exact, block, early = (c13.training_row(1, name) for name in ("exact", "block", "tree (3)"))
    assert exact["own objective"] == pytest.approx(exact["exact objective"], rel=1e-9)
    assert block["exact objective"] == pytest.approx(exact["exact objective"], rel=1e-2)
    assert early["status"].endswith(f"no fixed point in {SOME} of {SOME} sequences")
    assert all(0.0 <= exact[name] <= 100.0 for name in ("POS", "chunk", "joint", "F1"))


def test_documents_and_their_links():
    parts = c13.documents()
    train = parts["train"]
    assert all(words[0] == "-DOCSTART-" for words in train.by_sequence("word") if words)
    linked = [word for word in train.columns["link"] if word]
    assert linked and all(word[0].isupper() for word in linked)
    assert len(train.seq_ptr) - 1 == sum(word == "-DOCSTART-" for word in train.columns["word"])


def test_a_skip_chain_beside_the_chain():
    chain, skip = (c13.skip_row(arm, 1.0, 6) for arm in ("chain", "skip, block"))
    assert chain["p test"] == "" and 0.0 < skip["p test"] <= 1.0
    assert skip["objective"] < chain["objective"]  # it has more weights, which are 0 in the chain
    assert chain["weight of equal labels"] == 0.0 != skip["weight of equal labels"]


def test_targets_are_rows_with_verdicts():
    rows = list(c13.bp_targets(repeats=1))
    assert all(isinstance(row, Row) for row in rows) and len(rows) == 18
    by_work = {row.work: row for row in rows}
    assert by_work["test: best labellings not found by dual 2 pruned"].verdict == "met"
    assert by_work["general engine, 9 x 9: a message"].ours > 0.0
