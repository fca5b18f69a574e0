"""The papers' claims: verdicts come from the records, and another record brings another verdict."""

import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from studies.claims import PAPERS, Narrow, claims, judge, listed, sokolovska2010
from studies.claims.judge import Found, less, mean_of, more, near, verdict
from studies.records import read_record
from tools import chapters as book

UNJUDGED = {"not tested", "not finished", "not judged", "seen in the chapter", "fitted", "other data"}
RESULTS = Path(__file__).parents[2] / "notebooks" / "results"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_table_has_verdicts_from_the_records(paper):
    table = claims(paper, RESULTS)
    columns = ["claim", "paper", "ours", "budget", "verdict", "decided", "where"]
    assert list(table.columns) == columns and len(table) >= 6
    judged = {f"{side}{some}" for side in ("holds", "weaker", "reversed") for some in ("", " where decided")}
    judged |= {"mixed", "undecided"}
    assert set(table["verdict"]) <= judged | UNJUDGED
    assert not table.isna().any(axis=None) and not table["ours"].str.contains("nan").any()
    assert table["claim"].is_unique and (table != "").all(axis=None)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_paper_s_own_numbers_are_on_its_side(paper):
    """By the rule that ours are judged by; and each rule has two sides."""
    for one in listed(paper, RESULTS):
        if one.rule is None:
            assert isinstance(one.paper, str) and isinstance(one.ours, str), one.claim
            continue
        if not isinstance(one.paper, str):
            assert verdict(one.rule, [Found(x) for x in one.paper]) == "holds", one.claim
        points = judge.sides(one.rule, [Found(x) for x in (-1e6, -1.0, 0.0, 1.0, 93.0, 1e6)])
        against = 0 if "t-test" in one.claim else -1  # a test that finds nothing shows nothing
        assert {against, 1} <= set(points), one.claim


@pytest.mark.parametrize("paper", PAPERS)
def test_what_a_claim_points_to_is_there(paper):
    """A heading, or the beginning of a caption, of that chapter; and the table is in the paper's last one."""
    text = {}
    for path in book.chapters():
        cells = book.read(path).cells
        text[path.stem[:2]] = {kind: "\n".join(c.source for c in cells if c.cell_type == kind)
                               for kind in ("markdown", "code")}  # fmt: skip
    for one in listed(paper, RESULTS):
        chapter, _, place = one.where.partition(", ")
        found = re.search(rf"^(#+ .*|\*\*?){re.escape(place)}\b", text[chapter]["markdown"], re.M)
        assert found, f"{one.claim}: {one.where}"
    assert f'claims("{paper}"' in text[PAPERS[paper][0]]["code"]


def shown(path):
    """({paper: the claims that a chapter shows, in one table or in several}, what it prints)."""
    found, cells, paper = {}, book.read(path).cells, None
    for cell in cells:
        paper = re.search(r'\bclaims\("(\w+)"\)', cell.source) or paper
        if cell.cell_type != "code" or not paper or not re.search(r"\b(claims|Narrow)\(", cell.source):
            continue
        found.setdefault(paper[1], [])
        for output in cell.outputs:
            if "text/html" in output.get("data", {}):
                head, body = output.data["text/html"].split("<tbody>")
                rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row, re.S) for row in body.split("</tr>")[:-1]]
                columns = re.findall(r"<th>(.*?)</th>", head, re.S)[1 : len(rows[0])]
                table = pd.DataFrame(rows, columns=["claim", *columns]).map(unescape)
                found[paper[1]].append(table.set_index("claim"))
    printed = "\n".join(one.get("text", "") for cell in cells for one in cell.get("outputs", []))
    return {paper: pd.concat(tables) for paper, tables in found.items()}, printed


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_stored_tables_are_those_of_today(path):
    """What a chapter shows of a place is all of that place. `python -m tools.outputs NN` stores.

    Budgets may be printed instead of being a column.
    """
    tables, printed = shown(path)
    for paper, stored in tables.items():
        today, columns = claims(paper, RESULTS).set_index("claim"), list(stored)
        assert set(stored.index) <= set(today.index) and set(today) - set(columns) <= {"where", "budget"}
        today = today[today["where"].isin(today.loc[stored.index, "where"])]
        assert "budget" in columns or all(one in printed for one in today["budget"])
        pd.testing.assert_frame_equal(stored.sort_index(), today[columns].sort_index(), check_names=False)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_book_shows_each_claim(paper):
    seen = {claim for path in book.chapters() for claim in shown(path)[0].get(paper, pd.DataFrame()).index}
    assert set(claims(paper, RESULTS)["claim"]) <= seen


