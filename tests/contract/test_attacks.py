"""Every kind of attack has its test, and at least half of all tries change one field of a valid file."""

import re
from pathlib import Path

from helpers.attacks import FORGED, SHARES, attacks

TESTS = Path(__file__).resolve().parents[1] / "attacks"


def test_each_kind_is_tried_and_files_take_half(monkeypatch):
    text = "".join(path.read_text("utf-8") for path in TESTS.glob("test_*.py"))
    assert set(re.findall(r'attacks\("(\w+)"\)', text)) == set(SHARES)
    assert sum(SHARES.values()) == 500 and sum(SHARES[kind] for kind in FORGED) >= 250
    monkeypatch.setenv("CRFBOOK_ATTACKS", "10000")
    assert sum(1 for kind in SHARES for _ in attacks(kind)) == 10_000


def test_tries_are_the_same_each_time_and_more_of_them_begin_with_these(monkeypatch):
    def first(n):
        monkeypatch.setenv("CRFBOOK_ATTACKS", str(n))
        return [rng.random() for rng in attacks("shards")]

    few, many = first(50), first(500)
    assert few == first(50) == many[: len(few)] and len(set(many)) == len(many)
    monkeypatch.setenv("CRFBOOK_ATTACK_SEED", "1")
    assert not set(first(500)) & set(many)
