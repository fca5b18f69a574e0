"""The ledger has every claim once, under its verdict; what it names exists."""

import re
from collections import Counter

from studies.claims import PAPERS, claims
from studies.claims.ledger import ERRATA, GROUPS, counted, errata, group, ledger
from studies.records import RESULTS


def test_verdicts_have_groups():
    assert [group(one) for one in ("holds", "weaker where decided", "reversed where decided")] == [
        "holds", "weaker", "reversed",
    ]  # fmt: skip
    assert group("holds where decided") == "holds where decided"
    assert group("other data") == "not tested" and group("fitted") == "seen, not judged"


def test_every_claim_stands_there_once_and_is_counted():
    table, counts = ledger(), counted(ledger())
    for key, (_, paper) in PAPERS.items():
        own, listed = table[table["paper"] == paper], claims(key)
        assert own["verdict"].tolist() == listed["verdict"].tolist()
        assert Counter(own["group"]) == Counter(
            {k: n for k, n in counts.loc[paper].items() if n and k in GROUPS}
        )
    assert counts.loc["all", "claims"] == len(table) == counts.loc["all", list(GROUPS)].sum()
    assert all((RESULTS.parent / name).exists() for name in table["link"])
    row = table[table["sentence"].str.startswith("C-EXP decodes faster than Viterbi")].iloc[0]
    assert row["link"].startswith("11_") and row["sentence"].endswith(f"{row['verdict']}.")


def test_the_places_of_errata_exist():
    spec = (RESULTS.parents[1] / "docs" / "SPEC.md").read_text(encoding="utf-8")
    for one, link in zip(ERRATA, errata()["link"], strict=True):
        heading = re.escape(one.where[4:])
        text = (RESULTS.parent / link).read_text(encoding="utf-8")
        assert one.where[:2] == link[:2] and re.search(rf'"#+ {heading}', text), one.where
        assert f"\n### {one.spec} " in spec, one.spec