def test_a_narrow_table_has_all_rows_in_short_lines():
    for paper in PAPERS:
        table = claims(paper, RESULTS)
        one = Narrow(table)
        assert max(map(len, repr(one).splitlines())) <= 100
        said = " ".join(repr(one).split())
        for row in table.itertuples():
            assert all(" ".join(text.split()) in said for text in (row.claim, row.ours, row.verdict))
        assert one._repr_html_().count("<tr>") == len(table) + 1
        assert set(one.budgets["budget"]) == set(table["budget"]) - {"-"}


CHANGES = [  # paper, record, old text, new text, beginning of a claim, verdicts before and after
    (
        "altun2003", "05_ner", "s2,perceptron,8323,68.07,74.22,25224,1,200,max_iterations,0.0001,0.3161,",
        "s2,perceptron,8323,68.07,74.22,25224,1,200,max_iterations,0.0001,0.0316,", "the averaged perceptron",
        "holds where decided", "holds",
    ),
    (
        "jeong2009", "10_methods", "Method 3,5000,90.14,,0.5250", "Method 3,5000,70.14,*,0.0001",
        "Methods 3, 4 lose on NetTalk", "reversed", "mixed",
    ),
    (  # a private corpus: whatever stood in says
        "jeong2009", "10_methods", "Method 1,1000,89.23,,0.0672", "Method 1,1000,9.23,*,0.0001",
        "Method 1 fails on Encyclopedia", "not tested", "not tested",
    ),
    (  # the paper's 30 sweeps from zero; those down a path are another row
        "sokolovska2010", "08_letters", "17.54,18.69,0.36,0.0009,", "17.54,18.39,0.36,0.9,",
        "with 95 % of the pair weights 0", "undecided", "undecided",
    ),
    (
        "sokolovska2010", "08_letters", "17.54,18.69,0.36,0.0009,", "17.54,18.69,0.36,0.0001,",
        "with 95 % of the pair weights 0", "undecided", "holds",
    ),
    (
        "kaji2010", "11_decoders", ",559,1514,1509.1,1792,", ",559,151400,150910,179200,", "by orders of",
        "weaker", "holds",
    ),
    (
        "sokolovska2010", "08_paired", "pseudo_ngrams_5,ngrams_5,0.16,0.21,0.4652",
        "pseudo_ngrams_5,ngrams_5,1.16,0.21,0.0001", "n-grams beat pseudo n-grams at the end",
        "holds where decided", "holds",
    ),
    (
        "sutton2004", "13_schedules", "test,tree,68.344,16.617,0,", "test,tree,68.344,16.617,7,", "belief",
        "holds", "mixed",
    ),
]  # fmt: skip


@pytest.mark.parametrize("paper, record, old, new, claim, before, after", CHANGES)
def test_another_record_brings_another_verdict(tmp_path, paper, record, old, new, claim, before, after):
    def found():
        table = claims(paper, tmp_path).set_index("claim")["verdict"]
        return table[table.index.str.startswith(claim)].tolist()

    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    path = tmp_path / f"{record}.csv"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1 and found() == [before]
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert found() == [after]


