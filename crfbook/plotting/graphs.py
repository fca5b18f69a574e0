"""Models as graphs: circles for variables, squares for factors, arrows for conditional probabilities."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from crfbook.plotting.style import COLOURS, FAINT, INK, as_array, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RADIUS = 0.26  # of a circle, where neighbours are one unit apart; a unit is 0.75 inch


class Drawing(dict[str, Any]):
    """What `graph` drew, and the picture as vectors, which Jupyter shows."""

    svg = ""

    def __repr__(self):
        lines = len(self["links"]) + len(self["arrows"])
        return f"Graph of {len(self['places'])} variables, {lines} lines, {len(self['factors'])} factors"

    def _repr_svg_(self):
        return self.svg or None


def graph(
    places: Mapping[Hashable, tuple[float, float]], links: Iterable[tuple[Any, ...]] = (),
    arrows: Iterable[tuple[Any, ...]] = (), factors: Mapping[tuple[Any, ...], Any] | Iterable[Any] = (), *,
    names: Mapping[Hashable, str] | None = None, observed: Collection[Any] = (),
    marked: Collection[Any] = (), texts: Mapping[tuple[float, float], str] | None = None,
    ax: Axes | None = None,
) -> Drawing:  # fmt: skip
    """A graphical model: directed, undirected, or a factor graph.

    places : {variable: (x, y)}, neighbours one unit apart. Each is a circle with its name in it.
    links, arrows : (variable, variable), or with a third number that bends the line: 0.4 to the right.
    factors : tuples of variables, or {tuple: (x, y)}: a square, joined with each of them. Without a place
        it stands in their middle; that of one variable 0.62 below it.
    names : {variable: its text}; default: the variable itself as a formula, "y_0" as $y_0$.
    observed : variables that are given: shaded.
    marked : variables, links, arrows or factors in colour: (a, b) for the line between both.
    texts : {(x, y): what stands there}, for titles.

    Returns {"places", "links", "arrows", "factors": {tuple: (x, y)}}. Without `ax` the picture is a drawing
    of its own as SVG, which a notebook shows. Raises ValueError for a variable without a
    place, a place that is no pair of finite numbers, and for what is marked and not drawn.
    """
    links, arrows, factors = list(links), list(arrows), _placed(places, factors)
    joined = {pair[:2] for pair in (*links, *arrows)} | set(factors)
    for what in {*observed, *(variable for some in joined for variable in some)}:
        if what not in places:
            raise ValueError(f"{what!r} has no place; there are {', '.join(map(repr, places))}")
    for what, place in places.items():
        if not np.isfinite(as_array(place, (2,), f"the place of {what!r}")).all():
            raise ValueError(f"the place of {what!r}: expected two finite numbers, got {place}")
    for what in marked:
        if what not in joined and what not in places:
            raise ValueError(f"marked: expected a variable, a line or a factor, got {what!r}")
    points = np.array([*places.values(), *factors.values(), *(texts or {})], dtype=float).reshape(-1, 2)
    low, high = (points.min(0) - 0.4, points.max(0) + 0.4) if len(points) else (np.zeros(2), np.ones(2))
    own, ax = ax is None, axes(ax, *0.75 * (high - low))
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.axis("off")
    circles = {}
    for variable, place in places.items():
        name = (names or {}).get(variable, f"${variable}$")
        circles[variable] = _circle(ax, place, name, variable in observed, variable in marked)
    for style, some in (("-", links), ("-|>", arrows)):
        for a, b, *bend in some:
            _line(ax, circles[a], circles[b], (a, b) in marked, style, *bend)
    for some, middle in factors.items():
        (square,) = ax.plot(*middle, "s", ms=7, color=COLOURS[1] if some in marked else INK, zorder=4)
        for variable in some:
            _line(ax, square, circles[variable], some in marked)
    for place, text in (texts or {}).items():
        ax.text(*place, text, ha="center", va="center", fontsize=10, color=INK)
    drawn = Drawing(places=dict(places), links=links, arrows=arrows, factors=factors)
    if own:
        drawn.svg = _vectors(ax.figure)
    return drawn


def _placed(places, factors):
    """{variables of a factor: its place}"""
    given, found = factors if isinstance(factors, Mapping) else dict.fromkeys(factors), {}
    for some, place in given.items():
        if place is None:
            known = [places[variable] for variable in some if variable in places]
            place = np.mean(known or [(0.0, 0.0)], axis=0) - (0.0, 0.62 * (len(some) == 1))
        found[some] = tuple(map(float, place))
    return found


def _circle(ax, place, name, given, strong):
    """The patch of a variable."""
    from matplotlib.patches import Circle

    ax.text(*place, name, ha="center", va="center_baseline", fontsize=10, color=INK, zorder=5)
    return ax.add_patch(Circle(place, _RADIUS, fc=FAINT if given else "white", zorder=3, **_pen(strong)))


def _line(ax, start, stop, strong, style="-", bend=0.0):
    """From the edge of a circle, or from a square, to the edge of a circle."""
    from matplotlib.patches import Circle, FancyArrowPatch

    is_circle = isinstance(start, Circle)
    ends = start.center if is_circle else start.get_xydata()[0], stop.center
    cut = dict(patchA=start if is_circle else None, patchB=stop, shrinkA=0, shrinkB=0)
    shape = dict(arrowstyle=style, connectionstyle=f"arc3,rad={bend}", mutation_scale=11, zorder=2)
    pen = _pen(strong)
    ax.add_patch(FancyArrowPatch(*ends, fc=pen["ec"], **shape, **cut, **pen))


def _pen(strong):
    return dict(ec=COLOURS[1] if strong else INK, lw=2.0 if strong else 1.1)


def _vectors(figure):
    """The figure as SVG in one line, the same text each time; it is closed."""
    import matplotlib
    from matplotlib import pyplot as plt

    out, nobody = io.StringIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": "crfbook"}):
        figure.savefig(out, format="svg", metadata=nobody, bbox_inches="tight", pad_inches=0.02)
    plt.close(figure)
    return re.sub(r"\s*\n\s*", " ", out.getvalue().partition("<svg")[2].join(("<svg", "")))
