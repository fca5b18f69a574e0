"""One sentence: its chunks as boxes, and the lattice of all its labellings."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from crfbook.evaluation.schemes import Reading, chunk_lists, reading_of
from crfbook.plotting.style import COLOURS, DASHES, FAINT, INK, as_array, as_probabilities, axes, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TYPES = COLOURS[:1] + COLOURS[2:6]  # orange marks low confidence
_MONO = 0.602  # width of a character of DejaVu Sans Mono, in units of the font size


def tagged_text(
    sentences: Sequence[Sequence[str]], labels: Sequence[Sequence[str]],
    confidence: Sequence[ArrayLike] | None = None, *, types: Sequence[str] | None = None, width: int = 62,
    size: float = 10, ax: Axes | None = None, scheme: str = "auto", strict: bool = False,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Sentences as lines of text, each chunk in a box of its type's colour, its type written above.

    sentences, labels : lists of S lists of strings. Each sentence begins on a new line.
    confidence : list of S arrays (T,) in [0, 1], drawn as a bar under each token. Full width is 1; a bar
        below
        0.8 is orange.
    types : order of the types, which fixes the colours; None: sorted.
    width : characters a line.
    size : points.
    scheme, strict : how labels are read, as in `evaluation.chunk_report`. With "auto" labels of no
        scheme are read as conlleval reads them.

    A word that is longer than a line is cut (…). A character that the font lacks is drawn as ▯. No sentence
    is an empty picture. Returns the chunks as drawn, a list of (sentence, type, start, stop, lowest
    confidence inside or None).
    Raises ValueError if lengths do not fit or a confidence is no probability.
    """
    if len(labels) != len(sentences):
        both = f"{len(sentences)} and {len(labels)}"
        raise ValueError(f"expected as many sequences of labels as sentences, got {both}")
    sure = [None] * len(sentences)
    for i, words in enumerate(sentences):
        if len(labels[i]) != len(words):
            wanted = f"{len(words)} labels, one for each token"
            raise ValueError(f"sequence {i}: expected {wanted}, got {len(labels[i])}")
        if confidence is not None:
            sure[i] = as_probabilities(confidence[i], (len(words),), f"confidence[{i}]")
    read = Reading(None)
    with suppress(*[ValueError] * (scheme == "auto")):  # a figure shows what can be read
        read = reading_of(labels, scheme, strict)
    found = chunk_lists(labels, read, strict)
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
            lowest = None if sure[i] is None else float(sure[i][start:stop].min())
            drawn.append((i, kind, start, stop, lowest))
        if sure[i] is not None:
            _bars(ax, words, line, column, sure[i])
    return drawn


def _drawable(word, width):
    """What the font can show of a word, one column a character, at most `width` of them."""
    unseen, word = ("Mn", "Me", "Cf", "Cc"), unicodedata.normalize("NFC", word)
    seen = [c for c in word if unicodedata.category(c) not in unseen]
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