@pytest.mark.parametrize(
    "testa, testb, p_testa, p_testb", [(54.05, 60.18, 0.01, 0.02), (52.38, 55.77, 0.2, 0.9)]
)
def test_batch_perceptrons_are_compared_where_both_end(tmp_path, testa, testb, p_testa, p_testb):
    """Passes before, and what another learner does, are not shown."""
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    rows = [
        *(
            ("online, last", 200, 49.34, 52.55, 0.001, 0.0001),
            ("online, mean", 1, 45.66, 48.01, 0.001, 0.001),
        ),
        *(("online, mean", 200, 53.05, 58.18, 1.0, 1.0), ("batch, mean", 200, 99.0, 1.0, 0.0001, 0.0001)),
        *(
            ("batch, mean", 6400, testa, testb, p_testa, p_testb),
            ("batch, last", 6400, 49.82, 55.22, 0.01, 0.02),
        ),
    ]
    text = "# date: never\nlearner,passes,testa,testb,p testa,p testb\n"
    text += "\n".join(f'"{name}",' + ",".join(map(str, rest)) for name, *rest in rows)
    (tmp_path / "05_batch_ner.csv").write_text(text, encoding="utf-8")
    table = claims("altun2003", tmp_path).set_index("claim")
    (one,) = [claim for claim in table.index if claim.startswith("the batch perceptron is the closer")]
    assert table.loc[one, "verdict"] == "seen in the chapter"
    assert table.loc[one, "ours"].startswith(f"{testb - 58.18:.3g} (p {p_testb:.2g}) / ")


@pytest.mark.parametrize(
    "difference, error, p, wanted",
    [(-0.06, 0.05, 0.3, "holds"), (0.0, 0.05, 1.0, "holds"), (-0.9, 0.1, 0.0001, "reversed"),
     (0.45, 0.2, 0.02, "undecided"), (0.01, 0.4, 0.98, "undecided")],
)  # fmt: skip
def test_a_paired_test_says_whether_sbcd_is_as_accurate_as_owl_qn(tmp_path, difference, error, p, wanted):
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    text = "# date: never\nbefore,after,c1,error before,error after,difference,standard error,p\n"
    text += f'OWL-QN,"SBCD, from zero",0.2,18.63,18.69,{difference},{error},{p}\n'
    (tmp_path / "08_letters_paired.csv").write_text(text, encoding="utf-8")
    table = claims("sokolovska2010", tmp_path).set_index("claim")
    (one,) = [claim for claim in table.index if claim.startswith("SBCD and OWL-QN are as accurate")]
    assert table.loc[one, "verdict"] == wanted
    assert table.loc[one, "ours"] == f"{0.0 - difference:.3g} (p {p:.2g})"


def test_only_steps_from_the_same_start_are_compared():
    one = pd.Series([1.0, 2.0, 3.0, 4.0], [8.0, 2.0, 0.5, 0.25])
    other = pd.Series([10.0, 20.0, 30.0, 40.0], [8.0, 0.5, 0.25, 0.125])  # 0.5 from 8, not from 2
    a, b = sokolovska2010.same_steps(one, other.sort_index())  # a path falls, in whatever order it is read
    assert a.to_dict() == {8.0: 1.0, 0.25: 4.0} and b.to_dict() == {8.0: 10.0, 0.25: 30.0}
    late = pd.Series([5.0, 6.0], [2.0, 0.5])  # 2 from zero
    assert [list(part.index) for part in sokolovska2010.same_steps(one, late)] == [[0.5], [0.5]]


def test_errors_decide():
    assert verdict(more(), [Found(1.0, 0.5), Found(0.2)]) == "holds"
    assert verdict(more(), [Found(1.0, 0.5), Found(0.2, 0.3)]) == "holds where decided"
    assert verdict(more(), [Found(-1.0, 0.5), Found(-0.2)]) == "reversed"
    assert verdict(more(), [Found(-1.0, 0.5), Found(0.2, 0.3)]) == "reversed where decided"
    assert verdict(more(), [Found(-1.0), Found(1.0), Found(0.1, 2.0)]) == "mixed"
    assert verdict(more(), [Found(1.0, 2.0)]) == verdict(near(2.0, 0.5), [Found(2.4, 0.2)]) == "undecided"
    assert verdict(more(), "no such data") == verdict(None, "no such data") == "not tested"
    assert verdict(None, "as it was made", "fitted") == "fitted"
    assert verdict(less(-1.0), [Found(0.0)]) == "reversed"
    assert verdict(near(2.0, 0.5), [Found(2.4)]) == "holds"
    assert verdict(more(), [mean_of([1.0])]) == "undecided"
    assert verdict(more(), [mean_of([1.0, 1.1, 0.9])]) == "holds"
    for p, side in ((0.04, 1), (0.06, 0), (0.0, 1), (1.0, 0)):
        assert judge.sides(more(), [judge.tested(0.3, p)]) == [side]
        assert judge.sides(less(), [judge.tested(-0.3, p)]) == [side]
    assert mean_of([1.0, 2.0, 3.0])[:2] == pytest.approx((2.0, 2.484), abs=1e-3)
    assert (
        judge.shown([Found(float(i)) for i in range(-1, 9)], more())
        == "-1 to 8; 8 of 10 as claimed, 1 against"
    )


