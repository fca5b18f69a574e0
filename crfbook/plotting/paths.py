"""Regularisation paths: what survives each L1 penalty, and how well it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .common import COLOURS, FAINT, INK, as_array, axes, plain

if TYPE_CHECKING:
    from crfbook._types import Axes

MOST_TICKS = 8  # names on the axis of c1


def regularization_path(
    path: Any, *, measure: str = "score", ax: Axes | None = None
) -> dict[str, np.ndarray]:
    """Active weights (left axis) and scores with their standard errors (right axis) against c1,
    falling from left to right.

    path: what `crfbook.models.path.regularization_path` returns, or its DataFrame. A vertical line marks the
    chosen c1, a dotted one the sparsest within one standard error. measure: what the score is called. Returns
    the arrays it drew: {"c1", "n_active", "score", ...}.
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
    ax.set_ylim(-0.2, 1.4 * most)  # what is 0 stands above the edge
    powers = [0, *(10**k for k in range(int(np.log10(most)) + 1))]
    ax.set_yticks(powers, [f"{n:,}" for n in powers])
    ax.set_ylabel("active weights", color=COLOURS[0])
    ax.invert_xaxis()
    named = c1[
        :: -(-len(c1) // MOST_TICKS)
    ]  # of a logarithmic axis over one or two decades the usual labels run into each other
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
        late = chosen > len(c1) / 2  # then there is more room on the left
        ax.annotate(
            f"c1 = {c1[chosen]:.3g}",
            (c1[chosen], 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if late else 4, 0),
            textcoords="offset points",
            fontsize=9,
            va="bottom",
            ha="right" if late else "left",
        )
        if "score_error" in drawn and path.within_one_error() != chosen:
            ax.axvline(c1[path.within_one_error()], color=FAINT, lw=1.0, ls=":")
    return drawn
