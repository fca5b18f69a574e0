"""Raw text into tokens and sentences: the Treebank's cuts, nothing lost, nothing invented."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfbook import TokenColumns
from crfbook.data.columns import tokenize

CASES = [
    ("", []),
    ("  \n ", []),
    ("He left.", ["He left ."]),
    ("Don't they? He can't, I cannot.", ["Do n't they ?", "He ca n't , I can not ."]),
    ("The firm's banks' rates; it's 5%.", ["The firm 's banks ' rates ; it 's 5 % ."]),
    ("We’ve paid $1,000.5 at 10:30 p.m. in the U.S. today.",
     ["We ’ve paid $ 1,000.5 at 10:30 p.m. in the U.S. today ."]),
    ("Mr. J. Smith met Dr. Lee. So did I. They spoke.",
     ["Mr. J. Smith met Dr. Lee .", "So did I .", "They spoke ."]),
    ('"Who?" he asked. "You." (Yes!) Then', ['" Who ? " he asked .', '" You . "', "( Yes ! )", "Then"]),
    ("Wait... He came -- at last", ["Wait ...", "He came -- at last"]),
    ("Well... perhaps.", ["Well ... perhaps ."]),
    ("A title\n\nthe text goes\non.", ["A title", "the text goes on ."]),
    ("No. 5 is third-quarter AT&T of the '90s. No. Yes?!",
     ["No. 5 is third-quarter AT&T of the '90s .", "No .", "Yes ? !"]),
    ("O'Connell wrote to a.b@example.com, see https://example.com/x.",
     ["O'Connell wrote to a.b@example.com , see https://example.com/x ."]),
    ("end.Next", ["end .", "Next"]),
    ("I ❤\ufe0f 🍕🍕, 👍🏽 👩\u200d👧 🇫🇷🇩🇪 1\ufe0f\u20e3!",
     ["I ❤\ufe0f 🍕 🍕 , 👍🏽 👩\u200d👧 🇫🇷 🇩🇪 1\ufe0f\u20e3 !"]),
    ("cafe\u0301 na\u00efve", ["cafe\u0301 na\u00efve"]),
]  # fmt: skip


@pytest.mark.parametrize("text, expected", CASES, ids=range(len(CASES)))
def test_cuts(text, expected):
    assert [" ".join(tokens) for tokens in tokenize(text)] == expected


def test_quotes_and_brackets_of_the_treebank():
    found = tokenize('He said "it’s (“new”) [here]."', penn_symbols=True)
    assert found == ["He said `` it 's -LRB- `` new '' -RRB- -LSB- here -RSB- . ''".split()]
    found = tokenize("'Who?' asked the boys' aunt, ‘you’?", penn_symbols=True)
    assert found == ["` Who ? ' asked the boys ' aunt , ` you ' ?".split()]


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="aBI1 .,?!'’\"()-$%\n\tnt&/:@é“”", max_size=60) | st.text(max_size=40))
def test_only_white_space_is_lost(text):
    found = tokenize(text)
    assert all(found) and all(all(tokens) for tokens in found)
    assert "".join(token for tokens in found for token in tokens) == re.sub(r"\s", "", text)
    assert len(tokenize(text, penn_symbols=True)) == len(found)


def test_hostile_text_takes_time_in_proportion():
    """What may stand before an @ was read to its end from each of its characters."""
    code = "from crfbook.data.columns import tokenize; tokenize('+' * 10**6); tokenize('a.+-' * 10**5)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert tokenize("Ask a.b+c@d.org .") == [["Ask", "a.b+c@d.org", "."]]


def test_columns_from_text():
    columns = TokenColumns.from_text("It works. Try (yours).", penn_symbols=True)
    assert columns.names == ("word",) and columns.labels is None
    assert columns.by_sequence("word") == [["It", "works", "."], ["Try", "-LRB-", "yours", "-RRB-", "."]]
    assert len(TokenColumns.from_text("")) == 0
    with pytest.raises(TypeError, match="text: expected one string, got list"):
        TokenColumns.from_text(["It", "works"])
