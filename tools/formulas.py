"""LaTeX formulas as MathML, so that pages and slides need no network to be read.

Every browser draws MathML by itself. latex2mathml does the reading; here stands what it gets wrong or lacks.
A formula that cannot be read is shown as its source.
"""

import html
import re
from itertools import pairwise
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin

# How pages, slides and summaries draw formulas: with a font made for them where there is one.
STYLE = """
math { font-family: "Latin Modern Math", "STIX Two Math", "Cambria Math", "Libertinus Math",
  "TeX Gyre Termes Math", "DejaVu Math TeX Gyre", math; }
mtd { padding: .25em .15em; } mtd[columnalign="right"] { text-align: right; text-align: -webkit-right; }
mtd[columnalign="left"] { text-align: left; }
menclose[notation="box"] { border: 1px solid; padding: .2em; }
"""
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
NAMED = {
    "log",
    "exp",
    "max",
    "min",
    "arg",
    "sup",
    "inf",
    "lim",
    "Pr",
    "sign",
    "argmax",
    "argmin",
    "logsumexp",
    "tr",
    "diag",
}
STACKED = {"∑", "∏", "⋃", "⋂", "max", "min", "sup", "inf", "lim", "argmax", "argmin"}
UNDER = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
SCRIPTS = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
PRIMES = {"\u2032", "\u2033", "\u2034"}
BARS = "|", "‖"
OPENING, CLOSING = {"(", "[", "{"}, {")", "]", "}"}
SIGNS = {"−", "-"}
BEFORE_SIGN = {*"=<>≤≥≈≠∈→∝,;:+·×/", *OPENING}

# What is rewritten before reading: environments it does not know, spacing it would print.
REWRITES = [
    (
        r"\\(begin|end)\{(?:aligned|alignedat|split|align\*?|alignat\*?|eqnarray\*?)\}(?:\{\d+\})?",
        r"\\\1{align*}",
    ),
    (r"\\(begin|end)\{(?:gathered|gather\*?|multline\*?)\}", r"\\\1{align*}"),
    (r"\\(?:begin|end)\{(?:equation\*?|displaymath)\}", ""),
    (r"\\\\\s*\[[^\]]*(?:pt|em|ex|mm)\]", r"\\\\"),
    (
        r"\\operatorname\*?\{((?:[^{}]|\{[^{}]*\})*)\}",
        lambda m: r"\mathrm{" + re.sub(r"\\[,;: !]|\s", "", m.group(1)) + "}",
    ),
    (r"\\arg\s*(?:\\[,;:! ])?\s*\\(max|min)", r"\\mathrm{arg\1}"),
    (r"\\(?:nonumber|notag|!|displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])", ""),
    (r"\\label\{[^{}]*\}", ""),
    (r"\\tag\*?\{([^{}]*)\}", r"\\qquad (\1)"),
]


class Unreadable(ValueError):
    """The formula holds something that latex2mathml does not know."""


def to_mathml(tex, display=False):
    """The formula as a <math> element (text); its source as <code> where it cannot be read."""
    try:
        return _mathml(tex, display)
    except Exception:  # the reader's own errors are of many kinds, and a page must not fail over a formula
        shown = f"$${tex}$$" if display else f"${tex}$"
        return f'<code class="unread-formula">{html.escape(shown)}</code>'


def markdown(source):
    """Markdown with $formulas$ as HTML with MathML."""

    def formula(tex, options):
        return to_mathml(tex, options["display_mode"])

    reader = MarkdownIt("commonmark").enable("table")
    reader.use(dollarmath_plugin, renderer=formula, double_inline=True)
    reader.use(amsmath_plugin, renderer=lambda tex: to_mathml(tex, display=True))
    return reader.render(source)


def _mathml(tex, display):
    bare = re.sub(r"\\[{}]", "", tex)
    if bare.count("{") != bare.count("}"):
        raise Unreadable("unbalanced braces")
    for pattern, replacement in REWRITES:
        tex = re.sub(pattern, replacement, tex)
    text = convert(tex.strip(), display="block" if display else "inline")
    root = ElementTree.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    _mend(root, display)
    root.set("xmlns", NAMESPACE)
    return ElementTree.tostring(root, encoding="unicode")


def _word(element):
    """The letters of a name that was written upright, letter by letter: \\mathrm{logsumexp}."""
    letters = [
        child.text or "" for child in element if child.tag == "mi" and child.get("mathvariant") == "normal"
    ]
    return "".join(letters) if len(letters) == len(element) > 1 else ""


def _unraise(element):
    """A prime is high and small by itself; as a superscript browsers make it a speck."""
    element.tag, element[1].tag = "mrow", "mo"
    element[1].attrib.update(lspace="0.05em", rspace="0")


def _operators(row):
    """Forms that browsers guess wrong: bars around something, as of a norm; a sign after another operator."""
    inner = [child[0] if child.tag in SCRIPTS else child for child in row]
    groups, closed = [[]], []  # the bars between the same brackets
    for one in inner:
        if one.text in OPENING:
            groups.append([])
        elif one.text in CLOSING:
            closed.append(groups.pop() if len(groups) > 1 else [])
        elif one.tag == "mo" and one.text in BARS:
            groups[-1].append(one)
    for found in ([one for one in group if one.text == bar] for group in [*closed, *groups] for bar in BARS):
        for k, one in enumerate(found if len(found) % 2 == 0 else ()):
            one.attrib.setdefault("stretchy", "false")
            one.set("form", ("prefix", "postfix")[k % 2])
    for before, sign in pairwise(inner):
        if sign.text in SIGNS and before.text in BEFORE_SIGN:
            sign.set("form", "prefix")


def _mend(element, display):
    if element.tag not in SCRIPTS:
        _operators(element)
    for place, child in enumerate(element):
        if child.tag == "mrow" and _word(child):
            name = ElementTree.Element("mi")
            name.text, name.tail = _word(child), child.tail
            element[place] = child = name
        if child.tag == "msup" and child[1].text in PRIMES:
            _unraise(child)
        if child.tag == "mtext" and child.text:
            child.text = child.text.replace("\\_", "_")
        if (child.text or "").startswith("\\") or (child.tag == "mi" and child.text == "&"):
            raise Unreadable(child.text)
        if child.text in ("∖", "⧵"):  # most fonts lack them
            child.text = "\\"
        _mend(child, display)
        if display and child.tag in UNDER and child[0].text in STACKED:
            child.tag = UNDER[child.tag]
    if element.tag in SCRIPTS or element.tag in ("mfrac", "mroot"):
        return
    # A named function needs air before its argument, unless that is in brackets.
    for place in range(len(element) - 2, -1, -1):
        child, following = element[place], element[place + 1]
        name = child[0].text if child.tag in SCRIPTS else child.text
        opens = following.tag == "mo" and following.text in ("(", "[", "{", ")", ",", "=")
        if name in NAMED and not opens:
            element.insert(place + 1, ElementTree.Element("mspace", width="0.17em"))
