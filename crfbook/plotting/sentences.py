"""Sentences with their chunks as boxes: what a tagger says about a text, at a glance."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from crfbook.evaluation import chunks
from crfbook.plotting.style import COLOURS, FAINT, INK, as_probabilities, axes

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Axes

_TYPES = COLOURS[:1] + COLOURS[2:6]  # orange is kept for what is doubtful
_MONO = 0.602  # width of a character of DejaVu Sans Mono, in units of the font size


def tagged_text(
    sentences: Sequence[Sequence[str]], labels: Sequence[Sequence[str]],
    confidence: Sequence[ArrayLike] | None = None, *, types: Sequence[str] | None = None, width: int = 62,
    size: float = 10, ax: Axes | None = None,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Sentences as lines of text, each chunk in a box of its type's colour, its type written above.

    sentences, labels: lists of S lists of strings, labels as B-X, I-X, O; each sentence begins on a new line.
    confidence: list of S arrays (T,) in [0, 1], drawn as a bar under each token; full width is 1, an orange
    bar is below 0.8. types: order of the types, which fixes the colours (None: sorted). width: characters a
    line; size: points. A word that is longer than a line is cut (…), a character that the font lacks is drawn
    as ▯; no sentence at all is an empty picture. Returns the chunks as drawn, a list of (sentence, type,
    start, stop, lowest confidence inside or None).
    Raises ValueError if lengths do not fit or a confidence is no probability.
    """
    if len(labels) != len(sentences):
        raise ValueError(
            f"expected as many sequences of labels as sentences, got {len(sentences)} and {len(labels)}"
        )
    sure = [None] * len(sentences)
    for i, words in enumerate(sentences):
        if len(labels[i]) != len(words):
            raise ValueError(
                f"sequence {i}: expected {len(words)} labels, one for each token, got {len(labels[i])}"
            )
        if confidence is not None:
            sure[i] = as_probabilities(confidence[i], (len(words),), f"confidence[{i}]")
    found = [chunks(list(row)) for row in labels]
    types = list(types or sorted({kind for row in found for kind, _, _ in row}))

    sentences = [[_drawable(word, width) for word in words] for words in sentences]
    places = _places(sentences, width)
    n_lines = 1 + max((int(line[-1]) for line, _ in places if len(line)), default=0)
    own, ax = ax is None, axes(ax, (width + 1) * _MONO * size / 72, n_lines * 0.048 * size)
    if own:  # one column is one character wide only if the axes fill the figure
        ax.figure.set_layout_engine("none")
        ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(-0.5, width + 0.5), ylim=(n_lines - 0.45, -0.6))
    ax.axis("off")
    drawn = []
    for i, words in enumerate(sentences):
        line, column = places[i]
        for word, y, x in zip(words, line, column, strict=True):
            # "$x$" is a word here
            look = dict(family="monospace", fontsize=size, color=INK, parse_math=False)
            ax.text(x, y, word, va="center_baseline", zorder=3, **look)
        for kind, start, stop in found[i]:
            colour = _TYPES[types.index(kind) % len(_TYPES)] if kind in types else INK
            _box(ax, words, line, column, kind, start, stop, colour, size)
            drawn.append(
                (i, kind, start, stop, None if sure[i] is None else float(sure[i][start:stop].min()))
            )
        if sure[i] is not None:
            _bars(ax, words, line, column, sure[i])
    return drawn


def _drawable(word, width):
    """What the font can show of a word, one column a character, at most `width` of them."""
    seen = [
        c
        for c in unicodedata.normalize("NFC", word)
        if unicodedata.category(c) not in ("Mn", "Me", "Cf", "Cc")
    ]
    text = "".join(c if _in_font(c) else "▯" for c in seen) or "▯"
    return text if len(text) <= width else text[: width - 1] + "…"


@lru_cache(maxsize=4096)
def _in_font(character):
    from matplotlib import font_manager

    return font_manager.get_font(font_manager.findfont("monospace")).get_char_index(ord(character)) > 0


def _places(sentences, width):
    """For each sentence the line and the column of every word, lines counted through all sentences."""
    places, top = [], 0
    for words in sentences:
        line, column, x, y = [], [], 0, top
        for word in words:
            if x and x + len(word) > width:
                x, y = 0, y + 1
            line.append(y)
            column.append(x)
            x += len(word) + 2
        places.append((np.array(line, int), np.array(column, int)))
        top = y + 1
    return places


def _box(ax, words, line, column, kind, start, stop, colour, size):
    """One rectangle for each line on which the chunk stands; the type above the first."""
    from matplotlib.patches import Rectangle

    for y in np.unique(line[start:stop]):
        inside = [t for t in range(start, stop) if line[t] == y]
        left, right = column[inside[0]] - 0.5, column[inside[-1]] + len(words[inside[-1]]) + 0.5
        ax.add_patch(
            Rectangle((left, y - 0.24), right - left, 0.44, facecolor=colour, alpha=0.16, lw=0, zorder=1)
        )
        ax.plot([left, right], [y - 0.24, y - 0.24], color=colour, lw=1.8, solid_capstyle="butt", zorder=2)
    place = dict(x=column[start] - 0.5, y=line[start] - 0.29, va="bottom", zorder=3)
    ax.text(s=kind, fontsize=0.68 * size, color=colour, weight="bold", **place)


def _bars(ax, words, line, column, sure):
    for word, y, x, p in zip(words, line, column, sure, strict=True):
        ax.plot([x, x + len(word)], [y + 0.3, y + 0.3], color=FAINT, lw=2.5, solid_capstyle="butt", zorder=2)
        colour = INK if p >= 0.8 else COLOURS[1]
        ax.plot(
            [x, x + p * len(word)], [y + 0.3, y + 0.3], color=colour, lw=2.5, solid_capstyle="butt", zorder=3
        )
