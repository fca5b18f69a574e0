"""Formulas of the pages: read by latex2mathml, mended by tools/formulas.py, never lost."""

import re
from xml.etree import ElementTree

import pytest

from tools import chapters as book
from tools.formulas import to_mathml


def shape(tex, display=True):
    """Tags and texts only: "munder(∑ y)"."""

    def walk(element):
        name = element.tag.split("}")[-1]
        if len(element):
            return f"{name}({' '.join(walk(child) for child in element)})"
        return element.text or name

    return walk(ElementTree.fromstring(to_mathml(tex, display)))


def test_sums_carry_their_limits_above_and_below_in_display_only():
    assert "munderover(∑ mrow(t = 1) T)" in shape(r"\sum_{t=1}^T a_t")
    assert "msubsup(∑" in shape(r"\sum_{t=1}^T a_t", display=False)


@pytest.mark.parametrize("tex", [r"\operatorname*{arg\,max}_y s", r"\arg\max_y s", r"\mathrm{argmax}_y s"])
def test_argmax_is_one_word(tex):
    assert "munder(argmax y) mspace s" in shape(tex)


def test_named_functions_have_air_before_a_letter_only():
    assert "log mspace Z" in shape(r"\log Z") and "log (" in shape(r"\log(Z)")


def test_a_prime_is_not_raised_twice():
    assert shape("y'") == "math(mrow(mrow(y \u2032)))" and "msup(y 2)" in shape("y^2")


@pytest.mark.parametrize("name", ["aligned", "align", "align*", "split", "eqnarray"])
def test_aligned_lines_are_a_table(name):
    text = shape(rf"\begin{{{name}}} a &= b \\[2pt] &= c \end{{{name}}}")
    assert text.count("mtr(") == 2 and "&" not in text


def test_less_than_and_underscores_survive():
    assert to_mathml("x < y").count("&lt;") == 1
    assert "log_edge" in shape(r"\texttt{log\_edge}")


@pytest.mark.parametrize("tex", [r"\notacommand{x}", r"\frac{a", r"a & b", "{"])
def test_what_cannot_be_read_is_shown_as_it_is(tex):
    assert "unread-formula" in to_mathml(tex) and "<math" not in to_mathml(tex)


def formulas(text):
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    yield from re.findall(r"\$\$(.+?)\$\$", text, re.S)
    yield from re.findall(
        r"(?<![$\\])\$([^$]+?)(?<!\\)\$(?!\$)", re.sub(r"\$\$.+?\$\$", "", text, flags=re.S)
    )


@pytest.mark.parametrize("path", book.chapters(), ids=lambda p: p.stem)
def test_every_formula_of_the_book_can_be_read(path):
    for cell in book.read(path).cells:
        for tex in formulas(cell.source) if cell.cell_type == "markdown" else ():
            assert "unread-formula" not in to_mathml(tex, True), f"tools/formulas.py cannot read {tex!r}"


@pytest.mark.parametrize(
    "norm", [r"c \|w\|_2^2", "c |w|_1", r"c \lvert w \rvert", r"\bigl|w\bigr|", "|a| + |b|"]
)
def test_bars_around_something_are_a_pair(norm):
    forms = re.findall(r'<mo[^>]* form="(\w+)"[^>]*>[|‖]</mo>', to_mathml(norm))
    assert forms in (["prefix", "postfix"], ["prefix", "postfix"] * 2)


def test_a_single_bar_stays_and_a_sign_after_an_operator_is_a_sign():
    assert "<mi>\\</mi>" in to_mathml(r"N(u) \setminus v")
    for conditional in (r"p(y|x) \log p(y|x)", r"\Pr(A|B)=\Pr(B|A)", r"\infty - 1", r"x^\top - y"):
        assert "form=" not in to_mathml(conditional), conditional
    assert to_mathml(r"E(|x|) + |y|").count("form=") == 4
    assert "form=" not in to_mathml("p(y|x)") and "form=" not in to_mathml("a - b")
    assert to_mathml(r"x = -\infty").count('form="prefix">−') == 1 and "form=" not in to_mathml("(a) - b")