def test_holm_s_correction_decides_several_tests_and_no_bounds():
    def decided(rule, *found):
        return judge.sides(rule, list(found)), judge.decided(rule, list(found))

    p = judge.tested(0.3, 0.04), judge.tested(0.3, 0.03), judge.tested(0.3, 0.012)
    assert decided(more(), *p[:2]) == ([0, 0], "0 of 2")  # 0.06, 0.06
    assert decided(more(), p[0], p[2]) == ([1, 1], "2 of 2")  # 0.04, 0.024
    assert decided(more(), *p) == ([0, 0, 1], "1 of 3")  # 0.06, 0.06, 0.036
    assert decided(more(), p[0], judge.tested(0.3, 0.9)) == ([0, 0], "0 of 2")
    assert decided(more(), p[0], Found(0.3)) == ([1, 1], "2 of 2")  # a count is no test
    assert decided(more(1), *[judge.ratio(2.6, 1.0)] * 9)[1] == "9 of 9"  # nor is a bound
    few = mean_of([1.0, 1.0, 1.0, 1.0, 6.0])  # from -1.4: Student's p 0.027, normal 0.016
    assert decided(more(-1.4), few)[0] == [1] and decided(more(-1.4), few, few)[0] == [0, 0]
    assert decided(more(), p[0])[1] == judge.decided(None, "as it was made") == "-"


def test_an_effect_that_falls_short_is_weaker_and_a_test_without_one_is_undecided():
    assert judge.verdict(more(2, none=1), [Found(1.4, 0.1)]) == "weaker"
    assert judge.verdict(more(2, none=1), [Found(1.05, 0.1)]) == "reversed"
    assert (
        judge.verdict(more(2, none=1), [Found(0.5, 0.1)])
        == judge.verdict(more(2), [Found(1.4)])
        == "reversed"
    )
    assert judge.verdict(judge.significant(0.05), [Found(0.9), Found(1.0)]) == "undecided"
    assert judge.verdict(judge.significant(0.05), [Found(0.9), Found(0.01)]) == "holds where decided"


def test_a_test_that_sees_nothing_takes_the_error_of_its_neighbours():
    blind, sharp, wide = judge.tested(0.03, 0.87), judge.tested(0.3, 0.01), judge.tested(0.5, 0.3)
    assert blind.error == float("inf") and judge.sides(near(0, 0.3), [blind]) == [0]
    (helped,) = judge.alike([blind], [blind, sharp, wide])
    assert helped.error == (sharp.error + wide.error) / 2 and helped[::2] == blind[::2]
    assert judge.alike([blind], [blind]) == [blind] and judge.alike([sharp], [wide]) == [sharp]


def test_single_timings_decide_beyond_their_noise_in_both_directions():
    for faster, side in ((2.4, 0), (2.6, 1), (1 / 2.4, 0), (1 / 2.6, -1)):
        assert judge.sides(more(1), [judge.ratio(faster, 1.0)]) == [side]
        assert judge.sides(less(1), [judge.ratio(faster, 1.0)]) == [-side]
    assert judge.sides(more(1), [judge.ratio(1.2, 1.0, 1.1)]) == [1]
    assert judge.sides(more(2), [judge.ratio(1.24, 1.0)]) == [0]  # up to 3.1
    assert str(judge.ratio(1.24, 1.0)) == "1.24 (0.5 to 3.1)"
    passes = read_record(RESULTS / "07_race.csv")[1]
    seconds = {}
    for row in passes:
        seconds.setdefault(row["corpus"], []).append(float(row["pass"]))
    largest = max(max(one) / min(one) for one in seconds.values())
    assert 1.0 < largest <= judge.SINGLE


