"""Charts: marginals of a sentence, training runs, growth of cost, regularisation paths; matrices as cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import shown
from crfbook.plotting.style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    as_array,
    as_probabilities,
    axes,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label_bars(
    words: Sequence[str], labels: Sequence[Any], marginals: ArrayLike, *, most: int = 6,
    ax: Axes | None = None,
) -> tuple[list[str], np.ndarray]:  # fmt: skip
    """Marginal probabilities of each token as a stacked bar; beyond the `most` heaviest labels: "other".

    words, labels : of T tokens, of L labels: their names.
    marginals : (T, L), rows add to one.
    most : labels that are named.

    Returns (names, shares (T, n)) from the bottom of the bars upwards.
    """
    p = as_probabilities(marginals, (len(words), len(labels)), "marginals")
    off = np.abs(p.sum(1) - 1)
    if len(words) and off.max() > 1e-6:
        raise ValueError(
            f"marginals[{off.argmax()}]: expected a row that adds to 1, got {p[off.argmax()].sum():.6g}"
        )
    most = min(most, len(COLOURS) - 1)
    heavy = np.argsort(-p.sum(0), kind="stable")[:most]
    heavy = heavy if len(labels) > most else np.arange(len(labels))
    names, shares = [str(labels[i]) for i in heavy], p[:, heavy]
    if len(labels) > most:
        names, shares = [*names, "other"], np.column_stack([shares, (1 - shares.sum(1)).clip(0)])
    ax = axes(ax, 1.9 + 0.62 * len(words), 3.0)
    below, inside = np.zeros(len(words)), max(len(name) for name in names) <= 7
    for k, name in enumerate(names):
        colour = FAINT if k == most else COLOURS[k]
        bars = ax.bar(
            range(len(words)), shares[:, k], 0.8, bottom=below, color=colour, ec="white", lw=0.8, label=name
        )
        texts = [name if share >= 0.1 else "" for share in shares[:, k]] if inside else []
        ax.bar_label(bars, texts, label_type="center", fontsize=8, color="black" if k >= 3 else "white")
        below += shares[:, k]
    long = max(map(len, words), default=0) > 6
    ax.set_xticks(
        range(len(words)), words, fontsize=10, rotation=45 if long else 0, ha="right" if long else "center"
    )
    ax.set(ylim=(0, 1), ylabel="probability of the label")
    handles, texts = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1], texts[::-1], frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    plain(ax)
    return names, shares


UNITS = {
    "iteration": "iteration",
    "seconds": "time (s)",
    "objective": "objective (nats)",
    "violation": "largest violation",
}


def learning_curve(
    series: Mapping[str, Any], *, x: str = "iteration", y: str = "objective", best: float | None = None,
    log: bool = False, xlabel: str | None = None, ylabel: str | None = None, ax: Axes | None = None,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """One line per training run.

    series : {name: run}; a run is a fitted CRF, an OptResult, a list of Steps, a DataFrame or (xs, ys).
    x, y : columns of the history.
    best : plot the distance to this value on a logarithmic axis.
    log : True: a logarithmic y axis.
    xlabel, ylabel : None: the names of the columns with their units.

    Returns {name: (xs, ys)}.
    """
    ax = axes(ax, 4.6, 3.1)
    drawn = {}
    for k, (name, run) in enumerate(series.items()):
        xs, ys = _columns(run, x, y)
        if best is not None:
            ys = np.maximum(ys - best, np.finfo(float).eps * max(1.0, abs(best)))
        look = dict(color=COLOURS[k % len(COLOURS)], linestyle=DASHES[k % 4], marker=MARKERS[k % 8])
        ax.plot(xs, ys, lw=1.8, ms=4.5, markevery=max(1, len(xs) // 10), label=name, **look)
        drawn[name] = (xs, ys)
    default = UNITS.get(y, y)
    if best is not None:
        default = default.replace("objective", "objective above the best")
    _titles(ax, xlabel or UNITS.get(x, x), ylabel or default)
    if log or best is not None:
        ax.set_yscale("log")
    if x == "iteration":
        ax.xaxis.get_major_locator().set_params(integer=True)
    _legend_and_grid(ax, len(drawn) > 1)
    return drawn


def _columns(run, x, y):
    run = getattr(run, "history_", getattr(run, "history", run))
    if hasattr(run, "columns"):
        return run[x].to_numpy(float), run[y].to_numpy(float)
    if len(run) and hasattr(run[0], "_fields"):
        return tuple(np.array([getattr(step, name) for step in run], float) for name in (x, y))
    xs, ys = run
    return as_array(xs, (None,), x), as_array(ys, (len(xs),), y)


def timing_growth(
    sizes: ArrayLike, seconds: Mapping[str, ArrayLike], *, quantity: str = "number of labels",
    fit_from: float = 0, unit: str = "time (s)", ax: Axes | None = None,
) -> dict[str, float]:  # fmt: skip
    """Cost against size on two logarithmic axes, with the fitted power: seconds ~ size ** exponent.

    sizes : (n,).
    seconds : {name: (n,)}, NaN where not measured.
    quantity, unit : names of the axes.
    fit_from : the fit (least squares in logarithms) uses sizes >= this, as small ones measure overhead.

    Returns {name: exponent}.
    """
    sizes = as_array(sizes, (None,), "sizes")
    ax = axes(ax, 4.6, 3.1)
    exponents = {}
    for k, (name, measured) in enumerate(seconds.items()):
        ys = as_array(measured, sizes.shape, name)
        if (sizes <= 0).any() or (ys <= 0).any():
            raise ValueError(
                f"{name}: expected sizes and seconds above 0, a logarithmic axis shows no others"
            )
        colour, used = COLOURS[k % len(COLOURS)], (sizes >= fit_from) & np.isfinite(ys)
        if len(np.unique(sizes[used])) < 2:
            raise ValueError(
                f"{name}: expected at least two different sizes from {fit_from} on to fit a power, "
                f"got {used.sum()}"
            )
        power, shift = np.polyfit(np.log(sizes[used]), np.log(ys[used]), 1)
        ax.plot(
            sizes, ys, ls="", marker=MARKERS[k % 8], ms=6, color=colour, label=f"{name}: power {power:.2f}"
        )
        ax.plot(sizes[used], np.exp(shift) * sizes[used] ** power, lw=1.5, color=colour, ls=DASHES[k % 4])
        exponents[name] = float(power)
    ax.set(xscale="log", yscale="log")
    if len(sizes) <= 8:
        ax.set_xticks(sizes, [f"{n:,g}" for n in sizes])
        ax.minorticks_off()
    _titles(ax, quantity, unit)
    _legend_and_grid(ax, True)
    return exponents


def _titles(ax, x, y):
    ax.set_xlabel(x, fontsize=11)
    ax.set_ylabel(y, fontsize=11)


def _legend_and_grid(ax, legend):
    ax.grid(color="#E6E6E6", lw=0.6)
    ax.set_axisbelow(True)
    plain(ax)
    if legend:
        ax.legend(frameon=False, fontsize=9)


def reliability(reports: Any, *, ax: Axes | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Share of right predictions against their probability, with intervals. On the line all is as it says.

    reports : what `evaluation.reliability` returns, or {name: report}. The legend has the expected
        calibration error (ECE) of each.

    Returns {name: (confidence (B,), accuracy (B,))}.
    """
    reports = reports if isinstance(reports, Mapping) else {"": reports}
    ax = axes(ax, 3.6, 3.4)
    ax.plot([0, 1], [0, 1], color=FAINT, lw=1.2, ls=":")
    drawn = {}
    for k, (name, report) in enumerate(reports.items()):
        p, right = (as_probabilities(part, (len(report.size),), name) for part in report[:2])
        ends = np.nan_to_num(np.abs([right - report.low, report.high - right]))
        look = dict(color=COLOURS[k % len(COLOURS)], linestyle=DASHES[k % 4], marker=MARKERS[k % 8])
        label = f"{name}{': ' * bool(name)}ECE {report.ece.value:.3f}"
        ax.errorbar(p, right, ends, lw=1.6, ms=5, capsize=2, label=label, **look)
        drawn[name] = (p, right)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    _titles(ax, "probability", "share that is right")
    _legend_and_grid(ax, True)
    return drawn


