"""The lattice of a sentence with scores that one can drag (chapters 01 and 02; extra: crfbook[widgets]).

`lattice.js` computes and draws. It runs beside a kernel, by anywidget, and on a page without one.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Lattice", "lattice"]

MAX_NODES = 60  # words times labels: more circles cannot be read


def lattice(words: Sequence[str], labels: Sequence[str], log_node: ArrayLike, log_edge: ArrayLike) -> Lattice:
    """The lattice of a sentence: sliders change its scores, buttons step through its messages.

    words : list of T strings.
    labels : list of L strings.
    log_node : (T, L), scores of the labels of each word; -inf forbids.
    log_edge : (L, L), [previous, next]; -inf forbids.

    Shows forward and backward messages, marginals, log Z, and Viterbi beside posterior decoding. With
    anywidget a running kernel reads what was dragged: `log_node` and `log_edge` of the `Lattice`. Raises
    ValueError for shapes that do not fit, more than 60 nodes, nan and +inf.
    """
    node, edge = np.asarray(log_node, np.float64), np.asarray(log_edge, np.float64)
    if not words or not labels or node.shape != (len(words), len(labels)) or edge.shape != (len(labels),) * 2:
        raise ValueError(
            f"expected log_node (T, L) and log_edge (L, L) of T = {len(words)} words and L = {len(labels)} "
            f"labels, both at least 1, got {node.shape} and {edge.shape}"
        )
    if node.size > MAX_NODES:
        raise ValueError(f"expected at most {MAX_NODES} nodes, got {node.size}")
    if not (np.all(node < np.inf) and np.all(edge < np.inf)):  # of nan, too
        raise ValueError("expected scores that are finite or -inf, got nan or +inf")
    model = {"words": [*map(str, words)], "labels": [*map(str, labels)]}
    model |= {"node": encoded(node), "edge": encoded(edge)}
    return _synchronised()(model)


def encoded(scores: np.ndarray) -> list[list[float | None]]:
    """Scores as JSON can have them: it has no infinity, so None forbids."""
    return [[None if x == -np.inf else float(x) for x in row] for row in scores]


def decoded(rows: list[list[float | None]]) -> np.ndarray:
    """The scores that `encoded` made these rows of."""
    return np.array([[-np.inf if x is None else x for x in row] for row in rows], np.float64)


class Lattice:
    """What `lattice` returns. A page shows it without a kernel; `log_node` and `log_edge` are its scores."""

    model: dict[str, Any]

    def __init__(self, model: dict[str, Any]) -> None:
        self.model = model

    @property
    def log_node(self) -> np.ndarray:
        """(T, L), as they stand now."""
        return decoded(self.model["node"])

    @property
    def log_edge(self) -> np.ndarray:
        """(L, L), as they stand now."""
        return decoded(self.model["edge"])

    def _repr_html_(self) -> str:
        model = html.escape(json.dumps(self.model, ensure_ascii=False, allow_nan=False))
        words = html.escape(" ".join(self.model["words"]))
        return (
            f'<div class="crfbook-lattice" data-model="{model}"><p>The lattice of {words}: '
            f"where scripts run, it can be dragged.</p></div>\n"
            f'<script type="module">\n{source()}\nmountAll();\n</script>'
        )

    def __repr__(self) -> str:
        return f"Lattice of {len(self.model['words'])} words and {len(self.model['labels'])} labels"


@cache
def source() -> str:
    """The text of lattice.js."""
    return resources.files(__name__).joinpath("lattice.js").read_text(encoding="utf-8")


@cache
def _synchronised() -> type:
    """`Lattice` on anywidget where that is installed, else `Lattice` itself."""
    try:
        import anywidget
        import traitlets
    except ModuleNotFoundError:
        return Lattice

    class SynchronisedLattice(Lattice, anywidget.AnyWidget):
        _esm = source()
        model = traitlets.Dict().tag(sync=True)

        def __init__(self, model: dict[str, Any]) -> None:
            anywidget.AnyWidget.__init__(self, model=model)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            data, metadata = anywidget.AnyWidget._repr_mimebundle_(self, **options) or ({}, {})
            return {**data, "text/plain": repr(self), "text/html": self._repr_html_()}, metadata

    return SynchronisedLattice