def test_errors_of_arms_in_common_are_added():
    assert judge.minus(Found(1.0, 0.5), Found(0.3, 0.4))[:2] == (pytest.approx(0.7), 0.9)


def test_a_range_has_the_errors_of_both_its_ends():
    found = judge.spread([Found(0.0), Found(-1.0, 0.3), Found(0.5, 0.2), Found(0.1, 9.0)])
    assert found[:2] == (1.5, 0.5)


@pytest.mark.parametrize(
    "falls, wanted",
    [((5.0, 5.5, 6.0), "holds"), ((-5.0, -5.5, -6.0), "reversed"), ((-5.0, 0.5, 6.0), "undecided")],
)
def test_what_exp_loses_to_the_most_wrong_labels(tmp_path, falls, wanted):
    """Beyond what log loses; exp is 1 below log also where no label is wrong."""
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
    lines = ["# date: never", "wrong,draw,loss,test"]
    for kind in ("", "pointwise-"):
        lines += [f"0.0,0,{kind}log,90", f"0.0,0,{kind}exp,89", f"0.05,0,{kind}log,90", f"0.05,0,{kind}exp,1"]
        for draw, fall in enumerate(falls):
            lines += [f"0.1,{draw},{kind}log,80", f"0.1,{draw},{kind}exp,{79 - fall}"]
    (tmp_path / "04_noise.csv").write_text("\n".join(lines), encoding="utf-8")
    (one,) = [
        one for one in listed("altun2003", tmp_path) if one.claim.startswith("exponential losses are v")
    ]
    assert verdict(one.rule, one.ours) == wanted
    assert [found.value for found in one.ours] == pytest.approx([np.mean(falls)] * 2)


def test_what_has_not_ended_by_its_rule_is_left_out(tmp_path):
    """A loss at its limit of iterations, or boosting whose best minute is the last."""
    shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)

    def found(beginning):
        (one,) = [one for one in listed("altun2003", tmp_path) if one.claim.startswith(beginning)]
        return one

    path = tmp_path / "04_ner.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("max_iterations", "converged"), encoding="utf-8")
    whole = found("exp is below log")
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("s2,8323,exp,")]
    late = rows[0].replace("converged", "max_iterations")
    path.write_text(path.read_text(encoding="utf-8").replace(rows[0], late), encoding="utf-8")
    part = found("exp is below log")
    assert (
        len(part.ours) == len(whole.ours) - 2 and "left out" in part.claim and "left out" not in whole.claim
    )

    path, before = tmp_path / "05_boosting_ner.csv", len(found("boosting is sparse").ours)
    lines = path.read_text(encoding="utf-8").splitlines()
    cut = [line for line in lines if not (line.startswith("s3,") and float(line.split(",")[1]) > 30)]
    path.write_text("\n".join(cut), encoding="utf-8")
    assert len(found("boosting is sparse").ours) == before - 1


def test_a_quotient_keeps_the_range_of_a_single_timing():
    found = judge.over(judge.ratio(3.0, 1.0), Found(2.0, 0.1))
    assert found.value == 1.5 and found.factor == judge.SINGLE
    assert judge.sides(more(1), [found]) == [0]  # 0.6 to 3.75
    assert judge.sides(more(1), [judge.over(Found(3.0, 0.1), Found(2.0, 0.1))]) == [1]


def test_steps_of_a_path_are_ordered_as_numbers():
    """Of c1 as text "8" comes before "32"; the paths make 32, 8 and 32, 16, 8: 8 is another step."""
    one, other = pd.Series([1.0, 2.0], ["8", "32"]), pd.Series([3.0, 4.0, 5.0], ["8", "32", "16"])
    both = sokolovska2010.same_steps(one, other)
    assert [list(series.items()) for series in both] == [[(32.0, 2.0)], [(32.0, 4.0)]]