MOST_TICKS = 8  # names on the axis of c1


def regularization_path(
    path: Any, *, measure: str = "score", ax: Axes | None = None
) -> dict[str, np.ndarray]:
    """Active weights (left axis) and scores with their standard errors (right axis) against c1,
    falling from left to right.

    path : what `crfbook.models.path.regularization_path` returns, or its DataFrame.
    measure : name of the score.

    A vertical line marks the chosen c1, a dotted one the sparsest within one standard error. Returns the
    arrays that were drawn: {"c1", "n_active", "score", ...}.
    """
    frame, chosen = getattr(path, "frame", path), getattr(path, "chosen", None)
    c1 = as_array(frame["c1"], (None,), "c1")
    if not (c1 > 0).all():
        raise ValueError("c1: expected values above 0, a logarithmic axis shows no others")
    drawn = {"c1": c1, "n_active": as_array(frame["n_active"], c1.shape, "n_active")}
    ax = axes(ax, 4.8, 3.2)
    ax.plot(c1, drawn["n_active"], color=COLOURS[0], marker="o", ms=4.5, lw=1.8)
    ax.set(xscale="log", xlabel="penalty c1")
    most = max(10.0, drawn["n_active"].max())
    ax.set_yscale("symlog", linthresh=1.0, linscale=0.4)  # counts: linear from 0 to 1 only
    ax.set_ylim(-0.2, 1.4 * most)  # points at 0 stand above the edge
    powers = [0, *(10**k for k in range(int(np.log10(most)) + 1))]
    ax.set_yticks(powers, [f"{n:,}" for n in powers])
    ax.set_ylabel("active weights", color=COLOURS[0])
    ax.invert_xaxis()
    # on a logarithmic axis over one or two decades the usual labels overlap
    named = c1[:: -(-len(c1) // MOST_TICKS)]
    ax.set_xticks(named, [f"{value:.3g}" for value in named])
    ax.minorticks_off()
    plain(ax)
    if "score" in frame:
        drawn["score"] = as_array(frame["score"], c1.shape, "score")
        other = ax.twinx()
        error = None
        if "score_error" in frame and np.isfinite(frame["score_error"]).all():
            drawn["score_error"] = error = as_array(frame["score_error"], c1.shape, "score_error")
        other.errorbar(
            c1, drawn["score"], error, color=COLOURS[1], marker="s", ms=4.5, lw=1.8, ls="--", capsize=2
        )
        other.set_ylabel(measure, color=COLOURS[1])
        other.spines["top"].set_visible(False)
    if chosen is not None:
        ax.axvline(c1[chosen], color=INK, lw=1.0)
        late = chosen > len(c1) / 2  # then there is more space on the left
        place = dict(xy=(c1[chosen], 0.03), xycoords=("data", "axes fraction"), textcoords="offset points")
        place |= dict(xytext=(-4 if late else 4, 0), va="bottom", ha="right" if late else "left")
        ax.annotate(f"c1 = {c1[chosen]:.3g}", fontsize=9, **place)
        if "score_error" in drawn and path.within_one_error() != chosen:
            ax.axvline(c1[path.within_one_error()], color=FAINT, lw=1.0, ls=":")
    return drawn


def heatmap(
    matrix: ArrayLike, rows: Sequence[Any], columns: Sequence[Any], *, row_title: str = "",
    column_title: str = "", unit: str = "", signed: bool | None = None, numbers: bool | None = None,
    scale: float | None = None, ax: Axes | None = None,
) -> np.ndarray:  # fmt: skip
    """A matrix as coloured cells, row 0 on top; cells of -inf are hatched (forbidden),
    NaN cells are left blank.

    matrix : (R, C).
    rows, columns : names of the R rows and C columns.
    row_title, column_title, unit : titles of the axes and of the colour bar.
    signed : True: orange above 0 and purple below; False: blue from 0 upwards; None: True if a value is
        negative.
    numbers : True: print the values; None: up to 10 rows and columns.
    scale : the value of the darkest colour; None: the largest.

    Returns the matrix.
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
    _titles(ax, column_title, row_title)
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

    gold, predicted : label sequences, flat or one list per sentence.
    labels : labels that are shown, in order; None: the `most` labels with the most errors, by falling count
        in gold.

    Returns (labels, counts (n, n), shares (n, n)). Shares are of all gold tokens of the label, shown or not,
    so a row may add to less than one.
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
