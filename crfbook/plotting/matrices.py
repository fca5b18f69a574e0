"""Matrices as coloured cells: weights of transitions, confusions of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import shown
from crfbook.plotting.style import as_array, axes, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def heatmap(
    matrix: ArrayLike, rows: Sequence[Any], columns: Sequence[Any], *, row_title: str = "",
    column_title: str = "", unit: str = "", signed: bool | None = None, numbers: bool | None = None,
    scale: float | None = None, ax: Axes | None = None,
) -> np.ndarray:  # fmt: skip
    """A matrix as coloured cells, row 0 on top; cells of -inf are hatched (forbidden),
    NaN cells are left blank.

    matrix (R, C); rows, columns: names. signed: orange above 0 and purple below, instead of blue from
    0 upwards (None: if there are negative values). numbers: print the values (None: up to 10 rows and
    columns). scale: the value of the darkest colour (None: the largest). Returns the matrix.
    """
    matrix = as_array(matrix, (len(rows), len(columns)), "matrix")
    finite = matrix[np.isfinite(matrix)]
    signed = bool((finite < 0).any()) if signed is None else signed
    top = scale or (np.abs(finite) if signed else finite).max(initial=0.0) or 1.0
    ax = axes(ax, *_size(matrix))
    shown = np.where(np.isfinite(matrix), matrix, np.nan)
    image = ax.imshow(
        shown, cmap="PuOr_r" if signed else "Blues", vmin=-top if signed else 0, vmax=top, aspect="auto"
    )
    size = 8 if max(matrix.shape) > 12 else 10
    upright = max(len(str(name)) for name in columns) <= 2
    ax.set_xticks(range(len(columns)), columns, fontsize=size, rotation=0 if upright else 90)
    ax.set_yticks(range(len(rows)), rows, fontsize=size)
    ax.set_xlabel(column_title, fontsize=11)
    ax.set_ylabel(row_title, fontsize=11)
    for i, j in np.argwhere(matrix == -np.inf):
        ax.add_patch(_cell(i, j, facecolor="#EEEEEE", edgecolor="#888888", hatch="////"))
    if numbers or (numbers is None and max(matrix.shape) <= 10):
        for i, j in np.argwhere(np.isfinite(matrix)):
            shade = image.cmap(image.norm(matrix[i, j]))
            dark = np.dot(shade[:3], (0.299, 0.587, 0.114)) < 0.45
            look = dict(ha="center", va="center", fontsize=9, color="white" if dark else "black")
            ax.text(j, i, _short(matrix[i, j]), **look)
    plain(ax, frame=False)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, pad=0.02)
    bar.set_label(unit, fontsize=10)
    bar.outline.set_visible(False)
    return matrix


def _size(matrix):
    """Width and height in inches of a figure for it."""
    cell = 0.21 if max(matrix.shape) > 12 else 0.42
    return 1.9 + cell * matrix.shape[1], 1.3 + 0.85 * cell * matrix.shape[0]


def _cell(i, j, **look):
    from matplotlib.patches import Rectangle

    return Rectangle((j - 0.5, i - 0.5), 1, 1, lw=0, **look)


def _short(value):
    """At most two significant decimals in at most four characters where possible: .07, 0.5, -1.2, 14."""
    if value == 0:
        return "0"
    if abs(value) >= 9.95:
        return f"{value:.0f}"
    text = f"{value:.1f}" if abs(value) >= 0.995 else f"{value:.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def weight_matrix(
    weights: ArrayLike, labels: Sequence[Any], *, unit: str = "weight (nats)", numbers: bool | None = None,
    ax: Axes | None = None,
) -> np.ndarray:  # fmt: skip
    """Transition weights [previous, next]: the row is the label one comes from. -inf is hatched: forbidden.
    Returns (L, L).
    """
    titles = dict(row_title="previous label", column_title="next label")
    return heatmap(weights, labels, labels, unit=unit, signed=True, numbers=numbers, ax=ax, **titles)


def confusion(
    gold: Sequence[Any], predicted: Sequence[Any], *, labels: Sequence[Any] | None = None, most: int = 12,
    ax: Axes | None = None,
) -> tuple[list[Any], np.ndarray, np.ndarray]:  # fmt: skip
    """How often a token of one label (row) was given another (column), in per cent of the row.

    gold, predicted: label sequences, flat or one list per sentence. labels: which, in order; None: the `most`
    labels with the most errors, by falling count in gold. Returns (labels, counts (n, n), shares (n, n));
    shares are of all gold tokens of the label, shown or not, so a row may add to less than one.
    """
    gold, predicted = _flat(gold), _flat(predicted)
    if len(gold) != len(predicted):
        raise ValueError(
            f"expected as many predicted labels as gold ones ({len(gold)}), got {len(predicted)}"
        )
    names, ids = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    table = np.zeros((len(names), len(names)), np.int64)
    np.add.at(table, (ids[: len(gold)], ids[len(gold) :]), 1)
    if labels is None:
        wrong = table.sum(0) + table.sum(1) - 2 * table.diagonal()
        chosen = np.argsort(-wrong, kind="stable")[:most]
        chosen = chosen[np.argsort(-table[chosen].sum(1), kind="stable")]
    else:
        unknown = [label for label in labels if label not in set(names.tolist())]
        if unknown:
            raise ValueError(f"label {shown(unknown[0])} occurs neither in gold nor in predicted")
        chosen = np.array([np.flatnonzero(names == label)[0] for label in labels], np.int64)
    counts = table[np.ix_(chosen, chosen)]
    total = table[chosen].sum(1, keepdims=True)
    shares = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    kept = [names[i].item() for i in chosen]
    titles = dict(row_title="gold label", column_title="predicted label", unit="% of the gold label's tokens")
    errors = np.where(np.eye(len(kept), dtype=bool), np.nan, shares)
    ax = axes(ax, *_size(shares))
    heatmap(100 * errors, kept, kept, signed=False, numbers=len(kept) <= 12, ax=ax, **titles)
    for i in range(len(kept)):
        ax.add_patch(_cell(i, i, facecolor="#E0E0E0"))
        ax.text(
            i, i, _short(100 * shares[i, i]), ha="center", va="center", fontsize=9 if len(kept) <= 12 else 6
        )
    return kept, counts, shares


def _flat(sequences):
    """Labels of all sequences in one array; a flat sequence of labels passes through."""
    sequences = list(sequences)
    nested = bool(sequences) and not isinstance(sequences[0], str) and np.ndim(sequences[0]) == 1
    return np.array([label for sequence in sequences for label in sequence] if nested else sequences)
