"""Table 3 of chapter 05, small: epochs are chosen on the tenth; boosting round by round."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from crfbook.evaluation import paired_test
from crfbook.learners.online import online
from studies import c05, read_record, run, work

RESULTS = Path(__file__).parents[2] / "notebooks" / "results"
pytestmark = pytest.mark.usefixtures("on_twins")


def short(monkeypatch):
    """All studies learn from 60 sentences."""
    whole = work.set_up
    few = lambda task, template, n=60, **options: whole(task, template, n or 60, **options)  # noqa: E731
    monkeypatch.setattr(c05, "set_up", few)
    monkeypatch.setattr(c05, "CHOICES", (1, 2))
    c05.base_labels.cache_clear()


def test_learners_fill_a_small_table(monkeypatch, tmp_path):
    """Epochs are chosen on the tenth, the chosen number is used, tests are against the mean."""
    short(monkeypatch)
    monkeypatch.setitem(c05.SIZES, "ner", (40, None))
    monkeypatch.setitem(c05.TEMPLATES, "ner", ("s2",))
    chosen, filled = run("learner-table-ner", folder=tmp_path)
    epochs, rows = read_record(chosen)[1], read_record(filled)[1]
    assert list(dict.fromkeys(row["learner"] for row in epochs)) == list(c05.LEARNERS)
    for learner, name in c05.TUNED.items():  # the best value is used, and lies inside of what was tried
        tried = {float(row["value"]): max(float(row[n] or 0) for n in "12") for row in epochs
                 if row["learner"] == learner}  # fmt: skip
        (used,) = (float(r["value"]) for r in epochs if r["learner"] == learner and r["used"] == "True")
        assert min(tried) < used < max(tried) and tried[used] == max(tried.values()), name
        assert {row["value"] for row in rows if row["learner"] == learner} == {f"{used:g}"}
    epochs = [row for row in epochs if row["used"] == "True"]
    for row in epochs:
        best = max(("1", "2"), key=lambda n: (float(row[n] or 0), -int(n)))
        assert row["chosen"] == best
    assert len(rows) == 2 * len(c05.LEARNERS) + 1 and rows[-1]["learner"] == "log loss"
    wanted = {row["learner"]: int(row["chosen"]) for row in epochs} | {"log loss": 4500}
    for row in rows:
        assert int(row["iterations"]) <= wanted[row["learner"]] and 0 <= float(row["testb"]) <= 100
        assert row["learner"] != c05.BASE or row["p testb"] == "1.0000"
        assert 0 < float(row["p testb"]) <= 1


def test_perceptrons_go_on_beyond_the_table(monkeypatch, tmp_path):
    short(monkeypatch)
    monkeypatch.setattr(c05, "set_up", c05.set_up)
    monkeypatch.setattr(c05, "CHOICES", (1, 2))
    monkeypatch.setattr(c05, "LONGER", (1, 2, 3))
    monkeypatch.setattr(c05, "EDGE", [{"template": "s2", "learner": "averaged perceptron"}])
    rows = read_record(*run("more-epochs", folder=tmp_path))[1]
    assert [row["epochs"] for row in rows] == ["1", "2", "3"] and rows[1]["p testa"] == "1.0000"
    whole = c05.set_up("ner", "s2")
    w = c05.fit_learner(whole, c05.LEARNERS["averaged perceptron"], 3).result.w
    assert float(rows[2]["testb"]) == pytest.approx(whole.scores(w)["testb"], abs=0.01)


def test_the_log_loss_has_the_variances_of_chapter_04():
    chosen = read_record(RESULTS / "04_variance_ner.csv")[1]
    found = {row["template"]: float(row["chosen"]) for row in chosen
             if row["loss"] == "log" and row["sentences"] == "8323"}  # fmt: skip
    assert found == c05.log_variances("ner") and set(found) == {"s1", "s2", "s3"}


def test_the_batch_perceptron_is_given_its_passes(monkeypatch, tmp_path):
    """Its loss falls to where the online one is, in many more passes."""
    short(monkeypatch)
    monkeypatch.setattr(c05, "BATCH", {name: (n // 2, more) for name, (n, more) in c05.BATCH.items()})
    few = lambda task, template, n: work.set_up(task, template, 60)  # noqa: E731
    for module in (c05, c05):
        monkeypatch.setattr(module, "set_up", few)
    monkeypatch.setattr(c05, "PASSES_SHOWN", (1, 25))
    rows = read_record(*run("batch-perceptron-ner", folder=tmp_path))[1]
    assert list(rows[0]) == [
        *("learner", "passes", "loss", "testa", "testb", "active", "p testa", "p testb", "seconds")
    ]
    ends = {name: [row for row in rows if row["learner"] == name][-1] for name in c05.BATCH}
    assert all(float(row["loss"]) == 0 for row in ends.values())  # 60 sentences are separated
    assert int(ends["batch, last"]["passes"]) > int(ends["online, last"]["passes"])
    labels = {name: batch_labels(name, int(row["passes"])) for name, row in ends.items()}
    for name, row in ends.items():
        for part, found in labels[name].items():
            gold, base = work.set_up("ner", "s2", 60).parts[part].gold, labels["online, mean"][part]
            test = paired_test(gold, base, found)
            assert row[f"p {part}"] == f"{test.p_value:.4f}"
            gain = float(row[part]) - float(ends["online, mean"][part])
            assert gain == pytest.approx(100 * test.difference, abs=0.011)
    assert ends["online, mean"]["p testa"] == ends["online, mean"]["p testb"] == "1.0000"
    assert len({row["p testb"] for row in rows}) > 2  # the rest is not tested against itself


def batch_labels(name, passes):
    """{part: labels} after so many passes over 60 sentences, S2."""
    setup, options = work.set_up("ner", "s2", 60), c05.BATCH[name][1]
    learner = partial(online.perceptron, setup.corpus, setup.features, constraints=setup.constraints)
    w = learner(max_iterations=passes, **options).w
    return {part: setup.guess(w, part) for part in setup.parts}


def test_boosting_goes_on_where_it_was_cut(monkeypatch, tmp_path):
    """Rows at growing times; a run that is cut goes on from the weights it kept, which go at its end."""
    short(monkeypatch)
    monkeypatch.setattr(c05, "MINUTES", {"ner": (0.0005, 0.001, 0.0015)})
    monkeypatch.setattr(c05, "TEMPLATES_BY_COST", {"ner": ("s2", "s1")})
    row, cut = c05.minutes_row, []

    def fails(minutes, kept, template, **options):
        if minutes == 0.0015 and not cut:
            with np.load(kept) as saved:
                cut.extend(int(saved[f"{name} rounds"]) for name in ("s2", "s1"))
            raise KeyboardInterrupt
        return row(minutes=minutes, kept=kept, template=template, **options)

    monkeypatch.setattr(c05, "minutes_row", fails)
    with pytest.raises(KeyboardInterrupt):
        run("boosting-minutes-ner", folder=tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {f"05_boosting_ner.part.{end}" for end in ("csv", "npz")}
    rows = read_record(*run("boosting-minutes-ner", folder=tmp_path))[1]
    assert [p.name for p in tmp_path.iterdir()] == ["05_boosting_ner.csv"]
    for template, until in zip(("s2", "s1"), cut, strict=True):
        mine = [row for row in rows if row["template"] == template]
        rounds, losses = ([float(row[name]) for row in mine] for name in ("rounds", "log_loss"))
        assert rounds[1] == until and rounds[0] <= rounds[1] <= rounds[2] and rounds[0] < rounds[2]
        assert losses == sorted(losses, reverse=True) and all(0 < float(row["p testb"]) <= 1 for row in mine)


def test_boosting_is_followed_round_by_round(monkeypatch, tmp_path):
    """Rows of one run; the loss falls; without long sentences it starts lower,
    and only their own features are used.
    """
    monkeypatch.setattr(c05, "LOOKS", (100, 200))
    monkeypatch.setattr(c05, "FOLLOWED", (("s2", "global", None, 300), ("s2", "split", 12, 300)))
    whole = work.set_up
    monkeypatch.setattr(c05, "set_up", lambda task, template: whole(task, template, 60))
    rows = read_record(*run("boosting-rounds-ner", folder=tmp_path))[1]
    assert [(row["bound"], row["longest"]) for row in rows] == [("global", "all")] * 3 + [("split", "12")] * 3
    for part in (rows[:3], rows[3:]):
        assert [int(row["rounds"]) for row in part] == [100, 200, 300]
        losses = [float(row["log_loss"]) for row in part]
        assert losses == sorted(losses, reverse=True) and float(part[-1]["testb"]) > 0
        assert all(int(row["active"]) <= int(row["rounds"]) and float(row["seconds"]) >= 0 for row in part)
    assert int(rows[3]["sentences"]) < int(rows[0]["sentences"]) == 60
    short = c05.without_long(whole("ner", "s2", 60), 12)
    assert (
        np.diff(short.corpus.seq_ptr).max() == 12
        and short.features.n_features < whole("ner", "s2", 60).features.n_features
    )