def lattice(
    words: Sequence[str], labels: Sequence[Any], nodes: ArrayLike | None = None,
    edges: ArrayLike | None = None, path: ArrayLike | Mapping[str, ArrayLike] | None = None,
    pruned: ArrayLike | None = None, *, numbers: bool = False, legend: bool = True, ax: Axes | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The trellis of a sentence: a column per word, a row per label, a circle per (word, label).

    words, labels : T words, L labels.
    nodes : (T, L) in [0, 1], marginals or messages normalised per column: area of the disc inside its circle,
        or with numbers=True the value printed on a shade.
    edges : (T-1, L, L) in [0, 1], [previous, next]: width of the lines; None draws all of them thin.
    path : label ids (T,), or {name: ids} for several.
    pruned : bool (T, L): crossed out, their lines left out.

    Returns {"nodes", "edges", "paths", "pruned"} as drawn. Raises ValueError if a shape or a value does not
    fit.
    """
    n_words, n_labels = len(words), len(labels)
    if not n_words or not n_labels:
        raise ValueError(f"a lattice needs words and labels, got {n_words} words and {n_labels} labels")
    size = (n_words, n_labels)
    pruned = np.zeros(size, bool) if pruned is None else as_array(pruned, size, "pruned").astype(bool)
    values = np.where(pruned, 0, 1 if nodes is None else as_probabilities(nodes, size, "nodes"))
    pair = (n_words - 1, n_labels, n_labels)
    kept = ~pruned[:-1, :, None] & ~pruned[1:, None, :]
    lines = np.where(kept, 1 if edges is None else as_probabilities(edges, pair, "edges"), 0.0)
    paths = {} if path is None else dict(path) if isinstance(path, dict) else {"best path": path}
    paths = {name: _label_ids(ids, size, name) for name, ids in paths.items()}

    ax = axes(ax, 1.3 + 0.95 * n_words, 1.15 + 0.55 * n_labels)
    row = np.arange(n_labels)[::-1]  # the first label on top
    ax.set(xlim=(-0.5, n_words - 0.5), ylim=(-0.55, n_labels - 0.45))
    ax.set_xticks(range(n_words), words, fontsize=11, color=INK)
    ax.set_yticks(row, labels, fontsize=11, color=INK)
    plain(ax, frame=False)
    box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    across = 72 * min(0.62 * box.height / (n_labels + 0.1), 0.5 * box.width / n_words, 0.45)  # points

    _lattice_edges(ax, lines, row, plain=edges is None)
    for k, (name, ids) in enumerate(paths.items()):
        style = dict(color=COLOURS[k + 1], linestyle=DASHES[k % 4], lw=4 if k == 0 else 2.5)
        ax.plot(
            range(n_words), row[ids], zorder=2 + k, alpha=0.85, solid_capstyle="round", label=name, **style
        )
    _lattice_nodes(ax, values, pruned, row, across, plain=nodes is None, numbers=numbers)
    for ids in list(paths.values())[:1]:
        ring = dict(facecolors="none", edgecolors=COLOURS[1], lw=2.2)
        ax.scatter(range(n_words), row[ids], s=across**2, zorder=12, **ring)
    if legend:
        _lattice_legend(ax, nodes is not None and not numbers, edges is not None, pruned.any())
    return {"nodes": values, "edges": lines, "paths": paths, "pruned": pruned}


def _label_ids(path, size, name):
    ids = as_array(path, size[:1], name)
    wrong = np.flatnonzero((ids < 0) | (ids >= size[1]) | (ids % 1 != 0))
    if wrong.size:
        raise ValueError(
            f"{name}[{wrong[0]}]: expected a label id from 0 to {size[1] - 1}, got {ids[wrong[0]]:g}"
        )
    return ids.astype(int)


def _lattice_edges(ax, lines, row, plain):
    from matplotlib.collections import LineCollection

    t, previous, following = np.nonzero(lines > 1e-3)
    strength = lines[t, previous, following]
    ends = np.stack([np.stack([t, row[previous]], 1), np.stack([t + 1, row[following]], 1)], 1)
    widths = 0.7 if plain else 0.4 + 5 * strength
    ax.add_collection(LineCollection(ends, linewidths=widths, colors="#A9A9A9", zorder=1, capstyle="round"))


def _lattice_nodes(ax, values, pruned, row, across, plain, numbers):
    from matplotlib import colormaps

    t, y = np.nonzero(~pruned)
    value = values[t, y]
    shaded = numbers and not plain
    fill = colormaps["Blues"](0.85 * value) if shaded else "white"
    ax.scatter(t, row[y], s=across**2, c=fill, edgecolors=COLOURS[0], lw=1, zorder=10)
    if not plain and not numbers:
        ax.scatter(t, row[y], s=across**2 * value, c=COLOURS[0], lw=0, zorder=11)
    for step, label, p in zip(t, y, value, strict=True) if shaded else ():
        text = f"{p:.2f}".removeprefix("0") if p < 0.995 else "1"
        place = dict(ha="center", va="center_baseline", fontsize=min(10, 0.36 * across), zorder=13)
        ax.text(step, row[label], text, color="white" if p > 0.8 else "black", **place)
    t, y = np.nonzero(pruned)
    ax.scatter(t, row[y], s=(0.4 * across) ** 2, c="#888888", marker="x", lw=1.5, zorder=10)


def _lattice_legend(ax, nodes, edges, any_pruned):
    from matplotlib.lines import Line2D

    handles, names = ax.get_legend_handles_labels()
    signs = (
        (nodes, "area: probability", dict(ls="", marker="o", ms=9, mfc=COLOURS[0], mec=COLOURS[0])),
        (edges, "width: pair probability", dict(color="#A9A9A9", lw=4)),
        (any_pruned, "pruned", dict(ls="", marker="x", mec="#888888", mew=1.5)),
    )
    for drawn, name, look in signs:
        if drawn:
            handles.append(Line2D([], [], **look))
            names.append(name)
    if handles:
        place = dict(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(len(handles), 3))
        ax.legend(handles, names, frameon=False, fontsize=9, handlelength=1.6, columnspacing=1.2, **place)
